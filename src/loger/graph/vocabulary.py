"""Which entities and relations exist, their names and labels, and search by what people type."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from unicodedata import combining, normalize

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError, UnknownNameError

INTERACTION = 0
"""The number of r_ui, the relation to predict, in every graph."""

INVERSE_MARK = "⁻¹"
NAMED = 12
"""The most entities with the same label that a message names."""


DISLIKED = "disliked"
"""The relation from users to items that they dislike, have hidden or returned."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A base relation with the one type of its heads and the one type of its tails."""

    name: str
    head_type: str
    tail_type: str
    derived: bool = False
    """Whether its facts were made from the training interactions. Their weights alone say what they
    are worth: no degree divides them, and they don't support an interaction that they come from."""
    recency: float | None = None
    """How fast the user's interactions fade for rules with this second relation, instead of the
    walk's recency: (1 + later interactions)^-recency."""
    window: int | None = None
    """The most places that the two interactions behind a derived fact are apart in a history, not
    counting others at the same times; None if there is no limit."""

    @property
    def negative(self) -> bool:
        """Whether it says what users dislike. Such items are never recommended to them, and rules
        that begin with it only count against items."""
        return (self.name, self.head_type, self.tail_type) == (DISLIKED, "user", "item")


Named = tuple[list[str], list[str]]
"""Names and labels of some entities."""


def is_integer(name: str) -> bool:
    """Whether a name is an integer, written as Python writes it.

    >>> [name for name in ("17", "0", "017", "-1", "1.0", "") if is_integer(name)]
    ['17', '0']
    """
    return name.isascii() and name.isdigit() and len(name) < 19 and (name[0] != "0" or name == "0")


