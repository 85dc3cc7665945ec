"""The path reasoner φ: an LSTM that walks the graph hop by hop and says where it would go next.

The cell (appendix of the paper), at a node with vector x, with memory c (zero at the user):

    a = σ(W_a x + b_a), attention over relations
    r̂ = Σ_r a_r r
    z = x + r̂
    i = σ(W_i [x; c] + b_i)
    c' = (1 − i) ⊙ c + i ⊙ tanh(W_c [z; x] + b_c)
    o = σ(W_o [z; x; c'] + b_o)
    ê = o ⊙ tanh(c')

A hop over r' to e' scores ⟨ê, e'⟩ + ⟨r̂, r'⟩. That is ``PAPER``. By default attention is a softmax
over the relations that leave the node, every gate sees the user as well, and the products are
cosines after a learned projection: a sigmoid over all relations is a sum of nearly all vectors,
and raw products with frozen vectors of many lengths mostly measure their lengths.

It learns from paths of observed pairs: a rule that fires, drawn ∝ max(w, 0), and one of its
groundings, drawn uniformly. At each hop the true relation and entity are to win by a margin.
The vectors come from the encoder and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from loger.encoder.training import Checkpoint, Parameters, load_arrays, module_arrays
from loger.engine import Engine, Progress, silent
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, gather
from loger.graph.arrays import Floats, Ids
from loger.grounding import ground, nth_paths
from loger.grounding.plans import compiled
from loger.reasoner.search import FINAL_RATE, MARGIN, NEIGHBOURS, STRANGERS, ReasonerConfig
from loger.rules import MAX_HOPS, RuleSet


@dataclass(frozen=True, eq=False)
class TrainingPaths:
    """Paths to learn from; what comes after the end of a path is -1."""

    entities: Ids  # [paths, MAX_HOPS + 1]
    relations: Ids  # [paths, MAX_HOPS]
    lengths: Ids  # [paths]
    rules: Ids  # [paths]

    def __len__(self) -> int:
        return len(self.lengths)


class Memory(NamedTuple):
    """Where some walks stand, one row each, and what the cell makes of it."""

    user: Tensor  # [walks, d]
    cell: Tensor  # [walks, d]: c'
    entity: Tensor  # [walks, d]: ê, as entities are compared with it
    relations: Tensor  # [walks, 2R]: the score of each relation


def training_paths(
    graph: KnowledgeGraph,
    rules: RuleSet,
    weights: ArrayLike,
    config: ReasonerConfig | None = None,
    engine: Engine | None = None,
) -> TrainingPaths:
    """Paths of observed pairs: rules drawn ∝ max(w, 0) among those that fire, groundings evenly.

    Pairs that no rule of positive weight fires for have no path.
    """
    config = config or ReasonerConfig()
    w = np.maximum(np.asarray(weights, dtype=np.float64), 0)
    if w.shape != (len(rules),) or not w.any():
        raise LogerError(
            f"the reasoner needs at least one rule of positive weight; got {len(rules)} rules, "
            f"weights of shape {w.shape}, {int((w > 0).sum())} of them positive"
        )
    w /= w.max()
    rng = np.random.default_rng([config.seed, 0x9A7B])
    users, items = _drawn_pairs(graph, config, rng)
    found = ground(graph, rules, users, items, engine=engine)
    cells = np.flatnonzero(w[found.rules] > 0)  # the others are never drawn
    starts = np.searchsorted(cells, found.indptr)
    before = np.concatenate([[0.0], np.cumsum(w[found.rules[cells]])])
    pairs = np.repeat(np.flatnonzero(np.diff(starts)), config.paths_per_pair)
    low, high = before[starts[pairs]], before[starts[pairs + 1]]
    at = np.searchsorted(before, low + rng.random(len(pairs)) * (high - low), side="right") - 1
    cells = cells[np.clip(at, starts[pairs], starts[pairs + 1] - 1)]  # rounding may reach over
    places = (rng.random(len(pairs)) * found.counts[cells]).astype(np.int64)
    chosen = found.rules[cells].astype(np.int64)
    relations = compiled(graph, rules).table[chosen]
    lengths = (relations >= 0).sum(axis=1)
    entities = nth_paths(graph, rules, chosen, users[pairs], items[pairs], places)
    return TrainingPaths(entities.astype(np.int64), relations, lengths, chosen)


def _drawn_pairs(
    graph: KnowledgeGraph, config: ReasonerConfig, rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """Observed pairs, for each user as many as its paths may come from."""
    heads, relations, tails = graph.triples()
    rows = np.flatnonzero(relations == INTERACTION)
    rows = rows[np.lexsort((rng.random(len(rows)), heads[rows]))]
    users = heads[rows].astype(np.int64)
    place = np.arange(len(users)) - np.searchsorted(users, users)
    kept = place < max(1, config.paths_per_user // config.paths_per_pair)
    return users[kept], tails[rows][kept].astype(np.int64) - graph.n_users


class Reasoner:
    """Walks from a user towards items; a ``StepScorer`` once it is fitted."""

    def __init__(self, config: ReasonerConfig | None = None) -> None:
        self.config = config or ReasonerConfig()

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(
        self,
        graph: KnowledgeGraph,
        rules: RuleSet,
        weights: ArrayLike,
        entity_vectors: Floats,
        relation_vectors: Floats,
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn to walk as the rules do, each as much as its weight says.

        The vectors are those of ``encoder.vectors``. With ``checkpoint`` (a folder) the state
        is saved after each epoch, and a fit of the same data and settings goes on from there.
        """
        self._start(graph, entity_vectors, relation_vectors)
        paths = training_paths(graph, rules, weights, self.config)
        course = (graph.fingerprint, self.config, [rule.relations for rule in rules])
        given = (np.asarray(weights), entity_vectors, relation_vectors)
        folder = None if checkpoint is None else Path(checkpoint) / "reasoner"
        saved = Checkpoint(folder, "reasoner", course, given)
        parameters = Parameters(self.module_)
        with one_thread():
            for epoch in range(saved.resume(parameters.tensors()), self.config.epochs):
                self._epoch(epoch, paths, parameters, progress)
                saved.save(epoch + 1, parameters.tensors())
        progress("training the reasoner", 1, 1)
        return self

    def _start(self, graph: KnowledgeGraph, entities: Floats, relations: Floats) -> None:
        """Take over the vectors and draw the first weights of the cell."""
        (n, d), kinds = entities.shape, 2 * len(graph.relations)
        if n != graph.n_entities or relations.shape != (kinds, d):
            raise LogerError(
                f"the reasoner needs vectors of {graph.n_entities} entities and {kinds} relations, "
                f"got {entities.shape} and {relations.shape}"
            )
        self.graph_ = graph
        self._entities, self._relations = torch.from_numpy(entities), torch.from_numpy(relations)
        self._answers, self._ways = self._entities, self._relations
        if self.config.likeness == "cosine":
            self._answers, self._ways = normalize(self._entities), normalize(self._relations)
        self.module_ = _Cell(d, len(relations), self.config)
        self.losses_: list[float] = []

    def _epoch(
        self, epoch: int, paths: TrainingPaths, parameters: Parameters, progress: Progress
    ) -> None:
        """Go once through all training paths."""
        config = self.config
        rng = np.random.default_rng([config.seed, 0x3A5E, epoch])
        order, losses = rng.permutation(len(paths)), []
        starts = range(0, len(order), config.batch)
        for k, start in enumerate(starts):
            loss = self._loss(paths, order[start : start + config.batch], rng)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
            done = (epoch + k / len(starts)) / config.epochs
            parameters.step(config.rate + done * (FINAL_RATE - config.rate))
            progress("training the reasoner", epoch * len(starts) + k, config.epochs * len(starts))
        self.losses_.append(float(np.mean(losses)) if losses else 0.0)

    def _loss(self, paths: TrainingPaths, rows: Ids, rng: np.random.Generator) -> Tensor:
        """Mean over hops of the hinge losses of relation and entity."""
        rows = rows[np.argsort(-paths.lengths[rows], kind="stable")]  # who walks on stays in front
        user = self._entities[paths.entities[rows, 0]]
        cell, total, hops = torch.zeros_like(user), torch.zeros(()), 0
        for hop in range(MAX_HOPS):
            n = int((paths.lengths[rows] > hop).sum())
            here, there = paths.entities[rows[:n], hop], paths.entities[rows[:n], hop + 1]
            memory = self._stand(here, cell[:n], user[:n])
            total = total + self._hinge_of_entities(memory, here, there, rng)
            total = total + self._hinge_of_relations(memory, here, paths.relations[rows[:n], hop])
            cell, hops = memory.cell, hops + n
        return total / max(hops, 1)

    def _hinge_of_entities(
        self, memory: Memory, here: Ids, there: Ids, rng: np.random.Generator
    ) -> Tensor:
        """Σ over hops of the mean shortfall against neighbours and strangers."""
        others = np.concatenate([self._neighbours(here, rng), self._strangers(there, rng)], axis=1)
        ids = np.concatenate([there[:, None], others], axis=1)
        scores = torch.bmm(self._answers[ids], memory.entity.unsqueeze(2)).squeeze(2)
        short = (MARGIN - scores[:, :1] + scores[:, 1:]).clamp(min=0)
        counted = torch.from_numpy((others != there[:, None]).astype(np.float32))
        return ((short * counted).sum(1) / counted.sum(1).clamp(min=1)).sum()

    def _hinge_of_relations(self, memory: Memory, here: Ids, way: Ids) -> Tensor:
        """Σ over hops of the mean shortfall against the other relations that leave the node."""
        rows = torch.arange(len(way))
        counted = self._leaving(here).float()
        counted[rows, torch.from_numpy(way)] = 0
        true = memory.relations[rows, torch.from_numpy(way)].unsqueeze(1)
        short = (MARGIN - true + memory.relations).clamp(min=0)
        return ((short * counted).sum(1) / counted.sum(1).clamp(min=1)).sum()

    def _neighbours(self, entities: Ids, rng: np.random.Generator) -> Ids:
        """Neighbours of each entity, drawn evenly; [entities, neighbours]."""
        first = self.graph_.indptr[entities][:, None]
        sizes = self.graph_.indptr[entities + 1][:, None] - first
        drawn = first + (rng.random((len(entities), NEIGHBOURS)) * sizes).astype(int)
        return np.asarray(self.graph_.tails[drawn], dtype=np.int64)

    def _strangers(self, entities: Ids, rng: np.random.Generator) -> Ids:
        """Entities of the type of each, drawn evenly; [entities, strangers]."""
        offsets = self.graph_.vocabulary.offsets
        kind = np.searchsorted(offsets, entities, side="right") - 1
        first, sizes = offsets[kind][:, None], np.diff(offsets)[kind][:, None]
        drawn = rng.random((len(entities), STRANGERS)) * sizes
        return np.asarray(first + drawn.astype(np.int64), dtype=np.int64)

    # ── walking ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def begin(self, user: int) -> Memory:
        """The memory of one walk that stands at the user."""
        here = self._entities[[user]]
        with one_thread():
            return self._stand(np.array([user]), torch.zeros_like(here), here)

    @torch.no_grad()
    def step_scores(self, state: Memory, rows: Ids, relations: Ids, entities: Ids) -> Floats:
        """Scores of hops: likeness of ê and e' plus that of r̂ and r'."""
        at = torch.from_numpy(np.ascontiguousarray(rows))
        to = torch.from_numpy(np.ascontiguousarray(entities))
        over = torch.from_numpy(np.ascontiguousarray(relations))
        with one_thread():
            likeness = (state.entity[at] * self._answers[to]).sum(1)
            return (likeness + state.relations[at, over]).numpy()

    @torch.no_grad()
    def advance(self, state: Memory, rows: Ids, relations: Ids, entities: Ids) -> Memory:
        """The memory of walks that went such hops."""
        at = torch.from_numpy(np.ascontiguousarray(rows))
        with one_thread():
            return self._stand(entities, state.cell[at], state.user[at])

    def _stand(self, here: Ids, cell: Tensor, user: Tensor) -> Memory:
        """Run the cell for walks that stand at some entities."""
        leaving = self._leaving(here) if self.config.attention == "softmax" else None
        x = self._entities[torch.from_numpy(np.ascontiguousarray(here))]
        entity, relation, memory = self.module_(x, cell, user, leaving, self._relations)
        if self.config.likeness == "cosine":
            entity = normalize(self.module_.to_entity(entity))
            relation = normalize(self.module_.to_relation(relation))
        return Memory(user, memory, entity, relation @ self._ways.T)

    def _leaving(self, entities: Ids) -> Tensor:
        """Which relations leave each entity; [entities, 2R]."""
        graph = self.graph_
        first = graph.row_segments[entities]
        rows, segments = gather(first, graph.row_segments[entities + 1] - first)
        out = np.zeros((len(entities), 2 * len(graph.relations)), dtype=bool)
        out[rows, graph.segment_relations[segments]] = True
        return torch.from_numpy(out)

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that was learned; the vectors are the encoder's."""
        return module_arrays(self.module_)

    def load_state(
        self,
        graph: KnowledgeGraph,
        entity_vectors: Floats,
        relation_vectors: Floats,
        state: Mapping[str, NDArray[np.generic]],
    ) -> Self:
        """Take over what ``state`` gave."""
        self._start(graph, entity_vectors, relation_vectors)
        load_arrays(self.module_, state, "a reasoner")
        return self


