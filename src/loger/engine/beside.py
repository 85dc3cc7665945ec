"""Pieces of work in one thread, beside what its caller goes on with."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from threading import Event
from typing import Self, TypeVar

from loger.engine.protocol import Engine, Progress
from loger.engine.threads import numpy_on_one_thread

Result = TypeVar("Result")
SECONDS = 0.2
"""How often who waits is shown how far the work is."""


class _StoppedError(Exception):
    """The work is no longer wanted."""


class Beside:
    """A block beside which pieces of work are done, one after another, in a thread of their own.

    On an engine of one worker there is no such thread: each piece is done when its result is asked
    for. Leaving the block ends the piece under way at its next report of progress, so that an error
    or Ctrl-C need not wait for it. In the block NumPy has one core per product: whether anything
    runs beside must not be seen in the bytes.
    """

    def __init__(self, engine: Engine) -> None:
        alone = getattr(engine, "workers", 2) == 1
        self._pool = None if alone else ThreadPoolExecutor(1)
        self._last: tuple[str, int, int] | None = None
        self._stop = Event()
        self._one_thread = numpy_on_one_thread()

    def __enter__(self) -> Self:
        self._one_thread.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._one_thread.__exit__(None, None, None)

    def start(self, work: Callable[[Progress], Result]) -> Callable[[Progress], Result]:
        """Begin ``work(progress)``; what waits for its result, showing how far it is."""
        if self._pool is None:
            return work
        return partial(self._result, self._pool.submit(work, self._note))

    def _result(self, future: Future[Result], progress: Progress) -> Result:
        while not wait_for([future], SECONDS).done:
            self._show(progress)
        self._show(progress)
        return future.result()

    def _show(self, progress: Progress) -> None:
        if self._last is not None:
            progress(*self._last)

    def _note(self, what: str, done: int, total: int) -> None:
        """Keep how far the work is, for who waits: callbacks are called from one thread only."""
        if self._stop.is_set():
            raise _StoppedError
        self._last = (what, done, total)