class Vocabulary:
    """Which entities exist, by type: names that identify, labels that people read.

    >>> words = Vocabulary({"user": ["ann"], "item": ["i1", "i2"], "brand": ["Acme"]})
    >>> words.id("item", "i2"), words.names[2], words.type_of(3)
    (2, 'i2', 'brand')

    ``integers`` are types whose names were integers in the data.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        labels: Mapping[str, Sequence[str]] | None = None,
        integers: Iterable[str] = (),
    ) -> None:
        if tuple(names)[:2] != ("user", "item"):
            raise LogerError(f"the first types must be 'user' and 'item', got {tuple(names)[:2]}")
        labels = labels or {}
        self._by_name: dict[int, dict[str, int]] = {}
        self._by_label: dict[int, dict[str, list[int]]] = {}
        self.types: tuple[str, ...] = tuple(names)
        self.offsets: NDArray[np.int64] = np.cumsum([0] + [len(names[t]) for t in names])
        self._ends: list[int] = self.offsets[1:].tolist()
        self.names: list[str] = [name for of_type in names.values() for name in of_type]
        self.labels: list[str] = [s for t in names for s in labels.get(t, names[t])]
        if len(self.labels) != len(self.names):
            raise LogerError("each type needs as many labels as names")
        # One guest called "ann" among numbered users, and frames name all of them by text.
        self.integers = frozenset(t for t in integers if all(map(is_integer, names[t])))
        """The types whose names were integers in the data: frames show them as such."""

    @classmethod
    def of(cls, parts: Mapping[str, Named], integers: Iterable[str]) -> Vocabulary:
        """The vocabulary of names and labels, type by type."""
        names = {kind: part[0] for kind, part in parts.items()}
        return cls(names, {kind: part[1] for kind, part in parts.items()}, integers)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def shown(self) -> list[str]:
        """The labels of all entities; an item that shares its label with another is followed by its
        name: The Last Road [T00066]."""
        items = self.span("item")
        labels = self.labels[items.start : items.stop]
        if len(set(labels)) == len(labels):
            return self.labels
        times, shown = Counter(labels), self.labels.copy()
        for entity in items:
            label, name = self.labels[entity], self.names[entity]
            if times[label] > 1 and label != name:
                shown[entity] = f"{label} [{name}]"
        return shown

    def span(self, entity_type: str) -> range:
        """The ids of all entities of a type."""
        k = self._place(entity_type)
        return range(int(self.offsets[k]), int(self.offsets[k + 1]))

    def of_type(self, entity_type: str) -> Named:
        """Names and labels of the entities of a type."""
        span = self.span(entity_type)
        return self.names[span.start : span.stop], self.labels[span.start : span.stop]

    def type_of(self, entity: int) -> str:
        """The type of one entity."""
        return self.types[bisect_right(self._ends, entity)]

    def id(self, entity_type: str, name: str, among: Container[int] | None = None) -> int:
        """The id of an entity by its name, or by a label that only one entity has.

        If several have the label, the one ``among`` the given ids is meant. Unknown names raise an
        error that suggests the closest matches.
        """
        ids = self.ids(entity_type)
        found = ids.get(name, ids.get(normalize("NFC", name)))  # readers compose names
        if found is not None:
            return found
        labelled = self._labelled(entity_type).get(name, [])
        if among is not None:
            labelled = [e for e in labelled if e in among] or labelled
        if len(labelled) == 1:
            return labelled[0]
        if labelled:
            names = ", ".join(self.names[e] for e in labelled[:NAMED])
            raise LogerError(
                f"{len(labelled)} {entity_type}s are called {name!r}; pass the ID of the one you "
                f"mean: {names}{', …' * (len(labelled) > NAMED)}"
            )
        known = dict.fromkeys(self.ids(entity_type)) | dict.fromkeys(self._labelled(entity_type))
        listed = entity_type not in ("user", "item")  # messages don't list people
        raise UnknownNameError(entity_type, name, known, listed=listed)

    def ids(self, entity_type: str) -> Mapping[str, int]:
        """The ids of all entities of a type by name; made on first use."""
        place = self._place(entity_type)
        if place not in self._by_name:
            names = self.names
            self._by_name[place] = {names[i]: i for i in self.span(entity_type)}
        return self._by_name[place]

    def _labelled(self, entity_type: str) -> Mapping[str, list[int]]:
        """The entities of a type by label; made on first use."""
        place = self._place(entity_type)
        if place not in self._by_label:
            by_label: dict[str, list[int]] = {}
            for entity in self.span(entity_type):
                by_label.setdefault(self.labels[entity], []).append(entity)
            self._by_label[place] = by_label
        return self._by_label[place]

    def _place(self, entity_type: str) -> int:
        try:
            return self.types.index(entity_type)
        except ValueError:
            raise UnknownNameError("entity type", entity_type, self.types) from None


SEPARATOR = "\n"


class Names:
    """An index of entities; searching is one pass over one text.

    >>> found = Names(["i1", "i2", "i3"], ["Jade lamp", "Lamp", "Tray"])
    >>> found.find("lamp", 5), found.find("lamp", 1), found.find("", 2)
    (([1, 0], False), ([1], True), ([0, 1], True))
    >>> Names(["Zoë Bícha", "ann"], ["Zoë Bícha", "ann"]).find("zoe bi", 5)
    ([0], False)
    """

    def __init__(self, names: Sequence[str], labels: Sequence[str]) -> None:
        # An entity is its label, then its name if that differs, each after a separator.
        self.size = len(names)
        parts, owners, at = [], [], [0]
        for k, (name, label) in enumerate(zip(names, labels, strict=True)):
            for text in dict.fromkeys((_plain(label), _plain(name))):
                parts.append(SEPARATOR + text)
                owners.append(k)
                at.append(at[-1] + len(text) + 1)
        self.text = "".join(parts)
        self.starts = np.array(at[:-1], dtype=np.int64)
        self.owners = np.array(owners, dtype=np.int64)

    def find(self, query: str, most: int) -> tuple[list[int], bool]:
        """Up to ``most`` entities, first those that begin with a text, then those that contain it;
        and whether there are more."""
        plain = _plain(query)
        if not plain:
            return list(range(min(most, self.size))), self.size > most
        found: dict[int, None] = {}
        for wanted in (SEPARATOR + plain, plain):
            place = self.text.find(wanted)
            while place >= 0:
                entry = int(np.searchsorted(self.starts, place, side="right")) - 1
                found[int(self.owners[entry])] = None
                if len(found) > most:
                    return list(found)[:most], True
                end = self.starts[entry + 1] if entry + 1 < len(self.starts) else len(self.text)
                place = self.text.find(wanted, int(end))
        return list(found), False


def _plain(text: str) -> str:
    """The text without capitals and accents, as people type bicha for Bícha."""
    if not text.isascii():
        text = "".join(c for c in normalize("NFKD", text) if not combining(c))
    return " ".join(text.casefold().split())


class Finder:
    """Finds the entities of a vocabulary by a part of their names or labels.

    The index of a type is made on first use.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._indices: dict[str, Names] = {}

    def prepare(self) -> None:
        """Make the indices of all types now."""
        for entity_type in self.vocabulary.types:
            self._index(entity_type)

    def search(self, entity_type: str, query: str, most: int) -> tuple[list[int], bool]:
        """Up to ``most`` entities of a type that match a text, and whether there are more."""
        found, more = self._index(entity_type).find(query, most)
        first = self.vocabulary.span(entity_type).start
        return [k + first for k in found], more

    def _index(self, entity_type: str) -> Names:
        if entity_type not in self._indices:
            self._indices[entity_type] = Names(*self.vocabulary.of_type(entity_type))
        return self._indices[entity_type]


class Schema:
    """What follows from the vocabulary and the relations alone, for graphs and views."""

    vocabulary: Vocabulary
    relations: tuple[Relation, ...]

    @property
    def n_entities(self) -> int:
        """How many entities there are, of all types."""
        return len(self.vocabulary)

    @cached_property
    def n_users(self) -> int:
        """How many users there are; their ids are 0 … n_users - 1."""
        return len(self.vocabulary.span("user"))

    @cached_property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.vocabulary.span("item"))

    def inverse(self, relation: int) -> int:
        """The number of the inverse relation."""
        n = len(self.relations)
        return relation - n if relation >= n else relation + n

    def relation_name(self, relation: int) -> str:
        """The name of a relation or inverse relation."""
        n = len(self.relations)
        return self.relations[relation % n].name + (INVERSE_MARK if relation >= n else "")

    def relation_id(self, name: str) -> int:
        """The number of a relation by its name, ``⁻¹`` or ``^-1`` marking an inverse."""
        plain = name.removesuffix(INVERSE_MARK).removesuffix("^-1")
        names = [r.name for r in self.relations]
        if plain not in names:
            raise UnknownNameError("relation", plain, names)
        base = names.index(plain)
        return base if plain == name else self.inverse(base)

    def signature(self, relation: int) -> tuple[str, str]:
        """The types that a relation or inverse relation leads from and to."""
        base = self.relations[relation % len(self.relations)]
        types = (base.head_type, base.tail_type)
        return types if relation < len(self.relations) else types[::-1]
