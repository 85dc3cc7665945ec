"""Explanations as HTML, for notebooks: sentences, bars, and the paths as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from loger.engine.html import bar, table
from loger.explain.reasons import PathPart
from loger.graph import INVERSE_MARK

if TYPE_CHECKING:
    from loger.explain.attribution import Explanation
    from loger.explain.questions import WhatIf, WhyNot
    from loger.explain.reasoned import Reasoned

COLUMN, LINE, MARGIN = 190, 34, 12
"""Pixels between the hops of a path and between the entities of a column, and around it all."""
SHOWN_PATHS = 6


def explanation_html(e: Explanation) -> str:
    """An explanation: its reasons with bars, then their strongest paths."""
    labels, say = e.graph.vocabulary.shown, e.words.text
    label, user = f"<b>{escape(labels[e.item + e.graph.n_users])}</b>", escape(labels[e.user])
    head = say("heading", item=label, user=user, rank=f"{e.rank:,}", lead=f"{e.lead:+.3f}")
    rows = [(r.share, r.total, say("because", reason=r.text)) for r in e.shown]
    rows.append((e.appeal / e.lead if e.lead else 0.0, e.appeal, say("appeal")))
    lines = "".join(
        f"<tr><td>{bar(share)}</td><td>{total:+.3f}</td>"
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for share, total, text in rows
    )
    best = [path for reason in e.shown for path in reason.paths[:2]][:SHOWN_PATHS]
    likely = f"<p>{escape(e.likely_text)}</p>" if e.likely_text else ""
    return f"<div><p>{head}</p><table>{lines}</table>{likely}{picture(best)}</div>"


def reasoned_html(e: Reasoned) -> str:
    """The paths that the reasoner found, or that it found none."""
    words, first = e.ranker.graph.vocabulary, e.ranker.graph.n_users
    head = f"<b>{escape(words.shown[e.item + first])}</b> for {escape(words.shown[e.user])}"
    texts = e.sentences() or [e.because()]
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    paths = picture([one.part for one in e.paths[:SHOWN_PATHS]])
    return f"<div><p>{head}: rank {e.rank:,}, by the reasoner</p><ul>{lines}</ul>{paths}</div>"


def why_not_html(question: WhyNot) -> str:
    """What keeps an item out of a list, and its explanation."""
    text = escape(str(question)).replace("\n", "<br/>")
    return f"<div><p>{text}</p>{explanation_html(question.explanation)}</div>"


def what_if_html(answer: WhatIf) -> str:
    """Two lists side by side."""
    labels, first = answer.graph.vocabulary.shown, answer.graph.n_users
    before, after = ([labels[v + first] for v in ids] for ids in (answer.before, answer.after))
    rows = [
        (str(k + 1), *(names[k] if k < len(names) else "" for names in (before, after)))
        for k in range(max(len(before), len(after)))
    ]
    return table(["", "as it is", "what if"], rows)


def picture(paths: Sequence[PathPart]) -> str:
    """Paths as an SVG picture: entities in columns, the wider a line the more the path gives."""
    if not paths:
        return ""
    words = paths[0].graph.vocabulary
    columns: list[list[int]] = [[] for _ in range(max(len(p.path) for p in paths) + 1)]
    for part in paths:  # the last entity of all paths is the item, in the last column
        for k, entity in enumerate(part.path.entities):
            column = columns[-1 if k == len(part.path) else k]
            if entity not in column:
                column.append(entity)
    place = {
        (k, entity): (MARGIN + k * COLUMN, MARGIN + LINE // 2 + row * LINE)
        for k, column in enumerate(columns)
        for row, entity in enumerate(column)
    }
    most = max(part.contribution for part in paths)
    lines = "".join(_line(part, place, len(columns) - 1, most) for part in paths)
    texts = "".join(
        f'<text x="{x}" y="{y + 4}" font-size="11">{escape(_short(words.shown[entity]))}</text>'
        for (_, entity), (x, y) in place.items()
    )
    width = 2 * MARGIN + len(columns) * COLUMN
    height = 2 * MARGIN + LINE * max(map(len, columns))
    return f'<svg width="{width}" height="{height}" role="img">{lines}{texts}</svg>'


def _line(
    part: PathPart, place: dict[tuple[int, int], tuple[int, int]], last: int, most: float
) -> str:
    """One path; what each hop is shows when the mouse is over it."""
    stops = [
        place[(last if k == len(part.path) else k, entity)]
        for k, entity in enumerate(part.path.entities)
    ]
    width = 1 + 4 * max(part.contribution, 0) / most if most > 0 else 1
    out = []
    for (x0, y0), (x1, y1), name in zip(stops, stops[1:], _names(part), strict=False):
        title = f"<title>{escape(name)}</title>"
        style = f'stroke="#9ab" stroke-width="{width:.1f}"'
        out.append(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" {style}>{title}</line>')
    return "".join(out)


def _names(part: PathPart) -> list[str]:
    return [part.graph.relation_name(r).removesuffix(INVERSE_MARK) for r in part.path.relations]


def _short(label: str) -> str:
    return label if len(label) <= 26 else label[:25] + "…"
