"""Which reasons work: what was shown compared with what was clicked.

The first part decides which bundle somebody gets and what is stored of a list. The rest reports
which rules, kinds of reason and items were clicked, and how variants compare.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import exp, inf, isfinite, log, sqrt
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loger.errors import LogerError
from loger.graph.arrays import Doubles
from loger.updates.events import EventStore

DIGITS = 4
"""Of scores and contributions."""


def new_id(variant: int) -> str:
    """A new ``recommendation_id``; its first sign is the variant."""
    return f"{variant:x}{token_hex(8)[1:]}"


def variant_of(recommendation_id: str) -> int:
    """The variant that a list was of."""
    return int(recommendation_id[0], 16)


def shown(rows: Sequence[Mapping[str, Any]], bundle: str, propensity: float) -> str:
    """A list as it is kept, by the records of ``loger.explain.lists.recommendations``: which
    bundle made it, how likely it was to be asked, and what each item's reasons gave it."""
    items = [
        {
            "item": row["item"],
            "score": round(row["score"], DIGITS),
            "reasons": None if row["explanation"] is None else _reasons(row["explanation"]),
        }
        for row in rows
    ]
    record = {"bundle": bundle, "propensity": propensity, "items": items}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _reasons(explanation: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "relation": reason["relation"],
            "total": round(reason["total"], DIGITS),
            "encoder": round(reason["encoder"] + reason["sequence"], DIGITS),
            "rules": {e["rule"]: round(e["contribution"], DIGITS) for e in reason["evidence"]},
        }
        for reason in explanation["reasons"]
    ]


def kind_of(reasons: Sequence[Mapping[str, Any]] | None) -> str:
    """How the first reason argues: by which relation of the user, and by rules or the encoder."""
    if reasons is None:
        return "not explained"
    if not reasons:
        return "no reason"
    first = reasons[0]
    by = "rules" if sum(first["rules"].values()) >= first["encoder"] else "the encoder"
    return f"{first['relation']}, by {by}"


def rules_of(reasons: Sequence[Mapping[str, Any]] | None) -> set[str]:
    """The rules that the shown reasons name."""
    return {rule for reason in reasons or () for rule in reason["rules"]}


# ── which bundle somebody gets ──────────────────────────────────────────────────────────


LETTERS = "ABCDEFGHIJKLMNOP"
"""What variants are called, in the order in which their bundles are named."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The shares of variants; nothing is remembered, and the same user always gets the same one."""

    shares: tuple[float, ...] = (1.0,)
    """They add up to 1."""

    @classmethod
    def read(cls, text: str | None, bundles: int) -> Traffic:
        """Shares as ``90:10``; equal ones where there is no text.

        >>> Traffic.read("90:10", 2).shares
        (0.9, 0.1)
        """
        if bundles > len(LETTERS):
            raise LogerError(f"a server compares at most {len(LETTERS)} bundles, got {bundles}")
        parts = ["1"] * bundles if text is None else text.split(":")
        try:
            shares = [float(part) for part in parts]
        except ValueError:
            shares = []
        total = sum(shares)
        if len(shares) != bundles or not total > 0 or not all(0 < x <= total for x in shares):
            raise LogerError(
                f"traffic needs a share above 0 for each of {bundles} bundles, such as "
                f"{':'.join(['50'] * max(2, bundles))}; got {text!r}"
            )
        return cls(tuple(share / total for share in shares))

    def variant(self, who: str) -> int:
        """The number of the variant that somebody gets."""
        digest = blake2b(who.encode("utf-8", "replace"), digest_size=8, person=b"loger traffic")
        place = int.from_bytes(digest.digest(), "big") / 2**64
        for number, share in enumerate(self.shares):
            place -= share
            if place < 0:
                return number
        return len(self.shares) - 1


