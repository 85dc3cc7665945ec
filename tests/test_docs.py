"""The documentation is run: Python blocks, loger commands, make targets and doctests.

In README.md, CONTRIBUTING.md and docs/**/*.md, a block ``text path/to/file`` is a file that later
blocks may read. Python blocks of one page share their names. The lines shown under ``$ loger …``,
and in a ``text`` block right after a Python block, must occur in the actual output, ignoring
spacing and numbers; … stands for other lines, or for the rest of a line. Names of functions, tests,
modules and sections must exist, and the tables of results must match the stored figures.
"""

from __future__ import annotations

import doctest
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import loger
from loger.cli import app, demo

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
    if "_build" not in page.parts
}
PROSE = {
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/index.md",
    "docs/concepts/benchmarks.md",
    "docs/concepts/checking-reasons.md",
    "docs/concepts/faithfulness.md",
    "docs/concepts/how-it-works.md",
    "docs/concepts/threats.md",
    "docs/how-to/deploy.md",
    "docs/how-to/privacy.md",
    "docs/reference/bundles.md",
    "docs/reference/cli.md",
    "docs/reference/glossary.md",
    "docs/reference/http.md",
    "docs/reference/python.md",
    "docs/reference/settings.md",
    "docs/research/faithfulness.md",
    "docs/research/method.md",
    "docs/research/paper-map.md",
    "docs/research/reproduction.md",
    "docs/research/results.md",
    "docs/research/scale.md",
    "docs/research/speed.md",
    "docs/research/tuning.md",
    "docs/start/install.md",
    "docs/start/own-tables.md",
    "docs/start/tour.md",
    *(name for name in PAGES if name.startswith("docs/adr/")),
}
"""Pages to read, with nothing to run."""
BLOCK = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ELSEWHERE = {"git", "cd", "pip", "python3", ".venv/bin/pip", ".venv/bin/pre-commit"}
"""Commands that pages may show but that are not run here."""
METHOD = re.compile(r"METHOD ((?:L?\d+(?:, and | and |, )?)+)")
"""A reference to sections of the method page, as in "METHOD 5" or "METHOD L2, L3, and 3"."""
SOURCE = Path(loger.__file__).parent
MODULES = {
    ".".join(("loger", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): file
    for file in sorted(SOURCE.rglob("*.py"))
    if file.name != "__main__.py"
}
"""All modules of loger, with their files."""
EXAMPLES = [name for name, file in MODULES.items() if ">>>" in file.read_text(encoding="utf-8")]
"""Those whose docstrings have examples."""

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@every_page
def test_what_a_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo_run: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {"__name__": page.stem}
    ran, printed, end = 0, "", 0
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        language, rest, code = block.groups()
        follows = not text[end : block.start()].strip()
        end = block.end()
        if language == "text" and rest:
            place = tmp_path / rest
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(code, encoding="utf-8")
        elif language == "text" and follows and printed:
            compare(printed, code.splitlines(), page.name)
        elif language == "python":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(code, f"{page.name}: {code.splitlines()[0]}", "exec"), names)
            printed = out.getvalue()
            ran += 1
            continue
        elif language in ("console", "sh"):
            ran += sum(check(command, shown, demo_run) for command, shown in commands(code))
        printed = ""
    prose = str(page.relative_to(ROOT)) in PROSE
    assert bool(ran) != prose, f"{ran} blocks or commands were run; PROSE in this file is for none"


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the lines shown under it."""
    _, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts, f"a block without a line that begins with '$ ': {text!r}"
    for part in parts:
        command, *shown = part.splitlines()
        yield command.partition("  #")[0].strip(), [s for s in shown if s.strip(" …")]


def check(command: str, shown: list[str], demo_run: Path) -> bool:
    """Run a loger command, or see that another is one a reader has; whether it was run."""
    program, *arguments = shlex.split(command)
    if program == "make":
        assert set(arguments) <= TARGETS, command
        if arguments != ["demo"] or not shown:
            return False
    elif program == "python3" and arguments[0] == "benchmarks/invented.py":
        subprocess.run([sys.executable, ROOT / arguments[0], *arguments[1:]], check=True)
        return True
    elif program != "loger":
        assert program in ELSEWHERE, command
        return False
    output = demo_output(demo_run) if arguments == ["demo"] else cli_output(arguments)
    compare(output, shown, command)
    return True


def compare(output: str, shown: list[str], what: str) -> None:
    """Every line shown is in the output, but for spacing and numbers."""
    for line in shown:
        for part in line.split("…"):
            assert masked(part) in masked(output), f"{what} no longer prints {line!r}, but {output}"


def cli_output(arguments: list[str]) -> str:
    if arguments[0] == "evaluate":  # the reasons of a few users take the same steps as those of all
        arguments = [*arguments, "--faithfulness", "5"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (arguments, result.output)
    return result.output


def demo_output(demo_run: Path) -> str:
    """What the demo prints; what it leaves behind is put here, as if it had been run here."""
    shutil.copytree(demo_run / "loger-demo", "loger-demo")
    with redirect_stdout(io.StringIO()) as printed:
        demo.draw(json.loads((demo_run / "told.json").read_text(encoding="utf-8")))
    return printed.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def masked(text: str) -> str:
    """A text without the frames of trees and tables, with # for numbers and one blank for many."""
    return plain(re.sub(r"[-+−]?\d[\d.,]*", "#", re.sub(r"[│├└─┆┌┐┘╞╪╡═┬┴┼]", " ", text)))


