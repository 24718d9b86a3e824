"""Functions of one element, or of two at the same place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core
from ._dtypes import INTEGERS, isdtype, result_type

if TYPE_CHECKING:
    from ._array import Array

Number = bool | int | float
_NUMBERS = (bool, int, float)
Op = _core.Op
_abs, _neg, _not = Op("abs"), Op("neg"), Op("bitwise_not")
_div, _fmod, _pow = Op("div"), Op("fmod"), Op("pow")
_where, _hypot, _logaddexp = Op("where"), Op("hypot"), Op("logaddexp")
_copy, _sign, _isnan, _isinf, _atan2, _bitwise_left_shift, _bitwise_right_shift = (
    _core.Op("copy"),
    _core.Op("sign"),
    _core.Op("isnan"),
    _core.Op("isinf"),
    _core.Op("atan2"),
    _core.Op("bitwise_left_shift"),
    _core.Op("bitwise_right_shift"),
)


def asarray_like(x: Any, like: Array | None = None) -> Array:
    """x as an array; if it is not one yet, on the device of `like`."""
    from ._array import Array, asarray

    if isinstance(x, Array):
        return x
    return asarray(x, device=None if like is None or like.traced else like.device)


def arrays_of(x1: Any, x2: Any) -> tuple[Array, Array]:
    """Both as arrays, on the device of the one that is an array.

    A number takes the type that it has in an operator.
    """
    from ._array import asarray

    # An extent is a number, too, but one that only traced functions know.
    if isinstance(x1, _core.Extent) and isinstance(x2, _core.Array):
        return asarray(x1, dtype=_type_of_extent(x2)), asarray_like(x2)
    if isinstance(x2, _core.Extent) and isinstance(x1, _core.Array):
        return asarray_like(x1), asarray(x2, dtype=_type_of_extent(x1))
    if isinstance(x1, _NUMBERS) and not isinstance(x2, _NUMBERS):
        b = asarray_like(x2)
        return asarray(x1, dtype=result_type(x1, b), device=None if b.traced else b.device), b
    a = asarray_like(x1, x2 if hasattr(x2, "traced") else None)
    if isinstance(x2, _NUMBERS):
        return a, asarray(x2, dtype=result_type(a, x2), device=None if a.traced else a.device)
    return a, asarray_like(x2, a)


def _type_of_extent(beside: _core.Array) -> _core.dtype:
    return _core.int64 if beside.dtype == _core.bool else beside.dtype


def _float(x: Any, name: str) -> Array:
    a = asarray_like(x)
    if not isdtype(a.dtype, "real floating"):
        raise TypeError(f"{name}: expected floating elements, got {a.dtype}: convert by astype")
    return a


def _unary(
    op: str, name: str, doc: str, *, same_for_integers: bool = False
) -> Callable[[Array], Array]:
    row = Op(op)

    def function(x: Array, /) -> Array:
        x = asarray_like(x)
        if same_for_integers and x.dtype in INTEGERS:
            return _copy(x)
        return row(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _binary(op: str, name: str, doc: str) -> Callable[[Array | Number, Array | Number], Array]:
    two = Op(op).two

    def function(x1: Array | Number, x2: Array | Number, /) -> Array:
        return two(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _comparison(op: str, name: str, doc: str) -> Callable[[Array | Number, Array | Number], Array]:
    two = Op(op).two
    reverse = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)

    def function(x1: Array | Number, x2: Array | Number, /) -> Array:
        # As the operators do it, which store no converted copy of a large array.
        for x, other, of in ((x1, x2, op), (x2, x1, reverse)):
            if isinstance(x, _core.Array) and not x.traced:
                made: Array = getattr(x, f"__{of}__")(other)
                if made is not NotImplemented:
                    return made
        return two(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


ceil = _unary(
    "ceil", "ceil", "The least whole number that is not below each element.", same_for_integers=True
)
floor = _unary(
    "floor",
    "floor",
    "The largest whole number that is not above each element.",
    same_for_integers=True,
)
round = _unary(
    "round", "round", "The nearest whole number, halves to even.", same_for_integers=True
)
trunc = _unary("trunc", "trunc", "Each element without its fraction.", same_for_integers=True)
cos = _unary("cos", "cos", "The cosine of radians.")
sin = _unary("sin", "sin", "The sine of radians.")
tan = _unary("tan", "tan", "The tangent of radians.")
tanh = _unary("tanh", "tanh", "The hyperbolic tangent.")
exp = _unary("exp", "exp", "e to the power of each element.")
expm1 = _unary("expm1", "expm1", "exp(x) - 1, accurate near 0.")
log = _unary("log", "log", "The natural logarithm; NaN below 0.")
log1p = _unary("log1p", "log1p", "log(1 + x), accurate near 0.")
log2 = _unary("log2", "log2", "The logarithm to base 2, exact at powers of 2; NaN below 0.")
log10 = _unary("log10", "log10", "The logarithm to base 10, exact at powers of 10; NaN below 0.")
sqrt = _unary("sqrt", "sqrt", "The square root; NaN below 0.")
rsqrt = _unary("rsqrt", "rsqrt", "1 / sqrt(x).")
reciprocal = _unary("reciprocal", "reciprocal", "1 / x.")
erf = _unary("erf", "erf", "The error function.")
asin = _unary("asin", "asin", "The angle in [-pi/2, pi/2] whose sine is x; NaN beyond [-1, 1].")
acos = _unary("acos", "acos", "The angle in [0, pi] whose cosine is x; NaN beyond [-1, 1].")
sinh = _unary("sinh", "sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "cosh", "The hyperbolic cosine.")
asinh = _unary("asinh", "asinh", "The number whose hyperbolic sine is x.")
acosh = _unary(
    "acosh", "acosh", "The number not below 0 whose hyperbolic cosine is x; NaN below 1."
)
atanh = _unary("atanh", "atanh", "The number whose hyperbolic tangent is x; NaN beyond [-1, 1].")
bitwise_invert = _unary(
    "bitwise_not", "bitwise_invert", "Each bit inverted; of bools their negation."
)

add = _binary("add", "add", "x1 + x2.")
subtract = _binary("sub", "subtract", "x1 - x2.")
multiply = _binary("mul", "multiply", "x1 * x2.")
maximum = _binary("maximum", "maximum", "The larger one; NaN if either is NaN.")
minimum = _binary("minimum", "minimum", "The smaller one; NaN if either is NaN.")
equal = _comparison("eq", "equal", "Whether x1 == x2.")
not_equal = _comparison("ne", "not_equal", "Whether x1 != x2.")
less = _comparison("lt", "less", "Whether x1 < x2.")
less_equal = _comparison("le", "less_equal", "Whether x1 <= x2.")
greater = _comparison("gt", "greater", "Whether x1 > x2.")
greater_equal = _comparison("ge", "greater_equal", "Whether x1 >= x2.")
bitwise_and = _binary("bitwise_and", "bitwise_and", "The bits that both have.")
bitwise_or = _binary("bitwise_or", "bitwise_or", "The bits that either has.")
bitwise_xor = _binary("bitwise_xor", "bitwise_xor", "The bits that one of them has.")


def _whole(x: Array) -> Array:
    """True or False that a traced function was given as an integer, as Python computes with it."""
    return _cast(x, _core.int64) if x.weak and x.dtype == _core.bool else x


def _cast(x: Array, dtype: Any) -> Array:
    """As another type; a number that a traced function was given stays one."""
    y = x.astype(dtype)
    y.weak = x.weak
    return y


def _as_given(y: Array, *of: Any) -> Array:
    """y, which is a number where it was made of numbers alone, some of which a traced function was given."""
    y.weak = y.traced and all(
        isinstance(x, _NUMBERS) or (isinstance(x, _core.Array) and x.weak) for x in of
    )
    return y


def widened(x: Array) -> Array:
    """As what several ops in a row compute in, whose result is rounded once: narrow floats as float32."""
    narrow = isdtype(x.dtype, "real floating") and x.dtype.itemsize < 4
    return _cast(x, _core.float32) if narrow else x


def abs(x: Array, /) -> Array:
    """The magnitude."""
    x = _whole(asarray_like(x))
    return _copy(x) if isdtype(x.dtype, "unsigned integer") else _abs(x)


def negative(x: Array, /) -> Array:
    """-x; integers wrap."""
    x = _whole(asarray_like(x))
    return 0 - x if isdtype(x.dtype, "unsigned integer") else _neg(x)


def conj(x: Array, /) -> Array:
    """x itself, as another array: there are no complex numbers."""
    return _copy(asarray_like(x))


def positive(x: Array, /) -> Array:
    """x itself, as another array."""
    return _copy(asarray_like(x))


def square(x: Array, /) -> Array:
    """x * x."""
    x = asarray_like(x)
    return x * x


def sign(x: Array, /) -> Array:
    """-1, 0 or 1; NaN stays NaN."""
    x = asarray_like(x)
    return (x != 0).astype(x.dtype) if isdtype(x.dtype, "unsigned integer") else _sign(x)


def isnan(x: Array, /) -> Array:
    """Whether each element is NaN."""
    x = asarray_like(x)
    return _isnan(x) if isdtype(x.dtype, "real floating") else x != x


def isinf(x: Array, /) -> Array:
    """Whether each element is infinite."""
    x = asarray_like(x)
    return _isinf(x) if isdtype(x.dtype, "real floating") else x != x


def isfinite(x: Array, /) -> Array:
    """Whether each element is neither infinite nor NaN."""
    x = asarray_like(x)
    return abs(x) < math.inf if isdtype(x.dtype, "real floating") else x == x


def signbit(x: Array, /) -> Array:
    """Whether the sign is negative, of -0 too; a NaN counts as positive."""
    x = _float(x, "signbit")
    return (x < 0) | ((x == 0) & (reciprocal(x) < 0))


def copysign(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The magnitude of x1 with the sign of x2; a NaN's counts as positive."""
    a, b = _both(x1, x2, "copysign")
    return where(signbit(b), -abs(a), abs(a))


