"""What every codec shares: the encodings of KvU64 and bytes, and the errors for what cannot be read.

Rules of this module: the numbers of encodings are those that are stored; 1 to 3 are Deno's.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from kvmodels.errors import DecodeError, InvalidKeyError
from kvmodels.keys import decode_key
from kvmodels.values import KvU64

__all__ = [
    "BYTES_ENCODING",
    "MSGPACK_ENCODING",
    "U64_ENCODING",
    "V8_ENCODING",
    "decode_raw",
    "encode_raw",
    "refuse_value",
    "require_document",
]

V8_ENCODING: Final = 1
U64_ENCODING: Final = 2
BYTES_ENCODING: Final = 3
MSGPACK_ENCODING: Final = 4

_CODEC_OF: Final = {V8_ENCODING: "v8", MSGPACK_ENCODING: "msgpack"}
_U64_BYTES: Final = 8


def encode_raw(value: Any) -> tuple[bytes, int] | None:
    """A value that is bytes as a whole, encoded; None for every other value.

    Of a memoryview only the window is stored: whatever surrounds it in its buffer belongs to somebody else.
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
    """What ``encode_raw`` encoded.

    Raises:
        DecodeError: a KvU64 of a wrong size, or an encoding of another codec, which is named.
    """
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
        refuse_value(key, "a KvU64 of a wrong size")
    return KvU64(int.from_bytes(data, "little"))


def require_document(value: Any, key: bytes) -> dict[str, Any]:
    """The value, which must be a dict with only str keys.

    Raises:
        DecodeError: it is something else.
    """
    if type(value) is not dict:
        refuse_value(key, "a record that is not a map")
    for name in cast("dict[object, object]", value):
        if type(name) is not str:
            refuse_value(key, "a record with a field name that is no str")
    return cast("dict[str, Any]", value)


def refuse_value(key: bytes, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise the error for a value that cannot be read; ``reason`` says what it is, without any of its data."""
    raise DecodeError(
        "a stored value is damaged",
        key=_key_of(key),
        reason=reason,
        hint="The file was damaged, or another program wrote to it: restore a backup, or remove the key "
        'with kv.unsafe(); db.check(repair="all") removes records that are no documents.',
    ) from cause


def _key_of(key: bytes) -> Any:
    try:
        return decode_key(key)
    except InvalidKeyError:
        return key
