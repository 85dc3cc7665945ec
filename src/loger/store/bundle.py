"""Bundles: a folder with a manifest and arrays as safetensors; never pickle.

``loger.engine.files`` writes the folder whole or not at all, and checks it when it is read. Arrays
are mapped, not copied: several processes that open one bundle share its memory. Checksums say that
a bundle is unchanged, not that its writer meant well, so headers, arrays and names are checked
before anything follows them (``loger.graph.checks``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from loger import __version__
from loger.engine import files
from loger.engine.files import MANIFEST, Kind, atomic_folder, check_files, read_manifest
from loger.errors import DataError, LogerError
from loger.graph import KnowledgeGraph, Relation, Vocabulary
from loger.graph.checks import check_arrays

MODEL = Kind("loger", "model bundle", 4, "fit again with this version")
"""What ``LOGER.save`` writes; docs/reference/bundles.md lists the formats each version reads."""

_TYPES = {
    f"{kind}{8 * size}": np.dtype(f"{kind.lower()}{size}")
    for kind, sizes in (("F", (4, 8)), ("I", (1, 2, 4, 8)), ("U", (1, 2, 4, 8)))
    for size in sizes
}
"""Types of arrays by the names that safetensors has for them."""
_MAX_HEADER = 10_000_000
"""Bytes of the header of a safetensors file."""

MAX_RECENCY = 100.0
"""How fast interactions may fade; beyond that every strength is zero."""

Arrays = Mapping[str, NDArray[np.generic]]
_MISUNDERSTOOD = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a bundle holds: facts about it, and named groups of arrays."""

    folder: Path
    loger: str
    """The version that wrote it."""
    about: Mapping[str, Any]
    arrays: Mapping[str, Arrays]

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """Re-raise errors as DataError naming the version that wrote the bundle."""
        try:
            yield
        except LogerError as error:
            raise self._not_understood(str(error)) from None
        except _MISUNDERSTOOD as error:
            raise self._not_understood(f"can't read the bundle ({error!r:.200})") from error

    def _not_understood(self, what: str) -> DataError:
        return DataError(
            f"{what} (fitted by loger {self.loger}, this is {__version__})",
            path=self.folder / MANIFEST,
            remedy=MODEL.remedy,
        )


def write(
    folder: Path | str, kind: Kind, about: Mapping[str, Any], arrays: Mapping[str, Arrays]
) -> None:
    """Write a bundle; one that was there before stays until this one is complete."""
    with atomic_folder(folder, kind, about) as part:
        for name, group in arrays.items():
            save_file(
                {k: np.ascontiguousarray(v) for k, v in group.items()},
                part / f"{name}.safetensors",
            )


def read(folder: Path | str, kind: Kind) -> Bundle:
    """Open a bundle of a kind, its files checked against the manifest."""
    folder = Path(folder)
    manifest = read_manifest(folder, kind)
    check_files(folder, manifest, kind)
    arrays = {Path(name).stem: mapped(folder / name) for name in manifest.files}
    return Bundle(folder, manifest.loger, manifest.about, arrays)


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
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise _not_arrays(path, "its header is longer than the file or the 10 MB limit")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_without_repetition)
        entries = {k: _placed(v) for k, v in header.items() if k != "__metadata__"}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise _not_arrays(path, f"its header is damaged: {error!r:.200}") from None
    start = 8 + length
    whole = np.memmap(path, np.uint8, "r", start) if size > start else np.zeros(0, np.uint8)
    out, end = {}, 0
    for name, (dtype, shape, low, high) in sorted(entries.items(), key=lambda e: e[1][2:]):
        if low != end or high > len(whole) or (start + low) % dtype.itemsize:
            raise _not_arrays(path, f"{name} doesn't begin where the array before it ends")
        out[name], end = np.asarray(whole[low:high]).view(dtype).reshape(shape), high
    if end != len(whole):
        raise _not_arrays(path, f"its last {len(whole) - end:,} bytes belong to no array")
    return {name: out[name] for name in entries}


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON in which no key is there twice."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name appears twice")
    return out


