"""Ops of users by name: eager, traced, together with other ops; and their errors."""

import os
import pathlib
import re
import subprocess
import sys

import opwire as ow
import pytest
from processes import served

ROOT = pathlib.Path(__file__).parents[2]

CODE = """
import numpy as np, opwire as ow
rng = np.random.default_rng(SEED)
client = ow.connect()
op = client.device.op("user.gelu_bias")
assert op.__name__ == "user.gelu_bias"
a, b = rng.standard_normal((5, 7)), rng.standard_normal(7)
x, bias = ow.asarray(a), ow.asarray(b)

def close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12, atol=1e-12)

close(op(x, bias), a + b)
for n in range(1, 40):  # of other sizes, too
    close(op(ow.ones((n, n + 1)), ow.arange(n + 1, dtype=ow.float32)), 1.0 + np.broadcast_to(np.arange(n + 1), (n, n + 1)))
close(op(x + 1, bias * 2) - 3, a + 1 + b * 2 - 3)

traced = ow.jit(lambda x, bias: op(op(x, bias) * 2, bias).sum(axis=0))
close(traced(x, bias), ((a + b) * 2 + b).sum(axis=0))
assert traced.text(x, bias).count("user.gelu_bias") == 2
close(ow.jit(lambda x: ow.for_loop(3, lambda i, x: op(x, bias), x))(x), a + 3 * b)
close(ow.jit(lambda x, t: ow.cond(t, lambda: op(x, bias), lambda: x))(x, ow.asarray(True)), a + b)

def refused(error, words, f):
    try:
        f()
    except error as e:
        assert words in str(e), (words, str(e))
    else:
        raise AssertionError(words)

refused(ValueError, "unknown op user.gelu_bios on here/cpu, did you mean user.gelu_bias?", lambda: client.device.op("user.gelu_bios"))
refused(TypeError, "user.gelu_bias: expected 2 operands, got 3", lambda: op(x, bias, x))
refused(ValueError, "user.gelu_bias", lambda: op(x, x[0, :3]))
refused(TypeError, "user.gelu_bias", lambda: op(ow.asarray([[1]]), ow.asarray([1])))
refused(TypeError, "scale", lambda: op(x, bias, scale=2))
# It has no gradient: what does not need one may be beside it.
refused(NotImplementedError, "user.gelu_bias", lambda: ow.grad(lambda x: op(x, bias).sum())(x))
close(ow.grad(lambda x, y: (x * op(y, bias)).sum())(x, x), a + b)
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "ops"
    made.mkdir()
    subprocess.run(
        [os.environ.get("OPWIRE_PROGRAM", "opwire"), "new-op", "gelu_bias"],
        cwd=made,
        check=True,
        capture_output=True,
    )
    return made


def run(code, environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_eager_and_traced(tmp_path, folder, rng):
    with served(tmp_path, "--ops", str(folder)) as environment:
        run(CODE.replace("SEED", str(rng.integers(1 << 30))), environment)


def test_as_the_page_shows(tmp_path, folder):
    snippet = next(
        s
        for s in re.findall(
            r"```python\n(.*?)```", (ROOT / "docs/user-ops.md").read_text(), re.DOTALL
        )
    )
    with served(tmp_path, "--ops", str(folder)) as environment:
        run(
            f"import opwire as ow\n{snippet}\n"
            "assert y.tolist() == [[2.0] * 64] * 3\nassert float(loss(x, bias)) == 4.0",
            environment,
        )


def test_of_several_devices_the_one_with_the_op(tmp_path, folder):
    code = """
import time
import opwire as ow
until = time.monotonic() + 60
while len(ow.devices()) < 2 and time.monotonic() < until:
    time.sleep(0.05)
first, last = ow.devices()
assert last.executor == "with-op" and ow.device() == first
assert ow.device(op="user.gelu_bias") == last and ow.device(op="add") == first
assert ow.device("with-op", op="add") == last
wrong = [(first.executor, "user.gelu_bias"), ("moon", "add"), (None, "user.none")]
for name, op in wrong:
    try:
        ow.device(name, op=op)
    except ValueError as e:
        assert "no device" in str(e) and op in str(e), e
    else:
        raise AssertionError(name, op)
"""
    with served(tmp_path) as environment:
        program = pathlib.Path(os.environ.get("OPWIRE_PROGRAM", "opwire"))
        executor = subprocess.Popen(
            [program.with_name("opwire-executor"), "--name", "with-op", "--ops", str(folder)],
            env=environment,
        )
        try:
            run(code, environment)
        finally:
            executor.terminate()
            executor.wait(60)


def test_built_in_ones(client):
    two = client.device.op("topk")(ow.asarray([1.0, 3.0, 2.0]), k=2)
    assert [t.tolist() for t in two] == [[3.0, 2.0], [1, 2]]
    assert client.device.op("zeros")(shape=[2], dtype=ow.float32).tolist() == [0.0, 0.0]
