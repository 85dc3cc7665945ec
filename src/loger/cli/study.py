"""``loger study``: people rank the reasons of several methods without knowing which is which."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from loger.cli import options, show
from loger.errors import LogerError

KNOWN = "random, heteroembed, kgat, pgpr, loger-paper"
"""The names of loger.study.tasks.EXPLAINING, written out to keep --help fast."""
TITLE = "Which reasons fit?"
"""The heading that raters see."""
file_ = click.argument("file", metavar="STUDY", type=options.PATH)


@click.group(cls=options.Group)
def study() -> None:
    """Let people compare the reasons of several methods in a blind study."""


@study.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=options.PATH)
@options.out("STUDY", "File to write.")
@click.option(
    "--methods",
    default="random",
    metavar="NAMES",
    help=f"Methods to compare with, separated by commas: {KNOWN}.",
)
@options.file("--data", "The data set of the bundles; all methods but random need it.", "PATH")
@options.number("--tasks", 20, "Number of questions.")
def make(bundles: tuple[Path, ...], out: Path, methods: str, data: Path | None, tasks: int) -> None:
    """Create a study that compares the reasons of several methods.

    As in the paper, each question shows 50 paths from a user's past and 10 paths of each method, in
    random order and without names. loger first fits all methods but random to the data set.

    \b
    Examples:
      loger study make my-shop.bundle paper.bundle -o study.sqlite
      loger study make paper.bundle --data my-shop -o study.sqlite --methods pgpr,kgat
    """
    if out.exists():
        raise LogerError(f"{out} already exists; choose another file so you don't lose answers")
    from loger.cli.evaluate import held_out
    from loger.graph import whole
    from loger.study import Study, make_tasks
    from loger.study.tasks import all_rules, check_methods, fitted_methods, of_bundles

    names = options.names(methods)
    check_methods(names)
    with show.working(f"opening {len(bundles)} bundles"):
        models = of_bundles(bundles)
    first, split = next(iter(models.values())), None
    if data is not None:
        split, _ = held_out(first, bundles[0], data)
    with show.engine("preparing") as engine:
        fitted = fitted_methods(names, models, split, 0, engine.progress)
        graph = whole(first.graph_).given
        rules = all_rules(models.values(), graph)
        made = make_tasks(fitted, graph, rules, tasks)
    Study.create(out, made, TITLE)
    if show.wants_json():
        show.as_json({"study": str(out), "tasks": len(made), "methods": sorted(fitted)})
        return
    show.say(f"Saved {len(made)} questions about {', '.join(sorted(fitted))} to {out}")
    click.echo(f"Next: loger study serve {quote(str(out))}")


@study.command()
@file_
@options.host
@options.port(8010)
def serve(file: Path, host: str, port: int) -> None:
    """Serve a study to raters until you press Ctrl-C.

    loger saves answers as they arrive. By default, only this machine can reach the server.

    \b
    Example:
      loger study serve study.sqlite --port 8010
    """
    from loger.study import Study
    from loger.web.config import check_installed

    served = Study(file)
    check_installed()
    from loger.web.study import listening, run_study

    bound = listening(host, port)
    name, number = bound.getsockname()[:2]
    url = f"http://[{name}]:{number}/" if ":" in name else f"http://{name}:{number}/"
    if show.wants_json():
        show.as_json({"study": str(file), "url": url})
    else:
        click.echo(f"Send raters to {url}. Answers go to {file}. Press Ctrl-C to stop.")
    try:
        run_study(served, host, bound)
    except KeyboardInterrupt:
        click.echo(f"stopped; to see the results, run loger study results {file}", err=True)
    finally:
        bound.close()


@study.command()
@file_
def results(file: Path) -> None:
    """Show average ranks, a Friedman test, and how far raters agree.

    \b
    Example:
      loger study results study.sqlite
    """
    from loger.study import Study
    from loger.study import results as computed

    ranks = computed(Study(file).answers())
    if show.wants_json():
        show.as_json(ranks.as_dict())
        return
    rows = [
        (m, f"{a:.2f}", f"[{low:.2f}, {high:.2f}]", f"{first:.0%}")
        for a, m, low, high, first in sorted(
            zip(ranks.average, ranks.methods, ranks.low, ranks.high, ranks.first, strict=True)
        )
    ]
    to = show.console()
    columns = ["method", "average rank", "95% interval", "ranked first"]
    to.print(show.table(columns, rows, f"{ranks.raters} raters, {ranks.answers} answers"))
    to.print(f"Friedman χ² = {ranks.friedman:.2f}, p = {ranks.p:.4f} (over raters)", markup=False)
    agreement = "–" if ranks.agreement != ranks.agreement else f"{ranks.agreement:.2f}"
    to.print(f"agreement between raters, Kendall's W: {agreement}", markup=False)


@study.command()
@file_
@options.number("--raters", 10, "Number of raters.")
@options.several(
    "--quality",
    metavar="METHOD=NUMBER",
    help="How highly the simulated raters rate a method, before noise; 0 by default",
)
@click.pass_context
def simulate(ctx: click.Context, file: Path, raters: int, quality: tuple[str, ...]) -> None:
    """Fill a study with answers of simulated raters.

    Use this to find out how many people you need. loger writes the answers to STUDY, so work on a
    copy. A study that people have answered can't be simulated.

    \b
    Example:
      loger study simulate copy-of-study.sqlite --raters 12 --quality LOGER=1
    """
    from loger.study import Study
    from loger.study.store import simulate as run

    simulated = Study(file)
    run(simulated, raters, _qualities(quality, simulated.tasks[0].methods))
    ctx.invoke(results, file=file)


def _qualities(texts: tuple[str, ...], methods: tuple[str, ...]) -> dict[str, float]:
    """METHOD=NUMBER texts as a mapping."""
    from loger.errors import UnknownNameError

    qualities = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in methods:
            raise UnknownNameError("method in this study", name, methods)
        try:
            qualities[name] = float(value)
        except ValueError:
            raise LogerError(f"--quality must be METHOD=NUMBER, got {text!r}") from None
    return qualities
