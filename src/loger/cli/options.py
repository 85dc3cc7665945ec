"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loger.data import Dataset

Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A folder in any format that loger reads, or one interactions.csv."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Format = Annotated[
    str | None,
    typer.Option(
        help="The format, where a folder fits several: saved, plain, rdf, recbole, pgpr, kgat, "
        "dbpedia or sentiment.",
        show_default=False,
    ),
]
PositiveFrom = Annotated[
    float | None,
    typer.Option(help="Keep only interactions rated at least so.", show_default=False),
]


def read(path: Path, format: str | None, positive_from: float | None) -> Dataset:
    """The data set at a path, with a sign of life while it is being read."""
    from loger.cli import show
    from loger.data import load

    with show.working(f"reading {path}"):
        # load checks the format's name itself, and says the nearest known one
        return load(path, format=format, positive_from=positive_from)  # type: ignore[arg-type]
