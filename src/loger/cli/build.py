"""``loger data build``: data sets from the tables of a shop, or from raw reviews."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.cli.fit import fit as fit_command
from loger.errors import DataError

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.tables.mapping import TableMapping, UnknownItems


@click.group(cls=options.Group)
def build() -> None:
    """Build a data set from tables or raw reviews."""


extractor_ = click.option(
    "--extractor", metavar="MODULE:FUNCTION", help="Your own function that extracts features."
)
strict_ = click.option("--strict", is_flag=True, help="Stop at the first invalid row.")
fit_ = options.new_file(
    "--fit", "bundle", metavar="BUNDLE", help="Also fit a model, and save it here."
)


@build.command()
@options.file("--reviews", "Reviews, as JSON lines.", required=True)
@options.file("--meta", "The catalogue, as JSON lines.")
@options.out("FOLDER")
@click.option(
    "--preset",
    type=click.Choice(["cellphones", "grocery", "automotive"]),
    help="Settings for a data set of the paper.",
)
@options.settings(
    "A setting, such as min_items=3: user_core, item_core, min_rating, min_mentions, min_items, "
    "hub_share, leave_out, work (folder that keeps intermediate results) or workers (processes)"
)
@extractor_
@options.file("--mentions", "Features you extracted elsewhere: user,item,aspect:opinion:polarity,…")
@options.file("--parts", "The split: a table with user, item and part.")
@strict_
@fit_
@options.force("FOLDER")
@click.pass_context
def amazon(
    ctx: click.Context,
    reviews: Path,
    meta: Path | None,
    out: Path,
    preset: str | None,
    set_: tuple[str, ...],
    extractor: str | None,
    mentions: Path | None,
    parts: Path | None,
    strict: bool,
    bundle: Path | None,
    force: bool,
) -> None:
    """Build a data set from Amazon reviews.

    loger reads the layouts of 2018 and 2023. It skips lines that it can't use and reports how many
    there were. To resume an interrupted build, run the same command again. With `--extractor none`,
    loger extracts no features from the reviews.

    \b
    Examples:
      loger data build amazon --reviews R.json.gz --meta M.json.gz -o shop.loger
      loger data build amazon --reviews Automotive_5.json.gz --meta meta_Automotive.json.gz
        --preset automotive -o automotive.loger
    """
    check_targets(out, bundle, force)
    from loger.engine.settings import overridden, parsed
    from loger.tables.reviews import amazon as builder

    chosen = None if preset is None else builder.preset(preset)
    config = builder.AmazonConfig() if chosen is None else chosen.config
    settings = parsed(set_)
    work, workers = settings.pop("work", None), settings.pop("workers", os.cpu_count() or 1)
    folder = Path(work or out.with_name(out.name + ".work"))
    with show.engine("reading") as engine:
        dataset = builder.build(
            reviews,
            meta,
            work=folder,
            config=overridden(config, settings),
            extractor=None if extractor == "none" else extractor or builder.PATTERNS,
            mentions_file=mentions,
            parts_file=parts,
            strict=strict,
            workers=int(workers),
            name=preset,
            progress=engine.progress,
        )
    dataset.save(out)
    if work is None:
        builder.clear(folder)
    report(dataset, out, None if chosen is None else asdict(chosen.paper), fits=bundle is not None)
    if bundle is not None:
        ctx.invoke(fit_command, path=out, out=bundle, force=force)


def check_targets(out: Path, bundle: Path | None, force: bool) -> None:
    """Check before any work that the data set and the bundle can be saved."""
    from loger.data import saved
    from loger.store.bundle import check_target

    saved.check_target(out, replace=force)
    if bundle is not None:
        check_target(bundle, replace=force)
        if show.wants_json():
            remedy = "run loger fit --json afterwards"
            raise DataError("--fit can't be combined with --json", remedy=remedy)


def report(dataset: Dataset, out: Path, paper: dict[str, int] | None = None, *, fits: bool) -> None:
    """Show what was built, next to the paper's figures if there are any.

    Notes are left to the fit, if one follows.
    """
    from loger.tables.reviews.amazon import count

    ours, notes = asdict(count(dataset)), [asdict(note) for note in dataset.notes]
    if show.wants_json():
        names = [relation.name for relation in dataset.relations]
        built = {"name": dataset.name, "out": str(out), "statistics": ours, "paper": paper}
        show.as_json(built | {"relations": names, "notes": notes})
        return
    to = show.console()
    columns = ["", "here"] + ([] if paper is None else ["in the paper"])
    rows = [[f"#{k}", n, *([] if paper is None else [paper[k]])] for k, n in ours.items()]
    to.print(show.table(columns, rows, dataset.name))
    if fits:
        to.print(f"\nSaved to {out}. Fitting a model …", markup=False, soft_wrap=True)
        return
    if notes:
        to.print(show.notes(notes))
    bundle = quote(str(out.with_suffix(".bundle")))
    to.print(f"\nSaved to {out}. Next:", markup=False, soft_wrap=True)
    to.print(f"  loger fit {quote(str(out))} -o {bundle}", markup=False, soft_wrap=True)


@build.command()
@options.file("--interactions", "Who took what: CSV, TSV, Parquet or JSON lines.")
@options.file("--items", "What you know about items.")
@options.file("--users", "What you know about users.")
@options.vectors("all items")
@options.file("--mapping", "Use this mapping instead of guessing one.", "TOML")
@options.out("FOLDER")
@click.option("--user-column", metavar="NAME", help="Column with user IDs.")
@click.option("--item-column", metavar="NAME", help="Column with item IDs.")
@click.option("--time-column", metavar="NAME", help="Column with times.")
@click.option(
    "--unknown-items",
    type=click.Choice(["keep", "drop"]),
    help="Keep or drop items that --items doesn't list.  [default: keep]",
)
@click.option("--propose", is_flag=True, help="Only write the mapping, so that you can edit it.")
@extractor_
@strict_
@fit_
@options.force("FOLDER")
@click.pass_context
def table(
    ctx: click.Context,
    interactions: Path | None,
    items: Path | None,
    users: Path | None,
    vectors: dict[str, str],
    mapping: Path | None,
    out: Path,
    user_column: str | None,
    item_column: str | None,
    time_column: str | None,
    unknown_items: UnknownItems | None,
    propose: bool,
    extractor: str | None,
    strict: bool,
    bundle: Path | None,
    force: bool,
) -> None:
    """Build a data set from your own tables.

    loger guesses what each column means, shows its guess, and saves it to FOLDER.toml. If a guess
    is wrong, edit that file and build again with --mapping FOLDER.toml.

    \b
    Examples:
      loger data build table --interactions orders.csv --items items.csv -o shop.loger
      loger data build table --mapping shop.loger.toml -o shop.loger --force
      loger data build table --interactions o.csv --items i.csv -o shop.loger --fit shop.bundle
    """
    if not propose:
        check_targets(out, bundle, force)
    if (mapping is None) == (interactions is None):
        raise click.UsageError("give either --interactions or --mapping")
    from loger.tables import table as builder
    from loger.tables.mapping import TableMapping
    from loger.tables.reviews.parts import named_extractor

    more: Any = {} if extractor is None else {"extractor": named_extractor(extractor)}
    with show.working("reading the tables"):
        if mapping is None:
            files = (interactions, items, users)
            mapping = out.with_name(out.name + ".toml")
            columns = {"user": user_column, "item": item_column, "time": time_column}
            more_of_it = {"vectors": vectors, "unknown_items": unknown_items or "keep"}
            chosen = proposed(files, mapping, out.name.split(".")[0], columns, more_of_it)
        else:
            chosen = TableMapping.load(mapping)
            unknown = unknown_items or chosen.unknown_items
            vectors = {**chosen.vectors, **vectors}
            chosen = replace(chosen, vectors=vectors, unknown_items=unknown)
    if not show.wants_json():
        draw(chosen, mapping)
    elif propose:
        show.as_json(asdict(chosen))
    if propose:
        return
    with show.working("building the graph"):
        dataset = builder.build(chosen, strict=strict, **more)
    dataset.save(out)
    report(dataset, out, fits=bundle is not None)
    if bundle is not None:
        ctx.invoke(fit_command, path=out, out=bundle, force=force)


def proposed(
    files: tuple[Path | None, ...],
    out: Path,
    name: str,
    columns: dict[str, Any],
    settings: dict[str, Any],
) -> TableMapping:
    """Guess a mapping and save it to a file; an edited file is never overwritten."""
    from loger.data import frames
    from loger.tables.propose import propose

    tables: Any = [None if file is None else frames.read(file) for file in files]
    proposal = replace(propose(*tables, name=name, files=files, **columns), **settings)
    if out.is_file() and out.read_text(encoding="utf-8") != proposal.toml(out):
        raise DataError(
            "isn't what loger would write now; you may have edited it",
            path=out,
            remedy=f"build with --mapping {quote(str(out))}, or delete the file to start again",
        )
    proposal.save(out)
    return proposal


def draw(mapping: TableMapping, path: Path) -> None:
    """Show a mapping."""
    columns = ["table", "column", "becomes", "relation", "why"]
    to = show.console()
    to.print(show.table(columns, mapping.rows(), "Mapping"))
    to.print(f"interactions are called {mapping.interaction!r}", markup=False)
    to.print(f"Saved to {path}. To change it, edit the file and build again with", markup=False)
    to.print(f"  --mapping {quote(str(path))}\n", markup=False, soft_wrap=True)
