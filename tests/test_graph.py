"""KnowledgeGraph and Vocabulary: every lookup equals that of a plain set of triples."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import RELATIONS, build, edges_of, graphs, random_triples, vocabulary
from loger.data.dataset import Dataset, Facts, Interactions
from loger.errors import LogerError, UnknownNameError
from loger.graph import INTERACTION, KnowledgeGraph, Relation, Vocabulary
from loger.grounding import layout as layouts

ARRAYS = (
    "row_segments", "segment_relations", "segment_starts", "tails", "pair_tails",
    "pair_relations", "origins",
)  # fmt: skip


@st.composite
def triple_sets(draw):
    """A vocabulary and some triples in any order, with repetitions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = vocabulary(*(draw(st.integers(1, n)) for n in (5, 6, 3, 4)))
    triples = random_triples(names, rng, draw(st.sampled_from([0.0, 0.1, 0.5])))
    again = [triples[k] for k in rng.integers(len(triples), size=5)] if triples else []
    return names, [tuple(t) for t in rng.permutation(triples + again).tolist()]


def same(one: KnowledgeGraph, other: KnowledgeGraph) -> bool:
    """Whether all arrays, and their types, are equal, and with them the fingerprints."""
    for name in ARRAYS:
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None):
            return False
        if a is not None and not (a.dtype == b.dtype and np.array_equal(a, b)):
            return False
    return one.fingerprint == other.fingerprint


def origins_of(graph: KnowledgeGraph):
    """The facts of a graph as (triples, (users, items) that they are known from or -1)."""
    triples = list(zip(*(x.tolist() for x in graph.triples()), strict=True))
    user, item = np.full(len(triples), -1), np.full(len(triples), -1)
    for k, (h, r, t) in enumerate(triples):
        for edge in ((h, r, t), (t, graph.inverse(r), h)):
            at = graph.segment_starts[graph.rows.segment(*edge[:2])]
            at += np.searchsorted(graph.neighbours(*edge[:2]), edge[2])
            other, here = int(graph.origins[at]), edge[0]
            if other >= 0:
                pair = (here, other) if here < graph.n_users else (other, here)
                user[k], item[k] = pair
    return triples, (user, item)


# ── building and looking ────────────────────────────────────────────────────────────────


def test_known_answers():
    names = vocabulary(2, 2, 1, 1)  # users 0 1, items 2 3, brand 4, word 5
    graph = build(names, [(0, 0, 2), (0, 0, 3), (1, 0, 3), (0, 1, 3), (2, 3, 4), (3, 2, 2)])
    assert graph.neighbours(0, 0).tolist() == [2, 3]
    assert graph.neighbours(3, 7).tolist() == [0, 1]
    assert graph.neighbours(4, 10).tolist() == [2]
    assert graph.neighbours(1, 4).tolist() == []
    assert graph.between(0, 3).tolist() == [0, 1]
    assert graph.between(3, 0).tolist() == [7, 8]
    assert graph.between(0, 1).tolist() == []
    assert (graph.n_users, graph.n_items, graph.n_entities, graph.n_triples) == (2, 2, 6, 6)
    assert repr(graph) == "KnowledgeGraph(2 users, 2 items, 6 entities, 7 relations, 6 facts)"
    assert [graph.relation_name(r) for r in (3, 10)] == ["has_brand", "has_brand⁻¹"]
    assert [graph.relation_id(n) for n in ("has_brand", "has_brand⁻¹", "has_brand^-1")] == [
        3, 10, 10,
    ]  # fmt: skip
    assert (graph.signature(3), graph.signature(10)) == (("item", "brand"), ("brand", "item"))
    assert (graph.inverse(3), graph.inverse(10)) == (10, 3)


