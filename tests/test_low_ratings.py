"""A low rating never brings more of the same: not in a fit, an update or an event."""

from __future__ import annotations

import polars as pl
import pytest

from loger.config import LOGERConfig
from loger.encoder import TransEConfig
from loger.model import LOGER
from loger.tables.table import from_tables
from messy_shop import invent

SMALL = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("ratings")
    invent(place)
    return place


@pytest.fixture(scope="module")
def orders(folder):
    """Orders, each third rated low."""
    table = pl.read_csv(folder / "orders.csv").unique(["customer", "product"], maintain_order=True)
    stars = pl.Series("stars", [(1, 4, 5)[k % 3] for k in range(len(table))])
    return table.hstack([stars])


@pytest.fixture(scope="module")
def rated(folder, orders):
    return LOGER(SMALL).fit(from_tables(orders, pl.read_csv(folder / "items.csv")))


@pytest.fixture(scope="module")
def plain(folder):
    """A model that knows no ratings."""
    tables = pl.read_csv(folder / "orders.csv"), pl.read_csv(folder / "items.csv")
    return LOGER(SMALL).fit(from_tables(*tables))


def test_a_fit_leaves_low_ratings_out_and_says_so(folder, orders, rated):
    dataset = from_tables(orders, pl.read_csv(folder / "items.csv"))
    told = {note.what: note.count for note in dataset.notes}
    assert told["interactions rated below 3 counted as dislikes"] > 0
    low = orders.filter((pl.col("stars") == 1) & (pl.col("customer") == "u1"))
    assert not set(low["product"]) & set(rated.owned("u1"))
    assert rated.lowest_positive == 3


@pytest.mark.parametrize("name", ["rated", "plain"])
def test_an_update_leaves_low_ratings_out_and_says_so(name, request):
    model = request.getfixturevalue(name)
    assert model.lowest_positive == 3
    free = [v for v in model.items if v not in model.owned("u1")][:2]
    times = int(model.graph_.times.max()) + 1
    rows = [
        {"user": "u1", "item": item, "rating": rating, "time": times}
        for item, rating in zip(free, (1, 5), strict=True)
    ]
    later = model.update(rows)
    assert free[0] not in later.owned("u1") and free[1] in later.owned("u1")
    (note,) = later.updates_.log[0].notes
    assert (note.what, note.count) == ("interactions rated below 3 counted as dislikes", 1)


@pytest.mark.parametrize("name", ["rated", "plain"])
def test_an_event_with_a_low_rating_is_no_reason(name, request, tmp_path):
    from fastapi.testclient import TestClient

    from loger.web.app import create_app
    from loger.web.config import ServeConfig

    model = request.getfixturevalue(name)
    model.save(tmp_path / "b")
    low, high = [v for v in model.items if v not in model.owned("u1")][:2]
    config = ServeConfig(str(tmp_path / "b"), merge_interval=0)
    with TestClient(create_app(config), base_url="http://localhost") as client:

        def told():
            lists = client.get("/v1/recommendations", params={"user": "u1"}).json()["items"]
            said = [r["entity"]["name"] for row in lists for r in row["explanation"]["reasons"]]
            return [row["item"] for row in lists], said

        before = told()
        for item, rating in ((low, 1), (high, 5)):
            event = {"kind": "interaction", "user": "u1", "item": item, "rating": rating}
            assert client.post("/v1/events", json={"events": [event]}).status_code == 200
            if item == low:
                assert told() == before
        assert high in told()[1]
