"""A search that tunes one setting at a time, from coarse to fine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from loger.baselines import EASE, SequenceRules
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.metrics.grid_search import search, tune
from loger.recommender import part_matrix

PARTS = split(shop(users=80, items=60).dataset)
FITS: list[tuple[float, int]] = []


@dataclass
class Hill:
    """Ranks held-out items the better, the nearer its settings are to a summit: of the
    validation pairs it knows, it shows so many users theirs."""

    x: float
    y: int = 3
    tilt: float = 0.0
    name: str = "hill"
    SCORING = frozenset({"tilt"})
    truth: np.ndarray = field(default_factory=lambda: np.empty(0))

    def fit(self, split, *, progress=None):
        FITS.append((self.x, self.y))
        self.truth = part_matrix(split, "validation").toarray()
        return self

    def score(self, users):
        height = 1 / (1 + abs(self.x - 0.8) + abs(self.y - 7) + abs(self.tilt - 2))
        served = np.asarray(users) < height * len(self.truth)
        return (self.truth[users] * served[:, None]).astype(np.float32)


GRID = {"x": (0.0, 0.5, 1.0, 2.0), "y": (2, 5, 8), "tilt": (0.0, 1.0, 2.0, 4.0)}


def test_it_climbs_to_the_best_corner_and_then_looks_between():
    found = search(Hill, GRID, PARTS, users=None)
    coarse = tune(Hill, GRID, PARTS)
    assert coarse.settings == {"x": 1.0, "y": 8, "tilt": 2.0}
    assert found.settings == {"x": 0.707, "y": 8, "tilt": 2.0}
    assert found.value > coarse.value
    assert len(found.trials) < len(coarse.trials)
    assert found.value == max(value for _, value in found.trials)


def test_what_only_changes_scoring_is_not_fitted_again():
    FITS.clear()
    found = search(Hill, {"tilt": (0.0, 1.0, 2.0, 4.0), "x": (0.5,), "y": (5,)}, PARTS)
    assert found.settings["tilt"] == 2.0
    assert FITS == [(0.5, 5)]


@pytest.mark.parametrize("make", [EASE, SequenceRules])
def test_scoring_settings_changed_after_the_fit_are_as_good_as_given_before(make):
    late, early = make().fit(PARTS), make(recency=0.6, popularity=0.2).fit(PARTS)
    late.recency, late.popularity = 0.6, 0.2
    assert late.score([1, 2]).tobytes() == early.score([1, 2]).tobytes()


def test_fewer_users_are_drawn_by_the_seed_and_give_the_same_choice_again():
    one, again = (search(Hill, GRID, PARTS, users=20, seed=4) for _ in range(2))
    assert one == again
    assert one.trials != search(Hill, GRID, PARTS, users=20, seed=5).trials


def test_without_validation_or_values_there_is_nothing_to_choose_by():
    with pytest.raises(LogerError, match="validation"):
        search(Hill, GRID, PARTS.refit())
    with pytest.raises(LogerError, match="has no values"):
        search(Hill, {"x": ()}, PARTS)
