"""``loger update``: add data to a bundle after its fit, or remove data from it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loger.cli import options, show
from loger.errors import DataError

if TYPE_CHECKING:
    from loger.model import LOGER


@options.command()
@options.bundle
@options.file("--interactions", "New interactions, with user, item and time.")
@options.file("--facts", "New facts, with head, relation and tail.")
@options.file("--items", "New items, with an ID and an optional label.")
@options.file("--users", "New users, with an ID and an optional label.")
@options.vectors("known and new items")
@options.several("--forget-user", metavar="NAME", help="Forget everything about a user")
@options.several("--remove-item", metavar="NAME", help="Remove an item")
@options.file("--remove-interactions", "Interactions to remove.")
@options.file("--remove-facts", "Facts to remove.")
@options.file("--events", "Events that loger serve recorded: BUNDLE.events.sqlite.")
@options.out("BUNDLE", "Write a new bundle instead of replacing this one.", required=False)
@options.force("the bundle at --out")
@options.number("--eval-users", 500, "Number of users to evaluate on before updating.", least=0)
def update(
    bundle: Path,
    interactions: Path | None,
    facts: Path | None,
    items: Path | None,
    users: Path | None,
    vectors: dict[str, str],
    forget_user: tuple[str, ...],
    remove_item: tuple[str, ...],
    remove_interactions: Path | None,
    remove_facts: Path | None,
    events: Path | None,
    out: Path | None,
    force: bool,
    eval_users: int,
) -> None:
    """Add new data to a bundle, or remove data from it.

    loger doesn't retrain the model, and it tells you when to fit again. It removes data before it
    adds any. Names that the model doesn't know become new users, items or entities. loger replaces
    the bundle only when the new one is complete; a running server then loads it.

    \b
    Examples:
      loger update my-shop.bundle --interactions last-night.csv --facts new-items.csv
      loger update my-shop.bundle --interactions last-night.csv -o monday.bundle
      loger update my-shop.bundle --forget-user ann
      loger update my-shop.bundle --events my-shop.bundle.events.sqlite
    """
    from loger.engine.files import check_target, claim
    from loger.store.bundle import MODEL
    from loger.updates.events import events_path
    from loger.web.folding import fold, forget

    target, now = out or bundle, datetime.now(UTC).timestamp()
    check_target(target, MODEL, replace=force or out is None)
    gone: dict[str, Any] = {"users": list(forget_user), "items": list(remove_item)}
    gone |= {"interactions": remove_interactions, "facts": remove_facts}
    new: dict[str, Any] = {"interactions": interactions, "facts": facts, "items": items}
    new |= {"users": users, "vectors": vectors}
    if events is not None:
        if any((*gone.values(), *new.values())):
            raise click.UsageError("--events can't be combined with other changes; run it alone")
        fold_events(bundle, events, out, eval_users)
        return
    if not any((*gone.values(), *new.values())):
        raise click.UsageError(
            "there is nothing to do; pass a change such as --interactions or --forget-user"
        )
    kept = events_path(target) if forget_user and events_path(target).is_file() else None
    with claim(target, "update"):
        model = options.opened(bundle)
        if kept is not None:
            gone["users"] = forget(model, kept, list(forget_user), now)
        if any(gone.values()):
            model = model.remove(**gone, when=_now())
        if any(new.values()):
            floor = (model.record_ or {}).get("min_rating")
            model = model.update(**new, min_rating=floor, when=_now(), measure=eval_users)
        model.save(target)
    if kept is not None:  # so that not even the name stays there
        model = fold(target, kept, now=now, when=_now()).model or model
    show.result(summary(model, target), draw)


def fold_events(bundle: Path, events: Path, out: Path | None, eval_users: int) -> None:
    """Merge events into a bundle and show what they changed."""
    from loger.web.folding import fold

    if not events.is_file():
        remedy = "pass the file that loger serve writes"
        raise DataError("no such file", path=events, remedy=remedy)
    now = datetime.now(UTC)
    done = fold(bundle, events, out, now=now.timestamp(), when=_now(), measure=eval_users)
    if done.model is None:
        changed: dict[str, Any] = {"bundle": str(out or bundle), "updates": [], "refit_due": []}
    else:
        changed = summary(done.model, out or bundle)
    refused = [] if done.model is None else [str(one) for one in done.refused]
    show.result(changed | {"seq": done.seq, "refused": refused}, draw)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def summary(model: LOGER, target: Path) -> dict[str, Any]:
    """The bundle's updates since its fit, as plain values."""
    updates = model.updates_
    log = [] if updates is None else list(zip(updates.record()["log"], updates.log, strict=True))
    rows = [
        {**plain, "notes": [asdict(note) for note in row.notes], "text": str(row)}
        for plain, row in log
    ]
    return {"bundle": str(target), "updates": rows, "refit_due": model.refit_due()}


def draw(summary: dict[str, Any]) -> None:
    """Show what the update changed, and whether to fit again."""
    if not summary["updates"]:
        click.echo(f"{summary['bundle']}: nothing new")
        return
    last = summary["updates"][-1]
    show.say(f"{summary['bundle']}: {last['text']}")
    if last["ndcg"] is not None:
        n = last["ndcg_users"]
        users = f"{n:,} user{'s' if n != 1 else ''}"
        score = f"{last['ndcg']:.4f} ({users})"
        click.echo(f"NDCG@10 on the new interactions, before learning from them: {score}")
    for why in summary["refit_due"]:
        show.say(f"time to fit again: {why}")
