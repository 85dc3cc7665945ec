"""Whether a user's actions matter for the items as the reasons claim (METHOD 12).

An action is an interaction with everything that is known from it alone. Everything learned stays
as it is; actions are removed and all items scored again. An item's *lead* is its score minus the
mean score of the items that the user doesn't have. Removed items still count as the user's: they
neither enter the mean nor return to the list, so the set of items is the same before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from loger.engine import Engine
from loger.evaluation.faithfulness.report import LENGTHS, FaithfulnessConfig
from loger.explain.attribution import explain
from loger.explain.by_action import ENOUGH, MAX_SHOWN
from loger.explain.questions import RIVALS, above, fewest_removals
from loger.graph import history
from loger.graph.arrays import Doubles, Ints
from loger.metrics import faithfulness as measures
from loger.metrics.faithfulness import lead, mean_of_known, rank
from loger.ranking.ranker import Ranker

# ── a user's list with some actions and without them ──────────────────────────────────


@dataclass(frozen=True, eq=False)
class Contributions:
    """What a user's actions contribute to some items, according to the explanations."""

    leads: Doubles  # [items]
    actions: Doubles  # [interactions, items], in the order of the history
    facts: Doubles  # [facts, items]: facts about the user that no interaction takes with it


@runtime_checkable
class Acts(Protocol):
    """A recommender that reports what actions contribute, and can score without some of them."""

    def history(self, user: int) -> NDArray[np.int64]:
        """The items that a user has."""
        ...

    def contributions(self, user: int, items: Sequence[int]) -> Contributions:
        """What each of the user's actions contributes to each item."""
        ...

    def rescore(self, user: int, removed: Sequence[int]) -> Doubles:
        """Scores of all items as if the user didn't have some items; nothing is learned again."""
        ...


class Scenes:
    """Scores of all items for one user without some actions; each set is scored once."""

    def __init__(self, acts: Acts, user: int) -> None:
        self.acts, self.user, self.owned = acts, user, acts.history(user)
        self._scores: dict[frozenset[int], Doubles] = {}

    def scores(self, gone: frozenset[int]) -> Doubles:
        """The scores without actions, by place in the history."""
        if gone not in self._scores:
            removed = self.owned[sorted(gone)].tolist()
            self._scores[gone] = np.asarray(self.acts.rescore(self.user, removed))
        return self._scores[gone]

    def lead(self, item: int, gone: frozenset[int]) -> float:
        """An item's lead without actions."""
        return lead(self.scores(gone), item, self.owned)

    def flips(self, item: int, gone: frozenset[int], k: int) -> float:
        """1 if an item leaves the list of length k without actions, else 0."""
        return float(rank(self.scores(gone), item, self.owned) >= k)

    def best(self, gone: frozenset[int], k: int) -> list[int]:
        """The list without actions."""
        s = self.scores(gone).copy()
        s[self.owned] = -np.inf
        order = np.argsort(-s, kind="stable")[:k]
        return [int(v) for v in order if s[v] > -np.inf]


def shown_actions(given: Doubles) -> list[int]:
    """The actions shown as reasons, by place: at most five, enough to cover 80% of all
    contributions, and none that counts against the item."""
    order = [a for a in measures.by_contribution(given) if given[a] > 0][:MAX_SHOWN]
    enough = np.flatnonzero(np.cumsum(given[order]) >= ENOUGH * given.sum())
    return order[: enough[0] + 1] if len(enough) else order


# ── robust fidelity: what random parts of the shown reasons matter ────────────────────
# Removing a whole explanation leaves a user unlike any other; removing a random part of it doesn't
# (Zheng et al., Towards Robust Fidelity, ICLR 2024). Fid₊ is the share of an item's lead that is
# lost with a random part of the shown actions, compared with equally many that aren't shown; Fid₋
# is what is lost with a random part of those not shown.


DRAWS = 5
"""Number of random parts of each item's actions."""


