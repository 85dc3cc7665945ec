"""A fitted model as a bundle, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger import __version__
from loger.config import LOGERConfig
from loger.data.update_log import Updates
from loger.encoder import Calibration, Encoder, TransE, TransEConfig
from loger.encoder.folding import has_sums, vectors
from loger.encoder.protocol import Own
from loger.engine.settings import from_names
from loger.errors import LogerError, UnknownNameError
from loger.explain.reasoned import PathReasoner
from loger.graph import KnowledgeGraph, Pairs, checked_ids, whole
from loger.graph.catalogue import NOTHING, Catalogue, FilterOnlyColumn
from loger.grounding.plans import compiled
from loger.learning.fitted import Fitted, Round
from loger.logic.config import EMConfig
from loger.logic.mining import Mined
from loger.logic.mln import Logic, uses_strength
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import MAX_HOPS, RuleSet, make_rule
from loger.store import bundle as storage

MAX_RULES = 5_000
"""The most rules of a bundle; tables of compiled rules grow with their square."""
LARGEST = 1e15
"""The largest weight, in absolute value: sums of such weights are finite in single precision."""


def save(folder: Path | str, name: str, fitted: Fitted) -> None:
    """Write a fitted model, with the record of how it was made: a manifest and safetensors."""
    ranker = fitted.ranker
    graph, logic, fusion = whole(ranker.graph), ranker.logic, ranker.fusion
    if getattr(ranker.encoder, "n_users_", graph.n_users) != graph.n_users:
        raise LogerError(
            "the encoder has no vectors of users who were only tried; "
            "take them in with update(users=…), then save"
        )
    if len(logic.rules) > MAX_RULES:
        raise LogerError(f"a bundle holds up to {MAX_RULES:,} rules, got {len(logic.rules):,}")
    graph_about, graph_arrays = storage.graph_parts(graph)
    about = {
        **graph_about,
        "name": name,
        "config": asdict(fitted.config),
        "encoder": type(ranker.encoder).__name__,
        "encoder_config": asdict(ranker.encoder.config),  # type: ignore[attr-defined]
        "fingerprint": graph.fingerprint,
        "learned": {
            "prior": logic.prior,
            "popularity": logic.popularity,
            "encoder_weight": fusion.encoder_weight,
            "own": None if fusion.own is None else list(fusion.own),
            "calibration": asdict(fusion.calibration),
            "trace": [asdict(row) for row in fitted.trace],
            "tried": [list(row) for row in fitted.tried],
            "mined": fitted.mined.record(),
        },
        "libraries": {"loger": __version__}
        | {name: version(name) for name in ("numpy", "torch", "polars")},
        "seed": fitted.config.seed,
        **({} if fitted.record is None else {"fit": dict(fitted.record)}),
        **({} if fitted.updates is None else {"updates": fitted.updates.record()}),
        **({"catalogue": _catalogue_about(fitted.catalogue)} if fitted.catalogue else {}),
    }
    arrays = {"logic": _logic_arrays(logic), "encoder": ranker.encoder.state(), **graph_arrays}
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
    for name in ("prior", "popularity", "encoder_weight"):
        _finite(learned[name], name)
    logic = _logic(graph, config.em, learned, arrays["logic"])
    calibration = Calibration(**learned["calibration"])
    _finite(calibration.slope, "slope")
    _finite(calibration.intercept, "intercept")
    own = _own(encoder, learned["own"])
    weight = learned["encoder_weight"]
    fusion = Fusion(config.em.fusion, weight, calibration, config.em.alpha, own)
    ranker = Ranker.of(graph, encoder, logic, fusion, config.em.walk, config.sample)
    if "held_out" in arrays:
        ranker = replace(ranker, held_out=_held_out(graph, arrays["held_out"]))
    trace = tuple(Round(**row) for row in learned["trace"])
    tried = [(name, value, ndcg) for name, value, ndcg in learned["tried"]]
    mined = Mined.of_record(given, learned["mined"])
    reasoner = _reasoner(ranker, config, arrays["reasoner"]) if "reasoner" in arrays else None
    updates = _updates(graph, about["updates"]) if "updates" in about else None
    catalogue = NOTHING
    if "catalogue" in about:
        catalogue = _catalogue(graph, about["catalogue"], arrays.get("catalogue", {}))
    beside = updates, about.get("fit"), catalogue
    fitted = Fitted(ranker, config, trace, tried, mined, reasoner, *beside)
    return about["name"], fitted, make_encoder


def _given(graph: KnowledgeGraph, encoder: str) -> KnowledgeGraph:
    """The graph as an encoder of that name knows it: less derived relations. A TransE looks at no
    facts, only at what there is, and to sort out the given ones is a third of opening a bundle."""
    if encoder != "TransE":
        return graph.given
    relations = [relation for relation in graph.relations if not relation.derived]
    return KnowledgeGraph.from_triples(graph.vocabulary, relations, [], [], [])


def _catalogue_about(catalogue: Catalogue) -> dict[str, Any]:
    """What a manifest says of what is beside the graph."""
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
    """What ``_catalogue_arrays`` took apart."""
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
        raise LogerError(f"the mapping of tables is a table, got {mapping!r:.50}")
    return Catalogue(tuple(columns), images, mapping).check(graph.n_items)


def _updates(graph: KnowledgeGraph, record: Mapping[str, Any]) -> Updates:
    """What came after the fit, of which the graph must have as much as it says."""
    updates, words = Updates.of(record), graph.vocabulary
    for kind, n in updates.learned.types.items():
        if not 0 <= n <= len(words.span(kind)):
            raise LogerError(f"the fit cannot have known {n:,} entities of type {kind!r}")
    given = sum(not r.derived for r in graph.relations)
    if not 1 <= updates.learned.relations <= given:
        raise LogerError(f"the fit cannot have known {updates.learned.relations} relations")
    return updates


def _own(encoder: Encoder, own: Any) -> Own | None:
    """What items' own parts count beside the encoder's sums, if it has any."""
    if own is None:
        return None
    if not has_sums(encoder) or len(own) != 2:
        raise LogerError("own parts of items are saved, and the encoder has none")
    for value in own:
        _finite(value, "own")
    return float(own[0]), float(own[1])


def _reasoner(ranker: Ranker, config: LOGERConfig, state: storage.Arrays) -> PathReasoner:
    """φ as it was saved, among the encoder's vectors."""
    from loger.reasoner.walker import Reasoner

    tables = vectors(ranker.encoder, whole(ranker.graph))
    walker = Reasoner(config.reasoner).load_state(whole(ranker.logic_graph), *tables, state)
    return PathReasoner(walker, config.search)


