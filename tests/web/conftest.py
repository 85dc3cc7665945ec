from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from loger.graph.catalogue import Catalogue, FilterOnlyColumn
from loger.model import LOGER
from loger.web.app import create_app
from loger.web.config import ServeConfig
from web_shop import HOSTILE

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""


@pytest.fixture(scope="session")
def bundle(default_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shop in which one user, one item and one brand have labels that are markup."""
    folder = tmp_path_factory.mktemp("web") / "bundle"
    model = LOGER.load(default_bundle)
    words = model.graph_.vocabulary
    for kind in ("user", "item", "brand"):
        words.labels[words.span(kind).start] = HOSTILE
    stock = [("yes", v) for v in range(model.graph_.n_items) if v % 4] + [("recalled", 4)]
    column = FilterOnlyColumn.of("has_in_stock", "in_stock", stock)
    model.catalogue_ = Catalogue((column,), {0: "a/0.png", 1: "https://example.org/1.png?w=9"})
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def model(bundle: Path) -> LOGER:
    return LOGER.load(bundle)


@pytest.fixture(scope="session")
def app(bundle: Path) -> FastAPI:
    pictures = bundle.parent / "pictures"
    pictures.mkdir()
    for name in ("0.png", "1.png"):
        (pictures / name).write_bytes(PIXEL)
    return create_app(ServeConfig(str(bundle), images=str(pictures)))


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://localhost") as client:
        yield client
