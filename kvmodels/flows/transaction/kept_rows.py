"""Rows that a transaction has read from its snapshot, so that it need not ask a server for them once more.

Rules of this module: a snapshot does not change, so a row that was alive when it was read is what a later read would
return. Absent and expired rows are not kept, because the two are not told apart by every read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvmodels.core.operations import ReadRange, ReadResult, Row

MOST_KEPT: Final = 1_000
"""Rows that one transaction keeps, which bounds its memory."""


class KeptRows:
    """The first rows that a transaction has read, by key."""

    __slots__ = ("_rows", "_versionstamp")

    def __init__(self) -> None:
        self._rows: dict[bytes, Row] = {}
        self._versionstamp = b""

    def keep(self, ranges: Sequence[ReadRange], result: ReadResult, now_ms: int) -> None:
        """Keep the rows of a read.

        Args:
            ranges: that were read.
            result: has whole rows, also of the ranges that followed.
            now_ms: rows that have expired then are not kept.
        """
        self._versionstamp = result.versionstamp
        wanted = [rows for one, rows in zip(ranges, result.ranges, strict=True) if not one.keys_only]
        for rows in (*wanted, *result.followed):
            for row in rows:
                if len(self._rows) >= MOST_KEPT:
                    return
                if row.expire_at is None or row.expire_at > now_ms:
                    self._rows[row.key] = row

    def result(self, ranges: Sequence[ReadRange]) -> ReadResult | None:
        """Return what a read of these ranges would; None unless each is a single key whose row was kept."""
        found: list[list[Row]] = []
        for one in ranges:
            row = self._rows.get(one.start) if one.end is None and one.limit != 0 else None
            if row is None:
                return None
            found.append([row])
        return ReadResult(found, [], self._versionstamp)
