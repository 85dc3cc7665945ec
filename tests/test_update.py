"""Updates after a fit: new interactions, items, facts and users, and what is removed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grown import assert_same, behind, named, scratch
from loger.cli import app
from loger.data.dataset import Note
from loger.data.splits import split
from loger.data.update_log import Update, Updates, due
from loger.encoder import TransEConfig
from loger.encoder.cold_start import RIDGE, Moved, by_neighbours, neighbours
from loger.errors import DataError, LogerError, UnknownNameError
from loger.evaluation.evaluate import FitRecord
from loger.graph import Derived, KnowledgeGraph, Vocabulary
from loger.graph import Path as GraphPath
from loger.graph.growth import Learned
from loger.learning.derived import derive
from loger.logic.config import DerivedConfig
from loger.model import LOGER, LOGERConfig
from loger.rules import named_rules
from loger.rules.sentences import evidence_sentence
from loger.updates.newcomers import with_newcomers

SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=3), derived=DerivedConfig(tune=False))
OFTEN = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def parts(few):
    return few


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


# ── the equality ─────────────────────────────────────────────────────────────────────────


def drawn(model, rng):
    """One update at random: rows by name, of known and of new people and things."""

    def some(kind: str, n: int) -> list[str]:
        span = model.graph_.vocabulary.span(kind)
        known = model.graph_.vocabulary.names[span.start : span.stop]
        new = [f"{kind} {k}" for k in range(6)]
        return [str((known if rng.random() < 0.5 else new)[rng.integers(6)]) for _ in range(n)]

    when = rng.integers(1, 2_000_000_000, 4).tolist()
    interactions = [
        {"user": u, "item": v, "time": t}
        for u, v, t in zip(some("user", 4), some("item", 4), when, strict=True)
    ]
    facts = [
        {"head": h, "relation": name, "tail": t}
        for name, head, tail in (
            ("has_brand", "item", "brand"),
            ("has_feature", "item", "feature"),
            ("mentions", "user", "feature"),
        )
        for h, t in zip(some(head, 2), some(tail, 2), strict=True)
    ]
    facts += [
        {"head": v, "relation": name, "tail": f"{name} {rng.integers(3)}", "head_type": "item"}
        for v, name in zip(some("item", 2), rng.choice(["awarded", "made_in"], 2), strict=True)
    ]
    return {"interactions": interactions, "facts": facts, "users": some("user", 1)}


ENDS = {
    "has_brand": ("item", "brand"),
    "has_feature": ("item", "feature"),
    "mentions": ("user", "feature"),
    "awarded": ("item", "awarded"),
    "made_in": ("item", "made_in"),
}


def from_scratch(model, changes) -> KnowledgeGraph:
    """The graph of all that the model and the updates say, built in one go."""
    graph, given = model.graph_, model.graph_.given
    facts = dict(named(given))
    people, things = set(), {}
    for change in changes:
        people |= set(change["users"])
        for row in change["interactions"]:
            key = (("user", row["user"]), "purchase", ("item", row["item"]))
            before = facts.get(key, (None, row["time"]))[1]
            facts[key] = (None, max(before, row["time"]))
        for row in change["facts"]:
            head, tail = ENDS[row["relation"]]
            facts[(head, row["head"]), row["relation"], (tail, row["tail"])] = (None, None)
    for h, _, t in facts:
        for kind, name in (h, t):
            things.setdefault(kind, set()).add(name)
    things["user"] |= people
    names = {}
    types = graph.vocabulary.types
    for kind in (*types, *sorted(set(things) - set(types))):
        old = []
        if kind in types:
            span = graph.vocabulary.span(kind)
            old = graph.vocabulary.names[span.start : span.stop]
        names[kind] = [*old, *sorted(things[kind].difference(old))]
    labels = {
        kind: [
            graph.vocabulary.labels[graph.vocabulary.ids(kind)[n]]
            if kind in types and n in graph.vocabulary.ids(kind)
            else n
            for n in of_kind
        ]
        for kind, of_kind in names.items()
    }
    new = sorted({r for _, r, _ in facts} - {r.name for r in given.relations})
    fresh = [replace(given.relations[1], name=r, head_type="item", tail_type=r) for r in new]
    words = Vocabulary(names, labels)
    built = scratch(words, (*given.relations, *fresh), facts)
    heads, kinds, tails = graph.triples()
    more = []
    for k, relation in enumerate(graph.relations):
        if relation.derived:
            rows = [(h, t) for h, r, t in zip(heads, kinds, tails, strict=True) if r == k]
            items = [[x - graph.n_users for x in row] for row in rows]
            weights = [graph.weight(h, k, t) for h, t in rows]
            people, first = behind(built, relation.window), built.n_users
            ends = np.array(items)
            counts = [people[i + first, j + first] for i, j in items]
            about = np.array(weights), np.array(counts)
            more.append(Derived(relation, ends[:, 0], ends[:, 1], *about))
    return built.with_derived(more)


@given(st.integers(0, 2**32 - 1))
@OFTEN
def test_the_logic_is_that_of_the_same_weights_on_a_graph_built_from_scratch(model, seed):
    """To the bit, after any updates, in whatever order they come."""
    rng = np.random.default_rng(seed)
    changes = [drawn(model, rng) for _ in range(3)]
    later = model
    for change in changes:
        later = later.update(**change)
    built = from_scratch(model, changes)
    assert_same(later.graph_.given, built.given)
    logic = replace(later.logic_, rules=named_rules(built, [r.names for r in model.rules_]))
    assert logic.weights.tobytes() == model.weights_.tobytes()
    plain = replace(later.ranker_, graph=built, logic_graph=built, logic=logic)
    fair = with_newcomers(plain, later.updates_.learned)
    assert_same(later.graph_, fair.graph)
    users = np.arange(built.n_users)
    mine = later.logic_.logits(later.ranker_.logic_graph, users, observed=True)
    assert mine.tobytes() == fair.logic.logits(fair.graph, users, observed=True).tobytes()
    other = model
    for k in rng.permutation(3):
        other = other.update(**changes[k])
    assert other.graph_.fingerprint == later.graph_.fingerprint
    assert other.score(users).tobytes() == later.score(users).tobytes()
    for name, array in later.encoder_.state().items():
        assert array.tobytes() == other.encoder_.state()[name].tobytes(), name


def test_some_rule_has_weight_and_reaches_what_is_new(model):
    """Else the test above would compare zeros."""
    assert (model.weights_ > 0).any()
    feature = next(r for r in named(model.graph_) if r[1] == "has_category")[2][1]
    facts = [("new thing", "has_category", feature), ("new thing", "has_brand", "no such brand")]
    later = model.update(facts=facts)
    item = later.items.index("new thing")
    logits = later.logic_.logits(later.graph_, np.arange(later.graph_.n_users), observed=True)
    assert np.ptp(logits[:, item]) > 0
    assert item == 100 and later.graph_.n_items == 101


def test_removing_what_an_update_brought_gives_the_scores_of_before(model):
    rows = [("newcomer", model.items[0], 5, 10), ("newcomer", "new thing", 5, 11)]
    facts = [("new thing", "has_brand", "new brand"), ("newcomer", "awarded", "new prize")]
    later = model.update(rows, facts=facts).remove(users="newcomer", items="new thing")
    assert_same(later.graph_.given, replace(
        model.graph_.given, relations=later.graph_.given.relations,
        vocabulary=later.graph_.vocabulary,
        segment_relations=later.graph_.given.segment_relations,
        pair_relations=later.graph_.given.pair_relations,
    ))  # fmt: skip
    users = np.arange(model.graph_.n_users)
    assert later.score(users).tobytes() == model.score(users).tobytes()
    assert later.owned(later.users[3]) == model.owned(model.users[3])


# ── the people behind derived facts ──────────────────────────────────────────────────────


def assert_counted(later):
    """Each derived fact between items of the fit has the people that all histories tell, in both
    directions; what is expected of new items has nobody."""
    graph, known = later.graph_, later.updates_.learned.types["item"]
    for place, relation in enumerate(graph.relations):
        if not relation.derived:
            continue
        counts, back = behind(graph, relation.window), graph.inverse(place)
        for head in range(graph.n_users, graph.n_users + graph.n_items):
            for tail in graph.neighbours(head, place).tolist():
                new = tail >= graph.n_users + known
                assert graph.expected(head, place, tail) == new
                n = 0 if new else counts[head, tail]
                assert graph.people(head, place, tail) == n, (relation.name, head, tail)
                assert graph.people(tail, back, head) == n


def changed(model, rng):
    """The model after one update or removal at random, many of them at the same few times."""
    graph = model.graph_
    kind = rng.integers(4)
    if kind < 2:
        change = drawn(model, rng)
        times = np.append(graph.times[graph.interactions[0][:5]], 7)
        for row in change["interactions"] if kind else ():
            row["time"] = int(rng.choice(times))
        return model.update(**change)
    edges, users = graph.interactions
    some = rng.integers(len(users), size=3)
    names = graph.vocabulary.names
    if kind == 2:
        pairs = {(names[users[k]], names[graph.tails[edges[k]]]) for k in some.tolist()}
        return model.remove(interactions=sorted(pairs))
    return model.remove(users=names[users[some[0]]], items=names[graph.tails[edges[some[1]]]])


@given(st.integers(0, 2**32 - 1))
@OFTEN
def test_counts_of_people_are_those_of_all_that_is_known(model, seed):
    """After any updates and removals, as if every history were read again; weights stay."""
    rng, later = np.random.default_rng(seed), model
    for _ in range(4):
        later = changed(later, rng)
    assert_counted(later)


def test_what_nobody_has_both_of_any_more_is_said_so(model):
    graph = model.graph_
    place = next(k for k, r in enumerate(graph.relations) if r.window is None and r.derived)
    names = graph.vocabulary.names
    one, other = next(
        (i, j)
        for i in range(graph.n_users, graph.n_users + graph.n_items)
        for j in graph.neighbours(i, place).tolist()
        if graph.people(i, place, j) == 1
    )
    who = next(u for u in model.users if {names[one], names[other]} <= set(model.owned(u)))
    reader = next(u for u in model.users if u != who and names[one] in model.owned(u))
    later = model.remove(users=who)

    def said(of):
        ids = of.graph_.vocabulary
        edges = ids.id("user", reader), ids.id("item", names[one]), ids.id("item", names[other])
        rule = next(k for k, r in enumerate(of.graph_.relations) if r.name == "goes_with")
        return evidence_sentence(of.graph_, GraphPath(edges, (0, rule)), 1, 0)

    assert said(model) == "someone bought both"
    assert said(later) == "went with it in earlier data"


# ── keeping ──────────────────────────────────────────────────────────────────────────────


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_an_updated_model_is_saved_and_loaded_byte_by_byte(model, tmp_path):
    rng = np.random.default_rng(4)
    first, second = drawn(model, rng), drawn(model, rng)
    later = model.update(**first, when="Monday").update(**second, when="Tuesday")
    later.save(tmp_path / "a", record={"data": "here"})
    loaded = LOGER.load(tmp_path / "a")
    loaded.save(tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    users = np.arange(later.graph_.n_users)
    assert loaded.score(users).tobytes() == later.score(users).tobytes()
    assert [row.when for row in loaded.updates_.log] == ["Monday", "Tuesday"]
    # A bundle may be updated in between, and others may come first: only the log differs.
    between = LOGER.load(tmp_path / "a").update(**drawn(model, np.random.default_rng(9)))
    again = model.update(**drawn(model, np.random.default_rng(9)))
    again = again.update(**second).update(**first)
    between.save(tmp_path / "c", record={})
    again.save(tmp_path / "d", record={})
    one, other = bytes_of(tmp_path / "c"), bytes_of(tmp_path / "d")
    for name in one.keys() - {"manifest.json"}:
        assert one[name] == other[name], name


def test_forgetting_a_user_leaves_no_byte_of_the_id(model, tmp_path):
    secret = "u-9f3a77c1"
    rows = [(secret, model.items[k], 5, 10 + k) for k in range(4)]
    later = model.update(
        rows, facts=[(secret, "lives_in", "street-51b2")], users=[{"id": secret, "label": "Zoë Q"}]
    )
    later.save(tmp_path / "with")
    later.remove(users=secret).save(tmp_path / "without")
    marks = [secret.encode(), b"street-51b2", "Zoë Q".encode()]
    assert all(any(mark in raw for raw in bytes_of(tmp_path / "with").values()) for mark in marks)
    for name, raw in bytes_of(tmp_path / "without").items():
        assert not any(mark in raw for mark in marks), name
    known = model.users[7]
    model.remove(users=known).save(tmp_path / "fewer")
    whole = b"".join(bytes_of(tmp_path / "fewer").values())
    assert f'"{known}"'.encode() not in whole
    assert LOGER.load(tmp_path / "fewer").graph_.n_users == model.graph_.n_users - 1


def test_what_was_held_out_goes_with_its_user_and_stays_held_out_otherwise(model):
    pairs = model.ranker_.held_out
    user, item = model.users[pairs.users[0]], model.items[pairs.items[0]]
    less = model.remove(interactions=[(user, item)])
    assert item not in model.owned(user)
    assert len(less.ranker_.held_out) == len(pairs) - 1
    gone = model.remove(users=user)
    assert len(gone.ranker_.held_out) == int((pairs.users != pairs.users[0]).sum())
    known = model.update([(user, item, 5, 10)])
    assert len(known.ranker_.held_out) == len(pairs) - 1 and item in known.owned(user)
    later = model.update(users=["aaa"], items=["aaa"])
    assert len(later.ranker_.held_out) == len(pairs)
    for name in (user, model.users[50]):
        assert later.owned(name) == model.owned(name)


def test_nothing_owned_is_recommended_after_updates(model):
    rng = np.random.default_rng(1)
    later = model
    for _ in range(3):
        later = later.update(**drawn(model, rng))
    lists = later.recommend(k=20).group_by("user").agg("item")
    for user, items in lists.iter_rows():
        assert not set(items) & set(later.owned(user))


# ── vectors of what is new ───────────────────────────────────────────────────────────────


def unit(x):
    return x / np.linalg.norm(x)


def by_facts(model, known: np.ndarray, item: tuple[str, str]) -> np.ndarray:
    """The direction that an item's facts let one expect; a slow twin of ``expected``."""
    graph, e = model.graph_.given, model.encoder_
    half, vectors = len(graph.relations), e.entities_.astype(np.float64)
    places = {r.name: k for k, r in enumerate(graph.relations)}
    links: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for (h, r, t), (origin, _) in named(graph).items():
        if r == "purchase" or origin is not None:
            continue
        for one, other, kind in ((h, t, places[r]), (t, h, places[r] + half)):
            number = graph.vocabulary.id(*other)
            if one[0] == "item" and other[0] != "user" and known[number]:
                links.setdefault(one, []).append((kind, number))
    people = Counter(link for own in links.values() for link in own)
    x, y = {}, {}
    for thing, own in links.items():
        said = [
            unit(vectors[t] + (e.relations_[k % half] if k >= half else -e.relations_[k]))
            for k, t in own
            if people[k, t] > 1
        ]
        if said:
            x[thing] = np.sum(said, axis=0) / len(said) ** 0.5
        number = graph.vocabulary.id(*thing)
        y[thing] = unit(vectors[number])
    learned = [thing for thing in x if known[graph.vocabulary.id(*thing)]]
    xs, ys = np.array([x[v] for v in learned]), np.array([y[v] for v in learned])
    apart = np.vstack([xs - xs.mean(0), (RIDGE * len(xs)) ** 0.5 * np.eye(xs.shape[1])])
    goal = np.vstack([ys - ys.mean(0), np.zeros((xs.shape[1], ys.shape[1]))])
    slopes, *_ = np.linalg.lstsq(apart, goal, rcond=None)
    out = ys.mean(0) + (x[item] - xs.mean(0)) @ slopes
    return unit(out)


