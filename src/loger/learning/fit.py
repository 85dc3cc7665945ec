"""The order of a fit: mine rules, train the encoder, run EM, then train an encoder on everything.

The weights are learned from validation interactions, which neither the graph nor the encoder of
that stage knows. Then the graph and the encoder get these interactions too, and the model is
measured on the test part. A model for use finally learns from the test part as well. Settings,
rules and weights stay the same in both steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from loger import __version__
from loger.config import LOGERConfig
from loger.data.splits import Split
from loger.encoder.calibration import Calibration
from loger.encoder.cold_start import Moved
from loger.encoder.folding import has_sums, vectors
from loger.encoder.protocol import AdditiveEncoder, Encoder
from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.encoder.transe import TransE
from loger.engine import Engine, Progress
from loger.engine.saved import Arrays, Saved, digest
from loger.engine.settings import from_names
from loger.engine.threads import Background
from loger.errors import LogerError
from loger.explain.reasoned import PathReasoner
from loger.graph import INTERACTION, KnowledgeGraph, Pairs, whole
from loger.learning.derived import choose, derive, derived_rules
from loger.learning.em import EM
from loger.learning.estep import select_hidden
from loger.learning.fitted import (
    Fitted,
    FittedLogic,
    Measured,
    kept_rounds,
    logic_of,
    logic_parts,
    mined_on,
)
from loger.learning.mstep import final_m_step
from loger.learning.tune import (
    POPULARITY_EXPONENTS,
    RECENCY_EXPONENTS,
    STRENGTH_EXPONENTS,
    choose_encoders,
    drop_derived_rules_if_harmful,
    smallest_encoder_share,
    tuned,
)
from loger.logic.config import DerivedConfig, EMConfig, Tried
from loger.logic.mining import Mined, mine
from loger.metrics import ranking
from loger.ranking.ranker import Ranker, sampled
from loger.rules import RuleSet, named_rules

log = logging.getLogger(__name__)

Kept = tuple[dict[str, Any], Arrays]
"""A stage as it is written: plain values and arrays."""
Result = TypeVar("Result")

MEASURED_USERS = 5_000
"""The most users that a fit is measured on. The standard error is then below 0.005, and measuring
takes a small part of the fit's time."""


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit: its settings, what creates its encoder, and where it runs."""

    config: LOGERConfig
    make_encoder: Callable[[], Encoder]
    engine: Engine
    progress: Progress
    checkpoint: Path | None = None

    def run(
        self,
        split: Split,
        tune: Mapping[str, Sequence[Any]] | None = None,
        *,
        hold_out: bool = True,
    ) -> Fitted:
        """Learn from train, choose on validation, learn from both, and measure on the test part;
        unless ``hold_out``, learn from the test part as well.

        The encoders train in the background: that of train during mining and tuning, that of both
        parts during EM, that of everything during the measurement.

        Args:
            split: the parts of a data set.
            tune: settings to try, with their values; None tries ``grid``.
            hold_out: whether the test part stays unknown.
        """
        _check_validation(split)
        with Background(self.engine) as background:
            first = background.start(partial(self._encoder, split.graph, "first"))
            mined, (derived, tried) = self.mined(split), self.derived(split)
            encoder, both = first(self.progress), split.refit()
            sequence = self.sequence(split, encoder)
            train_last = partial(self._encoder, both.graph, "last")
            # E-steps train the encoder as well: with rounds, one training at a time.
            last = train_last if self.config.em.rounds else background.start(train_last)
            problem = self.problem(split, mined, derived, encoder)
            em, fitted, more = self.learned(problem, self.grid(split, tune), sequence)
            config = replace(
                self.config,
                derived=derived.used_by(fitted.logic.rules),
                em=em.config,
                mining=self.config.mining.for_pairs(len(split.train)),
            )
            ranker = self._on_all(both, last(self.progress), em, fitted, config, "last")
            every, for_use = split.whole(), None
            if not hold_out and len(split.test):
                for_use = background.start(partial(self._encoder, every.graph, "whole"))
            measured = measure(ranker, split, self.engine) if len(split.test) else None
            if for_use is None:
                ranker = replace(ranker, held_out=Pairs.sorted(*split.pairs("test")))
            else:
                ranker = self._on_all(every, for_use(self.progress), em, fitted, config, "whole")
            learned = config, fitted.trace, tried + more, mined, self._reasoner(ranker)
        return Fitted(ranker, *learned, catalogue=split.dataset.catalogue, measured=measured)

    def learned(
        self,
        problem: Callable[[EMConfig], EM],
        grid: Mapping[str, Sequence[Any]],
        sequence: SequenceEncoder | None = None,
    ) -> tuple[EM, FittedLogic, list[Tried]]:
        """The problem with the settings that validation chose, the model that it taught, and what
        was tried."""
        stages = self.stages
        start = partial(started, stages=stages)
        em, first, settings = tuned(problem, self.config.em, grid, start)
        em, first, encoders = choose_encoders(em, first, sequence, start)
        first, derived = drop_derived_rules_if_harmful(em, first)
        em, first, shares = smallest_encoder_share(em, first)
        fitted = em.run(first)
        final = partial(final_m_step, em, fitted)
        fitted = _logic_once(em, stages, "final", (logic_parts(fitted),), final)
        return em, fitted, settings + encoders + derived + shares

    def grid(
        self, split: Split, tune: Mapping[str, Sequence[Any]] | None = None
    ) -> Mapping[str, Sequence[Any]]:
        """What to try on development users: ``tune`` or, by default, the exponents of a walk that
        the data and the settings have a use for."""
        if tune is not None:
            return tune
        graph, out = split.graph, dict[str, Sequence[Any]]()
        walks = self.config.em.active_walk is not None
        weighs_histories = walks or self.config.encoder.users == "history"
        if graph.times is not None and weighs_histories:
            out["recency"] = RECENCY_EXPONENTS
        if graph.strengths is not None and weighs_histories:
            out["strength"] = STRENGTH_EXPONENTS
        return {**out, "popular": POPULARITY_EXPONENTS} if walks else out

    def warm(self, split: Split, before: Fitted, *, hold_out: bool = True) -> Fitted:
        """Learn from everything but what is held out, starting from a model of earlier data.

        Settings, rules and weights stay. Derived relations are made again, and the encoder
        continues from its vectors. So nothing is chosen, and no validation is needed. Nothing is
        measured either, because the starting model may know what is held out; the result keeps that
        model's figures.
        """
        split = split if hold_out else split.whole()
        graph = derive(split.refit(), before.config.derived, self.progress)
        old, was = whole(before.ranker.graph), before.ranker
        _check_test_is_new(split, was)
        if not isinstance(was.encoder, AdditiveEncoder):
            raise LogerError(
                f"{type(was.encoder).__name__} can't continue from the vectors of another model; "
                "fit from scratch"
            )
        folder, moved = self._folder("warm"), Moved.by_name(old, graph.given)
        encoder = was.encoder.grown(moved)
        encoder = encoder.fit(graph.given, warm=True, checkpoint=folder, progress=self.progress)
        sequence = was.sequence
        if sequence is not None:
            assert isinstance(encoder, TransE)
            sequence = sequence.grown(moved, old.n_users, encoder).fit(
                graph.given, encoder, warm=True, checkpoint=folder and folder / "sequence",
                progress=self.progress,
            )  # fmt: skip
        rules = named_rules(graph, [rule.names for rule in was.logic.rules])
        logic = replace(was.logic, rules=rules)
        ranker = Ranker.of(graph, encoder, logic, was.fusion, was.walk, was.sample)
        held_out = Pairs.sorted(*split.pairs("test"))
        ranker = replace(ranker, held_out=held_out, sequence=sequence)
        return Fitted(
            ranker,
            before.config,
            before.trace,
            before.tried,
            mined_on(before.mined, graph.given),
            replace(self, config=before.config)._reasoner(ranker),
            catalogue=split.dataset.catalogue,
            measured=before.measured,
        )

    def derived(self, split: Split) -> tuple[DerivedConfig, list[Tried]]:
        """How relations are derived from the interactions, and what was tried.

        There are none for the paper's M-step: it learns from observed pairs, from which derived
        facts would be made. There are none for the path reasoner either: it needs vectors of
        relations, and derived ones have none.
        """
        config = self.config
        if config.em.likelihood == "pseudo" or config.explain_by == "reasoner":
            return DerivedConfig.none(), []
        return self.stages.once(
            "derived",
            (split.graph.fingerprint, split.pairs("validation"), self.config),
            lambda: choose(split, self.config.derived, self.config.seed, self.engine),
            lambda found: ({"config": asdict(found[0]), "tried": found[1]}, {}),
            lambda values, _: (
                from_names(DerivedConfig, values["config"], "derived"),
                [(name, value, ndcg) for name, value, ndcg in values["tried"]],
            ),
        )

    def mined(self, split: Split) -> Mined:
        """The rules of the training part."""
        _check_validation(split)  # before the work, which would be in vain
        graph, config = split.graph, self.config.mining

        def compute() -> Mined:
            mined = mine(graph, config, self.engine)
            if not len(mined.rules):
                raise LogerError(
                    f"no rule was found in {mined.pairs:,} training pairs ({mined.story()}); add "
                    "interactions of users who share items, or facts that items share"
                )
            return mined

        return self.stages.once(
            "mining",
            (graph.fingerprint, config),
            compute,
            lambda mined: (mined.record(), {}),
            lambda values, _: Mined.of_record(graph, values),
        )

    def problem(
        self,
        split: Split,
        mined: Mined | None = None,
        derived: DerivedConfig | None = None,
        encoder: Encoder | None = None,
    ) -> Callable[[EMConfig], EM]:
        """Makes the problem of EM for any settings: rules and an encoder of train, and validation
        to learn from. What isn't given is computed."""
        held_out = split.pairs("validation")
        mined = self.mined(split) if mined is None else mined
        graph = derive(split, derived or self.derived(split)[0], self.progress)
        # Derived relations shift the numbers of inverse relations, so rules are found by name.
        known = named_rules(graph, [rule.names for rule in mined.rules])
        rules = RuleSet((*known, *derived_rules(graph)))
        encoder = encoder or self._encoder(graph, "first", self.progress)
        logic_graph = sampled(graph, self.config.sample)
        return lambda settings: EM(
            graph,
            encoder,
            rules,
            held_out,
            settings,
            logic_graph=logic_graph,
            engine=self.engine,
            progress=self.progress,
            checkpoint=self.checkpoint,
        )

    def _on_all(
        self,
        split: Split,
        encoder: Encoder,
        first: EM,
        fitted: FittedLogic,
        config: LOGERConfig,
        stage: str,
    ) -> Ranker:
        """The model on all of a split's train part: the weights stay, and its encoder repeats the
        E-steps of the rounds that were kept."""
        graph = derive(split, config.derived, self.progress)
        walk, sample = config.em.walk, self.config.sample
        # Relations have other numbers if a derived one was dropped.
        rules = named_rules(graph, [rule.names for rule in fitted.logic.rules])
        logic = replace(fitted.logic, rules=rules)
        ranker, em = Ranker.of(graph, encoder, logic, fitted.fusion, walk, sample), config.em
        if fitted.fusion.sequence:
            ranker = replace(ranker, sequence=self._sequence(split.graph, encoder, stage))
        rounds = kept_rounds(fitted.trace, em.early_stop)
        calibration = first.over_hidden(fitted)[0] if rounds else Calibration()
        for number in range(rounds):
            hidden = select_hidden(ranker, em.max_hidden, em.tau, calibration, self.engine).pairs
            encoder.fit(
                graph.given,
                hidden=hidden,
                warm=True,
                checkpoint=self._folder(f"{stage}-round-{number + 1}"),
                progress=self.progress,
            )
        return ranker

    def _reasoner(self, ranker: Ranker) -> PathReasoner | None:
        """φ, trained to follow the rules in proportion to their weights; None if the settings don't
        explain by it, or if no rule has a positive weight."""
        config = self.config
        if config.explain_by != "reasoner" or not (ranker.logic.weights > 0).any():
            return None
        from loger.reasoner.walker import Reasoner

        tables = vectors(ranker.encoder, whole(ranker.graph))
        walker = Reasoner(config.reasoner).fit(
            whole(ranker.logic_graph),
            ranker.logic.rules,
            ranker.logic.weights,
            *tables,
            checkpoint=self.checkpoint,
            progress=self.progress,
        )
        return PathReasoner(walker, config.search)

    def _encoder(self, graph: KnowledgeGraph, stage: str, progress: Progress) -> Encoder:
        """A new encoder, trained on the given facts of a graph."""
        folder = self._folder(stage)
        return self.make_encoder().fit(graph.given, checkpoint=folder, progress=progress)

    def sequence(self, split: Split, encoder: Encoder) -> SequenceEncoder | None:
        """A sequence encoder of train; None if the data has no times, if scores aren't plain sums,
        or if too few users have labels to decide whether it helps."""
        em, labelled = self.config.em, len(np.unique(split.pairs("validation")[0]))
        sums = em.additive and em.likelihood == "listwise" and em.fusion == "logit"
        able = isinstance(encoder, TransE) and has_sums(encoder) and self.config.sequence.epochs
        if not (sums and able and labelled >= em.many_labels and split.graph.times is not None):
            return None
        return self._sequence(split.graph, encoder, "first")

    def _sequence(self, graph: KnowledgeGraph, encoder: Encoder, stage: str) -> SequenceEncoder:
        assert isinstance(encoder, TransE)
        return SequenceEncoder(self.config.sequence).fit(
            graph.given, encoder, checkpoint=self._folder(f"{stage}-sequence"),
            progress=self.progress,
        )  # fmt: skip

    def _folder(self, stage: str) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint) / stage

    @property
    def stages(self) -> Stages:
        """The stages that an earlier run of this fit has kept, if there is a checkpoint."""
        return Stages(self._folder("stages"))


