"""KGAT: vectors that flow along the knowledge graph, weighted by the attention of each edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, leaky_relu, normalize

from loger.baselines._shared import chunks, relation_batches
from loger.baselines.cke import CKE, transr_loss
from loger.baselines.matching import PathMatcher
from loger.data.splits import Split
from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import Parameters, chosen_device, entity_ids
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.graph import KnowledgeGraph
from loger.graph.arrays import Floats, Ids
from loger.recommender import ExplainedItem, PairMatrix, Recommender, part_matrix

# ── vectors that flow along the edges of a graph: which edges, how much, and to whom ──


class Edges(NamedTuple):
    """Directed edges, sorted by head."""

    indptr: Ids  # [entities + 1]
    relations: Ids  # inverse ones too
    tails: Ids

    @property
    def heads(self) -> Ids:
        """The head of each edge."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


def all_edges(graph: KnowledgeGraph) -> Edges:
    """Every edge of a graph and its inverse."""
    relations = graph.edge_relations().astype(np.int64)
    return Edges(graph.indptr, relations, graph.tails.astype(np.int64))


def some_edges(edges: Edges, most: int, rng: np.random.Generator) -> Edges:
    """At most ``most`` edges of each head, drawn uniformly without replacement."""
    heads = edges.heads
    order = np.argsort(heads + rng.random(len(heads)))
    place = np.arange(len(heads)) - edges.indptr[heads]  # in the shuffled row
    kept = np.sort(order[place < most])
    sizes = np.minimum(np.diff(edges.indptr), most)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return Edges(indptr, edges.relations[kept], edges.tails[kept])


def flow_matrix(edges: Edges, attention: Floats) -> PairMatrix:
    """The flow between entities, summed over parallel edges; [entities, entities]."""
    n = len(edges.indptr) - 1
    out = sp.csr_array((attention.copy(), edges.tails.copy(), edges.indptr.copy()), shape=(n, n))
    out.sum_duplicates()
    return out


def edge_keys(flow: PairMatrix) -> Ids:
    """A number for each entry of a flow, ascending: head · entities + tail."""
    n = flow.shape[0]
    heads = np.repeat(np.arange(n, dtype=np.int64), np.diff(flow.indptr))
    return heads * n + flow.indices


