"""Reductions of axes, and cumulative sums and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _core
from ._dtypes import as_dtype, isdtype
from ._elementwise import asarray_like, root, widened
from ._large import call as call_large
from ._manipulation import WHOLE, axes_of, axis_of, concat, reshape, take_range

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_copy = _core.Op("copy")
_sum, _prod, _mean, _amax, _amin, _all, _any, _cumsum = (
    Op("sum"),
    Op("prod"),
    Op("mean"),
    Op("amax"),
    Op("amin"),
    Op("all"),
    Op("any"),
    Op("cumsum"),
)


def _reduce(op: _core.Op, x: Array, axis: Any, keepdims: bool) -> Array:
    if axis is not None and not isinstance(axis, WHOLE) and len(axis) == 0:
        return _copy(x)  # no axis: nothing to reduce
    axes = axes_of(axis, x.ndim)
    if not axes:
        return _copy(x)
    return op(x, dims=axes, keepdim=keepdims)


def _wide(x: Array, dtype: Any) -> _core.dtype:
    """What sums are made in: integers narrower than 64 bits become int64 or uint64, where no type
    is named.
    """
    if dtype is not None:
        return as_dtype(dtype)
    if isdtype(x.dtype, "unsigned integer"):
        return _core.uint64
    if isdtype(x.dtype, ("signed integer", "bool")):
        return _core.int64
    return x.dtype


def _converted_reduce(
    x: Array, op: _core.Op, dtype: _core.dtype, axes: tuple[int, ...], keep: bool
) -> Array:
    return _reduce(op, x.astype(dtype, copy=False), axes, keep)


def _reduce_in(op: _core.Op, x: Array, dtype: _core.dtype, axis: Any, keep: bool) -> Array:
    """A reduction in another type."""
    axes = tuple(axes_of(axis, x.ndim))
    if x.dtype == dtype:
        return _reduce(op, x, axes, keep)
    made: Array = call_large(_converted_reduce, x, op=op, dtype=dtype, axes=axes, keep=keep)
    return made


def sum(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum along axes, None: all; 0 of nothing.

    dtype None: integers are summed in 64 bits, floats in their own type.
    """
    x = asarray_like(x)
    return _reduce_in(_sum, x, _wide(x, dtype), axis, keepdims)


