"""A graph neural network as an encoder: LightGCN (He et al. 2020) on the whole knowledge graph.

Propagation. With e a vector for every entity and N_r(h) its neighbours under a relation or an
inverse relation r,

    x⁽⁰⁾ = e,    x⁽ᵏ⁾_h = e_h + Σ_r w_r · mean_{t ∈ N_r(h)} x⁽ᵏ⁻¹⁾_t,

linear as in LightGCN, normalised per relation as in R-GCN (Schlichtkrull et al. 2018), with one
learned weight w_r > 0 for each direction of each relation. Users have no vectors of their own; they
are made from what they did.

Score. s(h, r, t) = γ_r · cos(x_h ∘ d_r, x_t) + bias_t, with d_r and γ_r learned.

Training. A batch needs x of few entities, so neighbours are sampled as in GraphSAGE. A draw takes
one of an entity's relations and one neighbour under it, which keeps the sum above unbiased. While
(u, r_ui, v) is learned, u and v aren't neighbours, so that a purchase doesn't explain itself. Only
rows that were drawn are updated; scoring propagates over all edges once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, normalize

from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import Batch, TrainedEncoder, chosen_device, entity_ids, softmax_loss
from loger.engine.settings import ANY, overridden
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats, Ids


@dataclass(frozen=True, slots=True)
class GNNConfig(TrainerConfig):
    """Settings of the graph neural network."""

    FORMER: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys(("facts_per_interaction", "head_share", "warm_epochs", "negatives"), ANY),
        "users": "history", "gamma": 8.0,
    }  # fmt: skip

    dimension: int = 64
    draws: Sequence[int] = (8, 4)
    """Neighbours drawn in training at the first hop, the second and so on, one for each layer."""


GAMMA = 8.0
"""The initial value of γ_r."""


class _Draws(NamedTuple):
    """Neighbours drawn for some entities, the same number for each."""

    neighbours: Ids  # [entities · draws]
    relations: Ids  # [entities · draws], inverse ones too
    shares: NDArray[np.float32]  # [entities · draws]: the draw's weight in the sum of means


class GNN(TrainedEncoder):
    """An encoder that propagates along the graph: ``GNN(dimension=64)``."""

    name = "GNN"
    negatives = 512
    warm_epochs = 2

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(GNNConfig(), settings)
        self.device = chosen_device(self.config.device)

    def __repr__(self) -> str:
        return f"GNN(dimension={self.config.dimension}, layers={len(self.config.draws)})"

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def _start(self, graph: KnowledgeGraph) -> None:
        """Draw the initial vectors."""
        self.n_users_, self.n_items_ = graph.n_users, graph.n_items
        rng = np.random.default_rng([self.config.seed, 0xE4C0])
        shape = (graph.n_entities, self.config.dimension)
        vectors = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        vectors[: graph.n_users] = 0
        n = len(graph.relations)
        self.module_ = _Layers(vectors, n).to(self.device)

    def _loss(self, graph: KnowledgeGraph, batch: Batch, rng: np.random.Generator) -> Tensor:
        module, n = self.module_, len(batch.given)
        apart = np.full(2 * n + len(batch.negatives), -1)
        if batch.relation == INTERACTION:
            apart[: 2 * n] = np.concatenate([batch.sought, batch.given])
        entities = np.concatenate([batch.given, batch.sought, batch.negatives])
        x = self._propagated(graph, entities, apart, rng)
        r = torch.tensor([batch.relation], device=self.device)
        turned = module.diagonal(r)  # applies to the side that is the head
        given = normalize(x[:n] if batch.head_sought else x[:n] * turned)
        found = normalize(x[n:] * turned if batch.head_sought else x[n:])
        scale = module.scale(r)
        positives = scale[0] * (given * found[:n]).sum(1)  # [triples]
        negatives = scale * (given @ found[n:].T)  # [triples, negatives]
        if not batch.head_sought:
            positives = positives + module.bias(entity_ids(batch.sought, self.device))[:, 0]
            negatives = negatives + module.bias(entity_ids(batch.negatives, self.device)).T
        return softmax_loss(batch, positives, negatives)

    def _propagated(
        self, graph: KnowledgeGraph, entities: Ids, apart: Ids, rng: np.random.Generator
    ) -> Tensor:
        """x of some entities, from drawn neighbours; [entities, dimension].

        ``apart`` has for each entity one that doesn't count as its neighbour, or -1.
        """
        hops: list[_Draws] = []
        levels = [entities]
        for n in self.config.draws:
            hops.append(draw_neighbours(graph, levels[-1], n, rng, None if hops else apart))
            levels.append(hops[-1].neighbours)
        # Each row is fetched once, however often it was drawn, so it gets a single gradient.
        distinct, places = np.unique(np.concatenate(levels), return_inverse=True)
        ids = entity_ids(distinct, self.device)
        own: Tensor = self.module_.vectors(ids)  # e; [distinct, dimension]
        own = own * (ids >= self.n_users_).unsqueeze(1)  # users have no vectors of their own
        ends = np.cumsum([len(level) for level in levels])[:-1]
        rows = [entity_ids(part, self.device) for part in np.split(places, ends)]
        x: Tensor | None = None  # on the last level, x is e
        for k in reversed(range(len(hops))):
            weights = self._weights(hops[k]).view(-1, self.config.draws[k])
            if x is None:
                around = embedding_bag(
                    rows[k + 1].view_as(weights), own, mode="sum", per_sample_weights=weights
                )
            else:
                around = (weights.unsqueeze(2) * x.view(*weights.shape, -1)).sum(1)
            x = embedding(rows[k], own) + around
        return embedding(rows[0], own) if x is None else x

    def _weights(self, hop: _Draws) -> Tensor:
        """What each draw counts; [draws]."""
        relations = entity_ids(hop.relations, self.device)
        weights = embedding(relations, self.module_.log_weight.weight)[:, 0].exp()
        return weights * torch.from_numpy(hop.shares).to(self.device)

    @torch.no_grad()
    def _settle(self, graph: KnowledgeGraph) -> None:
        """Propagate over all edges; scoring then needs only the result."""
        own = self.module_.vectors.weight.cpu().numpy()
        sizes = np.diff(graph.segment_starts)
        weights = self.module_.log_weight.weight[:, 0].exp().cpu().numpy()
        weights = weights[graph.segment_relations] / sizes
        edges = (np.repeat(weights.astype(np.float32), sizes), graph.tails, graph.indptr)
        matrix = csr_array(edges, shape=(graph.n_entities, graph.n_entities))
        x = own
        for _ in self.config.draws:
            x = own + matrix @ x
        self.vectors_ = normalize(torch.from_numpy(x).to(self.device))

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def score_items(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users; see ``Encoder.score_items``."""
        asked = entity_ids(users, self.device)
        items = slice(self.n_users_, self.n_users_ + self.n_items_)
        r = torch.tensor([INTERACTION], device=self.device)
        x = normalize(self.vectors_[asked] * self.module_.diagonal(r))
        scores = self.module_.scale(r) * (x @ self.vectors_[items].T)
        out: Floats = (scores + self.module_.bias.weight[items].T).cpu().numpy()
        return out

    @torch.no_grad()
    def tables(self) -> tuple[Floats, Floats, bool]:
        """The vectors of entities and of relations, for the path reasoner, and whether users are
        made from their items.

        The network stretches a head by d_r rather than moving it by r, so r is d_r − 1.
        """
        shifts = self.module_.diagonal.weight - 1
        return self.vectors_.cpu().numpy(), shifts.cpu().numpy(), True


