"""What tables know of items besides the graph: filters and pages use it, no rule walks over it.

A value that most items have, such as "in stock: yes", would lead from everything to everything,
and one that a single item has leads nowhere: neither is in the graph. ``in_stock=yes`` is a filter
all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError

Ints = NDArray[np.int64]


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

    def is_called(self, name: str) -> bool:
        """Whether a filter means it: by its relation, also without ``has_``, or by its type."""
        return name in (self.relation, self.type) or self.relation == f"has_{name}"

    def having(self, value: str) -> Ints:
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
        """The same where items have other numbers: ``place`` of each, -1 where it is gone."""
        return _sorted(self, np.stack([self.places, place[self.items]], axis=1))

    def plus(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The same with items more that have its values."""
        more = np.array([(self._place[value], item) for value, item in pairs]).reshape(-1, 2)
        return _sorted(self, np.concatenate([np.stack([self.places, self.items], axis=1), more]))

    def renewed(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The same where items have other values instead of those they had, perhaps new ones."""
        values = tuple(dict.fromkeys([*self.values, *(value for value, _ in pairs)]))
        stay = ~np.isin(self.items, [item for _, item in pairs])
        kept = replace(self, values=values, places=self.places[stay], items=self.items[stay])
        return kept.plus(pairs)

    def minus(self, pairs: Sequence[tuple[str, int]]) -> FilterOnlyColumn:
        """The same less what items have."""
        gone = {(self._place[value], item) for value, item in pairs}
        rows = [row for row in zip(self.places, self.items, strict=True) if row not in gone]
        return _sorted(self, np.array(rows, np.int64).reshape(-1, 2))

    def check(self, n_items: int) -> None:
        """Refuse what does not exist or is not in order."""
        if not {type(x) for x in (self.relation, self.type, *self.values)} <= {str}:
            raise LogerError("values beside the graph have names")
        for numbers, n in ((self.places, len(self.values)), (self.items, n_items)):
            if numbers.ndim != 1 or numbers.dtype != np.int32 or len(numbers) != len(self.items):
                raise LogerError("values beside the graph are not those of items")
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < n:
                raise LogerError("values beside the graph are of items that do not exist")
        keys = self.places.astype(np.int64) * n_items + self.items
        if bool((np.diff(keys) <= 0).any()):
            raise LogerError("values beside the graph are not in order")


def _none() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return np.empty(0, np.int32), np.empty(0, np.int32)


def _sorted(column: FilterOnlyColumn, rows: NDArray[np.integer]) -> FilterOnlyColumn:
    """The column with other pairs, each once, in order, without items that are gone."""
    rows = np.unique(rows[rows[:, 1] >= 0], axis=0)
    places, items = (np.ascontiguousarray(rows[:, k], dtype=np.int32) for k in (0, 1))
    return replace(column, places=places, items=items)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What is known of items besides the graph."""

    filter_only: tuple[FilterOnlyColumn, ...] = ()
    images: Mapping[int, str] = field(default_factory=dict)
    """The picture's file of an item by number."""
    mapping: Mapping[str, Any] | None = None
    """What each column of the tables became (``loger.tables.mapping``), as plain values: so an
    update reads tables as the build did."""

    def __bool__(self) -> bool:
        return bool(self.filter_only or self.images or self.mapping)

    def called(self, name: str) -> list[FilterOnlyColumn]:
        """The columns that a filter's name means."""
        return [column for column in self.filter_only if column.is_called(name)]

    def names(self) -> list[str]:
        """What filters may call the columns."""
        return list(dict.fromkeys(n for c in self.filter_only for n in (c.relation, c.type)))

    def known_of(self, item: int) -> Iterator[tuple[FilterOnlyColumn, list[str]]]:
        """What is known of an item, column by column."""
        for column in self.filter_only:
            if values := column.known_of(item):
                yield column, values

    def moved(self, place: NDArray[np.integer]) -> Catalogue:
        """The same where items have other numbers: ``place`` of each, -1 where it is gone."""
        images = {int(place[v]): file for v, file in self.images.items() if place[v] >= 0}
        return replace(
            self, filter_only=tuple(c.moved(place) for c in self.filter_only), images=images
        )

    def check(self, n_items: int) -> Catalogue:
        """Itself, or an error where an item does not exist."""
        for column in self.filter_only:
            column.check(n_items)
        if not all(0 <= v < n_items for v in self.images):
            raise LogerError("there are pictures of items that do not exist")
        return self


NOTHING = Catalogue()
