"""The methods to compare with, each a ``Recommender``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loger.baselines.cafe import CAFE as CAFE
    from loger.baselines.cke import CKE as CKE
    from loger.baselines.ease import EASE as EASE
    from loger.baselines.ease import CollectiveEASE as CollectiveEASE
    from loger.baselines.heteroembed import HeteroEmbed as HeteroEmbed
    from loger.baselines.ials import IALS as IALS
    from loger.baselines.ials import LinearIALS as LinearIALS
    from loger.baselines.kgat import KGAT as KGAT
    from loger.baselines.lightgcn import LightGCN as LightGCN
    from loger.baselines.neighbours import ItemKNN as ItemKNN
    from loger.baselines.neighbours import MostPop as MostPop
    from loger.baselines.neighbours import P3alpha as P3alpha
    from loger.baselines.neighbours import RP3beta as RP3beta
    from loger.baselines.pgpr import PGPR as PGPR
    from loger.baselines.ripplenet import RippleNet as RippleNet
    from loger.baselines.sasrec import HSTU as HSTU
    from loger.baselines.sasrec import ESASRec as ESASRec
    from loger.baselines.sasrec import SASRec as SASRec
    from loger.baselines.sequence import SequenceRules as SequenceRules
    from loger.baselines.slim import LocalSLIM as LocalSLIM

_HOMES = {
    "CAFE": "cafe",
    "CKE": "cke",
    "CollectiveEASE": "ease",
    "EASE": "ease",
    "ESASRec": "sasrec",
    "HSTU": "sasrec",
    "HeteroEmbed": "heteroembed",
    "IALS": "ials",
    "ItemKNN": "neighbours",
    "KGAT": "kgat",
    "LightGCN": "lightgcn",
    "LinearIALS": "ials",
    "LocalSLIM": "slim",
    "MostPop": "neighbours",
    "P3alpha": "neighbours",
    "PGPR": "pgpr",
    "RP3beta": "neighbours",
    "RippleNet": "ripplenet",
    "SASRec": "sasrec",
    "SequenceRules": "sequence",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Load a method when it is first used, because only some of them need PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"loger.baselines.{_HOMES[name]}"), name)
