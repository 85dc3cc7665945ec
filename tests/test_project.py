"""The project itself: quick to import, light to ask for help, imports that point down only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import loger

SOURCE = Path(loger.__file__).parent
HEAVY = {"torch", "numba", "polars", "scipy"}

# From the ground up (STYLE, "The house"): a module may import only from lower lines, or from
# its own package. What does not exist yet keeps its place.
LAYERS = [
    {"loger"},
    {"errors"},
    {"engine", "settings"},
    {"graph"},
    {"rules", "paths", "data", "storage"},
    {"metrics", "sentences"},
    {"_kernels", "topk"},
    {"_hops"},
    {"encoder", "grounding"},
    {"mining", "logic", "pools"},
    {"em", "reasoner", "recommender"},
    {"explain", "search"},
    {"questions"},
    {"model", "baselines"},
    {"evaluate", "faithfulness"},
    {"compare", "report", "study"},
    {"web"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: k for k, names in enumerate(LAYERS) for name in names}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_importing_loger_takes_less_than_150_ms() -> None:
    code = "import time; t = time.perf_counter(); import loger; print(time.perf_counter() - t)"
    assert min(float(python("-c", code).stdout) for _ in range(5)) < 0.150


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


def imported(tree: ast.AST) -> set[str]:
    """The parts of loger that a module imports, at the top or inside functions."""
    whole = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whole |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            whole |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = (name.split(".") for name in whole if name.split(".")[0] == "loger")
    return {name[1] if len(name) > 1 and name[1] in LAYER else "loger" for name in ours}


def test_imports_point_down_only() -> None:
    for file in SOURCE.rglob("*.py"):
        part = file.relative_to(SOURCE).with_suffix("").parts[0].replace("__init__", "loger")
        assert part in LAYER, f"say in LAYERS where {part} belongs"
        others = imported(ast.parse(file.read_text(encoding="utf-8"))) - {part}
        up = [other for other in others if LAYER[other] >= LAYER[part]]
        assert not up, f"{file.relative_to(SOURCE)} imports {up}"
