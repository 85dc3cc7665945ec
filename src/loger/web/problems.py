"""The one JSON shape of every error: ``{"error": {"status", "code", "message", "fields"}}``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match

from loger.errors import LogerError, UnknownNameError
from loger.web.wording import body_fields, place, problem

log = logging.getLogger("loger.web")
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    422: "invalid",
    429: "too_many",
    500: "internal",
    503: "unavailable",
}


class ProblemError(LogerError):
    """An answer that is an error, with its status."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.status, self.code = status, code
        super().__init__(message)


def answer(
    status: int,
    message: str,
    code: str | None = None,
    fields: Sequence[dict[str, str]] = (),
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An error as every error looks."""
    error: dict[str, Any] = {
        "status": status,
        "code": code or CODES.get(status, "error"),
        "message": _clean(message),
        "fields": list(fields),
    }
    return JSONResponse({"error": error}, status, headers)


def _clean(text: str) -> str:
    """The text without what UTF-8 cannot hold, which a request may have smuggled in."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _methods(routes: Sequence[BaseRoute], request: Request) -> set[str]:
    """The methods of all routes of a path, where Starlette names those of the first."""
    fit = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in fit for method in getattr(route, "methods", None) or ()}


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Give every error of an app with these routes the one shape."""

    @app.exception_handler(ProblemError)
    async def _problem(_: Request, error: ProblemError) -> JSONResponse:
        return answer(error.status, str(error), error.code)

    @app.exception_handler(UnknownNameError)
    async def _unknown(_: Request, error: UnknownNameError) -> JSONResponse:
        return answer(404, str(error), f"unknown_{error.kind.replace(' ', '_')}")

    @app.exception_handler(LogerError)
    async def _mistake(_: Request, error: LogerError) -> JSONResponse:
        return answer(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        known = body_fields(request)
        fields = [
            {"where": _clean(place(e["loc"])), "problem": _clean(problem(e, known))}
            for e in error.errors()
        ]
        first = fields[0] if fields else {"where": "request", "problem": "is not valid"}
        return answer(422, f"{first['where']} {first['problem']}", fields=fields)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        status = error.status_code
        message = str(error.detail) or HTTPStatus(status).phrase
        headers = dict(error.headers or {})
        if status == HTTPStatus.METHOD_NOT_ALLOWED and (methods := _methods(routes, request)):
            headers["Allow"] = ", ".join(sorted(methods))
        return answer(status, message, headers=headers)

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, "internal error; see the log of the server")
