"""Store the content of a source in chunks, under a loose row, until a write of a record takes it over.

The first batch checks that there is neither the loose row nor the first chunk: a batch that is delivered again is
refused as long as a record has the blob. Every later batch checks the version of the loose row and sets it again, with
the number of chunks and a later time. So an upload that stands still for a day ends with an error, and after a lost
answer the row says whether the batch was written.

Rules of this module: memory is bounded by one batch. A batch has at most 1 MiB, so that other writers do not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Any, Final, NamedTuple, TypeAlias

from kvmodels.catalog.keyspace import chunk_key, loose_key
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, ReadResult, Row, Set, point
from kvmodels.errors import (
    BlobGoneError,
    BlobTooLargeError,
    CommitUnknownError,
    InvalidArgumentError,
    RetriesExhaustedError,
)
from kvmodels.flows.context import Context, pause_before
from kvmodels.flows.effects import Commit, CommitApart, Flow, Pull, ReadPresent, now
from kvmodels.indexing.blobs import LOOSE_MS, loose_row
from kvmodels.limits import Limits
from kvmodels.schema.blobs.blob import DEFAULT_MAX_BYTES, Blob
from kvmodels.schema.blobs.stored import StoredBlob

LARGE_CHUNK: Final = 256 * 1024
SMALL_CHUNK: Final = 60 * 1024
_TAKES_LARGE: Final = 4 * LARGE_CHUNK
_BATCH: Final = 1024 * 1024
_ID_BYTES: Final = 16


Pieces: TypeAlias = Callable[[int], Flow[bytes]]
"""Returns the next piece of a content, of the size that is asked for, or shorter at its end."""


class Sizes(NamedTuple):
    """The size of a chunk, and the number of chunks in a batch."""

    chunk: int
    batch: int


def sizes_of(limits: Limits) -> Sizes:
    """Return the sizes that an engine takes: chunks of 256 KiB, or of 60 KiB where values are small."""
    chunk = LARGE_CHUNK if limits.max_value_bytes > _TAKES_LARGE else min(SMALL_CHUNK, limits.max_value_bytes)
    room = min(_BATCH, limits.max_operation_bytes * 3 // 4) // chunk
    return Sizes(chunk, max(1, min(room, limits.max_mutations - 1)))


def upload(context: Context, pieces: Pieces, content_type: str, most: int | None) -> Flow[StoredBlob]:
    """Store the content of a source, and return its description; ``most`` bytes are stored at most.

    Raises BlobTooLargeError: it has more; BlobGoneError: the upload stood still for a day.
    """
    content = BlobUpload(context, most)
    while True:
        piece = yield from pieces(content.chunk)
        yield from content.push(piece)
        if len(piece) < content.chunk:
            return (yield from content.finish(content_type))


def new_content(context: Context, blob: Blob) -> Flow[StoredBlob]:
    """Store the content of a pending blob. Raises InvalidArgumentError where its size must be limited explicitly."""
    most = blob.max_bytes
    if most is None:
        if context.traits.remote and sizes_of(context.limits).chunk < LARGE_CHUNK:
            raise InvalidArgumentError(
                "this engine is not made for blobs, so their size must be limited explicitly",
                argument="max_bytes",
                hint="Give it: Blob(source, max_bytes=1_000_000). Store large files on another engine.",
            )
        most = DEFAULT_MAX_BYTES
    reader = blob.reader()

    def pieces(size: int) -> Flow[bytes]:
        piece: bytes = yield Pull(reader, size)
        return piece

    try:
        return (yield from upload(context, pieces, blob.content_type, most))
    finally:
        reader.close()


class BlobUpload:
    """One upload: ``push`` pieces of any size, then ``finish``; memory holds one batch.

    Attributes:
        chunk: the size of the chunks.
        size: the number of bytes so far.
    """

    def __init__(self, context: Context, most: int | None = None) -> None:
        self.chunk, self._number = sizes_of(context.limits)
        self.size = 0
        self._context = context
        self._most = most
        self._id = blake2b(context.new_token().encode(), digest_size=_ID_BYTES).digest()
        self._loose = loose_key(self._id)
        self._digest = sha256()
        self._batch: list[bytes] = []
        self._rest = bytearray()
        self._seen: bytes | None = None
        self._stored = 0

    def push(self, piece: bytes) -> Flow[None]:
        """Take the next bytes, and store a batch that is full. Raises BlobTooLargeError."""
        self.size += len(piece)
        if self._most is not None and self.size > self._most:
            raise BlobTooLargeError(
                "the content of a blob is too long", limit="max_bytes", size=self.size, maximum=self._most
            )
        self._digest.update(piece)
        if len(piece) == self.chunk and not self._rest:
            self._batch.append(piece)
        else:
            self._rest += piece
            while len(self._rest) >= self.chunk:
                self._batch.append(bytes(self._rest[: self.chunk]))
                del self._rest[: self.chunk]
        while len(self._batch) >= self._number:
            yield from self._store(self._batch[: self._number])
            del self._batch[: self._number]

    def finish(self, content_type: str) -> Flow[StoredBlob]:
        """Store the rest, and return the description of the content."""
        batch = [*self._batch, *([bytes(self._rest)] if self._rest or not (self._batch or self._stored) else [])]
        while batch:
            yield from self._store(batch[: self._number])
            del batch[: self._number]
        return StoredBlob(self.size, self._digest.digest(), content_type, self.chunk, self._id)

    def _store(self, batch: list[bytes]) -> Flow[None]:
        """Commit the next chunks; after a lost answer or a conflict, the loose row says whether they are stored."""
        context, after = self._context, self._stored + len(batch)
        started, attempt = context.monotonic(), 1
        while True:
            outcome = yield from self._committed(batch, after)
            if outcome is not None:
                self._seen, self._stored = outcome, after
                return
            found = yield from self._found()
            if found is None and self._stored:
                raise self._gone()
            if found is not None and found[1] not in (self._stored, after):
                raise self._gone()
            self._seen = None if found is None else found[0]
            if found is not None and found[1] == after:
                self._stored = after
                return
            attempt += 1
            elapsed = context.monotonic() - started
            if attempt > context.retry.attempts or elapsed >= context.retry.deadline_s:
                raise RetriesExhaustedError(
                    "the answer to every attempt to store a part of a blob was lost",
                    attempts=attempt - 1,
                    elapsed_s=round(elapsed, 6),
                    failed_checks=(),
                    hint="The record was not written. Look after the connection to the store, and write it again.",
                )
            yield from pause_before(context, attempt, context.retry.deadline_s - elapsed)

    def _committed(self, batch: list[bytes], after: int) -> Flow[bytes | None]:
        """Return the versionstamp of the commit; None after a conflict or a lost answer."""
        context = self._context
        due = (yield from now()) + LOOSE_MS
        row = Set(self._loose, *context.codec.encode_document(loose_row(due, after, self.chunk)))
        chunks = (
            Set(chunk_key(self._id, number), piece, BYTES_ENCODING) for number, piece in enumerate(batch, self._stored)
        )
        checks: tuple[Check, ...] = (Check(self._loose, self._seen),)
        if not self._stored:
            checks = (*checks, Check(chunk_key(self._id, 0), None))
        write = AtomicWrite(checks, (row, *chunks))
        try:
            outcome: Committed | Conflict = yield (Commit if context.transaction is None else CommitApart)(write)
        except CommitUnknownError:
            return None
        return outcome.versionstamp if isinstance(outcome, Committed) else None

    def _found(self) -> Flow[tuple[bytes, Any] | None]:
        """Return the version of the loose row, and the number of chunks that it names; None if there is no row."""
        found: ReadResult = yield ReadPresent((point(self._loose),))
        row: Row | None = found.ranges[0][0] if found.ranges[0] else None
        if row is None:
            return None
        value = self._context.codec.decode_document(row.value, row.encoding, row.key)
        return row.versionstamp, value.get("n")

    def _gone(self) -> BlobGoneError:
        return BlobGoneError(
            "an upload stood still for a day, and was removed", size=self.size, sha256=None, hint="Write it again."
        )
