"""A short run of fuzz_readers.py; the long one is `make fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from loger.data.readers import Format

SCRIPT = Path(__file__).with_name("fuzz_readers.py")


@pytest.mark.long
def test_readers_read_what_a_slow_reader_reads_or_refuse() -> None:
    command = [sys.executable, str(SCRIPT), "250", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert set(counts) <= {"same", "read", "refused", "seconds", "peak_mb"}, done.stderr
    assert counts["same"] + counts["read"] >= 125, "at least half of the inputs must parse"


def test_the_slow_reader_is_one_of_its_own_and_knows_when_lines_are_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    slow_pairs = import_module("fuzz_readers").slow_pairs
    assert slow_pairs(b"user,item,time\nx,y,1\n", ",") == {("x", "y")}
    assert slow_pairs(b"user_id:token\titem_id:token\nx\ty\n", "\t") == {("x", "y")}
    for doubtful in (b'user,item\n"x,y\n', b"user,item\nx,y,z\n", b"user,item\n\xff,y\n"):
        assert slow_pairs(doubtful, ",") is None


def test_every_format_that_is_read_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    written = set(import_module("made_sets").WRITERS)
    # A saved data set is Parquet with checksums; hostile_bundles.py damages those.
    assert set(get_args(Format)) - written == {"saved"}
