"""BERT's encoder with the mean of its tokens, as all-MiniLM-L6-v2 has it, over the weights of a safetensors file."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import opwire as ow

EPS = 1e-12
HEAD = 32  # elements of a head


def encode(w: dict[str, ow.Array], tokens: ow.Array, lengths: ow.Array) -> ow.Array:
    """Unit vectors f32[b, width] of sentences i64[b, n] with lengths i64[b]."""
    b, n = tokens.shape

    def linear(x: ow.Array, name: str, activation: str = "none") -> ow.Array:
        weight = w[name + ".weight"]
        return ow.linear(
            x.astype(weight.dtype, copy=False), weight, w[name + ".bias"], activation=activation
        ).astype(ow.float32, copy=False)

    def norm(x: ow.Array, name: str) -> ow.Array:
        return ow.layer_norm(x, w[name + ".LayerNorm.weight"], w[name + ".LayerNorm.bias"], eps=EPS)

    def split(x: ow.Array) -> ow.Array:  # [b, n, heads * head] -> [b, heads, n, head]
        return ow.permute_dims(x.reshape((b, n, -1, HEAD)), (0, 2, 1, 3))

    there = ow.arange(n) < lengths.reshape((b, 1))
    mask = there.reshape((b, 1, 1, n))
    x = ow.embedding(w["embeddings.word_embeddings.weight"], tokens)
    x = norm(
        x
        + w["embeddings.position_embeddings.weight"][:n]
        + w["embeddings.token_type_embeddings.weight"][0],
        "embeddings",
    )
    i = 0
    while (layer := f"encoder.layer.{i}.") + "output.dense.weight" in w:
        q, k, v = (
            split(linear(x, f"{layer}attention.self.{part}")) for part in ("query", "key", "value")
        )
        attended = ow.permute_dims(
            ow.scaled_dot_product_attention(q, k, v, mask), (0, 2, 1, 3)
        ).reshape(x.shape)
        x = norm(x + linear(attended, layer + "attention.output.dense"), layer + "attention.output")
        x = norm(
            x + linear(linear(x, layer + "intermediate.dense", "gelu"), layer + "output.dense"),
            layer + "output",
        )
        i += 1
    counts = there.astype(ow.float32)
    mean = (x * counts.reshape((b, n, 1))).sum(axis=1) / lengths.astype(ow.float32).reshape((b, 1))
    return mean / ow.sqrt((mean * mean).sum(axis=1, keepdims=True))


class Encoder:
    """Sentences to vectors, in batches of sentences of similar length.

    dtype: of linear layers and their operands. In bfloat16, which keeps 8 bits, the cosine between
    a vector and the same in float32 is above 0.9999.
    """

    def __init__(self, weights: ow.Weights, batch: int = 32, dtype: Any = ow.float32):
        layers = re.compile(r"encoder\.layer\.\d+\.(?!.*LayerNorm)")
        self.weights: Any = {
            n: w.astype(dtype, copy=False) if layers.match(n) else w for n, w in weights.items()
        }
        self.batch = batch
        self._encode = ow.jit(encode, warn=False)

    def batches(
        self, sentences: list[list[int]]
    ) -> list[tuple[list[int], np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """The indices of some sentences, their tokens i64[b, n] padded with 0, and their lengths.

        b and n have a few sizes, for each of which the model is compiled.
        """
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        out = []
        for start in range(0, len(order), self.batch):
            places = order[start : start + self.batch]
            rows = min(self.batch, 1 << (len(places) - 1).bit_length())
            tokens = np.zeros((rows, -(-len(sentences[places[-1]]) // 16) * 16), np.int64)
            lengths = np.ones(rows, np.int64)
            for row, i in enumerate(places):
                tokens[row, : len(sentences[i])] = sentences[i]
                lengths[row] = len(sentences[i])
            out.append((places, tokens, lengths))
        return out

    def __call__(self, sentences: list[list[int]]) -> np.ndarray[Any, Any]:
        """Unit vectors f32[sentences, width]."""
        batches = self.batches(sentences)
        made = [self._encode(self.weights, tokens, lengths) for _, tokens, lengths in batches]
        out = np.empty((len(sentences), made[0].shape[1]), np.float32)
        for (places, _, _), vectors in zip(batches, made):
            out[places] = np.asarray(vectors)[: len(places)]
        return out