def _placed(entry: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Type, shape and place of an array, by its entry in the header of a safetensors file."""
    dtype, shape, (low, high) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(x) is int and x >= 0 for x in (*shape, low, high)) or len(shape) > 4:
        raise ValueError(f"shape {shape} at {low} … {high}")
    if math.prod(shape) * dtype.itemsize != high - low:
        raise ValueError(f"shape {shape} does not fill {low} … {high}")
    return dtype, shape, low, high


def _not_arrays(path: Path, why: str) -> DataError:
    return DataError(f"isn't a safetensors file ({why})", path=path, remedy=MODEL.remedy)


def text_array(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Texts as an array of bytes, for a bundle."""
    encoded = json.dumps(list(texts), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return np.frombuffer(encoded, dtype=np.uint8)


_TEXTS = re.compile(rb'\[(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:, |(?=\])))*+\]', re.DOTALL)
"""A JSON list of texts, as ``text_array`` writes it."""


def texts_of(array: NDArray[np.generic]) -> list[str]:
    """The texts that ``text_array`` encoded."""
    raw = np.asarray(array, dtype=np.uint8).tobytes()
    texts = None
    # Lists of empty lists would take twenty times their size, so only texts are parsed.
    if _TEXTS.fullmatch(raw):
        with suppress(UnicodeDecodeError, ValueError):
            texts = json.loads(raw.decode("utf-8", "surrogatepass"))
    if not isinstance(texts, list) or not set(map(type, texts)) <= {str}:
        raise LogerError("names must be a list of strings")
    return texts


GRAPH_ARRAYS = (
    "row_segments",
    "segment_relations",
    "segment_starts",
    "tails",
    "pair_tails",
    "pair_relations",
)


def graph_parts(graph: KnowledgeGraph) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """A graph as what a bundle says about it, and groups of arrays."""
    words = graph.vocabulary
    edges = {name: getattr(graph, name) for name in GRAPH_ARRAYS}
    for name in ("origins", "times", "weights", "support", "strengths"):
        if getattr(graph, name) is not None:
            edges[name] = getattr(graph, name)
    names = {"names": text_array(words.names), "labels": text_array(words.labels)}
    about = {
        "types": dict(zip(words.types, np.diff(words.offsets).tolist(), strict=True)),
        "relations": [
            (r.name, r.head_type, r.tail_type, r.derived, r.recency, r.window)
            for r in graph.relations
        ],
        **{name: True for name in ("rated", "counted") if getattr(graph, name)},
        **({"integers": sorted(words.integers)} if words.integers else {}),
    }
    return about, {"graph": edges, "entities": names}


def graph_of(bundle: Bundle) -> KnowledgeGraph:
    """The graph of a bundle, checked so that compiled code can safely follow its arrays."""
    sizes, entities = bundle.about["types"], bundle.arrays["entities"]
    names, labels = texts_of(entities["names"]), texts_of(entities["labels"])
    if not all(type(n) is int and n >= 0 for n in sizes.values()):
        raise LogerError(f"each type needs a size, got {sizes!r}")
    if not len(names) == len(labels) == sum(sizes.values()):
        raise LogerError(
            f"{len(names):,} names and {len(labels):,} labels don't match the sizes of the types"
        )
    # Most entities are labelled by their names: such a text is held once.
    labels = [a if a == b else b for a, b in zip(names, labels, strict=True)]
    ends = np.cumsum([0, *sizes.values()]).tolist()
    spans = {t: slice(a, b) for t, (a, b) in zip(sizes, pairwise(ends), strict=True)}
    words = Vocabulary(
        {t: names[span] for t, span in spans.items()},
        {t: labels[span] for t, span in spans.items()},
        [t for t in bundle.about.get("integers", ()) if t in spans],
    )
    relations = tuple(_relation(*row) for row in bundle.about["relations"])
    arrays: Any = bundle.arrays["graph"]
    check_arrays(words, relations, arrays)
    rated, counted = (bundle.about.get(name) is True for name in ("rated", "counted"))
    return KnowledgeGraph(words, relations, **arrays, rated=rated, counted=counted)


def _relation(
    name: Any, head_type: Any, tail_type: Any, derived: Any, recency: Any, window: Any = None
) -> Relation:
    for text in (name, head_type, tail_type):
        if type(text) is not str:
            raise LogerError(f"a relation's name and types must be strings, got {text!r}")
    known = recency is None or (type(recency) in (int, float) and 0 <= recency <= MAX_RECENCY)
    if type(derived) is not bool or not known:
        raise LogerError(
            f"relation {name!r} needs derived = true or false and a recency from 0 to "
            f"{MAX_RECENCY:g}, got {derived!r} and {recency!r}"
        )
    if window is not None and (type(window) is not int or window < 1):
        raise LogerError(
            f"the window of {name!r} must be a whole number of at least 1, got {window!r}"
        )
    return Relation(name, head_type, tail_type, derived, recency, window)
