"""Feed the readers data sets that mostly parse, and compare what they read with what was written.

    python tests/torture/fuzz_readers.py 1000000        make fuzz
    python tests/torture/fuzz_readers.py 200 7          200 inputs from seed 7

``made_sets.py`` generates the inputs: a few interactions and facts in one of the formats, with
quotes, odd names and repeated rows; some are then damaged. A reader must return what was written or
raise one of our errors. What it reads from a damaged table of plain lines must equal what a slow
reader made from the standard library finds. Anything else is counted, with the number that
generates the input again. The last line is a JSON object of counts.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from unicodedata import normalize

from made_sets import QUOTED, WRITERS, Made, made

import loger
from loger.data.dataset import Dataset
from loger.errors import LogerError
from loger.graph import DISLIKED

ODD = [b'"', b"\0", b"\xff\xfe", b"\n\n", b",,,", b"{", b"[" * 200, b"\xed\xa0\x80", b"\t"]
SLOW = 5.0
"""Seconds of processor time for an input, all of which are far below a megabyte."""
Pairs = set[tuple[str, str]]


def damaged(raw: bytes, rng: Random) -> bytes:
    """Some bytes of a file changed, left out, put in or repeated."""
    out = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(out) + 1)
        way = rng.randrange(5)
        if way == 0 and out:
            out[place % len(out)] = rng.randrange(256)
        elif way == 1:
            del out[place:]
        elif way == 2:
            out[place:place] = rng.choice(ODD)
        elif way == 3:
            out[place:place] = bytes(out[place : place + 20]) * rng.randrange(1, 50)
        else:
            del out[place : place + rng.randrange(1, 9)]
    return bytes(out)


def slow_pairs(raw: bytes, between: str) -> Pairs | None:
    """Users and items of plain lines with a header, by splitting alone; None if there is any doubt
    what the lines mean."""
    try:
        head, *lines = normalize("NFC", raw.decode()).split("\n")
    except UnicodeDecodeError:
        return None
    names = [name.partition(":")[0].removesuffix("_id") for name in head.split(between)]
    cells = [line.split(between) for line in lines if line]
    plain = all(0x20 <= byte != 0x22 or byte in b"\n\t" for byte in raw)
    even = all(len(row) == len(names) for row in cells)
    if not plain or not even or names[:2] != ["user", "item"] or len(set(names)) < len(names):
        return None
    return {(row[0].strip(), row[1].strip()) for row in cells}


def read(kind: str, folder: Path) -> Dataset:
    if kind != "tables":
        return loger.load(folder)
    (plays,), items = folder.glob("plays.*"), folder / "items.csv"
    return loger.from_tables(plays, items=items if items.exists() else None)


def pairs_of(data: Dataset) -> Pairs:
    """Who took or disliked what: of tables with ratings, the lower half are dislikes."""
    names, given, facts = data.vocabulary.names, data.interactions, data.facts
    rows = [*zip(given.users, given.items + data.n_users, strict=True)]
    disliked = facts.relations == next(
        (k for k, r in enumerate(data.relations) if r.name == DISLIKED), -1
    )
    rows += zip(facts.heads[disliked], facts.tails[disliked], strict=True)
    return {(names[u].strip(), names[v].strip()) for u, v in rows}


def brands_of(data: Dataset) -> Pairs:
    """Facts of items, as names: the last part of an IRI, and what a review speaks of."""
    names, facts = data.vocabulary.names, data.facts
    items = data.vocabulary.span("item")
    both = zip(facts.heads.tolist(), facts.tails.tolist(), strict=True)
    said = {(names[h].strip(), names[t].replace("_", " ")) for h, t in both if h in items}
    return {(i, b.rpartition("/")[2].partition("|")[0]) for i, b in said}


def wrong(kind: str, it: Made, data: Dataset) -> str:
    """How what was read differs from what was written; empty if it does not."""
    pairs = {(row[0].strip(), row[1].strip()) for row in it.rows}
    if found := pairs ^ pairs_of(data):
        return f"{kind}, pairs: {sorted(found)[:4]}"
    if kind in ("parquet", "tables"):  # no facts, or such as a proposal takes
        return ""
    brands = {(i.strip(), b) for i, b in it.brands.items()}
    found = brands ^ brands_of(data)
    return f"{kind}, facts: {sorted(found)[:4]}" if found else ""


def try_one(folder: Path, number: int) -> tuple[str, str]:
    rng = Random(number)
    kind = rng.choice(sorted(WRITERS))
    it = made(rng, plain_names=kind not in QUOTED)
    WRITERS[kind](folder, it, rng)
    spoilt = rng.choice(sorted(folder.iterdir())) if rng.random() < 0.4 else None
    if spoilt is not None:
        spoilt.write_bytes(damaged(spoilt.read_bytes(), rng))
    begun = time.process_time()
    try:
        data = read(kind, folder)
    except LogerError as error:
        return ("refused whole" if spoilt is None else "refused"), f"{kind}: {error}"
    except BaseException:
        return "traceback", traceback.format_exc()
    if time.process_time() - begun > SLOW:
        return "slow", kind
    if spoilt is None:
        differs = wrong(kind, it, data)
        return ("other", differs) if differs else ("same", kind)
    if spoilt.name in ("interactions.csv", "shop.inter"):
        seen = slow_pairs(spoilt.read_bytes(), "\t" if kind == "recbole" else ",")
        if seen is not None:
            found = seen ^ pairs_of(data)
            return ("other", f"{kind}: {sorted(found)[:4]}") if found else ("same", kind)
    return "read", kind


def run(n: int, seed: int = 0) -> Counter[str]:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as text:
        for number in range(seed, seed + n):
            folder = Path(text) / "in"
            folder.mkdir()
            result, detail = try_one(folder, number)
            counts[result] += 1
            if result not in ("same", "read", "refused"):
                print(f"input {number}: {result}: {detail}", file=sys.stderr)
            shutil.rmtree(folder)
    return counts


if __name__ == "__main__":
    begun = time.time()
    n, seed = (*(int(x) for x in sys.argv[1:3]), *(1000, 0)[len(sys.argv) - 1 :])
    found = run(n, seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({**found, "seconds": round(time.time() - begun), "peak_mb": peak}))
