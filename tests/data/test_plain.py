import bz2
import lzma
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from loger.data import columns as headers
from loger.data import load, split
from loger.errors import DataError
from loger.graph import Relation

INTERACTIONS = "ann,i1,5,10\nann,i2,3,20\nbob,i2,4,30\n"
TRIPLES = "i1,has_brand,Acme\ni2,has_brand,Best\nbob,knows,ann\n"


def test_positional_columns_give_names_ratings_times_and_facts(write, facts_of, pairs_of):
    dataset = load(write({"interactions.csv": INTERACTIONS, "triples.csv": TRIPLES}))
    assert dataset.name == "shop"
    assert pairs_of(dataset) == [("ann", "i1"), ("ann", "i2"), ("bob", "i2")]
    assert dataset.interactions.ratings.tolist() == [5, 3, 4]
    assert dataset.interactions.times.tolist() == [10, 20, 30]
    assert dataset.interactions.parts is None
    assert facts_of(dataset) == {
        ("i1", "has_brand", "Acme"),
        ("i2", "has_brand", "Best"),
        ("bob", "knows", "ann"),
    }
    assert dataset.relations == (
        Relation("interacted", "user", "item"),
        Relation("has_brand", "item", "brand"),
        Relation("knows", "user", "user"),
    )
    assert dataset.vocabulary.types == ("user", "item", "brand")
    assert dataset.notes == ()


def test_header_allows_any_order_and_unknown_columns_are_noted(write, pairs_of, notes_of):
    text = "Timestamp,item_id,city,USER\n10,i1,Rome,ann\n20.9,i2,Rome,bob\n"
    dataset = load(write({"interactions.csv": text}))
    assert pairs_of(dataset) == [("ann", "i1"), ("bob", "i2")]
    assert dataset.interactions.times.tolist() == [10, 20]
    assert dataset.interactions.ratings is None
    assert notes_of(dataset) == {"columns of interactions.csv that are ignored": 1}


@pytest.mark.parametrize(
    "header",
    [
        "customer,product",
        "customer_id,product_id",
        "Customer ID,SKU",
        "userId,movieId",
        "reviewerID,asin",
        "CLIENT,Article",
        "u,i",
    ],
)
def test_headers_are_known_by_other_words_too(write, pairs_of, header):
    dataset = load(write({"interactions.csv": f"{header}\nann,i1\nbob,i2\n"}))
    assert pairs_of(dataset) == [("ann", "i1"), ("bob", "i2")]
    assert dataset.notes == ()


@pytest.mark.parametrize("header", ["source,rel,target", "Subject,Predicate,Object", "h,r,t"])
def test_headers_of_triples_are_known_by_other_words_too(write, facts_of, header):
    folder = write({"interactions.csv": INTERACTIONS, "triples.csv": f"{header}\ni1,by,Acme\n"})
    assert facts_of(load(folder)) == {("i1", "by", "Acme")}


def test_of_two_columns_that_fit_the_better_name_is_read_and_the_other_noted(write, pairs_of):
    text = "customer,date,stars,ts,user,item\nx,Monday,5,10,ann,i1\ny,Monday,4,20,bob,i2\n"
    dataset = load(write({"interactions.csv": text}))
    assert pairs_of(dataset) == [("ann", "i1"), ("bob", "i2")]
    assert dataset.interactions.times.tolist() == [10, 20]
    assert dataset.interactions.ratings.tolist() == [5, 4]
    assert [(n.count, n.example) for n in dataset.notes] == [(2, "customer")]


def test_an_item_called_like_a_column_is_the_first_of_a_table_without_header(write):
    folder = write({"interactions.csv": INTERACTIONS, "items.csv": "book,A book\ni1,A mug\n"})
    assert load(folder).vocabulary.labels[2:] == ["A book", "A mug", "i2"]


def test_tables_of_items_and_users_take_their_own_words_for_the_id(write):
    folder = write(
        {
            "interactions.csv": INTERACTIONS,
            "items.csv": "person,artist,SKU,title\nZoe,Abba,i2,A song\n",
            "users.csv": "book,customer_id,name\nb,bob,Bob B.\n",
        }
    )
    with pytest.raises(
        DataError, match=r"\(person, artist\), and .* loger data build table --inter"
    ):
        load(folder)  # what the columns say would be lost
    write({"triples.csv": "i2,has_brand,Acme\n"})
    assert load(folder).vocabulary.labels[:4] == ["Bob B.", "ann", "A song", "i1"]


