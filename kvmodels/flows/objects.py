"""From a stored row to an object by the shortest way: everything that can be decided once per collection is.

``kvmodels.flows.records`` says what a row means. A *loader* gives the same object, or the same error, because it takes
only rows whose documents need nothing but to be unpacked and validated, and leaves all others to it; a test compares
the two for generated models and rows.

Rules of this module: pure. A loader holds as long as the header does, so it is remembered with the plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kvmodels.encoding.column_scalars import DECIMAL
from kvmodels.encoding.columns import ColumnCodec
from kvmodels.errors import InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.records import document_of, object_of, object_of_document
from kvmodels.operations import Row
from kvmodels.schema.definition import ColumnSource, Document, ModelSchema
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.schema.operands import value_of
from kvmodels.schema.paths import COMPUTED, RESERVED_FIELD
from kvmodels.schema.state import STATE_SLOT

__all__ = [
    "Loader",
    "Verified",
    "loader_of",
    "made_by",
    "packer_of",
    "reproduces",
    "takes_as_given",
    "verified_loader_of",
]

Loader: TypeAlias = Callable[[Row], Any]
"""From a record row, whose key is that of a record, to its object; raises DecodeError as ``object_of``."""

Verified: TypeAlias = Callable[[Row, bytes], Any]
"""From a record row and the key of an entry that led to it to its object; None if the record has no such entry."""

_NOTHING: Final[dict[str, Any]] = {}
_LOADER: Final = "loader"
_KNOWN: Final = frozenset({"v", COMPUTED})


def loader_of(context: Context, live: LiveCollection) -> Loader:
    """The loader of a collection for keys that were packed from values, or checked: their parts are not looked at."""
    loader: Loader | None = live.plans.get(_LOADER)
    if loader is None:
        loader = live.plans[_LOADER] = _compiled(context, live)
    return loader


def made_by(schema: ModelSchema) -> Callable[[Document], Any]:
    """What makes an object of a document that stores exactly the declared fields; None for every other document.

    The document belongs to the object afterwards. It raises whatever validation raises, which ``schema.decode`` of
    the same stored bytes turns into the error for the caller.
    """
    straight = schema.straight
    if straight is None:
        return lambda _: None
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

    def plain(document: Any) -> Any:
        if document.__class__ is not dict or document.keys() != names:
            return None
        return validate(document, by_alias=False, by_name=True)

    return made if marked or decoders else plain


def packer_of(schema: ModelSchema, source: ColumnSource, pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """From an operand as people give it to a key part, as ``value_of`` and then ``pack``; raises InvalidValueError.

    Args:
        schema: the model.
        source: what is compared.
        pack: of the column, which may be descending; ascending it is the codec of the source.
    """
    if source.normalise is None and takes_as_given(source.codec):
        return pack
    return lambda given: pack(value_of(schema, source, given))


def takes_as_given(codec: ColumnCodec) -> bool:
    """Whether an operand is packed as it is: no text is read as what it stands for, no number is converted."""
    return codec.from_stored is None and codec.name != DECIMAL.name


def _is_current(reserved: Any, version: int) -> bool:
    """Whether what is stored under ``$kv`` says no more than that the document is of the declared version."""
    if reserved.__class__ is not dict or not reserved.keys() <= _KNOWN:
        return False
    stored = reserved.get("v", 1)
    return stored.__class__ is int and stored == version


def verified_loader_of(context: Context, live: LiveCollection, index: LiveIndex) -> Verified:
    """The loader of a collection for records that are found by an entry of an index."""
    known = _LOADER, index.definition.name
    loader: Verified | None = live.plans.get(known)
    if loader is None:
        loader = live.plans[known] = _verified(context, live, index)
    return loader


def _verified(context: Context, live: LiveCollection, index: LiveIndex) -> Verified:
    decode, made, layout = context.codec.decode_unchecked, made_by(live.schema), live.layout
    unpack_key, put = layout.unpack_key, object.__setattr__
    columns_of, unique, start = index.layout.packed_columns(), index.definition.unique, len(layout.prefix)

    def load(row: Row, entry: bytes) -> Any:
        key = row[0]
        try:
            document = decode(row[1], row[2], key)
            if entry != (columns_of(document) if unique else columns_of(document) + key[start:]):
                return full(row, entry)
            instance = made(document)
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            instance = None
        if instance is None:
            return full(row, entry)
        put(instance, STATE_SLOT, (unpack_key, key, row, _NOTHING))
        return instance

    def full(row: Row, entry: bytes) -> Any:
        document = document_of(context, row)
        pk = layout.pk_of(row.key)
        return object_of_document(live, row, document, pk) if reproduces(index, document, pk, entry) else None

    return load


def reproduces(index: LiveIndex, document: Document, pk: bytes, entry: bytes) -> bool:
    """Whether a record calls for an entry of an index."""
    try:
        return any(key == entry for key, _ in index.layout.keys(document, pk))
    except (InvalidValueError, InvalidKeyError, KeyError):  # a column that the index cannot hold, or none
        return False


def _compiled(context: Context, live: LiveCollection) -> Loader:
    decode, made, unpack_key = context.codec.decode_unchecked, made_by(live.schema), live.layout.unpack_key
    put = object.__setattr__  # as kvmodels.schema.state does, without a call more

    def load(row: Row) -> Any:
        try:
            instance = made(decode(row[1], row[2], row[0]))
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            instance = None
        if instance is None:
            return object_of(context, live, row)
        put(instance, STATE_SLOT, (unpack_key, row[0], row, _NOTHING))
        return instance

    return load
