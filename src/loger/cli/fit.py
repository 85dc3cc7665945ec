"""``loger fit``: learn a model from a data set and keep it."""

from __future__ import annotations

import json as jsonlib
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loger.cli.options import (
    AsJson,
    Format,
    How,
    PositiveFrom,
    Source,
    TestShare,
    ValidationShare,
    read,
)
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.data import Dataset, Split
    from loger.model import LOGER, LOGERConfig

INTERRUPTED = 130
FIT_RECORD = "fit.json"
"""Beside the bundle's own files: what it was fitted on, and what tuning tried."""


def fit(
    path: Source,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="BUNDLE", help="Where to keep it.")],
    preset: Annotated[
        Literal["default", "paper"],
        typer.Option(help="The best we know, or the paper's own choices."),
    ] = "default",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="Settings: seed, sample_nodes, and tables mining, em, em.walk and encoder.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="PATH=VALUE", help="A setting, such as em.rounds=3."),
    ] = [],  # noqa: B006
    seed: Annotated[
        int | None, typer.Option(help="For all that is drawn (0).", show_default=False)
    ] = None,
    how: How = "auto",
    test: TestShare = 0.2,
    validation: ValidationShare = 0.1,
    split_seed: Annotated[int, typer.Option(help="For a random split.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace what is at BUNDLE.")] = False,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Fit LOGER on a data set and write it as a bundle.

    Rules are mined and the encoder trained on train, rule weights learned from validation,
    then the encoder learns from both. The test part is not looked at. Interrupted, the
    same command goes on where it was. Flags win over --set, and --set over the file.

    \b
    Examples:
      loger fit my-shop -o my-shop.bundle
      loger fit my-shop -o paper.bundle --preset paper --set em.rounds=2
      loger fit my-shop -o my-shop.bundle --config settings.toml --seed 7
    """
    from loger import bundle

    bundle.check_target(out, replace=force)
    from loger.cli import show

    chosen = chosen_config(preset, config, set_, seed)
    options = {"how": how, "test": test, "validation": validation, "seed": split_seed}
    dataset = read(path, format, positive_from)
    from loger.data import split

    parts = split(dataset, **options)  # type: ignore[arg-type]
    tell(dataset, chosen, parts)
    model = fitted(parts, chosen, unfinished(out), preset)
    model.save(out)
    about = {
        "data": str(path), "format": format, "positive_from": positive_from, "name": dataset.name,
        "preset": preset, "split": options, "tried": [list(row) for row in model.tried_],
    }  # fmt: skip
    (out / FIT_RECORD).write_text(jsonlib.dumps(about, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(unfinished(out), ignore_errors=True)
    told = summary(model, out)
    if json:
        show.as_json(told)
    else:
        draw(told)


def chosen_config(
    preset: str, file: Path | None, texts: list[str], seed: int | None
) -> LOGERConfig:
    """The settings of a preset, changed by file, then texts, then flags."""
    from loger import settings

    given = settings.merged(
        {} if file is None else settings.read_toml(file), settings.parsed(texts)
    )
    if seed is not None:
        given["seed"] = seed
    from loger.model import LOGERConfig

    base = LOGERConfig.paper() if preset == "paper" else LOGERConfig()
    try:
        return settings.overridden(base, given)
    except LogerError as error:
        if file is None:
            raise
        raise LogerError(f"{file}: {error}") from None


def tell(dataset: Dataset, config: LOGERConfig, parts: Split) -> None:
    """Say what whoever fits should know of the data before."""
    for note in dataset.notes:
        typer.echo(f"note: {note}", err=True)
    n, mining = len(parts.train), config.mining.for_pairs(len(parts.train))
    if mining != config.mining.for_pairs(sys.maxsize):
        needs = f"support {mining.min_support}, lift {mining.min_lift:g}"
        typer.echo(f"note: {n:,} training pairs are few, so rules need less: {needs}", err=True)


def fitted(parts: Split, config: LOGERConfig, checkpoint: Path, preset: str = "default") -> LOGER:
    """A fitted model; an interrupt leaves what is done so far, and says how to go on."""
    from loger.cli import show
    from loger.model import LOGER

    title = "LOGER" if preset == "default" else "LOGER (paper)"
    try:
        with show.engine(show.COMPILING) as engine:
            model = LOGER(config, name=title)
            return model.fit(parts, checkpoint=checkpoint, progress=engine.progress)
    except KeyboardInterrupt:
        kept = f"what is done is in {checkpoint}; " if checkpoint.is_dir() else ""
        typer.echo(f"interrupted; {kept}give the same command again to go on", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        with suppress(OSError):  # an empty folder is of no use
            checkpoint.rmdir()


def unfinished(out: Path) -> Path:
    """Where a fit keeps what it has done so far."""
    return out.with_name(out.name + ".unfinished")


def summary(model: LOGER, out: Path) -> dict[str, Any]:
    """What was learned, as plain values."""
    from math import isnan

    from loger.graph import whole

    last = model.trace_[-1]
    graph = whole(model.graph_)
    return {
        "bundle": str(out),
        "users": graph.n_users,
        "items": graph.n_items,
        "facts": graph.n_triples,
        "rules": model.rule_table().to_dicts(),
        "encoder_weight": model.ranker_.fusion.encoder_weight,
        "rounds": last.number,
        "held_out_ndcg": None if isnan(last.ndcg) else last.ndcg,
        "tried": [{"setting": s, "value": v, "ndcg": x} for s, v, x in model.tried_],
        "size": sum(file.stat().st_size for file in out.iterdir()),
        "example_user": graph.vocabulary.names[0],
    }


def draw(told: dict[str, Any]) -> None:
    """Show what was learned and what to do next."""
    from shlex import quote

    from loger.cli import show

    to = show.console()
    rows = [(f"{r['weight']:.2f}", r["sentence"]) for r in told["rules"] if r["weight"] > 0]
    if rows:
        to.print(show.table(["weight", "rule"], rows[:10], "Strongest rules"))
    else:
        to.print("No rule got any weight, so there will be no reasons: too little to learn from?")
    n = len(told["rules"])
    to.print(f"{len(rows)} of {n} rules have weight; the encoder's is {told['encoder_weight']:.2f}")
    out = quote(told["bundle"])
    lines = [
        f"\nwritten to {told['bundle']} ({told['size'] / 1e6:.1f} MB); next:",
        f"  loger recommend {out} --user {quote(told['example_user'])} --explain",
        f"  loger rules {out}",
    ]
    to.print("\n".join(lines), markup=False, soft_wrap=True)
