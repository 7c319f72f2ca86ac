"""Foreign keys without a target, found among the entries of their indexes.

Only another program can write one, or a dump that was changed. Rules of this module: nothing is written. A finding is
reported only if entry and target were read together, so that a concurrent write is never mistaken for damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.references import IncomingReference, incoming_references
from kvmodels.codecs.columns.base import PACKED_NONE
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import Guard, GuardFailed, ReadRange, Row, after_prefix, point
from kvmodels.errors import ReferenceViolationError
from kvmodels.flows.effects import Flow, read, read_all, rows_at_once
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.references.refusals import EXPIRES, missing_target
from kvmodels.limits import Limits

ROWS_AT_ONCE: Final = 500


class DanglingReference(NamedTuple):
    """An entry of a foreign key whose target is missing, or has a deadline.

    Attributes:
        reference: the foreign key.
        entry: the key of the entry.
        pk: the packed primary key of the referring record.
        target: the packed primary key and the collection of the missing record.
    """

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
    """One scan of the foreign keys of a store.

    Args:
        header: lists the foreign keys.
        guard: the guard of the header; None if no other process writes.
        root: the prefix of all keys, for a namespace.
    """

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
        """Return the foreign keys without a target, of one collection or of all; None if the header has changed.

        Cost: reads every index entry of a foreign key and its target once, in batches of 500.
        """
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
