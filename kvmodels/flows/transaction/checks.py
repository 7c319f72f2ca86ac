"""The checks of a commit: keys that the transaction has read, and guards that it has taken.

The entry of a record that is checked needs no check of its own, because every write of the entry writes the record
(rule R2); but only if both were seen in one state of the store, which on an engine without snapshots two reads are not.

A guard has two rows. Exclusive holders check both and set the exclusive row. Shared holders check the exclusive row and
set the shared row without a check. So an exclusive holder conflicts with every other holder, whichever of the two
commits first, and shared holders do not conflict with each other.

Reads in a block ``with tx.unchecked()`` add no checks. A block applies to code that is called or awaited from it, and
to tasks that are started inside of it. It is not a counter at the transaction, because tasks that share a transaction
run in the middle of each other's blocks. What the consumer of a generator reads while the generator is suspended inside
of a block is refused: without a check an update of others could be lost, and with one a context manager that enters the
block for its caller would have no effect.

Rows that were read from a snapshot of a server are kept, so that it need not be asked for them once more. A snapshot
does not change, so a row that was alive when it was read is what a later read would return. Absent and expired rows are
not kept, because the two are not told apart by every read.

Rules of this module: a key is remembered with the versionstamp that it had, or as absent; pending writes play no part.
Rows of guards are read once. A shared holder checks no row that it sets, so its guard does not fence it (R5): on an
engine that can lose answers its token does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final
from weakref import ReferenceType

from kvmodels._support.callers import calling_frame, is_generator, is_running, place_of, thread_and_task
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import IndexLayout, RecordLayout, guard_key, shared_guard_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Follow, ReadRange, ReadResult, Row, Set, point
from kvmodels.errors import InvalidKeyError, OperationTooLargeError, TransactionSuspendedError
from kvmodels.flows.effects import Flow, read
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits

MOST_KEPT: Final = 1_000
"""Rows that one transaction keeps, which bounds its memory."""


class KeptRows:
    """The first rows that a transaction has read, by key."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Row] = {}
        self._versionstamp = b""

    def keep(self, ranges: Sequence[ReadRange], result: ReadResult, now_ms: int) -> None:
        """Keep the rows of a read."""
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


class ReadSet:
    """The keys that a transaction has read, with their versions; no more of them than a commit may check."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[bytes, bytes | None] = {}
        self._state = 0
        self._span: dict[bytes, tuple[int, int]] = {}
        """The first and the last state in which a key was seen, where there are several."""
        self._overflow = 0

    def next_state(self) -> None:
        """Begin another state of the store for the following reads, on an engine without snapshots."""
        self._state += 1

    def note(self, key: bytes, row: Row | None) -> bool:
        """Remember what was read under a key, None for an absent or expired row.

        Returns False when the key was seen in another version before: an engine without snapshots has a newer state.
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
        """Return the keys that were read, in order."""
        return sorted(self._seen)

    def differing(self, rows: Iterable[tuple[bytes, Row | None]]) -> list[bytes]:
        """Return the keys of rows that were read before in another version, on an engine without snapshots."""
        seen = self._seen
        return [key for key, row in rows if key in seen and seen[key] != (None if row is None else row.versionstamp)]

    def checks(self, collections: Iterable[LiveCollection], taken: Collection[bytes]) -> list[Check]:
        """Return the checks of the commit."""
        if self._overflow:
            raise self._too_many(len(self._seen) + self._overflow)
        entries = _EntryOwners(collections)
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
        return found

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
        """Return whether the check of a record covers its entry."""
        if not (record in taken or self._seen.get(record) is not None):
            return False
        if not self._state:
            return True
        # A record that was seen in one version from state to state has had it in between.
        seen, wanted = self._span.get(record), self._span[entry]
        return seen is not None and seen[0] <= wanted[1] and wanted[0] <= seen[1]


