"""CKE: an item is the sum of what users and what the knowledge graph say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid

from loger.baselines._shared import Unseen, paced, relation_batches
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import Parameters, chosen_device, entity_ids
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats, Ids
from loger.recommender import Recommender, part_matrix

NEGATIVES = 4
"""Number of items that a user doesn't have, drawn for each one they have."""
FACTS_PER_INTERACTION = 4.0
"""Facts per epoch, as a multiple of the interactions, shared among relations ∝ √size."""


@dataclass(frozen=True, slots=True)
class CKEConfig(TrainerConfig):
    """Settings of CKE; defaults without a source come from validation of Beauty."""

    dimension: int = 64
    """Length of all vectors, including those of relations."""
    l2: float = 0.2
    """λ of the vectors in a batch."""
    epochs: int = 15


class CKE(Recommender):
    """Zhang, Yuan, Lian, Xie & Ma, KDD 2016, "Collaborative Knowledge Base Embedding for
    Recommender Systems", with its structural knowledge; there are neither texts nor images here.

    An item is the sum of a vector η_v of its own and its vector e_v as an entity:

        score(u, v) = ⟨u, η_v + e_v⟩.

    It learns two losses together: BPR, −log σ(score(u, v) − score(u, v')) for items v' that u
    doesn't have, and TransR on the facts about items, −log σ(d(h, r, t') − d(h, r, t)) with
    d(h, r, t) = ‖M_r h + r − M_r t‖² and t' of the type of t. λ draws vectors to 0.
    Facts about users aren't used.
    """

    name = "CKE"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (0.1, 0.2, 0.4)}

    vectors_: _Vectors

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(CKEConfig(), settings)
        check_numbers(self.config, dimension=1, epochs=1, batch=1, l2=0)
        self.device = chosen_device(self.config.device)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn pairs and facts together, batch by batch."""
        c = self.config
        triples = item_facts(split.graph)
        unseen = Unseen(part_matrix(split, "train"))
        self.vectors_ = _Vectors(split.graph, c.dimension, c.seed).to(self.device)
        parameters = Parameters(self.vectors_)
        with one_thread():
            for epoch in range(c.epochs):
                rng = np.random.default_rng([c.seed, 0xC4E, epoch])
                sizes = [len(x.heads) for x in triples]
                batches = relation_batches(sizes, c.batch, FACTS_PER_INTERACTION, rng)
                for (r, rows), rate in paced(self.name, c, epoch, batches, progress):
                    self._loss(r, triples[r], rows, unseen, rng).backward()  # type: ignore[no-untyped-call]
                    parameters.step(rate)
        progress(self.name, 1, 1)
        return self

    def _loss(
        self, r: int, triples: Triples, rows: Ids, unseen: Unseen, rng: np.random.Generator
    ) -> Tensor:
        """The mean loss of a batch of one relation, with its share of λ."""
        heads, tails = triples.heads[rows], triples.tails[rows]
        if r == INTERACTION:
            others = unseen.draw(np.repeat(heads, NEGATIVES), rng)
            loss, size = self.vectors_.pairs(*self._ids(heads, tails, others))
        else:
            others = rng.integers(triples.first, triples.stop, size=len(rows))
            loss, size = self.vectors_.facts(r, *self._ids(heads, tails, others))
        return loss + self.config.l2 * size

    def _ids(self, *ids: Ids) -> list[Tensor]:
        return [entity_ids(x, self.device) for x in ids]

    @torch.no_grad()
    def score(self, users: ArrayLike) -> Floats:
        """⟨u, η_v + e_v⟩; [users, items]."""
        v = self.vectors_
        items = v.items.weight + v.entities.weight[: len(v.items.weight)]
        out: Floats = (v.users.weight[entity_ids(users, self.device)] @ items.mT).cpu().numpy()
        return out


class Triples(NamedTuple):
    """The triples of a relation, and the range of possible tails. Entities are numbered from the
    first item; the heads of interactions are users, by their own number."""

    heads: Ids
    tails: Ids
    first: int
    stop: int


def item_facts(graph: KnowledgeGraph) -> list[Triples]:
    """Interactions and facts by relation; relations that lead from or to users are empty."""
    heads, relations, tails = (x.astype(np.int64) for x in graph.triples())
    out: list[Triples] = []
    for r in range(len(graph.relations)):
        mine = relations == r
        if r != INTERACTION and "user" in graph.signature(r):
            mine &= False
        span = graph.vocabulary.span(graph.signature(r)[1])
        from_users = 0 if r == INTERACTION else graph.n_users
        bounds = (x - graph.n_users for x in (span.start, span.stop))
        out.append(Triples(heads[mine] - from_users, tails[mine] - graph.n_users, *bounds))
    return out


class _Vectors(nn.Module):
    """Everything that is learned."""

    def __init__(self, graph: KnowledgeGraph, dimension: int, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng([seed, 0xC4E0])

        def table(n: int, scale: float = 0.1) -> nn.Embedding:
            start = rng.standard_normal((n, dimension), dtype=np.float32) * np.float32(scale)
            return nn.Embedding(n, dimension, _weight=torch.from_numpy(start))

        n = len(graph.relations)
        self.users, self.items = table(graph.n_users), table(graph.n_items)
        self.entities = table(graph.n_entities - graph.n_users)
        self.relations = table(n)
        same = torch.eye(dimension).flatten().repeat(n, 1)
        self.projections = nn.Embedding(n, dimension * dimension, _weight=same)  # M_r

    def pairs(self, users: Tensor, items: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """BPR of pairs, each against its share of the other items; and the size of the vectors."""
        u = self.users(users)  # [pairs, dimension]
        both = torch.cat([items, others])
        own, of_graph = self.items(both), self.entities(both)
        v = own + of_graph
        good = (u * v[: len(items)]).sum(1, keepdim=True)  # [pairs, 1]
        bad = (v[len(items) :].view(len(u), -1, u.shape[1]) @ u.unsqueeze(2)).squeeze(2)
        loss = -logsigmoid(good - bad).mean()
        size = u.square().sum() + (own.square() + of_graph.square()).sum() / (1 + bad.shape[1])
        return loss, 0.5 * size / len(u)

    def facts(self, r: int, heads: Tensor, tails: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """TransR of facts of one relation, each against one other tail; and their size."""
        h, t, o = (self.entities(x) for x in (heads, tails, others))  # [facts, dimension]
        loss = transr_loss(h, t, o, *self.relation(r))
        size = (h.square() + 0.5 * (t.square() + o.square())).sum() / len(h)
        return loss, 0.5 * size

    def relation(self, r: int) -> tuple[Tensor, Tensor]:
        """r and M_r, which stands on the right of vectors; [dimension], [dimension, dimension]."""
        here = torch.tensor([r], device=self.relations.weight.device)
        shift = embedding(here, self.relations.weight, sparse=True)[0]
        projection = embedding(here, self.projections.weight, sparse=True)
        return shift, projection.view(len(shift), len(shift))


def transr_loss(h: Tensor, t: Tensor, other: Tensor, shift: Tensor, projection: Tensor) -> Tensor:
    """Mean −log σ(d(h, r, t') − d(h, r, t)) of facts [facts, dimension] of one relation, with
    d(h, r, t) = ‖h M + r − t M‖²; ``shift`` is r and ``projection`` M."""
    near = ((h - t) @ projection + shift).square().sum(1)
    far = ((h - other) @ projection + shift).square().sum(1)
    return -logsigmoid(far - near).mean()


__all__ = ["CKE", "CKEConfig"]
