"""Relations derived from interactions: what they contain and say, and what they must not know."""

import json
import re
import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from loger.baselines import LinearIALS
from loger.baselines._shared import ordered_events
from loger.baselines.sequence import people_behind
from loger.baselines.slim import LocalSLIM, shortened
from loger.config import LOGERConfig
from loger.data import from_frames
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.graph import INTERACTION, Path, whole
from loger.grounding import Walk, logits
from loger.grounding.reaching import WALK, Formula
from loger.learning.derived import _people_with, choose, derive, derived_rules
from loger.learning.fitted import FittedLogic, Round
from loger.learning.tune import drop_derived_rules_if_harmful
from loger.logic.config import DerivedConfig, EMConfig, FollowedByConfig, GoesWithConfig
from loger.model import LOGER
from loger.rules import RuleSet, make_rule
from loger.rules.sentences import evidence_sentence, path_sentence

SMALL = LOGERConfig(
    derived=DerivedConfig(),
    encoder=TransEConfig(dimension=16, epochs=2),
    em=EMConfig(rounds=0, teacher=0),
)
ALL = DerivedConfig(FollowedByConfig(facts=10_000, recency=2.0), GoesWithConfig(facts=10_000))


@pytest.fixture(scope="module")
def parts(few):
    return few


@pytest.fixture(scope="module")
def graph(parts):
    return derive(parts, ALL)


@pytest.fixture(scope="module")
def model(parts):
    return LOGER(SMALL).fit(parts)


def with_other_test_items(parts):
    """The split with every test interaction replaced by one with an item drawn at random."""
    events = parts.dataset.interactions
    rng, items = np.random.default_rng(7), events.items.copy()
    have = set(zip(events.users.tolist(), events.items.tolist(), strict=True))
    for row in parts.test:
        free = [v for v in range(parts.dataset.n_items) if (int(events.users[row]), v) not in have]
        items[row] = rng.choice(free)
        have.add((int(events.users[row]), int(items[row])))
    dataset = replace(parts.dataset, interactions=replace(events, items=items))
    return replace(parts, dataset=dataset)


# ── what they are ────────────────────────────────────────────────────────────────────────


def brute_sequence(parts, config):
    """S_ij of METHOD 15, and the people behind it, by the plainest loops."""
    users, items, times = ordered_events(parts)
    n = parts.dataset.n_items
    counts, people = np.zeros((n, n)), {}
    for p in range(len(users)):
        mine = np.flatnonzero(users == users[p])
        for q in mine:
            if 0 < q - p <= config.window:
                counts[items[p], items[q]] += (q - p) ** -config.distance
            between = np.sum((times[p] < times[mine]) & (times[mine] < times[q]))
            if times[p] <= times[q] and between < config.window:  # "with it or …"
                people.setdefault((items[p], items[q]), set()).add(users[p])
    out, into = counts.sum(axis=1), counts.sum(axis=0)
    below = (out[:, None] + config.shrink) * np.where(into > 0, into, 1)[None] ** config.popularity
    np.fill_diagonal(counts, 0)
    return counts / below, {pair: len(who) for pair, who in people.items()}


def test_followed_by_is_the_weight_of_the_sequence_control(parts, graph):
    slow, people = brute_sequence(parts, ALL.followed_by)
    r, first = graph.relation_id("followed_by"), graph.n_users
    found = np.zeros_like(slow)
    for i in range(graph.n_items):
        for v in graph.neighbours(i + first, r).tolist():
            found[i, v - first] = graph.weight(i + first, r, v)
            assert graph.people(i + first, r, v) == people[i, v - first]
    assert found / found.max() == pytest.approx(slow / slow.max(), rel=1e-4, abs=1e-7)


