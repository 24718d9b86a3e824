"""Random calls against NumPy, mpmath and PyTorch, on a CPU and an emulated GPU, eager and compiled.

    python tests/python/differential.py --seconds 600

Each round draws a kind, element types, shapes and values. It compares every way to compute the result with a judge.
NumPy judges indexing, integers, reductions and, in long double, functions. If mpmath is installed, it checks some
elements of each function in float64 again. If PyTorch is installed, gradients are compared with its gradients, else
with differences. The first wrong result ends it with code 1, and with the seed that repeats the round. At the end it
prints how often each judge agreed.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np
from processes import served

NARROW = {"bfloat16": (8, -126), "float16": (11, -14)}
FLOATS = {**NARROW, "float32": (24, -126), "float64": (53, -1022)}
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

# Functions of elements, what may be off in units of the last place in float32 and float64, and where they are defined.
EXACT = (
    "abs",
    "negative",
    "square",
    "sqrt",
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "reciprocal",
)
CLOSE = {
    "exp": (-80, 80),
    "expm1": (-80, 80),
    "log": (0, 1e30),
    "log1p": (-1, 1e30),
    "log2": (0, 1e30),
    "log10": (0, 1e30),
    "sin": (-1e4, 1e4),
    "cos": (-1e4, 1e4),
    "tan": (-1e4, 1e4),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-1e30, 1e30),
    "sinh": (-80, 80),
    "cosh": (-80, 80),
    "tanh": (-20, 20),
    "asinh": (-1e30, 1e30),
    "acosh": (1, 1e30),
    "atanh": (-1, 1),
}
NUMPYS = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
PAIRS = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "hypot",
    "atan2",
    "logaddexp",
    "pow",
)
MOST_ULP = 4
EMULATED = 0.1  # of all rounds
KINDS = ("functions", "pairs", "indexing", "reductions", "gradients")
REDUCTIONS = (
    "sum",
    "prod",
    "mean",
    "max",
    "min",
    "var",
    "std",
    "cumulative_sum",
    "argmax",
    "argmin",
    "any",
    "all",
)


class Wrong(Exception):
    """A result that differs."""


class Tester:
    rng: np.random.Generator  # of the round

    def __init__(self) -> None:
        import opwire as ow

        self.ow = ow
        self.client = ow.connect()
        self.devices = sorted(self.client.devices, key=str)
        self.counts: collections.Counter[str] = collections.Counter()
        self.torch = _module("torch")
        self.mpmath = _module("mpmath")

    # ---- Inputs

    def shape(self, most_axes: int = 3, most: int = 9) -> tuple[int, ...]:
        n = int(self.rng.integers(0, most_axes + 1))
        shape = tuple(
            int(e) for e in self.rng.integers(0 if self.rng.random() < 0.1 else 1, most, n)
        )
        return (
            (*shape[:-1], int(self.rng.integers(1, 3000)))
            if n and self.rng.random() < 0.1
            else shape
        )

    def floats(self, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
        """Of all magnitudes between the bounds, a few of them whole or at an end."""
        sign = self.rng.choice([-1.0, 1.0], shape)
        wide = sign * np.exp(self.rng.uniform(-12, np.log(max(abs(low), abs(high))), shape))
        wide = np.where(self.rng.random(shape) < 0.2, np.round(wide), wide)
        wide = np.where(
            self.rng.random(shape) < 0.05, self.rng.choice([low, high, 0.0], shape), wide
        )
        return np.where(
            (wide < low) | (wide > high),
            self.rng.uniform(max(low, -1e3), min(high, 1e3), shape),
            wide,
        )

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if dtype in INTEGERS:
            info = np.iinfo(dtype)
            low, high = (info.min, info.max) if self.rng.random() < 0.3 else (max(info.min, -9), 9)
            return self.rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        return self.floats(shape, -1e3, 1e3)

    def array(self, values: np.ndarray, dtype: str, device: Any) -> Any:
        """On a device, converted there."""
        held = values.astype(np.float32) if dtype in NARROW else values.astype(dtype)
        return self.ow.asarray(held, device=device).astype(getattr(self.ow, dtype))

    def read(self, x: Any) -> np.ndarray:
        return np.asarray(x.astype(self.ow.float32) if x.dtype.name in NARROW else x)

    # ---- Comparison

    def ways(self, f: Any, arrays: list[np.ndarray], dtypes: list[str]) -> Any:
        """Name and result of every way to call f: on each device, eager and compiled."""
        # Kernels of the emulator are compiled for seconds.
        chosen = self.devices if self.rng.random() < EMULATED else self.devices[:1]
        for device in chosen:
            with device:
                arguments = [self.array(a, d, device) for a, d in zip(arrays, dtypes)]
                yield f"{device} eager", f(*arguments)
                yield f"{device} jit", self.ow.jit(f)(*arguments)

    def expect(self, judge: str, way: str, good: Any, what: str) -> None:
        self.counts[f"{judge}, {way.split('/')[-1]}"] += 1
        if not good:
            raise Wrong(f"{way}: {what}")

    def near(self, dtype: str, got: np.ndarray, want: np.ndarray, ulp: float) -> np.ndarray:
        """Where a result of a floating type is within `ulp` units of its last place."""
        bits, least = FLOATS[dtype]
        with np.errstate(all="ignore"):
            exponent = np.maximum(np.frexp(np.where(np.isfinite(want), want, 1))[1] - 1, least)
            apart = np.abs(got.astype(np.longdouble) - want)
            largest = np.ldexp(np.longdouble(2) - np.ldexp(np.longdouble(1), 1 - bits), 1 - least)
            overflow = (
                np.isinf(got)
                & (np.abs(want) > largest * (1 - np.ldexp(1.0, -bits)))
                & (np.sign(got) == np.sign(want))
            )
            close = apart <= ulp * np.ldexp(np.longdouble(1), exponent - bits + 1)
        return close | overflow | (got == want) | (np.isnan(got) & np.isnan(want))

    # ---- Kinds

    def functions(self) -> None:
        name = str(self.rng.choice([*EXACT, *CLOSE]))
        dtype = str(self.rng.choice(list(FLOATS)))
        shape = self.shape()
        low, high = CLOSE.get(name, (-1e6, 1e6))
        if name == "sqrt":
            low = 0
        if dtype == "float16":
            low, high = max(low, -6e4), min(high, 6e4)
        values = self.floats(shape, low, high)
        own = self.read(self.array(values, dtype, self.devices[0])).astype(np.longdouble)
        with np.errstate(all="ignore"):
            want = getattr(np, NUMPYS.get(name, name))(own)
        ulp = 0.5 if name in EXACT else 1 if dtype in NARROW else MOST_ULP
        f = getattr(self.ow, name)
        for way, made in self.ways(f, [values], [dtype]):
            got = self.read(made)
            good = self.near(dtype, got, want, ulp)
            self.expect(
                "NumPy: functions",
                way,
                good.all(),
                f"{name} {dtype} of {own[~good][:3]}: {got[~good][:3]}, expected {want[~good][:3]}",
            )
            if self.mpmath and dtype == "float64" and name in CLOSE and own.size:
                self.by_mpmath(way, name, own, got)

    def by_mpmath(self, way: str, name: str, own: np.ndarray, got: np.ndarray) -> None:
        mp = self.mpmath
        if name == "log2":
            f = lambda v: mp.log(v, 2)  # noqa: E731
        else:
            f = getattr(mp, name)
        with mp.workdps(60):
            for i in self.rng.integers(0, own.size, 8):
                x, y = float(own.flat[i]), float(got.flat[i])
                if not np.isfinite(y):
                    continue
                want = f(mp.mpf(x))
                good = abs(mp.mpf(y) - want) <= MOST_ULP * mp.mpf(
                    float(np.spacing(abs(y)) or 5e-324)
                )
                self.expect(
                    "mpmath: functions", way, good, f"{name} of {x!r}: {y!r}, expected {want}"
                )

    def pairs(self) -> None:
        name = str(self.rng.choice(PAIRS))
        shape = self.shape()
        other = tuple(
            1 if self.rng.random() < 0.2 else n
            for n in shape[int(self.rng.integers(0, len(shape) + 1)) :]
        )
        floating = (
            name not in ("add", "subtract", "multiply", "maximum", "minimum")
            or self.rng.random() < 0.6
        )
        dtype = str(self.rng.choice(list(FLOATS) if floating else list(INTEGERS)))
        a, b = self.numbers(dtype, shape), self.numbers(dtype, other)
        if name == "pow":
            a, b = np.abs(a), self.floats(other, -4, 4)
        first = self.devices[0]
        x, y = (self.read(self.array(v, dtype, first)) for v in (a, b))
        if floating:
            x, y = x.astype(np.longdouble), y.astype(np.longdouble)
        with np.errstate(all="ignore"):
            want = getattr(np, {"pow": "power", "atan2": "arctan2"}.get(name, name))(x, y)
        ulp = (
            0.5
            if name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
            else 1
            if dtype in NARROW
            else MOST_ULP
        )
        for way, made in self.ways(getattr(self.ow, name), [a, b], [dtype, dtype]):
            got = self.read(made)
            good = self.near(dtype, got, want, ulp) if floating else got == want
            if name == "logaddexp":  # near 0 it is the difference of two numbers that were rounded
                good |= np.abs(got - want) <= ulp * 2.0 ** (1 - FLOATS[dtype][0]) * np.maximum(
                    np.abs(x), np.abs(y)
                )
            self.expect(
                "NumPy: pairs",
                way,
                got.shape == want.shape and np.all(good),
                f"{name} {dtype} {shape} {other}: {got[~good][:3]}, expected {want[~good][:3]}",
            )

    def key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        parts: list[Any] = []
        for n in shape:
            draw = self.rng.random()
            if draw < 0.25 and n:
                parts.append(int(self.rng.integers(-n, n)))
            elif draw < 0.4 and n:
                parts.append(self.rng.integers(-n, n, int(self.rng.integers(1, 5))))
            else:
                ends = [
                    None if self.rng.random() < 0.3 else int(self.rng.integers(-n - 2, n + 3))
                    for _ in range(2)
                ]
                step = (
                    None if self.rng.random() < 0.4 else int(self.rng.choice([-3, -2, -1, 1, 2, 3]))
                )
                parts.append(slice(*ends, step))
        arrays = [i for i, p in enumerate(parts) if isinstance(p, np.ndarray)]
        for i in arrays:  # that index together
            parts[i] = np.resize(parts[i], parts[arrays[0]].shape)
        if self.rng.random() < 0.2:
            parts.insert(int(self.rng.integers(0, len(parts) + 1)), None)
        if self.rng.random() < 0.3:
            parts = [*parts[: int(self.rng.integers(0, len(parts) + 1))], ...]
        return tuple(parts)

    def indexing(self) -> None:
        dtype = str(self.rng.choice(["bool", *INTEGERS, *FLOATS]))
        shape = self.shape(4, 8)
        values = self.numbers(dtype, shape)
        held = self.read(self.array(values, dtype, self.devices[0]))
        key = self.key(shape)
        part = held[key]
        for way, made in self.ways(lambda x: x[key], [values], [dtype]):
            got = self.read(made)
            self.expect(
                "NumPy: x[key]",
                way,
                got.shape == part.shape and np.array_equal(got, part),
                f"{dtype} {shape}: {key}",
            )
        given = self.numbers(
            dtype,
            part.shape
            if self.rng.random() < 0.6
            else part.shape[part.ndim - int(self.rng.integers(0, part.ndim + 1)) :],
        )
        given = self.read(self.array(given, dtype, self.devices[0]))
        want = held.copy()
        want[key] = given

        def put(x: Any, v: Any) -> Any:
            y = x + 0 if dtype != "bool" else x | False
            y[key] = v
            return y

        for way, made in self.ways(put, [values, given], [dtype, dtype]):
            self.expect(
                "NumPy: x[key] = v",
                way,
                np.array_equal(self.read(made), want),
                f"{dtype} {shape}: {key}",
            )

    def reductions(self) -> None:
        name = str(self.rng.choice(REDUCTIONS))
        logical = name in ("any", "all")
        floating = not logical and (name in ("mean", "var", "std") or self.rng.random() < 0.5)
        types = FLOATS if floating else (*FLOATS, *INTEGERS, "bool") if logical else INTEGERS
        dtype = str(self.rng.choice(list(types)))
        shape = self.shape()
        axis = (
            int(self.rng.integers(-len(shape), len(shape)))
            if shape and (self.rng.random() < 0.7 or name == "cumulative_sum")
            else None
        )
        if (name == "cumulative_sum" and axis is None) or (
            name not in ("sum", "prod", "any", "all") and 0 in shape
        ):
            return
        values = self.floats(shape, -50, 50) if floating else self.numbers(dtype, shape)
        if name == "prod":
            values = (
                np.clip(np.sign(values) * np.abs(values) ** 0.05, -1.05, 1.05)
                if floating
                else values
            )
        held = self.read(self.array(values, dtype, self.devices[0]))
        wide = held.astype(np.longdouble) if floating else held
        numpys = {"cumulative_sum": "cumsum"}.get(name, name)
        with np.errstate(all="ignore"):
            want = np.asarray(getattr(np, numpys)(wide, axis=axis))
            # The error of a sum of that many terms, in the type in which they are added.
            terms = shape[axis] if axis is not None else held.size
            size = (
                np.asarray(np.sum(np.abs(wide), axis=axis, keepdims=name == "cumulative_sum"))
                if floating
                else None
            )
        for way, made in self.ways(
            lambda x: getattr(self.ow, name)(x, axis=axis), [values], [dtype]
        ):
            got = self.read(made)
            what = f"{name} {dtype} {shape} axis {axis}: {got.flat[:3]}, expected {want.flat[:3]}"
            self.expect("NumPy: reductions", way, got.shape == want.shape, what)
            if not floating or name in ("max", "min", "argmax", "argmin"):
                good = np.array_equal(got.astype(want.dtype), want)
            else:
                bits, least = FLOATS["float32" if dtype in NARROW else dtype]
                eps, own = 2.0 ** (1 - bits), FLOATS[dtype][0]
                scale = (
                    np.abs(want) * terms
                    if name == "prod"
                    else size
                    if name in ("sum", "cumulative_sum")
                    else size / max(terms, 1)
                )
                if name in ("var", "std"):
                    spread = np.max(np.abs(wide), initial=0)
                    scale = spread**2 if name == "var" else spread
                error = 4 * eps * (1 + np.log2(max(terms, 1))) * scale + 2.0**least
                error = np.sqrt(eps) * scale if name == "std" else error
                good = np.all(
                    np.abs(got - want)
                    <= error + 2.0 ** (1 - own) * np.abs(want) + 2.0 ** (FLOATS[dtype][1] - own + 1)
                )
            self.expect("NumPy: reductions", way, good, what)

    def gradients(self) -> None:
        """Of a chain of functions, in float64."""
        shape = (int(self.rng.integers(1, 5)), int(self.rng.integers(1, 5)))
        steps: list[tuple[str, Any]] = []
        for _ in range(int(self.rng.integers(2, 7))):
            steps.append(
                (
                    str(
                        self.rng.choice(
                            [
                                "sin",
                                "cos",
                                "tanh",
                                "exp",
                                "atan",
                                "asinh",
                                "square",
                                "abs",
                                "other",
                                "matmul",
                                "slice",
                                "softmax",
                                "sum",
                                "where",
                                "logaddexp",
                                "hypot",
                            ]
                        )
                    ),
                    int(self.rng.integers(0, 2)),
                )
            )
        x, w = self.rng.normal(size=shape), self.rng.normal(size=shape)
        f = _chain(steps)
        differences = _differences(lambda a: float(_loss(f, _NumPy(np, NUMPYS), a, w)), x)
        if self.torch:
            t = self.torch
            a = t.tensor(x, requires_grad=True)
            _loss(f, _Torch(t), a, t.tensor(w)).backward()
            want = a.grad.numpy()
            if not np.allclose(want, differences, rtol=1e-4, atol=1e-4 * (1 + np.abs(want).max())):
                return  # near a kink
        else:
            want = differences
        exact = 1e-9 if self.torch else 1e-4
        own = _Opwire(self.ow)
        for way, made in self.ways(
            self.ow.grad(lambda a, b: _loss(f, own, a, b)), [x, w], ["float64"] * 2
        ):
            got = np.asarray(made)
            self.expect(
                "PyTorch: gradients" if self.torch else "differences: gradients",
                way,
                np.allclose(got, want, rtol=exact, atol=exact * (1 + np.abs(want).max())),
                f"{steps} at {x.tolist()}, {w.tolist()}: {got}, expected {want}",
            )


def _module(name: str) -> Any:
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


# ---- The same chain in three libraries


class _Library:
    """A library's functions by NumPy's or opwire's names, and those that each has in its own way."""

    def __init__(self, module: Any, names: dict[str, str] | None = None) -> None:
        self.module, self.names = module, names or {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, self.names.get(name, name))


