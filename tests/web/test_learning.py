"""Events over HTTP: stored before they are acknowledged, effective at once, folded now and then."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from loger.cli import app as cli
from loger.data.splits import Split
from loger.errors import LogerError
from loger.graph import DISLIKED, whole
from loger.model import LOGER
from loger.updates.events import EventStore, events_path
from loger.updates.feedback import Traffic, report
from loger.updates.pending import Pending
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.folding import folded_seq
from loger.web.live import Events
from web_shop import SMALL


@pytest.fixture
def place(bundle: Path, tmp_path: Path) -> Path:
    shutil.copytree(bundle, tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    config = ServeConfig(str(place), merge_interval=0)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        yield client


def sent(client: TestClient, *events: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = client.post("/v1/events", json={"events": events}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(client: TestClient, user: str, k: int = 10) -> list[str]:
    answer = client.get("/v1/recommendations", params={"user": user, "k": k, "explain": "false"})
    assert answer.status_code == 200, answer.text
    return [row["item"] for row in answer.json()["items"]]


def until(what: Callable[[], bool], seconds: float = 180.0) -> float:
    """How long it takes until something holds."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() < begun + seconds
        time.sleep(0.05)
    return time.monotonic() - begun


# ── acting at once ──────────────────────────────────────────────────────────────────────


def test_what_a_user_did_acts_on_the_next_request_as_a_model_with_it_says(client, model):
    user, before = model.users[3], listed(client, model.users[3])
    sent(client, {"kind": "interaction", "user": user, "item": before[0], "time": 2_000_000_000})
    after = listed(client, user)
    assert before[0] not in after
    known = model.with_interactions([(user, before[0])], [2_000_000_000])
    assert after == known.recommend(user, k=10)["item"].to_list()
    history = client.get("/v1/history", params={"user": user}).json()["items"]
    assert history[0]["item"] == before[0]
    why = client.get("/v1/explain", params={"user": user, "item": after[0], "reasons": "all"})
    assert before[0] in {reason["entity"]["name"] for reason in why.json()["reasons"]}


def test_what_is_asked_beside_what_happened_counts_too(client, model):
    user, (first, second, *_) = model.users[4], listed(client, model.users[4])
    sent(client, {"kind": "interaction", "user": user, "item": first})
    ask = {"user": user, "add": [second], "remove": [first]}
    told = client.post("/v1/what-if", json=ask).json()
    wanted = model.what_if(user, add=[second], k=11).as_dict()["after"]
    assert first in wanted  # but what a question removes isn't recommended
    assert [row["item"] for row in told["after"]] == [v for v in wanted if v != first]
    assert first not in told["before"]
    refused = client.post("/v1/what-if", json={"user": user, "remove": [second]})
    assert refused.status_code == 409


def test_a_disliked_item_is_hidden_at_once_and_after_a_fold_and_comes_back_when_taken(
    place, client, model
):
    user = model.users[3]
    hidden, viewed = listed(client, user)[:2]
    sent(
        client,
        {"kind": "dislike", "user": user, "item": hidden},
        {"kind": "interaction", "user": user, "item": viewed, "behaviour": "Viewed"},
    )
    everything = listed(client, user, 100)
    assert hidden not in everything and viewed in everything
    pending = Pending(whole(model.graph_))
    store = EventStore(events_path(place))
    pending.add(store.after(0))
    store.close()
    fold, refused = pending.fold("store")
    assert not refused
    later = model.fold(fold, "today")
    relations = {r.name for r in later.graph_.relations}
    assert {DISLIKED, "viewed"} <= relations
    assert hidden not in later.recommend(user, 100)["item"]
    assert viewed in later.recommend(user, 100)["item"] and viewed not in later.owned(user)
    fact = {"head": user, "relation": DISLIKED, "tail": hidden}
    sent(client, {"kind": "delete", **fact, "head_type": "user", "tail_type": "item"})
    assert hidden in listed(client, user, 100)
    sent(client, {"kind": "dislike", "user": user, "item": hidden})
    sent(client, {"kind": "interaction", "user": user, "item": hidden})
    assert client.get("/v1/history", params={"user": user}).json()["items"][0]["item"] == hidden