def test_who_took_both_at_one_time_took_each_with_the_other():
    """The order of rows within a moment is no order, so "with it" holds both ways."""
    rng = np.random.default_rng(3)
    users, items, times = (rng.integers(n, size=60) for n in (4, 5, 6))
    rows = np.lexsort((times, users))
    users, items, times = users[rows], items[rows], times[rows]
    starts, followers = np.arange(6) * 5, np.tile(np.arange(5), 5)  # every pair is an entry
    for window in (1, 3):
        found = people_behind(starts, followers, users, items, times, window).reshape(5, 5)
        for i, j in product(range(5), repeat=2):
            who = {
                users[p]
                for p, q in product(range(60), repeat=2)
                if p != q and users[p] == users[q] and (items[p], items[q]) == (i, j)
                and times[p] <= times[q]
                and sum(users[p] == u and times[p] < t < times[q]
                        for u, t in zip(users, times, strict=True)) < window
            }  # fmt: skip
            assert i == j or found[i, j] == len(who)


def test_goes_with_is_the_positive_part_of_a_ridge_regression(parts, graph):
    users, items = parts.pairs("train")
    x = np.zeros((parts.dataset.n_users, parts.dataset.n_items))
    x[users, items] = 1
    gram, r, first = x.T @ x, graph.relation_id("goes_with"), graph.n_users
    slow = np.zeros_like(gram)
    for j in range(len(gram)):
        near = np.flatnonzero(np.arange(len(gram)) != j)
        inner = gram[np.ix_(near, near)] + ALL.goes_with.l2 * np.eye(len(near))
        slow[near, j] = np.linalg.solve(inner, gram[near, j])
    slow = np.maximum(slow, 0) * (gram > 0)
    found = np.zeros_like(slow)
    for i in range(graph.n_items):
        for v in graph.neighbours(i + first, r).tolist():
            found[i, v - first] = graph.weight(i + first, r, v)
            assert graph.people(i + first, r, v) == gram[i, v - first]
    assert found / found.max() == pytest.approx(slow / slow.max(), rel=1e-3, abs=1e-6)


