"""The one place that types facts: from named facts to facts of typed relations.

For a data set (``numbered``) types are given, known by name or inferred, and relations that mix
types are split. Names are looked up once; everything after that is array work on their codes, so
that millions of facts take seconds.

For a graph that exists already (``typed``, ``acceptable``) a fact is of one of the graph's
relations, by the types that are given or by names that are known, or of a new relation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from loger.data.dataset import ALWAYS, Facts, Note
from loger.data.table_files import note
from loger.errors import DataError, LogerError
from loger.graph import INTERACTION, KnowledgeGraph, Relation

Array = NDArray[np.int64]
USER, ITEM, UNKNOWN = 0, 1, -1
OTHER = "?"
"""The type of an entity that is neither a user nor an item; its real type is inferred later."""

_TYPE_IN_RELATION = re.compile(r"^has_|^.+_(by|in|of|to)_(?=.)")
Names = dict[str, str | None]
"""Names of entities with their labels, or None if there is no label."""
_ENDS = ("head", "tail")


def _type_named_by(relation: str, side: str) -> str:
    """The type of entities that are known from one relation only: ``has_brand`` leads to a brand,
    ``made_by_director`` to a director."""
    return _TYPE_IN_RELATION.sub("", relation) + ("_head" if side == "head" else "")


@dataclass(frozen=True)
class Codes:
    """Temporary numbers for names: their places among all distinct names."""

    names: pl.Series
    users: Array  # [users], their codes
    items: Array

    @classmethod
    def of(cls, facts: pl.DataFrame, users: Sequence[str], items: Sequence[str]) -> Codes:
        """Codes for every name in the facts and for all users and items."""
        people, things = (pl.Series("name", x, dtype=pl.String) for x in (users, items))
        ends = [facts[side].rename("name") for side in _ENDS]
        names = pl.concat([*ends, people, things]).unique()
        return cls(names, places_of(people, names), places_of(things, names))

    def __len__(self) -> int:
        return len(self.names)

    def look_up(self, names: pl.Series | Sequence[str]) -> Array:
        """The code of each name; all of them are known."""
        return places_of(pl.Series("name", names, dtype=pl.String), self.names)


@dataclass(frozen=True)
class Coded:
    """Facts by the codes of their names, relations and types, row by row."""

    row: Array  # where the fact stands in the table as read
    head: Array
    tail: Array
    relation: Array
    head_type: Array
    tail_type: Array
    source: Array  # row of the interactions that stayed, -1 for none
    time: Array  # when a user did it, ALWAYS for what holds at any time

    def __len__(self) -> int:
        return len(self.row)

    def where(self, chosen: NDArray[np.bool_] | Array) -> Coded:
        """Only these rows, by a mask or by their places."""
        return Coded(*(getattr(self, f.name)[chosen] for f in fields(self)))


@dataclass
class Numbering:
    """The work on one table of facts: codes, growing list of types, and the notes so far."""

    table: pl.DataFrame
    codes: Codes
    relations: list[str]
    types: list[str]
    notes: list[Note]
    path: Path | None

    def note(self, what: str, rows: Array) -> None:
        """Note what was done to these rows, with the first of them as the example."""
        note(self.notes, what, self.table[rows], "head", "relation", "tail")

    def error(self, what: str, row: int, value: object, remedy: str) -> DataError:
        """The error that names the place of a fact."""
        line = self.table["line"][row] if "line" in self.table.columns else None
        return DataError(what, path=self.path, line=line, value=value, remedy=remedy)


def numbered(
    table: pl.DataFrame,
    kept: pl.DataFrame,
    before: pl.DataFrame,
    interaction: str,
    users: Sequence[str],
    items: Sequence[str],
    notes: list[Note],
    path: Path | None,
) -> tuple[Facts, tuple[Relation, ...], dict[str, list[str]]]:
    """Facts by entity id, the relations they need, and the names of all entities by type.

    ``kept`` are the interactions that stayed of those ``before``, to which the sources
    of facts point.
    """
    relations = table["relation"].unique(maintain_order=True).to_list()
    columns_of_types = [table[c] for c in ("head_type", "tail_type") if c in table.columns]
    types = (
        pl.concat([pl.Series(["user", "item"]), *columns_of_types])
        .drop_nulls()
        .unique(maintain_order=True)
    )
    codes = Codes.of(table, users, items)
    work = Numbering(table, codes, relations, types.to_list(), notes, path)
    _refuse_interaction(work, interaction)
    facts = _coded(work)
    facts = _with_types_inferred(work, facts)
    facts = _with_sources(work, facts, kept, before)
    facts, kinds = _relations_split(work, facts, interaction)
    head, tail, names = _entity_ids(work, facts, users, items)
    facts = _cleaned(work, replace(facts, head=head, tail=tail))
    columns = (facts.head, facts.relation, facts.tail, facts.source)
    out = Facts(*(c.astype(np.int32) for c in columns))
    if (facts.time > ALWAYS).any():
        out = replace(out, times=facts.time)
    return out, kinds, names


def _refuse_interaction(work: Numbering, interaction: str) -> None:
    if interaction in work.relations:
        row = int((work.table["relation"] == interaction).arg_max() or 0)
        raise work.error(
            f"{interaction!r} is the name of the interaction, so no fact can use it as its "
            "relation",
            row,
            tuple(work.table[c][row] for c in ("head", "relation", "tail")),
            "pass such rows as interactions, or rename the interaction; "
            "otherwise, held-out pairs would leak into the graph",
        )


def _coded(work: Numbering) -> Coded:
    """The facts in codes, with the types that are given or known by name."""
    table, codes, n = work.table, work.codes, len(work.table)
    by_name = np.full(len(codes), UNKNOWN)
    by_name[codes.users] = USER
    by_name[codes.items] = ITEM
    twice = np.intersect1d(codes.users, codes.items)
    ends, kinds, used = {}, {}, 0
    numbers = codes.names.str.contains(r"^\d+$").to_numpy()
    for side in ("head", "tail"):
        ends[side] = codes.look_up(table[side])
        kind = _given_types(work, side)
        untyped = kind == UNKNOWN
        if len(twice):
            used += int(np.isin(ends[side][untyped], twice).sum())
        kind = np.where(untyped, by_name[ends[side]], kind)
        if side == "tail":
            guessed = untyped & (kind != UNKNOWN) & numbers[ends[side]]
            work.note(
                "facts whose tail is a number, read as the item or user with that number "
                "(add tail_type if that's wrong)",
                np.flatnonzero(guessed),
            )
        if OTHER in work.types:
            kind = np.where(kind == work.types.index(OTHER), UNKNOWN, kind)
        kinds[side] = kind
    if used:
        what = (
            "names in facts that match both a user and an item, read as items "
            "(add head_type and tail_type if that's wrong)"
        )
        work.notes.append(Note(what, used, min(codes.names.gather(twice))))
    relation = places_of(table["relation"], pl.Series(work.relations, dtype=pl.String))
    source = np.full(n, -1)
    if "source" in table.columns:
        source = table["source"].cast(pl.Int64).fill_null(-1).to_numpy()
    time = np.full(n, ALWAYS)
    if "time" in table.columns:
        time = table["time"].cast(pl.Int64).fill_null(ALWAYS).to_numpy()
    ends_and_types = ends["head"], ends["tail"], relation, kinds["head"], kinds["tail"]
    return Coded(np.arange(n), *ends_and_types, source, time)


def _given_types(work: Numbering, side: str) -> Array:
    """The types that the table itself gives for heads or tails."""
    if f"{side}_type" not in work.table.columns:
        return np.full(len(work.table), UNKNOWN)
    column = work.table[f"{side}_type"].cast(pl.Enum(work.types)).to_physical()
    return column.cast(pl.Int64).fill_null(UNKNOWN).to_numpy()


def _with_types_inferred(work: Numbering, facts: Coded) -> Coded:
    """Give entities of unknown type one: places of relations that share entities share a type.

    A place is the head side or the tail side of a relation. The type is called after the
    place with the most entities: ``has_brand`` names the type ``brand``, ``made_by_director``
    the type ``director``.
    """
    heads, tails = facts.head_type == UNKNOWN, facts.tail_type == UNKNOWN
    entity = np.concatenate([facts.head[heads], facts.tail[tails]])
    if not len(entity):
        return facts
    place = np.concatenate([2 * facts.relation[heads], 2 * facts.relation[tails] + 1])
    from scipy.sparse import coo_matrix, csr_matrix  # slow to import, and rarely needed
    from scipy.sparse.csgraph import connected_components

    n, n_places = len(work.codes), 2 * len(work.relations)
    ones = np.ones(len(entity), dtype=bool)
    met = csr_matrix((ones, (entity, place)), shape=(n, n_places))  # each entity once per place
    at = np.repeat(np.arange(n), np.diff(met.indptr))
    links = coo_matrix((met.data, (at, met.indices + n)), shape=(n + n_places,) * 2)
    _, group = connected_components(links, directed=False)
    sizes = np.bincount(met.indices, minlength=n_places)
    # The tail side names a type better than the head side; ties go to the name.
    by_fitness = sorted(
        np.flatnonzero(sizes).tolist(),
        key=lambda p: (p % 2 == 0, -sizes[p], work.relations[p // 2]),
    )
    type_of_group: dict[int, int] = {}
    for p in by_fitness:
        if int(group[n + p]) not in type_of_group:
            title = _type_named_by(work.relations[p // 2], _ENDS[p % 2])
            while title in work.types:
                title += "_"
            type_of_group[int(group[n + p])] = len(work.types)
            work.types.append(title)
    lookup = np.full(int(group.max()) + 1, UNKNOWN)
    lookup[list(type_of_group)] = list(type_of_group.values())
    inferred = lookup[group]
    return replace(
        facts,
        head_type=np.where(heads, inferred[facts.head], facts.head_type),
        tail_type=np.where(tails, inferred[facts.tail], facts.tail_type),
    )


def _with_sources(
    work: Numbering, facts: Coded, interactions: pl.DataFrame, before: pl.DataFrame
) -> Coded:
    """Sources as rows of the interactions that stayed; facts of the others go with them.

    A fact between a user and an item that also interacted says no more than the
    interaction: it takes that interaction as its source, so that it cannot leak it. Only what the
    user is known to have done earlier, such as viewing the item, stands for itself.
    """
    source, pair = facts.source, ["user", "item"]
    kept_rows = interactions.select(pair).with_row_index("kept")
    if (source >= 0).any():
        kept = before.select(pair).join(kept_rows, on=pair, how="left", maintain_order="left")
        to_kept = kept["kept"].cast(pl.Int64).fill_null(-1).to_numpy()
        new = np.where(source >= 0, to_kept[source], -1)
        lost = (source >= 0) & (new < 0)
        work.note(
            "facts left out because the interactions behind them were left out", facts.row[lost]
        )
        facts = replace(facts, source=new).where(~lost)
    forth = (facts.head_type == USER) & (facts.tail_type == ITEM)
    back = (facts.head_type == ITEM) & (facts.tail_type == USER)
    if (forth | back).any():
        n = len(work.codes)
        user = np.where(forth, facts.head, facts.tail)
        item = np.where(forth, facts.tail, facts.head)
        users, items = (work.codes.look_up(interactions[kind]) for kind in pair)
        sources = places_of(np.where(forth | back, user * n + item, -1), users * n + items)
        same = sources >= 0
        if "time" in interactions.columns:
            when = interactions["time"].cast(pl.Int64).fill_null(ALWAYS).to_numpy()
            same &= ~((facts.time > ALWAYS) & (facts.time < when[np.maximum(sources, 0)]))
        facts = replace(facts, source=np.where(same, sources, facts.source))
    return facts


def _relations_split(
    work: Numbering, facts: Coded, interaction: str
) -> tuple[Coded, tuple[Relation, ...]]:
    """One relation per (name, head type, tail type); where a name mixes types, it is split."""
    n = len(work.types)
    key = (facts.relation * n + facts.head_type) * n + facts.tail_type
    kinds = pl.Series(key).unique(maintain_order=True)
    rows = [(k // n // n, k // n % n, k % n) for k in kinds.to_list()]
    relations, mixed = [Relation(interaction, "user", "item")], dict[str, list[str]]()
    for base, head, tail in rows:
        same = [row for row in rows if row[0] == base]
        sides = [work.types[head]] if len({row[1] for row in same}) > 1 else []
        sides += [work.types[tail]] if len({row[2] for row in same}) > 1 else []
        name = work.relations[base]
        title = name + (f"[{'>'.join(sides)}]" if sides else "")
        relations.append(Relation(title, work.types[head], work.types[tail]))
        if sides:
            mixed.setdefault(name, []).append(title)
    if mixed:
        example = next(f"{name} into {', '.join(titles)}" for name, titles in mixed.items())
        work.notes.append(
            Note("relations that link different types, split by type", len(mixed), example)
        )
    return replace(facts, relation=1 + places_of(key, kinds)), tuple(relations)


def _entity_ids(
    work: Numbering, facts: Coded, users: Sequence[str], items: Sequence[str]
) -> tuple[Array, Array, dict[str, list[str]]]:
    """Heads and tails as entity ids: users, items, then the others type by type, each in
    order of first appearance; and the names in this order."""
    n = len(work.codes)
    keys = [facts.head_type * n + facts.head, facts.tail_type * n + facts.tail]
    others = pl.Series("name", np.concatenate(keys)).unique(maintain_order=True)
    others = others.filter(others >= 2 * n)
    text = work.codes.names
    of_type = (
        others.to_frame().with_columns(kind=others // n).partition_by("kind", maintain_order=True)
    )
    names = {"user": list(users), "item": list(items)} | {
        work.types[part["kind"][0]]: text.gather(part["name"] % n).to_list() for part in of_type
    }
    order = [USER * n + work.codes.users, ITEM * n + work.codes.items]
    order += [part["name"].to_numpy() for part in of_type]
    head, tail = (places_of(key, np.concatenate(order)) for key in keys)
    for found, side in ((head, "head"), (tail, "tail")):
        stray = np.flatnonzero(found < 0)
        if len(stray):
            row = int(facts.row[stray[0]])
            kind = work.types[int(getattr(facts, f"{side}_type")[stray[0]])]
            raise work.error(
                f"a fact names a{'n' if kind == 'item' else ''} {kind} that doesn't exist",
                row,
                work.table[side][row],
                f"add it to the {kind}s, or give it another type",
            )
    return head, tail, names


def _cleaned(work: Numbering, facts: Coded) -> Coded:
    """Facts without self-loops and without repetition from one source; of what a user did several
    times, the first."""
    if (facts.time > ALWAYS).any():
        facts = facts.where(np.argsort(facts.time, kind="stable"))
    loops = facts.head == facts.tail
    work.note("facts that link an entity to itself left out", facts.row[loops])
    facts = facts.where(~loops) if loops.any() else facts
    if not len(facts):
        return facts
    n, n_relations = int(max(facts.head.max(), facts.tail.max())) + 1, int(facts.relation.max()) + 1
    key = (facts.head * n_relations + facts.relation) * n + facts.tail
    keys = pl.DataFrame({"key": key, "source": facts.source})
    one_source = bool((facts.source == facts.source[0]).all())
    new = (keys["key"] if one_source else keys.to_struct()).is_first_distinct().to_numpy()
    work.note("repeated facts counted once", facts.row[~new])
    return facts if new.all() else facts.where(new)


def places_of(values: pl.Series | Array, known: pl.Series | Sequence[str] | Array) -> Array:
    """Where each value stands among distinct known ones; -1 where it doesn't."""
    table = pl.DataFrame({"name": known}).with_row_index("code")
    asked = pl.DataFrame({"name": values})
    joined = asked.join(table, on="name", how="left", maintain_order="left")
    return joined["code"].cast(pl.Int64).fill_null(-1).to_numpy()


