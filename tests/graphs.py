"""Random typed graphs, and slow, obvious implementations to compare the fast code with."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from loger.encoder.protocol import AdditiveEncoder, WeightedItems
from loger.graph import INTERACTION, Derived, KnowledgeGraph, Relation, Vocabulary
from loger.ranking.ranker import Ranker
from loger.reasoner.search import SearchConfig
from loger.rules import Rule, make_rule

RELATIONS = (
    Relation("purchase", "user", "item"),
    Relation("viewed", "user", "item"),
    Relation("similar", "item", "item"),
    Relation("has_brand", "item", "brand"),
    Relation("mentions", "user", "word"),
    Relation("described_as", "item", "word"),
    Relation("follows", "user", "user"),
)

MENTIONS = 4


def vocabulary(users: int, items: int, brands: int, words: int) -> Vocabulary:
    sizes = {"user": users, "item": items, "brand": brands, "word": words}
    return Vocabulary({t: [f"{t}{k}" for k in range(n)] for t, n in sizes.items()})


@st.composite
def graphs(draw: st.DrawFn, with_origins: bool | None = None) -> KnowledgeGraph:
    """Small dense graphs over all kinds of relations, many of them with origins."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = vocabulary(*(draw(st.integers(1, n)) for n in (6, 7, 3, 4)))
    triples = random_triples(names, rng, draw(st.sampled_from([0.1, 0.3, 0.6])))
    if draw(st.booleans()) if with_origins is None else with_origins:
        return with_random_origins(names, triples, rng)
    return build(names, triples)


def hub_graph(seed: int, density: float, with_origins: bool) -> KnowledgeGraph:
    """40 users, 12 items; all buy the first item and mention the first word."""
    rng = np.random.default_rng(seed)
    names = vocabulary(40, 12, 2, 3)
    item, word = names.span("item").start, names.span("word").start
    hubs = ((INTERACTION, item), (MENTIONS, word))
    triples = {(u, r, t) for u in names.span("user") for r, t in hubs}
    triples = sorted(triples.union(random_triples(names, rng, density)))
    return with_random_origins(names, triples, rng) if with_origins else build(names, triples)


def random_triples(names: Vocabulary, rng: np.random.Generator, density: float):
    """Each fact that the relations allow, with the same probability."""
    return [
        (h, r, t)
        for r, relation in enumerate(RELATIONS)
        for h in names.span(relation.head_type)
        for t in names.span(relation.tail_type)
        if h != t and rng.random() < density
    ]


def build(names, triples, origins=None) -> KnowledgeGraph:
    columns = np.array(triples, dtype=np.int64).reshape(-1, 3).T
    return KnowledgeGraph.from_triples(names, RELATIONS, *columns, origins=origins)


def with_random_origins(names, triples, rng) -> KnowledgeGraph:
    """Let some edges of users and items that touch an observed pair come from it alone."""
    bought: dict[int, list[tuple[int, int]]] = {}
    for h, r, t in triples:
        if r == INTERACTION:
            bought.setdefault(h, []).append((h, t))
            bought.setdefault(t, []).append((h, t))
    user, item = [], []
    for h, r, t in triples:
        # An origin touches the fact: the user's review names the user's or the item's facts.
        owners = [] if r == INTERACTION else bought.get(h, [])
        if RELATIONS[r].tail_type == "item" and RELATIONS[r].head_type == "user":
            owners = [p for p in owners if p == (h, t)]
        pick = owners[rng.integers(len(owners))] if owners and rng.random() < 0.5 else (-1, -1)
        user.append(pick[0])
        item.append(pick[1])
    return build(names, triples, origins=(np.array(user), np.array(item)))


