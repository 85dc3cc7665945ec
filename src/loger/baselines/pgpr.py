"""PGPR: a walker that is rewarded for the items it reaches, and recommends them by its paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import elu, normalize, smooth_l1_loss

from loger.baselines._kernels import best_steps, find_steps, step_products, step_sums
from loger.baselines._shared import chunks, paced, with_best_paths
from loger.data.splits import Split
from loger.encoder import Encoder, TransE, TransEConfig
from loger.encoder.folding import vectors
from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import chosen_device
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph, Path, checked_ids, history
from loger.graph.arrays import Floats, Ids
from loger.grounding.layout import layout
from loger.logic.mining import MiningConfig, mine
from loger.recommender import ExplainedItem, Recommender
from loger.rules import RuleSet

_SHARPNESS = 8.0
"""Scale of the product of a query with unit vectors, so that a first policy is not all flat."""
_STATES = 4096
"""States that a beam looks from at a time: 8 MiB of steps."""


DISCOUNT = 0.99
"""As in the original."""
WALKS = 4
"""How often a user walks in a batch."""
HIDDEN = (256, 128)
"""Widths of the policy's layers; 512 and 256 in the original, but half of that serves as well."""


@dataclass(frozen=True, slots=True)
class PGPRConfig(TrainerConfig):
    """Settings of PGPR; defaults without a source were chosen on validation."""

    encoder: TransEConfig = field(default_factory=TransEConfig.thorough)
    """The vectors to walk on, which the walker leaves as they are."""
    rules: MiningConfig = field(default_factory=MiningConfig)
    """Which patterns are known: the rules that are mined with this."""
    actions: int = 250
    """A node's steps beyond these are pruned, by the encoder's score for the user; as in the
    original."""
    beam: tuple[int, ...] = (25, 10, 2)
    """How many steps are followed from each path at the first hop, the second, the third. The
    original has (25, 5, 1), at most 125 walks; where users have few items to begin with, as on
    the Amazon sets, those are 30, and this gives as many as there."""
    epochs: int = 6
    batch: int = 64
    """Users that walk at a time."""
    rate: float = 1e-3
    final_rate: float = 1e-3
    entropy: float = 0.06
    """Weight of the policy's entropy in the loss; 0.001 in the original, where dropout does part
    of the work."""


class _Policy(nn.Module):
    """Actor and critic: from a state to a query for entities, logits of relations, and a value."""

    def __init__(self, dimension: int, n_steps: int, hops: int) -> None:
        super().__init__()
        first, second = HIDDEN
        self.state = nn.Linear(3 * dimension, first)
        self.came_by = nn.Parameter(torch.zeros(hops, n_steps, first))
        self.deeper = nn.Linear(first, second)
        self.entity = nn.Linear(second, dimension)
        self.relation = nn.Linear(second, n_steps)
        self.value = nn.Linear(second, 1)

    def start(self, rng: np.random.Generator) -> Self:
        """Draw the first weights, within 1/√inputs as PyTorch does, but by our own stream."""
        with torch.no_grad():
            for layer in self.children():
                assert isinstance(layer, nn.Linear)
                bound = layer.in_features**-0.5
                for p in (layer.weight, layer.bias):
                    p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape))))
        return self

    def forward(self, hop: int, state: Tensor, came_by: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query [states, dimension], logits of relations [states, relations], values [states]."""
        x = elu(self.state(state) + self.came_by[hop, came_by])
        x = elu(self.deeper(x))
        return _SHARPNESS * self.entity(x), self.relation(x), self.value(x).squeeze(1)


class _Products(torch.autograd.Function):
    """q_i · e of each step of each state, without a copy of the vectors, for the CPU."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, vectors: Floats, ends: NDArray[np.int32], counts: Ids
    ) -> Tensor:
        """Products, 0 where there is no step; [states, steps]."""
        ctx.rest = vectors, ends, counts
        return torch.from_numpy(step_products(query.detach().numpy(), vectors, ends, counts))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        """To the query; the vectors stay as they are."""
        return torch.from_numpy(step_sums(slopes[0].numpy(), *ctx.rest)), None, None, None


class Walks(NamedTuple):
    """Walks of a block of users; steps that stay where they are have the number ``loop``."""

    owners: Ids  # [walks]: place of the user in the block
    entities: NDArray[np.int32]  # [walks, hops + 1]
    relations: NDArray[np.int32]  # [walks, hops]
    logs: Floats  # [walks]: log probability

    def at(self, which: slice | NDArray[np.bool_]) -> Walks:
        """Some of the walks."""
        return Walks(
            self.owners[which], self.entities[which], self.relations[which], self.logs[which]
        )