def test_the_vector_of_a_new_item_is_what_its_facts_and_the_people_who_took_it_say(model):
    graph, encoder = model.graph_, model.encoder_
    brand, features = graph.vocabulary.span("brand")[0], graph.vocabulary.span("feature")[:2]
    names = graph.vocabulary.names
    facts = [("new", "has_brand", names[brand]), ("fresh", "has_brand", names[brand])]
    facts += [("new", "has_feature", names[f]) for f in features]
    later = model.update(
        [("somebody", "new", 5, 9), ("somebody", model.items[4], 5, 9)], facts=facts
    )
    e, words = encoder.entities_, later.graph_.vocabulary
    span = graph.vocabulary.span("item")
    length = np.linalg.norm(e[span.start : span.stop], axis=1).mean()
    known = Learned.all_of(graph).entities(later.graph_)
    fresh = by_facts(later, known, ("item", "fresh"))
    row = words.id("item", "fresh")
    np.testing.assert_allclose(later.encoder_.entities_[row], fresh * length, rtol=1e-3, atol=1e-5)
    near = neighbours(later.graph_, known, np.ones(len(graph.given.relations), dtype=bool))
    bias = by_neighbours(near, encoder.biases_[span.start : span.stop, 0].astype(np.float64))
    place = row - later.graph_.n_users - model.graph_.n_items
    assert later.encoder_.biases_[row, 0] == pytest.approx(bias[place], abs=1e-5)
    # Facts of two relations count as much as two people, and one person took it.
    said = 2 * by_facts(later, known, ("item", "new"))
    said += unit(e[graph.n_users + 4] + encoder.relations_[0])
    row = words.id("item", "new")
    found = later.encoder_.entities_[row]
    np.testing.assert_allclose(found, unit(said) * length, rtol=1e-3, atol=1e-5)
    kept = later.encoder_.entities_[later.graph_.n_users : later.graph_.n_users + 100]
    assert np.array_equal(kept, e[span.start : span.stop])
    user = words.id("user", "somebody")
    two = later.encoder_.entities_[[row, words.id("item", model.items[4])]]
    np.testing.assert_allclose(later.encoder_.entities_[user], two.sum(0) / 2**0.5, rtol=1e-4)


