# Generated from kvmodels/api/_async/transaction.py by tools/unasync.py. Do not edit.
"""Transactions: several reads and writes that are committed together or not at all.

Rules of this module: ``kvmodels.flows.transaction.transaction`` reads, buffers and compiles writes; this module
contains the public methods, the snapshot, the task-local scope and the end of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from kvmodels._support.callers import calling_frame
from kvmodels._support.naming import show_public_path
from kvmodels.api._sync import _compat as worlds
from kvmodels.api._sync.database import Repositories
from kvmodels.api._sync.kv_transaction import TransactionKv
from kvmodels.api._sync.repository import Repository
from kvmodels.api.refusals import refuse_copies, refuse_other_with
from kvmodels.api.scope import OpenBlock, OpenTransaction, Scope, Store, require_function, require_retries
from kvmodels.core.keys import KeyPart
from kvmodels.core.operations import format_versionstamp
from kvmodels.engines.contract import Engine
from kvmodels.errors import InvalidArgumentError, SnapshotLostError, TransactionConflictError
from kvmodels.flows.arguments import require_callable, require_flag, require_text
from kvmodels.flows.effects import AGAIN, AnyFlow, Flow
from kvmodels.flows.transaction import commit as transaction_commit
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.flows.transaction.commit import Rerun, RunHistory
from kvmodels.query.query import Query
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema.definition.definition import ModelSchema

K = TypeVar("K", bound=Repository[Any])
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Session:
    """One transaction in the engine: its snapshot, its flows, its commit or rollback."""

    def __init__(self, store: Store, attempt: int) -> None:
        self.store = store
        self.flows = transaction_flows.TransactionFlows(store.context, store.form, attempt)
        self.versionstamp: bytes | None = None
        self._lock = worlds.Mutex()
        self._snapshot: worlds.StoreSnapshot | None = None
        self._sent = False
        self.lost: SnapshotLostError | None = None
        """The first error of a read after the store had ended the snapshot; nothing was written then."""
        self.observation: observing.Observation | None = None
        """Observes the transaction itself: its beginning and its end, without the methods that it calls."""

    def run(self, verb: str, flow: AnyFlow[T], schema: ModelSchema | None = None, query: Query | None = None) -> T:
        """Run the flow of a method in the transaction, and report it to the observers."""
        observation = self.observe(verb, schema, query)
        if observation is None:
            return self.run_part(flow, None)
        with observation:
            return self.run_part(flow, observation)

    def run_part(self, flow: AnyFlow[T], observation: observing.Observation | None) -> T:
        """Run a flow of a method in the transaction."""
        steps = self.flows.through(flow)
        return self.perform(steps if observation is None else observation.through(steps))

    def observe(
        self, verb: str, schema: ModelSchema | None = None, query: Query | None = None, *, streamed: bool = False
    ) -> observing.Observation | None:
        """Return the observation of a method that is called in the transaction; None without observers."""
        if not self.store.reporters:
            return None
        return observing.Observation(
            self.store.reporters,
            verb,
            None if schema is None else schema.collection,
            owners=None if schema is None else self.store.form.reserved,
            context=self.store.context,
            query=query,
            in_transaction=True,
            streamed=streamed,
        )

    def perform(self, flow: Flow[T]) -> T:
        """Run a flow of the transaction itself, in its snapshot."""
        with self._lock:
            try:
                return worlds.run(self.store.engine, flow, snapshot=self._snapshot)
            except SnapshotLostError as error:
                self.lost = self.lost or error
                raise

    def begin(self) -> None:
        """Take the snapshot that the transaction reads."""
        if self.store.context.traits.snapshots:
            self._snapshot = self._pinned()
        self._perform_own(self.flows.begin())

    def commit(self) -> list[Callable[[], object]]:
        """Send the one commit if anything was written; return the functions to run after it, in order."""
        write = self._perform_own(self.flows.prepared())
        if write is None:
            self._require_unchanged()
            self._release()
            return self.flows.commit(b"")
        # The snapshot is no longer needed, and engines keep replaced rows for it.
        self._release()
        self._sent = True
        flows = self.flows
        sending = transaction_commit.send(self.store.context, write, flows.view.live.values(), flows.conflict)
        if self.observation is not None:
            sending = self.observation.through(sending)
        self.versionstamp = self._send(sending)
        return flows.commit(self.versionstamp)

    def roll_back(self, error: BaseException) -> None:
        """Discard the writes after an error.

        Raises:
            TransactionConflictError: without engine snapshots, the error may be caused by reads from two states.
        """
        try:
            if isinstance(error, Exception) and not self._sent and self.flows.met is None:
                self._require_unchanged()
        finally:
            try:
                self._release()
            finally:
                self.flows.fail()

    def _require_unchanged(self) -> None:
        if not self.store.context.traits.snapshots:
            self._perform_own(self.flows.changed())

    def _perform_own(self, flow: Flow[T]) -> T:
        return self.perform(flow if self.observation is None else self.observation.through(flow))

    def _pinned(self) -> worlds.StoreSnapshot:
        return worlds.pin(self.store.engine)

    def _send(self, flow: Flow[T]) -> T:
        return worlds.run(self.store.engine, flow)

    def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            worlds.release(self.store.engine, snapshot)


class Transaction(Repositories):
    """Reads and writes that are committed together; created by ``with db.transaction() as tx``.

    Every read sees one state of the store plus the transaction's own writes. At the end, one commit checks that all
    rows that were read are unchanged, and writes; nothing is sent before. On an engine without snapshots (KV Connect)
    the reads may be of several states; then the end raises TransactionConflictError, also if nothing is written. Your
    objects get their new version with the commit, and are restored if the transaction is rolled back. Use a transaction
    in one thread; tasks that share it take turns.
    """

    __slots__ = ("_kv", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kv = TransactionKv(session.run, session.perform, session.flows)
        self._repositories = {}

    def _new_repository(self, kind: type[K], model: type[Any]) -> K:
        return kind(_TransactionRunner(self._session, self._session.store.schema_for(model)))

    @property
    def kv(self) -> TransactionKv:
        """Raw keys and messages in the same commit; writing to keys of models raises ReservedKeyError."""
        return self._kv

    @property
    def versionstamp(self) -> str | None:
        """The versionstamp of the commit; None before it, or if nothing was written."""
        stamp = self._session.versionstamp
        return None if stamp is None else format_versionstamp(stamp)

    def guard(self, name: str, *parts: KeyPart, shared: bool = False) -> None:
        """Make concurrent transactions that take the same guard conflict, so that only one of them commits.

        A commit checks the records that were read; it does not check that a query would still not find others. If a
        decision depends on the absence of records, take a guard in every transaction that could add such a record.

        Any number of transactions may hold a guard with ``shared=True`` and commit side by side. An exclusive holder
        conflicts with each of them, whichever commits first. If one transaction takes a guard in both ways, it is
        exclusive.

        Args:
            name: the name of the guard, such as ``"room"``.
            parts: the guarded item, such as its number.
            shared: conflict with exclusive holders only.

        Raises:
            InvalidArgumentError, InvalidKeyError: the name is not a str, the parts are not key parts, or ``shared`` is
                not a bool.
            ClosedError: the transaction has ended.

        Examples:
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Booking(KvModel, collection="bookings"):
            ...     id: PrimaryKey[int]
            ...     room: Indexed[str]
            >>> with Database("memory://", models=[Booking]) as db:
            ...     with db.transaction() as tx:
            ...         tx.guard("room", "A1")
            ...         if not tx[Booking].filter(room="A1").exists():
            ...             _ = tx[Booking].create(id=1, room="A1")
            ...     db[Booking].filter(room="A1").count()
            1
        """
        require_text("name", name, "Give the guard a name.")
        require_flag("shared", shared)
        self._session.perform(self._session.flows.guard(name, parts, shared))

    def on_commit(self, function: Callable[[], object]) -> None:
        """Call a function after the commit; functions run in the order of these calls, and not after a rollback.

        Args:
            function: called without arguments. The asynchronous API awaits a coroutine function, the synchronous one
                refuses it. Its exception is raised in the caller, with a note that the transaction was committed.

        Raises:
            InvalidArgumentError: ``function`` is not callable.
            ClosedError: the transaction has ended.
        """
        require_callable("function", function, "Give a function without parameters.")
        worlds.require_hook(function)
        self._session.flows.require_open()
        self._session.flows.hooks.append(function)

    def unchecked(self) -> AbstractContextManager[None]:
        """Read without checks: the commit does not check reads made in this block.

        This applies to code that is called or awaited from the block, and to tasks that are started inside it. A read
        while a generator is suspended in the block raises TransactionSuspendedError. On an engine without snapshots (KV
        Connect) each of these reads is of its own state.

        Returns:
            A context manager: ``with tx.unchecked(): ...``.

        Raises:
            ClosedError: the transaction has ended.
        """
        return self._session.flows.unchecked()

    def __repr__(self) -> str:
        session = self._session
        return f"<Transaction of {session.store.engine.url}, {'ended' if session.flows.ended else 'open'}>"


class Decorator(Protocol):
    """Converts a function with the transaction as its first parameter to one that is called without it.

    An asynchronous database decorates coroutine functions, a synchronous one plain functions.
    """

    def __call__(self, function: Callable[Concatenate[Transaction, P], R], /) -> Callable[P, R]:
        """Decorate a function.

        Args:
            function: receives the transaction as its first argument.

        Returns:
            A function with the remaining parameters.

        Raises:
            InvalidArgumentError: the function has the wrong kind, or is an unbound method.
        """
        ...


Begin: TypeAlias = Callable[[int], Session]


class TransactionBlock:
    """The block of a transaction; created by ``db.transaction()``.

    If code that runs inside a block enters another block of the same database, the inner block joins the outer one,
    which commits. If an exception escapes from an inner block, the outer block can no longer be committed.
    """

    def __init__(
        self,
        begin: Begin,
        scope: Scope[Transaction],
        rerun: Rerun | None = None,
        call: observing.Observation | None = None,
    ) -> None:
        self._begin = begin
        self._scope = scope
        self._rerun = rerun
        self._call = call
        self._outer: transaction_flows.TransactionFlows | None = None
        self._session: Session | None = None
        self._open: OpenBlock[Transaction] | None = None
        self.conflict: TransactionConflictError | None = None
        """The conflict that ended this very transaction."""
        self.contended: tuple[bytes, ...] = ()
        """The keys of that conflict."""

    @property
    def lost(self) -> SnapshotLostError | None:
        """The error that ended this very transaction because its snapshot was lost."""
        return None if self._session is None else self._session.lost

    def __enter__(self) -> Transaction:
        if self._session is not None or self._outer is not None:
            raise InvalidArgumentError(
                "a transaction block can be used only once", hint="Call db.transaction() for each with statement."
            )
        frame = calling_frame()
        joined = self._scope.current()
        if joined is not None:
            self._outer = joined.flows
            self._open = self._scope.enter(joined, frame)
            return joined.transaction
        session = self._session = self._begin(1 if self._rerun is None else self._rerun.attempt)
        session.flows.rerun = self._rerun
        session.observation = session.store.observation() if self._rerun is None else self._call
        try:
            session.begin()
        except BaseException as error:
            session.roll_back(error)
            self._report(session, error)
            raise
        transaction = Transaction(session)
        self._open = self._scope.enter(OpenTransaction(transaction, session.flows), frame)
        return transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._open = self._open, None
        assert block is not None, "a block is entered before it is left, once"
        self._scope.leave(block)
        if self._outer is not None:
            self._outer.aborted_by = self._outer.aborted_by or error
            return
        session = self._session
        assert session is not None, "a block that joins no other has a transaction of its own"
        try:
            after = self._ended(session, error)
        except BaseException as failure:
            if isinstance(failure, TransactionConflictError):
                self.conflict, self.contended = failure, session.flows.contended
            self._report(session, failure)
            raise
        self._report(session, error)
        if error is not None and error is session.flows.met:
            self.conflict, self.contended = session.flows.met, session.flows.contended
        elif self._rerun is not None:
            self._rerun.ticket.leave()  # before user functions are called
        worlds.run_after(after)

    def _report(self, session: Session, error: BaseException | None) -> None:
        """Report a transaction; a function that may run again reports all its runs together."""
        observation = session.observation
        if observation is None:
            return
        if isinstance(error, TransactionConflictError):
            observation.conflict()
        if self._rerun is None:
            observation.finish(error)

    def __del__(self) -> None:
        block = getattr(self, "_open", None)  # the constructor may have been interrupted
        if block is not None and self._session is not None:
            block.abandon()

    def _ended(self, session: Session, error: BaseException | None) -> list[Callable[[], object]]:
        if error is not None:
            session.roll_back(error)
            return []
        try:
            return session.commit()
        except BaseException as failure:
            session.roll_back(failure)
            raise


class Transactions:
    """The transactions of one database handle; ``store`` opens the store at the first transaction."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._scope: Scope[Transaction] = Scope()

    def _begin(self, attempt: int) -> Session:
        return Session(self._store(), attempt)

    def _run(self, engine: Engine, flow: Flow[None]) -> None:
        worlds.run(engine, flow)

    def block(self, rerun: Rerun | None = None, call: observing.Observation | None = None) -> TransactionBlock:
        """Return a new block.

        ``rerun`` is the state of a function that is run again after a conflict, and ``call`` the observation of all its
        runs.
        """
        return TransactionBlock(self._begin, self._scope, rerun, call)

    def decorator(self, retries: int | None) -> Decorator:
        """Return the decorator of ``Database.transactional``; raise if ``retries`` is invalid."""
        require_retries(retries)

        def decorate(function: Callable[Concatenate[Transaction, P], R], /) -> Callable[P, R]:
            return self._repeating(function, retries)

        return decorate

    def _repeating(self, function: Callable[Concatenate[Transaction, P], R], retries: int | None) -> Callable[P, R]:
        """Return the function as a transaction that is rerun after a conflict; see ``Database.transactional``."""
        worlds.require_transactional(function)
        require_function(function)
        history = RunHistory()

        # A separate function, so that a task waiting for its turn keeps no reference to the last run, which the garbage
        # collector would have to traverse.
        def once(rerun: Rerun, call: observing.Observation | None, *args: P.args, **kwargs: P.kwargs) -> object:
            block = self.block(rerun, call)
            try:
                with block as tx:
                    return function(tx, *args, **kwargs)
            except TransactionConflictError as conflict:
                if conflict is not block.conflict:
                    raise
                rerun.beaten(conflict, block.contended)
                return AGAIN
            except SnapshotLostError as error:
                if error is not block.lost:
                    raise
                rerun.interrupted(error)
                return AGAIN

        @wraps(function)
        def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
            store = self._store()
            rerun = Rerun(store.context, retries, history)
            call = None if self._scope.current() is not None else store.observation()
            with rerun.ticket.alive, observing.observed(call):
                try:
                    while True:
                        result = once(rerun, call, *args, **kwargs)
                        if result is not AGAIN:
                            return cast("R", result)
                        self._run(store.engine, observing.through(call, rerun.again()))
                        if call is not None:
                            call.begin_attempt()
                finally:
                    rerun.leave()

        return repeated


class _TransactionRunner:
    """Runs the flows of one repository in the transaction."""

    def __init__(self, session: Session, schema: ModelSchema) -> None:
        self._session = session
        self.context = session.flows.context
        self.schema = schema

    def run(self, verb: str, flow: AnyFlow[T], query: Query | None = None) -> T:
        return self._session.run(verb, flow, self.schema, query)

    def observation(
        self, verb: str, query: Query | None = None, *, streamed: bool = False
    ) -> observing.Observation | None:
        return self._session.observe(verb, self.schema, query, streamed=streamed)

    def run_part(self, flow: AnyFlow[T], observation: observing.Observation | None) -> T:
        return self._session.run_part(flow, observation)


show_public_path(Transaction)
refuse_copies(Session, Transaction, TransactionBlock)
refuse_other_with(TransactionBlock)
