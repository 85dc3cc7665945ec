"""The paper's exhibits for one data set (``loger reproduce``): Table 1, the JS table, Figure 2, the
statistics, the study, and the times.

Each method is one cell. ``cells.json`` stores the measurements of each: ranking figures, those of a
LOGER's encoder alone, the divergences of its reasons, and its times. It has means and intervals but
no data about single users, so you can publish it, and another run can continue from it. All
exhibits are made from it and written again after each cell:

- ``methods/``: what ``compare`` stores, with the values of each user;
- ``study.sqlite``: the user study of PGPR, KGAT and LOGER, ready for raters;
- ``tables/*.json``: the exhibits, in the format of docs/tables; ``report.md``, ``report.html``.

The E-steps of Figure 2 all start from the same encoder and weights. Size 0 is their control: the
same E-steps without pairs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar, cast

from loger.baselines.ease import EASE, memory_needed
from loger.config import LOGERConfig
from loger.data.splits import Split
from loger.data.statistics import statistics
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.files import write_text
from loger.errors import LogerError
from loger.evaluation import plots
from loger.evaluation.compare import compare, run_keys
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.faithfulness import FaithfulnessConfig, Probes, faithfulness_report
from loger.evaluation.methods import METHODS, EncoderAlone, Method
from loger.evaluation.report import STYLE, html_table, origin
from loger.graph import KnowledgeGraph, whole
from loger.logic.mining import mine
from loger.metrics.report import Report
from loger.model import LOGER
from loger.recommender import Explains, Recommender, fit_for
from loger.rules import RuleSet, named_rules

PROTOCOLS: tuple[Protocol, ...] = ("full", "sampled-100")
CONTROLS = ("mostpop", "itemknn", "ease")
OURS = ("paper-literal", "loger")
EXPLAINED = ("pgpr", "kgat", "loger-paper", "loger")
"""The methods of the paper's JS table, and the default."""
STUDIED = EXPLAINED[:3]
_JS_LINES = ("js_f", "js_w", "floor", "random", "pathless", "emitted")
LOGERS = ("paper-literal", "loger-paper", "loger")
"""Methods whose encoder is also measured alone."""
SIZES = (0, 10, 20, 30, 40, 50)
METRICS = {"precision": "Precision", "recall": "Recall", "ndcg": "NDCG", "hit_rate": "HR"}
"""In the paper's order."""

PAPER_SETS = ("Cellphones", "Grocery", "Automotive")
TABLE_1: dict[str, tuple[float | None, ...]] = {
    "cke": (0.1847, 0.3070, 0.2257),
    "ripplenet": (0.2177, 0.2858, None),
    "pgpr": (0.2366, 0.3174, 0.2804),
    "kgat": (0.2365, 0.3381, 0.2859),
    "heteroembed": (0.2626, 0.3701, 0.3314),
    "loger-paper": (0.3227, 0.4370, 0.3653),
}
"""NDCG as published, in the paper's order."""
JS = {"pgpr": "0.56 / 0.49, 0.42 / 0.38", "kgat": "0.53 / 0.45, 0.39 / 0.41",
      "loger-paper": "0.47 / 0.32, 0.34 / 0.28"}  # fmt: skip
"""JS_f / JS_w on Cellphones and Grocery as published."""
STATISTICS = {
    "users": (61254, 57822, 95445),
    "items": (47604, 40694, 78557),
    "interactions": (607673, 709280, 1122776),
    "entities": (169331, 173369, 270543),
    "relations": (45, 45, 73),
    "facts": (3117051, 3742954, 4580318),
}
"""Of the paper's three sets."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much to reproduce."""

    sizes: Sequence[int] = SIZES
    rounds: int = 4
    """Rounds of EM in Figure 2, all of them kept."""
    js_users: int = 200
    tasks: int = 20
    """Number of questions in the study."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by method, if not the defaults."""
    quick: bool = False
    """Whether the report says that its figures are those of short fits."""


QUICK = Extent(
    quick=True,
    sizes=(0, 10, 50),
    rounds=1,
    js_users=30,
    tasks=5,
    settings={
        "paper-literal": {"encoder": {"epochs": 1, "warm_epochs": 1}, "em": {"rounds": 0},
                          "explain_by": "contributions"},
        "loger-paper": {"reasoner": {"epochs": 2}},
        **{name: {"epochs": 3} for name in ("cke", "ripplenet", "kgat", "heteroembed", "pgpr")},
    },
)  # fmt: skip
"""Takes a few minutes on the demo shop and shows all exhibits."""
_QUICK = (
    "This is a quick run: most methods are fitted for only a few epochs. It shows what the "
    "exhibits look like; its figures don't compare the methods."
)

