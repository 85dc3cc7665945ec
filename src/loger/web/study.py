"""The user study behind the guard of the app: raters see its pages and nothing else."""

from __future__ import annotations

import logging
import socket
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loger.errors import LogerError
from loger.study.pages import html_page, next_page, welcome
from loger.study.store import LONGEST_NAME, AnswerError, Study, rater_name
from loger.web.config import ServeConfig
from loger.web.guard import Guard
from loger.web.metrics import Metrics

log = logging.getLogger(__name__)
MAX_BODY = 10_000
"""Bytes of the longest answer that is read."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # without any, browsers do not say where a form was sent from
}
WHO = f"Please enter a name of up to {LONGEST_NAME} characters."
TAKEN = "That name is taken. If it is yours, open the address that you kept; else choose another."


def create_study_app(study: Study, host: str = "127.0.0.1", port: int = 8010) -> FastAPI:
    """The pages of a study as an ASGI app."""
    app = FastAPI(title="loger study", openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/")
    def first() -> HTMLResponse:
        return _page(welcome(study))

    @app.post("/begin")
    async def begin(request: Request) -> Response:
        return await run_in_threadpool(_begun, study, await _form(request))

    @app.get("/rank")
    def rank(rater: str = "", token: str = "") -> HTMLResponse:
        if not study.knows(rater, token):
            return _page(welcome(study, TAKEN), 403)
        return _page(next_page(study, rater, token))

    @app.post("/answer")
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_answered, study, await _form(request))

    @app.exception_handler(LogerError)
    async def busy(_: Request, error: LogerError) -> HTMLResponse:
        log.error("%s", error)
        told = "<p>The study cannot be read or written just now. Go back and try again.</p>"
        return _page(html_page("Please wait", told), 503)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> HTMLResponse:
        title = "Page not found" if error.status_code == 404 else str(error.detail)
        return _page(html_page(title, '<p><a href="/">Start</a></p>'), error.status_code)

    config = ServeConfig(str(study.path), host, port, max_body=MAX_BODY)
    app.add_middleware(Guard, config=config, metrics=Metrics())
    return app


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form of ours; what a page elsewhere sends is refused."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "Answers are taken from this page only")
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    return {name: values[0] for name, values in form.items()}


def _begun(study: Study, form: dict[str, str]) -> Response:
    """Take in a new rater, who goes on at an address that nobody else knows."""
    rater = form.get("rater", "").strip()
    if not 0 < len(rater_name(rater)) <= LONGEST_NAME:
        return _page(welcome(study, WHO), 400)
    try:
        return _onwards(rater, study.begin(rater))
    except AnswerError:
        return _page(welcome(study, TAKEN), 403)


def _answered(study: Study, form: dict[str, str]) -> Response:
    """Keep an answer and go on to the next task, or say what is wrong with it."""
    rater, token = form.get("rater", ""), form.get("token", "")
    if not study.knows(rater, token):
        return _page(welcome(study, TAKEN), 403)
    try:
        task = int(form.get("task", ""))
        n = len(study.tasks[task].shown) if task >= 0 else 0
        study.answer(rater, task, [int(form.get(f"rank{k}", "0")) for k in range(n)])
    except (AnswerError, ValueError, IndexError):
        return _page(next_page(study, rater, token, "Give each rank exactly once."), 400)
    return _onwards(rater, token)


def _onwards(rater: str, token: str) -> Response:
    return RedirectResponse("/rank?" + urlencode({"rater": rater, "token": token}), 303, HEADERS)


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
