"""Functions compiled by numba and kept on disk until they, or what they call, change.

numba itself looks for changes only in the file of the function that it kept: a caller would go on
with an old copy of what it calls in another file. Here the files of everything that a function can
call count as well, so kernels can be cut by topic.

Whenever a kernel really is compiled, the log of this module says so.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable
from functools import cache, cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from llvmlite import binding
from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import _nrt_python

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
    # Looks for extensions among all that is installed; numba does so too when it compiles.
    compiled._compilation_chain_init_hook = lambda: None
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

    def _load_data(self, name: str) -> Any:
        return _Reader(BytesIO(Path(self._data_path(name)).read_bytes())).load()


class _Reader(pickle.Unpickler):
    """Reads a kernel without importing the parts of numba that it was compiled with."""

    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for."""
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Environment:
    """The environment of a compiled function; it needs the names of its module only where it works
    on Python's objects, which kernels do not."""
    made = lookup_environment(name)
    if made is None:
        known = sys.modules.get(module)
        made = Environment({"__name__": module} if known is None else vars(known))
        made.consts[:] = constants
        made.env_name = name
        Environment._memo[name] = made
    return made


class _Code(JITCodeLibrary):  # type: ignore[misc]
    """Machine code from disk. Its bitcode, which takes longer to read, is for those who call it and
    are compiled."""

    _shared_module: Any

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, str, Any]) -> Any:
        name, kind, data = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        self = cls(codegen, name)
        self._machine_code, self._bitcode = data
        self.enable_object_caching()
        self._set_compiled_object(self._machine_code)
        self._finalize_final_module()
        return self

    def get_pointer_to_function(self, name: str) -> int:
        """Where a function begins; 0 if it is not there, for LLVM ends the process if asked."""
        known = name.encode() in self._machine_code
        return int(self._codegen._engine.get_function_address(name)) if known else 0

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return self._shared_module


@cache
def _ready_to_run() -> None:
    """Let machine code find numba's runtime, without compiling what only compilers need of it."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, stale as soon as the digest of its sources is another."""

    def __init__(self, function: Callable[..., Any], sources: frozenset[str]) -> None:
        super().__init__(function)
        self._cache_file = _Index(self._cache_path, self._impl.filename_base, _digest(sources))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for a signature, ready to be called; None if nothing is.

        numba makes itself ready to compile first, before every kernel, which takes longer than to
        load them all; whatever is compiled makes it ready then. Numba holds its lock meanwhile.
        """
        _ready_to_run()
        codegen = target_context.codegen()
        codegen._library_class = _Code
        try:
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        finally:
            del codegen._library_class  # the one of its class again


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
