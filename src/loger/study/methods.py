"""The methods whose paths a study can put beside the model's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.faithfulness import RandomPaths
from loger.evaluation.methods import METHODS
from loger.graph import KnowledgeGraph, whole
from loger.model import LOGER
from loger.recommender import Explains, fit_for
from loger.rules import RuleSet, named_rules

RANDOM = "random"
"""Random valid paths for the model's own items."""
EXPLAINING = (RANDOM, "heteroembed", "kgat", "pgpr", "loger-paper")


def check_methods(names: Sequence[str]) -> None:
    """Refuse unknown methods, and those that show no paths."""
    for name in names:
        if name not in EXPLAINING:
            raise UnknownNameError("method that shows paths", name, EXPLAINING)


def of_bundles(folders: Sequence[Path]) -> dict[str, LOGER]:
    """The models of some bundles by name, or by folder where names are alike; all must know the
    same."""
    models = [LOGER.load(folder) for folder in folders]
    known = {whole(model.graph_).given.fingerprint for model in models}
    if len(known) > 1:
        raise LogerError(f"a study is about one data set; {len(known)} are in these bundles")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        raise LogerError(f"a study compares different models; got {', '.join(map(str, folders))}")
    return dict(zip(names, models, strict=True))


def all_rules(models: Iterable[LOGER], graph: KnowledgeGraph) -> RuleSet:
    """The rules of several models over relations of a graph, each once.

    Those over derived relations are left out, which another model need not have.
    """
    every = {rule.names: None for model in models for rule in model.rules_ if not rule.derived}
    return named_rules(graph, list(every))


def fitted_methods(
    names: Sequence[str],
    models: Mapping[str, LOGER],
    split: Split | None,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Explains]:
    """The models, and the named methods beside them, fitted on what the models know."""
    check_methods(names)
    methods: dict[str, Explains] = dict(models)
    first = next(iter(models.values()))
    for name in names:
        if name == RANDOM:
            graph = whole(first.graph_).given
            methods[name] = RandomPaths(first, graph, all_rules(models.values(), graph), seed)
        elif split is None:
            raise LogerError(f"{name} is fitted for the study; say on which data with --data PATH")
        else:
            made: Any = METHODS[name].make(seed)
            methods[name] = fit_for(made, split, progress=progress)
    return methods
