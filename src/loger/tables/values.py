"""Reads the cells of a column as text, numbers, times or lists, however people write them."""

from __future__ import annotations

import re

import polars as pl

from loger.data.times import DateOrder, Moments, dates, epoch

FEW = 12
"""A column with at most this many distinct numbers contains kinds rather than amounts."""
SEPARATORS = {"|": 0.8, ";": 0.8, ", ": 0.5, ",": 0.5, " / ": 0.5}
"""Signs that may divide values in a cell, and the share of what they divide that may be distinct:
a comma also stands in sentences, so its values must come again."""
NEARLY_ALL = 0.95
"""The share of a column's cells that must be times (numbers) for it to be a column of them."""
MOSTLY_NUMBERS = 0.9
"""The share of a column's cells that must be numbers for it to be cut into ranges: some have
"unknown" among them, and only these facts are lost."""
MOSTLY_DATES = 0.8
"""The share of a column's cells that must be dates for it to be one of times: nothing else looks
like a date, and what can't be read is noted."""
MOSTLY_FILLED = 0.8
"""The share of rows that must have a time (rating): the others are lost when it is taken."""
_DAY_NUMBER = r"^(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$"
_MONEY = r"^[$€£]?\s*([+-]?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?)\s*[$€£%]?$"
_DECIMAL_COMMA = r"^[$€£]?\s*[+-]?(\d{1,3}(\.\d{3})+|\d+)?,(\d{1,2}|\d{4,})\s*[$€£%]?$"
_DECIMAL_POINT = r",.*\.|\.\d\d?\D*$"
_CURRENCIES = {"€": "EUR", "euro": "EUR", "euros": "EUR", "$": "USD", "us$": "USD", "£": "GBP",
               "¥": "JPY", "₹": "INR", "zł": "PLN", "sfr": "CHF", "fr": "CHF"} | {
    code: code.upper() for code in ("eur", "usd", "gbp", "chf", "jpy", "inr", "sek", "nok", "dkk",
                                    "pln", "czk", "aud", "cad", "brl", "mxn")
}  # fmt: skip
"""Signs and words of currencies, as codes."""
_COIN = "(" + "|".join(re.escape(c) for c in sorted(_CURRENCIES, key=len, reverse=True)) + r")\.?"
_COIN_FIRST = rf"(?i)^{_COIN}\s*([+-]?[\d.,].*)$"
_COIN_LAST = rf"(?i)^(.*[\d.,–-])\s*{_COIN}$"
_NOTHING = r"(?i)^(free|free of charge|for free|gratis|kostenlos|umsonst|gratuit|gratuito)$"
"""What people write for a price of 0."""
_MISSING = (
    r"(?i)^(#?n/a|na|n\.a\.|null|nan|unknown|not (known|available)|unbekannt|k\.\s?a\.|"
    r"desconocid[oa]|[-–—?]*)$"
)
"""What people write where they don't know a value. A word such as "none" may be a value."""
_WHOLE_FLOAT = r"^[+-]?\d+\.0$"
_SOME_DATE = r"^((19|20)\d\d[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d\d|\d{4}))\b"
_ADDRESS = r"^(.*[^\s<>].*?)\s*<[^<>\s]+@[^<>\s]+>$"
_STARS = r"^(★+)☆*$"
_OUT_OF = r"^(\d+(?:[.,]\d+)?)\s*(?:/|of|out of|von|de|sur)\s*(\d+)\b[^\d]*$"
_POINTS = (
    r"(?i)^(\d+(?:[.,]\d+)?)\s*(?:stars?|points?|pts\.?|★|sterne?|punkte?|estrellas?|étoiles?)$"
)

_VOLUME = r"(?:\b(?:vol|volume|v|bk|book|no|nr|bd|band|teil|part|t|tomo|libro)\b\.?\s*|#)"
NUMBERED = rf"(?i)(?:\s*[;,/(]\s*{_VOLUME}?|\s+{_VOLUME}|\s*#)\d{{1,3}}\s*\)?$"
"""The number of a volume behind the name of its series, as in "Dune ; 3"; that of "Apollo 13" is
part of the name."""
_UNITS = {"bpm", "km", "kg", "g", "cm", "mm", "m", "l", "ml", "min", "ms", "s", "h", "hours",
          "minutes", "seconds", "pages", "years", "eur", "usd", "gbp", "chf", "gb", "mb", "kwh",
          "kcal", "watt", "%"}  # fmt: skip
