"""SASRec: a small transformer that reads a history in its order and says what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, scaled_dot_product_attention, silu

from loger.baselines._shared import Factors, check_cpu, ordered_events
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph.arrays import Floats, Ids

NEGATIVES = 1024
"""Items drawn uniformly that a batch shares; all of them where the catalogue is no larger."""


@dataclass(frozen=True, slots=True)
class SASRecConfig(TrainerConfig):
    """Settings of SASRec; size, blocks and heads are near those of the papers, the rest makes a
    fit of ml1m take ten minutes of one core and was not searched for."""

    dimension: int = 64
    blocks: int = 2
    heads: int = 2
    length: int = 100
    """Interactions that are read at a time; of a longer history, the last ones."""
    dropout: float = 0.2
    batch: int = 64
    """Pieces of histories per step."""
    epochs: int = 20
    rate: float = 2e-3
    final_rate: float = 1e-4
    targets: int = 1
    """K: the targets at each place are the next so many items; the k-th counts k^-½."""


class SASRec(Factors):
    """Kang & McAuley, ICDM 2018, "Self-Attentive Sequential Recommendation", with the loss that
    made it strong again (Klenitskiy & Vasilev, RecSys 2023; Petrov & Macdonald, RecSys 2023).

    With i_1 … i_n the last n ≤ L interactions of a user, in order, M the vectors of items and P
    those of places, each of B blocks makes of H^(0)_t = √d M_{i_t} + P_t

        H' = H + attention(norm(H), causal),   H = H' + W₂ relu(W₁ norm(H')),
        score(u, v) = norm(H_n) · M_v.

    Learned is every next item from what came before, −log softmax of its score at t among itself
    and N items drawn uniformly, which one batch shares. Where it differs from the paper: that
    loss, for one negative with binary cross-entropy; histories longer than L are cut into pieces
    from the end, so that all of them is learned from; norms stand before each part. Of
    interactions at the same time the data's own order stands. A user without history scores 0.
    """

    name = "SASRec"
    defaults: ClassVar[SASRecConfig] = SASRecConfig()
    gated: ClassVar[bool] = False
    """Whether blocks are those of LiGR."""
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"dropout": (0.2, 0.4), "epochs": (10, 20)}

    def __init__(self, **settings: Any) -> None:
        self.config = c = overridden(self.defaults, settings)
        check_cpu(self.name, c.device)
        check_numbers(c, dimension=1, blocks=1, heads=1, length=1, batch=1, epochs=1, targets=1)
        if c.dimension % c.heads or not 0 <= c.dropout < 1:
            raise LogerError(
                "dimension must be a multiple of heads and dropout in [0, 1); got "
                f"{c.dimension!r}, {c.heads!r}, {c.dropout!r}"
            )

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn what comes next, and read every history to its end."""
        c = self.config
        users, in_order, _ = ordered_events(split)
        items = in_order.astype(np.int64)
        ends = np.searchsorted(users, np.arange(split.dataset.n_users + 1))
        rng = np.random.default_rng([c.seed, 0x5A5])
        with torch.random.fork_rng(devices=[]), one_thread():
            torch.manual_seed(int(rng.integers(1 << 62)))
            network = _Network(split.dataset.n_items, c, self.gated)
            self._learn(network, items, pieces(ends, c.length + 1), rng, progress)
            self.users_ = _read(network, items, ends, c)
        self.items_ = network.items.weight.detach().numpy()[:-1]
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
        c, n_items = self.config, network.items.num_embeddings - 1
        adam = torch.optim.Adam(network.parameters(), lr=c.rate, betas=(0.9, 0.98))
        for epoch in range(c.epochs):
            batches = list(_batched(cut, c.batch, rng))
            for k, rows in enumerate(batches):
                progress(self.name, epoch * len(batches) + k, c.epochs * len(batches))
                done = (epoch + k / len(batches)) / c.epochs
                adam.param_groups[0]["lr"] = c.rate_after(done)
                read = padded(items, cut.starts[rows], cut.stops[rows], n_items)
                drawn = np.arange(n_items)
                if n_items > NEGATIVES:
                    drawn = rng.integers(n_items, size=NEGATIVES)
                loss = next_items_loss(network, read, drawn, c.dropout, c.targets)
                adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
        progress(self.name, 1, 1)


# ── pieces of histories ─────────────────────────────────────────────────────────────────


class Pieces(NamedTuple):
    """Stretches of all interactions, each of one user."""

    starts: Ids
    stops: Ids


def pieces(ends: Ids, length: int) -> Pieces:
    """Histories cut from the end into pieces of so many interactions, each beginning with the
    last of the one before, so that every interaction but the first is some piece's next one."""
    starts, stops = list[int](), list[int]()
    for first, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        while stop - first >= 2:
            start = max(first, stop - length)
            starts.append(start)
            stops.append(stop)
            stop = start + 1
    return Pieces(np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64))


def _batched(cut: Pieces, size: int, rng: np.random.Generator) -> Iterator[Ids]:
    """Batches of pieces of like length, in random order."""
    order = np.lexsort((rng.random(len(cut.starts)), cut.stops - cut.starts))
    parts = [order[k : k + size] for k in range(0, len(order), size)]
    for k in rng.permutation(len(parts)):
        yield parts[k]


def padded(items: Ids, starts: Ids, stops: Ids, filler: int) -> Tensor:
    """Stretches of items, filled up behind to the longest; [stretches, longest]."""
    sizes = stops - starts
    place = np.arange(sizes.max(initial=0))
    inside = place < sizes[:, None]
    where = np.where(inside, starts[:, None] + place, 0)
    return torch.from_numpy(np.where(inside, items[where], filler))


# ── the network ─────────────────────────────────────────────────────────────────────────


class _Network(nn.Module):
    """What is learned. The vector behind the last item fills histories up and stays 0."""

    def __init__(self, n_items: int, config: SASRecConfig, gated: bool = False) -> None:
        super().__init__()
        d = config.dimension
        self.items = nn.Embedding(n_items + 1, d, padding_idx=n_items)
        self.places = nn.Embedding(config.length, d)
        for table in (self.items, self.places):
            nn.init.normal_(table.weight, std=0.02)
        with torch.no_grad():
            self.items.weight[n_items] = 0
        kind = _GatedBlock if gated else _Block
        self.blocks = nn.ModuleList(kind(d, config.heads) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(d)

    def forward(self, read: Tensor, share: float = 0.0) -> Tensor:
        """norm(H) at each place of some histories, ``share`` of it dropped; [rows, places, d]."""
        x = self.items(read) * self.items.embedding_dim**0.5 + self.places.weight[: read.shape[1]]
        x = dropout(x, share)
        for block in self.blocks:
            x = block(x, share)
        out: Tensor = self.norm(x)
        return out


class _Block(nn.Module):
    """Attention to what came before, and two layers for each place."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.mixed, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.wide, self.narrow = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, share: float) -> Tensor:
        """What comes out of the block; [rows, places, d]."""
        x = x + dropout(self._attended(x), share)
        inner = torch.relu(self.wide(self.norms[1](x)))
        out: Tensor = x + dropout(self.narrow(inner), share)
        return out

    def _attended(self, x: Tensor) -> Tensor:
        """What attention makes of what came before; [rows, places, d]."""
        n, t, d = x.shape
        mixed = self.mixed(self.norms[0](x)).view(n, t, 3, self.heads, d // self.heads)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)  # [rows, heads, places, d / heads] each
        # What fills up stands behind what is there, so causal attention never sees it.
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(seen.transpose(1, 2).reshape(n, t, d))
        return out


class _GatedBlock(_Block):
    """A block of LiGR: what each half adds passes a gate that its input opens, and the two layers
    are SwiGLU's."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__(d, heads)
        self.gates = nn.ModuleList([nn.Linear(d, d), nn.Linear(d, d)])
        self.switch = nn.Linear(d, 2 * d)

    def forward(self, x: Tensor, share: float) -> Tensor:
        """What comes out of the block; [rows, places, d]."""
        x = x + dropout(self._attended(x) * torch.sigmoid(self.gates[0](x)), share)
        y = self.norms[1](x)
        inner = silu(self.switch(y)) * self.wide(y)
        out: Tensor = x + dropout(self.narrow(inner) * torch.sigmoid(self.gates[1](x)), share)
        return out


def next_items_loss(
    network: _Network, read: Tensor, drawn: Ids, share: float, targets: int = 1
) -> Tensor:
    """Mean −log softmax of each of the next items among itself and the items drawn; of so many
    targets the k-th counts k^-½."""
    filler, others = network.items.num_embeddings - 1, torch.from_numpy(drawn)
    states = network(read[:, :-1], share)
    total, counted = torch.zeros(()), 0.0
    for k in range(1, min(targets, read.shape[1] - 1) + 1):
        answers = read[:, k:]
        there = answers != filler
        h, true = states[:, : answers.shape[1]][there], answers[there]  # [tokens, d], [tokens]
        far = h @ network.items(others).mT  # [tokens, drawn]
        far = far.masked_fill(true[:, None] == others, -torch.inf)
        near = (h * network.items(true)).sum(1, keepdim=True)
        first = torch.zeros(len(true), dtype=torch.int64)
        loss = cross_entropy(torch.cat([near, far], dim=1), first, reduction="sum")
        total, counted = total + k**-0.5 * loss, counted + k**-0.5 * len(true)
    return total / max(counted, 1e-12)


@torch.no_grad()
def _read(network: _Network, items: Ids, ends: Ids, config: SASRecConfig) -> Floats:
    """norm(H_n) of every user, 0 of those without history; [users, dimension]."""
    starts = np.maximum(ends[:-1], ends[1:] - config.length)
    out = np.zeros((len(starts), config.dimension), dtype=np.float32)
    order = np.argsort(ends[1:] - starts, kind="stable")
    order = order[(ends[1:] > starts)[order]]
    for k in range(0, len(order), config.batch):
        rows = order[k : k + config.batch]
        read = padded(items, starts[rows], ends[1:][rows], network.items.num_embeddings - 1)
        last = torch.from_numpy(ends[1:][rows] - starts[rows] - 1)
        out[rows] = network(read)[torch.arange(len(rows)), last].numpy()
    return out
