"""Which rules, which kinds of reason and which items were clicked, and how variants compare."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loger.updates.events.store import EventStore
from loger.updates.feedback.off_policy import estimate
from loger.updates.feedback.rates import difference, plain, ratio_at_same_places, wilson
from loger.updates.feedback.shown import kind_of, rules_of

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


def seen_lists(store: EventStore) -> tuple[list[Seen], Counter[str]]:
    """The lists that were seen, each once, and what else the log has: how many lists were made, how
    many impressions are of lists that it does not have, and how many lists were clicked of which
    no impression came. To count those as seen would make what was clicked look better."""
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
    out, counts = list[Seen](), Counter[str]()
    for id_, _, user, variant, body in store.answers():
        counts["made"] += 1
        if id_ in parts:
            taken = clicks.pop(id_, set())
            out.append(_seen(user or id_, variant, body, parts.pop(id_), taken))
    counts["unknown"], counts["only_clicked"] = len(parts), len(clicks.keys() - parts.keys())
    return out, counts


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
    rows = [row for one in lists for row in one.rows]
    groups: dict[str, Callable[[Row], Iterable[str]]] = {
        "rules": lambda row: rules_of(row.reasons),
        "kinds": lambda row: (kind_of(row.reasons),),
        "items": lambda row: (row.item,),
    }
    return {
        "lists": {"seen": len(lists)} | {k: counts[k] for k in ("made", "unknown", "only_clicked")},
        "items_seen": len(rows),
        "clicks": sum(row.clicked for row in rows),
        "variants": variants(lists),
        "difference": _difference(lists),
        "positions": _positions(rows),
        **{name: grouped(rows, of, min_shown) for name, of in groups.items()},
    }


def grouped(
    rows: Sequence[Row], of: Callable[[Row], Iterable[str]], min_shown: int = MIN_SHOWN
) -> list[dict[str, Any]]:
    """How often each group was clicked, and how many times as often as others at the same places;
    the largest lower end first. A row may be of several groups."""
    places = {place: k for k, place in enumerate(sorted({row.place for row in rows}))}
    whole = np.zeros((2, len(places)), dtype=np.int64)
    parts: dict[str, Any] = defaultdict(lambda: np.zeros_like(whole))
    for row in rows:
        what = np.array([row.clicked, 1])
        whole[:, places[row.place]] += what
        for name in of(row):
            parts[name][:, places[row.place]] += what
    out = []
    for name, (clicked, shown) in parts.items():
        if shown.sum() < min_shown:
            continue
        rate, low, high = wilson(int(clicked.sum()), int(shown.sum()))
        ratio, least, most = ratio_at_same_places(clicked, shown, *whole)
        out.append(
            {
                "name": name,
                "shown": int(shown.sum()),
                "clicked": int(clicked.sum()),
                "rate": plain(rate),
                "low": plain(low),
                "high": plain(high),
                "ratio": plain(ratio),
                "ratio_low": plain(least),
                "ratio_high": plain(most),
            }
        )
    return sorted(out, key=lambda g: (-g["ratio_low"], -g["shown"], g["name"]))


def _positions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    shown = Counter(row.place[1] for row in rows)
    clicked = Counter(row.place[1] for row in rows if row.clicked)
    out = []
    for rank in sorted(shown):
        rate, low, high = (plain(x) for x in wilson(clicked[rank], shown[rank]))
        out.append(
            {"rank": rank, "shown": shown[rank], "clicked": clicked[rank],
             "rate": rate, "low": low, "high": high}
        )  # fmt: skip
    return out


def variants(lists: Sequence[Seen]) -> list[dict[str, Any]]:
    """Each variant: how many of its lists were clicked, and what share would be had everybody got
    it, by IPS and SNIPS."""
    out = []
    rewards = [one.clicked for one in lists]
    people = [one.person for one in lists]
    for name in sorted({one.variant for one in lists}):
        own = [one for one in lists if one.variant == name]
        rate, low, high = wilson(sum(one.clicked for one in own), len(own))
        got = [one.propensity for one in lists]
        target = [float(one.variant == name) for one in lists]
        found = estimate(rewards, got, target, people)
        out.append(
            {
                "name": name,
                "bundles": sorted({one.bundle for one in own}),
                "people": len({one.person for one in own}),
                "lists": len(own),
                "clicked": sum(one.clicked for one in own),
                "rate": plain(rate),
                "low": plain(low),
                "high": plain(high),
                "clicks": sum(row.clicked for one in own for row in one.rows),
                "mrr": plain(float(np.mean([_reciprocal(one) for one in own]))),
                "propensity": plain(float(np.mean([one.propensity for one in own]))),
                "ips": [plain(x) for x in found.ips],
                "snips": [plain(x) for x in found.snips],
                "effective": plain(found.effective),
            }
        )
    return out


def _reciprocal(one: Seen) -> float:
    """1 / rank of the first click; 0 if there is none."""
    ranks = [row.place[1] for row in one.rows if row.clicked]
    return 1 / min(ranks) if ranks else 0.0


def _difference(lists: Sequence[Seen]) -> list[dict[str, Any]]:
    """By how much more of their lists the later variants have clicked than the first."""
    counts = {
        name: (
            sum(one.clicked for one in lists if one.variant == name),
            sum(one.variant == name for one in lists),
        )
        for name in sorted({one.variant for one in lists})
    }
    first, *others = counts or [""]
    out = []
    for other in others:
        more, low, high = (plain(x) for x in difference(counts[other], counts[first]))
        out.append({"name": f"{other} less {first}", "rate": more, "low": low, "high": high})
    return out
