"""Linear algebra: matrix products, norms, and factorisations. Factorisations are loops on the
device; all can be traced and differentiated.

Matrices are the last two axes, [..., M, N], of float32 or float64; axes before are batches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._control import for_loop, while_loop
from ._creation import _place, arange, eye, ones, zeros
from ._dtypes import finfo, isdtype, result_type
from ._elementwise import abs as abs_
from ._elementwise import (
    asarray_like,
    floor,
    isfinite,
    isnan,
    log,
    log2,
    maximum,
    root,
    sign,
    sqrt,
    where,
    widened,
)
from ._elementwise import round as round_
from ._jit import Function
from ._large import call as call_large
from ._manipulation import (
    axes_of,
    broadcast_arrays,
    broadcast_shape,
    broadcast_to,
    concat,
    expand_dims,
    moveaxis,
    reshape,
    stack,
    take_range,
)
from ._products import matmul, matrix_transpose, tensordot, vecdot
from ._reductions import max as max_
from ._reductions import min as min_
from ._reductions import prod as prod_
from ._reductions import sum as sum_
from ._searching import argmax, argsort, take, take_along_axis

if TYPE_CHECKING:
    from ._array import Array

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


# ---- Without factorisations


def outer(x1: Array, x2: Array, /) -> Array:
    """Each element of x1 times each of x2, both of one axis."""
    return reshape(x1, (x1.size, 1)) * reshape(x2, (1, x2.size))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of 3 along an axis."""
    a, b = broadcast_arrays(asarray_like(x1), asarray_like(x2))
    if a.shape[axis] != 3:
        raise ValueError(f"cross: expected 3 elements along axis {axis}, got {a.shape[axis]}")
    d = result_type(a, b)
    a, b = (widened(moveaxis(x, axis, 0)) for x in (a, b))
    made = stack(
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], axis=0
    )
    return moveaxis(made.astype(d, copy=False), 0, axis)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonal of matrices that lies offset above the main one."""
    made: Array = call_large(_diagonal, asarray_like(x), offset=offset)
    return made


def _diagonal(x: Array, offset: int) -> Array:
    rows, cols = x.shape[-2:]
    first, length = (
        (offset if offset >= 0 else -offset * cols),
        max(min(rows + min(offset, 0), cols - max(offset, 0)), 0),
    )
    flat = reshape(x, (*x.shape[:-2], rows * cols))
    return take(flat, arange(length, device=_place(x, None)) * (cols + 1) + first, axis=-1)


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum of a diagonal of matrices."""
    return sum_(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Array, n: int, /) -> Array:
    """The product of n times a square matrix; of -n times its inverse where n is negative."""
    x = _square(x, "matrix_power")
    if n < 0:
        x, n = inv(x), -n
    d = x.dtype
    x = widened(x) if n > 2 else x
    made = broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=_place(x, None)), x.shape)
    while n:
        if n & 1:
            made = matmul(made, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return made.astype(d, copy=False)


def vector_norm(x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors along axes, None: of all elements.

    (sum |x|^ord)^(1/ord); the largest for inf, the least for -inf, the number of nonzero elements
    for 0.
    """
    x = asarray_like(x)
    if not isdtype(x.dtype, "real floating"):
        raise TypeError(f"vector_norm: expected floating elements, got {x.dtype}")
    axes = axes_of(axis, x.ndim)
    made: Array = call_large(_norm, x, axes=tuple(axes), keepdims=keepdims, order=float(ord))
    return made


def _norm(x: Array, axes: tuple[int, ...], keepdims: bool, order: float) -> Array:
    m = abs_(x)
    if order == math.inf:
        return max_(m, axis=axes, keepdims=keepdims)
    if order == -math.inf:
        return min_(m, axis=axes, keepdims=keepdims)
    if order == 1:
        return sum_(m, axis=axes, keepdims=keepdims)
    m = widened(m)
    if order == 0:
        made = sum_((m != 0).astype(m.dtype), axis=axes, keepdims=keepdims)
        return made.astype(x.dtype, copy=False)
    # An infinite element is the norm, and has the whole gradient.
    infinite = m == math.inf if m.traced and order > 0 else None
    finite = m if infinite is None else where(infinite, 0.0, m)
    if order == 2:
        made = root(sum_(finite * finite, axis=axes, keepdims=keepdims))
    else:
        # The gradients of these powers at zero are infinite; here they have no part.
        zero = finite == 0
        powers = where(zero, 0.0 if order > 0 else math.inf, where(zero, 1.0, finite) ** order)
        whole = sum_(powers, axis=axes, keepdims=keepdims)
        nothing = whole == 0
        made = where(nothing, 0.0, where(nothing, 1.0, whole) ** (1.0 / order))
    if infinite is not None:
        most = sum_(where(infinite, m, 0.0), axis=axes, keepdims=keepdims)
        made = where((most == math.inf) & (made == made), most, made)
    return made.astype(x.dtype, copy=False)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices.

    "fro": the root of the sum of squares; "nuc": the sum of singular values; 2 and -2: the largest
    and least of these; 1 and -1: of the absolute column sums; inf and -inf: of the absolute row
    sums.
    """
    x = _matrix(x, "matrix_norm")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        made = (
            sum_(s, axis=-1) if ord == "nuc" else max_(s, axis=-1) if ord == 2 else min_(s, axis=-1)
        )
        return reshape(made, (*made.shape, 1, 1)) if keepdims else made
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(
            f'matrix_norm: expected ord "fro", "nuc", 1, -1, 2, -2, inf or -inf, got {ord!r}'
        )
    sums = sum_(abs_(x), axis=-2 if abs(ord) == 1 else -1, keepdims=True)
    return (max_ if ord > 0 else min_)(sums, axis=(-2, -1), keepdims=keepdims)


# ---- Factorisations


def _matrix(x: Any, name: str) -> Array:
    a = asarray_like(x)
    if a.ndim < 2:
        raise ValueError(f"{name}: expected two axes at least, got shape {a.shape}")
    if a.dtype not in (_core.float32, _core.float64):
        raise TypeError(
            f"{name}: expected float32 or float64 elements, got {a.dtype}: convert by astype"
        )
    return a


def _square(x: Any, name: str) -> Array:
    a = asarray_like(x)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{name}: expected square matrices, got shape {a.shape}")
    return a


def _batch(x: Array) -> Array:
    """One axis of batches, [B, M, N]."""
    return reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _compiled(function: Any) -> Any:
    """As one program, outside of traced functions too; many sizes of matrices are nothing to be warned of."""
    return Function(function, warn=False)


def _column(x: Array, i: Array) -> Array:
    """Column i, [B, M]."""
    return take(x, i, axis=2)


def _row(x: Array, i: Array) -> Array:
    return take(x, i, axis=1)


@_compiled
def _eliminate(a: Array, b: Array) -> Any:
    """Gauss-Jordan elimination of a [B, N, N] with partial pivoting, applied to b [B, N, K] as
    well: the solution, the sign and the logarithm of |det a|.
    """
    batch, n = a.shape[0], a.shape[-1]
    rows = arange(n).reshape((1, n))

    def step(i: Array, state: Any) -> Any:
        a, b, signs, logs = state
        magnitude = where(rows >= i, abs_(_column(a, i)), -1.0)
        p = reshape(argmax(magnitude, axis=1), (batch, 1))
        order = where(rows == i, p, where(rows == p, i, rows))
        a, b = (take_along_axis(m, expand_dims(order, axis=2), axis=1) for m in (a, b))
        pivot = reshape(take(_row(a, i), i, axis=1), (batch, 1))
        safe = where(pivot == 0, 1.0, pivot)
        row_a, row_b = _row(a, i) / safe, _row(b, i) / safe
        factor = expand_dims(where(rows == i, 0.0, _column(a, i)), axis=2)
        here = expand_dims(rows == i, axis=2)
        a = where(here, expand_dims(row_a, axis=1), a - factor * expand_dims(row_a, axis=1))
        b = where(
            here,
            expand_dims(where(pivot == 0, math.inf, row_b), axis=1),
            b - factor * expand_dims(row_b, axis=1),
        )
        signs = (
            signs
            * sign(reshape(pivot, (batch,)))
            * where(reshape(p, (batch,)) == i, 1.0, -1.0).astype(signs.dtype)
        )
        return a, b, signs, logs + log(abs_(reshape(pivot, (batch,))))

    return for_loop(n, step, (a, b, ones((batch,), dtype=a.dtype), zeros((batch,), dtype=a.dtype)))


def solve(x1: Array, x2: Array, /) -> Array:
    """The x of x1 x = x2.

    x2 is of matrices [..., N, K] or, of one axis, a vector. Infinite or NaN if x1 is singular.
    """
    a = _square(_matrix(x1, "solve"), "solve")
    b = asarray_like(x2, a)
    d = result_type(a, b)
    a, b = a.astype(d, copy=False), b.astype(d, copy=False)
    vector = b.ndim == 1
    if vector:
        b = reshape(b, (b.size, 1))
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: {a.shape[-1]} unknowns have {b.shape[-2]} right sides")
    lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
    a, b = broadcast_to(a, (*lead, *a.shape[-2:])), broadcast_to(b, (*lead, *b.shape[-2:]))
    shape = b.shape
    if b.size == 0 or a.size == 0:
        made = b
    else:
        made = reshape(_eliminate(_batch(a), _batch(b))[1], shape)
    return reshape(made, shape[:-1]) if vector else made


def inv(x: Array, /) -> Array:
    """The inverse of square matrices. Infinite or NaN where one is singular."""
    x = _square(_matrix(x, "inv"), "inv")
    return solve(x, broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=_place(x, None)), x.shape))