def robust_fidelity(
    scenes: Scenes, claimed: Contributions, items: Sequence[int], rng: np.random.Generator
) -> dict[str, float]:
    """Fid₊, its control and Fid₋, the mean over items that have actions of both kinds."""
    rows = [
        _of_item(scenes, item, shown_actions(given), rng)
        for item, given in zip(items, claimed.actions.T, strict=False)
    ]
    plus, others, minus = (mean_of_known([row[k] for row in rows]) for k in range(3))
    return {
        "fid_plus": plus,
        "fid_plus_others": others,
        "fid_plus_difference": plus - others,
        "fid_minus": minus,
    }


def _of_item(
    scenes: Scenes, item: int, shown: Sequence[int], rng: np.random.Generator
) -> tuple[float, float, float]:
    """The share of an item's lead that is lost without a part of the shown actions, without
    equally many others, and without any part of the others."""
    others = [a for a in range(len(scenes.owned)) if a not in shown]
    before = scenes.lead(item, frozenset())
    if not shown or not others or before <= 0:
        return np.nan, np.nan, np.nan

    def lost(among: Sequence[int], n: int) -> float:
        gone = rng.choice(among, size=n, replace=False).tolist()
        return 1 - scenes.lead(item, frozenset(gone)) / before

    draws = []
    for _ in range(DRAWS):
        n = int(rng.integers(1, min(len(shown), len(others)) + 1))
        any_number = int(rng.integers(1, len(others) + 1))
        draws.append((lost(shown, n), lost(others, n), lost(others, any_number)))
    plus, control, minus = np.mean(draws, axis=0).tolist()
    return plus, control, minus


SUBSETS = 16
"""Number of random sets of actions removed from each probed user."""
ROBUST = 3
"""Items of each probed user for which random parts of the reasons are removed."""
DECIDABLE = 0.02
"""Share of the lead by which the oracle must beat chance for a pair to be decidable."""
ORDERS = 10
"""Random orders whose mean is chance."""


class NamedReason(NamedTuple):
    """An edge of the user, and what it contributes to an item."""

    relation: int
    entity: int
    contribution: float
    confidence: float
    """How likely it is the cause if the user takes the item."""


@runtime_checkable
class NamesReasons(Protocol):
    """A recommender that can name what supports any item."""

    def reasons(self, users: Ints, items: Ints) -> Sequence[Sequence[NamedReason]]:
        """For each pair the user's edges, the largest contribution first."""
        ...


@dataclass(frozen=True, eq=False)
class LogerActions:
    """LOGER's contributions of its users' actions, and its scores without them."""

    ranker: Ranker

    def history(self, user: int) -> NDArray[np.int64]:
        """The items that a user has."""
        return history(self.ranker.graph, np.array([user]))[1]

    def contributions(self, user: int, items: Sequence[int]) -> Contributions:
        """c_a of each interaction, including the facts that are known from it alone."""
        asked = np.array(items, dtype=np.int64)
        records = explain(self.ranker, np.full(len(asked), user), asked, 0)
        leads = np.array([e.lead for e in records])
        given = np.stack([e.attribution.actions for e in records], axis=1)
        rows, n = self.ranker.graph.rows, len(self.history(user))
        first = rows.span(user).start
        actions, facts = given[:n].copy(), given[n:]
        if not len(rows.origins):
            return Contributions(leads, actions, facts)
        # The tail's partner of an edge known from one interaction is that interaction's item.
        origins = rows.origins[first + n : first + len(given)]
        owned = rows.tails[first : first + n]
        from_actions = np.flatnonzero(np.isin(origins, owned))
        np.add.at(actions, np.searchsorted(owned, origins[from_actions]), facts[from_actions])
        return Contributions(leads, actions, np.delete(facts, from_actions, axis=0))

    def reasons(self, users: Ints, items: Ints) -> list[list[NamedReason]]:
        """All reasons of each pair."""
        return [
            [NamedReason(r.relation, r.entity, r.total, r.confidence) for r in why.reasons]
            for why in explain(self.ranker, users, items, 0)
        ]

    def rescore(self, user: int, removed: Sequence[int]) -> Doubles:
        """S of all items for the user without some interactions."""
        viewed = self.ranker.user_view(user, remove=removed) if len(removed) else self.ranker
        scores: Doubles = viewed.scores([user], observed=False).total[0].astype(np.float64)
        return scores


