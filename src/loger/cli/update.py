"""``loger update``: a bundle takes in what came after its fit, or lets go of what has to go."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loger.cli.options import AsJson, Bundle, opened, setting

if TYPE_CHECKING:
    from loger.model import LOGER


def _table(what: str) -> Any:
    return setting(what, metavar="FILE")


def _names(what: str) -> Any:
    return setting(what, metavar="NAME")


def update(
    bundle: Bundle,
    interactions: Annotated[Path | None, _table("New interactions: user, item, time.")] = None,
    triples: Annotated[Path | None, _table("New facts: head, relation, tail.")] = None,
    items: Annotated[Path | None, _table("New items: id, perhaps label.")] = None,
    users: Annotated[Path | None, _table("New users: id, perhaps label.")] = None,
    forget_user: Annotated[list[str], _names("A user to forget, wholly; several times.")] = [],  # noqa: B006
    remove_item: Annotated[list[str], _names("An item to remove; several times.")] = [],  # noqa: B006
    remove_interactions: Annotated[Path | None, _table("Interactions to remove.")] = None,
    remove_triples: Annotated[Path | None, _table("Facts to remove.")] = None,
    events: Annotated[
        Path | None, _table("Events that loger serve kept: BUNDLE.events.sqlite.")
    ] = None,
    out: Annotated[
        Path | None,
        setting("Write here, not in place.", "--out", "-o", metavar="BUNDLE"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle at --out.")] = False,
    measure: Annotated[
        int, typer.Option(min=0, help="Users on whom to measure how well the model foresaw it.")
    ] = 500,
    json: AsJson = False,
) -> None:
    """Take what is new into a bundle, or remove what has to go.

    Nothing is trained. Whatever the tables name that the model does not know is new. What is to
    go goes first. The bundle is replaced when the new one is complete, or stays as it was; a
    server that watches it goes over to the new one. The log of updates is kept in the bundle, and
    says when to fit again.

    \b
    Examples:
      loger update my-shop.bundle --interactions last-night.csv --triples new-items.csv
      loger update my-shop.bundle --interactions last-night.csv -o monday.bundle
      loger update my-shop.bundle --forget-user ann
      loger update my-shop.bundle --events my-shop.bundle.events.sqlite
    """
    from loger.cli import show
    from loger.engine.files import claim
    from loger.store.bundle import check_target
    from loger.updates.events import events_path
    from loger.web.folding import fold, forget

    if events is not None:
        fold_events(bundle, events, out, force, measure, json)
        return
    less = {"users": forget_user, "items": remove_item}
    gone = {"interactions": remove_interactions, "facts": remove_triples}
    more = {"interactions": interactions, "facts": triples, "items": items, "users": users}
    if not any((*less.values(), *gone.values(), *more.values())):
        raise typer.BadParameter("nothing to do: give --interactions, --triples or the like")
    target, now = out or bundle, datetime.now(UTC).timestamp()
    check_target(target, replace=force or out is None)
    kept = events_path(target) if forget_user and events_path(target).is_file() else None
    with claim(target, "update"):
        model = opened(bundle)
        if kept is not None:
            less["users"] = forget(model, kept, forget_user, now)
        if any((*less.values(), *gone.values())):
            model = model.remove(**less, **gone, when=_now())  # type: ignore[arg-type]
        if any(more.values()):
            floor = (model.record_ or {}).get("positive_from")
            model = model.update(**more, positive_from=floor, when=_now(), measure=measure)
        model.save(target)
    if kept is not None:  # so that not even the name stays there
        model = fold(target, kept, now=now, when=_now()).model or model
    show.result(summary(model, target), draw, json)


def fold_events(
    bundle: Path, events: Path, out: Path | None, force: bool, measure: int, json: bool
) -> None:
    """Fold events into a bundle and tell what they brought."""
    from loger.cli import show
    from loger.errors import DataError
    from loger.store.bundle import check_target
    from loger.web.folding import fold

    if not events.is_file():
        raise DataError("there is no such file", path=events, remedy="give what loger serve kept")
    check_target(out or bundle, replace=force or out is None)
    now = datetime.now(UTC)
    told = fold(bundle, events, out, now=now.timestamp(), when=_now(), measure=measure)
    if told.model is None:
        nothing = {"bundle": str(out or bundle), "updates": [], "refit_due": []}
        show.result({**nothing, "seq": told.seq, "refused": []}, draw, json)
        return
    more = {"seq": told.seq, "refused": [str(one) for one in told.refused]}
    show.result({**summary(told.model, out or bundle), **more}, draw, json)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def summary(model: LOGER, target: Path) -> dict[str, Any]:
    """What the bundle went through since its fit, as plain values."""
    updates = model.updates_
    log = [] if updates is None else list(zip(updates.record()["log"], updates.log, strict=True))
    rows = [
        {**plain, "notes": [asdict(note) for note in row.notes], "text": str(row)}
        for plain, row in log
    ]
    return {"bundle": str(target), "updates": rows, "refit_due": model.refit_due()}


def draw(summary: dict[str, Any]) -> None:
    """Show what the update brought, and whether to fit again."""
    from loger.cli import show

    if not summary["updates"]:
        typer.echo(f"{summary['bundle']}: nothing new")
        return
    last = summary["updates"][-1]
    show.say(f"{summary['bundle']}: {last['text']}")
    if last["ndcg"] is not None:
        n = last["ndcg_users"]
        users = f"{n:,} user{'s' if n != 1 else ''}"
        typer.echo(
            f"NDCG@10 of the new interactions by the model before: {last['ndcg']:.4f}, {users}"
        )
    for why in summary["refit_due"]:
        show.say(f"fit again soon: {why}")
