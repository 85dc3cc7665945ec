"""``loger compile`` compiles all kernels, and loger reports compiling only when it happens."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.cli.precompile import COMPILING, KERNELS
from loger.data.demo import shop
from loger.data.splits import split
from loger.learning import derived
from loger.model import LOGER


@pytest.mark.long
def test_after_loger_compile_nothing_is_compiled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor by a fit of more items than are regressed on all others."""
    told = CliRunner().invoke(app, ["compile"])
    if "all kernels are compiled" not in told.stdout:
        assert told.exit_code == 0, told.output
        told = CliRunner().invoke(app, ["compile"])
    assert "all kernels are compiled" in told.stdout
    caplog.set_level(logging.INFO, KERNELS.name)
    caplog.clear()  # of what the first command compiled
    parts = split(shop(seed=1, users=60, items=60).dataset)
    for whole in (derived.WHOLE, 20):
        monkeypatch.setattr(derived, "WHOLE", whole)
        model = LOGER().fit(parts, progress=False)
    model.recommend(model.users[0], 3)
    assert caplog.records == []


def test_that_kernels_are_compiled_is_said_once() -> None:
    def compiles_two() -> None:
        KERNELS.info("compiling %s", "one")
        KERNELS.info("compiling %s", "two")

    app.command("compiles-two")(compiles_two)
    try:
        said = CliRunner().invoke(app, ["compiles-two"])
    finally:
        app.commands.pop("compiles-two")
    assert said.stderr.count(COMPILING) == 1


LEAN = """
import sys
from loger.cli.precompile import EXTRAS, start_numba
start_numba()
import numba
assert not {"scipy.linalg", *EXTRAS} & set(sys.modules)
import scipy.linalg.cython_blas  # for code that needs it
"""


def test_a_command_that_answers_starts_numba_without_its_extras() -> None:
    subprocess.run([sys.executable, "-c", LEAN], check=True)
