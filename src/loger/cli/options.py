"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.model import LOGER

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
Bundle = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A model that loger fit has written.")
]
Length = Annotated[int, typer.Option("-k", min=1, help="The length of lists.")]
How = Annotated[str, typer.Option("--split", help="How to hold out: auto, given, time or random.")]
TestShare = Annotated[float, typer.Option("--test", help="Share of each user's items to test on.")]
ValidationShare = Annotated[
    float, typer.Option("--validation", help="Share of the rest to learn rule weights from.")
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


def opened(bundle: Path) -> LOGER:
    """The model in a bundle."""
    from loger.cli import show

    with show.working(f"opening {bundle}"):
        from loger.model import LOGER

        return LOGER.load(bundle)


def named(model: LOGER, kind: str, text: str) -> str:
    """The name of a user or an item that was given by its name, or by a label of its own."""
    from loger.errors import LogerError, UnknownNameError

    words = model.graph_.vocabulary
    if text in words.ids(kind):
        return text
    span = words.span(kind)
    fitting = [e for e in span if words.labels[e] == text]
    if len(fitting) == 1:
        return words.names[fitting[0]]
    if fitting:
        names = ", ".join(repr(words.names[e]) for e in fitting[:5])
        raise LogerError(f"several of {kind}s are labelled {text!r}; give the name: {names}")
    known = {words.names[e] for e in span} | {words.labels[e] for e in span}
    raise UnknownNameError(kind, text, known)
