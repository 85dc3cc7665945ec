"""Vectors for what came after the fit, made of what it is linked to; those of the fit stay.

TransE has e_t ≈ e_h + r for every fact, so each fact of a new entity is an opinion about where it
lies: t − r where it is the head, h + r where it is the tail, and u + r₀ for each user u who took a
new item. Its vector is the mean of these, on the sphere that of their directions, all facts of a
relation together counting as much as one interaction. On the sphere the facts of a new item say
together what known items with such facts let one expect (``expected``). Opinions come from what the
fit knew, or, of what is linked to nothing that it knew, from those that were made before. They
depend on the graph alone, not on the order in which it grew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from loger.encoder.expected import Expected, expected
from loger.encoder.folding import Summable
from loger.encoder.protocol import Encoder, Floats
from loger.graph import INTERACTION, KnowledgeGraph, gather
from loger.graph.growth import Renumbered

Bools = NDArray[np.bool_]
BLOCK = 4096
"""New entities whose facts are looked at together."""


class Moved(NamedTuple):
    """Where what an encoder learned is in another graph."""

    graph: KnowledgeGraph
    entities: NDArray[np.int64]
    """For each entity of the encoder its number there, -1 for what is gone or was not learned."""
    relations: NDArray[np.int64]
    """The same for each relation that is not derived."""

    @classmethod
    def of(cls, before: KnowledgeGraph, moved: Renumbered) -> Moved:
        """A graph that has grown or shrunk: what came after the fit is not learned."""
        learned = moved.learned.entities(moved.graph)
        known = np.where(moved.entities >= 0, learned[moved.entities], False)
        given = moved.relations[: sum(not r.derived for r in before.relations)]
        relations = np.where(given < moved.learned.relations, given, -1)
        return cls(moved.graph, np.where(known, moved.entities, -1), relations)

    @classmethod
    def by_name(cls, before: KnowledgeGraph, graph: KnowledgeGraph) -> Moved:
        """Another graph in which things of the same type and name are the same."""
        entities = np.full(before.n_entities, -1, dtype=np.int64)
        old, new = before.vocabulary, graph.vocabulary
        for kind in (t for t in old.types if t in new.types):
            span, there = old.span(kind), new.ids(kind)
            names = old.names[span.start : span.stop]
            entities[span.start : span.stop] = [there.get(name, -1) for name in names]
        places = {r: k for k, r in enumerate(graph.relations) if not r.derived}
        given = [places.get(r, -1) for r in before.relations if not r.derived]
        return cls(graph, entities, np.array(given, dtype=np.int64))

    @property
    def known(self) -> Bools:
        """Whether each entity of the graph was learned."""
        return _marked(self.entities, self.graph.n_entities)

    @property
    def known_relations(self) -> Bools:
        """The same of each relation that is not derived."""
        return _marked(self.relations, sum(not r.derived for r in self.graph.relations))


def _marked(places: NDArray[np.int64], n: int) -> Bools:
    out = np.zeros(n, dtype=bool)
    out[places[places >= 0]] = True
    return out


@runtime_checkable
class Grows(Protocol):
    """An encoder that keeps up with a graph that grows."""

    def grown(self, moved: Moved) -> Encoder:
        """The encoder on another graph, with vectors for what is new in it; nothing is trained."""
        ...


@runtime_checkable
class Expects(Summable, Protocol):
    """An encoder that knows what it expects of items by their facts."""

    def as_new(self) -> Encoder | None:
        """The encoder that compares users, as they are, with what it expects of items, as if all
        were new; None if nothing is new since its fit."""
        ...

    def fact_shares(self) -> Floats:
        """How much of each item's vector is expected of its facts, 0 of known ones; [items]."""
        ...

    def with_gains(self, gains: Floats, shifts: Floats) -> Encoder:
        """The encoder whose scores s of items are gain · s + shift; both [items]."""
        ...


