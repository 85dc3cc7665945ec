"""Checkpoints of a fit: written whole or not at all, and only taken up by the same fit."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FILE = "encoder.checkpoint.safetensors"


class Checkpoint:
    """The saved state of a fit, known by a digest of all that determines its course."""

    def __init__(self, folder: Path | None, *course: object) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self.course = "" if folder is None else _digest(course)

    def resume(self, tensors: dict[str, Tensor]) -> int:
        """Take up a saved state of the same fit; how many epochs it had done, else 0."""
        if self.path is None or not self.path.is_file():
            return 0
        try:
            with safe_open(self.path, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("course") != self.course:
                    return 0
                for name, tensor in tensors.items():
                    tensor.copy_(file.get_tensor(name))
                return int(about["epochs"])
        except (SafetensorError, OSError):
            return 0

    def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Write the state so that a kill at any moment leaves this one or the one before."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        about = {"course": self.course, "epochs": str(epochs)}
        save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, unfinished, about)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(self.path)


def _digest(thing: Any) -> str:
    """A digest of settings and arrays, however nested."""
    digest = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, np.ndarray):
            digest.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        elif isinstance(x, torch.Tensor):
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
            digest.update(repr(x).encode())
        digest.update(b"\0")

    add(thing)
    return digest.hexdigest()
