"""The one JSON shape of every error: ``{"error": {"status", "code", "message", "fields"}}``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match

from loger.errors import LogerError, UnknownNameError, nearest
from loger.updates.events import KINDS

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
    """An error with its HTTP status."""

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
    """The answer for an error."""
    error: dict[str, Any] = {
        "status": status,
        "code": code or CODES.get(status, "error"),
        "message": _clean(message),
        "fields": list(fields),
    }
    return JSONResponse({"error": error}, status, headers)


def _clean(text: str) -> str:
    """The text without characters that UTF-8 can't encode, which a request may contain."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _methods(routes: Sequence[BaseRoute], request: Request) -> set[str]:
    """The methods of all routes of a path; Starlette only names those of the first."""
    fit = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in fit for method in getattr(route, "methods", None) or ()}


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Give all errors of an app with these routes the same shape."""

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
        return answer(500, "internal error; see the server log")


# ── in our words ────────────────────────────────────────────────────────────────────────


_WORDS = {
    "missing": "is missing",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "list_type": "must be a list",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "literal_error": "must be {expected}",
    "model_attributes_type": "must be an object, such as {{...}}",
    "model_type": "must be an object, such as {{...}}",
    "dict_type": "must be an object, such as {{...}}",
    "union_tag_not_found": "needs a kind",
    "union_tag_invalid": "has kind {tag!r}, must have one of {expected_tags}",
    "string_pattern_mismatch": "must be the ID from the answer that contained the list",
    "finite_number": "must be a finite number",
    "json_invalid": "is not JSON ({error})",
}
_ENOUGH = (
    *("missing", "union_tag_not_found", "union_tag_invalid", "json_invalid"),
    *("too_long", "string_too_long"),
)
"""Problems that are reported without the value that caused them."""
_SHOWN = 60  # characters of a value


def place(parts: Sequence[str | int]) -> str:
    """Where something is in a request: query.k, body.history.3. Names of types and kinds of events,
    which pydantic adds where there are alternatives, are left out."""
    kept = [
        p
        for before, p in zip([None, *parts], parts, strict=False)
        if not (isinstance(before, int) and p in KINDS)
    ]
    own = [
        p
        for p in kept
        if not re.fullmatch(r"list\[.*\]|constrained-\w+|function-after\[.*\]", str(p))
    ]
    return ".".join(map(str, own))


def problem(error: Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """pydantic's error in plain words; ``known`` are the names that a body may have."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        inside = len(error["loc"]) > 2  # in a part of the body, which has other names
        return f"is not known{did_you_mean(str(error['loc'][-1]), () if inside else known)}"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if kind == "model_attributes_type" and isinstance(error.get("input"), bytes):
        return "was not sent as JSON; add the header Content-Type: application/json"
    words = _WORDS.get(kind)
    if words is None:
        return str(error["msg"])
    text = words.format(**{name: _plain(value) for name, value in context.items()})
    if kind in _ENOUGH:
        return text
    return f"{text}, got {_plain(error.get('input'))}"


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A suggestion: the closest known name, or else all of them."""
    near = nearest(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose from {', '.join(known)}" if known else ""


def body_fields(request: Request) -> list[str]:
    """The names that the body of a request may have."""
    route = request.scope.get("route")
    for field in getattr(getattr(route, "dependant", None), "body_params", ()):
        fields = getattr(field.field_info.annotation, "model_fields", None)
        if fields:
            return list(fields)
    return []


async def known_parameters(request: Request) -> None:
    """Refuse unknown query parameters: a misspelt one would be ignored."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    known = [
        field.alias for part in (dependant, *dependant.dependencies) for field in part.query_params
    ]
    for name in request.query_params:
        if name not in known:
            hint = did_you_mean(name, known) or f"; {request.url.path} takes none"
            raise ProblemError(422, f"unknown query parameter {name!r}{hint}")
