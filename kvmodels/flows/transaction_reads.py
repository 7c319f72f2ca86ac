"""What a transaction has read, so that its commit can check that nobody has written it since.

Rules of this module: pure. A key is remembered with the versionstamp that it had, or as absent; what the transaction
itself has written there plays no part. The entry of a record that is checked needs no check of its own, because every
write of the entry writes the record (rule R2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator

from kvmodels.errors import InvalidKeyError, OperationTooLargeError
from kvmodels.limits import Limits
from kvmodels.operations import Check, Row
from kvmodels.schema.keyspace import EntryLayout, RecordLayout
from kvmodels.schema.live import LiveCollection

__all__ = ["ReadSet"]


class ReadSet:
    """The keys that a transaction has read, with the versions that it has seen.

    Args:
        limits: a read set of more than ``max_checks`` keys can be of no commit, so no more are remembered.
    """

    __slots__ = ("_limits", "_overflow", "_seen")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[bytes, bytes | None] = {}
        self._overflow = 0

    def note(self, key: bytes, row: Row | None) -> bool:
        """Remember what was read under a key, None for an absent or expired row.

        Returns:
            False when another version of it was seen before: an engine without snapshots has moved on.
        """
        versionstamp = None if row is None else row.versionstamp
        if key in self._seen:
            return self._seen[key] == versionstamp
        # Twice as many, because a check is left out where an entry and its record were both read.
        if len(self._seen) > 2 * self._limits.max_checks:
            self._overflow += 1
        else:
            self._seen[key] = versionstamp
        return True

    def keys(self) -> list[bytes]:
        """The keys that were read, in order."""
        return sorted(self._seen)

    def changed(self, rows: Iterable[tuple[bytes, Row | None]]) -> list[bytes]:
        """Those of some keys that no longer are what was seen."""
        return [key for key, row in rows if self._seen[key] != (None if row is None else row.versionstamp)]

    def checks(self, collections: Iterable[LiveCollection], taken: Container[bytes]) -> Iterator[Check]:
        """What a commit has to check.

        Args:
            collections: whose entries need no check beside their records.
            taken: keys that are checked already.

        Raises:
            OperationTooLargeError: more was read than one operation may check.
        """
        if self._overflow:
            raise OperationTooLargeError(
                "a transaction has read more than its commit may check",
                limit="max_checks",
                size=len(self._seen) + self._overflow,
                maximum=self._limits.max_checks,
                limits=self._limits.whose("max_checks"),
                hint="Read less in the transaction, or read what need not be checked in 'with tx.unchecked():'.",
            )
        entries = _Entries(collections)
        for key, versionstamp in self._seen.items():
            if key in taken:
                continue
            record = None if versionstamp is None else entries.record_key(key)
            if record is None or not (record in taken or self._seen.get(record) is not None):
                yield Check(key, versionstamp)


class _Entries:
    """Tells which keys are entries that end with the primary key of their record."""

    def __init__(self, collections: Iterable[LiveCollection]) -> None:
        found: list[tuple[bytes, EntryLayout, RecordLayout]] = [
            (index.layout.prefix, index.layout, live.layout)
            for live in collections
            for index in live.maintained
            if index.definition.aggregates is None
        ]
        self._found = sorted(found, key=lambda one: one[0])

    def record_key(self, key: bytes) -> bytes | None:
        at = bisect_right(self._found, key, key=lambda one: one[0]) - 1
        if at < 0 or not key.startswith(self._found[at][0]):
            return None
        _, entries, records = self._found[at]
        try:
            pk = entries.pk_in(key)
        except InvalidKeyError:
            return None
        return records.key(pk) if pk else None
