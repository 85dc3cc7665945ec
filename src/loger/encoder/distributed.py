"""One training on several processes ("ranks") with torch.distributed, started by torchrun.

Rank 0 leads: it alone reads the data, decides and writes. The others wait until it trains. Then
every rank computes the gradients of its share of each batch, and their sum is applied on all ranks.
So all ranks have the same tables at any time and learn, up to rounding, what one process would
learn. The same seed on the same number of ranks gives the same bytes.
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
"""How long ranks wait for the leading rank, which mines and learns weights in the meantime."""
ANSWER = timedelta(minutes=5)
"""How long ranks that train together wait for each other before they give one up as lost."""


class LostRankError(LogerError):
    """An exchange failed because another rank is gone."""


class Ranks:
    """The processes that train together, as one of them sees them; by default there is just one."""

    def __init__(self, rank: int = 0, size: int = 1, store: dist.Store | None = None) -> None:
        self.rank, self.size, self.store = rank, size, store
        self.steps, self.rows, self.seconds = 0, 0, 0.0
        self.training = False
        """Whether the ranks are training at the moment."""
        self._turn = Lock()  # a fit may train two encoders at a time, ranks only one
        self._messages = 0

    @property
    def leads(self) -> bool:
        """Whether this process is the leading rank."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This rank's part of n consecutive things."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    @contextmanager
    def together(self, fn: Callable[..., object], *arguments: object) -> Iterator[None]:
        """Train on all ranks: meanwhile the others call ``fn`` with these arguments."""
        if self.size == 1:
            yield
            return
        with self._turn:
            if self.leads:
                self._send((fn, arguments))
            self.training, clock = True, time.perf_counter()
            yield
            self.training = False
            self.seconds += time.perf_counter() - clock

    def as_leader(self, number: int, tensors: Sequence[Tensor]) -> int:
        """The leading rank's ``number``; also copies its tensors into those of the others."""
        if self.size == 1:
            return number
        first = torch.tensor([number])
        with self._exchanging():
            for tensor in (first, *tensors):
                dist.broadcast(tensor, 0)
        return int(first)

    def added(self, rows: int, parts: Sequence[Tensor]) -> list[Tensor]:
        """The sums of the ranks' tensors; ``rows`` is how many rows that exchanges, for the
        summary."""
        self.steps += 1
        if self.size == 1:
            return list(parts)
        whole = torch.cat([part.flatten() for part in parts])
        with self._exchanging():
            # The order of the sum follows from the ranks, so the bytes are the same each time.
            dist.all_reduce(whole)
        self.rows += rows
        pieces = torch.split(whole, [part.numel() for part in parts])
        return [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)]

    def help(self) -> None:
        """Take part in the leading rank's trainings until it is done."""
        while (asked := self._receive()) is not None:
            fn, arguments = asked
            fn(*arguments)

    def dismiss(self) -> None:
        """Let the others end, unless a training has failed here and they are still in it."""
        if self.leads and not self.training:
            self._send(None)

    def summary(self) -> str:
        """How fast the ranks trained, and how much they exchanged."""
        if not self.seconds:
            return (
                f"this encoder can't train on several ranks; only one of {self.size} did the work"
            )
        steps, seconds = max(1, self.steps), self.seconds
        return (
            f"training the encoder on {self.size} ranks: {self.steps:,} steps, "
            f"{self.steps / seconds:,.1f} steps/s per rank, "
            f"{self.rows / steps:,.0f} rows exchanged per step"
        )

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Re-raise errors of the library that connects the ranks as ``LostRankError``.

        Gloo and NCCL raise plain RuntimeErrors, so only the place distinguishes them from others.
        """
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(
                f"rank {self.rank} lost contact with another rank; run the same command again to "
                "resume from the last checkpoint (torchrun --max-restarts 3 does so automatically)"
            ) from error

    def _send(self, what: object) -> None:
        with self._exchanging():
            if self.store is not None:
                self.store.set(self._next_message(), "")
            dist.broadcast_object_list([what], 0)

    def _receive(self) -> Any:
        # Waiting at the store has no time limit. An exchange among ranks has one of minutes, after
        # which a rank counts as lost.
        box: list[Any] = [None]
        with self._exchanging():
            if self.store is not None:
                self.store.wait([self._next_message()], PATIENCE)
            dist.broadcast_object_list(box, 0)
        return box[0]

    def _next_message(self) -> str:
        self._messages += 1
        return f"loger/{self._messages}"


_current = Ranks()


def current() -> Ranks:
    """The ranks that this program has joined; just itself without ``joined``."""
    return _current


@contextmanager
def joined(local_rank: int = 0) -> Iterator[Ranks]:
    """Join the ranks that torchrun started, or another launcher that sets RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT. The leading rank fits as usual; the others call ``help``.

    ``local_rank`` is the rank's number on this machine, and that of its GPU, if there are GPUs.
    """
    global _current
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(local_rank)
    store, rank, size = next(dist.rendezvous("env://", timeout=ANSWER))
    # After a restart, torchrun's store still has the addresses of the ranks before it.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=ANSWER)
    _current = Ranks(rank, size, store)
    try:
        yield _current
    finally:
        with suppress(LostRankError):  # if the others are gone already
            _current.dismiss()
        _current = Ranks()
        dist.destroy_process_group()
