"""Invented data sets of a few rows, written in every format that loger reads.

The contents are known, so tests can compare them with what a reader reads: who took what, and which
brand each item has.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import polars as pl

LETTERS = [*"aBüß日07-_ .|'\",;é=", "😀"]
Rows = list[list[str]]


@dataclass(frozen=True)
class Made:
    """Interactions, some repeated, with an optional rating and time; brands of items."""

    columns: list[str]
    rows: Rows
    brands: dict[str, str]

    def numbered(self) -> tuple[list[str], list[str], list[tuple[int, int]]]:
        """Users, items, and the interactions by their numbers, for formats of numbers."""
        users = sorted({row[0] for row in self.rows})
        items = sorted({row[1] for row in self.rows})
        pairs = sorted({(users.index(row[0]), items.index(row[1])) for row in self.rows})
        return users, items, pairs


def made(rng: Random, plain_names: bool) -> Made:
    """A data set; names of plain letters alone where a format has no quotes."""
    short = plain_names or rng.random() < 0.6
    more = [c for c in ("rating", "time") if rng.random() < 0.5]
    rows = [
        [_name(rng, "u", short), _name(rng, "i", short)]
        + [str(rng.randrange(1, 6)) if c == "rating" else str(rng.randrange(10**9)) for c in more]
        for _ in range(rng.randrange(1, 12))
    ]
    rows.append(["u9", "i9", *("1" for _ in more)])  # two interactions at least: one to be held out
    rows += rng.sample(rows, rng.randrange(0, 1 + len(rows) // 2))
    brands = {row[1]: f"brand {rng.randrange(3)}" for row in rows if rng.random() < 0.8}
    brands["i9"] = "brand 0"  # a file of facts must have one
    return Made(["user", "item", *more], rows, brands)


def _name(rng: Random, first: str, short: bool) -> str:
    if short:
        return f"{first}{rng.randrange(6)}"
    # A letter in front keeps users, items and brands apart, and blanks from being all there is.
    return first + "".join(rng.choice(LETTERS) for _ in range(rng.randrange(1, 6))).strip()


def _lines(path: Path, rows: Sequence[Sequence[object]], between: str = "\t") -> None:
    path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows))


def csv_text(rng: Random, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As spreadsheets write it."""
    out = io.StringIO()
    csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"])).writerows([header, *rows])
    return out.getvalue()


def _plain(folder: Path, it: Made, rng: Random) -> None:
    packed = rng.random() < 0.2
    facts = [[i, "has_brand", b, "item", "brand"] for i, b in it.brands.items()]
    header = ["head", "relation", "tail", "head_type", "tail_type"]
    for name, columns, rows in (("interactions", it.columns, it.rows), ("triples", header, facts)):
        raw = csv_text(rng, columns, rows).encode()
        ending = ".csv.gz" if packed else ".csv"
        (folder / (name + ending)).write_bytes(gzip.compress(raw, mtime=0) if packed else raw)


def _parquet(folder: Path, it: Made, rng: Random) -> None:
    of = dict(zip(it.columns, zip(*it.rows, strict=True), strict=True))
    frame = pl.DataFrame({k: list(v) for k, v in of.items()})
    if rng.random() < 0.5:
        frame = frame.with_columns(pl.col(c).cast(pl.Int64) for c in it.columns[2:])
    compression = rng.choice(["zstd", "snappy", "uncompressed"])
    frame.write_parquet(folder / "interactions.parquet", compression=compression)


def _tables(folder: Path, it: Made, rng: Random) -> None:
    if rng.random() < 0.5:
        rows = [json.dumps(dict(zip(it.columns, row, strict=True))) for row in it.rows]
        (folder / "plays.jsonl").write_text("\n".join(rows) + "\n")
    else:
        (folder / "plays.csv").write_bytes(csv_text(rng, it.columns, it.rows).encode())
    if rng.random() < 0.5:
        items = sorted({row[1] for row in it.rows})
        table = [[i, f"Title of {i}", it.brands.get(i, "")] for i in items]
        header = ["item", "title", "brand"]
        (folder / "items.csv").write_bytes(csv_text(rng, header, table).encode())


def _recbole(folder: Path, it: Made, rng: Random) -> None:
    types = {"user": "user_id:token", "item": "item_id:token", "rating": "rating:float",
             "time": "timestamp:float"}  # fmt: skip
    _lines(folder / "shop.inter", [[types[c] for c in it.columns], *it.rows])
    entities = {i: f"m.{k}" for k, i in enumerate(it.brands)}
    head = ["head_id:token", "relation_id:token", "tail_id:token"]
    facts = [[entities[i], "brand", b] for i, b in it.brands.items()]
    _lines(folder / "shop.kg", [head, *facts])
    _lines(folder / "shop.link", [["item_id:token", "entity_id:token"], *entities.items()])


