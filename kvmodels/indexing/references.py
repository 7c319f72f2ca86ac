"""Foreign keys in one commit: what a record newly refers to must exist, and what is referred to must stay.

A commit that makes a new reference checks the target, or its anchor, and sets the guard of the target without a check.
So many records can begin to refer to one target at the same time. A commit that removes the target checks its guard,
after which it has read the entries of every index that refers to the collection: a new reference before that read is
among the entries, and a later one has set the guard, so that the removal is made again.

Rules of this module: pure, and judged on the final state of all records of the commit. The rules themselves are
functions of ``rules.py``. A guard is read before the entries, never after them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.keyspace import reference_anchors, reference_guards
from kvmodels.catalog.references import IncomingReference, OutgoingReference
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import Check, Delete, Mutation, ReadRange, Row
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.indexing import rules
from kvmodels.indexing.entries import Misfit, NeedRows, RecordChange

NO_TARGET: Final = "no_target"
"""The kind of violation of a record whose foreign key refers to no record, or to one with a deadline."""

SPARE_ENTRIES = 4
"""How many entries of a target are read beyond one for each record of the commit, to name the first that remain."""


@dataclass(frozen=True, slots=True)
class MissingTarget:
    """A record refers to another one that does not exist, or has a deadline (``reason``).

    ``others``: the other records of the commit that are refused for such a reason, whichever of them are left out.
    """

    change: RecordChange
    reference: OutgoingReference
    target: bytes
    reason: str
    others: tuple[MissingTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class RemainingReferrers:
    """Records refer to one that is removed; ``keys`` has the first packed primary keys."""

    change: RecordChange
    referrer: IncomingReference
    keys: tuple[bytes, ...]


class ReferenceChecks(NamedTuple):
    """The checks and mutations of a commit that keep its foreign keys.

    ``listed`` has the records that an index under construction lists as violations instead of giving them an entry,
    because their targets are missing: the reason, by the key of the record and the prefix of the list.
    """

    checks: Mapping[bytes, Check]
    mutations: Mapping[bytes, Mutation]
    listed: Mapping[tuple[bytes, bytes], Misfit]


Entries = Mapping[bytes, Sequence[Row]]
"""The entries that were found in each range of ``NeedRows.spans``."""


@dataclass(slots=True)
class ReferenceJudgement:
    """The foreign keys of a commit.

    ``found`` has the entries of removed targets, read in the snapshot of ``rows`` or in a later one; ``loaded`` the
    versionstamps by key of records that were read before, without a deadline. ``_unread`` has the keys that a loaded
    target spares, unless others are read anyway.
    """

    changes: Sequence[RecordChange]
    rows: Mapping[bytes, Row | None] | None
    found: Entries
    codec: ValueCodec
    now_ms: int
    loaded: Mapping[bytes, bytes]
    _final: dict[bytes, RecordChange] = field(init=False)
    _checks: dict[bytes, Check] = field(default_factory=dict[bytes, Check], init=False)
    _mutations: dict[bytes, Mutation] = field(default_factory=dict[bytes, Mutation], init=False)
    _listed: dict[tuple[bytes, bytes], Misfit] = field(default_factory=dict[tuple[bytes, bytes], Misfit], init=False)
    _keys: set[bytes] = field(default_factory=set[bytes], init=False)
    _unread: set[bytes] = field(default_factory=set[bytes], init=False)
    _spans: dict[bytes, ReadRange] = field(default_factory=dict[bytes, ReadRange], init=False)

    def __post_init__(self) -> None:
        self._final = {change.key: change for change in self.changes if change.only is None}

    def result(self) -> ReferenceChecks | NeedRows | MissingTarget | RemainingReferrers:
        """Return the checks and mutations for the foreign keys, what must be read first, or what is refused."""
        for change in self.changes:
            if change.live.referrers:
                _refuse_deadline(change)
            missing = self._referring(change)
            if missing is not None:
                others = tuple(self._also_missing(missing)) if len(self.changes) > 1 else ()
                return replace(missing, others=others) if others else missing
            remaining = self._removing(change)
            if remaining is not None:
                return remaining
        if self._keys or self._spans:
            keys = frozenset(self._keys | self._unread)
            return NeedRows(keys, {} if keys else self._spans)
        return ReferenceChecks(self._checks, self._mutations, self._listed)

    # --- new references ---------------------------------------------------------------------------------------

    def _referring(self, change: RecordChange) -> MissingTarget | None:
        """Judge the new references of one record."""
        document = change.new_document
        if document is None:
            return None
        for reference in change.live.references:
            if change.only is not None and change.only.violations != reference.violations:
                continue
            pk = reference.pk_in(document)
            missing = None if pk is None else self._refers(change, reference, pk)
            if missing is not None:
                return missing
        return None

    def _refers(self, change: RecordChange, reference: OutgoingReference, pk: bytes) -> MissingTarget | None:
        """Judge one foreign key of a record, if it may be a new reference."""
        building = reference.under_construction
        changed = rules.is_new_reference(change, _key_before(reference, change), pk, self.now_ms)
        if not changed and not rules.is_unproven(change, under_construction=building):
            return None
        reason = self._refusal(reference, pk)
        if reason is None:
            mark = rules.reference_mark(reference.guards + pk)
            if mark is not None:
                self._mutations[mark.key] = mark
        elif rules.is_listed_instead(changed=changed, under_construction=building):
            self._listed[change.key, reference.violations] = Misfit(NO_TARGET, reason)
        elif changed:
            return MissingTarget(change, reference, pk, reason)
        return None  # repair writes an entry without a target, which a check then reports

    def _refusal(self, reference: OutgoingReference, pk: bytes) -> str | None:
        """Return why a record cannot be referred to; check it where it can, or ask for its row."""
        key, anchor_key = reference.records + pk, reference.anchors + pk
        own = self._final.get(key)
        if own is not None:  # its own check is that of the record as it was read
            if own.new_document is None:
                return "missing"
            return None if own.expire_at is None else "expires"
        rows = self.rows
        if rows is None and key in self.loaded:
            self._unread.update((key, anchor_key))
            self._check(Row(key, b"", 0, self.loaded[key], None), None)
            return None
        if rows is None or key not in rows or anchor_key not in rows:
            self._keys.update((key, anchor_key))
            return None
        row, anchor = rows[key], rows[anchor_key]
        if row is None or rules.is_expired(row, self.now_ms):
            return "missing"
        if row.expire_at is not None:
            return "expires"
        self._check(row, anchor)
        return None

    def _check(self, row: Row, anchor: Row | None) -> None:
        check = rules.target_check(row, anchor)
        if check is not None:
            self._checks[check.key] = check

    def _also_missing(self, first: MissingTarget) -> Iterator[MissingTarget]:
        """Yield the other records that are refused too; with them out of the commit, those that refer to them.

        A bulk write leaves all of them out at once. One in each attempt would take as many attempts as records.
        """
        refused = {first.change.key}
        found = deque([first])
        for change in self.changes:
            missing = None if change.key in refused else self._referring(change)
            if missing is not None:
                refused.add(change.key)
                found.append(missing)
        inside = self._references_inside()
        while found:
            one = found.popleft()
            if one is not first:
                yield one
            old = one.change.old
            if old is not None and not rules.is_expired(old, self.now_ms):
                continue  # the record as it is stored remains a target
            for change, reference, pk in inside.get(one.change.key, ()):
                if change.key not in refused:
                    refused.add(change.key)
                    found.append(MissingTarget(change, reference, pk, "missing"))

    def _references_inside(self) -> dict[bytes, list[tuple[RecordChange, OutgoingReference, bytes]]]:
        """Return the foreign keys that refer to records of the commit, by the key of the target."""
        inside: dict[bytes, list[tuple[RecordChange, OutgoingReference, bytes]]] = {}
        for change in self._final.values():
            document = change.new_document
            for reference in () if document is None else change.live.references:
                pk = None if document is None else reference.pk_in(document)
                if pk is None or reference.records + pk not in self._final:
                    continue
                if rules.is_new_reference(change, _key_before(reference, change), pk, self.now_ms):
                    inside.setdefault(reference.records + pk, []).append((change, reference, pk))
        return inside

    # --- removals of targets ----------------------------------------------------------------------------------

    def _removing(self, change: RecordChange) -> RemainingReferrers | None:
        """Judge the removal of one record."""
        old = change.old
        if change.new_document is not None or change.only is not None or old is None or not change.live.referrers:
            return None
        collection = change.live.schema.collection
        guard_key = reference_guards(collection) + change.pk
        if self.rows is None or guard_key not in self.rows:
            self._keys.add(guard_key)
            return None
        check = rules.guard_check(guard_key, self.rows[guard_key])
        if check is not None:
            self._checks[guard_key] = check
        for key in rules.kept_with_target(guard_key, reference_anchors(collection) + change.pk):
            self._mutations[key] = Delete(key)
        for referrer in change.live.referrers:
            span = referrer.span(change.pk, len(self.changes) + SPARE_ENTRIES)
            if span.start not in self.found:
                self._spans[span.start] = span
                continue
            remaining = tuple(self._remaining(change, referrer, self.found[span.start]))
            if remaining:
                return RemainingReferrers(change, referrer, remaining)
        return None

    def _remaining(self, change: RecordChange, referrer: IncomingReference, entries: Sequence[Row]) -> Iterator[bytes]:
        """Yield the records that still refer to one that is removed."""
        for entry in entries:
            pk = referrer.pk_of(self.codec, entry)
            own = self._final.get(referrer.records.key(pk))
            if own is None or (own.new_document is not None and referrer.refers(own.new_document, change.pk)):
                yield pk


def _key_before(reference: OutgoingReference, change: RecordChange) -> bytes | None:
    """Return the key that a record had as it was read; None also for one that cannot be read."""
    if change.old_document is None:
        return None
    try:
        return reference.pk_in(change.old_document)
    except InvalidValueError:
        return None


def _refuse_deadline(change: RecordChange) -> None:
    """Refuse a deadline of a record that may be referred to; one that it has already stays."""
    if change.new_document is None or change.expire_at is None:
        return
    if change.old is not None and change.old.expire_at == change.expire_at:
        return
    raise InvalidArgumentError(
        "a record of a collection that foreign keys refer to would expire",
        argument="expire_in",
        expected=tuple(f"{one.collection}.{one.field}" for one in change.live.referrers),
        hint=f"Records of {change.live.schema.name} stay until they are removed: leave out expire_in and Meta.ttl.",
    )
