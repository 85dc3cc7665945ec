"""Which reasons work: intervals, positions, variants and off-policy estimates, on planted truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.errors import LogerError
from loger.updates.events import Event, EventStore, events_path
from loger.updates.feedback import (
    Traffic,
    difference,
    estimate,
    new_id,
    ratio_at_same_places,
    report,
    variant_of,
    wilson,
)

# ── rates ───────────────────────────────────────────────────────────────────────────────


def test_intervals_are_those_of_the_literature() -> None:
    # Newcombe 1998, table II, example (a), methods 3 and 10.
    assert difference((56, 70), (48, 80)) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert wilson(81, 263) == pytest.approx((0.308, 0.2553, 0.3662), abs=5e-4)
    assert wilson(0, 0) == (0.0, 0.0, 1.0)


def test_the_ratio_at_the_same_places_is_that_of_mantel_and_haenszel() -> None:
    # Two places; a, n of the group and b, m of the others, term by term.
    clicked, shown = np.array([10, 2]), np.array([100, 50])
    all_clicked, all_shown = np.array([30, 12]), np.array([400, 250])
    top = 10 * 300 / 400 + 2 * 200 / 250
    bottom = 20 * 100 / 400 + 10 * 50 / 250
    ratio, low, high = ratio_at_same_places(clicked, shown, all_clicked, all_shown)
    assert ratio == pytest.approx(top / bottom)
    assert low < ratio < high
    assert np.log(high / ratio) == pytest.approx(np.log(ratio / low))


def test_the_interval_of_the_ratio_covers_the_truth_whatever_the_places() -> None:
    """A group that is 1.7 times as good, and shown mostly where nobody looks."""
    rng, covered, raw = np.random.default_rng(0), 0, 0
    places = np.array([0.2, 0.1, 0.05, 0.02])
    shown, others = np.array([50, 100, 400, 2000]), np.array([2000, 1000, 500, 300])
    for _ in range(400):
        a, b = rng.binomial(shown, 1.7 * places), rng.binomial(others, places)
        _, low, high = ratio_at_same_places(a, shown, a + b, shown + others)
        covered += low <= 1.7 <= high
        raw += a.sum() / shown.sum() > b.sum() / others.sum()
    assert 0.92 <= covered / 400 <= 0.98
    assert raw == 0  # without regard to places it would always look worse


def test_a_group_without_clicks_or_company_has_an_open_interval() -> None:
    nothing, some = np.array([0]), np.array([10])
    assert ratio_at_same_places(nothing, some, np.array([5]), np.array([50]))[1:] == (0.0, np.inf)
    assert np.isnan(ratio_at_same_places(some, some, some, some)[0])


# ── off policy ──────────────────────────────────────────────────────────────────────────


def planted(rng: np.random.Generator, people: int) -> tuple[np.ndarray, ...]:
    """Logs of a policy that depends on the person, of rewards that do too; and what another one
    would earn."""
    kinds = rng.integers(3, size=people)  # of people, each with two answers
    logged = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
    target = np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.0, 0.9, 0.1]])
    worth = np.array([[0.1, 0.3, 0.6], [0.2, 0.1, 0.5], [0.7, 0.4, 0.2]])
    action = np.array([rng.choice(3, p=logged[k]) for k in kinds])
    rewards = rng.random((people, 2)) < worth[kinds, action][:, None]
    truth = float((target * worth).sum(axis=1).mean())
    twice = [np.repeat(x[kinds, action], 2) for x in (logged, target)]
    return rewards.ravel(), *twice, np.repeat(np.arange(people), 2), np.array(truth)


def test_off_policy_estimates_find_the_planted_truth() -> None:
    rng = np.random.default_rng(1)
    found, covered = {"ips": list[float](), "snips": list[float]()}, {"ips": 0, "snips": 0}
    for _ in range(300):
        rewards, logged, target, people, truth = planted(rng, 300)
        told = estimate(rewards, logged, target, people)
        for name, (value, low, high) in (("ips", told.ips), ("snips", told.snips)):
            found[name].append(value)
            covered[name] += low <= truth <= high
    naive = float(rewards.mean())
    assert abs(naive - truth) > 0.03  # the log's own mean is not the answer
    assert np.mean(found["ips"]) == pytest.approx(truth, abs=0.01)
    assert np.mean(found["snips"]) == pytest.approx(truth, abs=0.01)
    assert all(0.91 <= n / 300 <= 0.985 for n in covered.values()), covered
    # That a person's answers go together makes intervals wider than if they did not.
    together, alone = estimate(rewards, logged, target, people), estimate(rewards, logged, target)
    assert together.ips[2] - together.ips[1] > 1.1 * (alone.ips[2] - alone.ips[1])


def test_off_policy_estimates_are_their_formulas() -> None:
    r, p, t = np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.25, 1.0]), np.array([1.0, 1.0, 0.0])
    told = estimate(r, p, t)
    assert told.ips[0] == pytest.approx((2 * 1 + 4 * 0 + 0) / 3)
    assert told.snips[0] == pytest.approx((2 * 1 + 4 * 0 + 0) / (2 + 4 + 0))
    assert told.effective == pytest.approx(6**2 / (2**2 + 4**2))
    for wrong in (([1.0], [0.0], [1.0]), ([1.0], [0.5], [2.0]), ([], [], []), ([1.0], [], [1.0])):
        with pytest.raises(LogerError):
            estimate(*wrong)


# ── traffic ─────────────────────────────────────────────────────────────────────────────


def test_traffic_is_a_share_of_users_who_stay_where_they_are() -> None:
    traffic = Traffic.read("90:10", 2)
    numbers = [traffic.variant(f"user {k}") for k in range(20_000)]
    assert np.mean(numbers) == pytest.approx(0.1, abs=0.01)
    assert numbers[:50] == [traffic.variant(f"user {k}") for k in range(50)]
    # More traffic for B takes nobody away from it.
    more = Traffic.read("80:20", 2)
    assert all(more.variant(f"user {k}") for k in range(20_000) if numbers[k])
    assert Traffic.read(None, 3).shares == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    for text, n in (("90", 2), ("90:x", 2), ("0:1", 2), ("nan:1", 2), ("-1:2", 2), ("1:1", 3)):
        with pytest.raises(LogerError, match="traffic needs a share above 0"):
            Traffic.read(text, n)
    with pytest.raises(LogerError, match="at most 16"):
        Traffic.read(None, 17)


# ── the report ──────────────────────────────────────────────────────────────────────────

EXAMINED = [0.5, 0.25, 0.12, 0.06]
"""How likely somebody is to look at each place."""


def log_of_clicks(path: Path, lists: int = 4_000, seed: int = 0) -> EventStore:
    """Lists in which items of the rule `good` are clicked twice as often at the same place, though
    they are mostly further down; variant B is clicked half as often as A."""
    rng, store, traffic = np.random.default_rng(seed), EventStore(path), Traffic.read("80:20", 2)
    answers, events = [], list[Event]()
    for n in range(lists):
        user = f"user {n % 800}"
        variant = traffic.variant(user)
        id_ = new_id(variant)
        items, names = [], rng.permutation(5)
        for place, examined in enumerate(EXAMINED):
            good = rng.random() < (0.1, 0.3, 0.7, 0.8)[place]
            rules = {"good" if good else "other": 1.0} | ({"idle": 0.5} if n % 2 else {})
            reason = {"relation": "bought", "total": 1.5, "encoder": 0.2, "rules": rules}
            items.append({"item": f"i{names[place]}", "score": 1.0, "reasons": [reason]})
            if rng.random() < examined * (0.6 if good else 0.3) * (0.5 if variant else 1.0):
                click = {"recommendation_id": id_, "item": items[-1]["item"]}
                events += [Event("click", click)] * 2  # clicked twice: counts once
        body = {"bundle": "ab"[variant], "propensity": traffic.shares[variant], "items": items}
        answers.append((id_, float(n), user, "AB"[variant], json.dumps(body)))
        if n % 10:  # clicks alone of the others: they may not count
            events.append(Event("impression", {"recommendation_id": id_}))
    events.append(Event("impression", {"recommendation_id": "0" * 16}))  # of a list that was lost
    store.log_answers(answers)
    store.append(events)
    return store


def test_a_report_finds_the_rule_that_works_and_the_better_variant(tmp_path: Path) -> None:
    told = report(log_of_clicks(tmp_path / "e.sqlite"))
    rules = {row["name"]: row for row in told["rules"]}
    good, other, idle = rules["good"], rules["other"], rules["idle"]
    assert good["rate"] < other["rate"]  # as it is mostly further down
    assert 1.5 < good["ratio_low"] < 2.0 < good["ratio_high"] < 2.6
    assert idle["ratio_low"] < 1.0 < idle["ratio_high"]
    assert told["rules"][0]["name"] == "good"
    assert [row["name"] for row in told["kinds"]] == ["bought, by rules"]
    assert len(told["items"]) == 5 and len(told["positions"]) == 4
    lists = told["lists"]
    assert (lists["made"], lists["seen"], lists["unknown"]) == (4_000, 3_600, 1)
    assert 50 < lists["only_clicked"] < 400
    a, b = told["variants"]
    assert (a["bundles"], b["bundles"]) == (["a"], ["b"])
    assert a["low"] > b["high"]
    assert told["difference"][0]["name"] == "B less A" and told["difference"][0]["high"] < 0
    for row in (a, b):  # had everybody got it, by the log of both
        assert row["snips"][1] < row["rate"] < row["snips"][2]
        assert row["ips"][0] == pytest.approx(row["rate"], abs=0.08)


def test_a_part_of_a_list_that_was_seen_is_all_that_counts(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.sqlite")
    items = [{"item": name, "score": 1.0, "reasons": None} for name in "abcd"]
    body = json.dumps({"bundle": "x", "propensity": 1.0, "items": items})
    store.log_answers([("0" * 16, 0.0, "u", "A", body), ("0" * 15 + "1", 0.0, None, "A", body)])
    store.append(
        [
            Event("impression", {"recommendation_id": "0" * 16, "items": ["a"]}),
            Event("impression", {"recommendation_id": "0" * 16, "items": ["b"]}),
            Event("click", {"recommendation_id": "0" * 16, "item": "d"}),
        ]
    )
    told = report(store, min_shown=1)
    assert sorted(row["name"] for row in told["items"]) == ["a", "b", "d"]
    assert told["clicks"] == 1 and told["lists"]["seen"] == 1
    assert told["kinds"][0]["name"] == "not explained" and not told["rules"]


def test_the_command_draws_tables_and_json(tmp_path: Path) -> None:
    store = log_of_clicks(events_path(tmp_path / "shop"), lists=400)
    (tmp_path / "shop").mkdir()
    drawn = CliRunner().invoke(app, ["feedback", "report", str(tmp_path / "shop")])
    assert drawn.exit_code == 0, drawn.output
    for words in ("variants", "kinds of reason", "rules", "ranks", "B less A", "unknown lists"):
        assert words in drawn.output
    told = CliRunner().invoke(app, ["feedback", "report", str(store.path), "--json"])
    assert {row["name"] for row in json.loads(told.output)["rules"]} == {"good", "other", "idle"}
    none = CliRunner().invoke(app, ["feedback", "report", str(tmp_path / "nothing")])
    assert none.exit_code == 2 and "no events yet" in none.output
    empty = EventStore(tmp_path / "empty.sqlite")
    drawn = CliRunner().invoke(app, ["feedback", "report", str(empty.path)])
    assert drawn.exit_code == 0 and "0 of 0 lists were seen" in drawn.output


def test_an_id_says_its_variant() -> None:
    assert [variant_of(new_id(k)) for k in (0, 1, 15)] == [0, 1, 15]
    assert len({new_id(1) for _ in range(100)}) == 100
