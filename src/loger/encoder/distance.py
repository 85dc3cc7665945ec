"""The distances of TransE: scores of every x against every y, with gradients in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from loger.encoder.small_groups import ENDLESS, SHORTEST, SMALL, group_gradients, group_scores
from loger.encoder.transe import Distance

Gradients = Callable[[Tensor], tuple[Tensor, Tensor]]


def scores_of(x: Tensor, y: Tensor, gamma: float, distance: Distance) -> tuple[Tensor, Gradients]:
    """γ − dist of every row of x to every row of y, and what gives the gradients for a slope."""
    if distance == "sphere":
        on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
        if on_cpu and x.dim() == 3 and max(x.shape[1], y.shape[1]) <= SMALL:
            return _of_small_groups(x, y, gamma)
        (a, a_norm), (b, b_norm) = unit(x), unit(y)

        def on_sphere(slope: Tensor) -> tuple[Tensor, Tensor]:
            ga, gb = gamma * (slope @ b), gamma * (slope.mT @ a)
            return _unit_back(ga, a, a_norm), _unit_back(gb, b, b_norm)

        return (a @ b.mT).mul_(gamma), on_sphere
    if distance == "squared":

        def in_space(slope: Tensor) -> tuple[Tensor, Tensor]:
            gx = slope @ y - x * slope.sum(-1, keepdim=True)
            return 2 * gx, 2 * (slope.mT @ x - y * slope.sum(-2).unsqueeze(-1))

        lengths = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1).unsqueeze(-2)
        return (2 * (x @ y.mT)).sub_(lengths).add_(gamma), in_space
    with torch.enable_grad():
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        scores = gamma - torch.cdist(x, y, p=1)

    def in_l1(slope: Tensor) -> tuple[Tensor, Tensor]:
        gx, gy = torch.autograd.grad(scores, (x, y), slope)
        return gx, gy

    return scores.detach().clone(), in_l1


def _of_small_groups(x: Tensor, y: Tensor, gamma: float) -> tuple[Tensor, Gradients]:
    """The same for many small groups on the sphere; both gradients lie in one tensor."""
    scores = torch.empty(*x.shape[:2], y.shape[1])
    of = x.contiguous().numpy(), y.contiguous().numpy(), np.float32(gamma)
    lengths = tuple(np.empty(v.shape[:2], dtype=np.float32) for v in (x, y))
    group_scores(*of, *lengths, scores.numpy())

    def of_groups(slope: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[0] * x.shape[1]
        both = torch.empty(n + y.shape[0] * y.shape[1], x.shape[2])
        gx, gy = both[:n].view(x.shape), both[n:].view(y.shape)
        group_gradients(*of, *lengths, slope.contiguous().numpy(), gx.numpy(), gy.numpy())
        return gx, gy

    return scores, of_groups


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors on the unit sphere, and how long they were; a vector without direction stays 0."""
    norm = x.norm(dim=-1, keepdim=True)
    norm.masked_fill_(norm <= float(SHORTEST), float(ENDLESS))
    return x / norm, norm


def _unit_back(gradient: Tensor, unit: Tensor, norm: Tensor) -> Tensor:
    """The gradient through x ↦ x/‖x‖."""
    return (gradient - unit * (gradient * unit).sum(-1, keepdim=True)).div_(norm)
