"""The items of highest score for all users, exactly, in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder import Encoder, TransE
from loger.engine import Engine, LocalEngine
from loger.engine.topk import top_k
from loger.graph import KnowledgeGraph, history

CELLS_PER_BLOCK = 4 << 20
"""Scores that a worker holds at a time, of an encoder that gives them all: 16 MiB."""

USERS_PER_TILE, ITEMS_PER_TILE = 512, 1024
"""Scores that are computed and chosen from before the next, of an encoder whose scores are a
product: 2 MiB, which stay in cache. Measured; half or twice as many are within 5 %."""

Product = tuple[NDArray[np.float32], NDArray[np.float32]]
Lists = tuple[NDArray[np.int32], NDArray[np.float32]]


def top_items(
    encoder: Encoder,
    graph: KnowledgeGraph,
    users: ArrayLike,
    k: int,
    *,
    engine: Engine | None = None,
) -> Lists:
    """For each user the k best items it has no interaction with, and their scores; [users, k].

    Equal scores are ordered by item. The scores are those of ``score_items`` but for the last
    bits, which depend on how many are computed at a time.
    """
    asked = np.asarray(users, dtype=np.int64)
    product = as_product(encoder, asked)
    size = USERS_PER_TILE if product else max(1, CELLS_PER_BLOCK // max(1, graph.n_items))
    spans = [slice(lo, lo + size) for lo in range(0, len(asked), size)]
    engine = engine or LocalEngine()
    if product is not None:
        pairs = [(asked[span], product[0][span]) for span in spans]
        matrix = graph, product[1].T, k
        found = list(engine.map("retrieving items", _best_of_product, pairs, matrix))
    else:
        parts = [asked[span] for span in spans]
        found = list(engine.map("retrieving items", _best_scores, parts, (graph, encoder, k)))
    items = [np.empty((0, k), dtype=np.int32), *(i for i, _ in found)]
    values = [np.empty((0, k), dtype=np.float32), *(v for _, v in found)]
    return np.concatenate(items), np.concatenate(values)


def as_product(encoder: Encoder, users: NDArray[np.int64]) -> Product | None:
    """Vectors of users and items whose product is ``score_items``, of a TransE on the sphere."""
    if not isinstance(encoder, TransE) or encoder.config.distance != "sphere":
        return None
    return encoder._questions(encoder.entities_[users]), encoder._answers


def _best_scores(shared: tuple[KnowledgeGraph, Encoder, int], own: NDArray[np.int64]) -> Lists:
    """The k best items of a block of users by an encoder that gives the scores of all."""
    graph, encoder, k = shared
    return top_k(encoder.score_items(own), k, history(graph, own))


def _best_of_product(
    shared: tuple[KnowledgeGraph, NDArray[np.float32], int],
    block: tuple[NDArray[np.int64], NDArray[np.float32]],
) -> Lists:
    """The k best columns of users · itemsᵀ, tile by tile: all scores are never held at once."""
    (graph, y, k), (own, users) = shared, block
    best, known = list[Lists](), history(graph, own)
    rows, columns = (part[np.argsort(known[1], kind="stable")] for part in known)
    n_items = y.shape[1]
    room = np.empty(len(users) * min(ITEMS_PER_TILE, n_items), dtype=np.float32)
    for lo in range(0, n_items, ITEMS_PER_TILE):
        part = y[:, lo : lo + ITEMS_PER_TILE]
        scores = room[: len(users) * part.shape[1]].reshape(len(users), -1)
        np.matmul(users, part, out=scores)
        here = slice(*np.searchsorted(columns, [lo, lo + ITEMS_PER_TILE]))
        items, values = top_k(scores, k, (rows[here], columns[here] - lo))
        best.append((np.where(items < 0, -1, items + lo).astype(np.int32), values))
    # Ties go to the lower number: tiles come in order, and so do equal items of a tile.
    items, values = (np.hstack(part) for part in zip(*best, strict=True))
    places, values = top_k(values, k)
    found = np.take_along_axis(items, np.maximum(places, 0), axis=1)
    return np.where(places < 0, -1, found).astype(np.int32), values
