"""The knowledge graph, its vocabulary, and paths through it."""

from loger.graph.graph import (
    BITMAP_EDGES,
    INTERACTION,
    INVERSE_MARK,
    KnowledgeGraph,
    Relation,
    Vocabulary,
)

__all__ = [
    "BITMAP_EDGES",
    "INTERACTION",
    "INVERSE_MARK",
    "KnowledgeGraph",
    "Relation",
    "Vocabulary",
]
