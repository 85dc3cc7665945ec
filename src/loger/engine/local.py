"""The engine of one machine: threads, because the compiled kernels release the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from loger.engine.protocol import Block, Progress, Result, Shared, silent
from loger.engine.threads import one_thread


class LocalEngine:
    """Runs blocks on the cores of this machine."""

    def __init__(self, workers: int | None = None, progress: Progress = silent) -> None:
        self.workers = workers or _cores()
        self.progress = progress

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
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most.

        Few blocks are under way at a time, so that memory stays bounded however many
        there are and whatever the caller does with each result.
        """
        if self.workers == 1 or len(blocks) <= 1:
            for done, block in enumerate(blocks):
                self.progress(what, done, len(blocks))
                yield _run(fn, shared, block)
            self.progress(what, len(blocks), len(blocks))
            return
        pool = ThreadPoolExecutor(self.workers)
        waiting: deque[Future[Result]] = deque()
        try:
            for k, block in enumerate(blocks):
                waiting.append(pool.submit(_run, fn, shared, block))
                if len(waiting) > 2 * self.workers:
                    self.progress(what, k - len(waiting) + 1, len(blocks))
                    yield waiting.popleft().result()
            while waiting:
                self.progress(what, len(blocks) - len(waiting), len(blocks))
                yield waiting.popleft().result()
            self.progress(what, len(blocks), len(blocks))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run(fn: Callable[[Shared, Block], Result], shared: Shared, block: Block) -> Result:
    """One block on one core."""
    with one_thread():
        return fn(shared, block)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