class _Layers(nn.Module):
    """What the network learns."""

    def __init__(self, vectors: NDArray[np.float32], n_relations: int) -> None:
        super().__init__()
        n, d = vectors.shape
        self.vectors = nn.Embedding(n, d, _weight=torch.from_numpy(vectors))  # e
        halves = torch.full((2 * n_relations, 1), float(np.log(0.5)))
        self.log_weight = nn.Embedding(2 * n_relations, 1, _weight=halves)  # ln w
        self.diagonal = nn.Embedding(n_relations, d, _weight=torch.ones(n_relations, d))
        start = torch.full((n_relations, 1), float(np.log(GAMMA)))
        self.log_gamma = nn.Embedding(n_relations, 1, _weight=start)
        self.bias = nn.Embedding(n, 1, _weight=torch.zeros(n, 1))

    def scale(self, relations: Tensor) -> Tensor:
        """γ of relations; [relations, 1]."""
        scale: Tensor = self.log_gamma(relations).exp()
        return scale


def draw_neighbours(
    graph: KnowledgeGraph, entities: Ids, n: int, rng: np.random.Generator, apart: Ids | None = None
) -> _Draws:
    """n neighbours of each entity, each under a random one of its relations.

    Σ shares · w[relations] · x[neighbours] has the expectation Σ_r w_r · mean of x under r.
    Draws of ``apart`` don't count, and the entity's other draws count more instead.
    """
    first = np.repeat(graph.row_segments[entities], n)
    relations = np.repeat(graph.row_segments[entities + 1], n) - first
    size = len(entities) * n
    segments = first + (rng.random(size) * relations).astype(np.int64)
    segments = np.minimum(segments, len(graph.segment_relations) - 1)  # entities without any
    starts = graph.segment_starts[segments]
    lengths = graph.segment_starts[segments + 1] - starts
    neighbours = graph.tails[starts + (rng.random(size) * lengths).astype(np.int64)]
    counts = np.ones(size, dtype=bool) if apart is None else neighbours != np.repeat(apart, n)
    counts &= relations > 0
    valid = np.maximum(counts.reshape(-1, n).sum(1), 1)
    shares = (counts * relations / np.repeat(valid, n)).astype(np.float32)
    directed = graph.segment_relations[segments].astype(np.int64)
    return _Draws(neighbours.astype(np.int64), directed, shares)
