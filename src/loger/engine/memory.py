"""Objects in shared memory: other processes read their arrays in place, without a copy.

An object is pickled with its buffers out of band (PEP 574) into one segment of shared memory. The
pickle is a message between our own processes; nothing is ever loaded from a file this way.
"""

from __future__ import annotations

import gc
import pickle
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

ALIGNED = 64
"""Buffers begin at multiples of this: a cache line, and what vector instructions like."""

KEPT = 4
"""Objects that a worker holds on to, of those that are sent once; and as many more that are not."""


class Ticket(NamedTuple):
    """Where an object lies: what another process needs to read it."""

    name: str
    spans: tuple[tuple[int, int], ...]  # of the pickle, then of its buffers


class Segment:
    """An object in shared memory, until it is released."""

    def __init__(self, thing: object, once: Callable[[object], Ticket]) -> None:
        parts = pickled(thing, lambda found: (load, (once(found), True)))
        spans, end = [], 1  # the first byte says whether the work is off
        for part in parts:
            begin = -(-end // ALIGNED) * ALIGNED
            end = begin + part.nbytes
            spans.append((begin, end))
        self._memory = SharedMemory(create=True, size=end)
        assert self._memory.buf is not None
        for part, (lo, hi) in zip(parts, spans, strict=True):
            self._memory.buf[lo:hi] = part
        self.ticket = Ticket(self._memory.name, tuple(spans))

    def cancel(self) -> None:
        """Have workers skip what they have not begun; see ``is_cancelled``."""
        _cancel(self._memory)

    def release(self) -> None:
        """Give the memory back; who has it mapped may read on."""
        self._memory.close()
        with suppress(FileNotFoundError):
            self._memory.unlink()


def _cancel(memory: SharedMemory) -> None:
    assert memory.buf is not None
    memory.buf[0] = 1


Finder = tuple[Callable[..., object], tuple[object, ...]]
"""A function and arguments that find, over there, what was sent once."""


def pickled(thing: object, once: Callable[[object], Finder] | None = None) -> list[memoryview[int]]:
    """The pickle of an object without its buffers, then these, as they lie in memory.

    ``once`` says how what never changes is found over there; without it, it is sent like the rest.
    """
    file, buffers = BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, buffers, thing, once).dump(thing)
    return [file.getbuffer(), *(buffer.raw() for buffer in buffers)]


class _Pickler(pickle.Pickler):
    """Sends an object's buffers out of band, and what is to be sent once by a word for it."""

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
        """How to send what is no plain value; called for neither strings nor containers."""
        constant = getattr(type(found), "sent_once", False) and found is not self.thing
        if constant and self.once is not None:
            return self.once(found)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(found, torch.Tensor) and found.device.type == "cpu":
            kind = type(found) if isinstance(found, torch.nn.Parameter) else None
            return _tensor, (found.detach().numpy(), kind, found.requires_grad)
        return NotImplemented


def _tensor(array: Any, kind: Any, needs_gradient: bool) -> Any:
    """A tensor that lies where the array does."""
    import torch

    with warnings.catch_warnings():  # that nobody may write into it: nobody does
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(array)
    if kind is not None:
        return kind(tensor, requires_grad=needs_gradient)
    return tensor.requires_grad_(needs_gradient)


# ── in a worker ─────────────────────────────────────────────────────────────────────────


class _Attached(SharedMemory):
    """A segment of another process, which stays mapped as long as an array lies in it."""

    def __del__(self) -> None:
        with suppress(BufferError):
            super().__del__()


_held: dict[bool, OrderedDict[str, tuple[object, _Attached]]] = {
    True: OrderedDict(),
    False: OrderedDict(),
}
"""What was loaded last, apart for what is sent once and what is not."""

_unmapped: list[_Attached] = []
"""Segments to close as soon as nothing lies in them any more."""


def load(ticket: Ticket, once: bool = False) -> Any:
    """The object of a ticket; its arrays are read-only and lie in shared memory."""
    held = _held[once]
    if ticket.name not in held:
        while len(held) >= (KEPT if once else 1):
            _unmapped.append(held.popitem(last=False)[1][1])
        _close_unmapped()
        memory = _Attached(ticket.name)
        assert memory.buf is not None
        view = memory.buf.toreadonly()
        pickled, *buffers = (view[lo:hi] for lo, hi in ticket.spans)
        held[ticket.name] = pickle.loads(pickled, buffers=buffers), memory
    held.move_to_end(ticket.name)
    return held[ticket.name][0]


def is_cancelled(ticket: Ticket) -> bool:
    """Whether nobody waits any more for work on an object that was loaded."""
    memory = _held[False][ticket.name][1]
    return memory.buf is not None and bool(memory.buf[0])


def cancel(ticket: Ticket) -> None:
    """Have all workers skip the rest of the work on an object that was loaded."""
    _cancel(_held[False][ticket.name][1])


def _close_unmapped() -> None:
    """Close the segments whose objects are gone; collects garbage only where it must."""
    for collect in (False, True):
        if collect and _unmapped:
            gc.collect()
        for memory in list(_unmapped):
            with suppress(BufferError):
                memory.close()
                _unmapped.remove(memory)
