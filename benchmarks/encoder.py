"""Training and retrieval of the encoder, compared with the authors' way and other libraries.

    python benchmarks/encoder.py              # make bench-encoder

1. Triples per second of a training step at the size of the paper's Cellphones set (169k entities,
   3.1M triples), d = 100, with equal negatives per positive, in one run, in turns, on one thread
   each; and the share of a core's matrix-product peak that our default step reaches.
2. Growth of a training step at 1×, 2×, 4× the triples.
3. Seconds to a given validation NDCG@10 on amazon-beauty, if the data is available.
4. Top 50 for all users: ours compared with a blocked NumPy product and argpartition, same result.

Libraries that aren't installed are named and skipped: pip install 'loger-rec[bench,kge]'. RecBole
and hopwise need old or many packages: install each in its own environment and pass its package
folder with --packages, which is searched last.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import psutil
import torch

import target
from generated import cellphones
from loger.encoder import TransE, TransEConfig
from loger.encoder.transe_training import Training, _Batch
from loger.engine import LocalEngine
from loger.engine.threads import one_thread
from loger.graph import KnowledgeGraph, history
from recbole_hopwise import stepper
from retrieval import ITEMS_PER_TILE, USERS_PER_TILE, as_product, top_items
from tables import aligned
from target import Learner, by_distance

DIMENSION = 100
Step = Callable[[], int]  # one training step; how many positives it learned from


def authors_way(
    graph: KnowledgeGraph, negatives: int, batch: int = 512, rate: float = 1e-4
) -> Learner:
    """Dense Adam over the whole table, own negatives for each positive, L1 (METHOD 2, [A])."""
    entities = torch.nn.Embedding(graph.n_entities, DIMENSION)
    relations = torch.nn.Embedding(len(graph.relations), DIMENSION)
    adam = torch.optim.Adam([*entities.parameters(), *relations.parameters()], lr=rate)
    triples = torch.tensor(np.stack(graph.triples()).astype(np.int64).T)
    softplus = torch.nn.functional.softplus

    def step() -> int:
        h, r, t = triples[torch.randint(0, len(triples), (batch,))].T
        wrong = torch.randint(0, graph.n_entities, (batch, negatives))
        x = entities(h) + relations(r)
        good = 12 - (x - entities(t)).abs().sum(1)
        bad = 12 - (x[:, None] - entities(wrong)).abs().sum(2)
        share = torch.softmax(bad, 1).detach()
        loss = 0.5 * (softplus(-good).mean() + (share * softplus(bad)).sum(1).mean())
        adam.zero_grad()
        loss.backward()
        adam.step()
        return batch

    return by_distance(
        step, lambda: entities.weight, lambda: relations.weight[0], graph.n_users, graph.n_items
    )


def ours(graph: KnowledgeGraph, config: TransEConfig, rate: float = 1e-3) -> Learner:
    """Our step over the batches of an epoch as fit would take them."""
    training = Training(config, graph)
    batches = list(training._batches(0))
    rng = np.random.default_rng(0)
    turn = iter(range(10**9))

    def step() -> int:
        batch: _Batch = batches[next(turn) % len(batches)]
        training._step(batch, rate, rng)
        return len(batch.given)

    return target.ours(training, step)


def pykeen(graph: KnowledgeGraph, negatives: int, batch: int, rate: float = 1e-3) -> Learner:
    """PyKEEN's TransE with its own negative sampler, loss and Adam."""
    from pykeen.losses import NSSALoss
    from pykeen.models import TransE as Model
    from pykeen.sampling import BasicNegativeSampler
    from pykeen.triples import CoreTriplesFactory

    triples = torch.tensor(np.stack(graph.triples()).astype(np.int64).T)
    factory = CoreTriplesFactory(triples, graph.n_entities, len(graph.relations))
    model = Model(triples_factory=factory, embedding_dim=DIMENSION, loss=NSSALoss())
    adam = torch.optim.Adam(model.get_grad_params(), lr=rate)
    sampler = BasicNegativeSampler(mapped_triples=triples, num_negs_per_pos=negatives)

    def step() -> int:
        chosen = triples[torch.randint(0, len(triples), (batch,))]
        wrong, _ = sampler.sample(chosen)
        good = model.score_hrt(chosen)
        bad = model.score_hrt(wrong.view(-1, 3)).view(batch, negatives)
        loss = model.loss.process_slcwa_scores(good, bad)
        adam.zero_grad()
        loss.backward()
        adam.step()
        model.post_parameter_update()
        return batch

    entities, relations = model.entity_representations[0], model.relation_representations[0]
    here = torch.tensor([0])
    return by_distance(step, entities, lambda: relations(here), graph.n_users, graph.n_items)


