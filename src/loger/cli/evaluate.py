"""``loger evaluate``: how good a fitted model is; ``loger compare``: several methods on one data
set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    from loger.metrics.report import Report
    from loger.model import LOGER

SOME_FAILED = 1
FAITHFUL_USERS = 50
SHOWN = ("ndcg", "recall", "hit_rate", "precision")
FAITHFUL = {
    "carried_3": ("share of the lead that the first three reasons explain", None),
    "r2": ("how well contributions predict the effect of a removal (R²)", "r2_permuted"),
    "flip_first_action": ("items that drop out without their first action", "flip_random_action"),
    "pn_r": ("share of the list that changes without the first item's reasons", "pn_r_random"),
    "fid_plus": ("lead lost without part of the shown reasons", "fid_plus_others"),
}
"""Measures of the summary, with the same measure for random reasons."""
KNOWN = (
    "mostpop, itemknn, p3alpha, rp3beta, ease, slim, itemknn-recency, rp3beta-recency, "
    "ease-recency, slim-recency, sequence, collective, collective-recency, ials, lightgcn, sasrec, "
    "esasrec, gsasrec, hstu, encoder, cke, ripplenet, kgat, heteroembed, pgpr, pgpr-free, cafe, "
    "loger, loger-paper, paper-literal"
)
"""The names of loger.evaluation.methods.METHODS, written out to keep --help fast."""


@click.command()
@options.bundle
@options.source
@options.new_file("--report", metavar="HTML", help="Write a report to this file.")
@click.option(
    "--methods",
    default="mostpop,itemknn,ease",
    metavar="NAMES",
    help="Baselines from loger compare, separated by commas; or none.",
)
@click.option(
    "--faithfulness",
    "faithful",
    type=click.IntRange(0),
    metavar="USERS",
    help="Measure how faithful the reasons of this many users are; 0 doesn't.  [default: 50 with "
    "--report, else 0]",
)
@click.option(
    "--ablation",
    is_flag=True,
    help="Also refit with at most 0, 10, …, 50 hidden pairs per user.",
)
@click.option("--protocol", type=options.protocol, default="full", help="How to rank.")
@options.length
@options.seed
@options.engine
@options.verbose
@options.json
def evaluate(
    bundle: Path,
    path: Path,
    report: Path | None,
    methods: str,
    faithful: int | None,
    ablation: bool,
    protocol: str,
    k: int,
    seed: int,
    engine: str,
    verbose: bool,
) -> None:
    """Evaluate a model on the test part of its data set.

    loger uses the split of the fit, and refuses other data or another split. The baselines have
    their default settings; loger compare tunes them.

    \b
    Examples:
      loger evaluate my-shop.bundle my-shop
      loger evaluate my-shop.bundle my-shop --report my-shop.html
      loger evaluate my-shop.bundle my-shop --methods ease,pgpr --json
    """
    names = [] if methods == "none" else options.names(methods)
    check_methods(names)
    model = options.opened(bundle, engine)
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
            k=k,
            protocol=protocol,  # type: ignore[arg-type]
            seed=seed,
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
    """The split that a bundle was fitted on, from its data set, and the record of that fit."""
    from loger.evaluation.evaluate import FitRecord

    record = FitRecord.read(bundle)
    dataset = options.read(path, record.format, record.min_rating)
    return record.split_of(dataset, model, bundle), record


def draw(assessment: Assessment, report_file: Path | None, verbose: bool) -> None:
    """Show a summary of what was measured, or all of it."""
    draw_report(assessment.report, verbose)
    if assessment.untuned:
        click.echo("The baselines have their default settings; loger compare tunes them.")
    for measured in assessment.faithfulness[:1]:
        if verbose:
            show.say("\n" + measured.table())
        else:
            show.console().print(_faithfulness_table(measured))
    if assessment.ablation:
        rows = [(f"{p['selected']:.0f}", f"{100 * p['ndcg']:.2f}") for p in assessment.ablation]
        title = "\nWith at most so many hidden pairs per user"
        show.console().print(show.table(["pairs", "NDCG@10 %"], rows, title))
    if report_file is not None:
        click.echo(f"\nReport in {report_file}. For all measures here, use --verbose.")


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
    """The measures that say most, each next to the same for random reasons."""
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


@click.command()
@options.source
@click.option("--methods", required=True, metavar="NAMES", help=f"Separated by commas: {KNOWN}.")
@options.out("FOLDER", "Folder for tables and results.  [default: compare-NAME]", required=False)
@click.option(
    "--eval-on",
    type=click.Choice(["test", "validation"]),
    default="test",
    help="The part to evaluate on.",
)
@click.option(
    "--protocol",
    "protocols",
    type=options.protocol,
    multiple=True,
    default=["full"],
    help="How to rank; repeatable.",
)
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="METHOD.NAME=VALUE",
    help="A setting of a method, which then isn't tuned.",
)
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Tune all methods on validation, or none.  [default: those that take minutes]",
)
@options.encoder
@options.length
@options.seed
@options.engine
@options.min_rating
@options.json
def compare(
    path: Path,
    methods: str,
    out: Path | None,
    eval_on: str,
    protocols: tuple[str, ...],
    set_: tuple[str, ...],
    tune: bool | None,
    encoder: str,
    k: int,
    seed: int,
    engine: str,
    min_rating: float | None,
) -> None:
    """Fit several methods and compare them in one table.

    All methods rank the same candidates for the same users. Means are percentages, with 95%
    intervals over users; p tests the paired difference from the best. loger keeps results, so the
    same command resumes, and with one more method runs only that one. If a method fails, loger says
    so and continues with the others.

    \b
    Examples:
      loger compare my-shop --methods mostpop,ease,pgpr
      loger compare my-shop --methods pgpr,ials --set pgpr.epochs=3 --protocol sampled-100
      loger compare my-shop --methods encoder,loger-paper --encoder kge:RotatE
      loger compare my-shop --methods loger-paper --set loger-paper.em.early_stop=false
    """
    from loger.engine import engine_named

    settings, on = method_settings(set_), engine_named(engine)
    if encoder != "transe":
        for name in set(options.names(methods)) & {"encoder", "loger", "loger-paper"}:
            settings.setdefault(name, {})["encoder"] = encoder
    dataset = options.read(path, None, min_rating)
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
    """Refuse unknown methods before any work."""
    for name in names:
        if name not in KNOWN.split(", "):
            raise UnknownNameError("method", name, KNOWN.split(", "))


def method_settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """METHOD.NAME=VALUE as {method: {name: value}}, values as in every other command."""
    from loger.engine.settings import parsed

    form = "METHOD.NAME=VALUE, such as ease.l2=30"
    by_method = parsed(texts, form)
    for method, values in by_method.items():
        if not isinstance(values, dict):
            raise LogerError(f"--set takes {form}, got {method}={values}")
    return by_method
