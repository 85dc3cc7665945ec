"""A graph with the size and skew of the paper's Cellphones set (METHOD 10), generated from a seed.

61,254 users, 47,604 items, 607,673 purchases, 169,331 entities, 45 relations and about 3.1M
triples. Popularity follows a power law for items and a steeper one for features, so there are hubs
with tens of thousands of neighbours. Users have tastes (features of one brand), so groundings
aren't spread evenly.
"""

from __future__ import annotations

import numpy as np

from loger.graph import KnowledgeGraph, Relation, Vocabulary

USERS, ITEMS, PURCHASES = 61_254, 47_604, 607_673
FEATURES, RELATED, BRANDS, CATEGORIES, PRICES, STYLES = 40_000, 12_000, 3_000, 473, 500, 250
STYLE_KINDS = 18


def _popular(
    rng: np.random.Generator, order: np.ndarray, size: int, skew: float, head: float
) -> np.ndarray:
    """Draws from an order of entities with probability ∝ (rank + head)^-skew."""
    weights = (np.arange(len(order)) + head) ** -skew
    ends = np.cumsum(weights) / weights.sum()
    return order[np.searchsorted(ends, rng.random(size))]


def cellphones(scale: float = 1.0, seed: int = 0, larger_hubs: bool = False) -> KnowledgeGraph:
    """The graph at a multiple of the size: more entities and as many more triples.

    Degrees stay as they are, so that there are more hubs; with ``larger_hubs`` the hubs have
    more neighbours instead, and the groundings grow faster than the graph.
    """
    head = 10.0 if larger_hubs else 10.0 * scale
    rng = np.random.default_rng([seed, int(scale * 1000)])
    sizes = {
        "user": USERS, "item": ITEMS, "feature": FEATURES, "related": RELATED,
        "brand": BRANDS, "category": CATEGORIES, "price": PRICES,
    } | {f"style{k}": STYLES for k in range(STYLE_KINDS)}  # fmt: skip
    sizes = {t: max(2, int(n * scale)) for t, n in sizes.items()}
    names = Vocabulary({t: [f"{t}{k}" for k in range(n)] for t, n in sizes.items()})
    relations: list[Relation] = []
    parts: list[np.ndarray] = []

    def add(name: str, head: str, tail: str, heads: np.ndarray, tails: np.ndarray) -> None:
        h, t = heads + names.span(head).start, tails + names.span(tail).start
        kept = h != t
        parts.append(np.stack([h, np.full(len(h), len(relations)), t])[:, kept])
        relations.append(Relation(name, head, tail))

    # One order of popularity per type: what many users mention, many items have.
    order = {t: rng.permutation(n) for t, n in sizes.items()}

    def some(kind: str, thousands: float, skew: float = 0.0) -> np.ndarray:
        """So many × scale draws of one type, by popularity."""
        return _popular(rng, order[kind], int(thousands * 1000 * scale), skew, head)

    # Each user buys once, the rest by activity; repetitions fall away.
    buyers = np.concatenate([np.arange(sizes["user"]), some("user", 560, 0.35)])
    bought = _popular(rng, order["item"], len(buyers), 0.8, head)
    add("purchase", "user", "item", buyers, bought)
    add("mentions", "user", "feature", some("user", 1010, 0.35), some("feature", 1010, 1.05))
    add("has_feature", "item", "feature", some("item", 540, 0.4), some("feature", 540, 1.05))
    add("also_buy", "item", "item", some("item", 240, 0.3), some("item", 240, 0.5))
    add("also_view", "item", "item", some("item", 120, 0.3), some("item", 120, 0.5))
    add("also_buy_other", "item", "related", some("item", 60, 0.3), some("related", 60, 0.5))
    every = np.arange(sizes["item"])
    add("has_brand", "item", "brand", every, _popular(rng, order["brand"], len(every), 0.9, head))
    add("has_price", "item", "price", every, rng.integers(sizes["price"], size=len(every)))
    add("has_category", "item", "category", some("item", 190), some("category", 190, 1.0))
    for k in range(STYLE_KINDS):
        kind = f"style{k}"
        add(f"has_style::{k}", "item", kind, some("item", 7), some(kind, 7, 0.9))
        add(f"like_style::{k}", "user", kind, some("user", 8), some(kind, 8, 0.9))
    return KnowledgeGraph.from_triples(names, relations, *np.concatenate(parts, axis=1))
