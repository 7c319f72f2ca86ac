"""The builder of one atomic operation, shared by the synchronous and the asynchronous API.

Rules of this module: every call packs its key and value at once, so that an error points at the line that is
wrong and a later change of the value changes nothing; what needs the store happens in ``commit``. An operation is
used once.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Self, overload

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.keyvalue import PendingWrite, StoreFormat, pack_checked_key
from kvmodels.flows.lifetimes import lifetime_ms
from kvmodels.keys import Key
from kvmodels.operations import Arithmetic, Check, Delete, Entry, Mutation, Set, parse_versionstamp
from kvmodels.values import KvU64

__all__ = ["AtomicBuilder"]


class _Unset(Enum):
    UNSET = 0


class AtomicBuilder:
    """Collects checks and mutations; the subclasses commit them.

    Checks see the state before the operation, wherever they are called; mutations apply in call order.
    """

    __slots__ = ("_checks", "_form", "_lifetimes", "_mutations", "_used")

    def __init__(self, form: StoreFormat) -> None:
        self._form = form
        self._checks: list[Check] = []
        self._mutations: list[Mutation] = []
        self._lifetimes: dict[int, int] = {}
        self._used = False

    @overload
    def check(self, entry: Entry, /) -> Self: ...
    @overload
    def check(self, key: Key, versionstamp: str | None, /) -> Self: ...
    def check(self, key: Any, versionstamp: Any = _Unset.UNSET, /) -> Self:
        """Commit only if a key is unchanged.

        Args:
            key: an entry as it was read, or a key.
            versionstamp: with a key: the versionstamp that it must have, or None if it must be absent.

        Returns:
            This operation.

        Raises:
            InvalidKeyError: not a key, or the empty key.
            InvalidArgumentError: not a versionstamp, or a key without one; the operation was used.
        """
        if isinstance(key, Entry):
            if versionstamp is not _Unset.UNSET:
                raise InvalidArgumentError(
                    "an entry brings its own versionstamp", argument="versionstamp", hint="Pass the entry alone."
                )
            key, versionstamp = key.key, key.versionstamp
        elif versionstamp is _Unset.UNSET:
            raise InvalidArgumentError(
                "a check of a key needs a versionstamp",
                argument="versionstamp",
                hint="Pass an entry that was read, or a key and its versionstamp; None if the key must be absent.",
            )
        self._require_unused()
        self._checks.append(Check(pack_checked_key(key), _pack_versionstamp(versionstamp)))
        return self

    def set(self, key: Key, value: Any, *, expire_in: float | timedelta | None = None) -> Self:
        """Store a value, whatever is there.

        Args:
            key: the key, not empty.
            value: any value that can be stored; it is packed now.
            expire_in: seconds or a timedelta from the commit on, 0 or more, exact to the millisecond; None for ever.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` makes no sense; the operation was used.
        """
        lifetime = None if expire_in is None else lifetime_ms(expire_in)
        packed = self._form.pack_written_key(key)
        data, encoding = self._form.codec.encode(value)
        self._append(Set(packed, data, encoding))
        if lifetime is not None:
            self._lifetimes[len(self._mutations) - 1] = lifetime
        return self

    def delete(self, key: Key) -> Self:
        """Remove a key, if it is there.

        Args:
            key: the key, not empty.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidArgumentError: the operation was used.
        """
        return self._append(Delete(self._form.pack_written_key(key)))

    def sum(self, key: Key, n: int | KvU64) -> Self:
        """Add to a stored ``KvU64``, modulo 2**64; an absent key gets the operand. The deadline is cleared.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the operand is no unsigned 64-bit integer.
        """
        return self._append_arithmetic("sum", key, n)

    def min(self, key: Key, n: int | KvU64) -> Self:
        """Keep the smaller of a stored ``KvU64`` and the operand; an absent key gets the operand.

        The deadline is cleared, as by ``sum``.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the operand is no unsigned 64-bit integer.
        """
        return self._append_arithmetic("min", key, n)

    def max(self, key: Key, n: int | KvU64) -> Self:
        """Keep the larger of a stored ``KvU64`` and the operand; an absent key gets the operand.

        The deadline is cleared, as by ``sum``.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the operand is no unsigned 64-bit integer.
        """
        return self._append_arithmetic("max", key, n)

    def _append_arithmetic(self, kind: Literal["sum", "min", "max"], key: Key, n: int | KvU64) -> Self:
        operand = n if isinstance(n, KvU64) else KvU64(n)
        return self._append(Arithmetic(kind, self._form.pack_written_key(key), operand.value))

    def _append(self, mutation: Mutation) -> Self:
        self._require_unused()
        self._mutations.append(mutation)
        return self

    def _require_unused(self) -> None:
        if self._used:
            raise InvalidArgumentError(
                "the atomic operation was used", hint="Begin another one with kv.atomic(); to repeat it, read again."
            )

    def _take(self) -> PendingWrite:
        """What was built; afterwards the operation is used."""
        self._require_unused()
        self._used = True
        return PendingWrite(tuple(self._checks), tuple(self._mutations), self._lifetimes)


def _pack_versionstamp(versionstamp: Any) -> bytes | None:
    if versionstamp is None:
        return None
    try:
        return parse_versionstamp(versionstamp)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "not a versionstamp",
            argument="versionstamp",
            value=versionstamp,
            expected="20 hexadecimal digits or None",
            hint="Pass entry.versionstamp as it was read.",
        ) from None
