"""``loger compile``: compile all kernels ahead of time, and announce when kernels are compiled."""

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

COMPILING = "compiling kernels; this takes one to four minutes, but only after an installation"
KERNELS = logging.getLogger("loger.kernels")
"""Names every kernel that is compiled."""


class _Announcer(logging.Handler):
    """Announces the first kernel that is compiled, and keeps the names of all."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Announce the compilation, unless that was done."""
        if not self.silent and not self.names:
            click.echo(COMPILING, err=True)
        self.names.append(record.getMessage())


EXTRAS = ("scipy.linalg.cython_blas", "cffi", "coverage", "yaml")
"""Packages that numba imports if they are installed, for features that no answer needs: linear
algebra in kernels, calls of C code, coverage, and a settings file."""


def start_numba() -> None:
    """Start numba without its extras, in a process that only answers a question.

    Importing them takes a third of the time of a short command. Kernels with matrix products can't
    be compiled in this process afterwards, so a fit doesn't call this.
    """
    absent = [name for name in EXTRAS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: not importable
    try:
        from loger.engine.kernels import nothing

        nothing()
    finally:
        for name in absent:
            del sys.modules[name]


def announce() -> None:
    """From now on, announce when kernels are compiled, because that takes minutes."""
    KERNELS.handlers = [_Announcer()]
    KERNELS.setLevel(logging.INFO)


@click.command("compile", hidden=True)
def compile_kernels() -> None:
    """Compile all kernels now, so that later commands start faster.

    `make` does this when it installs loger. Kernels stay on disk until loger or numba changes.
    """
    start = time.perf_counter()
    KERNELS.handlers = [seen := _Announcer(silent=True)]
    with show.working("compiling"):
        _use_everything()
    seconds = f"in {time.perf_counter() - start:.0f} s"
    found = len(seen.names)
    click.echo(f"compiled {found} kernels {seconds}" if found else "all kernels are compiled")


def _use_everything() -> None:
    """Use everything once on little data: kernels are compiled for the types they meet."""
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
    """Settings for a fast fit that still uses every kernel."""
    return replace(
        config,
        mining=replace(config.mining, min_support=2),
        encoder=replace(config.encoder, dimension=8, epochs=1),
        reasoner=replace(config.reasoner, epochs=1),
    )


def _use(config: LOGERConfig, parts: Split, folder: Path) -> None:
    """Fit a model and use everything that commands, server and evaluation use."""
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
