"""All settings of LOGER, and the presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from loger.encoder.sequence import SequenceConfig
from loger.encoder.transe import TransEConfig
from loger.errors import LogerError
from loger.logic.config import DerivedConfig, EMConfig
from loger.logic.mining import MiningConfig
from loger.reasoner.search import ALGORITHM_1, PAPER, ReasonerConfig, SearchConfig


@dataclass(frozen=True, slots=True)
class LOGERConfig:
    """All settings. The defaults gave the best validation results of any single configuration for
    all data sets."""

    mining: MiningConfig = field(default_factory=MiningConfig)
    derived: DerivedConfig = field(default_factory=DerivedConfig)
    """Relations that the fit derives from interactions, as far as they help on validation;
    ``DerivedConfig.none()`` derives none."""
    em: EMConfig = field(default_factory=EMConfig)
    encoder: TransEConfig = field(default_factory=TransEConfig)
    sequence: SequenceConfig = field(default_factory=SequenceConfig)
    """What learns the order of interactions, if the data has times and validation gains by it."""
    explain_by: Literal["contributions", "reasoner"] = "contributions"
    """How recommendations are explained: by paths, sorted by their contribution to the score, or by
    the paths that the path reasoner finds, which is then trained and saved with the model."""
    reasoner: ReasonerConfig = field(default_factory=ReasonerConfig)
    """The path reasoner φ."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How the path reasoner searches."""
    sample_nodes: int | None = None
    """Follow at most this many neighbours of an entity under a relation; None follows all."""
    seed: int = 0
    """Random seed; each stage draws from a stream of its own that starts here."""

    LATER: ClassVar[Mapping[str, Any]] = {"sequence": {"epochs": 0}}
    """Values for settings that older bundles lack; see ``settings.from_names``."""

    def __post_init__(self) -> None:
        if self.sample_nodes is not None and self.sample_nodes < 1:
            raise LogerError(f"sample_nodes must be at least 1, got {self.sample_nodes}")

    @classmethod
    def paper(cls, rounds: int = 4, seed: int = 0) -> LOGERConfig:
        """The published model.

        It has a vector per user, d = 100, rules of three hops over 100 sampled nodes, Eq. 1, H of
        50, τ = 0.5, q + α·p with α = 0.3, φ and Algorithm 1. EM makes at most ``rounds`` rounds, as
        many as help development users (the paper makes 4, 2 and 3 on its three data sets).

        The paper leaves open the loss and learning rate of the encoder and the base rate of q;
        validation chose them, as for every other method.
        """
        return cls(
            mining=MiningConfig(min_hops=3, min_support=50, min_lift=2.0, min_rules=0),
            derived=DerivedConfig.none(),
            em=EMConfig(
                feature="set",
                likelihood="pseudo",
                fusion="sum",
                popularity=False,
                negatives=10.0,
                l2=0.0,
                rounds=rounds,
                max_hidden=50,
                tau=0.5,
                steps=200,
            ),
            encoder=TransEConfig.thorough(users="free", warm_epochs=1),
            explain_by="reasoner",
            reasoner=PAPER,
            search=ALGORITHM_1,
            sample_nodes=100,
            seed=seed,
        )

    @classmethod
    def paper_literal(cls, rounds: int = 4, seed: int = 0) -> LOGERConfig:
        """Like ``paper``, but closer to the authors' code.

        The encoder trains as there (150,000 steps of 512 triples, γ = 24, rate 1e-4; see
        ``encoder.published`` for each choice). An M-step makes 1,000 steps, q is calibrated against
        one item, and all rounds are made, whether they help or not.
        """
        paper = cls.paper(rounds, seed)
        encoder = TransEConfig.thorough(
            users="free", distance="l1", loss="adversarial", gamma=24.0, epochs=30, batch=512,
            rate=1e-4, final_rate=1e-5, warm_epochs=3,
        )  # fmt: skip
        em = replace(paper.em, negatives=1.0, steps=1000, early_stop=False)
        return replace(paper, em=em, encoder=encoder)

    def seeded(self) -> LOGERConfig:
        """The settings with every stage's seed set to ``seed``."""
        return replace(
            self,
            mining=replace(self.mining, seed=self.seed),
            em=replace(self.em, seed=self.seed),
            encoder=replace(self.encoder, seed=self.seed),
            sequence=replace(self.sequence, seed=self.seed),
            reasoner=replace(self.reasoner, seed=self.seed),
        )

    @property
    def sample(self) -> tuple[int, int] | None:
        """How the graph is sampled for grounding rules: number of neighbours and seed."""
        return None if self.sample_nodes is None else (self.sample_nodes, self.seed)


PRESETS: Mapping[str, Callable[[], LOGERConfig]] = {
    "default": LOGERConfig,
    "paper": LOGERConfig.paper,
    "paper-literal": LOGERConfig.paper_literal,
}
