"""The path reasoner φ: an LSTM that walks the graph hop by hop and scores where to go next.

The cell (appendix of the paper) at a node with vector x and memory c, which is zero at the user:

    a = σ(W_a x + b_a), attention over relations
    r̂ = Σ_r a_r r
    z = x + r̂
    i = σ(W_i [x; c] + b_i)
    c' = (1 − i) ⊙ c + i ⊙ tanh(W_c [z; x] + b_c)
    o = σ(W_o [z; x; c'] + b_o)
    ê = o ⊙ tanh(c')

A hop over r' to e' scores ⟨ê, e'⟩ + ⟨r̂, r'⟩. That is ``PAPER``. By default, attention is a softmax
over the relations that leave the node, every gate also sees the user, and the products are cosines
after a learned projection. A sigmoid over all relations would add up nearly all vectors, and
products with vectors of very different lengths would mostly measure these lengths.

It learns from paths of observed pairs: a rule that fires, drawn ∝ max(w, 0), and one of its
groundings, drawn uniformly. At each hop, the true relation and entity should win by a margin. The
vectors come from the encoder and stay as they are.
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
from loger.reasoner.search import ReasonerConfig
from loger.rules import MAX_HOPS, RuleSet

MARGIN = 0.2
"""By how much the true hop should win."""
NEIGHBOURS, STRANGERS = 8, 8
"""The true entity is compared with neighbours of the node and random entities of its type."""
PATHS_PER_PAIR, PATHS_PER_USER = 2, 20
"""Training paths per observed pair, and the most per user."""
BATCH = 512
RATE, FINAL_RATE = 3e-3, 3e-4
"""Learning rates at the start and at the end."""


@dataclass(frozen=True, eq=False)
class TrainingPaths:
    """Paths to learn from, filled up with -1."""

    entities: Ids  # [paths, MAX_HOPS + 1]
    relations: Ids  # [paths, MAX_HOPS]
    lengths: Ids  # [paths]
    rules: Ids  # [paths]

    def __len__(self) -> int:
        return len(self.lengths)


class Memory(NamedTuple):
    """The state of some walks, one row each, and the cell's output for it."""

    user: Tensor  # [walks, d]
    cell: Tensor  # [walks, d]: c'
    entity: Tensor  # [walks, d]: ê, with which entities are compared
    relations: Tensor  # [walks, 2R]: the score of each relation


