"""Paths, reasons and rules in words, built from the names of relations and entities.

>>> from loger.graph import KnowledgeGraph, Relation, Vocabulary
>>> from loger.rules.wording import wording_of
>>> words = Vocabulary({"user": ["ann", "ben"], "item": ["ink", "pen"], "brand": ["Acme"]})
>>> relations = [Relation("purchase", "user", "item"), Relation("has_brand", "item", "brand")]
>>> graph = KnowledgeGraph.from_triples(words, relations, [0, 1, 1, 2, 3], [0, 0, 0, 1, 1],
...                                     [2, 2, 3, 4, 4])
>>> path_sentence(graph, Path((0, 2, 4, 3), (0, 1, 3)))
'you bought ink, which has brand Acme, and so does pen'
>>> path_sentence(graph, Path((0, 2, 1, 3), (0, 2, 0)))
'you bought ink; someone bought it too, and also bought pen'
>>> path_sentence(graph, Path((0, 2, 1, 3), (0, 2, 0)), wording_of("de"))
'du hast ink gekauft; jemand hat das auch gekauft und hat auch pen gekauft'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loger.graph import INTERACTION, INVERSE_MARK, Graph, Path
from loger.rules.rule import Rule
from loger.rules.wording import ENGLISH, FEW, Forms, Wording, alike_by

SHOWN = 3
"""Number of shared entities, or of items in a group, to name."""
TILE, BRIEF = 60, 24
"""Maximum length of a tile, and of a label in it, in characters."""
MAKERS = (
    "brand", "artist", "author", "director", "writer", "composer", "publisher", "manufacturer"
)  # fmt: skip
"""Types for which a tile says "also by Acme"."""


class Hop(NamedTuple):
    """One step of a path or a rule, with the names of its ends."""

    forms: Forms
    forward: bool
    head: str
    """What to call the end where the step begins."""
    tail: str
    types: tuple[str, str]
    """The types of both ends, in the direction of the step."""
    name: str
    derived: str | None = None
    """For a relation derived from interactions, a clause about the people behind it."""

    def object(self, words: Wording) -> str:
        """The object of its verb, with its type if the head simply has it."""
        label, entity_type = (self.tail, self.types[1]) if self.forward else (
            self.head, self.types[0])  # fmt: skip
        return named(words, entity_type, label) if self.forms.has else label


def named(words: Wording, entity_type: str, label: str) -> str:
    """An entity with its kind, unless its label begins with it: brand Acme, tempo 69–98 bpm."""
    kind = words.kind(entity_type)
    begins = (kind.casefold(), *_said_kinds(entity_type))
    return label if label.casefold().startswith(begins) else f"{kind} {label}"


def _said_kinds(entity_type: str) -> tuple[str, str]:
    """How labels of a type may begin: with the type's name, or that name without "range"."""
    plain = entity_type.replace("_", " ").casefold()
    return plain, plain.removesuffix(" range")


def path_sentence(graph: Graph, path: Path, words: Wording = ENGLISH) -> str:
    """A path as a sentence, addressed to the user with whom it begins."""
    labels = graph.vocabulary.shown
    hops = []
    for k, (head, relation, tail) in enumerate(path.edges):
        case = _forms(graph, relation, words).case if relation < len(graph.relations) else "nom"
        start = words.text("that_person") if hidden(graph, path, k, words) else labels[head]
        end = words.pronoun("someone", case) if hidden(graph, path, k + 1, words) else labels[tail]
        here = words.pronoun("it", "acc") if k == 1 else start
        told = _people(graph, (head, relation, tail), here, end, words)
        hops.append(_hop(graph, relation, start, end, words, told))
    return _said(hops, words)


def hidden(graph: Graph, path: Path, k: int, words: Wording) -> bool:
    """Whether the k-th entity of a user's path is another person, whom reasons may not name."""
    if k == 0 or graph.vocabulary.type_of(path.entities[k]) != "user":
        return False
    followed = k == 1 and path.relations[0] < len(graph.relations)
    return not (followed and words.names == "followed")


