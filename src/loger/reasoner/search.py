"""Which paths explain an item: beam search with a step scorer, restricted to rules and the item.

Algorithm 1 of the paper goes wherever the scorer prefers, and then drops paths that follow no rule
or end elsewhere, which may leave none. Here (METHOD 7) every hop follows a rule of the user, and
only to where the item can still be reached, so every path in the beam is a reason. If any rule
fires for a pair, the search finds a path. Each path is a simple path of the graph that follows a
rule and doesn't use the pair's own interaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import LocalEngine
from loger.engine.settings import ANY
from loger.errors import LogerError
from loger.graph import (
    Graph,
    KnowledgeGraph,
    Path,
    checked_ids,
    checked_users,
    gather,
    whole,
)
from loger.graph.arrays import Ids
from loger.grounding import Walk, ground, nth_paths
from loger.grounding.layout import layout, weights_of
from loger.grounding.paths import continuations, leads, sets_out
from loger.grounding.plans import Tree, compiled
from loger.rules import MAX_HOPS, RuleSet


@dataclass(frozen=True, slots=True)
class ReasonerConfig:
    """Settings of the path reasoner; ``PAPER`` has those of the paper."""

    cell: Literal["softmax", "sigmoid"] = "softmax"
    """`sigmoid` is the paper's cell. `softmax` attends to the relations that leave the node, shows
    the gates where the walk began, and compares by cosine after a projection."""
    epochs: int = 6
    """Number of passes over the training paths."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = dict.fromkeys(
        ("margin", "neighbours", "strangers", "final_rate", "sees_user", "likeness", "batch",
         "paths_per_pair", "paths_per_user", "rate"), ANY,
    )  # fmt: skip
    RENAMED: ClassVar[Mapping[str, str]] = {"attention": "cell"}


PAPER = ReasonerConfig(cell="sigmoid")
"""The cell as in the paper."""


Reals = NDArray[np.floating[Any]]
"""Numbers of any precision."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How the path reasoner searches."""

    branch: int | None = 10
    """β of the paper: maximum number of neighbours to which a path continues; None means all."""
    width: int | None = 10
    """Maximum number of paths per item after each hop; None keeps all."""
    best_rules: int | None = 10
    """Number of the user's most important rules to follow. A restricted search falls back to the
    others if none of these fires."""
    restrict: Literal["reach", "nothing"] = "reach"
    """`reach`: every hop follows a rule towards the item; `nothing`: anywhere, as in the paper."""


ALGORITHM_1 = SearchConfig(branch=10, width=None, best_rules=10, restrict="nothing")
"""The paper's search, which checks for the user's best rules and the item only at the end."""


class StepScorer(Protocol):
    """Scores hops, and remembers the hops before them as it needs."""

    def begin(self, user: int) -> Any:
        """The state of one walk that starts at the user."""
        ...

    def step_scores(
        self, state: Any, rows: Ids, relations: Ids, entities: Ids
    ) -> NDArray[np.floating[Any]]:
        """Scores of hops: each continues the walk in a row of the state over a relation to an
        entity."""
        ...

    def advance(self, state: Any, rows: Ids, relations: Ids, entities: Ids) -> Any:
        """The state after these hops, one row for each."""
        ...


@dataclass(frozen=True, slots=True)
class ScoredPath:
    """A path with the rule that it grounds, and the mean score of its hops."""

    path: Path
    rule: int
    score: float


@dataclass(frozen=True, eq=False)
class Found:
    """Paths of several items, sorted by item and, within an item, best first."""

    rules: RuleSet
    n_targets: int
    targets: Ids  # [paths]: the item's place among the given items
    places: Ids  # [paths]: the rule's place
    entities: Ids  # [paths, MAX_HOPS + 1], -1 after the end
    scores: NDArray[np.float64]  # [paths]: mean over hops

    def __len__(self) -> int:
        return len(self.targets)

    @cached_property
    def starts(self) -> Ids:
        """Where the paths of each item begin; [items + 1]."""
        return np.searchsorted(self.targets, np.arange(self.n_targets + 1))

    def of(self, target: int, n: int | None = None) -> tuple[ScoredPath, ...]:
        """The best n paths of an item, by its place among the given items; None returns all."""
        lo, hi = self.starts[target], self.starts[target + 1]
        hi = hi if n is None else min(hi, lo + n)
        return tuple(self._path(int(k)) for k in range(lo, hi))

    def _path(self, k: int) -> ScoredPath:
        relations = self.rules[int(self.places[k])].relations
        entities = self.entities[k, : len(relations) + 1].tolist()
        return ScoredPath(Path(tuple(entities), relations), int(self.places[k]), self.scores[k])


