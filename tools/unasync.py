"""Generate the synchronous facades from the asynchronous ones.

``kvmodels/api/_async`` is written by hand; ``kvmodels/api/_sync`` is generated from it and checked in, so that editors,
type checkers and readers see ordinary files. Run ``python tools/unasync.py`` after a change of an asynchronous facade;
``python tools/unasync.py --check`` fails if a generated file is not fresh.

The conversion works on tokens and keeps comments and layout:

- ``async`` and ``await`` are removed, in code and in the examples of docstrings;
- names are replaced: ``AsyncDatabase`` by ``Database``, ``__aenter__`` by ``__enter__``, and the few of ``NAMES``;
- ``Awaitable[T]`` and ``Coroutine[Any, Any, T]`` become ``T``;
- "``async with db.transaction()" in docstrings becomes "``with db.transaction()";
- ``AsyncDatabase(...).open()`` in examples becomes ``Database(...)``, whose constructor opens the store;
- lines from ``# async only`` to ``# end async only`` are left out.

Code that differs between threads and tasks belongs into ``_compat.py``, of which each side has its own.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "kvmodels" / "api" / "_async"
TARGET = ROOT / "kvmodels" / "api" / "_sync"
BY_HAND = {"__init__.py", "_compat.py"}
HEADER = "# Generated from {source} by tools/unasync.py. Do not edit.\n"

NAMES = {
    "AsyncContextManager": "ContextManager",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "aclose": "close",
    "aclosing": "closing",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "open_async_kv": "open_kv",
}
UNWRAPPED = {"Awaitable": 0, "Coroutine": 2}
"""Types that stand for the type of their argument with this position."""

_ASYNC_NAME = re.compile(r"^(_?)Async(?=[A-Z])")
_WORD = re.compile(r"\b\w+\b")
_AWAITED = re.compile(r"\(await ((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)(?=[.\[])")
_BLOCK = re.compile(r"`async with (?=\w)")
_OPENED = re.compile(r"(?<=\))\.open\(\)")
_DROPPED = re.compile(r"^[ ]*# async only\n.*?^[ ]*# end async only\n", re.DOTALL | re.MULTILINE)


def renamed(name: str) -> str:
    """Return the synchronous name for an asynchronous one."""
    return NAMES.get(name) or _ASYNC_NAME.sub(r"\1", name)


def converted_text(text: str) -> str:
    """Convert a docstring or a comment: names and quoted blocks everywhere, ``async`` and ``await`` in its examples."""
    lines = []
    for line in text.split("\n"):
        if line.lstrip().startswith((">>>", "...")):
            line = _AWAITED.sub(r"\1", line)
            line = re.sub(r"\b(?:async|await) ", "", line)
            line = _OPENED.sub("", line)
        line = _BLOCK.sub("`with ", line)
        lines.append(_WORD.sub(lambda word: renamed(word.group()), line))
    return "\n".join(lines)


def _closing(tokens: list[tokenize.TokenInfo], start: int) -> int:
    """Return the position of the bracket that closes the one at ``start``."""
    depth = 0
    for position in range(start, len(tokens)):
        if tokens[position].string in {"(", "[", "{"}:
            depth += 1
        elif tokens[position].string in {")", "]", "}"}:
            depth -= 1
            if not depth:
                return position
    raise ValueError(f"line {tokens[start].start[0]}: a bracket is not closed")


def _arguments(tokens: list[tokenize.TokenInfo], start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of the arguments between two brackets."""
    found, first, depth = [], start + 1, 0
    for position in range(start + 1, end):
        if tokens[position].string in {"(", "[", "{"}:
            depth += 1
        elif tokens[position].string in {")", "]", "}"}:
            depth -= 1
        elif tokens[position].string == "," and not depth:
            found.append((first, position))
            first = position + 1
    return [*found, (first, end)]


def _removals(tokens: list[tokenize.TokenInfo]) -> set[int]:
    """Return the positions of the tokens that have no place in synchronous code."""
    removed: set[int] = set()
    for position, token in enumerate(tokens):
        if token.type != tokenize.NAME:
            continue
        if token.string in {"async", "await"}:
            removed.add(position)
            opened = position - 1
            if token.string == "await" and opened >= 0 and tokens[opened].string == "(":
                closed = _closing(tokens, opened)
                is_call = opened and tokens[opened - 1].type == tokenize.NAME and tokens[opened - 1].string not in {
                    "return", "in", "not", "and", "or", "if", "else", "yield", "is"
                }  # fmt: skip
                follows = tokens[closed + 1].string in {".", "["}
                if not is_call and follows and tokens[opened - 1].string not in {")", "]"}:
                    removed |= {opened, closed}
        elif token.string in UNWRAPPED and tokens[position + 1].string == "[":
            end = _closing(tokens, position + 1)
            first, last = _arguments(tokens, position + 1, end)[UNWRAPPED[token.string]]
            removed |= set(range(position, first)) | set(range(last, end + 1))
    return removed


_TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
"""Tokens of text; from Python 3.12 on, an f-string is several tokens."""


def converted(source: str, name: str) -> str:
    """Return the synchronous text of an asynchronous module, not yet formatted."""
    source = _DROPPED.sub("", source)
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    code = [token for token in tokens if token.type not in {tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}]
    significant = [token for token in code if token.type not in {tokenize.NL, tokenize.COMMENT}]
    removed = {id(significant[position]) for position in _removals(significant)}
    out, row, column = [HEADER.format(source=f"kvmodels/api/_async/{name}")], 1, 0
    for token in code:
        (start_row, start_column), (end_row, end_column) = token.start, token.end
        if start_row > row:
            out += [lines[row - 1][column:], *lines[row : start_row - 1]]
            column = 0
            row = start_row
        space = lines[row - 1][column:start_column]
        row, column = end_row, end_column
        if id(token) in removed:
            following = lines[row - 1][column : column + 1]
            column += following == " "
            out.append(space)
        elif token.type == tokenize.NAME:
            out += [space, renamed(token.string)]
        elif token.type in _TEXTS:
            out += [space, converted_text(token.string)]
        else:
            out += [space, token.string]
    return "".join(out)


def formatted(text: str, path: Path) -> str:
    """Sort the imports, remove the unused ones, delegate with ``yield from``, and format."""
    fixes = ("check", "--fix", "--unsafe-fixes", "--quiet", "--select", "I,F401,UP028")
    for arguments in (fixes, ("format", "--quiet")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def generated() -> dict[Path, str]:
    """Return the text of every file that is generated, by its path."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name not in BY_HAND:
            name = path.relative_to(SOURCE)
            found[TARGET / name] = formatted(converted(path.read_text("utf-8"), name.as_posix()), TARGET / name)
    return found


def main() -> int:
    """Write the generated files, or with ``--check`` compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a generated file is not fresh; write nothing")
    only_check = parser.parse_args().check
    stale = []
    for path, text in generated().items():
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if not only_check:
                path.write_text(text, "utf-8")
    for name in stale:
        print(f"{name}: {'is not fresh; run python tools/unasync.py' if only_check else 'generated'}")
    return int(bool(stale) and only_check)


if __name__ == "__main__":
    raise SystemExit(main())
