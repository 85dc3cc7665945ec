"""The HTTP API: answers equal the model's, errors have one shape, limits hold."""

from __future__ import annotations

import json
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from loger.explain.record import SCHEMA
from loger.explain.render import carried_text, rows
from loger.model import LOGER
from loger.rules.wording import wording_of
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.guard import key_for
from loger.web.problems import CODES
from loger.web.routes import router
from web_shop import another_shop, item_names

USER = 3


@pytest.fixture
def user(model):
    return model.graph_.vocabulary.names[USER]


def history_of(client, user):
    return [row["item"] for row in client.get("/v1/history", params={"user": user}).json()["items"]]


def is_error(answer, status):
    error = answer.json()["error"]
    assert answer.status_code == error["status"] == status, answer.text
    assert set(error) == {"status", "code", "message", "fields"}
    assert error["code"] and error["message"]
    return error["message"]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 9) if isinstance(value, float) else value


# ── recommending ────────────────────────────────────────────────────────────────────────


def test_recommendations_are_those_of_the_model_with_its_explanations(client, model, user):
    answer = client.get("/v1/recommendations", params={"user": user, "k": 4, "paths": 2}).json()
    expected = model.recommend(user, 4)
    assert [row["item"] for row in answer["items"]] == expected["item"].to_list()
    for row in answer["items"]:
        alone = model.explain(user, row["item"], 2).as_dict()
        assert rounded(row["explanation"]) == rounded(alone)  # of one item, of several: last bits


def test_the_parts_of_every_explanation_add_up_to_the_score(client, model):
    for name in model.graph_.vocabulary.names[:20]:
        rows = client.get("/v1/recommendations", params={"user": name}).json()["items"]
        assert rows
        for row in rows:
            told = row["explanation"]
            rules = math.fsum(part["contribution"] for part in told["rules"])
            whole = told["encoder"] + rules + told["popularity"] + told["prior"]
            assert whole == pytest.approx(told["score"], abs=1e-6)


def test_a_posted_history_gives_what_a_new_user_gets_from_the_model(client, model):
    own = item_names(model)[:4]
    answer = client.post("/v1/recommendations", json={"history": own, "k": 5}).json()
    times = int(model.graph_.times.max()) + 1 + np.arange(4)
    cold = model.with_interactions([("somebody", item) for item in own], times.tolist())
    assert [row["item"] for row in answer["items"]] == cold.recommend("somebody", 5)[
        "item"
    ].to_list()
    assert answer["items"][0]["score"] == pytest.approx(cold.recommend("somebody")["score"][0])


def test_a_new_user_may_have_nothing_yet(client):
    answer = client.post("/v1/recommendations", json={"history": []}).json()
    assert len(answer["items"]) == 10
    assert not answer["items"][0]["explanation"]["rules"]


def test_a_new_user_may_be_called_as_a_known_one_is(tmp_path, bundle):
    model = LOGER.load(bundle)
    model.graph_.vocabulary.names[0] = "you"
    model.save(tmp_path / "b")
    with TestClient(create_app(ServeConfig(str(tmp_path / "b"))), base_url="http://localhost") as c:
        answer = c.post("/v1/recommendations", json={"history": [], "k": 1}).json()
    assert answer["user"] == "you_"


def test_filters_keep_to_what_has_or_is_a_named_thing(client, model, user):
    graph, words = model.graph_, model.graph_.vocabulary
    relation = graph.relation_id("has_brand⁻¹")
    brand = max(words.span("brand"), key=lambda b: len(graph.neighbours(b, relation)))
    made = {words.names[i] for i in graph.neighbours(brand, relation)}
    known = set(model.owned(user))

    def asked(**filters):
        query = {"user": user, "k": 100, "explain": False, **filters}
        return [r["item"] for r in client.get("/v1/recommendations", params=query).json()["items"]]

    everything, text = asked(), f"brand={words.names[brand]}"
    assert set(everything) == set(item_names(model)) - known
    assert asked(include=text) == [item for item in everything if item in made]
    assert asked(exclude=text) == [item for item in everything if item not in made]
    assert asked(exclude=[text, f"item={everything[0]}"])[0] != everything[0]
    assert asked(include=[f"item={everything[5]}", f"item={everything[2]}"]) == [
        everything[2],
        everything[5],
    ]


