"""The paper's exhibits for one data set (``loger reproduce``): Table 1, the JS table, Figure 2, the
statistics, the study, and the times.

Every method is a cell of its own. What is measured of it is written as JSON when it is complete,
so that a run that was killed, or is spread over days, makes only what is missing:

- ``methods/NAME.json``: a method's ranking figures, by ``compare``;
- ``encoders/NAME.json``: those of a LOGER's encoder alone;
- ``js/NAME.json``: how far its reasons are from its users' histories;
- ``study.sqlite``: the user study of PGPR, KGAT and LOGER, ready for raters;
- ``tables/*.json``: the exhibits, in the form that docs/tables has; ``report.md``, ``report.html``.

The E-steps of Figure 2 all start from the same encoder and weights; the size 0 is their control,
which makes the same E-steps with no pairs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar, cast

from loger.baselines.ease import EASE, memory_needed
from loger.baselines.encoder import EncoderAlone
from loger.config import LOGERConfig
from loger.data.splits import Split
from loger.data.statistics import statistics
from loger.engine import Engine, LocalEngine, Progress, silent
from loger.engine.files import write_text
from loger.errors import LogerError
from loger.evaluation import plots
from loger.evaluation.compare import Compared, compare
from loger.evaluation.evaluate import Protocol, evaluate
from loger.evaluation.faithfulness import FaithfulnessConfig, Probes, faithfulness_report
from loger.evaluation.methods import METHODS, Method
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
"""The paper's JS table, and the default."""
LOGERS = ("paper-literal", "loger-paper", "loger")
"""Those whose encoder is measured by itself as well."""
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
    """How much is made."""

    sizes: Sequence[int] = SIZES
    rounds: int = 4
    """Of the E-steps of Figure 2, all of them kept."""
    js_users: int = 200
    tasks: int = 20
    """Questions of the study."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By method, where they are not its own."""


QUICK = Extent(
    sizes=(0, 10, 50),
    rounds=1,
    js_users=30,
    tasks=5,
    settings={
        "paper-literal": {"encoder": {"steps": 5000, "warm_epochs": 1}, "em": {"rounds": 0},
                          "explain_by": "contributions"},
        "loger-paper": {"reasoner": {"epochs": 2}},
        **{name: {"epochs": 3} for name in ("cke", "ripplenet", "kgat", "heteroembed", "pgpr")},
    },
)  # fmt: skip
"""A few minutes on the demo shop: shows the exhibits, and that all of it works."""


MakeStudy = Callable[[Path, Mapping[str, Explains], KnowledgeGraph, RuleSet, int], None]
"""Writes a study of methods to a file: their graph, the rules of histories, and how many tasks."""


class _Kept(Method):
    """A method of which what it made last stays at hand."""

    made: ClassVar[list[Recommender]] = []

    def make(self, seed: int = 0, **settings: Any) -> Recommender:
        self.made[:] = [super().make(seed, **settings)]
        return self.made[0]


