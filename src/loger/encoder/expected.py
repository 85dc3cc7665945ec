"""What facts let one expect of an item's vector and bias, learned from the items that the fit knew.

Every fact of an item says where it lies: t − r where the item is the head, h + r where it is the
tail. Where it does lie is also a matter of who took it, and that differs from what its facts say in
a way that known items have in common. So their directions and biases are regressed on what their
facts say together,

    (y/‖y‖, b) ≈ A x + c,   x = Σ of the directions that its n facts say / √n,

and of a new item A x + c is expected.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import Floats
from loger.graph import INTERACTION, KnowledgeGraph

Bools = NDArray[np.bool_]
RIDGE = 0.03
"""Penalty on A for each known item. Chosen, as all here, on items taken out of the training parts
of cuts of `ml1m` and `amazon-toys`: between 0.01 and 0.07 little changes."""


class Expected(NamedTuple):
    """What is expected of all items of a graph, known ones too, as if they were new."""

    directions: Floats
    """[items, dimension], of length 1."""
    biases: Floats
    """[items]."""
    told: Bools
    """[items]: whether any fact says something; of the others the mean is expected."""


def expected(
    table: Floats,
    relations: Floats,
    biases: Floats,
    graph: KnowledgeGraph,
    known: Bools,
    heard: Bools,
) -> Expected | None:
    """What the facts of items let one expect, by the items that are ``known``; only relations that
    are ``heard`` have a say. None where known items are too few to learn from."""
    items = slice(graph.n_users, graph.n_users + graph.n_items)
    x, told = said_by_facts(table, relations, graph, known, heard)
    learned = told & known[items]
    if learned.sum() <= table.shape[1]:
        return None
    y = np.hstack([_unit(table[items].astype(np.float64)), biases[items].astype(np.float64)])
    mean_x, mean_y = x[learned].mean(axis=0), y[learned].mean(axis=0)
    apart = x[learned] - mean_x
    gram = apart.T @ apart + RIDGE * len(apart) * np.eye(x.shape[1])
    slopes = np.linalg.solve(gram, apart.T @ (y[learned] - mean_y))
    out = mean_y + np.where(told[:, None], x - mean_x, 0.0) @ slopes
    return Expected(_unit(out[:, :-1]).astype(np.float32), out[:, -1].astype(np.float32), told)


def said_by_facts(
    table: Floats, relations: Floats, graph: KnowledgeGraph, known: Bools, heard: Bools
) -> tuple[NDArray[np.float64], Bools]:
    """x of all items, and whether any fact says something; [items, dimension], [items].

    Facts that are known from a single interaction are left out: a new item has none. So are
    entities that belong to one item alone: they were learned from it, and only echo it.
    """
    owners, kinds, tails = _facts(graph, known, heard)
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
        said = _unit(table[span.start : span.stop] + way)
        ones = np.ones(len(rows), dtype=said.dtype)
        total += csr_array((ones, (rows, ends)), shape=(n, len(span))) @ said
        counts += np.bincount(rows, minlength=n)
    return total / np.sqrt(np.maximum(counts, 1.0))[:, None], counts > 0


def _facts(
    graph: KnowledgeGraph, known: Bools, heard: Bools
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Facts of items with what the fit knew: item, relation or inverse, entity."""
    first, half = graph.n_users, len(graph.relations)
    starts = graph.indptr[first : first + graph.n_items + 1]
    edges = slice(int(starts[0]), int(starts[-1]))
    owners = np.repeat(np.arange(graph.n_items), np.diff(starts))
    kinds = graph.edge_relations()[edges].astype(np.int64)
    tails = graph.tails[edges].astype(np.int64)
    speaks = np.append(heard, np.zeros(half - len(heard), dtype=bool))
    speaks[INTERACTION] = False
    of = speaks[kinds % half] & known[tails] & (tails >= first)
    if graph.origins is not None:
        of &= graph.origins[edges] < 0
    return owners[of], kinds[of], tails[of]


def _unit(x: NDArray[np.floating]) -> NDArray[np.floating]:
    out: NDArray[np.floating] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return out
