from loger.data import load
from loger.graph import Relation

FILES = {
    "user.txt": "new_id\tuid\n0\t11\n1\t12\n",
    "product.txt": "new_id\tpid\n0\t761\n1\t762\n",
    "users.txt": "uid\tgender\tage\n11\tF\t25-34\n12\tM\t\n99\tM\t56+\n",
    "products.txt": "pid\tname\tprovider_id\tgenre\n"
    "762\tHeat (1995)\t1\tCrime|Drama\n761\tJaws\t2\tHorror\n",
    "e_map.txt": "eid\tname\tentity\n0\tJaws\thttp://d/Jaws\n1\tHeat\thttp://d/Heat\n"
    "2\tAl_P.\thttp://d/Al\n3\tUSA\thttp://d/USA\n4\tAl_P.\thttp://d/Al2\n",
    "r_map.txt": "id\tkb_relation\tname\n0\thttp://d/starring\tstarred_by_actor\n"
    "1\thttp://d/country\tproduced_in_country\n",
    "kg_final.txt": "entity_head\trelation\tentity_tail\n1\t0\t2\n1\t0\t2\n0\t1\t3\n",
    "train.txt": "0\t0\t1\t100\r\n1\t1\t1\t50\r\n",
    "valid.txt": "0\t1\t1\t200\r\n",
    "test.txt": "1\t0\t1\t60\r\n",
}


def test_maps_give_names_types_and_labels(write, facts_of, pairs_of):
    dataset = load(write(FILES))
    assert pairs_of(dataset) == [
        ("11", "761", "train"),
        ("12", "762", "train"),
        ("11", "762", "validation"),
        ("12", "761", "test"),
    ]
    assert facts_of(dataset) == {
        ("762", "starred_by_actor", "http://d/Al"),
        ("761", "produced_in_country", "http://d/USA"),
        ("762", "has_genre", "Crime"),
        ("762", "has_genre", "Drama"),
        ("761", "has_genre", "Horror"),
        ("11", "has_gender", "F"),
        ("12", "has_gender", "M"),
        ("11", "has_age", "25-34"),
    }
    assert Relation("starred_by_actor", "item", "actor") in dataset.relations
    assert dataset.relations[0] == Relation("watch", "user", "item")
    words = dataset.vocabulary
    assert words.labels[2:4] == ["Jaws", "Heat (1995)"]
    assert words.labels[words.id("actor", "http://d/Al")] == "Al P."


def test_everything_left_out_is_noted(write, notes_of):
    assert notes_of(load(write(FILES))) == {
        "entities that are named but in no fact": 1,
        "rows of users.txt about unknown uids ignored": 1,
        "repeated facts counted once": 1,
    }


def test_constant_mark_is_no_rating_and_a_varying_one_is(write):
    assert load(write(FILES)).interactions.ratings is None
    rated = load(write(FILES | {"train.txt": "0\t0\t5\t100\n1\t1\t3\t50\n"}))
    assert rated.interactions.ratings.tolist() == [5, 3, 1, 1]
