"""Frames of polars and pandas that are in memory already, as polars frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loger.errors import DataError

if TYPE_CHECKING:
    import polars as pl


def is_frame(source: object) -> bool:
    """Is this a frame of polars or pandas, or what looks like one?"""
    return hasattr(source, "columns") and hasattr(source, "__getitem__")


def polars_frame(source: object, name: str | None = None) -> pl.DataFrame:
    """The table of a frame with the number of each row, from 1, as its ``line``; a column that
    is called so already gets another name. ``name`` is for messages."""
    import polars as pl  # not where it is only asked whether something is a frame

    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if not is_frame(source):
        raise DataError(
            "is not a frame of polars or pandas",
            path=name,
            value=type(source).__name__,
            remedy="give a DataFrame, or read files with loger.data.load",
        )
    frame = source if isinstance(source, pl.DataFrame) else _from_pandas(source, name)
    free = "line_"
    while free in frame.columns:
        free += "_"
    return frame.rename({"line": free}, strict=False).with_row_index("line", offset=1)


def _from_pandas(source: Any, name: str | None) -> pl.DataFrame:
    """Column by column through Python's own values: so it needs no pyarrow, and missing values
    become null."""
    import polars as pl

    index = [label for label in getattr(source.index, "names", ()) if label is not None]
    if index and not set(index) & set(source.columns):
        source = source.reset_index()  # set_index("user_id") makes an id no less of a column
    names = [str(c) for c in source.columns]
    twice = [c for c in names if names.count(c) > 1]
    if twice:
        raise DataError(
            "has two columns with the same name",
            path=name,
            value=twice[0],
            remedy="give every column its own name",
        )
    data = {}
    for column in source.columns:
        values = [_plain(v) for v in source[column].tolist()]
        try:
            data[str(column)] = pl.Series(values, strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"column {column} mixes values of different kinds ({str(error).splitlines()[0]})",
                path=name,
                remedy="make them all text, or all numbers, or all dates",
            ) from None
    return pl.DataFrame(data)


def _plain(value: Any) -> Any:
    """A value of a pandas column; NaN, NaT and NA, which differ from themselves, are None."""
    try:
        missing = value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth, arrays have many
        missing = type(value).__name__ == "NAType"
    if missing:
        return None
    return value.tolist() if hasattr(value, "tolist") else value
