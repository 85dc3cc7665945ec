"""Transformers that read a history in its order and predict what comes next: SASRec and its heirs.

One trainer, with the parts in which the methods differ as class attributes:

| method  | block     | loss                                            | targets | item facts |
|---------|-----------|-------------------------------------------------|---------|------------|
| SASRec  | attention | softmax over the target and sampled items       | 1       | no         |
| eSASRec | LiGR      | softmax over all items, or a sample if many     | 10      | yes        |
| HSTU    | HSTU      | as eSASRec                                      | 10      | yes        |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import (
    cross_entropy,
    dropout,
    embedding_bag,
    layer_norm,
    scaled_dot_product_attention,
    silu,
)

from loger.baselines._shared import Factors, check_cpu, chunks, ordered_events, paced
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.encoder.sequence_training import FULL, SAMPLED, Softmax
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, gather
from loger.graph.arrays import Floats, Ids

NEGATIVES = 1024
"""SASRec: items drawn uniformly that a batch shares; all of them if there are no more."""
BLOCKS, HEADS = 2, 2
"""As in the papers."""


@dataclass(frozen=True, slots=True)
class SASRecConfig(TrainerConfig):
    """Settings of SASRec and its heirs.

    They keep a fit of ml1m near ten minutes of one core; use ``--tune`` for your own data.
    """

    dimension: int = 64
    length: int = 100
    """Number of interactions read at a time; of a longer history, the last ones."""
    dropout: float = 0.2
    batch: int = 64
    """Pieces of histories per step."""
    epochs: int = 20
    rate: float = 2e-3
    final_rate: float = 1e-4
    targets: int = 1
    """K: each place predicts the next K items; the k-th counts k^-½. SASRec: 1."""
    facts: bool = False
    """Whether an item's vector includes the vectors of its facts."""


