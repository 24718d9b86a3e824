"""x[key] and x[key] = value. Slices are copies, so nothing else sees what is set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._dtypes import isdtype
from ._elementwise import asarray_like, where
from ._manipulation import (
    broadcast_shape,
    broadcast_to,
    concat,
    flip,
    permute_dims,
    reshape,
    same_extent,
    take_range,
)
from ._reductions import flat
from ._searching import places_of

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_copy, _argsort = _core.Op("copy"), _core.Op("argsort")
_select, _scatter_add, _update = Op("index_select"), Op("scatter_add"), Op("slice_update")


def _whole(key: tuple[Any, ...], x: Array) -> tuple[list[Any], bool]:
    """The key with its parts as slices, ints, None and arrays, one for each axis of x but for None; and whether its ints and arrays stand together."""
    parts: list[Any] = []
    taken = 0
    for k in key:
        if isinstance(k, (bool, np.bool_)):
            raise IndexError("a bool is no index: use an array of bools")
        if isinstance(k, (list, np.ndarray)):
            k = asarray_like(
                np.asarray(k, dtype=np.int64) if isinstance(k, list) and np.size(k) == 0 else k, x
            )
        elif (
            k is not None
            and k is not Ellipsis
            and not isinstance(k, slice)
            and not hasattr(k, "dtype")
        ):
            try:
                k = k.__index__()
            except AttributeError:
                raise IndexError(
                    f"expected an integer, slice, ..., None or array as index, got {type(k).__name__}"
                ) from None
        elif isinstance(k, np.integer):
            k = int(k)
        if hasattr(k, "dtype") and k.dtype != _core.bool and not isdtype(k.dtype, "integral"):
            raise IndexError(f"expected an index of integers or bools, got {k.dtype}")
        if hasattr(k, "dtype") and k.ndim == 0 and k.dtype != _core.bool and not k.traced:
            k = int(k)
        parts.append(k)
        taken += (
            0
            if k is None or k is Ellipsis
            else k.ndim
            if hasattr(k, "dtype") and k.dtype == _core.bool
            else 1
        )
    dots = [i for i, k in enumerate(parts) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one ... at the most")
    if taken > x.ndim:
        raise IndexError(f"too many indices: {taken} for shape {x.shape}")
    # Beside arrays an int counts as one: where they do not stand together, with a ... of no axes between them, say, their axes come first.
    advanced = [i for i, k in enumerate(parts) if isinstance(k, int) or hasattr(k, "dtype")]
    together = (
        advanced == list(range(advanced[0], advanced[0] + len(advanced))) if advanced else True
    )
    at = dots[0] if dots else len(parts)
    return parts[:at] + [slice(None)] * (x.ndim - taken) + parts[at + len(dots) :], together


def _symbolic_range(k: slice, n: Any) -> tuple[int, Any]:
    """Where a slice of an axis of extent n, a symbol, begins (negative: from the end), and its length, where these are known for all that it stands for."""
    if k.step not in (None, 1):
        raise TypeError(
            f"a slice with the step {k.step} of an axis of extent {n}: expected the step 1"
        )

    def place(at: Any, fallback: Any) -> Any:
        if at is None:
            return fallback
        if isinstance(at, _core.Extent):
            return at if at <= n else n
        at = at.__index__()
        if not (n >= at if at >= 0 else n >= -at):
            raise TypeError(f"a slice to {at} of an axis of extent {n}, which may be less")
        return at

    start, stop = place(k.start, 0), place(k.stop, n)
    if isinstance(start, _core.Extent):
        raise TypeError(f"a slice from {start} on: expected a number")
    if isinstance(stop, int) and (stop < 0) == (start < 0):
        return start, max(stop - start, 0)
    if start < 0:
        if not isinstance(stop, _core.Extent) or stop != n:
            raise TypeError(f"a slice from {start} to {stop} of an axis of extent {n}")
        return start, -start
    length = n + (stop - start) if isinstance(stop, int) else stop - start
    if length < 0:
        raise TypeError(
            f"a slice from {start} to {stop} of an axis of extent {n}, which may be less"
        )
    return start, length


def get(x: Array, key: Any) -> Array:
    """The elements that the key names, by NumPy's rules."""
    parts, together = _whole(key if isinstance(key, tuple) else (key,), x)
    # First what needs no index: slices and ints, axis by axis, and None.
    shape: list[int] = []  # of the result so far, once reshaped
    arrays: list[
        tuple[int, Any]
    ] = []  # those among the parts that are arrays, by their place in `shape`
    axis = 0
    made = x
    for k in parts:
        if k is None:
            shape.append(1)
        elif isinstance(k, slice) and isinstance(made.shape[axis], _core.Extent):
            start, length = _symbolic_range(k, made.shape[axis])
            if start != 0 or not same_extent(length, made.shape[axis]):
                made = take_range(made, axis, start, length, 1)
            shape.append(length)
            axis += 1
        elif isinstance(k, slice):
            n = made.shape[axis]
            start, stop, step = k.indices(n)
            length = len(range(start, stop, step))
            if (start, length, step) != (0, n, 1):
                made = take_range(made, axis, start, length, step)
            shape.append(length)
            axis += 1
        elif isinstance(k, int):
            n = made.shape[axis]
            if not (k < n if k >= 0 else n >= -k):
                raise IndexError(f"index {k} is out of range for axis {axis} of extent {n}")
            made = take_range(made, axis, k if isinstance(n, _core.Extent) else k % n, 1, 1)
            axis += 1
        else:
            arrays.append((len(shape), k))
            covered = k.ndim if k.dtype == _core.bool else 1
            shape.extend(made.shape[axis : axis + covered])
            axis += covered
    made = reshape(made, shape)
    return _by_arrays(made, arrays, together) if arrays else (_copy(made) if made is x else made)


