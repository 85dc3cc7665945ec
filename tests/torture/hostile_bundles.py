"""Damage bundles, checkpoints and data sets, sign some of them again, and use what still loads.

    python tests/torture/hostile_bundles.py 1000

A bundle must load completely or be refused with one line of ours, and a loaded one must answer. A
checkpoint, of an encoder or of a stage of a fit, must be resumed completely or not at all. A saved
data set that loads must have a graph. None may take more memory than ten times its size, or
``LEAST`` if that is more. Each child process works through many of them under a memory limit. If
one dies, that is a crash, counted with the number of its bundle, and the next child continues after
it. The last line is a JSON object of counts, with the largest memory of one in MB.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import multiprocessing as mp
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors.numpy import load_file, save_file

from loger.data import load
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.encoder.training import FOLDER, Checkpoint
from loger.engine.files import MANIFEST, manifest_digest
from loger.errors import LogerError
from loger.learning.fit import Stages
from loger.model import LOGER, LOGERConfig

ROOM = 512 * 2**20
"""Bytes that a child may allocate beyond what it has after its first bundle."""
TIMES, LEAST = 10, 128 * 2**20
"""The memory that one may take, in times of its size and in bytes (docs/how-to/deploy.md)."""
ODD = [None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), "", "x", [], {}, [[]]]
Rng = np.random.Generator


def make(folder: Path) -> None:
    """A small bundle to damage, a checkpoint of an encoder and one of a stage."""
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
    LOGER(config).fit(split(shop(users=60, items=80).dataset)).save(folder / "bundle")
    torn = torch.arange(600, dtype=torch.float32).reshape(100, 6)
    Checkpoint(folder / "encoder", "run").save(3, {"table": torn, "steps": torch.tensor([7])})
    stage_of(folder / "stage", lambda: STAGE)
    shop(users=40, items=60).dataset.save(folder / "dataset")


def sign(folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Make checksums true again, as who means harm would."""
    parts = json.loads((folder / MANIFEST).read_text())
    parts.pop("sha256")
    files = {name: (folder / name).read_bytes() for name in parts["files"]}
    parts["files"] = {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}
    change(parts)
    text = json.dumps({**parts, "sha256": manifest_digest(parts)})
    (folder / MANIFEST).write_text(text)


# ── damage without a forged checksum: refused, or nothing changes ───────────────────────


def flip(folder: Path, rng: Rng) -> None:
    path = rng.choice(np.array(sorted(folder.iterdir())))
    raw = bytearray(path.read_bytes())
    raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def cut(folder: Path, rng: Rng) -> None:
    path = rng.choice(np.array(sorted(folder.iterdir())))
    raw = path.read_bytes()
    path.write_bytes(raw[: rng.integers(len(raw))])


def lose(folder: Path, rng: Rng) -> None:
    rng.choice(np.array(sorted(folder.iterdir()))).unlink()


def swap(folder: Path, rng: Rng) -> None:
    one, other = rng.choice(np.array(sorted(folder.iterdir())), 2, replace=False)
    text = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(text)


# ── damage with checksums made true again ───────────────────────────────────────────────


def array_file(folder: Path, rng: Rng) -> Path:
    found: Path = rng.choice(np.array(sorted(folder.glob("*.safetensors"))))
    return found


def values(folder: Path, rng: Rng) -> None:
    path = array_file(folder, rng)
    arrays = {k: np.array(v) for k, v in load_file(path).items()}
    array = arrays[str(rng.choice(sorted(arrays)))].reshape(-1)
    places = rng.integers(len(array), size=rng.integers(1, 4)) if len(array) else []
    for place in places:
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.finfo(array.dtype)
        near = array[place] + rng.integers(-2, 3)
        options = [limits.min, limits.max, 0, 1, near, array[rng.integers(len(array))]]
        with np.errstate(all="ignore"):
            array[place] = np.asarray(options[rng.integers(len(options))]).astype(array.dtype)
    save_file(arrays, path)
    sign(folder)


def shapes(folder: Path, rng: Rng) -> None:
    path = array_file(folder, rng)
    arrays = dict(load_file(path))
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name]
    half = array[: rng.integers(len(array) + 1)]
    kinds = (np.int8, np.int64, np.float32, np.float64, np.uint16)
    other: list[Callable[[], Any]] = [
        lambda: half,
        lambda: np.concatenate([array, half]),
        lambda: array[::-1].copy(),
        lambda: array.astype(kinds[rng.integers(len(kinds))]),
        lambda: array.reshape(1, -1),
        lambda: array.reshape(-1, 1),
        lambda: rng.permutation(array),
    ]
    with np.errstate(all="ignore"):
        arrays[name] = np.ascontiguousarray(other[rng.integers(len(other))]())
    if rng.random() < 0.1:
        arrays.pop(name)
    save_file(arrays, path)
    sign(folder)


