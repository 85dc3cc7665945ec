"""TransE (Bordes et al. 2013), the paper's encoder, with users made of their history.

Score. With x = head + relation and y the tail, s = γ − dist(x, y) + bias_t, where dist is

- ``sphere`` (default): γ/2 · ‖x/‖x‖ − y/‖y‖‖², squared L2 of unit vectors: s = γ·cos + bias_t,
- ``squared``: ‖x − y‖², or ``l1``: ‖x − y‖₁, as in METHOD 2.

Users. A user has no vector of its own: u = Σ_{i ∈ history} e_i / √n, and when (u, v) is the triple
being learned, v is left out of the sum, so that a purchase does not explain itself. A user that was
not there at training is folded in the same way. ``users="free"`` gives every user a row instead.

Loss. All negatives are shared and of the true entity's type, so scoring is a matrix product:

- ``softmax`` (default): cross-entropy of the true tail among the batch's distinct tails, and for
  interactions less log P(item is among them), which undoes the popularity of in-batch negatives;
- ``adversarial``: ½[−log σ(s⁺) − Σ_j a_j log σ(−s_j)], a = softmax(T·s), no gradient (METHOD 2).

Gradients are in closed form, and only the rows that a batch touches are read or written. Every
choice of default was made on validation; docs/results.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import softplus

from loger.encoder.distance import Distance, scores_of, unit
from loger.encoder.folding import EncoderParts
from loger.encoder.histories import Bags, Histories
from loger.encoder.protocol import Floats
from loger.engine import Progress, silent
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.training.checkpoint import Checkpoint
from loger.training.loop import HiddenPairs
from loger.training.rows import RowAdam


@dataclass(frozen=True, slots=True)
class TransEConfig:
    """Settings of TransE; the defaults are those that validation chose on the Amazon sets."""

    dimension: int = 100
    """As in the paper."""
    distance: Distance = "sphere"
    gamma: float = 8.0
    """γ of the scores of interactions …"""
    fact_gamma: float = 10.0
    """… and of all other relations."""
    users: Literal["history", "free"] = "history"
    max_history: int = 64
    """A user of more items is summed, in training, over so many drawn anew each time."""
    loss: Literal["softmax", "adversarial"] = "softmax"
    temperature: float = 1.0
    """T of the adversarial loss."""
    epochs: int = 8
    max_interactions: int = 3_500_000
    """Fewer epochs, but at least two, where all of them would visit more interactions than this:
    `ml1m` is best after 4 (validation NDCG@10 13.36 against 13.18 after 8)."""
    warm_epochs: int = 2
    """Epochs of a fit that starts warm, as in the E-step."""
    batch: int = 1024
    group: int | None = None
    """So many triples of a batch share their tails as negatives; None: the whole batch."""
    facts_per_interaction: float = 2.0
    """Facts per epoch, as a multiple of the interactions, shared among relations ∝ √size."""
    head_share: float = 0.5
    """Share of the batches of facts in which the head is to be found, not the tail."""
    rate: float = 1e-2
    final_rate: float = 1e-3
    """The learning rate falls linearly from the one to the other."""
    seed: int = 0
    device: str | None = None
    """Where to train; None takes a GPU if there is one."""


class _Batch(NamedTuple):
    """Triples of one relation; the side ``given`` is known, ``sought`` is to be found."""

    relation: int
    given: NDArray[np.int64]
    sought: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    head_sought: bool


class TransE:
    """The default encoder."""

    def __init__(self, config: TransEConfig | None = None) -> None:
        self.config = config or TransEConfig()
        wanted = self.config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device(wanted)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(
        self,
        graph: KnowledgeGraph,
        *,
        hidden: HiddenPairs | None = None,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph; see ``Encoder.fit``."""
        if not warm:
            self._start(graph)
        elif not hasattr(self, "entities_"):
            raise LogerError("a warm fit needs a fit before it")
        self._prepare(graph, hidden)
        epochs = self.config.warm_epochs if warm else self._epochs()
        begun = self._tensors() if warm else None
        saved = Checkpoint(checkpoint, graph.fingerprint, self.config, hidden, begun)
        first = saved.resume(self._tensors())
        with one_thread():
            for epoch in range(first, epochs):
                self._epoch(epoch, epochs, warm, progress)
                saved.save(epoch + 1, self._tensors())
        progress("training the encoder", 1, 1)
        self._settle()
        return self

    def _epochs(self) -> int:
        """How often a fit that does not start warm goes through the interactions."""
        n = max(1, len(self._interactions[0]))
        fewer = max(2, round(self.config.max_interactions / n))
        return min(self.config.epochs, fewer)

    def _epoch(self, epoch: int, epochs: int, warm: bool, progress: Progress) -> None:
        """Go through the batches of one epoch, at a learning rate that falls over all epochs."""
        batches = list(self._batches(epoch, warm))
        for k, batch in enumerate(batches):
            done = (epoch + k / len(batches)) / epochs
            rate = self.config.rate + done * (self.config.final_rate - self.config.rate)
            self._step(batch, rate, np.random.default_rng([self.config.seed, epoch, k]))
            progress("training the encoder", epoch * len(batches) + k, epochs * len(batches))

    def _tensors(self) -> dict[str, Tensor]:
        """All that training changes."""
        parts = {"entities": self.entities_, "relations": self.relations_, "biases": self.biases_}
        return {f"{part}.{k}": t for part, rows in parts.items() for k, t in rows.tensors().items()}

    def _start(self, graph: KnowledgeGraph) -> None:
        """Draw the first vectors."""
        rng = np.random.default_rng([self.config.seed, 0xE4C0])
        shape = (graph.n_entities, self.config.dimension)
        table = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        shifts = rng.standard_normal((len(graph.relations), shape[1]), dtype=np.float32)
        shifts *= np.float32(0.01)
        shifts[INTERACTION] = 0
        zeros = np.zeros((graph.n_entities, 1), dtype=np.float32)
        self.entities_, self.relations_, self.biases_ = (
            RowAdam(torch.from_numpy(x).to(self.device)) for x in (table, shifts, zeros)
        )

    def _prepare(self, graph: KnowledgeGraph, hidden: HiddenPairs | None) -> None:
        """Sort the triples by relation and count how often each entity is sought."""
        self.n_users_, self.n_items_ = graph.n_users, graph.n_items
        heads, relations, tails = graph.triples()
        self._triples = [
            (heads[relations == r].astype(np.int64), tails[relations == r].astype(np.int64))
            for r in range(len(graph.relations))
        ]
        users, items = self._triples[INTERACTION]
        free = self.config.users == "free"
        self._histories = Histories(users, items, graph.n_users, self.device, free)
        weights = np.ones(len(users), dtype=np.float32)
        if hidden is not None:
            users = np.concatenate([users, hidden.users.astype(np.int64)])
            items = np.concatenate([items, hidden.items.astype(np.int64) + graph.n_users])
            weights = np.concatenate([weights, hidden.weights])
        self._interactions = users, items, weights
        self._spans = [
            tuple(graph.vocabulary.span(t) for t in graph.signature(r))
            for r in range(len(graph.relations))
        ]
        popular = np.bincount(items - graph.n_users, weights, minlength=graph.n_items)
        self._item_share = torch.from_numpy(popular / max(popular.sum(), 1)).to(self.device)

    def _batches(self, epoch: int, warm: bool) -> Iterator[_Batch]:
        """The batches of an epoch, in random order: a function of seed, epoch and data alone."""
        config = self.config
        rng = np.random.default_rng([config.seed, 0xBA7C4, epoch, warm])
        users, items, weights = self._interactions
        order = rng.permutation(len(users))
        plan = [(INTERACTION, rows) for rows in _cut(order, config.batch, config.group)]
        sizes = np.array([0] + [len(h) for h, _ in self._triples[1:]])
        shares = np.sqrt(sizes) / max(np.sqrt(sizes).sum(), 1)
        for r in np.flatnonzero(sizes):
            n = np.ceil(config.facts_per_interaction * len(users) * shares[r] / config.batch)
            length = int(n) * config.batch
            rows = _stream(config.seed, int(r), int(sizes[r]), epoch * length, length)
            plan += [(int(r), part) for part in _cut(rows, config.batch, config.group)]
        for k in rng.permutation(len(plan)):
            r, rows = plan[k]
            if r == INTERACTION:
                yield _Batch(r, users[rows], items[rows], weights[rows], head_sought=False)
                continue
            heads, tails = self._triples[r]
            # To tell users apart by their sums would be to learn their items: not sought.
            of_users = [span.start == 0 for span in self._spans[r]]
            if all(of_users):
                continue
            back = of_users[1] or (not of_users[0] and rng.random() < config.head_share)
            given, sought = (tails, heads) if back else (heads, tails)
            yield _Batch(r, given[rows], sought[rows], None, head_sought=bool(back))

    def _step(self, batch: _Batch, rate: float, rng: np.random.Generator) -> float:
        """One update of all rows that the batch touches; the mean loss."""
        config, r = self.config, batch.relation
        table, shift = self.entities_.table, self.relations_.table[r]
        left_out = batch.sought if r == INTERACTION else None
        given = self._histories.bags(batch.given, left_out, config.max_history, rng)
        candidates, positive = self._candidates(batch)
        x = given.sum(table).view(*positive.shape, -1)  # [groups,] triples, dimension
        y = table[candidates]  # [groups,] candidates, dimension
        if batch.head_sought:
            y = y + shift
        else:
            x = x + shift
        gamma = config.gamma if r == INTERACTION else config.fact_gamma
        scores, gradients = scores_of(x, y, gamma, config.distance)  # [groups,] triples, candidates
        if not batch.head_sought:
            scores += self.biases_.table[candidates, 0].unsqueeze(-2)
        loss, slope = self._loss(batch, scores, positive, candidates)
        gx, gy = (g.reshape(-1, config.dimension) for g in gradients(slope))
        self._update(given, candidates.flatten(), gx, gy, rate)
        towards = gy if batch.head_sought else gx
        here = torch.tensor([r], device=self.device)
        self.relations_.update(here, towards.sum(0, keepdim=True), rate)
        if not batch.head_sought:
            self.biases_.update(candidates.flatten(), slope.sum(-2).view(-1, 1), rate)
        return loss

    def _candidates(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Entities to choose among, and for each triple the place of the true one.

        The distinct sought entities of the whole batch, or of each group in a row of its own.
        """
        group = self.config.group
        if group is None or len(batch.sought) < group:
            distinct, place = np.unique(batch.sought, return_inverse=True)
            return torch.from_numpy(distinct).to(self.device), torch.from_numpy(place).to(
                self.device
            )
        sought = torch.from_numpy(batch.sought.reshape(-1, group)).to(self.device)
        return sought, torch.arange(group, device=self.device).expand_as(sought)

    def _update(self, given: Bags, candidates: Tensor, gx: Tensor, gy: Tensor, rate: float) -> None:
        """Step all rows of the given and of the candidate entities at once."""
        n = len(gx)
        owners = torch.arange(n, device=self.device) if given.owners is None else given.owners
        there = torch.arange(n, n + len(gy), device=self.device)
        weights = None
        if given.weights is not None:
            weights = torch.cat([given.weights, torch.ones(len(gy), device=self.device)])
        rows, all_owners = torch.cat([given.rows, candidates]), torch.cat([owners, there])
        self.entities_.update(rows, torch.cat([gx, gy]), rate, all_owners, weights)

    def _loss(
        self, batch: _Batch, scores: Tensor, positive: Tensor, candidates: Tensor
    ) -> tuple[float, Tensor]:
        """The mean loss and its slope with respect to the scores, which are used up."""
        true = positive.unsqueeze(-1)
        if positive.dim() == 2:  # a group's candidates may repeat: the true one is no negative
            same = candidates.unsqueeze(-1) == candidates.unsqueeze(-2)
            same.diagonal(dim1=-2, dim2=-1).fill_(False)
            scores.masked_fill_(same, -torch.inf)
        if self.config.loss == "softmax":
            if batch.relation == INTERACTION:
                scores -= self._log_inclusion(candidates, positive.shape[-1]).unsqueeze(-2)
            slope = torch.softmax(scores, -1)
            losses = -slope.gather(-1, true).clamp(min=1e-30).log()
            slope.scatter_add_(-1, true, -torch.ones_like(losses))
        else:
            best = scores.gather(-1, true)
            scores.scatter_(-1, true, -torch.inf)
            share = torch.softmax(self.config.temperature * scores, -1).nan_to_num(0.0)
            losses = 0.5 * (softplus(-best) + (share * softplus(scores)).sum(-1, keepdim=True))
            slope = 0.5 * share * torch.sigmoid(scores)
            slope.scatter_(-1, true, -0.5 * torch.sigmoid(-best))
        if batch.weights is not None:
            weights = torch.from_numpy(batch.weights).to(self.device).view_as(true)
            losses, slope = losses * weights, slope * weights
        return float(losses.mean()), slope.div_(positive.numel())

    def _log_inclusion(self, candidates: Tensor, draws: int) -> Tensor:
        """log P(item is among the tails of so many interactions)."""
        share = self._item_share[candidates - self.n_users_].clamp(1e-12, 1 - 1e-9)
        return (-torch.expm1(draws * torch.log1p(-share))).log().float()

    @torch.no_grad()
    def _settle(self) -> None:
        """Write the users' sums into the table: from here on they are entities like others."""
        self._forget_answers()
        for lo in range(0, 0 if self.config.users == "free" else self.n_users_, 4096):
            users = np.arange(lo, min(lo + 4096, self.n_users_))
            bags = self._histories.bags(users)
            self.entities_.table[lo : lo + len(users)] = bags.sum(self.entities_.table)

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    def score_items(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users; see ``Encoder.score_items``."""
        return self._score_items(self.entities_.table[self._ids(users)])

    @property
    def folds_in(self) -> bool:
        """Whether a user's vector is made of its history."""
        return self.config.users == "history"

    def fold_in(
        self,
        owners: NDArray[np.integer],
        items: NDArray[np.integer],
        weights: NDArray[np.floating],
        n_users: int,
    ) -> Floats:
        """Scores of all items for users known by their items alone; [users, items].

        User ``owners[k]``, owners ascending, has ``items[k]``, which counts ``weights[k]``.
        """
        if not self.folds_in:
            raise LogerError("an encoder with free users cannot fold in new ones")
        sizes = np.bincount(owners, minlength=n_users)
        # 1/√n where all count 1; in general what keeps the length of a sum of unlike vectors.
        lengths = np.sqrt(np.bincount(owners, weights**2, minlength=n_users))
        scale = 1 / np.maximum(lengths, 1e-12)[owners]
        rows, starts, scaled = (
            torch.from_numpy(x).to(self.device)
            for x in (
                items.astype(np.int64) + self.n_users_,
                (np.cumsum(sizes) - sizes).astype(np.int64),
                (weights * scale).astype(np.float32),
            )
        )
        bags = Bags(rows, starts, weights=scaled)
        return self._score_items(bags.sum(self.entities_.table))

    @property
    def attributable(self) -> bool:
        """Whether scores are sums over a user's interactions: x = Σ w_a e_a + r is, and s is linear
        in x but for its length, which all items share."""
        return self.folds_in and self.config.distance != "l1"

    def attribute(
        self,
        owned: NDArray[np.integer],
        weights: NDArray[np.floating],
        items: NDArray[np.integer],
    ) -> EncoderParts:
        """The parts of scores (METHOD 11); see ``Attributable.attribute``.

        On the sphere s = γ⟨x, ŷ⟩/‖x‖ + b, otherwise s = γ − ‖x‖² + 2⟨x, y⟩ − ‖y‖² + b. What an
        interaction gives is its term of the product with y; all the rest is the item's appeal.
        """
        gamma, table = self.config.gamma, self._item_table
        length = max(float(np.sqrt(np.sum(weights**2))), 1e-12)
        vectors = (weights / length)[:, None] * self._item_vectors[owned]  # [interactions, d]
        relation = self.relations_.table[INTERACTION].cpu().numpy().astype(np.float64)
        x = vectors.sum(axis=0) + relation
        sphere = self.config.distance == "sphere"
        scale = gamma / max(float(np.linalg.norm(x)), 1e-12) if sphere else 2.0
        constant = 0.0 if sphere else gamma - float(x @ x)
        y, bias = table[items, :-1], table[items, -1]
        others = max(len(table) - len(owned), 1)
        mean = (self._item_sum - table[owned].sum(axis=0)) / others
        return EncoderParts(
            # Item by item, so that a score does not depend on what else is asked, not in one bit.
            scale * np.stack([vectors @ row for row in y], axis=1),
            constant + scale * np.array([row @ relation for row in y]) + bias,
            scale * (vectors @ mean[:-1]),
            float(constant + scale * (mean[:-1] @ relation) + mean[-1]),
        )

    @cached_property
    def _item_vectors(self) -> NDArray[np.float64]:
        """The vectors of all items, in double precision; [items, d]."""
        items = slice(self.n_users_, self.n_users_ + self.n_items_)
        return self.entities_.table[items].cpu().numpy().astype(np.float64)

    @cached_property
    def _item_table(self) -> NDArray[np.float64]:
        """What a user's vector is multiplied with, and last what is added; [items, d + 1]."""
        y = self._item_vectors
        lengths = np.linalg.norm(y, axis=1, keepdims=True)
        bias = self.biases_.table[self.n_users_ : self.n_users_ + self.n_items_].cpu().numpy()
        if self.config.distance == "sphere":
            return np.hstack([y / np.maximum(lengths, 1e-12), bias.astype(np.float64)])
        return np.hstack([y, bias - lengths**2])

    @cached_property
    def _item_sum(self) -> NDArray[np.float64]:
        total: NDArray[np.float64] = self._item_table.sum(axis=0)
        return total

    @torch.no_grad()
    def _score_items(self, vectors: Tensor) -> Floats:
        if self.config.distance != "sphere":
            x = vectors + self.relations_.table[INTERACTION]
            items = slice(self.n_users_, self.n_users_ + self.n_items_)
            scores, _ = scores_of(
                x, self.entities_.table[items], self.config.gamma, self.config.distance
            )
            return scores.add_(self.biases_.table[items, 0]).cpu().numpy()
        return (self._questions(vectors) @ self._answers.mT).cpu().numpy()

    @torch.no_grad()
    def as_product(self, users: ArrayLike) -> tuple[Floats, Floats] | None:
        """Vectors whose product is ``score_items``, on the sphere and without a GPU."""
        if self.config.distance != "sphere" or self.device.type != "cpu":
            return None
        vectors = self.entities_.table[self._ids(users)]
        return self._questions(vectors).numpy(), self._answers.numpy()

    def _questions(self, vectors: Tensor) -> Tensor:
        """Users on the sphere, scaled by γ, and 1: the bias is part of the product."""
        x = vectors + self.relations_.table[INTERACTION]
        return torch.cat([self.config.gamma * unit(x)[0], torch.ones_like(x[:, :1])], 1)

    @cached_property
    def _answers(self) -> Tensor:
        """Unit vectors of all items with their biases; [items, dimension + 1]."""
        items = slice(self.n_users_, self.n_users_ + self.n_items_)
        return torch.cat([unit(self.entities_.table[items])[0], self.biases_.table[items]], 1)

    @torch.no_grad()
    def score_triples(self, heads: ArrayLike, relations: ArrayLike, tails: ArrayLike) -> Floats:
        """Scores of triples; see ``Encoder.score_triples``."""
        h, r, t = (self._ids(x) for x in (heads, relations, tails))
        x = (self.entities_.table[h] + self.relations_.table[r]).unsqueeze(1)
        y = self.entities_.table[t].unsqueeze(1)
        plain, _ = scores_of(x, y, 1.0, self.config.distance)
        gamma = torch.where(r == INTERACTION, self.config.gamma, self.config.fact_gamma)
        plain = plain.view(-1)
        scores = gamma * plain if self.config.distance == "sphere" else gamma - 1 + plain
        return (scores + self.biases_.table[t, 0]).cpu().numpy()

    def _ids(self, ids: ArrayLike) -> Tensor:
        return torch.as_tensor(np.asarray(ids, dtype=np.int64), device=self.device)

    def _forget_answers(self) -> None:
        """Drop what was derived from the tables, which have changed."""
        for name in ("_answers", "_item_vectors", "_item_table", "_item_sum"):
            self.__dict__.pop(name, None)

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that was learned, moments included, so that a warm fit can go on from it; a copy,
        which further training leaves alone."""
        return {k: t.cpu().numpy().copy() for k, t in self._tensors().items()}

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Take over what ``state`` gave."""
        self._start(graph)
        self._prepare(graph, None)
        for name, tensor in self._tensors().items():
            if name not in state or state[name].shape != tuple(tensor.shape):
                raise LogerError(f"this is no state of a TransE on this graph: {name} does not fit")
            tensor.copy_(torch.from_numpy(np.array(state[name])))
        self._forget_answers()
        return self


def _cut(rows: NDArray[np.int64], batch: int, group: int | None) -> list[NDArray[np.int64]]:
    """Batches of rows; with groups each holds whole groups, and what is left over is one more."""
    parts = [rows[k : k + batch] for k in range(0, len(rows), batch)]
    if group is None:
        return parts
    cuts = [len(p) // group * group for p in parts]
    return [q for p, n in zip(parts, cuts, strict=True) for q in (p[:n], p[n:]) if len(q)]


def _stream(seed: int, relation: int, size: int, start: int, length: int) -> NDArray[np.int64]:
    """A stretch of an endless sequence of permutations of 0 … size-1; epochs walk on through it."""
    cycles = range(start // size, (start + length - 1) // size + 1)
    rngs = (np.random.default_rng([seed, 0x57EA, relation, c]) for c in cycles)
    whole = np.concatenate([rng.permutation(size) for rng in rngs])
    skip = start - cycles[0] * size
    return whole[skip : skip + length]