def _both(x1: Any, x2: Any, name: str) -> tuple[Array, Array]:
    """Floats of one type."""
    d = result_type(x1, x2)
    if not isdtype(d, "real floating"):
        raise TypeError(f"{name}: expected floating elements, got {d}")
    a, b = arrays_of(x1, x2)
    return a.astype(d, copy=False), b.astype(d, copy=False)


def divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 / x2; integers become float32 first."""
    number = isinstance(x1, _NUMBERS), isinstance(x2, _NUMBERS)
    a: Any
    b: Any
    a, b = (
        (x1, asarray_like(x2))
        if number[0]
        else (asarray_like(x1), x2)
        if number[1]
        else arrays_of(x1, x2)
    )
    if not any(isdtype(x.dtype, "real floating") for x, n in zip((a, b), number) if not n):
        a, b = (x if n else _cast(x, _core.float32) for x, n in zip((a, b), number))
    return _div.two(a, b)


def floor_divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The largest whole number that is not above x1 / x2. Integers divided by 0 give 0."""
    d = result_type(x1, x2)
    if isdtype(d, "real floating"):
        a, b = (widened(x) for x in _both(x1, x2, "floor_divide"))
        # As Python: from the remainder, so that the two fit together. All branches end in round,
        # whose gradient is 0 whatever it rounds.
        direct = round(a / b)
        rounded = round((a - remainder(a, b)) / b)
        whole = where(rounded == 0, copysign(rounded, direct), rounded)
        made = where(isinf(direct) | (b == 0) | (isinf(b) & isfinite(a)), direct, whole)
        return _as_given(made.astype(d, copy=False), x1, x2)
    quotient = _div.two(x1, x2)
    if isdtype(d, "unsigned integer") or d == _core.bool:
        return quotient
    left = _fmod.two(x1, x2)
    return _as_given(
        quotient
        - ((left != 0) & ((left < 0) != (asarray_like(x2, quotient) < 0))).astype(quotient.dtype),
        x1,
        x2,
    )


