"""How strong a path is: powers of degrees and ages, and the tables that compiled code reads."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.graph import INTERACTION, Graph, UserView
from loger.grounding.layout import read_only
from loger.grounding.steps import Weights


@dataclass(frozen=True, slots=True)
class Walk:
    """How a path's strength falls with degrees and age (METHOD 5, ``walk``).

    Each hop h –r→ t divides it by deg_r(h) to a power that depends on what is left, and the
    last hop also by a power of deg_r⁻¹(v). Where the graph knows times, a first hop over an
    interaction is divided by (1 + the user's later ones)^recency as well.
    """

    first: float = 1.0
    """The user, over any relation."""
    item: float = 1.0
    """An item, to those who interacted with it."""
    user: float = 1.0
    """Another user, to what it interacted with."""
    fact: float = 1.0
    """Any entity, over a fact."""
    arrive: float = 0.0
    """The recommended item, by the facts that lead to it …"""
    popular: float = 0.0
    """… or by the interactions that do, if the last hop is one."""
    recency: float = 0.0

    @classmethod
    def uniform(cls, beta: float) -> Walk:
        """METHOD's walk: 1/deg^β of every hop."""
        return cls(beta, beta, beta, beta)


_known: WeakKeyDictionary[Graph, dict[Walk | None, Weights]] = WeakKeyDictionary()


def weights_of(graph: Graph, walk: Walk | None) -> Weights:
    """The factors of a walk in a graph, made once."""
    known = _known.setdefault(graph, {})
    if walk not in known:
        known[walk] = read_only(_new_weights(graph, walk))
    return known[walk]


def _new_weights(graph: Graph, walk: Walk | None) -> Weights:
    none, nowhere = np.empty(0), np.empty(0, dtype=np.int64)
    if walk is None:
        return Weights(np.empty((0, 0)), nowhere, nowhere, nowhere, none)
    edges: NDArray[np.float64] = none
    if walk.recency and graph.later is not None:
        edges = (1.0 + graph.later).astype(np.float64) ** -walk.recency
    if isinstance(graph, UserView):
        known = weights_of(graph.base, walk)
        if graph.max_degree < known.powers.shape[1]:
            return known._replace(edges=edges)
    # One degree more than there is, for who has an interaction more.
    degree = np.maximum(np.arange(graph.max_degree + 2), 1).astype(np.float64)
    exponents = np.array(
        [0.0, walk.first, walk.item, walk.user, walk.fact, walk.arrive, walk.popular]
    )
    powers = degree ** -exponents[:, None]  # [exponents, degrees]
    n = len(graph.relations)
    # Exponents of 0 are passed over, not looked up for every item.
    leave, into = np.full(2 * n, 4), np.full(2 * n, 5 if walk.arrive else 0)
    leave[INTERACTION], leave[INTERACTION + n] = 3, 2
    into[INTERACTION] = 6 if walk.popular else 0
    return Weights(powers, np.full(2 * n, 1), leave, into, edges)
