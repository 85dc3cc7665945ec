"""Ray compared with threads at equal cores, memory of its workers, ranks against one process.

    python benchmarks/cluster.py export BUNDLE --users 4096      # seconds, memory, and equal rows
    python benchmarks/cluster.py resume BUNDLE       # all users, the driver killed on the way
    python benchmarks/cluster.py stages DATA --every 20     # a fit on a cut, to the same bytes
    python benchmarks/cluster.py ranks DATA --seeds 3            # one process …
    torchrun --nproc-per-node 2 benchmarks/cluster.py ranks DATA --seeds 3      # … and two

``export`` writes explained recommendations of the same users with threads, processes and Ray, with
equal numbers of workers, in turns. It reports wall-clock seconds, which need a quiet machine, and
processor seconds, which need it less. The costs of starting, sending the model and loading kernels
are measured separately, with 32 users. It compares the output byte by byte, and watches the memory
of each worker: USS (freed if the worker ended), PSS (shared pages divided among their users), and
what it shares with others.

``resume`` runs ``loger recommend --all --explain`` with threads and with Ray, kills Ray's driver
when a third of the parts is done, and runs the same command again. It compares all rows and checks
that no finished part was made again. ``stages`` fits on every N-th user with threads and with Ray,
evaluates, and compares all files of the two bundles and every user's metrics. ``ranks`` trains
TransE and prints NDCG@10 on validation, steps per second and rows exchanged. Every line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from loger.data import Split, load, split
from loger.data.dataset import Interactions
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.encoder.distributed import Ranks, joined
from loger.engine import LocalEngine, ProcessEngine, RayEngine
from loger.engine.settings import overridden, parsed
from loger.evaluation.evaluate import evaluate
from loger.evaluation.methods import EncoderAlone
from loger.model import LOGER
from loger.recommender import fit_for
from loger.store import export as exporting

WARM = 32
"""Users whose lists are made before the clock runs."""


class Watch(threading.Thread):
    """Notes the most that any worker of Ray held, twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.most = threading.Event(), {"uss": 0, "pss": 0, "shared": 0}

    def run(self) -> None:
        while not self.over.wait(0.5):
            for child in psutil.Process().children(recursive=True):
                try:
                    if child.name().startswith("ray::") and "work" in child.name():
                        held = child.memory_full_info()
                        now = {"uss": held.uss, "pss": held.pss, "shared": held.rss - held.uss}
                        self.most = {key: max(self.most[key], now[key]) for key in now}
                except psutil.Error:  # it ended while it was looked at
                    continue


def processor_seconds() -> float:
    """Of this process and of all that it started, Ray's own included."""
    here = psutil.Process()
    times = []
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.Error):  # it ended while it was looked at
            times.append(process.cpu_times())
    return float(sum(t.user + t.system for t in times))


def exported(
    model: LOGER, users: list[str], folder: Path
) -> tuple[tuple[float, float], dict[str, bytes]]:
    """Seconds on the clock and of processors, and the bytes of all parts."""
    start, before = time.perf_counter(), processor_seconds()
    exporting.export_lists(model, users, folder, 10, explain=True)
    took = time.perf_counter() - start, processor_seconds() - before
    return took, {path.name: path.read_bytes() for path in folder.glob("part-*")}


def export(options: argparse.Namespace) -> None:
    """Threads and Ray, turn by turn."""
    model = LOGER.load(options.path)
    users, workers = model.users[: options.users], options.workers
    watch = Watch()
    with (
        RayEngine("local", workers) as on_ray,
        ProcessEngine(workers) as processes,
        tempfile.TemporaryDirectory() as folder,
    ):
        engines: dict[str, Any] = {
            "threads": LocalEngine(workers),
            "processes": processes,
            "ray": on_ray,
        }
        exporting.USERS = WARM // workers // 2  # two blocks for each worker: one alone stays here
        for name, engine in engines.items():  # starts workers, loads kernels, sends the graph
            model.engine = engine
            took, _ = exported(model, model.users[-WARM:], Path(folder) / f"warm-{name}")
            print(json.dumps({f"start of {name}: seconds, of processors": took}), flush=True)
        exporting.USERS = options.part
        watch.start()
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
        parts: dict[str, dict[str, bytes]] = {}
        for turn in range(options.turns):
            for name, engine in engines.items():
                model.engine = engine
                took, parts[name] = exported(model, users, Path(folder) / f"{name}-{turn}")
                seconds[name].append(took)
        watch.over.set()
        watch.join()
        best = {name: np.min(times, axis=0) for name, times in seconds.items()}
        overhead = {name: (best["ray"] / best[name] - 1).tolist() for name in best if name != "ray"}
        found = {
            "users": len(users),
            "users in a part": options.part,
            "workers": workers,
            "seconds, of processors": seconds,
            "overhead of Ray over each, on the clock and of processors": overhead,
            "parts": len(parts["ray"]),
            "equal": parts["ray"] == parts["threads"] == parts["processes"],
            "sent MB": sum(stage.sent for stage in on_ray.stages.values()) / 1e6,
            "worker's own memory at most, MB (USS)": watch.most["uss"] / 1e6,
            "worker's share of all memory at most, MB (PSS)": watch.most["pss"] / 1e6,
            "mapped together with others at most, MB": watch.most["shared"] / 1e6,
        }
    print(json.dumps(found), flush=True)


