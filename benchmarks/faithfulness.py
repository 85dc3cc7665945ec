"""How faithful reasons are on the real data: LOGER's, other methods', and random ones.

    python benchmarks/loger_quality.py --seeds 0 --variants default paper --out results
    python benchmarks/faithfulness.py --results results --probed 0 --alone \
        --methods default paper pgpr kgat cafe
    python benchmarks/faithfulness.py --results results --write
    python benchmarks/faithfulness.py --results results --methods default --users 0 --probed 0
    python benchmarks/faithfulness.py --sets amazon-beauty --bundle BUNDLE --actions 200

LOGER's models are those that the first command stored. ``loger compare`` fits the others on the
same training and validation parts and stores their ranking figures in RESULTS/compare, so one fit
serves both. Reasons never use test items. --users 0 computes the divergences for all users;
--probed users are scored again without some facts. Histories are counted over all mined rules, and
again over the rules to which LOGER's default gave a weight. Each LOGER model is compared with a
baseline of random valid paths for the same items.

A set may be ``demo``, or a harder variant of that shop such as ``demo:hubs``. Then LOGER is fitted
here, reasons are compared with the planted causes, and the output shows how often reasons of a
given confidence are right. --actions N only measures what actions contribute, for N users of the
model in --bundle, and again with its contributions shuffled (not with --alone). --quick leaves out
curves and counterfactuals, which take long where users have many actions. --near 0 0.25 sets other
tolerances for which reason may come first.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from loger.data import Split, load, split
from loger.data.demo import Demo, Variant, shop
from loger.engine import LocalEngine
from loger.evaluation.compare import compare
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
from loger.evaluation.methods import METHODS, Method
from loger.explain import reasons
from loger.graph import INVERSE_MARK, KnowledgeGraph, history
from loger.graph import whole as whole_graph
from loger.logic.mining import mine
from loger.metrics.faithfulness import reliability
from loger.model import LOGER
from loger.recommender import Recommender, fit_for
from loger.rules import RuleSet, named_rules
from tables import COMMIT, store
from where import DATA as SHARED

DEFAULT_NEAR = reasons.NEAR
USERS, PATHS = 50, 3
SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")


def rule_sets(name: str, whole: Split, results: Path) -> dict[str, RuleSet]:
    """The rules that history is counted over, by name."""
    kept = results / "bundles" / f"{name}.default.0"
    own = {"loger": LOGER.load(kept).rules_} if kept.is_dir() else {}
    return {"mined": mine(whole.graph).rules} | own


def rules_on(graph: KnowledgeGraph, rules: RuleSet) -> RuleSet:
    """Rules by their names on a graph with other derived relations, as far as it has theirs."""
    known = {relation.name for relation in graph.relations}
    names = [rule.names for rule in rules]
    there = [own for own in names if {name.removesuffix(INVERSE_MARK) for name in own} <= known]
    return named_rules(graph, there)


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
    for kind, every in rules.items():
        own = rules_on(probes.graph or whole.graph, every)
        config = FaithfulnessConfig(paths=options.paths, users=options.users or None, probed=probed)
        if not probed:
            probes = replace(probes, rescore=None)
        start = time.perf_counter()
        report = faithfulness_report(recommender, whole, own, config, probes=probes)
        seconds = time.perf_counter() - start
        print(f"── {label}, history over {len(own)} rules ({kind})")
        print(report.table(), f"\n{seconds:.0f} s\n", flush=True)
        if "reliability:told" in report.values:
            told_right = (report.values[f"reliability:{x}"].tolist() for x in ("told", "right"))
            for n, likely, right in reliability(*told_right):
                print(f"{n:6.0f} reasons of confidence {likely:.2f}: {right:.2f} are right")
        folder = options.results / "faithfulness"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{whole.dataset.name}.{label}.{kind}.{options.users}.{options.paths}.json"
        (folder / name.replace(" ", "-")).write_text(report.to_json(), encoding="utf-8")
        probed, probes = 0, replace(probes, rescore=None, permuted=None, decompose=None)


TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ml1m", "pgpr"): {"epochs": 3, "entropy": 2.0, "beam": (25, 20, 4)}
}
"""What validation chose for a method on a set (docs/research/results.md)."""


class Kept(Method):
    """A method of which all that it makes stays at hand."""

    made: ClassVar[list[Recommender]] = []

    def make(self, seed: int = 0, **settings: Any) -> Recommender:
        self.made.append(super().make(seed, **settings))
        return self.made[-1]


def fitted(method: str, parts: Split, results: Path) -> Any:
    """A method fitted on train and validation, and compared with others by the way."""
    own = METHODS[method]
    kept = Kept(*(getattr(own, field.name) for field in fields(own)))
    folder = results / "compare" / parts.dataset.name
    Kept.made.clear()
    settings = TUNED.get((parts.dataset.name, method), {})
    compare(
        parts,
        [method],
        folder,
        protocols=("full", "sampled-100"),
        settings={method: settings},
        registry={method: kept},
    )
    return Kept.made[-1] if Kept.made else fit_for(own.make(0, **settings), parts)


def actions(model: LOGER, name: str, options: argparse.Namespace) -> None:
    """Measure over actions, for the model and for random reasons for its items."""
    config = FaithfulnessConfig(users=options.actions, probed=options.actions)
    if options.quick:
        config = replace(config, curves=0, counterfactuals=0)
    graph = model.graph_
    users = np.unique(history(graph, np.arange(graph.n_users))[0])
    drawn = np.random.default_rng(0).choice(users, min(options.actions, len(users)), replace=False)
    true = LogerActions(model.ranker_)
    others = () if options.alone else (("random reasons", RandomReasons(true)),)
    for label, acts in (("LOGER", true), *others):
        start = time.perf_counter()
        values = by_actions(acts, np.sort(drawn), config, LocalEngine(progress=_counted))
        report = FaithfulnessReport(label, name, len(drawn), config, values)
        print(report.table(), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
        folder = options.results / "faithfulness"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.{label}.actions.{len(drawn)}.json".replace(" ", "-")
        file.write_text(report.to_json(), encoding="utf-8")


SHOWN = {
    "carried_1": "share of the lead, first reason",
    "carried_3": "… first three",
    "carried_5": "… first five",
    "carried_of_actions_5": "share of what all reasons give, first five",
    "r2": "infidelity R²",
    "r2_permuted": "… contributions permuted",
    "deletion": "deletion, from chance 0 to the greedy oracle 1",
    "insertion": "insertion",
    "undecidable_deletion": "undecidable items, deletion",
    "flip_first_action": "flip, first action",
    "flip_random_action": "flip, any one action",
    "flip_difference": "difference",
    "pn_r": "PN-R@10",
    "pn_r_random": "… as many random actions",
    "fid_plus": "Fid₊: lead lost without a random part of the shown reasons",
    "fid_plus_others": "… equally many other actions",
    "fid_minus": "Fid₋: lead lost without a random part of the others",
    "counterfactual_found": "up to three actions carry the first item",
    "counterfactual_size": "… how many",
}
"""The lines over actions that the docs show."""


def written(results: Path) -> None:
    """What was measured, as tables of docs/tables."""
    _store("faithfulness-actions", "--alone --actions N", *over_actions(results))
    methods = "--probed 0 --alone --methods default paper pgpr kgat cafe"
    _store("divergence", methods, *divergences(results))


def over_actions(results: Path) -> tuple[list[str], list[list[Any]]]:
    """What actions carry: a column for each set."""
    files = sorted((results / "faithfulness").glob("*.LOGER.actions.*.json"))
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = [
        [title, *(_interval(report["lines"].get(line)) for report in found)]
        for line, title in SHOWN.items()
    ]
    return ["", *(f"{r['dataset']}, {r['users']} users" for r in found)], rows


def divergences(results: Path) -> tuple[list[str], list[list[Any]]]:
    """How far the rules of reasons are from those of history: a row for each set and method."""
    columns = ["", "items with a path", "floor, all mined rules", "control", "JS_f", "JS_w",
               "floor, LOGER's rules", "control", "JS_f", "JS_w"]  # fmt: skip
    rows = []
    for name in SETS:
        for method, title in METHOD_TITLES.items():
            cells: list[Any] = []
            kinds = [f"{name}.{method}.{kind}.{USERS}.{PATHS}.json" for kind in ("mined", "loger")]
            files = [results / "faithfulness" / file for file in kinds]
            if not all(file.exists() for file in files):
                continue
            for file in files:
                lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
                cells = cells or [lines["coverage"]["mean"]]
                cells += [lines[line]["mean"] for line in ("floor", "random")]
                cells += [_interval(lines[line]) for line in ("js_f", "js_w")]
            rows.append([f"{name}, {title}", *cells])
    return columns, rows


METHOD_TITLES = {
    "default": "LOGER", "paper": "`paper` with φ", "pgpr": "PGPR", "kgat": "KGAT", "cafe": "CAFE",
}  # fmt: skip


def _store(name: str, options: str, columns: list[str], rows: list[list[Any]]) -> None:
    if rows and len(columns) > 1:
        command = f"python benchmarks/faithfulness.py --results DIR {options}; --write"
        formats = ["", *[".3f"] * (len(columns) - 1)]
        written_at = f"written at {COMMIT}"
        store(name, columns, formats, rows, command=command, seeds=[0], commit=written_at)


def _interval(line: dict[str, float] | None) -> dict[str, Any] | None:
    return line and {"mean": line["mean"], "interval": [line["low"], line["high"]]}


def _counted(what: str, done: int, of: int) -> None:
    if done % 20 == 0:
        print(f"{what}: {done} of {of}", flush=True)


def planted(name: str) -> Demo | None:
    """The shop that ``demo`` or ``demo:VARIANT`` names."""
    kind, _, variant = name.partition(":")
    return shop(variant=cast(Variant, variant or "plain")) if kind == "demo" else None


def one(name: str, options: argparse.Namespace) -> None:
    demo = planted(name)
    parts = split(demo.dataset if demo is not None else load(SHARED / name))
    whole = parts.refit()
    rules = rule_sets(name, whole, options.results)
    for method in options.methods:
        if method not in ("default", "paper"):
            other = fitted(method, parts, options.results)
            told(method, other, Probes.of(other), whole, rules, options)
            continue
        model = LOGER().fit(parts) if demo else None
        model = model or LOGER.load(options.results / "bundles" / f"{name}.{method}.0")
        probes = loger_probes(model, demo)
        for near in options.near:
            reasons.NEAR = near
            label = method if near == DEFAULT_NEAR else f"{method} within {near:.0%}"
            told(label, model, probes, whole, rules, options)
        reasons.NEAR = DEFAULT_NEAR
        graph = whole_graph(model.graph_)
        drawn = model.rules_ if demo else rules_on(graph, rules["mined"])
        if options.alone:
            continue
        control = RandomPaths(model, graph, drawn)
        bare = Probes(rescore=probes.rescore, explain=control.explain_paths, demo=demo, graph=graph)
        told(f"random for {method}", control, bare, whole, rules, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=["default"])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--probed", type=int, default=50)
    parser.add_argument("--paths", type=int, default=PATHS)
    parser.add_argument("--actions", type=int, default=0)
    parser.add_argument("--near", nargs="+", type=float, default=[DEFAULT_NEAR])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--alone", action="store_true", help="no random reasons or paths beside")
    parser.add_argument("--quick", action="store_true", help="--actions without curves")
    parser.add_argument("--write", action="store_true", help="what was measured, to docs/tables")
    options = parser.parse_args()
    if options.write:
        written(options.results)
        return
    for name in options.sets:
        if options.actions:
            kept = options.bundle or options.results / "bundles" / f"{name}.default.0"
            demo = planted(name) if options.bundle is None else None
            model = LOGER().fit(split(demo.dataset)) if demo else LOGER.load(kept)
            actions(model, name, options)
            continue
        one(name, options)


if __name__ == "__main__":
    main()
