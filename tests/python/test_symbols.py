"""Traced functions whose arguments have many lengths.

Some are traced with symbols, others with numbers.
"""

import numpy as np
import opwire as ow
import pytest

pytestmark = pytest.mark.usefixtures("client")


def counted(f):
    """The compiled function, and the list of its runs in Python."""
    traces = []

    def body(*args):
        traces.append([a.shape for a in args])
        return f(*args)

    return ow.jit(body), traces


def normal(rng, *shape):
    return ow.asarray(rng.normal(size=shape).astype("f4"))


def test_two_hundred_lengths_are_two_traces(rng):
    w = normal(rng, 16, 8)
    f, traces = counted(lambda x: ow.softmax(ow.relu(x @ w) + 1.0, axis=-1).mean(axis=0))
    for n in range(3, 203):
        x = rng.normal(size=(n, 16)).astype("f4")
        e = np.exp(np.maximum(x @ np.asarray(w), 0))
        np.testing.assert_allclose(
            np.asarray(f(ow.asarray(x))),
            (e / e.sum(-1, keepdims=True)).mean(0),
            rtol=1e-4,
            atol=1e-6,
        )
    assert [repr(t[0]) for t in traces if repr(t[0]) != "(3, 16)"] == ["(?n, 16)"] * (
        len(traces) // 2
    )
    assert len(f._traced) == 2


def test_a_prompt_of_any_length(rng):
    d, heads, vocabulary = 16, 4, 50
    embedding, wq, wk, wv, wo = (
        normal(rng, *s) for s in [(vocabulary, d), (d, d), (d, d), (d, d), (d, vocabulary)]
    )

    def logits(tokens):
        n = tokens.shape[0]
        x = ow.take(embedding, tokens, axis=0)
        q, k, v = (
            ow.permute_dims((x @ w).reshape((n, heads, -1)), (1, 0, 2)) for w in (wq, wk, wv)
        )
        i = ow.arange(n)
        causal = i.reshape((n, 1)) >= i.reshape((1, n))
        attended = ow.softmax(ow.where(causal, q @ ow.matrix_transpose(k) / 2.0, -1e9), axis=-1) @ v
        return (ow.permute_dims(attended, (1, 0, 2)).reshape((n, d)) @ wo)[-1]

    f, _ = counted(logits)
    for n in (4, 9, 2, 31, 100):
        tokens = ow.asarray(rng.integers(0, vocabulary, n))
        np.testing.assert_allclose(
            np.asarray(f(tokens)), np.asarray(logits(tokens)), rtol=1e-4, atol=1e-5
        )
    assert len(f._traced) == 2


