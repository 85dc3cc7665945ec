"""A short run of soak.py; the long one is `make torture`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("soak.py")


@pytest.mark.long
def test_a_server_outlives_attackers_and_damaged_bundles_and_stops_in_time() -> None:
    few = "--mix 3 --soak 8 --reload 3 --rate 10 --victims 5 --attackers 2 --users 60 --items 60"
    command = [sys.executable, str(SCRIPT), *few.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    answers = {status for who in ("victims", "attackers", "soak") for status in told[who]}
    assert answers <= {"2xx", "4xx"}, told  # no 5xx, and nobody was cut off
    assert set(told["victims"]) == {"2xx"} and told["soak"]["2xx"] > 20
    assert told["reloads"] >= 2 and told["after"] == "ok"
    assert told["stop_seconds"] <= 10
