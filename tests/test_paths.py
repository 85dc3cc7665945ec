"""Paths: chains of facts, checked to exist or not."""

from __future__ import annotations

from loger.graph import KnowledgeGraph, Path, Relation, Vocabulary


def shop() -> KnowledgeGraph:
    words = Vocabulary({"user": ["ann", "ben"], "item": ["ink", "pen"], "brand": ["Acme"]})
    relations = [Relation("purchase", "user", "item"), Relation("has_brand", "item", "brand")]
    heads, kinds, tails = [0, 1, 1, 2, 3], [0, 0, 0, 1, 1], [2, 2, 3, 4, 4]
    return KnowledgeGraph.from_triples(words, relations, heads, kinds, tails)


def test_a_path_of_facts_exists_and_reads_in_names() -> None:
    path = Path((0, 2, 4, 3), (0, 1, 3))
    assert path.exists(shop())
    assert path.is_simple()
    assert path.text(shop()) == "ann –purchase→ ink –has_brand→ Acme –has_brand⁻¹→ pen"
    assert path.edges == ((0, 0, 2), (2, 1, 4), (4, 3, 3))


def test_a_path_with_one_edge_that_is_no_fact_does_not_exist() -> None:
    assert not Path((0, 3), (0,)).exists(shop())
    assert not Path((0, 2, 4, 3), (0, 0, 3)).exists(shop())


def test_a_path_that_comes_back_is_not_simple() -> None:
    assert not Path((0, 2, 0, 2), (0, 2, 0)).is_simple()