@pytest.mark.parametrize(
    ("typo", "meant"), [("vieved", "viewed"), ("Viewwed", "viewed"), ("dislked", "disliked")]
)
def test_a_typo_in_a_behaviour_is_refused_with_a_suggestion(client, model, typo, meant):
    event = {"kind": "interaction", "user": model.users[0], "item": model.items[0]}
    batch = {"events": [event, {**event, "behaviour": typo}]}
    refused = client.post("/v1/events", json=batch)
    assert refused.status_code == 422
    assert (
        f"unknown behaviour {typo!r}; did you mean {meant!r}" in refused.json()["error"]["message"]
    )
    assert client.get("/v1/about").json()["staleness"]["events"] == 0  # nothing was stored
    sent(client, {**event, "behaviour": "Added to cart"})


def test_a_name_in_either_form_of_unicode_is_one_user(client, place, model):
    composed, decomposed = "Jos\u00e9", "Jose\u0301"
    for name, item in zip((composed, decomposed), model.items, strict=False):
        sent(client, {"kind": "interaction", "user": name, "item": item, "time": 1})
    for name in (composed, decomposed):
        told = client.get("/v1/history", params={"user": name}).json()
        assert told["user"] == composed and len(told["items"]) == 2
    file = str(events_path(place))
    for option in (["--events", file], ["--forget-user", decomposed]):
        done = CliRunner().invoke(cli, ["update", str(place), *option])
        assert done.exit_code == 0, done.output
        assert (composed in LOGER.load(place).users) is (option[0] == "--events")
    done = CliRunner().invoke(cli, ["update", str(place), "--events", file, "--forget-user", "x"])
    assert done.exit_code == 2 and "can't be combined" in done.output  # neither is ignored


def test_somebody_new_is_known_from_the_first_event_on(client, model):
    items = model.items[:3]
    assert client.get("/v1/recommendations", params={"user": "newcomer"}).status_code == 404
    for k, item in enumerate(items):
        sent(client, {"kind": "interaction", "user": "newcomer", "item": item, "time": k})
    told = client.get("/v1/recommendations", params={"user": "newcomer"}).json()
    guest = client.post("/v1/recommendations", json={"history": items}).json()
    assert told["user"] == "newcomer"
    assert {row["explanation"]["user"] for row in told["items"]} == {"newcomer"}
    assert [row["item"] for row in told["items"]] == [row["item"] for row in guest["items"]]
    assert client.get("/v1/history", params={"user": "newcomer"}).json()["label"] == "newcomer"
    assert client.get("/v1/profile", params={"user": "newcomer"}).json()["user"] == "newcomer"


def test_who_is_deleted_is_unknown_at_once_and_may_come_back(client, model):
    user = model.users[5]
    sent(client, {"kind": "delete", "user": user})
    assert client.get("/v1/recommendations", params={"user": user}).status_code == 404
    assert user not in str(client.get("/v1/users", params={"q": user}).json())
    sent(client, {"kind": "interaction", "user": user, "item": model.items[0]})
    history = client.get("/v1/history", params={"user": user}).json()["items"]
    assert [row["item"] for row in history] == [model.items[0]]


def test_deleted_items_and_interactions_are_gone_at_once(client, model):
    user, best = model.users[6], listed(client, model.users[6])[0]
    sent(client, {"kind": "delete", "item": best})
    assert best not in listed(client, user, 100)
    assert client.get("/v1/facts", params={"item": best}).status_code == 404
    owned = client.get("/v1/history", params={"user": user}).json()["items"][0]["item"]
    sent(client, {"kind": "delete", "user": user, "item": owned})
    left = client.get("/v1/history", params={"user": user}).json()["items"]
    assert owned not in {row["item"] for row in left}


