"""Functions of neural networks, by PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._elementwise import asarray_like
from ._manipulation import axis_of

if TYPE_CHECKING:
    from ._array import Array

Op = _core.Op
_relu, _gelu, _gelu_tanh, _silu, _sigmoid = (
    Op("relu"),
    Op("gelu"),
    Op("gelu_tanh"),
    Op("silu"),
    Op("sigmoid"),
)
_softmax, _log_softmax, _layer_norm, _rms_norm, _linear = (
    Op("softmax"),
    Op("log_softmax"),
    Op("layer_norm"),
    Op("rms_norm"),
    Op("linear"),
)
_embedding, _one_hot, _attention, _rotary, _cross_entropy, _dropout = (
    Op("embedding"),
    Op("one_hot"),
    Op("scaled_dot_product_attention"),
    Op("rotary_embedding"),
    Op("cross_entropy"),
    Op("dropout"),
)
_quantized_linear, _quantized_embedding, _dequantize_blocks, _kv_append, _kv_attention = (
    Op("quantized_linear"),
    Op("quantized_embedding"),
    Op("dequantize_blocks"),
    Op("kv_append"),
    Op("kv_attention"),
)


def relu(x: Array, /) -> Array:
    """x where it is above 0, else 0; NaN stays."""
    return _relu(asarray_like(x))


def gelu(x: Array, /, *, approximate: str = "none") -> Array:
    """x times the normal distribution's function at x; approximate "tanh": by tanh."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f'gelu: expected approximate "none" or "tanh", got {approximate!r}')
    return (_gelu if approximate == "none" else _gelu_tanh)(asarray_like(x))


def silu(x: Array, /) -> Array:
    """x * sigmoid(x)."""
    return _silu(asarray_like(x))


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x))."""
    return _sigmoid(asarray_like(x))


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x) over its sum along an axis."""
    x = asarray_like(x)
    return _softmax(x, dim=axis_of(axis, x.ndim))


def log_softmax(x: Array, /, *, axis: int = -1) -> Array:
    """The logarithm of softmax."""
    x = asarray_like(x)
    return _log_softmax(x, dim=axis_of(axis, x.ndim))


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, /, *, eps: float = 1e-5
) -> Array:
    """Rows [..., D] less their mean, over the root of their variance plus eps, times weight [D]
    plus bias [D].
    """
    return _layer_norm(x, weight, bias, eps=eps)


def rms_norm(x: Array, weight: Array | None = None, /, *, eps: float = 1e-5) -> Array:
    """Rows [..., D] over the root of their mean square plus eps, times weight [D]."""
    return _rms_norm(x, weight, eps=eps)


def linear(
    x: Array, weight: Array, bias: Array | None = None, /, *, activation: str = "none"
) -> Array:
    """activation(x weight^T + bias) of x [..., K], weight [N, K], bias [N].

    activation: "none", "relu", "gelu", "gelu_tanh" or "silu".
    """
    return _linear(x, weight, bias, activation=activation)


def embedding(weight: Array, index: Array, /) -> Array:
    """The rows of weight [V, D] that index, in [-V, V), names."""
    return _embedding(weight, index)


def one_hot(index: Array, classes: int, /, *, dtype: Any = None) -> Array:
    """A last axis of `classes` with 1 at index and 0 elsewhere."""
    from ._dtypes import as_dtype

    return _one_hot(
        index, classes=classes, dtype=_core.float32 if dtype is None else as_dtype(dtype)
    )


def _by_scale(query: Array, scale: float | None) -> tuple[Array, float]:
    """Queries and the op's attribute, whose 0 stands for 1 / sqrt(D)."""
    if scale == 0:
        return query * 0.0, 1.0
    return query, 0.0 if scale is None else scale


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """softmax(query key^T * scale + mask) value of [B, H, S, D].

    scale None: 1 / sqrt(D). If key and value have fewer heads, neighbouring heads of query share
    one.
    """
    query, factor = _by_scale(query, scale)
    return _attention.many(query, key, value, mask, causal=causal, scale=factor)[0]


