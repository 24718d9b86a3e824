"""Byte-level BPE, by the vocabulary that a GGUF file carries."""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from collections.abc import Generator, Iterable, Iterator
from typing import Any

_DIGIT = re.compile(r"[0-9]")
_WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")  # GPT-2's
_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens that text is never merged to


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself if it is printable, else one of those that start at U+0100."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printed]
    letters = {b: chr(b) for b in printed} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]


def _plain(text: str) -> str:
    """As long a text of ASCII, whose letters, numbers and spaces stand where the text has some of any script."""

    def one(c: str) -> str:
        kind = unicodedata.category(c)[0]
        return (
            c
            if c.isascii()
            else "a"
            if kind == "L"
            else "0"
            if kind == "N"
            else "\n"
            if c.isspace()
            else "!"
        )

    return text if text.isascii() else "".join(map(one, text))


class Tokenizer:
    """Text to tokens and back."""

    def __init__(self, metadata: dict[str, Any]):
        if (
            metadata["tokenizer.ggml.model"] != "gpt2"
            or metadata.get("tokenizer.ggml.pre") != "smollm"
        ):
            raise ValueError(
                f"expected a vocabulary of byte-level BPE that is split as SmolLM's, got {metadata['tokenizer.ggml.model']}, {metadata.get('tokenizer.ggml.pre')}"
            )
        self.tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        self.end: int = metadata["tokenizer.ggml.eos_token_id"]
        self._ids = {t: i for i, t in enumerate(self.tokens)}
        self._ranks = {
            tuple(m.split(" ")): i for i, m in enumerate(metadata["tokenizer.ggml.merges"])
        }
        kinds = metadata["tokenizer.ggml.token_type"]
        self._special = {i for i, k in enumerate(kinds) if k in (_CONTROL, _USER_DEFINED)}
        names = sorted((self.tokens[i] for i in self._special), key=len, reverse=True)
        self._special_names = (
            re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None
        )
        self._letters = _byte_letters()
        self._bytes = {letter: b for b, letter in enumerate(self._letters)}
        self._words: dict[str, list[int]] = {}

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The tokens of a text. special: names of control tokens in it are those tokens."""
        if not special or self._special_names is None:
            return [i for word in self._split(text) for i in self._merge(word)]
        out: list[int] = []
        for n, part in enumerate(self._special_names.split(text)):
            out += [self._ids[part]] if n % 2 else self.encode(part)
        return out

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        stream = self.stream()
        return "".join([stream.send(i) for i in tokens] + [stream.send(None)])

    def stream(self) -> Generator[str, int | None, None]:
        """A generator that yields the text of each token that is sent to it, and for None the rest.

        A character of several tokens comes with its last token. Control tokens have no text.
        """
        made = self._stream()
        next(made)
        return made

    def _stream(self) -> Generator[str, int | None, None]:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        text = ""
        while (token := (yield text)) is not None:
            text = (
                ""
                if token in self._special
                else utf8.decode(bytes(self._bytes[c] for c in self.tokens[token]))
            )
        yield utf8.decode(b"", final=True)

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        """Words, each with the space before it; each digit is a word."""
        plain = _plain(text)
        start = 0
        for end in [*(m.start() for m in _DIGIT.finditer(plain)), len(plain)]:
            for m in _WORD.finditer(plain, start, end):
                yield text[m.start() : m.end()]
            if end < len(plain):
                yield text[end]
            start = end + 1

    def _merge(self, word: str) -> list[int]:
        if (known := self._words.get(word)) is not None:
            return known
        parts = [self._letters[b] for b in word.encode("utf-8", "surrogateescape")]
        while len(parts) > 1:
            rank, at = min(
                (self._ranks.get((a, b), len(self._ranks)), i)
                for i, (a, b) in enumerate(itertools.pairwise(parts))
            )
            if rank == len(self._ranks):
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        self._words[word] = made = [self._ids[p] for p in parts]
        return made
