"""Measures of faithfulness, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from loger.evaluation.metrics import faithfulness as fa
from loger.evaluation.recommender import ExplainedItem
from loger.graph import KnowledgeGraph, Path, Relation, Vocabulary
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


def additive(supports, others):
    """Item 0 has the sum of its supports that are left, the others stay."""

    def rescore(removed):
        gone = {edge[2] for edge in removed}
        return np.array([sum(s for a, s in enumerate(supports) if a not in gone), *others])

    return [[(0, 0, a)] for a in range(len(supports))], rescore


@pytest.mark.parametrize(
    ("supports", "others", "actions", "exact"),
    [
        ([1.0, 5.0, 1.0], [3.0], (1,), True),
        ([2.0, 2.0, 2.0], [3.0], (0, 1), True),
        ([2.0, 2.0, 2.0, 2.0], [3.0], (0, 1, 2), True),
        ([1.0] * 6, [2.5], (0, 1, 2, 3), False),
        ([1.0, 1.0], [-1.0], None, None),
    ],
)
def test_the_fewest_actions_that_drop_an_item_are_found(supports, others, actions, exact):
    own, rescore = additive(supports, others)
    found = fa.minimal_counterfactual(own, rescore, item=0, known=[], k=1)
    if actions is None:
        assert found is None
    else:
        assert found is not None
        assert (found.actions, found.exact) == (actions, exact)


def test_a_pair_that_greed_passes_by_is_found():
    """Action 0 costs most alone, but only 1 and 2 together, who vouch for each other, do it."""
    own = [[(0, 0, a)] for a in range(6)]

    def rescore(removed):
        gone = {edge[2] for edge in removed}
        item = 10.0 - (2.0 if 0 in gone else 0.0) - 1.2 * len(gone & {3, 4, 5})
        return np.array([item - (6.0 if {1, 2} <= gone else 0.0), 5.0])

    found = fa.minimal_counterfactual(own, rescore, item=0, known=[], k=1)
    assert found == fa.Counterfactual((1, 2), exact=True)
    assert fa.minimal_counterfactual(own, rescore, 0, [], 1, max_pairs=3) == fa.Counterfactual(
        (0, 3, 4, 5), exact=False
    )


def test_pairs_are_tried_up_to_their_limit():
    """Four actions make six pairs; only the last two together suffice, and greed takes three."""
    own = [[(0, 0, a)] for a in range(4)]

    def rescore(removed):
        gone = {edge[2] for edge in removed}
        item = 10.0 - 2.0 * len(gone & {0, 1}) - 0.1 * len(gone & {2, 3})
        return np.array([item - (6.0 if {2, 3} <= gone else 0.0) - 2.0 * (len(gone) > 2), 5.0])

    def fewest(max_pairs):
        return fa.minimal_counterfactual(own, rescore, 0, [], 1, max_pairs=max_pairs)

    assert fewest(6) == fa.Counterfactual((2, 3), exact=True)
    assert fewest(5) == fa.Counterfactual((0, 1, 2), exact=False)


def test_three_actions_are_the_fewest_only_if_all_pairs_were_tried():
    own, rescore = additive([2.0, 2.0, 2.0, 2.0], [3.0])  # six pairs
    for max_pairs, exact in ((6, True), (5, False), (7, True)):
        found = fa.minimal_counterfactual(own, rescore, 0, [], 1, max_pairs=max_pairs)
        assert found == fa.Counterfactual((0, 1, 2), exact=exact)


def test_greed_stops_at_the_most_actions_and_then_pairs_are_tried():
    own, rescore = additive([1.0] * 6, [0.5])
    assert fa.minimal_counterfactual(own, rescore, 0, [], 1) is None
    found = fa.minimal_counterfactual(own, rescore, 0, [], 1, max_actions=6)
    assert found == fa.Counterfactual((0, 1, 2, 3, 4, 5), exact=False)
    own, rescore = additive([1.0] * 6, [1.5])
    found = fa.minimal_counterfactual(own, rescore, 0, [], 1)
    assert found == fa.Counterfactual((0, 1, 2, 3, 4), exact=False)
    assert fa.minimal_counterfactual(own, rescore, 0, [], 1, max_actions=4) is None


def test_a_thousand_pairs_are_tried_by_default():
    for n, exact in ((45, True), (46, False)):  # 990 and 1,035 pairs
        own, rescore = additive([9.0, 9.0, 9.0, *[0.0] * (n - 3)], [5.0])
        found = fa.minimal_counterfactual(own, rescore, 0, [], 1)
        assert found == fa.Counterfactual((0, 1, 2), exact=exact)


def test_an_item_stays_in_the_list_while_fewer_than_k_others_could_replace_it():
    own = [[(0, 0, 0)]]
    gone = lambda removed: np.array([0.0 if removed else 9.0, 5.0, 5.0, -np.inf])  # noqa: E731
    found = [fa.minimal_counterfactual(own, gone, 0, known, k) for known, k in
             (([], 2), ([], 3), ([2], 1), ([2], 2), ([1, 2], 1))]  # fmt: skip
    assert [f is not None for f in found] == [True, False, True, False, False]
    whole = lambda removed: np.array([0 if removed else 9, 5])  # noqa: E731
    assert fa.minimal_counterfactual(own, whole, 0, [], 1) is not None


def test_a_tie_lost_by_number_is_out_of_the_list_and_one_won_is_in():
    own = [[(0, 0, 0)]]
    tie = lambda removed: np.array([1.0, 1.0 if removed else 2.0])  # noqa: E731
    assert fa.minimal_counterfactual(own, tie, item=1, known=[], k=1) is not None
    won = lambda removed: np.array([1.0 if removed else 2.0, 1.0])  # noqa: E731
    assert fa.minimal_counterfactual(own, won, item=0, known=[], k=1) is None


def test_recovery_tells_rule_from_path_and_first_from_any():
    other_brand = Path((0, 9, 4, 3), (0, 1, 3))
    found = fa.reason_recovery(
        [[BRAND], [other_brand, CROWD], [CROWD, BRAND], []], [BRAND, BRAND, BRAND, BRAND]
    )
    assert found.rule_first.tolist() == [True, True, False, False]
    assert found.rule_any.tolist() == [True, True, True, False]
    assert found.path_first.tolist() == [True, False, False, False]
    assert found.path_any.tolist() == [True, False, True, False]
