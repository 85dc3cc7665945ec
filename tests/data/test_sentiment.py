import numpy as np

from loger.data import load, split
from loger.graph import Relation

FILES = {
    "rating.txt.gz": "A,P0,5,100\nA,P1,2,200\nB,P0,4,150\nB,P1,4,300\n",
    "sentiment.txt.gz": "A,P0,game:fun:1,game:fun:1\nB,P0,game:fun:1\nB,P1,box:torn:-1,price:ok:0\n"
    "A,P9,box:torn:-1\n",
    "also_viewed.txt.gz": "P0,P1,X9\nX8,P0\n",
    "item_short_names.txt.gz": "P0 the game\n",
}


def test_each_mention_is_a_fact_of_user_and_item_known_from_that_review(write, facts_of):
    dataset = load(write(FILES))
    assert facts_of(dataset) == {
        ("A", "mentions", "game|fun|+1"),
        ("B", "mentions", "game|fun|+1"),
        ("B", "mentions", "box|torn|-1"),
        ("B", "mentions", "price|ok|0"),
        ("P0", "described_as", "game|fun|+1"),
        ("P1", "described_as", "box|torn|-1"),
        ("P1", "described_as", "price|ok|0"),
        ("P0", "also_viewed[item>item]", "P1"),
        ("P0", "also_viewed[item>related_product]", "X9"),
        ("X8", "also_viewed[related_product>item]", "P0"),
    }
    of_game = dataset.facts.tails == dataset.vocabulary.id("feature", "game|fun|+1")
    # P0 is described so twice: by A (row 0) and by B (row 2).
    assert sorted(dataset.facts.sources[of_game]) == [0, 0, 2, 2]
    assert Relation("described_as", "item", "feature") in dataset.relations


def test_labels_read_like_words(write):
    words = load(write(FILES)).vocabulary
    assert words.labels[words.id("feature", "box|torn|-1")] == "box: torn (bad)"
    assert words.labels[words.id("item", "P0")] == "the game"


def test_held_out_reviews_take_their_mentions_with_them(write):
    dataset = load(write(FILES))
    parts = split(dataset, "time", test=0.5, validation=0)
    assert dataset.interactions.times[parts.test].tolist() == [200, 300]
    graph, torn = parts.graph, dataset.vocabulary.id("feature", "box|torn|-1")
    assert graph.indptr[torn] == graph.indptr[torn + 1]
    fun = dataset.vocabulary.id("feature", "game|fun|+1")
    assert len(graph.neighbours(fun, graph.relation_id("mentions⁻¹"))) == 2


def test_mentions_of_dropped_or_unknown_reviews_are_noted(write, notes_of):
    notes = notes_of(load(write(FILES), min_rating=5))
    assert notes["mentions of pairs without a rating left out"] == 1
    assert notes["facts left out because the interactions behind them were left out"] == 6
    assert notes["repeated facts counted once"] == 2


def test_ratings_and_times_are_kept(write):
    events = load(write(FILES)).interactions
    assert np.array_equal(events.ratings, [5, 2, 4, 4])
    assert np.array_equal(events.times, [100, 200, 150, 300])
