"""Reasons: a user's actions with their contributions, their evidence, and both in words.

``by_action`` computes what an action contributes, and ``groups`` chooses the reasons to show. This
module looks up their strongest paths and puts them in the order in which people read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.explain.by_action import Attribution
from loger.explain.groups import Cell, candidates, people_behind, reason_groups, sayable
from loger.graph import INTERACTION, Graph, Path, UserView
from loger.graph.arrays import Doubles
from loger.grounding import strongest_paths
from loger.ranking.ranker import Ranker
from loger.rules import Rule
from loger.rules.sentences import (
    BRIEF,
    TILE,
    about,
    action_about,
    action_sentence,
    actions_sentence,
    each_sentence,
    evidence_sentence,
    is_company,
    opening,
    path_sentence,
    shortened,
    tile,
)
from loger.rules.wording import ENGLISH, FEW, Wording

EVIDENCE_PATHS = 3
"""Number of paths to look up for an action and a rule."""
NEAR, SMALL = 0.1, 0.05
"""Evidence that contributes up to NEAR less than the largest may come first. Evidence that carries
less than SMALL of its reason is not put into words."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """What one path adds to a score."""

    path: Path
    rule: Rule
    contribution: float
    share: float
    """Its share of its rule's contribution; in a reason, of the rule's contribution by that
    action."""
    graph: Graph = field(repr=False, compare=False)
    words: Wording = field(default=ENGLISH, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The path as a sentence."""
        return path_sentence(self.graph, self.path, self.words)


@dataclass(frozen=True)
class Evidence:
    """What an action contributes by one rule."""

    rule: Rule
    contribution: float
    n: int
    """Number of paths of the rule that begin with the action."""
    ends: tuple[int, int]
    """The user and the item."""
    between: Sequence[Sequence[int]]
    """For each of the strongest paths, the entities between the ends, padded with -1."""
    shares: Sequence[float]
    """For each of them, its share of the contribution; 0 if there is no such path."""
    graph: Graph = field(repr=False, compare=False)
    words: Wording = field(default=ENGLISH, repr=False, compare=False)

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest paths."""
        rule, whole, more = self.rule, self.contribution, (self.graph, self.words)
        return tuple(
            PathPart(self._path(k), rule, share * whole, share, *more)
            for k, share in enumerate(self.shares)
            if share > 0
        )

    @cached_property
    def text(self) -> str:
        """How the action leads to the item. "It" is the action's entity, "this" the item."""
        return evidence_sentence(self.graph, self._path(0), self.n, self._others, self.words)

    @property
    def people(self) -> int:
        """Number of people behind a derived relation; 0 for any other evidence."""
        return self.graph.people(*self._path(0).edges[1]) if self.rule.derived else 0

    @property
    def window(self) -> int:
        """How many places apart in their histories these people have the two items at most; 0 if
        the distance doesn't matter."""
        if not self.rule.derived:
            return 0
        relation = self.graph.relations[self.rule.relations[1] % len(self.graph.relations)]
        return relation.window or 0

    def said(self, words: Wording) -> Evidence:
        """The same evidence in another wording."""
        return replace(self, words=words)

    def opening(self, name: str) -> str | None:
        """The evidence as the start of a sentence that names the action's item; None if the action
        has to be named first."""
        return opening(self.graph, self._path(0), self.n, self._others, name, self.words)

    def tile(self, brief: str) -> str | None:
        """The evidence in a few words; None if only the action can be named."""
        return tile(self.graph, self._path(0), self.n, brief, self.words)

    @property
    def _others(self) -> list[int]:
        """The entity before the item on each path but the strongest."""
        before = len(self.rule) - 2
        others = zip(self.between[1:], self.shares[1:], strict=True)
        return [entities[before] for entities, share in others if share > 0]

    def _path(self, k: int) -> Path:
        (user, item), relations = self.ends, self.rule.relations
        return Path((user, *self.between[k][: len(relations) - 1], item), relations)


