"""Training works on any torch device: the code for other devices gives the CPU's results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransE, TransEConfig
from loger.encoder.training import RowAdam

SMALL = TransEConfig(dimension=16, epochs=2, batch=128, device="cpu")


@pytest.fixture(scope="module")
def graph():
    return split(shop(seed=3, users=60, items=60).dataset).graph


def test_a_fit_by_operations_of_every_device_is_the_compiled_one(graph, monkeypatch):
    compiled = TransE(SMALL).fit(graph)
    monkeypatch.setattr(RowAdam, "_step_fused", RowAdam._step_anywhere)
    plain = TransE(SMALL).fit(graph)
    users = np.arange(graph.n_users)
    np.testing.assert_allclose(plain.score_items(users), compiled.score_items(users), atol=0.02)
    assert not np.array_equal(plain.entities_, compiled.entities_)  # it was another way


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA knows")
def test_a_gpu_learns_what_the_cpu_learns(graph):
    on_cpu = TransE(SMALL).fit(graph)
    on_gpu = TransE(replace(SMALL, device="cuda")).fit(graph)
    users = np.arange(graph.n_users)
    np.testing.assert_allclose(on_gpu.score_items(users), on_cpu.score_items(users), atol=0.05)
    again = on_gpu.fit(graph, warm=True)  # goes on from arrays of the CPU
    assert np.isfinite(again.entities_).all()