class PathSearch:
    """Finds paths from a user to items, along rules over a graph."""

    def __init__(self, graph: Graph, rules: RuleSet, config: SearchConfig | None = None) -> None:
        self.graph, self.rules, self.config = graph, rules, config or SearchConfig()
        self._layout = layout(graph)
        ways = compiled(graph, rules)
        self._tree, self._below = ways.tree, ways.below
        self._place = {rule.relations: k for k, rule in enumerate(rules)}

    def best(
        self,
        user: int,
        items: ArrayLike,
        scorer: StepScorer,
        importance: ArrayLike | None = None,
    ) -> Found:
        """The paths from a user to items that the beam finds, best first by the scorer.

        Args:
            user: by number.
            items: by number.
            scorer: what orders the paths.
            importance: how much each rule matters to this user (y_{u,l} of the paper). Rules of 0
                or less are followed only for items that the others don't reach.
        """
        user, ends = self._checked(user, items)
        followed = self.followed(importance)
        if self.config.restrict == "nothing":
            return self._unrestricted(user, ends, scorer, set(followed.tolist()))
        tree = self._pruned(followed)
        targets = np.arange(len(ends))
        found = self._beam(tree, user, ends, targets, scorer)
        left = np.flatnonzero(np.diff(found.starts) == 0)
        if tree is not self._tree and len(left):
            more = self._beam(self._tree, user, ends, left, scorer)
            found = _sorted(self.rules, len(ends), [_parts(found), _parts(more)])
        return found

    def followed(self, importance: ArrayLike | None = None) -> Ids:
        """The places of the user's best rules, most important first; all if none has a positive
        importance."""
        n, every = self.config.best_rules, np.arange(len(self.rules))
        if importance is None or n is None:
            return every
        matters = np.asarray(importance, dtype=np.float64)
        if matters.shape != (len(self.rules),):
            raise LogerError(
                f"importance needs one number per rule ({len(self.rules)}), "
                f"got an array of shape {matters.shape}"
            )
        chosen = np.argsort(-matters, kind="stable")[:n]
        chosen = chosen[matters[chosen] > 0]
        return chosen if len(chosen) else every

    # ── inside ──────────────────────────────────────────────────────────────────────────

    def _checked(self, user: int, items: ArrayLike) -> tuple[int, Ids]:
        (user,) = checked_users(self.graph, user).tolist()
        return user, checked_ids(items, self.graph.n_items, "item") + self.graph.n_users

    def _pruned(self, chosen: Ids) -> Tree:
        """The tree of rules, restricted to some of them."""
        if len(chosen) == len(self.rules):
            return self._tree
        is_open = np.append(self._below[:, chosen].any(axis=1), False)  # for the entries of -1
        is_chosen = np.zeros(len(self.rules) + 1, dtype=bool)
        is_chosen[chosen] = True
        nodes, rules = self._tree.nodes, self._tree.rules
        return self._tree._replace(
            nodes=np.where(is_open[nodes], nodes, -1), rules=np.where(is_chosen[rules], rules, -1)
        )

    def _beam(
        self,
        tree: Tree,
        user: int,
        items: Ids,
        targets: Ids,
        scorer: StepScorer,
    ) -> Found:
        """Extend the paths to all targets hop by hop, keeping the best of each."""
        n, config = len(targets), self.config
        trail = np.full((n, MAX_HOPS + 1), -1, dtype=np.int64)
        trail[:, 0] = user
        nodes, totals = np.zeros(n, dtype=np.int64), np.zeros(n)
        state, rows = scorer.begin(user), np.zeros(n, dtype=np.int64)
        finished = []
        for hop in range(MAX_HOPS):
            here = np.ascontiguousarray(trail[:, hop])
            ways = continuations(self._layout, tree, user, items, hop, targets, here, nodes)
            if not len(ways):
                break
            parents, relations, entities, onward, ended = ways.T
            gains = scorer.step_scores(state, rows[parents], relations, entities)
            totals = totals[parents] + gains
            trail, targets, rows = trail[parents], targets[parents], rows[parents]
            trail[:, hop + 1] = entities
            done = ended >= 0
            finished.append((targets[done], ended[done], trail[done], totals[done] / (hop + 1)))
            kept = _best_of(np.flatnonzero(~done), parents, totals, config.branch)
            kept = _best_of(kept, targets, totals, config.width)
            if not len(kept):
                break
            state = scorer.advance(state, rows[kept], relations[kept], entities[kept])
            trail, targets, totals, nodes = trail[kept], targets[kept], totals[kept], onward[kept]
            rows = np.arange(len(kept))
        return _sorted(self.rules, len(items), finished)

    def _unrestricted(self, user: int, items: Ids, scorer: StepScorer, followed: set[int]) -> Found:
        """Algorithm 1 of the paper: walk freely, then keep the paths that follow one of the rules
        to one of the items."""
        trail = np.full((1, MAX_HOPS + 1), -1, dtype=np.int64)
        trail[:, 0] = user
        steps, totals = np.full((1, MAX_HOPS), -1, dtype=np.int64), np.zeros(1)
        state, finished, graph = scorer.begin(user), [], whole(self.graph)
        for hop in range(max((len(rule) for rule in self.rules), default=0)):
            parents, relations, entities = _all_ways(graph, trail[:, hop])
            gains = scorer.step_scores(state, parents, relations, entities)
            totals = totals[parents] + gains
            kept = _best_of(np.arange(len(parents)), parents, totals, self.config.branch)
            if self.config.width is not None:
                kept = _best_of(kept, np.zeros(len(parents)), totals, self.config.width)
            parents, relations, entities = parents[kept], relations[kept], entities[kept]
            state = scorer.advance(state, parents, relations, entities)
            trail, steps, totals = trail[parents], steps[parents], totals[kept]
            trail[:, hop + 1], steps[:, hop] = entities, relations
            scores = totals / (hop + 1)
            finished.append(self._reasons_among(items, followed, trail, steps, scores, hop + 1))
        return _sorted(self.rules, len(items), finished)

    def _reasons_among(
        self,
        items: Ids,
        followed: set[int],
        trail: Ids,
        steps: Ids,
        scores: Reals,
        hops: int,
    ) -> tuple[Ids, Ids, Ids, Reals]:
        """The walks that ground one of the followed rules for one of the items."""
        kept, targets, rules = [], [], []
        for k in np.flatnonzero(np.isin(trail[:, hops], items)):
            rule = self._place.get(tuple(steps[k, :hops].tolist()))
            if rule in followed and self._is_open(trail[k, : hops + 1], steps[k, :hops]):
                for target in np.flatnonzero(items == trail[k, hops]):
                    kept.append(k)
                    targets.append(target)
                    rules.append(rule)
        at = np.array(kept, dtype=np.int64)
        found = np.array(targets, dtype=np.int64), np.array(rules, dtype=np.int64)
        return *found, trail[at], scores[at]

    def _is_open(self, entities: Ids, relations: Ids) -> bool:
        """Whether a walk is simple and neither its first nor its last fact is from the pair."""
        u, v = entities[0], entities[-1]
        return (
            len(set(entities.tolist())) == len(entities)
            and sets_out(self._layout, u, relations[0], entities[1], v)
            and (len(relations) == 1 or leads(self._layout, entities[-2], relations[-1], u, v))
        )


