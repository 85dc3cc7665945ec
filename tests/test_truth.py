"""Every sentence of a model made with the README's commands is true of the shop's tables.

``museum.py`` invents messy tables with planted causes, and recomputes each clause from the CSV
files alone. The large run has as many members as a small museum.
"""

from __future__ import annotations

import json

import polars as pl
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from loger.cli import app
from loger.explain.render import rows
from loger.model import LOGER
from loger.web.app import create_app
from loger.web.config import ServeConfig
from museum import Tables, invent

KINDS = ("new", "has", "last", "both", "after", "same district", "same theme")
SIZES = [
    pytest.param((150, 70), id="small"),
    pytest.param((1500, 430), marks=pytest.mark.long, id="large"),
]


@pytest.fixture(scope="module", params=SIZES)
def shop(request, tmp_path_factory):
    """The tables, and the model that the commands of the README make of them."""
    folder = tmp_path_factory.mktemp("truth")
    members, venues = request.param
    invent(folder, members=members, venues=venues)
    names = {"--interactions": "visits", "--items": "venues", "--users": "members"}
    files = [part for option, name in names.items() for part in (option, folder / f"{name}.csv")]
    target = ["--out", folder / "pass.loger", "--fit", folder / "pass.bundle"]
    made = CliRunner().invoke(app, [*map(str, ["data", "build", "table", *files, *target])])
    assert made.exit_code == 0, made.output
    assert "measured: NDCG@10" in made.stdout
    return folder, LOGER.load(folder / "pass.bundle")


def judge(folder, told, least=3000):
    """Check reasons (user, item, reasons), of which there must be some of each kind."""
    tables = Tables(folder)
    for user, item, reasons in told:
        for reason in reasons:
            group = [m if isinstance(m, str) else m["entity"]["name"] for m in reason["members"]]
            tables.check(user, item, reason["action"], reason["text"], group)
    assert tables.false == []
    for kind in KINDS:
        assert tables.checked[kind] > 20, kind
    assert tables.checked["group"] > 0
    assert sum(tables.checked.values()) >= least
    return tables.checked


def test_what_python_says_is_true(shop):
    folder, model = shop
    lists = model.recommend(k=10, explain=True)
    judge(folder, lists.select("user", "item", "reasons").iter_rows(), least=5000)


def test_what_the_command_says_is_true(shop):
    folder, model = shop
    command = ["recommend", str(folder / "pass.bundle"), *model.users[:60], "--explain", "--json"]
    lists = json.loads(CliRunner().invoke(app, command).stdout)
    assert not any(one["held_out"] for one in lists)
    judge(folder, [(one["user"], r["item"], r["reasons"]) for one in lists for r in one["items"]])


def test_what_an_export_says_is_true(shop):
    folder, _ = shop
    out = folder / "lists.jsonl"
    command = ["recommend", str(folder / "pass.bundle"), "--all", "--explain", "--out", str(out)]
    assert CliRunner().invoke(app, command).exit_code == 0
    lists = pl.read_ndjson(out)
    assert "held_out" not in lists.columns
    judge(folder, lists.select("user", "item", "reasons").iter_rows(), least=5000)


def test_what_the_server_and_its_app_say_is_true(shop):
    """The app shows the explanations of this answer, with the rows that ``render.rows`` makes."""
    folder, model = shop
    told = []
    served = create_app(ServeConfig(str(folder / "pass.bundle")))
    with TestClient(served, base_url="http://localhost") as client:
        for user in model.users[:60]:
            answer = client.get("/v1/recommendations", params={"user": user}).json()
            for why in (row["explanation"] for row in answer["items"]):
                told.append((user, why["item"], why["reasons"]))
                lead = sum(row.contribution for row in rows(why))
                assert why["mean"] + lead == pytest.approx(why["score"], abs=1e-6)
    judge(folder, told)


def test_the_model_for_use_knows_all_that_people_did(shop):
    folder, model = shop
    for user, has in Tables(folder).visited.items():
        assert set(model.owned(user)) == set(has)


def test_planted_causes_are_found(shop):
    """Rules behind the visits have weight, and far more than that of prices, which cause none."""
    _, model = shop
    pairs = zip(model.rules_, model.weights_, strict=True)
    weights = {rule.names[1:]: weight for rule, weight in pairs}
    shared = {
        column: weights.get((f"has_{column}", f"has_{column}⁻¹"), 0.0)
        for column in ("district", "theme", "price_range")
    }
    assert min(weights[("followed_by",)], shared["district"], shared["theme"]) > 0.5
    assert min(shared["district"], shared["theme"]) > 3 * shared["price_range"]


def test_the_checker_finds_what_is_false(tmp_path):
    invent(tmp_path, members=40, venues=30)
    tables = Tables(tmp_path)
    member, has = next((m, has) for m, has in tables.visited.items() if len(has) > 5)
    one, item = next(iter(has)), next(v for v in tables.venues if v not in has)
    name, other = tables.venues[one]["name"], tables.venues[item]["name"]
    n, late = tables.both(one, item), tables.after(one, item, 5)
    for action, text, kinds in (
        (f"you visited {name}", f"{n + 3} people visited both", ["both"]),
        (f"you visited {name} last", "similar overall (learned)", ["last"]),
        (f"you visited {other}", "similar overall (learned)", ["has"]),
        (f"you visited {name}", f"{late + 4} people visited this with it or up to 5 items later",
         ["after"]),
        (f"you visited {name}", "same district (Atlantis)", ["same district"]),
        (f"you visited {name}", "it is simply good", ["learned"]),
    ):  # fmt: skip
        tables.false.clear()
        tables.check(member, item, action, text)
        assert [kind for kind, *_ in tables.false] == kinds
    two, three = list(has)[:2]
    names = " and ".join(tables.venues[venue]["name"] for venue in (two, three))
    least = min(tables.both(venue, item) for venue in (two, three))
    for text, kinds in (
        (f"You visited {names}: in each case, at least {least + 3} people visited both",
         ["group both"]),
        (f"You visited {names}: same district (Atlantis)", ["same district"] * 2),
        (f"You visited {name} and {other}: similar overall (learned)", ["group"]),
        (f"You visited {names}", ["group", "learned"]),
        (f"You visited {names}: the rest of your history", ["learned"]),
    ):  # fmt: skip
        tables.false.clear()
        tables.check(member, item, "", text, [two, three])
        assert [kind for kind, *_ in tables.false] == kinds
    tables.false.clear()
    tables.check(member, one, f"you visited {name}", "similar overall (learned)")
    assert [kind for kind, *_ in tables.false] == ["new"]
