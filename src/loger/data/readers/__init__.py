"""One module for each format; ``load`` recognises the format of a data set by its files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from loger.data import saved, table_files
from loger.data.dataset import Dataset, is_frame
from loger.data.readers.plain import ENDINGS
from loger.engine.files import MANIFEST, kind_of
from loger.engine.threads import check_not_forked
from loger.errors import DataError, UnknownNameError

Format = Literal["saved", "plain", "rdf", "recbole", "pgpr", "kgat", "dbpedia", "sentiment"]

# Each need is a file name, or several of which one will do; * stands for any beginning.
_TABLE = tuple(f"interactions{ending}" for ending in ENDINGS)
_NEEDS: dict[Format, tuple[tuple[str, ...], ...]] = {
    "dbpedia": tuple((f"{n}.txt",) for n in ("train", "kg_final", "e_map", "r_map", "product")),
    "kgat": (("train.txt",), ("test.txt",), ("kg_final.txt",)),
    "pgpr": (("train_labels.txt",), ("users.txt",), ("product.txt",)),
    "sentiment": (("rating.txt",), ("sentiment.txt",)),
    "recbole": (("*.inter",),),
    "rdf": (_TABLE, ("*.nt", "*.ttl")),
    "plain": (_TABLE,),
}
_INCLUDES: dict[Format, Format] = {"rdf": "plain", "dbpedia": "kgat"}
"""Formats whose folders also look like another, simpler one."""


def load(
    path: Path | str,
    *,
    format: Format | None = None,
    min_rating: float | None = None,
    name: str | None = None,
) -> Dataset:
    """Read the data set in a folder, or in a single table of interactions.

    loger recognises the format by the names of the files; pass ``format`` if a folder fits
    several. Interactions rated below ``min_rating`` become dislikes. ``name`` is the name of the
    data set, by default that of the folder. ``Dataset.notes`` lists what was repaired or left out.
    """
    if not isinstance(path, str | PathLike):
        frames = "for data frames, use loger.data.from_frames(interactions, triples)"
        raise DataError(
            "load needs a path",
            value=type(path).__name__,
            remedy=frames if is_frame(path) else "pass the path of a folder or a table",
        )
    check_not_forked("reading data")
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file or folder", path=path, remedy="check the path")
    if format is not None and format not in get_args(Format):
        raise UnknownNameError("format", format, get_args(Format))
    if path.is_file():
        if format not in (None, "plain") or not set(ENDINGS) & set(path.suffixes):
            raise DataError(
                "only a table of interactions can be loaded as a single file",
                path=path,
                remedy="pass its folder",
            )
        format = "plain"
    chosen = format or _recognised(path)
    if chosen == "saved" and min_rating is not None:
        raise DataError(
            "min_rating can't be applied to a saved data set",
            path=path,
            remedy="apply it when you load the original files",
        )
    with table_files.errors_naming(path):
        if chosen == "saved":
            dataset = saved.read(path)
            return dataset if name is None else dataset.renamed(name)
        read: Callable[..., Dataset] = import_module(f"loger.data.readers.{chosen}").read
        return read(path, min_rating=min_rating, name=name)


def _recognised(folder: Path) -> Format:
    """The one format whose files are in a folder."""
    files = sorted(p.name for p in folder.iterdir() if p.is_file())
    if _is_saved(folder):
        return "saved"
    fitting = [f for f, needs in _NEEDS.items() if all(_has(folder, names) for names in needs)]
    fitting = [f for f in fitting if f not in [_INCLUDES.get(other) for other in fitting]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise DataError(
            f"the folder matches several formats: {', '.join(fitting)}",
            path=folder,
            value=files,
            remedy=f"choose one: load(…, format={fitting[0]!r})",
        )
    looked = "".join(
        f"\n  {form}: {', '.join(' or '.join(names) for names in needs)}"
        for form, needs in ({"saved": ((MANIFEST,),)} | _NEEDS).items()
    )
    listing = ", ".join(files[:20]) + (", …" if len(files) > 20 else "") if files else "no files"
    raise DataError(
        f"no known format; looked for (.gz, .bz2, .xz too){looked}\n  found: {listing}",
        path=folder,
        remedy="rename the files, or convert them to interactions.csv and triples.csv",
    )


def _is_saved(folder: Path) -> bool:
    """Whether loger wrote a folder: without its manifest, its tables of numbers would pass for the
    plain format."""
    beside = any((folder / f"{name}.parquet").is_file() for name in saved.TABLES[:-1])
    return kind_of(folder) is not None or (beside and (folder / "interactions.parquet").is_file())


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return any(
        any(folder.glob(name + ending))
        if "*" in name
        else table_files.find(folder, name) is not None
        for name in names
        for ending in table_files.COMPRESSIONS
    )
