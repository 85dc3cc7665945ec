"""Methods × data → one table: each with settings chosen on validation, all evaluated alike.

A method's result is written to a folder as soon as it is complete, as JSON (settings, times,
means) and safetensors (every value of every user). A method isn't run again if its result for the
same data, settings and seed is there. If one fails, its error is reported and the others run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from loger import __version__
from loger.data.splits import Split
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.files import atomic_file, write_text
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.methods import METHODS, Method
from loger.graph.arrays import Doubles
from loger.metrics.grid_search import search as search_on_validation
from loger.metrics.grid_search import tune as tune_on_validation
from loger.metrics.report import METRICS, Format, Report
from loger.model import LOGER
from loger.recommender import EvaluatedPart, Recommender, check_part, fit_for

log = logging.getLogger(__name__)

_STAGES = ("tune", "fit", "evaluate")
_ENDINGS: Mapping[Format, str] = {"markdown": "md", "csv": "csv", "latex": "tex"}


@dataclass(frozen=True, slots=True)
class Result:
    """How good one method is."""

    method: str
    title: str
    """What tables call it."""
    run_key: str
    """Digest of everything that determines the result."""
    settings: Mapping[str, Any]
    """Settings from the caller or from tuning; the others are the method's defaults."""
    trials: tuple[tuple[Mapping[str, Any], float], ...]
    """Settings tried on validation, with their NDCG."""
    seconds: Mapping[str, float]
    """Wall-clock seconds of tune, fit and evaluate; and total ``processor`` time."""
    coverage: Mapping[str, float]
    """By protocol."""
    means: Mapping[str, Mapping[str, float]]
    """By protocol and metric."""
    about: Mapping[str, Any]
    """Data, part, k, seed, version."""
    users: NDArray[np.int32] = field(repr=False)
    values: Mapping[str, Mapping[str, Doubles]] = field(repr=False)
    """By protocol and metric, one value per user."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of the methods that succeeded, and the errors of the others."""

    results: tuple[Result, ...]
    failures: Mapping[str, str]
    """Method → error."""
    reports: Mapping[str, Report]
    """One table for each protocol."""

    def costs(self) -> str:
        """Settings and times of each method, as Markdown."""
        rows = ["| | settings | tune, s | fit, s | evaluate, s |", "|---|---|---|---|---|"]
        for r in self.results:
            settings = ", ".join(f"{k}={v}" for k, v in r.settings.items()) or "defaults"
            times = " | ".join(f"{r.seconds[stage]:.1f}" for stage in _STAGES)
            rows.append(f"| {r.title} | {settings} | {times} |")
        return "\n".join(rows)


