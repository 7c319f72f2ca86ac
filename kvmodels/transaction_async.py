"""Transactions, asynchronous: several reads and writes that become one commit, or nothing.

Rules of this module: what is read, kept and compiled is decided in ``kvmodels.flows.transaction``; here a transaction
gets its surface, its place in the task and its end. Names, signatures and behaviour are those of
``kvmodels.transaction``, which a test compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from inspect import isawaitable, iscoroutinefunction
from types import TracebackType
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar

from kvmodels.errors import InvalidArgumentError, TransactionConflictError
from kvmodels.flows import fetch
from kvmodels.flows import transaction as transaction_flows
from kvmodels.flows.arguments import require_callable, require_text
from kvmodels.flows.context import Context
from kvmodels.flows.operation import run_after
from kvmodels.flows.requests import AnyFlow
from kvmodels.keys import KeyPart
from kvmodels.kv_transaction_async import AsyncTransactionKv
from kvmodels.operations import format_versionstamp
from kvmodels.public_path import show_public_path
from kvmodels.repository_async import AsyncRepository
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.model import KvModel
from kvmodels.transaction_scope import Rerun, Scope, Store
from kvmodels.transaction_session_async import AsyncSession

__all__ = ["AsyncDecorator", "AsyncTransaction", "AsyncTransactionBlock", "AsyncTransactions"]

M = TypeVar("M", bound=KvModel)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncTransaction:
    """Reads and writes that are committed together; made by ``async with db.transaction() as tx``.

    Everything is read from one state of the store, with what the transaction itself has written. At the end one commit
    checks that what was read is unchanged, and writes; until then nothing is sent. Objects of the caller get their
    version with the commit, and are as they were if there is none. Tasks that share it take
    turns.

    Args:
        session: the transaction at the engine.
    """

    __slots__ = ("_kv", "_repositories", "_session")

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._kv = AsyncTransactionKv(session.run, session.perform, session.flows)
        self._repositories: dict[type[Any], AsyncRepository[Any]] = {}

    def __getitem__(self, model: type[M]) -> AsyncRepository[M]:
        try:
            known: AsyncRepository[M] | None = self._repositories.get(model)
        except TypeError:  # an object of a model, perhaps, which has no hash
            known = None
        if known is not None:
            return known
        made: AsyncRepository[M] = AsyncRepository(_Runner(self._session, self._session.store.schema_for(model)))
        self._repositories[model] = made
        return made

    def repository(self, model: type[M]) -> AsyncRepository[M]:
        """The repository of a model in this transaction; the same as ``tx[model]``.

        Args:
            model: one of the models that the database was opened with.

        Returns:
            Its repository, with every verb and query.

        Raises:
            InvalidArgumentError: the database was opened without this model.
        """
        return self[model]

    @property
    def kv(self) -> AsyncTransactionKv:
        """Raw keys and messages in the same commit; keys of models raise ReservedKeyError."""
        return self._kv

    @property
    def versionstamp(self) -> str | None:
        """The versionstamp of the commit; None before it, and if nothing was written."""
        stamp = self._session.versionstamp
        return None if stamp is None else format_versionstamp(stamp)

    async def guard(self, name: str, *parts: KeyPart) -> None:
        """Let only one of all transactions with this guard that run at the same time be committed.

        A commit checks what was read, and not that a query would find nothing else by now. Where a decision rests on
        what a query did not find, take a guard in every transaction that could change that.

        Args:
            name: what is guarded, such as ``"room"``.
            parts: which of them, such as its number.

        Raises:
            InvalidValueError, InvalidKeyError: not a text, or no parts of a key.
            ClosedError: the transaction has ended.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Booking(KvModel, collection="bookings"):
            ...     id: PrimaryKey[int]
            ...     room: Indexed[str]
            >>> async def main():
            ...     async with AsyncDatabase("memory://", models=[Booking]) as db:
            ...         async with db.transaction() as tx:
            ...             await tx.guard("room", "A1")
            ...             if not await tx[Booking].filter(room="A1").exists():
            ...                 await tx[Booking].create(id=1, room="A1")
            ...         return await db[Booking].filter(room="A1").count()
            >>> asyncio.run(main())
            1
        """
        require_text("name", name, "Give the name of what is guarded.")
        await self._session.perform(self._session.flows.guard(name, parts))

    def on_commit(self, function: Callable[[], object]) -> None:
        """Call a function after the commit, in the order of these calls; not if there is none.

        Args:
            function: is called without arguments, and awaited if it is a coroutine function; what it raises goes on
                to the caller, with a note that the transaction was committed.

        Raises:
            InvalidArgumentError: it cannot be called.
            ClosedError: the transaction has ended.
        """
        require_callable("function", function, "Give a function without parameters.")
        self._session.flows.require_open()
        self._session.flows.hooks.append(function)

    def unchecked(self) -> AbstractContextManager[None]:
        """What is read in this block is not checked by the commit.

        That holds for the thread or task that enters it, and for tasks that are started inside.

        Returns:
            A context manager: ``with tx.unchecked(): ...``.

        Raises:
            ClosedError: the transaction has ended.
        """
        return self._session.flows.unchecked()

    def __repr__(self) -> str:
        session = self._session
        return f"<AsyncTransaction of {session.store.engine.url}, {'ended' if session.flows.ended else 'open'}>"


class AsyncDecorator(Protocol):
    """From a coroutine function whose first parameter is the transaction to one that is called without it."""

    def __call__(
        self, function: Callable[Concatenate[AsyncTransaction, P], Awaitable[R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function.

        Args:
            function: gets the transaction as its first argument.

        Returns:
            A coroutine function of the other parameters.

        Raises:
            InvalidArgumentError: no coroutine function.
        """
        ...


