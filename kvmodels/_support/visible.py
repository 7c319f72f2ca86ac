r"""Stored text in places that interpret control characters: terminals, pages, comments, JSON.

Rules of this module: a hidden character is one without a glyph of its own: controls (also C1, U+0080 to U+009F),
formats such as those that change the direction of text, surrogates, and separators of lines. ``repr`` escapes the same
ones, so that error texts, which quote values by it, agree with everything else that is printed.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_VISIBLE_SPACES: Final = "Zs"
"""The only category of characters that ``isprintable`` refuses although they do nothing but fill a place."""

_DRIVING: Final = (*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _DRIVING}


def visible(text: str, kept: str = "\n\t") -> str:
    r"""Return a text with control characters, and those that change the direction of text, as escapes.

    Args:
        text: any text.
        kept: the hidden characters that stay; none for a text that must be one line.

    Examples:
        >>> visible("a\x00b\u202ec\u00e9"), visible("a\n# b", kept="")
        ('a\\x00b\\u202ecé', 'a\\n# b')
    """
    if text.isprintable():
        return text
    return "".join(one if one in kept or not is_hidden(one) else _escaped(one) for one in text)


def visible_json(text: str) -> str:
    r"""Return JSON with the characters in it that drive a terminal or end a line as escapes; it has the same value.

    They are the C1 controls, the controls of direction, and the separators of lines; JSON escapes C0 controls itself.

    Examples:
        >>> visible_json('["\x9b\u202eé"]')
        '["\\u009b\\u202eé"]'
    """
    return text if text.isascii() else text.translate(_JSON_ESCAPES)


def is_hidden(character: str) -> bool:
    """Return whether a character has no glyph of its own."""
    return not character.isprintable() and unicodedata.category(character) != _VISIBLE_SPACES


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