def test_what_if_without_a_purchase_is_the_models_own_answer(client, model, user):
    gone = history_of(client, user)[:2]
    answer = client.post("/v1/what-if", json={"user": user, "remove": gone, "k": 6}).json()
    expected = model.what_if(user, remove=gone, k=6).as_dict()
    assert [row["item"] for row in answer["after"]] == expected["after"]
    assert answer["before"] == expected["before"]
    assert [row["item"] for row in answer["gone"]] == expected["gone"]
    ranks = {item: k + 1 for k, item in enumerate(expected["before"])}
    assert [row["before"] for row in answer["after"]] == [
        ranks.get(item) for item in expected["after"]
    ]


def test_what_if_with_a_purchase_more_is_the_models_own_answer(client, model, user):
    more = [client.get("/v1/recommendations", params={"user": user}).json()["items"][0]["item"]]
    answer = client.post("/v1/what-if", json={"user": user, "add": more, "k": 6}).json()
    expected = model.what_if(user, add=more, k=6).as_dict()["after"]
    assert [row["item"] for row in answer["after"]] == expected
    assert more[0] not in expected


def test_without_all_rules_the_order_is_that_of_encoder_and_popularity(client, model, user):
    off = list(range(len(model.rules_)))
    body = {"user": user, "without_rules": off, "k": 20}
    after = client.post("/v1/what-if", json=body).json()["after"]
    assert after
    for row in after:
        told = row["explanation"]
        assert told["score"] == pytest.approx(
            told["encoder"] + told["popularity"] + told["prior"], abs=1e-9
        )
        assert not told["paths"]
        assert all(part["contribution"] == 0 for part in told["rules"])


def test_a_rule_off_is_a_weight_of_zero_and_leaves_the_model_as_it_was(model):
    weights = model.weights_.copy()
    strongest = int(np.argmax(weights))
    other = model.without_rules([strongest])
    assert other.weights_[strongest] == 0
    assert np.array_equal(np.delete(other.weights_, strongest), np.delete(weights, strongest))
    assert np.array_equal(model.weights_, weights)
    assert not np.allclose(other.score([USER]), model.score([USER]))


# ── explaining, rules, finding ──────────────────────────────────────────────────────────


def test_explain_and_why_not_are_the_models_own(client, model, user):
    item = model.recommend(user, 30)["item"][25]
    query = {"user": user, "item": item}
    told = client.get("/v1/explain", params=query).json()
    assert told.pop("summary") == carried_text(told)
    every = client.get("/v1/explain", params=query | {"reasons": "all"}).json()
    assert every["summary"] == carried_text(told)
    assert told.pop("rows") == [row._asdict() for row in rows(told)]
    assert told == model.explain(user, item).as_dict()
    told = client.get("/v1/why-not", params=query).json()
    assert told.pop("text") == str(model.why_not(user, item))
    assert told == model.why_not(user, item).as_dict()
    query = {"user": user, "item": model.recommend(user, 10)["item"][9]}
    told = client.get("/v1/counterfactual", params=query).json()
    assert told.pop("text") == str(model.counterfactual(**query))
    assert told == model.counterfactual(**query).as_dict()
    assert told["without"] and told["instead"] not in model.recommend(user, 10)["item"].to_list()
    fewer = client.post("/v1/counterfactual", json=query | {"remove": told["without"]}).json()
    assert not fewer["listed"]


def test_the_http_schema_of_explanations_is_that_of_the_library(client):
    parts = client.get("/v1/openapi.json").json()["components"]["schemas"]

    def inlined(schema):
        """The HTTP schema in the library's form: no references, titles or descriptions."""
        if "$ref" in schema:
            return {**inlined(parts[schema["$ref"].split("/")[-1]]), "additionalProperties": False}
        out = {k: v for k, v in schema.items() if k not in ("title", "description")}
        if "items" in out:
            out["items"] = inlined(out["items"])
        if "properties" in out:
            out["properties"] = {k: inlined(v) for k, v in out["properties"].items()}
        return out

    ours = {k: v for k, v in SCHEMA.items() if k not in ("$schema", "title")}
    assert inlined({"$ref": "ExplanationRecord"}) == ours
    told = parts["ExplanationRecord"]["properties"]["rank"]
    assert told["description"] == "Among all items that the user doesn't have."
    told = parts["ShownRecord"]["properties"]  # all of the above, with the rows
    assert told.keys() - parts["ExplanationRecord"]["properties"].keys() == {"rows", "summary"}
    assert told["rank"] == parts["ExplanationRecord"]["properties"]["rank"]


