"""Baselines that use times, fading histories and sequence rules, against slow implementations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loger.baselines import EASE, ItemKNN, RP3beta, SequenceRules
from loger.baselines._shared import decayed, ordered_events, pair_ages
from loger.data import load, split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.evaluation.evaluate import evaluate
from loger.graph.view import history_edges

WHOLE = split(shop(users=50, items=60).dataset)
EVENTS = WHOLE.dataset.interactions
# Days rather than seconds, so that many interactions share a time.
DAYS = replace(EVENTS, times=EVENTS.times // np.int64(40 * 86_400))
PARTS = replace(WHOLE, dataset=replace(WHOLE.dataset, interactions=DAYS))
TIMELESS = replace(WHOLE, dataset=replace(WHOLE.dataset, interactions=replace(EVENTS, times=None)))
N_USERS, N_ITEMS = PARTS.dataset.n_users, PARTS.dataset.n_items
USERS = np.arange(N_USERS)


def histories() -> list[list[tuple[int, int]]]:
    """Each user's training (time, item), in order; ties as the data have them."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(N_USERS)]
    for row in sorted(PARTS.train):
        out[DAYS.users[row]].append((int(DAYS.times[row]), int(DAYS.items[row])))
    return [sorted(events, key=lambda event: event[0]) for events in out]


def slow_ages() -> np.ndarray:
    """1 + how many came later, where the user has the item; else 0."""
    out = np.zeros((N_USERS, N_ITEMS))
    for u, events in enumerate(histories()):
        for time, item in events:
            out[u, item] = 1 + sum(other > time for other, _ in events)
    return out


def faded(exponent: float) -> np.ndarray:
    ages = slow_ages()
    return np.where(ages > 0, np.maximum(ages, 1) ** -exponent, 0)


def test_ages_count_what_came_later_and_agree_with_the_graph():
    ages = pair_ages(PARTS, "it", 1.0)
    assert (ages.toarray() == slow_ages()).all()
    ties = [len(events) - len({time for time, _ in events}) for events in histories()]
    assert sum(ties) > 20  # else this would not tell how ties are counted
    graph = PARTS.graph
    owners, edges = history_edges(graph, USERS)
    assert (ages[owners, graph.tails[edges] - N_USERS] == 1 + graph.later[edges]).all()


def test_a_history_that_does_not_fade_is_one_of_ones():
    assert (decayed(pair_ages(PARTS, "it"), 0.0).data == 1).all()
    assert (pair_ages(TIMELESS, "it").data == 1).all()


def test_order_is_by_time_and_then_as_the_data_have_it():
    users, items, times = ordered_events(PARTS)
    told = [
        list(zip(times[users == u].tolist(), items[users == u].tolist(), strict=True))
        for u in USERS
    ]
    assert told == histories()


@pytest.mark.parametrize("make", [EASE, ItemKNN, RP3beta])
@pytest.mark.parametrize("setting", ["recency", "training_recency"])
def test_fading_needs_times_and_fades_forwards(make, setting):
    with pytest.raises(LogerError, match="needs times"):
        make(**{setting: 0.5}).fit(TIMELESS)
    with pytest.raises(LogerError, match="at least 0"):
        make(**{setting: -0.5})


def test_faded_ease_equals_its_formula():
    rows = faded(0.3)
    inverse = np.linalg.inv(rows.T @ rows + 20 * np.eye(N_ITEMS))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    counts = np.maximum((slow_ages() > 0).sum(axis=0), 1)
    slow = faded(0.8) @ weights / counts**0.25
    model = EASE(l2=20, recency=0.8, training_recency=0.3, popularity=0.25).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), slow, rtol=1e-3, atol=1e-5)


def test_faded_itemknn_equals_its_formula():
    rows = faded(0.3)
    norms = np.linalg.norm(rows, axis=0)
    similarity = rows.T @ rows / (np.outer(norms, norms) + 5)
    np.fill_diagonal(similarity, 0)
    model = ItemKNN(neighbours=1000, shrink=5, recency=0.8, training_recency=0.3).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), faded(0.8) @ similarity, rtol=1e-4, atol=1e-6)


