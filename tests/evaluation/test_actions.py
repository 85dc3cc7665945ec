"""Measures over actions: by hand, against slow implementations, on known answers."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.engine import LocalEngine
from loger.evaluation.faithfulness import Contributions, RandomReasons
from loger.evaluation.faithfulness.actions import Scenes, by_actions, robust_fidelity, shown_actions
from loger.evaluation.faithfulness.report import LINES, FaithfulnessConfig, FaithfulnessReport
from loger.explain.questions import above, fewest_removals
from loger.metrics import faithfulness as measures

# ── by hand ──────────────────────────────────────────────────────────────────────────────


def test_the_share_carried_counts_the_largest_and_only_what_speaks_for_the_item():
    given = np.array([1.0, -2.0, 4.0, 0.5])
    assert [measures.carried(given, 8.0, n) for n in (1, 3, 5)] == [0.5, 5.5 / 8, 5.5 / 8]
    assert np.isnan(measures.carried(given, 0.0, 1))


def test_infidelity_is_the_mean_squared_error_beside_the_variance_within_an_item():
    rng = np.random.default_rng(3)
    given, lost = rng.normal(size=(4, 2)), rng.normal(size=(6, 2))
    subsets = rng.random((6, 4)) < 0.5
    error = variance = spread = together = 0.0
    for item in range(2):
        told = [sum(given[a, item] for a in range(4) if row[a]) for row in subsets]
        error += np.mean([(t - d) ** 2 for t, d in zip(told, lost[:, item], strict=True)])
        variance += np.var(lost[:, item])
        spread += np.var(told)
        together += np.cov(told, lost[:, item], bias=True)[0, 1]
    slow = (error, variance, spread, together)
    assert tuple(measures.infidelity(given, subsets, lost)) == pytest.approx(slow)


def test_greed_takes_the_best_next_step_and_the_area_is_the_mean_of_the_steps():
    worth = np.array([1.0, 5.0, 3.0])

    def cost(gone):
        return 10.0 - worth[list(gone)].sum()

    assert measures.greedy(3, 2, cost) == [1, 2]
    assert measures.area([1, 2, 0], 2, cost) == ((10 - 5) + (10 - 8)) / 2
    assert measures.by_contribution(np.array([1.0, 5.0, 5.0])) == [1, 2, 0]


def test_normalised_is_0_by_chance_1_by_the_oracle_and_undecidable_where_they_meet():
    assert measures.normalised(5.0, 5.0, 1.0, 0.1) == 0
    assert measures.normalised(5.0, 1.0, 1.0, 0.1) == 1
    assert measures.normalised(5.0, 7.0, 1.0, 0.1) == -0.5
    assert np.isnan(measures.normalised(5.0, 4.95, 4.9, 0.1))


def test_a_change_at_the_head_of_the_list_counts_more_than_one_at_its_end():
    whole = 1 + 1 / np.log2(3) + 1 / 2
    assert measures.list_change([1, 2, 3], [1, 2, 3]) == 0
    assert measures.list_change([1, 2, 3], [3, 1, 2]) == 0  # nothing is new
    assert measures.list_change([1, 2, 3], [9, 1, 2]) == pytest.approx(1 / whole)
    assert measures.list_change([1, 2, 3], [1, 2, 9]) == pytest.approx(0.5 / whole)
    assert measures.list_change([1, 2, 3], [7, 8, 9]) == 1


# ── a shop whose scores are sums over actions ────────────────────────────────────────────


class Sums:
    """A recommender whose scores are sums of what actions give; ``deaf``: they never change."""

    def __init__(self, n=40, length=6, seed=0, deaf=False) -> None:
        rng = np.random.default_rng(seed)
        self.own = np.arange(length)
        self.worth = rng.gamma(0.5, size=(length, n))
        self.appeal, self.deaf = rng.normal(size=n) / 10, deaf

    def history(self, user):
        return self.own

    def rescore(self, user, removed):
        kept = self.own if self.deaf else np.setdiff1d(self.own, removed)
        return self.appeal + self.worth[kept].sum(axis=0)

    def contributions(self, user, items):
        free = np.setdiff1d(np.arange(self.worth.shape[1]), self.own)
        beyond = self.worth - self.worth[:, free].mean(axis=1, keepdims=True)
        s = self.rescore(user, ())
        leads = s - s[free].mean()
        return Contributions(leads[items], beyond[:, items], np.empty((0, len(items))))


CONFIG = FaithfulnessConfig(k=5)


def report(acts, users=(0, 1, 2)):
    values = by_actions(acts, np.array(users), CONFIG, LocalEngine(1))
    return FaithfulnessReport("sums", "shop", len(users), CONFIG, values)


def test_where_scores_are_sums_their_terms_are_the_perfect_explanation():
    told = report(Sums())
    assert (told["r2"].mean, told["r2_scaled"].mean) == pytest.approx((1.0, 1.0))
    assert told["deletion"].mean == told["insertion"].mean == pytest.approx(1.0)
    assert told["r2_permuted"].mean < 0.5
    assert told["flip_first_action"].mean > told["flip_random_action"].mean
    assert told["flip_difference"].mean == pytest.approx(
        told["flip_first_action"].mean - told["flip_random_action"].mean
    )
    assert told["carried_1"].mean < told["carried_3"].mean <= told["carried_5"].mean
    assert told["pn_r"].mean == told["pn_r_middle"].mean > told["pn_r_random"].mean
    assert told["pn_r_short"] is told["pn_r_long"] is None
    assert told["fid_plus"].mean > told["fid_plus_others"].mean
    assert all(line in LINES or line.startswith("r2") for line in told.values)


def test_reasons_dealt_out_at_random_are_found_out_though_scores_are_the_same():
    true, random = report(Sums()), report(RandomReasons(Sums()))
    assert random["carried_5"].mean == pytest.approx(true["carried_5"].mean)
    assert random["r2"].mean < 0.5
    assert random["deletion"].mean < 0.5 > random["insertion"].mean
    assert random["flip_random_action"].mean == true["flip_random_action"].mean
    assert random["flip_first_action"].mean < true["flip_first_action"].mean
    assert random["fid_plus"].mean < true["fid_plus"].mean
    assert random["fid_minus"].mean > true["fid_minus"].mean


def test_random_reasons_are_as_good_as_chance_and_not_worse():
    random = RandomReasons(Sums())
    items = [20, 21, 22]
    firsts = [
        measures.by_contribution(column)[0]
        for user in range(400)
        for column in random.contributions(user, items).actions.T
    ]
    expected = len(firsts) / 6
    assert np.abs(np.bincount(firsts, minlength=6) - expected).max() < 4 * expected**0.5


def test_a_recommender_that_does_not_hear_of_removals_shows_it_by_itself():
    told = report(Sums(deaf=True))
    assert told["r2"] is told["deletion"] is told["insertion"] is None
    assert told["undecidable_deletion"].mean == told["undecidable_insertion"].mean == 1
    assert told["flip_first_action"].mean == told["pn_r"].mean == 0
    assert told["fid_plus"].mean == told["fid_minus"].mean == 0
    assert told["counterfactual_found"].mean == 0
    assert told["counterfactual_size"] is None


def test_the_flip_of_any_one_action_is_the_mean_over_all_of_them():
    acts = Sums()
    s = acts.rescore(0, ())
    s[acts.own] = -np.inf
    best = np.argsort(-s)[:5]
    flips = []
    for item in best:
        for gone in range(6):
            t = acts.rescore(0, [gone])
            t[acts.own] = -np.inf
            flips.append(item not in np.argsort(-t)[:5])
    assert report(acts, [0])["flip_random_action"].mean == pytest.approx(np.mean(flips))


def test_random_parts_of_a_sum_cost_what_they_give():
    acts = Sums(length=3)
    acts.worth = np.zeros((3, 40))
    acts.worth[:, 20] = 9.0, 1.0, 0.5  # the first carries more than 80 % and is all that is shown
    acts.appeal = np.zeros(40)
    scenes, rng = Scenes(acts, 0), np.random.default_rng(0)
    told = acts.contributions(0, [20])
    assert shown_actions(told.actions[:, 0]) == [0]
    found = robust_fidelity(scenes, told, [20], rng)
    assert found["fid_plus"] == pytest.approx(9 / 10.5)
    assert 0.5 / 10.5 <= found["fid_plus_others"] <= 1 / 10.5
    assert 0.5 / 10.5 <= found["fid_minus"] <= 1.5 / 10.5
    assert found["fid_plus_difference"] == found["fid_plus"] - found["fid_plus_others"]


def test_where_all_actions_are_shown_there_is_nothing_to_compare_them_with():
    acts = Sums(length=1)
    found = robust_fidelity(Scenes(acts, 0), acts.contributions(0, [20]), [20], None)
    assert all(np.isnan(value) for value in found.values())


def test_the_greedy_oracle_of_a_sum_is_the_best_of_all_orders():
    acts = Sums(length=5)
    item, free = 20, np.arange(5, 40)

    def lead(gone):
        s = acts.rescore(0, sorted(gone))
        return s[item] - s[free].mean()

    slow = min(measures.area(order, 3, lead) for order in permutations(range(5)))
    assert measures.area(measures.greedy(5, 3, lead), 3, lead) == pytest.approx(slow)


def test_a_single_interaction_leaves_nothing_to_compare_and_is_not_an_error():
    told = report(Sums(length=1))
    assert told["r2"] is told["deletion"] is None
    assert told["undecidable_deletion"].mean == 1
    assert told["carried_1"] is not None


def test_users_are_drawn_with_their_errors_and_their_variances():
    sums = {"error": [1.0, 0.0], "variance": [2.0, 2.0], "told_variance": [8.0, 8.0]}
    sums |= {"covariance": [4.0, 4.0]}
    values = {f"r2:{part}": np.array([*own, np.nan]) for part, own in sums.items()}
    told = FaithfulnessReport("x", "y", 3, CONFIG, values)
    assert told["r2"].mean == 0.75
    assert told["r2"].users == 2
    assert 0.5 <= told["r2"].low <= told["r2"].mean <= told["r2"].high <= 1
    assert told["r2_scaled"].mean == 1  # twice as much as is true, but always
    assert told["r2_permuted"] is None


# ── the fewest actions ───────────────────────────────────────────────────────────────────


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))
def test_the_fewest_removals_are_those_of_brute_force_whatever_attribution_foresees(seed, n, k):
    rng = np.random.default_rng(seed)
    worth = rng.integers(0, 4, size=(n, 6)).astype(float)
    cross = rng.integers(0, 3, size=(n, n, 6))  # actions that only count together

    def scores(gone):
        kept = [a for a in range(n) if a not in gone]
        return worth[kept].sum(axis=0) + cross[np.ix_(kept, kept)].sum(axis=(0, 1))

    def gap(gone):
        return above(scores(gone), 0, [], k)

    brute = next(
        (size for size in (1, 2, 3) if any(gap(gone) < 0 for gone in combinations(range(n), size))),
        None,
    )
    found = fewest_removals(gap, scores(()), rng.normal(size=(n, 6)), k)
    assert found.exact
    assert (len(found.actions) or None) == brute
    assert not found.actions or gap(found.actions) < 0


def test_a_search_that_runs_out_says_so_and_the_foreseen_set_is_tried_first():
    given = np.zeros((30, 2))
    given[[4, 9], 0] = 1.0

    def gap(gone):
        return -1.0 if set(gone) == {4, 9} else 1.0

    leads = np.array([1.5, 0.0])
    found = fewest_removals(gap, leads, given, 1)
    assert (found.actions, found.exact, found.tried) == ((4, 9), True, 31)
    assert fewest_removals(gap, leads, given, 1, budget=31).actions == (4, 9)
    short = fewest_removals(gap, leads, given, 1, budget=30)
    assert (short.actions, short.exact) == ((), False)
    assert not fewest_removals(gap, leads, given, 1, most=1).actions


def test_an_item_is_above_the_kth_other_and_a_tie_is_lost_by_number():
    assert above([3.0, 5.0, 1.0], 0, [], 1) == -2
    assert above([3.0, 5.0, 1.0], 0, [1], 1) == 2
    assert above([3.0, 3.0], 1, [], 1) < 0 == above([3.0, 3.0], 0, [], 1)
    assert above([3.0, 5.0], 0, [], 2) == np.inf
