"""The knowledge graph: typed entities and relations, every relation with its inverse.

Entities are numbered users | items | others, contiguous per type. Base relations are
0 … R-1, relation 0 is the interaction r_ui that we predict, and r + R is the inverse of r.
Everything below the border works on these numbers; names are for people.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError, UnknownNameError

Ints = NDArray[np.integer]
INTERACTION = 0
"""The number of r_ui, the relation to predict, in every graph."""

INVERSE_MARK = "⁻¹"

BITMAP_EDGES = 64
"""Segments up to this length are never kept as bitmaps: scanning them is as fast."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A base relation with the one type of its heads and the one type of its tails."""

    name: str
    head_type: str
    tail_type: str


class Vocabulary:
    """Which entities exist, by type: names that identify, labels that people read.

    >>> words = Vocabulary({"user": ["ann"], "item": ["i1", "i2"], "brand": ["Acme"]})
    >>> words.id("item", "i2"), words.names[2], words.type_of(3)
    (2, 'i2', 'brand')
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        labels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if tuple(names)[:2] != ("user", "item"):
            raise LogerError(f"the first types must be 'user' and 'item', got {tuple(names)[:2]}")
        labels = labels or {}
        self.types: tuple[str, ...] = tuple(names)
        self.offsets: NDArray[np.int64] = np.cumsum([0] + [len(names[t]) for t in names])
        self._ends: list[int] = self.offsets[1:].tolist()
        self.names: list[str] = [name for of_type in names.values() for name in of_type]
        self.labels: list[str] = [s for t in names for s in labels.get(t, names[t])]
        if len(self.labels) != len(self.names):
            raise LogerError("every type needs as many labels as names")

    def __len__(self) -> int:
        return len(self.names)

    def span(self, entity_type: str) -> range:
        """The ids of all entities of a type."""
        k = self._place(entity_type)
        return range(int(self.offsets[k]), int(self.offsets[k + 1]))

    def type_of(self, entity: int) -> str:
        """The type of one entity."""
        return self.types[bisect_right(self._ends, entity)]

    def id(self, entity_type: str, name: str) -> int:
        """The id of a named entity; an unknown name is an error with the nearest known one."""
        ids = self.ids(entity_type)
        try:
            return ids[name]
        except KeyError:
            raise UnknownNameError(entity_type, name, ids) from None

    def ids(self, entity_type: str) -> Mapping[str, int]:
        """The ids of all entities of a type by name."""
        return self._ids_by_type[self._place(entity_type)]

    def _place(self, entity_type: str) -> int:
        try:
            return self.types.index(entity_type)
        except ValueError:
            raise UnknownNameError("entity type", entity_type, self.types) from None

    @cached_property
    def _ids_by_type(self) -> list[dict[str, int]]:
        return [{self.names[i]: i for i in self.span(t)} for t in self.types]


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """A set of facts, immutable, stored twice: by (head, relation, tail) and by (head, tail).

    The rows of the first order are cut into segments of equal relation, so that one head's
    neighbours under one relation are one slice: segment s of head h lies in
    ``row_segments[h] <= s < row_segments[h+1]``, has relation ``segment_relations[s]`` and
    neighbours ``tails[segment_starts[s]:segment_starts[s+1]]``. The second order answers
    "which relations lead from h to t" by one binary search in ``pair_tails``.

    ``origins`` guards leakage (METHOD L3): for an edge that is known from a single
    interaction (u, v) alone, it holds v on edges that leave u and u on edges that leave v.
    ``times`` holds when each interaction was, where that is known, on the edges that leave
    users; other edges of users have a time of no meaning.

    A *view* (``user_view``) holds nothing but the edges that leave its ``viewer``; from there on
    paths lead through the graph ``outside``.
    """

    vocabulary: Vocabulary
    relations: tuple[Relation, ...]
    row_segments: NDArray[np.int64]  # [entities + 1]
    segment_relations: NDArray[np.uint16]  # [segments]
    segment_starts: NDArray[np.int64]  # [segments + 1]
    tails: NDArray[np.int32]  # [edges], sorted by (head, relation, tail)
    pair_tails: NDArray[np.int32]  # [edges], sorted by (head, tail, relation)
    pair_relations: NDArray[np.uint16]  # [edges]
    origins: NDArray[np.int32] | None = None  # [edges], in the order of tails; -1 for none
    times: NDArray[np.int64] | None = None  # [users' edges], in the order of tails
    viewer: int = -1
    outside: KnowledgeGraph | None = None

    def __post_init__(self) -> None:
        # Immutable indeed; and to the kernels, arrays that are mapped and others are one type.
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    # ── building ────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_triples(
        cls,
        vocabulary: Vocabulary,
        relations: Sequence[Relation],
        heads: ArrayLike,
        relation_ids: ArrayLike,
        tails: ArrayLike,
        origins: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> KnowledgeGraph:
        """Sort triples of base relations and their inverses into a graph.

        Duplicates count once; self-loops are refused (they can be in no simple path).
        ``origins`` gives (user, item) entity ids of the one interaction that a triple is
        known from, or -1; the caller has already merged duplicates then.
        """
        h, r, t = (np.asarray(x, dtype=np.int64) for x in (heads, relation_ids, tails))
        _check_triples(vocabulary, relations, h, r, t)
        n, kinds = len(vocabulary), 2 * len(relations)
        # One integer per edge sorts far faster than three columns do. Worked on in place: with
        # ten million edges each such array takes 80 MB.
        key = np.concatenate([(h * kinds + r) * n + t, (t * kinds + r + len(relations)) * n + h])
        edge_origins = None
        if origins is None:
            key.sort()
            key = key[_changes(key)]
        else:
            key, first = np.unique(key, return_index=True)
            edge_origins = _edge_origins(h, t, *origins)[first]
        tail = (key % n).astype(np.int32)
        key //= n  # head and relation
        starts = np.flatnonzero(_changes(key))
        head, relation = np.divmod(key[starts], kinds)
        starts = np.append(starts, len(key))
        key //= kinds
        key *= n
        key += tail
        key *= kinds
        key += np.repeat(relation.astype(np.uint16), np.diff(starts))
        key.sort()
        pair_relation = (key % kinds).astype(np.uint16)
        key //= kinds
        return cls(
            vocabulary=vocabulary,
            relations=tuple(relations),
            row_segments=np.searchsorted(head, np.arange(n + 1)).astype(np.int64),
            segment_relations=relation.astype(np.uint16),
            segment_starts=starts.astype(np.int64),
            tails=tail,
            pair_tails=(key % n).astype(np.int32),
            pair_relations=pair_relation,
            origins=edge_origins,
        )

    def without(
        self, heads: Sequence[int], relation_ids: Sequence[int], tails: Sequence[int]
    ) -> KnowledgeGraph:
        """The graph less some facts, both directions of each; an absent fact is an error.

        Costs a few copies of the arrays, no sort: meant for leave-out and what-if.
        """
        self._check_whole()
        found = [
            self._find(*edge)
            for h, r, t in zip(heads, relation_ids, tails, strict=True)
            for edge in ((h, r, t), (t, self.inverse(r), h))
        ]
        if not found:
            return self
        gone = np.unique(np.array(found), axis=0)
        edge, segment, pair = gone[:, 0], gone[:, 1], np.sort(gone[:, 2])
        lost = np.bincount(segment, minlength=len(self.segment_relations))
        sizes = np.diff(self.segment_starts) - lost
        kept = sizes > 0
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        return KnowledgeGraph(
            vocabulary=self.vocabulary,
            relations=self.relations,
            row_segments=kept_before[self.row_segments],
            segment_relations=self.segment_relations[kept],
            segment_starts=np.concatenate([[0], np.cumsum(sizes[kept])]),
            tails=np.delete(self.tails, edge),
            pair_tails=np.delete(self.pair_tails, pair),
            pair_relations=np.delete(self.pair_relations, pair),
            origins=None if self.origins is None else np.delete(self.origins, edge),
            times=None
            if self.times is None
            else np.delete(self.times, edge[edge < len(self.times)]),
        )

    def plus(
        self,
        users: Sequence[int],
        items: Sequence[int],
        times: Sequence[int] | None = None,
    ) -> KnowledgeGraph:
        """The graph with some interactions more; one that is there already changes nothing.

        Users and items must be known; items are numbered from 0 among items. Where the graph
        knows times, an interaction without one is later than all others of its user. Like
        ``without`` this costs a few copies of the arrays, no sort.
        """
        self._check_whole()
        u, v = np.asarray(users, dtype=np.int64), np.asarray(items, dtype=np.int64)
        first = np.unique(u * self.n_items + v, return_index=True)[1]
        pairs = zip(u[first].tolist(), (v[first] + self.n_users).tolist(), strict=True)
        there = np.array([self.has(a, INTERACTION, b) for a, b in pairs], dtype=bool)
        first = first[~there]
        if not len(first):
            return self
        head = np.concatenate([u[first], v[first] + self.n_users])
        tail = np.concatenate([v[first] + self.n_users, u[first]])
        kind = np.repeat([INTERACTION, self.inverse(INTERACTION)], len(first))
        grown, place = self._inserted(head, kind, tail)
        if self.times is None:
            return grown
        order = np.argsort(place[: len(first)], kind="stable")
        own = place[: len(first)][order]
        when = np.asarray(times, np.int64)[first][order] if times is not None else None
        if when is None:
            when = np.full(len(own), self.times.max(initial=0) + 1, dtype=np.int64)
        return replace(grown, times=np.insert(self.times, own, when))

    def with_users(self, names: Sequence[str]) -> KnowledgeGraph:
        """The graph with some users more, who have no facts yet; the last users from now on."""
        self._check_whole()
        n, k, words = self.n_users, len(names), self.vocabulary
        known = [x for x in names if x in words.ids("user")]
        if known or len(set(names)) < k:
            raise LogerError(f"users must be new and distinct, got {(known or list(names))[:3]}")
        spans = {t: words.span(t) for t in words.types}
        of_type = {t: [words.names[i] for i in span] for t, span in spans.items()}
        labels = {t: [words.labels[i] for i in span] for t, span in spans.items()}
        of_type["user"] += names
        labels["user"] += names

        def moved(ids: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(ids >= n, ids + k, ids).astype(np.int32)

        return replace(
            self,
            vocabulary=Vocabulary(of_type, labels),
            row_segments=np.insert(self.row_segments, n, np.full(k, self.row_segments[n])),
            tails=moved(self.tails),
            pair_tails=moved(self.pair_tails),
            origins=None if self.origins is None else moved(self.origins),
        )

    def user_view(
        self,
        user: int,
        remove: Sequence[int] = (),
        add: Sequence[int] = (),
        times: Sequence[int] | None = None,
    ) -> KnowledgeGraph:
        """The graph as a user sees it who has other interactions: a view, for that user alone.

        The user's paths, and so its scores, are those of ``without_interactions(…).plus(…)``, but
        nothing is copied: a path never comes back to its user, so of the edges that change it can
        take only those that leave the user. Those that lead back count in degrees and popularity.
        """
        self._check_whole()
        if len(remove) and self.origins is not None:  # other facts may go with an interaction
            less = self.without_interactions([user] * len(remove), remove)
            return less.user_view(user, (), add, times)
        edges = np.arange(self.indptr[user], self.indptr[user + 1])
        gone = [self._find(user, INTERACTION, v + self.n_users)[0] for v in remove]
        edges = np.setdiff1d(edges, np.array(gone, dtype=np.int64), assume_unique=True)
        kinds = self.segment_relations[np.searchsorted(self.segment_starts, edges, "right") - 1]
        wanted, first = np.unique(np.asarray(add, dtype=np.int64), return_index=True)
        new = ~np.isin(wanted + self.n_users, self.tails[edges[kinds == INTERACTION]])
        added, first = wanted[new] + self.n_users, first[new]
        kind = np.append(np.full(len(added), INTERACTION, dtype=np.uint16), kinds)
        tail = np.append(added.astype(np.int32), self.tails[edges])
        order, by_pair = np.lexsort((tail, kind)), np.lexsort((kind, tail))
        starts = np.flatnonzero(_changes(kind[order]))
        rows = np.zeros(self.n_users + 1, dtype=np.int64)
        rows[user + 1 :] = len(starts)
        when = None
        if self.times is not None:
            last = np.full(len(added), self.times.max(initial=0) + 1)
            given = last if times is None else np.asarray(times, dtype=np.int64)[first]
            when = np.append(given, self.times[edges])[order]
        return replace(
            self,
            row_segments=rows,
            segment_relations=kind[order][starts],
            segment_starts=np.append(starts, len(order)),
            tails=tail[order],
            pair_tails=tail[by_pair],
            pair_relations=kind[by_pair],
            origins=None
            if self.origins is None
            else np.append(np.full(len(added), -1, np.int32), self.origins[edges])[order],
            times=when,
            viewer=user,
            outside=self,
        )

    @property
    def around(self) -> KnowledgeGraph:
        """Where paths lead on from the edges of users: for a view, the graph outside."""
        return self.outside or self

    @cached_property
    def _gained(self) -> NDArray[np.int32]:
        """By how many interactions of each item a view differs from the graph outside."""
        out = np.zeros(self.n_items, dtype=np.int32)
        out[self.neighbours(self.viewer, INTERACTION) - self.n_users] += 1
        out[self.around.neighbours(self.viewer, INTERACTION) - self.n_users] -= 1
        return out

    def _inserted(
        self, heads: Ints, relations: Ints, tails: Ints
    ) -> tuple[KnowledgeGraph, NDArray[np.int64]]:
        """The graph with directed edges more, none of them there yet, and where in ``tails``
        each goes; ``times`` are left to the caller."""
        n, kinds = self.n_entities, 2 * len(self.relations)
        of_edge = np.repeat(np.arange(n, dtype=np.int64), np.diff(self.indptr))
        segment = of_edge * kinds + np.repeat(self.segment_relations, np.diff(self.segment_starts))
        key = segment * n + self.tails
        new = (heads * kinds + relations) * n + tails
        place = np.searchsorted(key, new)
        order = np.argsort(new, kind="stable")
        segment = np.insert(segment, place[order], new[order] // n)
        starts = np.flatnonzero(_changes(segment))
        head, relation = np.divmod(segment[starts], kinds)
        pair_key = (of_edge * n + self.pair_tails) * kinds + self.pair_relations
        pairs = np.sort((heads * n + tails) * kinds + relations)
        at = np.searchsorted(pair_key, pairs)
        pair_relations = (pairs % kinds).astype(np.uint16)
        grown = replace(
            self,
            row_segments=np.searchsorted(head, np.arange(n + 1)).astype(np.int64),
            segment_relations=relation.astype(np.uint16),
            segment_starts=np.append(starts, len(segment)).astype(np.int64),
            tails=np.insert(self.tails, place[order], tails[order]),
            pair_tails=np.insert(self.pair_tails, at, pairs // kinds % n),
            pair_relations=np.insert(self.pair_relations, at, pair_relations),
            origins=None if self.origins is None else np.insert(self.origins, place[order], -1),
            times=None,
        )
        return grown, place

    def sampled(self, most: int, seed: int) -> KnowledgeGraph:
        """The graph with no more than so many neighbours of an entity under a relation.

        METHOD 4's "sample nodes", as the paper has it: where there are more, so many are
        drawn without replacement, and a fact stays if each of its ends has drawn it.
        """
        rng = np.random.default_rng([seed, 0x5A3])
        sizes = np.diff(self.segment_starts)
        drawn = np.ones(len(self.tails), dtype=bool)
        for s in np.flatnonzero(sizes > most):
            part = drawn[self.segment_starts[s] : self.segment_starts[s + 1]]
            part[rng.permutation(sizes[s])[most:]] = False
        head = np.repeat(np.arange(self.n_entities), np.diff(self.indptr))
        relation = np.repeat(self.segment_relations, sizes)
        gone = np.flatnonzero(~drawn)
        base = relation[gone] < len(self.relations)
        h = np.where(base, head[gone], self.tails[gone])
        t = np.where(base, self.tails[gone], head[gone])
        r = relation[gone].astype(np.int64) % len(self.relations)
        facts = np.unique(np.stack([h, r, t], axis=1), axis=0)
        return self.without(*facts.T.tolist()) if len(facts) else self

    def timed(self, users: Ints, items: Ints, times: Ints) -> KnowledgeGraph:
        """The graph with the times of its interactions; of a pair's several, the latest.

        Items are numbered from 0 among items, and every interaction must have a time.
        """
        of_edge = np.zeros(int(self.indptr[self.n_users]), dtype=np.int64)
        order = np.lexsort((times, items, users))
        u, v, t = users[order], items[order], np.asarray(times)[order]
        last = np.append((u[1:] != u[:-1]) | (v[1:] != v[:-1]), True)[: len(u)]
        own, _ = self.interactions
        if int(last.sum()) != len(own):
            raise LogerError(f"{int(last.sum()):,} pairs with times, {len(own):,} interactions")
        of_edge[own] = t[last]
        return replace(self, times=of_edge)

    @cached_property
    def interactions(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The interactions by user and item, as (their edges' places in ``tails``, their users)."""
        segments = np.flatnonzero(self.segment_relations == INTERACTION)
        users = np.searchsorted(self.row_segments, segments, side="right") - 1
        starts, ends = self.segment_starts[segments], self.segment_starts[segments + 1]
        sizes = ends - starts
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        edges = np.repeat(starts, sizes) + within
        return edges.astype(np.int64), np.repeat(users, sizes).astype(np.int32)

    @cached_property
    def popularity(self) -> NDArray[np.int64]:
        """How many interactions each item has; [items]."""
        if self.outside is not None:
            return self.outside.popularity + self._gained
        span = self.vocabulary.span("item")
        return self.degrees(self.inverse(INTERACTION))[span.start : span.stop]

    @cached_property
    def later(self) -> NDArray[np.int32] | None:
        """For each edge that leaves a user by an interaction, how many of the user's
        interactions came after it; 0 on other edges. None where times are not known."""
        if self.times is None:
            return None
        edges, users = self.interactions
        order = np.lexsort((-self.times[edges], users))
        user, time = users[order], self.times[edges][order]
        tied = np.concatenate([[False], (user[1:] == user[:-1]) & (time[1:] == time[:-1])])
        # Latest first; those at the same time share the place of the first of them.
        first = np.maximum.accumulate(np.where(tied, -1, np.arange(len(order))))
        place = first - np.searchsorted(user, user)
        out = np.zeros(len(self.times), dtype=np.int32)
        out[edges[order]] = place
        return out

    def without_interactions(self, users: Sequence[int], items: Sequence[int]) -> KnowledgeGraph:
        """The graph as if these interactions had never been seen.

        That takes away the interaction itself and every fact that is known from it alone.
        Items are numbered from 0 among items.
        """
        facts: list[tuple[int, int, int]] = []
        first_item = self.vocabulary.span("item").start
        for u, v in zip(users, (i + first_item for i in items), strict=True):
            facts.append((u, INTERACTION, v))
            if self.origins is not None:
                facts += self._edges_of(u, origin=v) + self._edges_of(v, origin=u)
        return self.without(*zip(*facts, strict=True)) if facts else self

    # ── looking ─────────────────────────────────────────────────────────────────────────

    @property
    def n_entities(self) -> int:
        """How many entities there are, of all types."""
        return len(self.vocabulary)

    @cached_property
    def n_users(self) -> int:
        """How many users there are; their ids are 0 … n_users - 1."""
        return len(self.vocabulary.span("user"))

    @cached_property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.vocabulary.span("item"))

    @property
    def n_triples(self) -> int:
        """How many facts there are, inverses not counted."""
        return len(self.tails) // 2

    def inverse(self, relation: int) -> int:
        """The number of the inverse relation."""
        n = len(self.relations)
        return relation - n if relation >= n else relation + n

    def relation_name(self, relation: int) -> str:
        """The name of a relation or inverse relation."""
        n = len(self.relations)
        return self.relations[relation % n].name + (INVERSE_MARK if relation >= n else "")

    def relation_id(self, name: str) -> int:
        """The number of a relation by its name, ``⁻¹`` or ``^-1`` marking an inverse."""
        plain = name.removesuffix(INVERSE_MARK).removesuffix("^-1")
        names = [r.name for r in self.relations]
        if plain not in names:
            raise UnknownNameError("relation", plain, names)
        base = names.index(plain)
        return base if plain == name else self.inverse(base)

    def signature(self, relation: int) -> tuple[str, str]:
        """The types that a relation or inverse relation leads from and to."""
        base = self.relations[relation % len(self.relations)]
        types = (base.head_type, base.tail_type)
        return types if relation < len(self.relations) else types[::-1]

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Where each entity's edges begin, in both orders; [entities + 1]."""
        return self.segment_starts[self.row_segments]

    @cached_property
    def longest(self) -> int:
        """The most neighbours that any entity has under one relation."""
        own = int(np.diff(self.segment_starts).max(initial=1))
        return own if self.outside is None else max(own, self.outside.longest + 1)

    @cached_property
    def word_spans(self) -> NDArray[np.int64]:
        """For each relation and inverse, the words [from, to) of an entity bitmap in which its
        tails' bits lie; [2 · relations, 2]."""
        ends = [self.vocabulary.span(self.signature(r)[1]) for r in range(2 * len(self.relations))]
        return np.array([(s.start >> 6, (s.stop + 63) >> 6) for s in ends], dtype=np.int64)

    @cached_property
    def bitmaps(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Long segments once more as bitmaps: (where each segment's begins or -1, words).

        A bitmap spans the relation's ``word_spans``. A segment has one if it is longer than
        that span, so the bitmap takes at most twice the memory of the segment, and two of
        them are intersected 64 entities at a time.
        """
        spans = self.word_spans[self.segment_relations]
        sizes = spans[:, 1] - spans[:, 0]
        long = np.flatnonzero(np.diff(self.segment_starts) > np.maximum(sizes, BITMAP_EDGES))
        ends = np.cumsum(sizes[long])
        starts = np.full(len(self.segment_relations), -1)
        starts[long] = ends - sizes[long]
        words = np.zeros(int(ends[-1]) if len(long) else 0, dtype=np.uint64)
        for s, end in zip(long, ends, strict=True):
            member = np.zeros(sizes[s] * 64, dtype=bool)
            tails = self.tails[self.segment_starts[s] : self.segment_starts[s + 1]]
            member[tails - (spans[s, 0] << 6)] = True
            words[end - sizes[s] : end] = np.packbits(member, bitorder="little").view(np.uint64)
        return starts, words

    @cached_property
    def degree_table(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All degrees for look-up: entity e of the right type has under relation r, or inverse
        relation r, ``table[starts[r] + e]`` neighbours."""
        if self.outside is not None:
            table, starts = self.outside.degree_table
            table, back = table.copy(), starts[self.inverse(INTERACTION)] + self.n_users
            table[back : back + self.n_items] += self._gained
            table[starts[INTERACTION] + self.viewer] += self._gained.sum()
            return table, starts
        spans = [self.vocabulary.span(self.signature(r)[0]) for r in range(2 * len(self.relations))]
        ends = np.cumsum([len(s) for s in spans])
        starts = ends - np.array([s.stop for s in spans])
        heads = np.repeat(np.arange(self.n_entities), np.diff(self.row_segments))
        table = np.zeros(int(ends[-1]), dtype=np.int32)
        table[starts[self.segment_relations] + heads] = np.diff(self.segment_starts)
        return table, starts

    def degrees(self, relation: int) -> NDArray[np.int64]:
        """How many neighbours each entity has under a relation."""
        out = np.zeros(self.n_entities, dtype=np.int64)
        of = np.flatnonzero(self.segment_relations == relation)
        heads = np.searchsorted(self.row_segments, of, side="right") - 1
        out[heads] = np.diff(self.segment_starts)[of]
        return out

    def neighbours(self, head: int, relation: int) -> NDArray[np.int32]:
        """Where a relation leads from an entity, ascending."""
        s = self.segment(head, relation)
        if s < 0:
            return self.tails[:0]
        return self.tails[self.segment_starts[s] : self.segment_starts[s + 1]]

    def between(self, head: int, tail: int) -> NDArray[np.uint16]:
        """The relations, inverse ones too, that lead from one entity to another."""
        lo, hi = self.indptr[head], self.indptr[head + 1]
        row = self.pair_tails[lo:hi]
        a, b = np.searchsorted(row, [tail, tail + 1])
        return self.pair_relations[lo + a : lo + b]

    def has(self, head: int, relation: int, tail: int) -> bool:
        """Whether this is a fact of the graph."""
        if self.outside is not None:
            if tail == self.viewer:
                head, relation, tail = tail, self.inverse(relation), head
            if head != self.viewer:
                return self.outside.has(head, relation, tail)
        return relation in self.between(head, tail)

    def triples(self) -> tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.int32]]:
        """All facts of the base relations as (heads, relations, tails), sorted."""
        self._check_whole()
        sizes = np.diff(self.segment_starts)
        relation = np.repeat(self.segment_relations, sizes)
        head = np.repeat(np.arange(self.n_entities, dtype=np.int32), np.diff(self.indptr))
        base = relation < len(self.relations)
        return head[base], relation[base], self.tails[base]

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content: names, relations, facts and their origins."""
        self._check_whole()
        digest = hashlib.sha256()
        for r in self.relations:
            digest.update(f"{r.name}\0{r.head_type}\0{r.tail_type}\n".encode())
        digest.update(repr((self.vocabulary.types, self.vocabulary.offsets.tolist())).encode())
        digest.update("\0".join(self.vocabulary.names).encode())
        for array in (self.row_segments, self.segment_relations, self.segment_starts, self.tails):
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.origins is not None:
            digest.update(self.origins.tobytes())
        if self.times is not None:
            digest.update(self.times.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"KnowledgeGraph({self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_entities:,} entities, {len(self.relations)} relations, "
            f"{self.n_triples:,} facts)"
        )

    # ── inside ──────────────────────────────────────────────────────────────────────────

    def segment(self, head: int, relation: int) -> int:
        """The segment of an entity's neighbours under a relation, or -1."""
        lo, hi = self.row_segments[head], self.row_segments[head + 1]
        s = lo + np.searchsorted(self.segment_relations[lo:hi], relation)
        return int(s) if s < hi and self.segment_relations[s] == relation else -1

    def _check_whole(self) -> None:
        if self.outside is not None:
            raise LogerError(
                "a view of a graph has the edges of one user alone; work with the graph itself"
            )

    def _find(self, head: int, relation: int, tail: int) -> tuple[int, int, int]:
        """Positions of one directed edge: in ``tails``, among segments, in ``pair_tails``."""
        s = self.segment(head, relation)
        edge = -1
        if s >= 0:
            lo, hi = self.segment_starts[s], self.segment_starts[s + 1]
            edge = int(lo + np.searchsorted(self.tails[lo:hi], tail))
            if edge == hi or self.tails[edge] != tail:
                edge = -1
        if edge < 0:
            words = self.vocabulary
            raise LogerError(
                f"the graph has no fact ({words.names[head]!r}, "
                f"{self.relation_name(relation)}, {words.names[tail]!r}) to take away"
            )
        lo, hi = self.indptr[head], self.indptr[head + 1]
        first = lo + np.searchsorted(self.pair_tails[lo:hi], tail)
        pair = first + np.searchsorted(self.between(head, tail), relation)
        return edge, s, int(pair)

    def _edges_of(self, head: int, origin: int) -> list[tuple[int, int, int]]:
        """The edges that leave an entity and are known from one interaction alone."""
        assert self.origins is not None
        lo, hi = self.indptr[head], self.indptr[head + 1]
        edges = lo + np.flatnonzero(self.origins[lo:hi] == origin)
        segments = np.searchsorted(self.segment_starts, edges, side="right") - 1
        return [
            (head, int(self.segment_relations[s]), int(self.tails[e]))
            for e, s in zip(edges, segments, strict=True)
        ]


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Whether each of some sorted values differs from the one before."""
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _edge_origins(h: Ints, t: Ints, users: ArrayLike, items: ArrayLike) -> NDArray[np.int32]:
    """The other end of the interaction that each edge, then each inverse edge, is known from."""
    user, item = (np.tile(np.asarray(x, dtype=np.int32), 2) for x in (users, items))
    head = np.concatenate([h, t])
    other = np.where(head == user, item, np.where(head == item, user, -1))
    return np.where(user < 0, -1, other).astype(np.int32)


def _check_triples(
    vocabulary: Vocabulary, relations: Sequence[Relation], h: Ints, r: Ints, t: Ints
) -> None:
    """Refuse triples that break the data model; readers have mended what can be mended."""
    if not len(h) == len(r) == len(t):
        raise LogerError(f"heads, relations, tails differ in length: {len(h)}, {len(r)}, {len(t)}")
    if (relations[INTERACTION].head_type, relations[INTERACTION].tail_type) != ("user", "item"):
        raise LogerError(f"relation 0 must lead from user to item, got {relations[0]}")
    if 2 * len(relations) > np.iinfo(np.uint16).max:
        raise LogerError(f"{len(relations):,} relations are too many; at most 32,767")
    unknown = np.flatnonzero((r < 0) | (r >= len(relations)))
    if len(unknown):
        raise LogerError(
            f"triple {int(unknown[0])}: relation numbers must lie in 0 … {len(relations) - 1}, "
            f"got {int(r[unknown[0]])}"
        )
    for ids, side in ((h, "head_type"), (t, "tail_type")):
        allowed = [vocabulary.span(getattr(relation, side)) for relation in relations]
        low = np.array([s.start for s in allowed])[r]
        high = np.array([s.stop for s in allowed])[r]
        wrong = np.flatnonzero((ids < low) | (ids >= high))
        if len(wrong):
            i = int(wrong[0])
            raise LogerError(
                f"triple {i}: {side.removesuffix('_type')} {int(ids[i])} is not of the type that "
                f"{relations[int(r[i])]} asks for"
            )
    loops = np.flatnonzero(h == t)
    if len(loops):
        raise LogerError(f"triple {int(loops[0])} is a self-loop of entity {int(h[loops[0]])}")
