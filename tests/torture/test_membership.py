"""A short run of membership.py, whose figures are in docs/how-to/privacy.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("membership.py")


@pytest.mark.long
def test_the_attack_finds_more_than_a_model_without_the_purchases_predicts() -> None:
    few = "--users 150 --items 120 --people 50 --epochs 3 --known 3"
    command = [sys.executable, str(SCRIPT), *few.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["3 known"]
    for question in ("explain", "people", "why-not", "what-if"):
        assert found[f"{question}, with"] > found[f"{question}, without"] + 0.05, found
