"""Faithfulness by other people's measures: LXR, SPINRec and CFExpRec; and two meanings of removal.

These measures sort a user's history by an explanation of the user's first item, remove it step by
step and follow the item's place. Unlike our own measures they need only an order of actions, so
they can measure any explainer (``explainers``).

- LXR (Barkan et al., WWW 2024): the history goes in ten equal bins, so there are eleven histories
  with the whole one, and each measure is a mean over them. POS@K: the item is among the first K
  when the most important goes first (less is better); NEG@K: when the least important does (more is
  better); CDCG: 1 / log₂(1 + rank) instead (less is better). DEL is the part of the lead that is
  left; INS the part that the removed actions make alone (more is better). The papers have
  probabilities there; ours is a part of the lead, which has no scale either.
- The refined form (SPINRec, Barkan et al. 2025): exactly 1 … 5 actions go, whatever the length.
- CFExpRec (2026): PN-S, whether the item leaves the list without the shown reasons, and which part
  of the list is new; PN-R, the same by place; POS-P and NEG-P, which part of the list stays in each
  of the ten bins; Gini of the importances and how many reasons are shown.

"Removed" has two meanings. In the user's *view* a removed action supports no item, but it happened:
the length of the history and the ages of the other actions stay (``LogerActions``). In the
*rebuilt* graph it never happened (``RebuiltActions``), as ``LOGER.remove`` would leave the model.
What the fit learned stays in both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from explainers import Explainer
from loger.engine import Engine
from loger.evaluation.faithfulness.actions import Acts, LogerActions, Scenes, shown_actions
from loger.explain.by_action import MAX_SHOWN
from loger.graph.arrays import Doubles
from loger.metrics.faithfulness import by_contribution, infidelity, list_change, mean_of_known, rank
from loger.metrics.report import resampled_means
from loger.ranking.ranker import Ranker

BINS, FEW, K = 10, 5, 10
LISTS = (5, 10, 20)
LESS_IS_BETTER = frozenset(
    ["pos_5", "pos_10", "pos_20", "del", "cdcg", "pos_10_few", "del_few", "cdcg_few", "pos_p"]
)


def removals(n: int, bins: int = BINS) -> list[int]:
    """How many of n actions are gone after each of some equal bins, from none to all.

    >>> removals(12, 5)
    [0, 3, 6, 8, 10, 12]
    """
    sizes = [len(part) for part in np.array_split(np.arange(n), bins)]
    return [0, *np.cumsum(sizes).tolist()]


def measured(scenes: Scenes, item: int, importance: Doubles) -> dict[str, float]:
    """All measures of one explanation of a user's first item."""
    order = by_contribution(importance)
    first = [frozenset(order[:n]) for n in removals(len(order))]
    last = [frozenset(order[len(order) - n :]) for n in removals(len(order))]
    few = [frozenset(order[:n]) for n in range(1, min(FEW, len(order)) + 1)]
    out = _along(scenes, item, first, "")
    out |= {f"neg_{k}": _kept(scenes, item, last, k) for k in LISTS}
    out["ins"] = _lead_left(scenes, item, [frozenset(order) - gone for gone in first])
    out |= _along(scenes, item, few, "_few", (K,))
    before = scenes.best(frozenset(), K)
    out["pos_p"] = float(np.mean([1 - _new(scenes, before, gone) for gone in first[1:]]))
    out["neg_p"] = float(np.mean([1 - _new(scenes, before, gone) for gone in last[1:]]))
    shown = shown_actions(importance)
    gone = frozenset(shown)
    out["pn_s"] = scenes.flips(item, gone, K)
    out["pn_s_list"] = _new(scenes, before, gone)
    out["pn_r"] = list_change(before, scenes.best(gone, K))
    return out | {"gini": gini(importance), "size": float(len(shown))}


def _along(
    scenes: Scenes,
    item: int,
    gone: Sequence[frozenset[int]],
    suffix: str,
    lists: Sequence[int] = LISTS,
) -> dict[str, float]:
    """POS@K, CDCG and DEL over some removals."""
    out = {f"pos_{k}{suffix}": _kept(scenes, item, gone, k) for k in lists}
    places = np.array([rank(scenes.scores(one), item, scenes.owned) + 1 for one in gone])
    out[f"cdcg{suffix}"] = float((1 / np.log2(1 + places)).mean())
    out[f"del{suffix}"] = _lead_left(scenes, item, gone)
    return out