FUNCTIONS = {
    "slices": lambda x: ow.concat([x[1:], x[:-1], x[:2], x[-2:], x[:], x[0:1], x[-2:-1]], axis=0),
    "an element": lambda x: x[0] + x[-1] + x[1, 2],
    "shapes": lambda x: (
        x.reshape((-1, 2)).reshape((x.shape[0], 8))
        + x.reshape((x.shape[0], 2, -1)).reshape((-1, 8))
        + ow.zeros((x.shape[0], 8))
        + ow.ones(x.shape)
    ),
    "flat": lambda x: ow.concat(
        [x.reshape((-1,)), x.reshape((x.size,)), ow.zeros(x.size + x.shape[0] * 2)]
    ),
    "numbers": lambda x: x.sum(axis=0) / x.shape[0] + x.shape[0] * x[0] - x.size,
    "broadcast": lambda x: ow.broadcast_to(x[:, :1], x.shape) + ow.expand_dims(x[0], axis=0),
    "the rest": lambda x: (
        x.reshape((2, -1)).reshape((x.shape[0], -1)) @ ow.ones((8, 2))
        + x.reshape((x.shape[0], x.size // x.shape[0])) @ ow.ones((8, 2))
    ),
    "spread": lambda x: ow.std(x, axis=0, correction=1) + ow.var(x) + ow.var(x, axis=1).sum(),
    "loop": lambda x: ow.for_loop(3, lambda i, c: ow.tanh(c) + x, x),
    "branch": lambda x: ow.cond(x.sum() > 0.0, lambda v: v * 2.0, lambda v: -v, x),
    "gradient": lambda x: ow.grad(lambda v: (v * v * x).sum())(x),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_symbols_suffice_for(what, rng):
    f, g = FUNCTIONS[what], ow.jit(FUNCTIONS[what])
    for n in (5, 7, 3, 40):
        x = normal(rng, n, 8)
        np.testing.assert_allclose(np.asarray(g(x)), np.asarray(f(x)), rtol=1e-4, atol=1e-4)
    assert len(g._traced) == 2


def test_gradients_and_donation(rng):
    loss = ow.value_and_grad(lambda w, x: ((x @ w) ** 2).mean())
    w = rng.normal(size=(4, 2))
    for n in (3, 4, 5, 50):
        x = rng.normal(size=(n, 4))
        value, g = loss(ow.asarray(w), ow.asarray(x))
        np.testing.assert_allclose(float(value), ((x @ w) ** 2).mean())
        np.testing.assert_allclose(np.asarray(g), 2 * x.T @ (x @ w) / (2 * n))
    assert len(loss._traced) == 2
    f = ow.jit(lambda x: x + 1.0, donate_argnames="x")
    for n in (3, 4, 5):
        x = ow.ones(n)
        place = x.id
        assert (y := f(x)).id == place and y.tolist() == [2.0] * n and not x.valid
    assert len(f._traced) == 2


def test_a_function_that_needs_the_number_is_traced_for_each():
    f, traces = counted(lambda x: x * 2.0 if x.shape[0] > 4 else x)
    for _ in range(2):
        for n in (3, 5, 4, 6):
            assert f(ow.ones(n)).tolist() == [2.0 if n > 4 else 1.0] * n
    assert len(f._traced) == 4
    assert sum(repr(t[0]) == "(?n,)" for t in traces) == 1, "symbols are tried once"
    # Its own errors are reported for the present shapes.
    g = ow.jit(lambda x: x @ ow.ones((4, x.shape[1])))
    g(ow.ones((2, 4)))
    with pytest.raises(ValueError, match="matmul: inner dimensions differ"):
        np.asarray(g(ow.ones((2, 5))))


def test_extents_of_one_and_none_are_traced_by_themselves():
    f, _ = counted(lambda x, y: x + y)
    for n in (4, 5, 6):
        assert f(ow.ones(n), ow.ones(n)).shape == (n,)
    assert len(f._traced) == 2
    assert f(ow.ones(7), ow.ones(1)).tolist() == [2.0] * 7, "broadcast, which equal extents are not"
    assert f(ow.ones(1), ow.ones(1)).tolist() == [2.0]
    assert f(ow.ones(0), ow.ones(0)).tolist() == []
    assert f(ow.ones(8), ow.ones(8)).tolist() == [2.0] * 8
    with pytest.raises(ValueError, match="add"):
        np.asarray(f(ow.ones(3), ow.ones(2)))


def test_extents_that_were_equal_may_part():
    f, _ = counted(lambda x, y: x.sum() + y.sum())
    for n in (4, 5, 6):
        assert float(f(ow.ones(n), ow.ones((n, 2)))) == 3 * n
    assert len(f._traced) == 2
    for n, m in ((4, 7), (9, 3), (8, 8)):
        assert float(f(ow.ones(n), ow.ones((m, 2)))) == n + 2 * m
    assert len(f._traced) == 3


def test_what_an_extent_is():
    seen = {}

    def look(x):
        n = x.shape[0]
        seen.update(
            n=n, size=x.size, text=f"{n} {n + 1} {2 * n} {n // 2} {n % 3} {9 // n}", shape=repr(x)
        )
        return x

    f = ow.jit(look)
    f(ow.ones((3, 2)))
    f(ow.ones((4, 2)))
    n = seen["n"]
    assert (
        repr(n) == "?n"
        and repr(seen["size"]) == "2*?n"
        and seen["text"] == "?n ?n+1 2*?n ?n//2 ?n%3 9//?n"
    )
    assert seen["shape"] == "<traced float32[?n, 2]>"
    assert n == n and n + 1 - 1 == n and n - n == 0 and type(n - n) is int
    assert (
        n != 1 and n != 0 and not n == 1 and n > 1 and n >= 2 and 0 < n and n != "text" and bool(n)
    )
    assert n + 1 != n
    for ask in (
        int,
        float,
        range,
        lambda n: n == 5,
        lambda n: n < 100,
        lambda n: n % 2 == 0,
        lambda n: bool(n % 2),
        lambda n: [0] * n,
    ):
        with pytest.raises(TypeError, match=r"\?n.*(static_argnames|interpreted)"):
            ask(n)
    for ask in (lambda n: n / 2, lambda n: n + 1.5, lambda n: -n, lambda n: n + "1"):
        with pytest.raises(TypeError):
            ask(n)
    with pytest.raises(TypeError, match="static_argnames"):
        ow.zeros(n)  # outside of a trace it is no extent
    with pytest.raises(OverflowError):
        n + 2**70


def test_how_a_program_with_symbols_runs():
    f = ow.jit(lambda x: ow.softmax(x * 2.0))
    for n in (4, 8):
        f(ow.ones((n, 8)))
    assert "?n" in f.optimised(ow.ones((9, 8))) and "?n" not in f.text(ow.ones((9, 8)))
    assert len(f.plan(ow.ones((9, 8)))) >= 1 and len(f.profile(ow.ones((9, 8)))) >= 1
    heard = []
    g = ow.jit(lambda x: (ow.emit("sum", x.sum()), x + 1.0)[1])
    for n in (2, 3, 4):
        assert g.run(ow.ones(n), on_emit=lambda name, value: heard.append(float(value))).shape == (
            n,
        )
    assert heard == [2.0, 3.0, 4.0] and len(g._traced) == 2


def test_expressions_of_extents_are_not_extents_of_tensors():
    for f in (
        lambda x: x.sum() / (x.shape[0] * x.shape[0] * x.shape[0]),
        lambda x: x * (x.shape[0] - 100),
        lambda x: ow.asarray(x.shape[0] * 10**12 - 7),
    ):
        traced = ow.jit(f)
        for n in (300, 200, 100, 99, 10_000):
            x = ow.ones((n,))
            assert np.allclose(np.asarray(traced(x)), np.asarray(f(x)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [ow.int8, ow.uint8, ow.int16, ow.int64, ow.float16, ow.bool])
def test_extents_beside_arrays_are_as_numbers(dtype):
    counts = ow.int8 if dtype == ow.bool else dtype  # there is no arange of bools
    for f in (
        lambda x: x < x.shape[0],
        lambda x: x + x.shape[0],
        lambda x: ow.where(x == x, x.shape[0], x),
        lambda x: ow.maximum(x, x.shape[0]),
        lambda x: x < x.shape[0] - 100,
        lambda x: ow.maximum(x, (x.shape[0] - 100) // 3 % 7),
        lambda x: ow.arange(x.shape[0], dtype=counts),
        lambda x: ow.arange(3, x.shape[0] + 1, dtype=counts),
    ):
        traced = ow.jit(f)
        for n in (5, 100, 200, 300, 40_000, 7):
            x = ow.zeros((n,), dtype=dtype)
            try:
                expected = np.asarray(f(x))
            except OverflowError:
                with pytest.raises(OverflowError, match="out of bounds for u?int"):
                    traced(x)
                continue
            made = traced(x)
            assert made.dtype.name == expected.dtype.name
            assert np.array_equal(np.asarray(made), expected), (n, dtype)


@pytest.mark.parametrize("dtype", [ow.int8, ow.uint8, ow.int16], ids=lambda d: d.name)
def test_an_extent_among_elements_is_a_number_of_their_type(dtype):
    high = ow.iinfo(dtype).max
    for f in (
        lambda x: ow.isin(x, x.shape[0]),
        lambda x: ow.isin(x.shape[0], x),
        lambda x: ow.searchsorted(x, x.shape[0]),
    ):
        traced = ow.jit(f)
        for n in (5, 7, high, high + 3, 11):
            x = ow.full((n,), 7, dtype=dtype)
            for g in (f, traced):
                if n > high:
                    with pytest.raises(OverflowError):
                        g(x)
                else:
                    assert np.array_equal(np.asarray(g(x)), np.asarray(f(x)))
