"""Paths: what a reason is made of. A path is a chain of facts from a user to an item."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from loger.graph.view import Graph


@dataclass(frozen=True, slots=True)
class Path:
    """Entities e0 … ej and the relations between them, by number."""

    entities: tuple[int, ...]
    relations: tuple[int, ...]  # one fewer than entities

    def __len__(self) -> int:
        return len(self.relations)

    @property
    def edges(self) -> tuple[tuple[int, int, int], ...]:
        """The facts (head, relation, tail) of the path, as they are walked."""
        hops = zip(pairwise(self.entities), self.relations, strict=True)
        return tuple((head, relation, tail) for (head, tail), relation in hops)

    def exists(self, graph: Graph) -> bool:
        """Whether every edge is a fact of the graph, or of the user's view of it."""
        return all(graph.has(*edge) for edge in self.edges)

    def is_simple(self) -> bool:
        """Whether no entity comes twice (METHOD L2)."""
        return len(set(self.entities)) == len(self.entities)

    def text(self, graph: Graph) -> str:
        """The path in names: ann –purchase→ Ink –purchase⁻¹→ ben."""
        labels = graph.vocabulary.shown
        hops = (f" –{graph.relation_name(r)}→ {labels[t]}" for _, r, t in self.edges)
        return labels[self.entities[0]] + "".join(hops)