class _EntryOwners:
    """Finds the record of an index entry whose key ends with the primary key."""

    def __init__(self, collections: Iterable[LiveCollection]) -> None:
        found: list[tuple[bytes, IndexLayout, RecordLayout]] = [
            (index.layout.prefix, index.layout, live.layout)
            for live in collections
            for index in live.maintained
            if index.layout.has_entries
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


def noting(follow: Follow, asked: list[ReadRange]) -> Follow:
    """Return a follow-up function that also puts the ranges that it asks for into ``asked``."""

    def followed(found: list[list[Row]]) -> Sequence[ReadRange]:
        asked[:] = follow(found)
        return asked

    return followed


def version_of(row: Row | None) -> bytes | None:
    """Return the versionstamp of a row, None for no row."""
    return None if row is None else bytes(row.versionstamp)


def within(key: bytes, last: bytes | None, reverse: bool) -> bool:
    """Return whether a key lies in the part of a range that was answered."""
    return last is None or (key >= last if reverse else key <= last)


def rows_to_check(exclusive: bytes, common: bytes, shared: bool) -> tuple[bytes, ...]:
    """Return the rows whose change is a conflict for a holder."""
    return (exclusive,) if shared else (exclusive, common)


def row_to_set(exclusive: bytes, common: bytes, shared: bool) -> bytes:
    """Return the row whose change is a conflict for other holders."""
    return common if shared else exclusive


class Guards:
    """The guards that one transaction has taken."""

    def __init__(self) -> None:
        self._seen: dict[bytes, bytes | None] = {}
        self._taken: dict[bytes, None] = {}  # a set that keeps its order

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(self, name: str, parts: tuple[Any, ...], shared: bool, limits: Limits) -> Flow[None]:
        """Take a guard; if it is taken in both ways, it is exclusive."""
        exclusive, common = guard_key(name, parts), shared_guard_key(name, parts)
        check_budget(AtomicWrite((Check(exclusive, None), Check(common, None))), limits)
        unseen = [key for key in rows_to_check(exclusive, common, shared) if key not in self._seen]
        for start in range(0, len(unseen), limits.max_ranges):
            keys = unseen[start : start + limits.max_ranges]
            found = yield from read([point(key) for key in keys], include_expired=True)
            for key, rows in zip(keys, found.ranges, strict=True):
                self._seen[key] = rows[0].versionstamp if rows else None
        if not shared:
            self._taken.pop(common, None)
        if not shared or exclusive not in self._taken:
            self._taken[row_to_set(exclusive, common, shared)] = None

    def checks(self) -> dict[bytes, Check]:
        """Return the checks of the commit, by key."""
        return {key: Check(key, stamp, physical=True) for key, stamp in self._seen.items()}

    def marks(self, codec: ValueCodec) -> list[Set]:
        """Return the rows that the commit sets."""
        return [Set(key, *codec.encode(True)) for key in self._taken]


_USE_INSIDE: Final = (
    "Enter tx.unchecked() in the function that reads, and let a generator collect its results before it yields them."
)


class _Block:
    """An unchecked block of one transaction; only the ``with`` statement keeps it."""

    __slots__ = ("__weakref__", "_frame", "_owner", "place", "transaction")

    def __init__(self, transaction: object) -> None:
        self.transaction = transaction
        self._frame: FrameType | None = None
        self._owner: object = None
        self.place = ""

    def __enter__(self) -> None:
        self._frame = calling_frame()
        self._owner = thread_and_task()
        self.place = place_of(self._frame)
        _blocks.set((*(one for one in _blocks.get() if one() is not None), ReferenceType(self)))

    def __exit__(self, *exc_info: object) -> None:
        self._frame = None
        # Not by a token: a generator may be closed in another context than the one that it was begun in.
        _blocks.set(tuple(one for one in _blocks.get() if one() not in (None, self)))

    def is_open(self) -> bool:
        """Return whether the block was entered and not left."""
        return self._frame is not None

    def applies(self) -> bool:
        """Return whether this code runs in the open block, or in a task that was started inside of it."""
        frame = self._frame
        if frame is None:
            return False
        # A consumer starts its tasks outside of the block of a generator, and they cannot be told from others.
        return is_running(frame) or (self._owner != thread_and_task() and not is_generator(frame))


# Weak references: a context outlives the blocks that were entered in it.
_blocks: Final[ContextVar[tuple[ReferenceType[_Block], ...]]] = ContextVar("kvmodels_unchecked", default=())


def unchecked(transaction: object) -> AbstractContextManager[None]:
    """Return a block in which this task or thread reads of a transaction without checks."""
    return _Block(transaction)


def is_unchecked(transaction: object) -> bool:
    """Return whether this code runs in such a block of a transaction.

    Raises TransactionSuspendedError if only a function that is not on the call stack is in such a block.

    Examples:
        >>> with unchecked("one"):
        ...     is_unchecked("one"), is_unchecked("other")
        (True, False)
        >>> is_unchecked("one")
        False
    """
    entered = _blocks.get()
    if not entered:
        return False
    blocks = [one for reference in entered if (one := reference()) is not None and one.transaction is transaction]
    if any(one.applies() for one in blocks):
        return True
    for one in blocks:
        if one.is_open():
            raise TransactionSuspendedError(
                "an unchecked block of the transaction is open in a function that is suspended or has returned",
                began_at=one.place,
                hint=_USE_INSIDE,
            )
    return False
