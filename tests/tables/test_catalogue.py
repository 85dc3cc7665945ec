"""What tables say that isn't in the graph: values of nearly all or single items, and pictures. Also
how an update reads tables like those of the build.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import loger
from loger.cli import app
from loger.data.dataset import Dataset
from loger.encoder import TransEConfig
from loger.errors import DataError, LogerError, UnknownNameError
from loger.graph import KnowledgeGraph, Relation, Vocabulary
from loger.graph.catalogue import FilterOnlyColumn
from loger.model import LOGER, LOGERConfig
from loger.ranking.selection import select
from loger.rules import make_rule
from loger.rules.sentences import evidence_sentence, path_sentence
from loger.tables.table import read_changes

QUICK = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
N = 48


def products(n: int = N, first: int = 0) -> pl.DataFrame:
    """Three quarters are in stock, three makers make all but the first product."""
    rows = range(first, first + n)
    return pl.DataFrame(
        {
            "SKU": [f"P{k:03d}" for k in rows],
            "Product name": [f"Lamp no. {k}" for k in rows],
            "Maker": [("Solo" if k == 0 else f"Maker {k % 3}") for k in rows],
            "In stock": ["no" if k % 4 == 0 else "yes" for k in rows],
            "Price (EUR)": [f"{k},50" for k in rows],
            "Picture": [f"pictures/{k}.png" for k in rows],
        }
    )


def orders(days: int = 9) -> pl.DataFrame:
    rows = [(f"c{u}", f"P{(u % 3 + 3 * ((u + k * k) % 16)) % N:03d}", f"{k + 1:02d}.03.2024 10:00")
            for u in range(60) for k in range(days)]  # fmt: skip
    return pl.DataFrame(rows, schema=["Customer", "Article", "Ordered"], orient="row")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return loger.from_tables(orders(), products(), name="lamps")


@pytest.fixture(scope="module")
def model(data: Dataset) -> LOGER:
    return LOGER(QUICK).fit(loger.split(data))


def fitting(data: Dataset, text: str) -> set[str]:
    among = select(data.graph(np.arange(0)), text, catalogue=data.catalogue).among
    assert among is not None
    names = data.vocabulary.names[data.n_users :]
    return {names[k] for k in np.flatnonzero(among)}


def test_values_that_are_not_in_the_graph_are_filters_all_the_same(data: Dataset) -> None:
    table = products()
    stocked = set(table.filter(pl.col("In stock") == "yes")["SKU"])
    assert "yes" not in data.vocabulary.names, "most items have it, so no rule walks over it"
    for name in ("in_stock", "has_in_stock"):
        assert fitting(data, f"{name}=yes") == stocked
        assert fitting(data, f"{name}=no") == set(table["SKU"]) - stocked
    assert fitting(data, "maker=Solo") == {"P000"}
    one = fitting(data, 'in_stock=yes AND NOT (maker="Maker 1" OR maker=Solo)')
    assert one == {v for v in stocked if int(v[1:]) % 3 != 1}


def test_a_misspelt_value_is_told_with_those_beside_the_graph(data: Dataset) -> None:
    with pytest.raises(UnknownNameError, match="unknown maker 'Sollo'; did you mean 'Solo'"):
        fitting(data, "maker=Sollo")
    with pytest.raises(
        UnknownNameError, match="unknown in_stock 'available'; choose from 'no', 'yes'"
    ):
        fitting(data, "in_stock=available")
    with pytest.raises(UnknownNameError, match="did you mean 'in_stock'"):
        fitting(data, "in_stok=yes")


def test_a_range_is_called_one_and_says_its_unit(data: Dataset) -> None:
    assert "has_price_range" in [r.name for r in data.relations]
    labels = [data.vocabulary.labels[e] for e in data.vocabulary.span("price_range")]
    assert labels[0] == "Price 0.5–9.9 EUR"


def test_a_shared_range_reads_like_one() -> None:
    words = Vocabulary(
        {"user": ["ann"], "item": ["ink", "pen"], "price_range": ["p|1"]},
        {"price_range": ["Price 0.5–9.9 EUR"]},
    )
    kinds = [
        Relation("purchase", "user", "item"),
        Relation("has_price_range", "item", "price_range"),
    ]
    graph = KnowledgeGraph.from_triples(words, kinds, [0, 1, 2], [0, 1, 1], [1, 3, 3])
    path = loger.graph.Path((0, 1, 3, 2), (0, 1, 3))
    assert evidence_sentence(graph, path, 1, []) == "same price range (0.5–9.9 EUR)"
    assert (
        path_sentence(graph, path) == "you bought ink, which has Price 0.5–9.9 EUR, and so does pen"
    )
    rule = make_rule(graph, (0, 1, 3))
    assert rule.sentence() == "same price range as something you bought"


def test_edges_of_ranges_may_be_given(tmp_path: Path, data: Dataset) -> None:
    changed = data.mapping.with_column("Price (EUR)", edges=(10.0, 20.0))  # type: ignore[attr-defined]
    changed.save(tmp_path / "m.toml")
    again = loger.from_tables(orders(), products(), mapping=tmp_path / "m.toml")
    labels = [again.vocabulary.labels[e] for e in again.vocabulary.span("price_range")]
    assert sorted(labels) == ["Price 0.5–10 EUR", "Price 10.1–20 EUR", "Price 20.1–47.5 EUR"]
    wrong = (tmp_path / "m.toml").read_text().replace("[10.0, 20.0]", "[20.0, 10.0]")
    (tmp_path / "m.toml").write_text(wrong)
    with pytest.raises(DataError, match=r"m\.toml: edges of column 'Price.* increasing numbers"):
        loger.from_tables(orders(), products(), mapping=tmp_path / "m.toml")
    with pytest.raises(LogerError, match="increasing numbers"):
        data.mapping.with_column("Price (EUR)", edges=(20.0, 10.0))  # type: ignore[attr-defined]


def test_the_catalogue_is_saved_with_the_data(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "lamps")
    back = loger.load(tmp_path / "lamps")
    assert back.catalogue.mapping == data.catalogue.mapping
    assert back.catalogue.images == data.catalogue.images
    assert data.catalogue.images[3] == "pictures/3.png"
    assert fitting(back, "in_stock=yes") == fitting(data, "in_stock=yes")


def test_a_bundle_keeps_it_and_recommends_by_it(model: LOGER, tmp_path: Path) -> None:
    model.save(tmp_path / "b")
    again = LOGER.load(tmp_path / "b")
    listed = again.recommend("c1", 20, include="in_stock=no")["item"]
    assert len(listed) and all(int(v[1:]) % 4 == 0 for v in listed)
    assert again.catalogue_.images == model.catalogue_.images
    asked = ["recommend", str(tmp_path / "b"), "c1", "--include", "in_stock=no"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert listed[0] in done.output or f"Lamp no. {int(listed[0][1:])}" in done.output


def test_an_update_says_what_it_leaves_out_and_what_may_be_misspelt(
    model: LOGER, tmp_path: Path
) -> None:
    model.save(tmp_path / "b")
    rows = [
        "c1,P001,2024-03-12T10:00:00",
        "c1,P004,13.03.2024 11:00",
        "c2,P005,soon",
        "c3,POO1,12.03.2024",
    ]
    (tmp_path / "new.csv").write_text("\n".join(["Customer,Article,Ordered", *rows]) + "\n")
    asked = ["update", str(tmp_path / "b"), "--interactions", str(tmp_path / "new.csv"), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    notes = {
        n["what"]: (n["count"], n["example"])
        for n in json.loads(done.stdout)["updates"][-1]["notes"]
    }
    (untimed,) = [n for what, n in notes.items() if "without a time" in what]
    assert untimed[0] == 1
    (strange,) = [n for what, n in notes.items() if "neither in the model" in what]
    assert strange == (1, "POO1")


def test_items_that_their_table_lacks_are_noted() -> None:
    made = loger.from_tables(orders(), products().filter(pl.col("SKU") != "P001"))
    (note,) = [n for n in made.notes if "not in the items" in n.what]
    assert (note.count, note.example) == (1, "P001")


def test_an_update_reads_tables_as_the_build_did(model: LOGER) -> None:
    new = pl.DataFrame(
        {"Customer": ["c1", "newcomer"], "Article": ["P048", "P050"],
         "Ordered": ["12.03.2024 10:00", "12.03.2024 11:00"]}
    )  # fmt: skip
    later = model.update(new, items=products(4, first=N))
    words, graph = later.graph_.vocabulary, loger.graph.whole(later.graph_)
    item = words.id("item", "P049")
    assert words.labels[item] == "Lamp no. 49"
    facts = {
        (graph.relation_name(r), words.names[int(e)])
        for r in range(len(graph.relations))
        for e in graph.neighbours(item, r)
    }
    assert facts == {("has_maker", "Maker 1"), ("has_price_range", "Price (EUR)|5 of 5")}
    assert later.history("c1")["item"][0] == "P048"
    assert later.history("newcomer")["item"].to_list() == ["P050"]
    # Stock and pictures are stored next to the graph, for new items too.
    sold_out = later.recommend("c1", 60, include="in_stock=no")["item"]
    assert set(sold_out) >= {"P000"} or "P000" in later.owned("c1")
    listed = set(later.recommend("newcomer", 60, include="in_stock=yes")["item"])
    assert "P049" in listed and "P048" not in listed
    assert later.catalogue_.images[item - later.graph_.n_users] == "pictures/49.png"


def test_a_new_item_points_to_items_that_the_model_knows() -> None:
    similar = [f"P{(k + 1) % N:03d}" for k in range(N)]
    made = loger.from_tables(orders(), products().with_columns(pl.Series("Similar", similar)))
    new = products(2, first=N).with_columns(pl.Series("Similar", ["P003", "P049"]))
    graph = made.graph(np.arange(len(made.interactions)))
    told = read_changes(made.catalogue.mapping, graph, {"items": new})
    pointing = told.facts.filter(pl.col("relation") == "similar").select("head", "tail")
    assert pointing.rows() == [("P048", "P003"), ("P049", "P049")]
    assert not [n for n in told.notes if "no item has them" in n.what]


def test_what_an_item_no_longer_has_is_removed_beside_the_graph(model: LOGER) -> None:
    rows = [("P001", "has_in_stock", "yes")]
    less = model.remove(facts=rows)
    assert "P001" not in set(less.recommend("c3", 60, include="in_stock=yes")["item"])
    more = less.update(facts=rows)
    assert "P001" in {*more.recommend("c3", 60, include="in_stock=yes")["item"], *more.owned("c3")}


def test_an_item_that_goes_leaves_the_catalogue(model: LOGER) -> None:
    fewer = model.remove(items=["P001"])
    before, after = (m.catalogue_.filter_only[-1] for m in (model, fewer))
    assert len(after.items) == len(before.items) - 1
    assert "pictures/1.png" not in fewer.catalogue_.images.values()
    names = fewer.items
    for item, file in fewer.catalogue_.images.items():
        assert int(names[item][1:]) == int(Path(file).stem)


def test_the_command_updates_from_the_shops_own_tables(model: LOGER, tmp_path: Path) -> None:
    model.save(tmp_path / "b")
    products(2, first=N).write_csv(tmp_path / "new products.csv", separator=";")
    asked = ["update", str(tmp_path / "b"), "--items", str(tmp_path / "new products.csv")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "2 items" in done.output
    assert LOGER.load(tmp_path / "b").items[-1] == "P049"


def test_a_hostile_catalogue_is_refused() -> None:
    column = FilterOnlyColumn.of("has_stock", "stock", [("yes", 0), ("yes", 5)])
    column.check(6)
    with pytest.raises(loger.LogerError, match="don't exist"):
        column.check(5)
    swapped = FilterOnlyColumn(
        "has_stock", "stock", ("yes",), column.places, column.items[::-1].copy()
    )
    with pytest.raises(loger.LogerError, match="sorted and distinct"):
        swapped.check(6)
