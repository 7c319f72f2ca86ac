"""How many examples are drawn: `make check` has all, `make test` half of them, and the soak other ones."""

from __future__ import annotations

from hypothesis import settings

ALL = 40
"""Examples of a test that names no number, in `make check`."""

HALF = ALL // 2
"""The same in `make test`."""


def of_check(number: int) -> int:
    """Return the number of examples of a test that has ``number`` of them in `make check`."""
    return number // 2 if settings().max_examples == HALF else number
