"""Matrix products on one core at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch, if it has been imported, use one core per product within this block.

    The products of a batch are small: threads that wait for each other on a busy machine cost
    10 to 30 times what they gain on an idle one (docs/adr/0006). Work that is wide enough for
    all cores runs in blocks on the engine instead. And one core gives the same bytes whatever
    machine it is in.

    It holds for the thread that enters it alone, as MKL counts per thread. The engine enters it
    in its workers; who computes outside of an engine enters it itself.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
