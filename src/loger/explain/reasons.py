"""Reasons: a user's actions with what they give an item, their evidence, and both in words.

What an action gives is worked out in ``by_action``; here its strongest paths are looked up and put
in the order in which they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loger.explain.by_action import Attribution
from loger.graph import INTERACTION, Graph, Path, UserView
from loger.grounding.actions import strongest_through
from loger.ranker import Ranker
from loger.rules import Rule
from loger.rules.sentences import action_sentence, evidence_sentence, is_company, path_sentence
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.graph.rows import Rows

Doubles = NDArray[np.float64]
EVIDENCE_PATHS = 3
"""The strongest paths that are looked up of an action and a rule."""
NEAR = 0.1
"""Of evidence that gives this share less than the largest, or less still, any may come first."""
SMALL = 0.05
"""Evidence that carries less of its reason than this is not put into words."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """What one path adds to a score."""

    path: Path
    rule: Rule
    contribution: float
    share: float
    """Its share of what the rule gives; in a reason, of what the rule gives by that action."""
    graph: Graph = field(repr=False, compare=False)
    words: Wording = field(default=ENGLISH, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The path as a sentence."""
        return path_sentence(self.graph, self.path, self.words)


@dataclass(frozen=True)
class Evidence:
    """What an action gives by one rule."""

    rule: Rule
    contribution: float
    n: int
    """How many paths of the rule begin with the action."""
    strongest: tuple[tuple[Path, float], ...]
    """The strongest of them, each with its share of what they all give."""
    graph: Graph = field(repr=False, compare=False)
    words: Wording = field(default=ENGLISH, repr=False, compare=False)

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest paths."""
        rule, whole, more = self.rule, self.contribution, (self.graph, self.words)
        return tuple(PathPart(p, rule, share * whole, share, *more) for p, share in self.strongest)

    @cached_property
    def text(self) -> str:
        """How the action leads to the item; "it" is the action's entity, "this" the item."""
        (path, _), *others = self.strongest
        named = [other.entities[-2] for other, _ in others]
        return evidence_sentence(self.graph, path, self.n, named, self.words)


