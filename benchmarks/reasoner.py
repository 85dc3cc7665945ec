"""What the path reasoner costs and saves compared with enumeration, and what Algorithm 1 misses.

    python benchmarks/reasoner.py [--set NAME] [--users N] [--epochs N] [--paper] [--untrained]
                                  [--keep FOLDER]

NAME is a folder of the shared data, or demo. Rules are mined and weigh log(lift) each, so the
figures need no EM. The items to explain are the ten best of the logic model with these weights.
Contributions of single paths are exact: a rule's share of the logit, divided among its paths by
strength. Everything runs on a single thread, warm. --keep stores the fitted encoder and reasoner
and uses them again. With --untrained neither is trained; then only times and missed paths mean
anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loger.data import load, split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.encoder.folding import vectors
from loger.engine import LocalEngine
from loger.engine.topk import top_k
from loger.graph import KnowledgeGraph
from loger.grounding import Walk, ground, reach
from loger.logic.mining import mine
from loger.logic.mln import Logic, typical_strengths
from loger.reasoner.search import (
    ALGORITHM_1,
    PAPER,
    Found,
    PathSearch,
    ReasonerConfig,
    SearchConfig,
    path_strengths,
)
from loger.reasoner.walker import Reasoner
from loger.recommender import part_matrix
from where import DATA as SHARED

WALK = Walk(first=0.0, item=0.25, user=0.5, fact=0.5)


class AnyOrder:
    """Rates all steps the same."""

    def begin(self, user: int) -> None:
        """Nothing to remember."""

    def step_scores(self, state: None, rows: Any, relations: Any, entities: Any) -> Any:
        """0 for each."""
        return np.zeros(len(rows))

    def advance(self, state: None, rows: Any, relations: Any, entities: Any) -> None:
        """Nothing to remember."""


def timed(what: str, lists: dict[int, Any], find: Callable[[int, Any], Found]) -> dict[int, Found]:
    """Find paths for each user's items; prints how long a user takes."""
    out, spent = {}, []
    for _ in range(2):  # the first time compiles
        find(*next(iter(lists.items())))
    for user, items in lists.items():
        start = time.perf_counter()
        out[user] = find(user, items)
        spent.append(1000 * (time.perf_counter() - start))
    none = np.mean(np.concatenate([np.diff(found.starts) == 0 for found in out.values()]))
    n = np.mean([len(found) / found.n_targets for found in out.values()])
    print(
        f"{what:<44} median {np.median(spent):7.2f} ms, 95 % {np.quantile(spent, 0.95):7.2f} ms, "
        f"most {max(spent):7.1f} ms; {n:8.1f} paths an item; {100 * none:5.1f} % of items without"
    )
    return out


def contributions(graph: KnowledgeGraph, logic: Logic, user: int, items: Any, found: Found) -> Any:
    """What each path adds to the logit of its item; [paths]."""
    grounded = logic.ground(graph, np.full(len(items), user), items, LocalEngine(1))
    rules = grounded.as_matrix(logic.contributions(grounded)).toarray()
    whole = grounded.strength_matrix.toarray()
    at = (found.targets, found.places)
    assert logic.walk is not None
    return path_strengths(graph, found, logic.walk) * rules[at] / whole[at]


