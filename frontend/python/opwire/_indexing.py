"""x[key] and x[key] = value. Slices are copies, so nothing else sees what is set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._creation import _place, arange
from ._dtypes import iinfo, isdtype
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
            k = asarray_like(_host_places(k), x)
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


def _host_places(k: Any) -> np.ndarray[Any, Any]:
    """A list or array of this process as NumPy's array: of int32, if that holds its integers."""
    made = np.asarray(k, dtype=np.int64 if isinstance(k, list) and np.size(k) == 0 else None)
    if made.dtype.kind in "iu" and made.dtype != np.int32 and made.ndim:
        held = np.iinfo(np.int32)
        if made.size == 0 or (made.min() >= held.min and made.max() <= held.max):
            return made.astype(np.int32)
    return made


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
        p = p.astype(_core.int64, copy=False)
        inside = where(p < 0, p + n, p)
        # Beyond an axis's end it must not become another's place.
        inside = where(
            (inside < 0) | (inside >= n), math.prod(x.shape[b] for b in axes) + 1, inside
        )
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
    # Reversed before it broadcasts, so that only its own elements are.
    lead = v.ndim - len(block.shape)
    turned = [a + lead for a in block.turned if a + lead >= 0 and v.shape[a + lead] != 1]
    v = reshape(_broadcast(flip(v, axis=turned) if turned else v, block.shape), block.lengths)
    if v.size == 0:
        return
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
    traced = any(o.traced for o in (x, v, *(k for k in parts if hasattr(k, "dtype"))))
    eager = not traced and _core.Trace.current() is None
    grid = _grid_of(x, parts, together) if eager else None
    if grid is not None:
        v = reshape(_broadcast(v, grid.shape), [a.size for a in grid.axes])
        if v.size:
            _put_grid(x, grid.axes, v)
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
    if traced or any(p.traced for p in places.places):
        x._replace(_index_put(x, v, places.places, dim=places.dim))
    else:
        _index_put.update(x, v, places.places, dim=places.dim)


class _Line(NamedTuple):
    """What a key names along one axis: places that an array has, or a range, ascending."""

    size: int
    places: Array | None
    start: int
    step: int
    turned: bool  # the key names the range backwards


class _Grid(NamedTuple):
    """A key that names places of each axis on their own, as a mesh, and the shape that it gives."""

    axes: list[_Line]
    shape: list[int]


_FEW = 1 << 20  # bytes of places; setting by them is one op


def _grid_of(x: Array, parts: list[Any], together: bool) -> _Grid | None:
    """The key as a grid; None if it is not one, or if places for each element take less memory."""
    if not together or any(k is None or (_is_mask(k) and k.ndim != 1) for k in parts):
        return None
    parts = [
        _places_in(k, x.shape[i : i + 1])[0] if _is_mask(k) else k for i, k in enumerate(parts)
    ]
    arrays = [k for k in parts if hasattr(k, "dtype")]
    common = broadcast_shape(*(k.shape for k in arrays))
    # Each axis of the common shape is of one array, in their order.
    owners: list[int] = []
    for i in range(-len(common), 0):
        of = [j for j, k in enumerate(arrays) if k.ndim >= -i and k.shape[i] != 1]
        if len(of) > 1 or common[i] == 0 or (owners and of and of[0] < owners[-1]):
            return None
        owners += of
    axes: list[_Line] = []
    shape: list[int] = []
    at = -1
    for axis, (k, n) in enumerate(zip(parts, x.shape)):
        if hasattr(k, "dtype"):
            at = len(shape) if at < 0 else at
            k = k if k.dtype in (_core.int64, _core.int32) else k.astype(_core.int64)
            axes.append(_Line(k.size, reshape(k, (k.size,)), 0, 1, False))
        elif isinstance(k, int):
            at = len(shape) if at < 0 else at
            axes.append(_Line(1, None, _place_at(k, n, axis), 1, False))
        else:
            start, length, step = _range_of(k, n)
            shape.append(length)
            start, turned = (start + (length - 1) * step, True) if step < 0 else (start, False)
            axes.append(_Line(length, None, start, abs(step), turned))
    shape[at:at] = common
    # What places take, and what _put_grid stores.
    named = [i for i, k in enumerate(parts) if not _is_whole(k)]
    inner = axes[named[0] : named[-1] + 1]
    of_places = 4 * len(inner) * math.prod(a.size for a in inner)
    size = [n if a.places is not None else a.size for a, n in zip(axes, x.shape)]
    stored = math.prod(size) if _is_part(axes, x) else 0
    for axis, _ in _by_share(axes, x)[:-1]:
        size[axis] = axes[axis].size
        stored += math.prod(size)
    return _Grid(axes, shape) if max(stored * x.itemsize, _FEW) < of_places else None


