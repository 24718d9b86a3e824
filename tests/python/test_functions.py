"""Functions of elements at the ends of their domains and in all float types, eager and traced."""

from __future__ import annotations

import math

import numpy as np
import opwire as ow
import pytest

NARROW = (ow.float16, ow.bfloat16)


def both(f):
    """The function as it is, and compiled."""
    return f, ow.jit(f)


def of_type(values, dtype):
    """An array of a narrow type, and its values as float64."""
    x = ow.asarray(np.asarray(values, np.float32)).astype(dtype)
    return x, np.asarray(x.astype(ow.float32)).astype(np.float64)


def rounded(values, dtype):
    """float64 as the nearest of the type, as float64."""
    return np.asarray(ow.asarray(values).astype(dtype).astype(ow.float64))


def every(dtype):
    """Every number of a type of 16 bits."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    wide = (
        (bits << 16).view(np.float32)
        if dtype == ow.bfloat16
        else bits.astype(np.uint16).view(np.float16)
    )
    return of_type(wide, dtype)


def values(x):
    return np.asarray(x.astype(ow.float64))


def test_logarithms_are_exact_at_powers():
    for dtype, lowest, highest in ((np.float32, -149, 127), (np.float64, -1074, 1023)):
        powers = np.arange(lowest, highest + 1)
        x = np.ldexp(dtype(1), powers)
        for f in both(ow.log2):
            assert np.array_equal(np.asarray(f(ow.asarray(x))), powers)
    assert int(ow.log2(ow.asarray(64.0, dtype=ow.float64))) == 6
    for f in both(ow.log10):
        of_32, of_64 = np.arange(11), np.arange(23)  # the types do not hold further powers
        assert np.array_equal(np.asarray(f(ow.asarray((10.0**of_32).astype("f4")))), of_32)
        assert np.array_equal(np.asarray(f(ow.asarray(10.0**of_64))), of_64)


@pytest.mark.parametrize("name", ["log2", "log10"])
def test_logarithms_are_within_an_ulp(name, rng):
    for dtype in (np.float32, np.float64):
        x = np.concatenate(
            [np.exp(rng.uniform(-80, 80, 20_000)), 1 + rng.uniform(-0.01, 0.01, 5_000)]
        )
        x = x.astype(dtype)
        expected = getattr(np, name)(x.astype(np.longdouble))
        for f in both(getattr(ow, name)):
            error = np.abs(np.asarray(f(ow.asarray(x))).astype(np.longdouble) - expected)
            assert np.all(error <= np.spacing(np.abs(expected.astype(dtype))))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "name",
    ["log2", "log10", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "sqrt", "exp"],
)
def test_narrow_floats_are_rounded_once(name, dtype):
    x, wide = every(dtype)
    theirs = {
        "asin": "arcsin",
        "acos": "arccos",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
    }
    with np.errstate(all="ignore"):
        expected = rounded(getattr(np, theirs.get(name, name))(wide), dtype)
    for f in both(getattr(ow, name)):
        got = values(f(x))
        differ = (got != expected) & ~(np.isnan(got) & np.isnan(expected))
        # What f32 rounds to the middle of two neighbours may go to either, but not in logarithms.
        most = 0 if name in ("log2", "log10") else 10
        assert differ.sum() <= most, (wide[differ], got[differ], expected[differ])
        error = np.abs(got[differ] - expected[differ])
        assert np.all(error <= 2 * float(ow.finfo(dtype).eps) * np.abs(got[differ]))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_quotients_of_narrow_floats(dtype, rng):
    x, a = of_type(rng.normal(size=20_000) * 50, dtype)
    y, b = of_type(rng.normal(size=20_000) * 3, dtype)
    with np.errstate(all="ignore"):
        expected = rounded(a // b, dtype)
    for f in both(lambda x, y: x // y):
        assert np.array_equal(values(f(x, y)), expected)
        assert f(x, y).dtype == dtype


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_spreads_and_norms_of_many_narrow_floats(dtype, rng):
    x, wide = of_type(rng.normal(size=70_000) + 3, dtype)
    norm = float(np.sqrt(np.sum(wide**2)))
    for ours, expected in (
        (ow.var, wide.var()),
        (ow.std, wide.std()),
        (ow.linalg.vector_norm, norm),
        (lambda v: ow.linalg.vector_norm(v, ord=3), float(np.sum(np.abs(wide) ** 3)) ** (1 / 3)),
        (lambda v: ow.linalg.vector_norm(v[:3000], ord=0), 3000.0),
    ):
        for f in both(ours):
            assert float(f(x)) == pytest.approx(expected, rel=float(ow.finfo(dtype).eps))
    assert float(ow.linalg.vector_norm(ow.asarray([300.0, 400.0]).astype(dtype))) == 500
    factors, wide = of_type(1 + rng.normal(size=200) * 0.1, dtype)
    np.testing.assert_allclose(
        values(ow.cumulative_prod(factors)), np.cumprod(wide), rtol=float(ow.finfo(dtype).eps)
    )
    p, a = of_type(rng.normal(size=(50, 3)), dtype)
    q, b = of_type(rng.normal(size=(50, 3)), dtype)
    assert np.array_equal(
        values(ow.linalg.cross(p, q)), rounded(np.cross(a, b).astype("f4"), dtype)
    )


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_differences_and_powers_of_narrow_floats_round_once(dtype, rng):
    x, wide = of_type(rng.normal(size=(5, 400)) + 3, dtype)
    for n in (1, 2, 3):
        want = rounded(np.diff(wide.astype(np.float32), n=n).astype(float), dtype)
        for f in both(lambda x, n=n: ow.diff(x, n=n)):
            assert f(x).dtype == dtype and np.array_equal(values(f(x)), want), n
    m, wide = of_type(rng.normal(size=(20, 20)), dtype)
    for n in (0, 1, 2, 3, 5):
        want = np.linalg.matrix_power(wide, n)
        for f in both(lambda x, n=n: ow.linalg.matrix_power(x, n)):
            made = values(f(m))
            assert f(m).dtype == dtype
            # What float32 brings close to the middle of two numbers may go to either.
            assert (made != rounded(want, dtype)).sum() <= 4, n


@pytest.mark.parametrize("dtype", [*NARROW, ow.float32, ow.float64], ids=lambda d: d.name)
def test_ranges_of_floats_round_once(dtype):
    for bounds in ((0, 1, 0.001), (0, 3, 0.1), (5.0, -3, -0.01), (0, 4500, 0.001)):
        start, stop, step = bounds
        n = math.ceil((stop - start) / step)
        want = rounded(start + np.arange(n) * step, dtype)
        for f in both(lambda b=bounds: ow.arange(*b, dtype=dtype)):
            assert f().dtype == dtype and np.array_equal(values(f()), want), bounds
    n = (1 << 22) + 3
    line = values(ow.linspace(-3, 7, n, dtype=dtype))
    want = -3 + np.arange(n) * (10 / (n - 1))
    want[-1] = 7
    assert np.array_equal(line, rounded(want, dtype))


def test_large_ranges_store_no_wider_copy(client):
    none = np.zeros(1, np.uint8)
    for f in (
        lambda x: ow.arange(0, 1 << 23, 1.0, dtype=ow.float16),
        lambda x: ow.linspace(0, 1, 1 << 22),
        lambda x: ow.arange(1 << 22, dtype=ow.int32),
    ):
        assert fits(none, 20, f)
    assert fits(np.zeros(1 << 23, np.float16), 20, lambda x: ow.diff(x, n=2))
    assert ow.arange(300, 0, dtype=ow.uint8).shape == (0,)
    assert ow.arange(-100, 120, 200, dtype=ow.int8).tolist() == [-100, 100]
    assert ow.arange(250, 0, -100, dtype=ow.uint8).tolist() == [250, 150, 50]
    assert ow.arange(-30000, 30000, 29000, dtype=ow.int16).tolist() == [-30000, -1000, 28000]


def test_shifts_have_the_arrays_type():
    for dtype in (ow.int8, ow.int32, ow.uint16, ow.int64):
        x = ow.asarray([1, 2, 4], dtype=dtype)
        for count in (np.bool_(True), ow.asarray(True), ow.asarray([1, 1, 1], dtype=ow.int8), 1):
            for made in (x >> count, x << count):
                assert made.dtype == ow.result_type(x, count)
        assert (x >> np.bool_(True)).tolist() == [0, 1, 2]


def test_gradients_at_the_ends():
    inf = math.inf
    for f, at, theirs in (
        (ow.asin, (1.0,), (inf,)),
        (ow.asin, (-1.0,), (inf,)),
        (ow.acos, (1.0,), (-inf,)),
        (ow.acosh, (1.0,), (inf,)),
        (ow.atanh, (1.0,), (inf,)),
        (ow.asinh, (1e30,), (1e-30,)),
        (ow.acosh, (1e30,), (1e-30,)),
        (ow.log2, (0.0,), (inf,)),
        (ow.hypot, (0.0, 0.0), (0.0, 0.0)),
        (ow.hypot, (2.0, inf), (0.0, 1.0)),
        (ow.hypot, (-inf, 2.0), (-1.0, 0.0)),
        (ow.hypot, (3e30, 4e30), (0.6, 0.8)),
        (ow.atan2, (3e30, 4e30), (0.16e-30, -0.12e-30)),
        (ow.atan2, (1e-30, 1e-30), (5e29, -5e29)),
        (ow.atan2, (2.5e38, 2.5e38), (2e-39, -2e-39)),
        (ow.hypot, (2.5e38, -2.5e38), (0.5**0.5, -(0.5**0.5))),
        (ow.atan2, (1.0, inf), (0.0, 0.0)),
        (ow.atan2, (inf, 1.0), (0.0, 0.0)),
        (ow.atan2, (0.0, 0.0), (0.0, 0.0)),
        (ow.logaddexp, (inf, inf), (0.5, 0.5)),
        (ow.logaddexp, (-inf, -inf), (0.5, 0.5)),
        (ow.logaddexp, (-inf, 1.0), (0.0, 1.0)),
        (ow.logaddexp, (1000.0, 0.0), (1.0, 0.0)),
    ):
        made = ow.grad(f, argnums=tuple(range(len(at))))(*(ow.asarray(v) for v in at))
        assert [float(g) for g in made] == pytest.approx(theirs, rel=2e-6, abs=0), (f.__name__, at)


def test_clip_at_its_ends():
    x = ow.asarray([-1.0, 0.0, 0.5, 1.0, 2.0, math.nan, -math.inf, math.inf])
    for bounds, gradient in (
        ((0, 1), [0, 1, 1, 1, 0, 1, 0, 0]),
        ((0, None), [0, 1, 1, 1, 1, 1, 0, 1]),
        ((None, 1.0), [1, 1, 1, 1, 0, 1, 1, 0]),
        ((1, 0), [0, 0, 0, 0, 0, 1, 0, 0]),
    ):
        for f in both(lambda x, b=bounds: ow.clip(x, *b)):
            np.testing.assert_array_equal(np.asarray(f(x)), np.clip(np.asarray(x), *bounds))
        for convert in (
            lambda v: v,
            np.float32,
            np.float64,
            ow.asarray,
            lambda v: ow.full((8,), float(v)),
        ):
            of = [None if v is None else convert(v) for v in bounds]
            assert ow.grad(lambda x, b=of: ow.clip(x, *b).sum())(x).tolist() == gradient, of
            np.testing.assert_array_equal(
                np.asarray(ow.clip(x, *of)), np.clip(np.asarray(x), *bounds)
            )
    for number in (1, 1.0):
        by_number = ow.grad(lambda x, low: ow.clip(x, low, None).sum())
        assert by_number(ow.asarray([0.5, 1.0, 2.0]), number).tolist() == [0, 1, 1]
    low, high = ow.grad(lambda lo, hi: ow.clip(x[:5], lo, hi).sum(), argnums=(0, 1))(
        ow.asarray(0.0), ow.asarray(1.0)
    )
    assert (float(low), float(high)) == (1, 1)
    bounds = ow.asarray([1.0, math.nan])
    for f in both(ow.clip):
        np.testing.assert_array_equal(np.asarray(f(ow.asarray([0.5, 0.5]), bounds)), [1, math.nan])
        assert f(ow.asarray([0.5]).astype(ow.float16), ow.asarray([1.0])).dtype == ow.float16
        assert f(ow.asarray([1, 5]), ow.asarray([2.0])).tolist() == [2, 5]


def test_gradients_of_norms_at_zero():
    for order in (0.5, 1.5, 2, 3, 4, -1):
        norm = lambda x, order=order: ow.linalg.vector_norm(x, ord=order)  # noqa: E731
        assert ow.grad(norm)(ow.zeros(2)).tolist() == [0, 0], order
        x = ow.asarray([[0.0, 2.0], [0.0, 0.0]])
        rows = ow.grad(lambda x, o=order: ow.linalg.vector_norm(x, ord=o, axis=1).sum())(x)
        theirs = [[0, 0 if order < 0 else 1], [0, 0]]
        np.testing.assert_allclose(np.asarray(rows), theirs, rtol=1e-6, err_msg=str(order))
        values = np.linalg.norm([0.0, 3.0, 4.0], ord=order), np.linalg.norm([2.0, 3.0], ord=order)
        assert float(norm(ow.asarray([0.0, 3.0, 4.0]))) == pytest.approx(values[0])
        assert float(norm(ow.asarray([2.0, 3.0]))) == pytest.approx(values[1])


def test_gradients_of_norms_at_infinity():
    inf = math.inf
    for order in (0.5, 1, 1.5, 2, 3):
        norm = ow.grad(lambda x, order=order: ow.linalg.vector_norm(x, ord=order))
        assert norm(ow.asarray([2.0, inf])).tolist() == [0 if order != 1 else 1, 1], order
        assert norm(ow.asarray([-inf, 0.0])).tolist()[0] == -1, order
    assert math.isnan(float(ow.jit(ow.linalg.vector_norm)(ow.asarray([math.nan, inf]))))
    assert float(ow.jit(ow.linalg.vector_norm)(ow.asarray([-inf, 1.0]))) == inf


def test_gradients_of_quotients_rounded_down():
    inf, nan = math.inf, math.nan
    a = ow.asarray([1.0, -1.0, 0.0, inf, -inf, 5.0, nan, inf, 3e38])
    b = ow.asarray([0.0, 0.0, 0.0, 2.0, inf, inf, 2.0, 0.0, 1e-3])
    for x, y in ((a, b), (b, a), (a.astype(ow.float16), b.astype(ow.float16))):
        for g in ow.grad(lambda x, y: (x // y).sum(), argnums=(0, 1))(x, y):
            assert not np.any(np.asarray(g)), (x, y)
    quotients = [inf, -inf, nan, inf, nan, 0, nan, inf, inf]
    for f in both(lambda x, y: x // y):
        np.testing.assert_array_equal(np.asarray(f(a, b)), quotients)


def test_gradients_of_products():
    for x, theirs in (
        ([2.0, 3.0, 4.0], [12, 8, 6]),
        ([2.0, 0.0, 4.0], [0, 8, 0]),
        ([0.0, 0.0, 4.0], [0, 0, 0]),
        ([0.0, math.inf], [math.inf, 0]),
        ([], []),
    ):
        assert ow.grad(ow.prod)(ow.asarray(x, dtype=ow.float32)).tolist() == theirs
    x, wide = of_type([200.0, 300.0, 1e-3], ow.float16)
    np.testing.assert_allclose(
        values(ow.grad(ow.prod)(x)), rounded(np.prod(wide) / wide, ow.float16), rtol=1e-3
    )


@pytest.mark.parametrize("dtype", [ow.float32, ow.float64, ow.bfloat16], ids=lambda d: d.name)
def test_gradients_of_gradients_of_products_beside_zeros(dtype):
    for x in ([2, 3, 4], [2, 0, 4], [0, 0, 4], [2, 0, 0, 3], [0, 0, 0, 5]):
        for i in range(len(x)):
            gradient = ow.grad(lambda v, i=i: ow.grad(ow.prod)(v)[i])
            theirs = [
                0 if j == i else math.prod(e for k, e in enumerate(x) if k not in (i, j))
                for j in range(len(x))
            ]
            assert gradient(ow.asarray(x, dtype=dtype)).tolist() == theirs, (x, i)


def test_infinities_and_zeros():
    inf, nan = math.inf, math.nan
    for f, arguments, expected in (
        (ow.hypot, (inf, nan), inf),
        (ow.hypot, (nan, -inf), inf),
        (ow.hypot, (nan, 1.0), nan),
        (ow.hypot, (3e38, 0.0), 3e38),
        (ow.logaddexp, (-inf, -inf), -inf),
        (ow.logaddexp, (inf, -inf), inf),
        (ow.logaddexp, (nan, inf), nan),
        (ow.acosh, (-1e30,), nan),
        (ow.acosh, (0.5,), nan),
        (ow.acosh, (inf,), inf),
        (ow.atanh, (2.0,), nan),
        (ow.asinh, (-inf,), -inf),
        (ow.log2, (0.0,), -inf),
        (ow.log10, (-1.0,), nan),
    ):
        for dtype in (ow.float32, ow.float64, *NARROW):
            for g in both(f):
                made = g(*(ow.asarray(v, dtype=ow.float32).astype(dtype) for v in arguments))
                want = float(ow.asarray(expected, dtype=ow.float32).astype(dtype))
                assert float(made) == want or (math.isnan(want) and math.isnan(float(made))), (
                    f.__name__,
                    arguments,
                    dtype,
                )


@pytest.mark.parametrize("columns", [1 << 20, (1 << 16) + 5])
def test_long_rows_of_float32(columns, rng):
    """Means far from 0, which sequential sums lose. Numbers of float32 near 100 are 7.6e-6 apart."""
    a = (100 + rng.standard_normal((2, columns))).astype(np.float32)
    x, exact = ow.asarray(a), a.astype(np.float64)
    away = exact - exact.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5)
    for f in both(lambda x: x.mean(axis=-1)) + both(lambda x: x.sum(axis=-1) / columns):
        assert np.abs(np.asarray(f(x)) - exact.mean(-1)).max() < 1e-5

    def plain(x):
        d = x - x.mean(axis=-1, keepdims=True)
        return d * ow.rsqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)

    half = x / 2
    for f in (*both(ow.layer_norm), *both(plain), ow.jit(lambda x: ow.layer_norm(half + half))):
        assert np.abs(np.asarray(f(x)) - away * scale).max() < 1.5e-5

    g = rng.standard_normal(a.shape)
    normal = away * scale
    by_x = (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) * scale
    weights = ow.asarray(g.astype(np.float32))
    for f in (ow.layer_norm, plain):
        got = ow.grad(lambda x, f=f: (f(x) * weights).sum())(x)
        assert np.abs(np.asarray(got) - by_x).max() < 1.5e-5


@pytest.mark.parametrize("terms", [1 << 20, (1 << 16) + 5, 100])
def test_long_dot_products_of_float32(terms, rng):
    a = (100 + rng.standard_normal((2, terms))).astype(np.float32)
    x, exact = ow.asarray(a), a.astype(np.float64)
    for f in both(ow.vecdot):
        want = (exact * exact[::-1]).sum(-1)
        assert np.abs(np.asarray(f(x, x[::-1])) / want - 1).max() < 1e-6
        want = (exact * exact[0]).sum(-1)
        for made in (f(x, x[0]), f(x[0], x)):
            assert np.abs(np.asarray(made) / want - 1).max() < 1e-6
    for f in both(ow.matmul):
        assert abs(float(f(x[0], x[1])) / (exact[0] * exact[1]).sum() - 1) < 1e-6
        assert np.abs(np.asarray(f(x, x[0])) / (exact @ exact[0]) - 1).max() < 1e-6


@pytest.mark.parametrize("dtype", [ow.float16, ow.bfloat16, ow.float64])
@pytest.mark.parametrize("terms", [0, 1, 37, 3001, 200_000])
def test_dot_products_are_rounded_once(dtype, terms, rng):
    """Sums of integers that 16 bits do not hold, but float32 does."""
    a = (rng.integers(1, 4, (3, terms)) * (rng.random((3, terms)) < 0.15)).astype(np.float32)
    x = ow.asarray(a, dtype=dtype)
    want = ow.asarray((a * a[::-1]).sum(-1), dtype=dtype)
    assert ow.vecdot(x, x[::-1]).tolist() == want.tolist()
    assert (x @ x[0]).tolist() == ow.asarray(a @ a[0], dtype=dtype).tolist()


def test_reductions_of_large_arrays_store_no_converted_copy(client, rng):
    limited = ow.connect(memory_bytes=24 << 20)
    try:
        a = rng.integers(0, 200, (2048, 8192)).astype(np.uint8)
        x = ow.asarray(a)  # 16 MiB
        assert float(ow.mean(x)) == pytest.approx(a.mean(), rel=1e-6)
        np.testing.assert_allclose(np.asarray(ow.mean(x, axis=0)), a.mean(axis=0), rtol=1e-6)
        assert bool(ow.any(x)) and not bool(ow.all(x))
        assert ow.any(x, axis=1, keepdims=True).tolist() == a.any(axis=1, keepdims=True).tolist()
        del x
        half = (a[:, :4096] / 8).astype(np.float16)
        y, exact = ow.asarray(half), half.astype(np.float64)  # 16 MiB
        for axis in (None, 0, 1):
            np.testing.assert_allclose(
                np.asarray(ow.var(y, axis=axis, correction=1)),
                exact.var(axis=axis, ddof=1),
                rtol=1e-3,
            )
            np.testing.assert_allclose(
                np.asarray(ow.std(y, axis=axis)), exact.std(axis=axis), rtol=1e-3
            )
    finally:
        limited.close()
        ow.connect()


def fits(x, spare, f):
    """Whether f(x) runs in a session that holds x, `spare` MiB and no more."""
    limited = ow.connect(memory_bytes=x.nbytes + (spare << 20))
    try:
        made = f(ow.asarray(x))
        np.asarray(made if made.ndim == 0 else made[(0,) * made.ndim])
        return True
    except MemoryError:
        return False
    finally:
        made = None
        limited.close()
        ow.connect()


@pytest.mark.parametrize("x", [np.zeros(1 << 24, bool), np.zeros(1 << 24, np.uint8)])
@pytest.mark.parametrize("number", [0, 1, 300, -1, 0.5, math.nan, np.int64(300)])
def test_comparisons_of_large_arrays_store_no_converted_copy(client, x, number):
    x = x.copy()
    x[::3] = 1
    y = ow.asarray(x)
    for compare in (
        ow.equal,
        ow.not_equal,
        ow.less,
        ow.less_equal,
        ow.greater,
        ow.greater_equal,
    ):
        few, many = compare(y[:100], number), compare(y, number)
        assert many.dtype == ow.bool and many[:100].tolist() == few.tolist(), compare.__name__
        assert compare(number, y)[:100].tolist() == compare(number, y[:100]).tolist()
        assert fits(x, 20, lambda x, c=compare: c(x, number)), compare.__name__
    assert fits(x, 22, lambda x: x < ow.zeros((1,), dtype=ow.float32))


def test_sums_of_large_arrays_store_no_converted_copy(client, rng):
    bits = rng.integers(0, 2, 1 << 24).astype(bool)
    few = (bits * 3).astype(np.uint8)
    half = (few[: 1 << 23] / 8).astype(np.float16)
    single = half[: 1 << 22].astype(np.float32)
    for x, f, want in (
        (bits, ow.count_nonzero, bits.sum()),
        (few, ow.count_nonzero, bits.sum()),
        (half, ow.linalg.vector_norm, np.linalg.norm(half.astype(float))),
        (single, ow.linalg.vector_norm, np.linalg.norm(single.astype(float))),
        (
            single,
            lambda x: ow.linalg.vector_norm(x, ord=3),
            np.cbrt((single.astype(float) ** 3).sum()),
        ),
        (half, lambda x: ow.vecdot(x, x), None),
        (half, lambda x: x @ x, None),
        (half, lambda x: ow.tensordot(x, x, axes=1), None),
        (few.reshape(4096, 4096), ow.linalg.diagonal, None),
        (few, lambda x: ow.any(ow.isin(x, ow.asarray([7], dtype=ow.uint8))), 0),
    ):
        assert fits(x, 20 if f is not ow.count_nonzero else 1, f)
        if want is not None:
            assert float(f(ow.asarray(x))) == pytest.approx(want, rel=1e-3)
    assert fits(few.reshape(4096, 4096), 20, ow.tril)
    assert fits(few, 68, lambda x: ow.cumulative_sum(x, dtype=ow.float32))
    x = ow.asarray(few.reshape(4096, 4096))
    assert ow.count_nonzero(x, axis=1).tolist() == (few.reshape(4096, 4096) != 0).sum(1).tolist()
    assert np.array_equal(np.asarray(ow.tril(x, k=3)), np.tril(few.reshape(4096, 4096), 3))
    assert (ow.asarray([True, False]) ** 2).tolist() == [1, 0]


@pytest.mark.parametrize(
    "extents", [(0, 4, 1604), (4, 0, 1604), (4, 1604, 0), (0, 3, 5), (0, 0, 7)]
)
def test_programs_of_no_elements(extents):
    a = np.zeros(extents, np.float32)
    x = ow.asarray(a)
    for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2), None):
        for name in ("sum", "all", "any", "prod"):
            want = getattr(np, name)(a, axis=axis)
            for f in both(lambda x, name=name, axis=axis: getattr(ow, name)(x * 2, axis=axis)):
                np.testing.assert_array_equal(np.asarray(f(x)), want)
        for f in both(lambda x, axis=axis: (x - ow.mean(x * 2, axis=axis, keepdims=True)) + 1):
            assert f(x).shape == extents
    for f in both(lambda x: ow.permute_dims(x * 2, (2, 0, 1)) + 1):
        assert f(x).shape == (extents[2], *extents[:2])
    for f in both(lambda x: ow.exp(x @ ow.matrix_transpose(x)) + 1):
        np.testing.assert_array_equal(np.asarray(f(x)), np.exp(a @ a.swapaxes(1, 2)) + 1)
