"""How much of an item's lead the shown reasons carry, and what it costs to find them.

loger fit ../shared/data/amazon-beauty -o beauty.bundle
python benchmarks/reasons.py beauty.bundle          # the ten best items of 1,000 users
"""

from __future__ import annotations

import sys
import time

import numpy as np

from loger.explain.attribution import Explanation
from loger.explain.lists import explain_top
from loger.model import LOGER
from loger.ranker import Ranker

USERS, TIMED, BLOCK, K = 1000, 200, 64, 10
REPEATS = 3
"""Each user is timed so often and the best counts: other work on the machine is not ours."""


def main() -> None:
    ranker = LOGER.load(sys.argv[1]).ranker_
    n = ranker.graph.n_users
    users = np.sort(np.random.default_rng(0).choice(n, size=min(USERS, n), replace=False))
    blocks = [users[lo : lo + BLOCK] for lo in range(0, len(users), BLOCK)]
    found = [e for block in blocks for e in explain_top(ranker, block, K)[1]]
    print(f"{len(found):,} items; parts miss the score by {max(map(missed, found)):.1e} at most")
    for shown in (1, 3, 5):
        totals = [np.sort(e.attribution.actions)[::-1][:shown].sum() / e.lead for e in found]
        print(f"{shown} reasons carry {np.median(totals):.1%} of the lead (median)")
    lead, actions = (np.median([getattr(e, x) for e in found]) for x in SHARES)
    print(f"the shown reasons carry {lead:.1%} of the lead, {actions:.1%} of what actions give")
    times = np.array([[timed(ranker, user) for _ in range(REPEATS)] for user in users[:TIMED]])
    ranked, told = times.min(axis=1).T
    for what, times in (("ranking and attributing", ranked), ("with the reasons' texts", told)):
        half, tail = 1000 * np.quantile(times, [0.5, 0.99])
        print(f"{what}, {K} items of a user: {half:.1f} ms (median; 99 %: {tail:.1f})")


def timed(ranker: Ranker, user: int) -> tuple[float, float]:
    """Seconds to rank and attribute a user's items, and the same with the reasons' texts."""
    start = time.perf_counter()
    _, items = explain_top(ranker, np.array([user]), K)
    ranked = time.perf_counter() - start
    texts = [reason.text for e in items for reason in e.shown]
    return ranked, time.perf_counter() - start if texts else ranked


SHARES = ("carried", "carried_of_actions")


def missed(e: Explanation) -> float:
    """How far the parts are from the score, relative to it."""
    whole = e.mean + e.appeal + (e.opaque or 0.0) + float(e.attribution.actions.sum())
    return abs(whole - e.score) / max(1.0, abs(e.score))


if __name__ == "__main__":
    main()
