"""The lists of many users as a folder of Parquet files; an interrupted export can be resumed.

The folder gets a plan first: which model, whose lists, how long, with reasons or without. Then
each part takes its place by a rename, and at the end a manifest vouches for all of them. The same
export, asked for again, makes only the parts that are missing; another one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger import __version__
from loger.engine import Progress, silent
from loger.engine.claims import claim
from loger.engine.files import (
    MANIFEST,
    Kind,
    atomic_file,
    check_files,
    manifest_text,
    read_manifest,
    write_text,
)
from loger.errors import DataError
from loger.graph import whole
from loger.ranking.ranker import Ranker, blocks
from loger.ranking.selection import Selection
from loger.rules.wording import ENGLISH, Wording
from loger.store.export import BLOCK, Asked, Exported, FittedModel, numbers, table_of

LISTS = Kind("lists", "folder of lists", 1, "delete it and export again")
PLAN = "plan.json"
USERS = 4 * BLOCK
"""Users in a part."""


def export_parts(
    model: FittedModel,
    users: Sequence[str],
    folder: Path | str,
    k: int = 10,
    *,
    explain: bool = False,
    selection: Selection | None = None,
    words: Wording = ENGLISH,
    progress: Progress = silent,
) -> Exported:
    """Write the k best items of users into a folder of ``part-*.parquet``, or go on with it.

    Rows and columns are those of ``LOGER.recommend``, in the order of ``users``. The model's
    engine does the work, a part at a time on each worker.
    """
    folder = Path(folder).resolve()
    ids = numbers(model, users)
    asked = Asked(model.ranker_, k, explain, selection or Selection(), words)
    plan = _plan(asked, ids)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with claim(folder, "export"):
        _begin(folder, plan)
        blocks_of = blocks(ids, USERS) or [ids]
        paths = [folder / f"part-{n:05d}.parquet" for n in range(len(blocks_of))]
        if not (folder / MANIFEST).exists():
            kept = sum(path.exists() for path in paths)
            _make_missing(model, paths, blocks_of, asked, progress)
            table = pl.scan_parquet(paths)
            rows, columns = table.select(pl.len()).collect().item(), table.collect_schema().names()
            about = {**plan, "rows": rows, "columns": columns}
            text = manifest_text([folder / PLAN, *paths], LISTS, about)
            write_text(folder / MANIFEST, text)
        else:
            kept = len(paths)
        manifest = read_manifest(folder, LISTS)
        check_files(folder, manifest, LISTS)
        for lock in folder.glob(".*.lock"):  # of whoever was killed once a part was in its place
            lock.unlink(missing_ok=True)
    return Exported(manifest.about["rows"], manifest.about["columns"], len(paths), kept)


def _make_missing(
    model: FittedModel,
    paths: Sequence[Path],
    blocks_of: Sequence[NDArray[np.int64]],
    asked: Asked,
    progress: Progress,
) -> None:
    """Make the parts that are not there, each whole or not at all."""
    missing = [n for n, path in enumerate(paths) if not path.exists()]
    engine = model.engine.with_progress(progress)
    made = engine.map("recommending", _parquet, [blocks_of[n] for n in missing], asked)
    for n, content in zip(missing, made, strict=True):
        with atomic_file(paths[n]) as part:
            part.write_bytes(content)


def _parquet(asked: Asked, users: NDArray[np.int64]) -> bytes:
    """The lists of the users of a part, as a file."""
    tables = [table_of(asked, some) for some in blocks(users, BLOCK) or [users]]
    file = BytesIO()
    pl.concat(tables).write_parquet(file)
    return file.getvalue()


def _plan(asked: Asked, users: NDArray[np.int64]) -> dict[str, Any]:
    """What determines every byte of the parts."""
    wanted = asked.selection
    among = b"" if wanted.among is None else np.packbits(wanted.among).tobytes()
    return {
        "loger": __version__,
        "model": _fingerprint(asked.ranker),
        "users": {"number": len(users), "sha256": sha256(users.tobytes()).hexdigest()},
        "users_per_part": USERS,
        "k": asked.k,
        "explain": asked.explain,
        "filter": sha256(among).hexdigest(),
        "variety": repr((wanted.limits, wanted.diversity)),
        "wording": sha256(json.dumps(asked.words.table).encode()).hexdigest(),
    }


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Lay a plan down in a new folder; in an old one, see that it is the same."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file", path=folder, remedy="give a folder")
    folder.mkdir(exist_ok=True)
    path = folder / PLAN
    if not path.exists():
        if any(folder.glob("[!.]*")):
            what = f"is not empty and not a {LISTS.noun}"
            raise DataError(what, path=folder, remedy="give a new folder")
        write_text(path, json.dumps(plan, indent=2) + "\n")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DataError("damaged", path=path, remedy=LISTS.remedy) from None
    if found != plan:
        other = [key for key in plan if not isinstance(found, dict) or found.get(key) != plan[key]]
        raise DataError(
            f"holds lists with another {' and '.join(other)}",
            path=folder,
            remedy="give a new folder, or delete this one",
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
    arrays |= {"held_out": np.stack([ranker.held_out.users, ranker.held_out.items])}
    if logic.scales is not None:
        arrays["scales"] = logic.scales
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
