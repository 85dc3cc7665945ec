"""``loger data build``: knowledge graphs from raw reviews, or from the tables of a shop."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, PositiveFrom, setting
from loger.errors import DataError

if TYPE_CHECKING:
    from loger.data import Dataset
    from loger.tables.mapping import TableMapping

app = typer.Typer(no_args_is_help=True, help="Build data sets from raw reviews or tables.")

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the data set at FOLDER.")]
Fit = Annotated[
    Path | None,
    setting("Then fit LOGER on it, with all defaults.", "--fit", metavar="BUNDLE"),
]
Name = Annotated[str | None, setting("A name for the data set.")]


@app.command()
def amazon(
    reviews: Annotated[Path, typer.Option(metavar="FILE", help="Reviews, one JSON per line.")],
    out: Out,
    meta: Annotated[Path | None, setting("The catalogue, one JSON per line.")] = None,
    preset: Annotated[
        str | None,
        setting("The settings for a data set of the paper: cellphones, grocery, automotive."),
    ] = None,
    user_core: Annotated[int | None, setting("Minimum number of items of a user (5).")] = None,
    item_core: Annotated[int | None, setting("Minimum number of users of an item (5).")] = None,
    positive_from: PositiveFrom = None,
    least_mentions: Annotated[
        int | None, setting("Minimum number of reviews with a feature (5).")
    ] = None,
    least_styles: Annotated[
        int | None, setting("Minimum number of reviews with a style (5).")
    ] = None,
    least_items: Annotated[
        int | None, setting("Minimum number of items of a brand, category or outside product (2).")
    ] = None,
    hub_share: Annotated[
        float | None,
        setting("Leave out entities that more than this share of items or users have (0.5)."),
    ] = None,
    most_related: Annotated[
        int | None, setting("Maximum number of also_buy and also_view links per item (50).")
    ] = None,
    category_levels: Annotated[int | None, setting("Levels of the category tree (5).")] = None,
    price_bins: Annotated[int | None, setting("Price quantiles per category (5).")] = None,
    leave_out: Annotated[
        list[str] | None, setting("A relation to leave out; may be repeated.")
    ] = None,
    extractor: Annotated[
        str | None,
        setting("Another extractor of features, as module:function; 'none' for no features."),
    ] = None,
    mentions: Annotated[
        Path | None,
        setting("A file of features extracted elsewhere: user,item,aspect:opinion:polarity,…"),
    ] = None,
    parts: Annotated[
        Path | None, setting("A file with the split: a table of user, item and part.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first broken line.")
    ] = False,
    work: Annotated[
        Path | None,
        setting("Keep intermediate results here for later builds (FOLDER.work, then deleted)."),
    ] = None,
    workers: Annotated[int | None, setting("Number of processes (one per core).")] = None,
    fit: Fit = None,
    name: Name = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Build a data set from Amazon reviews.

    The layouts of 2018 and of 2023 are read. To resume an interrupted build, give the same command
    again. Lines that cannot be used are left out, counted and reported.

    \b
    Examples:
      loger data build amazon --reviews R.json.gz --meta M.json.gz --out shop.loger
      loger data build amazon --reviews Automotive_5.json.gz --meta meta_Automotive.json.gz
        --preset automotive --out automotive.loger
    """
    options: dict[str, Any] = {
        "user_core": user_core, "item_core": item_core, "positive_from": positive_from,
        "least_mentions": least_mentions, "least_styles": least_styles, "least_items": least_items,
        "hub_share": hub_share, "most_related": most_related, "category_levels": category_levels,
        "price_bins": price_bins, "leave_out": tuple(leave_out) if leave_out else None,
    }  # fmt: skip
    check_targets(out, fit, force, json)
    from loger.cli import show
    from loger.tables.reviews import amazon as builder
    from loger.tables.reviews.amazon import preset as named

    chosen = None if preset is None else named(preset)
    config = builder.AmazonConfig() if chosen is None else chosen.config
    folder = work or out.with_name(out.name + ".work")
    with show.engine("reading") as engine:
        dataset = builder.build(
            reviews,
            meta,
            work=folder,
            config=replace(config, **{k: v for k, v in options.items() if v is not None}),
            extractor=None if extractor == "none" else extractor or builder.PATTERNS,
            mentions_file=mentions,
            parts_file=parts,
            strict=strict,
            workers=workers or os.cpu_count() or 1,
            name=name or preset,
            progress=engine.progress,
        )
    dataset.save(out)
    if work is None:
        builder.clear(folder)
    tell(dataset, out, json, None if chosen is None else asdict(chosen.paper), fits=fit is not None)
    fit_too(out, fit, force)


def check_targets(out: Path, bundle: Path | None, force: bool, json: bool) -> None:
    """Refuse what would stop the save or the fit before anything is built."""
    from loger.data import saved
    from loger.store.bundle import check_target

    saved.check_target(out, replace=force)
    if bundle is not None:
        check_target(bundle, replace=force)
        if json:
            raise DataError(
                "--fit does not work with --json", remedy="run loger fit --json after it"
            )


def fit_too(out: Path, bundle: Path | None, force: bool) -> None:
    """Fit a model on what was built, if asked: the command after this one is ``recommend``."""
    from loger.cli import fit

    if bundle is not None:
        fit.fit(out, bundle, force=force)


