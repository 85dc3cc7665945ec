"""The faithfulness report tells models that mean their reasons from models that don't."""

from __future__ import annotations

import json

import numpy as np
import pytest

from graphs import EXHAUSTIVE, AnyOrder
from loger.data import split
from loger.data.dataset import Dataset, Facts, Interactions
from loger.data.demo import shop
from loger.data.splits import Split
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.faithfulness import (
    FaithfulnessConfig,
    NamedReason,
    Probes,
    RandomPaths,
    faithfulness_report,
    loger_probes,
    permuted,
    planted_cases,
)
from loger.evaluation.faithfulness.paths import recovered
from loger.evaluation.faithfulness.report import LINES
from loger.graph import Path, Relation, Vocabulary
from loger.grounding import ground, paths
from loger.logic.mining import MiningConfig, mine
from loger.model import LOGER
from loger.reasoner.search import PathSearch, random_paths
from loger.recommender import ExplainedItem
from loger.rules import candidates, named_rules

TIMES_AS_OFTEN = (
    "items leave the list this many times as often as without random paths of the same pair"
)


def actions_of(graph, user):
    """A user's actions: each interaction with all facts that are known from it alone."""
    n, relations, out = len(graph.relations), graph.edge_relations(), []
    for v in graph.neighbours(user, 0).tolist():
        facts = {(user, 0, v)}
        for head, other in ((user, v), (v, user)):
            for e in range(graph.indptr[head], graph.indptr[head + 1]):
                if graph.origins is not None and graph.origins[e] == other:
                    r, t = int(relations[e]), int(graph.tails[e])
                    facts.add((head, r, t) if r < n else (t, r - n, head))
        out.append(tuple(sorted(facts)))
    return out


class Additive:
    """A recommender whose score is, openly, the sum over rules of weight times paths."""

    name = "additive"

    def __init__(self, graph, rules, weights) -> None:
        self.graph_, self.rules_, self.weights_ = graph, rules, np.asarray(weights, dtype=float)
        self.search = PathSearch(graph, rules, EXHAUSTIVE)

    def rescore(self, user, removed):
        graph = self.graph_.without(*zip(*removed, strict=True)) if removed else self.graph_
        n = graph.n_items
        return ground(graph, self.rules_, np.full(n, user), np.arange(n)).count_matrix @ (
            self.weights_
        )

    def explained(self, users, k, paths=1):
        return [self._of(int(user), k, paths) for user in users]

    def _of(self, user, k, n):
        scores = self.rescore(user, ())
        scores[self.graph_.neighbours(user, 0) - self.graph_.n_users] = -np.inf
        best = np.argsort(-scores, kind="stable")[:k]
        found = self.explain_paths(np.full(len(best), user), best, n)
        weight = {rule.relations: w for rule, w in zip(self.rules_, self.weights_, strict=True)}
        return [
            ExplainedItem(int(v), float(scores[v]), own, tuple(weight[p.relations] for p in own))
            for v, own in zip(best, found, strict=True)
        ]

    def explain_paths(self, users, items, n):
        return [self._best(*pair, n) for pair in zip(users.tolist(), items.tolist(), strict=True)]

    def _best(self, user, item, n):
        every = self.search.best(user, [item], AnyOrder()).of(0)
        return tuple(p.path for p in sorted(every, key=lambda p: -self.weights_[p.rule])[:n])

    def decompose(self, user, items):
        scores, told = self.rescore(user, ()), []
        for item in items:
            counts = ground(self.graph_, self.rules_, [user], [item]).count_matrix.toarray()[0]
            told.append((counts * self.weights_, float(scores[item])))
        return told


# ── a graph so small that the right answers are plain ───────────────────────────────────

# ann has a, b, c, d. By brand, a leads to p; by likeness, b leads to q and c leads to p.
ANN, BEN, A, B, C, D, Q, P, ACME = range(9)


def tiny() -> Split:
    words = Vocabulary(
        {"user": ["ann", "ben"], "item": ["a", "b", "c", "d", "q", "p"], "brand": ["Acme"]}
    )
    relations = (
        Relation("purchase", "user", "item"),
        Relation("has_brand", "item", "brand"),
        Relation("similar", "item", "item"),
    )
    facts = np.array([(A, 1, ACME, -1), (P, 1, ACME, -1), (B, 2, Q, -1), (C, 2, P, -1)])
    bought = np.array([(ANN, A), (ANN, B), (ANN, C), (ANN, D), (BEN, D)])
    events = Interactions(bought[:, 0].astype(np.int32), (bought[:, 1] - 2).astype(np.int32))
    dataset = Dataset("tiny", words, relations, Facts(*facts.T.astype(np.int32)), events)
    return Split(dataset, np.arange(5), np.arange(0), np.arange(0))


