"""Filters mean the same in Python, on the command line and over HTTP: what brute force finds."""

from __future__ import annotations

import json
import random
import re
import shutil

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from loger.cli import app as commands
from loger.errors import LogerError
from loger.graph.catalogue import Fact, parse
from loger.ranking.selection import select
from loger.web.app import create_app
from loger.web.config import ServeConfig
from web_shop import item_names

FILTERS = 200


@pytest.fixture(scope="module")
def client(bundle, tmp_path_factory):
    """A server of its own: what other tests do to the shared one would change lists."""
    copied = shutil.copytree(bundle, tmp_path_factory.mktemp("filters") / "bundle")
    app = create_app(ServeConfig(str(copied)))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


class Random:
    """Random filters, as text and as what they mean, item by item."""

    def __init__(self, model, masks):
        self.model, self.masks, self.random = model, masks, random.Random(21)
        words = model.graph_.vocabulary
        self.names = {kind: [words.names[e] for e in words.span(kind)] for kind in words.types}
        names = words.names
        heads, relations, tails = model.graph_.triples()
        self.facts = {
            (names[h], model.graph_.relations[r].name, names[t])
            for h, r, t in zip(heads, relations, tails, strict=True)
        }
        given = [r for r in model.graph_.relations if not r.derived]
        types = {r.name: r.tail_type for r in given}
        linked = {r.tail_type for r in given if r.head_type == "item"}
        self.kinds = [
            name
            for name in (*types, *sorted(linked), "item", "mask")
            if types.get(name, name) != "user"
            and name not in ("purchase", "user")
            and (
                name not in types
                or model.graph_.signature(model.graph_.relation_id(name))[0] == "item"
            )
        ]
        self.types = types

    def filter(self, depth=0):
        """A filter and a function of an item's name that says whether it fits."""
        kind = self.random.choice(("fact", "fact", "not", "and", "or") if depth < 3 else ("fact",))
        if kind == "fact":
            return self.fact()
        text, fits = self.filter(depth + 1)
        if kind == "not":
            return f"NOT ({text})", lambda v: not fits(v)
        other, also = self.filter(depth + 1)
        if kind == "and":
            return f"({text}) AND ({other})", lambda v: fits(v) and also(v)
        return f"({text}) OR ({other})", lambda v: fits(v) or also(v)

    def fact(self):
        name = self.random.choice(self.kinds)
        if name == "mask":
            mask = self.random.choice(sorted(self.masks))
            return f"mask={mask}", lambda v: v in self.masks[mask]
        if name == "item":
            item = self.random.choice(self.names["item"])
            return f'item="{item}"', lambda v: v == item
        relations = (
            [name] if name in self.types else [r for r, tail in self.types.items() if tail == name]
        )
        value = self.random.choice(self.names[self.types.get(name, name)])
        sign = self.random.choice(("=", "!="))

        def fits(v):
            has = any((v, r, value) in self.facts for r in relations)
            return has == (sign == "=")

        return f"{name}{sign}{value}", fits


def test_two_hundred_random_filters_mean_the_same_everywhere(client, model, bundle, tmp_path):
    names, rng = item_names(model), random.Random(3)
    masks = {name: set(rng.sample(names, 40)) for name in ("stock", "season")}
    for name, items in masks.items():
        (tmp_path / f"{name}.txt").write_text("\n".join([*sorted(items), "unheard-of"]))
        told = client.put(f"/v1/masks/{name}", json=[*sorted(items), "unheard-of"])
        assert told.json() == {"name": name, "items": 40, "unknown": 1}
    source, users, lengths = Random(model, masks), model.users, set()
    for k in range(FILTERS):
        user, (include, fits), (exclude, bars) = rng.choice(users), source.filter(), source.filter()
        every = model.recommend(user, len(names))["item"].to_list()
        expected = [v for v in every if fits(v) and not bars(v)][:10]
        frame = model.recommend(user, 10, include=include, exclude=exclude, masks=masks)
        assert frame["item"].to_list() == expected, (include, exclude)
        body = {"user": user, "include": [include], "exclude": [exclude], "explain": False}
        answer = client.post("/v1/recommendations", json=body).json()
        assert [row["item"] for row in answer["items"]] == expected, (include, exclude)
        assert [row["score"] for row in answer["items"]] == pytest.approx(frame["score"].to_list())
        if k % 4 == 0:  # opening the bundle again each time takes a while
            files = [
                re.sub(r"mask=(\w+)", rf"mask={tmp_path}/\1.txt", f) for f in (include, exclude)
            ]
            told = run("recommend", bundle, user, "--include", files[0], "--exclude", files[1])
            assert [row["item"] for row in told[0]["items"]] == expected, (include, exclude)
        lengths.add(len(expected))
    assert {0, 10} < lengths  # some leave nothing, some much


