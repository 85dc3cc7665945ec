"""Names that a terminal or a spreadsheet would execute, and files that people edited by hand."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from loger.cli import app, show
from loger.store.export import _write_csv


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]0;gone\x07b", "a�]0;gone�b"),
        ("a\x1b[2Jb", "a�[2Jb"),
        ("\x9b31mred", "�31mred"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("über\tund\n日本", "über\tund\n日本"),
    ],
)
def test_no_text_is_a_command_to_the_terminal(monkeypatch, text: str, shown: str) -> None:
    assert show.plain(text) == shown
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    show.console().print(text.replace("\n", ""), markup=False)
    written = sys.stdout.getvalue()
    assert "\x1b]" not in written and "\x1b[2" not in written and "\x9b" not in written


def test_no_error_is_a_command_to_the_terminal(tmp_path: Path) -> None:
    odd = "a\x1b]0;gone\x07"
    (tmp_path / odd).mkdir()
    (tmp_path / f"{odd}.csv").write_text("user,item\nu\n")
    build = ["data", "build", "table", "--interactions", str(tmp_path / f"{odd}.csv")]
    for given in ([*build, "--out", str(tmp_path / "d")], ["rules", str(tmp_path / odd)]):
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 2 and "error: " in done.output
        assert "a�]0;gone�" in done.output and "\x1b" not in done.output


def test_no_cell_for_people_is_a_formula(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {"item": ["=a"], "label": ['=HYPERLINK("x")'], "because": ["you bought +1"]}
    )
    _write_csv(iter([table]), tmp_path / "out.csv")
    back = pl.read_csv(tmp_path / "out.csv")
    assert back.rows() == [("=a", '\'=HYPERLINK("x")', "you bought +1")]


def test_a_mapping_that_was_edited_is_kept(tmp_path: Path) -> None:
    plays = "".join(f"u{k % 9},t{k % 13}\n" for k in range(90))
    (tmp_path / "plays.csv").write_text("user,item\n" + plays)
    build = ["data", "build", "table", "--interactions", str(tmp_path / "plays.csv"), "--force"]
    build += ["--out", str(tmp_path / "shop")]
    assert CliRunner().invoke(app, build).exit_code == 0
    file = tmp_path / "shop.toml"
    file.write_text(file.read_text() + "# my own words\n")
    done = CliRunner().invoke(app, build)
    assert done.exit_code == 2 and "edited it" in done.output
    assert f"--mapping {file}" in " ".join(done.output.split())
    assert "# my own words" in file.read_text()
    again = [*build[:3], "--mapping", str(file), *build[5:]]
    assert CliRunner().invoke(app, again).exit_code == 0
