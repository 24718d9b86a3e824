"""Arrays from nothing."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _large
from ._dtypes import as_dtype, iinfo, isdtype
from ._elementwise import Number, asarray_like
from ._large import call as call_large

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_zeros, _full, _arange, _copy = Op("zeros"), Op("full"), Op("arange"), Op("copy")


def _at(device: Any) -> Any:
    from ._client import device as find

    return nullcontext() if device is None else find(device)


def _shape(shape: Any) -> list[int]:
    from ._manipulation import extents_of

    return extents_of(shape)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros, float32 where no type is named."""
    with _at(device):
        return _zeros(
            shape=_shape(shape), dtype=_core.float32 if dtype is None else as_dtype(dtype)
        )


def full(shape: Any, fill_value: Number | Array, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of one value; dtype None: of the type of the value."""
    from ._array import Array, asarray
    from ._manipulation import broadcast_to

    if isinstance(fill_value, Array):
        d = fill_value.dtype if dtype is None else as_dtype(dtype)
        made = broadcast_to(fill_value.astype(d, copy=False), _shape(shape))
        return _copy(made) if made is fill_value else made
    if isinstance(fill_value, np.generic):
        dtype = fill_value.dtype if dtype is None else dtype
        fill_value = fill_value.item()
    if dtype is None:
        d = (
            _core.bool
            if isinstance(fill_value, bool)
            else _core.int64
            if isinstance(fill_value, int)
            else _core.float32
        )
    else:
        d = as_dtype(dtype)
    if isdtype(d, "integral") and not max(iinfo(d).min, -(2**53)) <= fill_value <= min(
        iinfo(d).max, 2**53
    ):  # a float holds no more, or the type
        return broadcast_to(asarray(fill_value, dtype=d, device=device), _shape(shape))
    with _at(device):
        return _full(shape=_shape(shape), value=float(fill_value), dtype=d)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Ones, float32 where no type is named."""
    return full(shape, 1.0, dtype=_core.float32 if dtype is None else dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros: memory never comes with what others left in it."""
    return zeros(shape, dtype=dtype, device=device)


def _place(x: Array, device: Any) -> Any:
    return device if device is not None or x.traced else x.device


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros of x's shape; dtype None: of its type."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=_place(x, device))


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Ones of x's shape; dtype None: of its type."""
    return ones(x.shape, dtype=dtype or x.dtype, device=_place(x, device))


def empty_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """As zeros_like."""
    return zeros_like(x, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: Number, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of one value of x's shape; dtype None: of its type."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=_place(x, device))


def arange(
    start: Number,
    /,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """The numbers start + i * step below stop, or above stop if step is negative.

    With one bound, start is 0. dtype None: int64 for integers, float32 for floats.
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = (v.item() if isinstance(v, np.generic) else v for v in (start, stop, step))
    if step == 0:
        raise ValueError("arange: expected a step that is not 0")
    if isinstance(stop, _core.Extent) and isinstance(start, int) and step == 1:
        length = stop - start
        if length < 0:
            raise ValueError(f"arange: from {start} to {stop}")
    else:
        length = max(math.ceil((stop - start) / step), 0)
    if dtype is None:
        d = _core.float32 if any(isinstance(v, float) for v in (start, stop, step)) else _core.int64
    else:
        d = as_dtype(dtype)
    if isdtype(d, "integral"):
        ends: tuple[Any, ...] = (start, stop - 1)
        if isinstance(length, int):
            ends = (start, start + (length - 1) * step) if length > 0 else ()
        for value in ends:
            if not iinfo(d).min <= value <= iinfo(d).max:
                raise OverflowError(f"arange: {value} is out of bounds for {d.name}")
        # Products wrap as the elements do, so the type itself is wide enough for both.
        fits = isinstance(length, int) and all(
            iinfo(d).min <= v <= iinfo(d).max for v in (start, step)
        )
        wide = d if fits else _core.int64
        with _at(device):
            made = _arange(_number(start, wide), _number(step, wide), length=length)
        return made.astype(d, copy=False)
    return _line(start, step, length, d, None, device)


def _line(start: Any, step: Any, length: Any, dtype: Any, last: Any, device: Any) -> Array:
    """start + i * step for i < length, computed in float64 and rounded once; the last one `last`,
    if there is one.
    """
    with _at(device):
        first, by = (_number(float(v), _core.float64) for v in (start, step))
        end = None if last is None else _number(float(last), _core.float64)
        large = isinstance(length, int) and length * dtype.itemsize >= _large.BYTES
        if not large or first.traced:
            return _line_of(first, by, end, length=length, dtype=dtype)
        f = _large.compiled(_line_of, "length", "dtype")
        made: Array = f(first, by, end, length=length, dtype=dtype)
        return made


def _line_of(start: Array, step: Array, last: Array | None, length: Any, dtype: Any) -> Array:
    from ._elementwise import where

    made = _arange(start, step, length=length)
    if last is not None:  # whatever was rounded
        place = _arange(_number(0, _core.int64), _number(1, _core.int64), length=length)
        made = where(place == length - 1, last, made)
    return made.astype(dtype, copy=False)


def _number(value: Any, dtype: _core.dtype) -> Array:
    """A 0-d array, or a constant of the function that is traced."""
    return full((), value, dtype=dtype)


def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """num numbers at equal distances from start to stop.

    stop is the last number; without endpoint it would be the next one.
    """
    if num < 0:
        raise ValueError(f"linspace: expected a count that is not negative, got {num}")
    d = _core.float32 if dtype is None else as_dtype(dtype)
    steps = num - 1 if endpoint else num
    step = (float(stop) - float(start)) / steps if steps > 0 else 0.0
    return _line(start, step, num, d, stop if endpoint and num > 1 else None, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Array:
    """Ones on the diagonal that lies k above the main one, else zeros."""
    cols = n_rows if n_cols is None else n_cols
    if n_rows < 0 or cols < 0:
        raise ValueError(f"eye: expected extents of 0 or more, got {n_rows} and {cols}")
    rows = arange(n_rows, device=device).reshape((n_rows, 1))
    made = (rows + k) == arange(cols, device=device).reshape((1, cols))
    return made.astype(_core.float32 if dtype is None else as_dtype(dtype), copy=False)


def _triangle(x: Array, k: int, lower: bool) -> Array:
    x = asarray_like(x)
    if x.ndim < 2:
        raise ValueError(f"expected two axes at least, got shape {x.shape}")
    made: Array = call_large(_triangle_of, x, k=k, lower=lower)
    return made


def _triangle_of(x: Array, k: int, lower: bool) -> Array:
    from ._elementwise import where

    rows, cols = x.shape[-2:]
    place = _place(x, None)
    distance = arange(cols, device=place).reshape((1, cols)) - arange(rows, device=place).reshape(
        (rows, 1)
    )
    keep = distance <= k if lower else distance >= k
    return where(keep, x, zeros((), dtype=x.dtype, device=place))


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The lower triangle of matrices, with k diagonals above the main one; zeros elsewhere."""
    return _triangle(x, k, True)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The upper triangle of matrices, from the diagonal k above the main one on; zeros elsewhere."""
    return _triangle(x, k, False)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """The coordinates of a grid's points.

    indexing: "ij", axis i is array i's; "xy", the first two are swapped.
    """
    from ._manipulation import broadcast_to, reshape

    if indexing not in ("xy", "ij"):
        raise ValueError(f'meshgrid: expected indexing "xy" or "ij", got {indexing!r}')
    n = len(arrays)
    axes = list(range(n))
    if indexing == "xy" and n >= 2:
        axes[0], axes[1] = 1, 0
    shape = [1] * n
    for a, axis in zip(arrays, axes):
        shape[axis] = a.size
    made = [
        broadcast_to(reshape(a, [a.size if i == axis else 1 for i in range(n)]), shape)
        for a, axis in zip(arrays, axes)
    ]
    return [_copy(m) if m is a else m for m, a in zip(made, arrays)]
