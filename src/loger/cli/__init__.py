"""The command line: parse, call the library, show. Heavy imports stay inside the commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Any

import click

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
    show,
    study,
    update,
)
from loger.cli.options import INTERRUPTED
from loger.errors import BUSY_EXIT, BusyError, LogerError, nearest

MISTAKE = 2
TASKS: dict[str, tuple[click.Command, ...]] = {
    "Start": (demo.demo, data.data, fit.fit),
    "Use": (
        recommend.recommend,
        recommend.similar,
        recommend.explain,
        recommend.why_not,
        recommend.counterfactual,
        recommend.what_if,
        rules.rules,
    ),
    "Operate": (serve.serve, update.update, serve.feedback),
    "Research": (evaluate.evaluate, evaluate.compare, evaluate.reproduce, study.study),
}
"""The commands that ``loger --help`` lists, by what people use them for."""


class CommandLine(click.Group):
    """Lists commands by task, and turns errors that a person can fix into one line on stderr."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each task."""
        for task, commands in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(c.name or "", c.get_short_help_str(70)) for c in commands])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, or suggest the nearest one."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            near = nearest(args[0], self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with --debug, errors keep their traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "loger"
            message = error.format_message().rstrip(".").replace("\n", " ")
            show.say(f"error: {message}; see {where} --help", err=True)
            raise click.exceptions.Exit(MISTAKE) from None
        except (LogerError, OSError) as error:
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                raise
            show.say(f"error: {error}", err=True)
            busy = isinstance(error, BusyError)
            raise click.exceptions.Exit(BUSY_EXIT if busy else MISTAKE) from None


@click.group(
    "loger",
    cls=CommandLine,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, message="loger %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback if something fails.")
@click.option(
    "--engine",
    metavar="NAME",
    help="Where to run the computation: threads[=N], processes[=N], ray or ray=ADDRESS.  "
    "[default: threads; processes for many explanations]",
)
def app(debug: bool, engine: str | None) -> None:
    """Recommendations that come with the reasons behind them.

    Start with `loger demo`. To use your own tables, run `loger data build table` with --fit. Then
    ask for recommendations with `loger recommend`, or serve them with `loger serve`.
    """
    precompile.announce()


for _commands in TASKS.values():
    for _command in _commands:
        app.add_command(_command)
app.add_command(precompile.compile_kernels)


ANSWERING = ("recommend", "similar", "explain", "why-not", "counterfactual", "what-if", "rules")
"""Commands that open a bundle, answer and end."""


def main() -> None:
    """The entry point of the ``loger`` command."""
    code: list[int] = []
    if sys.argv[1:2] and sys.argv[1] in ANSWERING:
        gc.set_threshold(100_000)  # imports and the bundle stay, so there is little to collect
        atexit.register(_leave, code)  # registered first, so it runs last
        if not {"--help", "-h"} & set(sys.argv):
            precompile.start_numba()
    try:
        app(prog_name="loger")
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
