"""A first mapping of a shop's tables, guessed from names and values, for a person to correct."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from loger.build.aspects import singular
from loger.build.mapping import Column, EntityTable, InteractionTable, Kind, TableMapping
from loger.build.values import (
    FEW,
    SEPARATORS,
    all_are,
    are_dates,
    as_moments,
    as_numbers,
    cells,
    mean,
    separator_of,
)
from loger.errors import DataError

_USER = [
    "user",
    "customer",
    "client",
    "member",
    "buyer",
    "reviewer",
    "account",
    "person",
    "visitor",
]
_ITEM = [
    "item",
    "product",
    "sku",
    "asin",
    "article",
    "isbn",
    "movie",
    "book",
    "track",
    "song",
    "code",
]
_RATING = ["rating", "stars", "score", "overall", "grade", "points"]
_TIME = ["time", "date", "timestamp", "datetime", "created", "ordered", "purchased", "when", "day"]
_PART = ["part", "split", "fold"]
_REVIEW = ["review", "comment", "feedback", "text", "opinion", "body", "summary"]
_LABEL = ["title", "name", "label", "headline"]
_POINTS = ["similar", "related", "also", "variant", "parent", "replac", "accessor", "bundl"]
_LINK = re.compile(r"^(https?://|www\.)|@.+\.|\.(jpe?g|png|gif|pdf)$")
_TEXT = 6  # words of a cell, on average, from which it is a text
_SHARED = 0.5  # ids of one table that must be found in the other


def propose(
    interactions: pl.DataFrame,
    items: pl.DataFrame | None = None,
    users: pl.DataFrame | None = None,
    *,
    name: str = "shop",
    files: Sequence[Path | str | None] = (None, None, None),
    item: str | None = None,
    user: str | None = None,
) -> TableMapping:
    """A mapping for frames with a ``line`` column; ``item`` and ``user`` say the columns of the
    interactions where a guess would fail."""
    paths = [None if f is None else Path(f) for f in files]
    _known(interactions, item, paths[0])
    _known(interactions, user, paths[0])
    item, item_id = _matched(interactions, items, item, _ITEM, (user,), "item", paths[0], paths[1])
    user, user_id = _matched(interactions, users, user, _USER, (item,), "user", paths[0], paths[2])
    ids = pl.Series(dtype=pl.String) if items is None else cells(items[item_id])
    table = _interactions(interactions, user, item)
    return TableMapping(
        name=name,
        interactions=replace(table, file=str(paths[0] or "")),
        items=None if items is None else _entities(items, item_id, "items", ids, paths[1]),
        users=None if users is None else _entities(users, user_id, "users", ids, paths[2]),
    )


def _known(frame: pl.DataFrame, column: str | None, path: Path | None) -> None:
    if column is not None and column not in frame.columns:
        raise DataError(
            f"there is no column {column}, only {', '.join(_columns(frame))}",
            path=path,
            remedy="name one of them",
        )


def _columns(frame: pl.DataFrame) -> list[str]:
    return [c for c in frame.columns if c != "line"]


def _words(name: str) -> list[str]:
    """The words of a column's name: customerId, customer_id and "Customer ID" alike."""
    return re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def _named(name: str, hints: Iterable[str]) -> int:
    """How well a column's name fits: 2 as one of its words, 1 as the beginning of one."""
    words = _words(name)
    if any(hint in words for hint in hints):
        return 2
    return int(any(word.startswith(hint) for word in words for hint in hints))


def _matched(
    interactions: pl.DataFrame,
    entities: pl.DataFrame | None,
    chosen: str | None,
    hints: Sequence[str],
    taken: Sequence[str | None],
    what: str,
    path: Path | None,
    entities_path: Path | None,
) -> tuple[str, str]:
    """The column of the interactions that names items (users), and that of their own table."""
    free = [c for c in _columns(interactions) if c not in taken] if chosen is None else [chosen]
    if entities is None:
        best = max(free, key=lambda c: (_named(c, hints), "id" in _words(c)), default=None)
        if best is not None and (chosen is not None or _named(best, hints)):
            return best, ""
    else:
        scored = [
            (
                (
                    _share(interactions[c], entities[t])
                    + 0.1 * _named(c, hints)
                    + 0.05 * _named(t, hints)
                ),
                c,
                t,
            )
            for t in _columns(entities)
            if cells(entities[t]).drop_nulls().n_unique() == len(entities)
            for c in free
            if _share(interactions[c], entities[t]) >= _SHARED
        ]
        if scored:
            _, column, id_column = max(scored, key=lambda s: (s[0], [-ord(x) for x in s[1]]))
            return column, id_column
    where = "" if entities_path is None else f" and is unique in {entities_path.name}"
    raise DataError(
        f"no column was found that names the {what}{where}; there are {', '.join(free)}",
        path=path,
        remedy=f"say which: --{what} COLUMN, or {what}='COLUMN' in Python",
    )


def _share(values: pl.Series, among: pl.Series) -> float:
    """The share of distinct values that are found among others."""
    distinct = cells(values).drop_nulls().unique()
    return mean(distinct.is_in(cells(among).implode()))


