"""What becomes of recommended items when facts are removed, and whether reasons are the true ones.

Everything learned stays as it is. Where the truth is known, in the invented shop, a purchase is
where most of a few random walks along one rule ended. Every action of the user from which the rule
leads to the item played a part; the walk that came first decided, by chance. So an action counts as
found if the first reason is one of those, and the *very* action if it is that of the first walk:
someone who knows all but the dice finds it in 1 of n cases if n actions lead there. Purchases that
nothing caused have no right reason, so any confident reason is wrong there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.data.demo import Demo
from loger.data.splits import Split
from loger.engine import Engine
from loger.evaluation.faithfulness.actions import Acts, NamedReason, NamesReasons
from loger.evaluation.faithfulness.report import FaithfulnessConfig
from loger.graph import INTERACTION, Graph, KnowledgeGraph, Path
from loger.graph.arrays import Doubles, Ints
from loger.grounding import paths
from loger.metrics import faithfulness as measures
from loger.metrics.faithfulness import Edge
from loger.reasoner.search import random_paths
from loger.recommender import ExplainedItem, Explains
from loger.rules import RuleSet

Rescore = Callable[[int, Sequence[Edge]], ArrayLike]
"""(user, facts) → scores of all items as if these facts were not there, all else as learned.
An engine may send it to another process: a method or a partial of a function, not a lambda."""


DELETIONS = (
    "comprehensiveness", "insufficiency", "flip", "flip_compared", "flip_random_paths",
    "flip_user_edges", "flip_with_others", "flip_other_paths",
)  # fmt: skip
"""The effects of deleting facts that are measured."""


def deletions(
    graph: KnowledgeGraph,
    rules: RuleSet,
    users: NDArray[np.int64],
    shown: Sequence[Sequence[ExplainedItem]],
    rescore: Rescore,
    config: FaithfulnessConfig,
    engine: Engine,
) -> dict[str, Doubles]:
    """Delete the facts that were shown, and others, and measure what becomes of the items."""
    blocks = [(int(user), own) for user, own in zip(users, shown, strict=True)]
    shared = _Deleting(graph, rules, rescore, config)
    probes = list(engine.map("measuring faithfulness", _probe, blocks, shared))
    return {
        line: np.array([measures.mean_of_known(probe[line]) for probe in probes])
        for line in DELETIONS
    }


class _Deleting(NamedTuple):
    """What probing needs for every user."""

    graph: KnowledgeGraph
    rules: RuleSet
    rescore: Rescore
    config: FaithfulnessConfig


def _probe(shared: _Deleting, block: tuple[int, Sequence[ExplainedItem]]) -> dict[str, list[float]]:
    """The effects on one user's items, each with what was shown for it."""
    (graph, rules, rescore, config), (user, reasons) = shared, block
    out: dict[str, list[float]] = {line: [] for line in DELETIONS}
    rng = np.random.default_rng([config.seed, 0x9F0B, user])
    known = graph.neighbours(user, INTERACTION) - graph.n_users
    before, own = np.asarray(rescore(user, ())), _own_facts(graph, user)
    for r in reasons:
        if not r.paths or measures.rank(before, r.item, known) >= config.k:
            continue
        facts = measures.facts_of(r.paths, graph)

        def flips(removed: Sequence[Edge], item: int = r.item) -> float:
            return float(measures.rank(rescore(user, removed), item, known) >= config.k)

        after = np.asarray(rescore(user, facts))
        flip = float(measures.rank(after, r.item, known) >= config.k)
        out["flip"].append(flip)
        out["comprehensiveness"].append(measures.lost_lead(before, after, r.item, known))
        rest = rescore(user, [fact for fact in own if fact not in facts])
        out["insufficiency"].append(measures.lost_lead(before, rest, r.item, known))
        n = len(r.paths)
        (drawn,) = random_paths(graph, rules, user, [r.item], 2 * n, rng)
        if len(drawn) > n and len(own) >= len(facts):
            chosen = rng.choice(len(own), size=len(facts), replace=False)
            out["flip_compared"].append(flip)
            out["flip_random_paths"].append(flips(measures.facts_of(drawn[:n], graph)))
            out["flip_user_edges"].append(flips([own[k] for k in np.sort(chosen)]))
        others = [path for path in drawn if path not in r.paths][:n]
        if len(others) == n:
            out["flip_with_others"].append(flip)
            out["flip_other_paths"].append(flips(measures.facts_of(others, graph)))
    return out


def _own_facts(graph: KnowledgeGraph, user: int) -> list[Edge]:
    """All facts about a user, in their base direction."""
    edges, n = slice(graph.indptr[user], graph.indptr[user + 1]), len(graph.relations)
    segments = np.arange(graph.row_segments[user], graph.row_segments[user + 1])
    sizes = np.diff(graph.segment_starts)[segments]
    relations = np.repeat(graph.segment_relations[segments], sizes).tolist()
    return [
        (user, r, t) if r < n else (t, r - n, user)
        for r, t in zip(relations, graph.tails[edges].tolist(), strict=True)
    ]


# ── a recommender that is deliberately unfaithful ─────────────────────────────────────


