"""How users and items are named: by text, or by an integer where the data had integers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from loger.errors import LogerError

Name = str | int | np.integer


def as_name(value: object) -> str:
    """The name that data sets and graphs know somebody or something by.

    >>> as_name("ann"), as_name(17), as_name(np.int64(17))
    ('ann', '17', '17')
    >>> as_name(17.0)
    Traceback (most recent call last):
    loger.errors.LogerError: users and items are named by text or integer, got 17.0
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise LogerError(f"users and items are named by text or integer, got {value!r}")


def as_names(names: Name | Iterable[Name]) -> list[str]:
    """One name or several, as a list.

    >>> as_names("ann"), as_names([1, "bob"])
    (['ann'], ['1', 'bob'])
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [as_name(names)]
    return [as_name(name) for name in names]
