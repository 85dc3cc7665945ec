"""The knowledge graph: typed entities and relations, every relation with its inverse.

Entities are numbered users | items | others, contiguous per type. Base relations are
0 … R-1, relation 0 is the interaction r_ui that we predict, and r + R is the inverse of r.
Everything below the border works on these numbers; names are for people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError
from loger.graph import edits, view
from loger.graph.arrays import (
    NO_ORIGINS,
    NO_WEIGHTS,
    Ints,
    Rows,
    gather,
    later_interactions,
    relative_to_mean,
    run_starts,
)
from loger.graph.vocabulary import INTERACTION, Relation, Schema, Vocabulary


@dataclass(frozen=True, eq=False)
class KnowledgeGraph(Schema):
    """A set of facts, immutable, stored twice: by (head, relation, tail) and by (head, tail).

    The rows of the first order are cut into segments of equal relation, so that one head's
    neighbours under one relation are one slice: segment s of head h lies in
    ``row_segments[h] <= s < row_segments[h+1]``, has relation ``segment_relations[s]`` and
    neighbours ``tails[segment_starts[s]:segment_starts[s+1]]``. The second order answers
    "which relations lead from h to t" by one binary search in ``pair_tails``.

    ``origins`` guards leakage (METHOD L3): for an edge that is known from a single
    interaction (u, v) alone, it holds v on edges that leave u and u on edges that leave v.
    ``times`` holds when each interaction or other behaviour was, where that is known, on the edges
    that leave users; it is 0 on their other edges. ``strengths`` holds in the same way how
    strong each interaction was, 0 where that is not known: amounts, or ratings if ``rated``.
    ``weights`` is what each fact counts in a walk, the same in both directions, and ``support`` how
    many people are behind a derived fact, or ``EXPECTED``.
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
    weights: NDArray[np.float32] | None = None  # [edges], in the order of tails; None: all 1
    support: NDArray[np.int32] | None = None  # [edges], in the order of tails; 0 if given
    strengths: NDArray[np.float64] | None = None  # [users' edges], in the order of tails
    rated: bool = False  # whether strengths are ratings
    counted: bool = False  # whether strengths say how often an interaction was

    sent_once = True  # an engine may keep it where its workers are: it never changes

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
            key = key[run_starts(key)]
        else:
            key, first = np.unique(key, return_index=True)
            edge_origins = _edge_origins(h, t, *origins)[first]
        tail = (key % n).astype(np.int32)
        key //= n  # head and relation
        starts = np.flatnonzero(run_starts(key))
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

    # ── other graphs ────────────────────────────────────────────────────────────────────

    # Edits are methods, too; what each does is said in ``loger.graph.edits``.
    without = edits.without
    without_interactions = edits.without_interactions
    plus = edits.plus
    with_users = edits.with_users
    sampled = edits.sampled
    timed = edits.timed
    with_times_of_behaviours = edits.with_times_of_behaviours
    strengthened = edits.strengthened
    with_derived = edits.with_derived
    user_view = view.user_view

    @property
    def given(self) -> KnowledgeGraph:
        """The graph without its derived relations, as the data have it."""
        return edits.given(self)

    # ── looking ─────────────────────────────────────────────────────────────────────────

    @property
    def n_triples(self) -> int:
        """How many facts there are, inverses not counted."""
        return len(self.tails) // 2

    @cached_property
    def rows(self) -> Rows:
        """The facts by their heads, as users' histories and compiled code are read."""
        origins = NO_ORIGINS if self.origins is None else self.origins
        arrays = (self.row_segments, self.segment_relations, self.segment_starts, self.tails)
        return Rows(*arrays, origins, NO_WEIGHTS if self.weights is None else self.weights)

    def edge_heads(self) -> NDArray[np.int32]:
        """The head of each edge, in both orders; [edges]."""
        return np.repeat(np.arange(self.n_entities, dtype=np.int32), np.diff(self.indptr))

    def edge_relations(self) -> NDArray[np.uint16]:
        """The relation of each edge, in the order of ``tails``; [edges]."""
        return np.repeat(self.segment_relations, np.diff(self.segment_starts))

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Where each entity's edges begin, in both orders; [entities + 1]."""
        return self.segment_starts[self.row_segments]

    @cached_property
    def max_degree(self) -> int:
        """The most neighbours that any entity has under one relation; at least 1."""
        return int(np.diff(self.segment_starts).max(initial=1))

    @cached_property
    def degree_table(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All degrees for look-up: entity e of the right type has under relation r, or inverse
        relation r, ``table[starts[r] + e]`` neighbours."""
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
        return self.rows.neighbours(head, relation)

    def between(self, head: int, tail: int) -> NDArray[np.uint16]:
        """The relations, inverse ones too, that lead from one entity to another."""
        lo, hi = self.indptr[head], self.indptr[head + 1]
        row = self.pair_tails[lo:hi]
        a, b = np.searchsorted(row, [tail, tail + 1])
        return self.pair_relations[lo + a : lo + b]

    def has(self, head: int, relation: int, tail: int) -> bool:
        """Whether this is a fact of the graph."""
        return relation in self.between(head, tail)

    def weight(self, head: int, relation: int, tail: int) -> float:
        """What a fact counts in a walk; 0 if it is not one."""
        edge = self.rows.edge(head, relation, tail)
        return 0.0 if edge < 0 else 1.0 if self.weights is None else float(self.weights[edge])

    def people(self, head: int, relation: int, tail: int) -> int:
        """How many people are behind a derived fact; 0 for any other."""
        edge = self.rows.edge(head, relation, tail)
        return 0 if edge < 0 or self.support is None else max(0, int(self.support[edge]))

    def expected(self, head: int, relation: int, tail: int) -> bool:
        """Whether a derived fact is only expected, from similar items: nobody was behind it."""
        edge = self.rows.edge(head, relation, tail)
        return edge >= 0 and self.support is not None and self.support[edge] == edits.EXPECTED

    def triples(self) -> tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.int32]]:
        """All facts of the base relations as (heads, relations, tails), sorted."""
        head, relation = self.edge_heads(), self.edge_relations()
        base = relation < len(self.relations)
        return head[base], relation[base], self.tails[base]

    @cached_property
    def interactions(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The interactions by user and item, as (their edges' places in ``tails``, their users)."""
        return self._edges_by(INTERACTION)

    def _edges_by(self, relation: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The edges of a relation from users, as (their places in ``tails``, their users)."""
        segments = np.flatnonzero(self.segment_relations == relation)
        users = np.searchsorted(self.row_segments, segments, side="right") - 1
        starts = self.segment_starts[segments]
        owners, edges = gather(starts, self.segment_starts[segments + 1] - starts)
        return edges, users[owners].astype(np.int32)

    @cached_property
    def popularity(self) -> NDArray[np.int64]:
        """How many interactions each item has; [items]."""
        span = self.vocabulary.span("item")
        return self.degrees(self.inverse(INTERACTION))[span.start : span.stop]

    @cached_property
    def later(self) -> NDArray[np.int32] | None:
        """For each edge that leaves a user by an interaction, or by a behaviour such as viewing,
        how many of the user's edges of this relation came after it; 0 on other edges. None where
        times are not known."""
        if self.times is None:
            return None
        out = later_interactions(self.times, *self.interactions)
        for relation in self.timed_behaviours:
            out += later_interactions(self.times, *self._edges_by(relation))
        return out

    @cached_property
    def timed_behaviours(self) -> list[int]:
        """The relations other than the interaction by which users did something to items, and of
        which the graph knows when. Dislikes are not among them: they don't fade."""
        own = [
            k
            for k, r in enumerate(self.relations)
            if k != INTERACTION
            and (r.head_type, r.tail_type) == edits.PEOPLE_AND_ITEMS
            and not (r.derived or r.negative)
        ]
        times = self.times
        return [] if times is None else [k for k in own if times[self._edges_by(k)[0]].any()]

    @property
    def default_strength(self) -> float:
        """The strength of an interaction that came without one: 1, or an unknown rating."""
        return 0.0 if self.rated else 1.0

    def relative_strengths(self, power: float) -> NDArray[np.float64] | None:
        """What each edge of users counts by its strength, 1 on average over a user's interactions,
        1 on other edges; None where strengths are not known or do not count."""
        if self.strengths is None or not power:
            return None
        if power not in self._relative:
            edges, users = self.interactions
            out = np.ones(len(self.strengths))
            out[edges] = relative_to_mean(self.strengths[edges], users, power)
            self._relative[power] = out
        return self._relative[power]

    @cached_property
    def _relative(self) -> dict[float, NDArray[np.float64]]:
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content: names, relations, facts and their origins."""
        digest = hashlib.sha256()
        for r in self.relations:
            digest.update(f"{r.name}\0{r.head_type}\0{r.tail_type}\n".encode())
            digest.update(f"derived\0{r.recency}\n".encode() if r.derived else b"")
        digest.update(repr((self.vocabulary.types, self.vocabulary.offsets.tolist())).encode())
        digest.update("\0".join(self.vocabulary.names).encode())
        for array in (self.row_segments, self.segment_relations, self.segment_starts, self.tails):
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.origins is not None:
            digest.update(self.origins.tobytes())
        for more in (self.times, self.weights, self.support):
            digest.update(b"" if more is None else more.tobytes())
        if self.strengths is not None:
            digest.update(b"rated" if self.rated else b"amounts")
            digest.update(self.strengths.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"KnowledgeGraph({self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_entities:,} entities, {len(self.relations)} relations, "
            f"{self.n_triples:,} facts)"
        )


def _edge_origins(h: Ints, t: Ints, users: ArrayLike, items: ArrayLike) -> NDArray[np.int32]:
    """The other end of the interaction that each edge, then each inverse edge, is known from."""
    user, item = (np.tile(np.asarray(x, dtype=np.int32), 2) for x in (users, items))
    head = np.concatenate([h, t])
    other = np.where(head == user, item, np.where(head == item, user, -1))
    return np.where(user < 0, -1, other).astype(np.int32)


def _check_triples(
    vocabulary: Vocabulary, relations: Sequence[Relation], h: Ints, r: Ints, t: Ints
) -> None:
    """Refuse triples that break the data model; readers have fixed what can be fixed."""
    if not len(h) == len(r) == len(t):
        raise LogerError(
            "heads, relations and tails must have the same length, "
            f"got {len(h)}, {len(r)}, {len(t)}"
        )
    if (relations[INTERACTION].head_type, relations[INTERACTION].tail_type) != ("user", "item"):
        raise LogerError(f"relation 0 must lead from user to item, got {relations[0]}")
    if 2 * len(relations) > np.iinfo(np.uint16).max:
        raise LogerError(f"a graph can have at most 32,767 relations, got {len(relations):,}")
    unknown = np.flatnonzero((r < 0) | (r >= len(relations)))
    if len(unknown):
        raise LogerError(
            f"triple {int(unknown[0])}: relation numbers must be from 0 to {len(relations) - 1}, "
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
                f"{relations[int(r[i])]} requires"
            )
    loops = np.flatnonzero(h == t)
    if len(loops):
        raise LogerError(f"triple {int(loops[0])} links entity {int(h[loops[0]])} to itself")
