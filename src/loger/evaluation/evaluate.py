"""Recommenders × split → Report: the same users, candidates and metrics for everyone.

Protocols (METHOD 8): ``full`` ranks all items that the user is not known to have, and is the
one to quote. ``sampled-100`` ranks each user's held-out items among 100 uniform unobserved
items for each of them, as the paper's table almost surely does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl

from loger.data.splits import Part, Split
from loger.engine import Engine, Progress, silent
from loger.engine.files import atomic_file
from loger.errors import DataError, LogerError, UnknownNameError
from loger.graph import pair_keys
from loger.metrics import beyond, ranking
from loger.metrics.report import Report
from loger.recommender import (
    ChecksUnseen,
    EvaluatedPart,
    PairMatrix,
    Recommender,
    check_part,
    fit_for,
    pair_matrix,
    part_matrix,
    ranked,
)

Protocol = Literal["full", "sampled-100"]
SAMPLED = 100
"""Unobserved items for each held-out pair in ``sampled-100``."""


def evaluate(
    recommenders: Sequence[Recommender],
    split: Split,
    part: EvaluatedPart = "test",
    *,
    k: int = 10,
    protocol: Protocol = "full",
    candidates: Path | str | None = None,
    seed: int = 0,
    samples: int = 1000,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Report:
    """Measure recommenders on the users who have items in a part; nobody is dropped.

    A recommender that is not fitted yet is fitted first, on all that it may know (``fit_for``);
    one that is fitted is taken as it is. On test, train **and** validation items are left out
    of the lists, whatever the recommender was fitted on: when the test comes they are known.
    On validation, only train items are.

    ``candidates`` is the Parquet file of ``sampled-100``: read if it exists, else sampled and
    written, so that all methods, now and later, rank the same ones. ``samples`` is the number
    of bootstrap samples behind the intervals.
    """
    _check(recommenders, part, protocol, candidates)
    owners, items = split.pairs(part)
    if not len(owners):
        raise LogerError(f"{split.dataset.name} has no {part} pairs to evaluate on")
    for recommender in recommenders:
        if recommender.is_fitted and isinstance(recommender, ChecksUnseen):
            recommender.check_unseen(owners, items)
    users, rows, n_relevant = np.unique(owners, return_inverse=True, return_counts=True)
    before: tuple[Part, ...] = ("train", "validation") if part == "test" else ("train",)
    known = part_matrix(split, *before)
    among = None if protocol == "full" else sampled_candidates(split, part, candidates, seed)
    popularity = np.bincount(known.indices, minlength=split.dataset.n_items)
    own, kinds = known[users], beyond.item_kinds(split.dataset, popularity)
    values, coverage = {}, {}
    for recommender in recommenders:
        if not recommender.is_fitted:
            fit_for(recommender, split, part, progress=progress)
        lists = ranked(recommender, users, known, k, candidates=among, engine=engine)
        hits = ranking.hits(lists, rows, items)
        values[recommender.name] = {
            "ndcg": ranking.ndcg(hits, n_relevant),
            "recall": ranking.recall(hits, n_relevant),
            "hit_rate": ranking.hit_rate(hits),
            "precision": ranking.precision(hits),
            "ndcg_retrieved": ranking.ndcg_retrieved(hits),
            "mrr": ranking.reciprocal_rank(hits),
            "diversity": beyond.diversity(lists, known),
            "calibration": beyond.calibration(lists, own, kinds),
            "novelty": ranking.novelty(lists, popularity, split.dataset.n_users),
            "popularity_lift": beyond.popularity_lift(lists, own, popularity),
        }
        coverage[recommender.name] = ranking.coverage(lists, split.dataset.n_items)
    return Report(
        split.dataset.name, part, protocol, k, users, values, coverage, seed=seed, samples=samples
    )


def sampled_candidates(
    split: Split,
    part: EvaluatedPart,
    path: Path | str | None = None,
    seed: int = 0,
) -> PairMatrix:
    """Each user's items of a part and 100 unobserved items for each of them, united.

    Unobserved is what the user has in no part at all (METHOD L4). A file at ``path`` is read
    and must belong to this split; otherwise the candidates are sampled, and written there.
    """
    shape = (split.dataset.n_users, split.dataset.n_items)
    owners, items = split.pairs(part)
    if path is not None and Path(path).exists():
        return _read(Path(path), split, part)
    sampled = split.unobserved(owners, SAMPLED, seed)  # [pairs, 100]
    users = np.concatenate([owners, np.repeat(owners, SAMPLED)])
    out = pair_matrix(users, np.concatenate([items, sampled.ravel()]), shape)
    if path is not None:
        owner = np.repeat(np.arange(shape[0], dtype=np.int32), np.diff(out.indptr))
        relevant = pair_keys(owner, out.indices, shape[1])
        table = pl.DataFrame(
            {
                "user": owner,
                "item": out.indices.astype(np.int32),
                "relevant": np.isin(relevant, pair_keys(owners, items, shape[1])),
            }
        )
        with atomic_file(path) as file:
            table.write_parquet(file)
    return out


def _read(path: Path, split: Split, part: EvaluatedPart) -> PairMatrix:
    """Candidates from a file, refused unless they are of this very split and part."""
    try:
        table = pl.read_parquet(path, columns=["user", "item", "relevant"])
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"cannot be read as candidates ({str(error).splitlines()[0]})",
            path=path,
            remedy="delete it to resample",
        ) from None
    users, items = table["user"].to_numpy(), table["item"].to_numpy()
    relevant = table["relevant"].to_numpy()
    shape = (split.dataset.n_users, split.dataset.n_items)
    keys, events = pair_keys(users, items, shape[1]), split.dataset.interactions
    inside = (users >= 0) & (users < shape[0]) & (items >= 0) & (items < shape[1])
    observed = np.isin(keys, pair_keys(events.users, events.items, shape[1]))
    held = np.unique(pair_keys(*split.pairs(part), shape[1]))
    # What is relevant is just the part, and nothing else was ever observed (L4).
    fits = inside.all() and np.array_equal(np.unique(keys[relevant]), held)
    if not fits or observed[~relevant].any():
        raise DataError(
            f"holds candidates of another split, not of the {part} part of {split.dataset.name}",
            path=path,
            remedy="give the split they were sampled for, or another path",
        )
    return pair_matrix(users, items, shape)


def _check(
    recommenders: Sequence[Recommender], part: str, protocol: str, candidates: object
) -> None:
    """Refuse what cannot be evaluated, before work starts."""
    names = [recommender.name for recommender in recommenders]
    if not names or len(set(names)) < len(names):
        raise LogerError(f"evaluate needs recommenders with different names; got {names}")
    if part not in get_args(EvaluatedPart):
        raise UnknownNameError("part to evaluate on", part, get_args(EvaluatedPart))
    for recommender in recommenders:
        check_part(recommender, part)
    if protocol not in get_args(Protocol):
        raise UnknownNameError("protocol", protocol, get_args(Protocol))
    if candidates is not None and protocol == "full":
        raise LogerError("candidates need protocol 'sampled-100'; full ranking uses all items")
