"""``loger study``: people rank the reasons of methods without knowing which is which."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from loger.cli.options import AsJson, Format, Host, Port, PositiveFrom, listed, setting
from loger.errors import LogerError

app = typer.Typer(no_args_is_help=True, help="Let people rank the reasons of methods, blindly.")

File = Annotated[Path, typer.Argument(metavar="STUDY", help="A file that loger study make wrote.")]
KNOWN = "random, heteroembed, kgat, pgpr, loger-paper"
"""The names of loger.study.tasks.EXPLAINING, written out so that --help loads nothing heavy."""


@app.command()
def make(
    bundles: Annotated[
        list[Path],
        typer.Argument(metavar="BUNDLE...", help="Folders that loger fit wrote, of the same data."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="STUDY", help="The file to write.")],
    against: Annotated[
        str, typer.Option(help=f"Methods to compare with, separated by commas: {KNOWN}.")
    ] = "random",
    data: Annotated[
        Path | None,
        setting("The data of the bundles; needed for methods other than random.", metavar="PATH"),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many users to ask about.")] = 20,
    paths: Annotated[int, typer.Option(min=1, help="How many paths of each method to show.")] = 10,
    past: Annotated[int, typer.Option(min=1, help="How many paths of the past to show.")] = 50,
    title: Annotated[str, typer.Option(help="The heading that raters see.")] = "Which reasons fit?",
    seed: Annotated[int, typer.Option(help="Seed for users, paths and their order.")] = 0,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Make a study that compares the reasons of several methods.

    Each question shows 50 paths of a user's past and 10 of each method, as in the paper, shuffled
    and without names. Methods other than random are fitted first, on the data of the bundles.

    \b
    Examples:
      loger study make my-shop.bundle paper.bundle -o study.sqlite
      loger study make paper.bundle --data my-shop -o study.sqlite --against pgpr,kgat
    """
    if out.exists():
        raise LogerError(f"{out} exists; give a new file, so that no answers are lost")
    from loger.cli import show
    from loger.cli.evaluate import held_out
    from loger.graph import whole
    from loger.study import Study, make_tasks
    from loger.study.tasks import all_rules, check_methods, fitted_methods, of_bundles

    names = listed(against)
    check_methods(names)
    with show.working(f"opening {len(bundles)} bundles"):
        models = of_bundles(bundles)
    first, split = next(iter(models.values())), None
    if data is not None:
        split, _ = held_out(first, bundles[0], data, format, positive_from)
    with show.engine("preparing") as engine:
        methods = fitted_methods(names, models, split, seed, engine.progress)
        graph = whole(first.graph_).given
        rules = all_rules(models.values(), graph)
        made = make_tasks(methods, graph, rules, tasks, paths, past, seed)
    Study.create(out, made, title)
    if json:
        show.as_json({"study": str(out), "tasks": len(made), "methods": sorted(methods)})
        return
    show.say(f"{len(made)} questions about {', '.join(sorted(methods))} written to {out}")
    typer.echo(f"next: loger study serve {quote(str(out))}")


@app.command()
def serve(
    file: File,
    host: Host = "127.0.0.1",
    port: Port = 8010,
    json: AsJson = False,
) -> None:
    """Serve a study to raters, until Ctrl-C.

    Answers are saved as they come. Only this machine can reach the server unless --host says
    otherwise.

    \b
    Example:
      loger study serve study.sqlite --port 8010
    """
    from loger.cli import show
    from loger.study import Study
    from loger.web.config import check_installed

    study = Study(file)
    check_installed()
    from loger.web.study import listening, run_study

    bound = listening(host, port)
    name, number = bound.getsockname()[:2]
    url = f"http://[{name}]:{number}/" if ":" in name else f"http://{name}:{number}/"
    if json:
        show.as_json({"study": str(file), "url": url})
    else:
        typer.echo(f"raters go to {url}; answers are saved in {file}; Ctrl-C stops the server")
    try:
        run_study(study, host, bound)
    except KeyboardInterrupt:
        typer.echo(f"stopped; for the results: loger study results {file}", err=True)
    finally:
        bound.close()


@app.command(name="results")
def results_(file: File, json: AsJson = False) -> None:
    """Show average ranks, a Friedman test and how far raters agree.

    \b
    Example:
      loger study results study.sqlite
    """
    from loger.cli import show
    from loger.study import Study, results

    ranks = results(Study(file).answers())
    if json:
        show.as_json(ranks.as_dict())
        return
    rows = [
        (m, f"{a:.2f}", f"[{low:.2f}, {high:.2f}]", f"{first:.0%}")
        for a, m, low, high, first in sorted(
            zip(ranks.average, ranks.methods, ranks.low, ranks.high, ranks.first, strict=True)
        )
    ]
    to = show.console()
    columns = ["method", "average rank", "95 % interval", "ranked first"]
    to.print(show.table(columns, rows, f"{ranks.raters} raters, {ranks.answers} answers"))
    to.print(f"Friedman χ² = {ranks.friedman:.2f}, p = {ranks.p:.4f} (over raters)", markup=False)
    agreement = "–" if ranks.agreement != ranks.agreement else f"{ranks.agreement:.2f}"
    to.print(f"agreement of raters, Kendall's W: {agreement}", markup=False)


@app.command()
def simulate(
    file: File,
    raters: Annotated[int, typer.Option(min=1, help="How many raters to simulate.")] = 10,
    quality: Annotated[
        list[str],
        typer.Option(
            metavar="METHOD=NUMBER", help="How good raters find a method, before noise (0)."
        ),
    ] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed for the noise.")] = 0,
    json: AsJson = False,
) -> None:
    """Fill a study with the answers of simulated raters.

    Use it to find out how many people a study needs. The answers are written into FILE, so give
    it a copy. A study that people have answered is refused.

    \b
    Example:
      loger study simulate copy-of-study.sqlite --raters 12 --quality LOGER=1
    """
    from loger.study import Study
    from loger.study.store import simulate as run

    study = Study(file)
    run(study, raters, _qualities(quality, study.tasks[0].methods), seed)
    results_(file, json)


def _qualities(texts: list[str], methods: tuple[str, ...]) -> dict[str, float]:
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
            raise LogerError(f"a quality is written METHOD=NUMBER, got {text!r}") from None
    return qualities