class SASRec(Factors):
    """Kang & McAuley, ICDM 2018, "Self-Attentive Sequential Recommendation", with the loss that
    made it strong again (Klenitskiy & Vasilev, RecSys 2023; Petrov & Macdonald, RecSys 2023).

    With i_1 … i_n the last n ≤ L interactions of a user, in order, M the vectors of items and P
    those of places, each of B blocks makes of H^(0)_t = √d M_{i_t} + P_t

        H' = H + attention(norm(H), causal),   H = H' + W₂ relu(W₁ norm(H')),
        score(u, v) = norm(H_n) · M_v.

    Every next item is learned from what came before, by −log softmax of its score at t among
    itself and N items drawn uniformly, which one batch shares. Differences from the paper: this
    loss instead of binary cross-entropy with one negative; histories longer than L are cut into
    pieces from the end, so that all of them is learned from; norms come before each part.
    Interactions at the same time keep the data's own order. A user without history scores 0.
    """

    name = "SASRec"
    defaults: ClassVar[SASRecConfig] = SASRecConfig()
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"dropout": (0.2, 0.4), "epochs": (10, 20)}

    def __init__(self, **settings: Any) -> None:
        self.config = c = overridden(self.defaults, settings)
        check_cpu(self.name, c.device)
        check_numbers(c, dimension=1, length=1, batch=1, epochs=1, targets=1)
        if c.dimension % HEADS or not 0 <= c.dropout < 1:
            raise LogerError(
                f"dimension must be a multiple of {HEADS} and dropout must be in [0, 1); got "
                f"{c.dimension!r} and {c.dropout!r}"
            )

    def block(self) -> nn.Module:
        """A new block."""
        return _Block(self.config.dimension)

    def drawn(self, n_items: int, rng: np.random.Generator) -> Ids:
        """Items that a batch shares as negatives."""
        few = n_items <= NEGATIVES
        return np.arange(n_items) if few else rng.integers(n_items, size=NEGATIVES)

    def loss(self, states: Tensor, table: Tensor, answers: Answers) -> Tensor:
        """The loss of a batch; states are [places, d], the table [items of the batch, d]."""
        return sampled_softmax(states, table, answers)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn what comes next, and read every history to its end."""
        c = self.config
        users, in_order, _ = ordered_events(split)
        items = in_order.astype(np.int64)
        ends = np.searchsorted(users, np.arange(split.dataset.n_users + 1))
        rng = np.random.default_rng([c.seed, 0x5A5])
        with torch.random.fork_rng(devices=[]), one_thread():
            torch.manual_seed(int(rng.integers(1 << 62)))
            facts = item_facts(split.graph) if c.facts else None
            network = _Network(split.dataset.n_items, c, self.block, facts)
            self._learn(network, items, pieces(ends, c.length + 1), rng, progress)
            with torch.no_grad():
                everything = network.vectors(np.arange(network.n_items + 1))
                self.users_ = _read(network, everything, items, ends, c)
        self.items_ = everything[:-1].numpy()
        return self

    def _learn(
        self,
        network: _Network,
        items: Ids,
        cut: Pieces,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        """Step down the loss, batch by batch."""
        c, n_items = self.config, network.n_items
        adam = torch.optim.Adam(network.parameters(), lr=c.rate, betas=(0.9, 0.98))
        for epoch in range(c.epochs):
            batches = _batched(cut, c.batch, rng)
            for rows, rate in paced(self.name, c, epoch, batches, progress):
                adam.param_groups[0]["lr"] = rate
                read = padded(items, cut.starts[rows], cut.stops[rows], n_items)
                adam.zero_grad()
                self.batch_loss(network, read, self.drawn(n_items, rng)).backward()  # type: ignore[no-untyped-call]
                adam.step()
        progress(self.name, 1, 1)

    def batch_loss(self, network: _Network, read: Ids, drawn: Ids) -> Tensor:
        """The loss of some pieces of histories, [pieces, places], against the items drawn."""
        c, n_items = self.config, network.n_items
        needed = np.union1d(read, drawn)
        table = network.vectors(needed)
        read, drawn = np.searchsorted(needed, read), np.searchsorted(needed, drawn)
        filler = int(np.searchsorted(needed, n_items))  # behind all items
        places = np.arange(1, read.shape[1])[:, None] + np.arange(c.targets)  # [places, K]
        after = np.pad(read, ((0, 0), (0, c.targets)), constant_values=filler)[:, places]
        some = read[:, 1:] != filler  # places that something comes after; [pieces, places]
        states = network(table[torch.from_numpy(read[:, :-1])], c.dropout)
        true = after[some]  # [states, K]
        worth = (true != filler) * np.arange(1.0, 1 + c.targets) ** -0.5
        weights = torch.from_numpy((worth / worth.sum(1, keepdims=True)).astype(np.float32))
        true = np.where(true == filler, true[:, :1], true)  # counts 0
        answers = Answers(torch.from_numpy(true), weights, torch.from_numpy(drawn), n_items)
        return self.loss(states[torch.from_numpy(some)], table, answers)


class ESASRec(SASRec):
    """Tikhonovich et al., RecSys 2025, "eSASRec: Enhancing Transformer-based Recommendations in a
    Modular Fashion": SASRec's objective with the blocks of LiGR (Borisyuk et al. 2024), where a
    gate σ(W x) scales what attention and SwiGLU add, and a softmax over many items.

    Differences: each place has the next 10 items as targets, the k-th counting k^-½, which suits
    test parts with many items per user; the softmax is over all items, or if these are more than
    5,000, over the batch's targets and 2,000 drawn; an item's vector is its own plus, for each
    relation, the mean vector of its facts.
    """

    name = "eSASRec"
    defaults: ClassVar[SASRecConfig] = SASRecConfig(epochs=16, targets=10, length=200, facts=True)
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"dropout": (0.2, 0.5), "facts": (True, False)}

    def block(self) -> nn.Module:
        """A new block of LiGR."""
        return _GatedBlock(self.config.dimension)

    def drawn(self, n_items: int, rng: np.random.Generator) -> Ids:
        """All items, or a sample of many."""
        few = n_items <= FULL
        return np.arange(n_items) if few else rng.choice(n_items, SAMPLED, replace=False)

    def loss(self, states: Tensor, table: Tensor, answers: Answers) -> Tensor:
        """Cross-entropy of the weighted targets in a softmax over the batch's items."""
        return full_softmax(states, table, answers)


class HSTU(ESASRec):
    """Zhai et al., ICML 2024, "Actions Speak Louder than Words" (HSTU): blocks that weigh what came
    before by silu(q·k + bias of the distance) / n instead of a softmax, and gate the result.

    Differences: no bias of time, and the objective of eSASRec.
    """

    name = "HSTU"

    def block(self) -> nn.Module:
        """A new block of HSTU."""
        return _HSTUBlock(self.config.dimension, self.config.length)


# ── pieces of histories ─────────────────────────────────────────────────────────────────


class Pieces(NamedTuple):
    """Stretches of all interactions, each of one user."""

    starts: Ids
    stops: Ids


def pieces(ends: Ids, length: int) -> Pieces:
    """Histories cut from the end into pieces of ``length`` interactions.

    Each piece begins with the last interaction of the one before, so that every interaction but a
    user's first is the next one of some piece.
    """
    starts, stops = list[int](), list[int]()
    for first, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        while stop - first >= 2:
            start = max(first, stop - length)
            starts.append(start)
            stops.append(stop)
            stop = start + 1
    return Pieces(np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64))


