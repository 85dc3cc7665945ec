"""``loger compile``: compile all kernels before they are needed."""

from __future__ import annotations

import time

import typer


def compile_kernels() -> None:
    """Compile all kernels now, so that no later command has to.

    Installing with make does this. Kernels are kept on disk until loger or numba changes.
    """
    from loger.cli import show

    start = time.perf_counter()
    with show.working("compiling"):
        from loger.cli.kernels import precompile

        found = precompile()
    seconds = f"in {time.perf_counter() - start:.0f} s"
    typer.echo(f"{len(found)} kernels compiled {seconds}" if found else "all kernels are compiled")
