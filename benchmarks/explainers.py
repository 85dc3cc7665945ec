"""Explainers by other people, applied to our model: how much each action matters for an item.

Each sees the model only through scores without some actions (``Scenes``), or not at all. ``ours``
reads its answer off the computation. ``leave_one_out`` is the bar to beat, because it asks the
same question as the measures of ``other_measures``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Protocol

import numpy as np

from loger.encoder.folding import vectors
from loger.evaluation.faithfulness.actions import Scenes
from loger.graph import whole
from loger.graph.arrays import Bools, Doubles
from loger.ranking.ranker import Ranker

PERTURBATIONS = 150
"""Histories that LIME-RS and KernelSHAP score, as in the code of LXR's authors."""
RIDGE = 1e-3
"""Of both regressions, which have more actions than histories where histories are long."""


class Explainer(Protocol):
    """Says how much each action of a user matters for an item, by place in the history."""

    def __call__(self, scenes: Scenes, item: int) -> Doubles:
        """The larger, the more an action speaks for the item."""
        ...


def ours(scenes: Scenes, item: int) -> Doubles:
    """c_a, as explanations show it."""
    return scenes.acts.contributions(scenes.user, [item]).actions[:, 0]


def leave_one_out(scenes: Scenes, item: int) -> Doubles:
    """What the item's lead loses without each action alone; n scorings."""
    whole_lead = scenes.lead(item, frozenset())
    n = len(scenes.owned)
    return np.array([whole_lead - scenes.lead(item, frozenset([a])) for a in range(n)])


def lime(scenes: Scenes, item: int) -> Doubles:
    """LIME-RS: a linear model of the lead around the history, from histories in which each action
    is kept with probability ½, weighed by how many actions they share with the whole."""
    rng, n = np.random.default_rng([0x11E, scenes.user, item]), len(scenes.owned)
    kept = np.concatenate([np.ones((1, n), bool), rng.random((PERTURBATIONS, n)) < 0.5])
    near = np.sqrt(kept.mean(axis=1))  # the cosine with the whole history
    return _regression(kept, _leads(scenes, item, kept), near)


def kernel_shap(scenes: Scenes, item: int) -> Doubles:
    """Shapley values of actions by KernelSHAP: sizes drawn by the Shapley kernel, each set with
    its complement; the values add up to what all actions give."""
    rng, n = np.random.default_rng([0x5A9, scenes.user, item]), len(scenes.owned)
    ends = _leads(scenes, item, np.stack([np.zeros(n, bool), np.ones(n, bool)]))
    gained = float(ends[1] - ends[0])
    if n < 2:
        return np.full(n, gained)
    kept, weight = _coalitions(n, rng)
    # The last value is what the others leave of the sum.
    inner = kept[:, :-1].astype(np.float64) - kept[:, -1:]
    target = _leads(scenes, item, kept) - ends[0] - kept[:, -1] * gained
    head = _solved(inner, target, weight)
    return np.append(head, gained - head.sum())


def _coalitions(n: int, rng: np.random.Generator) -> tuple[Bools, Doubles]:
    """Sets of actions, each with its complement; and their weights: all sets by the kernel where
    they are few, else as many as are drawn by it."""
    if 2**n - 2 <= PERTURBATIONS:
        sets = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n)) & 1 == 1
        size = sets.sum(axis=1)
        return sets, np.array([(n - 1) / (comb(n, s) * s * (n - s)) for s in size])
    sizes = np.arange(1, n)
    likely = 1 / (sizes * (n - sizes))
    drawn = rng.choice(sizes, size=PERTURBATIONS // 2, p=likely / likely.sum())
    sets = rng.random((len(drawn), n)).argsort(axis=1).argsort(axis=1) < drawn[:, None]
    return np.concatenate([sets, ~sets]), np.ones(2 * len(drawn))


def _leads(scenes: Scenes, item: int, kept: Bools) -> Doubles:
    """The item's lead with each of some histories."""
    return np.array([scenes.lead(item, frozenset(np.flatnonzero(~row).tolist())) for row in kept])


def _regression(kept: Bools, leads: Doubles, weight: Doubles) -> Doubles:
    """The coefficients of actions in a weighted linear model with an intercept."""
    x = kept.astype(np.float64)
    middle, level = np.average(x, axis=0, weights=weight), np.average(leads, weights=weight)
    return _solved(x - middle, leads - level, weight)


def _solved(x: Doubles, y: Doubles, weight: Doubles) -> Doubles:
    gram = x.T @ (weight[:, None] * x)
    ridge = RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12) * np.eye(len(gram))
    out = np.linalg.solve(gram + ridge, x.T @ (weight * y))
    return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Cosine:
    """How like the item each action's item is, by the encoder's vectors."""

    table: Doubles  # [items, d], of length 1

    @classmethod
    def of(cls, ranker: Ranker) -> Cosine:
        """From the encoder of a model."""
        graph = whole(ranker.graph)
        table = vectors(ranker.encoder, graph)[0][graph.n_users :][: graph.n_items]
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
        return cls((table / np.maximum(lengths, 1e-12)).astype(np.float64))

    def __call__(self, scenes: Scenes, item: int) -> Doubles:
        """The cosines."""
        out: Doubles = self.table[scenes.owned] @ self.table[item]
        return out


@dataclass(frozen=True, eq=False)
class Popularity:
    """How many people have each action's item, whatever the item that is explained."""

    counts: Doubles

    @classmethod
    def of(cls, ranker: Ranker) -> Popularity:
        """As the model's graph has them."""
        graph = whole(ranker.graph)
        edges, _ = graph.interactions
        items = graph.tails[edges] - graph.n_users
        return cls(np.bincount(items, minlength=graph.n_items).astype(np.float64))

    def __call__(self, scenes: Scenes, item: int) -> Doubles:
        """The numbers."""
        return self.counts[scenes.owned]


def at_random(scenes: Scenes, item: int) -> Doubles:
    """Chance."""
    return np.random.default_rng([0xA11, scenes.user, item]).random(len(scenes.owned))


def explainers(ranker: Ranker) -> dict[str, Explainer]:
    """All of them, by name."""
    return {
        "ours": ours,
        "leave-one-out": leave_one_out,
        "KernelSHAP": kernel_shap,
        "LIME-RS": lime,
        "cosine": Cosine.of(ranker),
        "popularity": Popularity.of(ranker),
        "random": at_random,
    }
