"""``loger fit``: learn a model from a data set and keep it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.cli.options import INTERRUPTED
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.config import LOGERConfig
    from loger.data import Split
    from loger.encoder import Encoder
    from loger.engine import Engine
    from loger.evaluation.evaluate import FitRecord
    from loger.model import LOGER


@options.command()
@options.source
@options.out("BUNDLE", "Folder for the fitted model.")
@click.option(
    "--preset",
    type=click.Choice(["default", "paper", "paper-literal"]),
    default="default",
    help="Our settings, the paper's model, or the paper's model with its published learning rates.",
)
@options.encoder
@options.file("--config", "A file with settings.", "TOML")
@options.settings("A setting, such as seed=7 or em.rounds=3")
@click.option(
    "--hold-out",
    is_flag=True,
    help="Don't learn from the test part, so that loger evaluate can test the model on it.",
)
@options.file(
    "--warm-from", "Start from this bundle; keep its settings, rules and weights.", "BUNDLE"
)
@options.force("BUNDLE")
@options.min_rating
@options.on_ranks
def fit(
    path: Path,
    out: Path,
    preset: str,
    encoder: str,
    config: Path | None,
    set_: tuple[str, ...],
    hold_out: bool,
    warm_from: Path | None,
    force: bool,
    min_rating: float | None,
) -> None:
    """Fit a model to a data set and save it as a bundle.

    PATH is a folder in any format that loger reads, or a single interactions.csv. loger first holds
    out each user's latest interactions and reports how well the model predicts them; then it learns
    from all data. To choose the split yourself, run `loger data split` first. To resume an
    interrupted fit, run the same command again.

    \b
    Examples:
      loger fit my-shop -o my-shop.bundle
      loger fit my-shop -o paper.bundle --preset paper --set em.rounds=2
      loger fit my-shop -o my-shop.bundle --config settings.toml --set seed=7
      loger fit my-shop -o my-shop.bundle --encoder kge:RotatE
      loger fit my-shop -o my-shop.bundle --force --warm-from my-shop.bundle
      loger fit my-shop -o research.bundle --hold-out
      torchrun --nproc-per-node 4 -m loger fit my-shop -o my-shop.bundle
    """
    from loger.config import PRESETS
    from loger.encoder import encoder_named
    from loger.engine.files import check_target
    from loger.engine.settings import layered
    from loger.store.bundle import MODEL

    check_target(out, MODEL, replace=force)
    works_on = show.engine_named()
    other = preset != "default" or encoder != "transe"
    if warm_from is not None and (other or config or set_):
        raise click.UsageError(
            "--warm-from keeps the settings of its bundle; remove --preset, --encoder, --config "
            "and --set"
        )
    chosen = layered(PRESETS[preset](), config, set_)
    make = None if encoder == "transe" else encoder_named(encoder, seed=chosen.seed)
    dataset = options.read(path, None, min_rating)
    from loger.data import split
    from loger.evaluation.evaluate import FitRecord, fit_summary

    split_seed = chosen.seed
    if warm_from is not None:
        split_seed = FitRecord.read(warm_from).split.get("seed", 0)
    parts = split(dataset, seed=split_seed)
    for note in (*dataset.notes, chosen.mining.lowered(len(parts.train))):
        if note:
            show.say(f"note: {note}", err=True)
    click.echo(f"split: {parts.why}", err=True)
    record = FitRecord(
        data=str(path),
        min_rating=min_rating,
        name=dataset.name,
        preset=preset,
        split={"seed": split_seed},
        warm_from=None if warm_from is None else str(warm_from),
        hold_out=hold_out,
    )
    model = _fitted(parts, chosen, make, works_on, out, record)
    show.result(fit_summary(model, out) | {"split": parts.why}, draw)


def _fitted(
    parts: Split,
    config: LOGERConfig,
    encoder: Callable[[], Encoder] | None,
    works_on: Engine,
    out: Path,
    record: FitRecord,
) -> LOGER:
    """Fit a model and save it, unless another process is writing to the same path."""
    from loger.encoder.distributed import current
    from loger.engine.files import claim
    from loger.model import LOGER

    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = out.with_name(out.name + ".unfinished")
    with claim(out, "fit"):
        with _resumable(checkpoint), show.engine(on=works_on) as engine:
            before = None if record.warm_from is None else LOGER.load(record.warm_from)
            name = "LOGER" if record.preset == "default" else f"LOGER ({record.preset})"
            chosen = before.config_ if before else config
            model = LOGER(chosen, encoder=encoder, name=name, engine=engine)
            more: Any = {"checkpoint": checkpoint, "progress": engine.progress}
            model.fit(parts, hold_out=record.hold_out, warm_from=before, **more)
        record = replace(record, tried=model.tried_, ranks=current().size)
        model.save(out, record=asdict(record))
        shutil.rmtree(checkpoint, ignore_errors=True)
    return model


@contextmanager
def _resumable(checkpoint: Path) -> Iterator[None]:
    """After an interrupt, keep the checkpoint and explain how to resume."""
    begun = checkpoint.exists()
    try:
        yield
    except KeyboardInterrupt:
        kept = f"progress is saved in {checkpoint}; " if checkpoint.is_dir() else ""
        click.echo(f"interrupted; {kept}run the same command to resume", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except LogerError:
        if not begun:  # the same data would fail again, so a checkpoint is of no use
            shutil.rmtree(checkpoint, ignore_errors=True)
        raise
    finally:
        with suppress(OSError):  # removes the folder only if it is empty
            checkpoint.rmdir()


def draw(summary: dict[str, Any]) -> None:
    """Show what was learned and what to do next."""
    to, rules = show.console(), summary["rules"]
    rows = [(f"{r['weight']:.2f}", r["sentence"]) for r in rules if r["weight"] > 0]
    if rows:
        to.print(show.table(["weight", "rule"], rows[:10], "Strongest rules"))
    else:
        to.print("No rule has any weight, so there are no reasons. The data set may be too small.")
    made = summary["made"]
    counts = f"{len(rows) - made} of {summary['kept']} mined rules have weight"
    counts += f", plus {made} over relations derived from interactions" if made else ""
    to.print(f"{counts}; the encoder's weight is {summary['encoder_weight']:.2f}")
    to.print(summary["mining"], markup=False)
    to.print(summary["story"], markup=False)
    out = quote(summary["bundle"])
    lines = [
        f"\nSaved to {summary['bundle']} ({summary['size'] / 1e6:.1f} MB). Next:",
        f"  loger recommend {out} {quote(summary['example_user'])} --explain",
        f"  loger rules {out}",
        f"  loger serve {out}",
    ]
    to.print("\n".join(lines), markup=False, soft_wrap=True)
