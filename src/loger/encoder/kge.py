"""Any embedding model of PyKEEN (Ali et al. 2021) as an encoder: RotatE, DistMult, ComplEx, …

PyKEEN defines the model: its vectors, initial values, constraints, regularisation and score
f(h, r, t). Batches, negatives, loss and steps are ours (``training``), because the library's loop
has neither weights nor typed negatives, updates whole tables and sets global seeds. Models differ
greatly in the scale of f, so

    s(h, r, t) = exp(g_r) · (f(h, r, t) − μ) / σ + bias_t,

where μ and σ are mean and deviation of f over random triples before training, and g and bias are
learned. ``docs/adr/0005-encoder-adapters.md`` says why we chose PyKEEN.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from loger.encoder.protocol import TrainerConfig
from loger.encoder.training import (
    Batch,
    TrainedEncoder,
    chosen_device,
    entity_ids,
    softmax_loss,
)
from loger.engine.settings import ANY, overridden
from loger.errors import LogerError, UnknownNameError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Floats

CELLS_PER_BLOCK = 8 << 20
"""Numbers that most models compute for a block of scores: users × items × dimension."""


@dataclass(frozen=True, slots=True)
class KGEConfig(TrainerConfig):
    """Settings of an adapted model."""

    FORMER: ClassVar[Mapping[str, Any]] = dict.fromkeys(
        ("facts_per_interaction", "head_share", "warm_epochs", "negatives"), ANY
    )

    model: str = "RotatE"
    """The name of a PyKEEN model, in any spelling that PyKEEN takes."""
    dimension: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments for the PyKEEN class, such as ``{"scoring_fct_norm": 2}`` for TransE."""
    epochs: int = 20


