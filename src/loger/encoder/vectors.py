"""Entities and relations of a fitted encoder as vectors, for whoever walks among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import Encoder, Floats
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph


def vectors(encoder: Encoder, graph: KnowledgeGraph) -> tuple[Floats, Floats]:
    """Vectors of all entities and of all relations, inverse ones last; [entities, d], [2R, d].

    An inverse relation has the negated vector of its relation, as translations do; a derived one,
    which the encoder has not seen, that of no translation at all. Where the
    encoder makes users of their history, so does this.
    """
    entities, relations = _tables(encoder)
    derived = sum(r.derived for r in graph.relations)  # which encoders do not see
    if derived and len(relations) == len(graph.relations) - derived:
        relations = np.concatenate([relations, np.zeros_like(relations[:1]).repeat(derived, 0)])
    if len(entities) != graph.n_entities or len(relations) != len(graph.relations):
        raise LogerError(
            f"the encoder has {len(entities)} entities and {len(relations)} relations, the graph "
            f"{graph.n_entities} and {len(graph.relations)}; fit the encoder on this graph"
        )
    if entities.shape[1] != relations.shape[1]:
        raise LogerError(
            f"entities have {entities.shape[1]} dimensions and relations {relations.shape[1]}; "
            "paths can be walked only where they have as many, as with TransE or RotatE"
        )
    if getattr(getattr(encoder, "config", None), "users", "") == "history":
        entities[: graph.n_users] = _of_histories(graph, entities)
    return entities, np.concatenate([relations, -relations])


def _tables(encoder: Encoder) -> tuple[Floats, Floats]:
    """Copies of the encoder's own tables, by what kind of encoder it is."""
    state = encoder.state()
    if "entities.table" in state and "relations.table" in state:
        return _floats(state["entities.table"]), _floats(state["relations.table"])
    if "diagonal.weight" in state and hasattr(encoder, "vectors_"):
        # The network stretches a head by 1 + r rather than moving it by r.
        return _floats(encoder.vectors_.cpu().numpy()), _floats(state["diagonal.weight"]) - 1
    model: Any = getattr(getattr(encoder, "module_", None), "model", None)
    if model is not None and hasattr(model, "entity_representations"):
        import torch

        with torch.no_grad():
            parts = model.entity_representations[0](), model.relation_representations[0]()
        real = [torch.view_as_real(t) if t.is_complex() else t for t in parts]
        entities, relations = (_floats(t.detach().cpu().flatten(1).numpy()) for t in real)
        return entities, relations
    raise LogerError(
        f"{type(encoder).__name__} has no tables of vectors that are known here; paths can be "
        "walked with TransE, KGE and GNN"
    )


def _of_histories(graph: KnowledgeGraph, entities: Floats) -> Floats:
    """Users as TransE makes them: the sum of their items over √n; [users, d]."""
    from scipy.sparse import csr_array  # slow to import, and only the path reasoner needs it

    heads, relations, tails = graph.triples()
    rows = relations == INTERACTION
    users, items = heads[rows], tails[rows]
    n = np.maximum(np.bincount(users, minlength=graph.n_users), 1)
    weights = (1 / np.sqrt(n))[users].astype(np.float32)
    shape = (graph.n_users, graph.n_entities)
    summed: Floats = csr_array((weights, (users, items)), shape=shape) @ entities
    return summed


def _floats(array: NDArray[np.generic]) -> Floats:
    return np.array(array, dtype=np.float32)
