"""The user study: statistics against slow implementations, a blind task, raters over HTTP."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from scipy.stats import friedmanchisquare

from loger.cli import app
from loger.errors import DataError, LogerError
from loger.model import LOGER
from loger.study import Study, Task, friedman, kendall_w, make_tasks, results
from loger.study.store import simulate, simulated_answers
from loger.study.tasks import fitted_methods, of_bundles
from loger.web.study import create_study_app, next_page, welcome

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
            for rater, at, ranks in simulated_answers(tasks, 10, {}, seed)
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


FULL = """
import resource, sys
from loger.errors import LogerError
from loger.study import Study
from loger.study.store import Task
task = Task("ann", ("bought ink",), (("loger", ("a",)), ("random", ("b",))))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    Study.create(sys.argv[1], [task] * 200)
except LogerError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [0, 5_000, 12_000])
def test_a_study_that_a_full_disk_cannot_hold_is_told_in_one_line(tmp_path: Path, size) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "study"), str(size)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == "" and "can't write here" in done.stdout
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(DataError, match="already exists"):
        Study.create(study.path, study.tasks)
    (tmp_path / "x").write_text("no database, whatever its length may be" * 40)
    for path in (tmp_path / "x", tmp_path / "nowhere"):
        with pytest.raises(DataError):
            Study(path)


# ── tasks ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def made(default_model: LOGER) -> tuple[list[Task], object]:
    from loger.evaluation.faithfulness import RandomPaths

    model = default_model
    methods = {"loger": model, "random": RandomPaths(model, model.graph_, model.rules_)}
    return make_tasks(methods, model.graph_, model.rules_, 8, 5, 7), model


def test_tasks_have_history_and_paths_of_every_method(made: tuple[list[Task], object]) -> None:
    tasks, _ = made
    assert len({task.user for task in tasks}) == 8
    for one in tasks:
        assert sorted(one.methods) == ["loger", "random"]
        assert 0 < len(one.history) <= 7
        assert all(0 < len(paths) <= 5 for _, paths in one.shown)


def test_the_order_of_methods_differs_from_user_to_user(made: tuple[list[Task], object]) -> None:
    assert len({task.methods for task in made[0]}) == 2


def test_a_study_needs_methods_that_explain(made: tuple[list[Task], object]) -> None:
    model = made[1]
    assert isinstance(model, LOGER)
    with pytest.raises(LogerError, match="two methods"):
        make_tasks({"loger": model}, model.graph_, model.rules_)


# ── over HTTP ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def client(study: Study) -> Iterator[TestClient]:
    app = create_study_app(study)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


def ask(client: TestClient, path: str, form: dict[str, object] | None = None) -> tuple[int, str]:
    answer = client.get(path) if form is None else client.post(path, data=form)
    return answer.status_code, answer.text


def begun(client: TestClient, rater: str, **headers: str) -> dict[str, str]:
    """What the forms of a new rater say of who it is."""
    told = client.post("/begin", data={"rater": rater}, headers=headers)
    assert told.status_code == 303
    return dict(parse_qsl(urlsplit(told.headers["location"]).query))


def test_raters_answer_over_http_without_seeing_names(study: Study, client: TestClient) -> None:
    # Simulated raters with browsers: they know reason 1 ("two") when they read it.
    assert ask(client, "/")[0] == 200
    for rater in ("ann", "ben & co"):
        who = begun(client, rater)
        for at in range(TASKS):
            status, page = ask(client, "/rank?" + urlencode(who))
            assert status == 200
            assert f"Question {at + 1} of {TASKS}" in page
            assert not any(name in page for name in ("two", "three"))
            assert "<user" not in page  # labels are escaped
            reasons = re.findall(r"reason (\d)", page)
            ranks = {f"rank{k}": {"1": 1, "0": 2, "2": 3}[r] for k, r in enumerate(reasons)}
            fields = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)
            form = {name: unescape(value) for name, value in fields}
            assert form == {**who, "task": str(at)}
            status, _ = ask(client, "/answer", {**form, **ranks})
            assert status == 303
        assert "Thank you" in ask(client, "/rank?" + urlencode(who))[1]
    found = results(study.answers())
    assert found.average == (2.0, 3.0, 1.0)  # one, three, two
    assert found.agreement == pytest.approx(1)


