"""What users do besides interacting: views become facts without leaking; dislikes hide items and
only ever lower the scores of others.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.config import LOGERConfig
from loger.data import from_frames, load, split
from loger.encoder import TransEConfig
from loger.graph import DISLIKED
from loger.graph.growth import with_facts
from loger.logic.config import DerivedConfig, EMConfig
from loger.model import LOGER
from loger.rules import candidates
from loger.tables.table import from_tables

SMALL = LOGERConfig(
    encoder=TransEConfig(dimension=8, epochs=2),
    em=EMConfig(teacher=0),
    derived=DerivedConfig(tune=False),
)
USERS, ITEMS = 150, 80


def shop(seed: int, *, views_matter: bool) -> pl.DataFrame:
    """Users view items and buy: either mostly something they viewed before, or anything."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(USERS):
        viewed = rng.choice(ITEMS, 14, replace=False)
        rows += [(f"u{user}", f"i{v}", "viewed", 10 * k) for k, v in enumerate(viewed)]
        bought = rng.choice(viewed if views_matter else ITEMS, 8, replace=False)
        rows += [(f"u{user}", f"i{v}", "bought", 200 + 10 * k) for k, v in enumerate(bought)]
    return pl.DataFrame(rows, schema=["user", "item", "action", "time"], orient="row")


def catalogue() -> pl.DataFrame:
    brands = [f"brand {k % 8}" for k in range(ITEMS)]
    return pl.DataFrame({"item": [f"i{k}" for k in range(ITEMS)], "brand": brands})


def ndcg(table: pl.DataFrame) -> float:
    model = LOGER(SMALL).fit(split(from_tables(table, catalogue())), progress=False)
    assert model.measured_ is not None
    return model.measured_.ndcg


def test_views_are_facts_and_only_purchases_are_owned():
    dataset = from_tables(shop(0, views_matter=True), catalogue())
    assert {r.name for r in dataset.relations} == {"purchase", "viewed", "has_brand"}
    assert len(dataset.interactions) == 8 * USERS
    assert dataset.facts.times is not None
    model = LOGER(SMALL).fit(dataset, progress=False)
    user = "u0"
    bought = shop(0, views_matter=True).filter(user=user, action="bought")["item"].to_list()
    assert sorted(model.owned(user)) == sorted(bought)
    viewed = shop(0, views_matter=True).filter(user=user, action="viewed")["item"].to_list()
    assert set(model.recommend(user, 5)["item"]) & set(viewed)


def test_views_help_where_they_matter_and_cost_little_where_they_do_not():
    matter, noise = shop(1, views_matter=True), shop(1, views_matter=False)
    alone = pl.col("action") == "bought"
    assert ndcg(matter) > 2 * ndcg(matter.filter(alone))
    assert ndcg(noise) > ndcg(noise.filter(alone)) - 0.03


def test_nothing_a_user_does_from_the_first_held_out_interaction_on_is_in_the_training_graph():
    """The planted leak: everyone views what they buy last once more, at that very moment."""
    table = shop(2, views_matter=False)
    last = table.filter(action="bought").group_by("user", maintain_order=True).last()
    leak = last.select("user", "item", pl.lit("viewed").alias("action"), "time")
    later = last.select("user", "item", pl.lit("viewed").alias("action"), pl.col("time") + 5)
    before = last.select("user", "item", pl.lit("carted").alias("action"), pl.col("time") * 0 + 199)
    parts = split(from_tables(pl.concat([table, leak, later, before]), catalogue()))
    graph, events = parts.graph, parts.dataset.interactions
    names = [r.name for r in graph.relations]
    viewed, carted = names.index("viewed"), names.index("carted")
    held = np.concatenate([parts.validation, parts.test])
    first = {
        int(u): int(events.times[held[events.users[held] == u]].min())
        for u in np.unique(events.users[held])
    }
    heads, relations, tails = graph.triples()
    known = {
        (int(h), int(t)) for h, r, t in zip(heads, relations, tails, strict=True) if r == viewed
    }
    words = parts.dataset.vocabulary
    rows = pl.concat([table, leak, later]).filter(action="viewed")
    for user, item, _, time in rows.iter_rows():
        u, v = words.id("user", user), words.id("item", item)
        earlier = rows.filter(user=user, item=item)["time"].min()
        assert ((u, v) in known) == (earlier < first[u]), (user, item, time)
    # What was put into the cart before the purchase is evidence for it.
    assert (relations == carted).sum() == USERS


def test_without_times_no_behaviour_on_a_held_out_pair_is_known():
    table = shop(3, views_matter=True).drop("time")
    parts = split(from_tables(table, catalogue()))
    graph, first = parts.graph, parts.graph.n_users
    viewed = [r.name for r in graph.relations].index("viewed")
    for u, v in zip(*parts.pairs("test"), strict=True):
        assert not graph.has(int(u), viewed, int(v) + first)


