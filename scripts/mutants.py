"""Change the source in small ways and report how many changes the quick tests notice, per file.

    python scripts/mutants.py                             all of TESTS
    python scripts/mutants.py src/loger/logic/mln.py …    some of it
    python scripts/mutants.py --sample 300 --seed 1       300 mutants drawn at random from all of it

mutmut makes the mutants: copies of a function with one operator, number, text or argument changed.
This script imports them in place of the modules, collects the tests and compiles the kernels once.
It tries each mutant in a fork of that process, with the fastest tests that reach its function. A
mutant that no test reaches survives. (mutmut's own runner copies the source, so all kernels compile
again. It also forks after running polars, which then hangs.)

No test can notice a mutant that does the same as the source. scripts/equivalent_mutants.toml lists
such mutants by the lines they change, with a reason; they don't count. Neither do mutants that only
drop the ``strict=True`` of a zip. The score of a sample comes with its 95% interval.

explain/render.py and explain/record.py aren't mutated, because they only lay out results of the
other files of explain/.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import tomllib
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import mutmut.mutation.trampoline as trampoline
import pytest
from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents
from mutmut.state import state

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "scripts" / "equivalent_mutants.toml"
TARGET = 0.85
MAX_SECONDS = 15
"""Tests that a mutant is tried with, fastest first, take at most this much processor time."""
STRICT = re.compile(r",?\s*(strict=\w+)?(?=\))")
"""The end of a call, with or without zip's ``strict``, which checks lengths that always agree."""
FILTERS = [
    f"tests/web/test_filters.py::test_{claim}"
    for claim in (
        "sets_frames_masks_and_functions_are_items",
        "a_filter_that_cannot_be_read_says_where_and_what_to_write",
        "what_is_no_filter_is_told_so",
        "at_most_so_many_of_a_kind_are_the_best_that_fit",
        "diversity_is_maximal_marginal_relevance",
        "variety_is_told_over_http_and_changes_no_score_and_no_reason",
    )
]
TESTS = {
    "src/loger/logic/mln.py": ["tests/test_logic.py"],
    "src/loger/learning/em.py": ["tests/test_em_steps.py"],
    "src/loger/learning/listwise.py": ["tests/test_teaching.py", "tests/test_em_steps.py"],
    "src/loger/learning/mstep.py": ["tests/test_em_steps.py"],
    "src/loger/learning/problem.py": ["tests/test_em_steps.py"],
    "src/loger/ranking/ranker.py": [
        "tests/test_explain.py",
        "tests/test_attribution.py",
        "tests/test_similar.py",
    ],
    "src/loger/ranking/selection.py": ["tests/test_filter_lists.py", *FILTERS],
    "src/loger/explain/attribution.py": ["tests/test_attribution.py", "tests/test_explain.py"],
    "src/loger/explain/lists.py": [
        "tests/test_attribution.py",
        "tests/test_similar.py",
        *FILTERS,
    ],
    "src/loger/explain/questions.py": [
        "tests/test_explain.py",
        "tests/test_counterfactual.py",
        "tests/web/test_api.py::test_rules_come_with_weights_and_with_paths_that_exist",
    ],
    "src/loger/explain/reasons.py": ["tests/test_attribution.py", "tests/test_reasons.py"],
    "src/loger/evaluation/evaluate.py": ["tests/evaluation/test_evaluate.py"],
    "src/loger/metrics/faithfulness.py": [
        "tests/evaluation/test_faithfulness.py",
        "tests/evaluation/test_actions.py",
    ],
    "src/loger/metrics/ranking.py": [
        "tests/evaluation/test_ranking.py",
        "tests/evaluation/test_beyond.py",
    ],
    "src/loger/metrics/report.py": [
        "tests/evaluation/test_report.py",
        "tests/evaluation/test_significance.py",
    ],
}
"""The files to mutate, and the tests that should notice: a fast part of ``make test``."""


T = TypeVar("T")