def pyg(graph: KnowledgeGraph, negatives: int, batch: int, rate: float = 1e-3) -> Learner:
    """PyG's TransE, sparse gradients and SparseAdam.

    It draws one negative per positive, so more of them means giving a positive repeatedly.
    """
    from torch_geometric.nn import TransE as Model

    model = Model(graph.n_entities, len(graph.relations), DIMENSION, sparse=True)
    adam = torch.optim.SparseAdam(list(model.parameters()), lr=rate)
    h, r, t = (torch.from_numpy(x.astype(np.int64)) for x in graph.triples())

    def step() -> int:
        rows = torch.randint(0, len(h), (batch,)).repeat_interleave(negatives)
        adam.zero_grad()
        model.loss(h[rows], r[rows], t[rows]).backward()
        adam.step()
        return batch

    def unit() -> torch.Tensor:  # as its own score takes them
        return torch.nn.functional.normalize(model.node_emb.weight, p=1.0, dim=-1)

    return by_distance(step, unit, lambda: model.rel_emb.weight[0], graph.n_users, graph.n_items)


def rates(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """Triples per processor second of each, turn by turn so that all meet the same weather.

    For steps on one thread: of several, the seconds of all would be added up.
    """
    done = dict.fromkeys(steps, 0)
    spent = dict.fromkeys(steps, 0.0)
    for step in steps.values():
        step()
    while min(spent.values()) < seconds:
        for name, step in steps.items():
            if spent[name] >= seconds:
                continue
            start = time.process_time()
            while time.process_time() - start < seconds / 5:
                done[name] += step()
            spent[name] += time.process_time() - start
    return {name: done[name] / spent[name] for name in steps}


def throughput(graph: KnowledgeGraph, seconds: float) -> dict[str, float]:
    """Triples per second of every way that is installed."""
    steps: dict[str, Step] = {
        "authors' way, 50 negatives": authors_way(graph, 50).step,
        "ours, 50 negatives": ours(graph, TransEConfig(batch=8160, group=51)).step,
        "ours, 1 negative": ours(graph, TransEConfig(batch=8192, group=2)).step,
        "ours, 1 negative, users with rows": ours(
            graph, TransEConfig(batch=8192, group=2, users="free")
        ).step,
        "ours, default (in-batch, ~1,000 negatives)": ours(graph, TransEConfig()).step,
    }
    for name, make in {
        "PyKEEN, 50 negatives, batch 512": lambda: pykeen(graph, 50, 512).step,
        "PyKEEN, 50 negatives, batch 8,192": lambda: pykeen(graph, 50, 8192).step,
        "PyG, 50 negatives, batch 512": lambda: pyg(graph, 50, 512).step,
        "PyG, 1 negative, batch 8,192": lambda: pyg(graph, 1, 8192).step,
        "RecBole CFKG, 1 negative, batch 8,192": lambda: stepper(graph, "RecBole CFKG", 8192),
        "hopwise TransE, 1 negative, batch 8,192": lambda: stepper(graph, "hopwise TransE", 8192),
    }.items():
        try:
            steps[name] = make()
        except ImportError as error:
            print(f"  {name}: not installed ({error.name})")
    with one_thread():  # as in a fit: with two cores, two encoders train at once
        found = rates(steps, seconds)
    base = found["authors' way, 50 negatives"]
    print(
        f"\nTraining, {graph.n_entities:,} entities, {graph.n_triples:,} triples, d = {DIMENSION}"
    )
    slow_first = sorted(found.items(), key=lambda x: x[1])
    rows = [[name, f"{rate:,.0f}", f"{rate / base:.1f}×"] for name, rate in slow_first]
    print(aligned(("", "triples/s", "authors' way"), rows))
    for negatives in ("50 negatives", "1 negative"):
        name, best = best_library(found, negatives)
        if name:
            print(f"  ours / {name}: {found[f'ours, {negatives}'] / best:.1f}×")
    with one_thread():
        peak = matrix_peak()
    flops = 6 * 1024 * DIMENSION  # per triple of the default step: three products of two flops
    share = found["ours, default (in-batch, ~1,000 negatives)"] * flops / peak
    print(f"  matrix-product peak {peak / 1e9:,.0f} GFLOP/s; our default step reaches {share:.0%}")
    return found


def best_library(found: dict[str, float], negatives: str) -> tuple[str, float]:
    """The fastest of the others at so many negatives, and its triples per second."""
    own = ("ours", "auth")
    others = {k: v for k, v in found.items() if not k.startswith(own) and f" {negatives}" in k}
    return max(others.items(), key=lambda pair: pair[1], default=("", float("nan")))


def matrix_peak() -> float:
    """FLOP/s of a large float32 product, the best of a few."""
    a = torch.randn(2048, 2048)
    best = 0.0
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start))
    return best


