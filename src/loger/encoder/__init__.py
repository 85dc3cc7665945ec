"""KG encoders: f_θ of the paper, and adapters to the models of other libraries."""

from loger.encoder.calibration import Calibration, calibrate
from loger.encoder.protocol import Encoder
from loger.encoder.retrieval import top_items
from loger.encoder.training.hidden import HiddenPairs
from loger.encoder.transe import TransE, TransEConfig

__all__ = [
    "Calibration",
    "Encoder",
    "HiddenPairs",
    "TransE",
    "TransEConfig",
    "calibrate",
    "top_items",
]
