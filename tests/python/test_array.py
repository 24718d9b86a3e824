"""Arrays against NumPy: creation, operators, promotion, indexing, import and export."""

import asyncio
import copy
import gc
import math
import operator
import pickle
import re
import sys

import numpy as np
import opwire as ow
import pytest

pytestmark = pytest.mark.usefixtures("client")


def test_the_devices_print_and_compare(client):
    first = client.devices[0]
    assert (
        str(first) == f"here/{first.name}"
        and first == client.devices[0]
        and hash(first) == hash(client.devices[0])
    )
    assert ow.device(str(first)) is first and ow.device(first.name) is first
    with pytest.raises(ValueError, match="no device 'moon'"):
        ow.device("moon")


@pytest.mark.parametrize(
    "name",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ],
)
def test_numpy_arrays_go_in_and_come_out(name, rng):
    for shape in [(), (0,), (1,), (3, 0, 2), (5, 7), (2, 3, 4, 5), (300, 400)]:
        a = (
            rng.integers(0, 2, shape).astype(name)
            if name == "bool"
            else (rng.random(shape) * 100).astype(name)
        )
        x = ow.asarray(a)
        assert (
            x.shape == shape and x.dtype.name == name and x.size == a.size and x.nbytes == a.nbytes
        )
        back = np.asarray(x)
        assert back.dtype == a.dtype
        np.testing.assert_array_equal(back, a)
    np.testing.assert_array_equal(np.asarray(ow.asarray(a[:, ::-2])), a[:, ::-2])
    np.testing.assert_array_equal(np.asarray(ow.asarray(np.asfortranarray(a))), a)


def test_types_that_numpy_lacks():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([1.0, 2.5, -3.0, 448.0], np.float32)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        x = ow.asarray(a).astype(name)
        np.testing.assert_array_equal(
            np.asarray(x).astype(np.float32), a.astype(getattr(ml_dtypes, name)).astype(np.float32)
        )
        y = ow.asarray(a.astype(getattr(ml_dtypes, name)))
        assert y.dtype.name == name
        np.testing.assert_array_equal(
            np.asarray(y.astype("float32")), np.asarray(x.astype("float32"))
        )
    assert "2.5" in repr(ow.asarray(a).astype(ow.bfloat16))
    assert float(ow.asarray(2.5, dtype=ow.bfloat16)) == 2.5


def test_numbers_make_the_default_types():
    assert (
        ow.asarray(1.5).dtype == ow.float32
        and ow.asarray(3).dtype == ow.int64
        and ow.asarray(True).dtype == ow.bool
    )
    assert ow.asarray([[1, 2], [3, 4.5]]).dtype == ow.float32
    assert ow.asarray([ow.asarray(1.0), ow.asarray(2.0)]).shape == (2,)
    assert int(ow.asarray(2**63 + 5, dtype=ow.uint64)) == 2**63 + 5
    assert int(ow.full((), 2**62 + 1)) == 2**62 + 1
    with pytest.raises(TypeError, match="complex"):
        ow.asarray(1j)
    with pytest.raises(TypeError, match="no arrays of"):
        ow.asarray(["a"])


def test_what_two_types_make():
    assert (ow.ones(2, dtype=ow.int8) + ow.ones(2, dtype=ow.uint8)).dtype == ow.int16
    assert (ow.ones(2, dtype=ow.int32) + ow.ones(2)).dtype == ow.float32
    assert (ow.ones(2, dtype=ow.float16) + ow.ones(2, dtype=ow.bfloat16)).dtype == ow.float32
    assert (ow.ones(2, dtype=ow.float64) * 2).dtype == ow.float64
    assert (ow.ones(2, dtype=ow.uint8) + 2).dtype == ow.uint8
    assert (ow.ones(2, dtype=ow.int32) / 2).dtype == ow.float32
    assert (ow.ones(2, dtype=ow.int32) + 0.5).dtype == ow.float32
    assert (ow.ones(2, dtype=ow.bool) + 1).dtype == ow.int64
    with pytest.raises(TypeError, match="no common type"):
        ow.ones(2, dtype=ow.uint64) + ow.ones(2, dtype=ow.int64)
    with pytest.raises(OverflowError, match="300 is out of bounds for uint8"):
        ow.ones(2, dtype=ow.uint8) + 300
    assert ow.result_type(ow.float32, ow.int8, 1.0) == ow.float32


def test_comparisons_with_numbers_that_the_type_does_not_hold():
    x, u = ow.asarray([-128, 0, 127], dtype=ow.int8), ow.asarray([0, 2**64 - 1], dtype=ow.uint64)
    assert (x == 300).tolist() == [False] * 3 and (x != 300).tolist() == [True] * 3
    assert (
        (x < 300).tolist() == [True] * 3
        and (-300 <= x).tolist() == [True] * 3
        and (300 < x).tolist() == [False] * 3
    )
    assert (
        (u == 2**64).tolist() == [False, False]
        and (u < 2**64).tolist() == [True, True]
        and (u > -1).tolist() == [True, True]
    )
    assert ow.jit(lambda x: x < 300)(x).tolist() == [True] * 3
    with pytest.raises(OverflowError):
        x + 300


def test_what_int64_does_not_hold_and_lists():
    with pytest.raises(ValueError, match="rank 16"):
        ow.ones((1,) * 17)
    with pytest.raises(ValueError, match="-1"):
        ow.eye(3, -1)
    with pytest.raises(OverflowError, match=str(2**70)):
        ow.asarray(2**70)
    with pytest.raises(TypeError, match="a list beside an array"):
        _ = ow.arange(3) == [0, 1, 2]


