"""What becomes of recommended items when facts are taken away, and all that was learned stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine
from loger.evaluation.faithfulness.report import FaithfulnessConfig
from loger.graph import INTERACTION, Graph, KnowledgeGraph, Path
from loger.graph.arrays import Doubles, Ints
from loger.metrics import faithfulness as measures
from loger.metrics.faithfulness import Edge
from loger.reasoner.search import random_paths
from loger.recommender import ExplainedItem, Explains
from loger.rules import RuleSet

Rescore = Callable[[int, Sequence[Edge]], ArrayLike]
"""(user, facts) → scores of all items as if these facts were not there, all else as learned.
An engine may send it to another process: a method or a partial of a function, not a lambda."""


@dataclass(slots=True)
class _Probe:
    """What deleting facts did to the items of one user."""

    comprehensiveness: list[float] = field(default_factory=list)
    insufficiency: list[float] = field(default_factory=list)
    flip: list[float] = field(default_factory=list)
    flip_compared: list[float] = field(default_factory=list)
    flip_random_paths: list[float] = field(default_factory=list)
    flip_user_edges: list[float] = field(default_factory=list)
    flip_with_others: list[float] = field(default_factory=list)
    flip_other_paths: list[float] = field(default_factory=list)


def deletions(
    graph: KnowledgeGraph,
    rules: RuleSet,
    users: NDArray[np.int64],
    shown: Sequence[Sequence[ExplainedItem]],
    rescore: Rescore,
    config: FaithfulnessConfig,
    engine: Engine,
) -> dict[str, Doubles]:
    """Delete what was shown, and what was not, and see what becomes of the items."""
    blocks = [(int(user), own) for user, own in zip(users, shown, strict=True)]
    shared = _Deleting(graph, rules, rescore, config)
    probes = list(engine.map("measuring faithfulness", _probe, blocks, shared))
    return {
        line: np.array([measures.mean_of_known(getattr(probe, line)) for probe in probes])
        for line in _Probe.__slots__
    }


class _Deleting(NamedTuple):
    """What probing needs of any user."""

    graph: KnowledgeGraph
    rules: RuleSet
    rescore: Rescore
    config: FaithfulnessConfig


def _probe(shared: _Deleting, block: tuple[int, Sequence[ExplainedItem]]) -> _Probe:
    """One user's items, each with what was shown for it."""
    (graph, rules, rescore, config), (user, reasons) = shared, block
    out, rng = _Probe(), np.random.default_rng([config.seed, 0x9F0B, user])
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
        out.flip.append(flip)
        out.comprehensiveness.append(measures.lost_lead(before, after, r.item, known))
        rest = rescore(user, [fact for fact in own if fact not in facts])
        out.insufficiency.append(measures.lost_lead(before, rest, r.item, known))
        n = len(r.paths)
        (drawn,) = random_paths(graph, rules, user, [r.item], 2 * n, rng)
        if len(drawn) > n and len(own) >= len(facts):
            chosen = rng.choice(len(own), size=len(facts), replace=False)
            out.flip_compared.append(flip)
            out.flip_random_paths.append(flips(measures.facts_of(drawn[:n], graph)))
            out.flip_user_edges.append(flips([own[k] for k in np.sort(chosen)]))
        others = [path for path in drawn if path not in r.paths][:n]
        if len(others) == n:
            out.flip_with_others.append(flip)
            out.flip_other_paths.append(flips(measures.facts_of(others, graph)))
    return out


def _own_facts(graph: KnowledgeGraph, user: int) -> list[Edge]:
    """All facts that a user is part of, in their base direction."""
    edges = np.arange(graph.indptr[user], graph.indptr[user + 1])
    return _facts_at(graph, user, edges)


def actions_of(graph: KnowledgeGraph, user: int) -> list[tuple[Edge, ...]]:
    """A user's actions: each interaction with all facts that are known from it alone."""
    out = []
    for v in graph.neighbours(user, INTERACTION).tolist():
        facts = [(user, INTERACTION, v)]
        if graph.origins is not None:
            for head, other in ((user, v), (v, user)):
                lo, hi = graph.indptr[head], graph.indptr[head + 1]
                edges = lo + np.flatnonzero(graph.origins[lo:hi] == other)
                facts += _facts_at(graph, head, edges)
        out.append(tuple(sorted(set(facts))))
    return out


def _facts_at(graph: KnowledgeGraph, head: int, edges: NDArray[np.integer]) -> list[Edge]:
    """Edges that leave an entity as facts in their base direction."""
    segments = np.searchsorted(graph.segment_starts, edges, side="right") - 1
    relations = graph.segment_relations[segments].tolist()
    n = len(graph.relations)
    return [
        (head, r, t) if r < n else (t, r - n, head)
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
        asked = np.asarray(users).tolist()
        return [
            self._of(user, own, paths)
            for user, own in zip(asked, self.recommender.explained(users, k, 1), strict=True)
        ]

    def _of(self, user: int, own: Sequence[ExplainedItem], n: int) -> list[ExplainedItem]:
        # A stream per user and item: what is drawn for one depends on no other.
        out = []
        for r in own:
            (drawn,) = self.paths_of(user, [r.item], n)
            out.append(ExplainedItem(r.item, r.score, drawn, (1.0,) * len(drawn)))
        return out

    def paths_of(self, user: int, items: Sequence[int], n: int) -> list[tuple[Path, ...]]:
        """Random paths of any pairs of a user."""
        out = []
        for item in items:
            rng = np.random.default_rng([self.seed, 0x8A2D, user, item])
            out += random_paths(self.graph, self.rules, user, [item], n, rng)
        return out

    def explain_paths(self, users: Ints, items: Ints, n: int) -> list[tuple[Path, ...]]:
        """Random paths of any pairs."""
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        return [self.paths_of(user, [item], n)[0] for user, item in pairs]
