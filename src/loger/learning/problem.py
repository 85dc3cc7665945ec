"""What EM has to solve: a graph, an encoder fitted on it, rules, and interactions unknown to both.

A problem decides whose held-out interactions teach the weights and whose compare the results. It
ranks with what is fitted so far, and it turns p and q into probabilities.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
from loger.learning import estep
from loger.learning.fitted import FittedLogic
from loger.learning.pools import pair_scores, uniform_items
from loger.logic.config import EMConfig
from loger.logic.mln import additive, blank_logic
from loger.metrics import ranking
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import RuleSet

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]
FIT_USERS = 6000
"""The most users whose held-out interactions teach the weights. A fit's time grows with them; there
are a few dozen weights."""
FIT_PAIRS = 50_000
"""Held-out interactions that are enough to learn from: if fewer users have that many, only these
teach."""
DEV_USERS = 4000
"""The most users on whom rounds and settings are compared."""
TAUGHT_USERS = 200
"""Users whose candidates the encoder ranks as a teacher (docs/adr/0015)."""
DEPTH = 10
"""Length of the recommendations by which rounds and settings are compared."""
SHARE_USERS = 300
"""Users on whom the encoder's share of a lead is measured."""
TRIAL_USERS = 500
"""Users on whom loger decides whether a round of EM can help, and how likely pairs of H are."""
ENOUGH_PAIRS = 10_000
"""Held-out pairs that are enough to calibrate p and q, which takes two numbers each."""


class LabelledPairs(NamedTuple):
    """Held-out pairs and as many uniform unobserved ones."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    held_out: NDArray[np.bool_]
    """Which of them are held out."""
    scores: Doubles
    """The encoder's scores, as the model uses them."""


