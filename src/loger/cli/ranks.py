"""Commands under torchrun: one rank leads, the others take part in its training."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps

import typer


def on_ranks(command: Callable[..., None]) -> Callable[..., None]:
    """The command, run by the leading one of the ranks that torchrun started, if it did."""

    @wraps(command)
    def run(*arguments: object, **options: object) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in os.environ:
            command(*arguments, **options)
            return
        from loger.encoder.training.distributed import joined

        with joined(int(os.environ.get("LOCAL_RANK", "0"))) as ranks:
            if ranks.leads:
                command(*arguments, **options)
                typer.echo(ranks.summary(), err=True)
            else:
                ranks.help()

    return run
