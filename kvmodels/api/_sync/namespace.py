# Generated from kvmodels/api/_async/namespace.py by tools/unasync.py. Do not edit.
"""Namespaces: a small store of text keys inside the store.

Rules of this module: a method runs one flow of ``kvmodels.flows.kv.namespace`` and contains no decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from kvmodels.api._sync import kv as key_value
from kvmodels.api._sync._compat import engine_of, perform, pinned
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_copies
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import namespace as flows
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.writing.changes import KEEP, Keep
from kvmodels.limits import Limits

T = TypeVar("T")


class Namespace:
    """Text keys with values in a separate part of a store; created by ``Kv.namespace``.

    ``get`` returns None only for an absent or expired key: None cannot be stored, and an empty value counts as a value.
    Two values are equal if their encodings are equal. Safe to share between threads, or between tasks of one event
    loop.

    Args:
        opening: the engine, open or to be opened.
        form: confines all keys to the namespace.
        kv: the key-value API, confined in the same way.
    """

    __slots__ = ("_form", "_kv", "_opening")

    def __init__(self, opening: Opening, form: StoreFormat, kv: key_value.Kv) -> None:
        self._opening = opening
        self._form = form
        self._kv = kv

    @property
    def kv(self) -> key_value.Kv:
        """The complete key-value API, confined to the namespace: the key ``"a"`` is its key ``("a",)``.

        A view: closing it, or the end of its ``with`` statement, leaves the store open.
        """
        return self._kv

    def namespace(self, name: str, *, limits: Limits | None = None) -> Namespace:
        """Return a namespace inside this one, separate from the keys of this one; the limits of this one apply too.

        Args:
            name: the name of the namespace, a non-empty str.
            limits: additional limits; the smaller values apply.

        Returns:
            The inner namespace.

        Raises:
            InvalidArgumentError: the name is not a non-empty str, or ``limits`` is not a ``Limits`` object.
        """
        return self._kv.namespace(name, limits=limits)

    def get(self, key: str) -> Any:
        """Read a value: one read.

        Args:
            key: a non-empty str.

        Returns:
            The value; None if the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: the key is invalid or too long.
            DecodeError: the stored value cannot be read.
        """
        return self._run("get", lambda limits: flows.get_value(self._form, limits, key))

    def set(self, key: str, value: Any, *, expire_in: float | timedelta | None = None) -> None:
        """Store a value, replacing any existing one, expired or not: one commit.

        Args:
            key: a non-empty str.
            value: any storable value except None.
            expire_in: lifetime as seconds or a timedelta, 0 or more, exact to the millisecond; None: no deadline.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` is invalid.
            CommitUnknownError: the answer was lost; the value may have been stored.
        """
        self._run("set", lambda limits: flows.set_value(self._form, limits, key, value, expire_in))

    def delete(self, key: str) -> None:
        """Remove a key; no effect if it is absent: one commit.

        Args:
            key: a non-empty str.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            CommitUnknownError: the answer was lost; the key may have been removed.
        """
        self._run("delete", lambda limits: flows.delete_value(self._form, limits, key))

    def delete_all(self) -> int:
        """Remove every key, including those of ``kv``, but not nested namespaces, nor the queue and locks of ``kv``.

        Each commit removes a thousand keys; a key that is written meanwhile may stay.

        Returns:
            The number of removed keys.

        Raises:
            CommitUnknownError: an answer was lost; some keys may be left.
        """
        return self._run("delete_all", lambda limits: flows.delete_all(self._form, limits))

    def list_keys(self, page: int = 0, per_page: int = 100, prefix: str = "") -> list[str]:
        """Return one page of the keys, in the order of their UTF-8 bytes; every page except the last is full.

        Each call counts pages from the beginning, in its own snapshot: next to live writers, a key may move to another
        page. ``kv.list`` with a cursor resumes after a key instead.

        Args:
            page: the number of the page, counted from 0.
            per_page: keys per page, 1 or more.
            prefix: only keys that begin with this str.

        Returns:
            The keys of the page; empty after the last page. Cost: also reads the keys of all earlier pages.

        Raises:
            InvalidArgumentError: an argument is invalid.
        """
        engine = engine_of(self._opening)
        listing = flows.list_keys(self._form, self._form.limits_within(engine.limits), page, per_page, prefix)
        with pinned(engine) as snapshot:
            return perform(engine, listing, self._opening.observation("list_keys"), snapshot=snapshot)

    def compare_and_set(
        self, key: str, old: Any, new: Any, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> bool:
        """Store ``new`` if the key holds ``old``: one read and one commit.

        No other write can happen between the comparison and the write. Only values are compared, so a value that was
        changed and changed back counts as equal; use ``kv.atomic().check(entry)`` to detect that.

        Args:
            key: a non-empty str.
            old: the expected value; None if the key must be absent or expired.
            new: the value to store; not None.
            expire_in: lifetime as seconds or a timedelta, 0 or more, exact to the millisecond; None for no deadline. By
                default the key keeps its deadline, and a key that was absent gets none.

        Returns:
            Whether the value was stored.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` is negative or too large.
            RetriesExhaustedError: other writers rewrote the same value during every attempt.
            CommitUnknownError: the answer was lost; the value may have been stored.
        """
        return self._run(
            "compare_and_set",
            lambda limits: flows.compare_and_set(self._form, limits, key, old, new, expire_in=expire_in),
        )

    def compare_and_delete(self, key: str, old: Any) -> bool:
        """Remove a key if it holds ``old``: one read and one commit.

        Args:
            key: a non-empty str.
            old: the expected value; with None nothing is ever removed.

        Returns:
            Whether the key was removed.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            RetriesExhaustedError: other writers rewrote the same value during every attempt.
            CommitUnknownError: the answer was lost; the key may have been removed.
        """
        return self._run("compare_and_delete", lambda limits: flows.compare_and_delete(self._form, limits, key, old))

    def update(
        self, key: str, function: Callable[[Any], Any], *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> Any:
        """Replace a value by what a function makes of it, and start again if another writer was faster.

        Args:
            key: a non-empty str.
            function: a plain function that takes the value, None if the key is absent, and returns the new one. None
                removes the key. It is called again after each conflict, so it must have no other effects.
            expire_in: as in ``compare_and_set``: by default the key keeps its deadline.

        Returns:
            The new value; None if the key is absent now. Cost: one read and one commit for each attempt; no commit if
            the value stays the same.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the new value cannot be stored, or the function changed the value in
                place and returned None.
            InvalidArgumentError: it is not a plain function, or ``expire_in`` is negative or too large.
            RetriesExhaustedError: other writers were faster in each of 50 attempts.
            CommitUnknownError: the answer was lost; the new value may have been stored.

        Examples:
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     space = kv.namespace("visits")
            ...     space.update("ada", lambda count: (count or 0) + 1)
            ...     space.update("ada", lambda count: None), space.get("ada")
            1
            (None, None)
        """
        return self._run(
            "update", lambda limits: flows.update_value(self._form, limits, key, function, expire_in=expire_in)
        )

    def get_json(self, key: str) -> Any:
        """Read a value that was stored by ``set_json``.

        Args:
            key: a non-empty str.

        Returns:
            The value; None if the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: the key is invalid or too long.
            DecodeError: the stored bytes are not JSON.
        """
        return flows.unpack_json(key, self.get(key))

    def set_json(self, key: str, value: Any, *, expire_in: float | timedelta | None = None) -> None:
        """Store a value as JSON bytes with sorted keys, for programs that only read JSON.

        Args:
            key: a non-empty str.
            value: any JSON value except None.
            expire_in: as in ``set``.

        Raises:
            InvalidValueError: the value cannot be written as JSON. Errors of ``set`` are raised too.
        """
        self.set(key, flows.pack_json(value), expire_in=expire_in)

    def compare_and_set_json(
        self, key: str, old: Any, new: Any, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> bool:
        """Store ``new`` as JSON if the key holds the JSON of ``old``.

        Args:
            key: a non-empty str.
            old: the expected value; None if the key must be absent or expired.
            new: the value to store; not None.
            expire_in: as in ``compare_and_set``.

        Returns:
            Whether the value was stored.

        Raises:
            InvalidValueError: a value cannot be written as JSON. Errors of ``compare_and_set`` are raised too.
        """
        packed = None if old is None else flows.pack_json(old)
        return self.compare_and_set(key, packed, flows.pack_json(new), expire_in=expire_in)

    def compare_and_delete_json(self, key: str, old: Any) -> bool:
        """Remove a key if it holds the JSON of ``old``.

        Args:
            key: a non-empty str.
            old: the expected value; with None nothing is ever removed.

        Returns:
            Whether the key was removed.

        Raises:
            InvalidValueError: the value cannot be written as JSON. Errors of ``compare_and_delete`` are raised too.
        """
        return self.compare_and_delete(key, None if old is None else flows.pack_json(old))

    def __repr__(self) -> str:
        return f"<Namespace {flows.namespace_path(self._form)}>"

    def _run(self, verb: str, flow: Callable[[Limits], Flow[T]]) -> T:
        engine = engine_of(self._opening)
        return perform(engine, flow(self._form.limits_within(engine.limits)), self._opening.observation(verb))


refuse_copies(Namespace)