def edges_of(graph: KnowledgeGraph) -> dict[int, list[tuple[int, int]]]:
    """All (relation, tail) by head, inverses included, by the plainest reading of the graph."""
    out: dict[int, list[tuple[int, int]]] = {e: [] for e in range(graph.n_entities)}
    for h, r, t in zip(*(x.tolist() for x in graph.triples()), strict=True):
        out[h].append((r, t))
        out[t].append((graph.inverse(r), h))
    return out


def brute_paths(graph: KnowledgeGraph, user: int, item: int, longest: int = 3):
    """Every simple path of up to three hops from user to item as (relations, nodes).

    The pair's own interaction, and what is known from it alone, is taken out first: here
    by building the graph without it, which is what the fast code must agree with.
    """
    v = item + graph.n_users
    if v in graph.neighbours(user, INTERACTION):
        graph = graph.without_interactions([user], [item])
        derived = {k for k, r in enumerate(graph.relations) if r.derived}
        out = {
            h: [(r, t) for r, t in edges if r % len(graph.relations) not in derived]
            for h, edges in edges_of(graph).items()
        }
    else:
        out = edges_of(graph)

    def walk(nodes, relations):
        if nodes[-1] == v:
            yield relations, nodes
            return
        if len(relations) == longest:
            return
        for r, t in out[nodes[-1]]:
            if t not in nodes:
                yield from walk((*nodes, t), (*relations, r))

    yield from walk((user,), ())


def brute_counts(graph: KnowledgeGraph, rules, user: int, item: int) -> list[int]:
    found = Counter(relations for relations, _ in brute_paths(graph, user, item))
    return [found[rule.relations] for rule in rules]


def brute_strengths(graph: KnowledgeGraph, rules, user, item, walk) -> list[float]:
    """Σ over paths of Π over hops as ``Walk`` says, degrees of the graph."""
    total: Counter[tuple[int, ...]] = Counter()
    for relations, nodes in brute_paths(graph, user, item):
        product = 1.0
        for k, (h, r, t) in enumerate(zip(nodes, relations, nodes[1:], strict=False)):
            product *= graph.weight(h, r, t)
            product *= float(len(graph.neighbours(h, r))) ** -brute_exponent(
                graph, walk, r, k == 0 and len(relations) > 1
            )
            if k == len(relations) - 1 and not is_derived(graph, r):
                power = walk.popular if r == INTERACTION else walk.arrive
                product *= float(len(graph.neighbours(t, graph.inverse(r)))) ** -power
            if k == 0 and r == INTERACTION and graph.times is not None:
                second = relations[1] if len(relations) > 1 else r
                own = graph.relations[second % len(graph.relations)].recency
                recency = walk.recency if own is None else own
                product *= (1.0 + brute_later(graph, h, t)) ** -recency
            if k == 0 and r == INTERACTION and walk.strength and graph.strengths is not None:
                product *= brute_relative(graph, h, walk.strength)[t]
        total[relations] += product
    return [total[rule.relations] for rule in rules]


def brute_relative(graph: KnowledgeGraph, user: int, power: float) -> dict[int, float]:
    """What each of a user's items counts by its strength: 1 on average, and where it is unknown."""
    assert graph.strengths is not None
    strong = {
        int(v): float(graph.strengths[graph.rows.edge(user, INTERACTION, int(v))])
        for v in graph.neighbours(user, INTERACTION)
    }
    powers = {v: x**power for v, x in strong.items() if x > 0}
    mean = sum(powers.values()) / len(powers) if powers else 1.0
    return {v: powers[v] / mean if v in powers else 1.0 for v in strong}


def with_strengths(
    graph: KnowledgeGraph, rng: np.random.Generator, rated: bool = False
) -> KnowledgeGraph:
    """The graph with strengths of its interactions, some of them unknown."""
    edges, users = graph.interactions
    values = rng.integers(0, 6, len(users)).astype(float)
    return graph.strengthened(users, graph.tails[edges] - graph.n_users, values, rated)