def remainder(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 - x2 * floor(x1 / x2), with the sign of x2. Integers modulo 0 give 0."""
    left = _fmod.two(x1, x2)
    if isdtype(left.dtype, "unsigned integer"):
        return left
    divisor = arrays_of(left, x2)[1].astype(left.dtype, copy=False)
    adjusted = where((left != 0) & ((left < 0) != (divisor < 0)), left + divisor, left)
    if isdtype(left.dtype, "real floating"):
        # A zero has the divisor's sign, and the gradient by x1 is 1 there, too.
        adjusted = where(
            left == 0, where(signbit(divisor), -0.0 - (0.0 - left), 0.0 + left), adjusted
        )
    return _as_given(adjusted, x1, x2)


def pow(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 to the power x2; integers wrap around.

    A negative exponent gives 0 for integers, except for bases 1 and -1.
    """
    return _pow.two(x1, x2)


def _shift(op: _core.Op, x1: Any, x2: Any, beyond: bool) -> Array:
    """Shifted by op, which takes counts modulo the width.

    For counts of at least the width: 0 if `beyond`, else as by width - 1.
    """
    made = op.two(x1, x2)
    bits = 8 * made.dtype.itemsize
    if isinstance(x2, int):
        if x2 < bits:
            return made
        return made * 0 if beyond else op.two(x1, bits - 1)
    count = asarray_like(x2, made).astype(made.dtype, copy=False)
    if not beyond:
        return op.two(x1, minimum(count, bits - 1))
    return where(count >= bits, 0, made)


def bitwise_left_shift(x1: Array | int, x2: Array | int, /) -> Array:
    """x1 shifted left by x2 bits, not negative; 0 by as many as x1 has."""
    return _shift(_bitwise_left_shift, x1, x2, True)


def bitwise_right_shift(x1: Array | int, x2: Array | int, /) -> Array:
    """x1 shifted right by x2 bits, not negative; by as many as x1 has 0, or -1 where it is negative."""
    d = result_type(x1, x2)
    return _shift(_bitwise_right_shift, x1, x2, isdtype(d, "unsigned integer"))


def hypot(x1: Array | Number, x2: Array | Number, /) -> Array:
    """sqrt(x1^2 + x2^2), without overflow on the way; infinite if either is."""
    return _hypot.two(*arrays_of(x1, x2))


def logaddexp(x1: Array | Number, x2: Array | Number, /) -> Array:
    """log(exp(x1) + exp(x2)), without overflow on the way."""
    return _logaddexp.two(*arrays_of(x1, x2))


def atan2(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The angle of the point (x2, x1), in [-pi, pi]."""
    return _atan2.two(x1, x2)


def atan(x: Array, /) -> Array:
    """The angle in [-pi/2, pi/2] whose tangent is x."""
    return _atan2.two(_float(x, "atan"), 1.0)


def root(x: Array) -> Array:
    """The square root of what is not negative, whose gradient at 0 is 0, as PyTorch has it for
    norms and deviations.
    """
    zero = x == 0
    return where(zero, 0.0, sqrt(where(zero, 1.0, x)))


def _bool(x: Any, name: str) -> Array:
    a = asarray_like(x)
    if a.dtype != _core.bool:
        raise TypeError(f"{name}: expected bools, got {a.dtype}")
    return a


def logical_and(x1: Array | bool, x2: Array | bool, /) -> Array:
    """Whether both hold."""
    return (
        _bool(x1, "logical_and") & x2 if not isinstance(x1, bool) else _bool(x2, "logical_and") & x1
    )


def logical_or(x1: Array | bool, x2: Array | bool, /) -> Array:
    """Whether either holds."""
    return (
        _bool(x1, "logical_or") | x2 if not isinstance(x1, bool) else _bool(x2, "logical_or") | x1
    )


def logical_xor(x1: Array | bool, x2: Array | bool, /) -> Array:
    """Whether one of them holds."""
    return (
        _bool(x1, "logical_xor") ^ x2 if not isinstance(x1, bool) else _bool(x2, "logical_xor") ^ x1
    )


def logical_not(x: Array, /) -> Array:
    """Whether it does not hold."""
    return _not(_bool(x, "logical_not"))


def where(condition: Array, x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 where the condition holds, else x2."""
    condition = asarray_like(condition)
    if condition.dtype != _core.bool:
        raise TypeError(f"where: expected a condition of bools, got {condition.dtype}")
    d = result_type(x1, x2)
    if isinstance(x1, _NUMBERS) and isinstance(x2, _NUMBERS):
        x1 = asarray_like(x1, condition)
    a = x1 if isinstance(x1, _NUMBERS) else asarray_like(x1, condition).astype(d, copy=False)
    b = x2 if isinstance(x2, _NUMBERS) else asarray_like(x2, condition).astype(d, copy=False)
    return _where(condition, a, b)


def clip(
    x: Array, /, min: Array | Number | None = None, max: Array | Number | None = None
) -> Array:
    """x with elements below min raised to it, and elements above max lowered to it; max wins.

    The result has x's type. NaN stays. An element that is equal to a bound has the whole gradient.
    """
    x = asarray_like(x)
    if min is None and max is None:
        return _copy(x)
    if min is not None:
        x = _bounded(x, min, maximum, less)
    if max is not None:
        x = _bounded(x, max, minimum, greater)
    return x


def _bounded(x: Array, bound: Any, nearer: Any, beyond: Any) -> Array:
    """x, or the bound if x is beyond it; NaN if either is.

    The gradients of `nearer`, maximum or minimum, are halved at the bound.
    """
    if not isdtype(x.dtype, "real floating"):
        made: Array = nearer(x, bound)
    elif isinstance(bound, (int, float)):
        made = where(beyond(x, bound), bound, x) if bound == bound else nearer(x, bound)
    else:
        of = arrays_of(x, bound)[1]
        made = where(beyond(x, of) | (of != of), of, x)
    return made.astype(x.dtype, copy=False)
