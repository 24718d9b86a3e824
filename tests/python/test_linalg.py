"""Factorisations against NumPy's: what they multiply to, orthonormality, values."""

import math

import numpy as np
import opwire as ow
import pytest

pytestmark = pytest.mark.usefixtures("client")
SHAPES = [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (33, 33), (2, 3, 4, 4)]
OBLONG = [(1, 3), (4, 2), (2, 4), (7, 5), (5, 7), (3, 6, 4), (40, 17)]


def close(ours, theirs, scale=1.0, dtype=np.float64):
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e3 * eps, atol=2e3 * eps * scale)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_square_matrices(rng, dtype):
    for shape in SHAPES:
        n = shape[-1]
        a = rng.normal(size=shape) + 2 * np.eye(n)
        a = a.astype(dtype)
        b = rng.normal(size=(*shape[:-1], 3)).astype(dtype)
        x = ow.asarray(a)
        cond = np.linalg.cond(a.astype("f8")).max()
        close(
            ow.linalg.solve(x, ow.asarray(b)),
            np.linalg.solve(a.astype("f8"), b.astype("f8")),
            cond * np.abs(b).max(),
            dtype,
        )
        close(ow.matmul(ow.linalg.inv(x), x), np.broadcast_to(np.eye(n), shape), cond, dtype)
        sign, logabs = np.linalg.slogdet(a.astype("f8"))
        ours = ow.linalg.slogdet(x)
        np.testing.assert_array_equal(np.asarray(ours.sign), sign)
        close(ours.logabsdet, logabs, cond, dtype)
        spd = (a @ np.swapaxes(a, -1, -2) + np.eye(n)).astype(dtype)
        lower = ow.linalg.cholesky(ow.asarray(spd))
        close(lower, np.linalg.cholesky(spd.astype("f8")), np.abs(spd).max(), dtype)
        close(
            ow.linalg.cholesky(ow.asarray(spd), upper=True), np.swapaxes(np.asarray(lower), -1, -2)
        )
        values, vectors = ow.linalg.eigh(ow.asarray(spd))
        close(values, np.linalg.eigvalsh(spd.astype("f8")), np.abs(spd).max(), dtype)
        close(
            ow.matmul(ow.asarray(spd), vectors),
            np.asarray(vectors) * np.asarray(values)[..., None, :],
            np.abs(spd).max(),
            dtype,
        )
        close(
            ow.matmul(ow.matrix_transpose(vectors), vectors),
            np.broadcast_to(np.eye(n), shape),
            1,
            dtype,
        )
    close(
        ow.linalg.solve(ow.asarray(a[0, 0]), ow.asarray(b[0, 0, :, 0])),
        np.linalg.solve(a[0, 0].astype("f8"), b[0, 0, :, 0].astype("f8")),
        cond,
        dtype,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_oblong_matrices(rng, dtype):
    for shape in OBLONG + SHAPES:
        m, n = shape[-2:]
        k = min(m, n)
        a = rng.normal(size=shape).astype(dtype)
        if k > 2:
            a[..., :, -1] = a[..., :, 0]  # of less than full rank
        x, big = ow.asarray(a), np.abs(a).max() * k
        for mode in ("reduced", "complete"):
            q, r = ow.linalg.qr(x, mode=mode)
            close(ow.matmul(q, r), a, big, dtype)
            close(
                ow.matmul(ow.matrix_transpose(q), q),
                np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1])),
                1,
                dtype,
            )
            assert np.array_equal(np.tril(np.asarray(r), -1), np.zeros_like(np.asarray(r)))
        for full in (True, False):
            u, s, vh = ow.linalg.svd(x, full_matrices=full)
            assert u.shape[-1] == (m if full else k) and vh.shape[-2] == (n if full else k)
            close(s, np.linalg.svd(a.astype("f8"), compute_uv=False), big, dtype)
            close(
                ow.matmul(u[..., :, :k] * ow.expand_dims(s, axis=-2), vh[..., :k, :]), a, big, dtype
            )
            close(
                ow.matmul(ow.matrix_transpose(u), u),
                np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], u.shape[-1], u.shape[-1])),
                1,
                dtype,
            )
            close(
                ow.matmul(vh, ow.matrix_transpose(vh)),
                np.broadcast_to(np.eye(vh.shape[-2]), (*shape[:-2], vh.shape[-2], vh.shape[-2])),
                1,
                dtype,
            )
        np.testing.assert_array_equal(
            np.asarray(ow.linalg.matrix_rank(x)), np.linalg.matrix_rank(a)
        )
        close(
            ow.linalg.pinv(x, rtol=1e-3),
            np.linalg.pinv(a.astype("f8"), rcond=1e-3),
            100 * big,
            dtype,
        )
        for order in ("nuc", 2, 1, np.inf, "fro"):
            close(
                ow.linalg.matrix_norm(x, ord=order),
                np.linalg.norm(a.astype("f8"), ord=order, axis=(-2, -1)),
                big * k,
                dtype,
            )


