"""A fitted model as a bundle, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger import bundle as storage
from loger.config import LOGERConfig
from loger.em import EMConfig, Round
from loger.encoder import Calibration, Encoder, TransE, TransEConfig
from loger.errors import LogerError, UnknownNameError
from loger.fitting import Fitted
from loger.graph import KnowledgeGraph, whole
from loger.logic import Logic
from loger.ranker import Fusion, Ranker
from loger.rules import RuleSet, make_rule
from loger.settings import from_names


def save(folder: Path | str, name: str, fitted: Fitted) -> None:
    """Write a fitted model: manifest, safetensors, Parquet."""
    ranker = fitted.ranker
    graph, logic, fusion = whole(ranker.graph), ranker.logic, ranker.fusion
    if getattr(ranker.encoder, "n_users_", graph.n_users) != graph.n_users:
        raise LogerError(
            "users were added after the fit, and the encoder has no vectors of theirs to "
            "keep; save the model as it was fitted and add them after loading"
        )
    edges, tables = storage.graph_parts(graph)
    about = {
        "name": name,
        "config": asdict(fitted.config),
        "encoder": type(ranker.encoder).__name__,
        "encoder_config": asdict(ranker.encoder.config),  # type: ignore[attr-defined]
        "fingerprint": graph.fingerprint,
        "learned": {
            "prior": logic.prior,
            "popularity": logic.popularity,
            "encoder_weight": fusion.encoder_weight,
            "calibration": asdict(fusion.calibration),
            "trace": [asdict(row) for row in fitted.trace],
            "tried": [list(row) for row in fitted.tried],
        },
        "libraries": {name: version(name) for name in ("loger", "numpy", "torch", "polars")},
        "seed": fitted.config.seed,
        "types": graph.vocabulary.types,
    }
    arrays = {"graph": edges, "logic": _logic_arrays(logic), "encoder": ranker.encoder.state()}
    storage.write(folder, storage.MODEL, about, arrays, tables)


def load(folder: Path | str) -> tuple[str, Fitted, Callable[[], Encoder]]:
    """The name of a saved model, what was fitted, and what makes encoders like its own."""
    bundle = storage.read(folder, storage.MODEL)
    with bundle.parsing():
        return _parsed(bundle)


def _parsed(bundle: storage.Bundle) -> tuple[str, Fitted, Callable[[], Encoder]]:
    about, arrays = bundle.about, bundle.arrays
    config = from_names(LOGERConfig, about["config"], "config")
    make_encoder = _encoder_maker(about["encoder"], about["encoder_config"])
    graph = storage.graph_of(bundle, "graph", about["types"])
    encoder = make_encoder().load_state(graph, arrays["encoder"])
    learned = about["learned"]
    logic = _logic(graph, config.em, learned, arrays["logic"])
    calibration = Calibration(**learned["calibration"])
    fusion = Fusion(config.em.fusion, learned["encoder_weight"], calibration, config.em.alpha)
    ranker = Ranker.of(graph, encoder, logic, fusion, config.em.walk.recency, config.sample)
    trace = tuple(Round(**row) for row in learned["trace"])
    tried = [(name, value, ndcg) for name, value, ndcg in learned["tried"]]
    return about["name"], Fitted(ranker, config, trace, tried), make_encoder


def _logic_arrays(logic: Logic) -> dict[str, NDArray[np.generic]]:
    """Rules as relation numbers, -1 after the end of each, and what belongs to them."""
    longest = max(len(rule) for rule in logic.rules)
    relations = np.full((len(logic.rules), longest), -1, dtype=np.int64)
    for row, rule in zip(relations, logic.rules, strict=True):
        row[: len(rule)] = rule.relations
    arrays: dict[str, NDArray[np.generic]] = {"rules": relations, "weights": logic.weights}
    if logic.scales is not None:
        arrays["scales"] = logic.scales
    return arrays


def _logic(
    graph: KnowledgeGraph, config: EMConfig, learned: Mapping[str, Any], arrays: storage.Arrays
) -> Logic:
    """What ``_logic_arrays`` took apart."""
    rows = [[int(r) for r in row if r >= 0] for row in np.asarray(arrays["rules"])]
    return Logic(
        RuleSet(tuple(make_rule(graph, row) for row in rows)),
        np.array(arrays["weights"], dtype=np.float64),
        config.feature,
        config.active_walk,
        np.array(arrays["scales"], dtype=np.float64) if "scales" in arrays else None,
        learned["prior"],
        learned["popularity"],
    )


def _encoder_maker(name: str, settings: Mapping[str, Any]) -> Callable[[], Encoder]:
    """Makes encoders like the one that was saved."""
    if name == "TransE":
        config = from_names(TransEConfig, settings, "encoder_config")
        return lambda: TransE(config)
    if name == "KGE":
        from loger.encoder.kge import KGE

        return lambda: KGE(**settings)
    if name == "GNN":
        from loger.encoder.network import GNN

        return lambda: GNN(**settings)
    raise UnknownNameError("encoder", name, ("TransE", "KGE", "GNN"))
