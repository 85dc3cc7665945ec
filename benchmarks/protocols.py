"""Faithfulness by the tests of other papers, of any model, in one command.

    python benchmarks/protocols.py                     # the demo shop, fitted first
    python benchmarks/protocols.py amazon-beauty beauty.bundle --users 200 --rebuilt 30
    python benchmarks/protocols.py --write amazon-beauty ml1m      # to docs/tables

It applies the measures of LXR, SPINRec and CFExpRec (``other_measures``) to the first item of some
users, with our contributions and with other explainers of the same model. Then it measures how well
contributions predict both meanings of removal, and how much the shown reasons carry. Results go to
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
from loger.data import split
from loger.data.demo import shop
from loger.engine import LocalEngine
from loger.evaluation.faithfulness.actions import LogerActions
from loger.explain.lists import ListRequest, recommend_block
from loger.graph import history
from loger.model import LOGER
from loger.ranking.ranker import Ranker, blocks
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
    parser.add_argument("name", nargs="?", default="demo", help="of the data, for the tables")
    parser.add_argument("bundle", nargs="?", help="a fitted model; without one, the demo shop's")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--rebuilt", type=int, default=30, help="users of the second part")
    parser.add_argument("--results", type=Path, default=Path("results/protocols"))
    parser.add_argument("--write", nargs="+", metavar="NAME", help="store what was measured")
    options = parser.parse_args()
    if options.write:
        written(options.results, options.write)
        return
    if not options.bundle and options.name != "demo":
        parser.error("name the data and the bundle: protocols.py amazon-beauty beauty.bundle")
    model = LOGER.load(options.bundle) if options.bundle else LOGER().fit(split(shop().dataset))
    found = measure(model.ranker_, options.users, options.rebuilt)
    options.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"commit": COMMIT, **found}, indent=1)
    (options.results / f"{options.name}.json").write_text(text, encoding="utf-8")
    show(found)


def measure(ranker: Ranker, n_users: int, n_rebuilt: int) -> dict[str, Any]:
    """Everything about one model."""
    having = np.unique(history(ranker.graph, np.arange(ranker.graph.n_users))[0])
    drawn = np.random.default_rng(0).permutation(having)[:n_users]
    view, engine = LogerActions(ranker), LocalEngine(1, progress=_counted)
    every = explainers(ranker)
    by_protocols(view, every, drawn[:1].tolist(), engine)  # compile and cache before timing
    values = by_protocols(view, every, drawn.tolist(), engine)
    lines = {name: {x: line._asdict() for x, line in own.items()}
             for name, own in compared(values).items()}  # fmt: skip
    for name, own in values.items():
        lines[name]["ms"]["mean"] = float(np.median(own["ms"]))
    some = drawn[:n_rebuilt].tolist()
    removed = predicted(ranker, some, engine)
    lengths = [len(view.history(u)) for u in drawn.tolist()]
    about = {"users": len(values["ours"]["del"]), "rebuilt": len(some)}
    return {
        **about,
        "actions": float(np.median(lengths)),
        "explainers": lines,
        "removed": removed,
        "carried": carried(ranker, drawn),
    }


def carried(ranker: Ranker, users: np.ndarray) -> dict[str, float]:
    """What share of all actions' contributions five actions and the shown reasons carry, for the
    median of the users' ten best items; and what of the history is in the largest group."""
    shown, alone, largest = [], [], []
    for block in blocks(users, 32):
        for e in recommend_block(ranker, block, ListRequest(10, explain=True)).explanations:
            given = e.attribution.actions
            if given.sum() > 0:
                shown.append(e.carried_of_actions)
                alone.append(np.sort(given)[-5:].clip(0).sum() / given.sum())
                sizes = [len(reason.members) for reason in e.shown]
                largest.append(max(sizes, default=0) / len(given))
    medians = {"five actions": alone, "shown reasons": shown, "largest group": largest}
    return {name: float(np.median(own)) for name, own in medians.items()}


def show(found: dict[str, Any]) -> None:
    """Print the means, the differences from ours with their intervals, and the rest."""
    lines = (*SHOWN, *COUNTERFACTUAL, "ms")
    told = [[name, *(f"{own[x]['mean']:.3f}" for x in lines)]
            for name, own in found["explainers"].items()]  # fmt: skip
    print(aligned(["", *lines], told))
    print("\nless ours, with 95% intervals over users")
    differ = [[name, *("{difference:+.4f} [{low:+.4f}, {high:+.4f}]".format(**own[x])
                       for x in SHOWN)]
              for name, own in found["explainers"].items() if name != "ours"]  # fmt: skip
    print(aligned(["", *SHOWN], differ), end="\n\n")
    for meaning, own in found["removed"].items():
        print(meaning, {x: f"{m:.3f} [{low:.3f}, {high:.3f}]" for x, (m, low, high) in own.items()})
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found["carried"].items())
    print(f"share of what all actions contribute, median item: {shares} of the history")


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
