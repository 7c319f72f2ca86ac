"""The default value codec: msgpack, with extensions for the types that msgpack lacks, and sums of numbers.

    encoding 2   KvU64, eight bytes, little endian (as in Deno)
    encoding 3   bytes, as they are (as in Deno)
    encoding 4   every other value, msgpack

Rules of this module: a value is read back with its type; equal values have equal bytes if their dicts have the same
order. A value that cannot be stored raises InvalidValueError with the path, bytes that cannot be read raise
DecodeError; no other error is ever raised. A sum keeps the type of the stored number: an int is a bigint, a float a
number, and a ``KvU64`` wraps at 2**64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, Final, Protocol, cast

from msgpack import unpackb

from kvmodels._support.naming import short_repr
from kvmodels.codecs.base import (
    BYTES_ENCODING,
    MSGPACK_ENCODING,
    decode_raw,
    encode_raw,
    refuse_value,
    require_document,
)
from kvmodels.codecs.msgpack_extensions import (
    CONTAINERS,
    LARGE_BYTES,
    TIMESTAMP_AS_DATETIME,
    MalformedError,
    has_shared_containers,
    is_graph,
    new_packer,
    pack_graph,
    pack_tree,
    require_complete,
    unpack_extension,
    unpack_graph,
)
from kvmodels.core.keys import Key
from kvmodels.core.operations import IntegerSum
from kvmodels.core.values import MAX_U64, KvU64
from kvmodels.errors import InvalidArgumentError, InvalidValueError

FIRST_EXTENSION: Final = b"\xc7"
"""The lowest first byte of a msgpack extension."""

_UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)
"""All exceptions that the decoder raises for invalid bytes; MalformedError is a ValueError."""


_FIRST: Final = itemgetter(0)
_SMALL_MAPS: Final = frozenset(range(0x80, 0x90))
_OF_MAPS: Final = frozenset({MSGPACK_ENCODING})


class ValueCodec(Protocol):
    """Converts values to stored bytes and back."""

    @property
    def name(self) -> str:
        """The name of the codec in ``open_kv(codec=...)``."""
        ...

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Return the bytes of any storable value and the number of their encoding."""
        ...

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Return the decoded value; ``key`` is the packed key for error messages."""
        ...

    def encode_document(self, document: dict[str, Any]) -> tuple[bytes, int]:
        """Encode a document that was built for this call, so that no containers are shared."""
        ...

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """Return the decoded document."""
        ...

    def decode_unchecked(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Return the decoded document, or another value if the bytes are not a document."""
        ...

    def decode_operand(self, data: bytes, encoding: int) -> Any:
        """Return the value for a sum; a number wrapped in an object stays an object."""
        ...


class MsgpackCodec:
    r"""Encodes values as msgpack; safe to share between threads.

    Storable are None, ``UNDEFINED``, bool, int of any size, float, str, bytes, list, dict with any hashable keys, set,
    frozenset, datetime and re.Pattern, with shared containers and cycles, and ``KvU64`` as a whole value. ``bytearray``
    and ``memoryview`` are read back as bytes, a timezone as its fixed offset. A tuple is storable only as a dict key or
    a member of a set, where a list is impossible. Subclasses (OrderedDict, StrEnum, a named tuple) are refused: they
    would be read back as another type.

    Examples:
        >>> from kvmodels.core.values import KvU64
        >>> codec = MsgpackCodec()
        >>> data, encoding = codec.encode({"tags": {"a", "b"}, "n": 2**70})
        >>> codec.decode(data, encoding) == {"tags": {"a", "b"}, "n": 2**70}
        True
        >>> codec.encode(b"raw"), codec.encode(KvU64(1))
        ((b'raw', 3), (b'\x01\x00\x00\x00\x00\x00\x00\x00', 2))
    """

    name = "msgpack"

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Encode any storable value; linear in its size."""
        raw = encode_raw(value)
        if raw is not None:
            return raw
        kind = cast("type[object]", type(value))
        if kind in CONTAINERS and has_shared_containers(value):
            return _pack_graph(value), MSGPACK_ENCODING
        return _pack(value), MSGPACK_ENCODING

    def encode_document(self, document: dict[str, Any] | list[Any]) -> tuple[bytes, int]:
        """Encode a document, or list, that was built for this call, without the search for shared containers.

        A container that is shared nevertheless is stored once per occurrence, unless the fast packer refuses the
        document: then it becomes a graph, because it may contain itself. Cost: about 0.6 us for six plain fields.
        Raises like ``encode``.
        """
        return _pack(document), MSGPACK_ENCODING

    def encode_many(self, values: Sequence[dict[str, Any]] | Sequence[list[Any]]) -> tuple[list[bytes], int]:
        """Encode documents or lists like ``encode_document``; all have the same encoding number."""
        pack_next = new_packer().pack
        try:
            return list(map(pack_next, values)), MSGPACK_ENCODING
        except (InvalidValueError, ValueError, BufferError):
            return list(map(_pack, values)), MSGPACK_ENCODING

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Decode the result of ``encode``."""
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
        """Decode many maps at once, like ``decode``; None if one may be another value, or damaged.

        ``values`` holds at least one value, ``encodings`` the encoding number of each.
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
        except (*_UNREADABLE, IndexError):  # for empty bytes
            return None

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """Decode the result of ``encode_document``."""
        return require_document(self.decode(data, encoding, key), key)

    decode_unchecked = decode_operand = decode


def _pack(value: Any) -> bytes:
    try:
        packed: bytes = new_packer().pack(value)
        return packed
    except (InvalidValueError, ValueError, BufferError):
        return _pack_slowly(value)


def _pack_slowly(value: Any) -> bytes:
    """Pack a value that the fast packer refuses: report the path of the fault, accept tuples as keys, and any depth."""
    if type(value) in CONTAINERS and has_shared_containers(value):
        return _pack_graph(value)  # the tree of a value that contains itself has no end
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


Number = int | float
Stored = tuple[bytes, int]

_NAMES: Final[Mapping[type, str]] = {int: "BigInt", float: "Number", KvU64: "KvU64"}
"""The names of the types in Deno's errors."""


