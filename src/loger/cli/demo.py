"""``loger demo``: the whole story, on a small invented shop."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson
from loger.cli.serve import check_installed
from loger.cli.serve import serve as open_app
from loger.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

FILES = {"data": "data", "bundle": "bundle", "report": "report.html"}


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where data, bundle and report go.")
    ] = Path("loger-demo"),
    seed: Annotated[int, typer.Option(help="Another seed invents another shop.")] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Open the web app on it at the end.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the library at work on a small invented shop whose true rules are known.

    Invents the shop, fits a model on the earlier purchases, evaluates it on the latest
    against three controls, shows the strongest rules, three people with what is recommended
    to them and why, and what would change without one purchase.

    \b
    Examples:
      loger demo
      loger demo --seed 7 --json
      loger demo --serve
    """
    if out.is_file() or (out.is_dir() and {p.name for p in out.iterdir()} - set(FILES.values())):
        raise DataError("holds other things", path=out, remedy="give another folder with --out")
    if serve:
        check_installed()
    from loger.cli import show
    from loger.cli.evaluate import write
    from loger.cli.fit import FIT_RECORD
    from loger.cli.story import tell
    from loger.data import split
    from loger.data.demo import shop
    from loger.model import LOGER

    with show.working("inventing a shop"):
        made = shop(seed)
        parts = split(made.dataset, "time")
    with show.engine(show.COMPILING) as engine:
        model = LOGER().fit(parts, progress=engine.progress)
        story = tell(made, parts, model, engine)
    made.dataset.save(out / FILES["data"])
    model.save(out / FILES["bundle"])
    noted = {"data": str(out / FILES["data"]), "split": {"how": "time"}, "tried": model.tried_}
    from json import dumps

    (out / FILES["bundle"] / FIT_RECORD).write_text(dumps(noted, indent=2) + "\n")
    command = f"loger demo --seed {seed}"
    report, trust = story.report, story.faithfulness
    write(out / FILES["report"], model, made.dataset, report, trust, model.tried_, (), command)
    files = {name: str(out / file) for name, file in FILES.items()}
    if json:
        show.as_json(story.told | {"files": files})
    else:
        _draw(story.told, files, show.console())
    if serve:
        open_app(out / FILES["bundle"])


def _draw(story: dict[str, Any], files: dict[str, str], to: Console) -> None:
    from loger.cli import show
    from loger.cli.data import draw

    draw(story["statistics"], to)
    parts = ", ".join(f"{n:,} {part}" for part, n in story["split"].items())
    to.print(
        f"\n[bold]Split[/bold] by time, each user's latest purchases held out: {parts}.\n"
        "The model learns from train and validation; the test part it never sees."
    )
    rows = [(f"{r['weight']:.2f}", r["sentence"], r["remark"]) for r in story["rules"]]
    to.print(show.table(["weight", "rule", ""], rows[:8], "\nStrongest rules"))
    to.print("planted: people in this shop really buy by this rule; loger was not told.")
    rows = [
        (name, f"{100 * mean:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")
        for name, (mean, low, high) in story["models"].items()
    ]
    to.print("\n[bold]Against three controls[/bold], on what was bought later (the test part)")
    to.print(show.table(["", "NDCG@10 %", "95 % interval"], rows))
    to.print("The controls have their default settings; loger compare tunes them.")
    _draw_faithfulness(story, to)
    to.print(
        "\n[bold]Three people[/bold], each the first of their kind who bought one of the first "
        "three items later:"
    )
    for person in story["people"]:
        _draw_person(person, to)
    _draw_what_if(story["what_if"], to)
    to.print(_next(story, files), markup=False, soft_wrap=True)


def _draw_faithfulness(story: dict[str, Any], to: Console) -> None:
    share, chance = story["bought_later"], story["bought_later_by_chance"]
    found = story["faithfulness"]
    to.print(
        f"{share:.0%} of the first three items were bought later; of items at random "
        f"{chance:.1%} would have been."
    )
    if found["flip"] is not None and found["flip_user_edges"] is not None:
        to.print(
            f"Take away the facts that a reason names, and the item leaves its place in "
            f"{found['flip']:.0%} of cases; as many random facts of the user: "
            f"{found['flip_user_edges']:.0%}."
        )
    if found["recovered_rule"] is not None:
        to.print(
            f"Of test purchases with a planted cause, {found['recovered_rule']:.0%} have its rule "
            f"as their first reason."
        )


def _draw_person(person: dict[str, Any], to: Console) -> None:
    from rich.markup import escape

    to.print(
        f"\n[bold]{escape(person['name'])}[/bold] bought {escape(', '.join(person['history']))}"
    )
    for item in person["items"]:
        later = "  [green]✓ bought later[/green]" if item["bought_later"] else ""
        to.print(f"  → [bold]{escape(item['label'])}[/bold]  {item['score']:.2f}{later}")
        for reason in item["reasons"][:2]:
            cause = "  [green]← the true cause[/green]" if reason["true_cause"] else ""
            told = f"{reason['contribution']:+.2f}  because {escape(reason['sentence'])}{cause}"
            to.print(f"    {told}", soft_wrap=True)
            to.print(f"           {reason['example']}", style="dim", markup=False, soft_wrap=True)


def _draw_what_if(told: dict[str, Any], to: Console) -> None:
    from rich.markup import escape

    if not told:
        return
    label = told["labels"]
    user, removed = escape(told["user"]), escape(told["removed"])
    to.print(f"\n[bold]What if[/bold] {user} had not bought {removed}?")
    for name in told["before"]:
        place = told["after"].index(name) + 1 if name in told["after"] else None
        to.print(f"  {escape(label[name])}: " + (f"now at {place}" if place else "gone"))
    fresh = [label[name] for name in told["new"]]
    if fresh:
        to.print(f"  new: {escape(', '.join(fresh))}")


def _next(story: dict[str, Any], files: dict[str, str]) -> str:
    bundle, user = quote(files["bundle"]), quote(story["people"][0]["items"][0]["user"])
    item = quote(story["people"][0]["items"][0]["item"])
    return f"""
Report for a browser: {files["report"]}   model: {files["bundle"]}   data: {files["data"]}

Next
  loger recommend {bundle} --user {user} --explain
  loger explain {bundle} {user} {item}
  loger serve {bundle}
  loger fit FOLDER -o BUNDLE       with interactions.csv and triples.csv of your own"""
