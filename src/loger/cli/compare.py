"""``loger compare``: several methods on one data set, measured alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, EngineName, Format, Length, PositiveFrom, Source, listed, read
from loger.errors import LogerError, UnknownNameError

if TYPE_CHECKING:
    from loger.metrics.report import Report

SOME_FAILED = 1
KNOWN = (
    "mostpop, itemknn, p3alpha, rp3beta, ease, slim, itemknn-recency, rp3beta-recency, "
    "ease-recency, slim-recency, sequence, collective, collective-recency, ials, lightgcn, sasrec, "
    "encoder, cke, ripplenet, kgat, heteroembed, pgpr, pgpr-free, cafe, loger, loger-paper"
)
"""The names of loger.evaluation.methods.METHODS, written out so that --help loads nothing heavy."""


def compare(
    path: Source,
    methods: Annotated[
        str, typer.Option(help=f"Names, separated by commas: {KNOWN}.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tables and results (compare-NAME).", show_default=False),
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
        typer.Option(
            help="Tune all methods on validation, or none. Default: those whose grid takes "
            "minutes; for the others see docs/compare.md.",
            show_default=False,
        ),
    ] = None,
    k: Length = 10,
    seed: Annotated[int, typer.Option(help="Seed for the split, the fits and samples.")] = 0,
    samples: Annotated[int, typer.Option(min=10, help="Number of bootstrap samples.")] = 1000,
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
        draw(compared.reports, folder)
    for name, error in compared.failures.items():
        show.say(f"error: {name} failed: {error} (see {folder / name}.error.txt)", err=True)
    if compared.failures:
        raise typer.Exit(SOME_FAILED)


def draw(reports: Mapping[str, Report], folder: Path) -> None:
    """Show a table for each protocol."""
    from loger.cli import show

    for protocol, report in reports.items():
        users = f"{len(report.users):,} users"
        show.say(f"{report.dataset}, {protocol} ranking, {report.part}, {users}, %")
        show.say(report.table() + "\n")
    typer.echo(f"written to {folder}")


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
