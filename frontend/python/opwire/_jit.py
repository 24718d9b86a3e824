"""Functions compiled by the executor, and their gradients."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import _core, _tables, _tree
from ._array import Array, asarray
from ._client import _check_process, device, device_of
from ._trace import Traced, checking, leaf_error, leaf_types, trace

_MANY = 8  # traces of one function after which the caller is warned

Shapes = tuple[tuple[int, ...], ...]  # of the arguments; a number's is ()


class _Family:
    """Traces of one function for arguments that differ in extents only."""

    def __init__(self) -> None:
        self.seen: list[Shapes] = []  # what led to a trace
        self.symbolic: list[
            tuple[Any, _Compiled]
        ] = []  # with the shapes that each takes: a name where an axis is a symbol
        self.failed: set[Any] = (
            set()
        )  # shapes with symbols that the function could not be traced for

    def find(self, shapes: Shapes) -> _Compiled | None:
        """A trace with symbols that takes these."""
        for pattern, compiled in self.symbolic:
            if _matches(pattern, shapes):
                return compiled
        return None

    def pattern(self, shapes: Shapes) -> Any:
        """The shapes with a name for each extent that has varied; one name for extents that were
        always equal.

        None: no extent has varied.
        """
        names: dict[tuple[int, ...], str] = {}
        out = []
        for i, shape in enumerate(shapes):
            extents: list[int | str] = []
            for axis, n in enumerate(shape):
                history = (*(s[i][axis] for s in self.seen), n)
                if len(set(history)) > 1:
                    extents.append(names.setdefault(history, f"n{len(names)}" if names else "n"))
                else:
                    extents.append(n)
            out.append(tuple(extents))
        return tuple(out) if names else None


def _matches(pattern: Any, shapes: Shapes) -> bool:
    """A symbol has one value in all shapes, of 2 or more.

    0 and 1 have traces of their own, since functions treat them differently.
    """
    bound: dict[str, int] = {}
    for p, s in zip(pattern, shapes):
        for expected, n in zip(p, s):
            if isinstance(expected, str):
                if n < 2 or bound.setdefault(expected, n) != n:
                    return False
            elif expected != n:
                return False
    return True


class _Compiled:
    def __init__(self, traced: Traced, program: _core.Program):
        self.program = program
        self.pick = traced.pick
        self.form = traced.form
        self.captured = traced.captured
        self.checked = traced.checked
        self.is_leaf = traced.form == "leaf" and traced.results == 1 and not traced.checked

    def __call__(self, leaves: list[Any], on_emit: Any = None) -> Any:
        """What the function gives for these arguments."""
        results = self.program(leaves, on_emit)
        if self.is_leaf:
            return results[0]
        results = self.pick(results)
        if self.checked:
            counts = np.asarray(results.pop())
            for n, what in zip(counts, self.checked):
                if n:
                    raise FloatingPointError(
                        f"{n} NaN in {_tables.printable(what)}, the first value that has any"
                    )
        return results[0] if self.form == "leaf" else _tree.unflatten(self.form, results)


class Function:
    """A function that is traced once for the types of its arguments, compiled by the executor, and
    then runs in one round trip a call.

    Side effects (print, appending to a list) happen while it is traced, and not when it runs.
    Arrays from outside are captured when it is traced; later writes into them are seen.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        static_argnames: str | Iterable[str] = (),
        donate_argnames: str | Iterable[str] = (),
        accuracy: str = "usual",
        check: str | None = None,
        warn: bool = True,
        differentiate: tuple[int | tuple[int, ...], bool, bool] | None = None,
    ):
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._static = (
            {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
        )
        self._donate = (
            {donate_argnames} if isinstance(donate_argnames, str) else set(donate_argnames)
        )
        if check not in (None, "nan"):
            raise ValueError(f'check: expected "nan" or None, got {check!r}')
        self._accuracy = accuracy
        self._check = check
        self._differentiate = differentiate  # argnums, whether values are returned too, has_aux
        self._cache: dict[Any, _Compiled] = {}
        self._families: dict[Any, _Family] = {}  # by what a key has but extents
        self._traced: list[Any] = []  # keys that led to a trace
        self._by_key: dict[bytes | None, _Compiled] = {}
        self._warned = not warn
        self._lock = threading.RLock()
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        named = self._static | self._donate
        if named and self._signature is not None:
            unknown = named - set(self._signature.parameters)
            if unknown:
                raise ValueError(
                    f"{self._shown}: there is no argument {_tables.printable(', '.join(sorted(unknown)))}"
                )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By its name, as a plain function."""
        name = getattr(self, "__qualname__", self.__name__)
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not self:
            raise TypeError(
                f"{self._shown}: no module has this compiled function under its name, so it is not "
                "pickled: compile it by jit in the process that needs it"
            )
        return name

    @property
    def _shown(self) -> str:
        """Its name, as messages have it."""
        return _tables.printable(self.__name__)

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: Any) -> Function:
        return self

    # ---- Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Most calls have only arrays and numbers, whose key is fast to make. There is none while a function is traced.
        key = None if kwargs or self._static else _core.call_key(args)
        compiled = self._by_key.get(key)
        if compiled is not None:
            return self._run(compiled, [*args, *compiled.captured])
        outer = _core.Trace.current()
        if outer is not None:
            return self._inline(outer, args, kwargs)
        compiled, leaves = self._prepare(args, kwargs)
        if key is not None:
            self._by_key[key] = compiled
        return self._run(compiled, leaves)

    def run(
        self,
        *args: Any,
        on_emit: Callable[[str, np.ndarray[Any, Any]], None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """A call that waits, and calls on_emit(name, value) for each value that the function emits.

        Ctrl-C and exceptions of on_emit stop it.
        """
        compiled, leaves = self._prepare(args, kwargs)

        def hear(name: str, dtype: _core.dtype, shape: tuple[int, ...], data: bytes) -> None:
            from ._dtypes import numpy_dtype

            if on_emit is not None:
                on_emit(name, np.frombuffer(data, numpy_dtype(dtype)).reshape(shape))

        return self._run(compiled, leaves, hear)

    def _run(self, compiled: _Compiled, leaves: list[Any], on_emit: Any = None) -> Any:
        """If the executor is lost, the captured arrays are, too.

        The next call traces again, and captures the arrays of then.
        """
        try:
            return compiled(leaves, on_emit)
        except ConnectionError:
            if compiled.captured:
                with self._lock:
                    for cache in (self._cache, self._by_key):
                        for key in [k for k, c in list(cache.items()) if c is compiled]:
                            cache.pop(key, None)
                    for family in self._families.values():
                        family.symbolic = [(p, c) for p, c in family.symbolic if c is not compiled]
            raise

    def _arrange(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        """The arguments with None in place of the static ones, and these by place or name."""
        if not self._static:
            return (args, kwargs), []
        fixed: list[tuple[Any, Any]] = [
            (i, a) for i, a in enumerate(args) if self._argument_name(i) in self._static
        ]
        fixed += [(n, a) for n, a in sorted(kwargs.items()) if n in self._static]
        names = {n for n, _ in fixed}
        return (
            tuple([None if i in names else a for i, a in enumerate(args)]),
            {n: None if n in names else a for n, a in kwargs.items()},
        ), fixed

    def _prepare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[_Compiled, list[Any]]:
        _check_process()
        tree, fixed = self._arrange(args, kwargs)
        leaves, form = _tree.flatten(tree)
        session = None
        key: list[Any] = [form, tuple([(n, _static_key(_hashable(n, v))) for n, v in fixed])]
        for i, leaf in enumerate(leaves):
            if type(leaf) is Array:
                if session is None:
                    session = leaf.session
                key.append((leaf.dtype, leaf.shape))
            elif isinstance(leaf, (bool, int, float)):
                key.append(type(leaf))
            elif hasattr(leaf, "__array__"):
                leaves[i] = made = asarray(
                    leaf, device=None if session is None else device_of(session)
                )
                key.append((made.dtype, made.shape))
            else:
                raise TypeError(leaf_error(leaf, self._names(form)[i]))
        if session is None:
            session = device().session
        key.append(session)
        hashed = tuple(key)
        compiled = self._cache.get(hashed)
        if compiled is None:
            with (
                session,
                self._lock,
            ):  # in this order: a thread that holds the session, such as one in on_emit, may call functions
                compiled = self._cache.get(hashed) or self._compile(hashed, args, kwargs, session)
        if compiled.captured:
            leaves = leaves + compiled.captured
        return compiled, leaves

    def _names(self, form: Any) -> list[str]:
        """A name for each leaf."""
        of_args, of_kwargs = form[1]
        return [
            n for i, f in enumerate(of_args[1]) for n in _tree.names(f, self._argument_name(i))
        ] + _tree.names(of_kwargs)

    def _trace(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        pattern: Any = None,
        check: bool = False,
    ) -> Traced:
        """pattern: shapes with names of symbols, instead of those of the arguments.

        check: count NaNs even if the function does not ask for it.
        """
        check = check or self._check == "nan"
        tree, fixed = self._arrange(args, kwargs)
        leaves, form = _tree.flatten(tree)
        names = self._names(form)
        types = leaf_types(leaves, names)
        if pattern is not None:
            types = [(d, s) for (d, _), s in zip(types, pattern)]

        def run(values: list[Array]) -> Any:
            positional, named = _tree.unflatten(form, values)
            positional = list(positional)
            for n, v in fixed:
                (positional if isinstance(n, int) else named)[n] = v
            return self._function(*positional, **named)

        numbers = {
            i
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, (bool, int, float)) or (isinstance(leaf, Array) and leaf.weak)
        }
        if self._differentiate is not None:
            return self._trace_gradient(tree[0], names, types, numbers, run, check)
        donated = [
            self._argument_name(i) in self._donate
            for i, f in enumerate(form[1][0][1])
            for _ in _tree.names(f)
        ]
        donated += [
            n in self._donate for n, f in zip(form[1][1][1], form[1][1][2]) for _ in _tree.names(f)
        ]
        inout = [i for i, d in enumerate(donated) if d and i not in numbers]
        return trace(self.__name__, run, names, types, inout, check, numbers)

    def _argument_name(self, i: int) -> str:
        parameters = [] if self._signature is None else list(self._signature.parameters.values())
        if i < len(parameters) and all(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters[: i + 1]
        ):
            return parameters[i].name
        return f"arg{i}"

    def _trace_gradient(
        self,
        args: tuple[Any, ...],
        names: list[str],
        types: list[Any],
        numbers: set[int],
        run: Callable[..., Any],
        check: bool,
    ) -> _GradientTraced:
        assert self._differentiate is not None
        asked, with_value, has_aux = self._differentiate
        argnums = (asked,) if isinstance(asked, int) else asked
        counts = [len(_tree.flatten(a)[0]) for a in args]
        starts = np.cumsum([0, *counts])
        for n in argnums:
            if not -len(args) <= n < len(args):
                raise ValueError(f"grad: argument {n} of a function that was given {len(args)}")
        wrt = [
            i
            for n in argnums
            for i in range(int(starts[n % len(args)]), int(starts[n % len(args) + 1]))
        ]
        for i in wrt:
            if types[i][0].name not in ("float64", "float32", "float16", "bfloat16"):
                raise TypeError(
                    f"grad: argument {names[i]} is {types[i][0].name}{list(types[i][1])}: expected floating elements"
                )

        def both(values: list[Array]) -> Any:
            out = run(values)
            loss, aux = out if has_aux else (out, None)
            if not isinstance(loss, Array) or loss.shape != ():
                got = (
                    f"{loss.dtype.name}{list(loss.shape)}"
                    if isinstance(loss, Array)
                    else type(loss).__name__
                )
                raise TypeError(
                    f"grad of {self._shown}: expected a function that gives a 0-d loss, got {got}"
                )
            return loss, aux

        first = trace(self.__name__, both, names, types, check_nan=check, numbers=numbers)
        unique_names = first.module.params
        # Behind the counts of what the function computes stand those of its gradients.
        module, of_gradients = first.module.gradient(
            [unique_names[i] for i in wrt], "r0", "nans" if first.checked else ""
        )
        first.checked += of_gradients
        forms = [_tree.flatten(args[n % len(args)])[1] for n in argnums]
        gradients: Any = forms[0] if isinstance(asked, int) else (tuple, tuple(forms))
        value = first.form if has_aux else first.form[1][0]
        return _GradientTraced(
            module,
            (tuple, (value, gradients))
            if with_value
            else (tuple, (gradients, first.form[1][1]))
            if has_aux
            else gradients,
            first,
            len(wrt),
            with_value,
            has_aux,
        )

    def _compile(
        self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], session: _core.Session
    ) -> _Compiled:
        arrays = [k if isinstance(k, tuple) else (k, ()) for k in key[2:-1]]
        shapes = tuple(s for _, s in arrays)
        family = self._families.setdefault(
            (*key[:2], tuple((d, len(s)) for d, s in arrays), session), _Family()
        )
        compiled = family.find(shapes)
        if compiled is None:
            pattern = family.pattern(shapes)
            compiled = self._compile_for(pattern, family, shapes, args, kwargs, session)
            if compiled is None:
                traced = self._trace(args, kwargs)
                compiled = _Compiled(traced, _core.Program(session, traced.module, self._accuracy))
            self._warn(key)
            self._traced.append(key)
            family.seen.append(shapes)
        self._cache[key] = compiled
        return compiled

    def _compile_for(
        self,
        pattern: Any,
        family: _Family,
        shapes: Shapes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        session: _core.Session,
    ) -> _Compiled | None:
        """With symbols, where extents have varied and the function does not ask what they are."""
        if pattern is None or pattern in family.failed or not _matches(pattern, shapes):
            return None
        try:
            traced = self._trace(args, kwargs, pattern)
            compiled = _Compiled(traced, _core.Program(session, traced.module, self._accuracy))
        except (ConnectionError, MemoryError, TimeoutError):
            raise
        except (
            Exception
        ):  # whatever it is, tracing for the extents themselves tells, or does without
            family.failed.add(pattern)
            return None
        family.symbolic.append((pattern, compiled))
        return compiled

    def _warn(self, key: Any) -> None:
        if len(self._traced) + 1 < _MANY or self._warned:
            return
        self._warned = True
        last = self._traced[-1]
        for i, (new, old) in enumerate(zip(key[2:], last[2:])):
            if new != old:
                what = f"argument {i}, which was {_show(old)} and is {_show(new)}"
                break
        else:
            what = "static arguments" if key[1] != last[1] else "the nesting of arguments"
        warnings.warn(
            f"{self._shown} was traced {_MANY} times; the last differ by {what}. Each trace is "
            "compiled on its own: pad to a few sizes, or leave out of the function what varies",
            stacklevel=5,
        )

    # ---- In another function that is traced

    def _inline(self, outer: _core.Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._differentiate is None:
            with checking(outer, self._check == "nan"):
                return self._function(*args, **kwargs)
        leaves, _ = _tree.flatten(self._arrange(args, kwargs)[0])
        values = [asarray(leaf) if not isinstance(leaf, Array) else leaf for leaf in leaves]
        traced = self._trace(args, kwargs, check=outer.check_nan)
        results = traced.pick(
            outer.inline(traced.module, values + traced.captured, traced.counts, traced.checked)
        )
        return _tree.unflatten(traced.form, results[:-1] if traced.checked else results)

    # ---- What it is

    def trace(self, *args: Any, **kwargs: Any) -> _core.Module:
        """The program for arguments of these types, as it was written; str of its text()."""
        return self._trace(args, kwargs).module

    def text(self, *args: Any, **kwargs: Any) -> str:
        """The program in the text form (docs/text-form.md), as it was written."""
        return str(self.trace(*args, **kwargs).text())

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Writes the program as an .opw file, which `opwire run` and `opwire explain` take."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.text(*args, **kwargs))

    def optimised(self, *args: Any, **kwargs: Any) -> str:
        """The program behind the passes, as the executor has it."""
        return str(self._prepare(args, kwargs)[0].program.text())

    def plan(self, *args: Any, **kwargs: Any) -> _tables.Table:
        """How the executor runs it, as a table: steps, fused groups and why they end, memory.

        Its `raw` has all facts.
        """
        compiled, leaves = self._prepare(args, kwargs)
        return _tables.of_plan(json.loads(compiled.program.plan(leaves)))

    def profile(self, *args: Any, **kwargs: Any) -> _tables.Table:
        """Runs it once and tells what each step took, the longest first; as a table."""
        compiled, leaves = self._prepare(args, kwargs)
        return _tables.of_profile(self.__name__, compiled.program.profile(leaves))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class _GradientTraced(Traced):
    """A module with gradients after its results: loss, other results of the function, counts of
    NaNs if they are checked, gradients.
    """

    def __init__(
        self,
        module: _core.Module,
        form: Any,
        first: Traced,
        gradients: int,
        with_value: bool,
        has_aux: bool,
    ):
        super().__init__(module, form, first.captured, 0, first.checked)
        checked = [first.results] if first.checked else []
        self.counts = first.results if first.checked else -1
        count = first.results + len(checked)
        of_gradients = list(range(count, count + gradients))
        aux = list(range(1, first.results)) if has_aux else []
        self._order = [
            *([0, *aux, *of_gradients] if with_value else [*of_gradients, *aux]),
            *checked,
        ]

    def pick(self, results: list[Any]) -> list[Any]:
        return [results[i] for i in self._order]


def _hashable(name: Any, value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"static argument {_tables.printable(str(name))}: expected a hashable value, got {type(value).__name__}"
        ) from None
    return value


def _static_key(value: Any) -> Any:
    """Equal for values that are traced alike. 1, 1.0 and True differ, and so do their
    containers."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_static_key, value))
    if isinstance(value, frozenset):
        return type(value), frozenset(map(_static_key, value))
    if (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value).__dataclass_params__.eq  # type: ignore[attr-defined]
    ):
        return (
            type(value),
            tuple(
                _static_key(getattr(value, f.name)) for f in dataclasses.fields(value) if f.compare
            ),
            value,
        )
    return type(value), repr(value) if isinstance(value, float) else value


