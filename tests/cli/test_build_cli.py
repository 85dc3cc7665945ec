"""``loger data build``: two commands lead from raw files to a data set you can inspect."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import invented
from loger.cli import app
from loger.data import load
from loger.tables.reviews.amazon import AmazonConfig

SMALL = invented.Sizes(users=80, items=40, reviews=700, words=30)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def raw(tmp_path: Path) -> tuple[Path, Path]:
    return invented.write(tmp_path, sizes=SMALL)


def amazon(raw: tuple[Path, Path], out: Path, *more: object) -> Result:
    reviews, meta = raw
    files = ("--reviews", reviews, "--meta", meta, "--out", out)
    return run("data", "build", "amazon", *files, "--set", "workers=1", *more)


def test_amazon_builds_what_inspect_reads_and_leaves_no_parts(
    raw: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "shop.loger"
    made = amazon(raw, out, "--json")
    assert made.exit_code == 0, made.output
    told: dict[str, Any] = json.loads(made.stdout)
    inspected = json.loads(run("data", "inspect", out, "--json").stdout)
    assert told["statistics"]["triples"] == inspected["facts"]
    assert {n["what"] for n in told["notes"]} == {n["what"] for n in inspected["notes"]}
    assert load(out).n_users == told["statistics"]["users"]
    assert not out.with_name("shop.loger.work").exists()


def test_a_preset_shows_the_papers_figures_beside_ours(
    raw: tuple[Path, Path], tmp_path: Path
) -> None:
    shown = amazon(raw, tmp_path / "o", "--preset", "automotive", "--set", "user_core=2")
    assert shown.exit_code == 0, shown.output
    row = next(line.split() for line in shown.stdout.splitlines() if "#triples" in line)
    assert row[-1] == "4,580,318"
    unknown = amazon(raw, tmp_path / "p", "--preset", "groceries")
    assert unknown.exit_code == 2
    assert "'grocery'" in unknown.output


def test_parts_that_are_kept_serve_the_next_build(raw: tuple[Path, Path], tmp_path: Path) -> None:
    work = tmp_path / "work"
    kept_there = ("--set", f"work={work}")
    assert amazon(raw, tmp_path / "a", *kept_there).exit_code == 0
    kept = {p: p.stat().st_mtime_ns for p in work.rglob("*.parquet")}
    assert kept
    assert amazon(raw, tmp_path / "b", *kept_there, "--set", "user_core=3").exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in work.rglob("*.parquet")} == kept


def test_strict_and_a_full_folder_end_with_one_line(raw: tuple[Path, Path], tmp_path: Path) -> None:
    strict = amazon(raw, tmp_path / "o", "--set", "strict=true")
    assert strict.exit_code == 2
    assert strict.stderr.splitlines()[-1].startswith(f"error: {raw[0]}:")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    assert "is not empty and not a saved data set" in amazon(raw, full, "--force").output
    (full / "mine.txt").unlink()
    assert amazon(raw, full).exit_code == 0
    assert (
        "already contains a saved data set; choose a new folder, or pass --force"
        in amazon(raw, full).output
    )


def test_the_help_names_every_setting_of_the_library() -> None:
    shown = " ".join(run("data", "build", "amazon", "--help").output.split())
    names = [setting.name for setting in fields(AmazonConfig)]
    assert len(names) > 3
    assert [name for name in names if name not in shown] == []


ORDERS = "customer,product,day\n" + "".join(
    f"c{k % 8},p{(k * 7) % 12},2024-01-{k % 27 + 1:02d}\n" for k in range(60)
)
ITEMS = "product,title,brand,price\n" + "".join(
    f"p{k},Thing {k},B{k % 3},{k * 1.5}\n" for k in range(12)
)


def test_tables_of_a_shop_nobody_has_seen_take_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text(ORDERS)
    Path("items.csv").write_text(ITEMS)
    given = ("--interactions", "orders.csv", "--items", "items.csv", "--out", "shop.loger")
    only = run("data", "build", "table", *given, "--propose")
    assert only.exit_code == 0, only.output
    assert "has_brand" in only.stdout
    assert not Path("shop.loger").exists()
    text = Path("shop.loger.toml").read_text().replace("has_brand", "made_by")
    Path("shop.loger.toml").write_text(text)
    again = ("--mapping", "shop.loger.toml", "--out", "shop.loger", "--json")
    told = json.loads(run("data", "build", "table", *again).stdout)
    assert "made_by" in told["relations"]
    assert load("shop.loger").n_items == 12
    kept = run("data", "build", "table", *given, "--force")  # the mapping was edited
    assert kept.exit_code == 2 and "--mapping shop.loger.toml" in kept.output
    Path("shop.loger.toml").unlink()
    fresh = run("data", "build", "table", *given, "--force")
    assert "has_brand" in fresh.stdout
    assert (
        "either --interactions or --mapping" in run("data", "build", "table", "--out", "x").output
    )


def wine_shop(folder: Path) -> dict[str, str]:
    """Three tables of a shop whose customers keep to one grape; gives the grape of each wine."""
    rng = np.random.default_rng(0)
    grapes = ["Riesling", "Merlot", "Syrah", "Malbec"]
    wines = [(f"W{k}", f"Wine {k}", grapes[k % 4], f"{5 + k / 2:.2f}") for k in range(100)]
    people = [(f"c{k}", ["DE", "FR"][k % 2]) for k in range(120)]
    orders = []
    for k, (person, _) in enumerate(people):
        own = [w[0] for w in wines if w[2] == grapes[k % 4]]
        bought = [*rng.choice(own, 8, replace=False), *rng.choice([w[0] for w in wines], 2)]
        orders += [(person, wine, f"2023-{m + 1:02d}-01") for m, wine in enumerate(bought)]
    for name, head, rows in (
        ("orders", "customer,wine,day", orders),
        ("wines", "wine,title,grape,price", wines),
        ("people", "customer,country", people),
    ):
        lines = [head, *(",".join(row) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return {wine: grape for wine, _, grape, _ in wines}


def test_two_commands_lead_from_three_tables_to_explained_recommendations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grape = wine_shop(tmp_path)
    tables = ("--interactions", "orders.csv", "--items", "wines.csv", "--users", "people.csv")
    built = run("data", "build", "table", *tables, "--out", "shop.loger", "--fit", "shop.bundle")
    assert built.exit_code == 0, built.output
    told = run("recommend", "shop.bundle", "c1", "--explain", "-k", 5)
    assert told.exit_code == 0, told.output
    assert "ame grape" in " ".join(told.stdout.split())
    lists = json.loads(run("recommend", "shop.bundle", "c1", "-k", 5, "--json").stdout)
    items = [item["item"] for item in lists[0]["items"]]
    assert sum(grape[item] == "Merlot" for item in items) >= 4
