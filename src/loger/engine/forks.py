"""Whether this process was forked from one whose polars had threads.

A fork copies the locks of threads but not the threads, so that the next query of polars waits for
ever. A loaded model needs no query to recommend and explain: it may be used, or loaded, in a forked
child (gunicorn, DataLoader, multiprocessing). Reading data and fitting do, and are refused there.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from loger.errors import LogerError

_has_threads = False
"""Whether polars had threads here, or further up, when this process last forked."""
_deadlocks = False
"""Whether polars had threads in a process that this one was forked from."""


def _polars_has_threads() -> bool:
    if "polars" not in sys.modules:
        return False
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return True  # no way to know
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:  # ended meanwhile
            continue
    return any(re.match(r"polars-\d|async-executor", name) for name in names)


def _before() -> None:
    global _has_threads
    _has_threads = _deadlocks or _polars_has_threads()


def _in_child() -> None:
    global _deadlocks
    _deadlocks = _has_threads  # of the parent: here its threads are gone


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)


def check_not_forked(what: str) -> None:
    """Refuse what needs polars' threads in a process where it would wait for ever."""
    if _deadlocks:
        raise LogerError(
            f"{what} would deadlock: this process was forked from one in which polars had threads; "
            f"use the 'spawn' start method (multiprocessing.get_context('spawn')), or do this in "
            f"the parent"
        )
