"""How TransE learns: batches of one relation, gradients in closed form, row-wise Adam.

Several ranks can share each batch: each scores its triples against all candidates, and the sum of
their gradients is applied on all of them (``distributed``).

Only this part of TransE needs PyTorch, which is slow to import and takes much memory. A fitted
encoder scores with NumPy (``transe``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from loger.encoder._kernels import (
    SHORTEST,
    SMALL,
    ZERO_VECTOR_NORM,
    fill_bags,
    group_gradients,
    group_scores,
    l1_distances,
    l1_gradients,
)
from loger.encoder.distributed import current
from loger.encoder.protocol import HiddenPairs
from loger.encoder.training import HEAD_SHARE, Checkpoint, RowAdam, chosen_device
from loger.encoder.transe import FACT_GAMMA, Distance, State, TransEConfig
from loger.engine import Progress, silent
from loger.engine.threads import one_thread
from loger.graph import INTERACTION, KnowledgeGraph

MAX_HISTORY = 16
"""The most items in a user's sum; longer histories are sampled in each step. With long histories
that is better, not only cheaper: validation NDCG@10 on `ml1m` is 14.50, compared with 13.78 for 64
items and 14.24 for 8. On `amazon-beauty`, whose histories are short, it makes no difference."""
MAX_VISITS = 2.0
"""An epoch visits a fact at most about this often. If interactions far outnumber facts, more visits
only take time (`ml1m`: the same NDCG in three quarters of the time)."""
MAX_INTERACTIONS = 2_200_000
"""A fit whose epochs would visit more interactions than this makes fewer of them, but at least two.
If users have vectors of their own, it makes all epochs, because these vectors learn slowly."""


class _Batch(NamedTuple):
    """Triples of one relation; the model gets ``given`` and must find ``sought``."""

    relation: int
    given: NDArray[np.int64]
    sought: NDArray[np.int64]
    head_sought: bool


class Training:
    """One fit: the tables with their moments, and the triples to learn from."""

    def __init__(
        self,
        config: TransEConfig,
        graph: KnowledgeGraph,
        hidden: HiddenPairs | None = None,
        begun: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> None:
        self.config, self.hidden, self.graph = config, hidden, graph
        self.device, self.ranks = chosen_device(config.device), current()
        self.warm = begun is not None
        self._start(graph)
        for name, array in (begun or {}).items():
            self._tensors()[name].copy_(torch.from_numpy(np.array(array)))
        self._prepare(graph)

    def run(self, checkpoint: Path | None, progress: Progress) -> State:
        """Train for all epochs that a checkpoint hasn't done; returns what was learned."""
        epochs = self.config.warm_epochs if self.warm else self._epochs()
        begun = self._tensors() if self.warm else None
        # Rounding depends on the number of ranks, if there are several.
        ranks = (self.ranks.size,) if self.ranks.size > 1 else ()
        run = (self.graph.fingerprint, self.config, self.hidden, begun, *ranks)
        saved = Checkpoint(checkpoint, *run)
        first = saved.resume(self._tensors())
        asked = self.config, self.graph, self.hidden, self.warm
        with one_thread(), self.ranks.together(_help, type(self), *asked):
            first = self.ranks.as_leader(first, list(self._tensors().values()))
            for epoch in range(first, epochs):
                self._epoch(epoch, epochs, progress)
                saved.save(epoch + 1, self._tensors())
        progress("training the encoder", 1, 1)
        return self.learned()

    def learned(self) -> State:
        """What was learned so far, with users as their sums."""
        self._settle()
        tensors = {k: t.cpu().numpy() for k, t in self._tensors().items()}
        # First moments matter for some ten steps, so bundles and warm fits do without them.
        return {k: array for k, array in tensors.items() if not k.endswith(".first")}

    def _epochs(self) -> int:
        """The number of epochs of a fit that doesn't start warm."""
        if self.config.users == "free":
            return self.config.epochs
        n = max(1, len(self._triples[INTERACTION][0]))
        return min(self.config.epochs, max(2, round(MAX_INTERACTIONS / n)))

    def _epoch(self, epoch: int, epochs: int, progress: Progress) -> None:
        """Train on the batches of one epoch; the learning rate falls over all epochs."""
        batches = list(self._batches(epoch))
        for k, batch in enumerate(batches):
            done = (epoch + k / len(batches)) / epochs
            rate = self.config.rate_after(done)
            self._step(batch, rate, np.random.default_rng([self.config.seed, epoch, k]))
            progress("training the encoder", epoch * len(batches) + k, epochs * len(batches))

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes."""
        parts = {"entities": self.entities, "relations": self.relations, "biases": self.biases}
        return {f"{part}.{k}": t for part, rows in parts.items() for k, t in rows.tensors().items()}

    def _start(self, graph: KnowledgeGraph) -> None:
        """Draw the initial vectors."""
        rng = np.random.default_rng([self.config.seed, 0xE4C0])
        shape = (graph.n_entities, self.config.dimension)
        table = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        shifts = rng.standard_normal((len(graph.relations), shape[1]), dtype=np.float32)
        shifts *= np.float32(0.01)
        shifts[INTERACTION] = 0
        zeros = np.zeros((graph.n_entities, 1), dtype=np.float32)
        self.entities, self.relations, self.biases = (
            RowAdam(torch.from_numpy(x).to(self.device)) for x in (table, shifts, zeros)
        )

    def _prepare(self, graph: KnowledgeGraph) -> None:
        """Group the triples by relation and count how often each item is sought."""
        heads, relations, tails = graph.triples()
        self._triples = [
            (heads[relations == r].astype(np.int64), tails[relations == r].astype(np.int64))
            for r in range(len(graph.relations))
        ]
        users, items = self._triples[INTERACTION]
        free = self.config.users == "free"
        self._histories = Histories(users, items, graph.n_users, self.device, free)
        self._spans = [
            tuple(graph.vocabulary.span(t) for t in graph.signature(r))
            for r in range(len(graph.relations))
        ]
        # How often batches draw an item; a hidden pair counts its weight.
        rows = np.bincount(items - graph.n_users, minlength=graph.n_items).astype(np.float64)
        if self.hidden is not None:
            rows += np.bincount(self.hidden.items, self.hidden.weights, minlength=graph.n_items)
        self._item_share = torch.from_numpy(rows / max(rows.sum(), 1)).to(self.device)

    def _interactions(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The interactions and hidden pairs that an epoch draws from."""
        real = self._triples[INTERACTION]
        if self.hidden is None:
            return real
        return self.hidden.drawn_with(real, self.graph.n_users, self.config.seed, epoch, self.warm)

    def _batches(self, epoch: int) -> Iterator[_Batch]:
        """The batches of an epoch in random order; they depend on seed, epoch and data only."""
        config = self.config
        rng = np.random.default_rng([config.seed, 0xBA7C4, epoch, self.warm])
        users, items = self._interactions(epoch)
        n_real = len(self._triples[INTERACTION][0])  # hidden pairs add no steps
        order = rng.permutation(len(users))[:n_real]
        plan = [(INTERACTION, rows) for rows in _cut(order, config.batch, config.group)]
        sizes = np.array([0] + [len(h) for h, _ in self._triples[1:]])
        shares = np.sqrt(sizes) / max(np.sqrt(sizes).sum(), 1)
        for r in np.flatnonzero(sizes):
            wanted = config.facts_per_interaction * n_real * shares[r]
            n = np.ceil(min(wanted, MAX_VISITS * sizes[r]) / config.batch)
            length = int(n) * config.batch
            rows = _stream(config.seed, int(r), int(sizes[r]), epoch * length, length)
            plan += [(int(r), part) for part in _cut(rows, config.batch, config.group)]
        for k in rng.permutation(len(plan)):
            r, rows = plan[k]
            if r == INTERACTION:
                yield _Batch(r, users[rows], items[rows], head_sought=False)
                continue
            heads, tails = self._triples[r]
            # Users are never sought: to tell them apart by their sums is to learn their items.
            of_users = [span.start == 0 for span in self._spans[r]]
            if all(of_users):
                continue
            back = of_users[1] or (not of_users[0] and rng.random() < HEAD_SHARE)
            given, sought = (tails, heads) if back else (heads, tails)
            yield _Batch(r, given[rows], sought[rows], head_sought=bool(back))

    def _step(self, batch: _Batch, rate: float, rng: np.random.Generator) -> Tensor:
        """Update all rows that the batch touches; returns the mean loss, still on its device, so
        that nobody waits for a GPU."""
        config, r = self.config, batch.relation
        table, shift = self.entities.table, self.relations.table[r]
        excluded = batch.sought if r == INTERACTION else None
        given = self._histories.bags(batch.given, excluded, MAX_HISTORY, rng)
        rows, candidates, positive, own = self._candidates(batch)
        x = (
            given.part(own).sum(table).view(*positive.shape, config.dimension)
        )  # [groups,] triples, d
        y = table[candidates]  # [groups,] candidates, d
        (y if batch.head_sought else x).add_(shift)  # both are copies
        gamma = config.gamma if r == INTERACTION else FACT_GAMMA
        scores, gradients = scores_of(x, y, gamma, config.distance)  # [groups,] triples, candidates
        if not batch.head_sought:
            scores += self.biases.table[candidates, 0].unsqueeze(-2)
        loss, slope = self._loss(batch, scores, positive, candidates)
        parts = list(gradients(slope))
        if not batch.head_sought:
            parts.append(slope.sum(-2).unsqueeze(-1))
        gx, gy, *gb = self._of_all_ranks(parts, own, len(batch.sought), len(rows))
        self._update(given, rows, gx, gy, rate)
        towards = gy if batch.head_sought else gx
        here = torch.tensor([r], device=self.device)
        self.relations.update(here, towards.sum(0, keepdim=True), rate)
        if gb:
            self.biases.update(rows, gb[0], rate)
        return loss

    def _candidates(self, batch: _Batch) -> tuple[Tensor, Tensor, Tensor, slice]:
        """The candidates of a batch.

        They are the distinct sought entities of the whole batch or, with groups, those of each
        group. Returns the rows of all candidates, the candidates of this rank's triples (with
        groups a row for each), the place of each triple's true entity among them, and which triples
        are this rank's.
        """
        group, n = self.config.group, len(batch.sought)
        if group is None or n < group:
            own = self.ranks.share(n)
            distinct, place = np.unique(batch.sought, return_inverse=True)
            rows = torch.from_numpy(distinct).to(self.device)
            return rows, rows, torch.from_numpy(place[own]).to(self.device), own
        own = self.ranks.share(n // group)
        sought = torch.from_numpy(batch.sought.reshape(-1, group)).to(self.device)
        positive = torch.arange(group, device=self.device).expand_as(sought[own])
        return sought.flatten(), sought[own], positive, slice(own.start * group, own.stop * group)

    def _of_all_ranks(self, parts: list[Tensor], own: slice, n: int, m: int) -> list[Tensor]:
        """The gradients of all n given vectors, of all m candidates and of their biases, summed
        over ranks. Each rank has those of its own triples and of their candidates."""
        whole = []
        for part, length in zip(parts, (n, m, m), strict=False):
            rows = of_rank = part.flatten(0, -2)
            if len(of_rank) < length:
                rows = part.new_zeros(length, part.shape[-1])
                rows[own] = of_rank
            whole.append(rows)
        return self.ranks.added(n + m, whole)

    def _update(self, given: Bags, candidates: Tensor, gx: Tensor, gy: Tensor, rate: float) -> None:
        """Update the rows of given and candidate entities in one step."""
        n = len(gx)
        owners = torch.arange(n, device=self.device) if given.owners is None else given.owners
        there = torch.arange(n, n + len(gy), device=self.device)
        weights = None
        if given.weights is not None:
            weights = torch.cat([given.weights, torch.ones(len(gy), device=self.device)])
        rows, all_owners = torch.cat([given.rows, candidates]), torch.cat([owners, there])
        self.entities.update(rows, _in_one(gx, gy), rate, all_owners, weights)

    def _loss(
        self, batch: _Batch, scores: Tensor, positive: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """This rank's part of the mean loss, and its slope by the scores; overwrites the scores."""
        n = len(batch.sought)
        true = positive.unsqueeze(-1)
        if positive.dim() == 2:  # a group can have the true entity twice; it isn't a negative
            same = candidates.unsqueeze(-1) == candidates.unsqueeze(-2)
            same.diagonal(dim1=-2, dim2=-1).fill_(False)
            scores.masked_fill_(same, -torch.inf)
        if batch.relation == INTERACTION:
            draws = n if positive.dim() == 1 else positive.shape[-1]
            scores -= self._log_inclusion(candidates, draws).unsqueeze(-2)
        slope = torch.softmax(scores, -1)
        losses = -slope.gather(-1, true).clamp(min=1e-30).log()
        slope.scatter_add_(-1, true, -torch.ones_like(losses))
        return losses.sum() / n, slope.div_(n)

    def _log_inclusion(self, candidates: Tensor, draws: int) -> Tensor:
        """log P(item is among the tails of ``draws`` interactions)."""
        share = self._item_share[candidates - self.graph.n_users].clamp(1e-12, 1 - 1e-9)
        return (-torch.expm1(draws * torch.log1p(-share))).log().float()

    @torch.no_grad()
    def _settle(self) -> None:
        """Write the users' sums into the table, where they are entities like any other."""
        for lo in range(0, 0 if self.config.users == "free" else self.graph.n_users, 4096):
            users = np.arange(lo, min(lo + 4096, self.graph.n_users))
            bags = self._histories.bags(users)
            self.entities.table[lo : lo + len(users)] = bags.sum(self.entities.table)


def _help(
    kind: type[Training],
    config: TransEConfig,
    graph: KnowledgeGraph,
    hidden: HiddenPairs | None,
    warm: bool,
) -> None:
    """A rank's part in the leading rank's training; it gets that rank's tables."""
    kind(config, graph, hidden, {} if warm else None).run(None, silent)


def _in_one(one: Tensor, other: Tensor) -> Tensor:
    """The rows of two tensors; not copied if the second follows the first in memory."""
    same = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    follows = other.storage_offset() == one.storage_offset() + one.numel()
    if same and follows and one.is_contiguous() and other.is_contiguous():
        return one.as_strided((len(one) + len(other), one.shape[1]), one.stride())
    return torch.cat([one, other])


def _cut(rows: NDArray[np.int64], batch: int, group: int | None) -> list[NDArray[np.int64]]:
    """Batches of rows. With groups, each has whole groups, and the remaining rows are another."""
    parts = [rows[k : k + batch] for k in range(0, len(rows), batch)]
    if group is None:
        return parts
    cuts = [len(p) // group * group for p in parts]
    return [q for p, n in zip(parts, cuts, strict=True) for q in (p[:n], p[n:]) if len(q)]


def _stream(seed: int, relation: int, size: int, start: int, length: int) -> NDArray[np.int64]:
    """A part of an endless sequence of permutations of 0 … size-1, which epochs go through."""
    cycles = range(start // size, (start + length - 1) // size + 1)
    rngs = (np.random.default_rng([seed, 0x57EA, relation, c]) for c in cycles)
    whole = np.concatenate([rng.permutation(size) for rng in rngs])
    skip = start - cycles[0] * size
    return whole[skip : skip + length]


# ── distances, with gradients in closed form ────────────────────────────────────────────

Gradients = Callable[[Tensor], tuple[Tensor, Tensor]]


def scores_of(x: Tensor, y: Tensor, gamma: float, distance: Distance) -> tuple[Tensor, Gradients]:
    """γ − dist of every row of x to every row of y, and a function from slopes to gradients."""
    if distance == "sphere":
        on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
        if on_cpu and x.dim() == 3 and max(x.shape[1], y.shape[1]) <= SMALL:
            return _of_small_groups(x, y, gamma)
        (a, a_norm), (b, b_norm) = unit(x), unit(y)

        def on_sphere(slope: Tensor) -> tuple[Tensor, Tensor]:
            ga, gb = gamma * (slope @ b), gamma * (slope.mT @ a)
            return _unit_back(ga, a, a_norm), _unit_back(gb, b, b_norm)

        return (a @ b.mT).mul_(gamma), on_sphere
    if distance == "squared":

        def in_space(slope: Tensor) -> tuple[Tensor, Tensor]:
            gx = slope @ y - x * slope.sum(-1, keepdim=True)
            return 2 * gx, 2 * (slope.mT @ x - y * slope.sum(-2).unsqueeze(-1))

        lengths = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1).unsqueeze(-2)
        return (2 * (x @ y.mT)).sub_(lengths).add_(gamma), in_space
    if x.device.type == "cpu" and x.dtype == torch.float32 and x.dim() == 2:
        return _in_l1(x, y, gamma)
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)  # [groups,] x, y, d

    def in_l1(slope: Tensor) -> tuple[Tensor, Tensor]:
        moved = apart.sign() * slope.unsqueeze(-1)
        return -moved.sum(-2), moved.sum(-3)

    return gamma - apart.abs().sum(-1), in_l1


def _in_l1(x: Tensor, y: Tensor, gamma: float) -> tuple[Tensor, Gradients]:
    """``scores_of`` in L1 on a CPU, without a tensor of all differences."""
    of = x.contiguous().numpy(), y.contiguous().numpy()
    scores = torch.empty(len(x), len(y))
    l1_distances(*of, scores.numpy())

    def in_l1(slope: Tensor) -> tuple[Tensor, Tensor]:
        gx, gy = torch.zeros(x.shape), torch.zeros(y.shape)
        l1_gradients(*of, slope.contiguous().numpy(), gx.numpy(), gy.numpy())
        return gx, gy

    return scores.neg_().add_(gamma), in_l1


def _of_small_groups(x: Tensor, y: Tensor, gamma: float) -> tuple[Tensor, Gradients]:
    """``scores_of`` for many small groups on the sphere; both gradients share one tensor."""
    scores = torch.empty(*x.shape[:2], y.shape[1])
    of = x.contiguous().numpy(), y.contiguous().numpy(), np.float32(gamma)
    lengths = tuple(np.empty(v.shape[:2], dtype=np.float32) for v in (x, y))
    group_scores(*of, *lengths, scores.numpy())

    def of_groups(slope: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[0] * x.shape[1]
        both = torch.empty(n + y.shape[0] * y.shape[1], x.shape[2])
        gx, gy = both[:n].view(x.shape), both[n:].view(y.shape)
        group_gradients(*of, *lengths, slope.contiguous().numpy(), gx.numpy(), gy.numpy())
        return gx, gy

    return scores, of_groups


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors scaled to length 1, and their lengths; a zero vector stays 0."""
    norm = x.norm(dim=-1, keepdim=True)
    norm.masked_fill_(norm <= float(SHORTEST), float(ZERO_VECTOR_NORM))
    return x / norm, norm


def _unit_back(gradient: Tensor, unit: Tensor, norm: Tensor) -> Tensor:
    """The gradient through x ↦ x/‖x‖."""
    return (gradient - unit * (gradient * unit).sum(-1, keepdim=True)).div_(norm)


# ── entities as sums of rows: a user is the sum of its items, others are rows ───────────


@dataclass(frozen=True, eq=False)
class Bags:
    """The rows to add up for each of some entities, with weights.

    Without ``starts``, each entity is one row.
    """

    rows: Tensor  # [parts]
    starts: Tensor | None = None  # [entities]
    owners: Tensor | None = None  # [parts]
    weights: Tensor | None = None  # [parts]

    def part(self, own: slice) -> Bags:
        """The bags of consecutive entities."""
        if self.starts is None:
            return Bags(self.rows[own])
        if own == slice(0, len(self.starts)):
            return self
        assert self.owners is not None and self.weights is not None
        ends = torch.cat([self.starts, self.starts.new_tensor([len(self.rows)])])
        lo, hi = int(ends[own.start]), int(ends[own.stop])
        starts, owners = self.starts[own] - lo, self.owners[lo:hi] - own.start
        return Bags(self.rows[lo:hi], starts, owners, self.weights[lo:hi])

    def sum(self, table: Tensor) -> Tensor:
        """The vectors of the entities; [entities, dimension]."""
        if self.starts is None:
            return table[self.rows]
        assert self.weights is not None
        return embedding_bag(
            self.rows, table, self.starts, mode="sum", per_sample_weights=self.weights
        )


class Histories:
    """The items of each user, as bags of rows of the entity table."""

    def __init__(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        n_users: int,
        device: torch.device,
        free: bool = False,
    ) -> None:
        order = np.lexsort((items, users))
        self.items = items[order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=n_users))])
        self.n_users, self.device, self.free = n_users, device, free

    def bags(
        self,
        entities: NDArray[np.int64],
        excluded: NDArray[np.int64] | None = None,
        longest: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Bags:
        """The bags of entities, which must be all users or no users.

        Args:
            entities: by number.
            excluded: for each of them an item that doesn't count.
            longest: longer histories are represented by this many random items, so that they cost
                no more than these.
            rng: draws the items.
        """
        if self.free or not len(entities) or entities[0] >= self.n_users:
            return Bags(torch.from_numpy(entities).to(self.device))
        sizes = self.starts[entities + 1] - self.starts[entities]
        taken = sizes if longest is None else np.minimum(sizes, longest)
        parts, draws, turns = int(taken.sum()), np.empty(0), np.empty(0)
        if longest is not None and (sizes > longest).any():
            assert rng is not None
            draws, turns = rng.random(parts), rng.random(len(sizes))
        none = np.empty(0, np.int64) if excluded is None else excluded
        filled = fill_bags(self.items, self.starts, entities, taken, none, draws, turns)
        return Bags(*(torch.from_numpy(x).to(self.device) for x in filled))