def measure(ranker: Ranker, split: Split, engine: Engine) -> Measured:
    """How good a ranker is on the test part of a split, which it must not know.

    It ranks all items, as ``loger.evaluation.evaluate`` does.
    """
    owners, items = split.pairs("test")
    users = np.unique(owners)
    if len(users) > MEASURED_USERS:
        some = np.random.default_rng(0).choice(users, MEASURED_USERS, replace=False)
        users = np.sort(some)
    there = np.isin(owners, users)
    rows = np.searchsorted(users, owners[there])
    lists, _ = ranker.top(users, 10, engine)
    found, n = ranking.hits(lists, rows, items[there]), np.bincount(rows, minlength=len(users))
    ndcg, recall = (float(part(found, n).mean()) for part in (ranking.ndcg, ranking.recall))
    return Measured(ndcg, recall, users=len(users), interactions=int(there.sum()))


def _check_test_is_new(split: Split, ranker: Ranker) -> None:
    """Raise an error if the starting model knows any of the test interactions."""
    graph, words = whole(ranker.graph), split.dataset.vocabulary
    users, items = graph.vocabulary.ids("user"), graph.vocabulary.ids("item")
    first, names = split.dataset.n_users, words.names
    pairs = [
        (users[names[u]], items[names[first + v]])
        for u, v in zip(*split.pairs("test"), strict=True)
        if names[u] in users and names[first + v] in items
    ]
    known = sum(graph.has(u, INTERACTION, v) for u, v in pairs)
    if known:
        raise LogerError(
            f"the starting model has already seen {known:,} of the {len(split.test):,} test "
            "interactions; hold none out (test=0) or fit from scratch"
        )


