"""The paths that say how the server does."""

from __future__ import annotations

import time
from dataclasses import asdict

from fastapi import APIRouter, Depends, Request

from loger import __version__
from loger.graph.filters import fact_names
from loger.web import schemas as s
from loger.web.live import Events
from loger.web.problems import ProblemError
from loger.web.routes import ERRORS
from loger.web.served import Served
from loger.web.service import Service
from loger.web.variants import Variants
from loger.web.wording import known_parameters

router = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Depends(known_parameters)])


@router.get("/health", tags=["running"])
async def health(request: Request) -> s.Health:
    """Whether the server works, and which bundle it serves; degraded: not the newest one, or one
    that events cannot be folded into."""
    variants: Variants = request.app.state.variants
    events: Events = request.app.state.events
    served: Served = request.app.state.service.served
    problem = variants.problem or events.not_folded
    return s.Health(
        status="ok" if problem is None else "degraded",
        problem=problem,
        version=__version__,
        fingerprint=served.fingerprint,
        loaded=served.loaded,
    )


@router.get("/health/live", tags=["running"])
async def live(request: Request) -> s.Alive:
    """Whether the process works at all; if not, start it again."""
    return s.Alive(status="live")


@router.get("/health/ready", tags=["running"])
async def ready(request: Request) -> s.Alive:
    """Whether to send requests here: 503 while events cannot be followed, or it is stopping."""
    events: Events = request.app.state.events
    if events.problem is not None or events.stopping:
        raise ProblemError(503, events.problem or "this server is stopping")
    return s.Alive(status="ready")


@router.get("/about", tags=["running"])
def about(request: Request) -> s.About:
    """The model, the data behind it, and the limits of requests."""
    served: Served = request.app.state.service.served
    graph = served.graph
    beside = [column.type for column in served.model.catalogue_.unwalked]
    return s.About(
        version=__version__,
        fingerprint=served.fingerprint,
        users=graph.n_users,
        items=graph.n_items,
        facts=graph.n_triples,
        rules=len(served.model.rules_),
        types=list(graph.vocabulary.types),
        beside=list(dict.fromkeys(beside)),
        filters=fact_names(graph, served.model.catalogue_),
        interaction=graph.relations[0].name,
        fusion=served.model.config_.em.fusion,
        explain_by=served.model.config_.explain_by,
        takes_new_users=served.takes_new_users,
        labels_repeat=graph.vocabulary.shown is not graph.vocabulary.labels,
        most=s.MOST,
        most_paths=s.MOST_PATHS,
        most_history=s.MOST_HISTORY,
        staleness=_staleness(request),
    )


def _staleness(request: Request) -> s.Staleness:
    events: Events = request.app.state.events
    told = events.staleness(request.app.state.service, time.time())
    return s.Staleness(**asdict(told))


@router.post("/reload", tags=["running"])
def reload(request: Request) -> s.Reloaded:
    """Reload the bundle if it has changed; needs an API key. Other workers follow in seconds."""
    service: Service = request.app.state.service
    if service.config.api_key is None:
        raise ProblemError(403, "to reload by request, start the server with an API key")
    variants: Variants = request.app.state.variants
    changed = sum(one.refresh() for one in variants.services) > 0
    return s.Reloaded(changed=changed, fingerprint=service.served.fingerprint)
