"""Every stage gives the same bytes with every engine, and hands the engine more than one block."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from loger import recommender
from loger.baselines import CKE, EASE
from loger.baselines.matching import PathMatcher
from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig, calibration
from loger.engine import LocalEngine, ProcessEngine
from loger.evaluation.faithfulness import FaithfulnessConfig, faithfulness_report
from loger.evaluation.faithfulness.measuring import loger_probes
from loger.explain import frames
from loger.grounding import Walk, ground, reach
from loger.learning import estep, pools
from loger.logic.config import DerivedConfig, EMConfig
from loger.logic.mining import mine
from loger.logic.mln import Logic
from loger.model import LOGER, LOGERConfig
from loger.recommender import part_matrix, ranked

SMALL = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2))


class Counted:
    """An engine that notes how many blocks each step of work had at most."""

    def __init__(self, engine, blocks=None):
        self.engine, self.blocks = engine, {} if blocks is None else blocks

    def with_progress(self, progress):
        return Counted(self.engine.with_progress(progress), self.blocks)

    def map(self, what, fn, blocks, shared):
        self.blocks[what] = max(self.blocks.get(what, 0), len(blocks))
        return self.engine.map(what, fn, blocks, shared)

    def __reduce__(self):
        return LocalEngine, (1,)


@pytest.fixture(scope="module")
def engines(ray_engine):
    with ProcessEngine(2) as processes:
        yield [LocalEngine(1), LocalEngine(2), processes, ray_engine]


@pytest.fixture(scope="module")
def parts():
    return split(shop(seed=2, users=150, items=80).dataset)


@pytest.fixture(scope="module")
def model(parts):
    return LOGER(SMALL, engine=LocalEngine(1)).fit(parts, tune={})


@pytest.fixture
def same(engines):
    """Run a stage on all engines; the bytes of all that it gives must be equal."""

    def run(stage, *whats):
        counted = [Counted(engine) for engine in engines]
        alone, threads, processes, ray = (_bytes(stage(engine)) for engine in counted)
        assert alone == threads
        assert alone == processes
        assert alone == ray
        for what in whats:
            assert counted[2].blocks[what] > 1

    return run


def _bytes(found):
    """Arrays by their bytes; anything else by its pickle, which holds each value once."""
    if isinstance(found, np.ndarray):
        return found.dtype.str, found.shape, found.tobytes()
    if isinstance(found, dict):
        return [(key, _bytes(value)) for key, value in found.items()]
    if isinstance(found, list | tuple):
        return [_bytes(part) for part in found]
    if hasattr(found, "__dict__"):
        return _bytes(vars(found))
    return repr(found)


def test_mining(same, parts):
    same(lambda engine: mine(parts.graph, engine=engine), "counting groundings", "measuring reach")


@pytest.mark.parametrize("walk", [None, Walk(recency=0.5)])
def test_groundings_of_pairs(same, parts, model, walk):
    users, items = parts.pairs("train")
    same(
        lambda engine: ground(model.graph_, model.rules_, users, items, walk=walk, engine=engine),
        "counting groundings",
    )


def test_groundings_of_all_that_is_reached(same, parts, model):
    users = np.arange(model.graph_.n_users)
    same(
        lambda engine: reach(model.graph_, model.rules_, users, walk=Walk(), engine=engine),
        "reaching items",
    )


def test_logits(same, parts, model):
    users = np.arange(model.graph_.n_users)
    logic: Logic = model.ranker_.logic
    same(lambda engine: logic.logits(model.graph_, users, engine=engine), "scoring by rules")
    assert np.abs(logic.logits(model.graph_, users)).max() > 0


def test_lists(same, model):
    users = np.arange(model.graph_.n_users)
    same(lambda engine: model.ranker_.top(users, 10, engine=engine), "ranking")


@pytest.mark.parametrize("make", [EASE, lambda: CKE(epochs=1, dimension=4)], ids=["EASE", "CKE"])
def test_evaluation(same, parts, make, monkeypatch):
    fitted = make().fit(parts)
    monkeypatch.setattr(recommender, "BLOCK_BYTES", 8 * parts.dataset.n_items * 40)
    users, known = np.arange(parts.dataset.n_users), part_matrix(parts, "train")
    same(lambda engine: ranked(fitted, users, known, 10, engine=engine), f"ranking {fitted.name}")


def test_evaluation_of_the_model(same, parts, model, monkeypatch):
    monkeypatch.setattr(recommender, "BLOCK_BYTES", 8 * parts.dataset.n_items * 40)
    users, known = np.arange(parts.dataset.n_users), part_matrix(parts, "train")
    same(lambda engine: ranked(model, users, known, 10, engine=engine), "ranking LOGER")


def test_paths_found_after_the_fact(same, parts):
    logs = -np.linspace(0, 1, len(parts.graph.tails), dtype=np.float32)
    matcher = PathMatcher(parts.graph, logs)
    users, items = (ids[:700] for ids in parts.pairs("train"))
    same(lambda engine: matcher.best(users, items, 2, engine=engine), "matching")


def test_calibration(same, parts, model, monkeypatch):
    monkeypatch.setattr(calibration, "BLOCK", 40)
    encoder = model.encoder_
    same(lambda engine: calibration.validation_scores(encoder, parts, 0, engine), "calibrating")


def test_faithfulness(same, parts, model):
    config = FaithfulnessConfig(k=3, users=4, probed=3, paths=1)
    same(
        lambda engine: (
            faithfulness_report(
                model,
                parts.refit(),
                model.rules_,
                config,
                probes=loger_probes(model),
                engine=engine,
            ).values
        ),
        "measuring faithfulness",
    )


@pytest.mark.parametrize("likelihood", ["listwise", "pseudo"])
def test_a_whole_fit_and_its_reasons(same, parts, likelihood, monkeypatch):
    for module in (estep, pools, frames):
        monkeypatch.setattr(module, "BLOCK", 16)
    # the teacher's weight, chosen by cross-validation, takes most of the time and has no stage
    em = EMConfig(likelihood=likelihood, rounds=1, early_stop=False, teacher=0)
    derived = DerivedConfig(tune=False)

    def fit(engine):
        config = replace(SMALL, em=em, derived=derived)
        model = LOGER(config, engine=engine).fit(parts, tune={})
        lists = model.recommend(k=5, explain=True)
        return [model.weights_, model.encoder_.state(), *lists.to_dict(as_series=False).values()]

    whats = ["looking for hidden pairs", "explaining", "scoring pairs"]
    same(fit, *whats, *(["gathering candidates"] if likelihood == "listwise" else []))


def test_a_model_that_was_sent_scores_as_before(model):
    again = pickle.loads(pickle.dumps(model))
    users = np.arange(5)
    assert again.score(users).tobytes() == model.score(users).tobytes()
    assert again.engine.workers == 1
