"""Ten invented worlds with known structure: what a recommender could find, and what it couldn't.

Each item belongs to a kind and has a successor. A user likes a few kinds. The next item is the
successor of the last one, an item of a liked kind, or a popular item, with the probabilities that
the world defines. Facts state an item's kind, or say nothing, or lie.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from loger.data import Dataset, from_frames


@dataclass(frozen=True)
class World:
    """What the interactions follow, and what the facts tell."""

    users: int = 1200
    items: int = 800
    length: int = 9
    """Interactions of a user, on average."""
    kinds: int = 60
    tastes: int = 2
    """Kinds that a user likes."""
    by_kind: float = 0.7
    by_order: float = 0.0
    """The rest goes by popularity."""
    timed: bool = False
    truth: bool = True
    """Whether facts tell an item's kind; else they are drawn at random."""
    noise: int = 0
    """Random facts for each true one."""
    hub: bool = False
    """Whether every item also shares one fact with all others."""
    user_facts: bool = False
    """Whether the kinds that a user likes are told of the user, too."""
    cold: float = 0.0
    """Share of items that are taken a tenth as often as others of their kind."""


WORLDS = {
    "sparse, useful facts": World(),
    "sparse, useless facts": World(truth=False),
    "sparse, ten lies for each fact": World(noise=10),
    "sparse, with order": World(by_order=0.45, by_kind=0.4, timed=True),
    "sparse, facts of users": World(user_facts=True, length=6),
    "sparse, a hub": World(hub=True),
    "sparse, cold items": World(cold=0.5, items=1200),
    "dense, useful facts": World(users=600, items=400, length=40, kinds=12, by_kind=0.6),
    "dense, with order": World(
        users=600, items=400, length=40, kinds=12, by_kind=0.3, by_order=0.4, timed=True
    ),
    "popularity alone": World(by_kind=0.0, truth=False),
}


def made(name: str, seed: int = 0) -> Dataset:
    """The data set of a world; the same seed gives the same one."""
    world = WORLDS[name]
    rng = np.random.default_rng([seed, list(WORLDS).index(name)])
    kinds = rng.integers(world.kinds, size=world.items)
    popularity = (np.arange(world.items) + 5.0) ** -0.7
    popularity[rng.random(world.items) < world.cold] *= 0.1
    following = rng.permutation(world.items)
    likes = np.array([rng.choice(world.kinds, world.tastes, False) for _ in range(world.users)])
    rows = []
    for user in range(world.users):
        liked = popularity * np.isin(kinds, likes[user])
        for time, item in enumerate(_taken(world, rng, liked, popularity, following)):
            rows.append((f"u{user}", f"i{item}", time))
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    told = kinds if world.truth else rng.permutation(kinds)
    facts = _facts(world, rng, told, likes)
    catalogue = pl.DataFrame({"id": [f"i{item}" for item in range(world.items)]})
    events = table if world.timed else table.drop("time")
    return from_frames(events, facts, items=catalogue, name=name)


def _taken(
    world: World,
    rng: np.random.Generator,
    liked: np.ndarray,
    popularity: np.ndarray,
    following: np.ndarray,
) -> list[int]:
    """The items of one user, one after another, each once."""
    have, wanted = list[int](), max(4, int(rng.poisson(world.length)))
    for _ in range(4 * wanted):
        way = rng.random()
        if have and way < world.by_order:
            item = int(following[have[-1]])
        else:
            odds = liked if way < world.by_order + world.by_kind and liked.any() else popularity
            item = int(rng.choice(world.items, p=odds / odds.sum()))
        if item not in have:
            have.append(item)
        if len(have) == wanted:
            break
    return have


def _facts(
    world: World, rng: np.random.Generator, kinds: np.ndarray, likes: np.ndarray
) -> pl.DataFrame:
    rows = [(f"i{i}", "is_a", f"kind {k}", "item", "kind") for i, k in enumerate(kinds)]
    for item in range(world.items if world.noise else 0):
        lies = rng.choice(world.kinds, size=min(world.noise, world.kinds - 1), replace=False)
        rows += [(f"i{item}", "is_a", f"kind {k}", "item", "kind") for k in lies]
    if world.hub:
        rows += [(f"i{i}", "sold_in", "the shop", "item", "place") for i in range(world.items)]
    if world.user_facts:
        rows += [
            (f"u{u}", "likes", f"kind {k}", "user", "kind")
            for u, own in enumerate(likes)
            for k in own
        ]
    columns = ["head", "relation", "tail", "head_type", "tail_type"]
    return pl.DataFrame(rows, schema=columns, orient="row").unique(maintain_order=True)
