"""``loger rules``: which rules hold in a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, Format, PositiveFrom, Source, read

if TYPE_CHECKING:
    from loger.mining import Measure


def rules(
    path: Source,
    most: Annotated[int, typer.Option(min=1, help="Keep at most so many rules.")] = 50,
    longest: Annotated[int, typer.Option(min=1, max=3, help="The most hops of a rule.")] = 3,
    least_support: Annotated[
        int, typer.Option(min=1, help="Drop rules that reach fewer observed pairs.")
    ] = 50,
    least_lift: Annotated[
        float, typer.Option(min=0, help="Drop rules that are not so much better than chance.")
    ] = 2.0,
    seed: Annotated[int, typer.Option(help="For the split and for sampling.")] = 0,
    every: Annotated[bool, typer.Option("--all", help="Show dropped rules too, and why.")] = False,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Mine rules on the training part of a data set; best first.

    support: observed pairs that the rule reaches; precision: the share of reached pairs
    that are observed; lift: precision over that of chance.

    [dim]Examples:[/dim]
      loger rules my-shop --most 10
      loger rules my-shop --all
      loger rules my-shop --json
    """
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data import split
    from loger.mining import MiningConfig, mine

    config = MiningConfig(
        longest=longest, least_support=least_support, least_lift=least_lift, most=most, seed=seed
    )
    with show.engine(show.COMPILING) as engine:
        mined = mine(split(dataset, seed=seed).graph, config, engine)
    measures = [measured(m) for m in mined.measures]
    if json:
        show.as_json({"name": dataset.name, "summary": mined.summary(), "rules": measures})
        return
    to = show.console()
    shown = [m for m in measures if m["kept"] or every]
    if every:
        shown = [m | {"remark": m["why"]} for m in shown]
    if shown:
        to.print(show.rule_table(shown, f"Rules of {dataset.name}"))
    to.print(mined.summary(), markup=False)


def measured(measure: Measure) -> dict[str, Any]:
    """A measure as plain values; what was not measured, for want of support, is None."""
    known = measure.reached > 0
    return {
        "relations": list(measure.rule.names),
        "types": list(measure.rule.types),
        "sentence": measure.rule.sentence(),
        "support": measure.support,
        "reached": measure.reached,
        "precision": measure.precision if known else None,
        "lift": measure.lift if known else None,
        "score": measure.score,
        "kept": measure.kept,
        "why": measure.why,
    }
