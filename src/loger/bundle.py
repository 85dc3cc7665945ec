"""Bundles: a directory with a manifest, arrays as safetensors, tables as Parquet; never pickle.

The manifest is written last and names every file with its checksum, so a bundle that is
damaged, half written or of another kind is refused with a reason. Arrays are mapped, not read:
several processes that open one bundle share its memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import save_file

from loger.errors import DataError
from loger.graph import KnowledgeGraph, Relation, Vocabulary

MANIFEST = "manifest.json"
MODEL = "loger"
"""The kind of bundle that holds a fitted LOGER."""
VERSION = 1
"""Of the format; raised when an older reader would misread a bundle."""

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

    about: Mapping[str, Any]
    arrays: Mapping[str, Arrays]
    tables: Mapping[str, pl.DataFrame]


def write(folder: Path | str, kind: str, bundle: Bundle) -> None:
    """Write a bundle; one that was there before is gone as soon as writing begins."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    checksums = {}
    for name, group in bundle.arrays.items():
        path, part = folder / f"{name}.safetensors", folder / f"{name}.part"
        save_file({k: np.ascontiguousarray(v) for k, v in group.items()}, part)
        part.replace(path)  # a process that has the old file mapped keeps it
        checksums[path.name] = _checksum(path)
    for name, table in bundle.tables.items():
        path = folder / f"{name}.parquet"
        table.write_parquet(path)
        checksums[path.name] = _checksum(path)
    manifest = {"kind": kind, "version": VERSION, "files": checksums, **bundle.about}
    text = json.dumps(manifest, ensure_ascii=False, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read(folder: Path | str, kind: str) -> Bundle:
    """Open a bundle of a kind, its files checked against the manifest."""
    folder = Path(folder)
    about = manifest(folder, kind)
    arrays, tables = {}, {}
    for name, checksum in about["files"].items():
        path = folder / name
        if not path.is_file():
            raise DataError("is missing from the bundle", path=path, remedy="fit and save again")
        if _checksum(path) != checksum:
            raise DataError(
                "is not what the manifest says: the file was damaged or changed",
                path=path,
                remedy="copy the bundle again, or fit and save again",
            )
        if path.suffix == ".safetensors":
            arrays[path.stem] = mapped(path)
        else:
            tables[path.stem] = pl.read_parquet(path)
    return Bundle(about, arrays, tables)


def is_bundle(folder: Path | str, kind: str = MODEL) -> bool:
    """Whether a folder holds a bundle of a kind, of whatever format version, whole or damaged.

    This is the one answer to the question; what else lies in the folder does not matter.
    """
    try:
        return _about(Path(folder) / MANIFEST).get("kind") == kind
    except (OSError, ValueError):
        return False


def check_target(folder: Path | str, *, replace: bool = False, kind: str = MODEL) -> None:
    """Refuse to write a bundle unless the folder is new, empty, or a bundle to ``replace``."""
    folder = Path(folder)
    if folder.is_file():
        raise DataError("is a file", path=folder, remedy="give a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not is_bundle(folder, kind):
        raise DataError("is not empty and not a bundle", path=folder, remedy="give a new folder")
    if not replace:
        raise DataError("holds a bundle", path=folder, remedy="give a new folder, or --force")


def manifest(folder: Path | str, kind: str = MODEL) -> dict[str, Any]:
    """The manifest of a bundle, refused unless it is of this kind and format."""
    path = Path(folder) / MANIFEST
    remedy = f"give a folder that holds a {kind} bundle, as `loger fit DATA -o BUNDLE` writes one"
    try:
        about = _about(path)
    except OSError:
        what = "not a bundle" if path.parent.is_dir() else "there is no such folder"
        raise DataError(what, path=path.parent, remedy=remedy) from None
    except ValueError as error:
        raise DataError(f"not a manifest ({error})", path=path, remedy=remedy) from None
    if about.get("kind") != kind:
        raise DataError(f"is of kind {about.get('kind')!r}, not {kind!r}", path=path, remedy=remedy)
    if about.get("version") != VERSION:
        raise DataError(
            f"has format version {about.get('version')!r}; this loger reads {VERSION}",
            path=path,
            remedy="save it again with this version of loger",
        )
    files = about.get("files")
    # A name with a folder in it would lead out of the bundle.
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise DataError("names files outside the bundle", path=path, remedy=remedy)
    return about


def _about(path: Path) -> dict[str, Any]:
    """What a manifest says, unchecked; a ValueError if it is not a JSON object."""
    about = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict):
        raise ValueError(f"a JSON object was expected, got {about!r}")
    return about


Stamp = tuple[str, int, int, int]


def stamp(folder: Path | str) -> Stamp:
    """What tells one state of a bundle from the next: its real folder, and its manifest's inode,
    time and size. Cheap enough to ask for every second."""
    real = Path(folder).resolve()
    try:
        stat = (real / MANIFEST).stat()
    except OSError:
        manifest(folder)  # says what is wrong
        raise  # unless the manifest appeared in between
    return str(real), stat.st_ino, stat.st_mtime_ns, stat.st_size


def fingerprint(folder: Path | str) -> str:
    """A short digest of a bundle's manifest, which names the checksum of every file."""
    return _checksum(Path(folder) / MANIFEST)[:16]


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


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
