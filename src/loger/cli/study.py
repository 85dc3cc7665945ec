"""``loger study``: a blind ranking of methods' reasons by people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, Bundle, Format, PositiveFrom, Source, opened, read
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.data import Split
    from loger.evaluation.recommender import Explains
    from loger.model import LOGER

app = typer.Typer(no_args_is_help=True, help="Let people rank the reasons of methods, blindly.")

File = Annotated[Path, typer.Argument(metavar="STUDY", help="A file that study make has written.")]
EXPLAINING = ("heteroembed", "kgat", "pgpr", "loger-paper")
"""Methods of loger compare that show paths."""


@app.command()
def make(
    bundle: Bundle,
    path: Source,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="STUDY", help="The file to write.")],
    against: Annotated[
        str,
        typer.Option(
            help=f"Methods to compare with, with commas: random, {', '.join(EXPLAINING)}."
        ),
    ] = "random",
    tasks: Annotated[int, typer.Option(min=1, help="Users to ask about.")] = 20,
    paths: Annotated[int, typer.Option(min=1, help="Paths of each method.")] = 10,
    title: Annotated[str, typer.Option(help="What raters see above.")] = "Which reasons fit?",
    seed: Annotated[int, typer.Option(help="For users, paths and orders.")] = 0,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Make a study: users' histories beside the paths of a model and of others, shuffled.

    Methods other than random are fitted first, on the data of the bundle.

    \b
    Example:
      loger study make my-shop.bundle my-shop -o study.sqlite --against random,pgpr
    """
    names = [name.strip() for name in against.split(",")]
    check(names)
    if out.exists():
        raise LogerError(f"{out} is there already; give a new file, so that no answer is lost")
    from loger.cli import show
    from loger.cli.evaluate import fitted_how, the_split
    from loger.study import Study, make_tasks

    model, how = opened(bundle), fitted_how(bundle)
    dataset = read(path, format or how.get("format"), positive_from or how.get("positive_from"))
    parts = the_split(model, dataset, how, bundle)
    with show.engine("preparing") as engine:
        methods: dict[str, Explains] = {"loger": model}
        methods |= {name: other(name, model, parts, seed, engine.progress) for name in names}
        made = make_tasks(methods, model.graph_, model.rules_, tasks, paths, seed)
    study = Study.create(out, made, title)
    told = {"study": str(out), "tasks": len(study.tasks), "methods": sorted(methods)}
    if json:
        show.as_json(told)
        return
    typer.echo(f"{len(made)} questions on {', '.join(sorted(methods))} in {out}")
    typer.echo(f"next: loger study serve {out}")


@app.command()
def serve(
    file: File,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8010,
    json: AsJson = False,
) -> None:
    """Serve a study to raters, until Ctrl-C; answers are kept as they come.

    \b
    Example:
      loger study serve study.sqlite --port 8010
    """
    from loger.cli import show
    from loger.study import Study
    from loger.study.server import serve as bound

    server = bound(Study(file), host, port)
    url = "http://{}:{}/".format(*server.server_address[:2])
    if json:
        show.as_json({"study": str(file), "url": url})
    else:
        typer.echo(f"raters go to {url} — Ctrl-C ends, answers are in {file}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo(f"ended; see loger study results {file}", err=True)
    finally:
        server.server_close()


@app.command(name="results")
def results_(file: File, json: AsJson = False) -> None:
    """Show average ranks with intervals, a Friedman test and how far raters agree.

    \b
    Example:
      loger study results study.sqlite
    """
    from loger.cli import show
    from loger.study import Study, results

    found = results(Study(file).answers())
    if json:
        show.as_json(found.as_dict())
        return
    rows = [
        (m, f"{a:.2f}", f"[{low:.2f}, {high:.2f}]", f"{first:.0%}")
        for a, m, low, high, first in sorted(
            zip(found.average, found.methods, found.low, found.high, found.first, strict=True)
        )
    ]
    to = show.console()
    columns = ["method", "average rank", "95 % interval", "ranked first"]
    to.print(show.table(columns, rows, f"{found.raters} raters, {found.answers} answers"))
    to.print(f"Friedman χ² = {found.friedman:.2f}, p = {found.p:.4f} (over raters)", markup=False)
    agreed = "–" if found.agreement != found.agreement else f"{found.agreement:.2f}"
    to.print(f"agreement of raters, Kendall's W: {agreed}", markup=False)


@app.command()
def simulate(
    file: File,
    raters: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    quality: Annotated[
        list[str],
        typer.Option(metavar="METHOD=NUMBER", help="What raters see of a method, but for noise."),
    ] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="For the noise.")] = 0,
    json: AsJson = False,
) -> None:
    """Let simulated raters answer, to see how many people a study needs; not for real studies.

    \b
    Example:
      loger study simulate copy-of-study.sqlite --raters 12 --quality loger=1
    """
    from loger.study import Study
    from loger.study.simulated import simulate as run

    study = Study(file)
    run(study, raters, _qualities(quality, study.tasks[0].methods), seed)
    results_(file, json)


def check(names: list[str]) -> None:
    """Unknown methods, and those that show no paths, are told before any work."""
    from loger.errors import UnknownNameError

    for name in names:
        if name not in ("random", *EXPLAINING):
            raise UnknownNameError("method that shows paths", name, ("random", *EXPLAINING))


def other(name: str, model: LOGER, parts: Split, seed: int, progress: Any) -> Explains:
    """A method to compare with, fitted on what the model knows."""
    from loger.evaluation.faithfulness import RandomPaths
    from loger.evaluation.methods import METHODS
    from loger.evaluation.recommender import fit_for

    if name == "random":
        return RandomPaths(model, model.graph_, model.rules_, seed)
    made: Any = METHODS[name].make(seed)
    fitted: Explains = fit_for(made, parts, progress=progress)
    return fitted


def _qualities(texts: list[str], methods: tuple[str, ...]) -> dict[str, float]:
    from loger.errors import UnknownNameError

    out = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in methods:
            raise UnknownNameError("method in this study", name, methods)
        try:
            out[name] = float(value)
        except ValueError:
            raise LogerError(f"a quality is written METHOD=NUMBER, got {text!r}") from None
    return out
