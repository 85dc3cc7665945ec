"""``loger reproduce``: the paper's exhibits on a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loger.cli import options, show

if TYPE_CHECKING:
    from loger.graph import KnowledgeGraph
    from loger.recommender import Explains
    from loger.rules import RuleSet


@options.command()
@options.source
@options.out("FOLDER", "Folder for results, tables and report.")
@click.option("--quick", is_flag=True, help="Short fits and few users, to try it out.")
@options.file("--resume-from", "File cells.json of an earlier run.", "JSON")
@options.seed
@options.engine
def reproduce(
    path: Path, out: Path, quick: bool, resume_from: Path | None, seed: int, engine: str
) -> None:
    """Reproduce the paper's tables and figures on a data set.

    PATH is a folder in any format that loger reads, or the word demo for the invented shop. loger
    writes Table 1 with all methods and both protocols, the faithfulness table, Figure 2 with its
    control, statistics, the questions of the user study, and times. Results are JSON files and a
    report in Markdown and HTML. To resume an interrupted run, run the same command again; in
    another folder or on another machine, pass its cells.json to --resume-from.

    \b
    Examples:
      loger reproduce demo --quick -o exhibits
      loger reproduce my-shop -o exhibits
    """
    from loger.data import split
    from loger.data.demo import shop
    from loger.engine import engine_named
    from loger.evaluation.reproduce import QUICK, Extent, Reproduction

    on = engine_named(engine)
    invented = str(path) == "demo" and not path.exists()
    dataset = shop().dataset if invented else options.read(path, None, None)
    with show.engine("preparing", on) as works_on:
        parts, extent = split(dataset, seed=seed), QUICK if quick else Extent()
        run = Reproduction(
            parts, out, extent, seed, _study, works_on, works_on.progress, resume_from
        )
        failures = run.run()
    missing = {**run.left_out, **failures}
    if show.wants_json():
        show.as_json({"folder": str(out), "missing": missing})
    else:
        for name, why in missing.items():
            show.say(f"skipped {name}: {why}", err=True)
        click.echo(f"Saved to {out}. To read the report, open {out / 'report.html'}")
    if failures:
        raise click.exceptions.Exit(1)


def _study(
    file: Path, methods: Mapping[str, Explains], graph: KnowledgeGraph, rules: RuleSet, n: int
) -> None:
    from loger.study import Study, make_tasks

    Study.create(file, make_tasks(methods, graph, rules, n), "Which reasons fit?")
