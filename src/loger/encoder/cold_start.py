"""Vectors for entities that came after the fit, made from their links; learned vectors stay.

TransE has e_t ≈ e_h + r for every fact, so each fact of a new entity suggests its vector: t − r if
the entity is the head, h + r if it is the tail, and u + r₀ for each user u who took a new item. The
new vector is the mean of these suggestions (on the sphere, of their directions). All facts of a
relation together count as much as one interaction. Suggestions come from entities that the fit
knew. An entity without such links gets them from new vectors that were made before. They depend
only on the graph, not on the order in which it grew.

On the sphere, the facts of a new item make one joint suggestion. An item's vector also depends on
who took it, and that differs from what its facts suggest in a way that known items have in common.
So the directions of known items are regressed on their facts,

    y/‖y‖ ≈ A x + c,   x = Σ of the directions that its n facts suggest / √n,

and A x + c is expected for a new item. Its bias is that of its neighbours (``neighbours``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.encoder.folding import write_user_sums
from loger.graph import INTERACTION, KnowledgeGraph, gather
from loger.graph.arrays import Bools, Floats
from loger.graph.growth import Renumbered

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RIDGE = 0.03
"""Penalty on A per known item. Like everything here, it was chosen on items taken out of the
training parts of subsets of `ml1m` and `amazon-toys`; 0.01 to 0.07 are about as good."""
NEIGHBOURS, SHARPNESS, SHRINKAGE = 20, 4, 0.05
"""The most known items that count for a new one, the power of their similarity, and λ; see
docs/adr/0024."""
BLOCK = 4096
"""New entities that are processed together."""


class Expected(NamedTuple):
    """The vectors expected of all items of a graph as if they were new, known ones included."""

    directions: Floats
    """[items, dimension], of length 1."""
    has_facts: Bools
    """[items]: whether any fact suggests something; for other items, the mean is expected."""


def expected(
    table: Floats,
    relations: Floats,
    graph: KnowledgeGraph,
    known: Bools,
    known_relations: Bools,
) -> Expected | None:
    """The vectors that items' facts suggest, learned from ``known`` items and
    ``known_relations``; None if known items are too few to learn from."""
    items = slice(graph.n_users, graph.n_users + graph.n_items)
    x, has_facts = suggested_by_facts(table, relations, graph, known, known_relations)
    learned = has_facts & known[items]
    if learned.sum() <= table.shape[1]:
        return None
    y = _unit(table[items].astype(np.float64))
    mean_x, mean_y = x[learned].mean(axis=0), y[learned].mean(axis=0)
    apart = x[learned] - mean_x
    gram = apart.T @ apart + RIDGE * len(apart) * np.eye(x.shape[1])
    slopes = np.linalg.solve(gram, apart.T @ (y[learned] - mean_y))
    out = mean_y + np.where(has_facts[:, None], x - mean_x, 0.0) @ slopes
    return Expected(_unit(out).astype(np.float32), has_facts)


def suggested_by_facts(
    table: Floats, relations: Floats, graph: KnowledgeGraph, known: Bools, known_relations: Bools
) -> tuple[NDArray[np.float64], Bools]:
    """x of all items, and whether any fact suggests something; [items, dimension], [items].

    Facts that come from an interaction are left out, because a new item has none. So are entities
    that only one item has: they were learned from that item and just repeat it.
    """
    owners, kinds, tails = _facts(graph, known, known_relations)
    n, half = graph.n_items, len(graph.relations)
    total, counts = np.zeros((n, table.shape[1])), np.zeros(n)
    from scipy.sparse import csr_array  # slow to import, and only what is new needs it

    for kind in np.flatnonzero(np.bincount(kinds, minlength=2 * half)).tolist():
        of = kinds == kind
        span = graph.vocabulary.span(graph.signature(kind)[1])
        rows, ends = owners[of], tails[of] - span.start
        shared = np.bincount(ends, minlength=len(span))[ends] > 1
        rows, ends = rows[shared], ends[shared]
        way = relations[kind % half] if kind >= half else -relations[kind]
        suggested = _unit(table[span.start : span.stop] + way)
        ones = np.ones(len(rows), dtype=suggested.dtype)
        total += csr_array((ones, (rows, ends)), shape=(n, len(span))) @ suggested
        counts += np.bincount(rows, minlength=n)
    return total / np.sqrt(np.maximum(counts, 1.0))[:, None], counts > 0


def neighbours(graph: KnowledgeGraph, known: Bools, known_relations: Bools) -> csr_array:
    """W: how much each known item counts as a neighbour of each new one; [new, known items].

        W_vj = c_vj⁴ / (λ + Σ_k c_vk⁴)

    c is the cosine of the items' facts, each weighted by the logarithm of how rare it is. Only the
    nearest known items count. The rest of W, up to 1, goes to the mean of all known items.
    """
    from scipy.sparse import csr_array, diags_array, vstack  # slow to import

    first, n = graph.n_users, graph.n_items
    n_known = int(known[first : first + n].sum())
    owners, kinds, tails = _facts(graph, known, known_relations)
    _, fact, often = np.unique(
        kinds * graph.n_entities + tails, return_inverse=True, return_counts=True
    )
    rare = np.log((1 + n) / (1 + often))[fact]
    facts = csr_array((rare, (owners, fact)), shape=(n, len(often)))
    lengths = np.sqrt((facts * facts).sum(axis=1))
    facts = csr_array(diags_array(1 / np.maximum(lengths, 1e-12)) @ facts)
    old, blocks = csr_array(facts[:n_known].T), [csr_array((0, n_known))]
    for low in range(n_known, n, BLOCK):
        alike = csr_array(facts[low : low + BLOCK] @ old)
        blocks.append(_nearest(alike))
    return csr_array(vstack(blocks))


def _nearest(alike: csr_array) -> csr_array:
    """Each row's largest entries to the 4th power, divided by their sum plus λ; of ties, the lower
    columns."""
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(alike.shape[0]), np.diff(alike.indptr))
    order = np.lexsort((alike.indices, -alike.data, rows))
    place = np.arange(len(order)) - alike.indptr[rows]
    kept = order[(place < NEIGHBOURS) & (alike.data[order] > 0)]
    rows, values = rows[kept], alike.data[kept] ** SHARPNESS
    total = np.bincount(rows, values, minlength=alike.shape[0]) + SHRINKAGE
    return csr_array((values / total[rows], (rows, alike.indices[kept])), shape=alike.shape)


def by_neighbours(weights: csr_array, of_known: NDArray[np.floating]) -> NDArray[np.float64]:
    """What new items are expected to have if known ones have ``of_known``; [new items]."""
    rest = 1 - weights.sum(axis=1)
    out: NDArray[np.float64] = weights @ of_known + rest * of_known.mean()
    return out


def _facts(
    graph: KnowledgeGraph, known: Bools, known_relations: Bools
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Facts that link items to entities that the fit knew: item, relation or inverse, entity."""
    first, half = graph.n_users, len(graph.relations)
    starts = graph.indptr[first : first + graph.n_items + 1]
    edges = slice(int(starts[0]), int(starts[-1]))
    owners = np.repeat(np.arange(graph.n_items), np.diff(starts))
    kinds = graph.edge_relations()[edges].astype(np.int64)
    tails = graph.tails[edges].astype(np.int64)
    counts = np.append(known_relations, np.zeros(half - len(known_relations), dtype=bool))
    counts[INTERACTION] = False
    of = counts[kinds % half] & known[tails] & (tails >= first)
    if graph.origins is not None:
        of &= graph.origins[edges] < 0
    return owners[of], kinds[of], tails[of]


