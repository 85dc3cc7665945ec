"""The words and patterns of a language, read from TOML; users can override them.

``words/en.toml``, ``de.toml`` and ``es.toml`` are complete. A user's file has a table for each
language, with only what should be different:

    [en.verbs]
    plays = "played"                      # what the head does, in the third person
    [de.verbs]
    plays = "gehört"                      # a participle
    [de.relations.pairs_with]             # or every form: {x} is the object
    one = "passt gut zu {x}"
    [es.types]
    brand = ["casa", "casas", "misma casa"]
    [en.texts]
    others = "everything else you did"
    [explain]
    names = "followed"                    # reasons may name people whom the user follows
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any

from loger.errors import LogerError, UnknownNameError

LANGUAGES = ("en", "de", "es")
CASES = ("nom", "acc", "dat")
FORMS = ("you", "one", "many", "that", "those", "something", "someone", "so")
"""The forms of a relation: you do it, one does, several do; in a clause, one who does, those who
do; something or someone you did it to; and another does so too."""
_OPTIONAL = ("same", "case", "to_you", "done")
_SECTIONS = (
    "verbs", "relations", "types", "texts", "tile", "debug", "items", "pronouns", "verb_forms"
)  # fmt: skip
STYLES = ("tile", "sentence", "debug")
"""A few words, whole sentences, or sentences with every number."""
NAMES = ("nobody", "followed")
"""Whom reasons may name besides the user: nobody, or people whom the user follows."""
FEW = 3
"""Smaller counts of people are shown only in the style debug."""
_LINKS = ("also_bought", "also_viewed", "bought_together", "similar_to")
"""Relations between items that have tiles of their own."""
_OWNED = {"purchase", "order", "install", "download", "save", "upload"}
"""Verbs whose object becomes the user's own: your desk lamp, but not your The Matrix."""


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one relation; ``{x}`` stands for the object."""

    patterns: Mapping[str, str]
    case: str
    """The case of a pronoun as object."""
    has: bool
    """Whether the head simply has the tail; then sentences name the tail's type."""
    same: str | None
    """What two heads of one tail share, if the tail's type doesn't say it."""
    to_you: str | None
    """The form with the object you, if it is irregular: te sigue."""
    done: str | None
    """A participle that a tile can use: often bought."""
    owned: bool
    """Whether the tail becomes the head's own: your desk lamp."""

    def with_object(self, x: str, ends: str = "") -> dict[str, str]:
        """The forms of clauses, with their object. ``ends`` is the comma after an object that is
        itself a clause, if the sentence continues."""
        said = {form: self.patterns[form] for form in FORMS[:5]}
        return {
            form: text.replace("{x}", x if text.endswith("{x}") else x + ends)
            for form, text in said.items()
        }


