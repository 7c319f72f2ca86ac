"""Check that index entries equal f(records), key by key, beside live writers; repair on request.

Two passes over each collection. From every record to its entries: what it calls for must be there. From every entry
to its record: what is there must be called for. A suspicion is reported only after one snapshot of header, record
and entry confirms it, so that no writer can be mistaken for damage. The header's list of indexes is the judge.

Counters of aggregate indexes are the part of ``flows/counters.py``.

Rules of this module: nothing is written here; ``flows/repair.py`` mends through the write compiler.
Source: FoundationDB Record Layer, OnlineIndexScrubber.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from kvmodels.errors import DecodeError, InvalidKeyError, KvModelsError
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.expectations import Expected, RecordEntries, difference
from kvmodels.flows.findings import CheckReport, Finding, shown_key
from kvmodels.flows.records import cause_of, document_of, object_of, recomputed
from kvmodels.flows.repair import Suspect, mend
from kvmodels.flows.requests import Flow, read
from kvmodels.keys import key_successor
from kvmodels.maintenance.entries import slot_owner
from kvmodels.operations import GuardFailed, ReadRange, Row, after_prefix, point
from kvmodels.schema.catalogue import IndexState
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.schema.variants import require_known_class

__all__ = ["Repair", "check_collection", "check_database"]

ROWS_AT_ONCE = 500

Repair = Literal["all"] | bool


def check_database(context: Context, *, repair: Repair = False) -> Flow[CheckReport]:
    """Check every declared collection.

    Args:
        repair: True mends entries; ``"all"`` also deletes foreign keys and rows that are no documents.

    Cost: reads every record and every entry twice at most, in batches of 500 rows; per repaired key one commit or two.
    """
    scanned = 0
    findings: list[Finding] = []
    unchecked: list[str] = []
    for schema in context.schemas.values():
        report = yield from check_collection(context, schema, repair=repair)
        scanned += report.scanned
        findings.extend(report.findings)
        unchecked.extend(report.unchecked)
    return CheckReport(scanned, tuple(findings), tuple(unchecked))


def check_collection(context: Context, schema: ModelSchema, *, repair: Repair = False) -> Flow[CheckReport]:
    """Check one collection; see ``check_database``.

    Raises:
        SchemaMismatchError: this process may not use the collection, or not write what it is to repair.
    """
    view = yield from reload_header(context)
    live = view.live[schema.collection]
    obstacle = live.refused or (live.read_only if repair else None)
    if obstacle is not None:
        raise obstacle
    scrub = _Scrub(context, schema, repair)
    yield from scrub.records()
    for index in live.maintained:
        if index.definition.aggregates is None:  # counters are counted again, in a snapshot: flows/counters.py
            yield from scrub.entries(index.stored.name, index.stored.generation)
    view = yield from header_view(context)
    return CheckReport(scrub.scanned, tuple(scrub.findings), tuple(_uncompared(live, view)))


class _Scrub:
    """One run over one collection."""

    def __init__(self, context: Context, schema: ModelSchema, repair: Repair) -> None:
        self._context = context
        self._schema = schema
        self._repair = repair
        self._seen: set[tuple[bytes, bytes | None]] = set()
        self.scanned = 0
        self.findings: list[Finding] = []

    # --- from records to entries ------------------------------------------------------------------------------

    def records(self) -> Flow[None]:
        """Every record: its key, its bytes, and the entries that it calls for."""
        prefix = self._context.layouts[self._schema.collection].prefix
        start = prefix
        while True:
            view, live = yield from self._live()
            rows = yield from self._range(view, start, after_prefix(prefix))
            if rows is None:
                continue
            if not rows:
                return
            # A list per key, because two records may call for one unique slot.
            expected: dict[bytes, list[tuple[Expected, Row]]] = {}
            for row in rows:
                suspect = self._judge_record(live, row)
                if suspect is not None:
                    yield from self._report(suspect)
                for key, wanted in self._called_for(live, row).items():
                    expected.setdefault(key, []).append((wanted, row))
            yield from self._compare(view, expected)
            start = key_successor(rows[-1].key)

    def _judge_record(self, live: LiveCollection, row: Row) -> Suspect | None:
        if not live.layout.is_record_key(row.key):
            return Suspect("foreign", row, None, None, "not a record key of this collection", hint=_REMOVE_ALL)
        pk = live.layout.pk_of(row.key)
        try:
            document = document_of(self._context, row)
        except DecodeError as error:
            return Suspect("undecodable", row, None, pk, cause_of(error), hint=_REMOVE_ALL, worthless=True)
        if not live.layout.names(document, row.key):
            return Suspect("undecodable", row, None, pk, "it has the primary key of another record", hint=_REMOVE_ONE)
        try:
            require_known_class(live.schema, document, live.layout.unpack(pk))
        except DecodeError as error:  # no repair deletes it, and no verb of this program
            return Suspect("undecodable", row, None, pk, cause_of(error), hint=error.hint)
        try:
            object_of(self._context, live, row)
        except KvModelsError as error:
            return Suspect("undecodable", row, None, pk, cause_of(error), hint=_MEND_OR_REMOVE_IT)
        try:
            anew = recomputed(self._context, live, row)
        except KvModelsError as error:  # a function that fails is no reason to call the record unreadable
            return Suspect("computed", row, None, pk, cause_of(error), hint=_MEND_THE_FUNCTION, record=row)
        if anew is None:
            return None
        reason = f"{', '.join(anew.columns)}: not what the function gives"
        return Suspect("computed", row, None, pk, reason, record=row)

    def _called_for(self, live: LiveCollection, row: Row) -> dict[bytes, Expected]:
        return RecordEntries(self._context, live, row).all() or {}

    def _compare(self, view: HeaderView, expected: dict[bytes, list[tuple[Expected, Row]]]) -> Flow[None]:
        """Read the expected entries; what looks wrong is confirmed one by one, because this is another snapshot."""
        keys = sorted(expected)
        for start in range(0, len(keys), ROWS_AT_ONCE):
            some = keys[start : start + ROWS_AT_ONCE]
            found = yield from self._points(view, some)
            for key in some:
                row = found.get(key)
                for wanted, record in expected[key]:
                    if row is None or difference(self._context, wanted, row, record) is not None:
                        yield from self._confirm_missing(key, record.key)

    def _points(self, view: HeaderView, keys: Sequence[bytes]) -> Flow[dict[bytes, Row]]:
        """The rows of these keys; none at all when the header changed, so that everything is looked at again."""
        result = yield from read([point(key) for key in keys], view.guard)
        if isinstance(result, GuardFailed):
            self._context.view = None
            return {}
        return {key: rows[0] for key, rows in zip(keys, result.ranges, strict=True) if rows}

    def _confirm_missing(self, key: bytes, record_key: bytes) -> Flow[None]:
        """Look at record and entry in one snapshot, and report what is wrong there."""
        while True:
            view, live = yield from self._live()
            result = yield from read((point(record_key), point(key)), view.guard)
            if not isinstance(result, GuardFailed):
                break
            self._context.view = None
        records, entries = result.ranges
        wanted = self._called_for(live, records[0]).get(key) if records else None
        if wanted is None:
            return
        record, entry = records[0], entries[0] if entries else None
        pk = live.layout.pk_of(record_key)
        if entry is None:
            reason = "the entry is not there"
            yield from self._report(Suspect("missing", Row(key, b"", 0, b"", None), wanted.index, pk, reason, record))
            return
        reason_or_none = difference(self._context, wanted, entry, record)
        if reason_or_none is None:
            return
        if wanted.slot and (yield from self._owned_by_another(live, wanted.index, entry, pk)):
            suspect = Suspect("missing", entry, wanted.index, pk, "another record has the same unique value", record)
            yield from self._report(suspect)
            return
        yield from self._report(Suspect("dangling", entry, wanted.index, pk, reason_or_none, record))

    def _owned_by_another(self, live: LiveCollection, index: LiveIndex, entry: Row, pk: bytes) -> Flow[bool]:
        """Whether another record reproduces the slot: a real duplicate, which nobody can mend but its owner."""
        try:
            owner = slot_owner(self._context.codec, live, index, entry)
        except DecodeError:
            return False
        if owner == pk:
            return False
        result = yield from read((point(live.layout.key(owner)),))
        rows = result.ranges[0]
        return bool(rows) and entry.key in self._called_for(live, rows[0])

    # --- from entries to records ------------------------------------------------------------------------------

    def entries(self, name: str, generation: int) -> Flow[None]:
        """Every entry of one index generation: its key, and the record that must call for it."""
        start: bytes | None = None
        while True:
            view, live = yield from self._live()
            index = _find(live, name, generation)
            if index is None:
                return
            prefix = index.layout.prefix
            rows = yield from self._range(view, prefix if start is None else start, after_prefix(prefix))
            if rows is None:
                continue
            if not rows:
                return
            unseen = [row for row in rows if (row.key, None) not in self._seen]
            records = yield from self._records_of(view, live, index, unseen)
            for row in unseen:
                record = records.get(_claimed_by(self._context, live, index, row) or b"")
                if record is None or not record.calls_for(index, row):
                    yield from self._judge_entry(live, index, row, record)
            start = key_successor(rows[-1].key)

    def _records_of(
        self, view: HeaderView, live: LiveCollection, index: LiveIndex, entries: Sequence[Row]
    ) -> Flow[dict[bytes, RecordEntries]]:
        """By key, the records that a batch of entries may be of; each is decoded once for all its entries."""
        claimed = {_claimed_by(self._context, live, index, row) for row in entries}
        found = yield from self._points(view, sorted(live.layout.key(pk) for pk in claimed if pk is not None))
        return {live.layout.pk_of(key): RecordEntries(self._context, live, row) for key, row in found.items()}

    def _judge_entry(
        self, live: LiveCollection, index: LiveIndex, row: Row, record: RecordEntries | None
    ) -> Flow[None]:
        """Report an entry that its record, as it was read, does not explain, once a snapshot has confirmed it."""
        owner = self._owner(live, index, row)
        if owner is None:
            suspect = Suspect("foreign", row, index, None, "not an entry key of this index", hint=_REMOVE_ALL)
            yield from self._report(suspect)
        elif isinstance(owner, str):
            yield from self._report(Suspect("dangling", row, index, None, owner))
        elif record is None or record.can_be_read:
            yield from self._confirm_dangling(index, row.key, owner)

    def _owner(self, live: LiveCollection, index: LiveIndex, row: Row) -> bytes | str | None:
        """Packed primary key that the entry names; None when it is no entry key; text when its value names nobody."""
        try:
            pk = index.layout.pk_in(row.key)
            index.layout.columns_in(row.key)
            if pk:
                live.layout.unpack(pk)
                return pk
        except KvModelsError:
            return None
        if not index.definition.unique:
            return None
        try:
            return slot_owner(self._context.codec, live, index, row)
        except DecodeError:
            return "wrong owner"

    def _confirm_dangling(self, index: LiveIndex, key: bytes, owner: bytes) -> Flow[None]:
        """Look at the entry and the record that it names in one snapshot, and report what is wrong there."""
        while True:
            view, live = yield from self._live()
            current = _find(live, index.stored.name, index.stored.generation)
            record_key = live.layout.key(owner)
            result = yield from read((point(record_key), point(key)), view.guard)
            if isinstance(result, GuardFailed):
                self._context.view = None
                continue
            records, entries = result.ranges
            if current is None or not entries:
                return
            named = self._owner(live, current, entries[0])
            if not isinstance(named, bytes):
                yield from self._report(Suspect("dangling", entries[0], current, None, named or "wrong owner"))
                return
            if named == owner:
                break
            owner = named  # the slot has passed to another record since
        entry, record = entries[0], records[0] if records else None
        if record is None:
            yield from self._report(Suspect("dangling", entry, current, owner, "there is no such record"))
            return
        judged = RecordEntries(self._context, live, record)
        wanted = judged.in_index(current)
        if judged.all() is None or wanted is None or judged.calls_for(current, entry):
            return
        reason: str | None = "the record does not call for this entry"
        if key in wanted:
            reason = difference(self._context, wanted[key], entry, record)
        if reason is not None:
            yield from self._report(Suspect("dangling", entry, current, owner, reason, record))

    # --- both -------------------------------------------------------------------------------------------------

    def _live(self) -> Flow[tuple[HeaderView, LiveCollection]]:
        view = yield from header_view(self._context)
        return view, view.live[self._schema.collection]

    def _range(self, view: HeaderView, start: bytes, end: bytes) -> Flow[list[Row] | None]:
        result = yield from read((ReadRange(start, end, ROWS_AT_ONCE),), view.guard)
        if isinstance(result, GuardFailed):
            self._context.view = None
            return None
        self.scanned += len(result.ranges[0])
        return result.ranges[0]

    def _report(self, suspect: Suspect) -> Flow[None]:
        # One key is one finding, but several records may miss one unique slot.
        seen = suspect.row.key, suspect.pk if suspect.kind == "missing" else None
        if seen in self._seen:
            return
        self._seen.add(seen)
        repaired = False
        if self._repair is True or self._repair == "all":
            repaired = yield from mend(self._context, self._schema, suspect, everything=self._repair == "all")
        layout = self._context.layouts[self._schema.collection]
        self.findings.append(
            Finding(
                kind=suspect.kind,
                collection=self._schema.collection,
                index=None if suspect.index is None else suspect.index.stored.name,
                key=shown_key(suspect.row.key),
                primary_key=_shown_pk(layout.unpack(suspect.pk)) if suspect.pk is not None else None,
                reason=suspect.reason,
                repaired=repaired,
                hint=suspect.hint,
            )
        )


_REMOVE_ALL: Final = 'db.check(repair="all") deletes it.'
_REMOVE_ONE: Final = "Another program wrote it: remove it with repository.remove(key)."
_MEND_OR_REMOVE_IT: Final = (
    "No repair deletes it: let the model accept what is stored, or remove it with repository.remove(key)."
)

_MEND_THE_FUNCTION: Final = "The function must take every value that its fields may have, except None."


def _uncompared(before: LiveCollection, view: HeaderView) -> Iterator[str]:
    """Every index of the header whose entries were not compared completely, or that is declared and not there, and why.

    Args:
        before: the collection when the check began: what became readable since was compared in one direction only.
        view: the header at its end.
    """
    schema = before.schema
    collection = view.header.collections.get(schema.collection)
    compared = {(index.stored.name, index.stored.generation) for index in before.maintained if index.readable}
    known = {(index.stored.name, index.stored.generation) for index in view.live[schema.collection].maintained}
    for index in collection.indexes if collection is not None else ():
        place = index.name, index.generation
        reason: str | None = _NOT_COMPARED.get(index.state)
        if index.state.maintained and place not in known:
            reason = "this release does not declare it as it is stored; check it in the release that does"
        elif index.state is IndexState.READABLE and place not in compared:
            reason = "it became complete during the check; check again"
        if reason is not None:
            yield f"{schema.collection}.{index.name}: {reason}"
    listed = {index.name for index in collection.indexes} if collection is not None else set[str]()
    for name in schema.indexes:
        if name not in listed:
            yield f"{schema.collection}.{name}: it is not built; db.apply() builds it"


_NOT_COMPARED: Final = {
    IndexState.WRITE_ONLY: "it is being built; db.build_indexes() finishes that",
    IndexState.PENDING: "it has violations; db.build_indexes() lists them",
    IndexState.DROPPING: "it is being dropped; db.build_indexes() finishes that",
}


def _claimed_by(context: Context, live: LiveCollection, index: LiveIndex, row: Row) -> bytes | None:
    """The packed primary key that an entry seems to name; whether it is one shows when its record is compared."""
    try:
        return index.layout.pk_in(row.key) or slot_owner(context.codec, live, index, row)
    except (InvalidKeyError, DecodeError):
        return None


def _find(live: LiveCollection, name: str, generation: int) -> LiveIndex | None:
    return next((ix for ix in live.maintained if (ix.stored.name, ix.stored.generation) == (name, generation)), None)


def _shown_pk(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values
