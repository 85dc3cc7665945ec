"""The knowledge graph, its vocabulary, and paths through it."""

from loger.graph.graph import (
    BITMAP_EDGES,
    INTERACTION,
    INVERSE_MARK,
    KnowledgeGraph,
    Relation,
    Vocabulary,
)
from loger.graph.history import history, history_edges
from loger.graph.path import Path

__all__ = [
    "BITMAP_EDGES",
    "INTERACTION",
    "INVERSE_MARK",
    "KnowledgeGraph",
    "Path",
    "Relation",
    "Vocabulary",
    "history",
    "history_edges",
]
