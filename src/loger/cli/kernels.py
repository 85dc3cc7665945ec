"""All kernels compiled ahead, so that no later command waits for it.

Kernels are compiled for the types they meet, so this does what people do, once and on little: fit a
model, the paper's as well, keep it, open it and ask it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from loger.baselines.slim import LocalSLIM
from loger.config import LOGERConfig
from loger.data.demo import shop
from loger.data.splits import Split, split
from loger.engine import LocalEngine
from loger.engine.kernels import log
from loger.evaluation.assess import assess
from loger.learning.config import DerivedConfig
from loger.model import LOGER


def precompile() -> list[str]:
    """Compile whatever is not kept on disk yet; the kernels that were compiled."""
    notes = _Notes()
    level = log.level
    log.addHandler(notes)
    log.setLevel(logging.INFO)
    try:
        parts = split(shop(users=60, items=60).dataset)
        LocalSLIM(candidates=20).fit(parts)  # as fits do where items are many
        for config in (LOGERConfig(derived=DerivedConfig()), LOGERConfig.paper(rounds=1)):
            with TemporaryDirectory() as folder:
                _used(_small(config), parts, Path(folder) / "bundle")
    finally:
        log.removeHandler(notes)
        log.setLevel(level)
    return notes.names


class _Notes(logging.Handler):
    """Keeps the names of the kernels that the log tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one name."""
        self.names.append(str(record.args[0]) if isinstance(record.args, tuple) else "")


def _small(config: LOGERConfig) -> LOGERConfig:
    """Settings of which only the kernels matter, not what is learned."""
    return replace(
        config,
        mining=replace(config.mining, min_support=2),
        encoder=replace(config.encoder, dimension=8, epochs=1),
        reasoner=replace(config.reasoner, epochs=1, batch=128),
    )


def _used(config: LOGERConfig, parts: Split, folder: Path) -> None:
    """Fit a model and ask it all that commands, server and evaluation ask."""
    LOGER(config).fit(parts, progress=False).save(folder)
    model = LOGER.load(folder)
    users = np.arange(3)
    model.explained(users, 5, paths=2)
    best = model.recommend(model.users[0], 5)["item"].to_list()
    model.explain(model.users[0], best[0], 2)
    model.why_not(model.users[0], best[-1], 1)
    model.counterfactual(model.users[0], best[0], 5)
    owned = model.owned(model.users[0])
    model.what_if(model.users[0], owned[:1], best[:1], 5)
    assess(model, parts, (), faithful_users=3, samples=10, engine=LocalEngine(1))
