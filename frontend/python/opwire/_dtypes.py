"""Element types: what they are, what two make together, how NumPy calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core

if TYPE_CHECKING:
    from ._array import Array
    from ._client import Device

dtype = _core.dtype
_copy = _core.Op("copy")

FLOATS = (_core.float64, _core.float32, _core.float16, _core.bfloat16)
SIGNED = (_core.int8, _core.int16, _core.int32, _core.int64)
UNSIGNED = (_core.uint8, _core.uint16, _core.uint32, _core.uint64)
INTEGERS = SIGNED + UNSIGNED
ALL = (_core.bool, *INTEGERS, *FLOATS, _core.float8_e4m3fn, _core.float8_e5m2)
BLOCKS = (_core.q4_0, _core.q4_1, _core.q8_0, _core.q6_k)  # of weights in GGUF files
_BY_NAME = {d.name: d for d in ALL}
# Types that NumPy lacks, and NumPy types of the same size for their bits.
NOT_NUMPYS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
_NUMPYS = {d: np.dtype(d.name) for d in ALL if d.name not in NOT_NUMPYS}


def _dtype_named(name: str) -> dtype:
    """The type of this name, for unpickling."""
    return _BY_NAME[name] if name in _BY_NAME else next(d for d in BLOCKS if d.name == name)


def as_dtype(given: Any) -> dtype:
    """An element type from one, from its name, or from NumPy's."""
    if isinstance(given, dtype):
        return given
    if given is float:
        return _core.float32
    if given is int:
        return _core.int64
    if given is bool:
        return _core.bool
    name = given if isinstance(given, str) else np.dtype(given).name
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise TypeError(f"there is no element type {given!r}: expected one of {', '.join(_BY_NAME)}")


def numpy_dtype(d: dtype) -> np.dtype[Any]:
    """NumPy's type for it; for bfloat16 and float8, that of ml_dtypes.

    TypeError if ml_dtypes is not installed.
    """
    known = _NUMPYS.get(d)
    if known is not None:
        return known
    if d in BLOCKS:
        raise TypeError(f"NumPy has no {d.name}: dequantize_blocks gives the elements of blocks")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"NumPy has no {d.name}: install ml_dtypes, or convert by astype(opwire.float32)"
        ) from None
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, d.name))
    return made


def host_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array such that it has a buffer: NumPy gives none for types that it does not know."""
    contiguous = np.ascontiguousarray(array)
    return (
        contiguous.view(NOT_NUMPYS[array.dtype.name])
        if array.dtype.name in NOT_NUMPYS
        else contiguous
    )


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """x with another element type: float to int truncates, saturates, and makes NaN 0; int to
    narrower int wraps.
    """
    from ._elementwise import asarray_like

    x = asarray_like(x)
    d = as_dtype(dtype)
    made = x if x.dtype == d and not copy else _copy(x) if x.dtype == d else _core.cast(x, d)
    return made if device is None else made.to_device(device)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether the promotion of both is `to`."""
    d = as_dtype(to)
    return (
        _core.promote(
            from_.dtype
            if hasattr(from_, "dtype") and not isinstance(from_, dtype)
            else as_dtype(from_),
            d,
        )
        == d
    )


def _kinds() -> dict[str, tuple[dtype, ...]]:
    real = tuple(d for d in ALL if d not in INTEGERS and d != _core.bool)
    return {
        "bool": (_core.bool,),
        "signed integer": SIGNED,
        "unsigned integer": UNSIGNED,
        "integral": INTEGERS,
        "real floating": real,
        "complex floating": (),
        "numeric": INTEGERS + real,
    }


def isdtype(dtype: _core.dtype, kind: str | _core.dtype | tuple[str | _core.dtype, ...]) -> bool:
    """Whether a type is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real
    floating", "complex floating", "numeric", a type, or one of a tuple of these.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, _core.dtype):
        return dtype == kind
    kinds = _kinds()
    if kind not in kinds:
        raise ValueError(
            f"expected a kind of element types, one of {', '.join(kinds)}; got {kind!r}"
        )
    return dtype in kinds[kind]


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The type of a result of these arrays, types and numbers.

    A number takes the type of the arrays if that can hold its kind.
    """
    known: dtype | None = None
    numbers: list[Any] = []
    for a in arrays_and_dtypes:
        if isinstance(a, (bool, int, float)):
            numbers.append(a)
            continue
        if isinstance(a, _core.Array) and a.weak:  # a number that the traced function was given
            numbers.append(True if a.dtype == _core.bool else 1.0 if a.dtype in FLOATS else 1)
            continue
        d = a.dtype if hasattr(a, "dtype") and not isinstance(a, dtype) else as_dtype(a)
        d = as_dtype(d)
        both = d if known is None else _core.promote(known, d)
        if both is None:
            raise TypeError(f"{known} and {d} have no common type")
        known = both
    if known is None:
        if not numbers:
            raise ValueError("result_type: expected an array, a type or a number")
        return (
            _core.float32
            if any(isinstance(n, float) for n in numbers)
            else _core.bool
            if all(isinstance(n, bool) for n in numbers)
            else _core.int64
        )
    for n in numbers:
        if isinstance(n, float) and not isdtype(known, "real floating"):
            known = _core.float32
        elif not isinstance(n, bool) and known == _core.bool:
            known = _core.int64
    return known


@dataclass(frozen=True)
class finfo_object:
    """A floating type: bits of an element, the distance from 1 to the next number, the finite
    range, the least positive normal number."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: _core.dtype


@dataclass(frozen=True)
class iinfo_object:
    """An integer type: bits of an element, its range."""

    bits: int
    max: int
    min: int
    dtype: _core.dtype


_FINFO = {
    "bfloat16": (16, 2.0**-7, 3.3895313892515355e38, 2.0**-126),
    "float8_e4m3fn": (8, 0.125, 448.0, 2.0**-6),
    "float8_e5m2": (8, 0.25, 57344.0, 2.0**-14),
}


def finfo(type: Any, /) -> finfo_object:
    """The limits of a floating type, or of an array's."""
    d = as_dtype(type.dtype if hasattr(type, "dtype") else type)
    if not isdtype(d, "real floating"):
        raise TypeError(f"finfo: expected a floating type, got {d}")
    if d.name in _FINFO:
        bits, eps, most, least = _FINFO[d.name]
        return finfo_object(bits, eps, most, -most, least, d)
    f = np.finfo(d.name)
    return finfo_object(
        f.bits, float(f.eps), float(f.max), float(f.min), float(f.smallest_normal), d
    )


def iinfo(type: Any, /) -> iinfo_object:
    """The limits of an integer type, or of an array's."""
    d = as_dtype(type.dtype if hasattr(type, "dtype") else type)
    if d not in INTEGERS:
        raise TypeError(f"iinfo: expected an integer type, got {d}")
    i = np.iinfo(d.name)
    return iinfo_object(i.bits, int(i.max), int(i.min), d)


class __array_namespace_info__:
    """What this namespace has: capabilities, default types, types, devices."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self) -> Device:
        from ._client import device

        return device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        return {
            "real floating": _core.float32,
            "complex floating": _core.float32,
            "integral": _core.int64,
            "indexing": _core.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dtype]:
        return {
            d.name: d
            for d in ALL
            if d.name not in NOT_NUMPYS
            and d.name != "float16"
            and (kind is None or isdtype(d, kind))
        }

    def devices(self) -> list[Device]:
        from ._client import devices

        return devices()
