"""What EM has to solve: a graph, an encoder fitted on it, rules, and interactions neither knows.

A problem knows whose held-out interactions teach the weights and whose compare what was learned,
scores users with what is fitted so far, and turns p and q into probabilities.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.encoder.calibration import Calibration, fit_calibration
from loger.encoder.folding import has_sums
from loger.encoder.protocol import Encoder
from loger.encoder.sequence import Sequence
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, whole
from loger.graph.arrays import Doubles
from loger.learning.estep import best_by_encoder, propose_hidden
from loger.learning.fitted import FittedLogic
from loger.learning.pools import pair_scores, uniform_items
from loger.logic.config import EMConfig
from loger.logic.mln import additive, blank_logic
from loger.metrics import ranking
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import RuleSet

if TYPE_CHECKING:
    pass

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
FIT_PAIRS = 50_000
"""Held-out interactions that are enough to learn from: where so many are of fewer users than
``fit_users``, fewer teach."""
TAUGHT_USERS = 200
"""Users by whose candidates the encoder teaches the rules."""
DEPTH = 10
"""Length of the lists by which rounds and settings are compared."""
SHARE_USERS = 300
"""Users on whom the encoder's share of a lead is measured."""
TRIAL_USERS = 500
"""Users on whom it is decided whether a round of EM can help, and how likely pairs of H are."""
ENOUGH_PAIRS = 10_000
"""Held-out pairs by which p and q are made probabilities: two numbers each need no more."""


class LabelledPairs(NamedTuple):
    """Held-out pairs and as many uniform unobserved ones."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    held_out: NDArray[np.bool_]
    """Which of them are held out."""
    scores: Doubles
    """The encoder's scores, as the model has them."""


class HiddenCalibration(NamedTuple):
    """How likely pairs of H are to be interactions."""

    by_logic: Calibration
    """By the logits of p."""
    by_encoder: Calibration
    """By the encoder's scores."""