Z = 1.959963984540054
"""Of a 95 % interval."""
Counts = NDArray[np.int64]
Interval = tuple[float, float, float]
"""An estimate, and the ends of its 95 % interval."""
MIN_SHOWN = 20
"""Groups that were shown less often are left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One item of a list that somebody saw."""

    place: tuple[str, int]
    """Variant and rank: rows are compared at the same place of the same variant."""
    item: str
    reasons: list[dict[str, Any]] | None
    clicked: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A list that somebody saw."""

    person: str
    variant: str
    bundle: str
    propensity: float
    rows: list[Row] = field(default_factory=list)

    @property
    def clicked(self) -> bool:
        """Whether anything of it was clicked."""
        return any(row.clicked for row in self.rows)


def seen_lists(store: EventStore) -> tuple[list[Seen], dict[str, int]]:
    """The lists that were seen, each once, and some counts: lists that were ``made``, impressions
    of ``unknown`` lists, and lists ``only_clicked``, without an impression. To count the last as
    seen would make what was clicked look better."""
    parts: dict[str, set[str] | None] = {}
    clicks: dict[str, set[str]] = defaultdict(set)
    for event in store.after(0):
        if event.kind == "impression":
            before, items = parts.get(event.body["recommendation_id"], set()), None
            if before is not None and event.body.get("items") is not None:
                items = before | set(event.body["items"])
            parts[event.body["recommendation_id"]] = items
        elif event.kind == "click":
            clicks[event.body["recommendation_id"]].add(event.body["item"])
    made, out = store.answers(), list[Seen]()
    for id_, _, user, variant, body in made:
        if id_ in parts:
            taken = clicks.pop(id_, set())
            out.append(_seen(user or id_, variant, body, parts.pop(id_), taken))
    alone = len(clicks.keys() - parts.keys())
    return out, {"made": len(made), "unknown": len(parts), "only_clicked": alone}


def _seen(
    person: str, variant: str, body: dict[str, Any], part: set[str] | None, taken: set[str]
) -> Seen:
    """A list, of which a part was seen, or all; what was clicked was seen."""
    rows = [
        Row((variant, rank), one["item"], one["reasons"], one["item"] in taken)
        for rank, one in enumerate(body["items"], 1)
        if part is None or one["item"] in part | taken
    ]
    return Seen(person, variant, body["bundle"], body["propensity"], rows)


def report(store: EventStore, min_shown: int = MIN_SHOWN) -> dict[str, Any]:
    """All of it as plain values; ratios and rates with their 95 % intervals."""
    lists, counts = seen_lists(store)
    rows, names = [row for one in lists for row in one.rows], sorted({one.variant for one in lists})
    groups: dict[str, Callable[[Row], Iterable[str]]] = {
        "rules": lambda row: rules_of(row.reasons),
        "kinds": lambda row: (kind_of(row.reasons),),
        "items": lambda row: (row.item,),
    }
    found: dict[str, Any] = _plain(
        {
            "lists": {"seen": len(lists), **counts},
            "items_seen": len(rows),
            "clicks": sum(row.clicked for row in rows),
            "variants": [_variant(lists, name) for name in names],
            "difference": _differences(lists, names),
            "positions": _positions(rows),
            **{name: _grouped(rows, of, min_shown) for name, of in groups.items()},
        }
    )
    return found


def _plain(value: Any) -> Any:
    """Values as JSON has them: numbers of six digits, None for those that aren't finite."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return round(value, 6) if isfinite(value) else None
    return value


def _rate(clicked: int, shown: int) -> dict[str, Any]:
    rate, low, high = wilson(clicked, shown)
    return {"clicked": clicked, "rate": rate, "low": low, "high": high}


def _grouped(
    rows: Sequence[Row], groups: Callable[[Row], Iterable[str]], min_shown: int
) -> list[dict[str, Any]]:
    """How often each group was clicked, and how many times as often as others at the same places;
    the largest lower end first. A row can be in several groups."""
    places = {place: k for k, place in enumerate(sorted({row.place for row in rows}))}
    whole = np.zeros((2, len(places)), dtype=np.int64)  # clicked and shown, by place
    parts: dict[str, Any] = defaultdict(lambda: np.zeros_like(whole))
    for row in rows:
        for table in (whole, *(parts[name] for name in groups(row))):
            table[:, places[row.place]] += (row.clicked, 1)
    out = []
    for name, (clicked, shown) in parts.items():
        if shown.sum() >= min_shown:
            ratio, low, high = ratio_at_same_places(clicked, shown, *whole)
            total = {"name": name, "shown": int(shown.sum())}
            total |= _rate(int(clicked.sum()), int(shown.sum()))
            out.append(total | {"ratio": ratio, "ratio_low": low, "ratio_high": high})
    return sorted(out, key=lambda g: (-g["ratio_low"], -g["shown"], g["name"]))


def _positions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    shown = Counter(row.place[1] for row in rows)
    clicked = Counter(row.place[1] for row in rows if row.clicked)
    return [
        {"rank": rank, "shown": shown[rank], **_rate(clicked[rank], shown[rank])}
        for rank in sorted(shown)
    ]


def _variant(lists: Sequence[Seen], name: str) -> dict[str, Any]:
    """How many lists of a variant were clicked, and what share would have been if everyone had got
    it, by IPS and SNIPS."""
    own = [one for one in lists if one.variant == name]
    found = estimate(
        [one.clicked for one in lists],
        [one.propensity for one in lists],
        [float(one.variant == name) for one in lists],
        [one.person for one in lists],
    )
    return {
        "name": name,
        "bundles": sorted({one.bundle for one in own}),
        "people": len({one.person for one in own}),
        "lists": len(own),
        **_rate(sum(one.clicked for one in own), len(own)),
        "clicks": sum(row.clicked for one in own for row in one.rows),
        "mrr": float(np.mean([_reciprocal_rank(one) for one in own])),
        "propensity": float(np.mean([one.propensity for one in own])),
        "ips": found.ips,
        "snips": found.snips,
        "effective": found.effective,
    }


def _reciprocal_rank(one: Seen) -> float:
    """1 / rank of the first click; 0 if there is none."""
    ranks = [row.place[1] for row in one.rows if row.clicked]
    return 1 / min(ranks) if ranks else 0.0


