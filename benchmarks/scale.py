"""How the cost of a recommendation grows with the data, and a model of it: docs/research/scale.md.

    python benchmarks/scale.py --sizes 1 2 4 8 --write    # docs/tables/scale.json; then make tables
    python benchmarks/scale.py --sizes 1 2 4 8 --count --write           # scale-steps.json

It uses the graph of ``generated.py`` at multiples of the size of the paper's Automotive set. Users,
items and triples grow together; degrees stay the same. Rules and weights come from a fit at a
fiftieth of the size of the Cellphones set. Vectors are random and the encoder has weight 1, because
quality doesn't matter here. Measured on one core, in processor time, for blocks of 64 users:
grounding (logits of all items by rules), export (ten recommendations with reasons), and the bytes
that an engine sends.

Costs per user differ by orders of magnitude, with the number of walks that their rules have. So the
measured users are spread evenly over all users of a size, sorted by their number of walks. The
model of the time per user is a power of the number of items, fitted to all sizes but the largest:
the items that rules reach, and the share of them outside the processor's cache, grow with the
number of items, but more slowly.

``--count`` measures no time, only counts that no noise affects, per user: walks, the edges that the
last hops of all rules follow, the items that these reach, rule by rule, and the items that any rule
reaches.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np

from full_size import generated_split, peak_gib
from generated import cellphones
from loger.encoder import TransE, TransEConfig
from loger.engine import LocalEngine
from loger.engine.processes import pickled
from loger.engine.threads import one_thread
from loger.explain.lists import ListRequest
from loger.graph import KnowledgeGraph
from loger.grounding import logits, reach_sizes
from loger.model import LOGER, LOGERConfig
from loger.ranking.ranker import Ranker
from loger.rules import RuleSet, make_rule
from loger.store.export import Work, table_of
from tables import COMMIT, TABLES

AUTOMOTIVE = 1.6
"""Of the size of ``generated.cellphones``: 98,006 users, 76,166 items, 270,928 entities; the
paper's Automotive set has 95,445, 78,557 and 270,543."""
BLOCKS, BLOCK, K = 4, 64, 10
COUNTED = 256
"""Users whose walks are counted."""
STEPS = {
    "size": "",
    "items": ",d",
    "walks": ",.0f",
    "edges that last hops follow": ",.0f",
    "items they come to, rule by rule": ",.0f",
    "items that any rule reaches": ",.0f",
    "of the catalogue, %": ".0f",
}
COLUMNS = {
    "size": "",
    "users": ",d",
    "items": ",d",
    "triples": ",d",
    "scoring by rules, ms per user": ".1f",
    "list of ten with reasons, ms per user": ".1f",
    "sent once per node, MB": ".0f",
    "written, kB per user": ".2f",
    "peak memory, GiB": ".1f",
}
MACHINE = (
    "shared machine, two cores, 24 GiB, no GPU, busy with other work; one core, processor time"
)
CONFIG = TransEConfig(epochs=1)
ENCODER_WEIGHT = 1.0
"""The small fit gives its encoder weight 0, with which lists would skip the encoder's scores."""


def enlarged(small: Ranker, graph: KnowledgeGraph) -> Ranker:
    """The same logic on a larger graph, with random vectors of its entities."""
    rules = RuleSet(tuple(make_rule(graph, list(rule.relations)) for rule in small.logic.rules))
    rng, old = np.random.default_rng(0), small.graph.n_entities
    state = {}
    for name, array in small.encoder.state().items():
        state[name] = array
        if array.shape[:1] == (old,):
            shape = (graph.n_entities, *array.shape[1:])
            state[name] = np.float32(0.1) * rng.standard_normal(shape, dtype=np.float32)
    encoder = TransE(CONFIG).load_state(graph, state)
    logic = replace(small.logic, rules=rules)
    fusion = replace(small.fusion, encoder_weight=ENCODER_WEIGHT)
    return Ranker.of(graph, encoder, logic, fusion, small.walk)


def walks_of_users(graph: KnowledgeGraph, rules: RuleSet) -> np.ndarray:
    """How many walks the rules have from each user, to wherever they lead."""
    relations, heads = (
        graph.edge_relations(),
        np.repeat(np.arange(graph.n_entities), np.diff(graph.indptr)),
    )
    facts = {
        r: (heads[relations == r], graph.tails[relations == r])
        for r in {r for rule in rules for r in rule.relations}
    }
    total = np.zeros(graph.n_entities)
    for rule in rules:
        after: np.ndarray = np.ones(graph.n_entities)
        for relation in reversed(rule.relations):
            head, tail = facts[relation]
            after = np.bincount(head, after[tail], graph.n_entities)
        total += after
    return total[: graph.n_users]


def spread(walks: np.ndarray, n: int) -> np.ndarray:
    """n users in random order, spread evenly over all users by their number of walks."""
    order = np.argsort(walks, kind="stable")
    places = ((np.arange(n) + 0.5) * len(walks) / n).astype(np.int64)
    return np.random.default_rng(1).permutation(order[places])


def seconds_per_user(work: Any, users: np.ndarray) -> float:
    """Mean processor time over all blocks, after the first block was done once to warm up."""
    blocks = [np.sort(block) for block in users.reshape(-1, BLOCK)]
    work(blocks[0])
    start = time.process_time()
    for block in blocks:
        work(block)
    return (time.process_time() - start) / len(users)


