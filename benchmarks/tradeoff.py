"""Accuracy against agreement with history: what it costs to make JS_f and JS_w small.

    python benchmarks/loger_quality.py --seeds 0 --variants default --out results
    python benchmarks/tradeoff.py --results results

JS_f and JS_w compare the rules of reasons, and their weights, with the rules of all paths between a
user and the user's items. If all mined rules had equal weights, JS_w would be 0. So the learned
weights move towards an equal weight of all mined rules, w(λ) = (1 − λ) w + λ w̄, where w̄ has the
same sum, and each model on the curve is measured: NDCG@10 on test for --users users, and both
divergences for --asked users with a history. Nothing is chosen from this.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from loger.data import Split, load, split
from loger.evaluation.faithfulness import FaithfulnessConfig, Probes, faithfulness_report
from loger.evaluation.faithfulness.measuring import weights_of
from loger.grounding import reach
from loger.logic.mining import mine
from loger.logic.mln import typical_strengths
from loger.metrics import ranking
from loger.model import LOGER
from loger.rules import RuleSet
from tables import markdown
from where import DATA as SHARED

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
LAMBDAS = (0.0, 0.1, 0.3, 0.6, 1.0)


def drawn(model: LOGER, rules: RuleSet, share: float) -> LOGER:
    """The model with weights drawn towards an even weight of all rules."""
    logic, own = model.logic_, weights_of(model)
    even = np.full(len(rules), logic.weights.sum() / len(rules))
    weights = (1 - share) * np.array([own.get(rule, 0.0) for rule in rules]) + share * even
    some = np.arange(0, model.graph_.n_users, max(1, model.graph_.n_users // 200))
    scales = typical_strengths(reach(model.ranker_.logic_graph, rules, some, walk=logic.walk))
    if logic.scales is not None:
        known = dict(zip(logic.rules, logic.scales, strict=True))
        scales = np.array([known.get(r, s) for r, s in zip(rules, scales, strict=True)])
    kept = np.flatnonzero(weights)
    logic = replace(logic, rules=rules.chosen(kept), weights=weights[kept], scales=scales[kept])
    return model.with_ranker(replace(model.ranker_, logic=logic))


def ndcg(model: LOGER, whole: Split, n: int) -> float:
    users, items = whole.pairs("test")
    asked = np.unique(users)
    asked = asked[:: max(1, len(asked) // n)]
    ours = np.isin(users, asked)
    rows = np.searchsorted(asked, users[ours])
    lists = model.top(asked, 10)[0]
    hits = ranking.hits(lists, rows, items[ours])
    return float(ranking.ndcg(hits, np.bincount(rows, minlength=len(asked))).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--asked", type=int, default=200)
    options = parser.parse_args()
    for name in options.sets:
        whole = split(load(SHARED / name)).refit()
        model = LOGER.load(options.results / "bundles" / f"{name}.default.0")
        mined = mine(whole.graph).rules
        rules = RuleSet((*mined, *(rule for rule in model.rules_ if rule not in set(mined))))
        rows = []
        for share in LAMBDAS:
            other = drawn(model, rules, share)
            report = faithfulness_report(
                other,
                whole,
                rules,
                FaithfulnessConfig(users=options.asked, paths=1),
                probes=Probes(weights=weights_of(other)),
            )
            lines = ("js_f", "js_w", "floor", "random")
            found = [report[line] for line in lines]
            cells = ["" if mean is None else f"{mean.mean:.3f}" for mean in found]
            rows.append([f"{share:g}", f"{100 * ndcg(other, whole, options.users):.2f}", *cells])
        columns = (f"{name}, λ", "NDCG", "JS_f", "JS_w", "floor", "control")
        print(markdown(columns, rows), flush=True)


if __name__ == "__main__":
    main()
