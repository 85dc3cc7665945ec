"""What people read of a model as data frames: lists, histories, rules.

Frames are made of finished columns. Sorting, casting, dropping and concatenating would use polars'
own threads, which a forked child lacks: it would wait for them forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.dataset import EPOCH
from loger.engine import Engine
from loger.explain.attribution import BLOCK
from loger.explain.lists import ListRequest, recommend_block
from loger.explain.record import reasons_in_short
from loger.graph import Graph, UserView, history_edges
from loger.logic.mln import Logic
from loger.ranking.ranker import Ranker, blocks
from loger.ranking.selection import Chosen
from loger.rules.wording import ENGLISH, Wording

Columns = dict[str, type[pl.DataType] | pl.DataType]
LIST_COLUMNS: Columns = {
    "user": pl.String,
    "rank": pl.Int32,
    "item": pl.String,
    "label": pl.String,
    "score": pl.Float32,
}
VARIETY_COLUMNS: Columns = {"rank_by_score": pl.Int32, "cost": pl.Float32}
"""Columns of lists if variety may change places: the rank by score, and how much higher the score
would be at this place without variety."""
HELD_OUT_COLUMN: Columns = {"held_out": pl.Boolean}
"""Column of lists if interactions were held out: whether the user has the item and the model
doesn't know. It lets you measure lists, and marks them as not for use."""
REASON_COLUMNS: Columns = {
    "because": pl.String,
    "reasons": pl.List(
        pl.Struct(
            {
                "action": pl.String,
                "total": pl.Float64,
                "share": pl.Float64,
                "text": pl.String,
                "members": pl.List(pl.String),
            }
        )
    ),
    "carried": pl.Float64,
}
"""Columns of explained lists (``record.reasons_in_short``)."""


_MEMBER = {"user": pl.String, "lead": pl.Float64, "because": pl.String}
TOGETHER_COLUMNS: Columns = {
    "rank": pl.Int32,
    "item": pl.String,
    "label": pl.String,
    "score": pl.Float64,
    "because": pl.String,
    "reasons": pl.List(pl.Struct({"action": pl.String, "total": pl.Float64, "text": pl.String})),
    "members": pl.List(pl.Struct(_MEMBER)),
}
"""Columns of a list for several members (``together_table``)."""


def lists_table(
    ranker: Ranker, users: NDArray[np.int64], request: ListRequest, engine: Engine
) -> pl.DataFrame:
    """The lists of users, given by number, with a row per item: user, rank, item, label, score; if
    interactions were held out, ``held_out``; if variety may change places, ``rank_by_score`` and
    ``cost``; and if reasons are requested, ``because``, ``reasons`` and ``carried``."""
    if not request.explain:
        lists = ranker.choose(users, request.k, request.selection, engine)
        return _table(ranker, users, lists, request.selection.varies)
    held_out = HELD_OUT_COLUMN if len(ranker.held_out) else {}
    varied = VARIETY_COLUMNS if request.selection.varies else {}
    ids: Columns = {kind: id_type(ranker.graph, kind) for kind in ("user", "item")}
    table = pl.DataFrame(schema={**LIST_COLUMNS, **ids, **held_out, **varied, **REASON_COLUMNS})
    for part in engine.map("explaining", _explained, blocks(users, BLOCK), (ranker, request)):
        table.vstack(part, in_place=True)
    return table


def id_type(graph: Graph, kind: str) -> type[pl.DataType]:
    """The type of user or item IDs, as in the data."""
    return pl.Int64 if kind in graph.vocabulary.integers else pl.String


def _ids(graph: Graph, kind: str, names: Sequence[str]) -> Sequence[str] | list[int]:
    """Names of users or items as IDs of their type."""
    return [int(name) for name in names] if kind in graph.vocabulary.integers else names


def together_table(
    records: Sequence[dict[str, Any]], graph: Graph, without: Sequence[str]
) -> pl.DataFrame:
    """A list for several members (``recommend_together``), a row per item, without some columns.

    ``reasons`` holds the reasons of all members, the largest first; those of a member whose taste
    the list should avoid are negative.
    """
    types = {**TOGETHER_COLUMNS, "item": id_type(graph, "item")}
    columns: dict[str, Any] = {name: [row.get(name) for row in records] for name in types}
    columns["item"] = _ids(graph, "item", columns["item"])
    columns["reasons"] = [
        sorted((r for m in row["members"] for r in m["reasons"]), key=lambda r: -r["total"])
        for row in records
    ]
    columns["members"] = [
        [{name: m[name] for name in _MEMBER} for m in row["members"]] for row in records
    ]
    kept = {name: kind for name, kind in types.items() if name not in without}
    return pl.DataFrame({name: columns[name] for name in kept}, schema=kept)


