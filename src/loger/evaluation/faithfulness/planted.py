"""Whether the reasons are the true ones, where these are known: in the invented shop.

A purchase there is where most of a few random walks along one rule ended. All of the user's actions
that the rule leads from to the item had a part in that; the walk that came first had the last word,
by chance. So an action is found if the first reason is one of those, and the *very* action if it is
that of the first walk: who knows all but the dice finds it in 1 of n cases if n actions lead there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from loger.data.demo import Demo
from loger.data.splits import Part, Split
from loger.evaluation.faithfulness.actions import Acts, NamesReasons
from loger.evaluation.metrics import faithfulness as measures
from loger.evaluation.metrics.faithfulness import Values
from loger.graph import KnowledgeGraph, Path
from loger.grounding import paths
from loger.rules import RuleSet


def planted_cases(
    demo: Demo,
    split: Split,
    rules: RuleSet,
    part: Part = "test",
    graph: KnowledgeGraph | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[Path]]:
    """Purchases of a part that a planted rule caused, with the paths that caused them.

    Only those whose cause can be told: its rule is among the rules, and its facts are in
    the graph that these are of, by default the split's.
    """
    rows = getattr(split, part)
    graph = graph or split.graph
    sequences = {rule.relations for rule in rules}
    kept, causes = [], []
    for row in rows.tolist():
        if demo.causes[row] < 0:
            continue
        names = demo.planted[demo.causes[row]]
        path = Path(demo.paths[row], tuple(graph.relation_id(name) for name in names))
        if path.relations in sequences and path.exists(graph):
            kept.append(row)
            causes.append(path)
    events = split.dataset.interactions
    return events.users[kept], events.items[kept], causes


def recovered(
    demo: Demo,
    split: Split,
    rules: RuleSet,
    graph: KnowledgeGraph,
    explain: Callable[[int, int, int], Sequence[Path]],
    acts: Acts | None,
    n_paths: int,
) -> dict[str, Values]:
    """Whether planted reasons are found again; one value per purchase, or per reason."""
    users, items, causes = planted_cases(demo, split, rules, graph=graph)
    pairs = list(zip(users.tolist(), items.tolist(), strict=True))
    found = measures.reason_recovery([tuple(explain(u, v, n_paths)) for u, v in pairs], causes)
    out = {
        "recovered_rule": found.rule_first.astype(np.float64),
        "recovered_path": found.path_any.astype(np.float64),
    }
    if not isinstance(acts, NamesReasons) or not pairs:
        return out
    named = {rule.relations: rule for rule in rules}
    any_of, very, odds = (np.zeros(len(pairs)) for _ in range(3))
    shares, right = list[float](), list[bool]()
    for k, ((u, v), cause) in enumerate(zip(pairs, causes, strict=True)):
        leads = {int(way[1]) for way in paths(graph, named[cause.relations], u, v)}
        told = [(r == cause.relations[0], e, total) for r, e, total in acts.reasons(u, v)]
        if told:
            of_rule, first, _ = told[0]
            any_of[k] = of_rule and first in leads
            very[k] = of_rule and first == cause.entities[1]
        odds[k] = 1 / len(leads)
        positive = [reason for reason in told if reason[2] > 0]
        whole = sum(total for _, _, total in positive)
        shares += [total / whole for _, _, total in positive]
        right += [of_rule and e == cause.entities[1] for of_rule, e, _ in positive]
    return out | {
        "recovered_action": any_of,
        "recovered_very_action": very,
        "recoverable_very_action": odds,
        "reliability_error": np.array([measures.reliability_error(shares, right)]),
        "reliability:told": np.array(shares),
        "reliability:right": np.array(right, dtype=np.float64),
    }