def tell(
    dataset: Dataset, out: Path, json: bool, paper: dict[str, int] | None = None, *, fits: bool
) -> None:
    """Show what was built, beside the paper's figures if there are any, and the notes, unless a
    fit comes next, which tells them."""
    from loger.cli import show
    from loger.tables.reviews.amazon import count

    ours = asdict(count(dataset))
    if json:
        notes = [asdict(note) for note in dataset.notes]
        names = [relation.name for relation in dataset.relations]
        built = {"name": dataset.name, "out": str(out), "statistics": ours, "paper": paper}
        show.as_json(built | {"relations": names, "notes": notes})
        return
    to = show.console()
    columns = ["", "here"] + ([] if paper is None else ["in the paper"])
    rows = [[f"#{k}", n, *([] if paper is None else [paper[k]])] for k, n in ours.items()]
    to.print(show.table(columns, rows, dataset.name))
    if fits:
        to.print(f"\nwritten to {out}; now fitting", markup=False, soft_wrap=True)
        return
    if dataset.notes:
        notes_table = [(n.count, n.what, n.example) for n in dataset.notes]
        head = ["rows", "what was found and how it was handled", "first"]
        to.print(show.table(head, notes_table, "\nNotes"))
    bundle = quote(str(out.with_suffix(".bundle")))
    next_ = f"loger fit {quote(str(out))} -o {bundle}"
    to.print(f"\nwritten to {out}; next: {next_}", markup=False, soft_wrap=True)


@app.command()
def table(
    out: Out,
    interactions: Annotated[
        Path | None,
        setting("Table of interactions: CSV, TSV, Parquet or JSON lines.", metavar="FILE"),
    ] = None,
    items: Annotated[Path | None, setting("Table of items.", metavar="FILE")] = None,
    users: Annotated[Path | None, setting("Table of users.", metavar="FILE")] = None,
    mapping: Annotated[
        Path | None, setting("A mapping to use instead of proposing one.", metavar="TOML")
    ] = None,
    user: Annotated[str | None, setting("The column with the user's id.")] = None,
    item: Annotated[str | None, setting("The column with the item's id.")] = None,
    time: Annotated[str | None, setting("The column that says when it was.")] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="Only write the mapping, for you to edit.")
    ] = False,
    extractor: Annotated[
        str | None, setting("Another extractor of features from texts, as module:function.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first broken row.")] = False,
    fit: Fit = None,
    name: Name = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Build a data set from any tables.

    Proposes what each column becomes, shows it, and writes it to FOLDER.toml. If the proposal is
    wrong, edit that file and build again with --mapping FOLDER.toml.

    \b
    Examples:
      loger data build table --interactions orders.csv --items items.csv --out shop.loger
      loger data build table --mapping shop.loger.toml --out shop.loger --force
      loger data build table --interactions o.csv --items i.csv --out shop.loger --fit shop.bundle
    """
    if not propose:
        check_targets(out, fit, force, json)
    if (mapping is None) == (interactions is None):
        raise DataError("give either --interactions or --mapping", remedy="see --help")
    from loger.cli import show
    from loger.tables import table as builder
    from loger.tables.reviews.parts import named_extractor

    more: dict[str, Any] = {}
    if extractor is not None:
        more["extractor"] = named_extractor(extractor)
    with show.working("reading the tables"):
        if mapping is None:
            files = (interactions, items, users)
            mapping = out.with_name(out.name + ".toml")
            columns = {"user": user, "item": item, "time": time}
            chosen = proposed(files, mapping, name or out.name.split(".")[0], columns)
        else:
            chosen = existing(mapping, name)
    if not json:
        draw(chosen, mapping)
    elif propose:
        show.as_json(asdict(chosen))
    if propose:
        return
    with show.working("making the graph"):
        dataset = builder.build(chosen, strict=strict, **more)
    dataset.save(out)
    tell(dataset, out, json, fits=fit is not None)
    fit_too(out, fit, force)


def proposed(
    files: tuple[Path | None, ...], out: Path, name: str, columns: dict[str, Any]
) -> TableMapping:
    """A proposal of what the columns of interactions, items and users become, kept in a file."""
    from loger.data import frames
    from loger.engine.files import write_text
    from loger.tables import mapping
    from loger.tables.propose import propose

    tables: Any = [None if file is None else frames.read(file) for file in files]
    proposal = propose(*tables, name=name, files=files, **columns)
    before = out.read_text(encoding="utf-8") if out.is_file() else None
    if before not in (None, mapping.toml_of(proposal, out)):
        kept = out.with_name(out.name + ".old")
        write_text(kept, before or "")  # first, for it may have been edited by hand
        typer.echo(f"note: the mapping that was in {out} is kept in {kept}", err=True)
    mapping.write(proposal, out)
    return proposal


def existing(path: Path, name: str | None) -> TableMapping:
    """The mapping in a file, under another name if one is given."""
    from loger.tables import mapping

    found = mapping.read(path)
    return replace(found, name=name or found.name)


def draw(mapping: TableMapping, path: Path) -> None:
    """Show a mapping."""
    from loger.cli import show

    columns = ["table", "column", "becomes", "relation", "why"]
    to = show.console()
    to.print(show.table(columns, mapping.rows(), "Mapping"))
    to.print(f"what users do is called {mapping.interaction!r}", markup=False)
    remedy = f"edit it and build with --mapping {quote(str(path))}"
    to.print(f"in {path}; {remedy}\n", markup=False, soft_wrap=True)
