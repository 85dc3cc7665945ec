"""One self-contained HTML file with the results of an evaluation; no script, no network.

The page shows metrics, EM trace, rules, ablation, faithfulness, data and settings.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from loger import __version__
from loger.evaluation import plots
from loger.evaluation.faithfulness.report import LINES, FaithfulnessReport, Mean
from loger.explain.render import carried_text, heading, shown_rows
from loger.learning.fitted import Round
from loger.metrics.report import SHOWN, TITLES, Report

LISTED = (*SHOWN, "diversity", "calibration", "novelty")
"""The metrics in the table."""
Cell = str | float | int


STRONGEST = 15
"""Number of rules listed."""
TRIED = "held-out NDCG@10; with few labels, how often best"


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of the page; sections without contents are left out."""

    report: Report
    statistics: Mapping[str, Any] | None = None
    """As ``loger data inspect --json`` prints them."""
    split: str = ""
    """How the test part was split off, and why."""
    untuned: Sequence[str] = ()
    """Models with default settings, not tuned on these data."""
    rules: Sequence[Mapping[str, Any]] = ()
    """Weight and sentence of each rule, strongest first."""
    trace: Sequence[Round] = ()
    tried: Sequence[tuple[str, Any, float]] = ()
    """Setting, value and held-out NDCG of everything that tuning tried."""
    ablation: Sequence[Mapping[str, float]] = ()
    """Size of H⁺ per user (``selected``) and its ``ndcg`` with ``low`` and ``high``."""
    faithfulness: Sequence[FaithfulnessReport] = ()
    """The model's first, then controls."""
    examples: Sequence[Mapping[str, Any]] = ()
    """Explanations from ``Explanation.as_dict``, with their ``tile`` and ``debug`` texts."""
    reasoned: Sequence[Sequence[Mapping[str, Any]]] = ()
    """What the path reasoner finds for the lists of some users, from ``Reasoned.as_dict``."""
    config: Mapping[str, Any] | None = None
    origin: str = ""
    """The version of loger, and its commit."""
    command: str = ""
    """The command that reproduces this page."""


def page(contents: Contents) -> str:
    """The whole file."""
    report = contents.report
    title = f"{report.models[0]} on {report.dataset}"
    sections = [
        ("Metrics", _metrics(report, contents.untuned)),
        ("Rules", _rules(contents.rules)),
        ("Recommendations with their reasons", _examples(contents.examples)),
        ("Paths of the reasoner", _reasoned(contents.reasoned)),
        ("Faithfulness", _faithfulness(contents.faithfulness)),
        ("EM", _trace(contents.trace, contents.tried)),
        ("Hidden pairs", _ablation(contents.ablation)),
        ("Data", _data(contents.statistics, contents.split)),
        ("Settings", _settings(contents.config, contents.origin, contents.command)),
    ]
    present = [(name, body) for name, body in sections if body]
    links = " · ".join(f'<a href="#s{k}">{escape(name)}</a>' for k, (name, _) in enumerate(present))
    body = "".join(
        f'<section id="s{k}"><h2>{escape(name)}</h2>{text}</section>'
        for k, (name, text) in enumerate(present)
    )
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{STYLE}'
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>{escape(title)}</title></head><body>'
        f"<header><h1>{escape(title)}</h1>{_verdict(contents)}<p>{_lead(report)}</p>"
        f"<nav>{links}</nav></header>"
        f"<main>{body}</main></body></html>\n"
    )


def _verdict(contents: Contents) -> str:
    texts = verdict(contents.report, contents.faithfulness)
    return f'<p class="verdict">{escape(" ".join(texts))}</p>'


def _lead(report: Report) -> str:
    mean = 100 * report.mean(report.models[0], "ndcg")
    low, high = (100 * end for end in report.interval(report.models[0], "ndcg"))
    return (
        f"NDCG@{report.k} <strong>{mean:.2f}%</strong> [{low:.2f}, {high:.2f}] over "
        f"{len(report.users):,} users of the {escape(report.part)} part, "
        f"{escape(report.protocol)} ranking."
    )


# ── sections ────────────────────────────────────────────────────────────────────────────