class RandomPaths:
    """The same items as another recommender, with random valid paths: plausible, not faithful.

    Its paths exist and follow the rules, so a measure that finds it as good as the recommender
    itself measures plausibility.
    """

    def __init__(
        self,
        recommender: Explains,
        graph: Graph,
        rules: RuleSet,
        seed: int = 0,
    ) -> None:
        self.recommender, self.graph, self.rules, self.seed = recommender, graph, rules, seed
        inner = getattr(recommender, "name", type(recommender).__name__)
        self.name = f"random paths for {inner}"
        rescore = getattr(recommender, "rescore", None)
        if rescore is not None:
            self.rescore: Rescore = rescore

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The recommender's items, each with paths drawn evenly among all of its groundings."""
        out = []
        lists = self.recommender.explained(users, k, 1)
        for user, own in zip(np.asarray(users).tolist(), lists, strict=True):
            drawn = [(r, self._drawn(user, r.item, paths)) for r in own]
            out.append([ExplainedItem(r.item, r.score, d, (1.0,) * len(d)) for r, d in drawn])
        return out

    def explain_paths(self, users: Ints, items: Ints, n: int) -> list[tuple[Path, ...]]:
        """Random paths of any pairs."""
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        return [self._drawn(user, item, n) for user, item in pairs]

    def _drawn(self, user: int, item: int, n: int) -> tuple[Path, ...]:
        # A stream per user and item: what is drawn for one depends on no other.
        rng = np.random.default_rng([self.seed, 0x8A2D, user, item])
        (found,) = random_paths(self.graph, self.rules, user, [item], n, rng)
        return found


# ── planted reasons ─────────────────────────────────────────────────────────────────────


def planted_cases(
    demo: Demo,
    split: Split,
    rules: RuleSet,
    graph: KnowledgeGraph | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[Path]]:
    """Purchases of the test part that a planted rule caused, with the paths that caused them.

    Includes only purchases whose cause can be found: its rule is among the rules, and its facts
    are in the graph, by default the split's.
    """
    graph = graph or split.graph
    sequences = {rule.relations for rule in rules}
    kept, causes = [], []
    for row in split.test.tolist():
        if demo.causes[row] < 0:
            continue
        names = demo.planted[demo.causes[row]]
        path = Path(demo.paths[row], tuple(graph.relation_id(name) for name in names))
        if path.relations in sequences and path.exists(graph):
            kept.append(row)
            causes.append(path)
    events = split.dataset.interactions
    return events.users[kept], events.items[kept], causes


def recovered(
    demo: Demo,
    split: Split,
    rules: RuleSet,
    graph: KnowledgeGraph,
    explain: Callable[[Ints, Ints, int], Sequence[Sequence[Path]]],
    acts: Acts | None,
    n_paths: int,
) -> dict[str, Doubles]:
    """Whether planted reasons are recovered; one value per purchase, or per reason."""
    users, items, causes = planted_cases(demo, split, rules, graph=graph)
    rule, path = measures.reason_recovery(explain(users, items, n_paths), causes)
    out = {"recovered_rule": rule, "recovered_path": path}
    if not isinstance(acts, NamesReasons) or not causes:
        return out
    caused, uncaused = acts.reasons(users, items), acts.reasons(*_uncaused(demo, split))
    named = {rule.relations: rule for rule in rules}
    leading = [
        {int(way[1]) for way in paths(graph, named[cause.relations], u, v)}
        for u, v, cause in zip(users.tolist(), items.tolist(), causes, strict=True)
    ]
    out |= _actions(caused, causes, leading)
    return out | _reliability(caused, causes, uncaused)


def _uncaused(demo: Demo, split: Split) -> tuple[Ints, Ints]:
    """Users and items of test purchases without a cause."""
    rows = split.test[demo.causes[split.test] < 0]
    events = split.dataset.interactions
    return events.users[rows], events.items[rows]


def _actions(
    caused: Sequence[Sequence[NamedReason]], causes: Sequence[Path], leading: Sequence[set[int]]
) -> dict[str, Doubles]:
    """Whether the first reason is an action from which the rule starts, and the exact one."""
    any_of, very = np.zeros(len(causes)), np.zeros(len(causes))
    for k, (reasons, cause) in enumerate(zip(caused, causes, strict=True)):
        if reasons and reasons[0].relation == cause.relations[0]:
            any_of[k] = reasons[0].entity in leading[k]
            very[k] = reasons[0].entity == cause.entities[1]
    return {
        "recovered_action": any_of,
        "recovered_very_action": very,
        "recoverable_very_action": np.array([1 / len(entities) for entities in leading]),
    }


def _reliability(
    caused: Sequence[Sequence[NamedReason]],
    causes: Sequence[Path],
    uncaused: Sequence[Sequence[NamedReason]],
) -> dict[str, Doubles]:
    """Calibration of reasons: their confidence against how often they are right, over all
    purchases; and their share of the positive contributions, over purchases with a cause."""
    speaking = [[r for r in own if r.contribution > 0] for own in (*caused, *uncaused)]
    edges = [(cause.relations[0], cause.entities[1]) for cause in causes]
    right = [
        float((r.relation, r.entity) == edge)
        for own, edge in zip_longest(speaking, edges)
        for r in own
    ]
    likely = [r.confidence for own in speaking for r in own]
    totals = [sum(r.contribution for r in own) for own in speaking[: len(caused)]]
    shares = [
        r.contribution / whole for own, whole in zip(speaking, totals, strict=False) for r in own
    ]
    return {
        "reliability_error": np.array([measures.reliability_error(likely, right)]),
        "share_error": np.array([measures.reliability_error(shares, right[: len(shares)])]),
        "reliability:told": np.array(likely),
        "reliability:right": np.array(right),
    }
