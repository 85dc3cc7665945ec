"""Every function named in docs/research/paper-map.md runs when a model is fitted, queried and
evaluated, or belongs to a baseline that `loger compare` runs.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from types import CodeType, FrameType, ModuleType

import pytest

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.evaluation.compare import compare
from loger.evaluation.faithfulness import FaithfulnessConfig, RandomPaths, faithfulness_report
from loger.evaluation.methods import METHODS
from loger.model import LOGER, LOGERConfig
from loger.study import make_tasks, results
from loger.study.store import simulated_answers
from small_paper import small_paper
from test_docs import paper_map, resolve

Called = set[tuple[str, str]]
"""(file, qualified name) of code that ran."""


@contextmanager
def recorded() -> Iterator[Called]:
    """What is called meanwhile, on all threads that begin meanwhile."""
    seen: set[CodeType] = set()
    called: Called = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        called |= {(code.co_filename, code.co_qualname) for code in seen}


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """What runs when the preset `paper` and the default are fitted, kept, asked and measured."""
    config = replace(LOGERConfig(), encoder=TransEConfig(dimension=8, epochs=1))
    folder = tmp_path_factory.mktemp("map") / "bundle"
    with recorded() as called:
        parts = split(shop(seed=2, users=120, items=100).dataset)
        config_ = small_paper(epochs=1)
        forced = replace(config_, em=replace(config_.em, early_stop=False))
        fitted = LOGER(forced).fit(parts)
        assert fitted.trace_[1].selected > 0, "no E-step on hidden pairs was made"
        fitted.save(folder)
        paper, default = LOGER.load(folder), LOGER(config).fit(parts)
        user = paper.users[0]
        for model in (paper, default):
            item = model.recommend(user, 3)["item"][0]
            model.explain(user, item).as_dict()
            model.importance(user)
        paper.explain(user, item, by="reasoner").as_dict()
        measured = FaithfulnessConfig(users=4, probed=2, counterfactuals=0)
        faithfulness_report(paper, parts.refit(), paper.rules_, measured)
        random = RandomPaths(default, default.graph_, default.rules_)
        methods = {"a": default, "b": random}
        tasks = make_tasks(methods, default.graph_, default.rules_, 2, 3, 5)
        given = [
            (rater, at, dict(zip(tasks[at].methods, map(float, ranks), strict=True)))
            for rater, at, ranks in simulated_answers(tasks, 3, {})
        ]
        results(given, samples=10)
        compare(parts, ["mostpop"], tmp_path_factory.mktemp("compare"))
    return called


def ran(thing: object, called: Called) -> bool:
    """Whether a function, a method of a class or anything of a module was called."""
    if isinstance(thing, ModuleType):
        return any(file == thing.__file__ for file, _ in called)
    plain = inspect.unwrap(getattr(thing, "fget", None) or thing)
    file = inspect.getsourcefile(plain)
    name = plain.__qualname__
    below = f"{name}." if inspect.isclass(plain) else None
    return any(f == file and (q == name or (below and q.startswith(below))) for f, q in called)


def test_every_function_of_the_paper_map_is_on_the_path_of_the_product(called: Called) -> None:
    compared = {method.factory.partition(":")[2] for method in METHODS.values()}
    paper = LOGERConfig.paper()
    constants = [getattr(paper, field.name) for field in fields(paper)]
    idle = []
    for row in paper_map():
        for name in re.findall(r"`([\w]+\.[\w.]+)[^`]*`", row[1]):
            thing = resolve(name)
            if name.startswith("baselines."):
                on = name.removeprefix("baselines.") in compared
            elif callable(thing) or isinstance(thing, ModuleType | property):
                on = ran(thing, called)
            else:
                on = any(thing == value for value in constants)
            idle += [] if on else [name]
    assert not idle, f"named in docs/research/paper-map.md but never called: {', '.join(idle)}"


def test_what_the_product_does_not_call_is_found_out(called: Called) -> None:
    from loger.encoder import calibrate

    assert not ran(calibrate, called)
