"""What low ratings teach: how many disliked items the lists have, and at what cost in accuracy.

    python benchmarks/dislikes.py --sets amazon-toys --keep /tmp/dislikes --write

Ratings below 2.5 are dislikes. One model knows those from before a user's first test interaction;
the other is fitted and measured on the same interactions, and knows no dislikes at all. Each lists
the ten best items for every user who has dislikes. *Listed* is the share of these dislikes that are
in the user's list: all of them, and the later ones, which neither model knows. NDCG@10 is measured
on the test part, over all users; its interval is that of the difference.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.data import Split, load, split
from loger.evaluation.evaluate import evaluate
from loger.graph import DISLIKED
from loger.metrics.report import resampled_means
from loger.model import LOGER
from tables import COMMIT, store
from where import DATA

K, BELOW = 10, 2.5
COLUMNS = ("heads", "relations", "tails", "sources", "times")


def dislikes(parts: Split) -> NDArray[np.bool_]:
    """Which facts of the data set are dislikes."""
    names = [relation.name for relation in parts.dataset.relations]
    return parts.dataset.facts.relations == names.index(DISLIKED)


def without(parts: Split) -> Split:
    """The same split of data without dislikes."""
    facts, stay = parts.dataset.facts, ~dislikes(parts)
    columns = {c: v[stay] for c in COLUMNS if (v := getattr(facts, c)) is not None}
    return replace(parts, dataset=replace(parts.dataset, facts=replace(facts, **columns)))


def fitted(parts: Split, seed: int, place: Path | None) -> LOGER:
    """The default model of a split, from the folder if it is there."""
    if place is not None and place.exists():
        return LOGER.load(place)
    model = LOGER(seed=seed).fit(parts, progress=False)
    if place is not None:
        model.save(place)
    return model


def measured(name: str, data: Path, keep: Path | None, seed: int) -> dict[str, Any]:
    """Shares of dislikes listed and NDCG of a data set, with and without dislikes."""
    parts = split(load(data / name, min_rating=BELOW))
    facts, which = parts.dataset.facts, dislikes(parts)
    first_item = parts.dataset.n_users
    users, items = facts.heads[which], facts.tails[which] - first_item
    graph = parts.refit().graph
    relation = graph.relation_id(DISLIKED)
    known = np.array([
        item + first_item in graph.neighbours(user, relation)
        for user, item in zip(users.tolist(), items.tolist(), strict=True)
    ])  # fmt: skip
    asked, place = np.unique(users, return_inverse=True)
    out: dict[str, Any] = {"dislikes": len(users), "known": int(known.sum()), "users": len(asked)}
    listed, ndcg = {}, {}
    for method, own in (("with", parts), ("without", without(parts))):
        model = fitted(own, seed, None if keep is None else keep / f"{name}.{method}.{seed}.bundle")
        lists, _ = model.top(asked, K)
        listed[method] = np.array([
            item in lists[row] for row, item in zip(place.tolist(), items.tolist(), strict=True)
        ])  # fmt: skip
        (values,) = evaluate([model], own).values.values()
        ndcg[method] = values["ndcg"]
        out[f"ndcg_{method}"] = float(ndcg[method].mean())
        out[f"all_{method}"] = float(listed[method].mean())
        out[f"later_{method}"] = float(listed[method][~known].mean())
    more = resampled_means((ndcg["with"] - ndcg["without"])[:, None], 1000, seed)
    out["low"], out["high"] = (float(x) for x in np.quantile(more, [0.025, 0.975]))
    print(name, out, flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["amazon-toys"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = {s: measured(s, DATA, asked.keep, asked.seed) for s in asked.sets}
    if asked.write:
        store(
            "dislikes",
            ["", "NDCG@10 with", "without", "listed with", "without", "later with", "without"],
            ["", ".2f", ".2f", ".2f", ".2f", ".2f", ".2f"],
            [
                [
                    name,
                    {"mean": 100 * v["ndcg_with"], "interval": [100 * v["low"], 100 * v["high"]]},
                    100 * v["ndcg_without"],
                    *(100 * v[f"{w}_{m}"] for w in ("all", "later") for m in ("with", "without")),
                ]
                for name, v in found.items()
            ],
            command=f"python benchmarks/dislikes.py --sets {' '.join(asked.sets)} --write",
            seeds=[asked.seed],
            commit=COMMIT,
        )


if __name__ == "__main__":
    main()
