"""Which name was probably meant, for the hints of errors.

Rules of this module: it is loaded with the first error that has a suggestion, as all of ``difflib``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to an unknown one; None if none is similar by the ratio ``cutoff``."""
    return next(iter(get_close_matches(name, [*known], 1, cutoff)), None)
