"""Background work gives the same result, and stops when it is no longer needed."""

from __future__ import annotations

import threading
import time

import pytest

from loger.engine import LocalEngine, silent
from loger.engine.threads import Background


def test_pieces_run_in_one_thread_in_their_order_and_show_progress_where_they_are_waited_for():
    seen, shown, may_end = [], [], threading.Event()

    def work(name):
        def piece(progress):
            progress(name, 1, 2)
            assert may_end.wait(10)
            seen.append((name, threading.get_ident()))
            return name

        return piece

    def progress(*told):
        shown.append((*told, threading.get_ident()))
        may_end.set()

    with Background(LocalEngine(2)) as beside:
        one, two = beside.start(work("one")), beside.start(work("two"))
        assert one(progress) == "one" and two(silent) == "two"
    here = threading.get_ident()
    assert [name for name, _ in seen] == ["one", "two"]
    assert len({thread for _, thread in seen}) == 1 and seen[0][1] != here
    assert shown[0] == ("one", 1, 2, here)


def test_one_worker_does_the_work_when_it_is_asked_for():
    asked = []
    with Background(LocalEngine(1)) as beside:
        result = beside.start(lambda progress: asked.append(threading.get_ident()))
        assert not asked
        result(silent)
    assert asked == [threading.get_ident()]


def test_an_error_elsewhere_ends_the_work_at_its_next_report():
    begun, ended = threading.Event(), []

    def endless(progress):
        begun.set()
        while True:
            time.sleep(0.001)
            try:
                progress("step", 0, 1)
            except Exception:
                ended.append(True)
                raise

    with pytest.raises(KeyboardInterrupt), Background(LocalEngine(2)) as beside:
        beside.start(endless)
        assert begun.wait(10)
        raise KeyboardInterrupt
    assert ended == [True]


def test_an_error_in_the_work_is_raised_where_its_result_is_asked_for():
    def broken(progress):
        raise ValueError("no")

    with Background(LocalEngine(2)) as beside:
        result = beside.start(broken)
        with pytest.raises(ValueError, match="no"):
            result(silent)
