"""The engine of a cluster: blocks as tasks of Ray, on this machine or on many.

Only this module imports Ray, and only when such an engine is made. What blocks share is sent as a
pickle with its arrays beside it. Ray keeps these in its object store, once per node, read-only,
where all workers of the node map them. Ray also runs blocks again that are lost with their worker.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from loger import __version__
from loger.engine.kernels import compiling_alone
from loger.engine.processes import KEPT, not_sendable, pickled, sendable
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

TRIES = 4
"""How often a block is started if its worker or node is lost each time."""


@dataclass
class Stage:
    """What one kind of work has cost so far."""

    blocks: int = 0
    sent: int = 0
    """Bytes of what blocks share, and of the blocks themselves."""
    received: int = 0
    """Bytes of results."""
    seconds: float = 0.0

    def __str__(self) -> str:
        moved = f"{self.sent / 1e6:,.1f} MB sent, {self.received / 1e6:,.1f} MB received"
        return f"{self.blocks:,} blocks, {moved}, {self.seconds:,.1f} s"


class RayEngine(SeparateEngine):
    """Runs blocks as tasks of Ray.

    It uses the cluster that this program is connected to, the one at ``address`` (as for
    ``ray.init``), or one that runs on this machine. If there is none, or at the address ``local``,
    it starts one here with ``workers`` cores, which ends with ``close`` or with this process. It
    never stops another cluster. Results are those of every engine.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        progress: Progress = silent,
    ) -> None:
        self.progress = progress
        self._cluster = _Cluster(address, workers)

    def close(self) -> None:
        """Leave the cluster; end it if it was started here. The next work connects again."""
        self._cluster.close()

    def with_progress(self, progress: Progress) -> RayEngine:
        """The same cluster, reporting to another callback."""
        other = RayEngine.__new__(RayEngine)
        other.progress, other._cluster = progress, self._cluster
        return other

    @property
    def workers(self) -> int:
        """Cores of the cluster, as it is now."""
        return self._cluster.workers()

    @property
    def stages(self) -> dict[str, Stage]:
        """What each kind of work has cost so far."""
        return self._cluster.stages

    def summary(self) -> str:
        """What each kind of work has cost so far, a line for each."""
        return "\n".join(f"{what}: {stage}" for what, stage in self.stages.items())

    def map(
        self, what: str, fn: Work[Shared, Block, Result], blocks: Sequence[Block], shared: Shared
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most."""
        if len(blocks) <= 1:  # sending the shared data would take longer
            yield from one_by_one(what, fn, blocks, shared, self.progress)
            return
        job = _Job(what, self._cluster, fn, shared)
        try:
            yield from in_order(what, job.submit, blocks, job.ahead, self.progress, job.stop)
        finally:
            job.close()


class _Cluster:
    """A connection to a cluster, and the objects that were sent there once."""

    def __init__(self, address: str | None, workers: int | None) -> None:
        self.ray = _installed()
        self.address, self.asked = address, workers
        self.stages: dict[str, Stage] = {}
        self._lock = RLock()
        self._joined = False
        self._session = ""
        self._sent_once: WeakKeyDictionary[object, Any] = WeakKeyDictionary()

    def connect(self) -> None:
        """Join a cluster, unless this program is in one already."""
        with self._lock:
            if not self.ray.is_initialized():
                self._join()
                self._joined = True
            session = self.ray.get_runtime_context().get_job_id()
            if session != self._session:  # objects sent to another cluster are not in this one
                self._sent_once.clear()
                self._session = session

    def _join(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        here = {"num_cpus": self.asked or cores(), "include_dashboard": False}
        if self.address == "local":
            self.ray.init(address="local", **here, **quiet)
        elif self.address is not None:
            try:
                self.ray.init(address=self.address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise LogerError(
                    f"there is no Ray cluster at {self.address!r} ({error}); start one with "
                    "`ray start --head`, or leave the address out"
                ) from error
        else:
            try:
                self.ray.init(address="auto", **quiet)
            except ConnectionError:
                self.ray.init(address="local", **here, **quiet)

    def close(self) -> None:
        with self._lock:
            self._sent_once.clear()
            if self._joined and self.ray.is_initialized():
                self.ray.shutdown()  # ends what this program started, else only disconnects
            self._joined = False

    def workers(self) -> int:
        self.connect()
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def put(self, thing: object, stage: Stage) -> Any:
        """A reference to an object in the object store of this node."""
        once: dict[str, Any] = {}

        def noted(found: object) -> tuple[Callable[..., object], tuple[str]]:
            reference = self._once(found, stage)
            once[reference.hex()] = reference
            return _found, (reference.hex(),)

        first, *buffers = pickled(thing, noted)
        arrays = [np.frombuffer(b, np.uint8) if b.nbytes else _NOTHING for b in buffers]
        stage.sent += first.nbytes + sum(array.nbytes for array in arrays)
        return self.ray.put(Message(__version__, list(sys.path), bytes(first), arrays, once))

    def _once(self, thing: object, stage: Stage) -> Any:
        """The reference to an object that never changes, kept as long as the object lives."""
        with self._lock:
            reference = self._sent_once.get(thing)
            if reference is None:
                reference = self._sent_once[thing] = self.put(thing, stage)
        return reference


class _Job:
    """The blocks of one map. Each that runs has a thread here, which waits for its result."""

    def __init__(
        self, what: str, cluster: _Cluster, fn: Callable[..., object], shared: object
    ) -> None:
        self.what, self.fn, self.ray = what, fn, cluster.ray
        self.ahead = 2 * cluster.workers()  # so that no worker waits for the driver
        self.stage = cluster.stages.setdefault(what, Stage())
        self.clock = time.perf_counter()
        try:
            pickle.dumps(fn)
            self.shared = cluster.put(shared, self.stage)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise not_sendable(what, error) from error
        lost = [self.ray.exceptions.RayError]  # an object that the block needs went with its node
        again = {"max_retries": TRIES - 1, "retry_exceptions": lost}
        self.task = self.ray.remote(num_cpus=1, **again)(work)
        self.threads = ThreadPoolExecutor(self.ahead + 1)
        self.running = set[Any]()
        self.lock = Lock()

    def submit(self, block: Any) -> Future[Any]:
        """Start a block."""
        asked = pickle.dumps((self.fn, block), protocol=5)
        self.stage.sent += len(asked)
        # In a list, so that Ray does not fetch and unpickle what is shared for every block.
        reference = self.task.remote([self.shared], asked)
        with self.lock:
            self.running.add(reference)
        return self.threads.submit(self._result, reference)

    def _result(self, reference: Any) -> Any:
        """The result of a block, as an object of the caller's own."""
        errors = self.ray.exceptions
        try:
            ok, answer = self.ray.get(reference)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, errors.RayError):
                raise _cannot_work(self.what, error) from error
            raise _lost(self.what, error.cause) from error
        except errors.RayError as error:
            raise _lost(self.what, error) from error
        finally:
            with self.lock:
                self.running.discard(reference)
        with self.lock:
            self.stage.blocks += 1
            self.stage.received += len(answer)
        result = pickle.loads(answer)
        if ok:
            return result
        failure, text = result
        raise failure from Remote(text)

    def stop(self) -> None:
        """Cancel blocks that have not started; after Ctrl-C, also those that have."""
        force = isinstance(sys.exception(), KeyboardInterrupt)
        with self.lock:
            running = list(self.running)
        for reference in running:
            with suppress(Exception):  # it may be done, or lost
                self.ray.cancel(reference, force=force)

    def close(self) -> None:
        """Note what the work has cost; by now, no block is running."""
        self.threads.shutdown()
        self.stage.seconds += time.perf_counter() - self.clock


