"""The project itself: fast to import, light to ask for help, and imports point down only."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner

import loger
from loger.cli import app

SOURCE = Path(loger.__file__).parent
LAZY = re.compile(r"(loger(?:\.\w+)+)(?::\w+)?")
HEAVY = {"torch", "numba", "polars", "scipy"}

# The packages and the few modules at the top, from the ground up (docs/architecture.md): each may
# import from itself and from what stands before it.
LAYERS = [
    "errors engine graph rules data tables recommender metrics grounding encoder logic reasoner",
    "baselines ranking explain config learning updates store model evaluation study web cli",
    "__init__ __main__",
]


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
        assert "click" in loaded
        assert not HEAVY & loaded


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports of loger: at the top, inside functions, or lazily by a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and LAZY.fullmatch(str(node.value)):
            yield str(node.value)


def test_imports_point_down_only() -> None:
    layers = " ".join(LAYERS).split()
    for file in SOURCE.rglob("*.py"):
        own = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            home, *part = name.split(".")[:2]
            if home == "loger" and part and part[0] in layers:
                up = layers.index(part[0]) > layers.index(own)
                assert not up, f"{file.relative_to(SOURCE)} imports {name}"


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


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_no_private_name_of_a_dependency_is_used() -> None:
    for file in SOURCE.rglob("*.py"):
        tree, theirs = ast.parse(file.read_text(encoding="utf-8")), set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                home = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    path = f"{home}.{alias.name}".strip(".").split(".")
                    if path[0] != "loger" and path[0] not in sys.stdlib_module_names:
                        assert not any(map(private, path)), f"{file.name} imports {'.'.join(path)}"
                        theirs.add((alias.asname or alias.name).split(".")[0])
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                whole = ast.unparse(node.value).split(".")[0].split("(")[0]
                assert whole not in theirs, f"{file.name} uses {ast.unparse(node)}"


def test_benchmarks_find_their_data_where_the_command_line_says() -> None:
    from where import folder

    rest = ["--data", "/sets", "--seeds", "3"]
    assert (folder(rest), rest) == (Path("/sets"), ["--seeds", "3"])
    assert folder(["--seeds"]).parts[-2:] == ("shared", "data")
    others = [
        file for file in (SOURCE.parents[1] / "benchmarks").glob("*.py") if file.name != "where.py"
    ]
    for file in others:
        assert '"shared" / "data"' not in file.read_text(encoding="utf-8"), file.name
