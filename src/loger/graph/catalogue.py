"""What tables say about items outside the graph: filters and pages use it, rules don't.

A value that most items have, such as "in stock: yes", would lead from everything to everything,
and one that a single item has leads nowhere, so neither is in the graph. ``in_stock=yes`` is a
filter all the same.

Filters such as ``genre=jazz AND NOT brand=Acme`` say which items may be recommended:

    any      = all { "OR" all }
    all      = one { "AND" one }
    one      = "NOT" one | "(" any ")" | name ("=" | "!=") value
             | name ("<" | "<=" | ">" | ">=") number

A name is that of a relation (``has_brand``, also without its ``has_``), of a type of entities
(``brand``: whatever relation links it to an item), ``item``, or ``mask`` for a set of items that
was given a name. A value is the name or label of an entity. It may have spaces, and ends before
``AND``, ``OR``, ``NOT`` or a closing bracket that it did not open. In quotes it may be anything; a
name may be in double quotes as well, and ``\\"`` is a quote within these. ``price<10`` and
``year>=2019`` compare values that are numbers; an item without a number does not fit.

Items must fit all of several filters, but only one of those that give values of the same column:
``genre=jazz``, ``genre=blues`` and ``price<10`` mean cheap jazz and cheap blues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError, UnknownNameError
from loger.graph.arrays import Ids
from loger.graph.graph import KnowledgeGraph
from loger.graph.vocabulary import INTERACTION, INVERSE_MARK


@dataclass(frozen=True, eq=False)
class FilterOnlyColumn:
    """The values of one column that are not in the graph, and the items that have them."""

    relation: str
    type: str
    values: tuple[str, ...]
    places: NDArray[np.int32]
    """The value of each pair, by its place; ascending, and so are the items of a value."""
    items: NDArray[np.int32]
    """The item of each pair, by its number among items."""

    @classmethod
    def of(cls, relation: str, type: str, pairs: Iterable[tuple[str, int]]) -> FilterOnlyColumn:
        """From pairs of a value and an item."""
        rows = list(pairs)
        values = tuple(dict.fromkeys(value for value, _ in rows))
        place = {value: k for k, value in enumerate(values)}
        ids = np.array([(place[value], item) for value, item in rows], np.int64).reshape(-1, 2)
        return _sorted(cls(relation, type, values, *_none()), ids)

    def having(self, value: str) -> Ids:
        """The items that have a value; none if there is no such value."""
        place = self._place.get(value, -1)
        low, high = np.searchsorted(self.places, [place, place + 1])
        return self.items[low:high].astype(np.int64)

    def known_of(self, item: int) -> list[str]:
        """The values that an item has."""
        return [self.values[k] for k in self.places[self.items == item]]

    def has_value(self, value: str) -> bool:
        """Whether it is one of the values."""
        return value in self._place

    @cached_property
    def _place(self) -> dict[str, int]:
        return {value: k for k, value in enumerate(self.values)}

    def moved(self, place: NDArray[np.integer]) -> FilterOnlyColumn:
        """The column after items got other numbers: ``place`` of each, -1 if it is gone."""
        return _sorted(self, np.stack([self.places, place[self.items]], axis=1))

    def plus(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The column with more pairs of its values and items."""
        more = np.array([(self._place[value], item) for value, item in pairs]).reshape(-1, 2)
        return _sorted(self, np.concatenate([np.stack([self.places, self.items], axis=1), more]))

    def renewed(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The column in which these items have these values, maybe new ones, and no others."""
        values = tuple(dict.fromkeys([*self.values, *(value for value, _ in pairs)]))
        stay = ~np.isin(self.items, [item for _, item in pairs])
        kept = replace(self, values=values, places=self.places[stay], items=self.items[stay])
        return kept.plus(pairs)

    def minus(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The column without some pairs."""
        gone = {(self._place[value], item) for value, item in pairs}
        rows = [row for row in zip(self.places, self.items, strict=True) if row not in gone]
        return _sorted(self, np.array(rows, np.int64).reshape(-1, 2))

    def check(self, n_items: int) -> None:
        """Refuse values or items that don't exist, or pairs that are not sorted."""
        if not {type(x) for x in (self.relation, self.type, *self.values)} <= {str}:
            raise LogerError("the names of filter-only columns and values must be text")
        for numbers, n in ((self.places, len(self.values)), (self.items, n_items)):
            if numbers.ndim != 1 or numbers.dtype != np.int32 or len(numbers) != len(self.items):
                raise LogerError("a filter-only column needs exactly one item for each place")
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < n:
                raise LogerError("a filter-only column refers to values or items that don't exist")
        keys = self.places.astype(np.int64) * n_items + self.items
        if bool((np.diff(keys) <= 0).any()):
            raise LogerError("the pairs of a filter-only column must be sorted and distinct")


def _none() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return np.empty(0, np.int32), np.empty(0, np.int32)


def _sorted(column: FilterOnlyColumn, rows: NDArray[np.integer]) -> FilterOnlyColumn:
    """The column with other pairs, sorted and distinct, without items that are gone."""
    rows = np.unique(rows[rows[:, 1] >= 0], axis=0)
    places, items = (np.ascontiguousarray(rows[:, k], dtype=np.int32) for k in (0, 1))
    return replace(column, places=places, items=items)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What is known about items outside the graph."""

    filter_only: tuple[FilterOnlyColumn, ...] = ()
    images: Mapping[int, str] = field(default_factory=dict)
    """The image file of each item that has one, by number."""
    mapping: Mapping[str, Any] | None = None
    """What each column of the tables became (``loger.tables.mapping``), as plain values, so that
    an update reads tables as the build did."""

    def __post_init__(self) -> None:
        if self.mapping and "positive_from" in self.mapping:
            raise LogerError(
                "an older version of loger built this data set; build it again, then fit again"
            )

    def __bool__(self) -> bool:
        return bool(self.filter_only or self.images or self.mapping)

    def called(self, name: str) -> list[FilterOnlyColumn]:
        """The columns that a filter's name means: by their relation, also without ``has_``, or by
        their type."""
        names = (name, f"has_{name}")
        return [c for c in self.filter_only if c.relation in names or c.type == name]

    def names(self) -> list[str]:
        """What filters may call the columns."""
        return list(dict.fromkeys(n for c in self.filter_only for n in (c.relation, c.type)))

    def known_of(self, item: int) -> Iterator[tuple[FilterOnlyColumn, list[str]]]:
        """What is known of an item, column by column."""
        for column in self.filter_only:
            if values := column.known_of(item):
                yield column, values

    def moved(self, place: NDArray[np.integer]) -> Catalogue:
        """The catalogue after items got other numbers: ``place`` of each, -1 if it is gone."""
        images = {int(place[v]): file for v, file in self.images.items() if place[v] >= 0}
        return replace(
            self, filter_only=tuple(c.moved(place) for c in self.filter_only), images=images
        )

    def check(self, n_items: int) -> Catalogue:
        """The catalogue itself; an error if it names an item that doesn't exist."""
        for column in self.filter_only:
            column.check(n_items)
        if not all(0 <= v < n_items for v in self.images):
            raise LogerError("the catalogue has images for items that don't exist")
        return self


NOTHING = Catalogue()


# ── filters ──────────────────────────────────────────────────────────────────────────────────

Mask = NDArray[np.bool_]
MAX_DEPTH = 50
"""Brackets within brackets."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_QUOTED_ONCE = re.compile(r"'[^']*'(?=\s+(?:AND|OR|NOT)(?:[\s(]|$)|\s*\)|\s*$)")
_NAME = re.compile(r'[^\s=!<>()"]+')
_SIGN = re.compile(r"\s*(!?=|[<>]=?)\s*")
_END = re.compile(r"\s+(?:AND|OR|NOT)(?=[\s(]|$)|\s*$")
_WORD = re.compile(r"\s*(AND|OR|NOT)(?=[\s(]|$)")


@dataclass(frozen=True, slots=True)
class Fact:
    """Items that a fact links to a value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Items whose value is a number below or above a bound."""

    name: str
    sign: str
    number: float

    def fits(self, values: Sequence[str]) -> NDArray[np.bool_]:
        """Which values are such numbers; an error if none is a number at all."""
        numbers = np.array([_number(value) for value in values], dtype=np.float64)
        if np.isnan(numbers).all():
            raise LogerError(
                f"can't apply {self.name}{self.sign}{self.number:g}: no {self.name} is a number"
            )
        return _ORDER[self.sign](numbers, self.number)


@dataclass(frozen=True, slots=True)
class Not:
    """Items that do not fit."""

    part: Filter


@dataclass(frozen=True, slots=True)
class Both:
    """Items that fit all parts."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Items that fit one of the parts."""

    parts: tuple[Filter, ...]


Filter = Fact | Compared | Not | Both | Either
_ORDER: dict[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal
}  # fmt: skip


def parse(text: str) -> Filter:
    """A filter from its text.

    >>> parse('genre=hard bop AND NOT (brand=Acme OR title="Or else")')
    Both(parts=(Fact(name='genre', value='hard bop'), Not(part=Either(parts=(Fact(name='brand', \
value='Acme'), Fact(name='title', value='Or else'))))))
    """
    reader = _Reader(normalize("NFC", text))  # as readers compose names
    found = reader.any(0)
    reader.end()
    return found


class _Reader:
    """Reads a filter from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def any(self, depth: int) -> Filter:
        parts = [self.all(depth)]
        while self._word("OR"):
            parts.append(self.all(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def all(self, depth: int) -> Filter:
        parts = [self.one(depth)]
        while self._word("AND"):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def one(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels of brackets")
        if self._word("NOT"):
            return Not(self.one(depth + 1))
        if self._sign("("):
            inner = self.any(depth + 1)
            if not self._sign(")"):
                raise self.error("a closing bracket is missing")
            return inner
        quoted = self._quoted()
        name = quoted or self._match(_NAME)
        if not name:
            raise self.error("expected a fact such as genre=jazz")
        sign = (self._match(_SIGN) or "").strip()
        if not sign:
            hint = f"; write {name.replace(':', '=', 1)}" if ":" in name else ""
            raise self.error(f"expected = after {name!r}{hint}")
        value = self._value(name)
        if sign in _ORDER:
            if np.isnan(number := _number(value)):
                raise self.error(f"expected a number after {name}{sign}, got {value!r}")
            return Compared(name, sign, number)
        return Not(Fact(name, value)) if sign == "!=" else Fact(name, value)

    def end(self) -> None:
        if self.text[self.at :].strip():
            raise self.error(f"expected AND or OR before {self.text[self.at :].strip()[:30]!r}")

    def error(self, what: str) -> LogerError:
        return LogerError(f"in the filter {self.text[:200]!r}, at character {self.at + 1}: {what}")

    def _value(self, name: str) -> str:
        quoted = self._quoted()
        if quoted is not None:
            return quoted
        if once := self._match(_QUOTED_ONCE):
            return once[1:-1]
        start, depth = self.at, 0
        while self.at < len(self.text) and not _END.match(self.text, self.at):
            letter = self.text[self.at]
            depth += (letter == "(") - (letter == ")")
            if depth < 0:
                break
            self.at += 1
        value = self.text[start : self.at].strip()
        if not value:
            raise self.error(f"expected a value after {name}=")
        return value

    def _word(self, word: str) -> bool:
        found = _WORD.match(self.text, self.at)
        if found is None or found[1] != word:
            return False
        self.at = found.end()
        return True

    def _sign(self, sign: str) -> bool:
        self._blank()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def _quoted(self) -> str | None:
        found = self._match(_QUOTED)
        return None if found is None else re.sub(r"\\(.)", r"\1", found[1:-1])

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._blank()
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def _blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1


def item_mask(
    graph: KnowledgeGraph,
    filter: Filter | str,
    masks: Mapping[str, Mask],
    catalogue: Catalogue = NOTHING,
) -> Mask:
    """Which items fit a filter; [items]. ``masks`` are named sets of items, and the ``catalogue``
    has values that are not in the graph."""
    if isinstance(filter, str):
        filter = parse(filter)
    if isinstance(filter, Not):
        return ~item_mask(graph, filter.part, masks, catalogue)
    if isinstance(filter, Both | Either):
        add = np.logical_and if isinstance(filter, Both) else np.logical_or
        out = item_mask(graph, filter.parts[0], masks, catalogue)
        for part in filter.parts[1:]:
            add(out, item_mask(graph, part, masks, catalogue), out=out)
        return out
    if isinstance(filter, Compared):
        return _compared(graph, filter, catalogue)
    if filter.name == "mask":
        mask = masks.get(filter.value)  # which may read a file
        if mask is None:
            raise UnknownNameError("mask", filter.value, list(masks))
        return mask.copy()
    out = np.zeros(graph.n_items, dtype=bool)
    out[_items_of(graph, filter.name, filter.value, catalogue)] = True
    return out


def column_of(graph: KnowledgeGraph, filter: Filter, catalogue: Catalogue) -> str | None:
    """The one column whose values a filter gives, under any of its names; None for others."""
    if isinstance(filter, Either):
        columns = {column_of(graph, part, catalogue) for part in filter.parts}
        return columns.pop() if len(columns) == 1 else None
    if not isinstance(filter, Fact):
        return None
    if filter.name in ("item", "mask"):  # a mask is a set of items
        return "item"
    beside = [column.relation for column in catalogue.called(filter.name)]
    return beside[0] if beside else str(fact_relations(graph, filter.name, catalogue))


def _compared(graph: KnowledgeGraph, filter: Compared, catalogue: Catalogue) -> Mask:
    """The items that have a number below or above a bound, in the graph or in the catalogue."""
    values, items = list[str](), list[NDArray[np.int64]]()
    beside = catalogue.called(filter.name)
    for column in beside:
        values += column.values
        items += [column.having(value) for value in column.values]
    # A column may be in the graph except for values that hardly any item has.
    walked = fact_relations(graph, filter.name, catalogue) if _walked(graph, filter.name) else []
    if not walked and not beside:
        fact_relations(graph, filter.name, catalogue)  # raises an error with the known names
    for relation in map(graph.inverse, walked):
        for entity in graph.vocabulary.span(graph.signature(relation)[0]):
            values.append(graph.vocabulary.labels[entity])
            items.append(graph.neighbours(entity, relation).astype(np.int64) - graph.n_users)
    out = np.zeros(graph.n_items, dtype=bool)
    for place in np.flatnonzero(filter.fits(values)):
        out[items[place]] = True
    return out


def _walked(graph: KnowledgeGraph, name: str) -> bool:
    """Whether the graph knows a fact of that name."""
    return {name, f"has_{name}"} & set(fact_names(graph)) != set()


def _number(text: str) -> float:
    """A value as a number; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _items_of(
    graph: KnowledgeGraph, name: str, value: str, catalogue: Catalogue
) -> NDArray[np.int64]:
    """The items that one fact fits, by the graph or the catalogue."""
    columns = catalogue.called(name)
    found = [column for column in columns if column.has_value(value)]
    if found:
        return np.concatenate([column.having(value) for column in found])
    for column in columns:
        walked = column.type in graph.vocabulary.types
        known = graph.vocabulary.ids(column.type) if walked else {}
        if value not in known:
            raise UnknownNameError(
                column.type, value, [*known, *column.values], listed=column.type != "user"
            )
    if name == "item":
        return np.array([graph.vocabulary.id("item", value) - graph.n_users])
    relations = [graph.inverse(r) for r in fact_relations(graph, name, catalogue)]
    entity = graph.vocabulary.id(graph.signature(relations[0])[0], value)
    linked = [graph.neighbours(entity, r) for r in relations]
    return np.concatenate(linked).astype(np.int64) - graph.n_users


def fact_relations(graph: KnowledgeGraph, name: str, catalogue: Catalogue = NOTHING) -> list[int]:
    """The relations, as they lead from an item, that a name in a filter stands for: the relation
    of that name, or its inverse with ``⁻¹`` or ``^-1``; else all relations that link a type of that
    name to items; else the relation ``has_`` plus the name."""
    facts = {graph.relation_name(r): r for r in item_relations(graph)}
    # "Acme makes it" is a fact of the item too, under the name of that relation.
    turned = {graph.relation_name(graph.inverse(r)): r for r in facts.values()}
    by_name = turned | facts
    plain = name.replace("^-1", INVERSE_MARK)
    by_type = [r for r in facts.values() if graph.signature(r)[1] == name]
    if plain in by_name:
        return [by_name[plain]]
    if by_type:
        return by_type
    if f"has_{plain}" in by_name:
        return [by_name[f"has_{plain}"]]
    if name in graph.vocabulary.types or name in (r.name for r in graph.relations):
        raise LogerError(
            f"items have no field {name!r}; you can filter by {', '.join(fact_names(graph))}"
        )
    known = [*fact_names(graph, catalogue), "item", "mask"]
    raise UnknownNameError("relation or type", name, known)


def fact_names(graph: KnowledgeGraph, catalogue: Catalogue = NOTHING) -> list[str]:
    """The relations and types that filters may name, besides ``item`` and ``mask``."""
    out: dict[str, None] = {}
    for r in item_relations(graph):
        out[graph.relations[r % len(graph.relations)].name] = None
        if graph.signature(r)[1] != "item":
            out[graph.signature(r)[1]] = None
    return list(out | dict.fromkeys(catalogue.names()))


def item_relations(graph: KnowledgeGraph) -> list[int]:
    """The relations that lead from items to facts about them: not to users, and not relations that
    are made from the interactions."""
    return [
        r
        for r in range(2 * len(graph.relations))
        if r % len(graph.relations) != INTERACTION
        and graph.signature(r)[0] == "item"
        and graph.signature(r)[1] != "user"
        and not graph.relations[r % len(graph.relations)].derived
    ]
