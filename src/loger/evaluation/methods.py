"""The methods that can be compared, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from numpy.typing import ArrayLike

from loger.engine import Progress, silent
from loger.graph.arrays import Floats
from loger.recommender import Recommender

if TYPE_CHECKING:  # methods are listed without loading PyTorch
    from loger.data.splits import Split
    from loger.encoder import Encoder


@dataclass(frozen=True, slots=True)
class Method:
    """How to make a recommender. Its module is imported when it is first used."""

    factory: str
    """``module:name`` of the class or function that makes it from settings."""
    seeded: bool = True
    """Whether it takes a seed; the others use no randomness."""
    quick: bool = False
    """Whether its whole grid takes minutes, so that it is tuned on the data at hand.
    docs/how-to/evaluate.md says where the defaults of the others come from."""
    grid_name: str = "GRID"
    """The attribute of its class that holds the grid."""
    searched: bool = False
    """Whether the grid is too large to try all of, so that settings are searched one by one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that define this variant; the caller's override them."""

    def load(self) -> Callable[..., Recommender]:
        """The class or function that makes it."""
        module, _, name = self.factory.partition(":")
        return cast("Callable[..., Recommender]", getattr(import_module(module), name))

    def make(self, seed: int = 0, **settings: Any) -> Recommender:
        """A new recommender that isn't fitted yet."""
        own = {"seed": seed} if self.seeded else {}
        return self.load()(**(own | dict(self.settings) | settings))

    @property
    def grid(self) -> Mapping[str, Sequence[Any]]:
        """The settings to tune, each with the values to try."""
        return cast("Mapping[str, Sequence[Any]]", getattr(self.load(), self.grid_name, {}))


class EncoderAlone(Recommender):
    """Ranks by s(u, r_ui, v) of an encoder: LOGER without its logic (α = 0). ``make`` returns a new
    encoder for each fit."""

    encoder_: Encoder

    def __init__(self, make: Callable[[], Encoder], name: str = "encoder alone") -> None:
        self.make, self.name = make, name

    @classmethod
    def of(cls, encoder: Encoder) -> Self:
        """A fitted encoder as it is."""
        alone = cls(type(encoder))
        alone.encoder_ = encoder
        return alone

    def fit(self, split: Split, *, progress: Progress = silent) -> Self:
        """Fit the encoder on the training graph."""
        self.encoder_ = self.make().fit(split.graph, progress=progress)
        return self

    def score(self, users: ArrayLike) -> Floats:
        """Scores of all items; see ``Recommender.score``."""
        return self.encoder_.score_items(users)


def encoder_alone(seed: int = 0, encoder: str = "transe", **settings: Any) -> Recommender:
    """An encoder as a recommender, with settings of its own; see ``encoder_named``."""
    from loger.encoder import encoder_named

    name = "encoder alone" if encoder == "transe" else f"encoder alone, {encoder}"
    return EncoderAlone(encoder_named(encoder, seed=seed, **settings), name)


def loger(seed: int = 0, **settings: Any) -> Recommender:
    """LOGER with its defaults; ``settings`` are those of LOGERConfig, nested in the same way, and
    ``encoder`` may also be the name of an encoder."""
    return _loger("default", "LOGER", seed, settings)


def loger_paper(seed: int = 0, name: str = "LOGER (paper)", **settings: Any) -> Recommender:
    """LOGER as in the paper, with a well-trained encoder."""
    return _loger("paper", name, seed, settings)


def paper_literal(seed: int = 0, **settings: Any) -> Recommender:
    """LOGER as published: the authors' steps, rates and margin, and all rounds."""
    return _loger("paper-literal", "LOGER (paper-literal)", seed, settings)


def _loger(preset: str, name: str, seed: int, settings: Mapping[str, Any]) -> Recommender:
    from loger.config import PRESETS
    from loger.encoder import encoder_named
    from loger.engine.settings import overridden
    from loger.model import LOGER

    encoder, own = settings.get("encoder"), dict(settings)
    make = None
    if isinstance(encoder, str):
        del own["encoder"]
        if encoder != "transe":  # which the preset has its own settings for
            make, name = encoder_named(encoder, seed=seed), f"{name}, {encoder}"
    return LOGER(overridden(PRESETS[preset](), {"seed": seed, **own}), encoder=make, name=name)


def pgpr_free(seed: int = 0, **settings: Any) -> Recommender:
    """PGPR with a vector for each user, as published, instead of our encoder's histories."""
    from loger.baselines.pgpr import PGPR
    from loger.config import LOGERConfig

    model = PGPR(seed=seed, **{"encoder": LOGERConfig.paper().encoder, **settings})
    model.name = "PGPR, a vector per user"
    return model


def _fading(factory: str) -> Method:
    """A control whose histories fade with age, as fast as validation prefers."""
    return Method(factory, seeded=False, quick=True, grid_name="RECENCY_GRID", searched=True)


METHODS: Mapping[str, Method] = {
    "mostpop": Method("loger.baselines.neighbours:MostPop", seeded=False, quick=True),
    "itemknn": Method("loger.baselines.neighbours:ItemKNN", seeded=False, quick=True),
    "p3alpha": Method("loger.baselines.neighbours:P3alpha", seeded=False, quick=True),
    "rp3beta": Method("loger.baselines.neighbours:RP3beta", seeded=False, quick=True),
    "ease": Method("loger.baselines.ease:EASE", seeded=False, quick=True),
    "slim": Method("loger.baselines.slim:LocalSLIM", seeded=False, quick=True),
    "itemknn-recency": _fading("loger.baselines.neighbours:ItemKNN"),
    "rp3beta-recency": _fading("loger.baselines.neighbours:RP3beta"),
    "ease-recency": _fading("loger.baselines.ease:EASE"),
    "slim-recency": _fading("loger.baselines.slim:LocalSLIM"),
    "sequence": Method(
        "loger.baselines.sequence:SequenceRules", seeded=False, quick=True, searched=True
    ),
    "collective": Method(
        "loger.baselines.ease:CollectiveEASE", seeded=False, quick=True, searched=True
    ),
    "collective-recency": _fading("loger.baselines.ease:CollectiveEASE"),
    "ials": Method("loger.baselines.ials:IALS", quick=True),
    "lightgcn": Method("loger.baselines.lightgcn:LightGCN"),
    "sasrec": Method("loger.baselines.sasrec:SASRec"),
    "esasrec": Method("loger.baselines.sasrec:ESASRec"),
    "hstu": Method("loger.baselines.sasrec:HSTU"),
    "encoder": Method("loger.evaluation.methods:encoder_alone"),
    "cke": Method("loger.baselines.cke:CKE"),
    "ripplenet": Method("loger.baselines.ripplenet:RippleNet"),
    "kgat": Method("loger.baselines.kgat:KGAT"),
    "heteroembed": Method("loger.baselines.heteroembed:HeteroEmbed"),
    "pgpr": Method("loger.baselines.pgpr:PGPR"),
    "pgpr-free": Method("loger.evaluation.methods:pgpr_free"),
    "cafe": Method("loger.baselines.cafe:CAFE"),
    "loger": Method("loger.evaluation.methods:loger"),
    "loger-paper": Method("loger.evaluation.methods:loger_paper"),
    "paper-literal": Method("loger.evaluation.methods:paper_literal"),
}
"""All methods by the names that ``loger compare`` takes."""
