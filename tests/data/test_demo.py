"""The demo shop: its planted causes are true, come before their effects, and tell groups apart."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, get_args

import numpy as np
import pytest

from loger.data.dataset import Dataset
from loger.data.demo import FEATURE, PLANTED, SEEDS, Demo, Variant, shop
from loger.data.splits import Split, split
from loger.errors import LogerError
from loger.graph import INVERSE_MARK


@pytest.fixture(scope="module")
def demo() -> Demo:
    return shop()


@pytest.fixture(scope="module")
def parts(demo: Demo) -> Split:
    return split(demo.dataset)


def fingerprint(dataset: Dataset) -> str:
    return dataset.graph(np.arange(len(dataset.interactions))).fingerprint


def after_seeds(demo: Demo) -> np.ndarray:
    """Which rows come after their user's seed purchases; rows are in the order of time."""
    seen: defaultdict[int, int] = defaultdict(int)
    out = []
    for user in demo.dataset.interactions.users.tolist():
        seen[user] += 1
        out.append(seen[user] > SEEDS)
    return np.array(out)


def known_from(demo: Demo) -> dict[tuple[int, str, int], list[int]]:
    """(head, relation, tail) → the rows that tell it, -1 for what is simply known."""
    data = demo.dataset
    facts, events = data.facts, data.interactions
    known: defaultdict[tuple[int, str, int], list[int]] = defaultdict(list)
    columns = (facts.heads, facts.relations, facts.tails, facts.sources)
    for h, r, t, source in zip(*(c.tolist() for c in columns), strict=True):
        known[h, data.relations[r].name, t].append(source)
    first = data.vocabulary.span("item").start
    for row, (u, v) in enumerate(zip(events.users.tolist(), events.items.tolist(), strict=True)):
        known[u, "purchase", v + first].append(row)
    return known


def test_same_seed_gives_equal_data_and_another_seed_does_not() -> None:
    one, two, other = (shop(seed, users=60, items=100) for seed in (3, 3, 4))
    assert fingerprint(one.dataset) == fingerprint(two.dataset) != fingerprint(other.dataset)
    assert one.paths == two.paths
    np.testing.assert_array_equal(one.causes, two.causes)
    a, b = one.dataset.interactions, two.dataset.interactions
    for x, y in ((a.users, b.users), (a.items, b.items), (a.times, b.times)):
        np.testing.assert_array_equal(x, y)


def test_sizes_are_as_asked(demo: Demo) -> None:
    data = demo.dataset
    assert (data.n_users, data.n_items) == (600, 400)
    assert len(data.interactions) == len(demo.causes) == len(demo.paths)
    bought = np.bincount(data.interactions.users)
    assert bought.min() >= 8 and bought.max() <= 15
    assert {r.name for r in data.relations} >= {r.strip(INVERSE_MARK) for q in PLANTED for r in q}
    assert len(set(np.bincount(demo.groups).tolist())) == 1
    small = shop(users=30, items=60).dataset
    assert (small.n_users, small.n_items) == (30, 60)


def test_names_are_unique_and_readable(demo: Demo) -> None:
    names = demo.dataset.vocabulary.names
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z]+( [A-Za-z]+){0,2}", name) for name in names)
    large = shop(users=30, items=800).dataset.vocabulary.names  # more than there are words for
    assert len(set(large)) == len(large)


def test_rows_are_in_the_order_of_time_without_repetition(demo: Demo) -> None:
    events = demo.dataset.interactions
    assert events.times is not None
    assert (np.diff(events.times) > 0).all()
    assert len(set(zip(events.users.tolist(), events.items.tolist(), strict=True))) == len(events)


@pytest.mark.parametrize("variant", get_args(Variant))
def test_every_cause_is_a_simple_path_of_its_rule_through_earlier_facts(variant: Variant) -> None:
    demo = shop(users=100, items=150, variant=variant)
    assert (demo.causes >= 0).mean() > 0.5
    known, events = known_from(demo), demo.dataset.interactions
    first = demo.dataset.vocabulary.span("item").start
    for row, (cause, path) in enumerate(zip(demo.causes.tolist(), demo.paths, strict=True)):
        if cause < 0:
            assert path == ()
            continue
        rule = demo.planted[cause]
        assert (path[0], path[-1]) == (events.users[row], events.items[row] + first)
        assert len(set(path)) == len(path) == len(rule) + 1
        for a, relation, b in zip(path, rule, path[1:], strict=False):
            base = relation.removesuffix(INVERSE_MARK)
            fact = (a, base, b) if base == relation else (b, base, a)
            assert min(known[fact]) < row  # rows are in the order of time


def test_each_group_buys_by_its_own_rule_and_the_rest_is_noise(demo: Demo) -> None:
    later = after_seeds(demo)
    group = demo.groups[demo.dataset.interactions.users]
    assert (demo.causes[~later] == -1).all()
    caused = demo.causes >= 0
    np.testing.assert_array_equal(demo.causes[caused], group[caused])
    for g in range(len(PLANTED)):
        assert (demo.causes[later & (group == g)] == g).mean() > 0.75


@pytest.mark.parametrize("noise", [0.0, 0.15, 0.5])
def test_noise_is_what_was_asked(noise: float) -> None:
    demo = shop(1, users=300, items=400, noise=noise)
    share = (demo.causes[after_seeds(demo)] < 0).mean()
    assert noise - 0.03 < share < noise + 0.05  # dead ends of rules add a little