@dataclass(frozen=True, slots=True)
class Reason:
    """An action of the user, or a fact about the user, and what it gives the item."""

    action: str
    """Such as "you bought ink"."""
    relation: int
    entity: int
    total: float
    """c_a: what it gives in all."""
    share: float
    """Of the item's lead."""
    encoder: float
    """What of it the encoder gives."""
    mean: float
    """What the rules give the mean item by it: not counted for this one."""
    evidence: tuple[Evidence, ...]
    """By rule, the largest contribution first; but of those within 10 % of the largest that comes
    first whose rule the user's history has most paths of. total = Σ of it + encoder − mean."""
    words: Wording = field(default=ENGLISH, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The reason as a sentence, with its share of the lead."""
        told, share = self.evidence_text, self.words.share(self.share)
        key = "reason_told" if told else "reason"
        return self.words.text(key, action=self.action, share=share, told=told)

    @property
    def evidence_text(self) -> str:
        """What speaks for it, in the order of the evidence, what hardly counts left out."""
        least, told, company = SMALL * abs(self.total), list[Evidence](), False
        for e in self.evidence:
            if e.contribution >= least and not (company and is_company(e.rule)):
                told.append(e)
                company |= is_company(e.rule)  # who took both need not be counted twice
        texts = [e.text for e in told]
        if self.encoder >= least and self.encoder > 0:
            place = sum(e.contribution >= self.encoder for e in told)
            texts.insert(place, self.words.text("close"))
        return "; ".join(texts)

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest paths that begin with it, the largest contribution first; of those within
        10 % of the largest, that of the first evidence."""
        every = [part for evidence in self.evidence for part in evidence.paths]
        every.sort(key=lambda part: -part.contribution)
        near = (k for k, part in enumerate(every) if part.rule == self.evidence[0].rule)
        first = next(near, 0)
        if first and every[first].contribution >= (1 - NEAR) * every[0].contribution:
            every.insert(0, every.pop(first))
        return tuple(every)


def _row(graph: Graph, user: int) -> tuple[int, int]:
    """Where a user's edges begin, and how many there are."""
    rows: Rows = graph.rows
    lo, hi = rows.segment_starts[rows.row_segments[user : user + 2]]
    return int(lo), int(hi - lo)


@dataclass(frozen=True, eq=False)
class Strongest:
    """The strongest paths of some cells of an attribution."""

    cells: NDArray[np.int64]
    nodes: NDArray[np.int32]  # [cells, paths, 2]: the entities between the ends, -1 for none
    strengths: Doubles  # [cells, paths]
    leads: NDArray[np.bool_]  # [cells]: whether it is told first of what its edge gives


@dataclass(frozen=True, eq=False)
class Together:
    """Pairs whose shown reasons are looked up together, once those of one are asked for."""

    ranker: Ranker
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    parts: Sequence[Attribution]

    @cached_property
    def shown(self) -> list[Strongest]:
        """The strongest paths of the shown reasons, pair by pair."""
        edges = [part.shown for part in self.parts]
        return strongest(self.ranker, self.users, self.items, self.parts, edges)


def strongest(
    ranker: Ranker,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    parts: Sequence[Attribution],
    edges: Sequence[Sequence[int]],
) -> list[Strongest]:
    """The strongest paths of some of the users' edges, pair by pair."""
    rows, logic = ranker.graph.rows, ranker.logic
    chosen = [_cells_of(part, own) for part, own in zip(parts, edges, strict=True)]
    sizes = [len(own) for own in chosen]
    pair = np.repeat(np.arange(len(sizes)), sizes)
    picked = [part.cells[own, :2] for part, own in zip(parts, chosen, strict=True)]
    edge, place = np.concatenate([np.empty((0, 2), dtype=np.int64), *picked]).T
    owners, first = users[pair], rows.segment_starts[rows.row_segments[users[pair]]]
    nodes, strengths = strongest_through(
        ranker.logic_graph,
        logic.rules,
        place,
        owners,
        items[pair],
        rows.tails[first + edge],
        EVIDENCE_PATHS,
        logic.walk,
    )
    given = [part.worth[own] for part, own in zip(parts, chosen, strict=True)]
    worth = np.concatenate([np.empty(0), *given])
    group = pair * (edge.max(initial=0) + 1) + edge
    leads = leading(group, worth, lambda tied: ranker.counts_of(owners[tied], place[tied]))
    ends = np.cumsum(sizes)
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return [
        Strongest(own, nodes[span], strengths[span], leads[span])
        for own, span in zip(chosen, spans, strict=True)
    ]


def _cells_of(parts: Attribution, edges: Sequence[int]) -> NDArray[np.int64]:
    """The cells of some of the user's edges."""
    wanted = np.zeros(len(parts.actions), dtype=bool)
    wanted[list(edges)] = True
    return np.flatnonzero(wanted[parts.cells[:, 0]])


def reasons(
    ranker: Ranker,
    user: int,
    item: int,
    parts: Attribution,
    edges: Sequence[int],
    words: Wording = ENGLISH,
    known: Strongest | None = None,
) -> Iterator[Reason]:
    """The reasons that some of the user's edges are, by their places in the user's row. ``known``
    are their strongest paths, where they have been looked up already."""
    graph, lead = ranker.graph, parts.lead
    if known is None:
        (known,) = strongest(ranker, np.array([user]), np.array([item]), [parts], [edges])
    of_edge = _evidence(ranker, user, item, parts, known, words)
    rows = graph.rows
    first, _ = _row(graph, user)
    places = first + np.asarray(edges, dtype=np.int64)
    segments = np.searchsorted(rows.segment_starts, places, side="right") - 1
    kinds, entities = rows.segment_relations[segments].tolist(), rows.tails[places].tolist()
    for edge, relation, entity in zip(edges, kinds, entities, strict=True):
        total, told = float(parts.actions[edge]), of_edge.get(edge, ())
        action = action_sentence(graph, relation, entity, words)
        if _counts_as_last(graph, first + edge, relation, told):
            action = words.text("last", action=action)
        times = _times(graph, first + edge, relation)
        if times > 1:
            action = words.text("times", action=action, n=words.number(times))
        yield Reason(
            action,
            relation,
            entity,
            total,
            total / lead if lead else 0.0,
            float(parts.encoder[edge]),
            float(parts.mean_rules[edge]),
            told,
            words,
        )


def _evidence(
    ranker: Ranker, user: int, item: int, parts: Attribution, known: Strongest, words: Wording
) -> dict[int, tuple[Evidence, ...]]:
    """What edges give by each rule, in the order in which it is told."""
    rules, last = ranker.logic.rules, item + ranker.graph.n_users
    cells, worth = parts.cells[known.cells], parts.worth[known.cells]
    shares = known.strengths / parts.strengths[known.cells][:, None]
    order = np.lexsort((-worth, ~known.leads, cells[:, 0]))
    rows = (x[order].tolist() for x in (cells, worth, known.nodes, shares))
    out: dict[int, list[Evidence]] = {}
    for (edge, place, n), gives, nodes, own in zip(*rows, strict=True):
        rule = rules[place]
        hops, between = rule.relations, len(rule) - 1
        ways = tuple(
            (Path((user, *inner[:between], last), hops), share)
            for inner, share in zip(nodes, own, strict=True)
            if share > 0
        )
        out.setdefault(edge, []).append(Evidence(rule, gives, n, ways, ranker.graph, words))
    return {edge: tuple(told) for edge, told in out.items()}


def leading(
    groups: NDArray[np.integer],
    worth: Doubles,
    counts: Callable[[NDArray[np.int64]], NDArray[np.integer]],
) -> NDArray[np.bool_]:
    """Which of each group's evidence is told first, though another may give a little more: of what
    is within 10 % of the group's largest, that whose rule the user's history has most paths of.

    ``counts`` gives those numbers for some places; it is only asked where there is a choice.
    """
    out = np.zeros(len(worth), dtype=bool)
    if not len(worth):
        return out
    _, group = np.unique(groups, return_inverse=True)
    largest = np.full(group.max() + 1, -np.inf)
    np.maximum.at(largest, group, worth)
    near = (worth > 0) & (worth >= (1 - NEAR) * largest[group])
    tied = np.flatnonzero(near & (np.bincount(group[near], minlength=len(largest))[group] > 1))
    if len(tied):
        order = tied[np.lexsort((-worth[tied], -counts(tied), group[tied]))]
        out[order[np.unique(group[order], return_index=True)[1]]] = True
    return out


def _times(graph: Graph, edge: int, relation: int) -> int:
    """How often a user did something, where that is known; 1 where it is not."""
    counted = (graph.base if isinstance(graph, UserView) else graph).counted
    if relation != INTERACTION or not counted or graph.strengths is None:
        return 1
    often = float(graph.strengths[edge])
    return int(often) if often.is_integer() else 1


def _counts_as_last(graph: Graph, edge: int, relation: int, evidence: Sequence[Evidence]) -> bool:
    """Whether an action is the user's latest, and its first evidence is one of what follows."""
    if relation != INTERACTION or graph.later is None or graph.later[edge] or not evidence:
        return False
    hop = evidence[0].rule.relations[1] if len(evidence[0].rule) > 1 else INTERACTION
    return graph.relations[hop % len(graph.relations)].recency is not None