"""The last word of a column's name, or of its cells, that is the unit of its numbers."""
_MEASURED = r"^([+-]?\d[\d.,]*)\s*(\p{L}+)\.?$"


def unit_of(column: str) -> tuple[str, str]:
    """The name of a column of numbers as people say it, and their unit.

    >>> unit_of("tempo_bpm"), unit_of("Price (EUR)"), unit_of("year"), unit_of("g")
    (('tempo', 'bpm'), ('Price', 'EUR'), ('year', ''), ('g', ''))
    """
    words = column.replace("_", " ").split()
    last = words[-1] if len(words) > 1 else ""
    bracketed = last[:1] + last[-1:] in ("()", "[]")
    unit = last[1:-1] if bracketed else last if last.lower() in _UNITS else ""
    return " ".join(words[:-1] if unit else words), unit


def unit_within(values: pl.Series) -> str:
    """The unit that is written behind nearly all numbers of a column, if it is one that we know.

    >>> unit_within(pl.Series(["45 min", "90 min", "5min"])), unit_within(pl.Series(["4 a", "5 a"]))
    ('min', '')
    """
    if values.dtype != pl.String:
        return ""
    units = cells(values).drop_nulls().str.extract(_MEASURED, 2).str.to_lowercase()
    first = units.drop_nulls()[:1].to_list()
    same = bool(first) and first[0] in _UNITS and mean((units == first[0]).fill_null(False))
    return str(first[0]) if same >= NEARLY_ALL else ""


def mean(values: pl.Series) -> float:
    """The mean, or the share of what is true; 0 of nothing."""
    return float(values.cast(pl.Float64).sum() / max(1, len(values)))


def cells(values: pl.Series, *, names: bool = False) -> pl.Series:
    """The cells as text, the values of a list divided by ``|``; null where they are empty or say
    that nothing is known, such as "N/A". With ``names`` such words stay: a film may be "Unknown".

    >>> cells(pl.Series(["Acme", " N/A", "-", "", "none"])).to_list()
    ['Acme', None, None, None, 'none']
    """
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
    text = text.set(text.str.contains("^$" if names else _MISSING).fill_null(False), None)
    if kind == pl.String and text.str.contains(_WHOLE_FLOAT).all() and text.is_not_null().any():
        text = text.str.strip_suffix(".0")  # whole numbers that were written as floats
    return text


def stands_for_nothing(values: pl.Series) -> pl.Series:
    """Which cells are filled, but with a word for a missing value."""
    return cells(values, names=True).is_not_null() & cells(values).is_null()


def zero_width(ours: pl.Series, theirs: pl.Series) -> int:
    """The width to which ids must be filled with zeros so that those of two columns are written
    alike, as 32 and 00032; 0 if they need not, or if that would be a guess."""
    sides = [side.drop_nulls() for side in (ours, theirs)]
    if not all(len(side) and side.str.contains(r"^\d+$").all() for side in sides):
        return 0
    zeros = [bool(side.str.contains(r"^0\d").any()) for side in sides]
    if zeros[0] == zeros[1]:
        return 0
    filled, bare = sides[zeros.index(True)], sides[zeros.index(False)]
    width, longest = filled.str.len_chars().unique(), bare.str.len_chars().max()
    fits = len(width) == 1 and isinstance(longest, int) and longest <= width[0]
    return int(width[0]) if fits else 0