def compare(
    split: Split,
    methods: Sequence[str],
    out: Path | str,
    *,
    part: EvaluatedPart = "test",
    protocols: Sequence[Protocol] = ("full",),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    tune: bool | None = None,
    k: int = 10,
    seed: int = 0,
    samples: int = 1000,
    registry: Mapping[str, Method] = METHODS,
    checkpoint: Path | None = None,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Compared:
    """Fit and evaluate methods on the same users and candidates, and write tables to ``out``.

    Each method is fitted on everything it may know (``fit_for``). If the workers of ``engine`` are
    separate processes, methods run in parallel.

    Args:
        split: the data.
        methods: names from ``registry``.
        out: folder for results and tables.
        part: the part to evaluate on.
        protocols: one table each.
        settings: settings by method; these aren't tuned.
        tune: whether to choose other settings on validation over the method's grid; by default
            only for methods where that takes minutes.
        k: length of the lists.
        seed: of models, candidates and the bootstrap.
        samples: number of bootstrap samples behind the intervals.
        registry: the methods that there are.
        checkpoint: folder in which LOGER keeps finished stages, for fits that share them.
        engine: where to run.
        progress: receives how far the comparison is.
    """
    settings = settings or {}
    _check(methods, settings, registry, protocols)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    runs_on = engine or LocalEngine()
    task = _Task(split, folder, part, tuple(protocols), tune, k, seed, runs_on, checkpoint)
    results, failures = list[Result](), dict[str, str]()
    asked = [(name, registry[name], settings.get(name, {})) for name in methods]
    for name, found in zip(methods, _outcomes(task, asked, progress), strict=True):
        if isinstance(found, Result):
            results.append(found)
        else:  # whatever one method fails with, the others go on
            failures[name] = found.error
            log.warning("%s failed: %s", name, found.error)
            write_text(folder / f"{name}.error.txt", found.text)
    progress("comparing methods", len(methods), len(methods))
    if not results:
        errors = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise LogerError(f"all methods failed ({errors}); see {folder}/*.error.txt")
    reports: dict[str, Report] = {p: _report(results, p, task, samples) for p in protocols}
    compared = Compared(tuple(results), failures, reports)
    _write_tables(compared, folder, part)
    return compared


def run_keys(
    split: Split,
    registry: Mapping[str, Method],
    *,
    protocols: Sequence[Protocol],
    settings: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> dict[str, str]:
    """The ``Result.run_key`` that ``compare`` would give each method on the test part."""
    task = _Task(split, Path(), "test", tuple(protocols), None, 10, seed, LocalEngine())
    return {name: task._run_key(name, m, settings.get(name, {})) for name, m in registry.items()}


class _Failure(NamedTuple):
    """The error of a method."""

    error: str
    text: str
    """The traceback."""


_Asked = tuple[str, Method, Mapping[str, Any]]
"""A method with its name and the caller's settings."""


def _outcomes(
    task: _Task, asked: Sequence[_Asked], progress: Progress
) -> Iterator[Result | _Failure]:
    """The result of each method: one after another or, if workers are separate processes, each in
    one worker on one core."""
    missing = [one for one in asked if task.stored(*one) is None]
    apart = getattr(task.engine, "separate", False) and len(missing) > 1
    if apart:
        engine = task.engine.with_progress(progress)
        made = engine.map("comparing methods", _trial, missing, task)
    for done, one in enumerate(asked):
        if not apart:
            progress("comparing methods", done, len(asked))
        found: Result | _Failure | None = task.stored(*one)
        if found is None:
            found = next(made) if apart else _trial(task, one, progress)
            if isinstance(found, Result):
                _write_result(task.folder, found)
        yield found


def _trial(task: _Task, asked: _Asked, progress: Progress = silent) -> Result | _Failure:
    """Tune, fit and evaluate one method, on any machine; an error is an outcome too."""

    def show(what: str, done: int, total: int) -> None:
        progress(f"{asked[0]}: {what}", done, total)

    try:
        with tempfile.TemporaryDirectory() as elsewhere:  # on a machine without the folder
            here = task if task.folder.is_dir() else replace(task, folder=Path(elsewhere))
            return here.run(*asked, show)
    except Exception as error:
        return _Failure(str(error) or repr(error), traceback.format_exc())


@dataclass(frozen=True)
class _Task:
    """What all methods of a comparison have in common."""

    split: Split
    folder: Path
    part: EvaluatedPart
    protocols: tuple[Protocol, ...]
    tune: bool | None
    k: int
    seed: int
    engine: Engine
    checkpoint: Path | None = None

    @cached_property
    def about(self) -> dict[str, Any]:
        """What determines a result, for every method."""
        return {
            "data": self.split.dataset.name,
            "fingerprint": fingerprint(self.split),
            "part": self.part,
            "protocols": list(self.protocols),
            "k": self.k,
            "seed": self.seed,
            "loger": __version__,
        }

    def stored(self, name: str, method: Method, settings: Mapping[str, Any]) -> Result | None:
        """A method's stored result."""
        try:
            run_key = self._run_key(name, method, settings)
        except Exception:  # the method can't be made; running it reports why
            return None
        return _read_result(self.folder, name, run_key)

    def _run_key(self, name: str, method: Method, settings: Mapping[str, Any]) -> str:
        grid = self._grid(method, settings)
        own = {**method.settings, **settings}
        whole = {**self.about, "method": name, "settings": own, "grid": grid}
        text = json.dumps(whole, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def _grid(self, method: Method, settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        """What is left to tune."""
        tunes = method.quick if self.tune is None else self.tune
        grid = method.grid if tunes else {}
        return {setting: values for setting, values in grid.items() if setting not in settings}

    def run(
        self, name: str, method: Method, settings: Mapping[str, Any], progress: Progress
    ) -> Result:
        """Tune, fit and evaluate a method."""
        check_part(method.make(self.seed, **settings), self.part)
        grid = self._grid(method, settings)
        make = partial(method.make, self.seed, **settings)
        clock, busy = [time.perf_counter()], time.process_time()
        choose = search_on_validation if method.searched and grid else tune_on_validation
        tuned = choose(make, grid, self.split, k=self.k, engine=self.engine, progress=progress)
        clock.append(time.perf_counter())
        fitted = self._fitted(make(**tuned.settings), progress)
        clock.append(time.perf_counter())
        reports = {p: self._evaluate(fitted, p, progress) for p in self.protocols}
        clock.append(time.perf_counter())
        seconds = dict(zip(_STAGES, np.diff(clock).tolist(), strict=True))
        values: dict[str, Mapping[str, Doubles]] = {
            p: report.values[fitted.name] for p, report in reports.items()
        }
        return Result(
            method=name,
            title=fitted.name,
            run_key=self._run_key(name, method, settings),
            settings={**method.settings, **settings, **tuned.settings},
            trials=tuned.trials,
            seconds={**seconds, "processor": time.process_time() - busy},
            coverage={p: report.coverage[fitted.name] for p, report in reports.items()},
            means={p: {m: float(of[m].mean()) for m in METRICS} for p, of in values.items()},
            about=self.about,
            users=reports[self.protocols[0]].users,
            values=values,
        )

    def _fitted(self, made: Recommender, progress: Progress) -> Recommender:
        if isinstance(made, LOGER) and self.checkpoint is not None:
            return made.fit(self.split, checkpoint=self.checkpoint, progress=progress)
        return fit_for(made, self.split, self.part, progress=progress)

    def _evaluate(self, fitted: Recommender, protocol: Protocol, progress: Progress) -> Report:
        """One method's values on the users and candidates that all methods share."""
        return evaluate(
            [fitted],
            self.split,
            self.part,
            k=self.k,
            protocol=protocol,
            seed=self.seed,
            engine=self.engine.with_progress(progress),
        )


def fingerprint(split: Split) -> str:
    """A digest of a split: its training graph, and the pairs of each part."""
    digest = hashlib.sha256(split.graph.fingerprint.encode())
    for part in ("train", "validation", "test"):
        for ids in split.pairs(part):
            digest.update(np.ascontiguousarray(ids).tobytes() + b"\0")
    return digest.hexdigest()


def _check(
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    registry: Mapping[str, Method],
    protocols: Sequence[str],
) -> None:
    """Raise an error for anything that can't be compared, before work starts."""
    for name in (*methods, *settings):
        if name not in registry:
            raise UnknownNameError("method", name, registry)
    if not methods or len(set(methods)) < len(methods):
        raise LogerError(f"name at least one method, and each only once; got {list(methods)}")
    if not protocols or len(set(protocols)) < len(protocols):
        raise LogerError(f"name at least one protocol, and each only once; got {list(protocols)}")
    unused = sorted(set(settings) - set(methods))
    if unused:
        raise LogerError(
            f"there are settings for {unused}, but these methods aren't being compared"
        )


# ── files ───────────────────────────────────────────────────────────────────────────────


def _write_result(folder: Path, result: Result) -> None:
    """Write a result so that a kill at any moment leaves no partial result behind."""
    arrays = {f"{p}/{m}": v for p, of in result.values.items() for m, v in of.items()}
    with atomic_file(folder / f"{result.method}.safetensors") as file:
        save_file({"users": result.users, **arrays}, file, {"run_key": result.run_key})
    slim = {f: getattr(result, f) for f in Result.__slots__ if f not in ("users", "values")}
    text = json.dumps(slim, indent=2, ensure_ascii=False, default=_plain)
    write_text(folder / f"{result.method}.json", text)
    (folder / f"{result.method}.error.txt").unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """Settings that JSON can't represent: configs as their fields, others as their repr."""
    try:
        return asdict(value)
    except TypeError:
        return repr(value)


def _read_result(folder: Path, name: str, run_key: str) -> Result | None:
    """The stored result of the same run, if it is complete."""
    try:
        stored = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if stored["run_key"] != run_key:
            return None
        with safe_open(folder / f"{name}.safetensors", framework="numpy") as file:
            if (file.metadata() or {}).get("run_key") != run_key:
                return None
            users = file.get_tensor("users")
            values = {p: {m: file.get_tensor(f"{p}/{m}") for m in METRICS} for p in stored["means"]}
        return Result(**stored, users=users, values=values)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None  # missing or damaged: it is computed again


def _report(results: Sequence[Result], protocol: str, task: _Task, samples: int) -> Report:
    """The results of one protocol as one report."""
    titles = [r.title for r in results]
    # Variants of one method are distinguished by their command-line names.
    names = [r.title if titles.count(r.title) == 1 else f"{r.title} ({r.method})" for r in results]
    return Report(
        task.split.dataset.name,
        task.part,
        protocol,
        task.k,
        results[0].users,
        {name: r.values[protocol] for name, r in zip(names, results, strict=True)},
        {name: r.coverage[protocol] for name, r in zip(names, results, strict=True)},
        seed=task.seed,
        samples=samples,
    )


def _write_tables(compared: Compared, folder: Path, part: str) -> None:
    """The tables of each protocol in every format, and all of it as JSON."""
    for protocol, report in compared.reports.items():
        stem = f"{part}-{protocol}"
        for format, ending in _ENDINGS.items():
            text = report.table(format)
            if format == "markdown":
                failed = [f"- {name} failed: {error}" for name, error in compared.failures.items()]
                text = "\n\n".join([text, compared.costs(), "\n".join(failed)])
            write_text(folder / f"{stem}.{ending}", text.rstrip() + "\n")
        write_text(folder / f"{stem}.json", report.to_json() + "\n")
