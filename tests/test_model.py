"""LOGER as people use it: fit, recommend, explain, what if, save and load."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import jsonschema
import numpy as np
import polars as pl
import pytest

from graphs import scores_as_seen
from loger import __version__
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.encoder.network import GNN
from loger.encoder.published import STEPS
from loger.encoder.sequence import SequenceConfig
from loger.engine import LocalEngine, silent
from loger.engine.files import MANIFEST, manifest_digest
from loger.errors import DataError, LogerError, UnknownNameError
from loger.explain.attribution import explain
from loger.explain.reasons import NEAR
from loger.explain.record import SCHEMA
from loger.graph import history
from loger.learning.estep import HIDDEN
from loger.learning.mstep import RATE
from loger.learning.tune import with_setting
from loger.logic.config import DerivedConfig, EMConfig
from loger.model import LOGER, LOGERConfig
from loger.ranking.selection import Selection
from loger.reasoner.search import ALGORITHM_1, PAPER
from loger.rules.wording import ENGLISH

SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=3))


@pytest.fixture(scope="module")
def demo():
    return shop(seed=0)


@pytest.fixture(scope="module")
def parts(demo):
    return split(demo.dataset)


@pytest.fixture(scope="module")
def plain(parts):
    """Without derived relations and the sequence encoder."""
    bare = replace(SMALL, derived=DerivedConfig.none(), sequence=SequenceConfig(epochs=0))
    return LOGER(bare).fit(parts)


@pytest.fixture(scope="module")
def model(demo_run):
    return LOGER.load(demo_run / "loger-demo" / "bundle")


@pytest.fixture(scope="module")
def paper(parts):
    config = replace(
        LOGERConfig.paper(rounds=1),
        encoder=replace(LOGERConfig.paper().encoder, dimension=16, epochs=3),
    )
    return LOGER(config, name="paper").fit(parts)


def changed(model, user, remove, add, times=None):
    """The model on a graph in which one user has other interactions."""
    graph = model.graph_.without_interactions([user] * len(remove), remove)
    return model.with_ranker(model.ranker_.on(graph.plus([user] * len(add), add, times)))


def names_of(model, items):
    return [model.graph_.vocabulary.names[v + model.graph_.n_users] for v in items]


# ── ranking ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["model", "paper"])
def test_the_top_is_that_of_scoring_every_pair_by_itself(which, request):
    model = request.getfixturevalue(which)
    users = np.arange(0, 600, 40)
    items, scores = model.top(users, 10)
    every = np.arange(model.graph_.n_items)
    for u, row, values in zip(users.tolist(), items, scores, strict=True):
        told = explain(model.ranker_, np.full(len(every), u), every, paths=1)
        own = set(model.ranker_.known([u])[1].tolist())
        slow = sorted(
            (e for e in told if e.item not in own), key=lambda e: (-np.float32(e.score), e.item)
        )[:10]
        assert values == pytest.approx([e.score for e in slow], abs=2e-5)
        assert [e.rank for e in told if e.item == row[0]] == [1]


def test_own_items_are_never_recommended_and_lists_are_sorted(model):
    table = model.recommend(k=10)
    assert table.height == 6000
    for u in range(0, 600, 50):
        name = model.graph_.vocabulary.names[u]
        mine = table.filter(pl.col("user") == name)
        own = names_of(model, history(model.graph_, np.array([u]))[1])
        assert not set(mine["item"]) & set(own)
        assert mine["score"].is_sorted(descending=True)
        assert mine["rank"].to_list() == list(range(1, 11))


def test_only_items_that_are_asked_for_are_ranked(model):
    among = np.zeros(model.graph_.n_items, dtype=bool)
    among[[3, 7]] = True
    own = history(model.graph_, np.array([0]))[1].tolist()
    allowed = [v for v in (3, 7) if v not in own]
    assert allowed
    items, scores, *_ = model.ranker_.choose([0], 5, Selection(among))
    by_score = sorted(allowed, key=lambda v: -model.score([0])[0, v])
    assert items[0].tolist() == [*by_score, *[-1] * (5 - len(allowed))]
    assert scores[0, : len(allowed)].tolist() == model.score([0])[0, by_score].tolist()


def test_a_model_that_was_not_fitted_says_so():
    model = LOGER()
    for ask in (lambda: model.rules_, lambda: model.score([0]), lambda: model.recommend("ann")):
        with pytest.raises(LogerError, match="hasn't been fitted"):
            ask()
    assert not hasattr(model, "graph_")
    assert repr(model) == "<LOGER, not fitted>"


def test_plain_mistakes_are_told_as_what_they_are(model, demo, few):
    with pytest.raises(LogerError, match=r"fit takes a data set or a split, got Demo"):
        LOGER().fit(demo)
    with pytest.raises(LogerError, match=r"got 1\.5"):
        model.recommend(1.5)
    with pytest.raises(LogerError, match="got True"):
        model.recommend([True, 3])
    with pytest.raises(AttributeError, match="no attribute 'rulez_'"):
        model.rulez_  # noqa: B018
    assert "rules with weight" in repr(model)


def test_without_weights_of_rules_the_encoder_alone_gives_reasons(model):
    name, item = model.recommend(model.graph_.vocabulary.names[0], 1).select("user", "item").row(0)
    assert model.explain(name, item).because().startswith("Same ")
    mute = model.without_rules(range(len(model.rules_))).explain(name, item)
    assert mute.rules and mute.paths == ()
    assert mute.shown and all(not reason.paths for reason in mute.shown)
    assert all(reason.total == reason.encoder + reason.sequence for reason in mute.reasons)


def test_one_name_is_as_good_as_a_list_of_one(model):
    user = model.graph_.vocabulary.names[0]
    (item, *_) = names_of(model, history(model.graph_, np.array([0]))[1])
    assert model.what_if(user, item).as_dict() == model.what_if(user, [item]).as_dict()


def test_what_is_removed_is_not_recommended_instead(default_model):
    model = default_model
    for user in model.users[:20]:
        gone = list(model.owned(user)[:3])
        answer = model.what_if(user, gone, k=8).as_dict()
        assert not set(gone) & set(answer["after"]) and len(answer["after"]) == 8
        assert len(answer["scores"]) == 8


def test_a_reason_names_the_item_by_its_id(default_model):
    user = default_model.users[3]
    told = default_model.explain(user, default_model.recommend(user, 1)["item"][0])
    bought = [r.name for r in told.reasons if r.relation == 0]
    assert bought and set(bought) <= set(default_model.owned(user))


class CountingEngine(LocalEngine):
    """Remembers what it was asked to do, and is remembered by those made of it."""

    def __init__(self, workers=1, progress=silent, stages=None):
        super().__init__(workers, progress)
        self.stages = [] if stages is None else stages

    def with_progress(self, progress):
        return CountingEngine(self.workers, progress, self.stages)

    def map(self, what, fn, blocks, shared):
        self.stages.append(what)
        return super().map(what, fn, blocks, shared)


def test_a_fit_that_shows_progress_runs_on_the_models_own_engine(few):
    engine, shown = CountingEngine(), []
    LOGER(SMALL, engine=engine).fit(few, progress=lambda what, done, total: shown.append(what))
    assert {"counting groundings", "gathering candidates", "ranking"} <= set(engine.stages)
    assert "gathering candidates" in shown


def test_few_pairs_are_enough_to_fit_from_python_as_from_the_command_line(few, default_model):
    """The same leniency towards rules (MiningConfig.for_pairs), kept with the model."""
    model = default_model
    assert model.config_.mining.min_support == max(2, len(few.train) // 40)
    assert model.config_.mining.min_lift == 1


def test_a_split_without_validation_is_refused_with_a_remedy(demo):
    with pytest.raises(LogerError, match=r"validation=0\.1"):
        LOGER().fit(split(demo.dataset, validation=0.0))


def test_an_unknown_user_is_named_with_the_nearest(model):
    name = model.graph_.vocabulary.names[0]
    with pytest.raises(UnknownNameError, match=name):
        model.recommend(name[:-1])


# ── the planted rules are found, and are the reasons ─────────────────────────────────────


def test_reasons_recover_the_planted_cause_of_test_purchases(demo, parts, model):
    """The bar: of the test purchases that a planted rule caused, that rule is the largest
    contribution for at least 80 %."""
    right = total = 0
    users, items = parts.pairs("test")
    causes = demo.causes[parts.test]
    caused = causes >= 0
    told = explain(model.ranker_, users[caused].astype(np.int64), items[caused].astype(np.int64), 1)
    for cause, e in zip(causes[caused], told, strict=True):
        total += 1
        right += bool(e.rules) and e.rules[0].rule.names == tuple(demo.planted[cause])
    assert total > 300
    assert right / total >= 0.8, f"{right} of {total}"


# ── explanations ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["model", "paper"])
def test_the_parts_add_up_and_paths_are_facts_of_their_rule(which, request):
    model = request.getfixturevalue(which)
    users = np.arange(0, 600, 10)
    items, scores = model.top(users, 5)
    told = explain(model.ranker_, np.repeat(users, 5), items.ravel(), paths=500)
    for e, score in zip(told, scores.ravel(), strict=True):
        assert e.decomposition_error <= 1e-9
        assert e.encoder + e.logic == pytest.approx(e.score, abs=1e-12)
        assert e.score == pytest.approx(score, abs=1e-4)
        for part in e.rules:
            paths = [p for p in e.paths if p.rule == part.rule]
            if part.contribution > 0 and part.paths <= 400:
                assert len(paths) == part.paths
                assert sum(p.contribution for p in paths) == pytest.approx(part.contribution)
        for shown in e.paths:
            assert shown.path.exists(model.graph_) and shown.path.is_simple()
            assert shown.path.relations == shown.rule.relations
            assert shown.path.entities[0] == e.user
            assert shown.path.entities[-1] == e.item + model.graph_.n_users


def test_the_first_path_is_the_strongest_of_the_rule_that_contributes_most_or_nearly(model):
    users = np.repeat(np.arange(0, 600, 20), 5)
    items = model.top(np.arange(0, 600, 20), 5)[0].ravel().astype(int)
    several = 0
    for e in explain(model.ranker_, users, items, paths=1000):
        if not e.paths:
            continue
        largest = max(part.contribution for part in e.rules)
        near = [r.rule for r in e.rules if r.contribution >= (1 - NEAR) * largest]
        counts = model.ranker_.rule_counts(e.user)
        of = {rule: int(n) for rule, n in zip(model.rules_, counts, strict=True)}
        assert e.paths[0].rule in near
        assert of[e.paths[0].rule] == max(of[rule] for rule in near)
        own = [p.contribution for p in e.paths if p.rule == e.paths[0].rule]
        assert own == sorted(own, reverse=True)
        firsts = [p.rule for p in e.paths[: len({p.rule for p in e.paths})]]
        assert len(set(firsts)) == len(firsts)  # one of each rule before the second of any
        several += len(firsts) > 1
    assert several > 10


def test_no_paths_may_be_asked_for(model):
    told = explain(model.ranker_, np.array([0]), np.array([1]), paths=0)[0]
    assert told.paths == () and told.decomposition_error <= 1e-9


def test_two_calls_give_equal_bytes(model):
    user = model.graph_.vocabulary.names[3]
    item = model.recommend(user, 1)["item"][0]
    first, again = (json.dumps(model.explain(user, item).as_dict()) for _ in range(2))
    assert first == again


def test_the_record_keeps_to_its_schema(model):
    user = model.graph_.vocabulary.names[3]
    items = model.recommend(user, 5)["item"]
    assert len(items) == 5
    for item in items:
        jsonschema.validate(model.explain(user, item).as_dict(), SCHEMA)


def test_an_item_without_a_path_says_so(model):
    graph = model.graph_
    # A user without history has no rule that fires over its own purchases.
    alone = model.with_interactions([("somebody", names_of(model, [0])[0])])
    empty = changed(alone, alone.graph_.vocabulary.id("user", "somebody"), [0], [])
    u = empty.graph_.vocabulary.id("user", "somebody")
    told = explain(empty.ranker_, np.array([u]), np.array([5]))[0]
    assert told.rules == () and told.paths == ()
    assert told.reasons == () and told.because() == ENGLISH.line(ENGLISH.text("no_reason"))
    assert told.explained().paths == ()
    assert graph.n_users + 1 == empty.graph_.n_users


def test_verbs_can_be_overridden(model):
    user = model.graph_.vocabulary.names[0]
    e = model.explain(user, model.recommend(user, 1)["item"][0])
    assert e.shown[0].text("debug").startswith("you bought")
    own = {"en": {"verbs": {"purchase": "owns"}}}
    other = model.explain(user, model.recommend(user, 1)["item"][0], wording=own)
    assert other.shown[0].text("debug").startswith("you own ")


# ── what if, why not, new users ──────────────────────────────────────────────────────────


def test_what_if_equals_the_model_on_a_graph_built_anew(parts, plain):
    """Without those edges, of what happened all the same; derived facts, of which there are none
    here, would stay as fitted."""
    model = plain
    refit = parts.refit()
    events = parts.dataset.interactions
    for u in (0, 17, 300):
        own = history(model.graph_, np.array([u]))[1]
        row = refit.train[(events.users[refit.train] == u) & (events.items[refit.train] == own[0])]
        rebuilt = parts.dataset.graph(np.setdiff1d(refit.train, row))
        other = changed(model, u, [int(own[0])], [])
        assert other.graph_.fingerprint == rebuilt.fingerprint
        assert np.array_equal(other.score([u]), model.ranker_.on(rebuilt).score([u]))
        slow = scores_as_seen(model.ranker_, u, [int(own[0])])
        left = np.setdiff1d(np.arange(model.graph_.n_items), own)
        seen = model.ranker_.user_view(u, [int(own[0])]).score([u])[0]
        assert seen[left] == pytest.approx(slow[left], abs=1e-5)


def test_a_new_user_is_refused_where_the_encoder_has_a_vector_for_each(paper):
    """What lies behind the last user's vector is that of an item."""
    with pytest.raises(LogerError, match=r"unknown user 'somebody': .* loger update"):
        paper.with_interactions([("somebody", paper.items[3])])
    known = paper.users[3]
    assert len(paper.with_interactions([(known, paper.items[3])]).recommend(known, 2)) == 2


