"""The database: open a store with its models, return repositories, and manage indexes and schemas.

Rules of this module: a method runs one flow and contains no decisions. Code that only an open store needs is loaded
when the first store opens.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Self, TypeVar, overload

from kvmodels._support.naming import show_public_path
from kvmodels.api import core as database_core
from kvmodels.api import dump_files, schema_arguments, tenancy
from kvmodels.api import opening as kv_opening
from kvmodels.api import scope as transaction_scope
from kvmodels.api._async import _compat as worlds
from kvmodels.api._async import copies
from kvmodels.api._async import history as histories
from kvmodels.api._async import kv as key_value
from kvmodels.api._async import queue as queues
from kvmodels.api._async import repository as repositories
from kvmodels.api._async import transaction as transactions
from kvmodels.api._async.feeds import follower as followers
from kvmodels.api._async.schema.changes import AsyncSchemaChanges
from kvmodels.api._async.schema.descriptions import AsyncDescriptions
from kvmodels.api.progress import listening
from kvmodels.api.refusals import refuse_copies, refuse_other_with, require_subclass
from kvmodels.api.settings import DatabaseSettings
from kvmodels.codecs.sealing.key_ring import KeyProvider
from kvmodels.core.ulid import ULID
from kvmodels.engines import contract as base
from kvmodels.errors import TenantNotFoundError, TenantRemovedError
from kvmodels.flows import arguments
from kvmodels.flows import context as contexts
from kvmodels.flows import effects as requests
from kvmodels.flows import scans as scanning
from kvmodels.flows import signals as signalling
from kvmodels.flows import tenants as tenant_flows
from kvmodels.flows.blobs import sweep as blob_sweep
from kvmodels.flows.bulk import options_and_results as bulk_options
from kvmodels.flows.bulk import progress as bulk_progress
from kvmodels.flows.evolution import throttle as pace
from kvmodels.flows.feeds import follow as following
from kvmodels.flows.feeds import sink as sinks
from kvmodels.flows.kv import formats as dump_formats
from kvmodels.flows.kv import record_watch
from kvmodels.flows.retry_policy import DEFAULT_RETRY, RetryPolicy
from kvmodels.flows.transfer import load as record_load
from kvmodels.flows.transfer import whole_store
from kvmodels.flows.writing import acting
from kvmodels.limits import Limits
from kvmodels.runtime.observing import counters as counting
from kvmodels.runtime.observing import operation as operations
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)
K = TypeVar("K", bound="repositories.AsyncRepository[Any]")
T = TypeVar("T")


class AsyncRepositories(ABC):
    """The repositories of a database or of a transaction, by model."""

    __slots__ = ("_repositories",)

    _repositories: dict[type[Any], repositories.AsyncRepository[Any]]

    @abstractmethod
    def _new_repository(self, kind: type[K], model: type[Any]) -> K:
        """Return a repository of a registered model. Raises InvalidArgumentError."""

    def __getitem__(self, model: type[M]) -> repositories.AsyncRepository[M]:
        try:
            known: repositories.AsyncRepository[Any] | None = self._repositories.get(model)
        except TypeError:  # probably an object of a model, which has no hash
            known = None
        if known is None:
            kind: type[repositories.AsyncRepository[Any]] = repositories.AsyncRepository
            known = self._repositories[model] = self._new_repository(kind, model)
        return known

    @overload
    def repository(self, model: type[M]) -> repositories.AsyncRepository[M]: ...
    @overload
    def repository(self, model: type[M], kind: type[K]) -> K: ...
    def repository(self, model: type[M], kind: type[Any] | None = None) -> Any:
        """Return the repository of a model, as ``db[model]`` does, or one of a class with methods of your own.

        That of a transaction, ``tx.repository(model)``, reads and writes in the transaction, as ``tx[model]`` does.

        Args:
            model: one of the models that the database was opened with.
            kind: a class that is derived from ``AsyncRepository``; None for ``AsyncRepository`` itself.

        Returns:
            The repository. Cost: none.

        Raises:
            InvalidArgumentError: the database was opened without this model, or ``kind`` is not a repository class.

        Examples:
            >>> from kvmodels import AsyncQuerySet, AsyncRepository, Field, Indexed, KvModel, PrimaryKey
            >>> class Task(KvModel, collection="tasks"):
            ...     id: PrimaryKey[int]
            ...     done: Indexed[bool] = Field(default=False)
            >>> class Tasks(AsyncRepository[Task]):
            ...     def open(self) -> AsyncQuerySet[Task]:
            ...         return self.filter(done=False)
            ...     async def finish(self, key: int) -> Task:
            ...         return await self.patch(key, done=True)
            >>> async with AsyncDatabase("memory://", models=[Task]) as db:
            ...     tasks = db.repository(Task, Tasks)
            ...     _ = await tasks.bulk_create([Task(id=1), Task(id=2)])
            ...     _ = await tasks.finish(1)
            ...     await tasks.open().count()
            1
        """
        if kind is None:
            return self[model]
        require_subclass(repositories.AsyncRepository, kind)
        return self._new_repository(kind, model)


class AsyncDatabase(AsyncRepositories, AsyncSchemaChanges, AsyncDescriptions):
    """A store opened with the models that it holds.

    Opening lists new collections in the store's catalogue, but builds no index: if an index was added to a collection
    with records, queries that need it raise IndexNotReadyError until ``build_indexes()`` has run. A database is safe to
    share between threads, or between tasks of one event loop, but not after a fork. An asynchronous database is opened
    by ``async with`` or ``await db.open()``, a synchronous one by its constructor.

    Args:
        url: ``memory://``, ``memory://name``, a path, ``sqlite:///relative``, ``sqlite:////absolute``,
            ``sqlite://:memory:``, ``lmdb:///relative`` or ``lmdb:////absolute`` (needs the extra ``lmdb``),
            ``postgresql://user@host/database`` (needs the extra ``postgres``), ``https://host/path`` or
            ``http://localhost:4512`` (a KV Connect database; needs the extra ``connect``),
            ``etcd://h1:2379,h2:2379,h3:2379/prefix`` or ``etcds://`` (an etcd cluster; needs the extra ``etcd``).
        models: the model classes.
        codec: the encoding of values: ``"msgpack"``, or ``"v8"``, which Deno uses; see
            ``docs/concepts/deno-values.md``. None for ``"v8"`` over KV Connect, else ``"msgpack"``.
        keys: the master keys of encrypted fields: a ``KeyRing``, or any object whose ``get(key_id)`` returns 32 bytes.
        limits: maximum sizes; the smaller of these and the engine's apply.
        durability: ``"commit"``: committed data survives power loss. ``"relaxed"``: it survives a killed process; after
            power loss the file is intact, but the latest commits may be missing.
        clock: a function that returns milliseconds since the epoch and decides when records expire; None for the system
            clock.
        readonly: every write raises ReadOnlyError.
        retry: how often and how long a conflicting write is retried.
        require_current: raise SchemaMismatchError when an index is not ready.
        observer: is called with every finished operation; see ``add_observer``.
        tenant_models: the model classes of tenants, whose records are in a part of the store for each tenant; see
            ``tenant``.
        tenant_cache: the number of tenants whose handles are kept.
        scans: the treatment of queries that no index serves: ``"refuse"``: they raise NoUsableIndexError. ``"warn"``:
            they read the whole collection, or sort in memory, with a ``ScanWarning`` that has the line to add.
            ``"allow"``: they do so silently. See ``allow_scans``.
        engine_options: options of the engine, such as ``busy_timeout`` (seconds) of SQLite.

    Raises:
        ModelDefinitionError: two models or indexes would share keys.
        SchemaMismatchError: the store has a newer format, or an index is not ready and ``require_current`` is set.
        InvalidArgumentError, EngineError: the store cannot be opened.

    Examples:
        >>> from kvmodels import Indexed, KvModel, PrimaryKey
        >>> class Tree(KvModel, collection="trees"):
        ...     id: PrimaryKey[int]
        ...     kind: Indexed[str]
        >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
        ...     _ = await db[Tree].create(id=1, kind="oak")
        ...     await db[Tree].filter(kind="oak").count(), (await db.check()).ok
        (1, True)
    """

    __slots__ = ("_core", "_handles", "_is_open", "_kv", "_life", "_opening", "_settings", "_transactions")

    def __init__(
        self,
        url: str | os.PathLike[str] = "memory://",
        *,
        models: Iterable[type[KvModel]] = (),
        codec: str | None = None,
        keys: KeyProvider | None = None,
        limits: Limits | None = None,
        durability: kv_opening.Durability = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        retry: RetryPolicy = DEFAULT_RETRY,
        require_current: bool = False,
        observer: operations.Observer | None = None,
        tenant_models: Iterable[type[KvModel]] = (),
        tenant_cache: int = 1_000,
        scans: scanning.Scans = "refuse",
        **engine_options: Any,
    ) -> None:
        codec = kv_opening.codec_for(codec, url)
        core = database_core.DatabaseCore(
            models,
            tenant_models=tenant_models,
            retry=retry,
            readonly=readonly,
            must_be_current=require_current,
            codec=codec,
            scans=scans,
            keys=keys,
        )
        stored: dict[str, Any] = {
            "limits": limits,
            "durability": durability,
            "clock": clock,
            "readonly": readonly,
            **engine_options,
        }
        declared: dict[str, Any] = {"codec": codec, "retry": retry, "require_current": require_current}
        declared |= {"observer": observer, "scans": scans, "keys": keys}
        tenant_options = {"tenant_models": core.tenant_models, "tenant_cache": tenancy.require_cache(tenant_cache)}
        settings = DatabaseSettings(core.models, url, stored | declared | tenant_options)
        opening = kv_opening.Opening.of_url(url, **stored)
        if observer is not None:
            opening.add_observer(observer)
        self._start(core, opening, settings, tenancy.TenantHandles(tenant_cache))

    @classmethod
    def from_engine(cls, engine: base.Engine, core: database_core.DatabaseCore) -> Self:
        """Return a database over an open engine, such as a ``FaultEngine``; closing the database closes the engine.

        Args:
            engine: the open engine.
            core: the declarations and the injected clocks.

        Returns:
            The database.

        Raises:
            ModelDefinitionError, SchemaMismatchError: as for the constructor.
        """
        database = cls.__new__(cls)
        database._start(core, kv_opening.Opening.done(engine), None)
        return database

    def _start(
        self,
        core: database_core.DatabaseCore,
        opening: kv_opening.Opening,
        settings: DatabaseSettings | None,
        handles: tenancy.TenantHandles[AsyncDatabase] | None = None,
    ) -> None:
        self._core = core
        self._opening = opening
        self._settings = settings
        self._is_open = False
        self._life: tenant_flows.TenantLife | None = None
        self._handles: tenancy.TenantHandles[AsyncDatabase] = handles or tenancy.TenantHandles(1_000)
        self._kv = key_value.AsyncKv(opening, core.form, view=True)
        self._repositories = {}
        self._transactions = transactions.AsyncTransactions(self._store)
        worlds.open_eagerly(self._open)

    # async only
    async def open(self) -> Self:
        """Open the store and list new collections; a second call has no effect.

        Returns:
            The database itself.

        Raises:
            ModelDefinitionError, SchemaMismatchError, InvalidArgumentError, EngineError: the store cannot be opened.
            ClosedError: the database was closed.
        """
        await self._open()
        return self

    # end async only
    async def _open(self) -> None:
        engine = await worlds.engine_of(self._opening)
        engine.now_ms()  # raises if the engine was closed
        if not self._is_open:
            try:
                await worlds.perform(
                    engine,
                    self._core.open(engine, worlds.release_writes, worlds.blob_home(self._opening)),
                    self._opening.observation("open"),
                )
            except BaseException:
                await self.close()
                raise
            self._is_open = True

    @property
    def _engine(self) -> base.Engine:
        return self._opening.open()

    def _run(self, verb: str, flow: requests.AnyFlow[T]) -> Coroutine[Any, Any, T]:
        return worlds.perform(self._engine, flow, self._opening.observation(verb))

    async def _store(self) -> transaction_scope.Store:
        context = self._core.context  # first, so that nothing is opened if the database is not open
        return transaction_scope.Store(
            self._engine, context, self._core.form, self._core.view_for, self._opening.reporters
        )

    def _new_repository(self, kind: type[K], model: type[Any]) -> K:
        return kind(worlds.AsyncModelRunner(self._opening, self._core, self._core.view_for(model)))

    @property
    def kv(self) -> key_value.AsyncKv:
        """The key-value API of the same store; raw writes to keys of models raise ReservedKeyError.

        A view: closing it leaves the store open. The database closes the store.
        """
        _ = self._core.context  # raises if the database is not open
        return self._kv

    @property
    def url(self) -> str | None:
        """The URL of the store without its password; None before it is open, and for a tenant."""
        return self._opening.url if self._life is None else None

    @property
    def settings(self) -> DatabaseSettings | None:
        """The arguments of the constructor, to open the same store again; None for ``from_engine`` and a tenant."""
        return self._settings

    @property
    def models(self) -> tuple[type[KvModel], ...]:
        """The model classes that the database was opened with, in the order in which they were given."""
        return self._core.models

    @property
    def tenant_models(self) -> tuple[type[KvModel], ...]:
        """The model classes of tenants that the database was opened with; none for the database of a tenant."""
        return self._core.tenant_models if self._life is None else ()

    @property
    def signals(self) -> signalling.Signals:
        """Functions that run before and after writes of this handle: ``db.signals.after_insert.connect(f, User)``."""
        return self._core.signals

    def add_observer(self, observer: operations.Observer) -> None:
        """Call an observer with every operation of this handle that finishes from now on; it may be one of several.

        Args:
            observer: a plain function of a ``FinishedOperation``, or an object like ``QueryLog()``. It is called in the
                thread or task of the operation, before the method returns, and possibly in several threads at once. Its
                exceptions are logged once, by ``kvmodels.observer``, and do not reach the caller of the method.

        Raises:
            InvalidArgumentError: it cannot be called, or is a coroutine function, or a class.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Lamp(KvModel, collection="lamps"):
            ...     id: PrimaryKey[int]
            >>> seen = []
            >>> async with AsyncDatabase("memory://", models=[Lamp], observer=seen.append) as db:
            ...     _ = await db[Lamp].create(id=1)
            ...     _ = await db[Lamp].get(1)
            >>> [(one.verb, one.collection, one.commits, one.rows) for one in seen[1:]]
            [('insert', 'lamps', 1, 0), ('get', 'lamps', 0, 1)]
        """
        self._require_store("add_observer")
        self._opening.add_observer(observer)

    def remove_observer(self, observer: operations.Observer) -> bool:
        """Stop calling an observer.

        Args:
            observer: the same object that was given to ``add_observer`` or to the constructor.

        Returns:
            Whether it was an observer of this handle. Operations that have already begun may still be reported to it.
        """
        self._require_store("remove_observer")
        return self._opening.remove_observer(observer)

    def metrics(self) -> counting.Metrics:
        """Return the counters of operations, of conflicts, and of the uses of each index.

        An ``OperationCounters`` observer of this database keeps them, from the moment when it was made. Without one
        nothing is counted, so that a database without observers pays nothing for them.

        Returns:
            The present values, with a row for every declared index. Cost: no read of the store.

        Raises:
            UnsupportedError: the database has no such observer.

        Examples:
            >>> from kvmodels import OperationCounters, KvModel, PrimaryKey
            >>> class Door(KvModel, collection="doors"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", models=[Door], observer=OperationCounters()) as db:
            ...     _ = [await db[Door].create(id=number) for number in range(3)]
            ...     [(one.verb, one.count) for one in db.metrics().verbs if one.collection == "doors"]
            [('insert', 3)]
        """
        self._require_store("metrics")
        return self._core.metrics(self._opening.reporters)

    def allow_scans(self) -> AbstractContextManager[None]:
        """Allow the queries of a block that no index serves, as if each had called ``allow_scan()``.

        For notebooks, shells and scripts. It holds for the code that the block calls or awaits, for transactions and
        for the databases of tenants of this handle. A query that must sort, or hold distinct values or groups, holds at
        most 10,000 of them, unless it calls ``sort_in_memory(limit)``.

        Returns:
            The block. Cost: none; queries that an index serves are planned as always.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Guest(KvModel, collection="guests"):
            ...     id: PrimaryKey[int]
            ...     age: int
            >>> async with AsyncDatabase("memory://", models=[Guest]) as db:
            ...     _ = await db[Guest].bulk_create([Guest(id=1, age=70), Guest(id=2, age=7)])
            ...     with db.allow_scans():
            ...         [guest.id for guest in await db[Guest].filter(age__gt=5).order_by("age").to_list()]
            [2, 1]
        """
        return self._core.scans.allowing()

    def transaction(self) -> transactions.AsyncTransactionBlock:
        """Begin a transaction: all reads and writes of its block are committed together at its end, or not at all.

        ``tx[User]`` has every method of ``db[User]``. It reads one state of the store plus the transaction's own
        writes; the commit checks that all data that was read is unchanged. Calls on ``db`` inside the block are not
        part of the transaction. A block that is entered by code that this block calls or awaits joins it.

        Returns:
            A block for ``with db.transaction() as tx``. Cost: one commit with one check for each key that was read.

        Raises:
            TransactionConflictError: at the end: another writer changed data that was read; nothing was written.
            UniqueViolationError: at the end: a unique value belongs to another record.
            ReferenceViolationError, ProtectedError: at the end: a foreign key would refer to a missing record.
            TransactionSuspendedError: at the beginning: a suspended generator of this thread or task has an open
                transaction.
            TransactionAbortedError: at the end: an exception escaped from an inner block.
            OperationTooLargeError: at the end: more was read or written than one operation can hold.
            CommitUnknownError: the answer was lost, and the outcome could not be found out.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Account(KvModel, collection="accounts"):
            ...     name: PrimaryKey[str]
            ...     balance: int = 0
            >>> db = await AsyncDatabase("memory://", models=[Account]).open()
            >>> _ = await db[Account].bulk_create([Account(name="ada", balance=10), Account(name="bob")])
            >>> async with db.transaction() as tx:
            ...     ada, bob = await tx[Account].get("ada"), await tx[Account].get("bob")
            ...     ada.balance, bob.balance = ada.balance - 4, bob.balance + 4
            ...     _ = await tx[Account].save(ada), await tx[Account].save(bob)
            >>> [(account.name, account.balance) async for account in db[Account]]
            [('ada', 6), ('bob', 4)]
        """
        return self._transactions.block()

    def transactional(self, retries: int | None = None) -> transactions.AsyncDecorator:
        """Decorate a function to run in a transaction, and to run again from its beginning after a conflict.

        The function receives the transaction as its first argument; its callers omit it. Because it may run several
        times, it should have no other lasting effects: pass them to ``tx.on_commit``, which runs them once. After a
        conflict, the function waits in a queue of this process for its turn on the conflicting keys. It also runs again
        after the store has ended its snapshot, such as when the connection to a server broke before the commit. If it
        is called in a transaction of the same database and task, it joins that transaction.

        Args:
            retries: the maximum number of reruns, 0 or more; None for the attempts of the database's ``RetryPolicy``,
                50 by default. The deadline of the policy always applies too.

        Returns:
            A decorator.

        Raises:
            RetriesExhaustedError: when the function is called: every run met a conflict.
            SnapshotLostError: when the function is called: the last run that was allowed lost its snapshot.
            InvalidArgumentError: ``retries`` is not a valid number, or the function cannot be run again.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Ticket(KvModel, collection="tickets"):
            ...     id: PrimaryKey[int]
            ...     owner: str | None = None
            >>> db = await AsyncDatabase("memory://", models=[Ticket]).open()
            >>> _ = await db[Ticket].create(id=1)
            >>> @db.transactional()
            ... async def take(tx, number, owner):
            ...     ticket = await tx[Ticket].get(number)
            ...     ticket.owner = ticket.owner or owner
            ...     return await tx[Ticket].save(ticket)
            >>> (await take(1, "ada")).owner, (await take(1, owner="bob")).owner
            ('ada', 'ada')
        """
        return self._transactions.decorator(retries)

    # --- tenants ----------------------------------------------------------------------------------------------

    @property
    def tenant_name(self) -> str | None:
        """The name of the tenant that this database is confined to; None for a whole store."""
        return None if self._life is None else self._life.name

    def tenant(self, name: str, *, create: bool = False) -> AsyncDatabase:
        """Return a database that is confined to one tenant, with the models of tenants.

        It has the methods of a database, except those that concern the whole store, which raise UnsupportedError. No
        method of it reads or writes a key of another tenant. It shares the engine, observers and signals of this
        database, and needs no closing.

        Args:
            name: a text of 1 to 64 bytes.
            create: whether the first write creates the tenant if it does not exist; until then it is read as empty.

        Returns:
            The database of the tenant. Cost: none; its first use reads the row of the tenant.

        Raises:
            InvalidArgumentError: the name is not valid, or the database was opened without models of tenants.
            UnsupportedError: this is the database of a tenant.
            TenantNotFoundError: at its first use: the store has no such tenant.
            TenantRemovedError: at a use: the tenant was removed.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Desk(KvModel, collection="desks"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Desk]) as db:
            ...     acme, initech = db.tenant("acme", create=True), db.tenant("initech", create=True)
            ...     _ = await acme[Desk].create(id=1), await initech[Desk].create(id=1), await acme[Desk].create(id=2)
            ...     await acme[Desk].count(), await initech[Desk].count()
            (2, 1)
        """
        self._require_store("tenant")
        arguments.require_flag("create", create)
        known = self._handles.get(tenant_flows.require_name(name), creates=create)
        if known is not None:
            return known
        life = tenant_flows.TenantLife(name, self._core.form.codec, creates=create)
        part, core = tenancy.tenant_engine(self._engine, self._core, life, worlds.run)
        handle = AsyncDatabase.__new__(AsyncDatabase)
        handle._confine(core, self._opening.of_part(part, name), life)
        self._handles.put(life, handle)
        return handle

    def _confine(
        self, core: database_core.DatabaseCore, opening: kv_opening.Opening, life: tenant_flows.TenantLife
    ) -> None:
        self._core = core
        self._core.context.blob_home = worlds.blob_home(opening)
        self._opening = opening
        self._settings = None
        self._is_open = True
        self._life = life
        self._handles = tenancy.TenantHandles(0)
        self._kv = key_value.AsyncKv(opening, core.form, view=True)
        self._repositories = {}
        self._transactions = transactions.AsyncTransactions(self._store)

    async def sweep_blobs(self, limit: int = 1_000) -> int:
        """Remove the content of blobs that no record has any more.

        Content without a record is kept for a day, and content that the history of a record needs for as long as that.
        A process that stores blobs also does this by itself, at most once an hour.

        Args:
            limit: the most blobs to remove; call again while the result is as large.

        Returns:
            The number of blobs that were removed. Cost: a scan of the blobs without a record; for each blob that is
            due one commit for 40 chunks, and one more.

        Raises:
            InvalidArgumentError: the limit is not a positive number.
        """
        return await self._run("sweep_blobs", blob_sweep.sweep_blobs(self._core.context, limit))

    async def create_tenant(self, name: str) -> bool:
        """Create a tenant; no effect if it exists.

        Args:
            name: a text of 1 to 64 bytes.

        Returns:
            Whether it was created. Cost: two reads and one commit.

        Raises:
            InvalidArgumentError: the name is not valid, or the database was opened without models of tenants.
            TenantRemovedError: a tenant of this name is being removed.
            SchemaMismatchError: a dump is being loaded into the store.
            UnsupportedError: this is the database of a tenant.
        """
        self._require_store("create_tenant")
        schemas = self._core.of_tenants().schemas
        creating = tenant_flows.create_tenant(self._core.context, tenant_flows.require_name(name), schemas)
        created = await self._run("create_tenant", creating)
        if created:
            self._handles.forget(name)  # they are of an earlier life
        return created

    async def tenants(
        self, *, prefix: str = "", after: str | None = None, limit: int = 1_000
    ) -> tuple[tenant_flows.TenantStatus, ...]:
        """Return tenants of the store in the order of their names.

        Args:
            prefix: only names that begin with it.
            after: only names after this one, to resume a list.
            limit: the maximum number of tenants.

        Returns:
            The tenants with their states. Cost: reads a row for each, and nothing else.

        Raises:
            InvalidArgumentError: an argument is not valid.
            UnsupportedError: this is the database of a tenant.
        """
        self._require_store("tenants")
        return await self._run("tenants", tenant_flows.list_tenants(self._core.context, prefix, after, limit))

    async def remove_tenant(
        self,
        name: str,
        *,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> bool:
        """Remove a tenant with all its keys: records, indexes, messages, locks and other keys.

        The first commit marks the tenant. From then on every write in it raises TenantRemovedError, and so does every
        read by a database of the tenant that this process has already. Then its keys are removed in batches, and last
        its row. An interrupted call can be repeated.

        Args:
            name: the tenant.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch of keys
                with a ``SchemaProgress`` whose ``step`` is ``"drop"``; an exception that it raises stops the removal,
                which the next call resumes.
            throttle: the maximum number of keys per second; None for no limit.

        Returns:
            Whether there was such a tenant. Cost: two commits, and one per 400 keys.

        Raises:
            InvalidArgumentError: the name is not valid, or the throttle is not a positive number.
            RetriesExhaustedError: other processes changed the tenant's row in every attempt.
            UnsupportedError: this is the database of a tenant.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Lamp(KvModel, collection="lamps"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Lamp]) as db:
            ...     _ = await db.create_tenant("acme"), await db.tenant("acme")[Lamp].create(id=1)
            ...     await db.remove_tenant("acme"), await db.remove_tenant("acme"), await db.tenants()
            (True, False, ())
        """
        with listening.listener(progress, "remove") as listen:
            self._require_store("remove_tenant")
            speed, engine = pace.Pace(listen, throttle), self._engine

            def ended(life: str) -> None:
                tenancy.end_lives(engine, name, life)

            removing = tenant_flows.remove_tenant(self._core.context, tenant_flows.require_name(name), speed, ended)
            removed = await self._run("remove_tenant", removing)
            self._handles.forget(name)
            return removed

    async def each_tenant(
        self, function: Callable[[AsyncDatabase], Awaitable[T]], *, prefix: str = "", concurrency: int = 1
    ) -> dict[str, T]:
        """Call a function with the database of each tenant, such as for a report; return the results by name.

        It is not one snapshot: each tenant is read at another moment, and those that are created or removed meanwhile
        may be left out. After an error no other calls begin, and the error is raised: threads finish their calls first,
        and tasks are cancelled.

        Args:
            function: takes the database of a tenant; a coroutine function, for a synchronous database a plain one.
            prefix: only tenants whose names begin with it.
            concurrency: how many calls run at once, in threads or tasks.

        Returns:
            The results, in the order of the names. Cost: reads the row of each tenant, and what the function reads.

        Raises:
            InvalidArgumentError: an argument is not valid, or the database was opened without models of tenants.
            UnsupportedError: this is the database of a tenant.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Vote(KvModel, collection="votes"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Vote]) as db:
            ...     for name in ("acme", "initech"):
            ...         _ = await db.tenant(name, create=True)[Vote].create(id=1)
            ...     async def votes(tenant):
            ...         return await tenant[Vote].count()
            ...     await db.each_tenant(votes)
            {'acme': 1, 'initech': 1}
        """
        self._require_store("each_tenant")
        worlds.require_per_tenant(function)
        _ = self._core.of_tenants()
        wanted = schema_arguments.require_concurrency(concurrency)
        names = await self._run("tenants", tenant_flows.active_tenants(self._core.context, prefix))
        results: dict[str, T] = {}

        async def work(name: str) -> None:
            try:
                results[name] = await function(self.tenant(name))
            except Exception as error:
                if isinstance(error, (TenantNotFoundError, TenantRemovedError)) and error.tenant == name:
                    return
                error.add_note(f"kvmodels: in the tenant {name!r}")
                raise

        await worlds.for_each(names, work, wanted)
        return {name: results[name] for name in names if name in results}

    def follow(
        self, models: Iterable[type[KvModel]], sink: sinks.Sink, *, batch_size: int = 500
    ) -> followers.AsyncFollower:
        """Return a follower, which keeps another store equal to the records of some models.

        The database must keep a change log: ``AsyncDatabase(url, change_log=3600)``. The sink stores each batch of
        changes and its position in one transaction, so each change is applied exactly once, also if the process dies.

        Args:
            models: the models to follow.
            sink: the other store: ``FtsSink("search.db", "title")`` of ``kvmodels.ext.fts``, or your own.
            batch_size: the number of changes, and in the first scan of records, with which a batch ends.

        Returns:
            The follower; ``run()`` starts it. Cost: none.

        Raises:
            InvalidArgumentError: an argument is invalid, the database was opened without one of the models, or two of
                them share a collection.

        Examples:
            >>> import tempfile
            >>> from kvmodels import KvModel, PrimaryKey
            >>> from kvmodels.ext.fts import FtsSink
            >>> class Note(KvModel, collection="notes"):
            ...     id: PrimaryKey[int]
            ...     text: str
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     sink = FtsSink(f"{folder}/search.db", "text")
            ...     async with AsyncDatabase("memory://", models=[Note], change_log=60) as db:
            ...         _ = await db[Note].create(id=1, text="an ordered key-value store")
            ...         _ = await db.follow([Note], sink).catch_up()
            ...     sink.search("ordered store")
            ...     sink.close()
            [('notes', 1)]
        """
        arguments.require_limit(batch_size, "Give the number of changes of a batch, 1 or more.")
        sinks.require_sink(sink)
        given = arguments.items_of("models", models, "Pass a list of models: db.follow([Article], sink).")
        schemas = following.separate([self._core.view_for(model) for model in given])
        return followers.AsyncFollower(self._opened, schemas, sink, batch_size)

    async def _opened(self) -> tuple[base.Engine, contexts.Context]:
        await self._open()
        return self._engine, self._core.context

    async def copy_tenant(self, name: str, *, as_: str | None, to: AsyncDatabase | None = None) -> int:
        """Copy all keys of one snapshot of a tenant, into a new tenant or into a store of its own.

        Until the copy is complete, every use of the new tenant is refused. If it fails, it is removed. If the process
        ends before, ``remove_tenant`` removes what it has left. Versionstamps are new, and indexes that were being
        built are not copied.

        Args:
            name: the tenant to copy.
            as_: the name of the new tenant; None for the own part of ``to``, which must be empty.
            to: the database of the copy; None for this one.

        Returns:
            The number of keys. Cost: reads the tenant once, and one commit per 1,000 keys.

        Raises:
            InvalidArgumentError: a name is not valid, or ``to`` is not an open database of this kind.
            TenantNotFoundError, TenantRemovedError: there is no such tenant.
            TenantError: there is a tenant of the new name.
            EngineError: the store is not empty.
            SnapshotLostError: the store has ended the snapshot, such as when a connection broke.
            LimitExceededError, InvalidValueError: the other store cannot hold a key or a value.
            UnsupportedError: this or the other is the database of a tenant, or the engine has no snapshots.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Desk(KvModel, collection="desks"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Desk]) as db:
            ...     _ = await db.create_tenant("acme"), await db.tenant("acme")[Desk].create(id=1)
            ...     _ = await db.copy_tenant("acme", as_="trial")
            ...     await db.tenant("trial")[Desk].count()
            1
        """
        self._require_store("copy_tenant")
        target = self if to is None else tenancy.require_database(AsyncDatabase, to)
        target._require_store("copy_tenant")
        tenant_flows.require_name(name)
        engine, form, token = target._engine, target._core.form, str(ULID())
        loading = whole_store.loading_as(as_, form, form.limits_within(engine.limits), token)
        own = self._opening.observation("copy_tenant")
        copied = await copies.copy_tenant(self._engine, self._core.form, name, engine, loading, observation=own)
        if as_ is not None:
            target._handles.forget(as_)
        return copied

    def listen_tenants(
        self,
        handler: Callable[[AsyncDatabase, Any], object],
        *,
        concurrency: int = 1,
        lease: float | timedelta = 30.0,
    ) -> queues.AsyncQueueListener:
        """Start to handle the messages of all tenants, those that are created later included.

        It does what ``db.tenant(name).kv.listen`` does for each tenant, with one listener. Tenants take turns: a tenant
        with many messages delays the others by one message at a time.

        Args:
            handler: called with the database of the tenant and the message, up to ``concurrency`` times in parallel; a
                coroutine function only if the store is asynchronous.
            concurrency: the maximum number of messages handled in parallel, 1 or more.
            lease: seconds or a timedelta, 0.1 or more, after which a message of a dead process is redelivered. On
                engines that do not end leases it may take twice as long.

        Returns:
            The listener, to stop it or wait for it; as a context manager, it stops at the end of the block. Cost: while
            no message is ready, one read of one key after each commit, however many tenants and messages there are.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument is invalid, or the database was opened without models
                of tenants.
            UnsupportedError: this is the database of a tenant, or the store is asynchronous, and no event loop is
                running here.
            ClosedError: the store is closed.
            EngineError: the thread of the listener could not be started.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Fan(KvModel, collection="fans"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Fan]) as db:
            ...     async def handle(tenant, message):
            ...         await tenant[Fan].create(id=message)
            ...         await db.kv.set(("handled",), tenant.tenant_name)
            ...     async with db.listen_tenants(handle):
            ...         _ = await db.tenant("acme", create=True).kv.enqueue(7)
            ...         async for (entry,) in db.kv.watch([("handled",)]):
            ...             if entry.value is not None:
            ...                 break
            ...     entry.value, await db.tenant("acme")[Fan].count()
            ('acme', 1)
        """
        self._require_store("listen_tenants")
        lease_ms = queues.listening_arguments(handler, concurrency, lease)
        worlds.require_handler(handler, self._opening.engine)
        form = self._core.of_tenants().form
        return queues.AsyncTenantsListener(self._opening, form, self._queue_of, handler, (concurrency, lease_ms))

    def _queue_of(self, name: str) -> tuple[kv_opening.Opening, Any, AsyncDatabase]:
        view = self.tenant(name)
        return view._opening, view._core.form, view

    def watch_tenants(
        self, model: type[M], *, since: str | None = None, timeout: float | None = None
    ) -> histories.AsyncTenantsWatchIterator[AsyncDatabase, M]:
        """Watch the records of a model in all tenants: the latest version of each record that changes, or its removal.

        It does what ``db.tenant(name)[model].watch`` does for each tenant, with one walk of the change log. Without
        ``since``, it first delivers the present records, tenant by tenant. The removal of a tenant is delivered as that
        of its records.

        Args:
            model: one of the models of tenants.
            since: resume after this versionstamp, such as ``watch.versionstamp`` of an earlier watch.
            timeout: end the iteration after this many seconds without a change; None for no timeout.

        Returns:
            An iterator of lists of (database of the tenant, ``ChangedRecord``); it ends when the database is closed.
            Cost: reads the log of all tenants once, and the header of a tenant at the first change of a record.
            Without ``since``, one read for each tenant before that.

        Raises:
            InvalidArgumentError: an argument is invalid, or the database was opened without models of tenants.
            TenantModelError: the model is one of the store.
            UnsupportedError: this is the database of a tenant; at the first item: the store keeps no change log.
            ResumeExpiredError: at an item: the change log does not reach back to ``since``, or the store was restored.
            DecodeError: at an item: a record cannot be read as an object; its changes are delivered again.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Door(KvModel, collection="doors"):
            ...     id: PrimaryKey[int]
            >>> async with AsyncDatabase("memory://", tenant_models=[Door], change_log=60) as db:
            ...     watch = db.watch_tenants(Door, timeout=0)
            ...     _ = await anext(watch)
            ...     _ = await db.tenant("acme", create=True)[Door].create(id=1)
            ...     _ = await db.tenant("initech", create=True)[Door].create(id=1)
            ...     [(tenant.tenant_name, change.record) for tenant, change in await anext(watch)]
            [('acme', Door(id=1)), ('initech', Door(id=1))]
        """
        self._require_store("watch_tenants")
        schema = self._core.of_tenants().view_for(model)
        watch = record_watch.TenantsWatch(schema, time.monotonic, since=since, timeout=timeout)

        async def records(rows: record_watch.TenantRows) -> list[tuple[AsyncDatabase, record_watch.ChangedRecord[M]]]:
            for _ in range(2):  # a handle of an earlier life of the name raises TenantRemovedError once
                view = self.tenant(rows.tenant)
                with contextlib.suppress(TenantNotFoundError, TenantRemovedError):
                    found = await worlds.run(view._engine, record_watch.records_of(view._core.context, schema, rows))
                    return [(view, one) for one in found]
            view = self.tenant(rows.tenant)
            return [(view, one) for one in record_watch.removed_records(view._core.context, schema, rows)]

        return histories.AsyncTenantsWatchIterator(self._opening, watch, records)

    def _require_store(self, call: str) -> None:
        if self._life is not None:
            raise tenancy.of_the_store(call)

    # --- copies of records -------------------------------------------------------------------------------------

    async def dump(
        self,
        file: dump_files.DumpFile,
        *models: type[KvModel],
        format: dump_formats.DumpFormat = "kvmodels",
        history: bool = False,
        blobs: bool = True,
        progress: bool | Callable[[int], object] | None = None,
    ) -> int:
        """Write the records of some models from one snapshot as lines of JSON, for ``load`` into any other store.

        Index entries and counters are left out, because a load makes them. ``db.kv.dump(file)`` writes the whole store.

        Args:
            file: the path of a new file, or a file object that is open for writing text (UTF-8) or bytes.
            models: dump only the records of these models; by default those of all.
            format: ``"deno"`` writes the lines of Deno's package ``@deno/kv-utils``.
            history: also write the old versions of the records, and the removed records, without the content of their
                blobs.
            blobs: also write the content of blobs. Without it, fields that may hold a blob are None.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with the
                number of records so far; an exception that it raises ends the dump.

        Returns:
            The number of records and of chunks of blobs, and with ``history`` of rows of histories. Cost: reads each
            once, in batches of at most 100.

        Raises:
            InvalidArgumentError: the database was opened without one of the models, or the format is unknown;
                ``blobs=False`` with a model whose blob may not be None.
            UnsupportedError: the format of Deno cannot hold blobs.
            EngineError: the path cannot be created.
            DecodeError: a stored record cannot be read; the error names its key.
            InvalidValueError: the format of Deno cannot hold a value; the error names its key.
            SnapshotLostError: the store has ended the snapshot, such as when a connection broke.

        Examples:
            >>> import io
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: str
            >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
            ...     _ = await db[Tree].create(id=1, kind="oak")
            ...     file = io.StringIO()
            ...     await db.dump(file, Tree)
            1
            >>> print(file.getvalue().splitlines()[1])
            {"key":["trees",1],"document":{"id":1,"kind":"oak"}}
        """
        with listening.listener(progress, "dump") as listen:
            dumping = self._core.dumping(models, format, listen, history=history, blobs=blobs)
            observation = self._opening.observation("dump")
            engine = self._engine
            return await copies.write_dump(engine, dumping, engine.limits, file, listen, observation=observation)

    async def load(
        self,
        file: dump_files.DumpFile,
        *models: type[KvModel],
        on_conflict: bulk_options.OnConflict = "error",
        format: dump_formats.DumpFormat = "kvmodels",
        progress: bool | Callable[[int], object] | None = None,
    ) -> record_load.LoadResult:
        """Load a dump into this store, which may hold data and be in use: records with index entries, and other keys.

        Every line is examined before the first write. Then records are written in batches, each one atomic operation
        as in ``bulk_create``. A load that ends early leaves the batches before, and can be repeated with ``"ignore"``.
        Records keep their deadlines and time fields; hooks do not run. Foreign keys may name records of later lines.
        Records that refer to each other in a circle are stored in one commit.
        Skipped are the library's own keys of a dump of a whole store, such as messages in queues. Old versions of a
        dump with ``history=True`` are stored only for keys that have neither a record nor a version. The content of
        blobs is stored under new ids before its record is.

        Args:
            file: a path, or a file object that is open for reading text (UTF-8) or bytes: a dump of ``db.dump`` or
                ``db.kv.dump``. One that cannot seek is copied to a temporary file.
            models: load only the records of these models; by default all records, and keys of no model.
            on_conflict: ``"error"`` refuses the dump if any of its keys exists; ``"ignore"`` keeps what the store has;
                ``"update"`` replaces it.
            format: ``"deno"`` reads the lines of Deno's package ``@deno/kv-utils``.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with the
                number of handled records and keys; an exception that it raises ends the load.

        Returns:
            The numbers of written and skipped keys; with ``"ignore"`` also the records that violate a constraint.
            Cost: for each batch a read and a commit, after one read of each key with ``"error"``.

        Raises:
            LoadConflictError: with ``"error"``: keys of the dump exist; nothing was written.
            DecodeError: a line is damaged or missing, or the model rejects a record; nothing was written.
            InvalidValueError, LimitExceededError: the store cannot hold a record, or one commit cannot hold the records
                of a circle; nothing was written.
            SchemaMismatchError: a collection has no declared model, or this process must not write to it.
            ReservedKeyError: a key belongs to a model that was not declared.
            UniqueViolationError, ReferenceViolationError: a record violates a constraint; earlier batches are stored,
                and ``committed`` is their number of records.
            InvalidArgumentError: an unknown model, format or value of ``on_conflict``.
            EngineError: the path cannot be opened.

        Examples:
            >>> import io
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: str
            >>> async with AsyncDatabase(models=[Tree]) as one, AsyncDatabase(models=[Tree]) as other:
            ...     _ = await one[Tree].bulk_create([Tree(id=1, kind="oak"), Tree(id=2, kind="elm")])
            ...     file = io.StringIO()
            ...     _ = await one.dump(file)
            ...     _ = file.seek(0)
            ...     _ = await other[Tree].create(id=1, kind="fir")
            ...     print(await other.load(file, on_conflict="ignore"))
            1 written, 1 skipped, 0 failed
        """
        with listening.listener(progress, "load") as listen:
            loading = self._core.loading(models, on_conflict, format, listen)
            return await copies.load_dump(self._engine, loading, file, observation=self._opening.observation("load"))

    def acting(self, actor: str, *, reason: str | None = None) -> AbstractContextManager[None]:
        """Name who writes in a ``with`` block, and why, in the history of the models that have one.

        It is a context variable: tasks of the block and ``asyncio.to_thread`` inherit it, threads that a program starts
        do not. Blocks may be nested; the inner one counts. It holds for every database of the process.

        Args:
            actor: who writes, at most 200 bytes.
            reason: why, at most 200 bytes; None: not given.

        Returns:
            A context manager. Cost: none.

        Raises:
            InvalidArgumentError: at the beginning of the block: a value is no such text.
        """
        return acting.acting(actor, reason)

    # --- the rest ---------------------------------------------------------------------------------------------

    async def outcome(self, token: str) -> bool:
        """Find out whether a write was applied whose answer was lost (``CommitUnknownError.token``).

        Args:
            token: the token of the error; the store keeps it for at least 15 minutes, PostgreSQL for an hour.

        Returns:
            True if the write was applied; False if it was not and never will be. Cost: one commit, possibly one read
            too.

        Raises:
            CommitUnknownError: the answers to these requests were lost too, or PostgreSQL has removed the token.
            InvalidArgumentError: the token is malformed.
        """
        outcome = self._engine.capabilities.writes.outcome
        if outcome is not None:
            return await worlds.in_thread(outcome, self._core.token(token))
        return await self._run("outcome", self._core.outcome(token))

    async def forget_bulk(self, resume_id: str) -> bool:
        """Delete the progress or result of a bulk write with a ``resume_id``, so that the id can be used again.

        The records that it has written stay. A process that is running it stops before its next batch.

        Args:
            resume_id: the id of the bulk write.

        Returns:
            Whether there was such a bulk write. Cost: one commit, and one for each 500 rows of its stored state.

        Raises:
            InvalidArgumentError: the id is invalid.
        """
        return await self._run("forget_bulk", bulk_progress.forget_bulk(self._core.context, resume_id))

    async def close(self) -> None:
        """Close the store; waits for running handlers and calls; idempotent. Closing a tenant has no effect."""
        if self._life is not None:
            return
        await key_value.close_with_listeners(self._opening)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self._core.schemas.values())
        place = (self._opening.url or "not open") if self._life is None else f"tenant {self._life.name!r}"
        return f"<{type(self).__name__} {place} models=[{names}]>"


show_public_path(AsyncDatabase)
refuse_copies(AsyncDatabase)
refuse_other_with(AsyncDatabase)
