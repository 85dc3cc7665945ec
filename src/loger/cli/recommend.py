"""``loger recommend``, ``explain``, ``why-not``, ``what-if``: questions to a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loger.cli.options import (
    INTERRUPTED,
    AsJson,
    Bundle,
    Language,
    Length,
    WordingFile,
    named,
    opened,
)
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.model import LOGER
    from loger.ranking.selection import Selection
    from loger.rules.wording import Wording

User = Annotated[str, typer.Argument(help="The user's name or label.", show_default=False)]
Item = Annotated[str, typer.Argument(help="The item's name or label.", show_default=False)]
Names = Annotated[list[str], typer.Option(metavar="ITEM", help="May be repeated.")]
Paths = Annotated[int, typer.Option(min=0, metavar="N", help="Also show the strongest N paths.")]
Style = Annotated[
    Literal["tile", "sentence", "debug"],
    typer.Option(help="How much reasons say: a few words, plain sentences, or every number."),
]
MANY = 1000
"""Users from which on it pays to start processes that explain their lists."""
SHOWN_HISTORY = 8
REASONED_PATHS = 3
"""Paths of the reasoner that are shown unless --paths says otherwise."""


def recommend(
    bundle: Bundle,
    user: Annotated[list[str], typer.Option(help="A user; may be repeated.")] = [],  # noqa: B006
    has: Annotated[
        list[str],
        typer.Option(
            metavar="ITEM",
            help="Someone new, by what they have; may be repeated, the earliest first.",
        ),
    ] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="All users; needs --out FILE.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a table to this file, .parquet, .csv or .jsonl; or, without such an "
            "ending, to a folder of Parquet files, which can be resumed.",
            show_default=False,
        ),
    ] = None,
    k: Length = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Give reasons.")] = False,
    paths: Paths = 0,
    include: Annotated[
        list[str],
        typer.Option(
            metavar="FILTER",
            help="Only items that fit, such as genre=jazz or price<10; several: all of them, but "
            "of values of one column one.",
        ),
    ] = [],  # noqa: B006
    exclude: Annotated[
        list[str], typer.Option(metavar="FILTER", help="No items that fit; may be repeated.")
    ] = [],  # noqa: B006
    mask: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE",
            help="Name the items listed in a file, for filters such as mask=NAME.",
        ),
    ] = [],  # noqa: B006
    diversity: Annotated[
        float, typer.Option(min=0, max=1, help="Hold back items like those above them.")
    ] = 0.0,
    at_most: Annotated[
        list[str],
        typer.Option(metavar="NAME=N", help="At most N of a kind, such as has_brand=2."),
    ] = [],  # noqa: B006
    language: Language = None,
    wording: WordingFile = None,
    style: Style = "sentence",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Where the work runs: threads[=N], processes[=N], ray or ray=ADDRESS. Default: "
            "processes to explain the lists of many users, threads for all else.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Recommend new items to users, best first.

    With --explain, each item comes with the user's actions that speak for it and what each gives,
    measured against the average item.

    A filter is made of facts, AND, OR, NOT and brackets: "genre=jazz AND NOT brand=Acme". A name is
    that of a relation or of a type of entities, item, or mask.

    \b
    Examples:
      loger recommend my-shop.bundle --user ann --explain
      loger recommend my-shop.bundle --has "Desk lamp" --has "Oak shelf" --explain
      loger recommend my-shop.bundle --user ann --include "category=lamps AND NOT brand=Acme"
      loger recommend my-shop.bundle --user ann --mask stock=stock.csv --include mask=stock
      loger recommend my-shop.bundle --user ann --diversity 0.3 --at-most has_brand=2
      loger recommend my-shop.bundle --user ann --explain --language de
      loger recommend my-shop.bundle --user ann --explain --paths 3
      loger recommend my-shop.bundle --all --out lists.parquet -k 20
      loger recommend my-shop.bundle --all --out lists --explain --engine ray
      loger recommend my-shop.bundle --user ann --json | jq '.[0].items'
    """
    if bool(user) + bool(has) + every != 1:
        raise LogerError(
            "give one of these: --user NAME; --has ITEM for someone new; --all with --out FILE"
        )
    if every and out is None:
        raise LogerError("--all needs --out FILE")
    if paths and (not explain or out is not None):
        raise LogerError("--paths needs --explain, and goes without --out FILE")
    if out is not None and out.suffix:
        from loger.store.export import check_format

        check_format(out)
    words = _words(language, wording, style)
    model = opened(bundle, engine or "threads")
    selection = _selection(model, include, exclude, mask, diversity, at_most)
    if has:
        model, newcomer = _with_someone_new(model, has)
        user = [newcomer]
    users = model.users if every else [named(model, "user", name) for name in user]
    if out is not None:
        if engine is None and explain and len(users) > MANY:
            from loger.engine import engine_named

            model.engine = engine_named("processes")  # finding reasons holds the GIL
        _export(model, users, out, k, explain, selection, words, json)
        return
    lists = [_list(model, name, k, explain, paths, selection, words) for name in users]
    from loger.cli import show

    if json:
        show.as_json(lists)
        return
    for one in lists:
        _draw(model, one, explain, words)