@given(triple_sets())
def test_look_ups_equal_those_in_a_set_of_triples(made):
    names, triples = made
    graph, n = build(names, triples), len(RELATIONS)
    facts = set(triples)
    facts |= {(t, r + n, h) for h, r, t in triples}
    assert graph.n_triples == len(set(triples))
    assert list(zip(*(x.tolist() for x in graph.triples()), strict=True)) == sorted(set(triples))
    assert len(graph.tails) == len(graph.pair_tails) == len(facts)
    table, starts = graph.degree_table
    for r in range(2 * n):
        degrees = graph.degrees(r)
        head_type = graph.signature(r)[0]
        for h in range(graph.n_entities):
            near = sorted(t for t in range(graph.n_entities) if (h, r, t) in facts)
            assert graph.neighbours(h, r).tolist() == near
            assert degrees[h] == len(near)
            if h in names.span(head_type):
                assert table[starts[r] + h] == len(near)
    for h in range(graph.n_entities):
        for t in range(graph.n_entities):
            links = [r for r in range(2 * n) if (h, r, t) in facts]
            assert graph.between(h, t).tolist() == links
            assert [r for r in range(2 * n) if graph.has(h, r, t)] == links


@given(triple_sets())
def test_both_orders_are_sorted_and_compact(made):
    graph = build(*made)
    assert [graph.tails.dtype, graph.pair_tails.dtype] == [np.int32, np.int32]
    assert [graph.segment_relations.dtype, graph.pair_relations.dtype] == [np.uint16, np.uint16]
    for h in range(graph.n_entities):
        segments = slice(graph.row_segments[h], graph.row_segments[h + 1])
        assert (np.diff(graph.segment_relations[segments].astype(int)) > 0).all()
        row = slice(graph.indptr[h], graph.indptr[h + 1])
        pairs = list(zip(graph.pair_tails[row], graph.pair_relations[row], strict=True))
        assert pairs == sorted(set(pairs))
    assert (np.diff(graph.segment_starts) > 0).all()


@given(graphs(), st.sampled_from([0, 2, 64]))
def test_bitmaps_hold_the_same_entities_as_their_slices(graph, least):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "BITMAP_EDGES", least)
        spans = layouts.word_spans(graph)
        starts, words = layouts.segment_bitmaps(graph, spans, layouts.weighted_relations(graph))
    used = 0
    for s, at in enumerate(starts):
        first, end = spans[graph.segment_relations[s]]
        tails = graph.tails[graph.segment_starts[s] : graph.segment_starts[s + 1]]
        assert (at >= 0) == (len(tails) > max(least, end - first))
        if at >= 0:
            bits = np.unpackbits(words[at : at + end - first].view(np.uint8), bitorder="little")
            assert (np.flatnonzero(bits) + first * 64).tolist() == tails.tolist()
            used += end - first
    assert used == len(words)


@pytest.mark.parametrize("items", [1, 63, 64, 65, 200])
def test_bitmaps_begin_at_any_bit_of_a_word(items):
    names = vocabulary(3, items, 1, 1)
    every = [(u, 0, v) for u in range(3) for v in names.span("item")]
    graph = build(names, every)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "BITMAP_EDGES", 0)
        spans = layouts.word_spans(graph)
        starts, words = layouts.segment_bitmaps(graph, spans, layouts.weighted_relations(graph))
    first, end = spans[0]
    at = starts[graph.rows.segment(1, 0)]
    if at < 0:
        assert items <= end - first
        return
    bits = np.unpackbits(words[at : at + end - first].view(np.uint8), bitorder="little")
    assert (np.flatnonzero(bits) + first * 64).tolist() == list(names.span("item"))


# ── the fingerprint ─────────────────────────────────────────────────────────────────────


@given(triple_sets(), st.randoms())
def test_neither_order_nor_repetition_changes_a_graph(made, random):
    names, triples = made
    mixed = random.sample(triples, len(triples)) + triples[:3]
    assert same(build(names, triples), build(names, mixed))


