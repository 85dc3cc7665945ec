"""The one place that reads dates. Times are whole seconds.

``seconds`` is strict: numbers, columns of dates, or ISO dates in text that are all written alike;
anything else is an error. ``dates`` reads whatever way each cell is written and says what it
guessed, for tables of any shop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

import polars as pl

from loger.data import table_files

_ISO = (
    r"^(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](\d\d:\d\d)(?::\d\d)?(?:[.,]\d+)? ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?$"
)
"""Day, hour and minute, zone; what follows the day may be absent."""
DateOrder = Literal["", "day first", "month first"]
"""How to read 03/04/2024, if that is known."""
DAY_FIRST: Final = "day first"
MONTH_FIRST: Final = "month first"
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y",
         "%d %B %Y", "%B %d, %Y")  # fmt: skip
_SLASHED = {MONTH_FIRST: ("%m/%d/%Y", "%m/%d/%y"), DAY_FIRST: ("%d/%m/%Y", "%d/%m/%y")}
_CLOCK = r" ([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d|60))?$"
_ZONE = r"(:\d\d)(?:[.,]\d+)?\s*([Zz]|GMT|UTC?|[+-]\d\d(?::?\d\d)?)?(?:\s*\([^)]*\))?$"
_WEEKDAY = r"(?i)^(?:mon|tue|wed|thu|fri|sat|sun)\p{L}*\.?,?\s+"


def seconds(frame: pl.DataFrame, column: str, path: Path) -> pl.DataFrame:
    """The frame with one column as whole seconds (or whatever unit its numbers count in).

    Fractions are cut off. Dates become seconds since 1970, those without a zone as if in UTC:
    columns of dates as they are, text if it is ISO 8601 and all rows are written alike, that is
    as days, as moments, or as moments with a zone.
    """
    if frame.schema[column] in (pl.Date, pl.Datetime):
        frame = table_files.filled(frame, [column], path)
        return frame.with_columns(epoch(frame[column]))
    exact = pl.col(column).cast(pl.Int64, strict=False)
    cut = pl.col(column).cast(pl.Float64, strict=False).floor().cast(pl.Int64, strict=False)
    value = frame.select(pl.coalesce(exact, cut).alias(column))[column]
    way = ""
    if frame.schema[column] == pl.String and len(value) and value[0] is None:
        value, way = _moments(frame[column])
    bad = frame.filter(value.is_null())
    table_files.refuse(
        bad,
        f"{column} should be {f'{way}, as in the first row' if way else 'a number'}",
        path,
        column,
        remedy="write times as numbers, for example as seconds since 1970, or all as ISO dates "
        "such as 2024-05-01 or 2024-05-01T10:00:00",
    )
    return frame.with_columns(value.alias(column))


def _moments(text: pl.Series) -> tuple[pl.Series, str]:
    """ISO dates as seconds since 1970, null where a row is not written as the first one is;
    and the name of that way, none if the first row is no date."""
    bare = text.str.strip_chars()
    iso, clock, zone = (bare.str.extract(_ISO, k).is_not_null() for k in (1, 2, 3))
    way = clock.cast(pl.Int8) + zone.cast(pl.Int8)
    day, seconds, ahead = _day_and_clock(bare.set(~iso, None))
    moment = epoch(day.str.to_date("%Y-%m-%d", strict=False)) + seconds - ahead
    if moment[0] is None:
        return pl.Series([None] * len(text), dtype=pl.Int64), ""
    ways = ("a day", "a moment without a zone", "a moment with a zone")
    return moment.set(way != way[0], None), ways[int(way[0])]


def _day_and_clock(text: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Dates without the time of day, as text; its seconds, 0 where there is none; and by how many
    seconds its zone is ahead of UTC."""
    bare = text.str.replace(_WEEKDAY, "").str.replace(r"(\d)[Tt](\d)", "$1 $2")
    ahead = seconds_ahead(bare.str.extract(_ZONE, 2))
    bare = bare.str.replace(_ZONE, "$1")
    clock = pl.DataFrame(
        [bare.str.extract(_CLOCK, k).cast(pl.Int64).alias(str(k)) for k in (1, 2, 3)]
    )
    seconds = clock.select(pl.col("1") * 3600 + pl.col("2") * 60 + pl.col("3").fill_null(0))["1"]
    return bare.str.replace(_CLOCK, ""), seconds.fill_null(0), ahead


