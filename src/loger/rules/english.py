"""English verbs and nouns: what a relation says its head does, and how it is said to you."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

_TO_YOU = {"has": "have", "is": "are", "does": "do"}
_PREPOSITIONS = {"as", "by", "for", "from", "in", "of", "on", "to", "with"}
_SAME = {
    "buy": "purchase", "bought": "purchase", "watched": "watch", "played": "play",
    "listened_to": "listen", "listened": "listen", "borrowed": "borrow", "rented": "rent",
    "cooked": "cook", "visited": "visit", "liked": "like", "rated": "rate", "rating": "rate",
    "viewed": "view", "clicked": "click", "reviewed": "review", "downloaded": "download",
    "saved": "save", "used": "use", "ordered": "order", "stream": "play", "loan": "borrow",
    "mention": "mentions", "follow": "follows", "also_buy": "also_bought",
    "also_view": "also_viewed", "wrote_by": "written_by", "starred_by": "starring",
    "belongs_to": "belong_to", "similar": "similar_to", "related": "related_to",
    "play_count": "play", "interaction": "interacted", "uploaded": "upload",
    "installed": "install", "depend": "depends_on", "depends": "depends_on",
}  # fmt: skip
"""Names that say the same as another."""
UNCHANGED = {"series", "species", "news", "means", "headquarters", "crossroads", "aircraft"}
"""Nouns whose plural is the same."""


def known_as(name: str, tail_type: str, known: Mapping[str, object]) -> str | None:
    """The name under which a relation's words are kept, if they are: purchases are purchase."""
    plain = name.split("[")[0]
    for one in (name, plain, plain.removesuffix(f"_{tail_type}")):
        singular = one[:-2] if one.endswith("ches") else one.removesuffix("s")
        for key in (one, _SAME.get(one), singular, _SAME.get(singular)):
            if key and key in known:
                return key
    return None


def made_up(name: str, head_type: str, tail_type: str) -> str:
    """A verb of nothing but the relation's name."""
    plain = name.split("[")[0].removesuffix(f"_{tail_type}")
    first, _, rest = plain.partition("_")
    # A movie is directed by someone; people act for themselves: they subscribed to something.
    passive = rest == "by" or (first.endswith("ed") and rest in _PREPOSITIONS)
    return ("is " if passive and head_type != "user" else "") + plain.replace("_", " ")


@lru_cache(maxsize=1024)
def to_you(verb: str) -> str:
    """A verb in the third person as it is said to you: follows → follow, has → have."""
    first, space, rest = verb.partition(" ")
    if first in _TO_YOU:
        first = _TO_YOU[first]
    elif first.endswith("ies"):
        first = first.removesuffix("ies") + "y"
    elif first.endswith(("ches", "shes", "sses", "xes", "zes")):
        first = first.removesuffix("es")
    elif first.endswith("s") and not first.endswith("ss"):
        first = first.removesuffix("s")
    return first + space + rest


def auxiliary(verb: str) -> str:
    """The verb that stands for another: so is, so does, so did."""
    first = verb.partition(" ")[0]
    if first in ("is", "has", "was", "can"):
        return {"has": "does"}.get(first, first)
    return "did" if first.endswith("ed") or first == "bought" else "does"


def plural(noun: str) -> str:
    """A noun in the plural: categories, brands, classes, series."""
    if noun.rpartition(" ")[2] in UNCHANGED:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")
