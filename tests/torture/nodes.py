"""Kill nodes of a Ray cluster in the middle of work, and check the results.

    python tests/torture/nodes.py            export, pools and evaluation, three times each
    python tests/torture/nodes.py export     once, one kind of work
    python tests/torture/nodes.py --busy     next to processes that keep all cores busy

The cluster is two nodes on this machine, each with its own object store. As soon as a third of the
blocks is done, one node gets SIGKILL. The results must equal, byte for byte, those of this machine
alone. The last line is a JSON object of counts.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from loger import recommender
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.engine import LocalEngine, RayEngine
from loger.learning import pools as candidate_pools
from loger.learning.pools import gather
from loger.model import LOGER, LOGERConfig
from loger.recommender import part_matrix, ranked
from loger.store import export as exporting

QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 6}
"""A dead node is noticed in seconds, not in half a minute."""
exporting.USERS = 32
candidate_pools.BLOCK = 32
recommender.BLOCK_BYTES = 8 * 80 * 16
PARTS = split(shop(seed=2, users=400, items=80).dataset)


def export(model: LOGER, engine: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model.engine = engine
        exporting.export_lists(
            model, model.users, folder + "/lists", 5, explain=True, progress=engine.progress
        )
        return {p.name: p.read_bytes() for p in sorted(Path(folder, "lists").iterdir())}


def pools(model: LOGER, engine: Any) -> Any:
    users, held_out = np.arange(model.graph_.n_users), part_matrix(PARTS, "validation")
    pool = gather(model.ranker_, users, held_out, engine)
    found = pool.found
    arrays = found.users, found.items, found.count_matrix.data, pool.starts, pool.hits
    return [array.tobytes() for array in (*arrays, pool.encoder)]


def evaluation(model: LOGER, engine: Any) -> Any:
    users, known = np.arange(PARTS.dataset.n_users), part_matrix(PARTS, "train")
    return ranked(model, users, known, 10, engine=engine).tobytes()


STAGES: dict[str, Callable[[LOGER, Any], Any]] = {
    "export": export,
    "pools": pools,
    "evaluation": evaluation,
}


def crash(cluster: Cluster, node: Any) -> None:
    """End a node as a power cut does: its raylet and its workers at once."""
    raylet = node.all_processes["raylet"][0].process.pid
    stats = [
        (int(path.parent.name), path.read_text()) for path in Path("/proc").glob("[0-9]*/stat")
    ]
    workers = [pid for pid, text in stats if int(text.rpartition(")")[2].split()[1]) == raylet]
    for pid in (raylet, *workers):
        os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def killed(stage: Callable[[LOGER, Any], Any], model: LOGER) -> tuple[Any, str]:
    """What comes out when a node is killed after a third of the blocks, and the engine's
    summary."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": QUICK})
    node = cluster.add_node(num_cpus=1)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        killers: list[threading.Thread] = []

        def kill(what: str, done: int, total: int) -> None:
            if done >= total // 3 and total > 1 and not killers:
                killers.append(threading.Thread(target=crash, args=(cluster, node)))
                killers[0].start()

        with RayEngine(progress=kill) as engine:
            found = stage(model, engine)
            killers[0].join()
            summary = engine.summary()
        assert ray.is_initialized(), "the engine stopped a cluster that it had not started"
        return found, summary
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def all_cores_busy() -> Iterator[None]:
    """A process for each core that does nothing but count, until the block ends."""
    count = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(count) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(names: list[str]) -> int:
    model = LOGER(LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2)), engine=LocalEngine(1))
    model.fit(PARTS, tune={}, progress=False)
    right = 0
    runs = [name for name in names if name != "--busy"] or list(STAGES) * 3
    with all_cores_busy() if "--busy" in names else nullcontext():
        for name in runs:
            expected = STAGES[name](model, LocalEngine(1))
            found, summary = killed(STAGES[name], model)
            same = found == expected
            print(f"{'right' if same else 'WRONG'}: {summary}", flush=True)
            right += same
    print(json.dumps({"runs": len(runs), "right": right}))
    return 0 if right == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