@pytest.mark.parametrize("which", ["model", "paper"])
def test_a_user_with_other_purchases_sees_what_a_graph_built_with_them_says(which, request):
    grown = request.getfixturevalue(which).with_users(["new"])
    new = grown.graph_.n_users - 1
    gone = 2 if which == "paper" else 0  # for the default, see the test before
    for u, removed, add in ((3, 0, [8]), (17, gone, [5, 2]), (new, 0, [7, 1])):
        remove = history(grown.graph_, np.array([u]))[1][:removed].tolist()
        seen, built = (
            grown.with_ranker(grown.ranker_.user_view(u, remove, add, range(len(add)))),
            changed(grown, u, remove, add, range(len(add))),
        )
        items, scores = seen.top([u], 5)
        assert np.array_equal(items, built.top([u], 5)[0])
        assert scores == pytest.approx(built.top([u], 5)[1], rel=1e-6)
        pairs = np.full(5, u), items[0]
        for here, there in zip(
            explain(seen.ranker_, *pairs), explain(built.ranker_, *pairs), strict=True
        ):
            assert str(here) == str(there)
            assert here.rank_without_logic == there.rank_without_logic
        name = grown.graph_.vocabulary.names[u]
        assert seen.importance(name).equals(built.importance(name))


def test_what_if_tells_what_is_gone_and_what_is_new(model):
    user = model.graph_.vocabulary.names[0]
    own = names_of(model, history(model.graph_, np.array([0]))[1])
    told = model.what_if(user, remove=own[:1])
    assert set(told.before) - set(told.after) == set(told.gone)
    assert told.as_dict()["before"] == model.recommend(user)["item"].to_list()
    nothing = model.what_if(user)
    assert nothing.before == nothing.after
    added = model.what_if(user, add=[model.recommend(user, 1)["item"][0]])
    assert added.before[0] not in added.after  # it is owned now
    with pytest.raises(LogerError, match="doesn't have"):
        model.what_if(user, remove=[model.recommend(user, 1)["item"][0]])
    with pytest.raises(LogerError, match="already has"):
        model.what_if(user, add=own[:1])


