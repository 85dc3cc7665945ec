"""A short run of hostile_bundles.py; the long one is `make torture`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.errors import DataError
from loger.model import LOGER, LOGERConfig

SCRIPT = Path(__file__).with_name("hostile_bundles.py")


@pytest.mark.long
def test_no_damaged_or_forged_bundle_crashes_or_changes_a_list_silently() -> None:
    command = [sys.executable, str(SCRIPT), "120", "7000000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert set(counts) - {"seconds", "most_mb"} == {"refused", "loaded"}, done.stderr
    assert counts["refused"] > 50
    assert counts["loaded"] > 10  # else nothing was tried beyond the checks


@pytest.mark.parametrize("odd", [float("nan"), 3e38])
def test_vectors_whose_products_are_no_numbers_are_refused_whoever_signed_them(
    odd: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    sign = import_module("hostile_bundles").sign
    config = LOGERConfig(encoder=TransEConfig(dimension=4, epochs=1))
    model = LOGER(config).fit(split(shop(users=60, items=60).dataset), progress=False)
    model.save(tmp_path / "bundle")
    path = tmp_path / "bundle" / "encoder.safetensors"
    arrays = {name: np.array(array) for name, array in load_file(path).items()}
    arrays["entities.table"][3, 2] = odd
    save_file(arrays, path)
    sign(tmp_path / "bundle")
    with pytest.raises(DataError, match="must be finite and at most 1e"):
        LOGER.load(tmp_path / "bundle")
