"""The protocol of engines, and the engine of one machine: threads, as kernels release the GIL.

Then come the background work of a fit, what every engine needs (results in the order of their
blocks, matrix products on one core), and a check that this process was not forked from one whose
polars had threads.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol, Self, TypeVar

from loger.errors import LogerError

Shared = TypeVar("Shared")
Block = TypeVar("Block")
Result = TypeVar("Result")
Work = Callable[[Shared, Block], Result]
"""What is mapped over blocks: a function of a module, given what all blocks share and a block."""

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, blocks done, blocks in all)."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


class Engine(Protocol):
    """Maps a function over blocks; results come in the order of the blocks."""

    def with_progress(self, progress: Progress) -> Engine:
        """The same engine, reporting to another callback."""
        ...

    def map(
        self, what: str, fn: Work[Shared, Block, Result], blocks: Sequence[Block], shared: Shared
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most.

        ``fn`` is a function of a module, not a closure: it may run in another process. It reads
        ``shared``, which all blocks have in common, and never writes into it or into the block;
        all that it finds is in what it returns. Products run on one thread per worker.
        """
        ...


SECONDS = 0.2
"""Seconds between updates of the progress of background work that someone waits for."""


class LocalEngine:
    """Runs blocks on the cores of this machine, in threads."""

    def __init__(self, workers: int | None = None, progress: Progress = silent) -> None:
        self.workers = workers or cores()
        self.progress = progress

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """In another process an engine has one worker, because that process is one of many."""
        return LocalEngine, (1,)

    def with_progress(self, progress: Progress) -> LocalEngine:
        """The same engine, reporting to another callback."""
        return LocalEngine(self.workers, progress)

    def map(
        self, what: str, fn: Work[Shared, Block, Result], blocks: Sequence[Block], shared: Shared
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


class SeparateEngine:
    """The base of engines whose workers are other processes, here or on a cluster."""

    separate = True  # whole fits can run in workers at the same time

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """In a worker an engine has one worker."""
        return LocalEngine, (1,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End or leave the workers; the next work starts or finds them again."""
        raise NotImplementedError


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


# ── in the background ───────────────────────────────────────────────────────────────────


class _StoppedError(Exception):
    """The work is no longer wanted."""


class Background:
    """A context in which pieces of work run one after another in a background thread.

    With an engine of one worker there is no such thread: each piece runs when its result is asked
    for. Leaving the context ends the running piece at its next report of progress, so that an error
    or Ctrl-C need not wait for it. Meanwhile NumPy uses one core per product, because results must
    have the same bytes whether or not anything runs in the background.
    """

    def __init__(self, engine: Engine) -> None:
        alone = getattr(engine, "workers", 2) == 1
        self._pool = None if alone else ThreadPoolExecutor(1)
        self._last: tuple[str, int, int] | None = None
        self._stop = Event()
        self._one_thread = numpy_on_one_thread()

    def __enter__(self) -> Self:
        self._one_thread.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._one_thread.__exit__(None, None, None)

    def start(self, work: Callable[[Progress], Result]) -> Callable[[Progress], Result]:
        """Start ``work(progress)``; returns a function that waits for its result and shows its
        progress."""
        if self._pool is None:
            return work
        return partial(self._result, self._pool.submit(work, self._note))

    def _result(self, future: Future[Result], progress: Progress) -> Result:
        while not wait_for([future], SECONDS).done:
            self._show(progress)
        self._show(progress)
        return future.result()

    def _show(self, progress: Progress) -> None:
        if self._last is not None:
            progress(*self._last)

    def _note(self, what: str, done: int, total: int) -> None:
        """Keep the progress for the waiting thread: callbacks are called from one thread only."""
        if self._stop.is_set():
            raise _StoppedError
        self._last = (what, done, total)


# ── in order ────────────────────────────────────────────────────────────────────────────


def one_by_one(
    what: str,
    fn: Work[Shared, Block, Result],
    blocks: Sequence[Block],
    shared: Shared,
    progress: Progress,
) -> Iterator[Result]:
    """Yield ``fn(shared, block)`` for each block, computed here when it is asked for."""
    for done, block in enumerate(blocks):
        progress(what, done, len(blocks))
        with naming(what, blocks, done):
            result = on_one_thread(fn, shared, block)
        yield result
    progress(what, len(blocks), len(blocks))


def in_order(
    what: str,
    submit: Callable[[Block], Future[Result]],
    blocks: Sequence[Block],
    ahead: int,
    progress: Progress,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Submit blocks and yield their results in order; at most ``ahead`` wait behind the first.

    So memory stays bounded, however many blocks there are and whatever the caller does with the
    results. If the caller stops early or an error occurs, ``stop`` is called and running blocks are
    waited for, so that nothing is left running.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for k in range(len(blocks) + ahead):
            if k < len(blocks):
                waiting.append(submit(blocks[k]))
            if k >= ahead:
                done = k - ahead
                progress(what, done, len(blocks))
                with naming(what, blocks, done):
                    result = waiting[0].result()
                waiting.popleft()
                yield result
        progress(what, len(blocks), len(blocks))
    finally:
        stop()
        for future in waiting:
            future.cancel()
        wait_for(waiting)


def on_one_thread(fn: Work[Shared, Block, Result], shared: Shared, block: Block) -> Result:
    """Do one block with one core per product."""
    with one_thread():
        return fn(shared, block)


@contextmanager
def naming(what: str, blocks: Sequence[object], k: int) -> Iterator[None]:
    """Note on an error which block it comes from."""
    try:
        yield
    except Exception as error:
        block = reprlib.repr(blocks[k])
        error.add_note(f"while {what}, in block {k + 1} of {len(blocks)}: {block}")
        raise


# ── on one core ─────────────────────────────────────────────────────────────────────────


_lock = Lock()
_before: list[tuple[Any, int]] = []
"""How many threads each library of NumPy and SciPy had before ``numpy_on_one_thread``."""
_inside = 0
"""How many such blocks are open."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy and, if it has been imported, PyTorch use one core per product in this block.

    The products of a batch are small: threads that wait for each other on a busy machine cost
    10 to 30 times what they gain on an idle one (docs/adr/0006). Work that is wide enough for
    all cores runs in blocks on the engine instead. One core also gives the same bytes on every
    machine.

    PyTorch has a setting per thread, so engines enter this in their workers, and code that
    computes outside of an engine enters it itself.
    """
    torch = sys.modules.get("torch")
    if not hasattr(torch, "get_num_threads"):  # another thread is importing it
        torch = None
    before = None if torch is None else torch.get_num_threads()
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with numpy_on_one_thread():
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@contextmanager
def numpy_on_one_thread() -> Iterator[None]:
    """Let NumPy, and SciPy if it has been imported, use one core per product in the whole process
    until the last such block ends.

    Once the main thread has changed the number, OpenBLAS 0.3.31 ignores other threads' changes. So
    an engine also enters this in the thread that asks for its work.
    """
    global _inside
    with _lock:
        for library in _libraries("scipy.linalg" in sys.modules)[len(_before) :]:
            _before.append((library, library.num_threads))
            library.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for library, n in _before:
                    library.set_num_threads(n)
                _before.clear()


@cache
def _libraries(with_scipy: bool) -> tuple[Any, ...]:
    """The libraries that multiply matrices: NumPy's and, once it is imported, SciPy's own."""
    import numpy  # noqa: F401  # loads the library that is looked for
    from threadpoolctl import ThreadpoolController

    known = _libraries(False) if with_scipy else ()
    places = {library.filepath for library in known}
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return known + tuple(library for library in found if library.filepath not in places)


# ── forked processes ─────────────────────────────────────────────────────────────────────────
# A fork copies the locks of threads but not the threads, so the next polars query would deadlock.
# Recommending and explaining need no query, so a model may be loaded and used in a forked child
# (gunicorn, DataLoader, multiprocessing). Reading data and fitting need them, and are refused.

_has_threads = False
"""Whether polars had threads here, or in an ancestor, when this process last forked."""
_deadlocks = False
"""Whether polars had threads in a process that this one was forked from."""


def _polars_has_threads() -> bool:
    if "polars" not in sys.modules:
        return False
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return True  # no way to know
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:  # ended meanwhile
            continue
    return any(re.match(r"polars-\d|async-executor", name) for name in names)


def _before_fork() -> None:
    global _has_threads
    _has_threads = _deadlocks or _polars_has_threads()


def _in_child() -> None:
    global _deadlocks
    _deadlocks = _has_threads  # of the parent: here its threads are gone


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def check_not_forked(what: str) -> None:
    """Refuse work that needs polars' threads in a process where it would deadlock."""
    if _deadlocks:
        raise LogerError(
            f"{what} would deadlock: this process was forked after polars had started threads; "
            f"use the 'spawn' start method (multiprocessing.get_context('spawn')), or do this in "
            f"the parent"
        )
