"""What new items are worth beside known ones: gain and shift of their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grown import named
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.encoder.folding import score_unowned
from loger.errors import LogerError
from loger.graph import Pairs
from loger.graph.arrays import expit
from loger.logic.config import DerivedConfig
from loger.model import LOGER, LOGERConfig
from loger.updates.newcomers import fitted_scale, without_interactions

SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=3), derived=DerivedConfig(tune=False))


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


def twin_of(model, item: str, name: str) -> list[tuple[str, str, str]]:
    """The facts of an item, said of another."""
    return [
        (name, r, t[1])
        for (h, r, t) in named(model.graph_.given)
        if h == ("item", item) and r.startswith("has")
    ]


@pytest.fixture(scope="module")
def later(model):
    return model.update(facts=twin_of(model, model.items[3], "twin"))


def test_the_scale_is_found_by_which_the_chances_were_made():
    rng = np.random.default_rng(0)
    x, offset = rng.normal(size=5000), rng.normal(-3, 1, size=5000)
    gain, shift = fitted_scale(x, offset, expit(offset + 1.7 * x - 0.4))
    assert (gain, shift) == pytest.approx((1.7, -0.4), abs=0.02)
    assert fitted_scale(np.empty(0), np.empty(0), np.empty(0)) == (1.0, 0.0)


def test_what_the_encoder_gives_known_items_is_the_same_to_the_bit(model, later):
    users = np.arange(model.graph_.n_users)
    before, after = (m.ranker_.encoder_scores(users) for m in (model, later))
    assert after[:, :100].tobytes() == before.tobytes()
    gains = later.encoder_.state()["gains"]
    assert (gains[:100] == [1, 0]).all() and (gains[100] != [1, 0]).all()
    assert "gains" not in model.encoder_.state()


def test_a_new_item_is_expected_to_have_the_chances_that_known_ones_have(model, later):
    """Over all users, the twin of a known item has a mean chance near those of known items, and
    without gain and shift it is further away."""
    ranker, users = later.ranker_, np.arange(later.graph_.n_users)
    weight, own = ranker.fusion.encoder_weight, ranker.fusion.own
    logits = ranker.logic.logits(ranker.logic_graph, users)

    def chances(encoder):
        s = score_unowned(encoder, ranker.graph, users, ranker.walk, own)
        total = logits + weight * s
        return expit(total - np.log(np.exp(total[:, :100]).sum(1, keepdims=True))).mean(0)

    plain = later.encoder_.with_gains(
        np.ones(101, dtype=np.float32), np.zeros(101, dtype=np.float32)
    )
    usual = np.log(chances(later.encoder_)[:100].mean())
    apart = [abs(np.log(chances(e)[100]) - usual) for e in (later.encoder_, plain)]
    assert apart[0] < apart[1]


def test_rules_over_facts_alone_say_of_a_new_item_what_all_rules_say(later):
    ranker, users = later.ranker_, np.arange(later.graph_.n_users)
    by_facts = without_interactions(ranker.logic, later.graph_)
    assert 0 < len(by_facts.rules) < len(ranker.logic.rules)
    one, other = (x.logits(ranker.logic_graph, users) for x in (by_facts, ranker.logic))
    np.testing.assert_allclose(one[:, 100], other[:, 100], rtol=1e-6)
    assert not np.allclose(one[:, :100], other[:, :100])


def test_gain_and_shift_fade_as_people_take_an_item(model):
    like = model.items[3]
    facts = [*twin_of(model, like, "twin"), *twin_of(model, like, "taken")]
    rows = [(user, "taken", 5, 10) for user in model.users[:6]]
    later = model.update(rows, facts=facts)
    gains = later.encoder_.state()["gains"]
    taken, twin = (gains[later.items.index(name)] - [1, 0] for name in ("taken", "twin"))
    relations = len({relation for _, relation, _ in facts})
    np.testing.assert_allclose(taken, twin * relations / (relations + 6), rtol=1e-4)


def test_parts_of_a_new_item_add_up_to_its_score(later):
    scores = later.ranker_.scores(np.arange(20))
    for place, user in enumerate(later.users[:20]):
        told = later.explain(user, "twin")
        assert told.score == pytest.approx(scores.total[place, 100], abs=1e-5)
        total = told.mean + told.appeal + sum(reason.total for reason in told.reasons)
        assert total == pytest.approx(told.score, abs=1e-9)
        assert told.mean == pytest.approx(scores.mean(place), abs=1e-5)


def test_an_item_that_a_user_has_is_scored_by_the_rest_of_the_history(model):
    """Held against a history in which the item counts nothing, but as long."""
    ranker = model.ranker_
    user, own = 4, ranker.fusion.own
    scores = score_unowned(ranker.encoder, ranker.graph, np.array([user]), ranker.walk, own)[0]
    _, items = ranker.known([user])
    item = int(np.setdiff1d(items, ranker.held_out.items[ranker.held_out.users == user])[0])
    without = replace(ranker.user_view(user, remove=[item]), held_out=Pairs())
    assert scores[item] == pytest.approx(without.encoder_scores([user])[0, item], abs=1e-5)


def test_without_facts_or_sums_nothing_is_expected(model):
    assert (model.update(items=["bare"]).encoder_.state()["gains"] == [1, 0]).all()
    free = LOGER(replace(SMALL, em=replace(SMALL.em, additive=False)))
    free.fit(split(shop(seed=2, users=60, items=60).dataset))
    later = free.update(facts=twin_of(free, free.items[3], "twin"))
    assert "gains" not in later.encoder_.state()


def test_gains_of_another_catalogue_are_refused(later):
    state = later.encoder_.state()
    state["gains"] = state["gains"][1:]
    with pytest.raises(LogerError, match="gains does not fit"):
        type(later.encoder_)(later.encoder_.config).load_state(later.graph_.given, state)
