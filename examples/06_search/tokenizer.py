"""WordPiece, as BERT's uncased models have it, by the vocabulary of a tokenizer.json."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_LONGEST_WORD = 100  # characters; longer ones are unknown


def _stands_alone(c: str) -> bool:
    """Punctuation, every symbol of ASCII, and ideographs are words of one character."""
    if c.isascii():
        return not c.isalnum()
    return unicodedata.category(c)[0] == "P" or any(
        low <= ord(c) <= high for low, high in _IDEOGRAPHS
    )


def _words(text: str) -> Iterator[str]:
    word = ""
    for c in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(c)
        if c in "\t\n\r" or kind == "Zs":
            c = " "
        elif kind[0] == "C" or kind == "Mn" or c == "\ufffd":
            continue
        if c != " " and not _stands_alone(c):
            word += c
            continue
        if word:
            yield word
        if c != " ":
            yield c
        word = ""
    if word:
        yield word


class Tokenizer:
    """Text to tokens, with [CLS] before and [SEP] after it."""

    def __init__(self, path: str, longest: int = 256):
        with open(path, encoding="utf-8") as f:
            model = json.load(f)["model"]
        if model["type"] != "WordPiece":
            raise ValueError(f"{path}: expected WordPiece, got {model['type']}")
        self._ids: dict[str, int] = model["vocab"]
        self._unknown = self._ids[model["unk_token"]]
        self._longest = longest

    def encode(self, text: str) -> list[int]:
        """At most `longest` tokens: what is beyond them is left out."""
        made = [i for word in _words(text) for i in self._pieces(word)]
        return [self._ids["[CLS]"], *made[: self._longest - 2], self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        """The longest piece of the vocabulary first, then those after it, which begin with ##."""
        out: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                if (found := self._ids.get(mark + word[start:end])) is not None:
                    break
            else:
                return [self._unknown]
            out.append(found)
            start = end
        return out if len(word) <= _LONGEST_WORD else [self._unknown]
