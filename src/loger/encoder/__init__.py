"""KG encoders: f_θ of the paper, and adapters to the models of other libraries."""

from loger.encoder.protocol import Encoder, ExtraPairs

__all__ = ["Encoder", "ExtraPairs"]
