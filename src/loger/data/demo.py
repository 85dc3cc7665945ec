"""A small invented shop whose purchases follow planted rules, so that the true reasons are known.

Every user belongs to a group that shops by one rule of ``PLANTED``: after a few seed purchases,
the next is the end of random walks along that rule through what is known at that moment or,
with probability ``noise``, just something popular. Random walks prefer few and specific links
to many vague ones, as the ``walk`` feature of METHOD §5 does.

Variants make the true reasons harder to find (``Variant``). In the plain shop
the catalogue keeps the rules apart: brands, categories, features and links are drawn apart
from each other and, as in real catalogues, are not known for every item. The rule (purchase,
purchase⁻¹, purchase) is not planted: with ten purchases per user it reaches three quarters of
a shop of this size, and mining should drop it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.assemble import assemble
from loger.data.dataset import Dataset
from loger.errors import LogerError
from loger.graph import INVERSE_MARK

PLANTED: tuple[tuple[str, ...], ...] = (
    ("purchase", "has_brand", f"has_brand{INVERSE_MARK}"),
    ("mentions", f"has_feature{INVERSE_MARK}"),
    ("purchase", "also_bought"),
    ("follows", "purchase"),
    ("purchase", "has_category", f"has_category{INVERSE_MARK}"),
)
"""The rules that cause purchases, one for each group of users."""

Variant = Literal["plain", "causes", "hubs", "distractors", "popularity"]
"""What makes reasons hard to tell apart: ``causes``, users shop by two rules at once, their group's
and categories (or brands); ``hubs``, a third of all items share one brand, or one category, and
everybody who follows somebody follows the same person; ``distractors``, facts that cause nothing
go with those that do (sellers with brands, what is viewed together with what is bought together);
``popularity``, what a rule leads to is bought the more the more popular it is."""

BRAND, FEATURE, BUNDLE, SOCIAL, CATEGORY = range(len(PLANTED))
SEEDS = 3
"""How many purchases each user makes before the rule of the group sets in."""

# Sizes by trial: each planted rule reaches 1 to 3.5 % of all pairs, with lift about 5 or more.
# Wide detours to the same purchases, as (follows, follows⁻¹, purchase), have lift below 2; the
# narrow ones that mining keeps, as (purchase, also_bought⁻¹), score half as much or less.
_KNOWN, _SIZE = 0.4, 5  # share of items with a known brand, or category; items in each
_TRAITS, _LISTED = 2, 0.6  # features of an item; share that the catalogue tells after the first
_PARTS = 6  # accessories of a main item
_KEEN, _TALK = 0.9, 0.16  # how often feature-driven users, and others, write a review
_ASIDE = 0.1  # how often a review mentions another of the item's features
_WALKS = 10  # walks before a choice: the more, the more alike are the choices
_ALIKE = 0.8  # how often a distracting fact says what the true one says
_TYPES = {
    "has_brand": ("item", "brand"),
    "has_category": ("item", "category"),
    "part_of": ("category", "department"),
    "has_feature": ("item", "feature"),
    "also_bought": ("item", "item"),
    "also_viewed": ("item", "item"),
    "has_seller": ("item", "seller"),
    "follows": ("user", "user"),
    "mentions": ("user", "feature"),
}
_FIRST = "Ada Bela Cleo Dora Egon Fela Hanna Ivo Jara Lotte Milo Nelly Ole Pia Rosa Sami Vera Zeno"
_LAST = "Am Bir Cor Dun Els Far Gil Hol Jor Kes Lan Mor", "bry den dal gate kin mere low rell ton"
_LOOKS = "Amber Ashen Brass Cedar Cobalt Coral Cream Ebony Indigo Ivory Jade Maple Olive Slate Teal"
_DEPARTMENTS = "kitchen garden travel office winter workshop picnic nursery"
_NOUNS = "lamp basket kettle blanket bottle mirror stool tray clock apron bucket cushion hook rack"
_BRANDS = (
    "Bel Dal Fen Gar Hul Kel Lum Nor Pel Ros Vel",
    "adan bora ento fara ika kemo lund nova vik",
)
_FEATURES = (
    "sturdy smooth light quiet wide soft warm hidden sharp round tight flat",
    "handle lid base lining strap frame surface edge hinge seal",
)


@dataclass(frozen=True, eq=False)
class Demo:
    """The shop's data and, row by row of its interactions, what caused them."""

    dataset: Dataset
    causes: NDArray[np.int8]
    """Per interaction the rule, as an index into ``planted``; -1 for seeds and noise."""
    paths: tuple[tuple[int, ...], ...]
    """Per interaction the entities of the causing path, user to item; empty without cause."""
    groups: NDArray[np.int8]
    """Per user the rule of the user's group, as an index into ``planted``."""
    planted: tuple[tuple[str, ...], ...] = PLANTED


