"""The interface of value codecs, and the parts that all share: KvU64, bytes, containers compared by identity.

Containers that are keys of a Map or members of a Set hash and compare by identity, as in JavaScript.

Rules of this module: encoding numbers are stored; 1 to 3 are Deno's. Only a reader creates containers that compare by
identity; everywhere else a container is a plain dict, list or set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from kvmodels.core.keys import decode_key
from kvmodels.core.values import KvArray, KvMap, KvU64
from kvmodels.errors import DecodeError, InvalidKeyError


class _ByIdentity:
    """Objects that equal only themselves, as containers do in JavaScript."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)


class IdentityDict(_ByIdentity, dict[Any, Any]):  # type: ignore[misc]  # containers have no hash
    """A JavaScript object used as a key or member."""

    __slots__ = ()


class IdentityMap(_ByIdentity, KvMap):  # type: ignore[misc]  # containers have no hash
    """A Map used as a key or member."""

    __slots__ = ()


class IdentityList(_ByIdentity, KvArray):  # type: ignore[misc]  # containers have no hash
    """An array used as a key or member."""

    __slots__ = ()


class IdentitySet(_ByIdentity, set[Any]):  # type: ignore[misc]  # containers have no hash
    """A Set used as a key or member."""

    __slots__ = ()


BY_IDENTITY: Final[Mapping[type, type]] = {
    dict: IdentityDict,
    KvMap: IdentityMap,
    list: IdentityList,
    KvArray: IdentityList,
    set: IdentitySet,
}
"""The type of a container as a key or member, by its type elsewhere."""

V8_ENCODING: Final = 1
U64_ENCODING: Final = 2
BYTES_ENCODING: Final = 3
MSGPACK_ENCODING: Final = 4

_CODEC_OF: Final = {V8_ENCODING: "v8", MSGPACK_ENCODING: "msgpack"}
_U64_BYTES: Final = 8


def encode_raw(value: Any) -> tuple[bytes, int] | None:
    """Return the encoding of a value that consists only of bytes or is a KvU64; None for every other value.

    Of a memoryview, only its window is stored: the rest of its buffer belongs to other code.
    """
    kind = cast("type[object]", type(value))
    if kind is KvU64:
        return value.value.to_bytes(_U64_BYTES, "little"), U64_ENCODING
    if kind is bytes:
        return value, BYTES_ENCODING
    if kind is bytearray or kind is memoryview:
        return bytes(value), BYTES_ENCODING
    return None


def decode_raw(data: bytes, encoding: int, key: bytes) -> bytes | KvU64:
    """Decode a value of ``encode_raw``. Raises DecodeError for a KvU64 of the wrong size, or an unknown encoding."""
    if encoding == BYTES_ENCODING:
        return data
    if encoding != U64_ENCODING:
        codec = _CODEC_OF.get(encoding)
        raise DecodeError(
            "a stored value has an encoding that this codec does not read",
            key=_key_of(key),
            reason=f"encoding {encoding}",
            hint=f'Open the store with codec="{codec}".' if codec else "Another program wrote it, or a newer version.",
        )
    if len(data) != _U64_BYTES:
        refuse_value(key, "a KvU64 with the wrong size")
    return KvU64(int.from_bytes(data, "little"))


def require_document(value: Any, key: bytes) -> dict[str, Any]:
    """Return the value; raise DecodeError unless it is a dict with only str keys."""
    if type(value) is not dict:
        refuse_value(key, "a record that is not a map")
    for name in cast("dict[object, object]", value):
        if type(name) is not str:
            refuse_value(key, "a record with a field name that is not a str")
    return cast("dict[str, Any]", value)


def refuse_value(key: bytes, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise the error for a value that cannot be read; ``reason`` must not contain any of its data."""
    raise DecodeError(
        "a stored value is damaged",
        key=_key_of(key),
        reason=reason,
        hint="The file was damaged, or another program wrote to it: restore a backup, or remove the key "
        'with kv.unsafe(); db.check(repair="all") removes undecodable records that no foreign key '
        "may refer to.",
    ) from cause


def _key_of(key: bytes) -> Any:
    try:
        return decode_key(key)
    except InvalidKeyError:
        return key
