"""Damages bundles in every way we know, re-signed ones too, and uses what still loads.

    python tests/torture/hostile_bundles.py 1000

A bundle must load whole or be refused with one line of ours; what loads must answer. Each child
process works through many bundles under a limit of memory; one that dies is a crash, counted
with the number of its bundle, and the next goes on behind it. The last line is a JSON of counts.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.errors import LogerError
from loger.files import MANIFEST, checksum, manifest_digest
from loger.model import LOGER, LOGERConfig

ROOM = 512 * 2**20
"""Bytes that a child may allocate beyond what it has after its first bundle."""
ODD = [None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), "", "x", [], {}, [[]]]
Rng = np.random.Generator


def make(folder: Path) -> None:
    """A small bundle to damage."""
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
    LOGER(config).fit(split(shop(users=60, items=80).dataset)).save(folder)


def sign(folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Make checksums true again, as who means harm would."""
    parts = json.loads((folder / MANIFEST).read_text())
    parts.pop("sha256")
    parts["files"] = {name: checksum(folder / name) for name in parts["files"]}
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


def about(folder: Path, rng: Rng) -> None:
    def change(parts: dict[str, Any]) -> None:
        here: Any = parts["about"]
        while True:
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


PLAIN, SIGNED = (flip, cut, lose, swap), (values, values, shapes, header, about)


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


def try_one(whole: Path, work: Path, number: int, expected: str) -> tuple[str, str]:
    """What became of one damaged bundle."""
    rng = np.random.default_rng(number)
    ways = PLAIN if rng.random() < 0.3 else SIGNED
    way = ways[rng.integers(len(ways))]
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work)
    way(work, rng)
    try:
        told = answers(work)
    except LogerError as error:
        refusal = str(error)
        long = "\n" in refusal or len(refusal) > 1000
        return ("long" if long else "refused"), f"{way.__name__}: {refusal}"
    except MemoryError:
        return "memory", way.__name__
    except Exception:
        return "traceback", f"{way.__name__}\n{traceback.format_exc()}"
    if ways is PLAIN and told != expected:
        return "silent", way.__name__
    return "loaded", way.__name__


def child(whole: Path, numbers: range, pipe: Any) -> None:
    expected = answers(whole)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    with tempfile.TemporaryDirectory() as work:
        for number in numbers:
            pipe.send((number, *try_one(whole, Path(work) / "b", number, expected)))
    pipe.send(None)


def run(n: int, seed: int = 0) -> Counter[str]:
    """Counts of what became of n damaged bundles; details of failures go to stderr."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "bundle"
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
            number, result, detail = told
            counts[result] += 1
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
