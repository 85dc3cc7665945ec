"""Every figure in the first table of docs/research/speed.md in one run, with the machine's state.

    make bench                                          # or: python benchmarks/speed.py
    python benchmarks/speed.py --only fit shell --write # some of it, kept in docs/tables

Ratios compare alternatives that took turns in this run. Costs of ours alone are processor seconds,
which other work affects least, unless stated otherwise. ``--write`` stores the tables that the page
shows. Lines whose data or library is missing are left out and named.
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
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np

import encoder
import grounding
from generated import cellphones
from loger.engine import LocalEngine
from loger.engine.threads import one_thread
from loger.graph import history
from loger.model import LOGER
from loger.rules import candidates
from tables import COMMIT, ROOT, TABLES, aligned
from where import DATA

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
    """Steps of the encoder compared with the authors' way and other libraries."""
    found = encoder.throughput(cellphones(), options.seconds)
    base, at_50 = found["authors' way, 50 negatives"], found["ours, 50 negatives"]
    yield [
        "training at 50 negatives, triples/s, compared with the authors' way",
        at_50,
        base,
        at_50 / base,
    ]
    for negatives in ("50 negatives", "1 negative"):
        name, best = encoder.best_library(found, negatives)
        if name:
            own = found[f"ours, {negatives}"]
            yield [f"training, triples/s, compared with {name}", own, best, own / best]
    rows = [[name, round(rate), f"{rate / base:.1f}×"] for name, rate in sorted_by(found)]
    store(options, "encoder-throughput", ["training step", "triples/s", ""], ["", ",d", ""], rows)


def growth(options: argparse.Namespace) -> Iterator[Row]:
    """A step of the encoder at 1, 2 and 4 times the size."""
    found = encoder.growth([1, 2, 4])
    first, last = found[0].best, found[-1].best
    yield ["a training step at 4× the size, µs per triple, compared with 1×",
           1e6 * last, 1e6 * first, last / first]  # fmt: skip
    rows = [
        [f"{x.scale:g}×", x.triples, x.candidates, 1e6 * x.best, 1e6 * x.median, x.best / first,
         f"{x.gib:.2f} GiB"]
        for x in found
    ]  # fmt: skip
    columns = ["", "triples", "candidates", "µs per triple", "median", "× linear", "memory"]
    store(options, "encoder-growth", columns, ["", ",d", ",.0f", ".2f", ".2f", ".2f", ""], rows)


def retrieval(options: argparse.Namespace) -> Iterator[Row]:
    """The best items of all users by the encoder."""
    own, other = encoder.retrieval_times(cellphones())
    yield ["top 50 of 61,254 users, s, compared with NumPy", own, other, other / own]


def counting(options: argparse.Namespace) -> Iterator[Row]:
    """Groundings of the pairs of 300 users compared with other ways to count them."""
    graph = cellphones()
    found = grounding.cut(graph, candidates(graph), 300)
    own = found.pop("ours")
    name, best = min(found.items(), key=lambda pair: pair[1])
    yield [f"groundings of 300 users' pairs, s, compared with {name}", own, best, best / own]


def fit(options: argparse.Namespace) -> Iterator[Row]:
    """A default fit from nothing on one core, stage by stage, and the lists of all users on all."""
    found = measured("fit_stages.py", DATA / "amazon-beauty", "--save", options.bundle, cores=1)
    name, whole, gib = found["data"], found["fit"], found["gib"]
    yield [f"default fit on {name}, one core, processor seconds, compared with 120", whole, 120.0,
           whole / 120]  # fmt: skip
    yield ["its peak memory, GiB, compared with 3", gib, 3.0, gib / 3]
    stages = [[what, spent] for what, spent in sorted_by(found["stages"])[::-1] if spent > 0.5]
    store(options, "fit-stages", ["stage", "processor seconds"], ["", ".1f"],
          [*stages, ["in all", whole]])  # fmt: skip
    model = LOGER.load(options.bundle)
    users = np.arange(model.graph_.n_users)
    model.ranker_.top(users[:64], 10)
    start = time.perf_counter()
    model.ranker_.top(users, 10)
    wall = time.perf_counter() - start
    yield [f"top 10 of all {len(users):,} users of {name}, s by the clock, compared with 6",
           wall, 6.0, wall / 6]  # fmt: skip


def full(options: argparse.Namespace) -> Iterator[Row]:
    """A default fit at the size of the paper's Cellphones set."""
    found = measured("full_size.py")
    wall, gib = found["wall"], found["gib"]
    yield ["default fit at full size, s by the clock, compared with 600", wall, 600.0, wall / 600]
    yield ["its peak memory at full size, GiB, compared with 3", gib, 3.0, gib / 3]


