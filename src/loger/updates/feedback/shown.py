"""What is kept of a list that was recommended: items, scores, and the reasons that were shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

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
