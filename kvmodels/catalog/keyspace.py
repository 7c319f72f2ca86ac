"""The layout of all keys: records, index entries, header, fences, builds, violations, tokens.

The layout is a promise (``docs/concepts/layout.md`` has the table, ``tests/golden`` the bytes):

    (collection, *pk)                                     record
    (collection_by_index[~generation], *columns)          unique slot
    (collection_by_index[~generation], *columns, *pk)     non-unique entry, or a unique row with None in a column
    ("__kvmodels__", "header")                            catalogue and states of all indexes
    ("__kvmodels__", "fence", collection, index, n)       its versionstamp is the fence of an online build
    ("__kvmodels__", "build", collection, index, n)       progress of an online build
    ("__kvmodels__", "drop", collection, index, n)        progress of removing the entries of an index
    ("__kvmodels__", "counter", collection, index, n, *group, kind)  a counter of an aggregate index
    ("__kvmodels__", "counter", collection, index, n, *group, shard, kind)  a statistic of a search index
    ("__kvmodels__", "counter", collection, index, n, *group, level, digits)  the number of records in a bucket
    ("__kvmodels__", "violation", collection, index, n, slot, *pk)   a record that the index cannot hold
    ("__kvmodels__", "migration", collection)             progress of a migration
    ("__kvmodels__", "unmigrated", collection, *pk)       a record that a migration cannot rewrite
    ("__kvmodels__", "bulk", resume_id)                   progress, then result, of a bulk write that can be resumed
    ("__kvmodels__", "bulk", resume_id, run, "key", *pk)  a record that it has still to deal with
    ("__kvmodels__", "bulk", resume_id, run, "failed", *pk)  a record that it could not write
    ("__kvmodels__", "keys", collection)                  the next primary key to give out
    ("__kvmodels__", "history", collection, *pk, begin)   a version of a record that has ended
    ("__kvmodels__", "trash", collection, *pk)            names the last version of a removed record
    ("__kvmodels__", "also", collection, *pk, begin, n)   the records that a removal has changed or removed with it
    ("__kvmodels__", "blob", blob_id, n)                  chunk n of the content of a blob
    ("__kvmodels__", "loose", blob_id)                    a blob that no record has, and when it may be removed
    ("__kvmodels__", "token", token)                      the outcome of one logical operation
    ("__kvmodels__", "ref", collection, "guard", *pk)     its versionstamp is that of the last new reference to a record
    ("__kvmodels__", "ref", collection, "anchor", *pk)    stands for a record that is referred to and changes often
    ("__kvmodels__", "lineage")                           names the history of the store, for positions of change feeds
    ("__kvmodels__", "tenants", name)                     state and id of a tenant
    ("__kvmodels__", "tenant", name, *key)                a key of a tenant, which has the layout of a whole store
    ("__kvmodels__", "announced", ready_ms, id, name)     announces a message in the queue of a tenant

Rules of this module: no other module builds or parses keys of models; all keys are packed bytes. A unique slot and a
row with None share a prefix; the number of parts distinguishes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from inspect import unwrap
from typing import Any, ClassVar, NamedTuple

from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.codecs.columns.scalars import STR, text_packer
from kvmodels.core.keys import decode_key, encode_key, encode_part, skip_parts
from kvmodels.core.lineage import TENANT_PARTS
from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError
from kvmodels.schema.definition.definition import Column, Document, IndexDefinition, PartialCondition, SpanTest
from kvmodels.schema.definition.values import reader, reader_of

FORMAT = 1
"""The number of the layout and of the record bytes; it changes only together with code that reads the older layout."""

FORMAT_WITH_REFERENCES = 2
"""Number of the layout of a store with a foreign key, which releases that do not enforce it must not write."""

RESERVED = "__kvmodels__"
"""The first part of every key that belongs to the library itself."""

HEADER_KEY = encode_key((RESERVED, "header"))

TENANT_ROWS = encode_key((RESERVED, "tenants"))
"""The common prefix of the rows of tenants; the name follows."""

QUEUE = encode_key((RESERVED, "queue"))
"""The common prefix of the messages of a queue, in a tenant as in the store; the rest is ``(ready_ms, id)``."""

ANNOUNCED = encode_key((RESERVED, "announced"))
"""The common prefix of the rows that announce messages of tenants; the rest of the message's key and the name follow.

