"""Similar items, baskets, groups, the popularity dial: scores equal a guest's, reasons add up."""

from __future__ import annotations

import numpy as np
import pytest

from loger.errors import LogerError, UnknownNameError
from loger.model import LOGER


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


def scores_of(model: LOGER, items: list[str]) -> dict[str, float]:
    """S of all items for a new user who has some, by the slow way: a graph with that user."""
    grown = model.with_interactions(
        [("newcomer", v) for v in items],
        None if model.graph_.times is None else range(len(items)),
    )
    row = grown.score([grown._user("newcomer")])[0]
    return dict(zip(grown.items, row.tolist(), strict=True))


def without_appeal(model: LOGER) -> LOGER:
    return model.with_ranker(model.ranker_.without_appeal())


def test_similar_items_are_those_of_someone_who_has_just_this_item(model):
    item = model.items[3]
    found = model.similar(item, 5)
    slow = scores_of(without_appeal(model), [item])
    slow.pop(item)
    assert found["item"].to_list() == sorted(slow, key=lambda v: -slow[v])[:5]
    mean = np.mean(list(slow.values()))
    for name, score in found.select("item", "score").rows():
        assert score == pytest.approx(slow[name] - mean, abs=1e-4)


def test_the_reason_for_a_similar_item_is_its_whole_score(model):
    """Someone who has one item has one action, and without general appeal nothing else counts."""
    for item in model.items[:20]:
        for score, reasons in model.similar(item, 5).select("score", "reasons").rows():
            if score > 0:
                assert sum(r["total"] for r in reasons) == pytest.approx(score, abs=1e-9)


def test_reasons_of_similar_items_speak_of_no_person(model):
    for language, yours in (("en", "you"), ("de", "du "), ("es", " tu ")):
        told = model.similar(model.items[3], 10, language=language)["because"].to_list()
        assert told and not any(yours in text.lower() for text in told), told


@pytest.mark.parametrize("dial", [-1, 0.5])
def test_the_popularity_dial_shifts_general_appeal_and_nothing_else(model, dial):
    user, item = model.users[0], model.recommend(model.users[0], 1)["item"][0]
    usual, shifted = model.explain(user, item), model.with_popularity(dial).explain(user, item)
    log_popularity = np.log1p(model.graph_.popularity)
    more = dial * (log_popularity[model.items.index(item)] - log_popularity.mean())
    assert shifted.appeal == pytest.approx(usual.appeal + more, abs=1e-9)
    assert shifted.attribution.worth == pytest.approx(usual.attribution.worth, abs=1e-9)
    assert shifted.attribution.encoder == pytest.approx(usual.attribution.encoder, abs=1e-9)
    assert sum(shifted.parts.values()) == pytest.approx(shifted.score, abs=1e-9)
    assert model.with_popularity(0).ranker_ is model.ranker_


def test_less_popular_items_are_recommended_as_the_dial_falls(model):
    users = model.users[:50]
    popularity = dict(zip(model.items, model.graph_.popularity.tolist(), strict=True))
    means = [
        np.mean([popularity[v] for v in model.recommend(users, popularity=dial)["item"]])
        for dial in (-1, 0, 1)
    ]
    assert means[0] <= means[1] <= means[2] and means[0] < means[2]


@pytest.mark.parametrize("dial", [-1.5, 2, "much", True, float("nan")])
def test_a_popularity_out_of_range_is_refused(model, dial):
    with pytest.raises(LogerError, match="popularity must be a number from -1 to 1"):
        model.recommend(model.users[0], popularity=dial)


def test_a_basket_is_a_new_user_with_that_history(model):
    basket = model.items[3:6]
    found = model.recommend(history=basket, k=5, explain=True)
    slow = {v: s for v, s in scores_of(model, basket).items() if v not in basket}
    assert found["item"].to_list() == sorted(slow, key=lambda v: -slow[v])[:5]
    assert found["score"].to_list() == pytest.approx(sorted(slow.values())[-5:][::-1], abs=1e-5)


def test_an_empty_history_is_somebody_new_and_not_everybody(model):
    found = model.recommend(history=[], k=5)
    slow = model.with_users(["newcomer"])
    assert found["user"].n_unique() == 1
    assert found["item"].to_list() == slow.recommend("newcomer", 5)["item"].to_list()


def test_users_and_a_history_exclude_each_other(model):
    with pytest.raises(LogerError, match="pass either users or a history"):
        model.recommend(model.users[0], history=model.items[:1])


def test_a_group_gets_the_sum_of_its_members_leads(model):
    users = model.users[:3]
    found = model.recommend_group(users, 5)
    owned = {v for user in users for v in model.owned(user)}
    leads: dict[str, float] = {}
    for item in model.items:
        if item not in owned:
            leads[item] = sum(model.explain(user, item).lead for user in users)
    best = sorted(leads, key=lambda v: -leads[v])[:5]
    assert found["item"].to_list() == best
    for item, score, members in found.select("item", "score", "members").rows():
        assert score == pytest.approx(leads[item], abs=1e-9)
        assert sum(m["lead"] for m in members) == pytest.approx(score, abs=1e-9)
        assert [m["user"] for m in members] == users


def test_a_group_of_one_gets_that_users_list(model):
    user = model.users[4]
    assert (
        model.recommend_group([user])["item"].to_list() == model.recommend(user)["item"].to_list()
    )


def test_less_like_those_subtracts_what_they_are_similar_to(model):
    more, less = model.items[3], model.items[10]
    found = model.similar(more, 5, less=less)
    plus, minus = (scores_of(without_appeal(model), [v]) for v in (more, less))
    for item, score in found.select("item", "score").rows():
        parts = [
            s[item] - np.mean([x for v, x in s.items() if v != own])
            for s, own in ((plus, more), (minus, less))
        ]
        assert score == pytest.approx(parts[0] - parts[1], abs=1e-4)
    assert less not in found["item"] and more not in found["item"]


def test_complements_and_substitutes_are_told_apart_by_their_rules(model):
    rules = model.rules_
    assert any(r.derived for r in rules) and any(r.shares_fact for r in rules)
    item = model.items[3]
    for kind, fits in (("complements", "derived"), ("substitutes", "shares_fact")):
        (member,) = model.alike([item], kind=kind)
        weights = member.ranker.logic.weights
        expected = [
            w if getattr(r, fits) else 0 for w, r in zip(model.weights_, rules, strict=True)
        ]
        assert weights.tolist() == expected
        assert len(model.similar(item, 3, kind=kind)) == 3
    with pytest.raises(UnknownNameError, match="complements"):
        model.similar(item, kind="complement")


def test_filters_hold_for_similar_items(model):
    item = model.items[3]
    among = set(model.items[50:60])
    found = model.similar(item, 5, include=among)
    assert set(found["item"]) <= among and len(found) == 5


def test_no_item_at_all_is_refused(model):
    with pytest.raises(LogerError, match="at least one item"):
        model.similar([])
    with pytest.raises(LogerError, match="at least one user"):
        model.recommend_group([])


def test_a_model_that_knows_only_its_users_refuses_guests(paper_model):
    with pytest.raises(LogerError, match="default encoder"):
        paper_model.similar(paper_model.items[0])
