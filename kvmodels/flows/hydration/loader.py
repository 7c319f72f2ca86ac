"""Create objects from rows, with all decisions that are constant for a collection made in advance.

A *loader* returns the same object or error as ``kvmodels.flows.hydration.rows``: it handles only rows whose documents
need nothing but decoding and validation, and passes all others to that module. A *batch loader* handles many rows in
calls of C functions, or returns None so that the loader handles them one by one. Tests compare all three.

Rules of this module: pure. A loader is valid as long as the header, so it is cached with the collection. Only
exceptions that a foreign or outdated row can cause are caught. If validation fails, the general code must fail too, so
that a defect of a loader is raised and does not merely cause slowness.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from inspect import unwrap
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pydantic import TypeAdapter

from kvmodels._support import switches
from kvmodels.catalog.collection import BatchLoader, LiveCollection, LiveIndex, Loader
from kvmodels.codecs.columns.registry import Matched, column_matcher, column_packer
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.core.keys import encode_part
from kvmodels.core.operations import PlainRow, ReadResult, Row, row_of
from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError, KvModelsError
from kvmodels.flows.blobs.binding import binding
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import object_of, object_of_document, require_known_version
from kvmodels.indexing.entries import slot_owner
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.definition.definition import Column, ColumnSource, Document, ModelSchema
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD
from kvmodels.schema.filters.operands import takes_as_given, value_of
from kvmodels.schema.filters.validation import validated
from kvmodels.schema.instances import (
    STATE_SLOT,
    Loaded,
    is_every_field,
    leave_out_fields_sets,
    set_all_loaded,
    set_unpacker,
)

_KNOWN: Final = frozenset({"v", COMPUTED})

_UNFIT: Final = (KvModelsError, LookupError, TypeError, ValueError)
"""Raised by decoding and packing a row of another program or an older release, or a damaged row."""

_FEWEST: Final = 8
"""The minimum number of rows for which a batch costs less than loading them one by one."""

_KEY, _VALUE, _ENCODING = itemgetter(0), itemgetter(1), itemgetter(2)
_names: Final[Callable[[Any], tuple[Any, ...]]] = cast("Any", tuple)
_plain: Final[Callable[[PlainRow], Loaded]] = cast("Any", tuple)
_TEXT: Final = frozenset({str})
_EXACT: Final = _TEXT | {int, bool, bytes}
"""Types whose equal values of the same type have equal key parts."""


# --- one row ----------------------------------------------------------------------------------------------------


class _ObjectMaker(NamedTuple):
    """Creates an object from a document, which belongs to the object afterwards.

    Attributes:
        order: the fields in their usual stored order, if such a document only needs validation; otherwise None.
        validate: creates the object from a document in that order.
        made: creates the object from a document that stores exactly the declared fields; None for any other document.
    """

    order: list[str] | None
    validate: Callable[..., Any]
    made: Callable[[Any], Any]


def _maker_of(live: LiveCollection) -> _ObjectMaker:
    fast = live.schema.fast_decoding
    if fast is None:
        return _ObjectMaker(None, _nothing, _nothing)
    set_unpacker(live.schema.model, live.layout.unpack_key)
    names, decoders, validate, version, marked = fast

    def made(document: Any) -> Any:
        if document.__class__ is not dict:
            return None
        if marked and not _is_current(document.pop(RESERVED_FIELD, None), version):
            return None
        if document.keys() != names:
            return None
        for name, decode in decoders:
            document[name] = decode(document[name])
        return validate(document, by_alias=False, by_name=True)

    return _ObjectMaker(None if marked or decoders else [*names], validate, made)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _is_current(reserved: Any, version: int) -> bool:
    """Return whether the reserved field contains only the declared version."""
    if reserved.__class__ is not dict or not reserved.keys() <= _KNOWN:
        return False
    stored = reserved.get("v", 1)
    return stored.__class__ is int and stored == version


def loader_of(context: Context, live: LiveCollection, *, checks: bool = False) -> Loader:
    """Return the loader of a collection for keys that were packed from values.

    ``checks``: for any rows under its prefix; it raises DecodeError for keys that are not record keys.
    """
    if not switches.fast_kinds:
        return lambda row, _=b"": object_of(context, live, row_of(row))
    # Loaders depend only on header and codec, so all stores with both share them, except for those of blobs.
    loaders, key = live.compiled.loaders, (type(context.codec), checks)
    loader = loaders.get(key)
    if loader is None:
        packer = live.layout.document_packer() if checks else None
        loader = loaders[key] = binding(live, _compiled(context.codec, live, packer))
    return loader


def entry_loader_of(context: Context, live: LiveCollection, index: LiveIndex) -> Loader:
    """Return the loader of a collection for records that an entry of an index leads to."""
    loaders, name = live.compiled.entry_loaders, index.definition.name
    loader = loaders.get(name)
    if loader is None:
        loader = loaders[name] = binding(live, _compiled(context.codec, live, _entry_packer(live, index), index))
    return loader


def _entry_packer(live: LiveCollection, index: LiveIndex) -> Callable[[Document], bytes]:
    """Return the function that packs the entry that a document has in an index; it may be wrong for special values."""
    columns_of, pack = index.layout.packed_columns(), live.layout.document_packer()
    return columns_of if index.definition.unique else lambda document: columns_of(document) + pack(document)


def _compiled(
    codec: ValueCodec,
    live: LiveCollection,
    expected: Callable[[Document], bytes] | None,
    index: LiveIndex | None = None,
) -> Loader:
    """Return a loader that compares the entry in an index, or the primary key, with that ``expected`` of a document."""
    decode, layout = codec.decode_unchecked, live.layout
    order, validate, made = _maker_of(live)
    put = getattr(live.schema.model, STATE_SLOT).__set__  # like kvmodels.schema.instances, with one call less
    start = len(layout.prefix)

    def load(row: PlainRow, asked: bytes = b"", /) -> Any:
        key, value, encoding, stamp, expire_at = row
        try:
            document = decode(value, encoding, key)
            # The record key was made from the end of the entry, so comparing the entry proves both.
            if expected is not None and expected(document) != (key[start:] if index is None else asked):
                return general(row, asked)
            # Comparing names in their stored order costs half of comparing sets of them.
            same = [*document] == order
        except _UNFIT:
            return general(row, asked)
        try:
            instance = validate(document, by_alias=False, by_name=True) if same else made(document)
        except Exception:
            general(row, asked)
            raise
        if instance is None:
            return general(row, asked)
        put(instance, row if row.__class__ is tuple else (key, value, encoding, stamp, expire_at))
        return instance

    def general(plain: PlainRow, asked: bytes) -> Any:
        row = row_of(plain)
        document, pk = codec.decode_document(row.value, row.encoding, row.key), layout.pk_of(row.key)
        if index is not None:
            require_known_version(live, document, pk)
            if not has_entry(index, document, pk, asked):
                return None
        return object_of_document(live, row, document, pk)

    return load


def expected_keys(index: LiveIndex, document: Document, pk: bytes) -> Collection[bytes]:
    """Return the keys of the entries that a record has in an index; empty if the index cannot hold it."""
    try:
        return maintenance_of(index).keys(document, pk)
    except (InvalidValueError, InvalidKeyError, KeyError):  # a column that the index cannot hold, or a missing one
        return []


def has_entry(index: LiveIndex, document: Document, pk: bytes, key: bytes) -> bool:
    """Return whether a record has an entry with this key in an index; False if the index cannot hold it."""
    try:
        return maintenance_of(index).has(document, pk, key)
    except (InvalidValueError, InvalidKeyError, KeyError):  # as above
        return False


# --- keys -------------------------------------------------------------------------------------------------------


def packer_of(schema: ModelSchema, source: ColumnSource, pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the function from an operand of equality to a key part: ``validated``, ``value_of``, ``pack``.

    It raises InvalidValueError.
    """
    if takes_as_given(schema, source.name):
        bare: Callable[[Any], bytes] = unwrap(pack)
        return bare
    # A type may make None of a value; ``value_of`` refuses it, and the planned query compares with None.
    return lambda given: pack(value_of(schema, source, validated(schema, source, given)))


