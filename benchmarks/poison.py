"""What meaningless knowledge costs: shuffled facts, and ten lies per fact, compared with no facts.

    python benchmarks/poison.py [--sets NAME ...] [--out FILE]

NAME is any data set of ``generalise.py``. Each fit uses the defaults. The measure is NDCG@10 on
test, with the standard error of the paired difference from no facts at all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from generalise import parts_of
from loger.config import LOGERConfig
from loger.data.splits import Split
from loger.evaluation.evaluate import evaluate
from loger.model import LOGER
from loger_quality import shuffled, without_facts

LIES = 10
COLUMNS = ("heads", "relations", "tails", "sources")


def noisy(parts: Split, seed: int = 0) -> Split:
    """The same with ten facts more for each, led to tails of other facts of the relation."""
    facts, rng = parts.dataset.facts, np.random.default_rng(seed)
    rows = np.tile(np.arange(len(facts)), LIES)
    tails = facts.tails[rows]
    for r in np.unique(facts.relations):
        own = np.flatnonzero(facts.relations[rows] == r)
        tails[own] = tails[rng.permutation(own)]
    kept = facts.heads[rows] != tails
    lies = (facts.heads[rows], facts.relations[rows], tails, np.full(len(rows), -1, np.int32))
    both = {
        c: np.concatenate([getattr(facts, c), lie[kept]])
        for c, lie in zip(COLUMNS, lies, strict=True)
    }
    return replace(parts, dataset=replace(parts.dataset, facts=replace(facts, **both)))


POISONS: dict[str, Callable[[Split], Split]] = {
    "no facts": without_facts,
    "true facts": lambda parts: parts,
    "shuffled": shuffled,
    "ten lies": noisy,
}


def measured(parts: Split, config: LOGERConfig, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """NDCG of each test user by what was done to the facts."""
    out = {}
    for name in names:
        data = POISONS[name](parts)
        model = LOGER(config).fit(data)
        out[name] = evaluate([model], data, samples=1).values[model.name]["ndcg"]
    return out


def run(name: str, scratch: Path) -> dict[str, Any]:
    parts = parts_of(name, scratch)
    found = measured(parts, LOGERConfig(), tuple(POISONS))
    told: dict[str, Any] = {"set": name}
    for kind, values in found.items():
        difference = values - found["no facts"]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        told[kind] = [100 * float(x) for x in (values.mean(), difference.mean(), error)]
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["sparse, useful facts", "amazon-toys"])
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--scratch", type=Path, default=Path("results/generalise/scratch"))
    options = parser.parse_args()
    found = list[dict[str, Any]]()
    for name in options.sets:
        found.append(run(name, options.scratch))
        print(found[-1], flush=True)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
