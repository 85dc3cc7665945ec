"""Two or more bundles side by side: who gets which, by a hash of who asks."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from loger.errors import LogerError

LETTERS = "ABCDEFGHIJKLMNOP"
"""What variants are called, in the order in which their bundles are named."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The shares of variants; nothing is remembered, and the same user always gets the same one."""

    shares: tuple[float, ...] = (1.0,)
    """They add up to 1."""

    @classmethod
    def read(cls, text: str | None, bundles: int) -> Traffic:
        """Shares as ``90:10``; equal ones where there is no text.

        >>> Traffic.read("90:10", 2).shares
        (0.9, 0.1)
        """
        if bundles > len(LETTERS):
            raise LogerError(f"at most {len(LETTERS)} bundles side by side, got {bundles}")
        parts = ["1"] * bundles if text is None else text.split(":")
        try:
            shares = [float(part) for part in parts]
        except ValueError:
            shares = []
        total = sum(shares)
        if len(shares) != bundles or not total > 0 or not all(0 < x <= total for x in shares):
            raise LogerError(
                f"traffic is a share above 0 for each of {bundles} bundles, such as "
                f"{':'.join(['50'] * max(2, bundles))}; got {text!r}"
            )
        return cls(tuple(share / total for share in shares))

    def variant(self, who: str) -> int:
        """The number of the variant that somebody gets."""
        digest = blake2b(who.encode("utf-8", "replace"), digest_size=8, person=b"loger traffic")
        place = int.from_bytes(digest.digest(), "big") / 2**64
        for number, share in enumerate(self.shares):
            place -= share
            if place < 0:
                return number
        return len(self.shares) - 1
