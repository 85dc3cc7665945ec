"""KG encoders: f_θ of the paper, and adapters to models of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loger.encoder.calibration import Calibration, calibrate
from loger.encoder.protocol import AdditiveEncoder, Encoder, HiddenPairs
from loger.encoder.transe import TransE, TransEConfig
from loger.engine.settings import overridden
from loger.errors import UnknownNameError

__all__ = [
    "AdditiveEncoder",
    "Calibration",
    "Encoder",
    "HiddenPairs",
    "TransE",
    "TransEConfig",
    "calibrate",
    "encoder_named",
]


def encoder_named(name: str, **settings: Any) -> Callable[[], Encoder]:
    """A function that creates encoders by name: ``transe``, ``gnn``, or a PyKEEN model such as
    ``kge:RotatE``.

    An unknown name or setting raises an error here, before any fit.
    """
    kind, _, model = name.partition(":")
    if name == "transe":
        config = overridden(TransEConfig(), settings)
        return lambda: TransE(config)
    if name == "gnn":
        from loger.encoder.network import GNN

        GNN(**settings)
        return lambda: GNN(**settings)
    if kind == "kge" and model:
        from loger.encoder.kge import KGE

        KGE(model, **settings)
        return lambda: KGE(model, **settings)
    raise UnknownNameError("encoder", name, ("transe", "gnn", "kge:RotatE"))
