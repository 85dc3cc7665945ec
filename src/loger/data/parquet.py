"""Parquet files, read only if they fit: a file of 1 kB may hold one long text 60,000 times.

What a file unpacks to is worked out from its footer and the headers of its pages before anything
is unpacked; both are structs of Thrift's compact protocol. polars keeps texts of a dictionary once
however often rows repeat them, so how long they are together is looked at after the read, before
anything copies them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import polars as pl

EXPANSION, ALWAYS = 100, 64 * 2**20
"""A compressed file may unpack to EXPANSION times its size, or to ALWAYS bytes. Real tables shrink
to a fifth or a tenth; a small file that fills the memory isn't a table."""
MAX_SLICES = 10_000
"""Most slices in which a table is read whose texts are stored as changes to the text before."""
_FIXED_LENGTH, _DELTA_TEXTS = 7, 7
"""Numbers of a type and of an encoding in the format."""


class TooLargeError(ValueError):
    """A file would take far more memory than its size suggests."""


def budget(size: int) -> int:
    """Number of bytes that a file of this size may unpack to."""
    return max(ALWAYS, EXPANSION * size)


def read(raw: bytes, size: int) -> pl.DataFrame:
    """A Parquet table, unless it takes more memory than a file of this size may."""
    most = budget(size)
    pages = _Pages.of(raw, pl.read_parquet_schema(BytesIO(raw)))
    if pages.unpacked > most:
        raise TooLargeError
    if not pages.longest_delta:
        return _checked(pl.read_parquet(BytesIO(raw)), most)
    step = max(1, most // pages.longest_delta)
    if pages.rows > step * MAX_SLICES:
        raise TooLargeError
    parts, taken = list[pl.DataFrame](), 0
    for start in range(0, max(pages.rows, 1), step):
        part = pl.scan_parquet(BytesIO(raw)).slice(start, step).collect()
        parts.append(_checked(part, most - taken))
        taken += int(part.estimated_size())
    return pl.concat(parts)


def _checked(table: pl.DataFrame, most: int) -> pl.DataFrame:
    if table.estimated_size() > most:
        raise TooLargeError
    return table


@dataclass
class _Pages:
    """What the footer and all page headers of a file amount to."""

    rows: int
    unpacked: int = 0
    """Bytes of the unpacked pages and of what they decode to, but for texts from dictionaries."""
    longest_delta: int = 0
    """The largest page of texts that are written as changes to the text before."""
    values: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Cells of each column, nested ones too."""

    @classmethod
    def of(cls, raw: bytes, schema: Mapping[str, pl.DataType]) -> _Pages:
        """Look through a file."""
        length = int.from_bytes(raw[-8:-4], "little")
        footer = _Thrift(raw, len(raw) - 8 - length).struct()
        groups = footer[4]
        pages = cls(max(footer[3], sum(group[3] for group in groups)))
        leaves = [leaf for leaf in footer[2][1:] if not leaf.get(5)]
        for group in groups:
            for leaf, column in zip(leaves, group[1], strict=True):
                width = leaf.get(2, 0) if leaf.get(1) == _FIXED_LENGTH else 0
                name = column[3][3][0].decode()
                pages._look_through(raw, column[3], name, width, _in_lists(schema[name]))
        for name, dtype in schema.items():
            values = pages.values[name]
            filled = _cells(dtype) * (values if _in_lists(dtype) else pages.rows)
            pages.unpacked += 8 * max(values, filled)
        return pages

    def _look_through(
        self, raw: bytes, column: dict[int, Any], name: str, width: int, in_lists: bool
    ) -> None:
        """Add the pages of one column of one group of rows."""
        at = min(column[9], column.get(11) or column[9])
        end = at + column[7]
        while at < end:
            header = _Thrift(raw, at)
            page = header.struct()
            data, unpacked = page.get(5) or page.get(8) or {1: 0}, page[2]
            if min(unpacked, page[3], data[1]) < 0:
                raise ValueError("a page has a negative size")
            at = header.at + page[3]
            self.values[name] += data[1]
            self.unpacked += unpacked + width * data[1]
            if data.get(2 if 5 in page else 4) == _DELTA_TEXTS:
                self.longest_delta = max(self.longest_delta, unpacked)
                self.unpacked += in_lists * unpacked * data[1]


def _in_lists(dtype: Any) -> bool:
    """Whether a row may have any number of cells."""
    if isinstance(dtype, pl.Struct):
        return any(_in_lists(f.dtype) for f in dtype.fields)
    if isinstance(dtype, pl.Array):
        return _in_lists(dtype.inner)
    return isinstance(dtype, pl.List)


def _cells(dtype: Any) -> int:
    """Cells that an empty row takes in memory: all those of a list of fixed size."""
    if isinstance(dtype, pl.Struct):
        return sum(_cells(f.dtype) for f in dtype.fields)
    if isinstance(dtype, pl.Array | pl.List):
        width = dtype.size if isinstance(dtype, pl.Array) else 1
        return width * _cells(dtype.inner)
    return 1


class _Thrift:
    """Reads structs of Thrift's compact protocol, as field number → value."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw, self.at = raw, at

    def struct(self) -> dict[int, Any]:
        """The struct that begins here."""
        out, number = dict[int, Any](), 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._integer()
            out[number] = kind & 15 == 1 if kind & 15 in (1, 2) else self._value(kind & 15)
        return out

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # here of a list: in a struct, booleans are in the kind
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind in (7, 8):
            return self._take(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15) for _ in range(size)]
        if kind == 11:
            size = self._varint()
            kinds = self._byte() if size else 0
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]
        if kind == 12:
            return self.struct()
        raise ValueError(f"no such kind of value: {kind}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        if not 0 <= self.at <= len(self.raw) - size:
            raise ValueError("it ends too early")
        self.at += size
        return self.raw[self.at - size : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return value

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