def shop(
    seed: int = 0,
    *,
    users: int = 600,
    items: int = 400,
    noise: float = 0.15,
    variant: Variant = "plain",
) -> Demo:
    """Invent a shop and a year of purchases in it; the same seed gives the same bytes.

    ``noise`` is the share of later purchases without a rule; dead ends add one in a hundred.
    ``variant`` makes the causes harder to find.

    >>> shop(users=60, items=100).planted[2]
    ('purchase', 'also_bought')
    """
    if users < 30 or items < 60:
        raise LogerError(f"a shop needs at least 30 users and 60 items, got {users} and {items}")
    if not 0 <= noise < 1:
        raise LogerError(f"noise must be a share in [0, 1), got {noise!r}")
    if variant not in get_args(Variant):
        raise LogerError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}")
    streams = [np.random.default_rng([seed, k]) for k in range(2)]
    groups = (np.arange(users) % len(PLANTED)).astype(np.int8)
    people = _paired(_FIRST, " ".join(_paired(*_LAST, between="")))
    town = _Town(_names(streams[0], people, users), groups, variant)
    _catalogue(town, streams[0], items)
    _bundles(town, streams[0])
    _following(town, streams[0])
    if variant == "distractors":
        _distractors(town, np.random.default_rng([seed, 2]))
    _year(town, streams[1], noise)
    return _demo(town)


