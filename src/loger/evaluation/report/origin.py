"""Which loger made a report."""

from __future__ import annotations

import subprocess
from pathlib import Path

from loger import __version__


def origin() -> str:
    """The version, and the commit if loger runs from a checkout."""
    checkout = Path(__file__).resolve().parents[4]
    if not (checkout / ".git").exists():
        return __version__
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    commit = answer.stdout.strip()
    return f"{__version__}, commit {commit}" if commit else __version__
