"""The engine of one machine in processes: for work that holds the GIL, and as a small cluster.

What blocks share is written to a file once, which all workers map read-only into their memory. A
worker gets what a worker on another machine would get: pickled messages and read-only arrays. The
pickles are messages between our own processes, in a folder that only this user can read, and are
removed when these end.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from io import BytesIO
from mmap import ACCESS_READ, mmap
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock, Thread
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, finalize

from loger.engine.threads import (
    Block,
    Progress,
    Result,
    SeparateEngine,
    Shared,
    Work,
    cores,
    in_order,
    on_one_thread,
    one_by_one,
    silent,
)
from loger.errors import LogerError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
"""Variables that tell libraries which a worker loads later how many threads they may use."""

ALIGNED = 64
"""Arrays begin at multiples of this: a cache line, and what vector instructions like."""

KEPT = 4
"""How many of the objects that are sent once a worker keeps."""


class ProcessEngine(SeparateEngine):
    """Runs blocks in processes of their own on this machine.

    They start with the first work and end with ``close``, or with this process. A script that
    uses it needs ``if __name__ == "__main__":``, as with every use of spawned processes.
    """

    def __init__(self, workers: int | None = None, progress: Progress = silent) -> None:
        self.workers = workers or cores()
        self.progress = progress
        self._pool = _Pool(self.workers)

    def close(self) -> None:
        """End the workers; they start again if there is more to do."""
        self._pool.close()

    def with_progress(self, progress: Progress) -> ProcessEngine:
        """The same workers, reporting to another callback."""
        other = ProcessEngine(self.workers, progress)
        other._pool = self._pool
        return other

    def map(
        self, what: str, fn: Work[Shared, Block, Result], blocks: Sequence[Block], shared: Shared
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most."""
        if len(blocks) <= 1:  # sending the shared data would take longer
            yield from one_by_one(what, fn, blocks, shared, self.progress)
            return
        sent = self._pool.sent(what, fn, shared)
        try:
            yield from in_order(
                what,
                lambda block: self._pool.submit(fn, sent, block),
                blocks,
                2 * self.workers,
                self.progress,
                sent.remove,  # workers skip what they have not begun
            )
        except BrokenProcessPool:
            self.close()
            raise LogerError(
                f"a worker process ended while {what}; either it was killed, perhaps because "
                "memory ran out (try fewer workers), or it couldn't start (a script needs "
                '`if __name__ == "__main__":`)'
            ) from None
        finally:
            sent.remove()


class Sent(NamedTuple):
    """An object in a file: what another process needs to read it."""

    path: Path
    spans: tuple[tuple[int, int], ...]
    """Where its pickle lies, and then each of its arrays."""

    def remove(self) -> None:
        """Delete the file, which cancels the work on it. Workers that mapped it can read on."""
        self.path.unlink(missing_ok=True)

    def read(self) -> Any:
        """The object with its arrays mapped; FileNotFoundError if the work was cancelled."""
        with self.path.open("rb") as file:
            whole = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
        first, *arrays = (whole[lo:hi] for lo, hi in self.spans)
        return pickle.loads(first, buffers=arrays)


