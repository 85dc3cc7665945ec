"""Finding entities by what people type: names and labels, from the start or anywhere in them."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, normalize

import numpy as np

from loger.graph.vocabulary import Vocabulary

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
        # An entity is its label, then its name where that differs, each begun by a separator.
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
        """The first entities that begin with a text, then those that contain it; and whether
        there are more."""
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
    """Without capitals and accents: people type bicha for Bícha."""
    if not text.isascii():
        text = "".join(c for c in normalize("NFKD", text) if not combining(c))
    return " ".join(text.casefold().split())


class Finder:
    """Finds the entities of a vocabulary by a part of their names or labels.

    What a type's search needs is made when it is first asked for.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._indices: dict[str, Names] = {}

    def prepare(self) -> None:
        """Make everything that searches need now."""
        for entity_type in self.vocabulary.types:
            self._index(entity_type)

    def search(self, entity_type: str, query: str, most: int) -> tuple[list[int], bool]:
        """The first entities of a type that a text fits, and whether there are more."""
        found, more = self._index(entity_type).find(query, most)
        first = self.vocabulary.span(entity_type).start
        return [k + first for k in found], more

    def _index(self, entity_type: str) -> Names:
        if entity_type not in self._indices:
            span = self.vocabulary.span(entity_type)
            cut = slice(span.start, span.stop)
            self._indices[entity_type] = Names(
                self.vocabulary.names[cut], self.vocabulary.labels[cut]
            )
        return self._indices[entity_type]
