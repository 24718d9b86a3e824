"""Traced functions: values, gradients, loops, and errors."""

import collections
import dataclasses
import functools
import gc
import inspect
import math
import warnings

import numpy as np
import opwire as ow
import pytest

pytestmark = pytest.mark.usefixtures("client")


def mlp(params, x):
    h = ow.tanh(x @ params["w"][0] + params["b"])
    return (h @ params["w"][1]).sum()


def make(rng):
    return {
        "w": [rng.normal(size=(5, 7)).astype("f4"), rng.normal(size=(7, 2)).astype("f4")],
        "b": rng.normal(size=(7,)).astype("f4"),
    }


def test_a_function_is_traced_once_for_equal_types(rng):
    traces = []

    @ow.jit
    def f(x, scale):
        traces.append(x.shape)
        return {"y": x * scale, "more": (x.sum(), None)}

    for _ in range(3):
        a = rng.random((3, 4)).astype("f4")
        out = f(ow.asarray(a), 2.0)
        np.testing.assert_allclose(np.asarray(out["y"]), a * 2, rtol=1e-6)
        assert float(out["more"][0]) == pytest.approx(a.sum(), rel=1e-5) and out["more"][1] is None
    assert traces == [(3, 4)]
    f(ow.ones((2, 2)), scale=3.0)
    assert len(traces) == 2


def test_gradients_of_trees_against_differences(rng):
    p, x = make(rng), rng.normal(size=(4, 5)).astype("f4")
    as_arrays = {
        "w": [ow.asarray(w.astype("f8")) for w in p["w"]],
        "b": ow.asarray(p["b"].astype("f8")),
    }
    loss, g = ow.value_and_grad(mlp)(as_arrays, ow.asarray(x.astype("f8")))

    def plain(q):
        return (np.tanh(x.astype("f8") @ q["w"][0] + q["b"]) @ q["w"][1]).sum()

    q = {"w": [w.astype("f8") for w in p["w"]], "b": p["b"].astype("f8")}
    assert float(loss) == pytest.approx(plain(q))
    for leaf, of in [(q["w"][0], g["w"][0]), (q["w"][1], g["w"][1]), (q["b"], g["b"])]:
        at = tuple(int(rng.integers(0, n)) for n in leaf.shape)
        kept, h = leaf[at], 1e-6
        leaf[at] = kept + h
        up = plain(q)
        leaf[at] = kept - h
        down = plain(q)
        leaf[at] = kept
        assert float(of[at]) == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-7)


def test_gradients_inside_of_traced_functions(rng):
    @ow.jit
    def step(w, x):
        loss, g = ow.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        return loss, w - 0.1 * g

    x, w = rng.normal(size=(8, 3)), rng.normal(size=(3, 2))
    first = None
    aw, ax = ow.asarray(w), ow.asarray(x)
    for _ in range(20):
        loss, aw = step(aw, ax)
        first = float(loss) if first is None else first
    assert float(loss) < first * 0.5
    expected = w - 0.1 * (2 * x.T @ (x @ w) / (8 * 2))
    np.testing.assert_allclose(np.asarray(step(ow.asarray(w), ax)[1]), expected, rtol=1e-6)