def tiny_recommender(weights=(2.0, 1.5)):
    graph = tiny().graph
    names = [["purchase", "has_brand", "has_brand⁻¹"], ["purchase", "similar"]]
    rules = named_rules(graph, names)
    return Additive(graph, rules, weights), rules


ONE = FaithfulnessConfig(k=1, paths=1, users=None)


def test_on_a_tiny_graph_every_line_has_the_value_worked_out_by_hand():
    recommender, rules = tiny_recommender((2.0, 0.4))
    report = faithfulness_report(recommender, tiny(), rules, ONE)
    # ann's list is p (2.4 = 2 + 0.4), q (0.4). Shown for p: ann → a → Acme → p; without its facts
    # p has 0.4 as q has, and q comes first: p is out. Mean of p and q: 1.4, then 0.4.
    assert report["flip"].mean == 1.0
    assert report["comprehensiveness"].mean == pytest.approx((1.0 - 0.0) / 1.0)
    # With nothing but a: p has 2, q has 0; its lead stays 1.
    assert report["insufficiency"].mean == pytest.approx(0.0)
    assert report["validity"].mean == report["along_rules"].mean == 1.0
    assert report["coverage"].mean == 0.5  # nothing leads ben anywhere
    assert report["decomposition_error"].mean <= 1e-12
    assert report["repeatable"].mean == 1.0
    assert report["emitted"].mean == pytest.approx(2 / 2)  # ann 2, ben 0
    # Nobody's training pair has a path: there is no history to be consistent with.
    assert report["js_f"] is None
    assert report["floor"] is None


def test_what_cannot_be_asked_is_left_empty():
    recommender, rules = tiny_recommender()
    report = faithfulness_report(recommender, tiny(), rules, ONE, probes=Probes(), name="mute")
    for line in ("flip", "r2", "decomposition_error", "changed_by_permuting", "recovered_rule"):
        assert report[line] is None
        assert f"{LINES[line]:<64} –" in report.table()
    assert report["validity"].mean == 1.0
    assert report.name == "mute"
    with pytest.raises(UnknownNameError, match="did you mean 'flip'"):
        report["flips"]


def test_who_is_shown_nothing_counts_as_wholly_apart_from_history():
    whole = shop(users=40, items=60)
    parts = split(whole.dataset)
    rules = mine(parts.graph, MiningConfig(min_support=10, min_lift=1, min_rules=5)).rules
    full = Additive(parts.graph, rules, np.ones(len(rules)))

    class Silent(Additive):
        """Shows every other user nothing."""

        def explained(self, users, k, paths=1):
            return [self._of(int(u), k, paths) if u % 2 else [] for u in users]

    half = Silent(parts.graph, rules, np.ones(len(rules)))
    config = FaithfulnessConfig(users=None, probed=0)
    one, two = (faithfulness_report(x, parts, rules, config, probes=Probes()) for x in (full, half))
    odd = np.arange(40) % 2 == 1
    for line in ("js_f", "js_f_sampled", "js_w"):
        known = ~np.isnan(one.values[line])
        assert (two.values[line][known & ~odd] == 1).all()
        np.testing.assert_array_equal(two.values[line][odd], one.values[line][odd])
        assert two[line].users == one[line].users
    assert two["pathless"].mean == pytest.approx(0.5, abs=0.1)
    assert one["pathless"].mean == 0


def test_without_any_history_there_is_nobody_to_ask():
    whole = tiny()
    empty = Split(whole.dataset, np.arange(0), np.arange(0), np.arange(5))
    recommender, rules = tiny_recommender()
    with pytest.raises(LogerError, match="no users with training items"):
        faithfulness_report(recommender, empty, rules)


def test_paths_that_are_no_facts_are_found_out():
    recommender, rules = tiny_recommender()

    class Liar(Additive):
        def _best(self, user, item, n):
            true = super()._best(user, item, n)
            return (*true[:1], Path((user, D, item + 2), (0, 2)))  # d is like nothing

    liar = Liar(recommender.graph_, rules, recommender.weights_)
    report = faithfulness_report(liar, tiny(), rules, ONE, probes=Probes())
    assert report["validity"].mean < 0.6


# ── a shop in which the reasons are known ───────────────────────────────────────────────


@pytest.fixture(scope="module")
def demo_shop():
    demo = shop(users=60, items=80)
    whole = split(demo.dataset)
    rules = mine(whole.graph, MiningConfig(min_support=50, min_lift=2, min_rules=5)).rules
    return demo, whole, rules


