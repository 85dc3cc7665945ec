"""Meaningless facts cost almost nothing, because weights are learned from held-out interactions."""

from pathlib import Path

import numpy as np
import pytest

from loger.config import LOGERConfig
from loger.data.splits import split
from loger.encoder import TransEConfig

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.long
def test_poisoned_facts_cost_at_most_three_per_cent_of_knowing_none(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import poison
    import worlds

    parts = split(worlds.made("sparse, useful facts"))
    config = LOGERConfig(encoder=TransEConfig(dimension=32, epochs=4))
    found = poison.measured(parts, config, tuple(poison.POISONS))
    without = found["no facts"]
    assert found["true facts"].mean() > 1.1 * without.mean()  # there was something to poison
    for kind in ("shuffled", "ten lies"):
        difference = found[kind] - without
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        assert difference.mean() > -0.03 * without.mean() - 2 * error
