"""The repository of one model, asynchronous: every verb, one line each.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.repository``, which a test compares. Queries come from ``AsyncQuerySet``: a repository is the query set of
all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel

from kvmodels.flows import crud, direct_writes, fetch
from kvmodels.flows.lifetimes import deadline_of
from kvmodels.flows.storing import KEEP, Keep
from kvmodels.public_path import show_public_path
from kvmodels.query.query import Query
from kvmodels.queryset_async import AsyncRunner
from kvmodels.repository_bulk_async import AsyncBulkVerbs
from kvmodels.schema import partial_model
from kvmodels.schema.expressions import Expression
from kvmodels.schema.model import KvModel
from kvmodels.schema.variants import made_of

__all__ = ["AsyncRepository"]

M = TypeVar("M", bound=KvModel)


class AsyncRepository(AsyncBulkVerbs[M], Generic[M]):
    """The records of one model; made by ``db[User]``.

    May be used by any number of tasks. Every write is one atomic operation; a conflict is tried again as the
    ``RetryPolicy`` of the database says, and nothing is written when an error is raised.

    Args:
        runner: runs flows against the store.
    """

    __slots__ = ()

    def __init__(self, runner: AsyncRunner) -> None:
        super().__init__(runner, Query(runner.schema))

    # --- reading by key ---------------------------------------------------------------------------------------

    @overload
    async def get(self, key: Any, /) -> M: ...
    @overload
    async def get(self, *expressions: Expression, **lookups: Any) -> M: ...
    async def get(self, *arguments: Any, **lookups: Any) -> M:
        """The one record with this primary key, or that matches these lookups.

        Args:
            arguments: the primary key (a tuple when it is composite), or expressions such as ``User.email == "x"``.
            lookups: conditions as keywords, ``email="ada@x.org"``.

        Returns:
            The object. Cost: one read of one row by primary key, of two rows by a unique index.

        Raises:
            DoesNotExist: no record matches (``User.DoesNotExist`` too).
            MultipleObjectsReturned: more than one does.
            QueryError: a lookup that cannot be answered as written.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey, Unique
            >>> class Reader(KvModel, collection="readers"):
            ...     id: PrimaryKey[int]
            ...     email: Unique[str]
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Reader]) as db:
            ...         await db[Reader].create(id=1, email="ada@x.org")
            ...         return await db[Reader].get(1) == await db[Reader].get(email="ada@x.org")
            >>> asyncio.run(main())
            True
        """
        found: M = await self._runner.get(arguments, lookups)
        return found

    @overload
    async def get_or_none(self, key: Any, /) -> M | None: ...
    @overload
    async def get_or_none(self, *expressions: Expression, **lookups: Any) -> M | None: ...
    async def get_or_none(self, *arguments: Any, **lookups: Any) -> M | None:
        """Like ``get``, with None where nothing matches.

        Args:
            arguments: the primary key, or expressions.
            lookups: conditions as keywords.

        Returns:
            The object or None. Cost: as ``get``.

        Raises:
            MultipleObjectsReturned: more than one record matches.
            QueryError: a lookup that cannot be answered as written.
        """
        found: M | None = await self._runner.run(
            fetch.get_or_none(self._runner.context, self._runner.schema, arguments, lookups)
        )
        return found

    async def in_bulk(self, keys: Iterable[Any]) -> dict[Any, M]:
        """The records with these primary keys, in one snapshot.

        Args:
            keys: primary keys, tuples when composite; repetitions are harmless.

        Returns:
            Objects by primary key, in the order of the keys; keys without a record are left out. Cost: one read.

        Raises:
            InvalidValueError: something that is no primary key of the model.
        """
        found: dict[Any, M] = await self._runner.run(fetch.in_bulk(self._runner.context, self._runner.schema, keys))
        return found

    async def refresh(self, obj: M) -> M:
        """Read a record again and put its values into the object.

        Args:
            obj: an object with the primary key of a record.

        Returns:
            The same object. Cost: one read.

        Raises:
            DoesNotExist: the record is gone; the object is left as it is.
        """
        await self._runner.run(fetch.refresh(self._runner.context, self._runner.schema, obj))
        return obj

    async def expires_at(self, target: Any) -> datetime | None:
        """When a record expires, as it is stored now.

        Args:
            target: an object or a primary key, a tuple when it is composite.

        Returns:
            The deadline in UTC, to the millisecond; None for a record that does not expire. Cost: one read.

        Raises:
            DoesNotExist: no record has this primary key, or it has expired.
        """
        return await self._runner.run(fetch.expires_at(self._runner.context, self._runner.schema, target))

    def detach(self, obj: M) -> M:
        """Forget that the object was loaded: ``save`` will insert it as a new record.

        Args:
            obj: any object of the model.

        Returns:
            The same object. Cost: none.
        """
        return fetch.detach(obj)

    # --- writing one record -----------------------------------------------------------------------------------

    async def create(self, *, expire_in: float | timedelta | Keep | None = KEEP, **fields: Any) -> M:
        """Make an object and insert it.

        Args:
            expire_in: seconds or a timedelta until the record expires; None for never; by default ``Meta.ttl``.
            fields: values of the model's fields, by the names that its constructor takes.

        Returns:
            The stored object. Cost: as ``insert``.

        Raises:
            pydantic.ValidationError: the values do not make a valid object.
            AlreadyExistsError, UniqueViolationError: nothing was written.
        """
        return await self.insert(made_of(self._runner.schema, fields), expire_in=expire_in)

    async def insert(self, obj: M, *, expire_in: float | timedelta | Keep | None = KEEP) -> M:
        """Store an object as a new record: one commit, no read when nothing is in its way.

        Args:
            obj: the object; afterwards it holds the validated values and its versionstamp.
            expire_in: seconds or a timedelta until the record expires; None for never; by default ``Meta.ttl``.

        Returns:
            The same object. Cost: one commit, and no read unless a unique value or the key is taken.

        Raises:
            AlreadyExistsError: a record with this primary key exists.
            UniqueViolationError: a unique index holds these values for another record.
            pydantic.ValidationError, InvalidValueError, LimitExceededError: the object cannot be stored.
        """
        await self._runner.run(
            direct_writes.insert(self._runner.context, self._runner.schema, obj, deadline_of(expire_in))
        )
        return obj

    async def save(self, obj: M, *, force: bool = False, expire_in: float | timedelta | Keep | None = KEEP) -> M:
        """Store an object: insert a new one, update a loaded one if nobody else changed its record since.

        Args:
            obj: the object.
            force: overwrite whatever is stored under its primary key.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.

        Returns:
            The same object. Cost: one commit, no read unless unique values changed or the record has a deadline.

        Raises:
            StaleObjectError: the record changed or went since the object was loaded; nothing was written.
            PrimaryKeyChangedError: the object was loaded under another primary key.
            AlreadyExistsError, UniqueViolationError: nothing was written.
        """
        await self._runner.run(
            direct_writes.save(
                self._runner.context, self._runner.schema, obj, force=force, expire_in=deadline_of(expire_in)
            )
        )
        return obj

    async def patch(
        self,
        key: Any,
        body: BaseModel | None = None,
        /,
        *,
        expire_in: float | timedelta | Keep | None = KEEP,
        **changes: Any,
    ) -> M:
        """Change fields of a record, whatever version it has: read, apply, commit, again after a conflict.

        Args:
            key: the primary key, a tuple when it is composite.
            body: changes as an object of ``User.partial()`` or another pydantic model; fields that were not given to
                it stay as they are.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.
            changes: new values by field name; they count more than those of the body.

        Returns:
            The stored object. Cost: one read and one commit; both again after a conflict.

        Raises:
            DoesNotExist: no record has this primary key.
            UnknownFieldError: the model has no such field.
            InvalidArgumentError: the body is no pydantic model, or the library sets the field.
            UniqueViolationError, RetriesExhaustedError: nothing was written.
        """
        sent = partial_model.sent_values(body, changes)
        patched: M = await self._runner.run(
            direct_writes.patch(self._runner.context, self._runner.schema, key, sent, deadline_of(expire_in))
        )
        return patched

    async def mutate(
        self, key: Any, function: Callable[[M], M | None], /, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> M:
        """Change a record by a function: it gets a fresh copy in every attempt.

        Args:
            key: the primary key, a tuple when it is composite.
            function: changes the object in place and returns None, or returns an object with the same primary key;
                it may be called several times. An exception aborts the write.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.

        Returns:
            The stored object. Cost: as ``patch``.

        Raises:
            DoesNotExist: no record has this primary key.
            PrimaryKeyChangedError: the function changed the primary key.
            InvalidValueError: the function returned something else, or is async.
            UniqueViolationError, RetriesExhaustedError: nothing was written.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Counter(KvModel, collection="counters"):
            ...     id: PrimaryKey[str]
            ...     n: int = 0
            >>> def increment(counter: Counter) -> None:
            ...     counter.n += 1
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Counter]) as db:
            ...         await db[Counter].create(id="visits")
            ...         return (await db[Counter].mutate("visits", increment)).n
            >>> asyncio.run(main())
            1
        """
        mutated: M = await self._runner.run(
            direct_writes.mutate(self._runner.context, self._runner.schema, key, function, deadline_of(expire_in))
        )
        return mutated

    async def rename(self, key: Any, new_key: Any, /) -> M:
        """Give a record another primary key, in one commit; unique values and the deadline stay with it.

        Args:
            key: the present primary key, a tuple when it is composite.
            new_key: the new one. The same key is no error: nothing is written.

        Returns:
            The stored object. Cost: one read and one commit.

        Raises:
            DoesNotExist: no record has the present primary key.
            AlreadyExistsError: a record has the new one; nothing was written.
            pydantic.ValidationError: the new key makes no valid object.
            RetriesExhaustedError: others kept changing the record.
        """
        old, new = fetch.key_values(self._runner.schema, key), fetch.key_values(self._runner.schema, new_key)
        renamed: M = await self._runner.run(crud.rename(self._runner.context, self._runner.schema, old, new))
        return renamed

    async def remove(self, target: Any) -> bool:
        """Remove a record with all its index entries.

        Args:
            target: a primary key: the record is removed whatever version it has, and if it cannot be read as an object
                any more, without the hooks that would get this object; or an object: a loaded one only if nobody
                changed its record since.

        Returns:
            True, or False when no record has this primary key. Cost: one read and one commit; one commit of a
            loaded object, and on SQLite of a plain record, which is read in it.

        Raises:
            StaleObjectError: the record of the object changed or went since it was loaded.
            RetriesExhaustedError: others kept changing the record.
        """
        return await self._runner.run(fetch.remove(self._runner.context, self._runner.schema, target))


show_public_path(AsyncRepository)
