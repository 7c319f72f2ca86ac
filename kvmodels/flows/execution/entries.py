"""From the rows of one scan to what a query tests and gives: documents, verified entries, objects, values of fields.

A pointer entry is kept only if the record reproduces this very entry: a dangling or a foreign row is passed over, and
``db.check()`` reports it. A copy (``store="record"``) carries the versionstamp of its record and is exact in its
snapshot. An entry that covers what is asked for is taken as it is: it is a function of the record.

A record with several entries in the ranges of a scan counts at the lowest of their keys, in both directions, so that
it is found exactly once beside writers that do not touch it.

Rules of this module: pure. Nothing is passed over in silence but an entry without its record; a record that cannot be
read is a DecodeError. Filters are tested on the stored document, before an object is made of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.operations import Row
from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.projection import projector
from kvmodels.flows.hydration.rows import (
    Cover,
    document_of,
    no_record_key,
    object_of,
    object_of_document,
    require_known_version,
    shown_values,
)
from kvmodels.indexing.entries import slot_owner
from kvmodels.query.matching import Matcher
from kvmodels.query.plans import QueryPlan
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.values import RESERVED_FIELD


class Hit(NamedTuple):
    """A record, or as much of it as a row covers.

    Attributes:
        row: what ``document`` was decoded from.
        document: the document of the declared schema version; not ``whole`` when it is only what an entry holds.
        pk: the packed primary key.
        held: the document as it is stored, which entries are made of; the same unless an upgrade is outstanding.
    """

    row: Row
    document: Document
    pk: bytes
    whole: bool
    held: Document


class EntryReader:
    """Turns the rows of one scan of a plan into results.

    Args:
        context: shared by the flows of the database.
        live: the collection under the header that guards the read.
        plan: what is read.
        number: of the scan in the plan.
    """

    __slots__ = ("_columns", "_context", "_cover", "_dropped", "_index", "_live", "_scan", "_tests", "selective")

    def __init__(self, context: Context, live: LiveCollection, plan: QueryPlan, number: int) -> None:
        scan = plan.scans[number]
        self._context = context
        self._live = live
        self._scan = scan
        self._index: LiveIndex | None = live.readable[scan.index] if scan.index is not None else None
        self._columns = b""
        self._tests: list[Matcher] = [test for test in (scan.matches, plan.matches) if test is not None]
        self._dropped: list[Matcher] = [one.accepts for one in plan.scans[:number] if one.accepts is not None]
        self._cover = None
        if self._index is not None and scan.covers and not scan.copies:
            self._cover = Cover(context.codec, live, self._index)
        self.selective = bool(self._tests or self._dropped or scan.fans_out)
        """Whether a row may turn out not to count."""

    # --- to the record ----------------------------------------------------------------------------------------

    def record_key(self, row: Row) -> bytes | None:
        """The key of the record to read for a row; None when the row is enough, or no entry of the index."""
        if self._scan.copies:
            return None
        pk = self.owner(row)
        if pk is None or (self._cover is not None and self._is_decided(row, pk)):
            return None
        return self._live.layout.key(pk)

    def owner(self, row: Row) -> bytes | None:
        """The packed primary key that an entry leads to; None for a row that is no entry of the index."""
        index = self._index
        if index is None:
            return self._live.layout.pk_of(row.key)
        try:
            return self._pk_in(index, row.key) or slot_owner(self._context.codec, self._live, index, row)
        except (InvalidKeyError, DecodeError):
            return None

    def _pk_in(self, index: LiveIndex, key: bytes) -> bytes:
        """The packed primary key at the end of an entry key."""
        # Entries of one value lie together: a key that begins with the columns of the one before has the same
        # columns, unless ff follows, which goes on with a text. Taking each key apart costs ten times as much.
        columns = self._columns
        if columns and key.startswith(columns) and key[len(columns) : len(columns) + 1] != b"\xff":
            return key[len(columns) :]
        pk = index.layout.pk_in(key)
        self._columns = key[: len(key) - len(pk)]
        return pk

    def _is_decided(self, row: Row, pk: bytes) -> bool:
        """Whether what the entry holds is enough to tell if the record counts."""
        if not self.selective:
            return True
        hit = self._covered(row, pk)
        try:
            if hit is not None:
                self._counts(hit, row)
        except KeyError:
            return False
        return True

    # --- from the record --------------------------------------------------------------------------------------

    def hit(self, row: Row, record: Row | None) -> Hit | None:
        """What a row leads to; None if the record does not have this very entry.

        Args:
            row: of the scan.
            record: what lies at the key that ``record_key`` gave for it, if it gave one.

        Raises:
            DecodeError: the record, or the copy of it, is no document.
        """
        if record is not None:
            hit = self._whole(record, document_of(self._context, record), self._live.layout.pk_of(record.key))
            return hit if self.reproduces(hit, row) else None
        if self._scan.copies:
            document = document_of(self._context, row)
            if self._index is None:
                return self._whole(row, document, self._live.layout.pk_of(row.key))
            pk = self._pk_in(self._index, row.key) or self._live.layout.pack_document(document)
            return self._whole(row, document, pk)
        if self._cover is None:
            return None
        owner = self.owner(row)
        return None if owner is None else self._covered(row, owner)

    def _whole(self, row: Row, held: Document, pk: bytes) -> Hit:
        require_known_version(self._live, held, pk)
        schema = self._live.schema
        document = held if schema.upgrade is None else schema.upgrade(held, shown_values(self._live, pk))
        return Hit(row, document, pk, whole=True, held=held)

    def _covered(self, row: Row, pk: bytes) -> Hit | None:
        assert self._cover is not None  # callers saw to it
        try:
            document = self._cover.document(row, pk)
            if self._live.schema.upgrade is not None:
                # The index is readable, so no upgrade that is outstanding touches what the entry holds.
                document.setdefault(RESERVED_FIELD, {})["v"] = self._live.schema.schema_version
            return Hit(row, document, pk, whole=False, held=document)
        except (DecodeError, ValueError, TypeError):  # a foreign row
            return None

    def reproduces(self, hit: Hit, row: Row) -> bool:
        """Whether a record calls for an entry of this scan; always, where only a part of it is known."""
        if self._index is None or not hit.whole:
            return True
        return any(key == row.key for key in self._keys(hit))

    def _keys(self, hit: Hit) -> Sequence[bytes]:
        assert self._index is not None  # callers saw to it
        try:
            return [key for key, _ in self._index.layout.keys(hit.held, hit.pk)]
        except (InvalidValueError, KeyError):  # a column that the index cannot hold, or none: it has no entry
            return ()

    # --- whether it counts ------------------------------------------------------------------------------------

    def counts(self, hit: Hit, row: Row) -> bool:
        """Whether a record satisfies the query, and is not found by an earlier row or scan.

        Raises:
            DecodeError: a document that lacks a value cannot be read as an object.
        """
        return not self.selective or self._counts(hit, row)

    def _counts(self, hit: Hit, row: Row) -> bool:
        if self._scan.fans_out and not self._is_first(hit, row):
            return False
        for test in self._tests:
            if not self._holds(test, hit):
                return False
        return not any(self._holds(test, hit) for test in self._dropped)

    def _holds(self, test: Matcher, hit: Hit) -> bool:
        try:
            return test.on_document(hit.document)
        except KeyError:
            if not hit.whole:
                raise
            # Written before the column was declared: what the record would be stored as now decides.
            key = self._live.layout.key(hit.pk)
            return test.on_object(object_of(self._context, self._live, hit.row, key))

    def _is_first(self, hit: Hit, row: Row) -> bool:
        """Whether this is the lowest entry of its record in the ranges of the scan."""
        if not hit.whole:
            raise KeyError("an entry does not hold the other entries of its record")
        for key in self._keys(hit):
            if self._in_ranges(key):
                return key == row.key
        return False

    def _in_ranges(self, key: bytes) -> bool:
        ranges = self._scan.ranges
        at = bisect_right(ranges, key, key=lambda key_range: key_range.start) - 1
        if at < 0:
            return False
        start, end = ranges[at]
        return key == start if end is None else key < end


def result_of(live: LiveCollection, hit: Hit | Any, fields: tuple[str, ...] | None, schema: ModelSchema) -> Any:
    """The object of a record, or the values of some of its fields. The document belongs to the result afterwards.

    Args:
        live: the collection.
        hit: the record; its object, where that was made already, is given back.
        fields: whose values are asked for; None: the object.
        schema: the model.

    Raises:
        DecodeError: the record cannot be read as an object of the model.
    """
    if not isinstance(hit, Hit):
        return hit
    if fields is not None:
        return projector(schema, fields)(hit.document)
    try:
        # As it is stored: then what is wrong after an upgrade is said to come from the upgrade, as by a read by key.
        return object_of_document(live, hit.row, hit.held, hit.pk)
    except InvalidKeyError as error:
        raise no_record_key(live, hit.row.key) from error
