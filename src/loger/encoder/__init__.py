"""KG encoders: f_θ of the paper, and adapters to the models of other libraries."""

from loger.encoder.calibration import Calibration, calibrate
from loger.encoder.protocol import AdditiveEncoder, Encoder, HiddenPairs
from loger.encoder.transe import TransE, TransEConfig

__all__ = [
    "AdditiveEncoder",
    "Calibration",
    "Encoder",
    "HiddenPairs",
    "TransE",
    "TransEConfig",
    "calibrate",
]
