"""x[key] and x[key] = value. Slices are copies, so nothing else sees what is set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._creation import _place, arange
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
_copy, _select = Op("copy"), Op("index_select")
_slice_update, _index_put = Op("slice_update"), Op("index_put")


def _whole(key: tuple[Any, ...], x: Array) -> tuple[list[Any], bool]:
    """The key as slices, ints, None and arrays, with one part for each axis of x in addition to the
    Nones; and whether its ints and arrays are adjacent.
    """
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
        raise IndexError("an index has at most one ...")
    if taken > x.ndim:
        raise IndexError(f"too many indices: {taken} for shape {x.shape}")
    # Together with arrays an int counts as one. If they are not adjacent (a ... of no axes is
    # enough), their axes come first.
    advanced = [i for i, k in enumerate(parts) if isinstance(k, int) or hasattr(k, "dtype")]
    together = (
        advanced == list(range(advanced[0], advanced[0] + len(advanced))) if advanced else True
    )
    at = dots[0] if dots else len(parts)
    return parts[:at] + [slice(None)] * (x.ndim - taken) + parts[at + len(dots) :], together


def _symbolic_range(k: slice, n: Any) -> tuple[int, Any]:
    """The begin (negative: from the end) and the length of a slice of an axis of the symbolic
    extent n, if they are equal for all its values.
    """
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
        elif isinstance(k, slice):
            start, length, step = _range_of(k, made.shape[axis])
            if (start, step) != (0, 1) or not same_extent(length, made.shape[axis]):
                made = take_range(made, axis, start, length, step)
            shape.append(length)
            axis += 1
        elif isinstance(k, int):
            made = take_range(made, axis, _place_at(k, made.shape[axis], axis), 1, 1)
            axis += 1
        else:
            arrays.append((len(shape), k))
            covered = k.ndim if _is_mask(k) else 1
            shape.extend(made.shape[axis : axis + covered])
            axis += covered
    made = reshape(made, shape)
    return _by_arrays(made, arrays, together) if arrays else (_copy(made) if made is x else made)


def _by_arrays(x: Array, arrays: list[tuple[int, Any]], together: bool) -> Array:
    places: list[tuple[int, Array]] = []
    for at, k in arrays:
        if not _is_mask(k):
            places.append(
                (at, k if k.dtype in (_core.int64, _core.int32) else k.astype(_core.int64))
            )
            continue
        places += enumerate(_places_in(k, x.shape[at : at + k.ndim]), at)
        if k.ndim == 0:
            x = reshape(x, (*x.shape[:at], 1, *x.shape[at:]))
            arrays = [(a + 1 if a >= at and o is not k else a, o) for a, o in arrays]
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

    v = (
        value
        if hasattr(value, "traced")
        else asarray(
            value, dtype=None if hasattr(value, "dtype") else x.dtype, device=_place(x, None)
        )
    )
    v = v.astype(x.dtype, copy=False)
    parts, together = _whole(key if isinstance(key, tuple) else (key,), x)
    static = not any(isinstance(n, _core.Extent) for n in (*x.shape, *v.shape))
    if not (
        static and all(k is None or isinstance(k, (int, slice)) or _is_place(k) for k in parts)
    ):
        _put(x, parts, together, v)
        return
    block = _block_of(x, parts)
    v = reshape(_broadcast(v, block.shape), block.lengths)
    if v.size == 0:
        return
    if block.turned:
        v = flip(v, axis=block.turned)
    known = all(isinstance(s, int) for s in block.starts)
    if known and block.lengths == list(x.shape):
        x._replace(_copy(v) if v is value else v)
    elif known and not (x.traced or v.traced):
        _slice_update.update(x, v, tuple(block.starts), steps=block.steps)
    else:
        starts = (
            asarray(block.starts, dtype=_core.int64, device=_place(x, None))
            if known
            else concat(
                [reshape(asarray_like(s, x).astype(_core.int64), (1,)) for s in block.starts]
            )
        )
        x._replace(_slice_update(x, v, starts, steps=block.steps))


def _is_place(k: Any) -> bool:
    """Whether it is a 0-d index whose value is known only when it runs."""
    return hasattr(k, "dtype") and k.ndim == 0 and k.dtype != _core.bool


def _put(x: Array, parts: list[Any], together: bool, v: Array) -> None:
    """x[key] = v at a key of arrays, or of extents that are not known yet."""
    masks = [k for k in parts if _is_mask(k)]
    if masks and masks[0].shape == x.shape and v.ndim == 0:
        x._replace(where(masks[0], v, x))
        return
    if all(_is_whole(k) for k in parts):
        x._replace(_copy(broadcast_to(v, x.shape)))
        return
    places = _places_of(x, parts, together)
    v = _broadcast(v, places.shape)
    if places.order:
        v = permute_dims(v, places.order)
    v = reshape(v, places.source)
    if v.size == 0:
        return
    if not places.places:
        x._replace(reshape(v, x.shape))
        return
    if any(o.traced for o in (x, v, *places.places)):
        x._replace(_index_put(x, v, places.places, dim=places.dim))
    else:
        _index_put.update(x, v, places.places, dim=places.dim)


class _Places(NamedTuple):
    """What a key of arrays names: for each axis from `dim` on a tensor of places, all of one shape."""

    dim: int
    places: list[Array]
    shape: list[Any]  # as the key gives it
    order: list[int]  # of its axes, so that they are in x's order; empty: they are
    source: list[Any]  # the shape that index_put takes


def _places_of(x: Array, parts: list[Any], together: bool) -> _Places:
    from ._array import asarray

    axes_of = [0 if k is None else k.ndim if _is_mask(k) else 1 for k in parts]
    # Axes at both ends that the key takes as a whole go along.
    dim = 0
    while _is_whole(parts[dim]):
        dim += 1
    end = len(parts)
    while _is_whole(parts[end - 1]):
        end -= 1
    before, behind = list(x.shape[:dim]), list(x.shape[dim + sum(axes_of[dim:end]) :])
    # By axis what it is indexed by: an array or number, or a range with its place among the ranges.
    found: list[Any] = []
    ranges: list[Any] = []  # extents, of None 1
    shapes: list[Any] = []  # of the arrays
    at = -1  # how many ranges come before the arrays
    axis = dim
    for k, n in zip(parts[dim:end], axes_of[dim:end]):
        if k is None:
            ranges.append(1)
        elif isinstance(k, slice):
            start, length, step = _range_of(k, x.shape[axis])
            steps = arange(length, dtype=_core.int64, device=_place(x, None))
            found.append((len(ranges), start + steps * step if (start, step) != (0, 1) else steps))
            ranges.append(length)
        else:
            at = len(ranges) if at < 0 else at
            if isinstance(k, int):
                found.append(_place_at(k, x.shape[axis], axis))
            else:
                arrays = _places_in(k, x.shape[axis : axis + n]) if _is_mask(k) else [k]
                shapes.append(arrays[0].shape)
                found += arrays[:n]  # a 0-d mask has no axis
        axis += n
    common = list(broadcast_shape(*shapes))
    at = 0 if not together else max(at, 0)
    shape = [*ranges[:at], *common, *ranges[at:]]

    def spread(f: Any) -> Array:
        if isinstance(f, tuple):
            place = f[0] if f[0] < at else f[0] + len(common)
            f = reshape(f[1], [*f[1].shape, *[1] * (len(shape) - place - 1)])
        elif isinstance(f, int):
            f = asarray(f, dtype=_core.int64, device=_place(x, None))
        else:
            f = reshape(f, [*f.shape, *[1] * (len(ranges) - at)])
        return broadcast_to(f.astype(_core.int64, copy=False), shape)

    index = [spread(f) for f in found]
    source = [*before, *shape, *behind]
    if together or not before:
        return _Places(dim, index, source, [], source)
    c, b = len(common), len(before)
    order = [*range(c, c + b), *range(c), *range(c + b, len(source))]
    return _Places(dim, index, [*common, *before, *ranges, *behind], order, source)


def _is_whole(k: Any) -> bool:
    return isinstance(k, slice) and k == slice(None)


def _is_mask(k: Any) -> bool:
    return hasattr(k, "dtype") and k.dtype == _core.bool


def _range_of(k: slice, n: Any) -> tuple[Any, Any, int]:
    """Where a slice of an axis of extent n begins (negative: from the end), its length and step."""
    if isinstance(n, _core.Extent):
        return (*_symbolic_range(k, n), 1)
    start, stop, step = k.indices(n)
    return start, len(range(start, stop, step)), step


def _place_at(k: int, n: Any, axis: int) -> int:
    """Where an int of a key is in an axis of extent n, a symbol: negative from the end."""
    if not (k < n if k >= 0 else n >= -k):
        raise IndexError(f"index {k} is out of range for axis {axis} of extent {n}")
    return k if isinstance(n, _core.Extent) else k % int(n)


def _places_in(mask: Array, extents: Any) -> list[Array]:
    """For each axis of a mask the places of its elements that are true; of a 0-d mask one array:
    [0] or [].
    """
    if any(m not in (0, n) for m, n in zip(mask.shape, extents)):
        raise IndexError(f"a mask of shape {mask.shape} for axes of shape {tuple(extents)}")
    found = places_of(flat(mask), "indexing by a mask")
    if mask.ndim == 0:
        return [found]
    places: list[Array] = []
    for n in reversed(mask.shape):
        places.insert(0, found % n if n else found)
        found = found // n if n else found
    return places


def _broadcast(v: Array, shape: Any) -> Array:
    """v in this shape, as NumPy assigns: it may have more leading axes, of extent 1."""
    more = v.ndim - len(shape)
    if more > 0 and all(n == 1 for n in v.shape[:more]):
        v = reshape(v, v.shape[more:])
    return broadcast_to(v, shape)


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
            start, length, step = _place_at(k, x.shape[axis], axis), 1, 1
        else:
            start, length, step = _range_of(k, x.shape[axis])
            block.shape.append(length)
            if step < 0:
                block.turned.append(axis)
                start, step = start + (length - 1) * step, -step
        block.starts.append(start)
        block.lengths.append(length)
        block.steps.append(step if length > 1 else 1)
    return block
