"""Hidden pairs: what an encoder learns from besides the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class HiddenPairs:
    """Interactions to learn from besides those of the graph: H⁺ of the E-step, with weights p."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32]