def _batched(cut: Pieces, size: int, rng: np.random.Generator) -> list[Ids]:
    """Batches of pieces of similar length, in random order."""
    order = np.lexsort((rng.random(len(cut.starts)), cut.stops - cut.starts))
    parts = chunks(order, size)
    return [parts[k] for k in rng.permutation(len(parts))]


def padded(items: Ids, starts: Ids, stops: Ids, filler: int) -> Ids:
    """Stretches of items, filled up behind to the longest; [stretches, longest]."""
    sizes = stops - starts
    place = np.arange(sizes.max(initial=0))
    inside = place < sizes[:, None]
    where = np.where(inside, starts[:, None] + place, 0)
    return np.where(inside, items[where], filler)


# ── items, and the facts they have ──────────────────────────────────────────────────────


class ItemFacts(NamedTuple):
    """The facts of each item: entities, each with its share of the facts of one relation."""

    starts: Ids  # [items + 2]; the filler behind the items has none
    entities: Ids
    shares: Floats
    n_entities: int


def item_facts(graph: KnowledgeGraph) -> ItemFacts:
    """All edges of items except interactions; a fact counts 1 / (facts of its relation)."""
    first, stop = graph.n_users, graph.n_users + graph.n_items
    heads, kinds = graph.edge_heads(), graph.edge_relations()
    edges = np.arange(graph.indptr[first], graph.indptr[stop])
    edges = edges[kinds[edges] != graph.inverse(INTERACTION)]
    owners, relations = heads[edges] - first, kinds[edges]
    _, which, counts = np.unique(
        owners.astype(np.int64) * 2 * len(graph.relations) + relations,
        return_inverse=True,
        return_counts=True,
    )
    starts = np.searchsorted(owners, np.arange(graph.n_items + 2))
    shares = (1 / counts[which]).astype(np.float32)
    return ItemFacts(starts, graph.tails[edges].astype(np.int64), shares, graph.n_entities)


# ── the network ─────────────────────────────────────────────────────────────────────────


class _Network(nn.Module):
    """All that is learned. The vector behind the last item's fills histories up."""

    def __init__(
        self,
        n_items: int,
        config: SASRecConfig,
        block: Callable[[], nn.Module],
        facts: ItemFacts | None = None,
    ) -> None:
        super().__init__()
        d = config.dimension
        self.n_items, self.known = n_items, facts
        self.items = nn.Embedding(n_items + 1, d)
        self.places = nn.Embedding(config.length, d)
        self.facts = nn.Embedding(facts.n_entities if facts else 0, d)
        for table in (self.items, self.places, self.facts):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(d)

    def vectors(self, items: Ids) -> Tensor:
        """M of some items: their own vectors and those of their facts; [items, d]."""
        own: Tensor = self.items(torch.from_numpy(items))
        if self.known is None:
            return own
        starts, entities, shares, _ = self.known
        sizes = np.diff(starts)[items]
        _, edges = gather(starts[items], sizes)
        return own + embedding_bag(
            torch.from_numpy(entities[edges]),
            self.facts.weight,
            torch.from_numpy(np.cumsum(sizes) - sizes),
            mode="sum",
            per_sample_weights=torch.from_numpy(shares[edges]),
        )

    def forward(self, vectors: Tensor, share: float = 0.0) -> Tensor:
        """norm(H) at each place of histories of item vectors, ``share`` of it dropped;
        [rows, places, d]."""
        x = vectors * vectors.shape[2] ** 0.5 + self.places.weight[: vectors.shape[1]]
        x = dropout(x, share)
        for block in self.blocks:
            x = block(x, share)
        out: Tensor = self.norm(x)
        return out


class _Block(nn.Module):
    """Attention to what came before, and two layers for each place."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.mixed, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.wide, self.narrow = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, share: float) -> Tensor:
        """The block's output; [rows, places, d]."""
        x = x + dropout(self._attended(x), share)
        inner = torch.relu(self.wide(self.norms[1](x)))
        out: Tensor = x + dropout(self.narrow(inner), share)
        return out

    def _attended(self, x: Tensor) -> Tensor:
        """What attention makes of what came before; [rows, places, d]."""
        q, k, v = _by_head(self.mixed(self.norms[0](x)))
        # Fillers come after all items, so causal attention never sees them.
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(seen.transpose(1, 2).reshape(x.shape))
        return out


