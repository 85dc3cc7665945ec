"""Catalogue data that isn't in the graph, over HTTP: filters, facts, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from loger.web.served import find_image
from web_shop import item_names


def test_a_value_beside_the_graph_is_a_filter_a_fact_and_is_found(client, model):
    names = item_names(model)
    body = {"user": model.users[3], "k": 50, "include": ["in_stock=recalled"]}
    listed = client.post("/v1/recommendations", json=body).json()["items"]
    assert [row["item"] for row in listed] in ([names[4]], [])
    body["include"], owned = ["in_stock=yes"], set(model.owned(model.users[3]))
    listed = {row["item"] for row in client.post("/v1/recommendations", json=body).json()["items"]}
    assert listed == {v for k, v in enumerate(names) if k % 4} - owned or len(listed) == 50
    assert all(names.index(v) % 4 for v in listed)
    facts = client.get("/v1/facts", params={"item": names[5]}).json()["facts"]
    assert [f["entities"][0]["label"] for f in facts if f["words"] == "in stock"] == ["yes"]
    about = client.get("/v1/about").json()
    assert about["beside"] == ["in_stock"] and "in_stock" in about["filters"]
    found = client.get("/v1/entities", params={"type": "in_stock", "q": "rec"}).json()["results"]
    assert found == [{"type": "in_stock", "name": "recalled", "label": "recalled"}]
    wrong = client.post("/v1/recommendations", json={**body, "include": ["in_stock=yess"]})
    assert wrong.status_code == 404 and "did you mean 'yes'" in wrong.json()["error"]["message"]


def test_pictures_come_from_the_folder_and_from_nowhere_else(client, model):
    names = item_names(model)
    for item in names[:2]:  # by a path, and by the last part of an address
        assert client.get("/v1/facts", params={"item": item}).json()["image"] is True
        answer = client.get("/v1/images", params={"item": item})
        assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
        assert answer.content.startswith(b"\x89PNG")
    assert client.get("/v1/facts", params={"item": names[2]}).json()["image"] is False
    answer = client.get("/v1/images", params={"item": names[2]})
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "no_picture"


@pytest.mark.parametrize(
    "given", ["../secret.png", "/etc/passwd", "x.svg", "link.png", "", "..", "a\0.png", "//"]
)
def test_nothing_outside_of_the_folder_is_a_picture(tmp_path: Path, given: str):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (tmp_path / "secret.png").touch()
    (folder / "x.svg").touch()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    assert find_image(folder, given) is None
    (folder / "ok.png").touch()
    assert find_image(folder, "any\\where\\ok.png") == folder / "ok.png"