class _Pool:
    """Worker processes, and the files that were sent to them."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = RLock()
        self._executor: ProcessPoolExecutor | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._files = 0
        self._sent_once: WeakKeyDictionary[object, Sent] = WeakKeyDictionary()

    def submit(self, fn: Work[Shared, Block, Result], sent: Sent, block: Block) -> Future[Result]:
        """Have a worker do one block."""
        with self._lock:
            if self._executor is None:
                # Spawned, not forked: a fork would copy the locks of other threads.
                self._executor = ProcessPoolExecutor(
                    self.workers, get_context("spawn"), _start_worker, (sent.path.parent,)
                )
            return self._executor.submit(_work, fn, sent, block)

    def close(self) -> None:
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown(wait=True, cancel_futures=True)
                self._executor = None
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None
                self._sent_once.clear()

    def sent(self, what: str, fn: Callable[..., object], shared: object) -> Sent:
        """A file with all that the blocks of one map have in common."""
        try:
            pickle.dumps(fn)
            return self._written(shared)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise not_sendable(what, error) from error

    def _written(self, thing: object) -> Sent:
        parts = pickled(thing, lambda found: (_once, (self.sent_once(found),)))
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="loger-processes-")
            self._files += 1
            path = Path(self._folder.name, str(self._files))
        spans, end = [], 0
        with path.open("xb") as file:
            for part in parts:
                begin = -(-end // ALIGNED) * ALIGNED
                end = begin + part.nbytes
                spans.append((begin, end))
                file.seek(begin)
                file.write(part)
        return Sent(path, tuple(spans))

    def sent_once(self, thing: object) -> Sent:
        """The file of an object that never changes, which stays as long as the object lives."""
        with self._lock:
            sent = self._sent_once.get(thing)
            if sent is None:
                sent = self._sent_once[thing] = self._written(thing)
                finalize(thing, sent.remove)
        return sent


# ── messages ────────────────────────────────────────────────────────────────────────────


Finder = tuple[Callable[..., object], tuple[object, ...]]
"""A function and arguments that find, in a worker, an object that was sent once."""


def pickled(thing: object, once: Callable[[object], Finder] | None = None) -> list[memoryview[int]]:
    """The pickle of an object without its arrays, then the arrays' memory (PEP 574).

    ``once`` says how a worker finds an object that never changes; without it, everything is sent.
    """
    file, buffers = BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, buffers, thing, once).dump(thing)
    return [file.getbuffer(), *(buffer.raw() for buffer in buffers)]


class _Pickler(pickle.Pickler):
    """Sends an object's arrays out of band, and objects that are sent once by their finder."""

    def __init__(
        self,
        file: BytesIO,
        buffers: list[pickle.PickleBuffer],
        thing: object,
        once: Callable[[object], Finder] | None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.thing, self.once = thing, once

    def reducer_override(self, found: Any) -> Any:
        """How to send an object; pickle does not call this for plain values and containers."""
        kind = type(found)
        if getattr(kind, "sent_once", False) and found is not self.thing and self.once is not None:
            return self.once(found)
        # Recognized by the name of its type: sys.modules may hold a half-imported torch while
        # another thread imports it. An import statement waits for that thread.
        if kind.__module__.partition(".")[0] == "torch":
            import torch

            if isinstance(found, torch.Tensor) and found.device.type == "cpu":
                parameter = kind if isinstance(found, torch.nn.Parameter) else None
                return _tensor, (found.detach().numpy(), parameter, found.requires_grad)
        return NotImplemented


def _tensor(array: Any, kind: Any, needs_gradient: bool) -> Any:
    """A tensor that shares the array's memory."""
    import torch

    with warnings.catch_warnings():  # torch warns that it is read-only; nobody writes into it
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(array)
    if kind is not None:
        return kind(tensor, requires_grad=needs_gradient)
    return tensor.requires_grad_(needs_gradient)


def not_sendable(what: str, error: Exception) -> LogerError:
    """The error for work that cannot be sent to another process."""
    return LogerError(
        f"{what} can't run in another process ({error}); use functions defined at the top level "
        "of a module instead of lambdas, or use LocalEngine"
    )


def sendable(error: Exception) -> Exception:
    """The error itself, or one with the same text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        if isinstance(error, LogerError):
            return LogerError(str(error))
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# ── in a worker ─────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1)
def _shared(sent: Sent) -> Any:
    """What the current blocks share."""
    return sent.read()


@lru_cache(maxsize=KEPT)
def _once(sent: Sent) -> Any:
    """What was sent once."""
    return sent.read()


def _start_worker(folder: Path) -> None:
    """One core per process, no traceback at Ctrl-C, and an end when the parent ends."""
    for name in THREADS:
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(lambda: shutil.rmtree(folder, ignore_errors=True))


def end_with_parent(last: Callable[[], object] = lambda: None) -> None:
    """End this process when its parent ends, after calling ``last``. A parent that was killed can't
    end its workers, which would wait for work forever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            last()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def _work(fn: Callable[[Any, Block], Result], sent: Sent, block: Block) -> Result:
    """Do one block, unless it was cancelled. Ctrl-C reaches a worker only while it works."""
    if not sent.path.exists():
        raise CancelledError
    try:
        shared = _shared(sent)
    except FileNotFoundError:  # cancelled just now
        raise CancelledError from None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return on_one_thread(fn, shared, block)
    except KeyboardInterrupt:
        sent.remove()  # all workers skip the rest
        raise
    except Exception as error:
        raise sendable(error) from error
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
