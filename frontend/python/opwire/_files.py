"""Weights out of the files that models come in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _core
from ._tables import checked_name, printable

if TYPE_CHECKING:
    from ._array import Array


class Weights(dict[str, "Array"]):
    """The arrays of a model's file by their names there, as a dict; and what else the file says.

    metadata: the key-values of a GGUF file, which include the vocabulary, or the __metadata__ of a
    safetensors file. Bytes that are not UTF-8 become surrogates, as in file names.
    streamed_bytes: how much of the weights passed through this process; 0 where the executor read
    the file.
    """

    def __init__(
        self, path: str, metadata: dict[str, Any], streamed_bytes: int, arrays: dict[str, Array]
    ):
        super().__init__(arrays)
        self.path = path
        self.metadata = metadata
        self.streamed_bytes = streamed_bytes

    def __missing__(self, name: str) -> Array:
        raise KeyError(
            f"none of the {len(self)} arrays of {printable(self.path)} is called {printable(str(name))}"
        )

    def __repr__(self) -> str:
        size = sum(a.nbytes for a in self.values())
        return f"<opwire.Weights: {len(self)} arrays of {printable(self.path)}, {size:,} bytes>"


def _part(name: str, metadata: dict[str, Any]) -> tuple[int, int]:
    """Which of how many files of a model it is, by what a GGUF file says or else by its name."""
    number, count = metadata.get("split.no"), metadata.get("split.count")
    if type(number) is int and type(count) is int:
        return number + 1, count
    named = re.search(
        r"[-_.](\d{5,})-of-(\d{5,})(?=[-_.]|$)", os.path.basename(name), re.IGNORECASE
    )
    return (1, 1) if named is None else (int(named[1]), int(named[2]))


def load(
    path: str | os.PathLike[str], *, device: Any = None, names: Iterable[str] | None = None
) -> Weights:
    """The arrays of a file of GGUF or safetensors on a device; its first bytes tell which it is.

    A relative path is looked for in the executor's --data directory first. The executor reads such
    a file itself: no weight passes through this process. Other files are read here and sent. names:
    the arrays to load; None: all.

    Weights in GGUF's blocks of types Q4_0, Q4_1, Q8_0 and Q6_K are not converted: they are arrays
    of a dtype such as opwire.q4_1, for quantized_linear, quantized_embedding and dequantize_blocks.

    ValueError: a broken file, with the byte; another kind of file, with what it is; one of several
    files of a model, unless names are given. FileNotFoundError: it is in neither place. KeyError: a
    name that it lacks.
    NotImplementedError: weights of other types.
    """
    from ._client import device as find

    name = checked_name(os.fspath(path), "load: path")
    shown = printable(name)
    at = find(device)
    session = at.session
    there = None if os.path.isabs(name) else session.load_header(name)
    if there is None and not os.path.exists(name):
        raise FileNotFoundError(
            f"{shown} is neither in your folder of the --data directory of {at} nor a file here"
        )
    metadata, tensors = there or _core.read_header(name)
    number, count = _part(name, metadata)
    if names is None and count > 1:
        raise ValueError(
            f"{shown}: it is file {number} of {count} of a model: load each, with names= those that are wanted, or "
            "join them (llama-gguf-split --merge)"
        )
    known = {t[0]: t for t in tensors}
    wanted: dict[str, _core.dtype] = {}
    for n in known if names is None else names:
        if n not in known:
            raise KeyError(
                f"none of the {len(known)} tensors of {shown} is called {printable(str(n))}"
            )
        dtype = known[n][1]
        if dtype is None:
            raise NotImplementedError(
                f"{shown}: tensor {printable(str(n))} is of {known[n][5]}, which is no element type or encoding here"
            )
        wanted[n] = dtype
    if there is not None:
        return Weights(
            name, metadata, 0, dict(zip(wanted, session.load_file(name, list(wanted)), strict=True))
        )
    with open(
        name, "rb"
    ) as f:  # not mapped: where the file is cut meanwhile, that would end the process
        arrays = {}
        for n, dtype in wanted.items():
            _, _, shape, offset, size, _ = known[n]
            f.seek(offset)
            part = f.read(size)
            if len(part) != size:
                raise ValueError(
                    f"{shown}: byte {offset + len(part)}: tensor {printable(str(n))} ends {size - len(part)} bytes "
                    "early: the file has changed since its header was read"
                )
            arrays[n] = _core.put(session, dtype, list(shape), part)
        return Weights(name, metadata, sum(known[n][4] for n in wanted), arrays)