def path_strengths(graph: Graph, found: Found, walk: Walk) -> NDArray[np.float64]:
    """The strength of each path of one user; those of a pair and a rule add up to that of
    ``ground``."""
    g, weights = layout(graph), weights_of(graph, walk)
    relations = compiled(graph, found.rules).table[found.places]
    lengths, n = (relations >= 0).sum(axis=1), len(graph.relations)
    out = np.ones(len(found))

    def worth(row: Ids, relation: Ids, entity: Ids) -> NDArray[np.float64]:
        degrees = g.degrees[g.degree_starts[relation] + entity]
        powers: NDArray[np.float64] = weights.powers[row, degrees]
        return powers

    for hop in range(MAX_HOPS):
        on = np.flatnonzero(lengths > hop)
        r, h, t = relations[on, hop], found.entities[on, hop], found.entities[on, hop + 1]
        last = lengths[on] == hop + 1
        out[on] *= worth(np.where(last | (hop > 0), weights.leave[r], weights.first[r]), r, h)
        inverse = np.where(r >= n, r - n, r + n)
        out[on] *= np.where(last, worth(weights.into[r], inverse, t), 1.0)
    longer = np.flatnonzero(lengths > 1)
    if weights.edges.shape[1] and len(longer):
        first = zip(
            *found.entities[longer, :2].T.tolist(), relations[longer, 0].tolist(), strict=True
        )
        edges = np.array([graph.rows.edge(user, r, to) for user, to, r in first])
        out[longer] *= weights.edges[weights.fades[relations[longer, 1]], edges]
    return out


