"""A model in other processes: forks may use or load it, and get an error for the rest."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import loger
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
BUNDLE: list[Path] = []


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> LOGER:
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
    fitted = LOGER(config).fit(loger.split(shop(users=50, items=60).dataset))
    BUNDLE[:] = [tmp_path_factory.mktemp("forks") / "bundle"]
    fitted.save(BUNDLE[0])
    pl.DataFrame({"a": range(1000)}).lazy().group_by("a").agg(pl.len()).collect()  # its threads
    return LOGER.load(BUNDLE[0])


def in_child(do: Callable[[], bool]) -> bool:
    """Whether something is true in a forked child; one that hangs is killed after a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if do() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_recommends_and_explains_with_its_parents_model(model: LOGER) -> None:
    user = model.users[0]
    wanted = model.recommend(user).rows()
    text = str(model.explain(user, wanted[0][2]))

    def same() -> bool:
        again = str(model.explain(user, wanted[0][2]))
        return model.recommend(user).rows() == wanted and again == text

    assert in_child(same)


def test_a_forked_child_gives_the_lists_with_reasons_that_its_parent_gave(model: LOGER) -> None:
    users, item = model.users[:3], model.items[0]

    def answers() -> list[object]:
        tables = [
            *(model.recommend(users, 3, explain=True), model.recommend_group(users, 3)),
            *(model.similar(item, 3), model.history(users[0]), model.importance(users[0])),
        ]
        return [(table.schema, table.rows()) for table in tables]

    wanted = answers()  # starts the threads of polars that a child lacks
    assert in_child(lambda: answers() == wanted)


def test_a_forked_child_loads_a_bundle_though_its_parent_has(model: LOGER) -> None:
    wanted = model.recommend(model.users[:3]).rows()
    assert in_child(lambda: LOGER.load(BUNDLE[0]).recommend(model.users[:3]).rows() == wanted)


@pytest.mark.parametrize("what", ["load", "from_frames", "from_tables", "fit"])
def test_what_would_wait_for_ever_is_refused_with_the_remedy(model: LOGER, what: str) -> None:
    parts = loger.split(shop(users=50, items=60).dataset)
    frame = pl.DataFrame({"user": ["a"], "item": ["b"]})
    tries = {
        "load": lambda: loger.load("/"),
        "from_frames": lambda: loger.from_frames(frame),
        "from_tables": lambda: loger.from_tables(frame),
        "fit": lambda: LOGER().fit(parts),
    }

    def refused() -> bool:
        try:
            tries[what]()
        except loger.LogerError as error:
            return "get_context('spawn')" in str(error)
        return False

    assert in_child(refused)


def test_the_parent_is_not_refused_afterwards(model: LOGER) -> None:
    assert in_child(lambda: True)
    assert loger.from_frames(pl.DataFrame({"user": ["a"], "item": ["b"]})).n_items == 1


def lists_of(users: list[str]) -> list[str]:
    return LOGER.load(os.environ["LOGER_TEST_BUNDLE"]).recommend(users, 3)["item"].to_list()


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_pool_of_processes_gives_what_one_gives(model: LOGER, way: str, monkeypatch) -> None:
    monkeypatch.setenv("LOGER_TEST_BUNDLE", str(BUNDLE[0]))
    blocks = [model.users[:5], model.users[5:9]]
    with mp.get_context(way).Pool(2) as pool:
        found = pool.map_async(lists_of, blocks).get(timeout=120)
    assert found == [model.recommend(block, 3)["item"].to_list() for block in blocks]


class Lists:
    """A data set of PyTorch whose rows are a user's list."""

    def __init__(self, model: LOGER) -> None:
        self.model = model

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> list[str]:
        return self.model.recommend(self.model.users[place], 3)["item"].to_list()


def test_workers_of_a_dataloader_recommend(model: LOGER) -> None:
    from torch.utils.data import DataLoader

    loader = DataLoader(Lists(model), num_workers=2, collate_fn=list, timeout=60)
    found = [row for batch in loader for row in batch]
    assert found == [model.recommend(user, 3)["item"].to_list() for user in model.users[:6]]


def test_a_fork_before_polars_has_threads_is_no_matter() -> None:
    code = """
import os, sys, polars as pl, loger
from loger import data
child = os.fork()
if child == 0:
    frame = pl.DataFrame({"user": ["a"], "item": ["b"]})
    os._exit(0 if loger.from_frames(frame).n_items == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0
