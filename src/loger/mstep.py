"""The M-step (METHOD 5): weights of rules, popularity and encoder, from pairs and their groundings.

``listwise`` (default) makes held-out interactions stand out in *pools*: of each user the best items
by every single rule, and more of the encoder's and of the rules over other users, which find most;
nothing the user has. The likelihood over all items would be the same but for items that nothing
speaks for. ``pseudo`` is the paper's pseudo-likelihood over observed and hidden pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from loger.encoder.folding import score_users
from loger.engine import Engine, LocalEngine
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, history, pair_keys
from loger.grounding import Groundings, Walk, concat, reach, take
from loger.logic import (
    Feature,
    Floats,
    Logic,
    additive,
    ascend,
    features,
    listwise,
    maximise,
    pseudo_likelihood,
    typical_strengths,
    uses_strength,
)
from loger.ranker import Ranker, blocks
from loger.rules import RuleSet
from loger.topk import top_k

BLOCK = 64
"""Users whose candidates are gathered, or whose items are scored, at a time."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Whom a held-out interaction competes with."""

    walk: Walk | None
    """What strengths are of; None: candidates are the items of most paths."""
    per_rule: int
    """Candidates by each rule, …"""
    main: int
    """… and by the encoder and by each rule over other users."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of some users, by user."""

    found: Groundings
    starts: NDArray[np.int64]  # [users + 1]
    hits: NDArray[np.int64]  # rows that are held-out interactions
    encoder: NDArray[np.float32]  # [rows]: the encoder's scores


# ── pools ───────────────────────────────────────────────────────────────────────────────


def gather(
    ranker: Ranker,
    users: NDArray[np.int64],
    held_out: csr_array,
    config: PoolConfig,
    engine: Engine,
) -> Pool:
    """The candidates of users, ascending, by the ranker's rules, whatever they weigh, and by its
    encoder. ``held_out`` is users × items."""
    shared = (ranker, held_out, config)
    parts = list(engine.map("gathering candidates", _gather, blocks(users, BLOCK), shared))
    ends = np.cumsum([0, *(len(p.found) for p in parts)])
    return Pool(
        concat([p.found for p in parts], len(ranker.logic.rules), config.walk is not None),
        np.concatenate([[0], *(p.starts[1:] + at for p, at in zip(parts, ends, strict=False))]),
        np.concatenate([p.hits + at for p, at in zip(parts, ends, strict=False)]),
        np.concatenate([p.encoder for p in parts]),
    )


def _gather(shared: tuple[Ranker, csr_array, PoolConfig], users: NDArray[np.int64]) -> Pool:
    ranker, held_out, config = shared
    rules, n_items = ranker.logic.rules, ranker.graph.n_items
    walk = config.walk or Walk.uniform(0.0)
    found = reach(ranker.logic_graph, rules, users, walk=walk, engine=LocalEngine(1))
    s = ranker.encoder_scores(users)
    chosen = _chosen(ranker.graph, rules, users, found, s, config)
    keys = pair_keys(np.searchsorted(users, found.users), found.items, n_items)
    at = np.minimum(np.searchsorted(keys, chosen), max(len(keys) - 1, 0))
    known = keys[at] == chosen if len(keys) else np.zeros(len(chosen), dtype=bool)
    rows, items = np.divmod(chosen, n_items)
    kept = take(found, at[known]).with_empty_rows(known, users[rows], items)
    return Pool(
        kept if config.walk is not None else replace(kept, strengths=None),
        np.searchsorted(rows, np.arange(len(users) + 1)),
        np.flatnonzero(np.asarray(held_out[users[rows], items])),
        s[rows, items],
    )


def _chosen(
    graph: Graph,
    rules: RuleSet,
    users: NDArray[np.int64],
    found: Groundings,
    scores: NDArray[np.float32],
    config: PoolConfig,
) -> NDArray[np.int64]:
    """The candidates of a block as ascending keys, place of the user · items + item."""
    best, _ = top_k(scores.copy(), config.main, history(graph, users))
    owners = np.repeat(np.arange(len(users)), best.shape[1])
    by_encoder = pair_keys(owners, best.ravel(), graph.n_items)[best.ravel() >= 0]
    rows = _best_rows(found, rules, config)
    place = np.searchsorted(users, found.users[rows])
    return np.union1d(pair_keys(place, found.items[rows], graph.n_items), by_encoder)


def _best_rows(found: Groundings, rules: RuleSet, config: PoolConfig) -> NDArray[np.int64]:
    """The pairs that are among the best of their user by some rule."""
    assert found.strengths is not None
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    group = found.users[pair].astype(np.int64) * len(rules) + found.rules
    order = np.lexsort((pair, -found.strengths, group))
    sorted_group = group[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_group, sorted_group)
    over_users = [len(rule) == 3 and rule.types[2] == "user" for rule in rules]
    most = np.where(over_users, config.main, config.per_rule)
    return np.unique(pair[order[rank < most[found.rules[order]]]])


# ── weights ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Solved:
    """What an M-step came to: the logic, the encoder's weight, the objective before and after."""

    logic: Logic
    encoder_weight: float
    before: float
    after: float


