"""``loger evaluate``: how good a model is on what it has not seen, and how faithful."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.fit import FIT_RECORD
from loger.cli.options import AsJson, Bundle, Format, Length, PositiveFrom, Source, opened, read
from loger.errors import DataError, LogerError, UnknownNameError

if TYPE_CHECKING:
    from loger.data import Dataset, Split
    from loger.data.demo import Demo
    from loger.engine import LocalEngine
    from loger.evaluation.faithfulness import FaithfulnessReport
    from loger.evaluation.metrics.report import Report
    from loger.model import LOGER

CONTROLS = "mostpop,itemknn,ease"
EXAMPLES = 4


def evaluate(
    bundle: Bundle,
    path: Source,
    report: Annotated[
        Path | None,
        typer.Option(metavar="HTML", help="Write a report here: one file.", show_default=False),
    ] = None,
    against: Annotated[
        str,
        typer.Option(help="Methods beside it, with commas; of those of loger compare; or none."),
    ] = CONTROLS,
    faithful: Annotated[
        bool | None,
        typer.Option(
            "--faithfulness/--no-faithfulness",
            help="Measure how faithful reasons are; with --report unless told otherwise.",
            show_default=False,
        ),
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Users to measure faithfulness on.")] = 50,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help="Fit anew ablate_hidden 0, 10, …, 50 hidden pairs per user, and plot |H⁺|.",
        ),
    ] = False,
    protocol: Annotated[str, typer.Option(help="full or sampled-100.")] = "full",
    k: Length = 10,
    seed: Annotated[int, typer.Option(help="For intervals and whatever is drawn.")] = 0,
    samples: Annotated[int, typer.Option(min=10, help="Bootstrap samples.")] = 1000,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Evaluate a model on the test part of the data that it was fitted on.

    The split is the one of loger fit; other data, or another split, are refused. Methods
    beside it have their default settings: loger compare tunes them.

    \b
    Examples:
      loger evaluate my-shop.bundle my-shop
      loger evaluate my-shop.bundle my-shop --report my-shop.html
      loger evaluate my-shop.bundle my-shop --against ease,pgpr --json
    """
    names = [] if against == "none" else [name.strip() for name in against.split(",")]
    check_methods(names)
    model = opened(bundle)
    how = fitted_how(bundle)
    dataset = read(path, format or how.get("format"), positive_from or how.get("positive_from"))
    parts = the_split(model, dataset, how, bundle)
    from loger.cli import show

    with show.engine("preparing") as engine:
        found = measured(model, parts, names, engine, k, protocol, seed, samples)
        shown = report is not None if faithful is None else faithful
        trust = faithfulness(model, parts, engine, k, users, seed) if shown else []
        points = model.ablate_hidden(parts, progress=engine.progress) if ablation else []
    if report is not None:
        command = "loger " + " ".join(sys.argv[1:])
        write(report, model, dataset, found, trust, how.get("tried", ()), points, command)
    if json:
        show.as_json(
            {
                **jsonlib.loads(found.to_json()),
                "untuned": list(found.models[1:]),
                "faithfulness": [one.as_dict() for one in trust],
                "ablation": points,
                "report": None if report is None else str(report),
            }
        )
        return
    typer.echo(f"{dataset.name}, {protocol} ranking, test, {len(found.users):,} users, %")
    typer.echo(found.table())
    if names:
        typer.echo(f"not tuned, with default settings: {', '.join(found.models[1:])}")
    for one in trust[:1]:
        typer.echo("\n" + one.table())
    if report is not None:
        typer.echo(f"\nreport in {report}")


def check_methods(names: Sequence[str]) -> None:
    """Unknown names are told before any work."""
    from loger.cli.compare import KNOWN

    known = KNOWN.split(", ")
    for name in names:
        if name not in known:
            raise UnknownNameError("method", name, known)


