"""``loger fit``: learn a model from a data set and keep it."""

from __future__ import annotations

import shutil
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

if TYPE_CHECKING:
    from loger.data import Split
    from loger.model import LOGER, LOGERConfig

INTERRUPTED = 130


def fit(
    path: Source,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="BUNDLE", help="The folder to write.")
    ],
    preset: Annotated[
        Literal["default", "paper"],
        typer.Option(help="Our best settings, or the paper's."),
    ] = "default",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="A file of settings: seed, sample_nodes, and tables mining, em, em.walk, encoder.",
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
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle at BUNDLE.")] = False,
    format: Format = None,
    positive_from: PositiveFrom = None,
    json: AsJson = False,
) -> None:
    """Fit LOGER on a data set and write it as a bundle.

    Rules are mined and the encoder is trained on train, rule weights are learned from validation,
    then the encoder learns from both. The test part is not looked at. To resume an interrupted
    fit, give the same command again. Flags win over --set, and --set wins over the file.

    \b
    Examples:
      loger fit my-shop -o my-shop.bundle
      loger fit my-shop -o paper.bundle --preset paper --set em.rounds=2
      loger fit my-shop -o my-shop.bundle --config settings.toml --seed 7
    """
    from loger.bundle import check_target

    check_target(out, replace=force)
    chosen = chosen_config(preset, config, set_, seed)
    dataset = read(path, format, positive_from)
    from loger.data import split
    from loger.evaluation.fit_record import FitRecord, fit_summary

    options = {"how": how, "test": test, "validation": validation, "seed": split_seed}
    parts = split(dataset, **options)  # type: ignore[arg-type]
    for note in (*dataset.notes, chosen.mining.lowered(len(parts.train))):
        if note:
            typer.echo(f"note: {note}", err=True)
    checkpoint = out.with_name(out.name + ".unfinished")
    model = fitted(parts, chosen, checkpoint, "LOGER" if preset == "default" else "LOGER (paper)")
    model.save(out)
    FitRecord(str(path), format, positive_from, dataset.name, preset, options, model.tried_).write(
        out
    )
    shutil.rmtree(checkpoint, ignore_errors=True)
    from loger.cli import show

    show.result(fit_summary(model, out), draw, json)


def chosen_config(
    preset: str, file: Path | None, texts: list[str], seed: int | None
) -> LOGERConfig:
    """The settings of a preset, changed by file, then texts, then flags."""
    from loger.model import LOGERConfig
    from loger.settings import layered

    base = LOGERConfig.paper() if preset == "paper" else LOGERConfig()
    return layered(base, file, texts, {} if seed is None else {"seed": seed})


def fitted(split: Split, config: LOGERConfig, checkpoint: Path, name: str) -> LOGER:
    """A fitted model; an interrupt keeps what is done so far, and says how to resume."""
    from loger.cli import show
    from loger.model import LOGER

    try:
        with show.engine(show.COMPILING) as engine:
            model = LOGER(config, name=name)
            return model.fit(split, checkpoint=checkpoint, progress=engine.progress)
    except KeyboardInterrupt:
        kept = f"what is done is kept in {checkpoint}; " if checkpoint.is_dir() else ""
        typer.echo(f"interrupted; {kept}to resume, give the same command again", err=True)
        raise typer.Exit(INTERRUPTED) from None
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
    to.print(f"{len(rows)} of {len(rules)} rules have weight; {weight}")
    out = quote(summary["bundle"])
    lines = [
        f"\nwritten to {summary['bundle']} ({summary['size'] / 1e6:.1f} MB); next:",
        f"  loger recommend {out} --user {quote(summary['example_user'])} --explain",
        f"  loger rules {out}",
    ]
    to.print("\n".join(lines), markup=False, soft_wrap=True)
