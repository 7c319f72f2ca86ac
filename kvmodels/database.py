"""The database, synchronous: open a store with its models, hand out repositories, look after the indexes.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.database_async``, which a test compares. What only an open store needs is loaded with the first one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kvmodels import database_core, drivers, drivers_lookups, kv_opening, transaction_scope
from kvmodels import kv as key_value
from kvmodels import repository as repositories
from kvmodels import signals as signalling
from kvmodels import transaction as transactions
from kvmodels.database_changes import SchemaChanges
from kvmodels.engines import base
from kvmodels.flows import context, findings, scrub
from kvmodels.flows.retrying import DEFAULT_RETRY, RetryPolicy
from kvmodels.limits import Limits
from kvmodels.public_path import show_public_path
from kvmodels.schema import definition
from kvmodels.schema.model import KvModel

__all__ = ["Database"]

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")


class Database(SchemaChanges):
    """A store opened with the models that live in it.

    Opening lists new collections in the store's catalogue. An index that was added to a collection with records is
    not built by opening: queries that need it raise IndexNotReadyError until ``build_indexes()`` has run. May be used
    from any number of threads; not after a fork.

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
        SchemaMismatchError: the store is of a newer format, or not current with ``require_current``.
        InvalidArgumentError, EngineError: the store cannot be opened.

    Examples:
        >>> from kvmodels import Indexed, KvModel, PrimaryKey
        >>> class Tree(KvModel, collection="trees"):
        ...     id: PrimaryKey[int]
        ...     kind: Indexed[str]
        >>> with Database("memory://", models=[Tree]) as db:
        ...     _ = db[Tree].create(id=1, kind="oak")
        ...     db[Tree].filter(kind="oak").count(), db.check().ok
        (1, True)
    """

    __slots__ = ("_core", "_engine", "_kv", "_repositories", "_transactions")

    def __init__(
        self,
        url: str | os.PathLike[str] = "memory://",
        *,
        models: Iterable[type[KvModel]] = (),
        codec: str = "msgpack",
        limits: Limits | None = None,
        durability: kv_opening.Durability = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        retry: RetryPolicy = DEFAULT_RETRY,
        require_current: bool = False,
        **engine_options: Any,
    ) -> None:
        core = database_core.DatabaseCore(
            models, retry=retry, readonly=readonly, must_be_current=require_current, codec=codec
        )
        opening = kv_opening.Opening.of_url(
            url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
        )
        self._start(core, opening.open())

    @classmethod
    def from_engine(cls, engine: base.Engine, core: database_core.DatabaseCore) -> Self:
        """A database over an engine that is open already, such as a ``FaultEngine``; closing it closes the engine.

        Args:
            engine: where the store is.
            core: the declarations and the injected clocks.

        Returns:
            The database.

        Raises:
            ModelDefinitionError, SchemaMismatchError: as the constructor.
        """
        database = cls.__new__(cls)
        database._start(core, engine)
        return database

    def _start(self, core: database_core.DatabaseCore, engine: base.Engine) -> None:
        self._core = core
        self._engine = engine
        self._kv = key_value.Kv(engine, core.form)
        self._repositories: dict[type[Any], repositories.Repository[Any]] = {}
        self._transactions = transactions.Transactions(self._store)
        try:
            self._run(core.open(engine))
        except BaseException:
            engine.close()
            raise

    def _store(self) -> transaction_scope.Store:
        return transaction_scope.Store(self._engine, self._core.context, self._core.form, self._core.view_for)

    def __getitem__(self, model: type[M]) -> repositories.Repository[M]:
        try:
            known: repositories.Repository[M] | None = self._repositories.get(model)
        except TypeError:  # an object of a model, perhaps, which has no hash
            known = None
        if known is not None:
            return known
        made: repositories.Repository[M] = repositories.Repository(
            _Runner(self._core.context, self._engine, self._core.view_for(model))
        )
        self._repositories[model] = made
        return made

    def repository(self, model: type[M]) -> repositories.Repository[M]:
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
    def kv(self) -> key_value.Kv:
        """The key-value API of the same store; raw writes to keys of models raise ReservedKeyError."""
        return self._kv

    @property
    def signals(self) -> signalling.Signals:
        """Functions to run before and after writes of this handle: ``db.signals.after_insert.connect(f, User)``."""
        return self._core.signals

    def transaction(self) -> transactions.TransactionBlock:
        """Read and write several records as one: all of it is committed at the end of the block, or nothing.

        ``tx[User]`` has every verb and query of ``db[User]``. It reads from one state of the store, with what the
        transaction itself has written; the commit checks that what was read is unchanged. What goes through ``db``
        inside of the block is no part of the transaction. A block inside of a block joins it.

        Returns:
            A block: ``with db.transaction() as tx``. Cost: one commit of as many checks as keys were read.

        Raises:
            TransactionConflictError: at the end: something that was read was written by others; nothing was written.
            UniqueViolationError: at the end: a unique value belongs to another record.
            TransactionAbortedError: at the end: an exception has left an inner block.
            OperationTooLargeError: at the end: more was read or written than one operation may hold.
            CommitUnknownError: the answer was lost, and the outcome could not be found out.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Account(KvModel, collection="accounts"):
            ...     name: PrimaryKey[str]
            ...     balance: int = 0
            >>> db = Database("memory://", models=[Account])
            >>> _ = db[Account].bulk_create([Account(name="ada", balance=10), Account(name="bob")])
            >>> with db.transaction() as tx:
            ...     ada, bob = tx[Account].get("ada"), tx[Account].get("bob")
            ...     ada.balance, bob.balance = ada.balance - 4, bob.balance + 4
            ...     _ = tx[Account].save(ada), tx[Account].save(bob)
            >>> [(account.name, account.balance) for account in db[Account]]
            [('ada', 6), ('bob', 4)]
        """
        return self._transactions.block()

    def transactional(self, retries: int = 10) -> transactions.Decorator:
        """Make a function a transaction that is run again from its beginning after a conflict.

        The function gets the transaction as its first argument, and its callers leave that out. It should do nothing
        else that lasts, because it may run several times: use ``tx.on_commit`` for what is to happen once. Called in a
        transaction of the same database, it joins that.

        Args:
            retries: how often it is run again at most, 0 or more, with the pauses and the deadline of the
                ``RetryPolicy`` of the database.

        Returns:
            A decorator.

        Raises:
            RetriesExhaustedError: when the function is called: every run met a conflict.
            InvalidArgumentError: no number of retries, or no plain function.

        Examples:
            >>> from kvmodels import KvModel, PrimaryKey
            >>> class Ticket(KvModel, collection="tickets"):
            ...     id: PrimaryKey[int]
            ...     owner: str | None = None
            >>> db = Database("memory://", models=[Ticket])
            >>> _ = db[Ticket].create(id=1)
            >>> @db.transactional()
            ... def take(tx, number, owner):
            ...     ticket = tx[Ticket].get(number)
            ...     ticket.owner = ticket.owner or owner
            ...     return tx[Ticket].save(ticket)
            >>> take(1, "ada").owner, take(1, owner="bob").owner
            ('ada', 'ada')
        """
        return self._transactions.decorator(retries)

    def check(self, model: type[KvModel] | None = None, *, repair: scrub.Repair = False) -> findings.CheckReport:
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
            >>> print(Database("memory://").check())
            ok: 0 rows scanned; 0 dangling, 0 missing, 0 foreign, 0 undecodable, 0 computed, 0 counters; 0 repaired
        """
        report = self._run(self._core.check(model, repair))
        for counting in self._core.recounts(model):
            with closing(self._engine.snapshot()) if self._engine.traits.snapshots else nullcontext() as state:
                recounted = drivers.run(self._engine, counting, snapshot=state)
            report = self._run(self._core.settle(report, recounted, repair))
        return report

    def outcome(self, token: str) -> bool:
        """Find out how a write ended whose answer was lost (``CommitUnknownError.token``).

        Args:
            token: of the error; it is kept for 15 minutes at least.

        Returns:
            True when it was applied; False when it was not and never will be. Cost: one commit, or one and a read.

        Raises:
            CommitUnknownError: these answers were lost as well.
        """
        return self._run(self._core.outcome(token))

    def forget_bulk(self, resume_id: str) -> bool:
        """Forget a bulk write that was begun with ``resume_id``, or its result, so that the id is free again.

        What it has written stays. A process that is at it stops before its next batch.

        Args:
            resume_id: of the bulk write.

        Returns:
            Whether there was one. Cost: one commit, and one for each 500 rows that it has kept.

        Raises:
            InvalidArgumentError: no id.
        """
        return self._run(self._core.forget_bulk(resume_id))

    def close(self) -> None:
        """Close the store; waits for running handlers and calls, and may be called twice."""
        self._kv.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self._core.schemas.values())
        return f"<{type(self).__name__} {self._engine.url} models=[{names}]>"


class _Runner:
    """Runs the flows of one repository."""

    __slots__ = ("context", "get", "run", "schema")

    def __init__(self, shared: context.Context, engine: base.Engine, schema: definition.ModelSchema) -> None:
        self.context = shared
        # Methods would be one more call for every read.
        self.run = partial(drivers.run, engine)
        self.get = drivers_lookups.getter(engine, shared, schema)
        self.schema = schema


show_public_path(Database)
