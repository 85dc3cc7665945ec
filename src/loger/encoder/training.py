"""How models learn: row-wise Adam, checkpoints, batches of one relation, and the loop over them.

The loop is for encoders that autograd trains. All triples of a batch have the same relation. The
model must find each triple's true entity among negatives of the same type, which the batch shares,
so r_ui is learned against items only (METHOD 2). Everything is a function of data, settings, seed
and epoch, so a training that is resumed after an epoch continues exactly as it would have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from loger.encoder.protocol import HiddenPairs, TrainerConfig
from loger.engine import Progress, silent
from loger.engine.saved import Saved
from loger.errors import LogerError
from loger.graph import INTERACTION, KnowledgeGraph
from loger.graph.arrays import Ids

log = logging.getLogger(__name__)
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


# ── row-wise Adam ───────────────────────────────────────────────────────────────────────


class RowAdam:
    """A table of vectors with its moments; each step reads and writes only some rows.

    This is Adam (Kingma & Ba 2015) with a full first moment and one second moment per row. A step
    costs as much as the rows it touches. Dense Adam, as in the authors' code, costs the whole table
    in every step.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.first = _zeros(table)
        self.second = torch.zeros(len(table), device=table.device)
        self.steps = torch.zeros(1, dtype=torch.int64)  # kept with the tensors for checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """The state, for checkpoints; the tensors are the state itself, not copies."""
        return {name: getattr(self, name) for name in ("table", "first", "second", "steps")}

    def update(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Step down the gradient.

        Row ``rows[k]`` gets ``weights[k] · gradient[owners[k]]``, or ``gradient[k]`` without
        owners. The gradients of a row that occurs several times add up.
        """
        self.steps += 1
        t = int(self.steps)
        rate = rate * (1 - BETA_2**t) ** 0.5 / (1 - BETA_1**t)
        on_cpu = self.table.device.type == "cpu"
        step = self._step_fused if on_cpu else self._step_anywhere
        step(rows, gradient, rate, owners, weights)

    def _step_anywhere(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        """A step by operations that every device has."""
        if owners is not None:
            gradient = gradient[owners]
        if weights is not None:
            gradient = gradient * weights.unsqueeze(1)
        distinct, place = torch.unique(rows, return_inverse=True)
        total = torch.zeros(len(distinct), gradient.shape[1], device=gradient.device)
        total.index_add_(0, place, gradient)
        first = self.first[distinct].lerp_(total, 1 - BETA_1)
        second = self.second[distinct].lerp_(total.square().mean(1), 1 - BETA_2)
        self.first[distinct], self.second[distinct] = first, second
        self.table[distinct] -= rate * first / (second.sqrt() + EPSILON).unsqueeze(1)

    def _step_fused(
        self,
        rows: Tensor,
        gradient: Tensor,
        rate: float,
        owners: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        """The same in one pass over the rows, for the CPU."""
        from loger.encoder._kernels import adam_rows, order_of

        ids, of_row = rows.numpy(), None if owners is None else owners.numpy()
        own = np.array([0, len(ids) - 1]) if of_row is None else of_row
        if len(ids) and not (
            0 <= ids.min() <= ids.max() < len(self.table)
            and 0 <= own.min() <= own.max() < len(gradient)
        ):
            raise LogerError(
                "an update refers to rows that are missing from the table or the gradient"
            )
        order = order_of(ids)
        adam_rows(
            self.table.numpy(),
            self.first.numpy(),
            self.second.numpy(),
            ids[order],
            order if of_row is None else of_row[order],
            np.empty(0, np.float32) if weights is None else weights.numpy()[order],
            gradient.contiguous().numpy(),
            np.float32(rate),
        )


def _zeros(like: Tensor) -> Tensor:
    """Zeros in the shape of a tensor; on the CPU, in large memory pages.

    NumPy asks for large pages, PyTorch doesn't. Training reads rows at random, so with small pages
    a large table would cost many page lookups.
    """
    if like.device.type != "cpu":
        return torch.zeros_like(like)
    out = np.empty(like.shape, dtype=np.float32)
    out.fill(0)
    return torch.from_numpy(out)


# ── checkpoints ─────────────────────────────────────────────────────────────────────────

FOLDER = "checkpoint"


class Checkpoint(Saved):
    """The tensors of a training, saved after each epoch; only the same training resumes them."""

    def __init__(self, folder: Path | None, *run: object) -> None:
        super().__init__(None if folder is None else Path(folder) / FOLDER, *run)

    def resume(self, tensors: dict[str, Tensor]) -> int:
        """Load what was saved; returns how many epochs it had done, 0 if there is nothing.

        If the state is damaged or belongs to another training, the tensors stay as they are.
        """
        found = self.read()
        if found is None:
            return 0
        values, arrays = found
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        there, wanted = ({k: (v.shape, v.dtype) for k, v in x.items()} for x in (state, tensors))
        if there != wanted:
            differ = sorted(k for k in there.keys() | wanted if there.get(k) != wanted.get(k))
            log.warning(
                "starting from scratch: the tensors saved in %s don't match: %s",
                self.folder,
                differ,
            )
            return 0
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
        return int(values["epochs"])

    def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Save the tensors after some epochs."""
        if self.folder is not None:
            self.write({"epochs": epochs}, {k: v.cpu().numpy() for k, v in tensors.items()})


# ── batches and the loop ────────────────────────────────────────────────────────────────

HEAD_SHARE = 0.5
"""The share of fact batches in which the model must find the head rather than the tail."""


class Batch(NamedTuple):
    """Triples of one relation; the model gets ``given`` and must find ``sought``."""

    relation: int
    given: Ids
    sought: Ids
    negatives: Ids
    head_sought: bool


class Triples:
    """A graph's triples by relation, with hidden pairs, to draw batches from."""

    def __init__(self, graph: KnowledgeGraph, hidden: HiddenPairs | None, negatives: int) -> None:
        heads, relations, tails = graph.triples()
        self.by_relation = [
            (heads[relations == r].astype(np.int64), tails[relations == r].astype(np.int64))
            for r in range(len(graph.relations))
        ]
        self.hidden, self.n_users, self.negatives = hidden, graph.n_users, negatives
        self.spans = [
            tuple(graph.vocabulary.span(t) for t in graph.signature(r))
            for r in range(len(graph.relations))
        ]

    def batches(self, config: TrainerConfig, epoch: int, warm: bool) -> Iterator[Batch]:
        """The batches of an epoch in random order.

        There are as many interactions as in the graph, and as many facts, shared among relations
        ∝ √size. Hidden pairs add no steps.
        """
        rng = np.random.default_rng([config.seed, 0xBA7C4, epoch, warm])
        users, items = real = self.by_relation[INTERACTION]
        n_real = len(users)
        if self.hidden is not None:
            users, items = self.hidden.drawn_with(real, self.n_users, config.seed, epoch, warm)
        plan = [(INTERACTION, rng.permutation(len(users))[:n_real])]
        sizes = np.array([0] + [len(h) for h, _ in self.by_relation[1:]])
        shares = np.sqrt(sizes) / max(np.sqrt(sizes).sum(), 1)
        for r in np.flatnonzero(sizes):
            n = int(np.ceil(n_real * shares[r]))
            plan.append((int(r), rng.integers(sizes[r], size=n)))
        size = config.batch
        cut = [(r, rows[k : k + size]) for r, rows in plan for k in range(0, len(rows), size)]
        for k in rng.permutation(len(cut)):
            r, rows = cut[k]
            back = r != INTERACTION and bool(rng.random() < HEAD_SHARE)
            heads, tails = (users, items) if r == INTERACTION else self.by_relation[r]
            given, sought = (tails, heads) if back else (heads, tails)
            span = self.spans[r][0 if back else 1]
            negatives = rng.integers(span.start, span.stop, size=self.negatives)
            yield Batch(r, given[rows], sought[rows], negatives, back)


def softmax_loss(batch: Batch, positives: Tensor, negatives: Tensor) -> Tensor:
    """Mean cross-entropy of the true entity among itself and the negatives.

    ``positives`` are [triples], ``negatives`` [triples, negatives]. Negatives are drawn uniformly,
    so the sampled softmax needs no correction. A negative that is the true entity is ignored.
    """
    same = torch.from_numpy(batch.sought[:, None] == batch.negatives).to(positives.device)
    logits = torch.cat([positives[:, None], negatives.masked_fill(same, -torch.inf)], dim=1)
    true = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return cross_entropy(logits, true)


class Parameters:
    """The parameters of a module with their moments, updated by row-wise Adam.

    Embeddings get sparse gradients, so a step touches only the rows that a batch used. Steps of the
    part called ``proportional`` are in proportion to the size of its values when the fit starts:
    the library that defines that part chooses their scale.
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
        """Everything that training changes; the tensors are the state itself, not copies."""
        out = {f"module.{name}": t for name, t in self.module.state_dict().items()}
        for name, adam in self.moments.items():
            out |= {f"moments.{name}.{k}": t for k, t in adam.tensors().items() if k != "table"}
        return out

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Make a step and clear the gradients."""
        for name, parameter in self.module.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            adam = self.moments[name]
            adam.table = _as_rows(parameter.data)  # the model may have replaced the tensor
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
    config: TrainerConfig,
    loss: Callable[[Batch, np.random.Generator], Tensor],
    *,
    epochs: int,
    warm: bool,
    saved: Checkpoint,
    progress: Progress,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Train for all epochs that a checkpoint hasn't done, at a rate that falls linearly."""
    what = "training the encoder"
    first = saved.resume(parameters.tensors())
    for epoch in range(first, epochs):
        batches = list(triples.batches(config, epoch, warm))
        with repeatable([config.seed, epoch, warm]):
            for k, batch in enumerate(batches):
                progress(what, epoch * len(batches) + k, epochs * len(batches))
                done = (epoch + k / len(batches)) / epochs
                # Autograd alone is typed as untyped.
                loss(batch, np.random.default_rng([config.seed, epoch, k])).backward()  # type: ignore[no-untyped-call]
                parameters.step(config.rate_after(done))
                after_step()
        saved.save(epoch + 1, parameters.tensors())
    progress(what, 1, 1)


@contextmanager
def repeatable(seed: list[int]) -> Iterator[None]:
    """Use separate random numbers (for dropout), and add up in an order independent of threads."""
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.default_rng(seed).integers(1 << 62)))
        if not torch.cuda.is_available():  # on a GPU, some sums have no fixed order
            torch.use_deterministic_algorithms(True)
            memory.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
            memory.fill_uninitialized_memory = fill


