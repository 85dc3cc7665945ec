"""Rule mining: planted rules on top, measures equal counts by hand, every drop reported."""

import json
from collections import Counter
from itertools import combinations
from math import isnan, log
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import build, dense_groundings, graphs, vocabulary
from loger.data import from_frames, split
from loger.data.demo import PLANTED, shop
from loger.errors import LogerError
from loger.graph import INTERACTION
from loger.logic import mining
from loger.logic.mining import MiningConfig, mine
from loger.rules import candidates

EVERYTHING = MiningConfig(min_support=0, min_lift=0, max_rules=10**6)


@pytest.fixture(scope="module", autouse=True)
def no_share():
    """Small graphs: rules that reach no observed pair are measured too."""
    with mock.patch.object(mining, "SUPPORT_SHARE", 0):
        yield


@pytest.fixture(scope="module")
def demo_graph():
    return split(shop().dataset).graph


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_planted_rules_come_out_on_top(seed):
    mined = mine(split(shop(seed).dataset).graph)
    assert {rule.names for rule in mined.rules.rules[: len(PLANTED)]} == set(PLANTED)


def fires(graph, rules):
    """Whether each rule has a simple path for each pair; [users, items, rules]."""
    found = [
        [dense_groundings(graph, rules, u, v) for v in range(graph.n_items)]
        for u in range(graph.n_users)
    ]
    return np.array(found).reshape(graph.n_users, graph.n_items, len(rules)) > 0


def observed(graph):
    seen = np.zeros((graph.n_users, graph.n_items), dtype=bool)
    for u in range(graph.n_users):
        seen[u, graph.neighbours(u, INTERACTION) - graph.n_users] = True
    return seen


@settings(max_examples=30)
@given(graphs())
def test_measures_equal_those_counted_pair_by_pair(graph):
    seen = observed(graph)
    if not seen.any():
        with pytest.raises(LogerError, match="no rules to mine"):
            mine(graph, EVERYTHING)
        return
    rules = candidates(graph)
    of_rule = dict(zip(rules, fires(graph, rules).transpose(2, 0, 1), strict=True))
    mined = mine(graph, EVERYTHING)
    assert {m.rule for m in mined.measures} == set(rules)
    for m in mined.measures:
        fired = of_rule[m.rule]
        assert m.support == (fired & seen).sum()
        assert m.reached == fired.sum()
        if m.reached:
            assert m.precision == pytest.approx(m.support / m.reached)
            assert m.lift == pytest.approx(m.precision / seen.mean())
        else:
            assert isnan(m.precision) and isnan(m.lift)


@settings(max_examples=20)
@given(graphs(), st.integers(1, 3), st.integers(0, 5))
def test_reach_is_measured_on_the_sampled_users_and_support_on_all(graph, n, seed):
    config = MiningConfig(min_support=0, seed=seed)
    seen = observed(graph)
    with mock.patch.object(mining, "SAMPLE_USERS", n):
        try:
            mined = mine(graph, config)
        except LogerError as error:
            assert "no interactions" in str(error) or "has an interaction; leave" in str(error)
            return
        assert mined.sampled_users == min(n, graph.n_users)
        assert mine(graph, config).measures[0].rule == mined.measures[0].rule
    whole = {m.rule: m for m in mine(graph, EVERYTHING).measures}
    some = {m.rule: m for m in mined.measures}
    assert all(some[r].support == m.support for r, m in whole.items())
    if n >= graph.n_users:
        assert all(some[r].reached == m.reached for r, m in whole.items())
        return
    fired = fires(graph, whole)
    reached = np.array([some[r].reached for r in whole])
    possible = [
        fired[list(users)].sum(axis=(0, 1))
        for users in combinations(range(graph.n_users), n)
        if seen[list(users)].any()
    ]
    assert any((reached == p).all() for p in possible)


def test_the_seed_chooses_the_sample(demo_graph, monkeypatch):
    monkeypatch.setattr(mining, "SAMPLE_USERS", 50)

    def reached(seed):
        found = mine(demo_graph, MiningConfig(seed=seed)).measures
        return {m.rule: m.reached for m in found}

    assert reached(0) == reached(0) != reached(1)


def test_rules_are_kept_by_support_lift_and_rank(demo_graph):
    plain = mine(demo_graph, EVERYTHING)
    config = MiningConfig(min_support=300, min_lift=3, max_rules=4)
    mined = mine(demo_graph, config)
    good = [m for m in plain.measures if m.support >= 300 and m.lift >= 3]
    best = sorted(good, key=lambda m: -m.support * log(m.lift))
    assert len(good) > 4
    assert [m.rule for m in best[:4]] == list(mined.rules)
    why = {m.rule: m.why for m in mined.measures}
    for m in plain.measures:
        expected = (
            "support below 300"
            if m.support < 300
            else "lift below 3"
            if m.lift < 3
            else "kept"
            if m.rule in list(mined.rules)
            else "not among the best 4"
        )
        assert why[m.rule] == expected


def test_the_least_support_is_the_larger_of_number_and_share(demo_graph, monkeypatch):
    monkeypatch.setattr(mining, "SUPPORT_SHARE", 0.1)
    n = int(demo_graph.degrees(INTERACTION)[: demo_graph.n_users].sum())
    mined = mine(demo_graph, MiningConfig(min_support=10))
    assert f"support below {0.1 * n:g}" in {m.why for m in mined.measures}
    assert all(m.support >= 0.1 * n for m in mined.measures if m.kept)


