"""The server as an ASGI app: the API, the web app, documentation, metrics."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from loger import __version__
from loger.graph.catalogue import fact_names
from loger.web import event_routes, problems, routes
from loger.web import schemas as s
from loger.web.config import VARIABLE, ServeConfig
from loger.web.guard import Guard
from loger.web.keys import ACCESS, Access
from loger.web.lane import Lane
from loger.web.live import Events
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError, known_parameters
from loger.web.served import Served
from loger.web.service import Service, Variants

STATIC = Path(__file__).parent / "static"
ABOUT = """Recommendations with true reasons. Names identify users and items; every error
has the shape `{"error": {"status", "code", "message", "fields"}}`. If the server has an API key,
give it in the header `X-API-Key`."""


def create_app(config: ServeConfig, guarded: bool = True) -> FastAPI:
    """The app over a bundle, which is loaded here: a damaged bundle is an error at once.

    Without a guard it is the slow lane's, which only its worker reaches."""
    metrics = Metrics()
    variants = Variants(config, metrics)
    events = Events(config, variants.services, metrics)
    lane = Lane(config) if config.lane else None

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = config.threads
        for service in variants.services:
            service.start()
        events.start()
        if lane is not None:
            lane.start()  # only now, when the worker itself is ready
        yield
        if lane is not None:
            lane.stop()
        events.stop()
        for service in variants.services:
            service.stop()

    app = FastAPI(
        title="loger",
        version=__version__,
        description=ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the pages that FastAPI makes load from elsewhere
        redoc_url=None,
        lifespan=life,
        redirect_slashes=False,  # a redirect would repeat whatever Host a client sent
    )
    app.state.service, app.state.variants = variants.services[0], variants
    app.state.events = events
    routers = (routes.router, running, event_routes.router)
    problems.install(app, [route for router in routers for route in router.routes])
    for router in routers:
        app.include_router(router)
    _add_pages(app, metrics)
    if guarded:
        app.add_middleware(Guard, config=config, metrics=metrics, lane=lane)
    return app


def _add_pages(app: FastAPI, metrics: Metrics) -> None:
    """What is not of the API: the web app, documentation, numbers."""

    @app.get("/metrics", include_in_schema=False)
    def numbers() -> Response:
        return Response(metrics.text(), media_type=metrics.content_type)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def from_environment() -> FastAPI:
    """The app of a worker process that ``loger serve`` started."""
    return create_app(ServeConfig.from_json(os.environ[VARIABLE]))


# ── how the server is doing ─────────────────────────────────────────────────────────────


running = APIRouter(prefix="/v1", responses=routes.ERRORS, dependencies=[Depends(known_parameters)])


@running.get("/health", tags=["running"])
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


@running.get("/health/live", tags=["running"])
async def live(request: Request) -> s.Alive:
    """Whether the process works at all; if not, start it again."""
    return s.Alive(status="live")


@running.get("/health/ready", tags=["running"])
async def ready(request: Request) -> s.Alive:
    """Whether to send requests here: 503 while events cannot be followed, or it is stopping."""
    events: Events = request.app.state.events
    if events.problem is not None or events.stopping:
        raise ProblemError(503, events.problem or "this server is stopping")
    return s.Alive(status="ready")


@running.get("/about", tags=["running"])
def about(request: Request) -> s.About:
    """The model, the data behind it, and the limits of requests."""
    service: Service = request.app.state.service
    events: Events = request.app.state.events
    served, graph = service.served, service.served.graph
    access: Access = request.scope.get(ACCESS, Access())
    beside = [column.type for column in served.model.catalogue_.filter_only]
    measured, held_out = served.model.measured_, len(served.model.ranker_.held_out)
    words = service.words(request.headers.get("accept-language", ""))
    types = list(graph.vocabulary.types)
    return s.About(
        version=__version__,
        fingerprint=served.fingerprint,
        users=graph.n_users,
        items=graph.n_items,
        facts=graph.n_triples,
        rules=len(served.model.rules_),
        types=types,
        beside=list(dict.fromkeys(beside)),
        kinds={name: words.kind(name) for name in (*types, *beside)},
        verbs={r.name: words.verb(r.name, r.head_type, r.tail_type) for r in graph.relations},
        filters=fact_names(graph, served.model.catalogue_),
        interaction=graph.relations[0].name,
        fusion=served.model.config_.em.fusion,
        explain_by=served.model.config_.explain_by,
        takes_new_users=served.takes_new_users,
        takes_events=events.config.events and access.scope == "admin",
        labels_repeat=graph.vocabulary.shown is not graph.vocabulary.labels,
        most=s.MOST,
        most_paths=s.MOST_PATHS,
        most_history=s.MOST_HISTORY,
        staleness=events.staleness(service, time.time()),
        fitted_for="testing" if held_out else "use",
        held_out=held_out,
        measured=None if measured is None else s.Measured(**asdict(measured)),
    )


@running.post("/reload", tags=["running"])
def reload(request: Request) -> s.Reloaded:
    """Reload the bundle if it has changed; needs an API key. Other workers follow in seconds."""
    service: Service = request.app.state.service
    if service.config.api_key is None:
        raise ProblemError(403, "to reload by request, start the server with an API key")
    variants: Variants = request.app.state.variants
    changed = sum(one.refresh() for one in variants.services) > 0
    return s.Reloaded(changed=changed, fingerprint=service.served.fingerprint)
