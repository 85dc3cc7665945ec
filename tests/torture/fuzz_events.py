"""Send a server generated events, fold them, and compare the result with a replay by hand.

    python tests/torture/fuzz_events.py 200         200 rounds of some batches and a fold
    python tests/torture/fuzz_events.py 3 17        three rounds from seed 17

Most batches are valid; names, labels, types, relations, times and ratings are odd in every way we
know. No request may end in a 5xx. Every acknowledged event must fold, and users, items and
interactions must then equal those of a slow replay of the acknowledged events. Masks and questions
are sent in between. The last line is a JSON object of counts.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import normalize

from fastapi.testclient import TestClient

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.graph import whole
from loger.model import LOGER, LOGERConfig
from loger.updates.events import events_path
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.folding import fold

ODD = [
    " ", "\u2028", "a\u2028b", "\ud800", "\0", "x" * 300, "x" * 3000, "=1+1", "\x1b[31m", "a\nb",
    "user", "item", "you", "you_", "é", "e\u0301", "NaN", "null", "1", "01", "|", "a|b", "\u200b",
]  # fmt: skip
TIMES: list[Any] = [
    0, -1, 10**9, 253_402_300_799, -253_402_300_799, 10**15, "2026-11-17", "0001-01-01T00:00+23:59",
    "9999-12-31T23:59:59-23:59", "now", 1.5, True, None, "2026-13-01",
]  # fmt: skip
RATINGS: list[Any] = [1, 5.0, -1e308, 0, None, "5", 10**400, True]
KINDS = ["interaction"] * 6 + ["item", "user", "fact", "delete", "impression", "click"]
Pairs = set[tuple[str, str]]


class Maker:
    """Makes events about a model's own names and odd ones."""

    def __init__(self, model: LOGER, rng: Random) -> None:
        self.rng = rng
        self.users = [*model.users[:8], *(f"new{k}" for k in range(4))]
        self.items = [*model.items[:8], *(f"thing{k}" for k in range(4))]
        relations = whole(model.graph_).relations
        self.relations = [r.name for r in relations] + ["made_of", "has_brand[x]", "x~", "[", ""]
        self.types = [*whole(model.graph_).vocabulary.types, "shape", "", None, None, None]

    def name(self, names: list[str], odd: float = 0.08) -> Any:
        return self.rng.choice(ODD if self.rng.random() < odd else names)

    def some(self, body: dict[str, Any], field: str, values: list[Any], p: float = 0.3) -> None:
        if self.rng.random() < p:
            body[field] = self.rng.choice(values)

    def event(self) -> dict[str, Any]:
        rng, kind = self.rng, self.rng.choice(KINDS)
        body: dict[str, Any] = {"kind": kind}
        self.some(body, "time", TIMES[:5] if rng.random() < 0.9 else TIMES)
        self.some(body, "key", ["k1", "k2", "k3", *ODD[:4]], 0.1)
        user, item = self.name(self.users), self.name(self.items)
        if kind == "interaction":
            body |= {"user": user, "item": item}
            self.some(body, "rating", RATINGS[:3] if rng.random() < 0.9 else RATINGS)
        elif kind in ("item", "user"):
            body[kind] = item if kind == "item" else user
            self.some(body, "label", ["Mug", *ODD])
            tails = [self.name([*self.items, "Acme", "red"]) for _ in range(rng.randrange(3))]
            self.some(body, "facts", [{self.name(self.relations): tails}])
        elif kind == "fact":
            body |= self.fact()
        elif kind == "delete":
            ways = [{"user": user}, {"item": item}, {"user": user, "item": item}, self.fact(), {}]
            body |= rng.choice(ways)
        else:
            body["recommendation_id"] = rng.choice(["0" * 16, "f" * 16, "x", "0" * 15])
            body |= {"item": item} if kind == "click" else {"items": [item]}
        return body

    def fact(self) -> dict[str, Any]:
        names = [*self.users, *self.items, "Acme", "red"]
        fact = {"head": self.name(names), "relation": self.name(self.relations, 0.02)}
        fact["tail"] = self.name(names)
        for end in ("head_type", "tail_type"):
            if (kind := self.rng.choice(self.types)) is not None:
                fact[end] = kind
        return fact


def replayed(pairs: Pairs, events: list[dict[str, Any]], lowest: float) -> Pairs:
    """Who has what after some events, one after another; a lower rating is a dislike."""
    pairs = set(pairs)
    for event in events:
        names = event.get("user"), event.get("item")
        user, item = (None if name is None else normalize("NFC", name) for name in names)
        if event["kind"] == "interaction":
            if event.get("rating") is None or event["rating"] >= lowest:
                pairs.add((user, item))
        elif event["kind"] == "delete" and (user or item):
            pairs = {(u, v) for u, v in pairs if (user not in (None, u)) or (item not in (None, v))}
    return pairs


