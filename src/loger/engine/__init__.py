"""Where work runs: the one seam between blocks of work and the machine that does them."""

from loger.engine.local import LocalEngine
from loger.engine.protocol import Engine, Progress, silent

__all__ = ["Engine", "LocalEngine", "Progress", "silent"]
