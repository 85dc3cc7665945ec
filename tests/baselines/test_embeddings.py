"""HeteroEmbed, CKE and KGAT against slow implementations; their reasons are facts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loger.baselines import CKE, KGAT, HeteroEmbed
from loger.baselines._shared import Noise, Unseen, relation_batches
from loger.baselines.cke import item_facts
from loger.baselines.heteroembed import NOISE
from loger.baselines.kgat import (
    TEMPERATURE,
    Neighbourhood,
    all_edges,
    edge_keys,
    flow_matrix,
    some_edges,
    without_pairs,
)
from loger.data import split
from loger.data.demo import shop
from loger.errors import LogerError
from loger.graph import INTERACTION
from loger.recommender import part_matrix

PARTS = split(shop(users=60, items=90).dataset)
GRAPH = PARTS.graph
SMALL = {"dimension": 8, "epochs": 2, "batch": 64}
KGAT_SMALL = {**SMALL, "layers": (6, 4), "pretraining": 1, "neighbours": 5}


@pytest.fixture(scope="module")
def embedded():
    return HeteroEmbed(**SMALL).fit(PARTS)


@pytest.fixture(scope="module")
def attended():
    return KGAT(**KGAT_SMALL).fit(PARTS)


# ── HeteroEmbed ─────────────────────────────────────────────────────────────────────────


def test_heteroembed_ranks_by_the_translated_product_and_the_bias(embedded):
    entities, shift = embedded.entities_.table.numpy(), embedded.relations_.table[INTERACTION]
    for u in (0, 7):
        for v in range(GRAPH.n_items):
            slow = (entities[u] + shift.numpy()) @ entities[GRAPH.n_users + v]
            slow += embedded.biases_.table[v, 0].item()
            assert embedded.score([u])[0, v] == pytest.approx(slow, abs=1e-4)


def test_scores_of_purchases_as_facts_are_those_of_the_ranking(embedded):
    users, items = np.arange(20), np.arange(20) % 7
    facts = embedded.fact_scores(users, np.zeros(20, int), items + GRAPH.n_users)
    np.testing.assert_allclose(facts, embedded.score(users)[users, items], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("relation", [0, 1, 2])
def test_a_step_of_heteroembed_goes_down_the_gradient_of_its_loss(relation):
    model = HeteroEmbed(**SMALL, l2=0.1)
    model._graph = GRAPH
    learned = model._start(GRAPH)[relation]
    rng = np.random.default_rng(0)
    rows, noise = rng.integers(len(learned.heads), size=40), learned.noise.draw(16, rng)
    tables = [a.table.double().requires_grad_() for a in (
        model.entities_, model.relations_, model.biases_)]  # fmt: skip
    entities, relations, biases = tables
    loss = 0.0
    for row in rows:  # one triple at a time, one negative at a time
        h, t = learned.heads[row], learned.tails[row]
        x = entities[h] + relations[relation]

        def logit(entity, x=x):
            place = entity - learned.first
            s = x @ entities[entity] + biases[learned.biases + place, 0]
            return s - float(np.log(NOISE * learned.noise.shares[place]))

        def size(entity):
            return 0.5 * 0.1 * entities[entity].square().sum()

        loss = loss - torch.nn.functional.logsigmoid(logit(t)) + size(h) + size(t)
    for other in noise + learned.first:
        for row in rows:
            x = entities[learned.heads[row]] + relations[relation]
            place = other - learned.first
            s = x @ entities[other] + biases[learned.biases + place, 0]
            s = s - float(np.log(NOISE * learned.noise.shares[place]))
            loss = loss - NOISE / 16 * torch.nn.functional.logsigmoid(-s)
        loss = loss + NOISE / 16 * 0.5 * 0.1 * entities[other].square().sum()
    slow = torch.autograd.grad(loss / len(rows), tables)
    model._step(relation, learned, rows, noise, rate=1e-3)
    for adam, gradient in zip(
        (model.entities_, model.relations_, model.biases_), slow, strict=True
    ):
        np.testing.assert_allclose(10 * adam.first.numpy(), gradient.numpy(), rtol=1e-3, atol=2e-6)


def test_without_vectors_the_estimate_is_the_noise_itself():
    model = HeteroEmbed(**SMALL)
    model._graph = GRAPH
    learned = model._start(GRAPH)[INTERACTION]
    found = model.biases_.table[: GRAPH.n_items, 0].exp().numpy()
    had = learned.noise.shares > 0
    np.testing.assert_allclose(found[had], learned.noise.shares[had], rtol=1e-4)


# ── CKE ─────────────────────────────────────────────────────────────────────────────────


def test_cke_scores_items_by_both_of_their_vectors():
    v = CKE(**SMALL).fit(PARTS)
    users, own, entities = (
        x.weight.detach().numpy() for x in (v.vectors_.users, v.vectors_.items, v.vectors_.entities)
    )
    slow = [[users[u] @ (own[i] + entities[i]) for i in range(GRAPH.n_items)] for u in (3, 5)]
    np.testing.assert_allclose(v.score([3, 5]), slow, rtol=1e-4, atol=1e-6)


def test_cke_learns_bpr_and_transr_as_written():
    model = CKE(**SMALL)
    vectors = model.fit(PARTS).vectors_.double().requires_grad_(False)
    u, v, w = torch.tensor([1, 2]), torch.tensor([5, 6]), torch.tensor([7, 8, 9, 10, 11, 12])
    item = vectors.items.weight + vectors.entities.weight[: GRAPH.n_items]
    users = vectors.users.weight
    terms = [
        -torch.log(torch.sigmoid(users[u[k]] @ item[v[k]] - users[u[k]] @ item[w[3 * k + j]]))
        for k in range(2)
        for j in range(3)
    ]
    assert float(vectors.pairs(u, v, w)[0]) == pytest.approx(float(sum(terms)) / 6)
    h, t, o = torch.tensor([0, 4]), torch.tensor([90, 91]), torch.tensor([93, 94])
    shift = vectors.relations.weight[2]
    projection = vectors.projections.weight[2].view(8, 8).T

    def distance(h, t):
        e = vectors.entities.weight
        return (projection @ e[h] + shift - projection @ e[t]).square().sum()

    terms = [
        -torch.log(torch.sigmoid(distance(h[k], o[k]) - distance(h[k], t[k]))) for k in range(2)
    ]
    assert float(vectors.facts(2, h, t, o)[0]) == pytest.approx(float(sum(terms)) / 2)


def test_cke_knows_facts_about_items_and_none_about_users():
    for r, triples in enumerate(item_facts(GRAPH)):
        head, tail = (GRAPH.vocabulary.span(t) for t in GRAPH.signature(r))
        if r == INTERACTION:
            expected = set(zip(*(x.tolist() for x in PARTS.pairs("train")), strict=True))
        elif "user" in GRAPH.signature(r):
            expected = set()
        else:
            expected = {
                (h - GRAPH.n_users, int(t) - GRAPH.n_users)
                for h in head
                for t in GRAPH.neighbours(h, r)
            }
        got = zip(triples.heads.tolist(), triples.tails.tolist(), strict=True)
        assert set(got) == expected
        assert range(triples.first, triples.stop) == range(
            tail.start - GRAPH.n_users, tail.stop - GRAPH.n_users
        )


# ── KGAT ────────────────────────────────────────────────────────────────────────────────


def network_of(**settings):
    from loger.baselines.kgat import KGATConfig, _Network

    config = KGATConfig(dimension=8, layers=(6, 4), **settings)
    network = _Network(GRAPH, config)
    with torch.no_grad():  # away from the identity it starts from
        network.projections.weight += 0.3 * torch.randn(
            network.projections.weight.shape, generator=torch.Generator().manual_seed(0)
        )
        network.vectors.weight *= 10
    return network


def test_attention_of_kgat_equals_its_formula_and_adds_up_to_one():
    network, edges = network_of(), all_edges(GRAPH)
    got = network.attention(GRAPH, edges)
    e, relations = network.vectors.weight.detach(), network.relations.weight.detach()
    for h in (0, 59, 61, 150):
        places = range(edges.indptr[h], edges.indptr[h + 1])
        scores = []
        for k in places:
            r, t = edges.relations[k], edges.tails[k]
            w = network.projections.weight[r].detach().view(8, 8).T
            scores.append((w @ e[t]) @ torch.tanh(w @ e[h] + relations[r]))
        slow = torch.softmax(torch.stack(scores), 0).numpy()
        np.testing.assert_allclose(got[places.start : places.stop], slow, rtol=1e-4, atol=1e-7)
    sums = np.add.reduceat(got, edges.indptr[:-1][np.diff(edges.indptr) > 0])
    np.testing.assert_allclose(sums, 1, rtol=1e-5)


def dense_twin(network, flow):
    """All layers for all entities by dense products, as the paper writes them."""
    x = network.vectors.weight.double()
    a = torch.from_numpy(flow.toarray()).double()
    outs = [x]
    for first, second in zip(network.sums, network.products, strict=True):
        near = a @ x
        left = (x + near) @ first.weight.double().T + first.bias.double()
        right = (x * near) @ second.weight.double().T + second.bias.double()
        x = torch.where(left > 0, left, 0.01 * left) + torch.where(right > 0, right, 0.01 * right)
        outs.append(x / x.norm(dim=1, keepdim=True))
    return torch.cat(outs, 1)


def test_propagation_to_some_entities_equals_that_of_the_whole_graph_and_so_do_gradients():
    network = network_of()
    edges = some_edges(all_edges(GRAPH), 3, np.random.default_rng(0))
    flow = flow_matrix(edges, network.attention(GRAPH, edges))
    asked = np.array([0, 3, 62, 70, 151])
    got, slow = network(Neighbourhood(flow, asked, 2)), dense_twin(network, flow)[asked]
    np.testing.assert_allclose(got.detach(), slow.detach(), rtol=1e-4, atol=1e-5)
    aim = torch.arange(slow.numel()).view_as(slow).sin()
    parameters = [network.vectors.weight, network.sums[0].weight, network.products[1].weight]
    fast = torch.autograd.grad((got * aim).sum(), parameters)
    for one, two in zip(fast, torch.autograd.grad((slow * aim).sum(), parameters), strict=True):
        np.testing.assert_allclose(one.to_dense(), two, rtol=1e-3, atol=1e-4)


def test_a_pair_in_training_is_propagated_as_if_it_had_no_edge():
    edges = all_edges(GRAPH)
    attention = np.random.default_rng(0).random(len(edges.tails)).astype(np.float32)
    attention /= np.repeat(np.add.reduceat(attention, edges.indptr[:-1]), np.diff(edges.indptr))
    flow = flow_matrix(edges, attention)
    users, items = (x[:9].astype(np.int64) for x in PARTS.pairs("train"))
    items = items + GRAPH.n_users
    slow = flow.toarray()
    for u, v in [*zip(users, items, strict=True), (7, 60)]:
        slow[u, v] = slow[v, u] = 0
    slow /= np.maximum(slow.sum(axis=1, keepdims=True), 1e-9)
    pairs = np.append(users, 7), np.append(items, 60)  # the last one may have no edge
    got = without_pairs(flow, edge_keys(flow), *pairs)
    np.testing.assert_allclose(got.toarray(), slow, atol=1e-5)
    assert flow.toarray()[users, items].all()  # the flow itself is as it was


def test_kgat_learns_the_softmax_of_a_group_less_the_chance_of_being_in_it(attended):
    """−log softmax of the true item among the group's, one pair and one item at a time."""
    asked = np.array([3, 5, 8, GRAPH.n_users + 2, GRAPH.n_users + 4, GRAPH.n_users + 7])
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 18))).double()
    users, items = np.array([0, 1, 2, 0]), np.array([4, 3, 4, 5])  # places in ``asked``
    counts = part_matrix(PARTS, "train").toarray().sum(axis=0)
    slow = 0.0
    for u, v in zip(users, items, strict=True):
        logits = {
            w: float(x[u] @ x[w]) / TEMPERATURE
            - np.log(1 - (1 - counts[asked[w] - GRAPH.n_users] / counts.sum()) ** 4)
            for w in (3, 4, 5)
        }
        slow += np.log(sum(np.exp(y) for y in logits.values())) - logits[v]
        slow += attended.config.l2 * 0.5 * float(x[[u, v], :8].square().sum())
    assert float(attended._softmax(x, asked, users, items)) == pytest.approx(slow, rel=1e-5)


