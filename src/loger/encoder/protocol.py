"""What the rest of loger asks of a KG encoder f_θ: scores of triples, and of all items of a user.

The paper leaves the encoder open ("any existing KG embedding or graph neural network"), so this
is all that ranking, the logic model and calibration ever see of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.training.hidden import HiddenPairs
from loger.engine import Progress, silent
from loger.graph import KnowledgeGraph

Floats = NDArray[np.float32]


class Encoder(Protocol):
    """A knowledge-graph encoder. Users and items are numbered from 0 within their type."""

    def fit(
        self,
        graph: KnowledgeGraph,
        *,
        hidden: HiddenPairs | None = None,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph's triples and, if given, weighted hidden pairs.

        ``warm`` goes on from the present state with a fraction of the first fit's steps.
        With ``checkpoint`` (a folder) the fit saves its state as it goes, and a fit that
        finds a state of the same graph, hidden pairs and settings there goes on from it and
        ends with the same bytes.
        """
        ...

    def score_items(self, users: ArrayLike) -> Floats:
        """Scores s(u, r_ui, v) of all items for a block of users, as logits; [users, items]."""
        ...

    def score_triples(self, heads: ArrayLike, relations: ArrayLike, tails: ArrayLike) -> Floats:
        """Scores of triples of base relations, by entity id, as logits."""
        ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that was learned, as arrays."""
        ...

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Take over what ``state`` gave."""
        ...


@runtime_checkable
class Product(Protocol):
    """An encoder whose scores may be a matrix product, so that retrieval need not hold them all."""

    def as_product(self, users: ArrayLike) -> tuple[Floats, Floats] | None:
        """Vectors of users and of all items whose product is ``score_items``, if there are any."""
        ...


@runtime_checkable
class Refits(Protocol):
    """An encoder that can go on to a graph with more facts at less than a new fit costs."""

    def refit(
        self,
        graph: KnowledgeGraph,
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph of the same entities and relations; see ``Encoder.fit``."""
        ...
