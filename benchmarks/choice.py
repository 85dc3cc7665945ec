"""Which reason may come first: agreement with history by how much less a reason may contribute.

loger fit ../shared/data/amazon-beauty -o beauty.bundle --hold-out
python benchmarks/choice.py amazon-beauty=beauty.bundle --users 500

JS_f compares the rules of the first paths of twenty items with those of the user's history, over
all mined rules. A model normally shows the largest contribution first. With a tolerance, it may
start with any reason that contributes up to that share less, and takes the rule that occurs most
often in the history. For each tolerance, the table also shows how many items leave a choice at all.
A rule without a weight is never available.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faithfulness import SHARED, rules_on
from loger.data import load, split
from loger.explain.lists import ListRequest, recommend_block
from loger.graph import whole as whole_graph
from loger.grounding import ground
from loger.logic.mining import mine
from loger.metrics.faithfulness import jensen_shannon, shares
from loger.model import LOGER
from loger.rules import RuleSet

TOLERANCES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.999)
LISTED, BLOCK = 20, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="SET=BUNDLE")
    parser.add_argument("--users", type=int, default=500)
    options = parser.parse_args()
    for name, _, bundle in (each.partition("=") for each in options.models):
        compared(name, Path(bundle), options.users)


def compared(name: str, bundle: Path, n_users: int) -> None:
    """Print what each tolerance does for one model."""
    whole, model = split(load(SHARED / name)).refit(), LOGER.load(bundle)
    graph = whole_graph(model.graph_)
    mined, own = rules_on(graph, mine(whole.graph).rules), model.rules_
    owners, items = whole.pairs("train")
    users = np.unique(owners).astype(np.int64)
    rng = np.random.default_rng([0, 0xFA17])
    users = np.sort(rng.choice(users, size=min(n_users, len(users)), replace=False))
    ours = np.isin(owners, users)

    def history(rules: RuleSet) -> NDArray[np.int64]:
        found = ground(graph, rules, owners[ours], items[ours])
        return np.asarray(found.per_user(graph.n_users)[users].toarray())

    counts, own_counts = history(mined), history(own)
    column = {rule.relations: k for k, rule in enumerate(mined)}
    columns = np.array([column.get(rule.relations, len(mined)) for rule in own])  # the last: none
    past = shares(np.pad(counts, ((0, 0), (0, 1))))
    reached = np.unique(columns[columns < len(mined)])
    print(f"{name}, {len(users)} users: {len(own)} rules with weight, {len(mined)} mined")
    print(f"{np.nanmean(past[:, reached].sum(axis=1)):.0%} of history is on rules with weight")
    given = contributions(model, users)
    for tolerance in TOLERANCES:
        first, choice = told_first(given, own_counts, tolerance)
        shown = np.zeros_like(past)
        rows, places = np.nonzero(first >= 0)
        np.add.at(shown, (rows, columns[first[rows, places]]), 1.0)
        js, most = np.nanmean(jensen_shannon(shares(shown), past)), shown.sum(axis=0).max()
        print(
            f"within {tolerance:4.0%}: JS_f {js:.3f}, a choice for {choice:.1%} of items; "
            f"{most / shown.sum():.0%} of first paths follow one rule"
        )


def contributions(model: LOGER, users: NDArray[np.int64]) -> NDArray[np.float64]:
    """What rules give the items of users' lists; [users, items, rules]."""
    place = {rule: k for k, rule in enumerate(model.rules_)}
    out = np.zeros((len(users), LISTED, len(place)))
    for lo in range(0, len(users), BLOCK):
        block, request = users[lo : lo + BLOCK], ListRequest(LISTED, explain=True)
        _, lists, told = recommend_block(model.ranker_, block, request)
        for (row, k), e in zip(np.argwhere(lists.items >= 0).tolist(), told, strict=True):
            for part in e.rules:
                out[lo + row, k, place[part.rule]] = part.contribution
    return out


def told_first(
    given: NDArray[np.float64], history: NDArray[np.int64], tolerance: float
) -> tuple[NDArray[np.int64], float]:
    """The rule that is told first for each item, -1 for none, and how many items have a choice."""
    largest = given.max(axis=2, keepdims=True)
    near = (given > 0) & (given >= (1 - tolerance) * largest)
    # Of those near, the most paths in history; of equals, the largest contribution.
    rank = np.where(near, history[:, None, :] + given / (largest + 1.0), -1.0)
    first = np.where(near.any(axis=2), rank.argmax(axis=2), -1)
    return first, float((near.sum(axis=2) > 1).mean())


if __name__ == "__main__":
    main()
