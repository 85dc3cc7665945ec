"""``loger recommend``, ``similar``, ``explain``, ``why-not``, ``counterfactual``,
``what-if``: questions to a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.explain.lists import Kind, ListRequest, Member
    from loger.model import LOGER
    from loger.ranking.selection import Selection
    from loger.rules.wording import Wording

Language = tuple[str | None, str | None]
"""A language and a file of wording."""
MANY = 1000
"""Explaining more users than this is faster with processes than with threads."""
SHOWN_HISTORY = 8
REASONED_PATHS = 3
"""Paths of the reasoner to show unless --paths says otherwise."""


_WISHES = (
    options.several(
        "--include",
        metavar="FILTER",
        help='Recommend only items that match: genre=jazz, "price<10", or mask=FILE for the items '
        "that a file lists",
    ),
    options.several("--exclude", metavar="FILTER", help="Don't recommend items that match"),
    click.option(
        "--diversity",
        type=click.FloatRange(0, 1),
        default=0.0,
        metavar="SHARE",
        help="How strongly to avoid items like those ranked above, from 0 to 1.",
    ),
    options.several(
        "--at-most", metavar="NAME=N", help="At most N items that share a value: has_brand=2"
    ),
    click.option(
        "--popularity",
        type=click.FloatRange(-1, 1),
        default=0.0,
        metavar="DIAL",
        help="Prefer popular items (up to 1) or rare ones (down to -1).",
    ),
)
"""Options that decide which items to recommend."""


def _wishes(command: Any) -> Any:
    """Add the options that decide which items to recommend."""
    for option in reversed(_WISHES):
        command = option(command)
    return command


@options.command()
@options.bundle
@click.argument("users", nargs=-1, metavar="[USER]...")
@options.several(
    "--history",
    metavar="ITEM",
    help="Recommend to a new user who has this item, earliest item first",
)
@click.option("--all", "every", is_flag=True, help="Recommend to everyone; needs --out.")
@options.out(
    "FILE",
    "A .parquet, .csv or .jsonl file. Any other name becomes a folder of Parquet files, which an "
    "interrupted command can resume.",
    required=False,
)
@options.length
@click.option("--explain", "explained", is_flag=True, help="Show the reasons.")
@options.paths
@_wishes
@click.option("--together", is_flag=True, help="Make one list for the users as a group.")
@options.language
@options.style
def recommend(
    bundle: Path,
    users: tuple[str, ...],
    history: tuple[str, ...],
    every: bool,
    out: Path | None,
    k: int,
    explained: bool,
    paths: int,
    popularity: float,
    together: bool,
    language: Language,
    style: str,
    **wishes: Any,
) -> None:
    """Recommend items to users, best first.

    With --explain, loger shows which of the user's actions support each item, and how much each one
    contributes to the item's lead over the average item.

    Filters combine conditions with AND, OR, NOT and brackets: "genre=jazz AND NOT brand=Acme". The
    name is a relation, a type of entity, item or mask. If you repeat --include, items must match
    all filters, but only one of several values for the same name.

    \b
    Examples:
      loger recommend my-shop.bundle ann --explain
      loger recommend my-shop.bundle --history "Desk lamp" --history "Oak shelf" --explain
      loger recommend my-shop.bundle ann --include "category=lamps AND NOT brand=Acme"
      loger recommend my-shop.bundle ann --include mask=stock.csv
      loger recommend my-shop.bundle ann --diversity 0.3 --at-most has_brand=2
      loger recommend my-shop.bundle ann bob --together
      loger recommend my-shop.bundle ann --explain --language de
      loger recommend my-shop.bundle --all -o lists.parquet -k 20
      loger --engine ray recommend my-shop.bundle --all -o lists --explain
    """
    if bool(users) + bool(history) + every != 1:
        raise LogerError("pass a USER, or --history ITEM for someone new, or --all with --out FILE")
    if every and out is None:
        raise LogerError("--all needs --out FILE")
    if paths and (not explained or out is not None):
        raise LogerError("--paths needs --explain and can't be combined with --out")
    if out is not None and out.suffix:
        from loger.store.export import check_format

        check_format(out)
    words = _words(language, style)
    if together and (not users or out is not None):
        raise LogerError("--together needs users and can't be combined with --out")
    model = options.opened(bundle).with_popularity(popularity)
    from loger.explain.lists import ListRequest, Member

    request = ListRequest(k, _selection(model, **wishes), explained, paths, words)
    if history:
        model, newcomer = _with_new_user(model, history)
        users = (newcomer,)
    chosen = model.users if every else [options.named(model, "user", name) for name in users]
    if together:
        members = [Member(model.ranker_, model.graph_.vocabulary.id("user", u)) for u in chosen]
        _joint(members, request, several=True)
        return
    if out is not None:
        if show.engine_name() is None and explained and len(chosen) > MANY:
            from loger.engine import engine_named

            model.engine = engine_named("processes")  # finding reasons holds the GIL
        _export(model, chosen, out, request)
        return
    lists = [_list(model, name, request) for name in chosen]
    if history:
        lists[0] |= {"user": "someone new", "label": "someone new"}
    if show.wants_json():
        show.as_json(lists)
        return
    for one in lists:
        _draw(model, one, request)


def _with_new_user(model: LOGER, items: Sequence[str]) -> tuple[LOGER, str]:
    """The model with a new user who has these items, and that user's name."""
    numbers = [_number(model, item) for item in items]
    ranker, guest = model.ranker_.guest(list(dict.fromkeys(numbers)))
    return model.with_ranker(ranker), ranker.graph.vocabulary.names[guest]