def test_rules_come_with_weights_and_with_paths_that_exist(client, model):
    told = client.get("/v1/rules").json()["rules"]
    assert [row["weight"] for row in told] == sorted(model.weights_.tolist(), reverse=True)
    words, graph = model.graph_.vocabulary, model.graph_
    for row in told:
        assert row["rule"] == str(model.rules_[row["id"]])
        examples = client.get(f"/v1/rules/{row['id']}").json()["examples"]
        assert examples
        for example in examples:
            assert not any(e["name"] for e in example["entities"] if e["type"] == "user")
            ids = [e["name"] and words.id(e["type"], e["name"]) for e in example["entities"]]
            relations = [graph.relation_id(r) for r in example["relations"]]
            assert tuple(example["relations"]) == model.rules_[row["id"]].names
            for head, relation, tail in zip(ids, relations, ids[1:], strict=False):
                assert not head or not tail or graph.has(head, relation, tail)


def test_a_request_says_how_much_reasons_tell(client, model, user):
    item = model.recommend(user, 1)["item"][0]
    for style in ("tile", "sentence", "debug"):
        wanted = model.explain(user, item).said(wording_of(style=style)).because()
        query = {"user": user, "item": item, "style": style}
        assert client.get("/v1/explain", params=query).json()["because"] == wanted
        rows = client.post("/v1/recommendations", json={"user": user, "style": style}).json()
        assert rows["items"][0]["explanation"]["because"] == wanted
        rows = client.get("/v1/recommendations", params={"user": user, "style": style}).json()
        assert rows["items"][0]["explanation"]["because"] == wanted
    query = {"user": user, "item": item, "style": "brief"}
    assert client.get("/v1/explain", params=query).status_code == 422


def test_a_profile_is_the_importance_of_rules(client, model, user):
    told = client.get("/v1/profile", params={"user": user}).json()["rules"]
    expected = model.importance(user)
    assert [row["rule"] for row in told] == expected["rule"].to_list()
    assert [row["importance"] for row in told] == expected["importance"].to_list()


def test_search_finds_beginnings_first_then_parts(client, model):
    words = model.graph_.vocabulary
    name = words.names[words.span("item").start + 1]
    last = name.split()[-1]
    found = client.get("/v1/items", params={"q": last.upper(), "limit": 100}).json()
    assert {e["name"] for e in found["results"]} == {
        item for item in item_names(model) if last in item.lower()
    } | {e["name"] for e in found["results"] if last in e["label"].lower()}
    first = client.get("/v1/items", params={"q": name[:5], "limit": 3}).json()["results"]
    assert all(e["name"].startswith(name[:5]) for e in first)
    assert client.get("/v1/users", params={"limit": 7}).json()["more"] is True
    assert client.get("/v1/entities", params={"type": "brand", "q": "zzz"}).json() == {
        "results": [],
        "more": False,
    }


def test_a_history_is_the_latest_first(client, model, user):
    rows = client.get("/v1/history", params={"user": user}).json()["items"]
    assert [r["time"] for r in rows] == sorted((r["time"] for r in rows), reverse=True)
    own = model.graph_.neighbours(USER, 0)
    assert {r["item"] for r in rows} == {model.graph_.vocabulary.names[i] for i in own}


