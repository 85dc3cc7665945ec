"""The E-step (section 3.2 of the paper, METHOD 5): the encoder proposes hidden pairs, the rules
select among them.

The fixed point asks that q ≈ p on the hidden pairs, so the encoder is then trained on G ∪ H⁺ (Eq. 2
of the paper). It differs from the paper in that pairs of H⁺ weigh what p says, not 1, and that only
pairs count for which a rule fires: without one, p is the base rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loger.encoder.calibration import Calibration
from loger.encoder.protocol import HiddenPairs
from loger.engine import Engine
from loger.engine.topk import top_k
from loger.graph import history, whole
from loger.graph.arrays import Doubles, expit
from loger.learning.pools import BLOCK
from loger.ranking.ranker import Ranker, blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Selected(NamedTuple):
    """H⁺ of an E-step."""

    pairs: HiddenPairs
    n_hidden: int
    """Size of H, which it was selected from."""


def propose_hidden(
    ranker: Ranker, n: int, engine: Engine, users: NDArray[np.integer] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32], Doubles]:
    """The n items of highest q of each user, none observed, best first, and their scores s; of
    everyone, unless told of whom."""
    asked = np.arange(ranker.graph.n_users) if users is None else np.asarray(users, dtype=np.int64)
    items, scores = best_by_encoder(ranker, n, engine, asked)
    owners = np.repeat(asked, n).astype(np.int32)
    present = items.ravel() >= 0
    return owners[present], items.ravel()[present], scores.ravel()[present].astype(np.float64)


def best_by_encoder(
    ranker: Ranker, n: int, engine: Engine, users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The n items of highest s of users, none observed, best first, -1 where there are no more,
    and their scores; each [users, n]."""
    parts = engine.map("looking for hidden pairs", _propose, blocks(users, BLOCK), (ranker, n))
    items, scores = zip(*parts, strict=True)
    return np.concatenate(items), np.concatenate(scores)


def _propose(
    shared: tuple[Ranker, int], users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    ranker, n = shared
    return top_k(ranker.encoder_scores(users), n, history(ranker.graph, users))


def select_hidden(
    ranker: Ranker,
    hidden: int,
    max_hidden: int,
    tau: float,
    engine: Engine,
    *,
    calibration: Calibration,
    users: NDArray[np.integer] | None = None,
) -> Selected:
    """H⁺ = {i ∈ H : a rule fires, p_i ≥ τ}, weighted by p.

    H are the ``hidden`` items of highest q of each user, of which ``max_hidden`` are looked at.
    Weights are what ``calibration`` makes of the logits of p over H: at the true base rate a pair
    weighs as much as it is likely, and together they weigh as much as there are hits among them.
    They never weigh more than the real interactions.
    """
    owners, items, _ = propose_hidden(ranker, hidden, engine, users)
    n_hidden = len(owners)
    kept = np.arange(len(owners)) - np.searchsorted(owners, owners) < max_hidden
    owners, items = owners[kept], items[kept]
    groundings = ranker.logic.ground(ranker.logic_graph, owners, items, engine)
    logits = ranker.logic.pair_logits(ranker.logic_graph, groundings)
    good = (np.diff(groundings.indptr) > 0) & (expit(logits) >= tau)
    weights = calibration(logits[good]).astype(np.float32)
    real = len(whole(ranker.graph).interactions[0])
    weights *= np.float32(min(1.0, real / max(float(weights.sum()), 1e-9)))
    return Selected(HiddenPairs(owners[good], items[good], weights), n_hidden)


def surplus(
    ranker: Ranker, selected: HiddenPairs, held_out: csr_array, engine: Engine
) -> tuple[int, int]:
    """How many pairs of H⁺ are held-out interactions, and how many would be if each user had as
    many of the encoder's best items instead. Only if H⁺ has more can it teach the encoder what it
    does not know."""
    owners, sizes = np.unique(selected.users, return_counts=True)
    if not len(owners):
        return 0, 0
    users, items, _ = propose_hidden(ranker, int(sizes.max()), engine, owners)
    place = np.arange(len(users)) - np.searchsorted(users, users)
    first = place < sizes[np.searchsorted(owners, users)]
    taken = held_out[selected.users, selected.items].sum()
    return int(taken), int(held_out[users[first], items[first]].sum())
