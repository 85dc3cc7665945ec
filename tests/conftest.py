"""What all tests share: real data, writing small folders, and reading a data set by name."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from loger.data import Dataset
from loger.data.dataset import PARTS

settings.register_profile(
    "loger", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
# Under `make mutants` every mutant runs the same few examples, and a failure is enough.
settings.register_profile(
    "mutants",
    settings.get_profile("loger"),
    max_examples=20,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
MUTATING = "mutmut" in sys.modules
settings.load_profile("mutants" if MUTATING else "loger")
if MUTATING:  # compiled once here, in the process that all mutants are forked from
    from graphs import compile_kernels

    compile_kernels()

Write = Callable[..., Path]
REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip(f"the real data sets are not at {REAL_DATA}")
    return REAL_DATA


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files, given as name=text with __ for the dot, into a folder; .gz are compressed."""

    def to_folder(files: dict[str, str | bytes], folder: str = "shop") -> Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        for name, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            packed = name.endswith(".gz") and isinstance(content, str)
            (place / name).write_bytes(gzip.compress(raw) if packed else raw)
        return place

    return to_folder


@pytest.fixture
def facts_of() -> Callable[[Dataset], set[tuple[str, str, str]]]:
    """All facts of a data set by the names of entities and relations."""

    def by_name(dataset: Dataset) -> set[tuple[str, str, str]]:
        names, facts = dataset.vocabulary.names, dataset.facts
        rows = zip(facts.heads, facts.relations, facts.tails, strict=True)
        return {(names[h], dataset.relations[r].name, names[t]) for h, r, t in rows}

    return by_name


@pytest.fixture
def pairs_of() -> Callable[[Dataset], list[tuple[str, ...]]]:
    """All interactions of a data set by name, with their part where there is one."""

    def by_name(dataset: Dataset) -> list[tuple[str, ...]]:
        names, events = dataset.vocabulary.names, dataset.interactions
        rows = [
            (names[u], names[dataset.n_users + v])
            for u, v in zip(events.users, events.items, strict=True)
        ]
        if events.parts is None:
            return list(rows)
        return [(*row, PARTS[p]) for row, p in zip(rows, events.parts, strict=True)]

    return by_name


@pytest.fixture
def notes_of() -> Callable[[Dataset], dict[str, int]]:
    """The notes of a data set as what → count."""
    return lambda dataset: {note.what: note.count for note in dataset.notes}