def random_paths(
    graph: Graph,
    rules: RuleSet,
    user: int,
    items: ArrayLike,
    n: int,
    rng: np.random.Generator,
) -> list[tuple[Path, ...]]:
    """At most n random groundings of any rule for each item, without repetition."""
    asked = checked_ids(items, graph.n_items, "item")
    found = ground(graph, rules, np.full(len(asked), user), asked, engine=LocalEngine(1))
    none, out = np.empty(0, dtype=np.int64), []
    for item, lo, hi in zip(asked, found.indptr[:-1], found.indptr[1:], strict=True):
        ends = np.cumsum(found.counts[lo:hi])
        total = int(ends[-1]) if hi > lo else 0
        drawn = rng.choice(total, size=min(n, total), replace=False) if total else none
        cells = np.searchsorted(ends, drawn, side="right")
        places, nth = found.rules[lo + cells], drawn - (ends - found.counts[lo:hi])[cells]
        pairs = np.full(len(drawn), user), np.full(len(drawn), item)
        nodes = nth_paths(graph, rules, places, *pairs, nth).tolist()
        relations = [rules[k].relations for k in places.tolist()]
        chosen = zip(nodes, relations, strict=True)
        out.append(tuple(Path(tuple(row[: len(r) + 1]), r) for row, r in chosen))
    return out


def _all_ways(graph: KnowledgeGraph, entities: Ids) -> tuple[Ids, Ids, Ids]:
    """All edges that leave some entities: (place of the entity, relation, tail)."""
    first = graph.indptr[entities]
    parents, edges = gather(first, graph.indptr[entities + 1] - first)
    segments = np.searchsorted(graph.segment_starts, edges, side="right") - 1
    relations = graph.segment_relations[segments].astype(np.int64)
    return parents, relations, graph.tails[edges].astype(np.int64)


def _best_of(rows: Ids, groups: NDArray[Any], scores: Reals, n: int | None) -> Ids:
    """The n rows with the highest scores of each group, ascending; of ties, the first."""
    if n is None or len(rows) <= n:
        return rows
    own, of = groups[rows], scores[rows]
    order = np.lexsort((-of, own))
    starts = np.searchsorted(own[order], own[order])
    return np.sort(rows[order[np.arange(len(order)) - starts < n]])


_Parts = tuple[Ids, Ids, Ids, Reals]


def _parts(found: Found) -> _Parts:
    return found.targets, found.places, found.entities, found.scores


def _sorted(rules: RuleSet, n_targets: int, parts: Sequence[_Parts]) -> Found:
    """Paths by target, then best first; ties by rule, then by entities."""
    none = np.empty(0, dtype=np.int64)
    targets = np.concatenate([none, *(p[0] for p in parts)])
    places = np.concatenate([none, *(p[1] for p in parts)])
    entities = np.concatenate([none.reshape(0, MAX_HOPS + 1), *(p[2] for p in parts)])
    scores = np.concatenate([np.empty(0), *(p[3].astype(np.float64) for p in parts)])
    order = np.lexsort((*entities.T[::-1], places, -scores, targets))
    return Found(rules, n_targets, targets[order], places[order], entities[order], scores[order])
