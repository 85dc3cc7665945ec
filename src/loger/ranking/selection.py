"""Which items may be recommended, and how a list is made of the best of them.

A list is what scores say, unless ``at_most`` or ``diversity`` asks for more variety. Then items
are taken one after another from the best by score: with ``diversity`` λ the one of largest

    (1 − λ)·rel(v) − λ·max over those taken of sim(v, w)

(maximal marginal relevance, Carbonell and Goldstein 1998). rel is the score, scaled to 0 … 1 over
the candidates, which are the 10·k best; sim is the share of facts that two items have in common,
of all that either has (Jaccard). Scores stay as they are; only places change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from loger.data.dataset import as_name, is_frame
from loger.engine.topk import top_k
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, UserView, gather
from loger.graph.arrays import Floats
from loger.graph.catalogue import (
    NOTHING,
    Catalogue,
    Mask,
    column_of,
    fact_relations,
    item_mask,
    item_relations,
    parse,
)

Items = NDArray[np.int64]
Given = Any
"""What ``include`` and ``exclude`` may be: a filter as text, several in a list, items by name in a
set, series, array or frame (column ``item``), a mask [items], or a function of an item's name."""
CANDIDATES = 10
"""With diversity, the list is chosen from this many times k items, the best by score."""
log = logging.getLogger("loger")


class Chosen(NamedTuple):
    """Lists, and what variety changed about them; all [users, k]."""

    items: NDArray[np.int32]
    scores: Floats
    ranks: NDArray[np.int32]
    """The place by score alone, from 1, among the items that pass the filters."""
    costs: Floats
    """How much higher the score of the item is that score alone would put there."""

    def of(self, rows: NDArray[np.integer]) -> Chosen:
        """The lists of some of the users."""
        return Chosen(self.items[rows], self.scores[rows], self.ranks[rows], self.costs[rows])


class Limit(NamedTuple):
    """The most items of a list that some relations may link to the same entity."""

    name: str
    relations: tuple[int, ...]
    most: int


@dataclass(frozen=True, eq=False)
class Selection:
    """Filters and wishes for variety, as a graph's numbers."""

    among: Mask | None = None
    """The items that may be recommended; None: all."""
    limits: tuple[Limit, ...] = ()
    diversity: float = 0.0

    @property
    def varies(self) -> bool:
        """Whether places may differ from those by score."""
        return bool(self.limits) or self.diversity > 0

    def best(self, graph: Graph, scores: Floats, k: int) -> Chosen:
        """The lists of users by their scores of all items, which are overwritten by -inf where
        an item may not be recommended; [users, items]."""
        if self.among is not None:
            np.copyto(scores, -np.inf, where=~self.among)
        items, values = top_k(scores, k)
        ranks = np.where(items < 0, 0, np.arange(1, k + 1)).astype(np.int32)
        out = Chosen(items, values, ranks, np.zeros_like(values))
        if self.varies:
            base = graph.base if isinstance(graph, UserView) else graph
            for row in range(len(scores)):
                self._vary(base, scores[row : row + 1], k, [part[row] for part in out])
        return out

    def _vary(self, graph: KnowledgeGraph, scores: Floats, k: int, out: list[Any]) -> None:
        """Replace one list by a varied one."""
        items, values, ranks, costs = out
        size = CANDIDATES * k
        while True:
            pool, worth = (part[0] for part in top_k(scores, size))
            pool = pool[pool >= 0].astype(np.int64)
            places = self._places(graph, pool, worth[: len(pool)], k)
            if len(places) == min(k, len(pool)) or len(pool) < size:
                break
            size *= 4
        n = len(places)
        by_score = values[:n].copy()
        items[:], values[:], ranks[:], costs[:] = -1, -np.inf, 0, 0
        items[:n], values[:n], ranks[:n] = pool[places], worth[places], places + 1
        costs[:n] = by_score - values[:n]

    def _places(self, graph: KnowledgeGraph, pool: Items, worth: Floats, k: int) -> Items:
        """Which candidates are taken, in this order."""
        low, high = (float(worth.min()), float(worth.max())) if len(worth) else (0.0, 0.0)
        relevance = (worth.astype(np.float64) - low) / ((high - low) or 1.0)
        alike = similarity(graph, pool) if self.diversity > 0 else None
        nearest, barred = np.zeros(len(pool)), np.zeros(len(pool), dtype=bool)
        facts = [_values(graph, pool, limit) for limit in self.limits]
        taken: list[int] = []
        while len(taken) < k and not barred.all():
            value = (1 - self.diversity) * relevance - self.diversity * nearest
            value[barred] = -np.inf
            place = int(value.argmax())  # of equals the one of higher score, which comes first
            taken.append(place)
            barred[place] = True
            if alike is not None:
                nearest = np.maximum(nearest, alike[place])
            for limit, (owners, keys) in zip(self.limits, facts, strict=True):
                for key in np.unique(keys[owners == place]):
                    having = np.unique(owners[keys == key])
                    if np.isin(having, taken).sum() >= limit.most:
                        barred[having] = True
        return np.array(taken, dtype=np.int64)


