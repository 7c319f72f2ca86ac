"""Read chunks of stored blobs.

Rules of this module: a chunk that is missing means that the blob was removed, because its id is never used again; so a
read never mixes the content of two blobs.
"""

from __future__ import annotations

from kvmodels.catalog.keyspace import chunk_key
from kvmodels.core.operations import ReadRange, ReadResult
from kvmodels.errors import BlobGoneError
from kvmodels.flows.effects import Flow, ReadPresent
from kvmodels.schema.blobs.stored import StoredBlob, damaged


def read_chunks(blob: StoredBlob, first: int, count: int) -> Flow[list[bytes]]:
    """Return some chunks, at least one, in their order. Raises BlobGoneError; DecodeError if one has another size.

    Cost: one read.
    """
    last = min(first + count, blob.chunks)
    span = ReadRange(chunk_key(blob.id, first), chunk_key(blob.id, last), last - first)
    found: ReadResult = yield ReadPresent((span,))
    rows = found.ranges[0]
    if len(rows) < last - first:
        raise gone(blob)
    for number, row in enumerate(rows, first):
        if len(row.value) != chunk_size(blob, number):
            raise damaged(blob, f"chunk {number} has another size")
    return [row.value for row in rows]


def chunk_size(blob: StoredBlob, number: int) -> int:
    """Return the size of one chunk."""
    return min(blob.chunk, blob.size - number * blob.chunk)


def gone(blob: StoredBlob) -> BlobGoneError:
    """Return the error for a blob whose content is not in the store."""
    return BlobGoneError("the store does not have the content of a blob", size=blob.size, sha256=blob.sha256.hex())
