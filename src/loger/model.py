"""LOGER: fit, recommend, explain, what if, save, load. People's names go in and come out here.

What is learned is a ``Ranker`` (``model.ranker_``), which works by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from loger import html, persistence, tables
from loger.config import LOGERConfig as LOGERConfig
from loger.data.names import Name, as_name, as_names
from loger.data.splits import Split
from loger.em import EM, Round
from loger.encoder import Encoder, TransE
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError, NotFittedError
from loger.evaluation.recommender import ExplainedItem, Floats, Recommender
from loger.explain.attribution import Explanation
from loger.explain.attribution import explain as explain_pairs
from loger.explain.counterfactual import Counterfactual
from loger.explain.lists import explained_items
from loger.explain.questions import WhatIf, WhyNot
from loger.fitting import Fit, Fitted, Tried
from loger.graph import Graph, whole
from loger.logic import Logic
from loger.progress import resolved
from loger.ranker import Lists, Ranker
from loger.rules import RuleSet


class LOGER(Recommender):
    """Recommendations with the rules and paths that make up their scores.

    ``LOGER()`` is the best we know, ``LOGER(LOGERConfig.paper())`` the paper. ``encoder`` makes
    another encoder than TransE: ``LOGER(encoder=lambda: KGE("RotatE"))``. ``seed`` is short for
    the setting of that name.
    """

    learns_from_validation = True

    ranker_: Ranker
    """All that was learned: what makes scores."""
    config_: LOGERConfig
    """The settings, with those that the fit chose."""
    trace_: tuple[Round, ...]
    """The rounds of EM: bound, sizes of H and H⁺, held-out metrics."""
    tried_: list[Tried]
    """Settings that were tried: (setting, value, NDCG on development users)."""

    def __init__(
        self,
        config: LOGERConfig | None = None,
        *,
        seed: int | None = None,
        encoder: Callable[[], Encoder] | None = None,
        name: str = "LOGER",
        engine: Engine | None = None,
    ) -> None:
        config = config or LOGERConfig()
        self.config = (config if seed is None else replace(config, seed=seed)).seeded()
        self.make_encoder = encoder or partial(TransE, self.config.encoder)
        self.name = name
        self.engine = engine or LocalEngine()

    def __getattr__(self, name: str) -> Any:
        """Say of what only a fitted model has that it has not been fitted."""
        if name.endswith("_") and not name.startswith("_") and not self.is_fitted:
            raise NotFittedError("this model has not been fitted; call fit(split) or load(folder)")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if not self.is_fitted:
            return f"<{self.name}, not fitted>"
        rules = int(np.count_nonzero(self.weights_))
        return f"<{self.name}, {rules} rules with weight, {self.graph_!r}>"

    def _repr_html_(self) -> str:
        if not self.is_fitted:
            return html.table([self.name], [["not fitted"]])
        rows = self.rule_table().head(5).select("weight", "sentence").rows()
        rules = html.table(["weight", "strongest rules"], [(f"{w:.2f}", s) for w, s in rows])
        return f"<div><b>{escape(repr(self))}</b>{rules}</div>"

    @property
    def is_fitted(self) -> bool:
        """Whether there is something to recommend by."""
        return "ranker_" in vars(self)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(
        self,
        split: Split,
        *,
        tune: Mapping[str, Sequence[Any]] | None = None,
        checkpoint: Path | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Learn from train, choose on validation, then learn from both.

        ``tune`` maps settings of ``EMConfig`` or its ``Walk`` to values to try, one setting after
        another; the default tries recencies, where the data have times, and popularities. With
        ``checkpoint`` (a folder) an interrupted fit takes up the encoder where it was. Progress
        is drawn in a terminal or a notebook; ``progress=False`` shows nothing.
        """
        if not isinstance(split, Split):
            raise LogerError(f"fit takes a split, fit(split(dataset)); got {type(split).__name__}")
        with resolved(progress) as report:
            self._take(self._fit(checkpoint, report).run(split, tune))
        return self

    def em(
        self, split: Split, *, checkpoint: Path | None = None, progress: Progress = silent
    ) -> EM:
        """The EM problem of a split, with this model's settings or, once fitted, those it chose;
        for ``ablate_hidden`` and ``opacity_curve``. Fits a new encoder, and only on train."""
        settings = (self.config_ if self.is_fitted else self.config).em
        return self._fit(checkpoint, progress).problem(split)(settings)

    def _fit(self, checkpoint: Path | None, progress: Progress) -> Fit:
        engine = self.engine if progress is silent else self.engine.with_progress(progress)
        return Fit(self.config, self.make_encoder, engine, progress, checkpoint)

    def _take(self, fitted: Fitted) -> None:
        self.ranker_, self.config_ = fitted.ranker, fitted.config
        self.trace_, self.tried_ = fitted.trace, fitted.tried

    # ── what was learned ────────────────────────────────────────────────────────────────

    @property
    def graph_(self) -> Graph:
        """All that is known, validation included."""
        return self.ranker_.graph

    @property
    def encoder_(self) -> Encoder:
        """The KG encoder f_θ."""
        return self.ranker_.encoder

    @property
    def logic_(self) -> Logic:
        """The logic model."""
        return self.ranker_.logic

    @property
    def rules_(self) -> RuleSet:
        """The rules of the model, in a fixed order."""
        return self.logic_.rules

    @property
    def weights_(self) -> NDArray[np.float64]:
        """The weights of the rules."""
        return self.logic_.weights

    @property
    def users(self) -> list[str]:
        """The names of all users."""
        return self.graph_.vocabulary.names[: self.graph_.n_users]

    @property
    def items(self) -> list[str]:
        """The names of all items."""
        first = self.graph_.n_users
        return self.graph_.vocabulary.names[first : first + self.graph_.n_items]

    def history(self, user: Name) -> pl.DataFrame:
        """What a user has: item, label and, where they are known, time; the latest first."""
        return tables.history_table(self.graph_, self._user(user))

    def rule_table(self) -> pl.DataFrame:
        """The rules with their weights, strongest first, and as sentences."""
        return tables.rule_table(self.logic_)

    def importance(self, user: Name) -> pl.DataFrame:
        """y_{u,l} = w_l n_l(u) / Σ n(u), n_l(u) counted over the user's own interactions."""
        return tables.importance_table(self.ranker_, self._user(user))

    # ── recommending ────────────────────────────────────────────────────────────────────

    def score(self, users: ArrayLike) -> Floats:
        """S of all items for users by number; see ``Recommender.score``."""
        return self.ranker_.score(users)

    def top(self, users: ArrayLike, k: int, among: NDArray[np.bool_] | None = None) -> Lists:
        """The k best items and their scores of users by number; see ``Ranker.top``."""
        return self.ranker_.top(users, k, among, self.engine)

    def recommend(
        self, users: Name | Iterable[Name] | None = None, k: int = 10, *, explain: bool = False
    ) -> pl.DataFrame:
        """The k best new items of users by name (of all, if none are named), best first.
        With ``explain`` a column ``because`` says the first reason of each, ``reasons`` lists those
        that are shown, and ``carried`` is their share of the item's lead.
        """
        if users is None:
            ids = np.arange(self.graph_.n_users)
        else:
            ids = np.array([self._user(name) for name in as_names(users)], dtype=np.int64)
        if not explain:
            return tables.lists_table(self.graph_, ids, self.top(ids, k))
        return tables.explained_lists_table(self.ranker_, ids, k, self.engine)

    # ── explaining ──────────────────────────────────────────────────────────────────────

    def explain(self, user: Name, item: Name, paths: int = 3) -> Explanation:
        """Why an item has the score it has for a user: parts that add up, rules, paths."""
        u, v = self._user(user), self._item(item)
        return explain_pairs(self.ranker_, np.array([u]), np.array([v]), paths)[0]

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """Recommendations with their best paths, by number; see ``Explains``."""
        return explained_items(self.ranker_, users, k, paths, self.engine)

    def why_not(self, user: Name, item: Name, k: int = 10) -> WhyNot:
        """What keeps an item out of a user's k best."""
        return WhyNot.of(self.ranker_, self._user(user), self._item(item), k)

    def counterfactual(self, user: Name, item: Name, k: int = 10) -> Counterfactual:
        """The fewest interactions without which an item leaves the k best, and what comes instead.

        What the user has stays out of the list, removed or not.
        """
        return Counterfactual.of(self.ranker_, self._user(user), self._item(item), k)

    def what_if(
        self,
        user: Name,
        remove: Name | Iterable[Name] = (),
        add: Name | Iterable[Name] = (),
        k: int = 10,
    ) -> WhatIf:
        """The user's k best, had it not had some items or had others; nothing is retrained."""
        u = self._user(user)
        removed, added = ([self._item(x) for x in as_names(names)] for names in (remove, add))
        return WhatIf.of(self.ranker_, self.ranker_.user_view(u, removed, added), u, k)

    # ── the same model on other data ────────────────────────────────────────────────────

    def with_interactions(
        self, pairs: Iterable[tuple[Name, Name]], times: Sequence[int] | None = None
    ) -> LOGER:
        """The model with interactions (user, item) that came later, of known or new users.

        Nothing is retrained: rules need only the edges, and the encoder makes a user's vector
        of its items. Items must be known.
        """
        named = [(as_name(u), v) for u, v in pairs]
        known = self.graph_.vocabulary.ids("user")
        new = list(dict.fromkeys(u for u, _ in named if u not in known))
        graph = whole(self.graph_).with_users(new) if new else whole(self.graph_)
        users = [graph.vocabulary.id("user", u) for u, _ in named]
        items = [self._item(v) for _, v in named]
        return self.with_ranker(self.ranker_.on(graph.plus(users, items, times)))

    def with_users(self, names: Sequence[Name]) -> LOGER:
        """The model with some users more, who have no interactions yet."""
        graph = whole(self.graph_).with_users([as_name(name) for name in names])
        return self.with_ranker(self.ranker_.on(graph))

    def without_rules(self, places: Iterable[int]) -> LOGER:
        """The model in which some rules, by their place, weigh nothing."""
        return self.with_ranker(self.ranker_.without_rules(places))

    def with_ranker(self, ranker: Ranker) -> LOGER:
        """The same model with another ranker, such as ``model.ranker_.on(graph)``."""
        other = copy(self)
        other.ranker_ = ranker
        return other

    def _user(self, name: Name) -> int:
        return self.graph_.vocabulary.id("user", as_name(name))

    def _item(self, name: Name) -> int:
        return self.graph_.vocabulary.id("item", as_name(name)) - self.graph_.n_users

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path | str) -> None:
        """Write the model as a bundle: manifest, safetensors, Parquet."""
        fitted = Fitted(self.ranker_, self.config_, self.trace_, self.tried_)
        persistence.save(folder, self.name, fitted)

    @classmethod
    def load(cls, folder: Path | str, engine: Engine | None = None) -> LOGER:
        """Open what ``save`` wrote; a damaged or foreign bundle is an error that says why."""
        name, fitted, make_encoder = persistence.load(folder)
        model = cls(fitted.config, encoder=make_encoder, name=name, engine=engine)
        model._take(fitted)
        return model