def header(folder: Path, rng: Rng) -> None:
    path = array_file(folder, rng)
    raw = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(raw[:8], "little")
    digits = [k for k in range(end) if k < 8 or chr(raw[k]).isdigit()]
    for place in rng.choice(digits, rng.integers(1, 3)):
        raw[place] = rng.integers(256) if place < 8 else ord("0") + int(rng.integers(10))
    path.write_bytes(raw)
    sign(folder)


def padded(folder: Path, rng: Rng) -> None:
    """Fills a manifest with what takes the most memory for its length."""
    part = (json.loads(text) for text in rng.permutation(["[]", "{}", "1.5", '"ab"']))
    n = int(rng.integers(200_000, 2_000_000))
    sign(folder, lambda parts: parts["about"].update(more=[*part, *([[]] * n)]))


def nested(folder: Path, rng: Rng) -> None:
    """Puts lists in place of names."""
    path = folder / "entities.safetensors"
    arrays = dict(load_file(path))
    name = str(rng.choice([k for k, v in arrays.items() if v.dtype == np.uint8]))
    lists = b"[" + b"[], " * int(rng.integers(1_000_000, 4_000_000)) + b"[]]"
    save_file({**arrays, name: np.frombuffer(lists, dtype=np.uint8)}, path)
    sign(folder)


def about(folder: Path, rng: Rng) -> None:
    def change(parts: dict[str, Any]) -> None:
        here: Any = parts["about"]
        while len(here):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            key = keys[rng.integers(len(keys))]
            deeper = isinstance(here[key], dict | list) and len(here[key])
            if not deeper or rng.random() < 0.1:
                break
            here = here[key]
        if rng.random() < 0.1:
            del here[key]
        else:
            here[key] = ODD[rng.integers(len(ODD))]

    sign(folder, change)


def forged(folder: Path, rng: Rng) -> None:
    """Flips bits of a table."""
    path: Path = rng.choice(np.array(sorted(folder.glob("*.parquet"))))
    raw = bytearray(path.read_bytes())
    for place in rng.integers(len(raw), size=rng.integers(1, 4)):
        raw[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)
    sign(folder)


def columns(folder: Path, rng: Rng) -> None:
    """Changes a column of a table: its cells, its type, its place, or all rows."""
    path: Path = rng.choice(np.array(sorted(folder.glob("*.parquet"))))
    table = pl.read_parquet(path)
    name = str(rng.choice(table.columns))
    cells = table[name]
    kinds = (pl.Int8, pl.Int64, pl.UInt64, pl.Float64, pl.String, pl.Binary, pl.Boolean, pl.Date)
    places = rng.integers(len(table), size=3).tolist()
    odd = (-1, 0, 1, 2**31 - 1, None)[rng.integers(5)]
    other: list[Callable[[], pl.DataFrame]] = [
        lambda: table.drop(name),
        lambda: table.with_columns(cells.cast(kinds[rng.integers(len(kinds))], strict=False)),
        lambda: table.with_columns(pl.Series(name, [None] * len(table))),
        lambda: table.with_columns(pl.Series(name, [[1]] * len(table))),
        lambda: table.with_columns(cells.shuffle(int(rng.integers(99)))),
        lambda: table.with_columns(cells.reverse()),
        lambda: table[: rng.integers(len(table) + 1)],
        lambda: pl.concat([table, table[:3]]),
        lambda: table.with_columns(cells.scatter(places, [odd] * 3)),
        lambda: table.with_columns(cells.scatter(places, [odd] * 3)),
        lambda: table.rename({name: name + "x"}),
    ]
    with suppress(pl.exceptions.PolarsError):
        other[rng.integers(len(other))]().write_parquet(path)
    sign(folder)


PLAIN = (flip, cut, lose, swap)
SIGNED = {
    "bundle": (values, values, shapes, header, about, padded, nested),
    "encoder": (values, shapes, header, about),
    "stage": (values, shapes, header, about),
    "dataset": (columns, columns, columns, forged, about, padded),
}


# ── use ─────────────────────────────────────────────────────────────────────────────────


def answers(folder: Path) -> str:
    """What a model says to a few questions; one that loads must answer them."""
    model = LOGER.load(folder)
    users = model.users[:2]
    lists = model.recommend(users, 5)
    first = lists["item"].to_list()[:1]
    told = [str(model.explain(users[0], item)) for item in first]
    more = [str(model.what_if(users[0], remove=list(model.history(users[0])["item"])[:1]))]
    return lists.write_csv() + "\n".join(told + more)


def taken_up(folder: Path) -> str:
    """What a checkpoint of an encoder gives its fit: the epochs, and the tensors after them."""
    tensors = {"table": torch.zeros(100, 6), "steps": torch.tensor([0])}
    epochs = Checkpoint(folder.parent, "run").resume(tensors)
    return "afresh" if not epochs else f"{epochs} {[t.tolist() for t in tensors.values()]}"


STAGE: tuple[dict[str, Any], dict[str, Any]] = (
    {"rules": [["bought", "has"]], "weights": [0.25, 1e-9], "own": None},
    {"table": np.arange(300.0).reshape(60, 5), "ends": np.arange(7)},
)


