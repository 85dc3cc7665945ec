"""What is wrong with a request, in our words rather than those of the libraries that found it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from loger.errors import LogerError, nearest
from loger.updates.events.event import KINDS

_WORDS = {
    "missing": "is missing",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large a number",
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
    "string_pattern_mismatch": "must be as the answer with the list has it",
    "finite_number": "must be a finite number",
    "json_invalid": "is not JSON ({error})",
}
_ENOUGH = (
    *("missing", "union_tag_not_found", "union_tag_invalid", "json_invalid"),
    *("too_long", "string_too_long"),
)
"""Problems that are told without the value."""
_SHOWN = 60  # characters of a value


def place(parts: Sequence[str | int]) -> str:
    """Where something is in a request: query.k, body.history.3; what pydantic puts in between
    where there are alternatives, names of types and kinds of events, is left out."""
    kept = [
        p
        for before, p in zip([None, *parts], parts, strict=False)
        if not (isinstance(before, int) and p in KINDS)
    ]
    own = [p for p in kept if not re.fullmatch(r"list\[.*\]|constrained-\w+", str(p))]
    return ".".join(map(str, own))


def problem(error: Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """What pydantic found, as we say it; ``known`` are the names that a body may have."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        inside = len(error["loc"]) > 2  # in something that the body has, whose names are others
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
    """The nearest of the known names as a question, else all of them, if there are few."""
    near = nearest(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known are {', '.join(known)}" if known else ""


def body_fields(request: Request) -> list[str]:
    """The names that the body of a request may have."""
    route = request.scope.get("route")
    for field in getattr(getattr(route, "dependant", None), "body_params", ()):
        fields = getattr(field.field_info.annotation, "model_fields", None)
        if fields:
            return list(fields)
    return []


class UnknownParameterError(LogerError):
    """A query parameter that a path does not take."""


async def known_parameters(request: Request) -> None:
    """Refuse query parameters that the path does not take: a misspelt one would be ignored."""
    route = request.scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is None:
        return
    known = [field.alias for field in dependant.query_params]
    for name in request.query_params:
        if name not in known:
            hint = did_you_mean(name, known) or f"; {request.url.path} takes none"
            raise UnknownParameterError(f"there is no query parameter {name!r}{hint}")
