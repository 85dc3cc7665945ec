"""Scores by action: every number of every reason against a slow implementation; explained lists."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from graphs import brute_paths
from loger.encoder.folding import attribute_user
from loger.engine import LocalEngine
from loger.explain import reasons as module
from loger.explain.attribution import Explanation, explain
from loger.explain.by_action import confidences
from loger.explain.frames import lists_table
from loger.explain.lists import ListRequest, explained_items, recommend_block
from loger.explain.reasons import Evidence, Reason, leading
from loger.grounding import Walk
from loger.ranking.selection import Selection
from loger.rules.sentences import action_sentence, evidence_sentence, is_company, path_sentence
from loger.rules.wording import ENGLISH, wording_of
from small_ranker import (
    GRAPH,
    RULES,
    SCALES,
    WEIGHTS,
    Sums,
    grid,
    listed,
    owned,
    pairs,
    ranker,
    sigma,
    slow_parts,
    strength,
)

APPEAL = ENGLISH.text("appeal")
MEAN_ITEM = ENGLISH.text("mean_item")
NO_REASON = ENGLISH.text("no_reason")
NOTHING = ENGLISH.text("nothing_for_it")
OPAQUE = ENGLISH.text("opaque")

# ── by action ───────────────────────────────────────────────────────────────────────────


def test_confidence_goes_to_what_adds_most_and_is_never_too_large_to_compute():
    given = np.array([2000.0, 1999.0, -5.0, 0.0])
    odds = 1 / (1 + math.exp(-1.0))
    assert confidences(given) == pytest.approx([odds, 1 - odds, 0.0, 0.0])
    assert confidences(np.log([2.0]), opaque=math.log(3.0)) == pytest.approx([1 / 4])
    assert confidences(np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]
    assert confidences(np.empty(0)).tolist() == []


def slow_cells(user: int, item: int, feature: str) -> dict[tuple[int, int, int], list[tuple]]:
    """By first hop (relation, entity) and rule: its paths with their strengths, strongest first."""
    cells: dict[tuple[int, int, int], list[tuple]] = {}
    for relations, nodes in brute_paths(GRAPH, user, item):
        for k, rule in enumerate(RULES):
            if rule.relations == relations and WEIGHTS[k]:
                power = strength(nodes, relations) if feature == "logwalk" else 1.0
                cells.setdefault((relations[0], nodes[1], k), []).append((power, nodes))
    return {cell: sorted(of, key=lambda p: -p[0]) for cell, of in cells.items()}


def slow_actions(kind: str, feature: str, sums: bool, user: int, item: int):
    """What the encoder and what each cell gives by action, the appeal, the average item, opaque."""
    of, uses = ranker(kind, feature, sums=sums), kind != "logic"
    free = [v for v in range(GRAPH.n_items) if v not in owned(user)]
    mean = np.mean(of.scores([user]).total[0, free].astype(float))
    worth, _ = slow_parts(user, item, feature)
    units = np.array([slow_unit(v) for v in range(GRAPH.n_items)])
    factor, appeal, mean_base = 1.0, units[item], units.mean()
    if kind == "sum":
        gained = 0.3 * (sigma(units[item] + worth.sum()) - sigma(units[item]))
        factor = gained / worth.sum() if worth.sum() else 0.0
        appeal, mean_base = 0.3 * sigma(units[item]), np.mean([0.3 * sigma(x) for x in units])
    appeal -= mean_base
    encoder, opaque, mean_encoder = {}, None, 0.0
    if sums and kind == "logit":
        parts = of.encoder
        assert isinstance(parts, Sums)
        for v in owned(user):
            encoder[v] = 0.8 * (parts.pairs[v, item] - parts.pairs[v, free].mean())
            mean_encoder += 0.8 * parts.pairs[v, free].mean()
        appeal += 0.8 * (parts.own[item] - parts.own[free].mean())
        mean_encoder += 0.8 * parts.own[free].mean()
    elif uses:
        s = of.scores([user]).encoder[0].astype(float)
        given = np.array([sigma(1.5 * x - 0.25) for x in s]) if kind == "sum" else 0.8 * s
        mean_encoder = given[free].mean()
        opaque = given[item] - mean_encoder
    mean_rules = mean - mean_base - mean_encoder
    cells = slow_cells(user, item, feature)
    totals = {k: sum(p for c, of in cells.items() if c[2] == k for p, _ in of) for k in range(6)}
    gives = {
        (r, e, k): factor * worth[k] * sum(p for p, _ in of) / totals[k]
        for (r, e, k), of in cells.items()
    }
    for_all = slow_for_all(user, feature)
    whole = sum(for_all.values())
    taken = {edge: mean_rules * x / whole for edge, x in for_all.items()} if whole else {}
    appeal -= 0.0 if whole else mean_rules
    return encoder, gives, taken, cells, appeal, mean, opaque


def slow_for_all(user: int, feature: str) -> dict[tuple[int, int], float]:
    """By first hop, the strengths of all walks over rules to any item, as much as they weigh."""
    out: dict[tuple[int, int], float] = {}
    for k, rule in enumerate(RULES):
        walks = [(user,)]
        for relation in rule.relations:
            walks = [(*w, int(t)) for w in walks for t in GRAPH.neighbours(w[-1], relation)]
        for nodes in walks:
            power = strength(nodes, rule.relations) / SCALES[k] if feature == "logwalk" else 1.0
            first = rule.relations[0], nodes[1]
            out[first] = out.get(first, 0.0) + abs(WEIGHTS[k]) * power
    return out


@cache
def slow_unit(item: int) -> float:
    return -0.5 + 0.25 * math.log1p(sum(item in owned(u) for u in range(GRAPH.n_users)))


@pytest.mark.parametrize(
    ("kind", "feature", "sums"),
    [("logit", "logwalk", True), ("logit", "count", True), ("logit", "logwalk", False),
     ("sum", "logwalk", True), ("logic", "logwalk", True), ("logic", "count", False)],
)  # fmt: skip
def test_every_number_of_every_reason_is_its_formula(kind, feature, sums):
    users, items = (np.append(x, y) for x, y in zip(pairs(), ([2, 3, 9], [0, 8, 20]), strict=True))
    told = explain(ranker(kind, feature, sums=sums), users, items)
    for e, u, v in zip(told, users.tolist(), items.tolist(), strict=True):
        told_by = slow_actions(kind, feature, sums, u, v)
        encoder, gives, taken, cells, appeal, mean, opaque = told_by
        assert e.mean == pytest.approx(mean, abs=1e-6)
        assert e.appeal == pytest.approx(appeal, abs=1e-5)
        assert e.opaque == (None if opaque is None else pytest.approx(opaque, abs=1e-5))
        totals = {(0, w + GRAPH.n_users): x for w, x in encoder.items()}
        for (r, w, _), x in gives.items():
            totals[r, w] = totals.get((r, w), 0.0) + x
        for edge, x in taken.items():
            totals[edge] = totals.get(edge, 0.0) - x
        nonzero = {key: x for key, x in totals.items() if abs(x) > 1e-12}
        assert {(r.relation, r.entity): r.total for r in e.reasons} == pytest.approx(
            nonzero, abs=1e-6
        )
        lead = appeal + sum(totals.values()) + (opaque or 0.0)
        assert e.lead == pytest.approx(lead, abs=1e-5)
        assert e.score == pytest.approx(mean + lead, abs=1e-5)
        added = {key: max(math.exp(x) - 1, 0.0) for key, x in totals.items()}
        whole = math.exp(max(opaque or 0.0, 0.0)) + sum(added.values())
        for reason in e.reasons:
            likely = added[reason_key(reason)] / whole
            assert reason.confidence == pytest.approx(likely, rel=1e-4, abs=1e-6)
            own = encoder.get(reason.entity - GRAPH.n_users, 0.0) if reason.relation == 0 else 0.0
            assert reason.encoder == pytest.approx(own)
            assert reason.mean == pytest.approx(taken.get(reason_key(reason), 0.0), abs=1e-6)
            assert reason.share == pytest.approx(reason.total / lead, rel=1e-4)
            assert reason.action == action_sentence(GRAPH, reason.relation, reason.entity)
            mine = {k: x for (r, w, k), x in gives.items() if (r, w) == reason_key(reason)}
            assert {list(RULES).index(p.rule): p.contribution for p in reason.evidence} == (
                pytest.approx(mine, abs=1e-5)
            )
            assert reason.evidence == in_order(e, reason.evidence)
            for part in reason.evidence:
                check_evidence(part, cells[(*reason_key(reason), list(RULES).index(part.rule))])
    assert sum(len(e.reasons) for e in told) > 15


def reason_key(reason: Reason) -> tuple[int, int]:
    return reason.relation, reason.entity


def in_order(
    e: Explanation, parts: tuple[Evidence, ...], near_enough: float = 0.1
) -> tuple[Evidence, ...]:
    """By contribution; but of what is nearly as large as the largest, that comes first whose rule
    the user's history has most paths of."""
    by_worth = sorted(parts, key=lambda part: -part.contribution)
    near = [
        p for p in by_worth if p.contribution >= (1 - near_enough) * by_worth[0].contribution > 0
    ]
    if len(near) < 2:
        return tuple(by_worth)
    n = dict(zip(RULES, e.ranker.rule_counts(e.user).tolist(), strict=True))
    first = max(near, key=lambda part: n[part.rule])
    return (first, *(part for part in by_worth if part is not first))


