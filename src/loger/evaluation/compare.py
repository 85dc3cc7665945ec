"""Methods × data → one table: each with settings chosen on validation, all judged alike.

What a method reached is kept in a folder as soon as it is known, as JSON (settings, times, means)
and safetensors (every value of every user). A method that is there already, for the same data,
settings and seed, is not run again; one that fails is named with its error and stops no other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from loger.data.splits import Split
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.errors import LogerError, UnknownNameError
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.metrics.report import METRICS, Format, Report, Values
from loger.evaluation.recommender import Recommender
from loger.evaluation.tuning import tune as tuned_on_validation
from loger.version import __version__

log = logging.getLogger(__name__)

Evaluated = Literal["validation", "test"]
_ENDINGS: Mapping[Format, str] = {"markdown": "md", "csv": "csv", "latex": "tex"}


@dataclass(frozen=True, slots=True)
class Method:
    """How a method is made. Its module is imported when it is asked for, not before."""

    home: str
    """module:name of what makes it."""
    seeded: bool = True
    """Whether it takes a seed; else it has nothing to draw."""
    quick: bool = False
    """Whether its whole grid takes minutes: then it is tuned on the data at hand. Where
    the defaults of others come from, docs/compare.md says."""

    refits: bool = False
    """Whether its fit itself learns from validation, in the way it must, and then joins it to
    train; it cannot be evaluated on validation."""

    def maker(self) -> Callable[..., Recommender]:
        """What makes it, given settings."""
        module, _, name = self.home.partition(":")
        return cast("Callable[..., Recommender]", getattr(import_module(module), name))


def encoder_alone(seed: int = 0, **settings: Any) -> Recommender:
    """The default encoder as a recommender, with settings of TransE."""
    from loger.baselines.encoder import EncoderAlone
    from loger.encoder import TransE, TransEConfig
    from loger.training.loop import configured

    config = configured(TransEConfig, {"seed": seed, **settings})
    return EncoderAlone(lambda: TransE(config))


def loger(seed: int = 0, **settings: Any) -> Recommender:
    """LOGER with its defaults, or with settings of EMConfig or LOGERConfig."""
    from loger.em import EMConfig
    from loger.model import LOGER, LOGERConfig
    from loger.training.loop import configured

    whole = {field.name for field in fields(LOGERConfig)}
    own = {name: value for name, value in settings.items() if name in whole}
    em = {name: value for name, value in settings.items() if name not in whole}
    return LOGER(LOGERConfig(**{"em": configured(EMConfig, em), "seed": seed, **own}))


def loger_paper(seed: int = 0, rounds: int = 4) -> Recommender:
    """LOGER by the paper's own choices."""
    from loger.model import LOGER, LOGERConfig

    return LOGER(LOGERConfig.paper(rounds=rounds, seed=seed), name="LOGER (paper)")


METHODS: Mapping[str, Method] = {
    "mostpop": Method("loger.baselines.mostpop:MostPop", seeded=False, quick=True),
    "itemknn": Method("loger.baselines.itemknn:ItemKNN", seeded=False, quick=True),
    "p3alpha": Method("loger.baselines.p3alpha:P3alpha", seeded=False, quick=True),
    "rp3beta": Method("loger.baselines.p3alpha:RP3beta", seeded=False, quick=True),
    "ease": Method("loger.baselines.ease:EASE", seeded=False, quick=True),
    "ials": Method("loger.baselines.ials:IALS", quick=True),
    "encoder": Method("loger.evaluation.compare:encoder_alone"),
    "cke": Method("loger.baselines.cke:CKE"),
    "ripplenet": Method("loger.baselines.ripplenet:RippleNet"),
    "kgat": Method("loger.baselines.kgat:KGAT"),
    "heteroembed": Method("loger.baselines.heteroembed:HeteroEmbed"),
    "pgpr": Method("loger.baselines.pgpr:PGPR"),
    "loger": Method("loger.evaluation.compare:loger", refits=True),
    "loger-paper": Method("loger.evaluation.compare:loger_paper", refits=True),
}
"""All methods by the names that ``loger compare`` knows them by."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one method reached."""

    method: str
    title: str
    """What tables call it."""
    course: str
    """Digest of all that determines the result."""
    settings: Mapping[str, Any]
    """Those that were given or chosen; the others are the method's own defaults."""
    trials: tuple[tuple[Mapping[str, Any], float], ...]
    """Settings tried on validation, with their NDCG."""
    seconds: Mapping[str, float]
    """To tune, fit, and evaluate."""
    coverage: Mapping[str, float]
    """By protocol."""
    means: Mapping[str, Mapping[str, float]]
    """By protocol and metric."""
    about: Mapping[str, Any]
    """Data, part, k, seed, version."""
    users: NDArray[np.int32] = field(repr=False)
    values: Mapping[str, Mapping[str, Values]] = field(repr=False)
    """By protocol and metric, one value per user."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of those methods that came through, and the errors of the others."""

    results: tuple[Result, ...]
    failures: Mapping[str, str]
    """Method → error."""
    reports: Mapping[str, Report]
    """One table for each protocol."""

    def costs(self) -> str:
        """Settings and times of each method, as Markdown."""
        rows = ["| | settings | tune, s | fit, s | evaluate, s |", "|---|---|---|---|---|"]
        for r in self.results:
            told = ", ".join(f"{k}={v}" for k, v in r.settings.items()) or "defaults"
            times = " | ".join(f"{r.seconds[k]:.1f}" for k in ("tune", "fit", "evaluate"))
            rows.append(f"| {r.title} | {told} | {times} |")
        return "\n".join(rows)


