"""``loger demo``: the whole story, on a small invented shop."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from loger.cli import data as data_commands
from loger.cli import options, show
from loger.cli import serve as serving
from loger.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

FILES = {"data": "data", "bundle": "bundle", "report": "report.html"}


@click.command()
@options.out(
    "FOLDER", "Folder for the data, bundle and report.", required=False, default="loger-demo"
)
@click.option("--seed", type=int, default=0, help="Random seed of the shop.")
@click.option("--serve", is_flag=True, help="Then serve the web app.")
@options.verbose
@options.json
@click.pass_context
def demo(ctx: click.Context, out: Path, seed: int, serve: bool, verbose: bool) -> None:
    """Show loger at work on a small invented shop.

    We know why people buy in this shop. The demo fits a model to the earlier purchases, evaluates
    it on the later ones next to five baselines, and shows what one customer is recommended and why.
    The bundle that it saves has then learned from the later purchases too.

    \b
    Examples:
      loger demo
      loger demo --verbose
      loger demo --seed 7 --json
      loger demo --serve
    """
    there = {p.name for p in out.iterdir()} if out.is_dir() else set()
    # A name that begins with a dot is what a killed demo left; writing again clears it.
    if out.is_file() or {name for name in there if name[0] != "."} - set(FILES.values()):
        raise DataError("is not empty", path=out, remedy="give another folder with --out")
    if serve:
        from loger.web.config import check_installed

        check_installed()
    from loger.data import split
    from loger.data.demo import shop
    from loger.evaluation.assess import tell
    from loger.evaluation.evaluate import FitRecord
    from loger.model import LOGER

    data, bundle, report = (out / name for name in FILES.values())
    with show.working("inventing a shop"):
        made = shop(seed)
        parts = split(made.dataset, "time")
    with show.engine() as engine:
        model = LOGER().fit(parts, progress=engine.progress)
        story = tell(made, parts, model, engine)
        ready = LOGER().fit(parts, hold_out=False, warm_from=model, progress=engine.progress)
    made.dataset.save(data)
    how = FitRecord(str(data), name=made.dataset.name, split={"how": "time"}, tried=model.tried_)
    ready.save(bundle, record=asdict(replace(how, hold_out=False)))
    story.assessment.write(report, tried=model.tried_, command=f"loger demo --seed {seed}")
    files = {name: str(out / file) for name, file in FILES.items()}
    show.result(story.content | {"files": files}, draw)
    if serve:
        ctx.invoke(serving.serve, bundles=(bundle,))


def draw(story: dict[str, Any]) -> None:
    """Show the whole story: the shop, people and reasons, then rules and how good it all is."""
    to = show.console()
    to.print("[bold]An invented shop[/bold]: people buy by rules that we know; loger was not told.")
    data_commands.draw(story["statistics"])
    parts = ", ".join(f"{n:,} {part}" for part, n in story["split"].items())
    to.print(
        f"\n[bold]Split[/bold] by time, each user's latest purchases held out: {parts}.\n"
        "All that follows is of a model that never saw the test part; the one that is written for "
        "use has then learned from it too."
    )
    to.print(
        "\n[bold]Three people[/bold], each the first of their kind who later bought one of their "
        "first three items:"
    )
    for person in story["people"]:
        _draw_person(person, to)
    _draw_what_if(story["what_if"], to)
    _draw_rules(story, to)
    _draw_controls(story, to)
    _draw_faithfulness(story, to)
    to.print(_next(story, story["files"]), markup=False, soft_wrap=True)


def _draw_rules(story: dict[str, Any], to: Console) -> None:
    rows = [(f"{r['weight']:.2f}", r["sentence"], r["remark"]) for r in story["rules"]]
    to.print(show.table(["weight", "rule", ""], rows[:8], "\nStrongest rules"))
    to.print("planted: people in this shop really buy by this rule.")


def _draw_controls(story: dict[str, Any], to: Console) -> None:
    rows = [
        (name, f"{100 * mean:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")
        for name, (mean, low, high) in story["models"].items()
    ]
    to.print("\n[bold]Against five controls[/bold], on what was bought later (the test part)")
    to.print(show.table(["", "NDCG@10 %", "95 % interval"], rows))
    to.print("Collective EASE^R knows the facts, sequence rules the order of purchases.")
    to.print("The controls have their default settings; loger compare tunes them.")


def _draw_faithfulness(story: dict[str, Any], to: Console) -> None:
    share, chance = story["bought_later"], story["bought_later_by_chance"]
    measured = story["faithfulness"]
    to.print(
        f"{share:.0%} of the first three items were bought later; of items at random "
        f"{chance:.1%} would have been."
    )
    if measured["flip"] is not None and measured["flip_user_edges"] is not None:
        to.print(
            f"Without the facts of its first reason, an item leaves the list in "
            f"{measured['flip']:.0%} of cases; without as many random facts of the user, in "
            f"{measured['flip_user_edges']:.0%}."
        )
    if measured["recovered_rule"] is not None:
        to.print(
            f"For {measured['recovered_rule']:.0%} of the test purchases with a planted cause, the "
            f"first reason is of the rule that caused them."
        )


def _draw_person(person: dict[str, Any], to: Console) -> None:
    from rich.markup import escape

    from loger.explain.render import carried_text

    to.print(
        f"\n[bold]{escape(person['name'])}[/bold] bought {escape(', '.join(person['history']))}"
    )
    for item in person["items"]:
        later = "  [green]✓ bought later[/green]" if item["bought_later"] else ""
        lead = f"{item['lead']:+.2f} compared with the average item"
        to.print(f"  → [bold]{escape(item['label'])}[/bold]  {lead}{later}")
        for reason in item["reasons"]:
            _draw_reason(reason, to)
        to.print(f"           {carried_text(item)}", style="dim", markup=False, soft_wrap=True)


def _draw_reason(reason: dict[str, Any], to: Console) -> None:
    """One reason, its evidence, and the path of the true cause or else the strongest one."""
    from rich.markup import escape

    cause = "  [green]← the true cause[/green]"
    told = [escape(one["text"]) + (cause if one["true_cause"] else "") for one in reason["told"]]
    head = f"{reason['total']:+.2f}  because {escape(reason['action'])} ({reason['share']:.0%})"
    to.print(f"    {head}" + (f": {'; '.join(told)}" if told else ""), soft_wrap=True)
    drawn = sorted(reason["told"], key=lambda one: not one["true_cause"])
    example = next((one["example"] for one in drawn if one["example"]), "")
    if example:
        to.print(f"           {example}", style="dim", markup=False, soft_wrap=True)


def _draw_what_if(answer: dict[str, Any], to: Console) -> None:
    from rich.markup import escape

    if not answer:
        return
    label = answer["labels"]
    user, removed = escape(answer["user"]), escape(answer["removed"])
    to.print(f"\n[bold]What if[/bold] {user} had not bought {removed}?")
    for name in answer["before"]:
        place = answer["after"].index(name) + 1 if name in answer["after"] else None
        to.print(f"  {escape(label[name])}: " + (f"now at {place}" if place else "gone"))
    fresh = [label[name] for name in answer["new"]]
    if fresh:
        to.print(f"  new: {escape(', '.join(fresh))}")


def _next(story: dict[str, Any], files: dict[str, str]) -> str:
    bundle, items = quote(files["bundle"]), story["people"][0]["items"]
    # What was bought later the model knows by now, and does not recommend.
    told = next((item for item in items if not item["bought_later"]), items[0])
    user, item = quote(told["user"]), quote(told["item"])
    return f"""
Report for a browser: {files["report"]}   model: {files["bundle"]}   data: {files["data"]}

Next (this model knows what people bought later, marked ✓ above, so its lists differ)
  loger recommend {bundle} {user} --explain
  loger explain {bundle} {user} {item}
  loger serve {bundle}

Your own tables (orders, items and, if you have it, users), and a model of them
  loger data build table --interactions ORDERS.csv --items ITEMS.csv --out FOLDER --fit BUNDLE"""