def brute_exponent(graph: KnowledgeGraph, walk, relation: int, first: bool) -> float:
    """The power of the degree that a hop leaves; the one hop of a short rule is a last hop."""
    if first:
        return walk.first
    if is_derived(graph, relation):
        return 0.0
    if relation == INTERACTION:
        return walk.user
    return walk.item if relation == graph.inverse(INTERACTION) else walk.fact


def is_derived(graph: KnowledgeGraph, relation: int) -> bool:
    """Whether a relation or inverse is made from the interactions."""
    return graph.relations[relation % len(graph.relations)].derived


def with_weights(graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
    """The graph with a weight for each fact of some relations, first hops among them."""
    n, weighted = graph.n_entities, rng.random(len(graph.relations)) < 0.6
    heads, tails = graph.edge_heads().astype(np.int64), graph.tails.astype(np.int64)
    relations = graph.edge_relations().astype(np.int64)
    base = relations % len(graph.relations)
    h, t = np.where(relations == base, (heads, tails), (tails, heads))
    fact = np.unique((base * n + h) * n + t, return_inverse=True)[1]
    values = rng.choice([0.1, 0.25, 0.5, 1.0, 2.0, 3.0], size=len(fact))
    weights = np.where(weighted[base], values[fact], 1.0).astype(np.float32)
    return replace(graph, weights=weights)


def with_derived(graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
    """The graph with two derived relations, before one of which interactions fade by themselves."""
    first, second = (
        Relation("followed_by", "item", "item", True, 2.0),
        Relation("goes_with", "item", "item", True),
    )
    more = []
    for relation, density in ((first, 0.5), (second, 0.3)):
        pairs = rng.random((graph.n_items, graph.n_items)) < density
        np.fill_diagonal(pairs, False)
        heads, tails = np.nonzero(pairs)
        weights, people = rng.random(len(heads)) + 0.1, rng.integers(1, 9, len(heads))
        more.append(Derived(relation, heads, tails, weights, people))
    return graph.with_derived(more)


def derived_rules(graph: KnowledgeGraph) -> list[Rule]:
    """Rules that lead over derived relations and their inverses, as second, inner or last hop."""
    f, g = graph.relation_id("followed_by"), graph.relation_id("goes_with")
    back, similar = graph.inverse(f), graph.relation_id("similar")
    hops = [(0, f), (0, g), (0, back), (0, f, g), (0, f, similar), (0, similar, f), (1, f)]
    return [make_rule(graph, relations) for relations in hops]


def brute_later(graph: KnowledgeGraph, user: int, item: int) -> int:
    """How many interactions of the user are later than the one with an item."""
    at = graph.segment_starts[graph.rows.segment(user, INTERACTION)]
    items = graph.neighbours(user, INTERACTION).tolist()
    times = graph.times[at : at + len(items)]
    return int((times > times[items.index(item)]).sum())


def matrices(graph: KnowledgeGraph) -> np.ndarray:
    """One dense 0/1 matrix per relation and inverse; [2 · relations, entities, entities]."""
    out = np.zeros((2 * len(graph.relations), graph.n_entities, graph.n_entities))
    heads, relations, tails = (x.astype(np.int64) for x in graph.triples())
    out[relations, heads, tails] = 1
    out[relations + len(graph.relations), tails, heads] = 1
    return out


def dense_groundings(graph: KnowledgeGraph, rules, user: int, item: int, walk=None):
    """Counts of simple paths, or with exponents their strengths, by dense products: a twin for
    graphs that have too many paths to list. Checked against ``brute_counts`` itself."""
    v = item + graph.n_users
    edges = matrices(graph)
    degree = np.maximum(edges.sum(axis=2), 1)  # [relations, entities]
    if graph.has(user, INTERACTION, v):
        edges = matrices(graph.without_interactions([user], [item]))
    found = []
    for *before, last in (rule.relations for rule in rules):
        leaves = (1.0, *(1.0 for _ in before))
        if walk is not None:
            hops = [*before, last]
            leaves = [
                degree[r] ** -brute_exponent(graph, walk, r, k == 0 and len(hops) > 1)
                for k, r in enumerate(hops)
            ]
        end = edges[last][:, v] * leaves[-1]
        if walk is not None:
            power = walk.popular if last == INTERACTION else walk.arrive
            end = end * degree[graph.inverse(last)][v] ** -power
        front = np.zeros(graph.n_entities)
        front[user] = 1
        for r, leave in zip(before, leaves, strict=False):
            # An inner node is neither end; with three hops the two differ anyway.
            front = (front * leave) @ edges[r]
            front[[user, v]] = 0
        found.append(float(front @ end))
    return found


EXHAUSTIVE = SearchConfig(branch=None, width=None, best_rules=None)
"""Finds all paths."""


class AnyOrder:
    """A scorer of steps that rates all of them the same."""

    def begin(self, user):
        """Nothing to remember."""

    def step_scores(self, state, rows, relations, entities):
        return np.zeros(len(rows))

    def advance(self, state, rows, relations, entities):
        """Nothing to remember."""


def compile_kernels() -> None:
    """Have the compiled functions that rankers, EM and explanations call ready."""
    from loger.explain.attribution import explain
    from small import problem

    em = problem()
    pairs = np.arange(3), np.arange(3)
    explain(em.ranker(em.start()), *pairs)
    for feature in ("count", "walk"):
        em = problem(feature=feature, likelihood="pseudo")
        explain(em.ranker(em.start()), *pairs)


def built(graph, user, remove, add, times) -> KnowledgeGraph:
    """The graph built again, in which removed interactions still age those before them."""
    less = graph.without_interactions([user] * len(remove), remove)
    if times is None and graph.times is not None:  # what is added comes after all that happened
        times = [int(graph.times.max(initial=0)) + 1] * len(add)
    out = less.plus([user] * len(add), add, times)
    if graph.times is not None:
        now = happened(out, user)
        gone = [t for v, t in happened(graph, user).items() if v not in now]
        later = out.later.copy()
        for item, time in now.items():
            later[out.rows.edge(user, INTERACTION, item)] += sum(t > time for t in gone)
        out.__dict__["later"] = later
    return out


def happened(graph, user) -> dict[int, int]:
    items = graph.neighbours(user, INTERACTION).tolist()
    return {v: int(graph.times[graph.rows.edge(user, INTERACTION, v)]) for v in items}


def scores_as_seen(ranker: Ranker, user: int, remove, add=(), times=None) -> np.ndarray:
    """Scores of all items for a user with other interactions, the slow way: on a graph built anew,
    where the encoder's sum is still divided by the length of all that happened."""
    graph = built(ranker.graph, user, list(remove), list(add), times)
    twin = ranker.on(graph)
    own = ranker.fusion.own
    if own is None:
        return twin.scores([user]).total[0].astype(float)
    encoder = ranker.encoder
    assert isinstance(encoder, AdditiveEncoder)
    items = graph.neighbours(user, INTERACTION)
    ages = np.zeros(len(items) + len(set(remove) - set(add)))
    if graph.times is not None:
        now, before = happened(graph, user), happened(ranker.graph, user)
        lived = [*now.values(), *(t for v, t in before.items() if v not in now)]
        ages = np.array([sum(t > time for t in lived) for time in lived], dtype=float)
    weights = (1 + ages) ** -(ranker.walk.recency if ranker.walk else 0.0)
    weights = weights[: len(items)] / np.sqrt((weights**2).sum())
    owners = np.zeros(len(items), dtype=np.int64)
    s = encoder.sums(WeightedItems(owners, items - graph.n_users, weights, 1))
    s = s[0] + np.array(own) @ encoder.own_parts
    logit = twin.logic.logits(twin.logic_graph, [user])[0]
    return (logit + ranker.fusion.encoder_weight * s).astype(float)
