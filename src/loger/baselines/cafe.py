"""CAFE: which patterns suit a user (coarse), then walks that neural modules guide (fine)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, logsigmoid, normalize

from loger.baselines._kernels import best_tails
from loger.baselines._shared import chunks, paced, with_best_paths
from loger.data.splits import Split
from loger.encoder import Encoder, TransE, TransEConfig
from loger.encoder.folding import vectors
from loger.encoder.protocol import TrainerConfig
from loger.engine import Progress, silent
from loger.engine.settings import check_numbers, overridden
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.graph import KnowledgeGraph, Path, checked_ids, history
from loger.graph.arrays import Floats, Ids
from loger.grounding.layout import layout
from loger.logic.mining import MiningConfig, mine
from loger.reasoner.walker import TrainingPaths, training_paths
from loger.recommender import ExplainedItem, Recommender
from loger.rules import RuleSet

_SHARPNESS = 8.0
"""Scale of the product of a module's answer with unit vectors, as for PGPR."""


NEGATIVES = 512
"""Wrong entities of the right type that the true one must be distinguished from."""
HIDDEN = 256
"""Units of a module, as in the original."""
SAMPLE = 1000
"""Items among which a user's own are to stand out for a pattern to be prominent."""


@dataclass(frozen=True, slots=True)
class CAFEConfig(TrainerConfig):
    """Settings of CAFE; paths and their share a pattern are from a search on validation of Beauty,
    in which epochs, rate, beam and ranking were varied too (docs/research/results.md)."""

    encoder: TransEConfig = field(default_factory=TransEConfig.thorough)
    """The vectors that modules learn to point at, which stay as they are."""
    rules: MiningConfig = field(default_factory=lambda: MiningConfig(max_rules=15))
    """Which patterns there are: the rules that are mined with this."""
    epochs: int = 4
    batch: int = 256
    rate: float = 1e-3
    final_rate: float = 1e-3
    paths: int = 960
    """Paths of a user in all …"""
    pattern_paths: int = 60
    """… and of each pattern at most: the coarse stage fills them in the order of prominence."""
    beam: int = 20
    """Partial paths that are followed from each node of the layout tree."""


class _Node(NamedTuple):
    """A node of the layout tree: patterns that begin alike go together as far as they do."""

    parent: int
    relation: int
    depth: int
    pattern: int
    """The pattern that ends here, or -1."""
    below: tuple[int, ...]
    """The patterns that end here or further on."""


class Walks(NamedTuple):
    """Paths of a block of users that end at items, by user and pattern, each pattern's best
    first; -1 after a path's end."""

    owners: Ids  # [paths]: place of the user in the block
    entities: NDArray[np.int32]  # [paths, hops + 1]
    patterns: Ids  # [paths]
    logs: Floats  # [paths]: mean log probability of a hop
    ends: Ids  # [paths]: the item


class _Modules(nn.Module):
    """φ_r of every relation that patterns have: h' = h + W₂·elu(W₁[u; h] + b₁) + b₂."""

    def __init__(self, n: int, dimension: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(n, 2 * dimension, HIDDEN))
        self.bias = nn.Parameter(torch.zeros(n, HIDDEN))
        self.second = nn.Parameter(torch.zeros(n, HIDDEN, dimension))
        self.shift = nn.Parameter(torch.zeros(n, dimension))

    def start(self, rng: np.random.Generator) -> Self:
        """Draw the first weights, within 1/√inputs as PyTorch does, but by our own stream."""
        with torch.no_grad():
            for p in (self.first, self.second):
                bound = p.shape[1] ** -0.5
                p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape))))
        return self

    def forward(self, module: int, user: Tensor, h: Tensor) -> Tensor:
        """φ of one relation; [rows, dimension]."""
        x = torch.cat([user, h], 1) @ self.first[module] + self.bias[module]
        return h + elu(x) @ self.second[module] + self.shift[module]


