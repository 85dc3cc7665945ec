"""The path that takes events, and what they may contain."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from loger.updates.events import Event
from loger.web.live import Events
from loger.web.problems import ProblemError, known_parameters
from loger.web.routes import ERRORS
from loger.web.schemas import MOST, NAME, WHOLE, Name

MOST_EVENTS = 1_000
"""Events of a batch."""
LATEST = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""


def _seconds(value: object) -> object:
    """A time as seconds since 1970."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be seconds since 1970 or a time such as 2026-11-17T08:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


Time = Annotated[
    int | None,
    Field(
        ge=-LATEST,
        le=LATEST,
        description="When it happened: seconds since 1970, or text as in ISO 8601 (in UTC unless "
        "it says otherwise). If left out, when it was received.",
        json_schema_extra={"examples": [1763366400, "2026-11-17T08:00:00Z"]},
    ),
    BeforeValidator(_seconds),
    WHOLE,
]
Label = Annotated[Name | None, Field(description="What people read.")]
Facts = Annotated[
    dict[Name, Annotated[list[Name], Field(max_length=MOST)]],
    Field(max_length=MOST, description='Relation → names, such as `{"has_brand": ["Acme"]}`.'),
]
RecommendationId = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$", description="As the answer with the list had it.")
]


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    key: Name | None = Field(
        default=None, description="Events that repeat a key are ignored: send again at will."
    )
    time: Time = None

    def event(self, at: float, key: str | None) -> Event:
        """The event as it is kept."""
        body = self.model_dump(exclude={"kind", "key"}, exclude_defaults=True)
        return Event(self.kind, body, self.key or key, at)  # type: ignore[attr-defined]


class InteractionEvent(_Event):
    """A user took an item; whoever is not known yet is from now on."""

    kind: Literal["interaction"]
    user: Name
    item: Name
    rating: float | None = Field(
        default=None,
        description="A rating lower than what the model's data were read with is a dislike.",
        allow_inf_nan=False,
    )
    strength: float | None = Field(
        default=None,
        description="How much of it there was: plays, pieces, seconds, as in the model's data; "
        "it adds up. 1 where nothing is said.",
        gt=0,
        allow_inf_nan=False,
    )

    behaviour: Name | None = Field(
        default=None,
        description="What the user did, if it was not the interaction itself: viewed, carted. "
        "Such an item may still be recommended.",
    )


class DislikeEvent(_Event):
    """A user doesn't want to see an item: it is hidden from them at once."""

    kind: Literal["dislike"]
    user: Name
    item: Name


class ItemEvent(_Event):
    """An item is new, or has another label or more facts."""

    kind: Literal["item"]
    item: Name
    label: Label = None
    facts: Facts = {}


class UserEvent(_Event):
    """A user is new, or has another label or more facts."""

    kind: Literal["user"]
    user: Name
    label: Label = None
    facts: Facts = {}


class FactEvent(_Event):
    """Something is so."""

    kind: Literal["fact"]
    head: Name
    relation: Name
    tail: Name
    head_type: Name | None = None
    tail_type: Name | None = None


_DELETED = "give a user, an item, both (their interaction), or head, relation and tail"


class DeleteEvent(_Event):
    """A user is to be forgotten, or an item, an interaction or a fact is no longer so."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "anyOf": [
                {"required": ["user"]},
                {"required": ["item"]},
                {"required": ["head", "relation", "tail"]},
            ]
        },
    )
    kind: Literal["delete"]
    user: Name | None = None
    item: Name | None = None
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    head_type: Name | None = None
    tail_type: Name | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> DeleteEvent:
        fact = [x is not None for x in (self.head, self.relation, self.tail)]
        named = self.user is not None or self.item is not None
        if any(fact) == named or any(fact) != all(fact):
            raise ValueError(_DELETED)
        return self


class ImpressionEvent(_Event):
    """Somebody saw a list, or some of its items."""

    kind: Literal["impression"]
    recommendation_id: RecommendationId
    items: Annotated[list[Name], Field(max_length=MOST)] | None = Field(
        default=None, description="Those that were seen, if not the whole list was."
    )


class ClickEvent(_Event):
    """Somebody took up an item of a list. That is not an interaction yet: send that as well."""

    kind: Literal["click"]
    recommendation_id: RecommendationId
    item: Name


AnyEvent = Annotated[
    InteractionEvent
    | DislikeEvent
    | ItemEvent
    | UserEvent
    | FactEvent
    | DeleteEvent
    | ImpressionEvent
    | ClickEvent,
    Field(discriminator="kind"),
]
EXAMPLE: dict[str, Any] = {
    "events": [
        {"kind": "interaction", "user": "ann", "item": "a new mug", "key": "order 17, line 1"},
        {"kind": "item", "item": "a new mug", "label": "Mug", "facts": {"has_brand": ["Acme"]}},
    ]
}


class EventBatch(BaseModel):
    """Some events, in the order in which they happened; kept all or none."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]}
    )
    events: Annotated[list[AnyEvent], Field(min_length=1, max_length=MOST_EVENTS)]


class Acknowledged(BaseModel):
    """That events are on disk."""

    stored: int
    duplicates: int = Field(description="Those whose key was there already: they count once.")
    last: int = Field(description="The number of the last event that the server has.")


def _as_json(request: Request) -> None:
    """Refuse events that a page elsewhere could send: a browser sends JSON across sites only where
    it may."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise ProblemError(422, "send events as JSON, with Content-Type: application/json")


router = APIRouter(
    prefix="/v1",
    responses=ERRORS,
    dependencies=[Depends(known_parameters), Depends(_as_json)],
)


@router.post("/events", tags=["events"])
async def events(
    request: Request,
    batch: EventBatch,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=NAME,
            description="Of the whole batch, for events without a key of their own: a batch that "
            "is sent again with the same key counts once.",
        ),
    ] = None,
) -> Acknowledged:
    """Keep what happened: interactions, dislikes, items, users, facts, deletes, impressions and
    clicks.

    They are on disk when this answers. What a user did acts on the user's next request, in every
    worker within a second; items and facts act as soon as a bundle holds them."""
    state, now = request.app.state, time.time()
    kept = [
        one.event(now, None if idempotency_key is None else f"{idempotency_key} {place}")
        for place, one in enumerate(batch.events)
    ]
    keeper: Events = state.events
    client = request.client.host if request.client else ""
    told = await to_thread.run_sync(keeper.append, kept, client, limiter=_one_at_a_time(state))
    return Acknowledged(**told._asdict())


def _one_at_a_time(state: object) -> CapacityLimiter:
    """Events wait for the disk in a thread of their own, not in one of those that recommend."""
    limiter: CapacityLimiter | None = getattr(state, "event_limiter", None)
    if limiter is None:
        limiter = CapacityLimiter(1)
        state.event_limiter = limiter  # type: ignore[attr-defined]
    return limiter
