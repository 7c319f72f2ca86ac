"""The terms of a record as its document stores them: packed bytes from which all entries follow.

    1 byte                             the norm of its length
    for each term, in the order of its bytes:
        1 byte, then so many bytes     the term in UTF-8
        1 byte for each field          how often the field has it, at most 255

The length is the number of words with a term. Its norm grows in steps of a quarter, so that most edits leave it as it
is, and with it the entries of unchanged terms.

Rules of this module: pure; the bytes never change for the same terms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kvmodels.schema.words.tokenizer import Tokenizer

MOST_COUNTED: Final = 255
"""The greatest frequency that is stored."""


def _lengths() -> list[int]:
    found = [0, 1]
    while found[-1] < 1 << 40:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return found


_LENGTHS: Final = _lengths()
"""The length of each norm, in steps of a quarter."""


def norm_of(length: int) -> int:
    """Return the norm of a length: the greatest one whose length is not above it."""
    return bisect_right(_LENGTHS, length) - 1


def length_of(norm: int) -> int:
    """Return the length of a norm.

    Examples:
        >>> [length_of(norm_of(length)) for length in (0, 1, 7, 9, 100, 120, 1000)]
        [0, 1, 7, 8, 97, 97, 891]
    """
    return _LENGTHS[min(norm, len(_LENGTHS) - 1)]


class StoredTerms(NamedTuple):
    """The terms of a record.

    Attributes:
        norm: the norm of its length.
        frequencies: for each term, a byte for each field: how often the field has it.
    """

    norm: int
    frequencies: Mapping[str, bytes]


def packed_terms(tokenizer: Tokenizer, texts: Sequence[Any]) -> bytes | None:
    """Return the packed terms of the values of fields, each a text, a list of texts or None; None if all are None."""
    if all(text is None for text in texts):
        return None
    found: dict[str, list[int]] = {}
    length = 0
    terms: dict[str, str] = {}
    for number, value in enumerate(texts):
        for text in texts_of(value):
            for word in tokenizer.words(text):
                term = terms.get(word)
                if term is None:
                    term = terms[word] = "" if tokenizer.is_stop_word(word) else tokenizer.term(word)
                if term:
                    length += 1
                    found.setdefault(term, [0] * len(texts))[number] += 1
    parts = [bytes((norm_of(length),))]
    for encoded, counts in sorted((term.encode(), counts) for term, counts in found.items()):
        parts += [bytes((len(encoded),)), encoded, bytes([min(count, MOST_COUNTED) for count in counts])]
    return b"".join(parts)


def texts_of(value: Any) -> Iterable[str]:
    """Return the texts of the value of a field: none, one, or those of a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return [text for text in cast("Iterable[object]", value) if isinstance(text, str)]


def unpacked_terms(packed: object, fields: int) -> StoredTerms:
    """Return the terms of packed bytes. Raises ValueError for other bytes."""
    if not isinstance(packed, bytes) or not packed:
        raise ValueError("not the terms of a text")
    found: dict[str, bytes] = {}
    at = 1
    while at < len(packed):
        middle = at + 1 + packed[at]
        end = middle + fields
        if middle == at + 1 or end > len(packed):
            raise ValueError("not the terms of a text")
        found[packed[at + 1 : middle].decode()] = packed[middle:end]
        at = end
    return StoredTerms(packed[0], found)


def named_terms(packed: object, fields: int, names: Collection[bytes], beginnings: tuple[bytes, ...]) -> StoredTerms:
    """Return those terms of packed bytes that have one of these names, or begin with one of ``beginnings``.

    A third of the work of ``unpacked_terms``. Raises ValueError for other bytes.
    """
    if not isinstance(packed, bytes) or not packed:
        raise ValueError("not the terms of a text")
    found: dict[str, bytes] = {}
    at, size = 1, len(packed)
    while at < size:
        middle = at + 1 + packed[at]
        name = packed[at + 1 : middle]
        at = middle + fields
        if name in names or (beginnings and name.startswith(beginnings)):
            found[name.decode()] = packed[middle:at]
    if at != size:
        raise ValueError("not the terms of a text")
    return StoredTerms(packed[0], found)