def test_copies_are_other_arrays():
    x = ow.asarray([1.0, 2.0])
    for other in (copy.copy(x), copy.deepcopy({"x": x})["x"]):
        other[0] = 5
        assert x.tolist() == [1, 2] and other.tolist() == [5, 2]


def test_operands_that_are_no_arrays():
    x = ow.ones(3)
    for f in (ow.add, ow.maximum, ow.pow, ow.less, ow.remainder, ow.atan2):
        for other in ([1, 2, 3], None, "a", object()):
            with pytest.raises(TypeError, match="expected arrays and numbers"):
                f(x, other)

    class Other:
        def __rpow__(self, base):
            return "rpow"

    assert x ** Other() == "rpow" and (2**x).tolist() == [2, 2, 2]


def test_division_of_integers_beside_numpy(rng):
    n, m = rng.integers(1, 100, 7), rng.integers(1, 100, 7)
    expected = (n / m).astype(np.float32)
    for made in (
        ow.asarray(n) / m,
        n / ow.asarray(m),
        ow.asarray(n) / ow.asarray(m),
        ow.divide(n, m),
        ow.divide(ow.asarray(n), m),
    ):
        assert made.dtype == ow.float32 and np.array_equal(np.asarray(made), expected)
    assert (
        np.allclose(np.asarray(ow.hypot(n * 1.0, m * 1.0)), np.hypot(n, m))
        and np.asarray(ow.isin(n, n)).all()
    )


def test_operands_of_numpy_join_the_others_device(client):
    n = np.arange(4)
    dev = client.devices[0]
    x = ow.asarray(n, device=dev)
    ow.connect()
    assert ow.asarray(0).session is not x.session
    for made in (
        n @ x,
        n / x,
        x / n,
        ow.take(x, n),
        ow.take_along_axis(x, n, axis=0),
        ow.searchsorted(n, x),
        ow.searchsorted(x, n),
        ow.isin(n, x),
        ow.tensordot(n, x, axes=1),
        ow.hypot(n * 1.0, x.astype(ow.float64)),
    ):
        assert made.device == dev
    x[[1]] = 5
    assert x.tolist() == [0, 5, 2, 3]


def test_numbers_that_the_type_does_not_hold():
    x = ow.zeros(3, dtype=ow.uint8)
    for f in (
        lambda: ow.asarray(300, dtype=ow.uint8),
        lambda: ow.asarray([1, -1], dtype=ow.uint8),
        lambda: ow.full((2,), 300, dtype=ow.uint8),
        lambda: ow.full((2,), 2**63),
        lambda: ow.full_like(x, -1),
        lambda: ow.arange(298, 302, dtype=ow.uint8),
        lambda: ow.arange(-1, 2, dtype=ow.uint64),
        lambda: x.__setitem__(0, 300),
    ):
        with pytest.raises(OverflowError):
            f()
    assert (
        ow.full((2,), 2**60 + 1).tolist() == [2**60 + 1] * 2
        and ow.full((), 2**64 - 1, dtype=ow.uint64).tolist() == 2**64 - 1
    )
    assert ow.asarray(np.asarray([300]), dtype=ow.uint8).tolist() == [44]
    assert ow.arange(2**60 + 1, 2**60 + 4).tolist() == [2**60 + 1, 2**60 + 2, 2**60 + 3]
    assert ow.arange(2**64 - 2, 2**64, dtype=ow.uint64).tolist() == [
        2**64 - 2,
        2**64 - 1,
    ] and ow.arange(3, 0, -1, dtype=ow.uint64).tolist() == [3, 2, 1]


def test_results_are_other_arrays():
    for shape in ((3,), (1,), (1, 3)):
        x = ow.ones(shape)
        for f in (
            lambda x: ow.roll(x, x.size),
            lambda x: ow.roll(x, 0, axis=0),
            lambda x: ow.flip(x, axis=0),
            lambda x: ow.diff(x, n=0),
            lambda x: ow.cumulative_prod(x, axis=0),
            lambda x: ow.full(shape, x),
            lambda x: ow.meshgrid(x.reshape(-1))[0],
            lambda x: ow.meshgrid(x)[0],
            lambda x: ow.tile(x, (1,)),
            lambda x: ow.repeat(x, 1),
            lambda x: ow.concat([x]),
            lambda x: ow.clip(x),
            lambda x: x[...],
        ):
            y = f(x)
            y[...] = 5
            assert x.tolist() == np.ones(shape).tolist()
    v = ow.ones(3)
    x = ow.zeros(3)
    x[...] = v
    ow.jit(lambda x: x + 10, donate_argnames="x")(x)
    assert v.tolist() == [1, 1, 1]


def test_wrong_counts():
    x = ow.arange(2)
    for counts in ([3, -1], [1, 2, 3], [[1, 2]]):
        with pytest.raises(ValueError, match="repeat: expected"):
            ow.repeat(x, ow.asarray(counts))
    assert ow.repeat(x, ow.asarray([0, 2])).tolist() == [1, 1]
    with pytest.raises(ValueError, match="stack: expected"):
        ow.stack([])


