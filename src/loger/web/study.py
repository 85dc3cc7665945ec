"""The user study as web pages: plain HTML forms without scripts or names of methods."""

from __future__ import annotations

import logging
import socket
from html import escape
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loger.errors import LogerError
from loger.study.store import LONGEST_NAME, AnswerError, Study, Task, rater_name
from loger.web.config import ServeConfig, bound_socket
from loger.web.guard import Guard
from loger.web.metrics import Metrics

log = logging.getLogger(__name__)
MAX_BODY = 10_000
"""Bytes of a form."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers don't send the form's origin
}
WHO = f"Please enter a name of up to {LONGEST_NAME} characters."
TAKEN = "That name is taken. If it's yours, open the address you kept; if not, choose another."


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
        text = "<p>The study can't be read or written at the moment. Go back and try again.</p>"
        return _page(html_page("Please wait", text), 503)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> HTMLResponse:
        title = "Page not found" if error.status_code == 404 else str(error.detail)
        return _page(html_page(title, '<p><a href="/">Start</a></p>'), error.status_code)

    config = ServeConfig(str(study.path), host, port, max_body=MAX_BODY)
    app.add_middleware(Guard, config=config, metrics=Metrics())
    return app


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; forms from other sites are refused."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "Answers are accepted only from the study page")
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    return {name: values[0] for name, values in form.items()}


def _begun(study: Study, form: dict[str, str]) -> Response:
    """Register a new rater and send them to an address that nobody else knows."""
    rater = form.get("rater", "").strip()
    if not 0 < len(rater_name(rater)) <= LONGEST_NAME:
        return _page(welcome(study, WHO), 400)
    try:
        return _onwards(rater, study.begin(rater))
    except AnswerError:
        return _page(welcome(study, TAKEN), 403)


def _answered(study: Study, form: dict[str, str]) -> Response:
    """Store an answer and go to the next task, or say what is wrong with the answer."""
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


# ── the pages ───────────────────────────────────────────────────────────────────────────


def welcome(study: Study, why: str = "") -> str:
    """The first page: what the study asks, and a field for the rater's name."""
    n = len(study.tasks)
    return html_page(
        study.title or "Which reasons fit?",
        f"<p>Imagine you are a customer. You will see some of what you did before, and the reasons "
        f"that several shops give for their recommendations. Rank the shops. The first should be "
        f"the one whose reasons best fit what you did.</p>"
        f"<p>There are {n} questions. You can stop and come back later: keep the address of the "
        "next page, which is yours alone.</p>"
        + _alert(why)
        + '<form action="/begin" method="post"><label>Your name or any other word '
        f'<input name="rater" required maxlength="{LONGEST_NAME}"></label> '
        "<button>Start</button></form>",
    )


def task_page(task: Task, at: int, n: int, rater: str, token: str, why: str = "") -> str:
    """One question, with letters instead of the names of methods."""
    cards = []
    for k, (_, paths) in enumerate(task.shown):
        places = "".join(
            f'<label><input type="radio" name="rank{k}" value="{place}" required> {place}</label>'
            for place in range(1, len(task.shown) + 1)
        )
        reasons = "".join(f"<li>{escape(path)}</li>" for path in paths)
        cards.append(
            f"<fieldset><legend>Shop {chr(ord('A') + k)}</legend><ul>{reasons}</ul>"
            f'<p class="places">Rank: {places}</p></fieldset>'
        )
    past = "".join(f"<li>{escape(path)}</li>" for path in task.history)
    return html_page(
        f"Question {at + 1} of {n}",
        _alert(why)
        + '<section class="past"><h2>What you did before</h2>'
        + f"<ul>{past}</ul></section>"
        + '<form action="/answer" method="post"><h2>Reasons of the shops (rank 1 fits best)</h2>'
        + f'<div class="cards">{"".join(cards)}</div>'
        + f'<input type="hidden" name="rater" value="{escape(rater)}">'
        + f'<input type="hidden" name="token" value="{escape(token)}">'
        + f'<input type="hidden" name="task" value="{at}"><button>Next</button></form>',
    )


def next_page(study: Study, rater: str, token: str, why: str = "") -> str:
    """A rater's next question, or a thank-you."""
    at = study.next_for(rater)
    if at is None:
        return html_page(
            "Thank you", "<p>You have answered all questions. You can close this page.</p>"
        )
    tasks = study.tasks
    return task_page(tasks[at], at, len(tasks), rater, token, why)


def _alert(why: str) -> str:
    return f'<p role="alert" class="alert">{escape(why)}</p>' if why else ""


def html_page(title: str, body: str) -> str:
    """A page of the study."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">{STYLE}<title>{escape(title)}</title>'
        f"</head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


STYLE = """<style>
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--paper:#fff;--tint:#f3f6f8;--strong:#0b6e6e}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa6b5;--line:#333d4a;
--paper:#141a21;--tint:#1c242d;--strong:#4cc3b8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 3rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.1rem}
.past{background:var(--tint);padding:.5rem 1rem;border-radius:6px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:1rem}
fieldset{border:1px solid var(--line);border-radius:6px;margin:0;min-width:0}
legend{font-weight:600;padding:0 .4rem}
ul{padding-left:1.1rem;margin:.3rem 0}li{margin:.2rem 0}
.places label{margin-right:.9rem;white-space:nowrap}
.alert{color:#b3261e;font-weight:600}
button,input{font:inherit;padding:.4rem .7rem}
button{background:var(--strong);color:var(--paper);border:0;border-radius:4px;margin-top:1rem;
padding:.5rem 1.4rem;cursor:pointer}
</style>"""


# ── serving them ────────────────────────────────────────────────────────────────────────


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes any free port."""
    bound = bound_socket(host, port)
    bound.listen(128)  # raters who come before the server is ready have to wait
    return bound


def run_study(study: Study, host: str, bound: socket.socket) -> None:
    """Serve a study until interrupted."""
    import uvicorn

    from loger.web.launch import UVICORN

    app = create_study_app(study, host, bound.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", **UVICORN)).run(sockets=[bound])
