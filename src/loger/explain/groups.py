"""Which actions are shown as reasons, and which of them together as one reason.

Up to five actions are shown, enough to carry 80% of what all actions contribute. In a long history,
five actions may not be enough. Then actions that share their main evidence become one reason, such
as six films by the same director. A group's contribution is exact, because contributions add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from loger.explain.by_action import ENOUGH, MAX_SHOWN, Attribution
from loger.graph import INTERACTION, Graph
from loger.graph.arrays import Doubles
from loger.ranking.ranker import Ranker
from loger.rules import Rule
from loger.rules.sentences import is_company
from loger.rules.wording import FEW, alike_by

MAX_CANDIDATES = 40
"""Number of largest actions among which to look for groups."""


class Cell(NamedTuple):
    """What one of the user's edges contributes by one rule, with the strongest paths."""

    edge: int
    place: int
    """Of the rule."""
    n: int
    """Number of paths of the rule that begin with the edge."""
    gives: float
    between: list[list[int]]  # [paths, 2]: the entities between the ends, -1 for none
    shares: list[float]  # [paths]


Claim = tuple[str | int, int]
"""Evidence that a group's actions may share: "close" (the encoder), "next" (the sequence encoder)
or the place of a rule; and the fact that their items share with the item, -1 if there is none."""
CLOSE, NEXT, NOT_SHARED = ("close", -1), ("next", -1), ("", -1)


def candidates(parts: Attribution) -> list[int]:
    """The edges that may be shown, the largest total first: up to five if they carry enough,
    otherwise up to ``MAX_CANDIDATES``.

    An edge that only counts against items, such as a dislike, is none of them: its total is above 0
    where it counts less against the item than against the mean item.
    """
    totals = parts.actions
    order = np.argsort(-totals, kind="stable")[:MAX_CANDIDATES]
    order = order[(np.minimum(totals, totals + parts.mean_rules) > 0)[order]]
    enough = np.flatnonzero(np.cumsum(totals[order[:MAX_SHOWN]]) >= ENOUGH * totals.sum())
    return order[: enough[0] + 1 if len(enough) else None].tolist()  # type: ignore[no-any-return]


def reason_groups(
    ranker: Ranker, item: int, parts: Attribution, edges: Sequence[int], cells: Sequence[Cell]
) -> list[tuple[int, ...]]:
    """The shown reasons of one item, each as its edges, the largest reason first.

    ``edges`` are the candidates and ``cells`` their evidence. As many of the largest actions as
    possible stand alone, as long as groups can carry the rest of the 80%. A group has no more
    actions than that takes, so it never stands for the rest of a history.
    """
    totals, enough = parts.actions, ENOUGH * float(parts.actions.sum())
    best: list[tuple[int, ...]] = [(edge,) for edge in edges[:MAX_SHOWN]]
    if len(edges) <= MAX_SHOWN:
        return best
    claims = _main_claims(ranker, item, parts, edges, cells)
    carried = float(totals[edges[:MAX_SHOWN]].sum())
    for alone in range(MAX_SHOWN - 1, -1, -1):
        groups = _grouped(edges, alone, claims, totals)
        gives = float(sum(totals[list(group)].sum() for group in groups))
        if gives > carried:
            best, carried = groups, gives
        if gives >= enough:
            break
    kept, given = set[int](), 0.0
    for edge in sorted((edge for group in best for edge in group), key=lambda e: -totals[e]):
        if given >= enough:
            break
        kept.add(edge)
        given += float(totals[edge])
    trimmed = [tuple(edge for edge in group if edge in kept) for group in best]
    return sorted(filter(None, trimmed), key=lambda group: -totals[list(group)].sum())


def _grouped(
    edges: Sequence[int], alone: int, claims: Mapping[int, Claim], totals: Doubles
) -> list[tuple[int, ...]]:
    """The first edges alone, and the largest groups of the others, five in all."""
    groups: dict[Claim | int, list[int]] = {}
    for edge in edges[alone:]:
        groups.setdefault(claims.get(edge, edge), []).append(edge)
    largest = sorted(groups.values(), key=lambda group: -totals[group].sum())
    rest = [tuple(group) for group in largest[: MAX_SHOWN - alone]]
    return [*((edge,) for edge in edges[:alone]), *rest]


def _main_claims(
    ranker: Ranker, item: int, parts: Attribution, edges: Sequence[int], cells: Sequence[Cell]
) -> dict[int, Claim]:
    """The main evidence of each edge, if it can be said of several actions at once."""
    given: dict[int, list[tuple[float, Claim]]] = {
        edge: [(float(parts.encoder[edge]), CLOSE), (float(parts.sequence[edge]), NEXT)]
        for edge in edges
    }
    this = item + ranker.graph.n_users
    for cell in cells:
        rule, whole = ranker.logic.rules[cell.place], cell.gives
        if rule.relations[0] == INTERACTION and rule.shares_fact:
            given[cell.edge] += [
                (whole * share, (cell.place, nodes[1]))
                for nodes, share in zip(cell.between, cell.shares, strict=True)
            ]
        else:
            said = sayable(ranker.graph, rule, cell.n, (cell.between[0][0], this))
            given[cell.edge].append((whole, (cell.place, -1) if said else NOT_SHARED))
    best = {edge: max(own, key=lambda one: one[0]) for edge, own in given.items()}
    return {edge: claim for edge, (most, claim) in best.items() if most > 0 and claim != NOT_SHARED}


def sayable(graph: Graph, rule: Rule, n: int, ends: tuple[int, int]) -> bool:
    """Whether a rule's evidence for one action can be said of several: each leads directly to the
    item, or enough people took both. ``ends`` are the action's item and the item."""
    if rule.relations[0] != INTERACTION:
        return False
    if len(rule) == 2 and not rule.derived:
        return rule.types[1] == "item" and not alike_by(rule.names[1])
    return people_behind(graph, rule, n, ends) >= FEW


def people_behind(graph: Graph, rule: Rule, n: int, ends: tuple[int, int]) -> int:
    """The number of people that a rule counts for an action: those behind a derived fact, or those
    on its n paths; 0 if it counts none."""
    if rule.derived:
        return graph.people(ends[0], rule.relations[1], ends[1]) if len(rule) == 2 else 0
    return n if is_company(rule) else 0
