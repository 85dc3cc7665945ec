"""A digest of all that determines a run, so that only the same run takes up what was kept."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np


def digest(thing: Any) -> str:
    """A digest of settings and arrays, however nested."""
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