# ── for a graph that exists already ─────────────────────────────────────────────────────


def typed(
    facts: pl.DataFrame, graph: KnowledgeGraph, named: Mapping[str, Names]
) -> tuple[pl.DataFrame, tuple[Relation, ...]]:
    """Facts with the types of their ends and the graph's name of their relation, and the relations
    that are new. A fact that the graph can't take is an error."""
    rows = list(facts.iter_rows(named=True))
    found, refused, new = _resolved(rows, graph, named, len(rows))
    for error in refused.values():
        raise error
    columns = dict.fromkeys(("head_type", "head", "relation", "tail_type", "tail"), pl.String)
    table = pl.DataFrame(found, schema=columns)
    return table.with_columns(time=pl.lit(0, pl.Int64), strength=pl.lit(0.0)), new


def acceptable(
    rows: Iterable[Mapping[str, str | None]],
    graph: KnowledgeGraph,
    named: Mapping[str, Names],
    room: int,
) -> tuple[list[dict[str, str]], dict[int, str]]:
    """Of single facts those that a graph can take, with the types of their ends; and for the
    others, by place, why it can't. The reasons name no entity. At most ``room`` relations may be
    new."""
    found, refused, _ = _resolved(rows, graph, named, room)
    return found, {place: str(error) for place, error in refused.items()}


