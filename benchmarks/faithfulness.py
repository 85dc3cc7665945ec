"""How faithful reasons are on the real data: LOGER's, those of others, random ones.

    python benchmarks/loger_quality.py --seeds 0 --variants default paper --out results
    python benchmarks/faithfulness.py --results results --methods default paper PGPR KGAT
    python benchmarks/faithfulness.py --results results --methods default --users 0 --probed 0
    python benchmarks/faithfulness.py --sets amazon-beauty --bundle BUNDLE --actions 200

The models of LOGER are those that the first command kept; others are fitted here on the same
parts, train and validation. Test items are not looked at. --users 0 asks all users for the
divergences; --probed users are scored anew without facts. Histories are counted over all rules
that mining finds, and once more over the rules that LOGER's default gave a weight. Beside every
LOGER stands a control: random valid paths for the same items. A set may be ``demo``: then LOGER
is fitted here, and planted reasons are compared too. --actions N asks only what actions carry,
for N users of the model in --bundle, and again with its contributions dealt out at random.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import loger.baselines
from loger.data import Split, load, split
from loger.data.demo import Demo, shop
from loger.engine import LocalEngine
from loger.evaluation.faithfulness import (
    FaithfulnessConfig,
    FaithfulnessReport,
    LogerActions,
    Probes,
    RandomPaths,
    RandomReasons,
    by_actions,
    faithfulness_report,
    loger_probes,
)
from loger.graph import history
from loger.model import LOGER
from loger.rules import RuleSet
from loger.rules.mining import mine

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def rule_sets(name: str, whole: Split, results: Path) -> dict[str, RuleSet]:
    """The rules that history is counted over, by name."""
    kept = results / "bundles" / f"{name}.default.0"
    own = {"loger": LOGER.load(kept).rules_} if kept.is_dir() else {}
    return {"mined": mine(whole.graph).rules} | own


def told(
    label: str,
    recommender: Any,
    probes: Probes,
    whole: Split,
    rules: dict[str, RuleSet],
    options: argparse.Namespace,
) -> None:
    """Print the report over the first of the rule sets, and the divergences over the others."""
    probed = options.probed if probes.rescore is not None else 0
    for kind, own in rules.items():
        config = FaithfulnessConfig(paths=options.paths, users=options.users or None, probed=probed)
        if not probed:
            probes = replace(probes, rescore=None)
        start = time.perf_counter()
        report = faithfulness_report(recommender, whole, own, config, probes=probes)
        seconds = time.perf_counter() - start
        print(f"── {label}, history over {len(own)} rules ({kind})")
        print(report.table(), f"\n{seconds:.0f} s\n", flush=True)
        folder = options.results / "faithfulness"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{whole.dataset.name}.{label}.{kind}.{options.users}.{options.paths}.json"
        (folder / name.replace(" ", "-")).write_text(report.to_json(), encoding="utf-8")
        probed, probes = 0, replace(probes, rescore=None, permuted=None, decompose=None)


def actions(model: LOGER, name: str, options: argparse.Namespace) -> None:
    """Measure over actions, for the model and for random reasons for its items."""
    config = FaithfulnessConfig(users=options.actions, probed=options.actions)
    graph = model.graph_
    users = np.unique(history(graph, np.arange(graph.n_users))[0])
    drawn = np.random.default_rng(0).choice(users, min(options.actions, len(users)), replace=False)
    true = LogerActions(model.ranker_)
    for label, acts in (("LOGER", true), ("random reasons", RandomReasons(true))):
        start = time.perf_counter()
        values = by_actions(acts, np.sort(drawn), config, LocalEngine(progress=_counted))
        report = FaithfulnessReport(label, name, len(drawn), config, values)
        print(report.table(), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
        folder = options.results / "faithfulness"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.{label}.actions.{len(drawn)}.json".replace(" ", "-")
        file.write_text(report.to_json(), encoding="utf-8")


def _counted(what: str, done: int, of: int) -> None:
    if done % 20 == 0:
        print(f"{what}: {done} of {of}", flush=True)


def one(name: str, options: argparse.Namespace) -> None:
    demo: Demo | None = shop() if name == "demo" else None
    parts = split(demo.dataset if demo is not None else load(SHARED / name))
    whole = parts.refit()
    rules = rule_sets(name, whole, options.results)
    for method in options.methods:
        if method not in ("default", "paper"):
            other = getattr(loger.baselines, method)(seed=0).fit(whole)
            told(method, other, Probes.of(other), whole, rules, options)
            continue
        model = LOGER().fit(parts) if demo else None
        model = model or LOGER.load(options.results / "bundles" / f"{name}.{method}.0")
        probes = loger_probes(model, demo)
        told(method, model, probes, whole, rules, options)
        control = RandomPaths(model, whole.graph, rules["mined"] if demo is None else model.rules_)
        bare = Probes(rescore=probes.rescore, explain=control.explain_paths, demo=demo)
        told(f"random for {method}", control, bare, whole, rules, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=["default"])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--probed", type=int, default=50)
    parser.add_argument("--paths", type=int, default=3)
    parser.add_argument("--actions", type=int, default=0)
    parser.add_argument("--bundle", type=Path)
    options = parser.parse_args()
    for name in options.sets:
        if options.actions:
            kept = options.bundle or options.results / "bundles" / f"{name}.default.0"
            fit_here = name == "demo" and options.bundle is None
            model = LOGER().fit(split(shop().dataset)) if fit_here else LOGER.load(kept)
            actions(model, name, options)
            continue
        one(name, options)


if __name__ == "__main__":
    main()