def stage_of(folder: Path, compute: Callable[[], Any] = lambda: None) -> str:
    """What a stage of a fit gives: kept, or computed now."""

    def unpack(values: dict[str, Any], arrays: Any) -> str:
        return json.dumps([values, {k: v.tolist() for k, v in sorted(arrays.items())}])

    given = Stages(folder.parent).once(folder.name, ("run",), compute, lambda kept: kept, unpack)
    return given if isinstance(given, str) else "afresh"


class AfreshError(Exception):
    """A stage that is computed again."""


def staged(folder: Path) -> str:
    def again() -> Any:
        raise AfreshError

    try:
        return stage_of(folder, again)
    except AfreshError:
        return "afresh"


def graph_of(folder: Path) -> str:
    """What a data set comes to: names, and the graph of its training part."""
    data = load(folder)
    return f"{data.vocabulary.names[:5]} {split(data).graph.fingerprint}"


USES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "bundle": ("bundle", answers),
    "encoder": (f"encoder/{FOLDER}", taken_up),
    "stage": ("stage", staged),
    "dataset": ("dataset", graph_of),
}


class Whole:
    """Something to damage: its files, and what it says while it is whole."""

    def __init__(self, folder: Path, kind: str) -> None:
        place, self.use = USES[kind]
        self.place = place
        self.files = {p.name: p.read_bytes() for p in (folder / place).iterdir() if p.is_file()}
        self.expected = self.use(folder / place)

    def put(self, work: Path) -> Path:
        """A fresh copy of it below a folder."""
        copy = work / self.place
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        for name, raw in self.files.items():
            (copy / name).write_bytes(raw)
        return copy


def try_one(wholes: dict[str, Whole], work: Path, number: int) -> tuple[str, str, int]:
    """What became of one damaged bundle or checkpoint, and the memory that it took."""
    rng = np.random.default_rng(number)
    kind = ("bundle", "bundle", "bundle", "encoder", "stage", "dataset")[rng.integers(6)]
    ways = PLAIN if rng.random() < 0.3 else SIGNED[kind]
    way = ways[rng.integers(len(ways))]
    what, place = f"{kind}, {way.__name__}", wholes[kind].put(work)
    way(place, rng)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # so that the peak starts anew
    before, size = memory("VmRSS"), sum(path.stat().st_size for path in place.iterdir())
    result, told = used(wholes[kind], place, ways is PLAIN)
    taken = memory("VmHWM") - before
    if taken > max(TIMES * size, LEAST):
        result, told = "memory", f"{taken / 2**20:.0f} MB for {size / 2**20:.1f} MB"
    return result, f"{what}: {told}", taken


def memory(kind: str) -> int:
    """The resident memory of this process, or its peak, in bytes."""
    found = re.findall(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[0]) * 1024


def used(whole: Whole, place: Path, plain: bool) -> tuple[str, str]:
    """What became of one that is damaged: the kind of result, and what was said."""
    try:
        told = whole.use(place)
    except LogerError as error:
        refusal = str(error)
        long = "\n" in refusal or len(refusal) > 1000
        return ("long" if long else "refused"), refusal
    except MemoryError:
        return "memory", "refused by the system"
    except Exception:
        return "traceback", traceback.format_exc()
    if told == "afresh":
        return "refused", told
    return ("silent" if plain and told != whole.expected else "loaded"), ""


def child(whole: Path, numbers: range, pipe: Any) -> None:
    logging.disable()  # that a stage is computed again is told
    wholes = {kind: Whole(whole, kind) for kind in USES}
    assert "afresh" not in {w.expected for w in wholes.values()}
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    with tempfile.TemporaryDirectory() as work:
        for number in numbers:
            pipe.send((number, *try_one(wholes, Path(work), number)))
    pipe.send(None)


def run(n: int, seed: int = 0) -> Counter[str]:
    """Counts of what became of n damaged bundles; details of failures go to stderr."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        make(whole)
        following = seed
        while following < seed + n:
            following = batch(whole, range(following, seed + n), counts)
    return counts


def batch(whole: Path, numbers: range, counts: Counter[str]) -> int:
    """Work through bundles in a child process until the end or its death; the next number."""
    receive, send = mp.get_context("spawn").Pipe(duplex=False)
    process = mp.get_context("spawn").Process(target=child, args=(whole, numbers, send))
    process.start()
    send.close()
    following = numbers.start
    try:
        while (told := receive.recv()) is not None:
            number, result, detail, taken = told
            counts[result] += 1
            counts["most_mb"] = max(counts["most_mb"], taken // 2**20)
            following = number + 1
            if result not in ("refused", "loaded"):
                print(f"bundle {number}: {result}: {detail}", file=sys.stderr)
    except EOFError:
        process.join()
        counts["crash"] += 1
        print(f"bundle {following}: crash, exit {process.exitcode}", file=sys.stderr)
        following += 1
    process.join()
    return following


if __name__ == "__main__":
    begun = time.time()
    n, seed = (*(int(x) for x in sys.argv[1:3]), *(1000, 0)[len(sys.argv) - 1 :])
    print(json.dumps({**run(n, seed), "seconds": round(time.time() - begun)}))