def test_of_nearly_equal_evidence_the_rule_that_history_has_most_of_comes_first(monkeypatch):
    asked = []

    def counts(tied):
        asked.append(tied.tolist())
        return np.array([3, 9, 4, 9, 8, 0, 1])[tied]

    worth = np.array([1.0, 0.95, 0.89, 2.0, 1.0, -1.0, -0.99])
    leads = leading(np.array([0, 0, 0, 1, 1, 2, 2]), worth, counts)
    assert leads.tolist() == [False, True, False, False, False, False, False]
    assert asked == [[0, 1]]  # only where there is a choice
    assert leading(np.array([4, 7]), np.array([1.0, 1.0]), counts).tolist() == [False, False]
    assert leading(np.empty(0, np.int64), np.empty(0), counts).tolist() == []
    assert len(asked) == 1
    monkeypatch.setattr(module, "NEAR", 0.7)  # few are nearer in this graph
    moved = 0
    for e in explain(ranker(sums=True), *grid()):
        for reason in e.reasons:
            assert reason.evidence == in_order(e, reason.evidence, 0.7)
            worths = [part.contribution for part in reason.evidence]
            moved += worths != sorted(worths, reverse=True)
            firsts = [p.contribution for p in reason.paths]
            assert firsts[1:] == sorted(firsts[1:], reverse=True)
            assert not firsts or firsts[0] >= 0.3 * max(firsts) or max(firsts) < 0
        by_rule = [part for part in e.rules if part.contribution > 0]
        n = dict(zip(RULES, e.ranker.rule_counts(e.user).tolist(), strict=True))
        near = [p for p in by_rule if p.contribution >= 0.3 * by_rule[0].contribution]
        if near and by_rule[0] in near:
            assert e.paths[0].rule == max(near, key=lambda part: n[part.rule]).rule
    assert moved


