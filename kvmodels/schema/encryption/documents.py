"""Sealed values in documents: seal what is to be stored, open what is read, keep what has not changed.

``$kv.e`` of a document lists its sealed fields in order, so every program knows what is sealed, whatever its class
says. A sealed field is opened under the name that the document has it by, so an upgrade may rename it.

Rules of this module: a document is sealed before anything else sees it; only objects hold plain values. None is stored
as None. Errors name collection, field and key, and never a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.codecs.other_codecs import codec_of
from kvmodels.codecs.sealing import cipher
from kvmodels.codecs.sealing.key_ring import KeyCache
from kvmodels.errors import DecodeError, DecryptionError, SchemaMismatchError
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.values import RESERVED_FIELD, SEALED

MISSING_KEY: Final = "missing key"
"""The reason of errors of values whose key this process does not have."""

_DAMAGED: Final = (
    "Another program changed it: restore the record from a backup, or remove it, which needs no key. Other fields are "
    "read with only(Projection)."
)


class Sealer:
    """Seals and opens the fields of the documents of one collection, for one database.

    Attributes:
        keys: the keys of the database.
        last: the id under which values are sealed first; a write seals them again under that of its header.
        checks: the check value of each key that the header lists, by id.
    """

    __slots__ = ("_by_id", "_codec", "_columns", "checks", "collection", "keys", "last", "model")

    def __init__(self, keys: KeyCache, codec: ValueCodec, schema: ModelSchema) -> None:
        self.keys = keys
        self.collection = schema.collection
        self.model = schema.name
        self._columns = schema.primary_key
        self.last: int | None = None
        self.checks: Mapping[int, str] = {}
        self._codec = codec
        self._by_id: dict[int, cipher.CollectionKeys] = {}

    def pack(self, values: tuple[Any, ...]) -> bytes:
        """Return the packed primary key of Python values."""
        return b"".join([column.codec.pack(value) for column, value in zip(self._columns, values, strict=True)])

    def key_in(self, document: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the primary key that a document holds."""
        stored = [(column.codec.from_stored, document[column.field]) for column in self._columns]
        return tuple(value if from_stored is None else from_stored(value) for from_stored, value in stored)

    def keys_of(self, key_id: int | None) -> cipher.CollectionKeys | None:
        """Return the keys that a master key gives this collection; None without the master key."""
        found = None if key_id is None else self._by_id.get(key_id)
        if found is None and key_id is not None:
            master = self.keys.key(key_id)
            if master is not None:
                found = self._by_id[key_id] = cipher.CollectionKeys(master, self.collection)
        return found

    def check_of(self, key_id: int) -> str | None:
        """Return the check value of a key; None without the key."""
        keys = self.keys_of(key_id)
        return None if keys is None else keys.check

    def seal(self, field: str, pk: bytes, value: Any, key_id: int | None = None) -> bytes:
        """Return the sealed form of a stored value. Raises SchemaMismatchError without a key."""
        used = self.writing_id() if key_id is None else key_id
        return self._sealed(field, pk, self._plain(value), used)

    def writing_id(self) -> int:
        """Return the id under which values are sealed first."""
        return self.keys.first if self.last is None else self.last

    def _plain(self, value: Any) -> bytes:
        data, encoding = self._codec.encode(value)
        return bytes((encoding,)) + data

    def _sealed(self, field: str, pk: bytes, plain: bytes, key_id: int) -> bytes:
        keys = self.keys_of(key_id)
        if keys is None:
            raise self.no_key(key_id)
        return keys.seal(key_id, field, pk, plain, self.keys.random(cipher.RANDOM_BYTES))

    def blind_digest(self, field: str, described: bytes) -> bytes:
        """Return a digest of a value, which cannot be tried without the key. Raises SchemaMismatchError."""
        keys = self.keys_of(self.keys.first)
        if keys is None:
            raise self.no_key(self.keys.first)
        return keys.blind(field, described)

    def no_key(self, key_id: int) -> SchemaMismatchError:
        """Return the error for a write without the key that the store names."""
        return SchemaMismatchError(
            "this process does not have the key of encrypted fields, or of a blind index, of the collection",
            collection=self.collection,
            stored=key_id,
            declared=None,
            hint="Give the key with this id to every process: Database(url, keys=KeyRing({...})). It can read what it "
            "has keys for, and remove records.",
        )

    def other_key(self, key_id: int) -> SchemaMismatchError:
        """Return the error for a process that has another key under an id of the store."""
        return SchemaMismatchError(
            "this process has another key under the id of a key of the store",
            collection=self.collection,
            stored=key_id,
            declared=key_id,
            hint="Give every process the same key under one id; new keys get new ids.",
        )

    def opened_bytes(self, field: str, key: tuple[Any, ...], pk: bytes, sealed: object) -> bytes:
        """Return the plaintext of a sealed value. Raises DecryptionError."""
        key_id = cipher.key_id_of(sealed)
        if key_id is None:
            raise self.refusal("a value of an encrypted field is damaged", field, key, None)
        keys = self.keys_of(key_id)
        if keys is None:
            raise self.refusal("the key of an encrypted field is missing", field, key, key_id)
        plain = keys.open(field, pk, cast("bytes", sealed))
        if plain is None:
            hint = "It was changed, moved from another record, or sealed with another key under this id."
            raise self.refusal("a value of an encrypted field does not belong to its key", field, key, key_id, hint)
        return plain

    def open(self, field: str, key: tuple[Any, ...], pk: bytes, sealed: object) -> Any:
        """Return the stored value in a sealed one. Raises DecryptionError."""
        plain = self.opened_bytes(field, key, pk, sealed)
        try:
            # A dump of a store with another codec is loaded without opening what is sealed.
            return codec_of(plain[0], self._codec).decode(plain[1:], plain[0])
        except (DecodeError, IndexError) as error:
            raise self.refusal("a value of an encrypted field is damaged", field, key, None) from error

    def refusal(
        self, message: str, field: str, key: tuple[Any, ...], key_id: int | None, hint: str | None = None
    ) -> DecryptionError:
        """Return the error for a field that cannot be opened."""
        reason = MISSING_KEY if key_id is not None and self.keys_of(key_id) is None else "damaged"
        if hint is None and reason != MISSING_KEY:
            hint = _DAMAGED
        found = {"collection": self.collection, "model": self.model, "field": field, "key": key, "key_id": key_id}
        return DecryptionError(message, **found, reason=reason, hint=hint)

    # --- documents ---------------------------------------------------------------------------------------------

    def opened(self, document: Document, key: tuple[Any, ...], names: Collection[str] | None = None) -> Document:
        """Return a document with its sealed fields opened, all or some of them. Raises DecryptionError.

        ``key``: its primary key; if it is empty, the document has the key.
        """
        sealed = sealed_names(document)
        wanted = [name for name in sealed if names is None or name in names]
        if not wanted:
            return document
        key = key or self.key_in(document)
        pk = self.pack(key)
        found = {name: self.open(name, key, pk, document[name]) for name in wanted}
        return with_sealed({**document, **found}, [name for name in sealed if name not in found])

    def sealed(self, document: Document, pk: bytes, names: Collection[str], key_id: int | None = None) -> Document:
        """Return a document with the plain values of some fields sealed."""
        held = sealed_names(document)
        wanted = [name for name in names if document.get(name) is not None and name not in held]
        if not wanted:
            return document
        found = {name: self.seal(name, pk, document[name], key_id) for name in wanted}
        return with_sealed({**document, **found}, (*held, *wanted))

    def moved(self, document: Document, names: Collection[str], old: tuple[Any, ...], new: tuple[Any, ...]) -> Document:
        """Return a document with some sealed fields bound to another primary key. Raises DecryptionError."""
        before, after = self.pack(old), self.pack(new)
        if before == after:
            return document
        found = {
            name: self._sealed(name, after, self.opened_bytes(name, old, before, document[name]), self.writing_id())
            for name in sealed_names(document)
            if name in names
        }
        return {**document, **found}

    def settled(self, document: Document, before: Document | None, key: tuple[Any, ...], key_id: int) -> Document:
        """Return a document as a write stores it: sealed under the present key, and with unchanged values as they are.

        ``before``: the document of the record that it replaces, at the same primary key.
        """
        names = sealed_names(document)
        held = () if before is None else sealed_names(before)
        found: dict[str, bytes] = {}
        pk = self.pack(key) if names else b""
        for name in names:
            sealed, old = document[name], before[name] if before is not None and name in held else None
            if sealed == old and cipher.key_id_of(sealed) == key_id:
                continue
            plain = self.opened_bytes(name, key, pk, sealed)
            if cipher.key_id_of(old) == key_id and self._holds(name, pk, cast("bytes", old), plain):
                found[name] = cast("bytes", old)
            elif cipher.key_id_of(sealed) != key_id:
                found[name] = self._sealed(name, pk, plain, key_id)
        return {**document, **found} if found else document

    def brought(
        self, document: Document, key: tuple[Any, ...], sealed: Collection[str], plain: Collection[str], key_id: int
    ) -> Document:
        """Return a document with some fields sealed, some plain, and all sealed ones under one key.

        The fields are brought to these forms as they are, without upgrades. Raises DecryptionError.
        """
        opened = self.opened(document, key, plain) if plain else document
        made = self.sealed(opened, self.pack(key), sealed, key_id)
        return self.settled(made, None, key, key_id) if has_other_key(made, key_id) else made

    def _holds(self, field: str, pk: bytes, sealed: bytes, plain: bytes) -> bool:
        keys = self.keys_of(cipher.key_id_of(sealed))
        return keys is not None and keys.open(field, pk, sealed) == plain


