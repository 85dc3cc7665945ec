"""Search for entities by name, label or part of either; filters over items; against plain loops."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.data.demo import shop
from loger.data.splits import split
from loger.errors import LogerError, UnknownNameError, nearest
from loger.graph import Vocabulary
from loger.graph.catalogue import item_mask
from loger.graph.vocabulary import Names
from loger.ranking.selection import select

TEXT = st.text("abAB \n", max_size=5)


def slowly(names: list[str], labels: list[str], query: str, most: int) -> tuple[list[int], bool]:
    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    both = [(plain(label), plain(name)) for name, label in zip(names, labels, strict=True)]
    begin = [k for k, texts in enumerate(both) if any(t.startswith(plain(query)) for t in texts)]
    inside = [k for k, texts in enumerate(both) if any(plain(query) in t for t in texts)]
    found = list(dict.fromkeys([*begin, *inside]))
    return found[:most], len(found) > most


@given(st.lists(st.tuples(TEXT, TEXT), max_size=8), TEXT, st.integers(1, 5))
def test_search_is_that_of_looking_at_every_name(rows, query, most):
    names, labels = [a for a, _ in rows], [b for _, b in rows]
    assert Names(names, labels).find(query, most) == slowly(names, labels, query, most)


def test_a_name_or_a_label_of_its_own_finds_an_entity_and_nothing_else_does():
    words = Vocabulary({"user": [], "item": ["i1", "i2", "i3"]}, {"item": ["Lamp", "Tray", "Tray"]})
    assert words.id("item", "i2") == 1
    assert words.id("item", "Lamp") == 0
    with pytest.raises(LogerError, match=r"2 items are called 'Tray'; .*: i2, i3$"):
        words.id("item", "Tray")
    with pytest.raises(UnknownNameError, match="did you mean 'Lamp'"):
        words.id("item", "Lampe")
    with pytest.raises(UnknownNameError, match=r"unknown item ' '$"):
        words.id("item", " ")


@given(TEXT, st.lists(TEXT, max_size=6))
def test_near_names_are_those_most_alike(name, known):
    def alike(k):
        return SequenceMatcher(None, k.casefold(), name.casefold(), autojunk=False).ratio()

    known = list(dict.fromkeys(known))
    close = sorted((alike(k) for k in known if alike(k) >= 0.6), reverse=True)
    if name.strip() and close:
        about = [x for x in close[:3] if x >= close[0] - 0.1]
        assert [alike(k) for k in nearest(name, known)] == about


def test_among_equally_near_names_those_that_begin_with_it_come_first():
    known = [str(k) for k in range(9990, 10400)]
    assert nearest("1000", known)[0] == "10000"
    assert nearest("", known) == nearest("x", []) == []


def by_hand(graph, include, exclude):
    """Items that pass, by looking at every fact."""
    words, first = graph.vocabulary, graph.n_users

    def fits(item, text):
        kind, _, name = text.partition("=")
        entity = words.id(kind, name)
        if kind == "item":
            return item + first == entity
        heads, _, tails = graph.triples()
        ends = zip(heads.tolist(), tails.tolist(), strict=True)
        return any({a, b} == {item + first, entity} for a, b in ends)

    return [
        (not include or any(fits(v, t) for t in include)) and not any(fits(v, t) for t in exclude)
        for v in range(graph.n_items)
    ]


def test_filters_pass_the_items_that_facts_link_to_an_entity():
    graph = split(shop(users=60, items=100).dataset).graph
    words = graph.vocabulary
    brands = [f"brand={words.names[e]}" for e in words.span("brand")][:3]
    items = [f"item={words.names[e]}" for e in words.span("item")][:2]
    assert select(graph, [], []).among is None
    for include, exclude in ((brands, []), (brands, items), ([], brands), (items, brands[:1])):
        mask = select(graph, include, exclude).among
        assert mask.tolist() == by_hand(graph, include, exclude)
        assert 0 < mask.sum() < graph.n_items
    with pytest.raises(
        UnknownNameError, match="unknown relation or type 'brnd'; did you mean 'brand'"
    ):
        item_mask(graph, "brnd=x", {})


def test_a_label_that_several_items_have_is_shown_with_the_name():
    names = {"user": ["ann"], "item": ["i1", "i2", "i3"], "brand": ["Tray"]}
    words = Vocabulary(names, {"item": ["Tray", "Lamp", "Tray"]})
    assert words.shown == ["ann", "Tray [i1]", "Lamp", "Tray [i3]", "Tray"]
    assert words.id("item", "Tray", among={3, 2}) == 3
    assert words.id("item", "Lamp", among={3}) == 2
    with pytest.raises(LogerError, match="2 items are called 'Tray'"):
        words.id("item", "Tray", among={1, 3})
    unique = Vocabulary(names, {"item": ["Tray", "Lamp", "Pen"]})
    assert unique.shown is unique.labels
    many = Vocabulary({"user": ["u"], "item": [f"i{k}" for k in range(20)]}, {"item": ["X"] * 20})
    with pytest.raises(LogerError, match=r"20 items .* i11, …$"):
        many.id("item", "X")
