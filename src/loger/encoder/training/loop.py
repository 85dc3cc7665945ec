"""How the encoders that autograd trains learn: typed negatives, one softmax, row-wise Adam.

Every batch is of one relation. The true entity of each triple is to be found among negatives that
the batch shares and that are of its type, so that r_ui is learned against items only (METHOD 2).
All is a function of data, settings, seed and epoch, so a fit taken up after an epoch goes the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from loger.encoder.training.checkpoint import Checkpoint
from loger.encoder.training.hidden import HiddenPairs
from loger.encoder.training.rows import RowAdam
from loger.engine import Progress
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph

Ids = NDArray[np.int64]
Config = TypeVar("Config")


class Course(Protocol):
    """The settings of a fit that batches and steps depend on."""

    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def negatives(self) -> int: ...  # noqa: D102
    @property
    def facts_per_interaction(self) -> float: ...  # noqa: D102
    @property
    def head_share(self) -> float: ...  # noqa: D102
    @property
    def rate(self) -> float: ...  # noqa: D102
    @property
    def final_rate(self) -> float: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


class Batch(NamedTuple):
    """Triples of one relation; the side ``given`` is known, ``sought`` is to be found."""

    relation: int
    given: Ids
    sought: Ids
    negatives: Ids
    head_sought: bool


class Triples:
    """A graph's triples by relation, with hidden pairs, to draw batches from."""

    def __init__(self, graph: KnowledgeGraph, hidden: HiddenPairs | None) -> None:
        heads, relations, tails = graph.triples()
        self.by_relation = [
            (heads[relations == r].astype(np.int64), tails[relations == r].astype(np.int64))
            for r in range(len(graph.relations))
        ]
        self.hidden, self.n_users = hidden, graph.n_users
        self.spans = [
            tuple(graph.vocabulary.span(t) for t in graph.signature(r))
            for r in range(len(graph.relations))
        ]

    def batches(self, course: Course, epoch: int, warm: bool) -> Iterator[Batch]:
        """The batches of an epoch in random order: interactions, as many as the graph has, and
        facts drawn so that relations share them ∝ √size. Hidden pairs add no steps."""
        rng = np.random.default_rng([course.seed, 0xBA7C4, epoch, warm])
        users, items = real = self.by_relation[INTERACTION]
        n_real = len(users)
        if self.hidden is not None:
            users, items = self.hidden.beside(real, self.n_users, course.seed, epoch, warm)
        plan = [(INTERACTION, rng.permutation(len(users))[:n_real])]
        sizes = np.array([0] + [len(h) for h, _ in self.by_relation[1:]])
        shares = np.sqrt(sizes) / max(np.sqrt(sizes).sum(), 1)
        for r in np.flatnonzero(sizes):
            n = int(np.ceil(course.facts_per_interaction * n_real * shares[r]))
            plan.append((int(r), rng.integers(sizes[r], size=n)))
        size = course.batch
        cut = [(r, rows[k : k + size]) for r, rows in plan for k in range(0, len(rows), size)]
        for k in rng.permutation(len(cut)):
            r, rows = cut[k]
            back = r != INTERACTION and bool(rng.random() < course.head_share)
            heads, tails = (users, items) if r == INTERACTION else self.by_relation[r]
            given, sought = (tails, heads) if back else (heads, tails)
            span = self.spans[r][0 if back else 1]
            negatives = rng.integers(span.start, span.stop, size=course.negatives)
            yield Batch(r, given[rows], sought[rows], negatives, back)


def softmax_loss(batch: Batch, positives: Tensor, negatives: Tensor) -> Tensor:
    """Mean cross-entropy of the true entity among itself and the negatives.

    ``positives`` are [triples], ``negatives`` [triples, negatives]. Negatives are drawn
    uniformly, so the sampled softmax needs no correction; one that is the true entity counts
    for nothing.
    """
    same = torch.from_numpy(batch.sought[:, None] == batch.negatives).to(positives.device)
    logits = torch.cat([positives[:, None], negatives.masked_fill(same, -torch.inf)], dim=1)
    true = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return cross_entropy(logits, true)


