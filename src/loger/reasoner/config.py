"""Settings of the path reasoner; light to import, so that a model can be opened without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

MARGIN = 0.2
"""By which the true hop is to win."""
NEIGHBOURS = 8
"""Other neighbours of the node that the true entity is held against …"""
STRANGERS = 8
"""… and entities of its type from anywhere."""
FINAL_RATE = 3e-4
"""The learning rate at the end."""


@dataclass(frozen=True, slots=True)
class ReasonerConfig:
    """Settings of the reasoner; see ``PAPER`` for those of the paper."""

    attention: Literal["softmax", "sigmoid"] = "softmax"
    """Over the relations that leave the node, or (the paper) over all."""
    sees_user: bool = True
    """Whether the gates see where the walk began."""
    likeness: Literal["cosine", "dot"] = "cosine"
    """Cosine after a projection, or (the paper) the plain product."""
    paths_per_pair: int = 2
    """Training paths drawn for an observed pair …"""
    paths_per_user: int = 20
    """… and for all pairs of a user at most."""
    epochs: int = 6
    batch: int = 512
    rate: float = 3e-3
    """The learning rate at first; it falls linearly to ``FINAL_RATE``."""
    seed: int = 0
    FORMER: ClassVar[Mapping[str, Any]] = {
        "margin": MARGIN, "neighbours": NEIGHBOURS, "strangers": STRANGERS,
        "final_rate": FINAL_RATE,
    }  # fmt: skip


PAPER = ReasonerConfig(attention="sigmoid", sees_user=False, likeness="dot")
"""The cell as the paper has it."""
