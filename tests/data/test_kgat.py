from loger.data import load

PLAIN = {
    "train.txt": "0 0 1\n1 2 \n",
    "test.txt": "0 2\n1\n",
    "kg_final.txt": "0 0 3\n1 0 3\n2 1 0\n3 2 4\n",
}
NAMED = PLAIN | {
    "user_list.txt": "org_id remap_id\nann 0\nbob 1\n",
    "item_list.txt": "org_id remap_id freebase_id\nb0 0 m.0\nb1 1 m.1\nb 2 2 m.2\nb3 3 m.3\n",
    "entity_list.txt": "org_id remap_id\nm.0 0\nm.1 1\nm.2 2\nm.3 3\nann 4\nm.5 5\n",
    "relation_list.txt": "org_id remap_id\n"
    "http://x/ns/by_author 0\nhttp://x/ns/sequel 1\nhttp://x/ns/near 2\n",
}


def test_numbers_are_names_where_no_lists_give_better(write, facts_of, pairs_of):
    dataset = load(write(PLAIN))
    assert pairs_of(dataset) == [
        ("0", "0", "train"),
        ("0", "1", "train"),
        ("1", "2", "train"),
        ("0", "2", "test"),
    ]
    assert facts_of(dataset) == {
        ("0", "r0", "e3"),
        ("1", "r0", "e3"),
        ("2", "r1", "0"),
        ("e3", "r2", "e4"),
    }
    assert dataset.n_items == 3


def test_lists_give_names_and_the_number_of_items(write, facts_of, notes_of):
    dataset = load(write(NAMED))
    assert facts_of(dataset) == {
        ("b0", "by_author", "b3"),
        ("b1", "by_author", "b3"),
        ("b 2", "sequel", "b0"),
        ("b3", "near", "ann"),
    }
    assert dataset.vocabulary.names[:6] == ["ann", "bob", "b0", "b1", "b 2", "b3"]
    assert notes_of(dataset) == {
        "entities that are named but in no fact": 1,
        "items without any interaction": 1,
    }


def test_entity_named_like_a_user_is_not_that_user(write):
    near = next(r for r in load(write(NAMED)).relations if r.name == "near")
    assert (near.head_type, near.tail_type) == ("item", "near")
