"""ULID: a 128-bit identifier that sorts by creation time.

48 bits of milliseconds since the epoch, then 80 random bits, written as 26 digits of Crockford's base 32.

Rules of this module: text, bytes, int and object forms sort in the same order. A generator returns strictly increasing
values from any number of threads, even if its clock steps back. After a fork, parent and child never create the same
value.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, cast, final
from uuid import UUID

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, SchemaSerializer, core_schema

from kvmodels._support.naming import show_public_path
from kvmodels.core.values import OrderedValue
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = [high + low for high in _ALPHABET for low in _ALPHABET]
_TO_PYTHON_BASE_32: Final = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
_PATTERN: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_is_canonical: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}").fullmatch
_RANDOM_BITS: Final = 80
_BYTES: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HINT: Final = "A ULID is 26 digits of Crockford's base 32, 16 bytes, a UUID, or an int below 2 ** 128."


def _text_of(number: int) -> str:
    return (
        _ALPHABET[number >> 125]
        + _ALPHABET[number >> 120 & 31]
        + "".join([_PAIRS[number >> shift & 1023] for shift in range(110, -1, -10)])
    )


def _canonical_text(text: str) -> str:
    """Return the text in upper case; refuse letters outside the alphabet (I, L, O, U) instead of guessing."""
    if _is_canonical(text):
        return text
    upper = text.upper() if text.isascii() else ""
    if _is_canonical(upper):
        return upper
    raise InvalidArgumentError("this text is not a ULID", argument="value", hint=_HINT)


def _canonical(value: object) -> str:
    if isinstance(value, str):
        return _canonical_text(value)
    if isinstance(value, ULID):
        return str(value)
    if isinstance(value, UUID):
        return _text_of(value.int)
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", value))
        if len(data) != _BYTES:
            raise InvalidArgumentError("these bytes are not a ULID", argument="value", hint=_HINT)
        return _text_of(int.from_bytes(data, "big"))
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < 1 << 128:
            raise InvalidArgumentError("this number is not a ULID", argument="value", hint=_HINT)
        return _text_of(value)
    raise InvalidValueError("this cannot be a ULID", type=type(value).__name__, hint=_HINT)


@final
class ULID(OrderedValue):
    """A sortable unique identifier; ``ULID()`` creates one that is greater than all that this process created before.

    Immutable, hashable, ordered, picklable, and usable as a pydantic type: Python input may be a ULID, its text or its
    16 bytes; in JSON it is the text. Parsing ignores case; output is upper case.

    Args:
        value: None creates a new ULID; otherwise 26 digits of text, 16 bytes, a UUID, an int below 2**128 or a ULID.

    Raises:
        InvalidArgumentError: the text, bytes or int is not a ULID.
        InvalidValueError: the value has another type.
        UnsupportedError: see ``UlidGenerator``.

    Examples:
        >>> ulid = ULID("01arz3ndektsv4rrffq69g5fav")
        >>> ulid
        ULID('01ARZ3NDEKTSV4RRFFQ69G5FAV')
        >>> ulid.timestamp_ms, ulid.datetime.isoformat()
        (1469922850259, '2016-07-30T23:54:10.259000+00:00')
        >>> ULID() < ULID(), ULID(bytes(ulid)) == ulid
        (True, True)
    """

    # Its value is the canonical text, not the number: keys and documents contain it, it has the same order, and
    # records are read far more often than the number of their ULID is used.
    __slots__ = ()
    _value: str

    # Pydantic looks here if a field of type Any holds a ULID, such as the primary key in a violation or an event.
    __pydantic_serializer__: ClassVar[SchemaSerializer] = SchemaSerializer(
        core_schema.any_schema(serialization=core_schema.to_string_ser_schema(when_used="json"))
    )

    def __init__(self, value: str | bytes | bytearray | memoryview | int | UUID | ULID | None = None) -> None:
        text = _text_of(_process_generator.next_int()) if value is None else _canonical(value)
        object.__setattr__(self, "_value", text)

    @classmethod
    def from_parts(cls, timestamp_ms: int, randomness: bytes) -> ULID:
        """Return the ULID with this time and these random bits.

        Args:
            timestamp_ms: milliseconds since the epoch, 0 to 2**48 - 1.
            randomness: 10 bytes.

        Raises:
            InvalidArgumentError: the time is out of range, or the randomness is not 10 bytes.
        """
        if not 0 <= timestamp_ms < 1 << 48:
            raise InvalidArgumentError(
                "the time is outside what a ULID holds", argument="timestamp_ms", hint="It is 0 to 2 ** 48 - 1."
            )
        if len(randomness) != _RANDOM_BITS // 8:
            raise InvalidArgumentError(
                "the random part of a ULID is 10 bytes", argument="randomness", hint="Pass 10 bytes."
            )
        return cls(timestamp_ms << _RANDOM_BITS | int.from_bytes(randomness, "big"))

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self) >> _RANDOM_BITS

    @property
    def datetime(self) -> datetime:
        """The time as an aware datetime in UTC.

        Raises:
            OverflowError: the time is after the year 9999; only a hand-made ULID can have such a time.
        """
        return _EPOCH + timedelta(milliseconds=self.timestamp_ms)

    @property
    def uuid(self) -> UUID:
        """The same 128 bits as a UUID (without a UUID version)."""
        return UUID(int=int(self))

    def __str__(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"ULID({self._value!r})"

    def __int__(self) -> int:
        return int(self._value.translate(_TO_PYTHON_BASE_32), 32)

    def __bytes__(self) -> bytes:
        return int(self).to_bytes(_BYTES, "big")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from_text = core_schema.no_info_after_validator_function(_validated, core_schema.str_schema(strict=True))
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.lax_or_strict_schema(
                lax_schema=core_schema.no_info_plain_validator_function(_validated),
                strict_schema=core_schema.is_instance_schema(cls),
            ),
            serialization=core_schema.to_string_ser_schema(when_used="json"),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "format": "ulid", "pattern": _PATTERN, "minLength": 26, "maxLength": 26}


def _validated(value: object) -> ULID:
    if isinstance(value, ULID):
        return value
    if isinstance(value, (str, bytes, UUID)):
        try:
            return ULID(value)
        except InvalidArgumentError:
            raise PydanticCustomError("ulid_parsing", "Input should be a valid ULID") from None
    raise PydanticCustomError("ulid_type", "Input should be a ULID, or its text, 16 bytes or UUID")


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


class UlidGenerator:
    """A source of strictly increasing ULIDs, safe to share between threads; it lives as long as the process.

    Within a millisecond, or when the clock steps back, the next value is the last one with its random part incremented
    by 1, as the ULID specification requires. If the random part overflows, generation fails, also as specified.
    Borrowing the next millisecond was rejected: it would hide a broken source of randomness, the only realistic cause
    of exhausting 2**80 values.

    ``clock_ms`` returns milliseconds since the epoch, 0 to 2**48 - 1, and may step back; ``randomness(n)`` returns
    ``n`` random bytes.

    Examples:
        >>> generator = UlidGenerator(clock_ms=lambda: 1469922850259, randomness=bytes)
        >>> ULID(generator.next_int()), ULID(generator.next_int())
        (ULID('01ARZ3NDEK0000000000000000'), ULID('01ARZ3NDEK0000000000000001'))
    """

    def __init__(
        self, *, clock_ms: Callable[[], int] = _clock_ms, randomness: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock_ms = clock_ms
        self._randomness = randomness
        self._lock = threading.Lock()
        self._last = -1
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.after_fork_in_child)

    def next_int(self) -> int:
        """Return a new ULID that is greater than all earlier ones of this generator, as an int below 2**128.

        Raises UnsupportedError if the random part is exhausted in this millisecond, or the clock is out of range.
        """
        now = self._clock_ms()
        with self._lock:
            last_ms = self._last >> _RANDOM_BITS
            value = self._fresh(now) if now > last_ms else self._last + 1
            if value >> _RANDOM_BITS > max(now, last_ms) or not 0 <= value >> _RANDOM_BITS < 1 << 48:
                raise UnsupportedError(
                    "no ULID is left in this millisecond",
                    reason="its 80 random bits are used up, or the clock is out of range",
                    hint="Try again in the next millisecond; if it happens again, clock or randomness is broken.",
                )
            self._last = value
        return value

    def _fresh(self, ms: int) -> int:
        return ms << _RANDOM_BITS | int.from_bytes(self._randomness(_RANDOM_BITS // 8), "big")

    def after_fork_in_child(self) -> None:
        """Make sure that values in the child differ from those of the parent; called automatically after a fork."""
        # Another thread of the parent may have held the lock. New random bits in a new millisecond give values that are
        # greater than all before the fork, and differ from the next values of the parent.
        self._lock = threading.Lock()
        if self._last >= 0:
            self._last = self._fresh((self._last >> _RANDOM_BITS) + 1)


_process_generator: Final = UlidGenerator()

show_public_path(ULID)
