"""The user study behind the guard of the app: raters see its pages and nothing else."""

from __future__ import annotations

import socket
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loger.errors import LogerError
from loger.study.pages import html_page, next_page, welcome
from loger.study.store import LONGEST_NAME, Study, rater_name
from loger.web.config import ServeConfig
from loger.web.guard import Guard
from loger.web.metrics import Metrics

MAX_BODY = 10_000
"""Bytes of the longest answer that is read."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
WHO = "Please enter a name."


def create_study_app(study: Study, host: str = "127.0.0.1", port: int = 8010) -> FastAPI:
    """The pages of a study as an ASGI app."""
    app = FastAPI(title="loger study", openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/")
    def first() -> HTMLResponse:
        return _page(welcome(study))

    @app.get("/rank")
    def rank(rater: str = "") -> HTMLResponse:
        if not 0 < len(rater_name(rater)) <= LONGEST_NAME:
            return _page(welcome(study, WHO), 400)
        return _page(next_page(study, rater.strip()))

    @app.post("/answer")
    async def answer(request: Request) -> Response:
        origin = request.headers.get("origin", "null")
        if origin != "null" and urlsplit(origin).netloc != request.headers.get("host"):
            raise HTTPException(403, "Answers are taken from this page only")
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        return await run_in_threadpool(_answered, study, form)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> HTMLResponse:
        title = "Page not found" if error.status_code == 404 else str(error.detail)
        return _page(html_page(title, '<p><a href="/">Start</a></p>'), error.status_code)

    config = ServeConfig(str(study.path), host, port, max_body=MAX_BODY)
    app.add_middleware(Guard, config=config, metrics=Metrics())
    return app


def _answered(study: Study, form: dict[str, list[str]]) -> Response:
    """Keep an answer and go on to the next task, or say what is wrong with it."""
    rater = form.get("rater", [""])[0].strip()
    try:
        task = int(form.get("task", [""])[0])
        n = len(study.tasks[task].shown) if task >= 0 else 0
        ranks = [int(form.get(f"rank{k}", ["0"])[0]) for k in range(n)]
        study.answer(rater, task, ranks)
    except (LogerError, ValueError, IndexError):
        if not 0 < len(rater_name(rater)) <= LONGEST_NAME:
            return _page(welcome(study, WHO), 400)
        return _page(next_page(study, rater, "Give each rank exactly once."), 400)
    return RedirectResponse("/rank?" + urlencode({"rater": rater}), 303, HEADERS)


def _page(text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(text, status, HEADERS)


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # who comes before the server is ready waits
    except OSError as error:
        bound.close()
        raise LogerError(
            f"cannot listen at {host}:{port} ({error.strerror}); give another --port or --host"
        ) from None
    return bound


def run_study(study: Study, host: str, bound: socket.socket) -> None:
    """Serve a study until interrupted."""
    import uvicorn

    from loger.web.protocol import GRACE

    app = create_study_app(study, host, bound.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http="loger.web.protocol:TimedProtocol",
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )
    uvicorn.Server(config).run(sockets=[bound])
