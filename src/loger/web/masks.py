"""Sets of items that are uploaded once and then referred to by name: ``mask=in-stock``.

A mask is a file with one name per line, in a folder that all workers of a server share. A worker
reads it when a filter first uses it, and again when it or the bundle has changed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from loger.engine.files import atomic_file
from loger.errors import UnknownNameError
from loger.graph import KnowledgeGraph
from loger.graph.catalogue import Mask
from loger.ranking.selection import named_items
from loger.web.problems import ProblemError

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of an upload: about five million short names."""
MAX_MASKS = 100
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Masks:
    """The masks of a server, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[object, Mask, int]] = {}

    def put(self, name: str, body: bytes, is_json: bool, graph: KnowledgeGraph) -> None:
        """Store a set of items under a name, and replace an older one. If the graph knows none of
        the items, that is an error."""
        if not NAME.fullmatch(name):
            raise ProblemError(
                422,
                "a mask's name can have up to 64 letters, digits, dots, hyphens and underscores, "
                f"got {name[:80]!r}",
            )
        names = _names(body, is_json)
        named_items(graph, names)  # raises before anything is replaced
        known = self.names()
        if name not in known and len(known) >= MAX_MASKS:
            raise ProblemError(409, f"there are already {MAX_MASKS} masks; delete one first")
        with atomic_file(self.folder / f"{name}.txt") as part:
            part.write_bytes("".join(f"{one}\n" for one in names).encode("utf-8"))

    def delete(self, name: str) -> None:
        """Delete a mask."""
        if name not in self.names():
            raise UnknownNameError("mask", name, self.names())
        (self.folder / f"{name}.txt").unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The names of all masks."""
        return sorted(path.stem for path in self.folder.glob("*.txt") if path.name[0] != ".")

    def of(self, graph: KnowledgeGraph) -> Mapping[str, Mask]:
        """The masks over a graph's items, each read when it is used."""
        return _Over(self, graph)

    def read(self, name: str, graph: KnowledgeGraph) -> tuple[Mask, int]:
        """A mask over a graph's items, and the number of its names that the graph doesn't know."""
        path = self.folder / f"{name}.txt"
        try:
            if not NAME.fullmatch(name):
                raise FileNotFoundError
            status = path.stat()
            stamp = (graph, status.st_mtime_ns, status.st_size, status.st_ino)
            with self._lock:
                kept = self._kept.get(name)
            if kept is not None and kept[0] == stamp:
                return kept[1], kept[2]
            lines = path.read_bytes().decode("utf-8").split("\n")
        except FileNotFoundError:
            raise UnknownNameError("mask", name, self.names()) from None
        mask, unknown = named_items(graph, [name for line in lines if (name := line.strip())])
        with self._lock:
            self._kept[name] = stamp, mask, unknown
        return mask, unknown


class _Over(Mapping[str, Mask]):
    def __init__(self, masks: Masks, graph: KnowledgeGraph) -> None:
        self.masks, self.graph = masks, graph

    def __getitem__(self, name: str) -> Mask:
        return self.masks.read(name, self.graph)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.masks.names())

    def __len__(self) -> int:
        return len(self.masks.names())


def _names(body: bytes, is_json: bool) -> list[str]:
    """The names in an upload: a JSON list, or one name per line."""
    try:
        text = body.decode("utf-8-sig")
        given = json.loads(text) if is_json else text.split("\n")
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        what = f"send a mask as a JSON list or as lines of UTF-8 ({error})"
        raise ProblemError(422, what) from None
    if not isinstance(given, list):
        raise ProblemError(422, "send a mask as a JSON list of item names")
    names = []
    for one in given:
        if isinstance(one, bool) or not isinstance(one, str | int) or not _one_line(str(one)):
            what = f"an item's name must be text or an integer, got {str(one)[:60]!r}"
            raise ProblemError(422, what)
        names.append(str(one).strip())
    return [one for one in dict.fromkeys(names) if one]


def _one_line(name: str) -> bool:
    """Whether a name fits on a line of a UTF-8 file."""
    return "\n" not in name and not any("\ud800" <= sign <= "\udfff" for sign in name)