@pytest.mark.parametrize(
    ("pairs", "support", "lift"), [(10, 2, 1), (400, 10, 1), (1999, 49, 1), (2000, 50, 2)]
)
def test_few_pairs_ask_less_of_a_rule_unless_it_is_given(pairs, support, lift):
    config = MiningConfig().for_pairs(pairs)
    assert (config.min_support, config.min_lift) == (support, lift)
    given = MiningConfig(min_support=7, min_lift=3).for_pairs(pairs)
    assert (given.min_support, given.min_lift) == (7, 3)


def test_lengths_are_as_asked(demo_graph):
    config = MiningConfig(min_hops=2, max_hops=2, min_support=1, min_lift=0)
    assert {len(m.rule) for m in mine(demo_graph, config).measures} == {2}


def test_reasons_add_up_and_the_summary_tells_them(demo_graph):
    mined = mine(demo_graph, MiningConfig(max_rules=3))
    reasons = Counter(m.why for m in mined.measures)
    assert reasons.total() == len(mined.measures) == len(candidates(demo_graph))
    assert reasons["kept"] == len(mined.rules) == 3
    first, *others = mined.summary().splitlines()
    assert first == f"{len(mined.measures)} candidate rules, 3 kept"
    told = {line.split(maxsplit=1)[1]: int(line.split()[0]) for line in others}
    assert told == reasons


def test_measures_are_best_first_and_the_kept_ones_in_the_order_of_the_rules(demo_graph):
    mined = mine(demo_graph)
    assert [m.rule for m in mined.measures if m.kept] == list(mined.rules)
    able = [m for m in mined.measures if not m.why.startswith("support below")]
    assert list(mined.measures[: len(able)]) == able
    assert [m.score for m in able] == sorted((m.score for m in able), reverse=True)


def test_what_was_not_measured_is_not_a_number_and_null_in_json(demo_graph):
    mined = mine(demo_graph, MiningConfig(min_support=700))
    dropped = [m for m in mined.measures if m.support < 700]
    assert dropped and any(m.support for m in dropped)
    for m in dropped:
        assert (m.reached, m.score) == (0, 0.0)
        assert isnan(m.precision) and isnan(m.lift)
        plain = json.loads(json.dumps(m.as_dict(), allow_nan=False))
        assert plain["precision"] is plain["lift"] is None
    json.dumps([m.as_dict() for m in mined.measures], allow_nan=False)


def test_a_graph_without_interactions_is_an_error():
    graph = build(vocabulary(1, 2, 1, 1), [(1, 3, 3)])
    with pytest.raises(LogerError, match="no rules to mine"):
        mine(graph)


def test_a_sample_without_interactions_is_an_error(monkeypatch):
    monkeypatch.setattr(mining, "SAMPLE_USERS", 1)
    graph = build(vocabulary(200, 2, 1, 1), [(0, 0, 200)])
    with pytest.raises(LogerError, match="none of 1 users sampled from 200 has an interaction"):
        mine(graph, MiningConfig(seed=0))


def test_rules_of_low_lift_join_where_few_others_pass(demo_graph, monkeypatch):
    monkeypatch.setattr(mining, "EVERYWHERE", 2.0)
    strict = {"min_support": 50, "min_lift": 1e6}
    assert not len(mine(demo_graph, MiningConfig(min_rules=0, **strict)).rules)
    mined = mine(demo_graph, MiningConfig(min_rules=3, **strict))
    joined = [m for m in mined.measures if m.kept]
    assert [m.why for m in joined] == ["kept though its lift is low, because few rules pass"] * 3
    assert [m.rule for m in joined] == [m.rule for m in mined.measures[:3]] == list(mined.rules)
    n, story = len(mined.measures), mined.story()
    assert story.startswith(f"{n} rules tried, 3 kept (3 despite a low lift, because few pass)")
    assert "lift below 1e+06" in story


def test_plays_alone_have_the_collaborative_rule():
    plays = {"user": [f"u{k // 6}" for k in range(600)]}
    plays["item"] = [f"i{(k // 6 * 3 + k % 6 * 7) % 40}" for k in range(600)]
    mined = mine(split(from_frames(pl.DataFrame(plays))).graph)
    assert [rule.names for rule in mined.rules] == [("interacted", "interacted⁻¹", "interacted")]


@pytest.mark.parametrize(("everywhere", "why"), [(0.7, "kept"), (0.8, "lift below 2")])
def test_a_rule_that_reaches_nearly_all_pairs_is_not_judged_by_lift(
    demo_graph, everywhere, why, monkeypatch
):
    monkeypatch.setattr(mining, "EVERYWHERE", everywhere)
    collaborative = ("purchase", "purchase⁻¹", "purchase")
    mined = mine(demo_graph, MiningConfig(max_rules=4, min_lift=2))  # four are better
    (found,) = (m for m in mined.measures if m.rule.names == collaborative)
    share = found.reached / (mined.sampled_users * demo_graph.n_items)
    assert 0.7 < share < 0.8
    assert found.lift < 2
    assert found.why == why
    assert len(mined.rules) == 4 + (why == "kept")
