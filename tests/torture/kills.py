"""Kill every command at every write point, one after another, and check what is left.

    python tests/torture/kills.py            every write point of every command
    python tests/torture/kills.py 20 save    about twenty of one command, evenly spread
    python tests/torture/kills.py 5 save update --ways full   only with a full disk

A write point is any opening for writing, rename, removal or new folder below the work folder, as
reported by Python's audit events. At each, the process ends at once (SIGKILL). Afterwards either
the old state or the new one must be there completely. The same command, run again, must produce
the same bytes as an undisturbed run, and leave nothing else behind. Commands run in children of one
warm process. A mapping and the data set built from it are two results, each old or new.

Other failures than a kill: from a write point on, nothing new can be written (``full``) or nothing
can be changed at all (``readonly``), by errors that an audit hook raises; no file can grow beyond
some size (``short``, the system's own limit, which also affects libraries written in Rust); or the
same command runs twice at the same time (``twice``). The command must succeed or say in one line
what is wrong. The last line is a JSON object of counts.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import polars as pl
from click.testing import CliRunner

import loger
from loger.cli import app
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.errors import LogerError
from loger.model import LOGER, LOGERConfig
from loger.updates.events import Event, EventStore

SMALL = [
    "--set",
    "encoder.dimension=8",
    "--set",
    "encoder.epochs=2",
    "--set",
    "em.rounds=1",
]
WAYS = ("kill", "full", "readonly", "short", "twice")


def command(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(done.exception, SystemExit) and done.output.count("\nerror: ") <= 1:
        raise LogerError(done.output)  # one line, as a person sees it
    if done.exception is not None:
        raise done.exception


def small(seed: int) -> Any:
    return shop(seed, users=40, items=60).dataset


# ── what is killed: how the old result is made, how the new one ─────────────────────────


def fit(work: Path, new: bool) -> None:
    seed = ["--set", "seed=1"] if new else []
    command("fit", work.parent / "data", "-o", work / "result", "--force", *SMALL, *seed)


def save(work: Path, new: bool) -> None:
    LOGER.load(work.parent / ("one" if new else "other")).save(work / "result")


def data(work: Path, new: bool) -> None:
    small(int(new)).save(work / "result")


def export(ending: str) -> Callable[[Path, bool], None]:
    def run(work: Path, new: bool) -> None:
        bundle = work.parent / ("one" if new else "other")
        command("recommend", bundle, "--all", "--out", work / f"result.{ending}")

    return run


def build(work: Path, new: bool) -> None:
    table = work.parent / ("plays.csv" if new else "fewer.csv")
    given = [
        "--interactions",
        table,
        "--out",
        work / "result",
        "--force",
    ]
    command("data", "build", "table", *given)


def report(work: Path, new: bool) -> None:
    bundle = work.parent / ("one" if new else "other")
    data = work.parent / ("data-one" if new else "data-other")
    few = ["--faithfulness", "10", "--report", work / "result.html"]
    command("evaluate", bundle, data, *few)


def study(work: Path, new: bool) -> None:
    if new:
        made = ["--methods", "random", "--tasks", "2", "-o", work / "result"]
        command("study", "make", work.parent / "one", *made)


def at_one_time() -> None:
    """The log of updates says when; here always the same."""
    from loger.cli import update

    update._now = lambda: "2026-11-17T08:00:00+00:00"


def update(work: Path, new: bool) -> None:
    at_one_time()
    if new:
        news = ["--interactions", work.parent / "news.csv", "--eval-users", "0"]
        command("update", work / "result", *news)
    else:
        shutil.copytree(work.parent / "one", work / "result")


def fold(work: Path, new: bool) -> None:
    """Events of a store that all runs share: what a bundle holds, its manifest says."""
    at_one_time()
    if new:
        events = ["--events", work.parent / "events", "--eval-users", "0"]
        command("update", work / "result", *events)
    else:
        shutil.copytree(work.parent / "one", work / "result")


COMMANDS: dict[str, Callable[[Path, bool], None]] = {
    "save": save, "data": data, "csv": export("csv"), "parquet": export("parquet"),
    "study": study, "update": update, "fold": fold, "build": build, "report": report, "fit": fit,
}  # fmt: skip
ONCE = ("study", "update")
"""Commands that are not to be given again once they have succeeded: a study with answers must not
be lost, and the log has a row for every update."""


State = dict[str, str]


def state(work: Path) -> State:
    """A digest of each result in a folder; hidden files are what a killed writer leaves."""
    digests = dict[str, Any]()
    for path in sorted(work.rglob("*")):
        place = path.relative_to(work)
        hidden = any(part.startswith(".") for part in place.parts)
        if path.is_file() and not hidden and "unfinished" not in str(place):
            digest = digests.setdefault(place.parts[0], hashlib.sha256())
            digest.update(str(place).encode() + b"\0" + path.read_bytes())
    return {name: digest.hexdigest() for name, digest in digests.items()}


def between(now: State, before: State, after: State) -> bool:
    """Whether a result is neither as it was nor as it is to be."""
    names = now.keys() | before.keys() | after.keys()
    return any(now.get(n) not in (before.get(n), after.get(n)) for n in names)


# ── what goes wrong ─────────────────────────────────────────────────────────────────────

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}
REFUSED, WRONG = 254, 255
"""How a child ends that was told in one line what is wrong, and one with a traceback."""
Do = Callable[[Path, bool], None]


def arm(work: Path, at: int | None, count: list[int], way: str = "kill") -> None:
    """Count write points below a folder from now on; at one, die, or from it on, fail."""
    root = str(work)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes, grows = event in CHANGES, event == "os.mkdir"
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            grows = writes
        what = arguments[0] if writes else ""
        if isinstance(what, int):  # an open file by its number
            what = Path(f"/proc/self/fd/{what}").readlink()
        place = os.fsdecode(what)
        if not writes or (place.startswith(os.sep) and not place.startswith(root)):
            return
        count[0] += 1
        if at is None or count[0] < at:
            return
        if way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "readonly":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), place)
        if way == "full" and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)

    sys.addaudithook(hook)


def begun(run: Callable[[], int]) -> int:
    """A child process that runs a function and ends with what it gives, up to 250."""
    child = os.fork()
    if child == 0:
        code = WRONG
        try:
            code = min(run(), 250)
        except LogerError as error:
            code = REFUSED if "Traceback" not in str(error) else WRONG
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """How a child ended; the signal that ended it, negated."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(run: Callable[[], int]) -> int:
    return ended(begun(run))