def measured(small: Ranker, scale: float) -> dict[str, Any]:
    graph = cellphones(AUTOMOTIVE * scale)
    ranker = enlarged(small, graph)
    users = spread(walks_of_users(graph, ranker.logic.rules), BLOCKS * BLOCK)
    asked = ranker, ListRequest(K, explain=True)
    with one_thread():
        grounding = seconds_per_user(
            lambda u: ranker.logic.logits(graph, u, engine=LocalEngine(1)), users
        )
        export = seconds_per_user(lambda u: table_of(asked, u), users)
    return {
        "scale": scale,
        "users": graph.n_users,
        "items": graph.n_items,
        "triples": graph.n_triples,
        "rules": len(ranker.logic.rules),
        "grounding_ms_per_user": 1000 * grounding,
        "export_ms_per_user": 1000 * export,
        "sent_bytes": sum(part.nbytes for part in pickled(ranker)),
        "bytes_per_user": len(_parquet(asked, users[:256])) / 256,
        "peak_gib": peak_gib(),
    }


def edges_of_last_hops(graph: KnowledgeGraph, rules: RuleSet, user: int) -> int:
    """How many edges the last hops of all rules follow from where a user's walks stand."""
    (degrees, starts), total = graph.degree_table, 0
    for rule in rules:
        front = np.array([user])
        for relation in rule.relations[:-1]:
            parts = [graph.neighbours(int(a), relation) for a in front]
            front = np.unique(np.concatenate([np.empty(0, np.int32), *parts])).astype(np.int64)
            front = front[front != user]
        total += int(degrees[starts[rule.relations[-1]] + front].sum())
    return total


def counted(small: Ranker, scale: float) -> dict[str, Any]:
    """What the walks of rules do, as means per user; walks are counted for all users."""
    graph = cellphones(AUTOMOTIVE * scale)
    logic = enlarged(small, graph).logic
    walks = walks_of_users(graph, logic.rules)
    users = np.sort(spread(walks, COUNTED))
    reached = logits(graph, logic.rules, users, logic._formula, walk=logic.walk) != 0
    edges = [edges_of_last_hops(graph, logic.rules, int(u)) for u in users]
    return {
        "scale": scale,
        "items": graph.n_items,
        "walks": float(walks.mean()),
        "edges": float(np.mean(edges)),
        "cells": float(reach_sizes(graph, logic.rules, users).sum(axis=1).mean()),
        "reached": float(reached.sum(axis=1).mean()),
    }


def _parquet(asked: Work, users: np.ndarray) -> bytes:
    from loger.store.export import _parquet as made

    return made(asked, np.sort(users))


def fitted_model(rows: list[dict[str, Any]], what: str) -> dict[str, float]:
    """c · items^p through all sizes but the largest, and its error there."""
    x = np.log([row["items"] for row in rows])
    y = np.log([row[what] for row in rows])
    p, log_c = np.polyfit(x[:-1], y[:-1], 1)
    predicted = np.exp(log_c + p * x[-1])
    return {
        "c": float(np.exp(log_c)),
        "p": float(p),
        "predicted_at_largest": float(predicted),
        "measured_at_largest": float(np.exp(y[-1])),
        "error": float(predicted / np.exp(y[-1]) - 1),
    }


def growth(rows: list[dict[str, Any]], what: str) -> float:
    """Time per user of the largest size as a multiple of the smallest size's."""
    return float(rows[-1][what] / rows[0][what])


def about(command: str, columns: dict[str, str], cells: list[list[Any]]) -> dict[str, Any]:
    """Figures as docs/tables keeps them."""
    return {
        "command": command,
        "seeds": [0],
        "commit": COMMIT,
        "machine": MACHINE,
        "columns": list(columns),
        "formats": list(columns.values()),
        "rows": cells,
    }


def table(command: str, rows: list[dict[str, Any]], models: dict[str, Any]) -> dict[str, Any]:
    """What lists cost."""
    cells = [
        [
            f"{row['scale']:g}×", row["users"], row["items"], row["triples"],
            row["grounding_ms_per_user"], row["export_ms_per_user"], row["sent_bytes"] / 1e6,
            row["bytes_per_user"] / 1e3, row["peak_gib"],
        ]
        for row in rows
    ]  # fmt: skip
    return {**about(command, COLUMNS, cells), "models": models}


def steps_table(command: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What walks come to."""
    cells = [
        [
            f"{row['scale']:g}×", row["items"], row["walks"], row["edges"], row["cells"],
            row["reached"],
            100 * row["reached"] / row["items"],
        ]
        for row in rows
    ]  # fmt: skip
    return about(command, STEPS, cells)


def kept(name: str, found: dict[str, Any]) -> None:
    """Keep a table for docs/research/scale.md."""
    text = json.dumps(found, indent=2, ensure_ascii=False)
    (TABLES / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--count", action="store_true", help="count what walks do, not its time")
    parser.add_argument(
        "--write", action="store_true", help="keep the figures for docs/research/scale.md"
    )
    options = parser.parse_args()
    command = f"python benchmarks/scale.py --sizes {' '.join(f'{s:g}' for s in options.sizes)}"
    model = LOGER(LOGERConfig(encoder=CONFIG), engine=LocalEngine())
    model.fit(generated_split(0.02), tune={}, progress=False)
    rows = []
    for scale in options.sizes:
        rows.append((counted if options.count else measured)(model.ranker_, scale))
        print(json.dumps(rows[-1]), flush=True)
    if options.count:
        if options.write:
            kept("scale-steps", steps_table(f"{command} --count", rows))
        return
    whats = ("grounding_ms_per_user", "export_ms_per_user")
    models = {what: fitted_model(rows, what) for what in whats} if len(rows) > 2 else {}
    for what, fitted in models.items():
        fitted["growth_beyond_linear"] = growth(rows, what)
    print(json.dumps(models))
    if options.write:
        kept("scale", table(command, rows, models))


if __name__ == "__main__":
    main()
