"""Rules: typed relation sequences from user to item, r1 ∧ … ∧ rj ⇒ r_ui."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loger.errors import LogerError
from loger.graph import DISLIKED, INTERACTION, Graph, KnowledgeGraph, checked_ids

if TYPE_CHECKING:
    from loger.rules.wording import Wording

MAX_HOPS = 3
"""The most hops of a rule, as in the paper."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: relation numbers, with the names and entity types to read it by."""

    relations: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]  # one more than relations: user, …, item
    derived: bool = False
    """Whether it uses a relation derived from interactions."""

    def __len__(self) -> int:
        return len(self.relations)

    def __str__(self) -> str:
        hops = (f"–{n}→ {t}" for n, t in zip(self.names, self.types[1:], strict=True))
        return " ".join([self.types[0], *hops])

    @property
    def negative(self) -> bool:
        """Whether it begins with something that the user dislikes; then it may only count against
        an item."""
        return self.names[0] == DISLIKED

    @property
    def shares_fact(self) -> bool:
        """Whether it leads over a fact that two items share, such as a brand."""
        if len(self) != 3 or self.types[1] != "item" or self.types[2] in ("user", "item"):
            return False
        there, back = self.names[1:]
        return back == there + "⁻¹" or there == back + "⁻¹"

    def sentence(self, words: Wording | None = None) -> str:
        """The rule as a person would say it, in English unless other words are given.

        >>> Rule((0, 1, 3), ("purchase", "has_brand", "has_brand⁻¹"),
        ...      ("user", "item", "brand", "item")).sentence()
        'same brand as something you bought'
        >>> Rule((2, 0), ("follows⁻¹", "purchase"), ("user", "user", "item")).sentence()
        'someone who follows you bought this'
        """
        from loger.rules.sentences import rule_sentence
        from loger.rules.wording import ENGLISH

        return rule_sentence(self, words or ENGLISH)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules in a fixed order; a rule is identified by its place."""

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

    The interaction alone is not allowed, because it would explain a pair by itself (METHOD L2).
    """
    relations = tuple(checked_ids(relations, 2 * len(graph.relations), "relation").tolist())
    names = tuple(graph.relation_name(r) for r in relations)
    if not 1 <= len(relations) <= MAX_HOPS:
        raise LogerError(
            f"a rule must have 1 to {MAX_HOPS} relations, got {len(relations)}: {names}"
        )
    if relations == (INTERACTION,):
        raise LogerError(f"the rule {names[0]} ⇒ {names[0]} is circular; use other relations")
    types = ["user"]
    for r, name in zip(relations, names, strict=True):
        head, tail = graph.signature(r)
        if head != types[-1]:
            raise LogerError(f"in the rule {names}, {name} leads from {head}, not {types[-1]}")
        types.append(tail)
    if types[-1] != "item":
        raise LogerError(f"the rule {names} ends at {types[-1]}, not at item")
    derived = any(graph.relations[r % len(graph.relations)].derived for r in relations)
    return Rule(relations, names, tuple(types), derived)


def named_rules(graph: Graph, names: Iterable[Sequence[str]]) -> RuleSet:
    """Rules from relation names, ``⁻¹`` or ``^-1`` marking inverses."""
    return RuleSet(tuple(make_rule(graph, [graph.relation_id(n) for n in rule]) for rule in names))


def candidates(graph: KnowledgeGraph, max_hops: int = MAX_HOPS, min_hops: int = 1) -> RuleSet:
    """Every rule that the types allow, over relations with facts, shorter rules first.

    Derived relations are left out, because the interactions they were made from can't show whether
    they help. Dislikes may only begin a rule, and such a rule leads over no other people, because
    people who dislike the same may well share a taste.
    """
    every = sorted({int(r) for r in set(graph.segment_relations.tolist())})
    used = [r for r in every if not graph.relations[r % len(graph.relations)].derived]
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
    kinds = [graph.relations[r % len(graph.relations)] for r in used]
    negative = {graph.relation_name(r) for r, k in zip(used, kinds, strict=True) if k.negative}
    return RuleSet(tuple(rule for rule in found if _allowed(rule, negative)))


def _allowed(rule: Rule, negative: set[str]) -> bool:
    """Whether a rule has no dislikes, or begins with them and leads over facts only."""
    if not negative & set(rule.names):
        return True
    rest = negative & set(rule.names[1:])
    return rule.negative and len(rule) > 1 and not rest and "user" not in rule.types[1:]
