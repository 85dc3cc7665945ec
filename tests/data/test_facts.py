"""Numbering of named facts against a slow, obvious implementation, and the inference of types."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from loger.data.assemble import OTHER, assemble
from loger.data.dataset import Dataset
from loger.graph import Relation

NAMES = st.sampled_from(["u0", "u1", "i0", "i1", "i2", "x", "y", "z"])
TYPES = st.sampled_from([None, OTHER, "thing"])
ROW = st.tuples(NAMES, st.sampled_from(["r", "s"]), NAMES, TYPES, TYPES)


def built(rows: list[tuple], pairs: list[tuple[str, str]] | None = None) -> Dataset:
    pairs = pairs or [("u0", "i0"), ("u1", "i1"), ("u1", "i2")]
    columns = ["head", "relation", "tail", "head_type", "tail_type"][: len(rows[0])]
    return assemble(
        "x",
        pl.DataFrame(pairs, schema=["user", "item"], orient="row"),
        pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row"),
    )


def type_by_hand(name: str, given: str | None) -> str | None:
    """user, item, a given type, or None where it has to be inferred."""
    if given is None:
        return {"u": "user", "i": "item"}.get(name[0])
    return None if given == OTHER else given


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_facts_have_the_names_and_types_that_a_loop_gives_them(rows):
    dataset = built(rows)
    words, facts = dataset.vocabulary, dataset.facts
    ours = set()
    for h, r, t in zip(facts.heads, facts.relations, facts.tails, strict=True):
        relation = dataset.relations[r]
        assert (words.type_of(h), words.type_of(t)) == (relation.head_type, relation.tail_type)
        known = {"user", "item", "thing"}
        kinds = [k if k in known else None for k in (relation.head_type, relation.tail_type)]
        ours.add((words.names[h], relation.name.split("[")[0], words.names[t], *kinds))
    by_hand = {
        (h, r, t, type_by_hand(h, ht), type_by_hand(t, tt))
        for h, r, t, ht, tt in rows
        if (h, type_by_hand(h, ht)) != (t, type_by_hand(t, tt))
    }
    assert ours == by_hand


@settings(max_examples=100, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_an_entity_without_a_given_type_has_one_type_everywhere(rows):
    words = built([(h, r, t) for h, r, t, *_ in rows]).vocabulary
    assert len(words.names) == len(set(words.names))


def test_places_that_share_entities_share_a_type_named_by_the_larger_tail():
    rows = [("i0", "directed_by_director", "x"), ("i0", "has_actor", "x"), ("i1", "has_actor", "y")]
    assert built(rows).relations[1:] == (
        Relation("directed_by_director", "item", "actor"),
        Relation("has_actor", "item", "actor"),
    )


def test_tails_name_a_type_even_where_more_heads_have_it():
    rows = [("i0", "has_actor", "x"), *((name, "likes", "i1") for name in ("x", "y", "z"))]
    assert built(rows).relations[1:] == (
        Relation("has_actor", "item", "actor"),
        Relation("likes", "actor", "item"),
    )


def test_inferred_types_do_not_take_a_name_that_is_given():
    rows = [("i0", "has_thing", "x", None, None), ("i0", "r", "y", None, "thing")]
    assert built(rows).relations[1:] == (
        Relation("has_thing", "item", "thing_"),
        Relation("r", "item", "thing"),
    )


def test_entities_are_numbered_by_type_in_order_of_first_appearance():
    rows = [("i0", "has_brand", "z"), ("i1", "has_color", "y"), ("i2", "has_brand", "x")]
    words = built(rows).vocabulary
    assert words.types == ("user", "item", "brand", "color")
    assert words.names == ["u0", "u1", "i0", "i1", "i2", "z", "x", "y"]


def test_one_fact_known_from_two_reviews_keeps_both_sources():
    events = pl.DataFrame({"user": ["u0", "u1"], "item": ["i0", "i0"]})
    facts = pl.DataFrame(
        {"head": ["i0"] * 3, "relation": ["is"] * 3, "tail": ["fun"] * 3, "source": [0, 1, 1]}
    )
    dataset = assemble("x", events, facts)
    assert dataset.facts.sources.tolist() == [0, 1]
    assert [(n.what, n.count) for n in dataset.notes] == [("repeated facts counted once", 1)]


def test_same_input_gives_the_same_bytes():
    rows = [(f"i{k % 3}", f"r{k % 7}", f"e{k * 37 % 101}") for k in range(500)]
    first, again = built(rows), built(rows)
    assert first.vocabulary.names == again.vocabulary.names
    assert first.facts.tails.tobytes() == again.facts.tails.tobytes()
    assert first.relations == again.relations