def agreement(
    graph: KnowledgeGraph,
    logic: Logic,
    lists: dict[int, Any],
    beams: dict[str, dict[int, Found]],
    every: dict[int, Found],
) -> None:
    """How often a beam's first path is the largest contribution, and what share of it it has."""
    first: dict[str, list[bool]] = {name: [] for name in (*beams, "a random path")}
    share: dict[str, list[float]] = {name: [] for name in first}
    rng = np.random.default_rng(0)
    for user, items in lists.items():
        added = contributions(graph, logic, user, items, every[user])
        for target in range(len(items)):
            span = slice(every[user].starts[target], every[user].starts[target + 1])
            own, best = added[span], added[span].max(initial=0.0)
            if len(own) < 2 or best <= 0:
                continue
            value = {p.path: a for p, a in zip(every[user].of(target), own, strict=True)}
            for name, found in beams.items():
                had = value[found[user].of(target, 1)[0].path]
                first[name].append(had >= best * (1 - 1e-9))
                share[name].append(had / best)
            first["a random path"].append(own[rng.integers(len(own))] >= best * (1 - 1e-9))
            share["a random path"].append(own.mean() / best)
    for name in first:
        print(
            f"{name:<44} first path is the largest contribution: "
            f"{100 * np.mean(first[name]):5.1f} %; has {100 * np.mean(share[name]):5.1f} % of it; "
            f"{len(first[name])} pairs of 2 paths or more"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="amazon-beauty")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=ReasonerConfig().epochs)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--untrained", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    data = shop().dataset if options.set == "demo" else load(SHARED / options.set)
    parts = split(data).refit()
    graph = parts.graph
    mined = mine(graph)
    rules = mined.rules
    lift = {m.rule.relations: m.lift for m in mined.measures}
    weights = np.array([np.log(lift[rule.relations]) for rule in rules])
    start = time.perf_counter()
    settings = TransEConfig(epochs=0) if options.untrained else TransEConfig()
    encoder = TransE(settings).fit(graph, checkpoint=options.keep)
    print(
        f"{options.set}: {graph}, {len(rules)} rules; encoder {time.perf_counter() - start:.0f} s"
    )
    epochs = 0 if options.untrained else options.epochs
    config = replace(PAPER if options.paper else ReasonerConfig(), epochs=epochs)
    start = time.perf_counter()
    reasoner = Reasoner(config).fit(
        graph, rules, weights, *vectors(encoder, graph), checkpoint=options.keep
    )
    print(f"reasoner {time.perf_counter() - start:.0f} s, losses {np.round(reasoner.losses_, 4)}")

    asked = np.random.default_rng(0).choice(graph.n_users, options.users, replace=False)
    scales = typical_strengths(reach(graph, rules, asked[:50], walk=WALK))
    logic = Logic(rules, weights, "logwalk", WALK, scales)
    known = part_matrix(parts, "train")[asked].tocoo()
    best, _ = top_k(logic.logits(graph, asked), 10, (known.row, known.col))
    lists = {int(u): v[v >= 0] for u, v in zip(asked, best, strict=True) if (v >= 0).any()}

    search = PathSearch(graph, rules)
    history = history_counts(graph, rules, asked)
    y = {int(u): np.maximum(weights, 0) * row for u, row in zip(asked, history, strict=True)}
    beam = timed("beam 10, the user's 10 best rules", lists,
                 lambda u, v: search.best(u, v, reasoner, y[u]))  # fmt: skip
    whole = timed("beam 10, all rules", lists, lambda u, v: search.best(u, v, reasoner))
    wide = PathSearch(graph, rules, SearchConfig(branch=None, width=None, best_rules=None))
    every = timed("every path, unordered", lists, lambda u, v: wide.best(u, v, AnyOrder()))
    timed("every path, ordered by contribution", lists,
          lambda u, v: ordered(graph, logic, u, v, wide.best(u, v, AnyOrder())))  # fmt: skip
    full = timed(
        "every path, ordered by the reasoner", lists, lambda u, v: wide.best(u, v, reasoner)
    )
    free = PathSearch(graph, rules, ALGORITHM_1)
    timed("Algorithm 1", lists, lambda u, v: free.best(u, v, reasoner))
    named = {"beam, best rules": beam, "beam, all rules": whole, "reasoner, every path": full}
    agreement(graph, logic, lists, named, every)


def history_counts(graph: KnowledgeGraph, rules: Any, users: Any) -> Any:
    """n_l(u) over each user's own interactions."""
    pairs = [(u, v - graph.n_users) for u in users for v in graph.neighbours(int(u), 0)]
    found = ground(graph, rules, *np.array(pairs).T)
    return found.per_user(graph.n_users)[users].toarray()


def ordered(graph: KnowledgeGraph, logic: Logic, user: int, items: Any, found: Found) -> Found:
    """Paths by what they contribute."""
    added = contributions(graph, logic, user, items, found)
    order = np.lexsort((-added, found.targets))
    return replace(
        found, targets=found.targets[order], places=found.places[order],
        entities=found.entities[order], scores=added[order],
    )  # fmt: skip


if __name__ == "__main__":
    main()
