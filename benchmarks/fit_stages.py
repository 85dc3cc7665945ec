"""What a default fit costs, stage by stage, in processor seconds, and what ranking all users costs.

    python benchmarks/fit_stages.py ../shared/data/amazon-beauty --out stages.json

A stage begins when the fit reports it as progress and ends with the next report. Work that reports
nothing, such as solving for weights, counts towards the stage before it, as "and then".
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from full_size import peak_gib
from loger.data import load, split
from loger.model import LOGER


class Laps:
    """Processor seconds by stage, as a progress callback."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since = "preparing", time.process_time()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Count the time since the last report to the stage of that."""
        now = time.process_time()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = what if done < total else f"{what}, and then", now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--checkpoint", type=Path, help="take encoders from here if they are there")
    parser.add_argument("--save", type=Path, help="keep the model in this bundle")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    parts, laps = split(load(options.data)), Laps()
    load_before, clock, begun = os.getloadavg()[0], time.perf_counter(), time.process_time()
    model = LOGER().fit(parts, checkpoint=options.checkpoint, progress=laps)
    laps("done", 1, 1)
    whole, by_clock = time.process_time() - begun, time.perf_counter() - clock
    for what, seconds in sorted(laps.seconds.items(), key=lambda lap: -lap[1]):
        print(f"{seconds:8.1f} s  {what}")
    gib = peak_gib()
    print(f"{whole:8.1f} s  in all, {by_clock:.1f} s by the clock, {gib:.2f} GiB")
    if options.save:
        model.save(options.save)
    users = np.arange(model.graph_.n_users)
    model.ranker_.top(users[:64], 10)  # compiled
    before, start = time.process_time(), time.perf_counter()
    model.ranker_.top(users, 10)
    ranking, wall = time.process_time() - before, time.perf_counter() - start
    print(f"{ranking:8.1f} s  ranking all {len(users):,} users, {wall:.1f} s by the clock")
    if options.out:
        about = {"data": parts.dataset.name, "load": load_before, "fit": whole, "ranking": ranking}
        figures = about | {"wall": by_clock, "ranking_wall": wall, "gib": gib}
        figures["stages"] = laps.seconds
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
