"""The net effect of events that a graph doesn't hold yet.

The last event about a thing counts, so any number of events comes to one removal and one update.
Something new that was deleted before a merge leaves nothing, not even its name. ``person`` gives
the changes to one user at once, ``fold`` those to a whole bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from loger.data.assemble import NO_FACTS
from loger.data.facts import Names, acceptable
from loger.graph import DISLIKED, INTERACTION, KnowledgeGraph
from loger.graph.arrays import as_strengths
from loger.tables.changes import Changes, Fold
from loger.tables.propose import is_dislike, relation_of
from loger.updates.events import Event

Fact = tuple[str, str, str]
"""Head, relation, tail."""
Ends = tuple[str | None, str | None]
"""The types of head and tail, where they are given."""
NEW_RELATIONS = 100
"""New relations that events can bring until the next fit; a graph can have 32,767 in all."""


class Refused(NamedTuple):
    """An event that can't be merged. Logs only get ``seq`` and ``why``, which name nobody."""

    seq: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class Person:
    """What events changed about one user."""

    kept: bool
    """Whether what the graph knows about the user still holds: not for new or deleted users."""
    there: bool
    """Whether the user exists after these events."""
    label: str | None = None
    added: Mapping[str, int] = field(default_factory=dict)
    """Item → when the user took it."""
    strengths: Mapping[str, float] = field(default_factory=dict)
    """Item → how strong the interaction was, for the items in ``added``."""
    removed: frozenset[str] = frozenset()
    disliked: frozenset[str] = frozenset()
    """Items to hide from the user."""