def _is_part(axes: list[_Line], x: Array) -> bool:
    """Whether the ranges leave something out."""
    return any(a.places is None and a.size != n for a, n in zip(axes, x.shape))


def _by_share(axes: list[_Line], x: Array) -> list[tuple[int, Array]]:
    """The axes of arrays with these, the one that takes least of its axis first."""
    found = [(i, a.places) for i, a in enumerate(axes) if a.places is not None]
    return sorted(found, key=lambda f: axes[f[0]].size / x.shape[f[0]])


def _put_grid(x: Array, axes: list[_Line], v: Array) -> None:
    """Sets what a grid names, by places of one axis at a time: in a copy of what the ranges, and
    then the first arrays, name. x changes in the last step, so a step that fails leaves x unchanged.
    """
    turned = [i for i, a in enumerate(axes) if a.turned and a.size > 1]
    v = flip(v, axis=turned) if turned else v
    arrays = _by_share(axes, x)
    if not _is_part(axes, x):
        _put_arrays(x, arrays, v)
        return
    part = x
    for i, a in enumerate(axes):
        if a.places is None and a.size != x.shape[i]:
            part = take_range(part, i, a.start, a.size, a.step)
    _put_arrays(part, arrays, v)
    starts, steps = tuple(a.start for a in axes), [a.step if a.size > 1 else 1 for a in axes]
    _slice_update.update(x, part, starts, steps=steps)


def _put_arrays(x: Array, arrays: list[tuple[int, Array]], v: Array) -> None:
    axis, places = arrays[0]
    if len(arrays) == 1:
        _index_put.update(x, v, [places], dim=axis)
        return
    part = _select(x, places, dim=axis)
    _put_arrays(part, arrays[1:], v)
    _index_put.update(x, part, [places], dim=axis)


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
    # index_put takes places of one type: int32, unless arrays or extents are of a wider one.
    extents = all(isinstance(n, int) and n <= iinfo(_core.int32).max for n in x.shape)
    wide = any(hasattr(k, "dtype") and k.dtype in _WIDE for k in parts)
    narrow = _core.int32 if extents and not wide else _core.int64
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
            if isinstance(length, _core.Extent):
                ascending: Any = length
                steps = start + arange(ascending, device=_place(x, None)) * step
            else:
                steps = arange(
                    start, start + length * step, step, dtype=narrow, device=_place(x, None)
                )
            found.append((len(ranges), steps))
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
            f = asarray(f, dtype=narrow, device=_place(x, None))
        else:
            f = reshape(f, [*f.shape, *[1] * (len(ranges) - at)])
        return broadcast_to(f.astype(narrow, copy=False), shape)

    index = [spread(f) for f in found]
    source = [*before, *shape, *behind]
    if together or not before:
        return _Places(dim, index, source, [], source)
    c, b = len(common), len(before)
    order = [*range(c, c + b), *range(c), *range(c + b, len(source))]
    return _Places(dim, index, [*common, *before, *ranges, *behind], order, source)


# Of places: masks have places of int64.
_WIDE = (_core.int64, _core.uint64, _core.uint32, _core.bool)


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
    turned: list[int]  # axes of that shape that it names backwards


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
                block.turned.append(len(block.shape) - 1)
                start, step = start + (length - 1) * step, -step
        block.starts.append(start)
        block.lengths.append(length)
        block.steps.append(step if length > 1 else 1)
    return block
