"""Functions compiled by numba and kept on disk until they, or what they call, change.

numba itself looks for changes only in the file of the function that it kept: a caller would go on
with an old copy of what it calls in another file. Here the files of everything that a function can
call count as well, so kernels can be cut by topic.

Whenever a kernel really is compiled, the log of this module says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

log = logging.getLogger(__name__)
_kept: list[_Kept] = []
"""What keeps each kernel that was imported."""


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function, without the GIL, and keep it on disk; options are those of ``njit``.

    Constants that a kernel reads from elsewhere are compiled in: keep them in a file of kernels.
    """
    if function is None:
        return lambda of: kernel(of, **options)
    compiled = njit(nogil=True, **options)(function)
    compiled.sources = _sources(function)
    compiled._cache = _Kept(function, compiled.sources)
    _kept.append(compiled._cache)
    return compiled


def _sources(function: Callable[..., Any]) -> frozenset[str]:
    """The file of a function, and those of all kernels that its module has imported."""
    known, package = list(function.__globals__.values()), function.__module__.partition(".")[0]
    for module in [x for x in known if isinstance(x, ModuleType)]:
        known += vars(module).values() if module.__name__.startswith(package + ".") else []
    files = (x.sources for x in known if isinstance(getattr(x, "sources", None), frozenset))
    return frozenset({function.__code__.co_filename}).union(*files)


@cache
def _digest(sources: frozenset[str]) -> bytes:
    texts = sorted(Path(file).read_bytes() for file in sources)
    return sha256(b"\0".join(texts)).digest()


class _Index(IndexDataCacheFile):  # type: ignore[misc]
    """An index that counts as empty when it names a class that has since moved."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, stale as soon as the digest of its sources is another."""

    def __init__(self, function: Callable[..., Any], sources: frozenset[str]) -> None:
        super().__init__(function)
        self._cache_file = _Index(self._cache_path, self._impl.filename_base, _digest(sources))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for a signature, ready to be called; None if nothing is.

        numba makes itself ready to compile first, before every kernel, which takes longer than to
        load them all. Machine code needs but the runtime that counts references; whatever is
        compiled makes numba ready then.
        """
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _Kept:
    """The cache of one kernel, made when the kernel is first called: numba looks for a folder that
    it may write to, and a command calls few of the kernels that it imports."""

    def __init__(self, function: Callable[..., Any], sources: frozenset[str]) -> None:
        self._of = function, sources

    @cached_property
    def _made(self) -> _KernelCache:
        return _KernelCache(*self._of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def any_kept() -> bool:
    """Whether any kernel that was imported is kept from before, so that hardly any is compiled
    now."""
    places = {Path(kept.cache_path) for kept in _kept}
    return any(any(place.glob("*.nbi")) for place in places)


class _Tells(event.Listener):  # type: ignore[misc]
    """Logs the kernels that numba compiles; those it finds on disk are no such event."""

    def on_start(self, event: event.Event) -> None:
        """Name the kernel."""
        dispatcher = event.data["dispatcher"]
        if hasattr(dispatcher, "sources"):
            log.info("compiling %s", dispatcher.py_func.__qualname__)

    def on_end(self, event: event.Event) -> None:
        """Nothing more to say."""


event.register("numba:compile", _Tells())
