"""One self-contained HTML file with the results of an evaluation; no script, no network."""

from loger.evaluation.report.page import Contents, page

__all__ = ["Contents", "page"]
