"""Where work runs: the one seam between blocks of work and the machine that does them."""

from typing import TYPE_CHECKING, Any

from loger.engine.local import LocalEngine
from loger.engine.naming import engine_named
from loger.engine.protocol import Engine, Progress, silent

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


def __getattr__(name: str) -> Any:
    """Import what needs multiprocessing, or Ray, only when it is asked for."""
    if name == "ProcessEngine":
        from loger.engine.processes import ProcessEngine

        return ProcessEngine
    if name == "RayEngine":
        from loger.engine.ray import RayEngine

        return RayEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