Such a row exists as long as the message does. So they are the messages of all tenants in the order of time.
"""

REFERENCES = encode_key((RESERVED, "ref"))
"""The common prefix of all guards and anchors of foreign keys, which a copy of the store does not need."""

CHUNKS = encode_key((RESERVED, "blob"))
"""The common prefix of the chunks of all blobs; the id and the number follow."""

LOOSE_BLOBS = encode_key((RESERVED, "loose"))
"""The common prefix of the rows of blobs that no record has; the id follows."""

SLOT_SHOWN_BYTES = 300
"""The maximum size of slot and primary key together in a violation row; beyond, the row omits the slot.

It is the same on every engine, because a process computes the key again to remove the row. With the names of collection
and index it fits the 511 bytes that LMDB allows.
"""


def index_prefix(collection: str, index: str, generation: int) -> str:
    """Return the first part of every entry key of one generation of an index, named as in the Deno documentation."""
    name = f"{collection}_by_{index}"
    return name if generation == 1 else f"{name}~{generation}"


def fence_key(collection: str, index: str, generation: int) -> bytes:
    """Return the key whose versionstamp is the fence: writers maintain the entries of records last written after it."""
    return encode_key((RESERVED, "fence", collection, index, generation))


def build_key(collection: str, index: str, generation: int) -> bytes:
    """Return the key with the progress of an online build; every batch checks and sets it."""
    return encode_key((RESERVED, "build", collection, index, generation))


def build_prefix(collection: str) -> bytes:
    """Return the common prefix of the progress of all builds of a collection, and of its rotation of keys."""
    return encode_key((RESERVED, "build", collection))


def drop_key(collection: str, index: str, generation: int) -> bytes:
    """Return the key with the progress of removing the entries of an index."""
    return encode_key((RESERVED, "drop", collection, index, generation))


def counter_prefix(collection: str, index: str, generation: int) -> bytes:
    """Return the common prefix of the counters of one generation of an index."""
    return encode_key((RESERVED, "counter", collection, index, generation))


def counted_by(key: tuple[Any, ...]) -> tuple[str, str, int] | None:
    """Return collection, index and generation of a counter; None for every other key."""
    if key[:2] != (RESERVED, "counter") or len(key) < 6:
        return None
    collection, index, generation = key[2:5]
    return collection, index, generation


def reference_guards(collection: str) -> bytes:
    """Return the common prefix of the guards of the records of a collection; the primary key follows.

    A guard exists for each record that was ever referred to, and is removed with the record.
    """
    return encode_key((RESERVED, "ref", collection, "guard"))


def reference_anchors(collection: str) -> bytes:
    """Return the common prefix of the anchors of the records of a collection; the primary key follows.

    An anchor says that its record exists. It is checked in place of a record that changes often.
    """
    return encode_key((RESERVED, "ref", collection, "anchor"))


_COUNTERS = encode_key((RESERVED, "counter"))


def index_at(key: bytes, owners: Mapping[str, str]) -> tuple[bytes, str | None]:
    """Return the packed beginning of all keys of the index that a key belongs to, and its name.

    ``key`` may be the beginning of a key. ``owners`` maps the first parts of entry keys to collections, without regard
    to generations. The name is ``collection.index``; None for a record and any other key.
    """
    if key.startswith(_COUNTERS):
        named = key.find(b"\x00", len(_COUNTERS))
        end = key.find(b"\x00", named + 1)
        collection, index = _text(key[len(_COUNTERS) : named + 1]), _text(key[named + 1 : end + 1])
        return key[: end + 1], f"{collection}.{index}"
    end = key.find(b"\x00") + 1
    part = _text(key[:end])
    owner = owners.get(part)
    if owner is None or owner == part:
        return key[:end], None
    head, _, generation = part.rpartition("~")
    whole = head if head and generation.isdigit() else part  # an index of blind values may have a ~ in its name
    return key[:end], f"{owner}.{whole.removeprefix(index_prefix(owner, '', 1))}"


def _text(packed: bytes) -> str:
    return packed[1:-1].decode(errors="replace")


def violation_prefix(collection: str, index: str, generation: int) -> bytes:
    """Return the common prefix of the violation rows of one generation of an index."""
    return encode_key((RESERVED, "violation", collection, index, generation))


def violations_prefix(collection: str) -> bytes:
    """Return the common prefix of all violation rows of a collection."""
    return encode_key((RESERVED, "violation", collection))


def violation_key(prefix: bytes, slot: bytes | None, pk: bytes) -> bytes:
    """Return the key of the violation row of a record; for a duplicate, with the slot that another record holds.

    A long slot is omitted, because the row could exceed a limit that slot and record respect.
    """
    shown = encode_key((slot or b"",))
    return prefix + (shown if len(shown) + len(pk) <= SLOT_SHOWN_BYTES else encode_key((b"",))) + pk


def migration_key(collection: str) -> bytes:
    """Return the key with the progress of a migration; every batch checks and sets it."""
    return encode_key((RESERVED, "migration", collection))


def unmigrated_prefix(collection: str) -> bytes:
    """Return the common prefix of the rows of records that a migration cannot rewrite; the primary key follows."""
    return encode_key((RESERVED, "unmigrated", collection))


_OF_CHANGES = frozenset({"fence", "build", "drop", "violation", "migration", "unmigrated"})


def belongs_to_a_change(key: tuple[Any, ...]) -> bool:
    """Return whether a key holds the progress or findings of a schema change, which are removed at its end."""
    return key[:1] == (RESERVED,) and len(key) > 1 and key[1] in _OF_CHANGES


def bulk_key(resume_id: str) -> bytes:
    """Return the key with the progress of a bulk write; every batch checks and sets it."""
    return encode_key((RESERVED, "bulk", resume_id))


def bulk_prefix(resume_id: str, run: str, kind: str) -> bytes:
    """Return the common prefix of the rows of one run of a bulk write."""
    return encode_key((RESERVED, "bulk", resume_id, run, kind))


def history_prefix(collection: str) -> bytes:
    """Return the common prefix of the ended versions of a collection; the primary key follows, then the begin."""
    return encode_key((RESERVED, "history", collection))


def trash_prefix(collection: str) -> bytes:
    """Return the common prefix of the rows of removed records; the primary key follows."""
    return encode_key((RESERVED, "trash", collection))


def also_prefix(collection: str) -> bytes:
    """Return the common prefix of the lists of what removals have changed; the primary key, begin and number follow."""
    return encode_key((RESERVED, "also", collection))


def chunk_key(blob_id: bytes, number: int) -> bytes:
    """Return the key of one chunk of a blob."""
    return CHUNKS + encode_key((blob_id, number))


def loose_key(blob_id: bytes) -> bytes:
    """Return the key of the row that a blob has while no record has the blob."""
    return LOOSE_BLOBS + encode_key((blob_id,))


def key_counter(collection: str) -> bytes:
    """Return the key with the next primary key to give out; processes reserve ranges by raising it."""
    return encode_key((RESERVED, "keys", collection))


def token_key(token: str) -> bytes:
    """Return the key that exists if the logical operation with this token was applied."""
    return encode_key((RESERVED, "token", token))


def guard_key(name: str, parts: tuple[Any, ...]) -> bytes:
    """Return the exclusive row of a guard: every holder checks it, exclusive holders set it."""
    return encode_key((RESERVED, "guard", name)) + encode_key(parts)  # errors count positions from the first part


def shared_guard_key(name: str, parts: tuple[Any, ...]) -> bytes:
    """Return the shared row of a guard: exclusive holders check it, shared holders set it.

    It is as long as the exclusive row, so that a guard is never too long for only one of its rows.
    """
    return encode_key((RESERVED, "share", name)) + encode_key(parts)


def tenant_row_key(name: str) -> bytes:
    """Return the key of the row of a tenant, which exists while the tenant does."""
    return TENANT_ROWS + encode_key((name,))


def tenant_prefix(name: str) -> bytes:
    """Return the common prefix of all keys of a tenant."""
    return TENANT_PARTS + encode_key((name,))


def is_of_tenants(key: tuple[Any, ...]) -> bool:
    """Return whether a key is the row of a tenant, a key of one, or announces a message of one."""
    return key[:1] == (RESERVED,) and len(key) > 2 and key[1] in ("tenants", "tenant", "announced")


class EntryKey(NamedTuple):
    """The key of one index entry; ``slot`` means that it has a single owner and contains no primary key."""

    key: bytes
    slot: bool


class RecordLayout:
    """The key layout of the records of one collection."""

    pack_given: Callable[[Any], bytes] | None
    """Packs a primary key as callers pass it; raises InvalidValueError without a field name. None if it must be
    converted first."""

    def __init__(self, collection: str, primary_key: tuple[Column, ...], *, takes_as_given: bool = False) -> None:
        self.collection = collection
        self.prefix = encode_key((collection,))
        self._codecs: tuple[ColumnCodec, ...] = tuple(column.codec for column in primary_key)
        self._fields = tuple(column.field for column in primary_key)
        # In Python two instants of a repeated hour may be equal, and one instant in two time zones may be unequal.
        self._equal_as_packed = all(codec.name != "datetime" for codec in self._codecs)
        self._pack_document = self._document_packer()
        self.pack_given = unwrap(self._codecs[0].pack) if takes_as_given else None

    def is_same(self, values: tuple[Any, ...], loaded: tuple[Any, ...]) -> bool:
        """Return whether two primary keys have the same packed bytes."""
        return (self._equal_as_packed and values == loaded) or self.pack(values) == self.pack(loaded)

    def pack(self, values: tuple[Any, ...]) -> bytes:
        """Return the packed primary key of Python values, without prefix. Raises InvalidValueError with the field."""
        return b"".join([codec.pack(value) for codec, value in zip(self._codecs, values, strict=True)])

    def pack_document(self, document: Document) -> bytes:
        """Return the packed primary key of a stored document."""
        return b"".join(
            [codec.pack_stored(document[field]) for codec, field in zip(self._codecs, self._fields, strict=True)]
        )

    def document_packer(self) -> Callable[[Document], bytes]:
        """Return a function that packs the primary key of a document like ``pack_document``, without field names."""
        return self._pack_document

    def _document_packer(self) -> Callable[[Document], bytes]:
        packers = [(field, unwrap(codec.pack_stored)) for field, codec in zip(self._fields, self._codecs, strict=True)]
        if len(packers) == 1:
            ((name, pack_stored),) = packers
            return lambda document: pack_stored(document[name])
        return lambda document: b"".join([pack(document[field]) for field, pack in packers])

    def pack_prepared(self, values: tuple[Any, ...], document: Document) -> bytes:
        """Return the packed primary key of an object, given its values and its document; raises like ``pack``."""
        try:
            return self._pack_document(document)
        except InvalidValueError:
            return self.pack(values)

    def unpack(self, pk: bytes) -> tuple[Any, ...]:
        """Return the Python values of a packed primary key. Raises InvalidKeyError for other bytes."""
        parts = decode_key(pk)
        if len(parts) != len(self._codecs):
            raise InvalidKeyError("a record key has the wrong number of parts", key=parts)
        try:
            return tuple(codec.unpack(part) for codec, part in zip(self._codecs, parts, strict=True))
        except (DecodeError, ValueError, TypeError) as error:
            raise InvalidKeyError("a part of a record key is not of the type of its field", key=parts) from error

    def shown(self, pk: bytes) -> Any:
        """Return a packed primary key in the form that callers write: the value, or a tuple if it is composite."""
        values = self.unpack(pk)
        return values[0] if len(values) == 1 else values

    def unpack_key(self, key: bytes) -> tuple[Any, ...]:
        """Return the Python values of the primary key in a record key; raises like ``unpack``."""
        return self.unpack(key[len(self.prefix) :])

    def key(self, pk: bytes) -> bytes:
        """Return the key of the record with this packed primary key."""
        return self.prefix + pk

    def pk_of(self, key: bytes) -> bytes:
        """Return the packed primary key in a record key."""
        return key[len(self.prefix) :]

    def names(self, document: Document, key: bytes) -> bool:
        """Return whether a document has the primary key of the record key under which it was found."""
        try:
            return self.prefix + self.pack_document(document) == key
        except (InvalidValueError, DecodeError, LookupError):
            return False

    def is_record_key(self, key: bytes) -> bool:
        """Return whether a key under the prefix is exactly the key that this collection writes for its primary key."""
        pk = self.pk_of(key)
        try:
            return self.pack(self.unpack(pk)) == pk
        except (ValueError, TypeError):
            return False


class IndexLayout:
    """The key layout of one generation of an index, as far as it is the same for every kind.

    All keys begin with ``prefix``, followed by the columns. Every part of a key is a function of the stored document.
    Counters, if its kind has any, begin with ``counters``, followed by the columns of the group.
    """

    has_entries: ClassVar[bool] = True
    """Whether its keys lead to records; counters do not."""

    def __init__(self, collection: str, definition: IndexDefinition, generation: int) -> None:
        self.definition = definition
        self.prefix = self._prefix(collection, generation)
        self.counters = counter_prefix(collection, definition.name, generation)
        self._first = len(decode_key(self.prefix))
        self._count = self._first + len(definition.columns)
        if definition.options is not None:
            self._count += definition.options.key_parts
        self._readers = tuple((column, reader_of(column), column.codec.pack_stored) for column in definition.columns)
        self._where = None if definition.where is None else _holds(definition.where)
        included = (reader((name,), many=False) for name in definition.include)
        self._needed = (*map(reader_of, definition.needed_columns), *included)

    def _prefix(self, collection: str, generation: int) -> bytes:
        return encode_key((index_prefix(collection, self.definition.name, generation),))

    def covers(self, document: Document) -> bool:
        """Return whether the document stores every column and field of the index, which its keys require."""
        try:
            if self._where is not None and not self._where(document):
                return True  # a document without entries needs no fields
            for read in self._needed:
                read(document)
        except KeyError:
            return False
        return True

    def holds(self, document: Document) -> bool:
        """Return whether the condition of the index holds for a document."""
        return self._where is None or self._where(document)

    def heads(self, document: Document) -> tuple[list[bytes], bool]:
        """Return the prefix with the columns, once for each distinct element, and whether a column is None."""
        heads, has_null = [self.prefix], False
        for column, read, pack_stored in self._readers:
            value = read(document)
            has_null = has_null or value is None
            if column.many and value is not None:
                parts = sorted({pack_stored(element) for element in value})
            else:
                parts = [pack_stored(value)]
            heads = [head + part for head in heads for part in parts]
        return heads, has_null

    @property
    def is_plain(self) -> bool:
        """Return whether a document has at most one entry, with a key of plain fields and without copies."""
        return False

    def packed_columns(self) -> Callable[[Document], bytes]:
        """Return a function that packs the key, without primary key, of documents with one entry and no None in it.

        For every other document and kind of index it returns ``b""``, which is not a key, or raises
        InvalidValueError without naming the field.
        """
        return lambda _: b""

    def columns_in(self, key: bytes) -> tuple[Any, ...]:
        """Return the Python values of the columns in a key of the index."""
        columns = self.definition.columns
        parts = decode_key(key)[self._first : self._first + len(columns)]
        return tuple(column.codec.unpack(part) for column, part in zip(columns, parts, strict=True))

    def group_in(self, key: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the key parts of the group in the key of a counter, and those after it."""
        parts = decode_key(key[len(self.counters) :])
        size = len(self.definition.group)
        return parts[:size], parts[size:]

    def list_in(self, key: bytes) -> tuple[bytes, str]:
        """Return the beginning of an entry key with its group and its first part, such as a word, and this part.

        Raises InvalidKeyError for a row of another form.
        """
        end = skip_parts(key, self._first + len(self.definition.columns))
        (part, *_) = decode_key(key[end:]) or (None,)
        if not isinstance(part, str):
            raise InvalidKeyError("an entry of another program", part=self._first, type=type(part).__name__)
        return key[: end + len(encode_part(part))], part

    def pk_in(self, key: bytes) -> bytes:
        """Return the packed primary key at the end of an entry key, empty for a unique slot."""
        return key[skip_parts(key, self._count) :]


