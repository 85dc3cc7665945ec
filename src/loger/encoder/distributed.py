"""One training on several processes ("ranks") by torch.distributed, started by torchrun.

Rank 0 leads: it alone reads the data, decides and writes. The others wait until it trains, then
every rank takes its share of each batch, and what the shares give for the rows that the batch
touches is added up, the same on all of them. So all ranks hold the same tables at any time, and
what is learned is, up to rounding, what one process would have learned. The same seed on as many
ranks gives the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from loger.errors import LogerError

PATIENCE = timedelta(days=30)
"""How long ranks wait for the leading one, which mines and learns weights in the meantime."""
ANSWER = timedelta(minutes=5)
"""How long ranks that work together wait for each other; who takes longer is lost."""


class LostRankError(LogerError):
    """Another rank is gone, so that what ranks exchange failed."""


class Ranks:
    """The processes that train together, as one of them sees it; by default there is just one."""

    def __init__(self, rank: int = 0, size: int = 1, store: dist.Store | None = None) -> None:
        self.rank, self.size, self.store = rank, size, store
        self.steps, self.rows, self.seconds = 0, 0, 0.0
        self.training = False
        """Whether the ranks are in the midst of a training."""
        self._turn = Lock()  # a fit may train two encoders at a time; ranks train one
        self._told_before = 0

    @property
    def leads(self) -> bool:
        """Whether this process is the one that decides."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Which of n things in a row are this rank's part."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    @contextmanager
    def together(self, fn: Callable[..., object], *arguments: object) -> Iterator[None]:
        """A training by all ranks: the others call ``fn`` with these arguments meanwhile."""
        if self.size == 1:
            yield
            return
        with self._turn:
            if self.leads:
                self._tell((fn, arguments))
            self.training, clock = True, time.perf_counter()
            yield
            self.training = False
            self.seconds += time.perf_counter() - clock

    def as_leader(self, number: int, tensors: Sequence[Tensor]) -> int:
        """The leading rank's number; its tensors are copied into those of all others."""
        if self.size == 1:
            return number
        first = torch.tensor([number])
        with self._exchanging():
            for tensor in (first, *tensors):
                dist.broadcast(tensor, 0)
        return int(first)

    def added(self, rows: int, parts: Sequence[Tensor]) -> list[Tensor]:
        """The sums over all ranks of tensors of which each rank has its own values; counts them as
        so many rows."""
        self.steps += 1
        if self.size == 1:
            return list(parts)
        whole = torch.cat([part.flatten() for part in parts])
        with self._exchanging():
            # In an order that follows from the ranks: the same bytes each time.
            dist.all_reduce(whole)
        self.rows += rows
        pieces = torch.split(whole, [part.numel() for part in parts])
        return [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)]

    def help(self) -> None:
        """Take part in what the leading rank trains, until it is done."""
        while (asked := self._told()) is not None:
            fn, arguments = asked
            fn(*arguments)

    def dismiss(self) -> None:
        """Let the others go, unless they are in the midst of work that has failed here."""
        if self.leads and not self.training:
            self._tell(None)

    def summary(self) -> str:
        """How fast the ranks trained, and what they exchanged."""
        if not self.seconds:
            return f"of {self.size} ranks only the first one worked: this encoder trains alone"
        steps, seconds = max(1, self.steps), self.seconds
        return (
            f"training the encoder on {self.size} ranks: {self.steps:,} steps, "
            f"{self.steps / seconds:,.1f} steps/s per rank, "
            f"{self.rows / steps:,.0f} rows exchanged per step"
        )

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Name the cause of an error of the library that connects the ranks.

        Gloo and NCCL raise plain RuntimeErrors, so that only the place tells them from others.
        """
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(
                f"rank {self.rank} lost another rank; give the same command again, and it goes on "
                "from the last checkpoint (torchrun --max-restarts 3 does so by itself)"
            ) from error

    def _tell(self, what: object) -> None:
        with self._exchanging():
            if self.store is not None:
                self.store.set(self._next_word(), "")
            dist.broadcast_object_list([what], 0)

    def _told(self) -> Any:
        # One can wait at the store for as long as one likes; what ranks exchange among themselves
        # is late after minutes, and then somebody is lost.
        box: list[Any] = [None]
        with self._exchanging():
            if self.store is not None:
                self.store.wait([self._next_word()], PATIENCE)
            dist.broadcast_object_list(box, 0)
        return box[0]

    def _next_word(self) -> str:
        self._told_before += 1
        return f"loger/{self._told_before}"


_current = Ranks()


def current() -> Ranks:
    """The ranks that this program has joined; without ``joined`` it is alone."""
    return _current


@contextmanager
def joined(local_rank: int = 0) -> Iterator[Ranks]:
    """The ranks that torchrun started, or whoever else sets RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT. The leading one fits as always; the others call ``help``.

    ``local_rank`` is the number on this machine, and of the GPU, where there are any.
    """
    global _current
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(local_rank)
    store, rank, size = next(dist.rendezvous("env://", timeout=ANSWER))
    # Ranks that torchrun has started again must not call those of before, whose addresses are
    # still in its store.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=ANSWER)
    _current = Ranks(rank, size, store)
    try:
        yield _current
    finally:
        with suppress(LostRankError):  # where others are gone already
            _current.dismiss()
        _current = Ranks()
        dist.destroy_process_group()
