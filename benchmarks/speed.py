"""Every figure of docs/speed.md's first table in one run, with the state of the machine.

    make bench                                          # or: python benchmarks/speed.py
    python benchmarks/speed.py --only fit shell --write # some of it, kept in docs/tables

Ratios are of ways that took turns in this run; costs of ours alone are processor seconds, which
other work on the machine disturbs least, unless they say otherwise. ``--write`` stores the tables
that the page shows. Where the data or a library is missing, its lines are left out and named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

import encoder
import grounding
from fit_stages import Laps
from full_size import peak_gib
from generated import cellphones
from loger.data import load, split
from loger.engine import LocalEngine
from loger.engine.threads import one_thread
from loger.graph import history
from loger.model import LOGER
from loger.rules import candidates
from tables import ROOT, TABLES, aligned

Row = list[Any]
"""What was measured, ours, the other's or the bar, and the ratio."""
SERVER = "import sys; from loger.cli import main; sys.argv = ['loger', *sys.argv[1:]]; main()"


def machine() -> dict[str, Any]:
    """Where and in what company this runs."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "as the libraries choose"),
        "load": round(os.getloadavg()[0], 1),
    }


def training(options: argparse.Namespace) -> Iterator[Row]:
    """Steps of the encoder beside the authors' way and libraries."""
    found = encoder.throughput(cellphones(), options.seconds)
    base, at_50 = found["authors' way, 50 negatives"], found["ours, 50 negatives"]
    yield [
        "training at 50 negatives, triples/s, beside the authors' way",
        at_50,
        base,
        at_50 / base,
    ]
    for negatives in ("50 negatives", "1 negative"):
        name, best = encoder.best_library(found, negatives)
        if name:
            own = found[f"ours, {negatives}"]
            yield [f"training, triples/s, beside {name}", own, best, own / best]
    rows = [[name, round(rate), f"{rate / base:.1f}×"] for name, rate in sorted_by(found)]
    store(options, "encoder-throughput", ["training step", "triples/s", ""], ["", ",d", ""], rows)


def growth(options: argparse.Namespace) -> Iterator[Row]:
    """A step of the encoder at 1, 2 and 4 times the size."""
    found = encoder.growth([1, 2, 4])
    first, last = found[0].best, found[-1].best
    yield ["a training step at 4× the size, µs per triple, beside 1×", 1e6 * last, 1e6 * first,
           last / first]  # fmt: skip
    rows = [
        [f"{x.scale:g}×", x.triples, x.candidates, 1e6 * x.best, 1e6 * x.median, x.best / first,
         f"{x.gib:.2f} GiB"]
        for x in found
    ]  # fmt: skip
    columns = ["", "triples", "candidates", "µs per triple", "median", "× linear", "memory"]
    store(options, "encoder-growth", columns, ["", ",d", ",.0f", ".2f", ".2f", ".2f", ""], rows)


def retrieval(options: argparse.Namespace) -> Iterator[Row]:
    """The best items of all users by the encoder."""
    own, other = encoder.retrieval(cellphones())
    yield ["top 50 of 61,254 users, s, beside NumPy", own, other, other / own]


def counting(options: argparse.Namespace) -> Iterator[Row]:
    """Groundings of the pairs of 300 users beside other ways to count them."""
    graph = cellphones()
    found = grounding.cut(graph, candidates(graph), 300)
    own = found.pop("ours")
    name, best = min(found.items(), key=lambda pair: pair[1])
    yield [f"groundings of 300 users' pairs, s, beside {name}", own, best, best / own]


def fit(options: argparse.Namespace) -> Iterator[Row]:
    """A default fit from nothing, stage by stage, and the lists of all users."""
    parts, laps = split(load(options.data)), Laps()
    begun = time.process_time()
    model = LOGER().fit(parts, progress=laps)
    laps("done", 1, 1)
    whole, name = time.process_time() - begun, parts.dataset.name
    yield [f"default fit on {name}, processor seconds, beside 120", whole, 120.0, whole / 120]
    yield ["its peak memory, GiB, beside 3", peak_gib(), 3.0, peak_gib() / 3]
    stages = [[what, seconds] for what, seconds in sorted_by(laps.seconds)[::-1] if seconds > 0.5]
    store(options, "fit-stages", ["stage", "processor seconds"], ["", ".1f"],
          [*stages, ["in all", whole]])  # fmt: skip
    model.save(options.bundle)
    users = np.arange(model.graph_.n_users)
    model.ranker_.top(users[:64], 10)
    start = time.perf_counter()
    model.ranker_.top(users, 10)
    wall = time.perf_counter() - start
    yield [f"top 10 of all {len(users):,} users of {name}, s by the clock, beside 6", wall, 6.0,
           wall / 6]  # fmt: skip


