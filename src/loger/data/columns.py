"""The columns of the plain format: the names they may have, and whether a first line is a header.

Case, blanks and signs in a name do not count: ``User ID``, ``user_id`` and ``userId`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from loger.data.dataset import Note
from loger.errors import DataError

NUMBERS = ("rating", "strength", "count", "time")
"""Columns of interactions that are not text."""
_PLAIN_WORDS = frozenset(
    re.findall(
        r"\w+",
        "customer client member buyer reviewer visitor account person u product movie film book "
        "article song track game recipe course business artist sku asin isbn i stars overall ts "
        "strength count plays listens quantity dwell weight "
        "date source from h s rel edge r p target to t o",
    )
)
"""Names of columns that are as likely names of things: alone they make no header."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DATE = r"^\d{4}-\d\d-\d\d"
_ENOUGH = 3  # rows that must agree before ids are held to look alike


@dataclass(frozen=True)
class Columns:
    """The columns of a kind of table: their order without a header, of which the last
    ``optional`` may be absent, and for each of ours the names it may have, best first."""

    known: Mapping[str, Sequence[str]]
    order: tuple[str, ...]
    optional: int = 0

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that must be there."""
        return self.order[: len(self.order) - self.optional]

    def chosen(self, names: Sequence[str]) -> dict[str, str]:
        """Of the columns that are there the one that is ours, by our name."""
        by_bare_name = dict[str, str]()
        for name in names:
            by_bare_name.setdefault(_bare(name), name)
        taken = dict[str, str]()
        for ours, theirs in self.known.items():
            fitting = (by_bare_name[_bare(w)] for w in theirs if _bare(w) in by_bare_name)
            first = next((name for name in fitting if name not in taken.values()), None)
            if first is not None:
                taken[ours] = first
        return taken

    def are_named_by(self, first: Sequence[str]) -> bool:
        """Is this first line a header? So it is with a name that only columns have, or with
        names for all columns that must be there and two at least."""
        words = {_bare(word) for some in self.known.values() for word in some}
        if any(_bare(cell) in words - _PLAIN_WORDS for cell in first):
            return True
        chosen = self.chosen(first)
        return len(chosen) > 1 and set(self.needed) <= set(chosen)

    def doubt(
        self, frame: pl.DataFrame, path: Path, notes: list[Note], seen: pl.Series | None = None
    ) -> None:
        """Refuse a table read without header whose first line must be one; note it if it may be.

        It is data if one of its cells comes again in its column, is of the same kind (number,
        date, code with a digit) as another there, or is a name ``seen`` elsewhere. Else it is a
        header if it has a word above numbers or dates, or nothing but words above codes.
        """
        names = [c for c in frame.columns if c != "line"]
        first, rest = frame.row(0, named=True), frame[1:]
        if not len(rest) or (seen is not None and any((seen == first[c]).any() for c in names)):
            return
        kinds = {c: _kinds(frame[c].head(1000)) for c in names}
        for c in names:
            alike = kinds[c][0] != "word" and kinds[c][0] in kinds[c][1:]
            if first[c] == "" or alike or (rest[c] == first[c]).any():
                return
        words = [c for c in names if kinds[c][0] == "word"]
        above = {c: set(kinds[c][1:]) for c in words}
        enough = len(rest) >= _ENOUGH
        strange = [
            c for c in words if above[c] in ({"number"}, {"date"}) and (enough or c in NUMBERS)
        ]
        coded = [c for c in self.needed if above.get(c, {"word"}) <= {"number", "code"}]
        cells, wanted = (
            ",".join(str(first[c]) for c in names),
            ", ".join(self.known[c][0] for c in self.needed),
        )
        if strange or (enough and len(coded) == len(self.needed)):
            raise DataError(
                f"the first line looks like a header, but it lacks the columns {', '.join(names)}",
                path=path,
                line=int(first["line"]),
                value=cells,
                remedy=f"name the columns {wanted}, or let `loger data build table` map them; "
                "if it's data, add a header",
            )
        what = (
            f"first line of {path.name} read as data (if it's a header, name its columns {wanted})"
        )
        notes.append(Note(what, 1, cells))


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _kinds(cells: pl.Series) -> list[str]:
    """What each cell looks like: a number, a date, a code (with a digit), or a word."""
    cell = pl.col("cell")
    kind = (
        pl.when(cell.str.contains(_NUMBER))
        .then(pl.lit("number"))
        .when(cell.str.contains(_DATE))
        .then(pl.lit("date"))
        .when(cell.str.contains(r"\d"))
        .then(pl.lit("code"))
        .otherwise(pl.lit("word"))
    )
    return cells.to_frame("cell").select(kind)["literal"].to_list()


# ── the tables of the plain format ──────────────────────────────────────────────────────────


def _with_ids(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in (name, f"{name}_id"))


_USER = (
    *_with_ids("user", "customer", "client", "member", "buyer", "reviewer", "visitor"),
    *_with_ids("account", "person"),
    *("uid", "u"),
)
_ITEM = (
    *_with_ids("item", "product"),
    *("sku", "asin", "isbn", "iid"),
    *_with_ids("movie", "film", "book", "article", "song", "track", "game", "recipe", "course"),
    *_with_ids("business", "artist"),
    "i",
)
INTERACTIONS = Columns(
    {
        "user": _USER,
        "item": _ITEM,
        "rating": ("rating", "score", "stars", "overall"),
        "strength": ("strength", "quantity", "qty", "dwell", "dwell_time", "watch_time", "weight"),
        "count": ("count", "plays", "play_count", "listens", "listen_count"),
        "time": (
            *("time", "timestamp", "datetime", "ts", "date"),
            *("created_at", "played_at", "bought_at"),
            *("purchased_at", "ordered_at", "watched_at", "read_at"),
        ),
        "part": ("part", "split"),
    },
    ("user", "item", "rating", "time"),
    2,
)
TRIPLES = Columns(
    {
        "head": (*_with_ids("head", "subject", "source"), "from", "h", "s"),
        "relation": (*_with_ids("relation", "predicate", "rel"), "edge", "r", "p"),
        "tail": (*_with_ids("tail", "object", "target"), "to", "t", "o"),
        "head_type": ("head_type", "subject_type", "source_type"),
        "tail_type": ("tail_type", "object_type", "target_type"),
    },
    ("head", "relation", "tail"),
)
ITEMS = Columns(
    {
        "name": ("id", *_ITEM, "name"),
        "label": (
            *("label", "title", "name", "item_name", "item_title", "product_name", "product_title"),
            *("movie_title", "book_title"),
        ),
    },
    ("name", "label"),
    1,
)
USERS = Columns(
    {
        "name": ("id", *_USER, "name"),
        "label": ("label", "name", "user_name", "customer_name", "title"),
    },
    ("name", "label"),
    1,
)
