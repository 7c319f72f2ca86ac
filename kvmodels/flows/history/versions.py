"""One version of a record, as its row or its record holds it, and the revision that callers get.

Rules of this module: pure. A version is known by the half-open span of versionstamps [begin, end). A begin with ``-``
was given by another store: times find such a version, versionstamps do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.secret_values import HIDDEN
from kvmodels.catalog.collection import LiveCollection
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.core.values import ErrorAsText, StoredAsJson
from kvmodels.errors import DecodeError
from kvmodels.flows.blobs.binding import bound
from kvmodels.flows.hydration.rows import require_sealed, shown_key
from kvmodels.indexing.versions import begin_of, note_of, without_excluded
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import RESERVED_FIELD, VERSION_NOTE, same_stored, unchanged

M = TypeVar("M")

FOREIGN: tuple[str, ...] = ("-",)
"""How a begin starts that another store has given."""


class RevisionEnd(NamedTuple):
    """How a version of a record ended.

    Attributes:
        versionstamp: that of the commit that ended it.
        at: the time of this commit.
        actor: who ended it; None if not given.
        reason: why; None if not given.
        removed: whether the record was removed, or has left its key by a rename.
        renamed_to: the new primary key, if it was renamed.
    """

    versionstamp: str
    at: datetime
    actor: str | None
    reason: str | None
    removed: bool
    renamed_to: Annotated[Any, StoredAsJson]


class Revision(NamedTuple, Generic[M]):
    """One version of a record.

    Attributes:
        key: the primary key, a tuple if it is composite.
        record: the object as it was, which no store knows; None if it cannot be read, see ``error``.
        versionstamp: the version of the record at its begin; with ``-`` before it if another store gave it.
        at: the time at which it began; None for a version from before the history.
        actor: who wrote it; None if not given.
        reason: why; None if not given.
        changes: for each field that differs from the version before, the values before and after; all fields for an
            insert, with None before; None if the version before is not kept.
        ended: how it ended; None for the present version.
        error: why the document cannot be read as an object; None if it can.
    """

    key: Annotated[Any, StoredAsJson]
    record: M | None
    versionstamp: str
    at: datetime | None
    actor: str | None
    reason: str | None
    changes: Annotated[Mapping[str, tuple[Any, Any]] | None, StoredAsJson]
    ended: RevisionEnd | None
    error: Annotated[DecodeError | None, ErrorAsText] = None


class Version(NamedTuple):
    """A stored version.

    Attributes:
        pk: the packed primary key.
        begin: its begin; ``end``: its end, None for the present version.
        document: the stored document, without the fields that the history excludes.
        note: ``$kv.h`` of the document.
        row: the value of the row of an ended version; empty for the present one.
    """

    pk: bytes
    begin: str
    end: str | None
    document: Document
    note: Mapping[str, Any]
    row: Mapping[str, Any] = {}

    @property
    def time(self) -> int | None:
        """The time at which it began, in ms; None for one from before the history."""
        time = self.note.get("t")
        return time if isinstance(time, int) else None

    @property
    def end_time(self) -> int | None:
        """The time at which it ended, in ms; None for the present version."""
        time: int | None = self.row.get("end", {}).get("t")
        return time

    @property
    def before(self) -> str | None:
        """The begin of the version before it in the same life of the record; None for an insert."""
        before: str | None = self.note.get("p")
        return before

    @property
    def gone(self) -> bool:
        """Whether the record was absent at its key after this version."""
        return self.row.get("gone") is True

    def began_by(self, now_ms: int) -> bool:
        """Return whether it had begun at a time."""
        return self.time is None or self.time <= now_ms

    def lasted_beyond(self, now_ms: int) -> bool:
        """Return whether it had not ended at a time."""
        return self.end_time is None or self.end_time > now_ms

    def contains(self, versionstamp: str) -> bool:
        """Return whether it was current at a versionstamp of this store."""
        return self.begin <= versionstamp and (self.end is None or versionstamp < self.end)


def present_version(codec: ValueCodec, live: LiveCollection, row: Row) -> Version:
    """Return the version that a record holds. Raises DecodeError."""
    document = codec.decode_document(row.value, row.encoding, row.key)
    excluded = () if live.history is None else live.history.exclude
    pk = live.layout.pk_of(row.key)
    begin = begin_of(document, row.versionstamp)
    return Version(pk, begin, None, without_excluded(document, excluded), note_of(document))


def ended_version(codec: ValueCodec, prefix: bytes, row: Row, now_ms: int) -> Version | None:
    """Return the version of a history row; None if its deadline has passed. Raises DecodeError."""
    value = codec.decode_document(row.value, row.encoding, row.key)
    begin = decode_key(row.key)[-1]
    document, end = value.get("doc"), value.get("end")
    if not isinstance(begin, str) or type(document) is not dict or type(end) is not dict:
        raise DecodeError(
            "a row of a history is not an ended version",
            key=decode_key(row.key),
            hint="Another program wrote it, or the store is damaged: run db.check(repair=True).",
        )
    deadline = value.get("x")
    if isinstance(deadline, int) and deadline <= now_ms:
        return None
    pk = row.key[len(prefix) : -(len(begin) + 2)]
    stamp = value.get("s")
    ended = stamp if isinstance(stamp, str) else row.versionstamp.hex()
    return Version(pk, begin, ended, document, note_of(document), value)


def instance_of(live: LiveCollection, version: Version) -> tuple[Any, dict[str, Any]]:
    """Return the object of a version and its undeclared fields. Raises DecodeError."""
    key = live.layout.unpack(version.pk)
    if live.encryption is not None:
        require_sealed(live, version.document, key)
    instance, unknown = live.schema.decode(deepcopy(version.document), key)
    return bound(live, instance), unknown


def revision_of(live: LiveCollection, version: Version, before: Version | None) -> Revision[Any]:
    """Return the revision of a version; ``before`` is the version that its note names, if it is kept."""
    record, error, changes = None, None, None
    try:
        record = instance_of(live, version)[0]
        changes = _hiding(live, _changes(live, version, record, before))
    except DecodeError as refused:
        error = refused
    note = version.note
    return Revision(
        shown_key(live.layout.unpack(version.pk)),
        record,
        version.begin,
        None if version.time is None else as_time(version.time),
        note.get("by"),
        note.get("why"),
        changes,
        _end(live, version),
        error,
    )


class HiddenChanges(dict[str, tuple[Any, Any]]):
    """Changes whose ``repr`` does not show the values of encrypted fields."""

    __slots__ = ("_hidden",)

    def __init__(self, changes: Mapping[str, tuple[Any, Any]], hidden: Collection[str]) -> None:
        super().__init__(changes)
        self._hidden = frozenset(hidden)

    def __repr__(self) -> str:
        shown = (f"{name!r}: {HIDDEN if name in self._hidden else repr(pair)}" for name, pair in self.items())
        return f"{{{', '.join(shown)}}}"

    def __reduce__(self) -> tuple[Any, ...]:
        return HiddenChanges, (dict(self), self._hidden)


def _hiding(
    live: LiveCollection, changes: Mapping[str, tuple[Any, Any]] | None
) -> Mapping[str, tuple[Any, Any]] | None:
    if changes is None or not live.schema.encrypted:
        return changes
    return HiddenChanges(changes, live.schema.encrypted)


def as_time(time_ms: int) -> datetime:
    """Return milliseconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def _end(live: LiveCollection, version: Version) -> RevisionEnd | None:
    if version.end is None:
        return None
    end, to = version.row["end"], version.row.get("to")
    renamed_to = None
    if to is not None:
        parts = tuple(column.codec.unpack(part) for column, part in zip(live.schema.primary_key, to, strict=True))
        renamed_to = shown_key(parts)
    time = as_time(end["t"])
    return RevisionEnd(version.end, time, end.get("by"), end.get("why"), version.gone, renamed_to)


