"""eSASRec: SASRec with gated blocks and several next items as targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from loger.baselines.sasrec import SASRec, SASRecConfig


class ESASRec(SASRec):
    """Tikhonovich et al., RecSys 2025, "eSASRec: Enhancing Transformer-based Recommendations in a
    Modular Fashion": the objective of SASRec, the blocks of LiGR (Borisyuk et al. 2024), where a
    gate σ(W x) scales what attention and SwiGLU add, and a softmax over sampled items.

    Each place has the next 10 items as targets, the k-th counting k^-½. All else is SASRec's.
    """

    name = "eSASRec"
    defaults: ClassVar[SASRecConfig] = SASRecConfig(epochs=16, targets=10, length=200)
    GRID: ClassVar[Mapping[str, Sequence[Any]]] = {"dropout": (0.2, 0.4), "epochs": (16, 32)}
    gated = True