def solve_listwise(
    logic: Logic,
    pool: Pool,
    popularity: Floats | None,
    *,
    with_encoder: bool,
    l2: float,
    start: tuple[Logic, float] | None,
    max_encoder: float | None = None,
) -> Solved:
    """The weights of rules, popularity and encoder that make the pool's hits most likely.

    ``logic`` says which rules and feature; ``popularity`` [items] is log(1 + interactions), None
    leaves it out. From ``start``, a logic of the same rules and an encoder weight, strengths keep
    their scales. The encoder's weight rises to ``max_encoder`` at most.
    """
    if not len(pool.hits):
        raise LogerError(
            "no held-out interaction is among the candidates, so nothing can be learned "
            "from them; is the graph connected to the items of validation?"
        )
    scales = typical_strengths(pool.found) if uses_strength(logic.feature) else None
    if start is not None:
        scales = start[0].scales
    phi = features(pool.found, logic.feature, scales)
    unit = np.zeros(len(pool.found)) if popularity is None else popularity[pool.found.items]
    beside = pool.encoder * with_encoder
    columns = hstack([phi, csr_array(np.stack([unit, beside], axis=1))], format="csr")
    width = len(logic.rules)
    first = np.zeros(width + 2)
    if start is not None:
        first[:] = [*start[0].weights, start[0].popularity, start[1]]

    def objective(w: Floats) -> tuple[float, Floats]:
        return listwise(w, columns, pool.starts, pool.hits, l2)

    positive = np.ones(width + 2, dtype=bool)
    positive[width] = False  # what is popular may count against
    most = np.full(width + 2, np.inf)
    if max_encoder is not None:
        most[-1] = max_encoder
        first[-1] = min(first[-1], max_encoder)
    w = maximise(objective, first, positive, most)
    solved = replace(logic, weights=w[:width], scales=scales, popularity=float(w[width]))
    return Solved(solved, float(w[width + 1]), objective(first)[0], objective(w)[0])


def solve_pseudo(
    logic: Logic,
    found: Groundings,
    targets: Floats,
    *,
    l2: float,
    rate: float,
    steps: int,
    rescale: bool,
) -> tuple[Logic, float, float]:
    """The weights at the maximum of Σ t log p + (1 − t) log(1 − p) − ½λ‖w‖² over grounded pairs
    (or after so many steps of gradient ascent), and the objective before and after."""
    scales = logic.scales
    if uses_strength(logic.feature) and rescale:
        scales = typical_strengths(found)
    phi = features(found, logic.feature, scales)
    prior = additive(logic.feature)
    first = logic.weights.astype(np.float64)
    first = np.append(first, logic.prior) if prior else first

    def objective(w: Floats) -> tuple[float, Floats]:
        return pseudo_likelihood(w, phi, targets, l2, prior)

    w = ascend(objective, first, rate, steps) if steps else maximise(objective, first)
    solved = replace(
        logic,
        weights=w[: len(logic.rules)],
        scales=scales,
        prior=float(w[-1]) if prior else 0.0,
        popularity=0.0,
    )
    return solved, objective(first)[0], objective(w)[0]


def blank_logic(rules: RuleSet, feature: Feature, walk: Walk | None) -> Logic:
    """Rules that weigh nothing yet."""
    scales = np.ones(len(rules)) if uses_strength(feature) else None
    return Logic(rules, np.zeros(len(rules)), feature, walk, scales)


# ── pairs ───────────────────────────────────────────────────────────────────────────────


def pair_scores(
    ranker: Ranker, users: NDArray[np.integer], items: NDArray[np.integer], engine: Engine
) -> Floats:
    """The encoder's scores of pairs."""
    out = np.empty(len(users))
    distinct, place = np.unique(users, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(distinct) + 1))
    spans = [
        (distinct[lo : lo + BLOCK], place[rows] - lo, items[rows])
        for lo in range(0, len(distinct), BLOCK)
        for rows in (order[ends[lo] : ends[min(lo + BLOCK, len(distinct))]],)
    ]
    scored = engine.map("scoring pairs", _pair_scores, spans, ranker)
    out[order] = np.concatenate([np.empty(0), *scored])
    return out


def _pair_scores(ranker: Ranker, block: Sequence[NDArray[np.integer]]) -> NDArray[np.float32]:
    users, rows, items = block
    scores: NDArray[np.float32] = score_users(ranker.encoder, ranker.graph, users, ranker.recency)[
        rows, items
    ]
    return scores


def uniform_items(
    graph: KnowledgeGraph, users: NDArray[np.integer], n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each user n items drawn uniformly; -1 where the user has it in the graph."""
    owners = np.repeat(users, n).astype(np.int64)
    items = rng.integers(graph.n_items, size=len(owners))
    edges, heads = graph.interactions
    have = pair_keys(heads, graph.tails[edges] - graph.n_users, graph.n_items)  # ascending
    keys = pair_keys(owners, items, graph.n_items)
    at = np.minimum(np.searchsorted(have, keys), max(len(have) - 1, 0))
    items[have[at] == keys] = -1
    return owners.astype(np.int32), items.astype(np.int32)