def select(
    graph: Graph,
    include: Given = None,
    exclude: Given = None,
    *,
    diversity: float = 0.0,
    at_most: Mapping[str, int] | None = None,
    masks: Mapping[str, Given] | None = None,
    catalogue: Catalogue = NOTHING,
) -> Selection:
    """Filters and wishes for variety, resolved for a graph; nonsensical ones are an error.

    ``masks`` are sets of items that filters may name, such as ``mask=in-stock``. The ``catalogue``
    has values to filter by that are not in the graph.
    """
    base = graph.base if isinstance(graph, UserView) else graph
    named = _Masks(base, {} if masks is None else masks, catalogue)
    within = _fitting(base, include, named, catalogue, all_of=True)
    without = _fitting(base, exclude, named, catalogue)
    if without is not None:
        within = ~without if within is None else within & ~without
    is_number = isinstance(diversity, int | float) and not isinstance(diversity, bool)
    if not (is_number and 0 <= diversity <= 1):  # NaN neither
        raise LogerError(f"diversity must be a number from 0 to 1, got {diversity!r}")
    limits = tuple(_limit(base, name, most) for name, most in (at_most or {}).items())
    return Selection(within, limits, float(diversity))


class _Masks(Mapping[str, Mask]):
    """Sets of items by name; each becomes a mask when a filter names it."""

    def __init__(
        self, graph: KnowledgeGraph, given: Mapping[str, Given], catalogue: Catalogue
    ) -> None:
        self.graph, self.given, self.catalogue = graph, given, catalogue

    def __getitem__(self, name: str) -> Mask:
        mask = _fitting(self.graph, self.given[name], {}, self.catalogue)
        return np.ones(self.graph.n_items, dtype=bool) if mask is None else mask

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)


def _limit(graph: KnowledgeGraph, name: str, most: object) -> Limit:
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
        raise LogerError(
            f"each limit in at_most must be a whole number of at least 1, got {name!r}: {most!r}"
        )
    return Limit(name, tuple(fact_relations(graph, name)), int(most))


def limits_of(texts: Iterable[str]) -> dict[str, int]:
    """Limits as written in commands and URLs.

    >>> limits_of(["has_brand=2", "genre=1"])
    {'has_brand': 2, 'genre': 1}
    """
    out = {}
    for text in texts:
        name, sign, most = text.rpartition("=")
        if not sign or not name or not (most.isascii() and most.isdigit() and len(most) < 10):
            raise LogerError(f"write a limit as NAME=N, such as has_brand=2; got {text!r}")
        out[name] = int(most)
    return out


