"""Measure the faithfulness of a recommender's reasons, as far as it allows.

docs/concepts/faithfulness.md explains each measure. Values are averaged per user first; intervals
are bootstraps over users. Measures that need something a method doesn't offer, such as scores
without some facts, stay empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.data.demo import Demo
from loger.data.splits import Split
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError
from loger.evaluation.faithfulness.actions import Acts, LogerActions, by_actions
from loger.evaluation.faithfulness.paths import Rescore, deletions, recovered
from loger.evaluation.faithfulness.report import FaithfulnessConfig, FaithfulnessReport
from loger.explain.attribution import explain
from loger.graph import KnowledgeGraph, Path, whole
from loger.graph.arrays import Doubles, Ints
from loger.grounding import ground
from loger.metrics import faithfulness as measures
from loger.metrics.faithfulness import Edge
from loger.model import LOGER
from loger.ranking.ranker import Ranker
from loger.recommender import ExplainedItem, Explains
from loger.rules import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Probes:
    """What a recommender offers beyond its reasons; None leaves the corresponding lines empty."""

    weights: Mapping[Rule, float] | None = None
    """Rule weights w, 0 for other rules; without them, Q_w uses the weights of the shown paths."""
    rescore: Rescore | None = None
    """Scores without facts, for the measures over paths."""
    acts: Acts | None = None
    """Contributions of actions and scores without them, for the measures over actions."""
    decompose: Callable[[int, Sequence[int]], Sequence[tuple[ArrayLike, float]]] | None = None
    """(user, items) → for each item its contributions, and the logit they should add up to."""
    permuted: Explains | None = None
    """The same recommender with its rule weights permuted."""
    explain: Callable[[Ints, Ints, int], Sequence[Sequence[Path]]] | None = None
    """(users, items, n) → the best n paths of each pair, for planted reasons."""
    demo: Demo | None = None
    """The planted data, where the truth is known."""
    graph: KnowledgeGraph | None = None
    """The graph of rules and paths, if it has derived relations; None takes the split's."""

    @classmethod
    def of(cls, recommender: object, **more: Any) -> Self:
        """The probes that a recommender offers: ``rules_`` with ``weights_``, and the methods
        ``rescore``, ``decompose`` and ``explain_paths``; ``more`` adds or replaces probes."""
        seen: dict[str, Any] = {
            "weights": weights_of(recommender) if hasattr(recommender, "rules_") else None,
            "rescore": getattr(recommender, "rescore", None),
            "acts": recommender if isinstance(recommender, Acts) else None,
            "decompose": getattr(recommender, "decompose", None),
            "explain": getattr(recommender, "explain_paths", None),
        }
        return cls(**(seen | more))


def weights_of(recommender: Any) -> dict[Rule, float]:
    """The weights of a recommender's own rules."""
    return dict(zip(recommender.rules_, map(float, recommender.weights_), strict=True))


