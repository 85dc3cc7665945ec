"""One event: what happened, as it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal["interaction", "item", "user", "fact", "delete", "impression", "click"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, by name.

    An ``interaction`` has user, item and optionally time, rating and strength; an ``item`` and a
    ``user`` have that name and optionally a label and facts, as relation → names; a ``fact`` has
    head, relation and tail and optionally head_type and tail_type; a ``delete`` has a user, an
    item, both (their interaction) or head, relation and tail; an ``impression`` has a
    recommendation_id and optionally the items that were seen, a ``click`` a recommendation_id and
    an item.
    """

    kind: Kind
    body: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    """Events that repeat a key are ignored."""
    at: float = 0.0
    """When it was received, in seconds since 1970."""
    seq: int = 0
    """Its place in the store, from 1."""

    @property
    def when(self) -> int:
        """When it happened, in seconds since 1970: as it says, or else when it was received."""
        time = self.body.get("time")
        return int(self.at) if time is None else int(time)