def rotary_embedding(
    x: Array,
    positions: Array,
    /,
    *,
    dim: int = 0,
    theta: float = 10000.0,
    interleaved: bool = False,
) -> Array:
    """Pairs of the last axis rotated by position times theta^(-2i/dim)."""
    return _rotary(x, positions, dim=dim, theta=theta, interleaved=interleaved)


def cross_entropy(
    logits: Array, targets: Array, /, *, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """-log softmax(logits)[target] of logits [..., V] and int targets [...].

    "mean" is over those not ignored; or "sum", "none".
    """
    logits, targets = asarray_like(logits), asarray_like(targets)
    if logits.ndim == 2 or logits.ndim == 0:
        return _cross_entropy(logits, targets, reduction=reduction, ignore_index=ignore_index)
    if targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"cross_entropy: expected targets of shape {logits.shape[:-1]} beside logits of {logits.shape}, got {targets.shape}"
        )
    loss = _cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        targets.reshape(-1),
        reduction=reduction,
        ignore_index=ignore_index,
    )
    return loss.reshape(targets.shape) if reduction == "none" else loss


def dropout(x: Array, p: float | Array, key: Array, /, *, site: int = 0) -> Array:
    """x / (1 - p), or 0 with probability p.

    By a key of opwire.random.key, and a site that distinguishes uses of one key.
    """
    return _dropout(x, p, key, site=site)


def quantized_linear(x: Array, weight: Array, bias: Array | None = None, /) -> Array:
    """x weight^T + bias of x [..., K], bias [N] and weight [N, K] in GGUF's blocks (opwire.load).

    Except for float64, x may be rounded to 8 bits: each 32 neighbours are scaled by their largest
    magnitude.
    """
    return _quantized_linear(x, weight, bias)


def quantized_embedding(weight: Array, index: Array, /, *, dtype: Any = None) -> Array:
    """The rows of weight [V, D], in GGUF's blocks, at index, in [-V, V), as floats. dtype None:
    float32."""
    from ._dtypes import as_dtype

    return _quantized_embedding(
        weight, index, dtype=_core.float32 if dtype is None else as_dtype(dtype)
    )


def dequantize_blocks(x: Array, /, *, dtype: Any = None) -> Array:
    """The elements of an array of GGUF's blocks as floats: float32 where no type is named."""
    from ._dtypes import as_dtype

    return _dequantize_blocks(x, dtype=_core.float32 if dtype is None else as_dtype(dtype))


def kv_append(
    cache: Array, new: Array, position: Array | int, block_table: Array | None = None, /
) -> Array:
    """cache [B, H, S, D] with new [B, H, Snew, D] at the positions that start at `position`, 0-d or
    [B]. A donated cache is written in place.

    With block_table [B, N] the cache is a pool of pages, [P, H, S, D]. Page block_table[b, i] has
    the positions i * S to i * S + S - 1 of batch b.

    >>> import opwire as ow
    >>> ow.kv_append(ow.zeros((1, 1, 3, 1)), ow.ones((1, 1, 2, 1)), 1).reshape(-1).tolist()
    [0.0, 1.0, 1.0]
    """
    return _kv_append(cache, new, position, block_table)


def kv_attention(
    query: Array,
    key: Array,
    value: Array,
    length: Array | int,
    block_table: Array | None = None,
    /,
    *,
    causal: bool = True,
    window: int = 0,
    scale: float | None = None,
) -> Array:
    """scaled_dot_product_attention of query [B, Hq, Sq, D], the last Sq positions, with the first
    `length` positions of caches.

    The caches are key [B, Hkv, S, D] and value [B, Hkv, S, Dv].

    length: 0-d or [B]. block_table: as kv_append's. window: each query sees that many positions,
    its own and those before it; 0: all. scale None: 1 / sqrt(D).
    """
    query, factor = _by_scale(query, scale)
    return _kv_attention.many(
        query, key, value, length, block_table, causal=causal, window=window, scale=factor
    )[0]
