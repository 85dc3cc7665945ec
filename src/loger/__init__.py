"""Recommendations with reasons that are true.

``loger`` learns from interactions and a knowledge graph, recommends items, and shows the
actions, paths and logical rules that really produced each score::

    import loger

    split = loger.split(data)
    model = loger.LOGER(seed=0).fit(split)
    model.recommend("ann", k=10)
    model.explain("ann", "cup")
    loger.evaluate([model, loger.baselines.EASE()], split)

Everything here is loaded when it is first asked for, so that importing ``loger`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loger import baselines
    from loger.data import Dataset, Split, from_frames, load, split
    from loger.errors import LogerError
    from loger.evaluation.compare import compare
    from loger.evaluation.evaluate import evaluate
    from loger.explain.attribution import Explanation
    from loger.model import LOGER, LOGERConfig
    from loger.tables.table import from_tables

__version__ = "0.2.0"

_HOMES = {
    "LOGER": "loger.model",
    "LOGERConfig": "loger.model",
    "load": "loger.data",
    "from_frames": "loger.data",
    "from_tables": "loger.tables.table",
    "split": "loger.data",
    "Dataset": "loger.data",
    "Split": "loger.data",
    "evaluate": "loger.evaluation.evaluate",
    "compare": "loger.evaluation.compare",
    "Explanation": "loger.explain.attribution",
    "baselines": "loger.baselines",
    "LogerError": "loger.errors",
}
"""Where each name of the front door lives."""

__all__ = [
    "LOGER",
    "Dataset",
    "Explanation",
    "LOGERConfig",
    "LogerError",
    "Split",
    "baselines",
    "compare",
    "evaluate",
    "from_frames",
    "from_tables",
    "load",
    "split",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'loger' has no attribute {name!r}; it has {', '.join(_HOMES)}"
        )
    home = import_module(_HOMES[name])
    found = home if home.__name__ == f"loger.{name}" else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
