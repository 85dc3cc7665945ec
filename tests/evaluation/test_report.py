"""An evaluation's report: every number in every format, against slow implementations."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import numpy as np
import polars as pl
import pytest
from scipy import stats

from loger.errors import LogerError, UnknownNameError
from loger.metrics.report import METRICS, PLAIN, SHOWN, Report, resampled_means, sign_flip

USERS, SAMPLES, SEED = 30, 40, 3
FIRST, SECOND, THIRD = "MostPop", "R&D_α^2", "EASE"


def report() -> Report:
    """Three models: the second is best by NDCG and novelty, the third by all else."""
    rng = np.random.default_rng(8)
    lift = {FIRST: {}, SECOND: {"ndcg": 0.4, "novelty": 3.0}, THIRD: {}}
    lift[THIRD] = {m: 0.2 for m in METRICS if m != "novelty"}
    values = {
        model: {m: rng.random(USERS) / 2 + more.get(m, 0.0) for m in METRICS}
        for model, more in lift.items()
    }
    coverage = {FIRST: 0.0126, SECOND: 0.5, THIRD: 1.0}
    users = np.arange(5, 5 + USERS, dtype=np.int32)
    return Report("a shop", "test", "full", 7, users, values, coverage, SEED, SAMPLES)


def slow_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    shares = resampled_means(np.eye(USERS), SAMPLES, SEED)  # of each user in each sample
    means = sorted(float(share @ values) for share in shares)
    return tuple(np.quantile(means, [(1 - level) / 2, (1 + level) / 2]))


def slow_p(first: str, second: str, metric: str) -> float:
    of = report().values
    difference = of[first][metric] - of[second][metric]
    return float(sign_flip(difference[:, None], 10 * SAMPLES, SEED)[0])


def test_means_and_intervals_are_those_of_the_drawn_users():
    for model in (FIRST, SECOND, THIRD):
        for metric in METRICS:
            values = report().values[model][metric]
            assert report().mean(model, metric) == values.mean()
            assert report().interval(model, metric) == pytest.approx(slow_interval(values))
    narrow = replace(report(), level=0.5)
    values = report().values[THIRD]["recall"]
    assert narrow.interval(THIRD, "recall") == pytest.approx(slow_interval(values, 0.5))


def test_the_best_is_the_highest_and_of_equals_the_first():
    assert report().best() == SECOND
    assert [report().best(m) for m in METRICS] == [
        SECOND if m in ("ndcg", "novelty") else THIRD for m in METRICS
    ]
    same = {m: np.ones(2) for m in METRICS}
    tied = Report("d", "test", "full", 1, np.arange(2), {"b": same, "a": same}, {"b": 0, "a": 0})
    assert tied.best() == "b"


@pytest.mark.parametrize("metric", ["ndcg", "recall"])
def test_a_comparison_is_paired_by_user(metric):
    of = report().values
    difference = of[THIRD][metric] - of[FIRST][metric]
    found = report().compare(THIRD, FIRST, metric)
    assert (found.first, found.second, found.metric) == (THIRD, FIRST, metric)
    assert found.difference == difference.mean()
    assert (found.low, found.high) == pytest.approx(slow_interval(difference))
    assert found.p == slow_p(THIRD, FIRST, metric)
    assert found.p_wilcoxon == stats.wilcoxon(difference, method="approx").pvalue
    assert 0.5 / (10 * SAMPLES) < found.p < 1  # some of the flips are as extreme, not all


def test_comparing_by_ndcg_is_the_default_and_comparisons_are_made_once():
    one = report()
    assert one.compare(FIRST, THIRD) == one.compare(FIRST, THIRD, "ndcg")
    assert one.compare(FIRST, THIRD) is one.compare(FIRST, THIRD)
    assert one.compare(THIRD, FIRST).difference == -one.compare(FIRST, THIRD).difference


MARKS = {"text": "{}*", "markdown": "**{}**", "latex": r"\textbf{{{}}}"}
LATEX_NAMES = {FIRST: FIRST, SECOND: r"R\&D\_$\alpha$\^{}2", THIRD: THIRD}


def slow_rows(form: str, metrics=SHOWN) -> list[list[str]]:
    """The cells of a table, one list per model."""
    out, best = [], {FIRST: (), SECOND: ("ndcg", "novelty")}
    best[THIRD] = [m for m in METRICS if m not in best[SECOND]]
    for model, of in report().values.items():
        row = [LATEX_NAMES[model] if form == "latex" else model]
        for metric in metrics:
            scale = 1 if metric in PLAIN else 100
            mean = f"{scale * of[metric].mean():.2f}"
            mean = MARKS[form].format(mean) if metric in best[model] else mean
            low, high = slow_interval(of[metric])
            row.append(f"{mean} [{scale * low:.2f}, {scale * high:.2f}]")
        winner = SECOND if metrics[0] in best[SECOND] else THIRD
        row.append("" if model == winner else f"{slow_p(winner, model, metrics[0]):.4f}")
        out.append([*row, {FIRST: "1.3", SECOND: "50.0", THIRD: "100.0"}[model]])
    return out


HEAD = ["", "NDCG@7", "Recall@7", "HR@7", "Precision@7", "p", "coverage"]


def test_the_text_has_aligned_columns_with_stars_for_the_best():
    lines = report().table().split("\n")
    cells = [HEAD, *slow_rows("text")]
    widths = [max(len(row[c]) for row in cells) for c in range(len(HEAD))]
    slow = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    assert lines == [line.rstrip() for line in slow]
    assert str(report()) == report().table()


def test_the_markdown_has_a_rule_below_the_head():
    rows = [HEAD, ["---"] * 7, *slow_rows("markdown")]
    assert report().table("markdown") == "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_latex_is_a_tabular_with_escaped_names():
    lines = [" & ".join(row) + r" \\" for row in [HEAD, *slow_rows("latex")]]
    slow = [r"\begin{tabular}{lrrrrrr}", r"\hline", lines[0], r"\hline", *lines[1:]]
    assert report().table("latex") == "\n".join([*slow, r"\hline", r"\end{tabular}"])


def test_the_best_and_p_are_by_the_metrics_that_are_shown():
    metrics = ("recall", "novelty", "ndcg_retrieved")
    rows = [["", "Recall@7", "Novelty@7", "NDCG (retrieved)@7", "p", "coverage"], ["---"] * 6]
    rows += slow_rows("markdown", metrics)
    shown = report().table("markdown", metrics)
    assert shown == "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_csv_has_plain_shares_and_the_ends_of_intervals():
    metrics = ["recall", "novelty"]
    rows = list(csv.DictReader(report().table("csv", metrics).splitlines()))
    ends = [f"{m}{end}" for m in metrics for end in ("", "_low", "_high")]
    assert list(rows[0]) == ["model", *ends, "p", "coverage"]
    assert [row["model"] for row in rows] == [FIRST, SECOND, THIRD]
    for row, (model, of) in zip(rows, report().values.items(), strict=True):
        for metric in metrics:
            assert float(row[metric]) == of[metric].mean()
            found = [float(row[f"{metric}_low"]), float(row[f"{metric}_high"])]
            assert found == pytest.approx(slow_interval(of[metric]))
        assert row["coverage"] == str(report().coverage[model])
    assert [row["p"] for row in rows[:2]] == [
        str(slow_p(THIRD, m, "recall")) for m in (FIRST, SECOND)
    ]


def test_a_p_that_comes_late_in_a_long_table_is_still_a_number():
    """CSV columns are typed by all rows: the best model, which has no p, may come first."""
    of = {m: np.linspace(0, 1, USERS) for m in METRICS}
    values = {f"model {n}": {m: v - 0.001 * n for m, v in of.items()} for n in range(120)}
    many = Report("d", "test", "full", 1, np.arange(USERS), values, dict.fromkeys(values, 0.5),
                  samples=2)  # fmt: skip
    rows = list(csv.DictReader(many.table("csv", ["ndcg"]).splitlines()))
    assert rows[0]["p"] == ""
    assert len(rows) == 120
    assert all(0 < float(row["p"]) <= 1 for row in rows[1:])


def test_json_says_everything_but_the_values_of_users():
    found = json.loads(report().to_json())
    expected = {
        "dataset": "a shop",
        "part": "test",
        "protocol": "full",
        "k": 7,
        "seed": SEED,
        "users": USERS,
        "samples": SAMPLES,
        "level": 0.95,
        "models": {
            model: {m: [of[m].mean(), *report().interval(model, m)] for m in METRICS}
            | {"coverage": report().coverage[model]}
            for model, of in report().values.items()
        },
        "best": SECOND,
        "best_against": [vars(report().compare(SECOND, m)) for m in (FIRST, THIRD)],
    }
    assert found == expected
    assert list(found) == list(expected)
    assert report().to_json().startswith('{\n  "dataset": "a shop",\n')
    assert "α" in report().to_json()


def test_the_parquet_has_every_value_of_every_user(tmp_path):
    report().write_users(tmp_path / "users.parquet")
    table = pl.read_parquet(tmp_path / "users.parquet")
    assert table.columns == ["model", "user", *METRICS]
    assert table["model"].to_list() == [m for m in (FIRST, SECOND, THIRD) for _ in range(USERS)]
    assert table["user"].to_list() == report().users.tolist() * 3
    for metric in METRICS:
        whole = np.concatenate([of[metric] for of in report().values.values()])
        assert table[metric].to_list() == whole.tolist()


def test_the_repr_says_what_was_measured_on_whom():
    many = replace(report(), users=np.arange(1234))
    models = f"{FIRST}, {SECOND}, {THIRD}"
    assert repr(many) == f"Report(a shop, test, full, k = 7, 1,234 users: {models})"


def test_in_a_notebook_the_cells_are_those_of_the_text():
    tree = fromstring(replace(report(), dataset="<shop>")._repr_html_())
    assert tree.findtext("b") == "<shop>, test, full, 30 users"
    rows = [[cell.text or "" for cell in row] for row in tree.iter("tr")]
    assert rows == [HEAD, *slow_rows("text")]


def test_unknown_names_and_empty_reports_are_refused():
    one = report()
    for ask in (one.mean, one.interval):
        with pytest.raises(UnknownNameError, match="in this report 'EASEL'; did you mean 'EASE'"):
            ask("EASEL", "ndcg")
        with pytest.raises(UnknownNameError, match="unknown metric 'recal'; did you mean 'recall'"):
            ask(THIRD, "recal")
    with pytest.raises(UnknownNameError, match="format 'markdwn'; did you mean 'markdown'"):
        one.table("markdwn")
    with pytest.raises(LogerError, match="no user has test items in a shop"):
        replace(one, users=one.users[:0]).mean(FIRST, "ndcg")


def test_the_frame_has_a_row_for_each_model_with_its_means() -> None:
    made = report()
    frame = made.to_frame(["ndcg"])
    assert frame["model"].to_list() == list(made.models)
    assert frame["ndcg"].to_list() == [made.mean(m, "ndcg") for m in made.models]
    assert frame.columns == ["model", "ndcg", "ndcg_low", "ndcg_high", "p", "coverage"]