_MOST: Final = (1 << 63) - 1


class Bounds:
    """The allowed range of a sum; with ``clamp``, a result outside becomes the nearer bound instead of an error."""

    def __init__(self, operand: Number, minimum: Number | None, maximum: Number | None, *, clamp: bool) -> None:
        for argument, bound in (("minimum", minimum), ("maximum", maximum)):
            if bound is None:
                continue
            if type(bound) is not type(operand):
                raise InvalidValueError(
                    "a bound of a sum has another type than the operand",
                    path=argument,
                    type=type(bound).__name__,
                    hint="An int and a float are different things here: write both as the one or the other.",
                )
            if bound != bound:
                raise InvalidArgumentError("a bound of a sum is not a number", argument=argument, value=bound)
        if minimum is not None and maximum is not None and minimum > maximum:
            raise InvalidArgumentError("the minimum is above the maximum", argument="minimum", value=minimum)
        if clamp and minimum is None and maximum is None:
            raise InvalidArgumentError(
                "clamp=True needs a minimum or a maximum",
                argument="clamp",
                value=clamp,
                hint="Give minimum, maximum or both.",
            )
        self.minimum = minimum
        self.maximum = maximum
        self.clamp = clamp

    def hold(self, result: Number, key: Key) -> Number:
        """Return the result or, with ``clamp``, the nearer bound; raise InvalidValueError for a result outside.

        A NaN is outside of any bound.
        """
        low = self.minimum is None or result >= self.minimum
        high = self.maximum is None or result <= self.maximum
        if low and high:
            return result
        bound = self.maximum if low else self.minimum
        assert bound is not None, "a bound that was passed is there"
        if self.clamp and result == result:
            return bound
        passed = f"{short_repr(result)} is {'above the maximum' if low else 'below the minimum'} {short_repr(bound)}"
        raise InvalidValueError(
            "the result of a sum is outside its range",
            key=key,
            hint=f"Nothing was applied: {passed}. Pass clamp=True to keep the nearest value of the range.",
        )


def sum_function(codec: ValueCodec, operand: Number, bounds: Bounds, key: Key) -> Callable[[Stored | None], Stored]:
    """Return the function that adds ``operand`` to a stored number of its type; an absent key is set to the operand.

    As in Deno, bounds apply to a sum and not to the operand that is stored in an absent key. An int without bounds that
    fits in 64 bits can also be added to a stored ``KvU64``, modulo 2**64. ``key`` is that of errors.
    """

    def add(stored: Stored | None) -> Stored:
        if stored is None:
            return codec.encode(operand)  # unchecked against the bounds, as in Deno
        present: object = codec.decode_operand(*stored)
        if isinstance(present, KvU64) and isinstance(operand, int):
            return codec.encode(_wrapped_sum(present, operand, bounds, key))
        # isinstance accepts a bool as an int, but bools are not summed.
        if type(present) is not type(operand) or not isinstance(present, (int, float)):
            raise _mismatch(present, operand, key)
        result = present + operand
        # JavaScript has only one NaN; the sign of Python's NaN would be stored.
        return codec.encode(bounds.hold(math.nan if result != result else result, key))

    return add


def integer_sum(operand: Number, bounds: Bounds, encoded: Stored) -> IntegerSum | None:
    """Return the sum in the form that an engine can compute; None if only ``sum_function`` can.

    ``encoded`` is the operand as the codec stores it. All numbers are small enough for signed arithmetic of 64 bits.
    """
    data, encoding = encoded
    low, high = bounds.minimum, bounds.maximum
    low, high = (-_MOST if low is None else low), (_MOST if high is None else high)
    if encoding != MSGPACK_ENCODING or not (
        isinstance(operand, int) and isinstance(low, int) and isinstance(high, int)
    ):
        return None
    if abs(operand) > _MOST // 2 or min(low, high) < -_MOST or max(low, high) > _MOST:
        return None
    return IntegerSum(operand, low, high, bounds.clamp, data)


def _wrapped_sum(present: KvU64, operand: int, bounds: Bounds, key: Key) -> KvU64:
    if bounds.minimum is not None or bounds.maximum is not None:
        raise InvalidValueError(
            "a sum on a KvU64 takes no bounds",
            key=key,
            hint="Nothing was applied. Store an int instead, which has any size and may be bounded.",
        )
    if not 0 <= operand <= MAX_U64:
        raise _mismatch(present, operand, key)
    return KvU64((present.value + operand) & MAX_U64)


def _mismatch(present: object, operand: Number, key: Key) -> InvalidValueError:
    stored = _NAMES.get(type(present), type(present).__name__)
    return InvalidValueError(
        "the stored value of a sum has another type",
        key=key,
        type=f"{stored} and {_NAMES[type(operand)]}",
        hint="Nothing was applied. A stored int takes an int, a float a float, and a KvU64 a KvU64 or an int below "
        "2**64; other values take no sum.",
    )
