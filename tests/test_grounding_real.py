"""Groundings on real data, and through hubs with 100,000 neighbours: correct, fast and lean."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loger.data import load, split
from loger.graph import INTERACTION, KnowledgeGraph, Relation, Vocabulary
from loger.grounding import Walk, ground, nth_paths, reach
from loger.rules import RuleSet, candidates, named_rules

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
CROWD = 100_000
PARTS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def beauty(real_data):
    return split(load(real_data / "amazon-beauty"))


@pytest.fixture
def by_scipy(monkeypatch):
    """The benchmark's sparse products, which share no code with the kernels."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from rivals import by_scipy

    return by_scipy


@pytest.mark.long
def test_counts_on_beauty_equal_those_of_sparse_products(beauty, by_scipy):
    """300 users: their training pairs, their held-out pairs, and as many pairs at random."""
    graph, rng = beauty.graph, np.random.default_rng(0)
    some = rng.choice(graph.n_users, size=300, replace=False)
    users, items = (np.concatenate(x) for x in zip(*map(beauty.pairs, PARTS), strict=True))
    mine = np.isin(users, some)
    users, items = users[mine], items[mine]
    users = np.concatenate([users, users])
    items = np.concatenate([items, rng.integers(graph.n_items, size=len(items))])
    order = np.argsort(users, kind="stable")
    users, items = users[order], items[order].astype(np.int32)
    rules = candidates(graph)
    found = ground(graph, rules, users, items).count_matrix
    slow = by_scipy(graph, rules, users, items)
    assert (found != slow).nnz == 0
    assert found.sum() > 100_000
    assert len(set(found.indices)) == len(rules)  # no rule goes untested


@pytest.mark.long
def test_reach_on_beauty_equals_sparse_products_for_every_item(beauty, by_scipy):
    graph = beauty.graph
    asked = np.arange(0, graph.n_users, graph.n_users // 5)[:5]
    rules = named_rules(graph, [("purchase", "purchase⁻¹", "purchase"),
                                ("purchase", "has_brand", "has_brand⁻¹")])  # fmt: skip
    users = np.repeat(asked, graph.n_items)
    items = np.tile(np.arange(graph.n_items), len(asked))
    slow = by_scipy(graph, rules, users, items).toarray()
    found = reach(graph, rules, asked, observed=True)
    fast = np.zeros_like(slow)
    fast[np.searchsorted(asked, found.users) * graph.n_items + found.items] = (
        found.count_matrix.toarray()
    )
    assert (fast == slow).all()


# ── hubs ────────────────────────────────────────────────────────────────────────────────


def hubs() -> KnowledgeGraph:
    """100,000 users, who all bought item 0, and one other of 50; all mention word 0, which
    all items have; user u's other item is 1 + u mod 50."""
    items = 51
    names = Vocabulary(
        {
            "user": [f"u{k}" for k in range(CROWD)],
            "item": [f"i{k}" for k in range(items)],
            "word": ["hub", "rare"],
        }
    )
    relations = (
        Relation("purchase", "user", "item"),
        Relation("mentions", "user", "word"),
        Relation("described_as", "item", "word"),
    )
    every, word = np.arange(CROWD), CROWD + items
    all_items = CROWD + np.arange(items)
    parts = [
        (every, 0, np.full(CROWD, CROWD)),
        (every, 0, CROWD + 1 + every % (items - 1)),
        (every, 1, np.full(CROWD, word)),
        (all_items, 2, np.full(items, word)),
    ]
    heads, tails = (np.concatenate([p[k] for p in parts]) for k in (0, 2))
    kinds = np.repeat([p[1] for p in parts], [len(p[0]) for p in parts])
    return KnowledgeGraph.from_triples(names, relations, heads, kinds, tails)


RULES = [
    ("purchase", "purchase⁻¹", "purchase"),
    ("mentions", "described_as⁻¹"),
    ("mentions", "mentions⁻¹", "purchase"),
    ("purchase", "described_as", "described_as⁻¹"),
]


def expected(user: int, item: int) -> list[int]:
    """The counts of RULES, by thought. Each item but the first has 2,000 buyers."""
    each, own = CROWD // 50, 1 + user % 50
    bought = item in (0, own)
    if item == 0:
        others = each - 1  # by way of the own item, to its other buyers: all bought item 0
    elif item == own:
        others = each - 1  # by way of item 0
    else:
        others = each  # by way of item 0; nobody bought two of the fifty
    buyers = CROWD if item == 0 else each
    return [others, 1, buyers - bought, 1 if bought else 2]


def pairs_of(users):
    """All items of some users."""
    return np.repeat(users, 51), np.tile(np.arange(51), len(users))


def test_counts_through_hubs_are_right():
    graph = hubs()
    rules = named_rules(graph, RULES)
    users, items = pairs_of([0, 7, 51_234, CROWD - 1])
    slow = [expected(u, v) for u, v in zip(users.tolist(), items.tolist(), strict=True)]
    found = ground(graph, rules, users, items, walk=Walk())
    assert found.count_matrix.toarray().tolist() == slow
    everywhere = reach(graph, rules, [0, 7, 51_234, CROWD - 1], observed=True)
    assert everywhere.count_matrix.toarray().tolist() == slow
    # The walk to item 0 through word 0 and all users: 1/1 · 1/100,000 · 1/2 for each of them.
    assert found.strength_matrix[0, 2] == pytest.approx((CROWD - 1) / CROWD / 2)


def test_paths_through_hubs_can_be_counted_and_picked():
    graph = hubs()
    rule = named_rules(graph, [("mentions", "mentions⁻¹", "purchase")])[0]
    rules = RuleSet((rule,))
    assert ground(graph, rules, 5, 0).counts.sum() == CROWD - 1
    nth = np.random.default_rng(0).choice(CROWD - 1, 20, replace=False)
    drawn = nth_paths(graph, rules, np.zeros(20, int), [5] * 20, [0] * 20, nth)
    assert len({tuple(p) for p in drawn.tolist()}) == 20
    assert 5 not in drawn[:, 2]
    assert all(graph.has(b, INTERACTION, CROWD) for b in drawn[:, 2])


def measure() -> None:
    """Print what 20,000 pairs, and all items of 100 users, cost; run in a process of its own."""
    import re
    import time

    def memory(what):  # not ru_maxrss, which remembers the process that started this one
        status = Path("/proc/self/status").read_text()
        return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) / 1024

    graph = hubs()
    rules = named_rules(graph, RULES)
    ground(graph, rules, [0], [0], walk=Walk())  # compile, or load what is compiled
    reach(graph, rules, [0], walk=Walk())
    before, start = memory("VmRSS"), time.process_time()
    users = np.arange(0, CROWD, 250)
    ground(graph, rules, *pairs_of(users))
    pairs = time.process_time() - start
    reach(graph, rules, users[:100], walk=Walk())
    both = time.process_time() - start
    growth = memory("VmHWM") - before  # the peak may also be from building the graph
    print(json.dumps({"pairs": pairs, "reach": both - pairs, "MiB": growth}))


@pytest.mark.long
def test_hubs_cost_bounded_time_and_memory(capsys):
    """In CPU seconds, because the machine may be busy; the pairs have 120 million groundings."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    code += "import test_grounding_real as t; t.measure()"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    cost = json.loads(told.stdout)
    with capsys.disabled():
        print(f"\n20,400 pairs, and all items of 100 users, through hubs: {cost}")
    assert cost["pairs"] < 10
    assert cost["reach"] < 10
    assert cost["MiB"] < 200
