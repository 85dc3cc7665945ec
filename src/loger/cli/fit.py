"""``loger fit``: learn a model from a data set and keep it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loger.cli.options import (
    INTERRUPTED,
    AsJson,
    EngineName,
    Format,
    How,
    PositiveFrom,
    Source,
    TestShare,
    ValidationShare,
    on_ranks,
    read,
)

if TYPE_CHECKING:
    from loger.data import Split
    from loger.engine import Engine
    from loger.evaluation.evaluate import FitRecord
    from loger.model import LOGER, LOGERConfig


@on_ranks
def fit(
    path: Source,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="BUNDLE", help="The folder to write.")
    ],
    preset: Annotated[
        Literal["default", "paper", "paper-literal"],
        typer.Option(
            help="Our best settings; the paper's model with its encoder well trained; or with the "
            "published rates."
        ),
    ] = "default",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="A file of settings: seed, sample_nodes, explain_by, and tables mining, em, "
            "em.walk, encoder, reasoner, search.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="PATH=VALUE", help="A setting, such as em.rounds=3."),
    ] = [],  # noqa: B006
    seed: Annotated[
        int | None, typer.Option(help="Seed of the fit (0).", show_default=False)
    ] = None,
    how: How = "auto",
    test: TestShare = 0.2,
    validation: ValidationShare = 0.1,
    split_seed: Annotated[int, typer.Option(help="Seed of a random split.")] = 0,
    hold_out: Annotated[
        bool,
        typer.Option(
            "--hold-out",
            help="Keep the test part unknown to the model, for research: loger evaluate measures "
            "on it. Without this, the model is measured and then learns from everything.",
        ),
    ] = False,
    warm_from: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE",
            help="Begin from this bundle's vectors, and keep its settings, rules and weights.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle at BUNDLE.")] = False,
    engine: EngineName = "threads",
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Fit LOGER on a data set and write it as a bundle.

    Each user's latest items are held out: rules, their weights and all settings are learned from
    the others, and what that model foresees of the held-out items is printed. Then the model learns
    from everything, and is written. With --hold-out it is written before it does. To resume an
    interrupted fit, give the same command again. Flags win over --set, and --set wins over the
    file.

    \b
    Examples:
      loger fit my-shop -o my-shop.bundle
      loger fit my-shop -o paper.bundle --preset paper --set em.rounds=2
      loger fit my-shop -o my-shop.bundle --config settings.toml --seed 7
      loger fit my-shop -o my-shop.bundle --force --warm-from my-shop.bundle
      loger fit my-shop -o research.bundle --hold-out
      torchrun --nproc-per-node 4 -m loger fit my-shop -o my-shop.bundle
    """
    from loger.engine import engine_named
    from loger.store.bundle import check_target

    check_target(out, replace=force)
    works_on = engine_named(engine)
    if warm_from is not None and (preset != "default" or config or set_ or seed is not None):
        raise typer.BadParameter("--warm-from keeps the settings of its bundle; leave others out")
    chosen = chosen_config(preset, config, set_, seed)
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data import split
    from loger.evaluation.evaluate import FitRecord, fit_summary

    options = {"how": how, "test": test, "validation": validation, "seed": split_seed}
    parts = split(dataset, **options)  # type: ignore[arg-type]
    for note in (*dataset.notes, chosen.mining.lowered(len(parts.train))):
        if note:
            typer.echo(f"note: {show.plain(note)}", err=True)
    typer.echo(f"split: {parts.why}", err=True)
    begun = None if warm_from is None else str(warm_from)
    told = FitRecord(str(path), format, positive_from, dataset.name, preset, options)
    told = replace(told, warm_from=begun, hold_out=hold_out)
    model = written(parts, chosen, out, told, works_on)
    show.result(fit_summary(model, out) | {"split": parts.why}, draw, json)