def test_the_report_tells_meant_reasons_from_random_ones(demo_shop):
    demo, whole, mined = demo_shop
    rules = candidates(whole.graph)  # most of them all but weightless, with most of the paths
    heavy = {rule.relations for rule in mined}
    weights = np.array([1.0 if rule.relations in heavy else 1e-3 for rule in rules])
    weights *= 1 + np.arange(len(rules)) / 100
    honest = Additive(whole.graph, rules, weights)
    config = FaithfulnessConfig(k=5, paths=1, users=None, probed=8)
    permuted = Additive(whole.graph, rules, weights[::-1])
    probes = Probes.of(honest, permuted=permuted, demo=demo)
    meant = faithfulness_report(honest, whole, rules, config, probes=probes)
    control = RandomPaths(honest, whole.graph, rules)
    random = faithfulness_report(control, whole, rules, config)
    # Random paths are as valid, for the same items; only deletion tells that they are not meant.
    for line in ("validity", "along_rules", "repeatable"):
        assert meant[line].mean == random[line].mean == 1.0
    assert meant["coverage"].mean == random["coverage"].mean
    assert meant["comprehensiveness"].mean > 1.5 * random["comprehensiveness"].mean
    assert meant["flip"].mean > random["flip"].mean
    assert meant["flip_compared"].mean > meant["flip_random_paths"].mean
    ratio = meant["flip_compared"].mean / meant["flip_random_paths"].mean
    assert meant.ratios[TIMES_AS_OFTEN] == pytest.approx(ratio)
    way = meant["random"].mean - meant["floor"].mean
    place = meant.ratios["JS_f on a scale from its floor (0) to its control (1)"]
    assert meant["floor"].mean + place * way == pytest.approx(meant["js_f"].mean)
    assert meant["changed_by_permuting"].mean > 0.3
    assert meant["decomposition_error"].mean <= 1e-9
    assert meant["floor"].mean < meant["random"].mean
    assert random["decomposition_error"] is None
    assert 0 < meant["recovered_rule"].mean <= 1


def test_reports_repeat_and_can_be_read_by_machines(demo_shop):
    _, whole, rules = demo_shop
    honest = Additive(whole.graph, rules, np.ones(len(rules)))
    config = FaithfulnessConfig(k=3, users=8, probed=2)
    one, two = (faithfulness_report(honest, whole, rules, config).to_json() for _ in range(2))
    assert one == two
    assert set(json.loads(one)["lines"]) == set(LINES)
    assert json.loads(one)["users"] == 8


def test_history_itself_as_reasons_is_as_near_as_the_floor(demo_shop):
    """Whoever shows 20 paths drawn from the user's own history meets the floor, by definition."""
    _, whole, rules = demo_shop
    graph = whole.graph

    class Historian:
        def explained(self, users, k, paths=1):
            return [self.of(int(u), k) for u in users]

        def of(self, user, k):
            rng = np.random.default_rng([7, user])
            items = graph.neighbours(user, 0) - graph.n_users
            drawn = random_paths(graph, rules, user, items, 10**6, rng)
            pool = [path for own in drawn for path in own]
            if not pool:
                return []
            chosen = rng.integers(len(pool), size=k)
            return [ExplainedItem(i, 0.0, (pool[c],)) for i, c in enumerate(chosen)]

    config = FaithfulnessConfig(k=20, users=None, paths=1)
    report = faithfulness_report(Historian(), whole, rules, config)
    assert report["js_f"].mean == pytest.approx(report["floor"].mean, abs=0.02)
    assert report["js_w"].mean == report["js_f"].mean  # all its paths weigh alike
    assert report["js_f"].mean < 0.5 * report["random"].mean


def test_loger_itself_can_be_asked_everything(demo_shop):
    """Rescored without a fact, LOGER scores as on the graph that never had it."""
    demo, whole, _ = demo_shop
    model = LOGER().fit(whole)
    refit = whole.refit()
    probes = loger_probes(model, demo)
    bare, user = np.asarray(probes.rescore(4, ())), 4
    scored = model.score([user])[0]
    new = np.isfinite(scored)
    assert bare[new] == pytest.approx(scored[new], abs=1e-5)
    item = int(refit.graph.neighbours(user, 0)[0]) - refit.graph.n_users
    action = actions_of(refit.graph, user)[0]
    fewer = model.graph_.without_interactions([user], [item])
    taken = model.ranker_.on(fewer).score([user])[0]
    new = np.isfinite(taken)
    assert new[item]
    assert np.asarray(probes.rescore(user, action))[new] == pytest.approx(taken[new], abs=1e-5)
    config = FaithfulnessConfig(k=5, paths=1, users=12, probed=6)
    report = faithfulness_report(model, refit, model.rules_, config, probes=probes)
    lengths = {"pn_r_short", "pn_r_middle", "pn_r_long"}
    assert {line for line in LINES if report[line] is None} < lengths
    assert report["decomposition_error"].mean <= 1e-6
    assert report["validity"].mean == report["repeatable"].mean == 1.0
    assert sorted(permuted(model).weights_) == sorted(model.weights_)


