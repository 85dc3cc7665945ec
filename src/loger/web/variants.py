"""The bundles that a server has side by side, and who gets which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from loger.updates.feedback.traffic import LETTERS, Traffic
from loger.web.config import ServeConfig
from loger.web.metrics import Metrics
from loger.web.schemas import Who
from loger.web.service import Service


class Variant(NamedTuple):
    """One of the bundles, as somebody got it."""

    number: int
    service: Service
    propensity: float
    """How likely it was to be this one."""

    @property
    def name(self) -> str:
        """A letter, in the order of the command line."""
        return LETTERS[self.number]


class Variants:
    """All bundles of a server; masks are of all of them."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.traffic = Traffic(tuple(config.traffic))
        self.services: Sequence[Service] = [
            Service(_own(config, number), metrics) for number in range(1 + len(config.others))
        ]
        for service in self.services:
            service.masks = self.services[0].masks

    def of(self, who: Who) -> Variant:
        """What somebody gets: by name, or a new user by the history."""
        return self.of_name(who.user if who.user is not None else "\n".join(who.history or ()))

    def of_name(self, name: str) -> Variant:
        """What a user gets."""
        number = self.traffic.variant(name)
        return Variant(number, self.services[number], self.traffic.shares[number])

    @property
    def problem(self) -> str | None:
        """Why the newest of some bundle is not served; None if all are."""
        return next((s.problem for s in self.services if s.problem is not None), None)


def _own(config: ServeConfig, number: int) -> ServeConfig:
    """The settings of one bundle; each keeps its private copies in a folder of its own."""
    if number == 0:
        return config
    scratch = config.scratch
    if scratch is not None:
        folder = Path(scratch).with_name(f"{Path(scratch).name}-{LETTERS[number]}")
        folder.mkdir(exist_ok=True)
        scratch = str(folder)
    return replace(config, bundle=config.others[number - 1], scratch=scratch)
