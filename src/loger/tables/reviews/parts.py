"""Mined reviews and catalogues as parts in a work folder, so that a killed build goes on.

Part k of a file is what its k-th block of lines holds, as Parquet, beside a small JSON file
with the tally of lines that could not be used; the JSON is written last and says that the
part is whole. A part depends on its lines and on the extractor alone, never on who made it
or when, so a build that was taken up again ends with the same bytes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.resources import files
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar
from zlib import crc32

import polars as pl

from loger.data.readers.sentiment import feature_name
from loger.engine import Progress
from loger.engine.files import atomic_file, write_text
from loger.engine.processes import end_with_parent
from loger.errors import DataError, LogerError
from loger.tables.reviews import aspects, layouts
from loger.tables.reviews.aspects import Extractor
from loger.tables.reviews.layouts import ENDS_EARLY, Block, BrokenLineError, Tally, blocks

Kind = Literal["reviews", "products"]
_Record = TypeVar("_Record")
LINES = {"reviews": 20_000, "products": 20_000}
"""Lines per part: some seconds of work to lose, some megabytes to hold."""
_VERSION = 1  # of what a part holds
_MIB = 1 << 20

_REVIEWS: dict[str, Any] = {
    "line": pl.Int64,
    "user": pl.String,
    "item": pl.String,
    "rating": pl.Float64,
    "time": pl.Int64,
    "styles": pl.List(pl.String),  # kind TAB value
    "mentions": pl.List(pl.String),  # aspect|opinion|±1
}
_PRODUCTS: dict[str, Any] = {
    "line": pl.Int64,
    "item": pl.String,
    "title": pl.String,
    "brand": pl.String,
    "categories": pl.List(pl.String),
    "price": pl.Float64,
    "also_buy": pl.List(pl.String),
    "also_view": pl.List(pl.String),
    "styles": pl.List(pl.String),
}


@dataclass(frozen=True)
class Parts:
    """The parts of one file."""

    path: Path
    files: tuple[Path, ...]
    tally: Tally
    lines: int

    def column(self, *names: str) -> pl.DataFrame:
        """Some columns of all parts."""
        return pl.concat([pl.read_parquet(file, columns=list(names)) for file in self.files])


def make(
    kind: Kind,
    path: Path,
    work: Path,
    extractor: str,
    *,
    strict: bool,
    workers: int,
    progress: Progress,
) -> Parts:
    """The parts of a file of reviews or products; those that exist already are kept.

    ``extractor`` is module:name, or nothing for no mentions. With ``strict`` the first line
    that cannot be used is an error.
    """
    folder = work / f"{kind}-{_key(kind, path, extractor):08x}"
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / "whole.json"
    mine = partial(_mine, kind, folder, extractor)
    if not whole.exists():
        count = 0
        for number in _worked(mine, path, folder, LINES[kind], workers, progress):
            if strict:
                _refuse(path, _tally(folder, number))
            count = number + 1
        _write(whole, {"parts": count})
    count = json.loads(whole.read_text(encoding="utf-8"))["parts"]
    tally, lines = Tally(), 0
    for number in range(count):
        tally.join(_tally(folder, number))
        lines += json.loads(_place(folder, number, "json").read_text(encoding="utf-8"))["lines"]
    if strict:
        _refuse(path, tally)
    made = tuple(_place(folder, number, "parquet") for number in range(count))
    parts = Parts(path, made, tally, lines)
    if not made or not sum(
        len(part) for part in (pl.read_parquet(f, columns=["line"]) for f in made)
    ):
        raise _nothing(parts, kind)
    return parts


def _worked(
    mine: Callable[[Block], int],
    path: Path,
    folder: Path,
    size: int,
    workers: int,
    progress: Progress,
) -> Iterator[int]:
    """The numbers of the blocks, in order, as each is done; at most a few are held at once."""
    total = max(1, path.stat().st_size if path.exists() else 1)
    what = f"reading {path.name}"

    def undone() -> Iterator[tuple[Block, bool]]:
        for block in blocks(path, size):
            yield block, _place(folder, block.number, "json").exists()

    rest: Iterator[tuple[Block, bool]] = undone()
    first_two = list(islice(rest, 2))
    rest = chain(first_two, rest)
    if workers <= 1 or len(first_two) < 2:  # processes take longer to start than a block to mine
        for block, done in rest:
            yield block.number if done else mine(block)
            progress(what, min(block.at, total), total)
        return
    try:
        yield from _in_processes(
            mine, rest, workers, lambda at: progress(what, min(at, total), total)
        )
    except BrokenProcessPool:
        raise LogerError(
            "a worker process died, perhaps for lack of memory; to resume, run the command again "
            'with fewer workers (a script needs `if __name__ == "__main__":`)'
        ) from None


def _in_processes(
    mine: Callable[[Block], int],
    rest: Iterator[tuple[Block, bool]],
    workers: int,
    done_to: Callable[[int], None],
) -> Iterator[int]:
    """Mine blocks in processes; gives their numbers in order."""
    # Spawned, not forked: polars has threads, and a fork would copy their locks.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as pool:
        waiting: deque[tuple[Future[int], int]] = deque()
        for block, done in rest:
            future: Future[int] = Future()
            if done:
                future.set_result(block.number)
            else:
                future = pool.submit(mine, block)
            waiting.append((future, block.at))
            while len(waiting) > 2 * workers:
                first, at = waiting.popleft()
                yield first.result()
                done_to(at)
        for first, at in waiting:
            yield first.result()
            done_to(at)


def _mine(kind: Kind, folder: Path, extractor: str, block: Block) -> int:
    """Make one part; gives its number."""
    tally = Tally()
    rows = _reviews(block, tally, extractor) if kind == "reviews" else _products(block, tally)
    if block.damage:
        tally.add(ENDS_EARLY, block.first + len(block.lines), block.damage)
    frame = pl.DataFrame(rows, schema=_REVIEWS if kind == "reviews" else _PRODUCTS, orient="row")
    place = _place(folder, block.number, "parquet")
    with atomic_file(place) as new:
        frame.write_parquet(new, compression="lz4")
    _write(
        _place(folder, block.number, "json"),
        {"lines": len(block.lines), "tally": tally.kinds},
    )
    return block.number


def _records(
    block: Block, tally: Tally, read: Callable[[dict[str, Any]], _Record]
) -> Iterator[tuple[int, _Record]]:
    """The records of a block with their lines; lines that cannot be used are counted."""
    for line, raw in enumerate(block.lines, block.first):
        try:
            yield line, read(layouts.record(raw))
        except BrokenLineError as kind:
            tally.add(str(kind), line, raw[:80].decode("utf-8", "replace").strip())


def _styles(styles: Mapping[str, str]) -> list[str]:
    return [f"{kind}\t{value}" for kind, value in styles.items()]


def _reviews(block: Block, tally: Tally, extractor: str) -> list[tuple[Any, ...]]:
    extract = named_extractor(extractor)
    rows = []
    for line, found in _records(block, tally, layouts.review):
        said = [] if extract is None else _said(extract, found.text, line)
        about = found.user, found.item, found.rating, found.time
        rows.append((line, *about, _styles(found.styles), said))
    return rows


def _said(extract: Extractor, text: str, line: int) -> list[str]:
    """The features of a text; errors of an extractor name the line."""
    try:
        return [feature_name(*mention) for mention in extract(text)]
    except Exception as error:
        raise LogerError(
            f"the extractor failed on line {line} ({error!r}); it must accept any text and return "
            f"(aspect, opinion, polarity) tuples"
        ) from error


def _products(block: Block, tally: Tally) -> list[tuple[Any, ...]]:
    rows = []
    for line, found in _records(block, tally, layouts.product):
        for problem in found.problems:
            tally.add(f"{FIELD}{problem}", line, found.item)
        rows.append((line, *found[:-2], _styles(found.styles)))
    return rows


FIELD = "a field left out: "
"""How kinds begin that cost a line one field but not its place."""


def named_extractor(name: str) -> Extractor | None:
    """The function called ``module:name``."""
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"the extractor can't be found ({error})",
            value=name,
            remedy="write it as module:function; Python must be able to import the module",
        ) from None
    return found  # type: ignore[no-any-return]


def name_of(extractor: Extractor | None) -> str:
    """``module:name`` of a function, by which other processes find it."""
    if extractor is None:
        return ""
    module, name = getattr(extractor, "__module__", ""), getattr(extractor, "__qualname__", "")
    if not module or not name or "<" in name:
        raise DataError(
            "other processes import the extractor by name, so it must be a function at the top "
            "level of a module",
            value=repr(extractor),
            remedy="define it with def at the top level of a file",
        )
    return f"{module}:{name}"


def _key(kind: Kind, path: Path, extractor: str) -> int:
    """A number for all that a part depends on."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            ends = file.read(_MIB)
            file.seek(max(0, size - _MIB))
            ends += file.read(_MIB)
    except OSError:
        raise DataError(
            "there is no such file", path=path, remedy="check the name and the folder"
        ) from None
    own = b""
    if extractor == name_of(aspects.mentions):
        here = files("loger.tables.reviews")
        own = here.joinpath("english.txt").read_bytes() + here.joinpath("aspects.py").read_bytes()
    about = json.dumps([_VERSION, kind, size, LINES[kind], extractor])
    return crc32(ends + own, crc32(about.encode()))


def _place(folder: Path, number: int, ending: str) -> Path:
    return folder / f"part-{number:06d}.{ending}"


def _tally(folder: Path, number: int) -> Tally:
    return Tally(json.loads(_place(folder, number, "json").read_text(encoding="utf-8"))["tally"])


def _write(path: Path, what: object) -> None:
    write_text(path, json.dumps(what, ensure_ascii=False))


def _refuse(path: Path, tally: Tally) -> None:
    broken = sorted((found[1], kind, found[2]) for kind, found in tally.kinds.items())
    if broken:
        line, kind, value = broken[0]
        raise DataError(
            kind,
            path=path,
            line=line,
            value=value,
            remedy="fix the line or build without strict=true",
        )


def _nothing(parts: Parts, kind: Kind) -> DataError:
    found = "; ".join(
        f"{n:,} × {k}, first line {at}" for k, (n, at, _) in parts.tally.kinds.items()
    )
    return DataError(
        f"none of the {parts.lines:,} lines matches the 2018 or 2023 layout of {kind}"
        + (f" ({found})" if found else ""),
        path=parts.path,
        remedy="check that --reviews and --meta aren't swapped and that the files are complete",
    )
