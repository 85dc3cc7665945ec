"""The server as an ASGI app: the API, the web app, documentation, metrics."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from loger import __version__
from loger.web import problems
from loger.web.config import VARIABLE, ServeConfig
from loger.web.guard import Guard
from loger.web.lane import Lane
from loger.web.live import Events
from loger.web.metrics import Metrics
from loger.web.routes import router
from loger.web.service import Variants

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
    app.state.variants, app.state.events = variants, events
    app.state.event_limiter = CapacityLimiter(1)
    problems.install(app, router.routes)
    app.include_router(router)
    _add_pages(app, metrics)
    if guarded:
        app.add_middleware(Guard, config=config, metrics=metrics, lane=lane)
    return app


def _add_pages(app: FastAPI, metrics: Metrics) -> None:
    """What isn't part of the API: the web app, its documentation, metrics."""

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
