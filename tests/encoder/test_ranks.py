"""Several ranks learn the same as one, up to rounding, and the same bytes every time."""

import shutil
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from loger.cli.options import on_ranks
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig, distributed
from loger.encoder.distributed import Ranks, current, joined
from loger.encoder.protocol import HiddenPairs
from loger.encoder.transe_training import Training
from loger.errors import LogerError

SCRIPT = Path(__file__).parents[1] / "ranks_script.py"


class Threads(Ranks):
    """Ranks that are threads of one process, and add up in order."""

    def __init__(self, rank, size, table, barrier):
        super().__init__(rank, size)
        self.table, self.barrier = table, barrier

    def added(self, rows, parts):
        self.steps, self.rows = self.steps + 1, self.rows + rows
        self.table[self.rank] = parts
        self.barrier.wait()
        whole = [sum(column) for column in zip(*self.table, strict=True)]
        self.barrier.wait()
        return whole


def stepped(config, graph, hidden, ranks):
    """What one epoch of a rank comes to."""
    training = Training(config, graph, hidden)
    training.ranks = ranks
    with torch.no_grad():
        training._epoch(0, 1, lambda what, done, total: None)
    return training.learned()


@pytest.fixture(scope="module")
def graph():
    return split(shop(seed=2, users=60, items=60).dataset).graph


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"group": 7},
        {"distance": "squared"},
        {"users": "free", "distance": "l1"},
    ],
)
def test_ranks_learn_what_one_learns(graph, settings, size):
    config = TransEConfig(dimension=8, batch=64, **settings)
    pairs = np.arange(9)
    hidden = HiddenPairs(pairs, pairs, np.linspace(0.1, 1, 9, dtype=np.float32))
    alone = stepped(config, graph, hidden, Ranks())
    table, barrier, found = [[]] * size, threading.Barrier(size, timeout=60), {}

    def run(rank):
        ranks = Threads(rank, size, table, barrier)
        found[rank] = stepped(config, graph, hidden, ranks), ranks

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, array in alone.items():
        np.testing.assert_allclose(found[0][0][name], array, rtol=1e-3, atol=1e-5)
        for rank in range(size):  # every rank holds the same tables
            assert found[rank][0][name].tobytes() == found[0][0][name].tobytes()
    assert found[0][1].rows > found[0][1].steps > 10


def test_shares_of_ranks_are_all_there_is():
    for n in (0, 1, 2, 7, 64):
        shares = [Ranks(rank, 3).share(n) for rank in range(3)]
        assert [k for share in shares for k in range(n)[share]] == list(range(n))


def test_without_torchrun_a_program_is_alone():
    assert (current().rank, current().size, current().leads) == (0, 1, True)


@pytest.fixture
def torchrun(monkeypatch):
    """What torchrun tells a process, here of the only one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))


def test_a_lost_rank_is_an_error_that_says_how_to_go_on(torchrun, monkeypatch):
    def closed(*arguments):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")

    told = "rank 0 lost contact with another rank; run the same command again"
    with joined() as ranks:
        assert current() is ranks
        two = Ranks(0, 2, ranks.store)
        for name in ("all_reduce", "broadcast", "broadcast_object_list"):
            monkeypatch.setattr(torch.distributed, name, closed)
        with pytest.raises(LogerError, match=told):
            two.added(1, [torch.ones(3)])
        with pytest.raises(LogerError, match=told):
            two.as_leader(1, [])
        with pytest.raises(LogerError, match=told):
            two.dismiss()
    with pytest.raises(RuntimeError, match="something else"), joined():
        raise RuntimeError("something else")
    assert current().size == 1


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leading_rank_runs_the_command(leads, monkeypatch, capsys):
    class Two(Ranks):
        helped = False

        def help(self):
            self.helped = True

    two, ran = Two(0 if leads else 1, 2), []
    monkeypatch.setattr(distributed, "joined", lambda local: nullcontext(two))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(two.rank))
    on_ranks(ran.append)("it")
    assert (ran == ["it"], two.helped) == (leads, not leads)
    assert ("only one of 2 did the work" in capsys.readouterr().err) == leads


def trained(folder, *more, size=2):
    """The state that ranks of torchrun learned, and what they said."""
    command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    restarts = ["--max-restarts=3"] if more else []
    for _ in range(3):
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", *command, *restarts, str(SCRIPT), str(folder), *more],
            capture_output=True,
            text=True,
            timeout=600,
        )
        if "connectFullMesh failed" not in done.stderr:  # Gloo's own, on a busy machine
            break
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    state = load_file(folder / "state.safetensors")
    return {name: array.tobytes() for name, array in state.items()}, done.stdout


@pytest.mark.long
def test_the_same_seed_on_as_many_ranks_gives_the_same_bytes_though_one_was_killed(tmp_path):
    from ranks_script import CONFIG

    first, said = trained(tmp_path / "first")
    again, said_again = trained(tmp_path / "again", "dies")
    assert (tmp_path / "again" / "died").exists()
    assert again == first
    # One epoch was kept in a checkpoint, so the restarted fit had fewer steps to do.
    steps, fewer = (int(text.split(": ")[1].split(" steps")[0]) for text in (said, said_again))
    assert 0 < fewer < steps
    assert "training the encoder on 2 ranks" in said
    graph = split(shop(seed=2, users=60, items=60).dataset).graph
    alone = TransE(CONFIG).fit(graph).fit(graph, warm=True).state()
    for name, array in alone.items():
        found = np.frombuffer(first[name], array.dtype).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-3, atol=1e-5)
