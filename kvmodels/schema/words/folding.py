r"""Fold the letters of a text, and take it apart into trigrams: groups of three characters.

Entries of an index must not depend on the release of Python. ``str.casefold`` works character by character, and Unicode
never changes the folding of a character, but later releases of Unicode add letters. So letters that Unicode 14 (Python
3.11) does not fold are not folded by any release, and the parts of a query that could match one of them are not looked
up in the index.

Rules of this module: pure. Texts are not normalised: after NFKC, ``"resume"`` is contained in ``"resume\u0301"``, but
its trigrams are not.
"""

from __future__ import annotations

import re
from typing import Final

SIZE: Final = 3
"""The number of characters of a trigram."""

LATER_LETTERS: Final = "\u1c89\ua7cb\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\ua7dc" + "".join(
    map(chr, (*range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)))
)
"""The letters that releases of Unicode from 15 to 17 fold, and 14 does not."""

_THEIR_FOLDS: Final = "\u1c8a\u0264\ua7cd\ua7cf\ua7d3\ua7d5\ua7db\u019b" + "".join(
    map(chr, (*range(0x10D70, 0x10D86), *range(0x16EBB, 0x16ED4)))
)
_LATER: Final = re.compile(f"[{LATER_LETTERS}]")
_DEPENDS: Final = re.compile(f"[{LATER_LETTERS}{_THEIR_FOLDS}]")


def folded(text: str) -> str:
    r"""Return a text with its letters folded, the same on every release of Python.

    Examples:
        >>> folded("Straße"), folded("İ") == "i\u0307"
        ('strasse', True)
    """
    if text.isascii() or _LATER.search(text) is None:
        return text.casefold()
    return "".join(letter if letter in LATER_LETTERS else letter.casefold() for letter in text)


def trigrams(folded_text: str) -> list[str]:
    """Return the distinct trigrams of a folded text, in the order of their first appearance.

    Examples:
        >>> trigrams("banana")
        ['ban', 'ana', 'nan']
    """
    return list(dict.fromkeys(map("".join, zip(folded_text, folded_text[1:], folded_text[2:], strict=False))))


def certain_trigrams(part: str) -> list[str]:
    """Return the distinct trigrams that every text has that contains a part in any case, by ``str.casefold``."""
    found = trigrams(folded(part))
    if part.isascii() or _DEPENDS.search(part) is None:
        return found
    return [one for one in found if _DEPENDS.search(one) is None]