def _metrics(report: Report, untuned: Sequence[str]) -> str:
    out = []
    for metric in SHOWN:
        rows = []
        for model in report.models:
            low, high = report.interval(model, metric)
            rows.append((model, 100 * report.mean(model, metric), 100 * low, 100 * high))
        name = f"{TITLES[metric]}@{report.k}, %"
        out.append(_figure(plots.dots(rows, name), name))
    columns, *body = report.cells(LISTED, "text")
    note = (
        f"Means over users in percent (novelty in bits) with {report.level:.0%} bootstrap "
        "intervals; * marks the best. p compares each method's NDCG with that of "
        f"{escape(report.best())}, user by user (sign-flip test, not corrected for multiple "
        "tests). Intervals and p cover other users, not other seeds or splits."
    )
    if untuned:
        note += (
            f" {escape(', '.join(untuned))}: default settings, not tuned on these data; "
            "<code>loger compare</code> tunes them."
        )
    grid = f'<div class="pair">{"".join(out)}</div>'
    return grid + html_table(columns, body) + f'<p class="note">{note}</p>'


def _rules(rules: Sequence[Mapping[str, Any]]) -> str:
    weighted = [r for r in rules if r["weight"] > 0]
    if not weighted:
        return ""
    silent = len(rules) - len(weighted)
    note = (
        "Weights of the strongest rules." if len(weighted) > STRONGEST else "Weights of all rules."
    )
    if silent:
        note += f" {silent} of {len(rules)} mined rules have no weight."
    shown = [(r["weight"], f"{r['weight']:.2f}", r["sentence"]) for r in weighted[:STRONGEST]]
    return _bars(shown) + f'<p class="note">{note}</p>'


def _examples(examples: Sequence[Mapping[str, Any]]) -> str:
    kept = "".join(f'<div class="keep">{_example(dict(e))}</div>' for e in examples)
    return f'<div class="pair">{kept}</div>' if kept else ""