class _GatedBlock(_Block):
    """A block of LiGR: a gate of each half's input scales what it adds, and the two layers are
    SwiGLU's."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.gates = nn.ModuleList([nn.Linear(d, d), nn.Linear(d, d)])
        self.switch = nn.Linear(d, 2 * d)

    def forward(self, x: Tensor, share: float) -> Tensor:
        """The block's output; [rows, places, d]."""
        x = x + dropout(self._attended(x) * torch.sigmoid(self.gates[0](x)), share)
        y = self.norms[1](x)
        inner = silu(self.switch(y)) * self.wide(y)
        out: Tensor = x + dropout(self.narrow(inner) * torch.sigmoid(self.gates[1](x)), share)
        return out


class _HSTUBlock(nn.Module):
    """A block of HSTU: x + W₂(norm(A v) ⊙ g), with g, v, q, k = silu(W₁ norm(x)) and
    A = silu(q kᵀ + bias of the distance) / n over what came before."""

    def __init__(self, d: int, length: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mixed, self.out = nn.Linear(d, 4 * d), nn.Linear(d, d)
        self.distances = nn.Parameter(torch.zeros(length))

    def forward(self, x: Tensor, share: float) -> Tensor:
        """The block's output; [rows, places, d]."""
        n = x.shape[1]
        mixed = silu(self.mixed(self.norm(x)))
        gate, rest = mixed[..., : x.shape[2]], mixed[..., x.shape[2] :]
        v, q, k = _by_head(rest)
        distance = torch.arange(n)[:, None] - torch.arange(n)
        bias = self.distances[distance.clamp(min=0)]
        weights = (silu(q @ k.mT + bias) / n) * (distance >= 0)  # [rows, heads, places, places]
        seen = (weights @ v).transpose(1, 2).reshape(x.shape)
        out: Tensor = x + dropout(self.out(layer_norm(seen, seen.shape[2:]) * gate), share)
        return out


def _by_head(mixed: Tensor) -> tuple[Tensor, ...]:
    """Three parts that lie side by side, each as [rows, heads, places, d / heads]."""
    n, t, width = mixed.shape
    return mixed.view(n, t, 3, HEADS, width // 3 // HEADS).permute(2, 0, 3, 1, 4).unbind()


# ── losses ──────────────────────────────────────────────────────────────────────────────


class Answers(NamedTuple):
    """What states are to predict; items are rows of the batch's table."""

    true: Tensor  # [states, K]
    weights: Tensor  # [states, K]; rows add up to 1
    drawn: Tensor  # items to compare with
    n_items: int  # of the whole catalogue


def sampled_softmax(states: Tensor, table: Tensor, answers: Answers) -> Tensor:
    """Mean −log softmax of the next item among itself and the items drawn."""
    true = answers.true[:, 0]
    far = states @ table[answers.drawn].mT  # [states, drawn]
    far = far.masked_fill(true[:, None] == answers.drawn, -torch.inf)
    near = (states * table[true]).sum(1, keepdim=True)
    first = torch.zeros(len(true), dtype=torch.int64)
    return cross_entropy(torch.cat([near, far], dim=1), first)


def full_softmax(states: Tensor, table: Tensor, answers: Answers) -> Tensor:
    """Mean cross-entropy of weighted targets in a softmax over the targets and the items drawn,
    which stand for all other items."""
    true, place = torch.unique(answers.true, return_inverse=True)
    others = answers.drawn[~torch.isin(answers.drawn, true)]
    chosen = torch.cat([true, others])
    logs = torch.zeros(len(chosen))
    if len(others):
        logs[len(true) :] = np.log((answers.n_items - len(true)) / len(others))
    out: Tensor = Softmax.apply(states, table[chosen], logs, place, answers.weights)  # type: ignore[no-untyped-call]
    return out


@torch.no_grad()
def _read(network: _Network, table: Tensor, items: Ids, ends: Ids, config: SASRecConfig) -> Floats:
    """norm(H_n) of every user, 0 for those without history; [users, dimension]."""
    starts = np.maximum(ends[:-1], ends[1:] - config.length)
    out = np.zeros((len(starts), config.dimension), dtype=np.float32)
    order = np.argsort(ends[1:] - starts, kind="stable")
    order = order[(ends[1:] > starts)[order]]
    for rows in chunks(order, config.batch):
        read = padded(items, starts[rows], ends[1:][rows], network.n_items)
        last = torch.from_numpy(ends[1:][rows] - starts[rows] - 1)
        states = network(table[torch.from_numpy(read)])
        out[rows] = states[torch.arange(len(rows)), last].numpy()
    return out
