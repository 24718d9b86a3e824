"""Functions traced to programs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from . import _core, _tree
from ._array import Array, asarray
from ._dtypes import as_dtype
from ._tables import printable

_PASSES = 4  # of a function, at most: the first finds the arrays from outside, the next has them


class Traced:
    """What tracing gave: the module, the form of its results, and what it uses of outside."""

    counts = (
        -1
    )  # which of the module's results counts NaNs, where a function that is inlined is checked

    def __init__(
        self,
        module: _core.Module,
        form: Any,
        captured: list[Array],
        results: int,
        checked: list[str] | None = None,
    ):
        self.module = module
        self.checked = checked or []  # values whose NaNs a result after the others counts
        self.form = form
        self.captured = captured
        self.results = results

    def pick(self, results: list[Any]) -> list[Any]:
        """Those of the program's results that the form is of."""
        return results


def leaf_types(
    leaves: Sequence[Any], names: Sequence[str]
) -> list[tuple[_core.dtype, tuple[int, ...]]]:
    """The types of the arguments of a traced function.

    Numbers are int64 or float32; combined with arrays of float64 they keep their digits.
    """
    types = [_leaf_type(leaf, n) for leaf, n in zip(leaves, names)]
    if any(d == _core.float64 for d, _ in types):
        types = [
            (_core.float64, s) if isinstance(leaf, float) else (d, s)
            for leaf, (d, s) in zip(leaves, types)
        ]
    return types


def _leaf_type(leaf: Any, name: str) -> tuple[_core.dtype, tuple[int, ...]]:
    if isinstance(leaf, Array):
        return leaf.dtype, leaf.shape
    if isinstance(leaf, bool):
        return _core.bool, ()
    if isinstance(leaf, int):
        return _core.int64, ()
    if isinstance(leaf, float):
        return _core.float32, ()
    if hasattr(leaf, "__array__") or hasattr(leaf, "dtype"):
        return as_dtype(leaf.dtype), tuple(leaf.shape)
    raise TypeError(leaf_error(leaf, name))


def leaf_error(leaf: Any, name: str) -> str:
    """What is wrong with a leaf that is neither array nor number."""
    return f"argument {name}: expected arrays and numbers, nested in tuples, lists and dicts; got {type(leaf).__name__}. What is none of these is named in static_argnames"


def unique(names: Sequence[str]) -> list[str]:
    """The names, each once."""
    seen: dict[str, int] = {}
    out = []
    for n in names:
        count = seen.get(n, 0)
        seen[n] = count + 1
        out.append(n if count == 0 else f"{n}_{count}")
    return out if len(set(out)) == len(out) else [f"p{i}" for i in range(len(out))]


def clean(name: str) -> str:
    """The name such that a program can have it: letters, digits and _."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).strip("_")
    return text if text and not text[0].isdigit() else f"f_{text}" if text else "f"


def of_parameter(name: str) -> str:
    """The name such that a parameter can have it: different from the names of results and captured
    arrays."""
    name = clean(name)
    return f"{name}_" if re.fullmatch(r"(r|captured)\d+|nans", name) else name


def as_value(leaf: Any, what: str) -> Array:
    """A result as a value of the function that is traced."""
    if isinstance(leaf, Array):
        return leaf
    if isinstance(leaf, (bool, int, float)) or hasattr(leaf, "__array__"):
        return asarray(leaf)
    raise TypeError(
        f"{what}: expected arrays and numbers, nested in tuples, lists and dicts; got {type(leaf).__name__}"
    )


def trace(
    name: str,
    call: Callable[..., Any],
    names: Sequence[str],
    types: Sequence[tuple[_core.dtype, tuple[Any, ...]]],
    inout: Sequence[int] = (),
    check_nan: bool = False,
    numbers: Container[int] = (),
) -> Traced:
    """call(values) traced with values of these types, whose extents are numbers or names of
    symbols.

    inout: parameters whose memory the first free result of their type takes. check_nan: a result
    after the others counts the NaNs of each floating value. numbers: the parameters that are
    Python's numbers, and take the type of arrays in operators. RuntimeError if each pass uses
    another array from outside.
    """
    captured: list[Array] = []
    names = unique([of_parameter(n) for n in names])
    for _ in range(_PASSES):
        t = _core.Trace(clean(name), check_nan)
        params = [
            t.param(n, d, list(s), i in inout, i in numbers)
            for i, (n, (d, s)) in enumerate(zip(names, types))
        ]
        for c in captured:
            t.declare(c)
        with t:
            out = call(params)
            leaves, form = _tree.flatten(out)
            values = [as_value(leaf, f"result of {printable(name)}") for leaf in leaves]
            values = [
                v.astype(_core.float32) if v.weak and v.dtype == _core.float64 else v
                for v in values
            ]  # what a number is as an array
            results = _result_names(names, [(p.dtype, p.shape) for p in params], values, inout)
            t.results(results, values)
            checked: list[str] = []
            if t.counted:
                counts, checked = t.counts()
                t.result("nans", counts)
        if t.complete:
            return Traced(t.finish(), form, captured, len(values), checked)
        captured = list(t.captured)
    new = captured[-1]
    raise RuntimeError(
        f"{printable(name)} makes an array of a device anew each time that it is traced, {new.dtype.name}{list(new.shape)}: make it, or take it from the store or a file, outside of the function, and use it there"
    )


@contextlib.contextmanager
def checking(t: _core.Trace, asked: bool) -> Iterator[None]:
    """Functions that are traced in this scope count NaNs, if this or an outer scope asks for it."""
    before = t.check_nan
    t.check_nan = before or asked
    try:
        yield
    finally:
        t.check_nan = before


def _result_names(
    names: Sequence[str], types: Sequence[Any], values: Sequence[Array], inout: Sequence[int]
) -> list[str]:
    free = list(inout)
    out = []
    for i, v in enumerate(values):
        for p in free:
            if types[p] == (v.dtype, v.shape):
                free.remove(p)
                out.append(names[p])
                break
        else:
            out.append(f"r{i}")
    if free:
        p = free[0]
        raise ValueError(
            f"donated argument {names[p]}: no result has its type, {types[p][0].name}{list(types[p][1])}"
        )
    return out


def trace_body(
    outer: _core.Trace,
    name: str,
    call: Callable[..., Any],
    types: Sequence[tuple[_core.dtype, tuple[int, ...]]],
    captured: list[Array],
) -> _core.Trace:
    """A function in the module of `outer` for a node there to call, with parameters for `captured`,
    also for those that it does not use.
    """
    t = outer.nested(name, False)
    params = [t.param(f"p{i}", d, list(s)) for i, (d, s) in enumerate(types)]
    for c in captured:
        t.declare(c)
    with t:
        for i, leaf in enumerate(_tree.flatten(call(params))[0]):
            t.result(f"r{i}", as_value(leaf, f"result of {name}"))
    return t


def find_captured(
    outer: _core.Trace,
    name: str,
    call: Callable[..., Any],
    types: Sequence[tuple[_core.dtype, tuple[int, ...]]],
) -> tuple[list[Array], Any, list[Array]]:
    """What the function uses of outside, the form of its results, and these, of a trace of no further use."""
    t = outer.nested(name, True)
    params = [t.param(f"p{i}", d, list(s)) for i, (d, s) in enumerate(types)]
    with t:
        leaves, form = _tree.flatten(call(params))
        values = [as_value(leaf, f"result of {name}") for leaf in leaves]
    return list(t.captured), form, values
