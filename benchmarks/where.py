"""Where the data sets are: every benchmark takes ``--data FOLDER``, which has a folder for each of
them. The default is ``shared/data`` next to the project.
"""

from __future__ import annotations

import sys
from pathlib import Path


def folder(arguments: list[str]) -> Path:
    """The folder that a command line names; the option is taken out of it.

    >>> rest = ["--data", "/sets", "--seeds", "3"]
    >>> folder(rest), rest
    (PosixPath('/sets'), ['--seeds', '3'])
    """
    if "--data" not in arguments:
        return Path(__file__).resolve().parents[2] / "shared" / "data"
    place = arguments.index("--data")
    named = arguments[place + 1 : place + 2]
    if not named:
        raise SystemExit("--data needs the folder of the data sets")
    del arguments[place : place + 2]
    return Path(named[0])


DATA = folder(sys.argv)