def _unit(x: NDArray[np.floating]) -> NDArray[np.floating]:
    out: NDArray[np.floating] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return out


class Moved(NamedTuple):
    """Where the entities and relations of an encoder are in another graph."""

    graph: KnowledgeGraph
    entities: NDArray[np.int64]
    """Each entity's number there; -1 if it's gone or wasn't learned."""
    relations: NDArray[np.int64]
    """The same for each relation that isn't derived."""

    @classmethod
    def of(cls, before: KnowledgeGraph, moved: Renumbered) -> Moved:
        """A graph that has grown or shrunk; what came after the fit counts as not learned."""
        learned = moved.learned.entities(moved.graph)
        known = np.where(moved.entities >= 0, learned[moved.entities], False)
        given = moved.relations[: sum(not r.derived for r in before.relations)]
        relations = np.where(given < moved.learned.relations, given, -1)
        return cls(moved.graph, np.where(known, moved.entities, -1), relations)

    @classmethod
    def by_name(cls, before: KnowledgeGraph, graph: KnowledgeGraph) -> Moved:
        """Another graph, in which entities are the same if their types and names are."""
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
        """The same for each relation that isn't derived."""
        return _marked(self.relations, sum(not r.derived for r in self.graph.relations))


def _marked(places: NDArray[np.int64], n: int) -> Bools:
    out = np.zeros(n, dtype=bool)
    out[places[places >= 0]] = True
    return out


def grown_state(
    state: Mapping[str, NDArray[np.generic]], moved: Moved, *, folds_in: bool, on_sphere: bool
) -> dict[str, NDArray[np.generic]]:
    """The state of a TransE on another graph."""
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
    known_relations, guess = moved.known_relations, None
    new_items = not known[graph.n_users : graph.n_users + graph.n_items].all()
    if on_sphere and new_items:
        guess = expected(table, relations, graph, known, known_relations)
    place(table, relations, graph, known, known_relations, folds_in, on_sphere, guess)
    _fill_by_type(biases, graph, known, ~known)
    if new_items:
        _fill_biases(biases, graph, known, known_relations)
    for name in ("entities.second", "biases.second"):
        _fill_by_type(out[name], graph, known, ~known)
    return out