def as_numbers(values: pl.Series) -> pl.Series:
    """The cells as numbers, null where they are none; "$1,299.00" is a number, and "1.299,00 €"
    too where cells of the column have a decimal comma; beside decimal points, only those have one
    that can't be thousands. So is "45 min" where nearly all cells have that unit. Where some are
    money, "EUR 12.50", "12,50 €" and "12.–" are alike, and "free" is 0."""
    if values.dtype.is_numeric():
        numbers = values.cast(pl.Float64)
        return numbers.set(~numbers.is_finite(), None)
    if values.dtype != pl.String:
        return pl.Series([None] * len(values), dtype=pl.Float64)
    text = values.str.strip_chars()
    if unit := unit_within(values):
        text = text.str.replace(rf"(?i)\s*{unit}\.?$", "")
    if currencies_of(values):
        text = _without_coins(text)
    commas = text.str.contains(_DECIMAL_COMMA).fill_null(False)
    if commas.any():  # 12,50 is no number of thousands, so beside 12.50 it has a decimal comma
        mixed = bool(text.str.contains(_DECIMAL_POINT).any())
        plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
        text = plain.zip_with(commas, text) if mixed else plain
    bare = text.str.extract(_MONEY).str.replace_all(",", "", literal=True)
    return bare.cast(pl.Float64, strict=False)


def currencies_of(values: pl.Series) -> list[str]:
    """The currencies that amounts of a column are in, the most frequent first.

    >>> currencies_of(pl.Series(["€12.50", "3 EUR", "$4", "free", "7", "a EUR"]))
    ['EUR', 'USD']
    """
    if values.dtype != pl.String:
        return []
    text = values.str.strip_chars()
    named = text.str.extract(_COIN_FIRST, 1)
    named = named.zip_with(named.is_not_null(), text.str.extract(_COIN_LAST, 2))
    named = named.filter(_without_coins(text).str.contains(r"^[+-]?\d").fill_null(False))
    codes = named.str.to_lowercase().drop_nulls().replace_strict(_CURRENCIES, default=None)
    return [str(code) for code in codes.drop_nulls().value_counts(sort=True)[:, 0]]


def _without_coins(text: pl.Series) -> pl.Series:
    """Amounts without their currency and the signs between their thousands; what is free is 0."""
    bare = text.str.replace(_COIN_FIRST, "$2").str.replace(_COIN_LAST, "$1")
    bare = bare.str.replace(r"[.,][–-]+$", "")
    for _ in range(2):  # 1 234 567: a digit that was matched is not matched again
        bare = bare.str.replace_all(r"(\d)['’\s](\d{3})", "$1$2")
    return bare.str.replace(_NOTHING, "0")


def as_ratings(values: pl.Series) -> pl.Series:
    """The cells as ratings, null where they aren't: 4, "4 stars", "4/5" and "★★★★☆" are the same.

    Where cells are out of different numbers, as 4/5 and 8/10, all of them are shares of the
    largest.

    >>> as_ratings(pl.Series(["4", "4 Sterne", "4/5", "★★★★☆", "8 out of 10", "good"])).to_list()
    [8.0, 8.0, 8.0, 8.0, 8.0, None]
    """
    plain = as_numbers(values)
    if values.dtype != pl.String:
        return plain
    text = values.str.strip_chars()
    share, whole = (_point(text.str.extract(_OUT_OF, k)) for k in (1, 2))
    stars = text.str.extract(_STARS).str.len_chars().cast(pl.Float64)
    bare = plain.zip_with(plain.is_not_null(), _point(text.str.extract(_POINTS)))
    bare = bare.zip_with(bare.is_not_null(), stars)
    whole = whole.set(whole <= 0, None)
    scales: list[float] = whole.drop_nulls().unique().sort().to_list()
    if len(scales) < 2:
        return bare.zip_with(bare.is_not_null(), share)
    # What is said without a scale is of the smallest that holds all of it.
    most, largest = bare.max(), scales[-1]
    own = next((s for s in scales if not isinstance(most, float) or most <= s), largest)
    scaled: pl.Series = bare / own * largest
    return scaled.zip_with(bare.is_not_null(), share / whole * largest)


def _point(text: pl.Series) -> pl.Series:
    """Numbers with a point or a comma."""
    return text.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)


def as_moments(values: pl.Series, order: DateOrder = "") -> pl.Series:
    """The cells as seconds since 1970, or in the unit of their numbers; null where they aren't
    times."""
    return moments(values, order).seconds


