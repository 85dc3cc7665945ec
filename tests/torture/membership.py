"""How many questions reveal whether a given person bought a given item?

    python tests/torture/membership.py           600 customers, 400 products, 150 people attacked

The attacker has a key for one user of the server, so may ask about items and about somebody new by
history, but not about others. They know some items of their victim and ask about one more as if
they were somebody new with those items. Half of the pairs are true; the other half are items of the
same popularity that the victim doesn't have. Each question is asked of a model that learned from
the true pairs and of one that didn't: what the second answers as well is a prediction, not a leak.

The last line is a JSON: by known items and question, the area under the ROC curve of the answers
(0.5 is guessing) with and without the pairs in the data; and the share of true pairs that one
question proves, because nobody else has one of the known items.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from scipy.stats import rankdata

from loger.data.dataset import Dataset, Facts
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.guard import key_for

SECRET = "the server's own key"
QUESTIONS = ("explain", "people", "why-not", "what-if")
"""What the attacker looks at: the item's lead, how many people have it together with each known
item, the gap to the list, the place in a list that changes."""


class Attack:
    """Questions with a key for one user."""

    def __init__(self, bundle: Path) -> None:
        app = create_app(ServeConfig(str(bundle), api_key=SECRET, events=False))
        self.client = TestClient(app, base_url="http://localhost")
        self.headers = {"X-API-Key": key_for(SECRET, LOGER.load(bundle).users[0])}

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(f"/v1/{path}", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def signals(self, known: list[str], item: str) -> dict[str, float]:
        """One number from each question; the larger, the likelier that the victim has the item."""
        why = self.ask("explain", {"history": known, "item": item, "reasons": "all"})
        together = dict.fromkeys(known, 0)
        for reason in why["reasons"]:
            people = max((part["people"] for part in reason["evidence"]), default=0)
            together[reason["entity"]["name"]] = people
        gap = self.ask("why-not", {"history": known, "item": item, "k": 10})["gap"]
        change = {"history": known[1:], "add": known[:1], "k": 100, "explain": False}
        after = [row["item"] for row in self.ask("what-if", change)["after"]]
        place = after.index(item) if item in after else 100
        signals = (why["lead"], float(min(together.values())), -gap, -float(place))
        return dict(zip(QUESTIONS, signals, strict=True))


def area(true: list[float], false: list[float]) -> float:
    """The area under the ROC curve: how often a true pair's signal is larger, ties by half."""
    ranks = rankdata([*true, *false])[: len(true)]
    return float((ranks.sum() - len(true) * (len(true) + 1) / 2) / (len(true) * len(false)))


def drawn(data: Dataset, n: int, most: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Users with more than ``most`` items, one item of each, and one as popular that they lack."""
    users, items = data.interactions.users, data.interactions.items
    popularity = np.bincount(items, minlength=data.n_items)
    out = []
    for user in rng.permutation(np.flatnonzero(np.bincount(users) > most)).tolist()[:n]:
        own = items[users == user]
        true = int(rng.choice(own))
        distance = np.abs(popularity - popularity[true]).astype(float)
        distance[own] = np.inf
        false = int(rng.choice(np.flatnonzero(distance == distance.min())))
        out.append((user, true, false))
    return out


def without(data: Dataset, pairs: set[tuple[int, int]]) -> Dataset:
    """The data as if some interactions had not happened."""
    old, facts = data.interactions, data.facts
    rows = zip(old.users.tolist(), old.items.tolist(), strict=True)
    keep = np.array([pair not in pairs for pair in rows])
    names = ("users", "items", "ratings", "times", "strengths")
    parts = {name: getattr(old, name) for name in names}
    kept = {name: None if part is None else part[keep] for name, part in parts.items()}
    # What is only known from an interaction that is gone goes with it.
    there = (facts.sources < 0) | keep[facts.sources]
    sources = np.where(facts.sources < 0, -1, (np.cumsum(keep) - 1)[facts.sources])[there]
    left = Facts(
        *(part[there] for part in (facts.heads, facts.relations, facts.tails)),
        sources.astype(np.int32),
        times=None if facts.times is None else facts.times[there],
    )
    return replace(data, facts=left, interactions=replace(old, **kept))


def run(asked: argparse.Namespace) -> dict[str, Any]:
    data, rng = shop(users=asked.users, items=asked.items).dataset, np.random.default_rng(0)
    tested = drawn(data, asked.people, max(asked.known), rng)
    config = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=asked.epochs))
    worlds = {"with": data, "without": without(data, {(u, true) for u, true, _ in tested})}
    names, n = data.vocabulary.names, data.n_users
    takers = Counter(data.interactions.items.tolist())
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        attacks = {}
        for world, known_data in worlds.items():
            LOGER(config).fit(known_data, progress=False).save(Path(folder) / world)
            attacks[world] = Attack(Path(folder) / world)
        for m in asked.known:
            signals: dict[tuple[str, bool], list[dict[str, float]]] = {}
            proved = 0
            for user, true, false in tested:
                own = data.interactions.items[data.interactions.users == user].tolist()
                known = rng.permutation([v for v in own if v != true])[:m].tolist()
                proved += min(takers[v] for v in known) == 1
                for world, attack in attacks.items():
                    for item in (true, false):
                        told = attack.signals([names[n + v] for v in known], names[n + item])
                        signals.setdefault((world, item == true), []).append(told)
            found[f"{m} known"] = {
                "proved": round(proved / len(tested), 3),
                **{
                    f"{question}, {world}": round(
                        area(
                            *([s[question] for s in signals[world, kind]] for kind in (True, False))
                        ),
                        3,
                    )
                    for question in QUESTIONS
                    for world in worlds
                },
            }
    return {"people": len(tested), **found}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, default in {"users": 600, "items": 400, "people": 150, "epochs": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--known", type=int, nargs="+", default=[1, 3, 6])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(json.dumps(run(parsed(sys.argv[1:]))))