def test_each_behaviour_fades_by_its_own_order():
    table = shop(0, views_matter=True)
    graph = split(from_tables(table, catalogue())).graph
    words, viewed = graph.vocabulary, [r.name for r in graph.relations].index("viewed")
    assert graph.timed_behaviours == [viewed]

    def later(of, user: str, relation: int) -> dict[str, int]:
        """How many edges of the relation came after each of a user's, by item."""
        number = words.id("user", user)
        items = of.neighbours(number, relation).tolist()
        edges = [of.rows.edge(number, relation, item) for item in items]
        return {words.names[v]: int(of.later[e]) for v, e in zip(items, edges, strict=True)}

    for user in ("u0", "u7"):
        views = table.filter(user=user, action="viewed").sort("time")["item"].to_list()
        expected = {item: len(views) - 1 - k for k, item in enumerate(views)}
        assert later(graph, user, viewed) == expected
        bought = later(graph, user, 0)
        assert sorted(bought.values()) == list(range(len(bought)))
        number, gone = words.id("user", user), next(iter(bought))
        view = graph.user_view(number, remove=[words.id("item", gone) - graph.n_users])
        kept = later(view, user, viewed)
        assert kept == {item: expected[item] for item in kept} and len(kept) >= len(views) - 1
        new = next(v for v in range(ITEMS) if f"i{v}" not in views)
        fact = np.array([number]), np.array([viewed]), np.array([words.id("item", f"i{new}")])
        grown = later(with_facts(graph, fact, np.array([0])), user, viewed)
        assert grown == {f"i{new}": 0, **{item: n + 1 for item, n in expected.items()}}


def test_times_of_behaviours_are_saved(tmp_path):
    dataset = from_tables(shop(0, views_matter=True), catalogue())
    dataset.save(tmp_path / "data")
    back = load(tmp_path / "data")
    assert np.array_equal(back.facts.times, dataset.facts.times)
    assert back.graph(split(back).train).fingerprint == split(dataset).graph.fingerprint


# ── dislikes ────────────────────────────────────────────────────────────────────────────


def rated(seed: int = 0) -> pl.DataFrame:
    """Everyone hates one brand, of which they happened to buy, and loves another."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(USERS):
        hates, loves = user % 8, (user + 3) % 8
        bad = rng.choice(np.arange(hates, ITEMS, 8), 3, replace=False)
        good = rng.choice(np.arange(loves, ITEMS, 8), 5, replace=False)
        other = rng.choice(ITEMS, 3, replace=False)
        taken = dict.fromkeys(bad.tolist(), 1) | dict.fromkeys(other.tolist(), 4)
        taken |= dict.fromkeys(good.tolist(), 5)
        rows += [(f"u{user}", f"i{v}", r, k) for k, (v, r) in enumerate(taken.items())]
    return pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")


@pytest.fixture(scope="module")
def disliking():
    dataset = from_frames(
        rated(),
        catalogue().select(head="item", relation=pl.lit("has_brand"), tail="brand"),
        min_rating=3,
    )
    return LOGER(SMALL).fit(dataset, progress=False)


def test_low_ratings_are_dislikes_and_never_recommended(disliking):
    model = disliking
    table = rated()
    for user in model.users[:40]:
        low = set(table.filter((pl.col("user") == user) & (pl.col("rating") < 3))["item"])
        assert low and not low & set(model.owned(user))
        assert not low & set(model.recommend(user, ITEMS)["item"])


def test_rules_of_dislikes_never_have_positive_weights(disliking):
    negative = [rule.negative for rule in disliking.rules_]
    assert any(negative)
    assert (disliking.weights_[negative] <= 0).all()


def test_dislikes_lead_over_facts_alone(disliking):
    for rule in candidates(disliking.graph_):
        if any(DISLIKED in name for name in rule.names):
            assert rule.names[0] == DISLIKED and "user" not in rule.types[1:] and len(rule) > 1


@given(st.integers(0, USERS - 1), st.integers(0, ITEMS - 1))
def test_one_more_dislike_never_raises_a_score(disliking, user, item):
    model = disliking
    name, disliked = f"u{user}", f"i{item}"
    before = model.score([model._user(name)])[0]
    fact = pl.DataFrame({"head": [name], "relation": [DISLIKED], "tail": [disliked],
                         "head_type": ["user"], "tail_type": ["item"]})  # fmt: skip
    after = model.update(facts=fact).score([model._user(name)])[0]
    assert (after <= before + 1e-6).all()
    assert after[model.items.index(disliked)] == -np.inf


def test_an_update_with_a_low_rating_hides_the_item(disliking):
    model = disliking
    user = "u0"
    item = model.recommend(user, 1)["item"][0]
    row = pl.DataFrame({"user": [user], "item": [item], "rating": [1.0], "time": [99]})
    later = model.update(row)
    assert item not in later.recommend(user, ITEMS)["item"]
    assert item not in later.owned(user)