def moments(values: pl.Series, order: DateOrder = "") -> Moments:
    """The times of a column, each read by the way in which it is written. Of 03/04/2024 the order
    is one for the whole column: ``order``, else that in which more cells are dates."""
    if values.dtype.is_temporal():
        return Moments(epoch(values))
    numbers = as_numbers(values).floor().cast(pl.Int64, strict=False)
    days = numbers.cast(pl.String)
    if days.str.contains(_DAY_NUMBER).all() and days.is_not_null().any():  # 20240531
        return Moments(days.str.to_datetime("%Y%m%d", strict=False).dt.epoch("s"))
    if values.dtype != pl.String:
        return Moments(numbers)
    found = dates(cells(values), order)
    return found if found.seconds.null_count() < numbers.null_count() else Moments(numbers)


def all_are(parsed: pl.Series, values: pl.Series) -> bool:
    """Could every cell that is not empty be read?"""
    filled = cells(values).is_not_null()
    return bool(filled.any()) and bool((parsed.is_not_null() | ~filled).all())


def nearly_all_are(parsed: pl.Series, values: pl.Series, share: float = NEARLY_ALL) -> bool:
    """Could nearly every cell that is not empty be read? So a few broken ones do not cost a
    column what it is."""
    filled = cells(values).is_not_null()
    return bool(filled.any()) and mean(parsed.filter(filled).is_not_null()) >= share


def are_dates(values: pl.Series) -> bool:
    """Are these times that are written as such, not numbers?"""
    if nearly_all_are(as_numbers(values), values):
        return False
    if nearly_all_are(as_moments(values), values, MOSTLY_DATES):
        return True
    text = cells(values).drop_nulls()  # perhaps written in several ways
    return len(text) > 0 and mean(text.str.contains(_SOME_DATE)) >= MOSTLY_DATES


def separator_of(values: pl.Series) -> str:
    """What divides several values in one cell, or nothing.

    A sign does if a fifth of the cells have it, what it divides is short, and comes again.
    """
    if isinstance(values.dtype, pl.List):
        return "|"
    if values.dtype != pl.String or nearly_all_are(as_moments(values), values):
        return ""
    text = cells(values).drop_nulls()
    for sign, distinct in SEPARATORS.items():
        if mean(text.str.contains(sign, literal=True)) < 0.2:
            continue
        if "," in sign and mean(text.str.count_matches(sign, literal=True) == 1) > 0.9:
            continue  # Müller, Anna: one name, not two
        parts = text.str.split(sign).explode().str.strip_chars()
        words = mean(parts.str.count_matches(r"\S+"))
        if words <= 3 and parts.n_unique() <= distinct * len(parts):
            return sign
    return ""


def without_number(text: pl.Series) -> pl.Series:
    """Names of series without the number of the volume behind them.

    >>> without_number(pl.Series(["Dune ; 3", "Dune", "Dune, vol. 4", "Dune (#5)"])).to_list()
    ['Dune', 'Dune', 'Dune', 'Dune']
    """
    return text.str.replace(NUMBERED, "").str.strip_chars()


def without_address(text: pl.Series) -> pl.Series:
    """Names of people and teams without the mail address behind them.

    >>> without_address(pl.Series(["Ann Lee <ann@lee.org>", "Ann Lee", "a <b> c"])).to_list()
    ['Ann Lee', 'Ann Lee', 'a <b> c']
    """
    return text.str.replace(_ADDRESS, "$1").str.strip_chars()


def without_brackets(text: pl.Series) -> pl.Series:
    """Ids without what is said of them in brackets: "libc6 (>= 2.34)" is libc6.

    >>> without_brackets(pl.Series(["libc6 (>= 2.34)", "libc6"])).to_list()
    ['libc6', 'libc6']
    """
    return text.str.replace(r"\s*\([^()]*\)$", "").str.strip_chars()


def split_cells(pairs: pl.DataFrame, separator: str) -> pl.DataFrame:
    """The frame with one row for each part of ``tail``; empty and missing ones are left out."""
    if separator:
        pairs = pairs.with_columns(pl.col("tail").str.split(separator)).explode("tail")
    tail = pl.col("tail").str.strip_chars()
    return pairs.with_columns(tail).filter(~tail.fill_null("").str.contains(_MISSING))