def _resolved(
    rows: Iterable[Mapping[str, str | None]],
    graph: KnowledgeGraph,
    named: Mapping[str, Names],
    room: int,
) -> tuple[list[dict[str, str]], dict[int, LogerError], tuple[Relation, ...]]:
    """The facts that a graph can take, the errors of the others by place, and new relations.

    Facts of one relation follow one another; facts that link an entity to itself are dropped.
    Facts of a new relation must agree on types with its first one.
    """
    found, new = dict[str, list[dict[str, str]]](), dict[str, Relation]()
    refused, known = dict[int, LogerError](), cache(partial(_options, graph))
    for place, row in enumerate(rows):
        fact = {side: str(row[side]) for side in ("head", "relation", "tail")}
        name = fact["relation"]
        try:
            options = known(name)
            if not options:
                ends = _ends_of_new(graph, row, named)
                if name not in new and len(new) >= room:
                    raise LogerError("the model can't store more new relations; fit it again")
                options = [new.setdefault(name, Relation(name, *ends))]
                _check_agrees(options[0], ends, row)
            relation = _relation_of(row, options, graph)
        except LogerError as error:
            refused[place] = error
            continue
        types = {"head_type": relation.head_type, "tail_type": relation.tail_type}
        if (fact["head"], types["head_type"]) != (fact["tail"], types["tail_type"]):
            found.setdefault(name, []).append(fact | {"relation": relation.name} | types)
    return [fact for facts in found.values() for fact in facts], refused, tuple(new.values())


