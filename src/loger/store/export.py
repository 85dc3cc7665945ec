"""The recommendations of many users as one file, or as a folder of Parquet files.

An interrupted export to a folder can be resumed. The folder first gets a plan: which model, which
users, how many items, with or without reasons. Then each part appears by a rename, and at the end
a manifest lists all of them. Running the same export again makes the missing parts only; a
different export into the same folder is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger import __version__
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.files import (
    MANIFEST,
    PART,
    Kind,
    atomic_file,
    check_files,
    claim,
    manifest_text,
    read_manifest,
    write_text,
)
from loger.errors import DataError, LogerError
from loger.explain.frames import lists_table
from loger.explain.lists import ListRequest
from loger.graph import whole
from loger.ranking.ranker import Ranker, blocks
from loger.ranking.selection import Selection
from loger.rules.wording import ENGLISH, Wording

BLOCK = 256
"""Users in a block of work: whole blocks of ranking and of explaining, so that their lists are,
to the bit, those of ``LOGER.recommend``."""
USERS = 4 * BLOCK
"""Users in a part of a folder."""
FOLDER = Kind("lists", "folder of lists", 1, "delete it and export again")
PLAN = "plan.json"
Work = tuple[Ranker, ListRequest]
"""What the blocks of an export have in common."""


class FittedModel(Protocol):
    """What an export needs of a model; ``LOGER`` has it."""

    ranker_: Ranker
    engine: Engine


class Exported(NamedTuple):
    """What was written."""

    rows: int
    columns: list[str]
    parts: int = 1
    """Files."""
    kept: int = 0
    """Files that were there already, from an export that was interrupted."""


def check_format(path: Path) -> None:
    """Refuse a file name whose ending is not that of a known format."""
    if path.suffix not in _WRITERS:
        raise LogerError(
            f"{path} must end in .parquet, .csv or .jsonl; to write a folder, omit the extension"
        )


def export_lists(
    model: FittedModel,
    users: Sequence[str],
    path: Path | str,
    k: int = 10,
    *,
    explain: bool = False,
    selection: Selection | None = None,
    words: Wording = ENGLISH,
    progress: Progress = silent,
) -> Exported:
    """Write the k best items of users to a file, or to a folder of ``part-*.parquet``.

    Rows and columns are those of ``LOGER.recommend``, in the order of ``users``. The ending of
    ``path`` says the format: .parquet, .csv, or .jsonl for JSON lines; such a file is written whole
    or not at all. Without an ending it is a folder, and an export that was interrupted is resumed.

    With ``explain`` there are the columns ``because``, ``reasons`` (in CSV as JSON) and
    ``carried``; ``selection`` (``loger.ranking.selection.select``) says which items may be
    recommended and how varied lists are, and ``words`` is the language of the reasons. The model's
    engine does the work.
    """
    path = Path(path)
    ids = np.array(
        [model.ranker_.graph.vocabulary.id("user", name) for name in users], dtype=np.int64
    )
    work = model.ranker_, ListRequest(k, selection or Selection(), explain, words=words)
    engine = model.engine.with_progress(progress)
    if not path.suffix:
        return _export_folder(path.resolve(), ids, work, engine)
    check_format(path)
    return _export_file(path, ids, work, engine)


def table_of(work: Work, users: NDArray[np.int64]) -> pl.DataFrame:
    """The lists of a block of users; an error says whose list it is that cannot be made."""
    ranker, request = work
    try:
        return lists_table(ranker, users, request, LocalEngine(1))
    except Exception as error:
        for k in range(len(users)):
            try:
                lists_table(ranker, users[k : k + 1], request, LocalEngine(1))
            except Exception:
                name = ranker.graph.vocabulary.names[users[k]]
                error.add_note(f"in the list of user {name!r}")
                break
        raise


# ── one file ────────────────────────────────────────────────────────────────────────────


def _export_file(path: Path, users: NDArray[np.int64], work: Work, engine: Engine) -> Exported:
    """Write lists to a file block by block, so that they need not all fit in memory."""
    rows, columns = 0, list[str]()

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal rows, columns
        parts = blocks(users, BLOCK) or [users]
        for table in engine.map("recommending", table_of, parts, work):
            rows, columns = rows + len(table), table.columns
            yield table

    with atomic_file(path) as part:
        _WRITERS[path.suffix](tables(), part)
    return Exported(rows, columns)


# ── a folder of parts ───────────────────────────────────────────────────────────────────


def _export_folder(folder: Path, users: NDArray[np.int64], work: Work, engine: Engine) -> Exported:
    """Write lists into a folder, a part at a time on each worker, or go on with it."""
    plan = _plan(work, users)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with claim(folder, "export"):
        _begin(folder, plan)
        parts = blocks(users, USERS) or [users]
        paths = [folder / f"part-{n:05d}.parquet" for n in range(len(parts))]
        if not (folder / MANIFEST).exists():
            kept = sum(path.exists() for path in paths)
            _make_missing(paths, parts, work, engine)
            table = pl.scan_parquet(paths)
            rows, columns = table.select(pl.len()).collect().item(), table.collect_schema().names()
            about = {**plan, "rows": rows, "columns": columns}
            text = manifest_text([folder / PLAN, *paths], FOLDER, about)
            write_text(folder / MANIFEST, text)
        else:
            kept = len(paths)
        manifest = read_manifest(folder, FOLDER)
        check_files(folder, manifest, FOLDER)
        for lock in folder.glob(".*.lock"):  # of someone killed once a part was in its place
            lock.unlink(missing_ok=True)
    return Exported(manifest.about["rows"], manifest.about["columns"], len(paths), kept)


def _make_missing(
    paths: Sequence[Path], parts: Sequence[NDArray[np.int64]], work: Work, engine: Engine
) -> None:
    """Make the parts that are not there, each whole or not at all."""
    missing = [n for n, path in enumerate(paths) if not path.exists()]
    made = engine.map("recommending", _parquet, [parts[n] for n in missing], work)
    for n, content in zip(missing, made, strict=True):
        with atomic_file(paths[n]) as part:
            part.write_bytes(content)


def _parquet(work: Work, users: NDArray[np.int64]) -> bytes:
    """The lists of the users of a part, as a file."""
    tables = [table_of(work, some) for some in blocks(users, BLOCK) or [users]]
    file = BytesIO()
    pl.concat(tables).write_parquet(file)
    return file.getvalue()


def _plan(work: Work, users: NDArray[np.int64]) -> dict[str, Any]:
    """What determines every byte of the parts."""
    ranker, request = work
    wanted = request.selection
    among = b"" if wanted.among is None else np.packbits(wanted.among).tobytes()
    return {
        "loger": __version__,
        "model": _fingerprint(ranker),
        "users": {"number": len(users), "sha256": sha256(users.tobytes()).hexdigest()},
        "users_per_part": USERS,
        "k": request.k,
        "explain": request.explain,
        "filter": sha256(among).hexdigest(),
        "variety": repr((wanted.limits, wanted.diversity)),
        "wording": sha256(json.dumps(request.words.table).encode()).hexdigest(),
        "style": [request.words.style, request.words.names],
    }


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Lay a plan down in a new folder; in an old one, see that it is the same."""
    if folder.exists() and not folder.is_dir():
        raise DataError("this is a file, not a folder", path=folder, remedy="choose a folder")
    folder.mkdir(exist_ok=True)
    path = folder / PLAN
    if not path.exists():
        if any(folder.glob("[!.]*")):
            what = f"the folder is not empty and not a {FOLDER.noun}"
            raise DataError(what, path=folder, remedy="choose a new folder")
        write_text(path, json.dumps(plan, indent=2) + "\n")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DataError("the file is damaged", path=path, remedy=FOLDER.remedy) from None
    if found != plan:
        other = [key for key in plan if not isinstance(found, dict) or found.get(key) != plan[key]]
        raise DataError(
            f"the folder contains recommendations with other values of {' and '.join(other)}",
            path=folder,
            remedy="choose a new folder, or delete this one",
        )


