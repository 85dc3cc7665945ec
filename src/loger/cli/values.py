"""What options and arguments are given, read without pydantic.

typer 0.29 imports pydantic and makes a schema of every parameter before it reads the first one,
which takes longer than to rank a user's items and to explain them. Texts, paths, numbers, one of
some words and lists of these are read here instead; all else is left to typer, and so is everything
where another version of typer reads in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand


class ReadsHere:
    """A command or a group of them whose parameters are read here, those that can be."""

    params: list[Any]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for param in self.params:
            _read_here(param)

    def get_help_option(self, ctx: Any) -> Any:
        """--help, which typer adds by itself."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        _read_here(option)
        return option


class Command(ReadsHere, TyperCommand):
    """A command that reads what it is given here."""


def _read_here(param: Any) -> None:
    described = getattr(param, "type_descriptor", None)
    if described is not None and hasattr(param, "_runtime_param"):
        one = _reader(described.annotation, described.parameter_info)
        param._runtime_param = None if one is None else _Values(one)


class _Values:
    """Reads what a parameter is given, as typer asks for it."""

    def __init__(self, one: Callable[[Any], Any]) -> None:
        self.one = one

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value, or a list of them where a parameter may be repeated."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self.one(v) for v in value] if several else self.one(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _reader(kind: Any, info: Any) -> Callable[[Any], Any] | None:
    """What reads one value of a kind; None: typer is to."""
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if info.parser is not None or info.resolve_path or info.exists:
        return None
    if get_origin(kind) is Literal:
        return lambda value: _one_of(value, get_args(kind))
    if kind in (int, float):
        return lambda value: _number(value, kind, info.min, info.max)
    plain: dict[Any, Callable[[Any], Any]] = {str: str, Path: Path, bool: _flag}
    return plain.get(kind)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is given to a flag, which takes no value")
    return value


def _one_of(value: Any, words: tuple[Any, ...]) -> Any:
    if value not in words:
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, words))}")
    return value


def _number(value: Any, kind: type[int | float], low: float | None, high: float | None) -> Any:
    """A number within bounds; what is wrong is told as typer used to, see ``cli._VALUES``."""
    try:
        number = kind(value)
    except ValueError:
        name = "integer" if kind is int else "float"
        raise ValueError(f"{value!r} is not a valid {name}") from None
    if low is not None and not number >= low:  # nor is NaN
        raise ValueError(f"{value} is not in the range x>={low}")
    if high is not None and not number <= high:
        raise ValueError(f"{value} is not in the range x<={high}")
    return number