def pairs_of(model: LOGER) -> Pairs:
    """Who has what, held-out interactions among it."""
    graph, held = whole(model.graph_), model.ranker_.held_out
    names, n = graph.vocabulary.names, graph.n_users
    edges, users = graph.interactions
    inside = {(names[u], names[v]) for u, v in zip(users, graph.tails[edges], strict=True)}
    return inside | {(names[u], names[n + v]) for u, v in zip(held.users, held.items, strict=True)}


def sent(client: TestClient, maker: Maker, counts: Counter[str]) -> list[dict[str, Any]]:
    """Send a batch; the events that were kept, those with a key once."""
    batch = [maker.event() for _ in range(maker.rng.randrange(1, 6))]
    text = json.dumps({"events": batch})  # NaN, lone surrogates and all
    told = client.post("/v1/events", content=text, headers={"content-type": "application/json"})
    counts[f"events {told.status_code}"] += 1
    if told.status_code >= 500:
        raise AssertionError(f"{told.status_code} {told.text} for {text}")
    return batch if told.status_code == 200 else []


def asked(client: TestClient, maker: Maker, counts: Counter[str]) -> None:
    """A question, or a mask, between events."""
    rng, user = maker.rng, maker.name(maker.users)
    names = json.dumps([maker.name(maker.items, 0.2) for _ in range(4)])
    way = rng.randrange(4)
    if way == 0:
        name = rng.choice(["stock", "a.b", "..", "x" * 65, "%00", "é"])
        told = client.put(f"/v1/masks/{name}", content=names,
                          headers={"content-type": "application/json"})  # fmt: skip
    elif way == 1:
        ask = {"user": user, "include": ["mask=stock"], "k": 5}
        told = client.post("/v1/recommendations", content=json.dumps(ask),
                           headers={"content-type": "application/json"})  # fmt: skip
    elif way == 2:
        told = client.get("/v1/history", params={"user": user.encode("utf-8", "replace")})
    else:
        ask = {"user": user, "add": [maker.name(maker.items)], "item": maker.name(maker.items)}
        told = client.post("/v1/explain", content=json.dumps(ask),
                           headers={"content-type": "application/json"})  # fmt: skip
    counts[f"asked {told.status_code}"] += 1
    if told.status_code >= 500:
        raise AssertionError(f"{told.status_code} {told.text} to {told.request.url} {names} {user}")


def try_one(whole_bundle: Path, folder: Path, seed: int, counts: Counter[str]) -> None:
    """Some batches and questions, a fold, and what is there after it."""
    rng, place = Random(seed), folder / "shop"
    shutil.copytree(whole_bundle, place)
    model = LOGER.load(place)
    maker, kept, keys = Maker(model, rng), list[dict[str, Any]](), set[str]()
    config = ServeConfig(str(place), merge_interval=0, watch=0)
    with TestClient(
        create_app(config), base_url="http://localhost", raise_server_exceptions=False
    ) as client:
        for _ in range(rng.randrange(4, 16)):
            for event in sent(client, maker, counts):
                key = event.get("key")
                if key is None or key not in keys:
                    kept.append(event)
                keys |= {key} - {None}
            asked(client, maker, counts)
    if not events_path(place).exists():
        return
    told = fold(place, events_path(place), now=time.time(), when="2026-11-17T00:00:00+00:00")
    counts["facts refused"] += len(told.refused)
    counts["folds"] += 1
    after = LOGER.load(place)
    found, expected = pairs_of(after), replayed(pairs_of(model), kept, model.lowest_positive)
    if found != expected:
        raise AssertionError(f"other interactions: {sorted(found ^ expected)[:5]} after {kept}")
    after.recommend(after.users[-3:], 5)


def run(n: int, seed: int = 0) -> Counter[str]:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as text:
        bundle = Path(text) / "bundle"
        small = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
        LOGER(small).fit(split(shop(users=60, items=60).dataset)).save(bundle)
        for number in range(seed, seed + n):
            with tempfile.TemporaryDirectory(dir=text) as folder:
                try:
                    try_one(bundle, Path(folder), number, counts)
                except Exception:
                    counts["wrong"] += 1
                    print(f"round {number}:\n{traceback.format_exc()}", file=sys.stderr)
    return counts


if __name__ == "__main__":
    begun = time.process_time()
    n, seed = (*(int(x) for x in sys.argv[1:3]), *(200, 0)[len(sys.argv) - 1 :])
    print(json.dumps({**run(n, seed), "processor_seconds": round(time.process_time() - begun)}))
