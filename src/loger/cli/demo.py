"""``loger demo``: the whole story, on a small invented shop."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from loger.cli import data as data_commands
from loger.cli import options, show
from loger.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
TRUE = "   ← the true reason"
FILES = {"data": "data", "bundle": "bundle", "report": "report.html"}


@options.command()
@options.out(
    "FOLDER", "Folder for the data, bundle and report.", required=False, default="loger-demo"
)
@options.verbose
def demo(out: Path, verbose: bool) -> None:
    """Show loger at work on a small invented shop.

    In this shop, we know why people buy. The demo fits a model to their earlier purchases, tests it
    on the later ones next to five baselines, and shows one customer's recommendations with reasons.
    It then adds the later purchases to the model and saves it.

    \b
    Examples:
      loger demo
      loger demo --verbose
    """
    there = {p.name for p in out.iterdir()} if out.is_dir() else set()
    # A name that begins with a dot is what a killed demo left; writing again clears it.
    if out.is_file() or {name for name in there if name[0] != "."} - set(FILES.values()):
        raise DataError(
            "the folder is not empty", path=out, remedy="choose another folder with --out"
        )
    from loger.data import split
    from loger.data.demo import shop
    from loger.evaluation.assess import tell
    from loger.evaluation.evaluate import FitRecord
    from loger.model import LOGER

    data, bundle, report = (out / name for name in FILES.values())
    with show.working("inventing a shop"):
        made = shop()
        parts = split(made.dataset, "time")
    with show.engine() as engine:
        model = LOGER().fit(parts, progress=engine.progress)
        story, assessment = tell(made, parts, model, engine)
        ready = LOGER().fit(parts, hold_out=False, warm_from=model, progress=engine.progress)
    made.dataset.save(data)
    how = FitRecord(str(data), name=made.dataset.name, split={"how": "time"}, tried=model.tried_)
    ready.save(bundle, record=asdict(replace(how, hold_out=False)))
    assessment.write(report, tried=model.tried_, command="loger demo")
    files = {name: str(out / file) for name, file in FILES.items()}
    show.result(story | {"files": files}, lambda story: draw(story, verbose=verbose))


def draw(story: dict[str, Any], *, verbose: bool = False) -> None:
    """Show the demo on one screen, below all details if they are wanted."""
    to = show.console()
    if verbose:
        _draw_details(story, to)
    counts = story["statistics"]
    to.print(
        f"[bold]An invented shop:[/bold] {counts['users']} customers, {counts['items']} products. "
        "We know why they buy; loger has to find out.\n"
    )
    _draw_person(story["people"][0], to, reasons=2)
    to.print(_what_if(story), markup=False)
    for line in _figures(story):
        to.print(line, markup=False)
    to.print(_next(story["files"]), markup=False, soft_wrap=True)


def _draw_person(person: dict[str, Any], to: Console, *, reasons: int | None = None) -> None:
    """One customer, what is recommended to them, and why."""
    to.print(_history(person["name"], person["history"][::-1]), markup=False)
    for place, item in enumerate(person["items"], 1):
        later = "✓ bought later" if item["bought_later"] else ""
        to.print(f"{place:2}  {item['label']:<56}{later}".rstrip(), style="bold", markup=False)
        for reason in item["reasons"][:reasons]:
            true, text = reason["true_cause"], reason["text"]
            if reasons is not None:
                text = _fitting(text, WIDTH - 12 - (len(TRUE) if true else 0))
            to.print(f"     {reason['share']:4.0%}  {text}{TRUE if true else ''}", markup=False)


def _history(name: str, latest: list[str]) -> str:
    """Whom the recommendations are for, with as many of their purchases as fit into a line."""
    for n in (3, 2, 1):
        more = f" and {len(latest) - n} more" if len(latest) > n else ""
        line = f"For {name}, who bought {', '.join(latest[:n])}{more}"
        if len(line) <= WIDTH:
            break
    return line


def _fitting(text: str, width: int) -> str:
    """As many clauses of a reason as fit into a line, but not more than two."""
    first, *others = re.split(r"; (?![^()]*\))", text)[:2]
    return "; ".join([first, *(other for other in others if len(f"{first}; {other}") <= width)])


def _what_if(story: dict[str, Any]) -> str:
    """What becomes of the first item without the purchase behind its first reason."""
    answer = story["what_if"]
    if not answer:
        return ""
    first, k = answer["before"][0], len(answer["before"])
    change = f"drops out of the top {k}"
    if first in answer["after"]:
        place = answer["after"].index(first) + 1
        change = "stays first" if place == 1 else f"drops to place {place}"
    return f"\nWithout {answer['removed']}, {answer['labels'][first]} {change}.\n"


def _figures(story: dict[str, Any]) -> list[str]:
    """How accurate loger is next to its baselines, and how faithful its reasons are."""
    measured = story["faithfulness"]
    faithful = [
        (measured["recovered_rule"], "of top reasons match the rule behind the purchase"),
        (measured["flip"], "of items drop out without their top reason's facts"),
        (measured["flip_user_edges"], "drop out without as many random facts"),
    ]
    right = [f"{share:6.0%}  {what}" for share, what in faithful if share is not None]
    best_first = sorted(story["models"].items(), key=lambda model: -model[1][0])
    left = [f"  {name:<18}{100 * mean:5.1f}" for name, (mean, *_) in best_first]
    rows = zip_longest(["Accurate?   NDCG@10", *left], ["Faithful?", *right], fillvalue="")
    return [f"{one:<29}{other}".rstrip() for one, other in rows]


def _draw_details(story: dict[str, Any], to: Console) -> None:
    """The data, the split, three customers, the rules, and intervals."""
    data_commands.draw(story["statistics"])
    parts = ", ".join(f"{n:,} {part}" for part, n in story["split"].items())
    to.print(f"\n[bold]Split[/bold] by time, each customer's latest purchases held out: {parts}")
    to.print("\n[bold]Three customers[/bold] who later bought one of their first three items")
    for person in story["people"]:
        _draw_person(person, to)
        to.print()
    rows = [(f"{r['weight']:.2f}", r["sentence"], r["remark"]) for r in story["rules"]]
    to.print(show.table(["weight", "rule", ""], rows[:8], "Strongest rules"))
    to.print('"planted": customers of this shop really buy by this rule\n')
    models = [
        (name, f"{100 * mean:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")
        for name, (mean, low, high) in story["models"].items()
    ]
    to.print(show.table(["", "NDCG@10 %", "95% interval"], models, "On what was bought later"))
    to.print("The baselines have their default settings; loger compare tunes them.")
    to.print(
        f"{story['bought_later']:.0%} of the first three items were bought later, "
        f"{story['bought_later_by_chance']:.1%} of random items.\n"
    )


def _next(files: dict[str, str]) -> str:
    return f"""
This model has not seen the purchases marked ✓. The one in the bundle has since learned from them.

Explore    loger serve {quote(files["bundle"])}
Your data  loger data build table --help
Report     {files["report"]}      More   loger demo --verbose"""
