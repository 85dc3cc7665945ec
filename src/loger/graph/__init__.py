"""The knowledge graph, its vocabulary, the view of one user, and paths through it."""

from loger.graph.arrays import checked_ids, gather, pair_keys
from loger.graph.derived import Derived
from loger.graph.graph import KnowledgeGraph
from loger.graph.history import history, history_edges
from loger.graph.pairs import Pairs
from loger.graph.path import Path
from loger.graph.rows import Rows
from loger.graph.view import Graph, UserView, checked_users, whole
from loger.graph.vocabulary import INTERACTION, INVERSE_MARK, Relation, Vocabulary

__all__ = [
    "INTERACTION",
    "INVERSE_MARK",
    "Derived",
    "Graph",
    "KnowledgeGraph",
    "Pairs",
    "Path",
    "Relation",
    "Rows",
    "UserView",
    "Vocabulary",
    "checked_ids",
    "checked_users",
    "gather",
    "history",
    "history_edges",
    "pair_keys",
    "whole",
]