def test_numbers_and_spacing_are_masked_and_words_are_not() -> None:
    assert masked("├── +1.50  Same\n│   brand (67%)") == masked("-2  Same brand (5%)")
    with pytest.raises(AssertionError, match="no longer prints"):
        compare("LOGER 39.6", ["MostPop 39.6"], "demo")


@every_page
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in link:
            continue
        target = page.parent / link if link else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}#{anchor}"
    for link in re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text):
        assert (page.parent / link).exists(), f"{page.name} shows {link}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


LAB_NOTES = re.compile(
    r"\bcommit [0-9a-f]{7}|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
    r"|\bnot run\b|\blooked at\b|\baimed at\b|\bmended\b|\bso that a test would\b"
)
"""What belongs into commit messages and decisions: commits, runs that were not made, repairs."""
FOR_USERS = [
    name
    for name in PAGES
    if name == "README.md"
    or name.split("/")[1:2] in (["start"], ["how-to"], ["reference"], ["concepts"])
]


@pytest.mark.parametrize("name", FOR_USERS)
def test_pages_for_users_have_no_lab_notes(name: str) -> None:
    found = LAB_NOTES.search(PAGES[name].read_text(encoding="utf-8"))
    assert not found, f"{name}: {found[0]}"


def test_lab_notes_are_found_and_numbers_are_not() -> None:
    for note in ("at 86c3d5d random paths", "commit 1234567", "they have not run; not run here"):
        assert LAB_NOTES.search(note), note
    assert not LAB_NOTES.search("2,936 pairs, 20241001 and 1234567 of them, deadbeef")


def test_pages_are_short_but_for_generated_tables() -> None:
    region = re.compile(r"<!-- table: [\w-]+ -->\n.*?<!-- end -->", re.DOTALL)
    lines = {
        name: len(region.sub("", page.read_text(encoding="utf-8")).splitlines())
        for name, page in PAGES.items()
    }
    assert lines["README.md"] <= 150
    long = {name: n for name, n in lines.items() if n > 250}
    assert not long


# ── names in the documentation ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_there_are_examples_in_docstrings() -> None:
    assert EXAMPLES


