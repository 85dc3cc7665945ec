"""The engine of one machine in processes: for work that holds the GIL, and as a small cluster.

What blocks share lies in shared memory once, however many workers read it. What a worker gets is
what a worker on another machine would get: nothing but pickled messages and read-only arrays.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import RLock, Thread
from typing import Any
from weakref import WeakKeyDictionary, finalize

from loger.engine.local import LocalEngine, cores
from loger.engine.memory import Segment, Ticket, cancel, is_cancelled, load
from loger.engine.ordered import in_order, on_one_thread, one_by_one, sendable
from loger.engine.protocol import Block, Progress, Result, Shared, silent
from loger.errors import LogerError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
"""By these, libraries that a worker has yet to load learn how many threads they may use."""


class ProcessEngine:
    """Runs blocks in processes of their own on this machine.

    They start with the first work and end with ``close``, or with this process. A script that
    uses it needs ``if __name__ == "__main__":``, as with every use of spawned processes.
    """

    separate = True  # a whole fit can run in a worker, and another one beside it

    def __init__(self, workers: int | None = None, progress: Progress = silent) -> None:
        self.workers = workers or cores()
        self.progress = progress
        self._pool = _Pool(self.workers)

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """In a worker an engine works alone."""
        return LocalEngine, (1,)

    def __enter__(self) -> ProcessEngine:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; they start again if there is more to do."""
        self._pool.close()

    def with_progress(self, progress: Progress) -> ProcessEngine:
        """The same workers, reporting to another callback."""
        other = ProcessEngine(self.workers, progress)
        other._pool = self._pool
        return other

    def map(
        self,
        what: str,
        fn: Callable[[Shared, Block], Result],
        blocks: Sequence[Block],
        shared: Shared,
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most."""
        if len(blocks) <= 1:  # sending what it needs would take longer
            yield from one_by_one(what, fn, blocks, shared, self.progress)
            return
        segment = self._pool.sent(what, fn, shared)
        try:
            yield from in_order(
                what,
                lambda block: self._pool.submit(fn, segment.ticket, block),
                blocks,
                2 * self.workers,
                self.progress,
                segment.cancel,
            )
        except BrokenProcessPool:
            self.close()
            raise LogerError(
                f"a worker process ended while {what}: it was killed, perhaps because memory ran "
                "out (fewer workers need less), or it could not start (a script needs "
                '`if __name__ == "__main__":`)'
            ) from None
        finally:
            segment.release()


class _Pool:
    """Worker processes, and the objects that they have been sent once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = RLock()
        self._executor: ProcessPoolExecutor | None = None
        self._sent_once: WeakKeyDictionary[object, Ticket] = WeakKeyDictionary()

    def submit(
        self, fn: Callable[[Shared, Block], Result], ticket: Ticket, block: Block
    ) -> Future[Result]:
        """Have a worker do one block."""
        with self._lock:
            if self._executor is None:
                # Spawned, not forked: a fork would copy the locks of other threads.
                self._executor = ProcessPoolExecutor(
                    self.workers, get_context("spawn"), initializer=_start_worker
                )
            return self._executor.submit(_work, fn, ticket, block)

    def close(self) -> None:
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown(wait=True, cancel_futures=True)
                self._executor = None

    def sent(self, what: str, fn: Callable[..., object], shared: object) -> Segment:
        """Shared memory with all that the blocks of one map have in common."""
        try:
            pickle.dumps(fn)
            return Segment(shared, self._ticket_of)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise LogerError(
                f"{what} cannot run in another process: {error}. Functions must be those of a "
                "module, not lambdas; or use LocalEngine"
            ) from error

    def _ticket_of(self, thing: object) -> Ticket:
        """Where an object lies that never changes; it stays there as long as it lives here."""
        with self._lock:
            ticket = self._sent_once.get(thing)
            if ticket is None:
                segment = Segment(thing, self._ticket_of)
                ticket = self._sent_once[thing] = segment.ticket
                finalize(thing, segment.release)
        return ticket


# ── in a worker ─────────────────────────────────────────────────────────────────────────


def _start_worker() -> None:
    """One core per process, no traceback at Ctrl-C, and an end when the parent ends."""
    for name in THREADS:
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """Have this process end when its parent does: one that was killed cannot end its workers,
    which would wait for work for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def _work(fn: Callable[[Any, Block], Result], ticket: Ticket, block: Block) -> Result:
    """Do one block, unless nobody waits for it. Ctrl-C reaches a worker only while it works."""
    shared = load(ticket)
    if is_cancelled(ticket):
        raise CancelledError
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return on_one_thread(fn, shared, block)
    except KeyboardInterrupt:
        cancel(ticket)
        raise
    except Exception as error:
        raise sendable(error) from error
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