def _pgpr(folder: Path, it: Made, rng: Random) -> None:
    users, items, pairs = it.numbered()
    brands = sorted(set(it.brands.values()))
    _lines(folder / "users.txt", [[u] for u in users])
    _lines(folder / "product.txt", [[i] for i in items])
    _lines(folder / "brand.txt", [[b] for b in brands])
    of = [[brands.index(it.brands[i])] if i in it.brands else [] for i in items]
    _lines(folder / "brand_p_b.txt", of, " ")
    _lines(folder / "train_labels.txt", _histories(pairs[:-1]))
    _lines(folder / "test_labels.txt", _histories(pairs[-1:]))


def _histories(pairs: list[tuple[int, int]]) -> list[list[int]]:
    return [[u, *(i for v, i in pairs if v == u)] for u in sorted({u for u, _ in pairs})]


def _kgat(folder: Path, it: Made, rng: Random) -> None:
    users, items, pairs = it.numbered()
    brands = sorted(set(it.brands.values()))
    _lines(folder / "train.txt", _histories(pairs[:-1]), " ")
    _lines(folder / "test.txt", _histories(pairs[-1:]), " ")
    facts = [[items.index(i), 0, len(items) + brands.index(b)] for i, b in it.brands.items()]
    _lines(folder / "kg_final.txt", facts, " ")
    for name, of in (("user_list", users), ("item_list", items)):
        _lines(
            folder / f"{name}.txt",
            [["org_id", "remap_id"], *([n, k] for k, n in enumerate(of))],
            " ",
        )
    entities = [*items, *(b.replace(" ", "_") for b in brands)]
    _lines(folder / "entity_list.txt",
           [["org_id", "remap_id"], *([n, k] for k, n in enumerate(entities))], " ")  # fmt: skip


def _dbpedia(folder: Path, it: Made, rng: Random) -> None:
    users, items, pairs = it.numbered()
    brands = sorted(set(it.brands.values()))
    _lines(folder / "user.txt", [["new_id", "uid"], *enumerate(users)])
    _lines(folder / "product.txt", [["new_id", "pid"], *enumerate(items)])
    rows = [[u, i, 1, 100 + k] for k, (u, i) in enumerate(pairs)]
    _lines(folder / "train.txt", rows[:-1])
    _lines(folder / "test.txt", rows[-1:])
    entities = [[k, n, f"http://d/{n.replace(' ', '_')}"] for k, n in enumerate([*items, *brands])]
    _lines(folder / "e_map.txt", [["eid", "name", "entity"], *entities])
    _lines(folder / "r_map.txt", [["id", "kb_relation", "name"], [0, "http://d/brand", "brand"]])
    facts = [[items.index(i), 0, len(items) + brands.index(b)] for i, b in it.brands.items()]
    _lines(folder / "kg_final.txt", [["entity_head", "relation", "entity_tail"], *facts])


def _sentiment(folder: Path, it: Made, rng: Random) -> None:
    pairs = sorted({(row[0], row[1]) for row in it.rows})
    _lines(folder / "rating.txt", [[u, i, 5, 100 + k] for k, (u, i) in enumerate(pairs)], ",")
    said = [[u, i, f"{it.brands[i]}:good:1"] for u, i in pairs if i in it.brands]
    _lines(folder / "sentiment.txt", said, ",")


def _rdf(folder: Path, it: Made, rng: Random) -> None:
    (folder / "interactions.csv").write_bytes(csv_text(rng, it.columns, it.rows).encode())
    facts = [
        f"<http://s/{i}> <http://s/brand> <http://s/{b.replace(' ', '_')}> ."
        for i, b in it.brands.items()
    ]
    (folder / "kg.nt").write_text("\n".join(facts) + "\n")


WRITERS: dict[str, Callable[[Path, Made, Random], None]] = {
    "plain": _plain, "parquet": _parquet, "tables": _tables, "recbole": _recbole, "pgpr": _pgpr,
    "kgat": _kgat, "dbpedia": _dbpedia, "sentiment": _sentiment, "rdf": _rdf,
}  # fmt: skip
QUOTED = ("plain", "parquet", "tables")
"""Formats whose names may have any letters."""
