"""LOGER: fit, recommend, explain, update, save, load.

Here users and items have names. Everything below works with integer IDs, in particular the
``Ranker`` that a fit learns (``model.ranker_``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.config import LOGERConfig as LOGERConfig
from loger.data.dataset import Name, as_name, as_names
from loger.data.update_log import Update, Updates, due
from loger.encoder import Encoder, TransE
from loger.encoder.folding import folds_in
from loger.engine import Engine, LocalEngine, Progress, engine_named, silent
from loger.engine.progress import resolved
from loger.engine.progress import table as html_table
from loger.engine.settings import flat, nested, overridden
from loger.engine.threads import check_not_forked
from loger.errors import LogerError, NotFittedError, UnknownNameError
from loger.explain.attribution import Explanation
from loger.explain.attribution import explain as explain_pairs
from loger.explain.lists import (
    Kind,
    ListRequest,
    Member,
    explained_items,
    of_kind,
    recommend_together,
)
from loger.explain.questions import Counterfactual, WhatIf, WhyNot
from loger.explain.reasoned import PathReasoner, Reasoned
from loger.graph import INTERACTION, Graph, history, whole
from loger.graph.arrays import Floats
from loger.graph.catalogue import Catalogue
from loger.learning.fitted import Fitted, Measured, Round
from loger.logic.config import Tried
from loger.logic.mining import Mined
from loger.logic.mln import Logic
from loger.ranking.ranker import Ranker, TopItems
from loger.ranking.selection import Given, Selection, select
from loger.recommender import ExplainedItem, Recommender
from loger.rules import RuleSet
from loger.rules.wording import ENGLISH, Wording, Words, wording_of
from loger.store import persistence

if TYPE_CHECKING:  # scoring doesn't need the modules that read tables and fit
    import polars as pl

    from loger.data.dataset import Dataset
    from loger.data.splits import Split
    from loger.learning.em import EM
    from loger.learning.fit import Fit
    from loger.tables.changes import Fold

log = logging.getLogger(__name__)
SOME_PAIRS = 1_000
"""Pairs of a test part by which ``check_unseen`` decides whether a model knows them."""


class LOGER(Recommender):
    """Recommendations with the rules and paths that make up their scores.

    Args:
        config: the settings. By default these are the best we know; ``LOGERConfig.paper()`` has
            those of the paper.
        seed: overrides the setting of that name.
        encoder: creates another encoder than TransE: ``LOGER(encoder=lambda: KGE("RotatE"))``.
        name: the model's name in tables and reports.
        engine: where the work runs, an engine or its name, such as "ray"
            (docs/how-to/scale-out.md).
    """

    learns_from_validation = True

    ranker_: Ranker
    """Everything that was learned: what makes scores."""
    config_: LOGERConfig
    """The settings, including those that the fit chose."""
    trace_: tuple[Round, ...]
    """The rounds of EM: bound, sizes of H and H⁺, held-out metrics."""
    tried_: list[Tried]
    """What the fit tried: (setting, value, NDCG on development users). If few users have labels,
    the number is instead how often the value is best for left-out users."""
    mined_: Mined
    """The rules that were tried, with support, precision and lift, and why each was kept or
    dropped."""
    reasoner_: PathReasoner | None
    """The path reasoner φ, if the settings explain by it."""
    updates_: Updates | None
    """Updates after the fit (``updates_.log``); None if there were none."""
    record_: Mapping[str, Any] | None
    """How ``loger fit`` made the model, if it did."""
    catalogue_: Catalogue
    """What is known about items besides the graph: values to filter by, pictures."""
    measured_: Measured | None
    """How good the model was on held-out interactions, before it learned from these too if it is
    for use; None if none were held out."""

    def __init__(
        self,
        config: LOGERConfig | None = None,
        *,
        seed: int | None = None,
        encoder: Callable[[], Encoder] | None = None,
        name: str = "LOGER",
        engine: Engine | str | None = None,
    ) -> None:
        engine = engine_named(engine) if isinstance(engine, str) else engine
        self._given: dict[str, Any] = {
            "config": config, "seed": seed, "encoder": encoder, "name": name, "engine": engine
        }  # fmt: skip
        config = config or LOGERConfig()
        self.config = (config if seed is None else replace(config, seed=seed)).seeded()
        self.make_encoder = encoder or partial(TransE, self.config.encoder)
        self.name = name
        self.engine = engine or LocalEngine()

    def __getattr__(self, name: str) -> Any:
        """Raise ``NotFittedError`` for attributes that only a fitted model has."""
        if name.endswith("_") and not name.startswith("_") and not self.is_fitted:
            raise NotFittedError("this model hasn't been fitted; call fit(dataset) or load(folder)")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if not self.is_fitted:
            return f"<{self.name}, not fitted>"
        rules = int(np.count_nonzero(self.weights_))
        return f"<{self.name}, {rules} rules with weight, {self.graph_!r}>"

    def _repr_html_(self) -> str:
        if not self.is_fitted:
            return html_table([self.name], [["not fitted"]])
        rows = self.rule_table().head(5).select("weight", "sentence").rows()
        rules = html_table(["weight", "strongest rules"], [(f"{w:.2f}", s) for w, s in rows])
        return f"<div><b>{escape(repr(self))}</b>{rules}</div>"

    @property
    def is_fitted(self) -> bool:
        """Whether the model has been fitted."""
        return "ranker_" in vars(self)

    # ── settings, in the way of scikit-learn ────────────────────────────────────────────

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The model's arguments; with ``deep`` also every setting, such as ``em__rounds``."""
        return self._given | (flat(self.config) if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Change arguments or settings, such as ``em__rounds=3``; the model is then unfitted."""
        given = self._given | {k: v for k, v in params.items() if k in self._given}
        names = {k: v for k, v in params.items() if k not in self._given}
        if names:
            given["config"] = overridden(given["config"] or LOGERConfig(), nested(names))
        vars(self).clear()
        self.__init__(**given)  # type: ignore[misc]
        return self

    def clone(self) -> LOGER:
        """An unfitted model with the same arguments."""
        return type(self)(**self._given)

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def fit(
        self,
        data: Dataset | Split,
        *,
        hold_out: bool | None = None,
        tune: Mapping[str, Sequence[Any]] | None = None,
        warm_from: LOGER | None = None,
        checkpoint: Path | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Learn from a data set, to use the model, or from a split, to test it.

        With a data set, loger holds out each user's latest interactions, learns settings, rules and
        weights from the others, and measures the result (``measured_``). Then it learns from
        everything. With a split, the test part stays unknown, for research; recommendations can
        contain held-out items, which are marked.

        Args:
            data: a data set or a split.
            hold_out: False measures a split and then learns from all of it; True keeps the test
                part of a data set unknown.
            tune: settings of ``EMConfig`` or its ``Walk`` with values to try, one setting after
                another. By default, the fit tries recencies, if the data has times, and
                popularities. It takes the best value. If few users have labels, an exponent of the
                walk becomes the mean of the values, weighted by how often each is best.
            warm_from: an earlier model, whose settings, rules and weights stay and whose encoder
                continues training. That takes a fraction of the time, but finds no new rules.
            checkpoint: a folder with whose help an interrupted fit resumes.
            progress: False shows no progress; by default, terminals and notebooks show it.
        """
        from loger.data.dataset import Dataset
        from loger.data.splits import Split
        from loger.data.splits import split as parts_of

        if not isinstance(data, Split | Dataset):
            raise LogerError(f"fit takes a data set or a split, got {type(data).__name__}")
        held = isinstance(data, Split) if hold_out is None else hold_out
        split = data if isinstance(data, Split) else parts_of(data)
        check_not_forked("fitting")
        with resolved(progress) as report:
            fit = self._fit(checkpoint, report)
            if warm_from is None:
                self._take(fit.run(split, tune, hold_out=held))
            else:
                self._take(fit.warm(split, warm_from._fitted, hold_out=held))
        return self

    def check_unseen(self, users: NDArray[np.integer], items: NDArray[np.integer]) -> None:
        """Raise an error if the model has learned from these interactions, by number."""
        graph = whole(self.graph_)
        known = sum(
            graph.has(int(u), INTERACTION, int(v) + graph.n_users)
            for u, v in zip(users[:SOME_PAIRS], items[:SOME_PAIRS], strict=True)
            if u < graph.n_users and v < graph.n_items
        )
        if known:
            raise LogerError(
                "this model has learned from the test interactions; to test it, call fit(split) or "
                "run loger fit --hold-out"
            )

    def em(self, split: Split, *, progress: Progress = silent) -> EM:
        """The EM problem of a split, for ``ablate_hidden`` and ``encoder_share_curve``.

        It has this model's settings or, once fitted, those that the fit chose, and a new encoder
        that is trained on the training part. Some users are kept for comparing, even if few have
        labels.
        """
        settings = replace((self.config_ if self.is_fitted else self.config).em, many_labels=0)
        fit = self._fit(None, progress)
        em = fit.problem(split)(settings)
        ordered = self.is_fitted and self.ranker_.sequence is not None
        sequence = fit.sequence(split, em.encoder) if ordered else None
        return em if sequence is None else em.with_sequence(sequence)

    def _fit(self, checkpoint: Path | None, progress: Progress) -> Fit:
        from loger.learning.fit import Fit

        engine = self.engine if progress is silent else self.engine.with_progress(progress)
        folder = None if checkpoint is None else Path(checkpoint)
        return Fit(self.config, self.make_encoder, engine, progress, folder)

    def _take(self, fitted: Fitted) -> None:
        for field in fields(fitted):  # ranker → ranker_, config → config_, …
            setattr(self, f"{field.name}_", getattr(fitted, field.name))

    @property
    def _fitted(self) -> Fitted:
        return Fitted(**{f.name: getattr(self, f"{f.name}_") for f in fields(Fitted)})

    # ── what was learned ────────────────────────────────────────────────────────────────

    @property
    def graph_(self) -> Graph:
        """Everything the model knows: all interactions except those held out for a test."""
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
        """A user's items with labels and, if known, times; latest first."""
        from loger.explain import frames

        return frames.history_table(self.graph_, self._user(user))

    def owned(self, user: Name) -> list[str]:
        """The names of all items a user is known to have. They are never recommended."""
        names, first = self.graph_.vocabulary.names, self.graph_.n_users
        return [names[first + v] for v in np.unique(history(self.graph_, [self._user(user)])[1])]

    def rule_table(self, *, language: str | None = None, wording: Words = None) -> pl.DataFrame:
        """The rules with their weights, strongest first, and as sentences.

        ``language`` and ``wording`` are as in ``recommend``.
        """
        from loger.explain import frames

        return frames.rule_table(self.logic_, wording_of(language, wording))

    def importance(self, user: Name) -> pl.DataFrame:
        """How important each rule is to a user: y_{u,l} = w_l n_l(u) / Σ n(u), as in the paper.

        n_l(u) counts the rule's groundings over the user's own interactions.
        """
        from loger.explain import frames

        return frames.importance_table(self.ranker_, self._user(user))

    # ── recommending ────────────────────────────────────────────────────────────────────

    def score(self, users: ArrayLike) -> Floats:
        """The scores S of all items for users by number; see ``Recommender.score``."""
        return self.ranker_.score(users)

    def top(self, users: ArrayLike, k: int) -> TopItems:
        """The k best items and their scores for users by number; see ``Ranker.top``."""
        return self.ranker_.top(users, k, self.engine)

    def recommend(
        self,
        users: Name | Iterable[Name] | None = None,
        k: int = 10,
        *,
        history: Name | Iterable[Name] | None = None,
        explain: bool = False,
        include: Given = None,
        exclude: Given = None,
        diversity: float = 0.0,
        popularity: float = 0.0,
        at_most: Mapping[str, int] | None = None,
        masks: Mapping[str, Given] | None = None,
        language: str | None = None,
        wording: Words = None,
        style: str | None = None,
    ) -> pl.DataFrame:
        """The k best new items for users, best first.

        A user's own items are never recommended, unless they were held out for a test; such a model
        adds the column ``held_out``.

        Args:
            users: one name or several; by default all users.
            k: the number of items for each.
            history: recommends to someone who isn't among the users, or for a basket: their items,
                latest last.
            explain: whether to add reasons. The column ``because`` contains the first one,
                ``reasons`` lists those shown, and ``carried`` is the share of the item's lead that
                they explain.
            include: the items that may be recommended. A filter such as ``"genre=jazz AND
                price<10"`` (``loger.graph.catalogue``); a list of filters, which must all match,
                except that filters on one column are alternatives; items by name in a set, series,
                array or frame with a column ``item``; a mask; or a function of an item's name.
            exclude: the items that may not be recommended, in the same forms.
            diversity: from 0 to 1, prefers items that share few facts with those above them.
                Scores stay the same; ``rank_by_score`` and ``cost`` show what changed.
            popularity: from -1 to 1, changes scores in favour of rare or popular items.
            at_most: for example ``{"has_brand": 2}`` for at most two items per brand; scores stay
                the same here too.
            masks: names sets of items for filters, as in ``"mask=in-stock AND genre=jazz"``.
            language: of reasons, "en", "de" or "es".
            wording: other words for reasons, a TOML file or its tables (``loger.rules.wording``).
            style: of reasons, "tile", "sentence" or "debug".
        """
        selection = self.select(include, exclude, diversity, at_most, masks)
        words = wording_of(language, wording, style)
        model = self.with_popularity(popularity)
        if history is not None:
            if users is not None:
                raise LogerError("pass either users or a history")
            ranker, guest = model.ranker_.guest([self._item(v) for v in as_names(history)])
            model, users = model.with_ranker(ranker), ranker.graph.vocabulary.names[guest]
        return model.selected(users, k, selection, explain=explain, words=words)

    def select(
        self,
        include: Given = None,
        exclude: Given = None,
        diversity: float = 0.0,
        at_most: Mapping[str, int] | None = None,
        masks: Mapping[str, Given] | None = None,
    ) -> Selection:
        """A selection of items with the arguments of ``recommend``, to use again and again."""
        return select(
            self.graph_, include, exclude, diversity=diversity, at_most=at_most, masks=masks,
            catalogue=self.catalogue_,
        )  # fmt: skip

    def similar(
        self,
        items: Name | Iterable[Name],
        k: int = 10,
        *,
        kind: Kind = "similar",
        less: Name | Iterable[Name] = (),
        popularity: float = 0.0,
        include: Given = None,
        exclude: Given = None,
        diversity: float = 0.0,
        at_most: Mapping[str, int] | None = None,
        masks: Mapping[str, Given] | None = None,
        language: str | None = None,
        wording: Words = None,
        style: str | None = None,
    ) -> pl.DataFrame:
        """The k items most similar to one item or several, best first, each with its reasons.

        The score is that of someone who has just these items, compared with the average item, and
        the parts of ``reasons`` add up to it. Items' general appeal doesn't count, unless
        ``popularity`` asks for it.

        Args:
            items: one name or several.
            k: the number of similar items.
            kind: "similar" (everything counts), "complements" (only what people have together with
                these items or after them) or "substitutes" (only facts that items share).
            less: items to stay away from; what supports an item for someone who has these counts
                against it.
            popularity: as in ``recommend``, like everything that follows.

        Returns rank, item, label, score, because, and reasons: ``action``, ``total``, ``text``.
        """
        from loger.explain import frames

        selection = self.select(include, exclude, diversity, at_most, masks)
        words = wording_of(language, wording, style).about_items()
        members = self.alike(as_names(items), as_names(less), kind, popularity)
        request = ListRequest(k, selection, True, words=words)
        records = recommend_together(members, request)
        return frames.together_table(records, self.graph_, without=["members"])

    def alike(
        self,
        items: Sequence[str],
        less: Sequence[str] = (),
        kind: Kind = "similar",
        popularity: float = 0.0,
    ) -> list[Member]:
        """The imagined people whose scores ``similar`` combines: one has just these items, the
        other those of ``less``."""
        if not items:
            raise LogerError("similar needs at least one item; pass its name")
        ranker = of_kind(self.ranker_.without_appeal().with_popularity(popularity), kind)
        wanted = [(items, 1.0), (less, -1.0)] if less else [(items, 1.0)]
        return [Member(*ranker.guest([self._item(v) for v in own]), sign) for own, sign in wanted]

    def recommend_group(
        self,
        users: Iterable[Name],
        k: int = 10,
        *,
        popularity: float = 0.0,
        include: Given = None,
        exclude: Given = None,
        diversity: float = 0.0,
        at_most: Mapping[str, int] | None = None,
        masks: Mapping[str, Given] | None = None,
        language: str | None = None,
        wording: Words = None,
        style: str | None = None,
    ) -> pl.DataFrame:
        """The k best items for several users together, best first.

        An item's score is the sum of its leads: how far it is above the average item for each
        member. Items that any of them has are left out. The column ``members`` lists each member's
        lead and first reason. The arguments are as in ``recommend``.
        """
        from loger.explain import frames

        names = as_names(users)
        if not names:
            raise LogerError("a group needs at least one user; pass their names as a list")
        selection = self.select(include, exclude, diversity, at_most, masks)
        ranker = self.ranker_.with_popularity(popularity)
        members = [Member(ranker, self._user(name)) for name in names]
        request = ListRequest(k, selection, True, words=wording_of(language, wording, style))
        records = recommend_together(members, request)
        return frames.together_table(records, self.graph_, without=["because", "reasons"])

    def selected(
        self,
        users: Name | Iterable[Name] | None,
        k: int,
        selection: Selection,
        *,
        explain: bool = False,
        words: Wording = ENGLISH,
    ) -> pl.DataFrame:
        """Like ``recommend``, with a selection that ``select`` made before."""
        from loger.explain import frames

        if users is None:
            ids = np.arange(self.graph_.n_users)
        else:
            ids = np.array([self._user(name) for name in as_names(users)], dtype=np.int64)
        request = ListRequest(k, selection, explain, words=words)
        return frames.lists_table(self.ranker_, ids, request, self.engine)

    # ── explaining ──────────────────────────────────────────────────────────────────────

    @overload
    def explain(
        self,
        user: Name,
        item: Name,
        paths: int = 3,
        *,
        by: Literal["contributions"] = ...,
        language: str | None = ...,
        wording: Words = ...,
        counterfactual: bool = ...,
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        user: Name,
        item: Name,
        paths: int = 3,
        *,
        by: Literal["reasoner"],
        language: str | None = ...,
        wording: Words = ...,
    ) -> Reasoned: ...

    def explain(
        self,
        user: Name,
        item: Name,
        paths: int = 3,
        *,
        by: str = "contributions",
        language: str | None = None,
        wording: Words = None,
        counterfactual: bool = False,
    ) -> Explanation | Reasoned:
        """Why an item has its score for a user: parts that add up to it, rules and paths.

        Args:
            user: by name.
            item: by name.
            paths: the most paths to show for each action.
            by: "reasoner" returns the paths that the paper's reasoner φ finds instead. Only a model
                with ``explain_by="reasoner"``, such as the preset ``paper``, has one.
            language: as in ``recommend``.
            wording: as in ``recommend``.
            counterfactual: whether to add the fewest interactions without which the item leaves the
                ten best; for other lengths, call ``counterfactual``.
        """
        u, v, words = self._user(user), self._item(item), wording_of(language, wording)
        if by == "reasoner":
            found = self.path_reasoner.reasoned(self.ranker_, u, np.array([v]), paths)
            return found[0].said(words)
        if by != "contributions":
            raise UnknownNameError("explanation method", by, ("contributions", "reasoner"))
        why = explain_pairs(self.ranker_, np.array([u]), np.array([v]), paths, words=words)[0]
        if not counterfactual:
            return why
        without = Counterfactual.of(self.ranker_, u, v)
        return replace(why, counterfactual=replace(without, words=words))

    @property
    def path_reasoner(self) -> PathReasoner:
        """The path reasoner φ; raises an error if the model has none."""
        if self.reasoner_ is None:
            raise LogerError(
                "this model has no path reasoner; explain by contributions, or fit with "
                "explain_by='reasoner', as the preset 'paper' does (this needs at least one rule "
                "with a positive weight)"
            )
        return self.reasoner_

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """Recommendations with their best paths, by number, for evaluation (see ``Explains``).

        If the settings explain by the reasoner, the paths are the reasoner's.
        """
        ranker = self.ranker_
        if self.reasoner_ is not None:
            return self.reasoner_.explained_items(ranker, users, k, paths, self.engine)
        return explained_items(ranker, users, k, paths, self.engine)

    def why_not(
        self,
        user: Name,
        item: Name,
        k: int = 10,
        *,
        language: str | None = None,
        wording: Words = None,
    ) -> WhyNot:
        """Why an item isn't among a user's k best; words are as in ``recommend``."""
        words = wording_of(language, wording)
        return WhyNot.of(self.ranker_, self._user(user), self._item(item), k, words)

    def counterfactual(
        self,
        user: Name,
        item: Name,
        k: int = 10,
        *,
        language: str | None = None,
        wording: Words = None,
    ) -> Counterfactual:
        """The fewest interactions without which an item leaves the k best, and what replaces it.

        The user's own items stay out of the recommendations, removed or not.
        """
        found = Counterfactual.of(self.ranker_, self._user(user), self._item(item), k)
        return replace(found, words=wording_of(language, wording))

    def what_if(
        self,
        user: Name,
        remove: Name | Iterable[Name] = (),
        add: Name | Iterable[Name] = (),
        k: int = 10,
        *,
        rebuild: bool = False,
    ) -> WhatIf:
        """The user's k best items if some items left the history or others joined it.

        Nothing is retrained. A removed item no longer supports anything, but it happened: the other
        actions don't become more recent, and the history stays as long. It isn't recommended.

        Args:
            user: by name.
            remove: items of the user; a label means the user's item of that label, if there is one.
            add: items that the user doesn't have.
            k: the number of items.
            rebuild: treats removed items as if they had never happened, as after ``remove``.
        """
        u, first = self._user(user), self.graph_.n_users
        has = set(history(self.graph_, np.array([u]))[1].tolist())
        removed = [self._item(x, {v + first for v in has}) for x in as_names(remove)]
        added = [self._item(x) for x in as_names(add)]
        for item in {*removed} - has:
            raise LogerError(f"{user!r} doesn't have {self.items[item]!r}, so it can't be removed")
        for item in {*added} & has:
            raise LogerError(f"{user!r} already has {self.items[item]!r}, so it can't be added")
        changed = self.ranker_.rebuilt if rebuild else self.ranker_.user_view
        return WhatIf.of(self.ranker_, changed(u, removed, added), u, k, removed)

    # ── updates after the fit ───────────────────────────────────────────────────────────

    def update(
        self,
        interactions: object = None,
        *,
        items: object = None,
        facts: object = None,
        users: object = None,
        vectors: Mapping[str, object] | None = None,
        min_rating: float | None = None,
        when: str | None = None,
        measure: int = 0,
    ) -> LOGER:
        """The model with interactions, items, facts and users that came after its fit.

        Nothing is trained: rules only need the facts, and the encoder makes vectors of new entities
        from their links. ``updates_.log`` records each update and which rows were left out, which
        are also logged as warnings. Unknown names are new.

        Tables are files, polars or pandas frames, or rows, with the columns of the plain format or
        those of the tables that the data was built from (``loger.from_tables``).

        Args:
            interactions: user, item, time (if the model knows times) and optionally rating.
            items: id and optionally label, and columns that became relations when the data was
                built, such as artist for has_artist.
            facts: head, relation, tail and optionally their types.
            users: id and optionally label, and columns that became relations.
            vectors: tables by relation, as in ``from_tables``. A new item gets neighbours among the
                items in them, so they should contain the known items too.
            min_rating: leaves out lower ratings; by default, those below ``lowest_positive``.
            when: the date for the log.
            measure: if above 0, the log also says how well the model predicted the new interactions
                of up to this many users.
        """
        from loger.tables.table import read_changes
        from loger.updates.apply import updated

        tables = {"interactions": interactions, "items": items, "users": users}
        mapping, graph = self.catalogue_.mapping, whole(self.graph_)
        changes = read_changes(mapping, graph, tables, facts, min_rating, vectors)
        if min_rating is None:
            changes = changes.with_dislikes(self.lowest_positive)
        for note in changes.notes:
            log.warning("%s", note)
        return self._with(updated(self._fitted, changes, Update(when), measure))

    def remove(
        self,
        *,
        users: Name | Iterable[Name] = (),
        items: Name | Iterable[Name] = (),
        interactions: object = None,
        facts: object = None,
        when: str | None = None,
    ) -> LOGER:
        """The model as if some users, items, interactions or facts had never existed.

        A bundle of this model contains nothing about a removed user except what the fit learned
        from all users together: rule weights and vectors of items. Tables and ``when`` are as in
        ``update``.
        """
        from loger.tables.changes import read
        from loger.updates.apply import removed

        changes = read(interactions, facts=facts)
        gone = as_names(users), as_names(items)
        return self._with(removed(self._fitted, changes, *gone, Update(when)))

    def fold(self, fold: Fold, when: str, measure: int = 0) -> LOGER:
        """The model with the changes of some events (``loger.updates.events``): removals first,
        then additions. The log has one row for all events of a day."""
        from loger.updates.apply import folded

        return self._with(folded(self._fitted, fold, when, measure))

    @property
    def lowest_positive(self) -> float:
        """The lowest rating that counts in favour of an item after the fit.

        It is the one given to the fit, else the middle of the ratings that the fit learned from,
        else 3 of 5 stars.
        """
        given = (self.record_ or {}).get("min_rating")
        if given is None:
            given = (self.catalogue_.mapping or {}).get("min_rating")
        graph = whole(self.graph_)
        if given is not None or not graph.rated or graph.strengths is None:
            return 3.0 if given is None else float(given)
        known = graph.strengths[graph.strengths > 0]
        low, high = (float(known.min()), float(known.max())) if len(known) else (1.0, 5.0)
        return (low + high) / 2 if low < high else min(low, 3.0)

    def refit_due(self) -> list[str]:
        """Why the model should be fitted again, judged by its updates; empty if it needn't be."""
        return [] if self.updates_ is None else due(self.updates_, self.trace_[-1].ndcg)

    def _with(self, fitted: Fitted) -> LOGER:
        other = copy(self)
        other._take(fitted)
        return other

    # ── the same model on other data ────────────────────────────────────────────────────

    def with_interactions(
        self, pairs: Iterable[tuple[Name, Name]], times: Sequence[int] | None = None
    ) -> LOGER:
        """The model with later interactions (user, item) of known or new users.

        Nothing is retrained: rules only need the edges, and the encoder makes a user's vector from
        the user's items. Items must be known. ``times`` are needed if the model knows times.
        """
        named = [(as_name(u), v) for u, v in pairs]
        known = self.graph_.vocabulary.ids("user")
        new = list(dict.fromkeys(u for u, _ in named if u not in known))
        if new and not folds_in(self.encoder_):
            raise LogerError(
                f"unknown user {new[0]!r}: this model's encoder knows only the users it was "
                "trained with; add new ones with loger update"
            )
        graph = whole(self.graph_).with_users(new) if new else whole(self.graph_)
        users = [graph.vocabulary.id("user", u) for u, _ in named]
        items = [self._item(v) for _, v in named]
        return self.with_ranker(self.ranker_.on(graph.plus(users, items, times)))

    def with_users(self, names: Sequence[Name]) -> LOGER:
        """The model with additional users who have no interactions yet."""
        graph = whole(self.graph_).with_users([as_name(name) for name in names])
        return self.with_ranker(self.ranker_.on(graph))

    def with_popularity(self, dial: float) -> LOGER:
        """The model with a preference for popular items (up to 1) or rare ones (down to -1)."""
        return self.with_ranker(self.ranker_.with_popularity(dial))

    def without_rules(self, places: Iterable[int]) -> LOGER:
        """The model with some rules switched off, by their places in ``rules_``."""
        return self.with_ranker(self.ranker_.without_rules(places))

    def with_ranker(self, ranker: Ranker) -> LOGER:
        """The same model with another ranker, such as ``model.ranker_.on(graph)``."""
        other = copy(self)
        other.ranker_ = ranker
        return other

    def _user(self, name: Name) -> int:
        return self.graph_.vocabulary.id("user", as_name(name))

    def _item(self, name: Name, among: Container[int] | None = None) -> int:
        return self.graph_.vocabulary.id("item", as_name(name), among) - self.graph_.n_users

    # ── bundles ─────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path | str, *, record: Mapping[str, Any] | None = None) -> None:
        """Write the model as a bundle: a manifest and safetensors.

        An old bundle stays in place until the new one is complete.

        Args:
            folder: where to write the bundle.
            record: how the model was made. ``loger fit`` passes one, and ``loger evaluate`` reads
                it to hold out the same data.
        """
        fitted = self._fitted if record is None else replace(self._fitted, record=record)
        persistence.save(folder, self.name, fitted)

    @classmethod
    def load(cls, folder: Path | str, engine: Engine | str | None = None) -> LOGER:
        """Open a bundle that ``save`` wrote; if it can't be read, the error says why.

        ``engine`` is as in ``LOGER``.
        """
        name, fitted, make_encoder = persistence.load(folder)
        model = cls(fitted.config, encoder=make_encoder, name=name, engine=engine)
        model._take(fitted)
        return model
