"""Paths in plain English, made of the names of relations and entities.

>>> from loger.graph import KnowledgeGraph, Relation, Vocabulary
>>> words = Vocabulary({"user": ["ann", "ben"], "item": ["ink", "pen"], "brand": ["Acme"]})
>>> relations = [Relation("purchase", "user", "item"), Relation("has_brand", "item", "brand")]
>>> graph = KnowledgeGraph.from_triples(words, relations, [0, 1, 1, 2, 3], [0, 0, 0, 1, 1],
...                                     [2, 2, 3, 4, 4])
>>> path_sentence(graph, Path((0, 2, 4, 3), (0, 1, 3)))
'you bought ink, which has brand Acme, and so does pen'
>>> path_sentence(graph, Path((0, 2, 1, 3), (0, 2, 0)))
'you bought ink; ben bought it too, and also bought pen'
"""

from __future__ import annotations

from collections.abc import Mapping

from loger.graph import Graph, Path
from loger.rules import to_you, verb_of


def path_sentence(graph: Graph, path: Path, verbs: Mapping[str, str] | None = None) -> str:
    """One path as a sentence to the user it begins with.

    ``verbs`` overrides what a relation's head does to its tail, in the third person, such as
    ``{"also_bought": "goes well with"}``.
    """
    labels, types = graph.vocabulary.labels, graph.vocabulary.type_of
    text, before = "", -1
    for k, (head, relation, tail) in enumerate(path.edges):
        forward = relation < len(graph.relations)
        here, there = labels[head], labels[tail]
        verb = _verb(graph, relation, verbs)
        if k == 0:
            text = f"you {to_you(verb)} {there}" if forward else f"{there} {verb} you"
        elif forward and types(head) == "user":
            again = before == graph.inverse(relation)
            text += f", and also {verb} {there}" if again else f", who {verb} {there}"
        elif forward:
            text += f", which {verb} {there}"
        elif types(tail) == "user":
            text += (
                f"; {there} {verb} it too" if types(head) == "item" else f"; {there} {verb} {here}"
            )
        elif before == graph.inverse(relation):
            text += f", and so {_auxiliary(verb)} {there}"
        else:
            text += f"; {there} {verb} {here}"
        before = relation
    return text


def _verb(graph: Graph, relation: int, verbs: Mapping[str, str] | None) -> str:
    """What the head of a relation or inverse relation's base does to the tail."""
    base = graph.relations[relation % len(graph.relations)]
    plain = base.name.split("[")[0]
    for name in (base.name, plain):
        if verbs is not None and name in verbs:
            return verbs[name]
    verb = verb_of(base.name, base.head_type, base.tail_type)
    # "has Acme" does not say that Acme is a brand.
    return f"has {base.tail_type.replace('_', ' ')}" if verb == "has" else verb


def _auxiliary(verb: str) -> str:
    """The verb that stands for another: so is, so does, so did."""
    first = verb.partition(" ")[0]
    if first in ("is", "has", "was", "can"):
        return {"has": "does"}.get(first, first)
    return "did" if first.endswith("ed") or first == "bought" else "does"
