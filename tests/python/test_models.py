"""The examples' models and tokenizers: small random ones against NumPy in float64."""

import importlib.util
import itertools
import json
import pathlib
import sys
from math import erf, sqrt

import model_files
import numpy as np
import opwire as ow
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def example(folder, name):
    spec = importlib.util.spec_from_file_location(
        f"example_{folder}_{name}", EXAMPLES / folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


# ---- Llama

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY, THETA, EPS = 2, 64, 4, 2, 96, 64, 500.0, 1e-5
HEAD = WIDTH // HEADS
SHAPES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (KV_HEADS * HEAD, WIDTH),
    "attn_v": (KV_HEADS * HEAD, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (HIDDEN, WIDTH),
    "ffn_up": (HIDDEN, WIDTH),
    "ffn_down": (WIDTH, HIDDEN),
}


def llama_weights(rng):
    w = {
        "token_embd.weight": rng.standard_normal((VOCABULARY, WIDTH)),
        "output_norm.weight": 1 + 0.1 * rng.standard_normal(WIDTH),
    }
    for i in range(LAYERS):
        w |= {
            f"blk.{i}.{n}.weight": rng.standard_normal(s) / np.sqrt(s[1]) for n, s in SHAPES.items()
        }
        w |= {
            f"blk.{i}.{n}.weight": 1 + 0.1 * rng.standard_normal(WIDTH)
            for n in ("attn_norm", "ffn_norm")
        }
    return w


def llama_file(path, w, kinds):
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.embedding_length": WIDTH,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": THETA,
        "llama.attention.layer_norm_rms_epsilon": EPS,
    }
    tensors = {
        n: v if kinds(n) is None else (kinds(n), v.shape, model_files.quantise(v, kinds(n))[0])
        for n, v in w.items()
    }
    path.write_bytes(model_files.gguf(metadata, tensors))
    return ow.load(path)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def llama(w, tokens):
    """Logits [n, vocabulary]."""
    n = len(tokens)
    angles = np.arange(n)[:, None] * THETA ** (-2 * np.arange(HEAD // 2) / HEAD)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight

    def rotate(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack(
            [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1
        ).reshape(x.shape)

    x = w["token_embd.weight"][tokens]
    for i in range(LAYERS):
        p = {k: w[f"blk.{i}.{k}.weight"] for k in [*SHAPES, "attn_norm", "ffn_norm"]}
        h = norm(x, p["attn_norm"])
        q, k, v = ((h @ p[f"attn_{e}"].T).reshape(n, -1, HEAD).transpose(1, 0, 2) for e in "qkv")
        q, k = rotate(q), rotate(k)
        k, v = (np.repeat(a, HEADS // KV_HEADS, 0) for a in (k, v))
        scores = np.where(np.tri(n, dtype=bool), q @ k.transpose(0, 2, 1) / np.sqrt(HEAD), -np.inf)
        x = x + (softmax(scores) @ v).transpose(1, 0, 2).reshape(n, WIDTH) @ p["attn_output"].T
        h = norm(x, p["ffn_norm"])
        gate = h @ p["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p["ffn_up"].T)) @ p["ffn_down"].T
    return norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


def blocks(name):
    return None if "norm" in name else model_files.Q8_0 if "embd" in name else model_files.Q4_1


@pytest.mark.parametrize(
    "kinds, dtype, tolerance",
    [
        (lambda _: None, None, 2e-4),
        (blocks, None, 0.5),
        (blocks, "float32", 2e-4),
        (blocks, "float16", 0.2),
    ],
)
def test_llama(client, tmp_path, rng, kinds, dtype, tolerance):
    model = example("05_chat", "model")
    given = llama_weights(rng)
    w = {
        n: v if kinds(n) is None else model_files.quantise(v, kinds(n))[1] for n, v in given.items()
    }
    weights = llama_file(tmp_path / "m.gguf", given, kinds)
    tokens = rng.integers(0, VOCABULARY, 53).tolist()
    expected = llama(w, tokens)
    m = model.Model(weights, positions=64, prefill=16, dtype=dtype and getattr(ow, dtype))
    # In parts that are split and padded in all ways: 20 as 16 + 4, one alone, 32 after an odd
    # position.
    for begin, end in itertools.pairwise((0, 20, 21, 53)):
        logits = np.asarray(m.read(tokens[begin:end]))[0]
        assert m.past == end
        np.testing.assert_allclose(
            logits, expected[end - 1], atol=tolerance, err_msg=f"{begin}:{end}"
        )
        if tolerance == 0.5:  # matmuls round x to 8 bits, here of few elements
            assert np.corrcoef(logits, expected[end - 1])[0, 1] > 0.999
    with pytest.raises(ValueError, match="expected 1 to 11 tokens behind 53, got 12"):
        m.read([0] * 12)


def test_llama_writes(client, tmp_path, rng):
    model = example("05_chat", "model")
    w = llama_weights(rng)
    weights = llama_file(tmp_path / "m.gguf", w, lambda _: None)
    m = model.Model(weights, positions=40)
    tokens = rng.integers(0, VOCABULARY, 7).tolist()
    expected = list(tokens)
    for _ in range(10):
        expected.append(int(llama(w, expected)[-1].argmax()))
    heard = []
    logits = m.read(tokens)
    m.write(logits, heard.append, end=-1, most=10, temperature=0.0)
    assert heard == expected[7:] and m.past == 17
    # It continues to read after its own output, and stops at `end`, which it does not emit.
    np.testing.assert_allclose(
        np.asarray(m.read([3, 4]))[0], llama(w, [*expected, 3, 4])[-1], atol=2e-4
    )
    again = model.Model(weights, positions=40)
    stop = expected[7:].index(expected[12])
    heard.clear()
    again.write(again.read(tokens), heard.append, end=expected[12], most=10, temperature=0.0)
    assert heard == expected[7 : 7 + stop] and again.past == 7 + stop
    # Draws from a few likely tokens, by the seed alone, and at most to the end of the caches.
    drawn = []
    for seed in (1, 1, 2):
        other, one = model.Model(weights, positions=40), []
        other.write(
            other.read(tokens),
            one.append,
            end=-1,
            most=99,
            seed=seed,
            temperature=20.0,
            top_k=9,
            top_p=0.99,
        )
        drawn.append(one)
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == 33


def test_other_architectures_are_refused(client):
    with pytest.raises(ValueError, match="expected a model of the llama architecture, got gptj"):
        example("05_chat", "model").Config.of({"general.architecture": "gptj"})


# ---- Byte-level BPE


@pytest.fixture(scope="module")
def bpe():
    tokenizer = example("05_chat", "tokenizer")
    letters = tokenizer._byte_letters()
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "Ġ Ġ"]
    tokens = ["<|end|>", *letters, *(m.replace(" ", "") for m in merges)]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1),
        "tokenizer.ggml.eos_token_id": 0,
    }
    return tokenizer.Tokenizer(metadata)


@pytest.mark.parametrize(
    "text, parts",
    [
        ("hello hello", ["hello", "Ġhello"]),
        ("hell12", ["hell", "1", "2"]),  # digits alone, whatever could be merged
        ("   hello", ["ĠĠ", "Ġhello"]),
        ("o's", ["o", "'", "s"]),
        ("é", ["Ã", "©"]),
        ("<|end|>", ["<", "|", "e", "n", "d", "|", ">"]),
    ],
)
def test_bpe(bpe, text, parts):
    assert [bpe.tokens[i] for i in bpe.encode(text)] == parts
    assert bpe.decode(bpe.encode(text)) == text


def test_bpe_control_tokens_and_streams(bpe, rng):
    assert bpe.encode("hello<|end|>he", special=True) == [
        *bpe.encode("hello"),
        0,
        *bpe.encode("he"),
    ]
    assert bpe.decode([0, *bpe.encode("he"), 0]) == "he"
    text = "".join(chr(int(c)) for c in rng.integers(1, 0xD000, 400)) + "🙂"
    assert bpe.decode(bpe.encode(text)) == text
    stream = bpe.stream()
    assert [stream.send(i) for i in bpe.encode("é")] == ["", "é"] and stream.send(None) == ""
    stream = bpe.stream()
    assert [stream.send(bpe.encode("é")[0]), stream.send(None)] == ["", "\ufffd"]
    with pytest.raises(ValueError, match="byte-level BPE"):
        type(bpe)({"tokenizer.ggml.model": "llama"})


# ---- BERT


def bert_weights(rng, layers=2, width=64, hidden=96, vocabulary=50):
    w = {}

    def linear(name, n, k):
        w[f"{name}.weight"], w[f"{name}.bias"] = (
            rng.standard_normal((n, k)) / np.sqrt(k),
            0.1 * rng.standard_normal(n),
        )

    def norm(name):
        w[f"{name}.LayerNorm.weight"], w[f"{name}.LayerNorm.bias"] = (
            1 + 0.1 * rng.standard_normal(width),
            0.1 * rng.standard_normal(width),
        )

    for name, rows in (("word", vocabulary), ("position", 40), ("token_type", 2)):
        w[f"embeddings.{name}_embeddings.weight"] = rng.standard_normal((rows, width))
    norm("embeddings")
    for i in range(layers):
        layer = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            linear(f"{layer}attention.self.{part}", width, width)
        linear(layer + "attention.output.dense", width, width)
        norm(layer + "attention.output")
        linear(layer + "intermediate.dense", hidden, width)
        linear(layer + "output.dense", width, hidden)
        norm(layer + "output")
    return w


def bert(w, tokens, layers=2, head=32):
    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.LayerNorm.weight"]
            + w[f"{name}.LayerNorm.bias"]
        )

    n = len(tokens)
    x = norm(
        w["embeddings.word_embeddings.weight"][tokens]
        + w["embeddings.position_embeddings.weight"][:n]
        + w["embeddings.token_type_embeddings.weight"][0],
        "embeddings",
    )
    for i in range(layers):
        layer = f"encoder.layer.{i}."
        q, k, v = (
            linear(x, f"{layer}attention.self.{e}").reshape(n, -1, head).transpose(1, 0, 2)
            for e in ("query", "key", "value")
        )
        attended = (
            (softmax(q @ k.transpose(0, 2, 1) / sqrt(head)) @ v).transpose(1, 0, 2).reshape(x.shape)
        )
        x = norm(x + linear(attended, layer + "attention.output.dense"), layer + "attention.output")
        h = linear(x, layer + "intermediate.dense")
        x = norm(
            x + linear(h * (1 + np.vectorize(erf)(h / sqrt(2))) / 2, layer + "output.dense"),
            layer + "output",
        )
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_bert(client, tmp_path, rng):
    w = bert_weights(rng)
    path = tmp_path / "m.safetensors"
    path.write_bytes(model_files.safetensors({}, {n: v.astype(np.float32) for n, v in w.items()}))
    sentences = [rng.integers(0, 50, int(n)).tolist() for n in rng.integers(1, 33, 11)]
    got = example("06_search", "model").Encoder(ow.load(path), batch=4)(sentences)
    assert got.shape == (11, 64) and got.dtype == np.float32
    for vector, tokens in zip(got, sentences):
        np.testing.assert_allclose(vector, bert(w, tokens), atol=2e-5)
    rounded = example("06_search", "model").Encoder(ow.load(path), batch=4, dtype=ow.bfloat16)(
        sentences
    )
    assert 0.999 < (rounded * got).sum(1).min() and np.abs(rounded - got).max() > 1e-5


def test_word_pieces(tmp_path):
    vocabulary = {
        t: i
        for i, t in enumerate(
            [
                "[PAD]",
                "[UNK]",
                "[CLS]",
                "[SEP]",
                "play",
                "##ing",
                "##ed",
                ",",
                "!",
                "cafe",
                "你",
                "a",
            ]
        )
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps({"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary}})
    )
    tokenizer = example("06_search", "tokenizer").Tokenizer(str(path), longest=8)
    names = list(vocabulary)
    for text, expected in [
        ("Playing, played!", "play ##ing , play ##ed !"),
        (" Café\u00a0a\u200b\n你a", "cafe a 你 a"),
        ("playx", "[UNK]"),
        ("a" * 101, "[UNK]"),
        ("a a a a a a a a a", "a a a a a a"),
    ]:
        assert " ".join(names[i] for i in tokenizer.encode(text)) == f"[CLS] {expected} [SEP]", text
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}))
    with pytest.raises(ValueError, match="expected WordPiece, got BPE"):
        type(tokenizer)(str(path))