def test_what_if_rebuilt_is_the_model_from_which_the_interactions_were_removed(model):
    differ = 0
    for u in (0, 17, 300):
        user = model.graph_.vocabulary.names[u]
        own = names_of(model, history(model.graph_, np.array([u]))[1])[:1]
        told = model.what_if(user, remove=own, rebuild=True)
        removed = model.remove(interactions=[(user, own[0])])
        items, scores = removed.ranker_.top([u], 11)
        gone = model.graph_.vocabulary.id("item", own[0]) - model.graph_.n_users
        left = items[0] != gone  # what was removed does not come back into the list
        assert told.after == tuple(items[0][left][:10].tolist())
        assert told.scores == pytest.approx(scores[0][left][:10].tolist(), rel=1e-6)
        differ += told.scores != model.what_if(user, remove=own).scores
    assert differ  # in the view the history stays as long as it was


def test_why_not_gives_the_rank_the_gap_and_the_silent_rules(model):
    user = model.graph_.vocabulary.names[0]
    order = model.recommend(user, 50)["item"].to_list()
    told = model.why_not(user, order[30], k=10)
    assert told.explanation.rank == 31
    assert told.gap > 0
    fires = {part.rule for part in told.explanation.rules}
    assert not fires & {part.rule for part in told.silent}
    assert "rank 31" in str(told)
    assert "is in the list" in str(model.why_not(user, order[2], k=10))
    own = names_of(model, history(model.graph_, np.array([0]))[1][:1])
    assert "already has it" in str(model.why_not(user, own[0]))


