"""Settings from a TOML file or from ``path=value`` texts, onto frozen config dataclasses.

An unknown name is an error that suggests the closest match, a wrong type one that says which was
expected. Both name the path of the setting, such as ``em.walk.recency``.

>>> from loger.logic.mining import MiningConfig
>>> overridden(MiningConfig(), {"max_rules": 10}).max_rules
10
>>> overridden(MiningConfig(), {"maxrules": 10}, where="m")
Traceback (most recent call last):
loger.errors.UnknownNameError: unknown setting 'm.maxrules'; did you mean 'm.max_rules'?
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loger.errors import DataError, LogerError, UnknownNameError

Config = TypeVar("Config")
_type_hints = cache(get_type_hints)
FORM = "PATH=VALUE, such as em.rounds=3"
ANY: Any = object()
"""In ``FORMER``: a setting that only mattered during a fit; saved settings may have any value."""


def read_toml(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise DataError("there is no such file", path=path, remedy="check the path") from None
    except RecursionError:
        raise DataError("brackets are nested too deeply", path=path, remedy="use fewer") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not valid TOML ({error})", path=path, remedy="fix that line") from None


def from_names(kind: type[Config], values: Mapping[str, Any], where: str = "") -> Config:
    """A config from its settings by name, as ``asdict`` gives them and JSON keeps them.

    A setting that was added since they were saved gets its default, or the value in ``LATER`` of
    its config, with which a model does what it did before.

    >>> from loger.logic.mining import MiningConfig
    >>> from_names(MiningConfig, {"max_rules": 10}).max_rules
    10
    """
    base = kind()
    return overridden(base, _todays(base, values), where)


def _todays(base: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings under today's names (``RENAMED`` of their config), with those that were added
    later (``LATER``)."""
    kind = type(base)
    names, former = getattr(kind, "RENAMED", {}), getattr(kind, "FORMER", {})
    values = {names.get(n, n): value for n, value in saved.items() if former.get(n) is not ANY}
    out = {**getattr(kind, "LATER", {}), **values}
    for name, value in values.items():
        now = getattr(base, name, None)
        if is_dataclass(now) and isinstance(value, Mapping):
            out[name] = _todays(now, value)
    return out


def overridden(base: Config, values: Mapping[str, Any], where: str = "") -> Config:
    """The config with some settings changed; a nested config takes a mapping of its own.

    A config class may list settings of former versions in ``FORMER``, each with the value that is
    now a constant; saved settings may still contain them with that value, or with any value if it
    is ``ANY``. ``RENAMED`` maps former names to today's; only saved settings may use a former name.
    """
    kind: Any = type(base)
    values = _without_former(getattr(kind, "FORMER", {}), values, where)
    hints = _type_hints(kind)
    known = [f.name for f in fields(base)]  # type: ignore[arg-type]
    changed = {}
    for name, value in values.items():
        at = f"{where}.{name}" if where else name
        if name in getattr(kind, "RENAMED", {}):
            raise LogerError(f"{at} is now called {at.removesuffix(name)}{kind.RENAMED[name]}")
        if name not in known:
            near = get_close_matches(name, known)  # by the last part: equal paths are no likeness
            raise UnknownNameError("setting", at, [at.removesuffix(name) + k for k in near])
        now = getattr(base, name)
        if is_dataclass(now) and type(value) is not type(now):
            if not isinstance(value, Mapping):
                raise LogerError(f"{at} must be a table of settings, got {value!r}")
            changed[name] = overridden(now, value, at)
        else:
            changed[name] = value if is_dataclass(now) else _checked(hints[name], value, at)
    return replace(base, **changed)  # type: ignore[type-var]


def _without_former(
    former: Mapping[str, Any], values: Mapping[str, Any], where: str
) -> Mapping[str, Any]:
    """Values without settings of former versions, which must equal today's constants."""
    for name in former.keys() & values.keys():
        at = f"{where}.{name}" if where else name
        if former[name] is ANY:
            raise LogerError(f"{at} is no longer a setting; remove it")
        if values[name] != former[name]:
            raise LogerError(
                f"{at} is no longer a setting: it is now always {former[name]!r}, but here "
                f"it is {values[name]!r}; fit again"
            )
    return {name: value for name, value in values.items() if name not in former}


