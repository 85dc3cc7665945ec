"""``loger data build``: data sets from the tables of a shop, or from raw reviews."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import click

from loger.cli import options, show
from loger.cli.fit import fit as fit_command
from loger.errors import DataError

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.tables.mapping import TableMapping


@click.group(cls=options.Group)
def build() -> None:
    """Build a data set from tables or raw reviews."""


@dataclass(frozen=True)
class ReviewSettings:
    """What --set takes besides the fields of ``AmazonConfig``."""

    extractor: str | None = "loger.tables.reviews.aspects:mentions"
    mentions: str | None = None
    parts: str | None = None
    strict: bool = False
    work: str | None = None
    workers: int = os.cpu_count() or 1


@dataclass(frozen=True)
class TableSettings:
    """What --set takes for tables."""

    user_column: str | None = None
    item_column: str | None = None
    time_column: str | None = None
    unknown_items: Literal["keep", "drop"] | None = None
    extractor: str | None = None
    strict: bool = False


fit_ = options.new_file(
    "--fit", "bundle", metavar="BUNDLE", help="Also fit a model and save it here."
)


@build.command()
@options.file("--reviews", "Reviews, as JSON lines.", required=True)
@options.file("--meta", "The catalogue, as JSON lines.")
@options.out("FOLDER")
@click.option(
    "--preset",
    type=click.Choice(["cellphones", "grocery", "automotive"]),
    help="Use the settings for one of the paper's data sets.",
)
@options.settings(
    "A setting, such as min_items=3: user_core, item_core, min_rating, min_mentions, min_items, "
    "hub_share, leave_out, extractor (your own MODULE:FUNCTION that extracts features, or none), "
    "mentions (file with features: user,item,aspect:opinion:polarity,…), parts (file with a split: "
    "user, item and part), strict (true: stop at the first invalid row), work (folder for "
    "intermediate results) or workers (number of processes)"
)
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
    bundle: Path | None,
    force: bool,
) -> None:
    """Build a data set from Amazon reviews.

    loger reads the layouts of 2018 and 2023. It skips lines that it can't use and reports how many
    there were. To resume an interrupted build, run the same command again.

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
    given, own = parsed(set_), [field.name for field in fields(ReviewSettings)]
    settings = overridden(ReviewSettings(), {k: given.pop(k) for k in own if k in given})
    folder = Path(settings.work or out.with_name(out.name + ".work"))
    with show.engine("reading") as engine:
        dataset = builder.build(
            reviews,
            meta,
            work=folder,
            config=overridden(config, given),
            extractor=settings.extractor,
            mentions_file=settings.mentions,
            parts_file=settings.parts,
            strict=settings.strict,
            workers=settings.workers,
            name=preset,
            progress=engine.progress,
        )
    dataset.save(out)
    if settings.work is None:
        builder.clear(folder)
    report(dataset, out, None if chosen is None else asdict(chosen.paper), fits=bundle is not None)
    if bundle is not None:
        ctx.invoke(fit_command, path=out, out=bundle, force=force)


def check_targets(out: Path, bundle: Path | None, force: bool) -> None:
    """Check before any work that the data set and the bundle can be saved."""
    from loger.data import saved
    from loger.engine.files import check_target
    from loger.store.bundle import MODEL

    saved.check_target(out, replace=force)
    if bundle is not None:
        check_target(bundle, MODEL, replace=force)
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
@options.file("--interactions", "Who interacted with what, as CSV, TSV, Parquet or JSON lines.")
@options.file("--items", "Facts about items, one row per item.")
@options.file("--users", "Facts about users, one row per user.")
@options.vectors("all items")
@options.file("--mapping", "Use this mapping instead of guessing one.", "TOML")
@options.out("FOLDER")
@options.settings(
    "A setting: user_column, item_column or time_column (columns that loger doesn't recognise), "
    "unknown_items (drop: leave out items that --items doesn't list), extractor (your own "
    "MODULE:FUNCTION that extracts features) or strict (true: stop at the first invalid row)"
)
@click.option("--propose", is_flag=True, help="Write only the mapping, for you to edit.")
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
    set_: tuple[str, ...],
    propose: bool,
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
        raise click.UsageError("pass either --interactions or --mapping")
    from loger.engine.settings import layered
    from loger.tables import table as builder
    from loger.tables.mapping import TableMapping
    from loger.tables.reviews.parts import named_extractor

    settings = layered(TableSettings(), texts=set_)
    more: Any = {"strict": settings.strict}
    if settings.extractor is not None:
        more["extractor"] = named_extractor(settings.extractor)
    with show.working("reading the tables"):
        if mapping is None:
            files = (interactions, items, users)
            mapping = out.with_name(out.name + ".toml")
            chosen = proposed(files, mapping, out.name.split(".")[0], settings, vectors)
        else:
            chosen = TableMapping.load(mapping)
            unknown = settings.unknown_items or chosen.unknown_items
            vectors = {**chosen.vectors, **vectors}
            chosen = replace(chosen, vectors=vectors, unknown_items=unknown)
    if not show.wants_json():
        draw(chosen, mapping)
    elif propose:
        show.as_json(asdict(chosen))
    if propose:
        return
    with show.working("building the graph"):
        dataset = builder.build(chosen, **more)
    dataset.save(out)
    report(dataset, out, fits=bundle is not None)
    if bundle is not None:
        ctx.invoke(fit_command, path=out, out=bundle, force=force)


def proposed(
    files: tuple[Path | None, ...],
    out: Path,
    name: str,
    settings: TableSettings,
    vectors: dict[str, str],
) -> TableMapping:
    """Guess a mapping and save it to a file; an edited file is never overwritten."""
    from loger.data import frames
    from loger.tables.propose import propose

    tables: Any = [None if file is None else frames.read(file) for file in files]
    columns = {kind: getattr(settings, f"{kind}_column") for kind in ("user", "item", "time")}
    proposal = propose(*tables, name=name, files=files, **columns)
    unknown = settings.unknown_items or proposal.unknown_items
    proposal = replace(proposal, vectors=vectors, unknown_items=unknown)
    if out.is_file() and out.read_text(encoding="utf-8") != proposal.toml(out):
        raise DataError(
            "isn't the mapping that loger would write now, perhaps because you edited it",
            path=out,
            remedy=f"to keep it, build with --mapping {quote(str(out))}; to start over, delete it",
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
