"""Weights from GGUF and safetensors files: streamed, and read by the executor."""

import contextlib
import os
import pickle
import re
import subprocess
import sys

import model_files
import numpy as np
import opwire as ow
import pytest
from model_files import Q4_1, Q5_0, Q8_0
from processes import served


@pytest.fixture
def weights(rng):
    return {
        "dense": rng.standard_normal((3, 5)),
        "head": rng.standard_normal((6, 64)),
        "rows": rng.standard_normal((8, 32)),
    }


def write(path, weights):
    blocks = {"head": Q4_1, "rows": Q8_0}
    tensors = {
        n: (blocks[n], w.shape, model_files.quantise(w, blocks[n])[0]) if n in blocks else w
        for n, w in weights.items()
    }
    metadata = {
        "general.name": "näme",
        "count": 7,
        "scale": 0.5,
        "yes": True,
        "words": ["a", "b c"],
        "kinds": [1, 2, 3],
    }
    path.write_bytes(model_files.gguf(metadata, tensors))
    return path


def test_blocks_stay_blocks(client, tmp_path, weights, rng):
    path = write(tmp_path / "m.gguf", weights)
    w = ow.load(path)
    assert list(w) == list(weights) and w.streamed_bytes == 3 * 5 * 4 + 6 * 2 * 20 + 8 * 34
    assert w.metadata == {
        "general.name": "näme",
        "count": 7,
        "scale": 0.5,
        "yes": True,
        "words": ["a", "b c"],
        "kinds": [1, 2, 3],
    }
    assert (w["dense"].dtype, w["head"].dtype, w["rows"].dtype) == (ow.float32, ow.q4_1, ow.q8_0)
    assert w["head"].shape == (6, 64) and w["head"].nbytes == 240
    np.testing.assert_array_equal(np.asarray(w["dense"]), weights["dense"].astype(np.float32))
    for name, kind in (("head", Q4_1), ("rows", Q8_0)):
        np.testing.assert_allclose(
            np.asarray(ow.dequantize_blocks(w[name])),
            model_files.quantise(weights[name], kind)[1],
            rtol=1e-6,
            atol=1e-6,
        )
    x, head = rng.standard_normal((2, 64)), model_files.quantise(weights["head"], Q4_1)[1]
    product = ow.quantized_linear(ow.asarray(x), w["head"], ow.ones(6, dtype=ow.float64))
    np.testing.assert_allclose(np.asarray(product), x @ head.T + 1, rtol=1e-6)
    picked = ow.quantized_embedding(w["head"], ow.asarray([5, -6]), dtype=ow.float64)
    np.testing.assert_allclose(np.asarray(picked), head[[5, 0]], rtol=1e-6, atol=1e-7)


def test_blocks_in_traced_functions(client, tmp_path, weights, rng):
    w = ow.load(write(tmp_path / "m.gguf", weights))
    x = rng.standard_normal((1, 64))  # matmuls in float64 round nothing to 8 bits

    @ow.jit
    def both(x, w):  # one is an argument, one is captured, also by a loop's body
        return ow.for_loop(
            3,
            lambda i, total: (
                total + ow.quantized_linear(x, w["head"]) + ow.quantized_linear(x, outside)
            ),
            ow.zeros((1, 6), dtype=ow.float64),
        )

    outside = w["head"]
    expected = 6 * (x @ model_files.quantise(weights["head"], Q4_1)[1].T)
    np.testing.assert_allclose(np.asarray(both(x, w)), expected, rtol=1e-5, atol=1e-5)
    other = {"head": ow.zeros((6, 64))}
    with pytest.raises(TypeError, match="quantized_linear: operand weight: expected i8 in blocks"):
        both(x, other)


def test_what_blocks_are_not_for(client, tmp_path, weights):
    q = ow.load(write(tmp_path / "m.gguf", weights))["head"]
    assert (
        "blocks" in repr(q)
        and repr(q.dtype) == "opwire.q4_1"
        and pickle.loads(pickle.dumps(q.dtype)) == ow.q4_1
    )
    assert len({ow.q4_0, ow.q4_1, ow.q8_0, ow.q6_k, ow.int8}) == 5
    refused = [
        lambda: q + 1,
        lambda: q @ q,
        lambda: np.asarray(q),
        lambda: q.tolist(),
        lambda: q.astype(ow.float32),
        lambda: ow.relu(q),
        lambda: q.sum(),
        lambda: q[0],
        lambda: q.reshape(-1),
        lambda: ow.concat([q, q]),
        lambda: ow.jit(lambda a: a)(q),
        lambda: ow.jit(lambda a: ow.relu(a), donate_argnames="a")(q),
        lambda: ow.zeros(32, dtype=ow.q4_1),
        lambda: q.itemsize,
    ]
    for f in refused:
        with pytest.raises(TypeError, match="block|dense"):
            f()