class Growth(NamedTuple):
    """A size, and what a step of the default fit costs there."""

    scale: float
    triples: int
    candidates: float
    """Entities that a batch's triples are scored against, on average."""
    best: float
    """Processor seconds per triple, in the best round …"""
    median: float
    """… and in the median one."""
    gib: float
    """What graph and training hold."""


def growth(scales: list[float], rounds: int = 10, steps: int = 40) -> list[Growth]:
    """Processor seconds per triple of the default fit's steps, the sizes turn by turn so that all
    meet the same weather."""
    print("\nGrowth: the default fit's steps, one core")
    sizes = [(scale, *prepared(scale, rounds * steps)) for scale in scales]
    rng = np.random.default_rng(0)
    found: list[list[float]] = [[] for _ in scales]
    for turn in range(rounds):
        for (_, training, batches, _), seconds in zip(sizes, found, strict=True):
            some = batches[turn * steps : (turn + 1) * steps]
            with one_thread():
                start = time.process_time()
                for batch in some:
                    training._step(batch, 1e-2, rng)
                spent = time.process_time() - start
            seconds.append(spent / sum(len(batch.given) for batch in some))
    out = []
    for (scale, training, batches, gib), seconds in zip(sizes, found, strict=True):
        candidates = float(np.mean([len(np.unique(batch.sought)) for batch in batches]))
        best, median = min(seconds), float(np.median(seconds))
        out.append(Growth(scale, training.graph.n_triples, candidates, best, median, gib))
        print(
            f"  {scale:g}×  {out[-1].triples:>12,} triples  {candidates:,.0f} candidates  "
            f"{1e6 * best:.2f} µs per triple (median {1e6 * median:.2f})  "
            f"{best / out[0].best:.2f} × linear  {gib:.2f} GiB",
            flush=True,
        )
    return out


def held_gib() -> float:
    """What this process holds now."""
    return float(psutil.Process().memory_info().rss) / 2**30


def prepared(scale: float, n: int) -> tuple[Training, list[_Batch], float]:
    """A fit of the graph at a scale, its first n batches, and how many GiB both hold."""
    before = held_gib()
    training = Training(TransEConfig(), cellphones(scale))
    batches = list(training._batches(0))[:n]
    return training, batches, held_gib() - before


