"""The log of a model's updates since its fit: a bundle keeps counts, never names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from loger.data.dataset import Note
from loger.graph.growth import Learned

GROWTH, UNSEEN, WORSE = 0.2, 0.1, 0.8
"""Refitting is due when interactions have grown by more than this share, when more than this share
of the new ones are with items that the fit did not know, or when NDCG@10 of what came is below
this share of that at the fit. By judgement: what a refit is worth depends on the data."""
LATEST, FEWEST = 7, 50
"""Judge by this many of the latest measured updates, if they have at least FEWEST users (or
interactions)."""


@dataclass(frozen=True, slots=True)
class Update:
    """What one update brought, and what it took away."""

    when: str | None = None
    """The time of the update, as the caller gave it."""
    interactions: int = 0
    """New ones."""
    unseen: int = 0
    """New interactions with items that the fit didn't know."""
    facts: int = 0
    users: int = 0
    items: int = 0
    entities: int = 0
    """New ones, other than users and items."""
    relations: tuple[str, ...] = ()
    """New ones: no rule uses them until the next fit."""
    removed_interactions: int = 0
    removed_facts: int = 0
    removed_users: int = 0
    removed_items: int = 0
    ndcg: float | None = None
    """NDCG@10 of the model before the update on the new interactions …"""
    ndcg_users: int = 0
    """… and the number of users it was measured on."""
    events: bool = False
    """Whether it came from events; the events of one day are one update."""
    notes: tuple[Note, ...] = ()
    """What was left out of the tables, or read in a way that may surprise."""

    def plus(self, later: Update) -> Update:
        """Both as one."""
        sums = {f: getattr(self, f) + getattr(later, f) for f in COUNTED}
        users = self.ndcg_users + later.ndcg_users
        found = sum((row.ndcg or 0.0) * row.ndcg_users for row in (self, later))
        relations = tuple(dict.fromkeys([*self.relations, *later.relations]))
        ndcg = found / users if users else None
        notes = (*self.notes, *later.notes)
        whole: dict[str, Any] = {"relations": relations, "notes": notes, "ndcg": ndcg}
        return replace(later, **sums, **whole, ndcg_users=users)

    def __str__(self) -> str:
        more = _listed(self, ("interactions", "facts", "users", "items", "entities"), "new ")
        less = _listed(self, ("interactions", "facts", "users", "items"), "removed ", "removed_")
        text = "; ".join(part for part in (more, less) if part) or "nothing new"
        if self.relations:
            text += f"; not used by any rule until the next fit: {', '.join(self.relations)}"
        return text


def _listed(update: Update, names: tuple[str, ...], word: str, prefix: str = "") -> str:
    counts = [(name, getattr(update, prefix + name)) for name in names]
    text = ", ".join(f"{n:,} {name if n > 1 else SINGULAR[name]}" for name, n in counts if n)
    return word + text if text else ""


COUNTED = (
    *("interactions", "unseen", "facts", "users", "items", "entities"),
    *("removed_interactions", "removed_facts", "removed_users", "removed_items"),
)
SINGULAR = {
    "interactions": "interaction",
    "facts": "fact",
    "users": "user",
    "items": "item",
    "entities": "entity",
}


@dataclass(frozen=True, slots=True)
class Updates:
    """All updates since the fit, and how much of what there is the fit knew."""

    learned: Learned
    interactions: int
    """The number of interactions that the fit knew."""
    log: tuple[Update, ...] = ()
    folded: Mapping[str, int] = field(default_factory=dict)
    """For each store of events, by its id, the last event that the model contains."""

    def record(self) -> dict[str, Any]:
        """As plain values, for a bundle: notes without their examples, which may be names."""
        return {
            "types": dict(self.learned.types),
            "relations": self.learned.relations,
            "interactions": self.interactions,
            "folded": dict(self.folded),
            "log": [_plain(row) for row in self.log],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Updates:
        """The updates of a record that ``record`` made."""
        log = [_of_plain(row) for row in record["log"]]
        types = {str(name): int(n) for name, n in record["types"].items()}
        learned = Learned(types, int(record["relations"]))
        folded = {str(store): int(seq) for store, seq in record.get("folded", {}).items()}
        return cls(learned, int(record["interactions"]), tuple(log), folded)


def _plain(row: Update) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in Update.__dataclass_fields__}
    notes = [[note.what, note.count] for note in row.notes]
    return {**values, "relations": list(row.relations), "notes": notes}


def _of_plain(row: Mapping[str, Any]) -> Update:
    notes = tuple(Note(str(what), int(count)) for what, count in row.get("notes", ()))
    return Update(**{**row, "relations": tuple(row["relations"]), "notes": notes})


def due(updates: Updates, at_fit: float) -> list[str]:
    """Why a model should be fitted again; ``at_fit`` is the held-out NDCG of its fit."""
    new = sum(row.interactions for row in updates.log)
    unseen = sum(row.unseen for row in updates.log)
    why = []
    if new > GROWTH * updates.interactions:
        share = new / max(updates.interactions, 1)
        why.append(f"interactions have grown by {share:.0%} since the fit")
    if new and unseen > UNSEEN * new and unseen >= FEWEST:
        why.append(f"{unseen / new:.0%} of the new interactions are with items added since the fit")
    measured = [row for row in updates.log if row.ndcg is not None][-LATEST:]
    users = sum(row.ndcg_users for row in measured)
    if users >= FEWEST and isfinite(at_fit):
        mean = sum((row.ndcg or 0.0) * row.ndcg_users for row in measured) / users
        if mean < WORSE * at_fit:
            why.append(
                f"NDCG@10 on the new interactions is {mean:.4f}; at the fit it was {at_fit:.4f}"
            )
    if names := sorted({name for row in updates.log for name in row.relations}):
        why.append(f"no rule uses {', '.join(names)}, added since the fit")
    return why
