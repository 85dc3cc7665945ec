"""The engine of a cluster: blocks as tasks of Ray, on this machine or on many.

Only this module imports Ray, and only when such an engine is made. Messages between driver and
workers are pickles with their buffers as separate arrays. Ray keeps these in its object store, once
per node, read-only, where all workers of the node map them.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger import __version__
from loger.engine.kernels import compiling_alone
from loger.engine.processes import KEPT, Kept, not_sendable, pickled, sendable
from loger.engine.threads import (
    Block,
    Progress,
    Result,
    SeparateEngine,
    Shared,
    Work,
    cores,
    naming,
    on_one_thread,
    one_by_one,
    silent,
)
from loger.errors import LogerError

log = logging.getLogger(__name__)

TRIES = 4
"""How often a block is started if its worker or node is lost each time."""
STORE_SHARE = 0.25
"""The share of the cluster's object store that unread results may take."""
LOOK = 1.0
"""Seconds between checks for lost blocks while the first block is waited for."""


@dataclass
class Stage:
    """What one kind of work has cost so far."""

    blocks: int = 0
    retries: int = 0
    sent: int = 0
    """Bytes that went into the object store: what blocks share, and the blocks themselves."""
    received: int = 0
    """Bytes of results."""
    seconds: float = 0.0

    def __str__(self) -> str:
        again = f", {self.retries} retried" if self.retries else ""
        moved = f"{self.sent / 1e6:,.1f} MB sent, {self.received / 1e6:,.1f} MB received"
        return f"{self.blocks:,} blocks{again}, {moved}, {self.seconds:,.1f} s"


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
        job = _Job(what, self._cluster, fn, blocks, shared)
        try:
            for done in range(len(blocks)):
                job.submit()
                self.progress(what, done, len(blocks))
                with naming(what, blocks, done):
                    result = job.result()
                yield result
            self.progress(what, len(blocks), len(blocks))
        except KeyboardInterrupt:
            job.stop(force=True)
            raise
        finally:
            job.stop()


class _Cluster:
    """A connection to a cluster, and the objects that were sent there once."""

    def __init__(self, address: str | None, workers: int | None) -> None:
        self.ray = _installed()
        self.address, self.asked = address, workers
        self.stages: dict[str, Stage] = {}
        self._lock = RLock()
        self._joined = False
        self._session = ""
        self._sent_once: WeakKeyDictionary[object, tuple[str, Any]] = WeakKeyDictionary()

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

    def room(self) -> float:
        """Bytes that unread results may take."""
        return STORE_SHARE * float(self.ray.cluster_resources().get("object_store_memory", 1 << 30))

    def put(self, thing: object, stage: Stage) -> Any:
        """A reference to an object in the object store of this node."""
        once: dict[str, Any] = {}

        def noted(found: object) -> str:
            name, reference = self._once(found, stage)
            once[name] = reference
            return name

        message = Message(__version__, list(sys.path), packed(thing, noted), once)
        stage.sent += size(message.packed)
        return self.ray.put(message)

    def _once(self, thing: object, stage: Stage) -> tuple[str, Any]:
        """The name of an object that never changes, and its reference, kept as long as it lives."""
        with self._lock:
            found = self._sent_once.get(thing)
            if found is None:
                reference = self.put(thing, stage)
                found = self._sent_once[thing] = reference.hex(), reference
        return found


