"""Tasks for raters: the paths of a user's history, and those that several methods show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loger.engine import Progress, silent
from loger.errors import LogerError, UnknownNameError
from loger.graph import Graph, KnowledgeGraph, history, whole
from loger.graph import Path as GraphPath
from loger.reasoner.search import random_paths
from loger.recommender import ExplainedItem, Explains, fit_for
from loger.rules import RuleSet, named_rules
from loger.rules.sentences import path_sentence
from loger.study.store import Task

if TYPE_CHECKING:
    from loger.data.splits import Split
    from loger.model import LOGER

RANDOM = "random"
"""Random valid paths for the model's own items."""
EXPLAINING = (RANDOM, "heteroembed", "kgat", "pgpr", "loger-paper")
"""The methods that a study can compare the model with: those that show paths."""
DEPTH = 100
"""The length of the lists in which methods look for items with paths."""


def make_tasks(
    methods: Mapping[str, Explains],
    graph: Graph,
    rules: RuleSet,
    n: int = 20,
    paths: int = 10,
    past: int = 50,
    seed: int = 0,
) -> list[Task]:
    """Tasks for n random users for whom every method has paths to show.

    Each method shows one path for each of its best items, up to ``paths``. The history has up to
    ``past`` random paths of the rules from the user to items that they have.
    """
    if len(methods) < 2:
        raise LogerError(f"a study needs at least two methods, got {list(methods)}")
    rng = np.random.default_rng([seed, 0x57D1])
    order = rng.permutation(graph.n_users)
    # Each graph numbers its relations itself, and a model's graph may have derived ones.
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
        raise LogerError("no user has paths by every method; choose methods that show more paths")
    return tasks


def _task(
    graph: Graph,
    user: int,
    past: list[GraphPath],
    shown: dict[str, list[GraphPath]],
    graphs: Mapping[str, Graph],
    seed: int,
) -> Task:
    """A task with sentences for paths, and the methods in a random order."""
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


def _first(items: list[ExplainedItem], n: int) -> list[GraphPath]:
    """The best path of each of the first items that have one."""
    return [item.paths[0] for item in items if item.paths][:n]


def _past(graph: Graph, rules: RuleSet, user: int, n: int, seed: int) -> list[GraphPath]:
    """n random paths of the rules to items that the user has, of up to n for each item."""
    _, items = history(graph, np.array([user]))
    rng = np.random.default_rng([seed, 0x9A57, user])
    drawn = random_paths(graph, rules, user, items, n, rng) if len(items) else []
    every = [path for some in drawn for path in some]
    chosen = rng.permutation(len(every))[:n]
    return [every[k] for k in sorted(chosen.tolist())]


# ── the methods to compare ──────────────────────────────────────────────────────────────


def check_methods(names: Sequence[str]) -> None:
    """Refuse unknown methods and those that show no paths."""
    for name in names:
        if name not in EXPLAINING:
            raise UnknownNameError("method that shows paths", name, EXPLAINING)


def of_bundles(folders: Sequence[Path]) -> dict[str, LOGER]:
    """The models of some bundles by name, or by folder if names repeat. All must have the same
    data."""
    from loger.model import LOGER

    models = [LOGER.load(folder) for folder in folders]
    known = {whole(model.graph_).given.fingerprint for model in models}
    if len(known) > 1:
        raise LogerError(
            f"all bundles in a study need the same data set, got {len(known)} different ones"
        )
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        raise LogerError(f"a study needs different models, got {', '.join(map(str, folders))}")
    return dict(zip(names, models, strict=True))


def all_rules(models: Iterable[LOGER], graph: KnowledgeGraph) -> RuleSet:
    """The rules of several models, each once, without those over derived relations, which other
    models needn't have."""
    every = {rule.names: None for model in models for rule in model.rules_ if not rule.derived}
    return named_rules(graph, list(every))


def fitted_methods(
    names: Sequence[str],
    models: Mapping[str, LOGER],
    split: Split | None,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Explains]:
    """The models, and the named methods fitted on the same data."""
    from loger.evaluation.faithfulness import RandomPaths
    from loger.evaluation.methods import METHODS

    check_methods(names)
    methods: dict[str, Explains] = dict(models)
    first = next(iter(models.values()))
    for name in names:
        if name == RANDOM:
            graph = whole(first.graph_).given
            methods[name] = RandomPaths(first, graph, all_rules(models.values(), graph), seed)
        elif split is None:
            raise LogerError(f"{name} must be fitted first; pass the data set with --data PATH")
        else:
            made: Any = METHODS[name].make(seed)
            methods[name] = fit_for(made, split, progress=progress)
    return methods