def _show(part: Any) -> str:
    return (
        f"{part[0].name}{list(part[1])}"
        if isinstance(part, tuple)
        else getattr(part, "__name__", str(part))
    )


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A function that the executor compiles: traced once for the types of its arguments, then one
    round trip a call.

    static_argnames: arguments that are no arrays and decide what is traced; each value is a trace of its own.
    donate_argnames: arguments whose memory results take; the arrays given are of no use afterwards.
    check: "nan", each call waits, and raises FloatingPointError with the first value that has NaNs:
    its op, line and count.
    accuracy: "exact", no pass changes a bit of the results; "usual", sums may be added in another
    order; "fast", more than that (docs/passes.md).

    >>> import opwire as ow
    >>> @ow.jit
    ... def norm(x):
    ...     return ow.sqrt((x * x).sum())
    >>> float(norm(ow.asarray([3.0, 4.0])))
    5.0
    """
    if function is None:
        return functools.partial(jit, **options)
    return Function(function, **options)


def _gradient(
    function: Callable[..., Any], argnums: int | tuple[int, ...], with_value: bool, has_aux: bool
) -> Function:
    if isinstance(function, Function) and function._differentiate is None:
        made = Function(
            function._function,
            static_argnames=function._static,
            accuracy=function._accuracy,
            differentiate=(argnums, with_value, has_aux),
        )
        # Within a function that is checked gradients are, too.
        return (
            made
            if function._check is None
            else Function(
                made,
                static_argnames=function._static,
                accuracy=function._accuracy,
                check=function._check,
            )
        )
    return Function(function, differentiate=(argnums, with_value, has_aux))


def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Function:
    """A function that returns the gradient of function's loss, a 0-d float, by the arguments `argnums`.

    With has_aux, function returns (loss, more), and this returns (gradient, more).

    >>> import opwire as ow
    >>> float(ow.grad(lambda x: x * x * x)(ow.asarray(2.0)))
    12.0
    """
    return _gradient(function, argnums, False, has_aux)


def value_and_grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Function:
    """As grad, but gives (loss, gradient); with has_aux ((loss, more), gradient).

    >>> import opwire as ow
    >>> loss, g = ow.value_and_grad(lambda x: x * x)(ow.asarray(3.0))
    >>> float(loss), float(g)
    (9.0, 6.0)
    """
    return _gradient(function, argnums, True, has_aux)