def epoch(dates: pl.Series) -> pl.Series:
    """Days or moments as seconds since 1970."""
    return dates.cast(pl.Datetime("ms")).dt.epoch("s")


def seconds_ahead(zone: pl.Series) -> pl.Series:
    """By how much the clocks of zones are ahead of UTC; 0 where no number is said.

    >>> seconds_ahead(pl.Series(["+02:00", "-0330", "+01", "Z", "GMT", None])).to_list()
    [7200, -12600, 3600, 0, 0, 0]
    """
    ahead = zone.str.replace(":", "", literal=True)
    hours = ahead.str.slice(0, 3).cast(pl.Int64, strict=False).fill_null(0)
    minutes = (ahead.str.slice(0, 1) + ahead.str.slice(3)).cast(pl.Int64, strict=False).fill_null(0)
    return 3600 * hours + 60 * minutes


class Moments(NamedTuple):
    """A column of times."""

    seconds: pl.Series
    """Since 1970, or whatever unit numbers count in; null where a cell is no time."""
    ways: tuple[str, ...] = ()
    """A cell of each way in which dates are written."""
    order: DateOrder = ""
    """How dates like 03/04/2024 were read, where there are any."""
    guessed: bool = False
    """Whether nothing in the column says which order it is."""
    mixed: tuple[int, str] | None = None
    """How many cells are dates only in the other order, and the first of them, where others are
    dates only in this one."""


def dates(text: pl.Series, order: DateOrder) -> Moments:
    """The times of cells that are dates, with or without a time of day, in UTC unless they say
    another zone: 2024-05-31T10:45:00+02:00, "Fri, 31 May 2024 10:45:00 +0200"."""
    day, seconds, ahead = _day_and_clock(text)
    slashed = {which: _first_of(day, forms)[0] for which, forms in _SLASHED.items()}
    found, ways = _first_of(day, _DAYS)
    here = {which: len(read) - read.null_count() for which, read in slashed.items()}
    guessed = not order and here[DAY_FIRST] == here[MONTH_FIRST] > 0
    if not order:
        dotted = bool((found.is_not_null() & day.str.contains(r"^\d\d?[.-]")).any())
        surplus = here[DAY_FIRST] - here[MONTH_FIRST] + (0.5 if dotted else 0)
        order = DAY_FIRST if surplus > 0 else MONTH_FIRST
        guessed &= not dotted
    if here[order]:
        ways.append(int(slashed[order].is_not_null().arg_max() or 0))
        found = found.zip_with(found.is_not_null(), slashed[order])
    mixed = _mixed(text, slashed[order], slashed[MONTH_FIRST if order == DAY_FIRST else DAY_FIRST])
    moments = epoch(found) + seconds - ahead
    examples = tuple(str(text[k]) for k in sorted(ways))
    return Moments(moments, examples, order if any(here.values()) else "", guessed, mixed)


def _mixed(text: pl.Series, read: pl.Series, other: pl.Series) -> tuple[int, str] | None:
    """The cells that are dates only in the other order, if some are only in the one taken."""
    only = text.filter(other.is_not_null() & read.is_null())
    both = len(only) > 0 and bool((read.is_not_null() & other.is_null()).any())
    return (len(only), str(only[0])) if both else None


def _first_of(day: pl.Series, forms: tuple[str, ...]) -> tuple[pl.Series, list[int]]:
    """The dates of cells by the first of these forms that each has; and the place of the first
    cell of each form that occurs."""
    found, ways = pl.Series([None] * len(day), dtype=pl.Date), list[int]()
    for form in forms:
        if not found.null_count():
            break
        # %Y would take 24 for the year 24.
        fits = day.str.contains(r"\d{4}") if "%Y" in form else day.is_not_null()
        dates = day.set(~fits, None).str.to_date(form, strict=False, exact=True)
        new = dates.is_not_null() & found.is_null()
        if new.any():
            ways.append(int(new.arg_max() or 0))
            found = found.zip_with(~new, dates)
    return found, ways
