"""A short run of fuzz_readers.py; the long one is `make fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz_readers.py")


@pytest.mark.slow
def test_readers_read_what_a_slow_reader_reads_or_refuse() -> None:
    command = [sys.executable, str(SCRIPT), "250", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert set(counts) <= {"same", "read", "refused", "seconds", "peak_mb"}, done.stderr
    assert counts["same"] + counts["read"] >= 125, "at least half of the inputs must parse"


def test_the_slow_reader_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    fuzz_readers = import_module("fuzz_readers")
    assert fuzz_readers.slow_pairs("csv", 'user,item\r\n"a,b",c\r\n') == {("a,b", "c")}
    assert fuzz_readers.slow_pairs("inter", "user_id:token\titem_id:token\nx\ty\n") == {("x", "y")}
