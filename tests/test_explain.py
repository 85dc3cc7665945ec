"""Explanations and questions on a small ranker, every number against a slow implementation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphs import brute_paths
from loger.explain import attribution
from loger.explain.attribution import explain
from loger.explain.lists import ListRequest, recommend_block
from loger.explain.questions import WhatIf, WhyNot
from loger.explain.record import reasons_in_short
from loger.graph import Path
from loger.ranking.ranker import Ranker, Scores
from loger.ranking.selection import Selection
from loger.rules.sentences import path_sentence
from small import table
from small_ranker import (
    GRAPH,
    RULES,
    USERS,
    WEIGHTS,
    listed,
    owned,
    pairs,
    ranker,
    sigma,
    slow_parts,
    slow_score,
    strength,
)


@pytest.mark.parametrize(
    ("kind", "feature"),
    [("logit", "logwalk"), ("sum", "logwalk"), ("logic", "logwalk"), ("logit", "count")],
)
def test_every_part_of_an_explanation_is_its_formula(kind, feature, monkeypatch):
    monkeypatch.setattr(attribution, "BLOCK", 2)
    told = explain(ranker(kind, feature), *pairs(), paths=50)
    assert len(told) == 6
    for e, user, item in zip(told, *(x.tolist() for x in pairs()), strict=True):
        assert (e.user, e.item) == (user, item)
        encoder, logic, logit = slow_score(user, item, kind, feature)
        worth, popularity = slow_parts(user, item, feature)
        assert e.encoder == pytest.approx(encoder, rel=1e-5, abs=1e-6)
        assert e.logic == pytest.approx(logic)
        assert e.logit == pytest.approx(logit)
        assert e.score == pytest.approx(encoder + logic, rel=1e-5, abs=1e-6)
        assert (e.prior, e.popularity) == (-0.5, pytest.approx(popularity))
        s = float(table(GRAPH).scores[user, item])
        assert e.p == pytest.approx(sigma(logit))
        assert e.q == pytest.approx(sigma(1.5 * s - 0.25), rel=1e-5)
        assert e.decomposition_error == pytest.approx(0, abs=1e-9)
        rules = abs(worth).sum()
        whole = rules + abs(encoder) + abs(popularity)
        assert e.logic_share == pytest.approx(rules / whole, rel=1e-5)
        every = [relations for relations, _ in brute_paths(GRAPH, user, item)]
        fires = [k for k, rule in enumerate(RULES) if rule.relations in every]
        order = sorted(fires, key=lambda k: (-abs(round(worth[k], 9)), k))
        assert [part.rule for part in e.rules] == [RULES[k] for k in order]
        for part, k in zip(e.rules, order, strict=True):
            assert part.weight == WEIGHTS[k]
            assert part.paths == every.count(RULES[k].relations)
            assert part.contribution == pytest.approx(worth[k])
    assert sum(len(e.rules) for e in told) > 6
    assert explain(ranker(), np.empty(0, np.int64), np.empty(0, np.int64)) == []


@pytest.mark.parametrize("kind", ["logit", "sum"])
def test_the_encoder_share_is_its_mean_share_of_the_lead(kind):
    by, users, shares = ranker(kind), np.array([3, 8, 11, 3]), []
    for u in (3, 8, 11):
        total, s = by.score([u])[0].astype(float), by.encoder_scores([u])[0].astype(float)
        free = np.isfinite(total)
        part = 0.8 * s if kind == "logit" else 1 / (1 + np.exp(0.25 - 1.5 * s))
        for v in np.argsort(-total, kind="stable")[:5]:
            lead = total[v] - total[free].mean()
            shares.append((part[v] - part[free].mean()) / lead)
    assert by.encoder_share(users, 5) == pytest.approx(np.mean(shares), rel=1e-4)
    assert by.encoder_share([]) == 0


def test_ranks_are_among_items_that_the_user_does_not_have():
    users, items = pairs()
    everything = ranker().scores(USERS).total
    for e in explain(ranker(), users, items):
        free = [v for v in range(GRAPH.n_items) if v not in owned(e.user)]
        for rank, scores in (
            (e.rank, everything[e.user]),
            (e.rank_without_logic, table(GRAPH).scores[e.user]),
        ):
            mine = scores[e.item]
            above = sum(scores[v] > mine or (scores[v] == mine and v < e.item) for v in free)
            assert rank == 1 + above


def test_lists_with_reasons_rank_no_item_unless_asked_to(monkeypatch):
    request = ListRequest(5, explain=True)
    known = recommend_block(ranker(), USERS, request, ranked=True).explanations
    monkeypatch.setattr(Scores, "ranks", None)  # to call it would fail
    found = recommend_block(ranker(), USERS, request).explanations
    assert [e.rank for e in known] == [rank for _ in USERS for rank in range(1, 6)]
    assert {(e.rank, e.rank_without_logic) for e in found} == {(0, 0)}
    assert [reasons_in_short(e) for e in found] == [reasons_in_short(e) for e in known]


def test_lists_ask_an_encoder_of_weight_0_for_no_scores(monkeypatch):
    def of_weight(weight):
        fusion = replace(ranker().fusion, encoder_weight=weight)
        return replace(ranker(sums=True), fusion=fusion)

    request = ListRequest(5, explain=True)
    tiny = recommend_block(of_weight(1e-30), USERS, request)  # which S doesn't notice
    monkeypatch.setattr(Ranker, "encoder_scores", None)  # to call it would fail
    found = recommend_block(of_weight(0.0), USERS, request)
    assert (found.lists.items == tiny.lists.items).all()
    assert (found.lists.scores == tiny.lists.scores).all()
    assert [e.score for e in found.explanations] == [e.score for e in tiny.explanations]
    assert (of_weight(0.0).top(USERS, 5)[0] == found.lists.items).all()


@pytest.mark.parametrize("among", [None, np.arange(GRAPH.n_items) % 2 == 0])
def test_choosing_lists_leaves_the_scores_as_they_are(among):
    scores = ranker().scores(USERS)
    before = scores.total.copy()
    lists = scores.chosen(GRAPH.n_items, Selection(among))
    assert (scores.total == before).all()
    for user, row in zip(USERS, lists.items, strict=True):
        free = set(range(GRAPH.n_items)) - set(owned(user))
        assert set(row[row >= 0].tolist()) == {v for v in free if among is None or among[v]}


@pytest.mark.parametrize("n", [1, 3, 100])
@pytest.mark.parametrize("feature", ["logwalk", "count"])
def test_paths_are_the_strongest_of_each_rule_by_contribution_then_the_next(n, feature):
    shown = 0
    for e in explain(ranker("logit", feature), *pairs(), paths=n):
        worth, _ = slow_parts(e.user, e.item, feature)
        found = list(brute_paths(GRAPH, e.user, e.item))
        useful = [k for k in range(len(RULES)) if worth[k] > 1e-12]
        total = {}
        for k in useful:
            own = [nodes for relations, nodes in found if relations == RULES[k].relations]
            power = {
                p: strength(p, RULES[k].relations) if feature == "logwalk" else 1.0 for p in own
            }
            total[k] = power
        assert len(e.paths) == min(n, sum(map(len, total.values())))
        shown += len(e.paths)
        for part in e.paths:
            k = list(RULES).index(part.rule)
            assert isinstance(part.path, Path)
            assert part.path.relations == part.rule.relations
            share = total[k][part.path.entities] / sum(total[k].values())
            assert part.share == pytest.approx(share)
            assert part.contribution == pytest.approx(share * worth[k])
            assert part.text == path_sentence(GRAPH, part.path)
        assert len({part.path for part in e.paths}) == len(e.paths)
        # One of each rule, the largest contribution first, before the second of any.
        place, seen = [], dict.fromkeys(useful, 0)
        for part in e.paths:
            k = list(RULES).index(part.rule)
            place.append((seen[k], -round(worth[k], 9)))
            seen[k] += 1
        assert place == sorted(place)
        for k in useful:
            own = [part.share for part in e.paths if part.rule == RULES[k]]
            best = sorted((x / sum(total[k].values()) for x in total[k].values()), reverse=True)
            assert own == pytest.approx(best[: len(own)])
    assert shown >= 3


def test_no_paths_are_looked_for_if_none_are_asked_for():
    assert all(e.paths == () for e in explain(ranker(), *pairs(), paths=0))
    assert max(len(e.paths) for e in explain(ranker(), *pairs())) == 3


def test_scores_that_are_there_are_used():
    users, items = pairs()
    scores = ranker().scores(np.unique(users))
    fresh = explain(ranker(), users, items)
    assert [e.as_dict() for e in explain(ranker(), users, items, scores=scores)] == [
        e.as_dict() for e in fresh
    ]


# ── questions ───────────────────────────────────────────────────────────────────────────


def test_why_not_compares_an_item_with_the_list():
    user, k = 7, 4
    best = listed(user, 25)
    why = WhyNot.of(ranker(), user, best[-1], k)
    mine, *others = explain(ranker(), np.full(5, user), np.array([best[-1], *best[:4]]))
    assert why.explanation.as_dict() == mine.as_dict()
    assert why.last.as_dict() == others[-1].as_dict()
    assert why.gap == pytest.approx(others[-1].score - mine.score)
    assert (why.k, why.owned) == (4, False)
    fires = {part.rule for part in mine.rules}
    gives = {}
    for other in others:
        for part in other.rules:
            if part.rule not in fires:
                gives[part.rule] = gives.get(part.rule, 0.0) + part.contribution / 4
    assert gives
    assert {part.rule: part.contribution for part in why.silent} == pytest.approx(gives)
    order = [part.contribution for part in why.silent]
    assert order == sorted(order, reverse=True)
    assert all(part.paths == 0 for part in why.silent)
    assert [part.weight for part in why.silent] == [
        WEIGHTS[list(RULES).index(part.rule)] for part in why.silent
    ]
    lines = str(why).split("\n")
    assert (
        lines[0]
        == f"item{best[-1]} is at rank {len(best)}, {why.gap:.3f} below the last of the top 4"
    )
    assert lines[1:] == [
        f"  {part.contribution:+.3f}  is what items in the list usually get from this rule: "
        f"{part.rule.sentence()}"
        for part in why.silent
    ]
    assert why.as_dict() == {
        "explanation": mine.as_dict(), "k": 4, "gap": why.gap, "owned": False,
        "last": others[-1].as_dict(),
        "silent": [
            {"rule": str(part.rule), "sentence": part.rule.sentence(), "weight": part.weight,
             "gives_on_average": part.contribution}
            for part in why.silent
        ],
    }  # fmt: skip


def test_why_not_of_what_is_listed_or_owned_says_so():
    best = listed(7, 4)
    inside = WhyNot.of(ranker(), 7, best[3], 4)
    assert str(inside) == f"item{best[3]} is in the list, at rank 4"
    assert inside.gap == 0
    mine = sorted(owned(7))[0]
    had = WhyNot.of(ranker(), 7, mine, 4)
    assert had.owned
    assert str(had) == f"item{mine} isn't recommended because user7 already has it"
    long = WhyNot.of(ranker(), 7, best[0], 100)  # the list ends before
    assert (long.last, long.gap) == (None, 0.0)
    assert long.as_dict()["last"] is None


def test_what_if_puts_two_lists_side_by_side():
    user, k = 7, 5
    changed = ranker().user_view(user, remove=sorted(owned(user))[:1])
    what = WhatIf.of(ranker(), changed, user, k)
    assert (what.graph, what.user) == (GRAPH, user)
    assert list(what.before) == listed(user, k)
    after, scores = changed.top([user], k)
    assert list(what.after) == after[0].tolist()
    for item in owned(user):  # what is ignored isn't recommended instead
        view = ranker().user_view(user, remove=[item])
        assert item not in WhatIf.of(ranker(), view, user, 100, [item]).after
    assert list(what.scores) == scores[0].tolist()
    by_hand = WhatIf(GRAPH, 7, (4, 9, 2, 8), (9, 4, 2, 11), (3.0, 2.0, 1.5, 1.0))
    assert by_hand.gone == [8]
    assert by_hand.new == [11]
    assert by_hand.as_dict() == {
        "user": "user7", "before": ["item4", "item9", "item2", "item8"],
        "after": ["item9", "item4", "item2", "item11"], "scores": [3.0, 2.0, 1.5, 1.0],
        "gone": ["item8"], "new": ["item11"],
    }  # fmt: skip
    assert str(by_hand).split("\n") == [
        "  1  item9  +1", "  2  item4  -1", "  3  item2", "  4  item11  new", "  –  item8  gone",
    ]  # fmt: skip
    short = WhatIf.of(ranker(), changed, user, 100)
    assert -1 not in short.before + short.after
    assert len(short.scores) == len(short.after)