def retrieval_times(graph: KnowledgeGraph, k: int = 50, turns: int = 3) -> tuple[float, float]:
    """Seconds of our top k of all users, and of NumPy's."""
    encoder = TransE().load_state(graph, Training(TransEConfig(), graph).learned())
    users = np.arange(graph.n_users)
    top_items(encoder, graph, users[:100], k)
    x = encoder.entities_[: graph.n_users]
    y = encoder.entities_[graph.n_users : graph.n_users + graph.n_items]
    x = x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-12)
    y = encoder.config.gamma * y / np.linalg.norm(y, axis=1, keepdims=True).clip(1e-12)

    def plain() -> np.ndarray:
        out = np.empty((len(users), k), dtype=np.int64)
        for lo in range(0, len(users), 512):
            scores = x[lo : lo + 512] @ y.T
            scores[history(graph, users[lo : lo + 512])] = -np.inf
            best = np.argpartition(-scores, k, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
            out[lo : lo + 512] = np.take_along_axis(best, order, 1)
        return out

    mine = theirs = np.empty((0, 0), dtype=np.int64)
    own, other, product = [], [], []
    for _ in range(turns):  # in turn, so that all meet the same weather
        start = time.perf_counter()
        mine = top_items(encoder, graph, users, k)[0].astype(np.int64)
        own.append(time.perf_counter() - start)
        start = time.perf_counter()
        theirs = plain()
        other.append(time.perf_counter() - start)
        product.append(product_alone(encoder, users))
    same = np.mean(np.sort(mine, axis=1) == np.sort(theirs, axis=1))
    # Two lists of a user may differ only in items whose scores agree to the last bits.
    for u in np.flatnonzero((np.sort(mine, axis=1) != np.sort(theirs, axis=1)).any(axis=1)):
        one, two = (np.sort(x[u] @ y[items[u]].T) for items in (mine, theirs))
        assert np.allclose(one, two, rtol=1e-5), f"user {u}: the lists differ"
    print(f"\nTop {k} of {graph.n_items:,} items for {len(users):,} users, best of {turns} turns")
    print(f"  NumPy product + argpartition {min(other):>8.2f} s")
    ratio = min(other) / min(own)
    print(f"  ours                         {min(own):>8.2f} s   {ratio:.1f}×, {same:.4%} equal")
    each = ", ".join(f"{b / a:.1f}×" for a, b in zip(own, other, strict=True))
    print(f"  turn by turn                 {each}")
    print(f"  our product alone, both cores{min(product):>8.2f} s")
    work = 2 * len(users) * graph.n_items * DIMENSION
    print(f"  the product at peak          {work / matrix_peak():>8.2f} s")
    return min(own), min(other)


def product_alone(encoder: TransE, asked: np.ndarray) -> float:
    """Seconds of the product in our tiles on two cores, with nothing chosen from it."""
    factors = as_product(encoder, asked)
    assert factors is not None
    x, y = factors
    users, items = torch.from_numpy(x), torch.from_numpy(y).mT

    def block(items: torch.Tensor, lo: int) -> None:
        rows = users[lo : lo + USERS_PER_TILE]
        room = torch.empty(len(rows) * ITEMS_PER_TILE)
        for at in range(0, items.shape[1], ITEMS_PER_TILE):
            part = items[:, at : at + ITEMS_PER_TILE]
            tile = room[: len(rows) * part.shape[1]].view(len(rows), -1)
            torch.mm(rows, part, out=tile)

    start = time.perf_counter()
    list(LocalEngine().map("", block, range(0, len(x), USERS_PER_TILE), items))
    return time.perf_counter() - start


def time_to_target(goal: float, cap: float, rates: dict[str, float]) -> None:
    parts = target.beauty()
    if parts is None:
        print("\nTime to target: no amazon-beauty in the folder of --data")
        return
    graph = parts.graph
    learners = {
        "ours, default": lambda: ours(graph, TransEConfig(), rate=1e-2),
        "the authors' way, 50 negatives, batch 512": lambda: authors_way(
            graph, 50, 512, rates["authors"]
        ),
        "PyKEEN, 50 negatives, batch 2,048": lambda: pykeen(graph, 50, 2048, rates["pykeen"]),
        "PyG, 1 negative, batch 8,192": lambda: pyg(graph, 1, 8192, rates["pyg"]),
    }
    target.compare(learners, parts, goal, cap)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="per method of the throughput")
    parser.add_argument("--target", type=float, default=3.5, help="validation NDCG@10 in percent")
    parser.add_argument("--cap", type=float, default=240, help="seconds per method to the target")
    parser.add_argument(
        "--rate", nargs=3, type=float, default=[1e-2, 1e-2, 1e-2],
        help="learning rates to the target: authors' way, PyKEEN, PyG",
    )  # fmt: skip
    parser.add_argument(
        "--packages", nargs="*", default=[], help="more folders of packages, as for RecBole"
    )
    parser.add_argument("--only", choices=["throughput", "growth", "target", "retrieval"])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 2, 4], help="of growth")
    options = parser.parse_args()
    sys.path += options.packages
    torch.manual_seed(0)
    if options.only in (None, "growth"):  # first, so that its memory is its own
        growth(options.sizes)
    if options.only in (None, "throughput"):
        throughput(cellphones(), options.seconds)
    if options.only in (None, "retrieval"):
        retrieval_times(cellphones())
    if options.only in (None, "target"):
        rates = dict(zip(["authors", "pykeen", "pyg"], options.rate, strict=True))
        time_to_target(options.target, options.cap, rates)


if __name__ == "__main__":
    main()