def test_drawn_edges_are_edges_and_not_too_many_of_each():
    edges = all_edges(GRAPH)
    drawn = some_edges(edges, 4, np.random.default_rng(1))
    assert (np.diff(drawn.indptr) == np.minimum(np.diff(edges.indptr), 4)).all()
    whole = set(zip(edges.heads, edges.relations, edges.tails, strict=True))
    few = list(zip(drawn.heads, drawn.relations, drawn.tails, strict=True))
    assert set(few) <= whole
    assert len(set(few)) == len(few)
    other = some_edges(edges, 4, np.random.default_rng(2))
    assert (other.tails != drawn.tails).any()


def test_kgat_scores_by_the_product_of_all_layers_over_all_edges(attended):
    flow = flow_matrix(all_edges(GRAPH), attended.attention_)
    assert flow.nnz >= len(all_edges(GRAPH).tails) * 0.9  # all but doubled ones
    x = attended.vectors_.numpy()
    assert x.shape == (GRAPH.n_entities, 8 + 6 + 4)
    slow = x[[4, 9]] @ x[GRAPH.n_users : GRAPH.n_users + GRAPH.n_items].T
    np.testing.assert_allclose(attended.score([4, 9]), slow, rtol=1e-4, atol=1e-5)


# ── reasons ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["embedded", "attended"])
def test_reasons_are_simple_paths_of_facts_to_the_items_of_the_list(which, request):
    model = request.getfixturevalue(which)
    known, users = part_matrix(PARTS, "train").toarray(), [5, 0, 33]
    for u, reasons in zip(users, model.explained(users, 6, 3), strict=True):
        scores = np.where(known[u] > 0, -np.inf, model.score([u])[0])
        best = np.lexsort((np.arange(len(scores)), -scores))[:6]
        assert [x.item for x in reasons] == best.tolist()
        assert [x.score for x in reasons] == pytest.approx(scores[best], rel=1e-5)
        assert sum(len(x.paths) for x in reasons) > 6
        for x in reasons:
            for path, weight in zip(x.paths, x.weights, strict=True):
                assert path.exists(GRAPH)
                assert path.is_simple()
                assert path.entities[0] == u
                assert path.entities[-1] == GRAPH.n_users + x.item
                assert weight == pytest.approx(slow_weight(model, path), rel=1e-3)