class _Job:
    """The blocks of one map: those that are running, and their results."""

    def __init__(
        self,
        what: str,
        cluster: _Cluster,
        fn: Callable[..., object],
        blocks: Sequence[object],
        shared: object,
    ) -> None:
        self.what, self.cluster, self.fn, self.blocks = what, cluster, fn, blocks
        cluster.connect()
        self.ray, self.lost = cluster.ray, _lost(cluster.ray)
        self.stage = cluster.stages.setdefault(what, Stage())
        self.clock = time.perf_counter()
        try:
            pickle.dumps(fn)
            self.shared = cluster.put(shared, self.stage)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise not_sendable(what, error) from error
        self.task = self.ray.remote(num_cpus=1, max_retries=0)(work)
        self.waiting: deque[_Asked] = deque()
        self.next, self.largest, self.workers = 0, 0, cluster.workers()
        self.room = cluster.room()

    def submit(self) -> None:
        """Start more blocks, up to the number that may run at a time.

        That is twice the number of cores, so that none waits for the driver. It is one per core
        until the size of results is known, and less where they would fill the store.
        """
        ahead = self.workers if not self.largest else 2 * self.workers
        ahead = min(ahead, int(self.room // max(1, self.largest)))
        while self.next < len(self.blocks) and len(self.waiting) <= ahead:
            self.waiting.append(self._asked(self.next))
            self.next += 1

    def result(self) -> Any:
        """The result of the first running block."""
        first = self.waiting[0]
        while True:
            while not self.ray.wait([first.reference], timeout=LOOK)[0]:
                self._look()
            answer = self._answer(first)
            if answer is not None:
                break
            self._look()  # what one block was lost with, others were lost with
        self.waiting.popleft()
        ok, message = answer
        self.stage.blocks += 1
        self.stage.received += size(message)
        self.largest = max(self.largest, size(message))
        result = unpacked(message)
        if ok:
            return result
        error, text = result
        raise error from Remote(text)

    def stop(self, force: bool = False) -> None:
        """Cancel blocks that have not started and wait for the others, unless by force."""
        references = [asked.reference for asked in self.waiting]
        self.waiting.clear()
        for reference in references:
            with suppress(Exception):  # it may be done, or lost
                self.ray.cancel(reference, force=force)
        if references and not force:
            self.ray.wait(references, num_returns=len(references), fetch_local=False)
        self.stage.seconds += time.perf_counter() - self.clock
        self.clock = time.perf_counter()

    def _asked(self, k: int) -> _Asked:
        asked = pickle.dumps((self.fn, self.blocks[k]), protocol=5)
        self.stage.sent += len(asked)
        return _Asked(k, self.task.remote([self.shared], asked))

    def _answer(self, asked: _Asked) -> Any:
        """The answer for a finished block. If it was lost with its worker, it is started again, and
        this returns None."""
        try:
            return self.ray.get(asked.reference)
        except self.lost as error:
            cause = getattr(error, "cause", error)
            if isinstance(error, self.ray.exceptions.RayTaskError) and not isinstance(
                cause, self.ray.exceptions.RayError
            ):
                raise _cannot_work(self.what, error) from error
        asked.tries += 1
        name = f"{self.what}: block {asked.k + 1} of {len(self.blocks)}"
        if asked.tries >= TRIES:
            raise LogerError(
                f"{name} was lost {TRIES} times with its worker ({type(cause).__name__}); perhaps "
                "memory ran out: give each worker more, or use fewer"
            )
        log.warning("%s was lost with its worker (%s); again", name, type(cause).__name__)
        self.stage.retries += 1
        asked.reference = self._asked(asked.k).reference
        return None

    def _look(self) -> None:
        """Restart lost blocks behind the first one."""
        behind = [asked for asked in list(self.waiting)[1:] if not asked.seen]
        if not behind:
            return
        by_reference = {asked.reference: asked for asked in behind}
        done, _ = self.ray.wait(
            list(by_reference), num_returns=len(behind), timeout=0, fetch_local=False
        )
        for reference in done:
            asked = by_reference[reference]
            asked.seen = self._answer(asked) is not None


@dataclass
class _Asked:
    """A running block."""

    k: int
    reference: Any
    tries: int = 0
    seen: bool = False
    """Whether it is known to be finished."""


def _installed() -> Any:
    """Ray, or an error that says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will have it soon
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError:
        raise LogerError(
            "this engine needs Ray, which is not installed; pip install '.[ray]' in the clone"
        ) from None
    return ray


def _lost(ray: Any) -> tuple[type[Exception], ...]:
    """Errors that say that a worker, a node, or an object there is gone."""
    known = ray.exceptions
    return (
        known.WorkerCrashedError,
        known.NodeDiedError,
        known.LocalRayletDiedError,
        known.OutOfMemoryError,
        known.ObjectLostError,
        known.RayTaskError,
    )


def _cannot_work(what: str, error: Exception) -> LogerError:
    """The error for a worker that could not start."""
    return LogerError(
        f"a worker of the cluster cannot begin {what}: {error}. Every node needs loger-rec[ray] "
        f"{__version__} and what the work imports"
    )


# ── messages ────────────────────────────────────────────────────────────────────────────

Packed = tuple[bytes, list[NDArray[np.uint8]]]
"""A pickle, and its buffers."""


class Message(NamedTuple):
    """An object that is sent to workers."""

    loger: str
    """The version of loger that the driver has."""
    paths: list[str]
    """Where the driver's modules are, for workers on the driver's machine."""
    packed: Packed
    once: dict[str, Any]
    """References to objects that are sent once, by their names."""


class Remote(Exception):  # noqa: N818
    """The traceback of an error in a worker."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def packed(thing: object, once: Callable[[object], str] | None = None) -> Packed:
    """An object as it is sent; ``once`` sends objects that never change and returns their name."""
    find = None if once is None else lambda found: (_found, (once(found),))
    first, *buffers = pickled(thing, find)
    return bytes(first), [np.frombuffer(b, np.uint8) if b.nbytes else _NOTHING for b in buffers]


def unpacked(message: Packed) -> Any:
    """The object of an answer, copied to memory of its own, so that the store can free it."""
    return pickle.loads(message[0], buffers=[bytearray(b.data) for b in message[1]])


def size(message: Packed) -> int:
    """Bytes of a message."""
    return len(message[0]) + sum(b.nbytes for b in message[1])


_NOTHING = np.empty(0, np.uint8)

# ── in a worker ─────────────────────────────────────────────────────────────────────────

_shared, _once = Kept(1), Kept(KEPT)
"""What the current blocks share, and what was sent once, by the names of references."""


def work(shared: Sequence[Any], asked: bytes) -> tuple[bool, Packed]:
    """Do one block: (True, the result), or (False, (the error, its traceback)).

    The reference is in a sequence so that Ray does not fetch and unpickle it for every block.
    """
    from ray.exceptions import RayError

    _prepare()
    try:
        of_all = _shared.get(shared[0].hex(), partial(_fetched, shared[0]))
        fn, block = pickle.loads(asked)
        with compiling_alone():
            result = on_one_thread(fn, of_all, block)
        return True, packed(result)
    except RayError:  # an object that the block needs was lost: the driver tries again
        raise
    except Exception as error:
        return False, packed((sendable(error), traceback.format_exc()))


def _prepare() -> None:
    """Give a worker one core, and let it finish blocks: only waiting blocks are cancelled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # Ray limits the others


def _opened(message: Message) -> Any:
    if message.loger != __version__:
        raise LogerError(
            f"this is loger {message.loger}, and a worker of the cluster has {__version__}; "
            "install the same version on every node"
        )
    sys.path += [path for path in message.paths if path not in sys.path and Path(path).exists()]
    for name, reference in message.once.items():
        _once.get(name, partial(_fetched, reference))
    return pickle.loads(message.packed[0], buffers=message.packed[1])


def _fetched(reference: Any) -> Any:
    import ray

    return _opened(ray.get(reference))


def _found(name: str) -> Any:
    return _once[name]  # fetched before, by ``_opened``
