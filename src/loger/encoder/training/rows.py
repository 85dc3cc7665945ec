"""Row-wise Adam: a table of vectors of which each step reads and writes only some rows.

Adam (Kingma & Ba 2015) with a full first moment and one second moment per row, so that the
state is little more than the table and a step costs as much as the rows it touches. Dense Adam
over the whole table, as in the authors' code, costs the whole table every step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from loger.errors import LogerError

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class RowAdam:
    """A table with its moments."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.first = _zeros(table)
        self.second = torch.zeros(len(table), device=table.device)
        self.steps = torch.zeros(1, dtype=torch.int64)  # kept with the tensors for checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """The state, for checkpoints; the tensors are the state itself, not copies."""
        return {
            "table": self.table,
            "first": self.first,
            "second": self.second,
            "steps": self.steps,
        }

    def update(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Step down the gradient. Row ``rows[k]`` gets ``weights[k] · gradient[owners[k]]``, or
        ``gradient[k]`` without owners; what a row gets several times is added up."""
        self.steps += 1
        t = int(self.steps)
        rate = rate * (1 - BETA_2**t) ** 0.5 / (1 - BETA_1**t)
        on_cpu = self.table.device.type == "cpu"
        update = self._update_fused if on_cpu else self._update_anywhere
        update(rows, gradient, rate, owners, weights)

    def _update_anywhere(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        """By operations that every device has."""
        if owners is not None:
            gradient = gradient[owners]
        if weights is not None:
            gradient = gradient * weights.unsqueeze(1)
        distinct, place = torch.unique(rows, return_inverse=True)
        total = torch.zeros(len(distinct), gradient.shape[1], device=gradient.device)
        total.index_add_(0, place, gradient)
        first = self.first[distinct].lerp_(total, 1 - BETA_1)
        second = self.second[distinct].lerp_(total.square().mean(1), 1 - BETA_2)
        self.first[distinct], self.second[distinct] = first, second
        self.table[distinct] -= rate * first / (second.sqrt() + EPSILON).unsqueeze(1)

    def _update_fused(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        """The same in one pass over the rows, for the CPU."""
        from loger.encoder.training.adam import adam_rows, order_of

        ids, of_row = rows.numpy(), None if owners is None else owners.numpy()
        own = np.array([0, len(ids) - 1]) if of_row is None else of_row
        if len(ids) and not (
            0 <= ids.min() <= ids.max() < len(self.table)
            and 0 <= own.min() <= own.max() < len(gradient)
        ):
            raise LogerError("an update names rows that the table or the gradient does not have")
        order = order_of(ids)
        adam_rows(
            self.table.numpy(),
            self.first.numpy(),
            self.second.numpy(),
            ids[order],
            order if of_row is None else of_row[order],
            np.empty(0, np.float32) if weights is None else weights.numpy()[order],
            gradient.contiguous().numpy(),
            np.float32(rate),
        )


def _zeros(like: Tensor) -> Tensor:
    """Zeros, on the CPU on large pages: NumPy asks for them, PyTorch does not. Rows are met at
    random, so that with small ones the larger a table, the more often a page must be looked up."""
    if like.device.type != "cpu":
        return torch.zeros_like(like)
    out = np.empty(like.shape, dtype=np.float32)
    out.fill(0)
    return torch.from_numpy(out)