def test_biases_follow_popularity_from_the_mean_upwards(model):
    rows = [(u, "hit", 5, 10) for u in model.users]
    later = model.update(rows, items=["flop"])
    bias = later.encoder_.biases_[:, 0]
    words = later.graph_.vocabulary
    mean = bias[words.span("item").start :][:100].mean()
    assert bias[words.id("item", "flop")] == pytest.approx(mean, rel=1e-4)
    assert bias[words.id("item", "hit")] > mean


def test_a_new_item_has_reasons_that_are_true(model):
    graph = model.graph_
    like = model.items[3]
    facts = [
        ("new", r, t[1])
        for (h, r, t) in named(graph)
        if h == ("item", like) and r.startswith("has")
    ]
    later = model.update(facts=facts)
    ranked = [(later.why_not(u, "new").explanation.rank, u) for u in later.users[:40]]
    _, user = min(ranked)
    told = later.explain(user, "new")
    assert told.paths
    assert all(path.exists(later.graph_) for path in (p.path for p in told.paths))


# ── what is refused, and what is told ────────────────────────────────────────────────────


def test_tables_come_as_files_frames_or_rows(model, tmp_path):
    rows = [("ann", model.items[0], 4.0, 10), ("bob", "new", 5.0, 11)]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    frame.write_csv(tmp_path / "new.csv")
    frame.write_parquet(tmp_path / "new.parquet")
    dicts = frame.to_dicts()
    pandas = pytest.importorskip("pandas").DataFrame(dicts)
    wanted = model.update(frame).graph_.fingerprint
    for source in (rows, dicts, pandas, tmp_path / "new.csv", str(tmp_path / "new.parquet")):
        assert model.update(source).graph_.fingerprint == wanted
    assert model.update(rows, min_rating=5).graph_.n_users == model.graph_.n_users + 1
    assert model.update(frame[:0]).graph_.fingerprint == model.graph_.fingerprint
    labelled = model.update(items=[{"id": model.items[0], "title": "The Best"}])
    assert labelled.graph_.vocabulary.id("item", "The Best") == labelled.graph_.n_users