def test_numbers_beside_doubles_are_doubles(rng):
    a = rng.normal(size=7)
    x = ow.asarray(a)
    for f, expected in (
        (lambda x: x % 0.1, a % 0.1),
        (lambda x: x // 0.1, a // 0.1),
        (lambda x: ow.hypot(x, 0.1), np.hypot(a, 0.1)),
        (lambda x: ow.logaddexp(0.1, x), np.logaddexp(0.1, a)),
        (lambda x: ow.copysign(0.1, x), np.copysign(0.1, a)),
        (lambda x: ow.isin(x, float(a[3])), np.isin(a, a[3])),
        (
            lambda x: ow.searchsorted(ow.sort(x), float(a[3]), side="right"),
            np.searchsorted(np.sort(a), a[3], side="right"),
        ),
    ):
        assert np.allclose(np.asarray(f(x)), expected, rtol=1e-14, atol=1e-15)


def test_axes_and_shapes_of_numpys_integers():
    one, x = np.int64(1), ow.ones((2, 3))
    made = (
        ow.zeros(np.int64(3)),
        x.sum(axis=one),
        ow.squeeze(x[:, :1], axis=one),
        ow.expand_dims(x, axis=one),
        ow.roll(x, one, axis=one),
        ow.max(x, axis=one),
        ow.tensordot(x, x.T, axes=one),
        ow.random.uniform(ow.random.key(1), one),
    )
    assert [v.shape for v in made] == [(3,), (2,), (2,), (2, 1, 3), (2, 3), (2,), (2, 2), (1,)]
    for bad in ((2.5,), "ab"):
        with pytest.raises(TypeError):
            ow.zeros(bad)
    for f in (ow.argmax, ow.argmin, ow.max):
        with pytest.raises(ValueError, match="no elements"):
            f(ow.zeros((0,)))
    with pytest.raises(BufferError):
        np.from_dlpack(x, copy=False)


def test_large_numbers():
    x = ow.asarray([1.0, 2.0])
    for n in (2**63, 2**64, -(2**70)):
        assert (x + n).tolist() == [float(np.float32(n))] * 2 == ow.jit(lambda x: x + n)(x).tolist()
    assert (ow.asarray([1], dtype=ow.uint64) + (2**64 - 2)).tolist() == [2**64 - 1]
    for f in (
        lambda: x + 2**2000,
        lambda: ow.jit(lambda x: x + 2**2000)(x),
        lambda: ow.asarray([1]) + 2**63,
        lambda: ow.jit(lambda n: n + 1)(2**63),
    ):
        with pytest.raises(OverflowError):
            f()


def test_operators_with_numpy_arrays_stay_here():
    x, a = ow.asarray([1.0, 2.0]), np.array([3.0, 4.0], np.float32)
    for made in (x + a, a + x, x * np.float32(2), np.float32(2) * x):
        assert isinstance(made, ow.Array)
    np.testing.assert_array_equal(np.asarray(a - x), [2, 2])


OPERATORS = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!="]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_broadcast_as_numpy_does(op, rng):
    shapes = [
        ((), (3,)),
        ((3,), ()),
        ((4, 1), (3,)),
        ((2, 3), (2, 3)),
        ((5, 1, 2), (4, 1)),
        ((0, 3), (3,)),
    ]
    for dtype in (np.float32, np.int32):
        for sa, sb in shapes:
            a, b = (rng.integers(-9, 9, s).astype(dtype) for s in (sa, sb))
            b = np.where(b == 0, 3, b).astype(dtype)
            expected = eval(f"a {op} b")
            made = np.asarray(
                eval("x op y".replace("op", op), {"x": ow.asarray(a), "y": ow.asarray(b)})
            )
            np.testing.assert_allclose(made, expected.astype(made.dtype), rtol=1e-6)
            made = np.asarray(eval(f"x {op} 3", {"x": ow.asarray(a)}))
            np.testing.assert_allclose(made, eval(f"a {op} 3").astype(made.dtype), rtol=1e-6)
            made = np.asarray(eval(f"3 {op} x", {"x": ow.asarray(b)}))
            np.testing.assert_allclose(made, eval(f"3 {op} b").astype(made.dtype), rtol=1e-6)


def random_key(rng, shape):
    """Returns a key that NumPy accepts for this shape."""
    parts = []
    arrays = 0
    for n in shape:
        kind = rng.integers(0, 7)
        if kind == 0:
            parts.append(int(rng.integers(-n, n)))
        elif kind <= 3:
            step = int(rng.choice([1, 1, 2, 3, -1, -2]))
            bounds = [
                None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)
            ]
            parts.append(slice(*bounds, step))
        elif kind == 4 and arrays < 2:
            arrays += 1
            parts.append(rng.integers(-n, n, (2, 3) if arrays == 1 else (3,)))
        elif kind == 5 and arrays == 0:
            arrays += 1
            parts.append(rng.random(n) < 0.5)
        else:
            parts.append(slice(None))
        if rng.random() < 0.15:
            parts.append(None)
    if rng.random() < 0.3:
        cut = int(rng.integers(0, len(parts) + 1))
        while cut < len(parts) and (parts[cut] is None):
            cut += 1
        parts = [*parts[:cut], Ellipsis, *parts[cut:][1:]]
    return tuple(parts)


def test_random_keys_get_and_set_what_numpy_does(rng):
    done = 0
    while done < 150:
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
        a = rng.random(shape).astype(np.float32)
        key = random_key(rng, shape)
        try:
            expected = a[key]
        except IndexError:
            continue
        ours = tuple(
            ow.asarray(k) if isinstance(k, np.ndarray) and rng.random() < 0.5 else k for k in key
        )
        x = ow.asarray(a)
        got = np.asarray(x[ours])
        assert got.shape == expected.shape, (shape, key)
        np.testing.assert_array_equal(got, expected, err_msg=f"{shape} {key}")
        extents = [1 if rng.random() < 0.2 else n for n in expected.shape]
        masked = any(isinstance(k, np.ndarray) and k.dtype.kind == "b" for k in key)
        if extents and not masked and rng.random() < 0.3:  # NumPy takes it there
            extents = [1, *extents]
        value = rng.random(extents).astype(np.float32)
        b = a.copy()
        b[key] = value
        x[ours] = ow.asarray(value)
        np.testing.assert_array_equal(np.asarray(x), b, err_msg=f"{shape} {key}")
        done += 1