def test_a_new_user_with_the_history_of_an_old_one_gets_the_same_list(plain):
    """Rules over the user's own purchases and the encoder need nothing but them; rules over derived
    relations, of which there are none here, also ask when they were."""
    model = plain
    u = next(
        u
        for u in range(600)
        if {
            int(r)
            for r in model.graph_.segment_relations[
                model.graph_.row_segments[u] : model.graph_.row_segments[u + 1]
            ]
        }
        == {0}
    )
    own = names_of(model, history(model.graph_, np.array([u]))[1])
    fewer = changed(model, u, history(model.graph_, np.array([u]))[1].tolist(), [])
    grown = fewer.with_interactions([("twin", v) for v in own])
    assert grown.recommend("twin")["item"].to_list() == (
        model.recommend(model.graph_.vocabulary.names[u])["item"].to_list()
    )


def test_a_model_with_users_who_were_only_tried_is_not_saved_half(model, tmp_path):
    item = names_of(model, [0])[0]
    with pytest.raises(LogerError, match=r"add them with update\(users=…\)"):
        model.with_interactions([("late", item)]).save(tmp_path)


def test_new_interactions_change_the_list_without_training(model):
    user = model.graph_.vocabulary.names[5]
    best = model.recommend(user, 1)["item"][0]
    later = model.with_interactions([(user, best)])
    assert best not in later.recommend(user)["item"].to_list()
    assert later.encoder_ is model.encoder_


