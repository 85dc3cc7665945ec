"""LightGCN: vectors that flow between users and what they have, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from loger.baselines._shared import Factors, check_cpu, chunks
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.graph.arrays import Floats, Ids
from loger.recommender import PairMatrix, part_matrix

NEGATIVES = 1024
"""Items drawn uniformly that a batch shares; all of them if there are no more."""


@dataclass(frozen=True, slots=True)
class LightGCNConfig(TrainerConfig):
    """Settings of LightGCN. Dimension and layers are those of the papers; the rest makes a few
    epochs converge and wasn't tuned, so use ``--tune`` for your own data."""

    dimension: int = 64
    layers: int = 2
    """Number of hops that vectors flow (2 to 4 in the paper)."""
    temperature: float = 0.15
    """Of the softmax, because vectors have unit length."""
    batch: int = 8192
    """Pairs per flow over the whole graph."""
    epochs: int = 30
    rate: float = 2e-2
    final_rate: float = 2e-3
    l2: float = 1e-4
    """λ: weight of the squared first vectors of a batch, per pair."""


class LightGCN(Factors):
    """He, Deng, Wang, Li, Zhang & Wang, SIGIR 2020, "LightGCN: Simplifying and Powering Graph
    Convolution Network for Recommendation".

    With A the symmetric matrix of training pairs between users and items and D its degrees,

        E^(k+1) = D^−½ A D^−½ E^(k),   E = (E^(0) + … + E^(K)) / (K + 1),
        score(u, v) = cos(e_u, e_v).

    Only E^(0) is learned. Difference from the paper: a sampled softmax instead of BPR (Wu et al.,
    TOIS 2024), −log softmax_v(cos(e_u, e_v)/τ) among the true item and N drawn uniformly, which
    one batch shares. The flow is linear and symmetric, so the gradient flows back to E^(0) in the
    same way.
    """

    name = "LightGCN"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {
        "temperature": (0.1, 0.15, 0.2),
        "layers": (1, 2, 3),
    }

    def __init__(self, **settings: Any) -> None:
        self.config = c = overridden(LightGCNConfig(), settings)
        check_cpu(self.name, c.device)
        check_numbers(c, "temperature", dimension=1, batch=1, epochs=1, layers=0, l2=0)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Flow, compare, flow back, step; then flow once more."""
        c, pairs = self.config, part_matrix(split, "train")
        flow = normalized(pairs)
        rng = np.random.default_rng([c.seed, 0x116C])
        start = rng.standard_normal((flow.shape[0], c.dimension), dtype=np.float32)
        first = torch.from_numpy(start * np.float32(0.1))
        adam = torch.optim.Adam([first.requires_grad_()], lr=c.rate)
        own = [x.astype(np.int64) for x in pairs.tocoo().coords]
        with one_thread():
            for epoch in range(c.epochs):
                progress(self.name, epoch, c.epochs)
                adam.param_groups[0]["lr"] = c.rate_after(epoch / c.epochs)
                for rows in chunks(rng.permutation(len(own[0])), c.batch):
                    batch = own[0][rows], own[1][rows]
                    first.grad = self._slope(first, flow, pairs.shape[0], *batch, rng)
                    adam.step()
            last = normalize(torch.from_numpy(flowed(flow, first.detach().numpy(), c.layers)))
        progress(self.name, c.epochs, c.epochs)
        self.users_, self.items_ = np.split(last.numpy(), pairs.shape[:1])
        return self

    def _slope(
        self,
        first: Tensor,
        flow: PairMatrix,
        n_users: int,
        users: Ids,
        items: Ids,
        rng: np.random.Generator,
    ) -> Tensor:
        """The slope of a batch's loss in E^(0); items are numbered from 0."""
        c, n_items = self.config, flow.shape[0] - n_users
        drawn = np.arange(n_items)
        if n_items > NEGATIVES:
            drawn = rng.integers(n_items, size=NEGATIVES)
        whole = torch.from_numpy(flowed(flow, first.detach().numpy(), c.layers)).requires_grad_()
        softmax_loss(whole, n_users, users, items, drawn, c.temperature).backward()  # type: ignore[no-untyped-call]
        assert whole.grad is not None
        slope = flowed(flow, whole.grad.numpy(), c.layers)
        times = np.bincount(np.concatenate([users, items + n_users]), minlength=len(slope))
        share = torch.from_numpy((2 * c.l2 * times / len(users)).astype(np.float32))
        return torch.from_numpy(slope) + share[:, None] * first.detach()


def softmax_loss(
    vectors: Tensor, n_users: int, users: Ids, items: Ids, drawn: Ids, temperature: float
) -> Tensor:
    """Mean −log softmax of each pair's item among itself and the items drawn."""
    u, v, others = (
        normalize(vectors[torch.from_numpy(rows)])
        for rows in (users, items + n_users, drawn + n_users)
    )
    same = torch.from_numpy(items[:, None] == drawn)
    far = (u @ others.mT / temperature).masked_fill(same, -torch.inf)  # [pairs, drawn]
    near = (u * v).sum(1, keepdim=True) / temperature
    answers = torch.zeros(len(users), dtype=torch.int64)
    return cross_entropy(torch.cat([near, far], dim=1), answers)


def normalized(pairs: PairMatrix) -> PairMatrix:
    """D^−½ A D^−½ of users and items; [users + items, users + items]."""
    both = sp.csr_array(sp.block_array([[None, pairs], [pairs.T, None]], format="csr"))
    sizes = np.diff(both.indptr)
    scale = np.maximum(sizes, 1).astype(np.float32) ** np.float32(-0.5)
    data = np.repeat(scale, sizes) * scale[both.indices]
    return sp.csr_array((data, both.indices, both.indptr), shape=both.shape)


def flowed(flow: PairMatrix, x: Floats, layers: int) -> Floats:
    """The mean of x and what it is after 1, 2, … layers."""
    total, now = x.copy(), x
    for _ in range(layers):
        now = flow @ now
        total += now
    total /= np.float32(layers + 1)
    return total
