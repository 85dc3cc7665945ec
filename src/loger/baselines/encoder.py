"""The KG encoder alone as a recommender: LOGER without its logic (α = 0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from numpy.typing import ArrayLike

from loger.data.splits import Split
from loger.encoder import Encoder, TransE
from loger.engine import Progress, silent
from loger.graph.arrays import Floats
from loger.recommender import Recommender


class EncoderAlone(Recommender):
    """Ranks by s(u, r_ui, v) of any encoder; ``make`` returns a new one for each fit."""

    encoder_: Encoder

    def __init__(self, make: Callable[[], Encoder] = TransE, name: str = "encoder alone") -> None:
        self.make, self.name = make, name

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Fit the encoder on the training graph."""
        self.encoder_ = self.make().fit(split.graph, progress=progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Scores of all items; see ``Recommender.score``."""
        return self.encoder_.score_items(users)
