"""Faithfulness by the tests of other papers: one command for a model of your own.

    loger fit ../shared/data/amazon-beauty -o beauty.bundle --hold-out
    python benchmarks/protocols.py amazon-beauty beauty.bundle --users 200 --rebuilt 30
    python benchmarks/protocols.py --write amazon-beauty ml1m      # to docs/tables

It applies the measures of LXR, SPINRec and CFExpRec (``other_measures``)
to the first item of some users, with our contributions and with other explainers of the same model.
Then it measures how well contributions predict both meanings of removal. Results go to
RESULTS/NAME.json. Times are the median processor time on one thread; compare them only with each
other.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from explainers import explainers
from loger.engine import LocalEngine
from loger.evaluation.faithfulness.actions import LogerActions
from loger.graph import history
from loger.model import LOGER
from other_measures import by_protocols, compared, predicted
from tables import COMMIT, aligned, store

SHOWN = {
    "pos_5": "POS@5 ↓", "pos_10": "POS@10 ↓", "pos_20": "POS@20 ↓", "neg_10": "NEG@10 ↑",
    "del": "DEL ↓", "ins": "INS ↑", "cdcg": "CDCG ↓", "pos_10_few": "POS@10, 1–5 removed ↓",
    "del_few": "DEL, 1–5 removed ↓",
}  # fmt: skip
COUNTERFACTUAL = {
    "pn_s": "PN-S, item ↑", "pn_s_list": "PN-S, list ↑", "pn_r": "PN-R ↑", "pos_p": "POS-P ↓",
    "neg_p": "NEG-P ↑", "gini": "Gini", "size": "size",
}  # fmt: skip
PREDICTED = {
    "r2": "R²", "r2_permuted": "R², contributions shuffled", "rank": "rank correlation",
    "first": "same strongest action",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="of the data, for the tables")
    parser.add_argument("bundle", nargs="?")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--rebuilt", type=int, default=30, help="users of the second part")
    parser.add_argument("--results", type=Path, default=Path("results/protocols"))
    parser.add_argument("--write", nargs="+", metavar="NAME", help="store what was measured")
    options = parser.parse_args()
    if options.write:
        written(options.results, options.write)
        return
    if not options.bundle:
        parser.error("name the data and the bundle: protocols.py amazon-beauty beauty.bundle")
    found = measure(options.bundle, options.users, options.rebuilt)
    options.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"commit": COMMIT, **found}, indent=1)
    (options.results / f"{options.name}.json").write_text(text, encoding="utf-8")
    told = [[name, *(f"{lines[x]['mean']:.3f}" for x in (*SHOWN, *COUNTERFACTUAL, "ms"))]
            for name, lines in found["explainers"].items()]  # fmt: skip
    print(aligned(["", *SHOWN, *COUNTERFACTUAL, "ms"], told))
    for meaning, lines in found["removed"].items():
        print(
            meaning, {line: f"{m:.3f} [{lo:.3f}, {hi:.3f}]" for line, (m, lo, hi) in lines.items()}
        )


def measure(bundle: str, n_users: int, n_rebuilt: int) -> dict[str, Any]:
    """Everything about one model."""
    ranker = LOGER.load(bundle).ranker_
    having = np.unique(history(ranker.graph, np.arange(ranker.graph.n_users))[0])
    drawn = np.random.default_rng(0).permutation(having)[:n_users].tolist()
    view, engine = LogerActions(ranker), LocalEngine(1, progress=_counted)
    every = explainers(ranker)
    by_protocols(view, every, drawn[:1], engine)  # what is compiled and cached first is not timed
    values = by_protocols(view, every, drawn, engine)
    lines = {name: {x: line._asdict() for x, line in own.items()}
             for name, own in compared(values).items()}  # fmt: skip
    for name, own in values.items():
        lines[name]["ms"]["mean"] = float(np.median(own["ms"]))
    some = drawn[:n_rebuilt]
    removed = predicted(ranker, some, engine)
    lengths = [len(view.history(u)) for u in drawn]
    about = {"users": len(values["ours"]["del"]), "rebuilt": len(some)}
    return {**about, "actions": float(np.median(lengths)), "explainers": lines, "removed": removed}


def written(results: Path, names: list[str]) -> None:
    """Tables of docs/tables: two for each set, and one about both meanings of removal."""
    command = "python benchmarks/protocols.py NAME BUNDLE; --write"
    rows = []
    for name in names:
        found = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        note = f"{found['users']} users, median {found['actions']:.0f} actions"
        about = {"command": command, "seeds": [0], "commit": found["commit"], "note": note}
        fast = found["explainers"]["ours"]["ms"]["mean"]
        for part, lines in (("protocols", SHOWN), ("counterfactuals", COUNTERFACTUAL)):
            timed = part == "protocols"
            body = [[explainer, *(_cell(own[line], explainer) for line in lines),
                     *([own["ms"]["mean"] / fast] if timed else [])]
                    for explainer, own in found["explainers"].items()]  # fmt: skip
            columns = ["", *lines.values(), *(["time, ours = 1"] if timed else [])]
            formats = ["", *[".2f"] * len(lines), *([".1f"] if timed else [])]
            store(f"{part}-{name}", columns, formats, body, **about)
        for meaning, own in found["removed"].items():
            cells = [{"mean": own[x][0], "interval": own[x][1:]} for x in PREDICTED]
            rows.append([f"{name}, {meaning}", *cells])
    users = f"{found['rebuilt']} users each"
    columns = ["", *PREDICTED.values()]
    formats = ["", *[".2f"] * len(PREDICTED)]
    store("rebuilt", columns, formats, rows, command=command, seeds=[0], commit=COMMIT, note=users)


def _cell(line: dict[str, float], explainer: str) -> Any:
    """The mean; bold where the interval of the difference from ours has no 0 in it."""
    differs = explainer != "ours" and not line["low"] <= 0 <= line["high"]
    return {"mean": line["mean"], "bold": True} if differs else line["mean"]


def _counted(what: str, done: int, of: int) -> None:
    if done % 20 == 0:
        print(f"{what}: {done} of {of}", flush=True)


if __name__ == "__main__":
    main()
