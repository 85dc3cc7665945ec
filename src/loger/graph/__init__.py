"""The knowledge graph, its vocabulary, the view of one user, and paths through it."""

from loger.graph.arrays import Pairs, Rows, checked_ids, gather, pair_keys
from loger.graph.edits import Derived
from loger.graph.graph import KnowledgeGraph
from loger.graph.view import (
    Graph,
    Path,
    UserView,
    barred,
    checked_users,
    history,
    history_edges,
    whole,
)
from loger.graph.vocabulary import DISLIKED, INTERACTION, INVERSE_MARK, Relation, Vocabulary

__all__ = [
    "DISLIKED",
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
    "barred",
    "checked_ids",
    "checked_users",
    "gather",
    "history",
    "history_edges",
    "pair_keys",
    "whole",
]