def grown_state(
    state: Mapping[str, NDArray[np.generic]], moved: Moved, *, folds_in: bool, on_sphere: bool
) -> tuple[dict[str, NDArray[np.generic]], Expected | None]:
    """The state of a TransE on another graph, and what is expected of items if any is new."""
    graph, known = moved.graph, moved.known
    out = {name: array for name, array in state.items() if name != "gains"}
    for part in ("entities", "biases", "relations"):
        to = moved.relations if part == "relations" else moved.entities
        n = len(moved.known_relations) if part == "relations" else graph.n_entities
        for name in ("table", "second"):
            rows = np.asarray(state[f"{part}.{name}"])
            there = out[f"{part}.{name}"] = np.zeros((n, *rows.shape[1:]), dtype=rows.dtype)
            there[to[to >= 0]] = rows[to >= 0]
    table: Any = out["entities.table"]
    relations: Any = out["relations.table"]
    biases: Any = out["biases.table"]
    heard, guess = moved.known_relations, None
    if on_sphere and not known[graph.n_users : graph.n_users + graph.n_items].all():
        guess = expected(table, relations, biases, graph, known, heard)
    place(table, relations, graph, known, heard, folds_in, on_sphere, guess)
    _fill_biases(biases, graph, known, guess)
    for name in ("entities.second", "biases.second"):
        _fill_by_type(out[name], graph, known, ~known)
    return out, guess


def fact_shares(graph: KnowledgeGraph, known: Bools, guess: Expected) -> Floats:
    """How much of each new item's vector is expected of its facts: all of it until somebody takes
    it, then what its relations are among as many interactions more; [items]."""
    items = np.arange(graph.n_users, graph.n_users + graph.n_items)
    taken = graph.popularity
    relations = graph.row_segments[items + 1] - graph.row_segments[items] - (taken > 0)
    share = relations / np.maximum(relations + taken, 1)
    return np.where(guess.told & ~known[items], share, 0.0).astype(np.float32)


def place(
    table: Floats,
    relations: Floats,
    graph: KnowledgeGraph,
    known: Bools,
    heard: Bools,
    folds_in: bool,
    on_sphere: bool,
    guess: Expected | None = None,
) -> None:
    """Write the vectors of all that is not ``known`` into the table, and users as their sums; only
    relations that are ``heard`` have a say."""
    usable = known.copy()
    if folds_in:
        items = known[graph.n_users : graph.n_users + graph.n_items]
        usable[: graph.n_users] = _sum_histories(table, graph, items)
    wanted = np.flatnonzero(~known[graph.n_users :]) + graph.n_users
    if not folds_in:
        wanted = np.flatnonzero(~known)
    while len(wanted):
        made = np.zeros(len(wanted), dtype=bool)
        for lo in range(0, len(wanted), BLOCK):
            of = slice(lo, lo + BLOCK)
            vectors, made[of] = _opinions(
                table, relations, graph, wanted[of], usable, heard, on_sphere, guess
            )
            table[wanted[of][made[of]]] = vectors[made[of]]
        if not made.any():
            break
        usable[wanted[made]] = True
        wanted = wanted[~made]
    _fill_by_type(table, graph, known, np.isin(np.arange(graph.n_entities), wanted))
    if on_sphere:
        _as_long_as_others(table, graph, known)
    if folds_in:
        _sum_histories(table, graph, np.ones(graph.n_items, dtype=bool))