class _Cell(nn.Module):
    """The equations at the top of this module."""

    def __init__(self, d: int, n_relations: int, config: ReasonerConfig) -> None:
        super().__init__()
        self.config = config
        user = d if config.sees_user else 0
        self.attend = nn.Linear(d + user, n_relations)  # W_a
        self.take_in = nn.Linear(2 * d + user, d)  # W_i
        self.context = nn.Linear(2 * d + user, d)  # W_c
        self.give_out = nn.Linear(3 * d + user, d)  # W_o
        if config.likeness == "cosine":
            self.to_entity, self.to_relation = nn.Linear(d, d), nn.Linear(d, d)
        rng = np.random.default_rng([config.seed, 0xCE11])
        with torch.no_grad():
            for layer in self.children():
                assert isinstance(layer, nn.Linear)
                bound = layer.in_features**-0.5
                drawn = rng.uniform(-bound, bound, size=tuple(layer.weight.shape))
                layer.weight.copy_(torch.from_numpy(drawn))
                layer.bias.zero_()

    def forward(
        self, x: Tensor, cell: Tensor, user: Tensor, leaving: Tensor | None, relations: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(ê, r̂, c') of walks at x with memory c; each [walks, d]."""
        seen = (user,) if self.config.sees_user else ()
        a = self.attend(torch.cat([x, *seen], 1))  # [walks, 2R]
        # Not -inf: where no relation leaves, all are alike.
        a = a.sigmoid() if leaving is None else a.masked_fill(~leaving, -1e9).softmax(1)
        r = a @ relations
        z = x + r
        i = self.take_in(torch.cat([x, cell, *seen], 1)).sigmoid()
        c = (1 - i) * cell + i * self.context(torch.cat([z, x, *seen], 1)).tanh()
        o = self.give_out(torch.cat([z, x, c, *seen], 1)).sigmoid()
        return o * c.tanh(), r, c
