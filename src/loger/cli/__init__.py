"""The command line: parse, call, show. Heavy imports stay inside the commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loger.cli import compare, data, demo, evaluate, fit, recommend, rules, serve, study
from loger.errors import LogerError
from loger.version import __version__

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
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
        except (LogerError, OSError) as error:
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                raise
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(MISTAKE) from None


app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's would load a Markdown parser and take twice as long
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loger {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Recommendations with true reasons, from interactions and a knowledge graph.

    Start with `loger demo`, then look at your own data with `loger data inspect FOLDER`.
    """


app.command(name="demo")(demo.demo)
app.command(name="fit")(fit.fit)
app.command(name="recommend")(recommend.recommend)
app.command(name="explain")(recommend.explain)
app.command(name="why-not")(recommend.why_not)
app.command(name="what-if")(recommend.what_if)
app.command(name="rules")(rules.rules)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="compare")(compare.compare)
app.command(name="serve")(serve.serve)
app.add_typer(study.app, name="study")
app.add_typer(data.app, name="data")


def main() -> None:
    """The entry point of the ``loger`` command."""
    app(prog_name="loger")