# ── keeping ─────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_is_sent_again_counts_once(client, model):
    one = {"kind": "interaction", "user": "x", "item": model.items[0]}
    batch = {"Idempotency-Key": "monday"}
    assert sent(client, one, one, **batch) == {"stored": 2, "duplicates": 0, "last": 2}
    assert sent(client, one, one, **batch)["duplicates"] == 2
    assert sent(client, {**one, "key": "k"}, {**one, "key": "k"})["duplicates"] == 1


def test_after_a_start_everything_acknowledged_is_there(place, model):
    user = model.users[7]
    config = ServeConfig(str(place), merge_interval=0)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        best = listed(client, user)[0]
        sent(client, {"kind": "interaction", "user": user, "item": best})
        after = listed(client, user)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        assert listed(client, user) == after
        told = client.get("/v1/about").json()["staleness"]
    assert told["events"] == told["applied"] == told["not_folded"] == 1
    assert told["bundle_age"] > 0 <= told["oldest_not_folded"]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({}, "body.events.0 needs a kind"),
        ({"kind": "purchase"}, "body.events.0 has kind 'purchase', must have one of 'interaction'"),
        ({"kind": "interaction", "user": "x"}, "body.events.0.item is missing"),
        (
            {"kind": "click", "recommendation_id": "x", "item": "y"},
            "from the answer that contained the list",
        ),
        ({"kind": "interaction", "user": "x", "item": "y", "tme": 3}, "body.events.0.tme is not"),
        ({"kind": "interaction", "user": 3, "item": "y"}, "body.events.0.user must be text, got 3"),
        ({"kind": "interaction", "user": "x", "item": "y", "time": "noon"}, "seconds since 1970"),
        ({"kind": "delete"}, "give a user, an item, both (for their interaction), or head"),
        ({"kind": "delete", "user": "x", "head": "y"}, "give a user, an item, both"),
    ],
)
def test_a_bad_event_is_told_in_our_words_and_none_of_its_batch_is_kept(client, event, words):
    good = {"kind": "interaction", "user": "x", "item": "y"}
    answer = client.post("/v1/events", json={"events": [event, good]})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]
    assert client.get("/v1/about").json()["staleness"]["events"] == 0


def test_events_need_json_and_from_elsewhere_a_key(client, place):
    body = '{"events": [{"kind": "user", "user": "x"}]}'
    plain = client.post("/v1/events", content=body, headers={"Content-Type": "text/plain"})
    assert plain.status_code == 422
    assert client.post("/v1/events", json={"events": []}).status_code == 422
    open_ = TestClient(create_app(ServeConfig(str(place), host="0.0.0.0")))
    assert open_.post("/v1/events", json=json.loads(body)).status_code == 403
    deaf = TestClient(
        create_app(ServeConfig(str(place), events=False)), base_url="http://localhost"
    )
    assert deaf.post("/v1/events", json=json.loads(body)).status_code == 403


def test_what_cannot_be_kept_is_not_acknowledged(place):
    config = ServeConfig(str(place), events_file="/proc/none/events.sqlite")
    client = TestClient(create_app(config), base_url="http://localhost")
    answer = client.post("/v1/events", json={"events": [{"kind": "user", "user": "x"}]})
    assert answer.status_code == 503
    assert "can't store events" in answer.json()["error"]["message"]


def test_what_was_kept_is_acknowledged_though_it_cannot_be_followed(client, monkeypatch):
    events: Events = client.app.state.events

    def broken(store: EventStore) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(client.app.state.variants.services[0], "follow", broken)
    sent(client, {"kind": "user", "user": "x"})
    assert client.get("/v1/health/ready").status_code == 503
    monkeypatch.undo()
    until(lambda: events.problem is None)
    assert client.get("/v1/recommendations", params={"user": "x"}).status_code == 200