@dataclass(frozen=True, eq=False)
class RandomReasons:
    """The control: the same scores, with contributions shuffled among a user's actions."""

    true: Acts
    seed: int = 0

    def history(self, user: int) -> NDArray[np.int64]:
        """The items that a user has."""
        return self.true.history(user)

    def contributions(self, user: int, items: Sequence[int]) -> Contributions:
        """The true contributions of each item in random order."""
        own = self.true.contributions(user, items)
        dealt = own.actions.copy()
        for column, item in enumerate(items):
            rng = np.random.default_rng([self.seed, 0x9EA5, user, item])
            dealt[:, column] = rng.permutation(dealt[:, column])
        return Contributions(own.leads, dealt, own.facts)

    def rescore(self, user: int, removed: Sequence[int]) -> Doubles:
        """The scores of the recommender itself."""
        return self.true.rescore(user, removed)


class _Shared(NamedTuple):
    acts: Acts
    config: FaithfulnessConfig


def by_actions(
    acts: Acts, users: NDArray[np.int64], config: FaithfulnessConfig, engine: Engine
) -> dict[str, Doubles]:
    """All measures over actions, one value per user and line."""
    blocks = [int(user) for user in users]
    rows = list(engine.map("measuring faithfulness", _of_user, blocks, _Shared(acts, config)))
    lines = sorted({line for row in rows for line in row})
    return {line: np.array([row.get(line, np.nan) for row in rows]) for line in lines}


def _of_user(shared: _Shared, user: int) -> dict[str, float]:
    """One user's values."""
    acts, config = shared
    scenes = Scenes(acts, user)
    items = scenes.best(frozenset(), config.k)
    if not len(scenes.owned) or not items:
        return {}
    rivals = scenes.best(frozenset(), config.k + RIVALS)
    claimed = acts.contributions(user, rivals)  # the list, and what may come instead
    rng = np.random.default_rng([config.seed, 0xAC75, user])
    out = _shares(claimed, len(items))
    out |= _fidelity(scenes, claimed, items, rng)
    out |= _flips(scenes, claimed, items, config)
    out |= _curves(scenes, claimed, items[: config.curves], rng)
    out |= _first_reasons(scenes, claimed, items, config, rng)
    out |= robust_fidelity(scenes, claimed, items[:ROBUST], rng)
    if config.counterfactuals:
        out |= _counterfactuals(scenes, claimed, rivals, config)
    return out


def _shares(claimed: Contributions, n: int) -> dict[str, float]:
    """How much the first 1, 3, 5 reasons explain, of the lead and of all contributions."""
    given = np.concatenate([claimed.actions, claimed.facts])[:, :n]
    out = {}
    for most in (1, 3, 5):
        of_lead = [
            measures.carried(c, w, most) for c, w in zip(given.T, claimed.leads, strict=False)
        ]
        of_all = [measures.carried(c, float(c.sum()), most) for c in given.T]
        out[f"carried_{most}"] = mean_of_known(of_lead)
        out[f"carried_of_actions_{most}"] = mean_of_known(of_all)
    return out


def _fidelity(
    scenes: Scenes,
    claimed: Contributions,
    items: Sequence[int],
    rng: np.random.Generator,
) -> dict[str, float]:
    """Contributions of random sets of actions, compared with what their removal costs."""
    n = len(scenes.owned)
    if n < 2:
        return {}
    subsets = np.zeros((SUBSETS, n), dtype=bool)
    for row in subsets:
        size = rng.integers(1, min(MAX_SHOWN, n - 1) + 1)
        row[rng.choice(n, size=size, replace=False)] = True
    before = np.array([scenes.lead(v, frozenset()) for v in items])
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in subsets]
    lost = np.array([before - [scenes.lead(v, gone) for v in items] for gone in sets])
    own = claimed.actions[:, : len(items)]
    true = measures.infidelity(own, subsets, lost)
    dealt = np.stack([rng.permutation(c) for c in own.T], axis=1)
    control = measures.infidelity(dealt, subsets, lost)
    return {
        f"{line}:{part}": value
        for line, prediction in (("r2", true), ("r2_permuted", control))
        for part, value in prediction._asdict().items()
    }


