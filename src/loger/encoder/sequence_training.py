"""How the sequence encoder learns (METHOD 15).

Every prefix of a history predicts which items come next. The next K items are its targets, the k-th
counts k^-½, and the softmax is over all items. If items are many, it is over the batch's targets
and a uniform sample of the others, which represents all of them. The last 200 items of a prefix
count. Of longer histories, half of the visits see a random stretch. If prefixes are many, only
every second, third … of a history is used, because neighbours have nearly the same targets.

The recurrence is one product per dimension with a matrix of powers of λ, and the softmax computes
its gradient in the forward pass, so nearly all time is spent in matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import dropout

from loger.encoder.sequence import SequenceConfig, State
from loger.encoder.training import Checkpoint, chosen_device, repeatable
from loger.engine import Progress
from loger.engine.threads import one_thread
from loger.graph import KnowledgeGraph
from loger.graph.arrays import Floats, Ids

LONGEST = 200
"""The most items of a prefix that count."""
ENOUGH, SPARSEST = 150_000, 8
"""An epoch uses about this many prefixes: every second, third … of each history from a random
start, but at least every eighth."""
SPARSE = 20
"""If there are fewer prefixes than this per item, a fit makes half of the epochs; more overfit
(docs/adr/0025)."""
FULL, SAMPLED = 5_000, 2_000
"""The most items for which the softmax is over all of them, and how many are drawn if there are
more."""
SLOWEST, FASTEST = 0.9975, 0.5
"""The decays start evenly spaced between these."""
OWN, OWN_DROPOUT = 0.02, 0.3
"""The initial size of items' own vectors, and the share of items for which they are left out in a
step, so that TransE's directions alone predict something too."""
WHAT = "training the sequence encoder"


