"""Apply updates and removals to a fitted model.

Nothing is trained. Rules give the same scores as if the graph had had everything from the start,
whatever the order of the updates. New entities get vectors from what they are linked to
(``loger.encoder.cold_start``). Relations that the fit derived from interactions keep their weights
until the next fit, but the people behind them are counted again (``loger.updates.people``); new
items inherit them from similar items (``loger.updates.newcomers``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from loger.data.update_log import Update, Updates
from loger.encoder.cold_start import Moved
from loger.encoder.protocol import AdditiveEncoder, Encoder
from loger.encoder.transe import TransE
from loger.errors import LogerError, UnknownNameError
from loger.explain.reasoned import PathReasoner
from loger.graph import INTERACTION, KnowledgeGraph, Pairs, pair_keys, whole
from loger.graph.arrays import Bools, Ids
from loger.graph.catalogue import Catalogue
from loger.graph.checks import MAX_RELATIONS, check_size
from loger.graph.growth import (
    Learned,
    Renumbered,
    with_entities,
    with_facts,
    without_entities,
    without_facts,
)
from loger.learning.fitted import Fitted, mined_on, reasoner_of
from loger.logic.mining import Mined
from loger.metrics.ranking import hits, ndcg
from loger.ranking.ranker import Ranker
from loger.rules import RuleSet
from loger.tables.changes import Changes, Fold, Placed, placed
from loger.updates.newcomers import with_newcomers
from loger.updates.people import recounted


def updates_of(fitted: Fitted) -> Updates:
    """The updates of a model so far."""
    graph = whole(fitted.ranker.graph)
    return fitted.updates or Updates(Learned.all_of(graph), len(graph.interactions[0]))


def updated(
    fitted: Fitted, changes: Changes, entry: Update | None = None, measure: int = 0
) -> Fitted:
    """The model with more interactions, facts, items and users.

    ``entry`` is the entry of the log to complete. Its NDCG@10 says how well the model predicted the
    new interactions of up to ``measure`` users.
    """
    before, updates = whole(fitted.ranker.graph), updates_of(fitted)
    changes, filter_facts = _split_off_filter_only(changes, fitted.catalogue)
    new = placed(changes, before)
    if len(before.relations) + len(new.relations) > MAX_RELATIONS:
        raise LogerError(
            f"{len(new.relations):,} new relations are too many; a model can have at most "
            f"{MAX_RELATIONS:,}; check that the relation column contains relation names, not "
            "values"
        )
    moved = with_entities(before, updates.learned, new.entities, new.relations)
    heads, relations, tails, times, strengths = new.numbered(moved.graph)
    when = None if before.times is None else times
    graph = with_facts(moved.graph, (heads, relations, tails), when, strengths)
    check_size(graph.vocabulary, graph.relations, len(graph.tails))
    moved = moved._replace(graph=graph)
    entry = replace(entry or Update(), notes=changes.notes)
    row = _count_added(before, updates.learned, moved, new, entry)
    log = (*updates.log, _with_ndcg(fitted.ranker, new, row, measure))
    after = _rebuilt(fitted, before, moved, log)
    beside = filter_facts, changes.images, changes.numbers
    return replace(after, catalogue=_catalogue_after(after, *beside))


def removed(
    fitted: Fitted,
    changes: Changes,
    users: Sequence[str] = (),
    items: Sequence[str] = (),
    entry: Update | None = None,
) -> Fitted:
    """The model without some users and items and without the interactions and facts in
    ``changes``."""
    before, updates = whole(fitted.ranker.graph), updates_of(fitted)
    words = before.vocabulary
    learned = updates.learned
    gone = [entity for name in users for entity in _everything_called(before, name, learned)]
    gone += [words.id("item", name) for name in items]
    changes, filter_facts = _split_off_filter_only(changes, fitted.catalogue)
    fitted = replace(fitted, catalogue=_catalogue_after(fitted, filter_facts, {}, gone=True))
    held_out, facts = _to_remove(fitted.ranker, changes)
    first = without_facts(before, learned, facts)
    there = first.entities[np.array(gone, dtype=np.int64)]
    second = without_entities(first.graph, first.learned, there)
    entities = np.where(first.entities >= 0, second.entities[first.entities], -1)
    moved = second._replace(entities=entities)
    ranker = replace(fitted.ranker, held_out=held_out)
    log = (*updates.log, _count_removed(before, moved, len(users), len(items), entry or Update()))
    return _rebuilt(replace(fitted, ranker=ranker), before, moved, log)


def folded(fitted: Fitted, fold: Fold, when: str, measure: int = 0) -> Fitted:
    """The model with the net effect of events; it records the last event that it holds."""
    log, entry = updates_of(fitted).log, Update(when, events=True)
    if fold.removes:
        less = _present_interactions(fitted.ranker, fold.less)
        fitted = removed(fitted, less, fold.users, fold.items, entry)
    fitted = updated(fitted, fold.more, entry, measure)
    after = updates_of(fitted)
    for row in after.log[len(log) :]:
        again = log and log[-1].events and (log[-1].when or "")[:10] == when[:10]
        log = (*log[:-1], log[-1].plus(row)) if again else (*log, row)
    seqs = {**after.folded, fold.store: fold.seq}
    return replace(fitted, updates=replace(after, log=log, folded=seqs))


def unlearned_types(graph: KnowledgeGraph, learned: Learned) -> list[str]:
    """The types of entities that were added after the fit."""
    return [kind for kind in graph.vocabulary.types if not learned.types.get(kind)]


def _everything_called(graph: KnowledgeGraph, user: str, learned: Learned) -> list[int]:
    """A user, and entities of the same name whose type only events know: a fact may have named the
    user before any event said that this is a user."""
    words = graph.vocabulary
    kinds = unlearned_types(graph, learned)
    found = [words.ids(kind)[user] for kind in kinds if user in words.ids(kind)]
    return found if found and user not in words.ids("user") else [words.id("user", user), *found]


def _present_interactions(ranker: Ranker, less: Changes) -> Changes:
    """The interactions to remove that users really have; facts were checked before."""
    graph, rows = whole(ranker.graph), less.interactions
    ends = [
        np.array([graph.vocabulary.ids(kind)[name] for name in rows[kind]], dtype=np.int64)
        for kind in ("user", "item")
    ]
    there = _held_out(ranker, *ends)
    there |= graph.rows.edges(ends[0], np.full_like(ends[0], INTERACTION), ends[1]) >= 0
    return replace(less, interactions=rows.filter(there))


def _held_out(ranker: Ranker, users: Ids, items: Ids) -> Bools:
    """Which pairs of entities were held out for testing: they aren't in the graph, but must go if
    the user's interactions do."""
    n, pairs = ranker.graph.n_items, ranker.held_out
    keys = pair_keys(users, items - ranker.graph.n_users, n)
    found: Bools = np.isin(keys, pair_keys(pairs.users, pairs.items, n))
    return found


