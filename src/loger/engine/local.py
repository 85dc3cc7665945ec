"""The engine of one machine: threads, because the compiled kernels release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from loger.engine.ordered import in_order, on_one_thread, one_by_one
from loger.engine.protocol import Block, Progress, Result, Shared, silent
from loger.engine.threads import numpy_on_one_thread


class LocalEngine:
    """Runs blocks on the cores of this machine, in threads."""

    def __init__(self, workers: int | None = None, progress: Progress = silent) -> None:
        self.workers = workers or cores()
        self.progress = progress

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """In another process an engine works alone: that process is one of many workers."""
        return LocalEngine, (1,)

    def with_progress(self, progress: Progress) -> LocalEngine:
        """The same engine, reporting to another callback."""
        return LocalEngine(self.workers, progress)

    def map(
        self,
        what: str,
        fn: Callable[[Shared, Block], Result],
        blocks: Sequence[Block],
        shared: Shared,
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most."""
        if self.workers == 1 or len(blocks) <= 1:
            yield from one_by_one(what, fn, blocks, shared, self.progress)
            return
        pool = ThreadPoolExecutor(self.workers)
        try:
            with numpy_on_one_thread():
                yield from in_order(
                    what,
                    lambda block: pool.submit(on_one_thread, fn, shared, block),
                    blocks,
                    2 * self.workers,
                    self.progress,
                )
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
