"""RippleNet: interest that spreads from a user's history over the knowledge graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding

from loger.baselines._kernels import ripple_sets
from loger.baselines._shared import Noise, chunks, paced, with_best_paths
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import RowAdam, chosen_device
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.engine.topk import top_k
from loger.graph import INTERACTION, KnowledgeGraph, Path, history
from loger.graph.arrays import Floats, Ids
from loger.grounding.layout import layout
from loger.recommender import ExplainedItem, Recommender

_FAR = -1e9
"""Logit of a memory that does not count."""


KGE_WEIGHT = 0.01
"""λ₁, weight of the knowledge-graph term, as in the original."""
NEGATIVES = 128
"""Items drawn for a batch and shared by it, in proportion to their frequency; 1 unseen item for
each interaction in the original."""


@dataclass(frozen=True, slots=True)
class RippleNetConfig(TrainerConfig):
    """Settings of RippleNet; λ, epochs and dimension are from a search on validation of Beauty
    (docs/research/results.md), what else has no source was not varied."""

    dimension: int = 32
    hops: int = 2
    """As in the original."""
    memories: int = 32
    """Facts for each user and hop, as in the original."""
    l2: float = 1e-3
    """Weight of ‖vectors‖² of the rows of a batch."""
    epochs: int = 4
    batch: int = 512


class Ripples(NamedTuple):
    """Each user's memories (head, relation, tail), drawn once; entity -1 where there is none."""

    heads: Ids  # [users, hops, memories]
    relations: Ids
    tails: Ids
    parents: Ids  # the memory of the hop before that a memory goes on from
    roots: Ids  # the item of the history that it comes from


