"""Tasks for raters: a user's historical paths beside those that methods show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loger.errors import LogerError
from loger.graph import Graph, Path, history
from loger.reasoner.search import random_paths
from loger.recommender import ExplainedItem, Explains
from loger.rules import RuleSet
from loger.rules.sentences import path_sentence
from loger.study.store import Task

DEPTH = 100
"""How far down its list a method is asked for paths, where the first items have too few."""


def make_tasks(
    methods: Mapping[str, Explains],
    graph: Graph,
    rules: RuleSet,
    n: int = 20,
    paths: int = 10,
    past: int = 50,
    seed: int = 0,
) -> list[Task]:
    """Tasks for n users drawn at random among those for whom every method has paths to show.

    ``paths`` of each method are those of its best items, one of each; ``past`` of the history
    are drawn among paths of the rules between the user and the items it has.
    """
    if len(methods) < 2:
        raise LogerError(f"a study compares two methods or more, got {list(methods)}")
    rng = np.random.default_rng([seed, 0x57D1])
    order = rng.permutation(graph.n_users)
    # Relations are numbered by graph, and a model's own may have derived ones.
    graphs = {name: getattr(method, "graph_", graph) for name, method in methods.items()}
    tasks: list[Task] = []
    for lo in range(0, len(order), 2 * n):
        users = order[lo : lo + 2 * n]
        lists = {name: method.explained(users, DEPTH) for name, method in methods.items()}
        for row, user in enumerate(users.tolist()):
            shown = {name: _first(items[row], paths) for name, items in lists.items()}
            before = _past(graph, rules, user, past, seed)
            if len(tasks) < n and before and all(shown.values()):
                tasks.append(_task(graph, user, before, shown, graphs, seed))
        if len(tasks) == n:
            return tasks
    if not tasks:
        raise LogerError("no user has paths of every method; compare methods that show more paths")
    return tasks


def _task(
    graph: Graph,
    user: int,
    past: list[Path],
    shown: dict[str, list[Path]],
    graphs: Mapping[str, Graph],
    seed: int,
) -> Task:
    """Sentences for paths, and the methods in an order of this user's own."""
    names = sorted(shown)
    order = np.random.default_rng([seed, 0x0DE2, user]).permutation(len(names))
    return Task(
        graph.vocabulary.labels[user],
        tuple(path_sentence(graph, path) for path in past),
        tuple(
            (names[k], tuple(path_sentence(graphs[names[k]], path) for path in shown[names[k]]))
            for k in order.tolist()
        ),
    )


def _first(items: list[ExplainedItem], n: int) -> list[Path]:
    """The best path of each of the first items that have one."""
    return [item.paths[0] for item in items if item.paths][:n]


def _past(graph: Graph, rules: RuleSet, user: int, n: int, seed: int) -> list[Path]:
    """Paths of the rules to items that the user has: up to n of each item, n of these drawn."""
    _, items = history(graph, np.array([user]))
    rng = np.random.default_rng([seed, 0x9A57, user])
    drawn = random_paths(graph, rules, user, items, n, rng) if len(items) else []
    every = [path for some in drawn for path in some]
    chosen = rng.permutation(len(every))[:n]
    return [every[k] for k in sorted(chosen.tolist())]
