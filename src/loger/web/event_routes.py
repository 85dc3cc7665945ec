"""The path that takes events."""

from __future__ import annotations

import time
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Request

from loger.web.event_schemas import Acknowledged, EventBatch
from loger.web.live import Events
from loger.web.problems import ProblemError
from loger.web.routes import ERRORS
from loger.web.schemas import NAME
from loger.web.wording import known_parameters


def _from_people_we_trust(request: Request) -> None:
    """Refuse events of other machines without a key, and such as a page elsewhere could send: a
    browser sends JSON across sites only where it may."""
    config = request.app.state.service.config
    if config.api_key is None and not config.loopback:
        raise ProblemError(403, "to take events from elsewhere, start the server with an API key")
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise ProblemError(422, "send events as JSON, with Content-Type: application/json")


router = APIRouter(
    prefix="/v1",
    responses=ERRORS,
    dependencies=[Depends(known_parameters), Depends(_from_people_we_trust)],
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
    """Keep what happened: interactions, items, users, facts, deletes, impressions and clicks.

    They are on disk when this answers. What a user did acts on the user's next request, in every
    worker within a second; items and facts act as soon as a bundle holds them."""
    state, now = request.app.state, time.time()
    kept = [
        one.event(now, None if idempotency_key is None else f"{idempotency_key} {place}")
        for place, one in enumerate(batch.events)
    ]
    keeper: Events = state.events
    told = await to_thread.run_sync(keeper.append, kept, limiter=_one_at_a_time(state))
    return Acknowledged(**told._asdict())


def _one_at_a_time(state: object) -> CapacityLimiter:
    """Events wait for the disk in a thread of their own, not in one of those that recommend."""
    limiter: CapacityLimiter | None = getattr(state, "event_limiter", None)
    if limiter is None:
        limiter = CapacityLimiter(1)
        state.event_limiter = limiter  # type: ignore[attr-defined]
    return limiter