class EntryLayout(IndexLayout):
    """The key layout of the entries of one generation of an index."""

    def __init__(self, collection: str, definition: IndexDefinition, generation: int) -> None:
        super().__init__(collection, definition, generation)
        columns = definition.columns
        self._columns = tuple((column.field, unwrap(column.codec.pack_stored)) for column in columns)
        self._include = definition.include
        self._skip = definition.skips_none
        self._distinct = definition.repeats_none
        self._null = tuple(column.field for column in columns if column.nullable)
        self._plain = self._where is None and all(_is_field(column) for column in columns)

    @property
    def is_plain(self) -> bool:
        """Return whether a document has at most one entry, with a key of plain fields and without copies."""
        return self._plain and not self._include and not self.definition.copies_record

    def keys(self, document: Document, pk: bytes) -> tuple[EntryKey, ...]:
        """Return the sorted keys of the entries of a document."""
        if not self._plain:
            return self._keys(document, pk)
        key = self.prefix
        for field, pack_stored in self._columns:
            try:
                key += pack_stored(document[field])
            except InvalidValueError as error:
                error.field = field
                raise
        if self.definition.unique:
            if not self._has_null(document):
                return (EntryKey(key, True),)
            if not self._skip:
                return (EntryKey(key + pk, False),) if self._distinct else (EntryKey(key, True),)
            return ()
        if self._skip and self._has_null(document):
            return ()
        return (EntryKey(key + pk, False),)

    def packed_columns(self) -> Callable[[Document], bytes]:
        """Return a function that packs the key, without primary key, as ``IndexLayout.packed_columns`` says."""
        prefix = self.prefix
        columns = self._columns
        if not self._plain:
            return lambda _: b""
        if len(columns) == 1 and not self._null:
            ((field, pack_stored),) = columns
            if pack_stored is STR.pack_stored:
                return text_packer(prefix, field)
            return lambda document: prefix + pack_stored(document[field])

        def packed(document: Document) -> bytes:
            key = prefix
            for name, pack in columns:
                value = document[name]
                if value is None:
                    return b""
                key += pack(value)
            return key

        return packed

    def _has_null(self, document: Document) -> bool:
        return any(document[field] is None for field in self._null)

    def _keys(self, document: Document, pk: bytes) -> tuple[EntryKey, ...]:
        if self._where is not None and not self._where(document):
            return ()
        heads, has_null = self.heads(document)
        if has_null and self._skip:
            return ()
        slot = self.definition.unique and not (has_null and self._distinct)
        return tuple(EntryKey(head if slot else head + pk, slot) for head in heads)

    def included(self, document: Document) -> dict[str, Any] | None:
        """Return the values that each entry of a covering index contains, by field; None for every other index."""
        return {name: document[name] for name in self._include} if self._include else None


