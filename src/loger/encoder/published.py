"""TransE trained like in the authors' code, for the preset ``paper-literal``.

The loss is self-adversarial negative sampling (Sun et al. 2019):
½[−log σ(s⁺) − Σ_j a_j log σ(−s_j)] with a = softmax(s) without gradient and s = γ − ‖h + r − t‖.
There are no biases. Vectors start uniform within ±(γ + 2)/d, Adam updates the whole table, triples
are drawn evenly, and heads and tails are sought in turn.

Where the paper and its code differ, or would take hours, we chose as follows. d = 100 and batches
of 512 are the paper's (the code has 1,000 and 256); γ = 24 and 150,000 steps are the code's. All
triples of a batch have the same relation and share 256 negatives of the sought type, because only
items are ranked. The learning rate falls linearly to a tenth, not at once after half of the steps.
An E-step continues training; the code starts again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from loger.encoder.training import BETA_1, BETA_2, EPSILON, RowAdam
from loger.encoder.transe import State
from loger.encoder.transe_training import Training, _Batch, scores_of
from loger.engine import Progress
from loger.errors import LogerError
from loger.graph import KnowledgeGraph

NEGATIVES = 256
STEPS = 5000
"""Steps in an epoch; a checkpoint is written after each."""


class DenseAdam(RowAdam):
    """Adam over a whole table at the cost of some rows.

    A row makes the steps that it missed when it is read the next time. With a gradient of 0, the
    k-th of these moves it by m β₁ᵏ / √(v β₂ᵏ).
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__(table)
        self.seen = torch.zeros(len(table), dtype=torch.int64, device=table.device)

    def tensors(self) -> dict[str, Tensor]:
        """The state, with the number of steps that each row has made."""
        return {**super().tensors(), "seen": self.seen}

    def advance(self, rows: Tensor, rate: float) -> None:
        """Bring rows to the present step."""
        now, rows = int(self.steps), torch.unique(rows)
        missed = (now - self.seen[rows]).unsqueeze(1).float()
        ratio = BETA_1 / BETA_2**0.5
        moved = rate * ratio * (1 - ratio**missed) / (1 - ratio)
        first, second = self.first[rows], self.second[rows]
        self.table[rows] -= moved * first / (second.sqrt() + EPSILON).unsqueeze(1)
        self.first[rows] = first * BETA_1**missed
        self.second[rows] = second * (BETA_2**missed).squeeze(1)
        self.seen[rows] = now

    def update(self, rows: Tensor, *step: Any, **more: Any) -> None:
        """A step of rows that are at the present step."""
        super().update(rows, *step, **more)
        self.seen[rows] = int(self.steps)


class Published(Training):
    """One fit like in the authors' code. Ranks don't share it: each would make all of it."""

    entities: DenseAdam
    relations: DenseAdam
    biases: DenseAdam

    def _epochs(self) -> int:
        return self.config.epochs

    def _start(self, graph: KnowledgeGraph) -> None:
        """Draw the initial vectors."""
        rng = np.random.default_rng([self.config.seed, 0xE4C0])
        d, end = self.config.dimension, (self.config.gamma + 2) / self.config.dimension
        sizes = graph.n_entities, len(graph.relations)
        drawn = [rng.uniform(-end, end, (n, d)).astype(np.float32) for n in sizes]
        self.entities, self.relations, self.biases = (
            DenseAdam(torch.from_numpy(x).to(self.device))
            for x in (*drawn, np.zeros((graph.n_entities, 1), dtype=np.float32))
        )

    def _prepare(self, graph: KnowledgeGraph) -> None:
        super()._prepare(graph)
        if self.config.users != "free":
            raise LogerError("the loss 'adversarial' needs users='free', as in the authors' code")
        for part in (self.entities, self.relations, self.biases):
            part.seen.fill_(int(part.steps))  # a warm fit starts with all rows at this step

    def learned(self) -> State:
        """What was learned so far, with all rows at the present step."""
        for part in (self.entities, self.relations):
            part.advance(torch.arange(len(part.table), device=self.device), self.config.final_rate)
        return {k: array for k, array in super().learned().items() if not k.endswith(".seen")}

    def _epoch(self, epoch: int, epochs: int, progress: Progress) -> None:
        """Steps on triples of one relation, drawn in proportion to its number of triples."""
        triples = [self._interactions(epoch), *self._triples[1:]]
        sizes = np.array([len(heads) for heads, _ in triples])
        for k in range(epoch * STEPS, (epoch + 1) * STEPS):
            rng = np.random.default_rng([self.config.seed, k, self.warm])
            r = int(rng.choice(len(sizes), p=sizes / sizes.sum()))
            rows = rng.integers(sizes[r], size=self.config.batch)
            heads, tails = (ids[rows] for ids in triples[r])
            back = bool(k % 2)
            batch = _Batch(r, *((tails, heads) if back else (heads, tails)), head_sought=back)
            self._step(batch, self.config.rate_after(k / (epochs * STEPS)), rng)
            if k % 50 == 0:
                progress("training the encoder", k, epochs * STEPS)

    @torch.no_grad()
    def _step(self, batch: _Batch, rate: float, rng: np.random.Generator) -> Tensor:
        """Make one step; returns the mean loss."""
        span = self._spans[batch.relation][0 if batch.head_sought else 1]
        drawn = rng.integers(span.start, span.stop, size=NEGATIVES)
        n, config = len(batch.given), self.config
        rows = torch.from_numpy(np.concatenate([batch.given, batch.sought, drawn]))
        rows = rows.to(self.device)
        relation = torch.tensor([batch.relation], device=self.device)
        self.entities.advance(rows, rate)
        self.relations.advance(relation, rate)
        shift = self.relations.table[relation]
        vectors = self.entities.table[rows]
        given, true, wrong = vectors[:n], vectors[n : 2 * n], vectors[2 * n :]
        sign = -1 if batch.head_sought else 1  # the head is near t − r
        x = given + sign * shift
        best, of_best = scores_of(x.unsqueeze(1), true.unsqueeze(1), config.gamma, config.distance)
        scores, of_scores = scores_of(x, wrong, config.gamma, config.distance)
        same = torch.from_numpy(batch.sought[:, None] == drawn).to(self.device)
        share = torch.softmax(scores.masked_fill(same, -torch.inf), -1)
        loss = 0.5 * (softplus(-best).mean() + (share * softplus(scores)).sum(-1).mean())
        gx, gy = of_scores(0.5 * share * torch.sigmoid(scores) / n)
        bx, by = of_best(-0.5 * torch.sigmoid(-best) / n)
        gx = gx + bx.squeeze(1)
        self.entities.update(rows, torch.cat([gx, by.squeeze(1), gy]), rate)
        self.relations.update(relation, sign * gx.sum(0, keepdim=True), rate)
        return loss