# ── errors and limits ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/recommendations?user=Nobody", None, 404),
        ("GET", "/v1/recommendations", None, 422),
        ("GET", "/v1/recommendations?user=a&k=0", None, 422),
        ("GET", "/v1/recommendations?user=a&k=101", None, 422),
        ("GET", "/v1/explain?user=a&item=b&paths=11", None, 422),
        ("GET", "/v1/users?limit=1000", None, 422),
        ("GET", "/v1/users?q=" + "x" * 513, None, 422),
        ("GET", "/v1/entities?type=nothing", None, 404),
        ("GET", "/v1/rules/9999", None, 404),
        ("GET", "/v1/rules/first", None, 422),
        ("GET", "/v1/rules/..%2f..%2fetc%2fpasswd", None, 404),
        ("GET", "/static/../app.py", None, 404),
        ("GET", "/static/..%2fapp.py", None, 404),
        ("GET", "/static//etc/passwd", None, 404),
        ("GET", "/nothing", None, 404),
        ("DELETE", "/v1/rules", None, 405),
        ("POST", "/v1/recommendations", "{", 422),
        ("POST", "/v1/recommendations", "[" * 30_000, 400),
        ("POST", "/v1/recommendations", "{}", 422),
        ("POST", "/v1/recommendations", '{"user": "a", "history": []}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "user": null}', 422),
        ("POST", "/v1/recommendations", '{"history": ["no such item"]}', 404),
        ("POST", "/v1/recommendations", '{"history": ["\\ud800"]}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "k": NaN}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "unknown": 1}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "k": "5"}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "include": ["user=x"]}', 422),
        ("POST", "/v1/recommendations", '{"history": [], "include": ["brand=x"]}', 404),
        ("POST", "/v1/what-if", '{"history": [], "without_rules": [9999]}', 404),
        ("POST", "/v1/what-if", '{"history": [], "without_rules": [-1]}', 422),
        ("POST", "/v1/recommendations", json.dumps({"history": ["x"] * 1001}), 422),
        ("POST", "/v1/recommendations", "x" * 70_000, 413),
        ("POST", "/v1/reload", None, 403),
    ],
)  # fmt: skip
def test_every_error_has_the_one_shape(client, method, path, body, status):
    headers = {"Content-Type": "application/json"}
    is_error(client.request(method, path, content=body, headers=headers), status)


def test_a_wrong_method_is_told_all_that_a_path_takes(client):
    for path in ("recommendations", "explain", "why-not", "profile"):
        assert client.options(f"/v1/{path}").headers["Allow"] == "GET, POST"
    assert client.get("/v1/what-if").headers["Allow"] == "POST"


def test_a_body_without_a_length_is_counted_while_it_comes(client):
    chunks = (b" " * 1000 for _ in range(70))
    headers = {"Content-Type": "application/json"}
    is_error(client.post("/v1/recommendations", content=chunks, headers=headers), 413)


def test_an_unknown_name_comes_with_near_ones(client, model):
    name = model.graph_.vocabulary.names[USER]
    message = is_error(client.get("/v1/history", params={"user": name[:-1]}), 404)
    assert repr(name) in message


def test_labels_are_accepted_where_names_are(client, model):
    words = model.graph_.vocabulary
    item = words.span("item")[5]
    assert words.labels.count(words.labels[item]) == 1
    body = {"history": [words.labels[item]], "k": 3}
    by_label = client.post("/v1/recommendations", json=body).json()
    body["history"] = [words.names[item]]
    assert unnamed(by_label) == unnamed(client.post("/v1/recommendations", json=body).json())


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/v1/recommendations?user=a&kk=3",
            None,
            "unknown query parameter 'kk'; did you mean 'k'?",
        ),
        ("/v1/rules?q=x", None, "unknown query parameter 'q'; /v1/rules takes none"),
        ("/v1/recommendations?user=a&k=0", None, "query.k must be at least 1, got 0"),
        ("/v1/recommendations?user=a&k=x", None, "query.k must be a whole number, got x"),
        ("/v1/recommendations", {"user": "a", "k": 101}, "body.k must be at most 100, got 101"),
        ("/v1/recommendations", {"user": "a", "k": "5"}, "body.k must be a whole number, got 5"),
        ("/v1/recommendations", {"usr": "a"}, "body.usr is not known; did you mean 'user'?"),
        ("/v1/recommendations", {"user": 5}, "body.user must be text, got 5"),
        ("/v1/recommendations", {"user": None}, "body.user must not be null; leave it out"),
        ("/v1/recommendations", {"user": "a", "explain": 1}, "must be true or false, got 1"),
        ("/v1/recommendations", {"history": "a"}, "body.history must be a list, got a"),
        ("/v1/recommendations", {"user": "a", "diversity": 2}, "must be at most 1"),
        ("/v1/recommendations", ["a"], "body must be an object, such as {...}, got ['a']"),
        ("/v1/explain", {"user": "a"}, "body.item is missing"),
        ("/v1/explain", {"user": "a", "item": "b", "reasons": "x"}, "must be 'shown' or 'all'"),
        ("/v1/recommendations:batch", {"users": []}, "body.users must have at least 1 entries"),
    ],
)
def test_bad_requests_are_told_in_plain_words(client, path, body, message):
    answer = client.get(path) if body is None else client.post(path, json=body)
    assert message in is_error(answer, 422)


