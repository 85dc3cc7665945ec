"""The view of a user who has other interactions (docs/adr/0010), what users have (``history``),
and paths: chains of facts from a user to an item, which reasons are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError, ViewError
from loger.graph.arrays import (
    Rows,
    as_strengths,
    checked_ids,
    gather,
    later_interactions,
    relative_to_mean,
    run_starts,
)
from loger.graph.edits import fact_places, known_from, with_inverses
from loger.graph.vocabulary import INTERACTION, Relation, Schema, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph


Graph: TypeAlias = "KnowledgeGraph | UserView"
"""What can be asked about a user: the whole graph, or the view of that user."""


@dataclass(frozen=True, eq=False)
class UserView(Schema):
    """A graph in which one user has other interactions; it answers for that user alone.

    A path never returns to its user, so of the changed edges it can only take those that leave the
    user. These are the view's own ``rows``; everything else is read from ``base``. The view also
    has its own degrees and popularity, which the edges back to the user change. Facts about items
    that were known from a removed interaction alone are missing from ``others``.
    """

    base: KnowledgeGraph
    user: int
    rows: Rows  # of the user alone
    times: NDArray[np.int64] | None = None  # [the user's edges]
    gone: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Times of the interactions that were removed; 0 where they are not known."""
    strengths: NDArray[np.float64] | None = None  # [the user's edges]
    gone_strengths: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Strengths of the interactions that were removed; 0 where they are not known."""
    later_in_base: NDArray[np.int32] | None = None  # [the user's edges]
    """``later`` of ``base``, 0 for new edges."""
    dropped: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Edges of ``base`` that were known from a removed interaction alone, ascending."""

    vocabulary: Vocabulary = field(init=False)
    relations: tuple[Relation, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("vocabulary", "relations"):
            object.__setattr__(self, name, getattr(self.base, name))

    # ── what is different for the user ──────────────────────────────────────────────────

    def neighbours(self, head: int, relation: int) -> NDArray[np.int32]:
        """Where a relation leads from an entity, ascending."""
        if head == self.user:
            return self.rows.neighbours(head, relation)
        tails = self.others.neighbours(head, relation)
        if self.signature(relation)[1] != "user":
            return tails
        others: NDArray[np.int32] = tails[tails != self.user]
        if not self.has(self.user, self.inverse(relation), head):
            return others
        return np.insert(others, np.searchsorted(others, self.user), self.user)

    def has(self, head: int, relation: int, tail: int) -> bool:
        """Whether this is a fact for the user."""
        if tail == self.user:
            head, relation, tail = tail, self.inverse(relation), head
        if head != self.user:
            return self.others.edge(head, relation, tail) >= 0
        return tail in self.rows.neighbours(head, relation)

    def weight(self, head: int, relation: int, tail: int) -> float:
        """What a fact counts in a walk; 0 if it is not one."""
        if tail == self.user:
            head, relation, tail = tail, self.inverse(relation), head
        rows = self.rows if head == self.user else self.others
        edge = rows.edge(head, relation, tail)
        return 0.0 if edge < 0 else float(rows.weights[edge]) if len(rows.weights) else 1.0

    def people(self, head: int, relation: int, tail: int) -> int:
        """How many people are behind a derived fact in the graph that this is a view of."""
        return self.base.people(head, relation, tail)

    def expected(self, head: int, relation: int, tail: int) -> bool:
        """Whether a derived fact is only expected, from similar items."""
        return self.base.expected(head, relation, tail)

    @cached_property
    def others(self) -> Rows:
        """The facts of all entities but the user: those of the graph without the dropped ones. The
        segments are those of the graph, some of them shorter or empty."""
        return self.base.rows.without(self.dropped) if len(self.dropped) else self.base.rows

    @cached_property
    def shortened(self) -> NDArray[np.int64]:
        """The segments of the graph that an edge was dropped from, once for each edge."""
        return np.searchsorted(self.base.segment_starts, self.dropped, side="right") - 1

    @cached_property
    def _gained(self) -> NDArray[np.int32]:
        """By how many interactions of each item the view differs from the graph."""
        out = np.zeros(self.n_items, dtype=np.int32)
        out[self.rows.neighbours(self.user, INTERACTION) - self.n_users] += 1
        out[self.base.neighbours(self.user, INTERACTION) - self.n_users] -= 1
        return out

    @cached_property
    def popularity(self) -> NDArray[np.int64]:
        """How many interactions each item has; [items]."""
        return self.base.popularity + self._gained

    @cached_property
    def degree_table(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All degrees for look-up, as of ``KnowledgeGraph.degree_table``."""
        table, starts = self.base.degree_table
        table, back = table.copy(), starts[self.inverse(INTERACTION)] + self.n_users
        table[back : back + self.n_items] += self._gained
        table[starts[INTERACTION] + self.user] += self._gained.sum()
        heads = np.searchsorted(self.base.row_segments, self.shortened, side="right") - 1
        relations = self.base.segment_relations[self.shortened]
        np.subtract.at(table, starts[relations] + heads, 1)
        return table, starts

    @cached_property
    def max_degree(self) -> int:
        """A bound of the neighbours that any entity has under one relation."""
        own = int(np.diff(self.rows.segment_starts).max(initial=1))
        return max(own, self.base.max_degree + 1)

    @property
    def later(self) -> NDArray[np.int32] | None:
        """For each of the user's edges by an interaction or by another behaviour, how many edges of
        this relation came after it; 0 on other edges. None where times are not known.

        A removed interaction still happened: it no longer supports any item, but those before it
        get no younger. So what one action contributes does not depend on which others are left.
        """
        return None if self._ages is None else self._ages[0]

    @property
    def later_than_gone(self) -> NDArray[np.int32]:
        """How many interactions came after each of those that were removed; 0 where times are not
        known."""
        return np.zeros(len(self.gone), np.int32) if self._ages is None else self._ages[1]

    @cached_property
    def _ages(self) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
        if self.times is None:
            return None
        known, times = len(self.times), np.append(self.times, self.gone)
        n = len(self.rows.neighbours(self.user, INTERACTION))
        edges = np.append(np.arange(n), np.arange(known, len(times)))
        ages = later_interactions(times, edges, np.zeros_like(edges))
        if self.later_in_base is not None:  # a view changes interactions, no other behaviour
            ages[n:known] = self.later_in_base[n:]
        return ages[:known], ages[known:]

    def relative_strengths(self, power: float) -> NDArray[np.float64] | None:
        """How much each of the user's edges counts by its strength; see ``KnowledgeGraph``.

        The mean is over everything that the user ever did, so what one action contributes does not
        depend on which others are left.
        """
        found = self._relative(power)
        return None if found is None else found[: len(self.rows.tails)]

    def gone_relative(self, power: float) -> NDArray[np.float64]:
        """How much each removed interaction counts by its strength."""
        found = self._relative(power)
        return np.ones(len(self.gone)) if found is None else found[len(self.rows.tails) :]

    def _relative(self, power: float) -> NDArray[np.float64] | None:
        if self.strengths is None or not power:
            return None
        n, known = len(self.rows.neighbours(self.user, INTERACTION)), len(self.rows.tails)
        out = np.ones(known + len(self.gone_strengths))
        places = np.append(np.arange(n), np.arange(known, len(out)))
        every = np.append(self.strengths[:n], self.gone_strengths)
        out[places] = relative_to_mean(every, np.zeros(len(every), np.int64), power)
        return out

    def __repr__(self) -> str:
        return f"UserView(user {self.user} of {self.base!r})"

    if not TYPE_CHECKING:  # to a type checker these attributes do not exist

        def __getattr__(self, name: str) -> Any:
            if (
                name == "base"
                or name.startswith("__")
                or not (hasattr(type(self.base), name) or name in vars(self.base))
            ):
                raise AttributeError(f"a UserView has no attribute {name!r}")
            raise ViewError(
                f"{name} needs the whole graph, but a view has only one user's edges; use its base"
            )


def user_view(
    graph: KnowledgeGraph,
    user: int,
    remove: Sequence[int] = (),
    add: Sequence[int] = (),
    times: Sequence[int] | None = None,
    strengths: Sequence[float] | None = None,
) -> UserView:
    """The view of a user who has other interactions.

    The user's paths, and so the scores, are those of ``without_interactions(…).plus(…)``, but
    nothing is copied.
    """
    (user,) = checked_ids(user, graph.n_users, "user").tolist()
    wanted, first = np.unique(checked_ids(add, graph.n_items, "item"), return_index=True)
    items = checked_ids(remove, graph.n_items, "item") + graph.n_users
    owner = np.full_like(items, user)
    gone = fact_places(graph, owner, np.full_like(items, INTERACTION), items)
    again = np.isin(graph.tails[gone] - graph.n_users, wanted)  # that did not go
    lost = np.zeros(len(gone), np.int64) if graph.times is None else graph.times[gone]
    weak = np.zeros(len(gone)) if graph.strengths is None else graph.strengths[gone]
    dropped = with_inverses(graph, known_from(graph, owner, items))
    edges = np.arange(graph.indptr[user], graph.indptr[user + 1])
    edges = np.setdiff1d(edges, np.append(gone, dropped))
    relations = graph.segment_relations[np.searchsorted(graph.segment_starts, edges, "right") - 1]
    new = ~np.isin(wanted + graph.n_users, graph.tails[edges[relations == INTERACTION]])
    added, first = wanted[new] + graph.n_users, first[new]
    relation = np.append(np.full(len(added), INTERACTION, dtype=np.uint16), relations)
    tail = np.append(added.astype(np.int32), graph.tails[edges])
    order = np.lexsort((tail, relation))
    starts = np.flatnonzero(run_starts(relation[order]))
    row_segments = np.zeros(graph.n_users + 1, dtype=np.int64)
    row_segments[user + 1 :] = len(starts)
    origins = graph.rows.origins
    if len(origins):
        origins = np.append(np.full(len(added), -1, np.int32), origins[edges])[order]
    weights = graph.rows.weights
    if len(weights):
        weights = np.append(np.ones(len(added), np.float32), weights[edges])[order]
    when = aged = None
    if graph.times is not None and graph.later is not None:
        aged = np.append(np.zeros(len(added), np.int32), graph.later[edges])[order]
        last = np.full(len(added), graph.times.max(initial=0) + 1)
        new_times = last if times is None else np.asarray(times, dtype=np.int64)[first]
        when = np.append(new_times, graph.times[edges])[order]
    strong = None
    if graph.strengths is not None:
        added_strengths = (
            np.full(len(add), graph.default_strength) if strengths is None else strengths
        )
        strong = np.append(as_strengths(added_strengths)[first], graph.strengths[edges])[order]
    segment_starts = np.append(starts, len(order))
    arrays = (row_segments, relation[order][starts], segment_starts, tail[order])
    rows = Rows(*arrays, origins, weights)
    left = lost[~again], strong, weak[~again], aged, dropped
    return UserView(graph, user, rows.read_only(), when, *left)


def whole(graph: Graph) -> KnowledgeGraph:
    """The graph itself; an error if it is the view of a user."""
    if isinstance(graph, UserView):
        raise ViewError("this needs the whole graph, not the view of a user; use the view's base")
    return graph


def checked_users(graph: Graph, users: ArrayLike) -> NDArray[np.int64]:
    """Users by number; an error if one is not in the graph, or not the user of the view."""
    found = checked_ids(users, graph.n_users, "user")
    if isinstance(graph, UserView) and (found != graph.user).any():
        raise LogerError(
            f"this is the view of user {graph.user}, got user {found[found != graph.user][0]}; "
            f"for other users, use the whole graph (view.base)"
        )
    return found


@dataclass(frozen=True, slots=True)
class Path:
    """Entities e0 … ej and the relations between them, by number."""

    entities: tuple[int, ...]
    relations: tuple[int, ...]  # one fewer than entities

    def __len__(self) -> int:
        return len(self.relations)

    @property
    def edges(self) -> tuple[tuple[int, int, int], ...]:
        """The facts (head, relation, tail) of the path, as they are walked."""
        hops = zip(pairwise(self.entities), self.relations, strict=True)
        return tuple((head, relation, tail) for (head, tail), relation in hops)

    def exists(self, graph: Graph) -> bool:
        """Whether every edge is a fact of the graph, or of the user's view of it."""
        return all(graph.has(*edge) for edge in self.edges)

    def is_simple(self) -> bool:
        """Whether no entity comes twice (METHOD L2)."""
        return len(set(self.entities)) == len(self.entities)

    def text(self, graph: Graph) -> str:
        """The path in names: ann –purchase→ Ink –purchase⁻¹→ ben."""
        labels = graph.vocabulary.shown
        hops = (f" –{graph.relation_name(r)}→ {labels[t]}" for _, r, t in self.edges)
        return labels[self.entities[0]] + "".join(hops)


def history_edges(graph: Graph, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, place in ``graph.rows.tails``)."""
    users = checked_users(graph, users)
    rows = graph.rows
    # The interaction is relation 0, so it is the first segment of a user's row, if any.
    segments = rows.row_segments[users]
    has = segments < rows.row_segments[users + 1]
    has[has] = rows.segment_relations[segments[has]] == INTERACTION
    starts = np.where(has, rows.segment_starts[segments], 0)
    sizes = np.where(has, rows.segment_starts[segments + has] - starts, 0)
    return gather(starts, sizes)


def history(graph: Graph, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The interactions of some users as (place among them, item)."""
    owners, edges = history_edges(graph, users)
    return owners, graph.rows.tails[edges].astype(np.int64) - graph.n_users


def barred(graph: Graph, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The items that users have or dislike, which are never recommended to them, as (place among
    the users, item)."""
    owners, items = history(graph, users)
    negative = [k for k, relation in enumerate(graph.relations) if relation.negative]
    if not negative:
        return owners, items
    found = [
        graph.neighbours(int(user), k).astype(np.int64) - graph.n_users
        for user in np.asarray(users).ravel()
        for k in negative
    ]
    more = np.repeat(np.arange(len(found)) // len(negative), [len(own) for own in found])
    return np.append(owners, more), np.concatenate([items, *found])
