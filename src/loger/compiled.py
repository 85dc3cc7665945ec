"""Functions compiled by numba and kept on disk until any compiled function changes.

numba itself looks for changes only in the file of the function that it kept: a caller would go on
with an old copy of what it calls in another file. Here all files with compiled functions count, so
they can be cut by topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function, without the GIL, and keep it on disk; options are those of ``njit``.

    Constants that a kernel reads from elsewhere are compiled in: keep them in a file of kernels.
    """
    if function is None:
        return lambda of: kernel(of, **options)
    compiled = njit(nogil=True, **options)(function)
    compiled._cache = _KernelCache(function)
    return compiled


@cache
def sources_digest() -> bytes:
    """A digest of every file of the package that imports from this one."""
    root, mark = Path(__file__).parent, f"from {__name__} import".encode()
    digest = sha256()
    for file in sorted(root.rglob("*.py")):
        text = file.read_bytes()
        if mark in text:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + text)
    return digest.digest()


class _Index(IndexDataCacheFile):  # type: ignore[misc]
    """An index that counts as empty when it names a class that has since moved."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, stale as soon as the digest of the sources is another."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Index(self._cache_path, self._impl.filename_base, sources_digest())