def test_a_body_that_is_not_json_is_told_so(client):
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/recommendations", content="{", headers=headers)
    assert "is not JSON" in is_error(answer, 422)
    untold = client.post(
        "/v1/recommendations", content='{"history": []}', headers={"Content-Type": "text/plain"}
    )
    assert "add the header Content-Type: application/json" in is_error(untold, 422)


def unnamed(told):
    """A list without the id that every answer has for itself."""
    return {name: value for name, value in told.items() if name != "recommendation_id"}


def test_a_batch_is_what_its_users_get_one_by_one(client, model):
    names = model.users[3:6]
    body = {"users": names, "k": 4, "paths": 1}
    lists = client.post("/v1/recommendations:batch", json=body).json()["lists"]
    one_by_one = [
        client.get("/v1/recommendations", params={"user": name, "k": 4, "paths": 1}).json()
        for name in names
    ]
    assert [unnamed(one) for one in lists] == [unnamed(one) for one in one_by_one]
    assert len({one["recommendation_id"] for one in [*lists, *one_by_one]}) == 6
    body["users"] = ["no such user"]
    is_error(client.post("/v1/recommendations:batch", json=body), 404)


def test_what_was_not_bought_cannot_be_removed(client, model, user):
    own = set(history_of(client, user))
    other = next(item for item in item_names(model) if item not in own)
    body = {"user": user, "remove": [other]}
    assert other in is_error(client.post("/v1/what-if", json=body), 409)


def test_a_bug_is_a_500_of_the_same_shape_that_tells_nothing(bundle, monkeypatch):
    app = create_app(ServeConfig(str(bundle)))

    def broken(self, *_):
        raise RuntimeError("/secret/place")

    monkeypatch.setattr("loger.web.served.Served.history", broken)
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    name = app.state.variants.services[0].served.graph.vocabulary.names[0]
    message = is_error(client.get("/v1/history", params={"user": name}), 500)
    assert "secret" not in message


def test_a_server_with_a_key_answers_only_who_has_it(bundle):
    config = ServeConfig(str(bundle), api_key="open sesame")
    client = TestClient(create_app(config), base_url="http://localhost")
    is_error(client.get("/v1/rules"), 401)
    is_error(client.get("/metrics"), 401)
    is_error(client.get("/v1/rules", headers={"X-API-Key": "sesame"}), 401)
    assert client.get("/v1/rules", headers={"X-API-Key": "open sesame"}).status_code == 200
    bearer = {"Authorization": "Bearer open sesame"}
    assert client.get("/v1/rules", headers=bearer).status_code == 200
    assert client.get("/v1/health").status_code == 200
    assert client.get("/").status_code == 200


def asked_with(bundle, **key):
    """A function that asks a server with a key made of its own, for a status."""
    app = create_app(ServeConfig(str(bundle), api_key="k", watch=0))
    client = TestClient(
        app, base_url="http://localhost", headers={"X-API-Key": key_for("k", **key)}
    )
    return lambda method, path, **more: client.request(method, path, **more).status_code


def test_a_key_of_one_user_asks_about_this_user_only(bundle, model):
    me, other = model.users[:2]
    item, ask = quote(model.items[0]), asked_with(bundle, user=me)
    for path in ("history", "profile", "recommendations", f"explain?item={item}",
                 f"why-not?item={item}", f"counterfactual?item={item}"):  # fmt: skip
        sign = "&" if "?" in path else "?"
        assert ask("GET", f"/v1/{path}{sign}user={quote(me)}") == 200, path
        assert ask("GET", f"/v1/{path}{sign}user={quote(other)}") == 403, path
    for path in ("recommendations", "what-if", "profile"):
        assert ask("POST", f"/v1/{path}", json={"user": me}) == 200
        assert ask("POST", f"/v1/{path}", json={"user": other}) == 403
        assert ask("POST", f"/v1/{path}", json={"history": model.items[:2]}) == 200
    for path in ("users", "entities?type=user", "rules/0", "openapi.jsonx", "masks/x"):
        assert ask("GET", f"/v1/{path}") == 403, path
    assert ask("GET", "/metrics") == 403
    batch = {"users": [me, other]}
    assert ask("POST", "/v1/recommendations:batch", json=batch) == 403
    for path in (f"facts?item={item}", f"items/{item}/similar", "items", "rules", "about", "masks"):
        assert ask("GET", f"/v1/{path}") == 200, path
    assert ask("POST", "/v1/similar", json={"items": model.items[:2]}) == 200


def test_a_key_of_a_name_that_is_only_somebodys_label_asks_about_nobody(bundle, model):
    words = model.graph_.vocabulary
    label = next(
        words.labels[i] for i in words.span("user") if words.labels[i] not in words.ids("user")
    )
    assert asked_with(bundle, scope="any")("GET", f"/v1/history?user={quote(label)}") == 200
    assert asked_with(bundle, user=label)("GET", f"/v1/history?user={quote(label)}") == 404


def test_about_says_whether_a_key_may_send_events(bundle, model):
    client = TestClient(create_app(ServeConfig(str(bundle), api_key="k", watch=0)))
    for key, may in (("k", True), (key_for("k", scope="any"), False)):
        headers = {"X-API-Key": key, "Host": "localhost"}
        assert client.get("/v1/about", headers=headers).json()["takes_events"] is may


def test_a_key_for_any_user_changes_nothing(bundle, model):
    ask = asked_with(bundle, scope="any")
    for user in model.users[:2]:
        assert ask("GET", f"/v1/history?user={quote(user)}") == 200
    assert ask("GET", "/v1/users") == 200
    assert ask("POST", "/v1/events", json={"events": [{"kind": "delete", "user": "x"}]}) == 403
    assert ask("PUT", "/v1/masks/x", json=model.items[:2]) == 403
    assert ask("DELETE", "/v1/masks/x") == 403
    assert ask("POST", "/v1/reload") == 403


def test_keys_that_are_changed_or_too_old_are_refused(bundle, model):
    me = model.users[0]
    app = create_app(ServeConfig(str(bundle), api_key="k", watch=0))
    client = TestClient(app, base_url="http://localhost")
    good, late = (key_for("k", me, expires=int(time.time()) + s) for s in (100, -100))
    named, other = good.split("."), key_for("k", model.users[1]).split(".")
    wrong = [
        late, good[:-1], good + "0", key_for("j", me), ".".join([named[0], other[1], *named[2:]]),
        ".".join([*named[:2], "0", named[3]]), "any" + good[3:], ".", "..", "own.é.0.x", "",
    ]  # fmt: skip
    for key in wrong:
        header = {"X-API-Key": key.encode()}
        assert client.get("/v1/about", headers=header).status_code == 401, key
    assert client.get("/v1/about", headers={"X-API-Key": good}).status_code == 200
    with pytest.raises(ValueError, match="pass a user or scope='any'"):
        key_for("k", me, scope="any")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403)],
)
def test_on_loopback_only_local_names_are_answered(client, host, status):
    assert client.get("/v1/health", headers={"Host": host}).status_code == status


