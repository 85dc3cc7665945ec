"""Times as whole seconds, from numbers, from ISO dates in text, or from columns of dates."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import tables
from loger.errors import DataError

_ISO = (
    r"^(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,]\d+)? ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?$"
)
"""Day, hour and minute, second, zone; what follows the day may be absent."""


def seconds(frame: pl.DataFrame, column: str, path: Path) -> pl.DataFrame:
    """The frame with one column as whole seconds (or whatever unit its numbers count in).

    Fractions are cut off. Dates become seconds since 1970, those without a zone as if in UTC:
    columns of dates as they are, text if it is ISO 8601 and all rows are written alike, that is
    as days, as moments, or as moments with a zone.
    """
    if frame.schema[column] in (pl.Date, pl.Datetime):
        frame = tables.filled(frame, [column], path)
        return frame.with_columns(pl.col(column).cast(pl.Datetime("ms")).dt.epoch("s"))
    exact = pl.col(column).cast(pl.Int64, strict=False)
    cut = pl.col(column).cast(pl.Float64, strict=False).floor().cast(pl.Int64, strict=False)
    value = frame.select(pl.coalesce(exact, cut).alias(column))[column]
    way = ""
    if frame.schema[column] == pl.String and len(value) and value[0] is None:
        value, way = _moments(frame[column])
    bad = frame.filter(value.is_null())
    if len(bad):
        raise DataError(
            f"{column} should be {f'{way}, as in the first row' if way else 'a number'}",
            path=path,
            line=int(bad["line"][0]),
            value=bad[column][0] if bad[column][0] is not None else "",
            remedy="write times as numbers, for example as seconds since 1970, or all as ISO dates "
            "such as 2024-05-01 or 2024-05-01T10:00:00",
        )
    return frame.with_columns(value.alias(column))


def _moments(text: pl.Series) -> tuple[pl.Series, str]:
    """ISO dates as seconds since 1970, null where a row is not written as the first one is;
    and the name of that way, none if the first row is no date."""
    bare = text.str.strip_chars()
    day, clock, second, zone = (bare.str.extract(_ISO, k) for k in range(1, 5))
    way = clock.is_not_null().cast(pl.Int8) + zone.is_not_null().cast(pl.Int8)
    whole = day + " " + clock.fill_null("00:00") + second.fill_null(":00")
    moment = whole.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False).dt.epoch("s")
    moments = (moment - seconds_ahead(zone)).set(way != way[0], None)
    if moment[0] is None:
        return pl.Series([None] * len(text), dtype=pl.Int64), ""
    return moments, ("a day", "a moment without a zone", "a moment with a zone")[int(way[0])]


def seconds_ahead(zone: pl.Series) -> pl.Series:
    """By how much the clocks of zones are ahead of UTC; 0 where no number is said.

    >>> seconds_ahead(pl.Series(["+02:00", "-0330", "+01", "Z", "GMT", None])).to_list()
    [7200, -12600, 3600, 0, 0, 0]
    """
    ahead = zone.str.replace(":", "", literal=True)
    hours = ahead.str.slice(0, 3).cast(pl.Int64, strict=False).fill_null(0)
    minutes = (ahead.str.slice(0, 1) + ahead.str.slice(3)).cast(pl.Int64, strict=False).fill_null(0)
    return 3600 * hours + 60 * minutes