class Parameters:
    """The parameters of a module with their moments, stepped by row-wise Adam.

    Embeddings get sparse gradients, so that a step touches only the rows that a batch used.
    Steps of the part called ``proportional`` are in proportion to the size of its values when
    the fit starts, for whoever defined it chose their scale as well.
    """

    def __init__(self, module: nn.Module, proportional: str | None = None) -> None:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.sparse = True
        self.module = module
        self.moments = {
            name: RowAdam(_as_rows(p.detach()))
            for name, p in module.named_parameters()
            if p.requires_grad
        }
        self.sizes = {
            name: _size(adam.table) if name.split(".")[0] == proportional else 1.0
            for name, adam in self.moments.items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """All that training changes; the tensors are the state itself, not copies."""
        out = {f"module.{name}": t for name, t in self.module.state_dict().items()}
        for name, adam in self.moments.items():
            out |= {f"moments.{name}.{k}": t for k, t in adam.tensors().items() if k != "table"}
        return out

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Go down the gradients, and forget them."""
        for name, parameter in self.module.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            adam = self.moments[name]
            adam.table = _as_rows(parameter.data)  # a model may have put another tensor there
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                rows, values = gradient.indices()[0], gradient.values()
                adam.update(rows, values.reshape(len(rows), -1), rate * self.sizes[name])
            else:
                rows = torch.arange(len(adam.table), device=gradient.device)
                adam.update(rows, _as_rows(gradient.contiguous()), rate * self.sizes[name])
            parameter.grad = None


def train(
    parameters: Parameters,
    triples: Triples,
    course: Course,
    loss: Callable[[Batch, np.random.Generator], Tensor],
    *,
    epochs: int,
    warm: bool,
    saved: Checkpoint,
    progress: Progress,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Step through all epochs that a checkpoint has not done; the rate falls linearly."""
    what = "training the encoder"
    first = saved.resume(parameters.tensors())
    for epoch in range(first, epochs):
        batches = list(triples.batches(course, epoch, warm))
        with _repeatable([course.seed, epoch, warm]):
            for k, batch in enumerate(batches):
                progress(what, epoch * len(batches) + k, epochs * len(batches))
                done = (epoch + k / len(batches)) / epochs
                # Autograd alone is typed as untyped.
                loss(batch, np.random.default_rng([course.seed, epoch, k])).backward()  # type: ignore[no-untyped-call]
                parameters.step(course.rate + done * (course.final_rate - course.rate))
                after_step()
        saved.save(epoch + 1, parameters.tensors())
    progress(what, 1, 1)


@contextmanager
def _repeatable(seed: list[int]) -> Iterator[None]:
    """Own random numbers (dropout), and sums in an order that threads do not change."""
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.default_rng(seed).integers(1 << 62)))
        if not torch.cuda.is_available():  # where some sums have no such order
            torch.use_deterministic_algorithms(True)
            memory.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
            memory.fill_uninitialized_memory = fill


def module_arrays(module: nn.Module) -> dict[str, NDArray[np.generic]]:
    """The state of a module as arrays that are its own no longer."""
    return {name: t.cpu().numpy().copy() for name, t in module.state_dict().items()}


def load_arrays(module: nn.Module, state: Mapping[str, NDArray[np.generic]], whose: str) -> None:
    """Take over what ``module_arrays`` gave."""
    for name, tensor in module.state_dict().items():
        if name not in state or state[name].shape != tuple(tensor.shape):
            raise LogerError(f"this is no state of {whose} on this graph: {name} does not fit")
        tensor.copy_(torch.from_numpy(np.array(state[name])))


def chosen_device(device: str | None) -> torch.device:
    """The device of that name; None takes a GPU if there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def entity_ids(ids: ArrayLike, device: torch.device) -> Tensor:
    """Ids as a tensor that indexes."""
    return torch.as_tensor(np.asarray(ids, dtype=np.int64), device=device)


def _as_rows(tensor: Tensor) -> Tensor:
    """A view of a parameter as a table."""
    return tensor.view(len(tensor), -1) if tensor.dim() > 1 else tensor.view(1, -1)


def _size(table: Tensor) -> float:
    """How large a table's values are beside 0.1, which the learning rates are made for."""
    size = float(table.square().mean().sqrt()) / 0.1
    return size or 1.0