def test_no_answer_repeats_the_host_of_a_request(bundle):
    app = create_app(ServeConfig(str(bundle), host="0.0.0.0", watch=0))
    client = TestClient(app, base_url="http://evil.example", follow_redirects=False)
    for path in ("/v1/rules/", "/v1/health/", "/docs/", "/static", "/metrics/"):
        told = client.get(path)
        assert told.status_code == 404 and "evil" not in str(told.headers) + told.text, path


# ── running ─────────────────────────────────────────────────────────────────────────────


def test_metrics_count_answers_and_their_times(client):
    def counted():
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {(s.name, *sorted(s.labels.items())): s.value for f in families for s in f.samples}

    labels = (("method", "GET"), ("path", "/v1/rules/{id}"), ("status", "200"))
    before = counted().get(("loger_requests_total", *labels), 0)
    client.get("/v1/rules/0")
    client.get("/v1/rules/1")
    after = counted()
    assert after["loger_requests_total", *labels] == before + 2
    assert after["loger_request_seconds_count", ("path", "/v1/rules/{id}")] >= 2
    assert after["loger_bundle_loaded_timestamp_seconds",] > 0


def test_the_schema_names_every_path_and_the_error_shape(client):
    told = client.get("/v1/openapi.json").json()
    paths = {r.path for r in router.routes if isinstance(r, APIRoute)}
    assert set(told["paths"]) == {path.replace(":path}", "}") for path in paths}
    for methods in told["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    ref = answer["content"]["application/json"]["schema"]["$ref"]
                    assert ref.endswith("/Error")
    assert {int(s) for s in CODES} >= {400, 401, 403, 404, 409, 413, 422, 500}


def test_pages_load_nothing_from_elsewhere(client):
    for path in ("/", "/docs", "/static/app.css", *(f"/static/{n}.js" for n in SCRIPTS)):
        answer = client.get(path)
        assert answer.status_code == 200
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "innerHTML" not in text


SCRIPTS = ("app", "api", "docs", "dom", "picker", "picture", "reasons", "rules", "words")


def test_a_new_bundle_is_taken_up_while_requests_go_on(tmp_path: Path, bundle: Path):
    place = tmp_path / "bundle"
    LOGER.load(bundle).save(place)
    app = create_app(ServeConfig(str(place), api_key="k", watch=0))
    other = another_shop()
    with TestClient(app, base_url="http://localhost", headers={"X-API-Key": "k"}) as client:
        user = app.state.variants.services[0].served.graph.vocabulary.names[0]
        assert client.post("/v1/reload").json()["changed"] is False
        before, end, failed = client.get("/v1/health").json()["fingerprint"], threading.Event(), []

        def ask():
            while not end.is_set():
                answer = client.get("/v1/recommendations", params={"user": user, "k": 2})
                if answer.status_code not in (200, 404):  # the other shop has other users
                    failed.append(answer.text)

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask) for _ in range(2)]
            other.save(place)
            told = client.post("/v1/reload").json()
            end.set()
            for each in asking:
                each.result()
        assert told["changed"] is True
        assert told["fingerprint"] != before
        assert not failed
        new = other.graph_.vocabulary.names[0]
        assert client.get("/v1/history", params={"user": new}).status_code == 200