def _fitting(
    graph: KnowledgeGraph,
    given: Given,
    masks: Mapping[str, Mask],
    catalogue: Catalogue,
    *,
    all_of: bool = False,
) -> Mask | None:
    """The items that fit a filter; None if there is none. An item fits a list if it fits one entry
    or, with ``all_of``, one entry for each column."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return None
    if isinstance(given, str):
        return item_mask(graph, given, masks, catalogue)
    if isinstance(given, list | tuple):
        fits = [_one_of(graph, part, masks, catalogue) for part in given]
        groups: dict[object, list[Mask]] = {}
        for k, part in enumerate(given):
            column = _column(graph, part, catalogue) if all_of else "any"
            groups.setdefault(k if column is None else column, []).append(fits[k])
        every: Mask = np.all([np.any(group, axis=0) for group in groups.values()], axis=0)
        return every
    if callable(given):
        return _asked(graph, given)
    if isinstance(given, np.ndarray) and given.dtype == np.bool_:
        if given.shape != (graph.n_items,):
            raise LogerError(f"a mask needs one value for each of {graph.n_items:,} items, got "
                             f"{given.shape}")  # fmt: skip
        return given
    return named_items(graph, given)[0]


def _column(graph: KnowledgeGraph, part: object, catalogue: Catalogue) -> str | None:
    """The column that an entry of a list filters by; sets of items filter by "item"."""
    return column_of(graph, parse(part), catalogue) if isinstance(part, str) else "item"


def _one_of(
    graph: KnowledgeGraph, part: object, masks: Mapping[str, Mask], catalogue: Catalogue
) -> Mask:
    """The mask of one of several filters in a list."""
    if not isinstance(part, str):
        mask = _fitting(graph, part, masks, catalogue)
        if mask is None:
            raise LogerError("a list of filters contains None; leave it out")
        return mask
    try:
        return item_mask(graph, part, masks, catalogue)
    except LogerError as error:
        if part in graph.vocabulary.ids("item"):
            raise LogerError(
                f"{part!r} is an item, not a filter; write 'item={part}', or give items by name "
                f"as a set, {{{part!r}, …}}"
            ) from None
        raise error


def _asked(graph: KnowledgeGraph, fits: Callable[[str], object]) -> Mask:
    first = graph.n_users
    names = graph.vocabulary.names[first : first + graph.n_items]
    return np.fromiter((bool(fits(name)) for name in names), dtype=bool, count=len(names))


def named_items(graph: KnowledgeGraph, names: object) -> tuple[Mask, int]:
    """The items of a set, series, array or frame as a mask, and how many of the names are unknown.
    Items in stock may be too new for the model, but if no name is known, it is an error."""
    if is_frame(names):
        if "item" not in names.columns:  # type: ignore[attr-defined]
            columns = ", ".join(map(str, names.columns))  # type: ignore[attr-defined]
            raise LogerError(f"a frame of items needs the column 'item'; it has {columns}")
        names = names["item"]  # type: ignore[index]
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise LogerError(
            "include and exclude take a filter such as 'genre=jazz', a list of filters, items by "
            f"name in a set or frame, a mask, or a function; got {type(names).__name__}"
        )
    listed = names if isinstance(names, AbstractSet | list) else _listed(names)
    ids = graph.vocabulary.ids("item")
    texts = [normalize("NFC", as_name(name)) for name in listed]
    found = [ids[name] for name in texts if name in ids]
    if texts and not found:
        raise LogerError(f"unknown items: none of the {len(texts):,} given, such as {texts[0]!r}")
    if len(found) < len(texts):
        log.info("%d of the %d given items are unknown", len(texts) - len(found), len(texts))
    out = np.zeros(graph.n_items, dtype=bool)
    out[np.array(found, dtype=np.int64) - graph.n_users] = True
    return out, len(texts) - len(found)


def _listed(names: Iterable[Any]) -> list[Any]:
    """The values of a series or array as Python's own."""
    for method in ("to_list", "tolist"):
        if hasattr(names, method):
            return list(getattr(names, method)())
    return list(names)


def item_facts(
    graph: KnowledgeGraph, items: Items, relations: Iterable[int]
) -> tuple[Items, Items]:
    """The facts of items under some relations, as (place of the item, one number for relation and
    entity)."""
    rows, entities = graph.rows, items + graph.n_users
    first = rows.row_segments[entities]
    owners, segments = gather(first, rows.row_segments[entities + 1] - first)
    wanted = np.isin(rows.segment_relations[segments], list(relations))
    owners, segments = owners[wanted], segments[wanted]
    starts = rows.segment_starts[segments]
    which, edges = gather(starts, rows.segment_starts[segments + 1] - starts)
    relation = rows.segment_relations[segments[which]].astype(np.int64)
    return owners[which], relation * graph.n_entities + rows.tails[edges]


def _values(graph: KnowledgeGraph, items: Items, limit: Limit) -> tuple[Items, Items]:
    """The entities that a limit counts by, as (place of the item, entity)."""
    owners, keys = item_facts(graph, items, limit.relations)
    return owners, keys % graph.n_entities


def similarity(graph: KnowledgeGraph, items: Items) -> NDArray[np.float64]:
    """The share of facts that items have in common, of all that either has; [items, items]."""
    from scipy.sparse import csr_array  # slow to import, and rarely needed

    owners, keys = item_facts(graph, items, item_relations(graph))
    _, columns = np.unique(keys, return_inverse=True)
    shape = (len(items), int(columns.max(initial=-1)) + 1)
    facts = csr_array((np.ones(len(owners)), (owners, columns)), shape=shape)
    common = (facts @ facts.T).toarray()
    sizes = common.diagonal()
    either = sizes[:, None] + sizes[None, :] - common
    return np.divide(common, either, out=np.zeros_like(common), where=either > 0)
