"""Which column of a shop's tables becomes what: a mapping, in Python or as a TOML file to edit."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, get_args

from loger.data.columns import DateOrder
from loger.engine.files import write_text
from loger.engine.progress import table as html_table
from loger.errors import DataError, UnknownNameError

Kind = Literal[
    "entity",
    "list",
    "series",
    "bins",
    "items",
    "keywords",
    "similar",
    "aspects",
    "label",
    "image",
    "leave out",
]

UnknownItems = Literal["keep", "drop"]

_HEADER = """\
# What becomes of the columns of a shop's tables. Edit it, then build with
#   loger data build table --mapping THIS_FILE -o FOLDER
# Each column has
#   column     its name in the table
#   take       what it is taken as:
#     entity     every value is an entity that items (or users) share
#     list       several such values in one cell, divided by the separator
#     series     a name with a number behind it, "Dune ; 3": the name is the entity
#     bins       a number, cut into so many quantiles
#     items      ids of other items, one or several
#     keywords   the telling words of a text
#     similar    these words, and which items have similar texts
#     aspects    what a text says of what: aspect, opinion, good or bad
#     label      the name that people read
#     image      the file of a picture, which loger serve --set images=FOLDER shows
#     leave out  not taken
#   relation   the name of the relation that it makes: has_brand; of users, what reasons say of
#              them: interested_in ("you are interested in …"), lives_in, works_as, speaks,
#              prefers, owns, member_of, or any verb in the third person
#   type       the type of the entities that it makes: brand
#   separator  what divides the values of one cell: "|"
#   bins       how many quantiles a number is cut into (5)
#   edges      or where to cut it: [10, 20, 50]
"""
_MEANINGS = {
    "name": "the name of the data set",
    "interaction": "what users do with items, as a verb: purchase, played, borrowed",
    "min_rating": "interactions that are rated lower are left out",
    "user_core": "leave out users with fewer items",
    "item_core": "leave out items with fewer users",
    "least": "leave out entities that fewer items (users) have: one links nothing to anything",
    "hub_share": "leave out entities that a larger share of the items (users) have",
    "unknown_items": '"keep" or "drop" items that the table of items doesn\'t list',
    "user": "the column that names the user",
    "item": "the column that names the item",
    "file": "the table, as seen from this file",
    "rating": "the column of ratings",
    "strength": "the column that says how much it was: plays, pieces, seconds",
    "time": "the column of times",
    "date_order": 'in dates like 03/04/2024: "day first" or "month first"',
    "part": "the column that says train, validation or test",
    "behaviour": "the column that says what the user did: viewed, carted, bought",
    "target": "the one of its values that counts as an interaction; others become facts",
    "id": "the column with the ids by which interactions name them",
    "label": "the column with names for people",
}
"""What each key outside of the columns means, for the file."""


@dataclass(frozen=True)
class Column:
    """What becomes of one column."""

    column: str
    take: Kind
    relation: str = ""
    """The relation's name, which reasons turn into a verb: of users, ``interested_in`` is said as
    "you are interested in …"."""
    type: str = ""
    """The type of its entities; items take none."""
    separator: str = ""
    """Divides the values of one cell."""
    bins: int = 5
    """Quantiles of a number."""
    why: str = ""
    """Why this was proposed."""
    edges: tuple[float, ...] = ()
    """Where a number is cut; found by the build unless given."""

    @property
    def entity_type(self) -> str:
        """The type of what its facts lead to."""
        fixed = {"items": "item", "aspects": "feature"}
        usual = "word" if self.take == "similar" else self.column
        return fixed.get(self.take) or self.type or usual

    @property
    def relation_made(self) -> str:
        """The relation of the facts that it makes, if it makes any."""
        if self.take in ("leave out", "image", "label"):
            return ""
        usual = f"{self.column}_says" if self.take == "similar" else f"has_{self.entity_type}"
        return self.relation or usual


@dataclass(frozen=True)
class InteractionTable:
    """The interactions."""

    user: str
    """The column that names the user."""
    item: str
    file: str = ""
    rating: str = ""
    strength: str = ""
    time: str = ""
    date_order: DateOrder = ""
    """How to read dates like 03/04/2024; by how most of the column can be read if not given."""
    part: str = ""
    """train, validation or test, where the data brings a split."""
    behaviour: str = ""
    """What the user did: viewed, carted, bought."""
    target: str = ""
    """The behaviour that counts as an interaction; rows with another become facts about users."""
    columns: tuple[Column, ...] = field(default=())


@dataclass(frozen=True)
class EntityTable:
    """The items, or the users."""

    id: str
    """The column that interactions name them by."""
    file: str = ""
    label: str = ""
    """The column with names for people; the same as a column that is taken as ``label``."""
    columns: tuple[Column, ...] = field(default=())

    def __post_init__(self) -> None:
        named = [c.column for c in self.columns if c.take == "label"]
        if named:
            object.__setattr__(self, "label", named[-1])
        rest = tuple(c for c in self.columns if c.take != "label")
        object.__setattr__(self, "columns", rest)


@dataclass(frozen=True)
class TableMapping:
    """A whole shop."""

    interactions: InteractionTable
    items: EntityTable | None = None
    users: EntityTable | None = None
    name: str = "shop"
    interaction: str = "purchase"
    """What users do with items."""
    min_rating: float | None = None
    """Interactions that are rated lower are left out."""
    user_core: int = 1
    """Items that a user must have."""
    item_core: int = 1
    """Users that an item must have."""
    least: int = 2
    """Items or users that an entity must have; with one it links nothing to anything."""
    hub_share: float = 0.5
    """What more than this share of the items or users have is left out."""
    unknown_items: UnknownItems = "keep"
    """What becomes of items of the interactions that the table of items doesn't list."""
    vectors: Mapping[str, str] = field(default_factory=dict)
    """Relation → file with a vector for each item: those with near vectors are related."""

    def columns(self) -> Iterator[tuple[str, Column]]:
        """Every column that is mapped, with its table."""
        for table in ("interactions", "items", "users"):
            part = getattr(self, table)
            if part is not None:
                yield from ((table, column) for column in part.columns)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Table, column, what it is taken as, its relation, and why; for every column."""
        roles = ("user", "item", "rating", "strength", "time", "part", "behaviour")
        rows = [("interactions", getattr(self.interactions, role), role) for role in roles]
        for table in ("items", "users"):
            part: EntityTable | None = getattr(self, table)
            if part is not None:
                rows += [(table, part.id, "id"), (table, part.label, "label")]
        target = (
            f"only {self.interactions.target!r} counts as an interaction; target = … changes it"
        )
        whys = {"behaviour": target}
        named = [(*row, "", whys.get(row[2], "")) for row in rows if row[1]]
        named += [(t, c.column, c.take, c.relation_made, c.why) for t, c in self.columns()]
        return sorted(named, key=lambda row: ("interactions", "items", "users").index(row[0]))

    def with_column(self, column: str, /, *, table: str | None = None, **changes: Any) -> Self:
        """The mapping with one column taken otherwise: ``with_column("genre", take="list",
        separator="|")``. ``table`` (interactions, items or users) is needed only where several
        have a column of that name; ``take="label"`` makes it the names that people read."""
        _check_keys(Column, changes, "with_column")
        found = [(t, c) for t, c in self.columns() if c.column == column and table in (None, t)]
        if not found:
            known = [c.column for _, c in self.columns()]
            raise UnknownNameError("column in the mapping", column, known)
        if len(found) > 1:
            tables = ", ".join(t for t, _ in found)
            raise DataError(f"{tables} have a column {column!r}", remedy="say which: table='items'")
        where, old = found[0]
        named = {"type": old.type, "relation": old.relation, "why": "as told"}
        if changes.get("take") in ("entity", "list", "series", "bins"):
            named |= {"type": old.type or column, "relation": old.relation or f"has_{column}"}
        part, new = getattr(self, where), replace(old, **(named | changes))
        columns = tuple(new if c is old else c for c in part.columns)
        return replace(self, **{where: replace(part, columns=columns)})

    def with_table(self, name: str, table: EntityTable) -> Self:
        """The mapping with another table of items or users."""
        return replace(self, **{name: table})  # type: ignore[arg-type]

    def save(self, path: Path | str) -> None:
        """Write the mapping as a TOML file, which ``load``, ``loger.from_tables`` and
        ``loger data build table --mapping`` read."""
        write(self, Path(path))

    @staticmethod
    def load(path: Path | str) -> TableMapping:
        """The mapping of a TOML file."""
        return read(Path(path))

    def plain(self) -> dict[str, Any]:
        """The mapping as plain values, without the places of files: what a bundle keeps."""
        values = asdict(self)
        del values["vectors"]
        for table in ("interactions", "items", "users"):
            if values[table] is not None:
                values[table]["file"] = ""
                values[table]["columns"] = [
                    {k: list(v) if k == "edges" else v for k, v in column.items() if k != "why"}
                    for column in values[table]["columns"]
                ]
        return values

    @staticmethod
    def of_plain(values: Mapping[str, Any], path: Path) -> TableMapping:
        """The mapping that ``plain`` took apart; ``path`` is for messages."""
        given = {k: v for k, v in values.items() if v is not None}
        return _parsed(given, path)

    def _repr_html_(self) -> str:
        return html_table(["table", "column", "taken as", "relation", "why"], self.rows())

    def __str__(self) -> str:
        lines = [("table", "column", "taken as", "relation", "why"), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def write(mapping: TableMapping, path: Path) -> None:
    """Write a mapping as TOML."""
    write_text(path, toml_of(mapping, path))


def toml_of(mapping: TableMapping, path: Path) -> str:
    """A mapping as TOML; files are named as seen from the folder of the path."""
    lines = [_HEADER.replace("THIS_FILE", path.name)]
    lines += _settings(mapping, skip=("interactions", "items", "users", "vectors"))
    for table in ("interactions", "items", "users"):
        part = getattr(mapping, table)
        if part is None:
            continue
        lines.append(f"\n[{table}]")
        lines += _settings(part, skip=("columns",), folder=path.parent)
        for column in part.columns:
            lines.append(f"\n[[{table}.columns]]" + (f"  # {column.why}" if column.why else ""))
            lines += _settings(column, skip=("why",))
    if mapping.vectors:
        lines.append("\n[vectors]  # relation = file: an id and a vector for each item")
    for name, file in mapping.vectors.items():
        lines.append(f"{json.dumps(name)} = {json.dumps(_seen_from(path.parent, file))}")
    return "\n".join(lines) + "\n"


def _settings(part: Any, skip: tuple[str, ...], folder: Path | None = None) -> Iterator[str]:
    """Lines of all settings with what they mean, those without a value as comments; of a column
    only what is set."""
    for setting in fields(part):
        value, name = getattr(part, setting.name), setting.name
        if name in skip:
            continue
        if isinstance(part, Column):
            if value not in (None, "", (), setting.default):
                yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
            continue
        if name == "file" and value and folder is not None:
            value = _seen_from(folder, value)
        given = value not in (None, "")
        shown = json.dumps(value, ensure_ascii=False) if given else "…"
        yield f"{'' if given else '# '}{name} = {shown}  # {_MEANINGS[name]}"


def _seen_from(folder: Path, file: str) -> str:
    """A file as a mapping in a folder names it."""
    return Path(os.path.relpath(file, folder)).as_posix() if file else ""


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
    return _parsed(tables, path)


def _parsed(tables: Mapping[str, Any], path: Path) -> TableMapping:
    """A mapping from its tables, those of columns among them."""
    tables, parts = dict(tables), dict[str, Any]()
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
    vectors = tables.pop("vectors", {})
    if not isinstance(vectors, dict) or not all(isinstance(v, str) for v in vectors.values()):
        remedy = 'write looks_like = "vectors.parquet" under [vectors]'
        raise DataError("vectors should name files", path=path, value=vectors, remedy=remedy)
    parts["vectors"] = {name: str(path.parent / file) for name, file in vectors.items()}
    return _made(TableMapping, tables | parts, path, "the top")  # type: ignore[no-any-return]


def _made(kind: Any, values: Mapping[str, Any], path: Path, where: str) -> Any:
    """An instance of a dataclass from what a file gives for it."""
    _check_keys(kind, values, f"{where} of {path}")
    known = {f.name: f for f in fields(kind)}
    fits: dict[str, Any] = {
        "str": str,
        "int": int,
        "float": (int, float),
        "float | None": (int, float),
    }
    for name, value in values.items():
        wanted = str(known[name].type)
        if wanted in fits and (not isinstance(value, fits[wanted]) or isinstance(value, bool)):
            raise DataError(
                f"{name} in {where} should be {'text' if wanted == 'str' else 'a number'}",
                path=path,
                value=value,
                remedy="fix it",
            )
    if "edges" in values:
        values = {**values, "edges": _edges(values["edges"], path, where)}
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    missing = [n for n in missing if known[n].default_factory is MISSING]
    if missing:
        raise DataError(f"{missing[0]} is missing from {where}", path=path, remedy="add it")
    return kind(**values)


def _edges(given: Any, path: Path, where: str) -> tuple[float, ...]:
    """Where a number is cut, ascending."""
    numbers = isinstance(given, list) and all(type(edge) in (int, float) for edge in given)
    if not numbers or any(a >= b for a, b in pairwise(given)):
        raise DataError(
            f"edges in {where} should be a list of rising numbers",
            path=path,
            value=given,
            remedy="write edges = [10, 20, 50]",
        )
    return tuple(map(float, given))


def _check_keys(kind: Any, values: Mapping[str, Any], where: str) -> None:
    """Refuse settings that are not there, and ways to take a column."""
    known = [f.name for f in fields(kind)]
    for name, value in values.items():
        if name not in known:
            raise UnknownNameError(f"setting in {where}", name, known)
        if name == "take" and value not in get_args(Kind):
            what = f"way to take a column ({where}):"
            ways = ", ".join(map(repr, get_args(Kind)))
            raise DataError(
                str(UnknownNameError(what, str(value), get_args(Kind))),
                remedy=f"take it as one of {ways}",
            )
        if name == "unknown_items" and value not in get_args(UnknownItems):
            what = f"unknown_items can't be {value!r} ({where})"
            raise DataError(what, remedy='write "keep" or "drop"')
        if name == "date_order" and value not in get_args(DateOrder):
            raise DataError(
                f"there is no date_order {value!r} ({where})",
                remedy='write "day first" or "month first"',
            )