def test_a_damaged_bundle_leaves_the_old_one_in_use(tmp_path: Path, bundle: Path):
    place = tmp_path / "bundle"
    LOGER.load(bundle).save(place)
    app = create_app(ServeConfig(str(place), api_key="k", watch=0.05))
    with TestClient(app, base_url="http://localhost", headers={"X-API-Key": "k"}) as client:
        manifest = place / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"loger"', '"other"'))
        is_error(client.post("/v1/reload"), 422)
        user = app.state.variants.services[0].served.graph.vocabulary.names[0]
        assert client.get("/v1/recommendations", params={"user": user}).status_code == 200
        assert 'loger_reloads_total{result="failed"}' in client.get("/metrics").text


def test_a_watched_link_to_another_bundle_is_followed(tmp_path: Path, bundle: Path):
    link = tmp_path / "current"
    link.symlink_to(bundle)
    app = create_app(ServeConfig(str(link), watch=0.02))
    before = app.state.variants.services[0].served.fingerprint
    new = tmp_path / "new"
    another_shop().save(new)
    with TestClient(app, base_url="http://localhost") as client:
        (tmp_path / "next").symlink_to(new)
        (tmp_path / "next").replace(link)
        for _ in range(500):
            if client.get("/v1/health").json()["fingerprint"] != before:
                return
            threading.Event().wait(0.02)
    pytest.fail("the new bundle was not taken up")