def sealed_names(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the sealed fields that a document has."""
    reserved = document.get(RESERVED_FIELD)
    names: Any = cast("dict[str, Any]", reserved).get(SEALED) if type(reserved) is dict else None
    listed: list[Any] = names if names.__class__ is list else []
    return tuple(filter(document.__contains__, filter(_is_text, listed)))


def _is_text(name: object) -> bool:
    return isinstance(name, str)


def sealing_ids(document: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ids of the keys of the sealed fields that a document has."""
    found = (cipher.key_id_of(document[name]) for name in sealed_names(document))
    return (key_id for key_id in found if key_id is not None)


def has_other_key(document: Mapping[str, Any], key_id: int) -> bool:
    """Return whether a sealed field of a document has another key."""
    return any(cipher.key_id_of(document[name]) != key_id for name in sealed_names(document))


def with_sealed(document: Document, names: Collection[str]) -> Document:
    """Return a document whose ``$kv.e`` lists these fields."""
    reserved = dict(cast("Mapping[str, Any]", document.get(RESERVED_FIELD) or {}))
    reserved.pop(SEALED, None)
    if names:
        reserved[SEALED] = sorted(names)
    kept = {name: value for name, value in document.items() if name != RESERVED_FIELD}
    return {**kept, RESERVED_FIELD: reserved} if reserved else kept
