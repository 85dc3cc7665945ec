"""Matrix products on one core at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one core per product within this block.

    The products of a batch are small: threads that wait for each other on a busy machine cost
    10 to 30 times what they gain on an idle one (docs/adr/0006). Work that is wide enough for
    all cores runs in blocks on the engine instead. And one core gives the same bytes whatever
    machine it is in.

    It holds for the thread that enters it alone, as MKL counts per thread: what runs on the
    engine's threads enters it there.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
