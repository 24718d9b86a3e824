"""The array: a tensor on a device, or while a function is traced a value of it."""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._dtypes import BLOCKS, NOT_NUMPYS, as_dtype, astype, host_bytes, iinfo, isdtype, numpy_dtype
from ._large import BYTES, compiled
from ._tables import checked_name

if TYPE_CHECKING:
    from ._client import Device

Op = _core.Op
_copy, _not, _full, _sum = Op("copy"), Op("bitwise_not"), Op("full"), Op("sum")


class Array(_core.Array):
    """A dense array on a device, or a value of a function that is being traced.

    Ops on it are queued and sent together; they run while Python continues. np.asarray, float, int,
    bool and print wait for its value. Arrays are values: x[i] = v and x += v make x another array,
    and no other array changes.
    """

    __slots__ = ()
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    # ---- What it is

    @property
    def device(self) -> Device:
        """Where it lies; of a traced value where the function would run by default."""
        from ._client import device, device_of

        return device() if self.traced else device_of(self.session)

    @property
    def itemsize(self) -> int:
        """Bytes of an element. TypeError for an array of blocks."""
        return int(self.dtype.itemsize)

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ValueError(
                f"T: expected two axes, got shape {self.shape}: see permute_dims and mT"
            )
        return Op("permute")(self, dims=[1, 0])

    @property
    def mT(self) -> Array:
        """Its last two axes swapped."""
        from ._products import matrix_transpose

        return matrix_transpose(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"this namespace is the Array API's of 2024.12, not of {api_version}")
        import opwire

        return opwire

    # ---- Its value

    def _bytes(self) -> Any:
        return _core.fetch(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = np.ndarray(self.shape, numpy_dtype(self.dtype), self._bytes())
        if dtype is not None and np.dtype(dtype) != made.dtype:
            if copy is False:
                raise ValueError(
                    f"an array of {self.dtype.name} is one of {np.dtype(dtype)} as a copy only"
                )
            return made.astype(dtype)
        return made.copy() if copy and not made.flags.writeable else made

    def numpy(self) -> np.ndarray[Any, Any]:
        """Its value as NumPy's array.

        A large one is read-only, in memory that is shared with the executor.
        """
        return self.__array__()

    async def fetch(self) -> np.ndarray[Any, Any]:
        """Its value, while the event loop continues.

        After a cancellation nothing waits for the value; queued work still runs.
        """
        wait = _core.Wait()

        def value() -> np.ndarray[Any, Any]:
            with wait:
                return self.numpy()

        try:
            return await asyncio.get_running_loop().run_in_executor(None, value)
        except asyncio.CancelledError:
            wait.leave()
            raise

    def item(self) -> bool | int | float:
        """The only element as Python's number."""
        if self.size != 1:
            raise TypeError(f"expected an array of one element, got shape {self.shape}")
        value = self if self.dtype.name not in NOT_NUMPYS else self.astype(_core.float32)
        number: bool | int | float = np.frombuffer(value._bytes(), numpy_dtype(value.dtype))[
            0
        ].item()
        return number

    def tolist(self) -> Any:
        """Its elements as nested lists."""
        return (
            (self if self.dtype.name not in NOT_NUMPYS else self.astype(_core.float32))
            .numpy()
            .tolist()
        )

    def _scalar(self, what: str) -> bool | int | float:
        if self.traced:
            raise TypeError(
                f"{what} of a traced array: its value is not known while its function is traced. For branches use where or cond, for loops for_loop or while_loop; "
                "an argument that decides what is traced is named in static_argnames"
            )
        if self.ndim != 0 and self.size != 1:
            raise TypeError(f"{what}: expected an array of one element, got shape {self.shape}")
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __index__(self) -> int:
        if self.ndim != 0 or not isdtype(self.dtype, "integral"):
            raise TypeError(f"expected a 0-d array of integers, got {self.dtype}{list(self.shape)}")
        return int(self._scalar("index"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("a 0-d array cannot be iterated")
        return iter([self[i] for i in range(self.shape[0])])

    def __format__(self, spec: str) -> str:
        return (
            format(self.item(), spec)
            if spec and self.shape == () and not self.traced
            else super().__format__(spec)
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an array on a device is not pickled: pickle numpy.asarray(x), and make an array of that "
            "by opwire.asarray"
        )

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """NumPy's functions: what asks for the shape works, others are a TypeError with advice."""
        if function in (np.shape, np.ndim, np.size) and isinstance(args[0], Array):
            x = args[0]
            return {np.shape: x.shape, np.ndim: x.ndim, np.size: x.size}[function]
        module = "numpy.linalg" if function in _LINALG else function.__module__
        raise _refusal(f"{module}.{function.__name__}", module.removeprefix("numpy"))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Operators after NumPy's arrays and numbers are ours; NumPy's functions are a TypeError
        with advice.
        """
        numpys = getattr(np, ufunc.__name__, None) is ufunc  # SciPy has some, too
        if method != "__call__" or kwargs or not numpys or ufunc.__name__ not in _OPERATORS:
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise _refusal(f"numpy.{name}" if numpys else name)
        ours, reversed_ours = _OPERATORS[ufunc.__name__]
        a, b = inputs
        # NumPy makes arrays of its float64 numbers before it compares them.
        a = a[()] if isinstance(a, np.ndarray) and ufunc.__name__ in _COMPARISONS else a
        return getattr(a, ours)(b) if isinstance(a, Array) else getattr(b, reversed_ours)(a)

    def __copy__(self) -> Array:
        return _copy(self)

    def __deepcopy__(self, memo: Any) -> Array:
        return _copy(self)

    def __repr__(self) -> str:
        if self.traced:
            return f"<traced {self.dtype.name}{list(self.shape)}>"
        if not self.valid:
            return f"<given away: {self.dtype.name}{list(self.shape)}>"
        if self.dtype in BLOCKS:
            return f"Array(<{self.nbytes:,} bytes of blocks>, shape={self.shape}, dtype={self.dtype.name}, device={self.device})"
        value = self if self.dtype.name not in NOT_NUMPYS else self.astype(_core.float32)
        shown = np.array2string(np.asarray(value), separator=", ", prefix="Array(")
        return f"Array({shown}, dtype={self.dtype.name}, device={self.device})"

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        if copy is False:
            raise BufferError("an array is handed over as a copy in this process")
        if dl_device not in (None, (1, 0)):
            raise BufferError(
                f"an array is handed over in the host's memory, (1, 0), not in {dl_device}"
            )
        if self.dtype.name not in NOT_NUMPYS:
            return np.array(self).__dlpack__()
        bits = np.frombuffer(self._bytes(), NOT_NUMPYS[self.dtype.name]).reshape(self.shape).copy()
        return _core.to_dlpack(bits, self.dtype).__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array on another device, sent through this process. Without a transfer, the array
        itself.
        """
        from ._client import device as find

        to = find(device)
        if self.traced or to.session is self.session:
            return self
        return _core.put(to.session, self.dtype, list(self.shape), self._bytes())

    def grant(self, session: str = "", *, principal: str = "", name: str = "") -> str:
        """Shares the array, as it is now, with other sessions on its device: read-only, and without
        a copy.

        Returns a text, by which the sessions that it is granted to take it.

        session: the only one that may take it, which need not exist yet; empty: every session of
        the principal.
        principal: whose sessions may take it, by the name that `opwire sessions` shows ("uid:1001",
        "key:ada"); empty: this user's.
        name: for Client.take(name, session=...); empty: the array's name in the store.

        The shared value stays as long as a session has it, even if this array changes or ends.
        PermissionError for an array that was itself taken: only its owner grants it.
        """
        for what, given in (("session", session), ("principal", principal), ("name", name)):
            checked_name(given, f"grant: {what}")
        return self.session.grant(self, session, principal, name or self.stored)

    # ---- Operators that are not the module's own

    def __neg__(self) -> Array:
        from ._elementwise import negative

        return negative(self)

    def __pos__(self) -> Array:
        return _copy(self)

    def __invert__(self) -> Array:
        return _not(self)

    def __abs__(self) -> Array:
        from ._elementwise import abs as magnitude

        return magnitude(self)

    def __truediv__(self, other: Any) -> Array:
        from ._elementwise import divide

        return divide(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        from ._elementwise import divide

        return divide(other, self)

    def __floordiv__(self, other: Any) -> Array:
        from ._elementwise import floor_divide

        return floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Array:
        from ._elementwise import floor_divide

        return floor_divide(other, self)

    def __mod__(self, other: Any) -> Array:
        from ._elementwise import remainder

        return remainder(self, other)

    def __rmod__(self, other: Any) -> Array:
        from ._elementwise import remainder

        return remainder(other, self)

    def __pow__(self, other: Any) -> Array:
        if type(other) is int and other == 2 and self.dtype != _core.bool:
            return self * self
        return super().__pow__(other)

    def __lshift__(self, other: Any) -> Array:
        from ._elementwise import bitwise_left_shift

        return bitwise_left_shift(self, other)

    def __rlshift__(self, other: Any) -> Array:
        from ._elementwise import bitwise_left_shift

        return bitwise_left_shift(other, self)

    def __rshift__(self, other: Any) -> Array:
        from ._elementwise import bitwise_right_shift

        return bitwise_right_shift(self, other)

    def __rrshift__(self, other: Any) -> Array:
        from ._elementwise import bitwise_right_shift

        return bitwise_right_shift(other, self)

    def __matmul__(self, other: Any) -> Array:
        from ._products import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        from ._products import matmul

        return matmul(other, self)

    # ---- Elements

    def __getitem__(self, key: Any) -> Array:
        from ._indexing import get

        return get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        from ._indexing import assign

        assign(self, key, value)

    # ---- Functions as methods

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Array:
        """As another element type; see opwire.astype."""
        return astype(self, dtype, copy=copy)

    def reshape(self, *shape: Any) -> Array:
        """The same elements in another shape. One extent may be -1: it is computed."""
        from ._manipulation import reshape

        return reshape(
            self,
            shape[0]
            if len(shape) == 1 and not isinstance(shape[0], (int, _core.Extent))
            else shape,
        )

    def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
        """See opwire.sum."""
        from ._reductions import sum

        return sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        """See opwire.mean."""
        from ._reductions import mean

        return mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        """See opwire.max."""
        from ._reductions import max

        return max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        """See opwire.min."""
        from ._reductions import min

        return min(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        """See opwire.argmax."""
        from ._searching import argmax

        return argmax(self, axis=axis, keepdims=keepdims)


_core.set_array_class(Array)


def _compared(op: str, x: Array, other: Any) -> Array | None:
    """The comparison with a large array, without a converted copy of it. None if the operator itself
    stores no copy either.
    """
    dense = x.valid and x.dtype not in BLOCKS
    given = other
    if dense and isinstance(other, np.integer) and _core.promote(x.dtype, as_dtype(other.dtype)):
        other = int(other)
    whole = x.dtype == _core.bool or isdtype(x.dtype, "integral")
    if dense and whole and isinstance(other, int) and not isinstance(other, bool):
        low, high = (0, 1) if x.dtype == _core.bool else (iinfo(x.dtype).min, iinfo(x.dtype).max)
        if not low <= other <= high:  # so all elements compare alike
            from ._creation import full_like

            return full_like(x, getattr(operator, op)(0, other), dtype=_core.bool)
        other = bool(other) if x.dtype == _core.bool else other
    elif dense and (
        (whole and isinstance(other, float))
        or (isinstance(other, Array) and other.valid and other.dtype != x.dtype)
    ):
        made: Array = compiled(_two, "op")(x, other, op=op)
        return made
    if other is given:
        return None
    plain: Array = getattr(x, f"__{op}__")(other)  # which comes here again, with a number that fits
    return plain


def _two(x: Any, y: Any, op: str) -> Array:
    return Op(op).two(x, y)


_core.set_large_comparison(_compared, BYTES)


# Functions that NumPy calls otherwise.
_OURS = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    **{f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    "around": "round",
    "conjugate": "conj",
    "fabs": "abs",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "array_split": "split",
    "concatenate": "concat",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "invert": "bitwise_invert",
    "norm": "vector_norm",
    "rint": "round",
    "transpose": "permute_dims",
}
_LINALG = {getattr(np.linalg, name) for name in np.linalg.__all__}
_COMPARISONS = {
    "equal": ("__eq__", "__eq__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "not_equal": ("__ne__", "__ne__"),
}
# NumPy's functions that are operators, and whose methods those are: of an array before it, and after.
_OPERATORS = {
    **{
        name: (f"__{short}__", f"__r{short}__")
        for name, short in {
            "add": "add",
            "bitwise_and": "and",
            "bitwise_or": "or",
            "bitwise_xor": "xor",
            "divide": "truediv",
            "floor_divide": "floordiv",
            "left_shift": "lshift",
            "matmul": "matmul",
            "multiply": "mul",
            "power": "pow",
            "remainder": "mod",
            "right_shift": "rshift",
            "subtract": "sub",
            "true_divide": "truediv",
        }.items()
    },
    **_COMPARISONS,
}


def _refusal(theirs: str, place: str = "") -> TypeError:
    """What a function of NumPy or SciPy raises: theirs, "numpy.linalg.norm", of the module place, ".linalg".

    Only NumPy's main module, "", and its linalg have functions here.
    """
    import opwire

    name = theirs.rpartition(".")[2]
    ours = _OURS.get(name, name)
    there = {"": opwire, ".linalg": opwire.linalg}.get(place)
    advice = "" if there is None or ours not in there.__all__ else f"opwire{place}.{ours}, or "
    return TypeError(
        f"{theirs} of an array on a device: write {advice}{theirs} of numpy.asarray(x), which fetches it"
    )


def _of_host(value: np.ndarray[Any, Any], dtype: _core.dtype, device: Any) -> Array:
    if dtype.name not in NOT_NUMPYS:
        value = value.astype(numpy_dtype(dtype), copy=False)
    elif (
        value.dtype.name != dtype.name
    ):  # rounded once, on the device: NumPy need not know the type
        wide = (
            _core.float64
            if value.dtype.itemsize > 2 and value.dtype != np.float32
            else _core.float32
        )
        return _of_host(np.asarray(value, numpy_dtype(wide)), wide, device).astype(dtype)
    return _of_bytes(host_bytes(value), dtype, value.shape, device)


def _of_bytes(
    plain: np.ndarray[Any, Any], dtype: _core.dtype, shape: tuple[int, ...], device: Any
) -> Array:
    """An array of the bytes of `plain`, which is contiguous and of any type and shape."""
    from ._client import device as find

    trace = _core.Trace.current()
    if trace is not None:
        return trace.constant(dtype, list(shape), plain.tobytes())
    return _core.put(find(device).session, dtype, list(shape), plain)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array of what NumPy makes one of, of a number, or of an array.

    Python's numbers become float32, int64 or bool; NumPy's arrays keep their type. copy: True,
    always another array; None, if needed; False, never (ValueError if a copy is needed).
    """
    d = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Array):
        made = obj if device is None else obj.to_device(device)
        if d is not None and d != obj.dtype:
            if copy is False:
                raise ValueError(f"asarray: {obj.dtype} cannot become {d} without a copy")
            return made.astype(d)
        return _copy(made) if copy and made is obj else made
    if copy is False:
        raise ValueError("asarray: memory of this process cannot be a device's without a copy")
    if isinstance(obj, _core.Extent):
        return _count(obj, d or _core.int64)
    if isinstance(obj, (list, tuple)) and _has_arrays(obj):
        from ._manipulation import stack

        made = stack([asarray(e, device=device) for e in obj])
        return made if d is None else made.astype(d, copy=False)
    # NumPy raises for Python's numbers that the type cannot hold; the elements of arrays wrap around.
    value = (
        np.asarray(obj)
        if d is None or d.name in NOT_NUMPYS or hasattr(obj, "dtype")
        else np.asarray(obj, numpy_dtype(d))
    )
    if d is None:
        if value.dtype.kind == "f" and not hasattr(obj, "dtype"):
            d = _core.float32
        elif value.dtype.kind in "iu" and not hasattr(obj, "dtype"):
            d = _core.int64 if value.dtype != np.uint64 else _core.uint64
        else:
            if value.dtype.kind == "O" and all(isinstance(e, int) for e in value.flat):
                raise OverflowError(
                    f"asarray: {next(e for e in value.flat if not -(2**63) <= e < 2**64)} is out of bounds for int64"
                )
            if value.dtype.kind in "OSUMmVc" and value.dtype.name not in NOT_NUMPYS:
                raise TypeError(
                    f"asarray: there are no arrays of {value.dtype} elements"
                    + (", complex numbers are left out" if value.dtype.kind == "c" else "")
                )
            d = as_dtype(value.dtype)
    return _of_host(value, d, device)


def _count(extent: _core.Extent, dtype: _core.dtype) -> Array:
    """An extent's value, where the function runs.

    OverflowError where the type does not hold it, as of a number.
    """
    if isdtype(dtype, "integral"):
        if not extent <= iinfo(dtype).max:
            raise OverflowError(
                f"an extent is out of bounds for {dtype.name}: it is above {iinfo(dtype).max}"
            )
        if not extent >= iinfo(dtype).min:
            raise OverflowError(
                f"an extent is out of bounds for {dtype.name}: it is below {iinfo(dtype).min}"
            )
    return astype(_value(extent), dtype, copy=False)


def _value(extent: _core.Extent) -> Array:
    """The value of an expression as an int64[].

    Only symbols are extents of tensors here: an expression may be negative, or larger than any tensor.
    """
    from ._elementwise import maximum, minimum

    parts = extent.parts()
    if parts is None:
        return _sum(_full(shape=[extent], value=1.0, dtype=_core.int64), dims=[0])
    name, *operands = parts
    combine = {"minimum": minimum, "maximum": maximum}.get(name) or getattr(operator, name)
    a, b = (e if isinstance(e, int) else _value(e) for e in operands)
    made: Array = combine(a, b)
    return made


def _has_arrays(nested: Any) -> bool:
    return any(
        isinstance(e, Array) or (isinstance(e, (list, tuple)) and _has_arrays(e)) for e in nested
    )


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of any that speaks DLPack; its elements are copied to the device."""
    if isinstance(x, Array):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise ValueError("from_dlpack: memory of this process cannot be a device's without a copy")
    try:
        value = np.from_dlpack(x)
    except (BufferError, RuntimeError):
        narrow = _core.from_dlpack(x.__dlpack__())  # of a type that NumPy lacks
        if narrow is None:
            raise
        dtype, bits = narrow
        return _of_bytes(np.ascontiguousarray(bits), dtype, bits.shape, device)
    return asarray(value, device=device)


def _converter(foreign: Any, like: Array) -> Any:
    """The other operand of an operator as an array, if NumPy knows its type."""
    if isinstance(foreign, (np.ndarray, np.generic)):
        if foreign.ndim == 0 and foreign.dtype.kind in "bifu":
            return asarray(foreign, dtype=None, device=None if like.traced else like.device)
        return asarray(foreign, device=None if like.traced else like.device)
    if isinstance(foreign, _core.Extent):
        return _count(foreign, _core.int64 if like.dtype == _core.bool else like.dtype)
    if isinstance(foreign, (list, tuple)):  # which == would find unequal, without a word
        raise TypeError(
            f"expected arrays and numbers, got a {type(foreign).__name__} beside an array: see asarray"
        )
    return NotImplemented


_core.set_converter(_converter)
