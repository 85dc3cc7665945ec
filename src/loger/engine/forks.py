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

_orphaned = [False]
"""Whether polars had threads in the process that this one was forked from."""


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
    _orphaned[0] = _orphaned[0] or _polars_has_threads()


def _in_parent() -> None:
    _orphaned[0] = _inherited[0]


def _in_child() -> None:
    _inherited[0] = _orphaned[0]


_inherited = [False]
"""What this process itself was born with; the other is of the child that is being forked."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


def check_not_forked(what: str) -> None:
    """Refuse, in a process where it would wait for ever, what needs polars' threads."""
    if _inherited[0]:
        raise LogerError(
            f"{what} would wait for ever here: this process was forked from one in which polars "
            f"had threads; start it with multiprocessing.get_context('spawn'), or do this in the "
            f"parent"
        )
