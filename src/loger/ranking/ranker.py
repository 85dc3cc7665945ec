"""S(u, v): graph, logic and encoder fused into one score (METHOD 6). Only this module computes S.

    S = w_enc·e + logit p     (``logit``, the default: everything adds up)
    S = q + α·p               (``sum``, the paper's)
    S = logit p               (``logic``)

where s is the encoder's score, q = σ(a·s + b) its calibration, and p the logic's probability. Where
the order of interactions helps, e = (1 − m)·s + m·z with the score z of the sequence encoder, else
e = s.
Recommendations, explanations, what-if questions, evaluation and EM all use a ``Ranker``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.encoder.calibration import Calibration
from loger.encoder.folding import attribute_user, folds_in, score_users
from loger.encoder.protocol import Encoder, EncoderParts, Own
from loger.encoder.sequence import Sequence as SequenceEncoder
from loger.engine import Engine, LocalEngine
from loger.engine.topk import places
from loger.errors import LogerError
from loger.graph import Graph, KnowledgeGraph, Pairs, barred, history, whole
from loger.graph.arrays import Doubles, Floats, expit
from loger.grounding import Groundings, Walk, ground
from loger.logic.config import FusionKind
from loger.logic.mln import Logic
from loger.ranking.selection import Chosen, Selection

TopItems = tuple[NDArray[np.int32], Floats]
"""Items, best first and -1 after the last, and their scores; both [users, k]."""
BLOCK = 128
"""Users that one worker scores at a time."""
COUNTED = 5000
"""Users whose path counts are cached."""
GUEST = "you"
"""The name of someone who isn't among the users, unless a user has that name."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """How logit p and the encoder's score s become S."""

    kind: FusionKind = "logit"
    encoder_weight: float = 1.0
    """w_enc, the encoder's weight in logits."""
    calibration: Calibration = field(default_factory=Calibration)
    """q = σ(a·s + b)."""
    alpha: float = 0.3
    """α of the paper."""
    own: Own | None = None
    """How much items' own parts count where the encoder's score is a plain sum over a user's
    interactions (``AdditiveEncoder.sums``). None: the encoder's own score, whatever it is."""
    sequence: float = 0.0
    """m, the share of the sequence encoder's score in e."""

    @property
    def uses_encoder(self) -> bool:
        """Whether the encoder's score is a part of S."""
        return self.kind != "logic"

    def parts(
        self, logit: NDArray[np.floating], s: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """What the encoder and the logic add to S, in the precision of the arguments."""
        if self.kind == "logic":
            return np.zeros_like(logit), logit
        if self.kind == "sum":
            return self.calibration(s), self.alpha * expit(logit.astype(np.float64))
        # The weight takes the type of s, so that float32 scores stay float32.
        return s.dtype.type(self.encoder_weight) * s, logit

    def total(self, logit: Floats, encoder: Callable[[], Floats]) -> Floats:
        """S of all items, [users, items], written over ``logit``.

        ``encoder`` computes s, a fifth of a list's time for a large catalogue. It isn't called if
        the encoder can't change S: a fit may give it the weight 0.
        """
        if self.kind == "logic" or (self.kind == "logit" and not self.encoder_weight):
            return logit
        # User by user, so that what is made on the way stays in the cache: for a large catalogue,
        # arrays of all users cost several times the sums themselves.
        for of_user, s in zip(logit, encoder(), strict=True):
            by_encoder, by_logic = self.parts(of_user, s)
            np.add(by_logic, by_encoder, out=of_user, casting="same_kind")
        return logit


@dataclass(frozen=True, eq=False)
class Parts:
    """What S of some pairs is made of, in double precision; arrays are [pairs]."""

    groundings: Groundings
    rules: Doubles
    """w_l φ_l, cell by cell as the groundings are."""
    prior: float
    popularity: Doubles
    s: Doubles
    """The encoder's own score."""
    fusion: Fusion

    @cached_property
    def logit(self) -> Doubles:
        """logit p = prior + popularity + Σ of the rules."""
        return self.groundings.row_sums(self.rules) + self.prior + self.popularity

    @property
    def p(self) -> Doubles:
        """The logic's probability."""
        out: Doubles = expit(self.logit)
        return out

    @property
    def q(self) -> Doubles:
        """The encoder's score, calibrated to a probability."""
        return self.fusion.calibration(self.s)

    @property
    def fused(self) -> tuple[Doubles, Doubles]:
        """What the encoder and the logic add to S; their sum is S."""
        encoder, logic = self.fusion.parts(self.logit, self.s)
        return encoder.astype(np.float64), logic.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of all items for a block of users, each computed once."""

    ranker: Ranker
    users: NDArray[np.int64]
    total: Floats
    """S; [users, items]."""

    @property
    def graph(self) -> Graph:
        """The graph that knows what users have."""
        return self.ranker.graph

    @cached_property
    def encoder(self) -> Floats:
        """The encoders' own scores e, computed when they are first needed; [users, items]."""
        return self.ranker.encoder_scores(self.users)

    def best(self, k: int) -> TopItems:
        """The k best items that a user does not have."""
        return self.chosen(k, Selection())[:2]

    def chosen(self, k: int, selection: Selection) -> Chosen:
        """The lists of k items that a user does not have, as a selection makes them."""
        known = barred(self.graph, self.users)
        if selection.among is not None:
            scores = self.total.copy()
            scores[known] = -np.inf
            return selection.best(self.graph, scores, k)
        # A copy of all scores would cost more than choosing from them, so the old ones return.
        before = self.total[known]
        self.total[known] = -np.inf
        try:
            return selection.best(self.graph, self.total, k)
        finally:
            self.total[known] = before

    def mean(self, row: int) -> float:
        """The mean score of all items that are not in the history of a user, by row."""
        return float(self._free(self.total, row).mean(dtype=np.float64))

    def mean_encoder(self, row: int, fusion: Fusion) -> float:
        """What the encoder adds to S of those items on average."""
        s = self._free(self.encoder, row).astype(np.float64)
        return float(fusion.parts(np.zeros_like(s), s)[0].mean())

    def _free(self, scores: Floats, row: int) -> Floats:
        """The scores of the items that are not in the history of a user, by row."""
        # Cutting at the few known items is several times as fast as a mask over the catalogue.
        _, known = history(self.graph, self.users[row : row + 1])
        first, *rest = np.split(scores[row], np.unique(known))
        return np.concatenate([first, *(part[1:] for part in rest)])

    def ranks(
        self, rows: NDArray[np.int64], items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places, from 1, of items among those the user does not have: by S, and by s alone."""
        out = np.empty((2, len(rows)), dtype=np.int64)
        for row in np.unique(rows):
            asked = np.flatnonzero(rows == row)
            _, known = history(self.graph, self.users[row : row + 1])
            for by, scores in zip(out, (self.total, self.encoder), strict=True):
                by[asked] = places(scores[row], items[asked], np.unique(known))
        return out[0], out[1]


@dataclass(frozen=True, eq=False)
class Ranker:
    """What has been learned, on a graph: scores, what they are made of, and the best items.

    A ranker never changes; what-if questions and updates make another one.
    """

    graph: Graph
    """What users have, and how popular items are."""
    logic_graph: Graph
    """What rules are grounded in: the graph itself, or a sample of it."""
    encoder: Encoder
    logic: Logic
    fusion: Fusion
    walk: Walk | None = None
    """How much an item of a user's history counts for the encoder, by its age and strength; None:
    1."""
    sample: tuple[int, int] | None = None
    """Neighbours sampled per entity and relation, and the seed; None: the whole graph."""
    held_out: Pairs = field(default_factory=Pairs)
    """What was held out to test on. Neither the graph nor any score knows of it, so lists may
    contain it. Empty in a model for use, which has learned from everything."""
    sequence: SequenceEncoder | None = None
    """The encoder of the order of interactions, where that helps."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        encoder: Encoder,
        logic: Logic,
        fusion: Fusion,
        walk: Walk | None = None,
        sample: tuple[int, int] | None = None,
    ) -> Ranker:
        """A ranker whose logic graph is made of the graph."""
        return cls(graph, sampled(graph, sample), encoder, logic, fusion, walk, sample)

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    def encoder_scores(self, users: ArrayLike) -> Floats:
        """The encoders' scores e of all items for a block of users; [users, items]."""
        s = score_users(self.encoder, self.graph, users, self.walk, self.fusion.own)
        if not self.fusion.sequence or self.sequence is None:
            return s
        m = np.float32(self.fusion.sequence)
        s *= 1 - m
        s += m * self.sequence.score(self.graph, users)
        return s

    def encoder_parts(
        self, user: int, items: NDArray[np.integer]
    ) -> tuple[EncoderParts | None, EncoderParts | None]:
        """The parts of e of some items that come from TransE and from the sequence encoder, by the
        user's interactions; None for an encoder that isn't used or can't be split."""
        fusion, m = self.fusion, self.fusion.sequence
        about = self.graph, user, items
        s = attribute_user(self.encoder, *about, self.walk, fusion.own)
        if not m or self.sequence is None or s is None:
            return s, None
        return s.times(1 - m), self.sequence.attribute(*about).times(m)

    def score(self, users: ArrayLike) -> Floats:
        """S of all items for a block of users, -inf for what they have; [users, items]."""
        scores = self.scores(users, observed=False)
        scores.total[barred(self.graph, scores.users)] = -np.inf
        return scores.total

    def scores(self, users: ArrayLike, *, observed: bool = True) -> Scores:
        """S and s of all items for a block of users, distinct and ascending.

        Without ``observed``, the scores of items that the user has are meaningless. That is faster,
        since such items must be scored as if they were new (METHOD L2), and enough to recommend.
        """
        block = np.asarray(users, dtype=np.int64)
        scores = Scores(self, block, self.logic.logits(self.logic_graph, block, observed=observed))
        self.fusion.total(scores.total, lambda: scores.encoder)  # over the logits
        return scores

    def parts(self, users: NDArray[np.int64], items: NDArray[np.int64], s: Doubles) -> Parts:
        """What S of pairs is made of; ``s`` are the encoder's scores of the pairs."""
        groundings = self.logic.ground(self.logic_graph, users, items, LocalEngine(1))
        popularity = self.logic.appeal(self.logic_graph)[items]
        rules = self.logic.contributions(groundings)
        return Parts(groundings, rules, self.logic.prior, popularity, s, self.fusion)

    def top(
        self,
        users: ArrayLike,
        k: int,
        engine: Engine | None = None,
    ) -> TopItems:
        """The k best items that users do not have, exactly; ties go to the lower number."""
        return self.choose(users, k, Selection(), engine)[:2]

    def choose(
        self, users: ArrayLike, k: int, selection: Selection, engine: Engine | None = None
    ) -> Chosen:
        """The lists of users, as a selection makes them of the items that they do not have."""
        asked = np.asarray(users, dtype=np.int64)
        parts = (engine or LocalEngine()).map(
            "ranking", _choose, blocks(asked), (self, k, selection)
        )
        none = _choose((self, k, selection), asked[:0]) if not len(asked) else None
        return Chosen(*map(np.concatenate, zip(*([none] if none else parts), strict=True)))

    def encoder_share(self, users: ArrayLike, k: int = 10, engine: Engine | None = None) -> float:
        """The mean share of the lead that the encoder carries, over the k best items of users.

        An item's lead is its score less the mean of all items that the user does not have; items
        without a lead are left out.
        """
        asked = np.unique(np.asarray(users, dtype=np.int64))
        parts = (engine or LocalEngine()).map(
            "measuring the encoder's share", _shares, blocks(asked), (self, k)
        )
        shares = np.concatenate([np.empty(0), *parts])
        return float(shares.mean()) if len(shares) else 0.0

    def known(self, users: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What users have or dislike, as (place among them, item): never recommended."""
        return barred(self.graph, users)

    def rule_counts(self, user: int) -> NDArray[np.int64]:
        """n_l(u): how many paths of each rule lead from a user to what they have; [rules].

        The counts of a few thousand users are cached.
        """
        if user not in self._counted:
            _, items = history(self.graph, np.array([user]))
            owner, rules = np.full(len(items), user), self.logic.rules
            found = ground(self.logic_graph, rules, owner, items, engine=LocalEngine(1))
            if len(self._counted) >= COUNTED:
                self._counted.clear()
            n = np.bincount(found.rules, found.counts, len(rules)).astype(np.int64)
            self._counted[user] = n
            return n
        return self._counted[user]

    def counts_of(
        self, users: NDArray[np.integer], places: NDArray[np.integer]
    ) -> NDArray[np.int64]:
        """n_l(u) of users and rules, one by one, by the places of the rules."""
        asked = zip(users.tolist(), places.tolist(), strict=True)
        return np.array([self.rule_counts(u)[rule] for u, rule in asked], dtype=np.int64)

    @cached_property
    def _counted(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def own_paths(self, user: int) -> NDArray[np.int64]:
        """n_l(u), also for rules over derived relations; [rules].

        There it counts how often one thing that the user has leads to another, if other people
        have both. ``rule_counts`` has 0 for these rules, because grounding skips them for observed
        pairs, which the derived facts are made of.
        """
        n, graph = self.rule_counts(user).copy(), self.logic_graph
        has = history(self.graph, np.array([user]))[1] + graph.n_users
        for place, rule in enumerate(self.logic.rules):
            if rule.derived:
                by = rule.relations[1]
                for one in has.tolist():
                    others = np.intersect1d(graph.neighbours(one, by), has).tolist()
                    n[place] += sum(graph.people(one, by, other) > 1 for other in others)
        return n

    def importance(self, user: int) -> Doubles:
        """y_{u,l} = w_l n_l(u) / Σ n(u), the personal importance of each rule; [rules]."""
        n = self.own_paths(user)
        return self.logic.weights * (n / max(int(n.sum()), 1))

    # ── the same elsewhere ──────────────────────────────────────────────────────────────

    def on(self, graph: Graph) -> Ranker:
        """What was learned, on another graph of the same items."""
        return replace(self, graph=graph, logic_graph=sampled(graph, self.sample))

    def without(self, facts: Sequence[tuple[int, int, int]]) -> Ranker:
        """What was learned, without some facts (head, relation, tail), by entity id."""
        same = self.logic_graph is self.graph
        graph = _without(whole(self.graph), facts)
        return replace(
            self,
            graph=graph,
            logic_graph=graph if same else _without(whole(self.logic_graph), facts),
        )

    def user_view(
        self,
        user: int,
        remove: Sequence[int] = (),
        add: Sequence[int] = (),
        times: Sequence[int] | None = None,
        strengths: Sequence[float] | None = None,
    ) -> Ranker:
        """The ranker for questions about one user who has other interactions, by number."""
        # A view only overlays one user's row. A sample is drawn from the whole graph, so with one
        # the graph itself must be built again.
        if self.sample is not None:
            return self.rebuilt(user, remove, add, times, strengths)
        return self.on(whole(self.graph).user_view(user, remove, add, times, strengths))

    def rebuilt(
        self,
        user: int,
        remove: Sequence[int] = (),
        add: Sequence[int] = (),
        times: Sequence[int] | None = None,
        strengths: Sequence[float] | None = None,
    ) -> Ranker:
        """The ranker on a graph built as if one user had always had other interactions."""
        graph = whole(self.graph).without_interactions([user] * len(remove), remove)
        return self.on(graph.plus([user] * len(add), add, times, strengths))

    def guest(
        self, items: Sequence[int], strengths: Sequence[float] | None = None
    ) -> tuple[Ranker, int]:
        """The ranker for someone who isn't among the users and has exactly these items.

        ``items`` are numbers, the latest last. Returns the ranker and the number of the guest.
        """
        if not folds_in(self.encoder):
            raise LogerError(
                f"{type(self.encoder).__name__} knows only the users it was trained with; to "
                "recommend from a history alone, fit with the default encoder"
            )
        user = self.graph.n_users
        return self._guests.user_view(user, (), items, range(len(items)), strengths), user

    @cached_property
    def _guests(self) -> Ranker:
        """The ranker with one more user, the last, who has nothing."""
        graph, name = whole(self.graph), GUEST
        while name in graph.vocabulary.ids("user"):
            name += "_"
        return self.on(graph.with_users([name]))

    def with_popularity(self, dial: float) -> Ranker:
        """The ranker that prefers popular items (dial up to 1) or rare ones (down to -1).

        S is the logarithm of a rate, and this multiplies the rate by (1 + interactions)^dial: the
        shift is part of the item's general appeal, the same for every user.
        """
        if isinstance(dial, bool) or not isinstance(dial, int | float) or not -1 <= dial <= 1:
            raise LogerError(f"popularity must be a number from -1 to 1, got {dial!r}")
        if not dial:
            return self
        shifted = self.logic.popularity + dial
        return replace(self, logic=replace(self.logic, popularity=shifted))

    def without_appeal(self) -> Ranker:
        """The ranker in which items' general appeal doesn't count, as far as S separates it.

        General appeal is an item's popularity and, where the encoder's score is a plain sum, the
        encoder's own parts of the item. Other encoders mix the latter with the user's history.
        """
        own = None if self.fusion.own is None else (0.0, 0.0)
        logic = replace(self.logic, popularity=0.0, expected=None)
        return replace(self, logic=logic, fusion=replace(self.fusion, own=own))

    def only_rules(self, places: Iterable[int]) -> Ranker:
        """The ranker that scores by some rules alone, by their place: no encoder, no others."""
        others = set(range(len(self.logic.rules))) - set(places)
        return replace(self.without_rules(others), fusion=replace(self.fusion, kind="logic"))

    def with_weights(self, weights: ArrayLike) -> Ranker:
        """The ranker with other weights of its rules."""
        changed = np.asarray(weights, dtype=np.float64)
        return replace(self, logic=replace(self.logic, weights=changed))

    def without_rules(self, places: Iterable[int]) -> Ranker:
        """The ranker in which some rules, by their place, weigh nothing."""
        off, last = sorted(set(places)), len(self.logic.rules) - 1
        if off and not 0 <= off[0] <= off[-1] <= last:
            raise LogerError(f"rule numbers go from 0 to {last}, got {off[-1]}")
        weights = self.logic.weights.copy()
        weights[off] = 0.0
        return self.with_weights(weights)


def blocks(users: NDArray[np.int64], size: int = BLOCK) -> list[NDArray[np.int64]]:
    """Users in blocks of work for the engine."""
    return [users[k : k + size] for k in range(0, len(users), size)]


def sampled(graph: Graph, sample: tuple[int, int] | None) -> Graph:
    """The graph that rules are grounded in."""
    return graph if sample is None else whole(graph).sampled(*sample)


def _choose(shared: tuple[Ranker, int, Selection], users: NDArray[np.int64]) -> Chosen:
    ranker, k, selection = shared
    return selection.best(ranker.graph, ranker.score(users), k)


def _shares(shared: tuple[Ranker, int], users: NDArray[np.int64]) -> Doubles:
    """The encoder's shares of the leads of the k best items of some users."""
    ranker, k = shared
    scores = ranker.scores(users, observed=False)
    items, values = scores.best(k)
    shares = []
    for row in range(len(users)):
        best = items[row][items[row] >= 0]
        s = scores.encoder[row, best].astype(np.float64)
        encoder = ranker.fusion.parts(np.zeros_like(s), s)[0] - scores.mean_encoder(
            row, ranker.fusion
        )
        lead = values[row][: len(best)].astype(np.float64) - scores.mean(row)
        shares.append(encoder[lead > 0] / lead[lead > 0])
    return np.concatenate(shares)


def _without(graph: KnowledgeGraph, facts: Sequence[tuple[int, int, int]]) -> KnowledgeGraph:
    """The graph without those of some facts that it has."""
    present = [fact for fact in facts if graph.has(*fact)]
    return graph.without(*zip(*present, strict=True)) if present else graph