def _with_someone_new(model: LOGER, items: list[str]) -> tuple[LOGER, str]:
    """The model with a user who has these items, and what that user is called."""
    name, known = "someone new", model.graph_.vocabulary.ids("user")
    while name in known:
        name += "'"
    names = list(dict.fromkeys(named(model, "item", item) for item in items))
    times = None if model.graph_.times is None else range(len(names))
    return model.with_interactions([(name, item) for item in names], times), name


def explain(
    bundle: Bundle,
    user: User,
    item: Item,
    paths: Paths = 0,
    by: Annotated[
        Literal["contributions", "reasoner"] | None,
        typer.Option(
            help="By what each action adds to the score, or by the paths that the paper's "
            "reasoner finds. Default: as the bundle was fitted.",
            show_default=False,
        ),
    ] = None,
    language: Language = None,
    wording: WordingFile = None,
    style: Style = "sentence",
    counterfactual: Annotated[
        bool,
        typer.Option(
            "--counterfactual",
            help="Also say without which few actions the item would not be among the ten best.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Explain an item's score for a user.

    Shows the user's actions that speak for it, the largest first, and what else its lead over the
    average item is made of. With --paths N also the score by rules and the strongest paths. A model
    of the preset paper shows the paths that its reasoner finds, or that it missed.

    \b
    Examples:
      loger explain my-shop.bundle ann torch
      loger explain my-shop.bundle ann torch --paths 3 --counterfactual
      loger explain paper.bundle ann torch --by reasoner
    """
    words = _words(language, wording, style)
    model = opened(bundle)
    from loger.cli import show

    names = named(model, "user", user), named(model, "item", item)
    reasoned = (by or model.config_.explain_by) == "reasoner"
    record = (
        model.explain(*names, paths or REASONED_PATHS, by="reasoner", wording=words).as_dict()
        if reasoned
        else model.explain(*names, paths, wording=words).as_dict()
    )
    has = record["item"] in model.owned(record["user"])
    without = model.counterfactual(*names, wording=words) if counterfactual else None
    if json:
        more = {} if without is None else {"counterfactual": without.as_dict()}
        show.as_json(record | {"owned": has} | more)
        return
    (record,) = _titled(model, [record])
    label, to = _label(model, "user", record["user"]), show.console()
    if has:
        note = "so it is never recommended; this is its score as if it were new"
        to.print(f"{label} has {record['label']} already, {note}", markup=False, soft_wrap=True)
    to.print(show.reasoned(record, label) if reasoned else show.explanation(record, label, words))
    if without is not None:
        to.print(str(without), markup=False, soft_wrap=True)


def why_not(
    bundle: Bundle,
    user: User,
    item: Item,
    k: Length = 10,
    language: Language = None,
    wording: WordingFile = None,
    json: AsJson = False,
) -> None:
    """Explain why an item is not in a user's list.

    \b
    Example:
      loger why-not my-shop.bundle ann bulb -k 3
    """
    words = _words(language, wording)
    model = opened(bundle)
    names = named(model, "user", user), named(model, "item", item)
    answer = model.why_not(*names, k, wording=words)
    from loger.cli import show

    if json:
        show.as_json(answer.as_dict())
        return
    to = show.console()
    to.print(str(answer), markup=False, soft_wrap=True)
    if not answer.owned:
        (record,) = _titled(model, [answer.explanation.as_dict() | {"paths": []}])
        to.print(show.explanation(record, "", words))


def what_if(
    bundle: Bundle,
    user: User,
    remove: Names = [],  # noqa: B006
    add: Names = [],  # noqa: B006
    k: Length = 10,
    json: AsJson = False,
) -> None:
    """Show a user's list with fewer or more items in its history.

    Nothing is retrained.

    \b
    Examples:
      loger what-if my-shop.bundle ann --remove mug
      loger what-if my-shop.bundle ann --add torch --add bulb -k 5
    """
    if not remove and not add:
        raise LogerError("give --remove ITEM or --add ITEM")
    model = opened(bundle)
    from loger.cli import show
    from loger.explain.questions import check_change, history_names

    name = named(model, "user", user)
    mine = {model.graph_.vocabulary.id("item", item) for item in history_names(model.graph_, name)}
    removed = [named(model, "item", text, mine) for text in remove]
    added = [named(model, "item", text) for text in add]
    check_change(model.graph_, name, removed, added)
    answer = model.what_if(name, removed, added, k).as_dict()
    if json:
        show.as_json(answer)
    else:
        show.console().print(_change_table(model, answer))


# ── inside ──────────────────────────────────────────────────────────────────────────────


def _change_table(model: LOGER, answer: dict[str, Any]) -> Any:
    """The list after a change, with how far each item moved, and what is gone."""
    from loger.cli import show

    places = {name: k for k, name in enumerate(answer["before"])}
    rows = []
    for k, (name, score) in enumerate(zip(answer["after"], answer["scores"], strict=True)):
        step = places.get(name, k) - k
        move = f"{'↑' if step > 0 else '↓'} {abs(step)}" if step else ""
        move = move if name in places else "new"
        rows.append((str(k + 1), _label(model, "item", name), f"{score:.3f}", move))
    rows += [("–", _label(model, "item", name), "–", "gone") for name in answer["gone"]]
    return show.table(["rank", "item", "score", "change"], rows)


def _label(model: LOGER, kind: str, name: str) -> str:
    words = model.graph_.vocabulary
    return str(words.shown[words.id(kind, name)])


def _titled(model: LOGER, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of items with labels that tell them apart, to be shown."""
    return [row | {"label": _label(model, "item", row["item"])} for row in rows]


def _words(language: str | None, wording: Path | None, style: str | None = None) -> Wording:
    from loger.rules.wording import wording_of

    return wording_of(language, wording, style)


def _selection(
    model: LOGER,
    include: list[str],
    exclude: list[str],
    masks: list[str],
    diversity: float,
    at_most: list[str],
) -> Selection:
    """Filters and wishes for variety, as options give them."""
    from loger.ranking.selection import limits_of, select

    files = {}
    for text in masks:
        from loger.data.table_files import read_item_list  # tables, which nothing else here needs

        name, _, path = text.partition("=")
        if not name or not path:
            raise LogerError(f"--mask takes NAME=FILE, such as stock=stock.csv, got {text!r}")
        files[name] = set(read_item_list(path))
    limits = limits_of(at_most)
    wishes = {"diversity": diversity, "at_most": limits, "masks": files}
    return select(model.graph_, include, exclude, catalogue=model.catalogue_, **wishes)  # type: ignore[arg-type]


def _list(
    model: LOGER,
    user: str,
    k: int,
    explained: bool,
    paths: int,
    selection: Selection,
    words: Wording,
) -> dict[str, Any]:
    """One user's list, as plain values."""
    from loger.explain.lists import ListRequest, recommendations
    from loger.explain.questions import history_names

    number = model.graph_.vocabulary.id("user", user)
    request = ListRequest(k, selection, explained, paths, words)
    rows, left_out = recommendations(model.ranker_, number, request)
    explanations = [row.pop("explanation") for row in rows]
    if explained and selection.varies:
        for told, row in zip(explanations, rows, strict=True):
            told["variety"] = row["variety"]
    has = history_names(model.graph_, user)
    return {
        "user": user,
        "label": _label(model, "user", user),
        "history": [_item(model, name) for name in has],
        "held_out": [_item(model, model.items[v]) for v in model.ranker_.held_out.of([number])[1]],
        "items": explanations if explained else rows,
        "left_out": left_out,
    }


def _item(model: LOGER, name: str) -> dict[str, Any]:
    words = model.graph_.vocabulary
    return {"item": name, "label": words.labels[words.id("item", name)]}


def _draw(model: LOGER, one: dict[str, Any], explained: bool, words: Wording) -> None:
    """Show one user's list."""
    from rich.markup import escape
    from rich.tree import Tree

    from loger.cli import show

    to, history = show.console(), [row["label"] for row in _titled(model, one["history"])]
    items, left_out = _titled(model, one["items"]), _titled(model, one["left_out"])
    more = ["…"] if len(history) > SHOWN_HISTORY else []
    between = "; " if any(", " in label for label in history) else ", "
    has = between.join(history[:SHOWN_HISTORY] + more)
    user, key = f"[bold]{escape(one['label'])}[/bold]", "has" if has else "has_nothing"
    title = words.text(key, user=user, items=escape(has))
    if one["held_out"]:
        held = words.text("held_out", n=words.number(len(one["held_out"])))
        title += f" [dim]({escape(held)})[/dim]"
    if not explained:
        to.print(title)
        to.print(show.list_table(items))
        show.testing(to, model, words)
        show.left_out(to, left_out)
        return
    tree = Tree(f"{title} [dim]({escape(words.text('compared'))})[/dim]")
    for place, row in enumerate(items, 1):
        moved = show.moved(place, row.get("variety"))
        head = f"{place}. [bold]{escape(row['label'])}[/bold]  {row['lead']:+.3f}"
        branch = tree.add(f"{head}  [dim]{escape(moved)}[/dim]" if moved else head)
        show.add_reasons(branch, row, words)
        show.add_paths(branch, row)
    to.print(tree)
    show.testing(to, model, words)
    show.left_out(to, left_out)


def _export(
    model: LOGER,
    users: list[str],
    out: Path,
    k: int,
    explained: bool,
    selection: Selection,
    words: Wording,
    json: bool,
) -> None:
    """Write the lists of many users to a file, or to a folder of files."""
    from loger.cli import show
    from loger.store.export import export_lists

    try:
        with show.engine("recommending", model.engine) as engine:
            done = export_lists(
                model,
                users,
                out,
                k,
                explain=explained,
                selection=selection,
                words=words,
                progress=engine.progress,
            )
    except KeyboardInterrupt:
        if out.suffix:
            raise
        kept = len(list(out.glob("part-*.parquet")))
        typer.echo(f"interrupted with {kept} parts in {out}; to resume, give the same command")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        held_out = len(model.ranker_.held_out)
        show.as_json({"out": str(out), "users": len(users), "held_out": held_out, **done._asdict()})
        return
    resumed = f" ({done.kept} of {done.parts} parts were there)" if done.kept else ""
    typer.echo(f"{done.rows:,} recommendations to {len(users):,} users in {out}{resumed}")
    show.testing(show.console(), model, words)
