"""What a worker of Ray does: one block, over what all blocks share, read where it lies.

Messages between driver and workers are pickles with their buffers apart, as plain arrays, which
Ray keeps in its object store: once per node, read-only, and mapped by all workers of the node.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger import __version__
from loger.engine.kernels import any_kept
from loger.engine.memory import KEPT, pickled
from loger.engine.ordered import on_one_thread, sendable
from loger.errors import LogerError

Packed = tuple[bytes, list[NDArray[np.uint8]]]
"""A pickle, and its buffers."""


class Message(NamedTuple):
    """An object on its way to workers."""

    loger: str
    """The version of loger that the driver has."""
    paths: list[str]
    """Where the driver's modules are: of use on the driver's own machine."""
    packed: Packed
    once: dict[str, Any]
    """References to what is sent once, by their names."""


class Remote(Exception):  # noqa: N818
    """The traceback of an error, as it was where it happened."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def packed(thing: object, once: Callable[[object], str] | None = None) -> Packed:
    """An object as a message has it; ``once`` sends what never changes and names it."""
    find = None if once is None else lambda found: (_found, (once(found),))
    first, *buffers = pickled(thing, find)
    return bytes(first), [np.frombuffer(b, np.uint8) if b.nbytes else _NOTHING for b in buffers]


def unpacked(message: Packed) -> Any:
    """The object of an answer, in memory of its own: the store is not kept full by results."""
    return pickle.loads(message[0], buffers=[bytearray(b.data) for b in message[1]])


def size(message: Packed) -> int:
    """Bytes of a message."""
    return len(message[0]) + sum(b.nbytes for b in message[1])


_NOTHING = np.empty(0, np.uint8)

# ── in a worker ─────────────────────────────────────────────────────────────────────────

_shared: tuple[str, Any] | None = None
"""What the blocks share whose turn it is, by the name of its reference."""
_kept: OrderedDict[str, Any] = OrderedDict()
"""What was sent once."""


def work(shared: Sequence[Any], asked: bytes) -> tuple[bool, Packed]:
    """Do one block: (True, what came out), or (False, (the error, its traceback)).

    The reference is in a sequence so that Ray does not fetch and unpickle it for every block.
    """
    from ray.exceptions import RayError

    _prepare()
    try:
        of_all = _loaded(shared[0])
        fn, block = pickle.loads(asked)
        with _compiling_alone():
            result = on_one_thread(fn, of_all, block)
        return True, packed(result)
    except RayError:  # what the block needs was lost on the way: the driver tries again
        raise
    except Exception as error:
        return False, packed((sendable(error), traceback.format_exc()))


def _prepare() -> None:
    """A worker has one core, and what it has begun it ends: only what waits is cancelled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # Ray limits the others


def _loaded(reference: Any) -> Any:
    """What the blocks share, kept until other blocks share something else."""
    global _shared
    import ray

    name = reference.hex()
    if _shared is None or _shared[0] != name:
        _shared = None  # give back the old one first
        _shared = name, _opened(ray.get(reference))
    return _shared[1]


def _opened(message: Message) -> Any:
    import ray

    if message.loger != __version__:
        raise LogerError(
            f"this is loger {message.loger}, and a worker of the cluster has {__version__}; "
            "install the same version on every node"
        )
    sys.path += [path for path in message.paths if path not in sys.path and Path(path).exists()]
    for name, reference in message.once.items():
        if name not in _kept:
            while len(_kept) >= KEPT:
                _kept.popitem(last=False)
            _kept[name] = _opened(ray.get(reference))
        _kept.move_to_end(name)
    return pickle.loads(message.packed[0], buffers=message.packed[1])


def _found(name: str) -> Any:
    return _kept[name]


@contextmanager
def _compiling_alone() -> Iterator[None]:
    """On a node that has no compiled kernels yet, one worker compiles them and the others wait:
    kernels are kept on disk, so that a node compiles them once."""
    if any_kept():
        with _turn(fcntl.LOCK_SH):  # whoever still compiles is waited for
            pass
        yield
        return
    with _turn(fcntl.LOCK_EX):
        if not any_kept():
            yield
            return
    yield


@contextmanager
def _turn(kind: int) -> Iterator[None]:
    """A lock that all workers of a node know."""
    place = Path(tempfile.gettempdir(), f"loger-compiling-{os.getuid()}.lock")
    handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)