def test_singular_and_special():
    singular = ow.asarray([[1.0, 2.0], [2.0, 4.0]])
    assert (
        float(ow.linalg.det(singular)) == 0
        and float(ow.linalg.slogdet(singular).logabsdet) == -np.inf
    )
    assert not np.isfinite(np.asarray(ow.linalg.inv(singular))).all()
    assert float(ow.linalg.det(ow.asarray([[0.0, 1.0], [1.0, 0.0]]))) == -1
    assert np.isnan(np.asarray(ow.linalg.cholesky(ow.asarray([[-1.0, 0.0], [0.0, 1.0]])))).any()
    assert ow.linalg.matrix_rank(ow.zeros((3, 3))).tolist() == 0
    u, s, _vh = ow.linalg.svd(ow.zeros((3, 2)))
    assert s.tolist() == [0, 0]
    np.testing.assert_allclose(np.asarray(u.T @ u), np.eye(3), atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(ow.linalg.svdvals(ow.asarray([[1e30, 0.0], [0.0, 1e20]]))),
        [1e30, 1e20],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        np.asarray(ow.linalg.matrix_power(ow.asarray([[2.0, 0.0], [0.0, 4.0]]), -2)),
        [[0.25, 0], [0, 0.0625]],
    )
    for name, bad, error in [
        ("inv", ow.ones((2, 3)), ValueError),
        ("det", ow.ones((2, 3)), ValueError),
        ("svd", ow.ones(3), ValueError),
        ("eigh", ow.arange(4).reshape((2, 2)), TypeError),
    ]:
        with pytest.raises(error, match=name):
            getattr(ow.linalg, name)(bad)


def test_they_are_traced_and_differentiated(rng):
    a = rng.normal(size=(4, 4)) + 4 * np.eye(4)
    x = ow.asarray(a)
    np.testing.assert_allclose(
        np.asarray(ow.jit(lambda m: ow.linalg.inv(m) @ m)(x)), np.eye(4), atol=1e-10
    )
    g = ow.grad(lambda m: ow.linalg.slogdet(m).logabsdet)(x)
    np.testing.assert_allclose(np.asarray(g), np.linalg.inv(a).T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_matrices_of_a_batch_are_apart(rng, bad):
    good = rng.normal(size=(5, 5))
    other = np.full((5, 5), bad) if bad != 1e200 else good * bad
    for at, pair in enumerate(([good, other], [other, good])):
        x = ow.asarray(np.stack(pair))
        symmetric = ow.asarray(np.stack([m + m.T for m in pair]))
        s, inverse, w = (
            np.asarray(f)
            for f in (ow.linalg.svdvals(x), ow.linalg.pinv(x), ow.linalg.eigvalsh(symmetric))
        )
        close(s[at], np.linalg.svd(good)[1])
        close(inverse[at] @ good, np.eye(5))
        close(w[at], np.linalg.eigvalsh(good + good.T))
        if bad != 1e200:
            assert np.isnan(s[1 - at]).all() and np.isnan(w[1 - at]).all()


def test_what_is_not_finite_is_told():
    half = ow.asarray([[1.0, math.nan], [math.nan, 3.0]])
    assert np.isnan(np.asarray(ow.linalg.eigvalsh(half))).all()
    assert np.isnan(np.asarray(ow.linalg.qr(half).R)).any()


@pytest.mark.parametrize(
    "dtype, scales",
    [("float32", [1e-30, 1e-22, 1e19, 1e30]), ("float64", [1e-300, 1e-160, 1e154, 1e300])],
)
def test_any_scale(rng, dtype, scales):
    for scale in scales:
        a = (rng.normal(size=(6, 6)) * scale).astype(dtype)
        s = (a + a.T) / 2
        q, r = (np.asarray(m).astype("f8") for m in ow.linalg.qr(ow.asarray(a)))
        close(q.T @ q, np.eye(6), 1, dtype)
        close(q @ (r / scale), a.astype("f8") / scale, 1, dtype)
        w, v = (np.asarray(m).astype("f8") for m in ow.linalg.eigh(ow.asarray(s)))
        close(v * (w / scale) @ v.T, s.astype("f8") / scale, 1, dtype)
    q, r = (np.asarray(m) for m in ow.linalg.qr(ow.asarray(np.diag([1e-200, 1.0, 1e200]))))
    np.testing.assert_allclose(np.abs(np.diagonal(r)), [1e-200, 1, 1e200])
    assert np.array_equal(np.abs(q), np.eye(3))


@pytest.mark.parametrize("dtype", [ow.float32, ow.float64], ids=lambda d: d.name)
def test_the_gradient_of_a_determinant_is_the_adjugate(dtype, rng):
    def adjugate(a):
        n = len(a)
        of = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                rest = np.delete(np.delete(a, i, 0), j, 1)
                of[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
        return of

    eps = float(ow.finfo(dtype).eps)
    for rank in (4, 3, 2, 0):
        a = rng.normal(size=(3, 4, rank)) @ rng.normal(size=(3, rank, 4))
        a = np.asarray(ow.asarray(a, dtype=dtype)).astype(float)
        got = ow.grad(lambda x: ow.linalg.det(x).sum())(ow.asarray(a, dtype=dtype))
        want = np.stack([adjugate(m) for m in a])
        np.testing.assert_allclose(np.asarray(got), want, atol=1e3 * eps)
        made = np.asarray(ow.linalg.det(ow.asarray(a, dtype=dtype)))
        np.testing.assert_allclose(made, np.linalg.det(a), atol=1e3 * eps)
    for a, want in (
        ([[1, 2], [2, 4]], [[4, -2], [-2, 1]]),
        ([[0, 1], [0, 2]], [[2, 0], [-1, 0]]),
        ([[0, 0], [0, 0]], [[0, 0], [0, 0]]),
        ([[3]], [[1]]),
    ):
        got = ow.grad(ow.linalg.det)(ow.asarray(a, dtype=dtype))
        np.testing.assert_allclose(np.asarray(got), want, rtol=4 * eps)
    order = rng.permutation(7)
    assert float(ow.linalg.det(ow.eye(7, dtype=dtype)[order])) == round(
        np.linalg.det(np.eye(7)[order])
    )
    wide = ow.asarray(np.diag([1e30, 1e30, 1e-30, 2e-30]), dtype=dtype)
    assert float(ow.linalg.det(wide)) == pytest.approx(2, rel=1e-6)
