"""EM (section 3.2 of the paper, METHOD 5): the encoder proposes hidden pairs, the rules judge them,
and each learns from the other::

    fit the encoder on G, then the weights                       start
    repeat:  E-step   H⁺: the hidden pairs that the rules        select_hidden
                      believe in; train the encoder on G ∪ H⁺    e_step        Eq. 2
             M-step   weights from observed and hidden pairs     m_step        Eq. 3
             accept   the round, if NDCG rises and the bound,    Round.improves_on
                      or NDCG by more than its interval

The paper's M-step maximises a pseudo-likelihood over G ∪ H (``likelihood="pseudo"``). The default
maximises the likelihood of held-out interactions, each among its user's best candidates
(``"listwise"``). The paper runs a fixed number of rounds; here they stop when they no longer help
other held-out users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loger.encoder.protocol import HiddenPairs
from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.errors import LogerError
from loger.grounding import Walk
from loger.learning.estep import Selected, select_hidden, surplus
from loger.learning.fitted import FittedLogic, MStep, Round
from loger.learning.mstep import Candidates, final_m_step, listwise_m_step, pseudo_m_step
from loger.learning.problem import TRIAL_USERS, Problem
from loger.logic.config import EMConfig
from loger.metrics.report import resampled_means

log = logging.getLogger(__name__)

CachedRound = Callable[[int, FittedLogic, Callable[[], FittedLogic | None]], FittedLogic | None]
"""The number of a round, what it begins from, and what computes it → the round."""


def _compute(
    number: int, previous: FittedLogic, compute: Callable[[], FittedLogic | None]
) -> FittedLogic | None:
    return compute()


class EM(Problem):
    """A problem, and the loop that solves it."""

    @cached_property
    def candidates(self) -> Candidates:
        """The candidates of the fitting users, which the listwise M-step chooses among."""
        return Candidates()

    # ── the loop ────────────────────────────────────────────────────────────────────────

    def run(
        self, first: FittedLogic | None = None, cached_round: CachedRound = _compute
    ) -> FittedLogic:
        """Alternate E- and M-steps; the model of the best round by development users.

        Args:
            first: what ``start`` returned, if that has been done.
            cached_round: returns a round that was done before, or computes it.
        """
        config, fitted = self.config, first or self.start()
        trace = list(fitted.trace)
        if config.rounds and config.likelihood == "listwise":
            # By the encoder as it stands: the bounds of all rounds are over the same candidates.
            self.candidates.gathered(self)
        for number in range(1, config.rounds + 1):
            if config.early_stop and not self.promising(fitted):
                break
            previous, encoder = fitted, self.encoder.state()
            following = cached_round(number, previous, partial(self.round, number, previous))
            if following is None:
                break  # H⁺ is empty: nothing new to train on
            fitted = following
            trace.append(fitted.trace[-1])
            self.progress("rounds of EM", number, config.rounds)
            if config.early_stop and not trace[-1].improves_on(trace[-2]):
                self.encoder.load_state(self.graph.given, encoder)  # take the round back
                fitted = previous
                break
        return replace(fitted, trace=tuple(trace))

    def start(self) -> FittedLogic:
        """The first M-step, with the encoder as it was fitted on G alone: round 0."""
        step = self.m_step(None)
        return replace(step.fitted, trace=(self._round(0, step),))

    def round(self, number: int, previous: FittedLogic) -> FittedLogic | None:
        """One E-step and the M-step after it, with the trace of this round alone; None if no hidden
        pair is selected."""
        selected = self.select_hidden(previous)
        if not len(selected.pairs.users) and self.config.max_hidden:
            return None  # with at most 0 pairs a round is the control of others
        before, _ = self.dev_metrics(previous)
        folder = None if self.checkpoint is None else self.checkpoint / f"round-{number}"
        self.e_step(selected.pairs, folder)
        step = self.m_step(previous)
        return replace(step.fitted, trace=(self._round(number, step, selected, before),))

    def final(self, fitted: FittedLogic) -> FittedLogic:
        """The weights once more from all held-out users, when nothing is left to choose."""
        return final_m_step(self, fitted)

    # ── E-step: w stays, θ learns ───────────────────────────────────────────────────────

    def select_hidden(
        self,
        fitted: FittedLogic,
        max_hidden: int | None = None,
        users: NDArray[np.integer] | None = None,
    ) -> Selected:
        """H⁺ by what is fitted so far, of all users or of some; see ``estep``."""
        config, most = self.config, self.config.max_hidden if max_hidden is None else max_hidden
        return select_hidden(
            self.ranker(fitted), config.hidden, most, config.tau, self.engine,
            calibration=self.over_hidden(fitted).by_logic, users=users,
        )  # fmt: skip

    def e_step(self, hidden: HiddenPairs, checkpoint: Path | None = None) -> None:
        """Train the encoder on G ∪ H⁺ (Eq. 2), from where it stands. H⁺ adds no steps, so an E-step
        of no pairs is the control of any other."""
        self.encoder.fit(
            self.graph.given,
            hidden=hidden,
            warm=True,
            checkpoint=checkpoint,
            progress=self.progress,
        )

    def promising(self, fitted: FittedLogic) -> bool:
        """Whether H⁺ of a few development users has more of what they took than as many of the
        encoder's own best items: else it teaches the encoder nothing, and no round is made."""
        some = self.dev_users[:: max(1, len(self.dev_users) // TRIAL_USERS)]
        selected = self.select_hidden(fitted, users=some).pairs
        hits, own = surplus(self.ranker(fitted), selected, self.held_out, self.engine)
        if hits <= own:
            log.info(
                "no round of EM: of %d hidden pairs of %d users %d are held-out interactions, and "
                "of as many of the encoder's best %d",
                len(selected.users), len(some), hits, own,
            )  # fmt: skip
        return hits > own

    # ── M-step: θ stays, w learns ───────────────────────────────────────────────────────

    def m_step(self, start: FittedLogic | None) -> MStep:
        """The best weights for what is observed and what the encoder believes, found from those of
        a start or from nothing."""
        if self.config.likelihood == "pseudo":
            return pseudo_m_step(self, start)
        return listwise_m_step(self, self.candidates, start)

    @property
    def walks(self) -> tuple[Walk, ...]:
        """The walk, after those by which its candidates were gathered and then weighed."""
        return self.candidates.walks(self)

    # ── trace, and the same problem with another setting ────────────────────────────────

    def _round(
        self,
        number: int,
        step: MStep,
        selected: Selected | None = None,
        before: NDArray[np.float64] | None = None,
    ) -> Round:
        ndcg, recall = self.dev_metrics(step.fitted)
        nothing = float("nan")
        means = (ndcg.mean(), recall.mean()) if len(ndcg) else (nothing, nothing)
        sizes = (0, 0) if selected is None else (selected.n_hidden, len(selected.pairs.users))
        gain = None
        if before is not None and len(ndcg):
            gain = _ends("low", "high", ndcg - before)["low"]
        made = Round(number, step.bound_before, step.bound, *sizes, *map(float, means))
        return replace(made, least_gain=gain)

    def with_walk(self, walk: Walk) -> EM:
        """The same problem with another walk, on the same candidates."""
        base = (self, self.candidates)
        return self._with(replace(self.config, walk=walk), Candidates(base))

    def with_max_encoder_share(self, limit: float) -> EM:
        """The same problem with a limit on what the encoder carries."""
        return self._with(replace(self.config, max_encoder_share=limit), self.candidates)

    def with_sequence(self, sequence: SequenceEncoder) -> EM:
        """The same problem in which the order of interactions counts too, on candidates of its
        own."""
        other = self._with(self.config, Candidates())
        other.sequence = sequence
        return other

    def _with(self, config: EMConfig, candidates: Candidates) -> EM:
        other = EM(
            *(self.graph, self.encoder, self.rules, self.pairs, config),
            logic_graph=self.logic_graph,
            engine=self.engine,
            progress=self.progress,
            checkpoint=self.checkpoint,
            sequence=self.sequence,
        )
        other.candidates = candidates
        return other


# ── the paper's ablation ────────────────────────────────────────────────────────────────


def ablate_hidden(em: EM, sizes: Sequence[int] = (0, 10, 20, 30, 40, 50)) -> list[dict[str, float]]:
    """What one round comes to that selects at most so many hidden pairs of each user, by size.

    ``|H⁺|`` of a user (``selected``), how many pairs it is in all, NDCG on the development users
    with a 95% interval, how far it lies above that of the first size, paired over users
    (``more``), and NDCG of the encoder alone. Size 0 is the control, the same E-step without H⁺.
    The encoder stands afterwards as before.
    """
    if not len(em.dev_users):
        raise LogerError("too few users have held-out interactions to compare sizes; hold out more")
    first, encoder, out = em.m_step(None).fitted, em.encoder.state(), list[dict[str, float]]()
    control = None
    for size in sizes:
        selected = em.select_hidden(first, size).pairs
        em.e_step(selected)
        fitted = em.m_step(first).fitted
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
        em.encoder.load_state(em.graph.given, encoder)
    return out


def _ends(low: str, high: str, values: np.ndarray) -> dict[str, float]:
    """The ends of a 95% interval of a mean over users, by their names."""
    ends = np.quantile(resampled_means(values[:, None], 1000, 0), [0.025, 0.975])
    return dict(zip((low, high), map(float, ends), strict=True))