def test_where_titles_repeat_lists_reasons_and_what_if_show_ids(model, tmp_path):
    user = model.users[0]
    new, mine = model.recommend(user, 1)["item"][0], str(model.history(user)["item"][0])
    same = model.update(items=[{"id": name, "title": "The Road"} for name in (new, mine)])
    told = same.explain(user, new)
    assert str(told).startswith(f"The Road [{new}] for ")
    assert f"The Road [{mine}]" in str(same.explain(user, new).as_dict()["reasons"])
    assert str(same.what_if(user, "The Road")) == str(same.what_if(user, mine))
    same.save(tmp_path / "b")
    for more in ([], ["--explain"]):
        shown = CliRunner().invoke(app, ["recommend", str(tmp_path / "b"), user, *more])
        text = " ".join(shown.output.split())
        assert f"The Road [{new}]" in text
        assert f"The Road [{mine}]" in text
    changed = CliRunner().invoke(
        app, ["what-if", str(tmp_path / "b"), user, "--remove", "The Road"]
    )
    assert changed.exit_code == 0, changed.output
    asked = ["recommend", str(tmp_path / "b"), user, "--json"]
    (plain,) = json.loads(CliRunner().invoke(app, asked).stdout)
    assert plain["items"][0]["label"] == "The Road"
    assert {"item": mine, "label": "The Road"} in plain["history"]


