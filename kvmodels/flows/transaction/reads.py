"""What a transaction has read, so that its commit can check that nobody has written it since.

Rules of this module: pure. A key is remembered with the versionstamp that it had, or as absent; what the transaction
itself has written there plays no part. The entry of a record that is checked needs no check of its own, because every
write of the entry writes the record (rule R2); but only if both were seen in one state of the store, which on an engine
without snapshots two reads are not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import EntryLayout, RecordLayout
from kvmodels.core.operations import Check, Follow, ReadRange, Row
from kvmodels.errors import InvalidKeyError, OperationTooLargeError
from kvmodels.limits import Limits


class ReadSet:
    """The keys that a transaction has read, with the versions that it has seen.

    Args:
        limits: a read set of more than ``max_checks`` keys can be of no commit, so no more are remembered.
    """

    __slots__ = ("_limits", "_overflow", "_seen", "_span", "_state")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[bytes, bytes | None] = {}
        self._state = 0
        self._span: dict[bytes, tuple[int, int]] = {}
        """The first and the last state in which a key was seen, where there are several."""
        self._overflow = 0

    def next_state(self) -> None:
        """What is noted from now on was read in another state of the store: for an engine without snapshots."""
        self._state += 1

    def note(self, key: bytes, row: Row | None) -> bool:
        """Remember what was read under a key, None for an absent or expired row.

        Returns:
            False when another version of it was seen before: an engine without snapshots has moved on.
        """
        versionstamp = None if row is None else row.versionstamp
        if key in self._seen:
            if self._seen[key] != versionstamp:
                return False
            if key in self._span:
                self._span[key] = self._span[key][0], self._state
            return True
        # Twice as many, because a check is left out where an entry and its record were both read.
        if len(self._seen) > 2 * self._limits.max_checks:
            self._overflow += 1
        else:
            self._seen[key] = versionstamp
            if self._state:
                self._span[key] = self._state, self._state
        return True

    def keys(self) -> list[bytes]:
        """The keys that were read, in order."""
        return sorted(self._seen)

    def changed(self, rows: Iterable[tuple[bytes, Row | None]]) -> list[bytes]:
        """Those of some keys that no longer are what was seen."""
        return [key for key, row in rows if self._seen[key] != (None if row is None else row.versionstamp)]

    def checks(self, collections: Iterable[LiveCollection], taken: Collection[bytes]) -> Iterator[Check]:
        """What a commit has to check.

        Args:
            collections: whose entries need no check beside their records.
            taken: keys that are checked already.

        Raises:
            OperationTooLargeError: more was read than one operation may check.
        """
        if self._overflow:
            raise self._too_many(len(self._seen) + self._overflow)
        entries = _Entries(collections)
        found: list[Check] = []
        for key, versionstamp in self._seen.items():
            if key in taken:
                continue
            record = None if versionstamp is None else entries.record_key(key)
            if record is None or not self._covers(record, key, taken):
                found.append(Check(key, versionstamp))
        # Where what is written has too many checks by itself, the budget of the operation says so.
        if len(taken) <= self._limits.max_checks < len(taken) + len(found):
            raise self._too_many(len(taken) + len(found))
        return iter(found)

    def _too_many(self, size: int) -> OperationTooLargeError:
        return OperationTooLargeError(
            "a transaction has read more than its commit may check",
            limit="max_checks",
            size=size,
            maximum=self._limits.max_checks,
            limits=self._limits.whose("max_checks"),
            hint="Read less in the transaction, or read what need not be checked in 'with tx.unchecked():'.",
        )

    def _covers(self, record: bytes, entry: bytes, taken: Container[bytes]) -> bool:
        """Whether the check of a record tells of its entry as well."""
        if not (record in taken or self._seen.get(record) is not None):
            return False
        if not self._state:
            return True
        # A record that was seen in one version from state to state has had it in between.
        seen, wanted = self._span.get(record), self._span[entry]
        return seen is not None and seen[0] <= wanted[1] and wanted[0] <= seen[1]


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


def noting(follow: Follow | None, asked: list[ReadRange]) -> Follow | None:
    """The same function, which leaves behind what it asked for."""
    if follow is None:
        return None

    def followed(found: list[list[Row]]) -> Sequence[ReadRange]:
        asked[:] = follow(found)
        return asked

    return followed


def version_of(row: Row | None) -> bytes | None:
    """The versionstamp of a row, None for no row."""
    return None if row is None else bytes(row.versionstamp)


def within(key: bytes, last: bytes | None, reverse: bool) -> bool:
    """Whether a row of the snapshot lies in the part of a range that was answered."""
    return last is None or (key >= last if reverse else key <= last)