class CounterLayout(IndexLayout):
    """The key layout of the counters of one generation of an aggregate index."""

    has_entries: ClassVar[bool] = False

    def __init__(self, collection: str, definition: IndexDefinition, generation: int) -> None:
        super().__init__(collection, definition, generation)
        self.sums = () if definition.options is None else definition.options.columns
        self._sums = tuple(reader_of(column) for column in self.sums)
        self.places: Mapping[str, int] = {} if definition.options is None else definition.options.decimal_places

    def _prefix(self, collection: str, generation: int) -> bytes:
        return counter_prefix(collection, self.definition.name, generation)

    def groups(self, document: Document) -> tuple[bytes, ...]:
        """Return the sorted packed prefixes of the counters that count this document."""
        return tuple(self.heads(document)[0]) if self.holds(document) else ()

    def sums_of(self, document: Document) -> tuple[Any, ...]:
        """Return the amounts that this document adds to each sum, in the order of ``sums``."""
        return tuple(read(document) for read in self._sums)


def counter_key(group: bytes, kind: str) -> bytes:
    """Return the key of one counter of a group of ``CounterLayout.groups``: ``"count"``, ``"sum:field"`` and so on."""
    return group + encode_key((kind,))


def bucket_key(group: bytes, level: int, digits: int) -> bytes:
    """Return the key of the number of records in a bucket; ``group`` begins with ``IndexLayout.counters``.

    ``digits`` are the first ``level`` digits of the number of the bucket, in base 16.
    """
    return group + encode_key((level, digits))