def check_evidence(part: Evidence, paths: list[tuple]) -> None:
    whole = sum(power for power, _ in paths)
    assert part.n == len(paths)
    assert [p.share for p in part.paths] == pytest.approx([x / whole for x, _ in paths[:3]])
    assert {p.path.entities for p in part.paths} <= {nodes for _, nodes in paths}
    for p in part.paths:
        assert p.path.relations == p.rule.relations == part.rule.relations
        assert p.contribution == pytest.approx(p.share * part.contribution)
        assert p.text == path_sentence(GRAPH, p.path)
    others = [p.path.entities[-2] for p in part.paths[1:]]
    assert part.text == evidence_sentence(GRAPH, part.paths[0].path, part.n, others)


@cache
def all_explained() -> list:
    return explain(ranker(sums=True), *grid())


def explained():
    """An explanation with several reasons and paths."""
    told = [e for e in all_explained() if len(e.shown) > 2 and len(e.reasons) > len(e.shown)]
    return max(told, key=lambda e: len(e.rules) + len(e.paths))


def test_shown_are_the_first_reasons_that_carry_enough_of_what_actions_carry():
    lengths = set()
    for e in all_explained():
        whole = sum(r.total for r in e.reasons)
        least, carried = [], 0.0
        for reason in e.reasons[:5]:
            if reason.total <= 0 or carried >= 0.8 * whole > 0 or (least and whole <= 0):
                break
            least.append(reason)
            carried += reason.total
        assert e.shown == tuple(least)
        assert e.carried == pytest.approx(carried / e.lead)
        assert e.carried_of_actions == pytest.approx(carried / whole if whole > 0 else 0.0)
        lengths.add(len(e.shown))
    assert {0, 1, 2, 3} <= lengths


