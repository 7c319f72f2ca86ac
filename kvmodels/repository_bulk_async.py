"""The verbs of ``kvmodels.repository_bulk``, asynchronous.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.repository_bulk``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, NoReturn, TypeVar

from kvmodels.flows import bulk, bulk_query, bulk_results, bulk_run, upsert
from kvmodels.flows import bulk_update as updating
from kvmodels.flows.lifetimes import deadline_of
from kvmodels.flows.storing import KEEP, Keep
from kvmodels.queryset_async import AsyncQuerySet
from kvmodels.schema.model import KvModel

__all__ = ["AsyncBulkVerbs"]

M = TypeVar("M", bound=KvModel)


class AsyncBulkVerbs(AsyncQuerySet[M], Generic[M]):
    """Writes of several records; every ``db[User]`` has them."""

    __slots__ = ()

    async def get_or_create(self, *, defaults: Mapping[str, Any] | None = None, **lookups: Any) -> tuple[M, bool]:
        """The record that matches the lookups, created from lookups and defaults when there is none.

        Args:
            defaults: values of the other fields, used only when a record is created.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which decides a race.

        Returns:
            The object, and whether it was created. Cost: as ``get``, and as ``insert`` where there is none.

        Raises:
            InvalidArgumentError: the lookups name no complete unique key, or the defaults are no mapping.
            UniqueViolationError: the new record would break another unique index.
        """
        found: tuple[M, bool] = await self._runner.run(
            upsert.get_or_create(self._runner.context, self._runner.schema, defaults, lookups)
        )
        return found

    async def update_or_create(
        self,
        *,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Change the record that matches the lookups, or create it when there is none.

        However many callers do this at once, one of them creates the record and every other one changes it.

        Args:
            defaults: new values by field name, ``F("n") + 1`` among them; also for a new record, unless
                ``create_defaults`` are given.
            create_defaults: values of the other fields of a new record.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which decides a race.

        Returns:
            The stored object, and whether it was created. Cost: a read and a commit, again when another was faster.

        Raises:
            InvalidArgumentError: the lookups name no complete unique key, defaults are no mapping, or a new record
                would be made of ``F``.
            UnknownFieldError: the model has no such field.
            UniqueViolationError: the record would break another unique index.
            RetriesExhaustedError: others were faster again and again.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, F, KvModel, PrimaryKey
            >>> class Word(KvModel, collection="words"):
            ...     text: PrimaryKey[str]
            ...     seen: int = 1
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Word]) as db:
            ...         for text in ("key", "value", "key"):
            ...             again = {"seen": F("seen") + 1}
            ...             await db[Word].update_or_create(text=text, defaults=again, create_defaults={})
            ...         return [(word.text, word.seen) async for word in db[Word]]
            >>> asyncio.run(main())
            [('key', 2), ('value', 1)]
        """
        made: tuple[M, bool] = await self._runner.run(
            upsert.update_or_create(self._runner.context, self._runner.schema, defaults, create_defaults, lookups)
        )
        return made

    async def bulk_create(
        self,
        objs: Iterable[M],
        *,
        batch_size: int | None = None,
        on_conflict: bulk.OnConflict = "error",
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> list[bulk.BulkItem[M]]:
        """Insert many objects in batches, each one atomic operation.

        Args:
            objs: the objects, in order.
            batch_size: records per operation; None for a single one. Not in a transaction, which is one commit.
            on_conflict: ``"error"`` raises at the first that cannot be inserted; ``"ignore"`` leaves such ones out;
                ``"update"`` overwrites the record that has the primary key.
            expire_in: seconds or a timedelta until the records expire; None for never; by default ``Meta.ttl``.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its place in the list is stored with each batch: repeated with objects of
                the same primary keys in the same order after the process was killed, it goes on behind the objects
                that are stored; repeated after its end it tells again what became of them. Objects that an earlier run
                has stored stay as they are given: load them to change them. ``db.forget_bulk(id)`` frees the name.

        Returns:
            One ``BulkItem(obj, created, error)`` for each object; neither created nor an error: overwritten. Cost: one
            commit for each batch.

        Raises:
            AlreadyExistsError, UniqueViolationError: with ``position`` of the object and ``committed``, the number
                of objects in earlier batches, which are stored.
            OperationTooLargeError: a batch is over a limit.
            InvalidArgumentError: a primary key twice with ``"update"``, an option that makes no sense, or an id of
                another write.
        """
        return await self._runner.run(
            bulk.bulk_create(
                self._runner.context,
                self._runner.schema,
                objs,
                batch_size=batch_size,
                on_conflict=on_conflict,
                expire_in=deadline_of(expire_in),
                progress=progress,
                resume_id=resume_id,
            )
        )

    async def bulk_update(
        self,
        objs: Iterable[M],
        fields: Iterable[str] | None = None,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Store many loaded objects in batches, each one commit; each if nobody else changed its record since.

        Args:
            objs: objects that were loaded or stored before; each record once.
            fields: names of the fields to store; by default the whole objects. Afterwards an object holds what is
                stored of it, so changes to its other fields are taken back.
            batch_size: the most records of one commit; by default what the engine takes, 500 at most.
            on_error: ``"raise"`` ends at the first object that cannot be stored, with the batches before it committed;
                ``"collect"`` leaves such objects out and lists them.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its place in the list is stored with each batch: repeated with objects of
                the same primary keys in the same order after the process was killed, it goes on behind the objects
                that are stored, whatever version those given are of; repeated after its end it tells the result
                again. Objects that an earlier run has stored stay as they are given: load them to change them.
                ``db.forget_bulk(id)`` frees the name.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: per batch one commit, without a read when
            nobody is in the way and no unique value changes.

        Raises:
            InvalidArgumentError: an object that was never stored, one twice, an option that makes no sense, or an id
                of another write.
            StaleObjectError: a record changed or went since its object was loaded.
            UnknownFieldError, PrimaryKeyChangedError, UniqueViolationError, pydantic.ValidationError: of an object.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Price(KvModel, collection="prices"):
            ...     sku: PrimaryKey[str]
            ...     cents: int
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Price]) as db:
            ...         items = await db[Price].bulk_create([Price(sku="nut", cents=10)])
            ...         items[0].obj.cents += 1
            ...         await db[Price].bulk_update([item.obj for item in items])
            ...         return (await db[Price].get("nut")).cents
            >>> asyncio.run(main())
            11
        """
        options = bulk_run.BulkOptions(batch_size, on_error, progress, resume_id)
        return await self._runner.run(
            updating.bulk_update(self._runner.context, self._runner.schema, objs, fields, options)
        )

    async def update(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a whole collection is changed by ``all().update(...)``, so that nobody does it by mistake.

        Args:
            _: changes of ``update`` of a query set.
            __: options and changes of the same.

        Returns:
            Nothing, because it raises. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Cup(KvModel, collection="cups"):
            ...     id: PrimaryKey[int]
            ...     full: bool = True
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Cup]) as db:
            ...         await db[Cup].create(id=1)
            ...         return (await db[Cup].all().update(full=False)).written
            >>> asyncio.run(main())
            1
        """
        raise bulk_query.refused_update()

    async def delete(self, **_: Any) -> NoReturn:
        """Refused: a whole collection is emptied by ``all().delete()``, so that nobody does it by mistake.

        Args:
            _: options of ``delete`` of a query set.

        Returns:
            Nothing, because it raises. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Toy(KvModel, collection="toys"):
            ...     id: PrimaryKey[int]
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Toy]) as db:
            ...         await db[Toy].create(id=1)
            ...         return (await db[Toy].all().delete()).written
            >>> asyncio.run(main())
            1
        """
        raise bulk_query.refused_removal()