class TrainedEncoder:
    """What encoders trained by this loop share: how they are fitted, saved and restored.

    A subclass defines ``_start``, ``_loss`` and, if it needs them, the other hooks.
    """

    name: str
    config: Any
    """Its settings, a ``TrainerConfig``."""
    negatives: int
    """Number of negatives that a batch shares."""
    warm_epochs: int
    """Epochs of a warm fit: a fifth of those of a first fit."""
    device: torch.device
    module_: Any
    """What it learns, a module of PyTorch."""
    proportional: str | None = None
    """See ``Parameters``."""

    def fit(
        self,
        graph: KnowledgeGraph,
        *,
        hidden: HiddenPairs | None = None,
        warm: bool = False,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from a graph; see ``Encoder.fit``."""
        if not warm:
            self._start(graph)
        elif not hasattr(self, "module_"):
            raise LogerError("a warm fit needs an earlier one; call fit without warm=True first")
        begun = self.state() if warm else None
        run = (type(self).__name__, graph.fingerprint, self.config, hidden, begun)
        self.module_.train()
        train(
            Parameters(self.module_, self.proportional),
            Triples(graph, hidden, self.negatives),
            self.config,
            partial(self._loss, graph),
            epochs=self.warm_epochs if warm else self.config.epochs,
            warm=warm,
            saved=Checkpoint(checkpoint, *run),
            progress=progress,
            after_step=self._after_step,
        )
        self._settle(graph)
        return self

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything that was learned. Moments aren't kept: a warm fit starts without them."""
        return module_arrays(self.module_)

    def load_state(self, graph: KnowledgeGraph, state: Mapping[str, NDArray[np.generic]]) -> Self:
        """Restore what ``state`` returned."""
        self._start(graph)
        load_arrays(self.module_, state, f"a {self.name}")
        self._settle(graph)
        return self

    def _start(self, graph: KnowledgeGraph) -> None:
        """Create the module with its initial values."""
        raise NotImplementedError

    def _loss(self, graph: KnowledgeGraph, batch: Batch, rng: np.random.Generator) -> Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def _after_step(self) -> None:
        """Called after each step."""

    def _settle(self, graph: KnowledgeGraph) -> None:
        """Prepare for scoring, after a training or a load."""
        self.module_.eval()


def module_arrays(module: nn.Module) -> dict[str, NDArray[np.generic]]:
    """The state of a module, as copies."""
    return {name: t.cpu().numpy().copy() for name, t in module.state_dict().items()}


def load_arrays(module: nn.Module, state: Mapping[str, NDArray[np.generic]], whose: str) -> None:
    """Restore what ``module_arrays`` returned."""
    for name, tensor in module.state_dict().items():
        if name not in state or state[name].shape != tuple(tensor.shape):
            raise LogerError(
                f"the state doesn't match {whose} on this graph: {name} is missing or has the "
                "wrong shape; fit again"
            )
        tensor.copy_(torch.from_numpy(np.array(state[name])))


def chosen_device(device: str | None) -> torch.device:
    """The device of that name; None takes a GPU if there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def entity_ids(ids: ArrayLike, device: torch.device) -> Tensor:
    """IDs as a tensor for indexing."""
    return torch.as_tensor(np.asarray(ids, dtype=np.int64), device=device)


def _as_rows(tensor: Tensor) -> Tensor:
    """A view of a parameter as a table."""
    return tensor.view(len(tensor), -1) if tensor.dim() > 1 else tensor.view(1, -1)


def _size(table: Tensor) -> float:
    """The size of a table's values compared with 0.1, for which the learning rates are made."""
    size = float(table.square().mean().sqrt()) / 0.1
    return size or 1.0