def _changes(
    live: LiveCollection, version: Version, record: Any, before: Version | None
) -> Mapping[str, tuple[Any, Any]] | None:
    """Return the fields that differ from the version before; None if it is not kept, or cannot be read."""
    excluded = () if live.history is None else live.history.exclude
    values = _values(record, excluded)
    if version.before is None:
        return None if version.time is None else {name: (None, value) for name, value in values.items()}
    if before is None:
        return None
    try:
        former = _values(instance_of(live, before)[0], excluded)
    except DecodeError:
        return None
    names = dict.fromkeys((*former, *values))
    stored = _stored_alike(before.document, version.document)
    return {
        name: (former.get(name), values.get(name))
        for name in names
        if name not in former or name not in values or not (name in stored or unchanged(former[name], values[name]))
    }


def _stored_alike(before: Document, after: Document) -> set[str]:
    """Return the fields that two documents of one schema version store alike.

    The type of a field may not tell whether two of its values are equal.
    """
    if _schema_version(before) != _schema_version(after):
        return set()
    return {name for name, value in before.items() if name in after and same_stored(value, after[name])}


def _schema_version(document: Document) -> Any:
    reserved = document.get(RESERVED_FIELD)
    return cast("dict[str, Any]", reserved).get("v") if type(reserved) is dict else None


def _values(record: Any, excluded: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {**record.__dict__, **(record.__pydantic_extra__ or {})}
    return {name: value for name, value in values.items() if name not in excluded}


def without_note(document: Document) -> Document:
    """Return a document without ``$kv.h``."""
    reserved = document.get(RESERVED_FIELD)
    if type(reserved) is not dict or VERSION_NOTE not in reserved:
        return document
    rest = {name: value for name, value in cast("dict[str, Any]", reserved).items() if name != VERSION_NOTE}
    kept = {name: value for name, value in document.items() if name != RESERVED_FIELD}
    return {**kept, RESERVED_FIELD: rest} if rest else kept


show_public_path(Revision, RevisionEnd)