def _interactions(frame: pl.DataFrame, user: str, item: str) -> InteractionTable:
    """The interactions: who, what, how much, when; further columns as they look."""
    free = [c for c in _columns(frame) if c not in (user, item)]
    chosen = {"rating": "", "time": "", "part": ""}
    for column in free:
        values = frame[column]
        times = are_dates(values) or (_named(column, _TIME) and all_are(as_moments(values), values))
        rates = _named(column, _RATING) and all_are(as_numbers(values), values)
        if not chosen["time"] and times:
            chosen["time"] = column
        elif not chosen["rating"] and rates:
            chosen["rating"] = column
        elif not chosen["part"] and _named(column, _PART) == 2 and _parts(values):
            chosen["part"] = column
    rest = [_guess(frame, c, pl.Series(dtype=pl.String)) for c in free if c not in chosen.values()]
    columns = tuple(_of_interaction(column, frame[column.column]) for column in rest)
    return InteractionTable(user, item, columns=columns, **chosen)


def _parts(values: pl.Series) -> bool:
    known = {"train", "validation", "valid", "test"}
    return set(cells(values).drop_nulls().str.to_lowercase()) <= known


def _of_interaction(column: Column, values: pl.Series) -> Column:
    """What a column of the interactions becomes: texts are reviews; numbers are left out, for
    a quantity or a total says little of the item."""
    words = mean(cells(values).drop_nulls().str.count_matches(r"\S+"))
    if column.take == "keywords" or (_named(column.column, _REVIEW) and words >= 2):
        return Column(column.column, "aspects", why="texts, so reviews")
    if column.take in ("bins", "items") or all_are(as_numbers(values), values):
        return Column(column.column, "leave out", why="numbers of single interactions")
    return column


def _entities(
    frame: pl.DataFrame, id_column: str, table: str, ids: pl.Series, path: Path | None
) -> EntityTable:
    columns, label = list[Column](), ""
    for column in _columns(frame):
        if column == id_column:
            continue
        guess = _guess(frame, column, ids if table == "items" else pl.Series(dtype=pl.String))
        if not label and _named(column, _LABEL) == 2 and guess.take in ("leave out", "keywords"):
            label = column
        else:
            columns.append(guess)
    return EntityTable(id_column, str(path or ""), label, tuple(columns))


def _guess(frame: pl.DataFrame, column: str, ids: pl.Series) -> Column:
    """What one column may become, and why."""
    slug = "_".join(_words(column)) or column
    kind = singular(slug)
    take, why, separator = _looks(frame[column], column, ids)
    if take == "leave out":
        return Column(column, take, why=why)
    if take == "items":
        return Column(column, take, relation=slug, separator=separator, why=why)
    if take == "keywords":
        return Column(column, take, relation=f"{kind}_says", type="word", why=why)
    return Column(column, take, f"has_{kind}", kind, separator, why=why)


def _pointing(text: pl.Series, ids: pl.Series) -> tuple[float, str]:
    """The largest share of values that are ids, and the sign that divides them for it."""
    known, best = ids.implode(), (mean(text.is_in(ids.implode())), "")
    for sign in SEPARATORS:
        if text.str.contains(sign, literal=True).any():
            parts = text.str.split(sign).explode().str.strip_chars()
            best = max(best, (mean(parts.is_in(known)), sign))
    return best


def _looks(values: pl.Series, name: str, ids: pl.Series) -> tuple[Kind, str, str]:
    """The way to take a column, the reason, and the separator of its cells."""
    text = cells(values).drop_nulls()
    n, distinct = len(text), text.n_unique()
    if distinct <= 1:
        return "leave out", "empty" if not n else "one value only", ""
    if mean(text.str.contains(_LINK.pattern)) > 0.5:
        return "leave out", "links or addresses", ""
    amounts = as_numbers(values).drop_nulls()
    plain_numbers = all_are(as_numbers(values), values)
    if len(ids) and (_named(name, _POINTS) or not plain_numbers):
        share, sign = _pointing(text, ids)
        if share >= _SHARED:
            return "items", f"{share:.0%} of the values are ids of items", sign
    separator = separator_of(values)
    if separator:
        split = text.str.split(separator).explode().str.strip_chars()
        return "list", f"{split.n_unique():,} values, several in a cell", separator
    if plain_numbers:
        whole = values.dtype.is_integer() | text.str.contains(r"^-?\d+$").all()
        if whole and distinct <= min(FEW, n // 2):
            return "entity", f"{distinct} numbers in {n:,} rows", ""
        return "bins", f"numbers from {min(amounts):g} to {max(amounts):g}", ""
    if are_dates(values):
        return "leave out", "dates", ""
    words = mean(text.str.count_matches(r"\S+"))
    if words >= _TEXT:
        return "keywords", f"texts of {words:.0f} words on average", ""
    if distinct <= max(min(FEW, n - 1), n // 2):
        return "entity", f"{distinct:,} values in {n:,} rows", ""
    return "leave out", f"{distinct:,} values in {n:,} rows: too few are shared", ""
