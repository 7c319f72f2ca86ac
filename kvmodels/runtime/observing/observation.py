"""Measures one operation while the drivers run its flows, and reports it to the observers.

Rules of this module: an observation passes every request and answer on unchanged. An error of an observer never reaches
the caller of the operation.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

from kvmodels._support.naming import short_repr
from kvmodels.catalog.keyspace import index_at
from kvmodels.core.operations import Committed, Conflict, Counted, ReadResult
from kvmodels.errors import IntegrityError, InvalidArgumentError, KvModelsError
from kvmodels.flows.bulk.options_and_results import BulkResult
from kvmodels.flows.context import Context
from kvmodels.flows.effects import (
    AnyFlow,
    CallOutside,
    CountRows,
    Flow,
    Read,
    Remove,
    Request,
    ReserveWrites,
    Settle,
    Sleep,
    TakeTurn,
    WaitForCommit,
    WaitForKeys,
    steps_of,
)
from kvmodels.query.query import Query
from kvmodels.runtime.observing.operation import FinishedOperation, ObservedQuery, Observer, Retry

T = TypeVar("T")

_WAITS: Final = frozenset({CallOutside, ReserveWrites, Settle, Sleep, TakeTurn, WaitForCommit, WaitForKeys})

_BY_KEY: Final = frozenset(
    {"bulk_create", "bulk_update", "insert", "mutate", "patch", "remove", "rename", "save", "update_or_create"}
)
"""Methods that read indexes only to check unique values, and not to find records."""

_NO_PREFIX: Final = b"\xff"
"""No key begins with this byte."""

_log = logging.getLogger("kvmodels.observer")


class Reporter:
    """Calls one observer of a store."""

    def __init__(self, observer: Observer) -> None:
        if not callable(cast("object", observer)) or inspect.iscoroutinefunction(observer):
            raise InvalidArgumentError(
                "an observer must be a plain function, or an object that can be called like one",
                argument="observer",
                value=short_repr(observer),
                hint="Give one that takes a FinishedOperation, such as OperationCounters() or QueryLog().",
            )
        if isinstance(observer, type):
            raise InvalidArgumentError(
                "an observer is a class instead of an object of it",
                argument="observer",
                value=short_repr(observer),
                hint=f"Give an object: {observer.__name__}().",
            )
        self.observer = observer
        self._failed = False

    def report(self, operation: FinishedOperation) -> None:
        """Call the observer; log the first of its exceptions."""
        try:
            self.observer(operation)
        except Exception:  # noqa: BLE001 - an observer may raise anything, and its caller did not ask for it
            if not self._failed:
                self._failed = True
                _log.exception("an observer has failed; further failures of it are not logged")


class TenantReporters(tuple[Reporter, ...]):  # noqa: SLOT001 - a subclass of tuple cannot have a slot
    """The observers of a store, for operations of one of its tenants.

    Attributes:
        tenant: the name of the tenant.
    """

    tenant: str

    @classmethod
    def of(cls, reporters: tuple[Reporter, ...], tenant: str) -> TenantReporters:
        """Return these observers for a tenant."""
        found = cls(reporters)
        found.tenant = tenant
        return found


class Observation:
    """One operation that is being observed.

    As a context manager it reports the operation at its end; the end of an iteration before its last result is no
    error.

    Args:
        reporters: the observers of the store.
        verb: the name of the method.
        collection: the collection, if it has one.
        owners: the collection of each first part of index keys; None if indexes are not noted.
        context: the context in which its query is planned.
        query: the query, if it has one.
        in_transaction: whether it is part of a transaction.
        streamed: whether the caller's code runs between its flows, and that time does not count.
    """

    def __init__(
        self,
        reporters: tuple[Reporter, ...],
        verb: str,
        collection: str | None = None,
        *,
        owners: Mapping[str, str] | None = None,
        context: Context | None = None,
        query: Query | None = None,
        in_transaction: bool = False,
        streamed: bool = False,
    ) -> None:
        self._reporters = reporters
        self._verb = verb
        self._collection = collection
        self._owners = None if verb in _BY_KEY else owners
        self._asked = ObservedQuery(context, query) if context is not None and query is not None else None
        self._in_transaction = in_transaction
        self._streamed = streamed
        self._indexes: dict[str, None] = {}
        self._prefix = _NO_PREFIX
        self._reads = self._rows = self._commits = self._conflicts = 0
        self._retries: list[tuple[float, float]] = []
        self._beaten = False
        self._size: int | None = None
        self._busy = self._waited = self._waiting_since = 0.0
        self._started = time.time()
        self._clock = time.perf_counter()

    def through(self, flow: AnyFlow[T]) -> Flow[T]:
        """Return a flow that does the same and is measured as part of this operation."""
        steps = steps_of(flow)
        step: Any = steps.send
        given: Any = None
        began = time.perf_counter()
        try:
            while True:
                try:
                    request: Request = step(given)
                except StopIteration as done:
                    result: T = done.value
                    if self._verb == "bulk_create":
                        self._size = result.matched if isinstance(result, BulkResult) else len(cast("Sized", result))
                    return result
                step = steps.send
                self._note_request(request)
                try:
                    given = yield request
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - an exception of the driver is thrown into the flow
                    step, given = steps.throw, error
                else:
                    self._note_answer(request, given)
        finally:
            steps.close()
            given = None  # avoids a cycle: a stored error refers to its traceback and to this frame
            self._busy += time.perf_counter() - began

    def _note_request(self, request: Request) -> None:
        if type(request) in _WAITS:
            self._waiting_since = time.perf_counter()
            return
        if self._beaten:
            self.begin_attempt()
        if self._owners is not None and isinstance(request, Read | CountRows):
            for one in request.ranges:
                if not one.start.startswith(self._prefix):
                    prefix, index = index_at(one.start, self._owners)
                    self._prefix = prefix or _NO_PREFIX
                    if index is not None:
                        self._indexes[index] = None

    def _note_answer(self, request: Request, answer: Any) -> None:
        if type(request) in _WAITS:
            self._waited += time.perf_counter() - self._waiting_since
        elif isinstance(answer, ReadResult):
            self._reads += 1
            self._rows += sum(map(len, answer.ranges)) + sum(map(len, answer.followed))
        elif isinstance(answer, Committed):
            self._commits += 1
        elif isinstance(answer, Conflict):
            if answer.failed_checks or not isinstance(request, Remove):  # a removal may find no row
                self.conflict()
        elif isinstance(request, Read | CountRows):
            self._reads += 1
            self._rows += sum(answer.numbers) if isinstance(answer, Counted) else 0

    def conflict(self) -> None:
        """Note that the present attempt has met a conflict; a second call for one attempt has no effect."""
        if self._beaten:
            return
        self._beaten = True
        self._conflicts += 1
        self._end_attempt()

    def begin_attempt(self) -> None:
        """Note that another attempt begins after a conflict."""
        self._beaten = False
        self._retries.append((time.perf_counter(), 0.0))

    def _end_attempt(self) -> None:
        if self._retries and self._retries[-1][1] == 0.0:
            self._retries[-1] = (self._retries[-1][0], time.perf_counter())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(None if isinstance(error, GeneratorExit) else error)

    def finish(self, error: BaseException | None = None) -> None:
        """Report the operation to the observers."""
        self._end_attempt()
        if self._verb == "insert" and self._retries and isinstance(error, IntegrityError):
            # The refused commit has found the key or a unique value taken, and the reads after it told which: no rival.
            self._retries.pop()
            self._conflicts -= 1
        operation = FinishedOperation(
            self._verb,
            self._collection,
            tuple(self._indexes),
            self._reads,
            self._rows,
            self._commits,
            self._conflicts,
            tuple([Retry(began - self._clock, ended - began) for began, ended in self._retries]),
            self._waited,
            self._started,
            self._busy if self._streamed else time.perf_counter() - self._clock,
            None if error is None else type(error).__name__,
            error.code if isinstance(error, KvModelsError) else None,
            self._size,
            self._in_transaction,
            self._reporters.tenant if isinstance(self._reporters, TenantReporters) else None,
            self._asked,
        )
        for reporter in self._reporters:
            reporter.report(operation)


_UNOBSERVED: Final = nullcontext()


def observed(observation: Observation | None) -> AbstractContextManager[object]:
    """Return a context manager that reports an observation at its end, if there is one."""
    return _UNOBSERVED if observation is None else observation


@overload
def through(observation: Observation | None, flow: Flow[T]) -> Flow[T]: ...
@overload
def through(observation: Observation | None, flow: AnyFlow[T]) -> AnyFlow[T]: ...
def through(observation: Observation | None, flow: AnyFlow[T]) -> AnyFlow[T]:
    """Return a flow as a part of an observation, if there is one."""
    return flow if observation is None else observation.through(flow)
