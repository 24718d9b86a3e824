"""The same elements in another shape or order."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _large
from ._dtypes import iinfo, result_type
from ._elementwise import asarray_like

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_copy = _core.Op("copy")
_reshape, _permute, _expand, _cat, _slice, _select, _tile = (
    Op("reshape"),
    Op("permute"),
    Op("expand"),
    Op("cat"),
    Op("slice"),
    Op("index_select"),
    Op("tile"),
)


WHOLE = (int, np.integer)


def axis_of(axis: int | np.integer[Any], ndim: int, name: str = "axis") -> int:
    """The axis, not negative; IndexError if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise IndexError(f"{name}: expected an axis in [{-ndim}, {ndim}), got {axis}")
    return operator.index(axis) % ndim


def axes_of(axis: Any, ndim: int, name: str = "axis") -> list[int]:
    """Axes named by a number, several, or None for all; each once."""
    if axis is None:
        return list(range(ndim))
    axes = [axis_of(a, ndim, name) for a in ([axis] if isinstance(axis, WHOLE) else axis)]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: an axis is named twice in {axis}")
    return axes


def extents_of(shape: Any) -> list[Any]:
    """A shape, or the extent of its only axis, as a list."""
    return [
        n if isinstance(n, _core.Extent) else operator.index(n)
        for n in ([shape] if isinstance(shape, (*WHOLE, _core.Extent)) else shape)
    ]


def same_extent(a: Any, b: Any) -> bool:
    """Whether two extents are known to be the same."""
    symbolic = isinstance(a, _core.Extent), isinstance(b, _core.Extent)
    return repr(a) == repr(b) if all(symbolic) else not any(symbolic) and bool(a == b)


def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """The same elements in another shape. One extent may be -1: it is computed."""
    x = asarray_like(x)
    extents = extents_of(shape)
    # What both have is the same, whatever symbols stand for.
    left: list[Any] = []
    before: list[Any] = list(x.shape)
    for n in extents:
        at = next(
            (i for i, m in enumerate(before) if same_extent(n, m) and not same_extent(n, 0)), None
        )
        if at is not None:
            del before[at]
        elif not same_extent(n, -1):
            left.append(n)
    count, known = math.prod(before), math.prod(left)
    open_ = [i for i, n in enumerate(extents) if same_extent(n, -1)]
    if open_:
        rest = 0 if same_extent(known, 0) else count // known
        if rest * known != count or same_extent(known, 0):
            raise ValueError(
                f"reshape: {x.shape} has not as many elements as {tuple(extents)} for any extent -1"
            )
        extents[open_[0]], known = rest, count
    if known != count or any(n < 0 for n in extents):
        raise ValueError(
            f"reshape: {x.shape} has {x.size} elements, which {tuple(extents)} has not"
        )
    if len(extents) == x.ndim and all(map(same_extent, extents, x.shape)):
        return _copy(x) if copy else x
    return _reshape(x, shape=extents)


def permute_dims(x: Array, /, axes: Any) -> Array:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    return _permute(asarray_like(x), dims=list(axes))


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """Axes moved to other places; the others stay in their order."""
    x = asarray_like(x)
    from_, to = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    if len(from_) != len(to):
        raise ValueError(f"moveaxis: {len(from_)} axes have {len(to)} places")
    order = [a for a in range(x.ndim) if a not in from_]
    for place, a in sorted(zip(to, from_)):
        order.insert(place, a)
    return permute_dims(x, order)


