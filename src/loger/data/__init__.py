"""Reading data sets in the formats people have, and splitting them without leaks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loger.data.dataset import Dataset, Note
    from loger.data.readers import Format, load
    from loger.data.readers.plain import from_frames
    from loger.data.splits import Split, split

__all__ = ["Dataset", "Format", "Note", "Split", "from_frames", "load", "split"]

_PLACES = {
    "Dataset": "dataset",
    "Format": "readers",
    "Note": "dataset",
    "Split": "splits",
    "from_frames": "readers.plain",
    "load": "readers",
    "split": "splits",
}


def __getattr__(name: str) -> Any:
    """Import what reads tables, and with it polars, only when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