@dataclass(frozen=True)
class SharedEvidence(Evidence):
    """What the actions of a group contribute by one rule, with the strongest of all their paths."""

    holds: bool = False
    """Whether it holds for each action: all share the fact on the first path, lead to the item by
    the same relation, or have enough people behind them."""
    least: int = 0
    """The smallest number of people behind one of the actions; 0 if the rule counts no people."""

    @classmethod
    def of(cls, parts: Sequence[Evidence], actions: int) -> SharedEvidence:
        """Merge the evidence of a group's actions by one rule; ``actions`` is the size of the
        group."""
        rule, graph = parts[0].rule, parts[0].graph
        whole, everywhere = sum(part.contribution for part in parts), len(parts) == actions
        ends = [(part, (part.between[0][0], part.ends[1])) for part in parts]
        holds = all(sayable(graph, rule, part.n, both) for part, both in ends)
        least = min(people_behind(graph, rule, part.n, both) for part, both in ends)
        found = [
            [(part.contribution * share, list(nodes))
             for nodes, share in zip(part.between, part.shares, strict=True) if share > 0]
            for part in parts
        ]  # fmt: skip
        paths, fact = [path for own in found for path in own], -1
        if rule.shares_fact:
            facts = set.intersection(*({nodes[1] for _, nodes in own} for own in found))
            gives = {fact: sum(c for c, nodes in paths if nodes[1] == fact) for fact in facts}
            fact, holds = max(gives, key=gives.__getitem__, default=-1), bool(facts)
        paths.sort(key=lambda path: (path[1][1] != fact, -path[0]))
        return cls(
            rule=rule,
            contribution=whole,
            n=sum(part.n for part in parts),
            ends=parts[0].ends,
            between=[nodes for _, nodes in paths[:EVIDENCE_PATHS]],
            shares=[c / whole if whole > 0 else 0.0 for c, _ in paths[:EVIDENCE_PATHS]],
            graph=graph,
            words=parts[0].words,
            holds=everywhere and holds,
            least=least,
        )

    @property
    def text(self) -> str:
        """What holds for each action, or else the rule in words."""
        if not self.holds:
            return self.rule.sentence(self.words)
        return each_sentence(self.graph, self._path(0), self.least, self.words)

    @property
    def people(self) -> int:
        """The smallest number of people behind one of the actions, for a derived relation."""
        return self.least if self.rule.derived else 0

    def opening(self, name: str) -> str | None:
        """None: a grouped reason always names its actions first."""
        return None

    def tile(self, brief: str) -> str | None:
        """The evidence in a few words, with the number of actions."""
        short = tile(self.graph, self._path(0), max(self.least, 1), brief, self.words)
        if short is None or not self.rule.shares_fact:
            return short
        like = self.words.tile("like", about=brief)
        return shortened(short, TILE - len(like)) + like


@dataclass(frozen=True, slots=True)
class Reason:
    """A user's action, or a fact about the user, with its contribution to the item; or a group of
    actions that share their evidence, with their total contribution."""

    action: str
    """Such as "you bought ink"."""
    relation: int
    entity: int
    total: float
    """c_a: its whole contribution."""
    share: float
    """Its share of the item's lead."""
    confidence: float
    """How likely it is the cause, if the user takes the item for a single reason."""
    encoder: float
    """The encoder's part of the total."""
    sequence: float
    """The sequence encoder's part: people who had it went on to things like this."""
    mean: float
    """What the rules contribute to the mean item by it, which is subtracted."""
    evidence: tuple[Evidence, ...]
    """By rule, the largest contribution first; among those within 10% of it, the one whose rule
    occurs most in the user's history. total = Σ contributions + encoder + sequence − mean."""
    words: Wording = field(default=ENGLISH, repr=False, compare=False)
    about: str = ""
    """The action's item as a sentence names it, such as "your ink"; empty if it isn't an item."""
    brief: str = ""
    """The same as a tile names it."""
    brief_action: str = ""
    """The action as a tile names it."""
    name: str = ""
    """The ID of the action's entity, such as an item's."""
    members: tuple[Reason, ...] = ()
    """The actions of a group, the largest total first; empty for a single action. A group's
    relation, entity and name are those of its first action."""

    def text(self, style: str | None = None) -> str:
        """The reason in a style ("tile", "sentence" or "debug"; by default that of its wording)."""
        words = self.words if style is None else self.words.styled(style)
        if words.style == "tile":
            return shortened(words.line(self._tile(words)), TILE)
        told = [self._clause(e, words) for e in self._told]
        opened = None if words.debug or not self._told else self._opening(words)
        if opened is not None:
            return words.line("; ".join([opened, *told[1:]]))
        key = "reason_told" if told else "reason"
        # A share below 0% or above 100% says little: other actions count against the item.
        fits = 0 <= self.share <= 1
        share = words.share(self.share) if fits else words.text("others_against")
        text = words.text(key, action=self.action, share=share, told="; ".join(told))
        return words.line(text)

    @property
    def evidence_text(self) -> str:
        """The evidence in words, without what hardly counts."""
        return "; ".join(self._clause(e, self.words) for e in self._told)

    def _clause(self, evidence: Evidence | str, words: Wording) -> str:
        if not isinstance(evidence, str):
            return evidence.said(words).text
        return words.text(f"{evidence}_each" if self.members else evidence)

    def _each_by(self, encoder: str) -> bool:
        """Whether each action of a group contributes by an encoder ("close" or "next")."""
        return all((m.encoder if encoder == "close" else m.sequence) > 0 for m in self.members)

    def _opening(self, words: Wording) -> str | None:
        """The first clause, if it can name the action's item itself; else None."""
        first = self._told[0]
        if not isinstance(first, str):
            return first.said(words).opening(self.about)
        return words.text(f"{first}_as", about=self.about) if self.about else None

    def _tile(self, words: Wording) -> str:
        first: Evidence | str | None = self._told[0] if self._told else None
        if first is None and words.impersonal:
            first = "close"
        if isinstance(first, str):
            short = words.tile(first, about=self.brief) if self.brief else None
        else:
            short = None if first is None else first.said(words).tile(self.brief)
        return short or words.tile("action", action=self.brief_action)

    @property
    def _told(self) -> list[Evidence | str]:
        """The evidence to put into words, in order, without what hardly counts. "close" stands for
        the encoder, "next" for the sequence encoder."""
        least, told, company = SMALL * abs(self.total), list[Evidence](), False
        for e in self.evidence:
            if isinstance(e, SharedEvidence) and not e.holds:
                continue
            if e.contribution >= least and not (company and is_company(e.rule)):
                told.append(e)
                company |= is_company(e.rule)  # don't count people who took both twice
        worth = [e.contribution for e in told]
        out: list[Evidence | str] = [*told]
        for kind, given in (("close", self.encoder), ("next", self.sequence)):
            if given >= least and given > 0 and self._each_by(kind):
                place = sum(value >= given for value in worth)
                out.insert(place, kind)
                worth.insert(place, given)
        return out

    @property
    def paths(self) -> tuple[PathPart, ...]:
        """The strongest paths that begin with it, the largest contribution first; among those
        within 10% of it, a path of the first evidence."""
        every = [part for evidence in self.evidence for part in evidence.paths]
        every.sort(key=lambda part: -part.contribution)
        near = (k for k, part in enumerate(every) if part.rule == self.evidence[0].rule)
        first = next(near, 0)
        if first and every[first].contribution >= (1 - NEAR) * every[0].contribution:
            every.insert(0, every.pop(first))
        return tuple(every)


