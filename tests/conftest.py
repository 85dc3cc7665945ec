"""What tests share: models and a demo run, made once per test run; real data; small folders.

A fit takes seconds, so tests that need some fitted model use one of three, all of the same small
shop: ``default_model``, ``paper_model`` and ``gnn_model``, or their bundles. The first worker that
needs a model fits it; the others load it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from filelock import FileLock
from hypothesis import HealthCheck, Phase, settings

import measured

# isort: split
from loger.config import LOGERConfig
from loger.data import Dataset, Split, split
from loger.data.dataset import PARTS
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.encoder.network import GNN
from loger.model import LOGER
from small_paper import small_paper

settings.register_profile(
    "loger", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("loger"), max_examples=100)  # make test-all
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
settings.load_profile("mutants" if MUTATING else os.environ.get("LOGER_EXAMPLES", "loger"))
if MUTATING:  # compiled once here, in the process that all mutants are forked from
    from graphs import compile_kernels

    compile_kernels()

Write = Callable[..., Path]
Once = Callable[[str, Callable[[Path], object]], Path]
SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=3))
REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, where there is one."""
    if not REAL_DATA.is_dir():
        what = "PGPR's Amazon sets (amazon-beauty, …) and ml1m"
        pytest.skip(f"needs real data: put {what}, as published, into {REAL_DATA}")
    return REAL_DATA


DEAREST = (
    "test_docs.py", "test_model_cli.py", "test_stages.py", "test_build_cli.py", "test_cli.py",
    "test_compiled.py", "test_adapters.py", "test_hold_out.py", "test_commands.py",
    "test_recommender_contract.py", "test_faithfulness_report.py", "test_behaviours.py",
    "test_derived.py", "test_engine_contract.py", "test_fit_stages.py",
)  # fmt: skip
"""Files that take long, longest first: begun last, they would keep one worker alone at work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the dearest files first; workers take files in the order of their tests."""
    place = {name: k for k, name in enumerate(DEAREST)}
    items.sort(key=lambda item: place.get(item.path.name, len(DEAREST)))


def pytest_sessionfinish() -> None:
    measured.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped: one line for each reason, with its number of tests."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, n in reasons.most_common():
        terminalreporter.write_line(f"skipped {n}: {reason}")


# ── made once per run ───────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Have a folder filled once per run, by the worker that asks first, and get its place."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # the run's own folder, in which each worker has one
    if MUTATING:  # each mutant is tried in a fork, which would have a folder of its own
        place = Path(os.environ["LOGER_MUTANTS"])
    (place / "once").mkdir(exist_ok=True)

    def filled(name: str, fill: Callable[[Path], object]) -> Path:
        folder = place / "once" / name
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                part = folder.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)  # of a worker that failed
                fill(part)
                part.rename(folder)
        return folder

    return filled


@pytest.fixture(scope="session")
def few() -> Split:
    """The split of a shop so small that a fit takes a few seconds."""
    return split(shop(seed=2, users=120, items=100).dataset)


@pytest.fixture(scope="session")
def default_bundle(once: Once, few: Split) -> Path:
    return once("default", lambda folder: LOGER(SMALL).fit(few).save(folder))


@pytest.fixture(scope="session")
def paper_bundle(once: Once, few: Split) -> Path:
    return once("paper", lambda folder: LOGER(small_paper(), name="paper").fit(few).save(folder))


@pytest.fixture(scope="session")
def gnn_bundle(once: Once, few: Split) -> Path:
    model = LOGER(SMALL, encoder=lambda: GNN(dimension=8, epochs=1))
    return once("gnn", lambda folder: model.fit(few, tune={}).save(folder))


@pytest.fixture(scope="module")
def default_model(default_bundle: Path) -> LOGER:
    return LOGER.load(default_bundle)


@pytest.fixture(scope="module")
def paper_model(paper_bundle: Path) -> LOGER:
    return LOGER.load(paper_bundle)


@pytest.fixture(scope="module")
def gnn_model(gnn_bundle: Path) -> LOGER:
    return LOGER.load(gnn_bundle)


@pytest.fixture(scope="session")
def demo_run(once: Once) -> Path:
    """A folder with ``loger-demo``, as the command leaves it, and what it said, ``told.json``."""

    def run(folder: Path) -> None:
        from loger.cli import app

        folder.mkdir()
        done = CliRunner().invoke(app, ["demo", "--out", str(folder / "loger-demo"), "--json"])
        assert done.exit_code == 0, done.output
        (folder / "told.json").write_text(done.stdout, encoding="utf-8")

    return once("demo", run)


# ── small folders, and data by name ─────────────────────────────────────────────────────


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
