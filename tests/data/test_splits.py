"""Splits, and the four leakage rules of METHOD 1: each has tests that fail if it is broken."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import brute_paths
from loger.data import Dataset, from_frames, split
from loger.data.assemble import assemble
from loger.data.dataset import TEST, TRAIN, VALIDATION, Interactions
from loger.data.demo import shop
from loger.errors import DataError, LogerError
from loger.graph import INTERACTION
from loger.grounding import ground, paths, reach, reach_sizes
from loger.rules import candidates, named_rules

PARTS = ("train", "validation", "test")


def reviews(parts=("train", "test", "train", "train", "validation"), more=()) -> Dataset:
    """Five reviews, the second and the last held out, what they say, and other facts.

    ann: mug (big) | tray (big, red); bob: mug (big), lamp (red) | tray (old).
    """
    events = pl.DataFrame(
        [("ann", "mug"), ("ann", "tray"), ("bob", "mug"), ("bob", "lamp"), ("bob", "tray")],
        schema=["user", "item"],
        orient="row",
    )
    told = [
        ("ann", "mentions", "big", 0), ("mug", "described_as", "big", 0),
        ("ann", "mentions", "big", 1), ("tray", "described_as", "big", 1),
        ("ann", "mentions", "red", 1), ("tray", "described_as", "red", 1),
        ("bob", "mentions", "big", 2), ("mug", "described_as", "big", 2),
        ("bob", "mentions", "red", 3), ("lamp", "described_as", "red", 3),
        ("bob", "mentions", "old", 4), ("tray", "described_as", "old", 4),
        # Known anyway, and as well from no review at all:
        ("tray", "described_as", "red", None),
        ("tray", "has_brand", "Acme", None), ("mug", "has_brand", "Acme", None),
        # Said of pairs of user and item, in either direction: some of them interact.
        ("ann", "viewed", "tray", None), ("ann", "viewed", "lamp", None),
        ("ann", "viewed", "mug", None), ("tray", "shown_to", "bob", None),
        ("mug", "shown_to", "ann", None), *more,
    ]  # fmt: skip
    facts = pl.DataFrame(
        told,
        schema={"head": pl.String, "relation": pl.String, "tail": pl.String, "source": pl.Int64},
        orient="row",
    )
    if parts is not None:
        events = events.with_columns(part=pl.Series(parts))
    return assemble("reviews", events, facts, interaction="purchase")


def by_name(graph) -> set[tuple[str, str, str]]:
    """Every edge of a graph, both directions, by name."""
    names, out = graph.vocabulary.names, set()
    for r in range(2 * len(graph.relations)):
        for h in range(graph.n_entities):
            near = graph.neighbours(h, r).tolist()
            out |= {(names[h], graph.relation_name(r), names[t]) for t in near}
    return out


@st.composite
def datasets(draw, times=None, parts=False) -> Dataset:
    """Distinct pairs of up to 8 users and 12 items in any order, without facts."""
    pairs = draw(
        st.lists(st.tuples(st.integers(0, 7), st.integers(0, 11)), min_size=1, unique=True)
    )
    u, v = np.array(pairs, dtype=np.int32).T
    has_times = draw(st.booleans()) if times is None else times
    clock = draw(st.lists(st.integers(0, 4), min_size=len(u), max_size=len(u)))
    given_parts = draw(st.lists(st.integers(0, 2), min_size=len(u), max_size=len(u)))
    events = Interactions(
        u,
        v,
        times=np.array(clock, dtype=np.int64) if has_times else None,
        parts=np.array(given_parts, dtype=np.int8) if parts else None,
    )
    return replace(EMPTY, interactions=events)


EMPTY = assemble(
    "drawn",
    pl.DataFrame({"user": ["u0"], "item": ["i0"]}),
    users=[f"u{k}" for k in range(8)],
    items=[f"i{k}" for k in range(12)],
)

# ── L1: nothing of a held-out pair is in the training graph ─────────────────────────────


def test_l1_no_held_out_pair_is_in_the_training_graph_in_either_direction():
    edges = by_name(split(reviews()).graph)
    assert ("ann", "purchase", "mug") in edges and ("mug", "purchase⁻¹", "ann") in edges
    for user, item in (("ann", "tray"), ("bob", "tray")):
        assert not {e for e in edges if {e[0], e[2]} == {user, item}}


def test_l1_what_only_held_out_reviews_tell_is_not_in_the_training_graph():
    edges = by_name(split(reviews()).graph)
    for h, r, t in (
        ("ann", "mentions", "red"),
        ("bob", "mentions", "old"),
        ("tray", "described_as", "old"),
        ("tray", "described_as", "big"),
    ):
        assert (h, r, t) not in edges and (t, f"{r}⁻¹", h) not in edges
    # What a training review, or no review at all, tells too is there.
    assert ("ann", "mentions", "big") in edges
    assert ("tray", "described_as", "red") in edges
    assert ("red", "described_as⁻¹", "tray") in edges


def test_l1_facts_between_user_and_item_leave_with_the_pair_they_repeat():
    edges = by_name(split(reviews()).graph)
    assert ("ann", "viewed", "tray") not in edges and ("tray", "viewed⁻¹", "ann") not in edges
    assert ("tray", "shown_to", "bob") not in edges and ("bob", "shown_to⁻¹", "tray") not in edges
    assert ("ann", "viewed", "lamp") in edges  # never an interaction
    assert ("ann", "viewed", "mug") in edges  # a training pair
    assert ("mug", "shown_to", "ann") in edges


def test_l1_the_training_graph_is_that_of_data_without_the_held_out_rows():
    data = shop(users=60, items=100).dataset
    parts = split(data)
    kept = np.sort(parts.train)
    place = np.full(len(data.interactions) + 1, -1)
    place[kept] = np.arange(len(kept))
    known = (data.facts.sources < 0) | (place[data.facts.sources] >= 0)
    facts = replace(
        data.facts,
        **{c: getattr(data.facts, c)[known] for c in ("heads", "relations", "tails")},
        sources=place[np.where(data.facts.sources < 0, -1, data.facts.sources)][known].astype(
            np.int32
        ),
    )
    whole = data.interactions
    events = Interactions(whole.users[kept], whole.items[kept], times=whole.times[kept])
    alone = replace(data, facts=facts, interactions=events)
    assert (data.facts.sources[~known] >= 0).any()
    assert alone.graph(np.arange(len(kept))).fingerprint == parts.graph.fingerprint


def test_l1_the_graph_for_the_last_fit_knows_validation_but_not_test():
    edges = by_name(split(reviews()).refit().graph)
    assert ("bob", "purchase", "tray") in edges and ("bob", "mentions", "old") in edges
    assert ("ann", "purchase", "tray") not in edges and ("ann", "mentions", "red") not in edges


# ── L2: a pair's own edge never supports it ─────────────────────────────────────────────


def loops(graph):
    """Rules through which a pair could support itself: over its own edge there and back."""
    names = [
        ("purchase", "purchase⁻¹", "purchase"),
        ("purchase", "has_brand", "has_brand⁻¹"),
        ("purchase", "viewed⁻¹", "viewed"),
        ("viewed", "viewed⁻¹", "purchase"),
        ("mentions", "mentions⁻¹", "purchase"),
    ]
    return named_rules(graph, names)


def test_l2_a_lonely_pair_has_no_groundings():
    events = pl.DataFrame({"user": ["ann", "bob"], "item": ["mug", "tray"]})
    told = [("mug", "has_brand", "Acme"), ("ann", "viewed", "mug"), ("ann", "mentions", "big")]
    facts = pl.DataFrame(told, schema=["head", "relation", "tail"], orient="row")
    data = assemble("lonely", events, facts, interaction="purchase")
    graph = data.graph(np.arange(2))
    rules = loops(graph)
    assert ground(graph, rules, [0], [0]).count_matrix.nnz == 0
    assert len(reach(graph, rules, [0, 1], observed=True)) == 0
    assert reach_sizes(graph, rules, [0, 1]).sum() == 0
    for rule in rules:
        assert len(paths(graph, rule, 0, 0)) == 0


def test_l2_training_pairs_count_as_if_they_were_held_out():
    graph = split(shop(users=60, items=100).dataset).graph
    rules = candidates(graph)
    users = np.repeat(np.arange(5), 100)
    items = np.tile(np.arange(100), 5)
    counts = ground(graph, rules, users, items).count_matrix.toarray()
    everywhere = reach(graph, rules, np.arange(5), observed=True)
    reached = np.zeros_like(counts)
    reached[everywhere.users * 100 + everywhere.items] = everywhere.count_matrix.toarray()
    assert (reached == counts).all()
    seen = [k for k in range(500) if graph.has(users[k], INTERACTION, items[k] + graph.n_users)]
    assert len(seen) > 20
    for k in seen:
        without = graph.without_interactions([users[k]], [items[k]])
        again = ground(without, rules, users[k], items[k]).count_matrix.toarray()
        assert (again == counts[k]).all()


def test_l2_listed_paths_are_simple():
    graph = split(shop(users=60, items=100).dataset).graph
    rule = named_rules(graph, [("purchase", "purchase⁻¹", "purchase")])[0]
    some = 0
    for u in range(20):
        for v in (graph.neighbours(u, INTERACTION) - graph.n_users).tolist():
            every = paths(graph, rule, u, v)
            assert all(len(set(p)) == 4 for p in every.tolist())
            some += len(every)
    assert some > 20


# ── L3: nor does what is known from the pair's own interaction alone ────────────────────


def review_counts(parts, more=()):
    """n((mentions, described_as⁻¹)) by pair, on the training graph."""
    data = reviews(parts, more)
    graph = split(data, validation=0).graph
    rules = named_rules(graph, [("mentions", "described_as⁻¹")])
    words = data.vocabulary

    def count(user, item):
        pair = words.id("user", user), words.id("item", item) - graph.n_users
        n = int(ground(graph, rules, *pair).count_matrix.sum())
        assert n == sum(r == rules[0].relations for r, _ in brute_paths(graph, *pair))
        return n

    return count


def test_l3_a_review_does_not_support_its_own_pair():
    count = review_counts(["train"] * 5)
    assert count("bob", "lamp") == 0  # red: said by bob, and of lamp, in their review alone
    # old: likewise; but big: bob says it of mug and ann of tray, and red: bob says it of lamp.
    assert count("bob", "tray") == 2


def test_l3_one_edge_from_elsewhere_is_not_enough():
    """The strict form (docs/adr/0003): ann says "red" only of tray, which has it anyway. Had
    the pair not been observed, ann would not have said it, so it is no reason."""
    count = review_counts(["train"] * 5)
    assert count("ann", "tray") == 0  # big: of tray only from this review; red: as above
    # bob, in turn, says "big" of mug alone, and mug has it from ann as well: no reason either.
    assert count("bob", "mug") == 0


def test_l3_what_another_review_tells_too_is_a_reason():
    count = review_counts(["train"] * 5)
    assert count("ann", "mug") == 1  # big: ann says it of tray too, and bob says it of mug


def test_l3_what_is_known_in_any_case_is_a_reason():
    said = [("bob", "mentions", "wide", 2), ("bob", "mentions", "wide", 3)]
    has = [("lamp", "described_as", "wide", 3), ("lamp", "described_as", "wide", None)]
    count = review_counts(["train"] * 5, said + has)
    assert count("bob", "lamp") == 1  # wide: bob says it of mug too, and lamp simply has it
    assert review_counts(["train"] * 5, said + has[:1])("bob", "lamp") == 0
    assert review_counts(["train"] * 5, said[1:] + has)("bob", "lamp") == 0


def test_l3_a_fact_left_with_one_source_by_the_split_is_known_from_it_alone():
    count = review_counts(["train", "test", "train", "train", "validation"])
    assert count("ann", "mug") == 0  # ann's other review that says "big" is held out
    assert count("ann", "tray") == 0  # held out, and nothing of it is known
    assert count("bob", "tray") == 1  # red: bob of lamp, and tray has it anyway


def test_l3_facts_between_the_pair_itself_are_no_support():
    graph = split(reviews()).graph
    rules = named_rules(graph, [("viewed",), ("shown_to⁻¹",)])
    words = graph.vocabulary
    ann, mug, lamp = words.id("user", "ann"), words.id("item", "mug"), words.id("item", "lamp")
    items = np.array([mug, lamp]) - graph.n_users
    assert graph.has(ann, rules[0].relations[0], mug)
    counts = ground(graph, rules, [ann, ann], items).count_matrix.toarray()
    assert counts.tolist() == [[0, 0], [1, 0]]  # lamp was viewed, and never bought


# ── L4: negatives are unobserved in every part ──────────────────────────────────────────


@given(datasets(), st.integers(0, 4), st.integers(0, 9))
def test_l4_negatives_are_in_no_part_and_do_not_repeat(data, n, seed):
    parts = split(data)
    users = np.unique(data.interactions.users)
    known = {u: set(data.interactions.items[data.interactions.users == u].tolist()) for u in users}
    fits = [u for u in users if len(known[u]) + n <= data.n_items]
    drawn = parts.unobserved(np.array(fits, dtype=np.int64), n, seed)
    assert drawn.shape == (len(fits), n)
    for u, row in zip(fits, drawn.tolist(), strict=True):
        assert not known[u] & set(row)
        assert len(set(row)) == n and set(row) <= set(range(data.n_items))
    assert (drawn == parts.unobserved(np.array(fits, dtype=np.int64), n, seed)).all()


def test_l4_every_unobserved_item_is_drawn_about_as_often():
    data = reviews()
    parts = split(data)
    data_items = replace(EMPTY, interactions=Interactions(*np.array([[0, 0, 0], [0, 5, 11]])))
    drawn = split(data_items).unobserved(np.zeros(4000, dtype=np.int64), 3, seed=0)
    times = np.bincount(drawn.ravel(), minlength=12)
    assert times[[0, 5, 11]].tolist() == [0, 0, 0]
    assert abs(times[times > 0] - 4000 * 3 / 9).max() < 150  # 5 standard deviations
    assert not (drawn == split(data_items).unobserved(np.zeros(4000, np.int64), 3, 1)).all()
    with pytest.raises(
        LogerError, match="user 1 has fewer than 1 items without an interaction, of 3"
    ):
        parts.unobserved(np.array([0, 1]), 1, seed=0)


# ── the parts themselves ────────────────────────────────────────────────────────────────


def of_user(data, rows, user):
    return rows[data.interactions.users[rows] == user]


@given(datasets(), st.sampled_from(["auto", "random"]), st.integers(0, 3))
def test_parts_are_disjoint_complete_and_leave_each_user_a_train_row(data, how, seed):
    parts = split(data, how, test=0.3, validation=0.2, seed=seed)
    rows = np.concatenate([parts.train, parts.validation, parts.test])
    assert sorted(rows.tolist()) == list(range(len(data.interactions)))
    assert set(data.interactions.users) == set(data.interactions.users[parts.train])
    for name in PARTS:
        users, items = parts.pairs(name)
        assert np.array_equal(users, data.interactions.users[getattr(parts, name)])
        assert np.array_equal(items, data.interactions.items[getattr(parts, name)])


@given(datasets(), st.floats(0, 0.99), st.floats(0, 0.99))
def test_each_user_gives_the_share_asked_for(data, test, validation):
    parts = split(data, test=test, validation=validation)

    def held(total, share):
        return 0 if share == 0 else min(max(1, round(share * total)), total - 1)

    for u in np.unique(data.interactions.users):
        total = int((data.interactions.users == u).sum())
        n_test = held(total, test)
        n_validation = held(total - n_test, validation)
        assert len(of_user(data, parts.test, u)) == n_test
        assert len(of_user(data, parts.validation, u)) == n_validation


@given(datasets(times=True))
def test_by_time_the_latest_are_held_out_and_ties_go_by_item(data):
    parts = split(data, "time", test=0.4, validation=0.3)
    events = data.interactions
    assert events.times is not None
    when = list(zip(events.times.tolist(), events.items.tolist(), strict=True))
    for u in np.unique(events.users):
        order = [
            when[k]
            for p in PARTS
            for k in sorted(of_user(data, getattr(parts, p), u), key=when.__getitem__)
        ]
        assert order == sorted(order)
    auto = split(data, test=0.4, validation=0.3)
    for name in PARTS:
        assert np.array_equal(getattr(auto, name), getattr(parts, name))
        other = split(data, "time", test=0.4, validation=0.3, seed=9)
        assert np.array_equal(getattr(other, name), getattr(parts, name))


def test_the_seed_chooses_a_random_split_and_nothing_else_does():
    data = shop(users=60, items=100).dataset
    one, same, other = (split(data, "random", seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.test, same.test) and np.array_equal(one.validation, same.validation)
    assert not np.array_equal(one.test, other.test)
    n = len(data.interactions)
    assert abs(len(one.test) / n - 0.2) < 0.03
    assert abs(len(one.validation) / n - 0.1) < 0.03
    untimed = replace(data, interactions=replace(data.interactions, times=None))
    assert np.array_equal(split(untimed, seed=1).test, one.test)


@given(datasets(parts=True))
def test_a_given_split_is_kept_and_validation_carved_from_its_train(data):
    given_parts = data.interactions.parts
    assert given_parts is not None
    parts = split(data, validation=0.3)
    assert np.array_equal(parts.test, np.flatnonzero(given_parts == TEST))
    if (given_parts == VALIDATION).any():
        assert np.array_equal(parts.validation, np.flatnonzero(given_parts == VALIDATION))
        assert np.array_equal(parts.train, np.flatnonzero(given_parts == TRAIN))
        return
    train = np.flatnonzero(given_parts == TRAIN)
    assert np.array_equal(np.sort(np.concatenate([parts.train, parts.validation])), train)
    for u in np.unique(data.interactions.users[train]):
        total = len(of_user(data, train, u))
        assert len(of_user(data, parts.validation, u)) == min(max(1, round(0.3 * total)), total - 1)
    none = split(data, validation=0)
    assert len(none.validation) == 0 and np.array_equal(none.train, train)


@given(datasets())
def test_refit_joins_validation_to_train_and_leaves_test(data):
    parts = split(data, test=0.3, validation=0.3)
    again = parts.refit()
    assert np.array_equal(again.train, np.union1d(parts.train, parts.validation))
    assert len(again.validation) == 0
    assert np.array_equal(again.test, parts.test)


def test_users_with_one_interaction_stay_in_train():
    events = Interactions(np.array([0, 1, 1], np.int32), np.array([3, 3, 4], np.int32))
    for how in ("random", "time"):
        timed = replace(events, times=np.array([9, 1, 2])) if how == "time" else events
        parts = split(replace(EMPTY, interactions=timed), how, test=0.9, validation=0.9)
        assert 0 in parts.train
        assert (len(parts.train), len(parts.validation), len(parts.test)) == (2, 0, 1)


def test_impossible_splits_are_refused():
    data = replace(EMPTY, interactions=Interactions(np.zeros(1, np.int32), np.zeros(1, np.int32)))
    with pytest.raises(LogerError, match=r"test must be a share in \[0, 1\), got 1"):
        split(data, test=1)
    with pytest.raises(LogerError, match=r"validation must be a share in \[0, 1\), got -0.1"):
        split(data, validation=-0.1)
    with pytest.raises(
        DataError, match="drawn doesn't come with a split; choose 'time' or 'random'"
    ):
        split(data, "given")
    with pytest.raises(DataError, match="drawn has no timestamps; use the split 'random'"):
        split(data, "time")
    with pytest.raises(LogerError, match=r"unknown split 'tiem'; did you mean 'time'"):
        split(data, "tiem")


def test_a_split_says_how_it_was_made_and_why() -> None:
    pairs = pl.DataFrame({"user": ["a", "a", "b"], "item": ["i", "j", "i"]})
    timed = pairs.with_columns(time=pl.Series([1, 2, 3]))
    given = pairs.with_columns(part=pl.Series(["train", "test", "train"]))
    assert split(from_frames(pairs)).why.startswith(
        "at random, because the data have no times: any 20%"
    )
    assert split(from_frames(timed)).why.startswith(
        "by time, because the data have times: latest 20%"
    )
    assert split(from_frames(given)).why == "as given, because the data come with one"
    order = pl.DataFrame(
        {"user": ["a"] * 3 + ["b"] * 2, "item": [*"ijkij"], "time": [1, 2, 2, 1, 2]}
    )
    # k of a, not j of b
    torn = "; 50% of the test items have the same time as one that isn't held out"
    assert split(from_frames(order)).why.endswith(torn)
    assert "moment" not in split(from_frames(timed)).why
    assert split(from_frames(timed), "random").refit().why.startswith("at random, as requested")
