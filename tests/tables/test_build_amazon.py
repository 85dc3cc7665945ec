"""From raw reviews to a data set: what is read and reported, what can't leak, what resumes."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import invented
from loger.data import Dataset, load, split
from loger.data.assemble import core
from loger.data.readers.sentiment import feature_name
from loger.errors import DataError, LogerError, UnknownNameError
from loger.tables.reviews import amazon, parts, review_facts
from loger.tables.reviews.amazon import PRESETS, AmazonConfig, build, count
from loger.tables.reviews.aspects import mentions
from loger.tables.reviews.layouts import BrokenLineError, product, record, review

SMALL = invented.Sizes(users=80, items=40, reviews=700, words=30)
ALL = AmazonConfig(user_core=1, item_core=1, min_mentions=1, min_items=1, hub_share=1.0)
Names = Callable[[Dataset], set[tuple[str, str, str]]]
Notes = Callable[[Dataset], dict[str, int]]


def said(user: str, item: str, text: str = "", **more: Any) -> dict[str, Any]:
    """A review in the layout of 2018."""
    return {
        "reviewerID": user, "asin": item, "overall": 5.0, "unixReviewTime": 100, "reviewText": text,
    } | more  # fmt: skip


def write(path: Path, records: list[Any]) -> Path:
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))
    return path


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Dataset]:
    """Builds from records."""

    def of(
        reviews: list[Any],
        products: list[Any] | None = None,
        config: AmazonConfig = ALL,
        **more: Any,
    ) -> Dataset:
        meta = None if products is None else write(tmp_path / "meta.json.gz", products)
        path = write(tmp_path / "reviews.json.gz", reviews)
        return build(path, meta, work=tmp_path / "work", config=config, **more)

    return of


def bytes_of(dataset: Dataset, folder: Path) -> dict[str, bytes]:
    dataset.save(folder)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


# ── the core ────────────────────────────────────────────────────────────────────────────


def slow_core(pairs: list[tuple[int, int]], k: int, m: int) -> set[tuple[int, int]]:
    """Take away one user or item at a time until nobody is left who has too little."""
    left = set(pairs)
    while True:
        for u in {u for u, _ in left}:
            if sum(a == u for a, _ in left) < k:
                left = {p for p in left if p[0] != u}
                break
        else:
            for v in {v for _, v in left}:
                if sum(b == v for _, b in left) < m:
                    left = {p for p in left if p[1] != v}
                    break
            else:
                return left


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_the_core_is_what_is_left_when_nobody_has_too_little(
    pairs: list[tuple[int, int]], k: int, m: int
) -> None:
    users, items = np.array(pairs).T
    stay = core(users, items, k, m)
    assert {p for p, s in zip(pairs, stay, strict=True) if s} == slow_core(pairs, k, m)


# ── records ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("price", "right"),
    [
        ("$12.99", 12.99),
        ("$9.99 - $19.99", 14.99),
        ("$1,299.00", 1299.0),
        (12.5, 12.5),
        ("from 3.00", 3.0),
        ("", None),
        ("None", None),
        ("—", None),
        (None, None),
        (".a-section.a-spacing-mini{margin-bottom:6px}", None),
    ],
)
def test_prices_in_all_their_forms(price: object, right: float | None) -> None:
    found = product({"asin": "A", "price": price})
    assert found.price == pytest.approx(right)
    assert bool(found.problems) == (isinstance(price, str) and price.startswith(".a-"))


def test_names_lose_their_markup_and_scripts_are_no_names() -> None:
    found = product(
        {
            "asin": "A",
            "title": "Tom &amp; Co <span>Case</span>",
            "brand": "by\n    \n    Acme",
            "category": ["Phones &amp; More", "Cases", "</span></span>"],
        }
    )
    assert (found.title, found.brand) == ("Tom & Co Case", "Acme")
    assert found.categories == ["Phones & More", "Phones & More > Cases"]
    garbage = product({"asin": "A", "title": "var aPageStart = (new Date()).getTime();"})
    assert garbage.title == ""
    assert garbage.problems == ("title that is markup, not a name",)


def test_styles_lose_their_colons_and_blanks() -> None:
    found = review(said("u", "i", style={"Color:": " Rose  Gold", "Size:": " 5.5&quot;", "X:": ""}))
    assert found.styles == {"color": "rose gold", "size": '5.5"'}


def test_both_layouts_of_a_review_say_the_same() -> None:
    old = review(said("u", "i", "Nice case.", summary="Good"))
    new = review(
        {
            "user_id": "u", "parent_asin": "i", "asin": "variant", "rating": 5.0,
            "timestamp": 100_000, "title": "Good", "text": "Nice case.",
        }
    )  # fmt: skip
    assert old == new


def test_details_of_2023_may_be_a_text_and_give_styles() -> None:
    details = {"Color": "Black", "Item Weight": "3 ounces", "Brand": "Acme"}
    for form in (details, json.dumps(details)):
        found = product({"parent_asin": "A", "store": None, "details": form})
        assert (found.brand, found.styles) == ("Acme", {"color": "black"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
FIELDS = [
    "reviewerID", "user_id", "asin", "parent_asin", "overall", "rating", "unixReviewTime",
    "timestamp", "reviewText", "text", "summary", "title", "style", "brand", "store", "category",
    "categories", "price", "also_buy", "also_view", "details",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_whatever_stands_in_the_fields_a_line_is_read_or_broken(found: dict[str, Any]) -> None:
    for read in (review, product):
        try:
            made = read(found)
        except BrokenLineError:
            continue
        assert made.item.strip() == made.item != ""


# ── broken lines ────────────────────────────────────────────────────────────────────────

BROKEN = [
    said("u", "i"),
    b"{'reviewerID': 'u'}",
    b'{"reviewerID": "u"',
    b"",
    b"[1]",
    b'"\xff"',
    said("", "i"),
    said("u", "i", overall="many"),
    said("u", "i", overall=None),
    said("u", "i", unixReviewTime=None),
    {"reviewerID": "u", "overall": 5, "unixReviewTime": 1},
    b'{"reviewerID": "u"',
    said("v", "i"),
]


def test_broken_lines_are_told_by_kind_with_the_first_line_of_each(made: Any) -> None:
    dataset = made(BROKEN)
    assert len(dataset.interactions) == 2
    begin = "lines of reviews.json.gz left out: "
    told = {
        note.what.removeprefix(begin): (note.count, note.example.split(":")[0])
        for note in dataset.notes
        if note.what.startswith(begin)
    }
    assert told == {
        "a Python dictionary, as in the dump of 2014, not JSON": (1, "line 2"),
        "not JSON": (2, "line 3"),
        "blank line": (1, "line 4"),
        "not a JSON object": (1, "line 5"),
        "not UTF-8": (1, "line 6"),
        "no user": (1, "line 7"),
        "no rating that is a number": (1, "line 8"),
        "no rating": (1, "line 9"),
        "no time": (1, "line 10"),
        "no item": (1, "line 11"),
    }


def test_values_that_no_table_can_hold_do_not_stop_the_build(made: Any) -> None:
    cut = (
        rb'{"reviewerID": "u", "asin": "i", "overall": 5, "unixReviewTime": 1, "summary": "\ud83d"}'
    )
    late = said("v", "i", unixReviewTime=1e300)
    dear = {"asin": "i", "price": "9" * 400, "title": "\ud800 lamp"}
    dataset = made([cut, late, said("w", "i")], [dear])
    assert dataset.n_users == 2
    assert any("an impossible time" in note.what for note in dataset.notes)


def test_every_line_is_kept_or_told(made: Any) -> None:
    dataset = made(BROKEN)
    left_out = sum(n.count for n in dataset.notes if n.what.startswith("lines of"))
    assert left_out + 2 == len(BROKEN)


def test_strict_makes_the_first_broken_line_an_error(made: Any) -> None:
    with pytest.raises(DataError, match=r"reviews\.json\.gz:2: a Python dictionary"):
        made(BROKEN, strict=True)
    with pytest.raises(DataError, match=r"reviews\.json\.gz:2: a Python dictionary"):
        made(BROKEN, strict=True)  # also when the parts are there already


def test_a_truncated_file_is_read_up_to_its_end_and_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(1_000_000, size=30))) for _ in range(2_000)]
    path = write(tmp_path / "r.json.gz", [said(f"u{k}", "i", t) for k, t in enumerate(texts)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    dataset = build(path, work=tmp_path / "w", config=ALL)
    assert 500 < len(dataset.interactions) < 1_500
    assert any("the compressed file ends early" in note.what for note in dataset.notes)
    with pytest.raises(DataError, match="ends early"):
        build(path, work=tmp_path / "w2", config=ALL, strict=True)


def test_compression_is_known_by_the_bytes_not_by_the_name(tmp_path: Path) -> None:
    plain = tmp_path / "r.json.gz"
    plain.write_text(json.dumps(said("u", "i")) + "\n")
    assert build(plain, work=tmp_path / "w", config=ALL).n_users == 1


@pytest.mark.parametrize(
    ("reviews", "match"),
    [
        ([{"asin": "a", "title": "a product"}], "aren't swapped"),
        ([said("u", "i")], "--set user_core=2"),
    ],
)
def test_what_cannot_be_built_says_what_to_do(made: Any, reviews: list[Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        made(reviews, config=AmazonConfig())


def test_a_missing_file_and_unknown_settings_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        build(tmp_path / "none.json.gz", work=tmp_path / "w")
    with pytest.raises(UnknownNameError, match="did you mean 'has_brand'"):
        AmazonConfig(leave_out=("has_brnd",))
    with pytest.raises(LogerError, match="user_core must be at least 1"):
        AmazonConfig(user_core=0)
    with pytest.raises(DataError, match="module:function"):
        build(tmp_path / "r", work=tmp_path / "w", extractor="nowhere:nothing")


# ── the graph ───────────────────────────────────────────────────────────────────────────


def test_the_relations_of_a_small_shop(made: Any, facts_of: Names) -> None:
    reviews = [
        said("ann", "i1", "Great case.", style={"Color:": " Red"}),
        said("bob", "i2", "The strap is weak."),
    ]
    products = [
        {
            "asin": "i1", "title": "Blue &amp; red case", "brand": "Acme", "price": "$5.00",
            "category": ["Phones", "Cases"], "also_buy": ["i2", "x9"], "also_view": ["i1", "i2"],
        },
        {"asin": "i3", "title": "nobody reviewed it", "brand": "Acme"},
    ]  # fmt: skip
    dataset = made(reviews, products)
    assert facts_of(dataset) == {
        ("ann", "mentions", "case|great|+1"),
        ("i1", "has_feature", "case|great|+1"),
        ("bob", "mentions", "strap|weak|-1"),
        ("i2", "has_feature", "strap|weak|-1"),
        ("ann", "like_style::color", "red"),
        ("i1", "has_style::color", "red"),
        ("i1", "has_brand", "Acme"),
        ("i1", "has_category", "Phones"),
        ("i1", "has_category", "Phones > Cases"),
        ("i1", "has_price", "all products|1 of 2"),
        ("i1", "also_buy[item]", "i2"),
        ("i1", "also_buy[related_product]", "x9"),
        ("i1", "also_view", "i2"),
    }
    labels = dict(zip(dataset.vocabulary.names, dataset.vocabulary.labels, strict=True))
    assert labels["i1"] == "Blue & red case"
    assert labels["case|great|+1"] == "case: great (good)"
    assert labels["Phones > Cases"] == "Cases"


def test_what_a_review_says_names_that_review_as_its_source(tmp_path: Path) -> None:
    reviews, meta = invented.write(tmp_path, sizes=SMALL)
    dataset = build(reviews, meta, work=tmp_path / "w", config=ALL)
    told: dict[tuple[str, str], set[str]] = {}
    for line in gzip.decompress(reviews.read_bytes()).splitlines():
        try:
            found = review(record(line))
        except ValueError:
            continue
        features = {feature_name(*m) for m in mentions(found.text)}
        told.setdefault((found.user, found.item), set()).update(features)
    words, facts, events = dataset.vocabulary, dataset.facts, dataset.interactions
    seen = 0
    for h, r, t, s in zip(facts.heads, facts.relations, facts.tails, facts.sources, strict=True):
        name = dataset.relations[r].name
        if name in ("mentions", "has_feature"):
            user = words.names[events.users[s]]
            item = words.names[dataset.n_users + events.items[s]]
            assert words.names[h] == (user if name == "mentions" else item)
            assert words.names[t] in told[user, item]
            seen += 1
        else:
            assert (s >= 0) == ("_style::" in name)
    assert seen == 2 * sum(len(features) for features in told.values())


def test_the_training_graph_knows_nothing_that_only_held_out_reviews_say(made: Any) -> None:
    reviews = [
        said("u", "a", "The strap is weak.", unixReviewTime=1),
        said("u", "b", "Great case.", unixReviewTime=2, style={"Color:": "red"}),
        said("u", "c", "The lid is ugly. The strap is weak.", unixReviewTime=3),
    ]
    dataset = made(reviews)
    parted = split(dataset, "time", test=0.3, validation=0.3)
    assert [len(parted.train), len(parted.validation), len(parted.test)] == [1, 1, 1]
    graph = parted.graph
    linked = {
        dataset.vocabulary.names[v]
        for relation, base in enumerate(dataset.relations)
        if base.tail_type != "item"
        for end in range(len(dataset.vocabulary))
        for v in graph.neighbours(end, relation)
    }
    assert linked == {"strap|weak|-1"}
    # The strap is known of u from the training review alone: nobody else's item has it.
    item = dataset.vocabulary.names.index("c")
    relation = [r.name for r in dataset.relations].index("has_feature")
    assert len(graph.neighbours(item, relation)) == 0


def test_features_and_styles_that_are_rare_or_that_most_have_are_left_out_and_told(
    made: Any, notes_of: Notes, facts_of: Names
) -> None:
    reviews = [said(f"u{k}", f"i{k}", "Great case.") for k in range(4)]
    reviews[0]["reviewText"] += " The lid is ugly. The strap is weak."
    reviews[1]["reviewText"] += " The strap is weak."
    config = AmazonConfig(user_core=1, item_core=1, min_mentions=2, hub_share=0.5)
    dataset = made(reviews, config=config)
    features = {tail for _, _, tail in facts_of(dataset)}
    assert features == {"strap|weak|-1"}
    told = notes_of(dataset)
    assert told["mentions left out because fewer than 2 reviews have them (1 kinds)"] == 1
    assert told["features left out because more than 50% of the users have them"] == 1


def test_categories_that_all_items_share_are_left_out(made: Any, facts_of: Names) -> None:
    reviews = [said("u", f"i{k}") for k in range(4)]
    products = [{"asin": f"i{k}", "category": ["Root", "AB"[k // 2]]} for k in range(4)]
    config = AmazonConfig(user_core=1, item_core=1)
    tails = {t for _, r, t in facts_of(made(reviews, products, config)) if r == "has_category"}
    assert tails == {"Root > A", "Root > B"}


def test_prices_are_binned_by_quantile_within_the_category(
    made: Any, facts_of: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_facts, "LEAST_PRICED", 10)
    items = [f"i{k}" for k in range(20)]
    reviews = [said("u", i) for i in items]
    products = [
        {
            "asin": i,
            "price": f"${k + 1 if k < 10 else 100 * k}.00",
            "category": ["R", "AB"[k // 10]],
        }
        for k, i in enumerate(items)
    ]
    monkeypatch.setattr(review_facts, "PRICE_BINS", 2)
    config = AmazonConfig(user_core=1, item_core=1)
    bins = {h: t for h, r, t in facts_of(made(reviews, products, config)) if r == "has_price"}
    assert bins["i0"] == bins["i4"] == "R > A|1 of 2"
    assert bins["i5"] == bins["i9"] == "R > A|2 of 2"
    assert bins["i10"] == "R > B|1 of 2"
    assert bins["i19"] == "R > B|2 of 2"


def test_related_products_are_capped_and_rare_ones_outside_left_out(
    made: Any, facts_of: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews = [said("u", f"i{k}") for k in range(3)]
    products = [
        {"asin": "i0", "also_buy": ["x1", "x2", "i1", "i2"]},
        {"asin": "i1", "also_buy": ["x1", "i0"]},
    ]
    monkeypatch.setattr(review_facts, "MAX_RELATED", 3)
    config = AmazonConfig(user_core=1, item_core=1)
    links = {(h, t) for h, r, t in facts_of(made(reviews, products, config)) if "also_buy" in r}
    assert links == {("i0", "x1"), ("i0", "i1"), ("i1", "x1"), ("i1", "i0")}


def test_repeated_reviews_and_products_count_once_and_are_told(made: Any, notes_of: Notes) -> None:
    reviews = [said("u", "i", "Great case.")] * 3 + [said("v", "i")]
    products = [{"asin": "i", "brand": "First"}, {"asin": "i", "brand": "Second"}]
    dataset = made(reviews, products)
    assert len(dataset.interactions) == 2
    assert "First" in dataset.vocabulary.names
    assert "Second" not in dataset.vocabulary.names
    told = notes_of(dataset)
    assert (
        told["repeated interactions of the same user and item merged, keeping the latest time"] == 2
    )
    assert told["products listed twice in the catalogue, keeping the first"] == 1


def test_reviews_with_few_stars_are_left_out_when_asked(made: Any) -> None:
    reviews = [said("u", "i"), said("u", "j", overall=2.0)]
    config = AmazonConfig(user_core=1, item_core=1, min_rating=3)
    assert made(reviews, config=config).n_items == 1


def only_lids(text: str) -> list[tuple[str, str, int]]:
    return [("lid", "there", 0)] if "lid" in text else []


def test_another_extractor_can_be_brought(made: Any, facts_of: Names) -> None:
    dataset = made([said("u", "i", "a lid"), said("v", "i", "a pot")], extractor=only_lids)
    assert facts_of(dataset) == {
        ("u", "mentions", "lid|there|0"),
        ("i", "has_feature", "lid|there|0"),
    }
    with pytest.raises(DataError, match="with def at the top"):
        made([said("u", "i")], extractor=lambda text: [])


def stumbling(text: str) -> list[tuple[str, str, int]]:
    return [("lid", "tight")] if "lid" in text else []  # type: ignore[list-item]


def test_an_extractor_that_fails_is_told_with_the_line(made: Any) -> None:
    with pytest.raises(LogerError, match="failed on line 2"):
        made([said("u", "i", "a pot"), said("v", "i", "a lid")], extractor=stumbling)


def test_mentions_mined_elsewhere_take_the_place_of_texts(
    made: Any, tmp_path: Path, facts_of: Names, notes_of: Notes
) -> None:
    given = tmp_path / "sentiment.txt"
    given.write_text("u,i,box:torn:-1,game:fun:1\nw,i,box:torn:-1\n")
    dataset = made([said("u", "i", "Great case.")], mentions_file=given)
    assert {t for _, _, t in facts_of(dataset)} == {"box|torn|-1", "game|fun|+1"}
    assert set(dataset.facts.sources) == {0}
    assert notes_of(dataset)["mentions of pairs without a rating left out"] == 1
    given.write_text("u,i,box:torn:-1\nu,i,box:torn\n")
    with pytest.raises(DataError, match=r"sentiment\.txt:2: a mention should be"):
        made([said("u", "i", "Great case.")], mentions_file=given)


def test_a_split_made_elsewhere_is_taken(made: Any, tmp_path: Path, notes_of: Notes) -> None:
    given = tmp_path / "parts.csv"
    given.write_text("user,item,part\nu,a,train\nu,b,test\nv,zzz,test\n")
    reviews = [said("u", "a", "Great case."), said("u", "b", "The lid is ugly."), said("v", "a")]
    dataset = made(reviews, parts_file=given)
    parted = split(dataset, "given", validation=0)
    assert (len(parted.train), len(parted.test)) == (1, 1)
    told = notes_of(dataset)
    assert told["reviews left out because parts.csv doesn't say which part they are in"] == 1
    assert told["pairs in parts.csv without a review left out"] == 1
    names = [r.name for r in dataset.relations]
    item = dataset.vocabulary.names.index("b")
    assert len(parted.graph.neighbours(item, names.index("has_feature"))) == 0
    given.write_text("user,item\nu,a\n")
    with pytest.raises(DataError, match="there is no column part"):
        made(reviews, parts_file=given)


def test_the_same_content_in_both_layouts_is_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_facts, "LEAST_PRICED", 5)
    only_2018 = ("also_buy", "also_view", "has_style", "like_style")
    config = AmazonConfig(user_core=3, item_core=3, leave_out=only_2018)
    made = []
    for layout in ("2018", "2023"):
        paths = invented.write(tmp_path / layout, layout, SMALL, seed=5)
        dataset = build(*paths, work=tmp_path / "w", config=config, name="same")
        saved = bytes_of(dataset, tmp_path / f"saved-{layout}")
        del saved["manifest.json"]  # its notes name the files
        made.append(saved)
    assert made[0] == made[1]


def test_counts_are_those_of_the_graph(tmp_path: Path) -> None:
    paths = invented.write(tmp_path, sizes=SMALL)
    dataset = build(*paths, work=tmp_path / "w")
    graph = dataset.graph(np.arange(len(dataset.interactions)))
    found = count(dataset)
    assert found.triples == graph.n_triples
    assert found.entities == graph.n_entities
    assert asdict(PRESETS["grocery"].paper)["triples"] == 3_742_954


# ── going on after an interruption ──────────────────────────────────────────────────────


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LINES", {"reviews": 150, "products": 30})


class StopHereError(Exception):
    pass


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_build_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    paths = invented.write(tmp_path, sizes=SMALL)
    whole = bytes_of(build(*paths, work=tmp_path / "w1"), tmp_path / "one")
    steps = []

    def stop(what: str, done: int, total: int) -> None:
        steps.append(what)
        if len(steps) == 3:
            raise StopHereError

    with pytest.raises(StopHereError):
        build(*paths, work=tmp_path / "w2", progress=stop)
    there = {p: p.stat().st_mtime_ns for p in (tmp_path / "w2").rglob("part-*.parquet")}
    assert len(there) == 3
    again = bytes_of(build(*paths, work=tmp_path / "w2"), tmp_path / "two")
    assert again == whole
    assert all(p.stat().st_mtime_ns == t for p, t in there.items()), "a part was made twice"


@pytest.mark.usefixtures("small_parts")
def test_parts_of_other_input_or_another_extractor_are_not_taken(tmp_path: Path) -> None:
    first = invented.write(tmp_path / "a", sizes=SMALL, seed=1)
    other = invented.write(tmp_path / "b", sizes=SMALL, seed=2)
    build(*first, work=tmp_path / "w")
    mixed = build(*other, work=tmp_path / "w", extractor=only_lids)
    alone = build(*other, work=tmp_path / "w3", extractor=only_lids)
    assert bytes_of(mixed, tmp_path / "m") == bytes_of(alone, tmp_path / "n")


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    paths = invented.write(tmp_path, sizes=SMALL)
    whole = bytes_of(build(*paths, work=tmp_path / "w"), tmp_path / "one")
    folder = next((tmp_path / "w").glob("reviews-*"))
    (folder / "whole.json").unlink()
    (folder / "part-000001.json").unlink()
    (folder / "part-000001.parquet").write_bytes(b"half of it")
    assert bytes_of(build(*paths, work=tmp_path / "w"), tmp_path / "two") == whole


def test_clearing_takes_only_what_the_build_put_there(tmp_path: Path) -> None:
    paths = invented.write(tmp_path, sizes=SMALL)
    work = tmp_path / "w"
    build(*paths, work=work)
    (work / "mine.txt").write_text("mine")
    amazon.clear(work)
    assert [p.name for p in work.iterdir()] == ["mine.txt"]
    (work / "mine.txt").unlink()
    amazon.clear(work)
    assert not work.exists()


KILLER = """
import os, signal
from loger.tables.reviews.aspects import mentions
calls = 0
def extract(text):
    global calls
    calls += 1
    if calls == 20_500 and os.environ.get("KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return mentions(text)
"""


def test_a_killed_command_goes_on_and_ends_with_the_same_bytes_also_with_more_workers(
    tmp_path: Path,
) -> None:
    (tmp_path / "killer.py").write_text(KILLER)
    sizes = invented.Sizes(users=500, items=200, reviews=22_000, words=15)
    reviews, meta = invented.write(tmp_path, sizes=sizes)

    def run(out: str, workers: int, **more: str) -> int:
        command = [sys.executable, "-m", "loger", "data", "build", "amazon", "--reviews", reviews]
        command += ["--meta", meta, "--out", tmp_path / out, "--set", "extractor=killer:extract"]
        command += ["--set", f"workers={workers}", "--json"]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)} | more
        ran = subprocess.run([str(c) for c in command], env=environment, capture_output=True)
        return ran.returncode

    assert run("one", 2) == 0
    assert run("two", 1, KILL="yes") == -9
    assert len(list(tmp_path.glob("two.work/reviews-*/part-*.json"))) == 1
    assert run("two", 1) == 0
    assert not (tmp_path / "two.work").exists()
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / d).iterdir()} for d in ("one", "two"))
    assert one == two
    assert load(tmp_path / "two").n_items > 0


WAITING = """
import os, pathlib, time
def extract(text):
    place = pathlib.Path(os.environ["PIDS"]) / str(os.getpid())
    if not place.exists():
        place.touch()
    time.sleep(0.001)
    return []
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "pids").mkdir()
    reviews = write(tmp_path / "r.json.gz", [said(f"u{k}", "i", "text") for k in range(45_000)])
    command = [sys.executable, "-m", "loger", "data", "build", "amazon", "--reviews", str(reviews)]
    command += ["--out", str(tmp_path / "o"), "--set", "extractor=waiting:extract"]
    command += ["--set", "workers=2"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PIDS": str(tmp_path / "pids")}
    process = subprocess.Popen(command, env=environment)

    def alive() -> list[str]:
        pids = [p.name for p in (tmp_path / "pids").iterdir()]
        states = {p: Path(f"/proc/{p}/stat") for p in pids}
        return [p for p, s in states.items() if s.exists() and s.read_text().split()[2] != "Z"]

    def wait_until(number: int) -> None:
        end = time.monotonic() + 60
        while len(alive()) != number:
            assert time.monotonic() < end, f"{len(alive())} workers, not {number}"
            time.sleep(0.05)

    wait_until(2)
    process.kill()
    process.wait()
    wait_until(0)
