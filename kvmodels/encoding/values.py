"""The default value codec: msgpack, with extensions for what msgpack lacks.

    encoding 2   KvU64, eight bytes, little endian (as in Deno)
    encoding 3   bytes, as they are (as in Deno)
    encoding 4   every other value, msgpack

Rules of this module: what is read equals what was written and has its type; equal values without dicts in another
order have equal bytes; whatever cannot be stored is an InvalidValueError that names the path, whatever cannot be read
a DecodeError, and nothing else is ever raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, Final, Protocol, cast

from msgpack import unpackb

from kvmodels.encoding.extensions import (
    CONTAINERS,
    LARGE_BYTES,
    TIMESTAMP_AS_DATETIME,
    MalformedError,
    new_packer,
    pack,
    require_complete,
    unpack_extension,
)
from kvmodels.encoding.graph import has_shared_containers, is_graph, pack_graph, pack_tree, unpack_graph
from kvmodels.encoding.raw import (
    BYTES_ENCODING,
    MSGPACK_ENCODING,
    U64_ENCODING,
    decode_raw,
    encode_raw,
    refuse_value,
    require_document,
)
from kvmodels.errors import InvalidValueError

__all__ = ["BYTES_ENCODING", "MSGPACK_ENCODING", "U64_ENCODING", "MsgpackCodec", "ValueCodec"]

FIRST_EXTENSION: Final = b"\xc7"
"""The lowest first byte of an extension in msgpack."""

_UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)
"""All that the decoder raises for bytes that are no value; MalformedError is a ValueError."""


_FIRST: Final = itemgetter(0)
_SMALL_MAPS: Final = frozenset(range(0x80, 0x90))
_OF_MAPS: Final = frozenset({MSGPACK_ENCODING})


class ValueCodec(Protocol):
    """What turns values into stored bytes and back."""

    @property
    def name(self) -> str:
        """The name by which ``open_kv(codec=...)`` finds it."""
        ...

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Any storable value to bytes and the number of their encoding."""
        ...

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """The value again; ``key`` is the packed key that the error names."""
        ...

    def encode_document(self, document: dict[str, Any]) -> tuple[bytes, int]:
        """A freshly built document, in which nothing is shared, to bytes and the number of their encoding."""
        ...

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """The document again."""
        ...

    def decode_unchecked(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """What ``decode_document`` gives, or another value, where the bytes are no document."""
        ...


class MsgpackCodec:
    r"""Values as msgpack; safe to share between threads.

    Storable are None, ``UNDEFINED``, bool, int of any size, float, str, bytes, list, dict with any hashable keys, set,
    frozenset, datetime and re.Pattern, with shared containers and cycles, and ``KvU64`` as a whole value. ``bytearray``
    and ``memoryview`` come back as bytes, a timezone as its fixed offset. A tuple is storable only where a list cannot
    stand, as a dict key or a member of a set. Subclasses (OrderedDict, StrEnum, a named tuple) are refused: they would
    come back as something else.

    Examples:
        >>> from kvmodels.values import KvU64
        >>> codec = MsgpackCodec()
        >>> data, encoding = codec.encode({"tags": {"a", "b"}, "n": 2**70})
        >>> codec.decode(data, encoding) == {"tags": {"a", "b"}, "n": 2**70}
        True
        >>> codec.encode(b"raw"), codec.encode(KvU64(1))
        ((b'raw', 3), (b'\x01\x00\x00\x00\x00\x00\x00\x00', 2))
    """

    name = "msgpack"

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Encode any storable value; linear in its size.

        Returns:
            The bytes and the number of their encoding.

        Raises:
            InvalidValueError: something in it cannot be stored; ``path`` says where, as in ``$.a[0]``.
        """
        raw = encode_raw(value)
        if raw is not None:
            return raw
        kind = cast("type[object]", type(value))
        if kind in CONTAINERS and has_shared_containers(value):
            return _pack_graph(value), MSGPACK_ENCODING
        return _pack(value), MSGPACK_ENCODING

    def encode_document(self, document: dict[str, Any]) -> tuple[bytes, int]:
        """Encode a document that was built for this call, so that nothing in it is shared and no pass looks for it.

        A container that is shared nevertheless is stored once per place. Cost: about 0.6 us for six plain fields.

        Raises:
            InvalidValueError: something in it cannot be stored; ``path`` says where.
        """
        return _pack(document), MSGPACK_ENCODING

    def encode_list(self, values: list[Any]) -> tuple[bytes, int]:
        """The same for a list that was built for this call.

        Raises:
            InvalidValueError: something in it cannot be stored; ``path`` says where.
        """
        return _pack(values), MSGPACK_ENCODING

    def encode_many(self, values: Sequence[dict[str, Any]] | Sequence[list[Any]]) -> tuple[list[bytes], int]:
        """The bytes of documents or lists, each encoded as ``encode_document`` does, and the number of their encoding.

        Raises:
            InvalidValueError: something in one of them cannot be stored; ``path`` says where in it.
        """
        pack_next = new_packer()
        try:
            return list(map(pack_next, values)), MSGPACK_ENCODING
        except (InvalidValueError, ValueError, BufferError):
            return list(map(_pack, values)), MSGPACK_ENCODING

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Decode what ``encode`` returned.

        Args:
            data: the stored bytes.
            encoding: the number stored with them.
            key: the packed key they were found under, for the error.

        Raises:
            DecodeError: the bytes are damaged, or of an encoding that this codec does not read.
        """
        if encoding == BYTES_ENCODING:
            return data
        try:
            if encoding == MSGPACK_ENCODING:
                # Maps, arrays and text begin below every extension: the usual value costs one comparison here.
                if data[:1] >= FIRST_EXTENSION and is_graph(data):
                    return unpack_graph(data)
                if len(data) > LARGE_BYTES:
                    require_complete(data)
                return unpackb(data, ext_hook=unpack_extension, strict_map_key=False, timestamp=TIMESTAMP_AS_DATETIME)
        except _UNREADABLE as error:
            refuse_value(key, str(error) if isinstance(error, MalformedError) else "not msgpack", error)
        return decode_raw(data, encoding, key)

    def decode_many(self, values: Sequence[bytes], encodings: AbstractSet[int]) -> list[Any] | None:
        """Decode many maps at once: what ``decode`` gives for each; None where one may be something else, or damaged.

        Args:
            values: the stored bytes of at least one.
            encodings: the numbers that were stored with them.
        """
        try:
            if encodings != _OF_MAPS or not _SMALL_MAPS.issuperset(map(_FIRST, values)):
                return None
            if max(map(len, values)) > LARGE_BYTES:
                return None
            return [
                unpackb(data, ext_hook=unpack_extension, strict_map_key=False, timestamp=TIMESTAMP_AS_DATETIME)
                for data in values
            ]
        except (*_UNREADABLE, IndexError):  # without a first byte
            return None

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """Decode what ``encode_document`` returned.

        Raises:
            DecodeError: as ``decode``, and if the value is not a map with only str keys.
        """
        return require_document(self.decode(data, encoding, key), key)

    decode_unchecked = decode


def _pack(value: Any) -> bytes:
    try:
        return pack(value)
    except (InvalidValueError, ValueError, BufferError):
        return _pack_slowly(value)


def _pack_slowly(value: Any) -> bytes:
    """For the rare value that the packer refuses: find the path of the fault, take tuples as keys, go any depth."""
    try:
        return pack_tree(value)
    except ValueError:
        return _pack_graph(value)


def _pack_graph(value: Any) -> bytes:
    try:
        return pack_graph(value)
    except ValueError:
        raise InvalidValueError(
            "this value is too large for msgpack",
            path="$",
            hint="One str, bytes, list or dict takes 2 ** 32 - 1 elements.",
        ) from None