def test_paths_sentences_and_the_item_for_any_recommender_say_the_same():
    e = explained()
    sentences = [path_sentence(GRAPH, part.path) for part in e.paths]
    assert len(sentences) == 3
    assert e.sentences() == sentences
    eaten = e.said(VERBS).sentences()
    assert eaten == [path_sentence(GRAPH, p.path, VERBS) for p in e.paths]
    assert eaten != sentences
    item = e.explained()
    assert (item.item, item.score) == (e.item, e.score)
    assert item.paths == tuple(p.path for p in e.paths)
    assert item.weights == tuple(p.contribution for p in e.paths)


NAMES = ("purchase", "viewed", "similar", "follows")
VERBS = wording_of("en", {"en": {"verbs": dict.fromkeys(NAMES, "eats")}}, "debug")
DEBUG = wording_of(style="debug")


def test_the_first_reason_is_a_sentence_with_the_given_verbs():
    e = explained().said(DEBUG)
    first = e.shown[0]
    assert e.because() == f"because {first.text()}"
    assert first.action in e.because()
    other = e.said(VERBS).because()
    assert other.startswith(f"because {action_sentence(GRAPH, *reason_key(first), VERBS)} (")
    by_rule = [(p.path.entities[-2] for p in part.paths[1:]) for part in first.evidence]
    assert by_rule
    for part, others in zip(first.evidence, by_rule, strict=True):
        said = evidence_sentence(GRAPH, part.paths[0].path, part.n, list(others), VERBS)
        assert (said in other) == (part.contribution >= 0.05 * first.total)


def test_an_explanation_reads_as_a_sum_of_lines():
    for e in [*all_explained()[:60], *explain(ranker(), *(x[:60] for x in grid()))]:
        lines = [
            f"item{e.item} for user{e.user}: rank {e.rank}, "
            f"{e.lead:+.3f} compared with the average item",
            *(f"  {r.total:+.3f}  {r.text()}" for r in e.shown),
        ]
        rest = sum(r.total for r in e.reasons) - sum(r.total for r in e.shown)
        if abs(rest) >= 0.0005:
            label = "others_against" if rest < 0 else "others"
            label = ENGLISH.text(label if e.shown else "all_actions")
            lines.append(f"  {rest:+.3f}  {ENGLISH.line(label)}")
        lines.append(f"  {e.appeal:+.3f}  {ENGLISH.line(APPEAL)}")
        if e.opaque is not None:
            lines.append(f"  {e.opaque:+.3f}  {ENGLISH.line(OPAQUE)}")
        if not e.shown:
            lines.append(f"  {e.because()}")
        assert str(e).split("\n") == lines
    assert repr(e) == (
        f"<Explanation of 'item{e.item}' for 'user{e.user}': "
        f"rank {e.rank}, {e.lead:+.3f}, {len(e.reasons)} reasons>"
    )


def test_without_a_reason_it_is_the_appeal_or_the_opaque_encoder():
    silent = [e for e in all_explained() if not e.shown]
    assert silent
    assert {e.because() for e in silent} == {e.as_dict()["because"] for e in silent}
    for ahead, said in ((True, NO_REASON), (False, NOTHING)):
        assert {e.because() for e in silent if (e.lead > 0) == ahead} == {ENGLISH.line(said)}
    opaque = [e for e in explain(ranker(), *grid()) if not e.shown]
    assert {e.because() for e in opaque if e.opaque > 0} == {ENGLISH.line(OPAQUE)}
    plain = [e.said(DEBUG) for e in opaque if e.opaque <= 0]
    assert {e.because() for e in plain} <= {DEBUG.text("no_reason"), DEBUG.text("nothing_for_it")}
    assert all(e.rules or e.logic_share == 0 for e in opaque)


