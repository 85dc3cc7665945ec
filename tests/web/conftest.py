from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from loger.model import LOGER
from loger.web.app import create_app
from loger.web.config import ServeConfig
from web_shop import HOSTILE, fitted


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shop in which one user, one item and one brand have labels that are markup."""
    folder = tmp_path_factory.mktemp("web") / "bundle"
    model = fitted(2)
    words = model.graph_.vocabulary
    for kind in ("user", "item", "brand"):
        words.labels[words.span(kind).start] = HOSTILE
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def model(bundle: Path) -> LOGER:
    return LOGER.load(bundle)


@pytest.fixture(scope="session")
def app(bundle: Path) -> FastAPI:
    return create_app(ServeConfig(str(bundle)))


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://localhost") as client:
        yield client
