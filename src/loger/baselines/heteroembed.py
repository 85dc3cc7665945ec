"""HeteroEmbed (ECFKG): users, items and facts in one space of translations, ranked by a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from loger.baselines._shared import Noise, paced, relation_batches
from loger.baselines.matching import PathMatcher
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import RowAdam, chosen_device, entity_ids
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats, Ids
from loger.recommender import ExplainedItem, Recommender, part_matrix

NOISE = 5.0
"""k, the total weight of the negatives of one positive, as in the paper."""
NEGATIVES = 512
"""Number of negatives that a batch shares; k is spread over all of them."""
POWER = 0.75
"""Negatives are drawn ∝ frequency^power, separately for each relation (as in the paper)."""
FACTS_PER_INTERACTION = 3.0
"""Facts per epoch, as a multiple of the interactions, shared among relations ∝ √size."""


@dataclass(frozen=True, slots=True)
class HeteroEmbedConfig(TrainerConfig):
    """Settings of HeteroEmbed; defaults without a source come from validation of Beauty."""

    dimension: int = 100
    """As in PGPR, which starts from these vectors."""
    l2: float = 0.05
    """Strength of the pull of a step's vectors towards 0."""
    epochs: int = 20


class _Relation(NamedTuple):
    """The triples of a relation, and the noise that they are learned against."""

    heads: Ids
    tails: Ids
    first: int  # of the entities that tails may be
    biases: int  # where the biases of those begin
    noise: Noise