def without_pairs(flow: PairMatrix, keys: Ids, users: Ids, items: Ids) -> PairMatrix:
    """A flow as if these pairs had no edge in either direction; their other edges are scaled up.

    ``keys`` come from ``edge_keys``. An entity without any other edge receives nothing.
    """
    n = flow.shape[0]
    wanted = np.concatenate([users * n + items, items * n + users])
    found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    gone = np.unique(found[keys[found] == wanted]) if len(keys) else found[:0]
    left = np.ones(n, dtype=np.float64)
    np.subtract.at(left, keys[gone] // n, flow.data[gone].astype(np.float64))
    scale = np.where(left > 1e-4, 1 / np.maximum(left, 1e-4), 0).astype(np.float32)
    data = flow.data * np.repeat(scale, np.diff(flow.indptr))
    data[gone] = 0
    return sp.csr_array((data, flow.indices, flow.indptr), shape=flow.shape)


class Neighbourhood:
    """The entities that each layer needs to compute the last layer of the entities asked for.

    ``rows[k]`` are the entities after layer k, ascending; ``rows[-1]`` are those asked for.
    ``flows[k]`` leads from ``rows[k]`` to ``rows[k + 1]``.
    """

    def __init__(self, flow: PairMatrix, asked: Ids, layers: int) -> None:
        self.rows = [asked]
        self.flows: list[PairMatrix] = []
        place = np.empty(flow.shape[0], dtype=np.int64)
        for _ in range(layers):
            after = self.rows[0]
            part = flow if len(after) == flow.shape[0] else sp.csr_array(flow[after])
            needed = np.zeros(flow.shape[0], dtype=bool)
            needed[after] = True
            needed[part.indices] = True
            before = np.flatnonzero(needed)
            place[before] = np.arange(len(before))
            shape = (len(after), len(before))
            local = sp.csr_array((part.data, place[part.indices], part.indptr), shape=shape)
            self.rows.insert(0, before)
            self.flows.insert(0, local)


class Flow(torch.autograd.Function):
    """A constant sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: PairMatrix) -> Tensor:
        """The product."""
        ctx.matrix = matrix
        return _product(matrix, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The transposed matrix times the gradient."""
        return _product(sp.csr_array(ctx.matrix.T), gradients[0]), None


def _product(matrix: PairMatrix, x: Tensor) -> Tensor:
    """On the CPU by SciPy, which is twice as fast as PyTorch on one core."""
    if x.device.type == "cpu":
        return torch.from_numpy(matrix @ x.detach().contiguous().numpy())
    own = matrix.tocoo()
    places = torch.from_numpy(np.stack(own.coords).astype(np.int64))
    whole = torch.sparse_coo_tensor(places, torch.from_numpy(own.data), own.shape)
    out: Tensor = torch.sparse.mm(whole.to(x.device), x)
    return out


def row_softmax(scores: Floats, indptr: Ids) -> Floats:
    """Softmax of the entries of each row of a compressed matrix."""
    sizes = np.diff(indptr)
    starts = indptr[:-1][sizes > 0]
    if not len(starts):
        return scores
    sizes = sizes[sizes > 0]
    exponentials = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
    totals = np.add.reduceat(exponentials, starts)
    out: Floats = exponentials / np.repeat(totals, sizes)
    return out


TEMPERATURE = 0.2
"""Of the softmax over the items of a batch, because vectors have unit length."""
GROUP = 512
"""Number of pairs of a batch that are each other's negatives."""
FACTS_PER_INTERACTION = 4.0
"""Facts per epoch, as a multiple of the interactions, shared among relations ∝ √size."""
LAYER_RATE = 0.1
"""Learning rate of the layers' weights, as a multiple of the vectors' rate."""


@dataclass(frozen=True, slots=True)
class KGATConfig(TrainerConfig):
    """Settings of KGAT; λ, epochs, neighbours, facts, pretraining, temperature and the rate of the
    layers come from a search on validation (docs/research/results.md)."""

    dimension: int = 64
    """Of the vectors that flow (as in the paper)."""
    layers: Sequence[int] = (64, 32)
    """Widths of what comes out of each layer (64, 32, 16 in the paper)."""
    neighbours: int | None = 20
    """Number of edges of each entity used in training, drawn again for each epoch; None takes all,
    at several times the cost. After training, all edges count."""
    pretraining: int = 15
    """Epochs of CKE, whose vectors are the start; 0 starts at random. The paper uses BPR-MF."""
    l2: float = 0.5
    """λ of the vectors in a batch."""
    batch: int = 2048


class KGAT(Recommender):
    """Wang, He, Cao, Liu & Chua, KDD 2019, "KGAT: Knowledge Graph Attention Network for
    Recommendation".

    Attention of an edge among those of its head, and what flows over it into the head:

        π(h, r, t) = softmax_t((W_r e_t)ᵀ tanh(W_r e_h + e_r)),   e_N(h) = Σ π(h, r, t) e_t.

    A layer (bi-interaction) makes of e and e_N

        e' = LeakyReLU(W₁(e + e_N) + b₁) + LeakyReLU(W₂(e ⊙ e_N) + b₂),

    and score(u, v) is the product of the concatenated layers of u and v, each except the first of
    unit length. Each epoch learns pairs, with constant attention, and then facts by TransR,
    −log σ(d(h, r, t') − d(h, r, t)) with d(h, r, t) = ‖W_r e_h + e_r − W_r e_t‖²; then it computes
    attention again.

    Differences from the paper: pairs are learned by a softmax over the items of a group of pairs,
    −log softmax_v(score(u, v)/τ − log P(v is in the group)), instead of BPR, so that popular items
    aren't penalised for being negatives often. While (u, v) is learned, nothing flows over its own
    edge (METHOD L2), so that a purchase doesn't explain itself. A batch propagates only to the
    entities it needs, and in training over a few neighbours of each (``neighbours``). There are two
    layers instead of three, and vectors start from CKE (``pretraining``).
    Reasons are the simple paths of up to three hops with the largest product of attentions.
    """

    name = "KGAT"
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"l2": (0.5, 1.0, 2.0)}

    vectors_: Tensor  # [entities, dimension + widths], of all layers
    attention_: Floats  # [edges], in the order of the graph's
    _matcher: PathMatcher | None

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(KGATConfig(), settings)
        least = {"dimension": 1, "layers": 1, "neighbours": 1, "epochs": 1, "batch": 1}
        check_numbers(self.config, l2=0, pretraining=0, **least)
        self.device = chosen_device(self.config.device)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn pairs and facts in turn, then propagate over the whole graph."""
        c, graph = self.config, split.graph
        self._graph, self._known, self._matcher = graph, part_matrix(split, "train"), None
        counts = np.bincount(self._known.indices, minlength=graph.n_items)
        self._shares = counts / max(counts.sum(), 1)
        edges = all_edges(graph)
        network = _Network(graph, c).to(self.device)
        if c.pretraining:
            start = {"epochs": c.pretraining, "dimension": c.dimension, "seed": c.seed}
            network.begin_from(CKE(**start, device=c.device).fit(split, progress=progress))
        parameters = Parameters(network)
        for name in parameters.sizes:
            if name.startswith(("sums", "products")):
                parameters.sizes[name] = LAYER_RATE
        with one_thread():
            for epoch in range(c.epochs):
                rng = np.random.default_rng([c.seed, 0x4A7, epoch])
                progress(self.name, epoch, c.epochs)
                drawn = edges if c.neighbours is None else some_edges(edges, c.neighbours, rng)
                flow = flow_matrix(drawn, network.attention(graph, drawn))
                rate = c.rate_after(epoch / c.epochs)
                self._learn_pairs(network, parameters, flow, rate, rng)
                self._learn_facts(network, parameters, rate, rng)
            self.attention_ = network.attention(graph, edges)
            with torch.no_grad():
                whole = flow_matrix(edges, self.attention_)
                everyone = np.arange(graph.n_entities)
                self.vectors_ = network(Neighbourhood(whole, everyone, len(c.layers)))
        progress(self.name, c.epochs, c.epochs)
        return self

    def _learn_pairs(
        self,
        network: _Network,
        parameters: Parameters,
        flow: PairMatrix,
        rate: float,
        rng: np.random.Generator,
    ) -> None:
        """The softmax over the items of a batch, for all training pairs."""
        c, n_users = self.config, self._graph.n_users
        own = self._known.tocoo().coords
        keys = edge_keys(flow)
        for rows in chunks(rng.permutation(len(own[0])), c.batch):
            users = own[0][rows].astype(np.int64)
            items = own[1][rows].astype(np.int64) + n_users
            open_flow = without_pairs(flow, keys, users, items)
            asked, places = np.unique(np.concatenate([users, items]), return_inverse=True)
            around = Neighbourhood(open_flow, asked, len(c.layers))
            x = network(around)
            u, v = places[: len(rows)], places[len(rows) :]
            loss = torch.zeros((), device=self.device)
            for k in range(0, len(rows), GROUP):
                loss = loss + self._softmax(x, asked, u[k : k + GROUP], v[k : k + GROUP])
            (loss / len(rows)).backward()  # type: ignore[no-untyped-call]
            parameters.step(rate)

    def _softmax(self, x: Tensor, asked: Ids, users: Ids, items: Ids) -> Tensor:
        """Summed cross-entropy of each user's item among those of all, with λ; x are vectors of
        the entities ``asked``, users and items places there."""
        c = self.config
        distinct, true = np.unique(items, return_inverse=True)
        u, v = (embedding(entity_ids(rows, self.device), x) for rows in (users, distinct))
        logits = u @ v.mT / TEMPERATURE - self._log_inclusion(asked[distinct], len(users))
        answers = entity_ids(true, self.device)
        size = u[:, : c.dimension].square().sum()
        size = size + embedding(answers, v[:, : c.dimension]).square().sum()
        return cross_entropy(logits, answers, reduction="sum") + 0.5 * c.l2 * size

    def _log_inclusion(self, items: Ids, draws: int) -> Tensor:
        """log P(the item is among those of ``draws`` interactions)."""
        share = np.clip(self._shares[items - self._graph.n_users], 1e-12, 1 - 1e-9)
        logs = np.log(-np.expm1(draws * np.log1p(-share)))
        return torch.from_numpy(logs.astype(np.float32)).to(self.device)

    def _learn_facts(
        self, network: _Network, parameters: Parameters, rate: float, rng: np.random.Generator
    ) -> None:
        """TransR over interactions and facts, in both directions."""
        c, graph = self.config, self._graph
        count = len(graph.relations)
        heads, relations, tails = (x.astype(np.int64) for x in graph.triples())
        places = [np.flatnonzero(relations == r) for r in range(count)]
        sizes = [len(x) for x in places]
        for r, rows in relation_batches(sizes, c.batch, FACTS_PER_INTERACTION, rng):
            mine = places[r][rows]
            h, t, way = heads[mine], tails[mine], r
            if rng.random() < 0.5:
                h, t, way = t, h, graph.inverse(r)
            span = graph.vocabulary.span(graph.signature(way)[1])
            others = rng.integers(span.start, span.stop, size=len(h))
            ids = (entity_ids(x, self.device) for x in (h, t, others))
            loss, size = network.facts(way, *ids)
            (loss + c.l2 * size).backward()  # type: ignore[no-untyped-call]
            parameters.step(rate)

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def score(self, users: ArrayLike) -> Floats:
        """⟨u, v⟩ over all layers; [users, items]."""
        n = self._graph.n_users
        items = self.vectors_[n : n + self._graph.n_items]
        out: Floats = (self.vectors_[entity_ids(users, self.device)] @ items.mT).cpu().numpy()
        return out

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The k best items of each user, each with the paths of the largest product of
        attentions; see ``Explains``."""
        if self._matcher is None:
            logs = np.log(np.maximum(self.attention_, np.finfo(np.float32).tiny))
            self._matcher = PathMatcher(self._graph, np.minimum(logs, 0))
        return self._matcher.explained(self, self._known, users, k, paths)


