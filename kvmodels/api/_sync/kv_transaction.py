# Generated from kvmodels/api/_async/kv_transaction.py by tools/unasync.py. Do not edit.
"""Raw reads and writes of a transaction: ``tx.kv``.

Rules of this module: a method runs one flow in the transaction or adds one write to it, and contains no decisions.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, overload

from kvmodels.api._sync.kv_reading import KvListIterator
from kvmodels.api.atomic import TransactionWrite, Unset
from kvmodels.api.refusals import refuse_copies
from kvmodels.core.keys import Key, SetKey
from kvmodels.core.operations import Entry
from kvmodels.core.values import KvU64
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import namespace
from kvmodels.flows.kv import operations as keyvalue
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.limits import Limits


class TransactionKv:
    """The key-value API of a transaction; created by ``tx.kv``.

    Reads see the transaction's own writes. Writes are collected, merged into one mutation per key, and sent in the one
    commit. The versionstamp of an entry that the transaction has written never equals that of a stored entry.

    Args:
        run: runs the flow of a method in the transaction; its first argument is the name of the method.
        perform: runs a flow of the transaction itself, which reads the stored state.
        flows: the state of the transaction.
        form: confines all keys to a namespace; None for the whole store.
    """

    __slots__ = ("_flows", "_form", "_limits", "_perform", "_run")

    def __init__(
        self,
        run: Callable[[str, Flow[Any]], Any],
        perform: Callable[[Flow[Any]], Any],
        flows: transaction_flows.TransactionFlows,
        form: StoreFormat | None = None,
    ) -> None:
        self._run = run
        self._perform = perform
        self._flows = flows
        self._form = flows.form if form is None else form
        self._limits = self._form.limits_within(flows.limits)

    def get(self, key: Key) -> Entry:
        """Read one key; the commit checks that it is unchanged.

        Args:
            key: the key.

        Returns:
            The entry; its value and versionstamp are None if the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: the key is invalid or too long.
            DecodeError: the stored value cannot be read.
            ClosedError: the transaction has ended.
        """
        entry: Entry = self._run("get", keyvalue.get_entry(self._form, self._limits, key))
        return entry

    def get_many(self, keys: Iterable[Key]) -> builtins.list[Entry]:
        """Read several keys; the commit checks that they are unchanged.

        Args:
            keys: the keys, in any order; repetitions are allowed.

        Returns:
            One entry for each key, in their order.

        Raises:
            InvalidKeyError, KeyTooLargeError, OperationTooLargeError, DecodeError, ClosedError: as for ``get``, or more
                keys than the engine reads at once.
        """
        entries: builtins.list[Entry] = self._run("get_many", keyvalue.get_entries(self._form, self._limits, keys))
        return entries

    def list(
        self,
        prefix: Key | None = None,
        *,
        start: Key | None = None,
        end: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> KvListIterator:
        """Iterate over a range of keys in key order, in batches.

        The commit checks the entries that were read. It does not check that no other key was added to the range: use
        ``tx.guard`` for that.

        Args:
            prefix: list keys that begin with these parts and have more; ``()`` lists everything.
            start: the first key, included; it does not have to exist.
            end: the end of the range, excluded; it does not have to exist.
            limit: the maximum number of entries, 1 or more; None for all.
            reverse: the same keys in descending order.

        Returns:
            An iterator of entries; nothing is read before its first item.

        Raises:
            InvalidArgumentError, InvalidKeyError: a selector or option is invalid.
        """
        selection = keyvalue.select(self._form, prefix=prefix, start=start, end=end)
        return KvListIterator(
            self._fetch,
            keyvalue.Listing(self._form, selection, keyvalue.ListOptions(limit, reverse)),
            in_transaction=True,
        )

    def _fetch(self, listing: keyvalue.Listing) -> bool:
        fetched: bool = self._run("list", listing.fetch(self._limits))
        return fetched

    def set(self, key: SetKey, value: Any, *, expire_in: float | timedelta | None = None) -> None:
        """Store a value, replacing any existing one.

        Args:
            key: the key, not empty; a key that ends with ``COMMIT_VERSIONSTAMP`` cannot be read before the commit.
            value: any storable value; it is packed now.
            expire_in: lifetime from the beginning of the transaction, seconds or a timedelta; None: no deadline.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the value cannot be stored, or ``expire_in`` is invalid.
            ClosedError: the transaction has ended.
        """
        self._run("set", TransactionWrite(self._flows, self._form).set(key, value, expire_in=expire_in).added())

    def delete(self, key: Key) -> None:
        """Remove a key; no effect if it is absent.

        Args:
            key: the key, not empty.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            ClosedError: the transaction has ended.
        """
        self._run("delete", TransactionWrite(self._flows, self._form).delete(key).added())

    def sum(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> None:
        """Add to a stored ``KvU64``, modulo 2**64; an absent key is set to it. Sums never conflict.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: lifetime from the beginning of the transaction, seconds or a timedelta; None: the deadline of the
                key is removed.
            keep_deadline: a key that is present keeps its deadline, or stays without one; ``expire_in`` is then the
                lifetime of a key that was absent. KV Connect cannot do this.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError, InvalidArgumentError: the operand, or the transaction's own write to the key, is not an
                unsigned 64-bit integer; or ``expire_in`` is invalid.
            ClosedError: the transaction has ended.
        """
        write = TransactionWrite(self._flows, self._form)
        write.sum(key, n, expire_in=expire_in, keep_deadline=keep_deadline)
        self._run("sum", write.added())

    def min(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> None:
        """Keep the smaller of a stored ``KvU64`` and the operand; an absent key is set to the operand.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: as in ``sum``.
            keep_deadline: as in ``sum``.

        Raises:
            InvalidKeyError, ReservedKeyError, InvalidValueError, InvalidArgumentError, ClosedError: as for ``sum``.
        """
        write = TransactionWrite(self._flows, self._form)
        write.min(key, n, expire_in=expire_in, keep_deadline=keep_deadline)
        self._run("min", write.added())

    def max(
        self,
        key: Key,
        n: int | KvU64,
        *,
        expire_in: float | timedelta | None = None,
        keep_deadline: bool = False,
    ) -> None:
        """Keep the larger of a stored ``KvU64`` and the operand; an absent key is set to the operand.

        Args:
            key: the key, not empty.
            n: 0 to 2**64 - 1.
            expire_in: as in ``sum``.
            keep_deadline: as in ``sum``.

        Raises:
            InvalidKeyError, ReservedKeyError, InvalidValueError, InvalidArgumentError, ClosedError: as for ``sum``.
        """
        write = TransactionWrite(self._flows, self._form)
        write.max(key, n, expire_in=expire_in, keep_deadline=keep_deadline)
        self._run("max", write.added())

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
    ) -> None:
        """Add a mutation by name, like ``kv.atomic().mutate``; a sum with bounds keeps a quota.

        The store adds to the value that the key has at the commit, so two transactions that add to a key do not
        conflict. The transaction's own earlier writes to the key count too. A result outside of the bounds ends the
        commit with an error, and nothing of the transaction is written.

        Args:
            kind: ``"set"``, ``"delete"``, ``"sum"``, ``"min"`` or ``"max"``.
            key: the key, not empty; for a set, its last part may be ``COMMIT_VERSIONSTAMP``.
            value: the value to store, or the operand, which is a ``KvU64`` for ``min`` and ``max``; omitted for a
                delete.
            minimum: only for a sum of int or float: the smallest result allowed, with the type of the operand. An
                absent key is set to the operand even if it is outside the bounds, as in Deno.
            maximum: like ``minimum``, the largest result allowed.
            clamp: set a result outside the bounds to the nearer bound instead of failing the commit.
            expire_in: not for a delete; lifetime from the beginning of the transaction.
            keep_deadline: only for sum, min and max, as in ``sum``.

        Raises:
            InvalidKeyError, ReservedKeyError: the key cannot be written.
            InvalidValueError: a value or a bound has the wrong type; here or at the commit: a result is outside the
                bounds, or the key holds a value of another type.
            InvalidArgumentError: an unknown kind, a missing or superfluous value, a bound or deadline that this kind
                does not take.
            UnsupportedError: a sum of int or float on an engine that computes no functions; all of the library do.
            ClosedError: the transaction has ended.

        Examples:
            >>> from kvmodels import Database, InvalidValueError
            >>> db = Database("memory://")
            >>> for _ in range(3):
            ...     try:
            ...         with db.transaction() as tx:
            ...             tx.kv.mutate("sum", ("seats",), 1, maximum=2)
            ...     except InvalidValueError as error:
            ...         print(error.message)
            the result of a sum is outside its range
            >>> db.kv.get(("seats",)).value
            2
        """
        write = TransactionWrite(self._flows, self._form)
        bounds: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "clamp": clamp}
        write.mutate(kind, key, value, **bounds, expire_in=expire_in, keep_deadline=keep_deadline)
        self._run("mutate", write.added())

    @overload
    def check(self, entry: Entry, /) -> None: ...
    @overload
    def check(self, key: Key, versionstamp: str | None, /) -> None: ...
    def check(self, *key: Any) -> None:
        """Commit only if a key is unchanged since it was read elsewhere, such as before the transaction.

        Reads of the transaction itself are checked automatically.

        Args:
            key: an entry that was read, or a key.
            versionstamp: only with a key: the versionstamp that it must have, or None if it must be absent.

        Raises:
            TransactionConflictError: the key has already changed.
            InvalidKeyError, InvalidArgumentError: not a key, or not a versionstamp.
            ClosedError: the transaction has ended.
        """
        self._perform(TransactionWrite(self._flows, self._form).check(*key).checks())

    def enqueue(
        self,
        value: Any,
        *,
        delay: float | timedelta = 0,
        keys_if_undelivered: Iterable[Key] = (),
        backoff_schedule: Iterable[float | timedelta] | None = None,
    ) -> None:
        """Put a message into the queue when the transaction commits.

        Args:
            value: the message, any storable value; it is packed now.
            delay: seconds or a timedelta from the commit to the first delivery, at most 30 days.
            keys_if_undelivered: keys that store the message if every delivery fails.
            backoff_schedule: seconds or timedeltas before each redelivery of a message whose handler failed, at most 5
                of an hour each; None for 0.1, 1, 5, 30 and 60 seconds, ``()`` for no redelivery.

        Raises:
            InvalidValueError, InvalidArgumentError: the message cannot be stored, or a duration is invalid.
            InvalidKeyError, ReservedKeyError: a key cannot be written.
            ClosedError: the transaction has ended.
        """
        message = TransactionWrite(self._flows, self._form).enqueue(
            value, delay=delay, keys_if_undelivered=keys_if_undelivered, backoff_schedule=backoff_schedule
        )
        self._run("enqueue", message.added())

    def namespace(self, name: str, *, limits: Limits | None = None) -> TransactionKv:
        """Return a namespace of the store in this transaction: the same methods, confined to it, like ``ns.kv``.

        The key ``"token"`` of the namespace is the key ``("token",)`` here.

        Args:
            name: the name of the namespace, a non-empty str.
            limits: limits for its keys and values, in addition to those of the store.

        Returns:
            The key-value API of the namespace, in the same commit.

        Raises:
            InvalidArgumentError: the name is not a non-empty str, or ``limits`` is not a ``Limits`` object.

        Examples:
            >>> from kvmodels import Database
            >>> db = Database("memory://")
            >>> with db.transaction() as tx:
            ...     tx.kv.namespace("github").set(("token",), b"secret")
            >>> db.kv.namespace("github").get("token")
            b'secret'
        """
        return TransactionKv(self._run, self._perform, self._flows, namespace.namespace_form(self._form, name, limits))

    def __repr__(self) -> str:
        return "<TransactionKv>"


refuse_copies(TransactionKv)
