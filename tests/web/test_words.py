"""The web app's own texts: every sentence in every language."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

import loger.web

STATIC = Path(loger.web.__file__).parent / "static"
MARKED = re.compile(r'data-say>([^<]*)<|data-label="([^"]*)"')
SLOT = re.compile(r"\{\w+\}")


def first_argument(text: str) -> str:
    """The first argument of a call, whose parenthesis is open."""
    depth = 0
    for k, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (depth == 0 and character == "," and text[:k].count('"') % 2 == 0):
            return text[:k]
    raise AssertionError(text[:80])


def scripts() -> str:
    files = sorted(STATIC.glob("*.js"))
    return "".join(f.read_text(encoding="utf-8") for f in files if f.name != "words.js")


def on_the_page() -> set[str]:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    return {" ".join(unescape(a or b).split()) for a, b in MARKED.findall(page)}


def in_scripts() -> set[str]:
    calls = re.split(r"\bsay\(", scripts())[1:]
    return {text for call in calls for text in re.findall(r'"([^"]*)"', first_argument(call))}


def table(name: str) -> dict[str, str]:
    script = (STATIC / "words.js").read_text(encoding="utf-8")
    (body,) = re.findall(rf"const {name} = {{\n(.*?)\n}};", script, re.DOTALL)
    return dict(re.findall(r'^  "(.*?)": "(.*)",$', body, re.MULTILINE))


@pytest.mark.parametrize("name", ["GERMAN", "SPANISH"])
def test_every_sentence_is_translated_with_its_slots(name):
    known, page, used = table(name), on_the_page(), in_scripts() - {"include"}
    assert len(page) > 30 and len(used) > 50
    assert (page | used) - known.keys() == set()
    written = scripts()
    assert [text for text in known if text not in page and f'"{text}"' not in written] == []
    for english, translated in known.items():
        assert sorted(SLOT.findall(english)) == sorted(SLOT.findall(translated)), english
