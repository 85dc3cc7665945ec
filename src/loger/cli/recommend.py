"""``loger recommend``, ``explain``, ``why-not``, ``what-if``: questions to a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, Bundle, Length, named, opened
from loger.errors import LogerError

if TYPE_CHECKING:
    from loger.model import LOGER

BLOCK = 1024
"""Users that are recommended to between two reports of progress."""

User = Annotated[str, typer.Argument(help="The user's name, or label.", show_default=False)]
Item = Annotated[str, typer.Argument(help="The item's name, or label.", show_default=False)]
Names = Annotated[list[str], typer.Option(metavar="ITEM", help="May stand more than once.")]
Paths = Annotated[int, typer.Option(min=1, help="The most paths to show.")]


def recommend(
    bundle: Bundle,
    user: Annotated[list[str], typer.Option(help="A user; may stand more than once.")] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="All users; needs --out.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a table here: .parquet, .csv or .json lines.", show_default=False),
    ] = None,
    k: Length = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Say why.")] = False,
    json: AsJson = False,
) -> None:
    """Recommend new items to users, best first.

    \b
    Examples:
      loger recommend my-shop.bundle --user ann --explain
      loger recommend my-shop.bundle --all --out lists.parquet -k 20
      loger recommend my-shop.bundle --user ann --json | jq '.[0].items'
    """
    if bool(user) == every:
        raise LogerError("say for whom: --user NAME, or --all with --out FILE")
    if every and out is None:
        raise LogerError("--all needs --out FILE; lists of all users are no reading matter")
    if out is not None:
        _check_ending(out)
    model = opened(bundle)
    names = model.graph_.vocabulary.names[: model.graph_.n_users]
    asked = list(names) if every else [named(model, "user", name) for name in user]
    if out is not None:
        _write(model, asked, k, explain, out, json)
        return
    told = [_told(model, name, k, explain) for name in asked]
    from loger.cli import show

    if json:
        show.as_json(told)
        return
    for one in told:
        _draw(one, explain)


def explain(bundle: Bundle, user: User, item: Item, paths: Paths = 3, json: AsJson = False) -> None:
    """Explain why an item has the score it has for a user: parts that add up, rules, paths.

    \b
    Example:
      loger explain my-shop.bundle ann torch
    """
    model = opened(bundle)
    told = model.explain(named(model, "user", user), named(model, "item", item), paths).as_dict()
    owned = told["item"] in history_of(model, told["user"])
    from loger.cli import show

    if json:
        show.as_json(told | {"owned": owned})
        return
    whose, to = _label(model, "user", told["user"]), show.console()
    if owned:
        to.print(
            f"{whose} has {told['label']} already, so it is never recommended; this is its score "
            "as if it were new",
            markup=False,
            soft_wrap=True,
        )
    to.print(show.explanation(told, whose))


def why_not(bundle: Bundle, user: User, item: Item, k: Length = 10, json: AsJson = False) -> None:
    """Say what keeps an item out of a user's list.

    \b
    Example:
      loger why-not my-shop.bundle ann bulb -k 3
    """
    model = opened(bundle)
    found = model.why_not(named(model, "user", user), named(model, "item", item), k)
    from loger.cli import show

    if json:
        show.as_json(found.as_dict())
        return
    to = show.console()
    to.print(str(found), markup=False, soft_wrap=True)
    if not found.owned:
        to.print(show.explanation(found.explanation.as_dict()))


def what_if(
    bundle: Bundle,
    user: User,
    remove: Names = [],  # noqa: B006
    add: Names = [],  # noqa: B006
    k: Length = 10,
    json: AsJson = False,
) -> None:
    """Show a user's list had it not had some items, or had others; nothing is retrained.

    \b
    Examples:
      loger what-if my-shop.bundle ann --remove mug
      loger what-if my-shop.bundle ann --add torch --add bulb -k 5
    """
    if not remove and not add:
        raise LogerError("say what if: --remove ITEM or --add ITEM")
    model = opened(bundle)
    name = named(model, "user", user)
    gone, more = ([named(model, "item", text) for text in texts] for texts in (remove, add))
    check_history(model, name, gone, more)
    told = model.what_if(name, gone, more, k).as_dict()
    from loger.cli import show

    if json:
        show.as_json(told)
    else:
        show.console().print(change_table(model, told))


# ── inside ──────────────────────────────────────────────────────────────────────────────


def history_of(model: LOGER, user: str) -> list[str]:
    """The names of a user's items, in the order of their numbers."""
    import numpy as np

    from loger.graph import history

    words, first = model.graph_.vocabulary, model.graph_.n_users
    _, items = history(model.graph_, np.array([words.id("user", user)]))
    return [words.names[int(v) + first] for v in items]


