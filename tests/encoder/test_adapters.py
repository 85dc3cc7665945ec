"""The contract of every encoder: TransE, PyKEEN models through the adapter, the graph network."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loger.data import Split, split
from loger.data.demo import shop
from loger.encoder import Encoder, HiddenPairs, TransE, TransEConfig
from loger.encoder.kge import KGE, KGEConfig
from loger.encoder.network import GNN, GNNConfig, draw_neighbours
from loger.encoder.training import Triples
from loger.engine.topk import top_k
from loger.errors import LogerError, UnknownNameError
from loger.graph import INTERACTION, KnowledgeGraph, history
from loger.store.persistence import _encoder_maker

Make = Callable[..., Any]


def transe(epochs: int = 4, **settings: Any) -> Encoder:
    return TransE(TransEConfig(dimension=16, epochs=epochs, batch=256, **settings))


def kge(model: str) -> Make:
    def make(epochs: int = 4, **settings: Any) -> Encoder:
        warm_epochs = settings.pop("warm_epochs", 1)
        encoder = KGE(model, dimension=16, epochs=epochs, batch=256, **settings)
        encoder.negatives, encoder.warm_epochs = 32, warm_epochs
        return encoder

    return make


def gnn(epochs: int = 2, **settings: Any) -> Encoder:
    warm_epochs = settings.pop("warm_epochs", 1)
    encoder = GNN(dimension=16, epochs=epochs, batch=512, draws=(4, 3), **settings)
    encoder.negatives, encoder.warm_epochs = 64, warm_epochs
    return encoder


MAKERS: dict[str, Make] = {
    "TransE": transe,
    "PyKEEN-TransE": kge("TransE"),
    "PyKEEN-RotatE": kge("RotatE"),
    "PyKEEN-DistMult": kge("DistMult"),
    "PyKEEN-ComplEx": kge("ComplEx"),
    "GNN": gnn,
}
every_encoder = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
# Fitting twice or more: what differs between the models of PyKEEN is no part of these claims.
each_kind = pytest.mark.parametrize(
    "make",
    [transe, kge("RotatE"), kge("DistMult"), gnn],
    ids=["TransE", "PyKEEN-RotatE", "PyKEEN-DistMult", "GNN"],
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for one another cost more than they give on data this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(shop().dataset)


@pytest.fixture(scope="module")
def small() -> KnowledgeGraph:
    return split(shop(users=40, items=60).dataset).graph


def same(a: Encoder, b: Encoder) -> bool:
    one, other = a.state(), b.state()
    return one.keys() == other.keys() and all(one[k].tobytes() == other[k].tobytes() for k in one)


@every_encoder
def test_scores_have_the_shapes_of_the_protocol(make: Make, small: KnowledgeGraph) -> None:
    encoder = make(epochs=1).fit(small)
    users = np.array([3, 0, 17])
    scores = encoder.score_items(users)
    assert scores.shape == (3, small.n_items) and scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert encoder.score_items([]).shape == (0, small.n_items)


@each_kind
def test_finds_held_out_purchases_far_better_than_chance(make: Make, parts: Split) -> None:
    encoder = make(epochs=16).fit(parts.graph)
    users, items = parts.pairs("validation")
    asked = np.unique(users)
    found, _ = top_k(encoder.score_items(asked), 20, history(parts.graph, asked))
    hits = (found[np.searchsorted(asked, users)] == items[:, None]).any(1).mean()
    chance = 20 / parts.graph.n_items
    assert hits > 3 * chance, f"{hits:.3f} against {chance:.3f} by chance"


@each_kind
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    make: Make, small: KnowledgeGraph
) -> None:
    one = make(epochs=2, seed=5).fit(small)
    torch.manual_seed(1)
    torch.set_num_threads(2)
    assert same(one, make(epochs=2, seed=5).fit(small))
    torch.set_num_threads(1)
    assert not same(one, make(epochs=2, seed=6).fit(small))


@every_encoder
def test_state_gives_the_encoder_back(make: Make, small: KnowledgeGraph) -> None:
    encoder = make(epochs=1).fit(small)
    state = encoder.state()
    assert all(type(a) is np.ndarray and a.dtype != object for a in state.values())
    again = make(epochs=1).load_state(small, state)
    users = np.arange(small.n_users)
    assert again.score_items(users).tobytes() == encoder.score_items(users).tobytes()
    assert same(encoder, again)
    assert same(encoder.fit(small, warm=True), again.fit(small, warm=True))


@each_kind
def test_a_state_of_another_graph_is_refused(
    make: Make, small: KnowledgeGraph, parts: Split
) -> None:
    state = make(epochs=0).fit(small).state()
    with pytest.raises(LogerError, match="the state doesn't match a"):
        make(epochs=0).load_state(parts.graph, state)


class KilledError(Exception):
    pass


@each_kind
@pytest.mark.parametrize("warm", [False, True], ids=["first", "warm"])
def test_a_fit_that_was_killed_resumes_and_ends_with_the_same_bytes(
    make: Make, small: KnowledgeGraph, tmp_path: Path, warm: bool
) -> None:
    def begun() -> Any:
        encoder = make(epochs=3, warm_epochs=3)
        return encoder.fit(small) if warm else encoder

    def killed_at(share: float) -> Callable[[str, int, int], None]:
        def progress(what: str, done: int, total: int) -> None:
            if share * total <= done < total:
                raise KilledError

        return progress

    whole = begun().fit(small, warm=warm)
    for share in (0.5, 0.8):
        with pytest.raises(KilledError):
            begun().fit(small, warm=warm, checkpoint=tmp_path, progress=killed_at(share))
    seen: list[int] = []
    resumed = begun().fit(
        small, warm=warm, checkpoint=tmp_path, progress=lambda w, d, t: seen.append(d)
    )
    assert seen[0] > 0, "nothing was taken up"
    assert same(resumed, whole)


@every_encoder
def test_extra_pairs_are_learned_and_more_by_greater_weight(
    make: Make, small: KnowledgeGraph
) -> None:
    rng = np.random.default_rng(0)
    users = np.arange(small.n_users, dtype=np.int32)
    items = rng.integers(small.n_items, size=len(users)).astype(np.int32)

    def margin(weight: float) -> float:
        """How far the pairs stand above the other items of their users, in deviations."""
        weights = np.full(len(users), weight, dtype=np.float32)
        hidden = HiddenPairs(*(np.tile(x, 5) for x in (users, items, weights)))
        scores = make(epochs=4).fit(small, hidden=hidden).score_items(users)
        own = scores[np.arange(len(users)), items]
        return float(((own - scores.mean(1)) / scores.std(1)).mean())

    nothing, little, much = margin(0.0), margin(0.2), margin(1.0)
    assert nothing < little < much


@each_kind
def test_a_warm_fit_goes_on_from_where_it_was(make: Make, small: KnowledgeGraph) -> None:
    with pytest.raises(LogerError, match="warm"):
        make().fit(small, warm=True)
    encoder = make(epochs=4, warm_epochs=1).fit(small)
    users = np.arange(small.n_users)
    before = encoder.score_items(users).ravel()
    after = encoder.fit(small, warm=True).score_items(users).ravel()
    fresh = make(epochs=1, seed=9).fit(small).score_items(users).ravel()
    assert not np.array_equal(before, after)
    assert np.corrcoef(before, after)[0, 1] > np.corrcoef(before, fresh)[0, 1]


# ── the adapter ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", ["MuRE", "TransH", "PairRE", "TuckER", "ConvE"])
def test_other_models_of_the_library_fit_too(model: str, small: KnowledgeGraph) -> None:
    options = {"output_channels": 4} if model == "ConvE" else {}
    make = {"dimension": 16, "epochs": 1, "options": options}
    one, other = (KGE(model, **make).fit(small) for _ in range(2))
    assert one.score_items([0, 1]).shape == (2, small.n_items)
    assert same(one, other), "dropout and the like have their own random numbers"


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown PyKEEN model 'RotateE'.*'RotatE'"):
        KGE("RotateE")


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown setting 'dimensions'.*'dimension'"):
        KGE("RotatE", dimensions=3)
    with pytest.raises(UnknownNameError, match=r"unknown setting 'epoch'.*'epochs'"):
        GNN(epoch=3)


def test_a_model_that_needs_more_says_so(small: KnowledgeGraph) -> None:
    with pytest.raises(LogerError, match=r"can't build RotatE .*'no_such': 1.*options="):
        KGE("RotatE", dimension=4, options={"no_such": 1}).fit(small)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen", None)
    with pytest.raises(LogerError, match=r"pip install '\.\[kge\]'"):
        KGE("RotatE")


def test_the_random_numbers_of_others_are_left_alone(small: KnowledgeGraph) -> None:
    def draws() -> tuple[float, float, float]:
        return random.random(), np.random.random(), float(torch.rand(1))  # noqa: NPY002

    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    expected = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    KGE("DistMult", dimension=4, epochs=1).fit(small)
    GNN(dimension=4, epochs=1).fit(small)
    assert draws() == expected
    assert not torch.are_deterministic_algorithms_enabled()


# ── batches and neighbours ──────────────────────────────────────────────────────────────


def test_negatives_are_of_the_type_that_is_sought(small: KnowledgeGraph) -> None:
    config = KGE("DistMult", batch=64).config
    batches = list(Triples(small, None, KGE.negatives).batches(config, 0, warm=False))
    assert {b.relation for b in batches} == set(range(len(small.relations)))
    for b in batches:
        side = 0 if b.head_sought else 1
        span = small.vocabulary.span(small.signature(b.relation)[side])
        assert ((b.negatives >= span.start) & (b.negatives < span.stop)).all()
        assert ((b.sought >= span.start) & (b.sought < span.stop)).all()
    seen = sum(len(b.sought) for b in batches if b.relation == INTERACTION)
    assert seen == int(small.degrees(INTERACTION).sum()), "each interaction once an epoch"


def test_drawn_neighbours_have_the_mean_of_all_of_them(small: KnowledgeGraph) -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.random(small.n_entities), rng.random(2 * len(small.relations))
    entities = np.array([0, 5, small.n_users + 3, small.n_entities - 1])
    drawn = draw_neighbours(small, entities, 40_000, rng)
    parts = drawn.shares * weights[drawn.relations] * values[drawn.neighbours]
    for entity, estimate in zip(entities, parts.reshape(len(entities), -1).sum(1), strict=True):
        exact = sum(
            weights[r] * values[small.neighbours(entity, r)].mean()
            for r in range(2 * len(small.relations))
            if len(small.neighbours(entity, r))
        )
        assert estimate == pytest.approx(exact, rel=0.02)


def test_an_entity_set_apart_is_never_a_neighbour(small: KnowledgeGraph) -> None:
    users = np.arange(10)
    apart = np.array([small.neighbours(u, INTERACTION)[0] for u in users]).astype(np.int64)
    drawn = draw_neighbours(small, users, 50, np.random.default_rng(0), apart)
    hit = drawn.neighbours == np.repeat(apart, 50)
    assert hit.any() and (drawn.shares[hit] == 0).all() and (drawn.shares[~hit] > 0).all()


def test_the_network_scores_by_propagation_over_all_edges(small: KnowledgeGraph) -> None:
    encoder = GNN(dimension=4, epochs=1, draws=(3, 2)).fit(small)
    state = {k: torch.from_numpy(np.array(v)) for k, v in encoder.state().items()}
    own = state["vectors.weight"]
    x = own
    for _ in range(2):
        x = torch.stack(
            [
                own[h]
                + sum(
                    state["log_weight.weight"][r].exp() * x[small.neighbours(h, r).copy()].mean(0)
                    for r in range(2 * len(small.relations))
                    if len(small.neighbours(h, r))
                )
                for h in range(small.n_entities)
            ]
        )
    item = small.n_users + 7
    cosine = torch.cosine_similarity(x[2] * state["diagonal.weight"][INTERACTION], x[item], dim=0)
    expected = state["log_gamma.weight"][INTERACTION].exp() * cosine + state["bias.weight"][item]
    assert encoder.score_items([2])[0, 7] == pytest.approx(float(expected), abs=1e-5)
    assert not own[: small.n_users].any(), "users are what they bought"


@pytest.mark.parametrize(("name", "config"), [("KGE", KGEConfig), ("GNN", GNNConfig)])
def test_an_encoder_of_an_older_bundle_may_have_settings_that_are_constants_now(
    name: str, config: Any
) -> None:
    saved = {**asdict(config(dimension=12)), "negatives": 9, "warm_epochs": 1, "head_share": 0.5}
    assert _encoder_maker(name, saved)().config == config(dimension=12)  # type: ignore[attr-defined]
