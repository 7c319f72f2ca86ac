"""The content of blobs in dumps of records: lines of chunks after the line of their record.

    {"key": ["documents", 1], "document": {…}}                       a record, whose map of a blob names its id
    {"key": ["__kvmodels__", "blob", id, 0], "value": …}             its chunks, in their order

A load stores the content under a new id, by the protocol of every upload, before it writes the record. So content that
a load has stored, and whose record it then does not write, is removed by a sweep.

Rules of this module: memory holds one batch of chunks, and the new id of each blob.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from kvmodels.catalog.keyspace import RESERVED, chunk_key
from kvmodels.core.keys import Key
from kvmodels.core.operations import ReadRange, Row
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.blobs.reading import gone
from kvmodels.flows.blobs.upload import BlobUpload
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read, read_row
from kvmodels.flows.transfer.dumped_lines import DumpedChunk, DumpedRecord
from kvmodels.indexing.blobs import blobs_in
from kvmodels.schema.blobs.stored import StoredBlob
from kvmodels.schema.definition.definition import Document, ModelSchema

CHUNKS_AT_ONCE = 4


def is_chunk(key: Key) -> bool:
    """Return whether the key of a line is that of a chunk."""
    return key[:2] == (RESERVED, "blob")


def require_droppable(schemas: Iterable[ModelSchema]) -> None:
    """Refuse models whose records cannot be without their blobs. Raises InvalidArgumentError."""
    for schema in schemas:
        for name in schema.blobs:
            if name not in schema.nullable_fields:
                raise InvalidArgumentError(
                    "records without a blob that may not be None could not be loaded",
                    argument="blobs",
                    value=f"{schema.name}.{name}",
                    hint="Leave blobs=False out, or name the other models.",
                )


class DumpedBlobs:
    """Reads the chunks of the records of a dump after each of them."""

    def __init__(self, schemas: Iterable[ModelSchema], *, kept: bool) -> None:
        self.fields: Mapping[str, tuple[str, ...]] = {one.collection: one.blobs for one in schemas if one.blobs}
        self._kept = kept
        self._rows = deque[Row]()
        self._blobs = deque[StoredBlob]()
        self._next = 0

    @property
    def interleaves(self) -> bool:
        """Whether chunks follow records."""
        return self._kept and bool(self.fields)

    def without(self, key: Key, document: Document) -> Document:
        """Return the document of a record as it is dumped: without blobs, if these are left out."""
        fields = () if self._kept else self.fields.get(str(key[0]), ())
        return {name: None if name in fields else value for name, value in document.items()}

    def add(self, rows: Iterable[Row]) -> None:
        """Take the next records."""
        self._rows.extend(rows)

    @property
    def waiting(self) -> bool:
        """Whether there are records or chunks to write."""
        return bool(self._rows or self._blobs)

    def next_rows(self, blobs_of: Callable[[Row], Iterable[StoredBlob]]) -> Flow[list[Row]]:
        """Return records up to one with blobs, or the next chunks of the last one. Raises BlobGoneError."""
        if self._blobs:
            return (yield from self._chunks(self._blobs[0]))
        found: list[Row] = []
        while self._rows and not self._blobs:
            found.append(self._rows.popleft())
            self._blobs.extend(blobs_of(found[-1]))
        return found

    def _chunks(self, blob: StoredBlob) -> Flow[list[Row]]:
        first, last = self._next, min(self._next + CHUNKS_AT_ONCE, blob.chunks)
        span = ReadRange(chunk_key(blob.id, first), chunk_key(blob.id, last), last - first)
        rows = (yield from read((span,))).ranges[0]
        if len(rows) < last - first:
            raise gone(blob)
        self._next = last
        if last == blob.chunks:
            self._blobs.popleft()
            self._next = 0
        return [*rows]


class LoadedBlobs:
    """Puts a record of a dump aside until its chunks were read; checks them, or stores them under new ids."""

    def __init__(self, context: Context, *, keeps_existing: bool) -> None:
        self._context = context
        self._keeps_existing = keeps_existing
        self._record: DumpedRecord | None = None
        self._expected = deque[StoredBlob]()
        self._number = 0
        self._digest = sha256()
        self._upload: BlobUpload | None = None
        self._skips = False
        self._made: dict[bytes, StoredBlob] = {}

    def examine(self, one: object) -> None:
        """Check the chunks of a line, without a write. Raises ValueError for one that does not follow its record."""
        if not isinstance(one, DumpedChunk):
            self._require_complete()
            self._expected.extend(_blobs_of(one) if isinstance(one, DumpedRecord) else ())
            return
        blob = self._followed(one)
        self._digest.update(one.content)
        if self._number == blob.chunks:
            self._end(blob)

    def end(self) -> None:
        """Refuse a dump whose last record lacks chunks. Raises ValueError."""
        self._require_complete()

    def take(self, one: Any, *, again: bool) -> Flow[list[Any]]:
        """Return the records and keys that are complete with this one; a record has the new ids of its blobs."""
        if isinstance(one, DumpedChunk):
            return (yield from self._store(one))
        if not isinstance(one, DumpedRecord) or not (blobs := _blobs_of(one)):
            return [one]
        if again or all(blob.id in self._made for blob in blobs):
            return [self._renewed(one)]
        self._record = one
        self._expected.extend(blobs)
        self._skips = self._keeps_existing and (yield from read_row(one.key)) is not None
        return []

    def _store(self, chunk: DumpedChunk) -> Flow[list[Any]]:
        if self._record is None:
            return []
        blob = self._followed(chunk)
        if not self._skips:
            self._upload = self._upload or BlobUpload(self._context)
            yield from self._upload.push(chunk.content)
        if self._number < blob.chunks:
            return []
        if self._upload is not None:
            self._made[blob.id] = yield from self._upload.finish(blob.content_type)
        self._upload, self._number = None, 0
        self._expected.popleft()
        if self._expected:
            return []
        record, self._record = self._record, None
        return [record if self._skips else self._renewed(record)]

    def _renewed(self, record: DumpedRecord) -> DumpedRecord:
        """Return a record with the new ids of its blobs."""
        document = dict(record.document)
        for name in record.schema.blobs:
            for blob in blobs_in(record.document, (name,)).values():
                made = self._made.get(blob.id)
                if made is not None:
                    document[name] = made.to_value()
        return record._replace(document=document)

    def _followed(self, chunk: DumpedChunk) -> StoredBlob:
        """Return the blob whose next chunk this is. Raises ValueError."""
        blob = self._expected[0] if self._expected else None
        if blob is None or (blob.id, self._number) != (chunk.blob_id, chunk.number):
            raise ValueError("a chunk of a blob that does not follow its record")
        self._number += 1
        return blob

    def _end(self, blob: StoredBlob) -> None:
        digest, self._digest = self._digest.digest(), sha256()
        if digest != blob.sha256:
            raise ValueError("the chunks of a blob have another hash")
        self._expected.popleft()
        self._number = 0

    def _require_complete(self) -> None:
        if self._expected:
            raise ValueError("the chunks of a blob are missing after its record")


def _blobs_of(record: DumpedRecord) -> list[StoredBlob]:
    return [*blobs_in(record.document, record.schema.blobs).values()]
