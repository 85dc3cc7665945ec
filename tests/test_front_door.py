"""``import loger``: a dozen names, loaded when needed, that lead to everything else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import loger


def test_every_name_of_the_front_door_is_there() -> None:
    assert set(loger.__all__) <= set(dir(loger))
    for name in loger.__all__:
        assert getattr(loger, name).__doc__, name


def test_the_front_door_shows_nothing_else() -> None:
    assert set(dir(loger)) - set(loger.__all__) == {"__version__"}


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'recommend'; it has LOGER, "):
        loger.recommend  # noqa: B018


def test_help_shows_how_to_begin() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import loger; help(loger)"], capture_output=True, text=True
    ).stdout
    assert "model = loger.LOGER(seed=0).fit(split)" in shown