def _to_remove(ranker: Ranker, changes: Changes) -> tuple[Pairs, tuple[Ids, Ids, Ids]]:
    """The pairs that stay held out, and the facts of the graph to remove."""
    graph = whole(ranker.graph)
    rows = changes.interactions.with_columns(time=0)
    new = placed(replace(changes, interactions=rows), graph)
    _check_there(graph, new)
    h, r, t, *_ = new.numbered(graph)
    outside = (r == INTERACTION) & _held_out(ranker, h, t)
    pairs, n = ranker.held_out, graph.n_items
    gone = pair_keys(h[outside], t[outside] - graph.n_users, n)
    kept = ~np.isin(pair_keys(pairs.users, pairs.items, n), gone)
    return Pairs(pairs.users[kept], pairs.items[kept]), (h[~outside], r[~outside], t[~outside])


def _check_there(graph: KnowledgeGraph, new: Placed) -> None:
    """Refuse to remove something that doesn't exist."""
    if new.relations:
        raise UnknownNameError(
            "relation", new.relations[0].name, [r.name for r in graph.relations if not r.derived]
        )
    for kind, names in new.entities.items():
        for name in names:
            if name not in graph.vocabulary.ids(kind):
                raise UnknownNameError(kind, name, graph.vocabulary.ids(kind))


# ── what was fitted, on the graph as it is now ──────────────────────────────────────────


