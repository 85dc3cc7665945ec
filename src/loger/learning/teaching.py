"""The encoder teaches the rules where labels are few, and labels left out say how much it may say
(docs/adr/0015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loger.learning.listwise import Lists, Listwise
from loger.logic.mln import Floats, listwise, maximise

STRENGTHS = (300.0, 100.0, 30.0, 10.0)
"""What the encoder's expectation may count, in users with one label. Ten labels cannot tell weaker
teachers apart."""
UNTOLD = 30.0
"""What it counts where there are no two users with labels to learn that from."""
SPREAD = 0.25
"""How far from 0 the logarithm of the temperature is expected to be; -0.33 to 0.02 on four sets."""
FOLDS = 5
ENOUGH_USERS = 100
"""Users with labels by whom strengths are compared, …"""
ENOUGH_TAUGHT = 50
"""… and users taught about meanwhile: one number needs no more."""


def temperature(labels: Lists) -> float:
    """The c by which softmax(c·s) of the encoder's own scores suits the hits best; 1, as it was
    trained, unless they say otherwise: log c has a prior, normal around 0."""
    assert labels.beliefs is not None
    if not len(labels.hits):
        return 1.0
    none, s = np.empty((len(labels.beliefs), 0)), labels.beliefs[None, :]
    users = len(np.unique(np.searchsorted(labels.starts, labels.hits, side="right")))
    precision = 1 / (users * SPREAD**2)  # the likelihood is a mean over users

    def by_encoder(x: Floats) -> tuple[float, Floats]:
        c = np.exp(x)
        value, slope = listwise(c, none, labels.starts, labels.hits, 0.0, labels.weights, s)
        return value - 0.5 * precision * float(x @ x), c * slope - precision * x

    return float(np.exp(maximise(by_encoder, np.zeros(1))[0]))


def expected(taught: Lists, c: float) -> Lists:
    """What the encoder expects of users: every candidate a hit of weight softmax(c·s), the soft
    targets of Eq. 3; each user counts the same."""
    assert taught.beliefs is not None
    z, starts = c * taught.beliefs, taught.starts
    owner = np.repeat(np.arange(len(taught)), np.diff(starts))
    highest = np.full(len(taught), -np.inf)
    np.maximum.at(highest, owner, z)
    t = np.exp(z - highest[owner])
    t /= len(np.unique(owner)) * np.bincount(owner, t)[owner]
    return replace(taught, hits=np.arange(len(z)), weights=t)


def best_strength(question: Listwise, taught: Lists) -> float:
    """How much the encoder may say: the geometric mean of the strengths, each as often as it makes
    the labels of users who are left out likely.

    A few labels tell little, and then it is a middle strength; many tell which is best.
    """
    labels = _some(question.lists, ENOUGH_USERS)
    if len(labels) < 2 or not len(labels.hits):
        return UNTOLD
    asked = replace(question, lists=labels)
    told = left_out(asked, _some(taught, ENOUGH_TAUGHT), STRENGTHS, _likely)
    likely = told.sum(1)
    shares = np.exp(likely - likely.max())
    return float(np.exp(shares @ np.log(STRENGTHS) / shares.sum()))


def left_out(
    question: Listwise,
    taught: Lists | None,
    strengths: Sequence[float],
    judged: Callable[[Lists, Floats], Floats],
) -> Floats:
    """How each user's labels are judged by what the others' teach, and the encoder with each
    strength, in folds of users; [strengths, users]."""
    labels = question.lists
    fold, out = np.arange(len(labels)) % FOLDS, np.zeros((len(strengths), len(labels)))
    for k in range(min(FOLDS, len(labels))):
        known, new = labels.of_users(fold != k), labels.of_users(fold == k)
        lesson, w = taught and expected(taught, temperature(known)), question.zero
        for row, strength in zip(out, strengths, strict=True):
            lists = known.and_also(lesson, strength) if lesson and strength else known
            w = replace(question, lists=lists).best(w)
            row[fold == k] = judged(new, w)
    return out


def _likely(lists: Lists, w: Floats) -> Floats:
    """The log-likelihood of each user's labels."""
    return lists.labels * lists.of_each(w)


def _some(lists: Lists, most: int) -> Lists:
    """Those of so many users at most, evenly from all."""
    if len(lists) <= most:
        return lists
    some = np.zeros(len(lists), dtype=bool)
    some[np.arange(most) * len(lists) // most] = True
    return lists.of_users(some)