def test_a_record_has_names_for_numbers():
    e = explained()
    record = e.as_dict()
    plain = {"score", "rank", "rank_without_logic", "encoder", "logic", "logit", "prior", "p", "q",
             "popularity", "logic_share", "mean", "lead", "appeal", "carried",
             "carried_of_actions"}  # fmt: skip
    assert {name: record[name] for name in plain} == {name: getattr(e, name) for name in plain}
    assert record["opaque"] == 0
    assert explain(ranker(), *pairs())[0].as_dict()["opaque"] != 0
    said = (record["user"], record["item"], record["label"], record["because"])
    assert said == (f"user{e.user}", f"item{e.item}", f"item{e.item}", e.because())
    assert set(record) == plain | {
        "user", "item", "label", "because", "rules", "paths", "opaque", "reasons",
        "held_out", "expected",
    }  # fmt: skip
    for told, part in zip(record["rules"], e.rules, strict=True):
        assert told == {
            "rule": str(part.rule), "sentence": part.rule.sentence(),
            "relations": list(part.rule.names), "weight": part.weight, "paths": part.paths,
            "contribution": part.contribution,
        }  # fmt: skip
    assert record["paths"] == [path_record(part) for part in e.paths]
    for told, reason in zip(record["reasons"], e.shown, strict=True):
        assert told == {
            "action": reason.action, "total": reason.total, "share": reason.share,
            "confidence": reason.confidence, "encoder": reason.encoder,
            "sequence": reason.sequence, "mean": reason.mean,
            "text": reason.text(),
            "entity": entity(reason.entity, 1), "relation": GRAPH.relation_name(reason.relation),
            "evidence": [
                {"rule": str(part.rule), "contribution": part.contribution, "n": part.n,
                 "people": 0, "window": 0,
                 "text": part.text, "paths": [path_record(p) for p in part.paths]}
                for part in reason.evidence
            ],
            "members": [],
        }  # fmt: skip
    assert any(told["evidence"] for told in record["reasons"])
    eats = e.said(VERBS).as_dict()
    assert eats["because"] == e.said(VERBS).because() == f"because {eats['reasons'][0]['text']}"
    assert eats["paths"] == [path_record(part, VERBS) for part in e.paths]
    path = eats["reasons"][0]["evidence"][0]["paths"][0]
    assert path == path_record(e.shown[0].evidence[0].paths[0], VERBS)


def entity(x: int, place: int) -> dict[str, str]:
    words = GRAPH.vocabulary
    if place and words.type_of(x) == "user":
        return {"name": "", "label": "someone", "type": "user"}
    return {"name": words.names[x], "label": words.labels[x], "type": words.type_of(x)}


def path_record(part, verbs=ENGLISH) -> dict:
    return {
        "rule": str(part.rule), "contribution": part.contribution, "share": part.share,
        "sentence": path_sentence(GRAPH, part.path, verbs), "relations": list(part.rule.names),
        "entities": [entity(x, k) for k, x in enumerate(part.path.entities)],
    }  # fmt: skip


def test_parts_have_readable_names():
    e = explained()
    assert list(e.parts.values()) == [e.mean, e.appeal, *(r.total for r in e.reasons)]
    assert list(e.parts)[:2] == [MEAN_ITEM, APPEAL]
    for name, reason in zip(list(e.parts)[2:], e.reasons, strict=True):
        assert name.startswith(reason.action)
    opaque = explain(ranker(), *pairs())[0]
    assert list(opaque.parts.items())[:3] == [
        (MEAN_ITEM, opaque.mean), (APPEAL, opaque.appeal), (OPAQUE, opaque.opaque)
    ]  # fmt: skip


# ── lists ───────────────────────────────────────────────────────────────────────────────