OwnerOf: TypeAlias = Callable[[Row], "bytes | None"]
"""Returns the packed primary key that a row leads to, or None for a row that is no entry of its index."""


def pk_reader_of(index: LiveIndex) -> Callable[[bytes], bytes]:
    """Return ``pk_in`` of the layout of an index, faster for keys in their order; it raises InvalidKeyError."""
    pk_in = index.layout.pk_in
    known = b""  # the columns of the previous entry: entries with one value are adjacent

    def read(key: bytes) -> bytes:
        nonlocal known
        columns = known
        # ff after the columns continues a str. Splitting each key into its parts costs ten times as much.
        if columns and key.startswith(columns) and key[len(columns) : len(columns) + 1] != b"\xff":
            return key[len(columns) :]
        pk = pk_in(key)
        known = key[: len(key) - len(pk)]
        return pk

    return read


def owner_of(context: Context, live: LiveCollection, index: LiveIndex) -> OwnerOf:
    """Return the function from an entry to the packed primary key of its record; None for other rows."""
    slot, pk_in = slot_owner_of(context, live, index), pk_reader_of(index)

    def owner(row: Row) -> bytes | None:
        try:
            return pk_in(row[0]) or slot(row)
        except InvalidKeyError:
            return None

    return owner


def slot_owner_of(context: Context, live: LiveCollection, index: LiveIndex) -> OwnerOf:
    """Return ``slot_owner`` of an index as a function of a slot; None for a row that is not a slot.

    Every column of the primary key has accepted its part of the result.
    """
    decode, primary_key = context.codec.decode, live.schema.primary_key
    unpack = primary_key[0].codec.unpack
    short = len(primary_key) == 1 and not index.definition.include and not index.definition.copies_record

    def owner(row: Row) -> bytes | None:
        try:
            if short:
                value = decode(row[1], row[2], row[0])
                if value.__class__ is list and len(value) == 1:
                    part = value[0]
                    unpack(part)  # raises for an invalid primary key
                    if part.__class__ is str and "\x00" not in part and part.isascii():
                        return f"\x02{part}\x00".encode()
                    return encode_part(part)
            return slot_owner(context.codec, live, index, row)
        except (DecodeError, InvalidKeyError, ValueError, TypeError):
            return None

    return owner