@dataclass
class _Town:
    """Everything that is known so far; nodes are names, which are unique across types."""

    users: list[str]
    groups: NDArray[np.int8]
    variant: Variant = "plain"
    items: list[str] = field(default_factory=list)
    traits: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    facts: list[tuple[str, str, str, int | None]] = field(default_factory=list)
    links: defaultdict[tuple[str, str], dict[str, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # (node, relation) → neighbours, in the order in which they became known
    bought: list[tuple[str, str, int]] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)

    def place(self, k: int, n: int) -> int:
        """To which of n the k-th belongs: to all evenly or, with hubs, each third to the first."""
        return 0 if self.variant == "hubs" and k % 3 == 0 else k % n

    def know(self, head: str, relation: str, tail: str, source: int | None = None) -> None:
        """Add a fact, known from an interaction or simply known."""
        self.facts.append((head, relation, tail, source))
        self.link(head, relation, tail)

    def link(self, head: str, relation: str, tail: str) -> None:
        """Make a fact walkable in both directions."""
        self.links[head, relation][tail] = None
        self.links[tail, relation + INVERSE_MARK][head] = None


def _catalogue(town: _Town, rng: np.random.Generator, n: int) -> None:
    """Items with brand, category, features and links, each drawn apart from the others."""
    filed = round(_KNOWN * n)
    kinds = _names(rng, _paired(_DEPARTMENTS, _NOUNS), filed // _SIZE)
    rows = n // len(kinds) + 1
    looks = [_names(rng, [f"{w} {kind}" for w in _LOOKS.split()], rows) for kind in kinds]
    named = [looks[k % len(kinds)][k // len(kinds)] for k in range(n)]
    town.items = [named[k] for k in rng.permutation(n)]
    for kind in kinds:
        town.know(f"{kind}s", "part_of", kind.split()[0])
    for k, item in enumerate(named[:filed]):
        town.know(item, "has_category", f"{kinds[town.place(k, len(kinds))]}s")
    brands = _names(rng, _paired(*_BRANDS, between=""), filed // _SIZE)
    for k, i in enumerate(rng.permutation(n)[:filed]):
        town.know(town.items[i], "has_brand", brands[town.place(k, len(brands))])
    features = _names(rng, _paired(*_FEATURES), n // _SIZE)
    for item, traits in zip(town.items, _dealt(rng, features, n, _TRAITS), strict=True):
        town.traits[item] = traits
        for k, feature in enumerate(traits):
            if k == 0 or rng.random() < _LISTED:
                town.know(item, "has_feature", feature)


def _bundles(town: _Town, rng: np.random.Generator) -> None:
    """A fifth of the items come with accessories, which serve several such items each."""
    order = [town.items[k] for k in rng.permutation(len(town.items))]
    n = len(order) // 5
    for main, others in zip(order[:n], _dealt(rng, order[n : 2 * n], n, _PARTS), strict=True):
        for other in others:
            town.know(main, "also_bought", other)


def _following(town: _Town, rng: np.random.Generator) -> None:
    """Social users follow three of a few trendsetters from the other groups."""
    others = np.flatnonzero(town.groups != SOCIAL)
    setters = rng.choice(others, size=max(6, len(town.users) // 30), replace=False)
    for user in np.flatnonzero(town.groups == SOCIAL):
        followed = rng.choice(setters, size=3, replace=False)
        if town.variant == "hubs" and setters[0] not in followed:
            followed[0] = setters[0]
        for setter in followed:
            town.know(town.users[user], "follows", town.users[setter])


def _distractors(town: _Town, rng: np.random.Generator) -> None:
    """Facts that cause nothing: most repeat what a true one states, the others are random."""
    brands = sorted({tail for _, relation, tail, _ in town.facts if relation == "has_brand"})
    for head, relation, tail, _ in tuple(town.facts):
        alike = rng.random() < _ALIKE
        if relation == "has_brand":
            brand = tail if alike else brands[int(rng.integers(len(brands)))]
            town.know(head, "has_seller", f"{brand} store")
        elif relation == "also_bought":
            other = tail if alike else town.items[int(rng.integers(len(town.items)))]
            if other != head:
                town.know(head, "also_viewed", other)


def _year(town: _Town, rng: np.random.Generator, noise: float) -> None:
    """Purchases of all users in the order of time, each with its review."""
    # Main items are expensive and sell less, but accessories are bought for them.
    sells = [0.5 if town.links[v, "also_bought"] else 1.0 for v in town.items]
    popular = rng.lognormal(sigma=0.7, size=len(town.items)) * sells
    seeding = _seeding(town, popular)
    weights = (
        dict(zip(town.items, popular.tolist(), strict=True)) if town.variant == "popularity" else {}
    )
    last = 0
    for when, user, early in _calendar(town, rng):
        name, group = town.users[user], int(town.groups[user])
        ruled = not early and rng.random() >= noise
        second = BRAND if group == CATEGORY else CATEGORY
        rules = (group, second) if town.variant == "causes" else (group,)
        cause, path = _choice(town, rng, name, rules, weights) if ruled else (-1, ())
        item = path[-1] if path else _drawn(town, rng, seeding[group] if early else popular, name)
        last = max(last + 1, when)
        # Feature-driven users tell what they came for, and their first review starts it.
        keen = group == FEATURE and (cause == FEATURE or not town.links[name, "mentions"])
        _review(town, rng, name, item, keen=keen, interest=path[1:2] if keen else ())
        town.bought.append((name, item, last))
        town.link(name, "purchase", item)
        town.causes.append(cause)
        town.paths.append(path)


def _calendar(town: _Town, rng: np.random.Generator) -> list[tuple[int, int, bool]]:
    """(second, user, whether it is a seed) of all purchases to come, sorted."""
    start, day = 1_704_067_200, 86_400  # 2024-01-01
    interactions = []
    for user, group in enumerate(town.groups):
        # Who follows others comes after they have begun and is done before their last buys.
        first, end = (60, 220) if group == SOCIAL else (0, 366)
        days = np.sort(rng.uniform(first, end, size=rng.integers(8, 16)))
        interactions += [(start + int(at * day), user, k < SEEDS) for k, at in enumerate(days)]
    return sorted(interactions)


def _choice(
    town: _Town,
    rng: np.random.Generator,
    user: str,
    rules: Sequence[int],
    weights: Mapping[str, float],
) -> tuple[int, tuple[str, ...]]:
    """Of a few random walks along rules in turn the first to the item that most of them end in,
    with its rule; -1 and () if none ends."""
    turns = [rules[k % len(rules)] for k in range(_WALKS)]
    walks = [(rule, _walk(town, rng, user, PLANTED[rule], weights)) for rule in turns]
    walks = [(rule, path) for rule, path in walks if path]
    ends = Counter(path[-1] for _, path in walks)
    return max(walks, key=lambda walk: ends[walk[1][-1]], default=(-1, ()))


def _walk(
    town: _Town,
    rng: np.random.Generator,
    user: str,
    rule: Sequence[str],
    weights: Mapping[str, float],
) -> tuple[str, ...]:
    """A random simple path along the rule to an item that the user has not; () at a dead end.
    Its last hop is even, or by the weights of items if there are any."""
    owned = town.links[user, "purchase"]
    path = [user]
    for hop, relation in enumerate(rule, start=1):
        taken = path if hop < len(rule) else owned
        choice = [n for n in town.links[path[-1], relation] if n not in taken]
        if not choice:
            return ()
        if weights and hop == len(rule):
            sums = np.cumsum([weights[n] for n in choice])
            path.append(choice[int(np.searchsorted(sums, rng.random() * sums[-1], "right"))])
        else:
            path.append(choice[int(rng.random() * len(choice))])
    return tuple(path)


def _seeding(town: _Town, popular: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Per group the weights of seed purchases: popular things that its rule can set out from."""
    return [
        popular * [rule[0] != "purchase" or bool(town.links[v, rule[1]]) for v in town.items]
        for rule in PLANTED
    ]


def _drawn(town: _Town, rng: np.random.Generator, weights: NDArray[np.float64], user: str) -> str:
    """An item by weight that the user has not."""
    owned = town.links[user, "purchase"]
    w = weights * [v not in owned for v in town.items]
    return town.items[int(rng.choice(len(w), p=w / w.sum()))]


def _review(
    town: _Town, rng: np.random.Generator, user: str, item: str, keen: bool, interest: Sequence[str]
) -> None:
    """Sometimes a review with one or two of the item's features; it is the source of its facts."""
    if rng.random() >= (_KEEN if keen else _TALK):
        return
    traits = town.traits[item]
    first = interest[0] if interest else traits[int(rng.random() * len(traits))]
    for feature in (first, *(f for f in traits if f != first and rng.random() < _ASIDE)):
        town.know(user, "mentions", feature, source=len(town.bought))
        town.know(item, "has_feature", feature, source=len(town.bought))


def _demo(town: _Town) -> Demo:
    """The town's year as a data set, names become numbers."""
    bought = pl.DataFrame(town.bought, schema=["user", "item", "time"], orient="row")
    columns = {"head": pl.String, "relation": pl.String, "tail": pl.String, "source": pl.Int64}
    facts = pl.DataFrame(town.facts, schema=columns, orient="row").with_columns(
        pl.col("relation").replace_strict({r: t[side] for r, t in _TYPES.items()}).alias(column)
        for side, column in enumerate(("head_type", "tail_type"))
    )
    name = "demo shop" if town.variant == "plain" else f"demo shop, {town.variant}"
    dataset = assemble(
        name, bought, facts, interaction="purchase", users=town.users, items=town.items
    )
    number = {name: k for k, name in enumerate(dataset.vocabulary.names)}
    return Demo(
        dataset=dataset,
        causes=np.array(town.causes, dtype=np.int8),
        paths=tuple(tuple(number[name] for name in path) for path in town.paths),
        groups=town.groups,
    )


def _paired(first: str, second: str, between: str = " ") -> list[str]:
    """Every word of the first list with every word of the second."""
    return [between.join(pair) for pair in product(first.split(), second.split())]


def _names(rng: np.random.Generator, pool: Sequence[str], n: int) -> list[str]:
    """n different names in any order; numbered from the second round through the pool on."""
    order, size = rng.permutation(len(pool)), len(pool)
    return [pool[order[k % size]] + (f" {k // size + 1}" if k >= size else "") for k in range(n)]


def _dealt(rng: np.random.Generator, values: Sequence[str], n: int, each: int) -> list[list[str]]:
    """n hands of ``each`` different values (fewer where one came twice), dealt evenly."""
    decks = [rng.permutation(n) % len(values) for _ in range(each)]
    return [list(dict.fromkeys(values[k] for k in hand)) for hand in zip(*decks, strict=True)]