def test_a_graph_made_wrong_by_numbers_that_mean_several_things_is_noted(write):
    events = "".join(f"{u},{1 + (u * k) % 30}\n" for u in range(1, 41) for k in (1, 7))
    facts = "".join(f"{v},has_brand,{v % 5}\n" for v in range(1, 31))
    folder = write({"interactions.csv": events, "triples.csv": facts})
    told = {note.what.partition(" (")[0] for note in load(folder).notes}
    assert {
        "names in facts that match both a user and an item, read as items",
        "facts whose tail is a number, read as the item or user with that number",
        "relations that link different types, split by type",
    } <= told


def test_data_sets_and_splits_print_in_one_line(write):
    dataset = load(write({"interactions.csv": INTERACTIONS, "triples.csv": TRIPLES}))
    assert repr(dataset) == (
        "Dataset('shop', 2 users, 2 items, 3 interactions, 3 relations, 3 facts)"
    )
    noted = load(write({"interactions.csv": INTERACTIONS}), min_rating=4)
    assert str(noted).endswith("2 interactions, 4 relations, 4 facts, 1 note)")
    assert repr(split(dataset)) == "Split('shop', 2 train, 0 validation, 1 test)"
    assert "\n" not in repr(split(dataset).graph)


def test_part_column_is_the_given_split(write, pairs_of):
    text = "user,item,split\nann,i1,train\nann,i2,valid\nann,i3,TEST\n"
    assert pairs_of(load(write({"interactions.csv": text}))) == [
        ("ann", "i1", "train"),
        ("ann", "i2", "validation"),
        ("ann", "i3", "test"),
    ]


@pytest.mark.parametrize(
    "separator, name", [("\t", "tsv"), ("\t", "txt"), (",", "txt"), (" ", "txt")]
)
def test_separator_follows_the_ending_or_the_first_line(write, pairs_of, separator, name):
    text = INTERACTIONS.replace(",", separator)
    assert pairs_of(load(write({f"interactions.{name}": text}))) == [
        ("ann", "i1"),
        ("ann", "i2"),
        ("bob", "i2"),
    ]


@pytest.mark.parametrize("pack, ending", [(bz2.compress, "bz2"), (lzma.compress, "xz")])
def test_compressed_tables_read_like_plain_ones(write, pairs_of, pack, ending):
    folder = write({f"interactions.csv.{ending}": pack(INTERACTIONS.encode())})
    assert len(pairs_of(load(folder))) == 3


def test_gzip_tables_read_like_plain_ones(write, facts_of):
    folder = write({"interactions.csv.gz": INTERACTIONS, "kg.tsv.gz": "i1\tmade_by\tAcme\n"})
    assert facts_of(load(folder)) == {("i1", "made_by", "Acme")}


def test_given_types_are_kept_and_empty_ones_are_found_by_name(write):
    triples = (
        "head,head_type,relation,tail,tail_type\n"
        "i1,,has_brand,Acme,maker\n"
        "Acme,maker,based_in,Rome,\n"
    )
    dataset = load(write({"interactions.csv": INTERACTIONS, "triples.csv": triples}))
    assert dataset.relations[1:] == (
        Relation("has_brand", "item", "maker"),
        Relation("based_in", "maker", "based_in"),
    )


def test_items_and_users_tables_fix_the_order_and_give_labels(write, notes_of):
    dataset = load(
        write(
            {
                "interactions.csv": INTERACTIONS,
                "items.csv": "id,name\ni3,Third\ni2,\ni1,First\n",
                "users.csv": "bob,Bob B.\nann,Ann\n",
            }
        )
    )
    words = dataset.vocabulary
    assert words.names == ["bob", "ann", "i3", "i2", "i1"]
    assert words.labels == ["Bob B.", "Ann", "Third", "i2", "First"]
    assert notes_of(dataset) == {"items without any interaction": 1}


def test_parquet_reads_numbers_as_names_and_dates_as_seconds(tmp_path, facts_of, pairs_of):
    from datetime import datetime

    pl.DataFrame(
        {"user": [1, 2], "item": [7, 8], "time": [datetime(1970, 1, 1), datetime(1970, 1, 2)]}
    ).write_parquet(tmp_path / "interactions.parquet")
    pl.DataFrame(
        {"head": [7, 8], "relation": ["has_brand"] * 2, "tail": ["Acme", "Acme"]},
        schema_overrides={"tail": pl.Categorical},
    ).write_parquet(tmp_path / "triples.parquet")
    dataset = load(tmp_path)
    assert pairs_of(dataset) == [("1", "7"), ("2", "8")]
    assert dataset.interactions.times.tolist() == [0, 86400]
    assert facts_of(dataset) == {("7", "has_brand", "Acme"), ("8", "has_brand", "Acme")}


