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

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loger.encoder.calibration import fit_calibration
from loger.encoder.protocol import Encoder
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError
from loger.estep import propose_hidden, select_hidden
from loger.evaluation.metrics import ranking
from loger.evaluation.metrics.significance import resampled_means
from loger.graph import Graph, KnowledgeGraph
from loger.grounding import Walk
from loger.logic import Feature, Floats, Logic, additive, log_popularity, uses_strength
from loger.mstep import (
    Pool,
    PoolConfig,
    blank_logic,
    gather,
    pair_scores,
    solve_listwise,
    solve_pseudo,
    uniform_items,
)
from loger.ranker import Fusion, FusionKind, Ranker
from loger.rules import RuleSet
from loger.training.loop import HiddenPairs

WALK = Walk(first=0.0, item=0.25, user=0.5, fact=0.5, arrive=0.5)
"""Exponents that validation chose on the Amazon sets (docs/results.md)."""
Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
DEPTH = 10
"""Length of the lists by which rounds and settings are compared."""
OPACITY_STEPS, OPACITY_USERS = 6, 500
"""Halvings by which the encoder's weight is lowered, and users on whom opacity is measured."""


@dataclass(frozen=True, slots=True)
class EMConfig:
    """Settings of the logic model and of EM; the defaults are those that validation chose."""

    feature: Feature = "logwalk"
    walk: Walk = WALK
    """How a path's strength falls with degrees and, where times are known, age."""
    popularity: bool = True
    """Whether the item's popularity is a second unit clause."""
    likelihood: Literal["listwise", "pseudo"] = "listwise"
    fusion: FusionKind = "logit"
    """S = logit p + w_enc·s (``logit``), q + α·p as in the paper (``sum``), or p alone."""
    alpha: float = 0.3
    """α of the paper."""
    opacity: float = 1.0
    """The most of an item's lead that the encoder may carry, on average over the lists of
    development users; 0 is the purely logical model (``listwise`` and ``logit`` only)."""
    l2: float = 1e-3
    rounds: int = 1
    """The most rounds of EM; the paper has 4, 2 and 3."""
    early_stop: bool = True
    """Whether a round that does not raise both the bound and NDCG on the development users is
    taken back, and is the last."""
    hidden: int = 50
    """Size of H per user: so many items of highest q, and as many uniform ones."""
    max_hidden: int = 10
    """The most pairs of a user in H⁺."""
    tau: float = 0.9
    """τ: a hidden pair with p ≥ τ is selected into H⁺; 0.5 in the paper."""
    rate: float = 1e-5
    steps: int = 0
    """Steps of gradient ascent at that rate, as published; 0 solves to the optimum."""
    fit_users: int = 6000
    """Users whose held-out interactions the listwise likelihood is of …"""
    dev_users: int = 4000
    """… and others on whom rounds and settings are compared."""
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

    @property
    def pools(self) -> PoolConfig:
        """How candidates are gathered."""
        return PoolConfig(self.active_walk, self.rule_candidates, self.main_candidates)


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
    """On the development users; NaN if there are none."""

    def improves_on(self, other: Round) -> bool:
        """Whether both the bound and NDCG are higher than in another round."""
        return self.bound > other.bound and self.ndcg > other.ndcg


