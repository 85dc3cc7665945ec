"""Checkpoints of a fit: written whole or not at all, and only taken up by the same fit."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from loger.encoder.training.digest import digest
from loger.engine.files import Kind, atomic_folder, check_files, kind_of, read_manifest
from loger.errors import DataError

log = logging.getLogger(__name__)

CHECKPOINT = Kind("checkpoint", "checkpoint", 1, "delete it")
FOLDER, FILE = "checkpoint", "state.safetensors"


class Checkpoint:
    """The saved state of a fit, known by a digest of all that determines its run."""

    def __init__(self, folder: Path | None, *run: object) -> None:
        self.folder = None if folder is None else Path(folder) / FOLDER
        self.run_key = "" if folder is None else digest(run)

    def resume(self, tensors: dict[str, Tensor]) -> int:
        """Take up a saved state of the same fit; how many epochs it had done, else 0.

        A state that is damaged or of another fit leaves the tensors as they are.
        """
        if self.folder is None or not self.folder.is_dir():
            return 0
        try:
            manifest = read_manifest(self.folder, CHECKPOINT)
            if manifest.about.get("run_key") != self.run_key:
                return 0
            check_files(self.folder, manifest, CHECKPOINT)
            state = _whole(load_file(self.folder / FILE), tensors, self.folder)
            epochs = int(manifest.about["epochs"])
        except (DataError, KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
            log.warning("starting afresh: %s", error)
            return 0
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
        return epochs

    def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Write the state so that a kill at any moment leaves this one or the one before."""
        if self.folder is None:
            return
        if self.folder.is_dir() and kind_of(self.folder) != CHECKPOINT.name:
            shutil.rmtree(self.folder)  # damaged: nothing in it is of use
        about = {"run_key": self.run_key, "epochs": epochs}
        with atomic_folder(self.folder, CHECKPOINT, about) as part:
            save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, part / FILE)


def _whole(state: dict[str, Tensor], tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """A saved state, if it has all of a fit's tensors and no others, in their shapes and types."""
    found, wanted = ({k: (v.shape, v.dtype) for k, v in x.items()} for x in (state, tensors))
    if found != wanted:
        differ = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
        raise DataError(f"does not fit this fit: {', '.join(differ)}", path=folder / FILE)
    return state