def slow_weight(model, path):
    out = 1.0
    for h, r, t in path.edges:
        if isinstance(model, KGAT):
            segment = GRAPH.rows.segment(h, r)
            at = GRAPH.segment_starts[segment] + list(GRAPH.neighbours(h, r)).index(t)
            out *= float(model.attention_[at])
        else:
            fact = (h, r, t) if r < len(GRAPH.relations) else (t, GRAPH.inverse(r), h)
            out /= 1 + np.exp(-float(model.fact_scores(*([x] for x in fact))[0]))
    return out


# ── what steps learn from ───────────────────────────────────────────────────────────────


def test_noise_is_drawn_by_frequency_to_a_power():
    noise = Noise(np.array([0, 1, 16, 81]), 0.75)
    np.testing.assert_allclose(noise.shares, np.array([0, 1, 8, 27]) / 36)
    drawn = np.bincount(noise.draw(40_000, np.random.default_rng(0)), minlength=4) / 40_000
    np.testing.assert_allclose(drawn, noise.shares, atol=0.01)
    np.testing.assert_allclose(Noise(np.zeros(4, int)).shares, 0.25)


def test_unseen_items_are_not_those_of_the_user_and_all_others_come():
    known = part_matrix(PARTS, "train")
    users = np.repeat([0, 30], 3000)
    items = Unseen(known).draw(users, np.random.default_rng(0))
    assert not known[users, items].any()
    for u in (0, 30):
        assert set(items[users == u]) == set(np.flatnonzero(known[[u]].toarray()[0] == 0))


def test_an_epoch_has_all_interactions_and_facts_by_the_root_of_their_number():
    batches = relation_batches([1000, 400, 0, 100], 64, 1.5, np.random.default_rng(0))
    seen = {r: np.concatenate([x for q, x in batches if q == r]) for r in (0, 1, 3)}
    assert sorted(seen[0]) == list(range(1000))
    assert (len(seen[1]), len(seen[3])) == (1000, 500)
    assert {r for r, _ in batches} == {0, 1, 3}
    assert seen[1].max() < 400
    assert max(len(x) for _, x in batches) == 64


@pytest.mark.parametrize(
    "make",
    [
        lambda: HeteroEmbed(dimension=0),
        lambda: CKE(batch=0),
        lambda: CKE(l2=-1.0),
        lambda: KGAT(neighbours=0),
        lambda: KGAT(layers=(8, 0)),
    ],
)
def test_settings_without_sense_are_refused(make):
    with pytest.raises(LogerError, match="must be"):
        make()


def test_an_unknown_setting_is_refused_with_the_nearest_one():
    with pytest.raises(LogerError, match="dimension"):
        CKE(dimensions=3)
