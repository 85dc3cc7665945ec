"""``evaluate``: which users count, which items are left out, candidates shared by all."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import isnan

import numpy as np
import polars as pl
import pytest

from loger.baselines import EASE, MostPop, P3alpha
from loger.data import Split, split
from loger.data.demo import shop
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.evaluate import evaluate, fit_summary, sampled_candidates
from loger.metrics.grid_search import tune
from loger.metrics.report import METRICS
from loger.recommender import Recommender


@cache
def parts() -> Split:
    return split(shop(users=120, items=150).dataset, "random", seed=2)


class Oracle(Recommender):
    """Knows the answers of a part, and scores some items above even them."""

    scores_: np.ndarray

    def __init__(self, part, above=()):
        self.name, self.part, self.above = f"oracle of {part}", part, above

    def fit(self, split, *, progress=None):
        self.scores_ = np.zeros((split.dataset.n_users, split.dataset.n_items), dtype=np.float32)
        self.scores_[split.pairs(self.part)] = 1
        for part in self.above:
            self.scores_[split.pairs(part)] = 2
        return self

    def score(self, users):
        return self.scores_[users]


@pytest.fixture(scope="module")
def report():
    models = [MostPop().fit(parts()), P3alpha().fit(parts()), EASE().fit(parts())]
    return evaluate(models, parts(), samples=200)


@pytest.mark.parametrize("protocol", ["full", "sampled-100"])
@pytest.mark.parametrize("part, above", [("test", ("train", "validation")), ("validation", ())])
def test_who_knows_the_answers_is_perfect(protocol, part, above):
    # Known items are left out before ranking: scoring them higher does no harm.
    oracle = Oracle(part, above).fit(parts())
    perfect = evaluate([oracle], parts(), part, protocol=protocol, samples=10)
    assert perfect.mean(oracle.name, "ndcg") == pytest.approx(1)
    assert perfect.mean(oracle.name, "hit_rate") == 1


def test_on_validation_test_items_are_not_known():
    oracle = Oracle("validation", above=("test",)).fit(parts())
    worse = evaluate([oracle], parts(), "validation", samples=10)
    assert worse.mean(oracle.name, "ndcg") < 0.9


def test_every_user_of_the_part_counts_once(report):
    assert report.users.tolist() == sorted(set(parts().pairs("test")[0].tolist()))
    for of in report.values.values():
        assert {len(values) for values in of.values()} == {len(report.users)}


def test_a_split_and_its_refit_leave_out_the_same(report):
    again = evaluate([EASE().fit(parts())], parts().refit(), samples=10)
    assert set(again.values["EASE^R"]) == set(METRICS)
    for metric, values in again.values["EASE^R"].items():
        assert (values == report.values["EASE^R"][metric]).all(), metric


class Noting(MostPop):
    """MostPop that notes the sizes of train and validation of each fit."""

    def __init__(self, name="noting", learns=False):
        self.name, self.learns_from_validation, self.fits = name, learns, []

    def fit(self, split, *, progress=None):
        self.fits.append((len(split.train), len(split.validation)))
        return super().fit(split)


def test_who_is_not_fitted_is_fitted_on_all_that_it_may_know():
    train, validation = len(parts().train), len(parts().validation)
    plain, learner = Noting(), Noting("learner", learns=True)
    tested = evaluate([plain, learner], parts(), samples=10)
    assert plain.fits == [(train + validation, 0)]
    assert learner.fits == [(train, validation)]
    by_hand = MostPop().fit(parts().refit())
    assert (plain.popularity_ == by_hand.popularity_).all()
    expected = evaluate([by_hand], parts(), samples=10).values["MostPop"]
    assert all((tested.values["noting"][m] == expected[m]).all() for m in METRICS)
    validated = Noting()
    evaluate([validated], parts(), "validation", samples=10)
    assert validated.fits == [(train, validation)]


def test_who_is_fitted_is_taken_as_it_is():
    model = Noting().fit(parts())
    evaluate([model], parts(), samples=10)
    assert model.fits == [(len(parts().train), len(parts().validation))]


@pytest.mark.parametrize("fitted", [True, False])
def test_who_learns_from_validation_is_not_evaluated_on_it(fitted):
    learner = Noting("learner", learns=True)
    if fitted:
        learner.fit(parts())
    before = list(learner.fits)
    with pytest.raises(LogerError, match="learner learns from the validation part; evaluate it"):
        evaluate([MostPop(), learner], parts(), "validation")
    assert learner.fits == before


def test_novelty_counts_the_users_who_are_known_to_have_an_item(report):
    known = np.zeros((parts().dataset.n_users, parts().dataset.n_items))
    for part in ("train", "validation"):
        known[parts().pairs(part)] = 1
    scores = MostPop().fit(parts()).popularity_
    expected = []
    for user in report.users:
        free = [v for v in range(parts().dataset.n_items) if not known[user, v]]
        top = sorted(free, key=lambda v: (-scores[v], v))[:10]
        bits = [np.log2(parts().dataset.n_users / max(1, known[:, v].sum())) for v in top]
        expected.append(sum(bits) / 10)
    np.testing.assert_allclose(report.values["MostPop"]["novelty"], expected)


def test_values_equal_a_slow_evaluation(report):
    scores = P3alpha().fit(parts()).score(np.arange(parts().dataset.n_users))
    for row, user in enumerate(report.users):
        known = {
            int(v)
            for part in ("train", "validation")
            for u, v in zip(*parts().pairs(part), strict=True)
            if u == user
        }
        wanted = {int(v) for u, v in zip(*parts().pairs("test"), strict=True) if u == user}
        free = [v for v in range(parts().dataset.n_items) if v not in known]
        top = sorted(free, key=lambda v: (-scores[user, v], v))[:10]
        found = len(wanted & set(top))
        assert report.values["P3α"]["recall"][row] == pytest.approx(found / len(wanted))
        assert report.values["P3α"]["precision"][row] == pytest.approx(found / 10)


def test_given_candidates_are_ranked_instead_of_drawn_ones():
    models = [MostPop().fit(parts()), EASE().fit(parts())]
    both = evaluate(models, parts(), protocol="sampled-100", seed=1, samples=10)
    drawn = sampled_candidates(parts(), "test", seed=1)
    # Another seed would draw others.
    given = {"protocol": "sampled-100", "candidates": drawn, "seed": 2, "samples": 10}
    one = evaluate(models[1:], parts(), **given)
    assert (one.values["EASE^R"]["ndcg"] == both.values["EASE^R"]["ndcg"]).all()
    other = evaluate(models[1:], parts(), protocol="sampled-100", seed=2, samples=10)
    assert (other.values["EASE^R"]["ndcg"] != both.values["EASE^R"]["ndcg"]).any()


def test_candidates_are_the_held_out_items_and_a_hundred_unobserved_for_each():
    among = sampled_candidates(parts(), "test", seed=0).toarray() > 0
    events = parts().dataset.interactions
    observed = np.zeros_like(among)
    observed[events.users, events.items] = True
    held = np.zeros_like(among)
    held[parts().pairs("test")] = True
    assert (among & observed == held).all()
    drawn = parts().unobserved(parts().pairs("test")[0], 100, seed=0)
    for user in np.unique(parts().pairs("test")[0]):
        united = np.unique(drawn[parts().pairs("test")[0] == user])
        assert np.flatnonzero(among[user] & ~held[user]).tolist() == united.tolist()
        assert len(united) >= 100


def test_candidates_of_another_split_are_refused():
    model, drawn = MostPop().fit(parts()), sampled_candidates(parts(), "test")
    owners, items = parts().pairs("test")
    missing = sampled_candidates(parts(), "test").tolil()
    missing[owners[0], items[0]] = 0
    known = sampled_candidates(parts(), "test").tolil()
    known[tuple(ends[0] for ends in parts().pairs("train"))] = 1
    validation = sampled_candidates(parts(), "validation")
    for wrong in (missing.tocsr(), known.tocsr(), validation, drawn[:, 1:]):
        with pytest.raises(LogerError, match="all test pairs"):
            evaluate([model], parts(), protocol="sampled-100", candidates=wrong)


def test_the_better_model_is_found_better(report):
    oracle = Oracle("test").fit(parts())
    against = evaluate([MostPop().fit(parts()), oracle], parts(), samples=100)
    found = against.compare(oracle.name, "MostPop")
    assert found.low <= found.difference <= found.high
    assert found.low > 0
    assert found.p < 0.01
    assert found.p_wilcoxon < 0.01
    assert against.best() == oracle.name
    back = against.compare("MostPop", oracle.name)
    assert (back.difference, back.p) == (-found.difference, found.p)


def test_intervals_hold_the_mean_and_are_seeded(report):
    low, high = report.interval("EASE^R", "ndcg")
    assert low < report.mean("EASE^R", "ndcg") < high
    assert replace(report).interval("EASE^R", "ndcg") == (low, high)
    assert replace(report, seed=1).interval("EASE^R", "ndcg") != (low, high)


def test_tables_say_the_same_in_every_format(report):
    mean = f"{100 * report.mean('EASE^R', 'ndcg'):.2f}"
    text, markdown, latex, csv = (
        report.table(form) for form in ("text", "markdown", "latex", "csv")
    )
    assert all(mean in table for table in (text, markdown, latex))
    assert len({len(line.split("|")) for line in markdown.splitlines()}) == 1
    assert r"EASE\^{}R" in latex
    assert r"P3$\alpha$" in latex
    table = pl.read_csv(csv.encode())
    assert table["model"].to_list() == list(report.models)
    assert table["ndcg"][2] == pytest.approx(report.mean("EASE^R", "ndcg"))
    wide = report.table(metrics=["ndcg_retrieved", "novelty"])
    assert "NDCG (retrieved)@10" in wide
    with pytest.raises(UnknownNameError, match="did you mean 'markdown'"):
        report.table("markdwn")


def test_json_and_parquet_hold_everything(report, tmp_path):
    told = json.loads(report.to_json())
    assert told["users"] == len(report.users)
    assert told["models"]["EASE^R"]["ndcg"][0] == report.mean("EASE^R", "ndcg")
    assert len(told["best_against"]) == 2
    report.write_users(tmp_path / "users.parquet")
    table = pl.read_parquet(tmp_path / "users.parquet")
    mine = table.filter(pl.col("model") == "EASE^R")
    assert mine["user"].to_list() == report.users.tolist()
    assert mine["ndcg"].to_list() == report.values["EASE^R"]["ndcg"].tolist()


def test_what_cannot_be_evaluated_is_refused_before_work():
    model = MostPop().fit(parts())
    with pytest.raises(LogerError, match="different names"):
        evaluate([model, model], parts())
    with pytest.raises(UnknownNameError, match="did you mean 'sampled-100'"):
        evaluate([model], parts(), protocol="sampled100")
    with pytest.raises(UnknownNameError, match="part"):
        evaluate([model], parts(), "train")
    with pytest.raises(LogerError, match="no validation pairs"):
        evaluate([model], parts().refit(), "validation")
    with pytest.raises(LogerError, match="sampled-100"):
        evaluate([model], parts(), candidates=sampled_candidates(parts(), "test"))


def test_tuning_keeps_the_best_point_on_validation():
    tuned = tune(EASE, {"l2": (1.0, 30.0, 1000.0)}, parts())
    reached = {}
    for l2 in (1.0, 30.0, 1000.0):
        model = EASE(l2=l2).fit(parts())
        reached[l2] = evaluate([model], parts(), "validation", samples=10).mean("EASE^R", "ndcg")
    assert [value for _, value in tuned.trials] == pytest.approx(list(reached.values()))
    assert tuned.value == max(value for _, value in tuned.trials)
    assert tuned.settings["l2"] == max(reached, key=reached.__getitem__)


def test_tuning_without_validation_is_refused():
    with pytest.raises(LogerError, match="tuning needs validation pairs"):
        tune(EASE, EASE.GRID, parts().refit())


def test_the_summary_of_a_fit_is_what_the_model_learned(default_model, default_bundle):
    model = default_model
    summary = json.loads(json.dumps(fit_summary(model, default_bundle)))
    graph, weights = model.graph_, dict(zip(map(str, model.rules_), model.weights_, strict=True))
    assert summary["bundle"] == str(default_bundle)
    assert (summary["users"], summary["items"]) == (len(model.users), len(model.items))
    assert summary["facts"] == graph.n_triples
    assert {row["rule"]: row["weight"] for row in summary["rules"]} == pytest.approx(weights)
    assert summary["kept"] == len(model.mined_.rules)
    derived = [str(rule) for rule in model.rules_ if rule.derived]
    assert summary["made"] == sum(weights[name] > 0 for name in derived) > 0
    assert summary["mining"] == model.mined_.story()
    assert summary["encoder_weight"] == model.ranker_.fusion.encoder_weight
    assert summary["rounds"] == model.trace_[-1].number
    assert summary["held_out_ndcg"] is None and isnan(model.trace_[-1].ndcg)  # few labels
    held_out = len(model.ranker_.held_out)  # the model was fitted on a split
    assert (summary["fitted_for"], summary["held_out"]) == ("testing", held_out) and held_out
    assert summary["measured"]["ndcg"] == model.measured_.ndcg
    tried = [(row["setting"], row["value"], row["ndcg"]) for row in summary["tried"]]
    assert tried == [tuple(row) for row in model.tried_]
    assert summary["size"] == sum(file.stat().st_size for file in default_bundle.iterdir())
    assert summary["example_user"] == model.users[0]
