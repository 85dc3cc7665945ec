"""Run the tests and report how much of the source they ran; less than required is a failure.

    python scripts/line_coverage.py 90 -n 2 -m "not long"     at least 90%; the rest goes to pytest

Each worker of pytest counts for itself (tests/measured.py); this script adds up the counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import slipcover

SHOWN = 10
"""How many files are listed: those with the most lines that no test runs."""


def main() -> int:
    """Run pytest with the given arguments; return its exit code, or 1 if it ran too few lines."""
    limit, *arguments = sys.argv[1:]
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", *arguments]
        ended = subprocess.run(command, env=os.environ | {"LOGER_COVERAGE": folder}).returncode
        counts = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("gw*.json"))]
        counts = counts or [json.loads((Path(folder) / "main.json").read_text())]
    if ended:
        return ended
    every, *others = counts
    for other in others:
        slipcover.merge_coverage(every, other)
    share = float(every["summary"]["percent_covered"])
    files = sorted(every["files"].items(), key=lambda item: -len(item[1]["missing_lines"]))
    print("lines that no test runs, most first:")
    for name, of_file in files[:SHOWN]:
        of_file_share = of_file["summary"]["percent_covered"]
        print(f"  {len(of_file['missing_lines']):4d}  {of_file_share:5.1f}%  {name}")
    print(f"coverage: {share:.1f}% of lines; at least {limit}% required")
    return int(share < float(limit))


if __name__ == "__main__":
    sys.exit(main())
