"""Entities by name, label or a part of either; filters over items. Slow twins look at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.data.demo import shop
from loger.data.splits import split
from loger.errors import LogerError, UnknownNameError
from loger.graph import Vocabulary
from loger.graph.filters import item_mask
from loger.graph.search import Finder, Names

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
    finder = Finder(words)
    assert finder.name("item", "i2") == "i2"
    assert finder.name("item", "Lamp") == "i1"
    with pytest.raises(LogerError, match="2 items are labelled 'Tray'; give the name: 'i2', 'i3'"):
        finder.name("item", "Tray")
    with pytest.raises(UnknownNameError, match="did you mean 'Lamp'"):
        finder.name("item", "Lampe")


def test_an_unknown_name_comes_with_those_that_contain_it():
    words = Vocabulary({"user": [], "item": ["i1", "i2"]}, {"item": ["Lamp", "Tray"]})
    finder = Finder(words)
    assert finder.id("item", "i2") == 1
    with pytest.raises(UnknownNameError, match="there is no item 'ray'; did you mean 'i2'"):
        finder.id("item", "ray")
    with pytest.raises(UnknownNameError, match=r"there is no item ' '$"):
        finder.id("item", " ")


def by_hand(graph, include, exclude):
    """Items that pass, by looking at every fact."""
    words, first = graph.vocabulary, graph.n_users

    def fits(item, text):
        kind, _, name = text.partition(":")
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
    words, finder = graph.vocabulary, Finder(graph.vocabulary)
    brands = [f"brand:{words.names[e]}" for e in words.span("brand")][:3]
    items = [f"item:{words.names[e]}" for e in words.span("item")][:2]
    assert item_mask(graph, [], [], finder) is None
    for include, exclude in ((brands, []), (brands, items), ([], brands), (items, brands[:1])):
        mask = item_mask(graph, include, exclude, finder)
        assert mask.tolist() == by_hand(graph, include, exclude)
        assert 0 < mask.sum() < graph.n_items
    with pytest.raises(UnknownNameError, match="there is no type 'brnd'; did you mean 'brand'"):
        item_mask(graph, ["brnd:x"], [], finder)
