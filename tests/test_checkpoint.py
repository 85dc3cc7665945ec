"""The same fit resumes from a checkpoint completely, or not at all."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loger.encoder.training import FOLDER, Checkpoint
from loger.engine.files import MANIFEST, checksum, manifest_digest
from loger.engine.saved import FILE


def state(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((3, 2), value), "b": torch.full((4,), value)}


def signed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint and make its checksums true again."""
    tensors = dict(load_file(folder / FILE))
    change(tensors)
    save_file(tensors, folder / FILE)
    parts = json.loads((folder / MANIFEST).read_text())
    parts.pop("sha256")
    parts["files"] = {FILE: checksum(folder / FILE)}
    (folder / MANIFEST).write_text(json.dumps({**parts, "sha256": manifest_digest(parts)}))


def test_a_checkpoint_is_taken_up_by_the_same_fit_only(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "fit", 1).save(5, state(2.0))
    begun = state(0.0)
    assert Checkpoint(tmp_path, "fit", 2).resume(begun) == 0
    assert begun["a"].sum() == 0
    assert Checkpoint(tmp_path, "fit", 1).resume(begun) == 5
    assert torch.equal(begun["b"], state(2.0)["b"])


CHANGES = {
    "a tensor is missing": lambda t: t.pop("b"),
    "one too many": lambda t: t.update(c=torch.zeros(1)),
    "another shape that would be stretched": lambda t: t.update(a=torch.ones(1, 2)),
    "another type": lambda t: t.update(a=t["a"].double()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_state_that_does_not_fit_changes_nothing_and_is_told(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], caplog
) -> None:
    Checkpoint(tmp_path, "fit").save(5, state(2.0))
    signed(tmp_path / FOLDER, change)
    begun = state(0.0)
    with caplog.at_level(logging.WARNING):
        assert Checkpoint(tmp_path, "fit").resume(begun) == 0
    assert all(tensor.sum() == 0 for tensor in begun.values())
    assert "starting from scratch" in caplog.text


def test_a_flipped_bit_anywhere_in_a_checkpoint_starts_the_fit_afresh(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "fit").save(5, state(2.0))
    for file in sorted((tmp_path / FOLDER).iterdir()):
        whole = file.read_bytes()
        for place in range(0, len(whole), 7):
            raw = bytearray(whole)
            raw[place] ^= 4
            file.write_bytes(raw)
            begun = state(0.0)
            done = Checkpoint(tmp_path, "fit").resume(begun)
            # White space in the manifest carries nothing.
            assert done == 0 or (file.name == MANIFEST and torch.equal(begun["a"], state(2.0)["a"]))
        file.write_bytes(whole)