@dataclass(frozen=True, eq=False)
class Wording:
    """The words of one language; see ``wording_of``."""

    language: str
    table: Mapping[str, Any]
    style: str = "sentence"
    """One of ``STYLES``."""
    names: str = "nobody"
    """One of ``NAMES``."""
    impersonal: bool = False
    """Whether reasons are about items, not about a history; see ``about_items``."""
    _styles: dict[str, Wording] = field(default_factory=dict, init=False, repr=False)
    _nouns: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False)
    _made: dict[tuple[str, str, str], Forms] = field(default_factory=dict, init=False, repr=False)

    def text(self, key: str, **slots: object) -> str:
        """A text in this style, with its slots filled in."""
        pattern: str | None = self.table["items"].get(key) if self.impersonal else None
        if pattern is None and self.debug:
            pattern = self.table["debug"].get(key)
        pattern = pattern or str(self.table["texts"][key])
        return pattern.format(**slots)

    def tile(self, key: str, **slots: object) -> str:
        """A text for tiles, with its slots filled in."""
        return str(self.table["tile"][key]).format(**slots)

    @property
    def debug(self) -> bool:
        """Whether every number is shown."""
        return self.style == "debug"

    def line(self, text: str) -> str:
        """A text that stands alone, with a capital letter except in the style debug."""
        return text if self.debug else text[:1].upper() + text[1:]

    def styled(self, style: str) -> Wording:
        """The same words in another style."""
        if style not in STYLES:
            raise UnknownNameError("style", style, STYLES, near=list(STYLES))
        if style == self.style:
            return self
        if style not in self._styles:
            self._styles[style] = replace(self, style=style)
        return self._styles[style]

    def about_items(self) -> Wording:
        """The same words for reasons why items are alike, without anybody's history."""
        return replace(self, impersonal=True)

    def number(self, n: int) -> str:
        """A count, with the language's thousands separator."""
        return f"{n:,}".replace(",", self.table["thousands"])

    def testing(self, held_out: int) -> str:
        """A note that the model is for testing."""
        return self.text("testing", n=self.number(held_out))

    def share(self, value: float) -> str:
        """A share as a percentage."""
        return str(self.table["percent"]).format(n=f"{100 * value:.0f}")

    def pronoun(self, word: str, case: str = "nom") -> str:
        """it, this, them, you or someone, in a case."""
        return str(self.table["pronouns"][case][word])

    def kind(self, entity_type: str) -> str:
        """What an entity of a type is called."""
        return self._noun(entity_type)[0]

    def kinds(self, entity_type: str) -> str:
        """What several entities of a type are called."""
        return self._noun(entity_type)[1]

    def same(self, entity_type: str) -> str:
        """The same entity of a type: same brand."""
        return self._noun(entity_type)[2]

    def _noun(self, entity_type: str) -> list[str]:
        known: Mapping[str, list[str]] = self.table["types"]
        found = known.get(entity_type) or self._nouns.get(entity_type)
        if found is None:
            words = entity_type.split("[")[0].replace("_", " ")
            more = plural(words) if self.language == "en" else words
            found = self._nouns[entity_type] = [words, more, self.text("same", kind=words)]
        return found

    def forms(self, name: str, head_type: str, tail_type: str) -> Forms:
        """How a relation is said."""
        key = name, head_type, tail_type
        if key not in self._made:
            self._made[key] = self._forms(*key)
        return self._made[key]

    def verb(self, name: str, head_type: str, tail_type: str) -> str:
        """A relation's verb without its object: bought. Empty if the head simply has the tail,
        because the tail's kind says so."""
        forms = self.forms(name, head_type, tail_type)
        return "" if forms.has else " ".join(forms.patterns["one"].replace("{x}", "").split())

    def link(self, name: str) -> str | None:
        """The key of the tile for a relation between two items, if it has its own."""
        return _known_as(name, "item", dict.fromkeys(_LINKS))

    def _forms(self, name: str, head_type: str, tail_type: str) -> Forms:
        relations, verbs = self.table["relations"], self.table["verbs"]
        plain = name.split("[")[0]
        has = plain.removeprefix("has_").removeprefix("chose_") == tail_type
        found = _known_as(name, tail_type, relations)
        spoken = _known_as(name, tail_type, verbs)
        if has and found is None and spoken is None:
            found = spoken = "has"
        has = has and bool({found, spoken} & {"has", "chose"})
        text = plain.removesuffix("_says").replace("_", " ")  # the text that contains the word
        if found is None and spoken is None and plain.endswith("_says"):
            found = "says"
        elif found is None and spoken is None and alike_by(name):
            found, text = "alike_by", self.kind(alike_by(name))
        patterns = self._of_verb(verbs[spoken]) if spoken in verbs else {}
        if found in relations:
            patterns |= {k: said.replace("{text}", text) for k, said in relations[found].items()}
        if not patterns and self.language == "en":
            patterns = self._of_verb(_made_up(name, head_type, tail_type))
        elif not patterns:
            words = plain.replace("_", " ")
            action = (head_type, tail_type) == ("user", "item") and "other_action" in relations
            other = relations["other_action" if action else "other"]
            patterns = {form: text.replace("{relation}", words) for form, text in other.items()}
        one = patterns.get("one", "{x}")
        own = {form: patterns.get(form, self._usual(form, one, patterns)) for form in FORMS}
        return Forms(
            own,
            patterns.get("case", "acc"),
            has,
            patterns.get("same"),
            patterns.get("to_you"),
            patterns.get("done"),
            spoken in _OWNED,
        )

    def _usual(self, form: str, one: str, patterns: Mapping[str, str]) -> str:
        """A form that is not given: several do as one does, and clauses are like main clauses."""
        if form == "so":
            return str(self.table["verb_forms"]["so"])
        if form in ("something", "someone"):
            return ""
        several = patterns.get("that", patterns.get("many", one))
        return several if form == "those" else one

    def _of_verb(self, verb: str | list[str]) -> dict[str, str]:
        """All forms of a verb."""
        parts = [verb] if isinstance(verb, str) else verb
        if self.language == "en" and len(parts) == 1:
            parts = [to_you(parts[0]), parts[0], _auxiliary(parts[0])]
        forms: Mapping[str, str] = self.table["verb_forms"]
        out = {}
        for form, pattern in forms.items():
            for k, part in enumerate(parts):
                pattern = pattern.replace(f"{{{k}}}", part)
            out[form] = pattern
        if self.language == "en" and (" " in parts[0] or parts[0] != parts[1]):
            del out["done"]  # listened to, follow: no participles
        return out


