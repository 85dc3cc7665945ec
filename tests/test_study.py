"""The user study: statistics against slow twins, a blind task, raters end to end over HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from loger.errors import DataError, LogerError
from loger.study import Study, Task, friedman, kendall_w, make_tasks, results
from loger.study.server import serve
from loger.study.simulated import answers, simulate

METHODS = ("one", "two", "three")
TASKS = 6


def task(user: str, order: tuple[int, ...] = (0, 1, 2)) -> Task:
    shown = tuple((METHODS[k], (f"you bought <{user}>, reason {k}",)) for k in order)
    return Task(user, ("you bought ink",), shown)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    rng = np.random.default_rng(0)
    tasks = [task(f"user {k}", tuple(rng.permutation(3).tolist())) for k in range(TASKS)]
    return Study.create(tmp_path / "study.sqlite", tasks, "A study")


# ── statistics ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_friedman_is_that_of_scipy(seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 4, (9, 4)).astype(float)  # with ties
    ours, theirs = friedman(values), friedmanchisquare(*values.T)
    assert ours == pytest.approx((theirs.statistic, theirs.pvalue))


def test_kendall_w_goes_from_none_to_full_agreement() -> None:
    assert kendall_w([[1, 2, 3]] * 5) == pytest.approx(1)
    assert kendall_w([[1, 2, 3], [2, 3, 1], [3, 1, 2]]) == pytest.approx(0)
    # W = 12 S / (m² (n³ − n)), S the squared deviations of rank sums
    ranks = np.array([[1, 2, 3, 4], [2, 1, 3, 4], [1, 3, 2, 4]])
    sums = ranks.sum(axis=0)
    slow = 12 * ((sums - sums.mean()) ** 2).sum() / (3**2 * (4**3 - 4))
    assert kendall_w(ranks) == pytest.approx(slow)


def test_ranks_that_are_all_alike_are_no_difference() -> None:
    assert friedman([[1, 1, 1], [2, 2, 2]]) == (0.0, 1.0)


def test_simulated_raters_who_see_a_difference_find_it(study: Study) -> None:
    simulate(study, 12, {"two": 2.0})
    found = results(study.answers())
    best = found.methods[int(np.argmin(found.average))]
    assert (best, found.raters, found.tasks, found.answers) == ("two", 12, TASKS, 12 * TASKS)
    assert found.p < 0.001
    assert found.agreement > 0.3
    at = found.methods.index("two")
    assert found.low[at] < found.average[at] < found.high[at] < 1.5
    assert found.first[at] > 0.7


def test_simulated_raters_who_guess_find_nothing_more_often_than_chance() -> None:
    tasks = [task(f"u{k}") for k in range(4)]
    ps = []
    for seed in range(40):
        given = [
            (rater, at, dict(zip(METHODS, map(float, ranks), strict=True)))
            for rater, at, ranks in answers(tasks, 10, {}, seed)
        ]
        ps.append(results(given, samples=10).p)
    assert np.mean(np.array(ps) < 0.05) < 0.2
    assert np.median(ps) > 0.2


def test_average_ranks_of_a_small_study_by_hand() -> None:
    given = [
        ("ann", 0, {"a": 1, "b": 2}), ("ann", 1, {"a": 2, "b": 1}),
        ("ben", 0, {"a": 1, "b": 2}),
    ]  # fmt: skip
    found = results(given)
    assert found.average == (1.25, 1.75)  # raters count alike: (1.5 + 1) / 2
    assert found.first == pytest.approx((2 / 3, 1 / 3))
    assert found.agreement == pytest.approx(1)  # task 0 alone has two raters
    with pytest.raises(LogerError, match="nobody"):
        results([])


# ── the file ────────────────────────────────────────────────────────────────────────────


def test_a_study_keeps_tasks_and_answers(study: Study) -> None:
    again = Study(study.path)
    assert again.tasks == study.tasks
    assert again.title == "A study"
    assert again.next_for("ann") == 0
    again.answer("ann", 0, [2, 1, 3])
    assert study.next_for("ann") == 1
    assert study.next_for("ben") == 0
    ((_, _, ranks),) = study.answers()
    assert ranks == dict(zip(study.tasks[0].methods, [2, 1, 3], strict=True))


def test_answers_that_are_none_are_refused(study: Study, tmp_path: Path) -> None:
    study.answer("ann", 0, [1, 2, 3])
    for rater, at, ranks in [
        ("ann", 0, [1, 2, 3]), ("ben", 0, [1, 1, 2]), ("ben", 0, [1, 2]), ("ben", 99, [1, 2, 3]),
        (" ", 0, [1, 2, 3]), ("b" * 81, 0, [1, 2, 3]),
    ]:  # fmt: skip
        with pytest.raises(LogerError):
            study.answer(rater, at, ranks)
    assert len(study.answers()) == 1
    with pytest.raises(LogerError, match="people"):
        simulate(study, 1, {})
    with pytest.raises(DataError, match="exists"):
        Study.create(study.path, study.tasks)
    (tmp_path / "x").write_text("no database, whatever its length may be" * 40)
    for path in (tmp_path / "x", tmp_path / "nowhere"):
        with pytest.raises(DataError):
            Study(path)


# ── tasks ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def made() -> tuple[list[Task], object]:
    from loger.data.demo import shop
    from loger.data.splits import split
    from loger.encoder import TransEConfig
    from loger.evaluation.faithfulness import RandomPaths
    from loger.model import LOGER, LOGERConfig

    parts = split(shop(users=150, items=120).dataset)
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2))
    model = LOGER(config).fit(parts)
    methods = {"loger": model, "random": RandomPaths(model, model.graph_, model.rules_)}
    return make_tasks(methods, model.graph_, model.rules_, 8, 5), model


def test_tasks_have_history_and_paths_of_every_method(made: tuple[list[Task], object]) -> None:
    tasks, _ = made
    assert len({task.user for task in tasks}) == 8
    for one in tasks:
        assert sorted(one.methods) == ["loger", "random"]
        assert 0 < len(one.history) <= 5
        assert all(0 < len(paths) <= 5 for _, paths in one.shown)


def test_the_order_of_methods_differs_from_user_to_user(made: tuple[list[Task], object]) -> None:
    assert len({task.methods for task in made[0]}) == 2


def test_a_study_needs_methods_that_explain(made: tuple[list[Task], object]) -> None:
    from loger.model import LOGER

    model = made[1]
    assert isinstance(model, LOGER)
    with pytest.raises(LogerError, match="two methods"):
        make_tasks({"loger": model}, model.graph_, model.rules_)


# ── over HTTP ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def address(study: Study) -> Iterator[tuple[str, int]]:
    server = serve(study, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    host, port = server.server_address[:2]
    yield str(host), int(port)
    server.shutdown()
    thread.join()
    server.server_close()


def ask(
    address: tuple[str, int], path: str, form: dict[str, object] | None = None
) -> tuple[int, str]:
    link = HTTPConnection(*address, timeout=10)
    head = {"Content-Type": "application/x-www-form-urlencoded"}
    if form is None:
        link.request("GET", path)
    else:
        link.request("POST", path, urlencode(form), head)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, text


def test_raters_answer_over_http_without_seeing_names(
    study: Study, address: tuple[str, int]
) -> None:
    # Simulated raters with browsers: they know reason 1 ("two") when they read it.
    assert ask(address, "/")[0] == 200
    for rater in ("ann", "ben & co"):
        for at in range(TASKS):
            status, page = ask(address, "/rank?" + urlencode({"rater": rater}))
            assert status == 200
            assert f"Question {at + 1} of {TASKS}" in page
            assert not any(name in page for name in ("two", "three"))
            assert "<user" not in page  # labels are escaped
            reasons = re.findall(r"reason (\d)", page)
            ranks = {f"rank{k}": {"1": 1, "0": 2, "2": 3}[r] for k, r in enumerate(reasons)}
            status, _ = ask(address, "/answer", {"rater": rater, "task": at, **ranks})
            assert status == 303
        assert "Thank you" in ask(address, "/rank?" + urlencode({"rater": rater}))[1]
    found = results(study.answers())
    assert found.average == (2.0, 3.0, 1.0)  # one, three, two
    assert found.agreement == pytest.approx(1)


def test_what_is_no_answer_is_told_and_not_kept(study: Study, address: tuple[str, int]) -> None:
    good = {"rater": "ann", "task": 0, "rank0": 1, "rank1": 2, "rank2": 3}
    for wrong in ({"rank1": 1}, {"task": "x"}, {"task": 99}, {"task": -1}, {"rater": ""}):
        assert ask(address, "/answer", good | wrong)[0] == 400
    assert ask(address, "/answer", good | {"rater": "a" * 20_000})[0] == 400
    assert ask(address, "/answers", good)[0] == 404
    assert ask(address, "/../../etc/passwd")[0] == 404
    assert ask(address, "/rank")[0] == 400
    assert study.answers() == []
    assert ask(address, "/answer", good)[0] == 303


def test_the_command_tells_machines_where_raters_go(study: Study, tmp_path: Path) -> None:
    file = str(tmp_path / "study.sqlite")
    process = subprocess.Popen(
        [sys.executable, "-m", "loger", "study", "serve", file, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        assert told["study"] == file
        connection = HTTPConnection(told["url"].removeprefix("http://").rstrip("/"), timeout=30)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert "stopped; for the results: loger study results" in said
