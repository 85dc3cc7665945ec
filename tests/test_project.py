"""The project itself: quick to import, light to ask for help, imports that point down only."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

import loger
from loger.cli import app

SOURCE = Path(loger.__file__).parent
LAZY = re.compile(r"(loger(?:\.\w+)+)(?::\w+)?")
HEAVY = {"torch", "numba", "polars", "scipy"}

# From the ground up (docs/architecture.md): a part may import only from lower lines, from itself,
# or, in a line that is ordered (a tuple), from what stands before it. A module belongs to the
# longest name that fits it.
LAYERS: list[set[str] | tuple[str, ...]] = [
    {"compiled", "errors", "html", "logistic", "version"},
    ("forks", "engine", "progress", "claims", "files", "settings"),
    {"graph"},
    ("topk", "rules", "data", "bundle"),
    ("training", "evaluation.recommender", "evaluation.metrics", "build", "grounding"),
    {"encoder", "logic", "rules.mining", "selection"},
    {"ranker", "reasoner"},
    ("explain", "tables"),
    ("evaluation.tuning", "baselines.recency", "baselines.neighbours", "baselines.ease"),
    ("baselines.sequence", "baselines.slim", "baselines.ials", "baselines.linear_ials"),
    {"logic.derived"},
    (
        *("logic.config", "logic.fitted", "logic.pools", "logic.estep", "logic.mstep"),
        *("logic.pseudo", "logic.em", "config", "logic.tune"),
        *("updates", "persistence", "logic.fit"),
        *("newcomers", "updating", "model", "baselines"),
    ),
    ("evaluation", "export", "shards", "study", "events", "feedback", "precompile"),
    ("web", "cli"),
    ("loger", "__main__"),
]
LAYER = {
    name: (k, place if isinstance(names, tuple) else 0)
    for k, names in enumerate(LAYERS)
    for place, name in enumerate(names)
}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def processor_time(*arguments: str) -> float:
    """Seconds of processor time that Python takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    python(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_once_below(limit: float, seconds: Callable[[], float]) -> bool:
    """Whether something takes less, tried again where the machine may have been busy."""
    return any(seconds() < limit for _ in range(7))


def test_importing_loger_adds_at_most_60_ms_to_the_interpreter() -> None:
    bare = min(processor_time("-c", "pass") for _ in range(3))
    assert is_once_below(bare + 0.060, lambda: processor_time("-c", "import loger"))


def test_asking_for_help_takes_less_than_a_quarter_of_a_second() -> None:
    assert is_once_below(0.250, lambda: processor_time("-m", "loger", "--help"))


def test_help_names_what_the_whole_command_line_has() -> None:
    whole = CliRunner().invoke(app, ["--help"], prog_name="loger").stdout.split()
    for asked in ("--help", "-h"):
        assert python("-m", "loger", asked).stdout.split() == whole


def test_importing_loger_loads_nothing_heavy() -> None:
    loaded = python("-c", "import sys, loger; print(*sys.modules)").stdout.split()
    assert not HEAVY & set(loaded)


def test_asking_for_help_loads_nothing_heavy() -> None:
    some = [
        "data inspect",
        "data build amazon",
        "data build table",
        "rules",
        "demo",
        "fit",
        "recommend",
        "evaluate",
        "study",
        "compare",
    ]
    for command in ([], ["data"], *(line.split() for line in some)):
        # Each line of -X importtime ends in "| <indent>module".
        told = python("-X", "importtime", "-m", "loger", *command, "--help").stderr
        loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
        assert "typer" in loaded
        assert not HEAVY & loaded


def part_of(module: str) -> str:
    """The part that a module, named from below loger, belongs to."""
    names = module.split(".")
    for k in range(len(names), 0, -1):
        if ".".join(names[:k]) in LAYER:
            return ".".join(names[:k])
    return "loger"


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported(tree: ast.AST) -> set[str]:
    """The modules of loger that a module imports: at the top, inside functions, or lazily, by a
    text such as "loger.model" or "loger.model:LOGER"."""
    out = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            out |= {w if is_module(w.removeprefix("loger.")) else str(node.module) for w in whole}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            lazy = LAZY.fullmatch(node.value)
            if lazy and is_module(lazy[1].removeprefix("loger.")):
                out.add(lazy[1])
    return {name.removeprefix("loger.") for name in out if name.split(".")[0] == "loger"}


def test_imports_point_down_only() -> None:
    for file in SOURCE.rglob("*.py"):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        part = part_of(module)
        assert part != "loger" or module == "__init__", f"say in LAYERS where {module} belongs"
        names = imported(ast.parse(file.read_text(encoding="utf-8")))
        own = module.split(".")[0]
        others = [n for n in names if n.split(".")[0] != own]
        up = [n for n in others if LAYER[part_of(n)] >= LAYER[part]]
        assert not up, f"{file.relative_to(SOURCE)} imports {up}"


def test_only_modules_with_compiled_functions_are_left_out_of_coverage() -> None:
    root = SOURCE.parents[1]
    with (root / "pyproject.toml").open("rb") as file:
        omitted = tomllib.load(file)["tool"]["slipcover"]["omit"]
    compiled = [f for f in SOURCE.rglob("*.py") if "\n@kernel" in f.read_text(encoding="utf-8")]
    assert sorted(omitted) == sorted(str(f.relative_to(root)) for f in compiled)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its parameters and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_commands_and_routes_parse_call_and_show() -> None:
    for part in ("cli", "web"):
        for file in (SOURCE / part).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    where = f"{file.relative_to(SOURCE)}:{node.name}"
                    assert body_lines(node) <= 40, f"{where} has {body_lines(node)} lines"
