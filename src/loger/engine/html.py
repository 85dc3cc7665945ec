"""Small pieces of HTML for notebooks; all texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> table(["item"], [["<mug>"]])
    '<table><tr><th>item</th></tr><tr><td>&lt;mug&gt;</td></tr></table>'
    """
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def bar(share: float, width: int = 120) -> str:
    """A bar as long as a share of the width; what counts against is drawn in another colour."""
    length = round(min(abs(share), 1.0) * width)
    colour = "#4a7dbd" if share >= 0 else "#c0504d"
    style = f"display:inline-block;height:0.7em;width:{length}px;background:{colour}"
    return f'<span style="{style}"></span>'


def _row(tag: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"
