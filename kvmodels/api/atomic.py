"""Builders of atomic operations and of the raw writes of a transaction, for both APIs.

Rules of this module: every call packs its key and value at once, so that an error points at the faulty line and later
changes of the value have no effect. Everything that needs the store happens in ``commit``. An operation can be
committed only once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Self, cast, overload

from kvmodels.codecs.msgpack import Bounds, Number, integer_sum, sum_function
from kvmodels.core.keys import Key, SetKey
from kvmodels.core.operations import (
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Delete,
    Entry,
    Mutation,
    Set,
)
from kvmodels.core.ulid import ULID
from kvmodels.core.values import KvU64
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError
from kvmodels.flows.arguments import lifetime_ms, require_flag, versionstamp_of
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import operations as keyvalue
from kvmodels.flows.kv import queue as queueing
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.indexing.budget import check_budget

_KINDS: Final = ("set", "delete", "sum", "min", "max")


class Unset(Enum):
    """The default of a value that may be None."""

    UNSET = 0


class _Deadline(NamedTuple):
    """The arguments of a sum, min or max for the deadline of its key."""

    expire_in: float | timedelta | None
    keep: bool

    def lifetime_ms(self) -> int | None:
        """Return the lifetime in milliseconds. Raises InvalidArgumentError, InvalidValueError."""
        require_flag("keep_deadline", self.keep)
        return None if self.expire_in is None else lifetime_ms(self.expire_in)


class AtomicBuilder:
    """Collects checks and mutations; the subclasses commit them.

    All checks compare the state before the operation, in whatever order they are added. Mutations run in call order.
    """

    __slots__ = ("_checks", "_form", "_lifetimes", "_messages", "_mutations", "_used")

    def __init__(self, form: StoreFormat) -> None:
        self._form = form
        self._checks: list[Check] = []
        self._mutations: list[Mutation] = []
        self._lifetimes: dict[int, int] = {}
        self._messages: list[queueing.NewMessage] = []
        self._used = False

    @overload
    def check(self, entry: Entry, /) -> Self: ...
    @overload
    def check(self, key: Key, versionstamp: str | None, /) -> Self: ...
    def check(self, key: Any, versionstamp: Any = Unset.UNSET, /) -> Self:
        """Commit only if a key is unchanged.

        Args:
            key: an entry that was read, or a key.
            versionstamp: only with a key: the versionstamp that it must have, or None if it must be absent.

        Returns:
            This operation.

        Raises:
            InvalidKeyError: not a key, or the empty key.
            InvalidArgumentError: not a versionstamp, a key without one, or the operation was already committed.
        """
        if isinstance(key, Entry):
            if versionstamp is not Unset.UNSET:
                raise InvalidArgumentError(
                    "an entry has its own versionstamp", argument="versionstamp", hint="Pass the entry alone."
                )
            key, versionstamp = key.key, key.versionstamp
        elif versionstamp is Unset.UNSET:
            raise InvalidArgumentError(
                "a check of a key needs a versionstamp",
                argument="versionstamp",
                hint="Pass an entry that was read, or a key and its versionstamp; None if the key must be absent.",
            )
        self._require_unused()
        self._checks.append(Check(self._form.pack_checked_key(key), _pack_versionstamp(versionstamp)))
        return self

    def set(self, key: SetKey, value: Any, *, expire_in: float | timedelta | None = None) -> Self:
        """Store a value, replacing any existing one.

        Args:
            key: the key, not empty; its last part may be ``COMMIT_VERSIONSTAMP``.
            value: any value that can be stored; it is packed now.
            expire_in: lifetime from the commit on, seconds or a timedelta, 0 or more, exact to the millisecond; None:
                no deadline.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` is invalid, or the operation was already committed.
        """
        lifetime = None if expire_in is None else lifetime_ms(expire_in)
        packed, versionstamped = self._form.pack_set_key(key)
        data, encoding = self._form.codec.encode(value)
        return self._append(Set(packed, data, encoding, versionstamped=versionstamped), lifetime)

    def delete(self, key: Key) -> Self:
        """Remove a key; no effect if it is absent.

        Args:
            key: the key, not empty.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidArgumentError: the operation was already committed.
        """
        return self._append(Delete(self._form.pack_written_key(key)))

    def sum(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> Self:
        """Add to a stored ``KvU64``, modulo 2**64; an absent key is set to the operand.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: lifetime from the commit on, as in ``set``; None: the deadline of the key is removed.
            keep_deadline: a key that is present keeps its deadline, or stays without one; ``expire_in`` is then the
                lifetime of a key that was absent. KV Connect cannot do this.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the operand is not an unsigned 64-bit integer, or ``expire_in`` is
                invalid.

        Examples:
            Count the calls of a minute: the first one sets the deadline, and the others keep it.

            >>> from kvmodels import open_kv
            >>> now = 1_700_000_000_000
            >>> with open_kv(clock=lambda: now) as kv:
            ...     for _ in range(4):
            ...         _ = kv.atomic().sum(("calls", "ada"), 1, expire_in=60, keep_deadline=True).commit()
            ...         print(kv.get(("calls", "ada")).value)
            ...         now += 25_000
            KvU64(1)
            KvU64(2)
            KvU64(3)
            KvU64(1)
        """
        return self._append_arithmetic("sum", key, n, _Deadline(expire_in, keep_deadline))

    def min(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> Self:
        """Keep the smaller of a stored ``KvU64`` and the operand; an absent key is set to the operand.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: as in ``sum``.
            keep_deadline: as in ``sum``.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError, InvalidValueError, InvalidArgumentError: as for ``sum``.
        """
        return self._append_arithmetic("min", key, n, _Deadline(expire_in, keep_deadline))

    def max(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> Self:
        """Keep the larger of a stored ``KvU64`` and the operand; an absent key is set to the operand.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: as in ``sum``.
            keep_deadline: as in ``sum``.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError, InvalidValueError, InvalidArgumentError: as for ``sum``.
        """
        return self._append_arithmetic("max", key, n, _Deadline(expire_in, keep_deadline))

    def mutate(
        self,
        kind: Literal["set", "delete", "sum", "min", "max"],
        key: SetKey,
        value: Any = Unset.UNSET,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        clamp: bool = False,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> Self:
        """Add a mutation by name, like Deno's ``mutate``; ``sum`` accepts any kind of number.

        A sum adds a value to a stored one of the same type: an int to an int of any size (Deno's bigint), a float to a
        float (Deno's number), a ``KvU64`` to a ``KvU64``, modulo 2**64. An int below 2**64 can also be added to a
        ``KvU64``. An absent key is set to the operand.

        Args:
            kind: ``"set"``, ``"delete"``, ``"sum"``, ``"min"`` or ``"max"``.
            key: the key, not empty; for a set, its last part may be ``COMMIT_VERSIONSTAMP``.
            value: the value to store, or the operand, which is a ``KvU64`` for ``min`` and ``max``; omitted for a
                delete.
            minimum: only for a sum of int or float: the smallest result allowed, with the type of the operand. Bounds
                apply to sums only: an absent key is set to the operand even if it is outside the bounds, as in Deno.
            maximum: like ``minimum``, the largest result allowed.
            clamp: set a result outside the bounds to the nearer bound instead of failing the commit.
            expire_in: not for a delete; lifetime as in ``set`` and ``sum``.
            keep_deadline: only for sum, min and max, as in ``sum``.

        Returns:
            This operation.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError: a value or a bound has the wrong type.
            InvalidArgumentError: an unknown kind, a missing or superfluous value, a bound or deadline that this kind
                does not take, or the operation was already committed.

        Examples:
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     _ = kv.set(("stock",), 5)
            ...     for sold in (3, 4):
            ...         _ = kv.atomic().mutate("sum", ("stock",), -sold, minimum=0, clamp=True).commit()
            ...     kv.get(("stock",)).value
            0
        """
        deadline = _Deadline(expire_in, keep_deadline)
        _require_fitting(kind, value, {"minimum": minimum, "maximum": maximum, "clamp": clamp or None}, deadline)
        if kind == "set":
            return self.set(key, value, expire_in=expire_in)
        # Only the key of a set may end with COMMIT_VERSIONSTAMP; packing refuses it for other kinds.
        plain = cast("Key", key)
        if kind == "delete":
            return self.delete(plain)
        if isinstance(value, KvU64):
            if minimum is not None or maximum is not None or clamp:
                raise InvalidArgumentError(
                    "a sum on a KvU64 takes no bounds",
                    argument="minimum" if minimum is not None else "maximum" if maximum is not None else "clamp",
                    hint="Store an int or a float instead, whose sums may be bounded.",
                )
            return self._append_arithmetic(kind, plain, value, deadline)
        if kind != "sum" or isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidValueError(
                "this operand cannot be combined with a stored value",
                path=kind,
                type=type(value).__name__,
                hint="A sum takes an int, a float or a KvU64, min and max take a KvU64.",
            )
        # A subclass of a number type, such as an IntEnum, cannot be stored as it is, so its number is used.
        operand = int(value) if isinstance(value, int) else float(value)
        return self._append_sum(plain, operand, Bounds(operand, minimum, maximum, clamp=clamp), deadline)

    def enqueue(
        self,
        value: Any,
        *,
        delay: float | timedelta = 0,
        keys_if_undelivered: Iterable[Key] = (),
        backoff_schedule: Iterable[float | timedelta] | None = None,
    ) -> Self:
        """Put a message into the queue as part of the operation.

        Args:
            value: the message, any storable value; it is packed now.
            delay: seconds or a timedelta from the commit to the first delivery, at most 30 days.
            keys_if_undelivered: keys that store the message if every delivery fails.
            backoff_schedule: seconds or timedeltas before each redelivery of a message whose handler failed, at most 5
                of an hour each; None for 0.1, 1, 5, 30 and 60 seconds, ``()`` for no redelivery.

        Returns:
            This operation.

        Raises:
            InvalidValueError: the message cannot be stored, or a duration has the wrong type.
            InvalidArgumentError: a duration is out of range, there are too many, or the operation was already
                committed.
            InvalidKeyError, ReservedKeyError: a key cannot be written.
        """
        self._require_unused()
        self._messages.append(
            queueing.new_message(
                self._form,
                str(ULID()),
                value,
                delay=delay,
                keys_if_undelivered=keys_if_undelivered,
                backoff_schedule=backoff_schedule,
            )
        )
        return self

    def _append_sum(self, key: Key, operand: Number, bounds: Bounds, deadline: _Deadline) -> Self:
        lifetime = deadline.lifetime_ms()
        codec = self._form.codec
        packed, encoded = self._form.pack_written_key(key), codec.encode(operand)
        add = sum_function(codec, operand, bounds, key)
        addition = integer_sum(operand, bounds, encoded)
        mutation = Apply(packed, add, len(encoded[0]), keeps_deadline=deadline.keep, addition=addition)
        return self._append(mutation, lifetime)

    def _append_arithmetic(
        self, kind: Literal["sum", "min", "max"], key: Key, n: int | KvU64, deadline: _Deadline
    ) -> Self:
        lifetime = deadline.lifetime_ms()
        operand = n if isinstance(n, KvU64) else KvU64(n)
        packed = self._form.pack_written_key(key)
        return self._append(Arithmetic(kind, packed, operand.value, keeps_deadline=deadline.keep), lifetime)

    def _append(self, mutation: Mutation, lifetime: int | None = None) -> Self:
        self._require_unused()
        if lifetime is not None:
            self._lifetimes[len(self._mutations)] = lifetime
        self._mutations.append(mutation)
        return self

    def _require_unused(self) -> None:
        if self._used:
            raise InvalidArgumentError(
                "the atomic operation was committed already",
                hint="Begin another one with kv.atomic(); to repeat it, read again.",
            )

    def _take(self) -> keyvalue.PendingWrite:
        """Return the complete write and mark the operation as used."""
        self._require_unused()
        self._used = True
        return keyvalue.PendingWrite(
            tuple(self._checks), tuple(self._mutations), self._lifetimes, tuple(self._messages)
        )


class TransactionWrite(AtomicBuilder):
    """One raw write of a transaction, or of a namespace in it: built like any atomic operation, then added to it."""

    __slots__ = ("_flows",)

    def __init__(self, flows: transaction_flows.TransactionFlows, form: StoreFormat) -> None:
        flows.require_open()
        super().__init__(form)
        self._flows = flows

    def added(self) -> Flow[None]:
        """Add the mutations and messages to the transaction; lifetimes count from its beginning."""
        yield from ()  # a flow, so that the write is serialised with the other work of the transaction
        built = self._take()
        self._require_limits(built)
        if not self._flows.context.traits.functions and any(isinstance(one, Apply) for one in built.mutations):
            raise UnsupportedError(
                "the engine computes sums of KvU64 only",
                reason="functions",
                hint="Use a KvU64 without bounds, or read the value and set it; the transaction checks what it read.",
            )
        for position, mutation in enumerate(built.mutations):
            lifetime = built.lifetimes.get(position)
            if lifetime is not None and not isinstance(mutation, Delete):
                self._flows.write(mutation._replace(expire_at=self._flows.now_ms + lifetime))
            else:
                self._flows.write(mutation)
        for message in built.messages:
            self._flows.enqueue(message, self._form)

    def _require_limits(self, built: keyvalue.PendingWrite) -> None:
        """Refuse a write above the limits of a namespace; the commit checks those of the store."""
        if self._form.limits is None:
            return
        limits = self._form.limits_within(self._flows.limits)
        letters = tuple(letter for new in built.messages for letter in new.message.dead_letters)
        for part in (*built.mutations, *letters):
            self._form.check_key_runes(part.key, limits)
        check_budget(AtomicWrite(mutations=(*built.mutations, *letters)), limits)

    def checks(self) -> Flow[None]:
        """Add the checks to the transaction."""
        for check in self._take().checks:
            yield from self._flows.check(check.key, check.versionstamp)


def _require_fitting(kind: object, value: object, bounds: dict[str, object], deadline: _Deadline) -> None:
    """Refuse a missing value, and arguments that a mutation of this kind does not take."""
    if kind not in _KINDS:
        raise InvalidArgumentError("there is no mutation of this kind", argument="kind", value=kind, expected=_KINDS)
    if kind == "delete":
        # Deno tests whether the value is truthy, so None and 0 pass there, and here too.
        if value is not Unset.UNSET and value:
            raise InvalidArgumentError("a delete takes no value", argument="value", hint="Leave it out.")
    elif value is Unset.UNSET:
        raise InvalidArgumentError(
            "this mutation needs a value", argument="value", hint="Give the value to store, or the operand."
        )
    for argument, bound in bounds.items():
        if bound is not None and kind != "sum":
            raise InvalidArgumentError(
                "only a sum has bounds", argument=argument, value=bound, hint="Leave it out, or use kind 'sum'."
            )
    if deadline.expire_in is not None and kind == "delete":
        raise InvalidArgumentError(
            "a delete takes no deadline", argument="expire_in", value=deadline.expire_in, hint="Leave it out."
        )
    if deadline.keep and kind in ("set", "delete"):
        raise InvalidArgumentError(
            "only a sum, min or max can keep the deadline of its key",
            argument="keep_deadline",
            value=deadline.keep,
            hint="Leave it out. To keep the deadline of a value, read its entry and set it under a check.",
        )


def _pack_versionstamp(versionstamp: Any) -> bytes | None:
    if versionstamp is None:
        return None
    hint = "Pass entry.versionstamp as it was read."
    return versionstamp_of("versionstamp", versionstamp, expected="20 hexadecimal digits or None", hint=hint)
