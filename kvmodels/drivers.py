"""The synchronous driver; with ``kvmodels.drivers_async`` the only place where a flow meets an engine.

Rules of this module: a driver performs requests and decides nothing else. Errors of the library are thrown into
the flow, so that it can handle them; every other exception closes the flow and goes on. KeyboardInterrupt and
cancellation pass through the flow, which may add a note with the token of an operation whose answer was lost.
Whatever happens, the flow is closed when the driver returns, and no lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

from kvmodels.engines.base import Engine, RemovingEngine, Snapshot
from kvmodels.errors import DecodeError, KvModelsError
from kvmodels.flows.requests import (
    AGAIN,
    AnyFlow,
    Commit,
    Count,
    Flow,
    OneCount,
    OneRead,
    OneRow,
    Read,
    ReadChanges,
    ReadRow,
    Remove,
    Request,
    Sleep,
    WaitForCommit,
    steps_of,
)
from kvmodels.operations import Follow, Guard, GuardFailed, Likely, ReadRange, ReadResult, row_of

__all__ = ["Look", "looked_up", "perform", "run", "tell"]

T = TypeVar("T")

Look: TypeAlias = Callable[[bytes, Guard | None, Follow | None, bool], Sequence[Any] | None]
"""``row_at_key`` of an engine: a row as ``OneRow.made`` takes it, ``()``: there is none, None: a read has to say."""

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


def run(
    engine: Engine,
    flow: AnyFlow[T],
    *,
    snapshot: Snapshot | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Run a flow to its end in this thread.

    Args:
        engine: answers the reads and commits of the flow.
        flow: a generator that has not been started, or the one read that it would be.
        snapshot: where the flow reads, without guards; None for the present state at each read.
        sleep: waits for a number of seconds; tests inject their own.

    Returns:
        What the flow returns.

    Raises:
        KvModelsError: what the engine raised and the flow did not handle, or what the flow raised.

    Examples:
        >>> from kvmodels.engines.memory import MemoryEngine
        >>> from kvmodels.flows.requests import commit, read
        >>> from kvmodels.operations import AtomicWrite, Set, point
        >>> def write_and_read():
        ...     yield from commit(AtomicWrite(mutations=(Set(b"k", b"v", 3),)))
        ...     found = yield from read([point(b"k")])
        ...     return found.ranges[0][0].value
        >>> run(MemoryEngine(), write_and_read())
        b'v'
    """
    if type(flow) is OneRow and snapshot is None:
        look: Look | None = getattr(engine, "row_at_key", None)
        if look is not None and flow.made is not None:
            result: T = looked_up(look, flow)
            if result is not AGAIN:
                return result
            flow = flow.read(guessed=True)
        else:  # as below, without a value that says what is read
            key, guard, follow, _, way, then, asked = flow
            read = engine.read((_new(ReadRange, (key, None, None, False, False)),), guard, follow=follow)
            if not isinstance(read, GuardFailed):
                result = way.answer(read, key, asked)
                if result is not AGAIN:
                    return result
            assert then is not None  # there was a guard, or an answer that needs it
            flow = then(asked)
    if isinstance(flow, OneRead) and snapshot is None:
        ranges, guard, follow, meaning, otherwise = flow
        found = engine.count(ranges, guard) if type(flow) is OneCount else engine.read(ranges, guard, follow=follow)
        if type(found) is not GuardFailed:
            result = meaning(found)
            if result is not AGAIN:
                return result
        assert otherwise is not None  # there was a guard, or an answer that needs it
        flow = otherwise()
    return _run_through(engine, steps_of(flow), snapshot, sleep)


def looked_up(look: Look, one: OneRow[T], *, at_once: bool = False) -> T:
    """What one row means, without all else that a read says; AGAIN where the read has to say it.

    Args:
        look: ``row_at_key`` of an engine that has it.
        one: what is wanted; its ``made`` is not None.
        at_once: whether the engine may wait for nobody.
    """
    key, guard, follow, made, way, _, asked = one
    again: T = AGAIN
    row = look(key, guard, follow, at_once)
    if not row:
        return again if row is None else way.absent(asked)
    assert made is not None
    try:
        found = made(row, key)
    except DecodeError:
        found = None  # it may be another record than the one that was wanted: the read tells
    if found is not None:
        return found
    if isinstance(follow, Likely):
        follow.misses += 1
    return again


def _run_through(engine: Engine, flow: Flow[T], snapshot: Snapshot | None, sleep: Callable[[float], object]) -> T:
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
                tell(flow, interruption)
                raise
    finally:
        flow.close()
        answer = None  # an error kept here would hold its traceback, and this frame, in a cycle


def tell(flow: Flow[Any], interruption: BaseException) -> None:
    """Let a flow note on a KeyboardInterrupt or a cancellation what it knows of the outcome; it cannot go on."""
    if not isinstance(interruption, Exception):
        with suppress(StopIteration):
            flow.throw(interruption)


def perform(engine: Engine, request: Request, snapshot: Snapshot | None = None) -> Any:
    """Carry out one request in this thread; raises what the engine raises."""
    if isinstance(request, Read):
        ranges, guard, include_expired, follow = request
        if snapshot is not None:
            return snapshot.read(ranges, include_expired=include_expired, follow=follow)
        if type(request) is ReadRow and (alone := _row_alone(engine, ranges[0][0])) is not None:
            return alone
        return engine.read(ranges, guard, include_expired=include_expired, follow=follow)
    if type(request) is Count:
        ranges, guard = request
        return engine.count(ranges, guard) if snapshot is None else snapshot.count(ranges)
    if type(request) is Commit:
        return engine.commit(request.write)
    if type(request) is Remove:
        return cast("RemovingEngine", engine).remove(request.removal)
    if type(request) is WaitForCommit:
        return engine.wait_for_commit(request.after, request.seconds)
    if type(request) is ReadChanges:
        return engine.changes(request.one, request.after)
    return engine.now_ms()


def _row_alone(engine: Engine, key: bytes) -> ReadResult | None:
    """The row of a key by ``row_at_key``, whose statement the next lookup finds prepared; None: a read has to say."""
    look: Look | None = getattr(engine, "row_at_key", None)
    row: Any = None if look is None else look(key, None, None, False)
    return None if row is None else ReadResult([[row_of(row)] if row else []], [], b"")
