"""The owners of blobs: what a commit writes when a record gets or drops one.

A blob has one owner: it is in the present document of one record, or it has a loose row. A record gets a blob only from
a loose row, which the commit checks and deletes; so two records can never have the same one, and a sweep cannot remove
it at the same time. A record that drops a blob leaves a loose row, with the time from which the sweep may remove it.

The row must name all chunks of the blob: if the first batch of an upload arrives a second time after a sweep, it makes
a row that names too few.

Rules of this module: pure, called by the write compiler alone, with the changes as they are stored. The history row of
this commit needs the content as long as it lives, and nothing runs when it expires: so the time is set here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kvmodels.catalog.keyspace import loose_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Delete, Mutation, Row, Set
from kvmodels.errors import BlobGoneError, InvalidArgumentError
from kvmodels.indexing.entries import NeedRows, RecordChange
from kvmodels.indexing.rules import is_expired
from kvmodels.indexing.versions import CommitMoment, ends_version
from kvmodels.schema.blobs.stored import StoredBlob, stored_blob
from kvmodels.schema.definition.definition import Document

LOOSE_MS: Final = 24 * 60 * 60 * 1_000
"""How long a blob without a record is left alone."""


class BlobOwners(NamedTuple):
    """The checks and mutations of the blobs of one commit."""

    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()

    def of(self, write: AtomicWrite) -> AtomicWrite:
        """Return the write of the changes with these checks and mutations."""
        if not self.mutations:
            return write
        return AtomicWrite((*write.checks, *self.checks), (*write.mutations, *self.mutations))


NO_OWNERS: Final = BlobOwners()


def blobs_in(document: Document | None, fields: Iterable[str]) -> dict[bytes, StoredBlob]:
    """Return the blobs that a document has in some fields, by id."""
    found: dict[bytes, StoredBlob] = {}
    for name in fields:
        blob = None if document is None else stored_blob(document.get(name))
        if blob is not None:
            found[blob.id] = blob
    return found


def loose_row(due: int | None, chunks: int, chunk: int) -> dict[str, Any]:
    """Return the value of the row of a blob that no record has; ``due`` None: it is never removed."""
    return {"due": due, "n": chunks, "size": chunk}


def owners_after(
    changes: Sequence[RecordChange],
    rows: Mapping[bytes, Row | None] | None,
    codec: ValueCodec,
    moment: CommitMoment,
    *,
    time_ms: int,
) -> BlobOwners | NeedRows:
    """Return what changes do to the owners of blobs; NeedRows: the loose rows of blobs that a record gets.

    ``time_ms`` is the time of the commit. Raises BlobGoneError: a record gets a blob that is not loose.
    """
    had: dict[bytes, tuple[StoredBlob, int | None]] = {}
    has: dict[bytes, StoredBlob] = {}
    for change in changes:
        fields = change.live.blobs
        if not fields or change.only is not None:
            continue
        _refuse_deadline(change)
        if change.old is not None and not is_expired(change.old, moment.now_ms):
            kept = _kept_fields(change, moment)
            for name in fields:
                due = _due(change, time_ms, held=name in kept)
                had.update((blob_id, (blob, due)) for blob_id, blob in blobs_in(change.old_document, (name,)).items())
        for blob_id, blob in blobs_in(change.new_document, fields).items():
            if blob_id in has:
                raise _gone(blob)
            has[blob_id] = blob
    gained = {loose_key(blob_id): blob for blob_id, blob in has.items() if blob_id not in had}
    if any(rows is None or key not in rows for key in gained):
        return NeedRows(frozenset(gained))
    checks = tuple(_taken(codec, key, (rows or {})[key], blob) for key, blob in gained.items())
    dropped = (
        Set(loose_key(blob_id), *codec.encode_document(loose_row(due, blob.chunks, blob.chunk)))
        for blob_id, (blob, due) in had.items()
        if blob_id not in has
    )
    return BlobOwners(checks, (*map(Delete, gained), *dropped))


def _kept_fields(change: RecordChange, moment: CommitMoment) -> frozenset[str]:
    """Return the blob fields that the history row of this commit holds."""
    history = change.live.history
    if history is None or not ends_version(change, moment.now_ms):
        return frozenset()
    is_gone = change.new_document is None
    if is_gone and change.note is not None and change.note.forgets:
        return frozenset()
    if not is_gone and not history.keeps_updates:
        return frozenset()
    return frozenset(change.live.blobs).difference(history.exclude)


def _due(change: RecordChange, time_ms: int, *, held: bool) -> int | None:
    """Return when a blob that the change drops may be removed; None for never."""
    history = change.live.history
    if change.note is not None and change.note.forgets:
        return time_ms
    if not held or history is None:
        return time_ms + LOOSE_MS
    return None if history.keep is None else time_ms + history.keep + LOOSE_MS


def _taken(codec: ValueCodec, key: bytes, row: Row | None, blob: StoredBlob) -> Check:
    """Return the check of the loose row of a blob that a record gets. Raises BlobGoneError."""
    value: Any = None if row is None else codec.decode_document(row.value, row.encoding, row.key)
    if row is None or cast("dict[str, Any]", value).get("n") != blob.chunks:
        raise _gone(blob)
    return Check(key, row.versionstamp)


def _gone(blob: StoredBlob) -> BlobGoneError:
    return BlobGoneError(
        "the store does not have the content of a blob, or it belongs to another record",
        size=blob.size,
        sha256=blob.sha256.hex(),
    )


def _refuse_deadline(change: RecordChange) -> None:
    if change.expire_at is not None and change.new_document is not None:
        raise InvalidArgumentError(
            "a record of a collection with blobs cannot expire",
            argument="expire_in",
            value=change.live.schema.collection,
            hint="Nothing runs when a record expires, so its files would be left behind: leave expire_in out.",
        )
