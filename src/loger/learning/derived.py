"""Relations that a fit derives from the interactions: what follows what, what goes with what.

    followed_by   S_ij of ``SequenceRules``: people who took i took j soon after; needs times
    goes_with     B_ij of ``LocalSLIM``: how much i predicts j, given the user's other items

On small data, B can also be that of ``LinearIALS``, if validation prefers it. Both are weighted
facts between items, the strongest of each item. The rule (interaction, followed_by) then scores
like the sequence model, and (interaction, goes_with) like the linear model, with the exact share of
every single action. Validation chooses their settings. They are made from the training part alone,
and again with validation for the last fit, so no edge knows a held-out interaction (METHOD L1). An
interaction that helped to make them is never explained by them (L2, ``Relation.derived``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from loger.baselines._shared import LinearItems, largest_rows, ordered_events
from loger.baselines.sequence import SequenceRules, people_behind
from loger.baselines.slim import CANDIDATES, MOST, LocalSLIM
from loger.data.splits import Split
from loger.engine import Engine, Progress, silent
from loger.graph import INTERACTION, Derived, KnowledgeGraph, Relation
from loger.logic.config import DerivedConfig, FollowedByConfig, GoesWithConfig, Tried
from loger.metrics.grid_search import Tuned, search
from loger.recommender import PairMatrix, Recommender, part_matrix
from loger.rules import RuleSet, make_rule

FOLLOWED_BY_GRID: Mapping[str, Sequence[Any]] = {
    "recency": (1.0, 0.5, 2.0),
    "shrink": (300.0, 30.0, 3000.0),
    "popularity": (0.3, 0.0, 0.6),
    "window": (50, 5, 150),
    "distance": (0.25, 0.0, 1.0),
}
GOES_WITH_GRID: Mapping[str, Sequence[Any]] = {
    "recency": (0.5, 0.0, 1.0),
    "l2": (300.0, 30.0, 1000.0),
    "popularity": (0.0, 0.2, 0.4),
}
FACTORS_GRID: Mapping[str, Sequence[Any]] = {
    "recency": (0.5, 0.0, 1.0),
    "l2": (0.01, 0.003, 0.03),
    "unobserved": (0.03, 0.3),
    "popularity": (0.0, 0.2, 0.4),
}
"""Searched coarse to fine, one setting at a time: at most 26, 15 and 18 points, with 10, 5 and 7
fits on the training part; the other points only score ``USERS`` users again."""

USERS = 1000
"""Users on whom settings are compared."""
ENOUGH, FEWEST = 2_000_000, 200
"""The most facts of ``followed_by`` in all, unless an item then has fewer than this. On `ml1m`, 600
per item gain 0.31 ± 0.21 points of validation NDCG over 200, and 200 gain 1.01 ± 0.27 over 50."""
ENOUGH_LINEAR, FEWEST_LINEAR = 500_000, 50
"""The same for ``goes_with``. If items are few, each goes with many: on ml-100k without times, 300
per item gain 0.9 points of validation NDCG over 50."""
WHOLE = 4000
"""Up to this many items, each is regressed on all others, not only on the most similar ones. That
takes one dense inverse: a few seconds and 200 MB."""
FACTORS, FACTORED = 64, 300_000
"""Number of factors, and the most interactions (of up to ``WHOLE`` items) that are factorised. That
takes a few seconds. With more data, the encoder learns the same."""

Config = TypeVar("Config", FollowedByConfig, GoesWithConfig)


def choose(
    split: Split, config: DerivedConfig, seed: int = 0, engine: Engine | None = None
) -> tuple[DerivedConfig, list[Tried]]:
    """The settings that validation prefers for each relation on its own, and what was tried."""
    timed = split.dataset.interactions.times is not None
    followed_by, goes_with, tried = config.followed_by, config.goes_with, list[Tried]()
    if not timed:
        followed_by, goes_with = replace(followed_by, facts=0), replace(goes_with, recency=0.0)
    if config.tune and followed_by.facts:
        order = _searched(_sequence, followed_by, FOLLOWED_BY_GRID, split, seed, engine)
        followed_by = replace(followed_by, **order.settings)
        tried += _trials("followed_by", order)
    if config.tune and goes_with.facts:
        found = _goes_with_searched(goes_with, split, seed, engine)
        goes_with = max(found, key=lambda pair: pair[1].value)[0]
        for settings, trials in found:
            by = "by factors, " if settings.factors else ""
            tried += _trials("goes_with", trials, by)
    return replace(config, followed_by=followed_by, goes_with=goes_with), tried


def _goes_with_searched(
    start: GoesWithConfig, split: Split, seed: int, engine: Engine | None
) -> list[tuple[GoesWithConfig, Tuned]]:
    """The best settings of a regression and, if that is cheap, of factors."""
    n_items = split.dataset.n_items
    timed = split.dataset.interactions.times is not None
    begun = [(start, GOES_WITH_GRID)]
    if n_items <= WHOLE and len(split.train) <= FACTORED:
        begun.append((replace(start, factors=FACTORS), FACTORS_GRID))
    out = []
    for settings, points in begun:
        grid = {name: values for name, values in points.items() if timed or name != "recency"}
        make = partial(_linear, n_items=n_items)
        found = _searched(make, settings, grid, split, seed, engine)
        out.append((replace(settings, **found.settings), found))
    return out


def _searched(
    make: Any,
    start: Config,
    grid: Mapping[str, Sequence[Any]],
    split: Split,
    seed: int,
    engine: Engine | None,
) -> Tuned:
    """The best point of a grid for a recommender that ``make`` makes from settings."""
    fixed = {name: value for name, value in asdict(start).items() if name not in grid}

    def made(**point: Any) -> Recommender:
        recommender: Recommender = make(type(start)(**fixed, **point))
        return recommender

    return search(made, grid, split, users=USERS, sweeps=1, seed=seed, engine=engine)


def _trials(name: str, found: Tuned, by: str = "") -> list[Tried]:
    """Each trial, with its settings as text."""
    return [
        (name, by + ", ".join(f"{k} {v:g}" for k, v in point.items()), value)
        for point, value in found.trials
    ]


def _sequence(config: FollowedByConfig) -> SequenceRules:
    return SequenceRules(**{k: v for k, v in asdict(config).items() if k != "facts"})


def _linear(config: GoesWithConfig, n_items: int) -> LinearItems:
    settings: dict[str, Any] = {
        "l2": config.l2,
        "recency": config.recency,
        "popularity": config.popularity,
        "neighbours": min(config.facts, max(FEWEST_LINEAR, ENOUGH_LINEAR // max(n_items, 1))),
    }
    if config.factors:
        from loger.baselines.ials import LinearIALS  # imports PyTorch

        return LinearIALS(dimensions=config.factors, unobserved=config.unobserved, **settings)
    return LocalSLIM(**settings, candidates=n_items if n_items <= WHOLE else CANDIDATES)


# ── the relations ───────────────────────────────────────────────────────────────────────


def derive(split: Split, config: DerivedConfig, progress: Progress = silent) -> KnowledgeGraph:
    """The training graph of a split with the relations derived from its interactions."""
    graph, more = split.graph, list[Derived]()
    if config.followed_by.facts and graph.times is not None:
        more.append(_followed_by(split, config.followed_by, progress))
    if config.goes_with.facts:
        more.append(_goes_with(split, config.goes_with, progress))
    taken = {r.name for r in graph.relations}
    return graph.with_derived([_named(d, taken) for d in more if len(d.heads)])


def derived_rules(graph: KnowledgeGraph) -> RuleSet:
    """The rule (interaction, relation) for each derived relation."""
    places = [k for k, r in enumerate(graph.relations) if r.derived]
    return RuleSet(tuple(make_rule(graph, (INTERACTION, k)) for k in places))


def _followed_by(split: Split, config: FollowedByConfig, progress: Progress) -> Derived:
    """S of ``SequenceRules``, and how many users have i, and j with it or up to W places later,
    where interactions at the same time are in any order."""
    model = _sequence(config).fit(split, progress=progress)
    counts = model.counts_.copy()
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    into = np.where(model.in_ > 0, model.in_, 1.0) ** -config.popularity
    factors = into[counts.indices] / (model.out_ + config.shrink)[rows]
    counts.data = (counts.data * factors / factors.max(initial=1e-300)).astype(np.float32)
    most = min(config.facts, max(FEWEST, ENOUGH // max(len(model.out_), 1)))
    strongest = largest_rows(counts, most)
    people = people_behind(
        strongest.indptr, strongest.indices, *ordered_events(split), config.window
    )
    relation = Relation("followed_by", "item", "item", True, config.recency, config.window)
    return _facts(relation, strongest, people)


def _goes_with(split: Split, config: GoesWithConfig, progress: Progress) -> Derived:
    """B of the linear model, and how many users have both i and j."""
    model = _linear(config, split.dataset.n_items).fit(split, progress=progress)
    weights = model.weights_.copy()
    weights.data *= model.counts_[weights.indices] ** np.float32(-config.popularity)
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    people = _people_with(part_matrix(split, "train"), rows, weights.indices)
    timed = split.dataset.interactions.times is not None
    recency = config.recency if timed else None
    relation = Relation("goes_with", "item", "item", True, recency)
    return _facts(relation, weights, people)


def _people_with(
    seen: PairMatrix, ones: NDArray[np.int64], others: NDArray[np.int32]
) -> NDArray[np.int64]:
    """How many users have both items of each pair.

    Users with very many items are counted one by one, because all pairs of their items would be too
    many.
    """
    sizes = np.diff(seen.indptr)
    few = (
        seen if sizes.max(initial=0) <= MOST else sp.csr_array(seen[np.flatnonzero(sizes <= MOST)])
    )
    both = sp.csr_array(few.T @ few)
    people = np.asarray(both[ones, others]).ravel().astype(np.int64)
    for user in np.flatnonzero(sizes > MOST):
        has = np.zeros(seen.shape[1], dtype=bool)
        has[seen.indices[seen.indptr[user] : seen.indptr[user + 1]]] = True
        people += has[ones] & has[others]
    return people


def _facts(relation: Relation, weights: PairMatrix, people: NDArray[np.int64]) -> Derived:
    """The entries of a matrix as facts, relative to the largest."""
    heads = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    values = weights.data / weights.data.max(initial=1e-300)
    kept = values > 0
    return Derived(relation, heads[kept], weights.indices[kept], values[kept], people[kept])


def _named(derived: Derived, taken: set[str]) -> Derived:
    """The relation under a name that the data doesn't use."""
    relation = derived.relation
    while relation.name in taken:
        relation = replace(relation, name=f"{relation.name}[learned]")
    return derived._replace(relation=relation)
