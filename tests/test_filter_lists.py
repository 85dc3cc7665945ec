"""Several filters: values of one column are alternatives, other filters must all hold."""

from __future__ import annotations

import json

import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.config import LOGERConfig
from loger.encoder import TransEConfig
from loger.errors import LogerError
from loger.model import LOGER
from loger.tables.table import from_tables
from loger.tables.values import as_numbers
from messy_shop import invent

SMALL = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters")
    invent(folder)
    items = pl.read_csv(folder / "items.csv").with_row_index("k")
    # Prices are cut into ranges; years are few enough to be kinds.
    items = items.with_columns(price=(pl.col("k") * 7 % 50) / 2 + 1, year=2015 + pl.col("k") % 8)
    return pl.read_csv(folder / "orders.csv"), items.drop("k")


@pytest.fixture(scope="module")
def model(once, tables):
    return LOGER.load(once("filters", lambda to: LOGER(SMALL).fit(from_tables(*tables)).save(to)))


def fitting(model, tables, *include, **more):
    """What lists as long as the catalogue have, as rows of the table of items."""
    lists = model.recommend(model.users[:40], 60, include=list(include), **more)
    assert lists.height
    return tables[1].filter(pl.col("item_id").is_in(lists["item"].unique().implode()))


def test_values_of_one_column_are_alternatives_and_other_columns_must_fit_too(model, tables):
    found = fitting(model, tables, "brand=Acme", "has_brand=Ewe", "category=lamp")
    assert set(found["brand"]) == {"Acme", "Ewe"} and set(found["category"]) == {"lamp"}
    found = fitting(model, tables, "brand=Acme OR brand=Ewe", "brand=Crème", "category=lamp")
    assert set(found["brand"]) == {"Acme", "Ewe", "Crème"} and set(found["category"]) == {"lamp"}
    found = fitting(model, tables, "brand!=Acme", "brand!=Ewe")
    assert not {"Acme", "Ewe"} & set(found["brand"])


def test_no_item_fits_any_of_the_filters_to_exclude(model, tables):
    found = fitting(model, tables, exclude=["brand=Acme", "category=lamp"])
    assert "Acme" not in found["brand"] and "lamp" not in found["category"]


def test_sets_of_items_are_values_of_the_column_item(model, tables):
    found = fitting(model, tables, {"P001", "P002"}, "item=P003")
    assert set(found["item_id"]) == {"P001", "P002", "P003"}


def test_numbers_are_compared(model, tables):
    assert fitting(model, tables, "price<10")["price"].max() < 10
    assert fitting(model, tables, "price<=10", "price >= 4")["price"].is_between(4, 10).all()
    assert set(fitting(model, tables, "year>=2020")["year"]) == {2020, 2021, 2022}
    both = fitting(model, tables, "price<10 AND NOT year>2016", "category=mug", "category=lamp")
    kind = pl.col("category").is_in(["mug", "lamp"])
    cheap = tables[1].filter((pl.col("price") < 10) & (pl.col("year") <= 2016) & kind)
    assert both.equals(cheap) and len(cheap)


def test_what_is_no_number_is_said(model):
    with pytest.raises(LogerError, match="expected a number after price<, got 'cheap'"):
        model.recommend("u1", include="price<cheap")
    with pytest.raises(LogerError, match="no brand is a number"):
        model.recommend("u1", include="brand<10")
    with pytest.raises(LogerError, match="did you mean 'price'"):
        model.recommend("u1", include="prize<10")


def test_numbers_of_new_items_and_new_numbers_are_compared_too(model, tables):
    items = tables[1]
    new = items[:1].with_columns(item_id=pl.lit("N1"), title=pl.lit("new"), price=pl.lit(0.25))
    changed = items[1:2].with_columns(price=pl.lit(0.5))
    later = model.update(items=pl.concat([new, changed]))
    found = later.recommend(later.users[:40], 60, include="price<0.75")["item"]
    assert set(found) == {"N1", changed["item_id"][0]}


def test_the_command_and_the_server_read_lists_of_filters_alike(model, tables, tmp_path):
    from fastapi.testclient import TestClient

    from loger.web.app import create_app
    from loger.web.config import ServeConfig

    model.save(tmp_path / "b")
    wishes = ["brand=Acme", "brand=Ewe", "category=lamp", "price<20"]
    asked = model.recommend("u1", 20, include=wishes)["item"].to_list()
    assert asked
    options = [x for wish in wishes for x in ("--include", wish)]
    command = ["recommend", str(tmp_path / "b"), "u1", "-k", "20", *options, "--json"]
    (one,) = json.loads(CliRunner().invoke(app, command).stdout)
    assert [row["item"] for row in one["items"]] == asked
    config = ServeConfig(str(tmp_path / "b"), events=False)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        told = client.get("/v1/recommendations", params={"user": "u1", "k": 20, "include": wishes})
        assert [row["item"] for row in told.json()["items"]] == asked


PRICES = ("€12.50", "12.50 EUR", "EUR 12.50", "12,50 €", "free", "1.299,00 €", "€ 7.-", "8 €")


def test_prices_in_mixed_notation_are_numbers(tables):
    orders, items = tables
    shown = pl.Series("price", [PRICES[k % len(PRICES)] for k in range(len(items))])
    dataset = from_tables(orders, items.drop("price").hstack([shown]))
    (price,) = (column for column in dataset.catalogue.filter_only if column.relation == "price")
    assert set(price.values) == {"12.5", "0", "1299", "7", "8"}
    assert len(price.items) == len(items)
    assert not any("price" in note.what for note in dataset.notes)
    mixed = shown.str.replace("8 €", "$8", literal=True)
    told = from_tables(orders, items.drop("price").hstack([mixed])).notes
    assert any("amounts in EUR, USD compared as plain numbers" in note.what for note in told)


def test_filters_write_columns_small_with_underscores(tables):
    orders, items = tables
    items = items.rename({"price": "List Price"})
    columns = from_tables(orders, items).catalogue.filter_only
    assert "list_price" in [column.relation for column in columns]


def test_free_is_a_number_only_beside_money():
    assert as_numbers(pl.Series(["free", "busy", "3"])).to_list() == [None, None, 3.0]
    assert as_numbers(pl.Series(["free", "CHF 1'250.50", "3"])).to_list() == [0.0, 1250.5, 3.0]


def test_rules_over_relations_made_from_interactions_matter_too(model):
    """How often what a user has led to another thing the user has, where others have both."""
    graph, counted = model.graph_, 0
    derived = [(k, r) for k, r in enumerate(model.rules_) if r.derived and model.weights_[k] > 0]
    assert derived
    for user in model.users[:30]:
        table = model.importance(user)
        has = [graph.vocabulary.id("item", v) for v in model.owned(user)]
        for _, rule in derived:
            by = rule.relations[1]
            n = sum(graph.people(a, by, b) > 1 for a in has for b in has)
            row = table.row(by_predicate=pl.col("rule") == str(rule), named=True)
            assert row["n"] == n
            assert (row["importance"] > 0) == (n > 0)
            counted += n
    assert counted > 100