@dataclass(frozen=True, eq=False)
class FittedLogic:
    """The logic model, how it stands beside the encoder, and how it came about."""

    logic: Logic
    fusion: Fusion
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
        logic_graph: Graph | None = None,
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
        self.all_users = np.sort(order[: config.fit_users])

    def ranker(self, fitted: FittedLogic) -> Ranker:
        """What was fitted, on this problem's graph with its present encoder."""
        recency = self.config.walk.recency
        return Ranker(
            self.graph, self.logic_graph, self.encoder, fitted.logic, fitted.fusion, recency
        )

    # ── the loop ────────────────────────────────────────────────────────────────────────

    def run(self, first: FittedLogic | None = None) -> FittedLogic:
        """Alternate M- and E-steps; the model of the best round by development users.

        ``first`` is what ``start`` gave, if that has been done.
        """
        config = self.config
        fitted = first or self.start()
        trace = list(fitted.trace)
        for number in range(1, config.rounds + 1):
            previous, state = fitted, self.encoder.state()
            selected, n_hidden = self.select_hidden(fitted)
            if not len(selected.users):
                break  # nothing new to train on
            self.e_step(selected)
            fitted, before, after = self.m_step(previous)
            sizes = (n_hidden, len(selected.users))
            trace.append(self._round(number, fitted, before, after, sizes))
            self.progress("rounds of EM", number, config.rounds)
            if config.early_stop and not trace[-1].improves_on(trace[-2]):
                self.encoder.load_state(self.graph, state)
                fitted = previous
                break
        return replace(fitted, trace=tuple(trace))

    def start(self) -> FittedLogic:
        """The first M-step, with the encoder as it was fitted on G alone: round 0."""
        fitted, before, after = self.m_step(None)
        return replace(fitted, trace=(self._round(0, fitted, before, after, (0, 0)),))

    def e_step(self, hidden: HiddenPairs) -> None:
        """Train the encoder on G ∪ H⁺, from where it stands."""
        self.encoder.fit(self.graph, hidden=hidden, warm=True, progress=self.progress)

    def m_step(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        """The best weights for what is observed and what the encoder believes; the objective
        before and after."""
        if self.config.likelihood == "pseudo":
            return self._m_step_pseudo(start)
        return self._m_step_listwise(start)

    def final(self, fitted: FittedLogic) -> FittedLogic:
        """The weights once more from all held-out users, when nothing is left to choose."""
        same = np.array_equal(self.all_users, self.fit_users)
        if self.config.likelihood == "pseudo" or same:
            return fitted
        rules = fitted.logic.rules
        again = self._listwise(rules, self.pool(rules, self.all_users), fitted)[0]
        return replace(self._calibrated(again.without_idle_rules()), trace=fitted.trace)

    # ── M-step by the likelihood of held-out items among candidates ─────────────────────

    def _m_step_listwise(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        rules = self._screened() if start is None else start.logic.rules
        pool = self.pool(rules, self.fit_users)
        fitted, before, after = self._listwise(rules, pool, start)
        return self._calibrated(fitted.without_idle_rules()), before, after

    def _screened(self) -> RuleSet:
        """The rules less those that get no weight on a few users."""
        if len(self.fit_users) <= self.config.screen_users:
            return self.rules
        few = self.fit_users[:: max(1, len(self.fit_users) // self.config.screen_users)]
        screened = self._solved(self.rules, self.pool(self.rules, few), None)[0]
        return screened.without_idle_rules().logic.rules

    def _listwise(
        self, rules: RuleSet, pool: Pool, start: FittedLogic | None
    ) -> tuple[FittedLogic, float, float]:
        """The weights of rules, popularity and encoder that are best for the hits of a pool, the
        encoder's lowered until it carries no more than ``opacity`` allows."""
        best = self._solved(rules, pool, start)
        limit = self.config.opacity
        if limit >= 1 or self.config.fusion != "logit" or self._opacity(best[0]) <= limit:
            return best
        low, high = 0.0, best[0].fusion.encoder_weight
        best = self._solved(rules, pool, start, low)
        for _ in range(OPACITY_STEPS if limit > 0 else 0):
            tried = self._solved(rules, pool, start, (low + high) / 2)
            if self._opacity(tried[0]) <= limit:
                best, low = tried, (low + high) / 2
            else:
                high = (low + high) / 2
        return best

    def _opacity(self, fitted: FittedLogic) -> float:
        """How much of the leads of some development users' lists the encoder carries."""
        some = self.dev_users if len(self.dev_users) else self.fit_users
        some = some[:: max(1, len(some) // OPACITY_USERS)]
        return self.ranker(fitted).opacity(some, DEPTH, self.engine)

    def opacity_curve(
        self, limits: Sequence[float] = (1.0, 0.5, 0.35, 0.2, 0.1, 0.0)
    ) -> list[dict[str, float]]:
        """What a limit on opacity costs: for each limit the opacity reached, NDCG on development
        users, and its difference from no limit with a 95 % interval, paired by user."""
        rules = self._screened()
        pool = self.pool(rules, self.fit_users)
        free = self.dev_metrics(self._solved(rules, pool, None)[0])[0]
        out = []
        for limit in limits:
            problem = copy(self)
            problem.config = replace(self.config, opacity=limit)
            fitted = problem._listwise(rules, pool, None)[0]
            ndcg = self.dev_metrics(fitted)[0]
            means = resampled_means((ndcg - free)[:, None], 1000, 0)
            low, high = np.quantile(means, [0.025, 0.975])
            out.append(
                {
                    "limit": float(limit),
                    "opacity": self._opacity(fitted),
                    "ndcg": float(ndcg.mean()),
                    "difference": float((ndcg - free).mean()),
                    "low": float(low),
                    "high": float(high),
                }
            )
        return out

    def _solved(
        self,
        rules: RuleSet,
        pool: Pool,
        start: FittedLogic | None,
        max_encoder: float | None = None,
    ) -> tuple[FittedLogic, float, float]:
        """The best weights for the hits of a pool."""
        config = self.config
        solved = solve_listwise(
            self._blank(rules).logic,
            pool,
            log_popularity(self.graph) if config.popularity else None,
            with_encoder=config.fusion != "logic",
            l2=config.l2,
            start=None if start is None else (start.logic, start.fusion.encoder_weight),
            max_encoder=max_encoder,
        )
        fusion = Fusion(config.fusion, solved.encoder_weight, alpha=config.alpha)
        return FittedLogic(solved.logic, fusion), solved.before, solved.after

    def pool(self, rules: RuleSet, users: NDArray[np.int64]) -> Pool:
        """The candidates of users, with the present encoder; see ``mstep.gather``."""
        ranker = self.ranker(self._blank(rules))
        return gather(ranker, users, self.held_out, self.config.pools, self.engine)

    def _blank(self, rules: RuleSet) -> FittedLogic:
        """No weights yet."""
        config = self.config
        logic = blank_logic(rules, config.feature, config.active_walk)
        return FittedLogic(logic, Fusion(config.fusion, alpha=config.alpha))

    # ── M-step as in the paper ──────────────────────────────────────────────────────────

    def _m_step_pseudo(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        """Σ_O log p + Σ_H [q log p + (1 − q) log(1 − p)] − ½λ‖w‖², by w."""
        config = self.config
        draft = start or self._calibrated(self._blank(self.rules))
        heads, relations, tails = self.graph.triples()
        observed = relations == 0
        users, items = heads[observed], tails[observed] - self.graph.n_users
        hidden_users, hidden_items, q = self.hidden_pairs(draft)
        u, v = np.concatenate([users, hidden_users]), np.concatenate([items, hidden_items])
        targets = np.concatenate([np.ones(len(users)), q])
        logic, before, after = solve_pseudo(
            draft.logic,
            draft.logic.ground(self.logic_graph, u, v, self.engine),
            targets,
            l2=config.l2,
            rate=config.rate,
            steps=config.steps,
            rescale=start is None,
        )
        entropy = -_sum_x_log_x(q) - _sum_x_log_x(1 - q)
        fitted = self._calibrated(FittedLogic(logic, draft.fusion))
        fusion = replace(fitted.fusion, encoder_weight=fitted.fusion.calibration.slope)
        return replace(fitted, fusion=fusion), before + entropy, after + entropy

    def hidden_pairs(
        self, fitted: FittedLogic
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """H of the paper's M-step: what the encoder proposes and as many uniform pairs, with q."""
        ranker = self.ranker(fitted)
        users, items, scores = propose_hidden(ranker, self.config.hidden, self.engine)
        u, v = self._uniform(np.arange(self.graph.n_users), self.config.hidden, 0x417)
        u, v = u[v >= 0], v[v >= 0]
        others = pair_scores(ranker, u, v, self.engine)
        q = fitted.fusion.calibration(np.concatenate([scores, others]))
        return np.concatenate([users, u]), np.concatenate([items, v]), q

    # ── probabilities ───────────────────────────────────────────────────────────────────

    def _calibrated(self, fitted: FittedLogic) -> FittedLogic:
        """The model with weights scaled, and a prior, so that p and q are probabilities.

        That is, of held-out pairs against as many uniform unobserved ones.
        """
        part = self.held_out[self.fit_users]
        users = np.repeat(self.fit_users, np.diff(part.indptr)).astype(np.int32)
        items = part.indices.astype(np.int32)
        others = self._uniform(users, 1, 0xCA1)[1]
        labels = np.repeat([True, False], [len(users), len(others[others >= 0])])
        u = np.concatenate([users, users[others >= 0]])
        v = np.concatenate([items, others[others >= 0]])
        groundings = fitted.logic.ground(self.logic_graph, u, v, self.engine)
        s = pair_scores(self.ranker(fitted), u, v, self.engine)
        fusion = replace(fitted.fusion, calibration=fit_calibration(s, labels))
        if not additive(self.config.feature) or self.config.likelihood == "pseudo":
            return replace(fitted, fusion=fusion)
        p = fit_calibration(fitted.logic.pair_logits(self.logic_graph, groundings), labels)
        scale = p.slope if p.slope > 0 else 1.0
        logic = replace(
            fitted.logic,
            weights=fitted.logic.weights * scale,
            popularity=fitted.logic.popularity * scale,
            prior=p.intercept,
        )
        fusion = replace(fusion, encoder_weight=fusion.encoder_weight * scale)
        return replace(fitted, logic=logic, fusion=fusion)

    def _uniform(
        self, users: NDArray[np.integer], n: int, stream: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        rng = np.random.default_rng([self.config.seed, stream])
        return uniform_items(self.graph, users, n, rng)

    # ── E-step ──────────────────────────────────────────────────────────────────────────

    def select_hidden(
        self, fitted: FittedLogic, max_hidden: int | None = None
    ) -> tuple[HiddenPairs, int]:
        """H⁺ by what is fitted so far, and how many pairs were proposed; see ``estep``."""
        config, most = self.config, self.config.max_hidden if max_hidden is None else max_hidden
        ranker = self.ranker(fitted)
        return select_hidden(ranker, config.hidden, most, config.tau, self.engine)

    def ablate_hidden(
        self, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)
    ) -> list[dict[str, float]]:
        """What one round comes to that selects at most so many hidden pairs of each user, by size.

        ``|H⁺|`` of a user (``selected``), how many pairs it is in all, and NDCG on the development
        users with a 95 % interval: the paper's ablation. The encoder stands afterwards as before.
        """
        if not len(self.dev_users):
            raise LogerError("too few users have held-out interactions to compare sizes by")
        first, state, out = self.m_step(None)[0], self.encoder.state(), list[dict[str, float]]()
        for size in sizes:
            fitted, pairs = first, 0
            if size:
                selected, _ = self.select_hidden(first, size)
                self.e_step(selected)
                fitted, pairs = self.m_step(first)[0], len(selected.users)
            ndcg, _ = self.dev_metrics(fitted)
            low, high = np.quantile(resampled_means(ndcg[:, None], 1000, 0), [0.025, 0.975])
            interval = {"low": float(low), "high": float(high)}
            out.append({"selected": size, "pairs": pairs, "ndcg": float(ndcg.mean()), **interval})
            self.encoder.load_state(self.graph, state)
        return out

    # ── comparing rounds and settings ───────────────────────────────────────────────────

    def _round(
        self, number: int, fitted: FittedLogic, before: float, after: float, sizes: tuple[int, int]
    ) -> Round:
        ndcg, recall = self.dev_metrics(fitted)
        nothing = float("nan")
        means = (ndcg.mean(), recall.mean()) if len(ndcg) else (nothing, nothing)
        return Round(number, before, after, *sizes, *map(float, means))

    def dev_metrics(self, fitted: FittedLogic) -> tuple[Floats, Floats]:
        """NDCG and Recall of each development user, ranking all items."""
        part = self.held_out[self.dev_users]
        n = np.diff(part.indptr)
        places = np.repeat(np.arange(len(self.dev_users)), n)
        lists, _ = self.ranker(fitted).top(self.dev_users, DEPTH, engine=self.engine)
        hits = ranking.hits(lists, places, part.indices)
        return ranking.ndcg(hits, n), ranking.recall(hits, n)


def kept_rounds(trace: tuple[Round, ...], early_stop: bool) -> int:
    """How many rounds of a trace the model is of."""
    taken_back = early_stop and len(trace) > 1 and not trace[-1].improves_on(trace[-2])
    return len(trace) - 1 - taken_back


def _sum_x_log_x(x: Floats) -> float:
    return float(np.sum(x * np.log(np.maximum(x, 1e-300))))