def arrows(labels: Sequence[str], relations: Sequence[str]) -> str:
    """A path through labelled entities; each arrow has the direction of its fact.

    >>> arrows(["Ann", "mug", "Acme", "lamp"], ["purchase", "has_brand", "has_brand⁻¹"])
    'Ann –purchase→ mug –has_brand→ Acme ←has_brand– lamp'
    """
    text = labels[0]
    for relation, label in zip(relations, labels[1:], strict=True):
        plain = relation.removesuffix(INVERSE_MARK)
        text += f" –{plain}→ {label}" if plain == relation else f" ←{plain}– {label}"
    return text


def _said(hops: Sequence[Hop], words: Wording) -> str:
    """A user's hops as a sentence."""
    text, before = "", ""
    for k, hop in enumerate(hops):
        back = before == _turned(hop.name)
        if hop.derived is not None:
            text += f"; {hop.derived}"
        elif k == 0:
            text = _first(hop, words)
        elif hop.forward:
            person, last = hop.types[0] == "user", hops[k - 1]
            same = not last.forward and last.derived is None  # it is the subject already
            key = ("who_did", "which_did") if not same else ("also_did", "it_also_did")
            x = hop.object(words)
            x = words.text("also_x", x=x) if same and person else x
            text += words.text(key[not person], here=hop.head, **hop.forms.with_object(x))
        elif hop.types[1] == "user" and hop.types[0] == "item":
            x = words.text("too_x", here=hop.head)
            text += words.text("did_too", who=hop.tail, **hop.forms.with_object(x))
        elif back and hop.types[1] != "user":
            text += words.text("so_does", so=hop.forms.patterns["so"].replace("{x}", hop.tail))
        else:
            said = hop.forms.with_object(hop.object(words))
            text += words.text("plain", who=hop.tail, **said)
        before = hop.name
    return text


def _first(hop: Hop, words: Wording) -> str:
    if hop.forward:
        return words.text("action", x=hop.tail, **hop.forms.with_object(hop.object(words)))
    return words.text("action_back", who=hop.tail, **_to_you(hop.forms, words))


def action_sentence(
    graph: Graph, relation: int, entity: int, words: Wording = ENGLISH, most: int = 10**6
) -> str:
    """What a user did, or a fact about the user: you bought ink; someone follows you. ``most`` is
    the maximum length of a name."""
    label = shortened(graph.vocabulary.shown[entity], most)
    if hidden(graph, Path((-1, entity), (relation,)), 1, words):
        forward = relation < len(graph.relations)
        label = words.pronoun("someone", _forms(graph, relation, words).case if forward else "nom")
    return action_about(graph, relation, label, words)


def action_about(graph: Graph, relation: int, label: str, words: Wording) -> str:
    """What a user did to something with the given label."""
    return _first(_hop(graph, relation, "", label, words), words)


def actions_sentence(graph: Graph, items: Sequence[int], words: Wording) -> str:
    """What a user did to several items: you bought ink, a pen and 4 more."""
    labels = [graph.vocabulary.shown[item] for item in items[:SHOWN]]
    if len(items) > SHOWN:
        n = words.number(len(items) - SHOWN + 1)
        label = words.text("and_more", names=", ".join(labels[:-1]), n=n)
    else:
        label = words.text("and").join([", ".join(labels[:-1]), labels[-1]])
    return action_about(graph, INTERACTION, label, words)


def about(graph: Graph, relation: int, entity: int, words: Wording, most: int = 10**6) -> str:
    """An action's item, as a reason names it: your desk lamp; empty if it isn't an item."""
    if relation != INTERACTION:
        return ""
    label = shortened(graph.vocabulary.shown[entity], most)
    return words.text("your_x", x=label) if _forms(graph, relation, words).owned else label


