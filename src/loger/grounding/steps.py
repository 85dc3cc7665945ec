"""The steps that all compiled loops over a graph take: look-ups, hops and what they weigh.

The strength of a path is the product over its hops h –r→ t of the fact's own weight and a power of
deg_r(h), with an exponent of its own for first hops. The last hop adds a power of deg_r⁻¹(v), and
the first edge a factor that falls with its age.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from loger.engine.kernels import kernel


class Weights(NamedTuple):
    """Factors by degree; all empty if only counts are needed."""

    powers: NDArray[np.float64]  # [exponents, degrees]: the next three arrays name a row each
    first: NDArray[np.int64]  # [relations]: for the degree that a first hop leaves
    leave: NDArray[np.int64]  # [relations]: for the degree that a later hop leaves
    into: NDArray[np.int64]  # [relations]: for the degree of v under the last hop's inverse
    edges: NDArray[np.float64]  # [fades, users' edges]: factors of first hops; empty if all are 1
    fades: NDArray[np.int64]  # [relations]: the row of ``edges`` for rules with this second hop


@intrinsic
def fetch(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Prefetch a place of an array into the processor's cache. This changes nothing, and the place
    need not exist."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [place, word(0), word(3), word(1)])  # to read, to be kept, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@kernel(inline="always")
def inverse(relation, n):  # type: ignore[no-untyped-def]
    """The inverse of a relation, of n base relations."""
    return relation - n if relation >= n else relation + n


@kernel(inline="always")
def _degree_of(g, entity, relation):  # type: ignore[no-untyped-def]
    """How many neighbours an entity of the right type has under a relation."""
    return g.degrees[g.degree_starts[relation] + entity]


@kernel(inline="always")
def fact(weighted, weights, edge):  # type: ignore[no-untyped-def]
    """The weight of a fact; 1 unless its relation is ``weighted``.

    It takes the array, not the graph: passing the graph on at every edge would count references to
    all of its arrays.
    """
    return np.float64(weights[edge]) if weighted else 1.0


@kernel(inline="always")
def first_hop(g, weights, fade, relation, edge, degree):  # type: ignore[no-untyped-def]
    """The worth of a user's edge, one of ``degree``, for rules of a fade class."""
    w = weights.powers[weights.first[relation], degree]
    if g.weighted[relation]:
        w *= g.home.weights[edge]
    return w * weights.edges[fade, edge] if weights.edges.shape[1] > 0 else w


@kernel(inline="always")
def leave(g, weights, entity, relation):  # type: ignore[no-untyped-def]
    """The worth of leaving an entity over a relation, except as a first hop."""
    return weights.powers[weights.leave[relation], _degree_of(g, entity, relation)]


@kernel(inline="always")
def arriving(g, weights, item, last):  # type: ignore[no-untyped-def]
    """The worth of arriving at an item over the last relation of a rule."""
    return weights.powers[weights.into[last], _degree_of(g, item, inverse(last, g.n_relations))]


@kernel
def first_at_least(values, lo, hi, x):  # type: ignore[no-untyped-def]
    """The first place in an ascending slice where a value is at least x, or its end."""
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def next_common(tails, i, i_end, j, j_end):  # type: ignore[no-untyped-def]
    """The first place from (i, j) on where two ascending slices hold the same entity, or (i_end,
    j_end).

    It steps through the shorter slice and searches in the longer one.
    """
    while i < i_end and j < j_end:
        if tails[i] < tails[j]:
            far = i_end - i > 8 * (j_end - j)
            i = first_at_least(tails, i + 1, i_end, tails[j]) if far else i + 1
        elif tails[j] < tails[i]:
            far = j_end - j > 8 * (i_end - i)
            j = first_at_least(tails, j + 1, j_end, tails[i]) if far else j + 1
        else:
            return i, j
    return i_end, j_end


@kernel
def supports_itself(g, u, v, r1, r2, r3):  # type: ignore[no-untyped-def]
    """Whether (u, v) is an interaction that derived facts of a rule may be made of (METHOD L2)."""
    if not (g.derived[r1] or (r2 >= 0 and g.derived[r2]) or (r3 >= 0 and g.derived[r3])):
        return False
    return interacts(g, u, v)


@kernel
def interacts(g, u, v):  # type: ignore[no-untyped-def]
    """Whether the user has the item."""
    lo, hi = segment(g.home, u, 0)
    e = first_at_least(g.home.tails, lo, hi, v)
    return e < hi and g.home.tails[e] == v


@kernel
def segment(g, entity, relation):  # type: ignore[no-untyped-def]
    """The slice of an entity's neighbours under a relation, (0, 0) if none."""
    for s in range(g.row_segments[entity], g.row_segments[entity + 1]):
        if g.segment_relations[s] == relation:
            return g.segment_starts[s], g.segment_starts[s + 1]
    return np.int64(0), np.int64(0)


# ── bitmaps of entities ───────────────────────────────────────────────────────────────
# Entity e is bit e & 63 of word e >> 6.


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


# ── the logarithm ─────────────────────────────────────────────────────────────────────
# numba calls the C library for each number. This version is pure arithmetic, so the compiler takes
# four numbers at a time, in less than half the time. The loop must be compiled with
# error_model="numpy": a division that may raise an error is not vectorized.

# fdlibm's constants (e_log.c): log 2 in two parts, and the polynomial of log((1 + s) / (1 - s)).
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
A1, A2, A3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
A4, A5, A6 = 2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01
A7 = 1.479819860511658591e-01
SQRT_HALF = np.uint64(0x3FE6A09E667F3BCD)
"""The bits of √½: numbers are split into 2^k · m, with m from there to √2."""


@intrinsic
def _bits(typing_context, number):  # type: ignore[no-untyped-def]
    """The bits of a number."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.uint64))

    return types.uint64(types.float64), generate


@intrinsic
def _number(typing_context, bits):  # type: ignore[no-untyped-def]
    """The number of some bits."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.uint64), generate


@kernel(inline="always")
def log_from_1(y):  # type: ignore[no-untyped-def]
    """log y of a finite y ≥ 1, accurate to about the last bit, by fdlibm's method."""
    bits = _bits(y)
    k = (bits - SQRT_HALF) >> np.uint64(52)
    f = _number(bits - (k << np.uint64(52))) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (A2 + w * (A4 + w * A6))
    rest = even + z * (A1 + w * (A3 + w * (A5 + w * A7)))
    half, times = 0.5 * f * f, np.float64(np.int32(k))
    return times * LN2_HIGH - ((half - (s * (half + rest) + times * LN2_LOW)) - f)
