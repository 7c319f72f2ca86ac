"""Dump a store as lines of JSON from one snapshot, and load such lines into an empty store.

    {"kvmodels_dump": 1, "codec": "msgpack", "versionstamp": "…"}       the first line
    {"key": ["users", 1], "document": {…}}                              a record, or a copy of one in an index
    {"key": ["hits"], "value": {"$u64": "7"}, "expires_at": 1767225600000}
    {"end": {"keys": 2}}                                                the last line, which shows that none is missing

The catalogue of models comes before the other keys, which are in key order. Versionstamps are omitted, because they
would have no meaning in another store. ``kvmodels.codecs.typed_json`` defines the forms of keys and values.

During a load, the key of the catalogue holds the token of the load. Every commit of the load checks it, so that two
loads never mix and a late delivery is refused. Models cannot be used, because every write of a record checks the
catalogue. The last commit replaces the token with the catalogue of the dump. A killed load leaves its token in the
store: the next load refuses to begin, unless it is told to remove the existing keys.

Rules of this module: no I/O; the lines are an exact function of the snapshot of the caller. ``take`` is pure; memory
holds one batch. Index entries are copied unchanged, except entries with a copy of a record or of its fields. These are
computed from the record like in any write, because the codec of the dump may store a value in other bytes, and are
written in its commit, so that both have one versionstamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvmodels.catalog.catalogue import LOADING, Header, loading_value, stored_entry_layout
from kvmodels.catalog.keyspace import (
    HEADER_KEY,
    QUEUE,
    REFERENCES,
    TENANT_ROWS,
    RecordLayout,
    belongs_to_a_change,
    counted_by,
    is_of_tenants,
)
from kvmodels.catalog.unknown import unknown_description
from kvmodels.codecs.typed_json import is_graph_form, key_from_json, key_to_json, value_from_json, value_to_json
from kvmodels.core.keys import Key, encode_key, key_successor
from kvmodels.core.lineage import LINEAGE_KEY
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Row,
    Set,
    after_prefix,
    format_versionstamp,
    point,
)
from kvmodels.errors import DecodeError, EngineError, UnsupportedError
from kvmodels.flows.effects import Flow, commit, read
from kvmodels.flows.kv.dump_frame import (
    DUMP_FORMAT,
    DUMP_MARK,
    DumpFrame,
    document_content,
    document_in,
    dump_line,
)
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.references import ReferenceScan, dangling_dump
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import KindMaintenance
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.indexing.loaded_versions import history_of, loaded_document, loaded_row
from kvmodels.limits import Limits

FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024


def document_owners(header: Header) -> Mapping[str, str]:
    """Return the first key parts whose values are documents, with their collections: records, and copies."""
    owners = {name: name for name in header.collections}
    for collection in header.collections.values():
        for index in collection.indexes:
            if index.signature.get("store") == "record":
                owners[index.prefix(collection.name)] = collection.name
    return owners


class Dumping:
    """One dump: ``rows`` reads the next rows of the snapshot, ``lines`` converts them to text."""

    def __init__(self, form: StoreFormat, batch: int = FIRST_BATCH) -> None:
        self.keys: int = 0
        self._form = form
        self._header: Header | None = None
        self._owners: Mapping[str, str] = {}
        self.header_key = form.root + HEADER_KEY
        self._lineage_key = form.root + LINEAGE_KEY
        self._references = form.root + REFERENCES
        self._ranges = [(key_successor(form.root), after_prefix(form.root))]
        self._batch = batch

    def begin(self) -> Flow[list[str]]:
        """Return the first lines: the format, and the catalogue if there is one."""
        tenants = ReadRange(self._form.root + TENANT_ROWS, after_prefix(self._form.root + TENANT_ROWS), 1)
        found = yield from read([point(self.header_key), tenants])
        if found.ranges[1]:
            raise _refused_tenants("a store with tenants cannot be dumped as a whole")
        mark = {
            DUMP_MARK: DUMP_FORMAT,
            "codec": self._form.codec.name,
            "versionstamp": format_versionstamp(found.versionstamp),
        }
        return [dump_line(mark), *self.head(found.ranges[0])]

    def head(self, rows: Sequence[Row]) -> list[str]:
        """Return the line of the catalogue if there is one, which says how the keys that follow are dumped."""
        if rows:
            entry = self._form.entry(rows[0])
            self._header = Header.from_value(entry.value, entry.key)
            self._owners = document_owners(self._header)
        return [*map(self._line_of, rows)]

    def rows(self, limits: Limits) -> Flow[Sequence[Row]]:
        """Return the next rows, about 4 MiB judging by the last ones, empty at the end; one request for each range."""
        while self._ranges:
            start, end = self._ranges[0]
            found = yield from read([ReadRange(start, end, min(self._batch, limits.max_read_entries))])
            rows = found.ranges[0]
            if rows:
                self._ranges[0] = key_successor(rows[-1].key), end
                average = sum(len(row.key) + len(row.value) for row in rows) // len(rows) + 1
                self._batch = max(1, min(LARGEST_BATCH, 4 * self._batch, BATCH_BYTES // average))
                return rows
            del self._ranges[0]
        return ()

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the lines for rows, one at a time, because a line may be large. Raises DecodeError.

        Guards and anchors of foreign keys are left out: only their versionstamps matter, which a dump does not keep. A
        copy of the store gets a lineage of its own.
        """
        for row in rows:
            if row.key not in (self.header_key, self._lineage_key) and not row.key.startswith(self._references):
                yield self._line_of(row)

    def end(self) -> Sequence[str]:
        """Return the last lines."""
        return [dump_line({"end": {"keys": self.keys}})]

    def _line_of(self, row: Row) -> str:
        key = self._form.entry_without_value(row).key
        self.keys += 1
        return dump_line({"key": key_to_json(key), **self._value(row, key)}, row.expire_at)

    def _value(self, row: Row, key: Key) -> dict[str, Any]:
        codec = self._form.codec
        if type(key[0]) is str and key[0] in self._owners:
            try:
                content = document_content(codec.decode_document(row.value, row.encoding, row.key))
            except DecodeError:
                content = {}  # foreign to the collection; if it is not a value either, the error is raised below
            # A document with shared containers was not written by this library; it is dumped exactly as it is.
            if content and not any(map(is_graph_form, content.values())):
                return content
        decode = codec.decode if history_of(key) is None else codec.decode_document
        return {"value": value_to_json(decode(row.value, row.encoding, row.key))}


