"""List the records that prevent an index or a history from becoming readable, or a migration from completing.

Rules of this module: the lists are those of the last build, scan or migration; ``resolve`` tries those of indexes again
through the build.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.operations import ReadRange, Row, after_prefix, point
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, read_all
from kvmodels.flows.evolution.batches import IndexViolation, index_violation
from kvmodels.flows.evolution.build import BuildReport, build_index, listed_parts, unknown_index
from kvmodels.flows.evolution.histories import HISTORY, unended
from kvmodels.flows.evolution.migrate import unmigrated
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.flows.references import EXPIRES
from kvmodels.indexing.entries import StoredRecord, slot_owner
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.references import NO_TARGET
from kvmodels.schema.definition.definition import ModelSchema


@dataclass(frozen=True, slots=True)
class RecordViolation:
    """A record that an index cannot hold, or that a migration cannot rewrite.

    Attributes:
        collection: the collection of the record.
        index: the index that cannot hold it; ``history`` if its last version could never be kept; None if the record
            cannot be rewritten at its schema version.
        key: the primary key of the record.
        kind: ``duplicate``: another record has the same unique values. ``overlap``: its interval overlaps that of
            another record. ``no_target``: its foreign key refers to a
            record that does not exist, or that has a deadline. ``too_long``: a key or value is longer than the engine
            allows. ``too_many``: more values than ``max_fan_out``. ``not_encodable``: a value that no key can
            hold. ``key_function``: the function of a column fails for it. ``not_decodable``: the record cannot be read,
            or an upgrade fails for it. ``expires``: a record with a deadline in an index with counters, or with a
            history.
        values: for a duplicate, the unique values, or None if they are too long to be listed; for ``no_target``, the
            key of the missing target, or None if the record does not store it; otherwise None.
        holder: for a duplicate, the primary key of the record that has the values now, and for an ``overlap``, that of
            a record whose interval overlaps; None if there is none any more.
        reason: for ``key_function``, the type name of the exception; for a ``duplicate`` in a migration, or in an index
            whose build must rewrite the record, the complete index in which another record has the value; for
            ``overlap``, the primary key of the other record as text, or in the same cases such an index; for
            ``no_target``, ``missing``, ``expires`` if the target has a deadline, or such a complete index; for a value
            that an index cannot hold in a migration, that index; for ``not_decodable`` and ``not_encodable``, the field
            and the cause if they are known; otherwise None.
    """

    collection: str
    index: str | None
    key: Annotated[Any, StoredAsJson]
    kind: str
    values: Annotated[tuple[Any, ...] | None, StoredAsJson] = None
    holder: Annotated[Any, StoredAsJson] = None
    reason: str | None = None

    def __str__(self) -> str:
        place = self.collection if self.index is None else f"{self.collection}.{self.index}"
        why, held = self.reason, ""
        if self.values is not None and self.kind == NO_TARGET:
            why = f"{self.reason}: {short_repr(self.values[0])}"
        elif self.values is not None and self.holder is not None:
            held = f" with {short_repr(self.holder)} of {short_repr(self.values)}"
        return f"{place}: {short_repr(self.key)} {self.kind}{'' if why is None else f' ({why})'}{held}"


def list_violations(context: Context, schema: ModelSchema, name: str | None, limit: int) -> Flow[list[RecordViolation]]:
    """Return the violations of one index, or of all indexes, the history and a migration, at most ``limit`` of each."""
    while True:
        view = yield from reload_header(context)
        live = view.live[schema.collection]
        if live.refused is not None:
            raise live.refused
        _require_known(view, schema, name)
        found: list[RecordViolation] | None = []
        for index in live.maintained:
            if not index.readable and name in (None, index.stored.name):
                listed = yield from _of_index(context, view, live, index, limit)
                found = None if listed is None or found is None else found + listed
        if found is None:
            continue
        if name in (None, HISTORY) and live.history is not None and not live.history.readable:
            held = yield from unended(context, schema, limit)
            found += [RecordViolation(schema.collection, HISTORY, one.key, one.kind, reason=one.reason) for one in held]
        if name is None:
            left = yield from unmigrated(context, schema, limit)
            found += [RecordViolation(schema.collection, None, one.key, one.kind, reason=one.reason) for one in left]
        return found


def _require_known(view: HeaderView, schema: ModelSchema, name: str | None) -> None:
    stored = view.header.collections.get(schema.collection)
    listed = [] if stored is None else [index.name for index in stored.indexes]
    if schema.history is not None or (stored is not None and stored.history is not None):
        listed.append(HISTORY)
    if name is not None and name not in schema.indexes and name not in listed:
        raise unknown_index(schema, name)


def _of_index(
    context: Context, view: HeaderView, live: LiveCollection, index: LiveIndex, limit: int
) -> Flow[list[RecordViolation] | None]:
    span = ReadRange(index.violations, after_prefix(index.violations), limit)
    rows = yield from read_all(context.limits, (span,), view.guard)
    if rows is None:
        return None
    listed: list[tuple[bytes, bytes, IndexViolation]] = []
    for row in rows[0]:
        slot, pk = listed_parts(index, row)
        listed.append((slot, live.layout.key(pk), index_violation(context, live.layout, pk, row)))
    maintenance = maintenance_of(index)
    referring = {key for _, key, why in listed if _names_target(why) or maintenance.claims_by_value}
    stored = yield from _stored(context, view, {slot for slot, _, _ in listed if slot} | referring)
    if stored is None:
        return None
    rivals = yield from _rivals(context, view, live, index, stored)
    if rivals is None:
        return None
    found: list[RecordViolation] = []
    for slot, key, why in listed:
        if _names_target(why):
            values = _target(context, live, index, stored.get(key))
        else:
            values = index.layout.columns_in(slot) if slot else None
        holder = rivals.get(key) if key in rivals else _holder(context, live, index, stored.get(slot))
        name = index.stored.name
        found.append(RecordViolation(live.schema.collection, name, why.key, why.kind, values, holder, why.reason))
    return found


def _names_target(why: IndexViolation) -> bool:
    """Return whether the foreign key of the index itself has no target, and not that of another index."""
    return why.kind == NO_TARGET and why.reason in ("missing", EXPIRES)


def _target(context: Context, live: LiveCollection, index: LiveIndex, record: Row | None) -> tuple[Any, ...] | None:
    """Return the key to which a record refers; None if it cannot be read, or refers to nothing any more."""
    reference = next((one for one in live.references if one.violations == index.violations), None)
    if reference is None or record is None:
        return None
    try:
        pk = reference.pk_in(document_of(context, record))
    except (DecodeError, InvalidValueError):
        return None
    return None if pk is None else (reference.target_in(pk),)


def _stored(context: Context, view: HeaderView, keys: Iterable[bytes]) -> Flow[dict[bytes, Row] | None]:
    wanted: Sequence[bytes] = sorted(keys)
    found = yield from read_all(context.limits, [point(key) for key in wanted], view.guard)
    if found is None:
        return None
    return {key: rows[0] for key, rows in zip(wanted, found, strict=True) if rows}


def _rivals(
    context: Context, view: HeaderView, live: LiveCollection, index: LiveIndex, stored: Mapping[bytes, Row]
) -> Flow[dict[bytes, Any] | None]:
    """Return the primary key of the record in whose interval each listed record has a part, by the key of the latter.

    The intervals of entries do not overlap, so of those that begin before the end of a record only the last may.
    """
    maintenance = maintenance_of(index)
    entries: dict[bytes, Row] = {}
    for key, row in stored.items() if maintenance.claims_by_value else ():
        try:
            record = StoredRecord(live.layout.pk_of(key), document_of(context, row), row.value, row.encoding)
            kept = maintenance.contents(record, context.codec).entries
        except (DecodeError, InvalidValueError):
            continue
        for entry, value in kept.items():
            entries[key] = Row(entry, *value, row.versionstamp, None)
    found = yield from read_all(context.limits, [*map(maintenance.rival_range, entries.values())], view.guard)
    if found is None:
        return None
    return {
        key: shown_key(live.layout.unpack(index.layout.pk_in(rows[0].key)))
        for (key, entry), rows in zip(entries.items(), found, strict=True)
        if rows and maintenance.contradiction(rows[0], entry) is not None
    }


def _holder(context: Context, live: LiveCollection, index: LiveIndex, slot: Row | None) -> Any:
    if slot is None:
        return None
    try:
        return shown_key(live.layout.unpack(slot_owner(context.codec, live, index, slot)))
    except DecodeError:
        return None


def resolve(context: Context, schema: ModelSchema, name: str | None) -> Flow[tuple[BuildReport, ...]]:
    """Try the violations of one index, or of every PENDING index, again; without any left, the index is READABLE."""
    view = yield from reload_header(context)
    maintained = view.live[schema.collection].maintained
    pending = [index.stored.name for index in maintained if index.stored.state is IndexState.PENDING]
    reports: list[BuildReport] = []
    for chosen in pending if name is None else (name,):
        if chosen in schema.indexes or name is not None:
            report = yield from build_index(context, schema, chosen)
            reports.append(report)
    return tuple(reports)


show_public_path(RecordViolation)
