"""Checks the English of the tree: Markdown, comments, docstrings and messages.

    check.py [--show] [FILE_OR_FOLDER...]   compares each top folder with ratchet.json; --show prints each finding
    check.py --update                       lowers the counts of ratchet.json to the present ones

It counts the idioms of idioms.txt, sentences of more than 30 words, and lines of more than 120 columns. Code blocks,
code in backticks, URLs and strings that look like code do not count. In tables only idioms do. Findings of
exceptions.txt do not count. Exit code 1: a count is higher than in ratchet.json, whose counts may only fall.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import io
import json
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RATCHET = HERE / "ratchet.json"
MOST_WORDS, MOST_COLUMNS = 30, 120
C_LIKE = {".h", ".cc", ".cu", ".cuh", ".fbs"}
PYTHON = {".py", ".pyi"}
PRONOUNS = "(it|them|that|this|these|those|what|which|one|others?|each|all)"


@dataclasses.dataclass(frozen=True)
class Idiom:
    pattern: re.Pattern[str]
    advice: str
    example: str


@dataclasses.dataclass(frozen=True)
class Finding:
    line: int
    kind: str  # "idioms", "sentences" or "lines"
    message: str


@dataclasses.dataclass
class Passage:
    """Text that belongs together: a paragraph, a comment, a docstring's paragraph or a message."""

    lines: list[tuple[int, str]]
    sentences: bool = True  # whether their length counts


def read_idioms() -> list[Idiom]:
    idioms = []
    for line in (HERE / "idioms.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, _, rest = line.partition(" => ")
        advice, _, example = rest.rpartition(" | ")
        expression = rf"(?<![\w-])(?:{pattern.replace('THEM', PRONOUNS)})"
        idioms.append(Idiom(re.compile(expression, re.I), advice, example))
    return idioms


# ---- Passages of a file

_EXAMPLE = re.compile(r'\s{3,}([$#@%]|.*([;{}]|::|->|\w\(|==|<\w+>| = |": ))|\s*namespace ')
_BULLET = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_CODE = re.compile(r"[@;]\w|%\w+[ ,)=]|->|::|\w\(\w*\)|==|\\t|</|--\w+=|= %|\{\{|&&|\+=|;\s*$")
_WORDS = re.compile(r"(?<![\w%@.:/-])[a-z]{2,}(?=[\s,.;:!?]|$)")
_C_TOKEN = re.compile(
    r'R"([^(\s"]*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'\\?.\'|//[^\n]*|/\*(?:.|\n)*?\*/'
)


def join(lines: list[tuple[int, int, str, bool]]) -> Iterator[Passage]:
    """Passages of lines, each of which is its number, its column, its text and whether nothing else is on it."""
    passage: Passage | None = None
    end = (0, 0)
    for number, column, text, alone in lines:
        body = "" if _EXAMPLE.match(text) else _BULLET.sub("", text).strip(" /*!<#-=")
        follows = end == (number - 1, column) and alone and not _BULLET.match(text)
        if passage and not (follows and body):
            yield passage
            passage = None
        if body:
            passage = passage or Passage([])
            passage.lines.append((number, body))
        end = (number, column)
    if passage:
        yield passage


def of_messages(strings: list[list[tuple[int, str]]]) -> Iterator[Passage]:
    """Those of a program's strings that are prose."""
    for string in strings:
        text = " ".join(part for _, part in string)
        if len(_WORDS.findall(text)) >= 4 and not _CODE.search(text):
            yield Passage([(n, re.sub(r"\\.", "  ", part)) for n, part in string])


def of_markdown(text: str) -> Iterator[Passage]:
    lines = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        body = line.strip()
        if body.startswith("```"):
            fenced = not fenced
            body = ""
        if fenced or body.startswith("<!--"):
            body = ""
        if body.startswith(("|", "#")):
            for cell in body.strip("|#").split("|"):
                yield Passage([(number, cell)], sentences=False)
            body = ""
        lines.append((number, 0, body, True))
    yield from join(lines)


def of_c(text: str) -> Iterator[Passage]:
    comments, strings = [], []
    end = 0  # of the last string
    for match in _C_TOKEN.finditer(text):
        token, start = match[0], match.start()
        number = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        if token.startswith(("//", "/*")):
            alone = not text[start - column + 1 : start].strip()
            for i, part in enumerate(token[2:].removesuffix("*/").split("\n")):
                part = re.sub(r"^\s*\*(?=\s|$)", "", part)
                comments.append((number + i, column, part, i > 0 or alone))
        elif token[0] == '"':
            if not strings or text[end:start].strip():
                strings.append([])
            strings[-1].append((number, token[1:-1]))
            end = match.end()
    yield from join(comments)
    yield from of_messages(strings)


def of_python(text: str) -> Iterator[Passage]:
    prose, strings = [], []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number, column = token.start
        if token.type == tokenize.COMMENT:
            prose.append((number, column, token.string[1:], not token.line[:column].strip()))
        elif token.type == tokenize.STRING and not re.match(r"\w*[bB]", token.string):
            lines = re.sub(r"^\w*('''|\"\"\"|.)|('''|\"\"\"|.)$", "", token.string).split("\n")
            if before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):  # a docstring
                prose += [(number + i, 0, line, True) for i, line in enumerate(lines)]
            else:
                strings.append([(number, lines[0])])
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    yield from join(prose)
    yield from of_messages(strings)


