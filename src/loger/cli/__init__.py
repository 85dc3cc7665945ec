"""The command line: parse, call, show. Heavy imports stay inside the commands."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loger import __version__
from loger.cli import (
    compare,
    data,
    demo,
    evaluate,
    feedback,
    fit,
    precompile,
    recommend,
    rules,
    serve,
    study,
    update,
)
from loger.cli.values import Command, ReadsHere
from loger.errors import BUSY_EXIT, BusyError, LogerError

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
MISTAKE = 2


class Guarded(ReadsHere, TyperGroup):
    """Turns what a person can fix into one line on stderr; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug every error keeps its traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.BadParameter as error:
            typer.echo(f"error: {_bad_value(error)}", err=True)
            raise typer.Exit(MISTAKE) from None
        except (LogerError, OSError) as error:
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                raise
            from loger.cli.show import say

            say(f"error: {error}", err=True)
            busy = isinstance(error, BusyError)
            raise typer.Exit(BUSY_EXIT if busy else MISTAKE) from None


_VALUES = {
    r".*greater than or equal to (\S+)|\S+ is not in the range x>=(\S+)": "must be at least {}",
    r".*less than or equal to (\S+)|\S+ is not in the range x<=(\S+)": "must be at most {}",
    r"\S+ is not in the range (\S+<=x<=\S+)": "must be in {}",
    r".*valid integer.*": "must be a whole number",
    r".*valid (?:number|float).*": "must be a number",
    r"|Missing .*": "is missing",
}
"""What older and newer versions of typer find wrong with values, and how we say it."""


def _bad_value(error: typer.BadParameter) -> str:
    """What is wrong with the value of an option or argument, and where its help is."""
    what, param = error.message.strip().rstrip("."), error.param
    name = "a value" if param is None else param.metavar or param.name or ""
    if param is not None and param.param_type_name == "option":
        name = param.opts[-1]
    said = f"{name}: {what}"
    for pattern, ours in _VALUES.items():
        if match := re.fullmatch(pattern, what):
            limit = next((group for group in match.groups() if group), "")
            said = f"{name} {ours.format(limit)}"
            break
    return f"{said}; see {error.ctx.command_path if error.ctx else 'loger'} --help"


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
    "compare": compare.compare,
    "serve": serve.serve,
    "compile": precompile.compile_kernels,
}
GROUPS = {"study": study.app, "feedback": feedback.app, "data": data.app}


def _of(names: Iterable[str], *, whole: bool = False) -> typer.Typer:
    """The command line with some of the commands, or the ``whole`` one."""
    made = _made(completion=whole)
    for name in names:
        if name in GROUPS:
            made.add_typer(GROUPS[name], name=name)
        else:
            made.command(name=name, cls=Command)(COMMANDS[name])
    return made


def _outline() -> typer.Typer:
    """The whole command line without the options of its commands: all that its help tells."""
    made = _made(completion=True)
    for name, command in COMMANDS.items():
        made.command(name=name, help=command.__doc__)(_nothing)
    for name, group in GROUPS.items():
        made.command(name=name, help=group.info.help)(_nothing)
    return made


def _nothing() -> None:
    """A command that is only named."""


def _made(*, completion: bool) -> typer.Typer:
    made = typer.Typer(
        cls=Guarded,
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: rich's would load a Markdown parser, in twice the time
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback()(root)
    return made


app = _of((*COMMANDS, *GROUPS), whole=True)


ANSWERING = ("recommend", "explain", "why-not", "what-if", "rules")
"""Commands that open a bundle, answer, and are done."""


def main() -> None:
    """The entry point of the ``loger`` command.

    Who names a command gets that one alone, and who asks what there is gets names: typer makes all
    that it knows, with all options.
    """
    named = sys.argv[1:2]
    alone = bool(named) and named[0] in COMMANDS | GROUPS
    asks = named in (["--help"], ["-h"])
    code: list[int] = []
    if alone and named[0] in ANSWERING:
        gc.set_threshold(100_000)  # what is imported and read stays, so there is little to collect
        atexit.register(_leave, code)  # before all others, so after them
    try:
        (_of(named) if alone else _outline() if asks else app)(prog_name="loger")
    except SystemExit as ended:
        code += [ended.code] if isinstance(ended.code, int) else []
        raise


def _leave(code: list[int]) -> None:
    """End a process at once, if it ends as it should: to take all objects apart, one by one, takes
    a tenth of the time of a short command, and the system frees the memory anyway."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # a pipe that nobody reads: Python says so
    if code:
        os._exit(code[0])