# ── keeping ──────────────────────────────────────────────────────────────────────────────


def test_two_fits_with_one_seed_give_byte_equal_bundles_and_another_seed_does_not(
    few, default_bundle, tmp_path
):
    """The other fit is that of ``default_bundle``, most often in another process."""
    for folder, seed in (("same", 0), ("other", 1)):
        LOGER(replace(SMALL, seed=seed)).fit(few).save(tmp_path / folder)
    for file in default_bundle.iterdir():
        assert file.read_bytes() == (tmp_path / "same" / file.name).read_bytes(), file.name
    weights = "encoder.safetensors"
    assert (default_bundle / weights).read_bytes() != (tmp_path / "other" / weights).read_bytes()


def test_an_additive_model_comes_back_and_its_parts_add_up(parts, tmp_path):
    em = replace(SMALL.em, additive=True, saturation=10.0)
    model = LOGER(replace(SMALL, em=em)).fit(parts, checkpoint=tmp_path / "stages")
    assert model.ranker_.fusion.own is not None
    model.save(tmp_path / "bundle")
    back = LOGER.load(tmp_path / "bundle")
    again = LOGER(replace(SMALL, em=em)).fit(parts, checkpoint=tmp_path / "stages")
    for other in (back, again):
        assert np.array_equal(other.score([0, 5]), model.score([0, 5]))
    user = model.graph_.vocabulary.names[4]
    for row in model.recommend(user, 3).to_dicts():
        why = back.explain(user, row["item"])
        assert sum(why.parts.values()) == pytest.approx(row["score"], abs=1e-3)
        assert why.opaque is None


