"""The rows of ended versions: what a commit writes beside its records in collections with a history.

A document of such a collection holds ``$kv.h``: the time and the writer of its version, and the begin of the version
before it. A write that ends a version stores its document in a row whose key ends with its begin. The writer has the
record as it was and checks its versionstamp, so no second writer can make the same row.

A version is not a versionstamp. A rewrite (a build, a migration, repair, a write that changes nothing or only excluded
fields) gives the record a new versionstamp and ends no version: it copies ``$kv.h``, with the begin as ``b``.

Rules of this module: pure, called by the write compiler alone. One commit has one time, which is never lower than that
of a version that it ends. A version is refused if the row that would end it did not fit, because its record could
never be changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.history import StoredHistory
from kvmodels.catalog.keyspace import also_prefix, history_prefix, trash_prefix
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import AtomicWrite, Check, Delete, Mutation, Row, Set
from kvmodels.errors import InvalidArgumentError, KeyTooLargeError, ValueTooLargeError
from kvmodels.indexing.entries import NeedRows, RecordChange, StoredRecord, VersionNote
from kvmodels.indexing.rules import is_expired
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, VERSION_NOTE, same_stored

BEGIN_BYTES: Final = 22
"""The packed size of a begin in a key."""

LONGEST_NOTE: Final = 200
"""Maximum bytes of an actor and of a reason."""

NOTE_BYTES: Final = 512
"""More bytes than the note of a first version adds to its document, with the longest actor and reason."""

ALSO_BYTES: Final = 32 * 1024
"""Maximum bytes of a row that lists what a removal has changed or removed with its record."""

_SPARE: Final = 1_024
"""More bytes than the end of a version adds to its document, without a new key of the record."""


class CommitMoment(NamedTuple):
    """The time of a commit, and the limits of its engine.

    Attributes:
        now_ms: the clock of the engine, read as late as possible.
        roots: for the key of each record that changes with a removal, the removal.
    """

    now_ms: int
    limits: Limits
    roots: Mapping[bytes, RecordChange] = {}


class StagedVersions(NamedTuple):
    """Changes with the documents that are stored, the further checks and mutations of the commit, and its time."""

    changes: Sequence[RecordChange]
    checks: tuple[Check, ...]
    mutations: tuple[Mutation, ...]
    time_ms: int

    def of(self, write: AtomicWrite) -> AtomicWrite:
        """Return the write of the changes with these checks and mutations."""
        return AtomicWrite((*write.checks, *self.checks), (*write.mutations, *self.mutations))


def staged(
    changes: Sequence[RecordChange], codec: ValueCodec, moment: CommitMoment, *, is_read: bool
) -> StagedVersions | NeedRows:
    """Return the changes as they are stored, with the rows of the versions that they end.

    ``is_read``: the records were read from the store in this attempt. Otherwise one of them may be the row of a
    transaction before its commit, which has no note yet, and must be read.
    """
    kept = [change for change in changes if change.live.history is not None and change.only is None]
    ended = [change for change in kept if ends_version(change, moment.now_ms)]
    unread = [change.key for change in kept if change.old is not None and not note_of(change.old_document)]
    if unread and not is_read:
        return NeedRows(frozenset(unread))
    time = max((moment.now_ms, *(int(note_of(change.old_document).get("t", 0)) for change in ended)))
    stage = _Stage(codec, moment, time, {change.key for change in ended})
    found = [stage.change(change) if change in kept else change for change in changes]
    for change in ended:
        stage.end(change)
    stage.list_changed_with(changes, ended)
    return StagedVersions(found, tuple(stage.checks), tuple(stage.mutations.values()), time)


def note_of(document: Any) -> Mapping[str, Any]:
    """Return ``$kv.h`` of a document; empty for one from before the history."""
    reserved = _item(document, RESERVED_FIELD)
    note = _item(reserved, VERSION_NOTE)
    return cast("dict[str, Any]", note) if type(note) is dict else {}


def _item(value: Any, name: str) -> Any:
    """Return an item of a map; None for any other value, or if there is no such item."""
    return cast("dict[str, Any]", value).get(name) if type(value) is dict else None


def begin_of(document: Any, versionstamp: bytes) -> str:
    """Return the begin of the version of a stored record."""
    begin = note_of(document).get("b")
    return begin if type(begin) is str else versionstamp.hex()


def without_excluded(document: Document, excluded: Iterable[str]) -> Document:
    """Return a document as a row of an ended version holds it."""
    kept = {name: value for name, value in document.items() if name not in excluded}
    if _item(kept.get(RESERVED_FIELD), COMPUTED) is not None:  # which may be made from an excluded field
        reserved = cast("dict[str, Any]", kept[RESERVED_FIELD])
        kept[RESERVED_FIELD] = {name: value for name, value in reserved.items() if name != COMPUTED}
    return kept


def is_same_version(history: StoredHistory, before: Document, after: Document) -> bool:
    """Return whether two documents differ at most in excluded fields and in what the library adds."""
    skipped = {RESERVED_FIELD, *history.exclude}
    if before.keys() - skipped != after.keys() - skipped:
        return False
    return all(name in skipped or same_stored(value, after[name]) for name, value in before.items())


def ends_version(change: RecordChange, now_ms: int) -> bool:
    """Return whether a change ends the version of the record as it was read."""
    history, old = change.live.history, change.old
    if history is None or old is None or change.old_document is None or is_expired(old, now_ms):
        return False
    if change.new_document is None:
        return True
    return change.note is not None and not is_same_version(history, change.old_document, change.new_document)


class _Stage:
    """The versions of one commit."""

    def __init__(self, codec: ValueCodec, moment: CommitMoment, time: int, ended: set[bytes]) -> None:
        self._codec = codec
        self._limits = moment.limits
        self._roots = moment.roots
        self._now_ms = moment.now_ms
        self._time = time
        self._ended = ended
        self.checks: list[Check] = []
        self.mutations: dict[bytes, Mutation] = {}

    # --- what is stored ---------------------------------------------------------------------------------------

    def change(self, change: RecordChange) -> RecordChange:
        """Return the change with the note of its version in the document."""
        note = change.note
        if change.new_document is None:
            return change if note is not None else change._replace(note=VersionNote(None, None))
        _refuse_deadline(change)
        reserved = cast("dict[str, Any] | None", change.new_document.get(RESERVED_FIELD)) or {}
        held = self._held(change)
        document = {**change.new_document, RESERVED_FIELD: {**reserved, VERSION_NOTE: held}}
        value, encoding = self._codec.encode_document(document)
        if note is None:
            note = VersionNote(None, None)
        elif note.from_key is not None:
            self._moved(change)
        elif note.trash is not None:
            self._restored(note.trash)
        note.document, note.value, note.encoding = document, value, encoding
        stored = change._replace(new_document=document, value=value, encoding=encoding, note=note)
        if change.note is not None:
            require_room(change.live, StoredRecord(change.pk, document, value, encoding), self._codec, self._limits)
        return stored

    def _held(self, change: RecordChange) -> dict[str, Any]:
        """Return the note of the version that is stored."""
        old, note = change.old, change.note
        lives = old is not None and change.old_document is not None and not is_expired(old, self._now_ms)
        if old is not None and lives and change.key not in self._ended:
            return {**note_of(change.old_document), "b": begin_of(change.old_document, old.versionstamp)}
        held: dict[str, Any] = {"t": self._time}
        if note is not None:
            held |= note.told()
            if note.from_key is not None:
                held["from"] = list(note.from_key)
        if old is not None and lives:
            held["p"] = begin_of(change.old_document, old.versionstamp)
        return held

    def _moved(self, change: RecordChange) -> None:
        """Remove the trash row of the new key of a renamed record."""
        key = trash_prefix(change.live.schema.collection) + change.pk
        self.mutations.setdefault(key, Delete(key))

    def _restored(self, trash: Row) -> None:
        """Remove the trash row of a restored record, unless another restore has taken it."""
        self.checks.append(Check(trash.key, trash.versionstamp, physical=True))
        self.mutations[trash.key] = Delete(trash.key)

    # --- the rows of ended versions ---------------------------------------------------------------------------

    def end(self, change: RecordChange) -> None:
        """Add the row of the version that a change ends; for a removal also the trash row."""
        history, old, document = change.live.history, change.old, change.old_document
        assert history is not None, "its collection has a history"
        assert old is not None, "it ends a version"
        assert document is not None, "it ends a version"
        is_gone, to = change.new_document is None, None if change.note is None else change.note.to_key
        collection, begin = change.live.schema.collection, begin_of(document, old.versionstamp)
        if is_gone and change.note is not None and change.note.forgets:
            trash = trash_prefix(collection) + change.pk
            self.mutations[trash] = Delete(trash)
            return
        deadline = None if history.keep is None else self._time + history.keep
        if is_gone or history.keeps_updates:
            key = history_prefix(collection) + change.pk + encode_key((begin,))
            row = ended_row(history, document, self._end(change), gone=is_gone, to=to if is_gone else None, x=deadline)
            self.mutations[key] = Set(key, *self._codec.encode_document(row), deadline)
        trash = trash_prefix(collection) + change.pk
        if is_gone and to is not None:
            self.mutations.setdefault(trash, Delete(trash))
        elif is_gone:
            value = {"begin": begin} if deadline is None else {"begin": begin, "x": deadline}
            self.mutations[trash] = Set(trash, *self._codec.encode_document(value), deadline)

    def _end(self, change: RecordChange) -> dict[str, Any]:
        return {"t": self._time, **({} if change.note is None else change.note.told())}

    def list_changed_with(self, changes: Sequence[RecordChange], ended: Sequence[RecordChange]) -> None:
        """Add the lists of what removals have changed or removed with their records."""
        removals = {
            change.key: change
            for change in ended
            if change.new_document is None and not (change.note is not None and change.note.forgets)
        }
        lists: dict[bytes, list[list[Any]]] = {}
        for change in changes:
            root = self._roots.get(change.key)
            if root is not None and root.key in removals and change.old is not None and change.key != root.key:
                lists.setdefault(root.key, []).extend(self._listed(change))
        for key, listed in lists.items():
            self._list(removals[key], listed)

    def _listed(self, change: RecordChange) -> Iterable[list[Any]]:
        assert change.old is not None, "it changes with the removal of another record"
        begin = begin_of(change.old_document, change.old.versionstamp)
        place = [change.live.schema.collection, list(decode_key(change.pk)), begin]
        if change.new_document is None:
            return [[*place, "gone"]] if change.live.history is not None else []
        before = change.old_document or {}
        after = change.new_document
        names = [index.definition.fields[0] for index in change.live.maintained if index.definition.reference]
        return [[*place, name] for name in dict.fromkeys(names) if before.get(name) is not None and after[name] is None]

    def _list(self, removal: RecordChange, listed: Sequence[list[Any]]) -> None:
        history, old = removal.live.history, removal.old
        assert history is not None, "its removal has a row"
        assert old is not None, "its removal has a row"
        deadline = None if history.keep is None else self._time + history.keep
        begin = begin_of(removal.old_document, old.versionstamp)
        prefix = also_prefix(removal.live.schema.collection) + removal.pk + encode_key((begin,))
        for number, part in enumerate(self._parts(listed)):
            key = prefix + encode_key((number,))
            value = {"also": part} if deadline is None else {"also": part, "x": deadline}
            self.mutations[key] = Set(key, *self._codec.encode_document(value), deadline)

    def _parts(self, listed: Sequence[list[Any]]) -> Iterable[list[list[Any]]]:
        part: list[list[Any]] = []
        size = 0
        for one in listed:
            one_size = len(self._codec.encode(one)[0])
            if part and size + one_size > ALSO_BYTES - _SPARE:
                yield part
                part, size = [], 0
            part.append(one)
            size += one_size
        if part:
            yield part


def require_room(live: LiveCollection, record: StoredRecord, codec: ValueCodec, limits: Limits) -> None:
    """Refuse a version if the row that would end it did not fit. Raises LimitExceededError with the limit."""
    pk, document, value, *_ = record
    key = history_prefix(live.schema.collection) + pk
    if len(key) + BEGIN_BYTES > limits.max_key_bytes:
        raise KeyTooLargeError(
            "a key is too large for the history of its record",
            limit="max_key_bytes",
            size=len(key) + BEGIN_BYTES,
            maximum=limits.max_key_bytes,
            limits=limits.whose("max_key_bytes"),
            key=decode_key(live.layout.key(pk)),
            index=None,
            field=None,
            hint="An ended version has a key of 45 bytes more than its record: use a shorter primary key.",
        )
    size = len(value) + _SPARE + 2 * len(pk)
    if size > limits.max_value_bytes:  # which may only be the estimate
        size = _full_size(live, pk, document, codec)
    if size > limits.max_value_bytes:
        raise ValueTooLargeError(
            "a record is too large for its history",
            limit="max_value_bytes",
            size=size,
            maximum=limits.max_value_bytes,
            limits=limits.whose("max_value_bytes"),
            key=decode_key(live.layout.key(pk)),
            index=None,
            hint="The row of an ended version holds its document and who ended it. Store less in the record, or "
            "exclude a large field: History(exclude=...).",
        )


def _full_size(live: LiveCollection, pk: bytes, document: Document, codec: ValueCodec) -> int:
    """Return the size of the row that ends a version, if it is renamed with the longest note, and rewritten."""
    assert live.history is not None, "its collection has a history"
    longest, large = "x" * LONGEST_NOTE, 1 << 47
    end = {"t": large, "by": longest, "why": longest}
    row = ended_row(live.history, document, end, gone=True, to=decode_key(pk), x=large)
    return len(codec.encode_document({**row, "s": "0" * 20})[0])


def ended_row(
    history: StoredHistory, document: Document, end: Mapping[str, Any], *, gone: bool, to: Any, x: int | None
) -> dict[str, Any]:
    """Return the value of the row of an ended version."""
    row: dict[str, Any] = {"doc": without_excluded(document, history.exclude), "end": dict(end)}
    if gone:
        row["gone"] = True
    if to is not None:
        row["to"] = list(to)
    if x is not None:
        row["x"] = x
    return row


def _refuse_deadline(change: RecordChange) -> None:
    """Refuse a deadline that a record of a collection with a history did not have."""
    if change.expire_at is None or (change.old is not None and change.old.expire_at == change.expire_at):
        return
    raise InvalidArgumentError(
        "a record of a collection with a history cannot expire",
        argument="expire_in",
        value=change.live.schema.collection,
        hint="Nothing runs when a record expires, so its last version would be lost: leave expire_in out.",
    )
