"""What Ray adds to the engine contract: lost work is repeated, existing clusters stay up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loger.engine import LocalEngine, RayEngine, engine_named
from loger.errors import LogerError, UnknownNameError
from loger.model import LOGER

pytest.importorskip("ray")


def dies_once(folder, block):
    mark = folder / str(block)
    if block in (3, 4) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def dies_at_two(shared, block):
    if block == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def sizes(shared, block):
    return sum(len(part) for part in shared)


def adds(shared, block):
    block += 1  # what came back is the caller's own
    return np.zeros(3)


def test_what_is_lost_with_its_worker_is_done_again(ray_engine, tmp_path):
    found = list(ray_engine.map("losing", dies_once, range(8), tmp_path))
    assert found == list(range(8))
    assert {path.name for path in tmp_path.iterdir()} == {"3", "4"}
    assert "losing: 8 blocks, " in ray_engine.summary()


def test_what_is_lost_again_and_again_is_an_error_that_names_its_block(ray_engine):
    with pytest.raises(LogerError, match="counting: a worker died 4 times on the same") as caught:
        list(ray_engine.map("counting", dies_at_two, range(4), None))
    assert caught.value.__notes__ == ["while counting, in block 3 of 4: 2"]
    assert list(ray_engine.map("counting", dies_at_two, [0, 1], None)) == [0, 1]


def test_results_are_the_callers_own(ray_engine):
    for array in ray_engine.map("adding", adds, [np.zeros(3), np.zeros(3)], None):
        array += 1


def test_the_summary_counts_what_was_moved(ray_engine):
    shared = [np.zeros(125_000)] * 2  # one array, sent once
    list(ray_engine.map("moving", sizes, range(3), shared))
    stage = ray_engine.stages["moving"]
    assert 1_000_000 < stage.sent < 1_100_000
    assert 0 < stage.received < 10_000
    assert stage.seconds > 0


def test_engines_have_names(monkeypatch):
    assert engine_named("threads=3").workers == 3
    assert engine_named("processes=2").workers == 2
    assert isinstance(engine_named("ray=local"), RayEngine)
    assert isinstance(LOGER(engine="ray").engine, RayEngine)
    assert isinstance(LOGER(engine="threads").engine, LocalEngine)
    with pytest.raises(UnknownNameError, match="unknown engine 'rays'; did you mean 'ray'"):
        engine_named("rays")
    with pytest.raises(LogerError, match="threads=N needs at least 1 worker"):
        engine_named("threads=many")
    with pytest.raises(LogerError, match="ray or ray=VALUE"):
        engine_named("ray=")


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LogerError, match=r"needs Ray.*pip install '\.\[ray\]'"):
        RayEngine()


def test_nothing_else_imports_ray():
    code = "import sys, loger.model, loger.cli, loger.engine; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_a_node_that_is_killed_costs_no_row_and_its_cluster_is_left_alone():
    script = Path(__file__).parents[1] / "torture" / "nodes.py"
    done = subprocess.run(
        [sys.executable, str(script), "export"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert '"right": 1' in done.stdout
