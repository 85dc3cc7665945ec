"""Says once that kernels are being compiled: it takes long, and happens only then."""

from __future__ import annotations

import logging

import typer

COMPILING = "compiling: only the first time after an install or an update, about a minute"


class _Told(logging.Handler):
    """Tells a person, the first time."""

    told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it was said."""
        if not self.told:
            self.told = True
            typer.echo(COMPILING, err=True)


def tell() -> None:
    """From now on a person is told of compiling."""
    log = logging.getLogger("loger.engine.kernels")
    log.handlers = [_Told()]
    log.setLevel(logging.INFO)