class HeteroEmbed(Recommender):
    """Ai, Azizi, Chen & Zhang, Algorithms 2018, "Learning Heterogeneous Knowledge Base
    Embeddings for Explainable Recommendation".

    Every relation, purchases too, is a translation: s(h, r, t) = ⟨h + r, t⟩ + b_rt. With t' drawn
    from P_r ∝ frequency^0.75 among the tails of r, k of them for each triple, the loss is

        −log σ(s(h,r,t) − log k P_r(t)) − Σ_t' log σ(−(s(h,r,t') − log k P_r(t'))),

    noise-contrastive estimation, under which s estimates log P(t | h, r). The paper leaves out the
    logarithms, so its scores are ratios to the noise rather than probabilities. Items are ranked
    by ⟨u + r_ui, v⟩ + b_v.

    Reasons are found afterwards, as in the paper: among all simple paths of up to three hops from
    user to item, those with the largest Π σ(s) over their facts.
    """

    name = "HeteroEmbed"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (0.02, 0.05, 0.1)}

    entities_: RowAdam  # [entities, dimension]
    relations_: RowAdam  # [relations, dimension]
    biases_: RowAdam  # [biases, 1]: b_rt, relation after relation
    _matcher: PathMatcher | None

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(HeteroEmbedConfig(), settings)
        check_numbers(self.config, dimension=1, epochs=1, batch=1, l2=0)
        self.device = chosen_device(self.config.device)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn all triples of the training graph together."""
        self._known = part_matrix(split, "train")
        return self.learn(split.graph, progress=progress)

    def learn(self, graph: KnowledgeGraph, *, progress: Progress = silent) -> Self:
        """Learn all triples of a graph together; enough to score, but not to explain."""
        self._graph, self._matcher = graph, None
        learned = self._start(graph)
        with one_thread():
            for epoch in range(self.config.epochs):
                self._epoch(learned, epoch, progress)
        progress(self.name, 1, 1)
        return self

    def _start(self, graph: KnowledgeGraph) -> list[_Relation]:
        """Sort triples by relation, count their tails and draw the first vectors."""
        heads, relations, tails = (x.astype(np.int64) for x in graph.triples())
        learned: list[_Relation] = []
        logs: list[NDArray[np.float64]] = []
        for r in range(len(graph.relations)):
            h, t = heads[relations == r], tails[relations == r]
            span = graph.vocabulary.span(graph.signature(r)[1])
            noise = Noise(np.bincount(t - span.start, minlength=len(span)), POWER)
            learned.append(_Relation(h, t, span.start, sum(map(len, logs)), noise))
            least = noise.shares[noise.shares > 0].min()
            logs.append(np.log(np.maximum(noise.shares, least)))
        rng = np.random.default_rng([self.config.seed, 0x4E7E])
        shape = (graph.n_entities, self.config.dimension)
        vectors = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        shifts = rng.standard_normal((len(learned), shape[1]), dtype=np.float32) * np.float32(0.1)
        # b_rt starts at what explains all of the noise: every s begins as log P_r(t).
        biases = np.concatenate(logs).astype(np.float32)[:, None]
        self.entities_, self.relations_, self.biases_ = (
            RowAdam(torch.from_numpy(x).to(self.device)) for x in (vectors, shifts, biases)
        )
        self._bias_starts = np.array([x.biases - x.first for x in learned])
        return learned

    def _epoch(self, learned: Sequence[_Relation], epoch: int, progress: Progress) -> None:
        """Go through all interactions and FACTS_PER_INTERACTION times as many facts."""
        c = self.config
        rng = np.random.default_rng([c.seed, 0xEC4, epoch])
        sizes = [len(x.heads) for x in learned]
        batches = relation_batches(sizes, c.batch, FACTS_PER_INTERACTION, rng)
        for (r, rows), rate in paced(self.name, c, epoch, batches, progress):
            noise = learned[r].noise.draw(NEGATIVES, rng)
            self._step(r, learned[r], rows, noise, rate)

    def _step(self, r: int, learned: _Relation, rows: Ids, noise: Ids, rate: float) -> None:
        """Update all rows that a batch touches, down the gradient of the mean loss."""
        c, table = self.config, self.entities_.table
        heads = entity_ids(learned.heads[rows], self.device)
        places = learned.tails[rows] - learned.first
        tails = entity_ids(learned.tails[rows], self.device)
        others = entity_ids(noise + learned.first, self.device)
        own, theirs = (entity_ids(x + learned.biases, self.device) for x in (places, noise))
        x, y, z = table[heads] + self.relations_.table[r], table[tails], table[others]
        good = (x * y).sum(1) + self.biases_.table[own, 0]  # [triples]
        bad = x @ z.mT + self.biases_.table[theirs, 0]  # [triples, negatives]
        good -= self._shift(learned, places)
        bad -= self._shift(learned, noise)
        each = NOISE / len(noise)
        slope = torch.sigmoid(-good).div_(-len(rows)).unsqueeze(1)  # of the loss, [triples, 1]
        slopes = torch.sigmoid(bad).mul_(each / len(rows))  # [triples, negatives]
        gx = slope * y + slopes @ z
        gradient = torch.cat([gx, slope * x, slopes.mT @ x])
        touched = torch.cat([heads, tails, others])
        if c.l2:
            pulled = torch.cat([table[heads], y, z])
            weights = torch.full((len(touched), 1), c.l2 / len(rows), device=self.device)
            weights[2 * len(rows) :] *= each
            gradient += weights * pulled
        self.entities_.update(touched, gradient, rate)
        here = torch.tensor([r], device=self.device)
        self.relations_.update(here, gx.sum(0, keepdim=True), rate)
        biases = torch.cat([slope, slopes.sum(0).unsqueeze(1)])
        self.biases_.update(torch.cat([own, theirs]), biases, rate)

    def _shift(self, learned: _Relation, places: Ids) -> Tensor:
        """log k P_r(t) of tails, by their place."""
        logs = np.log(NOISE * learned.noise.shares[places])
        shifts = logs.astype(np.float32)
        return torch.from_numpy(shifts).to(self.device)

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def score(self, users: ArrayLike) -> Floats:
        """⟨u + r_ui, v⟩ + b_v; [users, items]."""
        graph, table = self._graph, self.entities_.table
        x = table[entity_ids(users, self.device)] + self.relations_.table[INTERACTION]
        items = table[graph.n_users : graph.n_users + graph.n_items]
        biases = self.biases_.table[: graph.n_items, 0]  # interactions are the first relation
        out: Floats = (x @ items.mT).add_(biases).cpu().numpy()
        return out

    @torch.no_grad()
    def fact_scores(self, heads: ArrayLike, relations: ArrayLike, tails: ArrayLike) -> Floats:
        """⟨h + r, t⟩ + b_rt of triples of base relations."""
        h, r, t = (entity_ids(x, self.device) for x in (heads, relations, tails))
        starts = torch.from_numpy(self._bias_starts).to(self.device)
        x = self.entities_.table[h] + self.relations_.table[r]
        scores = (x * self.entities_.table[t]).sum(1) + self.biases_.table[starts[r] + t, 0]
        out: Floats = scores.cpu().numpy()
        return out

    # ── reasons ─────────────────────────────────────────────────────────────────────────

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The k best items of each user, each with its likeliest paths; see ``Explains``."""
        if self._matcher is None:
            self._matcher = PathMatcher(self._graph, self._edge_logs())
        return self._matcher.explained(self, self._known, users, k, paths)

    def _edge_logs(self) -> Floats:
        """log σ(s) of each edge; an inverse edge has that of its fact."""
        graph = self._graph
        count, head = len(graph.relations), graph.edge_heads()
        relation = graph.edge_relations().astype(np.int64)
        back = relation >= count
        facts = (
            np.where(back, graph.tails, head),
            np.where(back, relation - count, relation),
            np.where(back, head, graph.tails),
        )
        size = 1 << 17
        parts = [
            self.fact_scores(*(x[k : k + size] for x in facts)) for k in range(0, len(head), size)
        ]
        scores = np.concatenate([np.empty(0, np.float32), *parts])
        out: Floats = -np.logaddexp(np.float32(0), -scores)
        return out
