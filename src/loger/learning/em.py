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

import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loger.encoder.calibration import Calibration, fit_calibration
from loger.encoder.folding import has_sums
from loger.encoder.protocol import AdditiveEncoder, Encoder
from loger.encoder.training.config import HiddenPairs
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph
from loger.grounding import Walk
from loger.learning.estep import best_by_encoder, propose_hidden, select_hidden, surplus
from loger.learning.fitted import FittedLogic, Round
from loger.learning.mstep import Asked, Listwise
from loger.learning.pools import Pool, gather
from loger.learning.pseudo import (
    Labelled,
    Pairs,
    calibrated,
    calibration_pairs,
    labelled,
    pseudo_m_step,
)
from loger.logic.config import EMConfig
from loger.logic.mln import Floats, blank_logic, log_popularity
from loger.metrics import ranking
from loger.metrics.report import resampled_means
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import RuleSet

log = logging.getLogger(__name__)
DEPTH = 10
"""Length of the lists by which rounds and settings are compared."""
TRIAL_USERS = 500
"""Users on whom it is decided whether a round of EM can help, and how likely pairs of H are."""
OPACITY_STEPS, OPACITY_USERS = 5, 300
"""Halvings by which the encoder's weight is lowered, and users on whom opacity is measured."""


OnceRound = Callable[[int, FittedLogic, Callable[[], FittedLogic | None]], FittedLogic | None]
"""The number of a round, what it begins from, and what computes it → the round."""


