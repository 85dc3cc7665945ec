"""σ, the logistic function. SciPy has it too, and takes a quarter of a second to import."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def expit(x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """1 / (1 + e⁻ˣ), in double precision.

    >>> expit(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    with np.errstate(over="ignore"):  # e⁻ˣ = ∞ gives 0, as it should
        return 1 / (1 + np.exp(-np.asarray(x, dtype=np.float64)))
