"""What an engine promises, so that the same blocks can run here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Shared = TypeVar("Shared")
Block = TypeVar("Block")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, blocks done, blocks in all)."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


class Engine(Protocol):
    """Maps a function over blocks; results come in the order of the blocks."""

    def with_progress(self, progress: Progress) -> Engine:
        """The same engine, reporting to another callback."""
        ...

    def map(
        self,
        what: str,
        fn: Callable[[Shared, Block], Result],
        blocks: Sequence[Block],
        shared: Shared,
    ) -> Iterator[Result]:
        """Yield ``fn(shared, block)`` for each block, in order, a few blocks ahead at most.

        ``fn`` is a function of a module, not a closure: it may run in another process. It reads
        ``shared``, which all blocks have in common, and never writes into it or into the block;
        all that it finds is in what it returns. Products run on one thread per worker.
        """
        ...