Strongest = list[Cell]
"""The cells of some of a pair's edges: edge by edge, in the order in which people read them."""


class Shown(NamedTuple):
    """A pair's shown reasons."""

    groups: list[tuple[int, ...]]
    """The edges of each reason, the largest reason first."""
    cells: Strongest
    """Of these edges."""


@dataclass(frozen=True, eq=False)
class Together:
    """Pairs whose shown reasons are looked up together, on the first request for one of them."""

    ranker: Ranker
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    parts: Sequence[Attribution]

    @cached_property
    def shown(self) -> list[Shown]:
        """The shown reasons with their strongest paths, pair by pair."""
        edges = [candidates(part) for part in self.parts]
        found = _strongest(self.ranker, self.users, self.items, self.parts, edges)
        out = []
        for item, part, own, cells in zip(self.items, self.parts, edges, found, strict=True):
            groups = reason_groups(self.ranker, int(item), part, own, cells)
            kept = {edge for group in groups for edge in group}
            out.append(Shown(groups, [cell for cell in cells if cell.edge in kept]))
        return out


def _strongest(
    ranker: Ranker,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    parts: Sequence[Attribution],
    edges: Sequence[Sequence[int]],
) -> list[Strongest]:
    """For each pair, the strongest paths of some of the user's edges."""
    rows, logic = ranker.graph.rows, ranker.logic
    chosen = [_cells_of(part, own) for part, own in zip(parts, edges, strict=True)]
    ends = np.cumsum([0, *map(len, chosen)])
    pair = np.repeat(np.arange(len(chosen)), np.diff(ends))
    own = [(part, cells) for part, cells in zip(parts, chosen, strict=True) if len(cells)]
    if not own:
        return [[] for _ in chosen]
    edge, place, n = np.concatenate([part.cells[cells] for part, cells in own]).T
    worth = np.concatenate([part.worth[cells] for part, cells in own])
    whole = np.concatenate([part.strengths[cells] for part, cells in own])
    owners, first = users[pair], rows.segment_starts[rows.row_segments[users[pair]]]
    firsts = rows.tails[first + edge]
    nodes, strengths = strongest_paths(
        ranker.logic_graph, logic.rules, place, owners, items[pair], EVIDENCE_PATHS,
        logic.walk, firsts,
    )  # fmt: skip
    group = pair * (edge.max() + 1) + edge
    leads = leading(group, worth, lambda tied: ranker.counts_of(owners[tied], place[tied]))
    order = np.lexsort((-worth, ~leads, group))
    columns = edge, place, n, worth, nodes, strengths / whole[:, None]
    told = list(map(Cell, *(column[order].tolist() for column in columns)))
    return [told[lo:hi] for lo, hi in pairwise(ends.tolist())]


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
    """The reasons that some of the user's edges make.

    ``edges`` are their places in the user's row; ``known`` holds their strongest paths if they are
    already looked up.
    """
    graph, lead = ranker.graph, parts.lead
    if known is None:
        (known,) = _strongest(ranker, np.array([user]), np.array([item]), [parts], [edges])
    of_edge = _evidence(ranker, user, item, known, words)
    first = graph.rows.span(user).start
    relations, tails = (column.tolist() for column in graph.rows.facts(user))
    for edge in edges:
        relation, entity = relations[edge], tails[edge]
        total, told = float(parts.actions[edge]), of_edge.get(edge, ())
        action = action_sentence(graph, relation, entity, words)
        if _counts_as_last(graph, first + edge, relation, told):
            action = words.text("last", action=action)
        times = _times(graph, first + edge, relation)
        if times >= (2 if words.debug else FEW):
            action = words.text("times", action=action, n=words.number(times))
        yield Reason(
            action=action,
            relation=relation,
            entity=entity,
            name=graph.vocabulary.names[entity],
            total=total,
            share=total / lead if lead else 0.0,
            confidence=float(parts.confidences[edge]),
            encoder=float(parts.encoder[edge]),
            sequence=float(parts.sequence[edge]),
            mean=float(parts.mean_rules[edge]),
            evidence=told,
            words=words,
            about=about(graph, relation, entity, words),
            brief=about(graph, relation, entity, words, BRIEF),
            brief_action=action_sentence(graph, relation, entity, words, BRIEF),
        )


