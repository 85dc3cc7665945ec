"""Reviews and products of the Amazon dumps of 2018 and 2023, as one kind of record.

The dumps were scraped: names carry entities and tags, a brand may be a piece of a style
sheet, a price a range or a script. What makes a line useless raises
``BrokenLineError``; what makes one field useless is told beside the record, and the field is
left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from loger.build.aspects import plain_text

_BLANKS = re.compile(r"\s+")
_MARKUP = re.compile(r"[{}<>]|function\s*\(|\bvar |getTime|\.a-[a-z]|&nbsp;|https?://")
_PRICE = re.compile(r"(?:from )?\$?\s*([\d,]+(?:\.\d+)?)(?:\s*-\s*\$?\s*([\d,]+(?:\.\d+)?))?")
_NO_PRICE = {"", "none", "null", "nan", "—", "-"}
_LONGEST_NAME = 80
_LATEST = 253_402_300_800  # the year 10000
STYLE_DETAILS = frozenset(
    (
        "color", "size", "style", "material", "flavor", "scent", "pattern", "finish", "shape",
        "item form", "material type", "fabric type", "finish type", "connector type",
    )
)  # fmt: skip
"""Details of a product in the layout of 2023 that say what ``style`` says in that of 2018."""


class BrokenLineError(ValueError):
    """A line that cannot be used; its message is the kind."""


class Review(NamedTuple):
    """One review."""

    user: str
    item: str
    rating: float
    time: int  # seconds since 1970
    text: str
    styles: dict[str, str]


class Product(NamedTuple):
    """One product of the catalogue."""

    item: str
    title: str
    brand: str
    categories: list[str]  # every level of every path, "A", "A > B", …
    price: float | None
    also_buy: list[str]
    also_view: list[str]
    styles: dict[str, str]
    problems: tuple[str, ...]  # fields that could not be used


def record(line: bytes) -> dict[str, Any]:
    """The JSON object of a line."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise BrokenLineError("not UTF-8") from None
    if not text.strip():
        raise BrokenLineError("blank line")
    try:
        found = json.loads(text)
    except ValueError:
        kind = "a Python dictionary, as in the dump of 2014, not JSON"
        raise BrokenLineError(kind if text.startswith("{'") else "not JSON") from None
    if not isinstance(found, dict):
        raise BrokenLineError("not a JSON object")
    if "\\ud" in text:  # halves of surrogate pairs, from texts that were cut, are no characters
        whole = json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")
        found = json.loads(whole.decode("utf-8", "replace"))
    return dict(found)


def review(found: dict[str, Any]) -> Review:
    """A review in the layout of 2018 or of 2023."""
    old = bool({"reviewerID", "overall", "reviewText"} & found.keys())
    user = _name(found.get("reviewerID" if old else "user_id"), "no user")
    item = _name(found.get("asin") if old else found.get("parent_asin"), "no item")
    rating = _number(found.get("overall" if old else "rating"), "no rating")
    time = _number(found.get("unixReviewTime" if old else "timestamp"), "no time")
    time = time if old else time // 1000
    if abs(time) > _LATEST:
        raise BrokenLineError("no time that can be")
    parts = (found.get("summary" if old else "title"), found.get("reviewText" if old else "text"))
    text = " .\n ".join(part for part in parts if isinstance(part, str) and part)
    styles = _styles(found.get("style")) if old else {}
    return Review(user, item, rating, int(time), text, styles)


def product(found: dict[str, Any]) -> Product:
    """A product in the layout of 2018 or of 2023."""
    old = "asin" in found and "parent_asin" not in found
    item = _name(found.get("asin" if old else "parent_asin"), "no item")
    problems: list[str] = []
    details = {} if old else _details(found.get("details"), problems)
    brand = found.get("brand") if old else found.get("store") or details.get("Brand")
    chosen = {k: v for k, v in details.items() if k.lower() in STYLE_DETAILS}
    return Product(
        item,
        _words(found.get("title"), "title", problems),
        _words(brand, "brand", problems).removeprefix("by ").removeprefix("Visit the "),
        list(dict.fromkeys(_levels(found.get("category" if old else "categories"), problems))),
        _price(found.get("price"), problems),
        _names(found.get("also_buy")),
        _names(found.get("also_view")),
        _styles(chosen),
        tuple(problems),
    )


def _name(value: object, kind: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BrokenLineError(kind)
    return value.strip()


def _number(value: object, kind: str) -> float:
    if isinstance(value, bool) or value is None or value == "":
        raise BrokenLineError(kind)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BrokenLineError(f"{kind} that is a number") from None
    if not math.isfinite(number):
        raise BrokenLineError(f"{kind} that is a number")
    return number


def _words(value: object, field: str, problems: list[str]) -> str:
    """Text for people: without entities, tags and runs of blanks; scripts are refused."""
    if not isinstance(value, str) or not value.strip():
        return ""
    text = _BLANKS.sub(" ", plain_text(plain_text(value))).strip()
    if not text or _MARKUP.search(text) or (field != "title" and len(text) > _LONGEST_NAME):
        problems.append(f"{field} that is markup, not a name")
        return ""
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1].rstrip() + "…"


def _levels(value: object, problems: list[str]) -> Iterator[str]:
    """Every level of the path, or paths, of a product's categories."""
    if not isinstance(value, list):
        return
    if value and isinstance(value[0], list):
        for path in value:
            yield from _levels(path, problems)
        return
    so_far = ""
    for part in value:
        name = _words(part, "category", problems)
        if not name:
            return
        so_far = f"{so_far} > {name}" if so_far else name
        yield so_far


def _price(value: object, problems: list[str]) -> float | None:
    """A price in dollars, the middle of a range; None where there is none."""
    if value is None or isinstance(value, bool):
        return None
    text = str(value).strip()
    if text.lower() in _NO_PRICE:
        return None
    found = _PRICE.fullmatch(text)
    if found is None:
        problems.append("price that is not a price")
        return None
    prices = [float(p.replace(",", "")) for p in found.groups() if p and p.strip(",")]
    price = sum(prices) / len(prices) if prices else 0.0
    return price if 0 < price < math.inf else None


def _names(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return list(dict.fromkeys(v.strip() for v in value if isinstance(v, str) and v.strip()))


def _styles(value: object) -> dict[str, str]:
    """Styles by kind, such as color → black; both come with stray colons and blanks."""
    if not isinstance(value, dict):
        return {}
    found = {}
    for key, what in value.items():
        name = _BLANKS.sub(" ", str(key)).strip(" :").lower()
        text = _BLANKS.sub(" ", plain_text(str(what))).strip().lower()
        if name and text and len(text) <= _LONGEST_NAME:
            found[name] = text
    return found


def _details(value: object, problems: list[str]) -> dict[str, Any]:
    """The details of a product, which some copies of the dump hold as a text of JSON."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError:
            problems.append("details that are not JSON")
    return value if isinstance(value, dict) else {}
