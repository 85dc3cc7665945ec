"""What long work saves as it goes, so that a killed run loses little: plain values and arrays."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from loger.engine.files import Kind, atomic_folder, check_files, kind_of, read_manifest
from loger.errors import LogerError

log = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[np.generic]]
CHECKPOINT = Kind("checkpoint", "checkpoint", 2, "delete it")
FILE = "state.safetensors"


class Saved:
    """A folder for what a run saves; None saves nothing.

    ``run`` is everything that determines the result: only a run of the same work reads it.
    """

    def __init__(self, folder: Path | None, *run: object) -> None:
        self.folder = folder
        self.run_key = "" if folder is None else digest(run)

    def read(self) -> tuple[dict[str, Any], Arrays] | None:
        """What an earlier run of the same work saved; None if it's missing or damaged."""
        if self.folder is None or not self.folder.is_dir():
            return None
        try:
            manifest = read_manifest(self.folder, CHECKPOINT)
            if manifest.about.get("run_key") != self.run_key:
                return None
            check_files(self.folder, manifest, CHECKPOINT)
            return manifest.about["values"], load_file(self.folder / FILE)
        except (LogerError, KeyError, OSError, SafetensorError, ValueError) as error:
            log.warning("starting from scratch: %s", error)
            return None

    def write(self, values: Mapping[str, Any], arrays: Arrays) -> None:
        """Save; a kill at any moment leaves either this or what was there before."""
        if self.folder is None:
            return
        if self.folder.is_dir() and kind_of(self.folder) != CHECKPOINT.name:
            shutil.rmtree(self.folder)  # damaged, so useless
        about = {"run_key": self.run_key, "values": values}
        with atomic_folder(self.folder, CHECKPOINT, about) as part:
            # In the order of C, which ``ascontiguousarray`` would do too, but it reshapes scalars.
            save_file({k: np.asarray(v, order="C") for k, v in arrays.items()}, part / FILE)


def digest(thing: Any) -> str:
    """A digest of settings and arrays, nested in any way.

    Two runs with equal digests do the same work, so one may resume what the other saved.
    """
    made = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, np.ndarray):
            made.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        elif hasattr(x, "cpu"):  # a tensor: PyTorch isn't imported just to test for it
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
