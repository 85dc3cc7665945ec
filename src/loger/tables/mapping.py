"""Which column of a shop's tables becomes what: a mapping, in Python or as a TOML file to edit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from loger.data.times import DateOrder
from loger.engine.files import write_text
from loger.engine.progress import table as html_table
from loger.engine.settings import overridden, read_toml
from loger.errors import DataError, LogerError, UnknownNameError

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


def _meaning(text: str) -> dict[str, str]:
    """What a setting means: the file says it behind each."""
    return {"meaning": text}


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
    """Where a number is cut; the build finds the places unless they are given."""

    def __post_init__(self) -> None:
        numbers = all(type(edge) in (int, float) for edge in self.edges)
        if not numbers or any(a >= b for a, b in pairwise(self.edges)):
            raise LogerError(
                f"edges of column {self.column!r} should be a list of increasing numbers, such as "
                f"[10, 20, 50], got {list(self.edges)!r}"
            )
        object.__setattr__(self, "edges", tuple(map(float, self.edges)))

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
    """The interactions: which column is which."""

    user: str = field(metadata=_meaning("the column that names the user"))
    item: str = field(metadata=_meaning("the column that names the item"))
    file: str = field(default="", metadata=_meaning("the table, as seen from this file"))
    rating: str = field(default="", metadata=_meaning("the column of ratings"))
    strength: str = field(
        default="", metadata=_meaning("the column of amounts: plays, pieces, seconds")
    )
    time: str = field(default="", metadata=_meaning("the column of times"))
    date_order: DateOrder = field(
        default="", metadata=_meaning('in dates like 03/04/2024: "day first" or "month first"')
    )
    part: str = field(
        default="", metadata=_meaning("the column that says train, validation or test")
    )
    behaviour: str = field(
        default="", metadata=_meaning("the column that says what the user did: viewed, bought")
    )
    target: str = field(
        default="",
        metadata=_meaning("the behaviour that counts as an interaction; others become facts"),
    )
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class EntityTable:
    """The items, or the users."""

    id: str = field(metadata=_meaning("the column with the ids by which interactions name them"))
    file: str = field(default="", metadata=_meaning("the table, as seen from this file"))
    label: str = field(default="", metadata=_meaning("the column with names for people"))
    """The same as a column that is taken as ``label``."""
    columns: tuple[Column, ...] = ()

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
    name: str = field(default="shop", metadata=_meaning("the name of the data set"))
    interaction: str = field(
        default="purchase",
        metadata=_meaning("what users do with items, as a verb: purchase, played, borrowed"),
    )
    min_rating: float | None = field(
        default=None, metadata=_meaning("interactions rated lower are dislikes")
    )
    user_core: int = field(default=1, metadata=_meaning("leave out users with fewer items"))
    item_core: int = field(default=1, metadata=_meaning("leave out items with fewer users"))
    least: int = field(
        default=2,
        metadata=_meaning("leave out entities of fewer items (users): one links nothing"),
    )
    hub_share: float = field(
        default=0.5, metadata=_meaning("leave out entities of a larger share of the items (users)")
    )
    unknown_items: UnknownItems = field(
        default="keep", metadata=_meaning('"keep" or "drop" items that the item table lacks')
    )
    vectors: Mapping[str, str] = field(default_factory=dict)
    """Relation → file with a vector for each item: those with near vectors are related."""

    def columns(self) -> Iterator[tuple[str, Column]]:
        """Every column that is mapped, with its table."""
        for table in _TABLES:
            part = getattr(self, table)
            if part is not None:
                yield from ((table, column) for column in part.columns)

    def sides(self) -> tuple[tuple[str, str, EntityTable | None], ...]:
        """For items and users: the kind, the interactions' column of their ids, their table."""
        columns = self.interactions
        return ("item", columns.item, self.items), ("user", columns.user, self.users)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Table, column, what it is taken as, its relation, and why; for every column."""
        roles = ("user", "item", "rating", "strength", "time", "part", "behaviour")
        rows = [("interactions", getattr(self.interactions, role), role) for role in roles]
        for table in ("items", "users"):
            part: EntityTable | None = getattr(self, table)
            if part is not None:
                rows += [(table, part.id, "id"), (table, part.label, "label")]
        target = (
            f"only {self.interactions.target!r} counts as an interaction; change it: target = …"
        )
        named = [(*row, "", target * (row[2] == "behaviour")) for row in rows if row[1]]
        named += [(t, c.column, c.take, c.relation_made, c.why) for t, c in self.columns()]
        return sorted(named, key=lambda row: list(_TABLES).index(row[0]))

    def with_column(self, column: str, /, *, table: str | None = None, **changes: Any) -> Self:
        """The mapping with one column taken otherwise: ``with_column("genre", take="list",
        separator="|")``. ``table`` (interactions, items or users) is needed only where several
        have a column of that name; ``take="label"`` makes it the names that people read."""
        found = [(t, c) for t, c in self.columns() if c.column == column and table in (None, t)]
        if not found:
            known = [c.column for _, c in self.columns()]
            raise UnknownNameError("column in the mapping", column, known)
        if len(found) > 1:
            tables = ", ".join(t for t, _ in found)
            raise DataError(
                f"several tables ({tables}) have a column {column!r}",
                remedy="choose one, such as table='items'",
            )
        where, old = found[0]
        named = {"why": "as told"}
        if changes.get("take") in ("entity", "list", "series", "bins"):
            named |= {"type": old.type or column, "relation": old.relation or f"has_{column}"}
        part, new = getattr(self, where), overridden(old, named | changes)
        columns = tuple(new if c is old else c for c in part.columns)
        return replace(self, **{where: replace(part, columns=columns)})

    def with_table(self, name: str, table: EntityTable) -> Self:
        """The mapping with another table of items or users."""
        return replace(self, **{name: table})  # type: ignore[arg-type]

    def save(self, path: Path | str) -> None:
        """Write the mapping as a TOML file, which ``load``, ``loger.from_tables`` and
        ``loger data build table --mapping`` read."""
        write_text(Path(path), self.toml(Path(path)))

    def toml(self, path: Path) -> str:
        """The mapping as TOML; files are named as seen from the folder of the path."""
        lines = [_HEADER.replace("THIS_FILE", path.name), *_settings(self)]
        for table in _TABLES:
            part = getattr(self, table)
            if part is None:
                continue
            lines.append(f"\n[{table}]")
            lines += _settings(replace(part, file=_seen_from(path.parent, part.file)))
            for column in part.columns:
                lines.append(f"\n[[{table}.columns]]" + (f"  # {column.why}" if column.why else ""))
                usual = asdict(Column(column.column, "leave out"))
                lines += [
                    f"{k} = {json.dumps(v, ensure_ascii=False)}"
                    for k, v in asdict(column).items()
                    if k in ("column", "take") or (k != "why" and v != usual[k])
                ]
        if self.vectors:
            lines.append("\n[vectors]  # relation = file: an id and a vector for each item")
        for name, file in self.vectors.items():
            lines.append(f"{json.dumps(name)} = {json.dumps(_seen_from(path.parent, file))}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def load(path: Path | str) -> TableMapping:
        """The mapping of a TOML file; an error says where the mistake is."""
        tables = read_toml(path)
        if "interactions" not in tables:
            remedy = "add one that names the columns for users and items"
            raise DataError("the mapping has no [interactions]", path=path, remedy=remedy)
        return _parsed(tables, Path(path))

    def plain(self) -> dict[str, Any]:
        """The mapping as plain values, without the places of files: what a bundle keeps."""
        values = asdict(self)
        del values["vectors"]
        for table in _TABLES:
            if values[table] is not None:
                values[table]["file"] = ""
                values[table]["columns"] = [
                    {k: list(v) if k == "edges" else v for k, v in column.items() if k != "why"}
                    for column in values[table]["columns"]
                ]
        return values

    @staticmethod
    def of_plain(values: Mapping[str, Any], path: Path) -> TableMapping:
        """The mapping from plain values; ``path`` is for messages."""
        given = {k: v for k, v in values.items() if v is not None}
        return _parsed(given, path)

    def _repr_html_(self) -> str:
        return html_table(["table", "column", "becomes", "relation", "why"], self.rows())

    def __str__(self) -> str:
        lines = [("table", "column", "becomes", "relation", "why"), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _settings(part: Any) -> Iterator[str]:
    """Lines of all settings with what they mean, those without a value as comments."""
    for setting in fields(part):
        if "meaning" in setting.metadata:
            value = getattr(part, setting.name)
            given = value not in (None, "")
            shown = json.dumps(value, ensure_ascii=False) if given else "…"
            line = f"{setting.name} = {shown}  # {setting.metadata['meaning']}"
            yield line if given else f"# {line}"


def _seen_from(folder: Path, file: str) -> str:
    """A file as a mapping in a folder names it."""
    return Path(os.path.relpath(file, folder)).as_posix() if file else ""


_TABLES: Mapping[str, Any] = {
    "interactions": InteractionTable("", ""),
    "items": EntityTable(""),
    "users": EntityTable(""),
}
"""The tables of a mapping, in their order, before a file says anything about them."""


def _parsed(tables: Mapping[str, Any], path: Path) -> TableMapping:
    """A mapping from its tables, those of columns among them."""
    settings, parts = dict(tables), dict[str, Any]()
    vectors = settings.pop("vectors", {})
    try:
        for name, empty in _TABLES.items():
            if name in settings:
                part = dict(settings.pop(name))
                blank, at = Column("", "leave out"), f"{name}.columns"
                columns = tuple(_made(blank, row, at) for row in part.pop("columns", []))
                made = _made(empty, part, name)
                file = str(path.parent / made.file) if made.file else ""
                parts[name] = replace(made, file=file, columns=columns)
        if not isinstance(vectors, dict) or not all(isinstance(v, str) for v in vectors.values()):
            raise LogerError(
                'vectors should name files; write looks_like = "vectors.parquet" under [vectors], '
                f"got {vectors!r}"
            )
        parts["vectors"] = {name: str(path.parent / file) for name, file in vectors.items()}
        return overridden(TableMapping(**parts), settings)
    except LogerError as error:
        raise DataError(str(error), path=path) from None


def _made(empty: Any, values: Mapping[str, Any], where: str) -> Any:
    """A table or column with what a file gives for it."""
    needed = [f.name for f in fields(empty) if MISSING is f.default is f.default_factory]
    for name in needed:
        if name not in values:
            raise LogerError(f"{where}.{name} is missing; add it")
    return overridden(empty, values, where)
