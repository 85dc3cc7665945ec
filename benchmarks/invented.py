"""Invented reviews and catalogues in the raw formats of Amazon's dumps, with their flaws.

They serve tests, benchmarks and first trials without a download. The same seed gives the same
content in both formats, as far as each can hold it.

    python3 benchmarks/invented.py FOLDER                      reviews.json.gz and meta.json.gz
    python3 benchmarks/invented.py . --preset cellphones       under the names of the paper's files
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from loger.tables.reviews.amazon import PRESETS

Layout = Literal["2018", "2023"]

_KINDS = {
    "Cases": (
        ["case", "grip", "color", "button", "corner", "material"],
        ["Basic Cases", "Wallets"],
    ),
    "Chargers": (["charger", "cable", "plug", "cord", "connector"], ["Car Chargers", "Adapters"]),
    "Headsets": (
        ["sound", "microphone", "battery life", "ear pad", "bass"],
        ["Wired", "Bluetooth"],
    ),
    "Screens": (["screen protector", "glass", "fit", "film", "edge"], ["Glass", "Film"]),
}
_GOOD = ["great", "sturdy", "nice", "perfect", "comfortable", "excellent", "solid", "easy", "soft"]
_BAD = ["flimsy", "cheap", "terrible", "weak", "poor", "useless", "brittle", "ugly", "scratchy"]
_SAYINGS = [
    "The {a} is {o}.",
    "{O} {a}!",
    "I bought this for my sister and the {a} was really {o}.",
    "It came with a {o} {a}, which surprised me.",
    "After two weeks of daily use the {a} feels {o}.",
]
_FILLERS = [
    "I ordered it on a Monday and it arrived on Thursday.",
    "My old one lasted about three years before I had to get another.",
    "We use it every day at home and on the road.",
    "There are several versions of this, so read the description first.",
    "I was not sure about it when I read the other reviews here.",
    "Would I buy it again? Probably, if I lost this one.",
    "It&#39;s for my mother&#39;s phone.<br /><br />She has had it since last year.",
]
_COLORS = ["Black", "Blue", "Clear", "Rose Gold", "Red", "Forest Green"]
_SIZES = ["One Size", "5.5&quot;", "6 ft", "2-Pack"]
_GARBAGE = ".a-section.a-spacing-mini{margin-bottom:6px!important}"


@dataclass(frozen=True)
class Sizes:
    """How much to invent."""

    users: int = 200
    items: int = 80
    reviews: int = 2_000
    words: int = 60
    """About so many words per review."""
    broken: float = 0.002
    """Share of lines that no reader can use, of each of six kinds in turn."""


def write(
    folder: Path | str, layout: Layout = "2018", sizes: Sizes | None = None, seed: int = 0
) -> tuple[Path, Path]:
    """Write ``reviews.json.gz`` and ``meta.json.gz`` (``.jsonl.gz`` for 2023); where they are."""
    sizes, folder = sizes or Sizes(), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ending = "json.gz" if layout == "2018" else "jsonl.gz"
    places = folder / f"reviews.{ending}", folder / f"meta.{ending}"
    world = _World(sizes, seed)
    for place, records in zip(places, (world.reviews(layout), world.products(layout)), strict=True):
        # No name and no time in the header: the same seed gives the same bytes.
        with place.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as file:
            _write_lines(file, records, sizes, np.random.default_rng([seed, 3]))
    return places


def _write_lines(
    file: gzip.GzipFile, records: Iterator[dict[str, Any]], sizes: Sizes, rng: np.random.Generator
) -> None:
    bad = 0
    for record in records:
        line = json.dumps(record).encode()
        if sizes.broken and rng.random() < sizes.broken:
            file.write(_BROKEN[bad % len(_BROKEN)](line, record))
            bad += 1
        file.write(line + b"\n")


def _without(record: dict[str, Any], *names: str) -> bytes:
    return json.dumps({k: v for k, v in record.items() if k not in names}).encode() + b"\n"


_BROKEN: list[Callable[[bytes, dict[str, Any]], bytes]] = [
    lambda line, record: line[: len(line) // 2] + b"\n",  # cut off
    lambda line, record: b"\n",
    lambda line, record: b'"' + b"\xff\xfe" + b'"\n',
    lambda line, record: b"[1, 2]\n",
    lambda line, record: _without(record, "asin", "parent_asin"),
    lambda line, record: str(record).encode() + b"\n",  # a Python dictionary
]


class _World:
    """Items and what people say of them."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.sizes, self.seed = sizes, seed
        rng = np.random.default_rng([seed, 1])
        n, kinds = sizes.items, list(_KINDS)
        self.kind = rng.integers(len(kinds), size=n)
        self.sub = rng.integers(2, size=n)
        self.brand = rng.zipf(1.7, size=n) % max(3, n // 20)
        self.price = np.round(rng.lognormal(2.5, 0.8, size=n) + 0.99, 2)
        self.quality = rng.normal(size=n)

    def asin(self, item: int) -> str:
        return f"B{item:09d}"

    def products(self, layout: Layout) -> Iterator[dict[str, Any]]:
        """The catalogue, some products twice."""
        rng = np.random.default_rng([self.seed, 2])
        n, kinds = self.sizes.items, list(_KINDS)
        for item in range(n):
            kind = kinds[self.kind[item]]
            near = rng.integers(n, size=4)
            draw = rng.random(6)
            title = f"Acme &amp; Sons {kind[:-1]} No. {item}"
            price: object = f"${self.price[item]:,.2f}"
            if draw[0] < 0.05:
                price = f"${self.price[item]:.2f} - ${self.price[item] + 10:.2f}"
            elif draw[0] < 0.10:
                price = _GARBAGE if draw[1] < 0.5 else ""
            brand = f"Brand {self.brand[item]}"
            if draw[2] < 0.03:
                brand = _GARBAGE
            elif draw[2] < 0.06:
                brand = f"by\n    \n    {brand}"
            levels = ["Phones &amp; More", kind, _KINDS[kind][1][self.sub[item]]]
            also = [self.asin(int(k)) for k in near] + [f"X{int(near[0]) % 50:09d}"]
            yield self._product(layout, item, title, brand, levels, price, also)
            if draw[3] < 0.01:
                yield self._product(layout, item, "again", brand, levels, price, also)

    def _product(
        self,
        layout: Layout,
        item: int,
        title: str,
        brand: str,
        levels: list[str],
        price: object,
        also: list[str],
    ) -> dict[str, Any]:
        if layout == "2018":
            return {
                "category": levels,
                "tech1": "",
                "description": ["A thing to have."],
                "title": title,
                "also_buy": also,
                "also_view": also[::-1],
                "brand": brand,
                "feature": ["Fits well"],
                "rank": "12,345 in Cell Phones",
                "price": price,
                "asin": self.asin(item),
            }
        return {
            "main_category": "Cell Phones",
            "title": title,
            "features": ["Fits well"],
            "description": ["A thing to have."],
            "price": price or None,
            "store": brand,
            "categories": levels,
            "details": {"Item Weight": "3 ounces"},
            "parent_asin": self.asin(item),
            "bought_together": None,
        }

    def reviews(self, layout: Layout) -> Iterator[dict[str, Any]]:
        """Reviews by popularity and activity; a few of them twice, some with fields missing."""
        sizes = self.sizes
        for start in range(0, sizes.reviews, 50_000):
            n = min(50_000, sizes.reviews - start)
            rng = np.random.default_rng([self.seed, 4, start])
            users = _popular(rng, sizes.users, n, 0.5)
            items = _popular(rng, sizes.items, n, 0.7)
            times = rng.integers(1_300_000_000, 1_530_000_000, size=n) // 86_400 * 86_400
            draws = rng.random((n, 4))
            words = rng.integers(1 << 30, size=(n, 16))
            for k in range(n):
                record = self._review(
                    layout, int(users[k]), int(items[k]), int(times[k]), draws[k], words[k]
                )
                yield record
                if draws[k, 3] < 0.005:
                    yield record

    def _review(
        self, layout: Layout, user: int, item: int, time: int, draw: Any, words: Any
    ) -> dict[str, Any]:
        aspects = _KINDS[list(_KINDS)[self.kind[item]]][0]
        good = bool(self.quality[item] + 2 * draw[0] > 0.6)
        sentences = []
        for k in range(max(1, self.sizes.words // 15)):
            a, o, s, f = (int(w) for w in words[4 * (k % 4) : 4 * (k % 4) + 4])
            opinion = (_GOOD if good else _BAD)[(o + k) % 9]
            saying = _SAYINGS[s % len(_SAYINGS)]
            aspect = aspects[(a + k) % len(aspects)]
            sentences.append(saying.format(a=aspect, o=opinion, O=opinion.capitalize()))
            sentences.append(_FILLERS[f % len(_FILLERS)])
        text = " ".join(sentences)
        stars = float(4 + (draw[1] > 0.4)) if good else float(1 + 2 * (draw[1] > 0.5))
        name, asin = f"A{user:012d}", self.asin(item)
        if layout == "2023":
            return {
                "rating": stars,
                "title": "Good" if good else "Bad",
                "text": text,
                "images": [],
                "asin": asin,
                "parent_asin": asin,
                "user_id": name,
                "timestamp": time * 1000,
                "helpful_vote": 0,
                "verified_purchase": True,
            }
        record: dict[str, Any] = {
            "overall": stars,
            "verified": True,
            "reviewTime": "01 1, 2015",
            "reviewerID": name,
            "asin": asin,
            "style": {
                "Color:": f" {_COLORS[item % 6]} {(item + int(words[0])) % 9}",
                "Size:": f" {_SIZES[item % 4]} ({item % 11})",
            },
            "reviewerName": "A. Person",
            "reviewText": text,
            "summary": "Good" if good else "Bad",
            "unixReviewTime": time,
        }
        if draw[2] < 0.2:
            del record["style"]
        return record


def _popular(rng: np.random.Generator, n: int, size: int, skew: float) -> Any:
    """Draws of 0 … n-1 with probability ∝ (rank + 10)^-skew."""
    ends = np.cumsum((np.arange(n) + 10.0) ** -skew)
    return np.searchsorted(ends / ends[-1], rng.random(size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layout", choices=get_args(Layout), default="2018")
    parser.add_argument("--preset", nargs="*", default=(), choices=PRESETS)
    asked = parser.parse_args()
    if not asked.preset:
        write(asked.folder, asked.layout)
    for name in asked.preset:
        preset, sizes = PRESETS[name], Sizes(users=200, items=300, reviews=3000)
        if not (asked.folder / preset.reviews).exists():
            reviews, meta = write(asked.folder / f"invented-{name}", sizes=sizes)
            reviews.rename(asked.folder / preset.reviews)
            meta.rename(asked.folder / preset.meta)


if __name__ == "__main__":
    main()