def resolve(name: str) -> object:
    """What a dotted path below loger names: a module, or something in one."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        module = "loger." + ".".join(parts[:k])
        if module in MODULES:
            return reduce(getattr, parts[k:], import_module(module))
    raise LookupError(f"no module of loger begins {name}")


def paper_map() -> list[list[str]]:
    """The rows of the paper map: paper, functions, tests, difference."""
    text = (DOCS / "research" / "paper-map.md").read_text(encoding="utf-8").replace(r"\|", "¦")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", paper_map(), ids=lambda row: row[0][:40])
def test_a_row_of_the_paper_map_names_functions_and_tests_that_exist(row: list[str]) -> None:
    _, functions, tests, _ = row
    names = re.findall(r"`([\w.]+)[^`]*`", functions)
    assert names, "name functions by their path below loger, in backquotes"
    for name in names:
        resolve(name)
    files = re.findall(r"`(tests/[\w./]*)(?:::(\w+))?`", tests)
    assert files
    for file, test in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, f"{file} has no {test}"


def test_every_reference_to_the_method_leads_to_a_section() -> None:
    text = (DOCS / "research" / "method.md").read_text(encoding="utf-8")
    known = {
        *re.findall(r"^## (\d+)\. ", text, re.MULTILINE),
        *re.findall(r"\*\*(L\d)\.\*\*", text),
    }
    assert {"1", "15", "L1", "L4"} <= known
    found = 0
    for folder in ("src", "tests", "benchmarks", "docs", "examples"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in (".py", ".md", ".toml") and "_build" not in file.parts:
                for near in re.findall(
                    r"METHOD ((?:L?\d+(?:, | and |, and )?)+)", file.read_text()
                ):
                    found += 1
                    unknown = set(re.findall(r"L?\d+", near)) - known
                    assert not unknown, f"{file.relative_to(ROOT)}: METHOD {unknown}"
    assert found > 20


def test_every_module_of_the_api_page_exists_and_is_named_once() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    shown = re.findall(r"automodule:: (loger[\w.]*)", text)
    assert len(shown) == len(set(shown))
    assert set(shown) <= {*MODULES, "loger"}


def test_the_api_page_lists_the_front_door_and_only_what_exists_and_is_documented() -> None:
    import loger

    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    sections = re.findall(r"automodule:: (loger[\w.]*)\n +:members: *([\w, ]*)\n", text)
    listed = {name: home for home, names in sections for name in re.findall(r"\w+", names)}
    for name, home in listed.items():
        assert getattr(import_module(home), name).__doc__, f"{home}.{name}"
    assert {*loger.__all__} - {*listed} == {"baselines", "LogerError"}  # a package; all of errors
    door = text.split("`import loger` gives you", 1)[1].split(".", 1)[0]
    assert re.findall(r"`(\w+)`", door) and {*re.findall(r"`(\w+)`", door)} == {*loger.__all__}


def test_the_architecture_page_has_the_layers_that_are_held() -> None:
    from test_project import LAYERS

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.findall(r"`(\w+)`", text.split("<!-- layers -->")[1])
    assert shown == " ".join(LAYERS[:-1]).split()


def test_files_named_on_the_architecture_page_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(
        r"`((?:src|tests|docs|benchmarks|examples|scripts)/[\w./-]*)(?:::(\w+))?`", text
    )
    assert len(names) > 20
    for file, name in names:
        assert (ROOT / file).exists(), file
        assert not name or re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{file}::{name}"


# ── tables of results ───────────────────────────────────────────────────────────────────


def tables() -> ModuleType:
    spec = spec_from_file_location("benchmark_tables", ROOT / "benchmarks" / "tables.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_all_pages_are_those_that_are_stored() -> None:
    for page in tables().pages():
        text = page.read_text(encoding="utf-8")
        assert tables().up_to_date(text) == text, f"{page.name}: run python benchmarks/tables.py"


def test_every_stored_table_says_where_it_comes_from_and_is_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.values())
    files = sorted((DOCS / "tables").glob("*.json"))
    assert files
    for file in files:
        stored = json.loads(file.read_text(encoding="utf-8"))
        assert {"command", "commit", "machine", "columns", "rows"} <= set(stored), file.name
        assert stored["commit"], file.name
        assert f"<!-- table: {file.stem} -->" in text, f"no page shows {file.name}"


README_FIGURES = (
    "{faithfulness-actions: infidelity R²: ml1m, 60 users: .2f} to "
    "{faithfulness-actions: infidelity R²: amazon-cellphones, 200 users: .2f} on four",
    "at most {faithfulness-actions: … contributions permuted: amazon-cellphones, 200 users: .2f}",
    "On `amazon-beauty`, its NDCG@10 is {default: amazon-beauty: NDCG: .1f}%, compared with "
    "{controls-amazon-beauty: collective EASE^R: NDCG: .1f}% for the best baseline",
    "On `ml1m` (MovieLens 1M), it is {default: ml1m: NDCG: .1f}%, compared with "
    "{controls-ml1m: sequence rules: NDCG: .1f}%.",
    "R² is {rebuilt: amazon-beauty, graph rebuilt: R²: .2f} on `amazon-beauty`",
    "{speed: default fit on amazon-beauty, one core, processor seconds, compared with 120: "
    "ours: .0f} s on one CPU core",
    "{speed: its peak memory, GiB, compared with 3: ours: .1f} GiB of memory",
    "{speed: default fit at full size, s by the clock, compared with 600: ours: .0f} s on two "
    "cores, "
    "{speed: its peak memory at full size, GiB, compared with 3: ours: .1f} GiB",
    "{generalise: ml-100k: LOGER, NDCG: .1f} against {controls-ml-100k: sequence rules: NDCG: .1f}",
    "{generalise: filmtrust: LOGER, NDCG: .1f} against "
    "{controls-filmtrust: collective EASE^R: NDCG: .1f}",
    "{generalise: sparse, useless facts: NDCG: .1f} against "
    "{generalise: sparse, useless facts: LOGER, NDCG: .1f} on invented data",
    "p = {generalise: ml-100k: p, NDCG: .3f})",
    "p = {generalise: filmtrust: p, NDCG: .2f})",
)
"""What the README says in prose, with its figures looked up in the stored tables."""


@pytest.mark.parametrize("said", README_FIGURES)
def test_a_figure_in_the_prose_of_the_readme_is_stored(said: str) -> None:
    text = plain((ROOT / "README.md").read_text(encoding="utf-8"))
    assert tables().cell(said, "") in text


def test_the_encoder_shares_in_the_readme_are_stored() -> None:
    text = plain((ROOT / "README.md").read_text(encoding="utf-8"))
    rows = {name: cells for name, *cells in tables().stored("encoder-share")["rows"]}
    for data, column in (("amazon-beauty", 2), ("amazon-toys", 3)):  # the share that a fit chooses
        share = rows[data][column].partition(":")[0]
        assert re.search(rf"{share} (of an item's lead over the average item )?on `{data}`", text)


def test_cells_of_stored_tables_are_written_as_documented() -> None:
    cell = tables().cell
    assert cell(None, ".2f") == ""
    assert cell(1234.5, ",.2f") == "1,234.50"
    assert cell([0, 175, 100], "d") == "0 + 175 + 100"
    assert cell({"mean": 9.2, "sd": 0.05, "bold": True}, ".2f") == "**9.20** ± 0.05"
    assert cell({"mean": 0.6, "interval": [0.5, 0.7]}, ".3f") == "0.600 [0.500, 0.700]"
    assert cell("LOGER {compare-ml1m: LOGER: NDCG: .1f} %", "") == "LOGER 29.8 %"


def test_a_page_with_a_changed_figure_is_out_of_date() -> None:
    text = (DOCS / "research" / "results.md").read_text(encoding="utf-8")
    assert tables().up_to_date(text.replace("| 10.34 |", "| 10.35 |")) == text