def test_gradient_of_a_gradient_and_aux():
    g2 = ow.grad(lambda x: ow.grad(lambda y: y**3)(x) * 1.0)
    assert float(g2(ow.asarray(2.0))) == pytest.approx(12.0)
    (loss, aux), g = ow.value_and_grad(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(
        ow.asarray([1.0, 2.0])
    )
    assert float(loss) == 5 and aux["twice"].tolist() == [2, 4] and g.tolist() == [2, 4]
    ga, gb = ow.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(
        ow.asarray([1.0, 2.0]), ow.asarray([3.0, 4.0])
    )
    assert ga.tolist() == [3, 4] and gb.tolist() == [1, 2]


def test_gradients_where_magnitudes_are_0():
    for f, x, theirs in [
        (ow.sinh, 0.0, 1.0), (ow.asinh, 0.0, 1.0), (ow.sinh, -2.0, math.cosh(2)), (ow.asinh, -2.0, 1 / math.sqrt(5)), (ow.sinh, 100.0, math.inf),
        (lambda x: x % 3.0, 0.0, 1.0), (lambda x: x % 3.0, 3.0, 1.0), (lambda x: x % -3.0, 6.0, 1.0), (lambda x: x % 3.0, -6.0, 1.0), (lambda x: x % 3.0, -2.0, 1.0),
        (lambda x: ow.linalg.vector_norm(x * ow.zeros(3)), 1.0, 0.0), (lambda x: ow.std(x * ow.ones(4)), 2.0, 0.0),
    ]:  # fmt: skip
        assert float(ow.grad(f)(ow.asarray(x))) == pytest.approx(theirs, rel=1e-6)


def test_the_gradient_of_an_exact_function_is_exact():
    assert ow.grad(ow.jit(lambda x: x.sum(), accuracy="exact"))._accuracy == "exact"


def test_arrays_of_outside_are_captured(rng):
    w = ow.asarray(rng.random((3,)).astype("f4"))
    f = ow.jit(lambda x: x * w + w)
    np.testing.assert_allclose(np.asarray(f(ow.ones(3))), 2 * np.asarray(w), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(f(ow.zeros(3))), np.asarray(w), rtol=1e-6)
    g = ow.jit(lambda x: ow.for_loop(3, lambda i, c: c * w + x, x))
    a = np.asarray(w)
    expected = np.ones(3)
    for _ in range(3):
        expected = expected * a + 1
    np.testing.assert_allclose(np.asarray(g(ow.ones(3))), expected, rtol=1e-5)


def test_loops_and_branches():
    assert float(ow.for_loop(5, lambda i, c: c * 2.0, 1.0)) == 32
    assert float(ow.for_loop(0, lambda i, c: c * 2.0, 1.0)) == 1
    a, b = ow.for_loop(10, lambda i, c: (c[1], c[0] + c[1]), (ow.asarray(0), ow.asarray(1)))
    assert (int(a), int(b)) == (55, 89)
    n, total = ow.while_loop(
        lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] + c[0]), (ow.asarray(0), ow.asarray(0))
    )
    assert (int(n), int(total)) == (10, 45)
    f = ow.jit(lambda x: ow.cond(x.sum() > 0, lambda v: v * 2, lambda v: -v, x))
    assert f(ow.asarray([1.0, 2.0])).tolist() == [2, 4] and f(
        ow.asarray([-1.0, -2.0])
    ).tolist() == [1, 2]
    # Several loops and branches, one after the other and nested.
    g = ow.jit(
        lambda x: (
            ow.for_loop(
                3,
                lambda i, c: ow.for_loop(
                    2, lambda j, d: ow.cond(j < i, lambda u: u * 2, lambda u: u + 1, d), c
                ),
                x,
            )
            + ow.for_loop(2, lambda i, c: c * c, x)
        )
    )
    assert float(g(ow.asarray(2.0))) == ((2 + 2) * 2 + 1) * 4 + 16
    with pytest.raises(IndexError, match="iterations"):
        int(ow.while_loop(lambda c: c >= 0, lambda c: c + 1, ow.asarray(0), max_trips=10))
    with pytest.raises(TypeError, match="expected what it was given"):
        ow.for_loop(3, lambda i, c: c.sum(), ow.ones(3))


def test_gradient_through_a_loop():
    g = ow.grad(lambda x: ow.for_loop(4, lambda i, c: c * x, x))
    assert float(g(ow.asarray(1.5))) == pytest.approx(5 * 1.5**4, rel=1e-5)


