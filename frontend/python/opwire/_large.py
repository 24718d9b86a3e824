"""Large arrays: functions of several ops run as one program, which stores no intermediate arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._array import Array
    from ._jit import Function

BYTES = 1 << 23  # of an array for which a program is worth its compilation


@functools.cache
def compiled(f: Callable[..., Any], *static: str) -> Function:
    """f as a compiled function; static: the arguments that are no arrays."""
    from ._jit import Function

    return Function(f, static_argnames=static, warn=False)


def forget_programs() -> None:
    """Drops the compiled functions of large arrays; they are compiled again when needed."""
    compiled.cache_clear()


def is_large(*arrays: Array) -> bool:
    """Whether one of the arrays is large, and none is a value of a function that is traced."""
    return not any(x.traced for x in arrays) and any(x.nbytes >= BYTES for x in arrays)


def call(f: Callable[..., Any], *arrays: Array, **static: Any) -> Any:
    """f(*arrays, **static), as one program if an array is large."""
    if not is_large(*arrays):
        return f(*arrays, **static)
    return compiled(f, *static)(*arrays, **static)
