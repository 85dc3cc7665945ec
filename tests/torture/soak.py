"""A server under attack, and for hours with reloads and damaged bundles.

    python tests/torture/soak.py                     short: half a minute of each
    python tests/torture/soak.py --soak 7200         two hours at 50 requests a second
    python tests/torture/soak.py --mix 60 --soak 0   the hostile mix alone, for a minute

When the slow lane is ready (its start would disturb the baseline), victims ask for recommendations:
first alone (quiet), then next to attackers from another address. These send the most expensive
requests, half-sent requests and uploads, bytes that aren't HTTP and bodies in chunks of one byte,
and some never read. They are a process of their own with a lower priority, because they wouldn't
run on the server's machine. Then requests of all kinds arrive at a fixed rate, while the bundle is
replaced every ``--reload`` seconds and damaged in between. Finally the server is told to stop while
half-sent requests are open. The last line is a JSON object: medians and 99th percentiles in ms for
victims and for health, quiet and under attack, answers by status class, memory during the soak,
seconds to stop.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import numpy as np

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig

VICTIM, ATTACKER = "127.0.0.1", "127.0.0.2"
"""Addresses of this machine; limits count by address."""
JSON = "application/json"
HALF = [
    b"GET /v1/recommendations?user=x HTTP/1.1\r\nHost: localhost\r\nX: ",
    b"POST /v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{",
    b"PUT /v1/masks/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\nx",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
]
CHOPPED = (
    b"POST /v1/recommendations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 60_000 + b"0\r\n\r\n"
)
"""A body of 60 kB in chunks of one byte."""


class Tally:
    """Milliseconds and statuses of some requests, from any thread."""

    def __init__(self) -> None:
        self.ms, self.statuses = list[float](), Counter[str]()

    def ask(self, port: int, method: str, path: str, body: str | None, source: str) -> None:
        begun = time.perf_counter()
        line = HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
        try:
            line.request(method, path, body, {"Host": "localhost", "Content-Type": JSON})
            answer = line.getresponse()
            answer.read()
            self.statuses[f"{answer.status // 100}xx"] += 1
        except (OSError, HTTPException):
            self.statuses["closed"] += 1
        finally:
            line.close()
        self.ms.append(1000 * (time.perf_counter() - begun))

    def percentile(self, q: int) -> float:
        return round(float(np.percentile(self.ms, q)), 1) if self.ms else 0.0


def make(folder: Path, users: int, items: int) -> None:
    """Two bundles of one shop, to go from one to the other."""
    for seed in (0, 1):
        config = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=1))
        parts = split(shop(users=users, items=items).dataset)
        LOGER(config, seed=seed).fit(parts, progress=False).save(folder / f"bundle{seed}")


@contextmanager
def serving(bundle: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "loger", "serve", str(bundle), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        begun = re.compile(r"running on http://\S+:(\d+)")
        found = next(m for line in process.stderr if (m := begun.search(line)))
        drain = threading.Thread(target=lambda: list(process.stderr or ()), daemon=True)
        drain.start()
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()


def every(seconds: float, until: float, do: Callable[[int], None], threads: int) -> None:
    """Do something at a fixed rate until a moment, in several threads."""

    def run(first: int) -> None:
        begun, k = time.monotonic(), first
        while (due := begun + k * seconds) < until:
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > until + 1:  # fallen behind
                return
            do(k)
            k += threads

    workers = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class Load:
    """Requests about one model."""

    def __init__(self, model: LOGER, port: int) -> None:
        self.users, self.items, self.port = model.users, model.items, port

    def victims(self, seconds: float, rate: float) -> tuple[Tally, Tally]:
        """Lists at a fixed rate and health once every tenth of a second; what both took."""
        lists, health, until = Tally(), Tally(), time.monotonic() + seconds
        beside = threading.Thread(target=every, args=(
            0.1, until, lambda _: health.ask(self.port, "GET", "/v1/health", None, VICTIM), 1,
        ))  # fmt: skip
        beside.start()
        every(1 / rate, until, lambda k: self.list_of(k, lists), 4)
        beside.join()
        return lists, health

    def settle(self, seconds: float = 60.0) -> None:
        """Ask expensive questions until the slow lane answers."""
        body, until = json.dumps({"history": self.items[:2], "k": 100}), time.monotonic() + seconds
        while time.monotonic() < until and 'costly_total{by="lane"}' not in metrics(self.port):
            Tally().ask(self.port, "POST", "/v1/what-if", body, VICTIM)
            time.sleep(0.5)

    def list_of(self, k: int, tally: Tally) -> None:
        user = quote(self.users[k % len(self.users)])
        tally.ask(self.port, "GET", f"/v1/recommendations?user={user}&k=10", None, VICTIM)

    def mixed(self, k: int, tally: Tally) -> None:
        """A request of some kind; every tenth makes no sense."""
        rng = Random(k)
        user, item = quote(rng.choice(self.users)), quote(rng.choice(self.items))
        ways: list[tuple[str, str, str | None]] = [
            ("GET", f"/v1/recommendations?user={user}", None),
            ("GET", f"/v1/recommendations?user={user}", None),
            ("GET", f"/v1/explain?user={user}&item={item}", None),
            ("GET", f"/v1/items?q={item[:2]}", None),
            ("POST", "/v1/recommendations", json.dumps({"history": rng.sample(self.items, 3)})),
            ("GET", f"/v1/why-not?user={user}&item={item}", None),
        ]
        nonsense = [("GET", "/v1/recommendations?k=-1", None), ("POST", "/v1/explain", "[" * 5000)]
        tally.ask(self.port, *rng.choice(ways if k % 10 else nonsense), VICTIM)


def attack(port: int, items: list[str], seconds: float, attackers: int, found: Any) -> None:
    """The costliest questions from another address, open ends, tiny chunks and deaf clients."""
    os.nice(10)
    tally, until = Tally(), time.monotonic() + seconds

    def ask() -> None:
        rng = Random(0)
        while time.monotonic() < until:
            history = rng.sample(items, min(len(items) // 2, 500))
            body = json.dumps({"history": history, "remove": history[:5], "k": 100})
            tally.ask(port, "POST", "/v1/what-if", body, ATTACKER)

    def hold() -> None:
        while time.monotonic() < until:
            lines = half_sent(port, 40) + deaf(port, 20)
            time.sleep(2)
            for line in lines:
                line.close()

    def chop() -> None:
        while time.monotonic() < until:
            with suppress(OSError):
                line = connected(port)
                with line:
                    line.sendall(CHOPPED)
                    while line.recv(4096):
                        pass

    workers = [threading.Thread(target=do) for do in [ask] * attackers + [hold, chop, chop]]
    for worker in workers:
        worker.start()
    found.put("begun")
    for worker in workers:
        worker.join()
    found.put(dict(tally.statuses))


def metrics(port: int) -> str:
    line = HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/metrics", headers={"Host": "localhost"})
    return line.getresponse().read().decode()


def connected(port: int) -> socket.socket:
    """A connection of an attacker who takes little at a time."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(5)
    line.bind((ATTACKER, 0))
    line.connect(("127.0.0.1", port))
    return line


