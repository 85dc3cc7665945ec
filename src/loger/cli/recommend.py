"""``loger recommend``, ``explain``, ``why-not``, ``what-if``: questions to a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, Bundle, Length, named, opened
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.model import LOGER

User = Annotated[str, typer.Argument(help="The user's name or label.", show_default=False)]
Item = Annotated[str, typer.Argument(help="The item's name or label.", show_default=False)]
Names = Annotated[list[str], typer.Option(metavar="ITEM", help="May be repeated.")]
Paths = Annotated[int, typer.Option(min=0, metavar="N", help="Also show the strongest N paths.")]
SHOWN_HISTORY = 8


def recommend(
    bundle: Bundle,
    user: Annotated[list[str], typer.Option(help="A user; may be repeated.")] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="All users; needs --out FILE.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a table to this file: .parquet, .csv or .jsonl.",
            show_default=False,
        ),
    ] = None,
    k: Length = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Give reasons.")] = False,
    paths: Paths = 0,
    json: AsJson = False,
) -> None:
    """Recommend new items to users, best first.

    With --explain, each item comes with the user's actions that speak for it and what each gives,
    measured against the mean item.

    \b
    Examples:
      loger recommend my-shop.bundle --user ann --explain
      loger recommend my-shop.bundle --user ann --explain --paths 3
      loger recommend my-shop.bundle --all --out lists.parquet -k 20
      loger recommend my-shop.bundle --user ann --json | jq '.[0].items'
    """
    if bool(user) == every:
        raise LogerError("give either --user NAME, or --all with --out FILE")
    if every and out is None:
        raise LogerError("--all needs --out FILE")
    if paths and (not explain or out is not None):
        raise LogerError("--paths needs --explain, and goes without --out FILE")
    if out is not None:
        from loger.export import check_format

        check_format(out)
    model = opened(bundle)
    users = model.users if every else [named(model, "user", name) for name in user]
    if out is not None:
        _export(model, users, out, k, explain, json)
        return
    lists = [_list(model, name, k, explain, paths) for name in users]
    from loger.cli import show

    if json:
        show.as_json(lists)
        return
    for one in lists:
        _draw(one, explain)


def explain(bundle: Bundle, user: User, item: Item, paths: Paths = 0, json: AsJson = False) -> None:
    """Explain an item's score for a user.

    Shows the user's actions that speak for it, the largest first, and what else its lead over the
    mean item is made of. With --paths N also the score by rules and the strongest paths.

    \b
    Examples:
      loger explain my-shop.bundle ann torch
      loger explain my-shop.bundle ann torch --paths 3
    """
    model = opened(bundle)
    from loger.cli import show
    from loger.explain.records import owned

    record = model.explain(named(model, "user", user), named(model, "item", item), paths).as_dict()
    has = record["item"] in owned(model.graph_, record["user"])
    if json:
        show.as_json(record | {"owned": has})
        return
    label, to = _label(model, "user", record["user"]), show.console()
    if has:
        note = "so it is never recommended; this is its score as if it were new"
        to.print(f"{label} has {record['label']} already, {note}", markup=False, soft_wrap=True)
    to.print(show.explanation(record, label))


def why_not(bundle: Bundle, user: User, item: Item, k: Length = 10, json: AsJson = False) -> None:
    """Explain why an item is not in a user's list.

    \b
    Example:
      loger why-not my-shop.bundle ann bulb -k 3
    """
    model = opened(bundle)
    answer = model.why_not(named(model, "user", user), named(model, "item", item), k)
    from loger.cli import show

    if json:
        show.as_json(answer.as_dict())
        return
    to = show.console()
    to.print(str(answer), markup=False, soft_wrap=True)
    if not answer.owned:
        to.print(show.explanation(answer.explanation.as_dict() | {"paths": []}))


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
    from loger.explain.records import check_change

    name = named(model, "user", user)
    removed, added = ([named(model, "item", text) for text in texts] for texts in (remove, add))
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
    return str(words.labels[words.id(kind, name)])


def _list(model: LOGER, user: str, k: int, explained: bool, paths: int) -> dict[str, Any]:
    """One user's list, as plain values."""
    from loger.explain.records import owned, recommendations

    number = model.graph_.vocabulary.id("user", user)
    rows = recommendations(model.ranker_, number, k, paths, explained=explained)
    explanations = [row.pop("explanation") for row in rows]
    return {
        "user": user,
        "label": _label(model, "user", user),
        "history": [_label(model, "item", name) for name in owned(model.graph_, user)],
        "items": explanations if explained else rows,
    }


def _draw(one: dict[str, Any], explained: bool) -> None:
    """Show one user's list."""
    from rich.markup import escape
    from rich.tree import Tree

    from loger.cli import show

    to, history = show.console(), one["history"]
    has = ", ".join(history[:SHOWN_HISTORY]) + (", …" if len(history) > SHOWN_HISTORY else "")
    title = f"[bold]{escape(one['label'])}[/bold] has {escape(has) or 'nothing yet'}"
    if not explained:
        rows = [(row["rank"], row["label"], f"{row['score']:.3f}") for row in one["items"]]
        to.print(title)
        to.print(show.table(["rank", "item", "score"], rows))
        return
    tree = Tree(f"{title} [dim](numbers are beside the mean item)[/dim]")
    for row in one["items"]:
        branch = tree.add(f"{row['rank']}. [bold]{escape(row['label'])}[/bold]  {row['lead']:+.3f}")
        show.add_reasons(branch, row)
        show.add_paths(branch, row)
    to.print(tree)


def _export(model: LOGER, users: list[str], out: Path, k: int, explained: bool, json: bool) -> None:
    """Write the lists of many users to a file."""
    from loger.cli import show
    from loger.export import export_lists

    with show.engine("recommending") as engine:
        done = export_lists(model, users, out, k, explain=explained, progress=engine.progress)
    if json:
        show.as_json({"out": str(out), "users": len(users), **done._asdict()})
    else:
        typer.echo(f"{done.rows:,} recommendations to {len(users):,} users in {out}")
