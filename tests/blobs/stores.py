"""Models with blobs, and the check that every chunk in a store has one owner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kvmodels import Blob, Database, History, KvModel, PrimaryKey
from kvmodels.indexing.blobs import LOOSE_MS

DAY_MS = LOOSE_MS


class Paper(KvModel, collection="papers"):
    id: PrimaryKey[int]
    title: str = ""
    scan: Blob | None = None
    cover: Blob | None = None


class Deed(KvModel, collection="deeds"):
    id: PrimaryKey[int]
    scan: Blob | None = None

    class Meta:
        history = History(keep=timedelta(days=10))


class Will(KvModel, collection="wills"):
    id: PrimaryKey[int]
    scan: Blob | None = None

    class Meta:
        history = History()


MODELS = (Paper, Deed, Will)


def content(text: bytes, **options: Any) -> Blob:
    """Return a blob that every engine takes."""
    return Blob(text, max_bytes=20_000_000, **options)


def rows(db: Database, kind: str) -> dict[tuple[Any, ...], Any]:
    """Return the rows of a kind without the first two parts of their keys."""
    return {entry.key[2:]: entry.value for entry in db.kv.unsafe().list(prefix=("__kvmodels__", kind))}


def loose(db: Database) -> dict[bytes, Any]:
    """Return the loose rows by the ids of their blobs."""
    return {key[0]: value for key, value in rows(db, "loose").items()}


def stored_ids(db: Database) -> set[bytes]:
    """Return the ids of all blobs that have a chunk."""
    return {key[0] for key in rows(db, "blob")}


def require_owners(db: Database) -> None:
    """Fail if a chunk has no owner, a blob has two, or a record lacks a chunk of its blob."""
    owned: list[bytes] = []
    for model in db.models:
        for record in db[model].all():
            for name in model.model_fields:
                blob = getattr(record, name)
                if isinstance(blob, Blob):
                    owned.append(blob.stored.id)
                    read(blob)
    assert len(owned) == len(set(owned)), "a blob has two records"
    ids = loose(db)
    assert ids.keys().isdisjoint(owned), "a blob of a record is loose"
    assert stored_ids(db) <= {*owned, *ids}, "a chunk has no owner"


def read(blob: Blob | None) -> bytes:
    """Return the content of a stored blob."""
    assert blob is not None
    with blob.open() as file:
        found: bytes = file.read()
    return found