def run_armed(do: Do, work: Path, at: int | None, way: str = "kill") -> int:
    def run() -> int:
        count = [0]
        if way == "short":
            resource.setrlimit(resource.RLIMIT_FSIZE, (at or 0, at or 0))
        else:
            arm(work, at, count, way)
        do(work, True)
        return count[0]

    return in_child(run)


def prepared(work: Path, old: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(old, work)


def left_behind(work: Path) -> bool:
    return any(p.name.startswith(".") or "unfinished" in p.name for p in work.rglob("*"))


def spread(points: int, most: int) -> list[int]:
    few = {1 + k * points // most for k in range(most)}
    return sorted(few if points > most else range(1, points + 1))


class Case:
    """One command: how it ends undisturbed, and what became of it when disturbed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.do = name, COMMANDS[name]
        self.work, self.old = folder / "work", folder / f"old-{name}"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        assert in_child(lambda: self.do(self.work, False) or 0) == 0
        shutil.rmtree(self.old, ignore_errors=True)
        shutil.copytree(self.work, self.old)
        self.before = state(self.work)
        self.points = run_armed(self.do, self.work, None)
        self.after = state(self.work)
        assert 0 < self.points <= 250 and self.before != self.after, (name, self.points)
        self.largest = max(p.stat().st_size for p in self.work.rglob("*") if p.is_file())

    def disturbed(self, way: str, most: int) -> dict[str, int]:
        """Counts over the points of one way."""
        found = {
            "tried": 0,
            "lost": 0,
            "other_bytes": 0,
            "left_behind": 0,
            "traceback": 0,
        }
        points = spread(self.points, most)
        if way == "short":
            points = [self.largest * k // (1 + len(points[:12])) for k in range(len(points[:12]))]
        for at in points if way != "twice" else range(min(most, 5)):
            prepared(self.work, self.old)
            ends = self.twice() if way == "twice" else [run_armed(self.do, self.work, at, way)]
            if way == "kill" and ends != [-signal.SIGKILL]:
                continue  # the order of writes may differ a little between runs
            found["tried"] += 1
            found["traceback"] += way != "kill" and (WRONG in ends or min(ends) < 0)
            found["lost"] += between(state(self.work), self.before, self.after)
            if way in ("full", "short", "twice"):  # an error clears up after itself
                found["left_behind"] += self.name != "fit" and left_behind(self.work)
            found["other_bytes"] += not self.goes_on()
            found["left_behind"] += left_behind(self.work)
        return found

    def goes_on(self) -> bool:
        """Whether the same command, given again, ends as if nothing had happened."""
        if self.name in ONCE and state(self.work) == self.after:
            for path in self.work.glob(".*"):  # it is done, and nobody clears up after the kill
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            return True
        again = run_armed(self.do, self.work, None)
        return again not in (WRONG, REFUSED, -signal.SIGKILL) and state(self.work) == self.after

    def twice(self) -> list[int]:
        """The same command two times at once: both end well, or one is told of the other."""
        children = [begun(lambda: self.do(self.work, True) or 0) for _ in range(2)]
        ends = [ended(child) for child in children]
        return ends if 0 in ends else [WRONG]


def torture(name: str, folder: Path, most: int, ways: Sequence[str]) -> dict[str, Any]:
    """Disturb one command in some ways; how often, and what went wrong."""
    case = Case(name, folder)
    return {"points": case.points} | {way: case.disturbed(way, most) for way in ways}


def setup(folder: Path) -> int:
    """What the commands need: a data set and two bundles."""
    small(0).save(folder / "data")
    config = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))
    rows = [f"u{k % 12},t{(k * k) % 17}" for k in range(200)]
    for name, n in (("plays", 200), ("fewer", 150)):
        (folder / f"{name}.csv").write_text("\n".join(["user,item", *rows[:n]]) + "\n")
    (folder / "news.csv").write_text("user,item,time\nsomebody new,something new,2000000000\n")
    store = EventStore(folder / "events")
    store.append([Event("interaction", {"user": "somebody new", "item": "something new"}, at=2e9)])
    store.close()
    for name, seed in (("one", 0), ("other", 1)):
        small(seed).save(folder / f"data-{name}")
        LOGER(config).fit(split(small(seed))).save(folder / name)
    return 0


def warm(folder: Path) -> None:
    """Import all of loger and load kernels, so that no child has to. Nothing here may start the
    threads of polars: they do not live on in children."""
    for module in walk_packages(loger.__path__, "loger."):
        if not module.name.endswith(("__main__", "ray", "ray_serve")):
            with suppress(ImportError):
                import_module(module.name)
    LOGER.load(folder / "one").explained(np.arange(2), 3, paths=2)


def main(
    folder: Path, most: int, names: Sequence[str], ways: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Disturb some commands in a folder, which may have been used so before."""
    ready = folder / "ready"
    if not ready.exists():
        assert in_child(lambda: setup(folder)) == 0  # so that polars has no threads here
        ready.touch()
    warm(folder)
    results = {}
    for name in names:
        results[name] = torture(name, folder, most, ways)
        print(name, json.dumps(results[name]), file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    began = time.time()
    assert pl.__version__
    parser = argparse.ArgumentParser()
    parser.add_argument("most", nargs="?", type=int, default=250, help="write points of each")
    parser.add_argument("names", nargs="*", default=list(COMMANDS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--folder", type=Path, help="work here, and keep what was set up")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        results = main(asked.folder or Path(text), asked.most, asked.names, asked.ways)
    print(json.dumps({**results, "seconds": round(time.time() - began)}))
