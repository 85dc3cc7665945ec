"""Events: stored durably and once, their net effect, and the bundles they are folded into."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loger.data import from_frames
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.engine.files import read_manifest
from loger.errors import DataError, LogerError
from loger.graph import whole
from loger.model import LOGER, LOGERConfig
from loger.store.bundle import MODEL
from loger.store.export import export_lists
from loger.updates.events import Event, EventStore, events_path
from loger.web.folding import fold, folded_seq, pending_of

WHEN = "2026-11-17T08:00:00+00:00"


def took(user: str, item: str, **more: object) -> Event:
    key = more.pop("key", None)
    return Event("interaction", {"user": user, "item": item, **more}, key, at=100.0)


def deleted(**body: str) -> Event:
    return Event("delete", body, at=100.0)


@pytest.fixture(scope="module")
def model() -> LOGER:
    """Twelve people and items of three brands, with times."""
    plays = [
        {"user": f"u{u}", "item": f"i{(u + 3 * j) % 12}", "time": 10 * j + u}
        for u in range(12)
        for j in range(5)
    ]
    facts = [(f"i{k}", "has_brand", f"b{k % 3}") for k in range(12)]
    table = {"head": [f[0] for f in facts], "relation": [f[1] for f in facts]}
    import polars as pl

    dataset = from_frames(
        pl.DataFrame(plays), pl.DataFrame({**table, "tail": [f[2] for f in facts]})
    )
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2))
    return LOGER(config).fit(split(dataset), progress=False)


@pytest.fixture
def bundle(model: LOGER, tmp_path: Path) -> Path:
    model.save(tmp_path / "shop")
    return tmp_path / "shop"


def folded(bundle: Path, store: EventStore, **more: object) -> LOGER:
    fold(bundle, store.path, now=200.0, when=WHEN, **more)
    return LOGER.load(bundle)


# ── keeping ─────────────────────────────────────────────────────────────────────────────


def test_an_event_is_kept_once_however_often_it_is_sent(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.sqlite")
    assert store.append([took("a", "x", key="1"), took("a", "y", key="2")]) == (2, 0, 2)
    assert store.append([took("a", "x", key="1"), took("a", "z", key="3")])[:2] == (1, 1)
    assert store.append([took("a", "x"), took("a", "x")]).stored == 2  # without keys: two events
    again = EventStore(store.path)
    assert [e.body["item"] for e in again.after(0)] == ["x", "y", "z", "x", "x"]
    assert [e.body["item"] for e in again.after(2)] == ["z", "x", "x"]
    assert again.id == store.id


def test_writers_in_threads_and_the_numbers_leave_nothing_out(tmp_path: Path) -> None:
    stores = [EventStore(tmp_path / "e.sqlite") for _ in range(3)]

    def write(k: int) -> None:
        for n in range(20):
            stores[k].append([took(f"u{k}", str(n), key=f"{k} {n}")])

    threads = [threading.Thread(target=write, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    followed = 0
    while followed < 60:
        numbers = [e.seq for e in stores[0].after(followed)]
        assert numbers == list(range(followed + 1, followed + 1 + len(numbers)))
        followed += len(numbers)
    for thread in threads:
        thread.join()


def test_it_waits_for_the_disk(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.sqlite")
    assert store._one("PRAGMA journal_mode") == "wal"
    assert store._one("PRAGMA synchronous") == 2  # FULL


def test_on_a_full_disk_nothing_is_acknowledged_and_later_all_goes_on(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.sqlite")
    store._db.execute(f"PRAGMA max_page_count = {store._one('PRAGMA page_count') + 3}")
    kept = list[str]()
    with pytest.raises(LogerError, match="full"):
        for n in range(1_000):
            store.append([took("u", f"{n} {'x' * 500}", key=str(n))])
            kept.append(str(n))
    store._db.execute("PRAGMA max_page_count = 100000")
    store.append([took("u", str(len(kept)), key=str(len(kept)))])
    found = [e.body["item"].split()[0] for e in EventStore(store.path).after(0)]
    assert found == [*kept, str(len(kept))]


KILLED = """
import sys
from loger.updates.events import Event, EventStore
store = EventStore(sys.argv[1])
for n in range(100_000):
    key = f"{sys.argv[2]} {n}"
    store.append([Event("interaction", {"user": "u", "item": key}, key)])
    print(key, flush=True)