def _differences(lists: Sequence[Seen], names: Sequence[str]) -> list[dict[str, Any]]:
    """By how much the later variants have a larger share of clicked lists than the first."""
    shown = Counter(one.variant for one in lists)
    clicked = Counter(one.variant for one in lists if one.clicked)
    out = []
    for name in names[1:]:
        first = clicked[names[0]], shown[names[0]]
        more, low, high = difference((clicked[name], shown[name]), first)
        out.append({"name": f"{name} less {names[0]}", "rate": more, "low": low, "high": high})
    return out


# ── rates with intervals ─────────────────────────────────────────────────────────────────


def wilson(k: int, n: int) -> Interval:
    """The share k of n with Wilson's interval (1927), which also holds for few and for none.

    >>> [round(x, 3) for x in wilson(0, 10)]
    [0.0, 0.0, 0.278]
    """
    if n == 0:
        return 0.0, 0.0, 1.0
    p, z2 = k / n, Z * Z
    middle, half = p + z2 / (2 * n), Z * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return p, max(0.0, low), min(1.0, high)


def difference(one: tuple[int, int], other: tuple[int, int]) -> Interval:
    """The share of the first less that of the second, with Newcombe's interval (1998, method 10),
    made of two of Wilson's."""
    (p, a, b), (q, c, d) = wilson(*one), wilson(*other)
    low = p - q - sqrt((p - a) ** 2 + (d - q) ** 2)
    return p - q, low, p - q + sqrt((b - p) ** 2 + (q - c) ** 2)


def ratio_at_same_places(
    clicked: Counts, shown: Counts, all_clicked: Counts, all_shown: Counts
) -> Interval:
    """How many times as often as others a group is clicked at the same places: the risk ratio of
    Mantel and Haenszel over places, with the interval of Greenland and Robins (1985).

    Arrays are [places]: of the group, and of all. Places where only one of both was shown say
    nothing. Of a group that was never compared, or never clicked, the interval is open.
    """
    a, n = clicked.astype(np.float64), shown.astype(np.float64)
    b, m = all_clicked - a, all_shown - n
    total = np.maximum(all_shown, 1)
    with_, without = float((a * m / total).sum()), float((b * n / total).sum())
    if with_ == 0 or without == 0:
        return (0.0 if without else float("nan")), 0.0, inf
    ratio = with_ / without
    spread = float(((n * m * (a + b) - a * b * all_shown) / total**2).sum()) / (with_ * without)
    half = Z * sqrt(max(spread, 0.0))
    return ratio, exp(log(ratio) - half), exp(log(ratio) + half)


# ── what another policy would have earned ────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a policy would have earned for each answer."""

    ips: Interval
    snips: Interval
    effective: float
    """How many answers of the policy itself these are worth: (Σw)² / Σw²."""


def estimate(
    rewards: ArrayLike,
    propensities: ArrayLike,
    target: ArrayLike,
    people: ArrayLike | None = None,
) -> Estimate:
    """IPS and SNIPS of a policy that gives each answer of the log with probability ``target``.

    Each answer was given with a logged probability, its propensity. With w = target / propensity,

        IPS   = Σ w·r / n      (Horvitz and Thompson 1952: unbiased)
        SNIPS = Σ w·r / Σ w    (Swaminathan and Joachims 2015: less variance, within the rewards)

    All arrays are [answers]. ``people`` says whose answer each is, by default somebody else's:
    answers to one person are one observation, because a person gets the same variant every time.
    """
    r, p, pi = (np.asarray(x, dtype=np.float64) for x in (rewards, propensities, target))
    if not len(r) or not len(r) == len(p) == len(pi):
        raise LogerError(
            "rewards, propensities and targets must have the same length and at least 1 value, got "
            f"{len(r)}, {len(p)} and {len(pi)}"
        )
    if not ((p > 0) & (p <= 1)).all() or not ((pi >= 0) & (pi <= 1)).all():
        raise LogerError("propensities must be above 0 and at most 1, and targets from 0 to 1")
    w = pi / p
    _, who = np.unique(
        np.arange(len(r)) if people is None else np.asarray(people), return_inverse=True
    )
    ips = float((w * r).mean())
    weight = float(w.mean())
    snips = float("nan") if weight == 0 else ips / weight
    effective = float(w.sum() ** 2 / (w @ w)) if weight else 0.0
    return Estimate(
        _with_interval(ips, _sums(who, w * r - ips), len(r)),
        _with_interval(snips, _sums(who, w * (r - snips)) / (weight or 1.0), len(r)),
        effective,
    )


def _sums(who: NDArray[np.int64], values: Doubles) -> Doubles:
    """The sum of each person's values."""
    return np.bincount(who, weights=values).astype(np.float64)


def _with_interval(value: float, sums: Doubles, n: int) -> Interval:
    """An estimate that is a mean of n values, by how the sums of people spread about 0."""
    people = len(sums)
    spread = people / max(people - 1, 1) * float(sums @ sums)
    half = Z * sqrt(spread) / n if people > 1 else float("inf")
    return value, value - half, value + half
