"""Measures of faithfulness against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from loger.graph import KnowledgeGraph, Path, Relation, Vocabulary
from loger.metrics import faithfulness as fa
from loger.recommender import ExplainedItem
from loger.rules import RuleSet, make_rule


def graph() -> KnowledgeGraph:
    """ann has ink; ben has ink and pen; ink and pen are of Acme."""
    words = Vocabulary({"user": ["ann", "ben"], "item": ["ink", "pen"], "brand": ["Acme"]})
    relations = [Relation("purchase", "user", "item"), Relation("has_brand", "item", "brand")]
    return KnowledgeGraph.from_triples(
        words, relations, [0, 1, 1, 2, 3], [0, 0, 0, 1, 1], [2, 2, 3, 4, 4]
    )


BRAND, CROWD = Path((0, 2, 4, 3), (0, 1, 3)), Path((0, 2, 1, 3), (0, 2, 0))


def rules() -> RuleSet:
    return RuleSet((make_rule(graph(), (0, 1, 3)), make_rule(graph(), (0, 2, 0))))


# ── distributions ───────────────────────────────────────────────────────────────────────


def test_jensen_shannon_by_hand():
    # p = (1, 0), q = (½, ½), m = (¾, ¼): ½·log2(4/3) + ½·(½·log2(2/3) + ½·log2 2)
    by_hand = 0.5 * np.log2(4 / 3) + 0.5 * (0.5 * np.log2(2 / 3) + 0.5 * np.log2(2))
    assert fa.jensen_shannon([[1, 0]], [[0.5, 0.5]])[0] == pytest.approx(by_hand)
    assert by_hand == pytest.approx(0.3112781)


shares = st.floats(0, 1, allow_subnormal=False)
distributions = st.lists(shares, min_size=5, max_size=5).filter(lambda x: sum(x) > 1e-6)


@given(distributions, distributions)
def test_jensen_shannon_equals_scipys_squared_distance(p, q):
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    found = fa.jensen_shannon([p], [q])[0]
    assert found == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-9)
    assert found == pytest.approx(fa.jensen_shannon([q], [p])[0], abs=1e-12)
    assert 0 <= found <= 1 + 1e-12


def test_a_share_of_next_to_nothing_diverges_by_nothing():
    """Half of the least positive number is 0, which is no divisor (SciPy's answer is NaN)."""
    assert fa.jensen_shannon([[5e-324, 1]], [[0, 1]])[0] == 0


def test_a_user_without_paths_has_no_distribution_and_no_divergence():
    p = fa.shares([[0, 0], [2, 6]])
    assert np.isnan(p[0]).all()
    assert p[1].tolist() == [0.25, 0.75]
    assert fa.shares([[0.125, 0.375]]).tolist() == [[0.25, 0.75]]
    found = fa.jensen_shannon(p, [[1, 0], [0.25, 0.75]])
    assert np.isnan(found[0])
    assert found[1] == 0


def test_draws_are_shares_of_n_and_come_near_the_distribution():
    p = np.array([[0.2, 0.8], [np.nan, np.nan], [1.0, 0.0]])
    few = fa.drawn(p, 20, np.random.default_rng(0))
    assert (few[0] * 20 == np.rint(few[0] * 20)).all()
    assert np.isnan(few[1]).all()
    assert few[2].tolist() == [1.0, 0.0]
    assert fa.drawn(p, 10**6, np.random.default_rng(0))[0] == pytest.approx(p[0], abs=0.003)


def test_a_sampled_history_is_exact_where_there_are_few_paths():
    counts = np.array([[3, 7], [60_000, 40_000]])
    found = fa.sampled_history(counts, np.random.default_rng(1))
    assert found[0].tolist() == [0.3, 0.7]
    assert found[1] != pytest.approx([0.6, 0.4], abs=1e-9)
    assert found[1] == pytest.approx([0.6, 0.4], abs=0.06)
    assert (found[1] * fa.SAMPLED == np.rint(found[1] * fa.SAMPLED)).all()
    edge = fa.sampled_history([[6, 4], [6, 5]], np.random.default_rng(1), n=10)
    assert edge[0].tolist() == [0.6, 0.4]
    assert (edge[1] * 10 == np.rint(edge[1] * 10)).all()


def test_rounding_does_not_make_a_distribution_too_large_to_draw_from():
    p = fa.shares(np.random.default_rng(0).random((2000, 7)))
    assert (p[:, :-1].sum(axis=1) <= 1).all()
    over = np.array([[np.nextafter(1.0, 2.0), -1e-17]])
    assert fa.drawn(over, 5, np.random.default_rng(0)).tolist() == [[1.0, 0.0]]


def test_emitted_paths_are_the_best_of_each_item_by_rank_until_there_are_enough():
    own = [
        ExplainedItem(5, 3.0, (BRAND, CROWD), (0.9, 0.1)),
        ExplainedItem(4, 2.0),
        ExplainedItem(3, 1.0, (CROWD,)),
        ExplainedItem(2, 0.5, (BRAND,), (0.3,)),
    ]
    assert fa.emitted(own) == [(BRAND, 0.9), (CROWD, 1.0), (BRAND, 0.3)]
    assert fa.emitted(own, n=2) == [(BRAND, 0.9), (CROWD, 1.0)]


def test_paths_are_counted_and_weighed_by_rule_with_a_column_for_no_rule():
    stray = Path((0, 2), (0,))
    lists = [[(BRAND, 0.5), (CROWD, 2.0), (BRAND, 0.25)], [(stray, 4.0)], []]
    assert fa.rule_masses(lists, rules()).tolist() == [[2, 1, 0], [0, 0, 1], [0, 0, 0]]
    weighed = fa.rule_masses(lists, rules(), weighted=True)
    assert weighed.tolist() == [[0.75, 2, 0], [0, 0, 4], [0, 0, 0]]


def test_importance_is_positive_weight_times_count():
    found = fa.importance([2.0, -1.0, 1.0], [[1, 5, 2], [0, 3, 0]])
    assert found[0].tolist() == [0.5, 0.0, 0.5]
    assert np.isnan(found[1]).all()


# ── paths ───────────────────────────────────────────────────────────────────────────────


def test_a_path_is_valid_only_as_facts_from_this_user_to_this_item():
    assert fa.is_valid(BRAND, graph(), user=0, item=1)
    assert not fa.is_valid(BRAND, graph(), user=1, item=1)
    assert not fa.is_valid(BRAND, graph(), user=0, item=0)
    assert not fa.is_valid(Path((0, 3), (0,)), graph(), user=0, item=1)  # no such fact
    back = Path((1, 3, 1, 3), (0, 2, 0))
    assert back.exists(graph())
    assert not fa.is_valid(back, graph(), user=1, item=1)


def test_facts_of_paths_come_once_in_their_base_direction():
    assert fa.facts_of([BRAND, CROWD], graph()) == (
        (0, 0, 2), (1, 0, 2), (1, 0, 3), (2, 1, 4), (3, 1, 4),
    )  # fmt: skip


def test_coverage_counts_items_with_a_path():
    with_path, without = ExplainedItem(0, 1.0, (BRAND,)), ExplainedItem(1, 0.5)
    found = fa.coverage([[with_path, without], [], [with_path]])
    assert found[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(found[1])


def test_digests_agree_only_for_equal_bytes():
    one = [[ExplainedItem(0, 0.1 + 0.2, (BRAND,), (1.0,))]]
    assert fa.digest(one) == fa.digest([[ExplainedItem(0, 0.1 + 0.2, (BRAND,), (1.0,))]])
    assert fa.digest(one) != fa.digest([[ExplainedItem(0, 0.3, (BRAND,), (1.0,))]])
    assert fa.digest(one) != fa.digest([[ExplainedItem(0, 0.1 + 0.2, (CROWD,), (1.0,))]])
    assert fa.digest([[], one[0]]) != fa.digest([one[0], []])


def test_changed_counts_first_reasons_that_are_others():
    a, b, c = (
        ExplainedItem(0, 1.0, (BRAND, CROWD)),
        ExplainedItem(1, 0.5, (CROWD,)),
        ExplainedItem(2, 0.1),
    )
    swapped = ExplainedItem(0, 1.0, (CROWD, BRAND))
    assert fa.changed([[a, b, c, a]], [[c, b, swapped]])[0] == 0.5
    assert fa.changed([[a, b]], [[b, a]])[0] == 0  # the same items for the same reasons
    nobody = fa.changed([[], [a]], [[a], []])
    assert np.isnan(nobody[0])
    assert nobody[1] == 1
    with pytest.raises(ValueError, match="zip"):
        fa.changed([[a], [b]], [[a]])


def test_means_leave_out_what_is_not_known():
    assert fa.mean_of_known([1.0, np.nan, 2.0]) == 1.5
    assert np.isnan(fa.mean_of_known([np.nan]))
    assert np.isnan(fa.mean_of_known([]))


# ── scores anew ─────────────────────────────────────────────────────────────────────────


def test_ranks_leave_known_items_out_and_break_ties_by_number():
    scores = [5, 3, 3, 9]
    assert [fa.rank(scores, i, [3]) for i in (0, 1, 2)] == [0, 1, 2]
    assert fa.rank(scores, 0, []) == 1
    assert fa.rank(scores, 1, [0, 3]) == 0
    assert scores == [5, 3, 3, 9]


def test_the_lost_lead_is_a_share_of_what_the_item_was_ahead_by():
    # Mean of items 0, 1, 2: 2 before; after, item 0 falls to 3, the mean to 4/3.
    before, after = [5.0, 1.0, 0.0, 99.0], [3.0, 1.0, 0.0, 0.0]
    assert fa.lead(before, 0, [3]) == 3.0
    assert fa.lost_lead(before, after, 0, [3]) == pytest.approx((3 - (3 - 4 / 3)) / 3)
    assert np.isnan(fa.lost_lead(before, after, 2, [3]))  # it had no lead to lose
    assert np.isnan(fa.lost_lead([1, 1], [2, 1], 0, []))
    assert fa.lead([5, 4, 0], 0, []) == 2
    assert fa.lost_lead([1.0, 0.5], [1.0, 1.0], 0, []) == 1  # a lead of a quarter, gone
    assert fa.lead([5.0, -np.inf, 1.0], 0, []) == 2  # what is never recommended has no part


def test_recovery_is_of_the_first_paths_rule_and_of_the_path_among_all():
    other_brand = Path((0, 9, 4, 3), (0, 1, 3))
    rule, path = fa.reason_recovery(
        [[BRAND], [other_brand, CROWD], [CROWD, BRAND], []], [BRAND, BRAND, BRAND, BRAND]
    )
    assert rule.tolist() == [1, 1, 0, 0]
    assert path.tolist() == [1, 0, 1, 0]


def test_reliability_is_the_gap_between_what_is_said_and_what_is_right():
    assert fa.reliability_error([0.25] * 4, [True, False, False, False]) == 0
    assert fa.reliability_error([0.5, 0.5, 0.95, 0.95], [True] * 4) == pytest.approx(0.275)
    assert np.isnan(fa.reliability_error([], []))
