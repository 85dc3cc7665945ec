"""What a fit has done so far, stage by stage, so that a kill costs at most the stage under way.

The encoder and the reasoner keep checkpoints of their own, epoch by epoch. All else that takes
time is a stage here: mining, the choice of derived relations, every M-step that settings are
compared by, the rounds of EM. What a stage gave is kept with a digest of all that determines it,
and read again only by the same stage of the same fit; what is damaged is computed again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from loger import __version__
from loger.encoder import Calibration
from loger.encoder.training.digest import digest
from loger.engine.files import Kind, atomic_folder, check_files, kind_of, read_manifest
from loger.errors import LogerError
from loger.graph import whole
from loger.learning.em import EM, OnceRound
from loger.learning.fitted import FittedLogic, Round
from loger.logic.mln import Logic
from loger.ranking.ranker import Fusion
from loger.rules import RuleSet, make_rule

log = logging.getLogger(__name__)

STAGE = Kind("stage", "stage of a fit", 1, "delete it")
FILE = "arrays.safetensors"
Arrays = Mapping[str, NDArray[np.generic]]
Kept = tuple[dict[str, Any], Arrays]
"""What is written of a stage: plain values and arrays."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one fit, in a folder; None keeps nothing."""

    folder: Path | None

    def once(
        self,
        name: str,
        run: tuple[object, ...],
        compute: Callable[[], Result],
        pack: Callable[[Result], Kept],
        unpack: Callable[[dict[str, Any], Arrays], Result],
    ) -> Result:
        """What a stage gives: kept by an earlier run of the same fit, or computed now and kept.

        ``run`` is all that determines it.
        """
        if self.folder is None:
            return compute()
        place, key = Path(self.folder) / name, digest((name, __version__, *run))
        kept = _read(place, key)
        if kept is not None:
            try:
                return unpack(*kept)
            except (LogerError, KeyError, TypeError, ValueError) as error:
                log.warning("computing again: %s: %s", place, error)
        result = compute()
        values, arrays = pack(result)
        if place.is_dir() and kind_of(place) != STAGE.name:
            shutil.rmtree(place)  # damaged: nothing in it is of use
        with atomic_folder(place, STAGE, {"run_key": key, "values": values}) as part:
            save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, part / FILE)
        return result


NOTHING_KEPT = Stages(None)


def _read(place: Path, key: str) -> tuple[dict[str, Any], Arrays] | None:
    """What was kept of the same stage of the same fit; None if nothing whole was."""
    if not place.is_dir():
        return None
    try:
        manifest = read_manifest(place, STAGE)
        if manifest.about.get("run_key") != key:
            return None
        check_files(place, manifest, STAGE)
        return manifest.about["values"], load_file(place / FILE)
    except (LogerError, KeyError, OSError, SafetensorError, ValueError) as error:
        log.warning("computing again: %s", error)
        return None


# ── the stages of EM ────────────────────────────────────────────────────────────────────


def started(em: EM, stages: Stages) -> FittedLogic:
    """The first M-step of a problem."""
    name = f"start-{digest((em.config, em.walks))[:8]}"
    return _logic_once(em, stages, name, (em.walks,), em.start)


def final(em: EM, fitted: FittedLogic, stages: Stages) -> FittedLogic:
    """The weights once more from all held-out users."""
    return _logic_once(em, stages, "final", (logic_values(fitted),), lambda: em.final(fitted))


def rounds_of(em: EM, stages: Stages) -> OnceRound:
    """The rounds of a problem, each kept with the encoder as it leaves it."""

    def once(
        number: int, previous: FittedLogic, compute: Callable[[], FittedLogic | None]
    ) -> FittedLogic | None:
        def unpack(values: dict[str, Any], arrays: Arrays) -> FittedLogic | None:
            if not values:
                return None
            em.encoder.load_state(em.graph.given, arrays)
            return logic_of(em, values)

        def pack(fitted: FittedLogic | None) -> Kept:
            return ({}, {}) if fitted is None else (logic_values(fitted), em.encoder.state())

        run = (*_problem(em), logic_values(previous)) if stages.folder else ()
        return stages.once(f"round-{number}", run, compute, pack, unpack)

    return once


def _logic_once(
    em: EM, stages: Stages, name: str, run: tuple[object, ...], compute: Callable[[], FittedLogic]
) -> FittedLogic:
    return stages.once(
        name,
        (*_problem(em), *run) if stages.folder else (),
        compute,
        lambda fitted: (logic_values(fitted), {}),
        lambda values, _: logic_of(em, values),
    )


def _problem(em: EM) -> tuple[object, ...]:
    """All that determines what EM comes to."""
    rules = [rule.relations for rule in em.rules]
    held_out = em.held_out.indptr, em.held_out.indices
    graphs = em.graph.fingerprint, whole(em.logic_graph).fingerprint
    return graphs, em.config, rules, held_out, em.encoder.state()


# ── the logic model as plain values ─────────────────────────────────────────────────────


def logic_values(fitted: FittedLogic) -> dict[str, Any]:
    """What was fitted, as values that JSON keeps to the last bit."""
    logic, fusion = fitted.logic, fitted.fusion
    return {
        "rules": [list(rule.relations) for rule in logic.rules],
        "weights": logic.weights.tolist(),
        "scales": None if logic.scales is None else logic.scales.tolist(),
        "numbers": [logic.prior, logic.popularity, fusion.encoder_weight],
        "own": None if fusion.own is None else list(fusion.own),
        "calibration": asdict(fusion.calibration),
        "trace": [asdict(row) for row in fitted.trace],
    }


def logic_of(em: EM, values: Mapping[str, Any]) -> FittedLogic:
    """What ``logic_values`` took apart, of a problem."""
    config, scales = em.config, values["scales"]
    prior, popularity, encoder_weight = values["numbers"]
    logic = Logic(
        RuleSet(tuple(make_rule(em.graph, rule) for rule in values["rules"])),
        np.array(values["weights"], dtype=np.float64),
        config.feature,
        config.active_walk,
        None if scales is None else np.array(scales, dtype=np.float64),
        prior,
        popularity,
    )
    calibration = Calibration(**values["calibration"])
    own = None if values["own"] is None else (values["own"][0], values["own"][1])
    fusion = Fusion(config.fusion, encoder_weight, calibration, config.alpha, own)
    return FittedLogic(logic, fusion, tuple(Round(**row) for row in values["trace"]))
