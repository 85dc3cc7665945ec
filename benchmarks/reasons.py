"""How much of an item's lead the shown reasons explain, and what it costs to find them.

loger fit ../shared/data/amazon-beauty -o beauty.bundle --hold-out
python benchmarks/reasons.py beauty.bundle --users 300      # the ten best items of each

Times are processor time of one thread, which other work on the machine affects little.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from loger.explain.attribution import Explanation
from loger.explain.by_action import ENOUGH
from loger.explain.lists import ListRequest, recommend_block
from loger.model import LOGER
from loger.ranking.ranker import Ranker

TIMED, BLOCK, K = 200, 64, 10
REQUEST = ListRequest(K, explain=True, paths=3)
REPEATS = 3
"""Each user is timed so often and the best counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("--users", type=int, default=1000)
    options = parser.parse_args()
    ranker = LOGER.load(options.bundle).ranker_
    n = ranker.graph.n_users
    users = np.sort(np.random.default_rng(0).choice(n, size=min(options.users, n), replace=False))
    blocks = [users[lo : lo + BLOCK] for lo in range(0, len(users), BLOCK)]
    found = [e for block in blocks for e in recommend_block(ranker, block, REQUEST).explanations]
    print(f"{len(found):,} items; parts miss the score by {max(map(missed, found)):.1e} at most")
    sums = [np.cumsum(np.sort(e.attribution.actions)[::-1]) for e in found]
    for shown in (1, 3, 5, 10):
        first = np.array([own[:shown][-1] for own in sums])
        leads, wholes = np.array([e.lead for e in found]), np.array([own[-1] for own in sums])
        of_lead, of_all = np.median(first / leads), np.median((first / wholes)[wholes > 0])
        print(f"{shown} reasons carry {of_lead:.1%} of the lead, {of_all:.1%} of what actions give")
    needed = [1 + int(np.argmax(own >= ENOUGH * own[-1])) for own in sums if own[-1] > 0]
    print(f"{np.median(needed):.0f} reasons carry {ENOUGH:.0%} of what actions give (all: medians)")
    lead, actions = (np.median([getattr(e, x) for e in found]) for x in SHARES)
    print(f"the shown reasons carry {lead:.1%} of the lead, {actions:.1%} of what actions give")
    times = np.array([[timed(ranker, user) for _ in range(REPEATS)] for user in users[:TIMED]])
    ranked, told = times.min(axis=1).T
    for what, times in (("ranking and attributing", ranked), ("with the reasons' texts", told)):
        half, tail = 1000 * np.quantile(times, [0.5, 0.99])
        print(f"{what}, {K} items of a user: {half:.1f} ms (median; 99 %: {tail:.1f})")


def timed(ranker: Ranker, user: int) -> tuple[float, float]:
    """Seconds to rank and attribute a user's items, and the same with the reasons' texts."""
    start = time.process_time()
    items = recommend_block(ranker, np.array([user]), REQUEST).explanations
    ranked = time.process_time() - start
    texts = [reason.text for e in items for reason in e.shown]
    return ranked, time.process_time() - start if texts else ranked


SHARES = ("carried", "carried_of_actions")


def missed(e: Explanation) -> float:
    """How far the parts are from the score, relative to it."""
    whole = e.mean + e.appeal + (e.opaque or 0.0) + float(e.attribution.actions.sum())
    return abs(whole - e.score) / max(1.0, abs(e.score))


if __name__ == "__main__":
    main()
