"""Which actions an item's place depends on, and what would replace it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from graphs import scores_as_seen
from loger.evaluation.faithfulness import LogerActions
from loger.explain.questions import Counterfactual
from loger.graph import history


@pytest.fixture(scope="module")
def model(default_model):
    return default_model


def listed(model, user, gone, k):
    """Recommendations without some interactions, the slow way: from a graph built again."""
    scores = scores_as_seen(model.ranker_, user, gone)
    scores[model.ranker_.known([user])[1]] = -np.inf
    return np.argsort(-scores, kind="stable")[:k].tolist()


def test_the_counterfactual_is_that_of_brute_force_and_names_what_comes_instead(model):
    k, found = 3, 0
    for user in range(6):
        owned = history(model.graph_, np.array([user]))[1].tolist()
        before = listed(model, user, (), k)
        why = Counterfactual.of(model.ranker_, user, before[0], k, most=2)
        sizes = [
            size
            for size in (1, 2)
            if any(
                before[0] not in listed(model, user, gone, k) for gone in combinations(owned, size)
            )
        ]
        assert why.exact
        assert len(why.actions) == min(sizes, default=0)
        if why.actions:
            after = listed(model, user, why.actions, k)
            assert before[0] not in after
            assert why.instead == next(v for v in after if v not in before)
            assert set(why.actions) <= set(owned)
            found += 1
    assert found > 2


def test_a_counterfactual_reads_as_a_sentence_and_as_a_record(model):
    user = model.graph_.vocabulary.names[0]
    names, first = model.graph_.vocabulary.names, model.graph_.n_users
    item = names[int(model.top([0], 1)[0][0, 0]) + first]
    why = model.counterfactual(user, item, k=1)
    record = why.as_dict()
    assert (record["user"], record["item"], record["k"]) == (user, item, 1)
    assert len(record["without"]) == len(why.actions) > 0
    assert str(why).startswith("without ")
    a, b, c = (model.graph_.vocabulary.shown[v + first] for v in (0, 1, 2))
    for gone, said in (((0,), a), ((0, 1), f"{a} and {b}"), ((0, 1, 2), f"{a}, {b} and {c}")):
        assert str(replace(why, actions=gone)).startswith(f"without {said}, you'd see ")
    assert str(why).endswith(f"instead of {model.graph_.vocabulary.labels[why.item + first]}")
    assert record["instead"] == names[why.instead + first]
    assert model.explain(user, item).counterfactual is None
    told = model.explain(user, item, counterfactual=True)
    assert told.counterfactual.as_dict() == model.counterfactual(user, item).as_dict()
    assert str(told.counterfactual) in str(told)
    worst = names[int(model.score([0])[0].argmin()) + first]  # -inf: what the user has
    none = model.counterfactual(user, worst, k=1)
    assert (none.actions, none.instead, none.exact) == ((), None, True)
    assert str(none).endswith("isn't in the top 1")
    stays = Counterfactual(model.graph_, 0, why.item, 1, True, (), None, True)
    assert str(stays).startswith("removing a few actions wouldn't take ")


def test_what_loger_says_of_actions_adds_up_and_goes_with_what_is_removed(model):
    acts = LogerActions(model.ranker_)
    for user in range(8):
        items = model.top([user], 4)[0][0].tolist()
        told = acts.contributions(user, items)
        owned = acts.history(user)
        assert told.actions.shape == (len(owned), 4)
        for column, item in enumerate(items):
            why = model.explain(model.graph_.vocabulary.names[user], _name(model, item))
            whole = told.actions[:, column].sum() + told.facts[:, column].sum()
            assert whole + why.appeal == pytest.approx(told.leads[column])
            assert told.leads[column] == pytest.approx(why.lead)
        # What stays once every interaction is removed are the facts told by none of them.
        bare = model.graph_.without_interactions([user] * len(owned), owned.tolist())
        lo, hi = bare.indptr[user], bare.indptr[user + 1]
        assert len(told.facts) == hi - lo
        gone = acts.rescore(user, owned[:1].tolist())
        slow = scores_as_seen(model.ranker_, user, owned[:1].tolist())
        new = np.setdiff1d(np.arange(model.graph_.n_items), owned)
        assert gone[new] == pytest.approx(slow[new], abs=1e-5)


def _name(model, item):
    return model.graph_.vocabulary.names[item + model.graph_.n_users]