def _explained(shared: tuple[Ranker, ListRequest], users: NDArray[np.int64]) -> pl.DataFrame:
    """The table of a block of users, with reasons."""
    ranker, request = shared
    _, lists, explanations = recommend_block(ranker, users, request)
    reasons = pl.DataFrame([reasons_in_short(e) for e in explanations], schema=REASON_COLUMNS)
    return _table(ranker, users, lists, request.selection.varies).hstack(reasons)


def _table(ranker: Ranker, users: NDArray[np.int64], lists: Chosen, varied: bool) -> pl.DataFrame:
    """Lists as a table, a row per item, without reasons."""
    graph, items = ranker.graph, lists.items
    words = graph.vocabulary
    k = items.shape[1]
    present = items.ravel() >= 0
    entities = (items.ravel()[present] + graph.n_users).tolist()
    takers = np.repeat(users, k)[present].tolist()
    table = pl.DataFrame(
        {
            "user": _ids(graph, "user", [words.names[u] for u in takers]),
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), len(users))[present],
            "item": _ids(graph, "item", [words.names[e] for e in entities]),
            "label": [words.labels[e] for e in entities],
            "score": lists.scores.ravel()[present],
        },
        schema={**LIST_COLUMNS, **{kind: id_type(graph, kind) for kind in ("user", "item")}},
    )
    if len(ranker.held_out):
        owners, owned = ranker.held_out.of(users)
        keys = np.arange(len(users))[:, None] * graph.n_items + items
        held = np.isin(keys, owners * graph.n_items + owned).ravel()[present]
        table = table.hstack(pl.DataFrame({"held_out": held}, schema=HELD_OUT_COLUMN))
    if not varied:
        return table
    changed = {"rank_by_score": lists.ranks, "cost": lists.costs}
    values = {name: part.ravel()[present] for name, part in changed.items()}
    return table.hstack(pl.DataFrame(values, schema=VARIETY_COLUMNS))


def history_table(graph: Graph, user: int) -> pl.DataFrame:
    """A user's history, the latest first: item, label and, if known, strength (or rating) and
    time."""
    words, (_, edges) = graph.vocabulary, history_edges(graph, np.array([user]))
    if graph.times is not None:
        edges = edges[np.argsort(-graph.times[edges], kind="stable")]
    entities = graph.rows.tails[edges].tolist()
    columns: dict[str, Any] = {
        "item": _ids(graph, "item", [words.names[e] for e in entities]),
        "label": [words.labels[e] for e in entities],
    }
    if graph.strengths is not None:
        rated = graph.base.rated if isinstance(graph, UserView) else graph.rated
        columns["rating" if rated else "strength"] = graph.strengths[edges]
    if graph.times is not None:
        columns["time"] = as_moments(graph.times[edges], graph.times)
    types: Columns = {"item": id_type(graph, "item"), "label": pl.String}
    return pl.DataFrame(columns, schema_overrides=types)


def as_moments(times: NDArray[np.int64], among: NDArray[np.int64]) -> pl.Series:
    """Times as dates, if the times of the data (``among``) look like seconds since 1970; other
    numbers only say what came first."""
    if EPOCH[0] <= among.max(initial=0) < EPOCH[1]:
        return pl.Series("time", times * 1_000_000, dtype=pl.Datetime("us", "UTC"))
    return pl.Series("time", times)


def rule_table(logic: Logic, words: Wording = ENGLISH) -> pl.DataFrame:
    """The rules with their weights, strongest first, and as sentences."""
    order = np.argsort(-logic.weights, kind="stable")
    return pl.DataFrame(
        {
            "weight": logic.weights[order],
            "rule": [str(logic.rules[k]) for k in order],
            "sentence": [logic.rules[k].sentence(words) for k in order],
        }
    )


def importance_table(ranker: Ranker, user: int) -> pl.DataFrame:
    """y_{u,l} = w_l n_l(u) / Σ n(u), n_l(u) counted over the user's own interactions."""
    logic, importance = ranker.logic, ranker.importance(user)
    order = np.argsort(-importance, kind="stable")
    return pl.DataFrame(
        {
            "rule": [str(logic.rules[k]) for k in order],
            "weight": logic.weights[order],
            "n": ranker.own_paths(user)[order],
            "importance": importance[order],
        }
    )
