"""Sphinx: ``make docs``."""

from loger import __version__

project = "loger"
copyright = "2026, the loger maintainers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"loger {release}"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["misc.highlighting_failure"]  # console blocks show excerpts
myst_heading_anchors = 3