def _fingerprint(ranker: Ranker) -> str:
    """A digest of all that scores and reasons depend on."""
    logic, digest = ranker.logic, sha256()
    facts = [
        whole(ranker.graph).fingerprint,
        *ranker.graph.vocabulary.labels,
        *map(str, logic.rules),
        *map(repr, (logic.feature, logic.walk, logic.prior, logic.popularity)),
        *map(repr, (ranker.fusion, ranker.walk, ranker.sample, type(ranker.encoder).__name__)),
    ]
    digest.update("\0".join(facts).encode())
    arrays = {"weights": logic.weights, **ranker.encoder.state()}
    if ranker.sequence is not None:
        arrays |= {f"sequence {k}": v for k, v in ranker.sequence.state().items()}
    arrays |= {"held_out": np.stack([ranker.held_out.users, ranker.held_out.items])}
    more = {"scales": logic.scales, "expected": logic.expected}
    arrays |= {name: array for name, array in more.items() if array is not None}
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


# ── formats ─────────────────────────────────────────────────────────────────────────────


def _write_parquet(tables: Iterator[pl.DataFrame], path: Path) -> None:
    """Each block as a file of its own, then all streamed into one."""
    folder = path.with_suffix(f".blocks{PART}")
    folder.mkdir()
    try:
        for k, table in enumerate(tables):
            table.write_parquet(folder / f"{k:08d}.parquet")
        pl.scan_parquet(folder / "*.parquet").sink_parquet(path)
    finally:
        rmtree(folder, ignore_errors=True)


def _write_csv(tables: Iterator[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for k, table in enumerate(tables):
            if "reasons" in table.columns:  # a cell of CSV holds no list
                texts = [json.dumps(row, ensure_ascii=False) for row in table["reasons"].to_list()]
                table = table.with_columns(reasons=pl.Series(texts, dtype=pl.String))
            shown = [c for c in _SHOWN if c in table.columns]
            table = table.with_columns(_as_text(pl.col(name)).alias(name) for name in shown)
            table.write_csv(file, include_header=k == 0)


_SHOWN = ("label", "because", "reasons")
"""Columns for people; names stay as they are, for machines."""


def _as_text(column: pl.Expr) -> pl.Expr:
    """A column in which no cell is a formula to a spreadsheet that opens the file."""
    return (
        pl.when(column.str.contains(r"^[=+\-@\t\r]")).then(pl.lit("'") + column).otherwise(column)
    )


def _write_jsonl(tables: Iterator[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for table in tables:
            table.write_ndjson(file)


_WRITERS: Mapping[str, Callable[[Iterator[pl.DataFrame], Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
}