def _check_agrees(first: Relation, ends: tuple[str, str], row: Mapping[str, str | None]) -> None:
    """Refuse a fact of a new relation whose types differ from those of the first one."""
    if (first.head_type, first.tail_type) != ends:
        raise _misfit(
            f"a fact of the new relation leads from {' to '.join(ends)}, but the first one "
            f"leads from {first.head_type} to {first.tail_type}",
            row,
            "use a separate relation for each, or add head_type and tail_type",
        )


def _misfit(what: str, row: Mapping[str, str | None], remedy: str) -> DataError:
    """The error about the types of a fact; it shows the fact if the row is one of a table."""
    value = tuple(row[c] for c in ("head", "relation", "tail")) if "line" in row else None
    return DataError(what, line=row.get("line"), value=value, remedy=remedy)  # type: ignore[arg-type]


def is_known(graph: KnowledgeGraph, kind: str, name: str) -> bool:
    """Whether a graph has an entity of a type and name."""
    words = graph.vocabulary
    return kind in words.types and name in words.ids(kind)


def _options(graph: KnowledgeGraph, name: str) -> list[Relation]:
    """The relations that a name may mean: one that mixed types was split by them when it was
    read, into ``name[type]``."""
    if name == graph.relations[INTERACTION].name:
        raise LogerError(
            f"{name!r} is the name of the interaction, so no fact can use it as its "
            "relation; pass such rows as interactions"
        )
    split = re.compile(re.escape(name) + r"\[.+\]")
    found = [r for r in graph.relations if r.name == name or split.fullmatch(r.name)]
    if any(r.derived for r in found):
        raise LogerError(f"{name!r} is derived from interactions, so you can't add facts to it")
    return found