def run(*arguments):
    result = CliRunner().invoke(commands, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_sets_frames_masks_and_functions_are_items(model):
    user, names = model.users[3], item_names(model)
    every = model.recommend(user, len(names))["item"].to_list()
    stock = set(names[::3])
    expected = [v for v in every if v in stock]
    mask = np.array([v in stock for v in names])
    for given in (
        stock, frozenset(stock), pl.DataFrame({"item": sorted(stock)}), pl.Series(sorted(stock)),
        np.array(sorted(stock)), mask, lambda v: v in stock, [f"item={v}" for v in stock],
        [mask, "mask=none"], dict.fromkeys(stock).keys(),
    ):  # fmt: skip
        found = model.recommend(user, len(names), include=given, masks={"none": set()})
        assert found["item"].to_list() == expected, type(given)
        rest = model.recommend(user, len(names), exclude=given, masks={"none": set()})
        assert rest["item"].to_list() == [v for v in every if v not in stock]


def test_a_filter_that_cannot_be_read_says_where_and_what_to_write(model):
    brand = model.graph_.vocabulary.names[model.graph_.vocabulary.span("brand").start]
    for text, said in (
        ("brand", "at character 6: expected = after 'brand'"),
        ("brand:x", "write brand=x"),
        ("year>=", "expected a value after year"),
        ("year<new", "expected a number after year<, got 'new'"),
        ("brand=", "expected a value after brand="),
        (f"brand={brand} AND", "expected a fact such as genre=jazz"),
        (f"(brand={brand}", "a closing bracket is missing"),
        (f"brand={brand})", "expected AND or OR before ')'"),
        ("NOT " * 60 + "a=b", "more than 50 levels of brackets"),
        ("", "expected a fact"),
    ):
        with pytest.raises(
            LogerError, match="(?s)in the filter.*" + said.replace("(", "[(]").replace(")", "[)]")
        ):
            model.recommend(model.users[0], include=text)
    for text, said in (
        ("brnd=x", "unknown relation or type 'brnd'; did you mean 'brand'"),
        ("has_brnd=x", "did you mean 'has_brand'"),
        (f"brand={brand}x", f"unknown brand '{brand}x'; did you mean '{brand}'"),
        ("mask=stok", "unknown mask 'stok'; did you mean 'stock'"),
        ("purchase=x", "items have no field 'purchase'; you can filter by "),
    ):
        with pytest.raises(LogerError, match=said):
            model.recommend(model.users[0], include=text, masks={"stock": {item_names(model)[0]}})


def test_what_is_no_filter_is_told_so(model):
    item = item_names(model)[0]
    for given, said in (
        ([item], "is an item, not a filter; write"),
        (5, "include and exclude take a filter"),
        (pl.DataFrame({"sku": [item]}), "needs the column 'item'; it has sku"),
        ({"nothing", "of this"}, "unknown items: none of the 2 given"),
        (np.ones(3, dtype=bool), "a mask needs one value for each of 100 items"),
        ([None], "contains None"),
    ):
        with pytest.raises(LogerError, match=said):
            model.recommend(model.users[0], include=given)
    for wishes, said in (
        ({"diversity": 1.5}, "diversity must be a number from 0 to 1, got 1.5"),
        ({"diversity": float("nan")}, "diversity must be a number from 0 to 1"),
        ({"diversity": True}, "diversity must be a number from 0 to 1"),
        ({"at_most": {"has_brand": 0}}, "whole number of at least 1"),
        ({"at_most": {"has_brnd": 2}}, "did you mean 'has_brand'"),
    ):
        with pytest.raises(LogerError, match=said):
            select(model.graph_, **wishes)


def test_values_may_have_spaces_brackets_and_quotes():
    assert parse("title=Alien (1979) AND genre=salt and pepper").parts[0].value == "Alien (1979)"
    assert parse("a=b OR c=d AND e=f") == parse("a=b OR (c=d AND e=f)")
    assert parse(r'"odd name"="say \"AND\" (so"').value == 'say "AND" (so'
    assert parse("NOT a=b") == parse("a!=b")
    assert parse("a='x AND y' OR (b='Tea (loose)')").parts == (
        Fact("a", "x AND y"),
        Fact("b", "Tea (loose)"),
    )
    assert parse("a='t Hooft").value == "'t Hooft" and parse("a='n' roll").value == "'n' roll"


# ── masks over HTTP ─────────────────────────────────────────────────────────────────────


def test_masks_are_uploaded_listed_replaced_and_deleted(client, model):
    names = item_names(model)
    assert client.put("/v1/masks/two", content="\n".join(names[:2])).json()["items"] == 2
    assert "two" in client.get("/v1/masks").json()["masks"]
    user = model.users[0]
    ask = {"user": user, "include": ["mask=two"], "explain": False, "k": 100}
    first = {row["item"] for row in client.post("/v1/recommendations", json=ask).json()["items"]}
    assert first == set(names[:2]) - set(model.owned(user))
    assert client.put("/v1/masks/two", json=names[2:9]).json()["items"] == 7
    second = {row["item"] for row in client.post("/v1/recommendations", json=ask).json()["items"]}
    assert second == set(names[2:9]) - set(model.owned(user))
    assert client.get("/v1/masks/two").json() == {"name": "two", "items": 7, "unknown": 0}
    assert "two" not in client.delete("/v1/masks/two").json()["masks"]
    for answer in (client.get("/v1/masks/two"), client.delete("/v1/masks/two"),
                   client.post("/v1/recommendations", json=ask)):  # fmt: skip
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_mask")
    for name, body, said in (
        ("..", "x", "not found"), (".hidden", "x", "letters, digits"), ("a b", "x", "letters"),
        ("bad", '{"a": 1}', "JSON list"), ("bad", "[1.5]", "text or an integer"),
        ("bad", "[", "JSON list or as lines"),
    ):  # fmt: skip
        kind = {"content-type": "application/json"}
        answer = client.put(f"/v1/masks/{name}", content=body, headers=kind)
        assert answer.status_code in (404, 405, 422), answer.text
        assert said in answer.text.lower() or said in answer.text


def test_a_name_in_a_mask_is_one_name_whatever_signs_it_has(client, model):
    one, other = item_names(model)[:2]
    for sign in ("\u2028", "\x0b", "\x85", "\r"):  # what str.splitlines takes for ends of lines
        told = client.put("/v1/masks/odd", json=[one, f"{one}{sign}{other}"])
        assert told.json() == {"name": "odd", "items": 1, "unknown": 1}
    assert client.put("/v1/masks/odd", json=["unheard-of"]).status_code == 422
    assert client.get("/v1/masks/odd").json()["items"] == 1  # what was there before
    kind = {"content-type": "application/json"}
    told = client.put("/v1/masks/odd", content='["\\ud800"]', headers=kind)
    assert told.status_code == 422 and "text or an integer" in told.text
    assert client.put("/v1/masks/odd", content=f"{one}\r\n{other}\r\n").json()["items"] == 2
    client.delete("/v1/masks/odd")


def test_masks_are_taken_from_elsewhere_with_a_key_only(bundle, model):
    for key, status in ((None, 403), ("k", 200)):
        config = ServeConfig(str(bundle), host="0.0.0.0", api_key=key, watch=0)
        client = TestClient(create_app(config), headers={} if key is None else {"X-API-Key": key})
        assert client.put("/v1/masks/stock", json=model.items[:2]).status_code == status
        assert client.delete("/v1/masks/stock").status_code == status


def test_a_mask_of_a_million_ids_works(client, model):
    names = item_names(model)[:50]
    body = "\n".join([*names, *(f"B{k:09d}" for k in range(1_000_000))])
    assert len(body) > 10_000_000
    told = client.put("/v1/masks/million", content=body).json()
    assert told == {"name": "million", "items": 50, "unknown": 1_000_000}
    ask = {"user": model.users[1], "include": ["mask=million"], "explain": False, "k": 100}
    rows = client.post("/v1/recommendations", json=ask).json()["items"]
    assert {row["item"] for row in rows} == set(names) - set(model.owned(model.users[1]))
    client.delete("/v1/masks/million")


# ── variety ─────────────────────────────────────────────────────────────────────────────


def brands(model, item):
    graph = model.graph_
    return graph.neighbours(graph.vocabulary.id("item", item), graph.relation_id("has_brand"))


def test_at_most_so_many_of_a_kind_are_the_best_that_fit(model):
    for user in model.users[:20]:
        every = model.recommend(user, 100)
        count, expected = {}, []
        for item in every["item"]:
            values = brands(model, item).tolist()
            if all(count.get(b, 0) < 1 for b in values) and len(expected) < 8:
                expected.append(item)
                for b in values:
                    count[b] = count.get(b, 0) + 1
        found = model.recommend(user, 8, at_most={"brand": 1})
        assert found["item"].to_list() == expected
        scores = dict(zip(every["item"], every["score"], strict=True))
        assert found["score"].to_list() == [scores[item] for item in expected]
        ranks = {item: k + 1 for k, item in enumerate(every["item"])}
        assert found["rank_by_score"].to_list() == [ranks[item] for item in expected]
        assert found["cost"].to_list() == pytest.approx(
            (every["score"].head(len(found)) - found["score"]).to_list()
        )


def facts_of(model, item):
    graph = model.graph_
    entity = graph.vocabulary.id("item", item)
    return {
        (r, t)
        for r in range(1, 2 * len(graph.relations))
        if graph.signature(r)[0] == "item"
        and graph.signature(r)[1] != "user"
        and not graph.relations[r % len(graph.relations)].derived
        for t in graph.neighbours(entity, r).tolist()
    }


def marginal(model, user, k, diversity):
    """Maximal marginal relevance by its formula, slowly."""
    rows = model.recommend(user, 10 * k)
    score = dict(zip(rows["item"], rows["score"], strict=True))
    low, high = min(score.values()), max(score.values())
    facts, taken = {v: facts_of(model, v) for v in score}, []

    def alike(v, w):
        return len(facts[v] & facts[w]) / max(1, len(facts[v] | facts[w]))

    while len(taken) < k:
        rest = [v for v in score if v not in taken]
        value = {
            v: (1 - diversity) * (score[v] - low) / (high - low)
            - diversity * max((alike(v, w) for w in taken), default=0.0)
            for v in rest
        }
        taken.append(max(rest, key=lambda v: value[v]))
    return taken


@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_diversity_is_maximal_marginal_relevance(model, diversity):
    for user in model.users[:8]:
        found = model.recommend(user, 6, diversity=diversity)
        assert found["item"].to_list() == marginal(model, user, 6, diversity)
        assert found["item"][0] == model.recommend(user, 1)["item"][0]
        if not diversity:
            assert found.equals(model.recommend(user, 6))


def test_variety_is_told_over_http_and_changes_no_score_and_no_reason(client, model, bundle):
    user, seen = model.users[5], set()
    plain = client.post("/v1/recommendations", json={"user": user, "k": 10}).json()
    assert plain["left_out"] == []
    assert all(row["variety"] is None for row in plain["items"])
    ask = {"user": user, "k": 10, "diversity": 0.7, "at_most": {"has_brand": 1}}
    varied = client.post("/v1/recommendations", json=ask).json()
    frame = model.recommend(user, 10, diversity=0.7, at_most={"has_brand": 1})
    assert [row["item"] for row in varied["items"]] == frame["item"].to_list()
    for place, row in enumerate(varied["items"]):
        told, alone = row["variety"], model.explain(user, row["item"])
        assert row["score"] == pytest.approx(alone.score, abs=1e-4)
        assert row["explanation"]["reasons"][0]["text"] == alone.shown[0].text()
        assert told["rank_by_score"] == frame["rank_by_score"][place] == alone.rank
        assert told["cost"] == pytest.approx(frame["cost"][place], abs=1e-5)
        assert bool(told["because"]) == (told["rank_by_score"] != place + 1)
        seen.add(told["because"].split(" ")[0])
    gone = {row["item"] for row in plain["items"]} - {row["item"] for row in varied["items"]}
    assert {row["item"] for row in varied["left_out"]} == gone
    assert gone
    for row in varied["left_out"]:
        assert row["because"].startswith(("1 with brand ", "it shares "))
    query = {"user": user, "diversity": 0.7, "at_most": "has_brand=1", "explain": False}
    again = client.get("/v1/recommendations", params=query).json()["items"]
    assert [row["item"] for row in again] == frame["item"].to_list()
    told = run("recommend", bundle, user, "--diversity", 0.7, "--at-most", "has_brand=1")
    assert [row["item"] for row in told[0]["items"]] == frame["item"].to_list()
    asked = ["--explain", "--diversity", "0.7", "--at-most", "has_brand=1"]
    shown = CliRunner().invoke(commands, ["recommend", str(bundle), user, *asked])
    assert "left out: " in shown.stdout
    assert "costs " in shown.stdout


def test_an_export_is_filtered_and_varied_like_a_list(model, bundle, tmp_path):
    out = tmp_path / "lists.csv"
    result = CliRunner().invoke(
        commands,
        ["recommend", str(bundle), "--all", "--out", str(out), "-k", "5", "--explain",
         "--exclude", "item=" + item_names(model)[0], "--at-most", "brand=1"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    wanted = {"exclude": {item_names(model)[0]}, "at_most": {"brand": 1}, "explain": True}
    frame = model.recommend(None, 5, **wanted)
    assert pl.read_csv(out)["item"].to_list() == frame["item"].to_list()
    assert pl.read_csv(out)["rank_by_score"].to_list() == frame["rank_by_score"].to_list()