def test_names(client, tmp_path, weights):
    path = write(tmp_path / "m.gguf", weights)
    w = ow.load(path, names=["rows"])
    assert list(w) == ["rows"] and w.streamed_bytes == 8 * 34
    with pytest.raises(KeyError, match="none of the 1 arrays of .* is called head"):
        w["head"]
    with pytest.raises(KeyError, match="none of the 3 tensors of .* is called other"):
        ow.load(path, names=["other"])
    with pytest.raises(
        FileNotFoundError,
        match=r"neither in your folder of the --data directory of here/\S+ nor a file here",
    ):
        ow.load(str(tmp_path / "none.gguf"))
    with pytest.raises(FileNotFoundError):
        ow.load("weights.bin")
    with pytest.raises(ValueError, match="expected a regular file"):
        (tmp_path / "folder.gguf").mkdir()
        ow.load(tmp_path / "folder.gguf")


def test_types_that_ggml_got_later(client, tmp_path):
    old = tmp_path / "old.gguf"
    old.write_bytes(model_files.gguf({}, {"a": np.ones((2, 2)), "b": (Q5_0, (1, 32), bytes(22))}))
    assert ow.load(old, names=["a"])["a"].tolist() == [[1, 1], [1, 1]]
    with pytest.raises(NotImplementedError, match="tensor b is of Q5_0"):
        ow.load(old)
    new = tmp_path / "new.gguf"
    new.write_bytes(
        model_files.gguf(
            {}, {"b": (41, (3, 5), bytes(70)), "a": np.ones((2, 2)), "c": (77, (1,), bytes(9))}
        )
    )
    assert ow.load(new, names=["a"])["a"].tolist() == [[1, 1], [1, 1]]
    for names in (None, ["b"]):
        with pytest.raises(NotImplementedError, match="tensor b is of type 41"):
            ow.load(new, names=names)