class CAFE(Recommender):
    """Xian et al., CIKM 2020, "CAFE: Coarse-to-Fine Neural Symbolic Reasoning for Explainable
    Recommendation".

    Every relation r has a module φ_r(u, h) that says, as a vector, where a step by r leads a user.
    Along a pattern π = (r₁ … r_k) they are composed, h_t = φ_{r_t}(u, h_{t-1}) with h₀ = u, and

        P(e_t | u, π) ∝ exp⟨h_t, e_t⟩,   L = −Σ_t log P(e_t) − log σ(⟨h_k, v⁺⟩ − ⟨h_k, v⁻⟩)

    over paths of observed pairs. Coarse: a pattern is prominent for a user as far as it makes the
    user's own items likely, and quotas of paths go to patterns in that order. Fine: one walk over
    the layout tree of the chosen patterns, at each node along its relation to the neighbours of
    highest ⟨h_t, e⟩. What no path reaches is not recommended (-inf); an item is ranked by how
    likely the end of its best pattern makes it, and paths by their probability.

    Differences: patterns are mined, not listed by hand; the vectors are those of our TransE and
    stay as they are; one hidden layer and no batch normalisation; log P is among negatives of the
    type sought, not all entities. No walk meets an entity twice, so no pair explains itself.
    """

    name = "CAFE"

    encoder_: Encoder
    modules_: _Modules
    graph_: KnowledgeGraph
    patterns_: RuleSet
    losses_: tuple[float, ...]  # mean loss of each epoch

    def __init__(self, **settings: Any) -> None:
        self.config = overridden(CAFEConfig(), settings)
        check_numbers(self.config, batch=1, paths=1, pattern_paths=1, beam=1, epochs=0)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Fit the encoder, mine the patterns, and learn the modules from paths of known pairs."""
        config, graph = self.config, split.graph
        encoder = TransE(replace(config.encoder, seed=config.seed, device=config.device))
        rules = mine(graph, config.rules).rules
        return self.reason_on(graph, encoder.fit(graph, progress=progress), rules, progress)

    def reason_on(
        self,
        graph: KnowledgeGraph,
        encoder: Encoder,
        patterns: RuleSet,
        progress: Progress = silent,
    ) -> Self:
        """Learn modules over the vectors of an encoder that was fitted on the graph."""
        if not len(patterns):
            raise LogerError("CAFE found no patterns in the data; lower min_support")
        config = self.config
        self.graph_, self.encoder_, self.patterns_ = graph, encoder, patterns
        unit = normalize(torch.from_numpy(vectors(encoder, graph)[0]))
        self._vectors, self._tensor, self._layout = unit.numpy(), unit, layout(graph)
        used = sorted({r for rule in patterns for r in rule.relations})
        self._place = {r: k for k, r in enumerate(used)}
        self._tree = _layout_tree(patterns)
        rng = np.random.default_rng([config.seed, 0xCAFE])
        self._sample = rng.integers(graph.n_items, size=SAMPLE)
        self.modules_ = _Modules(len(used), unit.shape[1]).start(rng)
        with one_thread():
            ones = np.ones(len(patterns))
            paths = training_paths(graph, patterns, ones, config.seed, per_pair=1, per_user=40)
            self.losses_ = tuple(self._epochs(paths, rng, progress))
        return self

    def _epochs(
        self, paths: TrainingPaths, rng: np.random.Generator, progress: Progress
    ) -> list[float]:
        """Go through the paths in batches of one pattern each; the mean loss of each epoch."""
        config = self.config
        step = torch.optim.Adam(self.modules_.parameters(), lr=config.rate)
        means, what = list[float](), "training the modules"
        for epoch in range(config.epochs):
            order = rng.permutation(len(paths))
            order = order[np.argsort(paths.rules[order], kind="stable")]
            cuts = np.flatnonzero(np.diff(paths.rules[order])) + 1
            parts = [rows for own in np.split(order, cuts) for rows in chunks(own, config.batch)]
            batches, total = [parts[k] for k in rng.permutation(len(parts))], 0.0
            for rows, rate in paced(what, config, epoch, batches, progress):
                step.param_groups[0]["lr"] = rate
                loss = self._loss(paths.entities[rows], int(paths.rules[rows[0]]), rng)
                step.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                step.step()
                total += loss.item() * len(rows)
            means.append(total / max(1, len(paths)))
        progress(what, 1, 1)
        return means

    def _loss(self, entities: Ids, pattern: int, rng: np.random.Generator) -> Tensor:
        """The mean loss of paths of one pattern, given as entities [paths, hops + 1]."""
        rule, n = self.patterns_[pattern], NEGATIVES
        users = self._tensor[torch.from_numpy(entities[:, 0])]
        h, loss = users, torch.zeros(())
        for t, relation in enumerate(rule.relations, start=1):
            h = self.modules_(self._place[relation], users, h)
            span = self.graph_.vocabulary.span(rule.types[t])
            others = rng.integers(span.start, span.stop, size=n)
            true = self._tensor[torch.from_numpy(entities[:, t])]
            right = _SHARPNESS * (h * true).sum(1, keepdim=True)
            wrong = _SHARPNESS * h @ self._tensor[torch.from_numpy(others)].T
            same = torch.from_numpy(entities[:, t, None] == others)
            logits = torch.cat([right, wrong.masked_fill(same, -torch.inf)], 1)
            loss = loss + cross_entropy(logits, torch.zeros(len(h), dtype=torch.int64))
        against = wrong.gather(1, torch.from_numpy(rng.integers(n, size=(len(h), 1))))
        return loss - logsigmoid(right - against).mean()

    # ── coarse: which patterns suit a user ──────────────────────────────────────────────

    @torch.no_grad()
    def _answers(self, users: Ids) -> Floats:
        """h of every node of the layout tree for a block of users; [users, nodes, dimension]."""
        u = self._tensor[torch.from_numpy(users)]
        out = list[Tensor]()
        for node in self._tree:
            h = u if node.parent < 0 else out[node.parent]
            out.append(self.modules_(self._place[node.relation], u, h))
        answers: Floats = torch.stack(out, 1).numpy() * np.float32(_SHARPNESS)
        return answers

    def _ends(self) -> Ids:
        """The node of the layout tree that each pattern ends at."""
        ends = np.empty(len(self.patterns_), dtype=np.int64)
        for k, node in enumerate(self._tree):
            if node.pattern >= 0:
                ends[node.pattern] = k
        return ends

    def prominence(self, users: ArrayLike) -> Floats:
        """How much each pattern suits users: the mean log probability of their own items among a
        sample of all, at the pattern's end; [users, patterns]."""
        block = checked_ids(users, self.graph_.n_users, "user")
        return self._prominence(block, *self._at_ends(self._answers(block)))

    def _at_ends(self, answers: Floats) -> tuple[Floats, Floats]:
        """h at the end of each pattern, [users, patterns, dimension], and the logarithm of what
        all items of the sample come to there, [users, patterns]."""
        h = answers[:, self._ends()]
        items = self._vectors[self.graph_.n_users + self._sample]
        return h, np.log(np.exp(h @ items.T).sum(2))

    def _prominence(self, users: Ids, h: Floats, below: Floats) -> Floats:
        out = -below
        owners, own = history(self.graph_, users)  # by user
        cuts = np.searchsorted(owners, np.arange(1, len(users)))
        for k, items in enumerate(np.split(self._vectors[self.graph_.n_users + own], cuts)):
            if len(items):
                logits = h[k] @ items.T
                out[k] = (logits - np.logaddexp(logits, below[k, :, None])).mean(1)
        prominence: Floats = out.astype(np.float32)
        return prominence

    def quotas(self, prominence: Floats) -> Ids:
        """Paths of each user and pattern: the most prominent get as many as one may have, until
        all are given; [users, patterns]."""
        config = self.config
        order = np.argsort(-prominence, axis=1, kind="stable")
        left = np.maximum(config.paths - config.pattern_paths * np.arange(order.shape[1]), 0)
        out = np.zeros(order.shape, dtype=np.int64)
        share = np.minimum(left, config.pattern_paths)
        np.put_along_axis(out, order, np.broadcast_to(share, order.shape), 1)
        return out

    # ── fine: walks along the chosen patterns ───────────────────────────────────────────

    def walks(self, users: ArrayLike) -> Walks:
        """The paths that are found for a block of users."""
        block = checked_ids(users, self.graph_.n_users, "user")
        answers = self._answers(block)
        quotas = self.quotas(self._prominence(block, *self._at_ends(answers)))
        return self._walks(block, answers, quotas)

    def _walks(self, users: Ids, answers: Floats, quotas: Ids) -> Walks:
        hops = max(node.depth for node in self._tree)
        everyone = np.arange(len(users))
        begun = (everyone, users[:, None].astype(np.int32), np.zeros(len(users), np.float32))
        states, found = {-1: begun}, [_no_walks(hops)]
        for k, node in enumerate(self._tree):
            wanted = quotas[:, list(node.below)].sum(1) > 0
            owners, entities, logs = (
                x[wanted[states[node.parent][0]]] for x in states[node.parent]
            )
            relations = np.full(len(owners), node.relation)
            queries = np.ascontiguousarray(answers[owners, k])
            tails, more = best_tails(
                self._layout, entities, relations, queries, self._vectors, self.config.beam
            )
            rows, columns = np.nonzero(tails >= 0)
            reached = np.hstack([entities[rows], tails[rows, columns][:, None]])
            sums = logs[rows] + more[rows, columns]
            most = np.full(len(users), self.config.beam)
            best = _best_of(owners[rows], sums, most)
            states[k] = (owners[rows][best], reached[best], sums[best])
            if node.pattern >= 0:
                kept = _best_of(owners[rows], sums, quotas[:, node.pattern])
                found.append(self._ended(node, owners[rows][kept], reached[kept], sums[kept], hops))
        return Walks(*map(np.concatenate, zip(*found, strict=True)))

    def _ended(
        self, node: _Node, owners: Ids, entities: NDArray[np.int32], sums: Floats, hops: int
    ) -> Walks:
        """Paths of one pattern, filled up to the longest."""
        padding = np.full((len(owners), hops - node.depth), -1, dtype=np.int32)
        ends = entities[:, -1].astype(np.int64) - self.graph_.n_users
        patterns = np.full(len(owners), node.pattern)
        means = sums / np.float32(node.depth)
        return Walks(owners, np.hstack([entities, padding]), patterns, means, ends)

    # ── recommending ────────────────────────────────────────────────────────────────────

    def score(self, users: ArrayLike) -> Floats:
        """log P of the items that paths reach, -inf for all others; [users, items]."""
        return self._scored(checked_ids(users, self.graph_.n_users, "user"))[0]

    def _scored(self, block: Ids) -> tuple[Floats, Walks]:
        answers = self._answers(block)
        h, below = self._at_ends(answers)
        walks = self._walks(block, answers, self.quotas(self._prominence(block, h, below)))
        end = self._vectors[self.graph_.n_users + walks.ends]
        worth = (h[walks.owners, walks.patterns] * end).sum(1) - below[walks.owners, walks.patterns]
        out = np.full((len(block), self.graph_.n_items), -np.inf, dtype=np.float32)
        np.maximum.at(out, (walks.owners, walks.ends), worth.astype(np.float32))
        return out, walks

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The k best items with their most probable paths; see ``Explains``."""
        block = checked_ids(users, self.graph_.n_users, "user")
        scores, walks = self._scored(block)
        scores[history(self.graph_, block)] = -np.inf
        out = list[list[ExplainedItem]]()
        for row in range(len(block)):
            mine = np.flatnonzero(walks.owners == row)
            best = np.argsort(-scores[row], kind="stable")[:k]
            out.append(
                [
                    with_best_paths(v, scores[row, v], self._paths(walks, own), paths)
                    for v in best[np.isfinite(scores[row, best])]
                    for own in [mine[walks.ends[mine] == v]]
                ]
            )
        return out

    def _paths(self, walks: Walks, which: Ids) -> Iterator[tuple[Path, float]]:
        """Some of the walks as paths, with their probabilities."""
        for w in which:
            relations = self.patterns_[int(walks.patterns[w])].relations
            entities = walks.entities[w, : len(relations) + 1]
            yield Path(tuple(map(int, entities)), relations), float(np.exp(walks.logs[w]))


def _layout_tree(patterns: RuleSet) -> list[_Node]:
    """The patterns merged by what they begin with, parents before children."""
    keys = sorted(
        {rule.relations[:n] for rule in patterns for n in range(1, len(rule) + 1)}, key=len
    )
    place = {key: k for k, key in enumerate(keys)}
    whole = {rule.relations: k for k, rule in enumerate(patterns)}
    return [
        _Node(
            place.get(key[:-1], -1),
            key[-1],
            len(key),
            whole.get(key, -1),
            tuple(k for relations, k in whole.items() if relations[: len(key)] == key),
        )
        for key in keys
    ]


def _no_walks(hops: int) -> Walks:
    nobody = np.empty(0, dtype=np.int64)
    entities = np.empty((0, hops + 1), dtype=np.int32)
    return Walks(nobody, entities, nobody, np.empty(0, dtype=np.float32), nobody)


def _best_of(owners: Ids, sums: Floats, most: Ids) -> Ids:
    """Places of each owner's best rows, at most ``most`` of each, by owner and best first."""
    order = np.lexsort((-sums, owners))
    rank = np.arange(len(order)) - np.searchsorted(owners[order], owners[order])
    return order[rank < most[owners[order]]]
