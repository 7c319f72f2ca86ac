"""The synchronous driver: carries out the requests of a flow with an engine, in the calling thread.

Rules of this module: a driver carries out requests and decides nothing else. Errors of the library are thrown into the
flow, so that it can handle them; every other exception closes the flow and propagates. KeyboardInterrupt and
cancellation pass through the flow, which may add a note with the token of an operation whose answer was lost. In all
cases, when the driver returns, the flow is closed and no lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from kvmodels._support import switches
from kvmodels.core.operations import GuardFailed, PredictedFollow, ReadRange, ReadResult, row_of
from kvmodels.engines.contract import Engine, Snapshot
from kvmodels.errors import ClosedError, DecodeError, KvModelsError
from kvmodels.flows.effects import (
    AGAIN,
    AnyFlow,
    CallOutside,
    Commit,
    CountRows,
    Flow,
    OneLookup,
    OneRequest,
    Pull,
    Read,
    ReadChanges,
    ReadPresent,
    ReadRow,
    ReadToChange,
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
from kvmodels.flows.settling import with_durable_refusals

T = TypeVar("T")

_ROW_ALONE: Final = (ReadRow, ReadToChange)
"""Reads of one key whose answers may have an empty versionstamp."""

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


def run(
    engine: Engine,
    flow: AnyFlow[T],
    *,
    snapshot: Snapshot | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Run a flow to its end in this thread, and return its result.

    With ``snapshot``, the flow reads there without guards; otherwise each read sees the present state. Tests inject
    ``sleep``. Raises KvModelsError: an error of the engine that the flow did not handle, or of the flow.

    Examples:
        >>> from kvmodels.engines.memory.engine import MemoryEngine
        >>> from kvmodels.flows.effects import commit, read
        >>> from kvmodels.core.operations import AtomicWrite, Set, point
        >>> def write_and_read():
        ...     yield from commit(AtomicWrite(mutations=(Set(b"k", b"v", 3),)))
        ...     found = yield from read([point(b"k")])
        ...     return found.ranges[0][0].value
        >>> run(MemoryEngine(), write_and_read())
        b'v'
    """
    if snapshot is not None:
        steps = steps_of(flow) if isinstance(flow, tuple) else flow
        return _run_through(engine, steps, snapshot, sleep)
    if isinstance(flow, OneLookup):
        row_at_key = engine.capabilities.immediate.row
        alone = False
        if row_at_key is not None and flow[0].load is not None:
            alone = True
            result: T = read_one_row(row_at_key, flow)
            if result is not AGAIN:
                return result
        result = _look_up(engine, flow, guessed=alone)
        if result is not AGAIN:
            return result
        flow = flow.lookup.otherwise(flow.given)
    elif isinstance(flow, OneRequest):
        request, answer, otherwise = flow
        found = perform(engine, request)
        if type(found) is not GuardFailed:
            result = answer(found)
            if result is not AGAIN:
                return result
        assert otherwise is not None  # the read had a guard, or an answer that may require it
        flow = otherwise()
    return _run_through(engine, flow, None, sleep)


def _look_up(engine: Engine, one: OneLookup[T], *, guessed: bool) -> T:
    """Look up a record with a read; return AGAIN if the guard failed, or a predicted record was wrong.

    ``guessed`` means that a predicted record was wrong before, so no record is predicted again.
    """
    lookup, key, given = one
    follow = lookup.follow
    if guessed and isinstance(follow, PredictedFollow):
        follow = follow.follow
    found = engine.read((_new(ReadRange, (key, None, None, False, False)),), lookup.guard, follow=follow)
    again: T = AGAIN
    return again if isinstance(found, GuardFailed) else lookup.answer(found, key, given)


def read_one_row(row_at_key: Callable[..., Sequence[Any] | None], one: OneLookup[T]) -> T:
    """Look up a record by its row alone; return AGAIN if an ordinary read must decide. The lookup has a ``load``."""
    lookup, key, given = one
    follow, load = lookup.follow, lookup.load
    again: T = AGAIN
    row = row_at_key(key, lookup.guard, follow)
    if not row:
        return again if row is None else lookup.absent(given)
    assert load is not None
    try:
        found = load(row, key)
    except DecodeError:
        found = None  # it may be a wrong record, which only the read can detect
    if found is not None:
        return found
    if isinstance(follow, PredictedFollow):
        follow.misses += 1
    return again


