"""EM (section 3.2 of the paper, METHOD 5): the encoder proposes hidden pairs, the rules judge them,
and each learns from the other::

    train the encoder on G, then learn the weights               start
    repeat:  E-step   H⁺: the hidden pairs that the rules        select_hidden
                      confirm; train the encoder on G ∪ H⁺       e_step        Eq. 2
             M-step   weights from observed and hidden pairs     m_step        Eq. 3
             accept   the round if NDCG and the bound rise,      Round.improves_on
                      or NDCG by more than its interval

The paper's M-step maximises a pseudo-likelihood over G ∪ H (``likelihood="pseudo"``). The default
(``"listwise"``) maximises the likelihood of held-out interactions among their users' candidates.
The paper makes a fixed number of rounds; here they stop when they no longer help other users.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import HiddenPairs
from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.errors import LogerError
from loger.grounding import Walk
from loger.learning.estep import Selected, select_hidden, surplus
from loger.learning.fitted import FittedLogic, MStep, Round
from loger.learning.mstep import Candidates, listwise_m_step, pseudo_m_step
from loger.learning.problem import TRIAL_USERS, Problem, spread
from loger.logic.config import EMConfig
from loger.metrics.report import resampled_means

log = logging.getLogger(__name__)


class EM(Problem):
    """A problem, and the loop that solves it."""

    def run(self, first: FittedLogic | None = None) -> FittedLogic:
        """Alternate E- and M-steps; returns the model of the best round by development users.

        ``first`` is what ``start`` returned, if it has been called.
        """
        config, fitted = self.config, first or self.start()
        trace = list(fitted.trace)
        if config.rounds and config.likelihood == "listwise":
            # Gather candidates before the encoder changes: all rounds' bounds are over these.
            _ = self.candidates.gathered
        for number in range(1, config.rounds + 1):
            if config.early_stop and not self.promising(fitted):
                break
            # An E-step trains the encoder in place, so undoing a round needs its earlier state.
            previous, encoder = fitted, self.encoder.state()
            following = self.round(number, previous)
            if following is None:
                break  # H⁺ is empty: there is nothing new to train on
            fitted = following
            trace.append(fitted.trace[-1])
            self.progress("rounds of EM", number, config.rounds)
            if config.early_stop and not trace[-1].improves_on(trace[-2]):
                self.encoder.load_state(self.graph.given, encoder)  # undo the round
                fitted = previous
                break
        return replace(fitted, trace=tuple(trace))

    def start(self) -> FittedLogic:
        """Round 0: the first M-step, with the encoder as it was trained on G alone."""
        step = self.m_step(None)
        return replace(step.fitted, trace=(self._round(0, step),))

    def round(self, number: int, previous: FittedLogic) -> FittedLogic | None:
        """One E-step and the M-step after it, traced as one round; None if H⁺ is empty."""
        selected = self.select_hidden(previous)
        if not len(selected.pairs.users) and self.config.max_hidden:
            return None  # but with max_hidden=0 an empty H⁺ is the baseline of other rounds
        # Before the E-step: both models share the encoder that it changes.
        before, _ = self.dev_metrics(previous)
        folder = None if self.checkpoint is None else self.checkpoint / f"round-{number}"
        self.e_step(selected.pairs, folder)
        step = self.m_step(previous)
        return replace(step.fitted, trace=(self._round(number, step, selected, before),))

    def select_hidden(
        self,
        fitted: FittedLogic,
        max_hidden: int | None = None,
        users: NDArray[np.integer] | None = None,
    ) -> Selected:
        """H⁺ according to the model so far, of all users or of some; see ``estep``."""
        most = self.config.max_hidden if max_hidden is None else max_hidden
        by_logic, _ = self.over_hidden(fitted)
        return select_hidden(
            self.ranker(fitted), most, self.config.tau, by_logic, self.engine, users
        )

    def e_step(self, hidden: HiddenPairs, checkpoint: Path | None = None) -> None:
        """w stays, θ learns: continue training the encoder, on G ∪ H⁺ (Eq. 2).

        H⁺ adds no steps, so an E-step without pairs is the baseline of any other.
        """
        self.encoder.fit(
            self.graph.given,
            hidden=hidden,
            warm=True,
            checkpoint=checkpoint,
            progress=self.progress,
        )

    def m_step(self, start: FittedLogic | None) -> MStep:
        """θ stays, w learns: the best weights, found from those of ``start`` or from 0 (Eq. 3)."""
        if self.config.likelihood == "pseudo":
            return pseudo_m_step(self, start)
        return listwise_m_step(self, self.candidates, start)

    def promising(self, fitted: FittedLogic) -> bool:
        """Whether a round can help: whether H⁺ of a few development users has more held-out items
        than as many of the encoder's own best items."""
        some = spread(self.dev_users, TRIAL_USERS)
        selected = self.select_hidden(fitted, users=some).pairs
        hits, own = surplus(self.ranker(fitted), selected, self.held_out, self.engine)
        if hits <= own:
            log.info(
                "skipped EM: of %d hidden pairs for %d users, %d are held-out interactions; among "
                "as many of the encoder's top items, %d are",
                len(selected.users), len(some), hits, own,
            )  # fmt: skip
        return hits > own

    def _round(
        self,
        number: int,
        step: MStep,
        selected: Selected | None = None,
        before: NDArray[np.float64] | None = None,
    ) -> Round:
        """A row of the trace; ``before`` is NDCG of the development users before the round."""
        ndcg, recall = self.dev_metrics(step.fitted)
        nothing = float("nan")
        means = (ndcg.mean(), recall.mean()) if len(ndcg) else (nothing, nothing)
        sizes = (0, 0) if selected is None else (selected.n_hidden, len(selected.pairs.users))
        gain = interval(ndcg - before)[0] if before is not None and len(ndcg) else None
        made = Round(number, step.bound_before, step.bound, *sizes, *map(float, means))
        return replace(made, least_gain=gain)

    # ── candidates of the listwise M-step, and the same problem with another setting ────

    @cached_property
    def candidates(self) -> Candidates:
        """The candidates of the fitting users, among which the listwise M-step ranks."""
        return Candidates(self)

    def with_walk(self, walk: Walk) -> EM:
        """The same problem with another walk, on the same candidates."""
        other = self._with(replace(self.config, walk=walk))
        other.candidates = Candidates(other, self.candidates)
        return other

    def with_max_encoder_share(self, limit: float) -> EM:
        """The same problem with a limit on the encoder's share."""
        other = self._with(replace(self.config, max_encoder_share=limit))
        other.candidates = self.candidates  # which don't depend on the limit
        return other

    def with_sequence(self, sequence: SequenceEncoder) -> EM:
        """The same problem, in which the order of interactions counts too."""
        other = self._with(self.config)
        other.sequence = sequence
        return other

    def _with(self, config: EMConfig) -> EM:
        return EM(
            *(self.graph, self.encoder, self.rules, self.pairs, config),
            logic_graph=self.logic_graph,
            engine=self.engine,
            progress=self.progress,
            checkpoint=self.checkpoint,
            sequence=self.sequence,
        )


