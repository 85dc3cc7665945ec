"""Explanations for people: as text, in a notebook, on the command line, in a report.

``rows`` is the only function that splits an item's lead into lines. Every rendering shows these
lines, so every rendering adds up: mean item + Σ rows = score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from loger.engine.progress import bar, table
from loger.explain.reasons import PathPart
from loger.graph import INVERSE_MARK
from loger.rules.sentences import hidden
from loger.rules.wording import ENGLISH, Wording

if TYPE_CHECKING:
    from loger.explain.attribution import Explanation
    from loger.explain.questions import WhatIf, WhyNot
    from loger.explain.reasoned import Reasoned

ROUNDING = 1e-9
"""A smaller rest of a lead is rounding error, not other actions."""
SMALLEST = 0.0005
"""Other actions are left out if they would be shown as 0.000."""
COLUMN, LINE, MARGIN = 190, 34, 12
"""Pixels between the hops of a path, between the entities of a column, and around the picture."""
SHOWN_PATHS = 6


class Row(NamedTuple):
    """One line of what an item's lead is made of (``record.RowRecord``)."""

    kind: str
    """reason, others, appeal or opaque."""
    label: str
    contribution: float
    share: float
    """Its share of the lead; 0 if there is no lead."""

    def sentence(self, words: Wording = ENGLISH) -> str:
        """The label in a list of rows, where reasons begin with "because" in the style debug."""
        return words.text("because", reason=self.label) if self.kind == "reason" else self.label


def rows(record: Mapping[str, Any], words: Wording = ENGLISH) -> list[Row]:
    """The parts of the lead of an ``ExplanationRecord``; their contributions add up to it.

    The record's reasons come first, then all other actions together, then the item's general appeal
    and, if it can't be split by action, the encoder. ``record`` is what ``Explanation.as_dict``
    returns, and ``words`` sets the language.
    """
    reasons = [("reason", part["text"], part["total"]) for part in record["reasons"]]
    say = words.text
    appeal = say("appeal_expected" if record["expected"] else "appeal")
    ends = [("appeal", words.line(appeal), record["appeal"])]
    if record["opaque"]:
        ends.append(("opaque", words.line(say("opaque")), record["opaque"]))
    lead = record["lead"]
    rest = lead - sum(value for *_, value in [*reasons, *ends])
    others = []
    if abs(rest) > ROUNDING:
        key = "all_actions" if not reasons else "others" if rest > 0 else "others_against"
        others = [("others", words.line(say(key)), rest)]
    parts = [*reasons, *others, *ends]
    return [Row(kind, text, value, value / lead if lead else 0.0) for kind, text, value in parts]


def shown_rows(record: Mapping[str, Any], words: Wording = ENGLISH) -> list[Row]:
    """The rows of an explanation, without other actions that round to 0.000."""
    every = rows(record, words)
    return [row for row in every if row.kind != "others" or abs(row.contribution) >= SMALLEST]


def heading(
    record: Mapping[str, Any], item: str, user: str, words: Wording = ENGLISH
) -> tuple[str, str]:
    """The heading of an explanation, with the item's rank and lead; and both scores.

    ``item`` and ``user`` are what the two are called, with markup if there is to be any.
    """
    rank, lead = words.number(record["rank"]), f"{record['lead']:+.3f}"
    scores = words.text("scores", a=f"{record['score']:.3f}", b=f"{record['mean']:.3f}")
    return words.text("heading", item=item, user=user, rank=rank, lead=lead), scores


def carried_text(record: Mapping[str, Any], words: Wording = ENGLISH) -> str:
    """How much of the lead the listed reasons carry, in words."""
    n = len(record["reasons"])
    if not n:
        return str(record["because"])
    if record["lead"] <= 0:  # a share of a negative lead says nothing
        return words.line(words.text("behind"))
    shares = {"share": record["carried"], "of_actions": record["carried_of_actions"]}
    # No share says more than "all". A share above 100% may also be due to the item's general
    # appeal; other actions count against the item only if the reasons exceed what all contribute.
    part = words.text(
        "carried_whole" if record["carried"] > 1 else "carried_part",
        **{name: words.share(share) for name, share in shares.items()},
    )
    text = words.text("carried_one" if n == 1 else "carried_many", n=n, part=part)
    against = f"; {words.text('others_against')}" if record["carried_of_actions"] > 1 else ""
    return words.line(text + against)