def test_the_log_says_what_each_update_brought(model):
    rows = [("ann", "new", 5, 10), ("ann", model.items[0], 5, 11), ("ann", "new", 5, 12)]
    facts = [("new", "awarded", "prize"), ("new", "has_brand", "no such")]
    later = model.update(rows, facts=facts, when="2026-11-16")
    (row,) = later.updates_.log
    assert (row.interactions, row.unseen, row.facts) == (2, 1, 2)
    assert (row.users, row.items, row.entities, row.relations) == (1, 1, 2, ("awarded",))
    assert "not used by any rule until the next fit: awarded" in str(row)
    again = later.update(rows, facts=facts)
    assert str(again.updates_.log[1]) == "nothing new"
    less = again.remove(users="ann", facts=[("new", "awarded", "prize")])
    assert str(less.updates_.log[2]) == "removed 2 interactions, 1 fact, 1 user"
    assert model.updates_ is None


def test_interactions_without_times_are_later_than_all_the_model_knows(model):
    later = model.update([("ann", "new")])
    (note,) = later.updates_.log[0].notes
    assert "without a time" in note.what and note.count == 1
    graph = later.graph_
    edges, users = graph.interactions
    ann = edges[users == graph.vocabulary.id("user", "ann")]
    assert graph.times[ann].tolist() == [model.graph_.times.max() + 1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"interactions": 5}, "a file, a data frame or rows"),
        (
            {"interactions": [{"user": "a", "item": "b"}, ("a", "b")]},
            "a row should be a dict or a tuple of user",
        ),
        ({"facts": [("a", "purchase", "b")]}, "is the name of the interaction"),
        (
            {"facts": [{"head": "a", "relation": "has_brand", "tail": "b", "tail_type": "item"}]},
            "leads only from item to brand",
        ),
        ({"facts": [("a", "has_brand")]}, "no column tail"),
    ],
)
def test_what_cannot_be_taken_in_is_told_before_anything_is_done(model, wrong, said):
    with pytest.raises((DataError, LogerError), match=said):
        model.update(**wrong)


