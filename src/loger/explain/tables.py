"""What people read of a model, as data frames: lists, histories, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.engine import Engine
from loger.explain.lists import lists_with_reasons
from loger.graph import Graph, UserView, history_edges
from loger.logic.mln import Logic
from loger.ranking.ranker import Ranker
from loger.ranking.selection import Chosen, Selection
from loger.rules.wording import ENGLISH, Wording

LISTS: dict[str, type[pl.DataType] | pl.DataType] = {
    "user": pl.String,
    "rank": pl.Int32,
    "item": pl.String,
    "label": pl.String,
    "score": pl.Float32,
}
"""The columns of lists."""


VARIETY: dict[str, type[pl.DataType] | pl.DataType] = {
    "rank_by_score": pl.Int32,
    "cost": pl.Float32,
}
"""What lists have beside, where variety may change places: the place by score alone, and how much
higher the score is that would be at this place."""


def lists_table(
    graph: Graph, users: NDArray[np.int64], lists: Chosen, varied: bool = False
) -> pl.DataFrame:
    """The lists of users, a row per item: user, rank, item, label, score, and with ``varied`` what
    variety changed."""
    words, items = graph.vocabulary, lists.items
    k = items.shape[1]
    present = items.ravel() >= 0
    entities = (items.ravel()[present] + graph.n_users).tolist()
    table = pl.DataFrame(
        {
            "user": [words.names[u] for u in np.repeat(users, k)[present].tolist()],
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), len(users))[present],
            "item": [words.names[e] for e in entities],
            "label": [words.labels[e] for e in entities],
            "score": lists.scores.ravel()[present],
        },
        schema=LISTS,
    )
    if not varied:
        return table
    changed = {"rank_by_score": lists.ranks, "cost": lists.costs}
    values = {name: part.ravel()[present] for name, part in changed.items()}
    return table.hstack(pl.DataFrame(values, schema=VARIETY))


REASONS: dict[str, type[pl.DataType] | pl.DataType] = {
    "because": pl.String,
    "reasons": pl.List(
        pl.Struct(
            {
                "action": pl.String,
                "total": pl.Float64,
                "share": pl.Float64,
                "confidence": pl.Float64,
                "text": pl.String,
            }
        )
    ),
    "carried": pl.Float64,
}
"""What explained lists have beside the columns of ``lists_table``."""


def reasons_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The reasons of the items of lists, a row per item."""
    return pl.DataFrame(rows, schema=REASONS)


def explained_lists_table(
    ranker: Ranker,
    users: NDArray[np.int64],
    k: int,
    selection: Selection,
    engine: Engine,
    words: Wording = ENGLISH,
) -> pl.DataFrame:
    """The lists of users as ``lists_table`` has them, with their reasons."""
    varied = selection.varies
    columns = {**LISTS, **(VARIETY if varied else {}), **REASONS}
    done, parts = 0, [pl.DataFrame(schema=columns)]
    for lists, reasons in lists_with_reasons(ranker, users, k, selection, engine, words):
        block = users[done : done + len(lists.items)]
        told = lists_table(ranker.graph, block, lists, varied)
        parts.append(told.hstack(reasons_table(reasons)))
        done += len(block)
    return pl.concat(parts)


def history_table(graph: Graph, user: int) -> pl.DataFrame:
    """What a user has: item, label and, where they are known, strength and time; the latest first.

    The strength is called rating where it is one.
    """
    words, (_, edges) = graph.vocabulary, history_edges(graph, np.array([user]))
    entities = graph.rows.tails[edges].tolist()
    columns: dict[str, Any] = {
        "item": [words.names[e] for e in entities],
        "label": [words.labels[e] for e in entities],
    }
    if graph.strengths is not None:
        rated = graph.base.rated if isinstance(graph, UserView) else graph.rated
        columns["rating" if rated else "strength"] = graph.strengths[edges]
    if graph.times is None:
        return pl.DataFrame(columns, schema_overrides={"item": pl.String, "label": pl.String})
    table = pl.DataFrame({**columns, "time": graph.times[edges]})
    return table.sort("time", descending=True, maintain_order=True)


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
    logic = ranker.logic
    return pl.DataFrame(
        {
            "rule": [str(rule) for rule in logic.rules],
            "weight": logic.weights,
            "n": ranker.rule_counts(user),
            "importance": ranker.importance(user),
        }
    ).sort("importance", descending=True, maintain_order=True)
