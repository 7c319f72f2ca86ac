"""Entries of an exclusion constraint: a key of group, start and primary key, which holds the end.

No two intervals of a group overlap, so a new one fits if its neighbour, the row before its end, ends at or before its
start. Whoever puts the first row into a gap sets that neighbour again unchanged, and everyone who puts a row there
checks it; so of two writers of one gap one meets a conflict, and writers of different gaps do not. Before the first
interval of a group there is the *floor*, a row that belongs to no record.

Rules of this module: pure, and judged on all records of a commit together. A row that influenced the result is checked,
also one inside of the interval that the commit removes, because it is the neighbour of the gap behind it. Rows may be
newer than the records of the commit; a row that contradicts a record is a conflict.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_part, key_successor, prefix_range, skip_parts
from kvmodels.core.operations import Check, ReadRange, Row, Set
from kvmodels.errors import ExclusionViolationError, IntegrityError, KvModelsError
from kvmodels.indexing import rules
from kvmodels.indexing.entries import EMPTY_VALUE, OVERLAP, Misfit, RecordChange, StaleRow, StoredRecord, Violation
from kvmodels.indexing.kinds.contract import NOTHING, Claim, Claims, Contents, EntryValue, Fold, KindMaintenance
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import Column
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.interval import options_of

FLOOR: Final = encode_part(b"")
"""The key part of the floor, below that of every start; an end with this part is unbounded."""

ROWS_AT_ONCE: Final = 100
"""How many rows of a group one read returns at most; every engine takes so many."""

FOREVER: Final = b"\xff"
"""The end of an unbounded interval, above every key part."""


class Interval(NamedTuple):
    """An interval as packed key parts, in the group that all its keys begin with."""

    head: bytes
    start: bytes
    end: bytes

    def contains(self, other: Interval) -> bool:
        """Return whether another interval of the group lies within this one."""
        return self.head == other.head and self.start <= other.start and other.end <= self.end


class ExclusionMaintenance(KindMaintenance):
    """The maintenance of an exclusion constraint."""

    claims_by_value = True

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self.resolve = resolve_exclusions
        self._options = options = options_of(layout.definition)
        self._start = reader_of(options.start)
        self._end = reader_of(options.end)
        self._head_parts = len(decode_key(layout.prefix)) + len(layout.definition.columns)

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entry of a record; raises InvalidValueError for an interval that does not end after its start."""
        del codec
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        (head,), has_null = layout.heads(document)
        start, end = self._start(document), self._end(document)
        if has_null or start is None:
            return NOTHING
        options = self._options
        options.numbers(start, end)
        value = (options.end.codec.pack_stored(end), BYTES_ENCODING)
        key = head + options.start.codec.pack_stored(start) + record.pk
        return Contents({key: value}, fan_out=1, contested=True)

    def interval(self, key: bytes, value: bytes) -> Interval:
        """Return the interval of an entry."""
        at = skip_parts(key, self._head_parts)
        start = key[at : at + skip_parts(key[at:], 1)]
        return Interval(key[:at], start, FOREVER if value == FLOOR else value)

    def is_auxiliary(self, key: bytes) -> bool:
        """Return whether a key is that of the floor of a group."""
        return key.endswith(FLOOR) and key[skip_parts(key, self._head_parts) :] == FLOOR

    def contradiction(self, before: Row, after: Row) -> str | None:
        """Return why an entry cannot exist beside an earlier one; None if they do not overlap."""
        one, other = self._of(before), self._of(after)
        if one.head != other.head or one.end <= other.start:
            return None
        return f"its interval overlaps that of another record, {decode_key(self.layout.pk_in(before.key))}"

    def rival_range(self, entry: Row) -> ReadRange:
        """Return the range of the last entry that begins before the end of another one; entries do not overlap."""
        head, _, end = self._of(entry)
        return ReadRange(head + FLOOR + b"\xff", _before(head, end), 1, reverse=True)

    def reaches_further(self, row: Row, other: Row) -> bool:
        """Return whether an entry belongs to a later group than another one, or ends after it."""
        one, known = self._of(row), self._of(other)
        return one.head != known.head or one.end > known.end

    def _of(self, row: Row) -> Interval:
        return self.interval(row.key, row.value)

    def refusal(self, violation: Violation) -> IntegrityError:
        """Return the error for an interval that overlaps that of another record."""
        change, options = violation.change, self._options
        live, definition = change.live, self.layout.definition
        record = change.after
        assert record is not None, "it has an interval"
        ((key, (value, _)),) = self.contents(record, _NO_CODEC).entries.items()
        return ExclusionViolationError(
            "an interval overlaps that of another record",
            model=live.schema.name,
            index=violation.index.stored.name,
            fields=(*definition.fields, *(column.field for column in options.columns)),
            values=(*self.layout.columns_in(key), *self._ends(key, value)),
            existing_key=live.layout.shown(violation.owner),
            **dict(zip(("existing_start", "existing_end"), self._ends(violation.slot, violation.value), strict=True)),
            key=live.layout.shown(change.pk),
        )

    def _ends(self, key: bytes, value: bytes) -> tuple[Any, Any]:
        """Return the values of start and end of an entry."""
        start = self.interval(key, value).start
        return _unpacked(self._options.start, start), _unpacked(self._options.end, value)


