"""Checkpoints of a fit: written whole or not at all, and only taken up by the same fit."""

from __future__ import annotations

import hashlib
import logging
import shutil
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from loger.errors import DataError
from loger.files import Kind, atomic_folder, check_files, kind_of, read_manifest

log = logging.getLogger(__name__)

CHECKPOINT = Kind("checkpoint", "checkpoint", 1, "delete it")
FOLDER, FILE = "checkpoint", "state.safetensors"


class Checkpoint:
    """The saved state of a fit, known by a digest of all that determines its run."""

    def __init__(self, folder: Path | None, *run: object) -> None:
        self.folder = None if folder is None else Path(folder) / FOLDER
        self.run_key = "" if folder is None else _digest(run)

    def resume(self, tensors: dict[str, Tensor]) -> int:
        """Take up a saved state of the same fit; how many epochs it had done, else 0.

        A state that is damaged or of another fit leaves the tensors as they are.
        """
        if self.folder is None or not self.folder.is_dir():
            return 0
        try:
            manifest = read_manifest(self.folder, CHECKPOINT)
            if manifest.about["run_key"] != self.run_key:
                return 0
            check_files(self.folder, manifest, CHECKPOINT)
            state = load_file(self.folder / FILE)
        except DataError as error:
            log.warning("starting afresh: %s", error)
            return 0
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
        return int(manifest.about["epochs"])

    def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Write the state so that a kill at any moment leaves this one or the one before."""
        if self.folder is None:
            return
        if self.folder.is_dir() and kind_of(self.folder) != CHECKPOINT.name:
            shutil.rmtree(self.folder)  # damaged: nothing in it is of use
        about = {"run_key": self.run_key, "epochs": epochs}
        with atomic_folder(self.folder, CHECKPOINT, about) as part:
            save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, part / FILE)


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
