"""Recommenders × split → Report: the same users, candidates and metrics for everyone.

Protocols (METHOD 8): ``full`` ranks all items that the user is not known to have, and is the
one to quote. ``sampled-100`` ranks each user's held-out items among 100 uniform unobserved
items for each of them, as the paper's table almost certainly does.

``FitRecord`` notes in a bundle's manifest what it was fitted on, so that evaluation holds out the
same interactions. Only commands need it: ``LOGER.save`` writes bundles without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from loger.data.dataset import Dataset
from loger.data.splits import Part, Split, split
from loger.engine import Engine, Progress, silent
from loger.engine.files import MANIFEST, read_manifest
from loger.errors import DataError, LogerError, UnknownNameError
from loger.graph import whole
from loger.metrics import ranking
from loger.metrics.report import Report
from loger.model import LOGER
from loger.recommender import (
    EvaluatedPart,
    PairMatrix,
    Recommender,
    check_part,
    fit_for,
    pair_matrix,
    part_matrix,
    ranked,
)
from loger.store.bundle import MODEL

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
    candidates: PairMatrix | None = None,
    seed: int = 0,
    samples: int = 1000,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Report:
    """Measure recommenders on all users who have items in a part.

    A recommender that isn't fitted yet is fitted first, on everything it may know (``fit_for``);
    a fitted one is used as it is. For test, lists leave out train **and** validation items,
    whatever the recommender was fitted on, because both are known by then. For validation, they
    leave out train items.

    Args:
        recommenders: the methods to compare, with different names.
        split: the data.
        part: the part to evaluate on.
        k: length of the lists.
        protocol: ``full`` or ``sampled-100``.
        candidates: the pairs to rank in ``sampled-100``, as a sparse users × items matrix of ones;
            by default they are drawn by ``seed``.
        seed: of the candidates and of the bootstrap.
        samples: number of bootstrap samples behind the intervals.
        engine: where to run.
        progress: receives how far fits are.
    """
    _check(recommenders, part, protocol, candidates)
    owners, items = split.pairs(part)
    if not len(owners):
        raise LogerError(f"{split.dataset.name} has no {part} pairs to evaluate on")
    for recommender in recommenders:
        if recommender.is_fitted and isinstance(recommender, LOGER):
            recommender.check_unseen(owners, items)
    users, rows, n_relevant = np.unique(owners, return_inverse=True, return_counts=True)
    before: tuple[Part, ...] = ("train", "validation") if part == "test" else ("train",)
    known = part_matrix(split, *before)
    if candidates is not None:
        _check_candidates(candidates, split, part)
    elif protocol == "sampled-100":
        candidates = sampled_candidates(split, part, seed)
    popularity = np.bincount(known.indices, minlength=split.dataset.n_items)
    own, kinds = known[users], ranking.item_kinds(split.dataset, popularity)
    values, coverage = {}, {}
    for recommender in recommenders:
        if not recommender.is_fitted:
            fit_for(recommender, split, part, progress=progress)
        lists = ranked(recommender, users, known, k, candidates=candidates, engine=engine)
        hits = ranking.hits(lists, rows, items)
        values[recommender.name] = {
            "ndcg": ranking.ndcg(hits, n_relevant),
            "recall": ranking.recall(hits, n_relevant),
            "hit_rate": ranking.hit_rate(hits),
            "precision": ranking.precision(hits),
            "ndcg_retrieved": ranking.ndcg_retrieved(hits),
            "mrr": ranking.reciprocal_rank(hits),
            "diversity": ranking.diversity(lists, known),
            "calibration": ranking.calibration(lists, own, kinds),
            "novelty": ranking.novelty(lists, popularity, split.dataset.n_users),
            "popularity_lift": ranking.popularity_lift(lists, own, popularity),
        }
        coverage[recommender.name] = ranking.coverage(lists, split.dataset.n_items)
    return Report(
        split.dataset.name, part, protocol, k, users, values, coverage, seed=seed, samples=samples
    )


def sampled_candidates(split: Split, part: EvaluatedPart, seed: int = 0) -> PairMatrix:
    """Each user's items of a part, and 100 unobserved items for each of them.

    An unobserved item is in no part for that user (METHOD L4).
    """
    owners, items = split.pairs(part)
    sampled = split.unobserved(owners, SAMPLED, seed)  # [pairs, 100]
    users = np.concatenate([owners, np.repeat(owners, SAMPLED)])
    shape = (split.dataset.n_users, split.dataset.n_items)
    return pair_matrix(users, np.concatenate([items, sampled.ravel()]), shape)


def _check_candidates(candidates: PairMatrix, split: Split, part: EvaluatedPart) -> None:
    """Raise an error unless candidates are the part and pairs that were never observed (L4)."""
    held, events = part_matrix(split, part), split.dataset.interactions
    observed = pair_matrix(events.users, events.items, held.shape)
    if candidates.shape != held.shape or (candidates.multiply(observed) - held).count_nonzero():
        raise LogerError(
            f"candidates must include all {part} pairs of {split.dataset.name}, and all "
            "others must be pairs without an interaction"
        )


def _check(
    recommenders: Sequence[Recommender], part: str, protocol: str, candidates: object
) -> None:
    """Raise an error for anything that can't be evaluated, before work starts."""
    names = [recommender.name for recommender in recommenders]
    if not names or len(set(names)) < len(names):
        raise LogerError(f"evaluate needs recommenders with different names; got {names}")
    if part not in get_args(EvaluatedPart):
        raise UnknownNameError("part", part, get_args(EvaluatedPart))
    for recommender in recommenders:
        check_part(recommender, part)
    if protocol not in get_args(Protocol):
        raise UnknownNameError("protocol", protocol, get_args(Protocol))
    if candidates is not None and protocol == "full":
        raise LogerError("candidates need protocol 'sampled-100'; full ranking uses all items")