class Mutants(MetaPathFinder):
    """Imports mutated modules in place of the originals."""

    def __init__(self, files: Sequence[str], sample: int | None = None, seed: int = 0) -> None:
        self.files = {
            file.removeprefix("src/").removesuffix(".py").replace("/", "."): file for file in files
        }
        self.mutated = {
            module: mutate_file_contents(file, (ROOT / file).read_text(encoding="utf-8"))
            for module, file in self.files.items()
        }
        self.names = [f"{m}.{name}" for m, of in self.mutated.items() for name in of.mutant_names]
        """The mutants to try, as module.function__mutmut_number."""
        if sample is not None and sample < len(self.names):
            chosen = random.Random(seed).sample(range(len(self.names)), sample)
            self.names = [self.names[k] for k in sorted(chosen)]

    def file_of(self, mutant: str) -> str:
        """The source file of a mutant."""
        return self.files[mutant.rpartition(".")[0]]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module's own spec, with mutated code."""
        if name not in self.mutated:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self.mutated[name])
        return spec

    def change(self, mutant: str) -> tuple[str, str]:
        """The lines that a mutant removes from its function, and the lines that replace them."""
        module, _, name = mutant.rpartition(".")
        of = self.mutated[module]
        lines = of.code.splitlines()

        def body(function: str) -> list[str]:
            span = of.line_span_by_function_name[function]
            whole = (line.strip() for line in lines[span.start - 1 : span.end])
            return [line for line in whole if "__mutmut_" not in line]

        both = list(difflib.ndiff(body(re.sub(r"\d+$", "orig", name)), body(name)))
        old, new = (" ".join(x[2:] for x in both if x.startswith(s)) for s in ("- ", "+ "))
        return old, new


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutated: MutatedFile) -> None:
        super().__init__(name, path)
        self.code = mutated.code

    def get_code(self, fullname: str) -> CodeType:
        """Compile the mutated source; the bytecode on disk belongs to the original."""
        return compile(self.code, self.path, "exec", dont_inherit=True)


class Trial:
    """A pytest plugin that tries all mutants with the tests instead of just running them."""

    def __init__(self, mutants: Mutants, workers: int) -> None:
        self.mutants, self.workers = mutants, workers
        self.killed: dict[str, bool] = {}
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find which tests reach which function, then try each mutant."""
        reach = self._reach(session.items)
        names = self.mutants.names

        def trials() -> Iterator[Job[str]]:
            for done, mutant in enumerate(names):
                if done % 50 == 0:
                    print(f"{done} of {len(names)} mutants, {sum(self.killed.values())} killed")
                function = mutant.partition("__mutmut_")[0]
                tests = sorted((s, k) for k, (s, of) in enumerate(reach) if function in of)
                total = list(accumulate(seconds for seconds, _ in tests))
                few = max(1, bisect(total, MAX_SECONDS))
                items = [session.items[k] for _, k in tests[:few]]
                limit = 20 + int(5 * sum(total[few - 1 : few]))
                if items:
                    yield mutant, partial(self._try, mutant, items), limit
                else:
                    print(f"no test reaches {function}")
                    self._survived(mutant)

        for mutant, passed in in_children(trials(), self.workers):
            self.killed[mutant] = not passed
            if passed:
                self._survived(mutant)
        return True

    def _survived(self, mutant: str) -> None:
        """Report a survivor at once, because a run may take hours."""
        self.killed[mutant] = False
        old, new = self.mutants.change(mutant)
        print(f"survived: {mutant}\n  - {old}\n  + {new}")

    def _reach(self, items: Sequence[pytest.Item]) -> list[tuple[float, set[str]]]:
        """The time of each test and the functions that it calls; all tests must pass.

        Each test runs in its own process, because what one caches, another would not call.
        """
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / str(k) for k in range(len(items))]
            pairs = zip(items, files, strict=True)
            jobs = ((item.nodeid, partial(self._record, item, file), 600) for item, file in pairs)
            for test, passed in in_children(jobs, self.workers):
                if not passed:
                    raise SystemExit(f"without any mutant a test fails: {test}")
            found = [json.loads(file.read_text()) for file in files]
        return [(seconds, set(functions)) for seconds, functions in found]

    def _record(self, item: pytest.Item, file: Path) -> bool:
        """Run a test without a mutant, and write its time and the functions that it calls."""
        trampoline.set_mutant_under_test("stats")
        state()._stats.clear()
        start = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        file.write_text(json.dumps((time.process_time() - start, sorted(state()._stats))))
        return not self.failed

    def _try(self, mutant: str, items: Sequence[pytest.Item]) -> bool:
        """Whether all tests pass with a mutant."""
        trampoline.set_mutant_under_test(mutant)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return False
        return True


Job = tuple[T, Callable[[], bool], int]
"""A name, what to do in a child process, and how many seconds of processor time it may take."""


def in_children(jobs: Iterable[Job[T]], workers: int) -> Iterator[tuple[T, bool]]:
    """Do each job in a fork, several at a time; yield its name and whether it returned True."""
    running: dict[int, T] = {}
    for name, work, seconds in jobs:
        running[fork(work, seconds)] = name
        if len(running) == workers:
            yield _ended(running)
    while running:
        yield _ended(running)


def _ended(running: dict[int, T]) -> tuple[T, bool]:
    pid, status = os.wait()
    return running.pop(pid), status == 0


def fork(work: Callable[[], bool], seconds: int) -> int:
    """Start work in a silent child process with a limit of processor time; return its ID."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    passed = False
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        signal.alarm(60 * seconds)  # waiting forever takes no processor time
        passed = work()
    finally:
        os._exit(0 if passed else 1)


