"""The encoding of keys and values of a store, or of a confined part of one.

Rules of this module: pure. Every key of the key-value API is packed and unpacked here, so that no key leaves a confined
part and no reservation is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import COMMIT_VERSIONSTAMP, Key, SetKey, decode_key, encode_key
from kvmodels.core.operations import Entry, Row, format_versionstamp
from kvmodels.errors import DecodeError, InvalidKeyError, KeyTooLargeError, ReservedKeyError
from kvmodels.limits import Limits

LIBRARY_PART = "__kvmodels__"
"""The first part of the library's own keys, in a confined part as well."""


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """The encoding of keys and values, and the first parts that raw writes may not use.

    Attributes:
        codec: packs and unpacks values.
        reserved: first key parts that belong to models, with the owner named in errors. It is read at every write, so
            its owner may change it. None lifts every reservation, including the library's own.
        root: the packed parts at the beginning of every stored key, which callers do not see.
        limits: limits in addition to those of the engine, or None.
    """

    codec: ValueCodec
    reserved: Mapping[str, str] | None
    root: bytes = b""
    limits: Limits | None = None

    def unreserved(self) -> StoreFormat:
        """Return the same format without reservations."""
        return replace(self, reserved=None)

    def confined(self, parts: Key, reserved: Mapping[str, str] | None, limits: Limits | None = None) -> StoreFormat:
        """Return the format of the part of the store below ``parts``, which callers do not see.

        ``parts``: at least one key part, appended to the parts that this format is confined to. Raises InvalidKeyError
        if ``parts`` is not a key, or empty.
        """
        inner = self.limits if limits is None else limits if self.limits is None else limits.within(self.limits)
        return replace(self, root=self.root + pack_checked_key(parts), reserved=reserved, limits=inner)

    def limits_within(self, engine: Limits) -> Limits:
        """Return the limits on an engine with these limits: the smaller value of each."""
        return engine if self.limits is None else self.limits.within(engine)

    def pack_key(self, key: Key) -> bytes:
        """Pack a key to read. Raises InvalidKeyError if it is not a key."""
        return self.root + encode_key(key)

    def pack_checked_key(self, key: Key) -> bytes:
        """Pack a key to check. Raises InvalidKeyError if it is not a key, or is the empty key."""
        return self.root + pack_checked_key(key)

    def pack_written_key(self, key: Key) -> bytes:
        """Pack a key to write. Raises InvalidKeyError or ReservedKeyError."""
        packed = pack_checked_key(key)
        if self.reserved is not None:
            name = _leading_text(packed)
            owner = "kvmodels" if name == LIBRARY_PART else self.reserved.get(name) if name is not None else None
            if owner is not None:
                raise ReservedKeyError("the key is reserved", key=decode_key(packed), owner=owner)
        return self.root + packed

    def pack_set_key(self, key: SetKey) -> tuple[bytes, bool]:
        """Pack the key of a set, and return whether it ends with the versionstamp of the commit."""
        given = cast("object", key)
        versionstamped = isinstance(given, (tuple, list)) and bool(key) and key[-1] is COMMIT_VERSIONSTAMP
        return self.pack_written_key(cast("Key", key[:-1] if versionstamped else key)), versionstamped

    def unpack_key(self, packed: bytes) -> Key:
        """Return the key without the root. Raises InvalidKeyError if the bytes are not an encoded key."""
        return decode_key(packed[len(self.root) :])

    def check_key_runes(self, packed: bytes, limits: Limits) -> None:
        """Refuse a key whose str parts have too many characters. Raises KeyTooLargeError."""
        maximum = limits.max_key_runes
        if maximum is None:
            return
        key = self.unpack_key(packed)
        size = sum(len(part) for part in key if isinstance(part, str))
        if size > maximum:
            raise KeyTooLargeError(
                "a key has too many characters",
                limit="max_key_runes",
                size=size,
                maximum=maximum,
                limits=limits.whose("max_key_runes"),
                key=key,
            )

    def entry(self, row: Row) -> Entry:
        """Unpack a stored row. Raises DecodeError if the key or the value cannot be read."""
        key = self._stored_key(row)
        value = self.codec.decode(row.value, row.encoding, row.key)
        return Entry(key, value, format_versionstamp(row.versionstamp), row.expire_at)

    def entry_at(self, packed: bytes, rows: Sequence[Row]) -> Entry:
        """Return the entry of a key of which a read has found one row or none. Raises DecodeError."""
        return self.entry(rows[0]) if rows else Entry(self.unpack_key(packed), None, None)

    def entry_without_value(self, row: Row) -> Entry:
        """Unpack a stored row without its value. Raises DecodeError if the key cannot be read."""
        return Entry(self._stored_key(row), None, format_versionstamp(row.versionstamp), row.expire_at)

    def _stored_key(self, row: Row) -> Key:
        try:
            return self.unpack_key(row.key)
        except InvalidKeyError as error:
            raise DecodeError(
                "a stored key cannot be read",
                key=row.key,
                reason=str(error),
                hint="The store is damaged, or another program wrote the key.",
            ) from error


def pack_checked_key(key: Key) -> bytes:
    """Pack a key to check or write. Raises InvalidKeyError if it is not a key, or is the empty key."""
    packed = encode_key(key)
    if not packed:
        raise InvalidKeyError("the key is empty", key=(), hint="The empty key can be read and listed, never written.")
    return packed


def _leading_text(packed: bytes) -> str | None:
    # Decided on the packed form, so that the application's str (a subclass with its own equality, a lone surrogate that
    # becomes U+FFFD) is tested in its stored form.
    if packed[0] != 2:
        return None
    end = packed.index(b"\x00")
    if packed[end + 1 : end + 2] == b"\xff":  # an escaped zero byte, which no collection has in its name
        return None
    return packed[1:end].decode()