def fitted_how(bundle: Path) -> dict[str, Any]:
    """What ``loger fit`` noted beside the bundle; empty if it was saved from Python."""
    path = bundle / FIT_RECORD
    if not path.is_file():
        return {}
    try:
        noted = jsonlib.loads(path.read_text(encoding="utf-8"))
        return dict(noted)
    except (ValueError, TypeError) as error:
        raise DataError(f"is damaged ({error})", path=path, remedy="fit again") from None


def the_split(model: LOGER, dataset: Dataset, how: dict[str, Any], bundle: Path) -> Split:
    """The split that the model was fitted on, or a refusal."""
    from loger.data import split
    from loger.graph import whole

    parts = split(dataset, **how.get("split", {}))
    if parts.refit().graph.fingerprint != whole(model.graph_).fingerprint:
        was = f"; it was fitted on {how['data']}" if "data" in how else ""
        raise LogerError(
            f"{bundle} was not fitted on this split of {dataset.name}, so its test part may be "
            f"known to it{was}; give that data, unchanged, or fit again"
        )
    return parts


def measured(
    model: LOGER,
    parts: Split,
    names: Sequence[str],
    engine: LocalEngine,
    k: int = 10,
    protocol: str = "full",
    seed: int = 0,
    samples: int = 1000,
) -> Report:
    """The model and others, with default settings, on the same users."""
    from loger.evaluation.evaluate import evaluate as run
    from loger.evaluation.methods import METHODS

    return run(
        [model, *(METHODS[name].make(seed) for name in names)],
        parts,
        k=k,
        protocol=protocol,  # type: ignore[arg-type]
        seed=seed,
        samples=samples,
        engine=engine,
        progress=engine.progress,
    )


def faithfulness(
    model: LOGER,
    parts: Split,
    engine: LocalEngine,
    k: int,
    users: int,
    seed: int,
    demo: Demo | None = None,
) -> list[FaithfulnessReport]:
    """Measures of the model's reasons, and of random valid paths for the same items."""
    from loger.evaluation.faithfulness import (
        FaithfulnessConfig,
        Probes,
        RandomPaths,
        faithfulness_report,
        loger_probes,
    )

    config = FaithfulnessConfig(k=k, users=users, probed=users, seed=seed)
    known, probes = parts.refit(), loger_probes(model, demo, seed)
    control = RandomPaths(model, model.graph_, model.rules_, seed)
    plain = Probes(rescore=probes.rescore, explain=control.explain_paths, demo=demo)
    # What carries an item does not depend on the paths shown: once is enough.
    once = replace(config, counterfactuals=0)
    return [
        faithfulness_report(one, known, model.rules_, c, probes=p, progress=engine.progress)
        for one, p, c in ((model, probes, config), (control, plain, once))
    ]


def write(
    out: Path,
    model: LOGER,
    dataset: Dataset,
    found: Report,
    trust: Sequence[FaithfulnessReport],
    tried: Sequence[Sequence[Any]] = (),
    points: Sequence[dict[str, float]] = (),
    command: str = "",
) -> None:
    """Write the report."""
    import numpy as np

    from loger.cli.statistics import statistics
    from loger.evaluation.report import Contents, page
    from loger.explain.attribution import explain

    own = np.asarray(found.users[:EXAMPLES])
    best, _ = model.top(own, 1)
    there = best[:, 0] >= 0
    contents = Contents(
        found,
        statistics=statistics(dataset),
        untuned=found.models[1:],
        rules=model.rule_table().to_dicts(),
        trace=model.trace_,
        tried=[(s, v, x) for s, v, x in tried],
        ablation=points,
        faithfulness=trust,
        examples=[e.as_dict() for e in explain(model.ranker_, own[there], best[there, 0])],
        config=asdict(model.config_),
        commit=commit(),
        command=command,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(contents), encoding="utf-8")


def commit() -> str:
    """The version, and the commit if loger runs from a checkout."""
    import subprocess

    from loger.version import __version__

    home = Path(__file__).resolve().parents[3]
    if not (home / ".git").exists():
        return __version__
    asked = ["git", "-C", str(home), "describe", "--always", "--dirty"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    return f"{__version__}, commit {told.stdout.strip()}" if told.stdout else __version__
