"""The database, asynchronous: open a store with its models, hand out repositories, look after the indexes.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.database``, which a test compares.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from kvmodels.database_changes_async import AsyncSchemaChanges
from kvmodels.database_core import DatabaseCore
from kvmodels.drivers_async import apin, arelease, arun
from kvmodels.engines.base import Engine
from kvmodels.flows import fetch, findings, scrub
from kvmodels.flows.context import Context
from kvmodels.flows.requests import AnyFlow
from kvmodels.flows.retrying import DEFAULT_RETRY, RetryPolicy
from kvmodels.kv_async import AsyncKv
from kvmodels.kv_opening import Durability, Opening
from kvmodels.limits import Limits
from kvmodels.public_path import show_public_path
from kvmodels.repository_async import AsyncRepository
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.model import KvModel
from kvmodels.signals import Signals
from kvmodels.transaction_async import AsyncDecorator, AsyncTransactionBlock, AsyncTransactions
from kvmodels.transaction_scope import Store

__all__ = ["AsyncDatabase"]

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")


class AsyncDatabase(AsyncSchemaChanges):
    """A store with the models that live in it; opened by ``async with``, or ``await db.open()``.

    Opening lists new collections in the store's catalogue. An index that was added to a collection with records is
    not built by opening: queries that need it raise IndexNotReadyError until ``build_indexes()`` has run. May be used
    by any number of tasks of one event loop; not after a fork.

    Args:
        url: ``memory://``, ``memory://name``, a path, ``sqlite:///relative``, ``sqlite:////absolute``,
            ``sqlite://:memory:``, ``lmdb:///relative`` or ``lmdb:////absolute`` (needs the extra ``lmdb``).
        models: the model classes.
        codec: how values are packed: ``"msgpack"``, or ``"v8"`` as Deno does; see ``docs/concepts/deno-values.md``.
        limits: sizes that are refused; the smaller of these and the engine's hold.
        durability: ``"commit"``: what was committed survives power loss; ``"relaxed"``: it survives a killed process,
            and after power loss the file is intact and holds the earlier part of it.
        clock: returns milliseconds since the epoch; decides on expiry. None for the system's.
        readonly: every write raises ReadOnlyError.
        retry: how often and how long a conflicting write is tried again.
        require_current: raise SchemaMismatchError when an index is not ready.
        engine_options: what the engine takes besides, such as ``busy_timeout`` (seconds) of SQLite.

    Raises:
        ModelDefinitionError: two models or indexes would share keys.
        SchemaMismatchError: when it is opened: the store is of a newer format, or not current.
        InvalidArgumentError, EngineError: when it is opened: the store cannot be opened.

    Examples:
        >>> import asyncio
        >>> from kvmodels import Indexed, KvModel, PrimaryKey
        >>> class Tree(KvModel, collection="trees"):
        ...     id: PrimaryKey[int]
        ...     kind: Indexed[str]
        >>> async def main():
        ...     async with AsyncDatabase("memory://", models=[Tree]) as db:
        ...         await db[Tree].create(id=1, kind="oak")
        ...         return await db[Tree].filter(kind="oak").count(), (await db.check()).ok
        >>> asyncio.run(main())
        (1, True)
    """

    __slots__ = ("_core", "_kv", "_opening", "_repositories", "_transactions")

    def __init__(
        self,
        url: str | os.PathLike[str] = "memory://",
        *,
        models: Iterable[type[KvModel]] = (),
        codec: str = "msgpack",
        limits: Limits | None = None,
        durability: Durability = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        retry: RetryPolicy = DEFAULT_RETRY,
        require_current: bool = False,
        **engine_options: Any,
    ) -> None:
        core = DatabaseCore(models, retry=retry, readonly=readonly, must_be_current=require_current, codec=codec)
        opening = Opening.of_url(
            url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
        )
        self._start(core, opening)

    @classmethod
    def from_engine(cls, engine: Engine, core: DatabaseCore) -> Self:
        """A database over an engine that is open already, such as a ``FaultEngine``; closing it closes the engine.

        Args:
            engine: where the store is.
            core: the declarations and the injected clocks.

        Returns:
            The database; it still has to be opened.

        Raises:
            ModelDefinitionError, SchemaMismatchError: when it is opened.
        """
        database = cls.__new__(cls)
        database._start(core, Opening.done(engine))
        return database

    def _start(self, core: DatabaseCore, opening: Opening) -> None:
        self._core = core
        self._opening = opening
        self._kv = AsyncKv(opening, core.form)
        self._repositories: dict[type[Any], AsyncRepository[Any]] = {}
        self._transactions = AsyncTransactions(self._store)

    async def open(self) -> Self:
        """Open the store and list new collections; a second call does nothing.

        Returns:
            The database itself.

        Raises:
            ModelDefinitionError, SchemaMismatchError, InvalidArgumentError, EngineError: it cannot be opened.
            ClosedError: it was closed.
        """
        await self._kv.open()
        if not self._core.is_open:
            try:
                await arun(self._engine, self._core.open(self._engine))
            except BaseException:
                await self.close()
                raise
        return self

    async def _store(self) -> Store:
        context = self._core.context  # first of all: nothing is opened if it is not open
        return Store(self._engine, context, self._core.form, self._core.view_for)

    def __getitem__(self, model: type[M]) -> AsyncRepository[M]:
        try:
            known: AsyncRepository[M] | None = self._repositories.get(model)
        except TypeError:  # an object of a model, perhaps, which has no hash
            known = None
        if known is not None:
            return known
        made: AsyncRepository[M] = AsyncRepository(_Runner(self._core, self._run, self._core.view_for(model)))
        self._repositories[model] = made
        return made

    def repository(self, model: type[M]) -> AsyncRepository[M]:
        """The repository of a model; the same as ``db[model]``.

        Args:
            model: one of the models that the database was opened with.

        Returns:
            Its repository. Cost: none.

        Raises:
            InvalidArgumentError: the database was opened without this model.
        """
        return self[model]

    @property
    def kv(self) -> AsyncKv:
        """The key-value API of the same store; raw writes to keys of models raise ReservedKeyError.

        Raises:
            ClosedError: the database is not open yet, so what is reserved in the store is not known.
        """
        if not self._core.is_open:
            raise self._core.not_open()
        return self._kv

    @property
    def signals(self) -> Signals:
        """Functions to run before and after writes of this handle: ``db.signals.after_insert.connect(f, User)``."""
        return self._core.signals

    def transaction(self) -> AsyncTransactionBlock:
        """Read and write several records as one: all of it is committed at the end of the block, or nothing.

        ``tx[User]`` has every verb and query of ``db[User]``. It reads from one state of the store, with what the
        transaction itself has written; the commit checks that what was read is unchanged. What goes through ``db``
        inside of the block is no part of the transaction. A block inside of a block of the same task joins it.

        Returns:
            A block: ``async with db.transaction() as tx``. Cost: one commit of as many checks as keys were read.

        Raises:
            TransactionConflictError: at the end: something that was read was written by others; nothing was written.
            UniqueViolationError: at the end: a unique value belongs to another record.
            TransactionAbortedError: at the end: an exception has left an inner block.
            OperationTooLargeError: at the end: more was read or written than one operation may hold.
            CommitUnknownError: the answer was lost, and the outcome could not be found out.

        Examples:
            >>> import asyncio
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Account(KvModel, collection="accounts"):
            ...     name: PrimaryKey[str]
            ...     balance: int = 0
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Account]) as db:
            ...         await db[Account].bulk_create([Account(name="ada", balance=10), Account(name="bob")])
            ...         async with db.transaction() as tx:
            ...             ada, bob = await tx[Account].get("ada"), await tx[Account].get("bob")
            ...             ada.balance, bob.balance = ada.balance - 4, bob.balance + 4
            ...             await tx[Account].save(ada)
            ...             await tx[Account].save(bob)
            ...         return [(account.name, account.balance) async for account in db[Account]]
            >>> asyncio.run(main())
            [('ada', 6), ('bob', 4)]
        """
        return self._transactions.block()

    def transactional(self, retries: int = 10) -> AsyncDecorator:
        """Make a coroutine function a transaction that is run again from its beginning after a conflict.

        The function gets the transaction as its first argument, and its callers leave that out. It should do nothing
        else that lasts, because it may run several times: use ``tx.on_commit`` for what is to happen once. Called in a
        transaction of the same database and task, it joins that.

        Args:
            retries: how often it is run again at most, 0 or more, with the pauses and the deadline of the
                ``RetryPolicy`` of the database.

        Returns:
            A decorator.

        Raises:
            RetriesExhaustedError: when the function is called: every run met a conflict.
            InvalidArgumentError: no number of retries, or no coroutine function.

        Examples:
            >>> import asyncio
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Ticket(KvModel, collection="tickets"):
            ...     id: PrimaryKey[int]
            ...     owner: str | None = None
            >>> db = AsyncDatabase("memory://", models=[Ticket])
            >>> @db.transactional()
            ... async def take(tx, number, owner):
            ...     ticket = await tx[Ticket].get(number)
            ...     ticket.owner = ticket.owner or owner
            ...     return await tx[Ticket].save(ticket)
            >>> async def main():
            ...     async with db:
            ...         await db[Ticket].create(id=1)
            ...         return (await take(1, "ada")).owner, (await take(1, owner="bob")).owner
            >>> asyncio.run(main())
            ('ada', 'ada')
        """
        return self._transactions.decorator(retries)

    async def check(self, model: type[KvModel] | None = None, *, repair: scrub.Repair = False) -> findings.CheckReport:
        """Check that every index entry and counter equals f(records) and the reverse; safe beside live writers.

        Args:
            model: check only its collection; None for all.
            repair: True mends entries, and builds an aggregate index with wrong counters once more, which rewrites
                every record; ``"all"`` also deletes foreign keys and rows that are no documents.
                A document that the model does not accept is kept by every repair: mend the model, or remove it with
                ``repository.remove(key)``.

        Returns:
            What was found. Cost: reads every record and entry, in batches of 500; for aggregate indexes every record
            once more in one snapshot, which keeps a number per counter in memory. Counters of an index that is being
            built are not compared, nor those of a collection with records that cannot be read; ``unchecked`` of the
            report names them, and every index that this release does not declare.

        Raises:
            InvalidArgumentError: an unknown kind of repair.
            SnapshotExpiredError: counting took longer than the engine keeps a snapshot (``snapshot_max_age``).

        Examples:
            >>> import asyncio
            >>> async def main():
            ...     async with AsyncDatabase("memory://") as db:
            ...         print(await db.check())
            >>> asyncio.run(main())
            ok: 0 rows scanned; 0 dangling, 0 missing, 0 foreign, 0 undecodable, 0 computed, 0 counters; 0 repaired
        """
        report = await self._run(self._core.check(model, repair))
        for counting in self._core.recounts(model):
            engine = self._engine
            state = await apin(engine) if engine.traits.snapshots else None
            try:
                recounted = await arun(engine, counting, snapshot=state)
            finally:
                if state is not None:
                    await arelease(engine, state)
            report = await self._run(self._core.settle(report, recounted, repair))
        return report

    async def outcome(self, token: str) -> bool:
        """Find out how a write ended whose answer was lost (``CommitUnknownError.token``).

        Args:
            token: of the error; it is kept for 15 minutes at least.

        Returns:
            True when it was applied; False when it was not and never will be. Cost: one commit, or one and a read.

        Raises:
            CommitUnknownError: these answers were lost as well.
        """
        return await self._run(self._core.outcome(token))

    async def forget_bulk(self, resume_id: str) -> bool:
        """Forget a bulk write that was begun with ``resume_id``, or its result, so that the id is free again.

        What it has written stays. A process that is at it stops before its next batch.

        Args:
            resume_id: of the bulk write.

        Returns:
            Whether there was one. Cost: one commit, and one for each 500 rows that it has kept.

        Raises:
            InvalidArgumentError: no id.
        """
        return await self._run(self._core.forget_bulk(resume_id))

    async def close(self) -> None:
        """Close the store; waits for running calls, and may be called twice."""
        await self._kv.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self._core.schemas.values())
        return f"<{type(self).__name__} models=[{names}]>"


class _Runner:
    """Runs the flows of one repository."""

    __slots__ = ("_core", "_run", "schema")

    def __init__(
        self,
        core: DatabaseCore,
        run: Callable[[AnyFlow[Any]], Coroutine[Any, Any, Any]],
        schema: ModelSchema,
    ) -> None:
        self._core = core
        self._run = run
        self.schema = schema

    @property
    def context(self) -> Context:
        return self._core.context

    def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Coroutine[Any, Any, Any]:
        return self._run(fetch.get(self._core.context, self.schema, arguments, lookups))

    def run(self, flow: AnyFlow[T]) -> Coroutine[Any, Any, T]:
        # Not awaited here: of a thousand tasks that wait, each would keep a coroutine more.
        return self._run(flow)


show_public_path(AsyncDatabase)