COMMIT_MUTATIONS: Final = 1_000
COMMIT_BYTES: Final = 1024 * 1024
REMOVED_AT_ONCE: Final = 200

DAMAGED: Final = "The file is damaged, cut off, or no dump of kv.dump(). Nothing of it was kept."


def _refused_tenants(message: str) -> UnsupportedError:
    return UnsupportedError(
        message,
        reason="tenants",
        hint="Copy each tenant: db.tenant(name).kv.dump(file) and load(file). kv.backup(path) copies the whole store.",
    )


def _is_cut_off(value: Any) -> bool:
    """Return whether this is the catalogue of a store with an unfinished load."""
    return type(value) is dict and LOADING in value


class _Copies(NamedTuple):
    """A collection with indexes that contain copies of its records, or of their fields."""

    prefix: bytes
    indexes: Sequence[KindMaintenance]


class Loading:
    """One load: ``begin``, then ``take`` and ``store`` for each line in order, then ``finish``; or ``abandon``."""

    def __init__(self, form: StoreFormat, limits: Limits, token: str) -> None:
        self.written: int = 0
        self._form = form
        self._limits = limits
        self._token = token
        self._guard: Check | None = None
        self._header_key = form.root + HEADER_KEY
        self._before: dict[str, Any] | None = None
        self._header: Header | None = None
        self._skipped: set[str] = set()
        self._kept: set[Any] = set()
        self._counting: set[tuple[str, str, int]] = set()
        self._copies: dict[str, _Copies] = {}
        self._frame = DumpFrame((DUMP_FORMAT,), DAMAGED)
        self._first_key = 1

    # -- the store

    def begin(self, *, restart: bool) -> Flow[None]:
        """Write the token into a store that is empty, or contains only a catalogue without records."""
        found = yield from read([point(self._header_key), self._everything(3)])
        header, some = found.ranges
        value: Any = self._form.entry(header[0]).value if header else None
        cut_off = _is_cut_off(value)
        if cut_off and not restart:
            raise EngineError(
                "a dump is being loaded into this store, or a load was interrupted",
                hint="Wait for the load. If it was interrupted, load with restart=True, which first removes its keys.",
            )
        own = (self._header_key, self._form.root + LINEAGE_KEY)
        if not cut_off and any(row.key not in own for row in some):
            raise EngineError(
                "a dump can be loaded into an empty store only",
                reason="the store holds other keys",
                hint="Load into a new store. db.load(file) loads a dump into a store that is in use.",
            )
        self._before = value["before"] if cut_off else value
        if self._before is not None:
            Header.from_value(self._before, ("__kvmodels__", "header"))  # refuses one that this release does not know
        yield from self._mark(header)
        if cut_off:
            yield from self._remove()

    def _mark(self, header: Sequence[Row]) -> Flow[None]:
        check = Check(self._header_key, header[0].versionstamp if header else None, physical=True)
        outcome = yield from commit(AtomicWrite((check,), (self._token_mutation(),)))
        if isinstance(outcome, Conflict):
            raise self._overtaken()
        self._guard = Check(self._header_key, outcome.versionstamp, physical=True)

    def _token_mutation(self) -> Set:
        return Set(self._header_key, *self._form.codec.encode(loading_value(self._token, self._before)))

    def store(self, mutations: tuple[Mutation, ...]) -> Flow[None]:
        """Commit one group of mutations of ``take``. Raises EngineError if another load has taken over the store."""
        assert self._guard is not None, "the load has begun"
        if isinstance((yield from commit(AtomicWrite((self._guard,), mutations))), Conflict):
            self._guard = None
            raise self._overtaken()

    def finish(self) -> Flow[int]:
        """Replace the token with the catalogue of the dump; return the number of keys written."""
        self._frame.end()
        if self._header is not None:
            scan = ReferenceScan(self._form.codec, self._header, self._limits, root=self._form.root)
            found = yield from scan.dangling()
            if found:
                raise dangling_dump(found)
        yield from self.store((self._final_header(), Delete(self._form.root + LINEAGE_KEY)))
        self._guard = None
        return self.written + (self._header is not None)

    def abandon(self) -> Flow[None]:
        """Remove the keys of this load, and its token; no effect if another load has taken over.

        First it writes the token again, so that a pending commit of this load is refused from here on, especially the
        last one. Raises EngineError if the catalogue was written meanwhile, by another load or by a late commit of this
        one.
        """
        found = yield from read([point(self._header_key)])
        for row in found.ranges[0]:
            value: Any = self._form.entry(row).value
            if _is_cut_off(value) and value[LOADING] == self._token:
                yield from self._mark([row])
                yield from self._remove()
                yield from self.store((self._header_mutation(self._before),))

    def _remove(self) -> Flow[None]:
        while True:
            found = yield from read([self._everything(REMOVED_AT_ONCE)], include_expired=True)
            keys = [row.key for row in found.ranges[0] if row.key != self._header_key]
            if not keys:
                return
            wanted = min(REMOVED_AT_ONCE, self._limits.max_mutations)
            removals = self._removals(keys)
            for at in range(0, len(removals), wanted):
                yield from self.store(tuple(removals[at : at + wanted]))

    def _removals(self, keys: Sequence[bytes]) -> list[Delete]:
        return [*map(Delete, keys)]

    def _everything(self, limit: int) -> ReadRange:
        return ReadRange(key_successor(self._form.root), after_prefix(self._form.root), limit, keys_only=True)

    def _final_header(self) -> Mutation:
        """Return the catalogue of the dump, with the empty collections that the store already listed."""
        before = None if self._before is None else Header.from_value(self._before, ("__kvmodels__", "header"))
        if self._header is None or before is None:
            return self._header_mutation(self._before if self._header is None else self._header.to_value())
        owners, merged = before.prefixes(), {**before.collections, **self._header.collections}
        for part, owner in self._header.prefixes().items():
            if owners.get(part, owner) != owner:
                raise EngineError(
                    "a collection of the store and one of the dump would share keys",
                    reason=f"{owner} and {owners[part]}: {part}",
                    hint="Load into a new store, and rename one of the collections or indexes.",
                )
        return self._header_mutation(Header(merged).to_value())

    def _header_mutation(self, value: dict[str, Any] | None) -> Mutation:
        return Delete(self._header_key) if value is None else self._header_set(value)

    def _header_set(self, value: Mapping[str, Any]) -> Set:
        return Set(self._header_key, *self._form.codec.encode(value))

    def _overtaken(self) -> EngineError:
        return EngineError(
            "another load has taken over the store",
            hint="Let one process load; nothing else may write to the store meanwhile.",
        )

    # -- the lines

    def take(self, lines: Sequence[str | bytes]) -> list[tuple[Mutation, ...]]:
        """Return the mutations of the next lines, one group per commit; pure."""
        commits: list[tuple[Mutation, ...]] = []
        pending: list[Mutation] = []
        size = key_size = 0
        limits = self._limits
        guard = len(self._header_key)
        messages = self._form.root + QUEUE
        count = 0
        for line in lines:
            group = self._group(line)
            # In a tenant, each message is announced by a second mutation.
            group_count = len(group) + (len(group) == 1 and group[0].key.startswith(messages))
            group_keys = sum(len(mutation.key) for mutation in group)
            group_size = 2 * group_keys + sum(len(mutation.value) for mutation in group)
            if pending and (
                count + group_count > min(COMMIT_MUTATIONS, limits.max_mutations)
                or guard + size + group_size > min(COMMIT_BYTES, limits.max_operation_bytes)
                or key_size + group_keys > limits.max_operation_key_bytes
            ):
                commits.append(tuple(pending))
                pending, count, size, key_size = [], 0, 0, 0
            pending += group
            count, size, key_size = count + group_count, size + group_size, key_size + group_keys
        if pending:
            commits.append(tuple(pending))
        return commits

    def _group(self, line: str | bytes) -> list[Set]:
        """Return the mutations of one line, which are committed together."""
        self._frame.number += 1
        with self._frame:
            group = self._read(line)
            check_budget(AtomicWrite((), tuple(group)), self._limits)
        self.written += len(group)
        return group

    def _read(self, line: str | bytes) -> list[Set]:
        """Return the keys that one line sets; none for the first and the last line. Raises ValueError."""
        content = self._frame.content(line)
        return [] if content is None else self._sets(content)

    def _sets(self, content: Mapping[str, Any]) -> list[Set]:
        key = key_from_json(content["key"])
        deadline = content.get("expires_at")
        names = content.keys() - {"key", "expires_at"}
        is_document = "document" in content
        known = names <= {"document", "library"} if is_document else names == {"value"}
        if not known or not key or type(deadline) not in (int, type(None)):
            raise ValueError("not a key with one value")
        codec = self._form.codec
        encode = codec.encode_document if is_document else codec.encode
        value = document_in(content) if is_document else value_from_json(content["value"])
        owner = history_of(key)
        if owner is not None:
            if owner not in self._kept:
                return []
            key, value = loaded_row(key, value)
            encode = codec.encode_document
        elif is_document and key[0] in self._kept:
            value = loaded_document(value)
        packed = self._form.root + encode_key(key)
        if is_of_tenants(key):
            raise _refused_tenants("a dump with tenants cannot be loaded")
        if packed == self._header_key:
            self._take_header(value, key)
            return []
        if belongs_to_a_change(key) or (type(key[0]) is str and key[0] in self._skipped):
            return []
        index = counted_by(key)
        if index is not None and index not in self._counting:
            return []
        self._form.check_key_runes(packed, self._limits)
        stored = Set(packed, *encode(value), deadline)
        return [stored, *self._copies_of(key, stored)]

    def _take_header(self, value: Any, key: Key) -> None:
        if self._frame.keys != self._first_key:
            raise ValueError("the catalogue after other keys")
        whole = Header.from_value(value, key)
        self._require_known(whole)
        header, unfinished = whole.without_unfinished()
        self._header, self._skipped = header, {*unfinished}
        self._kept = {name for name, one in header.collections.items() if one.history is not None}
        for collection in header.collections.values():
            copying: list[KindMaintenance] = []
            for index in collection.indexes:
                # For an incomplete index, counters are omitted like the fence, because versionstamps show which records
                # are counted.
                self._counting.add((collection.name, index.name, index.generation))
                if index.copies:
                    # Copies are written with their record, not at their position in the dump.
                    self._skipped.add(index.prefix(collection.name))
                    copying.append(maintenance_for(stored_entry_layout(collection, index)))
            if copying:
                self._copies[collection.name] = _Copies(RecordLayout(collection.name, ()).prefix, copying)

    def _require_known(self, header: Header) -> None:
        """Refuse a catalogue of a newer release, whose rows this one cannot make complete.

        An unknown section of a collection of the same name in this store would be lost.
        """
        before = None if self._before is None else Header.from_value(self._before, ("__kvmodels__", "header"))
        for collection in header.collections.values():
            replaced = None if before is None else before.collections.get(collection.name)
            for owner, one in ((header, collection), (before, replaced)):
                error = None if owner is None or one is None else unknown_description(owner, one)
                if error is not None:
                    raise error

    def _copies_of(self, key: Key, record: Set) -> list[Set]:
        copies = self._copies.get(key[0]) if type(key[0]) is str else None
        if copies is None:
            return []
        root = self._form.root
        document = self._form.codec.decode_document(record.value, record.encoding, record.key)
        pk = record.key[len(root) + len(copies.prefix) :]
        stored = StoredRecord(pk, document, record.value, record.encoding)
        return [
            Set(root + key, *copy, record.expire_at)
            for index in copies.indexes
            for key, copy in index.contents(stored, self._form.codec).entries.items()
        ]
