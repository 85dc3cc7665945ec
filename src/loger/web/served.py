"""One loaded bundle as requests see it: who asks, what may be recommended, what is found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loger import bundle
from loger.encoder.folding import FoldsIn
from loger.explain.examples import rule_examples
from loger.explain.records import recommendations
from loger.explain.schema import entity_record
from loger.graph import KnowledgeGraph, history, whole
from loger.graph.filters import item_mask
from loger.graph.search import Finder
from loger.model import LOGER
from loger.web.problems import ProblemError
from loger.web.schemas import Who

GUEST = "you"
"""What a new user is called, unless a known one is."""


class Served:
    """A model with what serving needs beside it. Never changes, so threads may share it."""

    def __init__(self, folder: Path) -> None:
        self.stamp = bundle.stamp(folder)
        real = folder.resolve()  # a link may be pointed elsewhere meanwhile
        self.model = LOGER.load(real)
        self.loaded = time.time()
        self.fingerprint = bundle.fingerprint(real)
        name = GUEST
        while name in self.graph.vocabulary.ids("user"):
            name += "_"
        self._guests = self.model.with_users([name])  # one user more, who has nothing yet
        self.finder = Finder(self.graph.vocabulary)
        self._examples: dict[int, list[dict[str, Any]]] = {}

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph of the bundle."""
        return whole(self.model.graph_)

    def warm(self) -> None:
        """Answer one of each kind of question, so that nobody waits for a first time."""
        recommendations(self.model.ranker_, 0, 3, 1)
        if self.takes_new_users:
            model, guest = self._newcomer(Who(history=self.model.items[:1]))
            recommendations(model.ranker_, guest, 3, 1)
        self.finder.prepare()

    # ── who ─────────────────────────────────────────────────────────────────────────────

    def person(self, who: Who) -> tuple[LOGER, int]:
        """The model as it is for someone, and their number in it."""
        if (who.user is None) == (who.history is None):
            raise ProblemError(422, "give either a user or a history")
        if who.user is not None:
            model, user = self.model, self.user(who.user)
            if who.remove or who.add:
                model = self._with_changes(user, who)
        else:
            model, user = self._newcomer(who)
        if who.without_rules:
            self.check_rule(max(who.without_rules))
            model = model.without_rules(who.without_rules)
        return model, user

    def user(self, name: str) -> int:
        """The number of a user by name."""
        return self.finder.id("user", name)

    def item(self, name: str) -> int:
        """The number of an item among items."""
        return self.finder.id("item", name) - self.graph.n_users

    def _with_changes(self, user: int, who: Who) -> LOGER:
        """The model in which a known user has fewer or more items."""
        owned = set(history(self.graph, np.array([user]))[1].tolist())
        removed = {self.item(name): name for name in who.remove}
        added = {self.item(name) for name in who.add} - owned
        for item, name in removed.items():
            if item not in owned:
                raise ProblemError(409, f"{who.user!r} does not have {name!r}, so cannot lose it")
        view = self.model.ranker_.user_view(user, sorted(removed), sorted(added))
        return self.model.with_ranker(view)

    def _newcomer(self, who: Who) -> tuple[LOGER, int]:
        """The model with a new user who has some items, and that user's number."""
        if not self.takes_new_users:
            raise ProblemError(409, "this model's encoder knows only the users it was trained with")
        removed = set(who.remove)
        names = [x for x in dict.fromkeys([*(who.history or []), *who.add]) if x not in removed]
        items = [self.item(name) for name in names]
        guest = self.graph.n_users  # the last user there
        view = self._guests.ranker_.user_view(guest, (), items, range(len(items)))
        return self._guests.with_ranker(view), guest

    @property
    def takes_new_users(self) -> bool:
        """Whether the encoder can make a user of its items."""
        encoder = self.model.encoder_
        return isinstance(encoder, FoldsIn) and encoder.folds_in

    # ── what ────────────────────────────────────────────────────────────────────────────

    def among(self, include: Sequence[str], exclude: Sequence[str]) -> NDArray[np.bool_] | None:
        """Which items may be recommended; None: all."""
        return item_mask(self.graph, include, exclude, self.finder)

    def search(self, entity_type: str, query: str, limit: int) -> tuple[list[dict[str, str]], bool]:
        """Entities of a type by name or label, and whether there are more."""
        found, more = self.finder.search(entity_type, query, limit)
        return [entity_record(self.graph.vocabulary, entity) for entity in found], more

    def history(self, user: str) -> list[dict[str, Any]]:
        """The items of a user, the latest first."""
        self.user(user)  # an unknown one is told with those that look alike
        return [{"time": None, **row} for row in self.model.history(user).to_dicts()]

    # ── rules ───────────────────────────────────────────────────────────────────────────

    def check_rule(self, place: int) -> None:
        """Refuse the number of a rule that does not exist."""
        last = len(self.model.rules_) - 1
        if place > last:
            raise ProblemError(
                404, f"there is no rule {place}; rules are 0 … {last}", "unknown_rule"
            )

    def rule(self, place: int) -> dict[str, Any]:
        """A rule as the API gives it."""
        rule = self.model.rules_[place]
        return {
            "id": place,
            "rule": str(rule),
            "sentence": rule.sentence(),
            "relations": list(rule.names),
            "types": list(rule.types),
            "weight": float(self.model.weights_[place]),
        }

    def examples(self, place: int) -> list[dict[str, Any]]:
        """Paths of a rule to what some users have; found once."""
        if place not in self._examples:
            ranker = self.model.ranker_
            self._examples[place] = rule_examples(
                whole(ranker.logic_graph), self.model.rules_[place], ranker.logic.walk
            )
        return self._examples[place]

    def profile(self, who: Who) -> dict[str, Any]:
        """How important each rule is to someone, the most important first."""
        model, user = self.person(who)
        name = model.graph_.vocabulary.names[user]
        places = {str(rule): k for k, rule in enumerate(model.rules_)}
        rows = [
            {
                "id": places[row["rule"]],
                "rule": row["rule"],
                "sentence": model.rules_[places[row["rule"]]].sentence(),
                "weight": row["weight"],
                "paths": row["n"],
                "importance": row["importance"],
            }
            for row in model.importance(name).to_dicts()
        ]
        return {"user": name, "rules": rows}
