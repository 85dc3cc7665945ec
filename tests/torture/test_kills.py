"""A short run of kills.py; the long one is `make torture`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kills.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: the models that are saved and updated in it are fitted once."""
    return tmp_path_factory.mktemp("kills")


@pytest.mark.long
@pytest.mark.parametrize(
    ("few", "name", "ways"),
    [
        ("3", "save", ["kill", "full", "readonly", "short", "twice"]),
        ("2", "study", ["kill", "short"]),
        ("2", "update", ["kill", "full"]),
    ],
)
def test_whatever_goes_wrong_at_a_write_point_loses_nothing_and_the_command_goes_on(
    folder: Path, few: str, name: str, ways: list[str]
) -> None:
    command = [sys.executable, str(SCRIPT), few, name, "--folder", str(folder), "--ways", *ways]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = json.loads(done.stdout.splitlines()[-1])[name]
    for way in ways:
        found = results[way]
        assert found.pop("tried") >= 2, done.stderr
        assert set(found.values()) == {0}, (way, found, done.stderr)