def test_gradient_through_branches(rng):
    scale = ow.asarray(rng.random((3,)).astype("f8") + 0.5)

    def loss(x, w):
        def bend(v):
            ow.emit("bent", v.sum())
            return ow.tanh(v * w) * scale

        y = ow.cond(
            x.sum() > 0, bend, lambda v: ow.cond(w[0] > 0, lambda u: u * u, lambda u: u, v), x
        )
        return (y * y).sum()

    w, s = np.asarray([0.5, 1.5, -1.0]), np.asarray(scale)
    heard = []
    for x in (np.asarray([1.0, 2.0, -0.5]), np.asarray([-1.0, 0.5, -2.0])):
        gx, gw = ow.grad(loss, argnums=(0, 1)).run(
            ow.asarray(x), ow.asarray(w), on_emit=lambda name, v: heard.append(float(v))
        )
        t = np.tanh(x * w)
        d = 2 * t * (1 - t * t) * s * s
        expected = (d * w, d * x) if x.sum() > 0 else (4 * x**3, np.zeros(3))
        np.testing.assert_allclose(np.asarray(gx), expected[0], rtol=1e-12)
        np.testing.assert_allclose(np.asarray(gw), expected[1], rtol=1e-12)
    assert heard == [2.5]

    # In a loop whose iterations take different branches.
    def steps(x):
        return ow.for_loop(
            4, lambda i, c: ow.cond(i % 2 == 0, lambda v: v * x, lambda v: v * v, c), x
        )

    assert float(ow.grad(steps)(ow.asarray(1.5, dtype=ow.float64))) == pytest.approx(10 * 1.5**9)

    # In traced functions, with several steps, and with gradients.
    def train(x):
        def step(i, x):
            value, g = ow.value_and_grad(lambda x: loss(x, ow.asarray(w)))(x)
            return x - 0.01 * value * g

        return ow.for_loop(3, step, x)

    def trained(x):
        for _ in range(3):
            value, g = ow.value_and_grad(loss)(x, ow.asarray(w))
            x = x - 0.01 * value * g
        return x

    for x in ([1.0, 2.0, -0.5], [-1.0, 0.5, -2.0]):
        np.testing.assert_allclose(
            np.asarray(ow.jit(train)(ow.asarray(x, dtype=ow.float64))),
            np.asarray(trained(ow.asarray(x, dtype=ow.float64))),
            rtol=1e-12,
        )
    cube = ow.grad(lambda x: ow.cond(x > 0, lambda v: v * v * v, lambda v: -v, x))
    assert (
        float(ow.grad(cube)(ow.asarray(2.0))) == 12 and float(ow.grad(cube)(ow.asarray(-2.0))) == 0
    )
    with pytest.raises(NotImplementedError, match="while"):
        ow.grad(
            lambda x: ow.cond(
                x > 0, lambda v: ow.while_loop(lambda c: c < 9, lambda c: c * 2, v), lambda v: v, x
            )
        )(ow.asarray(1.0))


def test_emit_tells_while_it_runs():
    @ow.jit
    def count(x):
        def body(i, c):
            ow.emit("loss", c)
            return c * 0.5

        return ow.for_loop(4, body, x)

    heard = []
    assert (
        float(count.run(ow.asarray(8.0), on_emit=lambda name, v: heard.append((name, float(v)))))
        == 0.5
    )
    assert heard == [("loss", 8.0), ("loss", 4.0), ("loss", 2.0), ("loss", 1.0)]

    class Stop(Exception):
        pass

    def stop(name, v):
        raise Stop

    with pytest.raises(Stop):
        count.run(ow.asarray(8.0), on_emit=stop)


def test_what_hears_may_use_arrays():
    @ow.jit
    def count(x):
        def step(i, x):
            ow.emit("x", x)
            return x + 1

        return ow.for_loop(2000, step, x)

    heard = []
    double = ow.jit(lambda x: x * 2)
    assert (
        float(
            count.run(
                ow.asarray(0.0), on_emit=lambda name, x: heard.append(float(double(ow.asarray(x))))
            )
        )
        == 2000
    )
    assert heard == [2.0 * i for i in range(2000)]

    heard.clear()
    within = []
    count.run(
        ow.asarray(0.0),
        on_emit=lambda name, x: (
            heard.append(float(x))
            if x % 500
            else count.run(ow.asarray(0.5), on_emit=lambda name, y: within.append(float(y)))
        ),
    )
    assert (
        heard == [float(i) for i in range(2000) if i % 500]
        and within == [i + 0.5 for i in range(2000)] * 4
    )