def test_a_table_of_interactions_is_read_alone(write):
    folder = write({"a.csv": INTERACTIONS, "triples.csv": "i1,made_by,Acme\n"})
    dataset = load(folder / "a.csv", name="x")
    assert (dataset.name, dataset.n_items, len(dataset.facts)) == ("x", 2, 0)


def test_min_rating_leaves_out_low_ratings_and_says_how_many(write, pairs_of, notes_of):
    dataset = load(write({"interactions.csv": INTERACTIONS}), min_rating=4)
    assert pairs_of(dataset) == [("ann", "i1"), ("bob", "i2")]
    assert notes_of(dataset) == {"interactions rated below 4 counted as dislikes": 1}


def test_users_and_items_without_a_positive_rating_stay_users_and_items(write, notes_of):
    text = "ann,i1,5\nbob,i2,1\n"
    folder = write({"interactions.csv": text, "triples.csv": "i2,has_brand,Acme\nbob,knows,ann\n"})
    dataset = load(folder, min_rating=3)
    assert dataset.vocabulary.names == ["ann", "bob", "i1", "i2", "Acme"]
    assert dataset.vocabulary.types == ("user", "item", "brand")
    assert notes_of(dataset) == {
        "interactions rated below 3 counted as dislikes": 1,
        "items without any fact": 1,
        "items without any interaction": 1,
        "users without any interaction": 1,
    }


def test_user_item_facts_follow_the_interaction_they_repeat(write):
    triples = "ann,reviewed,i1\nbob,reviewed,i1\n"
    dataset = load(write({"interactions.csv": INTERACTIONS, "triples.csv": triples}))
    assert dataset.facts.sources.tolist() == [0, -1]


def test_saved_data_sets_load_as_they_were(write, tmp_path):
    first = load(write({"interactions.csv": INTERACTIONS, "triples.csv": TRIPLES}))
    first.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    rows = np.arange(len(first.interactions))
    assert again.graph(rows).fingerprint == first.graph(rows).fingerprint
    assert load(tmp_path / "saved", name="other").name == "other"


@pytest.mark.parametrize(
    "times",
    [
        ("2024-05-01", "1969-12-31"),
        ("2024-05-01T10:00:00", "1969-12-31T23:59:59"),
        ("2024-05-01 10:00", "1969-12-31 23:59:59.75"),
        ("2024-05-01T10:00:00Z", "2024-05-01T23:30:00.123456-03:30"),
        ("2024-05-01 10:00:00 +0200", "2024-05-01 10:00:00+02"),
    ],
)
def test_iso_times_are_seconds_since_1970(write, times):
    from datetime import UTC, datetime

    def seconds(text: str) -> int:
        moment = datetime.fromisoformat(text.replace(" +", "+"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // 1)

    text = f"user,item,time\nann,i1,{times[0]}\nbob,i2,{times[1]}\n"
    dataset = load(write({"interactions.csv": text}))
    assert dataset.interactions.times.tolist() == [seconds(t) for t in times]


def test_the_documentation_lists_every_name_that_a_column_may_have():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "data-formats.md").read_text(
        encoding="utf-8"
    )
    told = {}
    for line in page.splitlines():
        if line.startswith("| ") and line.count("|") == 3:
            column, names = line.strip("| ").split(" | ")
            words = []
            for group in names.split("; "):
                some = [w for w in group.split(", ") if w != "each also with `_id`"]
                both = "each also" in group
                words += [w for s in some for w in ((s, f"{s}_id") if both else (s,))]
            told[column] = tuple(words)
    for table in (headers.INTERACTIONS, headers.TRIPLES):
        for column, words in table.known.items():
            assert told[column] == words
    assert told["label in `items`"] == headers.ITEMS.known["label"]
    assert told["label in `users`"] == headers.USERS.known["label"]
    for table, column in ((headers.ITEMS, "item"), (headers.USERS, "user")):
        assert table.known["name"] == ("id", *told[column], "name")
