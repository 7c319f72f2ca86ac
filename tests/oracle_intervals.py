"""Which intervals share a moment, by comparing values: nothing of the library, and neither classes nor numbers."""

from __future__ import annotations

from typing import Any


def is_found(start: Any, end: Any, low: Any, high: Any) -> bool:
    """Whether the half-open interval of a record overlaps that of a query; an end that is None is unbounded.

    A record without start has no interval, and one that does not end after its start has no moment.
    """
    if start is None or (end is not None and not start < end) or (high is not None and not low < high):
        return False
    return (high is None or start < high) and (end is None or low < end)


def contains(start: Any, end: Any, moment: Any) -> bool:
    """Whether the half-open interval of a record contains a moment."""
    return start is not None and start <= moment and (end is None or moment < end)