class Training:
    """One fit: parameters with their moments, and histories to learn from."""

    def __init__(
        self,
        config: SequenceConfig,
        graph: KnowledgeGraph,
        directions: Floats,
        begun: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> None:
        self.config, self.graph, self.warm = config, graph, begun is not None
        self.device = chosen_device(config.device)
        self.directions = torch.from_numpy(directions).to(self.device)
        self.histories = _histories(graph)
        sizes = np.minimum(np.diff(self.histories[1]), LONGEST)
        prefixes = np.maximum(sizes - 1, 0).sum()
        self.stride = int(np.clip(prefixes / ENOUGH, 1, SPARSEST))
        sparse = prefixes < SPARSE * graph.n_items
        epochs = max(1, config.epochs // 2) if sparse else config.epochs
        self.epochs = config.warm_epochs if self.warm else epochs
        self._start(begun)

    def run(self, checkpoint: Path | None, progress: Progress) -> State:
        """Train for all epochs that a checkpoint hasn't done; returns what was learned."""
        begun = self.parameters if self.warm else None
        run = self.graph.fingerprint, self.config, self.directions, begun
        saved, tensors = Checkpoint(checkpoint, "sequence", *run), self._tensors()
        with torch.no_grad():
            first = saved.resume(tensors)
        with one_thread():
            for epoch in range(first, self.epochs):
                batches = list(self._batches(epoch))
                with repeatable([self.config.seed, 0x5E9, epoch, self.warm]):
                    for k, batch in enumerate(batches):
                        progress(WHAT, epoch * len(batches) + k, self.epochs * len(batches))
                        done = (epoch + k / len(batches)) / self.epochs
                        self._step(batch, self.config.rate_after(done), [epoch, k])
                saved.save(epoch + 1, tensors)
        progress(WHAT, 1, 1)
        return self._learned()

    # ── parameters ──────────────────────────────────────────────────────────────────────

    def _start(self, begun: Mapping[str, Any] | None) -> None:
        """Draw the initial values, or continue from earlier ones."""
        n, d, width = self.graph.n_items, self.config.dimension, self.directions.shape[1]
        rng = np.random.default_rng([self.config.seed, 0x5E90])
        maps = 0.1 * rng.standard_normal((width, 2 * d), dtype=np.float32)
        own = OWN * rng.standard_normal((n, 2 * d), dtype=np.float32)
        decays, biases = np.linspace(FASTEST, SLOWEST, d, dtype=np.float32), np.zeros(n, np.float32)
        if begun is not None:
            maps, decays, biases = begun["maps"], begun["decays"], begun["biases"]
            tables = np.hstack([begun["sources"], begun["targets"]])
            own = tables - self.directions.cpu().numpy() @ maps
        free = np.log(decays / (1 - decays))
        first = {"own": own, "maps": maps, "biases": biases, "decays": free}
        self.parameters = {
            name: torch.tensor(x, device=self.device, requires_grad=True)
            for name, x in first.items()
        }
        self.adam = torch.optim.Adam(self.parameters.values())
        for parameter in self.parameters.values():  # Adam creates its state only at the first step
            zeros = torch.zeros_like
            self.adam.state[parameter] = {
                "step": torch.zeros(()), "exp_avg": zeros(parameter), "exp_avg_sq": zeros(parameter)
            }  # fmt: skip

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes; the tensors are the state itself, not copies."""
        out = {name: p.detach() for name, p in self.parameters.items()}
        for name, p in self.parameters.items():
            out |= {f"{name}.{k}": t for k, t in self.adam.state[p].items()}
        return out

    def _tables(self, training: bool = True) -> tuple[Tensor, Tensor]:
        """s and t: items' own vectors plus what TransE's directions add."""
        own, known = self.parameters["own"], self.directions @ self.parameters["maps"]
        if training:
            kept = torch.rand(len(own), 1, device=self.device) >= OWN_DROPOUT
            own = own * (kept / (1 - OWN_DROPOUT))
        sources, targets = (own + known).chunk(2, dim=1)
        return sources, targets

    @torch.no_grad()
    def _learned(self) -> State:
        sources, targets = self._tables(training=False)
        out = {"sources": sources, "targets": targets, "maps": self.parameters["maps"].detach()}
        out["biases"] = self.parameters["biases"].detach()
        out["decays"] = torch.sigmoid(self.parameters["decays"])
        return {name: t.cpu().contiguous().numpy() for name, t in out.items()}

    # ── batches and steps ───────────────────────────────────────────────────────────────

    def _batches(self, epoch: int) -> Iterator[tuple[Ids, Ids, Ids]]:
        """Users with histories of similar length, where their stretches begin, and which prefixes
        are used, by the place of the last item."""
        rng = np.random.default_rng([self.config.seed, 0x5E91, epoch, self.warm])
        _, starts = self.histories
        sizes = np.diff(starts)
        users = rng.permutation(np.flatnonzero(sizes > 1))
        users = users[np.argsort(np.minimum(sizes[users], LONGEST), kind="stable")]
        prefixes = np.cumsum((np.minimum(sizes[users], LONGEST) - 1) / self.stride)
        cuts = np.flatnonzero(np.diff(prefixes // self.config.batch)) + 1
        parts = np.split(users, cuts)
        for k in rng.permutation(len(parts)):
            own = parts[k]
            spare = np.maximum(sizes[own] - LONGEST, 0)
            anywhere = rng.random(len(own)) < 0.5
            skipped = np.where(anywhere, (rng.random(len(own)) * (spare + 1)).astype(int), spare)
            longest = int(np.minimum(sizes[own], LONGEST).max())
            first = int(rng.integers(min(self.stride, longest - 1)))
            yield own, starts[own] + skipped, np.arange(first, longest - 1, self.stride)

    def _step(self, batch: tuple[Ids, Ids, Ids], rate: float, seed: list[int]) -> None:
        users, begin, asked = batch
        items, starts = self.histories
        n = np.minimum(starts[users + 1] - begin, LONGEST)[:, None]
        places = np.arange(n.max())
        rows = items[begin[:, None] + np.minimum(places, n - 1)]  # [users, places]
        after = asked[:, None] + 1 + np.arange(self.config.targets)  # [prefixes, K]
        there = after < n[:, :, None]  # [users, prefixes, K]
        some = there[:, :, 0]
        targets = rows[:, np.minimum(after, len(places) - 1)][some]
        worth = there[some] * (1 + np.arange(self.config.targets)) ** -0.5
        worth /= worth.sum(axis=1, keepdims=True)
        sources, items_are = self._tables()
        present = torch.from_numpy(np.where(places < n, rows, -1)).to(self.device)
        h = self._states(sources, present, asked)[torch.from_numpy(some).to(self.device)]
        h, biases = dropout(h, self.config.dropout), self.parameters["biases"]
        among = self._candidates(targets, seed)
        if among is not None:
            chosen, log_weights, targets = among
            items_are, biases = items_are[chosen], biases[chosen] + log_weights
        exact = torch.from_numpy(targets).to(self.device)
        weights = torch.from_numpy(worth.astype(np.float32)).to(self.device)
        self.adam.param_groups[0]["lr"] = rate
        self.adam.zero_grad()
        # Autograd alone is typed as untyped.
        Softmax.apply(h, items_are, biases, exact, weights).backward()  # type: ignore[no-untyped-call]
        self.adam.step()

    def _states(self, sources: Tensor, items: Tensor, asked: Ids) -> Tensor:
        """h after the prefixes that are used; [users, prefixes, d]. Items are [users, places], with
        -1 for none."""
        decays = torch.sigmoid(self.parameters["decays"])
        vectors = sources[items.clamp(min=0)] * (items >= 0).unsqueeze(2)
        ends = torch.from_numpy(asked).to(self.device)
        # [prefixes, places]
        ages = ends[:, None] - torch.arange(items.shape[1], device=self.device)
        powers = decays[:, None, None] ** ages.clamp(min=0) * (ages >= 0)  # [d, prefixes, places]
        powers = powers / powers.square().sum(2, keepdim=True).sqrt()
        return torch.bmm(powers, vectors.permute(2, 1, 0)).permute(2, 1, 0)

    def _candidates(self, targets: Ids, seed: list[int]) -> tuple[Tensor, Tensor, Ids] | None:
        """The items of the softmax, the logarithm of how many items each represents, and the
        targets' places among them; None if the softmax is over all items."""
        n = self.graph.n_items
        if n <= FULL:
            return None
        rng = np.random.default_rng([self.config.seed, 0x5E92, *seed])
        true = np.unique(targets)
        others = np.setdiff1d(rng.choice(n, SAMPLED, replace=False), true)
        chosen = np.concatenate([true, others])
        weights = np.zeros(len(chosen), np.float32)
        weights[len(true) :] = np.log((n - len(true)) / max(len(others), 1))
        both = torch.from_numpy(chosen).to(self.device), torch.from_numpy(weights).to(self.device)
        return *both, np.searchsorted(true, targets)


class Softmax(torch.autograd.Function):
    """The mean cross-entropy of weighted targets in softmax(h tᵀ + b), with its gradient."""

    @staticmethod
    def forward(
        context: Any, h: Tensor, t: Tensor, b: Tensor, targets: Tensor, weights: Tensor
    ) -> Tensor:
        """``targets`` are places in t, [prefixes, K]; ``weights`` are what each counts, with rows
        that add up to 1."""
        z = torch.addmm(b, h, t.mT)
        found = z.gather(1, targets)
        most = z.amax(1, keepdim=True)
        total = z.sub_(most).exp_().sum(1, keepdim=True)
        loss = ((most + total.log() - found) * weights).sum() / len(h)
        z.mul_(1 / (total * len(h))).scatter_add_(1, targets, weights / -len(h))
        context.save_for_backward(z @ t, z.mT @ h, z.sum(0))
        return loss

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Any:
        """The gradients, which the forward pass has computed."""
        return *(slope * part for part in context.saved_tensors), None, None


def _histories(graph: KnowledgeGraph) -> tuple[Ids, Ids]:
    """The items of all users in order of time, ties by number, and where each user's begin."""
    edges, users = graph.interactions
    assert graph.times is not None
    items = graph.tails[edges].astype(np.int64) - graph.n_users
    order = np.lexsort((items, graph.times[edges], users))
    sizes = np.bincount(users, minlength=graph.n_users)
    return items[order], np.concatenate([[0], np.cumsum(sizes)])
