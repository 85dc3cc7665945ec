"""Faithfulness by other people's tests: the measures of LXR, SPINRec and CFExpRec.

They sort a user's history by an explanation of the user's first item, remove it step by step and
look what becomes of the item. Unlike our own measures (``actions``) they ask only for an order of
actions, so that any explainer can be measured (``explainers``).

- LXR (Barkan et al., WWW 2024): the history goes in ten equal bins, so there are eleven histories
  with the whole one, and each measure is a mean over them. POS@K: the item is among the first K
  when the most important goes first (less is better); NEG@K: when the least important does (more is
  better); CDCG: 1 / log₂(1 + rank) instead (less is better). DEL is the part of the lead that is
  left; INS the part that the removed actions make alone (more is better). The papers have
  probabilities there; ours is a part of the lead, which has no scale either.
- The refined form (SPINRec, Barkan et al. 2025): exactly 1 … 5 actions go, whatever the length.
- CFExpRec (2026): PN-S, whether the item leaves the list without the shown reasons, and which part
  of the list is new; PN-R, the same by place; POS-P and NEG-P, which part of the list stays in each
  of the ten bins; Gini of the importances and how many reasons are shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from loger.engine import Engine
from loger.evaluation.faithfulness.actions import Acts, Scenes, shown_actions
from loger.evaluation.faithfulness.explainers import Explainer
from loger.graph.arrays import Doubles
from loger.metrics.faithfulness import by_contribution, list_change, mean_of_known, rank
from loger.metrics.report import resampled_means

BINS, FEW, K = 10, 5, 10
LISTS = (5, 10, 20)
LESS_IS_BETTER = frozenset(
    ["pos_5", "pos_10", "pos_20", "del", "cdcg", "pos_10_few", "del_few", "cdcg_few", "pos_p"]
)


def removals(n: int, bins: int = BINS) -> list[int]:
    """How many of n actions are gone after each of some equal bins, from none to all.

    >>> removals(12, 5)
    [0, 3, 6, 8, 10, 12]
    """
    sizes = [len(part) for part in np.array_split(np.arange(n), bins)]
    return [0, *np.cumsum(sizes).tolist()]


def measured(scenes: Scenes, item: int, importance: Doubles) -> dict[str, float]:
    """All measures of one explanation of a user's first item."""
    order = by_contribution(importance)
    first = [frozenset(order[:n]) for n in removals(len(order))]
    last = [frozenset(order[len(order) - n :]) for n in removals(len(order))]
    few = [frozenset(order[:n]) for n in range(1, min(FEW, len(order)) + 1)]
    out = _along(scenes, item, first, "")
    out |= {f"neg_{k}": _kept(scenes, item, last, k) for k in LISTS}
    out["ins"] = _lead_left(scenes, item, [frozenset(order) - gone for gone in first])
    out |= _along(scenes, item, few, "_few", (K,))
    before = scenes.best(frozenset(), K)
    out["pos_p"] = float(np.mean([1 - _new(scenes, before, gone) for gone in first[1:]]))
    out["neg_p"] = float(np.mean([1 - _new(scenes, before, gone) for gone in last[1:]]))
    shown = shown_actions(importance)
    gone = frozenset(shown)
    out["pn_s"] = scenes.flips(item, gone, K)
    out["pn_s_list"] = _new(scenes, before, gone)
    out["pn_r"] = list_change(before, scenes.best(gone, K))
    return out | {"gini": gini(importance), "size": float(len(shown))}


def _along(
    scenes: Scenes,
    item: int,
    gone: Sequence[frozenset[int]],
    suffix: str,
    lists: Sequence[int] = LISTS,
) -> dict[str, float]:
    """POS@K, CDCG and DEL over some removals."""
    out = {f"pos_{k}{suffix}": _kept(scenes, item, gone, k) for k in lists}
    places = np.array([rank(scenes.scores(one), item, scenes.owned) + 1 for one in gone])
    out[f"cdcg{suffix}"] = float((1 / np.log2(1 + places)).mean())
    out[f"del{suffix}"] = _lead_left(scenes, item, gone)
    return out


def _kept(scenes: Scenes, item: int, gone: Sequence[frozenset[int]], k: int) -> float:
    return 1 - float(np.mean([scenes.flips(item, one, k) for one in gone]))


def _lead_left(scenes: Scenes, item: int, gone: Sequence[frozenset[int]]) -> float:
    whole = scenes.lead(item, frozenset())
    return float(np.mean([scenes.lead(item, one) for one in gone])) / whole if whole > 0 else np.nan


def _new(scenes: Scenes, before: Sequence[int], gone: frozenset[int]) -> float:
    """The part of the list that is new without some actions."""
    return len(set(scenes.best(gone, len(before))) - set(before)) / len(before)


def gini(importance: Doubles) -> float:
    """How unequal importances are, moved and scaled to [0, 1]: 0 if all are the same.

    >>> gini(np.array([0.0, 0.0, 0.0, 7.0]))
    0.75
    """
    low, high = importance.min(), importance.max()
    if low == high:
        return 0.0
    shares = np.sort(importance - low) / (importance - low).sum()
    n = len(shares)
    return float(1 - 2 * (shares * (n - np.arange(n) - 0.5) / n).sum())


# ── all explainers, the same users and items ────────────────────────────────────────────


class Line(NamedTuple):
    """A measure of one explainer, and how much better or worse than ours, user by user."""

    mean: float
    difference: float
    """Theirs less ours."""
    low: float
    high: float


class _Asked(NamedTuple):
    acts: Acts
    explainers: Mapping[str, Explainer]


def by_protocols(
    acts: Acts, explainers: Mapping[str, Explainer], users: Sequence[int], engine: Engine
) -> dict[str, dict[str, Doubles]]:
    """Explainer → measure → one value per user who has an item; ``ms`` is processor time."""
    rows = list(engine.map("explaining", _of_user, list(users), _Asked(acts, explainers)))
    known = [row for row in rows if row]
    return {
        name: {line: np.array([row[name][line] for row in known]) for line in known[0][name]}
        for name in explainers
    }


def _of_user(asked: _Asked, user: int) -> dict[str, dict[str, float]]:
    scenes = Scenes(asked.acts, user)
    best = scenes.best(frozenset(), 1)
    if not best or not len(scenes.owned):
        return {}
    out = {}
    for name, explainer in asked.explainers.items():
        fresh = Scenes(asked.acts, user)  # what others have asked for is not for free
        begun = time.process_time()
        importance = explainer(fresh, best[0])
        spent = time.process_time() - begun
        out[name] = {**measured(scenes, best[0], importance), "ms": 1000 * spent}
    return out


def compared(
    values: Mapping[str, Mapping[str, Doubles]], ours: str = "ours"
) -> dict[str, dict[str, Line]]:
    """Means, and paired differences from ours with 95% intervals over users."""
    out: dict[str, dict[str, Line]] = {}
    for name, lines in values.items():
        out[name] = {}
        for line, own in lines.items():
            differs = own - values[ours][line]
            differs = differs[~np.isnan(differs)]
            low, high = np.quantile(resampled_means(differs[:, None], 1000, 0), [0.025, 0.975])
            mean = mean_of_known(own.tolist())
            out[name][line] = Line(mean, float(differs.mean()), float(low), float(high))
    return out
