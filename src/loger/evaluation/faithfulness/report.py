"""The results of a faithfulness measurement, as tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loger.errors import UnknownNameError
from loger.graph.arrays import Doubles
from loger.metrics.faithfulness import Prediction
from loger.metrics.report import resampled_means

LINES: dict[str, str] = {
    "carried_1": "share of the lead that the first reason explains",
    "carried_3": "  the first three",
    "carried_5": "  the first five",
    "carried_of_actions_1": "share of all contributions that comes from the first reason",
    "carried_of_actions_3": "  the first three",
    "carried_of_actions_5": "  the first five",
    "r2": "how well contributions predict a removal (infidelity R²)",
    "r2_permuted": "  control: contributions shuffled",
    "r2_scaled": "  the same up to a constant and a factor (squared correlation)",
    "r2_scaled_permuted": "  control: contributions shuffled",
    "deletion": "removing the largest first: chance 0, greedy oracle 1",
    "insertion": "adding the largest first: chance 0, greedy oracle 1",
    "undecidable_deletion": "  items where the oracle removes no better than chance",
    "undecidable_insertion": "  items where the oracle adds no better than chance",
    "flip_first_action": "items that leave the list without their first action",
    "flip_random_action": "  control: without any one action",
    "flip_difference": "  difference, user by user",
    "pn_r": "share of the list that changes without the first item's reasons",
    "pn_r_random": "  control: without as many random actions",
    "pn_r_difference": "  difference, user by user",
    "pn_r_short": "  users of up to 4 interactions",
    "pn_r_middle": "  users of 5 to 9",
    "pn_r_long": "  users of 10 or more",
    "fid_plus": "lead lost without a random part of the shown reasons (Fid₊)",
    "fid_plus_others": "  control: without equally many other actions",
    "fid_plus_difference": "  difference, user by user",
    "fid_minus": "lead lost without a random part of the other actions (Fid₋)",
    "counterfactual_found": "first items that depend on up to three of the user's actions",
    "counterfactual_size": "  how many actions",
    "js_f": "JS_f: rules of the shown paths compared with history",
    "js_f_sampled": "JS_f with 1,000 sampled paths of history",
    "js_w": "JS_w: rule weights compared with history",
    "floor": "  floor: as many draws from history itself",
    "random": "  control: as many rules drawn at random",
    "random_w": "  control: equal weights for all rules",
    "emitted": "paths shown",
    "pathless": "users without any path, whose JS counts as 1",
    "validity": "validity",
    "along_rules": "share of paths that follow a rule",
    "coverage": "coverage@k",
    "decomposition_error": "decomposition error, largest",
    "recovered_rule": "planted reasons recovered: rule of the first path",
    "recovered_path": "planted reasons recovered: the exact path is among those shown",
    "recovered_action": "  the first reason is an action from which the planted rule starts",
    "recovered_very_action": "  it is the exact action of the first walk",
    "recoverable_very_action": "  ceiling: everything known except the dice",
    "reliability_error": "  confidence compared with how often reasons are right, mean error",
    "share_error": "  the same for their shares of a purchase's positive contributions",
    "changed_by_permuting": "first reasons changed by permuting rule weights",
    "repeatable": "two calls return equal bytes",
    "comprehensiveness": "lead lost without the facts of the shown paths",
    "insufficiency": "lead lost with only the facts of the shown paths",
    "flip": "items that leave the list without the facts of the shown paths",
    "flip_compared": "  of these, items with both controls",
    "flip_random_paths": "  control: random paths of the same pair",
    "flip_user_edges": "  control: random facts of the user",
    "flip_with_others": "  of these, items with as many other paths",
    "flip_other_paths": "  control: as many random paths that were not shown",
}
"""The lines of a report in order: actions, history, paths; last the deletion of paths, which
saturates where users have few interactions."""

LENGTHS: dict[str, float] = {"short": 4, "middle": 9, "long": np.inf}
"""Groups of histories, by the largest number of interactions."""

_PREDICTED = {
    "r2": ("r2", False),
    "r2_permuted": ("r2_permuted", False),
    "r2_scaled": ("r2", True),
    "r2_scaled_permuted": ("r2_permuted", True),
}
"""Lines that are ratios of sums over users: which sums, and whether a factor is allowed."""


SAMPLES, LEVEL = 1000, 0.95
"""Bootstrap samples, and the level of the intervals made of them."""


@dataclass(frozen=True, slots=True)
class FaithfulnessConfig:
    """How much to measure."""

    k: int = 10
    """Length of the lists."""
    paths: int = 3
    """Paths shown for each item; their facts are deleted together."""
    users: int | None = 50
    """Number of users, drawn among those with a history; 50 as in the paper, None for all."""
    probed: int | None = 50
    """Number of these users who are scored again without some facts; None for all."""
    counterfactuals: int = 1
    """Items of each probed user for which to find the fewest decisive actions."""
    curves: int = 3
    """Items of each probed user for which to remove and add actions one by one."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a measure over the users it is defined for, with a bootstrap interval."""

    mean: float
    low: float
    high: float
    users: int


