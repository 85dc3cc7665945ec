"""Where work runs: the one seam between blocks of work and the machine that does them."""

from typing import TYPE_CHECKING, Any

from loger.engine.local import LocalEngine
from loger.engine.protocol import Engine, Progress, silent

if TYPE_CHECKING:
    from loger.engine.processes import ProcessEngine

__all__ = ["Engine", "LocalEngine", "ProcessEngine", "Progress", "silent"]


def __getattr__(name: str) -> Any:
    """Import what needs multiprocessing only when it is asked for."""
    if name != "ProcessEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loger.engine.processes import ProcessEngine

    return ProcessEngine