def test_any_change_of_content_changes_the_fingerprint():
    triples = [(0, 0, 2), (0, 4, 5), (1, 0, 3), (2, 3, 4)]
    names = {"user": ["ann", "bob"], "item": ["mug", "tray"], "brand": ["Acme"], "word": ["big"]}

    def graph(facts=triples, words=names, relations=RELATIONS, origins=None):
        columns = np.array(facts).T
        return KnowledgeGraph.from_triples(Vocabulary(words), relations, *columns, origins=origins)

    def origins(item):
        return np.array([-1, 0, -1, -1]), np.array([-1, item, -1, -1])

    renamed = (*RELATIONS[:-1], Relation("knows", "user", "user"))
    retyped = (*RELATIONS[:-1], Relation("follows", "user", "item"))
    changed = [
        graph(),
        graph(facts=triples[:-1]),
        graph(facts=[*triples, (1, 4, 5)]),
        graph(facts=[*triples[:-1], (3, 3, 4)]),
        graph(facts=[*triples[:-1], (2, 5, 5)]),
        graph(words=names | {"brand": ["Acne"]}),
        graph(words=names | {"word": ["big", "red"]}),
        graph(words={"user": ["ann", "bob"], "item": ["mug", "tray"], "word": ["big"],
                     "brand": ["Acme"]}, facts=[(0, 0, 2), (0, 4, 4), (1, 0, 3), (2, 3, 5)]),
        graph(relations=renamed),
        graph(relations=retyped),
        graph(origins=origins(2)),
        graph(origins=origins(3)),
    ]  # fmt: skip
    assert len({g.fingerprint for g in changed}) == len(changed)
    assert graph().fingerprint == graph(facts=triples[::-1]).fingerprint


# ── taking away ─────────────────────────────────────────────────────────────────────────


@given(graphs(), st.data())
def test_less_some_facts_is_the_graph_of_the_others(graph, data):
    triples = list(zip(*(x.tolist() for x in graph.triples()), strict=True))
    if not triples:
        assert graph.without([], [], []) is graph
        return
    gone = data.draw(st.lists(st.sampled_from(triples), max_size=len(triples)))
    if graph.origins is None:
        kept = [t for t in triples if t not in gone]
        rebuilt = build(graph.vocabulary, kept)
    else:
        facts, (user, item) = origins_of(graph)
        rows = [k for k, t in enumerate(facts) if t not in gone]
        kept = [facts[k] for k in rows]
        rebuilt = build(graph.vocabulary, kept, origins=(user[rows], item[rows]))
    less = graph.without(*zip(*gone, strict=True)) if gone else graph.without([], [], [])
    assert same(less, rebuilt)


@given(graphs(), st.randoms())
def test_a_fact_may_be_taken_away_by_its_inverse_and_all_facts_at_once(graph, random):
    triples = list(zip(*(x.tolist() for x in graph.triples()), strict=True))
    if not triples:
        return
    h, r, t = random.choice(triples)
    assert same(graph.without([h], [r], [t]), graph.without([t], [graph.inverse(r)], [h]))
    none = graph.without(*zip(*triples, strict=True))
    assert none.n_triples == 0
    assert (none.row_segments == 0).all()
    assert none.segment_starts.tolist() == [0]


def test_an_absent_fact_cannot_be_taken_away():
    graph = build(vocabulary(2, 2, 1, 1), [(0, 0, 2), (1, 0, 3)])
    with pytest.raises(LogerError, match=r"no fact \('user0', purchase, 'item1'\) to remove"):
        graph.without([0], [0], [3])
    with pytest.raises(LogerError, match=r"no fact \('item0', purchase⁻¹, 'user1'\) to remove"):
        graph.without([2], [7], [1])
    with pytest.raises(LogerError, match=r"no fact \('user1', viewed, 'item1'\) to remove"):
        graph.without([0, 1], [0, 1], [2, 3])
    with pytest.raises(LogerError, match=r"no fact \('user0', purchase, 'item1'\) to remove"):
        graph.without_interactions([0], [1])


@given(graphs(with_origins=True), st.data())
def test_less_an_interaction_is_less_the_pair_and_what_is_known_from_it_alone(graph, data):
    facts, (user, item) = origins_of(graph)
    bought = [(h, t) for h, r, t in facts if r == INTERACTION]
    gone = data.draw(st.lists(st.sampled_from(bought), unique=True)) if bought else []
    less = graph.without_interactions([u for u, _ in gone], [v - graph.n_users for _, v in gone])
    kept = [
        fact
        for fact, origin in zip(facts, zip(user.tolist(), item.tolist(), strict=True), strict=True)
        if origin not in gone and not (fact[1] == INTERACTION and (fact[0], fact[2]) in gone)
    ]
    assert list(zip(*(x.tolist() for x in less.triples()), strict=True)) == kept


