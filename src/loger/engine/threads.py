"""Matrix products on one core at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

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