def test_goes_with_is_made_of_factors_where_validation_prefers_them(parts, monkeypatch):
    monkeypatch.setattr("loger.learning.derived.USERS", 100)
    config, tried = choose(parts, DerivedConfig())
    both = {
        by: max(value for name, text, value in tried if name == "goes_with" and ours(text))
        for by, ours in (
            ("factors", lambda text: text.startswith("by factors")),
            ("regression", lambda text: not text.startswith("by factors")),
        )
    }
    assert (config.goes_with.factors > 0) == (both["factors"] > both["regression"])
    made = replace(config.goes_with, factors=8, facts=10_000, l2=0.01, popularity=0.2)
    graph = derive(parts, DerivedConfig(FollowedByConfig(facts=0), made))
    model = LinearIALS(dimensions=8, l2=0.01, unobserved=made.unobserved).fit(parts)
    slow = model.weights_.toarray() * model.counts_**-0.2
    r, first, found = graph.relation_id("goes_with"), graph.n_users, np.zeros_like(slow)
    for i in range(graph.n_items):
        for v in graph.neighbours(i + first, r).tolist():
            found[i, v - first] = graph.weight(i + first, r, v)
            assert graph.people(i + first, r, v) > 0
    assert found == pytest.approx(slow / slow.max(), rel=1e-3, abs=1e-6)
    for limit, least in (("FACTORED", len(parts.train) - 1), ("WHOLE", parts.dataset.n_items - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"loger.learning.derived.{limit}", least)
            _, fewer = choose(parts, DerivedConfig())
            assert not any(str(text).startswith("by factors") for _, text, _ in fewer)


def test_the_rules_alone_rank_as_the_controls_do(parts, graph):
    from loger.learning.derived import _linear, _sequence

    rules, users = derived_rules(graph), np.arange(graph.n_users)
    walk = Walk(first=0.0, recency=0.25)  # each relation fades by its own
    controls = (
        _sequence(ALL.followed_by).fit(parts),
        _linear(ALL.goes_with, graph.n_items).fit(parts),
    )
    for place, control in enumerate(controls):
        weights = np.eye(2)[place]
        formula = Formula(WALK, weights, np.ones(2))
        found = logits(graph, rules, users, formula, walk=walk)
        slow = control.score(users)
        for u in users.tolist():
            free = np.ones(graph.n_items, dtype=bool)
            free[graph.neighbours(u, INTERACTION) - graph.n_users] = False
            unit = max(slow[u, free].max(), 1e-12)
            best = max(found[u, free].max(), 1e-12)
            assert found[u, free] / best == pytest.approx(slow[u, free] / unit, rel=1e-3, abs=1e-5)


def test_only_the_strongest_facts_of_an_item_are_kept(parts, graph):
    few = derive(parts, replace(ALL, followed_by=replace(ALL.followed_by, facts=3)))
    r, first = graph.relation_id("followed_by"), graph.n_users
    for i in range(first, first + graph.n_items):
        every = {v: graph.weight(i, r, v) for v in graph.neighbours(i, r).tolist()}
        kept = few.neighbours(i, r).tolist()
        assert len(kept) == min(3, len(every))
        least = min((every[v] for v in kept), default=0.0)
        assert all(w <= least * (1 + 1e-6) for v, w in every.items() if v not in kept)


def test_data_without_times_have_no_order_to_learn_from(parts):
    events = replace(parts.dataset.interactions, times=None)
    plain = replace(parts, dataset=replace(parts.dataset, interactions=events))
    config, _ = choose(plain, replace(DerivedConfig(), tune=False))
    assert config.followed_by.facts == 0
    names = [r.name for r in derive(plain, config).relations if r.derived]
    assert names == ["goes_with"]


def test_a_name_that_the_data_use_is_not_taken_twice(parts):
    relations = tuple(
        replace(r, name="goes_with") if r.name == "also_bought" else r
        for r in parts.dataset.relations
    )
    taken = replace(parts, dataset=replace(parts.dataset, relations=relations))
    names = [r.name for r in derive(taken, ALL).relations if r.derived]
    assert names == ["followed_by", "goes_with[learned]"]


def test_settings_are_those_that_validation_prefers(parts, monkeypatch):
    monkeypatch.setattr("loger.learning.derived.USERS", 50)
    config, tried = choose(parts, DerivedConfig())
    for name in ("followed_by", "goes_with"):
        best = max(value for what, _, value in tried if what == name)
        chosen = getattr(config, name)
        texts = [text for what, text, value in tried if what == name and value == best]
        assert any(f"recency {chosen.recency:g}" in text for text in texts)
    assert len(tried) <= 26 + 15 + 18


# ── what they never know ─────────────────────────────────────────────────────────────────


def test_replacing_every_test_interaction_leaves_the_bundle_equal_to_the_byte(
    parts, model, tmp_path
):
    """But for the list of held-out pairs, its checksum, and what was measured on them."""
    model.save(tmp_path / "one")
    LOGER(SMALL).fit(with_other_test_items(parts)).save(tmp_path / "two")
    files = {f.name for f in (tmp_path / "one").iterdir()}
    assert {"graph.safetensors", "logic.safetensors", "encoder.safetensors"} <= files
    for name in sorted(files - {"held_out.safetensors", "manifest.json"}):
        one, two = ((tmp_path / where / name).read_bytes() for where in ("one", "two"))
        assert one == two, name
    learned = [
        json.loads((tmp_path / where / "manifest.json").read_text())["about"]
        for where in ("one", "two")
    ]
    measured = [about.pop("measured") for about in learned]
    assert measured[0]["interactions"] == measured[1]["interactions"]
    assert learned[0] == learned[1]


def test_a_transition_that_only_the_test_part_has_never_appears(parts):
    known = parts.refit()
    graph = derive(known, ALL)
    r, first = graph.relation_id("followed_by"), graph.n_users
    g = graph.relation_id("goes_with")
    events = parts.dataset.interactions
    users, items = known.pairs("train")
    have = {(u, v) for u, v in zip(users.tolist(), items.tolist(), strict=True)}
    together = {(i, j) for u, i in have for w, j in have if u == w and i != j}
    planted = 0
    for row in parts.test:
        u, v = int(events.users[row]), int(events.items[row])
        for i in [item for owner, item in have if owner == u]:
            if (i, v) not in together and i != v:
                planted += 1
                assert not graph.has(i + first, r, v + first)
                assert not graph.has(i + first, g, v + first)
    assert planted > 50


def test_validation_is_not_in_the_relations_that_weights_are_learned_with(parts):
    names = ("followed_by", "goes_with")
    events = parts.dataset.interactions
    items = events.items.copy()
    items[parts.validation] = items[np.roll(parts.validation, 1)]
    other = replace(
        parts, dataset=replace(parts.dataset, interactions=replace(events, items=items))
    )
    one, two = derive(parts, ALL), derive(other, ALL)
    for name in names:
        r = one.relation_id(name)
        for i in range(one.n_users, one.n_users + one.n_items):
            assert one.neighbours(i, r).tolist() == two.neighbours(i, r).tolist()


# ── in a model ───────────────────────────────────────────────────────────────────────────


def test_a_model_keeps_them_in_its_bundle(model, tmp_path):
    model.save(tmp_path / "bundle")
    again = LOGER.load(tmp_path / "bundle")
    graph = whole(model.graph_)
    assert whole(again.graph_).fingerprint == graph.fingerprint
    made, config = [r.name for r in graph.relations if r.derived], model.config_.derived
    assert made == [n for n in ("followed_by", "goes_with") if getattr(config, n).facts]
    assert set(made) == {rule.names[-1] for rule in model.rules_ if rule.derived}
    assert again.config_.derived == config
    assert (again.score(np.arange(5)) == model.score(np.arange(5))).all()
    assert {"followed_by", "goes_with"} <= {name for name, *_ in model.tried_}


def test_what_no_rule_leads_over_is_not_made(parts):
    config = DerivedConfig()
    graph = derive(parts, replace(config, goes_with=replace(config.goes_with, facts=0)))
    used = config.used_by(derived_rules(graph))
    assert (used.followed_by, used.goes_with.facts) == (config.followed_by, 0)
    assert config.used_by(derived_rules(parts.graph)) == replace(
        config,
        followed_by=replace(config.followed_by, facts=0),
        goes_with=replace(config.goes_with, facts=0),
    )


@pytest.mark.parametrize(("gain", "used"), [(-0.1, True), (0.005, True), (0.1, False)])
def test_they_are_left_out_only_where_that_is_better_by_more_than_chance(
    parts, graph, model, gain, used
):
    """What is better without them by half a standard error may be better by luck."""
    rules = RuleSet((*derived_rules(graph), make_rule(graph, (INTERACTION, graph.inverse(0), 0))))
    logic = replace(model.ranker_.logic, rules=rules, weights=np.ones(3), scales=np.ones(3))
    trace = (Round(0, -1.0, -1.0, 0, 0, 0.3, 0.3),)
    first = FittedLogic(logic, model.ranker_.fusion, trace)
    noise = np.tile([-0.1, 0.1], 50)  # of which the standard error is 0.01

    class Problem:
        few, dev_users = False, np.arange(100)

        def m_step(self, fitted):
            assert not any(rule.derived for rule in fitted.logic.rules)
            return fitted, -1.0, -1.0

        def dev_metrics(self, fitted):
            with_them = any(rule.derived for rule in fitted.logic.rules)
            ndcg = np.full(100, 0.3) if with_them else 0.3 + gain + noise
            return ndcg, ndcg

    chosen, tried = drop_derived_rules_if_harmful(Problem(), first)
    assert any(rule.derived for rule in chosen.logic.rules) is used
    assert tried == [("derived", True, 0.3), ("derived", False, pytest.approx(0.3 + gain))]


def test_the_encoder_does_not_see_them(model, parts):
    assert len(model.encoder_.relations_) == len(parts.graph.relations)


def test_the_papers_m_step_has_none(parts):
    encoder = TransEConfig(dimension=16, epochs=1)
    config = replace(LOGERConfig.paper(rounds=0), encoder=encoder, derived=DerivedConfig())
    graph = LOGER(config).fit(parts).graph_
    assert not any(r.derived for r in graph.relations)


def test_explanations_name_the_people_behind_a_fact(graph):
    words, first = graph.vocabulary, graph.n_users
    user = 0
    a = int(graph.neighbours(user, INTERACTION)[0])
    own = set(graph.neighbours(user, INTERACTION).tolist())
    window = graph.relations[graph.relation_id("followed_by")].window
    later = f"up to {window} items later"
    for name, text, told in (
        ("followed_by", "bought {v} with it or " + later, "bought this with it or " + later),
        ("goes_with", "bought both it and {v}", "bought both"),
    ):
        r = graph.relation_id(name)
        v = next(x for x in graph.neighbours(a, r).tolist() if x not in own)
        n = graph.people(a, r, v)
        who = "someone" if n < 3 else f"{n} people"
        path = Path((user, a, v), (INTERACTION, r))
        label = words.labels[v]
        said = path_sentence(graph, path)
        assert said == f"you bought {words.labels[a]}; {who} {text.format(v=label)}"
        assert evidence_sentence(graph, path, 1, []) == f"{who} {told}"
    back = graph.inverse(graph.relation_id("followed_by"))
    v = next(x for x in graph.neighbours(a, back).tolist() if x not in own)
    n = graph.people(a, back, v)
    said = evidence_sentence(graph, Path((user, a, v), (INTERACTION, back)), 1, [])
    who = "someone" if n < 3 else f"{n} people"
    assert said == f"{who} bought it with this or {later}"
    assert first <= v


def test_what_the_latest_action_leads_to_is_said_of_the_last(parts, monkeypatch):
    monkeypatch.setattr(
        "loger.learning.fit.drop_derived_rules_if_harmful", lambda em, first: (first, [])
    )
    model = LOGER(SMALL).fit(parts)
    ranker = model.ranker_
    places = [k for k, rule in enumerate(model.rules_) if "followed_by" in rule.names]
    assert places
    heavy = model.weights_.copy()
    heavy[places] = 50.0
    other = model.with_ranker(ranker.with_weights(heavy))
    told = [
        (reason, explanation)
        for user in model.users[:20]
        for item in other.recommend(user, 3)["item"]
        for explanation in [other.explain(user, item)]
        for reason in explanation.shown
    ]
    last = [(r, e) for r, e in told if r.action.endswith(" last")]
    assert last
    graph = whole(model.graph_)
    for reason, explanation in last:
        edge = graph.rows.edge(explanation.user, INTERACTION, reason.entity)
        assert graph.later[edge] == 0
        assert re.search(r"with it or up to \d+ items later", reason.evidence_text)


def test_scores_are_what_the_parts_of_actions_add_up_to(model):
    for user in model.users[:5]:
        for item in model.recommend(user, 3)["item"]:
            explanation = model.explain(user, item)
            parts = explanation.attribution
            total = parts.mean + parts.appeal + parts.actions.sum() + (parts.opaque or 0.0)
            assert total == pytest.approx(explanation.score, abs=1e-4)


def test_a_user_with_very_many_items_costs_what_some_of_them_cost(monkeypatch):
    dense = (np.random.default_rng(0).random((30, 40)) < 0.2).astype(np.float32)
    dense[7] = 1  # has everything
    seen = sp.csr_array(dense)
    assert shortened(seen, 40) is seen
    short = shortened(seen, 15, 6)
    assert np.diff(short.indptr).tolist() == [6 if n > 15 else n for n in dense.sum(axis=1)]
    assert short.has_canonical_format
    rows = dense.sum(axis=1) <= 15
    assert np.array_equal(short.toarray()[rows], dense[rows])
    assert (short.toarray() <= dense).all() and np.ptp(short[[7]].indices) > 30
    ones, others = (x.ravel() for x in np.indices((40, 40)))
    monkeypatch.setattr("loger.learning.derived.MOST", 12)
    together = _people_with(seen, ones, others)
    assert np.array_equal(together.reshape(40, 40), dense.T @ dense)


@pytest.mark.long
def test_twenty_thousand_items_of_one_user_do_not_fill_the_memory():
    items = 20_000
    plays = pl.DataFrame({
        "user": ["hub"] * items + [f"u{k % 500}" for k in range(2_500)],
        "item": [f"i{k}" for k in range(items)] + [f"i{7 * k % 900}" for k in range(2_500)],
    })  # fmt: skip
    tracemalloc.start()
    model = LocalSLIM().fit(split(from_frames(plays)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9  # all pairs of them took several GB
    assert model.weights_.nnz > 0


def test_local_slim_refuses_what_it_cannot_do():
    from loger.errors import LogerError

    for wrong in ({"l2": 0.0}, {"neighbours": 0}, {"candidates": 0}):
        with pytest.raises(LogerError, match="must be"):
            LocalSLIM(**wrong)