def test_taking_away_leaves_the_graph_itself_as_it_was():
    graph = build(vocabulary(2, 2, 1, 1), [(0, 0, 2), (1, 0, 3), (2, 3, 4)])
    before = edges_of(graph), graph.fingerprint
    graph.without([0], [0], [2])
    assert (edges_of(graph), graph.fingerprint) == before


# ── refusals ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        ((0, 0, 4), r"triple 1: tail 4 is not of the type that Relation\(name='purchase'"),
        ((2, 0, 3), r"triple 1: head 2 is not of the type"),
        ((0, 0, 99), r"triple 1: tail 99 is not of the type"),
        ((-1, 0, 2), r"triple 1: head -1 is not of the type"),
        ((1, 6, 1), r"triple 1 links entity 1 to itself"),
        ((0, 7, 2), r"triple 1: relation numbers must be from 0 to 6, got 7"),
        ((0, -1, 2), r"triple 1: relation numbers must be from 0 to 6, got -1"),
    ],
)
def test_triples_that_break_the_data_model_are_refused(triple, message):
    with pytest.raises(LogerError, match=message):
        build(vocabulary(2, 2, 1, 1), [(0, 0, 2), triple])


def test_graphs_of_another_shape_are_refused():
    names = vocabulary(2, 2, 1, 1)
    with pytest.raises(LogerError, match="same length, got 1, 2, 1"):
        KnowledgeGraph.from_triples(names, RELATIONS, [0], [0, 0], [2])
    with pytest.raises(LogerError, match="relation 0 must lead from user to item, got Relation"):
        KnowledgeGraph.from_triples(names, RELATIONS[2:], [], [], [])
    with pytest.raises(UnknownNameError, match="unknown entity type 'wrd'; did you mean 'word'"):
        relations = (*RELATIONS, Relation("knows", "user", "wrd"))
        KnowledgeGraph.from_triples(names, relations, [], [], [])
    many = (*RELATIONS, *(Relation(f"r{k}", "user", "item") for k in range(40_000)))
    with pytest.raises(LogerError, match="at most 32,767 relations, got 40,007"):
        KnowledgeGraph.from_triples(names, many, [], [], [])


def test_a_graph_without_facts_is_fine():
    graph = build(vocabulary(2, 2, 1, 1), [])
    assert graph.n_triples == 0
    assert graph.neighbours(0, 0).tolist() == graph.between(0, 2).tolist() == []
    assert len(layouts.layout(graph).bitmaps) == 0


def test_vocabulary_errors_name_the_nearest():
    words = Vocabulary({"user": ["ann"], "item": ["mug", "jug"], "brand": ["Acme"]})
    assert (words.id("item", "jug"), words.type_of(2), len(words)) == (2, "item", 4)
    assert words.span("brand") == range(3, 4)
    with pytest.raises(UnknownNameError, match="unknown item 'mugg'; did you mean 'mug'"):
        words.id("item", "mugg")
    with pytest.raises(UnknownNameError, match=r"unknown brand 'Zuse'; choose from 'Acme'$"):
        words.id("brand", "Zuse")
    with pytest.raises(UnknownNameError, match=r"unknown user 'zoe'$"):
        words.id("user", "zoe")
    with pytest.raises(UnknownNameError, match="unknown entity type 'brnd'; did you mean 'brand'"):
        words.span("brnd")
    with pytest.raises(UnknownNameError, match="unknown entity type 'brnd'; did you mean 'brand'"):
        words.id("brnd", "Acme")
    with pytest.raises(LogerError, match=r"the first types must be 'user' and 'item', got \('it"):
        Vocabulary({"item": ["mug"], "user": ["ann"]})
    with pytest.raises(LogerError, match="as many labels as names"):
        Vocabulary({"user": ["ann"], "item": ["mug"]}, {"item": ["Mug", "Jug"]})
    graph = build(vocabulary(1, 1, 1, 1), [])
    with pytest.raises(
        UnknownNameError, match="unknown relation 'purchas'; did you mean 'purchase'"
    ):
        graph.relation_id("purchas⁻¹")


