"""Rules: typed relation sequences from user to item, r1 ∧ … ∧ rj ⇒ r_ui."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from loger.errors import LogerError
from loger.graph import INTERACTION, INVERSE_MARK, Graph, KnowledgeGraph, checked_ids

MAX_HOPS = 3
"""The most hops of a rule, as in the paper."""

_VERBS = {
    "purchase": "bought",
    "buy": "bought",
    "watch": "watched",
    "like": "liked",
    "rate": "rated",
    "view": "viewed",
    "click": "clicked on",
    "interacted": "interacted with",
    "mentions": "mentioned",
    "also_bought": "is bought along with",
    "also_buy": "is bought along with",
    "also_viewed": "is viewed along with",
    "also_view": "is viewed along with",
    "bought_together": "is bought together with",
    "belong_to": "belongs to",
    "part_of": "is part of",
    "wrote_by": "is written by",
    "cinematography_by": "has cinematography by",
}
"""What a head does, in the third person, where the relation's own name does not say it well."""

_TO_YOU = {"has": "have", "is": "are", "does": "do"}
_PREPOSITIONS = {"as", "by", "for", "from", "in", "of", "on", "to", "with"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: relation numbers, with the names and entity types to read it by."""

    relations: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]  # one more than relations: user, …, item

    def __len__(self) -> int:
        return len(self.relations)

    def __str__(self) -> str:
        hops = (f"–{n}→ {t}" for n, t in zip(self.names, self.types[1:], strict=True))
        return " ".join([self.types[0], *hops])

    def sentence(self) -> str:
        """The rule as a person would say it.

        >>> Rule((0, 1, 3), ("purchase", "has_brand", "has_brand⁻¹"),
        ...      ("user", "item", "brand", "item")).sentence()
        'you bought an item that has a brand that another item has'
        >>> Rule((2, 0), ("follows⁻¹", "purchase"), ("user", "user", "item")).sentence()
        'another user follows you, and that user bought an item'
        """
        text, join, subject = "", "", "you"
        for k, (name, (here, there)) in enumerate(
            zip(self.names, pairwise(self.types), strict=True)
        ):
            noun = _noun(there, self.types[: k + 1].count(there))
            if name.endswith(INVERSE_MARK):
                verb = verb_of(name.removesuffix(INVERSE_MARK), there, here)
                clause = f"that {noun} {verb}" if subject == "that" else f"{noun} {verb} {subject}"
                # The clause does not end with the noun, so the next has to name it again.
                following = ", and ", f"that {_words(there)}"
            else:
                verb = verb_of(name, here, there)
                clause = f"{subject} {to_you(verb) if subject == 'you' else verb} {noun}"
                following = " ", "that"
            text += join + clause
            join, subject = following
        return text


def _words(name: str) -> str:
    return name.split("[")[0].replace("_", " ")


def _noun(entity_type: str, before: int) -> str:
    """An entity of a type of which so many have been named before."""
    article = "an" if entity_type[:1] in "aeio" else "a"
    return f"{(article, 'another', 'a third')[min(before, 2)]} {_words(entity_type)}"


@lru_cache(maxsize=1024)
def verb_of(name: str, head_type: str, tail_type: str) -> str:
    """What a head does to a tail, in the third person; the tail itself is not named."""
    plain = name.split("[")[0]
    if plain.removeprefix("has_") == tail_type:
        return "has"
    plain = plain.removesuffix(f"_{tail_type}")
    first, _, rest = plain.partition("_")
    if plain in _VERBS:
        return _VERBS[plain]
    # A movie is directed by someone; people act for themselves: they subscribed to something.
    passive = rest == "by" or (first.endswith("ed") and rest in _PREPOSITIONS)
    return ("is " if passive and head_type != "user" else "") + plain.replace("_", " ")


@lru_cache(maxsize=1024)
def to_you(verb: str) -> str:
    """A verb in the third person as it is said to you: follows → follow, has → have."""
    first, space, rest = verb.partition(" ")
    if first in _TO_YOU:
        first = _TO_YOU[first]
    elif first.endswith("ies"):
        first = first.removesuffix("ies") + "y"
    elif first.endswith(("ches", "shes", "sses", "xes", "zes")):
        first = first.removesuffix("es")
    elif first.endswith("s") and not first.endswith("ss"):
        first = first.removesuffix("s")
    return first + space + rest


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules in a fixed order; a rule is known by its place."""

    rules: tuple[Rule, ...]

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, place: int) -> Rule:
        return self.rules[place]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __str__(self) -> str:
        return "\n".join(f"{k:3d}  {rule}" for k, rule in enumerate(self.rules))

    def chosen(self, places: Iterable[int]) -> RuleSet:
        """The rules at these places."""
        return RuleSet(tuple(self.rules[k] for k in places))

    def index(self, names: Sequence[str]) -> int:
        """The place of the rule with these relation names."""
        for k, rule in enumerate(self.rules):
            if rule.names == tuple(names):
                return k
        raise LogerError(f"no rule {' → '.join(names)} among the {len(self)} rules")


def make_rule(graph: Graph, relations: Sequence[int]) -> Rule:
    """A rule over a graph's relations, checked to lead from user to item.

    The interaction alone is refused: it would explain a pair by itself (METHOD L2).
    """
    relations = tuple(checked_ids(relations, 2 * len(graph.relations), "relation").tolist())
    names = tuple(graph.relation_name(r) for r in relations)
    if not 1 <= len(relations) <= MAX_HOPS:
        raise LogerError(f"a rule has 1 to {MAX_HOPS} relations, got {len(relations)}: {names}")
    if relations == (INTERACTION,):
        raise LogerError(f"the rule {names[0]} ⇒ {names[0]} says nothing")
    types = ["user"]
    for r, name in zip(relations, names, strict=True):
        head, tail = graph.signature(r)
        if head != types[-1]:
            raise LogerError(f"in the rule {names}, {name} leads from {head}, not {types[-1]}")
        types.append(tail)
    if types[-1] != "item":
        raise LogerError(f"the rule {names} ends at {types[-1]}, not at item")
    return Rule(relations, names, tuple(types))


def named_rules(graph: Graph, names: Iterable[Sequence[str]]) -> RuleSet:
    """Rules from relation names, ``⁻¹`` or ``^-1`` marking inverses."""
    return RuleSet(tuple(make_rule(graph, [graph.relation_id(n) for n in rule]) for rule in names))


def candidates(graph: KnowledgeGraph, max_hops: int = MAX_HOPS, min_hops: int = 1) -> RuleSet:
    """Every rule that the types allow, shorter ones first, over relations that have facts."""
    used = sorted({int(r) for r in set(graph.segment_relations.tolist())})
    leaving: dict[str, list[int]] = {}
    for r in used:
        leaving.setdefault(graph.signature(r)[0], []).append(r)
    found: list[Rule] = []
    fronts: list[tuple[tuple[int, ...], str]] = [((), "user")]
    for length in range(1, max_hops + 1):
        fronts = [
            ((*relations, r), graph.signature(r)[1])
            for relations, end in fronts
            for r in leaving.get(end, ())
        ]
        if length >= min_hops:
            found += [
                make_rule(graph, relations)
                for relations, end in fronts
                if end == "item" and relations != (INTERACTION,)
            ]
    return RuleSet(tuple(found))