def test_a_relation_that_the_fit_makes_takes_no_facts(model, parts):
    made = derive(parts, DerivedConfig())
    knows = model.with_ranker(replace(model.ranker_, graph=made))
    with pytest.raises(LogerError, match="'followed_by' is derived from interactions"):
        knows.update(facts=[("a", "followed_by", "b")])


def test_what_is_not_there_cannot_be_removed(model):
    with pytest.raises(UnknownNameError, match="user"):
        model.remove(users="nobody")
    with pytest.raises(UnknownNameError, match="brand"):
        model.remove(facts=[(model.items[0], "has_brand", "no such brand")])
    user = model.users[0]
    free = next(v for v in model.items if v not in model.owned(user))
    with pytest.raises(LogerError, match="has no fact"):
        model.remove(interactions=[(user, free)])


def test_an_encoder_that_cannot_grow_says_so(gnn_model):
    other = gnn_model
    more = other.update([(other.users[0], other.items[50], 5, 10)])
    assert more.graph_.n_triples >= other.graph_.n_triples
    with pytest.raises(LogerError, match="GNN can neither add nor remove entities after its fit"):
        other.update(items=["new"])


# ── fitting again ────────────────────────────────────────────────────────────────────────


def vectors(model: LOGER) -> np.ndarray:
    return model.encoder_.state()["entities.table"]


