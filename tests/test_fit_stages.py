"""A fit that is killed resumes after its last finished stage, and ends with the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loger.config import LOGERConfig
from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransEConfig
from loger.engine import LocalEngine
from loger.engine.files import MANIFEST
from loger.learning import em, fit
from loger.learning.fitted import logic_of, logic_parts
from loger.logic.config import EMConfig
from loger.model import LOGER

CONFIG = LOGERConfig(
    encoder=TransEConfig(dimension=8, epochs=2, warm_epochs=1),
    em=EMConfig(rounds=2, early_stop=False, tau=0.0, teacher=0),
)


class KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def parts():
    return split(shop(users=60, items=60).dataset)


def saved(model: LOGER, folder: Path) -> dict[str, bytes]:
    model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


STEPS: list[tuple[Any, str]] = [
    (fit, "mine"), (fit, "choose"), (em.EM, "start"), (fit, "final_m_step"),
]  # fmt: skip


@pytest.mark.parametrize("likelihood", ["listwise", "pseudo"])
def test_whatever_was_done_before_a_kill_is_not_done_again(
    parts, tmp_path: Path, monkeypatch, likelihood: Any
) -> None:
    settings = replace(CONFIG, em=replace(CONFIG.em, likelihood=likelihood))
    monkeypatch.setattr("loger.learning.derived.USERS", 40)
    whole = saved(LOGER(settings).fit(parts), tmp_path / "whole")
    calls: list[str] = []
    budget = [0]

    def counted(name: str, real: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            if budget[0] == 0:
                raise KilledError
            budget[0] -= 1
            calls.append(name)
            return real(*given, **named)

        return call

    for place, name in STEPS:
        monkeypatch.setattr(place, name, counted(name, getattr(place, name)))
    for _ in range(60):
        budget[0] = 1  # one step more in every run, then a kill
        try:
            model = LOGER(settings).fit(parts, checkpoint=tmp_path / "kept")
        except KilledError:
            continue
        break
    else:
        raise AssertionError("a fit that is killed after every stage never ends")
    assert saved(model, tmp_path / "again") == whole
    assert calls.count("mine") == 1
    assert calls.count("final_m_step") == 1
    compared = sum(name in ("recency", "popular") for name, *_ in model.tried_)
    assert calls.count("start") == compared - 1  # what was best is among the next


def test_a_damaged_stage_is_computed_again(parts, tmp_path: Path, caplog) -> None:
    quick = replace(CONFIG, em=EMConfig())
    whole = saved(LOGER(quick).fit(parts, checkpoint=tmp_path / "kept"), tmp_path / "whole")
    kept = sorted((tmp_path / "kept" / "stages").iterdir())
    assert {"mining", "final"} <= {path.name for path in kept}
    for k, place in enumerate(kept):
        path = place / MANIFEST
        if k % 2:
            path.write_text(path.read_text().replace('"run_key"', '"run_kez"'))
        else:
            path.write_text("{}")
    again = saved(LOGER(quick).fit(parts, checkpoint=tmp_path / "kept"), tmp_path / "again")
    assert again == whole
    assert "damaged" in caplog.text


def test_encoders_trained_beside_the_rest_leave_the_same_bytes(parts, tmp_path: Path) -> None:
    quick = replace(CONFIG, em=EMConfig())
    alone, beside = (
        saved(LOGER(quick, engine=LocalEngine(n)).fit(parts), tmp_path / str(n)) for n in (1, 2)
    )
    assert alone == beside


def test_stages_of_another_fit_are_not_taken_up(parts, tmp_path: Path) -> None:
    LOGER(CONFIG).fit(parts, checkpoint=tmp_path)
    other = replace(CONFIG, em=replace(CONFIG.em, l2=0.5))
    alone = LOGER(other).fit(parts)
    beside = LOGER(other).fit(parts, checkpoint=tmp_path)
    assert np.array_equal(alone.weights_, beside.weights_)


def test_what_was_fitted_comes_back_from_json_to_the_last_bit(parts) -> None:
    model = LOGER(replace(CONFIG, em=EMConfig(many_labels=0))).fit(parts)
    problem = model.em(parts)
    fitted = problem.start()
    values, arrays = logic_parts(fitted)
    kept = json.loads(json.dumps(values))
    back = logic_of(problem.graph, problem.encoder, problem.config, kept, arrays)
    assert back.logic.weights.tobytes() == fitted.logic.weights.tobytes()
    assert (back.fusion, back.trace) == (fitted.fusion, fitted.trace)
