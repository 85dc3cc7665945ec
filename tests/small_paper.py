"""The preset `paper` made small, for tests that fit it."""

from __future__ import annotations

from dataclasses import replace

from loger.config import LOGERConfig
from loger.data import Split, split
from loger.data.demo import shop


def small_paper(epochs: int = 3) -> LOGERConfig:
    config = LOGERConfig.paper(rounds=1)
    return replace(
        config,
        mining=replace(config.mining, min_support=10),
        encoder=replace(config.encoder, dimension=12, epochs=30),
        reasoner=replace(config.reasoner, epochs=epochs),
    )


def small_split() -> Split:
    return split(shop(seed=2, users=120, items=100).dataset)
