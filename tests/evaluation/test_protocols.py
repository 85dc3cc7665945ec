"""Measures from other papers: by hand, against slow implementations, on known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import explainers as asked
from evaluation.test_actions import Sums
from loger.engine import LocalEngine
from loger.evaluation.faithfulness.actions import LogerActions, Scenes
from other_measures import (
    MEANINGS,
    RebuiltActions,
    by_protocols,
    compared,
    gini,
    measured,
    predicted,
    rank_correlation,
    removals,
)


def slow_place(acts, user, item, kept):
    """The item's place from 1 when only some actions are kept: count who is before it."""
    gone = [v for k, v in enumerate(acts.history(user)) if k not in kept]
    scores = acts.rescore(user, gone)
    place = 1
    for other in range(len(scores)):
        if other in acts.history(user) or other == item:
            continue
        if scores[other] > scores[item] or (scores[other] == scores[item] and other < item):
            place += 1
    return place


def slow_lead(acts, user, item, kept):
    gone = [v for k, v in enumerate(acts.history(user)) if k not in kept]
    scores = acts.rescore(user, gone)
    free = [scores[v] for v in range(len(scores)) if v not in acts.history(user)]
    return scores[item] - sum(free) / len(free)


def slow_list(acts, user, kept, k=10):
    free = [v for v in range(acts.worth.shape[1]) if v not in acts.history(user)]
    return [v for v in free if slow_place(acts, user, v, kept) <= k]


def slow(acts, user, item, importance):
    """The protocol as the papers tell it, one removal after the other."""
    n = len(importance)
    order = sorted(range(n), key=lambda a: -importance[a])
    cuts, size = [0], 0
    for b in range(10):  # the first bins have one action more where they cannot be equal
        size += n // 10 + (1 if b < n % 10 else 0)
        cuts.append(size)
    whole = slow_lead(acts, user, item, set(range(n)))
    out = {"del": 0.0, "ins": 0.0, "cdcg": 0.0}
    for cut in cuts:
        kept, worst_gone = set(order[cut:]), set(order[: n - cut])
        place = slow_place(acts, user, item, kept)
        out["del"] += slow_lead(acts, user, item, kept) / whole / 11
        out["ins"] += slow_lead(acts, user, item, set(order[:cut])) / whole / 11
        out["cdcg"] += 1 / np.log2(1 + place) / 11
        for k in (5, 10, 20):
            low = slow_place(acts, user, item, worst_gone) <= k
            out[f"pos_{k}"] = out.get(f"pos_{k}", 0) + (place <= k) / 11
            out[f"neg_{k}"] = out.get(f"neg_{k}", 0) + low / 11
    few = range(1, min(5, n) + 1)
    for name in ("pos_10_few", "cdcg_few", "del_few"):
        out[name] = 0.0
    for cut in few:
        kept = set(order[cut:])
        place = slow_place(acts, user, item, kept)
        out["pos_10_few"] += (place <= 10) / len(few)
        out["cdcg_few"] += 1 / np.log2(1 + place) / len(few)
        out["del_few"] += slow_lead(acts, user, item, kept) / whole / len(few)
    before = set(slow_list(acts, user, set(range(n))))
    out["pos_p"] = np.mean(
        [len(before & set(slow_list(acts, user, set(order[c:])))) / 10 for c in cuts[1:]]
    )
    out["neg_p"] = np.mean(
        [len(before & set(slow_list(acts, user, set(order[: n - c])))) / 10 for c in cuts[1:]]
    )
    return out


@pytest.mark.parametrize("length", [1, 4, 13, 27])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_curves_are_those_of_the_papers_told_slowly(length, seed):
    acts = Sums(n=60, length=length, seed=seed)
    item = Scenes(acts, 0).best(frozenset(), 1)[0]
    importance = np.random.default_rng(seed).normal(size=length)
    fast = measured(Scenes(acts, 0), item, importance)
    for line, value in slow(acts, 0, item, importance).items():
        assert fast[line] == pytest.approx(value), line


def test_bins_are_equal_up_to_one_and_end_with_nothing_left():
    assert removals(20) == list(range(0, 21, 2))
    assert removals(3) == [0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3]


