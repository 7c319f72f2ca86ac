# Generated from kvmodels/api/_async/database.py by tools/unasync.py. Do not edit.
"""The database: open a store with its models, hand out repositories, look after the indexes.

Rules of this module: a method runs one flow and decides nothing. What only an open store needs is loaded with the first
one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.api import core as database_core
from kvmodels.api import opening as kv_opening
from kvmodels.api import scope as transaction_scope
from kvmodels.api._sync import _compat as worlds
from kvmodels.api._sync import kv as key_value
from kvmodels.api._sync import repository as repositories
from kvmodels.api._sync import transaction as transactions
from kvmodels.api.refusals import refuse_other_with
from kvmodels.catalog import evolution
from kvmodels.engines import contract as base
from kvmodels.flows import effects as requests
from kvmodels.flows import signals as signalling
from kvmodels.flows.check import findings, scrub
from kvmodels.flows.evolution import apply as plan_apply
from kvmodels.flows.evolution import build as building
from kvmodels.flows.evolution import migrate as migrate_flows
from kvmodels.flows.evolution import throttle as pace
from kvmodels.flows.evolution import violations as listing
from kvmodels.flows.evolution.throttle import SAMPLE
from kvmodels.flows.retry_policy import DEFAULT_RETRY, RetryPolicy
from kvmodels.limits import Limits
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")


class Database:
    """A store opened with the models that live in it.

    Opening lists new collections in the store's catalogue. An index that was added to a collection with records is
    not built by opening: queries that need it raise IndexNotReadyError until ``build_indexes()`` has run. Safe to
    share between threads, or tasks of one event loop; not after a fork. An asynchronous database is opened by
    ``async with`` or ``await db.open()``, a synchronous one by its constructor.

    Args:
        url: ``memory://``, ``memory://name``, a path, ``sqlite:///relative``, ``sqlite:////absolute``,
            ``sqlite://:memory:``, ``lmdb:///relative`` or ``lmdb:////absolute`` (needs the extra ``lmdb``),
            ``postgresql://user@host/database`` (needs the extra ``postgres``).
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

    __slots__ = ("_core", "_is_open", "_kv", "_opening", "_repositories", "_transactions")

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
        self._start(core, opening)

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
        database._start(core, kv_opening.Opening.done(engine))
        return database

    def _start(self, core: database_core.DatabaseCore, opening: kv_opening.Opening) -> None:
        self._core = core
        self._opening = opening
        self._is_open = False
        self._kv = key_value.Kv(opening, core.form, view=True)
        self._repositories: dict[type[Any], repositories.Repository[Any]] = {}
        self._transactions = transactions.Transactions(self._store)
        worlds.open_eagerly(self._open)

    def _open(self) -> None:
        engine = worlds.engine_of(self._opening)
        engine.now_ms()  # a closed engine does not tell the time
        if not self._is_open:
            try:
                worlds.run(engine, self._core.open(engine))
            except BaseException:
                self.close()
                raise
            self._is_open = True

    @property
    def _engine(self) -> base.Engine:
        return self._opening.open()

    def _run(self, flow: requests.AnyFlow[T]) -> T:
        return worlds.run(self._engine, flow)

    def _store(self) -> transaction_scope.Store:
        context = self._core.context  # first of all: nothing is opened if it is not open
        return transaction_scope.Store(self._engine, context, self._core.form, self._core.view_for)

    def __getitem__(self, model: type[M]) -> repositories.Repository[M]:
        try:
            known: repositories.Repository[M] | None = self._repositories.get(model)
        except TypeError:  # an object of a model, perhaps, which has no hash
            known = None
        if known is not None:
            return known
        runner = worlds.ModelRunner(self._opening, self._core, self._core.view_for(model))
        made: repositories.Repository[M] = repositories.Repository(runner)
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
        """The key-value API of the same store; raw writes to keys of models raise ReservedKeyError.

        A view: closing it leaves the store open, which the database closes.
        """
        if not self._core.is_open:
            raise self._core.not_open()
        return self._kv

    @property
    def signals(self) -> signalling.Signals:
        """Functions to run before and after writes of this handle: ``db.signals.after_insert.connect(f, User)``."""
        return self._core.signals

    def transaction(self) -> transactions.TransactionBlock:
        """Read and write several records as one: all of it is committed at the end of the block, or nothing.

        ``tx[User]`` has every verb and query of ``db[User]``. It reads from one state of the store, with what the
        transaction itself has written; the commit checks that what was read is unchanged. What goes through ``db``
        inside of the block is no part of the transaction. A block that is entered by code that the block calls or
        awaits joins it.

        Returns:
            A block: ``with db.transaction() as tx``. Cost: one commit of as many checks as keys were read.

        Raises:
            TransactionConflictError: at the end: something that was read was written by others; nothing was written.
            UniqueViolationError: at the end: a unique value belongs to another record.
            TransactionSuspendedError: at the beginning: a suspended generator of this thread or task has one open.
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

    def transactional(self, retries: int | None = None) -> transactions.Decorator:
        """Make a function a transaction that is run again from its beginning after a conflict.

        The function gets the transaction as its first argument, and its callers leave that out. It should do nothing
        else that lasts, because it may run several times: use ``tx.on_commit`` for what is to happen once. After a
        conflict it waits in a queue of this process for its turn on the keys that it lost. Called in a
        transaction of the same database and task, it joins that.

        Args:
            retries: how often it is run again at most, 0 or more; None for the attempts of the ``RetryPolicy`` of the
                database, which are 50 by default. The deadline of the policy ends it in any case.

        Returns:
            A decorator.

        Raises:
            RetriesExhaustedError: when the function is called: every run met a conflict.
            InvalidArgumentError: no number of retries, or no function that can be run again.

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

    def check(
        self,
        model: type[KvModel] | None = None,
        *,
        repair: scrub.Repair = False,
        progress: Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> findings.CheckReport:
        """Check that every index entry and counter equals f(records) and the reverse; safe beside live writers.

        Args:
            model: check only its collection; None for all.
            repair: True mends entries, and builds an aggregate index with wrong counters once more, which rewrites
                every record; ``"all"`` also deletes foreign keys and rows that are no documents.
                A document that the model does not accept is kept by every repair: mend the model, or remove it with
                ``repository.remove(key)``.
            progress: called after each batch with a ``SchemaProgress`` whose ``step`` is ``"check"``; what it raises
                ends the check.
            throttle: the most rows per second; None for no limit.

        Returns:
            What was found. Cost: reads every record and entry once, in batches of 500, and what differs once more; for
            aggregate indexes every record once more in one snapshot, which keeps a number per counter in memory.
            Entries of collections that no declared model covers are compared as the store describes their indexes,
            and never repaired. ``unchecked`` of the report names what was not compared, with the reason: indexes that
            are not complete or that this release does not declare, counters of undeclared collections, and counters
            beside records that cannot be read.

        Raises:
            InvalidArgumentError: an unknown kind of repair, or a throttle that is no positive number.
            SnapshotExpiredError: counting took longer than the engine keeps a snapshot (``snapshot_max_age``).

        Examples:
            >>> with Database("memory://") as db:
            ...     print(db.check())
            ok: 0 rows scanned; 0 dangling, 0 missing, 0 foreign, 0 undecodable, 0 computed, 0 counters; 0 repaired
        """
        speed = pace.Pace(progress, throttle)
        report = self._run(self._core.check(model, repair, speed))
        for counting in self._core.recounts(model, speed):
            with worlds.pinned(self._engine) as state:
                recounted = worlds.run(self._engine, counting, snapshot=state)
            report = self._run(self._core.settle(report, recounted, repair))
        return report

    # --- schema changes ----------------------------------------------------------------------------------------

    def build_indexes(
        self,
        *models: type[KvModel],
        progress: Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> tuple[building.BuildReport, ...]:
        """Build every declared index that is not ready, beside readers and writers.

        Any number of processes may build at once, and a build that was interrupted goes on where it stopped.

        Args:
            models: build only theirs; none given: all.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the build until the next.
            throttle: the most records per second; None for no limit.

        Returns:
            One report per index that was not ready. Cost: reads every record once; one commit per batch.

        Raises:
            SchemaMismatchError: this process may not write a collection.
            InvalidArgumentError: a throttle that is no positive number.
        """
        return self._run(self._core.build_indexes(models, pace.Pace(progress, throttle)))

    def plan(self, *models: type[KvModel], sample: int | None = SAMPLE) -> evolution.SchemaPlan:
        """Compare the models with the store: what differs, by which rule, and what ``apply()`` would do about it.

        Args:
            models: compare only these; none given: all.
            sample: how many records of each collection the models are tried on, in the order of their keys: each is
                read, and one that waits for an upgrade is made anew as it would be written, but for a unique value
                that another record has; 0 for none, None for all.

        Returns:
            The plan; print it. Cost: a read of the catalogue, and for each collection one of the sample, whose records
            are decoded; one read per 500 records of a larger one.

        Raises:
            InvalidArgumentError: the database was opened without one of the models, or a sample that is no number.

        Examples:
            >>> from kvmodels import Database
            >>> with Database("memory://") as db:
            ...     print(db.plan())
            the store is as the models declare it
        """
        return self._run(self._core.plan(models, sample))

    def apply(
        self,
        *models: type[KvModel],
        allow: Iterable[str] = (),
        progress: Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        sample: int | None = SAMPLE,
    ) -> plan_apply.SchemaReport:
        """Bring the store in line with the models: do every step of the plan, beside readers and writers.

        Indexes are built and switched by one commit each, records are rewritten where an index waits for an upgrade,
        entries that nobody needs are removed. Any number of processes may apply at once, and what was interrupted goes
        on where it stopped when it is applied again.

        Args:
            models: only these; none given: all.
            allow: names of what the plan asks to be allowed: ``"drop_index"``, ``"forget_field"``, ``"change_type"``,
                ``"leave_records"``.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the work until the next.
            throttle: the most records per second; None for no limit.
            sample: how many records of each collection the models are tried on before anything is done; see ``plan()``.

        Returns:
            What was done; ``complete`` is False while violations are left. Cost: that of ``plan()``; for each index
            that is built, and for a migration, every record is read once; one commit per batch.

        Raises:
            SchemaChangeRefusedError: a step is refused, or a record of the sample that a raised schema version would
                leave unreadable; nothing was done.
            SchemaMismatchError: a newer release of the program was applied meanwhile.
            InvalidArgumentError: an unknown name in ``allow``, a throttle that is no positive number, or a sample that
                is no number.
        """
        return self._run(self._core.apply(models, allow, pace.Pace(progress, throttle), sample))

    def migrate(
        self,
        model: type[KvModel],
        *,
        forget: Iterable[str] = (),
        progress: Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> migrate_flows.MigrationReport:
        """Rewrite every record of an older schema version as the upgrades of the model make it.

        Needed where an index waits for it, which ``apply()`` does by itself; else records are upgraded when they are
        read, and this only takes the work from later reads. Resumable, by any number of processes. A schema version
        that was not applied yet is raised without a trial, which ``apply()`` makes first.

        Args:
            model: one of the registered models.
            forget: fields that the model does not declare any more, whose values are taken out of the records, also
                where an upgrade has left them behind; every record is read for it.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the work until the next.
            throttle: the most records per second; None for no limit.

        Returns:
            How many records were rewritten, and those that cannot be. Cost: reads every record once; one commit per
            batch; nothing but a read when no record is older.

        Raises:
            SchemaMismatchError: this process may not write the collection.
            InvalidArgumentError: ``forget`` names a declared or reserved field, or a throttle is no positive number.
        """
        return self._run(self._core.migrate(model, forget, pace.Pace(progress, throttle)))

    def violations(
        self, model: type[KvModel], index: str | None = None, *, limit: int = 1_000
    ) -> list[listing.RecordViolation]:
        """The records that keep an index from becoming readable, or a migration from its end.

        Args:
            model: one of the registered models.
            index: only those of this one; None for all, and for the records that cannot be migrated.
            limit: the most of each index.

        Returns:
            Them, in the order of their values and keys. Cost: two reads for each index that is not ready.

        Raises:
            UnknownFieldError: there is no such index.
            InvalidArgumentError: a limit that is no positive number.
        """
        return self._run(self._core.violations(model, index, limit))

    def resolve(self, model: type[KvModel], index: str | None = None) -> tuple[building.BuildReport, ...]:
        """Look at the violations of an index again, after their records were changed; without any it becomes readable.

        Args:
            model: one of the registered models.
            index: only this one; None for all that have violations.

        Returns:
            One report per index, with what is left. Cost: two reads and a commit for each violation.

        Raises:
            UnknownFieldError: the model declares no such index.
            SchemaMismatchError: this process may not write the collection.
        """
        return self._run(self._core.resolve(model, index))

    def drop_index(self, model: type[KvModel], name: str) -> bool:
        """Drop an index with all its entries, for every process at once.

        Args:
            model: one of the registered models.
            name: the index, declared or not.

        Returns:
            False when the store lists no such index. Cost: one commit, then one per 400 entries.

        Raises:
            InvalidArgumentError: the database was opened without this model.
            SchemaMismatchError: a newer release has raised the schema version, so this one only reads.
        """
        return self._run(self._core.drop_index(model, name))

    # --- the rest ---------------------------------------------------------------------------------------------

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
        key_value.Kv(self._opening, self._core.form).close()  # the owner of the store, which ``db.kv`` is not

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self._core.schemas.values())
        return f"<{type(self).__name__} {self._opening.url or 'not open'} models=[{names}]>"


show_public_path(Database)
refuse_other_with(Database)
