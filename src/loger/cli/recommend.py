"""``loger recommend``, ``similar``, ``explain``, ``why-not``, ``counterfactual``,
``what-if``: questions to a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.explain.lists import Kind, Member
    from loger.model import LOGER
    from loger.ranking.selection import Selection
    from loger.rules.wording import Wording

MANY = 1000
"""Users from which on processes pay off for explaining recommendations."""
SHOWN_HISTORY = 8
REASONED_PATHS = 3
"""Paths of the reasoner to show unless --paths says otherwise."""


_WISHES = (
    click.option(
        "--include",
        multiple=True,
        metavar="FILTER",
        help='Only items that match, such as genre=jazz or "price<10"; repeatable.',
    ),
    click.option(
        "--exclude", multiple=True, metavar="FILTER", help="No items that match; repeatable."
    ),
    click.option(
        "--mask",
        "masks",
        multiple=True,
        metavar="NAME=FILE",
        help="Read a list of items, for filters such as mask=NAME.",
    ),
    click.option(
        "--diversity",
        type=click.FloatRange(0, 1),
        default=0.0,
        metavar="SHARE",
        help="How strongly to avoid items that resemble those above them.",
    ),
    click.option(
        "--at-most",
        multiple=True,
        metavar="NAME=N",
        help="At most N items of a kind, such as has_brand=2.",
    ),
    click.option(
        "--popularity",
        type=click.FloatRange(-1, 1),
        default=0.0,
        metavar="DIAL",
        help="Prefer rare items (down to -1) or popular ones (up to 1).",
    ),
)
"""Which items may be recommended, and how varied and how popular they are."""


def _wishes(command: Any) -> Any:
    """The command with options for all wishes."""
    for option in reversed(_WISHES):
        command = option(command)
    return command


@click.command()
@options.bundle
@click.argument("users", nargs=-1, metavar="[USER]...")
@click.option(
    "--history",
    multiple=True,
    metavar="ITEM",
    help="An item in a new user's history; repeat it, earliest first.",
)
@click.option("--all", "every", is_flag=True, help="Recommend to all users; needs --out.")
@options.out(
    "FILE",
    "A .parquet, .csv or .jsonl file; any other name is a folder of Parquet files that an "
    "interrupted command can resume.",
    required=False,
)
@options.length
@click.option("--explain", "explained", is_flag=True, help="Show the reasons.")
@options.paths
@_wishes
@click.option("--together", is_flag=True, help="One list for all of the users as a group.")
@options.language
@options.wording
@options.style
@click.option(
    "--engine",
    metavar="NAME",
    help="Where to run: threads[=N], processes[=N], ray or ray=ADDRESS.  [default: threads, but "
    "processes to explain many users' recommendations]",
)
@options.json
def recommend(
    bundle: Path,
    users: tuple[str, ...],
    history: tuple[str, ...],
    every: bool,
    out: Path | None,
    k: int,
    explained: bool,
    paths: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    masks: tuple[str, ...],
    diversity: float,
    popularity: float,
    at_most: tuple[str, ...],
    together: bool,
    language: str | None,
    wording: Path | None,
    style: str,
    engine: str | None,
) -> None:
    """Recommend new items to users, best first.

    With --explain, loger shows which of the user's actions support each item and how much each one
    contributes, compared with the average item.

    Filters combine facts with AND, OR, NOT and brackets: "genre=jazz AND NOT brand=Acme". A name is
    a relation, a type of entity, item or mask. If you repeat --include, an item must match all of
    them, but only one of several values for the same name.

    \b
    Examples:
      loger recommend my-shop.bundle ann --explain
      loger recommend my-shop.bundle --history "Desk lamp" --history "Oak shelf" --explain
      loger recommend my-shop.bundle ann --include "category=lamps AND NOT brand=Acme"
      loger recommend my-shop.bundle ann --mask stock=stock.csv --include mask=stock
      loger recommend my-shop.bundle ann --diversity 0.3 --at-most has_brand=2
      loger recommend my-shop.bundle ann bob --together
      loger recommend my-shop.bundle ann --explain --language de
      loger recommend my-shop.bundle --all -o lists.parquet -k 20
      loger recommend my-shop.bundle --all -o lists --explain --engine ray
      loger recommend my-shop.bundle ann --json | jq '.[0].items'
    """
    if bool(users) + bool(history) + every != 1:
        raise LogerError("give a USER, --history ITEM for a new user, or --all with --out FILE")
    if every and out is None:
        raise LogerError("--all needs --out FILE")
    if paths and (not explained or out is not None):
        raise LogerError("--paths needs --explain and doesn't work with --out")
    if out is not None and out.suffix:
        from loger.store.export import check_format

        check_format(out)
    words = _words(language, wording, style)
    if together and (not users or out is not None):
        raise LogerError("--together needs users and doesn't work with --out")
    model = options.opened(bundle, engine or "threads").with_popularity(popularity)
    selection = _selection(model, include, exclude, masks, diversity, at_most)
    if history:
        model, newcomer = _with_new_user(model, history)
        users = (newcomer,)
    chosen = model.users if every else [options.named(model, "user", name) for name in users]
    if together:
        from loger.explain.lists import Member

        members = [Member(model.ranker_, model.graph_.vocabulary.id("user", u)) for u in chosen]
        _joint(model, members, k, selection, words, several=True)
        return
    if out is not None:
        if engine is None and explained and len(chosen) > MANY:
            from loger.engine import engine_named

            model.engine = engine_named("processes")  # finding reasons holds the GIL
        _export(model, chosen, out, k, explained, selection, words)
        return
    lists = [_list(model, name, k, explained, paths, selection, words) for name in chosen]
    if history:
        lists[0] |= {"user": "someone new", "label": "someone new"}
    if show.wants_json():
        show.as_json(lists)
        return
    for one in lists:
        _draw(model, one, explained, words)


def _with_new_user(model: LOGER, items: Sequence[str]) -> tuple[LOGER, str]:
    """The model with a new user who has these items, and that user's name."""
    numbers = [_number(model, item) for item in items]
    ranker, guest = model.ranker_.guest(list(dict.fromkeys(numbers)))
    return model.with_ranker(ranker), ranker.graph.vocabulary.names[guest]


