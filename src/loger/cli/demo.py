"""``loger demo``: everything that exists so far, on a small invented shop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import Console

NEXT = """\
[bold]Next[/bold]
  loger data inspect FOLDER         what is in data of your own (interactions.csv, triples.csv)
  loger rules FOLDER                which rules hold there
  loger data convert FOLDER OUT     the same data as Parquet, which loads in seconds
  loger --help                      all commands"""


def demo(
    seed: Annotated[int, typer.Option(help="Another seed invents another shop.")] = 0,
    json: AsJson = False,
) -> None:
    """Show the library at work on a small invented shop whose true rules are known.

    Invents the shop, splits its purchases by time, mines rules on the earlier ones, and shows
    for three people what the rules reach, by which paths, and what was really bought later.

    [dim]Examples:[/dim]
      loger demo
      loger demo --seed 7 --json
    """
    from loger.cli import show
    from loger.cli.story import tell
    from loger.data.demo import shop

    with show.working("inventing a shop"):
        made = shop(seed)
    with show.engine(show.COMPILING) as engine:
        story = tell(made, engine)
    if json:
        show.as_json(story)
    else:
        _draw(story, show.console())


def _draw(story: dict[str, Any], to: Console) -> None:
    from loger.cli import show
    from loger.cli.data import draw

    draw(story["statistics"], to)
    parts = ", ".join(f"{n:,} {part}" for part, n in story["split"].items())
    to.print(
        f"\n[bold]Split[/bold] by time, each user's latest purchases held out: {parts}.\n"
        "What follows knows the train part only: not the later purchases, nor their reviews."
    )
    to.print(show.rule_table(story["rules"], "\nRules, mined"))
    to.print(story["summary"], markup=False)
    to.print("planted: people in this shop really buy by this rule; loger was not told.")
    to.print(
        "\n[bold]Three people[/bold], each the first of their kind who bought one of the first "
        "three items later:"
    )
    for person in story["people"]:
        _draw_person(person, to)
    share, chance = story["bought_later"], story["bought_later_by_chance"]
    to.print(
        f"\nOver all {story['statistics']['users']:,} users, {share:.0%} of the first three items "
        f"were bought later; {chance:.1%} of items at random would have been.\n"
        "Nothing is learned yet: items are in the order of rule precision × path strength.\n"
    )
    to.print(NEXT)


def _draw_person(person: dict[str, Any], to: Console) -> None:
    from rich.markup import escape

    to.print(
        f"\n[bold]{escape(person['name'])}[/bold] bought {escape(', '.join(person['history']))}"
    )
    for item in person["items"]:
        later = "  [green]✓ bought later[/green]" if item["bought_later"] else ""
        to.print(f"  → [bold]{escape(item['label'])}[/bold]{later}")
        for reason in item["reasons"]:
            n, cause = reason["paths"], reason["true_cause"]
            to.print(
                f"    {n} path{'s' if n > 1 else ''}: {escape(reason['sentence'])}"
                + ("  [green]← the true cause[/green]" if cause else "")
            )
            to.print(f"      {reason['example']}", style="dim", markup=False, soft_wrap=True)
