"""Large text files block by block, and a tally of the lines that could not be used.

A block is so many lines of a file, so that its number alone says what it holds: work on
blocks can be interrupted and taken up again. Compression is known by the first bytes, not by
the name: browsers like to unpack a download and to leave its name.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from loger.errors import DataError

_MAGIC: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip),
    (b"BZh", bz2),
    (b"\xfd7zXZ\x00", lzma),
)
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
MAX_LINE = 64_000_000  # bytes; longer is no line of text
_EXAMPLE = 80  # characters of a broken line that are shown
ENDS_EARLY = "the compressed file ends early or is damaged; what comes before was read"


class Block(NamedTuple):
    """Some lines of a file."""

    number: int  # from 0
    first: int  # line number of the first, from 1
    lines: list[bytes]
    at: int  # bytes of the file, as it lies on the disk, that were read up to here
    damage: str  # what was wrong with the file after these lines; nothing for "not at all"


@dataclass
class Tally:
    """How often each kind of thing was wrong, and where first."""

    kinds: dict[str, list[Any]] = field(default_factory=dict)
    """kind → [count, first line, what stood there]"""

    def add(self, kind: str, line: int, value: object = "") -> None:
        """Count one more line of this kind."""
        entry = self.kinds.setdefault(kind, [0, line, str(value)[:_EXAMPLE]])
        entry[0] += 1

    def join(self, other: Tally) -> None:
        """Add the counts of later lines."""
        for kind, (count, line, value) in other.kinds.items():
            entry = self.kinds.setdefault(kind, [0, line, value])
            entry[0] += count


def blocks(path: Path, size: int) -> Iterator[Block]:
    """A file in blocks of so many lines; damage within a compressed file ends it."""
    try:
        raw = path.open("rb")
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(why, path=path, remedy="check the name and the folder") from None
    with raw:
        head = raw.read(8)
        raw.seek(0)
        packing = next((module for magic, module in _MAGIC if head.startswith(magic)), None)
        text = raw if packing is None else packing.open(raw)
        yield from _blocks_of(cast("IO[bytes]", text), raw, size)


def _blocks_of(text: IO[bytes], raw: IO[bytes], size: int) -> Iterator[Block]:
    number, damage, ended = 0, "", False
    while not ended:
        lines: list[bytes] = []
        try:
            while len(lines) < size:
                line = text.readline(MAX_LINE + 1)
                if len(line) > MAX_LINE:
                    raise EOFError(f"a line is longer than {MAX_LINE:,} bytes")
                if not line:
                    ended = True
                    break
                lines.append(line)
        except _DAMAGE as error:
            ended, damage = True, f"{type(error).__name__}: {error}"
        if lines or damage:
            yield Block(number, number * size + 1, lines, raw.tell(), damage)
        number += 1