def test_faded_walks_equal_walking():
    have, first, steps = slow_ages() > 0, faded(0.8), faded(0.3)
    out = np.zeros((N_USERS, N_ITEMS))
    for u, i in np.argwhere(have):
        for other in np.flatnonzero(have[:, i]):
            for j in np.flatnonzero(have[other]):
                ways = have[u].sum() * have[:, i].sum() * have[other].sum()
                weight = first[u, i] * steps[other, i] * steps[other, j]
                out[u, j] += (i != j) * weight * ways**-0.7 * have[:, j].sum() ** -0.4
    model = RP3beta(alpha=0.7, beta=0.4, recency=0.8, training_recency=0.3).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), out, rtol=1e-4)


def slow_sequence(window, distance, popularity, shrink, recency):
    counts = np.zeros((N_ITEMS, N_ITEMS))
    for events in histories():
        for p, (_, i) in enumerate(events):
            for q, (_, j) in enumerate(events):
                if 0 < q - p <= window:
                    counts[i, j] += (q - p) ** -distance
    leaves, enters = counts.sum(axis=1), counts.sum(axis=0)
    rules = np.zeros_like(counts)
    for i, j in np.argwhere(counts):
        rules[i, j] = counts[i, j] / ((leaves[i] + shrink) * enters[j] ** popularity)
    return faded(recency) @ rules


@pytest.mark.parametrize(
    "settings", [(3, 0.5, 0.3, 4.0, 1.0), (1, 0.0, 0.0, 0.1, 0.0), (1000, 1.5, 0.6, 50.0, 0.7)]
)
def test_sequence_rules_equal_their_formula(settings):
    names = ("window", "distance", "popularity", "shrink", "recency")
    model = SequenceRules(**dict(zip(names, settings, strict=True))).fit(PARTS)
    np.testing.assert_allclose(model.score(USERS), slow_sequence(*settings), rtol=1e-4)


def test_of_many_followers_the_most_frequent_stay():
    whole = SequenceRules().fit(PARTS).counts_.toarray()
    cut = SequenceRules(neighbours=3).fit(PARTS).counts_.toarray()
    assert ((cut == whole) | (cut == 0)).all()
    assert ((cut > 0).sum(axis=1) == np.minimum((whole > 0).sum(axis=1), 3)).all()
    for kept, row in zip(cut, whole, strict=True):
        assert sorted(kept)[-3:] == sorted(row)[-3:]


def test_sequence_rules_learn_a_direction():
    model = SequenceRules(recency=2.0, shrink=1.0).fit(PARTS)
    assert not np.allclose(model.counts_.toarray(), model.counts_.toarray().T)


@pytest.mark.parametrize("setting", [{"window": 0}, {"shrink": 0.0}, {"neighbours": 0}])
def test_sequence_settings_without_sense_are_refused(setting):
    with pytest.raises(LogerError, match="must be"):
        SequenceRules(**setting)


def test_sequence_rules_without_times_are_refused():
    with pytest.raises(LogerError, match="order of interactions is unknown"):
        SequenceRules().fit(TIMELESS)


@pytest.mark.long
def test_sequence_rules_reach_on_ml1m_what_issue_16_measured(real_data):
    """There ties had ages by place, and the figure was 28.26 / 14.07; one age for all of them is
    worth a third of a point."""
    parts = split(load(real_data / "ml1m")).refit()
    settings = {"window": 100, "distance": 0.25, "popularity": 0.3, "shrink": 400.0}
    model = SequenceRules(recency=1.0, **settings).fit(parts)
    report = evaluate([model], parts, samples=10)
    got = [100 * report.mean(model.name, metric) for metric in ("ndcg", "recall")]
    np.testing.assert_allclose(got, (28.61, 14.30), atol=0.02)
    # Ages by place: the same rules with the times replaced by the order itself.
    events = parts.dataset.interactions
    order = np.lexsort((np.arange(len(events)), events.times, events.users))
    places = np.empty(len(events), dtype=np.int64)
    places[order] = np.arange(len(events))
    untied = replace(
        parts, dataset=replace(parts.dataset, interactions=replace(events, times=places))
    )
    report = evaluate([SequenceRules(recency=1.0, **settings).fit(untied)], untied, samples=10)
    got = [100 * report.mean(model.name, metric) for metric in ("ndcg", "recall")]
    np.testing.assert_allclose(got, (28.26, 14.07), atol=0.01)
