"""``loger compare``: several methods on one data set, judged alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loger.cli.options import AsJson, Format, PositiveFrom, Source, read
from loger.errors import LogerError

SOME_FAILED = 1
KNOWN = (
    "mostpop, itemknn, p3alpha, rp3beta, ease, itemknn-recency, rp3beta-recency, ease-recency, "
    "sequence, collective, collective-recency, ials, lightgcn, sasrec, encoder, cke, ripplenet, "
    "kgat, heteroembed, pgpr, loger, loger-paper"
)
"""The names of loger.evaluation.methods.METHODS, written out so that --help loads nothing heavy."""


def compare(
    path: Source,
    methods: Annotated[
        str, typer.Option(help=f"Names with commas between; of {KNOWN}.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for tables and results; default: compare-NAME.", show_default=False
        ),
    ] = None,
    part: Annotated[str, typer.Option(help="What to evaluate on: test or validation.")] = "test",
    protocol: Annotated[
        list[str], typer.Option(help="full or sampled-100; may stand more than once.")
    ] = ["full"],  # noqa: B006
    set_: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="METHOD.NAME=VALUE", help="A setting, which is then not tuned."
        ),
    ] = [],  # noqa: B006
    tune: Annotated[
        bool | None,
        typer.Option(
            help="Tune all methods on validation, or none. Default: those whose grid takes "
            "minutes. docs/compare.md says where the defaults of the others come from.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="The length of lists.")] = 10,
    seed: Annotated[int, typer.Option(help="For the split and for all that is drawn.")] = 0,
    samples: Annotated[int, typer.Option(min=10, help="Bootstrap samples.")] = 1000,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Fit methods, evaluate them on the same users and candidates, and put them in one table.

    Means in percent with 95 % intervals over users; p is that of the paired difference from the
    best. What is done is kept: a command that was interrupted, or gets a further method, runs
    only what is missing. A method that fails is named, and does not stop the others.

    \b
    Examples:
      loger compare my-shop --methods mostpop,ease,pgpr
      loger compare my-shop --methods pgpr,ials --set pgpr.epochs=3 --protocol sampled-100
    """
    settings = method_settings(set_)
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data import split
    from loger.evaluation.compare import compare as run

    folder = out or Path(f"compare-{dataset.name.replace(' ', '-')}")
    with show.engine("preparing") as engine:
        compared = run(
            split(dataset, seed=seed),
            [name.strip() for name in methods.split(",")],
            folder,
            part=part,  # type: ignore[arg-type]
            protocols=protocol,  # type: ignore[arg-type]
            settings=settings,
            tune=tune,
            k=k,
            seed=seed,
            samples=samples,
            progress=engine.progress,
        )
    if json:
        from json import loads

        reports = {name: loads(report.to_json()) for name, report in compared.reports.items()}
        show.as_json({"failures": dict(compared.failures), "reports": reports})
    else:
        for name, report in compared.reports.items():
            typer.echo(f"{dataset.name}, {name} ranking, {part}, {len(report.users):,} users, %")
            typer.echo(report.table() + "\n")
        typer.echo(f"written to {folder}")
    for name, error in compared.failures.items():
        typer.echo(f"error: {name} failed: {error} (see {folder / name}.error.txt)", err=True)
    if compared.failures:
        raise typer.Exit(SOME_FAILED)


def method_settings(texts: list[str]) -> dict[str, dict[str, Any]]:
    """METHOD.NAME=VALUE as {method: {name: value}}, values as in every other command."""
    from loger.settings import parsed

    form = "METHOD.NAME=VALUE, such as ease.l2=30"
    by_method = parsed(texts, form)
    for method, values in by_method.items():
        if not isinstance(values, dict):
            raise LogerError(f"a setting is written {form}, got {method}={values}")
    return by_method
