"""Examples of a rule: its strongest paths to what people really have.

A rule over a derived relation is not shown by what the relation was made of (METHOD L2), so its
examples lead to what people do not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger.explain.schema import entity_record
from loger.graph import KnowledgeGraph, Path, history
from loger.grounding import Walk, ground, reach_best, strongest_paths
from loger.rules import Rule, RuleSet
from loger.rules.sentences import path_sentence
from loger.rules.wording import ENGLISH, Wording

EXAMPLES = 5
SAMPLE = 256
"""Users whose histories are looked through for examples."""


def rule_examples(
    graph: KnowledgeGraph,
    rule: Rule,
    walk: Walk | None,
    n: int = EXAMPLES,
    words: Wording = ENGLISH,
) -> list[dict[str, Any]]:
    """The n strongest paths of a rule from users, spread over all, to items that they have (of a
    derived relation: do not have); each of another user, with its sentence, entities and
    relations."""
    rules = RuleSet((rule,))
    users, items = _strongest_pairs(graph, rules, walk, n)
    zeros = np.zeros(len(users), dtype=np.int64)
    nodes, _ = strongest_paths(graph, rules, zeros, users, items, 1, walk)
    paths = [
        Path((int(u), *inner[0][: len(rule) - 1].tolist(), int(v) + graph.n_users), rule.relations)
        for u, v, inner in zip(users, items, nodes, strict=True)
    ]
    return [
        {
            "sentence": path_sentence(graph, path, words),
            "entities": [entity_record(graph.vocabulary, e) for e in path.entities],
            "relations": list(rule.names),
        }
        for path in paths
    ]


def _strongest_pairs(
    graph: KnowledgeGraph, rules: RuleSet, walk: Walk | None, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of sampled users the n for whom the rule leads most strongly to an example; and what that
    is."""
    sample = np.linspace(0, graph.n_users - 1, min(SAMPLE, graph.n_users)).astype(np.int64)
    if rules[0].derived:
        none = np.empty((len(sample), 0), dtype=np.int32)
        groundings = reach_best(graph, rules, sample, walk or Walk.uniform(0.0), [1], none)
        users, items = groundings.users.astype(np.int64), groundings.items.astype(np.int64)
    else:
        owners, items = history(graph, sample)
        users = sample[owners]
        groundings = ground(graph, rules, users, items, walk=walk)
    strengths = groundings.counts if groundings.strengths is None else groundings.strengths
    pairs = np.repeat(np.arange(len(groundings)), np.diff(groundings.indptr))
    best: dict[int, int] = {}  # user → pair
    for cell in np.argsort(-strengths, kind="stable").tolist():
        best.setdefault(int(users[pairs[cell]]), int(pairs[cell]))
        if len(best) == n:
            break
    rows = np.array(list(best.values()), dtype=np.int64)
    return users[rows], items[rows]
