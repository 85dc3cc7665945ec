"""Trains an encoder on the ranks that torchrun started; rank 0 writes the result.

    torchrun --nproc-per-node 2 ranks_script.py FOLDER [DIES]

With DIES, the last rank kills itself once, in the second epoch. FOLDER holds the checkpoints.
"""

import os
import signal
import sys
from pathlib import Path

from safetensors.numpy import save_file

from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.encoder.distributed import Ranks, joined

CONFIG = TransEConfig(dimension=8, epochs=3, batch=64)


def dies_once(ranks: Ranks, mark: Path) -> None:
    """Kill this process in its 40th step, unless that was done before."""
    added = ranks.added

    def adds(rows, parts):
        if ranks.steps == 40 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return added(rows, parts)

    ranks.added = adds


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with joined() as ranks:
        if ranks.leads:
            graph = split(shop(seed=2, users=60, items=60).dataset).graph
            encoder = TransE(CONFIG).fit(graph, checkpoint=folder / "first")
            save_file(encoder.fit(graph, warm=True).state(), folder / "state.safetensors")
            print(ranks.summary())
        else:
            if sys.argv[2:]:
                dies_once(ranks, folder / "died")
            ranks.help()