def dense(options: argparse.Namespace) -> Iterator[Row]:
    """A default fit of dense data."""
    wall = measured("fit_stages.py", DATA / "ml1m")["wall"]
    yield ["default fit on ml1m, s by the clock, compared with 180", wall, 180.0, wall / 180]


def measured(script: str, *arguments: object, cores: int | None = None) -> dict[str, Any]:
    """What another benchmark measures in a process of its own, on so many cores."""
    own = os.sched_getaffinity(0)
    with TemporaryDirectory() as folder:
        out = Path(folder, "figures.json")
        command = [sys.executable, str(ROOT / "benchmarks" / script), *map(str, arguments)]
        try:
            os.sched_setaffinity(0, sorted(own)[-(cores or len(own)) :])
            subprocess.run([*command, "--out", str(out)], check=True)
        finally:
            os.sched_setaffinity(0, own)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def shell(options: argparse.Namespace) -> Iterator[Row]:
    """``loger recommend --explain`` from the shell, and a what-if inside."""
    model = LOGER.load(options.bundle, engine=LocalEngine(1))
    command = [str(Path(sys.executable).with_name("loger")), "recommend", str(options.bundle)]
    command += [model.users[0], "--explain"]
    subprocess.run(command, check=True, capture_output=True)
    walls, spent = zip(*(seconds_of(command) for _ in range(9)), strict=True)
    clock = float(np.median(walls))
    yield ["loger recommend --explain, s by the clock, median, compared with 1", clock, 1.0, clock]
    yield ["its processor seconds, least, compared with 1", min(spent), 1.0, min(spent)]
    some = np.random.default_rng(0).choice(model.graph_.n_users, 60, replace=False)
    each = []
    with one_thread():
        for u in some.tolist():
            has = history(model.graph_, np.array([u]))[1]
            start = time.process_time()
            model.ranker_.user_view(u, [int(has[0])]).top([u], 10)
            each.append(1000 * (time.process_time() - start))
    middle = float(np.median(each[5:]))
    yield ["a what-if, median, ms, compared with 5", middle, 5.0, middle / 5]


def seconds_of(command: list[str]) -> tuple[float, float]:
    """Seconds of a command, by the clock and of the processor."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, os.times()
    return wall, after.children_user + after.children_system - before[2] - before[3]


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
    yield ["memory of a server's worker, MB (PSS), compared with 350", each, 350.0, each / 350]


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
    about = {
        "command": f"python benchmarks/speed.py --only {' '.join(options.only)}",
        "seeds": [0],
        "commit": COMMIT,
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
    "full": full,
    "dense": dense,
    "shell": shell,
    "serving": serving,
    "training": training,
    "retrieval": retrieval,
    "counting": counting,
}
OF_BUNDLE = ("shell", "serving")
COLUMNS = ["", "ours", "compared with", "ratio"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, default=Path(gettempdir()) / "loger-bench.bundle")
    parser.add_argument("--seconds", type=float, default=8, help="per method of the training steps")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument(
        "--packages", nargs="*", default=[], help="more folders of packages, as for RecBole"
    )
    parser.add_argument("--write", action="store_true", help="keep the tables in docs/tables")
    options = parser.parse_args()
    options.machine = machine()
    sys.path += options.packages
    print(", ".join(f"{k} {v}" for k, v in options.machine.items()), flush=True)
    file = TABLES / "speed.json"
    kept = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    rows: list[Row] = []
    for name in options.only:
        needed = {"fit": DATA / "amazon-beauty", "dense": DATA / "ml1m"}.get(name)
        needed = options.bundle if name in OF_BUNDLE else needed
        if needed is not None and not needed.exists():
            print(f"{name}: left out, no {needed}")
            continue
        rows += [[*row, name] for row in PARTS[name](options)]
        # Parts that were not run keep their lines, and who stops this keeps what is done.
        done = {row[4] for row in rows}
        lines = rows + [row for row in kept if row[4] in PARTS and row[4] not in done]
        lines.sort(key=lambda row: list(PARTS).index(row[4]))
        store(options, "speed", [*COLUMNS, "part"], ["", ",.2f", ",.2f", ".2f", ""], lines)
    print(aligned(COLUMNS, [[what, *(f"{x:,.2f}" for x in xs)] for what, *xs, _ in rows]))


if __name__ == "__main__":
    main()
