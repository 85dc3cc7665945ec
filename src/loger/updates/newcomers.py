"""The scores of new items: from their own facts, and from known items with similar facts.

Rules over facts score an item that was added after the fit like any other. What it can't have yet,
it inherits from its neighbours, the known items with similar facts (``cold_start.neighbours``):

- Each derived fact, such as ``followed_by``, that leads to its neighbours also leads to the new
  item, with their mean weight. Nobody's interactions are behind it, and its sentence says so.
- Rules that end with people's interactions, and popularity, give it the mean of its neighbours over
  users: an appeal that is the same for everyone. This fades as people take the item; with as many
  takers as its neighbours have, half of the appeal is its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loger.encoder.cold_start import by_neighbours, neighbours
from loger.graph import INTERACTION, KnowledgeGraph, whole
from loger.graph.arrays import Doubles
from loger.graph.edits import with_expected
from loger.graph.growth import Learned
from loger.logic.mln import Logic, additive
from loger.ranking.ranker import Ranker, blocks, sampled
from loger.rules import RuleSet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

USERS = 200
"""Users over whom appeal is averaged at most."""


def with_newcomers(ranker: Ranker, learned: Learned) -> Ranker:
    """The ranker in which items that the fit didn't know inherit from their neighbours. Scores of
    known items don't change by a bit."""
    graph, known = whole(ranker.graph), learned.types["item"]
    logic = replace(ranker.logic, expected=None)
    if known in (0, graph.n_items):
        return replace(ranker, logic=logic)
    given = np.arange(sum(not r.derived for r in graph.relations)) < learned.relations
    near = neighbours(graph, learned.entities(graph), given)
    graph = _with_derived_facts(graph, known, near)
    if additive(logic.feature):
        logic = replace(logic, expected=_expected_appeal(graph, logic, known, near))
    on_sample = sampled(graph, ranker.sample)
    return replace(ranker, graph=graph, logic_graph=on_sample, logic=logic)


def _with_derived_facts(graph: KnowledgeGraph, known: int, near: csr_array) -> KnowledgeGraph:
    """The graph in which derived facts that lead to neighbours of new items lead to these too."""
    from scipy.sparse import csr_array, vstack

    first, n = graph.n_users, graph.n_items
    kinds, tails = graph.edge_relations(), graph.tails
    places, parts = [k for k, r in enumerate(graph.relations) if r.derived], [csr_array((0, n))]
    for place in places:
        assert graph.weights is not None
        of = (kinds == place) & (tails < first + known)
        cells = graph.weights[of], (tails[of] - first, graph.edge_heads()[of] - first)
        parts.append(near @ csr_array(cells, shape=(known, n)))
    found = vstack(parts).tocoo()
    ends = np.arange(first + known, first + n)
    made = found.data > 0
    relations = np.repeat(places, len(ends)).astype(np.int64)[found.row[made]]
    heads, tails = first + found.col[made].astype(np.int64), np.tile(ends, len(places))
    facts = heads, relations, tails[found.row[made]]
    return with_expected(graph, known, facts, found.data[made])


def _expected_appeal(graph: KnowledgeGraph, logic: Logic, known: int, near: csr_array) -> Doubles:
    """How much appeal new items inherit; 0 for known items; [items]."""
    appeal, taken = _mean_appeal(graph, logic), graph.popularity
    usual, takers = (by_neighbours(near, x[:known].astype(np.float64)) for x in (appeal, taken))
    out = np.zeros(graph.n_items)
    fades = takers / np.maximum(takers + taken[known:], 1e-12)
    out[known:] = fades * (usual - appeal[known:])
    return out


def _mean_appeal(graph: KnowledgeGraph, logic: Logic) -> Doubles:
    """The mean contribution of popularity and of rules that end with an interaction; [items].

    Rules over derived facts end with such a fact, so they aren't among these.
    """
    half, places = len(graph.relations), range(len(logic.rules))
    kept = [k for k in places if logic.rules[k].relations[-1] % half == INTERACTION]
    kept = [k for k in kept if logic.weights[k]]
    people = replace(
        logic,
        rules=RuleSet(tuple(logic.rules[k] for k in kept)),
        weights=logic.weights[kept],
        scales=None if logic.scales is None else logic.scales[kept],
        prior=0.0,
    )
    if not kept:
        return people.appeal(graph)
    some = np.unique(np.linspace(0, graph.n_users - 1, min(USERS, graph.n_users)).astype(np.int64))
    total = np.zeros(graph.n_items)
    for block in blocks(some):
        total += people.logits(graph, block).sum(axis=0, dtype=np.float64)
    return total / len(some)