def half_sent(port: int, n: int, texts: Sequence[bytes] = HALF) -> list[socket.socket]:
    lines = list[socket.socket]()
    for k in range(n):
        with suppress(OSError):
            line = connected(port)
            line.sendall(texts[k % len(texts)])
            lines.append(line)
    return lines


def deaf(port: int, n: int) -> list[socket.socket]:
    """Clients that ask for much and never read."""
    return half_sent(port, n, [b"GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100])


def damage(bundle: Path, rng: Random) -> None:
    """Spoil a file of a bundle that is served, in place."""
    path = rng.choice(sorted(p for p in bundle.iterdir() if p.is_file()))
    raw = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del raw[len(raw) // 2 :]
    else:
        raw[rng.randrange(len(raw))] ^= 255
    path.write_bytes(raw)


def replaced(bundle: Path, other: Path) -> None:
    """Put another bundle in place, as a save does."""
    shutil.rmtree(bundle)
    shutil.copytree(other, bundle)


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def soaked(load: Load, pid: int, folder: Path, asked: argparse.Namespace) -> dict[str, object]:
    """Requests at a fixed rate while bundles come, some of them damaged."""
    tally, until = Tally(), time.monotonic() + asked.soak
    worker = threading.Thread(target=every, args=(
        1 / asked.rate, until, lambda k: load.mixed(k, tally), 16,
    ))  # fmt: skip
    worker.start()
    memory, rng, turn = list[float](), Random(1), 0
    while time.monotonic() + asked.reload < until:
        turn += 1
        time.sleep(asked.reload / 2)
        damage(folder / "served", rng)
        time.sleep(asked.reload / 2)
        replaced(folder / "served", folder / f"bundle{turn % 2}")
        memory.append(round(memory_mb(pid)))
    worker.join()
    return {"soak": dict(tally.statuses), "soak_p99": tally.percentile(99), "memory_mb": memory,
            "reloads": turn, "after": health_of(load.port)}  # fmt: skip


def health_of(port: int) -> str:
    """What health says once the last reload is done."""
    for _ in range(100):
        line = HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", "/v1/health", headers={"Host": "localhost"})
        status: str = json.loads(line.getresponse().read())["status"]
        if status == "ok":
            break
        time.sleep(0.2)
    return status


def stopped(process: subprocess.Popen[str], port: int) -> float:
    """Seconds until the server ends, with half-sent requests open."""
    lines = half_sent(port, 20)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    for line in lines:
        line.close()
    return round(time.monotonic() - begun, 1)


def main(asked: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        make(folder, asked.users, asked.items)
        shutil.copytree(folder / "bundle0", folder / "served")
        model = LOGER.load(folder / "bundle0")
        with serving(folder / "served") as (process, port):
            load = Load(model, port)
            load.settle()
            load.victims(1.0, asked.victims)  # first times
            quiet, calm = load.victims(asked.mix, asked.victims)
            spawn = multiprocessing.get_context("spawn")
            found = spawn.Queue()
            arguments = port, model.items, asked.mix + 1, asked.attackers, found
            attackers = spawn.Process(target=attack, args=arguments)
            attackers.start()
            found.get(timeout=120)  # they are there
            busy, pressed = load.victims(asked.mix, asked.victims)
            answers = found.get(timeout=120)
            attackers.join()
            times = {"quiet": quiet, "mix": busy, "quiet_health": calm, "mix_health": pressed}
            told = soaked(load, process.pid, folder, asked)
            return {
                **{f"{name}_p{q}": t.percentile(q) for name, t in times.items() for q in (50, 99)},
                "victims": dict(quiet.statuses + busy.statuses), "attackers": answers, **told,
                "stop_seconds": stopped(process, port), "exit": process.returncode,
            }  # fmt: skip


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, default in {"mix": 30, "soak": 30, "reload": 10, "rate": 50, "victims": 10,
                          "attackers": 8, "users": 300, "items": 300}.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(json.dumps(main(parsed(sys.argv[1:]))))
