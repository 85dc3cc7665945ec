"""Item–item matrices of which only the largest entries of each row are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from loger.engine import Progress
from loger.recommender import PairMatrix

_BLOCK = 1024
"""Rows of the item–item matrix that are dense or half-dense at a time."""


def largest(rows: PairMatrix, n: int) -> PairMatrix:
    """Each row's n largest entries, ties to the lower column; nothing where n covers all."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, -rows.data, owner))
    place = np.arange(len(order)) - rows.indptr[owner]  # sorted within rows: rank in the row
    kept = np.sort(order[place < n])
    ends = np.searchsorted(kept, rows.indptr)
    return sp.csr_array((rows.data[kept], rows.indices[kept], ends), shape=rows.shape)


def item_matrix(
    n_items: int,
    rows_of: Callable[[slice], PairMatrix],
    n: int | None,
    what: str,
    progress: Progress,
) -> PairMatrix:
    """Stack blocks of rows of an items × items matrix without its diagonal.

    The diagonal would only raise items that the user has, which are left out anyway; and in
    a list of n neighbours it would take a place. ``n`` None keeps everything.
    """
    blocks: list[PairMatrix] = []
    for start in range(0, n_items, _BLOCK):
        progress(what, start, n_items)
        stop = min(start + _BLOCK, n_items)
        rows = rows_of(slice(start, stop))
        owner = np.repeat(np.arange(start, stop), np.diff(rows.indptr))
        rows.data[rows.indices == owner] = 0
        rows.eliminate_zeros()
        rows.sort_indices()
        blocks.append(rows if n is None else largest(rows, n))
    progress(what, n_items, n_items)
    return sp.csr_array(sp.vstack(blocks, format="csr"))
