"""How often new items are recommended, compared with known items that have the same facts.

    python benchmarks/twins.py --sets demo amazon-toys ml1m --keep /tmp/twins

A twin is a new item with the facts of a known one and no interactions. loger fits a model, adds
twins of popular items, of items of median popularity and of randomly drawn ones in one ``update``,
and counts in how many top-10 recommendations of a sample of users the twins and the originals are.
``--zero`` sets the encoder's weight to 0 first. ``--keep`` stores fitted bundles in a folder and
uses them again. Nothing else is stored without ``--write``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data import load, split
from loger.data.demo import shop
from loger.graph import INTERACTION, history
from loger.model import LOGER, LOGERConfig
from tables import COMMIT
from where import DATA

K = 10


def fitted(name: str, keep: Path | None, seed: int) -> LOGER:
    """A model with default settings, from the folder if it is there."""
    if keep is not None and (keep / f"{name}.bundle").exists():
        return LOGER.load(keep / f"{name}.bundle")
    data = shop(seed).dataset if name == "demo" else load(DATA / name)
    model = LOGER(LOGERConfig(seed=seed)).fit(split(data), progress=False)
    if keep is not None:
        model.save(keep / f"{name}.bundle")
    return model


def groups(model: LOGER, k: int, seed: int) -> dict[str, NDArray[np.int64]]:
    """Up to k known items of each kind, no item twice."""
    order = np.argsort(-model.graph_.popularity, kind="stable")
    middle = len(order) // 2 - k // 2
    out = {"popular": order[:k], "median": order[middle : middle + k]}
    rest = np.setdiff1d(order, np.concatenate(list(out.values())))
    return {**out, "drawn": np.random.default_rng(seed).choice(rest, k, replace=False)}


def twin_facts(model: LOGER, items: NDArray[np.int64]) -> pl.DataFrame:
    """The facts of items that depend on no interaction, stated about their twins."""
    graph = model.graph_.given
    words, first, columns = graph.vocabulary, graph.n_users, graph.edge_relations()
    half, rows = len(graph.relations), []
    for entity in (items + first).tolist():
        name = twin(words.names[entity])
        for edge in range(int(graph.indptr[entity]), int(graph.indptr[entity + 1])):
            relation, tail = int(columns[edge]), int(graph.tails[edge])
            known_from = -1 if graph.origins is None else graph.origins[edge]
            if relation % half == INTERACTION or known_from >= 0:
                continue
            ends = [(name, "item"), (words.names[tail], words.type_of(tail))]
            (head, head_type), (end, end_type) = ends if relation < half else ends[::-1]
            rows.append((head, graph.relations[relation % half].name, end, head_type, end_type))
    columns_of = ["head", "relation", "tail", "head_type", "tail_type"]
    return pl.DataFrame(rows, schema=columns_of, orient="row")


def twin(item: str) -> str:
    """The name of an item's twin."""
    return f"twin of {item}"


def measured(model: LOGER, k: int, users: int, seed: int) -> dict[str, Any]:
    """Recommendations that contain originals, before and after, and twins, per group."""
    chosen = groups(model, k, seed)
    every = np.concatenate(list(chosen.values()))
    names = [model.items[v] for v in every.tolist()]
    begun = time.process_time()
    later = model.update(items=[twin(name) for name in names], facts=twin_facts(model, every))
    seconds = time.process_time() - begun
    asked = np.linspace(0, model.graph_.n_users - 1, min(users, model.graph_.n_users)).astype(int)
    before, after = (m.ranker_.top(asked, K)[0] for m in (model, later))
    place = {name: v for v, name in enumerate(later.items)}
    counts_before = np.bincount(before[before >= 0], minlength=model.graph_.n_items)
    counts = np.bincount(after[after >= 0], minlength=later.graph_.n_items)
    new = after >= model.graph_.n_items
    has = np.zeros((len(asked), model.graph_.n_items), dtype=bool)
    has[history(model.graph_, asked)] = True
    guest = later.ranker_.on(later.graph_.with_users(["nobody"])).top([later.graph_.n_users], K)[0]
    out: dict[str, Any] = {"update, s": round(seconds, 1), "users": len(asked)}
    out["twins in a list"] = {"mean": float(new.sum(1).mean()), "most": int(new.sum(1).max())}
    out["twins in the list of a guest"] = int((guest >= model.graph_.n_items).sum())
    for kind, items in chosen.items():
        twins = [place[twin(model.items[v])] for v in items.tolist()]
        originals = [place[model.items[v]] for v in items.tolist()]
        out[kind] = {
            "originals before": int(counts_before[items].sum()),
            "originals": int(counts[originals].sum()),
            "twins": int(counts[twins].sum()),
            "twins, people without the original": sum(
                int((after[~has[:, v]] == t).sum())
                for v, t in zip(items.tolist(), twins, strict=True)
            ),
        }
    return out


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    model = fitted(name, arguments.keep, arguments.seed)
    ranker = model.ranker_
    out: dict[str, Any] = {"encoder weight": ranker.fusion.encoder_weight}
    if arguments.zero:
        model = without_encoder(model)
    out |= measured(model, arguments.k, arguments.users, arguments.seed)
    print(name, json.dumps(out), flush=True)
    return out


def without_encoder(model: LOGER) -> LOGER:
    """The model whose encoder weighs nothing."""
    ranker = model.ranker_
    return model.with_ranker(replace(ranker, fusion=replace(ranker.fusion, encoder_weight=0.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["demo", "amazon-toys", "ml1m"])
    parser.add_argument("--k", type=int, default=10, help="items of each kind")
    parser.add_argument("--users", type=int, default=3000, help="users to recommend to")
    parser.add_argument("--zero", action="store_true", help="set the encoder's weight to 0")
    parser.add_argument("--keep", type=Path, help="folder of fitted bundles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    results = {name: run(name, arguments) for name in arguments.sets}
    if arguments.write:
        about = {"commit": COMMIT, "seed": arguments.seed, "k": arguments.k}
        about |= {"zero": arguments.zero, "users": arguments.users}
        arguments.write.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
