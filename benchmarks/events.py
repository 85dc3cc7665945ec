"""A server that learns while it recommends: what events cost, and what kills do.

    python benchmarks/events.py --bundle my.bundle --seconds 100 --kills 20 --out events.json

Recommendations are requested at a fixed rate, first alone, then together with events. Latency
counts from when a request was due. Then the server is killed (SIGKILL, with everything it started)
at random moments under the same load and started again. Each acknowledged event must occur once in
the store and once in the bundle it is folded into. Without ``--bundle``, the demo shop is fitted.
The defaults are short; a full run is ``--seconds 100 --rate 500 --ask 50 --kills 20``, 50,000
events.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from loger.model import LOGER
from loger.updates.events import Event, EventStore, events_path
from loger.web.folding import fold

Told = dict[str, Any]
"""An event as it is sent."""
EVENTS = 50_000
"""Of the bar."""
BATCH = 25
"""Events of a request."""
OF_KNOWN, OF_NEW = 2, 8
"""Interactions of somebody who was there before, on average and at most, and of somebody new: a
small shop whose users buy everything would be another shop."""


def demo(folder: Path) -> Path:
    """The demo shop, fitted."""
    from loger.data.demo import shop
    from loger.data.splits import split

    LOGER().fit(split(shop().dataset), progress=False).save(folder / "demo.bundle")
    return folder / "demo.bundle"


class Server:
    """``loger serve`` in a process group of its own."""

    def __init__(self, bundle: Path, merge_interval: float) -> None:
        command = [sys.executable, "-m", "loger", "serve", str(bundle), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--set", f"merge_interval={merge_interval}"],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, "")
        found = next(m for line in lines if (m := re.search(r"running on (http://\S+)", line)))
        self.where = urlsplit(found[1]).netloc
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def kill(self) -> None:
        """End it, and what it started, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Load:
    """Clients that ask and tell at fixed rates until they are stopped."""

    def __init__(
        self, where: str, users: list[str], items: list[str], seed: int, paths: int = 3
    ) -> None:
        self.where, self.users, self.items, self.paths = where, users, items, paths
        self.random, self.seed, self.newcomers = random.Random(seed), seed, 0
        self.seconds: dict[str, list[float]] = {"recommend": [], "events": []}
        self.failures: list[str] = []
        self.acknowledged: list[Told] = []
        self.unanswered: list[Told] = []
        self._end = threading.Event()
        self._jobs: dict[str, queue.Queue[tuple[float, list[Told]] | None]] = {}
        self._threads: list[threading.Thread] = []

    def start(self, ask: float, tell: float, clients: int = 4) -> Load:
        """Ask ``ask`` lists and tell ``tell`` events in a second."""
        for kind, rate in (("recommend", ask), ("events", tell / BATCH)):
            self._jobs[kind] = queue.Queue()
            if rate:
                self._thread(self._due, kind, rate)
                for _ in range(clients):
                    self._thread(self._client, kind)
        return self

    def stop(self) -> None:
        """Stop, and wait for what is under way."""
        self._end.set()
        for jobs in self._jobs.values():
            for _ in self._threads:
                jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _thread(self, what: Any, *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _due(self, kind: str, rate: float) -> None:
        begun, n = time.perf_counter(), 0
        while not self._end.is_set():
            self._jobs[kind].put((begun + n / rate, self._events() if kind == "events" else []))
            n += 1
            time.sleep(max(0.0, begun + n / rate - time.perf_counter()))

    def _events(self) -> list[Told]:
        return [
            {
                "kind": "interaction",
                "user": self._who(),
                "item": self.random.choice(self.items),
                "time": 2_000_000_000 + self.random.getrandbits(36),  # tells two events apart
                "key": f"{self.random.getrandbits(96):x}",
            }
            for _ in range(BATCH)
        ]

    def _who(self) -> str:
        if self.random.random() < OF_KNOWN * len(self.users) / EVENTS:
            return self.random.choice(self.users)
        self.newcomers += 1
        return f"new {self.seed} {self.newcomers // OF_NEW}"

    def _client(self, kind: str) -> None:
        connection = HTTPConnection(self.where, timeout=60)
        while (job := self._jobs[kind].get()) is not None:
            due, events = job
            try:
                if kind == "events":
                    headers = {"Content-Type": "application/json"}
                    connection.request(
                        "POST", "/v1/events", json.dumps({"events": events}), headers
                    )
                else:
                    user = quote(self.random.choice(self.users))
                    how = f"explain={self.paths >= 0}&paths={max(self.paths, 0)}"
                    asked = f"user={user}&k=10&{how}"
                    connection.request("GET", f"/v1/recommendations?{asked}")
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, HTTPException) as error:
                self.unanswered += events
                self.failures.append(repr(error))
                return
            self.seconds[kind].append(time.perf_counter() - due)
            if answer.status != 200:
                self.failures.append(f"{kind}: {answer.status} {text[:200]!r}")
            else:
                self.acknowledged += events