# ── the paper's ablation ────────────────────────────────────────────────────────────────


def ablate_hidden(em: EM, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)) -> list[dict[str, float]]:
    """What one round achieves with each maximum number of hidden pairs per user.

    Returns for each size: ``selected``, the size; ``pairs``, how many pairs H⁺ has; ``ndcg`` on the
    development users, with a 95% interval (``low``, ``high``); ``more``, the difference from the
    first size, paired over users, with its interval; and ``encoder``, NDCG of the encoder alone.
    Size 0 is the baseline, the same E-step without H⁺. The encoder is restored afterwards.
    """
    if not len(em.dev_users):
        raise LogerError("too few users have held-out interactions to compare sizes; hold out more")
    first, encoder, out = em.m_step(None).fitted, em.encoder.state(), list[dict[str, float]]()
    baseline = None
    for size in sizes:
        # Every size starts from the same encoder and the same weights.
        selected = em.select_hidden(first, size).pairs
        em.e_step(selected)
        fitted = em.m_step(first).fitted
        ndcg = em.dev_metrics(fitted)[0]
        baseline = ndcg if baseline is None else baseline
        low, high = interval(ndcg)
        more_low, more_high = interval(ndcg - baseline)
        out.append(
            {
                "selected": size,
                "pairs": len(selected.users),
                "ndcg": float(ndcg.mean()),
                "low": low,
                "high": high,
                "more": float((ndcg - baseline).mean()),
                "more_low": more_low,
                "more_high": more_high,
                "encoder": float(em.encoder_ndcg(fitted).mean()),
            }
        )
        em.encoder.load_state(em.graph.given, encoder)
    return out


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% interval of a mean over users, by resampling them."""
    low, high = np.quantile(resampled_means(values[:, None], 1000, 0), [0.025, 0.975])
    return float(low), float(high)
