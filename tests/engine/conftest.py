"""One small Ray cluster for all tests of a process, because starting one takes seconds."""

import pytest

from loger.engine import RayEngine


@pytest.fixture(scope="session")
def ray_engine():
    pytest.importorskip("ray")
    with RayEngine("local", workers=2) as engine:
        yield engine