def _compute(
    number: int, previous: FittedLogic, compute: Callable[[], FittedLogic | None]
) -> FittedLogic | None:
    return compute()


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
        checkpoint: Path | None = None,
    ) -> None:
        if not len(rules):
            raise LogerError("there are no rules to learn weights of")
        self.graph, self.encoder, self.rules, self.config = graph, encoder, rules, config
        self.logic_graph, self.checkpoint = logic_graph or graph, checkpoint
        self.engine, self.progress = engine or LocalEngine(progress=progress), progress
        users, items = held_out
        shape = (graph.n_users, graph.n_items)
        ones = np.ones(len(users), dtype=np.int8)
        self.held_out = csr_array((ones, (users, items)), shape=shape)
        order = np.random.default_rng([config.seed, 0xE3]).permutation(
            np.unique(users).astype(np.int64)
        )
        few = len(order) < config.many_labels
        self.few = few and config.likelihood == "listwise" and not config.rounds
        share = 1.0 if self.few else 0.6
        cut = min(config.fit_users, int(np.ceil(share * len(order))))
        enough = self._enough(order, config.fit_pairs)
        self.fit_users = np.sort(order[: min(cut, enough)])
        self.dev_users = np.sort(order[cut : cut + config.dev_users])
        self.all_users = np.sort(order[: min(config.fit_users, enough)])
        self._candidates: Pool | None = None
        self._before: EM | None = None
        self._unlimited: tuple[Pool, tuple[FittedLogic, float, float]] | None = None

    def _enough(self, users: NDArray[np.int64], pairs: int) -> int:
        """How many of the users, the first, have so many held-out interactions."""
        held = np.cumsum(np.diff(self.held_out.indptr)[users])
        return 1 + int(np.searchsorted(held, pairs))

    def with_walk(self, walk: Walk) -> EM:
        """The same problem with another walk, on the same candidates."""
        other = copy(self)
        other.config, other._candidates, other._before = replace(self.config, walk=walk), None, self
        other._unlimited = None
        return other

    def with_opacity(self, limit: float) -> EM:
        """The same problem with a limit on what the encoder carries, and the candidates."""
        other = copy(self)
        other.config = replace(self.config, opacity=limit)
        return other

    @property
    def walks(self) -> tuple[Walk, ...]:
        """The walk, after those by which its candidates were gathered and then weighed."""
        return (*(self._before.walks if self._before else ()), self.config.walk)

    def ranker(self, fitted: FittedLogic) -> Ranker:
        """What was fitted, on this problem's graph with its present encoder."""
        walk = self.config.walk
        return Ranker(self.graph, self.logic_graph, self.encoder, fitted.logic, fitted.fusion, walk)

    # ── the loop ────────────────────────────────────────────────────────────────────────

    def run(self, first: FittedLogic | None = None, once: OnceRound = _compute) -> FittedLogic:
        """Alternate M- and E-steps; the model of the best round by development users.

        ``first`` is what ``start`` gave, if that has been done. ``once`` gives a round that was
        done before, or computes it.
        """
        config = self.config
        fitted = first or self.start()
        trace = list(fitted.trace)
        if config.rounds and config.likelihood == "listwise":
            self.gather_candidates()  # by the encoder as it stands, also where ``first`` is given
        for number in range(1, config.rounds + 1):
            if config.early_stop and not self._promising(fitted):
                break
            previous, state = fitted, self.encoder.state()
            following = once(number, previous, partial(self.round, number, previous))
            if following is None:
                break  # nothing new to train on
            fitted = following
            trace.append(fitted.trace[-1])
            self.progress("rounds of EM", number, config.rounds)
            if config.early_stop and not trace[-1].improves_on(trace[-2]):
                self.encoder.load_state(self.graph.given, state)
                fitted = previous
                break
        return replace(fitted, trace=tuple(trace))

    def round(self, number: int, previous: FittedLogic) -> FittedLogic | None:
        """One E-step and the M-step after it, with the trace of this round alone; None if no hidden
        pair is selected."""
        selected, n_hidden = self.select_hidden(previous)
        if not len(selected.users):
            return None
        folder = None if self.checkpoint is None else self.checkpoint / f"round-{number}"
        self.e_step(selected, folder)
        fitted, before, after = self.m_step(previous)
        sizes = (n_hidden, len(selected.users))
        return replace(fitted, trace=(self._round(number, fitted, before, after, sizes),))

    def start(self) -> FittedLogic:
        """The first M-step, with the encoder as it was fitted on G alone: round 0."""
        fitted, before, after = self.m_step(None)
        return replace(fitted, trace=(self._round(0, fitted, before, after, (0, 0)),))

    def e_step(self, hidden: HiddenPairs, checkpoint: Path | None = None) -> None:
        """Train the encoder on G ∪ H⁺, from where it stands. H⁺ adds no steps, so an E-step of no
        pairs is the control of any other."""
        self.encoder.fit(
            self.graph.given,
            hidden=hidden,
            warm=True,
            checkpoint=checkpoint,
            progress=self.progress,
        )

    def m_step(self, start: FittedLogic | None) -> tuple[FittedLogic, float, float]:
        """The best weights for what is observed and what the encoder believes; the objective
        before and after."""
        if self.config.likelihood == "pseudo":
            return pseudo_m_step(
                self.ranker,
                self._calibrated,
                start or self._blank(self.rules),
                self.config,
                self.engine,
                rescale=start is None,
            )
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
        pool = self.candidates(None if start is None else start.logic.rules)
        fitted, before, after = self._listwise(pool.rules, pool, start)
        return self._calibrated(fitted.without_idle_rules()), before, after

    def candidates(self, rules: RuleSet | None = None) -> Pool:
        """The candidates of the fitting users, as the present encoder and walk see them, by some
        of the rules that get weight on a few of the users; None: by all of those.

        They are gathered once: the bounds of all rounds are over the same ones.
        """
        known = self._candidates
        gathered = self.gather_candidates()
        pool = gathered.with_rules(rules or gathered.rules)
        return pool if known is None else self._scored(pool)

    def gather_candidates(self) -> Pool:
        """The candidates as the encoder and the walk saw them when they were first asked for; of a
        problem that differs from another in its walk, that one's, by the walk of its own."""
        if self._candidates is None and self._before is not None:
            self._candidates = self._scored(self._before.gather_candidates())
        elif self._candidates is None:
            self._candidates = self.pool(self._screened(), self.fit_users)
        return self._candidates

    def _scored(self, pool: Pool) -> Pool:
        return pool.scored(self.ranker(self._blank(pool.rules)), self.engine)

    def _screened(self) -> RuleSet:
        """The rules less those that get no weight on a few users."""
        config, users = self.config, self.fit_users
        # As small a part of the interactions that are enough as of the users.
        pairs = config.fit_pairs * config.screen_users // config.fit_users
        most = min(config.screen_users, self._enough(users, pairs))
        if len(users) <= most:
            return self.rules
        few = users[:: max(1, len(users) // most)]
        screened = self._solved(self.rules, self.pool(self.rules, few), None)[0]
        return screened.without_idle_rules().logic.rules

    def _listwise(
        self, rules: RuleSet, pool: Pool, start: FittedLogic | None
    ) -> tuple[FittedLogic, float, float]:
        """The weights of rules, popularity and encoder that are best for the hits of a pool, the
        encoder's lowered until it carries no more than ``opacity`` allows."""
        best, limit = self._solved(rules, pool, start), self.config.opacity
        if start is None:
            self._unlimited = pool, best
        if limit is None or limit >= 1 or self.config.fusion != "logit":
            return best
        low, high = 0.0, best[0].fusion.encoder_weight
        if self.opacity(best[0]) <= limit:
            return best
        question = self._question(rules, pool, best[0])
        best = tried = self._answer(question, best[0], low)
        for _ in range(OPACITY_STEPS if limit > 0 else 0):
            tried = self._answer(question, tried[0], (low + high) / 2)
            if self.opacity(tried[0]) <= limit:
                best, low = tried, (low + high) / 2
            else:
                high = (low + high) / 2
        return best

    def with_encoder(self, shares: Sequence[float], derived: bool = True) -> list[FittedLogic]:
        """The first M-step with the encoder's weight lowered to some shares of what is best, with
        or without rules over derived relations."""
        rules = tuple(r for r in self.gather_candidates().rules if derived or not r.derived)
        pool = self.candidates(RuleSet(rules))
        free = self._best_for(pool)
        question = self._question(pool.rules, pool, free[0])
        answers, nearest = {1.0: free}, free[0]
        for share in sorted({*shares} - {1.0}, reverse=True):  # each from its neighbour
            most = share * free[0].fusion.encoder_weight
            answers[share] = self._answer(question, nearest, most)
            nearest = answers[share][0]
        out, pairs = [], self._labelled_pairs(free[0])
        for share in shares:
            fitted, before, after = answers[share]
            fitted = self._calibrated(fitted.without_idle_rules(), pairs)
            nothing = float("nan")  # nobody has been ranked yet
            row = Round(0, before, after, 0, 0, nothing, nothing)
            out.append(replace(fitted, trace=(row,)))
        return out

    def _best_for(self, pool: Pool) -> tuple[FittedLogic, float, float]:
        """The best weights without a limit, found now or by the first M-step on the same pool."""
        if self._unlimited is not None:
            known, best = self._unlimited
            if known.rules == pool.rules and np.array_equal(known.encoder, pool.encoder):
                return best
        return self._solved(pool.rules, pool, None)

    def left_out(self, derived: bool = True) -> Floats:
        """NDCG of users with labels by what those of others teach, with or without rules over
        derived relations: where labels are few, settings are compared by it; [users with hits]."""
        rules = tuple(r for r in self.gather_candidates().rules if derived or not r.derived)
        pool = self.candidates(RuleSet(rules))
        return self._asked(pool.rules, pool, None)[0].left_out(pool)

    def opacity(self, fitted: FittedLogic) -> float:
        """How much of the leads of some development users' lists the encoder carries."""
        some = self.dev_users if len(self.dev_users) else self.fit_users
        some = some[:: max(1, len(some) // OPACITY_USERS)]
        return self.ranker(fitted).opacity(some, DEPTH, self.engine)

    def _solved(
        self, rules: RuleSet, pool: Pool, start: FittedLogic | None
    ) -> tuple[FittedLogic, float, float]:
        """The best weights for the hits of a pool, the encoder's as large as it likes."""
        return self._answer(self._question(rules, pool, start), start)

    def _question(self, rules: RuleSet, pool: Pool, start: FittedLogic | None) -> Listwise:
        """What weights suit the hits of a pool: at the scales of a start, and with what items' own
        parts count there beside the encoder's sums; without one that is asked too."""
        asked, pool = self._asked(rules, pool, start)
        return asked.question(pool)

    def _asked(self, rules: RuleSet, pool: Pool, start: FittedLogic | None) -> tuple[Asked, Pool]:
        config, parts, unit = self.config, None, 1.0
        own = None if start is None else start.fusion.own
        if self.sums and isinstance(self.encoder, AdditiveEncoder):
            parts = self.encoder.own_parts
            # Sums grow with histories: in units of their own size they are no worse to climb.
            unit = float(pool.encoder.std(dtype=np.float64)) or 1.0
        if own is not None and parts is not None:
            pool = pool.with_own(np.array(own, dtype=np.float32) @ parts)
        asked = Asked(
            self._blank(rules).logic,
            log_popularity(self.graph) if config.popularity else None,
            with_encoder=config.fusion != "logic",
            l2=config.l2,
            scales=None if start is None else start.logic.scales,
            saturation=config.saturation,
            unit=unit,
            own_parts=parts if own is None else None,
        )
        return asked, pool

    def _answer(
        self, question: Listwise, start: FittedLogic | None, max_encoder: float | None = None
    ) -> tuple[FittedLogic, float, float]:
        """The best weights, found from a start, with a limit on the encoder's."""
        begun = None if start is None else (start.logic, start.fusion.encoder_weight)
        solved = question.solved(begun, max_encoder)
        own = solved.own
        if own is None and start is not None:
            own = start.fusion.own
        config = self.config
        fusion = Fusion(config.fusion, solved.encoder_weight, alpha=config.alpha, own=own)
        return FittedLogic(solved.logic, fusion), solved.before, solved.after

    def pool(self, rules: RuleSet, users: NDArray[np.int64]) -> Pool:
        """The candidates of users, with the present encoder; see ``mstep.gather``. If they are few,
        also those of users that the encoder teaches by, and how much that counts."""
        ranker, config = self.ranker(self._blank(rules)), self.config
        few = config.teacher != 0 and len(users) < config.many_labels
        settings = replace(config.pools, beliefs=few)
        pool = gather(ranker, users, self.held_out, settings, self.engine)
        if not few:
            return pool
        taught = gather(ranker, self.taught_users, self.held_out, settings, self.engine)
        pool, strength = replace(pool, taught=taught), config.teacher
        if strength is None:
            strength = self._asked(rules, pool, None)[0].teacher(pool)
        return replace(pool, teacher=strength)

    @property
    def taught_users(self) -> NDArray[np.int64]:
        """Users that the encoder teaches the rules by, whatever is held out of them."""
        known = np.unique(self.graph.interactions[1]).astype(np.int64)
        rng = np.random.default_rng([self.config.seed, 0x7EAC])
        return np.sort(rng.permutation(known)[: self.config.taught_users])

    def _blank(self, rules: RuleSet) -> FittedLogic:
        """No weights yet."""
        config = self.config
        logic = blank_logic(rules, config.feature, config.active_walk)
        own = (0.0, 0.0) if self.sums else None
        return FittedLogic(logic, Fusion(config.fusion, alpha=config.alpha, own=own))

    @property
    def sums(self) -> bool:
        """Whether the encoder's part of a score is a plain sum over the user's interactions."""
        config = self.config
        plain = config.likelihood == "listwise" and config.fusion == "logit"
        return config.additive and plain and has_sums(self.encoder)

    def _labelled_pairs(self, fitted: FittedLogic) -> Labelled:
        """Held-out pairs and uniform unobserved ones, by the encoder as the model has it."""
        pairs = calibration_pairs(self.held_out, self.fit_users, self.config.seed)
        return labelled(self.ranker(fitted), pairs, self.config.seed, self.engine)

    def _calibrated(self, fitted: FittedLogic, pairs: Labelled | None = None) -> FittedLogic:
        """The model with weights scaled, and a prior, so that p and q are probabilities; ``pairs``
        are the labelled ones, if they are known."""
        pairs = pairs or self._labelled_pairs(fitted)
        return calibrated(fitted, self.logic_graph, pairs, self.config, self.engine)

    # ── E-step ──────────────────────────────────────────────────────────────────────────

    def select_hidden(
        self,
        fitted: FittedLogic,
        max_hidden: int | None = None,
        users: NDArray[np.integer] | None = None,
    ) -> tuple[HiddenPairs, int]:
        """H⁺ by what is fitted so far, and how many pairs were proposed; see ``estep``."""
        config, most = self.config, self.config.max_hidden if max_hidden is None else max_hidden
        return select_hidden(
            self.ranker(fitted), config.hidden, most, config.tau, self.engine,
            says=self.over_hidden(fitted)[0], users=users,
        )  # fmt: skip

    def over_hidden(self, fitted: FittedLogic) -> tuple[Calibration, Calibration]:
        """How likely pairs of H are, by the logits of p and by the encoder's scores: as often as
        those of some fitting users are held-out interactions. The paper's p is of no base rate."""
        if self.config.likelihood == "pseudo":
            return Calibration(), fitted.fusion.calibration
        ranker = self.ranker(fitted)
        some = self.fit_users[:: max(1, len(self.fit_users) // TRIAL_USERS)]
        users, items, scores = propose_hidden(ranker, self.config.hidden, self.engine, some)
        hits = np.asarray(self.held_out[users, items]).astype(bool)
        groundings = ranker.logic.ground(self.logic_graph, users, items, self.engine)
        logits = ranker.logic.pair_logits(self.logic_graph, groundings)
        return fit_calibration(logits, hits), fit_calibration(scores, hits)

    def _promising(self, fitted: FittedLogic) -> bool:
        """Whether H⁺ of a few development users has more of what they took than as many of the
        encoder's own best items: else it teaches the encoder nothing, and no round is made."""
        some = self.dev_users[:: max(1, len(self.dev_users) // TRIAL_USERS)]
        selected, _ = self.select_hidden(fitted, users=some)
        hits, own = surplus(self.ranker(fitted), selected, self.held_out, self.engine)
        if hits <= own:
            log.info(
                "no round of EM: of %d hidden pairs of %d users %d are held-out interactions, and "
                "of as many of the encoder's best %d",
                len(selected.users), len(some), hits, own,
            )  # fmt: skip
        return hits > own

    # ── comparing rounds and settings ───────────────────────────────────────────────────

    def _round(
        self, number: int, fitted: FittedLogic, before: float, after: float, sizes: tuple[int, int]
    ) -> Round:
        ndcg, recall = self.dev_metrics(fitted)
        nothing = float("nan")
        means = (ndcg.mean(), recall.mean()) if len(ndcg) else (nothing, nothing)
        return Round(number, before, after, *sizes, *map(float, means))

    def dev_metrics(self, fitted: FittedLogic, most: int | None = None) -> tuple[Floats, Floats]:
        """NDCG and Recall of each development user, or of so many, ranking all items."""
        some = self.dev_users[:: 1 if most is None else max(1, len(self.dev_users) // most)]
        lists, _ = self.ranker(fitted).top(some, DEPTH, engine=self.engine)
        hits, n = self._hits(some, lists)
        return ranking.ndcg(hits, n), ranking.recall(hits, n)

    def encoder_ndcg(self, fitted: FittedLogic) -> Floats:
        """The same NDCG, of lists by the encoder alone."""
        lists, _ = best_by_encoder(self.ranker(fitted), DEPTH, self.engine, self.dev_users)
        return ranking.ndcg(*self._hits(self.dev_users, lists))

    def _hits(
        self, users: NDArray[np.integer], lists: NDArray[np.int32]
    ) -> tuple[ranking.Hits, NDArray[np.integer]]:
        """Which places of users' lists hold held-out items, and how many items each user has."""
        part = self.held_out[users]
        n = np.diff(part.indptr)
        return ranking.hits(lists, np.repeat(np.arange(len(users)), n), part.indices), n


# ── the paper's ablation ──────────────────────────────────────────────────────────────────────


def ablate_hidden(em: EM, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)) -> list[dict[str, float]]:
    """What one round comes to that selects at most so many hidden pairs of each user, by size.

    ``|H⁺|`` of a user (``selected``), how many pairs it is in all, NDCG on the development users
    with a 95 % interval, how far it lies above that of the first size, paired over users
    (``more``), and NDCG of the encoder alone. Size 0 is the control, the same E-step without H⁺.
    The encoder stands afterwards as before.
    """
    if not len(em.dev_users):
        raise LogerError("too few users have held-out interactions to compare sizes by")
    first, state, out = em.m_step(None)[0], em.encoder.state(), list[dict[str, float]]()
    control = None
    for size in sizes:
        selected, _ = em.select_hidden(first, size)
        em.e_step(selected)
        fitted = em.m_step(first)[0]
        ndcg = em.dev_metrics(fitted)[0]
        control = ndcg if control is None else control
        out.append(
            {
                "selected": size,
                "pairs": len(selected.users),
                "ndcg": float(ndcg.mean()),
                **_ends("low", "high", ndcg),
                "more": float((ndcg - control).mean()),
                **_ends("more_low", "more_high", ndcg - control),
                "encoder": float(em.encoder_ndcg(fitted).mean()),
            }
        )
        em.encoder.load_state(em.graph.given, state)
    return out


def _ends(low: str, high: str, values: np.ndarray) -> dict[str, float]:
    """The ends of a 95 % interval of a mean over users, by their names."""
    ends = np.quantile(resampled_means(values[:, None], 1000, 0), [0.025, 0.975])
    return dict(zip((low, high), map(float, ends), strict=True))
