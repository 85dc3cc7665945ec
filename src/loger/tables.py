"""What people read of a model, as data frames: lists, histories, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.engine import Engine
from loger.explain.lists import lists_with_reasons
from loger.graph import Graph, history, history_edges
from loger.grounding import ground
from loger.logic import Logic
from loger.ranker import Lists, Ranker

LISTS: dict[str, type[pl.DataType] | pl.DataType] = {
    "user": pl.String,
    "rank": pl.Int32,
    "item": pl.String,
    "label": pl.String,
    "score": pl.Float32,
}
"""The columns of lists."""


def lists_table(graph: Graph, users: NDArray[np.int64], lists: Lists) -> pl.DataFrame:
    """The lists of users, a row per item: user, rank, item, label, score."""
    words, (items, scores) = graph.vocabulary, lists
    k = items.shape[1]
    present = items.ravel() >= 0
    entities = (items.ravel()[present] + graph.n_users).tolist()
    return pl.DataFrame(
        {
            "user": [words.names[u] for u in np.repeat(users, k)[present].tolist()],
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), len(users))[present],
            "item": [words.names[e] for e in entities],
            "label": [words.labels[e] for e in entities],
            "score": scores.ravel()[present],
        },
        schema=LISTS,
    )


REASONS: dict[str, type[pl.DataType] | pl.DataType] = {
    "because": pl.String,
    "reasons": pl.List(
        pl.Struct(
            {"action": pl.String, "total": pl.Float64, "share": pl.Float64, "text": pl.String}
        )
    ),
    "carried": pl.Float64,
}
"""What explained lists have beside the columns of ``lists_table``."""


def reasons_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The reasons of the items of lists, a row per item."""
    return pl.DataFrame(rows, schema=REASONS)


def explained_lists_table(
    ranker: Ranker, users: NDArray[np.int64], k: int, engine: Engine
) -> pl.DataFrame:
    """The k best items of users as ``lists_table`` has them, with their reasons."""
    done, parts = 0, [pl.DataFrame(schema={**LISTS, **REASONS})]
    for lists, reasons in lists_with_reasons(ranker, users, k, engine):
        block = users[done : done + len(lists[0])]
        parts.append(lists_table(ranker.graph, block, lists).hstack(reasons_table(reasons)))
        done += len(block)
    return pl.concat(parts)


def history_table(graph: Graph, user: int) -> pl.DataFrame:
    """What a user has: item, label and, where they are known, time; the latest first."""
    words, (_, edges) = graph.vocabulary, history_edges(graph, np.array([user]))
    entities = graph.rows.tails[edges].tolist()
    columns: dict[str, Any] = {
        "item": [words.names[e] for e in entities],
        "label": [words.labels[e] for e in entities],
    }
    if graph.times is None:
        return pl.DataFrame(columns, schema_overrides={"item": pl.String, "label": pl.String})
    table = pl.DataFrame({**columns, "time": graph.times[edges]})
    return table.sort("time", descending=True, maintain_order=True)


def rule_table(logic: Logic) -> pl.DataFrame:
    """The rules with their weights, strongest first, and as sentences."""
    order = np.argsort(-logic.weights, kind="stable")
    return pl.DataFrame(
        {
            "weight": logic.weights[order],
            "rule": [str(logic.rules[k]) for k in order],
            "sentence": [logic.rules[k].sentence() for k in order],
        }
    )


def importance_table(ranker: Ranker, user: int) -> pl.DataFrame:
    """y_{u,l} = w_l n_l(u) / Σ n(u), n_l(u) counted over the user's own interactions."""
    logic = ranker.logic
    _, items = history(ranker.graph, np.array([user]))
    groundings = ground(ranker.logic_graph, logic.rules, np.full(len(items), user), items)
    n = np.asarray(groundings.count_matrix.sum(axis=0)).ravel()
    share = n / max(int(n.sum()), 1)
    return pl.DataFrame(
        {
            "rule": [str(rule) for rule in logic.rules],
            "weight": logic.weights,
            "n": n,
            "importance": logic.weights * share,
        }
    ).sort("importance", descending=True, maintain_order=True)