def _by_arrays(x: Array, arrays: list[tuple[int, Any]], together: bool) -> Array:
    places: list[tuple[int, Array]] = []
    for at, k in arrays:
        if k.dtype != _core.bool:
            places.append(
                (at, k if k.dtype in (_core.int64, _core.int32) else k.astype(_core.int64))
            )
            continue
        if any(m not in (0, n) for m, n in zip(k.shape, x.shape[at : at + k.ndim])):
            raise IndexError(
                f"a mask of shape {k.shape} for axes of shape {x.shape[at : at + k.ndim]}"
            )
        found = places_of(flat(k), "indexing by a mask")
        for axis in reversed(range(k.ndim)):
            n = k.shape[axis]
            places.append((at + axis, found % n if n else found))
            found = found // n if n else found
        if k.ndim == 0:
            x = reshape(x, (*x.shape[:at], 1, *x.shape[at:]))
            arrays = [(a + 1 if a >= at and o is not k else a, o) for a, o in arrays]
            places.append((at, found))
    places.sort(key=lambda p: p[0])
    axes = [a for a, _ in places]
    if len(places) == 1:
        at, k = places[0]
        made = _select(x, k, dim=at)
        return (
            made
            if together or at == 0
            else permute_dims(
                made, [*range(at, at + k.ndim), *range(at), *range(at + k.ndim, made.ndim)]
            )
        )
    # Several: one place among all axes that they are of.
    shape = broadcast_shape(*(p.shape for _, p in places))
    linear: Any = None
    for a, p in places:
        n = x.shape[a]
        inside = where(p < 0, p + n, p)
        # Beyond an axis's end it must not become another's place.
        inside = where(
            (inside < 0) | (inside >= n), math.prod(x.shape[b] for b in axes) + 1, inside
        ).astype(_core.int64, copy=False)
        linear = inside if linear is None else linear * n + inside
    rest = [i for i in range(x.ndim) if i not in axes]
    size = math.prod(x.shape[a] for a in axes)
    turned = reshape(permute_dims(x, axes + rest), [size, *(x.shape[i] for i in rest)])
    made = _select(turned, broadcast_to(linear, shape), dim=0)
    if together and axes[0] > 0:
        lead = axes[0]
        order = [
            *range(len(shape), len(shape) + lead),
            *range(len(shape)),
            *range(len(shape) + lead, made.ndim),
        ]
        made = permute_dims(made, order)
    return made


def assign(x: Array, key: Any, value: Any) -> None:
    """x[key] = value.

    The value broadcasts to the elements that the key names, and is converted to x's type. Of several
    for one element the last is taken.
    """
    from ._array import asarray
    from ._creation import _place

    v = (
        value
        if hasattr(value, "traced")
        else asarray(
            value, dtype=None if hasattr(value, "dtype") else x.dtype, device=_place(x, None)
        )
    )
    v = v.astype(x.dtype, copy=False)
    parts, _ = _whole(key if isinstance(key, tuple) else (key,), x)
    static = not any(isinstance(n, _core.Extent) for n in (*x.shape, *v.shape))
    if not (
        static and all(k is None or isinstance(k, (int, slice)) or _is_place(k) for k in parts)
    ):
        x._replace(_put(x, key, parts, static, v))
        return
    block = _block_of(x, parts)
    v = reshape(broadcast_to(v, block.shape), block.lengths)
    if v.size == 0:
        return
    if block.turned:
        v = flip(v, axis=block.turned)
    known = all(isinstance(s, int) for s in block.starts)
    if known and block.lengths == list(x.shape):
        x._replace(_copy(v) if v is value else v)
    elif known and not x.traced and not v.traced and v.session is x.session:
        x._set_block(v, block.starts, block.steps)
    else:
        starts = (
            asarray(block.starts, dtype=_core.int64, device=_place(x, None))
            if known
            else concat(
                [reshape(asarray_like(s, x).astype(_core.int64), (1,)) for s in block.starts]
            )
        )
        x._replace(_update(x, v, starts, steps=block.steps))