def bucket_keys(group: bytes, bucket: int, levels: int) -> list[bytes]:
    """Return the keys of the counters that count a bucket of the last level, from level 1 on."""
    return [group + _LEVELS[level] + encode_part(bucket >> 4 * (levels - level)) for level in range(1, levels + 1)]


_LEVELS = tuple(map(encode_part, range(16)))


def index_layout(collection: str, definition: IndexDefinition, generation: int) -> IndexLayout:
    """Return the layout of one generation of an index of any kind."""
    return _LAYOUTS.get(definition.kind, IndexLayout)(collection, definition, generation)


_LAYOUTS: Mapping[str, type[IndexLayout]] = {"entries": EntryLayout, "counters": CounterLayout}


def _is_field(column: Column) -> bool:
    return not column.many and column.path in ((), (column.field,))


def _holds(where: PartialCondition) -> Callable[[Document], bool]:
    """Return whether the condition of a partial index holds for a stored document."""
    alternatives = [[_passes(test) for test in tests] for tests in where.alternatives]
    return lambda document: any(all(passes(document) for passes in tests) for tests in alternatives)


def _passes(test: SpanTest) -> Callable[[Document], bool]:
    read, pack_stored, field = reader_of(test.column), test.column.codec.pack_stored, test.column.field
    starts, ends = [start for start, _ in test.spans], [end for _, end in test.spans]

    def passes(document: Document) -> bool:
        try:
            part = pack_stored(read(document))
        except InvalidValueError as error:
            error.field = field  # the codec of a stored generation does not know its field
            raise
        at = bisect_right(starts, part) - 1
        return at >= 0 and part < ends[at]

    return passes