def test_the_first_bytes_tell_what_a_file_is(client, tmp_path):
    gguf = model_files.gguf({}, {"a": np.ones((2, 2))})
    safe = model_files.safetensors({}, {"a": np.ones((2, 2), "f4")})
    for name in ("model", "M.GGUF", "m.safetensors", "m.bin"):
        for content in (gguf, safe):
            path = tmp_path / name
            path.write_bytes(content)
            assert ow.load(path)["a"].tolist() == [[1, 1], [1, 1]]
    for content, told in (
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "by `git lfs pull`"),
        (b"\n <!DOCTYPE HTML><html></html>", "HTML page, not the file: download the file again"),
        (b'{"metadata": {}, "weight_map": {"a": "m-00001-of-00002.safetensors"}}', "the index of"),
        (b'{"hidden_size": 4}', "it is JSON, without tensors"),
        (b"PK\x03\x04rest", "a checkpoint of PyTorch: save the weights as .safetensors"),
        (b"\x80\x02rest", "it is a pickle"),
        (b"\x93NUMPY\x01\x00", "an array of NumPy's, without names"),
        (
            b"something else",
            "expected a file of GGUF, safetensors or NPY, got one that begins with",
        ),
    ):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(told)):
            ow.load(path)
    for name, content in (("m.gguf", b"no"), ("M.SAFETENSORS", b"no")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: (gguf|safetensors): "):
            ow.load(tmp_path / name)
    for name in (
        "m-00002-of-00003.safetensors",
        "m-00001-of-00002.gguf",
        "m_00001-of-00002.gguf",
        "m.safetensors-00001-of-00002",
        "m-000001-of-000002.safetensors",
        "M-00001-OF-00002.SAFETENSORS",
    ):
        path = tmp_path / name
        path.write_bytes(safe)
        with pytest.raises(ValueError, match=r"it is file \d of \d of a model: load each"):
            ow.load(path)
        assert list(ow.load(path, names=["a"])) == ["a"]
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(model_files.gguf({"split.no": 1, "split.count": 3}, {"a": np.ones((2, 2))}))
    with pytest.raises(ValueError, match="it is file 2 of 3 of a model: load each"):
        ow.load(renamed)


def test_safetensors(client, tmp_path, rng):
    given = {
        "a.weight": rng.standard_normal((4, 6)).astype(np.float32),
        "ids": np.arange(9),
        "half": np.ones(3, np.float16),
        "none": np.zeros((0, 2), np.float32),
    }
    path = tmp_path / "m.safetensors"
    path.write_bytes(model_files.safetensors({"format": "pt"}, given))
    w = ow.load(path)
    assert w.metadata == {"format": "pt"} and list(w) == list(given)
    for name, value in given.items():
        assert w[name].dtype.name == value.dtype.name
        np.testing.assert_array_equal(np.asarray(w[name]), value)


def test_a_file_that_is_cut_while_it_is_read(client, tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(model_files.safetensors({}, {n: np.ones(100_000, np.float32) for n in "ab"}))
    put = ow._core.put

    def put_and_cut(*given):
        os.truncate(path, 400_000)
        return put(*given)

    monkeypatch.setattr(ow._core, "put", put_and_cut)
    with pytest.raises(ValueError, match=r"byte \d+: tensor b ends \d+ bytes early"):
        ow.load(path)


def test_what_is_no_file(client, tmp_path):
    os.mkfifo(tmp_path / "m.gguf")  # without a writer
    os.mkdir(tmp_path / "m.safetensors")
    for name in ("m.gguf", "m.safetensors"):
        with pytest.raises(ValueError, match="expected a regular file"):
            ow.load(tmp_path / name)


def test_broken_files(client, tmp_path, weights, rng):
    good = {
        "m.gguf": write(tmp_path / "m.gguf", weights).read_bytes(),
        "m.safetensors": model_files.safetensors({}, {"a": np.ones((8, 8), np.float32)}),
    }
    for name, data in good.items():
        for n in range(0, len(data) - 32, 13):  # the padding at the end may be missing
            (tmp_path / name).write_bytes(data[:n])
            with pytest.raises(ValueError, match=r"byte \d+"):
                ow.load(tmp_path / name)
        (tmp_path / name).write_bytes(b"\xff" * 16 + data[16:])
        with pytest.raises(ValueError, match=r"byte \d+: expected"):
            ow.load(tmp_path / name)


CODE = """
import pathlib, sys
import numpy as np, opwire as ow
data, elsewhere = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
ow.connect()
for attach in range(2):
    w = ow.load("m.gguf")
    assert w.streamed_bytes == 0 and w["head"].dtype == ow.q4_1 and w.metadata["count"] == 7
    print(float(ow.quantized_linear(ow.ones((1, 64)), w["head"]).sum()))
(elsewhere / "local.gguf").write_bytes((data / "m.gguf").read_bytes())
assert ow.load("local.gguf").streamed_bytes > 0      # not there, but here
assert ow.load("../" + elsewhere.name + "/local.gguf").streamed_bytes > 0
(elsewhere / "m.gguf").write_bytes(b"nothing that would be read")
assert ow.load("m.gguf", names=["rows"]).streamed_bytes == 0
(data / "broken.gguf").write_bytes((data / "m.gguf").read_bytes()[:100])
try:
    ow.load("broken.gguf")
except ValueError as e:
    assert "file broken.gguf: gguf: byte " in str(e), e
else:
    raise AssertionError("a broken file was loaded")
"""


@contextlib.contextmanager
def reading(tmp_path, device):
    """Starts an executor of this device with a --data directory.

    Yields the environment of a process that it serves, and its user's folder in the --data
    directory.
    """
    data = tmp_path / "data" / f"uid-{os.getuid()}"
    data.mkdir(parents=True)
    with served(tmp_path, "--device", device, "--data", str(tmp_path / "data")) as environment:
        yield environment, data


def test_executor_reads_its_own_files(tmp_path, weights):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with reading(tmp_path, "cpu") as (environment, data):
        write(data / "m.gguf", weights)
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(data), str(elsewhere)],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = model_files.quantise(weights["head"], Q4_1)[1].sum()
    for said in done.stdout.split():
        np.testing.assert_allclose(float(said), expected, rtol=1e-3, atol=1e-2)


LARGE = """
import sys, threading
import numpy as np, opwire as ow
client = ow.connect()
stop = threading.Event()
def others():  # runs of another session meanwhile
    x = ow.ones(64, device=ow.connect().devices[0])
    while not stop.is_set():
        assert np.asarray(x).sum() == 64 and (x + x).tolist() == [2.0] * 64
other = threading.Thread(target=others)
other.start()
try:
    for _ in range(3):
        w = ow.load("large.safetensors", device=client.devices[0])
        assert w.streamed_bytes == 0 and str(client.device) == "here/emu:0"
        for name, first in (("a", 0), ("b", 7)):
            assert np.array_equal(np.asarray(w[name]), np.arange(first, first + w[name].size).reshape(w[name].shape)), name
        del w
finally:
    stop.set()
    other.join()
"""


def test_an_executor_of_a_gpu_reads_its_files_by_chunks(tmp_path):
    given = {"a": np.arange(1_500_001), "b": np.arange(7, 7 + 1024 * 1025).reshape(1025, 1024)}
    with reading(tmp_path, "emu:0") as (environment, data):
        (data / "large.safetensors").write_bytes(model_files.safetensors({}, given))
        done = subprocess.run(
            [sys.executable, "-c", LARGE],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
