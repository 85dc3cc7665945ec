"""The contract of every engine."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np
import pytest

from loger.engine import LocalEngine, ProcessEngine
from loger.engine.processes import pickled
from loger.errors import LogerError, UnknownNameError

ENGINES = ["alone", "threads", "processes", "ray"]


@pytest.fixture(scope="module")
def engines(ray_engine):
    with ProcessEngine(2) as processes:
        yield {
            "alone": LocalEngine(1),
            "threads": LocalEngine(2),
            "processes": processes,
            "ray": ray_engine,
        }


@pytest.fixture(params=ENGINES)
def engine(request, engines):
    return engines[request.param]


def scaled(shared, block):
    return shared["scale"] * block


def late_first(shared, block):
    time.sleep(0.05 if block == 0 else 0)
    return block


def fails_at_three(shared, block):
    if block == 3:
        raise shared("there is no third")
    return block


def fails_with_a_name(shared, block):
    raise UnknownNameError("user", "anne", ["ann"])


def threads_of_torch(shared, block):
    import torch

    return torch.get_num_threads()


def marked(folder, block):
    (folder / str(block)).touch()
    return block


def dies_at_five(shared, block):
    if block == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def is_read_only(shared, block):
    return [not array.flags.writeable for array in shared], float(shared[0].sum())


def writes(shared, block):
    shared[0] = 1


def where(shared, block):
    return os.getpid(), shared.__array_interface__["data"][0]


def test_results_come_in_the_order_of_the_blocks(engine):
    assert list(engine.map("ordering", late_first, range(20), None)) == list(range(20))


def test_all_blocks_see_what_they_share(engine):
    shared = {"scale": np.arange(4)}
    found = list(engine.map("scaling", scaled, [1, 2, 3], shared))
    assert [x.tolist() for x in found] == [[0, 1, 2, 3], [0, 2, 4, 6], [0, 3, 6, 9]]


def test_no_blocks_give_no_results(engine):
    assert list(engine.map("nothing", scaled, [], {"scale": 1})) == []


def test_empty_arrays_are_shared_and_sent(engine):
    shared = {"scale": np.empty((0, 3))}
    found = list(engine.map("scaling", scaled, [1, 2], shared))
    assert [x.shape for x in found] == [(0, 3), (0, 3)]


def test_only_a_few_blocks_run_ahead_of_the_caller(engine, tmp_path):
    results = engine.map("marking", marked, range(100), tmp_path)
    for _ in range(3):
        next(results)
    time.sleep(0.3)
    assert 3 <= len(list(tmp_path.iterdir())) <= 3 + 2 * engine.workers + 1
    results.close()


def test_an_engine_works_on_after_a_caller_stopped_early(engine, tmp_path):
    results = engine.map("marking", marked, range(100), tmp_path)
    next(results)
    results.close()
    assert list(engine.map("scaling", scaled, [1, 2], {"scale": 2})) == [2, 4]


def test_two_maps_can_be_read_by_turns(engine):
    first = engine.map("one", scaled, range(9), {"scale": 1})
    second = engine.map("two", scaled, range(9), {"scale": 2})
    assert list(zip(first, second, strict=True)) == [(k, 2 * k) for k in range(9)]


@pytest.mark.parametrize("kind", [LogerError, ValueError])
def test_an_error_keeps_its_kind_and_names_its_block(engine, kind):
    results = engine.map("counting", fails_at_three, [0, 1, 2, 3, 4], kind)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(kind, match="there is no third") as caught:
        next(results)
    assert caught.value.__notes__ == ["while counting, in block 4 of 5: 3"]


def test_an_error_that_cannot_be_sent_is_told_all_the_same(engine):
    with pytest.raises(LogerError, match="unknown user 'anne'; did you mean 'ann'"):
        list(engine.map("naming", fails_with_a_name, [0, 1], None))


def test_progress_goes_from_nothing_to_all(engine):
    seen = []
    other = engine.with_progress(lambda *step: seen.append(step))
    list(other.map("scaling", scaled, range(5), {"scale": 1}))
    assert seen == [("scaling", k, 5) for k in range(6)]


def test_products_run_on_one_thread_in_a_worker_and_as_before_outside(engine):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert set(engine.map("counting threads", threads_of_torch, range(6), None)) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# ── processes ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_workers_read_one_copy_that_nobody_can_write(engines, kind):
    shared = [np.ones(1000), np.arange(3.0)[::2], np.asfortranarray(np.ones((3, 2)))]
    found = list(engines[kind].map("reading", is_read_only, range(4), shared))
    assert all(sum_ == 1000 for _, sum_ in found)
    assert all(read_only[0] and read_only[2] for read_only, _ in found)
    with pytest.raises(ValueError, match="read-only"):
        list(engines[kind].map("writing", writes, range(4), np.zeros(8)))


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_a_lambda_is_refused_with_what_to_do(engines, kind):
    with pytest.raises(LogerError, match=r"adding can't run in another process.*LocalEngine"):
        list(engines[kind].map("adding", lambda shared, block: block, [0, 1], None))
    with pytest.raises(LogerError, match="adding can't run in another process"):
        list(engines[kind].map("adding", scaled, [0, 1], {"scale": lambda: 1}))


def test_a_killed_worker_is_an_error_and_the_next_map_works():
    with ProcessEngine(2) as engine:
        with pytest.raises(LogerError, match="a worker process ended while counting"):
            list(engine.map("counting", dies_at_five, range(12), np.arange(3)))
        assert list(engine.map("scaling", scaled, [1, 2], {"scale": 2})) == [2, 4]


def test_an_engine_that_is_sent_works_alone_over_there(engines):
    for engine in engines.values():
        rebuild, arguments = engine.__reduce__()
        assert rebuild(*arguments).workers == 1


class Constant:
    """Says that it never changes."""

    sent_once = True

    def __init__(self, values):
        self.values = values


def constants(shared, block):
    constant, _ = shared
    return os.getpid(), id(constant), constant.values.tolist()


def test_what_never_changes_is_sent_once_and_lives_as_long_as_its_owner():
    with ProcessEngine(2) as engine:
        constant = Constant(np.arange(5))
        found = set()
        for number in range(3):
            for worker, place, values in engine.map("a", constants, range(4), (constant, number)):
                assert values == [0, 1, 2, 3, 4]
                found.add((worker, place))
        assert len(found) == len({worker for worker, _ in found})  # each has read it once
        sent = engine._pool.sent_once(constant)
        assert sent.path.exists()
        assert sent.path.parent.stat().st_mode & 0o777 == 0o700
        del constant
        assert not sent.path.exists()


def test_files_of_what_blocks_share_are_removed(engines):
    folder = Path(engines["processes"]._pool._folder.name)
    before = set(folder.iterdir())
    for stop in (2, 9):
        results = engines["processes"].map("reading", is_read_only, range(9), [np.ones(9)])
        for _, _ in zip(range(stop), results, strict=False):
            pass
        results.close()
        assert set(folder.iterdir()) == before


def test_torch_may_be_imported_by_another_thread_meanwhile(monkeypatch):
    """As in every fit, where the encoder's thread imports it while rules are mined."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))  # so far without Tensor
    first, *arrays = pickled({"scale": np.arange(4)})
    assert pickle.loads(first, buffers=arrays)["scale"].tolist() == [0, 1, 2, 3]


