"""Llama's architecture, as SmolLM2 has it, over the weights of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import opwire as ow

Caches = list[
    tuple[ow.Array, ow.Array]
]  # of each layer, keys and values, [1, heads, positions, head]
DENSE = (ow.float32, ow.float16, ow.bfloat16)


@dataclass(frozen=True)
class Config:
    """What a file's metadata says of the model's form."""

    layers: int
    heads: int
    kv_heads: int
    head: int  # elements of a head
    theta: float
    eps: float

    @staticmethod
    def of(metadata: dict[str, Any]) -> Config:
        if metadata["general.architecture"] != "llama":
            raise ValueError(
                f"expected a model of the llama architecture, got {metadata['general.architecture']}"
            )
        heads = metadata["llama.attention.head_count"]
        return Config(
            layers=metadata["llama.block_count"],
            heads=heads,
            kv_heads=metadata.get("llama.attention.head_count_kv", heads),
            head=metadata["llama.embedding_length"] // heads,
            theta=metadata.get("llama.rope.freq_base", 10000.0),
            eps=metadata["llama.attention.layer_norm_rms_epsilon"],
        )


def linear(x: ow.Array, weight: ow.Array) -> ow.Array:
    """x weight^T, of weights in blocks or dense ones."""
    return (ow.linear if weight.dtype in DENSE else ow.quantized_linear)(x, weight)


def forward(
    c: Config, w: dict[str, ow.Array], tokens: ow.Array, past: ow.Array, caches: Caches
) -> tuple[ow.Array, Caches]:
    """The result of the last layer, f32[1, n, width], for tokens i64[1, n] after `past` others, and the
    updated caches.
    """
    n = tokens.shape[1]
    positions = past + ow.arange(n)

    def split(x: ow.Array, heads: int) -> ow.Array:  # [1, n, heads * head] -> [1, heads, n, head]
        return ow.permute_dims(x.reshape((1, n, heads, c.head)), (0, 2, 1, 3))

    def rotate(x: ow.Array) -> ow.Array:
        return ow.rotary_embedding(x, positions, theta=c.theta, interleaved=True)

    embedding = w["token_embd.weight"]
    x = (ow.embedding if embedding.dtype in DENSE else ow.quantized_embedding)(embedding, tokens)
    updated = []
    for i, (keys, values) in enumerate(caches):
        layer = f"blk.{i}."
        h = ow.rms_norm(x, w[layer + "attn_norm.weight"], eps=c.eps)
        q = rotate(split(linear(h, w[layer + "attn_q.weight"]), c.heads))
        k = rotate(split(linear(h, w[layer + "attn_k.weight"]), c.kv_heads))
        v = split(linear(h, w[layer + "attn_v.weight"]), c.kv_heads)
        keys, values = ow.kv_append(keys, k, past), ow.kv_append(values, v, past)
        updated.append((keys, values))
        attended = ow.permute_dims(
            ow.kv_attention(q, keys, values, past + n), (0, 2, 1, 3)
        ).reshape((1, n, c.heads * c.head))
        x = x + linear(attended, w[layer + "attn_output.weight"])
        h = ow.rms_norm(x, w[layer + "ffn_norm.weight"], eps=c.eps)
        gated = ow.silu(linear(h, w[layer + "ffn_gate.weight"])) * linear(
            h, w[layer + "ffn_up.weight"]
        )
        x = x + linear(gated, w[layer + "ffn_down.weight"])
    return x, updated


def head(c: Config, w: dict[str, ow.Array], x: ow.Array) -> ow.Array:
    """Logits of what `forward` gives."""
    return linear(
        ow.rms_norm(x, w["output_norm.weight"], eps=c.eps),
        w["output.weight"] if "output.weight" in w else w["token_embd.weight"],
    )


class Model:
    """A model on a device, and the conversation in its caches.

    prefill: tokens that go through the layers at one time, at most.
    dtype: of all weights and activations, one of DENSE; None: weights stay unconverted, and activations are float32.
    """

    def __init__(
        self, weights: ow.Weights, *, positions: int = 2048, prefill: int = 512, dtype: Any = None
    ):
        self.config = c = Config.of(weights.metadata)
        self.weights = {
            n: a
            if dtype is None
            else (a if a.dtype in DENSE else ow.dequantize_blocks(a)).astype(dtype)
            for n, a in weights.items()
        }
        self.positions = positions
        self.prefill = min(prefill, positions)
        self.past = 0
        shape = (1, c.kv_heads, positions, c.head)
        device = next(iter(self.weights.values())).device
        kind = dtype or ow.float32
        self.caches: Caches = [
            (ow.zeros(shape, dtype=kind, device=device), ow.zeros(shape, dtype=kind, device=device))
            for _ in range(c.layers)
        ]

        def read(w: Any, tokens: ow.Array, past: ow.Array, caches: Caches, last: ow.Array) -> Any:
            x, caches = forward(c, w, tokens, past, caches)
            return head(c, w, ow.take(x, last.reshape(1), axis=1))[:, 0], caches

        def write(
            w: Any,
            logits: ow.Array,
            past: ow.Array,
            caches: Caches,
            most: ow.Array,
            end: ow.Array,
            key: ow.Array,
            temperature: ow.Array,
            top_k: ow.Array,
            top_p: ow.Array,
        ) -> Any:
            def sample(logits: ow.Array, past: ow.Array) -> ow.Array:
                return ow.random.categorical(
                    ow.random.fold_in(key, past.astype(ow.uint64)),
                    logits,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                )

            def goes_on(carried: Any) -> ow.Array:
                token, at, _ = carried
                more: ow.Array = (token != end) & (at < past + most)
                return more.reshape(())

            def step(carried: Any) -> Any:
                token, at, caches = carried
                ow.emit("token", token)
                x, caches = forward(c, w, token.reshape((1, 1)), at, caches)
                return sample(head(c, w, x[:, 0]), at + 1), at + 1, caches

            _, past, caches = ow.while_loop(goes_on, step, (sample(logits, past), past, caches))
            return past, caches

        self._read = ow.jit(read, donate_argnames="caches", warn=False)
        self._write = ow.jit(write, donate_argnames="caches")

    def read(self, tokens: list[int]) -> ow.Array:
        """Logits f32[1, vocabulary] after these tokens, which continue the conversation.

        ValueError if they do not fit.
        """
        if not tokens or self.past + len(tokens) > self.positions:
            raise ValueError(
                f"expected 1 to {self.positions - self.past} tokens behind {self.past}, got {len(tokens)}"
            )
        for start in range(0, len(tokens), self.prefill):
            part = tokens[start : start + self.prefill]
            # Padded to one of a few lengths, each of which is compiled once. The padding comes after the tokens: it is
            # overwritten before it is read.
            padded = min(max(16, 1 << (len(part) - 1).bit_length()), self.positions - self.past)
            filled = np.array([part + [0] * (padded - len(part))], np.int64)
            logits, self.caches = self._read(
                self.weights, filled, self.past, self.caches, len(part) - 1
            )
            self.past += len(part)
        made: ow.Array = logits
        return made

    def write(
        self,
        logits: ow.Array,
        on_token: Callable[[int], None],
        *,
        end: int,
        most: int = 256,
        seed: int = 0,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
    ) -> None:
        """Draws tokens on the executor, the first from `logits`, until it draws `end` or has drawn `most`.

        on_token is called with each drawn token except `end`.
        """
        key = ow.random.key(seed, device=logits.device)
        most = min(most, self.positions - self.past)
        past, self.caches = self._write.run(
            self.weights,
            logits,
            self.past,
            self.caches,
            most,
            end,
            key,
            temperature,
            top_k,
            top_p,
            on_emit=lambda _, token: on_token(int(token[0])),
        )
        self.past = int(past)