def test_lists_are_explained_pair_by_pair_whatever_the_order_of_users():
    users = pairs()[0][[0, 1, 0, 3]]
    of = ranker("logic")
    request = ListRequest(3, explain=True, paths=3)
    _, (items, values, ranks, costs), told = recommend_block(of, users, request, ranked=True)
    assert (ranks == [1, 2, 3]).all()
    assert not costs.any()
    best, scores = of.top(users, 3)
    assert (items == best).all()
    assert (values == scores).all()
    again = explain(of, np.repeat(users, 3), items.ravel())
    assert [e.as_dict() for e in told] == [e.as_dict() for e in again]
    assert max(len(e.paths) for e in told) == 3
    few = np.arange(GRAPH.n_items) < 4
    request = ListRequest(6, Selection(few), explain=True, paths=1)
    _, (some, *_), told = recommend_block(of, users, request)
    assert (some < 4).all()
    assert (some == -1).any()
    expected = [(u, v) for u, row in zip(users, some, strict=True) for v in row if v >= 0]
    assert [(e.user, e.item) for e in told] == expected
    assert max(len(e.paths) for e in told) == 1


class Noting(LocalEngine):
    """Notes what it is asked to do."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.stages: list[str] = []

    def map(self, what, *work, **settings):
        self.stages.append(what)
        return super().map(what, *work, **settings)


def test_the_encoder_gives_its_parts_with_the_rankers_recency(monkeypatch):
    asked = []

    def noting(encoder, graph, user, items, walk=None, own=None):
        asked.append((user, items.tolist(), walk.recency))
        return attribute_user(encoder, graph, user, items, walk, own)

    monkeypatch.setattr("loger.ranking.ranker.attribute_user", noting)
    explain(
        replace(ranker(sums=True), walk=Walk(recency=0.7)), np.array([7, 2, 7]), np.array([1, 2, 3])
    )
    assert asked == [(2, [2], 0.7), (7, [1, 3], 0.7)]


def test_lists_by_blocks_are_those_of_each_user(monkeypatch):
    monkeypatch.setattr("loger.explain.lists.BLOCK", 2)
    monkeypatch.setattr("loger.explain.frames.BLOCK", 2)
    users, of, steps = np.array([7, 2, 9]), ranker(sums=True), Noting(1)
    told = explained_items(of, users.tolist(), 30, 2, steps)
    for user, row in zip(users.tolist(), told, strict=True):
        items = listed(user, 30, of)
        assert [x.item for x in row] == items
        alone = explain(of, np.full(len(items), user), np.array(items), 2)
        assert row == [e.explained() for e in alone]
    rows = lists_table(of, users, ListRequest(2, explain=True), steps).to_dicts()
    assert [row["rank"] for row in rows] == [1, 2] * 3
    first = explain(of, np.full(2, 7), np.array(listed(7, 2, of)))
    for short, e in zip(rows[:2], first, strict=True):
        assert (short["because"], short["carried"]) == (e.because(), e.carried)
        assert short["reasons"] == [
            {
                "action": r.action,
                "total": r.total,
                "share": r.share,
                "text": r.text(),
                "members": [],
            }
            for r in e.shown
        ]
    assert steps.stages == ["explaining", "explaining"]


def test_evidence_is_put_into_words_weightiest_first_and_trifles_are_left_out():
    plain = next(rule for rule in RULES if not is_company(rule))

    def said(x):
        return lambda words: SimpleNamespace(text=f"by {x}")

    close = DEBUG.text("close")

    def of(total, encoder, *worths):
        parts = tuple(SimpleNamespace(rule=plain, contribution=x, said=said(x)) for x in worths)
        return Reason("you did it", 0, 1, total, 0.125, 0.5, encoder, 0.0, 0.0, parts, DEBUG)

    assert of(4.0, 1.0, 2.0, 0.5, 0.1).text() == f"you did it (12%): by 2.0; {close}; by 0.5"
    assert of(4.0, 0.2, 0.2).evidence_text == f"by 0.2; {close}"
    assert of(-4.0, -4.2, 0.2, 0.19).text() == "you did it (12%): by 0.2"
    assert of(1.0, 0.04).text() == "you did it (12%)"
    assert of(0.0, 0.0).text() == "you did it (12%)"