Words = Wording | Mapping[str, Any] | Path | str | None
"""What may be given as wording."""


def wording_of(
    language: str | None = None, wording: Words = None, style: str | None = None
) -> Wording:
    """The words of a language, English by default, with the user's changes.

    ``wording`` is a TOML file or its contents: a table for each language and, optionally,
    ``explain.names``. ``style`` is "tile", "sentence" (the default) or "debug".

    >>> wording_of("de").text("because", reason="du hast Tinte gekauft")
    'du hast Tinte gekauft'
    """
    found = _wording_of(language, wording)
    return found if style is None else found.styled(style)


def _wording_of(language: str | None, wording: Words) -> Wording:
    if isinstance(wording, Wording):
        return wording
    if wording is None:
        return _shipped(language or "en")
    own, names, place = _read(wording)
    if language is None:
        language = next(iter(own)) if len(own) == 1 else "en"
    if language not in own:
        shipped = _shipped(language)
        return shipped if names == shipped.names else replace(shipped, names=names)
    if language not in LANGUAGES:
        return _checked(Wording(language, own[language], names=names), place)
    table = _merged(_shipped(language).table, own[language], f"{place}, [{language}]")
    return _checked(Wording(language, table, names=names), place)


def best_language(accepted: str, known: Iterable[str] = LANGUAGES) -> str:
    """The best known language of an Accept-Language header; English if there is none.

    >>> best_language("fr;q=0.9, de-AT, en;q=0.8"), best_language("fr"), best_language("es;q=0")
    ('de', 'en', 'en')
    """
    offers = []
    for k, part in enumerate(accepted.split(",")[:50]):
        name, _, rest = part.strip().partition(";")
        quality = rest.strip().removeprefix("q=") if rest.strip().startswith("q=") else "1"
        try:
            weight = float(quality)
        except ValueError:
            continue
        offers.append((-weight, k, name.split("-")[0].lower()))
    known = list(known)
    return next((name for q, _, name in sorted(offers) if q < 0 and name in known), "en")


@lru_cache(maxsize=8)
def _shipped(language: str) -> Wording:
    if language not in LANGUAGES:
        raise UnknownNameError("language", language, LANGUAGES, near=list(LANGUAGES))
    text = files("loger.rules").joinpath(f"words/{language}.toml").read_text(encoding="utf-8")
    return Wording(language, tomllib.loads(text))