def test_static_and_donated_arguments():
    @ow.jit
    def named(x, times):
        for _ in range(times):
            x = x + 1
        return x

    named = ow.jit(named._function, static_argnames="times")
    assert (
        float(named(ow.asarray(0.0), times=3)) == 3 and float(named(ow.asarray(0.0), times=5)) == 5
    )
    with pytest.raises(ValueError, match="there is no argument turns"):
        ow.jit(lambda x: x, static_argnames="turns")
    with pytest.raises(TypeError, match="hashable"):
        named(ow.asarray(0.0), times=[1])

    step = ow.jit(lambda w, g: w - g, donate_argnames="w")
    w = ow.ones(4)
    place = w.id
    new = step(w, ow.ones(4))
    assert new.id == place and new.tolist() == [0] * 4
    with pytest.raises(ValueError, match="given away"):
        w + 1
    assert "given away" in repr(w)
    with pytest.raises(ValueError, match="no result has its type"):
        ow.jit(lambda w: w.sum(), donate_argnames="w")(ow.ones(4))


def test_donated_arrays_may_be_used_and_returned_anyhow():
    def call(f, *args, names=("a", "b")):
        return [v.tolist() for v in ow.jit(f, donate_argnames=names)(*args)]

    def same(a, b):
        y = a + b
        return y, y

    a, b = (lambda: ow.asarray([1.0, 2.0])), (lambda: ow.asarray([3.0, 5.0]))
    assert call(lambda a, b: (b, a), a(), b()) == [[3, 5], [1, 2]]
    assert call(lambda a, b: (a + 1, b + a), a(), b()) == [[2, 3], [4, 7]]
    assert call(lambda a, b: (b + a * 2, a + 1), a(), b()) == [[5, 9], [2, 3]]
    assert call(same, a(), b()) == [[4, 7], [4, 7]]
    assert call(lambda r0, captured0: (r0.sum(), captured0 + r0), a(), b(), names="captured0") == [
        3,
        [4, 7],
    ]
    assert call(lambda x, r0: (x.sum(), r0 * 2), a(), b(), names="r0") == [3, [6, 10]]
    assert call(lambda a, b: (a + b, b), 1.0, a()) == [
        [2, 3],
        [1, 2],
    ]  # a number has no memory to give
    once = a()
    with pytest.raises(ValueError, match="%a is donated, and given as %b, too"):
        call(lambda a, b: (a + 1, b + 2), once, once)
    assert once.tolist() == [1, 2]


def test_what_a_failed_run_should_have_replaced_is_not_there():
    f = ow.jit(lambda w, v: w + v, donate_argnames="w")
    g = ow.jit(lambda w, at: (ow.take(w, at, axis=0), w + 1), donate_argnames="w")
    bad = ow.take(ow.ones(3), ow.asarray([9]), axis=0)
    for made in (f(ow.zeros(1), bad), g(ow.zeros(3), ow.asarray([9]))[1]):
        with pytest.raises(IndexError, match="value outside its domain"):
            made.tolist()


def test_arrays_of_outside_are_not_set_while_a_function_is_traced():
    w = ow.ones(3)

    @ow.jit
    def f(x):
        w[0] = 5
        return x + w

    with pytest.raises(ValueError, match="array of outside"):
        f(ow.zeros(3))
    assert w.tolist() == [1, 1, 1]

    @ow.jit
    def g(x):
        y = x + w
        y[0] = 5
        return y

    assert g(ow.zeros(3)).tolist() == [5, 1, 1]


def test_static_arguments_of_other_types_are_traced_by_themselves():
    f = ow.jit(lambda x, by: x * (by if not isinstance(by, tuple) else by[0]), static_argnames="by")
    x = ow.asarray([2])
    made = [f(x, by) for by in (1, 1.0, True, (1,), (1.0,))]
    assert [v.dtype for v in made] == [ow.int64, ow.float32, ow.int64, ow.int64, ow.float32]
    assert [float(1 / f(x, zero)) for zero in (0.0, -0.0)] == [math.inf, -math.inf]


def test_static_arguments_in_other_things_are_told_apart_by_type():
    named = collections.namedtuple("Named", "by")  # noqa: PYI024
    plain = dataclasses.make_dataclass("Plain", ["by"], frozen=True)
    f = ow.jit(
        lambda x, c: x * next(iter(c)) if isinstance(c, (frozenset, tuple)) else x * c.by,
        static_argnames="c",
    )
    x = ow.asarray([2])
    for make in (named, plain, lambda by: frozenset([by])):
        assert [f(x, make(by)).dtype for by in (1, 1.0, 1)] == [ow.int64, ow.float32, ow.int64]