def prod(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product along axes, None: all; 1 of nothing. Types as in sum."""
    x = asarray_like(x)
    return _reduce_in(_prod, x, _wide(x, dtype), axis, keepdims)


def mean(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean along axes, None: all; NaN of nothing. Integers become float32."""
    x = asarray_like(x)
    dtype = x.dtype if isdtype(x.dtype, "real floating") else _core.float32
    return _reduce_in(_mean, x, dtype, axis, keepdims)


def max(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest along axes, None: all; NaN if any is NaN."""
    x = asarray_like(x)
    _not_empty(x, axis, "max")
    return _reduce(_amax, x, axis, keepdims)


def min(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The least along axes, None: all; NaN if any is NaN."""
    x = asarray_like(x)
    _not_empty(x, axis, "min")
    return _reduce(_amin, x, axis, keepdims)


def _not_empty(x: Array, axis: Any, name: str) -> None:
    if 0 in [x.shape[a] for a in axes_of(axis, x.ndim)]:
        raise ValueError(f"{name} of no elements: shape {x.shape}, axis {axis}")


def all(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether none along axes is zero, None: all of them; true of nothing."""
    return _reduce_in(_all, asarray_like(x), _core.bool, axis, keepdims)


def any(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether any along axes is not zero, None: all of them; false of nothing."""
    return _reduce_in(_any, asarray_like(x), _core.bool, axis, keepdims)


def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many along axes are not zero, as int64."""
    x = asarray_like(x)
    axes = tuple(axes_of(axis, x.ndim))
    made: Array = call_large(_count_nonzero, x, axes=axes, keep=keepdims)
    return made


def _count_nonzero(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    holds = x if x.dtype == _core.bool else x != 0
    return _reduce(_sum, holds.astype(_core.int64), axes, keep)


def var(x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The mean square distance from the mean along axes, of n - correction elements."""
    x = asarray_like(x)
    return _var(x, "var", axis, correction, keepdims).astype(x.dtype, copy=False)


def _var(x: Array, name: str, axis: Any, correction: float, keepdims: bool) -> Array:
    """The variance; of narrow floats in float32."""
    if not isdtype(x.dtype, "real floating"):
        raise TypeError(f"{name}: expected floating elements, got {x.dtype}")
    axes = tuple(axes_of(axis, x.ndim))
    correction = float(correction)
    made: Array = call_large(_var_of, x, axes=axes, correction=correction, keepdims=keepdims)
    return made


def _var_of(x: Array, axes: tuple[int, ...], correction: float, keepdims: bool) -> Array:
    x = widened(x)
    n = math.prod(x.shape[a] for a in axes)
    distance = x - mean(x, axis=axes, keepdims=True)
    total = sum(distance * distance, axis=axes, keepdims=keepdims)
    left = n - (
        int(correction) if correction == int(correction) else correction
    )  # extents that are symbols take whole numbers
    return total / left if left > 0 else total * math.nan


def std(x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of var."""
    x = asarray_like(x)
    return root(_var(x, "std", axis, correction, keepdims)).astype(x.dtype, copy=False)


def _scan_axis(x: Array, axis: int | None, name: str) -> int:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: expected an axis for shape {x.shape}")
        return 0
    return axis_of(axis, x.ndim)


def _with_initial(x: Array, axis: int, initial: float, include: bool) -> Array:
    from ._creation import _place, full

    if not include:
        return x
    shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
    return concat([full(shape, initial, dtype=x.dtype, device=_place(x, None)), x], axis=axis)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Sums of the elements up to each one along an axis; with include_initial a 0 comes first."""
    x = asarray_like(x)
    axis = _scan_axis(x, axis, "cumulative_sum")
    made: Array = call_large(_cumulative_sum, x, dtype=_wide(x, dtype), axis=axis)
    return _with_initial(made, axis, 0, include_initial)


def _cumulative_sum(x: Array, dtype: _core.dtype, axis: int) -> Array:
    return _cumsum(x.astype(dtype, copy=False), dim=axis)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Products of the elements up to each one along an axis; with include_initial a 1 comes first.

    Takes log2 of the extent passes.
    """
    x = asarray_like(x)
    d = _wide(x, dtype)
    x = widened(x.astype(d, copy=False))
    axis = _scan_axis(x, axis, "cumulative_prod")
    n, by = x.shape[axis], 1
    x = _copy(x) if n < 2 else x
    while by < n:  # each holds the product of `by` elements that end with it
        x = concat(
            [
                take_range(x, axis, 0, by, 1),
                take_range(x, axis, by, n - by, 1) * take_range(x, axis, 0, n - by, 1),
            ],
            axis=axis,
        )
        by *= 2
    return _with_initial(x.astype(d, copy=False), axis, 1, include_initial)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """The differences of neighbours along an axis, n times."""
    x = asarray_like(x)
    axis = axis_of(axis, x.ndim)
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1:
        x = concat(parts, axis=axis)
    if n == 0:
        return _copy(x)
    made: Array = call_large(_diff, x, axis=axis, n=n)
    return made


def _diff(x: Array, axis: int, n: int) -> Array:
    d = x.dtype
    x = widened(x) if n > 1 else x
    for _ in range(n):
        length = x.shape[axis]
        if length == 0:
            break
        after, before = (
            take_range(x, axis, 1, length - 1, 1) if length > 1 else take_range(x, axis, 0, 0, 1),
            take_range(x, axis, 0, length - 1, 1),
        )
        x = after ^ before if x.dtype == _core.bool else after - before
    return x.astype(d, copy=False)


def flat(x: Array) -> Array:
    """One axis of all elements."""
    return reshape(x, (x.size,))
