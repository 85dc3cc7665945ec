"""LOGER: fit, recommend, explain, what if, save, load. People's names go in and come out here.

What is learned is a ``Ranker`` (``model.ranker_``), which works by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from loger import persistence
from loger.config import LOGERConfig as LOGERConfig
from loger.data.names import Name, as_name
from loger.data.splits import Split
from loger.em import Round
from loger.encoder import Encoder, TransE
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError, NotFittedError
from loger.evaluation.recommender import ExplainedItem, Floats, Recommender
from loger.explain.attribution import BLOCK, Explanation
from loger.explain.attribution import explain as explain_pairs
from loger.explain.questions import WhatIf, WhyNot
from loger.fitting import Fit, Fitted, Tried
from loger.graph import Graph, history, history_edges, whole
from loger.grounding import ground
from loger.logic import Logic
from loger.ranker import Lists, Ranker, blocks
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
        self.make_encoder = encoder or (lambda: TransE(self.config.encoder))
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
        progress: Progress = silent,
    ) -> Self:
        """Learn from train, choose on validation, then learn from both.

        ``tune`` maps settings of ``EMConfig`` or its ``Walk`` to values to try, one setting after
        another; the default tries recencies, where the data have times, and popularities. With
        ``checkpoint`` (a folder) an interrupted fit takes up the encoder where it was.
        """
        if not isinstance(split, Split):
            raise LogerError(f"fit takes a split, fit(split(dataset)); got {type(split).__name__}")
        self._take(self._fit(checkpoint, progress).run(split, tune))
        return self

    def ablate_hidden(
        self,
        split: Split,
        sizes: Sequence[int] = (0, 10, 20, 30, 40, 50),
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> list[dict[str, float]]:
        """The paper's ablation: how good a model is whose E-step selects at most so many hidden
        pairs of each user (``EM.ablate_hidden``). Fits a new encoder, and only on train.

        A fitted model takes the settings that it chose.
        """
        settings = (self.config_ if self.is_fitted else self.config).em
        problem = self._fit(checkpoint, progress).problem(split)
        return problem(settings).ablate_hidden(sizes)

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
        graph, words = self.graph_, self.graph_.vocabulary
        _, edges = history_edges(graph, np.array([self._user(user)]))
        entities = graph.rows.tails[edges].tolist()
        columns: dict[str, Any] = {
            "item": [words.names[e] for e in entities],
            "label": [words.labels[e] for e in entities],
        }
        if graph.times is None:
            return pl.DataFrame(columns, schema_overrides={"item": pl.String, "label": pl.String})
        table = pl.DataFrame({**columns, "time": graph.times[edges]})
        return table.sort("time", descending=True, maintain_order=True)

    def rule_table(self) -> pl.DataFrame:
        """The rules with their weights, strongest first, and as sentences."""
        order = np.argsort(-self.weights_, kind="stable")
        return pl.DataFrame(
            {
                "weight": self.weights_[order],
                "rule": [str(self.rules_[k]) for k in order],
                "sentence": [self.rules_[k].sentence() for k in order],
            }
        )

    def importance(self, user: Name) -> pl.DataFrame:
        """y_{u,l} = w_l n_l(u) / Σ n(u), n_l(u) counted over the user's own interactions."""
        u = self._user(user)
        _, items = history(self.graph_, np.array([u]))
        logic_graph = self.ranker_.logic_graph
        groundings = ground(logic_graph, self.rules_, np.full(len(items), u), items)
        n = np.asarray(groundings.count_matrix.sum(axis=0)).ravel()
        share = n / max(int(n.sum()), 1)
        return pl.DataFrame(
            {
                "rule": [str(rule) for rule in self.rules_],
                "weight": self.weights_,
                "n": n,
                "importance": self.weights_ * share,
            }
        ).sort("importance", descending=True, maintain_order=True)

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

        With ``explain`` a column ``because`` says the first reason of each.
        """
        if users is None:
            ids = np.arange(self.graph_.n_users)
        else:
            ids = np.array([self._user(name) for name in _names(users)], dtype=np.int64)
        if not explain:
            return self._table(ids, *self.top(ids, k))
        parts = list(self.engine.map("explaining", _because, blocks(ids, BLOCK), (self.ranker_, k)))
        none = np.empty((0, k))
        items = np.concatenate([none.astype(np.int32), *(part[0] for part in parts)])
        scores = np.concatenate([none.astype(np.float32), *(part[1] for part in parts)])
        texts = [text for part in parts for text in part[2]]
        return self._table(ids, items, scores).with_columns(pl.Series("because", texts, pl.String))

    def recommend_all(self, path: Path | str, k: int = 10) -> None:
        """Write the k best items of all users to a Parquet file."""
        self.recommend(None, k).write_parquet(path)

    def _table(
        self, users: NDArray[np.int64], items: NDArray[np.int32], scores: Floats
    ) -> pl.DataFrame:
        words, first = self.graph_.vocabulary, self.graph_.n_users
        k = items.shape[1]
        present = items.ravel() >= 0
        entities = items.ravel()[present] + first
        return pl.DataFrame(
            {
                "user": [words.names[u] for u in np.repeat(users, k)[present].tolist()],
                "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), len(users))[present],
                "item": [words.names[e] for e in entities.tolist()],
                "label": [words.labels[e] for e in entities.tolist()],
                "score": scores.ravel()[present],
            }
        )

    # ── explaining ──────────────────────────────────────────────────────────────────────

    def explain(self, user: Name, item: Name, paths: int = 3) -> Explanation:
        """Why an item has the score it has for a user: parts that add up, rules, paths."""
        u, v = self._user(user), self._item(item)
        return explain_pairs(self.ranker_, np.array([u]), np.array([v]), paths)[0]

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """Recommendations with their best paths, by number; see ``Explains``."""
        asked = np.asarray(users, dtype=np.int64)
        shared = (self.ranker_, k, paths)
        parts = self.engine.map("explaining", _explained, blocks(asked, BLOCK), shared)
        return [row for part in parts for row in part]

    def why_not(self, user: Name, item: Name, k: int = 10) -> WhyNot:
        """What keeps an item out of a user's k best."""
        return WhyNot.of(self.ranker_, self._user(user), self._item(item), k)

    def what_if(
        self,
        user: Name,
        remove: Name | Iterable[Name] = (),
        add: Name | Iterable[Name] = (),
        k: int = 10,
    ) -> WhatIf:
        """The user's k best, had it not had some items or had others; nothing is retrained."""
        u = self._user(user)
        removed, added = ([self._item(x) for x in _names(names)] for names in (remove, add))
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

    def user_view(
        self,
        user: int,
        remove: Sequence[int] = (),
        add: Sequence[int] = (),
        times: Sequence[int] | None = None,
    ) -> LOGER:
        """The model for questions about one user who has other interactions, by number."""
        return self.with_ranker(self.ranker_.user_view(user, remove, add, times))

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


