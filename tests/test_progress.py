"""Progress is shown only where a person is watching."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from rich.console import Console

from loger.engine import Progress, silent
from loger.engine import progress as shown_progress
from loger.engine.progress import bars, resolved, shown


def test_where_nobody_is_watching_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with resolved(None) as progress:
        assert progress is silent
    with resolved(False) as progress:
        assert progress is silent
    assert capsys.readouterr() == ("", "")


def test_asked_for_it_writes_each_step_once(capsys: pytest.CaptureFixture[str]) -> None:
    with resolved(True) as progress:
        for step in ("mining", "training", "mining"):
            progress(step, 0, 2)
            progress(step, 2, 2)
    assert capsys.readouterr() == ("", "mining\ntraining\n")
    with shown("compiling", lines=True) as progress:
        progress("mining", 0, 1)
    assert capsys.readouterr().err == "compiling\nmining\n"


def test_a_callback_of_ones_own_is_used_as_it_is() -> None:
    def own(what: str, done: int, total: int) -> None:
        raise AssertionError

    with resolved(own) as progress:
        assert progress is own


def test_a_terminal_gets_a_bar_for_the_step_at_work_and_none_at_the_end() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with bars(console, "compiling") as progress:
        progress("step [one]", 1, 2)
        text = "".join(str(s.text) for s in console.render(_live(console)))
        assert "step [one]" in text  # its brackets are no markup
        assert "compiling" not in text
        progress("step [one]", 2, 2)
        progress("step [one]", 0, 2)  # the same step, once more
        text = "".join(str(s.text) for s in console.render(_live(console)))
        assert "step [one]" in text
        progress("step [one]", 2, 2)
        text = "".join(str(s.text) for s in console.render(_live(console)))
        assert "step" not in text


def _live(console: Console) -> object:
    return console._live_stack[-1].get_renderable()


def test_a_terminal_is_drawn_on_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with resolved(None) as progress:
        assert progress is not silent
        progress("mining", 1, 2)
    assert "mining" in terminal.getvalue()


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_gets_bars_or_without_widgets_lines(
    widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[str] = []

    @contextmanager
    def bars(console: Console, before: str) -> Iterator[Progress]:
        yield lambda what, done, total: drawn.append(what)

    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(shown_progress, "find_spec", lambda name: widgets or None)
    monkeypatch.setattr(shown_progress, "bars", bars)
    with resolved(None) as progress:
        progress("mining", 1, 2)
    assert drawn == ["mining"] * widgets
    assert capsys.readouterr().err == "mining\n" * (not widgets)