def test_static_arguments_behind_any_number_of_others():
    f = ow.jit(lambda *a, n=1: a[0] * n + a[1], static_argnames="n")
    assert [f(ow.ones(1), ow.ones(1), n=n).tolist() for n in (2, 5)] == [[3], [6]]


def test_a_function_that_makes_an_array_of_a_device_when_it_is_traced(client):
    client.store["made"] = ow.ones(3)
    for f in (
        lambda y: y + client.store["made"],
        lambda y: ow.for_loop(2, lambda i, y: y + client.store["made"], y),
    ):
        with pytest.raises(RuntimeError, match=r"makes an array of a device anew .* float32\[3\]"):
            ow.jit(f)(ow.ones(3))
    del client.store["made"]


def test_what_extents_are_looked_up_in():
    f = ow.jit(lambda x: x * {4: 1, 9: 5}.get(x.shape[0], 2) + (x.shape[0] in {4, 9}))
    assert [float(f(ow.ones(n))[0]) for n in (4, 7, 9)] == [2, 2, 6]


def test_gradient_of_a_function_with_static_arguments():
    f = ow.jit(
        lambda kind, x: (x * x).sum() if kind == "square" else x.sum(), static_argnames="kind"
    )
    g = ow.grad(f, argnums=1)
    assert [g(kind, ow.asarray([1.0, 3.0])).tolist() for kind in ("square", "sum")] == [
        [2, 6],
        [1, 1],
    ]


def test_many_traces_are_told():
    f = ow.jit(lambda x: x + len(x))
    with pytest.warns(UserWarning, match=r"traced 8 times.*float32\[7\] and is float32\[8\]"):
        for n in range(1, 10):
            f(ow.ones(n))


def test_what_a_traced_function_refuses():
    with pytest.raises(TypeError, match="cond"):
        ow.jit(lambda x: x if x.sum() > 0 else -x)(ow.ones(2))
    with pytest.raises(TypeError, match="float of a traced array"):
        ow.jit(lambda x: float(x))(ow.asarray(1.0))
    with pytest.raises(ValueError, match="not known while"):
        ow.jit(lambda x: np.asarray(x))(ow.asarray(1.0))
    with pytest.raises(TypeError, match="depends on values"):
        ow.jit(lambda x: ow.nonzero(x))(ow.ones(3))
    kept = []
    ow.jit(lambda x: (kept.append(x), x)[1])(ow.asarray(1.0))
    with pytest.raises(ValueError, match="traced and has ended"):
        kept[0] + 1
    with pytest.raises(ValueError, match="traced and has ended"):
        ow.jit(lambda x: x + kept[0])(ow.asarray(1.0))
    with pytest.raises(TypeError, match="0-d loss"):
        ow.grad(lambda x: x)(ow.ones(3))
    with pytest.raises(TypeError, match="floating"):
        ow.grad(lambda x: x.sum())(ow.arange(3))
    with pytest.raises(TypeError, match="whole number of times, got 2.5"):
        ow.for_loop(2.5, lambda i, c: c, ow.ones(1))
    with pytest.raises(TypeError, match="argument x: expected arrays"):
        ow.jit(lambda x: x)("text")
    with pytest.raises(ValueError, match=r"matmul.*test_jit.py"):
        ow.jit(lambda x: x @ x)(ow.ones((2, 3)))


def test_nans_are_found_where_they_arise():
    @functools.partial(ow.jit, check="nan")
    def f(x):
        y = x * 2.0
        z = ow.log(y)  # here
        return (z + 1.0).sum()

    assert float(f(ow.ones(4))) == pytest.approx(4 * (math.log(2) + 1))
    line = f._function.__code__.co_firstlineno + 3
    with pytest.raises(FloatingPointError, match=rf"2 NaN in log f32\[4\] \(test_jit.py:{line}\)"):
        f(ow.asarray([-1.0, 1.0, -3.0, 2.0]))
    assert float(f(ow.ones(4))) > 0
    with pytest.raises(FloatingPointError, match="for_loop"):
        ow.jit(lambda x: ow.for_loop(3, lambda i, c: ow.sqrt(c - 1.0), x), check="nan")(ow.ones(2))
    with pytest.raises(ValueError, match="expected"):
        ow.jit(lambda x: x, check="inf")