def test_masks_of_no_elements_and_dots_of_no_axes(rng):
    a = rng.normal(size=(4, 3, 1))
    x = ow.asarray(a)
    for key in (
        (slice(2), np.asarray([True, False, True]), ..., -1),
        (np.asarray([1, 2]), ..., np.asarray([0, 1]), 0),
        (slice(None), 0, ..., np.asarray([0])),
        (np.zeros((4, 3), bool), 0),
    ):
        assert np.array_equal(np.asarray(x[key]), a[key])
    e = np.zeros((0, 3))
    for key in (
        np.zeros((0, 3), bool),
        np.zeros(0, bool),
        (np.zeros(0, bool), 1),
        np.zeros(0, int),
        [],
    ):
        assert ow.asarray(e)[key].shape == e[key].shape
    with pytest.raises(IndexError, match="integers or bools"):
        x[np.zeros(0)]


def test_set_items():
    x = ow.zeros((3, 4))
    y = x
    x[1] = 5
    assert float(y.sum()) == 20, "the same object"
    z = ow.asarray(x, copy=True)
    x[0, 0] = math.nan
    assert not bool(ow.any(ow.isnan(z)))
    x[ow.isnan(x)] = -1
    assert float(x[0, 0]) == -1
    w = ow.zeros(4, dtype=ow.int64)
    w[ow.asarray([1, 1, 2])] = ow.asarray([7, 8, 9])
    assert w.tolist() == [0, 8, 9, 0], "of several for one element the last is taken"
    n = ow.asarray([-0.0, 1.0])
    n[:1] = ow.asarray([-0.0])
    assert math.copysign(1, float(n[0])) == -1
    w += 1
    assert w.tolist() == [1, 9, 10, 1]


def test_sets_by_slices_of_any_step(rng):
    for _ in range(300):
        shape = tuple(int(n) for n in rng.integers(0, 7, rng.integers(1, 4)))
        a = rng.integers(0, 99, shape).astype(np.int32)
        key: list[object] = []
        for n in shape:
            if rng.random() < 0.2 and n:
                key.append(int(rng.integers(-n, n)))
            else:
                bounds = [
                    None if rng.random() < 0.3 else int(rng.integers(-8, 8)) for _ in range(2)
                ]
                step = None if rng.random() < 0.4 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
                key.append(slice(*bounds, step))
            if rng.random() < 0.1:
                key.append(None)
        at = tuple(key)
        value = rng.integers(100, 200, a[at].shape if rng.random() < 0.7 else ()).astype(np.int32)
        x = ow.asarray(a)
        x[at] = ow.asarray(value)
        a[at] = value
        assert np.array_equal(np.asarray(x), a), (shape, at)


def test_sets_are_in_place_and_seen_by_nobody_else():
    x = ow.arange(12, dtype=ow.float32)
    view, row, turned = np.asarray(x), x[2:5], x.reshape(3, 4)
    held = x.id
    x[3] = 50
    assert x.id == held and x.tolist()[2:5] == [2, 50, 4]
    assert view[3] == 3 and row.tolist() == [2, 3, 4] and turned.tolist()[0][3] == 3
    turned[:, 1] = turned[:, 0]
    assert turned.tolist() == [[0, 0, 2, 3], [4, 4, 6, 7], [8, 8, 10, 11]]
    x[:6] = x[6:]
    x[...] = x
    assert x.tolist() == [6, 7, 8, 9, 10, 11] * 2


def test_sets_by_an_index_of_a_loop():
    @ow.jit
    def table(x, w):
        def row(i, x):
            x = x + 0
            x[i, 1:] = w * i
            x[-1 - i, 0] = i
            return x

        return ow.for_loop(3, row, x)

    x = np.full((4, 3), 9.0, np.float32)
    made = np.asarray(table(ow.asarray(x), ow.asarray([1.0, 2.0])))
    for i in range(3):
        x[i, 1:] = [i, 2 * i]
        x[-1 - i, 0] = i
    assert np.array_equal(made, x)
    with pytest.raises(IndexError):
        place = ow.jit(lambda x, i: _with(x, i, 1))
        place(ow.zeros(3), ow.asarray(3)).tolist()


def _with(x, key, value):
    x = x + 0
    x[key] = value
    return x


def test_a_set_that_fails_leaves_the_array_as_it_was():
    x = ow.arange(6)
    wrong = ow.asarray([1, 2, 3])[ow.asarray([0, 9])]  # fails when it runs
    for key in (slice(0, 2), slice(None, None, 3), [4, 5], ow.asarray([True, False, False] * 2)):
        with pytest.raises(IndexError):
            x[key] = wrong
        assert x.tolist() == list(range(6))
    with pytest.raises(IndexError):
        x[...] = ow.zeros((6, 6), dtype=ow.int64)[ow.asarray(6)]
    with pytest.raises(IndexError):
        x[ow.asarray([3, 6])] = 7
    assert x.tolist() == list(range(6))
    with pytest.raises(ValueError, match="extents that are not 1 differ"):
        x[1:4] = ow.asarray([1, 2])
    x[1] = 9
    assert x.tolist() == [0, 9, 2, 3, 4, 5]


def test_sets_of_rows_by_arrays(rng):
    a = rng.random((5, 3, 4)).astype("f4")
    for key in ([4, 0, 4], (slice(1, 4), [0, 2]), ([1, -1], slice(None), [0, 3]), (0, [1], None)):
        value = rng.random(a[key].shape).astype("f4")
        x = ow.asarray(a)
        x[key] = ow.asarray(value)
        a[key] = value
        assert np.array_equal(np.asarray(x), a)


