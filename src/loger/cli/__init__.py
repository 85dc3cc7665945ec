"""The command line: parse, call, show. Heavy imports stay inside the commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loger import __version__
from loger.cli import (
    data,
    demo,
    evaluate,
    fit,
    precompile,
    recommend,
    rules,
    serve,
    study,
    update,
)
from loger.cli.options import INTERRUPTED
from loger.errors import BUSY_EXIT, BusyError, LogerError

MISTAKE = 2


class Guarded(TyperGroup):
    """Turns what a person can fix into one line on stderr; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug every error keeps its traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.BadParameter as error:
            where = error.ctx.command_path if error.ctx else "loger"
            said = error.format_message().rstrip(".")
            typer.echo(f"error: {said}; see {where} --help", err=True)
            raise typer.Exit(MISTAKE) from None
        except (LogerError, OSError) as error:
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                raise
            from loger.cli.show import say

            say(f"error: {error}", err=True)
            busy = isinstance(error, BusyError)
            raise typer.Exit(BUSY_EXIT if busy else MISTAKE) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loger {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Recommendations with true reasons, from interactions and a knowledge graph.

    Start with `loger demo`. From your own tables, `loger data build table` makes a data set, and
    with --fit a model; `loger recommend` and `loger serve` show its lists and their reasons.
    """
    precompile.tell()


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "fit": fit.fit,
    "update": update.update,
    "recommend": recommend.recommend,
    "explain": recommend.explain,
    "why-not": recommend.why_not,
    "what-if": recommend.what_if,
    "rules": rules.rules,
    "evaluate": evaluate.evaluate,
    "compare": evaluate.compare,
    "serve": serve.serve,
    "compile": precompile.compile_kernels,
}
GROUPS = {"study": study.app, "feedback": serve.feedback_app, "data": data.app}


def command_line(names: Iterable[str]) -> typer.Typer:
    """The command line with some of the commands."""
    made = typer.Typer(
        cls=Guarded,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: rich's would load a Markdown parser, in twice the time
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback()(root)
    for name in names:
        if name in GROUPS:
            made.add_typer(GROUPS[name], name=name)
        else:
            made.command(name=name)(COMMANDS[name])
    return made


app = command_line((*COMMANDS, *GROUPS))


ANSWERING = ("recommend", "explain", "why-not", "what-if", "rules")
"""Commands that open a bundle, answer, and are done."""


def main() -> None:
    """The entry point of the ``loger`` command.

    If a command is named, only that one is built: typer takes 0.13 s for all of them.
    """
    named = sys.argv[1:2]
    alone = bool(named) and named[0] in COMMANDS | GROUPS
    code: list[int] = []
    if named and named[0] in ANSWERING:
        gc.set_threshold(100_000)  # what is imported and read stays, so there is little to collect
        atexit.register(_leave, code)  # before all others, so it runs after them
        if not {"--help", "-h"} & set(sys.argv):
            precompile.start_numba()
    try:
        (command_line(named) if alone else app)(prog_name="loger")
    except SystemExit as ended:
        code += [ended.code] if isinstance(ended.code, int) else []
        raise


def _leave(code: list[int]) -> None:
    """End the process at once: freeing all objects one by one takes a sixth of the time of a short
    command, and the system frees the memory anyway."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # a pipe that nobody reads; Python reports it
    if code:
        os._exit(code[0])
