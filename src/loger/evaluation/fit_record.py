"""What a bundle was fitted on, noted in its manifest, so that evaluation holds out the same.

The record is an aid to commands: a bundle without one, as ``LOGER.save`` writes it, is a bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

from loger.data.dataset import Dataset
from loger.data.splits import Split, split
from loger.engine.files import MANIFEST, read_manifest
from loger.errors import DataError, LogerError
from loger.graph import whole
from loger.model import LOGER
from loger.store.bundle import MODEL


@dataclass(frozen=True, slots=True)
class FitRecord:
    """How a bundle was made; what is not known is None or empty."""

    data: str | None = None
    """Where the data were read from."""
    format: str | None = None
    positive_from: float | None = None
    name: str | None = None
    """The name of the data set."""
    preset: str | None = None
    split: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of ``loger.data.split``."""
    tried: Sequence[Sequence[Any]] = ()
    """(setting, value, held-out NDCG) of what tuning tried."""
    warm_from: str | None = None
    """The bundle that the fit began from."""
    hold_out: bool = True
    """Whether the test part was kept from the model; bundles of before this was noted did so."""
    ranks: int = 1
    """How many processes trained the encoder: its last bits depend on it."""

    @classmethod
    def read(cls, bundle: Path | str) -> FitRecord:
        """The record of a bundle; an empty one if it has none."""
        found = read_manifest(bundle, MODEL).about.get("fit", {})
        try:
            return cls(**found)
        except TypeError as error:
            path = Path(bundle) / MANIFEST
            raise DataError(f"is damaged ({error})", path=path, remedy="fit again") from None

    def split_of(self, dataset: Dataset, model: LOGER, bundle: Path | str) -> Split:
        """The split that the model was fitted on, or a refusal."""
        if model.updates_ is not None:
            raise LogerError(
                f"{bundle} was updated after its fit, so it may know the test part; "
                "evaluate a bundle as it was fitted"
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
                f"test part{data}; give that data, unchanged, or fit again"
            )
        return parts


def fit_story(model: LOGER) -> str:
    """What the model knows, and how good it was on what it did not, as a sentence."""
    if n := len(model.ranker_.held_out):
        told = "" if model.measured_ is None else f" ({model.measured_})"
        return (
            f"for testing: {n:,} interactions are held out, and the model does not know them{told}"
        )
    if model.measured_ is None:
        return "for use: it has learned from all interactions; nothing was held out to measure on"
    return f"measured: {model.measured_}; then it has learned from all interactions, for use"


def fit_summary(model: LOGER, bundle: Path | str) -> dict[str, Any]:
    """What was learned, and what was written, as plain values."""
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
        "story": fit_story(model),
        "held_out_ndcg": None if isnan(last.ndcg) else last.ndcg,
        "tried": [{"setting": s, "value": v, "ndcg": x} for s, v, x in model.tried_],
        "size": sum(file.stat().st_size for file in Path(bundle).iterdir()),
        "example_user": graph.vocabulary.names[0],
    }