_COMMIT = origin()
"""The commit at which the run began, whatever is committed later."""

MakeStudy = Callable[[Path, Mapping[str, Explains], KnowledgeGraph, RuleSet, int], None]
"""Writes a study to a file, given the methods, their graph, the rules of histories, and the number
of tasks."""


class _Kept(Method):
    """A method that remembers the last model it made."""

    made: ClassVar[list[Recommender]] = []

    def make(self, seed: int = 0, **settings: Any) -> Recommender:
        self.made[:] = [super().make(seed, **settings)]
        return self.made[0]


@dataclass(frozen=True)
class Reproduction:
    """The exhibits of one data set, in a folder."""

    split: Split
    folder: Path
    extent: Extent = field(default_factory=Extent)
    seed: int = 0
    study: MakeStudy | None = None
    engine: Engine = field(default_factory=LocalEngine)
    progress: Progress = silent
    earlier: Path | None = None
    """``cells.json`` of an earlier run, whose cells aren't measured again."""
    failures: dict[str, str] = field(default_factory=dict)
    """Method → error; the other methods still run."""

    def run(self) -> dict[str, str]:
        """Measure what is missing and write the exhibits; returns the errors of failed methods."""
        (self.folder / "tables").mkdir(parents=True, exist_ok=True)
        models: dict[str, Explains] = {}
        self._write()
        for done, name in enumerate(self.order):
            self.progress(f"exhibits: {name}", done, len(self.order))
            missing = self._missing(name)
            if not missing:
                continue
            try:
                model = self._measure(name, missing)
            except LogerError as error:
                self.failures[name] = str(error)
            else:
                if name in STUDIED:
                    models[name] = cast("Explains", model)
            self._write()
        self._make_study(models)
        shutil.rmtree(self.folder / "unfinished", ignore_errors=True)
        self.progress("exhibits", len(self.order), len(self.order))
        return self.failures

    # ── cells ───────────────────────────────────────────────────────────────────────────

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Methods that can't handle this catalogue, and why."""
        n = self.split.dataset.n_items
        need, most = memory_needed(n), EASE().memory
        if need <= most:
            return {}
        return {"ease": f"{n:,} items need {need / 2**30:.1f} GiB, of {most / 2**30:.1f} allowed"}

    @property
    def methods(self) -> list[str]:
        """The methods of Table 1."""
        every = (*CONTROLS, *TABLE_1, *OURS)
        return [name for name in every if name not in self.left_out]

    @property
    def figure(self) -> dict[str, int]:
        """The methods of Figure 2, each with its size of H⁺."""
        return {f"paper-h{size}": size for size in self.extent.sizes}

    @property
    def order(self) -> list[str]:
        """All methods, cheap and important ones first, so that a run that is stopped early has most
        of every exhibit: first the ends of Figure 2, then the JS table, then the rest of Table 1.
        The other sizes of Figure 2 and `paper-literal` take as long as everything before them."""
        ends = [f"paper-h{size}" for size in (self.extent.sizes[0], self.extent.sizes[-1])]
        first = ["mostpop", "itemknn", "heteroembed", "loger-paper", *ends]
        first += ["pgpr", "kgat", "loger", "cke", "ease", "ripplenet", *self.figure]
        known = dict.fromkeys([*first, *self.methods])
        return [name for name in known if name in self.registry]

    @cached_property
    def registry(self) -> dict[str, Method]:
        """All methods, including those of Figure 2: `paper` with all rounds kept. These show no
        reasons, so φ isn't trained."""
        out = {name: METHODS[name] for name in self.methods}
        for name, size in self.figure.items():
            em = {"rounds": self.extent.rounds, "early_stop": False, "max_hidden": size}
            own = {"name": _title(size), "em": em, "explain_by": "contributions"}
            out[name] = replace(METHODS["loger-paper"], settings=own)
        of = [f.name for f in fields(Method)]
        return {name: _Kept(*(getattr(m, f) for f in of)) for name, m in out.items()}

    @cached_property
    def _keys(self) -> dict[str, str]:
        settings = self.extent.settings
        return run_keys(
            self.split, self.registry, protocols=PROTOCOLS, settings=settings, seed=self.seed
        )

    @cached_property
    def cells(self) -> dict[str, dict[str, Any]]:
        """The measurements of each method, by this or an earlier run with the same data, settings
        and seed."""
        found: dict[str, dict[str, Any]] = {}
        for file in (self.earlier, self.folder / "cells.json"):
            if file is not None and (file.exists() or file is self.earlier):
                cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
                found |= {n: c for n, c in cells.items() if c["run_key"] == self._keys.get(n)}
        return found

    def _missing(self, name: str) -> set[str]:
        """The parts of a method's cell that are missing."""
        wanted = {"ranking"}
        wanted |= {"encoder"} if name in LOGERS else set()
        wanted |= {"js"} if name in EXPLAINED else set()
        return wanted - self.cells.get(name, {}).keys()

    def _measure(self, name: str, missing: set[str]) -> Recommender | None:
        """Measure the missing parts of a cell; returns the model, if it was fitted."""
        model = None
        if "ranking" in missing:
            self.cells[name], model = self._ranked(name)
            self._keep()
        if missing - {"ranking"}:
            model = model or self._fitted(name)
        if "encoder" in missing:
            self.cells[name]["encoder"] = self._encoder_alone(cast("LOGER", model))
        if "js" in missing:
            self.cells[name]["js"] = self._divergences(cast("Explains", model))
        self._keep()
        return model

    def _keep(self) -> None:
        about = {"data": self.split.dataset.name, "seed": self.seed}
        cells = {name: self.cells[name] for name in self.order if name in self.cells}
        text = json.dumps({**about, "cells": cells}, indent=1, ensure_ascii=False)
        write_text(self.folder / "cells.json", text + "\n")

    def _ranked(self, name: str) -> tuple[dict[str, Any], Recommender | None]:
        """The result of ``compare`` for a method, new or stored, and the model if it was fitted
        now. Methods of Figure 2 also have the difference from the control, paired over users."""
        control = f"paper-h{self.extent.sizes[0]}"
        names = [control, name] if name in self.figure and name != control else [name]
        _Kept.made.clear()
        compared = compare(
            self.split,
            names,
            self.folder / "methods",
            protocols=PROTOCOLS,
            settings={n: s for n, s in self.extent.settings.items() if n in names},
            seed=self.seed,
            registry=self.registry,
            checkpoint=self._checkpoint(name),
            engine=self.engine,
            progress=self.progress,
        )
        if name in compared.failures:
            raise LogerError(compared.failures[name])
        result, reports = compared.results[-1], compared.reports
        cell = {
            "title": result.title,
            "run_key": result.run_key,
            "commit": _COMMIT,
            "seconds": dict(result.seconds),
            "ranking": {p: _means(reports[p], result.title) for p in PROTOCOLS},
        }
        if len(names) > 1:
            cell["gain"] = {p: _difference(reports[p], result.title) for p in PROTOCOLS}
        made = _Kept.made[0] if _Kept.made else None
        return cell, made if made is not None and made.is_fitted else None

    def _checkpoint(self, name: str) -> Path:
        """Where a fit stores finished stages; all variants of `paper` share their encoders."""
        group = "paper" if name in {"loger-paper", *self.figure} else name
        return self.folder / "unfinished" / group

    def _fitted(self, name: str) -> Recommender:
        """A method fitted again, because only its ranking figures were stored."""
        made = METHODS[name].make(self.seed, **self.extent.settings.get(name, {}))
        if isinstance(made, LOGER):
            return made.fit(self.split, checkpoint=self._checkpoint(name), progress=self.progress)
        return fit_for(made, self.split, progress=self.progress)

    @cached_property
    def rules(self) -> RuleSet:
        """The rules over which histories are counted: all mined rules, as in the paper."""
        config = replace(LOGERConfig.paper().mining, seed=self.seed)
        return mine(self.split.refit().graph, config, self.engine).rules

    def _divergences(self, model: Explains) -> dict[str, Any]:
        """JS_f and JS_w of a model's reasons, with floor, control and numbers of users."""
        known, rules, probes = self.split.refit(), self.rules, Probes()
        if isinstance(model, LOGER):
            graph = whole(model.graph_)  # derived relations are numbered there
            rules = named_rules(graph, [rule.names for rule in rules])
            own = dict(zip(model.rules_, map(float, model.weights_), strict=True))
            probes = Probes(weights=own, graph=graph)
        config = FaithfulnessConfig(users=self.extent.js_users, probed=0, seed=self.seed)
        report = faithfulness_report(
            model, known, rules, config, probes=probes, engine=self.engine, progress=self.progress
        )
        found = {line: report[line] for line in _JS_LINES}
        of = {line: None if mean is None else asdict(mean) for line, mean in found.items()}
        return {"rules": len(rules), **of}

    def _encoder_alone(self, model: LOGER) -> dict[str, Any]:
        """The ranking figures of a model's encoder."""
        alone = EncoderAlone.of(model.encoder_)
        reports = {
            p: evaluate([alone], self.split, protocol=p, seed=self.seed, engine=self.engine)
            for p in PROTOCOLS
        }
        return {p: _means(report, alone.name) for p, report in reports.items()}

    def _make_study(self, models: dict[str, Explains]) -> None:
        """Write the study of the paper's three methods. Methods that aren't in memory are fitted
        again, unless the run continues an earlier one."""
        file = self.folder / "study.sqlite"
        absent = [name for name in STUDIED if name not in models]
        if self.study is None or file.exists() or set(STUDIED) - self.cells.keys():
            return
        if absent and self.earlier is not None:
            return
        models |= {name: cast("Explains", self._fitted(name)) for name in absent}
        shown = {name: models[name] for name in STUDIED}
        self.study(file, shown, self.split.refit().graph, self.rules, self.extent.tasks)

    # ── exhibits ────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """Write all exhibits: tables as JSON, and one report as Markdown and HTML."""
        if not self.cells:
            return
        name = self.split.dataset.name.replace(" ", "-")
        tables = [self._table_1(), self._js_table(), self._figure_2(), self._statistics,
                  self._times()]  # fmt: skip
        commits = sorted({cell["commit"] for cell in self.cells.values()})
        quick = " --quick" if self.extent.quick else ""
        command = f"loger reproduce {self.split.dataset.name}{quick}"
        about = {"command": command, "seeds": [self.seed],
                 "commit": "; ".join(commits), "machine": f"{os.cpu_count()} cores"}  # fmt: skip
        for table in tables:
            kept = {**about, "note": table.note, "columns": table.columns,
                    "formats": table.formats, "rows": table.rows}  # fmt: skip
            text = json.dumps(kept, indent=1, ensure_ascii=False)
            write_text(self.folder / "tables" / f"{table.name}-{name}.json", text + "\n")
        notes = [_QUICK] if self.extent.quick else []
        notes += [f"{name} is left out: {why}." for name, why in self.left_out.items()]
        notes += [f"{name} failed: {why}." for name, why in self.failures.items()]
        todo = [name for name in self.order if self._missing(name) and name not in self.failures]
        notes += [f"Not yet made: {', '.join(todo)}."] if todo else []
        title = f"The paper's exhibits on {self.split.dataset.name}"
        write_text(self.folder / "report.md", _markdown(title, tables, notes))
        write_text(self.folder / "report.html", _html(title, tables, notes, self._panels()))

    def _made(self, names: Iterable[str], part: str = "ranking") -> dict[str, dict[str, Any]]:
        """The cells, among these names, that have a part."""
        return {name: self.cells[name] for name in names if part in self.cells.get(name, {})}

    def _table_1(self) -> Table:
        """Table 1: all metrics in both protocols, and NDCG as published for other data."""
        none, made = (None,) * len(PAPER_SETS), self._made(self.methods)
        rows = []
        for name, cell in made.items():
            published = [None if x is None else 100 * x for x in TABLE_1.get(name, none)]
            rows.append([cell["title"], *_row(cell["ranking"]), *published])
        rows += [
            [f"encoder of {cell['title']} alone", *_row(cell["encoder"]), *none]
            for cell in self._made(LOGERS, "encoder").values()
        ]
        ndcg = {
            name: cell["ranking"]["sampled-100"]["ndcg"]["mean"]
            for name, cell in made.items()
            if name in TABLE_1
        }
        columns = ["", *(f"{m}, {p}" for p in PROTOCOLS for m in METRICS.values())]
        columns += [f"NDCG in the paper, {name}" for name in PAPER_SETS]
        note = "Per cent, at 10, test; 95% intervals over users. " + _agreement(ndcg)
        return Table(
            "table-1",
            "Table 1: recommendation quality",
            note,
            columns,
            rows,
            _formats(".2f", columns),
        )

    def _js_table(self) -> Table:
        """Table 2: JS_f and JS_w, with floor, control and numbers of users."""
        rows: list[list[Any]] = []
        made = self._made(EXPLAINED, "js")
        for name, cell in made.items():
            js = cell["js"]
            cells = [_interval(js[line]) for line in ("js_f", "js_w", "floor", "random")]
            asked = None if js["js_f"] is None else js["js_f"]["users"]
            counts = [asked, *((js[x] or {}).get("mean") for x in ("pathless", "emitted"))]
            rows.append([cell["title"], *cells, *counts, JS.get(name)])
        columns = ["", "JS_f", "JS_w", "floor", "control", "users", "of them without a path",
                   "paths of a user", "in the paper: JS_f / JS_w, Cellphones, Grocery"]  # fmt: skip
        n = next((cell["js"]["rules"] for cell in made.values()), 0)
        note = (
            f"Rules of 20 shown paths compared with those of history, over {n} mined rules: 0 is "
            "equal, 1 disjoint. A user who is shown no path counts as 1. Nobody has rated the "
            "reasons yet; study.sqlite has the questions (loger study serve)."
        )
        formats = ["", *[".3f"] * 4, ".0f", ".2f", ".1f", ""]
        return Table("js", "Table 2: faithfulness", note, columns, rows, formats)

    def _figure_2(self) -> Table:
        """Figure 2: quality over |H⁺|, and the difference from the same E-steps without pairs."""
        rounds = self.extent.rounds
        kept = f"{rounds} forced round{'s' if rounds != 1 else ''}"
        labels = {"heteroembed": "HeteroEmbed"}
        labels |= {"loger-paper": "as many rounds as help: the preset `paper`"}
        labels |= {n: f"{kept}, up to {size} pairs of a user" for n, size in self.figure.items()}
        rows = []
        for name, cell in self._made(labels).items():
            gain = cell.get("gain", dict.fromkeys(PROTOCOLS))
            ranking = cell["ranking"]
            parts = [[*_row({p: ranking[p]}), gain[p]] for p in PROTOCOLS]
            rows.append([labels[name], *parts[0], *parts[1]])
        columns = [""]
        for protocol in PROTOCOLS:
            columns += [f"{m}, {protocol}" for m in METRICS.values()]
            columns.append(f"NDCG less no pairs, {protocol}")
        note = (
            "`paper` with all rounds kept, by how many hidden pairs per user an E-step may learn "
            "from; 0 is the control, the same E-steps without pairs."
        )
        return Table(
            "figure-2", "Figure 2: hidden pairs", note, columns, rows, _formats(".2f", columns)
        )

    @cached_property
    def _statistics(self) -> Table:
        """The data set next to the paper's."""
        here = statistics(self.split.dataset)
        here["relations"] = len(here["relations"])
        rows = [[name, here[name], *theirs] for name, theirs in STATISTICS.items()]
        columns = ["", self.split.dataset.name, *(f"the paper's {name}" for name in PAPER_SETS)]
        note = "The paper's own data sets were never published, so this is other data."
        return Table("statistics", "Statistics", note, columns, rows, _formats(",d", columns))

    def _times(self) -> Table:
        """Seconds of each method on this machine."""
        stages = ("tune", "fit", "evaluate", "processor")
        rows = [[cell["title"], *map(cell["seconds"].get, stages)]
                for cell in self._made(self.order).values()]  # fmt: skip
        note = (
            "Wall-clock seconds, and processor time in total. The methods of Figure 2 share the "
            "first fit of their encoder."
        )
        return Table("times", "Times", note, ["", *stages], rows, ["", *[".0f"] * len(stages)])

    def _panels(self) -> list[str]:
        """The four panels of Figure 2, in sampled-100."""
        control = f"paper-h{self.extent.sizes[0]}"
        made = self._made(["heteroembed", *self.figure])
        sizes = [name for name in made if name in self.figure and name != control]
        if not sizes or not {control, "heteroembed"} <= made.keys():
            return []
        out = []
        for metric, title in METRICS.items():
            of = {name: cell["ranking"]["sampled-100"][metric] for name, cell in made.items()}
            rival = of["heteroembed"]  # without an interval if it is of an older run
            flat = {"no pairs": of[control]["mean"]}
            flat["HeteroEmbed"] = rival["mean"] if isinstance(rival, dict) else rival
            series = [("LOGER", [of[name]["mean"] for name in sizes])]
            series += [(name, [value] * len(sizes)) for name, value in flat.items()]
            ends = [(low, high) for low, high in (of[name]["interval"] for name in sizes)]
            xs = [str(self.figure[name]) for name in sizes]
            name = f"{title}@10, %, sampled-100"
            out.append(plots.lines(xs, series, name, "|H⁺| of a user", ends))
        return out