def interval(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share, given n draws."""
    if not n:
        return 0.0, 1.0
    z, share = 1.96, hits / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def report(mutants: Mutants, killed: dict[str, bool], *, sampled: bool) -> float:
    """Print the score of each file; return the score of all."""
    allowed = {
        (m["file"], m["from"], m["to"])
        for m in tomllib.loads(ALLOWED.read_text(encoding="utf-8")).get("mutant", [])
    }
    verdicts: dict[str, Counter[str]] = {file: Counter() for file in mutants.files.values()}
    for mutant in mutants.names:
        file, verdict = mutants.file_of(mutant), "killed"
        if not killed[mutant]:
            old, new = mutants.change(mutant)
            same = (file, old, new) in allowed or STRICT.sub("", old) == STRICT.sub("", new)
            verdict = "equivalent" if same else "survived"
        verdicts[file][verdict] += 1
    verdicts["all"] = sum(verdicts.values(), Counter())
    for file, of in verdicts.items():
        share = of["killed"] / max(1, of["killed"] + of["survived"])
        low, high = interval(of["killed"], of["killed"] + of["survived"])
        print(
            f"{file:47} {share:7.1%}",
            *([f"({low:.1%} to {high:.1%})"] if sampled else []),
            *(f"{of[v]:5} {v}" for v in ("killed", "survived", "equivalent")),
        )
    return share


def main() -> int:
    """Try all mutants; return 1 if too many survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="what to mutate; all of TESTS")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sample", type=int, help="how many mutants to try, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the sample")
    options = parser.parse_args()
    files = options.files or list(TESTS)
    if unknown := [file for file in files if file not in TESTS]:
        parser.error(f"not in TESTS: {', '.join(unknown)}")
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    mutants = Mutants(files, options.sample, options.seed)
    sys.meta_path.insert(0, mutants)
    trial = Trial(mutants, options.workers)
    tests = sorted({test for file in files for test in TESTS[file]})
    plain = ["-q", "-m", "not long", "-p", "no:cacheprovider", "--assert=plain", "-s"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOGER_MUTANTS"] = folder  # where tests/conftest.py keeps fitted models
        code = pytest.main([*plain, *tests], plugins=[trial])
    if code:
        return int(code)
    return int(report(mutants, trial.killed, sampled=options.sample is not None) < TARGET)


if __name__ == "__main__":
    sys.exit(main())
