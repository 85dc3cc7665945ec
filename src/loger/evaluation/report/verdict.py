"""What a report comes to, in a paragraph for people who will not read the rest."""

from __future__ import annotations

from collections.abc import Sequence

from loger.evaluation.faithfulness.report import FaithfulnessReport
from loger.metrics.report import Report

CERTAIN = 0.05
"""p below which a difference between two methods is taken to be one."""
FEW = 200
"""Users below which figures are said to be rough."""
CARRIED = 0.5
"""The share of an item's lead below which its reasons are said to tell too little."""


def verdict(report: Report, faithfulness: Sequence[FaithfulnessReport] = ()) -> list[str]:
    """What is recommended well, how far the reasons carry, and what to do next: one text each."""
    texts = [_quality(report)]
    if faithfulness and (told := _reasons(faithfulness[0])):
        texts.append(told)
    return [*texts, f"Next: {_next(report, faithfulness)}."]


def _quality(report: Report) -> str:
    first, n = report.models[0], len(report.users)
    hits, ndcg = report.mean(first, "hit_rate"), report.mean(first, "ndcg")
    text = (
        f"For {hits:.0%} of {n:,} users, {first} has at least one item that they really took, and "
        f"that it had not been told, among its first {report.k} "
        f"(NDCG@{report.k} {100 * ndcg:.1f} %)"
    )
    if len(report.models) == 1:
        return f"{text}; no other method was measured."
    other = _strongest_other(report)
    difference = report.compare(first, other)
    points = f"{100 * abs(difference.difference):.1f} points of NDCG"
    if difference.p >= CERTAIN:
        apart = f"{points} apart, p = {difference.p:.2f}"
        return f"{text}; the best control, {other}, is about as good ({apart})."
    better = "better" if difference.difference > 0 else "worse"
    return f"{text}; that is {points} {better} than the best control, {other}."


def _strongest_other(report: Report) -> str:
    return max(report.models[1:], key=lambda model: report.mean(model, "ndcg"))


def _reasons(told: FaithfulnessReport) -> str:
    """How much the reasons say, and what happens without them."""
    carried, flip, control = (
        told[line] for line in ("carried_3", "flip_first_action", "flip_random_action")
    )
    parts = []
    if carried is not None:
        parts.append(
            f"an item's first three reasons carry {carried.mean:.0%} of its lead over the average "
            "item"
        )
    if flip is not None and control is not None:
        parts.append(
            f"without the action named first, {flip.mean:.0%} of the items leave the list, against "
            f"{control.mean:.0%} without any one action"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _next(report: Report, faithfulness: Sequence[FaithfulnessReport]) -> str:
    """The one thing that is most worth doing."""
    first = report.models[0]
    if len(report.models) > 1:
        other = _strongest_other(report)
        difference = report.compare(first, other)
        if difference.p < CERTAIN and difference.difference < 0:
            return (
                f"{other} ranks better here, so look at what it uses (loger compare tunes both), "
                "and add facts about the items"
            )
    carried = faithfulness[0]["carried_3"] if faithfulness else None
    if carried is not None and carried.mean < CARRIED:
        return (
            "much of the score has no reason that can be named; a lower em.opacity gives rules "
            "more of it, and more facts about the items give them more to say"
        )
    if len(report.users) < FEW:
        return "there are few users, so the figures are rough; measure again with more data"
    return "read some lists of people whom you know (loger serve)"
