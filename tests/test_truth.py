"""Every sentence of a model that was made by the README's commands is true of the shop's tables.

The tables are messy: repeated lines, things bought again, rows without a user or a time, values
that only one item has. What is said is computed again from the CSV files, in plain Python.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import defaultdict
from datetime import UTC, datetime

import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.model import LOGER

BRANDS, CATEGORIES = ("Acme", "Bolt & Co", "Crème", "Ewe"), ("lamp", "rack", "tray", "hook", "mug")


def invent(folder, seed=3, users=140, items=60):
    """Orders and items of a shop in which people like a brand and a category, and buy one thing
    after another."""
    rng = random.Random(seed)
    goods = [(f"P{k:03d}", rng.choice(BRANDS), rng.choice(CATEGORIES)) for k in range(items)]
    with (folder / "items.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["item_id", "title", "brand", "category"])
        for k, (item, brand, category) in enumerate(goods):
            out.writerow([item, f"{category} no. {k}", "" if k % 11 == 0 else brand, category])
    rows = []
    for u in range(users):
        time, brand, category, has = 1_600_000_000, rng.choice(BRANDS), rng.choice(CATEGORIES), []
        for _ in range(rng.randrange(6, 13)):
            free = [k for k in range(items) if k not in has]
            liked = [k for k in free if brand in goods[k] or category in goods[k]]
            follows = (has[-1] * 7 + 3) % items if has else -1
            pick = rng.choice(liked or free)
            if follows in free and rng.random() < 0.4:
                pick = follows
            has.append(pick)
            time += rng.randrange(3_600, 10**6)
            rows.append((f"u{u}", goods[pick][0], time))
            rows += [rows[-1]] * (rng.random() < 0.05)
            if rng.random() < 0.1:  # an old thing, once more
                rows.append((f"u{u}", goods[rng.choice(has)][0], time + 60))
    rng.shuffle(rows)
    with (folder / "orders.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["customer", "product", "when"])
        for k, (user, item, time) in enumerate(rows):
            when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
            out.writerow([f" {user}" if k % 50 == 0 else user, item, when])
            if k % 97 == 0:
                out.writerow(["", item, when])
            if k % 89 == 0:
                out.writerow([user, item, "some day"])


SAME = r"[Ss]ame (brand|category)(?: as your [^;(]+)? \(([^)]+)\)"


class Tables:
    """The CSV files, and what they say."""

    def __init__(self, folder):
        rows = defaultdict(list)
        with (folder / "orders.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                user, item = row["customer"].strip(), row["product"]
                if user:
                    rows[user].append((item, row["when"].replace("some day", "")))
        self.bought = {user: self.history(own) for user, own in rows.items()}
        with (folder / "items.csv").open(encoding="utf-8") as file:
            self.items = {row["item_id"]: row for row in csv.DictReader(file)}
        self.ids = {row["title"]: item for item, row in self.items.items()}

    def history(self, rows):
        """What a user has, in order, with its latest time; a row without a time comes first."""
        first = min(time for _, time in rows if time)
        times = [(item, time or first) for item, time in rows]
        order = [item for item, _ in sorted(times, key=lambda row: row[1])]
        latest = {item: max(t for i, t in times if i == item) for item in order}
        return dict(sorted(latest.items(), key=lambda row: row[1]))

    def both(self, one, other):
        return sum(one in has and other in has for has in self.bought.values())

    def after(self, one, other, window):
        """How many have the other at most so many things later, by time, then by row."""
        n = 0
        for has in self.bought.values():
            order = list(has)
            if one in has and other in has:
                n += 0 < order.index(other) - order.index(one) <= window
        return n

    def check(self, user, item, action, text):
        """How many statements a reason makes, and those that are false."""
        found = re.fullmatch(r"you bought (.+? no\. \d+)( last)?(?:, (\d+) times)?", action)
        assert found, action
        one, (_, last, _) = self.ids[found[1]], found.groups()
        has, claims = self.bought[user], [("has", found[1] and one in self.bought[user], True)]
        claims.append(("new", item in has, False))
        if last:
            claims.append(("last", has[one], max(has.values())))
        both = re.findall(r"(\d+) people bought both", text)
        after = re.findall(r"(\d+) people bought this with it or up to (\d+) items later", text)
        claims += [("both", int(n), self.both(one, item)) for n in both]
        claims += [("after", int(n), self.after(one, item, int(window))) for n, window in after]
        for column, value in re.findall(SAME, text):
            values = {self.items[one][column], self.items[item][column]}
            claims.append((column, {value}, values))
        kinds = [kind for kind, *_ in claims]
        return kinds, [(user, item, text, *c) for c in claims if c[1] != c[2]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop, and the model that the commands of the README make of it."""
    folder = tmp_path_factory.mktemp("truth")
    invent(folder)
    files = ["--interactions", folder / "orders.csv", "--items", folder / "items.csv"]
    target = ["--out", folder / "shop.loger", "--fit", folder / "shop.bundle"]
    command = [*map(str, ["data", "build", "table", *files, *target])]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    assert "measured: NDCG@10" in made.stdout
    model = LOGER.load(folder / "shop.bundle")
    return folder, model, Tables(folder)


def judge(tables, told):
    """Check reasons (user, item, action, text), of which there must be some of each kind."""
    kinds, wrong = [], []
    for row in told:
        said, false = tables.check(*row)
        kinds, wrong = kinds + said, wrong + false
    assert wrong == []
    for kind in ("last", "both", "after", "brand", "category"):
        assert kinds.count(kind) > 20, kind


def test_what_python_says_is_true(shop):
    _, model, tables = shop
    lists = model.recommend(k=5, explain=True)
    rows = lists.select("user", "item", "reasons").iter_rows()
    judge(tables, [(u, v, r["action"], r["text"]) for u, v, told in rows for r in told])


def test_what_the_command_says_is_true(shop):
    folder, model, tables = shop
    asked = [x for user in model.users[:60] for x in (user)]
    place = str(folder / "shop.bundle")
    told = CliRunner().invoke(app, ["recommend", place, *asked, "--explain", "--json"])
    lists = json.loads(told.stdout)
    assert not any(one["held_out"] for one in lists)
    judge(
        tables,
        [
            (one["user"], row["item"], reason["action"], reason["text"])
            for one in lists
            for row in one["items"]
            for reason in row["reasons"]
        ],
    )


def test_what_an_export_says_is_true(shop):
    folder, _, tables = shop
    out = folder / "lists.jsonl"
    command = ["recommend", str(folder / "shop.bundle"), "--all", "--explain", "--out", str(out)]
    assert CliRunner().invoke(app, command).exit_code == 0
    lists = pl.read_ndjson(out)
    assert "held_out" not in lists.columns
    rows = lists.select("user", "item", "reasons").iter_rows()
    judge(tables, [(u, v, r["action"], r["text"]) for u, v, told in rows for r in told])


def test_the_model_for_use_knows_all_that_people_bought(shop):
    _, model, tables = shop
    for user, has in tables.bought.items():
        assert set(model.owned(user)) == set(has)
