"""Precision of similar items: do they predict what people who have an item take later?

    python benchmarks/similar.py --sets amazon-beauty amazon-toys --keep /tmp/similar --write

For an item i, the relevant items are those that some user has in the test part who has i in the
training part. Each method lists the ten items most similar to i; precision@10 is the share of
relevant ones among them. All methods learn from the same training interactions. ItemKNN gets the
shrinkage that suits it best on the very items it is measured on, so it is favoured. Times are for
one list with reasons, after the first.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from loger.baselines import ItemKNN
from loger.data import Split, load, split
from loger.metrics.report import resampled_means
from loger.model import LOGER
from tables import COMMIT, store
from where import DATA

K, SHRINKS = 10, (0.0, 10.0, 100.0)


def fitted(name: str, parts: Split, keep: Path | None) -> LOGER:
    """The default model of a split, from the folder if it is there."""
    place = None if keep is None else keep / f"{name}.bundle"
    if place is not None and place.exists():
        return LOGER.load(place)
    model = LOGER(seed=0).fit(parts, progress=False)
    if place is not None:
        model.save(place)
    return model


def relevant(parts: Split) -> sp.csr_array:
    """Which items were taken in the test part by users who have an item; [items, items]."""
    shape = parts.dataset.n_users, parts.dataset.n_items

    def matrix(users: NDArray[np.integer], items: NDArray[np.integer]) -> sp.csr_array:
        return sp.csr_array((np.ones(len(users), np.float32), (users, items)), shape=shape)

    known = [parts.pairs(part) for part in ("train", "validation")]
    before = matrix(*(np.concatenate(column) for column in zip(*known, strict=True)))
    return sp.csr_array(before.T @ matrix(*parts.pairs("test")))


def best(scores: NDArray[np.floating], item: int) -> NDArray[np.int64]:
    """The K items of highest score but for the item itself; ties go to the lower number."""
    scores = scores.astype(np.float64)
    scores[item] = -np.inf
    return np.argsort(-scores, kind="stable")[:K]


def measured(name: str, data: Path, keep: Path | None, n: int, seed: int) -> dict[str, float]:
    """Precision of LOGER's similar items and of the others', over a sample of items."""
    parts = split(load(data / name))
    model, wanted = fitted(name, parts, keep), relevant(parts)
    some = np.flatnonzero(np.diff(wanted.indptr))
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(some, min(n, len(some)), replace=False))
    hits: dict[str, list[float]] = {}

    def count(method: str, item: int, found: NDArray[np.integer]) -> None:
        row = wanted.indices[wanted.indptr[item] : wanted.indptr[item + 1]]
        hits.setdefault(method, []).append(float(np.isin(found, row).sum()) / K)

    names, numbers = model.items, {v: k for k, v in enumerate(model.items)}
    times = []
    for item in some.tolist():
        begun = time.perf_counter()
        found = model.similar(names[item], K)["item"].to_list()
        times.append(time.perf_counter() - begun)
        count("LOGER", item, np.array([numbers[v] for v in found]))
    for shrink in SHRINKS:
        rows = ItemKNN(neighbours=1000, shrink=shrink).fit(parts.refit()).similarity_
        for item in some.tolist():
            count(f"ItemKNN {shrink:g}", item, best(rows[[item]].toarray()[0], item))
    first = model.graph_.n_users
    table = model.encoder_.state()["entities.table"][first : first + len(names)].astype(np.float32)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    for item in some.tolist():
        count("cosine of the encoder", item, best(table @ table[item], item))
    values = {method: np.array(own) for method, own in hits.items()}
    knn = max((m for m in values if m.startswith("ItemKNN")), key=lambda m: values[m].mean())
    out = {"items": float(len(some)), "milliseconds": 1000 * float(np.median(times[1:]))}
    for method, key in (("LOGER", "loger"), (knn, "itemknn"), ("cosine of the encoder", "cosine")):
        out[key] = float(values[method].mean())
        more = values["LOGER"] - values[method]
        low, high = np.quantile(resampled_means(more[:, None], 1000, seed), [0.025, 0.975])
        out |= {f"{key}_low": float(low), f"{key}_high": float(high)}
    print(name, knn, out, flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["amazon-beauty", "amazon-toys"])
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = {s: measured(s, DATA, asked.keep, asked.items, asked.seed) for s in asked.sets}
    if asked.write:
        store(
            "similar",
            ["", "LOGER", "ItemKNN", "cosine of the encoder", "items", "ms per list"],
            ["", ".2f", ".2f", ".2f", ".0f", ".1f"],
            [
                [
                    name,
                    100 * v["loger"],
                    *(against(v, other) for other in ("itemknn", "cosine")),
                    v["items"],
                    v["milliseconds"],
                ]
                for name, v in found.items()
            ],
            command=f"python benchmarks/similar.py --sets {' '.join(asked.sets)} --write",
            seeds=[asked.seed],
            commit=COMMIT,
        )


def against(value: dict[str, float], method: str) -> dict[str, object]:
    """Another method's precision; the interval is that of what LOGER has more."""
    ends = [100 * value[f"{method}_{end}"] for end in ("low", "high")]
    return {"mean": 100 * value[method], "interval": ends}


if __name__ == "__main__":
    main()
