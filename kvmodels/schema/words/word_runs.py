r"""The words of a text, before stop words and stemmers: runs of letters, marks and numbers.

A text is normalized (NFKC) and folded (``casefold``) first. Python's ``\w`` is no word: it lacks the marks that are
within words of many scripts, and contains the underscore. Scripts that put no space between words (Han, Kana, Thai,
Lao, Khmer, Burmese) give each pair of adjacent characters, as Lucene does.

Rules of this module: pure. A word is cut after 64 characters and 120 bytes, in texts and queries alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from unicodedata import category, normalize

MAX_CHARACTERS: Final = 64
MAX_BYTES: Final = 120

_PAIRED: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x19E0, 0x19FF),
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x303C),
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x323AF),
)
"""The first and last characters of the scripts without spaces between words."""

_PLAIN_WORDS: Final = re.compile(r"[0-9a-z]+").findall


def words_in(text: str) -> Iterator[str]:
    """Return the words of a text in order; of scripts without spaces, each pair of adjacent characters.

    Examples:
        >>> list(words_in("Key-value stores: ﬁne, हिन्दी"))
        ['key', 'value', 'stores', 'fine', 'हिन्दी']
        >>> list(words_in("東京都 x 京"))
        ['東京', '京都', 'x', '京']
    """
    if text.isascii():
        found = _PLAIN_WORDS(text.lower())
        is_short = len(max(found, key=len, default="")) <= MAX_CHARACTERS
        return iter(found if is_short else [cut(word) for word in found])
    return _words_of_any(text)


def _words_of_any(text: str) -> Iterator[str]:
    words = spaced(normalize("NFKC", text).casefold())
    if _HAS_PAIRS(words) is None:
        yield from map(cut, words.split())
        return
    for found in _RUNS(words):
        word = found.group()
        if found.lastgroup is None:
            yield cut(word)
        elif len(word) == 1:
            yield word
        else:
            yield from (word[at : at + 2] for at in range(len(word) - 1))


def spaced(text: str) -> str:
    """Return a text with a space in place of each character that is no letter, mark or number."""
    return text.translate(_SEPARATED)


def cut(word: str) -> str:
    """Return the beginning of a word that is its term: at most 64 characters and 120 bytes."""
    word = word[:MAX_CHARACTERS]
    if len(word) * 4 <= MAX_BYTES or word.isascii():
        return word
    return word.encode(errors="ignore")[:MAX_BYTES].decode(errors="ignore")


class _Separated(dict[int, int]):
    """Translates every character that is no letter, mark or number to a space; filled as characters occur."""

    def __missing__(self, code: int) -> int:
        found = self[code] = code if category(chr(code))[0] in "LMN" else 0x20
        return found


_SEPARATED: Final = _Separated()
_SET: Final = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _PAIRED)
_HAS_PAIRS: Final = re.compile(f"[{_SET}]").search
_RUNS: Final = re.compile(f"(?P<pairs>[{_SET}]+)|[^ {_SET}]+").finditer


def is_paired(character: str) -> bool:
    """Return whether a character is of a script without spaces between words."""
    return _HAS_PAIRS(character) is not None