def _read(wording: Mapping[str, Any] | Path | str) -> tuple[Mapping[str, Any], str, str]:
    """The user's tables by language, whom reasons may name, and the source's name for messages."""
    if isinstance(wording, Mapping):
        own, place = wording, "wording"
    else:
        place = str(wording)
        try:
            own = tomllib.loads(Path(wording).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise LogerError(f"{place} is not valid TOML: {error}") from None
    explain = own.get("explain", {})
    names = explain.get("names", NAMES[0]) if isinstance(explain, Mapping) else None
    if names not in NAMES or set(explain) - {"names"}:
        raise LogerError(
            f"{place}: [explain] may contain only names, set to 'nobody' or 'followed', "
            f"got {explain!r}"
        )
    own = {language: table for language, table in own.items() if language != "explain"}
    for language, table in own.items():
        if len(language) != 2 or not isinstance(table, Mapping):
            raise LogerError(
                f"{place}: {language!r} is not a language; write a table for each language, such "
                "as [en.verbs] or [de.relations.has_brand]"
            )
    return own, names, place


def _merged(table: Mapping[str, Any], own: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A language's table with the user's changes."""
    out = dict(table)
    for section, words in own.items():
        if section not in out:
            raise LogerError(f"{place}: {UnknownNameError('section', section, _SECTIONS)}")
        if not isinstance(words, Mapping):
            out[section] = words
            continue
        if section in ("texts", "tile", "debug", "items", "verb_forms", "pronouns"):
            known = table["texts" if section in ("debug", "items") else section]
            for key in words:
                if key not in known:
                    raise LogerError(f"{place}: {UnknownNameError('text', key, known)}")
        out[section] = {**table[section], **words}
    return out


def _checked(wording: Wording, place: str) -> Wording:
    """The wording itself; raises an error if a text is missing or has an unknown slot."""
    complete, where = ENGLISH.table, f"{place}, [{wording.language}]"
    for key in ("thousands", "percent", *_SECTIONS):
        if key not in wording.table:
            raise LogerError(f"{where}: {key!r} is missing; words/de.toml is a complete example")
    for section in ("texts", "tile"):
        for key in complete[section]:
            if key not in wording.table[section]:
                raise LogerError(f"{where}: the text {section}.{key} is missing")
    for case in CASES:
        missing = complete["pronouns"][case].keys() - wording.table["pronouns"].get(case, {}).keys()
        if missing:
            raise LogerError(f"{where}: pronouns.{case}.{min(missing)} is missing")
    for section in ("texts", "tile", "debug", "items"):
        for key, pattern in wording.table[section].items():
            _check_slots(f"{where}, {section}.{key}", pattern, _allowed(section, key))
    for name, forms in wording.table["relations"].items():
        _check_forms(f"{where}, relations.{name}", forms)
    for name, nouns in wording.table["types"].items():
        if not (isinstance(nouns, list) and len(nouns) == 3):
            usual = ["brand", "brands", "same brand"]
            raise LogerError(
                f"{where}, types.{name} must be a list of three forms, such as {usual}; "
                f"got {nouns!r}"
            )
    return wording


def _allowed(section: str, key: str) -> set[str]:
    """The slots that a text may have: those of any shipped language and style."""
    sections = (section,) if section == "tile" else ("texts", "debug", "items")
    tables = [_shipped(language).table[s] for language in LANGUAGES for s in sections]
    return {slot for t in tables if key in t for slot in _slots(t[key])} | {*FORMS, "x"}


def _check_forms(where: str, forms: Mapping[str, str]) -> None:
    known = (*FORMS, *_OPTIONAL)
    for form, pattern in forms.items():
        if form not in known:
            raise LogerError(f"{where}: {UnknownNameError('form', form, known)}")
        if form == "case" and pattern not in CASES:
            raise LogerError(f"{where}.case must be one of {', '.join(CASES)}, got {pattern!r}")
        if form in (*FORMS[:5], "so") and "{x}" not in pattern:
            raise LogerError(f"{where}.{form} must contain {{x}}, got {pattern!r}")


def _slots(pattern: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(pattern) if name is not None}


def _check_slots(where: str, pattern: object, allowed: set[str]) -> None:
    try:
        slots = _slots(str(pattern))
    except ValueError as error:
        raise LogerError(f"{where}: {error}, got {pattern!r}") from None
    if not slots <= allowed:
        unknown = sorted(slots - allowed)[0]
        raise LogerError(f"{where}: {UnknownNameError('slot', unknown, sorted(allowed))}")


# ── English verbs and nouns ─────────────────────────────────────────────────────────────

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
    "is_interested_in": "interested_in", "interest": "interested_in", "live_in": "lives_in",
    "is_member_of": "member_of", "speak": "speaks", "prefer": "prefers", "own": "owns",
}  # fmt: skip
"""Other names of the same relations."""
UNCHANGED = {"series", "species", "news", "means", "headquarters", "crossroads", "aircraft"}
"""Nouns whose plural is the same."""


def alike_by(name: str) -> str:
    """What is similar about two items, by the name of their relation; empty if it says nothing.

    >>> alike_by("similar_description"), alike_by("looks_like"), alike_by("similar_to")
    ('description', 'picture', '')
    """
    plain = name.split("[")[0]
    if plain == "looks_like":
        return "picture"
    rest = plain.removeprefix("similar_")
    return "" if rest in (plain, "to") else rest


def _known_as(name: str, tail_type: str, known: Mapping[str, object]) -> str | None:
    """The key of a relation's words, if there are any: purchases are purchase."""
    plain = name.split("[")[0]
    for one in (name, plain, plain.removesuffix(f"_{tail_type}")):
        singular = one[:-2] if one.endswith("ches") else one.removesuffix("s")
        for key in (one, _SAME.get(one), singular, _SAME.get(singular)):
            if key and key in known:
                return key
    return None


def _made_up(name: str, head_type: str, tail_type: str) -> str:
    """A verb made from the relation's name."""
    plain = name.split("[")[0].removesuffix(f"_{tail_type}")
    first, _, rest = plain.partition("_")
    # A movie is directed by someone, but people subscribed to something.
    passive = rest == "by" or (first.endswith("ed") and rest in _PREPOSITIONS)
    return ("is " if passive and head_type != "user" else "") + plain.replace("_", " ")


@lru_cache(maxsize=1024)
def to_you(verb: str) -> str:
    """A verb in the third person, changed for the subject you: follows → follow, has → have."""
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


def _auxiliary(verb: str) -> str:
    """The auxiliary verb that stands for a verb: so is, so does, so did."""
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


ENGLISH = _shipped("en")