# ── the network ─────────────────────────────────────────────────────────────────────────


class _Network(nn.Module):
    """Everything that is learned."""

    def __init__(self, graph: KnowledgeGraph, config: KGATConfig) -> None:
        super().__init__()
        rng = np.random.default_rng([config.seed, 0x4A70])
        d, n = config.dimension, 2 * len(graph.relations)

        def normal(*shape: int, scale: float = 0.1) -> Tensor:
            return torch.from_numpy(
                rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            )

        self.vectors = nn.Embedding(graph.n_entities, d, _weight=normal(graph.n_entities, d))
        self.relations = nn.Embedding(n, d, _weight=normal(n, d))
        same = torch.eye(d).flatten().repeat(n, 1)
        self.projections = nn.Embedding(n, d * d, _weight=same)  # W_r
        widths = [d, *config.layers]
        self.sums = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.products = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        for layer in (*self.sums, *self.products):
            assert isinstance(layer, nn.Linear)
            wide = (2 / sum(layer.weight.shape)) ** 0.5  # Xavier, as in the paper
            layer.weight.data = normal(*layer.weight.shape, scale=wide)
            layer.bias.data.zero_()

    @torch.no_grad()
    def begin_from(self, cke: CKE) -> None:
        """Start from CKE's vectors of users, items, entities and relations."""
        own = cke.vectors_
        n_users, n_items = len(own.users.weight), len(own.items.weight)
        self.vectors.weight[:n_users] = own.users.weight
        self.vectors.weight[n_users:] = own.entities.weight
        self.vectors.weight[n_users : n_users + n_items] += own.items.weight
        count = len(own.relations.weight)
        self.relations.weight[:count] = own.relations.weight
        self.relations.weight[count:] = -own.relations.weight
        self.projections.weight.copy_(own.projections.weight.repeat(2, 1))

    def forward(self, around: Neighbourhood) -> Tensor:
        """The vectors of all layers of the entities asked for; [asked, dimension + widths]."""
        device = self.vectors.weight.device
        x = self.vectors(entity_ids(around.rows[0], device))
        outs = [x]
        for k, flow in enumerate(around.flows):
            after = entity_ids(np.searchsorted(around.rows[k], around.rows[k + 1]), device)
            near: Tensor = Flow.apply(x, flow)  # type: ignore[no-untyped-call]
            own = embedding(after, x)
            x = leaky_relu(self.sums[k](own + near)) + leaky_relu(self.products[k](own * near))
            outs = [embedding(after, out) for out in outs] + [normalize(x)]
        return torch.cat(outs, dim=1)

    def facts(self, r: int, heads: Tensor, tails: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """TransR of facts of one relation, each against one other tail; and their size."""
        h, t, o = (self.vectors(x) for x in (heads, tails, others))
        here = torch.tensor([r], device=heads.device)
        shift = self.relations(here)
        projection = self.projections(here).view(h.shape[1], h.shape[1])
        loss = transr_loss(h, t, o, shift, projection)
        return loss, 0.5 * (h.square() + t.square() + o.square()).sum() / len(h)

    @torch.no_grad()
    def attention(self, graph: KnowledgeGraph, edges: Edges) -> Floats:
        """π of edges; it sums to 1 over the edges of each head."""
        heads, d = edges.heads, self.vectors.weight.shape[1]
        scores = np.empty(len(heads), dtype=np.float32)
        for r in np.unique(edges.relations).tolist():
            mine = np.flatnonzero(edges.relations == r)
            projection = self.projections.weight[r].view(d, d)
            from_, to = (graph.vocabulary.span(t) for t in graph.signature(r))
            x = self.vectors.weight[from_.start : from_.stop] @ projection
            x = torch.tanh(x + self.relations.weight[r])
            y = self.vectors.weight[to.start : to.stop] @ projection
            for k in range(0, len(mine), 1 << 17):
                part = mine[k : k + (1 << 17)]
                h = entity_ids(heads[part] - from_.start, x.device)
                t = entity_ids(edges.tails[part] - to.start, x.device)
                scores[part] = (x[h] * y[t]).sum(1).cpu().numpy()
        return row_softmax(scores, edges.indptr)
