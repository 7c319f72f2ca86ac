"""Check a whole store: the collections of declared models, those without a declared model, and all foreign keys.

Undeclared collections are checked with the index definitions in the catalogue. Entries are a function of the stored
document, which also contains the values of computed columns, so neither the class nor key functions are needed to
compare them. Three things cannot be checked without the class, and ``unchecked`` says so: whether a record can be read
as an object, whether a computed value is the result of its function, and counters.

Rules of this module: undeclared collections are not repaired, because a write needs the model. A record whose target is
missing is never repaired, because its right target is unknown. A guard or anchor without its record is deleted under
checks of its version and of the absence of its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from kvmodels.catalog.catalogue import (
    IndexState,
    StoredCollection,
    StoredIndex,
    stored_entry_layouts,
    stored_record_layout,
)
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import (
    ANNOUNCED,
    TENANT_ROWS,
    RecordLayout,
    reference_anchors,
    reference_guards,
    violation_prefix,
)
from kvmodels.catalog.unknown import unknown_description
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Delete, ReadRange, Row, after_prefix, point, vacant_range
from kvmodels.errors import SchemaMismatchError
from kvmodels.flows.check.announcements import check_announcements
from kvmodels.flows.check.findings import CheckReport, Finding, shown_key
from kvmodels.flows.check.histories import check_histories
from kvmodels.flows.check.records import RecordEntries, Suspect
from kvmodels.flows.check.scrub import REMOVE_ALL, Repair, Scrub
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.effects import Flow, read, read_all, rows_at_once, try_commit
from kvmodels.flows.evolution.throttle import Pace
from kvmodels.flows.hydration.rows import lacks_blind_keys
from kvmodels.flows.hydration.rows import shown_key as shown_pk
from kvmodels.flows.references import ReferenceScan
from kvmodels.indexing import rules
from kvmodels.schema.definition.definition import Document, ModelSchema


def check_store(context: Context, *, repair: Repair, pace: Pace) -> Flow[CheckReport]:
    """Check every declared collection, all foreign keys, and every other collection in the store.

    ``repair``: True repairs entries; ``"all"`` also deletes foreign keys and undecodable rows.
    """
    reports: list[CheckReport] = []
    for schema in context.schemas.values():
        report = yield from _check_declared(context, schema, repair, pace)
        reports.append(report)
    reports.append((yield from _check_references(context, None, repair=bool(repair))))
    reports.append((yield from check_histories(context, None, repair=bool(repair))))
    view = yield from reload_header(context)
    for name, stored in view.header.collections.items():
        if name not in context.schemas:
            reports.append((yield from _check_undeclared(context, stored, pace)))
    tenants, announced = (yield from read((vacant_range(TENANT_ROWS), vacant_range(ANNOUNCED)))).ranges
    if tenants or announced:
        reports.append((yield from check_announcements(context, repair=bool(repair), pace=pace)))
    if tenants:
        reports.append(CheckReport(0, (), ("tenants: db.check(tenants=True) checks them",)))
    return _together(reports)


def check_collection(context: Context, schema: ModelSchema, *, repair: Repair, pace: Pace) -> Flow[CheckReport]:
    """Check one collection and its foreign keys; see ``check_store``. Raises SchemaMismatchError."""
    report = yield from _check_declared(context, schema, repair, pace)
    references = yield from _check_references(context, schema.collection, repair=bool(repair))
    histories = yield from check_histories(context, schema.collection, repair=bool(repair))
    return _together((report, references, histories))


def _together(reports: Sequence[CheckReport]) -> CheckReport:
    findings = tuple(finding for report in reports for finding in report.findings)
    unchecked = tuple(reason for report in reports for reason in report.unchecked)
    return CheckReport(sum(report.scanned for report in reports), findings, unchecked)


def _check_declared(context: Context, schema: ModelSchema, repair: Repair, pace: Pace) -> Flow[CheckReport]:
    view = yield from reload_header(context)
    live = view.live[schema.collection]
    obstacle = live.refused or (live.read_only if repair else None)
    if obstacle is not None:
        raise obstacle
    scrub = Scrub(context, schema.collection, schema, repair, pace)
    yield from scrub.whole(live)
    view = yield from header_view(context)
    unchecked = [*_uncompared(live, view)]
    if scrub.without_keys:
        unchecked.append(f"{schema.collection}: {_WITHOUT_KEYS}")
    if any(lacks_blind_keys(one) for one in (live, view.live[schema.collection])):
        unchecked.append(f"{schema.collection}: {_WITHOUT_BLIND_KEYS}")
    return CheckReport(scrub.scanned, tuple(scrub.findings), tuple(unchecked))


def _uncompared(before: LiveCollection, view: HeaderView) -> Iterator[str]:
    """Yield every index that was not compared completely, or is declared but missing, with the reason."""
    schema = before.schema
    collection = view.header.collections.get(schema.collection)
    compared = {(index.stored.name, index.stored.generation) for index in before.maintained if index.readable}
    known = {(index.stored.name, index.stored.generation) for index in view.live[schema.collection].maintained}
    for index in collection.indexes if collection is not None else ():
        place = index.name, index.generation
        reason: str | None = _NOT_COMPARED.get(index.state)
        if index.is_unknown_to(schema.indexes.get(index.name)):
            reason = _UNKNOWN
        elif index.state.maintained and place not in known:
            reason = "this release does not declare it with its stored definition; check it in the release that does"
        elif index.state is IndexState.READABLE and place not in compared:
            reason = "it became complete during the check; check again"
        if reason is not None:
            yield f"{schema.collection}.{index.name}: {reason.format(model=schema.name)}"
    if collection is not None and collection.unknown:
        yield f"{schema.collection}: {_unknown_sections(collection)}"
    listed = {index.name for index in collection.indexes} if collection is not None else set[str]()
    for name in schema.indexes:
        if name not in listed:
            yield f"{schema.collection}.{name}: it is not built; db.apply() builds it"


_WITHOUT_KEYS: Final = "whether encrypted fields can be read; open the database with all keys"
_WITHOUT_BLIND_KEYS: Final = (
    "whether its computed columns have the right values, which needs the keys of its blind indexes; open the database "
    "with all keys"
)

_UNKNOWN: Final = "its description is unknown to this release of kvmodels; check it with a newer one"


def _unknown_sections(collection: StoredCollection) -> str:
    return f"the catalogue has sections that this release of kvmodels does not know: {', '.join(collection.unknown)}"


_NOT_COMPARED: Final = {
    IndexState.WRITE_ONLY: "it is being built; db.build_indexes() finishes that",
    IndexState.PENDING: "it has violations; db.violations({model}) lists them",
    IndexState.DISABLED: "it is not built; db.apply() builds it",
    IndexState.DROPPING: "it is being dropped; db.build_indexes() finishes that",
}


def _check_undeclared(context: Context, stored: StoredCollection, pace: Pace) -> Flow[CheckReport]:
    try:
        layout = stored_record_layout(stored)
    except SchemaMismatchError as error:
        return CheckReport(0, (), (f"{stored.name}: {error.message}",))
    scrub = _UndeclaredScrub(context, layout, pace)
    yield from scrub.whole(scrub.live_of(stored))
    return CheckReport(scrub.scanned, tuple(scrub.findings), tuple(_uncompared_indexes(stored, scrub)))


class _UndeclaredScrub(Scrub):
    """One check of a collection without a model."""

    def __init__(self, context: Context, layout: RecordLayout, pace: Pace) -> None:
        super().__init__(context, layout.collection, None, False, pace)
        self._own_layout = layout
        self._known: tuple[StoredCollection, LiveCollection] | None = None
        self.incomplete = False
        """Whether a record does not store a column of an index."""

    @property
    def _layout(self) -> RecordLayout:
        return self._own_layout

    def live_of(self, stored: StoredCollection | None) -> LiveCollection:
        """Return the collection with the indexes that can be compared, without a schema."""
        if stored is None:
            return self._live_with(())
        if self._known is None or self._known[0] is not stored:
            self._known = stored, self._live_with(tuple(_comparable(stored)))
        return self._known[1]

    def _live_with(self, indexes: tuple[LiveIndex, ...]) -> LiveCollection:
        return LiveCollection(cast("ModelSchema", None), self._own_layout, indexes, {}, {}, None, None)

    def _live(self) -> Flow[tuple[HeaderView, LiveCollection]]:
        view = yield from header_view(self._context)
        return view, self.live_of(view.header.collections.get(self._collection))

    def _entries_of(self, live: LiveCollection, row: Row, document: Document | None = None) -> RecordEntries:
        entries = _StoredEntries(self._context, live, row, document)
        if entries.can_be_read and entries.complete() is None:
            self.incomplete = True
        return entries

    def _judge_document(self, live: LiveCollection, row: Row, document: Document) -> Suspect | None:
        del live, row, document  # there is no class to read it with
        return None

    def _hint(self, suspect: Suspect) -> str:
        if suspect.hint is None:
            return _DECLARE_IT
        return _DECLARE_AND_REMOVE_IT if suspect.hint == REMOVE_ALL else suspect.hint


class _StoredEntries(RecordEntries):
    """The entries of a record whose columns it stores."""

    __slots__ = ()

    def _made_anew(self) -> Document | None:
        return None


def _comparable(stored: StoredCollection) -> Iterator[LiveIndex]:
    for index, layout in stored_entry_layouts(stored):
        if index.state is IndexState.READABLE and index.has_entries:
            violations = violation_prefix(stored.name, index.name, index.generation)
            yield LiveIndex(index, layout.definition, layout, violations, None)


def _uncompared_indexes(stored: StoredCollection, scrub: _UndeclaredScrub) -> Iterator[str]:
    yield f"{stored.name}: no model of this program declares it, so its records were not read as objects"
    compared = {(index.stored.name, index.stored.generation) for index in scrub.live_of(stored).maintained}
    for index in stored.indexes:
        if (index.name, index.generation) not in compared:
            yield f"{stored.name}.{index.name}: {_reason(index)}"
    if stored.unknown:
        yield f"{stored.name}: {_unknown_sections(stored)}"
    if scrub.incomplete:
        yield f"{stored.name}: records that do not store a column of an index were not compared with it"


def _reason(index: StoredIndex) -> str:
    if index.unknown:
        return _UNKNOWN
    if index.state is not IndexState.READABLE:
        return "it is not complete; a program that declares its model finishes it"
    return "counters are counted again only for a declared model"


_DECLARE_IT: Final = "Run db.check(repair=True) in a program that declares the model of this collection."
_DECLARE_AND_REMOVE_IT: Final = 'Run db.check(repair="all") in a program that declares the model of this collection.'


ROWS_AT_ONCE: Final = 500

_STORE_OR_REMOVE: Final = (
    "Store the missing record again, or remove the record that refers to it or let it refer to another."
)


def _check_references(context: Context, only: str | None, *, repair: bool) -> Flow[CheckReport]:
    """Check the foreign keys of all collections or of one."""
    view = yield from header_view(context)
    while True:
        scan = ReferenceScan(context.codec, view.header, context.limits, guard=view.guard)
        dangling = yield from scan.dangling(only)
        if dangling is not None:
            break
        view = yield from reload_header(context)
    findings = [
        Finding(
            "dangling_reference",
            one.reference.collection,
            one.reference.layout.definition.name,
            shown_key(one.entry),
            one.key,
            f"its target in {one.collection} {'has a deadline' if one.reason == 'expires' else 'is missing'}",
            hint=_STORE_OR_REMOVE,
        )
        for one in dangling
    ]
    scanned = scan.scanned
    for collection in view.header.collections if only is None else (only,):
        listed = view.header.collections.get(collection)
        # Rows of a collection that this release does not understand are not deleted.
        may_repair = repair and (listed is None or unknown_description(view.header, listed) is None)
        for prefix in (reference_guards(collection), reference_anchors(collection)):
            number, found = yield from _strays(context, collection, prefix, repair=may_repair)
            scanned += number
            findings += found
    return CheckReport(scanned, tuple(findings))


def _strays(context: Context, collection: str, prefix: bytes, *, repair: bool) -> Flow[tuple[int, list[Finding]]]:
    start, scanned, findings = prefix, 0, list[Finding]()
    records = encode_key((collection,))
    size = rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        rows = (yield from read((ReadRange(start, after_prefix(prefix), size),))).ranges[0]
        scanned += len(rows)
        keys = [records + row.key[len(prefix) :] for row in rows]
        found = yield from read_all(context.limits, [point(key) for key in keys], include_expired=True)
        for row, key, stored in zip(rows, keys, found or (), strict=False):
            if stored:
                continue
            guard, record = (yield from read((point(row.key), point(key)), include_expired=True)).ranges
            if guard and not record:  # in one snapshot
                repaired = repair and (yield from _removed(row, key))
                findings.append(_finding(collection, row, prefix, repaired=repaired))
        if len(rows) < size:
            return scanned, findings
        start = key_successor(rows[-1].key)


def _removed(row: Row, record_key: bytes) -> Flow[bool]:
    checks = [one for one in (rules.guard_check(row.key, row), rules.slot_check(record_key, None)) if one is not None]
    return (yield from try_commit(AtomicWrite(tuple(checks), (Delete(row.key),)))) is not None


def _finding(collection: str, row: Row, prefix: bytes, *, repaired: bool) -> Finding:
    return Finding(
        "stray_guard",
        collection,
        None,
        shown_key(row.key),
        shown_pk(decode_key(row.key[len(prefix) :])),
        "it is kept for a record that is not there",
        repaired=repaired,
        hint="db.check(repair=True) deletes it.",
    )