def test_a_folder_that_cannot_be_written_to_holds_up_no_list(place):
    config = ServeConfig(str(place), events_file="/proc/none/events.sqlite")
    with TestClient(create_app(config), base_url="http://localhost") as client:
        for _ in range(3):
            user = client.get("/v1/users", params={"limit": 1}).json()["results"][0]["name"]
            listed(client, user)
            time.sleep(0.3)
        assert client.get("/v1/health/ready").status_code == 200


def test_a_thousand_events_fit_and_ten_thousand_do_not(client):
    one = {"kind": "interaction", "user": "somebody", "item": "something", "time": 1_763_366_400}
    assert sent(client, *[one] * 1_000)["stored"] == 1_000
    assert client.post("/v1/events", json={"events": [one] * 1_001}).status_code == 422
    assert client.post("/v1/events", json={"events": [one] * 20_000}).status_code == 413


def test_liveness_and_readiness(client, place):
    assert client.get("/v1/health/live").json() == {"status": "live"}
    assert client.get("/v1/health/ready").json() == {"status": "ready"}
    events: Events = client.app.state.events
    events.problem = "the disk is gone"
    answer = client.get("/v1/health/ready")
    events.problem = None
    assert answer.status_code == 503 and "disk" in answer.json()["error"]["message"]
    kept = TestClient(create_app(ServeConfig(str(place), api_key="k")), base_url="http://localhost")
    assert kept.get("/v1/health/ready").status_code == 200
    assert kept.get("/v1/about").status_code == 401


# ── folding ─────────────────────────────────────────────────────────────────────────────


def test_items_and_facts_act_when_the_server_has_folded_them(place, model, caplog):
    brand = next(iter(model.graph_.vocabulary.ids("brand")))
    config = ServeConfig(str(place), merge_interval=600)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        item = {"kind": "item", "item": "lamp-9", "label": "Lamp", "facts": {"has_brand": [brand]}}
        taken = {"kind": "interaction", "user": "newcomer", "item": "lamp-9"}
        verb = model.graph_.relations[0].name
        sent(client, item, taken, {"kind": "fact", "head": "x", "relation": verb, "tail": "secret"})
        until(lambda: client.get("/v1/facts", params={"item": "lamp-9"}).status_code == 200)
        history = client.get("/v1/history", params={"user": "newcomer"}).json()["items"]
        assert [row["item"] for row in history] == ["lamp-9"]
        told = client.get("/v1/about").json()["staleness"]
        assert told["not_folded"] == 0 and told["applied"] == told["events"] == 3
        # What a fold could not take in is in the server's log, by number, not by name.
        skipped = f"skipped, the first in event 3: {verb!r} is the name of the interaction"
        until(lambda: skipped in caplog.text, 20)
    store = EventStore(events_path(place))
    assert folded_seq(place, store.id) == 3
    assert "secret" not in caplog.text
    assert LOGER.load(place).history("newcomer")["item"].to_list() == ["lamp-9"]


def test_a_fold_that_fails_is_told_by_health_until_one_succeeds(place, model, monkeypatch):
    monkeypatch.setattr("loger.web.live.FOLD_DELAY_S", 0.0)
    monkeypatch.setattr("loger.web.live.MIN_IDLE_RATIO", 0.0)
    wrong = ["it went wrong"]

    def run(folder):
        if wrong:
            raise LogerError(wrong[0])

    monkeypatch.setattr("loger.web.live._Folder._run", run)
    config = ServeConfig(str(place), merge_interval=600)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        assert client.get("/v1/health").json()["status"] == "ok"
        sent(client, {"kind": "item", "item": "lamp-9"})
        until(lambda: client.get("/v1/health").json()["status"] == "degraded")
        assert "not merged" in client.get("/v1/health").json()["problem"]
        wrong.clear()
        until(lambda: client.get("/v1/health").json()["status"] == "ok")


def test_a_clock_that_is_set_back_holds_up_no_fold(place, monkeypatch):
    folds = list[float]()
    monkeypatch.setattr("loger.web.live._Folder._run", lambda folder: folds.append(1.0))
    real = time.time
    with TestClient(create_app(ServeConfig(str(place))), base_url="http://localhost") as client:
        sent(client, {"kind": "item", "item": "lamp-9"})
        monkeypatch.setattr(time, "time", lambda: real() - 3600)
        until(lambda: bool(folds), 20)


