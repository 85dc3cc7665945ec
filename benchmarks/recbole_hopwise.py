"""Training steps of RecBole's CFKG and hopwise's TransE, for benchmarks/encoder.py.

They use their own model and loss with torch's Adam, like their trainers, on triples drawn from the
graph. Their readers and samplers are left out, which favours them. They only support one negative
per positive.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from loger.graph import INTERACTION, KnowledgeGraph

DIMENSION = 100
MODELS = {
    "RecBole CFKG": ("recbole.model.knowledge_aware_recommender", "CFKG"),
    "hopwise TransE": ("hopwise.model.knowledge_graph_embedding_recommender", "TransE"),
}
FIELDS = {
    "USER_ID_FIELD": "user", "ITEM_ID_FIELD": "item", "NEG_PREFIX": "neg_",
    "ENTITY_ID_FIELD": "entity", "RELATION_ID_FIELD": "relation",
    "HEAD_ENTITY_ID_FIELD": "head", "TAIL_ENTITY_ID_FIELD": "tail",
    "device": torch.device("cpu"), "embedding_size": DIMENSION, "margin": 1.0,
    "loss_function": "transe",
}  # fmt: skip


def stepper(graph: KnowledgeGraph, name: str, batch: int) -> Callable[[], int]:
    """One step of a library's model on a batch, half interactions and half facts."""
    module, kind_name = MODELS[name]
    kind = getattr(importlib.import_module(module), kind_name)
    half = batch // 2
    others = graph.n_entities - graph.n_users
    sizes = {
        "user": graph.n_users,
        "item": graph.n_items,
        "entity": others,
        "relation": len(graph.relations),
    }
    model = kind(FIELDS, SimpleNamespace(num=sizes.__getitem__))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    heads, relations, tails = (x.astype(np.int64) for x in graph.triples())
    bought = relations == INTERACTION
    # They number users apart from entities, and know facts of entities alone.
    facts = ~bought & (heads >= graph.n_users) & (tails >= graph.n_users)
    users, items = (torch.from_numpy(x[bought]) for x in (heads, tails - graph.n_users))
    heads, tails = heads - graph.n_users, tails - graph.n_users
    h, r, t = (torch.from_numpy(x[facts]) for x in (heads, relations, tails))

    def step() -> int:
        a, b = torch.randint(0, len(users), (half,)), torch.randint(0, len(h), (half,))
        loss = model.calculate_loss(
            {
                "user": users[a],
                "item": items[a],
                "neg_item": torch.randint(0, graph.n_items, (half,)),
                "head": h[b],
                "relation": r[b],
                "tail": t[b],
                "neg_tail": torch.randint(0, others, (half,)),
            }
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        return 2 * half

    return step