def passages_of(path: pathlib.Path, text: str) -> Iterator[Passage]:
    if path.suffix in C_LIKE:
        return of_c(text)
    return of_python(text) if path.suffix in PYTHON else of_markdown(text)


# ---- Findings


def without_code(text: str) -> str:
    """The text, of the same length, with code and addresses replaced, and full stops that end no sentence."""
    text = re.sub(r"(`+)[^`]+\1|https?://\S+|<[^<> ]+>", lambda m: "X" * len(m[0]), text)
    text = re.sub(
        r"\]\([^)]*\)|(?<!\w)[*_]+(?=\w)|(?<=\w)[*_]+(?!\w)", lambda m: " " * len(m[0]), text
    )
    return re.sub(r"\.\.\.|\b(e\.g|i\.e|vs|etc|cf|no)\.", lambda m: m[0].replace(".", "_"), text)


def findings_of(path: pathlib.Path, text: str, idioms: list[Idiom]) -> Iterator[Finding]:
    for passage in passages_of(path, text):
        joined = without_code(" ".join(part for _, part in passage.lines))
        numbers = [n for n, part in passage.lines for _ in range(len(part) + 1)]
        for idiom in idioms:
            for match in idiom.pattern.finditer(joined):
                found = match[0].strip(" .;:")
                yield Finding(numbers[match.start()], "idioms", f'"{found}": {idiom.advice}')
        if not passage.sentences:
            continue
        for match in re.finditer(r"\S.*?(?:[.!?][\"')\]]*(?=\s)|$)", joined):
            words = len(re.findall(r"[\w'\u2019-]+", match[0]))
            if words > MOST_WORDS:
                yield Finding(numbers[match.start()], "sentences", f"a sentence of {words} words")
    for number, line in enumerate(text.splitlines(), 1):
        table = path.suffix == ".md" and line.lstrip().startswith("|")
        if len(line) > MOST_COLUMNS and "://" not in line and not table:
            yield Finding(number, "lines", f"a line of {len(line)} columns")


def read_exceptions() -> list[tuple[str, str]]:
    """The file and the text of each finding that does not count."""
    lines = (HERE / "exceptions.txt").read_text().splitlines()
    return [
        tuple(line.split(" | ")[:2])  # type: ignore[misc]
        for line in lines
        if line and not line.startswith("#")
    ]


def tracked(names: list[str]) -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *names], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [pathlib.Path(name) for name in listed.stdout.split("\0") if name]
    return [p for p in paths if p.suffix in C_LIKE | PYTHON | {".md"} and (ROOT / p).is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    idioms, exceptions = read_idioms(), read_exceptions()
    counts: dict[str, collections.Counter[str]] = {}
    for path in tracked(given.files):
        folder = path.parts[0] if len(path.parts) > 1 else "(top)"
        count = counts.setdefault(folder, collections.Counter())
        excepted = [text for name, text in exceptions if name == str(path)]
        for finding in findings_of(path, (ROOT / path).read_text(encoding="utf-8"), idioms):
            if any(text in finding.message for text in excepted):
                continue
            count[finding.kind] += 1
            if given.show:
                print(f"{path}:{finding.line}: {finding.message}")
    if given.files:
        return 0
    allowed = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    code = 0
    for folder, count in sorted(counts.items()):
        for kind in ("idioms", "sentences", "lines"):
            most = allowed.get(folder, {}).get(kind, 0)
            if count[kind] > most and not given.update:
                print(
                    f"{folder}: {kind}: expected at most {most}, got {count[kind]}; see them by --show {folder}"
                )
                code = 1
    if given.update:
        rows = {}
        for folder, count in sorted(counts.items()):
            before = allowed.get(folder)
            rows[folder] = {
                kind: min(count[kind], before[kind]) if before else count[kind]
                for kind in ("idioms", "sentences", "lines")
            }
        RATCHET.write_text(json.dumps(rows, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