def _rebuilt(
    fitted: Fitted, before: KnowledgeGraph, moved: Renumbered, log: tuple[Update, ...]
) -> Fitted:
    moved = moved._replace(graph=recounted(before, moved))
    ranker, graph = fitted.ranker, moved.graph
    encoder = _encoder(ranker.encoder, before, moved)
    old, numbers = ranker.logic.rules, moved.relations
    rules = RuleSet(
        tuple(replace(r, relations=tuple(numbers[list(r.relations)].tolist())) for r in old)
    )
    logic = replace(ranker.logic, rules=rules, expected=None)
    on = Ranker.of(graph, encoder, logic, ranker.fusion, ranker.walk, ranker.sample)
    sequence = ranker.sequence
    if sequence is not None and isinstance(encoder, TransE):
        sequence = sequence.grown(Moved.of(before, moved), before.n_users, encoder)
    held_out = _moved_pairs(ranker.held_out, before, moved)
    on = replace(on, held_out=held_out, sequence=sequence)
    on = with_newcomers(on, moved.learned)
    return replace(
        fitted,
        ranker=on,
        mined=_mined(fitted.mined, before, graph),
        reasoner=_reasoner(fitted.reasoner, on, fitted, len(before.relations)),
        updates=replace(updates_of(fitted), learned=moved.learned, log=log),
        catalogue=fitted.catalogue.moved(_places_of_items(before, moved)),
    )


def _places_of_items(before: KnowledgeGraph, moved: Renumbered) -> Ids:
    """The new number of each item among items; -1 if it is gone."""
    first, n = before.n_users, before.n_items
    places = moved.entities[first : first + n]
    return np.where(places >= 0, places - moved.graph.n_users, -1)


def _split_off_filter_only(
    changes: Changes, catalogue: Catalogue
) -> tuple[Changes, list[pl.DataFrame]]:
    """Changes without the values that the catalogue has instead of the graph, and these values as
    (head, tail) for each of its columns."""
    out, facts, columns = [], changes.facts, changes.columns
    for column in catalogue.filter_only:
        known = pl.col("tail").is_in(column.values) & (pl.col("relation") == column.relation)
        plain = pl.col("value").is_in(column.values) & (pl.col("kind") == "item")
        plain &= pl.col("column").is_in([column.relation, column.relation.removeprefix("has_")])
        here = columns.filter(plain).select("head", pl.col("value").alias("tail"))
        out.append(pl.concat([facts.filter(known).select("head", "tail"), here]))
        facts, columns = facts.filter(~known), columns.filter(~plain)
    return replace(changes, facts=facts, columns=columns), out


def _catalogue_after(
    fitted: Fitted,
    filter_facts: Sequence[pl.DataFrame],
    images: Mapping[str, str],
    numbers: Mapping[str, pl.DataFrame] | None = None,
    *,
    gone: bool = False,
) -> Catalogue:
    """The catalogue with values of items added or removed, numbers replaced, and pictures added."""
    graph, catalogue = whole(fitted.ranker.graph), fitted.catalogue
    ids, first = graph.vocabulary.ids("item"), graph.n_users

    def placed_in(rows: pl.DataFrame) -> list[tuple[str, int]]:
        return [(value, ids[head] - first) for head, value in rows.iter_rows() if head in ids]

    columns = []
    for column, rows in zip(catalogue.filter_only, filter_facts, strict=True):
        pairs = placed_in(rows)
        column = column.minus(pairs) if gone else column.plus(pairs)
        again = placed_in((numbers or {}).get(column.relation, rows[:0]))
        columns.append(column.renewed(again) if again else column)
    pictures = {ids[head] - first: file for head, file in images.items() if head in ids}
    pictures = {**catalogue.images, **pictures}
    return replace(catalogue, filter_only=tuple(columns), images=pictures)


def _encoder(encoder: Encoder, before: KnowledgeGraph, moved: Renumbered) -> Encoder:
    if isinstance(encoder, AdditiveEncoder):
        return encoder.grown(Moved.of(before, moved))
    same = np.array_equal(moved.entities, np.arange(moved.graph.n_entities))
    if same and len(moved.graph.relations) == len(before.relations):
        return encoder
    raise LogerError(
        f"{type(encoder).__name__} can neither add nor remove entities after its fit; fit again, "
        "or use TransE"
    )


