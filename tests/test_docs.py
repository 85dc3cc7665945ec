"""What the documentation says is run: Python blocks, loger commands, make targets, doctests.

In README.md and docs/*.md a block ``text path/to/file`` is a file that later blocks may read;
Python blocks of one page share their names; the lines shown under ``$ loger …`` are looked
for in what the command prints, whatever the spacing; … stands for other lines, or the rest of one.
"""

from __future__ import annotations

import doctest
import pkgutil
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import loger
from loger.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ELSEWHERE = {"git", "cd", "pip", "python3"}
"""Commands that pages may show but that are not run here."""


every_page = pytest.mark.parametrize(
    "page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES if "_build" not in p.parts]
)


@every_page
def test_what_a_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    for language, rest, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "text" and rest:
            place = tmp_path / rest
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, f"{page.name}: {text.splitlines()[0]}", "exec"), names)
        elif language in ("console", "sh"):
            for command, shown in commands(text):
                check(command, shown)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the lines shown under it."""
    _, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts, f"a block without a line that begins with '$ ': {text!r}"
    for part in parts:
        command, *shown = part.splitlines()
        yield command.partition("  #")[0].strip(), [s for s in shown if s.strip(" …")]


def check(command: str, shown: list[str]) -> None:
    """Run a loger command, or see that another is one a reader has."""
    program, *arguments = shlex.split(command)
    if program == "make":
        assert set(arguments) <= TARGETS, command
        if arguments != ["demo"] or not shown:
            return
    elif program != "loger":
        assert program in ELSEWHERE, command
        return
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (command, result.output)
    for line in shown:
        assert plain(line.rstrip(" …")) in plain(result.output), (command, line, result.output)


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@every_page
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text):
        link = "".join(target)
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize(
    "module",
    [m.name for m in pkgutil.walk_packages(loger.__path__, "loger.") if "__main__" not in m.name],
)
def test_examples_in_docstrings_are_true(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0


def test_the_paper_map_names_functions_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    for file, _, test in re.findall(r"`(tests/[\w./]*)(::(\w+))?`", text):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
    for module, name in re.findall(r"`(graph|rules|mining|grounding|data)\.(\w+)`", text):
        assert hasattr(import_module(f"loger.{module}"), name), f"{module}.{name}"