class KGE(TrainedEncoder):
    """An encoder by the name of a PyKEEN model: ``KGE("RotatE", dimension=64)``."""

    proportional = "model"  # PyKEEN's model chooses the scale of its values
    negatives = 64  # few: most models need a pass over all vectors of the batch for each
    warm_epochs = 4

    def __init__(self, model: str = "RotatE", **settings: Any) -> None:
        self.config = overridden(KGEConfig(), {"model": model, **settings})
        self._resolver = _pykeen("models").model_resolver
        try:
            self.name: str = self._resolver.lookup(model).__name__
        except KeyError:
            known = [c.__name__ for c in self._resolver.lookup_dict.values()]
            raise UnknownNameError("PyKEEN model", model, known) from None
        self.device = chosen_device(self.config.device)

    def __repr__(self) -> str:
        return f"KGE({self.name!r}, dimension={self.config.dimension})"

    # ── fitting ─────────────────────────────────────────────────────────────────────────

    def _start(self, graph: KnowledgeGraph) -> None:
        """Let PyKEEN build the model for a graph, with its initial values."""
        self.n_users_, self.n_items_ = graph.n_users, graph.n_items
        columns = [np.asarray(x, dtype=np.int64) for x in graph.triples()]
        factory = _pykeen("triples").CoreTriplesFactory(
            torch.from_numpy(np.stack(columns, axis=1)),
            num_entities=graph.n_entities,
            num_relations=len(graph.relations),
        )
        with _private_randomness():
            try:
                model = self._resolver.make(
                    self.name,
                    triples_factory=factory,
                    embedding_dim=self.config.dimension,
                    random_seed=self.config.seed,
                    **self.config.options,
                )
            except (TypeError, ValueError, AssertionError, AttributeError) as error:
                raise LogerError(
                    f"PyKEEN can't build {self.name} from entities, relations, triples and "
                    f"{dict(self.config.options)!r}: {str(error) or type(error).__name__}; "
                    "pass the arguments it needs as options={…} or choose another model"
                ) from error
            model.post_parameter_update()  # apply the model's constraints
            self.module_ = _Scorer(model, graph.n_entities, len(graph.relations)).to(self.device)
            self.module_.standardise(np.random.default_rng([self.config.seed, 0xE4C0]))
            model.post_parameter_update()  # clear what was computed from the initial values
        self.module_.eval()

    def _loss(self, graph: KnowledgeGraph, batch: Batch, rng: np.random.Generator) -> Tensor:
        given, sought, negatives = (
            entity_ids(x, self.device) for x in (batch.given, batch.sought, batch.negatives)
        )
        relation = torch.full_like(given, batch.relation)
        heads, tails = (sought, given) if batch.head_sought else (given, sought)
        positives = self.module_(heads, relation, tails)
        against = self.module_.against(given, relation, negatives, batch.head_sought)
        loss = softmax_loss(batch, positives, against)
        penalty: Tensor = self.module_.model.collect_regularization_term()
        return loss + penalty

    def _after_step(self) -> None:
        self.module_.model.post_parameter_update()

    # ── scoring ─────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def score_items(self, users: ArrayLike) -> Floats:
        """Scores of all items for a block of users; see ``Encoder.score_items``."""
        asked = entity_ids(users, self.device)
        items = torch.arange(self.n_users_, self.n_users_ + self.n_items_, device=self.device)
        size = max(1, CELLS_PER_BLOCK // (max(1, self.n_items_) * self.config.dimension))
        out = np.empty((len(asked), self.n_items_), dtype=np.float32)
        for lo in range(0, len(asked), size):
            part = asked[lo : lo + size]
            relation = torch.full_like(part, INTERACTION)
            out[lo : lo + size] = self.module_.against(part, relation, items, False).cpu().numpy()
        return out

    @torch.no_grad()
    def tables(self) -> tuple[Floats, Floats, bool]:
        """The vectors of entities and of relations, for the path reasoner, and whether users are
        made from their items. Complex numbers become two real ones."""
        model = self.module_.model
        parts = model.entity_representations[0](), model.relation_representations[0]()
        real = (torch.view_as_real(t) if t.is_complex() else t for t in parts)
        entities, relations = (t.cpu().flatten(1).numpy() for t in real)
        return entities, relations, False


class _Scorer(nn.Module):
    """A PyKEEN model with the scales and biases that turn its scores into logits."""

    centre: Tensor
    spread: Tensor

    def __init__(self, model: Any, n_entities: int, n_relations: int) -> None:
        super().__init__()
        self.model = model
        self.log_scale = nn.Embedding(n_relations, 1, _weight=torch.zeros(n_relations, 1))
        self.bias = nn.Embedding(n_entities, 1, _weight=torch.zeros(n_entities, 1))
        self.register_buffer("centre", torch.zeros(1))
        self.register_buffer("spread", torch.ones(1))

    @torch.no_grad()
    def standardise(self, rng: np.random.Generator, n: int = 4096) -> None:
        """Set μ and σ from the scores of random triples."""
        ends = (self.bias.num_embeddings, self.log_scale.num_embeddings, self.bias.num_embeddings)
        triples = np.stack([rng.integers(end, size=n) for end in ends], axis=1)
        self.eval()
        raw = self.model.score_hrt(torch.from_numpy(triples).to(self.bias.weight.device))
        self.centre.fill_(float(raw.mean()))
        self.spread.fill_(max(float(raw.std()), 1e-6))

    def forward(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores of triples; [triples]."""
        raw = self.model.score_hrt(torch.stack([heads, relations, tails], dim=1))[:, 0]
        scale = self.log_scale(relations)[:, 0].exp() / self.spread
        scores: Tensor = (raw - self.centre) * scale + self.bias(tails)[:, 0]
        return scores

    def against(self, given: Tensor, relations: Tensor, sought: Tensor, heads: bool) -> Tensor:
        """Scores of the given entities with each sought one; these are heads or tails."""
        if heads:
            raw = self.model.score_h(torch.stack([relations, given], dim=1), heads=sought)
            bias = self.bias(given)
        else:
            raw = self.model.score_t(torch.stack([given, relations], dim=1), tails=sought)
            bias = self.bias(sought).T
        scale = self.log_scale(relations).exp() / self.spread
        scores: Tensor = (raw - self.centre) * scale + bias  # [given, sought]
        return scores


def _pykeen(part: str) -> Any:
    """A part of PyKEEN, imported when it's first needed because that takes seconds."""
    try:
        with warnings.catch_warnings():
            # It imports PyG if that is installed, and then torch warns.
            warnings.simplefilter("ignore", DeprecationWarning)
            import_module("pykeen")
            return import_module(f"pykeen.{part}")
    except ModuleNotFoundError as error:
        if error.name != "pykeen":
            raise
        raise LogerError(
            "this encoder needs PyKEEN, which isn't installed; "
            "run pip install '.[kge]' in the clone"
        ) from None


@contextmanager
def _private_randomness() -> Iterator[None]:
    """Restore the global generators of torch, numpy and random, which PyKEEN seeds."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
