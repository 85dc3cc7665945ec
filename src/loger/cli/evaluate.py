"""How good models are: ``loger evaluate`` for one that is fitted, ``loger compare`` for several
methods on one data set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import (
    AsJson,
    Bundle,
    EngineName,
    Format,
    Length,
    PositiveFrom,
    Samples,
    Source,
    listed,
    opened,
    read,
    setting,
)
from loger.errors import LogerError, UnknownNameError

if TYPE_CHECKING:
    from loger.data import Split
    from loger.evaluation.assess import Assessment
    from loger.evaluation.evaluate import FitRecord
    from loger.metrics.report import Report
    from loger.model import LOGER

CONTROLS = "mostpop,itemknn,ease"
SOME_FAILED = 1
KNOWN = (
    "mostpop, itemknn, p3alpha, rp3beta, ease, slim, itemknn-recency, rp3beta-recency, "
    "ease-recency, slim-recency, sequence, collective, collective-recency, ials, lightgcn, sasrec, "
    "encoder, cke, ripplenet, kgat, heteroembed, pgpr, pgpr-free, cafe, loger, loger-paper, "
    "paper-literal"
)
"""The names of loger.evaluation.methods.METHODS, written out so that --help loads nothing heavy."""


def evaluate(
    bundle: Bundle,
    path: Source,
    report: Annotated[
        Path | None,
        setting("Write a report to this file.", metavar="HTML"),
    ] = None,
    against: Annotated[
        str,
        typer.Option(help="Methods of loger compare to put beside it, with commas; or none."),
    ] = CONTROLS,
    faithful: Annotated[
        bool | None,
        setting(
            "Measure how faithful reasons are. Default: only with --report.",
            "--faithfulness/--no-faithfulness",
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
    samples: Samples = 1000,
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
    from loger.evaluation.evaluate import FitRecord

    record = FitRecord.read(bundle)
    dataset = read(path, format or record.format, positive_from or record.positive_from)
    return record.split_of(dataset, model, bundle), record


def draw(assessment: Assessment, report_file: Path | None) -> None:
    """Show what was measured."""
    from loger.cli import show

    draw_report(assessment.report, assessment.report.protocol)
    if assessment.untuned:
        show.say(f"not tuned, with default settings: {', '.join(assessment.untuned)}")
    for measured in assessment.faithfulness[:1]:
        show.say("\n" + measured.table())
    if report_file is not None:
        typer.echo(f"\nreport in {report_file}")


def draw_report(report: Report, protocol: str) -> None:
    """Show the table of a report under a line that says what was measured."""
    from loger.cli import show

    users = f"{len(report.users):,} users"
    show.say(f"{report.dataset}, {protocol} ranking, {report.part}, {users}, %")
    show.say(report.table())


# ── loger compare ───────────────────────────────────────────────────────────────────────


def compare(
    path: Source,
    methods: Annotated[str, setting(f"Names, separated by commas: {KNOWN}.")],
    out: Annotated[
        Path | None,
        setting("Folder for tables and results (compare-NAME)."),
    ] = None,
    part: Annotated[str, typer.Option(help="What to evaluate on: test or validation.")] = "test",
    protocol: Annotated[
        list[str], typer.Option(help="How to rank: full or sampled-100; may be repeated.")
    ] = ["full"],  # noqa: B006
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="METHOD.NAME=VALUE", help="A setting; it is not tuned then."),
    ] = [],  # noqa: B006
    tune: Annotated[
        bool | None,
        setting(
            "Tune all methods on validation, or none. Default: those whose grid takes "
            "minutes; for the others see docs/how-to/evaluate.md."
        ),
    ] = None,
    k: Length = 10,
    seed: Annotated[int, typer.Option(help="Seed for the split, the fits and samples.")] = 0,
    samples: Samples = 1000,
    engine: EngineName = "threads",
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Fit several methods and compare them in one table.

    All are evaluated on the same users and candidates. Means are in percent, with 95 % intervals
    over users; p is that of the paired difference from the best. Results are kept: the same
    command, resumed or with one more method, runs only what is missing. A method that fails is
    named and does not stop the others.

    \b
    Examples:
      loger compare my-shop --methods mostpop,ease,pgpr
      loger compare my-shop --methods pgpr,ials --set pgpr.epochs=3 --protocol sampled-100
    """
    from loger.engine import engine_named

    settings, on = method_settings(set_), engine_named(engine)
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data import split
    from loger.evaluation.compare import compare as run

    folder = out or Path(f"compare-{dataset.name.replace(' ', '-')}")
    with show.engine("preparing", on) as works_on:
        compared = run(
            split(dataset, seed=seed),
            listed(methods),
            folder,
            part=part,  # type: ignore[arg-type]
            protocols=protocol,  # type: ignore[arg-type]
            settings=settings,
            tune=tune,
            k=k,
            seed=seed,
            samples=samples,
            engine=works_on,
            progress=works_on.progress,
        )
    if json:
        from json import loads

        reports = {name: loads(report.to_json()) for name, report in compared.reports.items()}
        show.as_json({"failures": dict(compared.failures), "reports": reports})
    else:
        for ranking, report in compared.reports.items():
            draw_report(report, ranking)
            typer.echo()
        typer.echo(f"written to {folder}")
    for name, error in compared.failures.items():
        show.say(f"error: {name} failed: {error} (see {folder / name}.error.txt)", err=True)
    if compared.failures:
        raise typer.Exit(SOME_FAILED)


def check_methods(names: Sequence[str]) -> None:
    """Refuse unknown methods before any work."""
    for name in names:
        if name not in KNOWN.split(", "):
            raise UnknownNameError("method", name, KNOWN.split(", "))


def method_settings(texts: list[str]) -> dict[str, dict[str, Any]]:
    """METHOD.NAME=VALUE as {method: {name: value}}, values as in every other command."""
    from loger.engine.settings import parsed

    form = "METHOD.NAME=VALUE, such as ease.l2=30"
    by_method = parsed(texts, form)
    for method, values in by_method.items():
        if not isinstance(values, dict):
            raise LogerError(f"a setting is written {form}, got {method}={values}")
    return by_method