def chosen_config(
    preset: str, file: Path | None, texts: list[str], seed: int | None
) -> LOGERConfig:
    """The settings of a preset, changed by file, then texts, then flags."""
    from loger.engine.settings import layered
    from loger.model import LOGERConfig

    presets = {"paper": LOGERConfig.paper, "paper-literal": LOGERConfig.paper_literal}
    base = presets.get(preset, LOGERConfig)()
    return layered(base, file, texts, {} if seed is None else {"seed": seed})


def written(
    split: Split, config: LOGERConfig, out: Path, record: FitRecord, works_on: Engine
) -> LOGER:
    """A fitted model, saved; a second fit that would write to the same place is refused."""
    from loger.engine.files import claim

    out.parent.mkdir(parents=True, exist_ok=True)
    with claim(out, "fit"):
        checkpoint = out.with_name(out.name + ".unfinished")
        name = "LOGER" if record.preset == "default" else f"LOGER ({record.preset})"
        model = fitted(
            split,
            config,
            checkpoint,
            name,
            works_on,
            hold_out=record.hold_out,
            warm_from=record.warm_from,
        )
        from loger.encoder.distributed import current

        record = replace(record, tried=model.tried_, ranks=current().size)
        model.save(out, record=asdict(record))
        shutil.rmtree(checkpoint, ignore_errors=True)
    return model


def fitted(
    split: Split,
    config: LOGERConfig,
    checkpoint: Path,
    name: str,
    works_on: Engine,
    *,
    hold_out: bool,
    warm_from: str | None = None,
) -> LOGER:
    """A fitted model; an interrupt keeps what is done so far, and says how to resume."""
    from loger.cli import show
    from loger.errors import LogerError
    from loger.model import LOGER

    begun = checkpoint.exists()
    try:
        with show.engine(on=works_on) as engine:
            before = None if warm_from is None else LOGER.load(warm_from)
            chosen = config if before is None else before.config_
            model, drawn = LOGER(chosen, name=name, engine=engine), engine.progress
            how: dict[str, Any] = {"hold_out": hold_out, "warm_from": before}
            return model.fit(split, **how, checkpoint=checkpoint, progress=drawn)
    except KeyboardInterrupt:
        kept = f"what is done is kept in {checkpoint}; " if checkpoint.is_dir() else ""
        typer.echo(f"interrupted; {kept}to resume, give the same command again", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except LogerError:
        if not begun:  # what was trained beside it is of no use to data that cannot be fitted
            shutil.rmtree(checkpoint, ignore_errors=True)
        raise
    finally:
        with suppress(OSError):  # an empty folder is of no use
            checkpoint.rmdir()


def draw(summary: dict[str, Any]) -> None:
    """Show what was learned and what to do next."""
    from shlex import quote

    from loger.cli import show

    to, rules = show.console(), summary["rules"]
    rows = [(f"{r['weight']:.2f}", r["sentence"]) for r in rules if r["weight"] > 0]
    if rows:
        to.print(show.table(["weight", "rule"], rows[:10], "Strongest rules"))
    else:
        to.print("No rule got any weight, so there will be no reasons: are the data too few?")
    weight = f"the encoder's weight is {summary['encoder_weight']:.2f}"
    made = summary["made"]
    of = f"{len(rows) - made} of {summary['kept']} mined rules have weight"
    of += f", and {made} over relations made from the interactions" if made else ""
    to.print(f"{of}; {weight}", soft_wrap=True)
    to.print(summary["mining"], markup=False, soft_wrap=True)
    to.print(summary["story"], markup=False, soft_wrap=True)
    out = quote(summary["bundle"])
    lines = [
        f"\nwritten to {summary['bundle']} ({summary['size'] / 1e6:.1f} MB); next:",
        f"  loger recommend {out} --user {quote(summary['example_user'])} --explain",
        f"  loger rules {out}",
        f"  loger serve {out}",
    ]
    to.print("\n".join(lines), markup=False, soft_wrap=True)