def _run_through(engine: Engine, flow: Flow[T], snapshot: Snapshot | None, sleep: Callable[[float], object]) -> T:
    if engine.capabilities.server.settle is not None:
        flow = with_durable_refusals(flow, snapshot)
    step: Callable[[Any], Request] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                request = step(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                if type(request) is Commit:
                    answer = engine.commit(request.write)
                elif type(request) is Sleep:
                    sleep(request.seconds)
                    answer = None
                else:
                    answer = perform(engine, request, snapshot)
            except KvModelsError as error:
                step, answer = flow.throw, error
            except BaseException as interruption:
                interrupt(flow, interruption)
                raise
    finally:
        flow.close()
        answer = None  # avoids a cycle: a stored error refers to its traceback and to this frame


def interrupt(flow: Flow[Any], interruption: BaseException) -> None:
    """Throw a KeyboardInterrupt or a cancellation into a flow, which may add a note with the outcome, and ends."""
    if not isinstance(interruption, Exception):
        with suppress(StopIteration):
            flow.throw(interruption)


def release_writes(engine: Engine) -> None:
    """Let other processes write again; see ``effects.ReserveWrites``."""
    with suppress(ClosedError):
        release = engine.capabilities.writes.release
        assert release is not None  # a flow reserves writes only where it can release them
        release()


def perform(engine: Engine, request: Request, snapshot: Snapshot | None = None) -> Any:
    """Carry out one request in this thread; raises the errors of the engine."""
    if isinstance(request, Read):
        ranges, guard, include_expired, follow = request
        if snapshot is not None and type(request) is not ReadPresent:
            return snapshot.read(ranges, include_expired=include_expired, follow=follow)
        row_at_key = engine.capabilities.immediate.row
        if row_at_key is not None and type(request) in _ROW_ALONE and switches.fast_kinds:
            alone = _row_alone(row_at_key, ranges[0][0], include_expired)
            if alone is not None:
                return alone
        return engine.read(ranges, guard, include_expired=include_expired, follow=follow)
    if type(request) is CountRows:
        ranges, guard = request
        return engine.count(ranges, guard) if snapshot is None else snapshot.count(ranges)
    if type(request) is Commit:
        return engine.commit(request.write)
    if type(request) is Remove:
        remove = engine.capabilities.writes.remove
        assert remove is not None  # see ``Context.removes``
        return remove(request.removal)
    if type(request) is TakeTurn:
        return request.ticket.wait(request.seconds)
    if type(request) is ReserveWrites:
        reserve = engine.capabilities.writes.reserve
        assert reserve is not None  # see ``Context.release_writes``
        return reserve(request.seconds)
    if type(request) is WaitForCommit:
        return engine.wait_for_commit(request.after, request.seconds)
    if type(request) is WaitForKeys:
        wait_for_keys = engine.capabilities.server.wait_for_keys
        assert wait_for_keys is not None  # see ``Watch.following``
        return wait_for_keys(*request)
    if type(request) is Settle:
        settle = engine.capabilities.server.settle
        return settle is None or settle(request.versionstamp)
    if type(request) is ReadChanges:
        return engine.changes(request.one, request.after)
    if type(request) is Pull:
        return request.reader.read(request.size)
    return request.function() if type(request) is CallOutside else engine.now_ms()


def _row_alone(row_at_key: Callable[..., Sequence[Any] | None], key: bytes, include_expired: bool) -> ReadResult | None:
    """Read one row with the prepared statement of the next lookup; None if an ordinary read must decide."""
    row: Any = row_at_key(key, None, None)
    if row:
        return _new(ReadResult, ([[row_of(row)]], [], b""))
    # The call does not tell an expired row from none.
    return None if row is None or include_expired else _new(ReadResult, ([[]], [], b""))
