"""Matrix products run on one core, whichever library computes them."""

from __future__ import annotations

import scipy.linalg  # noqa: F401  # brings a library of its own
from threadpoolctl import ThreadpoolController

from loger.engine.threads import numpy_on_one_thread


def test_numpy_and_scipy_both_get_one_thread_and_then_what_they_had():
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    assert len(libraries) > 1
    before = [library.num_threads for library in libraries]
    try:
        for library in libraries:
            library.set_num_threads(2)
        with numpy_on_one_thread(), numpy_on_one_thread():
            assert [library.num_threads for library in libraries] == [1] * len(libraries)
        assert [library.num_threads for library in libraries] == [2] * len(libraries)
    finally:
        for library, n in zip(libraries, before, strict=True):
            library.set_num_threads(n)