def _number(model: LOGER, item: str) -> int:
    """The number of an item by name or label."""
    name = options.named(model, "item", item)
    return model.graph_.vocabulary.id("item", name) - model.graph_.n_users


@click.command()
@options.bundle
@click.argument("items", nargs=-1, required=True, metavar="ITEM...")
@click.option(
    "--kind",
    type=click.Choice(["similar", "complements", "substitutes"]),
    default="similar",
    help="Count everything, only what people have together, or only facts that items share.",
)
@click.option(
    "--less", multiple=True, metavar="ITEM", help="An item to stay away from; repeatable."
)
@options.length
@_wishes
@options.language
@options.wording
@options.style
@options.json
def similar(
    bundle: Path,
    items: tuple[str, ...],
    kind: Kind,
    less: tuple[str, ...],
    k: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    masks: tuple[str, ...],
    diversity: float,
    popularity: float,
    at_most: tuple[str, ...],
    language: str | None,
    wording: Path | None,
    style: str,
) -> None:
    """Find the items most like one or several, with the reasons.

    The score is what someone who has just these items would get, compared with the average item.
    How popular an item is doesn't count unless you ask for it with --popularity.

    \b
    Examples:
      loger similar my-shop.bundle "Desk lamp"
      loger similar my-shop.bundle "Desk lamp" --kind complements
      loger similar my-shop.bundle "Desk lamp" "Oak shelf" --less "Pine shelf"
    """
    words = _words(language, wording, style).about_items()
    model = options.opened(bundle)
    selection = _selection(model, include, exclude, masks, diversity, at_most)
    wanted, unwanted = ([options.named(model, "item", v) for v in own] for own in (items, less))
    members = model.alike(wanted, unwanted, kind, popularity)
    _joint(model, members, k, selection, words)


