import builtins

import pytest

from loger.data import load
from loger.errors import LogerError
from loger.graph import Relation

pytest.importorskip("pyoxigraph")
TURTLE = """@prefix s: <http://shop/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
s:i1 s:brand s:acme ; rdfs:label "Green soap" ; s:price 3 ; a s:Soap .
s:i2 s:brand s:acme .
s:acme rdfs:label "Acme Inc." ; a s:Maker , s:Company ; s:seat s:rome .
"""
NTRIPLES = "<http://d/B> <http://d/author> <http://d/Ann> .\n"
INTERACTIONS = "ann,i1\nbob,i2\n"


def test_turtle_gives_facts_types_and_labels_by_local_name(write, facts_of, notes_of):
    dataset = load(write({"interactions.csv": INTERACTIONS, "kg.ttl": TURTLE}))
    assert facts_of(dataset) == {
        ("i1", "brand", "http://shop/acme"),
        ("i2", "brand", "http://shop/acme"),
        ("i1", "type", "http://shop/Soap"),
        ("http://shop/acme", "seat", "http://shop/rome"),
    }
    assert Relation("brand", "item", "Maker") in dataset.relations
    assert Relation("type", "item", "class") in dataset.relations
    words = dataset.vocabulary
    assert words.labels[2:4] == ["Green soap", "i2"]
    assert words.labels[words.id("Maker", "http://shop/acme")] == "Acme Inc."
    assert words.labels[words.id("seat", "http://shop/rome")] == "rome"
    assert notes_of(dataset) == {
        "statements about literals left out": 1,
        "rdf:type statements used as entity types": 2,
    }


def test_links_say_which_resource_an_item_is(write, facts_of, notes_of):
    files = {"interactions.csv": INTERACTIONS, "kg.nt.gz": NTRIPLES * 2}
    dataset = load(write(files | {"links.csv": "item,iri\ni2,http://d/B\ni7,http://d/C\n"}))
    assert facts_of(dataset) == {("i2", "author", "http://d/Ann")}
    assert notes_of(dataset) == {
        "repeated facts counted once": 1,
        "items without any fact": 2,
        "items without any interaction": 1,
    }


def test_whole_iris_name_items_and_users(write, facts_of):
    text = "http://d/Ann,http://d/B\n"
    dataset = load(write({"interactions.csv": text, "kg.nt": NTRIPLES}))
    # The fact repeats the interaction of the two: it must not outlive it.
    assert facts_of(dataset) == {("http://d/B", "author", "http://d/Ann")}
    assert dataset.facts.sources.tolist() == [0]


def test_relations_with_one_last_part_keep_their_iris(write, facts_of):
    text = "<a:i1> <http://x/by> <a:b> .\n<a:i1> <http://y/by> <a:c> .\n"
    dataset = load(write({"interactions.csv": INTERACTIONS, "kg.nt": text}))
    assert facts_of(dataset) == {("i1", "http://x/by", "a:b"), ("i1", "http://y/by", "a:c")}


def test_missing_extra_is_an_error_that_says_what_to_install(write, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "pyoxigraph":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    folder = write({"interactions.csv": INTERACTIONS, "kg.ttl": TURTLE})
    with pytest.raises(LogerError, match=r"pip install '\.\[rdf\]'"):
        load(folder)
