"""Bitmaps of entities in compiled loops: entity e is bit e & 63 of word e >> 6."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from loger.engine.kernels import kernel


@intrinsic
def popcount(typing_context, word):  # type: ignore[no-untyped-def]
    """How many bits are set."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def lowest(typing_context, word):  # type: ignore[no-untyped-def]
    """The place of the lowest set bit."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


@kernel(inline="always")
def set_bit(bits, entity):  # type: ignore[no-untyped-def]
    """Put an entity in."""
    bits[entity >> 6] |= np.uint64(1) << np.uint64(entity & 63)


@kernel(inline="always")
def is_set(bits, entity):  # type: ignore[no-untyped-def]
    """Whether an entity is in."""
    return (bits[entity >> 6] >> np.uint64(entity & 63)) & np.uint64(1) != np.uint64(0)
