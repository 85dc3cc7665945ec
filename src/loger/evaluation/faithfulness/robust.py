"""Robust fidelity: what random parts of the shown reasons, and of the other actions, carry.

To remove all of an explanation asks for scores of a user who is like no other; to remove a random
part of it does not (Zheng et al., Towards Robust Fidelity, ICLR 2024). Fid₊ is the share of an
item's lead that goes with a random part of the actions that are shown as reasons, beside equally
many that are not; Fid₋ what goes with a random part of those that are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loger.evaluation.faithfulness.scenes import Contributions, Scenes, shown_actions
from loger.metrics.faithfulness import mean_of_known

DRAWS = 5
"""Random parts of each item's actions."""


def robust_fidelity(
    scenes: Scenes, told: Contributions, items: Sequence[int], rng: np.random.Generator
) -> dict[str, float]:
    """Fid₊, its control and Fid₋, the mean over items that have actions of both kinds."""
    rows = [
        _of_item(scenes, item, shown_actions(given), rng)
        for item, given in zip(items, told.actions.T, strict=False)
    ]
    plus, others, minus = (mean_of_known([row[k] for row in rows]) for k in range(3))
    return {
        "fid_plus": plus,
        "fid_plus_others": others,
        "fid_plus_difference": plus - others,
        "fid_minus": minus,
    }


def _of_item(
    scenes: Scenes, item: int, shown: Sequence[int], rng: np.random.Generator
) -> tuple[float, float, float]:
    """The share of an item's lead that is lost without a part of the shown actions, without
    equally many others, and without any part of the others."""
    others = [a for a in range(len(scenes.owned)) if a not in shown]
    before = scenes.lead(item, frozenset())
    if not shown or not others or before <= 0:
        return np.nan, np.nan, np.nan

    def lost(among: Sequence[int], n: int) -> float:
        gone = rng.choice(among, size=n, replace=False).tolist()
        return 1 - scenes.lead(item, frozenset(gone)) / before

    draws = []
    for _ in range(DRAWS):
        n = int(rng.integers(1, min(len(shown), len(others)) + 1))
        any_number = int(rng.integers(1, len(others) + 1))
        draws.append((lost(shown, n), lost(others, n), lost(others, any_number)))
    plus, control, minus = np.mean(draws, axis=0).tolist()
    return plus, control, minus
