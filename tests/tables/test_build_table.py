"""A shop's tables: the proposed mapping, what an edited mapping changes, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from loger.data import Dataset, frames
from loger.errors import DataError
from loger.tables.mapping import Column, EntityTable, InteractionTable, TableMapping
from loger.tables.propose import propose
from loger.tables.table import build
from loger.tables.values import as_moments, as_numbers, cells, separator_of

pd = pytest.importorskip("pandas")

Names = Callable[[Dataset], set[tuple[str, str, str]]]
Notes = Callable[[Dataset], dict[str, int]]

GRAPES, LANDS = ("Merlot", "Syrah", "Pinot"), ("France", "Chile")
WINES = 24


def wines() -> list[dict[str, object]]:
    return [
        {
            "sku": f"W{k:02d}",
            "name": f'Château "No. {k}"',
            "grape": GRAPES[k % 3],
            "country": LANDS[k % 2],
            "tags": "|".join(["dry", "oak", "organic"][k % 3 :][:2]),
            "price": f"${5 + k}.50",
            "photo": f"https://x.org/{k}.jpg",
            "description": f"A wine with notes of {['cherry', 'plum', 'smoke'][k % 3]},\n"
            "grown on slopes near the river.",
            "similar": f"W{(k + 1) % WINES:02d};W{(k + 2) % WINES:02d}",
            "shelf": "A",
        }
        for k in range(WINES)
    ]


def people() -> list[dict[str, object]]:
    return [{"customer": f"c{k}", "land": LANDS[k % 2], "age": 20 + k} for k in range(16)]


def orders() -> list[dict[str, object]]:
    texts = ("Great taste.", "The cork was broken.", None)
    return [
        {
            "order_no": f"o{k}-{j}",
            "customer_id": f"c{k}",
            "wine": f"W{(5 * k + j) % WINES:02d}",
            "ordered_at": f"2023-0{j + 1}-1{k % 9}",
            "qty": j,
            "comment": texts[(k + j) % 3],
        }
        for k in range(16)
        for j in range(4)
    ]


TABLES = {"orders": orders, "wines": wines, "people": people}


def files(folder: Path, ending: str) -> list[Path]:
    paths = []
    for name, rows in TABLES.items():
        frame, path = pl.DataFrame(rows()), folder / f"{name}{ending}"
        if ending == ".csv":
            frame.write_csv(path, separator=";" if name == "people" else ",")
        elif ending == ".parquet":
            frame.write_parquet(path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
        paths.append(path)
    return paths


@pytest.fixture
def proposed(tmp_path: Path) -> TableMapping:
    paths = files(tmp_path, ".csv")
    return propose(*(frames.read(p) for p in paths), name="wines", files=paths)


def test_each_column_is_proposed_as_what_it_is(proposed: TableMapping) -> None:
    said = proposed.interactions
    assert (said.user, said.item, said.time, said.rating) == (
        "customer_id",
        "wine",
        "ordered_at",
        "",
    )
    assert said.strength == "qty"
    assert proposed.items is not None
    assert (proposed.items.id, proposed.items.label) == ("sku", "name")
    assert proposed.users is not None
    assert proposed.users.id == "customer"
    assert {(t, c.column): c.take for t, c in proposed.columns()} == {
        ("interactions", "order_no"): "leave out",
        ("interactions", "comment"): "aspects",
        ("items", "grape"): "entity",
        ("items", "country"): "entity",
        ("items", "tags"): "list",
        ("items", "price"): "bins",
        ("items", "photo"): "image",
        ("items", "description"): "keywords",
        ("items", "similar"): "items",
        ("items", "shelf"): "leave out",
        ("users", "land"): "entity",
        ("users", "age"): "bins",
    }
    assert all(c.why for _, c in proposed.columns())


def test_the_graph_of_a_shop(proposed: TableMapping, facts_of: Names) -> None:
    dataset = build(proposed)
    facts = facts_of(dataset)
    assert {t for h, r, t in facts if h == "W00" and not r.startswith("has_feature")} == {
        "Merlot", "France", "dry", "price|1 of 5", "cherry", "W01", "W02",
    }  # fmt: skip
    assert not any(t == "oak" for _, _, t in facts), "two thirds of the items have it"
    assert ("c0", "has_land", "France") in facts
    assert ("c0", "has_age_range", "age|1 of 5") in facts
    labels = dict(zip(dataset.vocabulary.names, dataset.vocabulary.labels, strict=True))
    assert labels["W03"] == 'Château "No. 3"'
    assert labels["price|1 of 5"] == "price 5.5–10.1"
    assert dataset.interactions.times is not None
    assert dataset.interactions.times[0] == 1673308800  # 2023-01-10


def test_what_a_comment_says_has_its_interaction_as_the_source(proposed: TableMapping) -> None:
    dataset = build(proposed)
    names, facts, events = dataset.vocabulary.names, dataset.facts, dataset.interactions
    comments = {(o["customer_id"], o["wine"]): o["comment"] for o in orders()}
    words = {"taste|great|+1": "Great taste.", "cork|broken|-1": "The cork was broken."}
    seen = 0
    for h, r, t, s in zip(facts.heads, facts.relations, facts.tails, facts.sources, strict=True):
        relation = dataset.relations[r].name
        assert (s >= 0) == (relation in ("mentions", "has_feature"))
        if s >= 0:
            pair = names[events.users[s]], names[dataset.n_users + events.items[s]]
            assert names[h] == pair[relation == "has_feature"]
            assert comments[pair] == words[names[t]]
            seen += 1
    assert seen == 2 * sum(c is not None for c in comments.values())


def test_all_ways_to_give_the_tables_make_the_same_data(tmp_path: Path) -> None:
    made = []
    given: list[list[object]] = [list(files(tmp_path, e)) for e in (".csv", ".parquet", ".jsonl")]
    given.append([pl.DataFrame(rows()) for rows in TABLES.values()])
    given.append([pd.DataFrame(rows()) for rows in TABLES.values()])
    for k, sources in enumerate(given):
        read = [frames.read(source) for source in sources]
        dataset = build(propose(*read, name="wines"), *sources)
        dataset.save(tmp_path / f"saved{k}")
        saved = {p.name: p.read_bytes() for p in (tmp_path / f"saved{k}").iterdir()}
        made.append(saved)
    assert all(saved == made[0] for saved in made[1:])


def test_a_mapping_is_the_same_after_writing_and_reading(
    proposed: TableMapping, tmp_path: Path
) -> None:
    path = tmp_path / "shop.toml"
    proposed.save(path)
    bare = [replace(c, why="") for _, c in proposed.columns()]
    back = TableMapping.load(path)
    assert [c for _, c in back.columns()] == bare
    assert back.interactions.user == "customer_id"
    assert (back.name, back.hub_share) == (proposed.name, proposed.hub_share)
    assert Path(back.interactions.file).samefile(tmp_path / "orders.csv")
    assert 'file = "orders.csv"' in path.read_text()


def test_what_is_edited_in_the_file_is_what_is_built(
    proposed: TableMapping, tmp_path: Path, facts_of: Names
) -> None:
    path = tmp_path / "shop.toml"
    proposed.save(path)
    text = path.read_text().replace('relation = "has_grape"', 'relation = "made_of"')
    text = text.replace(
        'column = "country"\ntake = "entity"', 'column = "country"\ntake = "leave out"'
    )
    path.write_text(text)
    facts = facts_of(build(TableMapping.load(path)))
    assert ("W00", "made_of", "Merlot") in facts
    assert not any(r in ("has_grape", "has_country") for _, r, _ in facts)


@pytest.mark.parametrize(
    ("edit", "error", "match"),
    [
        (('take = "list"', 'take = "lists"'), DataError, "did you mean 'list'"),
        (('label = "name"', 'lable = "name"'), DataError, "did you mean 'items.label'"),
        (('column = "grape"', 'column = "grapes"'), DataError, r"wines\.csv: .*column 'grapes'"),
        (('user = "customer_id"', ""), DataError, r"interactions\.user is missing; add it"),
        (("least = 2", 'least = "two"'), DataError, "least must be int, got 'two'"),
        (("least = 2", "least = = 2"), DataError, "not valid TOML"),
        (('file = "orders.csv"', 'file = "none.csv"'), DataError, r"none\.csv: .* no such file"),
        (('take = "aspects"', 'take = "bins"'), DataError, "'comment' of the interactions can't"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file_are_errors_that_say_where(
    proposed: TableMapping, tmp_path: Path, edit: tuple[str, str], error: type, match: str
) -> None:
    path = tmp_path / "shop.toml"
    proposed.save(path)
    text = path.read_text()
    assert edit[0] in text
    path.write_text(text.replace(*edit))
    with pytest.raises(error, match=match):
        build(TableMapping.load(path))


BAD = """user,item,rating,when
a,i,5,2023-01-01
,i,5,2023-01-01
b,,5,2023-01-01
c,i,five,2023-01-01
d,i,4,soon
e,j,4,2023-01-02
"""


def test_rows_that_cannot_be_used_are_told_or_with_strict_refused(
    tmp_path: Path, notes_of: Notes
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(BAD)
    said = TableMapping(InteractionTable("user", "item", str(path), rating="rating", time="when"))
    dataset = build(said)
    told = notes_of(dataset)
    for what in ("no user", "no item", "the rating is not a number"):
        assert told[f"rows of orders.csv left out: {what}"] == 1
    assert told["rows of orders.csv: unreadable time; treated as the user's first"] == 1
    assert dataset.interactions.times is not None
    when = dict(zip("ade", dataset.interactions.times.tolist(), strict=True))
    assert when["d"] == when["a"] < when["e"]  # d has no other: the first of all
    with pytest.raises(DataError, match=r"orders\.csv:3: no user"):
        build(said, strict=True)


def test_lines_are_counted_through_cells_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('id,text\n1,"two\nlines"\n2,"one"\n\n3\n')
    with pytest.raises(DataError, match=r"t\.csv:6: the row should have 2 columns"):
        frames.read(path)
    path.write_text('id,text\n1,"two\nlines"\n2,"one"\n')
    assert frames.read(path)["line"].to_list() == [2, 4]


def test_a_column_called_line_and_nested_json_are_kept_under_other_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,line\na,7\n")
    (tmp_path / "t.jsonl").write_text(
        '{"id": "a", "line": 7, "made": {"by": "x", "in": ["y", 1]}}\n'
    )
    pl.DataFrame({"id": ["a"], "line": [7]}).write_parquet(tmp_path / "t.parquet")
    for source in ("t.csv", "t.jsonl", "t.parquet"):
        frame = frames.read(tmp_path / source)
        assert (str(frame["line_"][0]), frame["line"][0] in (1, 2)) == ("7", True)
    nested = frames.read(tmp_path / "t.jsonl")
    assert (nested["made.by"][0], nested["made.in"].to_list()) == ("x", [["y", "1"]])


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("t.xlsx", "x", "as a table"),
        ("t.csv", "a,a\n1,2\n", r"t\.csv:1: the header has an empty or repeated"),
        ("t.csv", "a,b\n", "has a header but no rows"),
        ("t.jsonl", '{"a": 1}\nnope\n', r"t\.jsonl:2: the line isn't a JSON object"),
        ("t.parquet", "nope", "can't read the file as Parquet"),
    ],
)
def test_tables_that_cannot_be_read_say_why(
    tmp_path: Path, name: str, content: str, match: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=match):
        frames.read(tmp_path / name)


def test_without_a_column_that_names_the_user_it_asks_for_one() -> None:
    table = frames.read(pl.DataFrame({"x": ["a", "b"], "product": ["i", "j"]}))
    with pytest.raises(DataError, match="--set user_column=NAME"):
        propose(table)
    assert propose(table, user="x").interactions.user == "x"
    with pytest.raises(DataError, match="there is no column 'y'"):
        propose(table, user="y")


def test_whole_numbers_are_not_taken_for_ids_of_items_by_chance() -> None:
    ids = range(50)
    links = {"stock": [k % 40 for k in ids], "also_like": [(k + 1) % 50 for k in ids]}
    items = frames.read(pl.DataFrame({"id": ids} | links))
    bought = {"user": [k % 9 for k in range(99)], "item": [k % 50 for k in range(99)]}
    events = frames.read(pl.DataFrame(bought))
    take = {c.column: c.take for _, c in propose(events, items).columns()}
    assert take == {"stock": "bins", "also_like": "items"}


def test_users_and_items_below_the_core_go_and_catalogue_items_stay(notes_of: Notes) -> None:
    events = pl.DataFrame({"user": ["a", "a", "b"], "item": ["i", "j", "i"]})
    items = pl.DataFrame({"id": ["i", "j", "new"], "kind": ["x", "x", "x"]})
    said = TableMapping(
        InteractionTable("user", "item"),
        EntityTable("id", columns=(Column("kind", "entity", "has_kind", "kind"),)),
        user_core=2,
        hub_share=1.0,
    )
    dataset = build(said, events, items)
    assert (dataset.n_users, dataset.n_items, len(dataset.interactions)) == (1, 3, 2)
    assert notes_of(dataset)["interactions outside the core left out"] == 1


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2023-05-06", 1683331200),
        ("2023-05-06T10:00:00Z", 1683367200),
        ("2023-05-06 10:00:00.123", 1683367200),
        ("06.05.2023", 1683331200),
        ("1683331200", 1683331200),
        ("13/05/2023", 1683936000),
        ("soon", None),
    ],
)
def test_times_in_all_their_forms(written: str, seconds: int | None) -> None:
    assert as_moments(pl.Series([written]))[0] == seconds


def test_numbers_and_lists_in_all_their_forms() -> None:
    found = as_numbers(pl.Series(["$1,299.00", "5 €", "-3", "1e3", "x", "", None])).to_list()
    assert found == [1299.0, 5.0, -3.0, 1000.0, None, None, None]
    assert cells(pl.Series([1.0, None, 3.0])).to_list() == ["1", None, "3"]
    assert cells(pl.Series([1.5, 2.0])).to_list() == ["1.5", "2.0"]
    assert cells(pl.Series([["a", "b"], []])).to_list() == ["a|b", None]
    assert separator_of(pl.Series(["a, b", "b, c", "a", "c, a"])) == ", "
    assert separator_of(pl.Series(["Ende, Michael", "Zeh, Juli"] * 4)) == ""
    assert separator_of(pl.Series(["$1,200", "$2,300"])) == ""
    assert separator_of(pl.Series(["One of a kind, really", "Never seen, ever before"])) == ""
    assert as_numbers(pl.Series(["1.299,00 €", "12,5", "7"])).to_list() == [1299.0, 12.5, 7.0]
    assert cells(pl.Series(["17.0", None, "3.0"])).to_list() == ["17", None, "3"]
    assert as_moments(pl.Series([20240501, 20240502])).to_list() == [1714521600, 1714608000]
