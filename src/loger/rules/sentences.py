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

from collections.abc import Mapping, Sequence

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


def action_sentence(
    graph: Graph, relation: int, entity: int, verbs: Mapping[str, str] | None = None
) -> str:
    """What a user did, or a fact about the user: you bought ink; ben follows you."""
    label, verb = graph.vocabulary.labels[entity], _verb(graph, relation, verbs)
    forward = relation < len(graph.relations)
    return f"you {to_you(verb)} {label}" if forward else f"{label} {verb} you"


def evidence_sentence(
    graph: Graph, path: Path, n: int, others: Sequence[int], verbs: Mapping[str, str] | None = None
) -> str:
    """How an action leads to the item, by n paths of one rule of which ``path`` is the strongest.

    Speaks of the action's entity as "it" (a person is "they") and of the item as "this". ``others``
    are the entities before the item on the next strongest paths; some of them may be named.
    """
    if len(path) == 1:
        return "it is this"
    middle, last, _ = path.edges[-1]
    if len(path) == 2:
        return _direct(graph, path, verbs)
    types, there_and_back = graph.vocabulary.type_of, path.relations[1] == graph.inverse(last)
    if types(middle) == "user" and there_and_back:
        verb = _verb(graph, last, verbs)
        who = "1 person who" if n == 1 else f"{n:,} people who"
        return f"{who} {verb} it also {verb} this"
    if there_and_back:
        return _shared(graph, [middle, *others], n)
    rest = Path(path.entities[1:], path.relations[1:])
    more = "" if n == 1 else f" (and {n - 1:,} more such {'path' if n == 2 else 'paths'})"
    return _chain(graph, rest, verbs) + more


def _direct(graph: Graph, path: Path, verbs: Mapping[str, str] | None) -> str:
    """One hop from the action's entity to the item."""
    entity, relation, _ = path.edges[1]
    person = graph.vocabulary.type_of(entity) == "user"
    verb = _verb(graph, relation, verbs)
    if verb.startswith("has "):  # "this has feature it" says the kind twice
        verb = "has"
    if relation >= len(graph.relations):
        return f"this {verb} {'them' if person else 'it'}"
    return f"they {to_you(verb)} this" if person else f"it {verb} this"


def _shared(graph: Graph, middles: Sequence[int], n: int) -> str:
    """What the action's entity and the item have in common."""
    kind = graph.vocabulary.type_of(middles[0]).replace("_", " ")
    named = [graph.vocabulary.labels[m] for m in dict.fromkeys(middles)][:3]
    if n == 1:
        return f"same {kind} {named[0]}"
    more = ", …" if n > len(named) else ""
    return f"{n:,} shared {plural(kind)} ({', '.join(named)}{more})"


def _chain(graph: Graph, path: Path, verbs: Mapping[str, str] | None) -> str:
    """The rest of a path: it is viewed along with X, which is bought along with this."""
    text, labels = "", graph.vocabulary.labels
    for k, (head, relation, tail) in enumerate(path.edges):
        verb, forward = _verb(graph, relation, verbs), relation < len(graph.relations)
        here = "it" if k == 0 else labels[head]
        there = "this" if k == len(path) - 1 else labels[tail]
        if forward:
            text += f", which {verb} {there}" if k else f"{here} {verb} {there}"
        else:
            text += f"; {there} {verb} {here}" if k else f"{there} {verb} {here}"
    return text


def plural(noun: str) -> str:
    """A noun in the plural: categories, brands, classes."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


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
