"""Vectors that flow along the edges of a graph: which edges, how much, and to whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from loger.graph import KnowledgeGraph
from loger.recommender import Floats, PairMatrix

Ids = NDArray[np.int64]


class Edges(NamedTuple):
    """Directed edges, sorted by head."""

    indptr: Ids  # [entities + 1]
    relations: Ids  # inverse ones too
    tails: Ids

    @property
    def heads(self) -> Ids:
        """Where each edge begins."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


def all_edges(graph: KnowledgeGraph) -> Edges:
    """Every edge of a graph and its inverse."""
    relations = np.repeat(graph.segment_relations, np.diff(graph.segment_starts))
    return Edges(graph.indptr, relations.astype(np.int64), graph.tails.astype(np.int64))


def some_edges(edges: Edges, most: int, rng: np.random.Generator) -> Edges:
    """At most so many edges of each head, drawn uniformly and without repetition."""
    heads = edges.heads
    order = np.argsort(heads + rng.random(len(heads)))
    place = np.arange(len(heads)) - edges.indptr[heads]  # in the shuffled row
    kept = np.sort(order[place < most])
    sizes = np.minimum(np.diff(edges.indptr), most)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return Edges(indptr, edges.relations[kept], edges.tails[kept])


def flow_matrix(edges: Edges, attention: Floats) -> PairMatrix:
    """What flows over edges, those between the same two entities added up; [entities, entities]."""
    n = len(edges.indptr) - 1
    out = sp.csr_array((attention.copy(), edges.tails.copy(), edges.indptr.copy()), shape=(n, n))
    out.sum_duplicates()
    return out


def edge_keys(flow: PairMatrix) -> Ids:
    """One ascending number for each entry of a flow, head · entities + tail."""
    n = flow.shape[0]
    heads = np.repeat(np.arange(n, dtype=np.int64), np.diff(flow.indptr))
    return heads * n + flow.indices


def without_pairs(flow: PairMatrix, keys: Ids, users: Ids, items: Ids) -> PairMatrix:
    """A flow as if these pairs had no edge, either way; what else flows into them makes up for it.

    ``keys`` are those of ``edge_keys``. An entity that had no other edge gets nothing.
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
    """The entities that each layer needs so that the last one has those asked for.

    ``rows[k]`` are the entities after layer k, ascending, ``rows[-1]`` those asked for;
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
    """A sparse matrix times a dense one; the matrix stands still."""

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
    """On the CPU by SciPy, which is twice as fast there as PyTorch with one core."""
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
