"""Reads of a part that wait for nothing: those of the inner engine with other keys.

Rules of this module: each call returns None before the part's row was read, and for a read of the header, so that the
engine of the part carries it out and checks the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvmodels.core.operations import Counted, Follow, Guard, GuardFailed, ReadRange, ReadResult, Row
from kvmodels.engines.contract import ImmediateReads, ImmediateSnapshot, TurnReader
from kvmodels.engines.part.gate import Gate
from kvmodels.engines.part.keys import PartKeys
from kvmodels.engines.part.snapshots import PartImmediateSnapshot


class PartReads:
    """The immediate reads of a part; each method only where the inner engine has one."""

    def __init__(self, inner: ImmediateReads, keys: PartKeys, gate: Gate) -> None:
        self._inner = inner
        self._keys = keys
        self._gate = gate
        self._header_key = gate.place.header_key

    def row(self, key: bytes, guard: Guard | None, follow: Follow | None, /) -> Sequence[Any] | None:
        """Return the row of a key as ``ImmediateReads.row`` does."""
        row_at_key, keys = self._inner.row, self._keys
        if row_at_key is None or self._gate.check is None or key == self._header_key:
            return None
        if follow is None:
            row = row_at_key(keys.prefix + key, keys.guard(guard), None)
        else:
            stored = keys.follow(follow)
            row = row_at_key(keys.prefix + key, keys.guard(guard), stored)
            keys.note_hit(follow, stored)
        found: Sequence[Any] | None = keys.row(row) if row else row
        return found

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed | None:
        """Return the result of a small read, or None."""
        read, keys = self._inner.read, self._keys
        if read is None or self._gate.check is None or self._gate.is_header(ranges):
            return None
        stored = keys.follow(follow)
        found = read(keys.ranges(ranges), keys.guard(guard), include_expired=include_expired, follow=stored)
        keys.note_hit(follow, stored)
        return keys.result(found) if isinstance(found, ReadResult) else found

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Counted | GuardFailed | None:
        """Return the result of a small count, or None."""
        count = self._inner.count
        if count is None or self._gate.check is None:
            return None
        return count(self._keys.ranges(ranges), self._keys.guard(guard))

    def snapshot(self) -> ImmediateSnapshot | None:
        """Return a snapshot, or None."""
        pin = self._inner.snapshot
        found = None if pin is None or self._gate.check is None else pin()
        return None if found is None else PartImmediateSnapshot(found, self._keys, self._gate)

    def turn_reader(self) -> TurnReader:
        """Return a reader for one turn of an event loop."""
        new_reader = self._inner.turn_reader
        assert new_reader is not None  # see ``PartEngine``
        return PartTurnReader(new_reader(), self._keys, self._gate)


class PartTurnReader:
    """A reader of single rows of a part for one turn of an event loop."""

    def __init__(self, inner: TurnReader, keys: PartKeys, gate: Gate) -> None:
        self._inner = inner
        self._keys = keys
        self._gate = gate

    def rows(self, key: bytes, /) -> list[Row] | None:
        """Return the row of a key, or None."""
        if self._gate.check is None or key == self._gate.place.header_key:
            return None
        rows = self._inner.rows(self._keys.prefix + key)
        return None if rows is None else self._keys.rows(rows)

    def close(self) -> None:
        """End the reader."""
        self._inner.close()
