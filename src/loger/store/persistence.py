"""A fitted model as a bundle, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from math import isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger import __version__
from loger.config import LOGERConfig
from loger.data.update_log import Updates
from loger.encoder import Encoder, TransE, TransEConfig
from loger.encoder.sequence import Sequence
from loger.engine.settings import from_names
from loger.errors import LogerError, UnknownNameError
from loger.graph import KnowledgeGraph, Pairs, checked_ids, whole
from loger.graph.catalogue import NOTHING, Catalogue, FilterOnlyColumn
from loger.grounding import Walk
from loger.learning.fitted import (
    LARGEST,
    Fitted,
    FittedLogic,
    Measured,
    logic_of,
    logic_parts,
    reasoner_of,
)
from loger.logic.mining import Mined
from loger.ranking.ranker import Ranker
from loger.store import bundle as storage

FINITE_DIGITS = 250
"""Decimal digits before the point that a strength may have; a double has 308."""


def save(folder: Path | str, name: str, fitted: Fitted) -> None:
    """Write a fitted model, with the record of how it was made: a manifest and safetensors."""
    ranker = fitted.ranker
    graph = whole(ranker.graph)
    if getattr(ranker.encoder, "n_users_", graph.n_users) != graph.n_users:
        raise LogerError(
            "the encoder has no vectors for the temporary users of a what-if; "
            "add them with update(users=…), then save"
        )
    learned, logic_arrays = logic_parts(FittedLogic(ranker.logic, ranker.fusion, fitted.trace))
    graph_about, graph_arrays = storage.graph_parts(graph)
    about = {
        **graph_about,
        "name": name,
        "config": asdict(fitted.config),
        "encoder": type(ranker.encoder).__name__,
        "encoder_config": asdict(ranker.encoder.config),  # type: ignore[attr-defined]
        "fingerprint": graph.fingerprint,
        "learned": {
            **learned,
            "tried": [list(row) for row in fitted.tried],
            "mined": fitted.mined.record(),
        },
        "libraries": {"loger": __version__}
        | {name: version(name) for name in ("numpy", "torch", "polars")},
        "seed": fitted.config.seed,
        "fitted_for": "testing" if len(ranker.held_out) else "use",
        "measured": None if fitted.measured is None else asdict(fitted.measured),
        **({} if fitted.record is None else {"fit": dict(fitted.record)}),
        **({} if fitted.updates is None else {"updates": fitted.updates.record()}),
        **({"catalogue": _catalogue_about(fitted.catalogue)} if fitted.catalogue else {}),
    }
    arrays = {"logic": logic_arrays, "encoder": ranker.encoder.state(), **graph_arrays}
    if ranker.sequence is not None:
        arrays["sequence"] = ranker.sequence.state()
    if fitted.catalogue.filter_only or fitted.catalogue.images:
        arrays["catalogue"] = _catalogue_arrays(fitted.catalogue)
    if len(ranker.held_out):
        arrays["held_out"] = {"users": ranker.held_out.users, "items": ranker.held_out.items}
    if fitted.reasoner is not None:
        arrays["reasoner"] = fitted.reasoner.walker.state()
    storage.write(folder, storage.MODEL, about, arrays)


def load(folder: Path | str) -> tuple[str, Fitted, Callable[[], Encoder]]:
    """The name of a saved model, what was fitted, and what makes encoders like its own."""
    bundle = storage.read(folder, storage.MODEL)
    with bundle.parsing():
        return _parsed(bundle)


def _parsed(bundle: storage.Bundle) -> tuple[str, Fitted, Callable[[], Encoder]]:
    about, arrays = bundle.about, bundle.arrays
    config = from_names(LOGERConfig, about["config"], "config")
    make_encoder = _encoder_maker(about["encoder"], about["encoder_config"])
    graph = storage.graph_of(bundle)
    _check_encoder(graph, about["encoder_config"], arrays["encoder"])
    given = _given(graph, about["encoder"])
    encoder = make_encoder().load_state(given, arrays["encoder"])
    learned = about["learned"]
    model = logic_of(graph, encoder, config.em, learned, arrays["logic"])
    walk, sample = config.em.walk, config.sample
    _check_walk(walk, len(graph.tails))
    ranker = Ranker.of(graph, encoder, model.logic, model.fusion, walk, sample)
    if "sequence" in arrays:
        ranker = replace(ranker, sequence=_sequence(graph, encoder, config, arrays["sequence"]))
    elif model.fusion.sequence:
        raise LogerError("the sequence encoder has a weight, but the bundle doesn't contain one")
    if "held_out" in arrays:
        ranker = replace(ranker, held_out=_held_out(graph, arrays["held_out"]))
    tried = [(name, value, ndcg) for name, value, ndcg in learned["tried"]]
    mined = Mined.of_record(given, learned["mined"])
    reasoner = reasoner_of(ranker, config, arrays["reasoner"]) if "reasoner" in arrays else None
    updates = _updates(graph, about["updates"]) if "updates" in about else None
    catalogue = NOTHING
    if "catalogue" in about:
        catalogue = _catalogue(graph, about["catalogue"], arrays.get("catalogue", {}))
    figures = about.get("measured")  # which older bundles do not have
    measured = None if figures is None else Measured.of(figures)
    record = about.get("fit")
    if record and record.get("positive_from") is not None:
        raise LogerError("the model was fitted with positive_from, which is now called min_rating")
    beside = updates, record, catalogue, measured
    fitted = Fitted(ranker, config, model.trace, tried, mined, reasoner, *beside)
    return about["name"], fitted, make_encoder


def _check_walk(walk: Walk, edges: int) -> None:
    """Refuse exponents by which paths along four hops of any degree would have no finite
    strength."""
    for name, exponent in asdict(walk).items():
        if not exponent * 4 * log10(edges + 2) >= -FINITE_DIGITS or not isfinite(exponent):
            raise LogerError(f"em.walk.{name} must keep strengths finite, got {exponent:g}")


def _given(graph: KnowledgeGraph, encoder: str) -> KnowledgeGraph:
    """The graph as an encoder of that name knows it: less derived relations. A TransE looks at no
    facts, only at what there is, and to sort out the given ones is a third of opening a bundle."""
    if encoder != "TransE":
        return graph.given
    relations = [relation for relation in graph.relations if not relation.derived]
    return KnowledgeGraph.from_triples(graph.vocabulary, relations, [], [], [])


def _catalogue_about(catalogue: Catalogue) -> dict[str, Any]:
    """What the manifest says about the catalogue."""
    columns = [(column.relation, column.type) for column in catalogue.filter_only]
    return {"columns": columns, "mapping": catalogue.mapping}


def _catalogue_arrays(catalogue: Catalogue) -> dict[str, NDArray[np.generic]]:
    """Values with their items, column by column, and pictures."""
    arrays: dict[str, NDArray[np.generic]] = {
        "pictured": np.array(list(catalogue.images), dtype=np.int32),
        "images": storage.text_array(list(catalogue.images.values())),
    }
    for k, column in enumerate(catalogue.filter_only):
        arrays |= {f"places {k}": column.places, f"items {k}": column.items}
        arrays[f"values {k}"] = storage.text_array(column.values)
    return arrays


def _catalogue(
    graph: KnowledgeGraph, about: Mapping[str, Any], arrays: storage.Arrays
) -> Catalogue:
    """The catalogue from its arrays."""
    columns = []
    for k, (relation, kind) in enumerate(about["columns"]):
        values = tuple(storage.texts_of(arrays[f"values {k}"]))
        pairs: Any = (arrays[f"places {k}"], arrays[f"items {k}"])
        columns.append(FilterOnlyColumn(relation, kind, values, *pairs))
    images: dict[int, str] = {}
    if arrays:
        files = storage.texts_of(arrays["images"])
        images = dict(zip(arrays["pictured"].tolist(), files, strict=True))
    mapping = about["mapping"]
    if mapping is not None and not isinstance(mapping, dict):
        raise LogerError(f"the mapping should be a table, got {mapping!r:.50}")
    return Catalogue(tuple(columns), images, mapping).check(graph.n_items)


def _updates(graph: KnowledgeGraph, record: Mapping[str, Any]) -> Updates:
    """The updates since the fit; the graph must contain what they say the fit knew."""
    updates, words = Updates.of(record), graph.vocabulary
    for kind, n in updates.learned.types.items():
        if not 0 <= n <= len(words.span(kind)):
            raise LogerError(f"the fit can't have known {n:,} entities of type {kind!r}")
    given = sum(not r.derived for r in graph.relations)
    if not 1 <= updates.learned.relations <= given:
        raise LogerError(f"the fit can't have known {updates.learned.relations} relations")
    return updates


def _held_out(graph: KnowledgeGraph, arrays: storage.Arrays) -> Pairs:
    """Known pairs of the graph's users and items."""
    users = checked_ids(arrays["users"], graph.n_users, "user")
    items = checked_ids(arrays["items"], graph.n_items, "item")
    if len(users) != len(items):
        raise LogerError(f"the held-out pairs have {len(users)} users but {len(items)} items")
    return Pairs.sorted(users, items)


