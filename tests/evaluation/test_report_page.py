"""The HTML report is one self-contained, well-formed file that shows the results."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from loger.evaluation import plots
from loger.evaluation.faithfulness.report import FaithfulnessConfig, FaithfulnessReport
from loger.evaluation.report import Contents, page, verdict
from loger.learning.fitted import Round
from loger.metrics.report import METRICS, Report

VOID = {"meta", "input", "br"}


def a_report(name: str = "LOGER") -> Report:
    rng = np.random.default_rng(0)
    users = np.arange(40, dtype=np.int32)
    values = {m: {k: rng.random(40) for k in METRICS} for m in (name, "<b>EASE^R</b>")}
    return Report("a & b", "test", "full", 10, users, values, dict.fromkeys(values, 0.5))


EXAMPLE: dict[str, Any] = {
    "label": "mug <1>", "user": "ann", "rank": 1, "lead": 2.0, "appeal": -0.5, "opaque": 0.0,
    "score": 1.25, "mean": -0.75, "tile": "Also by <Acme>", "debug": "because you bought ink (75%)",
    "carried": 0.75, "carried_of_actions": 0.6, "because": "", "expected": False,
    "reasons": [{"total": 1.5, "text": "you bought ink (75%): same brand"}],
}  # fmt: skip


def everything() -> Contents:
    rounds = [Round(k, -4.0, -3.0 + k, 100 * k, 10 * k, 0.3, 0.5) for k in range(3)]
    values = {name: np.random.default_rng(1).random(9) for name in ("js_f", "floor", "random")}
    return Contents(
        a_report(),
        rules=[{"weight": 2.5, "sentence": "bought <i>ink</i>"}, {"weight": 0, "sentence": "-"}],
        trace=rounds,
        tried=[("recency", 0.5, 0.3)],
        ablation=[{"selected": 0, "ndcg": 0.1, "low": 0.05, "high": 0.2},
            {"selected": 10, "ndcg": 0.2, "low": 0.1, "high": 0.3},
        ],
        faithfulness=[FaithfulnessReport("LOGER", "a & b", 9, FaithfulnessConfig(), values)],
        examples=[EXAMPLE],
        config={"seed": 0},
        origin="abc1234",
        command="loger evaluate b d --report r.html",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)> '", "&lt;b&gt;", "x" * 10_000,
     "\u202emoc.live\u2066", "</td></table><form action=//evil.com>"],
)  # fmt: skip
def test_names_of_the_data_are_text_on_the_page(name: str) -> None:
    def page_of(word: str) -> str:
        texts = dict.fromkeys(("label", "user", "tile", "debug"), word)
        example = EXAMPLE | texts | {"reasons": [{"total": 1.5, "text": f"you bought {word}"}]}
        contents = replace(everything(), report=a_report(word), examples=[example])
        rules = [{"weight": 2.5, "sentence": f"bought {word}"}]
        return page(replace(contents, rules=rules, config={word: word}, command=word))

    tags = re.compile(r"<[a-z/!][^>]*>")
    found, usual = page_of(name), page_of("mug")
    shown = [re.sub(r'"[^"]*"', "", tag) for tag in tags.findall(found)]  # without their values
    assert shown == [re.sub(r'"[^"]*"', "", tag) for tag in tags.findall(usual)]
    assert name in unescape(found) and "overflow-wrap:anywhere" in found


class Nesting(HTMLParser):
    """Fails on tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def test_the_page_is_well_formed_and_needs_nothing_from_outside() -> None:
    text = page(everything())
    reader = Nesting()
    reader.feed(text)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe"} & set(reader.seen)
    assert not re.search(r"https?:|url\(|@import|\son\w+=", text)
    assert "<i>ink</i>" not in text
    assert "<b>EASE^R</b>" not in text
    assert "a &amp; b" in text


def test_the_page_has_every_part_it_was_given() -> None:
    text = page(everything())
    for part in (
        "Metrics", "Rules", "Faithfulness", "EM", "maximum number of hidden pairs", "abc1234",
        "loger evaluate b d", "recency", "1 of 2 mined rules have no weight",
    ):  # fmt: skip
        assert part in text, part
    report = a_report()
    assert re.search(rf"{100 * report.mean('LOGER', 'ndcg'):.2f}\*? \[", text)


def test_examples_show_reasons_with_bars_and_the_share_they_carry() -> None:
    text = page(everything())
    assert "+2.000 compared with the average item" in text and "mug &lt;1&gt;" in text
    parts = re.findall(r'<td class="n">(.{6})</td><td>([^<]*)<.*?width:([0-9.]+)%', text)
    assert parts == [
        ("+1.500", "you bought ink (75%): same brand", "100.0"),
        ("+1.000", "The rest of your history", "66.7"),
        ("−0.500", "The item&#x27;s general appeal", "33.3"),
    ]
    assert "This reason explains 75% of its lead over the average item." in text
    assert '<p class="tile">Also by &lt;Acme&gt;</p>' in text
    assert "<pre>because you bought ink (75%)</pre>" in text
    assert "(score 1.250, average item -0.750)" in text
    assert sum(float(value.replace("−", "-")) for value, *_ in parts) == 1.25 - -0.75