@dataclass(frozen=True)
class Reproduction:
    """One data set's exhibits in a folder."""

    split: Split
    folder: Path
    extent: Extent = field(default_factory=Extent)
    seed: int = 0
    study: MakeStudy | None = None
    engine: Engine = field(default_factory=LocalEngine)
    progress: Progress = silent

    def run(self) -> Compared:
        """Make what is missing, and write the report; failures are named there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for cells in ("js", "encoders", "tables"):
            (self.folder / cells).mkdir(exist_ok=True)
        models: dict[str, Explains] = {}
        # Those of Figure 2 first, one after another: they share what a fit keeps on its way.
        first = ["heteroembed", "loger-paper", *self.figure]
        last = ["paper-literal"] if "paper-literal" in self.methods else []
        names = [*first, *(m for m in self.methods if m not in first + last), *last]
        for done, name in enumerate(names):
            self.progress(f"exhibits: {name}", done, len(names))
            model = self._compared(name)
            if name in LOGERS and isinstance(model, LOGER):
                self._measure_encoder(name, model)
            if name not in EXPLAINED or not self._ran(name):
                continue
            if model is None and not self._js(name).exists():
                model = self._fitted(name)
            if model is not None:
                models[name] = cast("Explains", model)
                self._measure_reasons(name, models[name])
        self._make_study(models)
        shutil.rmtree(self.folder / "unfinished", ignore_errors=True)
        compared = self._compare(names)
        self.write(compared)
        self.progress("exhibits", len(names), len(names))
        return compared

    # ── cells ───────────────────────────────────────────────────────────────────────────

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Methods that do not fit this catalogue, and why."""
        n = self.split.dataset.n_items
        need, most = memory_needed(n), EASE().memory
        if need <= most:
            return {}
        return {"ease": f"{n:,} items need {need / 2**30:.1f} GiB, of {most / 2**30:.1f} allowed"}

    @property
    def methods(self) -> list[str]:
        """Those of Table 1."""
        every = (*CONTROLS, *TABLE_1, *OURS)
        return [name for name in every if name not in self.left_out]

    @property
    def figure(self) -> dict[str, int]:
        """The methods of Figure 2, each with its size of H⁺."""
        return {f"paper-h{size}": size for size in self.extent.sizes}

    @property
    def registry(self) -> dict[str, Method]:
        """All methods, those of Figure 2 too: `paper` with its rounds kept whatever they do. They
        show no reasons, so φ is not trained."""
        out = {name: METHODS[name] for name in self.methods}
        for name, size in self.figure.items():
            em = {"rounds": self.extent.rounds, "early_stop": False, "max_hidden": size}
            own = {"name": _title(size), "em": em, "explain_by": "contributions"}
            out[name] = replace(METHODS["loger-paper"], settings=own)
        of = [f.name for f in fields(Method)]
        return {name: _Kept(*(getattr(m, f) for f in of)) for name, m in out.items()}

    def _compare(self, names: Sequence[str]) -> Compared:
        """What ``compare`` makes of methods, or has kept of them."""
        group = "paper" if set(names) <= {"loger-paper", *self.figure} else names[0]
        settings = {n: s for n, s in self.extent.settings.items() if n in names}
        return compare(
            self.split,
            names,
            self.folder / "methods",
            protocols=PROTOCOLS,
            settings=settings,
            seed=self.seed,
            registry=self.registry,
            checkpoint=self.folder / "unfinished" / group,
            engine=self.engine,
            progress=self.progress,
        )

    def _compared(self, name: str) -> Recommender | None:
        """Measure one method; the model, if it was fitted now. A failure is noted by ``compare``
        and stops nothing."""
        _Kept.made.clear()
        try:
            self._compare([name])
        except LogerError:
            return None
        made = _Kept.made[0] if _Kept.made else None
        return made if made is not None and made.is_fitted else None

    def _fitted(self, name: str) -> Recommender:
        """A method fitted again, whose ranking figures are kept already."""
        made = METHODS[name].make(self.seed, **self.extent.settings.get(name, {}))
        return fit_for(made, self.split, progress=self.progress)

    def _ran(self, name: str) -> bool:
        return (self.folder / "methods" / f"{name}.json").exists()

    def _js(self, name: str) -> Path:
        return self.folder / "js" / f"{name}.json"

    @cached_property
    def rules(self) -> RuleSet:
        """Those that histories are counted over: all that mining finds, as the paper's has them."""
        config = replace(LOGERConfig.paper().mining, seed=self.seed)
        return mine(self.split.refit().graph, config, self.engine).rules

    def _measure_reasons(self, name: str, model: Explains) -> None:
        """JS_f and JS_w of a model's reasons, if they are not there."""
        if self._js(name).exists():
            return
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
        write_text(self._js(name), report.to_json())

    def _measure_encoder(self, name: str, model: LOGER) -> None:
        """The ranking figures of a model's encoder alone."""
        alone = EncoderAlone(name=f"encoder of {model.name} alone")
        alone.encoder_ = model.encoder_
        reports = [
            evaluate([alone], self.split, protocol=p, seed=self.seed, engine=self.engine)
            for p in PROTOCOLS
        ]
        cells = [_mean(report, alone.name, metric) for report in reports for metric in METRICS]
        write_text(self.folder / "encoders" / f"{name}.json", json.dumps([alone.name, *cells]))

    def _make_study(self, models: dict[str, Explains]) -> None:
        """The study of the paper's three methods, which are fitted again if they are not here."""
        file = self.folder / "study.sqlite"
        if self.study is None or file.exists() or not all(map(self._ran, EXPLAINED[:3])):
            return
        for name in EXPLAINED[:3]:
            if name not in models:
                models[name] = cast("Explains", self._fitted(name))
        shown = {name: models[name] for name in EXPLAINED[:3]}
        self.study(file, shown, self.split.refit().graph, self.rules, self.extent.tasks)

    # ── exhibits ────────────────────────────────────────────────────────────────────────

    def write(self, compared: Compared) -> None:
        """All exhibits from what is kept: tables as JSON, and one report as Markdown and HTML."""
        tables = [
            self._table_1(compared),
            self._js_table(),
            self._figure_2(compared.reports),
            self._statistics(),
            self._times(compared),
        ]
        about = {"command": f"loger reproduce {self.split.dataset.name}", "seeds": [self.seed],
                 "commit": origin(), "machine": f"{os.cpu_count()} cores"}  # fmt: skip
        for table in tables:
            kept = {**about, "note": table.note, "columns": table.columns,
                    "formats": table.formats, "rows": table.rows}  # fmt: skip
            name = f"{table.name}-{self.split.dataset.name.replace(' ', '-')}.json"
            text = json.dumps(kept, indent=1, ensure_ascii=False)
            write_text(self.folder / "tables" / name, text + "\n")
        notes = [f"{name} is left out: {why}." for name, why in self.left_out.items()]
        notes += [f"{name} failed: {why}." for name, why in compared.failures.items()]
        title = f"The paper's exhibits on {self.split.dataset.name}"
        write_text(self.folder / "report.md", _markdown(title, tables, notes))
        panels = _panels(compared.reports["sampled-100"], self.extent.sizes)
        write_text(self.folder / "report.html", _html(title, tables, notes, panels))

    def _table_1(self, compared: Compared) -> Table:
        """Table 1: all metrics by both protocols, and NDCG as published, on other data."""
        titles = {r.method: r.title for r in compared.results}
        columns, rows = ["", *(f"{m}, {p}" for p in PROTOCOLS for m in METRICS.values())], []
        order: dict[str, float] = {}
        for name in self.methods:
            if name not in titles:
                continue
            row: list[Any] = [titles[name]]
            for protocol in PROTOCOLS:
                report = compared.reports[protocol]
                row += [_mean(report, titles[name], metric) for metric in METRICS]
            published = TABLE_1.get(name, (None,) * len(PAPER_SETS))
            if name in TABLE_1:
                order[name] = row[-2]["mean"]
            rows.append([*row, *(None if x is None else 100 * x for x in published)])
        none = [None] * len(PAPER_SETS)
        kept = sorted((self.folder / "encoders").glob("*.json"))
        rows += [[*json.loads(file.read_text(encoding="utf-8")), *none] for file in kept]
        columns += [f"NDCG in the paper, {name}" for name in PAPER_SETS]
        note = "Per cent, at 10, test; 95 % intervals over users. " + _agreement(order)
        return Table("table-1", "Table 1: recommendation quality", note, columns, rows, ".2f")

    def _js_table(self) -> Table:
        """Table 2: JS_f and JS_w, with floor, control, and who was asked."""
        rows: list[list[Any]] = []
        for name in EXPLAINED:
            if not self._js(name).exists():
                continue
            told = json.loads(self._js(name).read_text(encoding="utf-8"))
            of = told["lines"]
            cells = [_interval(of[line]) for line in ("js_f", "js_w", "floor", "random")]
            asked = None if of["js_f"] is None else of["js_f"]["users"]
            counts = [asked, *((of[x] or {}).get("mean") for x in ("pathless", "emitted"))]
            rows.append([told["name"], *cells, *counts, JS.get(name)])
        columns = ["", "JS_f", "JS_w", "floor", "control", "users", "of them without a path",
                   "paths of a user", "in the paper: JS_f / JS_w, Cellphones, Grocery"]  # fmt: skip
        note = (
            f"Rules of 20 shown paths against those of history, over {len(self.rules)} mined rules;"
            " 0 is the same, 1 disjoint. A user who is shown no path counts as 1. Average ranks by"
            " people: not asked yet; study.sqlite has the questions (loger study serve)."
        )
        formats = ["", *[".3f"] * 4, ".0f", ".2f", ".1f", ""]
        return Table("js", "Table 2: faithfulness", note, columns, rows, formats=formats)

    def _figure_2(self, reports: Mapping[str, Report]) -> Table:
        """Figure 2: quality over |H⁺|, less the same E-steps with no pairs."""
        rows: list[list[Any]] = []
        kept = f"{self.extent.rounds} forced rounds"
        forced = {_title(n): f"{kept}, up to {n} pairs of a user" for n in self.extent.sizes}
        gate = {"LOGER (paper)": "as many rounds as help: the preset `paper`"}
        for title, label in ({"HeteroEmbed": "HeteroEmbed"} | gate | forced).items():
            row: list[Any] = [label]
            for report in (reports[protocol] for protocol in PROTOCOLS):
                if title in report.models:
                    row += [_mean(report, title, metric) for metric in METRICS]
                    row.append(_difference(report, title))
            rows += [row] if len(row) > 1 else []
        columns = [""]
        for protocol in PROTOCOLS:
            columns += [f"{m}, {protocol}" for m in METRICS.values()]
            columns.append(f"NDCG less no pairs, {protocol}")
        note = (
            "`paper` with its rounds kept whatever they do, by how many hidden pairs of each user "
            "an E-step may learn from; 0 is the control, the same E-steps with no pairs."
        )
        return Table("figure-2", "Figure 2: hidden pairs", note, columns, rows, ".2f")

    def _statistics(self) -> Table:
        """The data set beside the paper's."""
        here = statistics(self.split.dataset)
        here["relations"] = len(here["relations"])
        rows = [[name, here[name], *theirs] for name, theirs in STATISTICS.items()]
        columns = ["", self.split.dataset.name, *(f"the paper's {name}" for name in PAPER_SETS)]
        note = "Other data: the paper's own sets were never published."
        return Table("statistics", "Statistics", note, columns, rows, ",d")

    def _times(self, compared: Compared) -> Table:
        """Seconds of each method on this machine."""
        rows = [[r.title, *(r.seconds[s] for s in ("tune", "fit", "evaluate"))]
                for r in compared.results]  # fmt: skip
        note = "Seconds; methods of Figure 2 share the first fit of their encoder."
        return Table("times", "Times", note, ["", "tune", "fit", "evaluate"], rows, ".0f")