def _held_out(graph: KnowledgeGraph, arrays: storage.Arrays) -> Pairs:
    """Known pairs of the graph's users and items."""
    users = checked_ids(arrays["users"], graph.n_users, "user")
    items = checked_ids(arrays["items"], graph.n_items, "item")
    if len(users) != len(items):
        raise LogerError(f"held out are {len(users)} users and {len(items)} items, not pairs")
    return Pairs.sorted(users, items)


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
    table = arrays["rules"]
    if table.ndim != 2 or table.dtype != np.int64 or not 1 <= len(table) <= MAX_RULES:
        raise LogerError(f"rules must be 1 to {MAX_RULES:,} rows, got {table.dtype} {table.shape}")
    rows = [[int(r) for r in row if r >= 0] for row in table[:, : MAX_HOPS + 1]]
    rules = RuleSet(tuple(make_rule(graph, row) for row in rows))
    compiled(graph, rules)  # refuses a rule that is there twice
    weights, scales = _of_rules(arrays, "weights", rules), None
    if uses_strength(config.feature):
        scales = _of_rules(arrays, "scales", rules)
        if not bool((scales > 0).all()):
            raise LogerError("the scales of rules must be above 0")
    numbers = learned["prior"], learned["popularity"]
    return Logic(rules, weights, config.feature, config.active_walk, scales, *numbers)


def _of_rules(arrays: storage.Arrays, name: str, rules: RuleSet) -> NDArray[np.float64]:
    """An array with a finite number for each rule."""
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != (len(rules),):
        raise LogerError(f"{name} must be a number for each of {len(rules)} rules")
    values = np.array(array, dtype=np.float64)
    if not bool((np.abs(values) <= LARGEST).all()):  # nor is NaN
        raise LogerError(f"{name} must be finite and at most {LARGEST:g}")
    return values


def _finite(value: Any, name: str) -> None:
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise LogerError(f"{name} must be a finite number up to {LARGEST:g}, got {value!r:.50}")


def _check_encoder(
    graph: KnowledgeGraph, settings: Mapping[str, Any], arrays: storage.Arrays
) -> None:
    """Refuse vectors whose products would not be finite, and a dimension that the arrays do not
    have: an encoder would allocate it before it saw that they do not fit."""
    held, wanted = sum(a.size for a in arrays.values()), settings.get("dimension", 1)
    if type(wanted) is not int or not 1 <= graph.n_entities * wanted <= held:
        raise LogerError(f"an encoder of dimension {wanted!r} needs more than {held:,} numbers")
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        most = np.inf if name.endswith(".second") else LARGEST  # which is of training, and unused
        if not (array.min() >= -most and array.max() <= most):  # nor is NaN
            raise LogerError(f"{name} of the encoder must be finite and at most {LARGEST:g}")


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