def place(
    table: Floats,
    relations: Floats,
    graph: KnowledgeGraph,
    known: Bools,
    known_relations: Bools,
    folds_in: bool,
    on_sphere: bool,
    guess: Expected | None = None,
) -> None:
    """Write the vectors of all entities that aren't ``known`` into the table, and users' sums; only
    ``known_relations`` count."""
    usable = known.copy()
    if folds_in:
        items = known[graph.n_users : graph.n_users + graph.n_items]
        usable[: graph.n_users] = write_user_sums(table, graph, items)
    wanted = np.flatnonzero(~known[graph.n_users :]) + graph.n_users
    if not folds_in:
        wanted = np.flatnonzero(~known)
    while len(wanted):
        made = np.zeros(len(wanted), dtype=bool)
        for lo in range(0, len(wanted), BLOCK):
            of = slice(lo, lo + BLOCK)
            vectors, made[of] = _mean_suggestions(
                table, relations, graph, wanted[of], usable, known_relations, on_sphere, guess
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
        write_user_sums(table, graph)


def _mean_suggestions(
    table: Floats,
    relations: Floats,
    graph: KnowledgeGraph,
    entities: NDArray[np.int64],
    usable: Bools,
    known_relations: Bools,
    on_sphere: bool,
    guess: Expected | None,
) -> tuple[Floats, Bools]:
    """The mean of the vectors that facts suggest for entities, and whether there is any."""
    half = len(graph.relations)
    starts = graph.indptr[entities]
    owners, edges = gather(starts, graph.indptr[entities + 1] - starts)
    kinds = graph.segment_relations[
        np.searchsorted(graph.segment_starts, edges, side="right") - 1
    ].astype(np.int64)
    tails = graph.tails[edges]
    # Relations after the known ones are derived: the encoder has no vectors for them.
    derived = np.zeros(half - len(known_relations), dtype=bool)
    counts = usable[tails] & np.append(known_relations, derived)[kinds % half]
    owners, kinds, tails = owners[counts], kinds[counts], tails[counts]
    back = kinds >= half
    suggested = table[tails] + np.where(back, 1, -1)[:, None] * relations[kinds % half]
    if on_sphere:
        suggested /= np.maximum(np.linalg.norm(suggested, axis=1, keepdims=True), 1e-12)
    if guess is not None:
        item = entities[owners] - graph.n_users
        by_facts = (kinds % half != INTERACTION) & (item >= 0) & (item < graph.n_items)
        by_facts[by_facts] = guess.has_facts[item[by_facts]]
        suggested[by_facts] = guess.directions[item[by_facts]]
    _, group, size = np.unique(owners * 2 * half + kinds, return_inverse=True, return_counts=True)
    weights = np.where(kinds % half == INTERACTION, 1.0, 1.0 / size[group])
    total = np.bincount(owners, weights, minlength=len(entities))
    scaled = (weights / np.maximum(total, 1e-12)[owners]).astype(np.float32)
    from scipy.sparse import csr_array  # slow to import, and only what is new needs it

    shape = (len(entities), len(owners))
    mean = csr_array((scaled, (owners, np.arange(len(owners)))), shape=shape).dot(suggested)
    return np.asarray(mean, dtype=np.float32), total > 0


def _as_long_as_others(table: Floats, graph: KnowledgeGraph, known: Bools) -> None:
    """Give new vectors the mean length of the known vectors of their type.

    Facts are scored by direction, but lengths count in users' sums.
    """
    for kind in graph.vocabulary.types[1:]:
        span = graph.vocabulary.span(kind)
        rows = np.arange(span.start, span.stop)
        old, new = rows[known[rows]], rows[~known[rows]]
        if len(old) and len(new):
            length = np.linalg.norm(table[old], axis=1).mean(dtype=np.float64)
            own = np.linalg.norm(table[new], axis=1, keepdims=True)
            table[new] *= np.float32(length) / np.maximum(own, 1e-12)


def _fill_biases(
    biases: Floats, graph: KnowledgeGraph, known: Bools, known_relations: Bools
) -> None:
    """Give new items the bias of their neighbours, and more if they are more popular than the
    average item. They get no less: an item that is new isn't unpopular."""
    rows = np.arange(graph.n_users, graph.n_users + graph.n_items)
    old, new = known[rows], ~known[rows]
    if not old.any():
        return
    x, y = np.log1p(graph.popularity), biases[rows, 0].astype(np.float64)
    apart = x[old] - x[old].mean()
    slope = float(apart @ (y[old] - y[old].mean())) / max(float(apart @ apart), 1e-12)
    more = np.maximum(x[new] - x[old].mean(), 0.0)
    usual = by_neighbours(neighbours(graph, known, known_relations), y[old])
    biases[rows[new], 0] = usual + max(slope, 0.0) * more


def _fill_by_type(
    table: NDArray[np.generic], graph: KnowledgeGraph, known: Bools, rows: Bools
) -> None:
    """Fill rows with the mean of the known rows of their type."""
    for kind in graph.vocabulary.types:
        span = graph.vocabulary.span(kind)
        here = slice(span.start, span.stop)
        if known[here].any() and rows[here].any():
            table[here][rows[here]] = table[here][known[here]].mean(axis=0, dtype=np.float64)
