"""``loger fit`` gives the same bundle with every local engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loger.data.demo import shop

QUICK = "--set", "em.teacher=0", "--set", "derived.tune=false"


def test_a_default_fit_is_the_same_in_threads_and_in_processes(tmp_path: Path) -> None:
    """In a fit the encoder's thread imports PyTorch while blocks are sent to workers."""
    shop(users=60, items=60).dataset.save(tmp_path / "shop")
    bundles = []
    for engine in ("threads=2", "processes=2"):
        out = tmp_path / engine
        command = [sys.executable, "-m", "loger", "--engine", engine, "fit", str(tmp_path / "shop")]
        done = subprocess.run(
            [*command, "-o", str(out), *QUICK], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        bundles.append({file.name: file.read_bytes() for file in out.glob("*.safetensors")})
    assert bundles[0] == bundles[1]
