"""Where work runs: engines map a function over blocks in threads, in processes or on Ray."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loger.engine.threads import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError, UnknownNameError

if TYPE_CHECKING:
    from loger.engine.processes import ProcessEngine
    from loger.engine.ray import RayEngine

__all__ = [
    "Engine",
    "LocalEngine",
    "ProcessEngine",
    "Progress",
    "RayEngine",
    "engine_named",
    "silent",
]

NAMES = ("threads", "processes", "ray")


def engine_named(text: str, progress: Progress = silent) -> LocalEngine | ProcessEngine | RayEngine:
    """The engine of a name: threads, threads=N, processes, processes=N, ray or ray=ADDRESS.

    >>> engine_named("threads=3").workers
    3
    """
    name, given, value = text.partition("=")
    if name not in NAMES:
        raise UnknownNameError("engine", name, NAMES)
    if given and not value:
        raise LogerError(f"expected {name} or {name}=VALUE, got {text!r}")
    if name == "ray":
        from loger.engine.ray import RayEngine

        return RayEngine(value or None, progress=progress)
    if value and not (value.isdecimal() and int(value) > 0):
        raise LogerError(f"{name}=N needs at least 1 worker, got {text!r}")
    workers = int(value) if value else None
    if name == "threads":
        return LocalEngine(workers, progress)
    from loger.engine.processes import ProcessEngine

    return ProcessEngine(workers, progress)


def __getattr__(name: str) -> Any:
    """Import engines that need multiprocessing or Ray only when they are asked for."""
    modules = {"ProcessEngine": "loger.engine.processes", "RayEngine": "loger.engine.ray"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(modules[name]), name)