def _number(model: LOGER, item: str) -> int:
    """The number of an item by name or label."""
    name = options.named(model, "item", item)
    return model.graph_.vocabulary.id("item", name) - model.graph_.n_users


@options.command()
@options.bundle
@click.argument("items", nargs=-1, required=True, metavar="ITEM...")
@click.option(
    "--kind",
    type=click.Choice(["similar", "complements", "substitutes"]),
    default="similar",
    help="similar counts everything, complements only what people have together, and substitutes "
    "only shared facts.",
)
@options.several("--less", metavar="ITEM", help="Avoid items like this one")
@options.length
@_wishes
@options.language
@options.style
def similar(
    bundle: Path,
    items: tuple[str, ...],
    kind: Kind,
    less: tuple[str, ...],
    k: int,
    popularity: float,
    language: Language,
    style: str,
    **wishes: Any,
) -> None:
    """Find items similar to one or more items, with reasons.

    An item's score is its lead over the average item for someone who has only the given items.
    Popularity doesn't count unless you set --popularity.

    \b
    Examples:
      loger similar my-shop.bundle "Desk lamp"
      loger similar my-shop.bundle "Desk lamp" --kind complements
      loger similar my-shop.bundle "Desk lamp" "Oak shelf" --less "Pine shelf"
    """
    words = _words(language, style).about_items()
    model = options.opened(bundle)
    from loger.explain.lists import ListRequest

    wanted, unwanted = ([options.named(model, "item", v) for v in own] for own in (items, less))
    members = model.alike(wanted, unwanted, kind, popularity)
    _joint(members, ListRequest(k, _selection(model, **wishes), words=words))


def _joint(members: Sequence[Member], request: ListRequest, several: bool = False) -> None:
    """Show a list that several members share."""
    from loger.explain.lists import recommend_together

    found = recommend_together(members, request)
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


@options.command()
@options.bundle
@options.user
@options.item
@options.paths
@click.option(
    "--by",
    type=click.Choice(["contributions", "reasoner"]),
    help="Explain by each action's contribution, or by the paths that the paper's reasoner "
    "finds.  [default: as fitted]",
)
@options.language
@options.style
def explain(
    bundle: Path,
    user: str,
    item: str,
    paths: int,
    by: str | None,
    language: Language,
    style: str,
) -> None:
    """Explain an item's score for a user.

    loger shows which of the user's actions support the item, strongest first, and what else
    contributes to its lead over the average item. With --paths N, it also splits the score by rules
    and shows the strongest paths. A model fitted with --preset paper shows the paths that its
    reasoner finds.

    \b
    Examples:
      loger explain my-shop.bundle ann torch
      loger explain my-shop.bundle ann torch --paths 3
      loger explain paper.bundle ann torch --by reasoner
    """
    words = _words(language, style)
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
        note = "so loger won't recommend it; here is the score it would have otherwise"
        to.print(f"{label} already has {record['label']}, {note}", markup=False)
    to.print(trees.reasoned(record, label) if reasoned else trees.explanation(record, label, words))


@options.command("why-not")
@options.bundle
@options.user
@options.item
@options.length
@options.language
def why_not(bundle: Path, user: str, item: str, k: int, language: Language) -> None:
    """Explain why loger doesn't recommend an item to a user.

    \b
    Example:
      loger why-not my-shop.bundle ann bulb -k 3
    """
    words = _words(language)
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


@options.command()
@options.bundle
@options.user
@options.item
@options.length
@options.language
def counterfactual(bundle: Path, user: str, item: str, k: int, language: Language) -> None:
    """Find the fewest actions that a recommendation depends on.

    \b
    Example:
      loger counterfactual my-shop.bundle ann torch -k 3
    """
    words = _words(language)
    model = options.opened(bundle)
    names = options.named(model, "user", user), options.named(model, "item", item)
    answer = model.counterfactual(*names, k, wording=words)
    show.result(answer.as_dict(), lambda _: show.console().print(str(answer), markup=False))