class PGPR(Recommender):
    """Xian et al., SIGIR 2019, "Reinforcement Knowledge Graph Reasoning for Explainable
    Recommendation".

    A walk starts at the user and takes three steps, each along a fact or to where it is. With e
    the vectors of a fitted TransE, the state at hop t is s_t = (u, e_t, e_{t-1}, r_t), and

        π(r, e | s) ∝ exp(q(s)·e + b_r(s)) over the steps,   R = max(0, f(u, v)) / max_v' f(u, v')

    for a walk that ends at an item v by a known pattern, else 0; f is the encoder's score. The
    actor maximises E[R] by REINFORCE with the critic's value as baseline and an entropy term.
    A beam then follows the 25, 5 and 1 most probable steps; an item that a path reaches is
    ranked by f(u, v), one that none reaches is not recommended (-inf), and the weight of a path
    is its probability.

    Differences: the original's actor has one output for each place in the list of steps, ours
    looks at the step itself; patterns are mined, not listed by hand; what a user has earns
    1 instead of f(u, v), which says little about items that make up the user's vector;
    no dropout but more entropy; pruning is by the user's own vector alone. No walk meets an
    entity twice, so no pair explains itself (METHOD L2).
    """

    name = "PGPR"

    encoder_: Encoder
    policy_: _Policy
    graph_: KnowledgeGraph
    rewards_: tuple[float, ...]  # mean reward of each epoch

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(PGPRConfig(), settings)
        if not self.config.beam:
            raise LogerError("beam must list one width per hop, got none")
        check_numbers(self.config, actions=1, batch=1, beam=1, epochs=0)
        self.device = chosen_device(self.config.device)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Fit the encoder, mine the patterns, and let every user walk once per epoch."""
        config, graph = self.config, split.graph
        encoder = TransE(replace(config.encoder, seed=config.seed, device=config.device))
        rules = mine(graph, replace(config.rules, max_hops=len(config.beam))).rules
        return self.walk_on(graph, encoder.fit(graph, progress=progress), rules, progress=progress)

    def walk_on(
        self,
        graph: KnowledgeGraph,
        encoder: Encoder,
        rules: RuleSet,
        *,
        progress: Progress = silent,
    ) -> Self:
        """Learn to walk on the vectors of an encoder that was fitted on the graph."""
        config = self.config
        self._take(graph, encoder)
        self.loop_ = 2 * len(graph.relations)
        self._patterns = np.array([_key([r], self.loop_)[0] for r in (x.relations for x in rules)])
        rng = np.random.default_rng([config.seed, 0x9697])
        dimension = self._vectors.shape[1]
        policy = _Policy(dimension, self.loop_ + 1, len(config.beam))
        self.policy_ = policy.start(rng).to(self.device)
        # A user without anything to do has nowhere to go.
        walkers = np.flatnonzero(np.diff(graph.indptr[: graph.n_users + 1]))
        step = torch.optim.Adam(self.policy_.parameters(), lr=config.rate)
        means, what = list[float](), "training the walker"
        with one_thread():
            for epoch in range(config.epochs):
                total, batches = 0.0, chunks(rng.permutation(walkers), config.batch)
                for users, rate in paced(what, config, epoch, batches, progress):
                    step.param_groups[0]["lr"] = rate
                    total += self._learn(users, step, rng)
                means.append(total / max(1, WALKS * len(walkers)))
        progress(what, 1, 1)
        self.rewards_ = tuple(means)
        return self

    def _take(self, graph: KnowledgeGraph, encoder: Encoder) -> None:
        """Look at a graph through an encoder's vectors, all of length 1."""
        self.graph_, self.encoder_ = graph, encoder
        entities, relations = (torch.from_numpy(x) for x in vectors(encoder, graph))
        unit = normalize(entities)
        self._vectors, self._tensor = unit.numpy(), unit.to(self.device)
        users = entities[: graph.n_users] + relations[INTERACTION]
        self._towards = (_SHARPNESS * normalize(users)).numpy()
        self._layout = layout(graph)

    def _learn(self, users: Ids, step: torch.optim.Optimizer, rng: np.random.Generator) -> float:
        """Let some users walk once and learn from it; the sum of their rewards."""
        config, hops = self.config, len(self.config.beam)
        scores = self.encoder_.score_items(users)
        owners = np.repeat(np.arange(len(users)), WALKS)
        visited = users[owners, None].astype(np.int32)
        taken = np.empty((len(owners), 0), dtype=np.int32)
        logs, values, entropies = list[Tensor](), list[Tensor](), list[Tensor]()
        for hop in range(hops):
            steps, ends, counts = self._steps(users, visited, owners, scores)
            log, value = self._log_policy(hop, visited, taken, steps, ends, counts)
            share = log.exp()
            drawn = torch.from_numpy(rng.random((len(owners), 1), dtype=np.float32))
            sums = share.detach().cumsum(1)
            chosen = (sums < drawn.to(self.device) * sums[:, -1:]).sum(1, keepdim=True)
            logs.append(log.gather(1, chosen).squeeze(1))
            values.append(value)
            entropies.append(-(share * log.clamp(min=-1e4)).sum(1))
            place = chosen.cpu().numpy()
            visited = np.hstack([visited, np.take_along_axis(ends, place, 1)])
            taken = np.hstack([taken, np.take_along_axis(steps, place, 1)])
        reward = self._reward(users, owners, scores, visited, taken)
        returns = torch.from_numpy(reward).to(self.device)
        loss = torch.zeros((), device=self.device)
        for hop in range(hops):
            earned = returns * DISCOUNT ** (hops - 1 - hop)
            gain = earned - values[hop].detach()
            loss = loss - (logs[hop] * gain + config.entropy * entropies[hop]).mean()
            loss = loss + smooth_l1_loss(values[hop], earned)
        step.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        step.step()
        return float(reward.sum())

    def _reward(
        self,
        users: Ids,
        owners: Ids,
        scores: Floats,
        visited: NDArray[np.int32],
        taken: NDArray[np.int32],
    ) -> Floats:
        """What each walk earns; [walks]."""
        items = visited[:, -1] - self.graph_.n_users
        valid = (items >= 0) & (items < self.graph_.n_items)
        valid &= np.isin(_key(taken, self.loop_), self._patterns)
        most = scores.max(1)
        rows, had = history(self.graph_, users)
        scores[rows, had] = most[rows]
        worth = scores[owners, np.where(valid, items, 0)] / np.maximum(most[owners], 1e-9)
        return np.where(valid, np.maximum(worth, 0), 0).astype(np.float32)

    def _steps(
        self, users: Ids, visited: NDArray[np.int32], owners: Ids, scores: Floats
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Ids]:
        """The steps of each state: relations and ends, [states, actions + 1], and their number."""
        shape = (len(visited), self.config.actions + 1)
        steps, ends = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
        counts = find_steps(
            self._layout, visited, owners, scores, self._vectors, self._towards[users],
            self.graph_.n_users, self.loop_, steps, ends,
        )  # fmt: skip
        widest = int(counts.max(initial=1))
        return steps[:, :widest], ends[:, :widest], counts

    def _queries(
        self, hop: int, visited: NDArray[np.int32], taken: NDArray[np.int32]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The policy's answer for states."""
        parts = (visited[:, 0], visited[:, -1], visited[:, -2 if hop else -1])
        rows = torch.from_numpy(np.stack(parts, axis=1).astype(np.int64)).to(self.device)
        came_by = taken[:, -1] if hop else np.full(len(visited), self.loop_)
        state = self._tensor[rows].flatten(1)  # [states, 3 · dimension]
        answer: tuple[Tensor, Tensor, Tensor] = self.policy_(
            hop, state, torch.from_numpy(came_by.astype(np.int64)).to(self.device)
        )
        return answer

    def _log_policy(
        self,
        hop: int,
        visited: NDArray[np.int32],
        taken: NDArray[np.int32],
        steps: NDArray[np.int32],
        ends: NDArray[np.int32],
        counts: Ids,
    ) -> tuple[Tensor, Tensor]:
        """log π of each step, [states, widest], and the values, [states], to learn from."""
        query, relations, value = self._queries(hop, visited, taken)
        by, to = (torch.from_numpy(x.astype(np.int64)).to(self.device) for x in (steps, ends))
        if self.device.type == "cpu":
            logits: Tensor = _Products.apply(  # type: ignore[no-untyped-call]
                query, self._vectors, ends, counts
            )
        else:
            logits = (self._tensor[to] @ query.unsqueeze(2)).squeeze(2)
        logits = logits + relations.gather(1, by)
        room = torch.arange(to.shape[1], device=self.device)
        beyond = room >= torch.from_numpy(counts).to(self.device)[:, None]
        return torch.log_softmax(logits.masked_fill(beyond, -1e9), 1), value

    # ── recommending ────────────────────────────────────────────────────────────────────

    def score(self, users: ArrayLike) -> Floats:
        """f(u, v) of the items that the beam reaches, -inf for all others; [users, items]."""
        block = np.asarray(users, dtype=np.int64)
        scores = self.encoder_.score_items(block)
        walks = self.walks(block, scores)
        out = np.full_like(scores, -np.inf)
        items = walks.entities[:, -1] - self.graph_.n_users
        out[walks.owners, items] = scores[walks.owners, items]
        return out

    @torch.no_grad()
    def walks(
        self, users: ArrayLike, scores: Floats | None = None, *, only_items: bool = True
    ) -> Walks:
        """The walks that the beam finds for a block of users; those that end at an item, or all."""
        block = checked_ids(users, self.graph_.n_users, "user")
        scores = self.encoder_.score_items(block) if scores is None else scores
        walks = Walks(
            np.arange(len(block)),
            block[:, None].astype(np.int32),
            np.empty((len(block), 0), dtype=np.int32),
            np.zeros(len(block), dtype=np.float32),
        )
        for hop, width in enumerate(self.config.beam):
            parts = [
                self._follow(hop, width, block, scores, walks.at(slice(lo, lo + _STATES)))
                for lo in range(0, len(walks.owners), _STATES)
            ]
            walks = Walks(*map(np.concatenate, zip(*parts, strict=True))) if parts else walks
        if not only_items:
            return walks
        items = walks.entities[:, -1] - self.graph_.n_users
        return walks.at((items >= 0) & (items < self.graph_.n_items))

    def _follow(self, hop: int, width: int, users: Ids, scores: Floats, walks: Walks) -> Walks:
        """Each walk's most probable continuations."""
        steps, ends, counts = self._steps(users, walks.entities, walks.owners, scores)
        query, relations, _ = self._queries(hop, walks.entities, walks.relations)
        places, logs = best_steps(
            query.cpu().numpy(), relations.cpu().numpy(), self._vectors, steps, ends, counts, width
        )
        rows, columns = np.nonzero(places >= 0)
        chosen = places[rows, columns]
        return Walks(
            walks.owners[rows],
            np.hstack([walks.entities[rows], ends[rows, chosen][:, None]]),
            np.hstack([walks.relations[rows], steps[rows, chosen][:, None]]),
            walks.logs[rows] + logs[rows, columns],
        )

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The k best items with their most probable paths; see ``Explains``."""
        block = np.asarray(users, dtype=np.int64)
        scores = self.encoder_.score_items(block)
        walks = self.walks(block, scores)
        scores[history(self.graph_, block)] = -np.inf
        out: list[list[ExplainedItem]] = [[] for _ in block]
        for owner, item, of_item in _by_item(walks, scores, self.graph_.n_users):
            if len(out[owner]) < k:
                found = _merged(walks, of_item, self.loop_)
                out[owner].append(with_best_paths(item, scores[owner, item], found.items(), paths))
        return out


def _key(taken: ArrayLike, loop: int) -> Ids:
    """One number for each sequence of relations, steps that stay left out; [walks]."""
    columns = np.asarray(taken, dtype=np.int64).T
    key = np.zeros(columns.shape[1], dtype=np.int64)
    for column in columns:
        key = np.where(column == loop, key, key * (loop + 1) + column + 1)
    return key


def _by_item(walks: Walks, scores: Floats, n_users: int) -> Iterator[tuple[int, int, Ids]]:
    """(user, item, its walks) for all recommended items, each user's best first."""
    items = walks.entities[:, -1].astype(np.int64) - n_users
    worth = scores[walks.owners, items]
    order = np.lexsort((items, -worth, walks.owners))
    order = order[worth[order] > -np.inf]
    pairs = walks.owners[order] * scores.shape[1] + items[order]
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    for group in np.split(order, starts[1:]) if len(order) else ():
        yield int(walks.owners[group[0]]), int(items[group[0]]), group


def _merged(walks: Walks, which: Ids, loop: int) -> dict[Path, float]:
    """Walks as paths without the steps that stay, with their probabilities."""
    found: dict[Path, float] = {}
    for w in which:
        moves = np.flatnonzero(walks.relations[w] != loop)
        entities = (walks.entities[w, 0], *walks.entities[w, moves + 1])
        path = Path(tuple(map(int, entities)), tuple(map(int, walks.relations[w, moves])))
        found[path] = found.get(path, 0.0) + float(np.exp(walks.logs[w]))
    return found
