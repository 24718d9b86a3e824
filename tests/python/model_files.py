"""Files of models, written by the tests: GGUF of version 3, safetensors, and weights in blocks."""

import json
import struct

import numpy as np

F32, Q4_1, Q5_0, Q8_0 = 0, 3, 6, 8  # ggml's numbers
_KINDS = {bool: 7, int: 4, float: 6, str: 8}


def quantise(x, kind):
    """The blocks of a matrix, and what they stand for."""
    parts = x.astype(np.float64).reshape(*x.shape[:-1], -1, 32)
    low = parts.min(-1, keepdims=True)
    if kind == Q8_0:
        d = (np.abs(parts).max(-1, keepdims=True) / 127).astype(np.float16)
        q = np.round(parts / d).astype(np.int8)
        return np.concatenate([d.view(np.uint8), q.view(np.uint8)], -1).tobytes(), (
            q * d.astype(np.float64)
        ).reshape(x.shape)
    d, m = ((parts.max(-1, keepdims=True) - low) / 15).astype(np.float16), low.astype(np.float16)
    q = np.clip(np.round((parts - m) / d), 0, 15).astype(np.uint8)
    packed = q[..., :16] | q[..., 16:] << 4
    return np.concatenate([d.view(np.uint8), m.view(np.uint8), packed], -1).tobytes(), (
        q * d.astype(np.float64) + m
    ).reshape(x.shape)


def _text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(v):
    if isinstance(v, list):
        if isinstance(v[0], int) and not isinstance(
            v[0], bool
        ):  # as llama.cpp wants kinds of tokens
            return struct.pack(f"<IIQ{len(v)}i", 9, 5, len(v), *v)
        return struct.pack("<IIQ", 9, _KINDS[type(v[0])], len(v)) + b"".join(_scalar(e) for e in v)
    return struct.pack("<I", _KINDS[type(v)]) + _scalar(v)


def _scalar(v):
    return (
        _text(v)
        if isinstance(v, str)
        else struct.pack({bool: "<?", int: "<I", float: "<f"}[type(v)], v)
    )


def gguf(metadata, tensors):
    """tensors: by name an f32 array, or (kind, shape, bytes)."""
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), len(metadata))
        + b"".join(_text(k) + _value(v) for k, v in metadata.items())
    )
    data = b""
    for name, t in tensors.items():
        kind, shape, raw = (
            (F32, t.shape, t.astype(np.float32).tobytes()) if isinstance(t, np.ndarray) else t
        )
        head += _text(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data)
        )
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def safetensors(metadata, tensors):
    head, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        kind = {"float32": "F32", "int64": "I64", "float16": "F16"}[t.dtype.name]
        head[name] = {
            "dtype": kind,
            "shape": list(t.shape),
            "data_offsets": [len(data), len(data) + t.nbytes],
        }
        data += t.tobytes()
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data