@dataclass(frozen=True, eq=False)
class FaithfulnessReport:
    """Measures of one recommender on one data set."""

    name: str
    dataset: str
    n_users: int
    config: FaithfulnessConfig
    values: Mapping[str, Doubles]
    """By line, one value per user (or per case); NaN where it is not defined."""

    def __getitem__(self, line: str) -> Mean | None:
        """One measure; None if the recommender doesn't offer what it needs."""
        if line not in LINES:
            raise UnknownNameError("measure", line, LINES)
        if line in _PREDICTED:
            return self._predicted(*_PREDICTED[line])
        values = self.values.get(line, np.empty(0))
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        if line == "decomposition_error":
            worst = float(values.max())
            return Mean(worst, worst, worst, len(values))
        resampled = resampled_means(values[:, None], SAMPLES, self.config.seed)
        return self._interval(float(values.mean()), resampled, len(values))

    def _predicted(self, line: str, scaled: bool) -> Mean | None:
        """R² from sums over users; the bootstrap draws whole users."""
        parts = [self.values.get(f"{line}:{part}", np.empty(0)) for part in Prediction._fields]
        sums = np.stack(parts, axis=1)
        sums = sums[~np.isnan(sums).any(axis=1)]
        if not sums[:, 1].sum() > 0:  # nobody's scores depend on actions
            return None
        means = resampled_means(sums, SAMPLES, self.config.seed)
        means = np.concatenate([sums.mean(axis=0)[None], means[means[:, 1] > 0]])
        error, variance, predicted, covariance = means.T
        r2 = covariance**2 / (variance * predicted) if scaled else 1 - error / variance
        return self._interval(float(r2[0]), r2[1:], len(sums))

    def _interval(self, mean: float, resampled: Doubles, users: int) -> Mean:
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(resampled, [tail, 1 - tail])
        return Mean(mean, float(low), float(high), users)

    @property
    def ratios(self) -> dict[str, float]:
        """The deletion flip rate divided by that of each control, and each divergence on a scale
        from its floor (0) to its control (1); only those that are defined."""
        out = {}
        for rate, control, than in (
            ("flip_compared", "flip_random_paths", "random paths of the same pair"),
            ("flip_compared", "flip_user_edges", "random facts of the user"),
            ("flip_with_others", "flip_other_paths", "as many paths that were not shown"),
        ):
            flip, other = self[rate], self[control]
            if flip is not None and other is not None and other.mean > 0:
                out[f"items leave the list this many times as often as without {than}"] = (
                    flip.mean / other.mean
                )
        floor = self["floor"]
        for line, control in (("js_f", "random"), ("js_w", "random_w")):
            here, end = self[line], self[control]
            if floor is not None and here is not None and end is not None:
                way = end.mean - floor.mean
                if way:  # a single rule leaves no way to go
                    name = line.replace("js", "JS")
                    out[f"{name} on a scale from its floor (0) to its control (1)"] = (
                        here.mean - floor.mean
                    ) / way
        return out

    def as_dict(self) -> dict[str, Any]:
        """Everything except the values of single users, for JSON."""
        lines = {line: self[line] for line in LINES}
        return {
            "name": self.name,
            "dataset": self.dataset,
            "users": self.n_users,
            "config": asdict(self.config),
            "lines": {k: None if m is None else asdict(m) for k, m in lines.items()},
            "ratios": self.ratios,
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False)

    def table(self) -> str:
        """The report for people."""
        rows = [f"{self.name} on {self.dataset}, {self.n_users} users, k = {self.config.k}"]
        for line, title in LINES.items():
            m = self[line]
            if m is None:
                rows.append(f"{title:<64} –")
            elif line in ("decomposition_error", "repeatable"):
                rows.append(f"{title:<64} {m.mean:.3g}")
            else:
                rows.append(f"{title:<64} {m.mean:.3f} [{m.low:.3f}, {m.high:.3f}] n = {m.users}")
        rows += [f"{title:<64} {ratio:.2f}" for title, ratio in self.ratios.items()]
        return "\n".join(rows)
