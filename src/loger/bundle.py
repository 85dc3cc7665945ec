"""Bundles: a folder with a manifest, arrays as safetensors, tables as Parquet; never pickle.

``loger.files`` writes the folder whole or not at all, and checks it when it is read. Arrays are
mapped, not copied: several processes that open one bundle share its memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import save_file

from loger import files
from loger.errors import DataError, LogerError
from loger.files import MANIFEST, Kind, atomic_folder, check_files, kind_of, read_manifest
from loger.graph import KnowledgeGraph, Relation, Vocabulary
from loger.version import __version__

MODEL = Kind("loger", "model bundle", 2, "fit again with this version")
"""What ``LOGER.save`` writes; docs/bundles.md says which versions of loger read which format."""

_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a bundle holds: facts about it, named groups of arrays, named tables."""

    folder: Path
    loger: str
    """The version that wrote it."""
    about: Mapping[str, Any]
    arrays: Mapping[str, Arrays]
    tables: Mapping[str, pl.DataFrame]

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """Says of what this loger does not understand in a bundle which version wrote it."""
        try:
            yield
        except LogerError as error:
            raise self._not_understood(str(error)) from None
        except (KeyError, TypeError, ValueError) as error:
            raise self._not_understood(f"cannot be read ({error!r})") from error

    def _not_understood(self, what: str) -> DataError:
        return DataError(
            f"{what} (fitted by loger {self.loger}, this is {__version__})",
            path=self.folder / MANIFEST,
            remedy=MODEL.remedy,
        )


def write(
    folder: Path | str,
    kind: Kind,
    about: Mapping[str, Any],
    arrays: Mapping[str, Arrays],
    tables: Mapping[str, pl.DataFrame],
) -> None:
    """Write a bundle; one that was there before stays until this one is complete."""
    with atomic_folder(folder, kind, about) as part:
        for name, group in arrays.items():
            save_file(
                {k: np.ascontiguousarray(v) for k, v in group.items()},
                part / f"{name}.safetensors",
            )
        for name, table in tables.items():
            table.write_parquet(part / f"{name}.parquet")


def read(folder: Path | str, kind: Kind) -> Bundle:
    """Open a bundle of a kind, its files checked against the manifest."""
    folder = Path(folder)
    manifest = read_manifest(folder, kind)
    check_files(folder, manifest, kind)
    arrays, tables = {}, {}
    for path in (folder / name for name in manifest.files):
        if path.suffix == ".safetensors":
            arrays[path.stem] = mapped(path)
        else:
            tables[path.stem] = pl.read_parquet(path)
    return Bundle(folder, manifest.loger, manifest.about, arrays, tables)


def is_bundle(folder: Path | str, kind: Kind = MODEL) -> bool:
    """Whether a folder holds a bundle of a kind, of whatever format, whole or damaged.

    This is the one answer to the question; what else lies in the folder does not matter.
    """
    return kind_of(folder) == kind.name


def check_target(folder: Path | str, *, replace: bool = False, kind: Kind = MODEL) -> None:
    """Refuse to write a bundle unless the folder is new, empty, or a bundle to ``replace``."""
    files.check_target(folder, kind, replace=replace)


Stamp = tuple[str, int, int, int]


def stamp(folder: Path | str) -> Stamp:
    """What tells one state of a bundle from the next: its real folder, and its manifest's inode,
    time and size. Cheap enough to ask for every second."""
    real = Path(folder).resolve()
    try:
        stat = (real / MANIFEST).stat()
    except OSError:
        read_manifest(folder, MODEL)  # says what is wrong
        raise  # unless the manifest appeared in between
    return str(real), stat.st_ino, stat.st_mtime_ns, stat.st_size


def fingerprint(folder: Path | str) -> str:
    """A short digest of a bundle's manifest, which names the checksum of every file."""
    return files.checksum(Path(folder) / MANIFEST)[:16]


def mapped(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a safetensors file, mapped into memory, not to be written to."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    whole = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        lo, hi = entry["data_offsets"]
        values: NDArray[np.generic] = np.asarray(whole[lo:hi]).view(_TYPES[entry["dtype"]])
        out[name] = values.reshape(entry["shape"])
    return out


GRAPH_ARRAYS = (
    "row_segments",
    "segment_relations",
    "segment_starts",
    "tails",
    "pair_tails",
    "pair_relations",
)


def graph_parts(graph: KnowledgeGraph) -> tuple[Arrays, dict[str, pl.DataFrame]]:
    """A graph as arrays and tables of a bundle."""
    words = graph.vocabulary
    kinds = np.repeat(np.arange(len(words.types)), np.diff(words.offsets))
    arrays = {name: getattr(graph, name) for name in GRAPH_ARRAYS}
    for name in ("origins", "times"):
        if getattr(graph, name) is not None:
            arrays[name] = getattr(graph, name)
    columns = {"type": pl.Series(words.types)[kinds], "name": words.names, "label": words.labels}
    rows = [(r.name, r.head_type, r.tail_type) for r in graph.relations]
    relations = pl.DataFrame(rows, schema=["name", "head_type", "tail_type"], orient="row")
    return arrays, {"entities": pl.DataFrame(columns), "relations": relations}


def graph_of(bundle: Bundle, group: str, types: Sequence[str]) -> KnowledgeGraph:
    """The graph that ``graph_parts`` took apart; types without entities are named too."""
    entities = bundle.tables["entities"]
    parts = {t: entities.filter(pl.col("type") == t) for t in types}
    words = Vocabulary(
        {t: part["name"].to_list() for t, part in parts.items()},
        {t: part["label"].to_list() for t, part in parts.items()},
    )
    relations = tuple(Relation(*row) for row in bundle.tables["relations"].iter_rows())
    arrays: Any = bundle.arrays[group]
    return KnowledgeGraph(words, relations, **arrays)