def test_nans_are_found_within_other_functions():
    checked = ow.jit(lambda w: ow.log(w).sum(), check="nan")
    bad, good = ow.asarray([-1.0]), ow.asarray([2.0])
    for f in (
        ow.jit(lambda w: checked(w) + 1),
        ow.grad(checked),
        ow.value_and_grad(checked),
        ow.jit(lambda w: ow.grad(checked)(w)),
        ow.grad(lambda w: checked(w) * 2),
    ):
        f(good)
        with pytest.raises(FloatingPointError, match=r"1 NaN in log f32\[1\] \(test_jit.py"):
            f(bad)
    with pytest.raises(FloatingPointError, match="1 NaN in log"):
        ow.jit(ow.value_and_grad(lambda w: ow.log(w).sum()), check="nan")(bad)
    np.testing.assert_allclose(np.asarray(ow.value_and_grad(checked)(good)[1]), [0.5])


def test_nans_of_gradients_name_the_op_of_the_program():
    """All values of the function are numbers, but its gradient has a NaN."""
    line = inspect.currentframe().f_lineno + 3

    def loss(w, v):
        root = ow.sqrt(w * 0.0)
        return ((root * 0.0) * v).sum()

    w, v = ow.asarray([1.0, 4.0]), ow.asarray([1.0, 2.0])
    named = rf"2 NaN in gradient of sqrt f32\[2\] \(test_jit.py:{line}\)"
    for f in (
        ow.grad(ow.jit(loss, check="nan")),
        ow.value_and_grad(ow.jit(loss, check="nan")),
        ow.jit(ow.grad(loss), check="nan"),
        ow.jit(lambda w, v: ow.grad(loss)(w, v) * 2, check="nan"),
    ):
        with pytest.raises(FloatingPointError, match=named):
            f(w, v)
    # The gradient by the other argument has only numbers.
    by_v = ow.grad(ow.jit(loss, check="nan"), argnums=1)
    np.testing.assert_array_equal(np.asarray(by_v(w, v)), [0, 0])

    def looped(w):
        return ow.for_loop(2, lambda i, c: ow.sqrt(c) * 0.0, w * 0.0).sum()

    with pytest.raises(FloatingPointError, match="NaN in gradient of repeat"):
        ow.jit(ow.grad(looped), check="nan")(w)


def test_nans_are_not_looked_for_unasked():
    bad = ow.asarray([-1.0])
    assert math.isnan(float(ow.jit(lambda w: ow.log(w).sum())(bad)))


def test_nans_are_found_in_gradients():
    loss = ow.jit(lambda x, n: (ow.sqrt(x) * 0.0).sum() * n, check="nan", static_argnames="n")
    assert float(loss(ow.asarray([0.0, 1.0]), 2)) == 0
    for f in (ow.grad(loss), ow.value_and_grad(loss)):
        with pytest.raises(FloatingPointError, match="NaN"):
            f(ow.asarray([0.0, 1.0]), 2)
    assert ow.grad(loss)(ow.asarray([4.0, 1.0]), 2).tolist() == [0, 0]


def test_what_a_function_is():
    f = ow.jit(lambda x: ow.softmax(x * 2.0))
    x = ow.ones((4, 8))
    assert "softmax" in f.text(x) and "test_jit.py" in f.text(x)
    assert "program" in f.optimised(x)
    plan = f.plan(x)
    assert (
        len(plan) == len(plan.raw["steps"])
        and "softmax" in repr(plan)
        and "of scratch memory" in plan.title
    )
    profile = f.profile(x)
    assert all("us" in row for row in profile) and any("@" in row["step"] for row in profile)
    assert "<td" in profile._repr_html_() and "@&lt;lambda&gt;" in profile._repr_html_()


def test_save_is_what_the_command_line_takes(tmp_path):
    path = tmp_path / "f.opw"
    ow.jit(lambda x: x + 1).save(str(path), ow.ones(3))
    from opwire import _core

    assert _core.Module.parse(path.read_text(), "f.opw").nodes >= 1