def recommend(bundle: str, folder: Path, engine: str) -> subprocess.Popen[str]:
    """The command that writes the lists of all users with their reasons, begun."""
    command = [sys.executable, "-m", "loger", "--engine", engine, "recommend", bundle, "--all"]
    command += ["--explain", "--out", str(folder), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(folder: Path) -> dict[str, tuple[int, int]]:
    """The parts that are there: when they were written, and where they lie."""
    states = {path.name: path.stat() for path in folder.glob("part-*")}
    return {name: (state.st_mtime_ns, state.st_ino) for name, state in states.items()}


def resume(options: argparse.Namespace) -> None:
    """All lists by threads, and by Ray with a driver that is killed."""
    with tempfile.TemporaryDirectory() as place:
        by_threads, by_ray = Path(place, "threads"), Path(place, "ray")
        start = time.perf_counter()
        told = json.loads(recommend(options.path, by_threads, "threads").communicate()[0])
        seconds = time.perf_counter() - start
        driver = recommend(options.path, by_ray, "ray=local")
        while len(finished(by_ray)) < told["parts"] // 3 and driver.poll() is None:
            time.sleep(0.2)
        driver.kill()
        driver.communicate()
        before = finished(by_ray)
        again = json.loads(recommend(options.path, by_ray, "ray=local").communicate()[0])
        after = finished(by_ray)
        rows = [pl.read_parquet(folder / "part-*.parquet") for folder in (by_threads, by_ray)]
        same = [(by_threads / name).read_bytes() == (by_ray / name).read_bytes() for name in after]
        found = {
            "users": rows[0]["user"].n_unique(),
            "rows": len(rows[0]),
            "rows equal": rows[0].equals(rows[1]),
            "parts": len(after),
            "parts equal to the byte": sum(same),
            "there when the driver was killed": len(before),
            "kept, as the command says": again["kept"],
            "made again": sum(after[name] != state for name, state in before.items()),
            "seconds by threads": seconds,
        }
    print(json.dumps(found), flush=True)


def data(path: str) -> Split:
    """A data set's split; ``demo`` is the demo shop."""
    return split(shop(seed=2).dataset if path == "demo" else load(path))


def cut(path: str, every: int) -> Split:
    """A data set with the interactions of every so many users, and all facts."""
    whole = load(path)
    given = whole.interactions
    kept = given.users % every == 0
    columns = {f.name: getattr(given, f.name) for f in fields(given)}
    own = {n: c[kept] if isinstance(c, np.ndarray) else c for n, c in columns.items()}
    if (whole.facts.sources >= 0).any():
        raise SystemExit("facts of this set are known from interactions; take another")
    return split(replace(whole, interactions=Interactions(**own)))


def stages(options: argparse.Namespace) -> None:
    """A fit and an evaluation of a cut, by threads and by Ray."""
    parts = cut(options.path, options.every)
    with RayEngine("local", options.workers) as on_ray, tempfile.TemporaryDirectory() as place:
        files, ndcg = [], []
        for name, engine in (("threads", LocalEngine(options.workers)), ("ray", on_ray)):
            model = LOGER(engine=engine).fit(parts, progress=False)
            model.save(Path(place, name))
            files.append({p.name: p.read_bytes() for p in Path(place, name).iterdir()})
            ndcg.append(evaluate([model], parts, engine=engine).values)
        found = {
            "users": len(np.unique(parts.dataset.interactions.users)),
            "files": len(files[0]),
            "equal to the byte": sum(files[1].get(n) == raw for n, raw in files[0].items()),
            "evaluation equal": all(
                np.array_equal(a, ndcg[1][method][metric])
                for method, of in ndcg[0].items()
                for metric, a in of.items()
            ),
            "stages on Ray": sorted(on_ray.stages),
        }
    print(json.dumps(found), flush=True)


def learn(options: argparse.Namespace, ranks: Ranks) -> None:
    """TransE with each seed, by however many ranks there are."""
    parts, config = data(options.path), overridden(TransEConfig(), parsed(options.set))
    for seed in range(options.seeds):
        ranks.steps, ranks.rows, ranks.seconds = 0, 0, 0.0
        model = EncoderAlone(partial(TransE, replace(config, seed=seed)))
        start = time.perf_counter()
        fit_for(model, parts, "validation")
        seconds = ranks.seconds or time.perf_counter() - start
        found = {
            "data": parts.dataset.name,
            "ranks": ranks.size,
            "seed": seed,
            "ndcg": evaluate([model], parts, "validation").mean(model.name, "ndcg"),
            "seconds": seconds,
            "steps": ranks.steps,
            "steps/s per rank": ranks.steps / seconds,
            "rows exchanged per step": ranks.rows / max(1, ranks.steps),
        }
        print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["export", "resume", "stages", "ranks"])
    parser.add_argument("path", help="a bundle for export and resume; else data")
    parser.add_argument("--users", type=int, default=4096)
    parser.add_argument("--part", type=int, default=exporting.USERS, help="users in a part")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--every", type=int, default=20, help="of how many users one is taken")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of TransE")
    options = parser.parse_args()
    if options.what == "export":
        export(options)
    elif options.what == "resume":
        resume(options)
    elif options.what == "stages":
        stages(options)
    elif "RANK" in os.environ:
        with joined() as ranks:
            learn(options, ranks) if ranks.leads else ranks.help()
    else:
        from loger.encoder.distributed import current

        learn(options, current())


if __name__ == "__main__":
    main()