def shell(options: argparse.Namespace) -> Iterator[Row]:
    """``loger recommend --explain`` from the shell, and a what-if inside."""
    model = LOGER.load(options.bundle, engine=LocalEngine(1))
    command = [sys.executable, "-m", "loger", "recommend", str(options.bundle), "--explain"]
    command += ["--user", model.users[0]]
    subprocess.run(command, check=True, capture_output=True)
    best = min(children_seconds(command) for _ in range(5))
    yield ["loger recommend --explain, processor seconds, beside 1", best, 1.0, best]
    some = np.random.default_rng(0).choice(model.graph_.n_users, 60, replace=False)
    spent = []
    with one_thread():
        for u in some.tolist():
            has = history(model.graph_, np.array([u]))[1]
            start = time.process_time()
            model.ranker_.user_view(u, [int(has[0])]).top([u], 10)
            spent.append(1000 * (time.process_time() - start))
    middle = float(np.median(spent[5:]))
    yield ["a what-if, median, ms, beside 5", middle, 5.0, middle / 5]


def children_seconds(command: list[str]) -> float:
    """Processor seconds of a command."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before[2] - before[3]


def serving(options: argparse.Namespace) -> Iterator[Row]:
    """Memory of a server of two workers after questions, shared pages counted once."""
    from urllib.parse import quote
    from urllib.request import urlopen

    names = LOGER.load(options.bundle).users
    with server(options.bundle) as (process, url):
        for name in names[:200]:
            urlopen(f"{url}/v1/recommendations?user={quote(name)}&k=10", timeout=60).read()
        held = [pss_mb(pid) for pid in tree(process.pid)]
    each = sum(held) / 2
    yield ["memory of a server's worker, MB (PSS), beside 350", each, 350.0, each / 350]


@contextmanager
def server(bundle: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server of two workers, when it answers."""
    from urllib.request import urlopen

    url = "http://127.0.0.1:8765"
    command = [sys.executable, "-c", SERVER, "serve", str(bundle), "--workers", "2"]
    process = subprocess.Popen([*command, "--port", "8765"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urlopen(f"{url}/v1/health", timeout=1).read()
                break
            except OSError:
                time.sleep(0.2)
        yield process, url
    finally:
        process.terminate()
        process.wait(60)


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *(k for child in text.split() for k in tree(int(child)))]


def pss_mb(pid: int) -> float:
    """What a process holds, in MB, a page that n processes share as 1/n."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else float("nan")


def sorted_by(found: dict[str, float]) -> list[tuple[str, float]]:
    """By value, the least first."""
    return sorted(found.items(), key=lambda pair: pair[1])


def store(
    options: argparse.Namespace, name: str, columns: list[str], formats: list[str], rows: list[Row]
) -> None:
    """Keep a table for the page."""
    if not options.write:
        return
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    about = {
        "command": f"python benchmarks/speed.py --only {' '.join(options.only)}",
        "seeds": [0],
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "machine": options.machine | {"load after": round(os.getloadavg()[0], 1)},
        "columns": columns,
        "formats": formats,
        "rows": rows,
    }
    text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    (TABLES / f"{name}.json").write_text(text, encoding="utf-8")


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "growth": growth,
    "fit": fit,
    "shell": shell,
    "serving": serving,
    "training": training,
    "retrieval": retrieval,
    "counting": counting,
}
OF_BUNDLE = ("fit", "shell", "serving")
COLUMNS = ["", "ours", "beside", "ratio"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/amazon-beauty")
    parser.add_argument("--bundle", type=Path, default=Path(gettempdir()) / "loger-bench.bundle")
    parser.add_argument("--seconds", type=float, default=8, help="per method of the training steps")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--write", action="store_true", help="keep the tables in docs/tables")
    options = parser.parse_args()
    options.machine = machine()
    print(", ".join(f"{k} {v}" for k, v in options.machine.items()), flush=True)
    file = TABLES / "speed.json"
    kept = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    rows: list[Row] = []
    for name in options.only:
        if name in OF_BUNDLE and not (options.data if name == "fit" else options.bundle).exists():
            print(f"{name}: left out, no {options.data if name == 'fit' else options.bundle}")
            continue
        rows += [[*row, name] for row in PARTS[name](options)]
    print(aligned(COLUMNS, [[what, *(f"{x:,.2f}" for x in xs)] for what, *xs, _ in rows]))
    # Parts that were not run keep their lines.
    rows = [row for row in kept if row[4] not in options.only] + rows
    rows.sort(key=lambda row: list(PARTS).index(row[4]))
    store(options, "speed", [*COLUMNS, "part"], ["", ",.2f", ",.2f", ".2f", ""], rows)


if __name__ == "__main__":
    main()