def _is_place(k: Any) -> bool:
    """Whether it is a 0-d index whose value is known only when it runs."""
    return hasattr(k, "dtype") and k.ndim == 0 and k.dtype != _core.bool


def _put(x: Array, key: Any, parts: list[Any], static: bool, v: Array) -> Array:
    """x with v at a key of arrays, or of extents that are not known yet."""
    from ._array import asarray
    from ._creation import _place, arange, zeros

    mask = key if hasattr(key, "dtype") and key.dtype == _core.bool else None
    if mask is not None and mask.shape == x.shape and v.ndim == 0:
        return where(mask, v, x)
    if key is Ellipsis or key == slice(None) if not hasattr(key, "dtype") else False:
        return _copy(broadcast_to(v, x.shape))
    # Axes at the end that the key takes as a whole go along: places are those of rows.
    kept = len(parts)
    while static and kept > 1 and parts[kept - 1] == slice(None):
        kept -= 1
    rest = x.shape[x.ndim - (len(parts) - kept) :]
    lead = x.shape[: x.ndim - len(rest)]
    n, width = math.prod(lead), math.prod(rest)
    places = get(reshape(arange(n, device=_place(x, None)), lead), tuple(parts[:kept]))
    m = places.size
    v = broadcast_to(v, (*places.shape, *rest))
    v = reshape(v, (m, width) if rest else (m,))
    places = flat(places)
    if m == 0:
        return _copy(x)
    order = arange(1, m + 1, device=_place(x, None))
    if _may_repeat(key):
        # Only the last of equal places counts: in a stable order it is the one whose next differs.
        by_place = _argsort(places, dim=0)
        sorted_places = _select(places, by_place, dim=0)
        last = concat(
            [
                take_range(sorted_places, 0, 1, m - 1, 1)
                != take_range(sorted_places, 0, 0, m - 1, 1),
                asarray([True], device=_place(x, None)),
            ]
        )
        places = sorted_places
        order = where(last, by_place + 1, 0)
    which = _scatter_add(
        zeros((n,), dtype=_core.int64, device=_place(x, None)), places, order, dim=0
    )
    taken = _select(v, where(which > 0, which - 1, 0), dim=0)
    rows, is_set = (n, width) if rest else (n,), which > 0
    return reshape(
        where(reshape(is_set, (n, 1)) if rest else is_set, taken, reshape(x, rows)), x.shape
    )


class _Block(NamedTuple):
    """What ints, slices and None name: by axis of the array its start, length and step, ascending."""

    starts: list[Any]  # ints and 0-d arrays
    lengths: list[int]
    steps: list[int]
    shape: list[int]  # as the key gives it
    turned: list[int]  # axes that it names backwards


def _block_of(x: Array, parts: list[Any]) -> _Block:
    block = _Block([], [], [], [], [])
    for k in parts:
        axis = len(block.starts)
        if k is None:
            block.shape.append(1)
            continue
        if _is_place(k):
            start, length, step = k, 1, 1
        elif isinstance(k, int):
            if not -x.shape[axis] <= k < x.shape[axis]:
                raise IndexError(
                    f"index {k} is out of range for axis {axis} of extent {x.shape[axis]}"
                )
            start, length, step = k % x.shape[axis], 1, 1
        else:
            start, stop, step = k.indices(x.shape[axis])
            length = len(range(start, stop, step))
            block.shape.append(length)
            if step < 0:
                block.turned.append(axis)
                start, step = start + (length - 1) * step, -step
        block.starts.append(start)
        block.lengths.append(length)
        block.steps.append(step if length > 1 else 1)
    return block


def _may_repeat(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(
        isinstance(k, (list, np.ndarray)) or (hasattr(k, "dtype") and k.dtype != _core.bool)
        for k in parts
    )
