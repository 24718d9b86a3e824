"""Linear algebra that is made of products and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._creation import _place, arange, eye
from ._dtypes import isdtype
from ._elementwise import abs as abs_
from ._elementwise import asarray_like, sqrt
from ._manipulation import axes_of, broadcast_to, moveaxis, reshape, stack
from ._products import matmul, matrix_transpose, tensordot, vecdot
from ._reductions import max as max_
from ._reductions import min as min_
from ._reductions import sum as sum_
from ._searching import take

if TYPE_CHECKING:
    from ._array import Array

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "outer", "tensordot", "trace", "vecdot", "vector_norm"]


def outer(x1: Array, x2: Array, /) -> Array:
    """Each element of x1 times each of x2, both of one axis."""
    return reshape(x1, (-1, 1)) * reshape(x2, (1, -1))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of 3 along an axis."""
    from ._manipulation import broadcast_arrays

    a, b = broadcast_arrays(asarray_like(x1), asarray_like(x2))
    if a.shape[axis] != 3:
        raise ValueError(f"cross: expected 3 elements along axis {axis}, got {a.shape[axis]}")
    a, b = moveaxis(a, axis, 0), moveaxis(b, axis, 0)
    made = stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], axis=0)
    return moveaxis(made, 0, axis)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonal of matrices that lies offset above the main one."""
    x = asarray_like(x)
    rows, cols = x.shape[-2:]
    first, length = (offset if offset >= 0 else -offset * cols), max(min(rows + min(offset, 0), cols - max(offset, 0)), 0)
    flat = reshape(x, (*x.shape[:-2], rows * cols))
    return take(flat, arange(length, device=_place(x, None)) * (cols + 1) + first, axis=-1)


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum of a diagonal of matrices."""
    return sum_(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Array, n: int, /) -> Array:
    """The product of n times a square matrix, n not negative."""
    x = asarray_like(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power: expected square matrices, got shape {x.shape}")
    if n < 0:
        raise NotImplementedError("matrix_power: inverses are not there")
    made = broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=_place(x, None)), x.shape)
    while n:
        if n & 1:
            made = matmul(made, x)
        x, n = (matmul(x, x), n >> 1) if n > 1 else (x, 0)
    return made


def vector_norm(x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors along axes, None: of all elements: (sum |x|^ord)^(1/ord), the largest for inf, the least for -inf, how many are not 0 for 0."""
    x = asarray_like(x)
    if not isdtype(x.dtype, "real floating"):
        raise TypeError(f"vector_norm: expected floating elements, got {x.dtype}")
    axes = axes_of(axis, x.ndim)
    m = abs_(x)
    if ord == float("inf"):
        return max_(m, axis=axes, keepdims=keepdims)
    if ord == float("-inf"):
        return min_(m, axis=axes, keepdims=keepdims)
    if ord == 0:
        return sum_((m != 0).astype(x.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return sum_(m, axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(sum_(m * m, axis=axes, keepdims=keepdims))
    return sum_(m ** float(ord), axis=axes, keepdims=keepdims) ** (1.0 / float(ord))


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices: "fro", the root of the sum of squares; 1 and -1, the largest and least sum of a column; inf and -inf, of a row."""
    x = asarray_like(x)
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: expected two axes at least, got shape {x.shape}")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, float("inf"), float("-inf")):
        raise NotImplementedError(f"matrix_norm: ord {ord!r} needs singular values, which are not there")
    sums = sum_(abs_(x), axis=-2 if abs(ord) == 1 else -1, keepdims=True)
    return (max_ if ord > 0 else min_)(sums, axis=(-2, -1), keepdims=keepdims)