def test_a_warm_fit_keeps_rules_and_weights_and_trains_the_encoder_on(parts, model):
    other = LOGER().fit(parts, warm_from=model)
    assert other.weights_.tobytes() == model.weights_.tobytes()
    assert [r.names for r in other.rules_] == [r.names for r in model.rules_]
    assert other.config_ == model.config_ and other.updates_ is None
    assert other.graph_.fingerprint == model.graph_.fingerprint
    assert not np.array_equal(vectors(other), vectors(model))
    again = LOGER().fit(parts, warm_from=model)
    assert np.array_equal(vectors(again), vectors(other))


def test_a_warm_fit_takes_over_vectors_by_name(parts, model):
    """Whatever the order in which other data number people and things."""
    later = model.update(items=["a new thing"], users=["a new user"])
    back = Moved.by_name(later.graph_, model.graph_)
    again = later.encoder_.grown(back)
    items = slice(model.graph_.n_users, None)
    assert np.array_equal(again.entities_[items], model.encoder_.entities_[items])
    assert np.array_equal(again.biases_, model.encoder_.biases_)


def test_a_warm_fit_from_a_model_that_knows_the_test_part_is_refused(parts, model):
    pairs = model.ranker_.held_out
    rows = [(model.users[pairs.users[0]], model.items[pairs.items[0]], 5, 10)]
    with pytest.raises(LogerError, match=r"already seen 1 of the .* test interactions"):
        LOGER().fit(parts, warm_from=model.update(rows))
    everything = split(parts.dataset, test=0)
    assert LOGER().fit(everything, warm_from=model.update(rows)).is_fitted


def test_refitting_is_due_when_much_is_new_or_the_model_foresees_less(model):
    assert model.refit_due() == []
    few = model.update([("ann", "new", 5, 10)])
    assert few.refit_due() == []
    many = model.update([(f"u{k}", "new", 5, 10) for k in range(400)])
    said = many.refit_due()
    assert said[0].startswith("interactions have grown by")
    assert said[1] == "100% of the new interactions are with items added since the fit"
    assert "no rule uses awarded" in model.update(facts=[("x", "awarded", "y")]).refit_due()[0]
    log = tuple(Update(ndcg=0.01, ndcg_users=30) for _ in range(2))
    assert due(Updates(Learned({}, 1), 100, log), 0.02)[0].startswith(
        "NDCG@10 on the new interactions is 0.01"
    )
    assert due(Updates(Learned({}, 1), 100, log), 0.011) == []
    assert due(Updates(Learned({}, 1), 100, log[:1]), 0.02) == []


def test_how_well_the_model_foresaw_an_update_is_measured_before_it(model):
    lists = model.recommend(model.users[:60], 10)
    best = lists.group_by("user", maintain_order=True).first()
    time = int(model.graph_.times.max()) + 1
    right = [(u, v, 5, time) for u, v in best.select("user", "item").iter_rows()]
    row = model.update(right, measure=1000).updates_.log[0]
    assert row.ndcg == pytest.approx(1.0) and row.ndcg_users == 60
    row = model.update(right, measure=10).updates_.log[0]
    assert row.ndcg == pytest.approx(1.0) and row.ndcg_users == 10
    assert model.update(right).updates_.log[0].ndcg is None
    assert model.update([("new", "thing", 5, 9)], measure=9).updates_.log[0].ndcg is None


