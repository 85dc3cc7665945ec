"""Notes on what was handled rather than refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """Something in the input that was handled rather than refused, so that nothing is silent."""

    what: str
    count: int
    example: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.count:,}" + (
            f" (first: {self.example})" if self.example else ""
        )