def test_the_names_that_one_address_may_bring_in_a_day_are_bounded(client, monkeypatch):
    monkeypatch.setattr("loger.web.live.MAX_NEW", 5)
    facts = {"made_of": ["oak", "ash"]}
    sent(client, {"kind": "item", "item": "lamp-9", "facts": facts})
    sent(client, {"kind": "item", "item": "lamp-9"})  # no longer new
    more = {"kind": "interaction", "user": "one", "item": "lamp-10"}
    sent(client, more)
    event = {"kind": "interaction", "user": "two", "item": "lamp-9"}
    told = client.post("/v1/events", json={"events": [event]})
    assert told.status_code == 429 and "more than 5 new names" in told.text
    sent(client, {**more, "key": "again"})


def test_a_list_of_who_is_forgotten_meanwhile_is_not_written_down(client, model, place):
    user = model.users[0]
    events = client.app.state.events
    events._end.set()  # nobody else writes
    listed(client, user)
    assert len(events._answers) == 1
    sent(client, {"kind": "delete", "user": user})
    events.flush()
    assert events.store().answers() == []


# ── processes ───────────────────────────────────────────────────────────────────────────


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loger", "serve", *arguments, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        found = next(m for s in process.stderr if (m := re.search(r"running on (http://\S+)", s)))
        url = found[1]
        until(lambda: answered(f"{url}/v1/health/ready"))
        yield url, process
    finally:
        killed(process)


def killed(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def answered(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


def posted(url: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"events": events}).encode()
    request = urllib.request.Request(
        f"{url}/v1/events", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_every_worker_knows_an_event_within_a_second(place, model):
    with serving(str(place), "--workers", "2", "--set", "merge_interval=0") as (url, _):
        for k in range(3):
            posted(url, [{"kind": "interaction", "user": f"new{k}", "item": model.items[k]}])
            time.sleep(1.0)
            # New connections: either worker may answer.
            assert all(answered(f"{url}/v1/history?user=new{k}") for _ in range(12))


@pytest.mark.long
def test_kills_under_load_lose_nothing_acknowledged_and_apply_nothing_twice(place, model):
    acknowledged, n = set[str](), 0
    for _ in range(3):
        with serving(str(place), "--set", "merge_interval=2") as (url, process):
            end = time.monotonic() + 4.0
            while time.monotonic() < end:
                keys = [f"{n + k}" for k in range(10)]
                n += 10
                rows = [
                    {"kind": "interaction", "user": f"p{key}", "item": model.items[0], "key": key}
                    for key in keys
                ]
                posted(url, rows)
                acknowledged |= set(keys)
            killed(process)
    store = EventStore(events_path(place))
    kept = [e.body["user"] for e in store.after(0)]
    assert len(kept) == len(set(kept)) and {f"p{key}" for key in acknowledged} <= set(kept)
    from loger.web.folding import fold

    fold(place, store.path, now=time.time(), when="2026-11-17")
    users = [u for u in LOGER.load(place).users if u.startswith("p") and u[1:].isdigit()]
    assert sorted(users) == sorted(kept)


# ── two bundles ─────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def other(few: Split, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shop, fitted with another seed."""
    folder = tmp_path_factory.mktemp("other") / "new"
    LOGER(SMALL, seed=3).fit(few, tune={}).save(folder)
    return folder


def test_two_bundles_side_by_side_and_what_is_kept_of_their_lists(place, other, model):
    config = ServeConfig(str(place), others=(str(other),), traffic=(0.5, 0.5), merge_interval=0)
    models, traffic = [model, LOGER.load(other)], Traffic((0.5, 0.5))
    with TestClient(create_app(config), base_url="http://localhost") as client:
        ids = {}
        for user in model.users[:12]:
            number = traffic.variant(user)
            told = client.get("/v1/recommendations", params={"user": user, "k": 5}).json()
            wanted = models[number].recommend(user, k=5)["item"].to_list()
            assert [row["item"] for row in told["items"]] == wanted
            assert told["variant"] == "AB"[number]
            why = client.get("/v1/explain", params={"user": user, "item": wanted[0]}).json()
            assert why["score"] == pytest.approx(told["items"][0]["explanation"]["score"])
            ids[user] = told["recommendation_id"], wanted[0]
        assert len({traffic.variant(user) for user in ids}) == 2
        clicks = [
            {"kind": kind, "recommendation_id": id_, **({"item": item} if kind == "click" else {})}
            for id_, item in ids.values()
            for kind in ("impression", "click")
        ]
        sent(client, *clicks)
        numbers = client.get("/metrics").text
        assert 'loger_lists_total{variant="B"}' in numbers
        assert 'loger_events_total{kind="click",variant="B"}' in numbers
        mask = client.put("/v1/masks/few", content="\n".join(model.items[:50])).json()
        assert mask["items"] == 50
        many = {"users": list(ids), "k": 3, "include": ["mask=few"]}
        lists = client.post("/v1/recommendations:batch", json=many).json()["lists"]
        assert all(row["item"] in model.items[:50] for one in lists for row in one["items"])
    told = report(EventStore(events_path(place)), min_shown=1)
    assert [v["name"] for v in told["variants"]] == ["A", "B"]
    assert sum(v["clicked"] for v in told["variants"]) == told["clicks"] == 12
    assert told["lists"] == {"made": 24, "seen": 12, "unknown": 0, "only_clicked": 0}
    assert told["variants"][0]["bundles"] != told["variants"][1]["bundles"]
    assert told["variants"][0]["propensity"] == 0.5
    assert {row["name"] for row in told["rules"]} <= {
        str(rule) for one in models for rule in one.rules_
    }
    kept = EventStore(events_path(place)).answers()[0][4]["items"][0]["reasons"][0]
    assert set(kept) == {"relation", "total", "encoder", "rules"}


def test_events_reach_both_bundles_and_both_fold_them(place, other, tmp_path, model):
    second = tmp_path / "second"
    shutil.copytree(other, second)
    both = {"others": (str(second),), "traffic": (0.5, 0.5)}
    config = ServeConfig(str(place), merge_interval=600, **both)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        users = model.users[:8]
        item = {"kind": "item", "item": "lamp-9"}
        sent(client, item, *({"kind": "delete", "user": user} for user in users))
        for user in users:
            assert client.get("/v1/recommendations", params={"user": user}).status_code == 404
        store = EventStore(events_path(place))
        until(lambda: all(folded_seq(b, store.id) == 9 for b in (place, second)))
    left = {user for folder in (place, second) for user in LOGER.load(folder).users}
    assert not left & set(users)


def test_mistakes_in_traffic_are_told_before_a_server_starts(place, other):
    command = ["serve", str(place), str(other), "--traffic", "90"]
    told = CliRunner().invoke(cli, command)
    assert told.exit_code == 2 and "a share above 0 for each of 2 bundles" in told.output


@pytest.mark.long
def test_the_benchmark_of_events_runs_and_loses_nothing(place, tmp_path):
    root = Path(__file__).resolve().parents[2]
    out = tmp_path / "told.json"
    command = [sys.executable, str(root / "benchmarks" / "events.py"), "--bundle", str(place)]
    command += ["--seconds", "1", "--turns", "1", "--kills", "2", "--between", "2"]
    command += ["--merge-interval", "1", "--ask", "10", "--rate", "250", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    told = json.loads(out.read_text())
    assert told["cost"]["errors"] == 0 and told["cost"]["acknowledged"] > 100
    kills = told["kills"]
    assert kills["acknowledged"] > 0
    assert kills["lost"] == kills["twice"] == kills["missing_in_bundle"] == 0
    assert kills["counted_by_folds"] == kills["new_pairs"]