@pytest.mark.parametrize("which", ["model", "paper"])
def test_a_saved_model_comes_back_and_scores_the_same(which, request, tmp_path):
    model = request.getfixturevalue(which)
    model.save(tmp_path)
    back = LOGER.load(tmp_path)
    assert np.array_equal(back.score([0, 5]), model.score([0, 5]))
    assert (back.name, back.config_) == (model.name, model.config_)
    assert (back.trace_, back.tried_) == (model.trace_, model.tried_)
    assert str(back.rules_) == str(model.rules_)
    user = model.graph_.vocabulary.names[4]
    item = model.recommend(user, 1)["item"][0]
    assert back.explain(user, item).as_dict() == model.explain(user, item).as_dict()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda about: about["config"].update(glow=1), "unknown setting 'config.glow'"),
        (
            lambda about: about["config"]["em"].update(fusion="mix"),
            "unknown value of config.em.fusion",
        ),
        (lambda about: about["encoder_config"].update(seed="x"), "encoder_config.seed must be int"),
        (lambda about: about.update(encoder="Oracle"), "unknown encoder 'Oracle'"),
        (
            lambda about: about["config"]["em"]["walk"].update(first=-1e308),
            "em.walk.first must keep strengths finite, got -1e+308",
        ),
        (lambda about: about.pop("learned"), "can't read the bundle (KeyError('learned'))"),
        (
            lambda about: about["learned"]["trace"][0].update(x=1),
            "can't read the bundle (TypeError",
        ),
    ],
)
def test_a_bundle_of_another_version_is_refused_with_both_versions(model, tmp_path, change, what):
    model.save(tmp_path / "bundle")
    parts = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    change(parts["about"])
    parts = {k: v for k, v in parts.items() if k != "sha256"} | {"loger": "9.9"}
    signed = {**parts, "sha256": manifest_digest(parts)}
    (tmp_path / "bundle" / MANIFEST).write_text(json.dumps(signed))
    with pytest.raises(DataError) as caught:
        LOGER.load(tmp_path / "bundle")
    for part in (MANIFEST, what, f"(fitted by loger 9.9, this is {__version__}); fit again"):
        assert part in str(caught.value)


def test_a_bundle_from_before_some_settings_does_what_it_did(default_bundle, tmp_path):
    shutil.copytree(default_bundle, tmp_path / "bundle")
    parts = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    parts.pop("sha256")
    config = parts["about"]["config"]
    config.pop("sequence")
    config["encoder"].pop("loss")
    config["encoder"]["max_interactions"] = config["em"]["fit_users"] = 7  # were settings
    config["em"]["opacity"] = config["em"].pop("max_encoder_share")
    signed = {**parts, "sha256": manifest_digest(parts)}
    (tmp_path / "bundle" / MANIFEST).write_text(json.dumps(signed))
    old, now = LOGER.load(tmp_path / "bundle"), LOGER.load(default_bundle)
    assert (
        old.config_.sequence.epochs == 0
    )  # there was no such encoder: nor will an update have one
    assert replace(old.config_, sequence=now.config_.sequence) == now.config_
    assert np.array_equal(old.score([0, 5]), now.score([0, 5]))


def test_a_damaged_bundle_is_refused(model, tmp_path):
    model.save(tmp_path)
    path = tmp_path / "logic.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="damaged"):
        LOGER.load(tmp_path)


def test_an_interrupted_fit_takes_up_the_encoder_where_it_was(few, default_model, tmp_path):

    class StopError(Exception):
        pass

    def stop(what, done, total):
        if what == "training the encoder" and done > 0.8 * total:
            raise StopError

    with pytest.raises(StopError):
        LOGER(SMALL, engine=LocalEngine(1)).fit(few, checkpoint=tmp_path, progress=stop)
    again = LOGER(SMALL).fit(few, checkpoint=tmp_path)
    assert np.array_equal(default_model.score([0, 1]), again.score([0, 1]))


# ── settings ─────────────────────────────────────────────────────────────────────────────