def _kept(scenes: Scenes, item: int, gone: Sequence[frozenset[int]], k: int) -> float:
    return 1 - float(np.mean([scenes.flips(item, one, k) for one in gone]))


def _lead_left(scenes: Scenes, item: int, gone: Sequence[frozenset[int]]) -> float:
    whole = scenes.lead(item, frozenset())
    return float(np.mean([scenes.lead(item, one) for one in gone])) / whole if whole > 0 else np.nan


def _new(scenes: Scenes, before: Sequence[int], gone: frozenset[int]) -> float:
    """The part of the list that is new without some actions."""
    return len(set(scenes.best(gone, len(before))) - set(before)) / len(before)


def gini(importance: Doubles) -> float:
    """How unequal importances are, moved and scaled to [0, 1]: 0 if all are the same.

    >>> gini(np.array([0.0, 0.0, 0.0, 7.0]))
    0.75
    """
    low, high = importance.min(), importance.max()
    if low == high:
        return 0.0
    shares = np.sort(importance - low) / (importance - low).sum()
    n = len(shares)
    return float(1 - 2 * (shares * (n - np.arange(n) - 0.5) / n).sum())


# ── all explainers, the same users and items ────────────────────────────────────────────


class Line(NamedTuple):
    """A measure of one explainer, and how much better or worse than ours, user by user."""

    mean: float
    difference: float
    """Theirs less ours."""
    low: float
    high: float


class _Asked(NamedTuple):
    acts: Acts
    explainers: Mapping[str, Explainer]


def by_protocols(
    acts: Acts, explainers: Mapping[str, Explainer], users: Sequence[int], engine: Engine
) -> dict[str, dict[str, Doubles]]:
    """Explainer → measure → one value per user who has an item; ``ms`` is processor time."""
    rows = list(engine.map("explaining", _of_user, list(users), _Asked(acts, explainers)))
    known = [row for row in rows if row]
    return {
        name: {line: np.array([row[name][line] for row in known]) for line in known[0][name]}
        for name in explainers
    }


def _of_user(asked: _Asked, user: int) -> dict[str, dict[str, float]]:
    scenes = Scenes(asked.acts, user)
    best = scenes.best(frozenset(), 1)
    if not best or not len(scenes.owned):
        return {}
    out = {}
    for name, explainer in asked.explainers.items():
        fresh = Scenes(asked.acts, user)  # what others have asked for is not for free
        begun = time.process_time()
        importance = explainer(fresh, best[0])
        spent = time.process_time() - begun
        out[name] = {**measured(scenes, best[0], importance), "ms": 1000 * spent}
    return out


def compared(
    values: Mapping[str, Mapping[str, Doubles]], ours: str = "ours"
) -> dict[str, dict[str, Line]]:
    """Means, and paired differences from ours with 95% intervals over users."""
    out: dict[str, dict[str, Line]] = {}
    for name, lines in values.items():
        out[name] = {}
        for line, own in lines.items():
            differs = own - values[ours][line]
            differs = differs[~np.isnan(differs)]
            low, high = np.quantile(resampled_means(differs[:, None], 1000, 0), [0.025, 0.975])
            mean = mean_of_known(own.tolist())
            out[name][line] = Line(mean, float(differs.mean()), float(low), float(high))
    return out


# ── two meanings of removal ─────────────────────────────────────────────────────────────

SETS, SINGLES = 8, 20
"""Random sets of actions that are removed from each user, and actions removed one by one."""


class RebuiltActions(LogerActions):
    """What LOGER says its users' actions give, and its scores as if some had never been."""

    def rescore(self, user: int, removed: Sequence[int]) -> Doubles:
        """S of all items by a graph built without some interactions."""
        built = self.ranker.rebuilt(user, removed)
        scores: Doubles = built.scores([user], observed=False).total[0].astype(np.float64)
        return scores


MEANINGS = ("action ignored", "graph rebuilt", "graph rebuilt, scale corrected")