class _NumPy(_Library):
    def softmax(self, x: Any) -> Any:
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def total(self, x: Any, axis: int) -> Any:
        return x.sum(axis=axis, keepdims=True)

    def turn(self, x: Any) -> Any:
        return x.T


class _Torch(_Library):
    def softmax(self, x: Any) -> Any:
        return self.module.softmax(x, -1)

    def total(self, x: Any, axis: int) -> Any:
        return x.sum(axis, keepdim=True)

    def turn(self, x: Any) -> Any:
        return x.mT


class _Opwire(_Library):
    def softmax(self, x: Any) -> Any:
        return self.module.softmax(x, axis=-1)

    def total(self, x: Any, axis: int) -> Any:
        return x.sum(axis=axis, keepdims=True)

    def turn(self, x: Any) -> Any:
        return self.module.permute_dims(x, (1, 0))


def _chain(steps: list[tuple[str, Any]]) -> Any:
    def f(library: Any, x: Any, w: Any) -> Any:
        y = x
        for name, choice in steps:
            if name == "other":
                y = y * w if choice else y + library.sin(w) * y
            elif name == "matmul":
                y = library.matmul(library.matmul(y, library.turn(y)), x) * 0.1
            elif name == "slice":
                y = y + y[:1] if choice else y * y[:, -1:]
            elif name == "softmax":
                y = library.softmax(y) + y
            elif name == "sum":
                y = y + library.total(y, choice) * 0.5
            elif name == "where":
                y = library.where(y > 0.1, y, y * 0.3)
            elif name == "exp":
                y = library.exp(-y * y)
            elif name in ("logaddexp", "hypot"):
                y = getattr(library, name)(y, w)
            else:
                y = getattr(library, name)(y)
        return y

    return f


def _loss(f: Any, library: Any, x: Any, w: Any) -> Any:
    return library.sum(library.tanh(f(library, x, w)) * (w + 2))


def _differences(f: Any, x: np.ndarray) -> np.ndarray:
    made = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        made[i] = (f(x + step) - f(x - step)) / 2e-6
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--seed", type=int, default=0, help="of one round; 0: other rounds until the time is over"
    )
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        served(pathlib.Path(folder), "--device", "cpu", "--device", "emu:0") as environment,
    ):
        os.environ.update(environment)
        tester, rounds, until = Tester(), 0, time.monotonic() + given.seconds
        while time.monotonic() < until:
            seed = given.seed or int.from_bytes(os.urandom(4), "little")
            tester.rng = np.random.default_rng(seed)
            kind = str(tester.rng.choice(KINDS))
            try:
                getattr(tester, kind)()
            except Exception as e:
                print(f"--seed {seed}: {kind}: {type(e).__name__}: {e}")
                return 1
            rounds += 1
            if given.seed:
                break
    for name, count in sorted(tester.counts.items()):
        print(f"{count:8}  {name}")
    print(f"{rounds} rounds, {tester.counts.total()} comparisons, none differs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