class Problem:
    """One problem of EM. Only the encoder changes: E-steps train it.

    Args:
        graph: what is known, train only.
        encoder: fitted on the graph.
        rules: whose weights to learn.
        held_out: users and items of the interactions to learn from.
        config: settings of the logic model and of EM.
        logic_graph: where rules are grounded; by default the graph.
        engine: where blocks of work run.
        progress: is called with each round and epoch.
        checkpoint: a folder for checkpoints of E-steps.
        sequence: a sequence encoder fitted on the graph, if the order of interactions counts.
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
            raise LogerError(
                "no rules were given, so there are no weights to learn; mine some first"
            )
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
        """Whether too few users have labels to spare any for comparing. Then all of them teach, and
        cross-validation chooses."""
        # The others compare settings and rounds, by labels that no weight has been fitted to.
        cut = min(FIT_USERS, int(np.ceil((1.0 if self.few else 0.6) * len(order))))
        enough = self.enough(order, FIT_PAIRS)
        self.fit_users = np.sort(order[: min(cut, enough)])
        """Users whose held-out interactions teach the weights."""
        self.dev_users = np.sort(order[cut : cut + DEV_USERS])
        """Other users, on whom rounds and settings are compared."""
        self.all_users = np.sort(order[: min(FIT_USERS, enough)])
        """Users who teach in the end, when nothing is left to choose."""

    def enough(self, users: NDArray[np.int64], pairs: int) -> int:
        """Number of leading users that together hold at least ``pairs`` held-out interactions."""
        held = np.cumsum(np.diff(self.held_out.indptr)[users])
        return 1 + int(np.searchsorted(held, pairs))

    @property
    def taught_users(self) -> NDArray[np.int64]:
        """Users whose candidates the encoder ranks as a teacher; they need no labels."""
        known = np.unique(self.graph.interactions[1]).astype(np.int64)
        rng = np.random.default_rng([self.config.seed, 0x7EAC])
        return np.sort(rng.permutation(known)[:TAUGHT_USERS])

    # ── the model so far ────────────────────────────────────────────────────────────────

    def ranker(self, fitted: FittedLogic) -> Ranker:
        """The fitted logic on this problem's graph, with the encoder as it is now."""
        learned = self.encoder, fitted.logic, fitted.fusion, self.config.walk
        return Ranker(self.graph, self.logic_graph, *learned, sequence=self.sequence)

    def blank(self, rules: RuleSet) -> FittedLogic:
        """A model whose rules all have weight 0."""
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
        """Held-out pairs of the fitting users and as many uniform unobserved ones, with scores."""
        ranker, seed = self.ranker(fitted), self.config.seed
        users, items = self.calibration_pairs()
        drawn = np.random.default_rng([seed, 0xCA1])
        others = uniform_items(whole(ranker.graph), users, 1, drawn)[1]
        labels = np.repeat([True, False], [len(users), len(others[others >= 0])])
        u = np.concatenate([users, users[others >= 0]])
        v = np.concatenate([items, others[others >= 0]])
        return LabelledPairs(u, v, labels, pair_scores(ranker, u, v, self.engine))

    def calibration_pairs(self) -> Pairs:
        """Held-out pairs of the fitting users, or ``ENOUGH_PAIRS`` random ones of them."""
        part = self.held_out[self.fit_users]
        owners = np.repeat(self.fit_users, np.diff(part.indptr)).astype(np.int32)
        items = part.indices.astype(np.int32)
        if len(owners) <= ENOUGH_PAIRS:
            return owners, items
        rng = np.random.default_rng([self.config.seed, 0xCA1B])
        some = np.sort(rng.choice(len(owners), size=ENOUGH_PAIRS, replace=False))
        return owners[some], items[some]

    def calibrated(self, fitted: FittedLogic, pairs: LabelledPairs | None = None) -> FittedLogic:
        """The model with weights scaled and a prior set so that p and q are probabilities.

        They are the probability of being held out, for held-out pairs against ``negatives`` uniform
        unobserved ones each. The paper takes σ of the sums themselves; so does its M-step here
        (``pseudo``) for p. ``pairs`` saves scoring the labelled pairs again.
        """
        pairs = pairs or self.labelled_pairs(fitted)
        config, labels = self.config, pairs.held_out
        groundings = fitted.logic.ground(self.logic_graph, pairs.users, pairs.items, self.engine)
        # One negative is drawn for each held-out pair, and stands for ``negatives`` of them.
        weights = np.where(labels, 1.0, config.negatives)
        q = fit_calibration(pairs.scores, labels, weights)
        fusion = replace(fitted.fusion, calibration=q)
        if not additive(config.feature) or config.likelihood == "pseudo":
            return replace(fitted, fusion=fusion)
        logits = fitted.logic.pair_logits(self.logic_graph, groundings)
        p = fit_calibration(logits, labels, weights)
        # A slope of 0 means that p says nothing about these pairs: leave the weights alone.
        scale = p.slope if p.slope > 0 else 1.0
        logic = replace(
            fitted.logic,
            weights=fitted.logic.weights * scale,
            popularity=fitted.logic.popularity * scale,
            prior=p.intercept,
        )
        fusion = replace(fusion, encoder_weight=fusion.encoder_weight * scale)
        return replace(fitted, logic=logic, fusion=fusion)

    def over_hidden(self, fitted: FittedLogic) -> tuple[Calibration, Calibration]:
        """How likely pairs of H are to be interactions, by the logits of p and by the encoder's
        scores.

        Measured as how often pairs of some fitting users are held out. The paper's p has no base
        rate, so it stays as it is.
        """
        if self.config.likelihood == "pseudo":
            return Calibration(), fitted.fusion.calibration
        ranker, some = self.ranker(fitted), spread(self.fit_users, TRIAL_USERS)
        users, items, scores = estep.propose_hidden(ranker, estep.HIDDEN, self.engine, some)
        hits = np.asarray(self.held_out[users, items]).astype(bool)
        groundings = ranker.logic.ground(self.logic_graph, users, items, self.engine)
        logits = ranker.logic.pair_logits(self.logic_graph, groundings)
        return fit_calibration(logits, hits), fit_calibration(scores, hits)

    # ── comparing rounds and settings ───────────────────────────────────────────────────

    def dev_metrics(self, fitted: FittedLogic) -> tuple[Doubles, Doubles]:
        """NDCG and Recall of each development user, ranking all items."""
        lists, _ = self.ranker(fitted).top(self.dev_users, DEPTH, engine=self.engine)
        hits, n = self._hits(self.dev_users, lists)
        return ranking.ndcg(hits, n), ranking.recall(hits, n)

    def encoder_ndcg(self, fitted: FittedLogic) -> Doubles:
        """NDCG of each development user if the encoder ranks alone."""
        ranker = self.ranker(fitted)
        lists, _ = estep.best_by_encoder(ranker, DEPTH, self.engine, self.dev_users)
        return ranking.ndcg(*self._hits(self.dev_users, lists))

    def encoder_share(self, fitted: FittedLogic) -> float:
        """The encoder's share of the leads in some development users' recommendations."""
        users = self.dev_users if len(self.dev_users) else self.fit_users
        return self.ranker(fitted).encoder_share(spread(users, SHARE_USERS), DEPTH, self.engine)

    def _hits(
        self, users: NDArray[np.integer], lists: NDArray[np.int32]
    ) -> tuple[ranking.Hits, NDArray[np.integer]]:
        """Which places of users' recommendations are held-out items, and how many each user has."""
        part = self.held_out[users]
        n = np.diff(part.indptr)
        return ranking.hits(lists, np.repeat(np.arange(len(users)), n), part.indices), n


def spread(users: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """About n of the users, evenly spread; all if there are fewer than 2 · n."""
    return users[:: max(1, len(users) // n)]