def shortened(text: str, most: int) -> str:
    """A text of at most ``most`` characters, cut between words if that loses little.

    >>> shortened("Cream nursery rack with hooks", 24)
    'Cream nursery rack with…'
    """
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    before = cut if text[most - 1] == " " else cut.rpartition(" ")[0]
    return (before if len(before) >= most // 2 else cut).rstrip(" ,;:–-") + "…"


def evidence_sentence(
    graph: Graph, path: Path, n: int, others: Sequence[int], words: Wording = ENGLISH
) -> str:
    """How an action leads to the item by n paths of one rule, of which ``path`` is the strongest.

    The action's entity is "it" (or "they", for a person) and the item is "this". ``others`` are the
    entities before the item on the next strongest paths; the sentence may name some of them.
    """
    if len(path) == 1:
        return words.text("is_it")
    if len(path) == 2:
        return _direct(graph, path, words)
    middle, last = path.entities[-2], path.relations[-1]
    person = graph.vocabulary.type_of(middle) == "user"
    if path.relations[1] == graph.inverse(last) and not person:  # there and back
        return _shared(graph, path.relations[1], [middle, *others], n, words)
    if _over_people(graph, path):
        return _company(graph, path, n, words)
    more = "" if n == 1 or not words.debug else words.text(
        "more_one" if n == 2 else "more_many", n=words.number(n - 1))  # fmt: skip
    return _chain(graph, path, words) + more


def each_sentence(graph: Graph, path: Path, least: int, words: Wording) -> str:
    """What is true of each action of a group, whose strongest path is ``path``.

    ``least`` is the smallest number of people behind one of the actions; 0 if the rule counts no
    people. "It" is an action's item and "this" the item, as in ``evidence_sentence``.
    """
    if not least:
        if len(path) == 2:
            return _direct(graph, path, words, "each")
        return evidence_sentence(graph, path, 1, [], words)
    n = words.text("at_least", n=words.number(least))
    if len(path) == 3:
        x = words.text("with_both")
    else:
        x = _with_or_after(
            graph, path.relations[1], words.pronoun("it"), words.pronoun("this"), words, ""
        )
    forms = _forms(graph, INTERACTION, words)
    return words.text("people_did", n=n, **forms.with_object(x))


def opening(
    graph: Graph, path: Path, n: int, others: Sequence[int], name: str, words: Wording
) -> str | None:
    """Evidence as the start of a reason that names the action's item: same brand as your lamp
    (Acme). ``name`` is the item's name (``about``). None if the action has to be named first."""
    middle, (first, *_) = path.entities[1], path.relations
    if len(path) == 2 and graph.vocabulary.type_of(middle) == "user":
        rule = _rule_hops(graph, path, words)
        return _rule_someone(rule, words) if hidden(graph, path, 1, words) else None
    if len(path) == 2 and first != INTERACTION and path.relations[1] >= len(graph.relations):
        own, link = _forms(graph, first, words), _forms(graph, path.relations[1], words)
        something, word = own.patterns["something"], words.text("something")
        if not something or word not in something or first >= len(graph.relations):
            return None
        x = words.text("x_you", x=something.replace(word, _label(graph, middle, words)))
        return words.text("has_as", **link.with_object(x))
    if not name:
        if not _over_people(graph, path) or graph.vocabulary.type_of(middle) in ("user", "item"):
            return None
        return _company(graph, path, n, words, _label(graph, middle, words))
    if len(path) == 2:
        told = _alike_by(graph, path.edges[1], words, name)
        if told is not None:
            return told
        return _people(graph, path.edges[1], name, words.pronoun("this"), words, name)
    if _over_people(graph, path):
        return _company(graph, path, n, words, name)
    if _shares(graph, path):
        return _shared(graph, path.relations[1], [path.entities[-2], *others], n, words, name)
    return None


def tile(graph: Graph, path: Path, n: int, brief: str, words: Wording) -> str | None:
    """Evidence in a few words: also by Acme; None if only the action can be named. ``brief`` is a
    short name of the action's item."""
    did = _forms(graph, INTERACTION, words)
    if len(path) == 2 and graph.vocabulary.type_of(path.entities[1]) == "user":
        return _rule_someone(_rule_hops(graph, path, words), words)
    if _shares(graph, path):
        fact = path.entities[-2]
        kind = graph.vocabulary.type_of(fact)
        key = "by" if kind in MAKERS else "same"
        label = shortened(_without_kind(kind, graph.vocabulary.shown[fact]), BRIEF)
        return words.tile(key, same=words.same(kind), x=label)
    link = graph.relations[path.relations[1] % len(graph.relations)]
    derived = len(path) == 2 and link.derived
    if brief and len(path) == 2 and (own := words.link(link.name)):
        return words.tile(own, about=brief)
    if brief and len(path) == 2 and alike_by(link.name):
        shared, kind = _shared_words(graph, path.edges[1]), words.kind(alike_by(link.name))
        return words.tile("mentions" if shared else "similar", about=brief, kind=kind, x=shared)
    if not brief or not (derived or _over_people(graph, path)):
        return opening(graph, path, n, [], "", words) if not brief else None
    after = derived and not graph.relation_name(path.relations[1]).startswith("goes_with")
    people = graph.people(*path.edges[1]) if derived else n
    forward = path.relations[1] < len(graph.relations)
    key = "goes_with" if people < FEW else "after" if after and forward else "with"
    key = "expected" if derived and graph.expected(*path.edges[1]) else key
    if "{done}" in words.table["tile"][key] and did.done is None:
        key = "goes_with"
    return words.tile(key, about=brief, done=did.done)


def _label(graph: Graph, entity: int, words: Wording) -> str:
    """An entity's label, shortened in a tile."""
    label = graph.vocabulary.shown[entity]
    return shortened(label, BRIEF) if words.style == "tile" else label


def _shares(graph: Graph, path: Path) -> bool:
    """Whether a path goes over a fact that two items share."""
    if len(path) != 3 or path.relations[1] != graph.inverse(path.relations[2]):
        return False
    return graph.vocabulary.type_of(path.entities[2]) not in ("user", "item")


def _over_people(graph: Graph, path: Path) -> bool:
    """Whether a path leads over people who did or have the same as the user and took the item."""
    if len(path) != 3 or graph.vocabulary.type_of(path.entities[2]) != "user":
        return False
    return path.relations[1] >= len(graph.relations) > path.relations[2]


def _rule_hops(graph: Graph, path: Path, words: Wording) -> list[Hop]:
    return [_hop(graph, relation, "", "", words) for relation in path.relations]


def is_company(rule: Rule) -> bool:
    """Whether a rule counts people who took both items: over these people, or by ``goes_with``."""
    if rule.derived:
        return len(rule) == 2 and rule.names[1].startswith("goes_with")
    there_and_back = len(rule) == 3 and rule.names[2] == _turned(rule.names[1])
    return there_and_back and rule.types[2] == "user"


def _company(graph: Graph, path: Path, n: int, words: Wording, name: str = "") -> str:
    """People who did or have the same and took this: counted, never named. ``name`` is what they
    have in common with the user, "it" by default."""
    shared, did = (_forms(graph, relation, words) for relation in path.relations[1:])
    both = path.relations[1] == graph.inverse(path.relations[2])
    if both and not words.debug:
        x = words.text("with_about", about=name) if name else words.text("with_both")
        return _counted(n, did, x, words)
    kind = graph.vocabulary.type_of(path.entities[1])
    x = words.pronoun("them" if kind == "user" else "it", shared.case)
    if name:
        x = named(words, kind, name) if shared.has else name
    of_it = shared.with_object(x)
    of_this = did.with_object(words.text("company_x", x=words.pronoun("this", did.case)))
    clauses = {"that": of_it["that"], "those": of_it["those"]}
    clauses |= {"one": of_this["one"], "many": of_this["many"]}
    key = "company_one" if n == 1 else "company_many"
    key = "company_few" if n < FEW and not words.debug else key
    return words.text(key, n=words.number(n), **clauses)


def _counted(n: int, did: Forms, x: str, words: Wording) -> str:
    """How many people did something to x; few people are counted only in the style debug."""
    key = "person_did" if n == 1 else "people_did"
    key = "people_few" if n < FEW and not words.debug else key
    return words.text(key, n=words.number(n), **did.with_object(x))


def _direct(graph: Graph, path: Path, words: Wording, called: str = "it") -> str:
    """One hop from the action's entity to the item; ``called`` is the former's pronoun."""
    entity, relation, _ = path.edges[1]
    it, this = words.pronoun(called), words.pronoun("this")
    told = _people(graph, path.edges[1], it, this, words, "")
    if told is not None:
        return told
    told = _alike_by(graph, path.edges[1], words)
    if told is not None:
        return told
    person, forms = graph.vocabulary.type_of(entity) == "user", _forms(graph, relation, words)
    if relation >= len(graph.relations):
        x = words.pronoun("them" if person else called, forms.case)
        return words.text("direct_back", this=this, **forms.with_object(x))
    said = forms.with_object(words.pronoun("this", forms.case))
    return words.text("direct_person" if person else "direct", it=it, **said)


def _alike_by(
    graph: Graph, edge: tuple[int, int, int], words: Wording, name: str = ""
) -> str | None:
    """Why two items are alike, for a relation of similarity: both mention linen; similar picture.
    ``name`` is the first item's name, empty if it was already named."""
    by = alike_by(graph.relations[edge[1] % len(graph.relations)].name)
    if not by:
        return None
    shared = _shared_words(graph, edge)
    key = ("both_mention" if shared else "alike") + ("_as" if name else "")
    return words.text(key, x=shared, kind=words.kind(by), about=name)


def _shared_words(graph: Graph, edge: tuple[int, int, int]) -> str:
    """The words shared by the texts of two similar items, the rarest first; empty if the graph
    doesn't have the words."""
    one, relation, other = edge
    by = alike_by(graph.relations[relation % len(graph.relations)].name)
    said = next((k for k, r in enumerate(graph.relations) if r.name in (f"{by}_says", by)), None)
    if said is None:
        return ""
    back = graph.inverse(said)
    both = np.intersect1d(graph.neighbours(one, said), graph.neighbours(other, said))
    both_words = sorted(both.tolist(), key=lambda word: len(graph.neighbours(word, back)))
    more = ", …" if len(both_words) > SHOWN else ""
    return ", ".join(graph.vocabulary.shown[word] for word in both_words[:SHOWN]) + more


def _people(
    graph: Graph,
    edge: tuple[int, int, int],
    here: str,
    there: str,
    words: Wording,
    name: str | None = None,
) -> str | None:
    """A derived fact by the people behind it: 38 people watched this with it or up to 5 items
    later. If nobody is, it is expected from similar items, or was only so in earlier data.

    ``name`` is given if the fact connects the action's item with the item: the former's name, empty
    if it was already named.
    """
    _, relation, _ = edge
    made = graph.relations[relation % len(graph.relations)]
    if not made.derived:
        return None
    n, forms = graph.people(*edge), _forms(graph, INTERACTION, words)
    if not n:
        key = "expected" if graph.expected(*edge) else "no_longer"
        return words.text(key, x=name or words.pronoun("it", "dat"))
    return _counted(n, forms, _with_or_after(graph, relation, here, there, words, name), words)


def _with_or_after(
    graph: Graph, relation: int, here: str, there: str, words: Wording, name: str | None
) -> str:
    """What the people behind a derived fact took: both, or this with it or later."""
    together = graph.relation_name(relation).startswith("goes_with")
    if together and name is not None and not words.debug:
        return words.text("with_about", about=name) if name else words.text("with_both")
    if relation >= len(graph.relations) and not together:
        here, there = there, here
    window = graph.relations[relation % len(graph.relations)].window or 0
    key = "with_x" if together else "after_one_x" if window == 1 else "after_x"
    return words.text(key, here=here, there=there, n=words.number(window))


def _shared(
    graph: Graph, relation: int, middles: Sequence[int], n: int, words: Wording, name: str = ""
) -> str:
    """What the action's entity and the item share: same brand Acme; or, if it is an item, both
    depend on libc6."""
    kind = graph.vocabulary.type_of(middles[0])
    labels = [graph.vocabulary.shown[m] for m in dict.fromkeys(middles)][:SHOWN]
    more = ", …" if n > len(labels) else ""
    several = {"n": words.number(n), "kinds": words.kinds(kind), "x": ", ".join(labels) + more}
    if kind != "item":
        if n == 1:
            return _same_as(words, kind, labels[0], name)
        return words.text("shared_many_as" if name else "shared_many", about=name, **several)
    forms, x = _forms(graph, relation, words), labels[0]
    x = x if n == 1 else words.text("several", **several)
    if relation < len(graph.relations):
        return words.text("both_do", **forms.with_object(x))
    said = forms.with_object(words.pronoun("both", forms.case))
    return words.text("do_both_one" if n == 1 else "do_both_many", who=x, **said)


def _same_as(words: Wording, entity_type: str, label: str, name: str = "") -> str:
    """same brand as your lamp (Acme); same tempo range (69–98 bpm), if the label begins with
    tempo."""
    same, x = words.same(entity_type), _without_kind(entity_type, label)
    return words.text("shared_one_as" if name else "shared_one", same=same, x=x, about=name)


def _without_kind(entity_type: str, label: str) -> str:
    """A label without its kind, if it begins with it."""
    for kind in _said_kinds(entity_type):
        if label.casefold().startswith(kind + " "):
            label = label[len(kind) + 1 :]
    return label


def _chain(graph: Graph, path: Path, words: Wording) -> str:
    """A path after its action: it is viewed along with X, which is bought along with this."""
    text, labels = "", [graph.vocabulary.shown[entity] for entity in path.entities]
    for k in range(len(labels)):
        if hidden(graph, path, k, words):
            labels[k] = words.pronoun("someone")
    for k, (head, relation, tail) in enumerate(path.edges[1:]):
        forms, last = _forms(graph, relation, words), k == len(path) - 2
        here = words.pronoun("it") if k == 0 else labels[k + 1]
        there = words.pronoun("this") if last else labels[k + 2]
        told = _people(graph, (head, relation, tail), here, there, words)
        forward = relation < len(graph.relations)
        if told is not None:
            text += ("; " if k else "") + told
            continue
        x = labels[k + 2] if forward else labels[k + 1]
        entity = tail if forward else head
        x = named(words, graph.vocabulary.type_of(entity), x) if forms.has else x
        if forward and last:
            x = words.pronoun("this", forms.case)
        elif not forward and k == 0:
            x = words.pronoun("it", forms.case)
        said = forms.with_object(x)
        if k == 0:
            person = forward and graph.vocabulary.type_of(head) == "user"
            key = "direct_person" if person else "chain"
            text = words.text(key, who=here if forward else there, **said)
        else:
            key = "which_did" if forward else "plain"
            text += words.text(key, here=here, who=there, **said)
    return text


# ── rules ───────────────────────────────────────────────────────────────────────────────


def rule_sentence(rule: Rule, words: Wording = ENGLISH) -> str:
    """A rule as a person would say it; "this" is the item at its end.

    >>> rule_sentence(Rule((0, 1, 3), ("plays", "has_artist", "has_artist⁻¹"),
    ...                    ("user", "item", "artist", "item")))
    'same artist as something you played'
    """
    hops = [_rule_hop(rule, k, words) for k in range(len(rule))]
    first = hops[0].forms.patterns
    if len(hops) == 3 and hops[2].name == _turned(hops[1].name):
        if hops[1].types[1] == "user":
            if hops[0].name == hops[2].name and hops[0].forward:
                return _rule_company(hops[0].forms, words)
        elif hops[0].forward and hops[1].forward and first["something"]:
            return _rule_same(hops, words)
    if len(hops) == 3 and _alike(hops):
        return _rule_alike(hops, words)
    if len(hops) == 2 and hops[1].types[0] == "user" and hops[1].forward:
        said = _rule_someone(hops, words)
        if said:
            return said
    if len(hops) == 2 and hops[0].forward and hops[1].types[0] == "item" and first["something"]:
        return _rule_something(rule, hops, words)
    return _said(hops, words)


def _rule_same(hops: Sequence[Hop], words: Wording) -> str:
    """same brand as something you bought"""
    forms, kind = hops[1].forms, hops[1].types[1]
    same, something = words.same(kind), hops[0].forms.patterns["something"]
    if forms.same:
        return words.text("rule_same", same=forms.same, something=something)
    if forms.has:
        return words.text("rule_same", same=same, something=something)
    said = forms.with_object(words.text("rule_same_x", same=same))
    relation = hops[1].name.split("[")[0].replace("_", " ")
    return words.text("rule_same_by", same=same, relation=relation, something=something, **said)


def _rule_company(forms: Forms, words: Wording) -> str:
    """people who bought the same as you also bought this"""
    of_this = forms.with_object(words.text("company_x", x=words.pronoun("this", forms.case)))
    same = forms.with_object(words.text("rule_company_x"))
    return words.text("rule_company", those=same["those"], many=of_this["many"])


def _alike(hops: Sequence[Hop]) -> bool:
    """Whether a rule leads over people who share a fact with the user."""
    there_and_back = hops[0].forward and hops[1].name == _turned(hops[0].name)
    return there_and_back and hops[2].forward and hops[2].types[0] == "user"


def _rule_alike(hops: Sequence[Hop], words: Wording) -> str:
    """people who have the same city as you also bought this"""
    own, did = hops[0].forms, hops[2].forms
    same = words.same(hops[0].types[1])
    alike = own.with_object(words.text("rule_alike_x", same=same, x=hops[0].tail))
    of_this = did.with_object(words.text("company_x", x=words.pronoun("this", did.case)))
    return words.text("rule_alike", those=alike["those"], many=of_this["many"])


def _rule_someone(hops: Sequence[Hop], words: Wording) -> str | None:
    """someone you follow bought this"""
    own, did = hops[0].forms, hops[1].forms
    if hops[0].forward:
        someone = own.patterns["someone"]
    else:
        someone = words.text("rule_someone_who", **_to_you(own, words))
    said = did.with_object(words.pronoun("this", did.case))
    return words.text("rule_someone", someone=someone, **said) if someone else None


def _rule_something(rule: Rule, hops: Sequence[Hop], words: Wording) -> str:
    """something you bought is bought along with this"""
    own, link = hops[0].forms, hops[1].forms
    something = own.patterns["something"]
    if rule.derived:
        key = "rule_with" if hops[1].name.startswith("goes_with") else "rule_after"
        x = words.text(f"{key}_x", something=something, x=words.pronoun("this", own.case))
        if hops[1].forward or key == "rule_with":
            return words.text(key, something=something, **own.with_object(x))
    if hops[1].forward:
        said = link.with_object(words.pronoun("this", link.case))
        return words.text("rule_something", something=something, **said)
    said = link.with_object(something, words.text("clause_ends"))
    return words.text("rule_something_back", this=words.pronoun("this"), **said)


def _rule_hop(rule: Rule, k: int, words: Wording) -> Hop:
    """A hop of a rule between kinds of entities: item A, brand B and, at the end, this."""
    name, here, there = rule.names[k], rule.types[k], rule.types[k + 1]
    forward, plain = not name.endswith(INVERSE_MARK), name.removesuffix(INVERSE_MARK)
    ends = (here, there) if forward else (there, here)
    forms = words.forms(plain, *ends)

    def called(place: int, case: str) -> str:
        if place == len(rule):
            return words.pronoun("this", case)
        kind, letter = words.kind(rule.types[place]), chr(ord("A") + place - 1)
        return words.text("placeholder", kind=kind, letter=letter)

    head = called(k, "nom") if k else ""
    tail = called(k + 1, forms.case if forward else "nom")
    return Hop(forms, forward, head, tail, (here, there), name)


# ── inside ──────────────────────────────────────────────────────────────────────────────


def _to_you(forms: Forms, words: Wording) -> dict[str, str]:
    """The forms of a verb whose object is you."""
    said = forms.with_object(words.pronoun("you", forms.case))
    return said if forms.to_you is None else said | {"one": forms.to_you, "that": forms.to_you}


def _turned(name: str) -> str:
    """The name of the inverse of a relation."""
    plain = name.removesuffix(INVERSE_MARK)
    return plain if plain != name else f"{name}{INVERSE_MARK}"


def _forms(graph: Graph, relation: int, words: Wording) -> Forms:
    base = graph.relations[relation % len(graph.relations)]
    return words.forms(base.name, base.head_type, base.tail_type)


def _hop(
    graph: Graph,
    relation: int,
    head: str,
    tail: str,
    words: Wording,
    derived: str | None = None,
) -> Hop:
    name, forward = graph.relation_name(relation), relation < len(graph.relations)
    types = graph.signature(relation)
    return Hop(_forms(graph, relation, words), forward, head, tail, types, name, derived)