class RippleNet(Recommender):
    """Wang et al., CIKM 2018, "RippleNet: Propagating User Preferences on the Knowledge Graph".

    From a user's items go 32 facts (h, r, t), from their tails 32 more. With one vector for each
    entity and one matrix for each relation, an item v attends to the facts of a hop and answers

        p_i = softmax_i(vᵀ R_i h_i),   o = Σ_i p_i t_i,   ŷ(u, v) = σ(v·(o¹ + o²) + b_v),

    learned by the mean loss of interactions − λ₁ mean σ(hᵀ R t) of the facts + λ₂ ‖vectors‖². All
    items of a user are scored by two matrix products.

    Differences: the loss is no logistic one of single pairs but a softmax of the logit among
    those of items drawn ∝ frequency, each less log of how often it is expected among the draws,
    which undoes their popularity; a fact that comes from v itself, or passes it, does not count
    for v (METHOD L2; the original lets a training item explain itself); interactions are facts of
    the graph like others; an item bias; no transform of v between hops; relations are equally
    likely when facts are drawn. A reason is a path of facts from the history to v, or to a
    neighbour of v; its weight is the attention that v pays to its last memory. Not every item has
    one.
    """

    name = "RippleNet"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (3e-4, 1e-3, 3e-3), "epochs": (4, 8)}

    entities_: RowAdam  # [entities, dimension]
    biases_: RowAdam  # [items, 1]
    relations_: Tensor  # [2 · relations, dimension, dimension]
    ripples_: Ripples
    graph_: KnowledgeGraph

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(RippleNetConfig(), settings)
        check_numbers(self.config, dimension=1, hops=1, memories=1, batch=1, epochs=0, l2=0)
        self.device = chosen_device(self.config.device)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Draw the memories, then learn vectors and matrices."""
        config, self.graph_ = self.config, split.graph
        graph = self.graph_
        self.ripples_ = ripples(graph, config.hops, config.memories, config.seed)
        rng = np.random.default_rng([config.seed, 0x71BB])
        users, items = (x.astype(np.int64) for x in split.pairs("train"))
        self._noise = Noise(np.bincount(items, minlength=graph.n_items), power=1.0)
        self._start(rng)
        matrices = torch.optim.Adam([self.relations_.requires_grad_()], lr=config.rate)
        with one_thread():
            for epoch in range(config.epochs):
                batches = chunks(rng.permutation(len(users)), config.batch)
                for rows, rate in paced(self.name, config, epoch, batches, progress):
                    drawn = self._noise.draw(NEGATIVES, rng)  # shared by the batch
                    shared = np.broadcast_to(drawn, (len(rows), len(drawn)))
                    asked = np.hstack([items[rows, None], shared])  # the true one first
                    self._learn(users[rows], asked, rate, matrices)
        progress(self.name, 1, 1)
        self.relations_ = self.relations_.detach()
        return self

    def _start(self, rng: np.random.Generator) -> None:
        """Draw the first vectors; matrices begin near the identity."""
        d, n = self.config.dimension, 2 * len(self.graph_.relations)
        table = rng.standard_normal((self.graph_.n_entities, d), dtype=np.float32) * d**-0.5
        noise = rng.standard_normal((n, d, d), dtype=np.float32) * np.float32(0.1 * d**-0.5)
        self.entities_ = RowAdam(torch.from_numpy(table.astype(np.float32)).to(self.device))
        self.biases_ = RowAdam(torch.zeros(self.graph_.n_items, 1, device=self.device))
        self.relations_ = torch.from_numpy(np.eye(d, dtype=np.float32) + noise).to(self.device)

    def _learn(self, users: Ids, asked: Ids, rate: float, matrices: torch.optim.Optimizer) -> float:
        """One step on a batch of users, each with an item that it has and some that it may not."""
        r, first_item = self.ripples_, self.graph_.n_users
        ids = [x[users].reshape(len(users), -1) for x in (r.heads, r.tails)]
        distinct, place = np.unique(
            np.concatenate([np.maximum(x, 0).ravel() for x in ids] + [asked.ravel() + first_item]),
            return_inverse=True,
        )
        rows = torch.from_numpy(distinct).to(self.device)
        own = self.entities_.table[rows].requires_grad_()  # [distinct, d]
        cuts = np.cumsum([ids[0].size, ids[1].size])
        heads, tails, items = (
            embedding(torch.from_numpy(part).to(self.device), own).view(*shape, -1)
            for part, shape in zip(
                np.split(place, cuts), (ids[0].shape, ids[1].shape, asked.shape), strict=True
            )
        )  # [users, memories of all hops, d], twice; [users, items, d]
        bias_rows = torch.from_numpy(asked.ravel()).to(self.device)
        bias = self.biases_.table[bias_rows].requires_grad_()
        keys = self._keys(heads, r.relations[users].reshape(ids[0].shape))
        counts = torch.from_numpy(self._counting(users, asked)).to(self.device)
        logits = self._answers(items, keys, tails, counts) + bias.view(asked.shape)
        there = torch.from_numpy(ids[0] >= 0).to(self.device)
        facts = torch.sigmoid((keys * tails).sum(2))[there]
        true = torch.zeros(len(users), dtype=torch.int64, device=self.device)
        loss = cross_entropy(logits - self._shift(asked), true)
        loss = loss + self.config.l2 * own.square().sum() / len(users)
        if len(facts):
            loss = loss - KGE_WEIGHT * facts.mean()
        matrices.param_groups[0]["lr"] = rate
        matrices.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        matrices.step()
        assert own.grad is not None
        assert bias.grad is not None
        self.entities_.update(rows, own.grad, rate)
        self.biases_.update(bias_rows, bias.grad, rate)
        return float(loss.detach())

    def _shift(self, asked: Ids) -> Tensor:
        """log of how often an item is expected among the negatives; ∞ for one that is the true
        item of its row, which is no negative."""
        shares = np.maximum(self._noise.shares[asked], 1e-9)
        shifts = np.log(NEGATIVES * shares).astype(np.float32)
        shifts[:, 1:][asked[:, 1:] == asked[:, :1]] = np.inf
        return torch.from_numpy(shifts).to(self.device)

    def _keys(self, heads: Tensor, relations: Ids) -> Tensor:
        """R_i h_i of memories; [users, memories, d]."""
        flat, kinds = heads.reshape(-1, heads.shape[-1]), relations.ravel()
        order = np.argsort(kinds, kind="stable")
        # Relation by relation; memories that there are not come first and are left as they are.
        sizes = np.bincount(kinds + 1, minlength=len(self.relations_) + 1).tolist()
        absent, *of = torch.split(flat[torch.from_numpy(order).to(self.device)], sizes)
        parts = [absent, *(x @ matrix.T for x, matrix in zip(of, self.relations_, strict=True))]
        back = torch.from_numpy(np.argsort(order, kind="stable")).to(self.device)
        return torch.cat(parts)[back].view_as(heads)

    def _counting(self, users: Ids, items: Ids) -> NDArray[np.bool_]:
        """Whether a memory counts for an item: [users, items, memories of all hops]."""
        r, n = self.ripples_, len(users)
        heads, roots = (x[users].reshape(n, 1, -1) for x in (r.heads, r.roots))
        entity = items[:, :, None] + self.graph_.n_users
        return np.asarray((heads >= 0) & (heads != entity) & (roots != entity))

    def _answers(self, items: Tensor, keys: Tensor, tails: Tensor, counts: Tensor) -> Tensor:
        """v·Σ_h o^h; [users, items]."""
        shape = (*counts.shape[:2], self.config.hops, self.config.memories)
        share = (items @ keys.mT).masked_fill(~counts, _FAR).view(shape).softmax(-1)
        worth = (items @ tails.mT).masked_fill(~counts, 0.0).view(shape)
        return (share * worth).sum((-1, -2))

    # ── recommending ────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def score(self, users: ArrayLike) -> Floats:
        """v·(o¹ + o²) + b_v of all items; [users, items]."""
        block, graph = np.asarray(users, dtype=np.int64), self.graph_
        span = slice(graph.n_users, graph.n_users + graph.n_items)
        items = self.entities_.table[span]
        out = np.empty((len(block), graph.n_items), dtype=np.float32)
        for row, (keys, tails, at) in enumerate(self._memories(block)):
            share, worth = items @ keys.T, items @ tails.T  # [items, memories of all hops]
            share[at], worth[at] = _FAR, 0.0
            shape = (graph.n_items, self.config.hops, -1)
            whole = (share.view(shape).softmax(-1) * worth.view(shape)).sum((1, 2))
            out[row] = (whole + self.biases_.table[:, 0]).cpu().numpy()
        return out

    def _memories(self, users: Ids) -> list[tuple[Tensor, Tensor, tuple[Tensor, Tensor]]]:
        """Of each user keys, tails, and the cells (item, memory) that do not count."""
        r, first, n_items = self.ripples_, self.graph_.n_users, self.graph_.n_items
        shape = (len(users), self.config.hops * self.config.memories)
        heads, kinds, tails, roots = (
            x[users].reshape(shape) for x in (r.heads, r.relations, r.tails, r.roots)
        )
        table = self.entities_.table
        keys, ends = (
            table[torch.from_numpy(np.maximum(x, 0)).to(self.device)] for x in (heads, tails)
        )
        keys = self._keys(keys, kinds)
        absent = torch.from_numpy(heads < 0).to(self.device)
        keys[absent], ends[absent] = 0.0, 0.0
        out = []
        for row in range(len(users)):
            cells = np.concatenate([heads[row], roots[row]]) - first
            memory = np.tile(np.arange(shape[1]), 2)
            inside = (cells >= 0) & (cells < n_items)
            at = (torch.from_numpy(x[inside]).to(self.device) for x in (cells, memory))
            out.append((keys[row], ends[row], (next(at), next(at))))
        return out

    @torch.no_grad()
    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The k best items with the paths that their attention goes to; see ``Explains``."""
        block = np.asarray(users, dtype=np.int64)
        lists, scores = top_k(self.score(block), k, history(self.graph_, block))
        found = self._found(block, lists.astype(np.int64))
        return [
            [
                with_best_paths(v, scores[row, place], found.get((row, place), {}).items(), paths)
                for place, v in enumerate(items)
                if v >= 0
            ]
            for row, items in enumerate(lists)
        ]

    def _found(self, users: Ids, lists: Ids) -> dict[tuple[int, int], dict[Path, float]]:
        """By (place of the user, place in the list) the paths to an item, with their attention."""
        r, graph = self.ripples_, self.graph_
        weights = self._attention(users, np.maximum(lists, 0))  # [users, k, hops, memories]
        tails = r.tails[users][:, None]  # [users, 1, hops, memories]
        ends = np.where(lists >= 0, lists + graph.n_users, -2)[:, :, None, None]
        there = weights > 0
        # A memory that ends at the item is a path; one that ends beside it, one hop short.
        arrived = there & (tails == ends)
        short = there[:, :, :1] & ~arrived[:, :, :1]
        step = _between(graph, np.broadcast_to(tails[:, :, :1], short.shape), ends)
        out: dict[tuple[int, int], dict[Path, float]] = {}
        for last, cells in ((None, np.argwhere(arrived)), (step, np.argwhere(short & (step >= 0)))):
            for row, place, hop, i in cells.tolist():
                path = self._path(int(users[row]), hop, i)
                if last is not None:
                    end = int(ends[row, place, 0, 0])
                    relation = int(last[row, place, hop, i])
                    path = Path((*path.entities, end), (*path.relations, relation))
                ways = out.setdefault((row, place), {})
                ways[path] = ways.get(path, 0.0) + float(weights[row, place, hop, i])
        return out

    def _attention(self, users: Ids, lists: Ids) -> Floats:
        """p_i of memories for items, 0 where it does not count; [users, k, hops, memories]."""
        table, r, n = self.entities_.table, self.ripples_, len(users)
        heads = torch.from_numpy(np.maximum(r.heads[users].reshape(n, -1), 0)).to(self.device)
        keys = self._keys(table[heads], r.relations[users].reshape(n, -1))
        items = table[torch.from_numpy(lists + self.graph_.n_users).to(self.device)]
        counts = torch.from_numpy(self._counting(users, lists)).to(self.device)
        shape = (n, lists.shape[1], self.config.hops, self.config.memories)
        share = (items @ keys.mT).masked_fill(~counts, _FAR).view(shape).softmax(-1)
        return (share * counts.view(shape)).cpu().numpy()

    def _path(self, user: int, hop: int, i: int) -> Path:
        """The user's way to the tail of a memory."""
        r = self.ripples_
        entities, relations = [int(r.tails[user, hop, i])], list[int]()
        while hop >= 0:
            entities.append(int(r.heads[user, hop, i]))
            relations.append(int(r.relations[user, hop, i]))
            hop, i = hop - 1, int(r.parents[user, hop, i])
        return Path((user, *entities[::-1]), (INTERACTION, *relations[::-1]))


