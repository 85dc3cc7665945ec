"""Explanations and questions of a small ranker, every number against a slow twin."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from graphs import brute_paths, brute_strengths
from loger.em import WALK
from loger.encoder import Calibration
from loger.explain import attribution
from loger.explain.attribution import explain
from loger.explain.questions import WhatIf, WhyNot
from loger.graph import Path, history
from loger.grounding import ground
from loger.logic import Logic
from loger.ranker import Fusion, Ranker
from loger.rules.sentences import path_sentence
from small import small_graph, some_rules, table

GRAPH = small_graph()
RULES = some_rules(GRAPH)
WEIGHTS = np.array([0.5, 2.0, -1.0, 0.0, 0.25, 1.0])
SCALES = np.array([0.05, 0.1, 0.2, 0.1, 0.05, 0.3])
USERS = np.arange(12)


@cache
def ranker(kind: str = "logit", feature: str = "logwalk") -> Ranker:
    walk, scales = (WALK, SCALES) if feature == "logwalk" else (None, None)
    logic = Logic(RULES, WEIGHTS, feature, walk, scales, prior=-0.5, popularity=0.25)
    fusion = Fusion(kind, 0.8, Calibration(1.5, -0.25), alpha=0.3)
    return Ranker.of(GRAPH, table(GRAPH), logic, fusion)


def owned(user: int) -> set[int]:
    return set(history(GRAPH, np.array([user]))[1].tolist())


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_parts(user: int, item: int, feature: str) -> tuple[np.ndarray, float]:
    """What each rule and what popularity adds to logit p."""
    if feature == "logwalk":
        x = np.array(brute_strengths(GRAPH, RULES, user, item, WALK))
        worth = WEIGHTS * np.log1p(x / SCALES)
    else:
        every = [relations for relations, _ in brute_paths(GRAPH, user, item)]
        worth = WEIGHTS * np.log1p([every.count(rule.relations) for rule in RULES])
    return worth, 0.25 * math.log1p(sum(item in owned(u) for u in range(GRAPH.n_users)))


def slow_score(user: int, item: int, kind: str, feature: str) -> tuple[float, float, float]:
    """What the encoder and the logic add to S, and logit p."""
    worth, popularity = slow_parts(user, item, feature)
    logit, s = -0.5 + popularity + worth.sum(), float(table(GRAPH).scores[user, item])
    if kind == "sum":
        return sigma(1.5 * s - 0.25), 0.3 * sigma(logit), logit
    return (0.8 * s if kind == "logit" else 0.0), logit, logit


def grid() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of some users."""
    return np.repeat(USERS, GRAPH.n_items), np.tile(np.arange(GRAPH.n_items), len(USERS))


@cache
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs that many rules fire for, users in no order and some twice, and an owned item."""
    fires = np.diff(ground(GRAPH, RULES, *grid()).indptr)
    most = np.argsort(-fires, kind="stable")[:5]
    users, items = (x[most] for x in grid())
    users, items = np.append(users, 4), np.append(items, min(owned(4)))
    assert len(set(users)) > 2
    assert (np.diff(users) < 0).any()
    return users, items


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


def strength(nodes: tuple[int, ...], relations: tuple[int, ...]) -> float:
    """One path's strength: what brute force gives on a graph of all rules but this path's."""
    user, item = nodes[0], nodes[-1] - GRAPH.n_users
    every = [(n, r) for r, n in brute_paths(GRAPH, user, item)]
    assert (nodes, relations) in every
    product = 1.0
    for k, (h, r, t) in enumerate(zip(nodes, relations, nodes[1:], strict=False)):
        power = WALK.fact
        if k == 0 and len(relations) > 1:
            power = WALK.first
        elif r == 0:
            power = WALK.user
        elif r == GRAPH.inverse(0):
            power = WALK.item
        product *= len(GRAPH.neighbours(h, r)) ** -power
        if k == len(relations) - 1:
            arrive = WALK.popular if r == 0 else WALK.arrive
            product *= len(GRAPH.neighbours(t, GRAPH.inverse(r))) ** -arrive
    return product


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


def explained():
    """An explanation with several paths, and the pair's record."""
    told = explain(ranker(), *grid())
    return max(told, key=lambda e: len(e.rules) + len(e.paths))