def test_one_round_of_em_is_a_table_without_a_line() -> None:
    trace = [Round(0, -4.0, -3.0, 0, 0, 0.3, 0.5)]
    text = page(Contents(a_report(), trace=trace, tried=[("recency", 0.5, 0.3)]))
    section = text[text.index("<h2>EM") :]
    assert "<svg" not in section and "-3.0000" in section
    assert "What tuning tried (1)" in section


def test_a_long_name_fits_beside_its_dot() -> None:
    name = "collective EASE^R, tuned"
    drawn = plots.dots([(name, 0.3, 0.2, 0.4)], "t")
    (x,) = re.findall(rf'x="([0-9.]+)"[^>]*>{re.escape(name)}', drawn)
    assert float(x) >= 7.5 * len(name)


def test_what_is_not_there_leaves_no_empty_part() -> None:
    text = page(Contents(a_report()))
    for part in ("Faithfulness", "hidden pairs", "<h2>Rules", "<h2>Data", "nan"):
        assert part not in text


@pytest.mark.parametrize(
    ("low", "high"), [(0, 38.7), (-4.8, -3.5), (0.1, 0.1), (0, 0), (1e-9, 3e-9)]
)
def test_ticks_enclose_what_is_shown_and_are_few(low: float, high: float) -> None:
    ticks = plots._ticks(low, high)
    assert ticks[0] <= low + 1e-12
    assert ticks[-1] >= high - 1e-12
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))


def test_missing_values_leave_gaps_in_lines() -> None:
    drawn = plots.lines(["0", "1", "2"], [("a", [1.0, float("nan"), 2.0])], "t", "x")
    assert drawn.count("<circle") == 2
    assert "nan" not in drawn


def test_a_report_of_metrics_has_a_short_repr_and_prints_as_its_table() -> None:
    report = a_report()
    assert repr(report) == "Report(a & b, test, full, k = 10, 40 users: LOGER, <b>EASE^R</b>)"
    assert str(report) == report.table()


def test_a_divergence_with_nowhere_to_go_has_no_ratio() -> None:
    # A single rule: floor, measure and control are all zero.
    values = dict.fromkeys(("js_f", "floor", "random"), np.zeros(5))
    told = FaithfulnessReport("LOGER", "d", 5, FaithfulnessConfig(), values)
    assert told.ratios == {}
    assert "JS_f" in page(Contents(a_report(), faithfulness=[told]))


def measured(carried: float) -> FaithfulnessReport:
    names = ("carried_1", "carried_3", "deletion", "flip_first_action", "flip_random_action")
    values = dict(zip(names, (0.2, carried, 0.9, 0.5, 0.1), strict=True))
    constant = {name: np.full(5, value) for name, value in values.items()}
    return FaithfulnessReport("LOGER", "d", 5, FaithfulnessConfig(), constant)


def compared(ours: float, theirs: float, users: int = 400) -> Report:
    noise = np.random.default_rng(0).random(users) / 10
    values = {
        name: {metric: np.full(users, mean) + noise for metric in METRICS}
        for name, mean in (("LOGER", ours), ("EASE^R", theirs))
    }
    return Report("d", "test", "full", 10, np.arange(users), values, dict.fromkeys(values, 0.5))


def test_the_verdict_says_what_is_good_how_far_reasons_carry_and_what_to_do() -> None:
    quality, reasons, then = verdict(compared(0.4, 0.2), [measured(0.8)])
    assert "For 45% of 400 users, LOGER's top 10 includes at least one held-out item" in quality
    assert "20.0 points of NDCG better than the best baseline, EASE^R" in quality
    assert reasons.startswith("An item's first three reasons explain 80% of its lead")
    assert "50% of the items leave the list, compared with 10% without a random action" in reasons
    assert then == "Next: read the recommendations of some people you know (loger serve)."
    assert "explain all of its lead" in verdict(compared(0.4, 0.2), [measured(1.02)])[1]


def test_the_verdict_hides_nothing_bad() -> None:
    assert "20.0 points of NDCG worse" in verdict(compared(0.2, 0.4))[0]
    assert "EASE^R ranks better here" in verdict(compared(0.2, 0.4))[-1]
    assert "about as good" in verdict(compared(0.2, 0.2))[0]
    assert "no reason that can be named" in verdict(compared(0.4, 0.2), [measured(0.3)])[-1]
    assert "figures are rough" in verdict(compared(0.4, 0.2, users=50))[-1]


def test_faithfulness_opens_with_what_anybody_can_grasp() -> None:
    text = page(Contents(compared(0.4, 0.2), faithfulness=[measured(0.8)]))
    section = text[text.index("<h2>Faithfulness") :]
    assert section.index("The first reason") < section.index("<details>")
    assert "an item falls 90% of the way" in section
    assert "flip_" not in text and "carried_" not in text


def test_what_was_not_tuned_is_said_so() -> None:
    text = page(Contents(a_report(), untuned=["<b>EASE^R</b>"]))
    assert "&lt;b&gt;EASE^R&lt;/b&gt;: default settings, not tuned on these data;" in text
    assert "tuned" not in page(Contents(a_report()))


def test_how_the_data_were_split_is_said_beside_them() -> None:
    sizes = dict.fromkeys(("users", "items", "interactions", "entities", "facts"), 3)
    counts = {**sizes, "density": 0.5, "relations": []}
    text = page(Contents(a_report(), statistics=counts, split="by time, as told: 20% <latest>"))
    assert '<p class="note">Split by time, as told: 20% &lt;latest&gt;.</p>' in text
