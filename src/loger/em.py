"""EM (METHOD 5): the encoder proposes hidden pairs, the rules judge them, and each learns::

    fit the encoder on G
    repeat:  M-step   weights of the rules from observed and hidden pairs
             E-step   H⁺: the hidden pairs that the rules believe in; train the encoder on G ∪ H⁺
    last M-step

The paper's M-step maximises a pseudo-likelihood over O ∪ H (``likelihood="pseudo"``). The default
maximises the likelihood of held-out interactions, each among its user's best candidates
(``"listwise"``): ranking is what the weights are for, and neither the graph nor the encoder knows
those interactions, so what a rule is worth to them is what it is worth to new ones. Rounds stop
when they no longer help other held-out users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from loger.encoder.calibration import Calibration, fit_calibration
from loger.encoder.folding import score_users
from loger.encoder.protocol import Encoder
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.threads import one_thread
from loger.errors import LogerError
from loger.evaluation.metrics import ranking
from loger.evaluation.metrics.significance import resampled_means
from loger.graph import KnowledgeGraph, history
from loger.grounding import Walk
from loger.logic import (
    Feature,
    Floats,
    Logic,
    additive,
    ascend,
    features,
    listwise,
    log_popularity,
    maximise,
    pseudo_likelihood,
    typical_strengths,
    uses_strength,
)
from loger.mstep import Pool, gather
from loger.rules import RuleSet
from loger.topk import top_k
from loger.training.loop import HiddenPairs

WALK = Walk(first=0.0, item=0.25, user=0.5, fact=0.5, arrive=0.5)
"""Exponents that validation chose on the Amazon sets (docs/results.md)."""
Fusion = Literal["logit", "sum", "logic"]
Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
BLOCK = 64
"""Users that are grounded or scored at a time."""
DEPTH = 10
"""Length of the lists by which rounds and settings are compared."""


@dataclass(frozen=True, slots=True)
class EMConfig:
    """Settings of the logic model and of EM; the defaults are those that validation chose."""

    feature: Feature = "logwalk"
    walk: Walk = WALK
    """How a path's strength falls with degrees and, where times are known, age."""
    popularity: bool = True
    """Whether the item's popularity is a second unit clause."""
    likelihood: Literal["listwise", "pseudo"] = "listwise"
    fusion: Fusion = "logit"
    """S = logit p + w_enc·s (``logit``), q + α·p as in the paper (``sum``), or p alone."""
    alpha: float = 0.3
    """α of the paper."""
    l2: float = 1e-3
    rounds: int = 1
    """The most rounds of EM; the paper has 4, 2 and 3."""
    early_stop: bool = True
    """Whether a round that does not raise both the bound and the judges' NDCG is taken back, and
    is the last."""
    hidden: int = 50
    """Size of H per user: so many items of highest q, and as many uniform ones."""
    max_hidden: int = 10
    """The most pairs of a user in H⁺."""
    tau: float = 0.9
    """τ: a hidden pair with p ≥ τ is selected; 0.5 in the paper."""
    rate: float = 1e-5
    steps: int = 0
    """Steps of gradient ascent at that rate, as published; 0 solves to the optimum."""
    fit_users: int = 6000
    """Users whose held-out interactions the listwise likelihood is of …"""
    dev_users: int = 4000
    """… and others on whom rounds and settings are judged."""
    screen_users: int = 1500
    """Users on whom all rules are tried; those of no weight are not looked at again."""
    rule_candidates: int = 40
    """Each rule's best items are candidates in the listwise likelihood, …"""
    main_candidates: int = 100
    """… and so many of the encoder and of rules over other users."""
    seed: int = 0

    @property
    def active_walk(self) -> Walk | None:
        """The walk, if the feature needs it."""
        return self.walk if uses_strength(self.feature) else None


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of EM came to."""

    number: int
    bound_before: float
    bound: float
    """The objective of the M-step, with the weights it began and ended with."""
    hidden: int
    """How many pairs the encoder proposed."""
    selected: int
    """Size of H⁺ of the E-step before."""
    ndcg: float
    recall: float
    """On the held-out users that judge; NaN if there are none."""

    def improves_on(self, other: Round) -> bool:
        """Whether both the bound and what the judges see are higher than in another round."""
        return self.bound > other.bound and self.ndcg > other.ndcg


@dataclass(frozen=True, eq=False)
class FittedLogic:
    """The logic model, how it stands beside the encoder, and how it came about."""

    logic: Logic
    encoder_weight: float
    """w_enc, the weight of the encoder's score in logits."""
    calibration: Calibration
    """q = σ(a·s + b)."""
    trace: tuple[Round, ...] = ()

    def without_idle_rules(self) -> FittedLogic:
        """The same model less the rules of weight 0, of which one stays if all are."""
        logic = self.logic
        kept = np.flatnonzero(logic.weights)
        kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
        scales = None if logic.scales is None else logic.scales[kept]
        fewer = replace(
            logic, rules=logic.rules.chosen(kept), weights=logic.weights[kept], scales=scales
        )
        return replace(self, logic=fewer)

    def scores(
        self,
        config: EMConfig,
        encoder: Encoder,
        graph: KnowledgeGraph,
        users: NDArray[np.int64],
        logic_graph: KnowledgeGraph | None = None,
        *,
        observed: bool = True,
        s: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """S of all items for a block of users (METHOD 6); [users, items]. Without ``observed``
        the scores of the users' own items say nothing. ``s`` is what the encoder says of them,
        where that is known already."""
        told = self.logic.logits(logic_graph or graph, users, observed=observed)
        if config.fusion == "logic":
            return told
        if s is None:
            s = score_users(encoder, graph, users, config.walk.recency)
        return fuse(config, told, s, self.encoder_weight, self.calibration)


def fuse(
    config: EMConfig,
    logit: NDArray[np.floating],
    s: NDArray[np.floating],
    encoder_weight: float,
    calibration: Calibration,
) -> NDArray[np.float32]:
    """S of logits of p and scores of the encoder."""
    if config.fusion == "sum":
        p = 1 / (1 + np.exp(-logit.astype(np.float64)))
        return (calibration(s) + config.alpha * p).astype(np.float32)
    out: NDArray[np.float32] = logit + np.float32(encoder_weight) * s
    return out


class EM:
    """One problem: a graph, an encoder fitted on it, rules, and interactions it does not know."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        encoder: Encoder,
        rules: RuleSet,
        held_out: Pairs,
        config: EMConfig,
        *,
        logic_graph: KnowledgeGraph | None = None,
        engine: Engine | None = None,
        progress: Progress = silent,
    ) -> None:
        if not len(rules):
            raise LogerError("there are no rules to learn weights of")
        self.graph, self.encoder, self.rules, self.config = graph, encoder, rules, config
        self.logic_graph = logic_graph or graph
        self.engine, self.progress = engine or LocalEngine(progress=progress), progress
        users, items = held_out
        shape = (graph.n_users, graph.n_items)
        ones = np.ones(len(users), dtype=np.int8)
        self.held_out = csr_array((ones, (users, items)), shape=shape)
        order = np.random.default_rng([config.seed, 0xE3]).permutation(
            np.unique(users).astype(np.int64)
        )
        cut = min(config.fit_users, int(np.ceil(0.6 * len(order))))
        self.fit_users = np.sort(order[:cut])
        self.dev_users = np.sort(order[cut : cut + config.dev_users])
        self.everyone = np.sort(order[: config.fit_users])

    # ── the loop ────────────────────────────────────────────────────────────────────────

    def run(self, first: FittedLogic | None = None) -> FittedLogic:
        """Alternate M- and E-steps; the model of the best round by held-out users.

        ``first`` is what ``start`` gave, if that has been done.
        """
        config = self.config
        learned = first or self.start()
        trace = list(learned.trace)
        for number in range(1, config.rounds + 1):
            previous, state = learned, self.encoder.state()
            selected, n_hidden = self.select_hidden(learned)
            if not len(selected.users):
                break  # nothing new to train on
            self.e_step(selected)
            learned, before, after = self.m_step(previous)
            sizes = (n_hidden, len(selected.users))
            trace.append(self._round(number, learned, before, after, sizes))
            self.progress("rounds of EM", number, config.rounds)
            if config.early_stop and not trace[-1].improves_on(trace[-2]):
                self.encoder.load_state(self.graph, state)
                learned = previous
                break
        return replace(learned, trace=tuple(trace))

    def start(self) -> FittedLogic:
        """The first M-step, with the encoder as it was fitted on G alone: round 0."""
        learned, before, after = self.m_step(None)
        return replace(learned, trace=(self._round(0, learned, before, after, (0, 0)),))

    def e_step(self, hidden: HiddenPairs) -> None:
        """Train the encoder on G ∪ H⁺, from where it stands."""
        self.encoder.fit(self.graph, hidden=hidden, warm=True, progress=self.progress)

    def m_step(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        """The best weights for what is observed and what the encoder believes; the objective
        before and after."""
        if self.config.likelihood == "pseudo":
            return self._m_step_pseudo(start)
        return self._m_step_listwise(start)

    # ── M-step by the likelihood of held-out items among candidates ─────────────────────

    def _m_step_listwise(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        if start is None:
            rules = self.rules
            if len(self.fit_users) > self.config.screen_users:
                few = self.fit_users[:: max(1, len(self.fit_users) // self.config.screen_users)]
                tried = self._fitted(rules, self.pool(rules, few), None)[0]
                rules = tried.without_idle_rules().logic.rules
        else:
            rules = start.logic.rules
        learned, before, after = self._fitted(rules, self.pool(rules, self.fit_users), start)
        return self._calibrated(learned.without_idle_rules()), before, after

    def final(self, learned: FittedLogic) -> FittedLogic:
        """The weights once more from all held-out users, when nothing is left to choose."""
        if self.config.likelihood == "pseudo" or np.array_equal(self.everyone, self.fit_users):
            return learned
        pool = self.pool(learned.logic.rules, self.everyone)
        again = self._fitted(learned.logic.rules, pool, learned)[0]
        return replace(self._calibrated(again.without_idle_rules()), trace=learned.trace)

    def _fitted(
        self, rules: RuleSet, pool: Pool, start: FittedLogic | None
    ) -> tuple[FittedLogic, float, float]:
        """The weights of rules, popularity and encoder that make the hits most likely."""
        config = self.config
        if not len(pool.hits):
            raise LogerError(
                "no held-out interaction is among the candidates, so nothing can be learned "
                "from them; is the graph connected to the items of validation?"
            )
        scales = typical_strengths(pool.found) if uses_strength(config.feature) else None
        if start is not None:
            scales = start.logic.scales
        phi = features(pool.found, config.feature, scales)
        unit = log_popularity(self.graph)[pool.found.items] * config.popularity
        beside = pool.encoder * (config.fusion != "logic")
        columns = hstack([phi, csr_array(np.stack([unit, beside], axis=1))], format="csr")
        width = len(rules)
        first = np.zeros(width + 2)
        if start is not None:
            first[:] = [*start.logic.weights, start.logic.popularity, start.encoder_weight]

        def objective(w: Floats) -> tuple[float, Floats]:
            return listwise(w, columns, pool.starts, pool.hits, config.l2)

        positive = np.ones(width + 2, dtype=bool)
        positive[width] = False  # what is popular may count against
        w = maximise(objective, first, positive)
        logic = Logic(
            rules, w[:width], config.feature, config.active_walk, scales, popularity=float(w[width])
        )
        learned = FittedLogic(logic, float(w[width + 1]), Calibration())
        return learned, objective(first)[0], objective(w)[0]

    def pool(self, rules: RuleSet, users: NDArray[np.int64]) -> Pool:
        """The candidates of users, with the present encoder; see ``pools.gather``."""
        config = self.config
        return gather(
            self.logic_graph,
            rules,
            users,
            self.held_out,
            partial(score_users, self.encoder, self.graph, recency=config.walk.recency),
            walk=config.active_walk,
            per_rule=config.rule_candidates,
            main=config.main_candidates,
            engine=self.engine,
        )

    def _calibrated(self, learned: FittedLogic) -> FittedLogic:
        """The model with weights scaled, and a prior, so that p and q are probabilities.

        That is, of held-out pairs against as many uniform unobserved ones.
        """
        users, items = self._sample_of_held_out()
        others = self._uniform(users, 1, 0xCA1)[1]
        labels = np.repeat([True, False], [len(users), len(others[others >= 0])])
        u = np.concatenate([users, users[others >= 0]])
        v = np.concatenate([items, others[others >= 0]])
        found = learned.logic.ground(self.logic_graph, u, v, self.engine)
        s = self._encoder_scores(u, v)
        q = fit_calibration(s, labels)
        if not additive(self.config.feature) or self.config.likelihood == "pseudo":
            return replace(learned, calibration=q)
        p = fit_calibration(learned.logic.pair_logits(self.logic_graph, found), labels)
        scale = p.slope if p.slope > 0 else 1.0
        logic = replace(
            learned.logic,
            weights=learned.logic.weights * scale,
            popularity=learned.logic.popularity * scale,
            prior=p.intercept,
        )
        return FittedLogic(logic, learned.encoder_weight * scale, q, learned.trace)

    def _sample_of_held_out(self) -> Pairs:
        """Held-out pairs of the fitting users."""
        part = self.held_out[self.fit_users]
        users = np.repeat(self.fit_users, np.diff(part.indptr))
        return users.astype(np.int32), part.indices.astype(np.int32)

    def _encoder_scores(self, users: NDArray[np.integer], items: NDArray[np.integer]) -> Floats:
        """The encoder's scores of pairs."""
        out = np.empty(len(users))
        distinct, place = np.unique(users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(distinct) + 1))
        with one_thread():
            for lo in range(0, len(distinct), BLOCK):
                hi = min(lo + BLOCK, len(distinct))
                s = score_users(self.encoder, self.graph, distinct[lo:hi], self.config.walk.recency)
                rows = order[ends[lo] : ends[hi]]
                out[rows] = s[place[rows] - lo, items[rows]]
        return out

    # ── M-step as in the paper ──────────────────────────────────────────────────────────

    def _m_step_pseudo(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        """Σ_O log p + Σ_H [q log p + (1 − q) log(1 − p)] − ½λ‖w‖², by w."""
        config = self.config
        draft = start or self._calibrated(self._blank())
        heads, relations, tails = self.graph.triples()
        own = relations == 0
        users, items = heads[own], tails[own] - self.graph.n_users
        hidden_users, hidden_items, q = self.hidden(draft.calibration)
        u, v = np.concatenate([users, hidden_users]), np.concatenate([items, hidden_items])
        targets = np.concatenate([np.ones(len(users)), q])
        found = draft.logic.ground(self.logic_graph, u, v, self.engine)
        scales = draft.logic.scales
        if uses_strength(config.feature) and start is None:
            scales = typical_strengths(found)
        phi = features(found, config.feature, scales)
        prior = additive(config.feature)
        first = draft.logic.weights.astype(np.float64)
        first = np.append(first, draft.logic.prior) if prior else first

        def objective(w: Floats) -> tuple[float, Floats]:
            return pseudo_likelihood(w, phi, targets, config.l2, prior)

        if config.steps:
            w = ascend(objective, first, config.rate, config.steps)
        else:
            w = maximise(objective, first)
        logic = Logic(
            self.rules,
            w[: len(self.rules)],
            config.feature,
            config.active_walk,
            scales,
            prior=float(w[-1]) if prior else 0.0,
        )
        entropy = -_sum_x_log_x(q) - _sum_x_log_x(1 - q)
        learned = self._calibrated(FittedLogic(logic, draft.calibration.slope, draft.calibration))
        learned = replace(learned, encoder_weight=learned.calibration.slope)
        return learned, objective(first)[0] + entropy, objective(w)[0] + entropy

    def _blank(self) -> FittedLogic:
        """No weights yet."""
        scales = np.ones(len(self.rules)) if uses_strength(self.config.feature) else None
        logic = Logic(
            self.rules,
            np.zeros(len(self.rules)),
            self.config.feature,
            self.config.active_walk,
            scales,
        )
        return FittedLogic(logic, 1.0, Calibration())

    # ── E-step ──────────────────────────────────────────────────────────────────────────

    def proposed(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """The items of highest q of each user, none observed, best first, and their scores."""
        everyone = np.arange(self.graph.n_users)
        blocks = [everyone[k : k + BLOCK] for k in range(0, len(everyone), BLOCK)]
        shared = self.encoder, self.graph, self.config
        lists = list(self.engine.map("looking for hidden pairs", _propose, blocks, shared))
        items = np.concatenate([i.ravel() for i, _ in lists])
        scores = np.concatenate([s.ravel() for _, s in lists]).astype(np.float64)
        users = np.repeat(everyone, self.config.hidden).astype(np.int32)
        there = items >= 0
        return users[there], items[there], scores[there]

    def hidden(self, q: Calibration) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """H of the paper's M-step: what the encoder proposes and as many uniform pairs, with q."""
        users, items, scores = self.proposed()
        u, v = self._uniform(np.arange(self.graph.n_users), self.config.hidden, 0x417)
        u, v = u[v >= 0], v[v >= 0]
        q_of = q(np.concatenate([scores, self._encoder_scores(u, v)]))
        return np.concatenate([users, u]), np.concatenate([items, v]), q_of

    def _uniform(
        self, users: NDArray[np.integer], n: int, stream: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """For each user n items drawn uniformly; -1 where the user has it in the graph."""
        rng = np.random.default_rng([self.config.seed, stream])
        owners = np.repeat(users, n).astype(np.int64)
        items = rng.integers(self.graph.n_items, size=len(owners))
        edges, heads = self.graph.interactions
        have = heads.astype(np.int64) * self.graph.n_items
        have = have + self.graph.tails[edges] - self.graph.n_users  # ascending
        keys = owners * self.graph.n_items + items
        at = np.minimum(np.searchsorted(have, keys), max(len(have) - 1, 0))
        items[have[at] == keys] = -1
        return owners.astype(np.int32), items.astype(np.int32)

    def select_hidden(
        self, learned: FittedLogic, most: int | None = None
    ) -> tuple[HiddenPairs, int]:
        """H⁺ = {i ∈ H : a rule fires, p_i ≥ τ}, weighted by p, and how many were proposed.

        Of each user ``most`` pairs at most, by default as many as configured.
        """
        config = self.config
        users, items, _ = self.proposed()
        n_hidden = len(users)
        most = config.max_hidden if most is None else most
        kept = np.arange(len(users)) - np.searchsorted(users, users) < most
        users, items = users[kept], items[kept]
        found = learned.logic.ground(self.logic_graph, users, items, self.engine)
        p = 1 / (1 + np.exp(-learned.logic.pair_logits(self.logic_graph, found)))
        good = (np.diff(found.indptr) > 0) & (p >= config.tau)
        weights = p[good].astype(np.float32)
        real = len(self.graph.interactions[0])
        weights *= np.float32(min(1.0, real / max(float(weights.sum()), 1e-9)))
        return HiddenPairs(users[good], items[good], weights), n_hidden

    def ablate_hidden(self, sizes: Sequence[int]) -> list[dict[str, float]]:
        """What one round comes to that believes at most so many pairs of each user, by size.

        |H⁺| of a user (``selected``), how many pairs it is in all, and NDCG on the users that judge
        with a 95 % interval: the paper's ablation. The encoder stands afterwards as before.
        """
        if not len(self.dev_users):
            raise LogerError("too few users have held-out interactions to judge by")
        first, state, out = self.m_step(None)[0], self.encoder.state(), list[dict[str, float]]()
        for size in sizes:
            learned, pairs = first, 0
            if size:
                selected, _ = self.select_hidden(first, size)
                self.e_step(selected)
                learned, pairs = self.m_step(first)[0], len(selected.users)
            ndcg, _ = self.dev_metrics(learned)
            low, high = np.quantile(resampled_means(ndcg[:, None], 1000, 0), [0.025, 0.975])
            interval = {"low": float(low), "high": float(high)}
            out.append({"selected": size, "pairs": pairs, "ndcg": float(ndcg.mean()), **interval})
            self.encoder.load_state(self.graph, state)
        return out

    # ── judging ─────────────────────────────────────────────────────────────────────────

    def _round(
        self, number: int, learned: FittedLogic, before: float, after: float, sizes: tuple[int, int]
    ) -> Round:
        ndcg, recall = self.dev_metrics(learned)
        nothing = float("nan")
        means = (ndcg.mean(), recall.mean()) if len(ndcg) else (nothing, nothing)
        return Round(number, before, after, *sizes, *map(float, means))

    def dev_metrics(self, learned: FittedLogic) -> tuple[Floats, Floats]:
        """NDCG and Recall of each of the held-out users that judge, ranking all items."""
        part = self.held_out[self.dev_users]
        n = np.diff(part.indptr)
        places = np.repeat(np.arange(len(self.dev_users)), n)
        lists = np.concatenate([np.empty((0, DEPTH), dtype=np.int32), *self._lists(learned)])
        hits = ranking.hits(lists, places, part.indices)
        return ranking.ndcg(hits, n), ranking.recall(hits, n)

    def _lists(self, learned: FittedLogic) -> Iterator[NDArray[np.int32]]:
        users = self.dev_users.astype(np.int64)
        blocks = [users[k : k + BLOCK] for k in range(0, len(users), BLOCK)]
        shared = learned, self.config, self.encoder, self.graph, self.logic_graph
        yield from self.engine.map("judging", _dev_lists, blocks, shared)


def _propose(
    shared: tuple[Encoder, KnowledgeGraph, EMConfig], own: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The items of highest q of a block of users, and their scores."""
    encoder, graph, config = shared
    s = score_users(encoder, graph, own, config.walk.recency)
    return top_k(s, config.hidden, history(graph, own))


def _dev_lists(
    shared: tuple[FittedLogic, EMConfig, Encoder, KnowledgeGraph, KnowledgeGraph],
    own: NDArray[np.int64],
) -> NDArray[np.int32]:
    """The lists of a block of users."""
    learned, config, encoder, graph, logic_graph = shared
    scores = learned.scores(config, encoder, graph, own, logic_graph, observed=False)
    return top_k(np.array(scores), DEPTH, history(graph, own))[0]


def kept_rounds(trace: tuple[Round, ...], early_stop: bool) -> int:
    """How many rounds of a trace the model is of."""
    taken_back = early_stop and len(trace) > 1 and not trace[-1].improves_on(trace[-2])
    return len(trace) - 1 - taken_back


def _sum_x_log_x(x: Floats) -> float:
    return float(np.sum(x * np.log(np.maximum(x, 1e-300))))
