"""Namespaces: a small store of text keys inside the store.

Rules of this module: a method runs one flow of ``kvmodels.flows.kv.namespace`` and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from kvmodels.api._async import kv as key_value
from kvmodels.api._async._compat import engine_of, pinned, run
from kvmodels.api.opening import Opening
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import namespace as flows
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.writing.changes import KEEP, Keep
from kvmodels.limits import Limits

T = TypeVar("T")


class AsyncNamespace:
    """Text keys with values in a part of a store; made by ``Kv.namespace``.

    ``get`` returns None for a key that is absent or expired, and nothing else: None cannot be stored, and an empty
    value is a value. Values are equal when their encodings are. Safe to share between threads,
    or tasks of one event loop.

    Args:
        opening: where it is stored, open or to be opened.
        form: confines every key.
        kv: the key-value API, confined like that.
    """

    __slots__ = ("_form", "_kv", "_opening")

    def __init__(self, opening: Opening, form: StoreFormat, kv: key_value.AsyncKv) -> None:
        self._opening = opening
        self._form = form
        self._kv = kv

    @property
    def kv(self) -> key_value.AsyncKv:
        """The whole key-value API, confined to the namespace: the key ``"a"`` is its key ``("a",)``.

        A view: closing it, or the end of its ``with`` statement, leaves the store open.
        """
        return self._kv

    def namespace(self, name: str, *, limits: Limits | None = None) -> AsyncNamespace:
        """A namespace inside this one, which no key of this one is in; its limits hold inside as well.

        Args:
            name: which one; any text that is not empty.
            limits: hold besides; of each number the smaller.

        Returns:
            The inner namespace.

        Raises:
            InvalidArgumentError: the name is empty or no text, or the limits are none.
        """
        return self._kv.namespace(name, limits=limits)

    async def get(self, key: str) -> Any:
        """Read a value: one read.

        Args:
            key: a text that is not empty.

        Returns:
            The value; None when the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: not a key, or too long.
            DecodeError: what is stored cannot be read.
        """
        return await self._run(lambda limits: flows.get_value(self._form, limits, key))

    async def set(self, key: str, value: Any, *, expire_in: float | timedelta | None = None) -> None:
        """Store a value, whatever is there, expired or not: one commit.

        Args:
            key: a text that is not empty.
            value: any value that can be stored, but None.
            expire_in: seconds or a timedelta, 0 or more, exact to the millisecond; None to keep it for ever.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` makes no sense.
            CommitUnknownError: the answer was lost; the value may be stored.
        """
        await self._run(lambda limits: flows.set_value(self._form, limits, key, value, expire_in))

    async def delete(self, key: str) -> None:
        """Remove a key, if it is there: one commit.

        Args:
            key: a text that is not empty.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            CommitUnknownError: the answer was lost; the key may be removed.
        """
        await self._run(lambda limits: flows.delete_value(self._form, limits, key))

    async def delete_all(self) -> int:
        """Remove every key, those of ``kv`` included, but neither namespaces inside nor the queue and locks of ``kv``.

        Keys are removed a thousand at a time, each time atomically; one that is written meanwhile may stay.

        Returns:
            How many keys were removed.

        Raises:
            CommitUnknownError: an answer was lost; some keys may be left.
        """
        return await self._run(lambda limits: flows.delete_all(self._form, limits))

    async def list_keys(self, page: int = 0, per_page: int = 100, prefix: str = "") -> list[str]:
        """One page of the keys, in the order of their UTF-8 bytes; filtered in the store, so only the last is short.

        Pages are counted from the beginning at each call, in a snapshot of its own: beside writers a key may move to
        another page. ``kv.list`` with a cursor goes on behind a key instead.

        Args:
            page: the number of the page, from 0 on.
            per_page: keys on a page, 1 or more.
            prefix: only keys that begin with this text.

        Returns:
            The keys of the page; empty behind the last one. Cost: reading the keys of the pages before as well.

        Raises:
            InvalidArgumentError: an argument that makes no sense.
        """
        engine = await engine_of(self._opening)
        listing = flows.list_keys(self._form, self._form.limits_within(engine.limits), page, per_page, prefix)
        async with pinned(engine) as snapshot:
            return await run(engine, listing, snapshot=snapshot)

    async def compare_and_set(
        self, key: str, old: Any, new: Any, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> bool:
        """Store ``new`` if the key holds ``old``: one read and one commit.

        Nobody can come between the comparison and the write. A value that was changed and changed back is equal, as
        values are compared and not their history; ``kv.atomic().check(entry)`` tells the two apart.

        Args:
            key: a text that is not empty.
            old: the value that must be there; None if the key must be absent or expired.
            new: what to store; not None.
            expire_in: seconds or a timedelta, 0 or more, exact to the millisecond; None to keep it without a deadline.
                By default the deadline of the key stays, and a key that was absent gets none.

        Returns:
            Whether it was stored.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` is negative or too large.
            RetriesExhaustedError: the same value was written again at every attempt.
            CommitUnknownError: the answer was lost; the value may be stored.
        """
        return await self._run(
            lambda limits: flows.compare_and_set(self._form, limits, key, old, new, expire_in=expire_in)
        )

    async def compare_and_delete(self, key: str, old: Any) -> bool:
        """Remove a key if it holds ``old``: one read and one commit.

        Args:
            key: a text that is not empty.
            old: the value that must be there; with None nothing is ever removed.

        Returns:
            Whether it was removed.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            RetriesExhaustedError: the same value was written again at every attempt.
            CommitUnknownError: the answer was lost; the key may be removed.
        """
        return await self._run(lambda limits: flows.compare_and_delete(self._form, limits, key, old))

    async def get_json(self, key: str) -> Any:
        """Read a value that ``set_json`` has stored.

        Args:
            key: a text that is not empty.

        Returns:
            The value; None when the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: not a key, or too long.
            DecodeError: what is stored is not JSON.
        """
        return flows.unpack_json(key, await self.get(key))

    async def set_json(self, key: str, value: Any, *, expire_in: float | timedelta | None = None) -> None:
        """Store a value as JSON bytes, with sorted keys, for programs that read nothing else.

        Args:
            key: a text that is not empty.
            value: what JSON can hold, but None.
            expire_in: as in ``set``.

        Raises:
            InvalidValueError: the value cannot be written as JSON; and what ``set`` raises.
        """
        await self.set(key, flows.pack_json(value), expire_in=expire_in)

    async def compare_and_set_json(
        self, key: str, old: Any, new: Any, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> bool:
        """Store ``new`` as JSON if the key holds the JSON of ``old``.

        Args:
            key: a text that is not empty.
            old: the value that must be there; None if the key must be absent or expired.
            new: what to store; not None.
            expire_in: as in ``compare_and_set``.

        Returns:
            Whether it was stored.

        Raises:
            InvalidValueError: a value cannot be written as JSON; and what ``compare_and_set`` raises.
        """
        packed = None if old is None else flows.pack_json(old)
        return await self.compare_and_set(key, packed, flows.pack_json(new), expire_in=expire_in)

    async def compare_and_delete_json(self, key: str, old: Any) -> bool:
        """Remove a key if it holds the JSON of ``old``.

        Args:
            key: a text that is not empty.
            old: the value that must be there; with None nothing is ever removed.

        Returns:
            Whether it was removed.

        Raises:
            InvalidValueError: the value cannot be written as JSON; and what ``compare_and_delete`` raises.
        """
        return await self.compare_and_delete(key, None if old is None else flows.pack_json(old))

    def __repr__(self) -> str:
        return f"<AsyncNamespace {flows.namespace_path(self._form)}>"

    async def _run(self, flow: Callable[[Limits], Flow[T]]) -> T:
        engine = await engine_of(self._opening)
        return await run(engine, flow(self._form.limits_within(engine.limits)))