# ── the commands ─────────────────────────────────────────────────────────────────────────


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_updates_a_bundle_in_place_or_elsewhere(model, tmp_path):
    bundle, other = tmp_path / "m", tmp_path / "n"
    model.save(bundle, record={"min_rating": 4.0})
    rows = [("ann", model.items[0], 5, 10), ("bob", "new", 5, 11), ("low", "new", 3, 12)]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    frame.write_csv(tmp_path / "new.csv")
    (tmp_path / "facts.csv").write_text("head,relation,tail\nnew,has_brand,no such brand\n")
    tables = ["--interactions", tmp_path / "new.csv", "--facts", tmp_path / "facts.csv"]
    before = bytes_of(bundle)
    told = run("update", bundle, *tables, "-o", other, "--json")
    assert told.exit_code == 0, told.output
    (row,) = json.loads(told.stdout)["updates"]
    assert (row["interactions"], row["users"], row["items"]) == (2, 2, 1)
    assert bytes_of(bundle) == before
    assert LOGER.load(other).record_ == {"min_rating": 4.0}
    drawn_ = run("update", bundle, *tables)
    assert "new 2 interactions, 1 fact, 2 users, 1 item, 1 entity" in drawn_.output
    assert LOGER.load(bundle).graph_.fingerprint == LOGER.load(other).graph_.fingerprint
    gone = run("update", bundle, "--forget-user", "ann", "--remove-item", "new")
    assert "removed 2 interactions, 1 fact, 1 user, 1 item" in gone.output
    assert not any(b"no such brand" in raw for raw in bytes_of(bundle).values())
    again = run("update", bundle, *tables, "-o", other)
    assert again.exit_code == 2 and "choose a new folder, or pass --force" in again.output
    assert run("update", bundle, *tables, "-o", other, "--force").exit_code == 0
    assert "ann" in LOGER.load(other).users
    nothing = run("update", bundle)
    assert nothing.exit_code == 2 and "nothing to do" in nothing.output
    wrong = run("update", bundle, "--forget-user", "nobody")
    assert wrong.exit_code == 2 and "nobody" in wrong.output


def test_a_bundle_that_was_updated_is_not_evaluated(parts, model, tmp_path):
    model.update(users=["ann"]).save(tmp_path / "m")
    with pytest.raises(LogerError, match="updated after its fit"):
        FitRecord.read(tmp_path / "m").split_of(parts.dataset, LOGER.load(tmp_path / "m"), "m")


def test_the_command_fits_warm(parts, model, tmp_path):
    parts.dataset.save(tmp_path / "data")
    model.save(tmp_path / "m")
    warm = ["fit", tmp_path / "data", "-o", tmp_path / "w", "--warm-from", tmp_path / "m"]
    told = run(*warm, "--json")
    assert told.exit_code == 0, told.output
    fitted = LOGER.load(tmp_path / "w")
    assert fitted.weights_.tobytes() == model.weights_.tobytes()
    assert fitted.record_["warm_from"] == str(tmp_path / "m")
    refused = run(*warm, "--force", "--set", "seed=3")
    assert refused.exit_code == 2 and "keeps the settings of its bundle" in refused.output


def test_columns_that_became_relations_are_facts_of_new_items(model, caplog):
    brand = model.graph_.vocabulary.names[model.graph_.vocabulary.span("brand")[0]]
    rows = [{"id": "new", "label": "New", "brand": f"{brand}; other", "feature": "7", "price": 3.5}]
    later = model.update(items=rows)
    found = {(r, t[1]) for h, r, t in named(later.graph_) if h == ("item", "new")}
    assert found == {("has_brand", brand), ("has_brand", "other")}
    assert "ignored column price of the items" in caplog.text
    assert "ignored feature 7: the model knows only ranges" in caplog.text


def test_rows_that_an_update_leaves_out_are_told_logged_and_kept_without_their_values(
    model, caplog
):
    rows = pl.DataFrame({"user": ["u1", "u2"], "item": ["new", "new"], "rating": [5.0, 1.0]})
    plain = model.update(rows.with_columns(time=7), min_rating=3)
    assert [str(note) for note in plain.updates_.log[-1].notes] == [
        "interactions rated below 3 counted as dislikes: 1"
    ]
    assert "interactions rated below 3 counted as dislikes: 1" in caplog.text
    told = replace(plain.updates_.log[-1], notes=(Note("rows left out", 2, "line 3: ann"),))
    updates = replace(plain.updates_, log=(told,))
    assert "ann" not in str(updates.record())
    assert Updates.of(updates.record()).log[-1].notes == (Note("rows left out", 2),)
