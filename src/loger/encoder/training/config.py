"""What determines a training: the settings that all models share, hidden pairs, and a digest.

Nothing here loads PyTorch: settings are read and bundles opened without it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Settings of everything that is trained by gradient steps: encoders and neural baselines.

    Each model's own settings extend these, with other defaults where it needs them.
    """

    epochs: int = 10
    batch: int = 1024
    rate: float = 1e-2
    """The learning rate at the start …"""
    final_rate: float = 1e-3
    """… and at the end; it falls linearly from the one to the other."""
    seed: int = 0
    device: str | None = None
    """Where to train; None takes a GPU if there is one."""

    def rate_after(self, done: float) -> float:
        """The learning rate when this share of the training, 0 to 1, is done."""
        return self.rate + done * (self.final_rate - self.rate)


@dataclass(frozen=True, eq=False)
class HiddenPairs:
    """Interactions to learn from in addition to the graph's: H⁺ of the E-step, with weights p."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32]

    def drawn_with(
        self, interactions: tuple[Ids, Ids], first_item: int, seed: int, epoch: int, warm: bool
    ) -> tuple[Ids, Ids]:
        """Heads and tails that an epoch samples from: the interactions and some hidden pairs.

        Each hidden pair is included with a probability equal to its weight. So the many pairs of
        low weight don't displace real interactions, and the loss needs no weights.
        """
        rng = np.random.default_rng([seed, 0x41DD, epoch, warm])
        often = (self.weights + rng.random(len(self.weights))).astype(np.int64)
        users, items = (np.repeat(x, often).astype(np.int64) for x in (self.users, self.items))
        known, owned = interactions
        return np.concatenate([known, users]), np.concatenate([owned, items + first_item])


def digest(thing: Any) -> str:
    """A digest of settings and arrays, nested in any way.

    Two runs with equal digests do the same work, so one may resume what the other saved.
    """
    made = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, np.ndarray):
            made.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        elif hasattr(x, "cpu"):  # a tensor of PyTorch, which is not imported for its sake
            add(x.cpu().numpy())
        elif is_dataclass(x) and not isinstance(x, type):
            add(type(x).__name__)
            add(asdict(x))
        elif isinstance(x, dict):
            for key in sorted(x):
                add(key)
                add(x[key])
        elif isinstance(x, tuple | list):
            for part in x:
                add(part)
        else:
            made.update(repr(x).encode())
        made.update(b"\0")

    add(thing)
    return made.hexdigest()
