"""LOGER: the paper composed. Fit, recommend, explain, what if, save, load.

    mine rules → fit the encoder → EM → fit the encoder once more on all that is known

Weights are learned from validation interactions, which neither the graph nor the encoder of that
stage knows; then both are made anew with them, and ranking is over all items, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from loger import bundle as storage
from loger.data.splits import Split
from loger.em import EM, EMConfig, FittedLogic, Round, kept_rounds
from loger.encoder import Calibration, Encoder, TransE, TransEConfig
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError, NotFittedError, UnknownNameError
from loger.evaluation.recommender import ExplainedItem, Floats, Recommender
from loger.explain.attribution import Explanation
from loger.explain.attribution import explain as explain_pairs
from loger.explain.questions import WhatIf, WhyNot
from loger.graph import INTERACTION, KnowledgeGraph, history
from loger.grounding import Walk, ground
from loger.logic import Logic
from loger.rules import RuleSet, make_rule
from loger.rules.mining import Mined, MiningConfig, mine
from loger.topk import top_k

BLOCK = 128
"""Users that one worker scores at a time."""
RECENCIES = (0.0, 0.5, 1.0)
"""What ``fit`` tries where the data have times, unless told otherwise, …"""
POPULARITIES = (0.0, 0.75)
"""… and then of the exponent by which popular items are discounted: dense data want it."""


@dataclass(frozen=True, slots=True)
class LOGERConfig:
    """All settings; the defaults are the best measured, one configuration for all data."""

    mining: MiningConfig = field(default_factory=MiningConfig)
    em: EMConfig = field(default_factory=EMConfig)
    encoder: TransEConfig = field(default_factory=TransEConfig)
    sample_nodes: int | None = None
    """Neighbours of an entity under a relation that are looked at; None: all of them."""
    seed: int = 0
    """Every stage draws from a stream of its own that begins here."""

    @classmethod
    def paper(cls, rounds: int = 4, seed: int = 0) -> LOGERConfig:
        """As published: rules of three hops, 100 sampled nodes, Eq. 1, α = 0.3, τ = 0.5,
        gradient ascent; 4, 2 and 3 rounds for Cellphones, Grocery and Automotive."""
        return cls(
            mining=MiningConfig(min_hops=3, min_support=50, min_lift=2.0),
            em=EMConfig(
                feature="set",
                likelihood="pseudo",
                fusion="sum",
                popularity=False,
                l2=0.0,
                rounds=rounds,
                early_stop=False,
                max_hidden=50,
                tau=0.5,
                rate=1e-5,
                steps=200,
            ),
            encoder=TransEConfig(
                users="free", distance="squared", loss="adversarial", batch=512, warm_epochs=1
            ),
            sample_nodes=100,
            seed=seed,
        )

    def seeded(self) -> LOGERConfig:
        """The settings with each stage's seed from the one above."""
        return replace(
            self,
            mining=replace(self.mining, seed=self.seed),
            em=replace(self.em, seed=self.seed),
            encoder=replace(self.encoder, seed=self.seed),
        )