def _relation_of(
    row: Mapping[str, str | None], options: list[Relation], graph: KnowledgeGraph
) -> Relation:
    """The relation that a fact is of, by the types that are given, or by names that are known."""
    fits = [
        r
        for r in options
        if all(row.get(f"{e}_type") in (None, getattr(r, f"{e}_type")) for e in _ENDS)
    ]
    if len(fits) > 1:
        near = [
            sum(is_known(graph, getattr(r, f"{e}_type"), str(row[e])) for e in _ENDS) for r in fits
        ]
        fits = [r for r, n in zip(fits, near, strict=True) if n == max(near)]
    if len(fits) == 1:
        return fits[0]
    signatures = ", ".join(f"{r.head_type} to {r.tail_type}" for r in options)
    if fits:
        what = f"the relation can lead from {signatures}, so this fact is ambiguous"
        raise _misfit(what, row, "add head_type and tail_type")
    what = f"the relation leads only from {signatures}"
    raise _misfit(what, row, "use these types or another relation")


def _ends_of_new(
    graph: KnowledgeGraph, row: Mapping[str, str | None], named: Mapping[str, Names]
) -> tuple[str, str]:
    """The types of the ends of a fact whose relation the model does not have: as it says, or item
    or user by name, or one of the relation's own."""
    head, tail = (
        row.get(f"{end}_type")
        or _kind_of(graph, str(row[end]), named)
        or _type_named_by(str(row["relation"]), end)
        for end in _ENDS
    )
    return head, tail


def _kind_of(graph: KnowledgeGraph, name: str, named: Mapping[str, Names]) -> str | None:
    """Item or user, if a name is one's; None for anything else."""
    for kind in ("item", "user"):
        if name in named[kind] or is_known(graph, kind, name):
            return kind
    return None