def _joint(
    model: LOGER,
    members: Sequence[Member],
    k: int,
    selection: Selection,
    words: Wording,
    several: bool = False,
) -> None:
    """Show a list that several members share."""
    from loger.explain.lists import ListRequest, recommend_together

    found = recommend_together(members, ListRequest(k, selection, words=words))
    rows = [
        (row["rank"], row["label"], f"{row['score']:+.2f}", _because(row, several)) for row in found
    ]
    show.result(
        found, lambda _: show.console().print(show.table(["", "item", "", "because"], rows))
    )


def _because(row: dict[str, Any], several: bool) -> str:
    """Why an item is in a shared list: the first reason, or that of each member."""
    if not several:
        return str(row["because"])
    parts = [f"{m['user']} {m['lead']:+.2f}: {m['because']}" for m in row["members"]]
    return "\n".join(parts)


@click.command()
@options.bundle
@options.user
@options.item
@options.paths
@click.option(
    "--by",
    type=click.Choice(["contributions", "reasoner"]),
    help="Explain by each action's contribution, or by the paths that the paper's reasoner finds.  "
    "[default: as fitted]",
)
@options.language
@options.wording
@options.style
@options.json
def explain(
    bundle: Path,
    user: str,
    item: str,
    paths: int,
    by: str | None,
    language: str | None,
    wording: Path | None,
    style: str,
) -> None:
    """Explain an item's score for a user.

    Shows the user's actions that support the item, largest first, and the rest of its lead over the
    average item. With --paths N, also the score by rules and the strongest paths. A model of the
    preset paper shows the paths that its reasoner finds, or says that it found none.

    \b
    Examples:
      loger explain my-shop.bundle ann torch
      loger explain my-shop.bundle ann torch --paths 3
      loger explain paper.bundle ann torch --by reasoner
    """
    words = _words(language, wording, style)
    model = options.opened(bundle)
    names = options.named(model, "user", user), options.named(model, "item", item)
    reasoned = (by or model.config_.explain_by) == "reasoner"
    record = (
        model.explain(*names, paths or REASONED_PATHS, by="reasoner", wording=words).as_dict()
        if reasoned
        else model.explain(*names, paths, wording=words).as_dict()
    )
    owned = record["item"] in model.owned(record["user"])
    if show.wants_json():
        show.as_json(record | {"owned": owned})
        return
    from loger.cli import trees

    (record,) = _titled(model, [record])
    label, to = _label(model, "user", record["user"]), show.console()
    if owned:
        note = "so it's never recommended; this is the score it would have if it were new"
        to.print(f"{label} already has {record['label']}, {note}", markup=False)
    to.print(trees.reasoned(record, label) if reasoned else trees.explanation(record, label, words))


@click.command("why-not")
@options.bundle
@options.user
@options.item
@options.length
@options.language
@options.wording
@options.json
def why_not(
    bundle: Path, user: str, item: str, k: int, language: str | None, wording: Path | None
) -> None:
    """Explain why an item is not among a user's recommendations.

    \b
    Example:
      loger why-not my-shop.bundle ann bulb -k 3
    """
    words = _words(language, wording)
    model = options.opened(bundle)
    names = options.named(model, "user", user), options.named(model, "item", item)
    answer = model.why_not(*names, k, wording=words)
    if show.wants_json():
        show.as_json(answer.as_dict())
        return
    from loger.cli import trees

    to = show.console()
    to.print(str(answer), markup=False)
    if not answer.owned:
        (record,) = _titled(model, [answer.explanation.as_dict() | {"paths": []}])
        to.print(trees.explanation(record, "", words))


@click.command()
@options.bundle
@options.user
@options.item
@options.length
@options.language
@options.wording
@options.json
def counterfactual(
    bundle: Path, user: str, item: str, k: int, language: str | None, wording: Path | None
) -> None:
    """Show the fewest actions without which an item leaves a user's recommendations.

    \b
    Example:
      loger counterfactual my-shop.bundle ann torch -k 3
    """
    words = _words(language, wording)
    model = options.opened(bundle)
    names = options.named(model, "user", user), options.named(model, "item", item)
    answer = model.counterfactual(*names, k, wording=words)
    show.result(answer.as_dict(), lambda _: show.console().print(str(answer), markup=False))


