"""The methods whose paths a study can put beside the model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loger.data.splits import Split
from loger.engine import Progress, silent
from loger.errors import UnknownNameError
from loger.evaluation.faithfulness import RandomPaths
from loger.evaluation.methods import METHODS
from loger.evaluation.recommender import Explains, fit_for
from loger.model import LOGER

RANDOM = "random"
"""Random valid paths for the model's own items."""
EXPLAINING = (RANDOM, "heteroembed", "kgat", "pgpr", "loger-paper")


def check_methods(names: Sequence[str]) -> None:
    """Refuse unknown methods, and those that show no paths."""
    for name in names:
        if name not in EXPLAINING:
            raise UnknownNameError("method that shows paths", name, EXPLAINING)


def fitted_methods(
    names: Sequence[str], model: LOGER, split: Split, seed: int = 0, progress: Progress = silent
) -> dict[str, Explains]:
    """The model as "loger", and the named methods beside it, fitted on what the model knows."""
    check_methods(names)
    methods: dict[str, Explains] = {"loger": model}
    for name in names:
        if name == RANDOM:
            methods[name] = RandomPaths(model, model.graph_, model.rules_, seed)
        else:
            made: Any = METHODS[name].make(seed)
            methods[name] = fit_for(made, split, progress=progress)
    return methods