class Table:
    """One exhibit: rows of names, numbers, and means with intervals."""

    def __init__(
        self,
        name: str,
        title: str,
        note: str,
        columns: list[str],
        rows: list[list[Any]],
        form: str = "",
        formats: list[str] | None = None,
    ) -> None:
        self.name, self.title, self.note, self.columns = name, title, note, columns
        self.rows = rows
        self.formats = formats or ["", *[form] * (len(columns) - 1)]

    @property
    def texts(self) -> list[list[str]]:
        """The cells as people read them."""
        return [[_text(x, f) for x, f in zip(row, self.formats, strict=True)] for row in self.rows]


def _text(value: Any, form: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else format(value, form)
    low, high = (format(end, form) for end in value["interval"])
    return f"{format(value['mean'], form)} [{low}, {high}]"


def _mean(report: Report, model: str, metric: str) -> dict[str, Any]:
    """A mean in per cent with its interval."""
    low, high = report.interval(model, metric)
    return {"mean": 100 * report.mean(model, metric), "interval": [100 * low, 100 * high]}


def _interval(line: Mapping[str, float] | None) -> dict[str, Any] | None:
    return None if line is None else {**line, "interval": [line["low"], line["high"]]}


def _title(size: int) -> str:
    """What a method of Figure 2 is called."""
    return f"LOGER (paper), forced, up to {size} pairs"


def _difference(report: Report, model: str) -> dict[str, Any] | None:
    """How far NDCG of a LOGER lies above that of the control, paired over users."""
    control = _title(0)
    if model in (control, "HeteroEmbed") or control not in report.models:
        return None
    found = report.compare(model, control)
    return {"mean": 100 * found.difference, "interval": [100 * found.low, 100 * found.high]}


def _agreement(ours: Mapping[str, float]) -> str:
    """How far the order of the paper's methods is the paper's, and the gain over HeteroEmbed."""
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
        out += f"`paper` over HeteroEmbed: {gain:+.1f} % (the paper: +22.9, +18.1, +10.2 %)."
    return out


def _panels(report: Report, sizes: Sequence[int]) -> list[str]:
    """The four panels of Figure 2."""
    known = [size for size in sizes if size and _title(size) in report.models]
    control, rival = _title(0), "HeteroEmbed"
    if not known or not {control, rival} <= set(report.models):
        return []
    out = []
    for metric, title in METRICS.items():
        cells = [_mean(report, _title(size), metric) for size in known]
        flat = {name: 100 * report.mean(name, metric) for name in (control, rival)}
        series = [("LOGER", [c["mean"] for c in cells]),
                  ("no pairs", [flat[control]] * len(cells)),
                  ("HeteroEmbed", [flat[rival]] * len(cells))]  # fmt: skip
        ends = [(c["interval"][0], c["interval"][1]) for c in cells]
        xs = [str(size) for size in known]
        out.append(plots.lines(xs, series, f"{title}@10, %, sampled-100", "|H⁺| of a user", ends))
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