def ripples(graph: KnowledgeGraph, hops: int, memories: int, seed: int) -> Ripples:
    """Draw the memories of all users."""
    users = np.arange(graph.n_users)
    shape = (len(users), hops, memories)
    draws = np.random.default_rng([seed, 0x71B1]).random((*shape, 3), dtype=np.float32)
    # Single precision may round up to 1.
    draws = np.minimum(draws, np.float32(1 - 2**-20))
    nodes = np.full((*shape, 2), -1, dtype=np.int64)
    steps, parents = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    ripple_sets(layout(graph), users, draws, nodes, steps, parents)
    roots = nodes[..., 0].copy()
    for hop in range(1, hops):
        before = np.take_along_axis(roots[:, hop - 1], np.maximum(parents[:, hop], 0), axis=1)
        roots[:, hop] = np.where(parents[:, hop] < 0, -1, before)
    return Ripples(nodes[..., 0], steps, nodes[..., 1], parents, roots)


def _between(graph: KnowledgeGraph, heads: Ids, tails: Ids) -> Ids:
    """A relation that leads from each head to its tail, the first if there are several, or -1."""
    n = graph.n_entities
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    keys = rows * n + graph.pair_tails
    asked = np.where((heads >= 0) & (tails >= 0), heads * n + tails, -1)
    place = np.minimum(np.searchsorted(keys, asked), max(len(keys) - 1, 0))
    if not len(keys):
        return np.full(asked.shape, -1, dtype=np.int64)
    return np.where(keys[place] == asked, graph.pair_relations[place].astype(np.int64), -1)