def _mined(mined: Mined, before: KnowledgeGraph, graph: KnowledgeGraph) -> Mined:
    """The rules that were tried, over the relations of the graph that aren't derived."""
    old, new = (sum(not r.derived for r in g.relations) for g in (before, graph))
    return mined if old == new else mined_on(mined, graph.given)


def _moved_pairs(pairs: Pairs, before: KnowledgeGraph, moved: Renumbered) -> Pairs:
    """Held-out pairs that still exist and are not in the graph."""
    users = moved.entities[pairs.users]
    items = moved.entities[pairs.items.astype(np.int64) + before.n_users]
    there = (users >= 0) & (items >= 0)
    users, items = users[there], items[there]
    free = moved.graph.rows.edges(users, np.zeros_like(users), items) < 0
    return Pairs.sorted(users[free], items[free] - moved.graph.n_users)


def _reasoner(
    reasoner: PathReasoner | None, ranker: Ranker, fitted: Fitted, relations: int
) -> PathReasoner | None:
    """The path reasoner φ with the current vectors."""
    if reasoner is None:
        return None
    if len(ranker.graph.relations) != relations:
        raise LogerError(
            "the path reasoner knows only the relations it was fitted on; leave out facts of new "
            "relations, or fit again"
        )
    return reasoner_of(ranker, fitted.config, reasoner.walker.state())


# ── the log ─────────────────────────────────────────────────────────────────────────────


def _count_added(
    before: KnowledgeGraph, learned: Learned, moved: Renumbered, new: Placed, entry: Update
) -> Update:
    """The log entry of an update: how much it added."""
    graph = moved.graph
    interactions = len(graph.interactions[0]) - len(before.interactions[0])
    users, items = graph.n_users - before.n_users, graph.n_items - before.n_items
    return replace(
        entry,
        interactions=interactions,
        unseen=_with_new_items(graph, moved.learned) - _with_new_items(before, learned),
        facts=_stated(graph) - _stated(before) - interactions,
        users=users,
        items=items,
        entities=graph.n_entities - before.n_entities - users - items,
        relations=tuple(r.name for r in new.relations),
    )


def _with_new_items(graph: KnowledgeGraph, learned: Learned) -> int:
    """The number of interactions with items that the fit didn't know."""
    return int((~learned.entities(graph)[graph.tails[graph.interactions[0]]]).sum())


def _with_ndcg(ranker: Ranker, new: Placed, row: Update, most: int) -> Update:
    """The log entry of an update with NDCG@10: how well the model predicted the new interactions
    with items that it knew, over up to ``most`` users."""
    graph = whole(ranker.graph)
    users, items = graph.vocabulary.ids("user"), graph.vocabulary.ids("item")
    taken = new.facts.filter(new.facts["relation"] == graph.relations[INTERACTION].name)
    pairs = [
        (users[u], items[v])
        for u, v in taken.select("head", "tail").iter_rows()
        if most and u in users and v in items
    ]
    if not pairs:
        return row
    u, v = np.unique(np.array(pairs, dtype=np.int64), axis=0).T
    fresh = graph.rows.edges(u, np.zeros_like(u), v) < 0
    u, v = u[fresh], v[fresh]
    asked = np.unique(u)
    chosen = np.sort(np.random.default_rng(0).permutation(asked)[:most])
    rows = np.searchsorted(chosen, u)
    there = np.isin(u, chosen)
    if not there.any():
        return row
    lists, _ = ranker.top(chosen, 10)
    found = hits(lists, rows[there], v[there] - graph.n_users)
    values = ndcg(found, np.bincount(rows[there], minlength=len(chosen)))
    return replace(row, ndcg=float(values.mean()), ndcg_users=len(chosen))


def _count_removed(
    before: KnowledgeGraph, moved: Renumbered, users: int, items: int, entry: Update
) -> Update:
    """The log entry of a removal: how much it removed."""
    graph = moved.graph
    interactions = len(before.interactions[0]) - len(graph.interactions[0])
    return replace(
        entry,
        removed_users=users,
        removed_items=items,
        removed_interactions=interactions,
        removed_facts=_stated(before) - _stated(graph) - interactions,
    )


def _stated(graph: KnowledgeGraph) -> int:
    """The number of facts of a graph that aren't derived."""
    return int((graph.edge_relations() < sum(not r.derived for r in graph.relations)).sum())
