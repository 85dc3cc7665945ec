"""Methods to compare with, all of them a ``Recommender``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loger.baselines.cafe import CAFE
    from loger.baselines.cke import CKE
    from loger.baselines.ease import EASE, CollectiveEASE
    from loger.baselines.heteroembed import HeteroEmbed
    from loger.baselines.ials import IALS, LinearIALS
    from loger.baselines.itemknn import ItemKNN
    from loger.baselines.kgat import KGAT
    from loger.baselines.lightgcn import LightGCN
    from loger.baselines.mostpop import MostPop
    from loger.baselines.p3alpha import P3alpha, RP3beta
    from loger.baselines.pgpr import PGPR
    from loger.baselines.ripplenet import RippleNet
    from loger.baselines.sasrec import SASRec
    from loger.baselines.sequence import SequenceRules
    from loger.baselines.slim import LocalSLIM

__all__ = [
    "CAFE",
    "CKE",
    "EASE",
    "IALS",
    "KGAT",
    "PGPR",
    "CollectiveEASE",
    "HeteroEmbed",
    "ItemKNN",
    "LightGCN",
    "LinearIALS",
    "LocalSLIM",
    "MostPop",
    "P3alpha",
    "RP3beta",
    "RippleNet",
    "SASRec",
    "SequenceRules",
]

_HOMES = {
    "CAFE": "cafe",
    "CKE": "cke",
    "CollectiveEASE": "ease",
    "EASE": "ease",
    "HeteroEmbed": "heteroembed",
    "IALS": "ials",
    "ItemKNN": "itemknn",
    "KGAT": "kgat",
    "LightGCN": "lightgcn",
    "LinearIALS": "ials",
    "LocalSLIM": "slim",
    "MostPop": "mostpop",
    "P3alpha": "p3alpha",
    "PGPR": "pgpr",
    "RP3beta": "p3alpha",
    "RippleNet": "ripplenet",
    "SASRec": "sasrec",
    "SequenceRules": "sequence",
}


def __getattr__(name: str) -> object:
    """Load a method when it is first asked for: only some of them need PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"loger.baselines.{_HOMES[name]}"), name)
