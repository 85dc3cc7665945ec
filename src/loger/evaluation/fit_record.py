"""What a bundle was fitted on, noted beside its files, so that evaluation holds out the same.

The record is an aid to commands: a bundle without one, as ``LOGER.save`` writes it, is a bundle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

from loger import files
from loger.data.dataset import Dataset
from loger.data.splits import Split, split
from loger.errors import DataError, LogerError
from loger.graph import whole
from loger.model import LOGER

FIT_RECORD = "fit.json"


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

    @classmethod
    def read(cls, bundle: Path | str) -> FitRecord:
        """The record of a bundle; an empty one if it has none."""
        path = Path(bundle) / FIT_RECORD
        if not path.is_file():
            return cls()
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(f"is damaged ({error})", path=path, remedy="fit again") from None

    def write(self, bundle: Path | str) -> None:
        """Keep the record beside the bundle's own files."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        files.write_text(Path(bundle) / FIT_RECORD, text + "\n")

    def split_of(self, dataset: Dataset, model: LOGER, bundle: Path | str) -> Split:
        """The split that the model was fitted on, or a refusal."""
        parts = split(dataset, **self.split)
        if parts.refit().graph.fingerprint != whole(model.graph_).fingerprint:
            data = f"; it was fitted on {self.data}" if self.data else ""
            raise LogerError(
                f"{bundle} was not fitted on this split of {dataset.name}, so it may have seen the "
                f"test part{data}; give that data, unchanged, or fit again"
            )
        return parts


def fit_summary(model: LOGER, bundle: Path | str) -> dict[str, Any]:
    """What was learned, and what was written, as plain values."""
    last, graph = model.trace_[-1], whole(model.graph_)
    return {
        "bundle": str(bundle),
        "users": graph.n_users,
        "items": graph.n_items,
        "facts": graph.n_triples,
        "rules": model.rule_table().to_dicts(),
        "encoder_weight": model.ranker_.fusion.encoder_weight,
        "rounds": last.number,
        "held_out_ndcg": None if isnan(last.ndcg) else last.ndcg,
        "tried": [{"setting": s, "value": v, "ndcg": x} for s, v, x in model.tried_],
        "size": sum(file.stat().st_size for file in Path(bundle).iterdir()),
        "example_user": graph.vocabulary.names[0],
    }
