"""Which column of the interactions names the items (users), and which one names them in their
own table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from loger.errors import DataError
from loger.tables.reviews.aspects import singular
from loger.tables.values import are_dates, as_numbers, cells, mean, nearly_all_are, zero_width

_HINTS = {
    "user": [
        "user", "customer", "client", "member", "buyer", "reviewer", "account", "person",
        "visitor", "listener", "reader", "viewer", "player", "borrower", "patron", "subscriber",
        "student", "guest", "household", "uploader", "contributor", "kunde", "nutzer",
        "benutzer", "leser", "mitglied", "usuario", "cliente",
    ],
    "item": [
        "item", "product", "sku", "asin", "article", "isbn", "movie", "film", "book", "track",
        "song", "game", "recipe", "course", "wine", "code", "artikel", "produkt", "buch", "medium",
        "rezept", "producto", "artículo", "articulo", "libro", "receta",
    ],
}  # fmt: skip
_SHARED = 0.5  # of the ids in the interactions that a table must have for a guess
_UNIQUE = 0.5  # of a table's rows that must differ in the column of its ids


def columns_of(frame: pl.DataFrame) -> list[str]:
    """The columns of a table as they are in its file."""
    return [c for c in frame.columns if c != "line"]


def words_of(name: str) -> list[str]:
    """The words of a column's name: customerId, customer_id and "Customer ID" alike."""
    return re.findall(r"[^\W\d_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def named(name: str, hints: Iterable[str]) -> int:
    """How well a column's name fits: 2 as one of its words, 1 as the beginning of one."""
    words = words_of(name)
    if any(hint in words for hint in hints):
        return 2
    return int(any(word.startswith(hint) for word in words for hint in hints))


class _Pair(NamedTuple):
    """A column of the interactions and one of the table that may name the same."""

    column: str
    id: str
    share: float
    """Of the ids in the interactions that the table has."""
    unique: float
    """Of the table's rows that differ in the column."""
    names: float
    """How well the names of the two fit."""

    @property
    def score(self) -> float:
        return self.share + 0.3 * self.unique + self.names


def matched(
    what: str,
    interactions: pl.DataFrame,
    table: pl.DataFrame | None,
    chosen: str | None,
    taken: Sequence[str | None],
    path: Path | None,
    table_path: Path | None,
) -> tuple[str, str]:
    """The column of the interactions that names items (users), and that of their own table.

    ``chosen`` is taken as it is. A table may have ids twice; ids that it does not share are an
    error, for nothing that it says would be of an item in the interactions.
    """
    check_column(interactions, chosen, path)
    free = [c for c in columns_of(interactions) if c not in taken] if chosen is None else [chosen]
    if table is None:
        best = max(free, key=lambda c: (named(c, _HINTS[what]), "id" in words_of(c)), default="")
        if chosen is not None or (best and named(best, _HINTS[what])):
            return best, ""
        guess = _by_values(what, interactions, free)
        if not guess:
            raise _not_found(what, free, path)
        return guess, ""
    hints = _HINTS[what] + (
        [] if table_path is None else [*map(singular, words_of(table_path.stem))]
    )
    pairs = [_pair(interactions, table, c, t, hints) for c in free for t in columns_of(table)]
    needed = _SHARED if chosen is None else 1e-9
    fitting = [p for p in pairs if p.share >= needed and p.unique >= _UNIQUE]
    if fitting:
        best_pair = max(fitting, key=lambda p: p.score)
        return best_pair.column, best_pair.id
    alike = [p for p in pairs if p.names > 0.3 or chosen is not None]
    if alike:
        raise _mismatch(
            what, interactions, table, max(alike, key=lambda p: p.score), path, table_path
        )
    raise _not_found(what, free, path, table, table_path)


_NO_IDS = ("rating", "rate", "star", "score", "price", "cost", "amount", "quantity", "date", "time")
"""Words in names of columns that can't contain ids."""


def _by_values(what: str, interactions: pl.DataFrame, free: Sequence[str]) -> str:
    """The column that may name items (users) though it isn't called so, or nothing: of those with
    texts or ids that come again, the one with most values. Users stand before items."""
    other = _HINTS["user" if what == "item" else "item"]
    possible = [c for c in free if not named(c, (*other, *_NO_IDS))]
    counts = {c: _distinct_ids(interactions[c], c) for c in possible}
    found = [c for c in possible if counts[c]]
    if what == "item" and not any(named(c, other) for c in free):
        found = found[1:]
    return max(found, key=lambda c: counts[c], default="")


def _distinct_ids(values: pl.Series, name: str) -> int:
    """How many values a column has, if they come again and may be ids: texts, or whole numbers of
    a column that is called so."""
    text = cells(values).drop_nulls()
    if are_dates(values) or not 1 < text.n_unique() < len(text) or len(text) < 0.9 * len(values):
        return 0
    numbers = nearly_all_are(as_numbers(values), values)
    whole = bool(text.str.contains(r"^\d+$").all()) and words_of(name)[-1:] == ["id"]
    return text.n_unique() if whole or not numbers else 0


def check_column(frame: pl.DataFrame, column: str | None, file: Path | str | None) -> None:
    """Refuse a column that was named and is not in a table; nothing was named by "" and None."""
    if column and column not in frame.columns:
        raise DataError(
            f"there is no column {column!r}, only {', '.join(columns_of(frame))}",
            path=file or None,
            remedy="name one of them, or fix the mapping",
        )


def _pair(
    interactions: pl.DataFrame, table: pl.DataFrame, column: str, id: str, hints: Sequence[str]
) -> _Pair:
    theirs = cells(table[id])
    distinct = cells(interactions[column]).drop_nulls().unique()
    if width := zero_width(distinct, theirs):
        distinct, theirs = distinct.str.zfill(width), theirs.str.zfill(width)
    fit = 0.1 * named(column, hints) + 0.05 * named(id, hints) + 0.2 * (column == id)
    share = mean(distinct.is_in(theirs.implode()))
    return _Pair(column, id, share, theirs.drop_nulls().n_unique() / max(1, len(theirs)), fit)


def _not_found(
    what: str,
    free: Sequence[str],
    path: Path | None,
    table: pl.DataFrame | None = None,
    table_path: Path | None = None,
) -> DataError:
    where = f"; the columns are {', '.join(free)}"
    if table is not None:
        file = f"the {what}s" if table_path is None else table_path.name
        theirs = ", ".join(columns_of(table))
        where = f": no column of {file} ({theirs}) has the same IDs as {', '.join(free)}"
    return DataError(
        f"loger found no column that names the {what}{where}",
        path=path,
        remedy=f"name it: --set {what}_column=NAME, or {what}='COLUMN' in Python",
    )


def _mismatch(
    what: str,
    interactions: pl.DataFrame,
    table: pl.DataFrame,
    pair: _Pair,
    path: Path | None,
    table_path: Path | None,
) -> DataError:
    """That the ids of the two tables differ, with two that may mean the same."""
    ours, theirs = (
        f"{file.stem if file else name}.{column}"
        for file, name, column in (
            (path, "interactions", pair.column), (table_path, f"{what}s", pair.id),
        )
    )  # fmt: skip
    here, there = _alike(cells(interactions[pair.column]), cells(table[pair.id]))
    return DataError(
        f"{pair.share:.0%} of the IDs in {ours} are also in {theirs}; "
        f"compare {here!r} with {there!r}",
        path=path,
        remedy=f"write the IDs the same way in both, or name the column: --set {what}_column=NAME, "
        f"or {what}='COLUMN' in Python",
    )


def _alike(ours: pl.Series, theirs: pl.Series) -> tuple[str, str]:
    """One id from each table, if possible two that contain the same number."""
    known = theirs.drop_nulls().unique(maintain_order=True).to_list()
    distinct = ours.drop_nulls().unique(maintain_order=True)
    mine = distinct.filter(~distinct.is_in(known)).to_list() or ["nothing"]
    numbers = {number: name for name in reversed(known) if (number := _number(name))}
    for name in mine:
        if (number := _number(name)) in numbers:
            return name, numbers[number]
    return mine[0], known[0] if known else "nothing"


def _number(name: str) -> str:
    """The digits of a name without zeros in front; nothing if there are none."""
    return "".join(re.findall(r"\d", name.removesuffix(".0"))).lstrip("0")
