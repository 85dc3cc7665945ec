"""The readers reproduce every count in the README of the real data."""

import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from loger.data import Dataset, load, split

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.usefixtures("real_data")


@cache
def loaded(name: str) -> tuple[Dataset, float]:
    """With the seconds it took, by the clock or of the processors: whichever is less, as the
    machine may be busy with something else."""
    clock, busy = time.perf_counter(), time.process_time()
    dataset = load(DATA / name)
    return dataset, min(time.perf_counter() - clock, time.process_time() - busy)


def counts(dataset: Dataset) -> dict[str, int]:
    """Facts per relation as the data set names it, the parts of split ones added up."""
    out: dict[str, int] = {}
    sizes = np.bincount(dataset.facts.relations, minlength=len(dataset.relations))
    for relation, n in list(zip(dataset.relations, sizes, strict=True))[1:]:
        base = relation.name.split("[")[0]
        out[base] = out.get(base, 0) + int(n)
    return out


@pytest.mark.parametrize("name", ["amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m"])
def test_real_data_load_within_ten_seconds(name):
    assert loaded(name)[1] < 10


@pytest.mark.parametrize(
    "name, users, items, parts, relations, loops, nameless",
    [
        (
            "amazon-beauty",
            22_363,
            12_101,
            [149_844, 0, 48_658],
            {"also_bought": 891_182, "also_viewed": 155_350, "bought_together": 9_021}
            | {"has_brand": 10_021, "has_category": 49_756},
            {"also_bought": 1},
            18,
        ),
        (
            "amazon-cellphones",
            27_879,
            10_429,
            [150_048, 0, 44_391],
            {"also_bought": 589_504, "also_viewed": 12_930, "bought_together": 8_444}
            | {"has_brand": 5_418, "has_category": 36_393},
            {"also_viewed": 4},
            57,
        ),
    ],
)
def test_pgpr_data_have_the_counts_of_the_readme(
    name, users, items, parts, relations, loops, nameless, notes_of
):
    dataset, notes = loaded(name)[0], notes_of(loaded(name)[0])
    assert (dataset.n_users, dataset.n_items) == (users, items)
    assert np.bincount(dataset.interactions.parts, minlength=3).tolist() == parts
    # What the README counts and the graph lacks is in the notes, to the last row.
    assert notes["facts that link an entity to itself left out"] == sum(loops.values())
    assert notes["facts about a brand without a name left out"] == nameless
    left_out = loops | {"has_brand": nameless}
    assert counts(dataset) == {r: n - left_out.get(r, 0) for r, n in relations.items()}


def test_beauty_has_labels_for_people():
    words = loaded("amazon-beauty")[0].vocabulary
    assert words.labels[words.id("item", "B000P24EI2")] == "rene furterer complexe 5"


def test_toys_have_the_counts_of_the_readme(notes_of):
    dataset, notes = loaded("amazon-toys")[0], notes_of(loaded("amazon-toys")[0])
    assert (dataset.n_users, dataset.n_items, len(dataset.interactions)) == (
        19_412,
        11_924,
        167_597,
    )
    assert notes["repeated facts counted once"] == 2 * 5_513
    assert notes["facts that link an entity to itself left out"] == 2
    assert counts(dataset) == {
        "mentions": 462_613 - 5_513,
        "described_as": 462_613 - 5_513,
        "also_viewed": 234_123 - 2,
        "bought_together": 12_106,
    }
    known = dataset.facts.sources[dataset.facts.sources >= 0]
    assert len(np.unique(known)) == 149_877
    assert dataset.interactions.times.min() > 0
    assert set(np.unique(dataset.interactions.ratings)) == {1, 2, 3, 4, 5}


def test_toys_training_graph_knows_no_mention_of_a_held_out_review():
    dataset = loaded("amazon-toys")[0]
    parts = split(dataset)
    held = np.setdiff1d(np.arange(len(dataset.interactions)), parts.train)
    facts, graph = dataset.facts, parts.graph
    in_train = np.isin(facts.sources, parts.train)
    key = (facts.heads.astype(np.int64) * 10 + facts.relations) * graph.n_entities + facts.tails
    only_held = np.isin(facts.sources, held) & ~np.isin(key, key[in_train])
    assert only_held.sum() > 1_000
    for i in np.flatnonzero(only_held)[::500]:
        assert not graph.has(int(facts.heads[i]), int(facts.relations[i]), int(facts.tails[i]))


def test_ml1m_has_the_counts_of_the_readme(notes_of):
    dataset, notes = loaded("ml1m")[0], notes_of(loaded("ml1m")[0])
    assert (dataset.n_users, dataset.n_items) == (6_040, 2_983)
    assert np.bincount(dataset.interactions.parts).tolist() == [556_989, 190_063, 185_241]
    of_relation = counts(dataset)
    added = {r: of_relation.pop(r) for r in ("has_genre", "has_gender", "has_age")}
    assert added == {"has_genre": 2_983, "has_gender": 6_040, "has_age": 6_040}
    assert len(of_relation) == 11
    assert sum(of_relation.values()) == 193_089
    assert notes["repeated facts counted once"] == 205_521 - 193_089
    ours = sum(len(dataset.vocabulary.span(t)) for t in ("user", "genre", "gender", "age"))
    idle = notes["entities that are named but in no fact"]
    assert len(dataset.vocabulary) - ours + idle == 13_805


def test_ml1m_relations_keep_their_own_counts():
    of_relation = counts(loaded("ml1m")[0])
    assert of_relation["related_to_wikipage"] == 131_207
    assert of_relation["starred_by_actor"] == 9_395
    assert of_relation["directed_by_director"] == 367


def test_every_user_of_the_given_splits_has_a_training_item():
    for name in ("amazon-beauty", "amazon-cellphones", "ml1m"):
        dataset = loaded(name)[0]
        assert len(np.unique(split(dataset, "given").pairs("train")[0])) == dataset.n_users