NAMES = {
    "a script": "<script>alert(1)</script>",
    "an attribute": "\"><img src=x onerror=alert(1)> '",
    "an entity": "&lt;b&gt; &amp;quot;",
    "right to left": "\u202emoc.live\u2066 \u05d0\u05d1",
    "ten thousand letters": "x" * 10_000,
    "a form": "</li></ul><form action=//evil.com><input name=token>",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_the_data_are_text_on_every_page(name: str, tmp_path: Path) -> None:
    shown = tuple((method, (f"you bought {name}",)) for method in METHODS)
    study = Study.create(tmp_path / "s", [Task(name, (name,), shown)], title=name)
    plain = Study.create(
        tmp_path / "plain", [Task("u", ("m",), tuple((m, ("m",)) for m in METHODS))]
    )
    for page, usual in (
        (welcome(study, name), welcome(plain, "why")),
        (next_page(study, name, name, name), next_page(plain, "r", "t", "why")),
    ):
        assert Tags.of(page) == Tags.of(usual)  # the same elements with the same attributes
        assert name in unescape(page) and "overflow-wrap:anywhere" in page


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[tuple[str, list[str]]]()

    @classmethod
    def of(cls, page: str) -> list[tuple[str, list[str]]]:
        found = cls()
        found.feed(page)
        return found.seen

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, [name for name, _ in attrs]))


def test_what_is_no_answer_is_told_and_not_kept(study: Study, client: TestClient) -> None:
    good = {**begun(client, "ann"), "task": 0, "rank0": 1, "rank1": 2, "rank2": 3}
    for wrong in ({"rank1": 1}, {"task": "x"}, {"task": 99}, {"task": -1}, {"task": "9" * 4000}):
        assert ask(client, "/answer", good | wrong)[0] == 400
    for rater in ("", "a" * 100, "\u200b"):
        assert ask(client, "/begin", {"rater": rater})[0] == 400
        assert ask(client, "/answer", good | {"rater": rater})[0] == 403
    assert ask(client, "/answer", good | {"rater": "a" * 20_000})[0] == 413
    assert ask(client, "/answers", good)[0] == 404
    assert ask(client, "/../../etc/passwd")[0] == 404
    assert ask(client, "/rank")[0] == 403
    assert study.answers() == []
    assert ask(client, "/answer", good)[0] == 303


def test_who_knows_a_raters_name_can_neither_answer_nor_look_under_it(
    study: Study, client: TestClient
) -> None:
    study.answer("carl", 0, [1, 2, 3])  # not over HTTP
    ann, ben = begun(client, "Ann"), begun(client, "ben")
    ranks = {"task": 0, "rank0": 1, "rank1": 2, "rank2": 3}
    for rater in ("Ann", "ann", "ANN\u200b", "carl"):
        status, page = ask(client, "/begin", {"rater": rater})
        assert status == 403 and "That name is taken" in page
        for token in ("", "x", "\ud83d", ben["token"]):
            forged = {"rater": rater, "token": token.encode("utf-8", "replace").decode()}
            assert ask(client, "/rank?" + urlencode(forged))[0] == 403
            assert ask(client, "/answer", forged | ranks)[0] == 403
    assert [rater for rater, _, _ in study.answers()] == ["carl"]
    assert ann["token"] not in study.path.read_bytes().decode("latin-1")
    assert ask(client, "/answer", ann | ranks)[0] == 303