def expand_dims(x: Array, /, axis: int | tuple[int, ...] = 0) -> Array:
    """New axes of extent 1, at these places of the result."""
    x = asarray_like(x)
    count = 1 if isinstance(axis, WHOLE) else len(axis)
    places = axes_of(axis, x.ndim + count)
    shape = list(x.shape)
    for place in sorted(places):
        shape.insert(place, 1)
    return reshape(x, shape)


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Without these axes, whose extent is 1."""
    x = asarray_like(x)
    axes = axes_of(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} of {x.shape} has not the extent 1")
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def broadcast_to(x: Array, /, shape: Any) -> Array:
    """x repeated along new leading axes and along extents of 1."""
    x = asarray_like(x)
    extents = extents_of(shape)
    return (
        x
        if len(extents) == x.ndim and all(map(same_extent, extents, x.shape))
        else _expand(x, shape=extents)
    )


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all broadcast to; ValueError if there is none."""
    out: list[int] = []
    for i in range(1, max(map(len, shapes), default=0) + 1):
        extents = {s[-i] for s in shapes if len(s) >= i} - {1}
        if len(extents) > 1:
            raise ValueError(f"shapes do not broadcast: {', '.join(map(str, shapes))}")
        out.insert(0, extents.pop() if extents else 1)
    return tuple(out)


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """All as the shape that they broadcast to."""
    shape = broadcast_shape(*(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Joined along an axis; None: flattened first."""
    parts = [asarray_like(a) for a in arrays]
    if not parts:
        raise ValueError("concat: expected an array at least")
    d = result_type(*parts)
    parts = [p.astype(d, copy=False) for p in parts]
    if axis is None:
        parts, axis = [reshape(p, (-1,) if p.size else (0,)) for p in parts], 0
    return _cat(parts, dim=axis_of(axis, parts[0].ndim))


def stack(arrays: Any, /, *, axis: int = 0) -> Array:
    """Joined along a new axis."""
    parts = [asarray_like(a) for a in arrays]
    if not parts:
        raise ValueError("stack: expected an array at least")
    place = axis_of(axis, parts[0].ndim + 1)
    return concat([expand_dims(p, axis=place) for p in parts], axis=place)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, without it."""
    place = axis_of(axis, x.ndim)
    rest = [n for i, n in enumerate(x.shape) if i != place]
    return tuple(reshape(_slice(x, i, dim=place, length=1), rest) for i in range(x.shape[place]))


def take_range(x: Array, axis: int, start: int, length: int, step: int) -> Array:
    """length slices from start on, step apart, which may be negative."""
    if step > 0:
        return _slice(x, start if length else 0, dim=axis, length=length, step=step)
    f = _take_backwards
    if not x.traced and 4 * length >= _large.BYTES:  # of places, which a program does not store
        f = _large.compiled(f, "axis", "start", "length", "step")
    return f(x, axis=axis, start=start, length=length, step=step)


def _take_backwards(x: Array, axis: int, start: int, length: int, step: int) -> Array:
    from ._creation import _place, arange

    dtype = _core.int32 if start <= iinfo(_core.int32).max else _core.int64
    places = arange(start, start + step * length, step, dtype=dtype, device=_place(x, None))
    return _select(x, places, dim=axis)


def flip(x: Array, /, *, axis: Any = None) -> Array:
    """In reverse order along these axes; None: all."""
    x = asarray_like(x)
    made = x
    for a in axes_of(axis, x.ndim):
        made = take_range(made, a, x.shape[a] - 1, x.shape[a], -1) if x.shape[a] > 1 else made
    return _copy(x) if made is x else made


def roll(x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """Moved along these axes; what leaves at an end comes in at the other. None: as if flattened."""
    x = asarray_like(x)
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    axes = [int(axis)] if isinstance(axis, WHOLE) else list(axis)
    shifts = [int(shift)] * len(axes) if isinstance(shift, WHOLE) else list(shift)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(axes)} axes have {len(shifts)} shifts")
    made = x
    for a, by in zip(axes, shifts):
        a = axis_of(a, x.ndim)
        n = x.shape[a]
        by = by % n if n else 0
        if by:
            made = concat(
                [take_range(made, a, n - by, by, 1), take_range(made, a, 0, n - by, 1)], axis=a
            )
    return _copy(x) if made is x else made


def tile(x: Array, repetitions: Any, /) -> Array:
    """Repeated as a whole along its last axes."""
    x = asarray_like(x)
    times = list(repetitions)
    times = [1] * (x.ndim - len(times)) + times
    return _tile(x, repeats=times)


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element repeated that often, one after the other, along an axis; None: flattened
    first."""
    from ._array import Array
    from ._creation import _place, arange
    from ._reductions import cumulative_sum, min
    from ._searching import searchsorted

    x = asarray_like(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = axis_of(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(repeats, Array) and repeats.size != 1:
        if repeats.shape != (n,):
            raise ValueError(
                f"repeat: expected a count for each of {n} elements, got shape {repeats.shape}"
            )
        ends = cumulative_sum(repeats.astype(_core.int64, copy=False))
        least, total = stack([min(repeats).astype(_core.int64), ends[-1]]).tolist() if n else (0, 0)
        if least < 0:
            raise ValueError(f"repeat: expected counts that are not negative, got {least}")
        places = searchsorted(ends, arange(total, device=_place(x, None)), side="right")
        return _select(x, places, dim=axis)
    times = int(repeats)
    shape = list(x.shape)
    made = broadcast_to(
        expand_dims(x, axis=axis + 1), [*shape[: axis + 1], times, *shape[axis + 1 :]]
    )
    return reshape(made, [*shape[:axis], n * times, *shape[axis + 1 :]])
