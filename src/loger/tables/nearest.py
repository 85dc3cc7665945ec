"""Which items are alike by their texts or by given vectors: the k nearest of each by cosine.

Both are made of what is known of items, never of interactions, so nothing can leak into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data import frames
from loger.data.assemble import facts_of
from loger.errors import DataError
from loger.graph import KnowledgeGraph

NEAREST = 10
"""Neighbours of an item, as many as a list that people look at."""
_BLOCK = 20_000_000
"""Cosines that are in memory at once: 80 MB, so 100,000 items are compared 200 at a time."""
_DIGITS = 5  # of a cosine; what differs less is a tie, whatever the order of a sum


def nearest(
    vectors: Any, of: Sequence[int], k: int = NEAREST
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some rows, each as often as it has neighbours, and the at most k rows that are nearest to it
    by cosine, the nearest first; of equally near ones the first. A cosine must be above 0. The
    vectors are the rows of an array or of a sparse one.

    >>> rows, others = nearest(np.array([[1, 0], [2, 0.1], [0, 1], [-1, 0]]), [0, 2, 3])
    >>> list(zip(rows.tolist(), others.tolist()))
    [(0, 1), (2, 1)]
    """
    import scipy.sparse as sp  # a server reads changes, mostly without texts

    lengths = np.sqrt((vectors * vectors).sum(axis=1))
    scale = sp.diags_array(1 / np.where(lengths > 0, lengths, 1), dtype=np.float32)
    unit = (scale @ vectors).astype(np.float32)
    n, chosen = unit.shape[0], np.asarray(of, dtype=np.int64)
    found = []
    for block in np.array_split(chosen, 1 + len(chosen) * n // _BLOCK):
        row, other, cosine = _close(unit[block] @ unit.T, k + 1)
        cosine = cosine.round(_DIGITS)
        kept = (cosine > 0) & (block[row] != other)
        row, other, cosine = row[kept], other[kept], cosine[kept]
        order = np.lexsort((other, -cosine, row))
        row, other = row[order], other[order]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        found.append((block[row[place < k]], other[place < k]))
    rows, others = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(others).astype(np.int64)


def _close(cosines: Any, k: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows, columns and values among which the k largest of each row are, with all ties."""
    if not isinstance(cosines, np.ndarray):
        entries = cosines.tocoo()
        return entries.row, entries.col, entries.data
    if cosines.shape[1] > k:
        least = np.partition(cosines, -k, axis=1)[:, -k]
        row, column = np.nonzero(cosines >= least[:, None] - 10.0**-_DIGITS)
    else:
        row, column = (x.ravel() for x in np.indices(cosines.shape))
    return row, column, cosines[row, column]


def by_words(pairs: pl.DataFrame, new: pl.Series | None = None) -> pl.DataFrame:
    """head, tail: the items nearest to each item, or to each new one, by the words that they have
    (``pairs`` of item and word), each weighted by how few items have it."""
    import scipy.sparse as sp

    items = pairs["head"].unique(maintain_order=True)
    words = pairs["tail"].unique(maintain_order=True)
    row = pairs["head"].replace_strict(items, range(len(items)), return_dtype=pl.Int64).to_numpy()
    column = pairs["tail"].replace_strict(words, range(len(words)), return_dtype=pl.Int64)
    idf = np.log((1 + len(items)) / (1 + np.bincount(column, minlength=len(words))))
    shape = (len(items), len(words))
    matrix = sp.csr_array((idf[column.to_numpy()].astype(np.float32), (row, column)), shape=shape)
    return _named(items, matrix, new)


def _named(items: pl.Series, vectors: Any, new: pl.Series | None) -> pl.DataFrame:
    """The nearest items by name. What is new is also said to be near to each item that is nearest
    to it, so that the way from something old to it is as long as elsewhere."""
    if not len(items):
        return pl.DataFrame(schema={"head": pl.String, "tail": pl.String})
    of = range(len(items)) if new is None else items.is_in(new.implode()).arg_true().to_list()
    rows, others = nearest(vectors, of)
    out = pl.DataFrame({"head": items.gather(rows), "tail": items.gather(others)})
    back = out.select(pl.col("tail").alias("head"), pl.col("head").alias("tail"))
    return out if new is None else pl.concat([out, back]).unique(maintain_order=True)


# ── given vectors ───────────────────────────────────────────────────────────────────────


def by_vectors(
    source: object,
    known: pl.Series,
    ids: Sequence[str] = (),
    new: pl.Series | None = None,
    width: int = 0,
) -> tuple[pl.DataFrame, int]:
    """head, tail: the ``known`` items nearest to each, or to each new one, by a table with a row
    per item, its id and numbers; and how many known items have a row.

    ``ids`` are names that the column of ids may have; without one of them it's the first.
    ``width`` is to how many digits ids are filled with zeros.
    """
    table = frames.read(source)
    path = source if isinstance(source, str | Path) else None
    column = next((c for c in (*ids, "id", "item") if c in table.columns), table.columns[0])
    names = table[column].cast(pl.String).str.strip_chars().str.zfill(width)
    first = names.is_first_distinct() & names.is_in(known.implode())
    values = _numbers(table.drop(column), path)
    return _named(names.filter(first), values[first.to_numpy()], new), int(first.sum())


def _numbers(table: pl.DataFrame, path: Path | str | None) -> NDArray[np.float32]:
    """The vectors of a table: one column of lists, or a column for each number."""
    cells = table.drop("line")
    if cells.width != 1 or not cells.dtypes[0].is_nested():
        cells = cells.select(pl.concat_list(pl.all().cast(pl.Float64, strict=False)))
    lists = cells.to_series().cast(pl.List(pl.Float64), strict=False)
    n = int(lists.list.len().max() or 0)  # type: ignore[arg-type]
    finite = lists.list.eval(pl.element().is_finite().fill_null(False)).list.all()
    good = ((lists.list.len() == n) & finite).fill_null(False)
    if not good.all() or not n:
        at = int((~good).arg_max() or 0)
        raise DataError(
            "each row needs an ID and a vector of the same length as the others",
            path=path,
            line=int(table["line"][at]),
            value=str(table.drop("line").row(at))[:80],
            remedy="put one number in each column, or all in one list, and leave out items "
            "without a vector",
        )
    return lists.explode().to_numpy().reshape(-1, n).astype(np.float32)


# ── next to a graph ─────────────────────────────────────────────────────────────────────


def texts_of(graph: KnowledgeGraph) -> list[tuple[str, str]]:
    """The relations of words and of similar texts, for each text that items are compared by."""
    names = {r.name for r in graph.relations}
    return [
        (said, name)
        for said in sorted(names)
        if (name := similar_name(said)) in names and said != name
    ]


def similar_name(said: str) -> str:
    """What the relation between similar texts is called, by that of their words.

    >>> similar_name("description_says")
    'similar_description'
    """
    return f"similar_{said.removesuffix('_says')}"


def by_texts(facts: pl.DataFrame, graph: KnowledgeGraph) -> pl.DataFrame:
    """Facts between new items, of whose texts ``facts`` has the words, and items that are alike."""
    known, out = graph.vocabulary.ids("item"), [facts.clear()]
    for said, name in texts_of(graph):
        new = facts.filter((pl.col("relation") == said) & ~pl.col("head").is_in([*known]))
        if not len(new):
            continue
        relation = next(k for k, r in enumerate(graph.relations) if r.name == said)
        heads, relations, tails = graph.triples()
        here, names = relations == relation, np.array(graph.vocabulary.names, dtype=object)
        old = {"head": names[heads[here]].tolist(), "tail": names[tails[here]].tolist()}
        pairs = pl.concat([pl.DataFrame(old), new.select("head", "tail").unique()])
        out.append(facts_of(by_words(pairs, new["head"]), name, "item", "item"))
    return pl.concat(out, how="diagonal")
