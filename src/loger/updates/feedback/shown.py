"""What is shown to whom: which bundle somebody gets, and what is kept of a list that was
recommended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex
from typing import Any

from loger.errors import LogerError

DIGITS = 4
"""Of scores and contributions."""


def new_id(variant: int) -> str:
    """A new ``recommendation_id``; its first sign is the variant."""
    return f"{variant:x}{token_hex(8)[1:]}"


def variant_of(recommendation_id: str) -> int:
    """The variant that a list was of."""
    return int(recommendation_id[0], 16)


def shown(rows: Sequence[Mapping[str, Any]], bundle: str, propensity: float) -> str:
    """A list as it is kept, by the records of ``loger.explain.lists.recommendations``: which
    bundle made it, how likely it was to be asked, and what each item's reasons gave it."""
    items = [
        {
            "item": row["item"],
            "score": round(row["score"], DIGITS),
            "reasons": None if row["explanation"] is None else _reasons(row["explanation"]),
        }
        for row in rows
    ]
    record = {"bundle": bundle, "propensity": propensity, "items": items}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _reasons(explanation: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "relation": reason["relation"],
            "of": reason["entity"]["name"],
            "total": round(reason["total"], DIGITS),
            "encoder": round(reason["encoder"], DIGITS),
            "rules": {e["rule"]: round(e["contribution"], DIGITS) for e in reason["evidence"]},
        }
        for reason in explanation["reasons"]
    ]


def kind_of(reasons: Sequence[Mapping[str, Any]] | None) -> str:
    """How the first reason argues: by which relation of the user, and by rules or the encoder."""
    if reasons is None:
        return "not explained"
    if not reasons:
        return "no reason"
    first = reasons[0]
    by = "rules" if sum(first["rules"].values()) >= first["encoder"] else "the encoder"
    return f"{first['relation']}, by {by}"


def rules_of(reasons: Sequence[Mapping[str, Any]] | None) -> set[str]:
    """The rules that the shown reasons name."""
    return {rule for reason in reasons or () for rule in reason["rules"]}


# ── which bundle somebody gets ──────────────────────────────────────────────────────────


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