@dataclass(frozen=True, slots=True)
class Table:
    """One exhibit: rows of names, numbers, and means with intervals."""

    name: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[Any]]
    formats: list[str]
    """Number format of each column."""

    @property
    def texts(self) -> list[list[str]]:
        """The cells as text."""
        return [[_text(x, f) for x, f in zip(row, self.formats, strict=True)] for row in self.rows]


def _formats(form: str, columns: Sequence[str]) -> list[str]:
    """One format for all columns but the first, which has names."""
    return ["", *[form] * (len(columns) - 1)]


def _text(value: Any, form: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else format(value, form)
    low, high = (format(end, form) for end in value["interval"])
    return f"{format(value['mean'], form)} [{low}, {high}]"


def _means(report: Report, model: str) -> dict[str, dict[str, Any]]:
    """The metrics of a model in per cent, with their intervals."""
    out = {}
    for metric in METRICS:
        low, high = report.interval(model, metric)
        ends = {"interval": [100 * low, 100 * high]}
        out[metric] = {"mean": 100 * report.mean(model, metric), **ends}
    return out


def _row(ranking: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """Ranking figures in the order of columns."""
    return [of[metric] for of in ranking.values() for metric in METRICS]


def _interval(line: Mapping[str, float] | None) -> dict[str, Any] | None:
    return None if line is None else {**line, "interval": [line["low"], line["high"]]}


def _title(size: int) -> str:
    """The title of a method of Figure 2."""
    return f"LOGER (paper), forced, up to {size} pairs"


def _difference(report: Report, model: str) -> dict[str, Any]:
    """The difference in NDCG from the control, paired over users."""
    found = report.compare(model, report.models[0])
    return {"mean": 100 * found.difference, "interval": [100 * found.low, 100 * found.high]}


def _agreement(ours: Mapping[str, float]) -> str:
    """Rank correlation with the paper's order of methods, and the gain over HeteroEmbed."""
    from scipy.stats import spearmanr

    texts = []
    for k, name in enumerate(PAPER_SETS):
        both = [(ours[m], theirs) for m in ours if (theirs := TABLE_1[m][k]) is not None]
        if len(both) > 2:
            rho = spearmanr([a for a, _ in both], [b for _, b in both]).statistic
            texts.append(f"{rho:+.2f} with {name}")
    out = f"Rank correlation of the order of methods in sampled-100: {', '.join(texts)}. "
    if {"heteroembed", "loger-paper"} <= ours.keys():
        gain = 100 * (ours["loger-paper"] / ours["heteroembed"] - 1)
        out += f"`paper` over HeteroEmbed: {gain:+.1f}% (the paper: +22.9, +18.1, +10.2%)."
    return out


def _markdown(title: str, tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = [f"# {title}", *notes]
    for table in tables:
        lines = [table.columns, ["---"] * len(table.columns), *table.texts]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts += [f"## {table.title}", table.note, body]
    return "\n\n".join(parts) + "\n"


def _html(title: str, tables: Sequence[Table], notes: Sequence[str], panels: Sequence[str]) -> str:
    body = "".join(f"<p>{escape(note)}</p>" for note in notes)
    for table in tables:
        grid = html_table(table.columns, table.texts)
        drawn = f'<div class="pair">{"".join(panels)}</div>' if table.name == "figure-2" else ""
        note = f'<p class="note">{escape(table.note)}</p>'
        body += f"<section><h2>{escape(table.title)}</h2>{drawn}{grid}{note}</section>"
    head = f'<meta charset="utf-8">{STYLE}<title>{escape(title)}</title>'
    return f"<!doctype html><html lang=en><head>{head}</head><body><h1>{escape(title)}</h1>{body}"