"""


def test_kills_lose_nothing_that_was_acknowledged_and_keep_nothing_twice(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "e.sqlite", list[str]()
    for run in range(3):
        command = [sys.executable, "-c", KILLED, str(path), str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(20 + 13 * run)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        acknowledged += [line for line in lines if line]
        # A client that was not answered sends again.
        EventStore(path).append([took("u", lines[-1], key=lines[-1])])
    kept = [e.body["item"] for e in EventStore(path).after(0)]
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)


def test_what_is_no_store_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough to be one " * 20)
    with pytest.raises(DataError, match="isn't an event store"):
        EventStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE task (id INTEGER)")
    with pytest.raises(DataError, match="isn't an event store"):
        EventStore(tmp_path / "other")
    with pytest.raises(DataError, match="no such folder"):
        EventStore(tmp_path / "none" / "e.sqlite")


# ── folding ─────────────────────────────────────────────────────────────────────────────


def test_a_fold_is_the_update_that_the_events_amount_to(model: LOGER, bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    store.append(
        [
            took("u1", "i2", time=500),
            took("new", "i3", time=501),
            Event("item", {"item": "i99", "label": "Mug", "facts": {"has_brand": ["b1"]}}),
            Event("fact", {"head": "i2", "relation": "has_brand", "tail": "b9"}),
            Event("user", {"user": "u2", "label": "Ann"}),
            Event("impression", {"recommendation_id": "0" * 16}),
        ]
    )
    after = folded(bundle, store)
    rows = [{"user": "u1", "item": "i2", "time": 500}, {"user": "new", "item": "i3", "time": 501}]
    facts = [("i99", "has_brand", "b1"), ("i2", "has_brand", "b9")]
    wanted = model.update(
        rows,
        items=[{"id": "i99", "label": "Mug"}],
        facts=facts,
        users=[{"id": "u2", "label": "Ann"}],
    )
    assert whole(after.graph_).fingerprint == whole(wanted.graph_).fingerprint
    assert after.recommend(["u1", "new"], k=5).equals(wanted.recommend(["u1", "new"], k=5))
    assert folded_seq(bundle, store.id) == 5 + 1
    assert after.updates_ is not None and after.updates_.log[-1].interactions == 2
    manifest = read_manifest(bundle, MODEL)
    assert fold(bundle, store.path, now=200.0, when=WHEN).model is None  # nothing new
    assert read_manifest(bundle, MODEL) == manifest


def test_deleting_a_purchase_of_what_is_only_disliked_changes_nothing(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    store.append([Event("dislike", {"user": "u0", "item": "i2"}, at=100.0)])
    before = folded(bundle, store)
    store.append([deleted(user="u0", item="i2")])
    done = fold(bundle, store.path, now=200.0, when=WHEN)
    assert done.model is not None and not done.refused
    assert whole(done.model.graph_).fingerprint == whole(before.graph_).fingerprint


def test_the_folds_of_a_day_are_one_row_of_the_log(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    for n, when in enumerate([WHEN, WHEN, "2026-11-18T00:00:00+00:00"]):
        store.append([took(f"new{n}", "i3", time=500)])
        fold(bundle, store.path, now=200.0, when=when, measure=5)
    log = LOGER.load(bundle).updates_.log
    assert [row.users for row in log] == [2, 1]


def test_another_store_begins_from_its_own_first_event(bundle: Path, tmp_path: Path) -> None:
    first, second = EventStore(tmp_path / "1"), EventStore(tmp_path / "2")
    first.append([took("a", f"i{k}", time=500 + k) for k in range(5)])
    second.append([took("b", "i3", time=500)])
    assert "a" in folded(bundle, first).users
    assert {"a", "b"} <= set(folded(bundle, second).users)


def test_a_fact_that_cannot_be_is_left_out_and_told(model: LOGER, bundle: Path) -> None:
    verb = model.graph_.relations[0].name
    store = EventStore(events_path(bundle))
    store.append(
        [
            Event("fact", {"head": "i1", "relation": verb, "tail": "i2"}),
            Event("fact", {"head": "i1", "relation": "has_brand", "tail": "b7"}),
            deleted(user="nobody"),
            deleted(user="u1", item="i0"),
            deleted(head="i1", relation="has_brand", tail="no such brand"),
        ]
    )
    told = fold(bundle, store.path, now=200.0, when=WHEN)
    assert len(told.refused) == 1 and verb in str(told.refused[0])
    assert "b7" in LOGER.load(bundle).graph_.vocabulary.ids("brand")


@pytest.mark.parametrize("order", [1, -1], ids=["item first", "word first"])
def test_facts_of_a_new_relation_that_disagree_hold_up_no_fold(model: LOGER, bundle: Path, order):
    # Each can be taken in alone; together they failed, so that nothing was folded ever after.
    one, other = model.items[:2]
    tails = [other, "oak"][::order]
    facts = [Event("fact", {"head": one, "relation": "made_of", "tail": t}) for t in tails]
    store = EventStore(events_path(bundle))
    store.append(facts)
    told = fold(bundle, store.path, now=200.0, when=WHEN)
    assert len(
        told.refused
    ) == 1 and f"{tails[1]}: a fact of the new relation leads from item to" in str(told.refused[0])
    graph = whole(LOGER.load(bundle).graph_)
    kind = "item" if order == 1 else "made_of"
    (made_of,) = (r for r in graph.relations if r.name == "made_of")
    assert (made_of.head_type, made_of.tail_type) == ("item", kind)


def test_a_fact_means_the_same_though_what_it_names_is_gone_when_it_is_folded(model, bundle):
    one, other, third = model.items[:3]
    store = EventStore(events_path(bundle))
    facts = [
        Event("fact", {"head": one, "relation": "goes_under", "tail": t}) for t in (other, third)
    ]
    store.append([deleted(item=other), *facts])  # no item by then, but named as one before
    assert fold(bundle, store.path, now=200.0, when=WHEN).refused == []
    (new,) = (r for r in whole(LOGER.load(bundle).graph_).relations if r.name == "goes_under")
    assert new.tail_type == "item"


def test_who_asks_to_be_forgotten_leaves_no_byte(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    name = "somebody-with-a-name"
    store.append([took(name, "i3", key=f"{name} 1"), took("u1", "i4", time=500)])
    store.append([Event("fact", {"head": name, "relation": "lives_in", "tail": "Bonn",
                                 "head_type": "user", "tail_type": "city"})])  # fmt: skip
    store.log_answers([("a" * 16, 99.0, name, "A", "{}")])
    assert name in folded(bundle, store).users
    store.append([deleted(user=name)])
    assert name not in folded(bundle, store).users
    store.close()
    for file in [*bundle.iterdir(), *bundle.parent.glob("shop.events*")]:
        assert name.encode() not in file.read_bytes(), file
    again = EventStore(events_path(bundle))
    assert again.append([took(name, "i3", key=f"{name} 1")]).duplicates == 1  # its key is known
    assert [e.kind for e in again.after(0)] == ["interaction"]
    assert not again.answers()


NAME = "somebody-with-a-name"
IDS = [f"{k:016x}" for k in range(0xA0, 0xA8)]
HISTORIES = int(os.environ.get("LOGER_HISTORIES", "100"))
"""Random histories of the long test; ``make torture`` asks for a thousand."""


def random_event(rng: Random) -> Event:
    """Something that may name somebody, in any place that a name may have."""
    user, item = rng.choice([NAME, NAME, "u1", "new"]), rng.choice(["i1", "i2", "i77"])
    other = rng.choice([NAME, "u2", "word"])
    # Whether a person or a thing is meant, an earlier event may say, or this one, or none.
    head, relation = rng.choice([(user, "follows"), (item, "made_by")])
    fact = {"head": head, "relation": relation, "tail": other}
    types = {"tail_type": "user"} if other != "word" and rng.random() < 0.3 else {}
    ways = [
        took(user, item, key=f"{user} {rng.random()}"),
        took(NAME, item),
        Event(
            "user",
            {"user": user, "label": f"the one called {user}", "facts": {"follows": [other, "x"]}},
        ),
        Event("item", {"item": item, "facts": {"has_brand": ["b1"], "made_by": [other, "x"]}}),
        Event("fact", {**fact, **types}),
        deleted(**fact),
        deleted(user=user, item=item),
        deleted(item="i77"),
        deleted(user=rng.choice(["new", NAME])),
        Event("impression", {"recommendation_id": rng.choice(IDS)}),
        Event("click", {"recommendation_id": rng.choice(IDS), "item": item}),
    ]
    return rng.choice(ways)


@pytest.mark.parametrize("histories", [10, pytest.param(HISTORIES, marks=pytest.mark.long)])
def test_no_file_keeps_the_name_or_an_id_of_a_user_who_is_forgotten(
    histories: int, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    had = 0
    for seed in range(histories):
        rng, place = Random(seed), bundle.parent / str(seed) / "shop"
        shutil.copytree(bundle, place)
        store = EventStore(events_path(place))
        store.log_answers([(i, 50.0, NAME, "A", f'{{"of": "{NAME}"}}') for i in IDS])
        for _ in range(rng.randint(1, 4)):
            store.append([random_event(rng) for _ in range(rng.randint(1, 12))])
            folded(place, store)
        had += NAME.encode() in b"".join(f.read_bytes() for f in place.iterdir())
        store.append([random_event(rng), deleted(user=NAME)])
        model = folded(place, store)
        export_lists(model, model.users[:2], place.parent / "lists.csv", 3, explain=True)
        store.close()
        files = [file for file in place.parent.rglob("*") if file.is_file()]
        assert len(files) > 6
        for file in files:
            raw = file.read_bytes()
            for text in (NAME, *IDS):
                assert text.encode() not in raw, (seed, file)
        shutil.rmtree(place.parent)
    assert had > histories / 3  # or there was nothing to forget
    assert NAME not in caplog.text


def test_an_event_about_others_keeps_the_rest_of_its_facts(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    said = Event("user", {"user": "u1", "facts": {"follows": [NAME, "u2"]}})
    store.append([said, deleted(user=NAME)])
    folded(bundle, store)
    assert [e.body for e in store.after(0)] == [{"user": "u1", "facts": {"follows": ["u2"]}}]


def test_a_thing_of_the_same_name_that_the_fit_knew_stays(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    store.append([took("b1", "i3"), deleted(user="b1")])
    model = folded(bundle, store)
    assert "b1" not in model.users and "b1" in model.graph_.vocabulary.ids("brand")


# ── what cannot be taken in ─────────────────────────────────────────────────────────────


def test_more_relations_than_a_graph_holds_stop_no_fold(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    names = [f"r{k}" for k in range(40_000)]
    store.append([Event("fact", {"head": "i1", "relation": r, "tail": "x"}) for r in names])
    store.append([took("u1", "i77", time=900)])
    told = fold(bundle, store.path, now=200.0, when=WHEN)
    assert len(told.refused) == 39_900 and "can't store more new relations" in told.refused[0].why
    store.append([Event("fact", {"head": "i2", "relation": "one more", "tail": "x"})])
    store.append([took("u2", "i77", time=900)])
    again = fold(bundle, store.path, now=200.0, when=WHEN)
    assert [one.seq for one in again.refused] == [40_002]
    graph = whole(LOGER.load(bundle).graph_)
    assert sum(not r.derived for r in graph.relations) == 102
    words = graph.vocabulary
    assert graph.has(words.id("user", "u2"), 0, words.id("item", "i77"))


def test_an_event_that_no_check_foresaw_is_set_aside(bundle: Path, monkeypatch, caplog) -> None:
    real = LOGER.fold

    def fails(self: LOGER, changes, *more):
        if "bad" in changes.more.items:
            raise ValueError("axis 0 index 40000 exceeds 32767, for bad")
        return real(self, changes, *more)

    monkeypatch.setattr(LOGER, "fold", fails)
    store = EventStore(events_path(bundle))
    store.append([took(f"u{k}", "bad" if k in (3, 9) else "i77", time=900) for k in range(12)])
    told = fold(bundle, store.path, now=200.0, when=WHEN)
    assert [one.seq for one in told.refused] == [4, 10] and told.seq == 12
    assert (
        "2 facts or events skipped, the first in event 4: merging raised ValueError" in caplog.text
        and "bad" not in caplog.text
    )
    graph = whole(LOGER.load(bundle).graph_)
    new = graph.vocabulary.id("item", "i77")
    assert sum(graph.has(user, 0, new) for user in range(graph.n_users)) == 10
    assert fold(bundle, store.path, now=200.0, when=WHEN).model is None


def test_a_second_bundle_holds_up_what_is_forgotten_until_it_forgot(
    bundle: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    store = EventStore(events_path(bundle))
    store.folded_into(other, 0)
    store.append([took("new", "i3", time=500), deleted(user="new")])
    folded(bundle, store)
    assert len(list(store.after(0))) == 2
    folded(other, store)
    assert not list(store.after(0))


def test_old_events_go_when_all_bundles_hold_them(bundle: Path) -> None:
    store = EventStore(events_path(bundle))
    store.append([took("new", "i3", time=500)])
    store.log_answers([("a" * 16, 0.0, "u1", "A", "{}")])
    fold(bundle, store.path, now=100.0 + 40 * 86_400, when=WHEN)
    store.append([took("newer", "i3", time=500)])
    assert [e.seq for e in store.after(0)] == [2]  # numbers are never given twice
    assert not store.answers()
    assert {"new", "newer"} <= set(folded(bundle, store).users)


def test_lists_that_nobody_saw_go_after_an_hour(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.sqlite")
    store.log_answers([(n * 16, 0.0, "u", "A", "{}") for n in "abc"])
    store.append([Event("impression", {"recommendation_id": "a" * 16})])
    store.append([Event("click", {"recommendation_id": "b" * 16, "item": "x"})])
    store.drop_unseen(3_599.0)
    assert len(store.answers()) == 3
    store.drop_unseen(3_601.0)
    assert [answer[0][0] for answer in store.answers()] == ["a", "b"]
    plan = store._all("EXPLAIN QUERY PLAN SELECT 1 FROM event WHERE kind IN ('impression', 'click')"
                      " AND json_extract(body, '$.recommendation_id') = 'x'")  # fmt: skip
    assert "event_answer" in str(plan)  # not a look at all events for each


KINDS = st.sampled_from(["take", "untake", "forget", "drop", "say", "unsay"])
SOME = st.tuples(KINDS, st.integers(0, 3), st.integers(0, 3))


def as_event(kind: str, a: int, b: int, n: int) -> Event:
    user, item, brand = f"u{a}" if a < 3 else "new", f"i{b}" if b < 3 else "i77", f"b{a}"
    return {
        "take": took(user, item, time=900 + n),
        "untake": deleted(user=user, item=item),
        "forget": deleted(user=user),
        "drop": deleted(item=item),
        "say": Event("fact", {"head": item, "relation": "has_brand", "tail": brand}, at=1.0),
        "unsay": deleted(head=item, relation="has_brand", tail=brand),
    }[kind]


@settings(max_examples=25, deadline=None)
@given(st.lists(SOME, min_size=1, max_size=8), st.integers(0, 8))
def test_events_folded_together_are_events_folded_one_by_one(
    model: LOGER, given_: list[tuple[str, int, int]], cut: int
) -> None:
    events = [
        Event(e.kind, e.body, at=e.at, seq=n + 1)
        for n, e in enumerate(as_event(*row, n) for n, row in enumerate(given_))
    ]

    def after(model: LOGER, events: list[Event]) -> LOGER:
        pending = pending_of(model)
        pending.add(events)
        return model.fold(pending.fold("s")[0], WHEN)

    at_once, one_by_one = after(model, events), model
    for event in events:
        one_by_one = after(one_by_one, [event])
    in_two = after(after(model, events[:cut]), events[cut:])
    for other in (one_by_one, in_two):
        assert said(other) == said(at_once)
        # What was said of somebody and taken back before a fold leaves not even the name.
        users, items = (
            [x for x in all_of(at_once) if x in set(all_of(other))]
            for all_of in (lambda m: m.users, lambda m: m.items)
        )
        assert len(users) == len(at_once.users) and len(items) == len(at_once.items)
        assert np.allclose(*(named_scores(m, users, items) for m in (at_once, other)),
                           atol=1e-4, equal_nan=True)  # fmt: skip


def said(model: LOGER) -> set[tuple[object, ...]]:
    """All that a model's graph says, by name."""
    graph = whole(model.graph_)
    names = graph.vocabulary.names
    rows = zip(*(x.tolist() for x in graph.triples()), strict=True)
    facts = {(names[h], graph.relation_name(r), names[t]) for h, r, t in rows}
    edges, users = graph.interactions
    when = zip(users, graph.tails[edges], graph.times[edges], strict=True)
    return facts | {(names[u], names[v], int(t)) for u, v, t in when}