def training_paths(
    graph: KnowledgeGraph,
    rules: RuleSet,
    weights: ArrayLike,
    seed: int = 0,
    *,
    per_pair: int = PATHS_PER_PAIR,
    per_user: int = PATHS_PER_USER,
    engine: Engine | None = None,
) -> TrainingPaths:
    """Paths of observed pairs: rules drawn ∝ max(w, 0) among those that fire, groundings evenly.

    Args:
        graph: what the paths lead over.
        rules: which paths there are.
        weights: of the rules.
        seed: of the draws.
        per_pair: paths of each observed pair for which a rule of positive weight fires.
        per_user: the most paths of a user.
        engine: where the work runs.
    """
    w = np.maximum(np.asarray(weights, dtype=np.float64), 0)
    if w.shape != (len(rules),) or not w.any():
        raise LogerError(
            f"the reasoner needs a rule of positive weight; got {len(rules)} rules and weights of "
            f"shape {w.shape}, {int((w > 0).sum())} of them positive"
        )
    w /= w.max()
    rng = np.random.default_rng([seed, 0x9A7B])
    users, items = _drawn_pairs(graph, max(1, per_user // per_pair), rng)
    found = ground(graph, rules, users, items, engine=engine)
    cells = np.flatnonzero(w[found.rules] > 0)  # the others are never drawn
    starts = np.searchsorted(cells, found.indptr)
    before = np.concatenate([[0.0], np.cumsum(w[found.rules[cells]])])
    pairs = np.repeat(np.flatnonzero(np.diff(starts)), per_pair)
    low, high = before[starts[pairs]], before[starts[pairs + 1]]
    at = np.searchsorted(before, low + rng.random(len(pairs)) * (high - low), side="right") - 1
    cells = cells[np.clip(at, starts[pairs], starts[pairs + 1] - 1)]  # rounding may overshoot
    places = (rng.random(len(pairs)) * found.counts[cells]).astype(np.int64)
    chosen = found.rules[cells].astype(np.int64)
    relations = compiled(graph, rules).table[chosen]
    lengths = (relations >= 0).sum(axis=1)
    entities = nth_paths(graph, rules, chosen, users[pairs], items[pairs], places)
    return TrainingPaths(entities.astype(np.int64), relations, lengths, chosen)


def _drawn_pairs(graph: KnowledgeGraph, most: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """At most ``most`` random observed pairs of each user."""
    heads, relations, tails = graph.triples()
    rows = np.flatnonzero(relations == INTERACTION)
    rows = rows[np.lexsort((rng.random(len(rows)), heads[rows]))]
    users = heads[rows].astype(np.int64)
    place = np.arange(len(users)) - np.searchsorted(users, users)
    kept = place < most
    return users[kept], tails[rows][kept].astype(np.int64) - graph.n_users


class Reasoner:
    """Scores walks from a user towards items; once fitted, it is a ``StepScorer``."""

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
        """Learn to follow the rules in proportion to their weights.

        Args:
            graph: where to walk.
            rules: what to follow.
            weights: of the rules.
            entity_vectors: from ``encoder.folding.vectors``, like those of relations.
            relation_vectors: inverse relations last.
            checkpoint: a folder in which the state is saved after each epoch. A fit of the same
                data and settings continues from there.
            progress: is called with each step.
        """
        self._start(graph, entity_vectors, relation_vectors)
        paths = training_paths(graph, rules, weights, self.config.seed)
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
        """Set the vectors and draw the initial weights of the cell."""
        (n, d), kinds = entities.shape, 2 * len(graph.relations)
        if n != graph.n_entities or relations.shape != (kinds, d):
            raise LogerError(
                f"the reasoner needs vectors of {graph.n_entities} entities and {kinds} relations, "
                f"got shapes {entities.shape} and {relations.shape}"
            )
        self.graph_ = graph
        self._entities, self._relations = torch.from_numpy(entities), torch.from_numpy(relations)
        self._answers, self._ways = self._entities, self._relations
        if self.config.cell == "softmax":
            self._answers, self._ways = normalize(self._entities), normalize(self._relations)
        self.module_ = _Cell(d, len(relations), self.config)
        self.losses_: list[float] = []

    def _epoch(
        self, epoch: int, paths: TrainingPaths, parameters: Parameters, progress: Progress
    ) -> None:
        """Train on all paths once."""
        config = self.config
        rng = np.random.default_rng([config.seed, 0x3A5E, epoch])
        order, losses = rng.permutation(len(paths)), []
        starts = range(0, len(order), BATCH)
        for k, start in enumerate(starts):
            loss = self._loss(paths, order[start : start + BATCH], rng)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
            done = (epoch + k / len(starts)) / config.epochs
            parameters.step(RATE + done * (FINAL_RATE - RATE))
            progress("training the reasoner", epoch * len(starts) + k, config.epochs * len(starts))
        self.losses_.append(float(np.mean(losses)) if losses else 0.0)

    def _loss(self, paths: TrainingPaths, rows: Ids, rng: np.random.Generator) -> Tensor:
        """Mean over hops of the hinge losses of relation and entity."""
        rows = rows[np.argsort(-paths.lengths[rows], kind="stable")]  # longer paths come first
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
        """Σ over hops of the mean shortfall compared with neighbours and strangers."""
        others = np.concatenate([self._neighbours(here, rng), self._strangers(there, rng)], axis=1)
        ids = np.concatenate([there[:, None], others], axis=1)
        scores = torch.bmm(self._answers[ids], memory.entity.unsqueeze(2)).squeeze(2)
        short = (MARGIN - scores[:, :1] + scores[:, 1:]).clamp(min=0)
        counted = torch.from_numpy((others != there[:, None]).astype(np.float32))
        return ((short * counted).sum(1) / counted.sum(1).clamp(min=1)).sum()

    def _hinge_of_relations(self, memory: Memory, here: Ids, way: Ids) -> Tensor:
        """Σ over hops of the mean shortfall compared with other relations that leave the node."""
        rows = torch.arange(len(way))
        counted = self._leaving(here).float()
        counted[rows, torch.from_numpy(way)] = 0
        true = memory.relations[rows, torch.from_numpy(way)].unsqueeze(1)
        short = (MARGIN - true + memory.relations).clamp(min=0)
        return ((short * counted).sum(1) / counted.sum(1).clamp(min=1)).sum()

    def _neighbours(self, entities: Ids, rng: np.random.Generator) -> Ids:
        """Random neighbours of each entity; [entities, neighbours]."""
        first = self.graph_.indptr[entities][:, None]
        sizes = self.graph_.indptr[entities + 1][:, None] - first
        drawn = first + (rng.random((len(entities), NEIGHBOURS)) * sizes).astype(int)
        return np.asarray(self.graph_.tails[drawn], dtype=np.int64)

    def _strangers(self, entities: Ids, rng: np.random.Generator) -> Ids:
        """Random entities of each entity's type; [entities, strangers]."""
        offsets = self.graph_.vocabulary.offsets
        kind = np.searchsorted(offsets, entities, side="right") - 1
        first, sizes = offsets[kind][:, None], np.diff(offsets)[kind][:, None]
        drawn = rng.random((len(entities), STRANGERS)) * sizes
        return np.asarray(first + drawn.astype(np.int64), dtype=np.int64)

    # ── walking ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def begin(self, user: int) -> Memory:
        """The state of one walk that starts at the user."""
        here = self._entities[[user]]
        with one_thread():
            return self._stand(np.array([user]), torch.zeros_like(here), here)

    @torch.no_grad()
    def step_scores(self, state: Memory, rows: Ids, relations: Ids, entities: Ids) -> Floats:
        """Scores of hops: similarity of ê and e' plus that of r̂ and r'."""
        at = torch.from_numpy(np.ascontiguousarray(rows))
        to = torch.from_numpy(np.ascontiguousarray(entities))
        over = torch.from_numpy(np.ascontiguousarray(relations))
        with one_thread():
            similarity = (state.entity[at] * self._answers[to]).sum(1)
            return (similarity + state.relations[at, over]).numpy()

    @torch.no_grad()
    def advance(self, state: Memory, rows: Ids, relations: Ids, entities: Ids) -> Memory:
        """The state after these hops."""
        at = torch.from_numpy(np.ascontiguousarray(rows))
        with one_thread():
            return self._stand(entities, state.cell[at], state.user[at])

    def _stand(self, here: Ids, cell: Tensor, user: Tensor) -> Memory:
        """Run the cell for walks that are at some entities."""
        ours = self.config.cell == "softmax"
        leaving = self._leaving(here) if ours else None
        x = self._entities[torch.from_numpy(np.ascontiguousarray(here))]
        entity, relation, memory = self.module_(x, cell, user, leaving, self._relations)
        if ours:
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
        """Everything that was learned; the vectors are the encoder's."""
        return module_arrays(self.module_)

    def load_state(
        self,
        graph: KnowledgeGraph,
        entity_vectors: Floats,
        relation_vectors: Floats,
        state: Mapping[str, NDArray[np.generic]],
    ) -> Self:
        """Restore what ``state`` returned."""
        self._start(graph, entity_vectors, relation_vectors)
        load_arrays(self.module_, state, "a reasoner")
        return self


class _Cell(nn.Module):
    """The equations at the top of this module."""

    def __init__(self, d: int, n_relations: int, config: ReasonerConfig) -> None:
        super().__init__()
        self.sees_user = config.cell == "softmax"
        user = d if self.sees_user else 0
        self.attend = nn.Linear(d + user, n_relations)  # W_a
        self.take_in = nn.Linear(2 * d + user, d)  # W_i
        self.context = nn.Linear(2 * d + user, d)  # W_c
        self.give_out = nn.Linear(3 * d + user, d)  # W_o
        if config.cell == "softmax":
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
        seen = (user,) if self.sees_user else ()
        a = self.attend(torch.cat([x, *seen], 1))  # [walks, 2R]
        # Not -inf, which would give NaN for a node that no relation leaves.
        a = a.sigmoid() if leaving is None else a.masked_fill(~leaving, -1e9).softmax(1)
        r = a @ relations
        z = x + r
        i = self.take_in(torch.cat([x, cell, *seen], 1)).sigmoid()
        c = (1 - i) * cell + i * self.context(torch.cat([z, x, *seen], 1)).tanh()
        o = self.give_out(torch.cat([z, x, c, *seen], 1)).sigmoid()
        return o * c.tanh(), r, c