def _flips(
    scenes: Scenes, claimed: Contributions, items: Sequence[int], config: FaithfulnessConfig
) -> dict[str, float]:
    """Items that leave the list without their strongest action, and without a random one."""
    best, any_one = [], []
    for column, item in enumerate(items):
        flips = [scenes.flips(item, frozenset([a]), config.k) for a in range(len(scenes.owned))]
        best.append(flips[measures.by_contribution(claimed.actions[:, column])[0]])
        any_one.append(np.mean(flips))
    flip, chance = float(np.mean(best)), float(np.mean(any_one))
    return {
        "flip_first_action": flip,
        "flip_random_action": chance,
        "flip_difference": flip - chance,
    }


def _curves(
    scenes: Scenes, claimed: Contributions, items: Sequence[int], rng: np.random.Generator
) -> dict[str, float]:
    """Deletion and insertion, from chance (0) to the greedy oracle (1), and what is undecidable."""
    if not items:
        return {}
    n = len(scenes.owned)
    steps, every = min(MAX_SHOWN, n - 1), frozenset(range(n))
    orders = [rng.permutation(n).tolist() for _ in range(ORDERS)]
    deletion, insertion = [], []
    for column, item in enumerate(items):
        method = measures.by_contribution(claimed.actions[:, column])
        least = DECIDABLE * abs(float(claimed.leads[column]))
        left, gained = partial(scenes.lead, item), partial(_unled, scenes, item, every)
        deletion.append(_placed(method, orders, steps, left, least))
        insertion.append(_placed(method, orders, steps, gained, least))
    return {
        "deletion": mean_of_known(deletion),
        "insertion": mean_of_known(insertion),
        "undecidable_deletion": float(np.mean(np.isnan(deletion))),
        "undecidable_insertion": float(np.mean(np.isnan(insertion))),
    }


def _unled(scenes: Scenes, item: int, every: frozenset[int], kept: frozenset[int]) -> float:
    """The negative lead of an item with only some actions, up to a constant."""
    return -scenes.lead(item, every - kept)


def _placed(
    method: list[int], orders: list[list[int]], steps: int, cost: measures.Lead, least: float
) -> float:
    """Where a method's order lies between random orders (0) and the greedy oracle (1)."""
    if not steps:
        return np.nan
    chance = float(np.mean([measures.area(order, steps, cost) for order in orders]))
    oracle = measures.area(measures.greedy(len(method), steps, cost), steps, cost)
    return measures.normalised(chance, measures.area(method, steps, cost), oracle, least)


def _first_reasons(
    scenes: Scenes,
    claimed: Contributions,
    items: Sequence[int],
    config: FaithfulnessConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """How much of the list changes when the shown reasons of its first item go (PN-R@k)."""
    n, shown = len(scenes.owned), shown_actions(claimed.actions[:, 0])
    if not shown:
        return {}

    def change(gone: Sequence[int]) -> float:
        return measures.list_change(items, scenes.best(frozenset(gone), config.k))

    changed = change(shown)
    draws = [rng.choice(n, size=len(shown), replace=False).tolist() for _ in range(ORDERS)]
    chance = float(np.mean([change(draw) for draw in draws]))
    length = next(name for name, most in LENGTHS.items() if n <= most)
    return {
        "pn_r": changed,
        "pn_r_random": chance,
        "pn_r_difference": changed - chance,
        f"pn_r_{length}": changed,
    }


def _counterfactuals(
    scenes: Scenes, claimed: Contributions, rivals: Sequence[int], config: FaithfulnessConfig
) -> dict[str, float]:
    """How few actions the first items depend on."""
    found: list[float] = []
    sizes: list[float] = []
    for place in range(min(config.counterfactuals, config.k, len(rivals))):
        item = rivals[place]
        order = [place, *(c for c in range(len(rivals)) if c != place)]

        def gap(gone: tuple[int, ...], item: int = item) -> float:
            return above(scenes.scores(frozenset(gone)), item, scenes.owned, config.k)

        removal = fewest_removals(gap, claimed.leads[order], claimed.actions[:, order], config.k)
        found.append(float(bool(removal.actions)))
        sizes += [float(len(removal.actions))] if removal.actions else []
    return {
        "counterfactual_found": mean_of_known(found),
        "counterfactual_size": mean_of_known(sizes),
    }
