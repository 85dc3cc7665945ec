"""What every recommender promises. A new one joins by a line in RECOMMENDERS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from loger.baselines import (
    CKE,
    EASE,
    IALS,
    KGAT,
    PGPR,
    HeteroEmbed,
    ItemKNN,
    MostPop,
    P3alpha,
    RippleNet,
    RP3beta,
)
from loger.data import Split, split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.engine import LocalEngine
from loger.evaluation.recommender import Recommender, part_matrix, ranked

RECOMMENDERS: dict[str, Callable[[], Recommender]] = {
    "MostPop": MostPop,
    "ItemKNN": ItemKNN,
    "P3alpha": P3alpha,
    "P3alpha, few neighbours": lambda: P3alpha(neighbours=5),
    "RP3beta": RP3beta,
    "EASE": EASE,
    "IALS": lambda: IALS(dimensions=8, sweeps=3),
    "HeteroEmbed": lambda: HeteroEmbed(dimension=8, epochs=2, negatives=32),
    "CKE": lambda: CKE(dimension=8, epochs=2),
    "KGAT": lambda: KGAT(dimension=8, layers=(8, 4), epochs=2, pretraining=1),
    "RippleNet": lambda: RippleNet(dimension=8, epochs=2, memories=8),
    "PGPR": lambda: PGPR(encoder=TransEConfig(dimension=8, epochs=1), hidden=(16, 8), epochs=1),
}
ONLY_BY_PATHS = {"PGPR"}
"""Those that recommend nothing but what they find a path to."""

STOPS_ON_VALIDATION: set[str] = set()
"""Those that may look at validation, to know when to stop."""

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
    new = part_matrix(parts(), "train")[users].toarray() == 0
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
    assert state(replace(parts())) == before  # a copy, whose graph is built anew


@each
@pytest.mark.parametrize("part", ["validation", "test"])
def test_held_out_pairs_do_not_change_a_score(name, part):
    if part == "validation" and name in STOPS_ON_VALIDATION:
        pytest.skip("may look at validation to know when to stop")
    events, rows = parts().dataset.interactions, getattr(parts(), part)
    items = events.items.copy()
    items[rows] = np.random.default_rng(0).permutation(items[rows])
    assert (items != events.items).any()
    poisoned = replace(parts().dataset, interactions=replace(events, items=items))
    out = RECOMMENDERS[name]().fit(replace(parts(), dataset=poisoned))
    assert scores(out).tobytes() == scores(fitted(name)).tobytes()


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
    np.testing.assert_allclose(fitted(name).score(users), single, rtol=1e-5, atol=1e-7)


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