def _example(e: dict[str, Any]) -> str:
    told, scores = heading(e, f"<b>{escape(e['label'])}</b>", escape(e["user"]))
    parts = [(row.contribution, _signed(row.contribution), row.sentence()) for row in shown_rows(e)]
    return (
        f'<p>{told} <span class="note">({escape(scores)})</span></p>'
        f'<p class="tile">{escape(e["tile"])}</p>{_bars(parts)}'
        f'<p class="note">{escape(carried_text(e))}.</p>'
        f"<details><summary>Every number</summary><pre>{escape(e['debug'])}</pre></details>"
    )


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _reasoned(lists: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    every = [one for row in lists for one in row]
    if not every:
        return ""
    rows = [(str(e["user"]), str(e["label"]), str(e["because"])) for row in lists for e in row[:3]]
    led = [e for e in every if e["n"]]
    missed = sum(bool(e["missed"]) for e in led)
    note = (
        f"The first three items of {len(lists)} lists. Rules lead to {len(led)} of all "
        f"{len(every)} items of these lists; of those the reasoner missed {missed}."
    )
    return html_table(["user", "item", "by the reasoner"], rows) + f'<p class="note">{note}</p>'


def _bars(parts: Sequence[tuple[float, str, str]]) -> str:
    """Values with their texts and a bar each; negative values are grey."""
    most = max((abs(value) for value, *_ in parts), default=1.0) or 1.0
    rows = "".join(
        f'<tr><td class="n">{shown}</td><td>{escape(text)}<div class="track">'
        f'<i class="{"for" if value >= 0 else "against"}" '
        f'style="width:{100 * abs(value) / most:.1f}%"></i></div></td></tr>'
        for value, shown, text in parts
    )
    return f'<table class="bars"><tbody>{rows}</tbody></table>'


def _faithfulness(reports: Sequence[FaithfulnessReport]) -> str:
    """First a summary for everyone, then every measure."""
    if not reports:
        return ""
    first = reports[0]
    body = [
        [f"\u2003{title.strip()}" if title.startswith(" ") else title]
        + [_mean(r[line], line) for r in reports]
        for line, title in LINES.items()
        if any(r[line] is not None for r in reports)
    ]
    table = html_table(["", *(r.name for r in reports)], body)
    note = (
        "Decomposition, deletion and planted reasons measure whether reasons are why an item is "
        "recommended; where an item has only a few paths, deleting random ones has the same effect "
        "as deleting those shown."
    )
    whole = f'<p class="note">{note}</p>{_history_distance(first)}{table}'
    return _summary(first) + f"<details><summary>Every measure</summary>{whole}</details>"


def _summary(report: FaithfulnessReport) -> str:
    """How much of an item's lead its first reasons explain, and the effect of removing them."""
    carried = [
        (m.mean, f"{m.mean:.0%}", "The first reason" if n == 1 else f"The first {n} reasons")
        for n in (1, 3, 5)
        if (m := report[f"carried_{n}"]) is not None
    ]
    out = ""
    if carried:
        note = "How much of an item's lead over the average item its reasons explain."
        if any(value > 1 for value, *_ in carried):
            note += " More than 100%: the rest of the history counts against the item."
        out += _bars(carried) + f'<p class="note">{note}</p>'
    texts = []
    if (deletion := report["deletion"]) is not None:
        texts.append(
            "Remove a user's actions one by one, in the order of the reasons, and an item falls "
            f"{deletion.mean:.0%} of the way from what a random order does to what the best order "
            "does."
        )
    flip, control = report["flip_first_action"], report["flip_random_action"]
    if flip is not None and control is not None:
        texts.append(
            f"Without the action named first, {flip.mean:.0%} of the items leave the list; without "
            f"a random action, {control.mean:.0%}."
        )
    measured = f"Measured on {report.n_users} users, lists of {report.config.k}."
    return out + f"<p>{escape(' '.join([*texts, measured]))}</p>"


def _history_distance(first: FaithfulnessReport) -> str:
    """The paper's measures: how far the shown rules are from those of the user's history."""
    rows = []
    for name, line, control in (("JS_f", "js_f", "random"), ("JS_w", "js_w", "random_w")):
        floor, here, end = (first[key] for key in ("floor", line, control))
        if floor is not None and here is not None and end is not None:
            rows.append((name, floor.mean, here.mean, end.mean))
    if not rows:
        return ""
    note = (
        "JS_f and JS_w, the paper's measures, say how far the rules of the shown paths are from "
        "those of the user's own history: the floor is the distance of as many draws from that "
        "history itself, the control that of rules drawn at random. Paths that are close to the "
        "history need not be the reason: random paths are often close too."
    )
    caption = "The lower, the closer to the user's history"
    figure = _figure(plots.between(rows, "JS between floor and control"), caption)
    return f'{figure}<p class="note">{note}</p>'


def _mean(m: Mean | None, line: str) -> str:
    if m is None:
        return "–"
    if line in ("decomposition_error", "repeatable"):
        return f"{m.mean:.3g}"
    return f"{m.mean:.3f} [{m.low:.3f}, {m.high:.3f}]"


def _trace(trace: Sequence[Round], tried: Sequence[tuple[str, Any, float]]) -> str:
    if not trace:
        return ""
    if len(trace) == 1:  # one point is no line
        return _rounds(trace) + _tuning(tried)
    xs = [str(row.number) for row in trace]
    bound = [("after", [r.bound for r in trace]), ("before", [r.bound_before for r in trace])]
    out = _figure(
        plots.lines(xs, bound, "objective of the M-step", "round of EM"),
        "The objective before and after each M-step",
    )
    ndcg = [100 * row.ndcg for row in trace]
    if any(value == value for value in ndcg):
        out += _figure(
            plots.lines(xs, [("NDCG@10", ndcg)], "NDCG on held-out users", "round of EM"),
            "NDCG@10 in percent on held-out users; the best round is kept",
        )
    return f'<div class="pair">{out}</div>' + _rounds(trace) + _tuning(tried)


def _rounds(trace: Sequence[Round]) -> str:
    columns = [
        "round",
        "objective",
        "hidden pairs |H|",
        "selected |H⁺|",
        "NDCG@10",
        "Recall@10",
    ]
    rows: list[list[Cell]] = [
        [r.number, f"{r.bound:.4f}", r.hidden, r.selected, f"{r.ndcg:.4f}", f"{r.recall:.4f}"]
        for r in trace
    ]
    return html_table(columns, rows)


def _tuning(tried: Sequence[tuple[str, Any, float]]) -> str:
    if not tried:
        return ""
    trials: list[list[Cell]] = [[s, str(v), f"{x:.4f}"] for s, v, x in tried]
    table = html_table(["setting", "value", TRIED], trials)
    return f"<details><summary>What tuning tried ({len(tried)})</summary>{table}</details>"


def _ablation(points: Sequence[Mapping[str, float]]) -> str:
    if not points:
        return ""
    xs = [f"{p['selected']:g}" for p in points]
    values = [100 * p["ndcg"] for p in points]
    banded = all("low" in p and "high" in p for p in points)
    band = [(100 * p["low"], 100 * p["high"]) for p in points] if banded else None
    svg = plots.lines(xs, [("NDCG", values)], "NDCG over |H⁺|", "|H⁺|: pairs of a user", band)
    return _figure(svg, "NDCG in percent by the maximum number of hidden pairs per user")


def _data(counts: Mapping[str, Any] | None, split: str) -> str:
    if counts is None:
        return ""
    how = f'<p class="note">Split {escape(split)}.</p>' if split else ""
    sizes = ("users", "items", "interactions", "entities", "facts")
    body: list[list[Cell]] = [[counts[name] for name in sizes] + [f"{counts['density']:.3%}"]]
    out = html_table([*sizes, "density"], body)
    rows: list[list[Cell]] = [
        [
            r["relation"], f"{r['head_type']} → {r['tail_type']}", r["facts"],
            f"{r['per_head']:.1f}", f"{r['per_tail']:.1f}", f"{r['hub']} ({r['hub_degree']:,})",
        ]
        for r in counts["relations"]
    ]  # fmt: skip
    columns = ["relation", "from → to", "facts", "per head", "per tail", "largest hub"]
    return how + out + html_table(columns, rows)


def _settings(config: Mapping[str, Any] | None, origin: str, command: str) -> str:
    out = f"<p>loger {escape(origin)}</p>" if origin else ""
    if command:
        out += f"<p>Made by</p><pre>{escape(command)}</pre>"
    if config is not None:
        out += f"<pre>{escape(json.dumps(config, indent=2, ensure_ascii=False))}</pre>"
    return out


# ── pieces ──────────────────────────────────────────────────────────────────────────────


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table; cells that begin with a number are marked as numbers."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(value: Cell) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    number = text[:1].isdigit() or text[:1] in "+-–"
    return f"<td{' class=n' if number else ''}>{escape(text)}</td>"


STYLE = """<style>
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--paper:#fff;--strong:#0b6e6e;--plain:#8b97a8;
--band:#0b6e6e22}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa6b5;--line:#333d4a;
--paper:#141a21;--strong:#4cc3b8;--plain:#7b8798;--band:#4cc3b833}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:66rem;padding:2.5rem 1.25rem 4rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
b{unicode-bidi:isolate}
h1{font-size:1.9rem;margin:0 0 .3rem;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:2.8rem 0 .8rem;padding-top:.8rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.4rem 0 .3rem}
.tile{display:inline-block;margin:0;padding:.1rem .7rem;border-radius:1rem;background:var(--band)}
.verdict{font-size:1.1rem;max-width:48rem}
summary{cursor:pointer;color:var(--strong)}
nav,.note,figcaption{color:var(--soft);font-size:.875rem}
a{color:var(--strong)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem 2rem}
figure{margin:0 0 1rem}
svg{width:100%;height:auto;display:block;max-width:52rem;overflow:visible}
svg text{font:14px system-ui,sans-serif;fill:var(--ink)}
svg text.small{font-size:12px;fill:var(--soft)}
svg text.value{font-weight:600;font-size:13px}
svg line.grid{stroke:var(--line)}
svg line.strong,svg polyline.strong{stroke:var(--strong);stroke-width:3;fill:none}
svg line.plain,svg polyline.plain{stroke:var(--plain);stroke-width:2;fill:none}
svg circle.strong{fill:var(--strong)}
svg circle.plain{fill:var(--plain)}
svg polygon.band{fill:var(--band)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem;margin:.6rem 0 1rem}
th,td{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);
vertical-align:top}
th{color:var(--soft);font-weight:500}
table.bars{width:100%}.track{margin-top:.25rem}
.track i{display:block;height:6px;min-width:1px;border-radius:2px;background:var(--strong)}
.track i.against{background:var(--plain)}
td.n{font-variant-numeric:tabular-nums}.bars td.n{white-space:nowrap;width:1%}
pre{background:var(--band);padding:.8rem 1rem;overflow-x:auto;font-size:.8rem;border-radius:4px;
white-space:pre-wrap;overflow-wrap:anywhere}
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--paper:#fff;--strong:#0b6e6e;
--plain:#777;--band:#0b6e6e18}
body{font-size:10.5pt;padding:0;max-width:none}nav{display:none}
figure,table,.keep{break-inside:avoid}h2,h3{break-after:avoid}
table{font-size:7.5pt}td.n{white-space:normal}th,td{padding-right:.5rem}
.wide{overflow:visible}pre{columns:2;font-size:7.5pt}.pair{grid-template-columns:1fr 1fr}
@page{margin:14mm}}
</style>"""


# ── the verdict: a paragraph for people who will not read the rest ────────────────────


CERTAIN = 0.05
"""p below which a difference between two methods is taken to be one."""
FEW = 200
"""Users below which figures are said to be rough."""
CARRIED = 0.5
"""The share of an item's lead below which its reasons are said to tell too little."""


def verdict(report: Report, faithfulness: Sequence[FaithfulnessReport] = ()) -> list[str]:
    """What is recommended well, how far the reasons carry, and what to do next: one text each."""
    texts = [_quality(report)]
    if faithfulness and (told := _reasons(faithfulness[0])):
        texts.append(told)
    return [*texts, f"Next: {_next(report, faithfulness)}."]


def _quality(report: Report) -> str:
    first, n = report.models[0], len(report.users)
    hits, ndcg = report.mean(first, "hit_rate"), report.mean(first, "ndcg")
    text = (
        f"For {hits:.0%} of {n:,} users, {first}'s top {report.k} includes at least one held-out "
        f"item that they took (NDCG@{report.k} {100 * ndcg:.1f}%)"
    )
    if len(report.models) == 1:
        return f"{text}; no other method was measured."
    other = _strongest_other(report)
    difference = report.compare(first, other)
    points = f"{100 * abs(difference.difference):.1f} points of NDCG"
    if difference.p >= CERTAIN:
        apart = f"{points} apart, p = {difference.p:.2f}"
        return f"{text}; the best baseline, {other}, is about as good ({apart})."
    better = "better" if difference.difference > 0 else "worse"
    return f"{text}; that's {points} {better} than the best baseline, {other}."


def _strongest_other(report: Report) -> str:
    return max(report.models[1:], key=lambda model: report.mean(model, "ndcg"))


def _reasons(report: FaithfulnessReport) -> str:
    """How much the reasons say, and what happens without them."""
    carried, flip, control = (
        report[line] for line in ("carried_3", "flip_first_action", "flip_random_action")
    )
    parts = []
    if carried is not None:
        share = "all" if carried.mean > 1 else f"{carried.mean:.0%}"
        parts.append(
            f"an item's first three reasons explain {share} of its lead over the average item"
        )
    if flip is not None and control is not None:
        parts.append(
            f"without the action named first, {flip.mean:.0%} of the items leave the list, "
            f"compared with {control.mean:.0%} without a random action"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _next(report: Report, faithfulness: Sequence[FaithfulnessReport]) -> str:
    """The most useful next step."""
    first = report.models[0]
    if len(report.models) > 1:
        other = _strongest_other(report)
        difference = report.compare(first, other)
        if difference.p < CERTAIN and difference.difference < 0:
            return (
                f"{other} ranks better here; tune both with loger compare, look at what it uses, "
                "and add facts about the items"
            )
    carried = faithfulness[0]["carried_3"] if faithfulness else None
    if carried is not None and carried.mean < CARRIED:
        return (
            "much of the score has no reason that can be named; a lower em.max_encoder_share gives "
            "rules more of it, and more facts about the items give them more to say"
        )
    if len(report.users) < FEW:
        return "there are few users, so the figures are rough; measure again with more data"
    return "read the recommendations of some people you know (loger serve)"


# ── which loger made the report ───────────────────────────────────────────────────────


def origin() -> str:
    """The version, and the commit if loger runs from a checkout."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / ".git").exists():
        return __version__
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    commit = answer.stdout.strip()
    return f"{__version__}, commit {commit}" if commit else __version__
