"""Loops and branches that run on the executor.

Outside of a traced function each is traced and run on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core, _tree
from ._array import Array, asarray
from ._dtypes import isdtype
from ._tables import checked_name
from ._trace import as_value, find_captured, trace_body


def _values(tree: Any, what: str) -> tuple[list[Array], Any]:
    leaves, form = _tree.flatten(tree)
    return [as_value(leaf, what) for leaf in leaves], form


def _types(values: list[Array]) -> list[Any]:
    return [(v.dtype, v.shape) for v in values]


def _merge(*lists: list[Array]) -> list[Array]:
    out: list[Array] = []
    for one in lists:
        out += [a for a in one if not any(a is o for o in out)]
    return out


def _same(what: str, given: list[Array], form: Any, got: list[Array], got_form: Any) -> None:
    if form != got_form or _types(given) != _types(got):

        def show(values: list[Array]) -> str:
            return ", ".join(f"{v.dtype.name}{list(v.shape)}" for v in values)

        raise TypeError(
            f"{what}: expected what it was given, {show(given)}; got {show(got)}"
            + (" in another nesting" if form != got_form else "")
        )


def _run(function: Callable[..., Any], *args: Any) -> Any:
    from ._jit import Function

    return Function(function)(*args)


def for_loop(times: int | Array, body: Callable[[Array, Any], Any], initial: Any) -> Any:
    """carried = body(i, carried) for i = 0, 1, ... below `times`. The first `carried` is `initial`.
    Carried values keep their types.

    >>> import opwire as ow
    >>> float(ow.for_loop(10, lambda i, total: total + i.astype(ow.float32), ow.asarray(0.0)))
    45.0
    """
    if isinstance(times, float) or (
        isinstance(times, Array) and not isdtype(times.dtype, "integral")
    ):
        raise TypeError(f"for_loop: expected a whole number of times, got {times!r}")
    outer = _core.Trace.current()
    if outer is None:
        return _run(lambda start: for_loop(times, body, start), initial)
    carried, form = _values(initial, "for_loop: initial")
    types = [(_core.int64, ()), *_types(carried)]

    def call(p: list[Array]) -> Any:
        return body(p[0], _tree.unflatten(form, p[1:]))

    captured, got_form, got = find_captured(outer, "body", call, types)
    _same("for_loop: body", carried, form, got, got_form)
    t = trace_body(outer, "body", call, types, captured)
    n = (
        asarray(times, dtype=_core.int64)
        if not isinstance(times, Array)
        else times.astype(_core.int64, copy=False)
    )
    return _tree.unflatten(form, outer.repeat(n, carried, captured, t))


def while_loop(
    condition: Callable[[Any], Any],
    body: Callable[[Any], Any],
    initial: Any,
    *,
    max_trips: int = 1_000_000_000,
) -> Any:
    """carried = body(carried) as long as condition(carried) is true. The first `carried` is
    `initial`. IndexError if the condition is still true after max_trips iterations.

    >>> import opwire as ow
    >>> int(ow.while_loop(lambda n: n < 100, lambda n: n * 2, ow.asarray(3)))
    192
    """
    outer = _core.Trace.current()
    if outer is None:
        return _run(lambda start: while_loop(condition, body, start, max_trips=max_trips), initial)
    carried, form = _values(initial, "while_loop: initial")
    types = _types(carried)

    def ask(p: list[Array]) -> Any:
        return condition(_tree.unflatten(form, p))

    def call(p: list[Array]) -> Any:
        return body(_tree.unflatten(form, p))

    of_condition, _, asked = find_captured(outer, "condition", ask, types)
    if len(asked) != 1 or asked[0].dtype != _core.bool or asked[0].shape != ():
        raise TypeError("while_loop: expected a condition that gives one bool, 0-d")
    of_body, got_form, got = find_captured(outer, "body", call, types)
    _same("while_loop: body", carried, form, got, got_form)
    captured = _merge(of_condition, of_body)
    c = trace_body(outer, "condition", ask, types, captured)
    b = trace_body(outer, "body", call, types, captured)
    return _tree.unflatten(form, outer.while_(carried, captured, c, b, max_trips))


def cond(
    condition: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
) -> Any:
    """then(*operands) if the 0-d condition is true, else otherwise(*operands). Only one runs; both
    return the same types.

    >>> import opwire as ow
    >>> float(ow.cond(ow.asarray(True), lambda x: x + 1, lambda x: x - 1, ow.asarray(1.0)))
    2.0
    """
    outer = _core.Trace.current()
    if outer is None:
        return _run(lambda c, args: cond(c, then, otherwise, *args), condition, operands)
    given, form = _values(operands, "cond: operands")
    types = _types(given)
    calls = [lambda p, f=f: f(*_tree.unflatten(form, p)) for f in (then, otherwise)]
    found = [
        find_captured(outer, name, call, types) for name, call in zip(("then", "otherwise"), calls)
    ]
    _same("cond: otherwise", found[0][2], found[0][1], found[1][2], found[1][1])
    captured = _merge(found[0][0], found[1][0])
    traces = [
        trace_body(outer, name, call, types, captured)
        for name, call in zip(("then", "otherwise"), calls)
    ]
    c = as_value(condition, "cond: condition")
    return _tree.unflatten(found[0][1], outer.if_(c, [*given, *captured], traces[0], traces[1]))


def emit(name: str, value: Any) -> None:
    """Sends a value to on_emit of Function.run each time that the running function reaches it."""
    t = _core.Trace.current()
    if t is None:
        raise RuntimeError(
            "emit: expected a traced function; outside of one a value is there already"
        )
    t.emit(checked_name(name, "emit: name"), as_value(value, "emit"))
