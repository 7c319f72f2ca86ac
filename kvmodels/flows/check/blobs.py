"""Check the content of blobs: that records have all their chunks, and that every chunk has one owner.

The check reads one snapshot: first the records of all collections with blobs, then the keys of the chunks and the loose
rows. With ``hashes`` it also reads the content. Content without an owner gets a loose row with ``repair``, so that a
sweep removes it a day later: nothing can give such content an owner, so the finding stays true.

Rules of this module: an id costs about 300 bytes of memory; content is read one chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple, cast

from kvmodels.catalog.keyspace import CHUNKS, LOOSE_BLOBS, chunk_key, loose_key
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import DecodeError
from kvmodels.flows.check.findings import CheckReport, Finding, FindingKind
from kvmodels.flows.context import Context, read_header
from kvmodels.flows.effects import Flow, now, read, rows_at_once, try_commit
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.indexing.blobs import LOOSE_MS, blobs_in, loose_row
from kvmodels.schema.blobs.stored import StoredBlob

ROWS_AT_ONCE: Final = 500

_WRITE_AGAIN: Final = "Write the record again with the file, or restore the store from a backup."


class OwnedBlob(NamedTuple):
    """A blob with the record that has it."""

    blob: StoredBlob
    collection: str
    key: bytes


class BlobCheck:
    """One check of the content of blobs; ``compare`` is run in a snapshot, ``repaired`` outside of it."""

    def __init__(self, context: Context, only: str | None, *, hashes: bool) -> None:
        self._context = context
        self._only = only
        self._hashes = hashes
        self._owned: dict[bytes, OwnedBlob] = {}
        self._stray: dict[bytes, int] = {}
        self.scanned = 0
        self.findings: list[Finding] = []

    def compare(self) -> Flow[None]:
        """Compare records, chunks and loose rows."""
        view = yield from read_header(self._context)
        for name, stored in view.header.collections.items():
            if stored.blobs and not stored.dropping and self._only in (None, name):
                prefix = encode_key((name,))
                yield from self._walk(prefix, partial(self._own, name, stored.blobs))
        if self._only is None:
            yield from self._every_chunk()
        for one in self._owned.values():
            if self._hashes:
                yield from self._read(one)
            elif self._only is not None:
                number = yield from self._count(one.blob)
                self._judge(one, number)

    def _own(self, collection: str, fields: Sequence[str], row: Row) -> None:
        try:
            document = self._context.codec.decode_document(row.value, row.encoding, row.key)
        except DecodeError:
            return  # the check of records lists it
        for blob in blobs_in(document, fields).values():
            one = OwnedBlob(blob, collection, row.key)
            if self._owned.setdefault(blob.id, one) is not one:
                other = shown_key(decode_key(self._owned[blob.id].key)[1:])
                self._add("shared_blob", one, f"the record {other} has the same blob")

    def _every_chunk(self) -> Flow[None]:
        """Count the chunks of all blobs, and compare the counts with their owners."""
        counts: dict[bytes, int] = {}
        yield from self._walk(CHUNKS, partial(_counted, counts), keys_only=True)
        loose: dict[bytes, int] = {}
        yield from self._walk(LOOSE_BLOBS, partial(_counted, loose), keys_only=True)
        for one in self._owned.values():
            if not self._hashes:
                self._judge(one, counts.get(one.blob.id, 0))
            if one.blob.id in loose:
                self._add("loose_blob", one, "its content is listed as that of no record, so a sweep may remove it")
        self._stray = {
            blob_id: n for blob_id, n in counts.items() if blob_id not in self._owned and blob_id not in loose
        }

    def _judge(self, one: OwnedBlob, number: int) -> None:
        if number < one.blob.chunks:
            self._add("missing_chunk", one, f"{one.blob.chunks - number} of {one.blob.chunks} chunks are missing")

    def _count(self, blob: StoredBlob) -> Flow[int]:
        counts: dict[bytes, int] = {}
        yield from self._walk(CHUNKS + encode_key((blob.id,)), partial(_counted, counts), keys_only=True)
        return counts.get(blob.id, 0)

    def _read(self, one: OwnedBlob) -> Flow[None]:
        """Compare the hash of the stored content."""
        blob, digest, missing = one.blob, sha256(), 0
        for number in range(blob.chunks):
            rows = (yield from read((point(chunk_key(blob.id, number)),))).ranges[0]
            self.scanned += len(rows)
            missing += not rows
            for row in rows:
                digest.update(row.value)
        if missing:
            self._judge(one, blob.chunks - missing)
        elif digest.digest() != blob.sha256:
            self._add("damaged_blob", one, "its content has another hash")

    def _walk(self, prefix: bytes, take: Callable[[Row], object], *, keys_only: bool = False) -> Flow[None]:
        start, size = prefix, rows_at_once(self._context.limits, ROWS_AT_ONCE)
        while True:
            span = ReadRange(start, after_prefix(prefix), size, keys_only=keys_only)
            rows = (yield from read((span,))).ranges[0]
            self.scanned += len(rows)
            for row in rows:
                take(row)
            if len(rows) < size:
                return
            start = key_successor(rows[-1].key)

    def _add(self, kind: FindingKind, one: OwnedBlob, reason: str) -> None:
        key, shown = decode_key(one.key), shown_key(decode_key(one.key)[1:])
        self.findings.append(Finding(kind, one.collection, None, key, shown, reason, hint=_WRITE_AGAIN))

    # --- repair ---------------------------------------------------------------------------------------------------

    def report(self, before: CheckReport, *, repair: bool) -> Flow[CheckReport]:
        """Return a report with the findings of this check; ``repair`` gives stray content a loose row."""
        for blob_id, number in self._stray.items():
            repaired = repair and (yield from self._loosened(blob_id, number))
            self.findings.append(
                Finding(
                    "stray_blob",
                    "*",
                    None,
                    (*decode_key(CHUNKS), blob_id),
                    None,
                    f"{number} chunks belong to no record",
                    repaired=repaired,
                    hint="db.check(repair=True) gives them to the sweep, which removes them a day later.",
                )
            )
        return CheckReport(before.scanned + self.scanned, (*before.findings, *self.findings), before.unchecked)

    def _loosened(self, blob_id: bytes, number: int) -> Flow[bool]:
        key = loose_key(blob_id)
        due = (yield from now()) + LOOSE_MS
        row = Set(key, *self._context.codec.encode_document(loose_row(due, number, 0)))
        return (yield from try_commit(AtomicWrite((Check(key, None),), (row,)))) is not None


def _id_in(row: Row) -> bytes:
    return cast("bytes", decode_key(row.key)[2])


def _counted(counts: dict[bytes, int], row: Row) -> None:
    blob_id = _id_in(row)
    counts[blob_id] = counts.get(blob_id, 0) + 1


def blob_checks(context: Context, only: str | None, *, hashes: bool) -> Iterator[BlobCheck]:
    """Yield the check of blobs if the store lists any, to be run after the header was read."""
    view = context.view
    if view is not None and context.traits.snapshots and any(one.blobs for one in view.header.collections.values()):
        yield BlobCheck(context, only, hashes=hashes)