def _because(
    shared: tuple[Ranker, int], users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], Floats, list[str]]:
    """The lists of a block of users, and the first reason of each item."""
    ranker, k = shared
    lists, explanations = _explain_top(ranker, users, k, 1)
    return *lists, [e.because() for e in explanations]


def _explained(
    shared: tuple[Ranker, int, int], users: NDArray[np.int64]
) -> list[list[ExplainedItem]]:
    ranker, k, paths = shared
    (items, _), explanations = _explain_top(ranker, users, k, paths)
    rows = iter(explanations)
    return [[next(rows).explained() for v in row if v >= 0] for row in items]


def _explain_top(
    ranker: Ranker, users: NDArray[np.int64], k: int, paths: int
) -> tuple[Lists, list[Explanation]]:
    """The k best items of users, and explanations of all of them, row by row; scored once."""
    distinct, place = np.unique(users, return_inverse=True)
    scores = ranker.scores(distinct, observed=False)
    items, values = scores.best(k)
    items, values = items[place], values[place]
    present = items.ravel() >= 0
    owners = np.repeat(users, k)[present]
    explanations = explain_pairs(ranker, owners, items.ravel()[present], paths, scores)
    return (items, values), explanations


def _names(names: Name | Iterable[Name]) -> list[str]:
    """One name or several, as a list."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [as_name(names)]
    return [as_name(name) for name in names]