def check_history(model: LOGER, user: str, gone: list[str], more: list[str]) -> None:
    """What is taken away must be there, and what is added must not."""
    own = history_of(model, user)
    for item in gone:
        if item not in own:
            raise LogerError(f"{user!r} does not have {item!r}; it has {', '.join(own)}")
    for item in more:
        if item in own:
            raise LogerError(f"{user!r} has {item!r} already; leave out --add {item!r}")


def change_table(model: LOGER, told: dict[str, Any]) -> Any:
    """Two lists, the second with what moved."""
    from loger.cli import show

    place = {name: k for k, name in enumerate(told["before"])}
    rows = []
    for k, (name, score) in enumerate(zip(told["after"], told["scores"], strict=True)):
        step = place.get(name, k) - k
        move = (
            "new" if name not in place else f"{'↑' if step > 0 else '↓'} {abs(step)}" * (step != 0)
        )
        rows.append((str(k + 1), _label(model, "item", name), f"{score:.3f}", move))
    rows += [("–", _label(model, "item", name), "–", "gone") for name in told["gone"]]
    return show.table(["rank", "item", "score", "was"], rows)


def _label(model: LOGER, kind: str, name: str) -> str:
    words = model.graph_.vocabulary
    return str(words.labels[words.id(kind, name)])


def _told(model: LOGER, user: str, k: int, explained: bool) -> dict[str, Any]:
    """One user's list, as plain values."""
    rows = model.recommend(user, k).drop("user").to_dicts()
    if explained:
        import numpy as np

        from loger.explain.attribution import explain as explain_pairs

        words, first = model.graph_.vocabulary, model.graph_.n_users
        items = np.array([words.id("item", row["item"]) - first for row in rows])
        owner = np.full(len(items), words.id("user", user))
        rows = [
            {"rank": row["rank"], **e.as_dict()}
            for row, e in zip(rows, explain_pairs(model.ranker_, owner, items, 3), strict=True)
        ]
    label = _label(model, "user", user)
    history = [_label(model, "item", name) for name in history_of(model, user)]
    return {"user": user, "label": label, "history": history, "items": rows}


def _draw(told: dict[str, Any], explained: bool) -> None:
    from rich.markup import escape
    from rich.tree import Tree

    from loger.cli import show

    to = show.console()
    has = ", ".join(told["history"][:8]) + (", …" if len(told["history"]) > 8 else "")
    title = f"[bold]{escape(told['label'])}[/bold] has {escape(has) or 'nothing yet'}"
    if not explained:
        rows = [(row["rank"], row["label"], f"{row['score']:.3f}") for row in told["items"]]
        to.print(title)
        to.print(show.table(["rank", "item", "score"], rows))
        return
    tree = Tree(title)
    for row in told["items"]:
        branch = tree.add(f"{row['rank']}. [bold]{escape(row['label'])}[/bold]  {row['score']:.3f}")
        for chain in row["paths"]:
            branch.add(show.path_line(chain))
        if not row["paths"]:
            branch.add(escape(row["because"]))
    to.print(tree)


def _check_ending(out: Path) -> None:
    if out.suffix not in (".parquet", ".csv", ".json", ".jsonl", ".ndjson"):
        raise LogerError(f"{out} is neither .parquet, .csv nor .jsonl; name it so")


def _write(model: LOGER, asked: list[str], k: int, explained: bool, out: Path, json: bool) -> None:
    """Lists of many users as a file, whole or not at all."""
    import polars as pl

    from loger.cli import show

    tables = []
    with show.engine("recommending") as engine:
        for lo in range(0, len(asked), BLOCK):
            engine.progress("recommending", lo, len(asked))
            tables.append(model.recommend(asked[lo : lo + BLOCK], k, explain=explained))
    table, part = pl.concat(tables), out.with_name(out.name + ".unfinished")
    if out.suffix == ".parquet":
        table.write_parquet(part)
    elif out.suffix == ".csv":
        table.write_csv(part)
    else:
        table.write_ndjson(part)
    part.replace(out)
    told = {"out": str(out), "users": len(asked), "rows": len(table), "columns": table.columns}
    if json:
        show.as_json(told)
    else:
        typer.echo(f"{len(table):,} recommendations to {len(asked):,} users in {out}")
