"""``loger evaluate``: how good a fitted model is; ``loger compare``: several methods on one data
set; ``loger reproduce``: the paper's exhibits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.errors import LogerError, UnknownNameError

if TYPE_CHECKING:
    from rich.table import Table

    from loger.data import Split
    from loger.evaluation.assess import Assessment
    from loger.evaluation.evaluate import FitRecord
    from loger.evaluation.faithfulness import FaithfulnessReport
    from loger.graph import KnowledgeGraph
    from loger.metrics.report import Report
    from loger.model import LOGER
    from loger.recommender import Explains
    from loger.rules import RuleSet

SOME_FAILED = 1
FAITHFUL_USERS = 50
SHOWN = ("ndcg", "recall", "hit_rate", "precision")
FAITHFUL = {
    "carried_3": ("share of the lead that the top three reasons explain", None),
    "r2": ("how well contributions predict the effect of a removal (R²)", "r2_permuted"),
    "flip_first_action": ("items that drop out without their top reason", "flip_random_action"),
    "pn_r": ("share of the list that changes without the top item's reasons", "pn_r_random"),
    "fid_plus": ("lead lost when some of the shown reasons are removed", "fid_plus_others"),
}
"""Measures of the summary, each with the measure for random reasons."""
KNOWN = (
    "mostpop, itemknn, p3alpha, rp3beta, ease, slim, itemknn-recency, rp3beta-recency, "
    "ease-recency, slim-recency, sequence, collective, collective-recency, ials, lightgcn, sasrec, "
    "esasrec, hstu, encoder, cke, ripplenet, kgat, heteroembed, pgpr, pgpr-free, cafe, "
    "loger, loger-paper, paper-literal"
)
"""The names of loger.evaluation.methods.METHODS, written out to keep --help fast."""


@options.command()
@options.bundle
@options.source
@options.new_file("--report", metavar="HTML", help="Also write a report to this file.")
@click.option(
    "--methods",
    default="mostpop,itemknn,ease",
    metavar="NAMES",
    help="Methods to compare with, separated by commas (named as in loger compare), or none.",
)
@click.option(
    "--faithfulness",
    "faithful",
    type=click.IntRange(0),
    metavar="USERS",
    help="Number of users whose reasons to test for faithfulness.  [default: 50 with --report, "
    "otherwise 0]",
)
@click.option(
    "--ablation",
    is_flag=True,
    help="Also fit with at most 0, 10, …, 50 hidden pairs per user (Figure 2 of the paper).",
)
@click.option(
    "--protocol",
    type=options.protocol,
    default="full",
    help="Rank all items, or each held-out item among 100 others.",
)
@options.verbose
def evaluate(
    bundle: Path,
    path: Path,
    report: Path | None,
    methods: str,
    faithful: int | None,
    ablation: bool,
    protocol: str,
    verbose: bool,
) -> None:
    """Evaluate a model on the test part of its data set.

    Fit the model with --hold-out first. PATH must be the data set that it was fitted to. Baselines
    have their default settings; to tune them, use loger compare.

    \b
    Examples:
      loger evaluate my-shop.bundle my-shop
      loger evaluate my-shop.bundle my-shop --report my-shop.html
      loger evaluate my-shop.bundle my-shop --methods ease,pgpr --json
    """
    names = [] if methods == "none" else options.names(methods)
    check_methods(names)
    model = options.opened(bundle)
    split, record = held_out(model, bundle, path)
    from loger.evaluation.assess import assess

    if faithful is None:
        faithful = 0 if report is None else FAITHFUL_USERS
    with show.engine("preparing", model.engine) as works_on:
        assessment = assess(
            model,
            split,
            names,
            faithful_users=faithful or None,
            ablation=ablation,
            protocol=protocol,  # type: ignore[arg-type]
            engine=works_on,
            progress=works_on.progress,
        )
        if report is not None:
            command = "loger " + " ".join(sys.argv[1:])
            assessment.write(report, tried=record.tried, command=command)
    if show.wants_json():
        show.as_json(assessment.as_dict() | {"report": None if report is None else str(report)})
    else:
        draw(assessment, report, verbose)


def held_out(model: LOGER, bundle: Path, path: Path) -> tuple[Split, FitRecord]:
    """The split that a bundle was fitted on, and the record of that fit."""
    from loger.evaluation.evaluate import FitRecord

    record = FitRecord.read(bundle)
    dataset = options.read(path, record.format, record.min_rating)
    return record.split_of(dataset, model, bundle), record


def draw(assessment: Assessment, report_file: Path | None, verbose: bool) -> None:
    """Show a summary of an evaluation, or all of it."""
    draw_report(assessment.report, verbose)
    if assessment.untuned:
        click.echo("The baselines have their default settings; to tune them, use loger compare.")
    for measured in assessment.faithfulness[:1]:
        if verbose:
            show.say("\n" + measured.table())
        else:
            show.console().print(_faithfulness_table(measured))
    if assessment.ablation:
        rows = [(f"{p['selected']:.0f}", f"{100 * p['ndcg']:.2f}") for p in assessment.ablation]
        click.echo("\nBy the maximum number of hidden pairs per user")
        show.console().print(show.table(["pairs", "NDCG@10 %"], rows))
    if report_file is not None:
        click.echo(f"\nReport in {report_file}. To print all measures, use --verbose.")


def draw_report(report: Report, verbose: bool = False) -> None:
    """Show the methods, best first, or with all intervals."""
    users = f"{len(report.users):,} users"
    show.say(f"{report.dataset}, {report.protocol} ranking, {report.part}, {users}, %")
    if verbose:
        show.say(report.table())
        return
    best, k = report.best(), report.k
    rows = []
    for name in sorted(report.models, key=lambda name: -report.mean(name, "ndcg")):
        ndcg, *others = (f"{100 * report.mean(name, metric):.2f}" for metric in SHOWN)
        low, high = (f"{100 * end:.2f}" for end in report.interval(name, "ndcg"))
        p = "–" if name == best else f"{report.compare(best, name).p:.4f}"
        coverage = f"{100 * report.coverage[name]:.1f}"
        rows.append((name, ndcg, f"[{low}, {high}]", *others, p, coverage))
    columns = ["", f"NDCG@{k}", "95% interval", f"Recall@{k}", f"HR@{k}", f"Precision@{k}"]
    show.console().print(show.table([*columns, "p", "coverage"], rows))


def _faithfulness_table(measured: FaithfulnessReport) -> Table:
    """The main measures, each next to its value for random reasons."""
    rows = []
    for line, (title, random) in FAITHFUL.items():
        mean, baseline = measured[line], measured[random] if random else None
        if mean is not None:
            interval = f"[{mean.low:.2f}, {mean.high:.2f}]"
            rows.append(
                (title, f"{mean.mean:.2f}", interval, f"{baseline.mean:.2f}" if baseline else "–")
            )
    columns = ["", "mean", "95% interval", "random"]
    return show.table(columns, rows, f"\nFaithfulness of the reasons, {measured.n_users} users")


@options.command()
@options.source
@click.option("--methods", required=True, metavar="NAMES", help=f"Separated by commas: {KNOWN}.")
@options.out("FOLDER", "Folder for tables and results.  [default: compare-NAME]", required=False)
@click.option(
    "--eval-on",
    type=click.Choice(["test", "validation"]),
    default="test",
    help="Part of the data to evaluate on.",
)
@click.option(
    "--protocol",
    "protocols",
    type=options.protocol,
    multiple=True,
    default=["full"],
    help="Rank all items, or each held-out item among 100 others; repeatable.",
)
@options.settings(
    "Set one of a method's settings; that method is then not tuned", "METHOD.NAME=VALUE"
)
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Tune all methods on the validation part, or none.  [default: only fast methods]",
)
@options.length
@options.seed
def compare(
    path: Path,
    methods: str,
    out: Path | None,
    eval_on: str,
    protocols: tuple[str, ...],
    set_: tuple[str, ...],
    tune: bool | None,
    k: int,
    seed: int,
) -> None:
    """Fit several methods and compare them in one table.

    All methods rank the same candidates for the same users. Values are percentages, with 95%
    confidence intervals over users; p tests the paired difference from the best method. loger keeps
    all results: you can repeat an interrupted command, or add a method without running the others
    again. If a method fails, loger reports it and continues with the others.

    \b
    Examples:
      loger compare my-shop --methods mostpop,ease,pgpr
      loger compare my-shop --methods pgpr,ials --set pgpr.epochs=3 --protocol sampled-100
      loger compare my-shop --methods encoder --set encoder.encoder=kge:RotatE
      loger compare my-shop --methods loger-paper --set loger-paper.em.early_stop=false
    """
    settings, on = method_settings(set_), show.engine_named()
    dataset = options.read(path, None, None)
    from loger.data import split
    from loger.evaluation.compare import compare as run

    folder = out or Path(f"compare-{dataset.name.replace(' ', '-')}")
    with show.engine("preparing", on) as works_on:
        compared = run(
            split(dataset, seed=seed),
            options.names(methods),
            folder,
            part=eval_on,  # type: ignore[arg-type]
            protocols=protocols,  # type: ignore[arg-type]
            settings=settings,
            tune=tune,
            k=k,
            seed=seed,
            engine=works_on,
            progress=works_on.progress,
        )
    if show.wants_json():
        reports = {name: loads(report.to_json()) for name, report in compared.reports.items()}
        show.as_json({"failures": dict(compared.failures), "reports": reports})
    else:
        for report in compared.reports.values():
            draw_report(report)
            click.echo()
        click.echo(f"Saved to {folder}")
    for name, error in compared.failures.items():
        show.say(f"error: {name} failed: {error} (see {folder / name}.error.txt)", err=True)
    if compared.failures:
        raise click.exceptions.Exit(SOME_FAILED)


def check_methods(names: Sequence[str]) -> None:
    """Check the names of methods before any work starts."""
    for name in names:
        if name not in KNOWN.split(", "):
            raise UnknownNameError("method", name, KNOWN.split(", "))


def method_settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse METHOD.NAME=VALUE into {method: {name: value}}."""
    from loger.engine.settings import parsed

    form = "METHOD.NAME=VALUE, such as ease.l2=30"
    by_method = parsed(texts, form)
    for method, values in by_method.items():
        if not isinstance(values, dict):
            raise LogerError(f"--set must be {form}, got {method}={values}")
    return by_method


@options.command()
@options.source
@options.out("FOLDER", "Folder for results, tables and report.")
@click.option("--quick", is_flag=True, help="Use short fits and few users, as a trial run.")
@options.file("--resume-from", "The cells.json file of an earlier run.", "JSON")
@options.seed
def reproduce(path: Path, out: Path, quick: bool, resume_from: Path | None, seed: int) -> None:
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
    from loger.evaluation.reproduce import QUICK, Extent, Reproduction

    on = show.engine_named()
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
        raise click.exceptions.Exit(SOME_FAILED)


def _study(
    file: Path, methods: Mapping[str, Explains], graph: KnowledgeGraph, rules: RuleSet, n: int
) -> None:
    from loger.study import Study, make_tasks

    Study.create(file, make_tasks(methods, graph, rules, n), "Which reasons fit?")