def predicted(
    ranker: Ranker, users: Sequence[int], engine: Engine, seed: int = 0
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """How well contributions predict what removal costs, by its meaning; means with intervals.

    ``r2`` is over random sets of up to five actions and the ten best items, ``r2_permuted`` the
    same with each item's contributions dealt out at random. ``rank`` is the rank correlation of the
    first item's contributions with its losses action by action, ``first`` how often both agree
    which action matters most. A rebuilt user is divided by another length, which rescales all
    scores and changes no order. So the last meaning multiplies the leads of each rebuilt user by
    the factor that brings them nearest to those of the view, over all items.
    """
    rows = list(engine.map("removing actions", _both_removals, [(u, seed) for u in users], ranker))
    out = {}
    for meaning in MEANINGS:
        own = [row[meaning] for row in rows if row]
        sums = {line: np.array([one[line] for one in own]) for line in own[0]}
        out[meaning] = {
            "r2": _interval(1 - _ratio(sums, "error")),
            "r2_permuted": _interval(1 - _ratio(sums, "permuted_error")),
            "rank": _interval(_resampled(sums["rank"])),
            "first": _interval(_resampled(sums["first"])),
        }
    return out


def _both_removals(ranker: Ranker, asked: tuple[int, int]) -> dict[str, dict[str, float]]:
    user, seed = asked
    view, rebuilt = Scenes(LogerActions(ranker), user), Scenes(RebuiltActions(ranker), user)
    n, items = len(view.owned), view.best(frozenset(), K)
    if n < 2 or not items:
        return {}
    rng = np.random.default_rng([seed, 0x2E8, user])
    claimed = view.acts.contributions(user, items).actions
    dealt = np.stack([rng.permutation(column) for column in claimed.T], axis=1)
    gone = np.zeros((SETS, n), dtype=bool)
    for row in gone:
        row[rng.choice(n, size=rng.integers(1, min(MAX_SHOWN, n - 1) + 1), replace=False)] = True
    some = np.sort(rng.choice(n, size=min(n, SINGLES), replace=False))
    sets = [*(np.flatnonzero(row).tolist() for row in gone), *([a] for a in some.tolist())]
    out = {}
    for meaning, left in zip(MEANINGS, _both_leads(view, rebuilt, items, sets), strict=True):
        lost = left[0] - left[1:]
        told, control = (infidelity(c, gone, lost[:SETS]) for c in (claimed, dealt))
        own, alone = claimed[some, 0], lost[SETS:, 0]
        out[meaning] = {
            "error": told.error,
            "permuted_error": control.error,
            "variance": told.variance,
            "rank": rank_correlation(own, alone),
            "first": float(own.argmax() == alone.argmax()),
        }
    return out


def _both_leads(
    view: Scenes, rebuilt: Scenes, items: Sequence[int], sets: Sequence[Sequence[int]]
) -> Doubles:
    """Leads of items with everything, then without each set; [meanings, 1 + sets, items]."""
    out = np.empty((len(MEANINGS), 1 + len(sets), len(items)))
    for k, gone in enumerate([(), *sets]):
        free = [np.delete(s.scores(frozenset(gone)), s.owned) for s in (view, rebuilt)]
        seen, built = (scores - scores.mean() for scores in free)
        factor = (seen @ built) / max(built @ built, 1e-300)
        for row, scenes in enumerate((view, rebuilt)):
            out[row, k] = [scenes.lead(v, frozenset(gone)) for v in items]
        out[2, k] = factor * out[1, k]
    return out


def rank_correlation(a: Doubles, b: Doubles) -> float:
    """Spearman's ρ, ties at their mean rank; NaN where either never varies.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.5, 0.6]))
    1.0
    """
    from scipy.stats import rankdata  # slow to import

    x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
    scale = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / scale) if scale > 0 else np.nan


def _resampled(values: Doubles) -> Doubles:
    """The mean, and then those of samples of users."""
    known = values[~np.isnan(values)]
    return np.append(known.mean(), resampled_means(known[:, None], 1000, 0))


def _ratio(sums: Mapping[str, Doubles], line: str) -> Doubles:
    """A sum over users of errors over that of variances; then those of samples of users."""
    parts = np.stack([sums[line], sums["variance"]], axis=1)
    error, variance = np.concatenate([parts.mean(0)[None], resampled_means(parts, 1000, 0)]).T
    out: Doubles = error / variance
    return out


def _interval(values: Doubles) -> tuple[float, float, float]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)
