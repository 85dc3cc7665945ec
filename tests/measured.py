"""Counts the lines of ``src`` that tests run, if ``LOGER_COVERAGE`` names a folder for the counts.

``tests/conftest.py`` imports this module before anything from loger, in every worker.
``scripts/line_coverage.py`` adds up the counts of all workers. (SlipCover's own support for xdist
sometimes loses the counts and reports 0%.)
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import slipcover

ROOT = Path(__file__).resolve().parents[1]
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
FOLDER = os.environ.get("LOGER_COVERAGE")
if WORKER != "main":
    os.environ.pop("LOGER_COVERAGE", None)  # processes that tests start do not count

_counted: slipcover.Slipcover | None = None
if FOLDER:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = tomllib.loads(text)["tool"]["slipcover"]
    source, omit = ([str(ROOT / path) for path in asked[name]] for name in ("source", "omit"))
    _counted = slipcover.Slipcover(source=source, omit=omit, exclude_also=asked["exclude-also"])
    files = slipcover.FileMatcher(sources=source, omit=omit)
    slipcover.ImportManager(_counted, files).__enter__()  # until the process ends


def write() -> None:
    """Write what this process counted, if it counts."""
    if _counted and FOLDER:
        text = json.dumps(_counted.get_coverage())
        (Path(FOLDER) / f"{WORKER}.json").write_text(text, encoding="utf-8")
