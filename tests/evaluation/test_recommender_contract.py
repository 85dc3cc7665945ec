"""The contract of every recommender; add a new one to RECOMMENDERS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from loger.baselines import (
    CAFE,
    CKE,
    EASE,
    HSTU,
    IALS,
    KGAT,
    PGPR,
    CollectiveEASE,
    ESASRec,
    HeteroEmbed,
    ItemKNN,
    LightGCN,
    LocalSLIM,
    MostPop,
    P3alpha,
    RippleNet,
    RP3beta,
    SASRec,
    SequenceRules,
)
from loger.data import Split, split
from loger.data.demo import shop
from loger.encoder import TransE, TransEConfig
from loger.engine import LocalEngine
from loger.errors import LogerError
from loger.evaluation.methods import EncoderAlone
from loger.logic.config import DerivedConfig, EMConfig
from loger.logic.mining import MiningConfig
from loger.model import LOGER, LOGERConfig
from loger.recommender import Recommender, fit_for, part_matrix, ranked

SMALL = TransEConfig(dimension=8, epochs=2)


def small_loger() -> LOGER:
    """LOGER of few rules and one round of EM, whose E-step finds hidden pairs."""
    mining = MiningConfig(max_rules=8, min_support=5)
    em = EMConfig(rounds=1, early_stop=False, teacher=0)
    derived = DerivedConfig(tune=False)
    return LOGER(LOGERConfig(mining=mining, derived=derived, em=em, encoder=SMALL))


RECOMMENDERS: dict[str, Callable[[], Recommender]] = {
    "MostPop": MostPop,
    "ItemKNN": ItemKNN,
    "P3alpha": P3alpha,
    "P3alpha, few neighbours": lambda: P3alpha(neighbours=5),
    "RP3beta": RP3beta,
    "EASE": EASE,
    "ItemKNN, fading": lambda: ItemKNN(recency=1.0, training_recency=0.2),
    "RP3beta, fading": lambda: RP3beta(recency=1.0, training_recency=0.2),
    "EASE, fading": lambda: EASE(recency=1.0, training_recency=0.2, popularity=0.2),
    "LocalSLIM": LocalSLIM,
    "LocalSLIM, fading": lambda: LocalSLIM(recency=1.0, popularity=0.2),
    "SequenceRules": SequenceRules,
    "CollectiveEASE": CollectiveEASE,
    "LightGCN": lambda: LightGCN(dimension=8, epochs=2, batch=300),
    "SASRec": lambda: SASRec(dimension=8, epochs=2, length=10),
    "eSASRec": lambda: ESASRec(dimension=8, epochs=2, length=10),
    "HSTU": lambda: HSTU(dimension=8, epochs=2, length=10),
    "IALS": lambda: IALS(dimensions=8, sweeps=3),
    "HeteroEmbed": lambda: HeteroEmbed(dimension=8, epochs=2),
    "CKE": lambda: CKE(dimension=8, epochs=2),
    "KGAT": lambda: KGAT(dimension=8, layers=(8, 4), epochs=2, pretraining=1),
    "RippleNet": lambda: RippleNet(dimension=8, epochs=2, memories=8),
    "PGPR": lambda: PGPR(encoder=TransEConfig(dimension=8, epochs=1), epochs=1),
    "CAFE": lambda: CAFE(encoder=TransEConfig(dimension=8, epochs=1), epochs=1),
    "EncoderAlone": lambda: EncoderAlone(lambda: TransE(SMALL)),
    "LOGER": small_loger,
}
ONLY_BY_PATHS = {"CAFE", "PGPR"}
"""Those that recommend nothing but what they find a path to."""

LEARN_FROM_VALIDATION = {"LOGER"}

NEW_USERS, NEW_ITEMS = 5, 7
each = pytest.mark.parametrize("name", RECOMMENDERS)


@cache
def parts() -> Split:
    """A small shop whose first users have no history and whose first items nobody has."""
    made = split(shop(users=80, items=100).dataset, "random", seed=1)
    users, items = made.pairs("train")
    return replace(made, train=made.train[(users >= NEW_USERS) & (items >= NEW_ITEMS)])


@cache
def fitted(name: str) -> Recommender:
    return RECOMMENDERS[name]().fit(parts())


def scores(recommender: Recommender) -> np.ndarray:
    return recommender.score(np.arange(parts().dataset.n_users))


@each
def test_scores_are_finite_floats_for_all_items_that_are_new_to_a_user(name):
    users = [3, 50, 7]
    out = fitted(name).score(users)
    assert out.shape == (3, parts().dataset.n_items)
    assert out.dtype == np.float32
    assert not np.isnan(out).any()
    known = ("train", "validation") if name in LEARN_FROM_VALIDATION else ("train",)
    new = part_matrix(parts(), *known)[users].toarray() == 0
    assert name in ONLY_BY_PATHS or np.isfinite(out[new]).all()


@each
def test_no_users_give_no_rows(name):
    nobody = np.empty(0, dtype=np.int32)
    assert fitted(name).score(nobody).shape == (0, parts().dataset.n_items)


@each
def test_it_has_a_name_for_tables(name):
    assert isinstance(fitted(name).name, str)
    assert fitted(name).name


@each
def test_it_says_whether_it_is_fitted_and_whether_it_learns_from_validation(name):
    assert not RECOMMENDERS[name]().is_fitted
    assert fitted(name).is_fitted
    assert fitted(name).learns_from_validation == (name in LEARN_FROM_VALIDATION)


@each
def test_for_test_it_knows_train_and_validation(name):
    fitted_for_test = fit_for(RECOMMENDERS[name](), parts())
    by_hand = parts() if name in LEARN_FROM_VALIDATION else parts().refit()
    expected = RECOMMENDERS[name]().fit(by_hand)
    assert scores(fitted_for_test).tobytes() == scores(expected).tobytes()


def test_who_learns_from_validation_is_not_fitted_for_it():
    with pytest.raises(LogerError, match="LOGER learns from the validation part; evaluate it"):
        fit_for(small_loger(), parts(), "validation")


@each
def test_the_same_seed_gives_the_same_bytes(name):
    again = RECOMMENDERS[name]().fit(parts())
    assert scores(again).tobytes() == scores(fitted(name)).tobytes()


@each
def test_fitting_anew_forgets_the_former_split(name):
    other = split(shop(users=60, items=100, seed=9).dataset)
    twice = RECOMMENDERS[name]().fit(other).fit(parts())
    assert scores(twice).tobytes() == scores(fitted(name)).tobytes()


@each
def test_fitting_and_scoring_leave_the_split_as_it_was(name):
    def state(split: Split) -> list[bytes]:
        events = split.dataset.interactions
        arrays = (split.train, split.validation, split.test, events.users, events.items)
        return [array.tobytes() for array in arrays] + [split.graph.fingerprint.encode()]

    before = state(parts())
    RECOMMENDERS[name]().fit(parts()).score([1, 2])
    assert state(replace(parts())) == before  # a copy, whose graph is built again


@each
@pytest.mark.parametrize("part", ["validation", "test"])
def test_held_out_pairs_change_a_score_just_if_it_learns_from_them(name, part):
    learns = part == "validation" and name in LEARN_FROM_VALIDATION
    events, rows = parts().dataset.interactions, getattr(parts(), part)
    items = events.items.copy()
    items[rows] = np.random.default_rng(0).permutation(items[rows])
    assert (items != events.items).any()
    poisoned = replace(parts().dataset, interactions=replace(events, items=items))
    out = RECOMMENDERS[name]().fit(replace(parts(), dataset=poisoned))
    assert (scores(out).tobytes() == scores(fitted(name)).tobytes()) != learns


@each
def test_users_without_history_get_a_full_list(name):
    if name in ONLY_BY_PATHS:
        pytest.skip("no path leads from who has nothing")
    users = np.arange(NEW_USERS)
    lists = ranked(fitted(name), users, part_matrix(parts(), "train"), 10)
    assert (lists >= 0).all()


@each
def test_a_block_of_users_scores_like_single_users(name):
    users = np.array([70, 2, 2, 33])
    single = np.concatenate([fitted(name).score([u]) for u in users])
    # A score near 0 is a sum of terms as large as the others: it is rounded as they are.
    largest = np.abs(single[np.isfinite(single)]).max()
    rounding = np.finfo(np.float32).eps * largest
    np.testing.assert_allclose(fitted(name).score(users), single, rtol=1e-5, atol=rounding)


@each
def test_lists_hold_no_training_item_and_do_not_depend_on_threads(name):
    users, known = np.arange(80), part_matrix(parts(), "train")
    one, two = (
        ranked(fitted(name), users, known, 10, engine=LocalEngine(workers)) for workers in (1, 2)
    )
    assert (one == two).all()
    there = one >= 0
    assert there.all() or name in ONLY_BY_PATHS
    assert not known[np.repeat(users, there.sum(1)), one[there]].any()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in one)
