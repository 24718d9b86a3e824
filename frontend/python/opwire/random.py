"""Random numbers by keys: the same key and site give the same numbers on every device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from . import _core
from ._array import Array, asarray
from ._creation import _at, _shape
from ._dtypes import as_dtype
from ._elementwise import where

_P = ParamSpec("_P")
_uniform, _normal, _sample, _full = (
    _core.Op("uniform"),
    _core.Op("normal"),
    _core.Op("sample"),
    _core.Op("full"),
)


def key(seed: int, *, device: Any = None) -> Array:
    """A key, u64[2], from a seed."""
    return asarray(
        [seed & (2**64 - 1), seed >> 64 & (2**64 - 1)], dtype=_core.uint64, device=device
    )


def _key(given: Any, name: str) -> Array:
    """A key that was given, or a TypeError that says how to make one."""
    if isinstance(given, Array) and given.dtype == _core.uint64 and given.shape == (2,):
        return given
    what = (
        f"{given.dtype.name}{list(given.shape)}"
        if isinstance(given, Array)
        else type(given).__name__
    )
    raise TypeError(
        f"random.{name}: expected a key as the first argument, got {what}: write random.{name}(random.key(0), ...)"
    )


# NumPy's names of arguments.
_OURS = {"size": "shape", "loc": "mean", "scale": "std"}


def _keyed(function: Callable[_P, Array]) -> Callable[_P, Array]:
    """The function, which says what to write to those who call it as they call NumPy's."""
    name, known = function.__name__, set(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> Array:
        if not args and "key" not in kwargs:
            raise TypeError(
                f"random.{name}: expected a key as the first argument, got none: "
                f"write random.{name}(random.key(0), ...)"
            )
        for theirs in kwargs.keys() - known:
            if _OURS.get(theirs) in known:
                raise TypeError(
                    f"random.{name}: expected {_OURS[theirs]}= as the name of the argument, got {theirs}="
                )
        return function(*args, **kwargs)

    return checked


@_keyed
def fold_in(key: Array, data: int | Array) -> Array:
    """Another key, by a number: of a step, say."""
    key = _key(key, "fold_in")
    return key + asarray([0, 1], dtype=_core.uint64, device=None if key.traced else key.device) * (
        data if not isinstance(data, int) else data & (2**64 - 1)
    )


def _like(key: Array, value: float, dtype: _core.dtype) -> Array:
    with _at(None if key.traced else key.device):
        return _full(shape=[], value=float(value), dtype=dtype)


@_keyed
def uniform(
    key: Array,
    shape: Any = (),
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = None,
    site: int = 0,
) -> Array:
    """Numbers in [low, high). site tells apart the uses of one key."""
    key = _key(key, "uniform")
    d = _core.float32 if dtype is None else as_dtype(dtype)
    least, end = _like(key, low, d), _like(key, high, d)
    made: Array = _uniform(key, least, end, shape=_shape(shape), site=site)
    if (low, high) == (0.0, 1.0) and d in (_core.float32, _core.float64):
        return made  # which are below 1
    return where(made == end, least, made)  # what rounding brought there


@_keyed
def normal(
    key: Array,
    shape: Any = (),
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = None,
    site: int = 0,
) -> Array:
    """Normally distributed numbers. site tells apart the uses of one key."""
    key = _key(key, "normal")
    d = _core.float32 if dtype is None else as_dtype(dtype)
    return _normal(key, _like(key, mean, d), _like(key, std, d), shape=_shape(shape), site=site)


@_keyed
def categorical(
    key: Array,
    logits: Array,
    *,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    site: int = 0,
) -> Array:
    """A token of each row of logits [B, V], drawn by softmax(logits / temperature) among the top_k
    largest and those that come to top_p.
    """
    return _sample(logits, _key(key, "categorical"), temperature, top_k, top_p, site=site)
