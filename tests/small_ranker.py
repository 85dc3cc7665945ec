"""A small ranker, and a slow, obvious implementation of each of its numbers."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from graphs import brute_paths, brute_strengths
from loger.encoder import Calibration
from loger.encoder.protocol import EncoderParts
from loger.graph import history
from loger.grounding import ground
from loger.logic.config import WALK
from loger.logic.mln import Logic
from loger.ranking.ranker import Fusion, Ranker
from small import Table, small_graph, some_rules, table

GRAPH = small_graph()
RULES = some_rules(GRAPH)
WEIGHTS = np.array([0.5, 2.0, -1.0, 0.0, 0.25, 1.0])
SCALES = np.array([0.05, 0.1, 0.2, 0.1, 0.05, 0.3])
USERS = np.arange(12)


class Sums(Table):
    """An encoder whose scores are sums: of the item's own, and of one for each interaction."""

    attributable = folds_in = True

    def unused(self, *arguments):
        raise NotImplementedError

    sums = own_parts = grown = unused

    def __init__(self) -> None:
        rng = np.random.default_rng(8)
        self.own, self.pairs = rng.normal(size=GRAPH.n_items), rng.normal(size=(25, 25))

    def fold_in(self, histories) -> np.ndarray:
        owners, items, weights, n_users = histories
        scores = np.tile(self.own, (n_users, 1))
        np.add.at(scores, owners, weights[:, None] * self.pairs[items])
        return scores.astype(np.float32)

    def attribute(self, owned, weights, items, own=None) -> EncoderParts:
        free = np.setdiff1d(np.arange(GRAPH.n_items), owned)
        actions = weights[:, None] * self.pairs[owned]
        means = actions[:, free].mean(axis=1), float(self.own[free].mean())
        return EncoderParts(actions[:, items], self.own[items], *means)


@cache
def ranker(kind: str = "logit", feature: str = "logwalk", *, sums: bool = False) -> Ranker:
    walk, scales = (WALK, SCALES) if feature == "logwalk" else (None, None)
    logic = Logic(RULES, WEIGHTS, feature, walk, scales, prior=-0.5, popularity=0.25)
    fusion = Fusion(kind, 0.8, Calibration(1.5, -0.25), alpha=0.3)
    return Ranker.of(GRAPH, Sums() if sums else table(GRAPH), logic, fusion)


def owned(user: int) -> set[int]:
    return set(history(GRAPH, np.array([user]))[1].tolist())


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_parts(user: int, item: int, feature: str) -> tuple[np.ndarray, float]:
    """What each rule and what popularity adds to logit p."""
    if feature == "logwalk":
        x = np.array(brute_strengths(GRAPH, RULES, user, item, WALK))
        worth = WEIGHTS * np.log1p(x / SCALES)
    else:
        every = [relations for relations, _ in brute_paths(GRAPH, user, item)]
        worth = WEIGHTS * np.log1p([every.count(rule.relations) for rule in RULES])
    return worth, 0.25 * math.log1p(sum(item in owned(u) for u in range(GRAPH.n_users)))


def slow_score(user: int, item: int, kind: str, feature: str) -> tuple[float, float, float]:
    """What the encoder and the logic add to S, and logit p."""
    worth, popularity = slow_parts(user, item, feature)
    logit, s = -0.5 + popularity + worth.sum(), float(table(GRAPH).scores[user, item])
    if kind == "sum":
        return sigma(1.5 * s - 0.25), 0.3 * sigma(logit), logit
    return (0.8 * s if kind == "logit" else 0.0), logit, logit


def grid() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of some users."""
    return np.repeat(USERS, GRAPH.n_items), np.tile(np.arange(GRAPH.n_items), len(USERS))


@cache
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs that many rules fire for, users in no order and some twice, and an owned item."""
    fires = np.diff(ground(GRAPH, RULES, *grid()).indptr)
    most = np.argsort(-fires, kind="stable")[:5]
    users, items = (x[most] for x in grid())
    users, items = np.append(users, 4), np.append(items, min(owned(4)))
    assert len(set(users)) > 2
    assert (np.diff(users) < 0).any()
    return users, items


def strength(nodes: tuple[int, ...], relations: tuple[int, ...]) -> float:
    """The strength of one path, or of a walk that is no path."""
    product = 1.0
    for k, (h, r, t) in enumerate(zip(nodes, relations, nodes[1:], strict=False)):
        power = WALK.fact
        if k == 0 and len(relations) > 1:
            power = WALK.first
        elif r == 0:
            power = WALK.user
        elif r == GRAPH.inverse(0):
            power = WALK.item
        product *= len(GRAPH.neighbours(h, r)) ** -power
        if k == len(relations) - 1:
            arrive = WALK.popular if r == 0 else WALK.arrive
            product *= len(GRAPH.neighbours(t, GRAPH.inverse(r))) ** -arrive
    return product


def listed(user: int, k: int, of: Ranker | None = None) -> list[int]:
    scores = (of or ranker()).scores([user]).total[0]
    free = [v for v in range(GRAPH.n_items) if v not in owned(user)]
    return sorted(free, key=lambda v: (-scores[v], v))[:k]