class LOGER(Recommender):
    """Recommendations with the rules and paths that make up their scores.

    ``LOGER()`` is the best we know, ``LOGER(LOGERConfig.paper())`` the paper. ``encoder`` makes
    another encoder than TransE: ``LOGER(encoder=lambda: KGE("RotatE"))``.
    """

    learns_from_validation = True

    graph_: KnowledgeGraph
    logic_graph_: KnowledgeGraph
    encoder_: Encoder
    learned_: FittedLogic
    config_: LOGERConfig

    def __init__(
        self,
        config: LOGERConfig | None = None,
        *,
        encoder: Callable[[], Encoder] | None = None,
        name: str = "LOGER",
        engine: Engine | None = None,
    ) -> None:
        self.config = (config or LOGERConfig()).seeded()
        self.make_encoder = encoder or (lambda: TransE(self.config.encoder))
        self.name = name
        self.engine = engine or LocalEngine()

    def __getattr__(self, name: str) -> Any:
        """Say of what only a fitted model has that it has not been fitted."""
        if name.endswith("_") and not name.startswith("_") and "learned_" not in self.__dict__:
            raise NotFittedError("this model has not been fitted; call fit(split) or load(folder)")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if "learned_" not in self.__dict__:
            return f"<{self.name}, not fitted>"
        rules = int(np.count_nonzero(self.weights_))
        return f"<{self.name}, {rules} rules with weight, {self.graph_!r}>"

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
        engine = LocalEngine(progress=progress) if progress is not silent else self.engine
        problem = self._problem(split, checkpoint, engine, progress)
        if tune is None:
            tune = {"recency": RECENCIES} if split.graph.times is not None else {}
            tune = {**tune, "popular": POPULARITIES}
        settings, first, self.tried_ = _tuned(problem, self.config.em, tune)
        em = problem(settings)
        learned = em.final(em.run(first))
        mining = self.config.mining.for_pairs(len(split.train))
        self.config_ = replace(self.config, em=settings, mining=mining)
        self._settle(split.refit().graph, learned, _sub(checkpoint, "last"), engine, progress)
        return self

    def ablate_hidden(
        self,
        split: Split,
        sizes: Sequence[int] = (0, 10, 20, 30, 40, 50),
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> list[dict[str, float]]:
        """The paper's ablation: how good a model is whose E-step believes at most so many hidden
        pairs of each user, by held-out users (``EM.ablate_hidden``). Fits anew, and only on train.

        A fitted model takes the settings that it chose.
        """
        engine = LocalEngine(progress=progress) if progress is not silent else self.engine
        settings = getattr(self, "config_", self.config).em
        return self._problem(split, checkpoint, engine, progress)(settings).ablate_hidden(sizes)

    def _problem(
        self, split: Split, checkpoint: Path | None, engine: Engine, progress: Progress
    ) -> Callable[[EMConfig], EM]:
        """What EM has to solve with any settings: rules and an encoder of train, and validation."""
        held_out = split.pairs("validation")
        if not len(held_out[0]):
            raise LogerError(
                f"{split.dataset.name} has no validation pairs, and rule weights are learned from "
                f"them; split with validation=0.1"
            )
        graph = split.graph
        mined = mine(graph, self.config.mining, engine)
        if not len(mined.rules):
            raise LogerError(_without_rules(graph, mined))
        encoder = self.make_encoder().fit(
            graph, checkpoint=_sub(checkpoint, "first"), progress=progress
        )
        logic_graph = self._logic_graph(graph)
        return lambda settings: EM(
            graph,
            encoder,
            mined.rules,
            held_out,
            settings,
            logic_graph=logic_graph,
            engine=engine,
            progress=progress,
        )

    def _settle(
        self,
        graph: KnowledgeGraph,
        learned: FittedLogic,
        checkpoint: Path | None,
        engine: Engine,
        progress: Progress,
    ) -> None:
        """Train the encoder on all that is known, E-steps included; the weights stay."""
        settings = self.config_.em
        self.graph_, self.logic_graph_ = graph, self._logic_graph(graph)
        self.encoder_ = self.make_encoder().fit(graph, checkpoint=checkpoint, progress=progress)
        self.learned_ = learned
        rounds = kept_rounds(learned.trace, settings.early_stop)
        if rounds:
            none = np.empty(0, dtype=np.int32)
            em = EM(
                graph,
                self.encoder_,
                learned.logic.rules,
                (none, none),
                settings,
                logic_graph=self.logic_graph_,
                engine=engine,
                progress=progress,
            )
            for _ in range(rounds):
                em.e_step(em.select_hidden(learned)[0])

    def _logic_graph(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        n = self.config.sample_nodes
        return graph if n is None else graph.sampled(n, self.config.seed)

    # ── what was learned ────────────────────────────────────────────────────────────────

    @property
    def rules_(self) -> RuleSet:
        """The rules of the model, in a fixed order."""
        return self.logic_.rules

    @property
    def weights_(self) -> NDArray[np.float64]:
        """The weights of the rules."""
        return self.logic_.weights

    @property
    def logic_(self) -> Logic:
        """The logic model."""
        return self.learned_.logic

    @property
    def trace_(self) -> tuple[Round, ...]:
        """The rounds of EM: bound, sizes of H and H⁺, held-out metrics."""
        return self.learned_.trace

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

    def importance(self, user: str) -> pl.DataFrame:
        """y_{u,l} = w_l n_l(u) / Σ n(u), n_l(u) counted over the user's own interactions."""
        u = self._user(user)
        _, items = history(self.graph_, np.array([u]))
        found = ground(self.logic_graph_, self.rules_, np.full(len(items), u), items)
        n = np.asarray(found.count_matrix.sum(axis=0)).ravel()
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
        """S of all items for a block of users, by number; -inf for what they have already, which
        is never recommended. See ``Recommender.score``."""
        own = np.asarray(users, dtype=np.int64)
        out = self.learned_.scores(
            self.config_.em, self.encoder_, self.graph_, own, self.logic_graph_, observed=False
        )
        out[history(self.graph_, own)] = -np.inf
        return out

    def top(
        self, users: ArrayLike, k: int, among: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best items and their scores of users by number, exactly, their own left out.

        ``among`` marks the items that may be recommended. Lists end in -1 where there are fewer.
        """
        own = np.asarray(users, dtype=np.int64)
        blocks = [own[lo : lo + BLOCK] for lo in range(0, len(own), BLOCK)]
        found = list(self.engine.map("ranking", _top_block, blocks, (self, k, among)))
        none = (np.empty((0, k), dtype=np.int32), np.empty((0, k), dtype=np.float32))
        items = np.concatenate([none[0], *(i for i, _ in found)])
        return items, np.concatenate([none[1], *(s for _, s in found)])

    def recommend(
        self, users: str | Iterable[str] | None = None, k: int = 10, *, explain: bool = False
    ) -> pl.DataFrame:
        """The k best new items of users by name (of all, if none are named), best first.

        With ``explain`` a column ``because`` says the first reason of each.
        """
        if users is None:
            ids = np.arange(self.graph_.n_users)
        else:
            ids = np.array([self._user(name) for name in _names(users)], dtype=np.int64)
        items, scores = self.top(ids, k)
        table = self._table(ids, items, scores)
        if not explain:
            return table
        told = [e.because() for e in self._explained(ids, items)]
        return table.with_columns(pl.Series("because", told))

    def recommend_all(self, path: Path | str, k: int = 10) -> None:
        """Write the k best items of all users to a Parquet file."""
        self.recommend(None, k).write_parquet(path)

    def _table(
        self, users: NDArray[np.int64], items: NDArray[np.int32], scores: Floats
    ) -> pl.DataFrame:
        words, first = self.graph_.vocabulary, self.graph_.n_users
        k = items.shape[1]
        there = items.ravel() >= 0
        ids = items.ravel()[there] + first
        return pl.DataFrame(
            {
                "user": [words.names[u] for u in np.repeat(users, k)[there].tolist()],
                "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), len(users))[there],
                "item": [words.names[i] for i in ids.tolist()],
                "label": [words.labels[i] for i in ids.tolist()],
                "score": scores.ravel()[there],
            }
        )

    # ── explaining ──────────────────────────────────────────────────────────────────────

    def explain(self, user: str, item: str, paths: int = 3) -> Explanation:
        """Why an item has the score it has for a user: parts that add up, rules, paths."""
        u, v = self._user(user), self._item(item)
        return explain_pairs(self, np.array([u]), np.array([v]), paths)[0]

    def explained(self, users: ArrayLike, k: int, paths: int = 1) -> list[list[ExplainedItem]]:
        """Recommendations with their best paths, by number; see ``Explains``."""
        own = np.asarray(users, dtype=np.int64)
        items, _ = self.top(own, k)
        told = iter(self._explained(own, items, paths))
        return [[next(told).explained() for v in row if v >= 0] for row in items]

    def _explained(
        self, users: NDArray[np.int64], items: NDArray[np.int32], paths: int = 1
    ) -> list[Explanation]:
        """Explanations of lists as ``top`` gives them, row by row."""
        there = items.ravel() >= 0
        owners = np.repeat(users, items.shape[1])[there]
        return explain_pairs(self, owners, items.ravel()[there], paths)

    def why_not(self, user: str, item: str, k: int = 10) -> WhyNot:
        """What keeps an item out of a user's k best."""
        return WhyNot.of(self, self._user(user), self._item(item), k)

    def what_if(
        self,
        user: str,
        remove: str | Iterable[str] = (),
        add: str | Iterable[str] = (),
        k: int = 10,
    ) -> WhatIf:
        """The user's k best, had it not had some items or had others; nothing is retrained."""
        u = self._user(user)
        gone, more = ([self._item(x) for x in _names(given)] for given in (remove, add))
        return WhatIf.of(self, self.user_view(u, gone, more), u, k)

    def changed(
        self,
        user: int,
        remove: Sequence[int],
        add: Sequence[int],
        times: Sequence[int] | None = None,
    ) -> LOGER:
        """The model on a graph in which one user has other interactions, by number."""
        graph = self.graph_.without_interactions([user] * len(remove), remove)
        return self._on(graph.plus([user] * len(add), add, times))

    def user_view(
        self,
        user: int,
        remove: Sequence[int] = (),
        add: Sequence[int] = (),
        times: Sequence[int] | None = None,
    ) -> LOGER:
        """What ``changed`` gives, for questions about this user alone, at no copy of the graph."""
        if self.config.sample_nodes is not None:  # what is drawn depends on the whole graph
            return self.changed(user, remove, add, times)
        return self._on(self.graph_.user_view(user, remove, add, times))

    def with_interactions(
        self, pairs: Iterable[tuple[str, str]], times: Sequence[int] | None = None
    ) -> LOGER:
        """The model with interactions (user, item) that came later, of known or new users.

        Nothing is retrained: rules need only the edges, and the encoder makes a user's vector
        of its items. Items must be known.
        """
        named = list(pairs)
        known = self.graph_.vocabulary.ids("user")
        new = list(dict.fromkeys(u for u, _ in named if u not in known))
        graph = self.graph_.with_users(new) if new else self.graph_
        users = [graph.vocabulary.id("user", u) for u, _ in named]
        items = [self._item(v) for _, v in named]
        return self._on(graph.plus(users, items, times))

    def with_users(self, names: Sequence[str]) -> LOGER:
        """The model with some users more, who have no interactions yet."""
        return self._on(self.graph_.with_users(names))

    def without_rules(self, places: Iterable[int]) -> LOGER:
        """The model in which some rules, by their place, weigh nothing."""
        off = sorted(set(places))
        if off and not 0 <= off[0] <= off[-1] < len(self.rules_):
            raise LogerError(f"rules are 0 … {len(self.rules_) - 1}, got {off[-1]}")
        weights = self.weights_.copy()
        weights[off] = 0.0
        other = copy(self)
        other.learned_ = replace(self.learned_, logic=replace(self.logic_, weights=weights))
        return other

    def _on(self, graph: KnowledgeGraph) -> LOGER:
        """The same model on another graph of the same items."""
        other = LOGER(self.config, encoder=self.make_encoder, name=self.name, engine=self.engine)
        other.config_, other.encoder_, other.learned_ = self.config_, self.encoder_, self.learned_
        other.graph_, other.logic_graph_ = graph, other._logic_graph(graph)
        return other

    def _user(self, name: str) -> int:
        return self.graph_.vocabulary.id("user", name)

    def _item(self, name: str) -> int:
        return self.graph_.vocabulary.id("item", name) - self.graph_.n_users

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path | str) -> None:
        """Write the model as a bundle: manifest, safetensors, Parquet."""
        logic, words = self.logic_, self.graph_.vocabulary
        if getattr(self.encoder_, "n_users_", self.graph_.n_users) != self.graph_.n_users:
            raise LogerError(
                "users were added after the fit, and the encoder has no vectors of theirs to "
                "keep; save the model as it was fitted and add them after loading"
            )
        edges, tables = storage.graph_parts(self.graph_)
        longest = max(len(rule) for rule in self.rules_)
        relations = np.full((len(self.rules_), longest), -1, dtype=np.int64)
        for row, rule in zip(relations, self.rules_, strict=True):
            row[: len(rule)] = rule.relations
        model = {"rules": relations, "weights": logic.weights}
        if logic.scales is not None:
            model["scales"] = logic.scales
        about = {
            "config": _plain(self.config_),
            "encoder": _encoder_name(self.encoder_),
            "encoder_config": _plain(self.encoder_.config),  # type: ignore[attr-defined]
            "fingerprint": self.graph_.fingerprint,
            "learned": {
                "prior": logic.prior,
                "popularity": logic.popularity,
                "encoder_weight": self.learned_.encoder_weight,
                "calibration": asdict(self.learned_.calibration),
                "trace": [asdict(row) for row in self.trace_],
            },
            "libraries": {name: version(name) for name in ("loger", "numpy", "torch", "polars")},
            "seed": self.config_.seed,
            "types": words.types,
        }
        arrays = {"graph": edges, "logic": model, "encoder": self.encoder_.state()}
        storage.write(folder, storage.MODEL, about, arrays, tables)

    @classmethod
    def load(cls, folder: Path | str, engine: Engine | None = None) -> LOGER:
        """Open what ``save`` wrote; a damaged or foreign bundle is an error that says why."""
        bundle = storage.read(folder, storage.MODEL)
        about, arrays = bundle.about, bundle.arrays
        config = _config(LOGERConfig, about["config"])
        model = cls(config, engine=engine)
        make = _encoder_maker(about["encoder"], about["encoder_config"])
        model.make_encoder = make
        model.config_ = config
        model.graph_ = storage.graph_of(bundle, "graph", about["types"])
        model.logic_graph_ = model._logic_graph(model.graph_)
        model.encoder_ = make().load_state(model.graph_, arrays["encoder"])
        told, parts = about["learned"], arrays["logic"]
        rows = [[int(r) for r in row if r >= 0] for row in parts["rules"]]
        rules = RuleSet(tuple(make_rule(model.graph_, row) for row in rows))
        logic = Logic(
            rules,
            np.array(parts["weights"], dtype=np.float64),
            config.em.feature,
            config.em.active_walk,
            np.array(parts["scales"], dtype=np.float64) if "scales" in parts else None,
            told["prior"],
            told["popularity"],
        )
        trace = tuple(Round(**row) for row in told["trace"])
        model.learned_ = FittedLogic(
            logic, told["encoder_weight"], Calibration(**told["calibration"]), trace
        )
        return model


def _top_block(
    shared: tuple[LOGER, int, NDArray[np.bool_] | None], own: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The best items of a block of users, and their scores."""
    model, k, among = shared
    scores = model.score(own)
    if among is not None:
        scores[:, ~among] = -np.inf
    return top_k(scores, k)


def _tuned(
    problem: Callable[[EMConfig], EM], config: EMConfig, tune: Mapping[str, Sequence[Any]]
) -> tuple[EMConfig, FittedLogic | None, list[tuple[str, Any, float]]]:
    """Settings chosen on held-out users, one after another; the first M-step of the best, and
    what was tried: (setting, value, NDCG)."""
    tried: list[tuple[str, Any, float]] = []
    best: FittedLogic | None = None
    for name, values in tune.items():
        found: list[tuple[float, EMConfig, FittedLogic]] = []
        for value in values:
            settings = with_setting(config, name, value)
            same = best is not None and settings == config
            learned = best if same and best is not None else problem(settings).start()
            found.append((learned.trace[0].ndcg, settings, learned))
            tried.append((name, value, learned.trace[0].ndcg))
        _, config, best = max(found, key=lambda row: row[0])
    return config, best, tried


def with_setting(config: EMConfig, name: str, value: Any) -> EMConfig:
    """The settings with one changed, of their own or of their walk."""
    of_walk, known = ([f.name for f in fields(kind)] for kind in (Walk, EMConfig))
    if name in of_walk:
        return replace(config, walk=replace(config.walk, **{name: value}))
    if name not in known:
        raise UnknownNameError("setting", name, [*known, *of_walk])
    return replace(config, **{name: value})


def _names(given: str | Iterable[str]) -> list[str]:
    """One name or several, as a list."""
    names = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for name in names:
        if not isinstance(name, str):
            raise LogerError(f"users and items are asked for by their names, as text; got {name!r}")
    return names


def _without_rules(graph: KnowledgeGraph, mined: Mined) -> str:
    """Why there is nothing to learn weights of, and what helps."""
    relations = graph.triples()[1]
    pairs = int((relations == INTERACTION).sum())
    remedy = "lower mining.min_support or mining.min_lift"
    if pairs == len(relations):
        remedy = "add facts about the items (a triples file), or more interactions"
    told = ", ".join(" ".join(line.split()) for line in mined.summary().splitlines())
    return f"no rule was found in {pairs:,} training pairs ({told}); {remedy}"


def _sub(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else Path(folder) / name


def _plain(config: Any) -> dict[str, Any]:
    """A config as JSON can hold it."""
    return asdict(config)


def _config(kind: type[LOGERConfig], values: Mapping[str, Any]) -> LOGERConfig:
    """What ``_plain`` made of a LOGERConfig."""
    em = dict(values["em"])
    em["walk"] = Walk(**em["walk"])
    return kind(
        mining=MiningConfig(**values["mining"]),
        em=EMConfig(**em),
        encoder=TransEConfig(**values["encoder"]),
        sample_nodes=values["sample_nodes"],
        seed=values["seed"],
    )


def _encoder_name(encoder: Encoder) -> str:
    return type(encoder).__name__


def _encoder_maker(name: str, settings: Mapping[str, Any]) -> Callable[[], Encoder]:
    """Makes encoders like the one that was saved."""
    if name == "TransE":
        return lambda: TransE(TransEConfig(**settings))
    if name == "KGE":
        from loger.encoder.kge import KGE

        return lambda: KGE(**settings)
    if name == "GNN":
        from loger.encoder.network import GNN

        return lambda: GNN(**settings)
    raise UnknownNameError("encoder", name, ("TransE", "KGE", "GNN"))
