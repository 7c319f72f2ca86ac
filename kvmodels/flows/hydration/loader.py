"""From a stored row to an object by the shortest way: everything that can be decided once per collection is.

``kvmodels.flows.hydration.rows`` says what a row means. A *loader* gives the same object, or the same error, because it
takes only rows whose documents need nothing but to be unpacked and validated, and leaves all others to it; a test
compares the two for generated models and rows.

Rules of this module: pure. A loader holds as long as the header does, so it is remembered with the collection.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, Final, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.compiled import EntryLoader, Loader
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_part
from kvmodels.core.operations import PlainRow, Row, row_of
from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import (
    document_of,
    no_record_key,
    object_of,
    object_of_document,
    require_known_version,
)
from kvmodels.indexing.entries import slot_owner
from kvmodels.schema.definition.definition import ColumnSource, Document, ModelSchema
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD
from kvmodels.schema.filters.operands import takes_as_given, value_of
from kvmodels.schema.instances import STATE_SLOT, set_unpacker

_KNOWN: Final = frozenset({"v", COMPUTED})


def loader_of(context: Context, live: LiveCollection) -> Loader:
    """The loader of a collection for keys that were packed from values, or checked: their parts are not looked at."""
    return _known_loader(context, live, checks=False)


class _Maker(NamedTuple):
    """What makes an object of a document, which belongs to it afterwards.

    Attributes:
        order: the fields of a document that only has to be validated, as it is usually stored; None: it has to be
            looked at first.
        validate: makes the object then.
        made: makes the object of a document that stores exactly the declared fields; None for every other one.
    """

    order: list[str] | None
    validate: Callable[..., Any]
    made: Callable[[Any], Any]


def _maker_of(live: LiveCollection) -> _Maker:
    """What makes objects; it raises whatever validation raises, of which ``schema.decode`` makes the error to show."""
    straight = live.schema.straight
    if straight is None:
        return _Maker(None, _nothing, _nothing)
    set_unpacker(live.schema.model, live.layout.unpack_key)
    names, decoders, validate, version, marked = straight

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

    return _Maker(None if marked or decoders else [*names], validate, made)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def packer_of(schema: ModelSchema, source: ColumnSource, pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """From an operand as people give it to a key part, as ``value_of`` and then ``pack``; it raises InvalidValueError.

    Args:
        schema: the model.
        source: what is compared.
        pack: of the column, which may be descending; ascending it is the codec of the source.
    """
    if source.normalise is None and takes_as_given(source.codec):
        bare: Callable[[Any], bytes] = unwrap(pack)
        return bare
    return lambda given: pack(value_of(schema, source, given))


def _is_current(reserved: Any, version: int) -> bool:
    """Whether what is stored under ``$kv`` says no more than that the document is of the declared version."""
    if reserved.__class__ is not dict or not reserved.keys() <= _KNOWN:
        return False
    stored = reserved.get("v", 1)
    return stored.__class__ is int and stored == version


def entry_loader_of(context: Context, live: LiveCollection, index: LiveIndex) -> EntryLoader:
    """The loader of a collection for records that are found by an entry of an index."""
    loaders, name = live.compiled.entry_loaders, index.definition.name
    loader = loaders.get(name)
    if loader is None:
        loader = loaders[name] = _compiled_for_entries(context, live, index)
    return loader


def _compiled_for_entries(context: Context, live: LiveCollection, index: LiveIndex) -> EntryLoader:
    decode, layout = context.codec.decode_unchecked, live.layout
    order, validate, made = _maker_of(live)
    put = getattr(live.schema.model, STATE_SLOT).__set__
    columns_of, unique = index.layout.packed_columns(), index.definition.unique
    pack = layout.document_packer()

    def load(row: PlainRow, entry: bytes) -> Any:
        key, value, encoding, stamp, expire_at = row
        try:
            document = decode(value, encoding, key)
            if unique:
                if entry != columns_of(document):
                    return full(row, entry)
            elif entry != columns_of(document) + pack(document):  # the key was made of the end of the entry
                return full(row, entry)
            # In the order in which they are stored, comparing names costs half of comparing sets of them.
            same = [*document] == order
            instance = validate(document, by_alias=False, by_name=True) if same else made(document)
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            instance = None
        if instance is None:
            return full(row, entry)
        put(instance, row if row.__class__ is tuple else (key, value, encoding, stamp, expire_at))
        return instance

    def full(plain: PlainRow, entry: bytes) -> Any:
        row = row_of(plain)
        document = document_of(context, row)
        pk = layout.pk_of(row.key)
        require_known_version(live, document, pk)
        if not reproduces(index, document, pk, entry):
            return None
        return _object(live, row, document, pk)

    return load


def owner_of(context: Context, live: LiveCollection, index: LiveIndex) -> Callable[[Row], bytes | None]:
    """From an entry to the packed primary key of its record; None for a row that is no entry of the index."""
    slot, pk_in = slot_owner_of(context, live, index), index.layout.pk_in
    known = b""  # the columns of the entry before: entries of one value lie together

    def owner(row: Row) -> bytes | None:
        nonlocal known
        key, columns = row[0], known
        try:
            # ff after the columns goes on with a text. Taking each key apart costs ten times as much.
            if columns and key.startswith(columns) and key[len(columns) : len(columns) + 1] != b"\xff":
                pk = key[len(columns) :]
            else:
                pk = pk_in(key)
                known = key[: len(key) - len(pk)]
            return pk or slot(row)
        except InvalidKeyError:
            return None

    return owner


def slot_owner_of(context: Context, live: LiveCollection, index: LiveIndex) -> Callable[[Row], bytes | None]:
    """From a slot to the packed primary key of its owner, as ``slot_owner``; None for a row that is no slot.

    What it gives was taken for a primary key by every column of it.
    """
    decode, primary_key = context.codec.decode, live.schema.primary_key
    unpack = primary_key[0].codec.unpack
    short = len(primary_key) == 1 and not index.definition.include and index.definition.store is None

    def owner(row: Row) -> bytes | None:
        try:
            if short:
                value = decode(row[1], row[2], row[0])
                if value.__class__ is list and len(value) == 1:
                    part = value[0]
                    unpack(part)  # refuses what is no primary key
                    if part.__class__ is str and "\x00" not in part and part.isascii():
                        return f"\x02{part}\x00".encode()
                    return encode_part(part)
            return slot_owner(context.codec, live, index, row)
        except (DecodeError, InvalidKeyError, ValueError, TypeError):
            return None

    return owner


def _object(live: LiveCollection, row: Row, document: Document, pk: bytes) -> Any:
    try:
        return object_of_document(live, row, document, pk)
    except InvalidKeyError as error:
        raise no_record_key(live, row.key) from error


def reproduces(index: LiveIndex, document: Document, pk: bytes, entry: bytes) -> bool:
    """Whether a record calls for an entry of an index."""
    try:
        return any(key == entry for key, _ in index.layout.keys(document, pk))
    except (InvalidValueError, InvalidKeyError, KeyError):  # a column that the index cannot hold, or none
        return False


def checked_loader_of(context: Context, live: LiveCollection) -> Loader:
    """The loader of a collection for rows under its prefix, whose keys may be those of no record: DecodeError then."""
    return _known_loader(context, live, checks=True)


def _known_loader(context: Context, live: LiveCollection, *, checks: bool) -> Loader:
    """The compiled loader of every store that has this header and this codec; what it depends on says no more."""
    if not switches.fast_kinds:
        return _general(context, live)
    loaders, key = live.compiled.loaders, (type(context.codec), checks)
    loader = loaders.get(key)
    if loader is None:
        loader = loaders[key] = _compiled(context.codec, live, checks=checks)
    return loader


def _general(context: Context, live: LiveCollection) -> Loader:
    """The loader that decides for every row what it takes."""

    def load(row: PlainRow, _: bytes = b"", /) -> Any:
        return object_of(context, live, row_of(row))

    return load


def _compiled(codec: ValueCodec, live: LiveCollection, *, checks: bool) -> Loader:
    decode, layout = codec.decode_unchecked, live.layout
    order, validate, made = _maker_of(live)
    put = getattr(live.schema.model, STATE_SLOT).__set__  # as kvmodels.schema.instances does, without a call more
    pack, start = layout.document_packer(), len(layout.prefix)

    def load(row: PlainRow, _: bytes = b"", /) -> Any:
        key, value, encoding, stamp, expire_at = row
        try:
            document = decode(value, encoding, key)
            if checks and pack(document) != key[start:]:  # else it is under the key of a record, for it is its own
                instance = None
            else:
                same = [*document] == order
                instance = validate(document, by_alias=False, by_name=True) if same else made(document)
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            instance = None
        if instance is None:
            return _object(live, row_of(row), codec.decode_document(value, encoding, key), layout.pk_of(key))
        put(instance, row if row.__class__ is tuple else (key, value, encoding, stamp, expire_at))
        return instance

    return load
