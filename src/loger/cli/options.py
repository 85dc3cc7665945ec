"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from loger.cli import show
from loger.errors import DataError

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.model import LOGER

INTERRUPTED = 130  # 128 + SIGINT, as in shells
PATH: Any = click.Path(path_type=Path)

source = click.argument("path", type=PATH)
bundle = click.argument("bundle", type=PATH)
user = click.argument("user")
item = click.argument("item")

FORMATS = ("saved", "plain", "rdf", "recbole", "pgpr", "kgat", "dbpedia", "sentiment")
format_ = click.option(
    "--format", type=click.Choice(FORMATS), help="Format of PATH, if it's ambiguous."
)
min_rating = click.option(
    "--min-rating", type=float, metavar="RATING", help="Count interactions rated lower as dislikes."
)
JSON = click.Option(
    ["--json"],
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, wanted: ctx.meta.update({show.JSON: wanted}),
    help="Print JSON.",
)


class Command(click.Command):
    """A command that can print its result as JSON."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """List the command's own parameters, then --json and --help."""
        *own, help_option = super().get_params(ctx)
        return [*own, JSON, help_option]


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def command(name: str | None = None) -> Callable[..., click.Command]:
    """Turn a function into a command that can print JSON."""
    return click.command(name, cls=Command)


def _language(_: object, __: object, text: str | None) -> tuple[str | None, str | None]:
    """A language and a file of wording, from LANGUAGE, FILE.toml or LANGUAGE=FILE.toml."""
    name, _, file = (text or "").rpartition("=")
    return (name or None, file) if file.endswith(".toml") else (text, None)


language = click.option(
    "--language",
    metavar="NAME",
    callback=_language,
    help="Language of the reasons: en, de or es. For your own wording, a TOML file: words.toml or "
    "de=words.toml.  [default: en]",
)
style = click.option(
    "--style",
    type=click.Choice(["tile", "sentence", "debug"]),
    default="sentence",
    help="Length of the reasons: a few words, a sentence, or all details.",
)
seed = click.option("--seed", type=int, default=0, metavar="N", help="Random seed.")
test = click.option(
    "--test",
    type=float,
    default=0.2,
    metavar="SHARE",
    help="Share of each user's interactions to hold out for testing.",
)
split = click.option(
    "--split",
    "how",
    type=click.Choice(["auto", "given", "time", "random"]),
    default="auto",
    help="How to choose held-out interactions.",
)
protocol = click.Choice(["full", "sampled-100"])
host = click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Address to listen on; 0.0.0.0 for all networks.",
)
encoder = click.option(
    "--encoder",
    default="transe",
    metavar="NAME",
    help="The encoder: transe, gnn, or a PyKEEN model such as kge:RotatE.",
)
verbose = click.option("-v", "--verbose", is_flag=True, help="Show all details.")


def several(*names: str, metavar: str, help: str, **more: Any) -> Callable[..., Any]:
    """An option that can be given several times."""
    return click.option(*names, multiple=True, metavar=metavar, help=f"{help}; repeatable.", **more)


def settings(help: str, metavar: str = "NAME=VALUE") -> Callable[..., Any]:
    """The option for settings that have no option of their own."""
    return several("--set", "set_", metavar=metavar, help=help)


def number(name: str, default: int, help: str, least: int = 1) -> Callable[..., Any]:
    """An option for a whole number."""
    return click.option(name, type=click.IntRange(least), default=default, metavar="N", help=help)


def file(name: str, help: str, metavar: str = "FILE", **more: Any) -> Callable[..., Any]:
    """An option for a file or folder to read."""
    return click.option(name, type=PATH, metavar=metavar, help=help, **more)


def port(default: int) -> Callable[..., Any]:
    """The option for a server's port."""
    more: dict[str, Any] = {"type": click.IntRange(0, 65535), "metavar": "N", "default": default}
    return click.option("--port", help="Port to listen on; 0 picks a free one.", **more)


paths = number("--paths", 0, "Also show the N strongest paths.", least=0)
length = number("-k", 10, "Number of recommendations.")


def out(metavar: str, help: str = "Folder to write.", **more: Any) -> Callable[..., Any]:
    """The option for a command's output, required unless ``more`` says otherwise."""
    return new_file("-o", "--out", **{"required": True, "metavar": metavar, "help": help} | more)


def new_file(*names: str, **more: Any) -> Callable[..., Any]:
    """An option for an output; loger checks that it can be written before any work starts."""
    return click.option(*names, type=PATH, callback=_writable, **more)


def _writable(ctx: object, param: object, path: Path | None) -> Path | None:
    if path is not None:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = f"can't write here ({error.strerror})"
            raise DataError(reason, path=path, remedy="choose another path") from None
    return path


def force(metavar: str) -> Callable[..., Any]:
    """The option to replace an existing output."""
    return click.option("--force", is_flag=True, help=f"Replace {metavar} if it exists.")


def vectors(of: str) -> Callable[..., Any]:
    """The option for tables of vectors, each under the name of a relation."""
    text = f"Embeddings of {of}, such as looks_like=pictures.parquet"
    return several("--vectors", metavar="NAME=FILE", help=text, callback=_by_name)


def _by_name(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    named = {name: file for name, _, file in (text.partition("=") for text in given)}
    for name, file in named.items():
        if not name or not Path(file).is_file():
            raise click.BadParameter(
                f"expected RELATION=FILE with an existing file, got {name}={file}"
            )
    return named


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",")]


def read(path: Path, format: str | None, min_rating: float | None) -> Dataset:
    """The data set at a path."""
    with show.working(f"reading {path}"):
        from loger.data import load

        return load(path, format=format, min_rating=min_rating)  # type: ignore[arg-type]


def opened(bundle: Path) -> LOGER:
    """The model in a bundle, on the engine that --engine names."""
    from loger.engine.files import begin_checksums

    begin_checksums(bundle)  # in the background, during the imports below
    works_on = show.engine_named()  # refuses unknown names before it reads anything
    with show.working(f"opening {bundle}"):
        from loger.model import LOGER

        return LOGER.load(bundle, works_on)


def named(model: LOGER, kind: str, text: str, among: Container[int] | None = None) -> str:
    """The name of a user or item, given its name or a label that only it has.

    Entities ``among`` are searched first.
    """
    words = model.graph_.vocabulary
    return str(words.names[words.id(kind, text, among)])


def on_ranks(command: Callable[..., None]) -> Callable[..., None]:
    """Under torchrun, run the command on the leading rank, with the other ranks' help."""

    @wraps(command)
    def run(*arguments: object, **options: object) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in os.environ:
            command(*arguments, **options)
            return
        from loger.encoder.distributed import joined

        with joined(int(os.environ.get("LOCAL_RANK", "0"))) as ranks:
            if ranks.leads:
                command(*arguments, **options)
                click.echo(ranks.summary(), err=True)
            else:
                ranks.help()

    return run