def test_sets_by_arrays_are_in_place_and_the_last_counts():
    x = ow.zeros((5, 4))
    held = x.id
    x[[1, 3, 1]] = np.arange(12).reshape(3, 4)
    x[:, ow.asarray([-1, -1])] = [[7, 8]]
    x[[0, 2], [0, 1]] = 9
    assert x.id == held
    want = [[9, 0, 0, 8], [8, 9, 10, 8], [0, 9, 0, 8], [4, 5, 6, 8], [0, 0, 0, 8]]
    assert x.tolist() == want
    y = ow.arange(3)
    y[[2, 0, 1]] = y
    assert y.tolist() == [1, 2, 0]
    y[0:2] = np.ones((1, 2))  # as NumPy, which accepts leading axes of extent 1
    assert y.tolist() == [1, 1, 0]
    for key, is_set in ((np.asarray(True), 1), ((slice(None), np.asarray(False)), 0)):
        y[...] = 0
        y[key] = np.ones((1, 3) if is_set else (3, 0))
        assert y.tolist() == [is_set] * 3


def test_sets_of_grids(rng, monkeypatch):
    """By one axis at a time, as large arrays are set; the least size is lowered for the test."""
    from opwire import _indexing

    made = []
    put = _indexing._put_grid
    monkeypatch.setattr(_indexing, "_FEW", 0)
    monkeypatch.setattr(_indexing, "_put_grid", lambda *a: (made.append(a), put(*a)))
    for _ in range(300):
        shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(2, 5)))
        key: list[object] = []
        arrays = [i for i in range(len(shape)) if rng.random() < 0.5]
        mesh = rng.random() < 0.7
        for i, n in enumerate(shape):
            if i in arrays:
                count = int(rng.integers(1, 6)) if mesh else 3
                array = rng.integers(-n, n, count)
                if mesh:
                    array = array.reshape([-1, *[1] * (len(arrays) - 1 - arrays.index(i))])
                elif rng.random() < 0.3:
                    array = rng.random(n) < 0.5
                key.append(array if rng.random() < 0.7 or array.dtype == bool else array.tolist())
            elif rng.random() < 0.2:
                key.append(int(rng.integers(-n, n)))
            else:
                step = None if rng.random() < 0.4 else int(rng.choice([-2, -1, 2]))
                key.append(slice(None, None, step))
        at = tuple(key)
        a = rng.integers(0, 99, shape).astype(np.uint8)
        try:
            named = a[at].shape
        except IndexError:  # masks that do not go together
            continue
        value = rng.integers(100, 200, named if rng.random() < 0.7 else ()).astype(np.uint8)
        x, y = ow.asarray(a), ow.asarray(a)
        held = y[...]
        x[at] = ow.asarray(value)
        a[at] = value
        assert np.array_equal(np.asarray(x), a), (shape, at)
        assert np.array_equal(np.asarray(held), np.asarray(y))
    assert len(made) > 30
    x = ow.zeros((9, 9), dtype=ow.uint8)
    for key in ((slice(None, None, 2), [8, 9]), (np.asarray([[0], [-10]]), [1, 2])):
        with pytest.raises(IndexError):
            x[key] = 1
            x.tolist()
    assert not np.any(np.asarray(x))


def test_reversed_and_masked_parts_cost_their_size(client, rng):
    """Each in a session that holds x, 16 MiB, and a few times the part."""
    wide, flat = np.arange(4096), rng.integers(0, 99, 1 << 24).astype(np.uint8)

    few = np.zeros(1 << 24, bool)
    few[[3, 70, 1 << 23]] = True
    half = ow.zeros(1 << 23, dtype=ow.uint8).numpy()
    for spare, shape, key, value in (
        (20, -1, few, np.asarray([1, 2, 3], np.uint8)),
        (20, -1, slice(None, None, -1), 1),
        (28, -1, slice(None, None, -2), half),
        (20, (4096, 4096), (slice(None, None, 2), wide[::2]), 1),
        (20, (4096, 4096), (slice(None, None, -2), wide[::2]), 1),
        (9, (4096, 4096), (np.arange(1000)[:, None], np.arange(1000)), 1),
        (9, (4096, 4096), (np.arange(1000)[:, None], np.arange(1000)), np.eye(1000, dtype="u1")),
        (29, -1, np.arange(1 << 22), 1),
    ):
        a = flat.reshape(shape)
        limited = ow.connect(memory_bytes=a.nbytes + (spare << 20))
        try:
            x = ow.asarray(a)
            x[key] = value
            want = a.copy()
            want[key] = value
            assert np.array_equal(np.asarray(x), want), key
        finally:
            x = None
            limited.close()
            ow.connect()
    for spare, f, ours in (
        (20, lambda x: x[::-1], lambda x: x[::-1]),
        (20, np.flip, ow.flip),
        (20, lambda x: x[:3:-2], lambda x: x[:3:-2]),
        (18, lambda x: x[few], lambda x: x[few]),
        (18, lambda x: np.nonzero(x == 100)[0], lambda x: ow.nonzero(x == 100)[0]),
    ):
        flat[[5, 1 << 20]] = 100
        limited = ow.connect(memory_bytes=flat.nbytes + (spare << 20))
        try:
            made = np.asarray(ours(ow.asarray(flat)))
            assert np.array_equal(made, f(flat))
        finally:
            made = None
            limited.close()
            ow.connect()


def test_wrong_keys():
    x = ow.zeros((3, 4))
    for key, text in [
        ((0, 0, 0), "too many indices"),
        (3, "out of range"),
        ((..., ...), "one ..."),
        ("a", "expected an integer"),
        (1.5, "expected an integer"),
        (True, "a bool"),
    ]:
        with pytest.raises(IndexError, match=text):
            x[key]
    with pytest.raises(IndexError, match="mask of shape"):
        x[ow.ones((2,), dtype=ow.bool)]