def test_what_the_shown_reasons_take_with_them():
    class Two(Sums):
        """One action carries item 9, the other nothing."""

        def __init__(self):
            super().__init__(n=30, length=2)
            self.worth = np.zeros((2, 30))
            self.worth[0, 9] = 5.0
            self.appeal = -np.arange(30) / 100

    told = measured(Scenes(Two(), 0), 9, np.array([3.0, 0.0]))
    # Without it item 9 has place 8 of those that are free, so it stays in the list of ten.
    assert (told["pn_s"], told["pn_s_list"], told["pn_r"], told["size"]) == (0, 0, 0, 1)
    told = measured(Scenes(Two(), 0), 25, np.array([3.0, 0.0]))
    assert told["pn_s"] == 1


def test_gini_is_0_for_equals_and_grows_with_one_that_has_it_all():
    assert gini(np.full(5, 2.0)) == 0
    assert gini(np.array([0.0, 1.0])) == 0.5
    assert gini(np.eye(10)[0]) == pytest.approx(0.9)


# ── explainers where the truth is a sum ──────────────────────────────────────────────────


def test_where_scores_are_sums_explainers_that_ask_the_model_find_the_terms():
    acts = Sums(n=50, length=6)
    item = Scenes(acts, 0).best(frozenset(), 1)[0]
    truth = acts.contributions(0, [item]).actions[:, 0]
    for explainer in (asked.ours, asked.leave_one_out):
        assert explainer(Scenes(acts, 0), item) == pytest.approx(truth)
    # Both regressions are ridged a little.
    for explainer in (asked.lime, asked.kernel_shap):
        assert explainer(Scenes(acts, 0), item) == pytest.approx(truth, abs=0.02)


def test_shap_values_add_up_however_long_the_history_and_are_those_of_the_definition():
    class Both(Sums):
        """Item 9 gains only where actions 0 and 1 are both there: each has half of it."""

        def rescore(self, user, removed):
            out = np.zeros(30)
            out[9] = 2.0 * (not {0, 1} & set(removed)) + (2 not in removed)
            return out

    acts = Both(n=30, length=3)
    lead = Scenes(acts, 0).lead(9, frozenset())
    part = lead / 3  # of a score of 3 in all
    found = asked.kernel_shap(Scenes(acts, 0), 9)
    assert found == pytest.approx([part, part, part], abs=0.01)
    long = Sums(n=200, length=120)
    scenes = Scenes(long, 0)
    gained = scenes.lead(150, frozenset()) - scenes.lead(150, frozenset(range(120)))
    assert asked.kernel_shap(scenes, 150).sum() == pytest.approx(gained)


def test_ours_is_compared_with_each_explainer_user_by_user():
    acts = Sums(n=60, length=12)
    some = {"ours": asked.ours, "random": asked.at_random}
    values = by_protocols(acts, some, range(40), LocalEngine(1))
    told = compared(values)
    assert told["ours"]["del"].difference == 0
    random = told["random"]["del"]
    assert random.mean > told["ours"]["del"].mean  # more of the lead is left
    assert 0 < random.low <= random.difference <= random.high
    assert told["random"]["ins"].high < 0
    assert all(len(lines["ms"]) == 40 for lines in values.values())


# ── two meanings of removal ──────────────────────────────────────────────────────────────


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=12), rng.normal(size=12).round(1)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert np.isnan(rank_correlation(a, np.ones(12)))


def test_contributions_foretell_a_view_and_the_rebuilt_graph_is_measured_as_it_is(default_model):
    ranker = default_model.ranker_
    users = list(range(12))
    told = predicted(ranker, users, LocalEngine(1))
    view, rebuilt, rescaled = (told[meaning] for meaning in MEANINGS)
    assert view["r2"][0] > 0.8 > view["r2_permuted"][0]
    assert view["rank"][0] > 0.8
    assert rebuilt != view
    assert rescaled["r2"][0] >= rebuilt["r2"][0]
    u, own = 3, int(LogerActions(ranker).history(3)[0])
    names, first = default_model.graph_.vocabulary.names, default_model.graph_.n_users
    removed = default_model.remove(interactions=[(names[u], names[first + own])])
    expected = removed.ranker_.scores([u], observed=False).total[0]
    assert RebuiltActions(ranker).rescore(u, [own]) == pytest.approx(expected)