def check_numbers(settings: object, *above_0: str, **at_least: float) -> None:
    """Refuse settings that are too small: some must be above 0, others at least a number. None
    passes; in a sequence each number is checked.

    >>> from loger.logic.mining import MiningConfig
    >>> check_numbers(MiningConfig(max_rules=0), "min_support", max_rules=1)
    Traceback (most recent call last):
    loger.errors.LogerError: max_rules must be at least 1, got 0
    """
    bounds = [(name, 0.0, True) for name in above_0]
    for name, bound, strict in bounds + [(n, least, False) for n, least in at_least.items()]:
        value = getattr(settings, name)
        numbers = value if isinstance(value, Sequence) else () if value is None else (value,)
        if any(x < bound or (strict and x == bound) for x in numbers):
            how = f"above {bound:g}" if strict else f"at least {bound:g}"
            raise LogerError(f"{name} must be {how}, got {value!r}")


def flat(config: Any, before: str = "") -> dict[str, Any]:
    """All settings by name, those of a nested config as ``em__walk__recency``."""
    out: dict[str, Any] = {}
    for setting in fields(config):
        value = getattr(config, setting.name)
        name = before + setting.name
        out |= flat(value, f"{name}__") if is_dataclass(value) else {name: value}
    return out


def nested(names: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``flat`` as nested mappings, for ``overridden``.

    >>> nested({"em__walk__recency": 0.5, "em__rounds": 2})
    {'em': {'walk': {'recency': 0.5}, 'rounds': 2}}
    """
    out: dict[str, Any] = {}
    for name, value in names.items():
        *tables, last = name.split("__")
        here = out
        for table in tables:
            here = here.setdefault(table, {})
        here[last] = value
    return out


def parsed(texts: Iterable[str], form: str = FORM) -> dict[str, Any]:
    """Texts ``path.to.setting=value`` as nested mappings; values are written as in TOML.

    >>> parsed(["em.rounds=3", "em.walk.recency=0.5", "em.fusion=sum"])
    {'em': {'rounds': 3, 'walk': {'recency': 0.5}, 'fusion': 'sum'}}
    """
    out: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        *tables, name = path.strip().split(".")
        if not equals or not name or not all(tables):
            raise LogerError(f"a setting must have the form {form}, got {text!r}")
        here = out
        for table in tables:
            here = here.setdefault(table, {})
            if not isinstance(here, dict):
                raise LogerError(f"can't set {path}, because {table} already has a value")
        here[name] = _value(value.strip())
    return out


def layered(
    base: Config,
    file: Path | str | None = None,
    texts: Iterable[str] = (),
    values: Mapping[str, Any] | None = None,
) -> Config:
    """The config changed by a TOML file, then by texts, then by values: the later wins."""
    changes = merged({} if file is None else read_toml(file), parsed(texts))
    try:
        return overridden(base, merged(changes, values or {}))
    except LogerError as error:
        if file is None:
            raise
        raise LogerError(f"{file}: {error}") from None


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The union of nested mappings; where both have a value, the second wins."""
    out = dict(first)
    for name, value in second.items():
        old = out.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[name] = merged(old, value) if both else value  # type: ignore[arg-type]
    return out


_WORDS = {"none": None, "true": True, "false": False}
"""TOML has no word for None, and Python writes the others with capitals."""


def _value(text: str) -> Any:
    """A value as TOML or Python writes it: 3, 1e-3, .5, true, [1, 2], 'a text'; else the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    try:
        return float(text)  # .5 and 1. are no TOML
    except ValueError:
        return text


def _checked(hint: Any, value: Any, at: str) -> Any:
    """The value, if it is of the type that a field declares."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for option in options:
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
            if isinstance(value, str):
                raise UnknownNameError(f"value of {at}", value, get_args(option), listed=True)
        elif option is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        elif option is NoneType and value == "none":
            return None
        elif get_origin(option) in (tuple, Sequence) and isinstance(value, list | tuple):
            return tuple(value)
        elif get_origin(option) is Mapping and isinstance(value, Mapping):
            return dict(value)
        elif isinstance(option, type) and type(value) is option:
            return value
    names = ["none" if o is NoneType else getattr(o, "__name__", str(o)) for o in options]
    raise LogerError(f"{at} must be {' or '.join(names)}, got {value!r}")