Begin: TypeAlias = Callable[[int], Awaitable[AsyncSession]]


class AsyncTransactionBlock:
    """The ``async with`` statement of a transaction; made by ``db.transaction()``.

    A block inside of another one of the same database joins it: the outer one commits. If an exception leaves an inner
    block, the outer one cannot be committed any more.

    Args:
        begin: a new transaction at the engine, given how often it was begun, this time included.
        scope: the transactions of the database.
        attempt: how often the transaction was begun, this time included.
    """

    __slots__ = ("_attempt", "_begin", "_outer", "_scope", "_session", "conflict")

    def __init__(self, begin: Begin, scope: Scope[AsyncTransaction], attempt: int = 1) -> None:
        self._begin = begin
        self._scope = scope
        self._attempt = attempt
        self._outer: transaction_flows.TransactionFlows | None = None
        self._session: AsyncSession | None = None
        self.conflict: TransactionConflictError | None = None
        """The conflict that ended this very transaction."""

    async def __aenter__(self) -> AsyncTransaction:
        if self._session is not None or self._outer is not None:
            raise InvalidArgumentError(
                "a block of a transaction is used once", hint="Call db.transaction() for each with statement."
            )
        joined = self._scope.current()
        if joined is not None:
            self._outer = joined.flows
            return joined.transaction
        session = self._session = await self._begin(self._attempt)
        try:
            await session.begin()
        except BaseException as error:
            await session.roll_back(error)
            raise
        transaction = AsyncTransaction(session)
        self._scope.enter(transaction, session.flows)
        return transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outer is not None:
            self._outer.aborted_by = self._outer.aborted_by or error
            return
        session = self._session
        assert session is not None, "a block is entered before it is left"
        self._scope.leave(session.flows)
        try:
            after = await self._ended(session, error)
        except TransactionConflictError as conflict:
            self.conflict = conflict
            raise
        if error is not None and error is session.flows.met:
            self.conflict = session.flows.met
        await _run_after(after)

    async def _ended(self, session: AsyncSession, error: BaseException | None) -> list[Callable[[], object]]:
        if error is not None:
            await session.roll_back(error)
            return []
        try:
            return await session.commit()
        except BaseException as failure:
            await session.roll_back(failure)
            raise


class AsyncTransactions:
    """The transactions of one database handle.

    Args:
        store: opens the store, at the first transaction.
        session: the kind of transactions at the engine.
        scope: tells which transaction a piece of code is in.
        sleep: waits for a number of seconds before a function is run again.
    """

    __slots__ = ("_scope", "_session", "_sleep", "_store")

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        *,
        session: Callable[[Store, int], AsyncSession] = AsyncSession,
        scope: Scope[AsyncTransaction] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._session = session
        self._scope: Scope[AsyncTransaction] = scope or Scope()
        self._sleep = sleep

    async def _begin(self, attempt: int) -> AsyncSession:
        return self._session(await self._store(), attempt)

    def block(self, attempt: int = 1) -> AsyncTransactionBlock:
        """A new ``async with`` statement.

        Args:
            attempt: how often the transaction was begun, this time included.

        Returns:
            The block, which is used once.
        """
        return AsyncTransactionBlock(self._begin, self._scope, attempt)

    def decorator(self, retries: int) -> AsyncDecorator:
        """What ``AsyncDatabase.transactional`` gives.

        Args:
            retries: how often the function is run again at most.

        Returns:
            The decorator.

        Raises:
            InvalidArgumentError: no number of retries.
        """
        Rerun.require(retries)

        def decorate(
            function: Callable[Concatenate[AsyncTransaction, P], Awaitable[R]], /
        ) -> Callable[P, Coroutine[Any, Any, R]]:
            return self._repeating(function, retries)

        return decorate

    def _repeating(
        self, function: Callable[Concatenate[AsyncTransaction, P], Awaitable[R]], retries: int
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """The function as a transaction that is run again after a conflict; see ``AsyncDatabase.transactional``."""
        if not iscoroutinefunction(function):
            raise InvalidArgumentError(
                "a transaction of an asynchronous database needs a coroutine function",
                argument="function",
                value=getattr(function, "__name__", repr(function)),
                hint="Decorate an 'async def' that returns its result; a plain function with Database.transactional().",
            )

        Rerun.require_function(function)

        @wraps(function)
        async def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
            rerun = Rerun((await self._store()).context, retries)
            while True:
                block = self.block(rerun.attempt)
                try:
                    async with block as tx:
                        result: R = await function(tx, *args, **kwargs)
                        return result
                except TransactionConflictError as conflict:
                    if conflict is not block.conflict:
                        raise
                    pause = rerun.pause(conflict)
                await self._sleep(pause)

        return repeated


async def _run_after(functions: Iterable[Callable[[], object]]) -> None:
    """As ``run_after``, and what is to be awaited is."""
    failed: list[Callable[[], object]] = []
    for function in functions:
        try:
            returned = function()
            if isawaitable(returned):
                await returned
        except Exception as error:  # noqa: BLE001 - functions of the user raise anything; it is raised below
            failed.append(partial(_raise, error))
    run_after(failed)


def _raise(error: Exception) -> NoReturn:
    raise error


class _Runner:
    """Runs the flows of one repository in the transaction."""

    __slots__ = ("_session", "schema")

    def __init__(self, session: AsyncSession, schema: ModelSchema) -> None:
        self._session = session
        self.schema = schema

    @property
    def context(self) -> Context:
        return self._session.flows.context

    async def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Any:
        return await self._session.run(fetch.get(self.context, self.schema, arguments, lookups))

    async def run(self, flow: AnyFlow[T]) -> T:
        return await self._session.run(flow)


show_public_path(AsyncTransaction)
