"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.model import LOGER


def setting(help: str, *names: str, **more: Any) -> Any:
    """An option without a default to show: either it has none, or its help says it."""
    return typer.Option(*names, help=help, show_default=False, **more)


Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A folder in any format that loger reads, or one interactions.csv."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Format = Annotated[
    str | None,
    setting(
        "The format, if a folder fits several: saved, plain, rdf, recbole, pgpr, kgat, "
        "dbpedia or sentiment."
    ),
]
Bundle = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A folder with a model that loger fit wrote.")
]
Language = Annotated[
    str | None,
    setting("Language of the reasons: en, de or es."),
]
WordingFile = Annotated[
    Path | None,
    setting("A TOML file of your own words.", "--wording", metavar="FILE"),
]
Length = Annotated[int, typer.Option("-k", min=1, help="How many items a list has.")]
How = Annotated[
    str, typer.Option("--split", help="How to hold out items: auto, given, time or random.")
]
TestShare = Annotated[
    float, typer.Option("--test", help="Share of each user's items to hold out for testing.")
]
ValidationShare = Annotated[
    float, typer.Option("--validation", help="Share of the rest to learn rule weights from.")
]
PositiveFrom = Annotated[
    float | None,
    setting("Keep only interactions with at least this rating."),
]

Samples = Annotated[int, typer.Option(min=10, help="Number of bootstrap samples.")]
Host = Annotated[
    str, typer.Option(help="The address to listen at; 0.0.0.0 lets other machines in.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where the work runs: threads[=N], processes[=N], ray or ray=ADDRESS.",
    ),
]
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def listed(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",")]


def read(path: Path, format: str | None, positive_from: float | None) -> Dataset:
    """The data set at a path, with a sign of life while it is being read."""
    from loger.cli import show
    from loger.data import load

    with show.working(f"reading {path}"):
        # load checks the format's name itself, and suggests the nearest one
        return load(path, format=format, positive_from=positive_from)  # type: ignore[arg-type]


def opened(bundle: Path, engine: str = "threads") -> LOGER:
    """The model in a bundle, working on an engine."""
    from loger.engine.files import begin_checksums

    begin_checksums(bundle)  # while the modules below are imported
    from loger.cli import show
    from loger.engine import engine_named

    works_on = engine_named(engine)  # an unknown one is refused before anything is read
    with show.working(f"opening {bundle}"):
        from loger.model import LOGER

        return LOGER.load(bundle, works_on)


def named(model: LOGER, kind: str, text: str, among: Container[int] | None = None) -> str:
    """The name of a user or an item that was given by its name, or by a label that only it has, of
    all or of those ``among`` which it is looked for first."""
    words = model.graph_.vocabulary
    return str(words.names[words.id(kind, text, among)])


# ── under torchrun ──────────────────────────────────────────────────────────────────────


def on_ranks(command: Callable[..., None]) -> Callable[..., None]:
    """The command, run by the leading one of the ranks that torchrun started, if it did."""

    @wraps(command)
    def run(*arguments: object, **options: object) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in os.environ:
            command(*arguments, **options)
            return
        from loger.encoder.distributed import joined

        with joined(int(os.environ.get("LOCAL_RANK", "0"))) as ranks:
            if ranks.leads:
                command(*arguments, **options)
                typer.echo(ranks.summary(), err=True)
            else:
                ranks.help()

    return run