def _check_encoder(
    graph: KnowledgeGraph, settings: Mapping[str, Any], arrays: storage.Arrays
) -> None:
    """Refuse vectors whose products would not be finite, and a dimension that the arrays do not
    have: an encoder would allocate it before it saw that they do not fit."""
    held, wanted = sum(a.size for a in arrays.values()), settings.get("dimension", 1)
    if type(wanted) is not int or not 1 <= graph.n_entities * wanted <= held:
        raise LogerError(f"an encoder of dimension {wanted!r} needs more than its {held:,} numbers")
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        most = np.inf if name.endswith(".second") else LARGEST  # which is of training, and unused
        if not (array.min() >= -most and array.max() <= most):  # nor is NaN
            raise LogerError(f"the encoder's {name} must be finite and at most {LARGEST:g}")


def _sequence(
    graph: KnowledgeGraph, encoder: Encoder, config: LOGERConfig, arrays: storage.Arrays
) -> Sequence:
    """The sequence encoder, of a graph with times and a TransE that it fits."""
    out = Sequence(config.sequence).load_state(graph.n_items, arrays)
    width = len(encoder.relations_[0]) if isinstance(encoder, TransE) else 0
    if graph.times is None or out.maps_.shape != (width, 2 * config.sequence.dimension):
        raise LogerError("a sequence encoder needs times and the TransE encoder it was fitted with")
    for name, array in arrays.items():
        if not bool((np.abs(array) <= LARGEST).all()):  # nor is NaN
            raise LogerError(
                f"the sequence encoder's {name} must be finite and at most {LARGEST:g}"
            )
    if not bool(((out.decays_ > 0) & (out.decays_ < 1)).all()):
        raise LogerError("the sequence encoder's decays must be between 0 and 1")
    return out


def _encoder_maker(name: str, settings: Mapping[str, Any]) -> Callable[[], Encoder]:
    """Makes encoders like the one that was saved."""
    if name == "TransE":
        config = from_names(TransEConfig, settings, "encoder_config")
        return lambda: TransE(config)
    if name == "KGE":
        from loger.encoder.kge import KGE, KGEConfig

        kge = asdict(from_names(KGEConfig, settings, "encoder_config"))
        return lambda: KGE(**kge)
    if name == "GNN":
        from loger.encoder.network import GNN, GNNConfig

        gnn = asdict(from_names(GNNConfig, settings, "encoder_config"))
        return lambda: GNN(**gnn)
    raise UnknownNameError("encoder", name, ("TransE", "KGE", "GNN"))