class Problem:
    """One problem of EM; all but the encoder, which E-steps train, stays as it is.

    Args:
        graph: what is known, train only.
        encoder: fitted on the graph.
        rules: those to learn weights of.
        held_out: users and items of the interactions to learn from.
        config: settings of the logic model and of EM.
        logic_graph: where rules are grounded; by default the graph.
        engine: where blocks of work run.
        progress: hears of rounds and epochs.
        checkpoint: a folder for checkpoints of E-steps.
        sequence: fitted on the graph, if the order of interactions is to count.
    """

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
        sequence: Sequence | None = None,
    ) -> None:
        from scipy.sparse import csr_array  # slow to import, and only a fit needs it

        if not len(rules):
            raise LogerError("no rules were given, so there are no weights to learn")
        self.graph, self.encoder, self.rules, self.config = graph, encoder, rules, config
        self.logic_graph, self.checkpoint = logic_graph or graph, checkpoint
        self.sequence = sequence
        self.engine, self.progress = engine or LocalEngine(progress=progress), progress
        users, _ = self.pairs = held_out
        ones = np.ones(len(users), dtype=np.int8)
        self.held_out = csr_array((ones, held_out), shape=(graph.n_users, graph.n_items))
        order = np.random.default_rng([config.seed, 0xE3]).permutation(
            np.unique(users).astype(np.int64)
        )
        few = len(order) < config.many_labels
        self.few = few and config.likelihood == "listwise" and not config.rounds
        """Whether users with labels are too few to keep any of them apart for comparing: all teach,
        and those left out of folds choose."""
        cut = min(config.fit_users, int(np.ceil((1.0 if self.few else 0.6) * len(order))))
        enough = self.enough(order, FIT_PAIRS)
        self.fit_users = np.sort(order[: min(cut, enough)])
        """Users whose held-out interactions teach the weights, …"""
        self.dev_users = np.sort(order[cut : cut + config.dev_users])
        """… others on whom rounds and settings are compared, …"""
        self.all_users = np.sort(order[: min(config.fit_users, enough)])
        """… and those who teach in the end, when nothing is left to choose."""

    def enough(self, users: NDArray[np.int64], pairs: int) -> int:
        """Number of leading users that together hold at least ``pairs`` held-out interactions."""
        held = np.cumsum(np.diff(self.held_out.indptr)[users])
        return 1 + int(np.searchsorted(held, pairs))

    @property
    def taught_users(self) -> NDArray[np.int64]:
        """Users that the encoder teaches the rules by, whatever is held out of them."""
        known = np.unique(self.graph.interactions[1]).astype(np.int64)
        rng = np.random.default_rng([self.config.seed, 0x7EAC])
        return np.sort(rng.permutation(known)[:TAUGHT_USERS])

    # ── what is fitted, beside the present encoder ──────────────────────────────────────

    def ranker(self, fitted: FittedLogic) -> Ranker:
        """What was fitted, on this problem's graph with its present encoder."""
        learned = self.encoder, fitted.logic, fitted.fusion, self.config.walk
        return Ranker(self.graph, self.logic_graph, *learned, sequence=self.sequence)

    def blank(self, rules: RuleSet) -> FittedLogic:
        """A model whose rules weigh nothing yet."""
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

    # ── p and q as probabilities ────────────────────────────────────────────────────────

    def labelled_pairs(self, fitted: FittedLogic) -> LabelledPairs:
        """Held-out pairs of the fitting users and uniform unobserved ones, as many, with the scores
        of the encoder as the model has it."""
        ranker, seed = self.ranker(fitted), self.config.seed
        users, items = self.calibration_pairs()
        drawn = np.random.default_rng([seed, 0xCA1])
        others = uniform_items(whole(ranker.graph), users, 1, drawn)[1]
        labels = np.repeat([True, False], [len(users), len(others[others >= 0])])
        u = np.concatenate([users, users[others >= 0]])
        v = np.concatenate([items, others[others >= 0]])
        return LabelledPairs(u, v, labels, pair_scores(ranker, u, v, self.engine))

    def calibration_pairs(self) -> Pairs:
        """Held-out pairs of the fitting users; where they are very many, some."""
        part = self.held_out[self.fit_users]
        owners = np.repeat(self.fit_users, np.diff(part.indptr)).astype(np.int32)
        items = part.indices.astype(np.int32)
        if len(owners) <= ENOUGH_PAIRS:
            return owners, items
        rng = np.random.default_rng([self.config.seed, 0xCA1B])
        some = np.sort(rng.choice(len(owners), size=ENOUGH_PAIRS, replace=False))
        return owners[some], items[some]

    def calibrated(self, fitted: FittedLogic, pairs: LabelledPairs | None = None) -> FittedLogic:
        """The model with weights scaled, and a prior, so that p and q are probabilities: of
        held-out pairs against uniform unobserved ones, ``negatives`` for each.

        The paper takes σ of the sums themselves, and its M-step (``pseudo``) keeps those of p.
        ``pairs`` are the labelled ones, if they are known.
        """
        pairs = pairs or self.labelled_pairs(fitted)
        config, labels = self.config, pairs.held_out
        groundings = fitted.logic.ground(self.logic_graph, pairs.users, pairs.items, self.engine)
        weights = np.where(labels, 1.0, config.negatives)  # for how many pairs one stands
        q = fit_calibration(pairs.scores, labels, weights)
        fusion = replace(fitted.fusion, calibration=q)
        if not additive(config.feature) or config.likelihood == "pseudo":
            return replace(fitted, fusion=fusion)
        logits = fitted.logic.pair_logits(self.logic_graph, groundings)
        p = fit_calibration(logits, labels, weights)
        # A slope of 0 or less says that p tells nothing of these pairs: leave the weights alone.
        scale = p.slope if p.slope > 0 else 1.0
        logic = replace(
            fitted.logic,
            weights=fitted.logic.weights * scale,
            popularity=fitted.logic.popularity * scale,
            prior=p.intercept,
        )
        fusion = replace(fusion, encoder_weight=fusion.encoder_weight * scale)
        return replace(fitted, logic=logic, fusion=fusion)

    def over_hidden(self, fitted: FittedLogic) -> HiddenCalibration:
        """How likely pairs of H are: as often as those of some fitting users are held-out
        interactions. The paper's p is of no base rate."""
        if self.config.likelihood == "pseudo":
            return HiddenCalibration(Calibration(), fitted.fusion.calibration)
        ranker = self.ranker(fitted)
        some = self.fit_users[:: max(1, len(self.fit_users) // TRIAL_USERS)]
        users, items, scores = propose_hidden(ranker, self.config.hidden, self.engine, some)
        hits = np.asarray(self.held_out[users, items]).astype(bool)
        groundings = ranker.logic.ground(self.logic_graph, users, items, self.engine)
        logits = ranker.logic.pair_logits(self.logic_graph, groundings)
        return HiddenCalibration(fit_calibration(logits, hits), fit_calibration(scores, hits))

    # ── comparing rounds and settings ───────────────────────────────────────────────────

    def dev_metrics(self, fitted: FittedLogic, most: int | None = None) -> tuple[Doubles, Doubles]:
        """NDCG and Recall of each development user, or of so many, ranking all items."""
        some = self.dev_users[:: 1 if most is None else max(1, len(self.dev_users) // most)]
        lists, _ = self.ranker(fitted).top(some, DEPTH, engine=self.engine)
        hits, n = self._hits(some, lists)
        return ranking.ndcg(hits, n), ranking.recall(hits, n)

    def encoder_ndcg(self, fitted: FittedLogic) -> Doubles:
        """The same NDCG, of lists by the encoder alone."""
        lists, _ = best_by_encoder(self.ranker(fitted), DEPTH, self.engine, self.dev_users)
        return ranking.ndcg(*self._hits(self.dev_users, lists))

    def encoder_share(self, fitted: FittedLogic) -> float:
        """How much of the leads of some development users' lists the encoder carries."""
        some = self.dev_users if len(self.dev_users) else self.fit_users
        some = some[:: max(1, len(some) // SHARE_USERS)]
        return self.ranker(fitted).encoder_share(some, DEPTH, self.engine)

    def _hits(
        self, users: NDArray[np.integer], lists: NDArray[np.int32]
    ) -> tuple[ranking.Hits, NDArray[np.integer]]:
        """Which places of users' lists hold held-out items, and how many items each user has."""
        part = self.held_out[users]
        n = np.diff(part.indptr)
        return ranking.hits(lists, np.repeat(np.arange(len(users)), n), part.indices), n
