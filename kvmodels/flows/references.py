"""Foreign keys in flows: errors of refused commits, entries of removed targets, anchors of busy ones, dangling entries.

Only another program can write a foreign key without a target, or a dump that was changed. It is reported only if entry
and target were read together, so that a concurrent write is never mistaken for damage.

Rules of this module: entries are read under the guard of the header, after the guards of the targets. An anchor is set
only together with a check of its record, and only the removal of the record deletes it; nothing else is written. Keys
are shown in the form that callers write; values of fields are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.references import IncomingReference, incoming_references
from kvmodels.codecs.columns.base import PACKED_NONE
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Guard, GuardFailed, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import IntegrityError, ProtectedError, ReferenceViolationError
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.effects import Flow, now, read, read_all, rows_at_once, try_commit
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.indexing import rules
from kvmodels.indexing.compiler import NO_ENTRIES, NO_NEIGHBOURS
from kvmodels.indexing.entries import EMPTY_VALUE, NeedRows, Neighbours, StaleRow
from kvmodels.indexing.references import Entries, MissingTarget, RemainingReferrers
from kvmodels.limits import Limits
from kvmodels.schema.definition.variants import collection_of
from kvmodels.schema.instances import PendingStamp, state_of

EXPIRES: Final = "expires"
"""The reason for a target that has a deadline."""

_MAKE_PERMANENT: Final = (
    "Make that record permanent first: save(record, expire_in=None). Or give the key of another record."
)


def missing_target(reason: str, **attributes: Any) -> ReferenceViolationError:
    """Return the error for a foreign key whose target does not exist, or has a deadline."""
    if reason != EXPIRES:
        return ReferenceViolationError(
            "a foreign key refers to a record that does not exist", reason=reason, **attributes
        )
    attributes.setdefault("hint", _MAKE_PERMANENT)
    return ReferenceViolationError("a foreign key refers to a record that has a deadline", reason=reason, **attributes)


def refused_reference(refusal: MissingTarget | RemainingReferrers) -> IntegrityError:
    """Return the error for a commit that would leave a foreign key without its target."""
    change = refusal.change
    live = change.live
    key = shown_key(live.layout.unpack(change.pk))
    if isinstance(refusal, MissingTarget):
        reference = refusal.reference
        return missing_target(
            refusal.reason,
            model=live.schema.name,
            field=reference.field,
            target=reference.target_in(refusal.target),
            collection=reference.collection,
            key=key,
        )
    referrer = refusal.referrer
    return ProtectedError(
        "other records refer to this one",
        model=live.schema.name,
        key=key,
        referrer=referrer.collection,
        field=referrer.field,
        keys=tuple(shown_key(referrer.records.unpack(pk)) for pk in refusal.keys),
    )


ANCHOR_ATTEMPTS: Final = 10
"""How often setting an anchor is attempted while the record is written, before the write itself is retried."""


def loaded_targets(context: Context, values: Iterable[object]) -> dict[bytes, bytes] | None:
    """Return the versionstamps by key of the records among some values that were loaded; None if there are none.

    A record with a deadline cannot be referred to, and one that a transaction has stored is read again.
    """
    found: dict[bytes, bytes] = {}
    for value in values:
        state = state_of(value) if isinstance(value, BaseModel) else None
        layout = None if state is None else context.layouts.get(collection_of(type(value)) or "")
        if state is None or layout is None or state.expire_at is not None:
            continue
        if not isinstance(state.versionstamp, PendingStamp):
            found[layout.key(layout.pack(state.key))] = state.versionstamp
    return found or None


def read_entries(context: Context, spans: Mapping[bytes, ReadRange], guard: Guard | None) -> Flow[Entries | None]:
    """Return the entries of some ranges by their first keys; None if the header has changed; then it is read again."""
    found = yield from read_all(context.limits, [*spans.values()], guard)
    if found is None:
        yield from reload_header(context)
        return None
    return dict(zip(spans, found, strict=True))


def read_neighbours(
    context: Context, wanted: Collection[ReadRange], guard: Guard | None
) -> Flow[dict[ReadRange, Sequence[Row]] | None]:
    """Return the physical rows of some ranges; None if the header has changed; then it is read again."""
    ranges = [*wanted]
    found = yield from read_all(context.limits, ranges, guard, include_expired=True)
    if found is None:
        yield from reload_header(context)
        return None
    return dict(zip(ranges, found, strict=True))


class FoundRanges(NamedTuple):
    """The rows of ranges that the write compiler has asked for: ``NeedRows.spans`` and ``NeedRows.neighbours``."""

    entries: Entries = NO_ENTRIES
    neighbours: Neighbours = NO_NEIGHBOURS

    @property
    def expire(self) -> bool:
        """Whether a neighbour has a deadline, so that the time counts."""
        return any(row.expire_at is not None for rows in self.neighbours.values() for row in rows)


NOTHING_FOUND: Final = FoundRanges()


Compiled: TypeAlias = AtomicWrite | NeedRows | StaleRow | None


def with_ranges(
    context: Context,
    needed: NeedRows,
    compiled: Callable[[FoundRanges, int], Compiled],
    found: FoundRanges,
    *,
    now_ms: int,
    guard: Guard,
) -> Flow[Compiled]:
    """Return a write that needs ranges, compiled after reading them; NeedRows for keys that it needs besides.

    ``compiled`` compiles it from what was found, at a time that is 0 while no row that was read has a deadline.
    Returns StaleRow after a conflict, also if the header has changed; then it is read again.
    """
    result: Compiled = needed
    while isinstance(result, NeedRows) and not result.keys:
        if result.spans:
            entries = yield from read_entries(context, result.spans, guard)
            if entries is None:
                return StaleRow(guard.key)
            found = found._replace(entries={**found.entries, **entries})
        if result.neighbours:
            rows = yield from read_neighbours(context, result.neighbours, guard)
            if rows is None:
                return StaleRow(guard.key)
            found = found._replace(neighbours={**found.neighbours, **rows})
        if not now_ms and found.expire:
            now_ms = yield from now()
        result = compiled(found, now_ms)
    return result


def busy_targets(failed: Iterable[bytes], collections: Iterable[LiveCollection]) -> dict[bytes, bytes]:
    """Return the possible targets of foreign keys among the keys of failed checks, with the keys of their anchors."""
    references = [reference for live in collections for reference in live.references]
    return {
        key: reference.anchors + key[len(reference.records) :]
        for key in failed
        for reference in references
        if key.startswith(reference.records)
    }


def anchor(limits: Limits, targets: Mapping[bytes, bytes], guard: Guard) -> Flow[None]:
    """Set the anchors of records that change often, so that new references need not check the records themselves.

    Without it, inserts that refer to a record which another writer updates in a loop would never succeed. ``targets``:
    the keys of the anchors by the keys of the records. Records that are gone cost nothing but their part of one read.
    """
    waiting = dict(targets)
    for _ in range(ANCHOR_ATTEMPTS):
        rows = yield from read_all(
            limits, [point(key) for pair in waiting.items() for key in pair], include_expired=True
        )
        assert rows is not None, "only a guard fails"
        failed: dict[bytes, bytes] = {}
        for (key, anchor_key), record, known in zip(waiting.items(), rows[::2], rows[1::2], strict=True):
            if known or not record or record[0].expire_at is not None:
                continue
            if not (yield from _is_anchored(record[0], anchor_key, guard)):
                failed[key] = anchor_key
        waiting = failed
        if not waiting:
            break


def _is_anchored(record: Row, anchor_key: bytes, guard: Guard) -> Flow[bool]:
    """Set an anchor; return whether it is known to be set."""
    absent = rules.anchor_check(anchor_key)
    checks = (
        Check(guard.key, guard.versionstamp, physical=True),
        Check(record.key, record.versionstamp),
        *(() if absent is None else (absent,)),
    )
    # A second delivery checks the record, so it cannot set the anchor of one that was removed.
    return (yield from try_commit(AtomicWrite(checks, (Set(anchor_key, *EMPTY_VALUE),)))) is not None


ROWS_AT_ONCE: Final = 500


class DanglingReference(NamedTuple):
    """An entry of a foreign key whose target is missing, or has a deadline."""

    reference: IncomingReference
    entry: bytes
    pk: bytes
    target: bytes
    collection: str
    reason: str

    @property
    def key(self) -> Any:
        """The primary key of the referring record."""
        return shown_key(self.reference.records.unpack(self.pk))


class ReferenceScan:
    """One scan of the foreign keys of a store; without ``guard`` no other process may write."""

    def __init__(
        self, codec: ValueCodec, header: Header, limits: Limits, *, guard: Guard | None = None, root: bytes = b""
    ) -> None:
        self._codec = codec
        self._header = header
        self._limits = limits
        self._guard = guard
        self._root = root
        self.scanned = 0

    def dangling(self, only: str | None = None) -> Flow[list[DanglingReference] | None]:
        """Return the foreign keys without a target, of one collection or of all; None if the header has changed."""
        found: list[DanglingReference] = []
        for target in self._header.collections:
            for reference in incoming_references(self._header, target):
                if only is None or only == reference.collection:
                    more = yield from self._dangling_of(reference, target)
                    if more is None:
                        return None
                    found += more
        return found

    def _dangling_of(self, reference: IncomingReference, target: str) -> Flow[list[DanglingReference] | None]:
        prefix = self._root + reference.layout.prefix
        start, found = prefix, list[DanglingReference]()
        size = rows_at_once(self._limits, ROWS_AT_ONCE)
        while True:
            result = yield from read((ReadRange(start, after_prefix(prefix), size),), self._guard)
            if isinstance(result, GuardFailed):
                return None
            entries = result.ranges[0]
            suspects = [one for row in entries if (one := self._named(reference, row, target)) is not None]
            self.scanned += len(entries)
            rows = yield from read_all(self._limits, [point(self._target_key(one)) for one in suspects], self._guard)
            if rows is None:
                return None
            for one, stored in zip(suspects, rows, strict=True):
                if stored and stored[0].expire_at is None:
                    continue
                confirmed = yield from self._confirmed(one)
                if confirmed is None:
                    return None
                found += confirmed
            if len(entries) < size:
                return found
            start = key_successor(entries[-1].key)

    def _named(self, reference: IncomingReference, entry: Row, target: str) -> DanglingReference | None:
        """Return the reference of an entry; None if its record has no reference."""
        row = entry._replace(key=entry.key[len(self._root) :])
        parts = row.key[len(reference.layout.prefix) :]
        part = parts[: len(parts) - len(reference.layout.pk_in(row.key))]
        if part == PACKED_NONE:
            return None
        return DanglingReference(reference, row.key, reference.pk_of(self._codec, row), part, target, "missing")

    def _target_key(self, one: DanglingReference) -> bytes:
        return self._root + encode_key((one.collection,)) + one.target

    def _confirmed(self, one: DanglingReference) -> Flow[list[DanglingReference] | None]:
        """Return the finding if one snapshot confirms entry and target; None if the header has changed."""
        result = yield from read((point(self._root + one.entry), point(self._target_key(one))), self._guard)
        if isinstance(result, GuardFailed):
            return None
        entry, target = result.ranges
        if not entry or (target and target[0].expire_at is None):
            return []
        return [one._replace(reason=EXPIRES if target else "missing")]


def dangling_dump(found: Sequence[DanglingReference]) -> ReferenceViolationError:
    """Return the error for a dump with foreign keys whose targets are not in it."""
    first = found[0]
    (part,) = decode_key(first.target)
    return missing_target(
        first.reason,
        model=first.reference.collection,
        field=first.reference.field,
        target=part,
        collection=first.collection,
        key=first.key,
        hint=f"The dump has {len(found)} such records. It was changed, or written by another program: add the missing "
        "records to it, or remove those that refer to them.",
    )