def faithfulness_report(
    recommender: Explains,
    split: Split,
    rules: RuleSet,
    config: FaithfulnessConfig | None = None,
    *,
    probes: Probes | None = None,
    name: str | None = None,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> FaithfulnessReport:
    """Measure a recommender on the split that it was fitted on.

    Args:
        recommender: shows paths for its items.
        split: the data it was fitted on.
        rules: the rules over which histories are counted; they needn't be the recommender's. A
            path that follows none of them counts as a rule of its own.
        config: how much to measure.
        probes: what the recommender offers beyond its reasons; by default ``Probes.of`` it.
        name: the title of the report.
        engine: where to run.
        progress: receives how far the measurement is.
    """
    config = config or FaithfulnessConfig()
    probes = probes or Probes.of(recommender)
    graph = probes.graph or split.graph
    users = _chosen_users(split, config)
    engine = engine or LocalEngine()
    if progress is not silent:
        engine = engine.with_progress(progress)
    progress("measuring faithfulness", 0, len(users) + 1)
    counts = _history(graph, rules, split, users, engine)
    lists = recommender.explained(users, max(config.k, measures.EMITTED), config.paths)
    values = _divergences(counts, _emitted(recommender, users, lists), rules, probes, config)
    shown = [own[: config.k] for own in lists]
    values |= _of_paths(shown, users, graph, rules, probes)
    calls = (recommender.explained(users[:5], config.k, config.paths) for _ in range(2))
    values["repeatable"] = np.array([float(len({measures.digest(own) for own in calls}) == 1)])
    if probes.permuted is not None:
        other = probes.permuted.explained(users, config.k, config.paths)
        values["changed_by_permuting"] = measures.changed(shown, other)
    rows = _probed_rows(users, config)
    if probes.acts is not None:
        values |= by_actions(probes.acts, users[rows], config, engine)
    if probes.rescore is not None:
        own = [shown[row] for row in rows]
        values |= deletions(graph, rules, users[rows], own, probes.rescore, config, engine)
    if probes.demo is not None and probes.explain is not None:
        values |= recovered(
            probes.demo, split, rules, graph, probes.explain, probes.acts, config.paths
        )
    title = name or str(getattr(recommender, "name", type(recommender).__name__))
    return FaithfulnessReport(title, split.dataset.name, len(users), config, values)


# ── who, and what they have done ────────────────────────────────────────────────────────


def _chosen_users(split: Split, config: FaithfulnessConfig) -> NDArray[np.int64]:
    """Users with a history, as many as configured, ascending."""
    users = np.unique(split.pairs("train")[0]).astype(np.int64)
    if not len(users):
        raise LogerError(f"{split.dataset.name} has no users with training items")
    if config.users is None or config.users >= len(users):
        return users
    rng = np.random.default_rng([config.seed, 0xFA17])
    return np.sort(rng.choice(users, size=config.users, replace=False))


def _probed_rows(users: NDArray[np.int64], config: FaithfulnessConfig) -> NDArray[np.int64]:
    """The rows of the users who are scored again, ascending."""
    n = len(users) if config.probed is None else min(config.probed, len(users))
    rng = np.random.default_rng([config.seed, 0x9F0B])
    return np.sort(rng.choice(len(users), size=n, replace=False))


def _history(
    graph: KnowledgeGraph,
    rules: RuleSet,
    split: Split,
    users: NDArray[np.int64],
    engine: Engine | None,
) -> NDArray[np.int64]:
    """n_l(u) over the users' training pairs, exact; [users, rules]."""
    owners, items = split.pairs("train")
    ours = np.isin(owners, users)
    found = ground(graph, rules, owners[ours], items[ours], engine=engine)
    return np.asarray(found.per_user(graph.n_users)[users].toarray(), dtype=np.int64)


def _emitted(
    recommender: Explains,
    users: NDArray[np.int64],
    lists: Sequence[list[ExplainedItem]],
) -> list[list[tuple[Path, float]]]:
    """Each user's paths for Q_f; for users with too few, a longer list is requested."""
    out = [measures.emitted(own) for own in lists]
    short = [row for row, own in enumerate(out) if len(own) < measures.EMITTED]
    if short:
        longer = recommender.explained(users[short], 3 * measures.EMITTED, 1)
        for row, own in zip(short, longer, strict=True):
            out[row] = measures.emitted(own)
    return out


# ── the lines ───────────────────────────────────────────────────────────────────────────


def _divergences(
    counts: NDArray[np.int64],
    emitted: Sequence[Sequence[tuple[Path, float]]],
    rules: RuleSet,
    probes: Probes,
    config: FaithfulnessConfig,
) -> dict[str, Doubles]:
    """JS_f and JS_w with their floor and controls."""
    floor, even, sample = (np.random.default_rng([config.seed, 0x15, k]) for k in range(3))
    strays = np.zeros((len(counts), 1), dtype=np.int64)
    whole = np.concatenate([counts, strays], axis=1)  # history never strays from the rules
    history, n = measures.shares(whole), measures.EMITTED
    q_f = measures.shares(measures.rule_masses(emitted, rules))
    if probes.weights is None:
        q_w = measures.shares(measures.rule_masses(emitted, rules, weighted=True))
    else:
        weights = np.array([*(probes.weights.get(rule, 0.0) for rule in rules), 0.0])
        q_w = measures.importance(weights, whole)
    pathless = np.array([not own for own in emitted]) & ~np.isnan(history[:, 0])
    q_f, q_w = (_with_pathless(q, pathless) for q in (q_f, q_w))
    uniform = np.where(np.isnan(history), np.nan, 1 / max(len(rules), 1))
    uniform[:, -1] = np.where(np.isnan(uniform[:, -1]), np.nan, 0.0)
    js = measures.jensen_shannon
    return {
        "js_f": js(q_f, history),
        "js_f_sampled": js(q_f, measures.sampled_history(whole, sample)),
        "js_w": js(q_w, history),
        "floor": js(measures.drawn(history, n, floor), history),
        "random": js(measures.drawn(uniform, n, even), history),
        "random_w": js(uniform, history),
        "emitted": np.array([len(own) for own in emitted], dtype=np.float64),
        "pathless": np.where(np.isnan(history[:, 0]), np.nan, pathless),
    }


def _with_pathless(shares: Doubles, pathless: NDArray[np.bool_]) -> Doubles:
    """Distributions in which users who were shown no path have all mass outside the rules, where
    history has none. Their divergence is 1, so that silence doesn't pass for faithfulness."""
    out = shares.copy()
    out[pathless & np.isnan(shares[:, 0])] = np.eye(shares.shape[1])[-1]
    return out


def _of_paths(
    shown: Sequence[Sequence[ExplainedItem]],
    users: NDArray[np.int64],
    graph: KnowledgeGraph,
    rules: RuleSet,
    probes: Probes,
) -> dict[str, Doubles]:
    """Measures of the paths that need no new scores."""
    sequences = {rule.relations for rule in rules}
    valid, along, errors = [], [], []
    for user, own in zip(users.tolist(), shown, strict=True):
        pairs = [(r.item, path) for r in own for path in r.paths]
        valid.append([measures.is_valid(path, graph, user, item) for item, path in pairs])
        along.append([path.relations in sequences for _, path in pairs])
        if probes.decompose is not None:
            parts = probes.decompose(user, [r.item for r in own if r.paths])
            errors.append([abs(float(np.sum(np.asarray(c))) - total) for c, total in parts])
    return {
        "validity": np.array([measures.mean_of_known(v) for v in valid]),
        "along_rules": np.array([measures.mean_of_known(v) for v in along]),
        "coverage": measures.coverage(shown),
        "decomposition_error": np.array([max(e, default=np.nan) for e in errors]),
    }


# ── what LOGER offers beyond its reasons: scores without facts, parts, other weights ──


def loger_probes(model: LOGER, demo: Demo | None = None, seed: int = 0) -> Probes:
    """All probes of a fitted LOGER; ``demo`` if it was fitted on planted data.

    Scores without facts use the same encoder and weights on the graph without them: users are
    folded in and paths counted again. ``seed`` permutes the rule weights.
    """
    ranker = model.ranker_

    def decompose(user: int, items: Sequence[int]) -> list[tuple[ArrayLike, float]]:
        records = explain(ranker, np.full(len(items), user), np.array(items, dtype=np.int64), 1)
        return [
            ([r.prior, r.popularity, *(part.contribution for part in r.rules)], r.logit)
            for r in records
        ]

    def paths(users: Ints, items: Ints, n: int) -> list[tuple[Path, ...]]:
        return [record.explained().paths for record in explain(ranker, users, items, n)]

    return Probes(
        weights=weights_of(model),
        rescore=partial(_rescore, ranker),
        acts=LogerActions(ranker),
        decompose=decompose,
        permuted=permuted(model, seed),
        explain=paths,
        demo=demo,
        graph=whole(ranker.graph),
    )


def _rescore(ranker: Ranker, user: int, removed: Sequence[Edge]) -> ArrayLike:
    return np.asarray(ranker.without(removed).scores([user]).total[0])


def permuted(model: LOGER, seed: int = 0) -> LOGER:
    """The same model with its rule weights in another order."""
    order = np.random.default_rng([seed, 0x9E53]).permutation(len(model.weights_))
    return model.with_ranker(model.ranker_.with_weights(model.weights_[order]))