def test_tensors_are_read_in_place():
    torch = pytest.importorskip("torch")
    sent = [torch.arange(4.0), torch.nn.Parameter(torch.ones(2, 3))]
    first, *arrays = pickled(sent)
    assert sum(array.nbytes for array in arrays) == 4 * 4 + 6 * 4
    found = pickle.loads(first, buffers=arrays)
    assert [type(x) for x in found] == [torch.Tensor, torch.nn.Parameter]
    assert all(torch.equal(a, b) for a, b in zip(sent, found, strict=True))
    assert [x.requires_grad for x in found] == [False, True]


def temporary_folders():
    return set(Path(tempfile.gettempdir()).glob("loger-processes-*"))


SCRIPT = """
import sys, time
from pathlib import Path
from loger.engine import ProcessEngine

def sleepy(folder, block):
    (folder / str(block)).touch()
    time.sleep(60)

if __name__ == "__main__":
    list(ProcessEngine(2).map("sleeping", sleepy, range(4), Path(sys.argv[1])))
"""


@pytest.mark.parametrize("to_all", [True, False])
def test_ctrl_c_ends_driver_and_workers_cleanly(tmp_path, to_all):
    (tmp_path / "script.py").write_text(SCRIPT)
    folder = tmp_path / "begun"
    folder.mkdir()
    before = temporary_folders()
    command = [sys.executable, str(tmp_path / "script.py"), str(folder)]
    driver = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    if to_all:  # as a terminal does
        os.killpg(driver.pid, signal.SIGINT)
        _, said = driver.communicate(timeout=30)
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert "resource_tracker" not in said
    else:  # the driver is killed: its workers follow, and remove what they were sent
        driver.kill()
        driver.communicate(timeout=30)
    with pytest.raises(ProcessLookupError):
        for _ in range(200):
            os.killpg(driver.pid, 0)
            time.sleep(0.05)
    assert temporary_folders() <= before
