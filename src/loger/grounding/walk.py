"""How strong a path is: powers of degrees and ages, and the tables that compiled code reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loger.graph import INTERACTION, Graph, Relation, UserView
from loger.grounding.layout import read_only
from loger.grounding.steps import Weights


@dataclass(frozen=True, slots=True)
class Walk:
    """How a path's strength falls with degrees and age (METHOD 5, ``walk``).

    Each hop h –r→ t divides it by deg_r(h) to a power that depends on what is left, and the
    last hop also by a power of deg_r⁻¹(v). Where the graph knows times, a first hop over an
    interaction is divided by (1 + the user's later ones)^recency as well; where it knows
    strengths, multiplied by the interaction's strength^strength in units of the user's mean of
    that. Derived relations are divided by no degree, and may say themselves how fast interactions
    fade before them.
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
    strength: float = 0.0

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
    nowhere = np.empty(0, dtype=np.int64)
    if walk is None:
        return Weights(np.empty((0, 0)), nowhere, nowhere, nowhere, np.empty((0, 0)), nowhere)
    rates, fades = fade_classes(graph.relations)
    recencies = np.array([walk.recency, *rates])
    edges = np.empty((len(recencies), 0))
    if recencies.any() and graph.later is not None:
        edges = (1.0 + graph.later).astype(np.float64) ** -recencies[:, None]
    strong = graph.relative_strengths(walk.strength)
    if strong is not None:
        edges = edges * strong if edges.size else np.tile(strong, (len(recencies), 1))
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
    derived = np.tile([r.derived for r in graph.relations], 2)
    leave[derived], into[derived] = 0, 0
    return Weights(powers, np.full(2 * n, 1), leave, into, edges, fades)


def fade_classes(relations: Sequence[Relation]) -> tuple[list[float], NDArray[np.int64]]:
    """The recencies that relations have of their own, and which holds where a rule goes on over a
    relation or inverse: 0 for the walk's, k for the k-th of these; [2 · relations]."""
    own = [None if r.recency is None else float(r.recency) for r in relations]
    rates = sorted({rate for rate in own if rate is not None})
    classes = [0 if rate is None else 1 + rates.index(rate) for rate in own]
    return rates, np.tile(np.array(classes, dtype=np.int64), 2)
