"""Reviews and products of the Amazon dumps of 2018 and 2023, as one kind of record.

The dumps were scraped: names carry entities and tags, a brand may be a piece of a style
sheet, a price a range or a script. What makes a line useless raises
``BrokenLineError``; what makes one field useless is noted with the record, and the field is
left out.

Large files are read block by block (``blocks``), and a ``Tally`` counts the lines that could not be
used. Every block has the same number of lines, so its number says which lines it has, and work on
blocks can be interrupted and taken up again. Compression is known by the first bytes, not by the
name: browsers like to unpack a download and to leave its name.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from loger.errors import DataError
from loger.tables.reviews.aspects import plain_text

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
        fields = json.loads(text)
    except (ValueError, RecursionError):
        kind = "a Python dictionary, as in the dump of 2014, not JSON"
        raise BrokenLineError(kind if text.startswith("{'") else "not JSON") from None
    if not isinstance(fields, dict):
        raise BrokenLineError("not a JSON object")
    if "\\ud" in text:  # halves of surrogate pairs, from texts that were cut, are no characters
        whole = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")
        fields = json.loads(whole.decode("utf-8", "replace"))
    return dict(fields)


def review(fields: dict[str, Any]) -> Review:
    """A review in the layout of 2018 or of 2023."""
    old = bool({"reviewerID", "overall", "reviewText"} & fields.keys())
    user = _name(fields.get("reviewerID" if old else "user_id"), "no user")
    item = _name(fields.get("asin") if old else fields.get("parent_asin"), "no item")
    rating = _number(fields.get("overall" if old else "rating"), "no rating")
    time = _number(fields.get("unixReviewTime" if old else "timestamp"), "no time")
    time = time if old else time // 1000
    if abs(time) > _LATEST:
        raise BrokenLineError("an impossible time")
    parts = (fields.get("summary" if old else "title"), fields.get("reviewText" if old else "text"))
    text = " .\n ".join(part for part in parts if isinstance(part, str) and part)
    styles = _styles(fields.get("style")) if old else {}
    return Review(user, item, rating, int(time), text, styles)


def product(fields: dict[str, Any]) -> Product:
    """A product in the layout of 2018 or of 2023."""
    old = "asin" in fields and "parent_asin" not in fields
    item = _name(fields.get("asin" if old else "parent_asin"), "no item")
    problems: list[str] = []
    details = {} if old else _details(fields.get("details"), problems)
    brand = fields.get("brand") if old else fields.get("store") or details.get("Brand")
    chosen = {k: v for k, v in details.items() if k.lower() in STYLE_DETAILS}
    return Product(
        item,
        _words(fields.get("title"), "title", problems),
        _words(brand, "brand", problems).removeprefix("by ").removeprefix("Visit the "),
        list(dict.fromkeys(_levels(fields.get("category" if old else "categories"), problems))),
        _price(fields.get("price"), problems),
        _names(fields.get("also_buy")),
        _names(fields.get("also_view")),
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
    match = _PRICE.fullmatch(text)
    if match is None:
        problems.append("price that is not a price")
        return None
    prices = [float(p.replace(",", "")) for p in match.groups() if p and p.strip(",")]
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
    styles = {}
    for key, what in value.items():
        name = _BLANKS.sub(" ", str(key)).strip(" :").lower()
        text = _BLANKS.sub(" ", plain_text(str(what))).strip().lower()
        if name and text and len(text) <= _LONGEST_NAME:
            styles[name] = text
    return styles


def _details(value: object, problems: list[str]) -> dict[str, Any]:
    """The details of a product, which some copies of the dump hold as a text of JSON."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            problems.append("details that are not JSON")
    return value if isinstance(value, dict) else {}


_MAGIC: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip),
    (b"BZh", bz2),
    (b"\xfd7zXZ\x00", lzma),
)
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
MAX_LINE = 64_000_000  # bytes; longer is no line of text
_EXAMPLE = 80  # characters of a broken line that are shown
ENDS_EARLY = "the compressed file ends early or is damaged; everything before that was read"


class Block(NamedTuple):
    """Some lines of a file."""

    number: int  # from 0
    first: int  # line number of the first, from 1
    lines: list[bytes]
    at: int  # bytes of the file, as it lies on the disk, that were read up to here
    damage: str  # what was wrong with the file after these lines; nothing for "not at all"


@dataclass
class Tally:
    """How often each kind of thing was wrong, and where first."""

    kinds: dict[str, list[Any]] = field(default_factory=dict)
    """kind → [count, first line, what stood there]"""

    def add(self, kind: str, line: int, value: object = "") -> None:
        """Count one more line of this kind."""
        entry = self.kinds.setdefault(kind, [0, line, str(value)[:_EXAMPLE]])
        entry[0] += 1

    def join(self, other: Tally) -> None:
        """Add the counts of later lines."""
        for kind, (count, line, value) in other.kinds.items():
            entry = self.kinds.setdefault(kind, [0, line, value])
            entry[0] += count


def blocks(path: Path, size: int) -> Iterator[Block]:
    """A file in blocks of ``size`` lines; it ends where a compressed file is damaged."""
    try:
        raw = path.open("rb")
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(why, path=path, remedy="check the name and the folder") from None
    with raw:
        head = raw.read(8)
        raw.seek(0)
        packing = next((module for magic, module in _MAGIC if head.startswith(magic)), None)
        text = raw if packing is None else packing.open(raw)
        yield from _blocks_of(cast("IO[bytes]", text), raw, size)


def _blocks_of(text: IO[bytes], raw: IO[bytes], size: int) -> Iterator[Block]:
    number, damage, ended = 0, "", False
    while not ended:
        lines: list[bytes] = []
        try:
            while len(lines) < size:
                line = text.readline(MAX_LINE + 1)
                if len(line) > MAX_LINE:
                    raise EOFError(f"a line is longer than {MAX_LINE:,} bytes")
                if not line:
                    ended = True
                    break
                lines.append(line)
        except _DAMAGE as error:
            ended, damage = True, f"{type(error).__name__}: {error}"
        if lines or damage:
            yield Block(number, number * size + 1, lines, raw.tell(), damage)
        number += 1
