"""Rule sets in the forms that compiled code reads, checked against the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.errors import LogerError
from loger.graph import Graph, Relation
from loger.grounding.layout import fade_classes, read_only
from loger.rules import MAX_HOPS, Rule, RuleSet


class Plan(NamedTuple):
    """A rule set with numbered prefixes, for ``pairs``.

    Two prefixes with the same relations differ if interactions fade at different rates before them.
    """

    first: NDArray[np.int64]  # [fades, relations]: prefix (r1), or -1
    second: NDArray[np.int64]  # [fades, relations, relations]: prefix (r1, r2), or -1
    expands: NDArray[np.bool_]  # [fades, relations]: is there a prefix (r1, ·)?
    ends: NDArray[np.bool_]  # [relations]: is it the last relation of a rule?
    rule_of: NDArray[np.int32]  # [relations, prefixes]: rule by last relation and prefix, or -1
    slot: NDArray[np.int64]  # [prefixes]: number among the prefixes that end at the same type
    stride: int  # the most slots of any type
    end_starts: NDArray[np.int64]  # [relations + 1]: slices of the next two arrays
    end_slots: NDArray[np.int64]  # by last relation, the slots of the rules' prefixes, …
    end_rules: NDArray[np.int64]  # … and the rules' numbers
    derived: NDArray[np.int64]  # the rules over derived relations
    n_rules: int
    direct: bool  # are there rules of length 1? Their empty prefix is number 0.


class Trie(NamedTuple):
    """A rule set as a tree of prefixes, for ``reaching`` and ``choosing``: which hops continue a
    prefix, and which end a rule."""

    root: NDArray[np.int64]  # [fades, relations]: node of prefix (r1), or -1
    child_starts: NDArray[np.int64]  # [nodes + 1]
    child_relations: NDArray[np.int64]
    child_nodes: NDArray[np.int64]
    end_starts: NDArray[np.int64]  # [nodes + 1]
    end_relations: NDArray[np.int64]
    end_rules: NDArray[np.int64]
    n_rules: int


class Tree(NamedTuple):
    """A rule set as a tree of prefixes, for walks hop by hop; node 0 is the empty prefix.

    Each node has branches, one per relation; a branch may end a rule, lead to another node, or
    both. Unlike in ``Trie``, branches are in the order of relations.
    """

    starts: NDArray[np.int64]  # [nodes + 1]: the branches of each node
    relations: NDArray[np.int64]  # [branches]
    nodes: NDArray[np.int64]  # [branches]: the node that the branch leads on to, or -1
    rules: NDArray[np.int64]  # [branches]: the rule that ends with the branch, or -1


class Compiled(NamedTuple):
    """A rule set in all forms that compiled loops read."""

    plan: Plan
    trie: Trie
    tree: Tree
    below: NDArray[np.bool_]  # [nodes of the tree, rules]: which rules begin with the prefix
    table: NDArray[np.int64]  # [rules, MAX_HOPS]: their relations, -1 after the end


def compiled(graph: Graph, rules: RuleSet) -> Compiled:
    """The rules as compiled code reads them, cached; rules of another graph are an error."""
    return _compiled(graph.relations, rules)


@lru_cache(maxsize=128)
def _compiled(relations: tuple[Relation, ...], rules: RuleSet) -> Compiled:
    for rule in rules:
        _check(relations, rule)
    tree, below = _tree(rules)
    plan, trie = read_only(_plan(relations, rules)), read_only(_trie(relations, rules))
    return Compiled(plan, trie, tree, below, _table(rules))


def _check(relations: tuple[Relation, ...], rule: Rule) -> None:
    """Refuse a rule whose relations do not lead from user to item in this graph."""
    n, types = len(relations), ["user"]
    fits = 1 <= len(rule) <= MAX_HOPS
    for r in rule.relations:
        fits = fits and 0 <= r < 2 * n
        if fits:
            base = relations[r % n]
            head, tail = (base.head_type, base.tail_type)[:: 1 if r < n else -1]
            fits = head == types[-1]
            types.append(tail)
    if not fits or types[-1] != "item" or tuple(types) != rule.types:
        raise LogerError(
            f"the rule {rule} with relations {rule.relations} doesn't lead from user to item in "
            f"this graph; make it with make_rule(graph, relations)"
        )


def _table(rules: RuleSet) -> NDArray[np.int64]:
    table = np.full((len(rules), MAX_HOPS), -1, dtype=np.int64)
    for row, rule in zip(table, rules, strict=True):
        row[: len(rule)] = rule.relations
    return table


def _fades(relations: tuple[Relation, ...], rules: RuleSet) -> tuple[int, list[int]]:
    """How many fade classes there are, and the class of each rule, given by its second relation."""
    rates, classes = fade_classes(relations)
    return 1 + len(rates), [int(classes[r.relations[1]]) if len(r) > 1 else 0 for r in rules]


def _plan(relations: tuple[Relation, ...], rules: RuleSet) -> Plan:
    """Number the prefixes and index the rules by them."""
    n = 2 * len(relations)
    n_fades, fades = _fades(relations, rules)
    keys = [(fade, *rule.relations[:-1]) for fade, rule in zip(fades, rules, strict=True)]
    prefixes = sorted(set(keys), key=lambda p: (len(p), p))
    first, second = np.full((n_fades, n), -1), np.full((n_fades, n, n), -1)
    rule_of = np.full((n, max(1, len(prefixes))), -1, dtype=np.int32)
    for number, prefix in enumerate(prefixes):
        if len(prefix) == 2:
            first[prefix] = number
        elif len(prefix) == 3:
            second[prefix] = number
    for place, (key, rule) in enumerate(zip(keys, rules, strict=True)):
        cell = rule.relations[-1], prefixes.index(key)
        if rule_of[cell] >= 0:
            raise LogerError(f"the rule {rule} is in the rule set twice; remove one")
        rule_of[cell] = place
    slot, slots_of = np.zeros(len(prefixes), dtype=np.int64), Counter[str]()
    end_of = {key: rule.types[-2] for key, rule in zip(keys, rules, strict=True)}
    for number, prefix in enumerate(prefixes):
        end = end_of[prefix]
        slot[number] = slots_of[end]
        slots_of[end] += 1
    last, prefix_of = np.nonzero(rule_of >= 0)  # by last relation
    return Plan(
        first=first,
        second=second,
        expands=np.any(second >= 0, axis=2),
        ends=np.any(rule_of >= 0, axis=1),
        rule_of=rule_of,
        slot=slot,
        stride=max(slots_of.values(), default=1),
        end_starts=np.searchsorted(last, np.arange(n + 1)),
        end_slots=slot[prefix_of],
        end_rules=rule_of[last, prefix_of].astype(np.int64),
        derived=np.array([k for k, rule in enumerate(rules) if rule.derived], dtype=np.int64),
        n_rules=len(rules),
        direct=any(len(rule) == 1 for rule in rules),
    )


def _trie(relations: tuple[Relation, ...], rules: RuleSet) -> Trie:
    """The prefixes of rules of two and three hops as a tree."""
    n_fades, fades = _fades(relations, rules)
    keys = [(fade, *rule.relations) for fade, rule in zip(fades, rules, strict=True)]
    prefixes = sorted({key[:k] for key in keys for k in range(2, len(key))})
    node = {prefix: k for k, prefix in enumerate(prefixes)}
    root = np.full((n_fades, 2 * len(relations)), -1)
    children: list[list[tuple[int, int]]] = [[] for _ in prefixes]
    ends: list[list[tuple[int, int]]] = [[] for _ in prefixes]
    for prefix, k in node.items():
        if len(prefix) == 2:
            root[prefix] = k
        else:
            children[node[prefix[:-1]]].append((prefix[-1], k))
    for place, key in enumerate(keys):
        if len(key) > 2:
            ends[node[key[:-1]]].append((key[-1], place))
    return Trie(root, *_ragged(children), *_ragged(ends), len(rules))


def _ragged(
    lists: Sequence[Sequence[tuple[int, int]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    starts = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    flat = np.array([pair for x in lists for pair in x], dtype=np.int64).reshape(-1, 2)
    return starts, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])


def _tree(rules: RuleSet) -> tuple[Tree, NDArray[np.bool_]]:
    """Rules as a tree, and which rules lie below each of its nodes; [nodes, rules]."""
    prefixes = sorted({r.relations[:k] for r in rules for k in range(len(r))} | {()})
    node = {prefix: k for k, prefix in enumerate(prefixes)}  # () sorts first: it is node 0
    ends = {rule.relations: k for k, rule in enumerate(rules)}
    branches = sorted({(*r.relations[: k + 1],) for r in rules for k in range(len(r))})
    branches.sort(key=lambda b: (node[b[:-1]], b[-1]))
    owner = [node[b[:-1]] for b in branches]
    below = np.zeros((len(prefixes), len(rules)), dtype=bool)
    for place, rule in enumerate(rules):
        for k in range(len(rule)):
            below[node[rule.relations[:k]], place] = True
    tree = Tree(
        np.searchsorted(owner, np.arange(len(prefixes) + 1)).astype(np.int64),
        np.array([b[-1] for b in branches], dtype=np.int64),
        np.array([node.get(b, -1) for b in branches], dtype=np.int64),
        np.array([ends.get(b, -1) for b in branches], dtype=np.int64),
    )
    return tree, below
