"""A short run of hostile_bundles.py; the long one is `make torture`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("hostile_bundles.py")


@pytest.mark.slow
def test_no_damaged_or_forged_bundle_crashes_or_changes_a_list_silently() -> None:
    command = [sys.executable, str(SCRIPT), "120", "7000000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert set(counts) - {"seconds"} == {"refused", "loaded"}, done.stderr
    assert counts["refused"] > 50
    assert counts["loaded"] > 10  # else nothing was tried beyond the checks