def explanation_text(e: Explanation) -> str:
    """An explanation as lines of text that add up."""
    record, labels, words = e.as_dict(), e.graph.vocabulary.shown, e.words
    lines = [heading(record, labels[e.item + e.graph.n_users], labels[e.user], words)[0]]
    lines += [f"  {r.contribution:+.3f}  {r.label}" for r in shown_rows(record, words)]
    more = ["" if e.shown else e.because(), e.counterfactual or ""]
    more.append(words.testing(e.held_out) if e.held_out else "")
    return "\n".join([*lines, *(f"  {text}" for text in more if text)])


# ── for notebooks ───────────────────────────────────────────────────────────────────────


def explanation_html(e: Explanation) -> str:
    """An explanation: its rows with bars, and a picture of the strongest paths."""
    record, labels, words = e.as_dict(), e.graph.vocabulary.shown, e.words
    label, user = f"<b>{escape(labels[e.item + e.graph.n_users])}</b>", escape(labels[e.user])
    head, scores = heading(record, label, user, words)
    lines = "".join(
        f"<tr><td>{bar(row.share)}</td><td>{row.contribution:+.3f}</td>"
        f'<td style="text-align:left">{escape(row.sentence(words))}</td></tr>'
        for row in shown_rows(record, words)
    )
    best = [path for reason in e.shown for path in reason.paths[:2]][:SHOWN_PATHS]
    below = f"<p>{escape(words.testing(e.held_out))}</p>" if e.held_out else ""
    head = f"<p>{head} ({escape(scores)})</p>"
    return f"<div>{head}<table>{lines}</table>{below}{_picture(best)}</div>"


def reasoned_html(e: Reasoned) -> str:
    """The paths that the reasoner found, or a note that it found none."""
    labels, first = e.graph.vocabulary.shown, e.graph.n_users
    item, user = f"<b>{escape(labels[e.item + first])}</b>", escape(labels[e.user])
    head = e.words.text("reasoner", item=item, user=user, rank=e.words.number(e.rank))
    texts = e.sentences() or [e.because()]
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    paths = _picture([one.part for one in e.paths[:SHOWN_PATHS]])
    return f"<div><p>{head}</p><ul>{lines}</ul>{paths}</div>"


def why_not_html(question: WhyNot) -> str:
    """Why an item is not in a list, and its explanation."""
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
    return table(["", "now", "what if"], rows)


def _picture(paths: Sequence[PathPart]) -> str:
    """Paths as an SVG picture: entities in columns; the wider a line, the larger the
    contribution."""
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
    called = {
        entity: part.words.pronoun("someone")
        for part in paths
        for k, entity in enumerate(part.path.entities)
        if hidden(part.graph, part.path, k, part.words)
    }
    most = max(part.contribution for part in paths)
    lines = "".join(_line(part, place, len(columns) - 1, most) for part in paths)
    name = {entity: called.get(entity) or words.shown[entity] for _, entity in place}
    texts = "".join(
        f'<text x="{x}" y="{y + 4}" font-size="11">{escape(_short(name[entity]))}</text>'
        for (_, entity), (x, y) in place.items()
    )
    width = 2 * MARGIN + len(columns) * COLUMN
    height = 2 * MARGIN + LINE * max(map(len, columns))
    return f'<svg width="{width}" height="{height}" role="img">{lines}{texts}</svg>'


def _line(
    part: PathPart, place: dict[tuple[int, int], tuple[int, int]], last: int, most: float
) -> str:
    """One path; pointing at a hop shows its relation."""
    stops = [
        place[(last if k == len(part.path) else k, entity)]
        for k, entity in enumerate(part.path.entities)
    ]
    width = 1 + 4 * max(part.contribution, 0) / most if most > 0 else 1
    out = []
    for (x0, y0), (x1, y1), name in zip(stops, stops[1:], _relation_names(part), strict=False):
        title = f"<title>{escape(name)}</title>"
        style = f'stroke="#9ab" stroke-width="{width:.1f}"'
        out.append(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" {style}>{title}</line>')
    return "".join(out)


def _relation_names(part: PathPart) -> list[str]:
    return [part.graph.relation_name(r).removesuffix(INVERSE_MARK) for r in part.path.relations]


def _short(label: str) -> str:
    return label if len(label) <= 26 else label[:25] + "…"
