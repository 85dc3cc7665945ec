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
from loger.explain.attribution import explain
from loger.graph import KnowledgeGraph, history, history_edges, whole
from loger.graph import Path as Chain
from loger.grounding import ground, strongest_paths
from loger.model import LOGER
from loger.rules import RuleSet
from loger.rules.sentences import path_sentence
from loger.web.names import Names
from loger.web.problems import ProblemError
from loger.web.schemas import Who

GUEST = "you"
"""What a new user is called, unless a known one is."""
EXAMPLES = 5
SAMPLE = 256
"""Users whose histories are looked through for examples of a rule."""


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
        self._names: dict[str, Names] = {}
        self._examples: dict[int, list[dict[str, Any]]] = {}

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph of the bundle."""
        return whole(self.model.graph_)

    def warm(self) -> None:
        """Answer one of each kind of question, so that nobody waits for a first time."""
        self.listed(self.model, 0, 3, 1)
        if self.takes_new_users:
            self.listed(*self._newcomer(Who(history=[self.names_of(0)])), 3, 1)
        for entity_type in self.graph.vocabulary.types:
            self.names(entity_type)

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
        last = len(model.rules_) - 1
        if who.without_rules:
            if max(who.without_rules) > last:
                what = f"there is no rule {max(who.without_rules)}; they are 0 … {last}"
                raise ProblemError(404, what, "unknown_rule")
            model = model.without_rules(who.without_rules)
        return model, user

    def user(self, name: str) -> int:
        """The number of a user by name."""
        return self._id("user", name)

    def item(self, name: str) -> int:
        """The number of an item among items."""
        return self._id("item", name) - self.graph.n_users

    def _id(self, entity_type: str, name: str) -> int:
        found = self.graph.vocabulary.ids(entity_type).get(name)
        if found is not None:
            return found
        # Not UnknownNameError: its search for near names takes a second among many users.
        near = self.search(entity_type, name, 3)[0] if name.strip() else []
        hint = "; did you mean " + " or ".join(repr(e["name"]) for e in near) + "?" if near else ""
        raise ProblemError(
            404, f"there is no {entity_type} {name!r}{hint}", f"unknown_{entity_type}"
        )

    def _with_changes(self, user: int, who: Who) -> LOGER:
        owned = set(self.items_of(self.graph, user).tolist())
        gone = sorted({self.item(x) for x in who.remove})
        more = sorted({self.item(x) for x in who.add} - owned)
        for v in gone:
            if v not in owned:
                raise ProblemError(
                    409, f"{who.user!r} does not have {self.names_of(v)!r} to remove"
                )
        return self.model.user_view(user, gone, more)

    def _newcomer(self, who: Who) -> tuple[LOGER, int]:
        if not self.takes_new_users:
            raise ProblemError(409, "this model's encoder knows only the users it was trained with")
        gone = set(who.remove)
        named = [x for x in dict.fromkeys([*(who.history or []), *who.add]) if x not in gone]
        items = [self.item(name) for name in named]
        guest = self.graph.n_users  # the last user there
        return self._guests.user_view(guest, (), items, range(len(items))), guest

    @property
    def takes_new_users(self) -> bool:
        """Whether the encoder can make a user of its items."""
        encoder = self.model.encoder_
        return isinstance(encoder, FoldsIn) and encoder.folds_in

    # ── what ────────────────────────────────────────────────────────────────────────────

    def among(self, include: Sequence[str], exclude: Sequence[str]) -> NDArray[np.bool_] | None:
        """Which items may be recommended; None: all."""
        if not include and not exclude:
            return None
        out = np.full(self.graph.n_items, not include)
        for text in include:
            out[self._belonging(text)] = True
        for text in exclude:
            out[self._belonging(text)] = False
        return out

    def _belonging(self, text: str) -> NDArray[np.integer[Any]]:
        """The items that a filter ``type:name`` speaks of."""
        kind, _, name = text.partition(":")
        types = [t for t in self.graph.vocabulary.types if t != "user"]
        if kind not in types:
            what = f"a filter is of one of {', '.join(types)}, got {kind!r}"
            raise ProblemError(404, what, "unknown_type")
        if kind == "item":
            return np.array([self.item(name)])
        entity = self._id(kind, name)
        relations = range(2 * len(self.graph.relations))
        found = [
            self.graph.neighbours(entity, r)
            for r in relations
            if self.graph.signature(r) == (kind, "item")
        ]
        none = np.empty(0, dtype=np.int32)
        return np.concatenate([none, *found]) - self.graph.n_users

    def listed(
        self,
        model: LOGER,
        user: int,
        k: int,
        paths: int,
        among: NDArray[np.bool_] | None = None,
        explained: bool = True,
    ) -> list[dict[str, Any]]:
        """A list as the API gives it."""
        scores = model.ranker_.scores([user], observed=False)
        found, values = scores.best(min(k, self.graph.n_items), among)
        items = found[0][found[0] >= 0]
        if explained:
            told = explain(model.ranker_, np.full(len(items), user), items, paths, scores)
        words, first = model.graph_.vocabulary, model.graph_.n_users
        return [
            {
                "rank": place + 1,
                "item": words.names[v + first],
                "label": words.labels[v + first],
                "score": float(values[0][place]),
                "explanation": told[place].as_dict() if explained else None,
            }
            for place, v in enumerate(items.tolist())
        ]

    # ── names ───────────────────────────────────────────────────────────────────────────

    def names(self, entity_type: str) -> Names:
        """The index of a type's names."""
        if entity_type not in self._names:
            words = self.graph.vocabulary
            span = words.span(entity_type)
            cut = slice(span.start, span.stop)
            self._names[entity_type] = Names(words.names[cut], words.labels[cut])
        return self._names[entity_type]

    def search(self, entity_type: str, query: str, most: int) -> tuple[list[dict[str, str]], bool]:
        """Entities of a type by name or label."""
        found, more = self.names(entity_type).find(query, most)
        first = self.graph.vocabulary.span(entity_type).start
        return [self.entity(k + first) for k in found], more

    def entity(self, entity: int) -> dict[str, str]:
        """An entity as the API gives it."""
        words = self.graph.vocabulary
        return {
            "name": words.names[entity],
            "label": words.labels[entity],
            "type": words.type_of(entity),
        }

    def names_of(self, item: int) -> str:
        """The name of an item by its number among items."""
        return self.graph.vocabulary.names[item + self.graph.n_users]

    @staticmethod
    def items_of(graph: KnowledgeGraph, user: int) -> NDArray[np.int64]:
        """The items of a user, by number among items."""
        _, edges = history_edges(graph, np.array([user]))
        return graph.tails[edges].astype(np.int64) - graph.n_users

    def history(self, user: int) -> list[dict[str, Any]]:
        """The items of a user, the latest first."""
        _, edges = history_edges(self.graph, np.array([user]))
        times = self.graph.times
        rows = [
            {
                "item": self.graph.vocabulary.names[int(self.graph.tails[e])],
                "label": self.graph.vocabulary.labels[int(self.graph.tails[e])],
                "time": None if times is None else int(times[e]),
            }
            for e in edges
        ]
        return rows if times is None else sorted(rows, key=lambda row: -row["time"])

    # ── rules ───────────────────────────────────────────────────────────────────────────

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
        """The strongest paths of a rule to what some users have, each of another user."""
        if place not in self._examples:
            self._examples[place] = self._found_examples(place)
        return self._examples[place]

    def _found_examples(self, place: int) -> list[dict[str, Any]]:
        graph, rules = self.model.ranker_.logic_graph, RuleSet((self.model.rules_[place],))
        sample = np.linspace(0, graph.n_users - 1, min(SAMPLE, graph.n_users)).astype(np.int64)
        owners, items = history(graph, sample)
        users = sample[owners]
        walk = self.model.logic_.walk
        found = ground(graph, rules, users, items, walk=walk)
        strength = found.counts if found.strengths is None else found.strengths
        pairs = np.repeat(np.arange(len(found)), np.diff(found.indptr))
        best: dict[int, int] = {}
        for cell in np.argsort(-strength, kind="stable").tolist():
            best.setdefault(int(users[pairs[cell]]), int(pairs[cell]))
            if len(best) == EXAMPLES:
                break
        rows = np.array(list(best.values()), dtype=np.int64)
        zeros = np.zeros(len(rows), dtype=np.int64)
        nodes, _ = strongest_paths(graph, rules, zeros, users[rows], items[rows], 1, walk)
        return [
            self._example(int(users[row]), inner[0], int(items[row]), rules)
            for row, inner in zip(rows, nodes, strict=True)
        ]

    def _example(
        self, user: int, inner: NDArray[np.int32], item: int, rules: RuleSet
    ) -> dict[str, Any]:
        rule = rules[0]
        between = inner[: len(rule) - 1].tolist()
        path = Chain((user, *between, item + self.graph.n_users), rule.relations)
        return {
            "sentence": path_sentence(self.graph, path),
            "entities": [self.entity(e) for e in path.entities],
            "relations": list(rule.names),
        }
