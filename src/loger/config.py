"""All settings of LOGER, and the presets: the default and the paper's."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from loger.em import EMConfig
from loger.encoder.transe import TransEConfig
from loger.errors import UnknownNameError
from loger.grounding import Walk
from loger.rules.mining import MiningConfig


@dataclass(frozen=True, slots=True)
class LOGERConfig:
    """All settings; the defaults are the best measured, one configuration for all data."""

    mining: MiningConfig = field(default_factory=MiningConfig)
    em: EMConfig = field(default_factory=EMConfig)
    encoder: TransEConfig = field(default_factory=TransEConfig)
    sample_nodes: int | None = None
    """Neighbours of an entity under a relation that are looked at; None: all of them."""
    seed: int = 0
    """Every stage draws from a stream of its own that begins here."""

    @classmethod
    def paper(cls, rounds: int = 4, seed: int = 0) -> LOGERConfig:
        """As published: rules of three hops, 100 sampled nodes, Eq. 1, α = 0.3, τ = 0.5,
        gradient ascent; 4, 2 and 3 rounds for Cellphones, Grocery and Automotive."""
        return cls(
            mining=MiningConfig(min_hops=3, min_support=50, min_lift=2.0),
            em=EMConfig(
                feature="set",
                likelihood="pseudo",
                fusion="sum",
                popularity=False,
                l2=0.0,
                rounds=rounds,
                early_stop=False,
                max_hidden=50,
                tau=0.5,
                rate=1e-5,
                steps=200,
            ),
            encoder=TransEConfig(
                users="free", distance="squared", loss="adversarial", batch=512, warm_epochs=1
            ),
            sample_nodes=100,
            seed=seed,
        )

    def seeded(self) -> LOGERConfig:
        """The settings with each stage's seed from the one above."""
        return replace(
            self,
            mining=replace(self.mining, seed=self.seed),
            em=replace(self.em, seed=self.seed),
            encoder=replace(self.encoder, seed=self.seed),
        )

    @property
    def sample(self) -> tuple[int, int] | None:
        """How the graph that rules are grounded in is sampled: nodes and seed."""
        return None if self.sample_nodes is None else (self.sample_nodes, self.seed)


def with_setting(config: EMConfig, name: str, value: Any) -> EMConfig:
    """The settings with one changed, of their own or of their walk."""
    of_walk, known = ([f.name for f in fields(kind)] for kind in (Walk, EMConfig))
    if name in of_walk:
        return replace(config, walk=replace(config.walk, **{name: value}))
    if name not in known:
        raise UnknownNameError("setting", name, [*known, *of_walk])
    return replace(config, **{name: value})
