"""Results in the order of their blocks, from whoever works on a few blocks at a time."""

from __future__ import annotations

import pickle
import reprlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager

from loger.engine.protocol import Block, Progress, Result, Shared
from loger.engine.threads import one_thread
from loger.errors import LogerError


def one_by_one(
    what: str,
    fn: Callable[[Shared, Block], Result],
    blocks: Sequence[Block],
    shared: Shared,
    progress: Progress,
) -> Iterator[Result]:
    """Yield ``fn(shared, block)`` for each block, each computed here when it is asked for."""
    for done, block in enumerate(blocks):
        progress(what, done, len(blocks))
        with naming(what, blocks, done):
            result = on_one_thread(fn, shared, block)
        yield result
    progress(what, len(blocks), len(blocks))


def in_order(
    what: str,
    submit: Callable[[Block], Future[Result]],
    blocks: Sequence[Block],
    ahead: int,
    progress: Progress,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Submit blocks and yield their results in order; at most ``ahead`` wait behind the first.

    So memory stays bounded however many blocks there are and whatever the caller does with each
    result. A caller that stops early, or an error, leaves nothing under way: ``stop`` is called,
    and blocks that have begun are waited for.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for k in range(len(blocks) + ahead):
            if k < len(blocks):
                waiting.append(submit(blocks[k]))
            if k >= ahead:
                done = k - ahead
                progress(what, done, len(blocks))
                with naming(what, blocks, done):
                    result = waiting[0].result()
                waiting.popleft()
                yield result
        progress(what, len(blocks), len(blocks))
    finally:
        stop()
        for future in waiting:
            future.cancel()
        wait(waiting)


def on_one_thread(fn: Callable[[Shared, Block], Result], shared: Shared, block: Block) -> Result:
    """One block, with one core per product."""
    with one_thread():
        return fn(shared, block)


@contextmanager
def naming(what: str, blocks: Sequence[object], k: int) -> Iterator[None]:
    """Note on an error which block it comes from."""
    try:
        yield
    except Exception as error:
        block = reprlib.repr(blocks[k])
        error.add_note(f"while {what}, in block {k + 1} of {len(blocks)}: {block}")
        raise


def sendable(error: Exception) -> Exception:
    """The error itself, or one that says the same if this one does not survive the way back."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        if isinstance(error, LogerError):
            return LogerError(str(error))
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