_NO_CODEC: Final[Any] = None
"""No entry of this kind is encoded by the codec of a store."""


def _unpacked(column: Column, part: bytes) -> Any:
    (decoded,) = decode_key(part)
    return column.codec.unpack(decoded)


def _maintenance(claim: Claim) -> ExclusionMaintenance:
    maintenance = maintenance_of(claim.index)
    assert isinstance(maintenance, ExclusionMaintenance), "other kinds have other claims"
    return maintenance


class ClaimedInterval(NamedTuple):
    """An interval that a record of the commit wants."""

    key: bytes
    claim: Claim
    interval: Interval

    @property
    def may_be_listed(self) -> bool:
        """Whether the record is listed as a violation if it cannot have the interval, and not refused."""
        return self.claim.held and not self.claim.index.readable


class Blocker(NamedTuple):
    """The entry that is in the way of an interval: its key and value, and the row if it is stored."""

    key: bytes
    value: bytes
    owner: bytes
    row: Row | None


def resolve_exclusions(claims: Claims, fold: Fold) -> Violation | StaleRow | None:
    """Decide on every interval that is claimed or released in a commit."""
    return _Commit(claims, fold).resolved()


class _Commit:
    """The intervals of one commit."""

    def __init__(self, claims: Claims, fold: Fold) -> None:
        self._claims = claims
        self._fold = fold
        self._versions: dict[bytes, bytes | None] = {}
        self._neighbours: list[Row] = []
        self._alone: list[bytes] = []
        self._granted: dict[bytes, list[tuple[bytes, ClaimedInterval]]] = {}
        self._released: dict[bytes, int] = {}
        self._old: dict[tuple[bytes, bytes], Interval] = {}
        """The old intervals of records that keep them until the commit, by the key of the record and the group."""
        self._unread = False
        self._stale: bytes | None = None

    def resolved(self) -> Violation | StaleRow | None:
        """Write what the records may have; return why the commit is refused, or must be tried again."""
        self._count_releases()
        wanted = [
            ClaimedInterval(key, claim, _maintenance(claim).interval(key, claim.value[0]))
            for key, several in self._claims.claims.items()
            for claim in several
        ]
        wanted.sort(key=lambda one: not one.may_be_listed)  # they were there before the others
        found: dict[bytes, Violation] = {}
        for one in wanted:
            violation = self._judge(one)
            if violation is not None:
                found.setdefault(violation.change.key, violation)
        if self._unread:
            return None
        if self._fold.assumes_free and (found or self._stale is not None):
            for one in wanted:
                self._fold.row(one.claim.change.key)  # perhaps the record exists, and this is its own interval
            return None
        if self._stale is not None:
            return StaleRow(self._stale)
        if found:
            first, *others = found.values()
            return replace(first, others=tuple(others)) if others else first
        self._write()
        return None

    def _count_releases(self) -> None:
        for key, releases in self._claims.releases.items():
            for release in releases:
                maintenance = maintenance_of(release.index)
                assert isinstance(maintenance, ExclusionMaintenance), "other kinds have other claims"
                interval = maintenance.interval(key, release.value[0])
                self._released[interval.head] = self._released.get(interval.head, 0) + 1
                if not release.careful:
                    self._old[release.change.key, interval.head] = interval

    def _write(self) -> None:
        """Set what is granted, delete what is released, and set the neighbours again, unless the commit changes them.

        A release is not read: a build may write the entry meanwhile without changing the record.
        """
        fold = self._fold
        for granted in self._granted.values():
            for _, one in granted:
                fold.set(Set(one.key, *one.claim.value, one.claim.change.expire_at))
        for key in (*self._claims.releases, *self._alone):
            fold.delete(key)
        for row in self._neighbours:
            fold.set_again(row)

    # --- one interval -----------------------------------------------------------------------------------------

    def _judge(self, wanted: ClaimedInterval) -> Violation | None:
        """Grant an interval, or list its record as a violation; return the violation if neither is possible."""
        blocker = self._in_store(wanted) or self._among_granted(wanted)
        change, index = wanted.claim.change, wanted.claim.index
        if blocker is None:
            granted = self._granted.setdefault(wanted.interval.head, [])
            granted.insert(bisect_left(granted, wanted.interval.start, key=_start), (wanted.interval.start, wanted))
            return None
        if not wanted.may_be_listed:
            return Violation(change, index, blocker.key, blocker.owner, blocker.value)
        if blocker.row is not None:
            self._check(blocker.key, blocker.row, rules.slot_check(blocker.key, blocker.row))
        self._fold.delete(wanted.key)
        self._fold.list_violation(change, index, Misfit(OVERLAP, str(change.live.layout.shown(blocker.owner))))
        return None

    def _among_granted(self, wanted: ClaimedInterval) -> Blocker | None:
        """Return the entry that another record of the commit gets, and that overlaps an interval."""
        granted = self._granted.get(wanted.interval.head, ())
        at = bisect_left(granted, wanted.interval.start, key=_start)
        for _, other in granted[max(at - 1, 0) : at + 1]:
            if other.interval.start < wanted.interval.end and wanted.interval.start < other.interval.end:
                return Blocker(other.key, other.claim.value[0], other.claim.change.pk, None)
        return None

    def _in_store(self, wanted: ClaimedInterval) -> Blocker | None:
        """Return the stored entry that overlaps an interval; check and keep its neighbour if there is none."""
        claim, (head, start, end) = wanted.claim, wanted.interval
        own = self._old.get((claim.change.key, head))
        if own is not None and own.contains(wanted.interval):
            return None  # no other record can have a part of its own old interval
        until = _before(head, end)
        limit = min(1 + self._released.get(head, 0), ROWS_AT_ONCE)
        while True:
            rows = self._fold.rows_in(ReadRange(head + FLOOR, until, limit, reverse=True))
            if rows is None:
                self._unread = True
                return None
            for row in rows:
                seen = self._seen(row, wanted, start)
                if seen is not None:
                    return seen.blocker
            if len(rows) < limit:
                self._neighbour(head + FLOOR, None)
                return None
            # This commit removes all of them. The last one is read again: if another version of it is found, a row
            # was put behind it between the two reads.
            until, limit = key_successor(rows[-1].key), min(2 * limit, ROWS_AT_ONCE)

    def _seen(self, row: Row, wanted: ClaimedInterval, start: bytes) -> _Seen | None:
        """Look at a row before the end of an interval; return None to look at the row before it too."""
        head = wanted.interval.head
        if row.key == head + FLOOR:
            return self._neighbour(row.key, row)
        maintenance = _maintenance(wanted.claim)
        other = maintenance.interval(row.key, row.value)
        before = _END if other.start <= start else None
        if row.key in self._claims.releases:
            self._check(row.key, row, rules.released_check(row))
            return before
        is_expired = rules.is_expired(row, self._fold.now_ms)
        pk = maintenance.layout.pk_in(row.key)
        record = wanted.claim.change.live.layout.key(pk)
        if not is_expired and self._fold.is_changed(record) and row.key not in self._claims.kept:
            self._stale = record
            return _END
        if other.start <= start and other.end <= start:
            return self._neighbour(row.key, row)
        if not is_expired:
            return _Seen(Blocker(row.key, row.value, pk, row))
        self._remove_expired(row, wanted, pk, record)
        return before

    def _neighbour(self, key: bytes, row: Row | None) -> _Seen:
        """Check a row, and set it again, so that another writer of the gap behind it meets a conflict."""
        self._check(key, row, rules.neighbour_check(key, row))
        mark = rules.neighbour_mark(row or Row(key, *EMPTY_VALUE, b"", None))
        self._neighbours += [] if mark is None else [mark]
        return _END

    def _check(self, key: bytes, row: Row | None, check: Check | None) -> None:
        """Check a row as it was seen; two ranges that were read at different moments may show it differently."""
        version = None if row is None else row.versionstamp
        if self._versions.setdefault(key, version) != version:
            self._stale = key
        self._fold.check(check)

    def _remove_expired(self, row: Row, wanted: ClaimedInterval, pk: bytes, key: bytes) -> None:
        """Remove an expired row with its record; alone if the record is not that of the row any more.

        A sweep removes rows one by one, and the record may live again with another interval.
        """
        change, fold = wanted.claim.change, self._fold
        record = None if fold.is_changed(key) else fold.row(key)
        if record is not None and rules.is_expired(record, fold.now_ms):
            evicted = self._evicted(change, pk, record)
            before = evicted.before
            if before is not None and row.key in self._entries(wanted, before):
                fold.evict(evicted)
                return
        self._check(row.key, row, rules.slot_check(row.key, row))
        self._alone.append(row.key)

    def _evicted(self, change: RecordChange, pk: bytes, record: Row) -> RecordChange:
        document = self._fold.codec.decode_document(record.value, record.encoding, record.key)
        return RecordChange(change.live, pk, record, document, None)

    def _entries(self, wanted: ClaimedInterval, record: StoredRecord) -> dict[bytes, EntryValue]:
        try:
            return dict(_maintenance(wanted.claim).contents(record, self._fold.codec).entries)
        except (KvModelsError, LookupError):
            return {}


class _Seen(NamedTuple):
    """The end of the search for the neighbour of an interval, with the entry that is in its way, if any."""

    blocker: Blocker | None = None


_END: Final = _Seen()


def _before(head: bytes, end: bytes) -> bytes:
    """Return the key below which the entries of a group begin before an end."""
    return prefix_range(head)[1] if end == FOREVER else head + end


def _start(granted: tuple[bytes, ClaimedInterval]) -> bytes:
    return granted[0]


MAINTENANCE: Final = ExclusionMaintenance
