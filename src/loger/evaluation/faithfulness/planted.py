"""Whether the reasons are the true ones, where these are known: in the invented shop.

A purchase there is where most of a few random walks along one rule ended. All of the user's actions
that the rule leads from to the item had a part in that; the walk that came first had the last word,
by chance. So an action is found if the first reason is one of those, and the *very* action if it is
that of the first walk: who knows all but the dice finds it in 1 of n cases if n actions lead there.
Purchases that nothing caused have no right reason, and who is sure of one there is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from loger.data.demo import Demo
from loger.data.splits import Part, Split
from loger.evaluation.faithfulness.actions import Acts, NamedReason, NamesReasons
from loger.graph import KnowledgeGraph, Path
from loger.graph.arrays import Doubles, Ints
from loger.grounding import paths
from loger.metrics import faithfulness as measures
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
    explain: Callable[[Ints, Ints, int], Sequence[Sequence[Path]]],
    acts: Acts | None,
    n_paths: int,
) -> dict[str, Doubles]:
    """Whether planted reasons are found again; one value per purchase, or per reason."""
    users, items, causes = planted_cases(demo, split, rules, graph=graph)
    found = measures.reason_recovery(explain(users, items, n_paths), causes)
    out = {
        "recovered_rule": found.rule_first.astype(np.float64),
        "recovered_path": found.path_any.astype(np.float64),
    }
    if not isinstance(acts, NamesReasons) or not causes:
        return out
    told, untold = acts.reasons(users, items), acts.reasons(*_uncaused(demo, split))
    named = {rule.relations: rule for rule in rules}
    leading = [
        {int(way[1]) for way in paths(graph, named[cause.relations], u, v)}
        for u, v, cause in zip(users.tolist(), items.tolist(), causes, strict=True)
    ]
    out |= _actions(told, causes, leading)
    return out | _reliability(told, causes, untold)


def _uncaused(demo: Demo, split: Split) -> tuple[Ints, Ints]:
    """Users and items of test purchases without a cause."""
    rows = split.test[demo.causes[split.test] < 0]
    events = split.dataset.interactions
    return events.users[rows], events.items[rows]


def _actions(
    told: Sequence[Sequence[NamedReason]], causes: Sequence[Path], leading: Sequence[set[int]]
) -> dict[str, Doubles]:
    """Whether the first reason is an action that the rule leads from, and whether the very one."""
    any_of, very = np.zeros(len(causes)), np.zeros(len(causes))
    for k, (reasons, cause) in enumerate(zip(told, causes, strict=True)):
        if reasons and reasons[0].relation == cause.relations[0]:
            any_of[k] = reasons[0].entity in leading[k]
            very[k] = reasons[0].entity == cause.entities[1]
    return {
        "recovered_action": any_of,
        "recovered_very_action": very,
        "recoverable_very_action": np.array([1 / len(entities) for entities in leading]),
    }


def _reliability(
    told: Sequence[Sequence[NamedReason]],
    causes: Sequence[Path],
    untold: Sequence[Sequence[NamedReason]],
) -> dict[str, Doubles]:
    """How often reasons are right that are said to be so likely, over all purchases; and that carry
    such a share of what speaks for a purchase, over those that have a cause."""
    speaking = [[r for r in own if r.contribution > 0] for own in (*told, *untold)]
    edges = [(cause.relations[0], cause.entities[1]) for cause in causes]
    right = [
        float((r.relation, r.entity) == edge)
        for own, edge in zip_longest(speaking, edges)
        for r in own
    ]
    likely = [r.confidence for own in speaking for r in own]
    totals = [sum(r.contribution for r in own) for own in speaking[: len(told)]]
    shares = [
        r.contribution / whole for own, whole in zip(speaking, totals, strict=False) for r in own
    ]
    caused = right[: len(shares)]
    return {
        "reliability_error": np.array([measures.reliability_error(likely, right)]),
        "share_error": np.array([measures.reliability_error(shares, caused)]),
        "reliability:told": np.array(likely),
        "reliability:right": np.array(right),
    }