def test_tuning_keeps_the_best_of_what_it_tried(few):
    many = replace(SMALL, em=replace(SMALL.em, many_labels=0))
    model = LOGER(many).fit(few, tune={"feature": ("set", "logwalk"), "recency": (0.0, 2.0)})
    best = {}
    for name, value, ndcg in model.tried_:
        if name not in best or ndcg > best[name][1]:
            best[name] = value, ndcg
    assert model.config_.em.feature == best["feature"][0]
    assert model.config_.em.walk.recency == best["recency"][0]
    assert [name for name, *_ in model.tried_ if name in best].count("feature") == 2
    assert [name for name, *_ in model.tried_ if name in best].count("recency") == 2


def test_an_unknown_setting_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="recency"):
        with_setting(EMConfig(), "recencyy", 1.0)


def test_the_paper_preset_is_as_published(paper):
    assert all(len(rule) == 3 for rule in paper.rules_)
    assert (np.diff(paper.ranker_.logic_graph.segment_starts) <= 100).all()
    em = paper.config_.em
    assert (em.feature, em.fusion, em.alpha, em.tau, em.likelihood) == (
        "set", "sum", 0.3, 0.5, "pseudo",
    )  # fmt: skip
    assert (HIDDEN, em.max_hidden, em.early_stop, RATE) == (50, 50, True, 1e-5)
    published = LOGERConfig.paper()
    assert (published.encoder.dimension, published.encoder.users) == (100, "free")
    assert [LOGERConfig.paper(rounds=n).em.rounds for n in (4, 2, 3)] == [4, 2, 3]
    assert published.explain_by == "reasoner"
    assert (published.reasoner, published.search) == (PAPER, ALGORITHM_1)
    assert (published.search.branch, published.search.restrict) == (10, "nothing")


def test_the_paper_preset_tries_no_walk_since_its_feature_has_none(paper):
    assert not paper.tried_


def test_the_literal_preset_has_the_steps_rates_and_margin_of_the_authors_code():
    fair, literal = LOGERConfig.paper(), LOGERConfig.paper_literal()
    em = replace(literal.em, negatives=10.0, early_stop=True, steps=200)
    assert replace(literal, encoder=fair.encoder, em=em) == fair
    e = literal.encoder
    assert (e.epochs * STEPS, e.batch, e.rate, e.final_rate, e.gamma) == (
        150_000, 512, 1e-4, 1e-5, 24.0
    )  # fmt: skip
    assert (e.dimension, e.users, e.distance, e.loss) == (100, "free", "l1", "adversarial")
    assert (literal.em.steps, literal.em.rounds) == (1000, 4)


def test_any_encoder_is_a_two_line_change(few, tmp_path):
    model = LOGER(SMALL, encoder=lambda: GNN(dimension=8, epochs=1)).fit(few, tune={})
    assert model.recommend(model.graph_.vocabulary.names[0], 3).height == 3
    model.save(tmp_path)
    assert np.allclose(LOGER.load(tmp_path).score([0]), model.score([0]), atol=1e-5)


def test_importance_is_weight_times_share_of_the_users_paths(model):
    table = model.importance(model.graph_.vocabulary.names[0])
    n = table["n"].to_numpy()
    assert n.sum() > 0
    assert table["importance"].to_numpy() == pytest.approx(table["weight"].to_numpy() * n / n.sum())


def test_settings_are_got_and_set_as_search_tools_do():
    model = LOGER(seed=3)
    assert model.get_params(deep=False)["seed"] == 3
    assert model.get_params()["em__walk__recency"] == model.config.em.walk.recency
    model.set_params(em__rounds=2, mining__max_rules=7, name="mine")
    assert (model.config.em.rounds, model.config.mining.max_rules) == (2, 7)
    assert (model.name, model.config.seed) == ("mine", 3)
    other = model.clone().set_params(seed=5)
    assert (other.config.em.rounds, other.config.em.seed, model.config.seed) == (2, 5, 3)
    with pytest.raises(UnknownNameError, match=r"'em.round'; did you mean 'em.rounds'"):
        model.set_params(em__round=1)


def test_scikit_learn_clones_it():
    base = pytest.importorskip("sklearn.base")
    model = LOGER(LOGERConfig.paper(), seed=4)
    assert base.clone(model).config == model.config