def test_numpys_numbers_have_their_own_types():
    assert ow.full((2,), np.int64(2**53 + 1)).tolist() == [2**53 + 1] * 2
    for value in (np.int32(3), np.bool_(True), np.float32(0.5), np.float64(0.5), np.uint8(7)):
        made = ow.full((1,), value)
        assert made.dtype.name == value.dtype.name and made.tolist() == [value.item()]
    assert ow.full((1,), np.int32(3), dtype=ow.float32).tolist() == [3]
    assert ow.arange(np.float32(0), np.float32(1), np.float32(0.25)).tolist() == [
        0,
        0.25,
        0.5,
        0.75,
    ]
    assert ow.arange(0, 2, np.float16(0.5)).tolist() == [0, 0.5, 1, 1.5]
    assert ow.arange(np.int32(3)).dtype == ow.int64


def test_hyperbolic_functions_at_all_magnitudes():
    x = np.geomspace(1e-300, 1e300, 2001)
    x = np.concatenate([-x, [-0.0, 0.0], x])
    for ours, theirs, at in (
        (ow.sinh, np.sinh, x),
        (ow.asinh, np.arcsinh, x),
        (ow.acosh, np.arccosh, x[x >= 1]),
    ):
        with np.errstate(over="ignore"):
            expected = theirs(at)
        got = np.asarray(ours(ow.asarray(at)))
        np.testing.assert_allclose(got, expected, rtol=1e-15)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_zeros_that_are_left_have_the_divisors_sign():
    for traced in (False, True):
        f = ow.jit(lambda a, b: a % b) if traced else lambda a, b: a % b
        for a in (6.0, -6.0, 0.0, -0.0):
            for b in (3.0, -3.0):
                left = float(f(ow.asarray(a), ow.asarray(b)))
                assert left == 0 and math.copysign(1, left) == math.copysign(1, b), (a, b)


def test_uniform_numbers_are_below_the_end():
    key = ow.random.key(1)
    for name, low, high in (
        ("float16", 0, 1),
        ("bfloat16", 0, 1),
        ("bfloat16", -3, 5),
        ("float32", 10000, 10001),
        ("float32", 0, 3),
    ):
        made = ow.random.uniform(
            key, (100_000,), low=low, high=high, dtype=getattr(ow, name)
        ).astype(ow.float32)
        assert low <= float(ow.min(made)) and float(ow.max(made)) < high


def test_attention_of_scale_0_is_the_mean(rng):
    q, v = (ow.asarray(rng.normal(size=(1, 2, 5, 8)).astype("f4")) for _ in range(2))
    np.testing.assert_allclose(
        np.asarray(ow.scaled_dot_product_attention(q, q, v, scale=0.0)),
        np.broadcast_to(np.asarray(v).mean(2, keepdims=True), v.shape),
        rtol=1e-5,
        atol=1e-6,
    )


def test_values():
    assert (
        float(ow.asarray(2.5)) == 2.5 and int(ow.asarray([7])) == 7 and bool(ow.asarray(0)) is False
    )
    assert [int(v) for v in ow.arange(3)] == [0, 1, 2] and len(ow.zeros((4, 2))) == 4
    assert [1, 2, 3][ow.asarray(1)] == 2
    with pytest.raises(TypeError):
        float(ow.zeros(2))
    with pytest.raises(TypeError):
        hash(ow.zeros(2))
    assert "float32" in repr(ow.zeros(2)) and "here/" in repr(ow.zeros(2))
    assert pickle.loads(pickle.dumps(ow.float32)) == ow.float32


def test_a_large_value_is_not_copied_and_stays_as_it_was(rng):
    a = rng.random((1000, 100)).astype(np.float32)
    x = ow.asarray(a)
    seen = np.asarray(x)
    assert not seen.flags.writeable
    x[...] = 0
    del x
    gc.collect()
    np.testing.assert_array_equal(seen, a)
    assert np.array(ow.asarray(a), copy=True).flags.writeable


def test_values_stay_where_they_are(rng):
    x = rng.standard_normal(6)
    a = np.asarray(ow.asarray(x))
    with pytest.raises((AttributeError, BufferError)):
        a.base.extend(bytes(1 << 20))
    a[2] = x[2] = 1
    np.testing.assert_array_equal(a, x)


def test_dlpack_by_bits(rng):
    bits = rng.integers(0, 1 << 16, (4, 6), dtype=np.uint16)
    dtype, there = ow._core.from_dlpack(ow._core.to_dlpack(bits[:, ::2], ow.bfloat16))
    assert dtype == ow.bfloat16
    np.testing.assert_array_equal(there, bits[:, ::2])
    with pytest.raises(ValueError, match="16 bits, got 64"):
        ow._core.to_dlpack(np.zeros(3), ow.bfloat16)


def test_what_dlpack_raises_is_raised():
    class Foreign:
        raises = BufferError, KeyboardInterrupt

        def __dlpack__(self, **keywords):
            error, *self.raises = self.raises
            raise error

        def __dlpack_device__(self):
            return 1, 0

    with pytest.raises(KeyboardInterrupt):
        ow.from_dlpack(Foreign())


