"""``loger rules``: the rules that hold in a data set, or the weights of a model's rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.errors import LogerError

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 50
"""Default number of rules to mine or show."""


@options.command()
@options.source
@click.argument("user", required=False)
@options.settings("A mining setting: max_rules, max_hops, min_support, min_lift or seed")
@click.option("--all", "every", is_flag=True, help="Also show dropped rules, and why.")
@options.language
def rules(
    path: Path,
    user: str | None,
    set_: tuple[str, ...],
    every: bool,
    language: tuple[str | None, str | None],
) -> None:
    """Show the rules of a data set or of a fitted model, best first.

    PATH is a data set or a bundle. For a data set, loger mines the training part and shows each
    rule's support (how many observed pairs it reaches), precision (the share of the pairs it
    reaches that are observed) and lift (precision compared with chance). For a bundle, loger shows
    each rule's weight. With USER, it sorts rules by their importance to that user.

    \b
    Examples:
      loger rules my-shop --set max_rules=10
      loger rules my-shop --all --set min_support=20
      loger rules my-shop.bundle ann
    """
    from loger.engine.files import kind_of
    from loger.store.bundle import MODEL

    if kind_of(path) == MODEL.name:
        _of_model(path, every, user, language)
        return
    if user is not None:
        raise LogerError(
            f"USER works only with a bundle, but {path} isn't one; run loger fit first"
        )
    dataset = options.read(path, None, None)
    from loger.data import split
    from loger.engine.settings import layered
    from loger.logic.mining import MiningConfig, mine

    config = layered(MiningConfig(max_rules=SHOWN), texts=set_)
    with show.engine() as engine:
        mined = mine(split(dataset, seed=config.seed).graph, config, engine)
    measures = [measure.as_dict() for measure in mined.measures]
    if show.wants_json():
        show.as_json({"name": dataset.name, "summary": mined.summary(), "rules": measures})
        return
    to = show.console()
    rows = [m | ({"remark": m["why"]} if every else {}) for m in measures if m["kept"] or every]
    if rows:
        to.print(_rule_table(rows, f"Rules of {dataset.name}"))
    to.print(mined.summary(), markup=False)


def _rule_table(measures: Sequence[dict[str, Any]], title: str) -> Table:
    """Measured rules, as sentences."""
    rows = [
        (
            m["sentence"],
            m["support"],
            "–" if m["precision"] is None else f"{m['precision']:.1%}",
            "–" if m["lift"] is None else m["lift"],
            m.get("remark", ""),
        )
        for m in measures
    ]
    return show.table(["rule", "support", "precision", "lift", ""], rows, title)


def _of_model(
    path: Path, every: bool, user: str | None, language: tuple[str | None, str | None]
) -> None:
    """Show the rules of a model with their weights, and how important they are to a user."""
    model = options.opened(path)
    table = model.rule_table(language=language[0], wording=language[1])
    columns = ["weight", "sentence"]
    if user is not None:
        importance = model.importance(options.named(model, "user", user)).drop("weight")
        table = table.join(importance, on="rule")
        table = table.sort("importance", descending=True, maintain_order=True)
        columns = ["importance", "n", *columns]
    rows: list[dict[str, Any]] = table.to_dicts()
    if not every:
        rows = [row for row in rows if row["weight"] != 0][:SHOWN]
    if show.wants_json():
        show.as_json({"name": model.name, "rules": rows})
        return
    cells = [[f"{v:.3f}" if isinstance(v := row[c], float) else v for c in columns] for row in rows]
    titles = {"sentence": "rule", "n": "paths in the history"}
    to = show.console()
    to.print(show.table([titles.get(c, c) for c in columns], cells, f"Rules of {path}"))
    if len(rows) < len(table):
        hidden = len(table) - len(rows)
        to.print(f"{hidden} more rules are hidden; to see them, use --all")