def _check_validation(split: Split) -> None:
    if not len(split.validation):
        raise LogerError(
            f"{split.dataset.name} has no validation pairs to learn rule weights from; "
            "split it with validation=0.1"
        )


# ── stages: a fit that is killed loses at most the stage it was in ───────────────────────


@dataclass(frozen=True, slots=True)
class Stages:
    """The results of a fit's stages, kept in a folder; None keeps nothing."""

    folder: Path | None

    def once(
        self,
        name: str,
        run: tuple[object, ...],
        compute: Callable[[], Result],
        pack: Callable[[Result], Kept],
        unpack: Callable[[dict[str, Any], Arrays], Result],
    ) -> Result:
        """The result of a stage: read if an earlier run kept it, else computed and kept.

        Args:
            name: the stage's name, and that of its folder.
            run: everything that determines the result.
            compute: computes it.
            pack: turns it into plain values and arrays.
            unpack: turns these back into the result.
        """
        place = None if self.folder is None else Path(self.folder) / name
        saved = Saved(place, name, __version__, *run)
        kept = saved.read()
        if kept is not None:
            try:
                return unpack(*kept)
            except (LogerError, KeyError, TypeError, ValueError) as error:
                log.warning("can't reuse %s, so loger computes it again: %s", place, error)
        result = compute()
        if place is not None:
            saved.write(*pack(result))
        return result


# ── the stages of EM ────────────────────────────────────────────────────────────────────


def started(em: EM, stages: Stages) -> FittedLogic:
    """The first M-step of a problem."""
    walks = em.candidates.walks
    name = f"start-{digest((em.config, walks))[:8]}{'-sequence' if em.sequence else ''}"
    return _logic_once(em, stages, name, (walks,), em.start)


def _logic_once(
    em: EM, stages: Stages, name: str, run: tuple[object, ...], compute: Callable[[], FittedLogic]
) -> FittedLogic:
    return stages.once(
        name,
        (*_problem(em), *run) if stages.folder else (),
        compute,
        logic_parts,
        lambda values, arrays: logic_of(em.graph, em.encoder, em.config, values, arrays),
    )


def _problem(em: EM) -> tuple[object, ...]:
    """Everything that determines the result of EM."""
    rules = [rule.relations for rule in em.rules]
    held_out = em.held_out.indptr, em.held_out.indices
    graphs = em.graph.fingerprint, whole(em.logic_graph).fingerprint
    order = None if em.sequence is None else em.sequence.state()
    return graphs, em.config, rules, held_out, em.encoder.state(), order
