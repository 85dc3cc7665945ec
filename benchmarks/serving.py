"""A running server under load: mixed requests at a fixed rate, some of them malformed.

    loger serve my.bundle --port 8000 &
    python benchmarks/serving.py --url http://127.0.0.1:8000 --requests 20000 --rate 50 --pid $!

Every tenth request is malformed and must be answered with a 4xx of the one error shape. Latency
counts from when a request was due, so a server that falls behind shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from string import ascii_uppercase, digits
from urllib.parse import quote, urlsplit

import numpy as np

MALFORMED = (
    ("GET", "/v1/recommendations?user=nobody%20at%20all", None),
    ("GET", "/v1/recommendations?k=0", None),
    ("GET", "/v1/nothing", None),
    ("GET", "/static/../../../etc/passwd", None),
    ("POST", "/v1/recommendations", "{"),
    ("POST", "/v1/recommendations", '{"history": ["no such item"]}'),
    ("POST", "/v1/what-if", json.dumps({"history": ["x"] * 1001})),
    ("POST", "/v1/explain", "[" * 20_000),
    ("DELETE", "/v1/rules", None),
)
SHARES = {"recommend": 65, "explain": 15, "search": 10, "cold": 5, "what-if": 5}

Request = tuple[str, str, str | None]


def planned(
    n: int, histories: dict[str, list[str]], items: list[str], seed: int
) -> list[tuple[str, *Request]]:
    """(kind, method, path, body) of n requests."""
    rng, users, out = random.Random(seed), list(histories), []
    for k in range(n):
        user, item = rng.choice(users), rng.choice(items)
        less = {"user": user, "remove": histories[user][:1]}
        named = f"user={quote(user)}"
        kinds: dict[str, Request] = {
            "recommend": ("GET", f"/v1/recommendations?{named}&k=10", None),
            "explain": ("GET", f"/v1/explain?{named}&item={quote(item)}", None),
            "search": ("GET", f"/v1/items?q={quote(item[:3])}", None),
            "cold": ("POST", "/v1/recommendations", json.dumps({"history": rng.sample(items, 3)})),
            "what-if": ("POST", "/v1/what-if", json.dumps(less)),
        }
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0] if k % 10 else "malformed"
        out.append((kind, *(rng.choice(MALFORMED) if kind == "malformed" else kinds[kind])))
    return out


def asked(where: str) -> tuple[dict[str, list[str]], list[str]]:
    """Users with what they have, and items: a few that begin with each letter or digit."""
    connection = HTTPConnection(where)

    def get(path: str) -> dict[str, list[dict[str, str]]]:
        connection.request("GET", path)
        told: dict[str, list[dict[str, str]]] = json.loads(connection.getresponse().read())
        return told

    names: dict[str, list[str]] = {"users": [], "items": []}
    for what, found in names.items():
        for sign in ["", *ascii_uppercase, *digits]:
            found += [e["name"] for e in get(f"/v1/{what}?limit=20&q={sign}")["results"]]
    users = sorted(set(names["users"]))
    histories = {
        user: [e["item"] for e in get(f"/v1/history?user={quote(user)}")["items"]] for user in users
    }
    return histories, sorted(set(names["items"]))


def wrong(kind: str, status: int, body: bytes) -> bool:
    if kind != "malformed":
        return status != 200
    return not (400 <= status < 500 and set(json.loads(body)["error"]) >= {"status", "code"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pid", type=int, help="of the server, to watch its memory")
    args = parser.parse_args()
    where = urlsplit(args.url).netloc
    plan = planned(args.requests, *asked(where), 0)
    waiting: queue.Queue[tuple[float, tuple[str, *Request]] | None] = queue.Queue()
    seconds: dict[str, list[float]] = {}
    failures: list[str] = []

    def client() -> None:
        connection = HTTPConnection(where, timeout=60)
        while (job := waiting.get()) is not None:
            due, (kind, method, path, body) = job
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            seconds.setdefault(kind, []).append(time.perf_counter() - due)
            if wrong(kind, answer.status, text):
                failures.append(f"{method} {path[:80]}: {answer.status} {text[:200]!r}")

    threads = [threading.Thread(target=client) for _ in range(args.clients)]
    for thread in threads:
        thread.start()
    begun, memory, load = time.perf_counter(), [], []
    for k, job in enumerate(plan):
        due = begun + k / args.rate
        time.sleep(max(0.0, due - time.perf_counter()))
        waiting.put((due, job))
        if k % max(1, len(plan) // 20) == 0:
            load.append(os.getloadavg()[0])
            if args.pid:
                status = Path(f"/proc/{args.pid}/status").read_text()
                memory.append(int(status.split("VmRSS:")[1].split()[0]) // 1024)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    print(f"{len(plan):,} requests in {took:.1f} s, {len(failures)} wrong", *failures[:5], sep="\n")
    for kind, times in sorted(seconds.items()):
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1000
        print(f"{kind:10} {len(times):7,}   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms")
    print(f"load of the machine over the run: mean {np.mean(load):.1f}, {os.cpu_count()} cores")
    if memory:
        print("resident MB over the run:", *memory)


if __name__ == "__main__":
    main()