@click.command("what-if")
@options.bundle
@options.user
@click.option("--remove", multiple=True, metavar="ITEM", help="Without this item; repeatable.")
@click.option("--add", multiple=True, metavar="ITEM", help="With this item too; repeatable.")
@click.option("--rebuild", is_flag=True, help="As if what is removed had never happened.")
@options.length
@options.json
def what_if(
    bundle: Path, user: str, remove: tuple[str, ...], add: tuple[str, ...], rebuild: bool, k: int
) -> None:
    """Show a user's recommendations with a different history.

    Nothing is retrained. What is removed supports no item, but the history stays as long as it
    was and other items don't become more recent. With --rebuild they do.

    \b
    Examples:
      loger what-if my-shop.bundle ann --remove mug
      loger what-if my-shop.bundle ann --add torch --add bulb -k 5
    """
    if not remove and not add:
        raise LogerError("give --remove ITEM or --add ITEM")
    model = options.opened(bundle)
    from loger.explain.questions import check_change, history_names

    name = options.named(model, "user", user)
    mine = {model.graph_.vocabulary.id("item", item) for item in history_names(model.graph_, name)}
    removed = [options.named(model, "item", text, mine) for text in remove]
    added = [options.named(model, "item", text) for text in add]
    check_change(model.graph_, name, removed, added)
    answer = model.what_if(name, removed, added, k, rebuild=rebuild).as_dict()
    show.result(answer, lambda values: show.console().print(_change_table(model, values)))


# ── inside ──────────────────────────────────────────────────────────────────────────────


def _change_table(model: LOGER, answer: dict[str, Any]) -> Any:
    """The list after a change, with how far each item moved, and what is gone."""
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
    include: Sequence[str],
    exclude: Sequence[str],
    masks: Sequence[str],
    diversity: float,
    at_most: Sequence[str],
) -> Selection:
    """Filters and limits from the options."""
    from loger.ranking.selection import limits_of, select

    files = {}
    for text in masks:
        from loger.data.table_files import read_item_list  # imports polars, which is slow

        name, _, path = text.partition("=")
        if not name or not path:
            raise LogerError(f"--mask takes NAME=FILE, such as stock=stock.csv, got {text!r}")
        files[name] = set(read_item_list(path))
    return select(
        model.graph_,
        include,
        exclude,
        catalogue=model.catalogue_,
        diversity=diversity,
        at_most=limits_of(at_most),
        masks=files,
    )


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
    """Show one user's recommendations."""
    from rich.markup import escape
    from rich.tree import Tree

    from loger.cli import trees

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
    if explained:
        tree = Tree(f"{title} [dim]({escape(words.text('compared'))})[/dim]")
        for place, row in enumerate(items, 1):
            trees.add_item(tree, place, row, words)
        to.print(tree)
    else:
        to.print(title)
        to.print(trees.list_table(items))
    trees.testing(to, model, words)
    trees.left_out(to, left_out)


def _export(
    model: LOGER,
    users: Sequence[str],
    out: Path,
    k: int,
    explained: bool,
    selection: Selection,
    words: Wording,
) -> None:
    """Write many users' recommendations to a file, or to a folder of files."""
    from loger.store.export import export_lists

    try:
        with show.engine("recommending", model.engine) as engine:
            wanted: Any = {"explain": explained, "selection": selection, "words": words}
            done = export_lists(model, users, out, k, **wanted, progress=engine.progress)
    except KeyboardInterrupt:
        if out.suffix:
            raise
        kept = len(list(out.glob("part-*.parquet")))
        click.echo(f"interrupted with {kept} parts in {out}; run the same command to resume")
        raise click.exceptions.Exit(options.INTERRUPTED) from None
    if show.wants_json():
        held_out = len(model.ranker_.held_out)
        show.as_json({"out": str(out), "users": len(users), "held_out": held_out, **done._asdict()})
        return
    from loger.cli import trees

    resumed = f" ({done.kept} of {done.parts} parts were there)" if done.kept else ""
    click.echo(f"{done.rows:,} recommendations to {len(users):,} users in {out}{resumed}")
    trees.testing(show.console(), model, words)
