"""Feeds readers tables that mostly parse, and compares what they read with a slow reader.

    python tests/torture/fuzz_readers.py 1000000        make fuzz
    python tests/torture/fuzz_readers.py 200 7          200 inputs from seed 7

Inputs are made by structure: a table of interactions in one of the formats, with quotes, odd names,
repeated rows; a part of them is then damaged. A reader must give what the slow one, made of the
standard library, gives, or refuse with one of our errors; all else is counted, and its number makes
the input again. The last line is a JSON of counts.
"""

from __future__ import annotations

import csv
import io
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

import loger
from loger.errors import LogerError

LETTERS = [
    "a",
    "B",
    "ü",
    "日",
    "0",
    "7",
    "-",
    "_",
    " ",
    ".",
    "|",
    "'",
    '"',
    ",",
    ";",
    "é",
    "😀",
    "=",
]
ODD = [b'"', b"\0", b"\xff\xfe", b"\n\n", b",,,", b"{", b"[" * 200, b"\xed\xa0\x80", b"\t"]
SLOW = 5.0
"""Seconds of processor time for an input, all of which are far below a megabyte."""
Pairs = set[tuple[str, str]]


def name(rng: Random, short: bool) -> str:
    if short:
        return f"{rng.choice('uvw')}{rng.randrange(6)}"
    made = "".join(rng.choice(LETTERS) for _ in range(rng.randrange(1, 6))).strip()
    return made or "x"


def table(rng: Random) -> tuple[list[str], list[list[str]]]:
    """Interactions: a header and rows of user, item and perhaps a rating and a time."""
    short = rng.random() < 0.7
    header = ["user", "item"]
    more = [c for c in ("rating", "time") if rng.random() < 0.5]
    rows = []
    for _ in range(rng.randrange(1, 12)):
        row = [name(rng, short), name(rng, short)]
        row += [
            str(rng.randrange(1, 6)) if c == "rating" else str(rng.randrange(10**9)) for c in more
        ]
        rows.append(row)
    rows += rng.sample(rows, rng.randrange(0, 1 + len(rows) // 2))
    return header + more, rows


def csv_text(rng: Random, header: list[str], rows: list[list[str]]) -> str:
    out = io.StringIO()
    end = rng.choice(["\n", "\r\n"])
    csv.writer(out, lineterminator=end).writerows([header, *rows])
    return out.getvalue()


def make(folder: Path, rng: Random) -> tuple[str, str]:
    """Write a data set; its kind, and the main file's text as it would be undamaged."""
    header, rows = table(rng)
    kind = rng.choice(["csv", "csv", "jsonl", "inter"])
    stem = "plays" if kind == "jsonl" or rng.random() < 0.5 else "interactions"
    if kind == "csv":
        text, path = csv_text(rng, header, rows), folder / f"{stem}.csv"
    elif kind == "jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
        text, path = "\n".join(lines) + "\n", folder / f"{stem}.jsonl"
    else:
        types = {"user": "user_id:token", "item": "item_id:token", "rating": "rating:float",
                 "time": "timestamp:float"}  # fmt: skip
        clean = [[c.replace('"', "'") for c in row] for row in rows]
        lines = ["\t".join(types[c] for c in header), *("\t".join(row) for row in clean)]
        text, path = "\n".join(lines) + "\n", folder / "shop.inter"
    raw = text.encode()
    if rng.random() < 0.4:
        raw, text = damaged(raw, rng), ""
    path.write_bytes(raw)
    return kind, text


def damaged(raw: bytes, rng: Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(out) + 1)
        way = rng.randrange(5)
        if way == 0 and out:
            out[place % len(out)] = rng.randrange(256)
        elif way == 1:
            del out[place:]
        elif way == 2:
            odd = [
                b'"',
                b"\0",
                b"\xff\xfe",
                b"\n\n",
                b",,,",
                b"{",
                b"[" * 200,
                b"\xed\xa0\x80",
                b"\t",
            ]
            out[place:place] = rng.choice(odd)
        elif way == 3:
            out[place:place] = bytes(out[place : place + 20]) * rng.randrange(1, 50)
        else:
            del out[place : place + rng.randrange(1, 9)]
    return bytes(out)


def slow_pairs(kind: str, text: str) -> Pairs:
    """Users and items, by the standard library alone."""
    if kind == "csv":
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    elif kind == "jsonl":
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        head, *lines = text.splitlines()
        names = [c.partition(":")[0].removesuffix("_id") for c in head.split("\t")]
        rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines]
    return {(row["user"].strip(), row["item"].strip()) for row in rows}


def read_pairs(folder: Path) -> Pairs:
    (file,) = folder.iterdir()
    # JSON lines, and tables of any columns, are read by what builds data sets.
    data = loger.from_tables(file) if file.stem == "plays" else loger.load(folder)
    names, given = data.vocabulary.names, data.interactions
    rows = zip(given.users, given.items + data.n_users, strict=True)
    return {(names[u].strip(), names[v].strip()) for u, v in rows}


def try_one(folder: Path, number: int) -> tuple[str, str]:
    rng = Random(number)
    kind, text = make(folder, rng)
    begun = time.process_time()
    try:
        found = read_pairs(folder)
    except LogerError as error:
        return ("refused" if not text else "refused whole"), str(error)
    except BaseException:
        return "traceback", traceback.format_exc()
    if time.process_time() - begun > SLOW:
        return "slow", kind
    if text and found != slow_pairs(kind, text):
        return "other", f"{kind}: {sorted(found ^ slow_pairs(kind, text))[:4]}"
    return ("same" if text else "read"), kind


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