def _opinions(
    table: Floats,
    relations: Floats,
    graph: KnowledgeGraph,
    entities: NDArray[np.int64],
    usable: Bools,
    heard: Bools,
    on_sphere: bool,
    guess: Expected | None,
) -> tuple[Floats, Bools]:
    """The mean of what facts say about where entities lie, and whether any says something."""
    half = len(graph.relations)
    starts = graph.indptr[entities]
    owners, edges = gather(starts, graph.indptr[entities + 1] - starts)
    kinds = graph.segment_relations[
        np.searchsorted(graph.segment_starts, edges, side="right") - 1
    ].astype(np.int64)
    tails = graph.tails[edges]
    speaks = usable[tails] & np.append(heard, np.zeros(half - len(heard), dtype=bool))[kinds % half]
    owners, kinds, tails = owners[speaks], kinds[speaks], tails[speaks]
    back = kinds >= half
    said = table[tails] + np.where(back, 1, -1)[:, None] * relations[kinds % half]
    if on_sphere:
        said /= np.maximum(np.linalg.norm(said, axis=1, keepdims=True), 1e-12)
    if guess is not None:
        item = entities[owners] - graph.n_users
        by_facts = (kinds % half != INTERACTION) & (item >= 0) & (item < graph.n_items)
        by_facts[by_facts] = guess.told[item[by_facts]]
        said[by_facts] = guess.directions[item[by_facts]]
    _, group, size = np.unique(owners * 2 * half + kinds, return_inverse=True, return_counts=True)
    weights = np.where(kinds % half == INTERACTION, 1.0, 1.0 / size[group])
    total = np.bincount(owners, weights, minlength=len(entities))
    scaled = (weights / np.maximum(total, 1e-12)[owners]).astype(np.float32)
    from scipy.sparse import csr_array  # slow to import, and only what is new needs it

    shape = (len(entities), len(owners))
    mean = csr_array((scaled, (owners, np.arange(len(owners)))), shape=shape).dot(said)
    return np.asarray(mean, dtype=np.float32), total > 0


def _sum_histories(table: Floats, graph: KnowledgeGraph, among: Bools) -> Bools:
    """Write users as Σ e_i / √n over their items ``among``; whether they have any."""
    edges, users = graph.interactions
    items = graph.tails[edges] - graph.n_users
    counted = among[items]
    users, items = users[counted], items[counted]
    n = np.bincount(users, minlength=graph.n_users)
    weights = (1 / np.sqrt(np.maximum(n, 1)))[users].astype(np.float32)
    from scipy.sparse import csr_array

    bags = csr_array((weights, (users, items)), shape=(graph.n_users, graph.n_items))
    first = graph.n_users
    table[:first] = bags @ table[first : first + graph.n_items]
    out: Bools = n > 0
    return out


def _as_long_as_others(table: Floats, graph: KnowledgeGraph, known: Bools) -> None:
    """Give new vectors the mean length of the known ones of their type: facts are scored by
    direction, but in the sum that a user is, lengths count."""
    for kind in graph.vocabulary.types[1:]:
        span = graph.vocabulary.span(kind)
        rows = np.arange(span.start, span.stop)
        old, new = rows[known[rows]], rows[~known[rows]]
        if len(old) and len(new):
            length = np.linalg.norm(table[old], axis=1).mean(dtype=np.float64)
            own = np.linalg.norm(table[new], axis=1, keepdims=True)
            table[new] *= np.float32(length) / np.maximum(own, 1e-12)


def _fill_biases(
    biases: Floats, graph: KnowledgeGraph, known: Bools, guess: Expected | None
) -> None:
    """New items have the bias that their facts let one expect, or the mean; and more where more
    people have them than the mean item: what has only just come is not unpopular."""
    _fill_by_type(biases, graph, known, ~known)
    rows = np.arange(graph.n_users, graph.n_users + graph.n_items)
    old, new = known[rows], ~known[rows]
    if old.sum() < 2 or not new.any():
        return
    x, y = np.log1p(graph.popularity), biases[rows, 0].astype(np.float64)
    apart = x[old] - x[old].mean()
    slope = float(apart @ (y[old] - y[old].mean())) / max(float(apart @ apart), 1e-12)
    more = np.maximum(x[new] - x[old].mean(), 0.0)
    usual = np.full(len(rows), y[old].mean())
    if guess is not None:
        usual[guess.told] = guess.biases[guess.told]
    biases[rows[new], 0] = usual[new] + max(slope, 0.0) * more


def _fill_by_type(
    table: NDArray[np.generic], graph: KnowledgeGraph, known: Bools, rows: Bools
) -> None:
    """Give rows the mean of the known ones of their type."""
    for kind in graph.vocabulary.types:
        span = graph.vocabulary.span(kind)
        here = slice(span.start, span.stop)
        if known[here].any() and rows[here].any():
            table[here][rows[here]] = table[here][known[here]].mean(axis=0, dtype=np.float64)
