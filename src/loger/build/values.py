"""The values of a column as text, numbers, times, lists: whatever way they were written."""

from __future__ import annotations

import polars as pl

FEW = 12
"""Numbers of so many values or fewer are kinds rather than amounts."""
SEPARATORS = {"|": 0.8, ";": 0.8, ", ": 0.5, ",": 0.5, " / ": 0.5}
"""Signs that may divide values in a cell, and the share of what they divide that may be distinct:
a comma also stands in sentences, so its values must come again."""
_DATES = (
    "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%m/%d/%Y", "%m/%d/%Y %H:%M", "%d/%m/%Y", "%d/%m/%Y %H:%M",
)  # fmt: skip
_MONEY = r"^[$€£]?\s*([+-]?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?)\s*[$€£%]?$"
_ZONE = r"(:\d\d)(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?$"


def mean(values: pl.Series) -> float:
    """The mean, or the share of what is true; 0 of nothing."""
    return float(values.cast(pl.Float64).sum() / max(1, len(values)))


def cells(values: pl.Series) -> pl.Series:
    """The cells as text, empty ones null; the values of a list divided by ``|``."""
    kind = values.dtype
    if isinstance(kind, pl.List):
        text = values.list.eval(pl.element().cast(pl.String)).list.join("|")
    elif kind.is_float():
        # Whole numbers may have become floats, as in pandas for want of a null.
        present = values.drop_nulls()
        whole = bool(present.is_finite().all()) and bool((present == present.round()).all())
        text = values.cast(pl.Int64 if whole else kind, strict=False).cast(pl.String)
    else:
        text = values.cast(pl.String)
    text = text.str.strip_chars().rename("text")
    return text.to_frame().select(pl.when(pl.col("text") != "").then("text"))["text"]


def as_numbers(values: pl.Series) -> pl.Series:
    """The cells as numbers, null where they are none; "$1,299.00" is a number."""
    if values.dtype.is_numeric():
        numbers = values.cast(pl.Float64)
        return numbers.set(~numbers.is_finite(), None)
    if values.dtype != pl.String:
        return pl.Series([None] * len(values), dtype=pl.Float64)
    bare = values.str.strip_chars().str.extract(_MONEY).str.replace_all(",", "", literal=True)
    return bare.cast(pl.Float64, strict=False)


def as_moments(values: pl.Series) -> pl.Series:
    """The cells as seconds since 1970, or whatever unit numbers count in; null where they are
    no times. Of the ways to write a date the one counts that most cells are written in."""
    if values.dtype.is_temporal():
        return values.cast(pl.Datetime("ms")).dt.epoch("s")
    best = as_numbers(values).floor().cast(pl.Int64, strict=False)
    if values.dtype != pl.String:
        return best
    bare = cells(values).str.replace("T", " ", literal=True).str.replace(_ZONE, "$1")
    for form in _DATES:
        moments = bare.str.to_datetime(form, strict=False, exact=True).dt.epoch("s")
        if moments.null_count() < best.null_count():
            best = moments
    return best


def all_are(parsed: pl.Series, values: pl.Series) -> bool:
    """Could every cell that is not empty be read?"""
    filled = cells(values).is_not_null()
    return bool(filled.any()) and bool((parsed.is_not_null() | ~filled).all())


def are_dates(values: pl.Series) -> bool:
    """Are these times that are written as such, not numbers?"""
    return not all_are(as_numbers(values), values) and all_are(as_moments(values), values)


def separator_of(values: pl.Series) -> str:
    """What divides several values in one cell, or nothing.

    A sign does if a fifth of the cells have it, what it divides is short, and comes again.
    """
    if isinstance(values.dtype, pl.List):
        return "|"
    if values.dtype != pl.String or all_are(as_moments(values), values):
        return ""
    text = cells(values).drop_nulls()
    for sign, distinct in SEPARATORS.items():
        if mean(text.str.contains(sign, literal=True)) < 0.2:
            continue
        parts = text.str.split(sign).explode().str.strip_chars()
        words = mean(parts.str.count_matches(r"\S+"))
        if words <= 3 and parts.n_unique() <= distinct * len(parts):
            return sign
    return ""


def split_cells(pairs: pl.DataFrame, separator: str) -> pl.DataFrame:
    """The frame with one row for each part of ``tail``; empty ones are left out."""
    if separator:
        pairs = pairs.with_columns(pl.col("tail").str.split(separator)).explode("tail")
    pairs = pairs.with_columns(pl.col("tail").str.strip_chars())
    return pairs.filter(pl.col("tail").fill_null("") != "")
