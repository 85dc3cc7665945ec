from loger.data import load
from loger.graph import Relation

INTER = (
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\nu1\t10\t4\t1.5\nu2\t11\t5\t2\n"
)
FILES = {
    "shop.inter": INTER,
    "shop.link": "item_id:token\tentity_id:token\n10\tm.a\n12\tm.b\n",
    "shop.kg": "head_id:token\trelation_id:token\ttail_id:token\n"
    "m.a\tfilm.director\tm.d\nm.b\tfilm.director\tm.d\nm.d\tperson.friend\tu1\n",
    "shop.item": "item_id:token\tmovie_title:token_seq\tyear:token\tclass:token_seq\tprice:float\n"
    "10\tToy Story\t1995\tAnimation Comedy\t3.5\n11\tHeat\t\tCrime\t\n",
    "shop.user": "user_id:token\tage:float\tgender:token\nu1\t30\tF\nu2\t40\tM\n",
}


def test_atomic_files_become_facts_labels_and_interactions(write, facts_of, pairs_of, notes_of):
    dataset = load(write(FILES))
    assert dataset.name == "shop"
    assert pairs_of(dataset) == [("u1", "10"), ("u2", "11")]
    assert dataset.interactions.ratings.tolist() == [4, 5]
    assert dataset.interactions.times.tolist() == [1, 2]
    assert facts_of(dataset) == {
        ("10", "film.director", "m.d"),
        ("12", "film.director", "m.d"),
        ("m.d", "person.friend", "u1"),
        ("10", "year", "1995"),
        ("10", "class", "Animation"),
        ("10", "class", "Comedy"),
        ("11", "class", "Crime"),
        ("u1", "gender", "F"),
        ("u2", "gender", "M"),
    }
    first_item = dataset.n_users
    assert dataset.vocabulary.labels[first_item : first_item + 3] == ["Toy Story", "Heat", "12"]
    assert notes_of(dataset) == {
        "columns of shop.item that are ignored": 1,
        "columns of shop.user that are ignored": 1,
        "items without any interaction": 1,
    }


def test_feature_columns_name_the_type_of_their_values(write):
    relations = load(write(FILES)).relations
    assert Relation("class", "item", "class") in relations
    assert Relation("gender", "user", "gender") in relations


def test_entity_named_like_a_user_is_not_that_user(write):
    # "u1" is an entity of the .kg, whose names are a world of their own.
    dataset = load(write(FILES))
    friend = next(r for r in dataset.relations if r.name == "person.friend")
    assert friend.tail_type not in ("user", "item")


def test_split_files_are_the_given_split_and_go_first(write, pairs_of, notes_of):
    head = "user_id:token\titem_id:token\n"
    dataset = load(
        write(
            {
                "shop.inter": head + "u1\t10\n",
                "shop.train.inter": head + "u1\t10\n",
                "shop.valid.inter": head + "u1\t11\n",
                "shop.test.inter": head + "u1\t12\n",
            }
        )
    )
    assert pairs_of(dataset) == [
        ("u1", "10", "train"),
        ("u1", "11", "validation"),
        ("u1", "12", "test"),
    ]
    assert notes_of(dataset) == {"files ignored because the split files replace them": 1}


def test_other_names_of_user_and_item_columns_are_taken_in_order(write, pairs_of):
    text = "reader:token\tweight:float\tbook:token\nann\t1\tb1\n"
    assert pairs_of(load(write({"x.inter": text}))) == [("ann", "b1")]
