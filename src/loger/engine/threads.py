"""What an engine promises, and the engine of one machine: threads, because the compiled kernels
release the GIL.

After it comes what a fit does in the background, then what every engine needs: results in the
order of their blocks, and matrix products on one core at a time. Last comes the check that this
process was not forked from one whose polars had threads.
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
"""How often anyone who waits for work in the background is shown how far it is."""


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
    """What engines have in common whose workers are other processes, here or on a cluster."""

    separate = True  # a whole fit can run in a worker, and another one beside it

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """In a worker an engine works alone."""
        return LocalEngine, (1,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End or leave the workers; more work starts or finds them again."""
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
    """A block beside which pieces of work are done, one after another, in a thread of their own.

    On an engine of one worker there is no such thread: each piece is done when its result is asked
    for. Leaving the block ends the piece under way at its next report of progress, so that an error
    or Ctrl-C need not wait for it. In the block NumPy has one core per product: whether anything
    runs beside must not be seen in the bytes.
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
        """Begin ``work(progress)``; what waits for its result, showing how far it is."""
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
        """Keep how far the work is, for who waits: callbacks are called from one thread only."""
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
    """Yield ``fn(shared, block)`` for each block, each computed here when it is asked for."""
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

    So memory stays bounded however many blocks there are and whatever the caller does with each
    result. A caller that stops early, or an error, leaves nothing under way: ``stop`` is called,
    and blocks that have begun are waited for.
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
    """One block, with one core per product."""
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
"""How many threads each library of NumPy and SciPy had, while anybody computes on one …"""
_inside = 0
"""… and how many do."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy and, if it has been imported, PyTorch use one core per product in this block.

    The products of a batch are small: threads that wait for each other on a busy machine cost
    10 to 30 times what they gain on an idle one (docs/adr/0006). Work that is wide enough for
    all cores runs in blocks on the engine instead. And one core gives the same bytes whatever
    machine it is in.

    PyTorch counts for each thread apart, so the engine enters this in its workers, and who
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
    """Let NumPy, and SciPy if it has been imported, use one core per product, in the whole process,
    until the last such block ends.

    Once the main thread has changed the number, OpenBLAS 0.3.31 takes no change from another: an
    engine enters this where its work is asked for, too.
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
    """What multiplies matrices for NumPy and then, once it is imported, for SciPy, which brings a
    library of its own."""
    import numpy  # noqa: F401  # so that its library is there to be found
    from threadpoolctl import ThreadpoolController

    known = _libraries(False) if with_scipy else ()
    places = {library.filepath for library in known}
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return known + tuple(library for library in found if library.filepath not in places)


# ── forked processes ─────────────────────────────────────────────────────────────────────────
# A fork copies the locks of threads but not the threads, so that the next query of polars waits
# for ever. A loaded model needs no query to recommend and explain: it may be used, or loaded, in a
# forked child (gunicorn, DataLoader, multiprocessing). Reading data and fitting do, and are
# refused there.

_has_threads = False
"""Whether polars had threads here, or further up, when this process last forked."""
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
    """Refuse what needs polars' threads in a process where it would wait for ever."""
    if _deadlocks:
        raise LogerError(
            f"{what} would deadlock: this process was forked from one in which polars had threads; "
            f"use the 'spawn' start method (multiprocessing.get_context('spawn')), or do this in "
            f"the parent"
        )
