"""A short run of fuzz_events.py; the long one is `make fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz_events.py")


@pytest.mark.long
def test_whatever_is_acknowledged_can_be_folded_and_is_what_a_replay_gives() -> None:
    command = [sys.executable, str(SCRIPT), "10", "7000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert "wrong" not in counts, done.stderr
    assert counts["folds"] >= 9 and counts["events 200"] >= 20
    assert not any(name.endswith((" 500", " 503")) for name in counts)
