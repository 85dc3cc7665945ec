"""One loaded bundle as requests see it: users, items that may be recommended, searches, rules."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl
import polars.selectors as cs

from loger.encoder.folding import folds_in
from loger.errors import UnknownNameError
from loger.explain.frames import history_table, importance_table
from loger.explain.lists import ListRequest, recommendations
from loger.explain.questions import rule_examples
from loger.explain.record import entity_record, facts_about
from loger.graph import KnowledgeGraph, history, whole
from loger.graph.vocabulary import Finder
from loger.model import LOGER
from loger.ranking.selection import Selection, select
from loger.rules import Rule, Wording
from loger.store import bundle
from loger.tables.propose import check_behaviour
from loger.updates.pending import Pending, Person
from loger.web.masks import Masks
from loger.web.problems import ProblemError
from loger.web.schemas import Who, Wishes


class Subject(NamedTuple):
    """Who a question is about."""

    model: LOGER
    """The model as it is for them."""
    user: int
    """Their number in it."""
    name: str


class Served:
    """A model and what serving needs besides. Only ``pending`` ever changes, so threads can share
    it."""

    def __init__(self, folder: Path, stamp: bundle.Stamp | None = None) -> None:
        self.stamp = stamp or bundle.stamp(folder)
        real = folder.resolve()  # a link may change meanwhile
        self.model = LOGER.load(real)
        self.loaded = time.time()
        self.fingerprint = bundle.fingerprint(real)
        self.finder = Finder(self.graph.vocabulary)
        self._examples: dict[tuple[int, Wording], list[dict[str, Any]]] = {}
        self._measures = {str(m.rule): m for m in self.model.mined_.measures}
        self.pending: Pending | None = None
        """Events that the bundle doesn't hold yet; None if there is no store of events."""

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph of the bundle."""
        return whole(self.model.graph_)

    def holds(self, store: str) -> int:
        """The number of the last event of a store that the bundle holds."""
        updates = self.model.updates_
        return 0 if updates is None else updates.folded.get(store, 0)

    def warm(self) -> None:
        """Answer one question of each kind, so that no user has to wait for compilation."""
        request = ListRequest(3, explain=True, paths=1)
        recommendations(self.model.ranker_, 0, request)
        if self.takes_new_users:
            model, guest, _ = self._newcomer(self.model.items[:1])
            recommendations(model.ranker_, guest, request)
        self.finder.prepare()

    # ── who ─────────────────────────────────────────────────────────────────────────────

    def person(self, who: Who) -> Subject:
        """The user that a request is about, with the changes of events and of the request."""
        if (who.user is None) == (who.history is None):
            raise ProblemError(422, "pass either a user or a history")
        if who.user is None:
            removed = set(who.remove)
            names = dict.fromkeys([*(who.history or []), *who.add])
            asked = self._newcomer([x for x in names if x not in removed])
        else:
            asked = self._known(who.user, who)
        if who.without_rules:
            self.check_rule(max(who.without_rules))
            asked = asked._replace(model=asked.model.without_rules(who.without_rules))
        return asked

    def user(self, name: str) -> int:
        """The number of a user by name, or by a label that nobody else has."""
        return self.graph.vocabulary.id("user", name)

    def has_user(self, name: str) -> bool:
        """Whether the bundle or the events know a user of this name."""
        changed = self._changed(name)
        return name in self.graph.vocabulary.ids("user") if changed is None else changed.there

    def has_name(self, name: str) -> bool:
        """Whether the bundle or the events know an entity of this name."""
        words, pending = self.graph.vocabulary, self.pending
        if pending is not None and (name in pending.people or name in pending.items):
            return True
        return any(name in words.ids(kind) for kind in words.types)

    def check_behaviour(self, behaviour: str) -> None:
        """Refuse a behaviour that is probably a typo: it would become a relation of its own."""
        ends = ("user", "item")
        known = [r.name for r in self.graph.relations if (r.head_type, r.tail_type) == ends]
        try:
            check_behaviour(behaviour, known)
        except UnknownNameError as error:
            raise ProblemError(422, str(error), "unknown_behaviour") from None

    def item(self, name: str, among: Container[int] | None = None) -> int:
        """The number of an item among items. A label is first looked up ``among`` some entities."""
        words = self.graph.vocabulary
        entity = words.id("item", name, among)
        if self.pending is not None and words.names[entity] in self.pending.gone_items:
            raise UnknownNameError("item", name, (), near=())
        return entity - self.graph.n_users

    def _known(self, name: str, who: Who) -> Subject:
        """A user by name, who may only be known from events."""
        changed = self._changed(name)
        if changed is None and name not in self.graph.vocabulary.ids("user"):
            name = self.graph.vocabulary.names[self.user(name)]  # it was a label
            changed = self._changed(name)
        if changed is not None and not changed.there:
            raise UnknownNameError("user", name, (), near=())
        if changed is not None and not changed.kept:
            gone = {self.item(v) for v in who.remove}
            names = dict.fromkeys([*self._taken(changed), *who.add])
            kept = [v for v in names if self.item(v) not in gone]
            return self._newcomer(kept, name, changed.strengths)
        user = self.user(name)
        if changed is None and not (who.remove or who.add):
            return Subject(self.model, user, name)
        return Subject(self._with_changes(user, name, changed, who), user, name)

    def _changed(self, name: str) -> Person | None:
        return None if self.pending is None else self.pending.person(name)

    def _taken(self, changed: Person) -> list[str]:
        """The known items that a user took according to events, the earliest first."""
        items = self.graph.vocabulary.ids("item")
        gone = () if self.pending is None else self.pending.gone_items
        known = [v for v in changed.added if v in items and v not in gone]
        return sorted(known, key=changed.added.__getitem__)

    def _with_changes(self, user: int, name: str, changed: Person | None, who: Who) -> LOGER:
        """The model in which a user has the items that events and a request say."""
        before = set(history(self.graph, np.array([user]))[1].tolist())
        added, gone = self._by_events(changed, before)
        for named in who.remove:
            has = (before - gone) | added.keys()
            item = self.item(named, {v + self.graph.n_users for v in has})
            if item not in has:
                raise ProblemError(409, f"{name!r} doesn't have {named!r}, so it can't be removed")
            added.pop(item, None)
            gone |= {item} & before
        more = {self.item(named) for named in who.add} - (before - gone) - added.keys()
        if more:  # as if it were the last thing they did
            times = self.graph.times
            last = 0 if times is None else int(times.max(initial=0))
            added |= dict.fromkeys(more, max([last, *added.values()]) + 1)
        items = sorted(added)
        when, names = [added[v] for v in items], self.graph.vocabulary.names
        known = {} if changed is None else changed.strengths
        usual, first = self.graph.default_strength, self.graph.n_users
        strong = [known.get(names[first + v], usual) for v in items]
        ranker = self.model.ranker_.user_view(user, sorted(gone), items, when, strong)
        return self.model.with_ranker(ranker)

    def _by_events(
        self, changed: Person | None, before: set[int]
    ) -> tuple[dict[int, int], set[int]]:
        """The items that events add to a user, with times, and those that they remove."""
        if changed is None:
            return {}, set()
        ids, first = self.graph.vocabulary.ids("item"), self.graph.n_users
        gone = {ids[v] - first for v in changed.removed if v in ids} & before
        taken = {ids[v] - first: changed.added[v] for v in self._taken(changed)}
        return {v: when for v, when in taken.items() if v not in before - gone}, gone

    def _newcomer(
        self,
        names: Sequence[str],
        name: str | None = None,
        strengths: Mapping[str, float] = MappingProxyType({}),
    ) -> Subject:
        """A new user who has some items, some of them with a strength."""
        if not self.takes_new_users:
            what = "this model's encoder knows only the users it was trained with"
            raise ProblemError(409, what)
        strong = [strengths.get(v, self.graph.default_strength) for v in names]
        ranker, guest = self.model.ranker_.guest([self.item(v) for v in names], strong)
        called = ranker.graph.vocabulary.names[guest] if name is None else name
        return Subject(self.model.with_ranker(ranker), guest, called)

    def label(self, asked: Subject) -> str:
        """The label of a user."""
        changed = self._changed(asked.name)
        if changed is not None and (changed.label is not None or not changed.kept):
            return changed.label or asked.name
        return self.graph.vocabulary.labels[asked.user]

    @property
    def takes_new_users(self) -> bool:
        """Whether the encoder can make a user of its items."""
        return folds_in(self.model.encoder_)

    # ── what ────────────────────────────────────────────────────────────────────────────

    def selection(self, ask: Wishes, masks: Masks) -> Selection:
        """Which items may be recommended, and how varied a list should be."""
        chosen = select(
            self.graph,
            ask.include,
            ask.exclude,
            diversity=ask.diversity,
            at_most=ask.at_most,
            masks=masks.of(self.graph),
            catalogue=self.model.catalogue_,
        )
        gone = () if self.pending is None else tuple(self.pending.gone_items)
        return self._without(chosen, gone)

    def for_person(
        self, chosen: Selection, asked: Subject, removed: Sequence[str] = ()
    ) -> Selection:
        """A selection without what the user dislikes, and without what a request removes."""
        changed, first = self._changed(asked.name), self.graph.n_users
        disliked = () if changed is None else changed.disliked
        gone = [self.graph.vocabulary.names[first + self.item(v)] for v in removed]
        return self._without(chosen, [*disliked, *gone])

    def _without(self, chosen: Selection, items: Iterable[str]) -> Selection:
        ids, first = self.graph.vocabulary.ids("item"), self.graph.n_users
        known = [ids[v] - first for v in items if v in ids]
        if not known:
            return chosen
        among = np.ones(self.graph.n_items, bool) if chosen.among is None else chosen.among.copy()
        among[known] = False
        return replace(chosen, among=among)

    def search(self, entity_type: str, query: str, limit: int) -> tuple[list[dict[str, str]], bool]:
        """Entities of a type by name or label, and whether there are more."""
        rows = self._beside(entity_type, query)
        found, more = list[int](), len(rows) > limit
        if not rows or entity_type in self.graph.vocabulary.types:
            found, more = self.finder.search(entity_type, query, limit)
        rows += [entity_record(self.graph.vocabulary, entity) for entity in found]
        rows, more = rows[:limit], more or len(rows) > limit
        if self.pending is not None and entity_type == "user":
            rows = [r for r in rows if (p := self.pending.person(r["name"])) is None or p.there]
        if self.pending is not None and entity_type == "item":
            rows = [r for r in rows if r["name"] not in self.pending.gone_items]
        return rows, more

    def _beside(self, entity_type: str, query: str) -> list[dict[str, str]]:
        """Values of a type that aren't in the graph, but can be used in filters."""
        columns = [c for c in self.model.catalogue_.filter_only if c.type == entity_type]
        wanted = query.casefold().strip()
        values = dict.fromkeys(v for c in columns for v in c.values if wanted in v.casefold())
        return [{"type": entity_type, "name": v, "label": v} for v in values]

    def history(self, asked: Subject) -> list[dict[str, Any]]:
        """The items of a user, the latest first."""
        table = history_table(asked.model.graph_, asked.user).with_columns(
            pl.col("item").cast(pl.String), cs.temporal().dt.epoch("s")
        )
        return [{"time": None, **row} for row in table.to_dicts()]

    def facts(self, item: str) -> dict[str, Any]:
        """The facts about an item."""
        number = self.item(item)
        entity = entity_record(self.graph.vocabulary, number + self.graph.n_users)
        return {
            "item": entity["name"],
            "label": entity["label"],
            "facts": facts_about(self.graph, number, self.model.catalogue_),
        }

    def image(self, item: str) -> str | None:
        """The file of an item's picture, as the table of items named it."""
        return self.model.catalogue_.images.get(self.item(item))

    # ── rules ───────────────────────────────────────────────────────────────────────────

    def check_rule(self, place: int) -> None:
        """Refuse the number of a rule that doesn't exist."""
        last = len(self.model.rules_) - 1
        if place > last:
            what = f"unknown rule {place}; rules are numbered 0 to {last}"
            raise ProblemError(404, what, "unknown_rule")

    def rule(self, place: int, words: Wording) -> dict[str, Any]:
        """A rule with its weight and measures."""
        rule = self.model.rules_[place]
        return {
            "id": place,
            "rule": str(rule),
            "sentence": rule.sentence(words),
            "relations": list(rule.names),
            "types": list(rule.types),
            "weight": float(self.model.weights_[place]),
            **self._measured(rule),
        }

    def _measured(self, rule: Rule) -> dict[str, Any]:
        """How a rule did on the interactions that it was mined from; nulls if that is unknown."""
        measure = self._measures.get(str(rule))
        if measure is None:
            return dict.fromkeys(("support", "precision", "lift", "coverage"))
        known = measure.reached > 0
        return {
            "support": measure.support,
            "precision": measure.precision if known else None,
            "lift": measure.lift if known else None,
            "coverage": measure.support / max(1, self.model.mined_.pairs),
        }

    def examples(self, place: int, words: Wording) -> list[dict[str, Any]]:
        """Paths of a rule to items that some users have, searched once for each language."""
        key = place, words
        if key not in self._examples:
            ranker = self.model.ranker_
            self._examples[key] = rule_examples(
                whole(ranker.logic_graph),
                self.model.rules_[place],
                ranker.logic.walk,
                words=words,
            )
        return self._examples[key]

    def profile(self, who: Who, words: Wording) -> dict[str, Any]:
        """How important each rule is to a user, the most important first."""
        model, user, name = self.person(who)
        places = {str(rule): k for k, rule in enumerate(model.rules_)}
        rows = [
            {
                "id": places[row["rule"]],
                "rule": row["rule"],
                "sentence": model.rules_[places[row["rule"]]].sentence(words),
                "weight": row["weight"],
                "paths": row["n"],
                "importance": row["importance"],
            }
            for row in importance_table(model.ranker_, user).to_dicts()
        ]
        return {"user": name, "rules": rows}


# ── pictures ────────────────────────────────────────────────────────────────────────────


IMAGE_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""Formats that can't contain scripts, by the ending of the file's name."""


def find_image(folder: Path, given: str) -> Path | None:
    """The file of a picture in a folder, or None. ``given`` comes from the table of items: a path
    relative to the folder, or any path or URL that ends with the file's name."""
    text = unquote(urlsplit(given).path) if "://" in given else given.replace("\\", "/")
    root = folder.resolve()
    for name in (text.lstrip("/"), PurePosixPath(text).name):
        if not name or "\0" in name:
            continue
        path = (root / name).resolve()
        inside = path.is_relative_to(root) and path.suffix.lower() in IMAGE_TYPES
        if inside and path.is_file():
            return path
    return None
