"""Strengths of interactions: read, stored, used in walks and in the encoder, and never leaked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import brute_relative, brute_strengths, graphs, with_strengths
from grown import assert_same
from loger.data import from_frames, load
from loger.data.dataset import Dataset
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.encoder.folding import attribute_user, score_users
from loger.explain.attribution import explain
from loger.graph import INTERACTION, KnowledgeGraph, history, whole
from loger.graph.arrays import as_strengths
from loger.graph.growth import with_facts
from loger.grounding import Walk, ground
from loger.model import LOGER, LOGERConfig
from loger.rules import candidates
from loger.tables.table import from_tables
from loger.updates.events import Event
from loger.updates.pending import Pending

WALKS = (Walk(strength=1.0), Walk(0.5, 0.25, popular=0.5, recency=0.75, strength=0.5))


def data(rows: list[tuple], *columns: str, **more: object) -> Dataset:
    return from_frames(pl.DataFrame(rows, schema=list(columns), orient="row"), **more)


# ── reading ─────────────────────────────────────────────────────────────────────────────


def test_amounts_of_a_pair_add_up_and_what_is_not_above_0_says_nothing() -> None:
    rows = [("ann", "a", 2.0), ("ann", "b", 5.0), ("ann", "a", 3.5), ("bob", "a", -1.0)]
    known = data(rows, "user", "item", "plays").interactions
    assert known.strengths is not None and known.strengths.tolist() == [5.5, 5.0, 0.0]


def test_repeated_rows_count_and_of_ratings_the_highest_stays() -> None:
    rows = [("ann", "a", 2.0), ("ann", "b", 5.0), ("ann", "a", 4.0)]
    counted = data([r[:2] for r in rows], "user", "item").interactions
    assert counted.strengths is not None and counted.strengths.tolist() == [2, 1]
    rated = data(rows, "user", "item", "rating").interactions
    assert rated.strengths is None and rated.ratings is not None
    assert rated.ratings.tolist() == [4, 5]


def test_counts_are_told_from_amounts_and_stay_so(tmp_path: Path) -> None:
    rows = [("ann", "a", 2.0), ("ann", "b", 5.0), ("ann", "a", 4.0), ("bob", "a", 1.0)]
    said = {name: data(rows, "user", "item", name) for name in ("Play Count", "quantity", "rating")}
    said["rows"] = data([row[:2] for row in rows], "user", "item")
    counted = {name: dataset.interactions.counted for name, dataset in said.items()}
    assert counted == {"Play Count": True, "quantity": False, "rating": False, "rows": True}
    for name, dataset in said.items():
        dataset.save(tmp_path / name)
        assert load(tmp_path / name).interactions.counted == counted[name]
        assert dataset.graph(np.arange(3)).counted == counted[name]
    for name, often in (("plays", True), ("dwell", False)):
        table = pl.DataFrame(
            [(f"u{k % 7}", f"t{k % 5}", 1 + k) for k in range(35)],
            schema=["user_id", "track_id", name],
            orient="row",
        )
        assert from_tables(table).interactions.counted == often
    both = data([(*row, 9) for row in rows], "user", "item", "quantity", "plays").interactions
    assert both.strengths is not None and both.strengths.tolist() == [6, 5, 1] and not both.counted


@pytest.mark.parametrize("column", ["rating", "strength"])
def test_where_all_interactions_are_alike_there_are_no_strengths(column: str) -> None:
    dataset = data(
        [("ann", "a", 3.0), ("ann", "b", 3.0), ("bob", "a", 3.0)], "user", "item", column
    )
    assert dataset.graph(np.arange(3)).strengths is None
    assert data([("ann", "a"), ("bob", "a")], "user", "item").interactions.strengths is None


def test_what_is_held_out_adds_nothing_to_what_is_known() -> None:
    def parted(later: float, held_out: float) -> KnowledgeGraph:
        rows = [
            ("ann", "a", 2.0, "train"), ("ann", "b", 1.0, "train"), ("ann", "a", later, "test"),
            ("ann", "c", held_out, "test"), ("bob", "a", 1.0, "train"), ("bob", "b", 1.0, "valid"),
        ]  # fmt: skip
        return split(data(rows, "user", "item", "count", "part")).graph

    assert parted(1.0, 1.0).fingerprint == parted(7.0, 9.0).fingerprint


def test_strengths_are_saved_with_the_data(tmp_path: Path) -> None:
    dataset = data([("ann", "a", 2.0), ("ann", "b", 5.0)], "user", "item", "quantity")
    dataset.save(tmp_path / "data")
    again = load(tmp_path / "data")
    rows = np.arange(2)
    assert again.graph(rows).fingerprint == dataset.graph(rows).fingerprint
    assert again.graph(rows).strengths is not None


# ── walks ───────────────────────────────────────────────────────────────────────────────


@given(graphs(), st.integers(0, 2**32 - 1), st.sampled_from(WALKS), st.booleans())
def test_a_first_hop_counts_by_its_strength(graph, seed, walk, rated):
    rng = np.random.default_rng(seed)
    graph = with_strengths(graph, rng, rated)
    rules = candidates(graph)
    pairs = [(u, v) for u in range(graph.n_users) for v in range(graph.n_items)][:12]
    users, items = (np.array(x) for x in zip(*pairs, strict=True))
    found = ground(graph, rules, users, items, walk=walk).strength_matrix.toarray()
    for row, (u, v) in enumerate(pairs):
        slow = brute_strengths(graph, rules, u, v, walk)
        assert found[row] == pytest.approx(slow, rel=1e-9)


@given(graphs(), st.integers(0, 2**32 - 1))
def test_a_pairs_own_strength_never_supports_it(graph, seed):
    rng = np.random.default_rng(seed)
    graph = with_strengths(graph, rng)
    edges, users = graph.interactions
    if not len(edges):
        return
    k = int(rng.integers(len(edges)))
    assert graph.strengths is not None
    more = graph.strengths.copy()
    more[edges[k]] += 1 + max(more)
    pair = users[k : k + 1], graph.tails[edges[k : k + 1]] - graph.n_users
    before, after = (
        ground(g, candidates(graph), *pair, walk=WALKS[0]).strength_matrix.toarray()
        for g in (graph, replace(graph, strengths=more))
    )
    known = graph.strengths[edges[k]] > 0  # one that becomes known changes what is usual
    assert not known or (after <= before * (1 + 1e-12)).all()


@given(graphs(), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.0, 2.0]))
def test_a_users_interactions_count_1_on_average(graph, seed, power):
    graph = with_strengths(graph, np.random.default_rng(seed))
    relative = graph.relative_strengths(power)
    assert graph.relative_strengths(0.0) is None
    edges, users = graph.interactions
    others = np.setdiff1d(np.arange(len(relative)), edges)
    assert (relative[others] == 1).all()
    for user in range(graph.n_users):
        slow = brute_relative(graph, user, power)
        mine = {int(graph.tails[e]): relative[e] for e in edges[users == user]}
        assert mine == pytest.approx(slow)
        assert not mine or np.mean(list(mine.values())) == pytest.approx(1)


@given(graphs(), st.integers(0, 2**32 - 1), st.booleans())
def test_in_a_view_the_rest_counts_as_before_and_what_is_new_as_in_a_graph(graph, seed, rated):
    rng = np.random.default_rng(seed)
    graph = with_strengths(graph, rng, rated)
    user = int(rng.integers(graph.n_users))
    mine = graph.neighbours(user, INTERACTION) - graph.n_users
    if len(mine):
        view = graph.user_view(user, mine[:1].tolist())
        left, all_of_it = view.relative_strengths(0.5), graph.relative_strengths(0.5)
        start = graph.indptr[user]
        assert left == pytest.approx(all_of_it[start + 1 : start + 1 + len(left)])
        assert view.gone_relative(0.5) == pytest.approx(all_of_it[start : start + 1])
    new = np.setdiff1d(np.arange(graph.n_items), mine)[:2].tolist()
    for strong in (None, [3.0, 0.5][: len(new)]):
        view = graph.user_view(user, (), new, strengths=strong)
        whole = graph.plus([user] * len(new), new, strengths=strong)
        start, end = whole.indptr[user : user + 2]
        assert (view.relative_strengths(1.0) == whole.relative_strengths(1.0)[start:end]).all()


# ── updates ─────────────────────────────────────────────────────────────────────────────


@given(graphs(with_origins=False), st.integers(0, 2**32 - 1), st.booleans())
def test_what_comes_later_adds_up_in_any_order(graph, seed, rated):
    rng = np.random.default_rng(seed)
    graph = with_strengths(graph, rng, rated)
    n = 7
    users, items = rng.integers(graph.n_users, size=n), rng.integers(graph.n_items, size=n)
    strong, told = rng.random(n) * 3, dict[tuple[int, int], float]()
    edges, owners = graph.interactions
    assert graph.strengths is not None
    for u, e in zip(owners.tolist(), edges, strict=True):
        told[u, int(graph.tails[e]) - graph.n_users] = float(graph.strengths[e])
    for u, v, x in zip(users.tolist(), items.tolist(), as_strengths(strong), strict=True):
        told[u, v] = max(told.get((u, v), 0.0), x) if rated else told.get((u, v), 0.0) + x

    def after(order: np.ndarray, parts: int) -> KnowledgeGraph:
        grown = graph
        for some in np.array_split(order, parts):
            ends = users[some], np.zeros(len(some), np.int64), items[some] + graph.n_users
            grown = with_facts(grown, ends, strengths=strong[some])
        return grown

    whole = after(np.arange(n), 1)
    for parts in (2, n):
        assert_same(after(rng.permutation(n), parts), whole)
    edges, owners = whole.interactions
    assert whole.strengths is not None
    assert {
        (u, int(whole.tails[e]) - graph.n_users): float(whole.strengths[e])
        for u, e in zip(owners.tolist(), edges, strict=True)
    } == told


def test_events_add_up_and_a_delete_begins_anew() -> None:
    dataset = data(
        [("ann", "a", 2.0), ("ann", "b", 5.0), ("bob", "c", 1.0)], "user", "item", "plays"
    )
    pending = Pending(dataset.graph(np.arange(3)))
    bodies = [
        ("interaction", {"user": "bob", "item": "a", "strength": 2.0}),
        ("interaction", {"user": "bob", "item": "a"}),
        ("interaction", {"user": "bob", "item": "b", "strength": 9.0}),
        ("delete", {"user": "bob", "item": "b"}),
        ("interaction", {"user": "bob", "item": "b", "strength": 4.0}),
    ]
    pending.add(Event(kind, body, at=1.0, seq=k) for k, (kind, body) in enumerate(bodies, 1))
    rows = pending.fold("store")[0].more.interactions
    assert rows.select("item", "strength").rows() == [("a", 3.0), ("b", 4.0)]


# ── a model ─────────────────────────────────────────────────────────────────────────────


def plays(rng: np.random.Generator, n: int = 60) -> pl.DataFrame:
    """People who play one kind of thing often, others now and then, and go on with the first."""
    rows = []
    for u in range(n):
        kind = int(rng.integers(6))
        often = [8 * kind + int(k) for k in rng.choice(8, 5, replace=False)]
        rest = [int(k) for k in rng.choice(48, 8, replace=False) if k // 8 != kind]
        some = [(f"u{u}", f"i{v}", 20 + int(rng.integers(9)), t) for t, v in enumerate(often[:3])]
        some += [(f"u{u}", f"i{v}", 1, t) for t, v in enumerate(rest)]
        some += [(f"u{u}", f"i{v}", 20, 20 + t) for t, v in enumerate(often[3:])]
        rows += some
    return pl.DataFrame(rows, schema=["user", "item", "plays", "time"], orient="row")


@pytest.fixture(scope="module")
def model() -> LOGER:
    table = plays(np.random.default_rng(0))
    facts = pl.DataFrame(
        [(f"i{k}", "has_kind", f"k{k // 8}") for k in range(48)],
        schema=["head", "relation", "tail"],
        orient="row",
    )
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=3))
    return LOGER(config).fit(split(from_frames(table, facts), test=0.0), progress=False)


def test_the_fit_tries_strengths_and_takes_them_where_they_help(model):
    tried = {value: ndcg for name, value, ndcg in model.tried_ if name == "strength"}
    assert set(tried) == {0.0, 0.5, 1.0}
    assert sum(tried.values()) == pytest.approx(1)  # labels are few: how often each is best
    mean = sum(value * share for value, share in tried.items())
    assert model.config_.em.walk.strength == pytest.approx(mean, abs=0.005)
    assert mean > 0.25
    assert model.ranker_.walk.strength == model.config_.em.walk.strength


def test_without_strengths_nothing_is_tried(model):
    table = plays(np.random.default_rng(0), 20).drop("plays")
    config = LOGERConfig(encoder=TransEConfig(dimension=4, epochs=1))
    plain = LOGER(config).fit(split(from_frames(table)), progress=False)
    assert not [name for name, *_ in plain.tried_ if name == "strength"]
    assert plain.config_.em.walk.strength == 0 and plain.graph_.strengths is None


def test_the_encoders_parts_count_by_strength_and_add_up(model):
    graph, encoder, own = model.graph_, model.encoder_, (0.3, 1.7)
    items, walk = np.arange(graph.n_items), Walk(strength=1.0)
    for user in (0, 7):
        relative = np.array(list(brute_relative(graph, user, 1.0).values()))
        plain = attribute_user(encoder, graph, user, items, None, own)
        found = attribute_user(encoder, graph, user, items, walk, own)
        n, length = len(relative), np.sqrt((relative**2).sum())
        expected = plain.actions * relative[:, None] * np.sqrt(n) / length
        assert found.actions == pytest.approx(expected, rel=1e-6, abs=1e-9)
        s = score_users(encoder, graph, [user], walk, own)[0]
        assert found.appeal + found.actions.sum(axis=0) == pytest.approx(s, abs=1e-3)
        mine = history(graph, np.array([user]))[1]
        view = graph.user_view(user, mine[:2].tolist())
        left = attribute_user(encoder, view, user, items, walk, own)
        assert left.actions == pytest.approx(found.actions[2:], rel=1e-6, abs=1e-9)


def test_explanations_add_up_and_models_are_saved_byte_by_byte(model, tmp_path):
    for item in model.recommend("u0", k=3)["item"]:
        explanation = model.explain("u0", item)
        assert sum(explanation.parts.values()) == pytest.approx(explanation.score, abs=1e-9)
    model.save(tmp_path / "a")
    again = LOGER.load(tmp_path / "a")
    again.save(tmp_path / "b")
    one, other = (
        {p.name: p.read_bytes() for p in (tmp_path / x).iterdir() if p.suffix == ".safetensors"}
        for x in "ab"
    )
    assert one == other and one
    assert again.graph_.fingerprint == model.graph_.fingerprint
    assert again.recommend("u1").equals(model.recommend("u1"))


def test_reasons_say_how_often_where_that_was_counted(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = LOGER.load(tmp_path / "model")
    item, often = model.recommend("u0", k=1)["item"][0], 0
    plays = dict(model.history("u0").select("label", "strength").iter_rows())
    for reason in loaded.explain("u0", item).reasons:
        label = model.graph_.vocabulary.labels[reason.entity]
        n = int(plays.get(label, 1))
        assert reason.action.endswith(f", {n} times") == (n > 1)
        often += n > 1
    assert often
    german = loaded.explain("u0", item, language="de")
    assert any(reason.action.endswith("-mal") for reason in german.reasons)
    amounts = replace(whole(model.ranker_.graph), counted=False)
    pair = np.array([0]), np.array([model.items.index(item)])
    (plain,) = explain(model.ranker_.on(amounts), *pair)
    assert not any("times" in reason.action for reason in plain.reasons)


def test_an_update_adds_to_what_is_known(model):
    graph = model.graph_
    item = graph.vocabulary.names[int(graph.neighbours(0, INTERACTION)[0])]
    later = model.update(interactions=[{"user": "u0", "item": item, "plays": 6, "time": 99}])
    twice = later.update(interactions=[{"user": "u0", "item": item, "time": 99}])
    assert model.history("u0").filter(pl.col("item") == item)["strength"].item() + 7 == (
        twice.history("u0").filter(pl.col("item") == item)["strength"].item()
    )
