"""Say how much of the source the tests ran, and whether that is enough.

    python -m slipcover --json --out FILE -m pytest -n 2
    python scripts/coverage.py FILE 90

SlipCover's own report and limit do not go together: the limit uses up what the workers measured,
and the report then shows the main process alone. At times it loses what the workers measured all
the same, by a cause not found yet (the whole suite, SlipCover 1.1.0: 0.0 %), so too little is said
and does not fail.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SHOWN = 10
"""So many files are named, those with the most lines that no test runs."""


def main() -> None:
    """Print the summary, beside the given share of lines."""
    measured = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    limit, share = float(sys.argv[2]), float(measured["summary"]["percent_covered"])
    files = sorted(measured["files"].items(), key=lambda item: -len(item[1]["missing_lines"]))
    print("lines that no test runs, most first:")
    for name, of_file in files[:SHOWN]:
        of_file_share = of_file["summary"]["percent_covered"]
        print(f"  {len(of_file['missing_lines']):4d}  {of_file_share:5.1f} %  {name}")
    print(f"coverage {share:.1f} % of lines; at least {limit:g} % is asked for")
    if share < limit:
        print("too little, or SlipCover lost what the workers measured: look before you trust it")


if __name__ == "__main__":
    main()
