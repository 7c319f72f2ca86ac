"""Load rows of histories from a dump of ``db.dump(history=True)`` into a store that is in use.

A dump has these rows before the records. They are taken only for keys that have neither a record nor a version, so that
the versions of two stores are never mixed; the others are counted. A load that was interrupted has stored the first
rows of a key, so a key whose first version is that of the dump is taken again.

Encrypted fields are sealed again under the key that the header names, so no key is in use that the header does not
list. A value that cannot be opened is refused before anything is written.

Rules of this module: a row that exists is never written again, because its versionstamp is the end of a version. The
records, the rows and the header are checked in the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import RESERVED, also_prefix, history_prefix, trash_prefix
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import DecryptionError
from kvmodels.flows.context import (
    Context,
    HeaderView,
    ask_for_keys_of,
    header_view,
    reload_header,
    writable_collection,
)
from kvmodels.flows.effects import Flow, commit, now, read_all
from kvmodels.flows.hydration.rows import listed_form, require_sealed
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.rules import header_check
from kvmodels.schema.definition.definition import Document

_ROWS_AT_ONCE: Final = 16
_BYTES_AT_ONCE: Final = 256 * 1024
_RESERVED_PREFIX: Final = encode_key((RESERVED,))


def is_version(row: Set) -> bool:
    """Return whether a key of a dump is that of a history row; a load takes no other keys of the library."""
    return row.key.startswith(_RESERVED_PREFIX)


class _Owned(NamedTuple):
    """A row of a dump, and where its record and its versions are.

    Attributes:
        row: the row.
        kind: ``history``, ``trash`` or ``also``.
        collection: the collection of the record.
        pk: its packed primary key.
    """

    row: Set
    kind: str
    collection: str
    pk: bytes


class VersionLoading:
    """One load of old versions.

    Attributes:
        taken: the number of rows that were stored.
        left_out: the number of rows that were not, because their key has a record or other versions, or the collection
            has no history in this store.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._decided: tuple[str, bytes] | None = None
        self._is_taken = False
        self.taken = self.left_out = 0

    def examine(self, row: Set) -> Flow[None]:
        """Check that a row of a history, or a key of no model, can be stored, without a write.

        Raises OperationTooLargeError; SchemaMismatchError: this process must not write to the collection;
        DecryptionError: an encrypted field cannot be opened, or has a plain value.
        """
        check_budget(AtomicWrite((), (row,)), self._context.limits)
        if not is_version(row):
            return
        one = _owned(row)
        view = yield from header_view(self._context)
        if one.kind != "history" or view.live[one.collection].history is None:
            return
        schema = self._context.schemas[one.collection]
        _, live = yield from writable_collection(self._context, schema)
        document = self._value(one).get("doc")
        if type(document) is dict:
            yield from ask_for_keys_of(schema, cast("Document", document))
            self._listed(live, one)

    def store(self, rows: Sequence[Set]) -> Flow[None]:
        """Write the next rows of the dump, as far as they are taken."""
        if not rows:
            return
        now_ms = yield from now()
        alive = [_owned(row) for row in rows if row.expire_at is None or row.expire_at > now_ms]
        for batch in _batches(alive):
            while not (yield from self._stored(batch)):
                yield from reload_header(self._context)

    def _stored(self, batch: Sequence[_Owned]) -> Flow[bool]:
        """Write some rows; return whether the store was still as they were chosen for."""
        view, before = (yield from header_view(self._context)), (self._decided, self._is_taken)
        chosen = yield from self._chosen(view, batch)
        records = {_record_key(view, one): None for one in chosen}
        checks = (*(Check(key, None) for key in records), *(Check(one.row.key, None) for one in chosen))
        header = header_check(view.guard)
        if chosen and header is not None:
            rows = tuple(self._listed(view.live[one.collection], one) for one in chosen)
            outcome = yield from commit(AtomicWrite((header, *checks), rows))
            if not isinstance(outcome, Committed):
                self._decided, self._is_taken = before
                return False
        self.taken += len(chosen)
        self.left_out += len(batch) - len(chosen)
        return True

    def _chosen(self, view: HeaderView, batch: Sequence[_Owned]) -> Flow[list[_Owned]]:
        """Return the rows of keys that are taken, without those that exist."""
        known = [one for one in batch if view.live[one.collection].history is not None]
        ranges = [part for one in known for part in self._read_for(view, one)]
        found = yield from read_all(self._context.limits, ranges)
        seen = found or []
        chosen: list[_Owned] = []
        for at, one in enumerate(known):
            record, row, others = seen[3 * at : 3 * at + 3]
            if one.kind == "history":
                takes = self._takes_key(view.live[one.collection], one, record, others)
            else:
                takes = not record and bool(others)
            if takes and not row:
                chosen.append(one)
        return chosen

    def _read_for(self, view: HeaderView, one: _Owned) -> tuple[ReadRange, ReadRange, ReadRange]:
        """Return the ranges of the record, of the row itself, and of what decides whether the row is taken."""
        versions = history_prefix(one.collection) + one.pk
        if one.kind == "history":
            others = ReadRange(versions, after_prefix(versions), 1)
        else:
            others = point(versions + encode_key((self._begin(one),)))
        return point(_record_key(view, one)), point(one.row.key), others

    def _takes_key(self, live: LiveCollection, one: _Owned, record: Sequence[Row], first: Sequence[Row]) -> bool:
        """Return whether the versions of a key are taken, which its first row in the dump decides."""
        owner = (one.collection, one.pk)
        if self._decided != owner:
            self._decided = owner
            self._is_taken = not first or self._is_same(live, one, first[0])
        return self._is_taken and not record

    def _is_same(self, live: LiveCollection, one: _Owned, stored: Row) -> bool:
        """Return whether a stored row is that of the dump; its values may be sealed again."""
        if stored.key != one.row.key:
            return False
        if stored.value == one.row.value or live.schema.sealer is None:
            return stored.value == one.row.value
        try:
            return self._opened(live, one) == self._opened(live, one._replace(row=Set(*stored[:3])))
        except DecryptionError:
            return False

    def _opened(self, live: LiveCollection, one: _Owned) -> tuple[bytes, int]:
        """Return the value of a row with all fields opened. Raises DecryptionError."""
        value = {name: item for name, item in self._value(one).items() if name != "s"}
        document = value.get("doc")
        if type(document) is dict:
            value["doc"] = live.schema.sealer.opened(document, live.layout.unpack(one.pk))
        return self._context.codec.encode_document(value)

    def _listed(self, live: LiveCollection, one: _Owned) -> Set:
        """Return a row with its fields as the header lists them; see ``listed_form``."""
        if one.kind != "history":
            return one.row
        value = self._value(one)
        document = value.get("doc")
        if type(document) is not dict:
            return one.row
        held, key = cast("Document", document), live.layout.unpack(one.pk)
        require_sealed(live, held, key)
        made = listed_form(live, held, key)
        if made is held:
            return one.row
        return Set(one.row.key, *self._context.codec.encode_document({**value, "doc": made}), one.row.expire_at)

    def _value(self, one: _Owned) -> Document:
        return self._context.codec.decode_document(one.row.value, one.row.encoding, one.row.key)

    def _begin(self, one: _Owned) -> Any:
        """Return the begin of the version that a row names which is no version itself."""
        if one.kind == "also":
            return decode_key(one.row.key)[-2]
        return self._value(one)["begin"]


def _owned(row: Set) -> _Owned:
    _, kind, collection, *rest = decode_key(row.key)
    assert isinstance(kind, str)
    assert isinstance(collection, str)
    prefix = {"history": history_prefix, "trash": trash_prefix, "also": also_prefix}[kind](collection)
    own = {"history": 1, "trash": 0, "also": 2}[kind]
    end = len(row.key) - len(encode_key(tuple(rest[len(rest) - own :])))
    return _Owned(row, kind, collection, row.key[len(prefix) : end])


def _record_key(view: HeaderView, one: _Owned) -> bytes:
    return view.live[one.collection].layout.key(one.pk)


def _batches(rows: Sequence[_Owned]) -> Iterator[list[_Owned]]:
    """Yield rows for one commit each, of one kind: other rows are taken if the version that they name is stored."""
    batch, size = list[_Owned](), 0
    for one in rows:
        added = 4 * len(one.row.key) + len(one.row.value)
        is_full = len(batch) == _ROWS_AT_ONCE or size + added > _BYTES_AT_ONCE
        if batch and (is_full or one.kind != batch[0].kind):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += added
    if batch:
        yield batch
