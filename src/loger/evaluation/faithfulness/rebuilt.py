"""Two meanings of "removed", and how well contributions foretell each.

In the user's *view* a removed action speaks for no item, but it happened: the length of the history
and the ages of the other actions stay (``LogerActions``). In the *rebuilt* graph it never happened
(``RebuiltActions``), as ``LOGER.remove`` would leave the model. What the fit learned stays in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loger.engine import Engine
from loger.evaluation.faithfulness.actions import LogerActions, Scenes
from loger.explain.by_action import MAX_SHOWN
from loger.graph.arrays import Doubles
from loger.metrics.faithfulness import infidelity
from loger.metrics.report import resampled_means
from loger.ranking.ranker import Ranker

SETS, SINGLES, K = 8, 20, 10
"""Random sets of actions that are removed from each user, actions removed one by one, and items
whose losses are looked at."""


class RebuiltActions(LogerActions):
    """What LOGER says its users' actions give, and its scores as if some had never been."""

    def rescore(self, user: int, removed: Sequence[int]) -> Doubles:
        """S of all items by a graph built without some interactions."""
        built = self.ranker.rebuilt(user, removed)
        scores: Doubles = built.scores([user], observed=False).total[0].astype(np.float64)
        return scores


MEANINGS = ("the user's view", "the graph rebuilt", "… its scores times one factor")


def foretold(
    ranker: Ranker, users: Sequence[int], engine: Engine, seed: int = 0
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """How well contributions foretell what removal costs, by its meaning; means with intervals.

    ``r2`` is over random sets of up to five actions and the ten best items, ``r2_permuted`` the
    same with each item's contributions dealt out at random. ``rank`` is the rank correlation of the
    first item's contributions with its losses action by action, ``first`` how often both agree
    which action matters most. A rebuilt user is divided by another length, which rescales all
    scores and changes no order. So the last meaning multiplies the leads of each rebuilt user by
    the factor that brings them nearest to those of the view, over all items.
    """
    rows = list(engine.map("removing actions", _of_user, [(u, seed) for u in users], ranker))
    out = {}
    for meaning in MEANINGS:
        own = [row[meaning] for row in rows if row]
        sums = {line: np.array([one[line] for one in own]) for line in own[0]}
        out[meaning] = {
            "r2": _interval(1 - _ratio(sums, "error")),
            "r2_permuted": _interval(1 - _ratio(sums, "permuted_error")),
            "rank": _interval(_means(sums["rank"])),
            "first": _interval(_means(sums["first"])),
        }
    return out


def _of_user(ranker: Ranker, asked: tuple[int, int]) -> dict[str, dict[str, float]]:
    user, seed = asked
    view, rebuilt = Scenes(LogerActions(ranker), user), Scenes(RebuiltActions(ranker), user)
    n, items = len(view.owned), view.best(frozenset(), K)
    if n < 2 or not items:
        return {}
    rng = np.random.default_rng([seed, 0x2E8, user])
    claimed = view.acts.contributions(user, items).actions
    dealt = np.stack([rng.permutation(column) for column in claimed.T], axis=1)
    gone = np.zeros((SETS, n), dtype=bool)
    for row in gone:
        row[rng.choice(n, size=rng.integers(1, min(MAX_SHOWN, n - 1) + 1), replace=False)] = True
    some = np.sort(rng.choice(n, size=min(n, SINGLES), replace=False))
    sets = [*(np.flatnonzero(row).tolist() for row in gone), *([a] for a in some.tolist())]
    out = {}
    for meaning, left in zip(MEANINGS, _leads(view, rebuilt, items, sets), strict=True):
        lost = left[0] - left[1:]
        told, control = (infidelity(c, gone, lost[:SETS]) for c in (claimed, dealt))
        own, alone = claimed[some, 0], lost[SETS:, 0]
        out[meaning] = {
            "error": told.error,
            "permuted_error": control.error,
            "variance": told.variance,
            "rank": rank_correlation(own, alone),
            "first": float(own.argmax() == alone.argmax()),
        }
    return out


def _leads(
    view: Scenes, rebuilt: Scenes, items: Sequence[int], sets: Sequence[Sequence[int]]
) -> Doubles:
    """Leads of items with everything, then without each set; [meanings, 1 + sets, items]."""
    out = np.empty((len(MEANINGS), 1 + len(sets), len(items)))
    for k, gone in enumerate([(), *sets]):
        free = [np.delete(s.scores(frozenset(gone)), s.owned) for s in (view, rebuilt)]
        seen, built = (scores - scores.mean() for scores in free)
        factor = (seen @ built) / max(built @ built, 1e-300)
        for row, scenes in enumerate((view, rebuilt)):
            out[row, k] = [scenes.lead(v, frozenset(gone)) for v in items]
        out[2, k] = factor * out[1, k]
    return out


def rank_correlation(a: Doubles, b: Doubles) -> float:
    """Spearman's ρ, ties at their mean rank; NaN where either never varies.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.5, 0.6]))
    1.0
    """
    from scipy.stats import rankdata  # slow to import

    x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
    scale = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / scale) if scale > 0 else np.nan


def _means(values: Doubles) -> Doubles:
    """The mean, then those of samples of users."""
    known = values[~np.isnan(values)]
    return np.append(known.mean(), resampled_means(known[:, None], 1000, 0))


def _ratio(sums: Mapping[str, Doubles], line: str) -> Doubles:
    """A sum over users of errors over that of variances; then those of samples of users."""
    parts = np.stack([sums[line], sums["variance"]], axis=1)
    error, variance = np.concatenate([parts.mean(0)[None], resampled_means(parts, 1000, 0)]).T
    out: Doubles = error / variance
    return out


def _interval(values: Doubles) -> tuple[float, float, float]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)
