"""What LOGER and every baseline have in common: fit on a split, score all items of some users.

Arrays in, arrays out: users and items are numbered from 0 within their type. This module alone
decides how scores become a list: which items are left out, and how ties are broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import get_annotations
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.topk import top_k
from loger.errors import LogerError
from loger.graph import Path, gather
from loger.graph.arrays import Floats

if TYPE_CHECKING:
    import scipy.sparse as sp

    from loger.data.splits import Part, Split

PairMatrix: TypeAlias = "sp.csr_array[np.float32, tuple[int, int]]"
"""Pairs as a sparse users × items matrix of ones."""

BLOCK_BYTES = 64 << 20
"""Memory of one block of users while it is ranked; a few blocks run at a time."""
_CELL_BYTES = 8  # a score and its copy


EvaluatedPart = Literal["validation", "test"]


class Recommender(Protocol):
    """Anything that can be compared: LOGER, a baseline, an adapter to another library.

    A class that inherits from it gets ``learns_from_validation`` and ``is_fitted``; any other class
    with all of these members is a recommender too.
    """

    learns_from_validation: ClassVar[bool] = False
    """Whether ``fit`` also learns from validation. Such a method can't be evaluated on
    validation, and needs it separate from train; see ``fit_for``."""

    name: str
    """The name shown in tables."""

    @property
    def is_fitted(self) -> bool:
        """Whether it can score: by default, whether it has every attribute that its class declares
        with a trailing underscore."""
        declared = [n for c in type(self).__mro__ for n in get_annotations(c) if n.endswith("_")]
        return bool(declared) and all(name in vars(self) for name in declared)

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Learn from ``split.graph`` and ``split.pairs("train")``, and from nothing else.

        Don't use ``split.pairs("validation")`` unless ``learns_from_validation`` is True. Don't
        change the split.
        """
        ...

    def score(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users, higher is better; [users, items].

        Callers leave out a user's training items, so their scores don't matter. -inf means that an
        item is never recommended. Called from several threads at a time.
        """
        ...


@dataclass(frozen=True, slots=True)
class ExplainedItem:
    """A recommended item with the paths that a method shows for it, best first."""

    item: int  # numbered from 0 among items
    score: float
    paths: tuple[Path, ...] = ()
    weights: tuple[float, ...] = ()  # how much each path counts, by the method's own account


class Explains(Protocol):
    """A recommender that shows paths, such as LOGER, PGPR or KGAT, so that its faithfulness can be
    measured."""

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """For each user, the k best items without an interaction, best first, each with up to
        ``paths`` paths; items without a path are included."""
        ...


Fits = TypeVar("Fits", bound=Recommender)


def pair_matrix(users: ArrayLike, items: ArrayLike, shape: tuple[int, int]) -> PairMatrix:
    """Pairs as a sparse matrix of ones, each pair once."""
    import scipy.sparse as sp  # slow to import, and scoring doesn't need it

    rows, columns = np.asarray(users), np.asarray(items)
    out = sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    out.sum_duplicates()
    out.data[:] = 1
    return out


def part_matrix(split: Split, *parts: Part) -> PairMatrix:
    """The pairs of one or more parts of a split as a sparse matrix of ones."""
    pairs = [split.pairs(part) for part in parts]
    return pair_matrix(
        np.concatenate([users for users, _ in pairs]),
        np.concatenate([items for _, items in pairs]),
        (split.dataset.n_users, split.dataset.n_items),
    )


def fit_for(
    recommender: Fits, split: Split, part: EvaluatedPart = "test", *, progress: Progress = silent
) -> Fits:
    """Fit a recommender on everything it may know when it is evaluated on a part.

    For the test part, that is train and validation: joined, or separate for a method that learns
    from validation in its own way. For validation, it is train.
    """
    check_part(recommender, part)
    if part == "test" and not recommender.learns_from_validation and len(split.validation):
        split = split.refit()
    return recommender.fit(split, progress=progress)


def check_part(recommender: Recommender, part: str) -> None:
    """Raise an error if a method that learns from validation is evaluated on it."""
    if part == "validation" and recommender.learns_from_validation:
        raise LogerError(
            f"{recommender.name} learns from the validation part; evaluate it on the test part"
        )


def ranked(
    recommender: Recommender,
    users: ArrayLike,
    known: PairMatrix,
    k: int,
    *,
    candidates: PairMatrix | None = None,
    engine: Engine | None = None,
) -> NDArray[np.int32]:
    """The lists of many users, block by block in bounded memory; [users, k] as in ``top_k``.

    Items that ``known`` contains for a user are left out, and with ``candidates`` all others too.
    """
    users = np.asarray(users)
    n_items = known.shape[1]
    size = max(1, BLOCK_BYTES // (_CELL_BYTES * max(1, n_items)))
    blocks = [users[start : start + size] for start in range(0, len(users), size)]
    engine = LocalEngine() if engine is None else engine
    shared = recommender, known, k, candidates
    lists = list(engine.map(f"ranking {recommender.name}", _rank, blocks, shared))
    return np.concatenate(lists) if lists else np.empty((0, k), dtype=np.int32)


def _rank(
    shared: tuple[Recommender, PairMatrix, int, PairMatrix | None], users: NDArray[np.integer]
) -> NDArray[np.int32]:
    """The lists of a block of users."""
    recommender, known, k, candidates = shared
    n_items = known.shape[1]
    scores = np.array(recommender.score(users), dtype=np.float32)  # a copy, to write into
    if scores.shape != (len(users), n_items):
        raise LogerError(
            f"{recommender.name} returned scores of shape {scores.shape}, expected "
            f"({len(users)}, {n_items}): users and items"
        )
    if candidates is not None:
        rows, items = _pairs_of(candidates, users)
        among = np.full_like(scores, -np.inf)
        among[rows, items] = scores[rows, items]
        scores = among
    return top_k(scores, k, _pairs_of(known, users))[0]


def _pairs_of(
    matrix: PairMatrix, users: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The pairs of a block of users as (place in the block, item)."""
    rows, places = gather(matrix.indptr[users], np.diff(matrix.indptr)[users])
    return rows, matrix.indices[places]
