"""One self-contained HTML file that says what an evaluation found; no script, no network."""

from loger.evaluation.report.page import Contents, page

__all__ = ["Contents", "page"]
