"""Order, places, sets.

What depends on values in its shape waits for a count, and is not for traced functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from ._dtypes import isdtype, result_type
from ._elementwise import arrays_of, asarray_like
from ._large import call as call_large
from ._manipulation import axis_of, concat, expand_dims, reshape, take_range
from ._reductions import _not_empty, cumulative_sum, flat
from ._reductions import sum as sum_

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_sort, _argsort, _topk, _select, _gather, _argmax, _argmin = (
    Op("sort"),
    Op("argsort"),
    Op("topk"),
    Op("index_select"),
    Op("gather"),
    Op("argmax"),
    Op("argmin"),
)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """In order along an axis; NaN is the largest. Always stable."""
    x = asarray_like(x)
    return _sort.many(x, dim=axis_of(axis, x.ndim), descending=descending)[0]


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places along an axis in the order of sort."""
    x = asarray_like(x)
    return _argsort(x, dim=axis_of(axis, x.ndim), descending=descending)


def topk(x: Array, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) along an axis in order, and their places."""
    x = asarray_like(x)
    values, places = _topk.many(x, k=k, dim=axis_of(axis, x.ndim), largest=largest)
    return values, places


def _place_of(op: _core.Op, x: Array, axis: int | None, keepdims: bool) -> Array:
    x = asarray_like(x)
    if x.dtype == _core.bool:
        x = x.astype(_core.uint8)
    _not_empty(x, axis, "argmax or argmin")
    if axis is None:
        made = op(flat(x), dim=0)
        return reshape(made, (1,) * x.ndim) if keepdims else made
    return op(x, dim=axis_of(axis, x.ndim), keepdim=keepdims)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the largest along an axis, the first of several; a NaN is the largest.

    None: among all, as if flattened.
    """
    return _place_of(_argmax, x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the least along an axis, the first of several; a NaN is the least.

    None: among all, as if flattened.
    """
    return _place_of(_argmin, x, axis, keepdims)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices along an axis that the indices, in [-n, n), name; their shape stands where the
    axis stood.
    """
    x = asarray_like(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: expected an axis for shape {x.shape}")
        axis = 0
    return _select(x, _index(indices, x), dim=axis_of(axis, x.ndim))


def _index(indices: Any, of: Array) -> Array:
    i = asarray_like(indices, of)
    if not isdtype(i.dtype, "integral"):
        raise IndexError(f"expected indices of integers, got {i.dtype}")
    return i if i.dtype in (_core.int64, _core.int32) else i.astype(_core.int64)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Along an axis the element that the index at each place names; other axes broadcast."""
    from ._manipulation import broadcast_shape, broadcast_to

    x = asarray_like(x)
    i = _index(indices, x)
    axis = axis_of(axis, x.ndim)
    rest = broadcast_shape(
        tuple(1 if a == axis else n for a, n in enumerate(x.shape)),
        tuple(1 if a == axis else n for a, n in enumerate(i.shape)),
    )
    x = broadcast_to(x, [x.shape[axis] if a == axis else n for a, n in enumerate(rest)])
    i = broadcast_to(i, [i.shape[axis] if a == axis else n for a, n in enumerate(rest)])
    return _gather(x, i, dim=axis)


def known_count(mask: Array, name: str) -> int:
    """How many hold, waited for."""
    if mask.traced:
        raise TypeError(
            f"{name}: the shape of the result depends on values, which are not known while a function is traced: use where, or do it outside"
        )
    return int(sum_(mask))


def places_of(mask: Array, name: str = "nonzero") -> Array:
    """The places at which a flat mask holds, in order."""
    count = known_count(mask, name)
    return _topk.many(mask, k=count, dim=0)[1]  # which takes equal elements in order


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The places of elements that are not zero: an array an axis."""
    x = asarray_like(x)
    if x.ndim == 0:
        raise ValueError("nonzero: expected an axis at least")
    places = places_of(flat(x) != 0 if x.dtype != _core.bool else flat(x))
    out: list[Array] = []
    for n in reversed(x.shape):
        out.insert(0, places % n if n else places)
        places = places // n if n else places
    return tuple(out)


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """For each element of x2 the index at which it would be inserted into x1, which is sorted:
    before equal elements ("left") or after them ("right").
    """
    if side not in ("left", "right"):
        raise ValueError(f'searchsorted: expected side "left" or "right", got {side!r}')
    a, v = arrays_of(x1, x2)
    if sorter is not None:
        a = take(a, sorter, axis=0)
    d = result_type(a, v)
    a, v = a.astype(d, copy=False), v.astype(d, copy=False)
    # Merge in order: among equals those of x1 come first if side is right. Then count the elements
    # of x1 before each of x2.
    n, m = a.size, v.size
    both = concat([a, flat(v)] if side == "right" else [flat(v), a])
    order = _argsort(both, dim=0)
    is_a = (order < n) if side == "right" else (order >= m)
    before = cumulative_sum(is_a.astype(_core.int64))
    back = _argsort(order, dim=0)
    mine = take_range(back, 0, n, m, 1) if side == "right" else take_range(back, 0, 0, m, 1)
    return reshape(_select(before, mine, dim=0), v.shape)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is among x2's."""
    made: Array = call_large(_isin, *arrays_of(x1, x2))
    return ~made if invert else made


def _isin(a: Array, b: Array) -> Array:
    from ._reductions import any as any_

    b = flat(b)
    d = result_type(a, b)
    found = expand_dims(a.astype(d, copy=False), axis=a.ndim) == b.astype(d, copy=False)
    return any_(found, axis=-1)


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    """The distinct elements in order, the index of the first of each, the inverse index of each
    element, and the counts.

    NaNs differ from one another.
    """
    from ._creation import ones

    x = asarray_like(x)
    f = flat(x)
    n = f.size
    values, order = _sort.many(f, dim=0)
    if n == 0:
        return UniqueAll(values, order, reshape(order, x.shape), order)
    new = concat(
        [
            ones((1,), dtype=_core.bool, device=x.device),
            take_range(values, 0, 1, n - 1, 1) != take_range(values, 0, 0, n - 1, 1),
        ]
    )
    starts = places_of(new, "unique")
    rank = cumulative_sum(new.astype(_core.int64)) - 1
    inverse = _select(rank, _argsort(order, dim=0), dim=0)
    ends = concat([take_range(starts, 0, 1, starts.size - 1, 1), asarray_like([n], x)])
    return UniqueAll(
        _select(values, starts, dim=0),
        _select(order, starts, dim=0),
        reshape(inverse, x.shape),
        ends - starts,
    )


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements in order, and how often each is there."""
    u = unique_all(x)
    return UniqueCounts(u.values, u.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements in order, and which of them each element is."""
    u = unique_all(x)
    return UniqueInverse(u.values, u.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """The different elements in order."""
    return unique_all(x).values