def test_planted_cases_are_caused_and_an_oracle_recovers_them_all(demo_shop):
    demo, whole, rules = demo_shop
    users, items, causes = planted_cases(demo, whole, rules)
    assert len(causes) > 20
    told = {}
    for u, v, cause in zip(users.tolist(), items.tolist(), causes, strict=True):
        assert (cause.entities[0], cause.entities[-1]) == (u, v + whole.graph.n_users)
        place = next(k for k, rule in enumerate(rules) if rule.relations == cause.relations)
        assert list(cause.entities) in paths(whole.graph, rules[place], u, v).tolist()
        told[u, v] = cause
    honest = Additive(whole.graph, rules, np.ones(len(rules)))
    oracle = Probes(
        demo=demo,
        explain=lambda us, vs, n: [
            [told[pair]] for pair in zip(us.tolist(), vs.tolist(), strict=True)
        ],
    )
    config = FaithfulnessConfig(users=4)
    report = faithfulness_report(honest, whole, rules, config, probes=oracle)
    assert report["recovered_rule"].mean == report["recovered_path"].mean == 1.0
    assert report["recovered_action"] is None  # it names no reasons


@pytest.mark.parametrize("right", [True, False])
def test_actions_are_recovered_if_the_first_reason_leads_by_the_planted_rule(demo_shop, right):
    demo, whole, rules = demo_shop
    users, items, causes = planted_cases(demo, whole, rules)
    told = dict(zip(zip(users.tolist(), items.tolist(), strict=True), causes, strict=True))

    class Knows:
        def reasons(self, users, items):
            return [self.of(pair) for pair in zip(users.tolist(), items.tolist(), strict=True)]

        def of(self, pair):
            cause = told.get(pair)
            if cause is None:  # nothing caused it, and that is what it says
                return [NamedReason(0, -1, 3.0, 0.0)]
            first, other = (cause.relations[0], cause.entities[1]), (cause.relations[0], -1)
            best, second = (first, other) if right else (other, first)
            return [NamedReason(*best, 3.0, 0.9), NamedReason(*second, 1.0, 0.1)]

    found = recovered(demo, whole, rules, whole.graph, lambda u, v, n: [[]] * len(u), Knows(), 3)
    assert found["recovered_action"].mean() == found["recovered_very_action"].mean() == right
    assert found["share_error"].tolist() == pytest.approx([0.25 if right else 0.75])
    n, noise = 2 * len(causes), int((demo.causes[whole.test] < 0).sum())
    assert noise > 5
    error = (0.1 if right else 0.9) * n / (n + noise)
    assert found["reliability_error"].tolist() == pytest.approx([error])
    ways = []
    for (user, item), cause in told.items():
        rule = next(r for r in rules if r.relations == cause.relations)
        ways.append(len({way[1] for way in paths(whole.graph, rule, user, item).tolist()}))
    assert found["recoverable_very_action"].tolist() == pytest.approx([1 / n for n in ways])


def test_an_action_takes_with_it_what_is_known_from_it_alone(demo_shop):
    _, whole, _ = demo_shop
    graph = whole.graph
    reviewers = 0
    for user in range(graph.n_users):
        items = (graph.neighbours(user, 0) - graph.n_users).tolist()
        for item, facts in zip(items, actions_of(graph, user), strict=True):
            left = graph.without(*zip(*facts, strict=True))
            same = graph.without_interactions([user], [item])
            assert left.fingerprint == same.fingerprint
            reviewers += len(facts) > 1
        if user > 12:
            break
    assert reviewers > 3


def test_random_paths_are_groundings_drawn_evenly(demo_shop):
    _, whole, rules = demo_shop
    graph = whole.graph
    search = PathSearch(graph, rules, EXHAUSTIVE)
    user = 3
    found = search.best(user, np.arange(graph.n_items), AnyOrder())
    sizes = np.diff(found.starts)
    item = int(np.argmax((sizes > 3) * (sizes < 30) * sizes))
    every = {p.path for p in found.of(item)}
    rng = np.random.default_rng(2)
    times = dict.fromkeys(every, 0)
    for _ in range(2000):
        (drawn,) = random_paths(graph, rules, user, [item], 2, rng)
        assert len(set(drawn)) == 2
        for path in drawn:
            times[path] += 1
    expected = 4000 / len(every)
    assert all(abs(n - expected) < 5 * expected**0.5 for n in times.values())
    (all_of_them,) = random_paths(graph, rules, user, [item], 10**6, rng)
    assert set(all_of_them) == every
