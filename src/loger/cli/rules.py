"""``loger rules``: the rules that hold in a data set, or the weights of a model's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loger.cli.options import (
    AsJson,
    EngineName,
    Format,
    Language,
    PositiveFrom,
    WordingFile,
    named,
    opened,
    read,
    setting,
)
from loger.errors import LogerError


def rules(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A data set in any format, or a bundle.")
    ],
    max_rules: Annotated[int, typer.Option(min=1, help="Keep at most this many rules.")] = 50,
    max_hops: Annotated[int, typer.Option(min=1, max=3, help="The most hops of a rule.")] = 3,
    min_support: Annotated[
        int | None,
        setting("Drop rules that reach fewer observed pairs (50; fewer in small data).", min=1),
    ] = None,
    min_lift: Annotated[
        float | None,
        setting("Drop rules whose lift over chance is below this (2; 1 in small data).", min=0),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the split and for sampling.")] = 0,
    every: Annotated[bool, typer.Option("--all", help="Show dropped rules too, and why.")] = False,
    format: Format = None,
    positive_from: PositiveFrom = None,
    user: Annotated[
        str | None,
        setting("Of a bundle: how important each rule is to a user."),
    ] = None,
    language: Language = None,
    wording: WordingFile = None,
    engine: EngineName = "threads",
    json: AsJson = False,
) -> None:
    """Show the rules of a data set or of a fitted model, best first.

    Rules of a data set are mined on its training part. support: observed pairs that the rule
    reaches; precision: the share of reached pairs that are observed; lift: precision over that of
    chance. Rules of a model have weights; of the options only --max-rules, --all, --user,
    --language and --wording apply to them.

    \b
    Examples:
      loger rules my-shop --max-rules 10
      loger rules my-shop --all
      loger rules my-shop.bundle --user ann
      loger rules my-shop --json
    """
    from loger.store.bundle import is_bundle

    if is_bundle(path):
        _of_model(path, max_rules, every, user, json, language, wording)
        return
    if user is not None:
        raise LogerError(f"--user needs a bundle; {path} is not a bundle, make one with loger fit")
    from loger.engine import engine_named

    on = engine_named(engine)
    dataset = read(path, format, positive_from)
    from loger.cli import show
    from loger.data import split
    from loger.logic.mining import MiningConfig, mine

    config = MiningConfig(
        max_hops=max_hops,
        min_support=min_support,
        min_lift=min_lift,
        max_rules=max_rules,
        seed=seed,
    )
    with show.engine(on=on) as works_on:
        mined = mine(split(dataset, seed=seed).graph, config, works_on)
    measures = [measure.as_dict() for measure in mined.measures]
    if json:
        show.as_json({"name": dataset.name, "summary": mined.summary(), "rules": measures})
        return
    to = show.console()
    rows = [m | ({"remark": m["why"]} if every else {}) for m in measures if m["kept"] or every]
    if rows:
        to.print(show.rule_table(rows, f"Rules of {dataset.name}"))
    to.print(mined.summary(), markup=False)


def _of_model(
    path: Path,
    max_rules: int,
    every: bool,
    user: str | None,
    json: bool,
    language: str | None,
    wording: Path | None,
) -> None:
    """Show the rules of a model with their weights, and how important they are to a user."""
    model = opened(path)
    from loger.cli import show

    table = model.rule_table(language=language, wording=wording)
    columns = ["weight", "sentence"]
    if user is not None:
        importance = model.importance(named(model, "user", user)).drop("weight")
        table = table.join(importance, on="rule")
        table = table.sort("importance", descending=True, maintain_order=True)
        columns = ["importance", "n", *columns]
    rows: list[dict[str, Any]] = table.to_dicts()
    if not every:
        rows = [row for row in rows if row["weight"] > 0][:max_rules]
    if json:
        show.as_json({"name": model.name, "rules": rows})
        return
    cells = [[f"{v:.3f}" if isinstance(v := row[c], float) else v for c in columns] for row in rows]
    titles = {"sentence": "rule", "n": "paths in the history"}
    to = show.console()
    to.print(show.table([titles.get(c, c) for c in columns], cells, f"Rules of {path}"))
    if len(rows) < len(table):
        hidden = len(table) - len(rows)
        to.print(f"{hidden} more have no weight or exceed --max-rules; --all shows them")