def test_more_functions_than_a_session_holds():
    functions = [ow.jit(lambda x, n=n: x * (n + 0.5)) for n in range(300)]
    for f in [*functions, *functions[:5]]:
        f(ow.asarray(2.0))
    assert [float(f(ow.asarray(2.0))) for f in functions[::50]] == [
        2 * (n + 0.5) for n in range(0, 300, 50)
    ]


def test_functions_that_end_give_their_programs_back():
    for n in range(300):  # more than a session's slots
        f = ow.jit(lambda x: x * (n + 0.5))
        assert float(f(ow.asarray(2.0))) == 2 * (n + 0.5)
        del f
        gc.collect()


def test_methods():
    class Model:
        def __init__(self):
            self.w = ow.asarray([2.0])

        @ow.jit
        def forward(x):  # a function in a class's namespace
            return x * 2

    assert float(Model.forward(ow.asarray(3.0))) == 6
    assert math.isnan(float(ow.jit(lambda x: x * ow.nan)(1.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ow.jit(lambda x: x)(1)


@pytest.mark.parametrize(
    "f, n",
    [
        (lambda x, n: x * n, 0.5),
        (lambda x, n: x * n, 2),
        (lambda x, n: n - x, 1.0),
        (lambda x, n: x * -(n * 2 + 1), 0.5),
        (lambda x, n: x + (n + n) ** 2, 3),
        (lambda x, n: ow.where(x > n, x, n), 1.0),
        (lambda x, n: ow.maximum(x, n), 1),
        (lambda x, n: x * n, True),
        (lambda x, n: x * (n + 0.5), 2),
        (lambda x, n: x * (n * 2 + 1), True),
        (lambda x, n: x * (n / 2), 3),
        (lambda x, n: x * ow.sqrt(n), 4.0),
        (lambda x, n: x + n // 2, 2.5),
        (lambda x, n: x + n // 2, 3),
        (lambda x, n: x + n % 2, 3),
        (lambda x, n: x * -n, True),
        (lambda x, n: x * (n + n), True),
        (lambda x, n: x * abs(n * n), True),
    ],
)
@pytest.mark.parametrize("dtype", [ow.bfloat16, ow.float32, ow.float64, ow.int8, ow.int32])
def test_numbers_take_the_type_of_what_stands_beside_them(client, dtype, f, n):
    x = ow.asarray([1, 2, 3], dtype=dtype)
    outside, inside = f(x, n), ow.jit(f)(x, n)
    assert inside.dtype == outside.dtype and inside.tolist() == outside.tolist()


def test_numbers_beside_float64_keep_their_digits(client):
    x = ow.asarray(np.full(3, 3.0))
    assert np.asarray(ow.jit(lambda x, n: x * n)(x, 0.1)).tolist() == [3.0 * 0.1] * 3
    assert np.asarray(ow.jit(lambda x, n: x + (n - 1))(x, 0.1)).tolist() == [3.0 + (0.1 - 1)] * 3
    assert ow.grad(lambda x, n: (x * n).sum())(x, 0.1).tolist() == [0.1] * 3
    mixed = ow.jit(lambda x, y, n: (x * n, y * n, n * 2))(x, ow.ones(2, dtype=ow.bfloat16), 0.1)
    assert [m.dtype for m in mixed] == [ow.float64, ow.bfloat16, ow.float32]


def test_what_is_cast_or_an_array_is_no_number(client):
    x = ow.asarray([1, 2], dtype=ow.bfloat16)
    assert ow.jit(lambda x, n: x * n.astype(ow.float32))(x, 2.0).dtype == ow.float32
    f = ow.jit(lambda x, n: x * n)
    assert [f(x, n).dtype for n in (0.5, ow.asarray(0.5), 0.5)] == [
        ow.bfloat16,
        ow.float32,
        ow.bfloat16,
    ]
    assert ow.grad(lambda n: (x * n).sum().astype(ow.float32))(0.5).dtype == ow.float32

    def loss(x, n):
        return ow.value_and_grad(lambda x, n: (x * n).sum())(x, n)[0]

    assert ow.jit(loss)(x, 0.5).dtype == loss(x, 0.5).dtype == ow.bfloat16