# ── full size ───────────────────────────────────────────────────────────────────────────

LOAD = r"""
import json, re, sys, time
from pathlib import Path
import numpy as np
from loger.data import load

def memory(what):  # not ru_maxrss, which remembers the process that started this one
    return int(re.search(what + r":\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

before, start = memory("VmRSS"), (time.perf_counter(), time.process_time())
dataset = load(sys.argv[1])
graph = dataset.graph(np.arange(len(dataset.interactions)))
told = {"seconds": time.perf_counter() - start[0], "CPU": time.process_time() - start[1]}
told |= {"MiB": memory("VmHWM") - before, "facts": graph.n_triples, "edges": len(graph.tails)}
print(json.dumps(told))
"""


def full_size(seed: int = 0) -> Dataset:
    """4.6 M facts of 330 k entities: a third purchases, the rest of users and of items."""
    rng = np.random.default_rng(seed)
    sizes = {"user": 120_000, "item": 80_000, "feature": 100_000, "brand": 30_000}
    names = Vocabulary({t: [f"{t} {k}" for k in range(n)] for t, n in sizes.items()})
    relations = (
        Relation("purchase", "user", "item"),
        Relation("mentions", "user", "feature"),
        Relation("has_feature", "item", "feature"),
        Relation("has_brand", "item", "brand"),
    )

    def some(head: str, tail: str, n: int) -> np.ndarray:
        """n distinct pairs, spread over all, in any order."""
        key = rng.permutation(n) * (sizes[head] * sizes[tail] // n)
        return np.stack(np.divmod(key, sizes[tail])).astype(np.int32)

    columns = []
    for r, n in ((1, 2_000_000), (2, 1_000_000), (3, 100_000)):
        kind = relations[r]
        h, t = some(kind.head_type, kind.tail_type, n)
        columns.append(
            (
                h + names.span(kind.head_type).start,
                np.full(n, r),
                t + names.span(kind.tail_type).start,
            )
        )
    h, r, t = (np.concatenate(c).astype(np.int32) for c in zip(*columns, strict=True))
    facts = Facts(h, r, t, np.full(len(h), -1, dtype=np.int32))
    return Dataset("large", names, relations, facts, Interactions(*some("user", "item", 1_500_000)))


@pytest.mark.long
def test_full_size_loads_in_seconds_and_stays_below_one_gib(tmp_path, capsys):
    full_size().save(tmp_path / "large")
    command = [sys.executable, "-c", LOAD, str(tmp_path / "large")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    with capsys.disabled():
        print(f"\n4.6 M facts from Parquet: {told}")
    assert (told["facts"], told["edges"]) == (4_600_000, 9_200_000)
    assert told["CPU"] < 20  # about 1 s; not by the clock, because the machine may be busy
    assert told["MiB"] < 1024


def test_later_counts_the_users_later_interactions_and_ties_share_a_place():
    words = Vocabulary({"user": ["ann", "ben"], "item": ["a", "b", "c", "d"]})
    relations = [Relation("purchase", "user", "item"), Relation("saw", "user", "item")]
    heads, kinds, tails = [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [2, 3, 4, 5, 2, 2]
    graph = KnowledgeGraph.from_triples(words, relations, heads, kinds, tails)
    assert graph.later is None
    users, items = np.array([0, 0, 0, 0, 1, 0]), np.array([0, 1, 2, 3, 0, 0])
    timed = graph.timed(users, items, np.array([1, 7, 7, 9, 5, 4]))  # ann bought a twice
    assert timed.later.tolist() == [3, 1, 1, 0, 0, 0]
    less = timed.without_interactions([0], [3])
    assert less.later.tolist() == [2, 0, 0, 0, 0]
    assert timed.fingerprint != graph.fingerprint


def test_an_interaction_without_a_time_is_refused():
    words = Vocabulary({"user": ["ann"], "item": ["a", "b"]})
    relations = [Relation("purchase", "user", "item")]
    graph = KnowledgeGraph.from_triples(words, relations, [0, 0], [0, 0], [1, 2])
    with pytest.raises(LogerError, match="got times for 1 pairs, but the graph has 2"):
        graph.timed(np.array([0]), np.array([1]), np.array([3]))


@given(graphs(with_origins=False), st.randoms())
def test_plus_gives_the_graph_that_had_the_interactions_from_the_start(graph, random):
    pairs = [(u, v) for u in range(graph.n_users) for v in range(graph.n_items)]
    new = random.sample(pairs, min(4, len(pairs)))
    h, r, t = (x.astype(int).tolist() for x in graph.triples())
    both = {*zip(h, r, t, strict=True), *((u, INTERACTION, v + graph.n_users) for u, v in new)}
    whole = build(graph.vocabulary, sorted(both))
    users, items = zip(*new, strict=True)
    assert graph.plus(users, items).fingerprint == whole.fingerprint
    assert graph.plus(users, items).pair_tails.tolist() == whole.pair_tails.tolist()
    assert graph.plus(users, items).pair_relations.tolist() == whole.pair_relations.tolist()


@given(graphs(), st.randoms())
def test_what_plus_adds_without_interactions_takes_away(graph, random):
    free = [
        (u, v)
        for u in range(graph.n_users)
        for v in range(graph.n_items)
        if not graph.has(u, INTERACTION, v + graph.n_users)
    ]
    if free:
        users, items = zip(*random.sample(free, min(3, len(free))), strict=True)
        back = graph.plus(users, items).without_interactions(users, items)
        assert back.fingerprint == graph.fingerprint


def test_plus_puts_untimed_interactions_last_and_timed_ones_where_they_belong():
    words = Vocabulary({"user": ["ann", "ben"], "item": ["a", "b", "c", "d"]})
    relations = [Relation("purchase", "user", "item")]
    graph = KnowledgeGraph.from_triples(words, relations, [0, 0, 1], [0] * 3, [2, 5, 3])
    graph = graph.timed(np.array([0, 0, 1]), np.array([0, 3, 1]), np.array([10, 20, 30]))
    assert graph.plus([0], [1]).later.tolist() == [2, 0, 1, 0]
    assert graph.plus([0, 0], [2, 1], [15, 5]).later.tolist() == [2, 3, 1, 0, 0]
    assert graph.plus([0], [0]) is graph


def test_new_users_come_last_and_nothing_else_changes():
    words = Vocabulary({"user": ["ann"], "item": ["a", "b"], "brand": ["x"]})
    relations = [Relation("purchase", "user", "item"), Relation("has", "item", "brand")]
    graph = KnowledgeGraph.from_triples(words, relations, [0, 1, 2], [0, 1, 1], [1, 3, 3])
    grown = graph.with_users(["ben", "cat"])
    assert [grown.vocabulary.names[i] for i in range(grown.n_users)] == ["ann", "ben", "cat"]
    moved = {
        h + 2 * (h > 0): [(r, t + 2 * (t > 0)) for r, t in e] for h, e in edges_of(graph).items()
    }
    assert edges_of(grown) == {1: [], 2: [], **moved}
    assert grown.plus([2], [1]).has(2, 0, 4)
    with pytest.raises(LogerError, match="new and distinct"):
        graph.with_users(["ann"])


@given(graphs(), st.integers(1, 3), st.integers(0, 9))
def test_a_sampled_graph_has_few_neighbours_and_only_facts(graph, most, seed):
    less = graph.sampled(most, seed)
    assert (np.diff(less.segment_starts) <= most).all()
    assert all(set(edges) <= set(edges_of(graph)[h]) for h, edges in edges_of(less).items())
    assert less.fingerprint == graph.sampled(most, seed).fingerprint
    sizes = np.diff(graph.segment_starts)
    if (sizes <= most).all():
        assert less.fingerprint == graph.fingerprint
