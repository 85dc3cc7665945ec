from loger.data import load
from loger.graph import Relation

FILES = {
    "users.txt.gz": "A\nB\n",
    "product.txt.gz": "P0\nP1\nP2\n",
    "related_product.txt.gz": "P1\nX9\nX8\nP2\n",
    "brand.txt.gz": "Acme\n\n",
    "category.txt": "Soap\n",
    "train_labels.txt.gz": "0\t0\t1\n1\t2\n",
    "test_labels.txt.gz": "1\t0\n",
    "also_bought_p_p.txt.gz": "0 1\n\n3\n",
    "also_viewed_p_p.txt.gz": "0 0\n\n\n",
    "brand_p_b.txt.gz": "0\n1\n\n",
    "category_p_c.txt": "0\n0\n0\n",
    "item_short_names.txt.gz": "P1 green soap\nP0 comb\n",
}


def test_tails_point_into_their_own_files_and_shared_names_are_items(write, facts_of, pairs_of):
    dataset = load(write(FILES))
    assert pairs_of(dataset) == [
        ("A", "P0", "train"),
        ("A", "P1", "train"),
        ("B", "P2", "train"),
        ("B", "P0", "test"),
    ]
    assert facts_of(dataset) == {
        ("P0", "also_bought[item]", "P1"),
        ("P0", "also_bought[related_product]", "X9"),
        ("P0", "also_viewed", "P1"),
        ("P0", "has_brand", "Acme"),
        ("P0", "has_category", "Soap"),
        ("P1", "has_category", "Soap"),
        ("P2", "has_category", "Soap"),
    }
    assert dataset.relations[0] == Relation("purchase", "user", "item")
    assert dataset.vocabulary.labels[2:5] == ["comb", "green soap", "P2"]


def test_everything_left_out_is_noted(write, notes_of):
    assert notes_of(load(write(FILES))) == {
        "facts about a brand without a name left out": 1,  # P1, whose brand is a blank line
        "names in related_product.txt.gz that no fact uses": 1,  # X8
        "relations that link different types, split by type": 1,
        "facts that link an entity to itself left out": 1,  # P2 also_bought P2
        "repeated facts counted once": 1,  # P0 also_viewed P1
    }


def test_files_of_unknown_relations_are_noted(write, notes_of):
    dataset = load(write(FILES | {"smell_p_s.txt.gz": "0\n"}))
    assert notes_of(dataset)["files of unknown relations, ignored"] == 1