def test_mentions_have_sources_and_leave_with_held_out_interactions(
    demo: Demo, parts: Split
) -> None:
    data, facts = demo.dataset, demo.dataset.facts
    number = [r.name for r in data.relations].index("mentions")
    mentions = facts.relations == number
    sources = facts.sources[mentions]
    assert (sources >= 0).all()
    np.testing.assert_array_equal(facts.heads[mentions], data.interactions.users[sources])
    triples = list(zip(facts.heads[mentions].tolist(), facts.tails[mentions].tolist(), strict=True))
    train = set(parts.train.tolist())
    kept = {t for t, s in zip(triples, sources.tolist(), strict=True) if s in train}
    gone = set(triples) - kept
    assert len(gone) > 50
    assert all(parts.graph.has(u, number, f) for u, f in kept)
    assert not any(parts.graph.has(u, number, f) for u, f in gone)


def test_some_features_are_known_from_reviews_alone(demo: Demo) -> None:
    told = [s for (_, r, _), s in known_from(demo).items() if r == "has_feature"]
    assert 0.02 < np.mean([min(s) >= 0 for s in told]) < 0.3
    words = demo.dataset.vocabulary
    keen = {u for u in words.span("user") if demo.groups[u] == FEATURE}
    often = [u for (u, r, _), s in known_from(demo).items() if r == "mentions" and len(s) > 2]
    assert keen & set(often) and len(set(often) - keen) < 0.1 * len(often)


def reached(demo: Demo, parts: Split, rule: tuple[str, ...]) -> np.ndarray:
    """Walk strength of simple paths of a rule, users × items, by plain walking (L1–L3)."""
    graph, known = parts.graph, known_from(demo)
    train, first = set(parts.train.tolist()), graph.vocabulary.span("item").start
    row_of = {p: s[0] for (u, r, v), s in known.items() if r == "purchase" for p in [(u, v)]}
    out = np.zeros((graph.n_users, graph.n_items))
    for user in range(graph.n_users):
        walks = [((user,), 1.0)]
        for relation in map(graph.relation_id, rule):
            walks = [
                ((*path, n), strength / len(near))
                for path, strength in walks
                for near in [graph.neighbours(path[-1], relation).tolist()]
                for n in near
                if n not in path
            ]
        for path, strength in walks:
            own = row_of.get((user, path[-1]), -1)
            tells = known[user, rule[0], path[1]] if rule[0] == "mentions" else []
            if not tells or {s for s in tells if s in train} - {own}:
                out[user, path[-1] - first] += strength
    return out


def test_planted_rules_are_specific_and_fire_for_what_they_will_cause(
    demo: Demo, parts: Split
) -> None:
    users, items = parts.pairs("train")
    seen = np.zeros((demo.dataset.n_users, demo.dataset.n_items), dtype=bool)
    seen[users, items] = True
    events = demo.dataset.interactions
    for g, rule in enumerate(PLANTED):
        strength = reached(demo, parts, rule)
        support = int((strength[seen] > 0).sum())
        lift = support / (strength > 0).sum() / seen.mean()
        assert support > 400
        assert lift > 5
        rows = parts.test[demo.causes[parts.test] == g]
        u, v = events.users[rows], events.items[rows]
        better = ((strength[u] > strength[u, v][:, None]) & ~seen[u]).sum(axis=1)
        assert (strength[u, v] > 0).mean() > 0.85
        assert (better < 10).mean() > 0.7  # of nearly 400 items


def tails(demo: Demo, relation: str) -> np.ndarray:
    """How many facts of a relation lead to each entity that any leads to."""
    data = demo.dataset
    of = [r.name for r in data.relations].index(relation)
    return np.unique(data.facts.tails[data.facts.relations == of], return_counts=True)[1]


def test_variants_are_as_hard_as_they_say() -> None:
    kinds = get_args(Variant)
    made = {v: shop(users=200, items=200, variant=v) for v in kinds}
    of_user = {v: d.groups[d.dataset.interactions.users] for v, d in made.items()}
    caused = made["causes"].causes >= 0
    assert (made["causes"].causes != of_user["causes"])[caused].mean() > 0.25  # by the second rule
    for relation in ("has_brand", "has_category", "follows"):
        share = {v: tails(d, relation).max() / tails(d, relation).sum() for v, d in made.items()}
        assert share["hubs"] > 0.25 > share["plain"]
    plain, distracted = made["plain"], made["distractors"]
    assert plain.paths == distracted.paths  # what causes nothing changes nothing
    facts = known_from(distracted)
    labels = distracted.dataset.vocabulary.labels
    brand, seller = ({h: t for h, r, t in facts if r == x} for x in ("has_brand", "has_seller"))
    alike = [labels[seller[v]] == f"{labels[b]} store" for v, b in brand.items()]
    assert 0.6 < np.mean(alike) < 0.95
    bought, viewed = (
        {(h, t) for h, r, t in facts if r == x} for x in ("also_bought", "also_viewed")
    )
    assert 0.6 < len(bought & viewed) / len(bought) < 0.95

    def concentration(d: Demo) -> float:
        sold = np.bincount(d.dataset.interactions.items[d.causes >= 0], minlength=200)
        return float((sold**2).sum() / sold.sum() ** 2)

    assert concentration(made["popularity"]) > 1.1 * concentration(plain)


def test_impossible_shops_are_refused() -> None:
    odd: Any = "odd"
    with pytest.raises(LogerError, match="one of plain, causes"):
        shop(variant=odd)
    with pytest.raises(LogerError, match="got 5 and 400"):
        shop(users=5)
    with pytest.raises(LogerError, match=r"noise must be a share in \[0, 1\), got 1.5"):
        shop(noise=1.5)
