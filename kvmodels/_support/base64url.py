"""Strict base64url, for cursors that come from outside.

Rules of this module: pure. ``urlsafe_b64decode`` skips or replaces characters of other alphabets, with a warning from
Python 3.15 on.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

_PLAIN: Final = str.maketrans("-_+/", "+/--")
"""From base64url to plain base64; ``+`` and ``/`` become a character that plain base64 does not have."""


def base64url_bytes(text: str) -> bytes:
    """Return the bytes of a padded base64url text. Raises ValueError for any other text."""
    return b64decode(text.translate(_PLAIN), validate=True)
