"""The graph as one user sees it who has other interactions (docs/adr/0010)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError, ViewError
from loger.graph.arrays import changes, checked_ids
from loger.graph.edits import find_edge
from loger.graph.rows import Rows, later_interactions
from loger.graph.vocabulary import INTERACTION, Relation, Vocabulary

if TYPE_CHECKING:
    from loger.graph.graph import KnowledgeGraph

Graph: TypeAlias = "KnowledgeGraph | UserView"
"""What can be asked about a user: the whole graph, or the view of that user."""


@dataclass(frozen=True, eq=False)
class UserView:
    """A graph in which one user has other interactions; it answers for that user alone.

    A path never comes back to its user, so of the edges that change it can take only those that
    leave the user. These are the view's own ``rows``; everything else is read from ``base``. What
    the edges back to the user change, degrees and popularity, is counted here as well.
    """

    base: KnowledgeGraph
    user: int
    rows: Rows  # of the user alone
    times: NDArray[np.int64] | None = None  # [the user's edges]

    # ── what the graph says ─────────────────────────────────────────────────────────────

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the graph."""
        return self.base.vocabulary

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The base relations of the graph."""
        return self.base.relations

    @property
    def n_entities(self) -> int:
        """How many entities there are, of all types."""
        return self.base.n_entities

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return self.base.n_users

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return self.base.n_items

    def inverse(self, relation: int) -> int:
        """The number of the inverse relation."""
        return self.base.inverse(relation)

    def relation_name(self, relation: int) -> str:
        """The name of a relation or inverse relation."""
        return self.base.relation_name(relation)

    def relation_id(self, name: str) -> int:
        """The number of a relation by its name."""
        return self.base.relation_id(name)

    def signature(self, relation: int) -> tuple[str, str]:
        """The types that a relation or inverse relation leads from and to."""
        return self.base.signature(relation)

    # ── what is different for the user ──────────────────────────────────────────────────

    def neighbours(self, head: int, relation: int) -> NDArray[np.int32]:
        """Where a relation leads from an entity, ascending."""
        if head == self.user:
            return self.rows.neighbours(head, relation)
        tails = self.base.neighbours(head, relation)
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
            return self.base.has(head, relation, tail)
        return tail in self.rows.neighbours(head, relation)

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
        return table, starts

    @cached_property
    def max_degree(self) -> int:
        """A bound of the neighbours that any entity has under one relation."""
        own = int(np.diff(self.rows.segment_starts).max(initial=1))
        return max(own, self.base.max_degree + 1)

    @cached_property
    def later(self) -> NDArray[np.int32] | None:
        """For each of the user's edges by an interaction, how many interactions came after it;
        0 on other edges. None where times are not known."""
        if self.times is None:
            return None
        edges = np.arange(len(self.rows.neighbours(self.user, INTERACTION)))
        return later_interactions(self.times, edges, np.zeros_like(edges))

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
                f"{name} needs the whole graph; a view has the edges of one user alone, "
                f"use its base"
            )


def user_view(
    graph: KnowledgeGraph,
    user: int,
    remove: Sequence[int] = (),
    add: Sequence[int] = (),
    times: Sequence[int] | None = None,
) -> UserView:
    """The graph as a user sees it who has other interactions."""
    (user,) = checked_ids(user, graph.n_users, "user").tolist()
    if len(remove) and graph.origins is not None:  # other facts may go with an interaction
        less = graph.without_interactions([user] * len(remove), remove)
        return user_view(less, user, (), add, times)
    wanted, first = np.unique(checked_ids(add, graph.n_items, "item"), return_index=True)
    gone = [
        find_edge(graph, user, INTERACTION, v + graph.n_users)[0]
        for v in checked_ids(remove, graph.n_items, "item").tolist()
    ]
    edges = np.arange(graph.indptr[user], graph.indptr[user + 1])
    edges = np.setdiff1d(edges, np.array(gone, dtype=np.int64), assume_unique=True)
    relations = graph.segment_relations[np.searchsorted(graph.segment_starts, edges, "right") - 1]
    new = ~np.isin(wanted + graph.n_users, graph.tails[edges[relations == INTERACTION]])
    added, first = wanted[new] + graph.n_users, first[new]
    relation = np.append(np.full(len(added), INTERACTION, dtype=np.uint16), relations)
    tail = np.append(added.astype(np.int32), graph.tails[edges])
    order = np.lexsort((tail, relation))
    starts = np.flatnonzero(changes(relation[order]))
    row_segments = np.zeros(graph.n_users + 1, dtype=np.int64)
    row_segments[user + 1 :] = len(starts)
    origins = graph.rows.origins
    if len(origins):
        origins = np.append(np.full(len(added), -1, np.int32), origins[edges])[order]
    when = None
    if graph.times is not None:
        last = np.full(len(added), graph.times.max(initial=0) + 1)
        new_times = last if times is None else np.asarray(times, dtype=np.int64)[first]
        when = np.append(new_times, graph.times[edges])[order]
    segment_starts = np.append(starts, len(order))
    rows = Rows(row_segments, relation[order][starts], segment_starts, tail[order], origins)
    return UserView(graph, user, rows.read_only(), when)


def whole(graph: Graph) -> KnowledgeGraph:
    """The graph itself, or an error if it is the view of a user."""
    if isinstance(graph, UserView):
        raise ViewError("this needs the whole graph, not the view of a user; use the view's base")
    return graph


def checked_users(graph: Graph, users: ArrayLike) -> NDArray[np.int64]:
    """Users by number, or an error if one is not in the graph, or not the one of the view."""
    found = checked_ids(users, graph.n_users, "user")
    if isinstance(graph, UserView) and (found != graph.user).any():
        raise LogerError(
            f"the graph is as user {graph.user} sees it, got user {found[found != graph.user][0]}; "
            f"ask about others in its base"
        )
    return found
