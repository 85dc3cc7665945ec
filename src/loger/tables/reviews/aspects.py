"""What a review says of which aspect: ``(aspect, opinion, ±1)`` from English text, by patterns.

Every word has a set of classes from ``english.txt`` (opinion, copula, negation, noun…) or, if
it stands in no list, one by its ending, noun otherwise. A text becomes one sign per word, so
that each pattern is a regular expression over these signs, which runs at the speed of C:
there is no tagger, no model and nothing to download. Decision 8 (``docs/adr``) has the
alternatives and what was measured; ``Extractor`` is the seam for a better one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html import unescape
from importlib.resources import files
from typing import NamedTuple

Mention = tuple[str, str, int]
"""Aspect, opinion and polarity (+1 or -1), such as ("battery life", "short", -1)."""

Extractor = Callable[[str], Iterable[Mention]]
"""Anything that turns the text of a review into mentions."""

_TOKEN = re.compile(r"[a-z]+(?:['-][a-z]+)*|\d+(?:[.,]\d+)*|[.,;:!?()&/\n]")
_TAG = re.compile(r"<[^<>]{0,200}>")
_BREAK = re.compile(r"</?(?:br|p|div|li|ul|td|tr|h\d)\b[^<>]{0,200}>", re.IGNORECASE)
_KNOWN_AT_MOST = 500_000  # words remembered; reviews have no end of misspellings
_OPINIONS = {"good", "bad"}
_BASE = {
    word: base
    for base in ("love", "like", "enjoy", "recommend", "appreciate", "adore", "hate", "dislike")
    for word in (base + "s", base + "d", base + "ed", base.removesuffix("e") + "ing")
}
_FIRST_SIGN = 0xE000  # private use area: signs that no text can hold

# Classes of words that stand in no list, by their endings; the first that fits.
_ENDINGS = (
    ("ly", "adverb"),
    ("ing", "gerund"),
    ("ed", "verb"),
    ("less", "bad"),
    ("able", "neutral"),
    ("ible", "neutral"),
    ("ful", "neutral"),
    ("ous", "neutral"),
    ("ish", "neutral"),
)


def plain_text(text: str) -> str:
    """Text without markup and entities, as a person would see it."""
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub(" \n ", text))
    return unescape(text) if "&" in text else text


def singular(word: str) -> str:
    """A noun without its plural ending.

    >>> [singular(w) for w in ("cases", "batteries", "glasses", "boxes", "glass", "bus")]
    ['case', 'battery', 'glass', 'box', 'glass', 'bus']
    """
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


class Lexicon(NamedTuple):
    """Words by class, and the sign of each combination of classes that occurs."""

    classes: dict[str, frozenset[str]]  # word → its classes
    signs: dict[frozenset[str], str]

    def of(self, word: str) -> frozenset[str]:
        """The classes of any word."""
        known = self.classes.get(word)
        if known is not None:
            return known
        if not word[0].isalpha():
            return frozenset(
                {"joiner" if word in "&/," else "number" if word[0].isdigit() else "break"}
            )
        for ending, kind in _ENDINGS:
            if word.endswith(ending) and len(word) > len(ending) + 2:
                return frozenset({kind})
        return frozenset({"thing"})

    def any_of(self, *wanted: str, but: tuple[str, ...] = ()) -> str:
        """The bracket expression for all signs of words that are of one of these classes."""
        chosen = (s for c, s in self.signs.items() if c & set(wanted) and not c & set(but))
        return "[" + "".join(sorted(chosen)) + "]"


def _read_lists() -> dict[str, set[str]]:
    """The words of each section of ``english.txt``."""
    lists: dict[str, set[str]] = {}
    section = ""
    text = files("loger.tables.reviews").joinpath("english.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            lists[section] = set()
        elif line and not line.startswith("#"):
            lists[section].update(line.split())
    return lists


@lru_cache(1)
def lexicon() -> Lexicon:
    """The word lists that come with loger."""
    classes: dict[str, set[str]] = {}
    for section, words in _read_lists().items():
        for word in words:
            classes.setdefault(word, set()).add(section)
    for word in [w for w, kinds in classes.items() if "noun" in kinds]:
        classes.setdefault(word + "s", set()).add("noun")
    for kinds in classes.values():
        if kinds & {"noun", "nothing"}:  # may name an aspect, whatever else it may be
            kinds.add("thing")
    frozen = {word: frozenset(kinds) for word, kinds in classes.items()}
    alone = {kind for _, kind in _ENDINGS} | {"thing", "number", "break", "joiner"}
    combinations = set(frozen.values()) | {frozenset({kind}) for kind in alone}
    ordered = sorted(combinations, key=sorted)
    return Lexicon(frozen, {c: chr(_FIRST_SIGN + k) for k, c in enumerate(ordered)})


def _expressions(words: Lexicon) -> Iterator[tuple[str, str, str]]:
    """Each pattern: its name, the signs it cannot do without, and the expression.

    Repetitions are bounded: a word may be of several classes ("pretty" is an adverb and an
    opinion), and an unbounded choice between them would take for ever on a text of nothing else.
    """
    any_of = words.any_of
    opinion, be, neutral = any_of("good", "bad"), any_of("be"), any_of("neutral") + "{0,2}"
    determiner = any_of("determiner", "number") + "{0,3}"
    # A word that may be an opinion or a thing ("light") is a thing only at the end of a phrase.
    thing, pure = any_of("thing"), any_of("thing", but=("good", "bad"))
    gerund = any_of("gerund") + "?"
    noun = f"(?:(?:{gerund}{pure}){{1,3}}|(?:{gerund}{pure}){{0,2}}{thing}(?!{thing}))"
    place = f"(?:{any_of('preposition')}{determiner}{neutral}{noun})?"
    subject, aspect = f"(?P<noun>{noun}){place}", f"(?P<noun>{noun})"
    object_ = f"{determiner}{any_of('good', 'bad', 'neutral')}{{0,4}}{aspect}"
    between = any_of("joiner", "adverb", "not") + "{0,3}"
    opinions = f"(?P<opinions>{opinion}(?:{between}{opinion}){{0,4}})"
    lead = any_of("adverb", "auxiliary", "not") + "{0,4}"
    said_lead = f"(?P<before>{lead})"
    degree = any_of("adverb", "not") + "{0,4}"
    particle, manner = any_of("particle"), any_of("well", "ill")
    # great case; not a bad case; rich, smooth flavor; cheap looking back
    front = any_of("not", "adverb", "determiner", "number") + "{0,4}"
    looking = any_of("looking") + "?"
    yield "attribute", opinion, f"(?P<before>{front}){opinions}{looking}{neutral}{aspect}"
    # well made blocks
    made = any_of("made")
    well_made = f"(?P<opinions>{manner}{made})"
    yield "made", made, f"(?P<before>{degree}){well_made}{neutral}{aspect}"
    # the case (on my phone) is not very good and too heavy
    is_so = f"(?P<before>{be}{any_of('be', 'not', 'adverb')}{{0,4}})"
    yield "predicate", opinion, f"{subject}{lead}{is_so}{opinions}"
    # the setup was a complete nightmare
    verdict = any_of("verdict")
    is_a = f"(?P<before>{be}{degree}){determiner}{neutral}"
    yield "verdict", verdict, f"{subject}{is_a}(?P<opinions>{verdict})"
    # the pump (on this bottle) never broke; the wheels fell off
    failed = f"{any_of('fails')}{particle}?|{any_of('fails-with')}{particle}"
    trigger = any_of("fails", "fails-with")
    yield "failure", trigger, f"{subject}{said_lead}{be}?(?P<opinions>{failed})"
    # the case fits (my phone) perfectly; but not: offers great sound
    verb = f"(?P<verb>{any_of('verb', 'thing')}){particle}?"
    within = f"(?:{any_of('pronoun')}|{any_of('determiner', 'number')}?{noun})?"
    done = f"{any_of('adverb')}?(?P<opinions>{manner})(?!{neutral}{thing})"
    yield "manner", manner, f"{subject}{said_lead}{verb}{within}{done}"
    # I really don't like the touch controls
    likes = any_of("likes", "hates")
    who = any_of("pronoun", "auxiliary", "not", "adverb", "thing", "joiner", "break")
    liked = f"(?P<opinions>{likes}{{1,4}}){any_of('adverb')}{{0,2}}"
    yield "liking", likes, f"(?:^|{who}){said_lead}{liked}{object_}"
    # not happy with the quality
    happy = any_of("happy", "unhappy")
    with_it = any_of("preposition") + object_
    yield "feeling", happy, f"{said_lead}(?P<opinions>{happy}){with_it}"


class Patterns:
    """Patterns over word classes; ``mentions`` applies them to a text."""

    def __init__(self, words: Lexicon | None = None) -> None:
        self.words = words or lexicon()
        self.signs: dict[str, str] = {}
        lists = self.words.classes
        good = {"good", "likes", "well", "happy", "good-verdict"}
        self._good = {w for w, c in lists.items() if c & good}
        self._adverbs = {w for w, c in lists.items() if "adverb" in c}
        self._states = {w for w, c in lists.items() if "state" in c}
        self._nothing = {w for w, c in lists.items() if "nothing" in c}
        # A text without any sign of the trigger is passed over: for most patterns, most are.
        self._compiled = [
            (name, frozenset(trigger[1:-1]), re.compile(expression))
            for name, trigger, expression in _expressions(self.words)
        ]

    def mentions(self, text: str) -> list[Mention]:
        """The mentions of a text, each once, in their order by pattern and place."""
        tokens = _TOKEN.findall(plain_text(text).lower().replace("’", "'"))
        signs = "".join([self.signs.get(t) or self._sign(t) for t in tokens])
        pairs: dict[Mention, None] = {}
        present = set(signs)
        for name, trigger, pattern in self._compiled:
            if present.isdisjoint(trigger):
                continue
            for match in pattern.finditer(signs):
                for mention in self._read(name, match, tokens):
                    pairs[mention] = None
        return list(pairs)

    def _sign(self, word: str) -> str:
        sign = self.words.signs[self.words.of(word)]
        if len(self.signs) < _KNOWN_AT_MOST:
            self.signs[word] = sign
        return sign

    def _read(self, name: str, match: re.Match[str], tokens: list[str]) -> Iterator[Mention]:
        """The mentions of one match: its noun phrase with each of its opinions."""
        aspect = tokens[slice(*match.span("noun"))]
        if len(aspect) == 1 and aspect[0] in self._nothing:
            return
        if name == "manner" and not tokens[match.start("verb")].endswith(("s", "ed")):
            return  # an unknown word may be a verb only if it is inflected like one
        named = " ".join([*aspect[:-1], singular(aspect[-1])])
        before = tokens[slice(*match.span("before"))]
        turned = sum("not" in self.words.of(word) for word in before) % 2 == 1
        too = "too" in before
        first, last = match.span("opinions")
        if name not in ("attribute", "predicate"):
            words = [_BASE.get(word, word) for word in dict.fromkeys(tokens[first:last])]
            good = words[0] in self._good
            yield named, " ".join(words), 1 if good != turned else -1
            return
        for k in range(first, last):
            word = tokens[k]
            if "not" in self.words.of(word):
                turned = not turned
            elif word == "too":
                too = True
            elif self._counts(name, word, tokens[k + 1 : last]):
                good = word in self._good and not too
                yield named, word, 1 if good != turned else -1

    def _counts(self, name: str, word: str, rest: list[str]) -> bool:
        """Is this word of the opinions one in this pattern?"""
        if name == "attribute" and word in self._states:
            return False
        if not self.words.of(word) & _OPINIONS:
            return False
        # "pretty good": the first is an adverb where another opinion follows at once
        return not (word in self._adverbs and rest and self.words.of(rest[0]) & _OPINIONS)


def lemma(opinion: str) -> str:
    """An opinion as features have it: verbs of liking without their endings.

    >>> lemma("loves"), lemma("sturdy")
    ('love', 'sturdy')
    """
    return _BASE.get(opinion, opinion)


@lru_cache(1)
def _patterns() -> Patterns:
    return Patterns()


def mentions(text: str) -> list[Mention]:
    """The mentions of an English text, by the patterns that come with loger.

    >>> mentions("Nice case, but the belt clip is not very sturdy.")
    [('case', 'nice', 1), ('belt clip', 'sturdy', -1)]
    """
    return _patterns().mentions(text)
