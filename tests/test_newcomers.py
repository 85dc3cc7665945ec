"""How new items are scored: by their facts, and by known items with similar facts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grown import named
from loger.encoder.cold_start import NEIGHBOURS, SHARPNESS, SHRINKAGE
from loger.graph import INTERACTION, whole
from loger.model import LOGER


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


def twin_of(model, item: str, name: str) -> list[tuple[str, str, str]]:
    """The facts of an item, said of another."""
    return [
        (name, r, t[1])
        for (h, r, t) in named(model.graph_.given)
        if h == ("item", item) and r.startswith("has")
    ]


def whole_twin(model, item: str, name: str) -> list[tuple[str, str, str]]:
    """All facts of an item that need nobody, said of another."""
    graph, rows = model.graph_.given, []
    for h, r, t in named(graph):
        if r != graph.relations[INTERACTION].name and "user" not in (h[0], t[0]):
            rows += [(name, r, t[1])] if h == ("item", item) else []
            rows += [(h[1], r, name)] if t == ("item", item) else []
    return rows


@pytest.fixture(scope="module")
def later(model):
    return model.update(facts=twin_of(model, model.items[3], "twin"))


def neighbours_of(model, later, item):
    """W of a new item, computed by hand: known item → weight."""
    graph, facts = later.graph_.given, {}
    columns = graph.edge_heads(), graph.edge_relations(), graph.tails, graph.origins
    for head, relation, tail, origin in zip(*(c.tolist() for c in columns), strict=True):
        # Facts known from one interaction are left out, and so is what came after the fit.
        fits = graph.vocabulary.type_of(head) == "item" and tail >= graph.n_users and origin < 0
        if fits and graph.vocabulary.names[tail] != "twin":
            facts.setdefault(graph.vocabulary.names[head], set()).add((relation, tail))
    n = len(later.items)
    often = {f: sum(f in own for own in facts.values()) for own in facts.values() for f in own}
    rare = {f: np.log((1 + n) / (1 + k)) for f, k in often.items()}

    def length(own):
        return np.sqrt(sum(rare[f] ** 2 for f in own))

    mine = facts[item]
    alike = {
        other: sum(rare[f] ** 2 for f in mine & own) / (length(mine) * length(own))
        for other, own in facts.items()
        if other in model.items and length(own) > 0
    }
    nearest = sorted(alike, key=lambda v: (-alike[v], model.items.index(v)))[:NEIGHBOURS]
    powers = {v: alike[v] ** SHARPNESS for v in nearest}
    return {v: p / (SHRINKAGE + sum(powers.values())) for v, p in powers.items()}


def test_derived_facts_of_a_new_item_are_the_mean_of_its_neighbours(model, later):
    near, graph = neighbours_of(model, later, "twin"), whole(later.graph_)
    assert len(near) == NEIGHBOURS and 0.8 < sum(near.values()) < 1
    ids, twin = graph.vocabulary.ids("item"), graph.vocabulary.id("item", "twin")
    derived = [k for k, r in enumerate(graph.relations) if r.derived]
    assert derived
    for relation in derived:
        back = graph.inverse(relation)
        expected = {}
        for name, weight in near.items():
            for head in graph.neighbours(ids[name], back).tolist():
                edge = graph.rows.edge(head, relation, ids[name])
                expected[head] = expected.get(head, 0) + weight * graph.weights[edge]
        assert set(graph.neighbours(twin, back).tolist()) == set(expected)
        for head, weight in expected.items():
            edge = graph.rows.edge(head, relation, twin)
            assert graph.weights[edge] == pytest.approx(weight, rel=1e-5)
            assert graph.people(head, relation, twin) == 0
        assert not len(graph.neighbours(twin, relation))  # nothing is said to follow it


def test_its_appeal_is_the_mean_of_its_neighbours_and_fades_as_people_take_it(model):
    like = model.items[3]
    facts = [*twin_of(model, like, "twin"), *twin_of(model, like, "taken")]
    rows = [(user, "taken", 5, 10) for user in model.users[:6]]
    later = model.update(rows, facts=facts)
    logic, graph = later.ranker_.logic, whole(later.graph_)
    people = [k for k, rule in enumerate(logic.rules) if rule.relations[-1] == INTERACTION]
    lone = replace(logic, expected=None, prior=0.0, weights=np.zeros_like(logic.weights))
    lone.weights[people] = logic.weights[people]
    users = np.arange(graph.n_users)
    mean = lone.logits(graph, users).mean(0, dtype=np.float64)
    known = len(model.items)
    for name in ("twin", "taken"):
        near, place = neighbours_of(model, later, name), later.items.index(name)
        weights = np.array([near.get(v, 0.0) for v in later.items[:known]])

        def usual(x, weights=weights):
            return weights @ x[:known] + (1 - weights.sum()) * x[:known].mean()

        takers, own = usual(graph.popularity), graph.popularity[place]
        expected = (usual(mean) - mean[place]) * takers / (takers + own)
        assert logic.expected[place] == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert not logic.expected[:known].any()


def test_what_the_encoder_gives_known_items_is_the_same_to_the_bit(model, later):
    users = np.arange(model.graph_.n_users)
    before, after = (m.ranker_.encoder_scores(users) for m in (model, later))
    assert after[:, :100].tobytes() == before.tobytes()


def test_a_twin_is_listed_about_as_often_as_its_original_by_people_without_it(model):
    """Also where the encoder weighs nothing."""
    bare = replace(model.ranker_, fusion=replace(model.ranker_.fusion, encoder_weight=0.0))
    for before in (model, model.with_ranker(bare)):
        order = np.argsort(-model.graph_.popularity, kind="stable")[:20].tolist()
        facts = [f for v in order for f in whole_twin(model, model.items[v], f"twin {v}")]
        later = before.update(facts=facts)
        users = np.arange(model.graph_.n_users)
        lists = later.ranker_.top(users, 10)[0]
        has = later.ranker_.known(users)
        owners = {v: set(has[0][has[1] == v].tolist()) for v in order}
        twins = originals = 0
        for user, row in zip(users.tolist(), lists, strict=True):
            names = [later.items[v] for v in row.tolist()]
            for v in order:
                if user not in owners[v]:
                    twins += f"twin {v}" in names
                    originals += model.items[v] in names
        assert 0.5 * originals <= twins <= 1.1 * originals


def test_parts_of_a_new_item_add_up_to_its_score_and_say_what_is_expected(later):
    scores = later.ranker_.scores(np.arange(20))
    texts = set()
    for place, user in enumerate(later.users[:20]):
        told = later.explain(user, "twin")
        assert told.score == pytest.approx(scores.total[place, 100], abs=1e-5)
        total = told.mean + told.appeal + sum(reason.total for reason in told.reasons)
        assert total == pytest.approx(told.score, abs=1e-9)
        assert told.mean == pytest.approx(scores.mean(place), abs=1e-5)
        assert "expected from similar items" in str(told)
        texts |= {e.text for r in told.reasons for e in r.evidence if e.rule.derived}
    assert texts == {"expected to go with it, as similar items do"}
    known = later.explain(later.users[0], later.recommend(later.users[0], 1)["item"][0])
    assert known.expected or "expected from similar items" not in str(known)


def test_what_is_expected_is_stored_and_made_again_by_the_next_update(later, tmp_path):
    later.save(tmp_path / "b")
    again = LOGER.load(tmp_path / "b")
    users = np.arange(later.graph_.n_users)
    assert again.score(users).tobytes() == later.score(users).tobytes()
    more = again.update(items=["bare"])
    assert len(more.ranker_.logic.expected) == len(more.items)
    less = more.remove(items=["bare", "twin"])
    assert less.ranker_.logic.expected is None
    assert str(less.updates_.log[-1]) == "removed 3 facts, 2 items"  # those that were stated
    graph = whole(less.graph_)
    assert graph.fingerprint == whole(later.remove(items="twin").graph_).fingerprint


def test_an_item_without_facts_is_expected_to_be_like_the_mean(model):
    bare = model.update(items=["bare"])
    graph, logic = whole(bare.graph_), bare.ranker_.logic
    entity = graph.vocabulary.id("item", "bare")
    assert graph.indptr[entity + 1] == graph.indptr[entity]
    assert np.isfinite(logic.expected).all()
