"""``loger evaluate``: how good a model is on what it has not seen, and how faithful."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loger.cli.compare import check_methods
from loger.cli.options import (
    AsJson,
    Bundle,
    EngineName,
    Format,
    Length,
    PositiveFrom,
    Source,
    listed,
    opened,
    read,
)

if TYPE_CHECKING:
    from loger.data import Split
    from loger.evaluation.assess import Assessment
    from loger.evaluation.fit_record import FitRecord
    from loger.model import LOGER

CONTROLS = "mostpop,itemknn,ease"


def evaluate(
    bundle: Bundle,
    path: Source,
    report: Annotated[
        Path | None,
        typer.Option(metavar="HTML", help="Write a report to this file.", show_default=False),
    ] = None,
    against: Annotated[
        str,
        typer.Option(help="Methods of loger compare to put beside it, with commas; or none."),
    ] = CONTROLS,
    faithful: Annotated[
        bool | None,
        typer.Option(
            "--faithfulness/--no-faithfulness",
            help="Measure how faithful reasons are. Default: only with --report.",
            show_default=False,
        ),
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Users to measure faithfulness on.")] = 50,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help="Refit with at most 0, 10, …, 50 hidden pairs per user, and plot the accuracy.",
        ),
    ] = False,
    protocol: Annotated[str, typer.Option(help="full or sampled-100.")] = "full",
    k: Length = 10,
    seed: Annotated[int, typer.Option(help="Seed for intervals and samples.")] = 0,
    samples: Annotated[int, typer.Option(min=10, help="Number of bootstrap samples.")] = 1000,
    engine: EngineName = "threads",
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Evaluate a model on the test part of its data.

    The split is that of loger fit; other data, or another split, are refused. The methods beside
    it have their default settings; loger compare tunes them.

    \b
    Examples:
      loger evaluate my-shop.bundle my-shop
      loger evaluate my-shop.bundle my-shop --report my-shop.html
      loger evaluate my-shop.bundle my-shop --against ease,pgpr --json
    """
    names = [] if against == "none" else listed(against)
    check_methods(names)
    model = opened(bundle, engine)
    split, record = held_out(model, bundle, path, format, positive_from)
    from loger.cli import show
    from loger.evaluation.assess import assess

    faithful = report is not None if faithful is None else faithful
    with show.engine("preparing", model.engine) as works_on:
        assessment = assess(
            model,
            split,
            names,
            faithful_users=users if faithful else None,
            ablation=ablation,
            k=k,
            protocol=protocol,  # type: ignore[arg-type]
            seed=seed,
            samples=samples,
            engine=works_on,
            progress=works_on.progress,
        )
        if report is not None:
            command = "loger " + " ".join(sys.argv[1:])
            assessment.write(report, tried=record.tried, command=command)
    if json:
        show.as_json(assessment.as_dict() | {"report": None if report is None else str(report)})
    else:
        draw(assessment, report)


def held_out(
    model: LOGER, bundle: Path, path: Path, format: str | None, positive_from: float | None
) -> tuple[Split, FitRecord]:
    """The split that a bundle was fitted on, from its data, and the record of that fit."""
    from loger.evaluation.fit_record import FitRecord

    record = FitRecord.read(bundle)
    dataset = read(path, format or record.format, positive_from or record.positive_from)
    return record.split_of(dataset, model, bundle), record


def draw(assessment: Assessment, report_file: Path | None) -> None:
    """Show what was measured."""
    from loger.cli import show

    report = assessment.report
    users = f"{len(report.users):,} users"
    show.say(f"{report.dataset}, {report.protocol} ranking, {report.part}, {users}, %")
    show.say(report.table())
    if assessment.untuned:
        show.say(f"not tuned, with default settings: {', '.join(assessment.untuned)}")
    for measured in assessment.faithfulness[:1]:
        show.say("\n" + measured.table())
    if report_file is not None:
        typer.echo(f"\nreport in {report_file}")