# --- many rows --------------------------------------------------------------------------------------------------


def loaded(batch: BatchLoader | None, load: Callable[[Row], Any], rows: Sequence[PlainRow]) -> list[Any]:
    """Return the objects of rows that were read as records, in one batch if it can handle them."""
    objects = None if batch is None else batch(rows, b"")
    return [load(row_of(row)) for row in rows] if objects is None else objects


def loaded_behind(
    batch: BatchLoader | None, found: ReadResult, head: bytes, number: int
) -> tuple[list[Any] | None, Sequence[list[Row]]]:
    """Return the objects for the records of entries if a batch can create them; else the record of each entry."""
    entries, followed = found[0][0], found[1]
    if len(followed) >= len(entries):
        return None, followed[:number]
    records = followed[0][:number]
    objects = None if batch is None else batch(records, head)
    return objects, () if objects is not None else [[row_of(record)] for record in records]


def batch_loader_of(context: Context, live: LiveCollection, index: LiveIndex | None) -> BatchLoader | None:
    """Return the batch loader of a collection for records, or for the records of the entries of an index.

    None if documents need more than decoding and validation, or the index does not consist of plain fields.
    """
    loaders, name = live.compiled.batch_loaders, None if index is None else index.definition.name
    if name not in loaders:
        loaders[name] = _compiled_batch(context, live, index)
    return loaders[name]


def _compiled_batch(context: Context, live: LiveCollection, index: LiveIndex | None) -> BatchLoader | None:
    fast, codec, layout = live.schema.fast_decoding, context.codec, live.layout
    if not switches.fast_kinds or fast is None or fast.marked or fast.decoders:
        return None
    if not isinstance(codec, MsgpackCodec) or (index is not None and not index.layout.is_plain):
        return None
    is_order, model, start = (*fast.names,).__eq__, live.schema.model, len(layout.prefix)
    decode_many, load = codec.decode_many, loader_of(context, live)
    validate: Callable[..., list[Any]] = TypeAdapter(list[model]).validate_python  # type: ignore[valid-type]
    have_keys = _matcher(live.schema.primary_key)
    leaves_out = is_every_field(model, fast.names, KvModel.__dict__["__getattr__"])
    shared = _sharing(() if index is None else index.definition.columns)
    prefix = b"" if index is None else index.layout.prefix

    def load_batch(rows: Sequence[PlainRow], head: bytes) -> list[Any] | None:
        if len(rows) < _FEWEST:
            return None
        try:
            documents = decode_many(list(map(_VALUE, rows)), set(map(_ENCODING, rows)))
            if documents is None or not all(map(is_order, map(_names, documents))):
                return None
            if not have_keys(documents, list(map(_KEY, rows)), start):
                return None
            if head and prefix + shared(documents) != head:
                return None
        except _UNFIT:
            return None
        try:
            objects = validate(documents, by_alias=False, by_name=True)
        except Exception:
            for row in rows:
                load(row)
            raise
        # A row that the engine also holds adds no object; if the engine created the row, only its tuple is kept.
        set_all_loaded(model, objects, layout.unpack_key, rows if context.traits.keeps_rows else map(_plain, rows))
        if leaves_out:
            leave_out_fields_sets(model, objects)
        return objects

    return load_batch


def _matcher(columns: Sequence[Column]) -> Matched:
    """Return the function that compares keys, from a position on, with the key parts of the corresponding documents."""
    gets = [itemgetter(column.field) for column in columns]
    packs = [unwrap(column.codec.pack_stored) for column in columns]
    if len(columns) == 1:
        (get,), match = gets, column_matcher(packs[0])
        return lambda documents, keys, start: match(list(map(get, documents)), keys, start)
    packers = list(zip(gets, map(column_packer, packs), strict=True))

    def matches(documents: Sequence[Document], keys: Sequence[bytes], start: int) -> bool:
        parts = [pack(list(map(get, documents))) for get, pack in packers]
        return list(map(b"".join, zip(*parts, strict=True))) == [key[start:] for key in keys]

    return matches


def _sharing(columns: Sequence[Column]) -> Callable[[Sequence[Document]], bytes]:
    """Return the function that packs the common key parts of documents; it raises ValueError if they differ.

    It may also raise for equal values, if comparing them does not prove that their key parts are equal.
    """
    parts = [(itemgetter(column.field), unwrap(column.codec.pack_stored)) for column in columns]

    def shared(documents: Sequence[Document]) -> bytes:
        packed = b""
        for get, pack in parts:
            values = list(map(get, documents))
            first = values[0]
            # No other stored value equals a str.
            kinds = _TEXT if first.__class__ is str else set(map(type, values))
            if len(kinds) != 1 or not kinds <= _EXACT or values.count(first) != len(values):
                raise ValueError
            packed += pack(first)
        return packed

    return shared