def named_scores(model: LOGER, users: list[str], items: list[str]) -> np.ndarray:
    words, n = whole(model.graph_).vocabulary, model.graph_.n_users
    rows = [words.id("user", u) for u in users]
    return model.score(np.array(rows))[:, [words.id("item", v) - n for v in items]]


def test_the_command_folds_and_says_what_came(bundle: Path) -> None:
    from click.testing import CliRunner

    from loger.cli import app

    store = EventStore(events_path(bundle))
    command = ["update", str(bundle), "--events", str(store.path)]
    assert "nothing new" in CliRunner().invoke(app, command).output
    store.append([took("new", "i3", time=500)])
    assert "new 1 interaction, 1 user" in CliRunner().invoke(app, command).output
    wrong = CliRunner().invoke(app, ["update", str(bundle), "--events", "nowhere"])
    assert wrong.exit_code == 2 and "no such file" in wrong.output
    with pytest.raises(LogerError):
        EventStore(Path("/proc/none/e"))


def test_who_is_forgotten_by_command_does_not_come_back_by_an_earlier_event(bundle: Path) -> None:
    from click.testing import CliRunner

    from loger.cli import app

    store = EventStore(events_path(bundle))
    store.append([took("u1", "i3", time=500), took(NAME, "i4", time=500), took("new", "i4")])
    store.append([Event("user", {"user": "u2", "facts": {"follows": ["u1"]}})])
    store.close()
    told = CliRunner().invoke(
        app, ["update", str(bundle), "--forget-user", "u1", "--forget-user", NAME]
    )
    assert told.exit_code == 0, told.output
    users = LOGER.load(bundle).users
    assert "u1" not in users and NAME not in users and "new" in users
    for file in [*bundle.iterdir(), *bundle.parent.glob("shop.events*")]:
        assert NAME.encode() not in file.read_bytes() and b'"u1"' not in file.read_bytes()
    wrong = CliRunner().invoke(app, ["update", str(bundle), "--forget-user", "nobody"])
    assert wrong.exit_code == 2 and "unknown user 'nobody'" in wrong.output