def test_a_study_that_is_locked_or_damaged_is_told_and_the_server_goes_on(
    study: Study, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda path, **_: connect(path, timeout=0.05))
    form = {**begun(client, "ann"), "task": 0, "rank0": 1, "rank1": 2, "rank2": 3}
    with closing(connect(study.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for path, given in (("/", None), ("/begin", form), ("/answer", form)):
            status, page = ask(client, path, given)
            assert status == 503 and "try again" in page
        other.rollback()
        other.execute("UPDATE task SET content = '{\"user\": 1}' WHERE id = 1")
        other.commit()
        assert ask(client, "/answer", form)[0] == 503
        other.execute("DELETE FROM task WHERE id = 1")
        other.commit()
        assert ask(client, "/")[0] == 503  # tasks have numbers without gaps
    assert study.answers() == []


def test_the_pages_are_behind_the_guard_of_the_app(client: TestClient) -> None:
    page = client.get("/")
    assert "script" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    # A page elsewhere that points its own name at this machine (DNS rebinding).
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/v1/openapi.json").status_code == 404


def test_one_command_makes_the_papers_study_of_three_methods(
    default_bundle: Path, paper_bundle: Path, tmp_path: Path
) -> None:
    file = tmp_path / "study.sqlite"
    run = CliRunner()
    both = str(default_bundle), str(paper_bundle)
    made = run.invoke(app, ["study", "make", *both, "-o", str(file), "--tasks", "6"])
    assert made.exit_code == 0, made.output
    tasks = Study(file).tasks
    assert sorted(tasks[0].methods) == ["LOGER", "paper", "random"]
    assert max(len(task.history) for task in tasks) == 50
    assert max(len(paths) for task in tasks for _, paths in task.shown) == 10
    simulated = run.invoke(
        app, ["study", "simulate", str(file), "--raters", "20", "--quality", "LOGER=2", "--json"]
    )
    found = json.loads(simulated.stdout)
    assert (found["raters"], found["answers"]) == (20, 120)
    assert found["methods"][int(np.argmin(found["average"]))] == "LOGER"
    assert found["p"] < 0.01


def test_bundles_of_other_data_or_of_the_same_model_are_refused(
    default_bundle: Path, demo_run: Path
) -> None:
    with pytest.raises(LogerError, match="need the same data set"):
        of_bundles([default_bundle, demo_run / "loger-demo" / "bundle"])
    with pytest.raises(LogerError, match="different models"):
        of_bundles([default_bundle, default_bundle])
    with pytest.raises(LogerError, match="--data PATH"):
        fitted_methods(["pgpr"], of_bundles([default_bundle]), None)


def test_the_command_says_where_raters_go(study: Study, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loger", "study", "serve", str(study.path), "--port", "0"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **streams) as process:
        assert process.stdout is not None
        found = (re.search(r"http://(\S+:\d+)", line) for line in process.stdout)
        address = next(match[1] for match in found if match)  # an error if it ends before
        try:
            connection = HTTPConnection(address, timeout=30)
            connection.request("GET", "/")
            with connection.getresponse() as answer:
                assert answer.status == 200
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=30)
    assert "stopped; to see the results, run loger study results" in said


def made_study(path: Path) -> Study:
    shown = (("loger", ("a",)), ("random", ("b",)))
    return Study.create(path, [Task("ann", ("bought ink",), shown)] * 2)


def test_one_person_is_one_rater_however_the_name_is_typed(tmp_path: Path) -> None:
    study = made_study(tmp_path / "s")
    study.answer("Ann", 0, [1, 2])
    assert study.next_for(" ann\u200b ") == 1
    with pytest.raises(LogerError, match="there is already an answer"):
        study.answer("ANN\u200d", 0, [2, 1])
    with pytest.raises(LogerError, match="1 to 80 characters"):
        study.answer("\u200b", 1, [1, 2])


def test_a_form_from_another_origin_is_refused(tmp_path: Path) -> None:
    study = made_study(tmp_path / "s")
    client = TestClient(
        create_study_app(study), base_url="http://localhost:8010", follow_redirects=False
    )
    # With a policy of no referrer, a browser calls our own page "null", as it calls a frame without
    # an origin.
    assert client.get("/").headers["referrer-policy"] == "same-origin"
    form = {**begun(client, "ann", Origin="http://localhost:8010"), "task": 0}
    form |= {"rank0": 1, "rank1": 2}
    for origin, status in (
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost:8010", 303),
    ):
        for path, given in (("/begin", {"rater": f"x{status}"}), ("/answer", form)):
            told = client.post(path, data=given, headers={"Origin": origin})
            assert told.status_code == status
    assert len(study.answers()) == 1


def test_a_damaged_study_is_read_or_refused_with_one_line(tmp_path: Path) -> None:
    study = made_study(tmp_path / "s")
    study.answer("ann", 0, [1, 2])
    whole, rng = (tmp_path / "s").read_bytes(), np.random.default_rng(0)
    refused = 0
    for k in range(300):
        raw = bytearray(whole)
        used = np.flatnonzero(np.frombuffer(whole, dtype=np.uint8))
        for place in rng.choice(used, 4):
            raw[place] = rng.integers(256)
        (tmp_path / f"d{k}").write_bytes(raw)
        try:
            damaged = Study(tmp_path / f"d{k}")
            read = damaged.tasks, damaged.title, damaged.answers(), damaged.next_for("bob")
            assert len(read) == 4
        except LogerError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 50