def percentiles(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    values = np.array(seconds) * 1000
    return {f"p{q}": round(float(np.percentile(values, q)), 1) for q in (50, 95, 99)}


def cost(bundle: Path, names: tuple[list[str], list[str]], args: argparse.Namespace) -> dict:
    """Latency of recommendations alone and with events, in turns on the same machine."""
    server = Server(bundle, args.merge_interval)
    told: dict[str, list[float]] = {"alone": [], "beside": [], "events": []}
    failures, acknowledged = list[str](), 0
    try:
        Load(server.where, *names, seed=9, paths=args.paths).start(args.ask, 0).stop()
        for turn in range(args.turns):
            for kind, rate in (("alone", 0.0), ("beside", args.rate)):
                load = Load(server.where, *names, seed=turn, paths=args.paths).start(args.ask, rate)
                time.sleep(args.seconds / args.turns)
                load.stop()
                told[kind] += load.seconds["recommend"]
                told["events"] += load.seconds["events"]
                failures += load.failures
                acknowledged += len(load.acknowledged)
        connection = HTTPConnection(server.where, timeout=60)
        connection.request("GET", "/v1/about")
        staleness = json.loads(connection.getresponse().read())["staleness"]
    finally:
        server.kill()
    found = {kind: percentiles(seconds) for kind, seconds in told.items()}
    return {
        **found,
        "ratio_p99": round(found["beside"]["p99"] / found["alone"]["p99"], 2),
        "requests": {kind: len(seconds) for kind, seconds in told.items()},
        "acknowledged": acknowledged,
        "failures": failures[:5],
        "errors": len(failures),
        "staleness": staleness,
    }


def kills(bundle: Path, names: tuple[list[str], list[str]], args: argparse.Namespace) -> dict:
    """What is left of acknowledged events after kills under load, in store and bundle."""
    store = EventStore(events_path(bundle))
    fold(bundle, store.path, now=time.time(), when="before")
    before, begun = LOGER.load(bundle), store.last
    acknowledged, unanswered, chance = list[Told](), list[Told](), random.Random(0)
    for run in range(args.kills):
        server = Server(bundle, args.merge_interval)
        load = Load(server.where, *names, seed=1000 + run, paths=args.paths).start(
            args.ask, args.rate
        )
        time.sleep(chance.uniform(0.5, args.between))
        server.kill()
        load.stop()
        acknowledged += load.acknowledged
        unanswered += load.unanswered
    again = [
        Event("interaction", {k: e[k] for k in ("user", "item", "time")}, e["key"], time.time())
        for e in acknowledged + unanswered
    ]
    for k in range(0, len(again), 1_000):  # clients send all of it again: nothing may be doubled
        store.append(again[k : k + 1_000])
    rows = [e.body for e in store.after(begun)]
    kept = [(e["user"], e["item"], e["time"]) for e in rows]
    fold(bundle, store.path, now=time.time(), when="now")
    return {
        "kills": args.kills,
        "acknowledged": len(acknowledged),
        "sent_again": len(again),
        "kept": len(kept),
        "lost": len({(e["user"], e["item"], e["time"]) for e in acknowledged} - set(kept)),
        "twice": len(kept) - len(set(kept)),
        **folded(before, LOGER.load(bundle), {(u, v) for u, v, _ in kept}),
    }


def folded(before: LOGER, after: LOGER, pairs: set[tuple[str, str]]) -> dict[str, int]:
    """Whether a bundle holds pairs, and counted each that was new once."""
    known = set(before.users)
    owned = {u: set(after.owned(u)) for u in {u for u, _ in pairs}}
    # What was held out to test on is not in the graph: an event that tells it is new.
    had = {u: set(before.history(u)["item"]) for u in owned.keys() & known}
    log = () if after.updates_ is None else after.updates_.log
    seen = 0 if before.updates_ is None else sum(row.interactions for row in before.updates_.log)
    return {
        "missing_in_bundle": sum(v not in owned[u] for u, v in pairs),
        "new_pairs": sum(v not in had.get(u, ()) for u, v in pairs),
        "counted_by_folds": sum(row.interactions for row in log) - seen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="a copy of it is served; else the demo shop")
    parser.add_argument("--seconds", type=float, default=4.0, help="of lists alone, and beside")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rate", type=float, default=500.0, help="events in a second")
    parser.add_argument("--ask", type=float, default=50.0, help="lists in a second")
    parser.add_argument("--paths", type=int, default=3, help="for each item; -1: no reasons")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--between", type=float, default=4.0, help="seconds to a kill, at most")
    parser.add_argument("--merge-interval", type=float, default=300.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bundle = Path(scratch) / "copy.bundle"
        shutil.copytree(args.bundle or demo(Path(scratch)), bundle)
        model = LOGER.load(bundle)
        names = model.users, model.items
        settings = {k: v for k, v in vars(args).items() if k not in ("bundle", "out")}
        told = {"bundle": args.bundle.name if args.bundle else "demo", "settings": settings}
        told["cost"] = cost(bundle, names, args) if args.seconds else None
        told["kills"] = kills(bundle, names, args) if args.kills else None
    text = json.dumps(told, indent=2, default=str)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
