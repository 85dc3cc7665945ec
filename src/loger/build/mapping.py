"""Which column of a shop's tables becomes what: a mapping, in Python or as a TOML file to edit."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from loger.errors import DataError, UnknownNameError
from loger.files import write_text

Kind = Literal["entity", "list", "bins", "items", "keywords", "aspects", "leave out"]

_HEADER = """\
# What becomes of the columns of a shop's tables. Edit it, then build with
#   loger data build table --mapping THIS_FILE --out FOLDER
# Each column is taken as one of
#   entity     every value is an entity that items (or users) share
#   list       several such values in one cell, divided by the separator
#   bins       a number, cut into so many quantiles
#   items      ids of other items, one or several
#   keywords   the telling words of a text
#   aspects    what a text says of what: aspect, opinion, good or bad
#   leave out  not taken
"""


@dataclass(frozen=True)
class Column:
    """What becomes of one column."""

    column: str
    take: Kind
    relation: str = ""
    """The relation's name."""
    type: str = ""
    """The type of its entities; items take none."""
    separator: str = ""
    """Divides the values of one cell."""
    bins: int = 5
    """Quantiles of a number."""
    why: str = ""
    """Why this was proposed."""


@dataclass(frozen=True)
class InteractionTable:
    """The interactions."""

    user: str
    """The column that names the user."""
    item: str
    file: str = ""
    rating: str = ""
    time: str = ""
    part: str = ""
    """train, validation or test, where the data brings a split."""
    columns: tuple[Column, ...] = field(default=())


@dataclass(frozen=True)
class EntityTable:
    """The items, or the users."""

    id: str
    """The column that interactions name them by."""
    file: str = ""
    label: str = ""
    """The column with names for people."""
    columns: tuple[Column, ...] = field(default=())


@dataclass(frozen=True)
class TableMapping:
    """A whole shop."""

    interactions: InteractionTable
    items: EntityTable | None = None
    users: EntityTable | None = None
    name: str = "shop"
    interaction: str = "purchase"
    """What users do with items."""
    positive_from: float | None = None
    """Interactions that are rated lower are left out."""
    user_core: int = 1
    """Items that a user must have."""
    item_core: int = 1
    """Users that an item must have."""
    least: int = 2
    """Items or users that an entity must have; with one it links nothing to anything."""
    hub_share: float = 0.5
    """What more than this share of the items or users have is left out."""

    def columns(self) -> Iterator[tuple[str, Column]]:
        """Every column that is mapped, with its table."""
        for table in ("interactions", "items", "users"):
            part = getattr(self, table)
            if part is not None:
                yield from ((table, column) for column in part.columns)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Table, column, what it is taken as, its relation, and why; for every column."""
        roles = ("user", "item", "rating", "time", "part")
        rows = [("interactions", getattr(self.interactions, role), role) for role in roles]
        for table in ("items", "users"):
            part: EntityTable | None = getattr(self, table)
            if part is not None:
                rows += [(table, part.id, "id"), (table, part.label, "label")]
        named = [(*row, "", "") for row in rows if row[1]]
        named += [(t, c.column, c.take, c.relation, c.why) for t, c in self.columns()]
        return sorted(named, key=lambda row: ("interactions", "items", "users").index(row[0]))

    def __str__(self) -> str:
        lines = [("table", "column", "taken as", "relation", "why"), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def write(mapping: TableMapping, path: Path) -> None:
    """Write a mapping as TOML; files are named as seen from its folder."""
    lines = [_HEADER.replace("THIS_FILE", path.name)]
    lines += _settings(mapping, skip=("interactions", "items", "users"))
    for table in ("interactions", "items", "users"):
        part = getattr(mapping, table)
        if part is None:
            continue
        lines.append(f"\n[{table}]")
        lines += _settings(part, skip=("columns",), folder=path.parent)
        for column in part.columns:
            lines.append(f"\n[[{table}.columns]]" + (f"  # {column.why}" if column.why else ""))
            lines += _settings(column, skip=("why",))
    write_text(path, "\n".join(lines) + "\n")


def _settings(part: Any, skip: tuple[str, ...], folder: Path | None = None) -> Iterator[str]:
    """Lines of what is set; what is as it would be anyway needs no line."""
    for setting in fields(part):
        value = getattr(part, setting.name)
        default = None if setting.default is MISSING else setting.default
        if setting.name in skip or value in (None, "") or (
            value == default and not isinstance(part, TableMapping)
        ):  # fmt: skip
            continue
        if setting.name == "file" and folder is not None:
            value = Path(os.path.relpath(value, folder)).as_posix()
        yield f"{setting.name} = {json.dumps(value, ensure_ascii=False)}"


def read(path: Path) -> TableMapping:
    """The mapping of a TOML file; what it does not know is an error that says where."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(f"cannot be read as TOML ({why})", path=path, remedy="fix it") from None
    if "interactions" not in tables:
        raise DataError(
            "has no [interactions]", path=path, remedy="say which table has users and items"
        )
    parts: dict[str, Any] = {}
    for table, kind in (
        ("interactions", InteractionTable),
        ("items", EntityTable),
        ("users", EntityTable),
    ):
        if table in tables:
            part = dict(tables.pop(table))
            rows = part.pop("columns", [])
            columns = tuple(_made(Column, row, path, f"{table}.columns") for row in rows)
            if part.get("file"):
                part["file"] = str(path.parent / part["file"])
            parts[table] = _made(kind, part | {"columns": columns}, path, table)
    return _made(TableMapping, tables | parts, path, "the top")  # type: ignore[no-any-return]


def _made(kind: Any, values: Mapping[str, Any], path: Path, where: str) -> Any:
    """An instance of a dataclass from what a file gives for it."""
    known = {f.name: f for f in fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise UnknownNameError(f"setting in {where} of {path}", name, known)
        if name == "take" and value not in get_args(Kind):
            what = f"way to take a column ({where} of {path}):"
            raise UnknownNameError(what, value, get_args(Kind))
        wanted = str(known[name].type)
        fits: dict[str, Any] = {
            "str": str,
            "int": int,
            "float": (int, float),
            "float | None": (int, float),
        }
        if wanted in fits and (not isinstance(value, fits[wanted]) or isinstance(value, bool)):
            raise DataError(
                f"{name} in {where} should be {'text' if wanted == 'str' else 'a number'}",
                path=path,
                value=value,
                remedy="fix it",
            )
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    missing = [n for n in missing if known[n].default_factory is MISSING]
    if missing:
        raise DataError(f"{missing[0]} is missing from {where}", path=path, remedy="add it")
    return kind(**values)