def slogdet(x: Array, /) -> SlogdetResult:
    """The sign of square matrices' determinants and the logarithms of their magnitudes."""
    x = _square(_matrix(x, "slogdet"), "slogdet")
    lead = x.shape[:-2]
    if x.size == 0:
        place = _place(x, None)
        return SlogdetResult(
            ones(lead, dtype=x.dtype, device=place), zeros(lead, dtype=x.dtype, device=place)
        )
    b = _batch(x)
    _, _, signs, logs = _eliminate(b, take_range(b, 2, 0, 1, 1))
    return SlogdetResult(reshape(signs, lead), reshape(logs, lead))


@_compiled
def _pivots(a: Array) -> Any:
    """The pivots [B, N] of a [B, N, N] by elimination with complete pivoting, and the sign of the
    permutation.

    No pivot after a 0 is other than 0, so their product has the right gradient for matrices of
    every rank.
    """
    batch, n = a.shape[0], a.shape[-1]
    places = arange(n)

    def step(i: Array, state: Any) -> Any:
        a, free_rows, free_columns, pivots, columns = state
        open_ = expand_dims(free_rows, axis=2) & expand_dims(free_columns, axis=1)
        at = argmax(reshape(where(open_, abs_(a), -1.0), (batch, n * n)), axis=1)
        row, column = reshape(at // n, (batch, 1)), reshape(at % n, (batch, 1))
        of_row = take_along_axis(a, expand_dims(row, axis=2), axis=1)  # [B, 1, N]
        of_column = take_along_axis(a, expand_dims(column, axis=2), axis=2)  # [B, N, 1]
        pivot = take_along_axis(of_row, expand_dims(column, axis=2), axis=2)  # [B, 1, 1]
        free_rows = free_rows & (places != row)
        free_columns = free_columns & (places != column)
        factor = of_column / where(pivot == 0, 1.0, pivot)
        open_ = expand_dims(free_rows, axis=2) & expand_dims(free_columns, axis=1)
        return (
            where(open_, a - factor * of_row, a),
            free_rows,
            free_columns,
            where(places == i, reshape(pivot, (batch, 1)), pivots),
            where(places == row, column, columns),
        )

    free = broadcast_to(places >= 0, (batch, n))
    start = (a, free, free, zeros((batch, n), dtype=a.dtype), zeros((batch, n), dtype=_core.int64))
    _, _, _, pivots, columns = for_loop(n, step, start)
    swapped = (expand_dims(columns, axis=2) > expand_dims(columns, axis=1)) & (
        reshape(places, (n, 1)) < places
    )
    odd = sum_(swapped.astype(_core.int64), axis=(1, 2)) % 2
    return pivots, where(odd == 1, -1.0, 1.0).astype(a.dtype)


def det(x: Array, /) -> Array:
    """The determinants of square matrices.

    The gradient is the transposed adjugate, also of singular matrices.
    """
    x = _square(_matrix(x, "det"), "det")
    lead = x.shape[:-2]
    if x.size == 0:
        return ones(lead, dtype=x.dtype, device=_place(x, None))
    return reshape(_product_of_pivots(_batch(x)), lead)


@_compiled
def _product_of_pivots(a: Array) -> Any:
    """The product of pivots, without overflow on the way: of their mantissas, which are near 1, in
    float64.
    """
    pivots, sign_ = _pivots(a)
    wide = pivots.astype(_core.float64, copy=False)
    known = (wide != 0) & isfinite(wide)
    exponents = round_(log2(where(known, abs_(wide), 1.0)))
    product = prod_(wide * 2.0**-exponents, axis=1)
    total = sum_(exponents, axis=1)
    half = floor(total / 2)
    made = product * 2.0**half * 2.0 ** (total - half)
    return made.astype(a.dtype, copy=False) * sign_


@_compiled
def _cholesky(a: Array) -> Any:
    batch, n = a.shape[0], a.shape[-1]
    rows = arange(n).reshape((1, n))

    def step(j: Array, state: Any) -> Any:
        a, lower = state
        column = _column(a, j)
        column = where(rows >= j, column / sqrt(reshape(take(column, j, axis=1), (batch, 1))), 0.0)
        lower = lower + expand_dims(column, axis=2) * expand_dims(
            (rows == j).astype(a.dtype), axis=1
        )
        return a - expand_dims(column, axis=2) * expand_dims(column, axis=1), lower

    return for_loop(n, step, (a, zeros(a.shape, dtype=a.dtype)))[1]


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The lower triangular L of x = L L^T, or the upper triangular U of x = U^T U.

    x is symmetric and positive definite; NaN if it is not.
    """
    x = _square(_matrix(x, "cholesky"), "cholesky")
    made = reshape(_cholesky(_batch(x)), x.shape) if x.size else x
    return matrix_transpose(made) if upper else made


@_compiled
def _householder(a: Array) -> Any:
    """Q [B, M, M] and R [B, M, N]."""
    batch, m, n = a.shape
    rows = arange(m).reshape((1, m))

    def step(j: Array, state: Any) -> Any:
        q, r = state
        x = where(rows >= j, _column(r, j), 0.0)
        most = max_(abs_(x), axis=1, keepdims=True)
        x = x / where(
            most == 0, 1.0, most
        )  # so that no square overflows or vanishes: what v is as long as is all the same
        head = reshape(take(x, j, axis=1), (batch, 1))
        length = sqrt(sum_(x * x, axis=1, keepdims=True))
        v = x + where(rows == j, where(head < 0, -length, length), 0.0)
        square = sum_(v * v, axis=1, keepdims=True)
        w = where(square == 0, 0.0, 2.0 * v / where(square == 0, 1.0, square))
        r = r - expand_dims(v, axis=2) * matmul(expand_dims(w, axis=1), r)
        return q - matmul(q, expand_dims(w, axis=2)) * expand_dims(v, axis=1), r

    start = broadcast_to(eye(m, dtype=a.dtype), (batch, m, m))
    return for_loop(min(m, n), step, (start, a))


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns Q and an upper triangular R whose product is x [..., M, N].

    mode "reduced": Q [..., M, K], R [..., K, N] with K = min(M, N); "complete": Q [..., M, M], R
    [..., M, N].
    """
    from ._creation import triu

    x = _matrix(x, "qr")
    if mode not in ("reduced", "complete"):
        raise ValueError(f'qr: expected mode "reduced" or "complete", got {mode!r}')
    m, n = x.shape[-2:]
    k = min(m, n) if mode == "reduced" else m
    lead = x.shape[:-2]
    if x.size == 0:
        place = _place(x, None)
        whole = broadcast_to(eye(m, dtype=x.dtype, device=place), (*lead, m, m))
        return QRResult(
            take_range(whole, len(lead) + 1, 0, k, 1),
            zeros((*lead, k, n), dtype=x.dtype, device=place),
        )
    q, r = _householder(_batch(x))
    return QRResult(
        reshape(take_range(q, 2, 0, k, 1), (*lead, m, k)),
        triu(reshape(take_range(r, 1, 0, k, 1), (*lead, k, n))),
    )


def _scaled(a: Array) -> tuple[Array, Array]:
    """Matrices [B, M, N] scaled to the largest element 1, so that no square overflows or
    underflows, and their scales [B, 1, 1].

    A matrix with an element that is not finite becomes NaN.
    """
    most = max_(abs_(a), axis=(1, 2), keepdims=True)
    scale = where(most == 0, 1.0, where(isfinite(most), most, math.nan))
    return a / scale, scale


def _known(x: Array) -> Array:
    """0 for NaN: what is not to be waited for."""
    return where(isnan(x), 0.0, x)


def _rounds(n: int) -> np.ndarray[Any, Any]:
    """The partners of n players, an even number, in n - 1 rounds in which each meets every other once."""
    order = list(range(n))
    out = np.zeros((n - 1, n), np.int64)
    for r in range(n - 1):
        for a, b in zip(order[: n // 2], reversed(order[n // 2 :])):
            out[r, a], out[r, b] = b, a
        order = [order[0], order[-1], *order[1:-1]]
    return out


def _rotations(own: Array, other: Array, both: Array, first: Array) -> tuple[Array, Array]:
    """Cosine and signed sine of the Jacobi rotation of a pair of columns, after which their product is 0.

    both: the product; own, other: the squares of this column and of the other; first: whether this
    column is the first of the pair.
    """
    low, high = where(first, own, other), where(first, other, own)
    tau = (high - low) / (2.0 * where(both == 0, 1.0, both))
    t = where(tau < 0, -1.0, 1.0) / (abs_(tau) + sqrt(1.0 + tau * tau))
    t = where(both == 0, 0.0, t)
    c = 1.0 / sqrt(1.0 + t * t)
    return c, where(first, -1.0, 1.0) * t * c


_SWEEPS = 20  # at most: Jacobi's rotations converge quadratically, except for rounding errors


@_compiled
def _jacobi(a: Array) -> Any:
    """Rotations of all pairs, as many at a time as there are, until a [B, N, N], symmetric and N
    even, is diagonal: that, and the product of the rotations.
    """
    from ._array import asarray

    batch, n = a.shape[0], a.shape[-1]
    partners = asarray(_rounds(n))
    places = arange(n)
    least = float(finfo(a.dtype).eps)

    beside = reshape(places, (n, 1)) != reshape(places, (1, n))

    def spread(a: Array) -> Array:
        square = a * a
        total = sum_(square, axis=(1, 2))
        return max_(
            _known(sum_(where(beside, square, 0.0), axis=(1, 2)) / where(total > 0, total, 1.0))
        )

    def go_on(state: Any) -> Any:
        i, a, _ = state
        return (i % (n - 1) != 0) | ((spread(a) > (2 * n * least) ** 2) & (i < _SWEEPS * (n - 1)))

    def step(state: Any) -> Any:
        i, a, v = state
        partner = take(partners, i % (n - 1), axis=0)
        d = diagonal(a)
        both = reshape(
            take_along_axis(a, broadcast_to(reshape(partner, (1, n, 1)), (batch, n, 1)), axis=2),
            (batch, n),
        )
        both = where(
            places < partner, both, take(both, partner, axis=1)
        )  # one value for a pair, whatever rounding made of the other half
        c, s = _rotations(d, take(d, partner, axis=1), both, places < partner)
        down_c, down_s, over_c, over_s = (
            expand_dims(c, axis=2),
            expand_dims(s, axis=2),
            expand_dims(c, axis=1),
            expand_dims(s, axis=1),
        )
        a = down_c * a + down_s * take(a, partner, axis=1)
        a = over_c * a + over_s * take(a, partner, axis=2)
        return i + 1, a, over_c * v + over_s * take(v, partner, axis=2)

    start = (asarray(0), a, broadcast_to(eye(n, dtype=a.dtype), a.shape))
    _, a, v = while_loop(go_on, step, start)
    return diagonal(a), v


def eigh(x: Array, /) -> EighResult:
    """The eigenvalues of symmetric matrices in ascending order, [..., N], and their eigenvectors as
    columns, [..., N, N]. By Jacobi's rotations; the lower triangle is not looked at by itself. NaN
    for a matrix with an element that is not finite."""
    x = _square(_matrix(x, "eigh"), "eigh")
    n, lead, place = x.shape[-1], x.shape[:-2], _place(x, None)
    if x.size == 0 or n == 1:
        return EighResult(reshape(x, (*lead, n)), ones(x.shape, dtype=x.dtype, device=place))
    a = _batch(x)
    a = a * 0.5 + matrix_transpose(a) * 0.5
    a, scale = _scaled(a)
    if n % 2:  # an index that nothing rotates
        a = concat(
            [
                concat([a, zeros((a.shape[0], 1, n), dtype=x.dtype, device=place)], axis=1),
                zeros((a.shape[0], n + 1, 1), dtype=x.dtype, device=place),
            ],
            axis=2,
        )
    values, vectors = _jacobi(a)
    values, vectors = (
        take_range(values, 1, 0, n, 1),
        take_range(take_range(vectors, 1, 0, n, 1), 2, 0, n, 1),
    )
    order = argsort(values, axis=1)
    vectors = take_along_axis(vectors, expand_dims(order, axis=1), axis=2)
    values = take_along_axis(values, order, axis=1) * reshape(scale, (scale.shape[0], 1))
    return EighResult(
        reshape(values, (*lead, n)), reshape(where(isfinite(scale), vectors, math.nan), x.shape)
    )


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues of symmetric matrices in ascending order."""
    return eigh(x).eigenvalues


@_compiled
def _one_sided(a: Array) -> Any:
    """Rotations of all pairs of columns until those of a [B, M, N], N even, are orthogonal: these,
    and the product of the rotations.
    """
    from ._array import asarray

    batch, _m, n = a.shape
    partners = asarray(_rounds(n))
    places = arange(n)
    least = float(finfo(a.dtype).eps)

    def go_on(state: Any) -> Any:
        i, worst, _, _ = state
        return (i % (n - 1) != 0) | ((worst > 4.0 * least) & (i < _SWEEPS * (n - 1)))

    def step(state: Any) -> Any:
        i, worst, a, v = state
        partner = take(partners, i % (n - 1), axis=0)
        mates = take(a, partner, axis=2)
        squares = sum_(a * a, axis=1)
        other = take(squares, partner, axis=1)
        both = sum_(a * mates, axis=1)
        scale = sqrt(squares) * sqrt(other)
        part = max_(_known(abs_(both) / where(scale > 0, scale, 1.0)))
        worst = where(i % (n - 1) == 0, part, maximum(worst, part))
        c, s = _rotations(squares, other, where(scale > 0, both, 0.0), places < partner)
        c, s = expand_dims(c, axis=1), expand_dims(s, axis=1)
        return i + 1, worst, c * a + s * mates, c * v + s * take(v, partner, axis=2)

    start = (
        asarray(0),
        asarray(1.0, dtype=a.dtype),
        a,
        broadcast_to(eye(n, dtype=a.dtype), (batch, n, n)),
    )
    _, _, a, v = while_loop(go_on, step, start)
    return a, v


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U diag(S) Vh of [..., M, N], S in descending order, [..., K] with K the lesser of M and
    N; U and Vh are [..., M, M] and [..., N, N], or with full_matrices False [..., M, K] and [...,
    K, N]. By Jacobi's rotations of columns. NaN for a matrix with an element that is not finite."""
    x = _matrix(x, "svd")
    m, n = x.shape[-2:]
    if m < n:
        u, s, vh = svd(matrix_transpose(x), full_matrices=full_matrices)
        return SVDResult(matrix_transpose(vh), s, matrix_transpose(u))
    lead, place = x.shape[:-2], _place(x, None)
    if x.size == 0:
        whole = broadcast_to(eye(m, dtype=x.dtype, device=place), (*lead, m, m))
        u = whole if full_matrices else take_range(whole, len(lead) + 1, 0, n, 1)
        return SVDResult(
            u,
            zeros((*lead, n), dtype=x.dtype, device=place),
            broadcast_to(eye(n, dtype=x.dtype, device=place), (*lead, n, n)),
        )
    a, scale = _scaled(_batch(x))
    if n % 2:
        a = concat([a, zeros((a.shape[0], m, 1), dtype=x.dtype, device=place)], axis=2)
    if a.shape[2] == 2 and n == 1:
        turned, v = a, broadcast_to(eye(2, dtype=x.dtype, device=place), (a.shape[0], 2, 2))
    else:
        turned, v = _one_sided(a)
    turned, v = take_range(turned, 2, 0, n, 1), take_range(take_range(v, 1, 0, n, 1), 2, 0, n, 1)
    s = sqrt(sum_(turned * turned, axis=1))
    order = argsort(s, axis=1, descending=True)
    s = take_along_axis(s, order, axis=1)
    turned, v = (take_along_axis(t, expand_dims(order, axis=1), axis=2) for t in (turned, v))
    small = expand_dims(s <= max_(s, axis=1, keepdims=True) * float(finfo(x.dtype).eps), axis=1)
    u = where(small, 0.0, turned / where(small, 1.0, expand_dims(s, axis=1)))
    # Zero columns are replaced so that all are orthonormal: by those of Q. The others of Q are those
    # of u, except for their signs.
    q, r = qr(u, mode="complete" if full_matrices else "reduced")
    signs = where(diagonal(r) < 0, -1.0, 1.0).astype(x.dtype)
    if q.shape[-1] > n:
        signs = concat(
            [signs, ones((signs.shape[0], q.shape[-1] - n), dtype=x.dtype, device=place)], axis=1
        )
    q = q * expand_dims(signs, axis=1)
    return SVDResult(
        reshape(q, (*lead, m, q.shape[-1])),
        reshape(s * reshape(scale, (scale.shape[0], 1)), (*lead, n)),
        reshape(matrix_transpose(v), (*lead, n, n)),
    )


def svdvals(x: Array, /) -> Array:
    """The singular values of matrices in descending order."""
    return svd(x, full_matrices=False).S


def _cut(s: Array, x: Array, rtol: Any) -> Array:
    """What singular values are above: rtol times the largest."""
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(finfo(x.dtype).eps)
    elif hasattr(rtol, "ndim") and rtol.ndim:
        rtol = expand_dims(rtol, axis=rtol.ndim)
    cut: Array = max_(s, axis=-1, keepdims=True) * rtol
    return cut


def matrix_rank(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """How many singular values are above rtol (the larger extent times the type's eps) times the
    largest, as int64.
    """
    x = _matrix(x, "matrix_rank")
    s = svdvals(x)
    if s.shape[-1] == 0:
        return zeros(s.shape[:-1], dtype=_core.int64, device=_place(x, None))
    return sum_((s > _cut(s, x, rtol)).astype(_core.int64), axis=-1)


def pinv(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """The pseudoinverse [..., N, M], with singular values that are not above rtol times the largest
    taken as 0.
    """
    x = _matrix(x, "pinv")
    if x.size == 0:
        return matrix_transpose(x)
    u, s, vh = svd(x, full_matrices=False)
    keep = s > _cut(s, x, rtol)
    inverse = where(keep, 1.0 / where(keep, s, 1.0), 0.0)
    return matmul(
        matrix_transpose(vh) * expand_dims(inverse, axis=inverse.ndim - 1), matrix_transpose(u)
    )
