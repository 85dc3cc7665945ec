"""A recommender that is deliberately unfaithful."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from loger.evaluation.faithfulness.deletion import Rescore
from loger.evaluation.faithfulness.scenes import Ids
from loger.graph import Graph, Path
from loger.reasoner.search import random_paths
from loger.recommender import ExplainedItem, Explains
from loger.rules import RuleSet


class RandomPaths:
    """The same items as another recommender, with random valid paths: plausible, not faithful.

    Its paths exist and follow the rules, so a measure that finds it as good as the recommender
    itself measures plausibility.
    """

    def __init__(
        self,
        recommender: Explains,
        graph: Graph,
        rules: RuleSet,
        seed: int = 0,
    ) -> None:
        self.recommender, self.graph, self.rules, self.seed = recommender, graph, rules, seed
        inner = getattr(recommender, "name", type(recommender).__name__)
        self.name = f"random paths for {inner}"
        rescore = getattr(recommender, "rescore", None)
        if rescore is not None:
            self.rescore: Rescore = rescore

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """The recommender's items, each with paths drawn evenly among all of its groundings."""
        asked = np.asarray(users).tolist()
        return [
            self._of(user, own, paths)
            for user, own in zip(asked, self.recommender.explained(users, k, 1), strict=True)
        ]

    def _of(self, user: int, own: Sequence[ExplainedItem], n: int) -> list[ExplainedItem]:
        # A stream per user and item: what is drawn for one depends on no other.
        out = []
        for r in own:
            (drawn,) = self.paths_of(user, [r.item], n)
            out.append(ExplainedItem(r.item, r.score, drawn, (1.0,) * len(drawn)))
        return out

    def paths_of(self, user: int, items: Sequence[int], n: int) -> list[tuple[Path, ...]]:
        """Random paths of any pairs of a user."""
        out = []
        for item in items:
            rng = np.random.default_rng([self.seed, 0x8A2D, user, item])
            out += random_paths(self.graph, self.rules, user, [item], n, rng)
        return out

    def explain_paths(self, users: Ids, items: Ids, n: int) -> list[tuple[Path, ...]]:
        """Random paths of any pairs."""
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        return [self.paths_of(user, [item], n)[0] for user, item in pairs]
