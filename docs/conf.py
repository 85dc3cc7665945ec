"""Sphinx: ``make docs``."""

import sys
from pathlib import Path
from typing import Any

from loger import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for generated.py

project = "loger"
copyright = "2026, the loger maintainers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
html_theme = "furo"
html_title = f"loger {release}"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["misc.highlighting_failure"]  # console blocks show excerpts
myst_heading_anchors = 3
smartquotes = False


def _plain_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Bars in docstrings, as in |T_u|, are formulas and not reStructuredText's substitutions."""
    lines[:] = [line if "``" in line else line.replace("|", r"\|") for line in lines]


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("autodoc-process-docstring", _plain_bars)