class Pending:
    """Events that a graph doesn't hold yet. One thread may add while others read."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        seq: int = 0,
        min_rating: float | None = None,
        *,
        room: int = NEW_RELATIONS,
        unlearned: Sequence[str] = (),
    ) -> None:
        self.graph, self.seq, self.floor, self.room = graph, seq, min_rating, room
        self.unlearned = unlearned
        """Types that events added after the fit, each named after its relation."""
        self.events = 0
        self.since: float | None = None
        """When the first of these events was received."""
        self.people: dict[str, Person] = {}
        self.items: dict[str, str | None] = {}
        """Items in events, with their labels."""
        self.gone_items: dict[str, None] = {}
        self.facts: dict[Fact, tuple[bool, Ends, int]] = {}
        """Whether each was stated or deleted, the types of its ends, and by which event."""
        self.waiting = 0
        """Events that have no effect until they are merged: on items and facts."""
        self._users, self._known = (graph.vocabulary.ids(kind) for kind in ("user", "item"))
        self._last = 0 if graph.times is None else int(graph.times.max(initial=0))
        self._ends = {r.name: (r.head_type, r.tail_type) for r in graph.relations}

    def add(self, events: Iterable[Event]) -> None:
        """Add events in order; those that were added before are skipped."""
        for event in events:
            if event.seq <= self.seq:
                continue
            take = getattr(self, f"_{event.kind}", None)
            if take is not None:  # impressions and clicks change nothing
                take(event)
                self.events += 1
                self.since = event.at if self.since is None else self.since
            self.seq = event.seq

    def person(self, name: str) -> Person | None:
        """What changed about a user; None if nothing did."""
        return self.people.get(name)

    def _of(self, user: str) -> Person:
        known = user in self._users
        return self.people.get(user) or Person(kept=known, there=known)

    # ── one event ───────────────────────────────────────────────────────────────────────

    def _interaction(self, event: Event) -> None:
        user, item, rating = event.body["user"], event.body["item"], event.body.get("rating")
        behaviour = event.body.get("behaviour")
        target = self.graph.relations[INTERACTION].name
        if behaviour is not None and relation_of(behaviour) != target:
            if is_dislike(behaviour, target):
                self._dislike(event)
            else:
                self._state(event, relation_of(behaviour))
            return
        if self.floor is not None and rating is not None and rating < self.floor:
            self._dislike(event)
            return
        person = self._of(user)
        if item in person.disliked:  # no longer
            self.facts[user, DISLIKED, item] = False, ("user", "item"), event.seq
            person = replace(person, disliked=person.disliked - {item})
        when = event.when if event.body.get("time") is not None else max(event.when, self._last)
        added = {**person.added, item: max(when, person.added.get(item, when))}
        strengths = {**person.strengths, item: self._strength(event, person.strengths.get(item))}
        self.people[user] = replace(person, there=True, added=added, strengths=strengths)
        if item not in self._known or item in self.gone_items:
            self.items.setdefault(item, None)
            self.waiting += 1

    def _dislike(self, event: Event) -> None:
        """Hide an item from a user at once. After the merge, what it has in common with other items
        counts against them."""
        person = self._of(event.body["user"])
        disliked = person.disliked | {event.body["item"]}
        self.people[event.body["user"]] = replace(person, there=True, disliked=disliked)
        self._state(event, DISLIKED)

    def _state(self, event: Event, relation: str) -> None:
        """Add what a user did, other than the interaction, to a known item."""
        user, item = event.body["user"], event.body["item"]
        if item in self._known or item in self.items:
            self.facts[user, relation, item] = True, ("user", "item"), event.seq
            self.people[user] = replace(self._of(user), there=True)
            self.waiting += 1

    def _strength(self, event: Event, before: float | None) -> float:
        """The strength of a pair's interactions, with one more."""
        stated_strength = event.body.get("rating" if self.graph.rated else "strength")
        now = (
            self.graph.default_strength
            if stated_strength is None
            else float(as_strengths(stated_strength))
        )
        return now if before is None else max(before, now) if self.graph.rated else before + now

    def _user(self, event: Event) -> None:
        user = event.body["user"]
        person = self._of(user)
        self.people[user] = replace(person, there=True, label=event.body.get("label", person.label))
        self._state_all(user, "user", event)

    def _item(self, event: Event) -> None:
        item = event.body["item"]
        self.items[item] = event.body.get("label", self.items.get(item))
        self._state_all(item, "item", event)
        self.waiting += 1

    def _state_all(self, head: str, kind: str, event: Event) -> None:
        for relation, tails in (event.body.get("facts") or {}).items():
            for tail in tails:
                self.facts[head, relation, tail] = True, (kind, None), event.seq
                self.waiting += 1

    def _fact(self, event: Event) -> None:
        self._set_fact(event, True)
        self.waiting += 1

    def _set_fact(self, event: Event, stated: bool) -> None:
        fact = event.body["head"], event.body["relation"], event.body["tail"]
        ends = event.body.get("head_type"), event.body.get("tail_type")
        self.facts[fact] = stated, ends, event.seq

    def _delete(self, event: Event) -> None:
        user, item = event.body.get("user"), event.body.get("item")
        if user is not None and item is not None:
            person = self._of(user)
            removed = person.removed | {item}
            self.people[user] = replace(_without(person, item), removed=removed)
        elif user is not None:
            self.people[user] = Person(kept=False, there=False)
            self._discard_facts_about(user, "user")
        elif item is not None:
            self._delete_item(item)
        else:
            self._set_fact(event, False)
            if event.body["relation"] == DISLIKED and event.body["head"] in self.people:
                person = self.people[event.body["head"]]
                disliked = person.disliked - {event.body["tail"]}
                self.people[event.body["head"]] = replace(person, disliked=disliked)
        self.waiting += 1

    def _delete_item(self, item: str) -> None:
        self.gone_items[item] = None
        self.items.pop(item, None)
        self._discard_facts_about(item, "item")
        for user, person in list(self.people.items()):
            if item in person.added:
                self.people[user] = _without(person, item)

    def _discard_facts_about(self, name: str, kind: str) -> None:
        """Discard facts from events about an entity that is gone, or that may be about it."""
        kinds = (None, kind, *(self.unlearned if kind == "user" else ()))
        for fact, (_, given, _) in list(self.facts.items()):
            ends = self._ends.get(fact[1], given)
            for end, of in zip((fact[0], fact[2]), ends, strict=True):
                if end == name and of in kinds:
                    self.facts.pop(fact, None)

    # ── all of them ─────────────────────────────────────────────────────────────────────

    def fold(self, store: str) -> tuple[Fold, list[Refused]]:
        """All events as one removal and one update, and the facts that can't be merged."""
        people = list(self.people.items())
        facts, refused = self._acceptable_facts()
        return Fold(
            users=[u for u, person in people if not person.kept and self._is_held(u)],
            items=[v for v in self.gone_items if v in self._known],
            less=Changes(interactions=self._removed(), facts=_facts(self._denied())),
            more=Changes(
                interactions=pl.DataFrame(
                    [
                        (u, v, when, p.strengths[v])
                        for u, p in people
                        if p.there
                        for v, when in p.added.items()
                    ],
                    schema={
                        "user": pl.String,
                        "item": pl.String,
                        "time": pl.Int64,
                        "rating" if self.graph.rated else "strength": pl.Float64,
                    },
                    orient="row",
                ),
                facts=_facts(facts),
                items=dict(self.items),
                users={
                    u: p.label for u, p in people if p.there and (p.label is not None or not p.kept)
                },
            ),
            store=store,
            seq=self.seq,
        ), refused

    def _is_held(self, user: str) -> bool:
        """Whether the graph has a user, who may only be known from facts without types."""
        words = self.graph.vocabulary
        return user in self._users or any(user in words.ids(kind) for kind in self.unlearned)

    def _removed(self) -> pl.DataFrame:
        """Deleted interactions of users and items that stay."""
        rows = [
            (u, v)
            for u, person in self.people.items()
            if person.kept
            for v in sorted(person.removed)
            if v in self._known and v not in self.gone_items
        ]
        return pl.DataFrame(rows, schema={"user": pl.String, "item": pl.String}, orient="row")

    def _denied(self) -> list[tuple[Fact, Ends]]:
        """Deleted facts that the graph has."""
        words, graph = self.graph.vocabulary, self.graph
        out = list[tuple[Fact, Ends]]()
        for (head, relation, tail), (stated, *_) in self.facts.items():
            ends = self._ends.get(relation)
            if stated or ends is None or relation == graph.relations[INTERACTION].name:
                continue
            h, t = words.ids(ends[0]).get(head), words.ids(ends[1]).get(tail)
            if h is not None and t is not None and graph.has(h, graph.relation_id(relation), t):
                out.append(((head, relation, tail), ends))
        return out

    def _acceptable_facts(self) -> tuple[list[tuple[Fact, Ends]], list[Refused]]:
        """Stated facts that can be merged, with the types of their ends, so that they mean the same
        when some entities are gone; and the others with the reason."""
        named: dict[str, Names] = {
            "user": {u: p.label for u, p in self.people.items() if p.there},
            "item": self.items,
        }
        stated = [(*fact, *ends, seq) for fact, (said, ends, seq) in self.facts.items() if said]
        rows = [dict(zip(NO_FACTS.columns, row[:-1], strict=True)) for row in stated]
        found, refused = acceptable(rows, self.graph, named, self.room)
        why = [
            Refused(stated[k][-1], " ".join(stated[k][:3]), reason) for k, reason in refused.items()
        ]
        facts: list[tuple[Fact, Ends]] = [
            ((row["head"], row["relation"], row["tail"]), (row["head_type"], row["tail_type"]))
            for row in found
        ]
        return facts, why


def _without(person: Person, item: str) -> Person:
    """The changes to a user without an item that events had added."""
    added, strengths = dict(person.added), dict(person.strengths)
    added.pop(item, None)
    strengths.pop(item, None)
    return replace(person, added=added, strengths=strengths)


def _facts(rows: list[tuple[Fact, Ends]]) -> pl.DataFrame:
    flat = [(*fact, *ends) for fact, ends in rows]
    return pl.DataFrame(flat, schema=NO_FACTS.schema, orient="row")