def compare(
    split: Split,
    methods: Sequence[str],
    out: Path | str,
    *,
    part: Evaluated = "test",
    protocols: Sequence[Protocol] = ("full",),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    tune: bool | None = None,
    k: int = 10,
    seed: int = 0,
    samples: int = 1000,
    registry: Mapping[str, Method] = METHODS,
    progress: Progress = silent,
) -> Compared:
    """Fit and evaluate methods on the same users and candidates, and write tables to ``out``.

    ``settings`` gives some methods settings of their own; what is not given is chosen on
    validation over the method's grid if ``tune`` is True or, by default, if that takes minutes
    only. On test each is then fitted with validation joined to train.
    """
    given = {name: dict(of) for name, of in (settings or {}).items()}
    _check(methods, given, registry, protocols)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    bench = _Bench(split, folder, part, tuple(protocols), tune, k, seed)
    results, failures = list[Result](), dict[str, str]()
    for done, name in enumerate(methods):
        progress("comparing methods", done, len(methods))
        try:
            results.append(bench.result(name, registry[name], given.get(name, {}), progress))
        except Exception as error:  # whatever a method dies of, the others go on
            failures[name] = str(error) or repr(error)
            log.warning("%s failed: %r", name, error)
            (folder / f"{name}.error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    progress("comparing methods", len(methods), len(methods))
    if not results:
        told = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise LogerError(f"no method came through ({told}); see {folder}/*.error.txt")
    reports: dict[str, Report] = {p: _report(split, results, p, bench, samples) for p in protocols}
    compared = Compared(tuple(results), failures, reports)
    _write(compared, folder, part)
    return compared


@dataclass(frozen=True)
class _Bench:
    """What all methods of a comparison have in common."""

    split: Split
    folder: Path
    part: Evaluated
    protocols: tuple[Protocol, ...]
    tune: bool | None
    k: int
    seed: int

    def result(
        self, name: str, method: Method, given: Mapping[str, Any], progress: Progress
    ) -> Result:
        """What a method reached: read from the folder, or found out and written there."""
        if method.refits and self.part == "validation":
            raise LogerError(f"{name} learns from validation; evaluate it on test")
        make = method.maker()
        drawn = {"seed": self.seed} if method.seeded else {}
        grid = (
            getattr(make, "GRID", {}) if self.tune or (method.quick and self.tune is None) else {}
        )
        grid = {setting: values for setting, values in grid.items() if setting not in given}
        about = self.about | {"method": name, "given": dict(given), "grid": grid}
        course = hashlib.sha256(
            json.dumps(about, sort_keys=True, default=repr).encode()
        ).hexdigest()
        kept = _read(self.folder, name, course)
        if kept is not None:
            return kept

        def told(what: str, done: int, total: int) -> None:
            progress(f"{name}: {what}", done, total)

        clock = [time.perf_counter()]
        found = tuned_on_validation(
            lambda **chosen: make(**drawn, **given, **chosen),
            grid,
            self.split,
            k=self.k,
            progress=told,
        )
        clock.append(time.perf_counter())
        chosen = {**given, **found.settings}
        whole = self.split.refit() if self.part == "test" else self.split
        seen = self.split if method.refits else whole
        fitted = make(**drawn, **chosen).fit(seen, progress=told)
        clock.append(time.perf_counter())
        reports = {p: self.evaluated(fitted, whole, p, told) for p in self.protocols}
        clock.append(time.perf_counter())
        values: dict[str, Mapping[str, Values]] = {
            p: r.values[fitted.name] for p, r in reports.items()
        }
        result = Result(
            name,
            fitted.name,
            course,
            chosen,
            found.trials,
            dict(zip(("tune", "fit", "evaluate"), np.diff(clock).tolist(), strict=True)),
            {p: r.coverage[fitted.name] for p, r in reports.items()},
            {p: {m: float(of[m].mean()) for m in METRICS} for p, of in values.items()},
            self.about,
            next(iter(reports.values())).users,
            values,
        )
        _keep(self.folder, result)
        return result

    @property
    def about(self) -> dict[str, Any]:
        """What determines a result, whatever the method."""
        return {
            "data": self.split.dataset.name,
            "fingerprint": fingerprint(self.split),
            "part": self.part,
            "protocols": list(self.protocols),
            "k": self.k,
            "seed": self.seed,
            "loger": __version__,
        }

    def evaluated(
        self, fitted: Recommender, whole: Split, protocol: Protocol, progress: Progress
    ) -> Report:
        """One method's values on the users and candidates that all methods have."""
        candidates = None
        if protocol != "full":
            mark = fingerprint(self.split)[:12]
            candidates = self.folder / f"candidates-{self.part}-{mark}-{self.seed}.parquet"
        engine: Engine = LocalEngine(progress=progress)
        return evaluate(
            [fitted],
            whole,
            self.part,
            k=self.k,
            protocol=protocol,
            candidates=candidates,
            seed=self.seed,
            engine=engine,
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
    """Refuse what cannot be compared, before work starts."""
    for name in (*methods, *settings):
        if name not in registry:
            raise UnknownNameError("method", name, registry)
    if not methods or len(set(methods)) < len(methods):
        raise LogerError(f"name some methods, each once; got {list(methods)}")
    if not protocols or len(set(protocols)) < len(protocols):
        raise LogerError(f"name some protocols, each once; got {list(protocols)}")
    idle = set(settings) - set(methods)
    if idle:
        raise LogerError(f"there are settings for {sorted(idle)}, which are not to be compared")


# ── what is kept ────────────────────────────────────────────────────────────────────────


def _keep(folder: Path, result: Result) -> None:
    """Write a result so that a kill at any moment leaves no half of it to be read."""
    arrays = {f"{p}/{m}": v for p, of in result.values.items() for m, v in of.items()}
    unfinished = folder / f"{result.method}.unfinished"
    save_file({"users": result.users, **arrays}, unfinished, {"course": result.course})
    unfinished.replace(folder / f"{result.method}.safetensors")
    slim = {f: getattr(result, f) for f in Result.__slots__ if f not in ("users", "values")}
    unfinished.write_text(json.dumps(slim, indent=2, ensure_ascii=False, default=_plain), "utf-8")
    unfinished.replace(folder / f"{result.method}.json")
    (folder / f"{result.method}.error.txt").unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """Settings that JSON does not know: configs as their fields, others as they are written."""
    try:
        return asdict(value)
    except TypeError:
        return repr(value)


def _read(folder: Path, name: str, course: str) -> Result | None:
    """The result of the same course, if it is in the folder whole."""
    try:
        kept = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if kept["course"] != course:
            return None
        with safe_open(folder / f"{name}.safetensors", framework="numpy") as file:
            if (file.metadata() or {}).get("course") != course:
                return None
            users = file.get_tensor("users")
            values = {p: {m: file.get_tensor(f"{p}/{m}") for m in METRICS} for p in kept["means"]}
        return Result(**kept, users=users, values=values)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None  # not there, or damaged: it is found out anew


def _report(
    split: Split, results: Sequence[Result], protocol: str, bench: _Bench, samples: int
) -> Report:
    """The results of one protocol as one report."""
    titles = [r.title for r in results]
    # Two ways to make one method are told apart by their names in commands.
    names = [r.title if titles.count(r.title) == 1 else f"{r.title} ({r.method})" for r in results]
    return Report(
        split.dataset.name,
        bench.part,
        protocol,
        bench.k,
        results[0].users,
        {name: r.values[protocol] for name, r in zip(names, results, strict=True)},
        {name: r.coverage[protocol] for name, r in zip(names, results, strict=True)},
        seed=bench.seed,
        samples=samples,
    )


def _write(compared: Compared, folder: Path, part: str) -> None:
    """The tables of each protocol in every format, and all of it as JSON."""
    for protocol, report in compared.reports.items():
        stem = f"{part}-{protocol}"
        for format, ending in _ENDINGS.items():
            text = report.table(format)
            if format == "markdown":
                lost = [f"- {name} failed: {error}" for name, error in compared.failures.items()]
                text = "\n\n".join([text, compared.costs(), *(["\n".join(lost)] if lost else [])])
            (folder / f"{stem}.{ending}").write_text(text.rstrip() + "\n", encoding="utf-8")
        (folder / f"{stem}.json").write_text(report.to_json() + "\n", encoding="utf-8")