def test_sentences_records_and_text_say_the_same():
    e = explained()
    sentences = [path_sentence(GRAPH, part.path) for part in e.paths]
    assert len(sentences) == 3
    assert e.sentences() == sentences
    assert e.because() == f"because {sentences[0]}"
    verbs = dict.fromkeys(("purchase", "viewed", "similar", "follows"), "eats")
    assert e.sentences(verbs) == [path_sentence(GRAPH, p.path, verbs) for p in e.paths]
    assert e.sentences(verbs) != sentences
    assert e.because(verbs) == f"because {e.sentences(verbs)[0]}"
    item = e.explained()
    assert (item.item, item.score) == (e.item, e.score)
    assert item.paths == tuple(p.path for p in e.paths)
    assert item.weights == tuple(p.contribution for p in e.paths)
    lines = str(e).split("\n")
    assert lines[0] == f"item{e.item} for user{e.user}: {e.score:.3f}, rank {e.rank}"
    assert lines[1:4] == [
        f"  {e.encoder:+.3f}  encoder",
        f"  {e.prior:+.3f}  prior",
        f"  {e.popularity:+.3f}  popularity",
    ]
    rules = [f"  {r.contribution:+.3f}  {r.rule.sentence()} ({r.paths:,} paths)" for r in e.rules]
    assert lines[4 : 4 + len(rules)] == rules
    assert lines[4 + len(rules) :] == [
        f"  because {sentences[0]}",
        *(f"  {s}" for s in sentences[1:]),
    ]


def test_a_record_has_names_for_numbers():
    e = explained()
    record = e.as_dict()
    plain = {"score", "rank", "rank_without_logic", "encoder", "logic", "logit", "prior",
             "popularity", "p", "q", "logic_share"}  # fmt: skip
    assert {name: record[name] for name in plain} == {name: getattr(e, name) for name in plain}
    names = (record["user"], record["item"], record["label"], record["because"])
    assert names == (f"user{e.user}", f"item{e.item}", f"item{e.item}", e.because())
    assert set(record) == plain | {"user", "item", "label", "because", "rules", "paths"}
    for told, part in zip(record["rules"], e.rules, strict=True):
        assert told == {
            "rule": str(part.rule), "sentence": part.rule.sentence(),
            "relations": list(part.rule.names), "weight": part.weight, "paths": part.paths,
            "contribution": part.contribution,
        }  # fmt: skip
    for told, part, sentence in zip(record["paths"], e.paths, e.sentences(), strict=True):
        entities = [GRAPH.vocabulary.names[x] for x in part.path.entities]
        kinds = [GRAPH.vocabulary.type_of(x) for x in part.path.entities]
        assert told == {
            "rule": str(part.rule), "contribution": part.contribution, "share": part.share,
            "sentence": sentence, "relations": list(part.rule.names),
            "entities": [
                {"name": n, "label": n, "type": t} for n, t in zip(entities, kinds, strict=True)
            ],
        }  # fmt: skip
    verbs = dict.fromkeys(("purchase", "viewed", "similar", "follows"), "eats")
    assert e.as_dict(verbs)["because"] == e.because(verbs)


def test_without_a_path_the_reason_is_that_there_is_none():
    every = explain(
        ranker(), np.repeat(USERS, GRAPH.n_items), np.tile(np.arange(GRAPH.n_items), 12)
    )
    silent = [e for e in every if not e.rules]
    idle = [e for e in every if e.rules and all(part.contribution <= 0 for part in e.rules)]
    assert silent
    assert idle
    assert {e.because() for e in silent} <= {attribution.OPAQUE, attribution.NO_REASON}
    assert {e.because() for e in idle} <= {attribution.OPAQUE, attribution.NO_REASON}
    assert silent[0].logic_share == 0


# ── questions ───────────────────────────────────────────────────────────────────────────


def listed(user: int, k: int) -> list[int]:
    scores = ranker().scores([user]).total[0]
    free = [v for v in range(GRAPH.n_items) if v not in owned(user)]
    return sorted(free, key=lambda v: (-scores[v], v))[:k]


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
    assert lines[0] == f"item{best[-1]} is at rank {len(best)}, {why.gap:.3f} below the last of 4"
    assert lines[1:] == [
        f"  {part.contribution:+.3f}  would be usual in the list from: {part.rule.sentence()}"
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
    assert str(had) == f"item{mine} is left out because user7 has it already"
    long = WhyNot.of(ranker(), 7, best[0], 100)  # the list ends before
    assert (long.last, long.gap) == (None, 0.0)
    assert long.as_dict()["last"] is None


def test_what_if_puts_two_lists_side_by_side():
    user, k = 7, 5
    changed = ranker().user_view(user, remove=sorted(owned(user))[:1])
    what = WhatIf.of(ranker(), changed, user, k)
    assert list(what.before) == listed(user, k)
    after, scores = changed.top([user], k)
    assert list(what.after) == after[0].tolist()
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