def grouped(members: Sequence[Reason], graph: Graph) -> Reason:
    """Several actions as one reason; a single action stays as it is."""
    first, words = members[0], members[0].words
    if len(members) == 1:
        return first
    by_rule: dict[Rule, list[Evidence]] = {}
    for evidence in (e for member in members for e in member.evidence):
        by_rule.setdefault(evidence.rule, []).append(evidence)
    merged = [SharedEvidence.of(parts, len(members)) for parts in by_rule.values()]
    entities = [member.entity for member in members]
    brief = words.text("from_history", n=words.number(len(members)))
    return replace(
        first,
        **{name: sum(getattr(member, name) for member in members) for name in _SUMMED},
        action=actions_sentence(graph, entities, words),
        evidence=tuple(sorted(merged, key=lambda part: -part.contribution)),
        about="",
        brief=brief,
        brief_action=action_about(graph, INTERACTION, brief, words),
        members=tuple(members),
    )


_SUMMED = ("total", "share", "confidence", "encoder", "sequence", "mean")
"""The numbers of a group that are sums over its actions."""


def _evidence(
    ranker: Ranker, user: int, item: int, known: Strongest, words: Wording
) -> dict[int, tuple[Evidence, ...]]:
    """The evidence of each edge, in the order in which people read it."""
    rules, graph = ranker.logic.rules, ranker.graph
    ends = user, item + graph.n_users
    out: dict[int, list[Evidence]] = {}
    for edge, place, n, gives, between, shares in known:
        part = Evidence(rules[place], gives, n, ends, between, shares, graph, words)
        out.setdefault(edge, []).append(part)
    return {edge: tuple(told) for edge, told in out.items()}


def leading(
    groups: NDArray[np.integer],
    worth: Doubles,
    counts: Callable[[NDArray[np.int64]], NDArray[np.integer]],
) -> NDArray[np.bool_]:
    """Mark the evidence that comes first in each group, if there is a choice.

    Among the evidence within 10% of the group's largest, it is the one whose rule occurs most in
    the user's history, because that is most like what the user did before. ``counts`` returns the
    number of such paths for some places, and is only called if there is a choice.
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
    """How often a user did something; 1 if that isn't known."""
    counted = (graph.base if isinstance(graph, UserView) else graph).counted
    if relation != INTERACTION or not counted or graph.strengths is None:
        return 1
    often = float(graph.strengths[edge])
    return int(often) if often.is_integer() else 1


def _counts_as_last(graph: Graph, edge: int, relation: int, evidence: Sequence[Evidence]) -> bool:
    """Whether an action is the user's latest and its first evidence depends on recency."""
    if relation != INTERACTION or graph.later is None or graph.later[edge] or not evidence:
        return False
    hop = evidence[0].rule.relations[1] if len(evidence[0].rule) > 1 else INTERACTION
    return graph.relations[hop % len(graph.relations)].recency is not None
