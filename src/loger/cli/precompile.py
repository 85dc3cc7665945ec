"""``loger compile``: compile all kernels before they are needed, and say so where that happens."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loger.cli import show

if TYPE_CHECKING:
    from loger.config import LOGERConfig
    from loger.data.splits import Split

COMPILING = "compiling kernels, once after an install or update: one to four minutes"
KERNELS = logging.getLogger("loger.kernels")
"""Names every kernel that is compiled."""


class _Announcer(logging.Handler):
    """Tells a person, the first time, that kernels are compiled; and keeps their names."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it was said."""
        if not self.silent and not self.names:
            click.echo(COMPILING, err=True)
        self.names.append(record.getMessage())


EXTRAS = ("scipy.linalg.cython_blas", "cffi", "coverage", "yaml")
"""Packages that numba imports if they are there: for products of matrices and solvers in kernels,
calls of C, coverage of compiled code, and a file of settings."""


def start_numba() -> None:
    """Make numba ready without its extras, in a process that only answers a question.

    No kernel that answers needs them, and to import them takes a third of the whole command. In
    this process no kernel with products of matrices can be compiled afterwards, so a fit does
    without this.
    """
    absent = [name for name in EXTRAS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: there is no such one
    try:
        from loger.engine.kernels import nothing

        nothing()
    finally:
        for name in absent:
            del sys.modules[name]


def announce() -> None:
    """From now on, say so when kernels are compiled: it takes long, and happens only once."""
    KERNELS.handlers = [_Announcer()]
    KERNELS.setLevel(logging.INFO)


@click.command("compile", hidden=True)
def compile_kernels() -> None:
    """Compile all kernels now, so that no later command has to.

    Installing with make does this. Kernels are kept on disk until loger or numba changes.
    """
    start = time.perf_counter()
    KERNELS.handlers = [seen := _Announcer(silent=True)]
    with show.working("compiling"):
        _use_everything()
    seconds = f"in {time.perf_counter() - start:.0f} s"
    found = len(seen.names)
    click.echo(f"{found} kernels compiled {seconds}" if found else "all kernels are compiled")


def _use_everything() -> None:
    """Do what people do, once and on little: kernels are compiled for the types that they meet."""
    from tempfile import TemporaryDirectory

    from loger.baselines.slim import LocalSLIM
    from loger.config import LOGERConfig
    from loger.data.demo import shop
    from loger.data.splits import split
    from loger.logic.config import DerivedConfig

    parts = split(shop(users=60, items=60).dataset)
    LocalSLIM(candidates=20).fit(parts)  # as fits do where items are many
    for config in (LOGERConfig(derived=DerivedConfig()), LOGERConfig.paper(rounds=1)):
        with TemporaryDirectory() as folder:
            _use(_small(config), parts, Path(folder) / "bundle")


def _small(config: LOGERConfig) -> LOGERConfig:
    """Settings of which only the kernels matter, not what is learned."""
    return replace(
        config,
        mining=replace(config.mining, min_support=2),
        encoder=replace(config.encoder, dimension=8, epochs=1),
        reasoner=replace(config.reasoner, epochs=1, batch=128),
    )


def _use(config: LOGERConfig, parts: Split, folder: Path) -> None:
    """Fit a model and ask it all that commands, server and evaluation ask."""
    import numpy as np

    from loger.engine import LocalEngine
    from loger.evaluation.assess import assess
    from loger.model import LOGER

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