@dataclass(frozen=True, slots=True)
class FitRecord:
    """How a bundle was made; unknown fields are None or empty."""

    data: str | None = None
    """Where the data was read from."""
    format: str | None = None
    min_rating: float | None = None
    name: str | None = None
    """The name of the data set."""
    preset: str | None = None
    split: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of ``loger.data.split``."""
    tried: Sequence[Sequence[Any]] = ()
    """(setting, value, held-out NDCG) of everything that tuning tried."""
    warm_from: str | None = None
    """The bundle that the fit began from."""
    hold_out: bool = True
    """Whether the model doesn't know the test part; true of bundles that don't record it."""
    ranks: int = 1
    """Number of processes that trained the encoder; its last bits depend on it."""

    @classmethod
    def read(cls, bundle: Path | str) -> FitRecord:
        """The record of a bundle; an empty one if it has none."""
        found = read_manifest(bundle, MODEL).about.get("fit", {})
        try:
            return cls(**found)
        except TypeError as error:
            path = Path(bundle) / MANIFEST
            what = f"the record was written by another version of loger ({error})"
            raise DataError(what, path=path, remedy="fit again") from None

    def split_of(self, dataset: Dataset, model: LOGER, bundle: Path | str) -> Split:
        """The split that the model was fitted on; raises an error if this isn't that data."""
        if model.updates_ is not None:
            raise LogerError(
                f"{bundle} was updated after its fit, so it may have seen the test part; "
                "evaluate the bundle as it was before the update"
            )
        if not len(model.ranker_.held_out):
            told = f" (measured before that: {model.measured_})" if model.measured_ else ""
            raise LogerError(
                f"{bundle} has learned from all interactions, so there is nothing left to test it "
                f"on{told}; to evaluate and compare, fit with --hold-out"
            )
        parts = split(dataset, **self.split)
        if parts.refit().graph.fingerprint != whole(model.graph_).given.fingerprint:
            data = f"; it was fitted on {self.data}" if self.data else ""
            raise LogerError(
                f"{bundle} was not fitted on this split of {dataset.name}, so it may have seen the "
                f"test part{data}; pass that data set unchanged, or fit again"
            )
        return parts


def _fit_story(model: LOGER) -> str:
    """What the model has learned from, and how it was measured, as a sentence."""
    if n := len(model.ranker_.held_out):
        told = "" if model.measured_ is None else f" ({model.measured_})"
        return f"for testing: {n:,} interactions are held out, so the model hasn't seen them{told}"
    if model.measured_ is None:
        return "fitted to all interactions; nothing was held out, so accuracy wasn't measured"
    return f"measured: {model.measured_}; the model was then fitted again to all interactions"


def _encoder_story(model: LOGER) -> str:
    """The encoder that was chosen, with the result of each choice; empty without a choice."""
    ndcg = {str(value): x for name, value, x in model.tried_ if name == "encoder"}
    if not ndcg:
        return ""
    used = [which for which in ndcg if (which == "histories") == (model.ranker_.sequence is None)]
    tried = ", ".join(f"{which} {x:.4f}" for which, x in ndcg.items())
    return f"; encoder: {used[0]} (NDCG@10 on validation: {tried})"


def fit_summary(model: LOGER, bundle: Path | str) -> dict[str, Any]:
    """What was learned and written, as plain values."""
    last, graph = model.trace_[-1], whole(model.graph_)
    return {
        "bundle": str(bundle),
        "users": graph.n_users,
        "items": graph.n_items,
        "facts": graph.n_triples,
        "rules": model.rule_table().to_dicts(),
        "kept": len(model.mined_.rules),
        "made": sum(r.derived for r, w in zip(model.rules_, model.weights_, strict=True) if w > 0),
        "mining": model.mined_.story(),
        "encoder_weight": model.ranker_.fusion.encoder_weight,
        "rounds": last.number,
        "fitted_for": "testing" if len(model.ranker_.held_out) else "use",
        "held_out": len(model.ranker_.held_out),
        "measured": None if model.measured_ is None else asdict(model.measured_),
        "story": _fit_story(model) + _encoder_story(model),
        "held_out_ndcg": None if isnan(last.ndcg) else last.ndcg,
        "tried": [{"setting": s, "value": v, "ndcg": x} for s, v, x in model.tried_],
        "size": sum(file.stat().st_size for file in Path(bundle).iterdir()),
        "example_user": graph.vocabulary.names[0],
    }
