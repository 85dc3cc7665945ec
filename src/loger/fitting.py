"""How LOGER is fitted: mine rules, train the encoder, EM, then the encoder once more on all.

Weights are learned from validation interactions, which neither the graph nor the encoder of that
stage knows; then both are made again with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loger.config import LOGERConfig, with_setting
from loger.data.splits import Split
from loger.em import EM, EMConfig, FittedLogic, Round, kept_rounds
from loger.encoder.protocol import Encoder
from loger.engine import Engine, Progress
from loger.errors import LogerError
from loger.estep import select_hidden
from loger.graph import INTERACTION, KnowledgeGraph
from loger.ranker import Ranker, sampled
from loger.rules.mining import Mined, mine

RECENCIES = (0.0, 0.5, 1.0)
"""What a fit tries where the data have times, unless told otherwise, …"""
POPULARITIES = (0.0, 0.75)
"""… and then of the exponent by which popular items are discounted: dense data want it."""

Tried = tuple[str, Any, float]
"""A setting, a value that was tried, and NDCG on the development users."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit comes to."""

    ranker: Ranker
    config: LOGERConfig
    """The settings that were given, and those that the fit chose."""
    trace: tuple[Round, ...]
    tried: list[Tried]


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit: settings, what makes encoders, and where it runs."""

    config: LOGERConfig
    make_encoder: Callable[[], Encoder]
    engine: Engine
    progress: Progress
    checkpoint: Path | None = None

    def run(self, split: Split, tune: Mapping[str, Sequence[Any]] | None = None) -> Fitted:
        """Learn from train, choose on validation, then learn from both."""
        problem = self.problem(split)
        if tune is None:
            tune = {"recency": RECENCIES} if split.graph.times is not None else {}
            tune = {**tune, "popular": POPULARITIES}
        em_config, first, tried = tuned(problem, self.config.em, tune)
        em = problem(em_config)
        fitted = em.final(em.run(first))
        mining = self.config.mining.for_pairs(len(split.train))
        config = replace(self.config, em=em_config, mining=mining)
        ranker = self._on_all(split.refit().graph, fitted, config)
        return Fitted(ranker, config, fitted.trace, tried)

    def problem(self, split: Split) -> Callable[[EMConfig], EM]:
        """What EM has to solve with any settings: rules and an encoder of train, and validation."""
        held_out = split.pairs("validation")
        if not len(held_out[0]):
            raise LogerError(
                f"{split.dataset.name} has no validation pairs, and rule weights are learned from "
                f"them; split with validation=0.1"
            )
        graph = split.graph
        mined = mine(graph, self.config.mining, self.engine)
        if not len(mined.rules):
            raise LogerError(_no_rules(graph, mined))
        encoder = self._encoder(graph, "first")
        logic_graph = sampled(graph, self.config.sample)
        return lambda settings: EM(
            graph,
            encoder,
            mined.rules,
            held_out,
            settings,
            logic_graph=logic_graph,
            engine=self.engine,
            progress=self.progress,
        )

    def _on_all(self, graph: KnowledgeGraph, fitted: FittedLogic, config: LOGERConfig) -> Ranker:
        """Train the encoder on all that is known, E-steps included; the weights stay."""
        encoder = self._encoder(graph, "last")
        recency, sample = config.em.walk.recency, self.config.sample
        ranker = Ranker.of(graph, encoder, fitted.logic, fitted.fusion, recency, sample)
        for _ in range(kept_rounds(fitted.trace, config.em.early_stop)):
            em = config.em
            hidden, _ = select_hidden(ranker, em.hidden, em.max_hidden, em.tau, self.engine)
            encoder.fit(graph, hidden=hidden, warm=True, progress=self.progress)
        return ranker

    def _encoder(self, graph: KnowledgeGraph, stage: str) -> Encoder:
        folder = None if self.checkpoint is None else Path(self.checkpoint) / stage
        return self.make_encoder().fit(graph, checkpoint=folder, progress=self.progress)


def tuned(
    problem: Callable[[EMConfig], EM], config: EMConfig, tune: Mapping[str, Sequence[Any]]
) -> tuple[EMConfig, FittedLogic | None, list[Tried]]:
    """Settings chosen on development users, one after another; the first M-step of the best, and
    what was tried."""
    tried: list[Tried] = []
    best: FittedLogic | None = None
    for name, values in tune.items():
        results: list[tuple[float, EMConfig, FittedLogic]] = []
        for value in values:
            settings = with_setting(config, name, value)
            same = best is not None and settings == config
            fitted = best if same and best is not None else problem(settings).start()
            results.append((fitted.trace[0].ndcg, settings, fitted))
            tried.append((name, value, fitted.trace[0].ndcg))
        _, config, best = max(results, key=lambda row: row[0])
    return config, best, tried


def _no_rules(graph: KnowledgeGraph, mined: Mined) -> str:
    """Why there is nothing to learn weights of, and what helps."""
    relations = graph.triples()[1]
    pairs = int((relations == INTERACTION).sum())
    remedy = "lower mining.min_support or mining.min_lift"
    if pairs == len(relations):
        remedy = "add facts about the items (a triples file), or more interactions"
    summary = ", ".join(" ".join(line.split()) for line in mined.summary().splitlines())
    return f"no rule was found in {pairs:,} training pairs ({summary}); {remedy}"
