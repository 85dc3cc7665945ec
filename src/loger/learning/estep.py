"""The E-step (section 3.2 of the paper, METHOD 5): the rules stay as they are, the encoder learns.

    H    for each user, the unobserved items of highest q: what the encoder proposes
    H⁺   the pairs of H with p ≥ τ: what the rules confirm

At the fixed point of the paper, q ≈ p on H, so the encoder is then trained on G ∪ H⁺ (Eq. 2). There
are two differences from the paper. A pair of H⁺ weighs its probability rather than 1. And a pair
enters H⁺ only if a rule fires for it, because otherwise p is just the base rate.
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

HIDDEN = 50
"""Size of H per user: the paper takes the 50 items with the highest scores (appendix B)."""


class Selected(NamedTuple):
    """The result of selecting H⁺."""

    pairs: HiddenPairs
    """H⁺."""
    n_hidden: int
    """Size of H."""


def select_hidden(
    ranker: Ranker,
    max_hidden: int,
    tau: float,
    calibration: Calibration,
    engine: Engine,
    users: NDArray[np.integer] | None = None,
) -> Selected:
    """H⁺ = {i ∈ H : a rule fires and p_i ≥ τ}, with weights.

    Args:
        ranker: the model; its encoder proposes H, its rules select H⁺.
        max_hidden: how many of a user's pairs in H are considered, best first.
        tau: τ, the smallest p.
        calibration: turns the logits of p into probabilities at the true base rate. A pair weighs
            this probability, so H⁺ weighs as much as it is expected to contain interactions.
        engine: where the work runs.
        users: whose pairs to select; None selects everyone's.
    """
    owners, items, _ = propose_hidden(ranker, HIDDEN, engine, users)
    n_hidden = len(owners)
    # Owners ascend, and each one's items come best first: this is an item's place in its list.
    kept = np.arange(len(owners)) - np.searchsorted(owners, owners) < max_hidden
    owners, items = owners[kept], items[kept]
    groundings = ranker.logic.ground(ranker.logic_graph, owners, items, engine)
    logits = ranker.logic.pair_logits(ranker.logic_graph, groundings)
    # τ is compared with the logic's p itself, as in the paper. What a pair weighs is another
    # question: p at even odds would make H⁺ weigh several times what it can contain.
    good = (np.diff(groundings.indptr) > 0) & (expit(logits) >= tau)
    weights = calibration(logits[good]).astype(np.float32)
    # H⁺ never outweighs the real interactions.
    real = len(whole(ranker.graph).interactions[0])
    weights *= np.float32(min(1.0, real / max(float(weights.sum()), 1e-9)))
    return Selected(HiddenPairs(owners[good], items[good], weights), n_hidden)


def propose_hidden(
    ranker: Ranker, n: int, engine: Engine, users: NDArray[np.integer] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32], Doubles]:
    """H: users, their n unobserved items of highest q, best first, and the scores s.

    ``users`` are those to propose for; None proposes for everyone.
    """
    asked = np.arange(ranker.graph.n_users) if users is None else np.asarray(users, dtype=np.int64)
    items, scores = best_by_encoder(ranker, n, engine, asked)
    owners = np.repeat(asked, n).astype(np.int32)
    present = items.ravel() >= 0
    return owners[present], items.ravel()[present], scores.ravel()[present].astype(np.float64)


def best_by_encoder(
    ranker: Ranker, n: int, engine: Engine, users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The n unobserved items of highest s for each user, best first, and their scores; each
    [users, n], with -1 after the last item if a user has fewer."""
    parts = engine.map("looking for hidden pairs", _propose, blocks(users, BLOCK), (ranker, n))
    items, scores = zip(*parts, strict=True)
    return np.concatenate(items), np.concatenate(scores)


def _propose(
    shared: tuple[Ranker, int], users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    ranker, n = shared
    return top_k(ranker.encoder_scores(users), n, history(ranker.graph, users))


def surplus(
    ranker: Ranker, selected: HiddenPairs, held_out: csr_array, engine: Engine
) -> tuple[int, int]:
    """How many pairs of H⁺ are held-out interactions, and how many would be if each user had as
    many of the encoder's best items instead.

    Only if the first number is larger can H⁺ teach the encoder something that it doesn't know.
    """
    owners, sizes = np.unique(selected.users, return_counts=True)
    if not len(owners):
        return 0, 0
    users, items, _ = propose_hidden(ranker, int(sizes.max()), engine, owners)
    place = np.arange(len(users)) - np.searchsorted(users, users)
    first = place < sizes[np.searchsorted(owners, users)]
    taken = held_out[selected.users, selected.items].sum()
    return int(taken), int(held_out[users[first], items[first]].sum())
