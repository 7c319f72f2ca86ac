"""The terms of texts as a document stores them, for the oracle, and the rows of an index of words.

Nothing is shared with the library. Words are found by a rule that equals its rule for the texts of tests: letters and
digits of ASCII, without a language and without stop words.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

Row = tuple[tuple[Any, ...], bytes]
"""The key parts behind the group, and the value."""


def packed_terms(*values: Any) -> bytes | None:
    """The stored terms of texts, lists of texts, and None."""
    if all(value is None for value in values):
        return None
    counts = [Counter(words) for words in map(_words, values)]
    found = bytes((norm(sum(map(Counter.total, counts))),))
    for word in sorted(set().union(*counts)):
        encoded = word.encode()
        found += bytes((len(encoded),)) + encoded + bytes(min(count[word], 255) for count in counts)
    return found


def _words(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value or ())
    return [word for text in texts for word in re.findall("[a-z0-9]+", text.casefold())]


def norm(length: int) -> int:
    """The number of the greatest step that is not above a length; each step is a quarter longer than the one before."""
    steps = [0]
    while (following := max(steps[-1] + 1, steps[-1] * 5 // 4)) <= length:
        steps.append(following)
    return len(steps) - 1


def rounded(of: int) -> int:
    """The length that a norm stands for."""
    return next(length for length in range(2**20) if norm(length) == of)


def word_rows(packed: bytes | None, fields: int) -> list[Row]:
    """The entries of stored terms: the term, and the norm with the frequency in each field."""
    rows: list[Row] = []
    rest = b"" if packed is None else packed[1:]
    while rest:
        end = 1 + rest[0]
        assert packed is not None
        rows.append(((rest[1:end].decode(),), packed[:1] + rest[end : end + fields]))
        rest = rest[end + fields :]
    return rows