@options.command("what-if")
@options.bundle
@options.user
@options.several("--remove", metavar="ITEM", help="Remove this item")
@options.several("--add", metavar="ITEM", help="Add this item")
@click.option(
    "--rebuild", is_flag=True, help="Answer as if the user had never had the removed items."
)
@options.length
def what_if(
    bundle: Path, user: str, remove: tuple[str, ...], add: tuple[str, ...], rebuild: bool, k: int
) -> None:
    """Show a user's recommendations with a different history.

    loger doesn't retrain the model. Removed items no longer support any recommendation, but other
    items don't become more recent. With --rebuild, they do.

    \b
    Examples:
      loger what-if my-shop.bundle ann --remove mug
      loger what-if my-shop.bundle ann --add torch --add bulb -k 5
    """
    if not remove and not add:
        raise LogerError("pass --remove ITEM or --add ITEM")
    model = options.opened(bundle)
    name = options.named(model, "user", user)
    mine = {model.graph_.vocabulary.id("item", item) for item in model.owned(name)}
    removed = [options.named(model, "item", text, mine) for text in remove]
    added = [options.named(model, "item", text) for text in add]
    answer = model.what_if(name, removed, added, k, rebuild=rebuild).as_dict()
    show.result(answer, lambda values: show.console().print(_change_table(model, values)))


# ── inside ──────────────────────────────────────────────────────────────────────────────


def _change_table(model: LOGER, answer: dict[str, Any]) -> Any:
    """The list after a change, how far each item moved, and which items are gone."""
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
    """Records of items with labels that tell them apart."""
    return [row | {"label": _label(model, "item", row["item"])} for row in rows]


def _words(language: Language, style: str | None = None) -> Wording:
    from loger.rules.wording import wording_of

    return wording_of(*language, style)


def _selection(
    model: LOGER,
    include: Sequence[str],
    exclude: Sequence[str],
    diversity: float,
    at_most: Sequence[str],
) -> Selection:
    """Filters and limits from the options."""
    from loger.ranking.selection import limits_of, select

    return select(
        model.graph_,
        include,
        exclude,
        catalogue=model.catalogue_,
        diversity=diversity,
        at_most=limits_of(at_most),
        masks=_ItemFiles(),
    )


class _ItemFiles(Mapping[str, set[str]]):
    """Files with items, each read when a filter names it: mask=stock.csv."""

    def __getitem__(self, path: str) -> set[str]:
        from loger.data.frames import read_item_list  # imports polars, which is slow

        return set(read_item_list(path))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _list(model: LOGER, user: str, request: ListRequest) -> dict[str, Any]:
    """One user's list, as plain values."""
    from loger.explain.lists import recommendations

    number = model.graph_.vocabulary.id("user", user)
    rows, left_out = recommendations(model.ranker_, number, request)
    explanations = [row.pop("explanation") for row in rows]
    if request.explain and request.selection.varies:
        for told, row in zip(explanations, rows, strict=True):
            told["variety"] = row["variety"]
    return {
        "user": user,
        "label": _label(model, "user", user),
        "history": [_item(model, name) for name in model.owned(user)],
        "held_out": [_item(model, model.items[v]) for v in model.ranker_.held_out.of([number])[1]],
        "items": explanations if request.explain else rows,
        "left_out": left_out,
    }


def _item(model: LOGER, name: str) -> dict[str, Any]:
    words = model.graph_.vocabulary
    return {"item": name, "label": words.labels[words.id("item", name)]}


def _draw(model: LOGER, one: dict[str, Any], request: ListRequest) -> None:
    """Show one user's recommendations."""
    from rich.markup import escape
    from rich.tree import Tree

    from loger.cli import trees

    words = request.words
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
    if request.explain:
        tree = Tree(f"{title} [dim]({escape(words.text('compared'))})[/dim]")
        for place, row in enumerate(items, 1):
            trees.add_item(tree, place, row, words)
        to.print(tree)
    else:
        to.print(title)
        to.print(trees.list_table(items))
    trees.testing(to, model, words)
    trees.left_out(to, left_out)


def _export(model: LOGER, users: Sequence[str], out: Path, request: ListRequest) -> None:
    """Write many users' recommendations to a file, or to a folder of files."""
    from loger.store.export import export_lists

    try:
        with show.engine("recommending", model.engine) as engine:
            asked = request._asdict()
            del asked["paths"]
            done = export_lists(model, users, out, **asked, progress=engine.progress)
    except KeyboardInterrupt:
        if out.suffix:
            raise
        kept = len(list(out.glob("part-*.parquet")))
        click.echo(f"interrupted; {out} has {kept} parts; run the same command to resume")
        raise click.exceptions.Exit(options.INTERRUPTED) from None
    if show.wants_json():
        held_out = len(model.ranker_.held_out)
        show.as_json({"out": str(out), "users": len(users), "held_out": held_out, **done._asdict()})
        return
    from loger.cli import trees

    resumed = f" ({done.kept} of {done.parts} parts were there)" if done.kept else ""
    click.echo(f"{done.rows:,} recommendations to {len(users):,} users in {out}{resumed}")
    trees.testing(show.console(), model, request.words)
