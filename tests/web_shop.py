"""A small shop to serve."""

from __future__ import annotations

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig

HOSTILE = '<img src=x onerror="document.title=1"> & "quotes"'
SMALL = LOGERConfig(encoder=TransEConfig(dimension=16, epochs=3))


def another_shop() -> LOGER:
    return LOGER(SMALL).fit(split(shop(seed=3, users=60, items=60).dataset), tune={})


def item_names(model: LOGER) -> list[str]:
    words = model.graph_.vocabulary
    return [words.names[i] for i in words.span("item")]
