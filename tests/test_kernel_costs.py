"""Kernels do no more work than they did: steps are counted, so no noise excuses and none hides.

If a kernel has become dearer on purpose, store the new counts and say why in the commit:
``python benchmarks/kernel_costs.py --write``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import loger

ROOT = Path(__file__).resolve().parents[1]


def counted(source: Path) -> subprocess.CompletedProcess[str]:
    """What the benchmark says of the kernels in a source tree, beside the stored counts."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "kernel_costs.py")],
        env=os.environ | {"PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_no_kernel_does_more_than_what_is_stored() -> None:
    done = counted(Path(loger.__file__).parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" steps ") == 9


def test_a_kernel_that_does_half_as_much_again_is_noticed(tmp_path: Path) -> None:
    shutil.copytree(
        Path(loger.__file__).parent, tmp_path / "loger", ignore=shutil.ignore_patterns("*.nb?")
    )
    kernel = tmp_path / "loger" / "training" / "adam.py"
    text, loop = kernel.read_text(encoding="utf-8"), "            for j in range(d):\n"
    body = loop + "                g[j] += w * own[j]\n"
    assert body in text
    wasteful = body + loop + "                g[j] += np.float32(0) * own[j]\n"
    kernel.write_text(text.replace(body, wasteful), encoding="utf-8")
    done = counted(tmp_path)
    assert done.returncode != 0
    assert done.stderr.strip().endswith("row-wise Adam")  # and no other
