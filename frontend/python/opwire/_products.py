"""Matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _core
from ._dtypes import result_type
from ._elementwise import arrays_of
from ._large import call as call_large
from ._manipulation import WHOLE, axis_of, permute_dims, reshape

if TYPE_CHECKING:
    from ._array import Array

_matmul = _core.Op("matmul")


def _both(x1: Any, x2: Any) -> tuple[Array, Array]:
    a, b = arrays_of(x1, x2)
    d = result_type(a, b)
    return a.astype(d, copy=False), b.astype(d, copy=False)


def matmul(x1: Array, x2: Array, /, *, precision: str = "ieee") -> Array:
    """The matrix product of the last two axes. The axes before them broadcast.

    An x1 of one axis is a row, such an x2 a column. precision: "tf32" lets float32 round its
    operands to 10 bits.
    """
    a, b = arrays_of(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: expected an axis at least, got shapes {a.shape} and {b.shape}")
    if a.ndim > 1 and b.ndim > 1 and a.dtype == b.dtype:
        return _matmul(a, b, precision=precision)
    made: Array = call_large(_matmul_of, a, b, precision=precision)
    return made


def _matmul_of(a: Array, b: Array, precision: str) -> Array:
    a, b = _both(a, b)
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        a = reshape(a, (1, *a.shape))
    if column:
        b = reshape(b, (*b.shape, 1))
    made = _matmul(a, b, precision=precision)
    shape = list(made.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return reshape(made, shape)


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes swapped."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected two axes at least, got shape {x.shape}")
    return permute_dims(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Sums of products along an axis, the others broadcast."""
    a, b = arrays_of(x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < 0:
        raise ValueError(f"vecdot: expected an axis in [{-min(a.ndim, b.ndim)}, 0), got {axis}")
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"vecdot: {a.shape[axis]} and {b.shape[axis]} elements along axis {axis}")
    made: Array = call_large(_vecdot, a, b, axis=axis)
    return made


def _vecdot(a: Array, b: Array, axis: int) -> Array:
    from ._manipulation import moveaxis

    a, b = _both(a, b)
    if axis != -1:
        a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    return reshape(
        _matmul(reshape(a, (*a.shape[:-1], 1, a.shape[-1])), reshape(b, (*b.shape, 1))),
        _outer(a, b),
    )


def _outer(a: Array, b: Array) -> tuple[int, ...]:
    from ._manipulation import broadcast_shape

    return broadcast_shape(a.shape[:-1], b.shape[:-1])


def tensordot(x1: Array, x2: Array, /, *, axes: Any = 2) -> Array:
    """Sums of products over several axes of both: the last of x1 with the first of x2, or those
    that two lists name.
    """
    a, b = arrays_of(x1, x2)
    if isinstance(axes, WHOLE):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(f"tensordot: {axes} axes of shapes {a.shape} and {b.shape}")
        of_a, of_b = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        of_a = [axis_of(i, a.ndim) for i in axes[0]]
        of_b = [axis_of(i, b.ndim) for i in axes[1]]
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise ValueError(f"tensordot: axes {of_a} of {a.shape} and {of_b} of {b.shape} differ")
    made: Array = call_large(_tensordot, a, b, of_a=tuple(of_a), of_b=tuple(of_b))
    return made


def _tensordot(a: Array, b: Array, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> Array:
    a, b = _both(a, b)
    left = [i for i in range(a.ndim) if i not in of_a]
    right = [i for i in range(b.ndim) if i not in of_b]
    inner = math.prod(a.shape[i] for i in of_a)
    m = reshape(permute_dims(a, [*left, *of_a]), (math.prod(a.shape[i] for i in left), inner))
    n = reshape(permute_dims(b, [*of_b, *right]), (inner, math.prod(b.shape[i] for i in right)))
    return reshape(_matmul(m, n), [a.shape[i] for i in left] + [b.shape[i] for i in right])
