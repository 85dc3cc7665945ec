"""What an engine promises, so that the same blocks can run here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Block = TypeVar("Block")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, blocks done, blocks in all)."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


class Engine(Protocol):
    """Maps a function over blocks; results come in the order of the blocks."""

    def map(
        self, what: str, function: Callable[[Block], Result], blocks: Sequence[Block]
    ) -> Iterator[Result]:
        """Yield ``function(block)`` for each block, in order."""
        ...
