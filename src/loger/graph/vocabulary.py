"""Which entities and relations exist, and what they are called."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError, UnknownNameError

INTERACTION = 0
"""The number of r_ui, the relation to predict, in every graph."""

INVERSE_MARK = "⁻¹"


@dataclass(frozen=True, slots=True)
class Relation:
    """A base relation with the one type of its heads and the one type of its tails."""

    name: str
    head_type: str
    tail_type: str


class Vocabulary:
    """Which entities exist, by type: names that identify, labels that people read.

    >>> words = Vocabulary({"user": ["ann"], "item": ["i1", "i2"], "brand": ["Acme"]})
    >>> words.id("item", "i2"), words.names[2], words.type_of(3)
    (2, 'i2', 'brand')
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        labels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if tuple(names)[:2] != ("user", "item"):
            raise LogerError(f"the first types must be 'user' and 'item', got {tuple(names)[:2]}")
        labels = labels or {}
        self.types: tuple[str, ...] = tuple(names)
        self.offsets: NDArray[np.int64] = np.cumsum([0] + [len(names[t]) for t in names])
        self._ends: list[int] = self.offsets[1:].tolist()
        self.names: list[str] = [name for of_type in names.values() for name in of_type]
        self.labels: list[str] = [s for t in names for s in labels.get(t, names[t])]
        if len(self.labels) != len(self.names):
            raise LogerError("every type needs as many labels as names")

    def __len__(self) -> int:
        return len(self.names)

    def span(self, entity_type: str) -> range:
        """The ids of all entities of a type."""
        k = self._place(entity_type)
        return range(int(self.offsets[k]), int(self.offsets[k + 1]))

    def type_of(self, entity: int) -> str:
        """The type of one entity."""
        return self.types[bisect_right(self._ends, entity)]

    def id(self, entity_type: str, name: str) -> int:
        """The id of a named entity; an unknown name is an error with the nearest known one."""
        ids = self.ids(entity_type)
        try:
            return ids[name]
        except KeyError:
            raise UnknownNameError(entity_type, name, ids) from None

    def ids(self, entity_type: str) -> Mapping[str, int]:
        """The ids of all entities of a type by name."""
        return self._ids_by_type[self._place(entity_type)]

    def _place(self, entity_type: str) -> int:
        try:
            return self.types.index(entity_type)
        except ValueError:
            raise UnknownNameError("entity type", entity_type, self.types) from None

    @cached_property
    def _ids_by_type(self) -> list[dict[str, int]]:
        return [{self.names[i]: i for i in self.span(t)} for t in self.types]