def _installed() -> Any:
    """Ray, or an error that says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will have it soon
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError:
        raise LogerError(
            "this engine needs Ray, which isn't installed; run pip install '.[ray]' in the clone"
        ) from None
    return ray


def _lost(what: str, error: Exception) -> LogerError:
    """The error for a block that was lost with its worker each time."""
    return LogerError(
        f"{what}: a worker died {TRIES} times on the same block ({type(error).__name__}), perhaps "
        "because memory ran out; give each worker more memory, or use fewer workers"
    )


def _cannot_work(what: str, error: Exception) -> LogerError:
    """The error for a worker that could not start."""
    return LogerError(
        f"a worker in the cluster can't start {what} ({error}); install loger-rec[ray] "
        f"{__version__} and everything your code imports on every node"
    )


# ── messages ────────────────────────────────────────────────────────────────────────────


class Message(NamedTuple):
    """An object that is sent to workers."""

    loger: str
    """The version of loger that the driver has."""
    paths: list[str]
    """Where the driver's modules are, for workers on the driver's machine."""
    pickle: bytes
    arrays: list[NDArray[np.uint8]]
    """The memory of the object's arrays, which the pickle doesn't contain."""
    once: dict[str, Any]
    """References to objects that are sent once, by their names."""


class Remote(Exception):  # noqa: N818
    """The traceback of an error in a worker."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


_NOTHING = np.empty(0, np.uint8)

# ── in a worker ─────────────────────────────────────────────────────────────────────────


def work(shared: Sequence[Any], asked: bytes) -> tuple[bool, bytes]:
    """Do one block: (True, the result), or (False, (the error, its traceback)), pickled."""
    from ray.exceptions import RayError

    _prepare()
    try:
        of_all = _shared(shared[0])
        fn, block = pickle.loads(asked)
        with compiling_alone():
            result = on_one_thread(fn, of_all, block)
        return True, pickle.dumps(result, protocol=5)
    except RayError:  # an object that the block needs was lost: Ray tries again
        raise
    except Exception as error:
        return False, pickle.dumps((sendable(error), traceback.format_exc()))


def _prepare() -> None:
    """Give a worker one core, and let it finish blocks: only waiting blocks are cancelled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # Ray limits the others


_by_name: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Objects that were sent once, by the names of their references; ``_once`` keeps the last few."""


@lru_cache(maxsize=1)
def _shared(reference: Any) -> Any:
    """What the current blocks share."""
    return _fetched(reference)


@lru_cache(maxsize=KEPT)
def _once(reference: Any) -> Any:
    """What was sent once."""
    return _fetched(reference)


def _fetched(reference: Any) -> Any:
    import ray

    message: Message = ray.get(reference)
    if message.loger != __version__:
        raise LogerError(
            f"this is loger {message.loger}, but a worker in the cluster has {__version__}; "
            "install the same version on every node"
        )
    sys.path += [path for path in message.paths if path not in sys.path and Path(path).exists()]
    needed = {name: _once(reference) for name, reference in message.once.items()}
    _by_name.update(needed)
    return pickle.loads(message.pickle, buffers=message.arrays)


def _found(name: str) -> Any:
    return _by_name[name]