def test_all_reasons_are_every_action_and_the_shown_ones_come_first(client, model):
    user = model.users[3]
    item = model.recommend(user, 1)["item"][0]
    asked = {"user": user, "item": item, "paths": 0}
    shown = client.get("/v1/explain", params=asked).json()
    every = client.get("/v1/explain", params=asked | {"reasons": "all"}).json()
    assert every == client.post("/v1/explain", json=asked | {"reasons": "all"}).json()
    assert len(every["reasons"]) > len(shown["reasons"]) > 0
    assert every["reasons"][: len(shown["reasons"])] == shown["reasons"]
    for told in (every, shown):
        assert sum(row["contribution"] for row in told["rows"]) == pytest.approx(told["lead"])
    assert {k: v for k, v in every.items() if k not in ("reasons", "rows")} == {
        k: v for k, v in shown.items() if k not in ("reasons", "rows")
    }
    given = every["mean"] + every["appeal"] + sum(r["total"] for r in every["reasons"])
    assert given == pytest.approx(every["score"], abs=1e-9)
    refused = client.get("/v1/explain", params=asked | {"reasons": "some"})
    assert refused.status_code == 422


# ── similar items, groups, popularity ───────────────────────────────────────────────────


def test_similar_items_are_the_models_own(client, model):
    item = item_names(model)[3]
    answer = client.get(f"/v1/items/{item}/similar", params={"k": 4}).json()
    expected = model.similar(item, 4)
    assert [row["item"] for row in answer["items"]] == expected["item"].to_list()
    assert [row["because"] for row in answer["items"]] == expected["because"].to_list()
    for row in answer["items"]:
        (member,) = row["members"]
        assert member["lead"] == pytest.approx(row["score"], abs=1e-9)
        assert math.fsum(r["total"] for r in member["reasons"]) == pytest.approx(row["score"])


def test_more_like_these_and_less_like_those(client, model):
    more, less = item_names(model)[3:5], item_names(model)[7:8]
    body = {"items": more, "less": less, "k": 4, "kind": "substitutes", "explain": False}
    answer = client.post("/v1/similar", json=body).json()
    expected = model.similar(more, 4, less=less, kind="substitutes")
    assert [row["item"] for row in answer["items"]] == expected["item"].to_list()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/similar", {"items": ["no such item"]}, 404),
        ("/v1/similar", {"items": []}, 422),
        ("/v1/similar", {"items": ["x"], "kind": "twins"}, 422),
        ("/v1/recommendations:group", {"users": ["nobody at all"]}, 404),
    ],
)
def test_what_similar_and_group_cannot_answer_is_refused(client, path, body, status):
    assert client.post(path, json=body).status_code == status


def test_a_group_gets_the_models_own_answer(client, model):
    users = model.users[:3]
    answer = client.post("/v1/recommendations:group", json={"users": users, "k": 4}).json()
    expected = model.recommend_group(users, 4)
    assert [row["item"] for row in answer["items"]] == expected["item"].to_list()
    assert [m["user"] for m in answer["items"][0]["members"]] == users


def test_popularity_changes_the_list_as_in_the_model(client, model, user):
    query = {"user": user, "k": 5, "popularity": -1, "explain": False}
    answer = client.get("/v1/recommendations", params=query).json()
    expected = model.recommend(user, 5, popularity=-1)
    assert [row["item"] for row in answer["items"]] == expected["item"].to_list()


def test_types_and_relations_are_called_by_words_of_the_language_asked_for(client):
    german = client.get("/v1/about", headers={"Accept-Language": "de"}).json()
    assert german["kinds"]["brand"] == "Marke" and german["kinds"]["user"] == "Person"
    assert german["verbs"]["purchase"] == "hat gekauft"
    assert german["verbs"]["has_brand"] == ""  # the kind says it
    english = client.get("/v1/about").json()
    assert english["kinds"]["in_stock"] == "in stock"  # not in the graph
    assert english["verbs"]["purchase"] == "bought"


def test_a_counterfactual_of_a_changed_user_is_refused_in_plain_words(client, model, user):
    own = item_names(model)[:4]
    first = client.post("/v1/recommendations", json={"history": own, "k": 1}).json()["items"][0]
    answer = client.post("/v1/counterfactual", json={"history": own, "item": first["item"]})
    assert answer.status_code == 409 and "without changes" in answer.text