def test_dlpack(rng):
    a = rng.random((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(np.from_dlpack(ow.asarray(a)), a)
    np.testing.assert_array_equal(np.asarray(ow.from_dlpack(a)), a)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dlpack_of_types_that_numpy_lacks(name, rng):
    class Foreign:  # as other libraries see an array, and export theirs
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    for shape in ((3, 4), (), (0, 2)):
        x = ow.asarray(rng.random(shape).astype(np.float32)).astype(name)
        y = ow.from_dlpack(Foreign(x))
        assert y.dtype == x.dtype and y.shape == x.shape
        np.testing.assert_array_equal(
            np.asarray(y.astype("float32")), np.asarray(x.astype("float32"))
        )
    with pytest.raises((BufferError, RuntimeError), match="dtype"):
        np.from_dlpack(ow.ones((2,), dtype=name))


def test_await():
    async def main():
        return await (ow.ones(3) * 2).fetch()

    assert asyncio.run(main()).tolist() == [2, 2, 2]


def test_dropped_arrays_are_freed(client):
    session = client.device.session
    gc.collect()
    before = len(session.tensors())
    x = ow.ones(1000)
    for _ in range(3000):
        x = x + 1
    assert float(x[0]) == 3001
    gc.collect()
    float(ow.ones(()))
    assert len(session.tensors()) <= before + 2


def test_more_programs_than_a_session_holds():
    for n in range(1, 300):
        assert ow.zeros((2,) * (n % 10) + (1,)).ndim == n % 10 + 1
        assert float(ow.full((1,), n / 7).astype(ow.float64).sum()) == pytest.approx(n / 7)
    total = sum(float(ow.roll(ow.arange(6), n)[0]) for n in range(300))
    assert total > 0


def test_numbers_are_formatted():
    x = ow.asarray([1.0, 2.0])
    assert f"{x.sum():.3f} {x[0]:g}" == "3.000 1" and f"{x}" == str(x)
    with pytest.raises(TypeError):
        f"{x:.3f}"


def test_no_copy_of_another_type():
    with pytest.raises(ValueError, match="float32 is one of float64 as a copy only"):
        np.asarray(ow.ones(2), dtype="float64", copy=False)


def test_cross_entropy_of_any_rank(rng):
    logits, targets = rng.normal(size=(2, 3, 5)).astype("f4"), rng.integers(0, 5, (2, 3))
    expected = (
        np.log(np.exp(logits.astype(float)).sum(-1))
        - np.take_along_axis(logits.astype(float), targets[..., None], -1)[..., 0]
    )
    np.testing.assert_allclose(
        np.asarray(ow.cross_entropy(ow.asarray(logits), targets, reduction="none")),
        expected,
        rtol=1e-5,
    )
    assert float(ow.cross_entropy(ow.asarray(logits), ow.asarray(targets))) == pytest.approx(
        expected.mean(), rel=1e-5
    )
    assert float(
        ow.cross_entropy(ow.asarray(logits[0, 0]), ow.asarray(targets[0, 0]))
    ) == pytest.approx(expected[0, 0], rel=1e-5)
    with pytest.raises(ValueError, match=r"expected targets of shape \(2, 3\)"):
        ow.cross_entropy(ow.asarray(logits), targets[0])


def test_flags_are_bools_or_zero_or_one():
    x = ow.ones((2, 3))
    assert ow.sum(x, axis=1, keepdims=1).shape == (2, 1)
    assert ow.sum(x, axis=1, keepdims=np.bool_(False)).shape == (2,)
    with pytest.raises(TypeError, match="sum: keepdim: expected a bool, got str"):
        ow.sum(x, axis=1, keepdims="yes")
    with pytest.raises(ValueError, match="sum: keepdim: expected a bool, got 2"):
        ow.sum(x, axis=1, keepdims=2)


def test_what_numpy_would_fetch_without_a_word():
    x = ow.asarray([[3.0, 1.0], [2.0, 4.0]])
    for f, advice in (
        (lambda: np.mean(x), "write opwire.mean, or numpy.mean of numpy.asarray(x)"),
        (lambda: np.concatenate([x, x]), "write opwire.concat, or numpy.concatenate of"),
        (lambda: np.stack([x]), "write opwire.stack, or"),
        (lambda: np.linalg.norm(x), "write opwire.linalg.vector_norm, or numpy.linalg.norm of"),
        (lambda: np.linalg.eig(x), "write numpy.linalg.eig of numpy.asarray(x), which fetches"),
        (
            lambda: np.fft.fft(x),
            "numpy.fft.fft of an array on a device: write numpy.fft.fft of numpy.asarray",
        ),
        (lambda: np.median(x), "write numpy.median of numpy.asarray(x), which fetches it"),
        (lambda: np.exp(x), "write opwire.exp, or numpy.exp of numpy.asarray(x), which fetches"),
        (lambda: np.arctan2(1, x), "write opwire.atan2, or numpy.arctan2 of"),
        (lambda: np.absolute(x), "write opwire.abs, or numpy.absolute of"),
        (lambda: np.add.reduce(x), "write numpy.add.reduce of numpy.asarray(x)"),
        (lambda: np.add(1, 1, out=x), "write opwire.add, or numpy.add of"),
        (lambda: ow.jit(np.exp)(x), "write opwire.exp, or numpy.exp of"),
        (lambda: pickle.dumps(x), "pickle numpy.asarray(x), and make an array of that by"),
        (lambda: pickle.dumps(x.device), "connect in the process that needs it"),
        (lambda: pickle.dumps(ow.connect()), "connect in the process that needs it"),
        (lambda: pickle.dumps(ow.jit(ow.exp)), "compile it by jit in the process that needs it"),
        (
            lambda: ow.random.normal(size=(2, 2)),
            "got none: write random.normal(random.key(0), ...)",
        ),
        (lambda: ow.random.uniform(), "write random.uniform(random.key(0), ...)"),
        (
            lambda: ow.random.normal(ow.random.key(0), size=2),
            "expected shape= as the name of the argument, got size=",
        ),
        (
            lambda: ow.random.normal(ow.random.key(0), scale=2),
            "expected std= as the name of the argument, got scale=",
        ),
        (lambda: ow.random.uniform(ow.random.key(0), loc=2), "unexpected keyword argument 'loc'"),
        (lambda: ow.random.normal((2, 2)), "got tuple: write random.normal(random.key(0), ...)"),
        (lambda: ow.random.uniform(x), "got float32[2, 2]: write random.uniform(random.key(0)"),
        (lambda: ow.random.fold_in(1, 2), "expected a key as the first argument, got int"),
    ):
        with pytest.raises(TypeError, match=re.escape(advice)):
            f()
    assert np.shape(x) == (2, 2) and np.ndim(x) == 2 and np.size(x) == 4
    assert np.mean(np.asarray(x)) == 2.5
    assert pickle.loads(pickle.dumps(_twice)) is _twice
    for same in (_twice, x.device, ow.connect()):
        assert copy.copy(same) is same and copy.deepcopy([same])[0] is same
    tenth = ow.asarray([0.1])
    assert (np.float64(0.1) == tenth).tolist() == (tenth == np.float64(0.1)).tolist() == [True]


@ow.jit
def _twice(x):
    return x + x


_BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le gt ge eq ne"


@pytest.mark.parametrize("name", _BINARY.split())
def test_operators_after_numpys_arrays_and_numbers(name):
    f = getattr(operator, name)
    integers = name in ("and_", "or_", "xor", "lshift", "rshift")
    a = np.asarray([[3, 1], [2, 4]], "i4" if integers else "f4")
    x = ow.asarray(a)
    numbers = (a.dtype.type(2), np.asarray(2, a.dtype), *([] if integers else [np.float64(0.1)]))
    for other in (a[::-1], *(() if name == "matmul" else numbers)):
        want = f(other, a)
        made = f(other, x)
        assert isinstance(made, ow.Array)
        assert made.dtype == f(ow.asarray(other), x).dtype or isinstance(other, np.float64)
        np.testing.assert_allclose(np.asarray(made), want, rtol=1e-6)
        traced = ow.jit(lambda x, other=other: f(other, x))(x)
        np.testing.assert_array_equal(np.asarray(traced), np.asarray(made))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_without_ml_dtypes(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtype = getattr(ow, name)
    x = ow.asarray([[1.5, -2], [0, 448]], dtype=dtype)
    assert x.tolist() == [[1.5, -2], [0, 448]] and float(x[0, 0]) == 1.5
    assert ow.asarray(0.25, dtype=dtype).tolist() == 0.25
    assert ow.asarray(np.asarray([1, 2], np.int32), dtype=dtype).tolist() == [1, 2]
    assert ow.full((2,), 3, dtype=dtype).tolist() == [3, 3]
    half = float(ow.finfo(dtype).eps) / 2
    assert float(ow.asarray(1 + half + 2**-30, dtype=dtype)) == 1 + 2 * half  # rounded once


def test_sums_in_other_types(rng):
    a = rng.normal(size=(1500, 2048)).astype("f4")
    x = ow.asarray(a)
    for axis in (None, 0, (0, 1), -1):
        for keep in (False, True):
            made = ow.sum(x, axis=axis, dtype=ow.float64, keepdims=keep)
            expected = a.sum(axis=axis, dtype=np.float64, keepdims=keep)
            assert made.dtype == ow.float64 and made.shape == expected.shape
            np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-12, atol=1e-10)
    b = rng.integers(-100, 100, (3000, 4096)).astype("i1")
    y = ow.asarray(b)
    assert int(ow.sum(y)) == int(b.sum()) and int(ow.count_nonzero(y)) == np.count_nonzero(b)
    assert np.array_equal(
        np.asarray(ow.prod(y[:, :2], axis=0)), b[:, :2].prod(axis=0, dtype=np.int64)
    )


def test_names_with_surrogates_are_refused(client):
    name = "a\udc80"
    said = r"expected characters of Unicode, got the surrogate \\udc80 at position 1 of 'a\\udc80'"
    x = ow.ones(3)

    def stored():
        client.store[name] = x

    emitting = ow.jit(lambda x: (ow.emit(name, x), x)[1])
    for f in (
        lambda: ow.load(name),
        stored,
        lambda: ow.device(op=name),
        lambda: client.device.op(name),
        lambda: emitting(x),
        lambda: x.grant(name),
        lambda: x.grant(principal=name),
        lambda: x.grant(name=name),
        lambda: client.take(name),
        lambda: client.take("w", session=name),
        lambda: client.revoke(name),
        lambda: ow.connect(session=name),
        lambda: ow.connect(name),
    ):
        with pytest.raises(ValueError, match=said):
            f()
    with pytest.raises(TypeError, match="^load: path: expected a str, got bytes$"):
        ow.load(b"w.gguf")
    with pytest.raises(KeyError):
        client.store[name]


def test_names_are_escaped_in_messages():
    name = "f\x1b[31m\x9b\u202e"

    def f(x):
        return x

    f.__name__ = f.__qualname__ = name
    of_file: dict[str, object] = {"ow": ow}
    exec(compile("def g(x): return ow.log(x - 1)", name, "exec"), of_file)
    shown = [repr(ow.jit(f).profile(ow.ones(3)))]
    for wrong in (
        lambda: ow.jit(f, static_argnames=name),
        lambda: ow.jit(lambda x: x, donate_argnames=name),
        lambda: ow.grad(f)(ow.ones(3)),
        lambda: pickle.dumps(ow.jit(f)),
        lambda: ow.jit(of_file["g"], check="nan")(ow.zeros(3)),
    ):
        with pytest.raises((TypeError, ValueError, FloatingPointError)) as e:
            wrong()
        shown.append(str(e.value))
    assert all(text.replace("\n", "").isprintable() and "\\x1b[31m" in text for text in shown), (
        shown
    )
